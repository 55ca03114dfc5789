-- Operator classes that extract several keys from one value.  A test for each trap that would lose rows; random
-- queries are in test/t/023_extract.pl.
\set ECHO none
\set test extraction
\set oracle `echo "${PG_ABS_SRCDIR:-.}/sql/include/oracle.sql"`
\i :oracle
\set ECHO all

-- All classes are complete.
SELECT opcname FROM pg_opclass o JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'bloomidx' AND NOT amvalidate(o.oid);

CREATE TABLE t (id int, tags text[], attributes jsonb, words tsvector, line text) WITH (fillfactor = 20);
CREATE FUNCTION fill(first int, last int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO t
	SELECT i, ARRAY['tag' || i, 'tag' || i % 10, CASE WHEN i % 100 = 7 THEN NULL ELSE 'x' END],
		jsonb_build_object('id', i, 'kind', 'kind' || i % 10, 'nested', jsonb_build_object('a', ARRAY[i, i + 1])),
		to_tsvector('simple', 'word' || i || ' other' || i % 10 || ' common'), 'Line ' || i || ' of the Log: ' || md5(i::text)
	FROM generate_series(first, last) i
$$;
SELECT fill(1, 1500);
CREATE INDEX t_tags ON t USING bloomidx (tags array_elements_ops) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX t_contains ON t USING bloomidx (attributes jsonb_contains_ops) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX t_words ON t USING bloomidx (words) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX t_ngram ON t USING bloomidx (line text_ngram_ops) WITH (layout = :layout, pages_per_range = 1);
SELECT fill(1501, 2000);
INSERT INTO t VALUES (-1, '{}', '{}', '', ''), (-2, NULL, NULL, NULL, NULL), (-3, '{NULL}', 'null', 'foo', 'x');

-- Rows that were there and rows that were added, one row out of many pages.
SELECT * FROM ask('SELECT * FROM t WHERE tags @> ''{tag700}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags && ''{tag700,tag1700,nothing}''');
SELECT * FROM ask('SELECT * FROM t WHERE attributes @> ''{"id": 1800}''');
SELECT * FROM ask('SELECT * FROM t WHERE attributes @? ''$.nested.a[*] ? (@ == 900)''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''word1700 & common''');
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ''%Line 1999 of%''');
SELECT * FROM ask('SELECT * FROM t WHERE line ILIKE ''%LINE 1999 OF%''');
SELECT matching_pages('t', condition) < 10 AS few_pages, condition FROM unnest(ARRAY['tags @> ''{tag700}''', 'attributes @> ''{"id": 1800}''',
	'words @@ ''word1700 & common''', 'line LIKE ''%Line 1999 of%''', 'line ILIKE ''%LINE 1999 OF%''']) condition;

-- Trap 1: a filter is the union of many rows, so a key is never known to be in each row.
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''!common''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''other3 & !word13''');
-- Trap 2: a prefix is never absent.
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''word170:*''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''word170:* & word1700''');
-- Trap 3: in the default mode a key must be present; no key matches nothing; other modes match empty values.
SELECT * FROM ask('SELECT * FROM t WHERE tags && ''{nothing,nobody}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags && ''{}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags @> ''{}''');
SELECT * FROM ask('SELECT * FROM t WHERE attributes @> ''{}''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''''::tsquery');
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ''%x%''');
SELECT matching_pages('t', 'tags && ''{nothing,nobody}''') < 20 AS few_pages;
-- A class that has GIN's operator for "is contained by", which asks for empty values.
CREATE OPERATOR CLASS contained FOR TYPE anyarray USING bloomidx AS
	OPERATOR 3 <@ (anyarray, anyarray), FUNCTION 2 ginarrayextract(anyarray, internal, internal),
	FUNCTION 3 ginqueryarrayextract(anyarray, internal, smallint, internal, internal, internal, internal),
	FUNCTION 6 ginarraytriconsistent(internal, smallint, anyarray, integer, internal, internal, internal), STORAGE anyelement;
