/* bloomidx_hstore--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_hstore" to load this file. \quit

-- The script runs as superuser, and others may be able to create objects in the schema of this extension.  So the schemas of
-- the other extensions are written into the names of their objects, and the names of pg_catalog are qualified.
DO $do$
BEGIN
	EXECUTE pg_catalog.format($definition$
-- hstore has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, %1$I.hstore, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_hstore'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION bloomidx_consistent(internal, smallint, %1$I.hstore, integer,
	internal, internal, internal) IS 'triConsistent of hstore_ops';

CREATE OPERATOR CLASS hstore_ops DEFAULT FOR TYPE %1$I.hstore USING bloomidx AS
	OPERATOR 7 %1$I.@> (%1$I.hstore, %1$I.hstore),
	OPERATOR 9 %1$I.? (%1$I.hstore, text),
	OPERATOR 10 %1$I.?| (%1$I.hstore, text[]),
	OPERATOR 11 %1$I.?& (%1$I.hstore, text[]),
	FUNCTION 1 %2$I.bloomidx_hash_key(text, bigint),
	FUNCTION 2 %1$I.gin_extract_hstore(%1$I.hstore, internal),
	FUNCTION 3 %1$I.gin_extract_hstore_query(%1$I.hstore, internal, smallint, internal,
		internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, %1$I.hstore, integer,
		internal, internal, internal),
	STORAGE text;
$definition$,
		(SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
			WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'hstore'),
		(SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
			WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'bloomidx'));
END $do$;

COMMENT ON OPERATOR CLASS hstore_ops USING bloomidx IS
	'keys and values of hstore: @>, ?, ?|, ?&';
COMMENT ON OPERATOR FAMILY hstore_ops USING bloomidx IS
	'keys and values of hstore: @>, ?, ?|, ?&';
