-- CREATE INDEX tells which operators of a column cannot use the index: the column's type has operators of its own, with the
-- same names as those of the operator class.  Since PostgreSQL 17, search_path is safe while an index is created, so messages
-- name types with their schema (usable_1.out).
\set ECHO none
\set test usable
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
CREATE EXTENSION citext SCHEMA usable;
SET client_min_messages = notice;
\set VERBOSITY default
\set ECHO all

CREATE DOMAIN email AS citext CHECK (value LIKE '%@%');
CREATE DOMAIN word AS text;
CREATE DOMAIN word10 AS varchar(10);
CREATE DOMAIN numbers AS int[];
-- as extension intarray does
CREATE FUNCTION overlap(int[], int[]) RETURNS bool IMMUTABLE STRICT LANGUAGE internal AS 'arrayoverlap';
CREATE FUNCTION contain(int[], int[]) RETURNS bool IMMUTABLE STRICT LANGUAGE internal AS 'arraycontains';
CREATE OPERATOR && (LEFTARG = int[], RIGHTARG = int[], FUNCTION = overlap);
CREATE OPERATOR @> (LEFTARG = int[], RIGHTARG = int[], FUNCTION = contain);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b int);
CREATE TABLE t (c citext, e email, w word, w10 word10, v varchar, b bpchar, x text, n name, i2 int2, i int, o oid, r regclass, cidr cidr,
	ca citext[], a int[], d numbers, ba bigint[], m mood, p pair, g int4range, j jsonb, s tsvector);

-- These operators cannot use the index; as of PostgreSQL 17, messages of CREATE INDEX qualify the names of all types outside
-- pg_catalog.
SET search_path = public;
CREATE INDEX t_c ON usable.t USING bloomidx (c);
CREATE INDEX t_e ON usable.t USING bloomidx (i, e);
CREATE INDEX t_f ON usable.t USING bloomidx ((x::usable.citext));
CREATE INDEX t_ngram ON usable.t USING bloomidx (c text_ngram_ops);
CREATE INDEX t_o ON usable.t USING bloomidx (i oid_ops);
CREATE INDEX t_a ON usable.t USING bloomidx (a array_elements_ops, d array_elements_ops);
CREATE INDEX CONCURRENTLY t_cic ON usable.t USING bloomidx (c);
SET search_path = usable, public;
SET enable_seqscan = off;
SELECT uses_index($$SELECT FROM t WHERE c = 'x'$$, 't_c'), uses_index($$SELECT FROM t WHERE a && '{1}'::int[]$$, 't_a'),
	uses_index($$SELECT FROM t WHERE c LIKE '%abcdef%'$$, 't_ngram'), uses_index($$SELECT FROM t WHERE i = 5$$, 't_o');

-- Every rebuild is silent.
REINDEX INDEX t_c;
VACUUM FULL t;
TRUNCATE t;
DROP INDEX t_c, t_e, t_f, t_ngram, t_o, t_a, t_cic;

-- These can.
CREATE INDEX t_all ON t USING bloomidx (w, w10, v, b, x, n, i2, i, o, r, cidr, ca, a, d, ba, m, p, g, j, s);
CREATE INDEX t_elements ON t USING bloomidx (ba array_elements_ops, ca array_elements_ops, w10 text_ngram_ops, v text_prefix_ops);
CREATE INDEX t_cast ON t USING bloomidx ((c::text), (c::text) text_ngram_ops);
DROP INDEX t_all, t_elements;

-- With an operator class for citext they can.
CREATE EXTENSION bloomidx_citext SCHEMA usable;
CREATE INDEX t_c ON t USING bloomidx (c, e);
SELECT uses_index($$SELECT FROM t WHERE c = 'x'$$, 't_c'), uses_index($$SELECT FROM t WHERE e = 'x'$$, 't_c');

-- The indexes that are left are good.
SELECT indexes_are_good();
SET client_min_messages = warning;
DROP SCHEMA usable CASCADE;
