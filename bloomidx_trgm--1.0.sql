/* bloomidx_trgm--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_trgm" to load this file. \quit

-- The script runs as superuser, and others may be able to create objects in the schema of this extension.  So the schemas of
-- the other extensions are written into the names of their objects, and the names of pg_catalog are qualified.
--
-- Versions of pg_trgm before 1.4 have no operator %>>.  The owner of the database can install such a version in a schema of
-- the owner, and create an operator of this name there, but not with a new function in C.
DO $do$
DECLARE
	trgm_schema name := (SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
		WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'pg_trgm');
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_operator o, pg_catalog.pg_proc p, pg_catalog.pg_language l
			WHERE o.oid OPERATOR(pg_catalog.=) pg_catalog.to_regoperator(
					pg_catalog.format('%I.%%>>(pg_catalog.text,pg_catalog.text)', trgm_schema))
				AND p.oid OPERATOR(pg_catalog.=) oprcode AND l.oid OPERATOR(pg_catalog.=) prolang
				AND lanname OPERATOR(pg_catalog.=) 'c') THEN
		RAISE EXCEPTION 'extension "pg_trgm" has no operator %%>>' USING
			ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Update extension pg_trgm to version 1.4 or later.';
	END IF;
	EXECUTE pg_catalog.format($definition$
CREATE OPERATOR CLASS trgm_ops FOR TYPE text USING bloomidx AS
	OPERATOR 1 %1$I.%% (text, text),
	OPERATOR 3 pg_catalog.~~ (text, text),
	OPERATOR 4 pg_catalog.~~* (text, text),
	OPERATOR 5 pg_catalog.~ (text, text),
	OPERATOR 6 pg_catalog.~* (text, text),
	OPERATOR 7 %1$I.%%> (text, text),
	OPERATOR 9 %1$I.%%>> (text, text),
	OPERATOR 11 pg_catalog.= (text, text),
	FUNCTION 1 %2$I.bloomidx_hash(int4, bigint),
	FUNCTION 2 %1$I.gin_extract_value_trgm(text, internal),
	FUNCTION 3 %1$I.gin_extract_query_trgm(text, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 %1$I.gin_trgm_triconsistent(internal, smallint, text, integer,
		internal, internal, internal),
	STORAGE int4
$definition$, trgm_schema,
		(SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
			WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'bloomidx'));
END $do$;

COMMENT ON OPERATOR CLASS trgm_ops USING bloomidx IS
	'trigrams of text: LIKE, ILIKE, ~, ~*, =, and the operators of pg_trgm';
COMMENT ON OPERATOR FAMILY trgm_ops USING bloomidx IS
	'trigrams of text: LIKE, ILIKE, ~, ~*, =, and the operators of pg_trgm';
