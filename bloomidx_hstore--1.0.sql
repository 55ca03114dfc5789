/* bloomidx_hstore--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_hstore" to load this file. \quit

-- hstore has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, hstore, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_hstore'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE OPERATOR CLASS hstore_ops DEFAULT FOR TYPE hstore USING bloomidx AS
	OPERATOR 7 @> (hstore, hstore),
	OPERATOR 9 ? (hstore, text),
	OPERATOR 10 ?| (hstore, text[]),
	OPERATOR 11 ?& (hstore, text[]),
	FUNCTION 1 bloomidx_hash_key(text, bigint),
	FUNCTION 2 gin_extract_hstore(hstore, internal),
	FUNCTION 3 gin_extract_hstore_query(hstore, internal, smallint, internal,
		internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, hstore, integer,
		internal, internal, internal),
	STORAGE text;
