-- Several columns as one key: option "keys".
\set ECHO none
\set test keys
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
-- Each condition on a table: the rows that the index finds by it, whether these are all, and whether the index was asked.
CREATE FUNCTION ask_all(tab text, conditions text[], OUT condition text, OUT "rows" bigint, OUT equal bool, OUT used bool)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	FOREACH condition IN ARRAY conditions LOOP
		SELECT a."rows", a.equal, a.plan INTO "rows", equal, plan FROM ask(format('SELECT * FROM %s WHERE %s', tab, condition)) a;
		used := plan LIKE '%Bitmap Index Scan on ' || tab || '_i%';
		RETURN NEXT;
	END LOOP;
END $$;
\set ECHO all

-- The default: both for several plain columns, each for one column and with a column that extracts.
CREATE TABLE t (a int, b int, c text, tags int[], pad text);
CREATE INDEX t_one ON t USING bloomidx (a);
CREATE INDEX t_two ON t USING bloomidx (a, b);
CREATE INDEX t_three ON t USING bloomidx (a, b, c);
CREATE INDEX t_tags ON t USING bloomidx (a, tags array_elements_ops);
CREATE INDEX t_single ON t USING bloomidx (a) WITH (keys = all);
SELECT index, row_keys, note FROM unnest('{t_one,t_two,t_three,t_tags,t_single}'::text[]) index, bloomidx_info(index::regclass);
SELECT attempt('CREATE INDEX ON t USING bloomidx (a, tags array_elements_ops) WITH (keys = all)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a, tags array_elements_ops) WITH (keys = both)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a, tags array_elements_ops) WITH (keys = each)');
SELECT attempt('CREATE INDEX ON t USING bloomidx (a, b) WITH (keys = some)');
SELECT attempt('CREATE UNLOGGED TABLE u (a int, tags int[]); CREATE INDEX ON u USING bloomidx (a, tags array_elements_ops) WITH (keys = all)');
-- ALTER INDEX cannot be prevented, but TRUNCATE and REINDEX do not fail because of it
ALTER INDEX t_tags SET (keys = all);
TRUNCATE t;
REINDEX INDEX t_tags;
SELECT row_keys FROM bloomidx_info('t_tags');
SELECT attempt('CREATE TABLE u (LIKE t INCLUDING INDEXES)');
DROP TABLE t;

-- 300 and 1,000 values in no order: no range lacks a value of the first column, and hardly any row has both values of a pair.
CREATE TABLE t (a int, b int, c text, pad text);
CREATE INDEX t_i ON t USING bloomidx (a, b) WITH (layout = :layout, keys = each, pages_per_range = 1);
INSERT INTO t SELECT (hashint4(i) & 2147483647) % 300, (hashint4(-i) & 2147483647) % 1000, i, repeat('x', 60) FROM generate_series(1, 20000) i;
INSERT INTO t VALUES (17, 8, 'pair'), (1, 4, 'pair'), (2, 6, 'pair'), (7, 449, 'pair');
INSERT INTO t SELECT NULL, i, i, repeat('x', 60) FROM generate_series(1, 50) i;
INSERT INTO t SELECT i, NULL, i, repeat('x', 60) FROM generate_series(1, 50) i;
INSERT INTO t SELECT NULL, NULL, i, repeat('x', 60) FROM generate_series(1, 50) i;
ANALYZE t;
-- how many pages the searches for 49 pairs that no row has find
CREATE FUNCTION found_in_vain() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(matching_pages('t', format('a = %s AND b = %s', a, b)))
	FROM (SELECT a, b FROM generate_series(1, 7) a, generate_series(1, 7) b EXCEPT SELECT a, b FROM t) pairs
