-- What is done to tables and indexes: rewrites, subtransactions, temporary and unlogged tables, the extension itself.
\set ECHO none
\set test ddl
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

-- Made, truncated and filled in one transaction; and twice.
BEGIN;
CREATE TABLE t (a int, b text);
CREATE INDEX t_i ON t USING bloomidx (a) WITH (layout = :layout);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
TRUNCATE t;
SELECT * FROM ask('SELECT * FROM t WHERE a = 500');
INSERT INTO t SELECT i, i FROM generate_series(501, 2000) i;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (500, 501)');
COMMIT;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (500, 501)');
BEGIN;
TRUNCATE t;
INSERT INTO t SELECT i, i FROM generate_series(1, 10) i;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (5, 501)');
ROLLBACK;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (5, 501)');
INSERT INTO t VALUES (5, 5);
SELECT lost_rows('t', 'a', 't_i');

-- Savepoints: rows, a TRUNCATE, an index that are rolled back.
BEGIN;
SAVEPOINT s;
INSERT INTO t SELECT i, i FROM generate_series(3001, 4000) i;
SELECT * FROM ask('SELECT * FROM t WHERE a = 3500');
ROLLBACK TO s;
SELECT * FROM ask('SELECT * FROM t WHERE a = 3500');
INSERT INTO t SELECT i, i FROM generate_series(3501, 4000) i;
SAVEPOINT s;
TRUNCATE t;
INSERT INTO t VALUES (1, 1);
ROLLBACK TO s;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (1, 501, 3499, 4000)');
SAVEPOINT s;
CREATE INDEX t_b ON t USING bloomidx (b) WITH (layout = :layout);
INSERT INTO t VALUES (-1, 'b');
ROLLBACK TO s;
CREATE INDEX t_b ON t USING bloomidx (b) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM t WHERE b IN (''b'', ''501'')');
COMMIT;
SELECT lost_rows('t', 'a', 't_i'), lost_rows('t', 'b', 't_b');
-- rows that were rolled back and the same again
BEGIN;
INSERT INTO t VALUES (5001, 'x');
ROLLBACK;
INSERT INTO t VALUES (5001, 'x');
SELECT * FROM ask('SELECT * FROM t WHERE a = 5001');

-- Everything that rewrites the table.
ALTER TABLE t SET (autovacuum_enabled = off);
DELETE FROM t WHERE a % 2 = 0;
VACUUM FULL t;
SELECT lost_rows('t', 'a', 't_i'), lost_rows('t', 'b', 't_b');
CREATE INDEX t_btree ON t (b);
CLUSTER t USING t_btree;
DROP INDEX t_btree;
SELECT lost_rows('t', 'a', 't_i'), lost_rows('t', 'b', 't_b');
ALTER TABLE t ALTER a TYPE int8, ALTER b TYPE varchar(10);
SELECT lost_rows('t', 'a', 't_i'), lost_rows('t', 'b', 't_b');
ALTER TABLE t ALTER a TYPE text;
SELECT lost_rows('t', 'a', 't_i');
SELECT * FROM ask('SELECT * FROM t WHERE a = ''501''');
ALTER TABLE t ADD v float8 DEFAULT random();
SELECT lost_rows('t', 'a', 't_i');
-- this one does not rewrite
ALTER TABLE t ALTER b TYPE text;
INSERT INTO t VALUES ('7001', 'after');
SELECT lost_rows('t', 'a', 't_i'), lost_rows('t', 'b', 't_b');
SELECT * FROM ask('SELECT * FROM t WHERE b = ''after''');
ALTER TABLE t DROP b;
SELECT lost_rows('t', 'a', 't_i');
ALTER TABLE t RENAME a TO key;
ALTER INDEX t_i RENAME TO t_key;
SELECT lost_rows('t', 'key', 't_key');
REINDEX TABLE t;
SELECT lost_rows('t', 'key', 't_key');

-- A column added with a constant default: the rows of before do not have it stored.
ALTER TABLE t ADD c int DEFAULT 42, ADD d text DEFAULT 'given';
CREATE INDEX t_c ON t USING bloomidx (c, d) WITH (layout = :layout);
SELECT (SELECT count(*) FROM t) = "rows" AS all_rows, equal, plan
FROM ask('SELECT * FROM t WHERE c = 42 AND d = ''given''');
UPDATE t SET c = 43 WHERE key = '501';
INSERT INTO t (key, c, d) VALUES ('7002', 44, NULL);
SELECT * FROM ask('SELECT * FROM t WHERE c IN (43, 44)');
SELECT * FROM ask('SELECT * FROM t WHERE d IS NULL');
SELECT * FROM ask('SELECT * FROM t WHERE c = 45');

