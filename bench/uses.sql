-- What bench/compare and bench/demo have in common where they search text, jsonb and arrays, beside timing.sql.

CREATE EXTENSION pg_trgm;

-- What is sought in text, jsonb and arrays: lines of a log, and attributes, tags and paths of objects.  The lines are of six
-- kinds, with numbers in no order; there are 3 tags of n / 25 to an object.
CREATE TABLE log (at timestamptz NOT NULL, payload text NOT NULL, line text NOT NULL);
CREATE TABLE object (attributes jsonb NOT NULL, tags text[] NOT NULL, path text NOT NULL, payload text NOT NULL);

CREATE FUNCTION log_lines(first bigint, last bigint) RETURNS SETOF log LANGUAGE sql
BEGIN ATOMIC
	SELECT at, format('web%s', i % 20), to_char(at, 'Mon DD HH24:MI:SS ') || format((ARRAY[
			'sshd[%1$s]: Failed password for invalid user %4$s from %2$s port %1$s ssh2',
			'dfs.DataNode: Receiving block blk_%3$s src: /%2$s:%1$s dest: /%2$s:50010',
			'nginx: %2$s "GET /api/v1/orders HTTP/1.1" 200 %1$s "-" "Mozilla/5.0 (X11; Linux x86_64)" request %3$s',
			'kernel: TCP: request_sock_TCP: possible SYN flooding on port %1$s from %2$s, cookie %3$s',
			'app.PaymentService - authorised payment %3$s of customer %4$s from %2$s in %1$s ms',
			'postgres[%1$s]: connection authorized: user=%4$s host=%2$s application=%3$s'])[1 + (i % 6)::int],
			seed % 65536, format('10.%s.%s.%s', seed % 256, seed / 256 % 256, seed / 65536 % 256),
			left(md5(i::text), 12), 'user' || seed % 10007)
		FROM generate_series(first, last) i,
			LATERAL (SELECT hashint8(i)::bigint & 2147483647 AS seed, timestamptz '2026-01-01' + i * interval '50 ms' AS at) s;
END;

CREATE FUNCTION objects(first bigint, last bigint, ntags bigint) RETURNS SETOF object LANGUAGE sql
BEGIN ATOMIC
	SELECT jsonb_build_object('trace_id', md5(i::text), 'status', 200 + i % 5, 'host', 'web' || i % 20, 'user',
				jsonb_build_object('id', hashint8(i) & 65535)),
			ARRAY(SELECT 'tag' || (hashint8(i * 3 + t)::bigint & 2147483647) % ntags FROM generate_series(1, 3) t),
			left(md5(i::text), 8) || '/photos/' || i || '.jpg', 'object ' || i
		FROM generate_series(first, last) i;
END;

INSERT INTO scene VALUES ('like', 'log', 'text', true), ('words', 'log', 'tsquery', true), ('jsonb', 'object', 'jsonb', true),
	('tags', 'object', 'text[]', true), ('prefix', 'object', 'text', true);
INSERT INTO peer (scene, name, definition, condition) VALUES
	('like', 'bloomidx', 'bloomidx (line text_ngram_ops)', 'line LIKE $1'),
	('like', 'GIN', 'gin (line gin_trgm_ops)', 'line LIKE $1'),
	('like', 'no index', NULL, 'line LIKE $1'),
	('words', 'bloomidx', 'bloomidx (to_tsvector(''simple'', line))', 'to_tsvector(''simple'', line) @@ $1'),
	('words', 'GIN', 'gin (to_tsvector(''simple'', line))', 'to_tsvector(''simple'', line) @@ $1'),
	('words', 'no index', NULL, 'to_tsvector(''simple'', line) @@ $1'),
	('jsonb', 'bloomidx', 'bloomidx (attributes jsonb_path_ops)', 'attributes @> $1'),
	('jsonb', 'GIN', 'gin (attributes jsonb_path_ops)', 'attributes @> $1'),
	('jsonb', 'no index', NULL, 'attributes @> $1'),
	('tags', 'bloomidx', 'bloomidx (tags array_elements_ops)', 'tags @> $1'),
	('tags', 'GIN', 'gin (tags)', 'tags @> $1'),
	('tags', 'no index', NULL, 'tags @> $1'),
	('prefix', 'bloomidx', 'bloomidx (path text_prefix_ops)', 'path LIKE $1'),
	('prefix', 'btree', 'btree (path text_pattern_ops)', 'path LIKE $1'),
	('prefix', 'no index', NULL, 'path LIKE $1');

-- What is sought is in one line or object, or in some of 10: an identifier, two tags of one object, a prefix of 8 characters.
CREATE PROCEDURE load_text(n bigint) LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO log SELECT * FROM log_lines(1, n);
	INSERT INTO object SELECT * FROM objects(1, n, n / 25);
	INSERT INTO sought
		SELECT unnest(ARRAY['like', 'words', 'jsonb', 'prefix']),
			unnest(ARRAY['%' || left(h, 12) || '%', left(h, 12), jsonb_build_object('trace_id', h)::text, left(h, 8) || '%']), present
		FROM (SELECT md5(i::text) AS h, i > 0 AS present
			-- only some kinds of line have the identifier, and the parser of text takes one that begins with a digit for a number
			FROM generate_series(-3000, n) i WHERE (i < 0 OR (i % 6 <> 0 AND random() < 3000.0 / n)) AND md5(i::text) ~ '^[a-f]') s;
	-- of many objects, some have a prefix that was meant to be absent
	DELETE FROM sought USING object WHERE scene = 'prefix' AND NOT present AND key = left(path, 8) || '%';
	INSERT INTO sought
		SELECT 'tags', tags[1:2]::text, true FROM (SELECT tags FROM object ORDER BY random() LIMIT 1000) s;
	INSERT INTO sought
		SELECT 'tags', ARRAY[tags[1], 'tag-' || row_number() OVER ()]::text, false FROM (SELECT tags FROM object LIMIT 1000) s;
END;
