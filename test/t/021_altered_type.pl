# A composite type gets another attribute, and rows with it are inserted, while VACUUM, which has looked the type up before,
# rebuilds filters.  VACUUM must not hash these rows by what it knew of the type, nor wait for a transaction that alters it.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('altered', extension => 'bloomidx_debug', conf => "fsync = off\n");

# Wide rows with one value, whose filters are small; then the pages are filled with many values.
sub make_table
{
	$node->safe_psql(
		'postgres', qq{
DROP TABLE IF EXISTS t;
DROP TYPE IF EXISTS comp;
CREATE TYPE comp AS (a int, b text);
CREATE TABLE t (k comp, pad text) WITH (fillfactor = 50, autovacuum_enabled = off);
CREATE INDEX t_k ON t @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO t SELECT ROW(1, '1')::comp, repeat('x', 200) FROM generate_series(1, 10000) i;
ALTER TABLE t SET (fillfactor = 100);
DELETE FROM t WHERE ctid::text ~ '[02468]\\)\$';
VACUUM (INDEX_CLEANUP off) t;
INSERT INTO t SELECT ROW(i, i)::comp, '' FROM generate_series(1, 30000) i;
});
	return;
}

# Alter the type, and insert rows, while VACUUM stands at that place.  Returns what VACUUM writes to standard error.
sub vacuum_beside
{
	my ($meanwhile) = @_;
	my $gate = new_gate($node);

	$gate->hold('published');
	my $vacuum = start_statement($node, "SET statement_timeout = '60s';\nVACUUM (INDEX_CLEANUP on) t");
	$gate->wait_for('published');
	$node->safe_psql('postgres', 'ALTER TYPE comp ADD ATTRIBUTE z text');
	$node->safe_psql('postgres', "INSERT INTO t SELECT ROW(i, i, 'zz')::comp, '' FROM generate_series(1, 20000) i");
	$meanwhile->() if $meanwhile;
	$gate->release('published');
	$vacuum->quit;
	$gate->quit;
	return $vacuum->{stderr};
}

make_table();
is(vacuum_beside(), '', 'VACUUM beside ALTER TYPE raises nothing');

# Some of the rows are looked up: with layout block each takes its time.
sub rows_are_found
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $node->safe_psql(
			'postgres', "SELECT oracle_lost_rows('t', 'k', 't_k', 'true', '(k).a % 40 = 0'), count(*) FROM t WHERE (k).z = 'zz'"),
		'0|20000',
		"$what: rows with the new attribute are found");
	return;
}

rows_are_found('after VACUUM beside ALTER TYPE');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) t');
rows_are_found('after another VACUUM');

# The same beside a transaction that has altered the type once more, and does not end before VACUUM does.  Since
# PostgreSQL 17 VACUUM has a search_path of its own, so that the type is named with its schema.
make_table();
my $owner = $node->background_psql('postgres');
like(
	vacuum_beside(sub { $owner->query_safe('BEGIN; ALTER TYPE comp ADD ATTRIBUTE y text') }),
	qr/\A[^\n]*WARNING:  could not rebuild filters of index "t_k": could not obtain locks on the types contained in type (public\.)?comp\n(?!.*ERROR)/s,
	'VACUUM beside ALTER TYPE that is not committed gives up');
$owner->query_safe('ROLLBACK');
rows_are_found('after VACUUM that gave up');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) t');
rows_are_found('after the next VACUUM');
is($node->safe_psql('postgres', "SELECT note FROM bloomidx_info('t_k')"), '', 'which has rebuilt the filters');
$owner->quit;

# An attribute whose type has a hash function in PL/pgSQL, which VACUUM must not call.
make_table();
$node->safe_psql('postgres', q{
CREATE TYPE num;
CREATE FUNCTION num_in(cstring) RETURNS num IMMUTABLE STRICT LANGUAGE internal AS 'int4in';
CREATE FUNCTION num_out(num) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'int4out';
CREATE TYPE num (INPUT = num_in, OUTPUT = num_out, LIKE = int4);
CREATE FUNCTION num_eq(num, num) RETURNS bool IMMUTABLE STRICT LANGUAGE internal AS 'int4eq';
CREATE FUNCTION num_cmp(num, num) RETURNS int IMMUTABLE STRICT LANGUAGE internal AS 'btint4cmp';
CREATE OPERATOR = (LEFTARG = num, RIGHTARG = num, FUNCTION = num_eq, COMMUTATOR = =, HASHES);
CREATE FUNCTION num_hash(num) RETURNS int IMMUTABLE STRICT LANGUAGE internal AS 'hashint4';
CREATE SEQUENCE calls;
CREATE FUNCTION num_hash(n num, seed bigint) RETURNS bigint IMMUTABLE STRICT LANGUAGE plpgsql AS
	$$ BEGIN PERFORM nextval('public.calls'); RETURN seed; END $$;
CREATE OPERATOR CLASS num_ops DEFAULT FOR TYPE num USING hash AS
	OPERATOR 1 =, FUNCTION 1 num_hash(num), FUNCTION 2 num_hash(num, bigint);
});
my $calls = sub { return $node->safe_psql('postgres', 'SELECT is_called FROM calls') };
my $stderr = vacuum_beside(
	sub {
		$node->safe_psql('postgres', q{ALTER TYPE comp ADD ATTRIBUTE h num; INSERT INTO t SELECT ROW(i, i, 'zz', '7'::num)::comp, '' FROM generate_series(1, 100) i});
		is($calls->(), 't', 'INSERT calls the hash function in PL/pgSQL');
		$node->safe_psql('postgres', q{SELECT setval('calls', 1, false)});
	});
