-- Every type that PostgreSQL can hash has a default operator class, and each finds what is equal.
\set ECHO none
\set test hashable
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle

-- Makes a table with a column of the type, with rows before and after the index is made, and compares the index with
-- a sequential scan: each of its values, and those of "more", some of which are equal but written otherwise.  Returns
-- the values compared, how many were there, and those for which the answers differ.
CREATE FUNCTION try_type(type text, value text, more text[] DEFAULT '{}',
						 OUT compared int, OUT hits int, OUT wrong text) LANGUAGE plpgsql AS $$
DECLARE
	key text;
	by_index int;
	by_table int;
	used bool;
BEGIN
	compared := 0;
	hits := 0;
	EXECUTE format('CREATE TABLE tried (k %s, pad text)', type);
	EXECUTE format('INSERT INTO tried SELECT (%s)::%s, repeat(''x'', 400) FROM generate_series(1, 150) i', value, type);
	EXECUTE format('INSERT INTO tried SELECT unnest(%L::text[])::%s', more, type);
	EXECUTE format('CREATE INDEX tried_k ON tried USING bloomidx (k) WITH (layout = %s, pages_per_range = 1)',
				   current_setting('test.layout'));
	EXECUTE format('INSERT INTO tried SELECT (%s)::%s, repeat(''x'', 400) FROM generate_series(101, 300) i', value, type);
	EXECUTE format('INSERT INTO tried SELECT unnest(%L::text[])::%s', more, type);
	INSERT INTO tried VALUES (NULL);
	FOR key IN SELECT DISTINCT k::text FROM tried WHERE k IS NOT NULL UNION SELECT unnest(more) LOOP
		PERFORM set_config('enable_seqscan', 'off', true);
		used := uses_index(format('SELECT FROM tried WHERE k = %L::%s', key, type), 'tried_k');
		EXECUTE format('SELECT count(*) FROM tried WHERE k = %L::%s', key, type) INTO by_index;
		PERFORM set_config('enable_seqscan', 'on', true);
		EXECUTE format('SELECT count(*) FROM (SELECT k FROM tried OFFSET 0) t WHERE k = %L::%s', key, type) INTO by_table;
		compared := compared + 1;
		hits := hits + (by_index > 0)::int;
		IF by_index <> by_table OR NOT used THEN
			wrong := concat_ws(', ', wrong, key);
		END IF;
	END LOOP;
	DROP TABLE tried;
END $$;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b numeric);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
\set ECHO all

-- none is missing
SELECT h.opcintype::regtype
FROM pg_opclass h JOIN pg_am ON pg_am.oid = h.opcmethod AND amname = 'hash'
WHERE NOT EXISTS (SELECT FROM pg_opclass b JOIN pg_am a ON a.oid = b.opcmethod AND a.amname = 'bloomidx'
				  WHERE b.opcdefault AND b.opcintype = h.opcintype);

-- and all are valid
SELECT opcname FROM pg_opclass JOIN pg_am ON pg_am.oid = opcmethod AND amname = 'bloomidx'
WHERE NOT amvalidate(pg_opclass.oid);

