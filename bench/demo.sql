-- What bench/demo measures and prints, beside timing.sql and measure.sql.

CREATE TABLE result (
	name text PRIMARY KEY,
	bytes bigint,
	build float8,									-- seconds
	forced bool,									-- did the planner have to be forced to use it?
	hit_pages float8, hit_us float8,				-- a lookup of a key that is in the table
	miss_pages float8, miss_us float8				-- and of one that is not
);

-- Pages and time of lookups of present or absent keys.  A slow index gets fewer keys, a quick one more rounds, so
-- that none takes more than some seconds and each at least half of one; the median round counts.
CREATE FUNCTION measure_lookups(p peer, present bool, OUT pages float8, OUT us float8) LANGUAGE plpgsql AS $$
DECLARE
	keys text[] := ARRAY(SELECT key FROM sought s WHERE s.present = measure_lookups.present);
	estimate float8;
	rounds int;
BEGIN
	estimate := timed_lookups_warm(keys[1:3], present);
	keys := keys[1:greatest(5, 2e6 / estimate)::int];
	rounds := greatest(3, 5e5 / (estimate * cardinality(keys)));

	PERFORM timed_lookups(keys, present);
	SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY timed_lookups(keys, present))
		INTO us FROM generate_series(1, rounds);
	SELECT avg(index_pages + heap_pages) INTO pages
		FROM unnest(keys[1:50]) key, lookup_cost(lookup_statement(p, key));
END $$;

-- Builds one index, as the only one of the table, and measures it.
CREATE PROCEDURE measure(index_name text) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	r result;
BEGIN
	SELECT * INTO STRICT p FROM peer WHERE name = index_name;
	r.name := p.name;
	DROP INDEX IF EXISTS item_index;

	CALL timed_build('item_index', 'item', p.definition, r.build);
	r.bytes := pg_table_size('item_index');
	ANALYZE item;

	SET max_parallel_workers_per_gather = 0;
	r.forced := explain(lookup_statement(p, gen_random_uuid()::text)) #>> '{Plan,Node Type}' = 'Seq Scan';
	IF r.forced THEN
		SET enable_seqscan = off;
	END IF;

	PERFORM create_timed_lookups(p);
	SELECT pages, us INTO r.hit_pages, r.hit_us FROM measure_lookups(p, true);
	SELECT pages, us INTO r.miss_pages, r.miss_us FROM measure_lookups(p, false);
	INSERT INTO result SELECT r.*;
END $$;

CREATE VIEW measured AS
	SELECT p.name || CASE WHEN forced THEN ' *' ELSE '' END AS index,
		round(bytes / 1048576.0, 1) AS "size MB",
		round(build::numeric, 2) AS "build s",
		round(hit_pages::numeric) AS "pages, hit",
		round(hit_us::numeric) AS "µs, hit",
		round(miss_pages::numeric) AS "pages, miss",
		round(miss_us::numeric) AS "µs, miss"
	FROM result JOIN peer p USING (name)
	ORDER BY p.ord;
