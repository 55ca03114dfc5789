/* bloomidx_trgm--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_trgm" to load this file. \quit

-- The schemas of the other extensions are written into the names, so that nothing in another schema takes their place.
DO $do$
DECLARE
	definition text := $definition$
CREATE OPERATOR CLASS trgm_ops FOR TYPE text USING bloomidx AS
	OPERATOR 1 {pg_trgm}.% (text, text),
	OPERATOR 3 pg_catalog.~~ (text, text),
	OPERATOR 4 pg_catalog.~~* (text, text),
	OPERATOR 5 pg_catalog.~ (text, text),
	OPERATOR 6 pg_catalog.~* (text, text),
	OPERATOR 7 {pg_trgm}.%> (text, text),
	OPERATOR 9 {pg_trgm}.%>> (text, text),
	OPERATOR 11 pg_catalog.= (text, text),
	FUNCTION 1 {bloomidx}.bloomidx_hash(int4, bigint),
	FUNCTION 2 {pg_trgm}.gin_extract_value_trgm(text, internal),
	FUNCTION 3 {pg_trgm}.gin_extract_query_trgm(text, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 {pg_trgm}.gin_trgm_triconsistent(internal, smallint, text, integer,
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
