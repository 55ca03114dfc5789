-- The planner's choice, with nothing forced.
\set ECHO none
\set test planner
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle

-- The lowest node of the plan of a query.
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		result := coalesce(substring(line FROM '^(?: *->  )?(.* (?:on|using) .*)'), result);
	END LOOP;
	RETURN result;
END $$;
\set ECHO all

-- A large table with an index on a column of distinct values and one of few.
CREATE TABLE big (id int, k text, few int, half int);
INSERT INTO big SELECT i, 'key ' || i, i % 5, CASE WHEN i <= 100000 THEN 1 ELSE i END FROM generate_series(1, 200000) i;
CREATE INDEX big_i ON big USING bloomidx (id);
CREATE INDEX big_k ON big USING bloomidx (k);
CREATE INDEX big_few ON big USING bloomidx (few);
VACUUM ANALYZE big;

-- It is used where it pays...
SELECT plan('SELECT * FROM big WHERE id = 1234');
SELECT plan('SELECT * FROM big WHERE id = -1');
SELECT plan('SELECT * FROM big WHERE k = ''key 1234''');
SELECT plan('SELECT * FROM big WHERE id IN (1, 1000, 100000)');
SELECT plan('SELECT * FROM big WHERE id = 1234 AND few = 4');
SELECT plan('UPDATE big SET k = k WHERE id = 1234');
SELECT plan('DELETE FROM big WHERE k = ''key 1234''');
SELECT plan('SELECT count(*) FROM big WHERE id = (SELECT 77)');
-- ... and not where it does not
SELECT plan('SELECT * FROM big');
SELECT plan('SELECT * FROM big WHERE few = 3');
SELECT plan('SELECT * FROM big WHERE few IS NULL OR few = 2');
SELECT plan('SELECT * FROM big WHERE id IS NOT NULL');
SELECT plan('SELECT * FROM big WHERE id < 5');

-- A parameter, with a plan for all values.
SET plan_cache_mode = force_generic_plan;
PREPARE by_id (int) AS SELECT * FROM big WHERE id = $1;
SELECT plan('EXECUTE by_id(5)');
EXECUTE by_id(5);
PREPARE by_ids (int[]) AS SELECT count(*) FROM big WHERE id = ANY ($1);
SELECT plan('EXECUTE by_ids(''{1,2,3}'')');
EXECUTE by_ids('{1,2,3}');
RESET plan_cache_mode;
DEALLOCATE ALL;

-- A join with few rows.
CREATE TABLE keys AS SELECT i * 1000 AS id FROM generate_series(1, 5) i;
ANALYZE keys;
SELECT plan('SELECT * FROM keys JOIN big USING (id)');
SELECT plan('SELECT (SELECT k FROM big WHERE big.id = keys.id) FROM keys');

-- A B-tree on the same column wins.
CREATE INDEX big_btree ON big (id);
SELECT plan('SELECT * FROM big WHERE id = 1234');
SELECT plan('SELECT * FROM big WHERE id IN (1, 1000, 100000)');
DROP INDEX big_btree;

-- Rows that have come since the statistics were taken.
INSERT INTO big SELECT i, 'key ' || i, i % 5, i FROM generate_series(200001, 210000) i;
SELECT plan('SELECT * FROM big WHERE id = 1234');
SELECT plan('SELECT * FROM big WHERE id = 205000');
SELECT id FROM big WHERE id = 205000;

-- A partial index.
CREATE INDEX big_part ON big USING bloomidx (half) WHERE half > 1;
ANALYZE big;
SELECT plan('SELECT * FROM big WHERE half = 150000');
SELECT plan('SELECT * FROM big WHERE half = 1');

-- A small table is read as a whole.
CREATE TABLE small AS SELECT i AS id FROM generate_series(1, 100) i;
CREATE INDEX small_i ON small USING bloomidx (id);
ANALYZE small;
SELECT plan('SELECT * FROM small WHERE id = 5');

