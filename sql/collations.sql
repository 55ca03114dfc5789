-- What is equal is found, whatever the collation, however deep in another value, and however it is written.
\set ECHO none
\set test collations
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
SET search_path = made, collations, public;

-- Each kind is a column of table t: its type and its values, made of the type %1$s with the COLLATE clause %2$s and
-- the literal %3$s.
CREATE TABLE kinds (col text, type text, value text, is_range bool);
INSERT INTO kinds VALUES
	('plain', '%1$s %2$s', '%3$s::%1$s %2$s', false),
	('plain_d', 'elem', '%3$s::%1$s::elem %2$s', false),
	('arr', '%1$s[] %2$s', 'ARRAY[%3$s, NULL, %3$s]::%1$s[] %2$s', false),
	('arr_d', 'arr_d', 'ARRAY[%3$s]::%1$s[]::arr_d %2$s', false),
	('arr_of_d', 'elem[]', 'ARRAY[%3$s]::elem[] %2$s', false),
	('comp', 'comp', 'ROW(1, %3$s::%1$s, NULL)::comp', false),
	('comp_d', 'comp_d', 'ROW(2, %3$s::%1$s, %3$s)::comp::comp_d', false),
	('comp_arr', 'comp[]', 'ARRAY[NULL, ROW(1, %3$s::%1$s, NULL)::comp]', false),
	('comp_arr_d', 'comp_d[]', 'ARRAY[ROW(1, %3$s::%1$s, NULL)::comp::comp_d]', false),
	('deep', 'deep', 'ROW(ROW(1, %3$s::%1$s, NULL)::comp, ARRAY[%3$s]::%1$s[])::deep', false),
	('rng', 'rng', 'rng(%3$s::%1$s, NULL)', true),
	('rng_d', 'rng_d', 'rng(NULL, %3$s::%1$s)::rng_d', true),
	('rng_arr', 'rng[]', 'ARRAY[rng(%3$s::%1$s, %3$s::%1$s, ''[]'')]', true),
	('rng_comp', 'rng_comp', 'ROW(rng(%3$s::%1$s, NULL))::rng_comp', true),
	('mrng', 'mrng', 'mrng(rng(%3$s::%1$s, NULL))', true),
	('mrng_d', 'mrng_d', 'mrng(rng(NULL, %3$s::%1$s))::mrng_d', true);

