-- Log lines, events with attributes, and photos with tags for bench/text, which are the same in every run.

SELECT setseed(0.18);

-- A word of a vocabulary of 4096, of which the first are frequent.
CREATE FUNCTION word(n int) RETURNS text LANGUAGE sql IMMUTABLE
RETURN (ARRAY['con', 're', 'dis', 'pro', 'in', 'ex', 'sub', 'per', 'de', 'trans', 'un', 'over', 'com', 'ad', 'ob', 'inter'])
		[1 + n % 16] ||
	(ARRAY['nec', 'port', 'ject', 'mit', 'tain', 'ceed', 'form', 'duc', 'scrib', 'vert', 'plic', 'tract', 'sist', 'pel', 'claim', 'gress'])
		[1 + n / 16 % 16] ||
	(ARRAY['ed', 'ing', 'ion', 'or', 's', 'able', 'ment', 'ive', 'al', 'er', 'ance', 'ful', 'ity', 'less', 'ory', 'ure'])
		[1 + n / 256 % 16];

CREATE FUNCTION frequent_word() RETURNS text LANGUAGE sql VOLATILE
RETURN word((4095 * random() ^ 3)::int);

CREATE FUNCTION number_below(n int) RETURNS int LANGUAGE sql VOLATILE
RETURN (random() * n)::int;

CREATE FUNCTION random_hex(digits int) RETURNS text LANGUAGE sql VOLATILE
RETURN left(md5(random()::text), digits);

CREATE FUNCTION random_address() RETURNS text LANGUAGE sql VOLATILE
RETURN concat_ws('.', 10 + number_below(6), number_below(255), number_below(255), number_below(255));

CREATE FUNCTION random_path() RETURNS text LANGUAGE sql VOLATILE
RETURN '/' || concat_ws('/', frequent_word(), frequent_word(), number_below(100000) || '.' ||
	(ARRAY['log', 'dat', 'json', 'tmp'])[1 + number_below(3)]);

CREATE FUNCTION log_message() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	RETURN CASE number_below(11)
		WHEN 0 THEN format('request %s from %s:%s finished in %s ms, status %s', md5(random()::text)::uuid, random_address(),
			1024 + number_below(60000), number_below(5000), (ARRAY[200, 200, 201, 304, 404, 500])[1 + number_below(5)])
		WHEN 1 THEN format('received block blk_%s of size %s from /%s', (random() * 1e18)::bigint, number_below(67108864),
			random_address())
		WHEN 2 THEN format('authentication failure; user=%s rhost=%s port=%s', frequent_word(), random_address(),
			1024 + number_below(60000))
		WHEN 3 THEN format('cannot open file %s: %s', random_path(),
			(ARRAY['no such file or directory', 'permission denied', 'too many open files'])[1 + number_below(2)])
		WHEN 4 THEN format('session 0x%s established with %s, timeout %s', random_hex(16), random_address(),
			number_below(60) * 1000)
		WHEN 5 THEN format('task %s.%s in stage %s.0 (TID %s) finished on host-%s in %s ms', number_below(2000),
			number_below(4), number_below(300), number_below(1000000), number_below(400), number_below(20000))
		WHEN 6 THEN format('%s %s of %s %s', frequent_word(), frequent_word(), frequent_word(), frequent_word())
		WHEN 7 THEN format('trace=%s span=%s %s completed', random_hex(32), random_hex(16), frequent_word())
		WHEN 8 THEN format('GET %s HTTP/1.1 %s %s', random_path(), 200 + number_below(3) * 100, number_below(200000))
		WHEN 9 THEN format('memory at 0x%s: %s kB used, %s kB free', random_hex(12), number_below(9999999),
			number_below(9999999))
		WHEN 10 THEN format('retry %s for %s@%s.example after %s s', number_below(5), frequent_word(), frequent_word(),
			number_below(600))
		ELSE format('heartbeat of node-%s, sequence %s, lag %s us', number_below(999), number_below(100000000),
			number_below(90000))
	END;
END $$;

