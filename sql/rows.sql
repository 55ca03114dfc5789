-- Rows that the index picks from few pages, and pages that it gives to the executor whole.
\set ECHO none
\set test rows
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\pset tuples_only off

-- What the executor gets: pages of which it knows the rows, whole pages, and rows that it rechecks in vain; how many rows
-- match, and whether a sequential scan says so, too.
CREATE FUNCTION got(query text, OUT "rows" bigint, OUT equal bool, OUT exact bigint, OUT whole bigint, OUT in_vain bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off AS $$
DECLARE
	plan jsonb;
BEGIN
	SELECT ask."rows", ask.equal INTO "rows", equal FROM ask(query);
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	plan := plan #> '{0,Plan}';
	exact := plan -> 'Exact Heap Blocks';
	whole := plan -> 'Lossy Heap Blocks';
	in_vain := coalesce((plan -> 'Rows Removed by Index Recheck')::bigint, 0);
END $$;
\set ECHO all

-- One page per range, and room on it for updates.
CREATE TABLE t (id int, u uuid, note text, code numeric, big text, flag bool) WITH (fillfactor = 60, autovacuum_enabled = off);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, md5(i::text)::uuid, 'note ' || i, i, NULL, i % 2 = 0 FROM generate_series(1, 10000) i;
CREATE INDEX t_i ON t USING bloomidx (id, u, note, code, big, flag)
	WITH (layout = :layout, pages_per_range = 1, false_positive_rate = 0.00001);
VACUUM ANALYZE t;

-- a plain value: only its row
SELECT * FROM got('SELECT * FROM t WHERE id = 5000');
SELECT * FROM got('SELECT * FROM t WHERE id = 5000::bigint');
SELECT * FROM got(format('SELECT * FROM t WHERE u = %L', md5('5000')::uuid));
SELECT * FROM got('SELECT * FROM t WHERE note = ''note 5000''');
SELECT * FROM got('SELECT * FROM t WHERE id = 5000 AND note = ''note 5000''');
-- both are on the page, but not in one row
SELECT * FROM got('SELECT * FROM t WHERE id = 5000 AND note = ''note 5001''');
SELECT "rows", equal, exact <= 5 AS few, whole, in_vain
	FROM got('SELECT * FROM t WHERE id IN (1, 2, 3000, 5000, 9999, 123456)');
SELECT "rows", equal, exact <= 5 AS few, whole, in_vain
	FROM got('SELECT * FROM t WHERE id IN (1, 2, 3000, 5000, 9999) AND note IN (''note 2'', ''note 9999'', ''note 3'')');

-- values that are hashed by a function of the type: whole pages
SELECT "rows", equal, exact, whole FROM got('SELECT * FROM t WHERE code = 5000.0');
SELECT "rows", equal, exact, whole FROM got('SELECT * FROM t WHERE id = 5000 AND flag = true AND code = 5000');

-- NULLs
UPDATE t SET note = NULL WHERE id IN (100, 9000);
INSERT INTO t (id) VALUES (20000);
SELECT "rows", equal, whole, in_vain FROM got('SELECT * FROM t WHERE u IS NULL');
SELECT "rows", equal, whole, in_vain FROM got('SELECT * FROM t WHERE u IS NULL AND id = 20000');
SELECT "rows", equal, whole, in_vain FROM got('SELECT * FROM t WHERE u IS NOT NULL AND id = 5000');
SELECT "rows", equal, whole, in_vain FROM got('SELECT * FROM t WHERE u IS NOT NULL AND id = 20000');
SELECT "rows", equal FROM got('SELECT * FROM t WHERE note IS NULL');

-- stored out of line, or compressed: the executor looks
UPDATE t SET big = repeat('x', 5000) || id WHERE id IN (7, 8);
SELECT "rows", equal FROM got('SELECT * FROM t WHERE big = repeat(''x'', 5000) || 7');
SELECT "rows", equal FROM got('SELECT * FROM t WHERE big = repeat(''x'', 5000) || 9');
ALTER TABLE t ALTER note SET STORAGE MAIN;
UPDATE t SET note = repeat('y', 3000) || id WHERE id IN (17, 18);
SELECT "rows", equal FROM got('SELECT * FROM t WHERE note = repeat(''y'', 3000) || 18');

-- HOT chains: the row is given by its root, be the chain pruned or not
ALTER TABLE t ADD counter int DEFAULT 0;
UPDATE t SET counter = 1 WHERE id = 4000;
UPDATE t SET counter = counter + 1 WHERE id = 4000;
SELECT "rows", equal, exact, whole FROM got('SELECT id, counter FROM t WHERE id = 4000');
VACUUM t;
SELECT "rows", equal, exact, whole FROM got('SELECT id, counter FROM t WHERE id = 4000');
UPDATE t SET counter = counter + 1 WHERE id BETWEEN 1 AND 10000;
SELECT count(*) FILTER (WHERE NOT equal) AS wrong, sum("rows") FROM generate_series(1, 10000, 97) i,
	got('SELECT id, counter FROM t WHERE id = ' || i);

-- an old snapshot sees the old versions, whatever has become of them since
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_seqscan = off;
DECLARE c CURSOR FOR SELECT id, counter FROM t WHERE id IN (6000, 6001);
UPDATE t SET counter = -1 WHERE id = 6000;
DELETE FROM t WHERE id = 6001;
FETCH ALL FROM c;
SELECT "rows", equal FROM got('SELECT id, counter FROM t WHERE id IN (6000, 6001)');
ROLLBACK;

-- the key itself is changed, which since PostgreSQL 16 may be HOT: an older command sees the old one
CREATE TABLE k (id int, pad text) WITH (fillfactor = 50, autovacuum_enabled = off);
INSERT INTO k SELECT i, repeat('x', 50) FROM generate_series(1, 2000) i;
CREATE INDEX k_i ON k USING bloomidx (id) WITH (layout = :layout, pages_per_range = 1);
BEGIN;
SET LOCAL enable_seqscan = off;
DECLARE old CURSOR FOR SELECT id FROM k WHERE id IN (7, 1000, 100007, 101000);
UPDATE k SET id = id + 100000 WHERE id % 2 = 0 OR id = 7;
DECLARE new CURSOR FOR SELECT id FROM k WHERE id IN (7, 1000, 100007, 101000);
FETCH ALL FROM old;
FETCH ALL FROM new;
COMMIT;
SELECT count(*) FILTER (WHERE NOT equal) AS wrong, sum("rows") FROM generate_series(1, 2000, 31) i,
	got(format('SELECT * FROM k WHERE id IN (%s, %s)', i, i + 100000));

-- a column that was added with a default, and is not in the tuples
ALTER TABLE t ADD added int DEFAULT 42;
CREATE INDEX t_added ON t USING bloomidx (added, id) WITH (layout = :layout, pages_per_range = 1);
SELECT "rows", equal FROM got('SELECT * FROM t WHERE added = 42 AND id = 777');
SELECT "rows", equal FROM got('SELECT * FROM t WHERE added = 43 AND id = 777');
ALTER TABLE t ADD added_text text DEFAULT 'forty-two';
CREATE INDEX t_added_text ON t USING bloomidx (added_text, counter) WITH (layout = :layout, pages_per_range = 1);
SELECT "rows", equal FROM got('SELECT * FROM t WHERE added_text = ''forty-two'' AND counter = 3');
SELECT "rows", equal FROM got('SELECT * FROM t WHERE added_text = ''forty-three'' AND counter = 3');

-- an expression, and a predicate
CREATE TABLE e (id int, note text);
INSERT INTO e SELECT i, 'note ' || i FROM generate_series(1, 10000) i;
CREATE INDEX e_lower ON e USING bloomidx (lower(note)) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX e_part ON e USING bloomidx (id) WITH (layout = :layout, pages_per_range = 1) WHERE id % 2 = 0;
SELECT "rows", equal, exact FROM got('SELECT * FROM e WHERE lower(note) = ''note 5000''');
SELECT "rows", equal, whole, in_vain FROM got('SELECT * FROM e WHERE id = 5000 AND id % 2 = 0');

-- many pages: the executor gets them whole
CREATE TABLE many (id int, half int, pad text);
INSERT INTO many SELECT i, i % 2, repeat('x', 500) FROM generate_series(1, 12000) i;
CREATE INDEX many_i ON many USING bloomidx (half, id) WITH (layout = :layout, pages_per_range = 1);
SELECT "rows", equal, exact, whole > 64 AS many FROM got('SELECT * FROM many WHERE half = 1');
SELECT "rows", equal, exact, whole > 64 AS many FROM got('SELECT * FROM many WHERE half = 1 AND id IS NOT NULL');
SELECT "rows", equal, exact, whole > 64 AS many FROM got('SELECT * FROM many WHERE half IS NOT NULL');

-- as many as may be expected for so many values: their rows, whether they are constants or not
SELECT "rows", equal, exact > 64 AS many, whole, in_vain FROM got(format('SELECT * FROM many WHERE id = ANY (%L)',
	(SELECT array_agg(i * 113) FROM generate_series(-20, 200) i)));
SELECT "rows", equal, exact > 64 AS many, whole, in_vain FROM got('SELECT * FROM many WHERE id = ANY (ARRAY(
	SELECT i * 113 FROM generate_series(-20, 200) i)::bigint[])');
SELECT "rows", equal, exact > 64 AS many, whole, in_vain FROM got('SELECT * FROM many WHERE half IN (1, 2) AND id = ANY (ARRAY(
	SELECT i * 113 FROM generate_series(-20, 200) i))');

-- together with another index
CREATE INDEX many_b ON many (id);
SET enable_indexscan = off;
SELECT "rows", equal FROM got('SELECT * FROM many WHERE half = 1 AND id = 77');
SELECT "rows", equal FROM got('SELECT * FROM many WHERE id = 77 OR half = 5');

DROP SCHEMA rows CASCADE;
