/* bloomidx_citext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_citext" to load this file. \quit

-- The schemas of the other extensions are written into the names, so that nothing in another schema takes their place.
DO $do$
DECLARE
	definition text := $definition$
CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE {citext}.citext USING bloomidx AS
	OPERATOR 1 {citext}.= ({citext}.citext, {citext}.citext),
	FUNCTION 1 {citext}.citext_hash_extended({citext}.citext, bigint)
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