BEGIN;
CREATE INDEX t_contained ON t USING bloomidx (tags contained) WITH (layout = :layout, pages_per_range = 1);
SELECT * FROM ask('SELECT * FROM t WHERE tags <@ ''{tag7,x,tag1700,tag0}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags <@ ''{}''');
ROLLBACK;
-- Trap 4: an element that is NULL.
SELECT * FROM ask('SELECT * FROM t WHERE tags && ''{NULL}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags @> ''{NULL,tag7}''');
SELECT * FROM ask('SELECT * FROM t WHERE tags IS NULL');
SELECT * FROM ask('SELECT * FROM t WHERE tags IS NOT NULL AND id < 0');
-- Trap 5 and 13: a class that has only a boolean consistent function, which need not be monotone.
CREATE OPERATOR CLASS boolean_tsvector FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery),
	FUNCTION 1 bloomidx_hash_key(text, bigint), FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal),
	FUNCTION 3 gin_extract_tsquery(tsvector, internal, smallint, internal, internal, internal, internal),
	FUNCTION 4 gin_tsquery_consistent(internal, smallint, tsvector, integer, internal, internal, internal, internal),
	STORAGE text;
BEGIN;
DROP INDEX t_words;
CREATE INDEX t_boolean ON t USING bloomidx (words boolean_tsvector) WITH (layout = :layout, pages_per_range = 1);
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''!common''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''word5 | !(word6 & other6)''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''word5 & !(word6 & other6)''');
SELECT * FROM ask(format('SELECT * FROM t WHERE words @@ %L', (SELECT string_agg('word' || i, ' | ') FROM generate_series(1, 20) i)));
SELECT * FROM ask(format('SELECT * FROM t WHERE words @@ %L', 'common & other5 & !a & !b & !c & !d & !e & !f & !g & !h & !i & !j & word15'));
SELECT matching_pages('t', 'words @@ ''word5 & !(word6 & other6)''') < 10 AS few_pages;
ROLLBACK;
-- Trap 6: a scan that is repeated with other operands.
CREATE TABLE wanted (tag text, word text);
INSERT INTO wanted SELECT 'tag' || i, 'word' || i FROM generate_series(1, 2000, 97) i;
SELECT * FROM ask('SELECT * FROM wanted w, LATERAL (SELECT id FROM t WHERE t.tags @> ARRAY[w.tag] OFFSET 0) t');
SELECT * FROM ask('SELECT * FROM wanted w, LATERAL (SELECT id FROM t WHERE t.words @@ w.word::tsquery OFFSET 0) t');
-- Trap 7: strategy numbers are those of the functions; elements are equal as their type says.
CREATE TABLE elements (a numeric[], b char(4)[], c money[], d bool[], e xml[]);
INSERT INTO elements SELECT ARRAY[i, i / 2.0], ARRAY['k' || i], ARRAY[i::money] FROM generate_series(1, 500) i;
CREATE INDEX elements_a ON elements USING bloomidx (a array_elements_ops) WITH (layout = :layout);
CREATE INDEX elements_b ON elements USING bloomidx (b array_elements_ops) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM elements WHERE a @> ''{7.000,3.50}''');
SELECT * FROM ask('SELECT * FROM elements WHERE b && ''{"k9   "}''::char(4)[]');
SELECT attempt('CREATE INDEX ON elements USING bloomidx (c array_elements_ops)');
SELECT attempt('CREATE INDEX ON elements USING bloomidx (e array_elements_ops)');
CREATE TYPE pair AS (a int, b money);
CREATE TABLE pairs (c pair[]);
SELECT attempt('CREATE INDEX ON pairs USING bloomidx (c array_elements_ops)');
CREATE TABLE fixed (u uuid[], o oid[], b bytea[]);
INSERT INTO fixed SELECT ARRAY[md5(i::text)::uuid], ARRAY[4000000000 + i]::oid[], ARRAY[decode(md5(i::text), 'hex')] FROM generate_series(1, 500) i;
CREATE INDEX fixed_all ON fixed USING bloomidx (u array_elements_ops, o array_elements_ops, b array_elements_ops) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM fixed WHERE u @> ARRAY[md5(''77'')]::uuid[]');
SELECT * FROM ask('SELECT * FROM fixed WHERE o && ''{4000000077,77}''');
SELECT * FROM ask('SELECT * FROM fixed WHERE b @> ARRAY[decode(md5(''77''), ''hex'')]');
-- Trap 8: two operators of a family need not agree about what is equal.
SELECT * FROM ask('SELECT * FROM t a WHERE a.tags && ''{tag5}'' AND a.tags @> ''{x}''');
-- Trap 9: ANY, with every operator.
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ANY (''{%Line 5 of%,%Line 1999 of%,NULL}'')');
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ANY (''{%Line 5 of%,%x%}'')');
SELECT * FROM ask('SELECT * FROM t WHERE attributes @> ANY (''{"{\"id\": 5}","{\"id\": 6}"}''::jsonb[])');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ANY (''{word5,"word6 & nothing"}''::tsquery[])');
-- Trap 10: values that are compressed or stored out of line, which cannot be extracted under a lock.
CREATE TABLE big (id int, line text, tags text[]);
ALTER TABLE big ALTER line SET STORAGE EXTERNAL;
INSERT INTO big SELECT i, repeat(md5(i::text) || ' ', 200), array_agg(md5((i * 1000 + j)::text)) FROM generate_series(1, 40) i, generate_series(1, 200) j GROUP BY i;
CREATE INDEX big_line ON big USING bloomidx (line text_ngram_ops) WITH (layout = :layout);
CREATE INDEX big_tags ON big USING bloomidx (tags array_elements_ops) WITH (layout = :layout);
INSERT INTO big SELECT i, repeat(md5(i::text) || ' ', 200), array_agg(md5((i * 1000 + j)::text)) FROM generate_series(41, 60) i, generate_series(1, 200) j GROUP BY i;
INSERT INTO big SELECT 100, string_agg(md5(i::text) || U&' stra\00DFe ', '') FROM generate_series(1, 3000) i;
SELECT * FROM ask('SELECT * FROM big WHERE line LIKE ''%' || md5('50') || '%''');
SELECT * FROM ask('SELECT * FROM big WHERE line ILIKE ''%' || md5('2999') || U&' stra\00DFe %''');
SELECT * FROM ask('SELECT * FROM big WHERE tags @> ARRAY[''' || md5('50077') || ''']');
-- Trap 11: function 1 of GIN is a comparison, not a hash.
CREATE OPERATOR CLASS like_gin FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery),
	FUNCTION 1 gin_cmp_tslexeme(text, text), FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal),
	FUNCTION 3 gin_extract_tsquery(tsvector, internal, smallint, internal, internal, internal, internal),
	FUNCTION 5 gin_cmp_prefix(text, text, smallint, internal),
	FUNCTION 6 gin_tsquery_triconsistent(internal, smallint, tsvector, integer, internal, internal, internal), STORAGE text;
SELECT attempt('CREATE INDEX ON t USING bloomidx (words like_gin)');
CREATE OPERATOR CLASS incomplete FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery), FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal), STORAGE text;
SELECT attempt('CREATE INDEX ON t USING bloomidx (words incomplete)');
CREATE OPERATOR CLASS stored FOR TYPE int4 USING bloomidx AS
	OPERATOR 1 = (int4, int4), FUNCTION 1 bloomidx_hash(int4, bigint), STORAGE int8;
SELECT attempt('CREATE INDEX ON t USING bloomidx (id stored)');
SELECT opcname, amvalidate(oid)
FROM (SELECT opcname, oid FROM pg_opclass WHERE opcnamespace = 'extraction'::regnamespace ORDER BY opcname OFFSET 0) c;
DROP OPERATOR FAMILY incomplete USING bloomidx;
DROP OPERATOR FAMILY like_gin USING bloomidx;
DROP OPERATOR FAMILY stored USING bloomidx;
-- Trap 12: keys that occur several times in an operand, and a column without collation.
SELECT * FROM ask('SELECT * FROM t WHERE tags @> ''{tag5,tag5,x,tag5}''');
SELECT * FROM ask('SELECT * FROM t WHERE words @@ ''(word5 & other5) | (word5 & other6)''');
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ''%Line 7%Line 7%''');

-- Letter case.  LIKE compares the letters themselves, and ILIKE their lower case under the collation.
CREATE TABLE letters (line text);
INSERT INTO letters SELECT 'filler ' || md5(i::text) FROM generate_series(1, 3000) i;
INSERT INTO letters VALUES (U&'the \212Aelvin sign'), ('the Kelvin sign'), (U&'ali\015Fveri\015F yap\0131yor'), (U&'DI\015EARIDA KALAN'),
	(U&'D\0130YARBAKIR'), (U&'\039F\0394\039F\03A3'), (U&'\039F\0394\039F\03A3\0391'), (U&'\03BF\03B4\03BF\03C2'), (U&'I\0307stanbul'),
	(U&'I\0323\0307stanbul'), (U&'STRASSE stra\00DFe STRA\1E9EE'), (U&'\041C\041E\0421\041A\0412\0410 \043C\043E\0441\043A\0432\0430'),
	(U&'\4E2D\6587\5B57\7B26\4E32'), ('100% sure_thing\ here');
CREATE FUNCTION ask_letters() RETURNS TABLE (pattern text, operator text, nrows bigint, equal bool, used bool) LANGUAGE plpgsql AS $$
DECLARE
	answer record;
BEGIN
	FOREACH pattern IN ARRAY ARRAY[U&'%the \212Aelvin%', '%the kelvin%', U&'%\212AELVIN%', U&'%yap\0131yor%', U&'%I\015EARIDA%', U&'%D\0130YARB%',
		'%DIYARBAKIR%', U&'%\0394\039F\03A3%', U&'%\039F\0394\039F\03A3\0391%', U&'%\03BF\03B4\03BF\03C2%', U&'%\03BF\03B4\03BF\03C3%', '%Istanbul%',
		'%istanbul%', U&'%I\0307stanbul%', U&'%\0307stanbul%', '%stanbul', U&'%STRA\1E9EE%', U&'%stra\00DFe%', '%strasse%',
		U&'%\043C\043E\0441\043A\0432\0430%', U&'%\6587\5B57\7B26\4E32%', '%100\% sure\_thing\\ here', '100_ sure%'] LOOP
		FOREACH operator IN ARRAY ARRAY['LIKE', 'ILIKE'] LOOP
			SELECT * INTO answer FROM ask(format('SELECT * FROM letters WHERE line %s %L', operator, pattern));
			nrows := answer.rows;
			equal := answer.equal;
			used := answer.plan LIKE '%letters_line%';
			RETURN NEXT;
		END LOOP;
	END LOOP;
END $$;
CREATE INDEX letters_line ON letters USING bloomidx (line text_ngram_ops(n = 3)) WITH (layout = :layout);
SELECT bool_and(equal) AS equal, bool_and(used) AS used, count(*) FROM ask_letters();
ALTER TABLE letters ALTER line TYPE text COLLATE "C";
SELECT bool_and(equal) AS equal, bool_and(used) AS used, count(*) FROM ask_letters();

-- The beginnings of strings.
CREATE TABLE prefixes (path varchar(100));
INSERT INTO prefixes SELECT '/var/log/' || i % 100 || '/file' || i FROM generate_series(1, 3000) i;
CREATE INDEX prefixes_path ON prefixes USING bloomidx (path text_prefix_ops(length = 11)) WITH (layout = :layout);
SELECT * FROM ask('SELECT * FROM prefixes WHERE path ^@ ''/var/log/77/file1''');
SELECT * FROM ask('SELECT * FROM prefixes WHERE path LIKE ''/var/log/77/%9''');
SELECT * FROM ask('SELECT * FROM prefixes WHERE path LIKE ''/var/log/77/file77''');
SELECT * FROM ask('SELECT * FROM prefixes WHERE path LIKE ''/v%file77''');
SELECT * FROM ask('SELECT * FROM prefixes WHERE path = ''/var/log/77/file77''');
SELECT attempt('CREATE INDEX ON prefixes USING bloomidx (path text_prefix_ops(length = 0))');
SELECT attempt('CREATE INDEX ON prefixes USING bloomidx (path text_ngram_ops(n = 17))');
SELECT attempt('CREATE INDEX ON prefixes USING bloomidx (path text_ngram_ops(length = 3))');

