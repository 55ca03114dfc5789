-- What bench/demo and bench/compare have in common: the table, the indexes to compare, and how lookups are timed.
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

-- What is looked up: keys of some type, in some table.
CREATE TABLE scene (name text PRIMARY KEY, tab text NOT NULL, key_type text NOT NULL);
INSERT INTO scene VALUES ('id', 'item', 'uuid');

CREATE TABLE peer (
	ord int GENERATED ALWAYS AS IDENTITY,
	scene text NOT NULL DEFAULT 'id' REFERENCES scene,
	name text,
	definition text,								-- what follows USING; NULL: no index
	condition text NOT NULL DEFAULT 'id = $1',		-- of a lookup that this index can serve
	PRIMARY KEY (scene, name)
);

-- "tuned": to the size of bloomidx, or as near as BRIN comes; 0.0001 is the least that it takes
INSERT INTO peer (name, definition) VALUES
	('bloomidx', 'bloomidx (id)'),
	('btree', 'btree (id)'),
	('hash', 'hash (id)'),
	('BRIN bloom, tuned', 'brin (id uuid_bloom_ops (n_distinct_per_range = 1200, false_positive_rate = 0.0001))
		WITH (pages_per_range = 16)'),
	('BRIN bloom', 'brin (id uuid_bloom_ops)');
-- it has no operator class for uuid; the best size for one column: 4 bytes a row, 10 bits of them set
INSERT INTO peer (name, definition, condition) VALUES
	('contrib/bloom', 'bloom ((id::text)) WITH (length = 32, col1 = 10)', 'id::text = $1::text');

-- The keys to look up: the same for every index.
CREATE TABLE sought (scene text, key text, present bool);

CREATE PROCEDURE choose_keys(n int) LANGUAGE sql
BEGIN ATOMIC
	DELETE FROM sought WHERE scene = 'id';
	INSERT INTO sought
		SELECT 'id', id, true FROM (SELECT id FROM item ORDER BY random() LIMIT n) s;
	INSERT INTO sought
		SELECT 'id', gen_random_uuid(), false FROM generate_series(1, n);
END;

-- Makes the function timed_lookups(keys, present) for one index: microseconds per lookup, in a loop in the server,
-- with a cached plan, so that no parsing, planning or network is in it.  Counting makes it go on after the first
-- match, as for a key that need not be unique, and the payload makes it visit the heap.  It fails if a lookup does
-- not find what it must.
CREATE FUNCTION create_timed_lookups(p peer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	s scene;
BEGIN
	SELECT * INTO STRICT s FROM scene WHERE name = p.scene;
	EXECUTE format($body$
		CREATE OR REPLACE FUNCTION timed_lookups(keys text[], present bool) RETURNS float8
			LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $f$
		DECLARE
			typed_keys %1$s[] := keys;
			sought %1$s;
			matches bigint;
			started timestamptz := clock_timestamp();
		BEGIN
			FOREACH sought IN ARRAY typed_keys LOOP
				SELECT count(payload) INTO matches FROM %2$I WHERE %3$s;
				IF (matches > 0) <> present THEN
					RAISE EXCEPTION 'key %% found %% times, in the table: %%', sought, matches, present;
				END IF;
			END LOOP;
			RETURN extract(epoch FROM clock_timestamp() - started) * 1e6 / cardinality(keys);
		END $f$
	$body$, s.key_type, s.tab, replace(p.condition, '$1', 'sought'));
END $$;

-- One lookup as a statement.
CREATE FUNCTION lookup_statement(p peer, key text) RETURNS text LANGUAGE sql
RETURN (SELECT format('SELECT payload FROM %I WHERE ', tab) ||
	replace(p.condition, '$1', format('%L::%s', key, key_type)) FROM scene WHERE name = p.scene);

CREATE FUNCTION explain(statement text, options text DEFAULT 'COSTS ON') RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (%s, FORMAT JSON) %s', options, statement) INTO plan;
	RETURN plan -> 0;
END $$;

-- Pages of the index of a plan that this transaction has touched.
CREATE FUNCTION index_pages_touched(plan jsonb) RETURNS float8 LANGUAGE sql
RETURN coalesce(pg_stat_get_xact_blocks_fetched(coalesce(plan #>> '{Plan,Index Name}', plan #>> '{Plan,Plans,0,Index Name}')::regclass), 0);

-- What one lookup costs: pages touched, in shared buffers or not, those of them that were read, and milliseconds.  A plan
-- does not tell the index's pages from the heap's, but the server counts them.
CREATE FUNCTION lookup_cost(statement text, OUT index_pages float8, OUT heap_pages float8, OUT read_pages float8,
	OUT ms float8) LANGUAGE plpgsql AS $$
DECLARE
	explained jsonb := explain(statement);
	before float8 := index_pages_touched(explained);
	planned float8;
	plan jsonb;
BEGIN
	-- planning touches some, too
	PERFORM explain(statement);
	planned := index_pages_touched(explained) - before;
	explained := explain(statement, 'ANALYZE, BUFFERS, TIMING OFF');
	index_pages := index_pages_touched(explained) - before - 2 * planned;
	plan := explained -> 'Plan';
	heap_pages := (plan ->> 'Shared Hit Blocks')::float8 + (plan ->> 'Shared Read Blocks')::float8 - index_pages;
	read_pages := (plan ->> 'Shared Read Blocks')::float8;
	ms := (explained ->> 'Execution Time')::float8;
END $$;
