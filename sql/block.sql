-- Layout block: what it alone has.  That it answers as the other does is tested with the other's tests.
\set ECHO none
\set test block
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
SET enable_seqscan = off;
\set ECHO all

-- few values in each range: some pages for what takes others many
CREATE TABLE grouped (k int, pad text);
INSERT INTO grouped SELECT i / 200, repeat('x', 100) FROM generate_series(1, 200000) i;
CREATE INDEX grouped_block ON grouped USING bloomidx (k) WITH (layout = block, pages_per_range = 16);
SELECT pages('grouped_block') BETWEEN 3 AND 6 AS small;
SELECT sum(matching_pages('grouped', 'k = ' || i)) BETWEEN 100 * 3 AND 100 * 48 AS hits FROM generate_series(0, 990, 10) i;
SELECT sum(matching_pages('grouped', 'k = ' || i)) < 0.001 * 500 * pages('grouped') AS misses
FROM generate_series(5000, 5499) i;
SELECT count(*) FROM grouped WHERE k IN (1, 2, 3, 5000);
SELECT count(*) FROM grouped WHERE k = ANY (ARRAY(SELECT generate_series(-50, 50)));

-- two keys are ANDed: a range that has one of them only does not match
CREATE INDEX grouped_both ON grouped USING bloomidx (k, pad) WITH (layout = block, pages_per_range = 1);
DROP INDEX grouped_block;
SELECT matching_pages('grouped', 'k = 500 AND pad = repeat(''x'', 100)') BETWEEN 3 AND 6 AS both,
	matching_pages('grouped', 'k = 500 AND pad = ''y''') < 2 AS only_one;
SELECT bloomidx_check('grouped_both') = count(*) FROM grouped;
DROP TABLE grouped;

-- made on an empty table: the first row tells the geometry, and nothing is there before
CREATE TABLE late (k int, pad text);
CREATE INDEX late_k ON late USING bloomidx (k) WITH (layout = block);
SELECT pages('late_k');
SELECT count(*) FROM late WHERE k = 1;
INSERT INTO late VALUES (1, 'x');
SELECT pages('late_k');
SELECT count(*) FROM late WHERE k = 1;
INSERT INTO late SELECT i, repeat('x', 100) FROM generate_series(2, 50000) i;
SELECT count(*) FROM generate_series(1, 50000, 97) i WHERE (SELECT count(*) FROM late WHERE k = i) <> 1;
SELECT sum(matching_pages('late', 'k = ' || -i)) < 0.001 * 200 * pages('late') AS misses
FROM generate_series(1, 200) i;
-- automatic pages_per_range: half a thousand keys, where the other layout wants 64
CREATE INDEX late_partitioned ON late USING bloomidx (k) WITH (layout = partitioned);
REINDEX INDEX late_k;
SELECT i.layout, i.pages_per_range * 50000 / pages('late') BETWEEN least AND 2 * least
	OR i.pages_per_range = 16 AS as_wanted
FROM (VALUES ('late_k'::regclass, 512), ('late_partitioned', 64)) v (index, least), bloomidx_info(index) i ORDER BY 1;
DROP INDEX late_partitioned;
-- a partial index whose first row comes late has pages for all that lies before
CREATE INDEX late_partial ON late USING bloomidx (k) WITH (layout = block, pages_per_range = 1) WHERE k > 60000;
SELECT pages('late_partial');
CREATE INDEX CONCURRENTLY late_empty ON late USING bloomidx (k) WITH (layout = block) WHERE k > 60000;
SELECT pages('late_empty');
INSERT INTO late SELECT i, repeat('x', 100) FROM generate_series(60001, 60010) i;
SELECT pages('late_partial') > 3;
SELECT count(*) FROM late WHERE k > 60000 AND k = 60007;
SELECT bloomidx_check('late_k') = count(*), bloomidx_check('late_partial') = count(*) FILTER (WHERE k > 60000) FROM late;
DROP TABLE late;

-- pages of few ranges are planned by those before, not by what VACUUM saw of the first row
CREATE TABLE few (k int) WITH (autovacuum_enabled = off);
CREATE INDEX few_k ON few USING bloomidx (k) WITH (layout = block, pages_per_range = 2);
INSERT INTO few VALUES (0);
VACUUM few;
INSERT INTO few SELECT generate_series(1, 20000);
SELECT sum(matching_pages('few', 'k = ' || -i)) < 0.002 * 200 * pages('few') AS misses
FROM generate_series(1, 200) i;
DROP TABLE few;

