/* bloomidx_trgm--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_trgm" to load this file. \quit

CREATE OPERATOR CLASS trgm_ops FOR TYPE text USING bloomidx AS
	OPERATOR 1 % (text, text),
	OPERATOR 3 ~~ (text, text),
	OPERATOR 4 ~~* (text, text),
	OPERATOR 5 ~ (text, text),
	OPERATOR 6 ~* (text, text),
	OPERATOR 7 %> (text, text),
	OPERATOR 9 %>> (text, text),
	OPERATOR 11 = (text, text),
	FUNCTION 1 bloomidx_hash(int4, bigint),
	FUNCTION 2 gin_extract_value_trgm(text, internal),
	FUNCTION 3 gin_extract_query_trgm(text, internal, smallint, internal,
		internal, internal, internal),
	FUNCTION 6 gin_trgm_triconsistent(internal, smallint, text, integer,
		internal, internal, internal),
	STORAGE int4;
