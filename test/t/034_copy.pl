# What COPY into an extracting index costs: the rows that are read ahead do not displace other pages from the shared buffers,
# slow functions are not called twice for a row, and a server with very few buffers has enough of them.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('copy', conf => "shared_buffers = 32MB\nmax_connections = 20\n");
my $file = PostgreSQL::Test::Utils::tempdir() . '/rows';

sub query { return $node->safe_psql('postgres', @_); }

# --- COPY uses a ring of an eighth of the shared buffers for the table, with an index that reads ahead, too.
SKIP:
{
	skip 'pg_buffercache is not available', 3
	  if query(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_buffercache'}) eq '0';
	my $index = using_index('tags array_elements_ops');

	query(
		qq{
CREATE EXTENSION pg_buffercache;
COPY (SELECT ARRAY[i, i + 1, i % 100, -i], repeat('x', 900) FROM generate_series(1, 20000) i) TO '$file';
CREATE TABLE plain (tags int[], pad text);
CREATE TABLE indexed (LIKE plain);
CREATE INDEX ON indexed $index;
});
	foreach my $table ('plain', 'indexed')
	{
		my ($pages, $cached) = split /\|/,
		  query(
			qq{
COPY $table FROM '$file';
SELECT (SELECT pg_relation_size(relid) / current_setting('block_size')::int FROM (SELECT '$table'::regclass) t (relid)), count(*)
	FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0
	AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database());
});
		cmp_ok($cached, '<', $pages / 2, "COPY into table $table keeps $cached of $pages pages in the shared buffers");
	}
	is(query(q{SELECT bloomidx_check('indexed_tags_idx')}), 20000, 'the index has all rows');
}

# --- A hash function of a user is called once for each key.
query(
	q{
CREATE SEQUENCE calls;
CREATE FUNCTION counted(text, bigint) RETURNS bigint IMMUTABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('public.calls');
	RETURN hashtextextended($1, $2);
END $$;
CREATE OPERATOR CLASS counted_ops FOR TYPE tsvector USING bloomidx AS
	OPERATOR 1 @@ (tsvector, tsquery), FUNCTION 1 counted(text, bigint), FUNCTION 2 gin_extract_tsvector(tsvector, internal, internal),
	FUNCTION 3 gin_extract_tsquery(tsvector, internal, smallint, internal, internal, internal, internal),
	FUNCTION 6 gin_tsquery_triconsistent(internal, smallint, tsvector, integer, internal, internal, internal), STORAGE text;
CREATE TABLE words (words tsvector);
CREATE INDEX words_i ON words } . using_index('words counted_ops', pages_per_range => 1) . q{;
INSERT INTO words VALUES ('a b c');
});
my $before = query(q{SELECT nextval('calls')});
query(qq{COPY (SELECT format('k%s l%s m%s', i, i, i) FROM generate_series(1, 100) i) TO '$file'; COPY words FROM '$file'});
is(query(q{SELECT nextval('calls')}) - $before - 1, 300, 'COPY calls a user\'s hash function once for each key');
is(query(q{SET enable_seqscan = off; SELECT count(*) FROM words WHERE words @@ 'k77'}), 1, 'and the row is found');

# --- 16 buffers are the fewest that a server can have.
query(q{ALTER SYSTEM SET shared_buffers = '128kB'});
$node->restart;
query(q{
CREATE TABLE lines (id int, line text);
CREATE INDEX lines_line ON lines } . using_index('line text_ngram_ops') . q{;
INSERT INTO lines SELECT i, 'line ' || md5(i::text) || md5('x' || i) FROM generate_series(1, 2000) i;
} . "COPY lines TO '$file'; COPY lines FROM '$file'");
is(query(q{SET enable_seqscan = off; SELECT count(*) FROM lines WHERE line LIKE '%' || md5('77') || '%'}),
	2, 'rows with many keys are inserted and found in a server with 16 buffers');
is(query(q{SELECT bloomidx_check('lines_line')}), 4000, 'the index has all rows');
$node->stop;

done_testing();
