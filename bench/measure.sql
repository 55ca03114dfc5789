-- What bench/demo, bench/compare and bench/build have in common, beside timing.sql: the table, the indexes to compare, and
-- the pages that lookups read.

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

INSERT INTO scene VALUES ('id', 'item', 'uuid');

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

CREATE PROCEDURE choose_keys(n int) LANGUAGE sql
BEGIN ATOMIC
	DELETE FROM sought WHERE scene = 'id';
	INSERT INTO sought
		SELECT 'id', id, true FROM (SELECT id FROM item ORDER BY random() LIMIT n) s;
	INSERT INTO sought
		SELECT 'id', gen_random_uuid(), false FROM generate_series(1, n);
END;

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
