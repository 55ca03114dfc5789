-- The functions that show and verify an index.
\set ECHO none
\set test inspect
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
RESET client_min_messages;
\set ECHO all

-- An index without a key.
CREATE TABLE t (id uuid, n int, name text) WITH (autovacuum_enabled = off);
CREATE INDEX t_i ON t USING bloomidx (id, n);
SELECT * FROM bloomidx_info('t_i');
SELECT count(*) FROM bloomidx_segments('t_i');
SELECT count(*) FROM bloomidx_probe('t_i', md5('1')::uuid);
SELECT * FROM bloomidx_measure('t_i', 10);
SELECT bloomidx_check('t_i');

-- With keys: what is shown fits together.
INSERT INTO t SELECT md5(i::text)::uuid, i % 700, 'name ' || i FROM generate_series(1, 40000) i;
SELECT layout, format_version, pages_per_range, false_positive_rate, segments, partitions, summarized_partitions, free_pages,
	ranges = ceil(pg_relation_size('t') / current_setting('block_size')::float8 / pages_per_range) AS ranges,
	index_pages = pages('t_i') AS index_pages,
	-- each row leaves three keys, and each range two markers
	keys BETWEEN 0.9 * (120000 + 2 * ranges) AND 1.1 * (120000 + 2 * ranges) AS keys,
	bits_per_key * keys / index_pages / current_setting('block_size')::int BETWEEN 7.99 AND 8.01 AS bits_per_key,
	estimated_fpr BETWEEN 0.00001 AND 0.0005 AS estimated_fpr, note
FROM bloomidx_info('t_i');
SELECT segment, first_block, last_block, filters BETWEEN 1 AND 128 AS filters, full_filters, fill BETWEEN 0.05 AND 0.5 AS fill,
	probes BETWEEN 1 AND 24 AS probes, keys > 0 AS keys, planned_keys > 0 AS planned_keys,
	estimated_fpr BETWEEN 0.00001 AND 0.001 AS rate
FROM bloomidx_segments('t_i') ORDER BY segment;
SELECT sum(s.keys) BETWEEN i.keys - 5 AND i.keys + 5, sum(s.index_pages) + 4 = i.index_pages, count(*) = i.segments
FROM bloomidx_info('t_i') i, bloomidx_segments('t_i') s GROUP BY i.keys, i.index_pages, i.segments;
SELECT bloomidx_blocks('t_i');

-- The range that a row is in is among those that may hold its key; few others are.
SELECT count(*), count(*) FILTER (WHERE found), sum(others) < 200
FROM (SELECT bool_or(block BETWEEN first_block AND last_block) AS found, count(*) - 1 AS others
	FROM (SELECT id, split_part(trim('()' FROM ctid::text), ',', 1)::int AS block FROM t TABLESAMPLE SYSTEM (2) REPEATABLE (1)) r,
		bloomidx_probe('t_i', id)
	GROUP BY id) x;
SELECT count(*) FROM bloomidx_probe('t_i', md5('-1')::uuid) HAVING count(*) < 3;
SELECT count(*) > 50 FROM bloomidx_probe('t_i', 77, 2);
SELECT count(*) > 50 FROM bloomidx_probe('t_i', 77::int8, attnum => 2);
SELECT count(*) > 50 FROM bloomidx_probe('t_i', 77::int2, attnum => 2);
SELECT count(*) FROM bloomidx_probe('t_i', NULL::uuid);
INSERT INTO t VALUES (NULL, NULL);
SELECT last_block = (SELECT max(split_part(trim('()' FROM ctid::text), ',', 1)::int) FROM t)
FROM bloomidx_probe('t_i', NULL::uuid);
SELECT bool_and(last_block < pages('t')) FROM bloomidx_probe('t_i', NULL::int, 2);

