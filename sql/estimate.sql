-- What bloomidx_estimate() expects of an index, compared with the index.
\set ECHO none
\set test estimate
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle

-- Pages of index and heap that a lookup of a column's value reads, each counted once: the mean over some rows' values.
CREATE FUNCTION lookup_pages(tab text, col text, condition text) RETURNS float8 LANGUAGE plpgsql
SET enable_seqscan = off SET enable_indexscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
	sought text[];
	value text;
	plan json;
	pages float8 := 0;
	fetched bigint;
BEGIN
	EXECUTE format('SELECT array_agg(v) FROM (SELECT %1$I::text AS v FROM %2$I WHERE %1$I IS NOT NULL AND %3$s'
				   ' ORDER BY hashtext(ctid::text) LIMIT 100) s', col, tab, condition) INTO sought;
	fetched := pg_stat_get_xact_blocks_fetched((tab || '_i')::regclass);
	FOREACH value IN ARRAY sought LOOP
		EXECUTE format('EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT * FROM %I WHERE %I = %L AND %s',
					   tab, col, value, condition) INTO plan;
		IF plan->0->'Plan'->'Plans'->0->>'Node Type' <> 'Bitmap Index Scan' THEN
			RAISE EXCEPTION 'the index is not used: %', plan;
		END IF;
		pages := pages + (plan #>> '{0,Plan,Plans,0,Actual Rows}')::float8;
	END LOOP;
	-- planning reads the metapage
	RETURN (pages + pg_stat_get_xact_blocks_fetched((tab || '_i')::regclass) - fetched) / cardinality(sought) - 1;
END $$;

-- Estimates, builds, and compares: good is 25% for the size, 50% for the pages, and for the B-tree.  Else figures are
-- shown, and always if estimate.figures is on.
CREATE FUNCTION compare(tab text, columns text[], rate float8 DEFAULT 0.0002, pages_per_range int DEFAULT 0,
						rows_fraction float8 DEFAULT 1, condition text DEFAULT 'true') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e record;
	index_name text := tab || '_i';
	size bigint;
	actual_range int;
	pages float8;
	btree bigint;
	result text;
BEGIN
	SELECT * INTO e FROM bloomidx_estimate(tab::regclass, columns, rate, pages_per_range, rows_fraction);
	EXECUTE format('CREATE INDEX b ON %I (%s) WHERE %s', tab, array_to_string(columns, ', '), condition);
	btree := pg_relation_size('b');
	DROP INDEX b;
	EXECUTE format('CREATE INDEX %I ON %I USING bloomidx (%s) WITH (layout = %s, pages_per_range = %s, false_positive_rate = %s)'
				   ' WHERE %s', index_name, tab, array_to_string(columns, ', '), e.layout, pages_per_range, rate, condition);
	size := pg_relation_size(index_name::regclass);
	pages := lookup_pages(tab, columns[1], condition);
	SELECT i.pages_per_range INTO actual_range FROM bloomidx_info(index_name) i;
	result := format('%s: %s pages per range, size %s, pages per lookup %s, B-tree %s', tab, e.pages_per_range,
		CASE WHEN e.size BETWEEN size / 1.25 AND size * 1.25 THEN 'good' ELSE format('%s, expected %s', size, e.size) END,
		CASE WHEN e.lookup_index_pages + e.lookup_heap_pages BETWEEN pages / 1.5 AND pages * 1.5 THEN 'good'
			ELSE format('%s, expected %s + %s', pages, e.lookup_index_pages, e.lookup_heap_pages) END,
		CASE WHEN e.btree_size BETWEEN btree / 1.5 AND btree * 1.5 THEN 'good'
			ELSE format('%s, expected %s', btree, e.btree_size) END);
	IF e.pages_per_range <> actual_range THEN
		result := result || format(', but there are %s', actual_range);
	END IF;
	IF current_setting('estimate.figures', true) = 'on' THEN
		result := result || format(' [%s; size %s of %s; lookup %s + %s of %s; btree %s of %s] %s', e.layout, e.size, size, round(e.lookup_index_pages::numeric, 2),
								   round(e.lookup_heap_pages::numeric, 2), round(pages::numeric, 2), e.btree_size, btree, e.advice);
	END IF;
	RETURN result;
END $$;
\set ECHO all

CREATE TABLE uuids AS SELECT md5(i::text)::uuid AS id, repeat('x', 60) AS pad FROM generate_series(1, 320000) i;
CREATE TABLE texts AS SELECT md5(i::text) || '@example.com' AS mail, i AS n FROM generate_series(1, 150000) i;
CREATE TABLE scattered AS SELECT (i * 7919::bigint % 100003)::int AS n, repeat('y', 30) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE serial AS SELECT i AS id, md5(i::text) AS pad FROM generate_series(1, 150000) i;
CREATE TABLE few AS SELECT abs(hashint4(i)) % 2000 AS kind, repeat('z', 80) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE skewed AS SELECT floor(power(abs(hashint4(i)) / 2147483648.0, 4) * 5000)::int AS kind, repeat('z', 30) AS pad
	FROM generate_series(1, 100000) i;
CREATE TABLE several AS SELECT md5(i::text)::uuid AS id, abs(hashint4(i)) % 5000 AS tenant, 'user ' || i % 30000 AS name
	FROM generate_series(1, 100000) i;
CREATE TABLE wide AS SELECT md5(i::text)::uuid AS id, repeat('w', 1300) AS pad FROM generate_series(1, 20000) i;
CREATE TABLE part AS SELECT md5(i::text)::uuid AS id, i % 8 = 0 AS open, repeat('p', 40) AS pad FROM generate_series(1, 160000) i;
CREATE TABLE sparse AS SELECT CASE WHEN hashint4(i) % 10 = 0 THEN md5(i::text) END AS code, repeat('s', 50) AS pad
	FROM generate_series(1, 100000) i;
CREATE TABLE batches AS SELECT i / 400 AS batch, md5(i::text) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE numerics AS SELECT (hashint4(i)::numeric / 1000) AS amount, 'x' AS pad FROM generate_series(1, 100000) i;
VACUUM ANALYZE uuids, texts, scattered, serial, few, skewed, several, wide, part, sparse, batches, numerics;

SELECT compare('uuids', '{id}');
SELECT compare('texts', '{mail}');
SELECT compare('scattered', '{n}');
SELECT compare('serial', '{id}');
SELECT compare('few', '{kind}');
SELECT compare('skewed', '{kind}');
SELECT compare('several', '{id, tenant, name}');
SELECT compare('wide', '{id}');
SELECT compare('part', '{id}', rows_fraction => 0.125, condition => 'open');
SELECT compare('sparse', '{code}');
SELECT compare('batches', '{batch}');
SELECT compare('numerics', '{amount}');
SELECT btree_size BETWEEN 150000 * 60 AND 150000 * 90 FROM bloomidx_estimate('texts', ARRAY['(mail COLLATE "C")']);
-- with options
DROP INDEX uuids_i;
SELECT compare('uuids', '{id}', 0.01, 16);
DROP INDEX few_i;
SELECT compare('few', '{kind}', 0.001, 4);

-- a B-tree aligns values of two bytes; of values that are large, a page has one entry each
CREATE TABLE shorts AS SELECT (i % 30000)::int2 AS n, 'x' AS pad FROM generate_series(1, 60000) i;
CREATE TABLE large AS SELECT (SELECT string_agg(md5((i % 2000 * 1000 + j)::text), '') FROM generate_series(1, 28) j) AS t FROM generate_series(1, 6000) i;
ALTER TABLE large ALTER t SET STORAGE PLAIN;
VACUUM FULL ANALYZE shorts, large;
SELECT compare('shorts', '{n}');
SELECT compare('large', '{t}');

-- The layout: block where a range has few keys.
SELECT tab, layout FROM unnest(ARRAY['uuids', 'few', 'batches']::regclass[], ARRAY['id', 'kind', 'batch']) AS t(tab, col),
	bloomidx_estimate(tab, ARRAY[col]);

-- More distinct values than an int counts: the one that half of the rows have still is known, and a B-tree stores it once.
CREATE TABLE huge AS SELECT CASE WHEN i % 2 = 0 THEN 0 ELSE i END AS n, repeat('x', 100) AS pad FROM generate_series(1, 20000) i;
ANALYZE huge;
BEGIN;
UPDATE pg_class SET reltuples = 2e10 WHERE oid = 'huge'::regclass;
SELECT btree_size / 2e10 BETWEEN 12 AND 18 FROM bloomidx_estimate('huge', '{n}');
ROLLBACK;

-- The advice.
CREATE TABLE small AS SELECT i AS id FROM generate_series(1, 1000) i;
CREATE TABLE flags AS SELECT i % 3 AS flag, repeat('f', 100) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE unknown WITH (autovacuum_enabled = off) AS SELECT i AS id, repeat('f', 100) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE xids AS SELECT i::text::xid AS id, repeat('f', 100) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE repeated AS SELECT i % 2500 AS n, repeat('y', 50) AS pad FROM generate_series(1, 200000) i;
CREATE TABLE empty (id int, p point);
ANALYZE small, flags, xids, repeated;
SELECT tab, regexp_replace(advice, '\d+%|\(.*', '...') FROM unnest(ARRAY['small', 'flags', 'unknown']::regclass[], ARRAY['id', 'flag', 'id']) AS t(tab, col),
	bloomidx_estimate(tab, ARRAY[col]);
SELECT tab, advice ~ '^bloomidx is a good choice if a lookup may read about \d+ pages: it needs .*, and a B-tree needs '
FROM bloomidx_estimate('texts', '{mail}'), (VALUES ('texts')) t(tab);
SELECT advice ~ '^bloomidx is a good choice: it needs .*, and a lookup reads about \d+ pages$' FROM bloomidx_estimate('xids', '{id}');
SELECT advice ~ '^a B-tree is the better choice: it stores each of few distinct values once and needs ' FROM bloomidx_estimate('repeated', '{n}', 0.00001);
-- with a number of rows that is beyond all sizes
BEGIN;
UPDATE pg_class SET reltuples = 3e38 WHERE oid = 'small'::regclass;
SELECT btree_size, advice ~ 'a B-tree needs only \d+ [TP]B$' FROM bloomidx_estimate('small', '{id}');
ROLLBACK;
SELECT tab, advice ~ '^consider BRIN' FROM bloomidx_estimate('serial', '{id}'), (VALUES ('serial')) t(tab);

-- What cannot be estimated.
CREATE VIEW v AS SELECT 1 AS id;
CREATE TABLE parted (id int) PARTITION BY LIST (id);
SELECT bloomidx_estimate('empty', '{id}');
SELECT bloomidx_estimate('small', '{nothing}');
SELECT bloomidx_estimate('small', '{ctid}');
SELECT bloomidx_estimate('empty', '{p}');
SELECT bloomidx_estimate('small', '{}');
SELECT bloomidx_estimate('small', '{id, NULL}');
SELECT bloomidx_estimate('small', array_fill('id'::text, '{33}'));
SELECT bloomidx_estimate('small', '{id}', 0.5);
SELECT bloomidx_estimate('small', '{id}', 'NaN');
SELECT bloomidx_estimate('small', '{id}', 0.01, 3);
SELECT bloomidx_estimate('small', '{id}', 0.01, 512);
SELECT bloomidx_estimate('small', '{id}', 0.01, 1, 0);
SELECT bloomidx_estimate('v', '{id}');
SELECT bloomidx_estimate('parted', '{id}');
SELECT bloomidx_estimate('texts_i', '{mail}');
SELECT bloomidx_estimate(1, '{id}');
-- statistics that no ANALYZE has made
CREATE TABLE imported AS SELECT i % 10 AS id FROM generate_series(1, 10000) i;
ANALYZE imported;
UPDATE pg_statistic SET stanumbers1 = '{NaN}', stanumbers2 = '{NaN}' WHERE starelid = 'imported'::regclass;
SELECT layout, btree_size FROM bloomidx_estimate('imported', '{id}');
SELECT bloomidx_estimate(NULL, '{id}') IS NULL;

-- Columns that extract, and expressions: their keys are counted in a sample.  Good is 25% for the size.
\set ECHO none
CREATE FUNCTION compare_sampled(tab text, definition text, options text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e record;
	size bigint;
	actual_range int;
BEGIN
	SELECT * INTO e FROM bloomidx_estimate(tab::regclass, ARRAY[definition]);
	EXECUTE format('CREATE INDEX sampled_i ON %I USING bloomidx (%s) WITH (layout = %s)', tab, definition, e.layout);
	size := pg_relation_size('sampled_i');
	SELECT i.pages_per_range INTO actual_range FROM bloomidx_info('sampled_i') i;
	DROP INDEX sampled_i;
	IF current_setting('estimate.figures', true) = 'on' THEN
		RETURN format('%s: %s of %s, %s + %s pages, %s', definition, e.size, size, e.lookup_index_pages, e.lookup_heap_pages, e.advice);
	END IF;
	RETURN format('%s: size %s, pages per range %s, B-tree %s', definition,
		CASE WHEN e.size BETWEEN size / 1.25 AND size * 1.25 THEN 'good' ELSE format('%s, expected %s', size, e.size) END,
		CASE WHEN e.pages_per_range = actual_range THEN 'good' ELSE format('%s, expected %s', actual_range, e.pages_per_range) END,
		coalesce(e.btree_size::text, 'unknown'));
END $$;
\set ECHO all
CREATE TABLE lines AS SELECT i AS n, format('host%s sshd[%s]: Failed password for user%s from 10.%s.%s.%s port %s id=%s', i % 40, i % 32000,
		floor(power(abs(hashint4(i)) / 2147483648.0, 3) * 3000), i % 256, abs(hashint4(i + 1)) % 256, i % 250, 1024 + abs(hashint4(i + 2)) % 64000,
		substr(md5(i::text), 1, 12)) AS line,
	jsonb_build_object('trace', md5(i::text), 'status', 200 + i % 7, 'host', 'web' || i % 50) AS doc,
	ARRAY['t' || abs(hashint4(i)) % 3000, 't' || i % 11, NULL] AS tags
	FROM generate_series(1, 60000) i;
ALTER TABLE lines ADD words tsvector;
UPDATE lines SET words = to_tsvector('simple', line);
VACUUM FULL lines;
SELECT pg_relation_size('lines') / current_setting('block_size')::int > 2000 AS larger_than_the_sample;
SELECT compare_sampled('lines', definition) FROM unnest(ARRAY['line text_ngram_ops', 'line text_ngram_ops (n = 3)', 'line text_prefix_ops',
	'line text_prefix_ops(length = 12)', 'doc jsonb_path_ops', 'doc jsonb_contains_ops', 'tags array_elements_ops', 'words', 'words tsvector_ops',
	'to_tsvector(''simple'', line)', 'lower(line)', '(n % 1000)', 'line COLLATE "C" text_ngram_ops']) definition;
-- all of a small table; with an empty value, and with nulls
CREATE TABLE few_lines AS SELECT CASE WHEN n % 3 = 0 THEN NULL WHEN n % 3 = 1 THEN '' ELSE line END AS line FROM lines WHERE n <= 20000;
SELECT compare_sampled('few_lines', 'line text_ngram_ops');
-- more keys than are counted, and hardly any
CREATE TABLE many AS SELECT ARRAY(SELECT i * 1000 + j FROM generate_series(1, 1000) j) AS numbers FROM generate_series(1, 2000) i;
SELECT compare_sampled('many', 'numbers array_elements_ops');
CREATE TABLE three_pages AS SELECT 'line ' || i AS line, repeat('x', 1000) AS pad FROM generate_series(1, 20) i;
SELECT compare_sampled('three_pages', 'line text_ngram_ops');
-- several columns, with and without extraction; the default rate is that of the index
CREATE INDEX lines_i ON lines USING bloomidx (n, doc jsonb_path_ops);
SELECT size BETWEEN pg_relation_size('lines_i') / 1.25 AND pg_relation_size('lines_i') * 1.25 AS size, layout, btree_size
FROM bloomidx_estimate('lines', '{n, doc jsonb_path_ops}');
SELECT a.size = b.size AS same, c.size > a.size AS larger FROM bloomidx_estimate('lines', '{line text_ngram_ops}') a,
	bloomidx_estimate('lines', '{line text_ngram_ops}', 0.2) b, bloomidx_estimate('lines', '{line text_ngram_ops}', 0.001) c;
SELECT b.size BETWEEN a.size / 6 AND a.size / 1.5 AS smaller FROM bloomidx_estimate('lines', '{doc jsonb_path_ops}') a,
	bloomidx_estimate('lines', '{doc jsonb_path_ops}', rows_fraction => 0.25) b;
SELECT regexp_replace(advice, '\d+', '...', 'g') FROM bloomidx_estimate('lines', '{line text_ngram_ops}');
-- a name that would have to be quoted, and one that is a definition, too
CREATE TABLE "Names" AS SELECT i AS "Id", ARRAY[i] AS "tags array_elements_ops", ARRAY[i] AS tags FROM generate_series(1, 1000) i;
ANALYZE "Names";
SELECT name, btree_size IS NULL AS sampled FROM unnest(ARRAY['Id', '"Id"', 'tags array_elements_ops', 'tags  array_elements_ops']) name,
	bloomidx_estimate('"Names"', ARRAY[name]);
-- wrong definitions
SELECT bloomidx_estimate('lines', '{line no_ops}');
SELECT bloomidx_estimate('lines', '{line text_ngram_ops (n = 99)}');
SELECT bloomidx_estimate('lines', '{line array_elements_ops}');
SELECT bloomidx_estimate('lines', '{line DESC}');
SELECT bloomidx_estimate('lines', '{"line) WITH (fillfactor = 10"}');
SELECT bloomidx_estimate('lines', '{"line); SELECT (1"}');
SELECT bloomidx_estimate('lines', '{"line,n"}');
SELECT bloomidx_estimate('lines', '{"lower(line"}');
SELECT bloomidx_estimate('lines', '{"lower(nothing)"}');
SELECT bloomidx_estimate('lines', ARRAY[$$lower('ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ' || nothing)$$]);
SELECT bloomidx_estimate('lines', '{"random()"}');
SELECT bloomidx_estimate('lines', '{"(SELECT 1)"}');
SELECT bloomidx_estimate('lines', '{n, doc jsonb_path_ops}', keys => 'all');
CREATE TABLE no_lines (line text);
SELECT bloomidx_estimate('no_lines', '{line text_ngram_ops}');
-- What CREATE INDEX refuses.
SELECT bloomidx_estimate('no_lines', '{ctid}');
SELECT bloomidx_estimate('no_lines', '{(tableoid::int)}');
SELECT bloomidx_estimate('no_lines', '{"(ROW(line, 1))"}');
SELECT bloomidx_estimate('no_lines', '{"(no_lines IS NULL)"}');
-- Options of an operator class that has none, or has others.
SELECT bloomidx_estimate('no_lines', '{"line text_ops (n = 1)"}');
SELECT bloomidx_estimate('no_lines', '{"line (n = 1)"}');
SELECT bloomidx_estimate('no_lines', '{"lower(line) text_ops (n = 1)"}');
SELECT bloomidx_estimate('no_lines', '{"line text_ngram_ops (length = 4)"}');
SELECT bloomidx_estimate('no_lines', '{"line text_ngram_ops (n = 4000)"}');
-- Rows that the caller does not see are not read, and a function that is not written in C runs only if the caller has named it.
CREATE FUNCTION call(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'call of %', t; RETURN t; END$$;
INSERT INTO no_lines VALUES ('deleted'), ('kept');
DELETE FROM no_lines WHERE line = 'deleted';
SELECT layout FROM bloomidx_estimate('no_lines', '{call(line)}');
CREATE FUNCTION call_hash(t text, seed bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'hash of %', t; RETURN 1; END$$;
CREATE OPERATOR CLASS called_ops FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery),
	FUNCTION 1 call_hash(text, bigint),
	FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal),
	FUNCTION 3 gin_extract_tsquery(tsvector, internal, smallint, internal, internal, internal, internal),
	FUNCTION 6 gin_tsquery_triconsistent(internal, smallint, tsvector, integer, internal, internal, internal),
	STORAGE text;
SELECT bloomidx_estimate('lines', '{words called_ops}');
-- Functions in an expression run as the owner, so the privileges of the owner are needed.
CREATE ROLE regress_bloomidx_estimate IN ROLE pg_stat_scan_tables;
GRANT USAGE ON SCHEMA estimate TO regress_bloomidx_estimate;
SET ROLE regress_bloomidx_estimate;
SELECT layout FROM bloomidx_estimate('no_lines', '{line text_ngram_ops}');
SELECT bloomidx_estimate('no_lines', '{call(line)}');
RESET ROLE;
DROP OWNED BY regress_bloomidx_estimate;
DROP ROLE regress_bloomidx_estimate;

-- All indexes that were made here are good.
SELECT count(*), bool_and(bloomidx_check(indexrelid) > 0) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'estimate'::regnamespace;
DROP SCHEMA estimate CASCADE;
