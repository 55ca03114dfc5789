# Failover, and pg_rewind of the old primary, which has rows that the standby never got: both servers then have the same
# rows, and find them by the index.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old = new_node('old', init => [ allows_streaming => 1 ], conf => "wal_log_hints = on\nwal_keep_size = '256MB'\n");
my $rows = "SELECT md5(i::text), repeat('x', 60) FROM generate_series";
$old->safe_psql('postgres', "CREATE TABLE t (v text, pad text); CREATE INDEX t_v ON t @{[ using_index('v', pages_per_range => 1) ]};"
	  . "INSERT INTO t $rows(1, 30000) i");
my $new = new_standby($old, 'new');
$old->wait_for_catchup($new, 'replay', $old->lsn('insert'));

# What the old primary does after the standby is gone: new segments, updates, rebuilt filters, freed pages.
$new->promote;
$old->safe_psql('postgres', "INSERT INTO t $rows(100001, 160000) i; UPDATE t SET v = v || 'old' WHERE v < '8'");
$old->safe_psql('postgres', 'VACUUM t');
$old->safe_psql('postgres', "SELECT bloomidx_summarize('t_v')");
# and what the new one does meanwhile
$new->safe_psql('postgres', "INSERT INTO t $rows(200001, 240000) i; UPDATE t SET v = v || 'new' WHERE v >= '8'");
$new->safe_psql('postgres', 'VACUUM t');
$new->safe_psql('postgres', 'CHECKPOINT');

$old->stop;
my $settings = slurp_file($old->data_dir . '/postgresql.conf');
$old->command_ok([ 'pg_rewind', '--debug', '--source-server', $new->connstr('postgres'), '--target-pgdata', $old->data_dir ],
	'pg_rewind of the old primary');
open(my $file, '>', $old->data_dir . '/postgresql.conf') or die $!;
print $file $settings;
close $file;
$old->append_conf('postgresql.conf', "primary_conninfo = '@{[ $new->connstr ]} application_name=old'\n");
$old->set_standby_mode;
$old->start;
$new->safe_psql('postgres', "INSERT INTO t $rows(300001, 301000) i");
$new->wait_for_catchup('old', 'replay', $new->lsn('insert'));

foreach my $node ($new, $old)
{
	my $name = $node->name;

	is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE v LIKE '%old') FROM t}), '71000|0', "the rows of $name");
	all_rows_found($node, 't', 'v', 't_v', 71000, "on $name");
	is($node->safe_psql('postgres', "SELECT bloomidx_check('t_v')"), 71000, "bloomidx_check on $name");
	log_is_clean($node, $name);
}
$old->stop;
$new->stop;
done_testing();
