-- What bench/demo measures and prints, beside timing.sql, measure.sql and uses.sql.

CREATE TABLE result (
	scene text,
	name text,
	bytes bigint,
	build float8,									-- seconds
	forced bool,									-- did the planner have to be forced to use it?
	hit_pages float8, hit_us float8,				-- a lookup of a key that is in the table
	miss_pages float8, miss_us float8,				-- and of one that is not
	PRIMARY KEY (scene, name)
);

-- Pages and time of lookups of present or absent keys.  A slow index gets fewer keys, a quick one more rounds, so
-- that none takes more than some seconds and each at least half of one; the median round counts.
CREATE FUNCTION measure_lookups(p peer, present bool, OUT pages float8, OUT us float8) LANGUAGE plpgsql AS $$
DECLARE
	keys text[] := ARRAY(SELECT key FROM sought s WHERE s.scene = p.scene AND s.present = measure_lookups.present);
	arguments text[] := loop_arguments(p, keys);
	estimate float8;
	rounds int;
BEGIN
	estimate := timed_lookups_warm(arguments[1:3], present);
	arguments := arguments[1:greatest(5, 3e5 / estimate)::int];
	rounds := greatest(3, 3e5 / (estimate * cardinality(arguments)));

	PERFORM timed_lookups(arguments, present);
	SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY timed_lookups(arguments, present))
		INTO us FROM generate_series(1, rounds);
	SELECT avg(index_pages + heap_pages) INTO pages
		FROM unnest(keys[1:least(50, greatest(3, 3e5 / estimate))::int]) key, lookup_cost(lookup_statement(p, key));
END $$;

-- Builds one index, as the only one of the table, and measures it.
CREATE PROCEDURE measure(wanted int) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	tab text;
	r result;
BEGIN
	SELECT * INTO STRICT p FROM peer WHERE ord = wanted;
	SELECT s.tab INTO STRICT tab FROM scene s WHERE s.name = p.scene;
	r.scene := p.scene;
	r.name := p.name;
	DROP INDEX IF EXISTS measured_index;
	r.forced := false;

	IF p.definition IS NOT NULL THEN
		CALL timed_build('measured_index', tab, p.definition, r.build);
		r.bytes := pg_table_size('measured_index');
	END IF;
	EXECUTE format('ANALYZE %I', tab);

	SET max_parallel_workers_per_gather = 0;
	IF p.definition IS NOT NULL THEN
		r.forced := explain(lookup_statement(p, (SELECT key FROM sought WHERE scene = p.scene AND NOT present LIMIT 1)))
			#>> '{Plan,Node Type}' = 'Seq Scan';
	END IF;
	IF r.forced THEN
		SET enable_seqscan = off;
	END IF;

	PERFORM create_timed_lookups(p);
	SELECT pages, us INTO r.hit_pages, r.hit_us FROM measure_lookups(p, true);
	SELECT pages, us INTO r.miss_pages, r.miss_us FROM measure_lookups(p, false);
	INSERT INTO result SELECT r.*;
END $$;

CREATE VIEW measured AS
	SELECT p.scene, p.name || CASE WHEN forced THEN ' *' ELSE '' END AS index,
		round(bytes / 1048576.0, 1) AS "size MB",
		round(build::numeric, 2) AS "build s",
		round(hit_pages::numeric) AS "pages, hit",
		round(hit_us::numeric) AS "µs, hit",
		round(miss_pages::numeric) AS "pages, miss",
		round(miss_us::numeric) AS "µs, miss"
	FROM result JOIN peer p USING (scene, name)
	ORDER BY p.ord;