CREATE FUNCTION log_line(n bigint) RETURNS text LANGUAGE sql VOLATILE
RETURN concat_ws(' ', to_char(timestamp '2026-01-01' + n * interval '37 ms', 'YYYY-MM-DD HH24:MI:SS.MS'),
	(ARRAY['INFO', 'INFO', 'INFO', 'DEBUG', 'WARN', 'ERROR'])[1 + number_below(5)],
	format('[%s.%s#%s]', word(n::int % 7 * 31), initcap(word(n::int % 23 * 57)), number_below(63)), log_message());

-- Three of the twenty attributes have many values.
CREATE FUNCTION event_attributes(n bigint) RETURNS jsonb LANGUAGE sql VOLATILE
RETURN jsonb_build_object('trace_id', random_hex(32), 'span_id', random_hex(16), 'user_id', number_below(1000000),
	'service', word(number_below(40)), 'host', 'host-' || number_below(200), 'region', 'region-' || number_below(8),
	'status', 200 + number_below(5), 'method', (ARRAY['GET', 'PUT', 'POST'])[1 + number_below(2)], 'path', '/' || frequent_word(),
	'version', '1.' || number_below(20), 'duration', number_below(300), 'retries', number_below(3), 'cached', random() < 0.5,
	'agent', word(number_below(60)), 'zone', chr(97 + number_below(5)), 'tenant', number_below(500),
	'bytes', number_below(400) * 512, 'level', number_below(4), 'protocol', 'HTTP/' || 1 + number_below(1),
	'queue', word(number_below(100)));

-- Up to eight tags, of which the last but one, if it exists, is one of many, and rare.
CREATE FUNCTION photo_tags(n bigint) RETURNS text[] LANGUAGE sql VOLATILE
RETURN ARRAY[frequent_word(), frequent_word(), frequent_word(), frequent_word(), frequent_word(),
	'place-' || (20000 * random() ^ 2)::int, 'album-' || (n / 20 + number_below(200)), 'camera-' || number_below(300)];

CREATE TABLE scene_of_text (
	ord int,
	name text PRIMARY KEY,
	tab text,
	expression text,						-- that makes the value of row n
	bloomidx text,							-- definitions of the two indexes, what follows USING
	gin text,
	key_type text,
	condition text,							-- with $1 for what is sought
	needle text								-- what finds the row with this value, and few others
);

INSERT INTO scene_of_text VALUES
	(1, 'log lines, LIKE', 'log', 'log_line(n)', 'bloomidx (value text_ngram_ops)', 'gin (value gin_trgm_ops)',
		'text', 'value LIKE $1', $$'%' || substring(value FROM '[0-9a-f]{10,12}|port=[0-9]{5}|[0-9.]{10,}:[0-9]+') || '%'$$),
	(2, 'log lines, words', 'log', 'log_line(n)', $$bloomidx (to_tsvector('simple', value))$$,
		$$gin (to_tsvector('simple', value))$$, 'tsquery', $$to_tsvector('simple', value) @@ $1$$,
		$$substring(value FROM 'trace=([a-f][0-9a-f]{31})')$$),
	(3, 'jsonb, one attribute', 'event', 'event_attributes(n)', 'bloomidx (value jsonb_path_ops)',
		'gin (value jsonb_path_ops)', 'jsonb', 'value @> $1', $$jsonb_build_object('trace_id', value -> 'trace_id')::text$$),
	(4, 'tags', 'photo', 'photo_tags(n)', 'bloomidx (value array_elements_ops)', 'gin (value)',
		'text', 'value @> ARRAY[$1]', 'value[7]');

-- Rows of later transactions belong to batches.
CREATE TABLE loaded_text (tab text, xid xid);

-- Of "bloomidx", "gin", "scan" (sequential), and "none" (no index); each value once or several times.
CREATE TABLE measured_text (scene text, what text, of text, value numeric);

-- The goals: bloomidx divided by GIN; a search that takes no more than or_ms milliseconds reaches its goal, too; and the
-- sequential scan divided by bloomidx.
CREATE TABLE goal_of_text (scene text, what text, goal numeric, or_ms numeric);