-- Plain and extracting columns in one index, expressions, domains, and NULLs.
CREATE DOMAIN labels AS text[];
CREATE TABLE mixed (id int, tags labels, line text);
INSERT INTO mixed SELECT i % 500, ARRAY['tag' || i % 300], 'Error ' || i FROM generate_series(1, 4000) i;
CREATE INDEX mixed_all ON mixed USING bloomidx (id, tags array_elements_ops, to_tsvector('simple', line)) WITH (layout = :layout);
INSERT INTO mixed VALUES (NULL, '{tag5}', NULL), (5, NULL, 'Error');
SELECT * FROM ask('SELECT * FROM mixed WHERE id = 5');
SELECT * FROM ask('SELECT * FROM mixed WHERE id = 305 AND tags @> ''{tag5}''');
SELECT * FROM ask('SELECT * FROM mixed WHERE to_tsvector(''simple'', line) @@ ''error & 1234''');
SELECT * FROM ask('SELECT * FROM mixed WHERE id IN (5, 6) AND tags && ''{tag5,tag6}'' AND to_tsvector(''simple'', line) @@ ''error & !5''');
SELECT * FROM ask('SELECT * FROM mixed WHERE tags IS NULL');

-- The default rate depends on the classes.
SELECT c.relname, (bloomidx_info(c.oid)).false_positive_rate FROM pg_class c WHERE relname IN ('t_words', 't_ngram', 'mixed_all') ORDER BY 1;

