-- What a query may ask of the index: columns, arrays, NULLs, and in which kinds of plans.
\set ECHO none
\set test predicates
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

-- Several columns, any subset of them in any order.
CREATE TABLE t (id int, a int, b text, c int8, pad text);
INSERT INTO t SELECT i, i % 50, CASE WHEN i % 7 <> 0 THEN 'b' || i % 300 END, CASE WHEN i % 1000 < 900 THEN i END
	FROM generate_series(1, 10000) i;
CREATE INDEX t_i ON t USING bloomidx (a, b, c) WITH (layout = :layout);
INSERT INTO t SELECT i, i % 50, CASE WHEN i % 7 <> 0 THEN 'b' || i % 300 END, CASE WHEN i % 1000 < 900 THEN i END
	FROM generate_series(10001, 20000) i;
CREATE FUNCTION ask_all(VARIADIC conditions text[], OUT condition text, OUT "rows" bigint, OUT equal bool,
	OUT plan text)
RETURNS SETOF record LANGUAGE sql AS $$
	SELECT condition, ask.* FROM unnest(conditions) condition, ask('SELECT * FROM t WHERE ' || condition);
$$;
SELECT * FROM ask_all('a = 7', 'b = ''b7''', 'c = 7', 'a = 7 AND b = ''b7''', 'b = ''b157'' AND a = 7',
	'c = 12307 AND a = 7', 'c = 12307 AND b = ''b7'' AND a = 7', 'c = 12307 AND b = ''b8'' AND a = 7',
	'a = 7 AND id < 1000');

-- IN and = ANY with constants.
SELECT * FROM ask_all('a IN (1, 2, 3)', 'a = ANY (''{1,2,3}'')', 'c IN (1, 10001, 20000, 30000)', 'c IN (-1, -2)',
	'a IN (7, 8) AND b IN (''b7'', ''b8'', ''b9'')', 'c IN (5, 10005) AND a = 5', 'b IN (''b1'', ''b1'', ''b1'')');
-- NULL elements, no elements, only NULLs, no array; several dimensions
SELECT * FROM ask_all('c IN (5, NULL, 10005)', 'c = ANY (''{}'')', 'c = ANY (''{NULL,NULL}'')',
	'c = ANY (''{{5,6},{7,NULL}}'')', 'a = 5 AND c = ANY (''{}'')');
SELECT "rows", equal FROM ask_all('c = ANY (NULL::int8[])', 'a = 5 AND c = ANY (NULL::int8[])');
-- a thousand elements, with duplicates among them
SELECT "rows", equal, plan FROM ask_all(
	'c = ANY (''' || (SELECT array_agg(i * 13 % 7919) FROM generate_series(1, 1000) i)::text || ''')',
	'c = ANY (''' || (SELECT array_agg(i % 10) FROM generate_series(1, 1000) i)::text || ''')',
	'c = ANY (''' || (SELECT array_agg(-i) FROM generate_series(1, 1000) i)::text || ''')');
-- NOT IN is not for the index
SELECT "rows", equal FROM ask_all('c NOT IN (1, 2)', 'c <> ALL (''{1,2,NULL}'')');

-- NULLs.
SELECT * FROM ask_all('b IS NULL', 'c IS NULL', 'b IS NULL AND c IS NULL', 'b IS NULL AND a = 7', 'b IS NOT NULL',
	'a IS NULL', 'a = 7 AND b IS NOT NULL AND c IS NULL', 'b IS NULL AND b = ''b7''');
SELECT "rows", equal FROM ask_all('b = NULL', 'c = NULL::int8 AND a = 7', 'b IS NULL AND b IS NOT NULL',
	'a = 7 AND a = 8');

-- Rows as values.
SELECT * FROM ask_all('(a, c) = (7, 12307)', '(a, b, c) IN ((7, ''b7'', 12307), (8, ''b8'', 12308))');
SELECT "rows", equal FROM ask_all('(a, b) = (7, NULL)', '(a, b) IN ((7, NULL), (7, ''b7''))');

-- OR and AND of scans.
CREATE INDEX t_id ON t (id);
SELECT * FROM ask_all('c = 5 OR b = ''b77''', 'c = 5 OR id = 77', 'c = 5 OR c IS NULL AND a = 7');
SELECT "rows", equal FROM ask_all('c = 5 OR c = 10005', '(c = 5 OR b = ''b77'') AND id < 5000',
	'b = ''b77'' AND id < 2000');
