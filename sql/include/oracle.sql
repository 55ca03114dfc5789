-- Set-up that all regression tests share: settings, a schema of its own for each test, and functions that compare the
-- index with a sequential scan.  A test begins with
--
--	\set ECHO none
--	\set test name_of_the_schema
--	\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
--	\i :oracle
--
-- and, after functions of its own, \set ECHO all.  pg_regress has set PG_ABS_SRCDIR since PostgreSQL 15, but \getenv is
-- as new; for older versions the Makefile and test/check set it.

-- the layout of indexes, for tests that run with each layout; test.layout is for functions
\set layout `echo "${BLOOMIDX_LAYOUT:-partitioned}"`
SET test.layout = :layout;
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE EXTENSION IF NOT EXISTS bloomidx;
CREATE SCHEMA :test;
SET search_path = :test, public;
\pset format unaligned
\pset tuples_only on

-- Answers a query by a bitmap scan, by an index scan (where that is possible) and by a sequential scan: how many rows,
-- whether they are the same, and the plan that found the first answer.
CREATE FUNCTION ask(query text, OUT "rows" bigint, OUT equal bool, OUT plan text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	digest text := 'SELECT count(*), sum(hashtextextended(q::text, 0)) FROM (' || query || ') q';
	line text;
	found record;
	also_found record;
	expected record;
BEGIN
	EXECUTE digest INTO found;
	"rows" := found.count;
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || digest LOOP
		IF line ~ '->' AND line !~ 'Bitmap Heap Scan|Aggregate|Materialize|Memoize' THEN
			plan := concat_ws(', ', plan, substring(line FROM '->  (.*)'));
		END IF;
	END LOOP;
	PERFORM set_config('enable_bitmapscan', 'off', true), set_config('enable_indexscan', 'on', true);
	EXECUTE digest INTO also_found;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true);
	EXECUTE digest INTO expected;
	equal := found IS NOT DISTINCT FROM expected AND also_found IS NOT DISTINCT FROM expected;
END $$;

-- Whether the plan of a query, with the settings of the caller, scans an index.
CREATE FUNCTION uses_index(query text, index_name text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
	used bool := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		used := used OR line LIKE '%Bitmap Index Scan on ' || index_name OR line LIKE '%Index Scan using ' || index_name || ' on%';
	END LOOP;
	RETURN used;
END $$;

-- How many rows of a table the index does not find, each looked up by its own key; NULL if the index was not asked.
CREATE FUNCTION lost_rows(tab text, col text, index_name text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	-- OFFSET 0 and IS TRUE keep the planner from other ways
	query text := format('SELECT count(*) FROM (SELECT %2$s AS key, ctid AS tid FROM %1$s OFFSET 0) a'
						 ' WHERE key IS NOT NULL AND NOT EXISTS'
						 ' (SELECT FROM %1$s WHERE %2$s = a.key AND (ctid = a.tid) IS TRUE OFFSET 0)', tab, col);
	lost bigint;
BEGIN
	IF uses_index(query, index_name) THEN
		EXECUTE query INTO lost;
	END IF;
	RETURN lost;
END $$;

-- How many heap pages the index finds for a condition: the rows of a Bitmap Index Scan are pages.
CREATE FUNCTION matching_pages(tab text, condition text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_indexscan = off AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF, FORMAT JSON) SELECT * FROM %I WHERE %s', tab, condition) INTO plan;
	plan := plan #> '{0,Plan}';
	IF plan ->> 'Node Type' <> 'Bitmap Heap Scan' THEN
		RAISE EXCEPTION 'the plan is a %', plan ->> 'Node Type';
	END IF;
	RETURN (plan #>> '{Plans,0,Actual Rows}')::numeric::bigint;
END $$;

-- The size of a table or an index.
CREATE FUNCTION pages(relation regclass) RETURNS bigint LANGUAGE sql AS $$
	SELECT pg_relation_size(relation) / current_setting('block_size')::int
$$;

-- Runs a statement that should fail; shows the error with its detail and hint.  CREATE INDEX has a search_path of its
-- own since 17, so that names are qualified.
CREATE FUNCTION attempt(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN replace(concat_ws(E'\n', SQLSTATE || ': ' || message, nullif(detail, ''), nullif(hint, '')),
				   current_schema() || '.', '');
END $$;

-- The end of a test: bloomidx_check() accepts the indexes that are left in its schema, and there are some.
CREATE FUNCTION indexes_are_good() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	-- the extension may have been moved to another schema
	statement text := (SELECT format('SELECT %s.bloomidx_check($1)', pronamespace::regnamespace) FROM pg_proc
					   WHERE proname = 'bloomidx_check');
	checked int := 0;
	index oid;
BEGIN
	FOR index IN SELECT c.oid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
		WHERE a.amname = 'bloomidx' AND c.relkind = 'i' AND i.indisvalid AND c.relnamespace = current_schema()::regnamespace
	LOOP
		EXECUTE statement USING index;
		checked := checked + 1;
	END LOOP;
	RETURN checked > 0;
END $$;