-- bloomidx_probe takes a value, and looks for all its keys.
SELECT count(*) BETWEEN 1 AND 10 FROM bloomidx_probe('t_tags', '{tag700,x}'::text[]);
SELECT count(*) FROM bloomidx_probe('t_tags', '{tag700,tag701}'::text[]) p WHERE p.first_block > 1000;
SELECT count(*) > 0 FROM bloomidx_probe('t_ngram', 'Line 1999 of the Log'::text);
SELECT count(*) > 0 FROM bloomidx_probe('t_tags', NULL::text[]);
SELECT attempt('SELECT bloomidx_probe(''t_tags'', 5)');

-- COPY puts rows on a page before it inserts the first of them into an index, which then reads the others ahead: rows with
-- NULLs and without parts, values that are compressed or out of line, rows with a single key, plain columns.
CREATE TABLE copied (id int, tags text[], line text) WITH (fillfactor = 50);
ALTER TABLE copied ALTER line SET STORAGE external;
CREATE INDEX copied_all ON copied USING bloomidx (id, tags array_elements_ops, line text_ngram_ops) WITH (layout = :layout);
CREATE INDEX copied_tags ON copied USING bloomidx (tags array_elements_ops) WITH (layout = :layout, pages_per_range = 1);
CREATE INDEX copied_words ON copied USING bloomidx (to_tsvector('simple', line)) WITH (layout = :layout);
CREATE INDEX copied_odd ON copied USING bloomidx (line text_ngram_ops) WITH (layout = :layout) WHERE id % 2 = 1;
SELECT file, 'rm ' || quote_literal(file) AS remove FROM concat(current_setting('data_directory'), '/bloomidx_copied') file \gset
COPY (SELECT nullif(i, 77), CASE WHEN i % 10 = 3 THEN '{}' WHEN i % 10 = 4 THEN NULL WHEN i % 10 = 5 THEN '{NULL}'
		WHEN i % 100 = 6 THEN (SELECT array_agg('big' || i + j) FROM generate_series(1, 400) j)
		WHEN i % 100 = 8 THEN array_fill('same' || i, ARRAY[3000]) ELSE ARRAY['tag' || i, 'x', 'y', 'z', 'tag' || i % 10] END,
		CASE WHEN i % 50 = 8 THEN repeat('long ' || i, 700) WHEN i % 50 = 9 THEN '' ELSE 'line ' || md5(i::text) END
	FROM generate_series(1, 2000) i) TO :'file';
