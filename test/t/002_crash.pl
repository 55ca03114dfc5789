# Crashes: the server is killed while clients insert, and after recovery every row is found through the index, on the
# server and on its standby, both of which compare each replayed page with the original (wal_consistency_checking).
#
#   BLOOMIDX_CRASHES  number of rounds (3); each takes the next of the combinations below
#
# The rows are wide and the ranges one page, so that the index gets new segments all the time: a crash often meets
# pages with no bit yet, or their first.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{BLOOMIDX_CRASHES} || 3;

# How the server dies, whether a checkpoint comes just before, and what is in the WAL.
#
# Without full_page_writes, replay may meet a record of a page that was truncated later, and is there again, all zeroes.
# Replay skips the record, but wal_consistency_checking fails for such a page: there VACUUM must not truncate.
my @combinations = (
	{ death => 'kill', checkpoint => 1, full_page_writes => 'on', check => 'generic' },
	{ death => 'immediate', checkpoint => 0, full_page_writes => 'on', check => '' },
	{ death => 'kill', checkpoint => 1, full_page_writes => 'off', check => 'generic' },
	{ death => 'kill', checkpoint => 0, full_page_writes => 'on', check => 'generic' },
	{ death => 'kill', checkpoint => 1, full_page_writes => 'off', check => '' },
	{ death => 'immediate', checkpoint => 1, full_page_writes => 'on', check => 'generic' },
	{ death => 'kill', checkpoint => 0, full_page_writes => 'on', check => '' },
	{ death => 'kill', checkpoint => 0, full_page_writes => 'off', check => '' },);

my $primary = new_node(
	'primary',
	init => [ allows_streaming => 1 ],
	conf => "wal_keep_size = 1GB\n");
my $standby = new_standby($primary, 'standby');

# Tables of a round: indexed while empty, indexed with rows, indexed anew while the clients insert; one with many small
# rows whose filters VACUUM rebuilds again and again; and unlogged ones, one indexed while empty, one with rows.
my @tables = ('fresh', 'filled', 'rebuilt', 'churned', 'unlogged_fresh', 'unlogged_filled');
sub create_tables
{
	my ($round, $how) = @_;
	my $truncate = $how->{full_page_writes} eq 'on' || $how->{check} eq '' ? 'on' : 'off';
	my $rows = "SELECT 0, md5('old' || i)::uuid, i, repeat('x', 1500) FROM generate_series(1, 1000) i";
	my $sql = '';

	foreach my $name ('fresh', 'filled', 'rebuilt')
	{
		$sql .= "CREATE TABLE ${name}_$round (client int, k uuid, n int8, pad text) WITH (vacuum_truncate = $truncate);"
		  . "ALTER TABLE ${name}_$round ALTER pad SET STORAGE PLAIN;";
		$sql .= "INSERT INTO ${name}_$round $rows;" if $name ne 'fresh';
		$sql .= "CREATE INDEX ${name}_${round}_k ON ${name}_$round " . using_index('k, n', pages_per_range => 1) . ';';
	}
	$sql .= "CREATE TABLE churned_$round WITH (vacuum_truncate = $truncate) AS SELECT 0 AS client, gen_random_uuid() AS k, n FROM generate_series(1, 8000) n;"
	  . "CREATE INDEX churned_${round}_k ON churned_$round " . using_index('k, n', pages_per_range => 1) . ';';
	foreach my $name ('unlogged_fresh', 'unlogged_filled')
	{
		$sql .= "CREATE UNLOGGED TABLE ${name}_$round (client int, k uuid, n int8, pad text);";
		$sql .= "INSERT INTO ${name}_$round $rows;" if $name eq 'unlogged_filled';
		$sql .= "CREATE INDEX ${name}_${round}_k ON ${name}_$round " . using_index('k') . ';';
	}
	$sql .= "INSERT INTO unlogged_fresh_$round $rows;";
	$primary->safe_psql('postgres', $sql);
	return;
}

sub row_count
{
	my ($node, $table) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM $table");
}

