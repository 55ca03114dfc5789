-- What the index does not do is refused with a clear message; what queries ask beyond it is answered without it.
\set ECHO none
\set test errors
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

CREATE TABLE t (a int, b text, p point, j json);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;

-- No uniqueness, no further columns, no order.
SELECT statement, attempt(statement) FROM unnest(ARRAY[
	'CREATE UNIQUE INDEX ON t USING bloomidx (a)',
	'CREATE INDEX ON t USING bloomidx (a) INCLUDE (b)',
	'CREATE INDEX ON t USING bloomidx (a ASC)',
	'CREATE INDEX ON t USING bloomidx (a DESC)',
	'CREATE INDEX ON t USING bloomidx (a NULLS FIRST)',
	'ALTER TABLE t ADD EXCLUDE USING bloomidx (a WITH =) WHERE (a > 5)']) statement;
CREATE INDEX t_i ON t USING bloomidx (a, b);
SELECT statement, attempt(statement) FROM unnest(ARRAY[
	'INSERT INTO t VALUES (1, ''1'') ON CONFLICT (a) DO NOTHING',
	'ALTER TABLE t ADD CONSTRAINT u UNIQUE USING INDEX t_i',
	'ALTER TABLE t ADD PRIMARY KEY USING INDEX t_i',
	'ALTER TABLE t REPLICA IDENTITY USING INDEX t_i',
	'CLUSTER t USING t_i']) statement;
INSERT INTO t VALUES (1, '1') ON CONFLICT DO NOTHING;
SELECT * FROM ask('SELECT * FROM t WHERE a = 1');

-- Types without an operator class, and operators that belong to none.
SELECT attempt('CREATE INDEX ON t USING bloomidx (p)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a, j)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a text_ops)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a no_such_ops)');
SELECT condition, ask.* FROM unnest(ARRAY['a < 5', 'a <> 5', 'a BETWEEN 3 AND 5', 'b LIKE ''99%''',
	'a::numeric = 5.0', 'a + 1 = 5']) condition,
	ask('SELECT * FROM t WHERE ' || condition);
SELECT query, "rows", equal FROM unnest(ARRAY['SELECT * FROM t WHERE a IS DISTINCT FROM 5',
	'SELECT * FROM t WHERE (a = 5) IS TRUE',
	'SELECT * FROM t ORDER BY a LIMIT 3', 'SELECT min(a), max(a) FROM t']) query, ask(query);

-- No system columns, more columns than an index can have.
SELECT attempt('CREATE INDEX ON t USING bloomidx (tableoid)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (' || string_agg('a', ', ') || ')') FROM generate_series(1, 33);
SELECT attempt('CREATE INDEX t_32 ON t USING bloomidx (' || string_agg('a', ', ') || ')') FROM generate_series(1, 32);
DROP INDEX t_i;
INSERT INTO t VALUES (2000, 'later');
SELECT * FROM ask('SELECT * FROM t WHERE a = 2000');
SELECT * FROM ask('SELECT * FROM t WHERE a = 1999');
DROP INDEX t_32;

-- An expression or a value that cannot be had is an error of the statement, and leaves nothing behind.
SELECT attempt('CREATE INDEX t_x ON t USING bloomidx ((1 / (a - 500)))');
CREATE INDEX t_x ON t USING bloomidx ((1 / (a - 5000)));
SELECT attempt('INSERT INTO t VALUES (5000)');
SELECT attempt('INSERT INTO t SELECT i FROM generate_series(4990, 5010) i');
INSERT INTO t VALUES (5001);
SELECT * FROM ask('SELECT * FROM t WHERE 1 / (a - 5000) = 1');
DROP INDEX t_x;
CREATE TABLE k (a text COLLATE "C", b text COLLATE "POSIX");
SELECT attempt('CREATE INDEX ON k USING bloomidx ((a || b))');

-- An operator class that is not complete, or wrong, is found by amvalidate().
CREATE OPERATOR CLASS no_function FOR TYPE int4 USING bloomidx AS OPERATOR 1 =;
CREATE OPERATOR CLASS no_operator FOR TYPE int4 USING bloomidx AS FUNCTION 1 hashint4extended(int4, int8);
CREATE FUNCTION wrong(int4) RETURNS int4 LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE OPERATOR CLASS wrong_strategy FOR TYPE int4 USING bloomidx AS OPERATOR 2 =, FUNCTION 1 hashint4extended(int4, int8);
CREATE OPERATOR CLASS wrong_number FOR TYPE int4 USING bloomidx AS OPERATOR 1 =, FUNCTION 3 wrong(int4);
SELECT attempt('CREATE OPERATOR CLASS wrong_numbers FOR TYPE int4 USING bloomidx AS FUNCTION 8 wrong(int4)');
CREATE OPERATOR CLASS wrong_function FOR TYPE int4 USING bloomidx AS OPERATOR 1 =, FUNCTION 1 wrong(int4);
CREATE OPERATOR CLASS one_sided FOR TYPE int4 USING bloomidx
	AS OPERATOR 1 = (int4, int4), OPERATOR 1 = (int4, int8), FUNCTION 1 hashint4extended(int4, int8);
