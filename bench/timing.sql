-- How all benchmarks take times, and what a lookup is.  bench/common.sh runs this first.
--
-- What is compared is measured in turns, so that whatever disturbs the machine for a while disturbs all alike; turn 0 warms
-- up and does not count.  The setting bench.turn says which turn it is.

-- What is looked up: keys of some type, in some table.
CREATE TABLE scene (name text PRIMARY KEY, tab text NOT NULL, key_type text NOT NULL);

-- The indexes to compare.  A new one is one more row.
CREATE TABLE peer (
	ord int GENERATED ALWAYS AS IDENTITY,
	scene text NOT NULL DEFAULT 'id' REFERENCES scene,
	name text,
	definition text,								-- what follows USING; NULL: no index
	condition text NOT NULL DEFAULT 'id = $1',		-- of a lookup that this index can serve
	PRIMARY KEY (scene, name)
);

-- The keys to look up: the same for every index.
CREATE TABLE sought (scene text, key text, present bool);

CREATE FUNCTION seconds_since(started timestamptz) RETURNS float8 LANGUAGE sql
RETURN extract(epoch FROM clock_timestamp() - started);

-- Statements, to be executed by \gexec, that measure in turns: those given, in each turn in the reverse order of the turn
-- before.
CREATE FUNCTION turns(statements text[], first int, last int) RETURNS SETOF text LANGUAGE sql
BEGIN ATOMIC
	SELECT statement
		FROM generate_series(first, last) turn,
			LATERAL (SELECT format('SET bench.turn = %s', turn), NULL::bigint
				UNION ALL SELECT * FROM unnest(statements) WITH ORDINALITY) s (statement, place)
		ORDER BY turn, CASE WHEN turn % 2 = 0 THEN place ELSE -place END NULLS FIRST;
END;

CREATE FUNCTION this_turn() RETURNS int LANGUAGE sql
RETURN current_setting('bench.turn')::int;

-- Makes the function timed_loop(arguments, fewest, most): microseconds per execution of a statement, in a loop in the
-- server, once with each argument.  The statement is one of PL/pgSQL that sets "counted", from a variable "argument" of
-- the type given.  The loop fails if a statement counts fewer or more than it must.  All that takes so little time that it
-- has to be repeated is timed by this loop.
CREATE FUNCTION create_timed_loop(argument_type text, statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format($body$
		CREATE OR REPLACE FUNCTION timed_loop(arguments text[], fewest bigint, most bigint) RETURNS float8
			LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $f$
		DECLARE
			typed_arguments %1$s[] := arguments;
			argument %1$s;
			counted bigint;
			started timestamptz := clock_timestamp();
		BEGIN
			FOREACH argument IN ARRAY typed_arguments LOOP
				%2$s;
				IF counted NOT BETWEEN fewest AND most THEN
					RAISE EXCEPTION '%% rows, not %% to %%, for: %%', counted, fewest, most, argument;
				END IF;
			END LOOP;
			RETURN seconds_since(started) * 1e6 / cardinality(arguments);
		END $f$
	$body$, argument_type, statement);
END $$;

-- Makes that loop for the lookups of one index, with a cached plan, so that no parsing, planning or network is in it.
-- Counting makes a lookup go on after the first match, as for a key that need not be unique, and the payload makes it visit
-- the heap.
CREATE FUNCTION create_timed_lookups(p peer) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	SELECT create_timed_loop(key_type, format('SELECT count(payload) INTO counted FROM %I WHERE %s', tab,
			replace(p.condition, '$1', 'argument')))
		FROM scene WHERE name = p.scene;
END;

-- Microseconds per lookup of keys that are in the table, or are not.
CREATE FUNCTION timed_lookups(keys text[], present bool) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN present THEN timed_loop(keys, 1, 9223372036854775807) ELSE timed_loop(keys, 0, 0) END;
END $$;

-- The same after a warm-up.
CREATE FUNCTION timed_lookups_warm(keys text[], present bool) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	PERFORM timed_lookups(keys, present);
	RETURN timed_lookups(keys, present);
END $$;

-- Times CREATE INDEX, with its commit.
CREATE PROCEDURE timed_build(index_name text, tab text, definition text, INOUT seconds float8) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	EXECUTE format('CREATE INDEX %I ON %I USING %s', index_name, tab, definition);
	COMMIT;
	seconds := seconds_since(started);
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