-- the heap's end is sampled, too: all keys there, or all but NULLs
CREATE TABLE tail (id int, k int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO tail SELECT i, CASE WHEN i > 59000 THEN i END, repeat('x', 100) FROM generate_series(1, 60000) i;
CREATE INDEX tail_id ON tail USING bloomidx (id) WITH (layout = block, pages_per_range = 1) WHERE id > 59900;
CREATE INDEX tail_k ON tail USING bloomidx (k) WITH (layout = block, pages_per_range = 1);
SELECT sum(matching_pages('tail', 'id > 59900 AND id = ' || 70000 + i)) < 0.001 * 200 * pages('tail') AS misses,
	sum(matching_pages('tail', 'k = ' || -i)) < 0.001 * 200 * pages('tail') AS misses
FROM generate_series(1, 200) i;
-- a few rows that the sample cannot have seen: filters are made for as many as all rows would have
CREATE INDEX tail_seldom ON tail USING bloomidx (id) WITH (layout = block, pages_per_range = 1) WHERE id BETWEEN 29580 AND 29600;
SELECT pages('tail_seldom') > 10 AS careful, pages('tail_id') > 10 AS seen;
DROP TABLE tail;

-- filters that got more keys than they were made for are rebuilt, with the space shared out anew
CREATE TABLE growing (id int, k int, pad text) WITH (autovacuum_enabled = off, fillfactor = 50);
INSERT INTO growing SELECT i, i % 7, repeat('x', 100) FROM generate_series(1, 40000) i;
CREATE INDEX growing_k ON growing USING bloomidx (k) WITH (layout = block, pages_per_range = 4);
SELECT bloomidx_summarize('growing_k') AS nothing_to_do;
UPDATE growing SET k = 1000 + id WHERE id < 1000;
SELECT bloomidx_summarize('growing_k') > 0 AS rebuilt;
SELECT bloomidx_summarize('growing_k') AS nothing_to_do;
SELECT sum(matching_pages('growing', 'k = ' || -i)) < 0.001 * 200 * pages('growing') AS misses
FROM generate_series(1, 200) i;
SELECT count(*) FROM (SELECT DISTINCT k FROM growing) d
WHERE (SELECT count(*) FROM growing g WHERE g.k = d.k) = 0;
SELECT bloomidx_check('growing_k') = count(*) FROM growing;
DROP TABLE growing;

-- so is a page of many filters, of which one is full, and does not show how many keys it got
CREATE TABLE uneven (id int, k int, pad text) WITH (autovacuum_enabled = off, fillfactor = 50);
INSERT INTO uneven SELECT i, i % 7, repeat('x', 100) FROM generate_series(1, 40000) i;
CREATE INDEX uneven_k ON uneven USING bloomidx (k) WITH (layout = block, pages_per_range = 4);
UPDATE uneven SET k = 1000 + id WHERE ctid < '(4,1)';
SELECT bloomidx_summarize('uneven_k') AS rebuilt;
SELECT bloomidx_summarize('uneven_k') AS nothing_to_do;
SELECT sum(matching_pages('uneven', 'k = ' || -i)) < 0.001 * 200 * pages('uneven') AS misses
FROM generate_series(1, 200) i;
DROP TABLE uneven;

-- ranges without rows get as much space as others, from CREATE INDEX and from VACUUM
CREATE TABLE refilled (k int) WITH (autovacuum_enabled = off);
INSERT INTO refilled SELECT generate_series(1, 20000);
DELETE FROM refilled WHERE ctid >= '(4,0)' AND ctid < '(8,0)';
VACUUM refilled;
CREATE INDEX refilled_k ON refilled USING bloomidx (k) WITH (layout = block, pages_per_range = 2);
INSERT INTO refilled SELECT generate_series(30001, 30850);
SELECT max(ctid) < '(8,0)' AS refilled FROM refilled WHERE k > 30000;
SELECT bloomidx_summarize('refilled_k') AS nothing_to_do;
SELECT sum(matching_pages('refilled', 'k = ' || -i)) < 0.001 * 200 * pages('refilled') AS misses
FROM generate_series(1, 200) i;
DROP TABLE refilled;

-- an expression that fails in a rebuild leaves the old filters in use
CREATE FUNCTION picky(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('picky.fails', true) = 'yes' THEN RAISE EXCEPTION 'not now'; END IF;
	RETURN $1;
END $$;
CREATE TABLE failing (k int) WITH (autovacuum_enabled = off);
INSERT INTO failing SELECT generate_series(1, 1000);
CREATE INDEX failing_k ON failing USING bloomidx (picky(k)) WITH (layout = block, pages_per_range = 16);
DELETE FROM failing WHERE k > 500;
INSERT INTO failing SELECT generate_series(501, 20000);
SET picky.fails = 'yes';
\set SHOW_CONTEXT never
SELECT bloomidx_summarize('failing_k');
SELECT note FROM bloomidx_info('failing_k');
SET picky.fails = 'no';
SELECT count(*) FROM failing WHERE picky(k) = 700;
SELECT bloomidx_summarize('failing_k') >= 0;
SELECT count(*) FROM failing WHERE picky(k) = 700;
SELECT bloomidx_check('failing_k') = count(*) FROM failing;
DROP TABLE failing;

SET client_min_messages = error;
DROP SCHEMA block CASCADE;