CREATE FUNCTION wrong(anyelement, int8) RETURNS int8 LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END';
CREATE OPERATOR CLASS polymorphic FOR TYPE anyarray USING bloomidx AS OPERATOR 1 =, FUNCTION 1 wrong(anyelement, int8);
CREATE OPERATOR CLASS two_types FOR TYPE int4 USING bloomidx AS OPERATOR 1 =, FUNCTION 1 (int4, int8) hashint4extended(int4, int8);
CREATE OPERATOR CLASS wrong_extraction FOR TYPE int4 USING bloomidx AS
	OPERATOR 1 =, FUNCTION 2 wrong(int4), FUNCTION 3 wrong(int4), FUNCTION 6 wrong(int4), STORAGE int8;
SELECT opcname, amvalidate(oid)
FROM (SELECT opcname, oid FROM pg_opclass WHERE opcnamespace = 'errors'::regnamespace ORDER BY opcname OFFSET 0) c;
-- and refused by CREATE INDEX, also where there is no row yet
CREATE OPERATOR CLASS folded FOR TYPE text USING bloomidx AS OPERATOR 1 =, FUNCTION 1 lower(text);
CREATE OPERATOR CLASS short FOR TYPE text USING bloomidx AS OPERATOR 1 =, FUNCTION 1 hashtext(text);
CREATE TABLE empty (a int, b text);
CREATE UNLOGGED TABLE unlogged (a int, b text);
SELECT statement, attempt(statement) FROM unnest(ARRAY[
	'CREATE INDEX ON t USING bloomidx (a no_function)',
	'CREATE INDEX ON empty USING bloomidx (b, a no_function)',
	'CREATE INDEX ON unlogged USING bloomidx (a no_function)',
	'CREATE INDEX ON empty USING bloomidx (a no_operator)',
	'CREATE INDEX ON empty USING bloomidx (a wrong_function)',
	'CREATE INDEX ON empty USING bloomidx (b folded)',
	'CREATE INDEX ON empty USING bloomidx ((b || b) short)',
	'CREATE INDEX ON empty USING bloomidx (a one_sided)']) statement;
-- one that becomes wrong later does not harm the server
CREATE OPERATOR CLASS spoiled FOR TYPE int4 USING bloomidx AS
	OPERATOR 1 = (int4, int4), FUNCTION 1 hashint4extended(int4, int8);
CREATE INDEX t_o ON t USING bloomidx (a spoiled);
ALTER OPERATOR FAMILY spoiled USING bloomidx ADD OPERATOR 1 = (int4, int8);
SELECT statement, attempt(statement) FROM unnest(ARRAY[
	'SET LOCAL enable_seqscan = off; SELECT * FROM t WHERE a = 5::int8',
	'REINDEX INDEX t_o']) statement;
ALTER OPERATOR FAMILY spoiled USING bloomidx ADD FUNCTION 1 (int8, int8) hashint8extended(int8, int8);
REINDEX INDEX t_o;
SELECT * FROM ask('SELECT * FROM t WHERE a = 5::int8');

-- What contains something that has no hash function cannot be indexed.
CREATE TYPE place AS (name text, at point);
CREATE TYPE places AS (visited place[]);
CREATE DOMAIN place_d AS place;
CREATE TYPE ts_range AS RANGE (subtype = tsvector, multirange_type_name = ts_multirange);
CREATE TABLE made_of (points point[], place place, deep places, doms place_d[], r ts_range, m ts_multirange, dropped place);
SELECT attname, attempt(format('CREATE INDEX ON made_of USING bloomidx (%I)', attname))
FROM pg_attribute WHERE attrelid = 'made_of'::regclass AND attnum BETWEEN 1 AND 6 ORDER BY attnum;
ALTER TYPE place DROP ATTRIBUTE at;
CREATE INDEX ON made_of USING bloomidx (dropped, deep, doms);

-- Nor is such a value hashed by a call of the function.
SELECT attempt('SELECT bloomidx_hash(ARRAY[''(1,2)''::point], 0)');
INSERT INTO k VALUES ('a', 'b');
SELECT attempt('SELECT bloomidx_hash(a || b, 0) FROM k');

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA errors CASCADE;
