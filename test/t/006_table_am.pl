# Tables of another access method than heap are refused, however the index is asked for.  test/modules/otheram makes
# one that is heap under another name, so that nothing but the refusal protects us from it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my (undef, undef, $stderr) = $node->psql(
	'postgres', q{
CREATE FUNCTION otheram_handler(internal) RETURNS table_am_handler AS '$libdir/otheram' LANGUAGE C;
CREATE ACCESS METHOD otheram TYPE TABLE HANDLER otheram_handler});
plan skip_all => "test/modules/otheram is not installed" if $stderr =~ /could not access file/;
is($stderr, '', 'the other table access method can be created');

# The statements fail, all for the same reason.
sub is_refused
{
	my ($table, $sql, $what) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	like($stderr,
		qr/ERROR:  0A000: cannot create index "[^"]*": table "$table" does not use the heap access method/, "$what is refused");
	like($stderr, qr/DETAIL:  Access method "bloomidx" can index only tables of access method "heap"\./, "$what is refused with a detail");
	return;
}

$node->safe_psql(
	'postgres', q{
CREATE TABLE other (a int) USING otheram;
CREATE TABLE empty (a int) USING otheram;
CREATE UNLOGGED TABLE unlogged (a int) USING otheram;
INSERT INTO other SELECT generate_series(1, 1000);
CREATE TABLE own (a int);
CREATE INDEX own_a ON own USING bloomidx (a);
INSERT INTO own SELECT generate_series(1, 1000);
CREATE TABLE parent (a int) PARTITION BY RANGE (a);
CREATE INDEX ON parent USING bloomidx (a);
});
is($node->safe_psql('postgres', 'SELECT count(*), sum(a) FROM other WHERE a < 500'),
	'499|124750', 'the other table access method stores rows');

is_refused('other', 'CREATE INDEX ON other USING bloomidx (a)', 'an index on a table with rows');
is_refused('empty', 'CREATE INDEX ON empty USING bloomidx (a)', 'an index on an empty table');
is_refused('unlogged', 'CREATE INDEX ON unlogged USING bloomidx (a)', 'an index on an unlogged table');
is_refused('other', 'CREATE INDEX CONCURRENTLY other_a ON other USING bloomidx (a)', 'CREATE INDEX CONCURRENTLY');
is_refused('copy', 'CREATE TABLE copy (LIKE own INCLUDING INDEXES) USING otheram', 'a copy of a table with its indexes');
is_refused('child', 'CREATE TABLE child PARTITION OF parent FOR VALUES FROM (1) TO (9) USING otheram', 'a partition of a table with an index');
is_refused('own', 'ALTER TABLE own SET ACCESS METHOD otheram', 'a change of the access method of a table with an index')
  if $node->safe_psql('postgres', 'SHOW server_version_num') >= 150000;

(undef, undef, $stderr) = $node->psql('postgres', "SELECT bloomidx_estimate('other', '{a}')");
like($stderr, qr/ERROR:  table "other" does not use the heap access method/, 'no index on it is estimated');

# What was refused has done no harm, and what a failed CONCURRENTLY leaves behind can go.
is($node->safe_psql('postgres', "SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 'other_a'::regclass"),
	'f|f', 'the index that a failed CREATE INDEX CONCURRENTLY leaves is neither valid nor ready');
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1001); VACUUM other; DROP INDEX other_a');
all_rows_found($node, 'own', 'a', 'own_a', 1000, 'after the refusals');
log_is_clean($node, 'another table access method');
$node->stop;
done_testing();