INSERT INTO goal_of_text VALUES
	('log lines, LIKE', 'size, MB', 0.4, NULL), ('log lines, LIKE', 'build, s', 0.25, NULL),
	('log lines, LIKE', 'COPY adds, s', 0.3, NULL), ('log lines, LIKE', 'COPY adds WAL, MB', 0.5, NULL),
	('log lines, LIKE', 'search, ms', 2, NULL), ('log lines, LIKE', 'sequential scan, ms', 50, NULL),
	('log lines, words', 'size, MB', 0.2, NULL), ('log lines, words', 'search, ms', 2, 3),
	('jsonb, one attribute', 'size, MB', 0.35, NULL), ('jsonb, one attribute', 'COPY adds, s', 0.4, NULL),
	('jsonb, one attribute', 'search, ms', 2, 2);

-- The least that was measured; for COPY, minus that without an index.
CREATE VIEW least_of_text AS
	SELECT scene, what, of, min(value) AS value FROM measured_text GROUP BY scene, what, of;

CREATE VIEW compared_text AS
	SELECT b.scene, w.ord, w.title AS what, b.value - coalesce(n.value, 0) AS bloomidx, g.value - coalesce(n.value, 0) AS gin,
		s.value AS scan
	FROM (VALUES (1, 'size', 'size, MB'), (2, 'build', 'build, s'), (3, 'COPY', 'COPY adds, s'),
			(4, 'COPY WAL', 'COPY adds WAL, MB'), (5, 'search', 'search, ms')) w (ord, what, title)
	JOIN least_of_text b ON b.what = w.what AND b.of = 'bloomidx'
	JOIN least_of_text g ON g.what = w.what AND g.of = 'gin' AND g.scene = b.scene
	LEFT JOIN least_of_text n ON n.what = w.what AND n.of = 'none' AND n.scene = b.scene
	LEFT JOIN least_of_text s ON s.what = w.what AND s.of = 'scan' AND s.scene = b.scene;

CREATE VIEW text_report AS
	SELECT scene, what, round(c.bloomidx, 3) AS bloomidx, round(other, 3) AS "GIN, scan", round(ratio, 2) AS ratio,
		CASE WHEN c.ord < 6 THEN 'at most ' || goal || coalesce(', or ' || or_ms || ' ms', '') ELSE 'at least ' || goal END AS goal,
		CASE WHEN goal IS NULL THEN NULL
			WHEN CASE WHEN c.ord < 6 THEN ratio <= goal OR c.bloomidx <= or_ms ELSE ratio >= goal END THEN 'reached'
			ELSE 'missed' END AS "reached?"
	FROM (SELECT scene, ord, what, bloomidx, gin AS other, bloomidx / gin AS ratio FROM compared_text
			UNION ALL
			SELECT scene, 6, 'sequential scan, ms', bloomidx, scan, scan / bloomidx FROM compared_text WHERE scan IS NOT NULL) c
		JOIN scene_of_text s ON s.name = scene LEFT JOIN goal_of_text USING (scene, what)
	ORDER BY s.ord, c.ord;

-- Milliseconds per search, for needles as a sequential scan finds them, too.
CREATE FUNCTION timed_searches(s scene_of_text, needles int) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	keys text[] := ARRAY(SELECT key FROM sought WHERE scene = s.name ORDER BY key LIMIT needles);
BEGIN
	PERFORM create_timed_loop(s.key_type, format('SELECT count(*) INTO counted FROM %I WHERE %s', s.tab,
		replace(s.condition, '$1', 'argument')));
	RETURN timed_loop(keys, 1, 1000) / 1000;
END $$;

-- How many rows these needles find.
CREATE FUNCTION count_found(s scene_of_text, needles int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	found bigint := 0;
	key text;
	n bigint;
BEGIN
	FOR key IN SELECT sought.key FROM sought WHERE scene = s.name ORDER BY key LIMIT needles LOOP
		EXECUTE format('SELECT count(*) FROM %I WHERE %s', s.tab, replace(s.condition, '$1', format('%L', key))) INTO n;
		found := found + n;
	END LOOP;
	RETURN found;
END $$;
