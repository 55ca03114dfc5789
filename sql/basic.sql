-- The index answers as the sequential scan does, whatever has happened to the table.
\set ECHO none
\set test basic
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
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

-- A lookup finds next to nothing of the heap: the index prunes.
SELECT pages('t') > 30 AS large_enough,
	   matching_pages('t', 'id = 5000') BETWEEN 1 AND 4 AS a_hit_finds_few,
	   (SELECT sum(matching_pages('t', 'id = ' || -i)) <= 20 FROM generate_series(1, 100) i)
	   AS a_miss_finds_hardly_any;

-- Rows that come later are found, and are filtered at once.
INSERT INTO t SELECT i, i % 100, 'later ' || i FROM generate_series(10001, 40000) i;
SELECT * FROM ask('SELECT * FROM t WHERE id = 10001');
SELECT * FROM ask('SELECT * FROM t WHERE id = 40000');
SELECT * FROM ask('SELECT * FROM t WHERE grp = 7');
SELECT * FROM ask('SELECT * FROM t WHERE id = 40001');
SELECT matching_pages('t', 'id = 39999') BETWEEN 1 AND 10 AS a_hit_finds_few,
	   (SELECT sum(matching_pages('t', 'id = ' || -i)) <= 50 FROM generate_series(1, 100) i)
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
SELECT pages('e_i') <= 5 AS index_is_small;
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
SELECT indexes_are_good();
DROP SCHEMA basic CASCADE;
