-- Test vectors: the hashes and keys of fixed values of every type.  A key that changes loses rows of indexes on disk; see
-- src/README, "Test vectors".  The bits of keys in filters are in test/unit/vectors.txt; here, the slices of an index with
-- one row must have the bits of the row's keys, and no other bits, whether CREATE INDEX or INSERT has set them.
\set ECHO none
\set test vectors
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle

CREATE FUNCTION hex(bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT lpad(to_hex($1), 16, '0')$$;

-- Integers of 64 bits without sign, as numeric, and back.
CREATE FUNCTION to_unsigned(bigint) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
	SELECT mod($1 + 18446744073709551616, 18446744073709551616)
$$;
CREATE FUNCTION to_signed(numeric) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT (mod(mod($1, 18446744073709551616) + 9223372036854775808, 18446744073709551616) - 9223372036854775808)::bigint
$$;

-- The key of a value of a column, which has a hash; and the key that states something about a column.
CREATE FUNCTION key_of(hash bigint, attnum int = 1) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT bloomidx_hash(hash, attnum * 256 + 1)
$$;
CREATE FUNCTION statement(kind text, attnum int = 1) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT bloomidx_hash(0::bigint, attnum * 256 + 1 + array_position('{"null",not null,null element,empty}', kind))
$$;

-- The hash of a key on level 1, as bx_filter_level_hash() computes it.
CREATE FUNCTION level_hash(key bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	key := to_signed(to_unsigned(key) + 11400714819323198485);
	FOR i IN 1..2 LOOP
		key := key # ((key >> 32) & 4294967295);
		key := to_signed(to_unsigned(key) * 15485907386658061715);
	END LOOP;
	RETURN key # ((key >> 32) & 4294967295);
END $$;

-- The first n numbers, of 32 bits, of the sequence that gives the positions of a key's bits.
CREATE FUNCTION walk(hash bigint, n int) RETURNS SETOF bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	x bigint := (hash >> 32) & 4294967295;
BEGIN
	FOR i IN 1..n LOOP
		RETURN NEXT x;
		x := mod(x::numeric * 2654435769, 4294967296);
	END LOOP;
END $$;

-- A page of an index as it is on disk.  The caller has made a checkpoint.
CREATE FUNCTION page_of(index regclass, block bigint) RETURNS bytea LANGUAGE sql AS $$
	SELECT pg_read_binary_file(pg_relation_filepath(index), block * current_setting('block_size')::int,
							   current_setting('block_size')::int)
$$;

-- The rows, numbered through all slices of the only segment, that have a bit of the first range; NULL if others have bits.
CREATE FUNCTION stored_rows(index regclass) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	nrows int := current_setting('block_size')::int / 16 - 4;
	segment record;
	page bytea;
	result int[] := '{}';
BEGIN
	SELECT * INTO STRICT segment FROM bloomidx_segments(index);
	FOR number IN 0..segment.index_pages - 1 LOOP
		page := page_of(index, segment.index_block + number);
		FOR at IN 0..nrows * 16 - 1 LOOP
			CONTINUE WHEN get_byte(page, 32 + at) = 0;
			IF at % 16 <> 0 OR get_byte(page, 32 + at) <> 1 THEN
				RETURN NULL;
			END IF;
			result := result || (number * nrows + at / 16)::int;
		END LOOP;
	END LOOP;
	RETURN result;
END $$;

-- The rows that keys must have.
CREATE FUNCTION rows_of(index regclass, keys bigint[]) RETURNS int[] LANGUAGE sql AS $$
	SELECT array_agg(DISTINCT slice * nrows + ((x * nrows) >> 32)::int ORDER BY slice * nrows + ((x * nrows) >> 32)::int)
	FROM bloomidx_segments(index), (SELECT current_setting('block_size')::int / 16 - 4) r (nrows), unnest($2) key,
		level_hash(key) h, LATERAL (SELECT (((h & 4294967295) * index_pages) >> 32)::int) s (slice), walk(h, probes) x
$$;

-- Layout "block", on a little-endian processor: the filter of the first range, and whether it has exactly the bits of
-- these keys, which are at the positions that filter/packed.h describes.
CREATE FUNCTION packed_filter(index regclass) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
	page bytea := page_of(index, (SELECT index_block FROM bloomidx_blocks(index)));
	opaque int := current_setting('block_size')::int - 32;
	nranges int := get_byte(page, opaque + 12) + get_byte(page, opaque + 13) * 256;
	offsets int := opaque - 2 * (nranges + 1);
BEGIN
	RETURN substr(page, 33, get_byte(page, offsets + 2) + get_byte(page, offsets + 3) * 256);
END $$;
CREATE FUNCTION packed_has_exactly(index regclass, VARIADIC keys bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	filter bytea := packed_filter(index);
	size int := length(filter);
	is_small bool := size < 64;
	nlines int := (size - 5) / 64;
	nprobes int := get_byte(filter, CASE WHEN is_small THEN size - 1 ELSE size - 3 END);
	nbits int := CASE WHEN is_small THEN (size - 1) * 8 ELSE nlines * 512 END;
BEGIN
	RETURN ARRAY(SELECT n FROM generate_series(0, nbits - 1) n WHERE get_bit(filter, n) = 1 ORDER BY n) =
		ARRAY(SELECT DISTINCT CASE WHEN is_small THEN (x * nbits) >> 32
							  ELSE (((key & 4294967295) * nlines) >> 32) * 512 + (x >> 23) END::int AS n
			  FROM unnest(keys) key, walk(key, nprobes) x ORDER BY n);
END $$;

-- Tables with one row, one filled before and one after the creation of its index: NAME and NAME_later.
CREATE FUNCTION make_tables(name text, expression text, columns text, options text = '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I AS SELECT %s', name, expression);
	EXECUTE format('CREATE TABLE %I AS SELECT %s WITH NO DATA', name || '_later', expression);
	EXECUTE format('CREATE INDEX %I ON %I USING bloomidx (%s) WITH (layout = partitioned, pages_per_range = 1 %s)',
				   name || '_i', name, columns, options);
	EXECUTE format('CREATE INDEX %I ON %I USING bloomidx (%s) WITH (layout = partitioned, pages_per_range = 1 %s)',
				   name || '_later_i', name || '_later', columns, options);
	EXECUTE format('INSERT INTO %I SELECT %s', name || '_later', expression);
END $$;

-- Whether the indexes of these tables have exactly the bits of these keys.
CREATE FUNCTION has_exactly(name text, VARIADIC keys bigint[]) RETURNS bool LANGUAGE sql AS $$
	SELECT bool_and(coalesce(stored_rows(index) = rows_of(index, keys), false))
	FROM (VALUES ((name || '_i')::regclass), ((name || '_later_i')::regclass)) i (index)
$$;

-- Plain classes.
CREATE TABLE plain (number serial, value text);
CREATE FUNCTION make_plain() RETURNS void LANGUAGE sql AS $$
	SELECT make_tables('plain' || number, value || ' AS v', 'v') FROM plain WHERE to_regclass('plain' || number) IS NULL
	ORDER BY number
$$;
CREATE FUNCTION hash_of(number int, value text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	function regproc;
	result bigint;
BEGIN
	SELECT amproc INTO STRICT function
	FROM pg_index, pg_opclass c, pg_amproc
	WHERE indexrelid = ('plain' || number || '_i')::regclass AND c.oid = indclass[0] AND amprocfamily = opcfamily AND
		amproclefttype = opcintype AND amprocnum = 1;
	EXECUTE format('SELECT %s(%s, 0::bigint)', function, value) INTO result;
	RETURN result;
END $$;
CREATE VIEW plain_vectors AS
SELECT number, value, hex(hash) AS hash, hex(key_of(hash)) AS key,
	has_exactly('plain' || number, key_of(hash), statement('not null')) AS stored
FROM plain, hash_of(number, value) hash ORDER BY number;

-- Extracting classes.  "hashes" are the hashes of the value's parts, an expression, and "kinds" what else there is.
CREATE TABLE extracted (number serial, class text, value text, hashes text, kinds text[] DEFAULT '{}');
CREATE FUNCTION make_extracted() RETURNS void LANGUAGE sql AS $$
	SELECT make_tables('extracted' || number, value || ' AS v', 'v ' || class) FROM extracted
	WHERE to_regclass('extracted' || number) IS NULL ORDER BY number
$$;
CREATE FUNCTION keys_of(hashes text, kinds text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	hash bigint[];
BEGIN
	EXECUTE format('SELECT ARRAY[%s]::bigint[]', hashes) INTO hash;
	RETURN ARRAY(SELECT key_of(h) FROM unnest(hash) h UNION ALL SELECT statement(k) FROM unnest(kinds) k);
END $$;
CREATE VIEW extracted_vectors AS
SELECT number, class, value, (SELECT string_agg(hex(key), ' ' ORDER BY hex(key)) FROM unnest(keys) key) AS keys,
	has_exactly('extracted' || number, VARIADIC keys || statement('not null')) AS stored
FROM extracted, keys_of(hashes, kinds) keys ORDER BY number;
\set ECHO all

-- Hashes and keys that are the same on every processor: of types that bloomidx hashes itself, which is XXH3 of their
-- bytes or of the value as an integer of 64 bits, and of integers in arrays, ranges and rows.
CREATE TYPE pair AS (a int, b int8);
CREATE DOMAIN small AS int CHECK (VALUE < 100);
INSERT INTO plain (value) VALUES
	('true'), ('false'),
	('5::int2'), ('(-32768)::int2'), ('5::int4'), ('(-5)::int4'), ('2147483647'), ('5::int8'), ('(-5)::int8'),
	('9223372036854775807::int8'), ('5::small'),
	('5::oid'), ('4294967295::oid'), ($$'x'::"char"$$), ('(-1)::"char"'),
	($$''::text$$), ($$'a'::text$$), ($$'bloomidx'::text$$), ($$'bloomidx'::varchar(20)$$), ($$'bloomidx'::name$$),
	($$'bloomidx'::char(8)$$), ($$'bloomidx'::char(20)$$), ($$U&'\00FCber \20AC'::text$$), ($$repeat('long', 100)$$),
	($$'bloomidx' COLLATE "C"$$), ($$'bloomidx' COLLATE "POSIX"$$),
	($$''::bytea$$), ($$'\x00'::bytea$$), ($$'\xdeadbeef00'::bytea$$), ($$'bloomidx'::bytea$$),
	($$'00000000-0000-0000-0000-000000000000'::uuid$$), ($$'01234567-89ab-cdef-0123-456789abcdef'::uuid$$),
	($$'2000-01-01'::date$$), ($$'1970-01-01'::date$$), ($$'infinity'::date$$),
	($$'12:34:56.789'::time$$), ($$'2024-02-29 12:34:56.789'::timestamp$$), ($$'-infinity'::timestamp$$),
	($$'2024-02-29 12:34:56.789+02'::timestamptz$$),
	($$'16/B374D848'::pg_lsn$$), ($$'4294967295'::xid$$), ($$'4294967296'::xid8$$), ($$'7'::cid$$),
	($$'{}'::int[]$$), ($$'{1,2,3}'::int[]$$), ($$'{1,NULL,3}'::int8[]$$), ($$'{{1,2},{3,4}}'::int2[]$$),
	($$'[1,10)'::int4range$$), ($$'(,10)'::int8range$$), ($$'empty'::int4range$$), ($$'[2024-01-01,)'::daterange$$),
	($$'{}'::int4multirange$$), ($$'{[1,3),[5,8)}'::int4multirange$$),
	('ROW(1, 2)::pair'), ('ROW(1, NULL)::pair'), ('ARRAY[ROW(1, 2)::pair]');
INSERT INTO extracted (class, value, hashes, kinds) VALUES
	('array_elements_ops', $$'{1,NULL,3}'::int[]$$, 'bloomidx_hash(1, 0), bloomidx_hash(3, 0)', '{null element}'),
	('array_elements_ops', $$'{}'::int[]$$, '', '{empty}'),
	('array_elements_ops', $$'{a,bc}'::text[]$$, $$bloomidx_hash('a'::text, 0), bloomidx_hash('bc'::text, 0)$$, '{}'),
	('jsonb_contains_ops', $$'{"a": [1.50, "x", null, true]}'::jsonb$$,
	 $$bloomidx_hash_key(E'\x01a', 0), bloomidx_hash_key(E'\x041.5', 0), bloomidx_hash_key(E'\x01x', 0),
	 bloomidx_hash_key(E'\x02', 0), bloomidx_hash_key(E'\x03t', 0)$$, '{}'),
	('jsonb_contains_ops', $$'{}'::jsonb$$, '', '{empty}'),
	('tsvector_ops', $$'bloom:1 filter:2A'::tsvector$$,
	 $$bloomidx_hash_key('bloom', 0), bloomidx_hash_key('filter', 0)$$, '{}'),
	('text_ngram_ops', $$'Bloom'::text$$,
	 $$bloomidx_hash(bloomidx_hash_key('bloo', 0), 0), bloomidx_hash(bloomidx_hash_key('loom', 0), 0)$$, '{}'),
	('text_ngram_ops (n = 2)', $$'Blo'::text$$,
	 $$bloomidx_hash(bloomidx_hash_key('bl', 0), 0), bloomidx_hash(bloomidx_hash_key('lo', 0), 0)$$, '{}'),
	('text_ngram_ops', $$'Blo'::text$$, '', '{empty}'),
	('text_prefix_ops', $$'Bloom filters'::text$$,
	 $$bloomidx_hash(bloomidx_hash_key('Bloom filters', 1), 0), bloomidx_hash(bloomidx_hash_key('Bloom fi', 2), 0)$$, '{}'),
	('text_prefix_ops', $$'Bloom'::text$$, $$bloomidx_hash(bloomidx_hash_key('Bloom', 1), 0)$$, '{}');
SELECT make_plain(), make_extracted();
SELECT make_tables('missing', 'NULL::int AS v', 'v');
SELECT make_tables('each', $$5 AS a, 'bloomidx'::text AS b$$, 'a, b', ', keys = each');
SELECT make_tables('one', $$5 AS a, 'bloomidx'::text AS b$$, 'a, b', ', keys = all');
SELECT make_tables('both', $$5 AS a, 'bloomidx'::text AS b$$, 'a, b', ', keys = both');
SELECT make_tables('partly', $$5 AS a, NULL::text AS b$$, 'a, b', ', keys = both');
CHECKPOINT;
SELECT * FROM plain_vectors;
SELECT * FROM extracted_vectors;

-- What a key states about a column.
SELECT kind, attnum, hex(statement(kind, attnum))
FROM unnest('{"null",not null,null element,empty}'::text[]) WITH ORDINALITY k (kind, number), unnest('{1,2,32}'::int[]) attnum
ORDER BY number, attnum;
SELECT has_exactly('missing', statement('null'));

-- Several columns, with a key for each, a combined key, or both.
SELECT hex(a), hex(b), hex(combined), has_exactly('each', a, b, statement('not null', 1), statement('not null', 2)) AS each,
	has_exactly('one', combined, statement('not null', 1), statement('not null', 2)) AS one,
	has_exactly('both', a, b, combined, statement('not null', 1), statement('not null', 2)) AS both,
	has_exactly('partly', a, statement('not null', 1), statement('null', 2)) AS partly
FROM key_of(bloomidx_hash(5, 0), 1) a, key_of(bloomidx_hash('bloomidx'::text, 0), 2) b,
	bloomidx_hash(b, bloomidx_hash(a, 6)) combined;

-- Every deterministic collation gives the same hashes.  Those of a nondeterministic one depend on the version of ICU.
DO $$
DECLARE
	collation_name text;
	hash bigint;
BEGIN
	FOR collation_name IN SELECT collname FROM pg_collation WHERE collname IN ('en_US', 'en-x-icu', 'und-x-icu') AND
		collencoding IN (-1, pg_char_to_encoding(getdatabaseencoding())) LOOP
		EXECUTE format('SELECT bloomidx_hash(''bloomidx'' COLLATE %I, 0)', collation_name) INTO hash;
		IF hash <> bloomidx_hash('bloomidx' COLLATE "C", 0) THEN
			RAISE EXCEPTION 'another hash under collation %', collation_name;
		END IF;
	END LOOP;
END $$;

-- Hashes of PostgreSQL's own functions, which differ between little-endian and big-endian processors.  These are those of
-- little-endian ones; the first byte of the version in pg_control tells.
SELECT get_byte(pg_read_binary_file('global/pg_control', 8, 1), 0) = 0 AS big_endian \gset
\if :big_endian
\quit
\endif
CREATE TYPE labelled AS (id int, label text);
INSERT INTO plain (value) VALUES
	('0::float4'), ('1.5::float4'), ('1.5::float8'), ($$'-0'::float8$$), ($$'NaN'::float8$$),
	('0::numeric'), ('1.5::numeric'), ('1.500::numeric'), ('(-12345678901234567890.123)::numeric'), ($$'NaN'::numeric$$),
	($$'12:34:56.789+02'::timetz$$), ($$'1 month 2 days 03:04:05'::interval$$), ($$'32 days 03:04:05'::interval$$),
	($$'192.0.2.1'::inet$$), ($$'192.0.2.0/24'::cidr$$), ($$'2001:db8::1/64'::inet$$),
	($$'08:00:2b:01:02:03'::macaddr$$), ($$'08:00:2b:01:02:03:04:05'::macaddr8$$),
	($$'(42,7)'::tid$$), ($$'1 2 3'::oidvector$$), ($$makeaclitem(10, 11, 'SELECT', false)$$),
	($$'{}'::jsonb$$), ($$'{"a": [1.50, "x", null, true]}'::jsonb$$),
	($$'{a,NULL,bloomidx}'::text[]$$), ($$'{bloomidx}'::name[]$$), ($$'{bloomidx}'::char(20)[]$$), ($$'{1.5,2}'::numeric[]$$),
	($$'[1.5,2)'::numrange$$), ($$'{[1.5,2)}'::nummultirange$$), ($$ROW(1, 'bloomidx')::labelled$$);
INSERT INTO extracted (class, value, hashes, kinds) VALUES
	('array_elements_ops', $$'{1.5,2}'::numeric[]$$, 'hash_numeric_extended(1.5, 0), hash_numeric_extended(2, 0)', '{}'),
	('array_elements_ops', $$'{bloomidx}'::char(20)[]$$, $$bloomidx_hash('bloomidx'::bpchar, 0)$$, '{}');
SELECT make_plain(), make_extracted();
-- the keys of this class are hashes that no function of SQL returns, so here are the rows that it sets
SELECT make_tables('paths', $$'{"a": [1.50, "x", null, true]}'::jsonb AS v$$, 'v jsonb_path_ops');
CHECKPOINT;
SELECT * FROM plain_vectors WHERE number > 56;
SELECT * FROM extracted_vectors WHERE number > 11;
SELECT stored_rows('paths_i');

-- Layout "block": a small filter and a large one.
CREATE TABLE packed AS SELECT 5 AS v;
CREATE TABLE packed_large AS SELECT generate_series(1, 200) AS v;
CREATE INDEX packed_i ON packed USING bloomidx (v) WITH (layout = block, pages_per_range = 1);
CREATE INDEX packed_large_i ON packed_large USING bloomidx (v) WITH (layout = block, pages_per_range = 1);
CHECKPOINT;
SELECT index, length(packed_filter(index)) < 64 AS is_small, packed_has_exactly(index, VARIADIC keys || statement('not null'))
FROM (SELECT regclass 'packed_i', array_agg(key_of(bloomidx_hash(v, 0))) FROM packed UNION ALL
	  SELECT 'packed_large_i', array_agg(key_of(bloomidx_hash(v, 0))) FROM packed_large) i (index, keys);

-- Classes without a vector: the hash of an enum is that of an OID, which differs between databases.
SELECT opcname FROM pg_opclass o, pg_depend d, pg_extension e
WHERE d.classid = 'pg_opclass'::regclass AND d.objid = o.oid AND d.deptype = 'e' AND d.refobjid = e.oid AND
	extname = 'bloomidx' AND opcname <> 'oid8_ops' AND o.oid NOT IN (
		SELECT unnest(indclass) FROM pg_index, pg_class c
		WHERE c.oid = indexrelid AND relnamespace = current_schema()::regnamespace)
ORDER BY opcname;
SELECT indexes_are_good();
