/* bloomidx_intarray--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_intarray" to load this file. \quit

-- intarray has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, _int4, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_intarray'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE OPERATOR CLASS intarray_ops FOR TYPE _int4 USING bloomidx AS
	OPERATOR 3 && (_int4, _int4),
	OPERATOR 7 @> (_int4, _int4),
	OPERATOR 20 @@ (_int4, query_int),
	FUNCTION 1 bloomidx_hash(int4, bigint),
	FUNCTION 2 ginarrayextract(anyarray, internal, internal),
	FUNCTION 3 ginint4_queryextract(_int4, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, _int4, integer,
		internal, internal, internal),
	STORAGE int4;