-- The same in layout block.
CREATE TABLE b (id int, name text) WITH (autovacuum_enabled = off);
CREATE INDEX b_i ON b USING bloomidx (id) WITH (layout = block, pages_per_range = 1);
SELECT * FROM bloomidx_info('b_i');
SELECT count(*) FROM bloomidx_blocks('b_i');
SELECT count(*) FROM bloomidx_probe('b_i', 1);
SELECT bloomidx_check('b_i');
INSERT INTO b SELECT i, 'name ' || i FROM generate_series(1, 30000) i;
SELECT layout, format_version, pages_per_range, false_positive_rate, partitions, summarized_partitions, free_pages,
	ranges = ceil(pg_relation_size('b') / current_setting('block_size')::float8 / pages_per_range) AS ranges,
	index_pages = pages('b_i') AS index_pages, segments = index_pages - 2 AS segments,
	keys BETWEEN 0.9 * (30000 + ranges) AND 1.1 * (30000 + ranges) AS keys,
	bits_per_key * keys / index_pages / current_setting('block_size')::int BETWEEN 7.99 AND 8.01 AS bits_per_key,
	estimated_fpr BETWEEN 0.00001 AND 0.0005 AS estimated_fpr, note
FROM bloomidx_info('b_i');
SELECT page, first_block = page * (last_block - first_block + 1) AS first_block, index_block, index_pages, probes BETWEEN 5 AND 20 AS probes,
	filters > 0 AS filters, full_filters, fill BETWEEN 0.05 AND 0.6 AS fill, keys > 0 AS keys, estimated_fpr < 0.001 AS rate
FROM bloomidx_blocks('b_i') ORDER BY page LIMIT 3;
SELECT sum(s.keys) BETWEEN i.keys - 5 AND i.keys + 5, count(*) = i.segments
FROM bloomidx_info('b_i') i, bloomidx_blocks('b_i') s GROUP BY i.keys, i.segments;
SELECT bloomidx_segments('b_i');
SELECT bool_and(found)
FROM (SELECT bool_or(block BETWEEN first_block AND last_block) AS found
	FROM (SELECT id, split_part(trim('()' FROM ctid::text), ',', 1)::int AS block FROM b WHERE id % 100 = 0) r,
		bloomidx_probe('b_i', id)
	GROUP BY id) x;
SELECT bloomidx_check('b_i');
-- keys come to pages whose filters were made for fewer
DELETE FROM b;
VACUUM (TRUNCATE off) b;
INSERT INTO b SELECT i, 'name ' || i FROM generate_series(50001, 80000) i;
SELECT regexp_replace(note, '\d+', '...'), estimated_fpr > 0.001 AS overfull FROM bloomidx_info('b_i');
VACUUM b;
SELECT note, estimated_fpr < 0.0005 AS good FROM bloomidx_info('b_i');
SELECT bloomidx_check('b_i');

-- The leader of a parallel VACUUM cannot catch errors, so it leaves the filters of values that may be out of line to another
-- VACUUM.
CREATE TABLE parallel (id int, name text) WITH (autovacuum_enabled = off);
CREATE INDEX parallel_id ON parallel USING bloomidx (id) WITH (pages_per_range = 1);
CREATE INDEX parallel_name ON parallel USING bloomidx (name) WITH (layout = block, pages_per_range = 1);
CREATE INDEX parallel_1 ON parallel (id);
CREATE INDEX parallel_2 ON parallel (name);
INSERT INTO parallel SELECT i, 'name ' || i FROM generate_series(1, 30000) i;
DELETE FROM parallel;
VACUUM (TRUNCATE off, PARALLEL 0) parallel;
INSERT INTO parallel SELECT i, 'name ' || i FROM generate_series(50001, 80000) i;
CREATE FUNCTION notes() RETURNS TABLE (index text, overfull bool) LANGUAGE sql AS $$
	SELECT i, coalesce((bloomidx_info(i::regclass)).note, '') ~ 'more keys than planned' FROM unnest('{parallel_id,parallel_name}'::text[]) i
$$;
SELECT * FROM notes();
SET min_parallel_index_scan_size = 0;
SET max_parallel_maintenance_workers = 2;
VACUUM (PARALLEL 2) parallel;
SELECT * FROM notes();
VACUUM (PARALLEL 0) parallel;
SELECT * FROM notes();
RESET min_parallel_index_scan_size;
RESET max_parallel_maintenance_workers;
SELECT bloomidx_check('parallel_id'), bloomidx_check('parallel_name');
DROP TABLE parallel;

