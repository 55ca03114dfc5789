# A table that is filled by logical replication, a copy made by pg_basebackup, and an index that moves to another
# tablespace: all rows are found.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = new_node('publisher', init => [ allows_streaming => 'logical' ]);
my $subscriber = new_node('subscriber', init => [ allows_streaming => 'logical' ]);

# --- logical replication: the initial copy, then changes
$publisher->safe_psql('postgres', q{
CREATE TABLE t (k int PRIMARY KEY, v text);
INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 5000) i;
CREATE PUBLICATION p FOR TABLE t;
});
$subscriber->safe_psql('postgres', qq{
CREATE TABLE t (k int PRIMARY KEY, v text);
CREATE INDEX t_v ON t @{[ using_index('v', pages_per_range => 1) ]};
});
my $connection = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p");
$subscriber->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_subscription_rel WHERE srsubstate IN ('r', 's')")
  or die 'the subscription does not start';
$publisher->safe_psql('postgres', q{
UPDATE t SET v = md5((-k)::text) WHERE k % 3 = 0;
DELETE FROM t WHERE k % 7 = 0;
INSERT INTO t SELECT i, md5(i::text) FROM generate_series(5001, 15000) i;
});
$publisher->wait_for_catchup('s');
all_rows_found($subscriber, 't', 'v', 't_v', 14000, 'logical replication');
is($subscriber->safe_psql('postgres', 'SELECT count(*), sum(hashtext(v)::bigint) FROM t'),
	$publisher->safe_psql('postgres', 'SELECT count(*), sum(hashtext(v)::bigint) FROM t'), 'publisher and subscriber have the same rows');

# --- a table without a key: since 18 the subscriber finds the rows by the index; NULLs and equal rows included
my $keyless = 'CREATE TABLE keyless (v text, n int, w numeric)';
$publisher->safe_psql('postgres', "$keyless; ALTER TABLE keyless REPLICA IDENTITY FULL; " . q{
INSERT INTO keyless SELECT CASE WHEN i % 50 > 0 THEN md5((i / 2)::text) END, i / 2, i FROM generate_series(0, 3000) i;
INSERT INTO keyless SELECT 'same', 1, 1 FROM generate_series(1, 5);
ALTER PUBLICATION p ADD TABLE keyless});
$subscriber->safe_psql('postgres', "$keyless; CREATE INDEX keyless_v ON keyless @{[ using_index('v, w', pages_per_range => 1) ]}");
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s REFRESH PUBLICATION');
$subscriber->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_subscription_rel WHERE srsubstate IN ('r', 's')")
  or die 'the second table is not copied';
$publisher->safe_psql('postgres', q{
UPDATE keyless SET w = -w WHERE n % 5 = 0;
UPDATE keyless SET v = NULL WHERE n % 11 = 0;
DELETE FROM keyless WHERE n % 7 = 0 OR v IS NULL AND n % 3 = 0;
DELETE FROM keyless WHERE ctid = (SELECT min(ctid) FROM keyless WHERE v = 'same')});
$publisher->wait_for_catchup('s');
my $contents = 'SELECT count(*), sum(hashtextextended(k::text, 0)) FROM keyless k';
is($subscriber->safe_psql('postgres', $contents), $publisher->safe_psql('postgres', $contents),
	'publisher and subscriber have the same rows of a table without a key');
SKIP:
{
	skip 'the index can be used since PostgreSQL 18', 1 if server_version($subscriber) < 18;
	$subscriber->poll_query_until('postgres', "SELECT idx_scan > 1000 FROM pg_stat_user_indexes WHERE indexrelname = 'keyless_v'");
	cmp_ok($subscriber->safe_psql('postgres', "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'keyless_v'"),
		'>', 1000, 'the subscriber finds rows by the index');
}

# --- pg_basebackup while rows come in
$subscriber->safe_psql('postgres', 'CREATE TABLE u (v text); CREATE INDEX u_v ON u ' . using_index('v'));
my $clients = start_pgbench($subscriber, { more => [ 1, "INSERT INTO u SELECT md5(random()::text) FROM generate_series(1, 50);\n" ] },
	'-c', 2, '-T', 600);
poll_until(sub { $subscriber->safe_psql('postgres', 'SELECT count(*) > 500 FROM u') eq 't' }, 'rows come in');
$subscriber->backup('b');
$clients->{harness}->kill_kill;
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($subscriber, 'b');
$copy->append_conf('postgresql.conf', "max_logical_replication_workers = 0\n");
$copy->start;
all_rows_found($copy, 'u', 'v', 'u_v', 500, 'pg_basebackup');
all_rows_found($copy, 't', 'v', 't_v', 14000, 'pg_basebackup');
$copy->stop;

# --- another tablespace
my $directory = PostgreSQL::Test::Utils::tempdir();
$subscriber->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$directory'");
$subscriber->safe_psql('postgres', 'ALTER INDEX u_v SET TABLESPACE elsewhere');
$subscriber->safe_psql('postgres', "INSERT INTO u SELECT md5(i::text) FROM generate_series(1, 20000) i");
all_rows_found($subscriber, 'u', 'v', 'u_v', 20000, 'after SET TABLESPACE');

log_is_clean($_, 'replication') foreach $publisher, $subscriber;
$subscriber->stop;
$publisher->stop;
done_testing();
