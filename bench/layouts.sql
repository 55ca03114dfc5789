-- The two layouts beside BRIN bloom and the B-tree, on a key of which a range has few values (equal ones stand together),
-- and on uuids, where each value is there once.  Needs the variable "rows".

CREATE EXTENSION bloomidx;

-- about 75 rows a page each; a value has 120 rows, so that 16 pages have ten
CREATE TABLE grouped (key bigint NOT NULL, at timestamptz NOT NULL, payload text NOT NULL);
INSERT INTO grouped
	SELECT i / 120, timestamptz '2026-01-01' + i * interval '1 second', left(repeat(md5(i::text), 2), 60)
	FROM generate_series(1, :rows) i;
CREATE TABLE single (key uuid NOT NULL, at timestamptz NOT NULL, payload text NOT NULL);
INSERT INTO single
	SELECT gen_random_uuid(), timestamptz '2026-01-01' + i * interval '1 second', left(repeat(md5(i::text), 2), 52)
	FROM generate_series(1, :rows) i;
VACUUM (ANALYZE) grouped, single;

CREATE TABLE peer (ord int GENERATED ALWAYS AS IDENTITY, tab text, name text, definition text);
INSERT INTO peer (tab, name, definition) VALUES
	('grouped', 'bloomidx, block', 'bloomidx (key) WITH (layout = block, pages_per_range = 16)'),
	('grouped', 'bloomidx, partitioned', 'bloomidx (key) WITH (layout = partitioned, pages_per_range = 16)'),
	('grouped', 'BRIN bloom, tuned', 'brin (key int8_bloom_ops (n_distinct_per_range = 16, false_positive_rate = 0.001))
		WITH (pages_per_range = 16)'),
	('grouped', 'BRIN bloom', 'brin (key int8_bloom_ops)'),
	('grouped', 'btree', 'btree (key)'),
	('single', 'bloomidx, block', 'bloomidx (key) WITH (layout = block)'),
	('single', 'bloomidx, partitioned', 'bloomidx (key) WITH (layout = partitioned)'),
	('single', 'BRIN bloom, tuned', 'brin (key uuid_bloom_ops (n_distinct_per_range = 1200, false_positive_rate = 0.0001))
		WITH (pages_per_range = 16)'),
	('single', 'btree', 'btree (key)');
CREATE TABLE result (ord int, bytes bigint, build float8, hit float8, miss float8);

-- Microseconds per lookup in a loop in the server, with a cached plan, the same keys for every index.
CREATE FUNCTION timed_lookups(tab text, keys text[]) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	sought text;
	started timestamptz := clock_timestamp();
	matches bigint;
BEGIN
	FOREACH sought IN ARRAY keys LOOP
		IF tab = 'grouped' THEN
			SELECT count(payload) INTO matches FROM grouped g WHERE g.key = sought::bigint;
		ELSE
			SELECT count(payload) INTO matches FROM single s WHERE s.key = sought::uuid;
		END IF;
	END LOOP;
	RETURN extract(epoch FROM clock_timestamp() - started) * 1e6 / cardinality(keys);
END $$;

CREATE PROCEDURE measure(wanted int) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	r result;
	present text[];
	absent text[];
	started timestamptz;
BEGIN
	SELECT * INTO STRICT p FROM peer WHERE ord = wanted;
	EXECUTE format('SELECT array_agg(key) FROM (SELECT key::text FROM %I TABLESAMPLE system (1) REPEATABLE (1)
		GROUP BY 1 ORDER BY md5(key::text) LIMIT 50) s', p.tab) INTO present;
	SELECT array_agg(CASE p.tab WHEN 'grouped' THEN (-i)::text ELSE md5(i::text) END) INTO absent
		FROM generate_series(1, 50) i;
	started := clock_timestamp();
	EXECUTE format('CREATE INDEX measured ON %I USING %s', p.tab, p.definition);
	r.build := extract(epoch FROM clock_timestamp() - started);
	r.ord := p.ord;
	r.bytes := pg_table_size('measured');
	SET LOCAL enable_seqscan = off;
	SET LOCAL max_parallel_workers_per_gather = 0;
	PERFORM timed_lookups(p.tab, present);
	r.hit := timed_lookups(p.tab, present);
	PERFORM timed_lookups(p.tab, absent);
	r.miss := timed_lookups(p.tab, absent);
	INSERT INTO result SELECT r.*;
	DROP INDEX measured;
END $$;

-- the indexes take turns
SELECT format('CALL measure(%s)', ord) FROM generate_series(1, 3) turn, peer ORDER BY turn, ord \gexec

CREATE VIEW median AS
	SELECT ord, tab, name, max(bytes) AS bytes, percentile_cont(0.5) WITHIN GROUP (ORDER BY build) AS build,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY hit) AS hit, percentile_cont(0.5) WITHIN GROUP (ORDER BY miss) AS miss
	FROM result JOIN peer USING (ord) GROUP BY ord, tab, name;
SELECT tab AS table, name AS index, round(bytes / 1048576.0, 2) AS "size MB", round(build::numeric, 2) AS "build s",
	round(hit::numeric) AS "µs, hit", round(miss::numeric) AS "µs, miss",
	round((m.hit / (SELECT hit FROM median b WHERE b.tab = m.tab AND b.name = 'bloomidx, block'))::numeric, 2) AS "hit, ratio to block",
	round((m.bytes::float8 / (SELECT bytes FROM median b WHERE b.tab = m.tab AND b.name = 'bloomidx, block'))::numeric, 2)
		AS "size, ratio to block"
FROM median m ORDER BY ord;
