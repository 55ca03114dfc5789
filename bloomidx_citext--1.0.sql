/* bloomidx_citext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_citext" to load this file. \quit

-- The script runs as superuser, and others may be able to create objects in the schema of this extension.  So the schemas of
-- the other extensions are written into the names of their objects, and the names of pg_catalog are qualified.
--
-- Versions of citext before 1.6 have no citext_hash_extended().  The owner of the database can install such a version in a
-- schema of the owner, and create a function of this name there, but not in C.
DO $do$
DECLARE
	citext_schema name := (SELECT nspname FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n
		WHERE n.oid OPERATOR(pg_catalog.=) extnamespace AND extname OPERATOR(pg_catalog.=) 'citext');
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_proc p, pg_catalog.pg_language l
			WHERE p.oid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure(
					pg_catalog.format('%1$I.citext_hash_extended(%1$I.citext, bigint)', citext_schema))
				AND l.oid OPERATOR(pg_catalog.=) prolang AND lanname OPERATOR(pg_catalog.=) 'c') THEN
		RAISE EXCEPTION 'extension "citext" has no function citext_hash_extended' USING
			ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Update extension citext to version 1.6 or later.';
	END IF;
	EXECUTE pg_catalog.format($definition$
CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE %1$I.citext USING bloomidx AS
	OPERATOR 1 %1$I.= (%1$I.citext, %1$I.citext),
	FUNCTION 1 %1$I.citext_hash_extended(%1$I.citext, bigint)
$definition$, citext_schema);
END $do$;

COMMENT ON OPERATOR CLASS citext_ops USING bloomidx IS
	'equality of citext';
COMMENT ON OPERATOR FAMILY citext_ops USING bloomidx IS
	'equality of citext';
