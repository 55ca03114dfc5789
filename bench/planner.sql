-- Does the planner choose well?  Twenty queries, each run with default settings and with each way forced in turn.
-- Run by bench/planner.

CREATE EXTENSION bloomidx;
CREATE TABLE p (
	id uuid,			-- unique; bloomidx only
	id2 uuid,			-- unique; bloomidx and btree
	status int,			-- 5 values, everywhere
	tenant int,			-- 1,000 values, everywhere
	mid int,			-- 100,000 values, everywhere
	day int,			-- in order, 500 rows each
	batch int,			-- 500 rows each stand together, in no order
	rare int,			-- NULL but for 1 in 10,000
	pad text);
INSERT INTO p
	SELECT gen_random_uuid(), gen_random_uuid(), i % 5, hashint4(i) & 1023, hashint4(i + 7) & 131071, i / 500,
		(i / 500) * 7919 % 10007, CASE WHEN hashint4(i) % 10000 = 0 THEN i END, repeat('x', 20)
	FROM generate_series(1, :rows) i;
CREATE INDEX p_id ON p USING bloomidx (id);
CREATE INDEX p_id2 ON p USING bloomidx (id2);
CREATE INDEX p_id2_btree ON p (id2);
CREATE INDEX p_status ON p USING bloomidx (status);
CREATE INDEX p_tenant ON p USING bloomidx (tenant);
CREATE INDEX p_mid ON p USING bloomidx (mid);
CREATE INDEX p_mid_btree ON p (mid);
CREATE INDEX p_day ON p USING bloomidx (day);
CREATE INDEX p_batch ON p USING bloomidx (batch);
CREATE INDEX p_rare ON p USING bloomidx (rare);
CREATE INDEX p_both ON p USING bloomidx (tenant, mid);
CREATE TABLE tiny AS SELECT * FROM p LIMIT 100;
CREATE INDEX tiny_id ON tiny USING bloomidx (id);
VACUUM ANALYZE p;
VACUUM ANALYZE tiny;

-- The best of some runs, in ms, the plan, and pages estimated and found by a Bitmap Index Scan on bloomidx.
CREATE FUNCTION run(query text, runs int, OUT ms float8, OUT way text, OUT expected_pages float8, OUT pages float8)
LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
	node jsonb;
	scan text;
BEGIN
	FOR i IN 1 .. runs LOOP
		EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, SUMMARY ON, FORMAT JSON) ' || query INTO plan;
		ms := least(ms, (plan #>> '{0,Execution Time}')::float8);
	END LOOP;
	scan := (SELECT string_agg(DISTINCT n ->> 'Index Name', '+') FROM jsonb_path_query(plan, '$.** ? (@."Index Name" != "")') n);
	way := CASE WHEN scan IS NULL THEN 'seqscan' WHEN scan LIKE '%btree%' THEN 'btree' ELSE 'bloomidx' END;
	node := jsonb_path_query_first(plan, '$.** ? (@."Node Type" == "Bitmap Index Scan")');
	expected_pages := (node ->> 'Plan Rows')::float8;
	pages := (node ->> 'Actual Rows')::float8;
END $$;

CREATE TABLE query (n int GENERATED ALWAYS AS IDENTITY, sql text);
CREATE TABLE k AS SELECT * FROM p TABLESAMPLE SYSTEM (1) LIMIT 2000;
CREATE FUNCTION list(col text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r text;
BEGIN
	EXECUTE format('SELECT string_agg(quote_literal(v), '','') FROM (SELECT DISTINCT %I AS v FROM k WHERE %I IS NOT NULL LIMIT %s) s', col, col, n) INTO r;
	RETURN r;
END $$;
INSERT INTO query (sql) SELECT unnest(ARRAY[
	format('SELECT * FROM p WHERE id = %s', list('id', 1)),
	format('SELECT * FROM p WHERE id = %L', gen_random_uuid()),
	format('SELECT * FROM p WHERE id IN (%s)', list('id', 10)),
	format('SELECT * FROM p WHERE id IN (%s)', list('id', 1000)),
	format('SELECT * FROM p WHERE id2 = %s', list('id2', 1)),
	format('SELECT * FROM p WHERE id2 IN (%s)', list('id2', 100)),
	'SELECT * FROM p WHERE status = 3',
	'SELECT * FROM p WHERE status = 77',
	'SELECT * FROM p WHERE status IN (1, 2)',
	format('SELECT * FROM p WHERE tenant = %s', list('tenant', 1)),
	format('SELECT * FROM p WHERE mid = %s', list('mid', 1)),
	format('SELECT * FROM p WHERE mid IN (%s)', list('mid', 20)),
	format('SELECT * FROM p WHERE tenant = %s AND mid = %s', list('tenant', 1), list('mid', 1)),
	format('SELECT * FROM p WHERE day = %s', list('day', 1)),
	'SELECT * FROM p WHERE day IN (5, 77, 140, 1999)',
	format('SELECT * FROM p WHERE batch = %s', list('batch', 1)),
	'SELECT * FROM p WHERE rare IS NOT NULL',
	'SELECT * FROM p WHERE rare IS NULL',
	format('SELECT * FROM p WHERE id = %s AND status = 3', list('id', 1)),
	format('SELECT * FROM p WHERE id = %s OR batch = %s', list('id', 1), list('batch', 1)),
	'SELECT p.* FROM (SELECT id FROM k LIMIT 50) s JOIN p USING (id)',
	format('SELECT * FROM tiny WHERE id = %s', list('id', 1))]);

CREATE TABLE result (n int, forced text, ms float8, way text, expected_pages float8, pages float8);
CREATE PROCEDURE measure_queries() LANGUAGE plpgsql AS $$
DECLARE
	q record;
	how text;
BEGIN
	FOR q IN SELECT * FROM query LOOP
		FOREACH how IN ARRAY '{default,seqscan,bloomidx,btree}'::text[] LOOP
			PERFORM set_config('enable_seqscan', (how IN ('default', 'seqscan'))::text, true),
				set_config('enable_bitmapscan', (how <> 'seqscan')::text, true),
				set_config('enable_indexscan', (how IN ('default', 'btree'))::text, true),
				set_config('enable_indexonlyscan', (how IN ('default', 'btree'))::text, true);
			-- hide what is not asked for
			UPDATE pg_index SET indisvalid = NOT (how = 'bloomidx' AND indexrelid::regclass::text LIKE '%btree'
												  OR how = 'btree' AND indexrelid::regclass::text NOT LIKE '%btree')
				WHERE indrelid = 'p'::regclass;
			INSERT INTO result SELECT q.n, how, r.* FROM run(q.sql, 5) r;
			COMMIT;
		END LOOP;
	END LOOP;
END $$;
SET max_parallel_workers_per_gather = 0;
CALL measure_queries();

SELECT query.n, left(regexp_replace(sql, '''[^'']*''(,|\))', '..\1', 'g'), 60) AS query, d.way AS chosen,
	round(d.ms::numeric, 3) AS ms, best.forced AS fastest, round((d.ms / best.ms)::numeric, 2) AS ratio,
	round(b.expected_pages) AS pages_expected, b.pages AS pages_found
FROM query JOIN result d USING (n)
	JOIN LATERAL (SELECT * FROM result r WHERE r.n = query.n AND r.forced = r.way ORDER BY ms LIMIT 1) best ON true
	LEFT JOIN result b ON b.n = query.n AND b.forced = 'bloomidx' AND b.way = 'bloomidx'
WHERE d.forced = 'default' ORDER BY query.n;
