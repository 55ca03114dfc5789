-- Exclusion constraints: uniqueness and deduplication.
\set ECHO none
\set test exclude
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

CREATE TABLE t (id int, name text, EXCLUDE USING bloomidx (id WITH =) WITH (layout = :layout, pages_per_range = 1));
INSERT INTO t SELECT i, 'name ' || i FROM generate_series(1, 5000) i;
SELECT attempt('INSERT INTO t VALUES (77)');
SELECT attempt('INSERT INTO t VALUES (77), (5001)');
SELECT attempt('INSERT INTO t VALUES (5001), (5001)');
SELECT attempt('UPDATE t SET id = 77 WHERE id = 78');
SELECT attempt('UPDATE t SET id = id + 1 WHERE id = 5000');
SELECT attempt('UPDATE t SET name = name WHERE id = 77');
SELECT count(*), count(DISTINCT id) FROM t;

-- NULLs do not conflict
INSERT INTO t VALUES (NULL), (NULL);
UPDATE t SET id = NULL WHERE id = 6;
INSERT INTO t VALUES (6, 'six');
SELECT id, name FROM t WHERE id IS NULL OR id = 6 ORDER BY id, name;

-- a row that was deleted, or whose inserter has aborted, does not conflict; one that was updated does
DELETE FROM t WHERE id = 77;
INSERT INTO t VALUES (77, 'again');
BEGIN;
INSERT INTO t VALUES (9000);
ROLLBACK;
INSERT INTO t VALUES (9000);
UPDATE t SET name = 'updated' WHERE id = 100;
SELECT attempt('INSERT INTO t VALUES (100)');
VACUUM t;
SELECT attempt('INSERT INTO t VALUES (100)');
BEGIN;
DELETE FROM t WHERE id = 100;
INSERT INTO t VALUES (100);
SAVEPOINT s;
DELETE FROM t WHERE id = 100;
ROLLBACK TO s;
SELECT attempt('INSERT INTO t VALUES (100)');
COMMIT;

-- an update that PostgreSQL 16 and later can make in a HOT chain
CREATE TABLE hot (id int, n int, EXCLUDE USING bloomidx (id WITH =) WITH (layout = :layout)) WITH (fillfactor = 30);
INSERT INTO hot SELECT i, 0 FROM generate_series(1, 100) i;
UPDATE hot SET n = n + 1;
UPDATE hot SET id = id + 1000 WHERE id = 50;
SELECT attempt('UPDATE hot SET id = 51 WHERE id = 1050');
SELECT attempt('INSERT INTO hot VALUES (1050)');
INSERT INTO hot VALUES (50);
UPDATE hot SET id = id + 1000 WHERE id = 51;
UPDATE hot SET id = id - 1000 WHERE id = 1051;
SELECT attempt('INSERT INTO hot VALUES (51)');
SELECT count(*), count(DISTINCT id) FROM hot;

-- ON CONFLICT
INSERT INTO t SELECT i, 'new' FROM generate_series(4990, 5010) i ON CONFLICT DO NOTHING;
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE name = 'new') FROM t WHERE id BETWEEN 4990 AND 5010;
INSERT INTO t VALUES (6000, 'first'), (6000, 'second') ON CONFLICT DO NOTHING RETURNING id, name;
INSERT INTO t VALUES (6000) ON CONFLICT ON CONSTRAINT t_id_excl DO NOTHING RETURNING id;
INSERT INTO t VALUES (NULL, 'null') ON CONFLICT DO NOTHING RETURNING name;
SELECT statement, attempt(statement) FROM unnest(ARRAY[
	'INSERT INTO t VALUES (6000) ON CONFLICT (id) DO NOTHING',
	'INSERT INTO t VALUES (6000) ON CONFLICT ON CONSTRAINT t_id_excl DO UPDATE SET name = excluded.name',
	'CREATE UNIQUE INDEX ON t USING bloomidx (id)']) statement;

-- COPY
COPY t FROM stdin;
7000	copied
6000	copied
\.
SELECT count(*) FROM t WHERE id IN (6000, 7000);

-- several columns: equal in all of them
CREATE TABLE pair (a int, b text, c numeric, EXCLUDE USING bloomidx (a WITH =, b WITH =, c WITH =) WITH (layout = :layout));
INSERT INTO pair SELECT i % 10, 'b' || i % 7, i % 11 FROM generate_series(1, 770) i;
SELECT attempt('INSERT INTO pair VALUES (1, ''b1'', 1.0)');
INSERT INTO pair VALUES (1, 'b1', 11), (1, 'b8', 1), (1, NULL, 1), (1, NULL, 1);
INSERT INTO pair SELECT i % 10, 'b' || i % 7, i % 12 FROM generate_series(1, 840) i ON CONFLICT DO NOTHING;
SELECT count(*), count(DISTINCT (a, b, c)) FROM pair WHERE b IS NOT NULL;

-- an expression, and the way to write a predicate
CREATE TABLE mail (address text, active bool,
	EXCLUDE USING bloomidx ((CASE WHEN active THEN lower(address) END) WITH =) WITH (layout = :layout));
INSERT INTO mail VALUES ('A@x', true), ('B@x', true), ('a@X', false), ('a@X', false);
SELECT attempt('INSERT INTO mail VALUES (''a@X'', true)');
SELECT attempt('UPDATE mail SET active = true WHERE NOT active');
SELECT attempt('ALTER TABLE mail ADD EXCLUDE USING bloomidx (address WITH =) WHERE (active)');
SELECT attempt('CREATE TABLE other (id int, EXCLUDE USING bloomidx (id WITH =) WHERE (id > 5))');
SELECT attempt('ALTER TABLE t ADD EXCLUDE USING bloomidx (id WITH <>)');

-- equal values with different bytes
CREATE TABLE number (n numeric, EXCLUDE USING bloomidx (n WITH =) WITH (layout = :layout));
INSERT INTO number VALUES (1.0);
SELECT attempt('INSERT INTO number VALUES (1.000)');

-- added to a table with rows
CREATE TABLE old AS SELECT i % 3000 AS id FROM generate_series(1, 3001) i;
SELECT attempt('ALTER TABLE old ADD EXCLUDE USING bloomidx (id WITH =)');
DELETE FROM old WHERE ctid = (SELECT min(ctid) FROM old WHERE id = 1);
ALTER TABLE old ADD EXCLUDE USING bloomidx (id WITH =) WITH (layout = :layout);
SELECT attempt('INSERT INTO old VALUES (1)');
REINDEX INDEX old_id_excl;
SELECT attempt('INSERT INTO old VALUES (2999)');
TRUNCATE old;
INSERT INTO old VALUES (1);
SELECT attempt('INSERT INTO old VALUES (1)');

-- the index answers queries as any other
SELECT * FROM ask('SELECT * FROM t WHERE id = 77');

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA exclude CASCADE;