-- The type of the key must be one that the column can be compared with.
SELECT bloomidx_probe('t_i', 'text'::text);
SELECT bloomidx_probe('t_i', 7);
SELECT bloomidx_probe('t_i', md5('1')::uuid, 2);
SELECT bloomidx_probe('t_i', 7.5, 2);
SELECT bloomidx_probe('t_i', 7::oid, 2);
SELECT bloomidx_probe('t_i', ARRAY[7], 2);
SELECT bloomidx_probe('t_i', 7, 3);
SELECT bloomidx_probe('t_i', 7, 0);
SELECT bloomidx_probe('t_i', 7, NULL);
SELECT bloomidx_probe(NULL, 7);
CREATE TYPE color AS ENUM ('red', 'green', 'blue');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN code AS varchar(10);
CREATE TABLE types (v varchar(20), n name, c char(5), e color, a int[], r int4range, p pair, d code, x bytea, f float4, m numeric);
INSERT INTO types VALUES ('abc', 'abc', 'abc', 'red', '{1,2}', '[1,5)', (1, 'x'), 'abc', 'abc', 1.5, 1.50);
CREATE INDEX types_i ON types USING bloomidx (v, n, c, e, a, r, p, d, x, f, m);
SELECT (SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::text, 1)), (SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::varchar, 1)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::code, 1)), (SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::name, 1)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::text, 2)), (SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::name, 2)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 'abc  '::char(9), 3)), (SELECT count(*) FROM bloomidx_probe('types_i', 'red'::color, 4)),
	(SELECT count(*) FROM bloomidx_probe('types_i', '{1,2}'::int[], 5)), (SELECT count(*) FROM bloomidx_probe('types_i', '[1,4]'::int4range, 6)),
	(SELECT count(*) FROM bloomidx_probe('types_i', (1, 'x')::pair, 7)), (SELECT count(*) FROM bloomidx_probe('types_i', ROW(1, 'x'::text), 7)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::text, 8)), (SELECT count(*) FROM bloomidx_probe('types_i', 'abc'::bytea, 9)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 1.5::float8, 10)), (SELECT count(*) FROM bloomidx_probe('types_i', 1.5::numeric, 11));
SELECT (SELECT count(*) FROM bloomidx_probe('types_i', 'abd'::text, 1)), (SELECT count(*) FROM bloomidx_probe('types_i', 'green'::color, 4)),
	(SELECT count(*) FROM bloomidx_probe('types_i', '{2,1}'::int[], 5)), (SELECT count(*) FROM bloomidx_probe('types_i', (1, 'y')::pair, 7)),
	(SELECT count(*) FROM bloomidx_probe('types_i', 1.5001, 11));
SELECT bloomidx_probe('types_i', '{1,2}'::int8[], 5);
SELECT bloomidx_probe('types_i', 'red'::text, 4);
SELECT bloomidx_probe('types_i', '[1,5)'::int8range, 6);
SELECT bloomidx_check('types_i');

-- The measured rate is at most 1.5 times the target, in every geometry.
CREATE TABLE m AS SELECT md5(i::text)::uuid AS id, repeat('x', 60) AS pad FROM generate_series(1, 200000) i;
CREATE FUNCTION measure(layout text, rate float8, pages_per_range int, OUT too_high float8, OUT estimate bool, OUT pages bool)
LANGUAGE plpgsql AS $$
DECLARE
	m record;
	i record;
