/* bloomidx--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx" to load this file. \quit

CREATE FUNCTION bloomidx_handler(internal)
RETURNS index_am_handler
AS 'MODULE_PATHNAME'
LANGUAGE C;

COMMENT ON FUNCTION bloomidx_handler(internal) IS
	'handler of access method bloomidx';

CREATE ACCESS METHOD bloomidx TYPE INDEX HANDLER bloomidx_handler;
COMMENT ON ACCESS METHOD bloomidx IS
	'Bloom filter for every range of heap pages';

-- Hash functions of types whose equality is equality of bytes.  The other
-- types use their own extended hash functions.

CREATE FUNCTION bloomidx_hash(bool, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_bool'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(int2, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int2'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(int4, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(int8, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(oid, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_oid'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(date, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(timestamp, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(timestamptz, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(uuid, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_uuid'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(bytea, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_bytea'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(text, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_text'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(bpchar, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_bpchar'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash("char", bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_char'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(name, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_name'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(time, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(pg_lsn, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(xid, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(xid8, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(cid, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_int4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(anyarray, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_array'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(anyrange, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(anymultirange, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_multirange'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_hash(record, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_record'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION bloomidx_hash(bool, bigint) IS 'hash function of bool';
COMMENT ON FUNCTION bloomidx_hash(int2, bigint) IS 'hash function of int2';
COMMENT ON FUNCTION bloomidx_hash(int4, bigint) IS 'hash function of int4';
COMMENT ON FUNCTION bloomidx_hash(int8, bigint) IS 'hash function of int8';
COMMENT ON FUNCTION bloomidx_hash(oid, bigint) IS 'hash function of oid';
COMMENT ON FUNCTION bloomidx_hash(date, bigint) IS 'hash function of date';
COMMENT ON FUNCTION bloomidx_hash(timestamp, bigint) IS
	'hash function of timestamp';
COMMENT ON FUNCTION bloomidx_hash(timestamptz, bigint) IS
	'hash function of timestamptz';
COMMENT ON FUNCTION bloomidx_hash(uuid, bigint) IS 'hash function of uuid';
COMMENT ON FUNCTION bloomidx_hash(bytea, bigint) IS 'hash function of bytea';
COMMENT ON FUNCTION bloomidx_hash(text, bigint) IS 'hash function of text';
COMMENT ON FUNCTION bloomidx_hash(bpchar, bigint) IS
	'hash function of bpchar';
COMMENT ON FUNCTION bloomidx_hash("char", bigint) IS 'hash function of type "char"';
COMMENT ON FUNCTION bloomidx_hash(name, bigint) IS 'hash function of name';
COMMENT ON FUNCTION bloomidx_hash(time, bigint) IS 'hash function of time';
COMMENT ON FUNCTION bloomidx_hash(pg_lsn, bigint) IS
	'hash function of pg_lsn';
COMMENT ON FUNCTION bloomidx_hash(xid, bigint) IS 'hash function of xid';
COMMENT ON FUNCTION bloomidx_hash(xid8, bigint) IS 'hash function of xid8';
COMMENT ON FUNCTION bloomidx_hash(cid, bigint) IS 'hash function of cid';
COMMENT ON FUNCTION bloomidx_hash(anyarray, bigint) IS
	'hash function of arrays';
COMMENT ON FUNCTION bloomidx_hash(anyrange, bigint) IS
	'hash function of ranges';
COMMENT ON FUNCTION bloomidx_hash(anymultirange, bigint) IS
	'hash function of multiranges';
COMMENT ON FUNCTION bloomidx_hash(record, bigint) IS
	'hash function of composite types';

-- Operator classes

CREATE OPERATOR CLASS bool_ops DEFAULT FOR TYPE bool USING bloomidx AS
	OPERATOR 1 = (bool, bool),
	FUNCTION 1 bloomidx_hash(bool, bigint);

CREATE OPERATOR FAMILY integer_ops USING bloomidx;

CREATE OPERATOR CLASS int2_ops DEFAULT FOR TYPE int2 USING bloomidx
	FAMILY integer_ops AS
	OPERATOR 1 = (int2, int2),
	FUNCTION 1 bloomidx_hash(int2, bigint);

CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING bloomidx
	FAMILY integer_ops AS
	OPERATOR 1 = (int4, int4),
	FUNCTION 1 bloomidx_hash(int4, bigint);

CREATE OPERATOR CLASS int8_ops DEFAULT FOR TYPE int8 USING bloomidx
	FAMILY integer_ops AS
	OPERATOR 1 = (int8, int8),
	FUNCTION 1 bloomidx_hash(int8, bigint);

ALTER OPERATOR FAMILY integer_ops USING bloomidx ADD
	OPERATOR 1 = (int2, int4),
	OPERATOR 1 = (int2, int8),
	OPERATOR 1 = (int4, int2),
	OPERATOR 1 = (int4, int8),
	OPERATOR 1 = (int8, int2),
	OPERATOR 1 = (int8, int4);

CREATE OPERATOR CLASS oid_ops DEFAULT FOR TYPE oid USING bloomidx AS
	OPERATOR 1 = (oid, oid),
	FUNCTION 1 bloomidx_hash(oid, bigint);

CREATE OPERATOR FAMILY float_ops USING bloomidx;

CREATE OPERATOR CLASS float4_ops DEFAULT FOR TYPE float4 USING bloomidx
	FAMILY float_ops AS
	OPERATOR 1 = (float4, float4),
	FUNCTION 1 hashfloat4extended(float4, bigint);

CREATE OPERATOR CLASS float8_ops DEFAULT FOR TYPE float8 USING bloomidx
	FAMILY float_ops AS
	OPERATOR 1 = (float8, float8),
	FUNCTION 1 hashfloat8extended(float8, bigint);

ALTER OPERATOR FAMILY float_ops USING bloomidx ADD
	OPERATOR 1 = (float4, float8),
	OPERATOR 1 = (float8, float4);

CREATE OPERATOR CLASS numeric_ops DEFAULT FOR TYPE numeric USING bloomidx AS
	OPERATOR 1 = (numeric, numeric),
	FUNCTION 1 hash_numeric_extended(numeric, bigint);

CREATE OPERATOR FAMILY text_ops USING bloomidx;

CREATE OPERATOR CLASS text_ops DEFAULT FOR TYPE text USING bloomidx
	FAMILY text_ops AS
	OPERATOR 1 = (text, text),
	FUNCTION 1 bloomidx_hash(text, bigint);

CREATE OPERATOR CLASS name_ops DEFAULT FOR TYPE name USING bloomidx
	FAMILY text_ops AS
	OPERATOR 1 = (name, name),
	FUNCTION 1 bloomidx_hash(name, bigint);

ALTER OPERATOR FAMILY text_ops USING bloomidx ADD
	OPERATOR 1 = (text, name),
	OPERATOR 1 = (name, text);

CREATE OPERATOR CLASS bpchar_ops DEFAULT FOR TYPE bpchar USING bloomidx AS
	OPERATOR 1 = (bpchar, bpchar),
	FUNCTION 1 bloomidx_hash(bpchar, bigint);

CREATE OPERATOR CLASS bytea_ops DEFAULT FOR TYPE bytea USING bloomidx AS
	OPERATOR 1 = (bytea, bytea),
	FUNCTION 1 bloomidx_hash(bytea, bigint);

CREATE OPERATOR CLASS uuid_ops DEFAULT FOR TYPE uuid USING bloomidx AS
	OPERATOR 1 = (uuid, uuid),
	FUNCTION 1 bloomidx_hash(uuid, bigint);

CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING bloomidx AS
	OPERATOR 1 = (date, date),
	FUNCTION 1 bloomidx_hash(date, bigint);

CREATE OPERATOR CLASS timestamp_ops DEFAULT FOR TYPE timestamp USING bloomidx AS
	OPERATOR 1 = (timestamp, timestamp),
	FUNCTION 1 bloomidx_hash(timestamp, bigint);

CREATE OPERATOR CLASS timestamptz_ops DEFAULT FOR TYPE timestamptz USING bloomidx AS
	OPERATOR 1 = (timestamptz, timestamptz),
	FUNCTION 1 bloomidx_hash(timestamptz, bigint);

CREATE OPERATOR CLASS char_ops DEFAULT FOR TYPE "char" USING bloomidx AS
	OPERATOR 1 = ("char", "char"),
	FUNCTION 1 bloomidx_hash("char", bigint);

CREATE OPERATOR CLASS time_ops DEFAULT FOR TYPE time USING bloomidx AS
	OPERATOR 1 = (time, time),
	FUNCTION 1 bloomidx_hash(time, bigint);

CREATE OPERATOR CLASS timetz_ops DEFAULT FOR TYPE timetz USING bloomidx AS
	OPERATOR 1 = (timetz, timetz),
	FUNCTION 1 timetz_hash_extended(timetz, bigint);

CREATE OPERATOR CLASS interval_ops DEFAULT FOR TYPE interval USING bloomidx AS
	OPERATOR 1 = (interval, interval),
	FUNCTION 1 interval_hash_extended(interval, bigint);

CREATE OPERATOR CLASS inet_ops DEFAULT FOR TYPE inet USING bloomidx AS
	OPERATOR 1 = (inet, inet),
	FUNCTION 1 hashinetextended(inet, bigint);

CREATE OPERATOR CLASS macaddr_ops DEFAULT FOR TYPE macaddr USING bloomidx AS
	OPERATOR 1 = (macaddr, macaddr),
	FUNCTION 1 hashmacaddrextended(macaddr, bigint);

CREATE OPERATOR CLASS macaddr8_ops DEFAULT FOR TYPE macaddr8 USING bloomidx AS
	OPERATOR 1 = (macaddr8, macaddr8),
	FUNCTION 1 hashmacaddr8extended(macaddr8, bigint);

CREATE OPERATOR CLASS pg_lsn_ops DEFAULT FOR TYPE pg_lsn USING bloomidx AS
	OPERATOR 1 = (pg_lsn, pg_lsn),
	FUNCTION 1 bloomidx_hash(pg_lsn, bigint);

CREATE OPERATOR CLASS tid_ops DEFAULT FOR TYPE tid USING bloomidx AS
	OPERATOR 1 = (tid, tid),
	FUNCTION 1 hashtidextended(tid, bigint);

CREATE OPERATOR CLASS xid_ops DEFAULT FOR TYPE xid USING bloomidx AS
	OPERATOR 1 = (xid, xid),
	FUNCTION 1 bloomidx_hash(xid, bigint);

CREATE OPERATOR CLASS xid8_ops DEFAULT FOR TYPE xid8 USING bloomidx AS
	OPERATOR 1 = (xid8, xid8),
	FUNCTION 1 bloomidx_hash(xid8, bigint);

CREATE OPERATOR CLASS cid_ops DEFAULT FOR TYPE cid USING bloomidx AS
	OPERATOR 1 = (cid, cid),
	FUNCTION 1 bloomidx_hash(cid, bigint);

CREATE OPERATOR CLASS oidvector_ops DEFAULT FOR TYPE oidvector USING bloomidx AS
	OPERATOR 1 = (oidvector, oidvector),
	FUNCTION 1 hashoidvectorextended(oidvector, bigint);

CREATE OPERATOR CLASS aclitem_ops DEFAULT FOR TYPE aclitem USING bloomidx AS
	OPERATOR 1 = (aclitem, aclitem),
	FUNCTION 1 hash_aclitem_extended(aclitem, bigint);

CREATE OPERATOR CLASS jsonb_ops DEFAULT FOR TYPE jsonb USING bloomidx AS
	OPERATOR 1 = (jsonb, jsonb),
	FUNCTION 1 jsonb_hash_extended(jsonb, bigint);

CREATE OPERATOR CLASS array_ops DEFAULT FOR TYPE anyarray USING bloomidx AS
	OPERATOR 1 = (anyarray, anyarray),
	FUNCTION 1 bloomidx_hash(anyarray, bigint);

CREATE OPERATOR CLASS enum_ops DEFAULT FOR TYPE anyenum USING bloomidx AS
	OPERATOR 1 = (anyenum, anyenum),
	FUNCTION 1 hashenumextended(anyenum, bigint);

CREATE OPERATOR CLASS range_ops DEFAULT FOR TYPE anyrange USING bloomidx AS
	OPERATOR 1 = (anyrange, anyrange),
	FUNCTION 1 bloomidx_hash(anyrange, bigint);

CREATE OPERATOR CLASS multirange_ops DEFAULT FOR TYPE anymultirange USING bloomidx AS
	OPERATOR 1 = (anymultirange, anymultirange),
	FUNCTION 1 bloomidx_hash(anymultirange, bigint);

CREATE OPERATOR CLASS record_ops DEFAULT FOR TYPE record USING bloomidx AS
	OPERATOR 1 = (record, record),
	FUNCTION 1 bloomidx_hash(record, bigint);

COMMENT ON OPERATOR CLASS bool_ops USING bloomidx IS 'equality of bool';
COMMENT ON OPERATOR FAMILY bool_ops USING bloomidx IS 'equality of bool';
COMMENT ON OPERATOR CLASS int2_ops USING bloomidx IS 'equality of int2';
COMMENT ON OPERATOR CLASS int4_ops USING bloomidx IS 'equality of int4';
COMMENT ON OPERATOR CLASS int8_ops USING bloomidx IS 'equality of int8';
COMMENT ON OPERATOR CLASS oid_ops USING bloomidx IS 'equality of oid';
COMMENT ON OPERATOR FAMILY oid_ops USING bloomidx IS 'equality of oid';
COMMENT ON OPERATOR CLASS float4_ops USING bloomidx IS 'equality of float4';
COMMENT ON OPERATOR CLASS float8_ops USING bloomidx IS 'equality of float8';
COMMENT ON OPERATOR CLASS numeric_ops USING bloomidx IS 'equality of numeric';
COMMENT ON OPERATOR FAMILY numeric_ops USING bloomidx IS
	'equality of numeric';
COMMENT ON OPERATOR CLASS text_ops USING bloomidx IS 'equality of text';
COMMENT ON OPERATOR FAMILY text_ops USING bloomidx IS
	'equality of text and name';
COMMENT ON OPERATOR CLASS name_ops USING bloomidx IS 'equality of name';
COMMENT ON OPERATOR CLASS bpchar_ops USING bloomidx IS 'equality of bpchar';
COMMENT ON OPERATOR FAMILY bpchar_ops USING bloomidx IS 'equality of bpchar';
COMMENT ON OPERATOR CLASS bytea_ops USING bloomidx IS 'equality of bytea';
COMMENT ON OPERATOR FAMILY bytea_ops USING bloomidx IS 'equality of bytea';
COMMENT ON OPERATOR CLASS uuid_ops USING bloomidx IS 'equality of uuid';
COMMENT ON OPERATOR FAMILY uuid_ops USING bloomidx IS 'equality of uuid';
COMMENT ON OPERATOR CLASS date_ops USING bloomidx IS 'equality of date';
COMMENT ON OPERATOR FAMILY date_ops USING bloomidx IS 'equality of date';
COMMENT ON OPERATOR CLASS timestamp_ops USING bloomidx IS
	'equality of timestamp';
COMMENT ON OPERATOR FAMILY timestamp_ops USING bloomidx IS
	'equality of timestamp';
COMMENT ON OPERATOR CLASS timestamptz_ops USING bloomidx IS
	'equality of timestamptz';
COMMENT ON OPERATOR FAMILY timestamptz_ops USING bloomidx IS
	'equality of timestamptz';
COMMENT ON OPERATOR CLASS char_ops USING bloomidx IS
	'equality of type "char"';
COMMENT ON OPERATOR FAMILY char_ops USING bloomidx IS
	'equality of type "char"';
COMMENT ON OPERATOR CLASS time_ops USING bloomidx IS 'equality of time';
COMMENT ON OPERATOR FAMILY time_ops USING bloomidx IS 'equality of time';
COMMENT ON OPERATOR CLASS timetz_ops USING bloomidx IS 'equality of timetz';
COMMENT ON OPERATOR FAMILY timetz_ops USING bloomidx IS 'equality of timetz';
COMMENT ON OPERATOR CLASS interval_ops USING bloomidx IS
	'equality of interval';
COMMENT ON OPERATOR FAMILY interval_ops USING bloomidx IS
	'equality of interval';
COMMENT ON OPERATOR CLASS inet_ops USING bloomidx IS 'equality of inet';
COMMENT ON OPERATOR FAMILY inet_ops USING bloomidx IS 'equality of inet';
COMMENT ON OPERATOR CLASS macaddr_ops USING bloomidx IS 'equality of macaddr';
COMMENT ON OPERATOR FAMILY macaddr_ops USING bloomidx IS
	'equality of macaddr';
COMMENT ON OPERATOR CLASS macaddr8_ops USING bloomidx IS
	'equality of macaddr8';
COMMENT ON OPERATOR FAMILY macaddr8_ops USING bloomidx IS
	'equality of macaddr8';
COMMENT ON OPERATOR CLASS pg_lsn_ops USING bloomidx IS 'equality of pg_lsn';
COMMENT ON OPERATOR FAMILY pg_lsn_ops USING bloomidx IS 'equality of pg_lsn';
COMMENT ON OPERATOR CLASS tid_ops USING bloomidx IS 'equality of tid';
COMMENT ON OPERATOR FAMILY tid_ops USING bloomidx IS 'equality of tid';
COMMENT ON OPERATOR CLASS xid_ops USING bloomidx IS 'equality of xid';
COMMENT ON OPERATOR FAMILY xid_ops USING bloomidx IS 'equality of xid';
COMMENT ON OPERATOR CLASS xid8_ops USING bloomidx IS 'equality of xid8';
COMMENT ON OPERATOR FAMILY xid8_ops USING bloomidx IS 'equality of xid8';
COMMENT ON OPERATOR CLASS cid_ops USING bloomidx IS 'equality of cid';
COMMENT ON OPERATOR FAMILY cid_ops USING bloomidx IS 'equality of cid';
COMMENT ON OPERATOR CLASS oidvector_ops USING bloomidx IS
	'equality of oidvector';
COMMENT ON OPERATOR FAMILY oidvector_ops USING bloomidx IS
	'equality of oidvector';
COMMENT ON OPERATOR CLASS aclitem_ops USING bloomidx IS 'equality of aclitem';
COMMENT ON OPERATOR FAMILY aclitem_ops USING bloomidx IS
	'equality of aclitem';
COMMENT ON OPERATOR CLASS jsonb_ops USING bloomidx IS 'equality of jsonb';
COMMENT ON OPERATOR FAMILY jsonb_ops USING bloomidx IS 'equality of jsonb';
COMMENT ON OPERATOR CLASS array_ops USING bloomidx IS 'equality of arrays';
COMMENT ON OPERATOR FAMILY array_ops USING bloomidx IS 'equality of arrays';
COMMENT ON OPERATOR CLASS enum_ops USING bloomidx IS 'equality of enums';
COMMENT ON OPERATOR FAMILY enum_ops USING bloomidx IS 'equality of enums';
COMMENT ON OPERATOR CLASS range_ops USING bloomidx IS 'equality of ranges';
COMMENT ON OPERATOR FAMILY range_ops USING bloomidx IS 'equality of ranges';
COMMENT ON OPERATOR CLASS multirange_ops USING bloomidx IS
	'equality of multiranges';
COMMENT ON OPERATOR FAMILY multirange_ops USING bloomidx IS
	'equality of multiranges';
COMMENT ON OPERATOR CLASS record_ops USING bloomidx IS
	'equality of composite types';
COMMENT ON OPERATOR FAMILY record_ops USING bloomidx IS
	'equality of composite types';
COMMENT ON OPERATOR FAMILY integer_ops USING bloomidx IS
	'equality of integers of all sizes';
COMMENT ON OPERATOR FAMILY float_ops USING bloomidx IS
	'equality of float4 and float8';

-- Types that not every supported version has

DO $$
BEGIN
	IF to_regtype('pg_catalog.oid8') IS NOT NULL THEN
		CREATE FUNCTION bloomidx_hash(oid8, bigint) RETURNS bigint
		AS 'MODULE_PATHNAME', 'bloomidx_hash_int8'
		LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

		CREATE OPERATOR CLASS oid8_ops DEFAULT FOR TYPE oid8 USING bloomidx AS
			OPERATOR 1 = (oid8, oid8),
			FUNCTION 1 bloomidx_hash(oid8, bigint);

		COMMENT ON FUNCTION bloomidx_hash(oid8, bigint) IS 'hash function of oid8';
		COMMENT ON OPERATOR CLASS oid8_ops USING bloomidx IS 'equality of oid8';
		COMMENT ON OPERATOR FAMILY oid8_ops USING bloomidx IS 'equality of oid8';
	END IF;
END $$;

-- Maintenance

CREATE FUNCTION bloomidx_summarize(index regclass) RETURNS integer
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION bloomidx_summarize(regclass) IS
	'rebuild filters of an index as VACUUM does, and return the number of sets of filters that were rebuilt';

-- Operator classes that extract several keys from one value.  Except for
-- function 1, the support functions are those of GIN, with GIN's numbers.

-- bytes of a text, whatever the collation
CREATE FUNCTION bloomidx_hash_key(text, bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'bloomidx_hash_bytea'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_consistent_all(internal, smallint, text, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_ngram_options(internal) RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION bloomidx_ngram_extract_value(text, internal, internal)
RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_ngram_extract_query(text, internal, smallint,
	internal, internal, internal, internal) RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_prefix_options(internal) RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION bloomidx_prefix_extract_value(text, internal, internal)
RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION bloomidx_prefix_extract_query(text, internal, smallint,
	internal, internal, internal, internal) RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION bloomidx_hash_key(text, bigint) IS
	'hash function of the bytes of text, for extracted keys';
COMMENT ON FUNCTION bloomidx_consistent_all(internal, smallint, text, integer,
	internal, internal, internal) IS 'triConsistent: all keys must be present';
COMMENT ON FUNCTION bloomidx_ngram_options(internal) IS
	'options of text_ngram_ops';
COMMENT ON FUNCTION bloomidx_ngram_extract_value(text, internal, internal) IS
	'extractValue of text_ngram_ops';
COMMENT ON FUNCTION bloomidx_ngram_extract_query(text, internal, smallint,
	internal, internal, internal, internal) IS 'extractQuery of text_ngram_ops';
COMMENT ON FUNCTION bloomidx_prefix_options(internal) IS
	'options of text_prefix_ops';
COMMENT ON FUNCTION bloomidx_prefix_extract_value(text, internal, internal) IS
	'extractValue of text_prefix_ops';
COMMENT ON FUNCTION bloomidx_prefix_extract_query(text, internal, smallint,
	internal, internal, internal, internal) IS 'extractQuery of text_prefix_ops';

-- the keys are hashed by the hash function of the type of the elements
CREATE OPERATOR CLASS array_elements_ops FOR TYPE anyarray USING bloomidx AS
	OPERATOR 1 && (anyarray, anyarray),
	OPERATOR 2 @> (anyarray, anyarray),
	FUNCTION 2 ginarrayextract(anyarray, internal, internal),
	FUNCTION 3 ginqueryarrayextract(anyarray, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 ginarraytriconsistent(internal, smallint, anyarray, integer,
		internal, internal, internal),
	STORAGE anyelement;

CREATE OPERATOR CLASS jsonb_contains_ops FOR TYPE jsonb USING bloomidx AS
	OPERATOR 7 @> (jsonb, jsonb),
	OPERATOR 9 ? (jsonb, text),
	OPERATOR 10 ?| (jsonb, text[]),
	OPERATOR 11 ?& (jsonb, text[]),
	OPERATOR 15 @? (jsonb, jsonpath),
	OPERATOR 16 @@ (jsonb, jsonpath),
	FUNCTION 1 bloomidx_hash_key(text, bigint),
	FUNCTION 2 gin_extract_jsonb(jsonb, internal, internal),
	FUNCTION 3 gin_extract_jsonb_query(jsonb, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 gin_triconsistent_jsonb(internal, smallint, jsonb, integer,
		internal, internal, internal),
	STORAGE text;

CREATE OPERATOR CLASS jsonb_path_ops FOR TYPE jsonb USING bloomidx AS
	OPERATOR 7 @> (jsonb, jsonb),
	OPERATOR 15 @? (jsonb, jsonpath),
	OPERATOR 16 @@ (jsonb, jsonpath),
	FUNCTION 1 bloomidx_hash(int4, bigint),
	FUNCTION 2 gin_extract_jsonb_path(jsonb, internal, internal),
	FUNCTION 3 gin_extract_jsonb_query_path(jsonb, internal, smallint,
		internal, internal, internal, internal),
	FUNCTION 6 gin_triconsistent_jsonb_path(internal, smallint, jsonb, integer,
		internal, internal, internal),
	STORAGE int4;

CREATE OPERATOR CLASS tsvector_ops DEFAULT FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery),
	OPERATOR 2 @@@ (tsvector, tsquery),
	FUNCTION 1 bloomidx_hash_key(text, bigint),
	FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal),
	FUNCTION 3 gin_extract_tsquery(tsvector, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 gin_tsquery_triconsistent(internal, smallint, tsvector, integer,
		internal, internal, internal),
	STORAGE text;

CREATE OPERATOR CLASS text_ngram_ops FOR TYPE text USING bloomidx AS
	OPERATOR 1 ~~ (text, text),
	OPERATOR 2 ~~* (text, text),
	FUNCTION 1 bloomidx_hash(int8, bigint),
	FUNCTION 2 bloomidx_ngram_extract_value(text, internal, internal),
	FUNCTION 3 bloomidx_ngram_extract_query(text, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 bloomidx_consistent_all(internal, smallint, text, integer,
		internal, internal, internal),
	FUNCTION 7 bloomidx_ngram_options(internal),
	STORAGE int8;

CREATE OPERATOR CLASS text_prefix_ops FOR TYPE text USING bloomidx AS
	OPERATOR 1 ^@ (text, text),
	OPERATOR 2 ~~ (text, text),
	OPERATOR 3 = (text, text),
	FUNCTION 1 bloomidx_hash(int8, bigint),
	FUNCTION 2 bloomidx_prefix_extract_value(text, internal, internal),
	FUNCTION 3 bloomidx_prefix_extract_query(text, internal, smallint,
		internal, internal, internal, internal),
	FUNCTION 6 bloomidx_consistent_all(internal, smallint, text, integer,
		internal, internal, internal),
	FUNCTION 7 bloomidx_prefix_options(internal),
	STORAGE int8;

COMMENT ON OPERATOR CLASS array_elements_ops USING bloomidx IS
	'elements of arrays: &&, @>';
COMMENT ON OPERATOR FAMILY array_elements_ops USING bloomidx IS
	'elements of arrays: &&, @>';
COMMENT ON OPERATOR CLASS jsonb_contains_ops USING bloomidx IS
	'object keys and scalar values of jsonb: @>, ?, ?|, ?&, @?, @@';
COMMENT ON OPERATOR FAMILY jsonb_contains_ops USING bloomidx IS
	'object keys and scalar values of jsonb: @>, ?, ?|, ?&, @?, @@';
COMMENT ON OPERATOR CLASS jsonb_path_ops USING bloomidx IS
	'scalar values of jsonb with their paths: @>, @?, @@';
COMMENT ON OPERATOR FAMILY jsonb_path_ops USING bloomidx IS
	'scalar values of jsonb with their paths: @>, @?, @@';
COMMENT ON OPERATOR CLASS tsvector_ops USING bloomidx IS
	'lexemes of tsvector: @@';
COMMENT ON OPERATOR FAMILY tsvector_ops USING bloomidx IS
	'lexemes of tsvector: @@';
COMMENT ON OPERATOR CLASS text_ngram_ops USING bloomidx IS
	'sequences of characters of text: LIKE, ILIKE';
COMMENT ON OPERATOR FAMILY text_ngram_ops USING bloomidx IS
	'sequences of characters of text: LIKE, ILIKE';
COMMENT ON OPERATOR CLASS text_prefix_ops USING bloomidx IS
	'prefixes of text: ^@, LIKE, =';
COMMENT ON OPERATOR FAMILY text_prefix_ops USING bloomidx IS
	'prefixes of text: ^@, LIKE, =';

-- Monitoring.  Each function checks that the caller owns the table, may read
-- all rows of the table, or is a member of pg_stat_scan_tables.

CREATE FUNCTION bloomidx_info(index regclass,
	OUT layout text, OUT format_version integer, OUT pages_per_range integer,
	OUT false_positive_rate float8, OUT row_keys text, OUT ranges bigint, OUT segments bigint,
	OUT partitions bigint, OUT summarized_partitions bigint,
	OUT groups bigint, OUT index_pages bigint, OUT free_pages bigint, OUT keys bigint,
	OUT bits_per_key float8, OUT estimated_fpr float8, OUT note text)
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION bloomidx_info(regclass) IS
	'sizes, fill and false-positive rate of an index, and recommended actions';

CREATE FUNCTION bloomidx_segments(index regclass,
	OUT segment bigint, OUT first_block bigint, OUT last_block bigint,
	OUT index_block bigint, OUT index_pages bigint, OUT probes integer,
	OUT filters integer, OUT full_filters integer, OUT fill float8,
	OUT keys float8, OUT planned_keys float8, OUT estimated_fpr float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION bloomidx_segments(regclass) IS
	'the segments of an index of layout partitioned';

CREATE FUNCTION bloomidx_blocks(index regclass,
	OUT page bigint, OUT first_block bigint, OUT last_block bigint,
	OUT index_block bigint, OUT index_pages bigint, OUT probes integer,
	OUT filters integer, OUT full_filters integer, OUT fill float8,
	OUT keys float8, OUT planned_keys float8, OUT estimated_fpr float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION bloomidx_blocks(regclass) IS
	'the filter pages of an index of layout block';

CREATE FUNCTION bloomidx_probe(index regclass, key anyelement,
	attnum integer DEFAULT 1, OUT first_block bigint, OUT last_block bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C PARALLEL RESTRICTED;
COMMENT ON FUNCTION bloomidx_probe(regclass, anyelement, integer) IS
	'heap blocks that may contain a value, or a row of values if attnum is 0';

CREATE FUNCTION bloomidx_measure(index regclass, probes integer DEFAULT 1000,
	OUT probes integer, OUT ranges bigint, OUT false_positive_rate float8,
	OUT index_pages float8, OUT heap_pages float8)
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION bloomidx_measure(regclass, integer) IS
	'false-positive rate and pages read, measured by lookups of absent keys';

CREATE FUNCTION bloomidx_check(index regclass,
	heapallindexed boolean DEFAULT true)
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION bloomidx_check(regclass, boolean) IS
	'verify an index, and return the number of rows that were looked up';

CREATE FUNCTION bloomidx_estimate(tbl regclass, columns text[],
	false_positive_rate float8 DEFAULT NULL, pages_per_range integer DEFAULT 0,
	rows_fraction float8 DEFAULT 1, keys text DEFAULT NULL,
	OUT layout text, OUT pages_per_range integer, OUT size bigint,
	OUT lookup_index_pages float8, OUT lookup_heap_pages float8,
	OUT btree_size bigint, OUT advice text)
AS 'MODULE_PATHNAME'
LANGUAGE C;
COMMENT ON FUNCTION bloomidx_estimate(regclass, text[], float8, integer, float8, text) IS
	'estimate the size of an index, and the pages that a lookup would read';
