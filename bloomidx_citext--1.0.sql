/* bloomidx_citext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION bloomidx_citext" to load this file. \quit

CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE citext USING bloomidx AS
	OPERATOR 1 = (citext, citext),
	FUNCTION 1 citext_hash_extended(citext, bigint);
