-- Index scans: the rows one at a time.
\set ECHO none
\set test scan
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle

-- Answers a query by an index scan and by a sequential scan: how many rows, whether they are the same, and the scan.
CREATE FUNCTION by_index(query text, OUT "rows" bigint, OUT equal bool, OUT scan text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
	digest text := 'SELECT count(*), sum(hashtextextended(q::text, 0)) FROM (' || query || ') q';
	line text;
	found record;
	expected record;
BEGIN
	EXECUTE digest INTO found;
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || digest LOOP
		scan := coalesce(scan, substring(line FROM 'Index.* Scan using \w+'));
	END LOOP;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true),
			set_config('enable_indexonlyscan', 'off', true);
	EXECUTE digest INTO expected;
	"rows" := found.count;
	equal := found IS NOT DISTINCT FROM expected;
END $$;

-- How many pages, of index and table, a query reads.
CREATE FUNCTION pages_read(query text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	plan := plan #> '{0,Plan}';
	RETURN (plan ->> 'Shared Hit Blocks')::bigint + (plan ->> 'Shared Read Blocks')::bigint;
END $$;
\set ECHO all

-- A page for each row, and half of the pages match.
CREATE TABLE many (id int, half int, code numeric, pad text) WITH (autovacuum_enabled = off);
ALTER TABLE many ALTER pad SET STORAGE PLAIN;
INSERT INTO many SELECT i, i % 2, i % 2, repeat('x', 5000) FROM generate_series(1, 3000) i;
CREATE INDEX many_i ON many USING bloomidx (half, id, code) WITH (layout = :layout, pages_per_range = 1);
VACUUM ANALYZE many;
SELECT * FROM by_index('SELECT * FROM many WHERE half = 1');
SELECT * FROM by_index('SELECT * FROM many WHERE half = 1 AND id IN (1, 2, 3, 2999)');
SELECT * FROM by_index('SELECT * FROM many WHERE half = 2');
SELECT * FROM by_index('SELECT * FROM many WHERE code = 1.00');
SELECT * FROM by_index('SELECT * FROM many WHERE half IS NOT NULL');
SELECT * FROM by_index('SELECT * FROM many WHERE half IS NULL');
SELECT * FROM by_index('SELECT * FROM many WHERE half = NULL::int');
SELECT * FROM by_index('SELECT * FROM many WHERE id = ANY (''{}'')');
SELECT * FROM by_index('SELECT * FROM many WHERE id = ANY (ARRAY(SELECT i * 7 FROM generate_series(-20, 2000) i))');

-- LIMIT and EXISTS stop at the first row, however many pages match
SELECT pages_read('SELECT id FROM many WHERE half = 1 LIMIT 1') <= 10;
SELECT pages_read('SELECT id FROM many WHERE code = 1 LIMIT 1') <= 10;
SELECT pages_read('SELECT 1 WHERE EXISTS (SELECT FROM many WHERE half = 1)') <= 10;
-- and the planner knows
EXPLAIN (COSTS OFF) SELECT id FROM many WHERE half = 1 AND id = 2999 LIMIT 1;
SELECT id FROM many WHERE half = 1 LIMIT 3;

-- Rescans: in the middle of a scan, with other keys, and with a NULL
SELECT * FROM by_index('SELECT k, m.id FROM (VALUES (1), (0), (NULL), (2), (1)) v (k), LATERAL (
	SELECT id FROM many WHERE half = v.k LIMIT 100) m');
SELECT * FROM by_index('SELECT k, m.id FROM generate_series(-5, 3010, 7) k JOIN many m ON m.id = k');
SELECT * FROM by_index('SELECT k FROM generate_series(-5, 3010, 7) k WHERE NOT EXISTS (SELECT FROM many m WHERE m.id = k AND half = 1)');

-- Cursors
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM many WHERE half = 1;
FETCH 2 FROM c;
-- what comes after the cursor was opened, it does not see
UPDATE many SET half = 0 WHERE id IN (5, 7, 2999);
DELETE FROM many WHERE id = 9;
INSERT INTO many SELECT 5000, 1;
FETCH 4 FROM c;
MOVE 1480 IN c;
FETCH ALL FROM c;
CLOSE c;
ROLLBACK;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM many WHERE half = 1;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
COMMIT;
-- of a subtransaction that is gone
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM many WHERE id IN (1, 6000, 3000);
SAVEPOINT s;
INSERT INTO many SELECT 6000, 1;
FETCH 1 FROM c;
ROLLBACK TO s;
FETCH ALL FROM c;
COMMIT;
-- by the cursor's row
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM many WHERE half = 1 FOR UPDATE;
MOVE 100 IN c;
UPDATE many SET code = 7 WHERE CURRENT OF c;
SELECT id FROM many WHERE code = 7;
ROLLBACK;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Ranges of more than a page, and one that the table's end cuts; more than one step of the search
DROP INDEX many_i;
CREATE INDEX many_wide ON many USING bloomidx (id, half) WITH (layout = :layout, pages_per_range = 256);
SELECT * FROM by_index('SELECT * FROM many WHERE id = 2999');
SELECT * FROM by_index('SELECT * FROM many WHERE half = 1');
SELECT * FROM by_index('SELECT k, m.id FROM generate_series(1, 3000, 500) k JOIN many m ON m.id = k');

-- HOT chains with several versions of the key, which PostgreSQL 16 makes: every root once
CREATE TABLE hot (id int, k int, n int) WITH (fillfactor = 30, autovacuum_enabled = off);
INSERT INTO hot SELECT i, i, 0 FROM generate_series(1, 1000) i;
CREATE INDEX hot_k ON hot USING bloomidx (k) WITH (layout = :layout, pages_per_range = 1);
ANALYZE hot;
UPDATE hot SET n = n + 1;
UPDATE hot SET k = k + 1000 WHERE id % 3 = 0;
UPDATE hot SET k = k - 1000 WHERE id % 6 = 0;
BEGIN;
UPDATE hot SET k = k + 5000;
ROLLBACK;
UPDATE hot SET n = n + 1 WHERE id % 5 = 0;
SELECT count(*) FILTER (WHERE NOT a.equal) AS wrong, count(a.scan), sum(a."rows") FROM generate_series(1, 2000, 3) k,
	by_index('SELECT * FROM hot WHERE k = ' || k) a;
SELECT * FROM by_index('SELECT * FROM hot WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))');
VACUUM hot;
SELECT count(*) FILTER (WHERE NOT a.equal) AS wrong, count(a.scan), sum(a."rows") FROM generate_series(1, 2000, 3) k,
	by_index('SELECT * FROM hot WHERE k = ' || k) a;

-- Partial indexes: only rows that the predicate is true of, on pages that have others with the same key
CREATE TABLE part (id int, k int, grp int, n numeric) WITH (fillfactor = 50, autovacuum_enabled = off);
INSERT INTO part SELECT i, i / 10, i % 4, i / 10 FROM generate_series(1, 4000) i;
CREATE INDEX part_k ON part USING bloomidx (k) WITH (layout = :layout, pages_per_range = 1) WHERE grp < 2;
CREATE INDEX part_n ON part USING bloomidx (n) WITH (layout = :layout, pages_per_range = 1) WHERE grp = 3;
ANALYZE part;
SELECT * FROM by_index('SELECT * FROM part WHERE k = 77 AND grp < 2');
SELECT * FROM by_index('SELECT * FROM part WHERE n = 77 AND grp = 3');
EXPLAIN (COSTS OFF) SELECT * FROM part WHERE k = 77 AND grp < 2;
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
DECLARE c CURSOR FOR SELECT id, grp FROM part WHERE k = 200 AND grp < 2;
FETCH 1 FROM c;
UPDATE part SET grp = 3 WHERE k = 200;
FETCH ALL FROM c;
ROLLBACK;
UPDATE part SET grp = 3 - grp WHERE id % 3 = 0;
SELECT * FROM by_index('SELECT * FROM part WHERE k = 77 AND grp < 2');
SELECT * FROM by_index('SELECT * FROM part WHERE n = 77 AND grp = 3');
SELECT * FROM by_index('SELECT k, p.id FROM generate_series(1, 400) k JOIN part p USING (k) WHERE grp < 2');
-- without a key
SELECT * FROM by_index('SELECT id FROM part WHERE grp < 2');

-- SELECT count(*) needs no column: an index-only scan, which must not count dead rows of all-visible pages
CREATE TABLE counted (id int, k int) WITH (autovacuum_enabled = off);
INSERT INTO counted SELECT i, i FROM generate_series(1, 2000) i;
CREATE INDEX counted_k ON counted USING bloomidx (k) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX counted_part ON counted USING bloomidx (k) WITH (layout = :layout, pages_per_range = 1) WHERE k < 500;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM counted;
SELECT count(*) FROM counted;
UPDATE counted SET k = k WHERE id % 2 = 0;
DELETE FROM counted WHERE id % 10 = 1;
BEGIN;
DELETE FROM counted WHERE id % 10 = 2;
INSERT INTO counted SELECT i, i FROM generate_series(2001, 2100) i;
ROLLBACK;
SELECT count(*) FROM counted;
VACUUM counted;
SELECT count(*) FROM counted;
EXPLAIN (COSTS OFF) SELECT count(*) FROM counted WHERE k < 500;
SELECT count(*) FROM counted WHERE k < 500;
SELECT count(*) FROM (SELECT FROM counted LIMIT 7) c;
RESET enable_bitmapscan;
RESET enable_seqscan;
SELECT count(*), count(*) FILTER (WHERE k < 500) FROM counted;
-- and the planner does not like it
EXPLAIN (COSTS OFF) SELECT count(*) FROM counted;

-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA scan CASCADE;
