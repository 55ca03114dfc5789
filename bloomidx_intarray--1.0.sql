/* bloomidx_intarray--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_intarray" to load this file. \quit

-- intarray has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, _int4, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_intarray'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION bloomidx_consistent(internal, smallint, _int4, integer,
	internal, internal, internal) IS 'triConsistent of intarray_ops';

-- The script runs as superuser, and others may be able to create objects in the schema of this extension.  So the schemas of
-- the other extensions are written into the names of their objects, and the names of pg_catalog are qualified.
DO $do$
BEGIN
	EXECUTE pg_catalog.format($definition$
CREATE OPERATOR CLASS intarray_ops FOR TYPE _int4 USING bloomidx AS
	OPERATOR 3 %1$I.&& (_int4, _int4),
	OPERATOR 7 %1$I.@> (_int4, _int4),
	OPERATOR 20 %1$I.@@ (_int4, %1$I.query_int),
	FUNCTION 1 %2$I.bloomidx_hash(int4, bigint),
	FUNCTION 2 pg_catalog.ginarrayextract(anyarray, internal, internal),
	FUNCTION 3 %1$I.ginint4_queryextract(_int4, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, _int4, integer,
		internal, internal, internal),
	STORAGE int4
$definition$,
		(SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
			WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'intarray'),
		(SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
			WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'bloomidx'));
END $do$;

COMMENT ON OPERATOR CLASS intarray_ops USING bloomidx IS
	'elements of int4 arrays: &&, @>, @@ of intarray';
COMMENT ON OPERATOR FAMILY intarray_ops USING bloomidx IS
	'elements of int4 arrays: &&, @>, @@ of intarray';