DROP INDEX t_id;

-- Parameters, planned once for all values.
CREATE FUNCTION ask_prepared(statement text, arguments text) RETURNS TABLE ("rows" bigint, equal bool, plan text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_indexscan = off AS $$
DECLARE
	line text;
	n bigint;
	found numeric;
	expected record;
BEGIN
	FOR use_index IN 0 .. 1 LOOP
		PERFORM set_config('enable_seqscan', (use_index = 0)::text, true),
				set_config('enable_bitmapscan', (use_index = 1)::text, true);
		EXECUTE 'PREPARE p' || statement;
		EXECUTE 'EXECUTE p' || arguments INTO n, found;
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) EXECUTE p' || arguments LOOP
			plan := coalesce(substring(line FROM '->  (Seq Scan.*|Bitmap Index.*)'), plan);
		END LOOP;
		DEALLOCATE p;
		IF use_index = 0 THEN
			expected := (n, found);
		END IF;
	END LOOP;
	"rows" := n;
	equal := (n, found) IS NOT DISTINCT FROM expected;
	RETURN NEXT;
END $$;
\set query 'AS SELECT count(*), sum(hashtextextended(t::text, 0)) FROM t WHERE '
SELECT arguments, ask.* FROM unnest(ARRAY['(5)', '(10005)', '(-1)', '(NULL)']) arguments,
	ask_prepared('(int8)' || :'query' || 'c = $1', arguments) ask;
SELECT arguments, ask.* FROM unnest(ARRAY['(''{5,10005}'')', '(''{}'')', '(''{NULL}'')', '(NULL)',
	'(''{5,NULL,5}'')']) arguments,
	ask_prepared('(int8[])' || :'query' || 'c = ANY ($1)', arguments) ask;
SELECT arguments, ask.* FROM unnest(ARRAY['(7, ''b7'')', '(7, NULL)', '(8, ''b7'')']) arguments,
	ask_prepared('(int2, text)' || :'query' || 'a = $1 AND b = $2', arguments) ask;
SELECT arguments, ask.* FROM unnest(ARRAY['(5, 10005)', '(NULL, 10005)']) arguments,
	ask_prepared('(int4, int8)' || :'query' || 'c IN ($1, $2)', arguments) ask;
SELECT ask.* FROM ask_prepared('(int8[])' || :'query' || 'c = ANY ($1)',
	'(''' || (SELECT array_agg(i * 13 % 7919) FROM generate_series(1, 1000) i)::text || ''')') ask;

-- A partial index: with its predicate, also without any key.
CREATE TABLE p (id int, state text, note text);
INSERT INTO p SELECT i, CASE WHEN i % 100 = 0 THEN 'open' ELSE 'done' END FROM generate_series(1, 10000) i;
CREATE INDEX p_i ON p USING bloomidx (id) WITH (layout = :layout) WHERE state = 'open';
INSERT INTO p SELECT i, CASE WHEN i % 100 = 0 THEN 'open' ELSE 'done' END FROM generate_series(10001, 20000) i;
UPDATE p SET state = 'open' WHERE id IN (77, 15077);
UPDATE p SET state = 'done' WHERE id IN (500, 15500);
SELECT condition, ask.* FROM unnest(ARRAY['id = 300', 'id = 15300', 'id = 77', 'id = 15077', 'id = 500', 'id = 15500',
	'id = 301', 'id IN (100, 15000)', 'id IS NOT NULL', 'true']) condition,
	ask('SELECT * FROM p WHERE state = ''open'' AND ' || condition);
SELECT * FROM ask('SELECT * FROM p WHERE id = 301');

-- Expressions.
CREATE TABLE x (a int, s text);
INSERT INTO x SELECT i, 'User' || i || '@Example.org' FROM generate_series(1, 5000) i;
CREATE INDEX x_i ON x USING bloomidx (lower(s), (a / 10), a) WITH (layout = :layout);
INSERT INTO x SELECT i, 'User' || i || '@Example.org' FROM generate_series(5001, 10000) i;
INSERT INTO x VALUES (NULL, NULL);
SELECT condition, ask.* FROM unnest(ARRAY['lower(s) = ''user777@example.org''', 'lower(s) = ''user7777@example.org''',
	'a / 10 = 77', 'a / 10 = 777', 'a / 10 = 777 AND a = 7775', 'lower(s) IS NULL',
	'lower(s) IN (''user1@example.org'', ''user9999@example.org'')',
	'lower(s) = ''User777@example.org''']) condition,
	ask('SELECT * FROM x WHERE ' || condition);