BEGIN
	EXECUTE format('CREATE INDEX m_i ON m USING bloomidx (id) WITH (layout = %s, false_positive_rate = %s, pages_per_range = %s)',
				   layout, rate, pages_per_range);
	-- at least 500 matches are expected
	SELECT * INTO m FROM bloomidx_measure('m_i', ceil(500 / rate / (2600 / pages_per_range))::int);
	SELECT * INTO i FROM bloomidx_info('m_i');
	IF m.false_positive_rate > 1.5 * rate THEN
		too_high := m.false_positive_rate / rate;
	END IF;
	estimate := i.estimated_fpr BETWEEN 0.6 * m.false_positive_rate AND 1.6 * m.false_positive_rate;
	-- pages of an average match, and as many index pages as a lookup must read
	pages := m.heap_pages BETWEEN 0.9 * m.false_positive_rate * m.ranges * pages_per_range
			AND 1.1 * m.false_positive_rate * m.ranges * pages_per_range
		AND m.index_pages BETWEEN 1 AND i.index_pages;
	DROP INDEX m_i;
END $$;
SELECT layout, rate, pages_per_range, measure.*
FROM unnest(ARRAY['partitioned', 'block']) layout, unnest(ARRAY[0.01, 0.001, 0.0002]) rate, unnest(ARRAY[1, 4, 16]) pages_per_range,
	measure(layout, rate, pages_per_range);
CREATE INDEX m_i ON m USING bloomidx (id);
SELECT probes FROM bloomidx_measure('m_i');
SELECT bloomidx_measure('m_i', 0);
SELECT bloomidx_measure('m_i', 20000000);

