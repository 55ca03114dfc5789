# Filters are rebuilt all the time, and their pages recycled, while clients write, read on the primary and read on a
# standby; then the primary is killed.  No reader misses a row, bloomidx_check() finds nothing on either, and after
# recovery all rows are found.  At the end the standby is promoted.
#
#   BLOOMIDX_KILLS    number of rounds (2)
#   BLOOMIDX_SECONDS  duration of each (5)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{BLOOMIDX_KILLS} || 2;
my $seconds = $ENV{BLOOMIDX_SECONDS} || 5;

my $primary = new_node(
	'primary',
	init => [ allows_streaming => 1, extra => ['--data-checksums'] ],
	conf => "wal_keep_size = 2GB\nwal_consistency_checking = 'generic'\nautovacuum = off\n");

# Wide rows first; then their pages are filled with narrow ones, and emptied again, so that filters are always too small
# or too large for what is in them.
$primary->safe_psql(
	'postgres', qq{
CREATE TABLE churn (k int8, t text, pad text) WITH (fillfactor = 30);
INSERT INTO churn SELECT -i, md5(i::text), repeat('x', 300) FROM generate_series(1, 6000) i;
CREATE INDEX churn_k ON churn @{[ using_index('k, t', pages_per_range => 1) ]};
ALTER TABLE churn SET (fillfactor = 100);
VACUUM churn;
CREATE TABLE churn_block (k int8, t text, pad text) WITH (fillfactor = 30);
INSERT INTO churn_block SELECT -i, md5(i::text), repeat('x', 300) FROM generate_series(1, 6000) i;
CREATE INDEX churn_block_k ON churn_block USING bloomidx (k, t) WITH (layout = block, pages_per_range = 1);
ALTER TABLE churn_block SET (fillfactor = 100);
VACUUM churn_block;
CREATE SEQUENCE serial;
CREATE TABLE repairs (n int, at timestamptz DEFAULT clock_timestamp());
});
my $standby = new_standby($primary, 'standby', conf => "hot_standby_feedback = on\nmax_standby_streaming_delay = -1\n");

my %write = (
	insert => [
		4, q{
INSERT INTO churn SELECT nextval('serial'), md5(random()::text) FROM generate_series(1, 60);
}
	],
	rollback => [
		1, q{
BEGIN;
INSERT INTO churn SELECT nextval('serial'), md5(random()::text) FROM generate_series(1, 20);
ROLLBACK;
}
	],
	update => [
		2, q{
\set lo random(1, 40000)
UPDATE churn SET k = k + 100000000, t = md5(k::text) WHERE k BETWEEN :lo AND :lo + 30;
}
	],
	delete => [
		1, q{
\set lo random(1, 40000)
DELETE FROM churn WHERE k BETWEEN :lo AND :lo + 200;
}
	],
	block => [
		3, q{
\set lo random(1, 40000)
INSERT INTO churn_block SELECT nextval('serial'), md5(random()::text) FROM generate_series(1, 60);
UPDATE churn_block SET k = k + 100000000, t = md5(k::text) WHERE k BETWEEN :lo AND :lo + 30;
DELETE FROM churn_block WHERE k BETWEEN :lo AND :lo + 100;
}
	],
	look => [ 2, "SELECT oracle_look_up('churn', '{k,t}');\nSELECT oracle_look_up('churn_block', '{k,t}');\n" ]);
my %repair = (
	repair => [ 3, "INSERT INTO repairs SELECT bloomidx_summarize('churn_k');\n" ],
	repair_block => [ 2, "INSERT INTO repairs SELECT bloomidx_summarize('churn_block_k');\nVACUUM churn_block;\n" ],
	vacuum => [ 1, "VACUUM churn;\n" ],
	reindex => [ 1, "REINDEX INDEX CONCURRENTLY churn_k;\n" ]);
my $check = q{
DO $$
DECLARE
	c record;
BEGIN
	SELECT * INTO c FROM oracle_check('churn%');
	IF c.failures IS NOT NULL THEN
		RAISE EXCEPTION '%', c.failures;
	END IF;
END $$;
};
my %look = (look => [ 2, "SELECT oracle_look_up('churn', '{k,t}');\n" ], check => [ 1, $check ]);

sub no_client_failed
{
	my ($run, $what, $killed) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$run->{harness}->finish;

	# A connection that is lost is what the kill was for.  On the standby, the planner may find an index that REINDEX
	# CONCURRENTLY has dropped when it is to be opened: there it waits for nobody.
	my @errors = grep {
		/ERROR|FATAL/
		  && !($killed ? /terminat|recovery mode|shutting down|starting up/ : /could not open relation with OID/)
	} split /\n/, $run->{stderr};
	is(join("\n", @errors), '', "$what: no client fails");
	return;
}

foreach my $round (1 .. $rounds)
{
	my $writers = start_pgbench($primary, \%write, '-c', 4, '-j', 1, '-T', 600);
	my $repairers = start_pgbench($primary, \%repair, '-c', 1, '-T', 600);
	my $checkers = start_pgbench($primary, { check_primary => [ 1, $check ] }, '-c', 1, '-T', 600);
	my $readers = start_pgbench($standby, \%look, '-c', 2, '-T', $seconds + 1);
	my $enough = time + $seconds;

	poll_until(sub { time >= $enough }, 'the clients have run');
	no_client_failed($readers, "round $round, on the standby");
	kill9_all($primary);
	no_client_failed($writers, "round $round, writers", 1);
	no_client_failed($repairers, "round $round, repairs", 1);
	no_client_failed($checkers, "round $round, checks", 1);

	$primary->start;
	all_rows_found($primary, 'churn', $_, 'churn_k', 1000, "round $round, after recovery") foreach 'k', 't';
	all_rows_found($primary, 'churn_block', $_, 'churn_block_k', 1000, "round $round, after recovery") foreach 'k', 't';
	indexes_are_good($primary, "round $round, after recovery");

	# whatever the crash has left, a shadow perhaps, VACUUM copes with
	$primary->safe_psql('postgres', 'VACUUM churn');
	all_rows_found($primary, 'churn', $_, 'churn_k', 1000, "round $round, after VACUUM") foreach 'k', 't';
	$primary->wait_for_catchup($standby);
	all_rows_found($standby, 'churn', $_, 'churn_k', 1000, "round $round, on the standby") foreach 'k', 't';
	indexes_are_good($standby, "round $round, on the standby");
}
my $rebuilt = $primary->safe_psql('postgres', 'SELECT sum(n) FROM repairs');
report('filters rebuilt under load', $rebuilt);
cmp_ok($rebuilt, '>', 0, 'filters are rebuilt while clients run');

$primary->stop;
$standby->promote;
$standby->safe_psql('postgres', q{
INSERT INTO churn SELECT nextval('serial'), md5(random()::text) FROM generate_series(1, 20000);
SELECT bloomidx_summarize('churn_k');
});
all_rows_found($standby, 'churn', $_, 'churn_k', 1000, 'after promotion') foreach 'k', 't';
log_is_clean($_, 'rebuild') foreach $primary, $standby;
$standby->stop;
done_testing();
