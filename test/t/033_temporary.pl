# A temporary and a permanent index whose files have the same number.  The names of the files of temporary relations have a
# prefix, so PostgreSQL may choose a number that a permanent relation has, after the counter of OIDs has wrapped around.
# Nothing that a session remembers of the pages of one index may be used for the other.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('temporary');
my $index = using_index('k', pages_per_range => 1);
my $rows = 20000;

# A rebuilt index has a file whose number is not the OID of a relation.
$node->safe_psql(
	'postgres', qq{
CREATE TABLE permanent AS SELECT i AS k FROM generate_series(1, $rows) i;
CREATE INDEX permanent_k ON permanent $index;
REINDEX INDEX permanent_k;
VACUUM ANALYZE permanent;
});
my $number = $node->safe_psql('postgres', q{SELECT relfilenode FROM pg_class WHERE relname = 'permanent_k'});
$node->stop;
command_ok([ 'pg_resetwal', '-o', $number - 100, $node->data_dir ], 'the counter of OIDs is set back');
$node->start;

my $session = $node->background_psql('postgres');
$session->query_safe(
	qq{
CREATE TEMP TABLE temporary AS SELECT -i AS k FROM generate_series(1, $rows) i;
CREATE FUNCTION pg_temp.create_index(number oid) RETURNS bool LANGUAGE plpgsql AS \$\$
BEGIN
	FOR i IN 1 .. 200 LOOP
		CREATE INDEX temporary_k ON temporary $index;
		IF (SELECT relfilenode FROM pg_class WHERE oid = 'pg_temp.temporary_k'::regclass) = number THEN
			ANALYZE temporary;
			RETURN true;
		END IF;
		DROP INDEX temporary_k;
	END LOOP;
	RETURN false;
END \$\$;
SET enable_seqscan = off;
});
is($session->query_safe("SELECT pg_temp.create_index($number)"), 't', 'a temporary index has a file with the same number');

# Each index is searched after the other, key by key, so that no step of a search can hide the steps before it.
foreach my $round (1 .. 2)
{
	foreach my $case ([ 'permanent', 1 ], [ 'temporary', -1 ])
	{
		my ($table, $sign) = @$case;

		like($session->query_safe("EXPLAIN SELECT FROM $table WHERE k = $sign"), qr/${table}_k/, "the index of the $table table is used");
		is( $session->query_safe(
				"SELECT count(*) FROM generate_series(1, $rows, 97) i, LATERAL (SELECT FROM $table WHERE k = $sign * i OFFSET 0) t"),
			int(($rows - 1) / 97) + 1,
			"all rows of the $table table are found, round $round");
	}
}
is($session->query_safe("INSERT INTO permanent SELECT i FROM generate_series($rows + 1, $rows + 1000) i; SELECT bloomidx_check('permanent_k')"),
	$rows + 1000, 'inserts reach the permanent index');
is($session->query_safe("INSERT INTO temporary SELECT -i FROM generate_series($rows + 1, $rows + 1000) i; SELECT bloomidx_check('temporary_k')"),
	$rows + 1000, 'inserts reach the temporary index');
$session->quit;
is($node->safe_psql('postgres', q{SELECT bloomidx_check('permanent_k')}), $rows + 1000, 'the permanent index is intact');
$node->stop;

done_testing();