-- Makes the types that the kinds need.
CREATE FUNCTION make_types(type text, clause text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE DOMAIN made.elem AS %s %s', type, clause);
	EXECUTE format('CREATE DOMAIN made.arr_d AS %s[] %s', type, clause);
	EXECUTE format('CREATE TYPE made.comp AS (n int, v %s %s, e elem)', type, clause);
	CREATE DOMAIN made.comp_d AS comp;
	EXECUTE format('CREATE TYPE made.deep AS (c comp, a %s[] %s)', type, clause);
END $$;

-- The ranges likewise.  False if btree does not know the type.
CREATE FUNCTION make_ranges(type text, clause text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TYPE made.rng AS RANGE (subtype = %s, multirange_type_name = mrng%s)', type,
				   regexp_replace(clause, '^COLLATE', ', collation ='));
	CREATE DOMAIN made.rng_d AS rng;
	CREATE DOMAIN made.mrng_d AS mrng;
	CREATE TYPE made.rng_comp AS (r rng);
	RETURN true;
EXCEPTION WHEN undefined_object THEN
	RETURN false;
END $$;

-- A row for each comparison.
CREATE TABLE done (what text, key text, found int, wrong text);

-- Asks the index i and a sequential scan how many rows of t have the key.
CREATE FUNCTION compare(what text, col text, key text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	used bool;
	by_index int;
	by_table int;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	used := uses_index(format('SELECT FROM t WHERE %s = %s', col, key), 'i');
	EXECUTE format('SELECT count(*) FROM t WHERE %s = %s', col, key) INTO by_index;
	PERFORM set_config('enable_seqscan', 'on', true);
	EXECUTE format('SELECT count(*) FROM (SELECT %s AS k FROM t OFFSET 0) s WHERE k = %s', col, key) INTO by_table;
	INSERT INTO done VALUES (what, key, by_table,
		-- before 16 the planner makes "b" of "b = true", and cannot ask an index of an extension for that
		CASE WHEN NOT used AND key !~ '::boolean' THEN 'the index was not asked'
			 WHEN by_table = 0 THEN 'the value is not there'
			 WHEN by_index <> by_table THEN format('%s rows instead of %s', by_index, by_table) END);
EXCEPTION WHEN undefined_function THEN
	NULL;						-- no operator, as for a domain over an enum
END $$;

-- Adds a row to t, on a page of its own, so that a key is found by its own hash.
CREATE FUNCTION add_row(type text, literal text, has_ranges bool) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE (SELECT 'INSERT INTO t SELECT repeat(''x'', current_setting(''block_size'')::int / 2), ' ||
					string_agg(format(value, add_row.type, '', literal), ', ' ORDER BY col)
			 FROM kinds WHERE has_ranges OR NOT is_range);
END $$;

-- Puts two values, as literals of a type, into a table with a column of each kind: one before and one after the index
-- is made.  Asks for both.
CREATE FUNCTION try_values(type text, coll text, a text, b text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	clause text := coalesce('COLLATE ' || coll, '');
	has_ranges bool;
BEGIN
	CREATE SCHEMA made;
	PERFORM make_types(type, clause);
	has_ranges := make_ranges(type, clause);
	CREATE TABLE made.t (pad text);
	ALTER TABLE t ALTER pad SET STORAGE PLAIN;
	EXECUTE (SELECT 'ALTER TABLE t ' ||
					string_agg(format('ADD ' || col || ' ' || k.type, try_values.type, clause), ', ' ORDER BY col)
			 FROM kinds k WHERE has_ranges OR NOT is_range);
	PERFORM add_row(type, a, has_ranges);
	EXECUTE (SELECT format('CREATE INDEX i ON t USING bloomidx (%s) WITH (layout = %s, pages_per_range = 1)',
						   string_agg(col, ', '), current_setting('test.layout'))
			 FROM kinds WHERE has_ranges OR NOT is_range);
	PERFORM add_row(type, b, has_ranges);
	PERFORM compare(format('%s %s, %s', try_values.type, clause, col), col, format(value, try_values.type, clause, literal))
	FROM kinds, unnest(ARRAY[a, b]) literal WHERE has_ranges OR NOT is_range;
	DROP SCHEMA made CASCADE;
END $$;

-- What has gone wrong, and whether there were enough comparisons, and enough keys that two rows have.
CREATE FUNCTION report(cases int, pairs int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(': ', what, key, wrong) FROM done WHERE wrong IS NOT NULL
	UNION ALL
	SELECT format('failures: %s, at least %s cases: %s, at least %s of two rows: %s', count(wrong),
				  cases, count(*) >= cases, pairs, count(*) FILTER (WHERE found = 2) >= pairs) FROM done;
$$;

-- A server without ICU takes another collation instead; then there is less to see.
DO $$
BEGIN
	CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
	CREATE COLLATION nopunct (provider = icu, locale = 'und-u-ka-shifted', deterministic = false);
	CREATE COLLATION icu (provider = icu, locale = 'und');
	PERFORM 'a' = 'A' COLLATE nocase;
EXCEPTION WHEN OTHERS THEN
	CREATE COLLATION nocase FROM "C";
	CREATE COLLATION nopunct FROM "C";
	CREATE COLLATION icu FROM "C";
END $$;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a float8, b numeric);
CREATE DOMAIN word AS text;
CREATE DOMAIN padded AS char(8);
\set ECHO all

-- Every type that has a collation, under collations of every kind.  What is for the server's own use has no array type;
-- before 15 such types are of category S too.
SELECT count(try_values(type, coll, '''Abc''', b)) >= 80
FROM (SELECT quote_ident(typname) FROM pg_type
	  WHERE typcollation <> 0 AND typcategory = 'S' AND typtype = 'b' AND typarray <> 0
		AND typnamespace = 'pg_catalog'::regnamespace
	  UNION ALL SELECT unnest('{varchar(20),char(8),word,padded}'::text[])) types (type),
	 unnest('{"\"default\"","\"C\"",nocase,nopunct,icu}'::text[]) coll,
	 unnest(ARRAY['''aBC''', '''Abc  ''']) b;
SELECT report(2500, 450);

-- Pieces of strings need a collation that is deterministic.
CREATE TABLE pieces (t text COLLATE nocase);
SELECT (attempt(format('CREATE INDEX ON pieces USING bloomidx (t %s)', class)) ~ 'does not support nondeterministic collations') = NOT collisdeterministic
FROM unnest('{text_ngram_ops,text_prefix_ops}'::text[]) class, pg_collation c WHERE c.oid = 'nocase'::regcollation;

-- Every other type, by two literals that are equal.
TRUNCATE done;
CREATE TABLE literals (type regtype, a text, b text);
INSERT INTO literals VALUES
	('bool', 't', 'true'), ('"char"', 'a', 'a'), ('int2', '7', '007'), ('int4', '-7', '-007'), ('int8', '7', '007'),
	('oid', '7', '007'), ('regtype', 'int', 'integer'), ('float4', '0', '-0'), ('float4', 'NaN', 'nan'),
	('float8', '0', '-0'), ('float8', 'NaN', 'nan'), ('float8', '1e2', '100'), ('numeric', '1.0', '1.00'),
	('numeric', '0', '-0.000'), ('numeric', 'NaN', 'nan'), ('numeric', '10000000000', '1e10'),
	('uuid', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a0eebc999c0b4ef8bb6d6bb9bd380a11'), ('bytea', '\x41', 'A'),
	('date', '2000-01-02', 'January 2, 2000'), ('time', '00:00:07', '00:00:07.0'),
	('timetz', '00:00:07+00', '00:00:07.0+00:00'), ('timestamp', '2000-01-02', '2000-01-02 00:00:00.0'),
	('timestamptz', '2000-01-02 00:00Z', '2000-01-02 01:00+01'), ('interval', '1 mon', '30 days'),
	('interval', '1 day', '24 hours'), ('inet', '10.0.0.1', '10.0.0.1/32'), ('cidr', '10/8', '10.0.0.0/8'),
	('macaddr', '08:00:2b:01:02:03', '0800.2b01.0203'), ('macaddr8', '08:00:2b:01:02:03', '08:00:2b:ff:fe:01:02:03'),
	('pg_lsn', '0/A', '0/0A'), ('tid', '(0,1)', '(0,1)'), ('oidvector', '1 2', '1  2'), ('int2vector', '1 2', '1  2'),
	('aclitem', '=r/' || quote_ident(current_user), '=r/' || quote_ident(current_user)),
	('jsonb', '{"a": 1, "b": [0, "x"]}', '{"b": [-0.0, "x"], "a": 1.0}'), ('mood', 'ok', 'ok'),
	('pair', '(0,1)', '(-0,1.0)'), ('pair', '(,)', '(,)'), ('numrange', '[1,2)', '[1.0,2.0)'),
	('numrange', 'empty', '[1,1)'), ('nummultirange', '{[1,3)}', '{[1.0,2),[2,3)}'), ('int4range', '[1,2]', '[1,3)');
-- what a later version adds
INSERT INTO literals
	SELECT opcintype, '1', '1'
	FROM pg_opclass JOIN pg_am ON pg_am.oid = opcmethod JOIN pg_type ON pg_type.oid = opcintype
	WHERE amname = 'hash' AND opcdefault AND typcollation = 0 AND typtype = 'b' AND typnamespace = 'pg_catalog'::regnamespace
		AND opcintype NOT IN (SELECT type FROM literals);
SELECT count(try_values(format_type(type, NULL), NULL, quote_literal(a), quote_literal(b))) >= 44 FROM literals;
SELECT report(1200, 1200);

-- A range type whose bounds are equal by other rules than the subtype has.
TRUNCATE done;
CREATE FUNCTION fold_lt(text, text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT lower($1) < lower($2)';
CREATE FUNCTION fold_eq(text, text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT lower($1) = lower($2)';
CREATE FUNCTION fold_cmp(text, text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT bttextcmp(lower($1), lower($2))';
CREATE OPERATOR <! (FUNCTION = fold_lt, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR =! (FUNCTION = fold_eq, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR CLASS fold_ops FOR TYPE text USING btree AS
	OPERATOR 1 <!, OPERATOR 3 =!, FUNCTION 1 fold_cmp(text, text);
CREATE TYPE fold AS RANGE (subtype = text, subtype_opclass = fold_ops, multirange_type_name = folds);
CREATE FUNCTION pad() RETURNS text LANGUAGE sql AS $$ SELECT repeat('x', current_setting('block_size')::int / 2) $$;
CREATE TABLE t (pad text, r fold, m folds, a fold[]);
ALTER TABLE t ALTER pad SET STORAGE PLAIN;
INSERT INTO t VALUES (pad(), '[a,b]', '{[a,b]}', '{"[a,b]"}');
CREATE INDEX i ON t USING bloomidx (r, m, a) WITH (layout = :layout, pages_per_range = 1);
INSERT INTO t VALUES (pad(), '[A,B]', '{[A,B]}', '{"[A,B]"}');
SELECT count(compare('range with a class of its own', col, key))
FROM (VALUES ('r', '''[a,B]''::fold'), ('m', '''{[a,B]}''::folds'), ('a', '''{"[a,B]"}''::fold[]')) c (col, key);
SELECT report(3, 3);
DROP TABLE t;

-- A composite type may get another attribute at any time, which changes no row, and none that is equal to another.
TRUNCATE done;
CREATE TYPE grows AS (a int, b text);
CREATE TYPE grows_range AS RANGE (subtype = grows, multirange_type_name = grows_multirange);
CREATE DOMAIN grows_d AS grows;
CREATE TYPE grows_deep AS (g grows, gs grows[]);
CREATE TABLE t (pad text, c grows, d grows_d, a grows[], ad grows_d[], deep grows_deep, r grows_range, m grows_multirange);
ALTER TABLE t ALTER pad SET STORAGE PLAIN;
CREATE FUNCTION add_growing() RETURNS void LANGUAGE sql AS $$
	INSERT INTO t SELECT pad(), '(1,x)', '(1,x)', '{"(1,x)"}', '{"(1,x)"}', '("(1,x)","{""(1,x)""}")', '["(1,x)",)', '{["(1,x)",)}';
$$;
SELECT add_growing();
CREATE INDEX i ON t USING bloomidx (c, d, a, ad, deep, r, m) WITH (layout = :layout, pages_per_range = 1);
SELECT add_growing();
CREATE FUNCTION ask_growing(suffix text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(compare('composite type with one more attribute', col, replace(key, 'x', suffix)))
	FROM (VALUES ('c', '''(1,x)''::grows'), ('d', '''(1,x)''::grows_d'), ('a', '''{"(1,x)"}''::grows[]'),
				 ('ad', '''{"(1,x)"}''::grows_d[]'), ('deep', '''("(1,x)","{""(1,x)""}")''::grows_deep'),
				 ('r', '''["(1,x)",)''::grows_range'), ('m', '''{["(1,x)",)}''::grows_multirange')) c (col, key);
$$;
SELECT ask_growing('x');
ALTER TYPE grows ADD ATTRIBUTE c numeric;
SELECT ask_growing('x,');
-- rows of another type, which has had other columns
CREATE TABLE other (z point, a int, y point, b text, x int, c numeric);
ALTER TABLE other DROP z, DROP y, DROP x;
INSERT INTO other VALUES (1, 'x', NULL);
SELECT compare('row of another type', 'c', '(SELECT o FROM other o)');
ALTER TABLE other ADD w int DEFAULT 7;
ALTER TYPE grows ADD ATTRIBUTE w int;
UPDATE other SET w = NULL;
SELECT compare('row of another type', 'c', '(SELECT o FROM other o)');
SELECT bloomidx_check('i');
SELECT report(16, 16);
DROP TABLE t;

-- A composite type that contains itself, where the server lets it.
DO $$
BEGIN
	CREATE TYPE loop AS (a int);
	CREATE TYPE loop_range AS RANGE (subtype = loop, multirange_type_name = loop_multirange);
	ALTER TYPE loop ADD ATTRIBUTE b loop_multirange;
EXCEPTION WHEN invalid_table_definition THEN
	CREATE TYPE loop AS (a int, b int4multirange);
END $$;
CREATE TABLE t (c loop);
CREATE INDEX i ON t USING bloomidx (c) WITH (layout = :layout);
INSERT INTO t VALUES ('(1,{})');
VACUUM t;
SELECT count(*) FROM t WHERE c = '(1,{})'::loop;

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA collations CASCADE;