like( $stderr,
	qr/\A[^\n]*WARNING:  could not rebuild filters of index "t_k": a type in column 1 of index "t_k" was altered, and now has a user-defined hash function\n(?!.*ERROR)/s,
	'VACUUM gives up when a type has got a hash function in PL/pgSQL');
is($calls->(), 'f', 'VACUUM does not call the function');

# An attribute whose type has no hash function: the table can still be truncated and rewritten, and rows without a value of the
# attribute inserted; but no new index can be created.  While the type is being altered, TRUNCATE does not wait.
$node->safe_psql(
	'postgres', qq{
CREATE TYPE other AS (a int, b text);
CREATE TABLE o (k other);
CREATE INDEX o_k ON o @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO o SELECT ROW(i, 'b')::other FROM generate_series(1, 1000) i;
ALTER TYPE other ADD ATTRIBUTE j json;
});
foreach my $command ('VACUUM FULL o', 'REINDEX TABLE o', 'TRUNCATE o')
{
	my ($status, undef, $stderr) = $node->psql('postgres', $command);
	is($status, 0, "$command does not fail if the owner of a type has added an attribute that cannot be hashed") or diag $stderr;
}
my $altering = $node->background_psql('postgres');
$altering->query_safe('BEGIN; ALTER TYPE other ADD ATTRIBUTE i int');
my ($waited, undef, $timeout) = $node->psql('postgres', "SET statement_timeout = '20s'; TRUNCATE o");
is($waited, 0, 'TRUNCATE does not wait for a transaction that alters a type') or diag $timeout;
$altering->query_safe('ROLLBACK');

# Nor does REINDEX of a table that is large enough for a parallel build, which user-defined functions would prevent.
$node->safe_psql(
	'postgres', qq{
CREATE TYPE inner_pair AS (a int);
CREATE TYPE outer_pair AS (a int, b inner_pair);
CREATE TABLE large (k outer_pair, pad text) WITH (fillfactor = 10);
CREATE INDEX large_k ON large @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO large SELECT ROW(i, NULL)::outer_pair, repeat('x', 900) FROM generate_series(1, 17000) i;
});
$altering->query_safe('BEGIN; ALTER TYPE inner_pair ADD ATTRIBUTE b int');
($waited, undef, $timeout) = $node->psql('postgres', "SET statement_timeout = '60s'; REINDEX INDEX large_k");
is($waited, 0, 'REINDEX of a large table does not wait for a transaction that alters a type') or diag $timeout;
$altering->query_safe('ROLLBACK');
$altering->quit;
$node->safe_psql('postgres', q{INSERT INTO o SELECT ROW(i, 'b', NULL)::other FROM generate_series(1, 1000) i});
is($node->safe_psql('postgres', q{SELECT bloomidx_check('o_k')}), '1000', 'rows without a value of the attribute have their keys in the index');
my ($failed, undef, $error) = $node->psql(
	'postgres', qq{
CREATE TYPE third AS (a int);
CREATE TEMP TABLE again (k third) ON COMMIT DELETE ROWS;
CREATE INDEX again_k ON again @{[ using_index('k') ]};
TRUNCATE again;
ALTER TYPE third ADD ATTRIBUTE j json;
INSERT INTO again VALUES (ROW(1, NULL));
SELECT count(*) FROM again;
});
is($failed, 0, 'an empty index of a temporary table is built again at each commit') or diag $error;
($failed, undef, $error) = $node->psql('postgres', 'CREATE INDEX ON o ' . using_index('k'));
like($error, qr/ERROR:  cannot create index "o_k_idx": values of column "k" cannot be hashed/, 'a new index is refused');
($failed, undef, $error) = $node->psql(
	'postgres', q{
BEGIN;
CREATE TABLE again (a int, b text[]);
CREATE INDEX again_i ON again USING bloomidx (a, b array_elements_ops);
ALTER INDEX again_i SET (keys = all);
TRUNCATE again;
COMMIT});
is($failed, 0, 'an index that was created in the same transaction is built again');
like($error, qr/WARNING:  index "again_i" is built without combined keys/, 'with a warning');

log_is_clean($node, 'a type that is altered');
done_testing();
