# Concurrency: sessions that insert, update and delete, race for new segments, build and rebuild indexes and vacuum,
# while others look up rows that they have seen.  A client that misses a row aborts, and the test fails.
#
#   BLOOMIDX_SECONDS  duration of each of the two long runs (7)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{BLOOMIDX_SECONDS} || 7;
my $node = new_node('concurrent', conf => "deadlock_timeout = 200ms\n");

sub sql { return $node->safe_psql('postgres', join ';', @_); }

# Wait for pgbench to end; it must not have met an error.
sub clients_succeed
{
	my ($clients, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$clients->{harness}->finish;
	unlike($clients->{stderr}, qr/ERROR|FATAL|aborted/, "$what: no client fails");
	like($clients->{stdout}, qr/transactions actually processed: [1-9]/, "$what: clients run at least one transaction");
	return;
}

#
# Snapshots that are older than a change, or than the index.
#

sql("CREATE TABLE old (k int, n int, pad text)",
	"INSERT INTO old SELECT i, i, 'x' FROM generate_series(1, 5000) i",
	"CREATE INDEX old_k ON old " . using_index('k', pages_per_range => 1),
	"CREATE INDEX old_n ON old " . using_index('n', pages_per_range => 1));

# A session has its snapshot from before all the changes and looks at the table once, lest its locks stop the rest.
my @changes = (
	'nothing' => [],
	'updates and deletes' => [
		"UPDATE old SET pad = 'y' WHERE k % 5 = 0",
		"UPDATE old SET n = -n WHERE k % 5 = 1",
		"UPDATE old SET k = -k WHERE k % 5 = 2",
		"UPDATE old SET pad = 'z' WHERE k % 5 = 0",
		"DELETE FROM old WHERE k % 5 = 3"
	],
	'VACUUM' => ['VACUUM old'],
	'REINDEX' => ['REINDEX TABLE old'],
	'CREATE INDEX' => [ 'DROP INDEX old_n', 'CREATE INDEX old_n ON old ' . using_index('n, pad', pages_per_range => 1) ],
	'growth' => [
		'INSERT INTO old SELECT i, i FROM generate_series(10001, 15000) i', 'DELETE FROM old WHERE k > 14000',
		'VACUUM old'
	],
	'VACUUM FULL' => ['VACUUM FULL old']);
my @readers = map { old_snapshot($node) } 1 .. @changes / 2;
while (my ($what, $statements) = splice @changes, 0, 2)
{
	my $session = shift @readers;

	sql($_) foreach @$statements;
	foreach my $column ('k', 'n')
	{
		is( $session->query_safe("SELECT oracle_lost_rows('old', '$column', 'old_$column'), count(*), sum(k) FROM old"),
			'0|5000|12502500',
			"an old snapshot finds its rows by $column after $what");
	}
	$session->query_safe('COMMIT');
	$session->quit;
}
all_rows_found($node, 'old', 'k', 'old_k', 5000, 'new snapshot after all changes');
all_rows_found($node, 'old', 'n', 'old_n', 5000, 'new snapshot after all changes');

#
# CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY wait for a transaction that has inserted and goes on doing so.
#

my $writer = $node->background_psql('postgres', on_error_stop => 1);
foreach my $command ('CREATE INDEX CONCURRENTLY old_late ON old ' . using_index('k', pages_per_range => 2),
	'REINDEX INDEX CONCURRENTLY old_late')
{
	sql('DROP INDEX IF EXISTS old_k');
	my $write = "INSERT INTO old SELECT i, i FROM generate_series(20001, 20500) i; UPDATE old SET k = k + 100000 WHERE k %% 7 = %d";
	$writer->query_safe('BEGIN; ' . sprintf($write, 1));

	my $builder = start_in($node->background_psql('postgres', on_error_stop => 1), $command);
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'"
		  . " AND pid <> pg_backend_pid()") or die 'timed out waiting for the build to wait';
	$writer->query_safe(sprintf($write, 2));
	$writer->query_safe('COMMIT');
	$builder->query_safe('SELECT 1');
	$builder->quit;
	all_rows_found($node, 'old', 'k', 'old_late', 5000, $command);
}
$writer->quit;

#
# The first rows of an empty index, by many sessions at once: they race for the geometry, the first partition and every
# segment.  Several rows to a page for one table, one for the other.
#

foreach my $race (1 .. 4)
{
	my $pad = $race % 2 ? 7000 : 1000;
	sql("CREATE TABLE race$race (k uuid, n int, pad text)",
		"ALTER TABLE race$race ALTER pad SET STORAGE PLAIN",
		"CREATE INDEX race${race}_i ON race$race "
		  . using_index('k, n', $race <= 2 ? (pages_per_range => 1) : ()));
	my $insert = "INSERT INTO race$race SELECT gen_random_uuid(), (random() * 1e9)::int, repeat('x', $pad) FROM generate_series(1, 2);\n";
	clients_succeed(start_pgbench($node, { "race$race" => [ 1, $insert ] }, '-c', 10, '-j', 2, '-t', 40), "race $race for the first pages");
	all_rows_found($node, "race$race", $_, "race${race}_i", 800, 'after the race for the first pages') foreach 'k', 'n';
}