-- Tables that were never analysed: any plan, but no error and the right answer.
CREATE TABLE fresh (id int, k text);
CREATE INDEX fresh_i ON fresh USING bloomidx (id, k);
SELECT plan('SELECT * FROM fresh WHERE id = 5') IS NOT NULL;
SELECT count(*) FROM fresh WHERE id = 5;
INSERT INTO fresh SELECT i, i FROM generate_series(1, 50000) i;
SELECT plan('SELECT * FROM fresh WHERE id = 5 AND k = ''5''');
SELECT count(*) FROM fresh WHERE id = 5 AND k = '5';
TRUNCATE fresh;
SELECT plan('SELECT * FROM fresh WHERE id IN (5, NULL)') IS NOT NULL;
SELECT count(*) FROM fresh WHERE id = 5;
-- analysed while empty
VACUUM ANALYZE fresh;
SELECT plan('SELECT * FROM fresh WHERE id = 5') IS NOT NULL;
INSERT INTO fresh SELECT i, i FROM generate_series(1, 50000) i;
SELECT plan('SELECT * FROM fresh WHERE id = 5 AND k IS NOT NULL') IS NOT NULL;
SELECT count(*) FROM fresh WHERE id = 5 AND k IS NOT NULL;

-- Parallel plans.
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET enable_seqscan = off;
SET enable_indexscan = off;
SELECT plan('SELECT sum(id) FROM big WHERE few IN (1, 2)');
EXPLAIN (COSTS OFF) SELECT sum(id) FROM big WHERE few IN (1, 2);
SELECT sum(id) FROM big WHERE few IN (1, 2);
SELECT sum(id) FROM big WHERE few NOT IN (0, 3, 4);

-- A predicate with a function of a user, or with a domain: the planner uses the index only if the scan does not evaluate the
-- predicate, or if the query contains the predicate.
RESET min_parallel_table_scan_size;
SET max_parallel_workers_per_gather = 0;
SET enable_indexscan = on;
SET enable_seqscan = on;
SET seq_page_cost = 1e5;
CREATE FUNCTION of_user(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > 0; END';
CREATE DOMAIN checked AS int CHECK (of_user(value));
CREATE TABLE part (k int, y int);
INSERT INTO part SELECT i, i FROM generate_series(1, 5000) i;
CREATE TABLE outer_rows AS SELECT i * 10 AS id FROM generate_series(1, 50) i;
ANALYZE outer_rows;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE FUNCTION scans_of_part(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	RETURN jsonb_path_query_array(plan::jsonb, 'strict $.** ? (@."Relation Name" == "part")."Node Type"');
END $$;
CREATE PROCEDURE try_predicate(predicate text, condition text) LANGUAGE plpgsql AS $$
DECLARE
	one_row CONSTANT text := 'SELECT * FROM part WHERE k = 70 AND ' || condition;
	some_rows CONSTANT text := 'SELECT count(*) FROM outer_rows o JOIN part ON part.k = o.id AND ' || condition;
	n bigint;
BEGIN
	DROP INDEX IF EXISTS part_k;
	EXECUTE 'CREATE INDEX part_k ON part USING bloomidx (k) WITH (pages_per_range = 1) WHERE ' || predicate;
	ANALYZE part;
	EXECUTE some_rows INTO n;
	RAISE INFO 'index WHERE %, condition %: one row %, join %, % rows', predicate, condition, scans_of_part(one_row),
		scans_of_part(some_rows), n;
END $$;
CALL try_predicate('of_user(k) OR k IS NOT NULL', 'y > 10');
CALL try_predicate('of_user(k) OR y > 10', 'y > 10');
CALL try_predicate('y::checked = 3 OR y > 10', 'y > 10');
CALL try_predicate('of_user(y)', 'of_user(y)');
CALL try_predicate('y::checked > 10', 'y::checked > 10');
CALL try_predicate('y > 10', 'y > 10');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET seq_page_cost;
SET enable_seqscan = off;

-- Random pages may be cheaper than sequential ones.
SET random_page_cost = 0.9;
EXPLAIN (COSTS OFF) SELECT * FROM big WHERE id IN (5, 500, 5000, 7);
SELECT count(*) FROM big WHERE id IN (5, 500, 5000, 7);
CREATE FUNCTION total_cost(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT total_cost('SELECT * FROM big WHERE id IN (5, 500, 5000, 7)') < 1e6 AS is_number;
RESET random_page_cost;

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA planner CASCADE;
