-- The index answers as the sequential scan does, whatever has happened to the table.
\set ECHO none
\set layout `echo "${BLOOMIDX_LAYOUT:-partitioned}"`
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE EXTENSION IF NOT EXISTS bloomidx;
CREATE SCHEMA basic;
SET search_path = basic, public;
\pset format unaligned
\pset tuples_only on

-- Answers a query through an index and by a sequential scan: how many rows, whether they are the same, and the
-- plan that found the first answer.
CREATE FUNCTION ask(query text, OUT "rows" bigint, OUT equal bool, OUT plan text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	digest text := 'SELECT count(*), sum(hashtextextended(q::text, 0)) FROM (' || query || ') q';
	line text;
	found numeric;
	expected record;
BEGIN
	EXECUTE digest INTO "rows", found;
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || digest LOOP
		IF line ~ '->' AND line !~ 'Bitmap Heap Scan|Aggregate|Materialize|Memoize' THEN
			plan := concat_ws(', ', plan, substring(line FROM '->  (.*)'));
		END IF;
	END LOOP;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'off', true);
	EXECUTE digest INTO expected;
	equal := ("rows", found) IS NOT DISTINCT FROM expected;
END $$;

-- How many rows of a table the index does not find, each looked up by its own key; NULL if the index was not asked.
CREATE FUNCTION lost_rows(tab text, col text, index_name text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	-- OFFSET 0 and IS TRUE keep the planner from other ways
	query text := format('SELECT count(*) FROM (SELECT %2$s AS key, ctid AS tid FROM %1$s OFFSET 0) a'
						 ' WHERE key IS NOT NULL AND NOT EXISTS'
						 ' (SELECT FROM %1$s WHERE %2$s = a.key AND (ctid = a.tid) IS TRUE OFFSET 0)', tab, col);
	line text;
	used bool := false;
	lost bigint;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		used := used OR line LIKE '%Bitmap Index Scan on ' || index_name;
	END LOOP;
	IF used THEN
		EXECUTE query INTO lost;
	END IF;
	RETURN lost;
END $$;
\set ECHO all

-- A table that has rows when the index is made: hit, miss, several rows.
CREATE TABLE t (id int, grp int, note text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i % 100, 'note ' || i FROM generate_series(1, 10000) i;
CREATE INDEX t_i ON t USING bloomidx (id, grp) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM t WHERE id = 5000');
SELECT * FROM ask('SELECT * FROM t WHERE id = -5000');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE id = 5007 AND grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE id = 5007 AND grp = 8');

-- A lookup finds next to nothing of the heap: the index prunes.  The rows of a Bitmap Index Scan are pages.
CREATE FUNCTION pages_found(query text) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	result json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO result;
	result := result -> 0 -> 'Plan';
	IF result ->> 'Node Type' <> 'Bitmap Heap Scan' THEN
		RAISE EXCEPTION 'the plan is a %', result ->> 'Node Type';
	END IF;
	RETURN (result #>> '{Plans,0,Actual Rows}')::numeric;
END $$;
SELECT pg_relation_size('t') / current_setting('block_size')::int > 30 AS large_enough,
	   pages_found('SELECT * FROM t WHERE id = 5000') BETWEEN 1 AND 4 AS a_hit_finds_few,
	   (SELECT sum(pages_found('SELECT * FROM t WHERE id = ' || -i)) <= 20 FROM generate_series(1, 100) i)
	   AS a_miss_finds_hardly_any;

-- Rows that come later are found, and are filtered at once.
INSERT INTO t SELECT i, i % 100, 'later ' || i FROM generate_series(10001, 40000) i;
SELECT * FROM ask('SELECT * FROM t WHERE id = 10001');
SELECT * FROM ask('SELECT * FROM t WHERE id = 40000');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE id = 40001');
SELECT pages_found('SELECT * FROM t WHERE id = 39999') BETWEEN 1 AND 10 AS a_hit_finds_few,
	   (SELECT sum(pages_found('SELECT * FROM t WHERE id = ' || -i)) <= 50 FROM generate_series(1, 100) i)
	   AS a_miss_finds_hardly_any;

-- Every single row is found.
SELECT lost_rows('t', 'id', 't_i');

-- Updates (HOT or not) and deletes, before and after VACUUM.
UPDATE t SET id = -id WHERE id % 1000 = 0;
UPDATE t SET note = 'changed' WHERE id % 1000 = 1;
DELETE FROM t WHERE id % 1000 = 2;
SELECT id, ask.* FROM unnest('{5000,-5000,5001,5002}'::int[]) id, ask('SELECT * FROM t WHERE id = ' || id);
VACUUM t;
SELECT id, ask.* FROM unnest('{5000,-5000,5001,5002}'::int[]) id, ask('SELECT * FROM t WHERE id = ' || id);
-- rows that take the place of dead ones
INSERT INTO t SELECT i, 200, 'in a hole' FROM generate_series(50001, 50100) i;
SELECT * FROM ask('SELECT * FROM t WHERE grp = 200');
SELECT * FROM ask('SELECT * FROM t WHERE id = 50050');
ANALYZE t;
SELECT * FROM ask('SELECT * FROM t WHERE id = 50050');
SELECT lost_rows('t', 'id', 't_i');

-- The heap becomes shorter, and longer again.
DELETE FROM t WHERE id NOT BETWEEN 1 AND 3000 OR note NOT LIKE 'note%';
VACUUM t;
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE id = 2998');
SELECT * FROM ask('SELECT * FROM t WHERE id = 39999');
INSERT INTO t SELECT i, 201, 'again' FROM generate_series(60001, 65000) i;
SELECT * FROM ask('SELECT * FROM t WHERE grp = 201');
SELECT * FROM ask('SELECT * FROM t WHERE id = 65000');
SELECT lost_rows('t', 'id', 't_i');

-- REINDEX, TRUNCATE.
REINDEX INDEX t_i;
SELECT * FROM ask('SELECT * FROM t WHERE id = 65000');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT lost_rows('t', 'id', 't_i');
TRUNCATE t;
SELECT * FROM ask('SELECT * FROM t WHERE id = 65000');
INSERT INTO t VALUES (65000, 7, 'new');
SELECT * FROM ask('SELECT * FROM t WHERE id = 65000');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 201');

-- An index on an empty table, asked in several ways.
CREATE TABLE e (a int, b text);
CREATE INDEX e_i ON e USING bloomidx (a, b) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');
SELECT * FROM ask('SELECT * FROM e WHERE a IS NULL');
SELECT * FROM ask('SELECT * FROM e WHERE a IN (1, 2) AND b IS NOT NULL');
VACUUM e;
REINDEX INDEX e_i;
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');

-- One row.
INSERT INTO e VALUES (1, 'one');
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');
SELECT * FROM ask('SELECT * FROM e WHERE b = ''one''');
SELECT * FROM ask('SELECT * FROM e WHERE a = 2');
REINDEX INDEX e_i;
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');
SELECT * FROM ask('SELECT * FROM e WHERE b = ''two''');
SELECT pg_relation_size('e_i') / current_setting('block_size')::int <= 5 AS index_is_small;
DELETE FROM e;
VACUUM e;
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');

-- A row of NULLs, inserted and built over.
INSERT INTO e VALUES (NULL, NULL);
SELECT * FROM ask('SELECT * FROM e WHERE a IS NULL');
SELECT * FROM ask('SELECT * FROM e WHERE a = 1');
REINDEX INDEX e_i;
SELECT * FROM ask('SELECT * FROM e WHERE a IS NULL AND b IS NULL');
SELECT * FROM ask('SELECT * FROM e WHERE a IS NOT NULL');

-- An index that is built over pages without rows.
DELETE FROM e;
REINDEX INDEX e_i;
SELECT * FROM ask('SELECT * FROM e WHERE a IS NULL');
INSERT INTO e VALUES (3, NULL);
SELECT * FROM ask('SELECT * FROM e WHERE a = 3');
SELECT * FROM ask('SELECT * FROM e WHERE b IS NULL');

-- The indexes that are left are good.
SELECT count(bloomidx_check(c.oid)) > 0 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'bloomidx' AND c.relkind = 'i' AND i.indisvalid AND c.relnamespace = 'basic'::regnamespace;
DROP SCHEMA basic CASCADE;