-- values compared, there, wrong
SELECT 'char', try_type('"char"', '(32 + i % 90)::"char"');
SELECT 'name', try_type('name', '''name '' || i', '{nobody}');
SELECT 'int2', try_type('int2', 'i - 150', '{-32768,32767}');
SELECT 'int4', try_type('int4', 'i * 6543211', '{-1}');
SELECT 'int8', try_type('int8', 'i * 98765432123456::int8', '{-1}');
SELECT 'oid', try_type('oid', '4000000000::int8 + i', '{0}');
SELECT 'float4', try_type('float4', 'i / 7.0', '{-0,0,NaN,Infinity,-Infinity,1e0,1.0}');
SELECT 'float8', try_type('float8', 'i / 7.0', '{-0,0,NaN,Infinity,-Infinity,1e0,1.0}');
SELECT 'numeric', try_type('numeric', 'i * 1.10', '{1.1,1.100,11,11.000,1.1e1,NaN,0,0.00,-0.0}');
SELECT 'text', try_type('text', '''text '' || i', '{text 1,"text 1 ",TEXT 1}');
SELECT 'varchar', try_type('varchar(20)', '''text '' || i', '{text 1,"text 1 "}');
SELECT 'bpchar', try_type('char(12)', '''char '' || i', '{char 1,"char 1   ",char 999}');
SELECT 'bytea', try_type('bytea', 'decode(md5(i::text), ''hex'')', '{"\\\\x00","\\\\x0000"}');
SELECT 'uuid', try_type('uuid', 'md5(i::text)', '{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,a0eebc999c0b4ef8bb6d6bb9bd380a11}');
SELECT 'date', try_type('date', 'date ''2000-01-01'' + i', '{infinity,2000-01-02,"January 2, 2000"}');
SELECT 'time', try_type('time', 'time ''00:00'' + i * interval ''7 s''', '{24:00,00:00:07.0}');
SELECT 'timetz', try_type('timetz', 'timetz ''00:00+00'' + i * interval ''7 s''', '{01:00:07+01,00:00:07+00}');
SELECT 'timestamp', try_type('timestamp', 'timestamp ''2000-01-01'' + i * interval ''7 s''', '{infinity,2000-01-01 00:00:07.000}');
SELECT 'timestamptz', try_type('timestamptz', 'timestamptz ''2000-01-01 00:00Z'' + i * interval ''7 s''',
	'{infinity,2000-01-01 00:00:07Z,2000-01-01 01:00:07+01}');
SELECT 'interval', try_type('interval', 'i * interval ''7 hours''', '{1 day,24 hours,1440 min,1 mon,30 days,720 hours}');
SELECT 'inet', try_type('inet', 'inet ''10.0.0.0'' + i', '{10.0.0.1,10.0.0.1/32,10.0.0.1/24,::1}');
SELECT 'cidr', try_type('cidr', 'set_masklen((inet ''10.0.0.0'' + i)::cidr, 32)', '{10/8,10.0.0.0/8}');
SELECT 'macaddr', try_type('macaddr', 'lpad(to_hex(i), 12, ''0'')', '{08:00:2b:01:02:03,0800.2b01.0203}');
SELECT 'macaddr8', try_type('macaddr8', 'lpad(to_hex(i), 16, ''0'')', '{08:00:2b:ff:fe:01:02:03,08:00:2b:01:02:03}');
SELECT 'pg_lsn', try_type('pg_lsn', '''0/'' || to_hex(i)', '{0/0A}');
SELECT 'tid', try_type('tid', 'format(''(%s,%s)'', i, i % 100)', '{"(0,1)"}');
SELECT 'xid', try_type('xid', 'i::text', '{4294967295}');
SELECT 'xid8', try_type('xid8', 'i::text', '{18446744073709551615}');
-- this one is new in 19: a row only if something is wrong
SELECT typname, tried.* FROM pg_type, try_type(typname::text, '(18446744073709551000 + i)::text', '{0}') tried
WHERE typname = 'oid8' AND (tried.wrong IS NOT NULL OR tried.hits <> 301);
SELECT 'cid', try_type('cid', 'i::text', '{0}');
SELECT 'oidvector', try_type('oidvector', 'i || '' '' || i + 1', '{"1 2","1  2"}');
SELECT 'aclitem', try_type('aclitem', 'makeaclitem(10, 10, CASE i % 4 WHEN 0 THEN ''SELECT'' WHEN 1 THEN ''INSERT'' WHEN 2 THEN ''UPDATE'' ELSE ''DELETE'' END, i % 3 = 0)');
SELECT 'jsonb', try_type('jsonb', 'jsonb_build_object(''a'', i, ''b'', i / 2.0)',
	ARRAY['{"a": 1, "b": 0.5}', '{"b": 0.50, "a": 1.0}', '1.0', '1', '1.00', '[1, 2]', '[1.0, 2]', '{}', 'null']);
SELECT 'enum', try_type('mood', '(ARRAY[''sad'', ''ok''])[1 + i % 2]', '{happy}');
SELECT 'int4[]', try_type('int4[]', 'ARRAY[i, i + 1]', ARRAY['{1,2}', '[0:1]={1,2}', '{}', '{NULL}', '{1,NULL}']);
SELECT 'numeric[]', try_type('numeric[]', 'ARRAY[i, i / 2.0]', ARRAY['{1,0.5}', '{1.0,0.500}', '{{1.0,0.5}}']);
SELECT 'text[]', try_type('text[]', 'ARRAY[i::text, NULL]', ARRAY['{1,NULL}', '{1,"NULL"}']);
SELECT 'int4range', try_type('int4range', 'int4range(i, i + 5)', ARRAY['[1,6)', '[1,5]', 'empty', '(3,3)']);
SELECT 'numrange', try_type('numrange', 'numrange(i, i + 5)', ARRAY['[1,6)', '[1.0,6.00)', '[1,6]']);
SELECT 'int4multirange', try_type('int4multirange', 'int4multirange(int4range(i, i + 5))', ARRAY['{[1,6)}', '{[1,3),[3,6)}', '{}']);
SELECT 'record', try_type('pair', 'ROW(i, i / 2.0)', ARRAY['(1,0.5)', '(1,0.50)', '(1,)', '(,)']);
SELECT 'domain', try_type('positive', 'i', '{99999}');

-- Types of other extensions need one statement.
CREATE EXTENSION citext;
CREATE OPERATOR CLASS citext_bloomidx DEFAULT FOR TYPE citext USING bloomidx AS
	OPERATOR 1 = (citext, citext),
	FUNCTION 1 citext_hash_extended(citext, bigint);
CREATE EXTENSION hstore;
CREATE OPERATOR CLASS hstore_bloomidx DEFAULT FOR TYPE hstore USING bloomidx AS
	OPERATOR 1 = (hstore, hstore),
	FUNCTION 1 hstore_hash_extended(hstore, bigint);
SELECT 'citext', try_type('citext', '''Key '' || i', '{key 1,KEY 1,key 9999}');
SELECT 'hstore', try_type('hstore', 'hstore(''a'', i::text)', ARRAY['"a"=>"1"', 'a=>1', 'b=>2,a=>1', 'a=>1, b=>2']);
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname IN ('citext_bloomidx', 'hstore_bloomidx') ORDER BY 1;

-- Between types, as far as PostgreSQL's own hash families go
CREATE TABLE crossed (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, t text COLLATE "C", n name, pad text);
INSERT INTO crossed
	SELECT i, i, i, i / 4.0, i / 4.0, 'n' || i, 'n' || i, repeat('x', 300) FROM generate_series(1, 400) i;
CREATE INDEX crossed_i ON crossed USING bloomidx (i2, i4, i8, f4, f8, t, n) WITH (layout = :layout, pages_per_range = 1);
ANALYZE crossed;
CREATE FUNCTION by_index(condition text, OUT n bigint, OUT used bool) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	used := uses_index('SELECT FROM crossed WHERE ' || condition, 'crossed_i');
	EXECUTE 'SELECT count(*) FROM crossed WHERE ' || condition INTO n;
END $$;
SELECT c, by_index(c) FROM unnest(ARRAY[
	'i2 = 7::int4', 'i2 = 7::int8', 'i4 = 7::int2', 'i4 = 7::int8', 'i8 = 7::int2', 'i8 = 7::int4', 'i8 = 7',
	'i2 = ANY (ARRAY[7, 8]::int8[])', 'i8 = ANY (ARRAY[7, 8]::int2[])', 'i4 = 70000000000', 'i2 = 70000',
	'f4 = 1.75::float8', 'f8 = 1.75::float4', 't = ''n7''::name', 'n = ''n7''::text', 'n = ''n7''']) c;
-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA hashable CASCADE;