$$;
CREATE FUNCTION compare() RETURNS TABLE (condition text, "rows" bigint, equal bool, used bool) LANGUAGE sql AS $$
	SELECT * FROM ask_all('t', ARRAY[
		'a = 17 AND b = 8', 'a = 17 AND b = 1001', 'a = 17::bigint AND b = 8::smallint', 'a = 17 AND b = (SELECT NULL::int)',
		'a IN (1, 2, 3, NULL) AND b IN (4, 5, 6, 7)', 'a = 17 AND b IN (1, 2, 3, 4, 5, 8)',
		'a = ANY (ARRAY(SELECT generate_series(1, 128))) AND b = ANY (ARRAY(SELECT generate_series(1, 128)))',
		'a = ANY (ARRAY(SELECT generate_series(1, 128))) AND b = ANY (ARRAY(SELECT generate_series(1, 129)))',
		'a = 17 AND a = ANY (ARRAY(SELECT generate_series(1, 200))) AND b = ANY (ARRAY(SELECT generate_series(1, 100)))',
		'a = 17 AND b = 8 AND b IS NOT NULL', 'a IN (17) AND b = ANY (''{}'')',
		'a = 17', 'b = 8', 'a IN (1, 2, 3)', 'a IS NULL', 'b IS NULL', 'a IS NULL AND b IS NULL', 'a IS NULL AND b = 8',
		'a = 17 AND b IS NULL', 'a IS NOT NULL AND b = 8', 'a = 17 AND b IS NOT NULL', 'a IS NOT NULL AND b IS NOT NULL'])
$$;
SELECT * FROM compare();
SELECT found_in_vain() > 200 AS many;
ALTER INDEX t_i SET (keys = both);
SELECT row_keys, note FROM bloomidx_info('t_i');
SELECT found_in_vain() > 200 AS many;
REINDEX INDEX t_i;
SELECT row_keys, note FROM bloomidx_info('t_i');
SELECT * FROM compare();
SELECT found_in_vain() < 10 AS few;
ALTER INDEX t_i SET (keys = all);
REINDEX INDEX t_i;
SELECT row_keys, note FROM bloomidx_info('t_i');
SELECT * FROM compare();
SELECT found_in_vain() < 10 AS few;
SELECT bloomidx_check('t_i');

-- Rows that come after the build, also the first rows of a range, with NULLs.
INSERT INTO t SELECT NULL, i, NULL, repeat('x', 60) FROM generate_series(1, 500) i;
INSERT INTO t SELECT 17, 8, 'late', repeat('x', 60) FROM generate_series(1, 5) i;
UPDATE t SET b = 8 WHERE a = 17 AND b = 9;
SELECT * FROM compare() WHERE NOT equal OR NOT used;
SELECT bloomidx_check('t_i');

-- An index that was empty at first, and an unlogged one.
CREATE UNLOGGED TABLE u (a int, b int);
CREATE INDEX u_i ON u USING bloomidx (a, b) WITH (layout = :layout, keys = all);
SELECT row_keys FROM bloomidx_info('u_i');
INSERT INTO u SELECT i % 100, i FROM generate_series(1, 5000) i;
INSERT INTO u VALUES (1, NULL), (NULL, 1), (NULL, NULL);
SELECT * FROM ask_all('u', ARRAY['a = 1 AND b = 101', 'a = 1 AND b = 102', 'a = 1', 'a IS NULL', 'b IS NULL', 'true']);

-- A scan without a condition finds the rows with NULLs, too.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM u;
SELECT count(*) FROM u;
CREATE TABLE n (a int, b int);
CREATE INDEX n_i ON n USING bloomidx (a, b) WITH (layout = :layout, keys = all);
INSERT INTO n VALUES (1, NULL), (NULL, 1);
EXPLAIN (COSTS OFF) SELECT count(*) FROM n;
SELECT count(*) FROM n;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Which queries get which plan, without being forced.
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF) ' || query INTO line;
	RETURN regexp_replace(line, '^Bitmap Heap Scan.*|^Index Scan using t_i.*', 'the index');
END $$;
ANALYZE t;
SELECT condition, plan('SELECT * FROM t WHERE ' || condition) FROM unnest(ARRAY['a = 17 AND b = 8', 'a IN (17, 18) AND b IN (7, 8)',
	'a = 17', 'b = 8', 'a = 17 AND b IS NOT NULL', 'a IN (1, 2, 3)']) condition;
