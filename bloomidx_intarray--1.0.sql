/* bloomidx_intarray--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_intarray" to load this file. \quit

-- intarray has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, _int4, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_intarray'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- The schemas of the other extensions are written into the names, so that nothing in another schema takes their place.
DO $do$
DECLARE
	definition text := $definition$
CREATE OPERATOR CLASS intarray_ops FOR TYPE _int4 USING bloomidx AS
	OPERATOR 3 {intarray}.&& (_int4, _int4),
	OPERATOR 7 {intarray}.@> (_int4, _int4),
	OPERATOR 20 {intarray}.@@ (_int4, {intarray}.query_int),
	FUNCTION 1 {bloomidx}.bloomidx_hash(int4, bigint),
	FUNCTION 2 pg_catalog.ginarrayextract(anyarray, internal, internal),
	FUNCTION 3 {intarray}.ginint4_queryextract(_int4, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, _int4, integer,
		internal, internal, internal),
	STORAGE int4
$definition$;
	extension record;
BEGIN
	FOR extension IN
		SELECT extname, nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n WHERE n.oid = extnamespace
	LOOP
		definition := replace(definition, '{' || extension.extname || '}', quote_ident(extension.nspname));
	END LOOP;
	EXECUTE definition;
END $do$;