# Statements of the clients of a round: one row a transaction, many rows a transaction, updates, rebuilds.
sub scripts
{
	my ($round) = @_;
	my $new_row = "gen_random_uuid(), (random() * 1e15)::int8, repeat('x', (random() * 3000)::int)";

	return {
		"one_$round" => [ 6, join '', map { "INSERT INTO ${_}_$round SELECT :client_id, $new_row;\n" } 'fresh', 'filled', 'rebuilt' ],
		"many_$round" => [
			1,
			join '', map { "INSERT INTO ${_}_$round SELECT :client_id, $new_row FROM generate_series(1, 40);\n" } 'fresh',
			'filled', 'rebuilt', 'unlogged_fresh'
		],
		"change_$round" => [
			1,
			join '', map { "UPDATE ${_}_$round SET k = gen_random_uuid() WHERE client = :client_id AND n % 50 = 0;\n" } 'fresh', 'filled'
		],
		"churn_$round" => [
			2,
			"UPDATE churned_$round SET k = gen_random_uuid() WHERE n % 6 = :client_id AND random() < 0.3;\nVACUUM churned_$round;\n"
		],
	};
}

my %deaths;
foreach my $round (1 .. $rounds)
{
	my $how = $combinations[ ($round - 1) % @combinations ];
	my $what = "round $round, " . join ' ', map { "$_=$how->{$_}" } sort keys %$how;

	$primary->append_conf('postgresql.conf',
		"wal_consistency_checking = '$how->{check}'\nfull_page_writes = $how->{full_page_writes}\n");
	$primary->reload;
	create_tables($round, $how);

	my $clients = start_pgbench($primary, scripts($round), '-c', 6, '-j', 2, '-T', 600);
	poll_until(sub { row_count($primary, "fresh_$round") > 300 }, 'clients have inserted');
	$primary->safe_psql('postgres', "REINDEX INDEX rebuilt_${round}_k");
	my $before = row_count($primary, "fresh_$round");
	$primary->safe_psql('postgres', 'CHECKPOINT') if $how->{checkpoint};
	poll_until(sub { row_count($primary, "fresh_$round") > $before + 200 }, 'clients have inserted more');

	if ($how->{death} eq 'kill')
	{
		kill9_all($primary);
	}
	else
	{
		$primary->stop('immediate');
	}
	$deaths{ $how->{death} }++;
	$clients->{harness}->finish;
	unlike($clients->{stderr}, qr/ERROR:/, "$what: clients saw no error before the crash");

	$primary->start;
	foreach my $name ('fresh', 'filled', 'rebuilt', 'churned')
	{
		all_rows_found($primary, "${name}_$round", 'k', "${name}_${round}_k", 500, $what);
		all_rows_found($primary, "${name}_$round", 'n', "${name}_${round}_k", 500, $what);
	}
	indexes_are_good($primary, $what);

	# An unlogged table is empty after a crash, and so is its index.
	foreach my $name ('unlogged_fresh', 'unlogged_filled')
	{
		my $lookup = "SELECT oracle_force(true); SELECT count(*) FROM ${name}_$round WHERE k = md5('old7')::uuid;";
		is($primary->safe_psql('postgres', $lookup), "\n0", "$what: $name is empty after the crash");
		$primary->safe_psql('postgres',
			"INSERT INTO ${name}_$round SELECT 0, md5('new' || i)::uuid, i, '' FROM generate_series(1, 500) i");
		all_rows_found($primary, "${name}_$round", 'k', "${name}_${round}_k", 500, "$what, after insertion");
		is($primary->safe_psql('postgres', $lookup), "\n0", "$what: $name has no row of before the crash after insertion");
	}

	# Life goes on, and the standby has it all.
	my $more_rows = "SELECT 0, gen_random_uuid(), i, repeat('x', 1500) FROM generate_series(1, 300) i";
	$primary->safe_psql('postgres', "INSERT INTO ${_}_$round $more_rows") foreach 'fresh', 'filled';
	$primary->safe_psql('postgres', "VACUUM ${_}_$round") foreach 'fresh', 'churned';
	all_rows_found($primary, "${_}_$round", 'k', "${_}_${round}_k", 800, "$what, after recovery and insertion")
	  foreach 'fresh', 'filled', 'churned';
	$primary->wait_for_catchup($standby);
	all_rows_found($standby, "${_}_$round", 'k', "${_}_${round}_k", 500, "$what, on the standby")
	  foreach 'fresh', 'filled', 'rebuilt', 'churned';

	# Those of the last round are checked at the end.  The checkpoint is for the rounds without full_page_writes: replay after the
	# next crash must not meet records of files that have been removed.
	next if $round == $rounds;
	indexes_are_good($standby, "$what, on the standby");
	$primary->safe_psql('postgres', 'CHECKPOINT; DROP TABLE ' . join ', ', map { "${_}_$round" } @tables);
}

report('immediate stops', $deaths{immediate} || 0);
log_is_clean($_, 'crashes') foreach $primary, $standby;
$standby->stop;
$primary->stop;
done_testing();
