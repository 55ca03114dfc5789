-- The tables and indexes whose pages fuzzer.c damages, in schemas "partitioned" and "block", and the statements that read them.
-- The extension exists.  Variable "persistence" is empty or UNLOGGED.
--
-- With partitions of 128 ranges, the index of schema "partitioned" has four of them, and pages of all kinds.

SET client_min_messages = warning;

CREATE FUNCTION fuzz_insert(index regclass, at tid, source tid) RETURNS void LANGUAGE c STRICT AS 'fuzzer';
CREATE FUNCTION fuzz_vacuum(index regclass) RETURNS void LANGUAGE c STRICT AS 'fuzzer';
CREATE FUNCTION fuzz_replay(index regclass, kind text, input bytea) RETURNS text LANGUAGE c STRICT AS 'fuzzer';


-- A row on each of some pages.  The pages at the end are empty: partitions that do not exist yet.
CREATE FUNCTION make_table(layout text, persistence text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE SCHEMA %I', layout);
	PERFORM set_config('search_path', layout || ', public', false);
	EXECUTE format('CREATE %s TABLE t (id int, k int, n int, words text[], pad text)'
				   ' WITH (fillfactor = 10, autovacuum_enabled = off, vacuum_truncate = off)', persistence);
	ALTER TABLE t ALTER words SET STORAGE PLAIN, ALTER pad SET STORAGE PLAIN;
	INSERT INTO t
		SELECT i, nullif(i, i / 50 * 50), i % 7,
			   ARRAY(SELECT 'w' || (i * 31 + j * j * 17) % 5000 FROM generate_series(1, 20 + i % 10) j), repeat('x', 200)
		FROM generate_series(0, 723) i;
	DELETE FROM t WHERE id >= 424 OR id % 128 >= 24;
END $$;

SELECT make_table('partitioned', :'persistence');
VACUUM t;
CREATE INDEX t_ix ON t USING bloomidx (k, words array_elements_ops) WITH (pages_per_range = 1, false_positive_rate = 0.0001);
CREATE FUNCTION parts(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM bloomidx_segments($1)';

SELECT make_table('block', :'persistence');
VACUUM t;
CREATE INDEX t_ix ON t USING bloomidx (k, words array_elements_ops)
	WITH (layout = block, pages_per_range = 1, false_positive_rate = 0.001);
CREATE FUNCTION parts(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM bloomidx_blocks($1)';

-- The statements, and by which kind of scan they find rows.  The expensive ones are executed if the input says so.
CREATE TABLE public.readers (i int GENERATED ALWAYS AS IDENTITY, scan text, expensive bool DEFAULT false, statement text);
INSERT INTO public.readers (scan, statement)
	SELECT scan, 'SELECT count(*) FROM t WHERE ' || condition
	FROM (VALUES ('bitmap'), ('index')) s (scan),
		(VALUES ('k = 5'), ('k IN (3, 4, 130, 131, 270, 385, 400, 500, -1)'), ('k IS NULL'), ('k = 260 AND n = 1'),
				('words @> ''{w172,w223}'''), ('words && ''{w17,w500,w1200}''')) c (condition);
INSERT INTO public.readers (scan, statement) VALUES
	('index', 'SELECT id FROM t WHERE k IS NOT NULL LIMIT 1'),
	('bitmap', 'EXPLAIN SELECT FROM t WHERE k = 5 AND words @> ''{w172,w223}'''),
	('', 'SELECT bloomidx_info(''t_ix'')'),
	('', 'SELECT parts(''t_ix'')'),
	('', 'SELECT bloomidx_measure(''t_ix'', 3)'),
	('', 'SELECT bloomidx_probe(''t_ix'', 5)'),
	('', 'SELECT bloomidx_check(''t_ix'', false)'),
	('', 'SELECT fuzz_insert(''t_ix'', ''(5,7)'', ''(260,1)'')'),
	('', 'SELECT fuzz_insert(''t_ix'', ''(260,7)'', ''(5,1)'')'),
	('', 'SELECT fuzz_insert(''t_ix'', ''(430,7)'', ''(133,1)'')'),
	('', 'SELECT fuzz_insert(''t_ix'', ''(600,7)'', ''(10,1)'')'),
	('', 'SELECT fuzz_insert(''t_ix'', ''(690,7)'', ''(11,1)'')');
INSERT INTO public.readers (scan, expensive, statement) VALUES
	('', true, 'SELECT bloomidx_check(''t_ix'')'),
	('', true, 'SELECT bloomidx_summarize(''t_ix'')'),
	('', true, 'SELECT fuzz_vacuum(''t_ix'')'),
	('bitmap', true, 'SELECT count(*) FROM t WHERE k IN (3, 4, 130, 131, 270, 385, 400, 500, -1)');
