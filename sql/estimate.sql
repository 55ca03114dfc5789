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
-- with options
DROP INDEX uuids_i;
SELECT compare('uuids', '{id}', 0.01, 16);
DROP INDEX few_i;
SELECT compare('few', '{kind}', 0.001, 4);

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
CREATE TABLE empty (id int, p point);
ANALYZE small, flags;
SELECT tab, regexp_replace(advice, '\d+%|\(.*', '...') FROM unnest(ARRAY['small', 'flags', 'unknown']::regclass[], ARRAY['id', 'flag', 'id']) AS t(tab, col),
	bloomidx_estimate(tab, ARRAY[col]);
SELECT tab, advice ~ '^bloomidx is a good choice: it needs .* where a B-tree needs .* about \d+ pages$'
FROM bloomidx_estimate('texts', '{mail}'), (VALUES ('texts')) t(tab);
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
SELECT bloomidx_estimate(NULL, '{id}') IS NULL;

-- All indexes that were made here are good.
SELECT count(*), bool_and(bloomidx_check(indexrelid) > 0) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'estimate'::regnamespace;
DROP SCHEMA estimate CASCADE;
