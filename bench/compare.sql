-- What bench/compare measures, beside timing.sql, measure.sql and uses.sql.  Every measurement is one row of "result".
--
-- The settings bench.rows and bench.turn say how many rows "item" has, and which repetition this is; turn 0 warms up and
-- is not recorded.  Nor is what is unknown (NULL).

CREATE EXTENSION pg_prewarm;

-- with its defaults BRIN bloom is much slower than tuned; the demo shows that
DELETE FROM peer WHERE name = 'BRIN bloom';
INSERT INTO peer (name, definition) VALUES ('bloomidx, block', 'bloomidx (id) WITH (layout = block)'), ('no index', NULL);

-- Three more scenes, in one table: columns of some thousand values each, in no order, of which two are asked for at once, or
-- any one row of the many that one of them has; and a column of which equal values stand together, 120 rows each, so that
-- 16 pages have ten values.
CREATE TABLE other (a int NOT NULL, b int NOT NULL, grp bigint NOT NULL, payload text NOT NULL);
INSERT INTO scene VALUES ('and', 'other', 'bigint'), ('limit', 'other', 'int'), ('grouped', 'other', 'bigint');
INSERT INTO peer (scene, name, definition, condition)
	SELECT 'and', name, definition, 'a = ($1 / 10000)::int AND b = ($1 % 10000)::int' FROM (VALUES
		('bloomidx', 'bloomidx (a, b)'),
		('bloomidx, each', 'bloomidx (a, b) WITH (keys = each)'),
		('bloomidx, all', 'bloomidx (a, b) WITH (keys = all)'),
		('btree', 'btree (a, b)'),
		-- the quickest of those about as large as bloomidx: with fewer pages per range it has more filters to read
		('BRIN bloom, tuned', 'brin (a int4_bloom_ops (n_distinct_per_range = 300, false_positive_rate = 0.0001),
			b int4_bloom_ops (n_distinct_per_range = 300, false_positive_rate = 0.0001)) WITH (pages_per_range = 4)'),
		('no index', NULL)) v (name, definition);
INSERT INTO peer (scene, name, definition, condition)
	SELECT 'limit', name, definition, 'b = $1 LIMIT 1' FROM (VALUES
		('bloomidx', 'bloomidx (b)'),
		('btree', 'btree (b)'),
		('no index', NULL)) v (name, definition);