SELECT uses_index('SELECT * FROM t WHERE b = 8 LIMIT 1', 't_i') AS one, uses_index('SELECT * FROM t WHERE a = 17 AND b = 8 LIMIT 1', 't_i') AS both;
-- not even in a table of few pages with many rows, in which checking rows by the index seems to be cheap
CREATE TABLE s AS SELECT i % 100 AS a, i AS b FROM generate_series(1, 10000) i;
CREATE INDEX s_i ON s USING bloomidx (a, b) WITH (layout = :layout, keys = all);
ANALYZE s;
SELECT uses_index('SELECT * FROM s WHERE b = 8', 's_i') AS one, uses_index('SELECT * FROM s WHERE a = 8 AND b = 8', 's_i') AS both;
-- a nested loop that gives one column only
CREATE TABLE keys AS SELECT i AS a, i AS b FROM generate_series(1, 3) i;
ANALYZE keys;
SELECT uses_index('SELECT * FROM keys JOIN t USING (a)', 't_i') AS one, uses_index('SELECT * FROM keys JOIN t USING (a, b)', 't_i') AS both;
DROP TABLE keys;

-- Three columns: a query on any two, and on one.
DROP INDEX t_i;
CREATE FUNCTION three() RETURNS TABLE (condition text, "rows" bigint, equal bool, used bool) LANGUAGE sql AS $$
	SELECT * FROM ask_all('t', ARRAY['a = 7 AND b = 449 AND c = ''pair''', 'a = 17 AND b = 8 AND c = ''late''',
		'a = 17 AND b = 8 AND c = ''none''', 'a = 17 AND c = ''late''', 'b = 8 AND c = ''late''', 'a = 17 AND b = 8', 'c = ''late''',
		'a IN (1, 17) AND b IN (1, 8) AND c IN (''pair'', ''late'', ''none'')', 'a IS NULL AND b = 8 AND c IS NULL', 'c IS NULL'])
$$;
CREATE INDEX t_i ON t USING bloomidx (a, b, c) WITH (layout = :layout);
SELECT * FROM three();
DROP INDEX t_i;
CREATE INDEX t_i ON t USING bloomidx (a, b, c) WITH (layout = :layout, keys = all);
SELECT * FROM three();
DROP INDEX t_i;

-- Expressions, a predicate, a domain, cross-type values, char(n), float with -0.
CREATE DOMAIN tenant AS int CHECK (VALUE > 0);
CREATE TABLE e (id int, d tenant, code char(8), f float8, name text, pad text);
INSERT INTO e SELECT i, 1 + i % 50, 'c' || i % 40, CASE WHEN i % 30 = 0 THEN '-0' ELSE i % 30 END, 'Name ' || i % 60, repeat('x', 60)
FROM generate_series(1, 6000) i;
INSERT INTO e VALUES (NULL, NULL, NULL, NULL, NULL), (0, 1, NULL, 0, 'Name 0'), (1, NULL, 'c1', 1, 'Name 1');
CREATE FUNCTION try(definition text, conditions text[])
RETURNS TABLE (keys text, condition text, "rows" bigint, equal bool, used bool) LANGUAGE plpgsql AS $$
BEGIN
	FOREACH keys IN ARRAY '{each,all,both}'::text[] LOOP
		EXECUTE format('CREATE INDEX e_i ON e USING bloomidx ' || definition, current_setting('test.layout'), keys);
		RETURN QUERY SELECT keys, a.* FROM ask_all('e', conditions) a;
		DROP INDEX e_i;
	END LOOP;
END $$;
SELECT * FROM try('(d, code) WITH (layout = %s, keys = %s)', ARRAY['d = 2 AND code = ''c1''', 'd = 2::bigint AND code = ''c1   ''',
	'd = 2::tenant AND code IN (''c1'', ''c21'', ''c2'')', 'd = 2', 'code = ''c1''', 'd IS NULL AND code = ''c1''']);
SELECT * FROM try('(f, lower(name)) WITH (layout = %s, keys = %s)', ARRAY['f = 0 AND lower(name) = ''name 0''',
	'f = ''-0''::float4 AND lower(name) = ''name 30''', 'f = 0 AND lower(name) IN (''name 0'', ''name 30'')', 'lower(name) = ''name 1''']);
SELECT * FROM try('(id, d) WITH (layout = %s, keys = %s) WHERE f = 1', ARRAY['f = 1 AND id = 31 AND d = 32', 'f = 1 AND id = 31',
	'f = 1 AND id = 31 AND d = 31', 'f = 1 AND d IS NULL', 'f = 1']);