#
# Everything at once, and the index rebuilt under it.
#

sql("CREATE TABLE busy (k uuid, n int, s text, pad text)",
	"ALTER TABLE busy ALTER pad SET STORAGE PLAIN",
	"CREATE INDEX busy_k ON busy " . using_index('k', pages_per_range => 1),
	"CREATE INDEX busy_s ON busy " . using_index('s, n', pages_per_range => 1) . " WHERE n > 0");

my $new_row = "SELECT gen_random_uuid(), (random() * 1e9)::int, md5(random()::text), repeat('x', (random() * random() * 5000)::int)";
# Some rows that no other client changes, lest they wait for each other in a ring.
my $some = "\\set d random(0, 15)\n";
my $mine = "ascii(s) % 8 = :client_id AND substr(s, 2, 1) = to_hex(:d)";
my $clients = start_pgbench(
	$node,
	{
		insert => [ 8, "INSERT INTO busy $new_row;\n" ],
		insert_many => [ 2, "INSERT INTO busy $new_row FROM generate_series(1, 20);\n" ],
		update => [ 1, "${some}UPDATE busy SET n = n + 1, k = gen_random_uuid() WHERE $mine;\n" ],
		update_hot => [ 1, "${some}UPDATE busy SET pad = '' WHERE $mine;\n" ],
		delete => [ 1, "${some}DELETE FROM busy WHERE $mine AND n % 16 = 0;\n" ],
		rollback => [ 1, "BEGIN;\nINSERT INTO busy $new_row FROM generate_series(1, 5);\nROLLBACK;\n" ],
		look_up => [ 10, "SELECT oracle_look_up('busy', '{k}');\nSELECT oracle_look_up('busy', '{s}', 'n > 0');\n" ],
	},
	'-c', 8, '-j', 2, '-T', $seconds);
my $started = time;
my $rebuilt = 0;
while (time < $started + $seconds - 1)
{
	sql($_) foreach 'REINDEX INDEX CONCURRENTLY busy_k', 'VACUUM busy', 'DROP INDEX busy_s',
	  'CREATE INDEX CONCURRENTLY busy_s ON busy ' . using_index('s, n') . ' WHERE n > 0';
	$rebuilt++;
}
clients_succeed($clients, 'beside REINDEX and CREATE INDEX CONCURRENTLY');
cmp_ok($rebuilt, '>', 0, 'indexes are rebuilt while clients run');
all_rows_found($node, 'busy', 'k', 'busy_k', 100, 'after REINDEX and CREATE INDEX CONCURRENTLY beside clients');
is(sql("SELECT oracle_lost_rows('busy', 's', 'busy_s', 'n > 0', 'n % 4 = 0')"),
	'0', 'after CREATE INDEX CONCURRENTLY beside clients: every row of the partial index is found');

#
# Rows come and go, so that a segment's filters hold ever more keys and VACUUM has to rebuild them, while clients insert
# all over it: the segment is large, with free space everywhere, which makes the rebuild long.
#

my $row = "gen_random_uuid(), (random() * 1e15)::int8, repeat('x', 230)";
sql("CREATE TABLE churn (k uuid, n int8, pad text)",
	"INSERT INTO churn SELECT $row FROM generate_series(1, 12000)",
	"CREATE INDEX churn_i ON churn " . using_index('k, n', pages_per_range => 4));
$clients = start_pgbench(
	$node,
	{
		insert_many_churn => [ 3, "INSERT INTO churn SELECT $row FROM generate_series(1, 200);\n" ],
		insert_one_churn => [ 3, "INSERT INTO churn SELECT $row;\n" ],
		look_up_churn => [ 2, "SELECT oracle_look_up('churn', '{k,n}');\n" ],
	},
	'-c', 6, '-j', 2, '-T', $seconds, '-R', 120);
$started = time;
$rebuilt = 0;
while (time < $started + $seconds - 1)
{
	# Keep the table at its size.
	sql('DELETE FROM churn WHERE random() < (SELECT 1 - 10000.0 / greatest(count(*), 12000) FROM churn)');
	$rebuilt += sql("SELECT bloomidx_summarize('churn_i')");
	sql('VACUUM churn');
}
clients_succeed($clients, 'beside rebuilds of filters');
cmp_ok($rebuilt, '>', 0, "filters are rebuilt while clients run: $rebuilt");
all_rows_found($node, 'churn', $_, 'churn_i', 8000, 'after rebuilds of filters beside clients') foreach 'k', 'n';
sql('VACUUM churn');
all_rows_found($node, 'churn', $_, 'churn_i', 8000, 'after rebuilds of filters beside clients, and VACUUM') foreach 'k', 'n';

log_is_clean($node, 'concurrency');
$node->stop;
done_testing();