INSERT INTO peer (scene, name, definition, condition)
	SELECT 'grouped', name, definition, 'grp = $1' FROM (VALUES
		('bloomidx', 'bloomidx (grp) WITH (pages_per_range = 16)'),
		('bloomidx, block', 'bloomidx (grp) WITH (pages_per_range = 16, layout = block)'),
		('btree', 'btree (grp)'),
		('BRIN bloom, tuned', 'brin (grp int8_bloom_ops (n_distinct_per_range = 16, false_positive_rate = 0.001))
			WITH (pages_per_range = 16)'),
		('no index', NULL)) v (name, definition);

-- Two for a table that was empty when its indexes were made.
CREATE TABLE loaded (LIKE item);
INSERT INTO scene VALUES ('load', 'loaded', 'uuid'), ('grown', 'loaded', 'uuid');
INSERT INTO peer (scene, name, definition) SELECT 'grown', name, definition FROM peer WHERE scene = 'id' AND name = 'bloomidx';
INSERT INTO peer (scene, name, definition, condition)
	SELECT 'load', name, definition, condition FROM peer
	WHERE scene = 'id' AND name IN ('bloomidx', 'btree', 'BRIN bloom, tuned', 'no index');

-- And one for a table of which a constraint keeps out duplicates.
CREATE TABLE known (LIKE item);
CREATE TABLE batch (LIKE item, is_known bool NOT NULL);
INSERT INTO scene VALUES ('dedup', 'known', 'uuid');
INSERT INTO peer (scene, name, definition) VALUES
	('dedup', 'bloomidx', 'EXCLUDE USING bloomidx (id WITH =)'),
	('dedup', 'btree', 'UNIQUE (id)'),
	('dedup', 'hash', 'EXCLUDE USING hash (id WITH =)'),
	('dedup', 'no index', NULL);

CREATE PROCEDURE load_other(n bigint) LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO other
		SELECT random() * 999, random() * 9999, i / 120, left(repeat(md5(i::text), 2), 60)
		FROM generate_series(1, n) i;
	INSERT INTO sought
		SELECT 'and', a * 10000 + b, true FROM (SELECT a, b FROM other ORDER BY random() LIMIT 1000) s;
	-- each of the two is there, but not in one row
	INSERT INTO sought
		SELECT 'and', a * 10000 + b, false
		FROM (SELECT floor(random() * 1000)::int AS a, floor(random() * 10000)::int AS b FROM generate_series(1, 30000)
			EXCEPT SELECT a, b FROM other) s
		LIMIT 1000;
	INSERT INTO sought
		SELECT 'limit', b, true FROM (SELECT b FROM other ORDER BY random() LIMIT 1000) s;
	INSERT INTO sought
		SELECT 'limit', -i, false FROM generate_series(1, 1000) i;
	INSERT INTO sought
		SELECT 'grouped', grp, true FROM (SELECT DISTINCT grp FROM other) s ORDER BY random() LIMIT 1000;
	INSERT INTO sought
		SELECT 'grouped', -i, false FROM generate_series(1, 1000) i;
END;

-- The keys of a join, of the lists for IN, and of the lookups by many clients.
CREATE TABLE probe (key uuid NOT NULL, n int PRIMARY KEY);

CREATE TABLE result (
	scenario text NOT NULL,
	metric text NOT NULL,
	index text NOT NULL,
	rows bigint NOT NULL,
	turn int NOT NULL,
	value float8 NOT NULL,
	unit text NOT NULL,
	plan text										-- how the table was read
);

CREATE FUNCTION record(scenario text, metric text, index text, value float8, unit text, plan text DEFAULT NULL)
RETURNS void LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO result
		SELECT scenario, metric, index, current_setting('bench.rows')::bigint, turn, value, unit, plan
		FROM this_turn() turn WHERE turn > 0 AND value IS NOT NULL;
END;

CREATE FUNCTION peer_of(scene text, name text) RETURNS peer LANGUAGE sql
RETURN (SELECT p FROM peer p WHERE (p.scene, p.name) = (peer_of.scene, peer_of.name));

CREATE FUNCTION index_of(p peer) RETURNS text LANGUAGE sql
RETURN replace(p.scene, ' ', '_') || '_' || p.ord;

CREATE FUNCTION table_of(p peer) RETURNS text LANGUAGE sql
RETURN (SELECT tab FROM scene WHERE name = p.scene);

CREATE FUNCTION create_index(p peer, tab text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p.definition IS NOT NULL THEN
		EXECUTE format('DROP INDEX IF EXISTS %I', index_of(p));
		EXECUTE format('CREATE INDEX %I ON %I USING %s', index_of(p), tab, p.definition);
	END IF;
END $$;

CREATE PROCEDURE drop_indexes(tab text) LANGUAGE plpgsql AS $$
DECLARE
	index regclass;
BEGIN
	FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = tab::regclass LOOP
		EXECUTE format('DROP INDEX %s', index);
	END LOOP;
END $$;

-- Times CREATE INDEX, and records the size.  Leaves the index in shared buffers, where not all kinds are when built.
-- "how" is serial, or parallel (one worker).
CREATE PROCEDURE measure_build(p peer, how text) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz;
BEGIN
	IF p.definition IS NULL THEN
		RETURN;
	END IF;
	EXECUTE format('DROP INDEX IF EXISTS %I', index_of(p));
	PERFORM set_config('max_parallel_maintenance_workers', CASE how WHEN 'parallel' THEN '1' ELSE '0' END, false);
	COMMIT;
	CHECKPOINT;
	started := clock_timestamp();
	PERFORM create_index(p, table_of(p));
	COMMIT;
	PERFORM record('build', CASE p.scene WHEN 'id' THEN how ELSE p.scene END, p.name, seconds_since(started), 's'),
		CASE how WHEN 'serial' THEN record('size', p.scene, p.name, pg_table_size(index_of(p)), 'bytes') END;
	COMMIT;
	-- some kinds of index are on disk when they are built, others are written later
	IF p.scene = 'id' AND how = 'serial' THEN
		CHECKPOINT;
		PERFORM record('build', 'with checkpoint', p.name, seconds_since(started), 's');
	END IF;
	PERFORM pg_prewarm(index_of(p)::regclass);
END $$;

-- Lets the planner see, and inserts maintain, no index of the table but this one.
CREATE FUNCTION show_only(p peer) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	UPDATE pg_index SET indisvalid = this, indisready = this
		FROM (SELECT indexrelid, coalesce(indexrelid = to_regclass(index_of(p)), false) AS this FROM pg_index) i
		WHERE pg_index.indexrelid = i.indexrelid AND indrelid = table_of(p)::regclass;
END;

-- How many times the index, or the whole table if there is none, was read in this transaction.
CREATE FUNCTION scans_of(p peer) RETURNS bigint LANGUAGE sql
RETURN pg_stat_get_xact_numscans(CASE WHEN p.definition IS NULL THEN table_of(p) ELSE index_of(p) END::regclass);

-- How the planner would read the table for such a statement.  If it would rather read all of it, it is forced to use the
-- index, until the end of the transaction.
CREATE FUNCTION force_index(p peer, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	used text := explain(statement) #>> '{Plan,Node Type}';
BEGIN
	IF p.definition IS NOT NULL AND used = 'Seq Scan' THEN
		SET LOCAL enable_seqscan = off;
		used := 'forced';
	END IF;
	RETURN used;
END $$;

-- Times lookups of present or absent keys, the same for all indexes in one turn.  One that takes longer than the budget
-- is made once; a quick one many times, after as many to warm up.
CREATE FUNCTION measure_lookups(p peer, scenario text, metric text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	budget CONSTANT float8 := 2e5;
	wanted CONSTANT bool := metric = 'hit';
	keys text[] := ARRAY(SELECT key FROM sought s WHERE s.scene = p.scene AND s.present = wanted
		ORDER BY hashtext(key || this_turn()));
	arguments text[] := loop_arguments(p, keys);
	used text := force_index(p, lookup_statement(p, keys[1]));
	us float8;
	scans bigint := scans_of(p);
BEGIN
	PERFORM create_timed_lookups(p);
	us := timed_lookups(arguments[1:1], wanted);
	IF us < budget THEN
		us := timed_lookups(arguments[1:3], wanted);
		us := timed_lookups_warm(arguments[1:greatest(3, budget / us)::int], wanted);
	END IF;
	IF scans_of(p) = scans THEN
		RAISE EXCEPTION '"%" was not used', p.name;
	END IF;
	PERFORM record(scenario, metric, p.name, us, 'us', used);

	IF wanted AND this_turn() = 1 THEN
		keys := keys[1:greatest(2, least(50, budget / us))::int];
		PERFORM record(scenario, 'index pages', p.name, avg(index_pages), 'pages', used),
			record(scenario, 'heap pages', p.name, avg(heap_pages), 'pages', used)
			FROM unnest(keys) key, lookup_cost(lookup_statement(p, key));
	END IF;
	SET LOCAL enable_seqscan = on;
END $$;

-- Times such statements, planned each time, as the planner wants them: all in turn, for the time of the budget.  The first
-- is to warm up, unless it takes long.  Each must count so many rows.
CREATE FUNCTION measure_queries(p peer, metric text, statements text[], expected bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	budget CONSTANT float8 := 2e5;
	used text := jsonb_path_query_first(explain(statements[1]),
		'$.** ? (@."Relation Name" == "item")."Node Type"') #>> '{}';
	us float8;
BEGIN
	PERFORM create_timed_loop('text', 'EXECUTE argument INTO counted');
	us := timed_loop(statements[1:1], expected, expected);
	IF us < budget THEN
		us := timed_loop(ARRAY(SELECT statements[i % cardinality(statements) + 1]
			FROM generate_series(1, ceil(budget / us)::int) i), expected, expected);
	END IF;
	PERFORM record('lookup', metric, p.name, us, 'us', used);
END $$;

-- Lists of keys as constants, and a join.
CREATE FUNCTION measure_lists(p peer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	keys text[] := ARRAY(SELECT key FROM sought WHERE scene = p.scene AND present);
	n CONSTANT int := 1000;
	statements text[];
BEGIN
	SELECT array_agg(format('SELECT count(payload) FROM item WHERE id = ANY (%L)', keys[i : i + n - 1])) INTO statements
		FROM generate_series(1, cardinality(keys) - n + 1, n) i;
	PERFORM measure_queries(p, 'IN of ' || n, statements, n);
	statements := ARRAY['SELECT count(payload) FROM probe, item WHERE ' || replace(p.condition, '$1', 'probe.key')];
	PERFORM measure_queries(p, 'join of 1000', statements, 1000);
END $$;

-- All lookups with all indexes that are there, in random order, each alone visible.
CREATE PROCEDURE measure_scene(of_scene text, lists bool) LANGUAGE plpgsql AS $$
DECLARE
	p peer;
	metric text;
BEGIN
	FOR p IN SELECT * FROM peer WHERE scene = of_scene AND (definition IS NULL OR to_regclass(index_of(peer)) IS NOT NULL)
		ORDER BY random()
	LOOP
		PERFORM show_only(p);
		COMMIT;
		FOREACH metric IN ARRAY '{hit, miss}'::text[] LOOP
			PERFORM measure_lookups(p, CASE of_scene WHEN 'id' THEN 'lookup' ELSE of_scene END, metric);
			COMMIT;
		END LOOP;
		IF lists AND p.name IN ('bloomidx', 'btree', 'hash') THEN
			PERFORM measure_lists(p);
			COMMIT;
		END IF;
	END LOOP;
END $$;

-- Times a COPY, and counts its WAL; then undoes it.  GIN puts new keys on a pending list, which searches read and VACUUM
-- moves to the index: that is part of the COPY here.
CREATE PROCEDURE measure_copy(p peer, metric text, tab text, file text) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz;
	lsn pg_lsn;
	n bigint;
	seconds float8;
	bytes float8;
BEGIN
	CHECKPOINT;
	lsn := pg_current_wal_insert_lsn();
	started := clock_timestamp();
	EXECUTE format('COPY %I FROM %L', tab, file);
	GET DIAGNOSTICS n = ROW_COUNT;
	PERFORM gin_clean_pending_list(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam
		WHERE indrelid = tab::regclass AND amname = 'gin';
	seconds := seconds_since(started);
	bytes := pg_current_wal_insert_lsn() - lsn;
	ROLLBACK;
	PERFORM record('copy', metric, p.name, seconds * 1e6 / n, 'us/row'),
		record('copy', metric || ', WAL', p.name, bytes / n, 'bytes/row');
	COMMIT;
END $$;

CREATE PROCEDURE measure_copy_empty(p peer, file text) LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS empty;
	CREATE TABLE empty (LIKE item);
	PERFORM create_index(p, 'empty');
	COMMIT;
	CALL measure_copy(p, 'empty table', 'empty', file);
	DROP TABLE empty;
END $$;

-- COPY into an empty table that has the index, to stay; the planner then learns of the rows.
CREATE PROCEDURE load_indexed(p peer, file text) LANGUAGE plpgsql AS $$
BEGIN
	CALL drop_indexes('loaded');
	TRUNCATE loaded;
	PERFORM create_index(p, 'loaded');
	COMMIT;
	CHECKPOINT;
	EXECUTE format('COPY loaded FROM %L', file);
	COMMIT;
	ANALYZE loaded;
	IF NOT EXISTS (SELECT FROM sought WHERE scene = 'load') THEN
		INSERT INTO sought
			SELECT 'load', id, true FROM (SELECT id FROM loaded ORDER BY random() LIMIT 1000) s;
	END IF;
END $$;

-- Inserts all rows of "item" into an empty table that has the index.
CREATE PROCEDURE grow(p peer) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM create_index(p, 'loaded');
	COMMIT;
	INSERT INTO loaded SELECT * FROM item;
	COMMIT;
	ANALYZE loaded;
	INSERT INTO sought SELECT 'grown', key, present FROM sought WHERE scene = 'id' AND present;
END $$;

-- What the index is worth then: before VACUUM or after it.
CREATE PROCEDURE measure_loaded(p peer, state text) LANGUAGE plpgsql AS $$
BEGIN
	IF p.definition IS NOT NULL THEN
		PERFORM record(state, 'size', p.name, pg_table_size(index_of(p)), 'bytes');
	END IF;
	PERFORM measure_lookups(p, state, 'hit');
END $$;

-- One index of a scene of text: built and alone on its table, which has been analyzed.
CREATE PROCEDURE measure_alone(p peer, file text) LANGUAGE plpgsql AS $$
DECLARE
	metric text;
BEGIN
	FOREACH metric IN ARRAY '{hit, miss}'::text[] LOOP
		PERFORM measure_lookups(p, p.scene, metric);
		COMMIT;
	END LOOP;
	CALL measure_copy(p, p.scene, table_of(p), file);
END $$;

-- Adds the constraint, and records how long that takes.
CREATE PROCEDURE add_constraint(p peer) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	ALTER TABLE known DROP CONSTRAINT IF EXISTS known_id;
	IF p.definition IS NOT NULL THEN
		EXECUTE format('ALTER TABLE known ADD CONSTRAINT known_id %s', p.definition);
		COMMIT;
		PERFORM record('build', 'dedup', p.name, seconds_since(started), 's'),
			record('size', 'dedup', p.name, pg_table_size('known_id'), 'bytes'), pg_prewarm('known_id');
	END IF;
	COMMIT;
	PERFORM pg_prewarm('known'), pg_prewarm('batch');
END $$;

-- A batch of which a tenth is there already.  New keys are new each time, and their rows stay, so that the table grows: filters
-- remember the keys of a batch that is rolled back.  Without a constraint nothing finds the others, so they are left out.
CREATE PROCEDURE measure_ingest(p peer, memory text) LANGUAGE plpgsql AS $$
DECLARE
	n CONSTANT float8 := (SELECT count(*) FROM batch);
	started timestamptz;
	lsn pg_lsn;
	seconds float8;
	bytes float8;
BEGIN
	CHECKPOINT;
	lsn := pg_current_wal_insert_lsn();
	started := clock_timestamp();
	INSERT INTO known SELECT CASE WHEN is_known THEN id ELSE gen_random_uuid() END, 'infinity', payload FROM batch
		WHERE p.definition IS NOT NULL OR NOT is_known ON CONFLICT DO NOTHING;
	seconds := seconds_since(started);
	bytes := pg_current_wal_insert_lsn() - lsn;
	COMMIT;
	PERFORM record('dedup', memory, p.name, seconds * 1e6 / n, 'us/row'),
		record('dedup', memory || ', WAL', p.name, bytes / n, 'bytes/row');
	COMMIT;
END $$;

-- The first lookups after a start of the server, with nothing in its buffers: the mean of so many, because each leaves
-- pages for the next.  The planner has read what it needs before.
CREATE FUNCTION measure_cold_lookups(p peer, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	statements text[] := ARRAY(SELECT lookup_statement(p, key) FROM sought WHERE scene = p.scene AND present
		ORDER BY hashtext(key || this_turn()) LIMIT n);
	used text := force_index(p, statements[1]);
BEGIN
	PERFORM record('cold', 'lookup', p.name, avg(ms) * 1000, 'us', used),
		record('cold', 'lookup, blocks read', p.name, avg(read_pages), 'blocks', used)
		FROM unnest(statements) statement, lookup_cost(statement);
END $$;

-- The same for one statement that inserts so many rows.
CREATE FUNCTION measure_cold_inserts(p peer, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	explained jsonb := explain(format('INSERT INTO item SELECT gen_random_uuid(), %L, repeat(%L, 52) FROM generate_series(1, %s)',
		'infinity', 'x', n), 'ANALYZE, BUFFERS, TIMING OFF');
BEGIN
	PERFORM record('cold', 'insert', p.name, (explained ->> 'Execution Time')::float8 * 1000 / n, 'us/row'),
		record('cold', 'insert, blocks read', p.name, (explained #>> '{Plan,Shared Read Blocks}')::float8 / n, 'blocks/row');
END $$;

-- Takes away what was inserted at the end of "item"; VACUUM then cuts it off.
CREATE PROCEDURE remove_inserted() LANGUAGE plpgsql AS $$
DECLARE
	first tid := (SELECT format('(%s,0)', greatest(relpages - 1, 0)) FROM pg_class WHERE oid = 'item'::regclass);
BEGIN
	CALL drop_indexes('item');
	DELETE FROM item WHERE ctid >= first AND at = 'infinity';
END $$;
