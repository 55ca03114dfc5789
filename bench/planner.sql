-- Does the planner choose well?  Queries with default settings and with each way forced in turn.  Run by bench/planner
-- after timing.sql; needs the variable "rows".
--
-- The median of the turns counts.  Where the planner has chosen the same plan as the way that was fastest, the ratio is 1
-- and not what the clock makes of it.

LOAD 'planhook';
CREATE FUNCTION planned_index_pages(regclass) RETURNS float8 LANGUAGE c STRICT AS 'planhook';
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

-- Runs a query once.  The time is that of the execution alone, as the server takes it.
CREATE FUNCTION run(query text, OUT ms float8, OUT plan jsonb, OUT index_pages float8) LANGUAGE plpgsql AS $$
BEGIN
	plan := explain(query, 'ANALYZE, BUFFERS, TIMING OFF, SUMMARY ON');
	ms := (plan ->> 'Execution Time')::float8;
	index_pages := (SELECT sum(planned_index_pages((n ->> 'Index Name')::regclass))
					FROM jsonb_path_query(plan, 'strict $.** ? (@."Node Type" == "Bitmap Index Scan")') n);
END $$;

-- What a plan is: its nodes with their indexes, without numbers.
CREATE FUNCTION shape(plan jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', n ->> 'Node Type', n ->> 'Index Name', n ->> 'Relation Name'), ', ')
	FROM jsonb_path_query(plan, 'strict $.** ? (exists(@."Node Type"))') n
$$;

-- Which way it goes.
CREATE FUNCTION way(plan jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN count(*) = 0 THEN 'seqscan' WHEN bool_or(n ->> 'Index Name' LIKE '%btree') THEN 'btree' ELSE 'bloomidx' END
	FROM jsonb_path_query(plan, 'strict $.** ? (exists(@."Index Name"))') n
$$;

-- Of Bitmap Index Scans: heap pages that match, as expected and found, and index pages read.  The planner expects rows, spread
-- over the heap, and bloomidx tells it as many as will make it read the right number of pages: this is undone here.
CREATE FUNCTION matches(plan jsonb, OUT heap_expected float8, OUT heap_found float8, OUT index_read float8) LANGUAGE sql AS $$
	SELECT sum(2 * relpages * (n ->> 'Plan Rows')::float8 / (2 * relpages + (n ->> 'Plan Rows')::float8)),
		sum((n ->> 'Actual Rows')::float8),
		sum(((n ->> 'Shared Hit Blocks')::float8 + (n ->> 'Shared Read Blocks')::float8) / (n ->> 'Actual Loops')::float8)
	FROM jsonb_path_query(plan, 'strict $.** ? (@."Node Type" == "Bitmap Index Scan")') n
		JOIN pg_index i ON i.indexrelid = (n ->> 'Index Name')::regclass
		JOIN pg_class c ON c.oid = i.indrelid
$$;

CREATE TABLE query (n int GENERATED ALWAYS AS IDENTITY, sql text);
CREATE TABLE k AS SELECT * FROM p TABLESAMPLE BERNOULLI (200000.0 / :rows) ORDER BY md5(id::text);
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

CREATE TABLE result (n int, forced text, turn int, ms float8, plan jsonb, index_pages float8);
CREATE FUNCTION force(how text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_seqscan', (how IN ('default', 'seqscan'))::text, false),
		set_config('enable_bitmapscan', (how <> 'seqscan')::text, false),
		set_config('enable_indexscan', (how IN ('default', 'btree'))::text, false),
		set_config('enable_indexonlyscan', (how IN ('default', 'btree'))::text, false),
		set_config('planhook.hide', CASE how WHEN 'bloomidx' THEN 'btree' WHEN 'btree' THEN 'bloomidx' ELSE '' END, false);
END $$;
CREATE PROCEDURE measure(wanted int, how text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM force(how);
	INSERT INTO result SELECT n, how, this_turn(), r.* FROM query, run(sql) r WHERE n = wanted;
	PERFORM force('default');
END $$;

-- Statements that measure a query in turns, in some ways.
CREATE FUNCTION turns_of(n int, ways text[], first int, last int) RETURNS SETOF text LANGUAGE sql
RETURN turns(ARRAY(SELECT format('CALL measure(%s, %L)', n, how) FROM unnest(ways) how), first, last);

SET max_parallel_workers_per_gather = 0;
SELECT turns_of(n, '{seqscan,bloomidx,btree,default}', 0, 7) FROM query ORDER BY n \gexec

-- Quick queries need more turns, but not in a way that is far behind.
SELECT turns_of(n, array_agg(forced) FILTER (WHERE ms <= 5 * fastest + 1), 8, CASE WHEN fastest < 2 THEN 101 ELSE 25 END)
	FROM (SELECT n, forced, ms, min(ms) OVER (PARTITION BY n) AS fastest FROM result WHERE turn = 0) w
	WHERE fastest < 20 GROUP BY n, fastest ORDER BY n \gexec

-- The median of each way that could be forced.
CREATE TABLE median AS
	SELECT n, forced, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms, count(*) AS runs, (array_agg(plan))[1] AS plan,
		(array_agg(index_pages))[1] AS index_expected
	FROM result WHERE turn > 0 GROUP BY n, forced HAVING forced = 'default' OR way((array_agg(plan))[1]) = forced;
CREATE VIEW judged AS
	SELECT query.n, sql, way(chosen.plan) AS chosen, chosen.ms, fastest.forced AS fastest,
		CASE WHEN shape(chosen.plan) = shape(fastest.plan) THEN 1 ELSE greatest(chosen.ms / fastest.ms, 1) END AS ratio,
		seqscan.ms AS seqscan, bloomidx.ms AS bloomidx, btree.ms AS btree, bloomidx.index_expected, m.*
	FROM query JOIN median chosen ON chosen.n = query.n AND chosen.forced = 'default'
		JOIN LATERAL (SELECT * FROM median m WHERE m.n = query.n AND forced <> 'default' ORDER BY ms LIMIT 1) fastest ON true
		LEFT JOIN median seqscan ON seqscan.n = query.n AND seqscan.forced = 'seqscan'
		LEFT JOIN median bloomidx ON bloomidx.n = query.n AND bloomidx.forced = 'bloomidx'
		LEFT JOIN median btree ON btree.n = query.n AND btree.forced = 'btree'
		LEFT JOIN LATERAL matches(bloomidx.plan) m ON true;

\echo Median times in ms; index pages that bloomidx reads and heap pages that match, as the planner expects them and as it is
SELECT n, left(regexp_replace(regexp_replace(sql, '^SELECT .* FROM ', ''), '''[^'']*''(,|\)|$| )', '..\1', 'g'), 34) AS query,
	chosen, fastest, round(ratio::numeric, 2) AS ratio, round(ms::numeric, 3) AS ms,
	round(seqscan::numeric, 3) AS seqscan, round(bloomidx::numeric, 3) AS bloomidx, round(btree::numeric, 3) AS btree,
	round(index_expected::numeric, 1) AS index_expected, round(index_read::numeric, 1) AS index_read,
	round(heap_expected::numeric, 1) AS heap_expected, heap_found
FROM judged ORDER BY n;
SELECT count(*) AS queries, count(*) FILTER (WHERE ratio = 1) AS fastest_chosen,
	count(*) FILTER (WHERE ratio <= 1.5) AS within_1_5, round(max(ratio)::numeric, 2) AS worst
FROM judged;
