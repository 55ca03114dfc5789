-- Options: their bounds, and when they take effect.
\set ECHO none
\set test options
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

CREATE TABLE t (a int, b text);
INSERT INTO t SELECT i, i FROM generate_series(1, 20000) i;

-- Without options.
CREATE INDEX t_i ON t USING bloomidx (a, b);
SELECT reloptions IS NULL AS none FROM pg_class WHERE relname = 't_i';
SELECT pg_get_indexdef('t_i'::regclass);
SELECT * FROM ask('SELECT * FROM t WHERE a = 500');
DROP INDEX t_i;

-- With all of them.
CREATE INDEX t_i ON t USING bloomidx (a, b)
	WITH (layout = partitioned, pages_per_range = 2, false_positive_rate = 0.01);
SELECT reloptions FROM pg_class WHERE relname = 't_i';
SELECT pg_get_indexdef('t_i'::regclass);
SELECT * FROM ask('SELECT * FROM t WHERE a = 500');
\pset format aligned
\pset tuples_only off
\d t_i
\d t
\pset format unaligned
\pset tuples_only on
DROP INDEX t_i;

-- The bounds, and a step beyond them.
SELECT value, attempt('CREATE INDEX ON t USING bloomidx (a) WITH (pages_per_range = ' || value || ')')
FROM unnest('{0,1,2,128,256,-1,-2,3,255,257,512,99999999999,x}'::text[]) value;
SELECT value, attempt('CREATE INDEX ON t USING bloomidx (a) WITH (false_positive_rate = ' || value || ')')
FROM unnest('{0.00001,0.0002,0.25,1e-3,0,0.000009,0.26,1,-0.1,NaN,x}'::text[]) value;
SELECT value, attempt('CREATE INDEX ON t USING bloomidx (a) WITH (layout = ' || value || ')')
FROM unnest('{partitioned,Partitioned,"\"partitioned\"",round,1}'::text[]) value;
SELECT value, attempt('CREATE INDEX ON t USING bloomidx (a) WITH (' || value || ')')
FROM unnest('{fillfactor = 90,length = 32,layout,bloomidx.layout = partitioned}'::text[]) value;
-- what was made above answers; one for all, since the planner picks any
SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass;
SELECT "rows", equal FROM ask('SELECT * FROM t WHERE a = 15000');
SELECT "rows", equal FROM ask('SELECT * FROM t WHERE a = -15000');
DO $$
DECLARE
	index regclass;
BEGIN
	FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = 't'::regclass LOOP
		EXECUTE 'DROP INDEX ' || index;
	END LOOP;
END $$;

-- Each pages_per_range and some rates answer rightly, for rows before and after.
CREATE FUNCTION lost_with(range int, rate text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS u;
	CREATE TABLE u AS SELECT i AS a, repeat('x', 900) AS pad FROM generate_series(1, 600) i;
	EXECUTE format('CREATE INDEX u_i ON u USING bloomidx (a) WITH (pages_per_range = %s, false_positive_rate = %s)',
	range, rate);
	INSERT INTO u SELECT i, repeat('x', 900) FROM generate_series(601, 1200) i;
	RETURN lost_rows('u', 'a', 'u_i');
END $$;
SELECT range, rate, lost_with(range, rate)
FROM unnest('{1,2,4,8,16,32,64,128,256}'::int[],
			'{0.25,0.1,0.01,0.001,0.0001,0.00001,0.25,0.25,0.00001}'::text[]) v (range, rate);

-- Better rates need more space.
CREATE INDEX t_rough ON t USING bloomidx (a) WITH (false_positive_rate = 0.25);
CREATE INDEX t_plain ON t USING bloomidx (a);
CREATE INDEX t_fine ON t USING bloomidx (a) WITH (false_positive_rate = 0.00001);
SELECT pages('t_rough') < pages('t_plain') AND pages('t_plain') < pages('t_fine') AS by_rate;

-- ALTER INDEX takes effect at the next REINDEX, not before.
SELECT pages('t_rough') AS before \gset
ALTER INDEX t_rough SET (false_positive_rate = 0.00001);
SELECT pg_get_indexdef('t_rough'::regclass);
INSERT INTO t VALUES (20001, '20001');
SELECT pages('t_rough') = :before AS as_before;
SELECT "rows", equal FROM ask('SELECT * FROM t WHERE a = 20001');
REINDEX INDEX t_rough;
SELECT pages('t_rough') > :before AS larger;
ALTER INDEX t_rough RESET (false_positive_rate);
SELECT pg_get_indexdef('t_rough'::regclass);
SELECT pages('t_rough') > :before AS larger;
REINDEX INDEX t_rough;
SELECT pages('t_rough') = pages('t_plain') AS as_plain;
DROP INDEX t_plain, t_fine;
ALTER INDEX t_rough SET (pages_per_range = 1);
SELECT lost_rows('t', 'a', 't_rough');
REINDEX INDEX t_rough;
SELECT lost_rows('t', 'a', 't_rough');
ALTER INDEX t_rough SET (pages_per_range = 256);
INSERT INTO t SELECT i, i FROM generate_series(20002, 20100) i;
SELECT lost_rows('t', 'a', 't_rough');
REINDEX INDEX t_rough;
SELECT * FROM ask('SELECT * FROM t WHERE a IN (1, 10000, 20001, 20100, 20101)');
SELECT attempt('ALTER INDEX t_rough SET (pages_per_range = 3)');
SELECT attempt('ALTER INDEX t_rough SET (false_positive_rate = 2)');
SELECT pg_get_indexdef('t_rough'::regclass);
SELECT * FROM ask('SELECT * FROM t WHERE a = 20001');

-- What the access method says of itself.
SELECT property, pg_indexam_has_property(am.oid, property)
FROM pg_am am, unnest('{can_order,can_unique,can_multi_col,can_exclude,can_include}'::text[]) property
WHERE amname = 'bloomidx';
SELECT property, pg_index_has_property('t_rough', property)
FROM unnest('{clusterable,index_scan,bitmap_scan,backward_scan}'::text[]) property;
SELECT property, pg_index_column_has_property('t_rough', 1, property)
FROM unnest('{asc,desc,nulls_first,nulls_last,orderable,distance_orderable,returnable,search_array,search_nulls}'::text[]) property;

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA options CASCADE;
