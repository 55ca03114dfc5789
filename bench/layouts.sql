-- The two layouts beside BRIN bloom and the B-tree, on a key of which a range has few values (equal ones stand together),
-- and on uuids, where each value is there once.  Run by bench/layouts after timing.sql; needs the variable "rows".

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

INSERT INTO scene VALUES ('grouped', 'grouped', 'bigint'), ('single', 'single', 'uuid');
INSERT INTO peer (scene, name, definition, condition)
	SELECT scene, name, definition, 'key = $1' FROM (VALUES
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
		('single', 'btree', 'btree (key)')) v (scene, name, definition);
INSERT INTO sought
	SELECT 'grouped', key, true FROM (SELECT DISTINCT key FROM grouped TABLESAMPLE system (1) REPEATABLE (1)) s
	ORDER BY md5(key::text) LIMIT 50;
INSERT INTO sought
	SELECT 'single', key, true FROM single TABLESAMPLE system (1) REPEATABLE (1) ORDER BY md5(key::text) LIMIT 50;
INSERT INTO sought SELECT 'grouped', -i, false FROM generate_series(1, 50) i;
INSERT INTO sought SELECT 'single', md5(i::text), false FROM generate_series(1, 50) i;
CREATE TABLE result (ord int, bytes bigint, build float8, hit float8, miss float8);

CREATE FUNCTION measure_lookups(p peer, wanted bool) RETURNS float8 LANGUAGE sql
RETURN timed_lookups_warm(ARRAY(SELECT key FROM sought WHERE scene = p.scene AND present = wanted), wanted);

-- Builds one index, as the only one of its table, and measures it.
CREATE PROCEDURE measure(wanted int) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	r result;
BEGIN
	SELECT * INTO STRICT p FROM peer WHERE ord = wanted;
	r.ord := p.ord;
	CALL timed_build('measured', p.scene, p.definition, r.build);
	r.bytes := pg_table_size('measured');
	SET LOCAL enable_seqscan = off;
	SET LOCAL max_parallel_workers_per_gather = 0;
	PERFORM create_timed_lookups(p);
	r.hit := measure_lookups(p, true);
	r.miss := measure_lookups(p, false);
	INSERT INTO result SELECT r.*;
	DROP INDEX measured;
END $$;

SELECT turns(array_agg(format('CALL measure(%s)', ord) ORDER BY ord), 1, 3) FROM peer \gexec

CREATE VIEW median AS
	SELECT ord, scene, name, max(bytes) AS bytes, percentile_cont(0.5) WITHIN GROUP (ORDER BY build) AS build,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY hit) AS hit, percentile_cont(0.5) WITHIN GROUP (ORDER BY miss) AS miss
	FROM result JOIN peer USING (ord) GROUP BY ord, scene, name;
SELECT scene AS table, name AS index, round(bytes / 1048576.0, 2) AS "size MB", round(build::numeric, 2) AS "build s",
	round(hit::numeric) AS "µs, hit", round(miss::numeric) AS "µs, miss",
	round((m.hit / (SELECT hit FROM median b WHERE b.scene = m.scene AND b.name = 'bloomidx, block'))::numeric, 2) AS "hit, ratio to block",
	round((m.bytes::float8 / (SELECT bytes FROM median b WHERE b.scene = m.scene AND b.name = 'bloomidx, block'))::numeric, 2)
		AS "size, ratio to block"
FROM median m ORDER BY ord;