-- Generated columns.
CREATE TABLE g (a int, twice int GENERATED ALWAYS AS (a * 2) STORED);
INSERT INTO g SELECT i FROM generate_series(1, 1000) i;
CREATE INDEX g_i ON g USING bloomidx (twice) WITH (layout = :layout);
INSERT INTO g SELECT i FROM generate_series(1001, 2000) i;
UPDATE g SET a = 5000 WHERE a = 1500;
SELECT * FROM ask('SELECT * FROM g WHERE twice IN (1000, 3000, 4000, 10000)');

-- Unlogged, and there and back.
CREATE UNLOGGED TABLE u (a int);
CREATE INDEX u_i ON u USING bloomidx (a) WITH (layout = :layout);
INSERT INTO u SELECT i FROM generate_series(1, 1000) i;
SELECT lost_rows('u', 'a', 'u_i');
ALTER TABLE u SET LOGGED;
INSERT INTO u SELECT i FROM generate_series(1001, 2000) i;
SELECT lost_rows('u', 'a', 'u_i');
ALTER TABLE u SET UNLOGGED;
INSERT INTO u SELECT i FROM generate_series(2001, 3000) i;
SELECT lost_rows('u', 'a', 'u_i');
TRUNCATE u;
INSERT INTO u SELECT i FROM generate_series(1, 1000) i;
VACUUM u;
REINDEX INDEX u_i;
SELECT lost_rows('u', 'a', 'u_i');

-- Temporary tables.  ON COMMIT DELETE ROWS builds the index anew in the same file, again and again.
CREATE TEMP TABLE temp_rows (a int) ON COMMIT DELETE ROWS;
CREATE INDEX temp_rows_i ON temp_rows USING bloomidx (a) WITH (layout = :layout);
BEGIN;
INSERT INTO temp_rows SELECT i FROM generate_series(1, 3000) i;
SELECT lost_rows('temp_rows', 'a', 'temp_rows_i');
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
COMMIT;
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
BEGIN;
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
INSERT INTO temp_rows SELECT i FROM generate_series(2001, 2100) i;
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
SELECT lost_rows('temp_rows', 'a', 'temp_rows_i');
DROP INDEX temp_rows_i;
CREATE INDEX temp_rows_i ON temp_rows USING bloomidx (a) WITH (layout = :layout);
INSERT INTO temp_rows VALUES (2000);
SELECT lost_rows('temp_rows', 'a', 'temp_rows_i');
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
COMMIT;
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 2000');
BEGIN;
INSERT INTO temp_rows SELECT i FROM generate_series(1, 3000) i;
SELECT lost_rows('temp_rows', 'a', 'temp_rows_i');
ROLLBACK;
INSERT INTO temp_rows VALUES (1);
SELECT * FROM ask('SELECT * FROM temp_rows WHERE a = 1');
CREATE TEMP TABLE temp_keep (a int);
INSERT INTO temp_keep SELECT i FROM generate_series(1, 1000) i;
CREATE INDEX temp_keep_i ON temp_keep USING bloomidx (a) WITH (layout = :layout);
INSERT INTO temp_keep SELECT i FROM generate_series(1001, 3000) i;
VACUUM temp_keep;
SELECT lost_rows('temp_keep', 'a', 'temp_keep_i');
DROP TABLE temp_rows, temp_keep;

-- CONCURRENTLY.
CREATE TABLE con (a int, b text);
INSERT INTO con SELECT i, i FROM generate_series(1, 3000) i;
UPDATE con SET b = 'x' WHERE a % 10 = 0;
CREATE INDEX CONCURRENTLY con_i ON con USING bloomidx (a, b) WITH (layout = :layout);
SELECT lost_rows('con', 'a', 'con_i');
SELECT * FROM ask('SELECT * FROM con WHERE b = ''x''');
UPDATE con SET a = -a WHERE a % 10 = 1;
REINDEX INDEX CONCURRENTLY con_i;
SELECT lost_rows('con', 'a', 'con_i');
REINDEX TABLE CONCURRENTLY con;
SELECT lost_rows('con', 'a', 'con_i');
DROP INDEX CONCURRENTLY con_i;
CREATE INDEX CONCURRENTLY con_p ON con USING bloomidx ((a + 1)) WITH (layout = :layout) WHERE b = 'x';
SELECT * FROM ask('SELECT * FROM con WHERE a + 1 = 1001 AND b = ''x''');
DROP TABLE con;

-- A row that is dead cannot make an index fail, however its expression would.
CREATE TABLE dead (x int, y int) WITH (autovacuum_enabled = off);
INSERT INTO dead SELECT i, i FROM generate_series(1, 1000) i;
INSERT INTO dead VALUES (0, 0);
DELETE FROM dead WHERE x = 0;
CREATE INDEX dead_x ON dead USING bloomidx ((100 / x)) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM dead WHERE 100 / x = 4');
DROP INDEX dead_x;
BEGIN;
INSERT INTO dead VALUES (0, 1), (0, 2000), (7000, 7000);
DELETE FROM dead WHERE x = 0 AND y = 1;
UPDATE dead SET x = 25 WHERE y = 2000;
CREATE INDEX dead_x ON dead USING bloomidx ((100 / x)) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM dead WHERE 100 / x = 4');
DROP INDEX dead_x;
CREATE INDEX dead_p ON dead USING bloomidx (y) WITH (layout = :layout) WHERE 100 / x = 4;
SELECT * FROM ask('SELECT * FROM dead WHERE 100 / x = 4 AND y IN (2, 24, 2000)');
COMMIT;
SELECT * FROM ask('SELECT * FROM dead WHERE 100 / x = 4 AND y IN (2, 24, 2000)');
VACUUM dead;
INSERT INTO dead VALUES (24, 8000);
SELECT * FROM ask('SELECT * FROM dead WHERE 100 / x = 4 AND y IN (2, 24, 2000, 8000)');

