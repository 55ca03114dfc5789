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
