-- What bench/build measures and prints, beside timing.sql and measure.sql; needs the variable "repeat".

CREATE TABLE build (ord int GENERATED ALWAYS AS IDENTITY, name text, workers int, definition text);
INSERT INTO build (name, workers, definition)
	SELECT v.name, workers, definition
	FROM (VALUES
		(1, 'bloomidx', 'bloomidx', 0),
		(2, 'bloomidx, 2 participants', 'bloomidx', 1),
		(3, 'BRIN bloom, tuned', 'BRIN bloom, tuned', 0),
		(4, 'btree', 'btree', 0)) v (place, name, peer, workers)
	JOIN peer ON scene = 'id' AND peer.name = v.peer ORDER BY place;
CREATE TABLE result (ord int, turn int, seconds float8, bytes bigint);

CREATE PROCEDURE measure(wanted int) LANGUAGE plpgsql AS $$
DECLARE
	b build;
	seconds float8;
BEGIN
	SELECT * INTO STRICT b FROM build WHERE ord = wanted;
	PERFORM set_config('max_parallel_maintenance_workers', b.workers::text, false);
	CALL timed_build('item_index', 'item', b.definition, seconds);
	INSERT INTO result VALUES (b.ord, this_turn(), seconds, pg_relation_size('item_index'));
	DROP INDEX item_index;
END $$;

SELECT turns(array_agg(format('CALL measure(%s)', ord) ORDER BY ord), 0, :repeat) FROM build \gexec

SELECT name, seconds, bytes / 1048576.0, seconds / first_value(seconds) OVER (ORDER BY ord)
	FROM (SELECT ord, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds, max(bytes) AS bytes
		FROM result WHERE turn > 0 GROUP BY ord) median
	JOIN build USING (ord) ORDER BY ord;
