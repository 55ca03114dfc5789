-- What bench/demo and bench/compare have in common: the table, the indexes to compare, and how each is measured.
-- A new index is one more row of "peer".

CREATE EXTENSION bloomidx;
CREATE EXTENSION bloom;

-- about 75 rows a page
CREATE TABLE item (id uuid NOT NULL, at timestamptz NOT NULL, payload text NOT NULL);

CREATE PROCEDURE load_items(first bigint, last bigint) LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO item
		SELECT gen_random_uuid(), timestamptz '2026-01-01' + i * interval '1 second',
			left(repeat(md5(i::text), 2), 52)
		FROM generate_series(first, last) i;
END;

CREATE TABLE peer (
	ord int GENERATED ALWAYS AS IDENTITY,
	name text PRIMARY KEY,
	definition text NOT NULL,						-- what follows USING
	lookup text NOT NULL DEFAULT 'id = $1',			-- the condition that this index can serve
	loads bool NOT NULL DEFAULT true				-- is it in the comparison of COPY?
);

INSERT INTO peer (name, definition) VALUES
	('bloomidx', 'bloomidx (id)'),
	('btree', 'btree (id)'),
	('hash', 'hash (id)'),
	('BRIN bloom, tuned', 'brin (id uuid_bloom_ops (n_distinct_per_range = 1200, false_positive_rate = 0.001))
		WITH (pages_per_range = 16)');
INSERT INTO peer (name, definition, lookup, loads) VALUES
	('BRIN bloom', 'brin (id uuid_bloom_ops)', DEFAULT, false),
	-- it has no operator class for uuid; the best size for one column: 4 bytes a row, 10 bits of them set
	('contrib/bloom', 'bloom ((id::text)) WITH (length = 32, col1 = 10)', 'id::text = $1::text', false);

CREATE TABLE result (
	name text PRIMARY KEY REFERENCES peer,
	bytes bigint,
	build float8,									-- seconds
	forced bool,									-- did the planner have to be forced to use it?
	hit_pages float8, hit_us float8,				-- a lookup of a key that is in the table
	miss_pages float8, miss_us float8				-- and of one that is not
);

CREATE TABLE load_result (
	name text,										-- NULL: no index
	seconds float8
);

-- The keys to look up: the same for every index.
CREATE TABLE sought (id uuid, present bool);

CREATE PROCEDURE choose_keys(n int) LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO sought
		SELECT id, true FROM (SELECT id FROM item ORDER BY random() LIMIT n) s;
	INSERT INTO sought
		SELECT gen_random_uuid(), false FROM generate_series(1, n);
END;

-- Index and heap pages that one lookup touches, in shared buffers or not.  Needs the prepared statement "lookup".
CREATE FUNCTION lookup_pages(key uuid) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE lookup(%L)', key) INTO plan;
	RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::bigint +
		(plan #>> '{0,Plan,Shared Read Blocks}')::bigint;
END $$;

-- Microseconds per lookup, in a loop in the server, with a cached plan: no parsing, planning or network in it.
-- Counting makes it go on after the first match, as for a key that need not be unique, and the payload makes it
-- visit the heap.  Fails if a lookup does not find what it must.
CREATE FUNCTION create_timed_lookups(condition text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format($body$
		CREATE OR REPLACE FUNCTION timed_lookups(keys uuid[], present bool) RETURNS float8
			LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $f$
		DECLARE
			key uuid;
			matches bigint;
			started timestamptz := clock_timestamp();
		BEGIN
			FOREACH key IN ARRAY keys LOOP
				SELECT count(payload) INTO matches FROM item WHERE %s;
				IF (matches > 0) <> present THEN
					RAISE EXCEPTION 'key %% found %% times, in the table: %%', key, matches, present;
				END IF;
			END LOOP;
			RETURN extract(epoch FROM clock_timestamp() - started) * 1e6 / cardinality(keys);
		END $f$
	$body$, replace(condition, '$1', 'key'));
END $$;

-- Pages and time of lookups of present or absent keys.  A slow index gets fewer keys, a quick one more rounds, so
-- that none takes more than some seconds and each at least half of one; the median round counts.
CREATE FUNCTION measure_lookups(present bool, OUT pages float8, OUT us float8) LANGUAGE plpgsql AS $$
DECLARE
	keys uuid[] := ARRAY(SELECT id FROM sought s WHERE s.present = measure_lookups.present);
	estimate float8;
	rounds int;
BEGIN
	PERFORM timed_lookups(keys[1:3], present);
	estimate := timed_lookups(keys[1:3], present);
	keys := keys[1:greatest(5, 2e6 / estimate)::int];
	rounds := greatest(3, 5e5 / (estimate * cardinality(keys)));

	PERFORM timed_lookups(keys, present);
	SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY timed_lookups(keys, present))
		INTO us FROM generate_series(1, rounds);
	SELECT avg(lookup_pages(key)) INTO pages FROM unnest(keys[1:50]) key;
END $$;

-- Builds one index, as the only one of the table, and measures it.
CREATE PROCEDURE measure(index_name text) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	r result;
	started timestamptz;
	plan jsonb;
BEGIN
	SELECT * INTO STRICT p FROM peer WHERE name = index_name;
	r.name := p.name;
	DROP INDEX IF EXISTS item_index;

	started := clock_timestamp();
	EXECUTE 'CREATE INDEX item_index ON item USING ' || p.definition;
	COMMIT;
	r.build := extract(epoch FROM clock_timestamp() - started);
	r.bytes := pg_table_size('item_index');
	ANALYZE item;

	SET max_parallel_workers_per_gather = 0;
	SET plan_cache_mode = force_generic_plan;
	EXECUTE 'PREPARE lookup(uuid) AS SELECT payload FROM item WHERE ' || p.lookup;
	EXECUTE 'EXPLAIN (FORMAT JSON) EXECUTE lookup(NULL)' INTO plan;
	r.forced := plan::text LIKE '%"Seq Scan"%';
	IF r.forced THEN
		SET enable_seqscan = off;
		DISCARD PLANS;
	END IF;

	PERFORM create_timed_lookups(p.lookup);
	SELECT pages, us INTO r.hit_pages, r.hit_us FROM measure_lookups(true);
	SELECT pages, us INTO r.miss_pages, r.miss_us FROM measure_lookups(false);
	INSERT INTO result SELECT r.*;
END $$;

-- Loads the file into an empty table with one index, or none.
CREATE PROCEDURE measure_load(index_name text, file text) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz;
	p peer;
BEGIN
	DROP TABLE IF EXISTS loaded;
	CREATE TABLE loaded (LIKE item);
	SELECT * INTO p FROM peer WHERE name = index_name;
	IF FOUND THEN
		EXECUTE 'CREATE INDEX ON loaded USING ' || p.definition;
	END IF;
	COMMIT;
	CHECKPOINT;
	started := clock_timestamp();
	EXECUTE format('COPY loaded FROM %L', file);
	COMMIT;
	INSERT INTO load_result VALUES (index_name, extract(epoch FROM clock_timestamp() - started));
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

CREATE VIEW measured_ratio AS
	SELECT p.name AS index,
		round((r.bytes::float8 / b.bytes)::numeric, 3) AS size,
		round((r.build / b.build)::numeric, 2) AS build,
		round((r.hit_us / b.hit_us)::numeric, 2) AS hit,
		round((r.miss_us / b.miss_us)::numeric, 2) AS miss
	FROM result r JOIN peer p USING (name), result b
	WHERE b.name = 'btree'
	ORDER BY p.ord;

CREATE VIEW load_measured AS
	WITH median AS (
		SELECT name, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds
		FROM load_result GROUP BY name
	)
	SELECT coalesce(m.name, 'no index') AS index,
		round(m.seconds::numeric, 2) AS "load s",
		round((m.seconds - none.seconds)::numeric, 2) AS "added s",
		round(((m.seconds - none.seconds) / nullif(btree.seconds - none.seconds, 0))::numeric, 2)
			AS "added, ratio to btree"
	FROM median m LEFT JOIN peer p USING (name), median none, median btree
	WHERE none.name IS NULL AND btree.name = 'btree'
	ORDER BY p.ord NULLS FIRST;