-- Little memory: so many keys that those of a range, a segment, a partition have to be written in parts.
SET maintenance_work_mem = '1MB';
SET work_mem = '64kB';
CREATE TABLE many (a int, b int, c text, pad text);
ALTER TABLE many ALTER pad SET STORAGE PLAIN;
INSERT INTO many SELECT i, i % 1000, 'c' || i, repeat('x', 500) FROM generate_series(1, 60000) i;
CREATE INDEX many_i ON many USING bloomidx (a, b, c) WITH (layout = :layout, pages_per_range = 1);
SELECT pages('many') > 32 * 128 AS has_summary;
SELECT lost_rows('many', 'a', 'many_i');
SELECT * FROM ask('SELECT * FROM many WHERE b = 77');
SELECT * FROM ask('SELECT * FROM many WHERE b IN (77, 78, 79) AND a < 10000');
SELECT * FROM ask('SELECT * FROM many WHERE b = 77 AND c = ''c50077''');
-- The same with rows whose keys are not computed: their ranges match whatever is asked for, in all parts.
BEGIN;
CREATE TEMP TABLE gone AS SELECT a, (ctid::text::point)[0] AS block FROM many WHERE a % 1000 = 0;
DELETE FROM many WHERE a % 1000 = 0;
CREATE INDEX many_e ON many USING bloomidx ((a + 1)) WITH (layout = :layout, pages_per_range = 1);
SELECT count(*), count(*) FILTER (WHERE block IN (SELECT first_block FROM bloomidx_probe('many_e', -a))) AS found
FROM gone;
ROLLBACK;
CREATE TABLE narrow AS SELECT i AS a, -i AS b FROM generate_series(1, 40000) i;
CREATE INDEX narrow_i ON narrow USING bloomidx (a, b) WITH (layout = :layout, pages_per_range = 256);
SELECT i, ask.* FROM unnest('{1,10000,20000,30000,40000,50000}'::int[]) i, ask('SELECT * FROM narrow WHERE a = ' || i);
SELECT * FROM ask('SELECT * FROM narrow WHERE b IN (-1, -20000, -40000) AND a > 1');
ALTER INDEX narrow_i SET (pages_per_range = 1);
REINDEX INDEX narrow_i;
SELECT lost_rows('narrow', 'a', 'narrow_i');
RESET maintenance_work_mem;
RESET work_mem;
DROP TABLE narrow;

-- The extension: moved to another schema, dropped with its indexes, made again somewhere else.
CREATE SCHEMA ddl_other;
ALTER EXTENSION bloomidx SET SCHEMA ddl_other;
SELECT * FROM ask('SELECT * FROM many WHERE a = 5');
INSERT INTO many VALUES (-5);
SELECT * FROM ask('SELECT * FROM many WHERE a = -5');
\set VERBOSITY terse
DROP EXTENSION bloomidx;
\set VERBOSITY default
DROP EXTENSION bloomidx CASCADE;
SELECT count(*) FROM pg_index WHERE indrelid IN ('many'::regclass, 't'::regclass, 'dead'::regclass);
CREATE EXTENSION bloomidx SCHEMA ddl_other;
CREATE INDEX many_i ON many USING bloomidx (a) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM many WHERE a IN (5, -5)');
SELECT extname, nspname FROM pg_extension e, pg_namespace n WHERE extname = 'bloomidx' AND n.oid = extnamespace;

-- Since 16 an update of the indexed column alone stays HOT; whatever it is, the new value is found, and the old one by those
-- who see it.
CREATE TABLE hot (k int, v text) WITH (fillfactor = 50);
INSERT INTO hot SELECT i, 'x' FROM generate_series(1, 10) i;
CREATE INDEX hot_k ON hot USING bloomidx (k) WITH (layout = :layout);
BEGIN;
DECLARE old CURSOR FOR SELECT count(*) FROM hot WHERE k BETWEEN 1 AND 10;
UPDATE hot SET k = k + 100;
SELECT pg_stat_get_xact_tuples_hot_updated('hot'::regclass) =
	CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 10 ELSE 0 END AS hot_where_possible;
FETCH old;
COMMIT;
SELECT lost_rows('hot', 'k', 'hot_k');

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA ddl CASCADE;
DROP EXTENSION bloomidx;
DROP SCHEMA ddl_other;