-- a partial index on an expression
CREATE INDEX x_p ON x USING bloomidx ((a % 1000)) WITH (layout = :layout) WHERE lower(s) LIKE 'user7%';
INSERT INTO x SELECT i, 'user7' || i FROM generate_series(20001, 20010) i;
SELECT * FROM ask('SELECT * FROM x WHERE a % 1000 = 5 AND lower(s) LIKE ''user7%''');

-- Joins: the inner side of a nested loop, with one value or an array of them.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE TABLE outside AS SELECT i * 977 AS k, ARRAY[i, i * 1000] AS ks FROM generate_series(1, 30) i
	UNION ALL SELECT NULL, NULL;
CREATE INDEX t_c ON t USING bloomidx (c) WITH (layout = :layout);
DROP INDEX t_i;
SELECT * FROM ask('SELECT * FROM outside JOIN t ON c = k');
SELECT * FROM ask('SELECT * FROM outside JOIN t ON c = ANY (ks)');
SELECT * FROM ask('SELECT * FROM outside LEFT JOIN LATERAL (SELECT * FROM t WHERE c = k + 1 OFFSET 0) i ON true');
SELECT * FROM ask('SELECT * FROM outside WHERE EXISTS (SELECT FROM t WHERE c = k OFFSET 0)');
RESET enable_hashjoin;
RESET enable_mergejoin;

-- Cursors, forward and back, and beyond the end of their transaction; WHERE CURRENT OF.
SET enable_seqscan = off;
BEGIN;
DECLARE cur SCROLL CURSOR FOR SELECT id FROM t WHERE c IN (5, 10005, 15005);
FETCH 2 FROM cur;
INSERT INTO t (id, c) VALUES (-1, 5);
FETCH ALL FROM cur;
FETCH BACKWARD ALL FROM cur;
MOVE ABSOLUTE 2 FROM cur;
CLOSE cur;
DECLARE del CURSOR FOR SELECT id FROM t WHERE c = 5 FOR UPDATE;
FETCH 2 FROM del;
DELETE FROM t WHERE CURRENT OF del;
DECLARE held CURSOR WITH HOLD FOR SELECT id FROM t WHERE c IN (5, 10005);
COMMIT;
FETCH ALL FROM held;
CLOSE held;

-- Serializable: the scan must not touch pages behind the end of the heap.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT id FROM t WHERE c = 10005;
SELECT id FROM t WHERE c = -10005;
INSERT INTO t (id, c) VALUES (-2, -10005);
SELECT id FROM t WHERE c = -10005;
COMMIT;
RESET enable_seqscan;

-- Partitions with the index on the parent, a partition that comes later, one that is attached.
CREATE TABLE parts (id int, k uuid) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE FUNCTION key(i int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT lpad($1::text, 32, '0')::uuid $$;
INSERT INTO parts SELECT i, key(i) FROM generate_series(1, 999) i;
CREATE INDEX parts_k ON parts USING bloomidx (k) WITH (layout = :layout);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000);
CREATE TABLE parts_3 (id int, k uuid);
INSERT INTO parts_3 SELECT i, key(i) FROM generate_series(2000, 2999) i;
ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES FROM (2000) TO (3000);
INSERT INTO parts SELECT i, key(i) FROM generate_series(1000, 1999) i;
SELECT i, ask.* FROM unnest('{5,1005,2005,5005}'::int[]) i, ask(format('SELECT * FROM parts WHERE k = key(%s)', i));
SELECT * FROM ask('SELECT * FROM parts WHERE k = key(1005) AND id BETWEEN 1000 AND 1999');
UPDATE parts SET id = id + 1000 WHERE k = key(5);
SELECT * FROM ask('SELECT * FROM parts WHERE k = key(5)');