-- Notes: options that have changed, filters that are too full, summaries that are missing, ranges in doubt.
SELECT note FROM bloomidx_info('m_i');
ALTER INDEX m_i SET (false_positive_rate = 0.01);
SELECT note FROM bloomidx_info('m_i');
ALTER INDEX m_i SET (pages_per_range = 4);
ALTER INDEX m_i RESET (false_positive_rate);
SELECT note FROM bloomidx_info('m_i');
REINDEX INDEX m_i;
SELECT note, pages_per_range FROM bloomidx_info('m_i');
CREATE TABLE growing (id int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO growing SELECT i, repeat('g', 300) FROM generate_series(1, 1000) i;
CREATE INDEX growing_i ON growing USING bloomidx (id);
DELETE FROM growing;
VACUUM (INDEX_CLEANUP off, TRUNCATE off) growing;
INSERT INTO growing SELECT i FROM generate_series(1001, 10000) i;
SELECT note, estimated_fpr > 0.01 AS overfull FROM bloomidx_info('growing_i');
VACUUM growing;
SELECT note, estimated_fpr < 0.0005 AS good FROM bloomidx_info('growing_i');
-- What was just built has no more keys than it was made for, however its ranges differ.
CREATE TABLE thinned (id int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO thinned SELECT i, repeat('t', 60) FROM generate_series(1, 100000) i;
DELETE FROM thinned WHERE id BETWEEN 10000 AND 75000 AND id % 300 <> 0;
VACUUM thinned;
CREATE FUNCTION fresh(pages_per_range int, rate float8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE INDEX thinned_i ON thinned USING bloomidx (id) WITH (pages_per_range = %s, false_positive_rate = %s)',
				   pages_per_range, rate);
	SELECT note INTO result FROM bloomidx_info('thinned_i');
	DROP INDEX thinned_i;
	RETURN result;
END $$;
SELECT pages_per_range, rate, fresh(pages_per_range, rate)
FROM unnest(ARRAY[1, 4, 8, 16, 64]) pages_per_range, unnest(ARRAY[0.01, 0.0002, 0.00001]) rate
WHERE fresh(pages_per_range, rate) IS NOT NULL;
DROP TABLE thinned;
CREATE TABLE long (id int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
CREATE INDEX long_i ON long USING bloomidx (id) WITH (pages_per_range = 1);
INSERT INTO long SELECT i, repeat('l', 350) FROM generate_series(1, 8400) i;
SELECT summarized_partitions, note FROM bloomidx_info('long_i');
VACUUM long;
SELECT summarized_partitions, note, free_pages FROM bloomidx_info('long_i');
SELECT bloomidx_check('long_i');
CREATE TABLE doubt AS SELECT i AS id FROM generate_series(1, 1000) i;
BEGIN;
DELETE FROM doubt WHERE id % 10 = 0;
CREATE INDEX doubt_i ON doubt USING bloomidx ((id + 1));
COMMIT;
SELECT note FROM bloomidx_info('doubt_i');
SELECT full_filters > 0 FROM bloomidx_segments('doubt_i');
SELECT bloomidx_check('doubt_i');
VACUUM doubt;
SELECT note FROM bloomidx_info('doubt_i');
SELECT bloomidx_summarize('doubt_i');
SELECT note FROM bloomidx_info('doubt_i');
BEGIN;
DELETE FROM doubt WHERE id % 9 = 0;
CREATE INDEX doubt_b ON doubt USING bloomidx ((id + 1)) WITH (layout = block);
COMMIT;
SELECT note FROM bloomidx_info('doubt_b');
SELECT full_filters > 0 FROM bloomidx_blocks('doubt_b');
SELECT bloomidx_check('doubt_b');
VACUUM doubt;
SELECT note FROM bloomidx_info('doubt_b');
SELECT bloomidx_summarize('doubt_b');
SELECT note FROM bloomidx_info('doubt_b');

-- bloomidx_check() looks every visible row up: also of partial and expression indexes, of one's own transaction, NULLs,
-- those that HOT updates have made, and those stored out of line.
CREATE TABLE c (id int, name text, v int) WITH (fillfactor = 70, autovacuum_enabled = off);
INSERT INTO c SELECT nullif(i % 5000, 0), 'Name ' || i, 0 FROM generate_series(1, 10000) i;
CREATE INDEX c_partial ON c USING bloomidx (id) WHERE id % 10 = 0;
CREATE INDEX c_lower ON c USING bloomidx (lower(name));
CREATE INDEX c_both ON c USING bloomidx (id, name);
SELECT bloomidx_check('c_partial'), bloomidx_check('c_lower'), bloomidx_check('c_both'), bloomidx_check('c_both', false);
UPDATE c SET v = 1 WHERE id % 3 = 0;
BEGIN;
DELETE FROM c WHERE id % 7 = 0;
INSERT INTO c SELECT i, string_agg(md5((i * 1000 + j)::text), '') FROM generate_series(1, 10) i, generate_series(1, 500) j GROUP BY i;
SELECT bloomidx_check('c_partial') = (SELECT count(*) FROM c WHERE id % 10 = 0), bloomidx_check('c_lower') = (SELECT count(*) FROM c),
	bloomidx_check('c_both') = (SELECT count(*) FROM c);
ROLLBACK;
SELECT bloomidx_check('c_partial'), bloomidx_check('c_lower'), bloomidx_check('c_both');
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT bloomidx_check('c_both');
COMMIT;
-- an expression that is not what it says
CREATE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 * 2; END';
CREATE TABLE liar AS SELECT i AS id FROM generate_series(1, 200) i;
CREATE INDEX liar_i ON liar USING bloomidx (twice(id));
SELECT bloomidx_check('liar_i');
CREATE OR REPLACE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 * 3; END';
SELECT bloomidx_check('liar_i');
SELECT bloomidx_check('liar_i', heapallindexed => false);
REINDEX INDEX liar_i;
SELECT bloomidx_check('liar_i');

-- What is not a bloomidx index that can be used.
CREATE INDEX t_btree ON t (n);
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE INDEX parted_i ON parted USING bloomidx (id);
CREATE INDEX t_invalid ON t USING bloomidx (n);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_invalid'::regclass;
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN concat_ws('; ', regexp_replace(SQLERRM, '\d{5,}', '...'), nullif(hint, ''));
END $$;
CREATE TABLE functions (name text, call text);
INSERT INTO functions VALUES ('info', 'bloomidx_info(%L)'), ('segments', 'bloomidx_segments(%L)'),
	('blocks', 'bloomidx_blocks(%L)'), ('probe', 'bloomidx_probe(%L, 7)'), ('measure', 'bloomidx_measure(%L, 10)'),
	('check', 'bloomidx_check(%L)'), ('summarize', 'bloomidx_summarize(%L)');
SELECT name, index, try(format('SELECT * FROM ' || call, index))
FROM functions, unnest(ARRAY['t_btree', 't', 'parted_i', 't_invalid']) WITH ORDINALITY AS i(index, i)
ORDER BY name, i;
SELECT name, try(format('SELECT * FROM ' || call, 99999999)) FROM functions ORDER BY name;
SELECT name, try(format('SELECT * FROM ' || call, NULL)) FROM functions ORDER BY name;
DROP INDEX t_invalid;

-- Privileges: who may not read the table learns nothing.
CREATE ROLE regress_bloomidx_nobody;
CREATE ROLE regress_bloomidx_reader;
CREATE ROLE regress_bloomidx_columns;
CREATE ROLE regress_bloomidx_monitor IN ROLE pg_stat_scan_tables;
CREATE ROLE regress_bloomidx_owner;
GRANT USAGE ON SCHEMA inspect TO regress_bloomidx_nobody, regress_bloomidx_reader, regress_bloomidx_columns,
	regress_bloomidx_monitor, regress_bloomidx_owner;
GRANT SELECT ON functions TO PUBLIC;
CREATE TABLE secret AS SELECT i AS id, i AS other FROM generate_series(1, 1000) i;
CREATE INDEX secret_i ON secret USING bloomidx (id);
ALTER TABLE secret OWNER TO regress_bloomidx_owner;
GRANT SELECT ON secret TO regress_bloomidx_reader;
GRANT SELECT (id) ON secret TO regress_bloomidx_columns;
INSERT INTO functions VALUES ('estimate', 'bloomidx_estimate(replace(%L, ''_i'', ''''), ''{id}'')');
SET ROLE regress_bloomidx_nobody;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
SET ROLE regress_bloomidx_columns;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
SET ROLE regress_bloomidx_reader;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
SET ROLE regress_bloomidx_monitor;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
SET ROLE regress_bloomidx_owner;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
-- row-level security takes from the reader what it does not let him see
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
SET ROLE regress_bloomidx_reader;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
SET ROLE regress_bloomidx_owner;
SELECT name, try(format('SELECT * FROM ' || call, 'secret_i')) FROM functions ORDER BY name;
RESET ROLE;
-- index expressions run as the owner of the table, without privileges of the caller, and cannot leave anything behind
CREATE FUNCTION whoami(int) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END';
CREATE FUNCTION leave_table() RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN CREATE TEMP TABLE behind (a int); RETURN 1; END';
CREATE FUNCTION leave(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN current_setting('inspect.leave', true) = 'on' THEN inspect.leave_table() ELSE 1 END;
END $$;
GRANT CREATE ON SCHEMA inspect TO regress_bloomidx_owner;
CREATE TABLE owned AS SELECT i AS id FROM generate_series(1, 10) i;
ALTER TABLE owned OWNER TO regress_bloomidx_owner;
CREATE INDEX owned_whoami ON owned USING bloomidx (whoami(id));
CREATE INDEX owned_leave ON owned USING bloomidx (leave(id));
SELECT bloomidx_check('owned_whoami');
SET inspect.leave = 'on';
SELECT bloomidx_check('owned_leave');
RESET inspect.leave;

-- The progress of bloomidx_check and bloomidx_summarize, as a function of the index sees it.  It is over afterwards; and a
-- command, or a function, that calls such a function keeps its own.
CREATE FUNCTION progress() RETURNS text LANGUAGE sql SET search_path = pg_catalog AS $$
	SELECT pg_stat_clear_snapshot();
	SELECT coalesce((SELECT format('%s %s of %s: %s, %s of %s blocks', coalesce(command, 'no command'), index_relid::regclass,
			relid::regclass, phase, blocks_done, blocks_total)
		FROM pg_stat_progress_create_index WHERE pid = pg_backend_pid()), 'none');
$$;
CREATE FUNCTION watch(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF n = 3000 AND current_setting('inspect.watch', true) = 'on' THEN
		RAISE NOTICE '%', inspect.progress();
	ELSIF n = 3000 AND current_setting('inspect.watch', true) = 'nested' THEN
		RAISE NOTICE '%', inspect.progress();
		PERFORM public.bloomidx_check('inspect.watched_plain');
		RAISE NOTICE '%', inspect.progress();
	ELSIF n = 3000 AND current_setting('inspect.watch', true) = 'phase' THEN
		RAISE NOTICE '%', regexp_replace(inspect.progress(), '[1-9]\d+ of 0 blocks', 'N blocks');
	END IF;
	RETURN n;
END $$;
CREATE TABLE watched (n int, pad text) WITH (fillfactor = 10);
INSERT INTO watched SELECT i, repeat('x', 400) FROM generate_series(1, 3000) i;
CREATE INDEX watched_plain ON watched USING bloomidx (n) WITH (pages_per_range = 4, layout = partitioned);
CREATE INDEX watched_i ON watched USING bloomidx (watch(n)) WITH (pages_per_range = 1, layout = partitioned);
SET inspect.watch = 'on';
SELECT bloomidx_check('watched_i');
SELECT progress();
SELECT bloomidx_check('watched_i', false);
SELECT progress();
CREATE INDEX watched_again ON watched USING bloomidx (watch(n)) WITH (pages_per_range = 1, layout = partitioned);
SET inspect.watch = 'nested';
SELECT bloomidx_check('watched_i');
CREATE INDEX watched_nested ON watched USING bloomidx (watch(n)) WITH (pages_per_range = 1, layout = partitioned);
SELECT progress();
-- the filters have more keys than they were made for
SET inspect.watch = 'off';
INSERT INTO watched SELECT 10000 + i, '' FROM generate_series(1, 3000) i;
SELECT format('UPDATE watched SET n = n + 10000 * %s WHERE n <> 3000', i) FROM generate_series(1, 12) i \gexec
SET inspect.watch = 'phase';
SELECT bloomidx_summarize('watched_i') > 0 AS summarized;
SELECT progress();
RESET inspect.watch;
DROP TABLE watched;

-- What the README says about monitoring.
SELECT index, "table", size <> '' AS size, scans >= 0 AS scans, coalesce(skipped, 50) BETWEEN 0 AND 100 AS skipped,
	coalesce(pages_per_scan, 1) >= 0 AS pages_per_scan, unsummarized, note
FROM (
	SELECT c.oid::regclass AS index, i.indrelid::regclass AS "table", pg_size_pretty(pg_relation_size(c.oid)) AS size,
		s.idx_scan AS scans,
		round(100 - 100 * s.idx_tup_read / nullif(s.idx_scan * h.pages, 0), 3) AS skipped,
		round((io.idx_blks_hit + io.idx_blks_read)::numeric / nullif(s.idx_scan, 0), 1) AS pages_per_scan,
		b.partitions - b.summarized_partitions AS unsummarized, b.estimated_fpr, b.note
	FROM pg_index i
	JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i' AND c.relpersistence <> 't'
	JOIN pg_am a ON a.oid = c.relam AND a.amname = 'bloomidx'
	JOIN pg_stat_all_indexes s USING (indexrelid)
	JOIN pg_statio_all_indexes io USING (indexrelid)
	CROSS JOIN LATERAL (SELECT pg_relation_size(i.indrelid) / current_setting('block_size')::numeric AS pages) h
	CROSS JOIN LATERAL bloomidx_info(c.oid) b
	WHERE i.indisvalid
	ORDER BY pg_relation_size(c.oid) DESC) q
ORDER BY index::text;

-- All indexes that are left are good.
SELECT c.relname, bloomidx_check(c.oid) >= 0
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'bloomidx' AND c.relnamespace = 'inspect'::regnamespace AND c.relkind = 'i' AND i.indisvalid ORDER BY c.relname;
SET client_min_messages = warning;
DROP SCHEMA inspect CASCADE;
DROP ROLE regress_bloomidx_nobody, regress_bloomidx_reader, regress_bloomidx_columns, regress_bloomidx_monitor,
	regress_bloomidx_owner;