-- The whole row, in bloomidx_probe(): as a search would look for it.
CREATE INDEX t_i ON t USING bloomidx (a, b) WITH (layout = :layout, pages_per_range = 1);
CREATE FUNCTION probe_rows(k text) RETURNS TABLE (row_keys text, "rows" bigint, found bigint, few bool) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER INDEX t_i SET (keys = %s)', k);
	REINDEX INDEX t_i;
	RETURN QUERY SELECT k, count(*), count(*) FILTER (WHERE p.found), sum(p.others) < 250
	FROM (SELECT bool_or(block BETWEEN first_block AND last_block) AS found, count(*) - 1 AS others
		FROM (SELECT a, b, ctid, split_part(trim('()' FROM ctid::text), ',', 1)::int AS block FROM t WHERE c ~ '^.?.?7$') r,
			bloomidx_probe('t_i', ROW(a::bigint, b), 0)
		GROUP BY ctid) p;
END $$;
SELECT k, p.* FROM unnest('{each,both,all}'::text[]) k, probe_rows(k) p;
SELECT count(*) > 0 AS some, bool_and(first_block > 250) AS at_the_end FROM bloomidx_probe('t_i', ROW(NULL::int, NULL::int), 0);
CREATE TABLE row_of (dropped text, a int, b int);
ALTER TABLE row_of DROP dropped;
INSERT INTO row_of SELECT a, b FROM t LIMIT 1;
SELECT count(*) > 0 AS some FROM row_of r, bloomidx_probe('t_i', r, 0);
SELECT attempt('SELECT bloomidx_probe(''t_i'', ROW(1, 2, 3), 0)');
SELECT attempt('SELECT bloomidx_probe(''t_i'', ROW(1), 0)');
SELECT attempt('SELECT bloomidx_probe(''t_i'', ROW(1, ''x''::text), 0)');
SELECT attempt('SELECT bloomidx_probe(''t_i'', 5, 0)');
SELECT attempt('SELECT bloomidx_probe(''t_i'', NULL::t, 0)');

-- An exclusion constraint of two columns.
CREATE TABLE x (a int, b text, EXCLUDE USING bloomidx (a WITH =, b WITH =) WITH (layout = :layout, keys = all));
INSERT INTO x SELECT i % 10, 'b' || i FROM generate_series(1, 2000) i;
SELECT attempt('INSERT INTO x VALUES (7, ''b17'')');
INSERT INTO x VALUES (8, 'b17'), (7, NULL), (7, NULL), (NULL, 'b17'), (NULL, 'b17');
INSERT INTO x SELECT i % 10, 'b' || i FROM generate_series(1991, 2010) i ON CONFLICT DO NOTHING;
SELECT count(*), count(DISTINCT (a, b)) FROM x;

-- The estimate knows the option: sizes as built, and lookups of all columns.
CREATE FUNCTION estimated(k text) RETURNS TABLE (keys text, as_built bool, heap_pages bool) LANGUAGE plpgsql AS $$
DECLARE
	e record;
BEGIN
	SELECT * INTO e FROM bloomidx_estimate('t', '{a,b}', pages_per_range => 1, keys => k);
	DROP INDEX t_i;
	EXECUTE format('CREATE INDEX t_i ON t USING bloomidx (a, b) WITH (layout = %s, keys = %s, pages_per_range = 1)', e.layout, k);
	RETURN QUERY SELECT k, pages('t_i') BETWEEN 0.8 * e.size / current_setting('block_size')::int - 2
			AND 1.2 * e.size / current_setting('block_size')::int + 2,
		CASE k WHEN 'each' THEN e.lookup_heap_pages > 30 ELSE e.lookup_heap_pages < 3 END;
END $$;
ANALYZE t;
SELECT e.* FROM unnest('{each,all,both}'::text[]) k, estimated(k) e;
SELECT k, advice FROM unnest('{each,all,both}'::text[]) k, bloomidx_estimate('t', '{a,b}', pages_per_range => 1, keys => k);
SELECT attempt('SELECT bloomidx_estimate(''t'', ''{a,b}'', keys => ''some'')');

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA keys CASCADE;