-- Inheritance.
CREATE TABLE parent (id int, k int);
CREATE TABLE child (extra text) INHERITS (parent);
CREATE INDEX parent_k ON parent USING bloomidx (k) WITH (layout = :layout);
CREATE INDEX child_k ON child USING bloomidx (k) WITH (layout = :layout);
INSERT INTO parent SELECT i, i FROM generate_series(1, 1000) i;
INSERT INTO child SELECT i, i FROM generate_series(500, 1500) i;
SELECT * FROM ask('SELECT * FROM parent WHERE k = 700');
SELECT * FROM ask('SELECT * FROM parent WHERE k = 1200');
SELECT * FROM ask('SELECT * FROM ONLY parent WHERE k = 1200');

-- Pages of the index that are read.  The table is large enough for the index to have a summary.
CREATE TABLE wide (k int, grp int, pad text);
ALTER TABLE wide ALTER pad SET STORAGE PLAIN;
INSERT INTO wide SELECT i, i % 97, repeat('x', 3900) FROM generate_series(1, 10000) i;
CREATE INDEX wide_k ON wide USING bloomidx (k) WITH (layout = :layout, pages_per_range = 1);
INSERT INTO wide SELECT i, i % 97, repeat('x', 3900) FROM generate_series(10001, 10600) i;
SELECT lost_rows('wide', 'k', 'wide_k');
VACUUM ANALYZE wide;
-- Index pages that a search reads.  Planning reads some, too, and what a search reads of the heap does not count.
CREATE FUNCTION index_pages_read(condition text) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	query text := 'SELECT * FROM wide WHERE ' || condition;
	result json;
	pages bigint[] := ARRAY[pg_stat_get_xact_blocks_fetched('wide_k'::regclass)];
BEGIN
	EXECUTE 'EXPLAIN ' || query;
	pages := pages || pg_stat_get_xact_blocks_fetched('wide_k'::regclass);
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO result;
	result := result -> 0 -> 'Plan' -> 'Plans' -> 0;
	IF result ->> 'Index Name' <> 'wide_k' THEN
		RAISE EXCEPTION 'the plan is %', result;
	END IF;
	RETURN pg_stat_get_xact_blocks_fetched('wide_k'::regclass) - pages[2] - (pages[2] - pages[1]);
END $$;
CREATE FUNCTION k_in(first int, step int, n int) RETURNS text LANGUAGE sql AS $$
	SELECT 'k IN (' || string_agg((first + i * step)::text, ', ') || ')' FROM generate_series(0, n - 1) i;
$$;
SELECT pages('wide') >= 128 * 32 AS has_summary;
\set index_pages 'pages(\'wide_k\')'
-- the first scan of a session also reads the metapage and the map
SELECT index_pages_read('k = 1') <= 10 AS few;
-- one value: top-level page, summary, and one or two segments; layout block reads all pages
SELECT avg(index_pages_read('k = ' || i)) <= CASE :'layout' WHEN 'block' THEN :index_pages ELSE 5 END AS hits,
	avg(index_pages_read('k = ' || -i)) <= CASE :'layout' WHEN 'block' THEN :index_pages ELSE 4 END AS misses
FROM generate_series(1, 9999, 101) i;
SELECT first, index_pages_read(k_in(first, 3, 10)) <= 10 * index_pages_read('k = ' || first) AS ten_values
FROM unnest('{1,5000,9000,-5000}'::int[]) first;
SELECT step, index_pages_read(k_in(1, step, 1000)) <= :index_pages AS thousand_values
FROM unnest('{1,9,10,100,-10}'::int[]) step;
-- as many as there are rows, and more
SELECT index_pages_read(k_in(-5000, 1, 20000)) <= :index_pages AS all_values;
-- several keys
SELECT index_pages_read(k_in(1, 10, 1000) || ' AND k IS NOT NULL AND ' || k_in(2, 10, 1000)) <= :index_pages
	AS two_arrays;
SELECT * FROM ask('SELECT k FROM wide WHERE ' || k_in(-5000, 1, 20000));
SELECT * FROM ask('SELECT k FROM wide WHERE ' || k_in(-5000, 7, 2000));
SELECT lost_rows('wide', 'k', 'wide_k');

-- The pages of two indexes, of which one knows pages and the other rows.
CREATE INDEX wide_hundreds ON wide USING bloomidx ((k * 7 % 89)) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX wide_grp ON wide (grp);
ANALYZE wide;
SELECT * FROM ask('SELECT * FROM wide WHERE grp = 7 AND k * 7 % 89 = 70');
SELECT * FROM ask('SELECT * FROM wide WHERE grp = 7 AND k * 7 % 89 IN (70, 71)');

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA predicates CASCADE;