COPY copied FROM :'file';
BEGIN;
SAVEPOINT s;
COPY copied FROM :'file';
ROLLBACK TO s;
COPY copied FROM :'file';
INSERT INTO copied VALUES (4000, '{between}', 'line between');
COPY copied FROM :'file';
COMMIT;
DELETE FROM copied WHERE id % 3 = 0;
VACUUM copied;
COPY copied FROM :'file';
COPY (SELECT) TO PROGRAM :'remove';
SELECT indexes_are_good();
SELECT * FROM ask('SELECT * FROM copied WHERE tags @> ''{tag1201}''');
SELECT * FROM ask('SELECT * FROM copied WHERE tags @> ''{big1225}''');
SELECT * FROM ask('SELECT * FROM copied WHERE tags @> ''{same1208}''');
SELECT * FROM ask('SELECT * FROM copied WHERE tags @> ''{}''');
SELECT * FROM ask('SELECT * FROM copied WHERE line LIKE ''%'' || md5(''1201'') || ''%''');
SELECT "rows", equal FROM ask('SELECT * FROM copied WHERE line LIKE ''%'' || md5(''1201'') || ''%'' AND id % 2 = 1');
SELECT * FROM ask('SELECT * FROM copied WHERE line LIKE ''%long 1208long%''');
SELECT * FROM ask('SELECT * FROM copied WHERE tags && ''{between,tag1999}''');
SELECT * FROM ask('SELECT * FROM copied WHERE id IS NULL');
SELECT matching_pages('copied', 'tags @> ''{tag1201}''') < 20 AS few_pages;

-- Rows with thousands of keys each, several on a page.
CREATE TABLE copied_wide (line text) WITH (toast_tuple_target = 8160);
CREATE INDEX copied_wide_line ON copied_wide USING bloomidx (line text_ngram_ops) WITH (layout = :layout, pages_per_range = 1);
COPY (SELECT string_agg(md5(i || '.' || j), '') FROM generate_series(1, 100) i, generate_series(1, 80) j GROUP BY i) TO :'file';
COPY copied_wide FROM :'file';
COPY (SELECT) TO PROGRAM :'remove';
SELECT * FROM ask('SELECT * FROM copied_wide WHERE line LIKE ''%'' || md5(''77.77'') || ''%''');

-- Without rows deleted, VACUUM and bloomidx_summarize keep all keys.
DELETE FROM t WHERE id % 2 = 0;
VACUUM t;
SELECT bloomidx_summarize('t_tags') >= 0;
SELECT * FROM ask('SELECT * FROM t WHERE tags && ''{tag701,tag1701}''');
SELECT * FROM ask('SELECT * FROM t WHERE line LIKE ''%Line 1997 of%''');
-- The indexes that are left are good.
SELECT indexes_are_good();
DROP SCHEMA extraction CASCADE;
