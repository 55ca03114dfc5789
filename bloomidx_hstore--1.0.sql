/* bloomidx_hstore--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_hstore" to load this file. \quit

-- The schemas of the other extensions are written into the names, so that nothing in another schema takes their place.
DO $do$
DECLARE
	definition text := $definition$
-- hstore has only a boolean consistent function
CREATE FUNCTION bloomidx_consistent(internal, smallint, {hstore}.hstore, integer,
	internal, internal, internal) RETURNS "char"
AS 'MODULE_PATHNAME', 'bloomidx_consistent_hstore'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE OPERATOR CLASS hstore_ops DEFAULT FOR TYPE {hstore}.hstore USING bloomidx AS
	OPERATOR 7 {hstore}.@> ({hstore}.hstore, {hstore}.hstore),
	OPERATOR 9 {hstore}.? ({hstore}.hstore, text),
	OPERATOR 10 {hstore}.?| ({hstore}.hstore, text[]),
	OPERATOR 11 {hstore}.?& ({hstore}.hstore, text[]),
	FUNCTION 1 {bloomidx}.bloomidx_hash_key(text, bigint),
	FUNCTION 2 {hstore}.gin_extract_hstore({hstore}.hstore, internal),
	FUNCTION 3 {hstore}.gin_extract_hstore_query({hstore}.hstore, internal, smallint, internal,
		internal),
	FUNCTION 6 bloomidx_consistent(internal, smallint, {hstore}.hstore, integer,
		internal, internal, internal),
	STORAGE text;
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
