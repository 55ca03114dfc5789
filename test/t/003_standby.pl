# Streaming replication: the index answers on a standby while the primary inserts, and after promotion; and with
# wal_level = minimal, where a new table's index is not logged at all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node(
	'primary',
	init => [ allows_streaming => 1 ],
	conf => "wal_consistency_checking = 'generic'\nmax_standby_streaming_delay = -1\n");
my $standby = new_standby($primary, 'standby');

# One table is indexed while empty, the other one with rows in it.
my $new_row = "SELECT gen_random_uuid(), (random() * 1e9)::int, md5(random()::text), repeat('x', (random() * 4000)::int)";
$primary->safe_psql(
	'postgres', qq{
CREATE TABLE early (k uuid, n int, s text, pad text);
ALTER TABLE early ALTER pad SET STORAGE PLAIN, ALTER s SET STORAGE PLAIN;
CREATE INDEX early_i ON early @{[ using_index('k, n, s', pages_per_range => 1) ]};
CREATE TABLE late (LIKE early INCLUDING ALL);
DROP INDEX late_k_n_s_idx;
INSERT INTO early $new_row FROM generate_series(1, 1000);
INSERT INTO late $new_row FROM generate_series(1, 1000);
CREATE INDEX late_i ON late @{[ using_index('k, n, s', pages_per_range => 2) ]};
});
$primary->wait_for_catchup($standby);

all_rows_found($standby, 'early', 'k', 'early_i', 1000, 'before clients run');
all_rows_found($standby, 'late', 's', 'late_i', 1000, 'before clients run');
like(
	$standby->safe_psql('postgres',
		"SET enable_seqscan = off; SET enable_indexscan = off; EXPLAIN (COSTS OFF) SELECT * FROM early WHERE n = 5 AND s = 'x'"),
	qr/Bitmap Index Scan on early_i/,
	'the standby asks the index');

# A snapshot on the standby is older than the primary knows: the index must have the rows that are already dead on the
# primary, also if it is built only now.  Nothing is pruned meanwhile, which would make replay wait for the snapshot.
$primary->safe_psql('postgres',
		"CREATE TABLE changed AS SELECT i AS k, i AS n FROM generate_series(1, 3000) i;"
	  . "CREATE INDEX changed_old ON changed " . using_index('k', pages_per_range => 1) . ';');
$primary->wait_for_catchup($standby);
my $old = old_snapshot($standby);
$primary->safe_psql('postgres', q{
BEGIN;
DELETE FROM changed WHERE k % 3 = 0;
UPDATE changed SET n = -n WHERE k % 3 = 1;
UPDATE changed SET k = -k, n = -n WHERE k % 3 = 2;
COMMIT});
$primary->safe_psql('postgres', "CREATE INDEX changed_new ON changed " . using_index('n', pages_per_range => 1));
$primary->wait_for_catchup($standby);
foreach my $lookup ([ 'k', 'changed_old' ], [ 'n', 'changed_new' ])
{
	is( $old->query_safe("SELECT oracle_lost_rows('changed', '$lookup->[0]', '$lookup->[1]'), count(*) FROM changed"),
		'0|3000',
		"an old snapshot on the standby finds its rows through $lookup->[1]");
}
$old->query_safe('COMMIT');
$old->quit;
all_rows_found($standby, 'changed', 'n', 'changed_new', 2000, 'new snapshot on the standby');

# Readers on the standby, writers on the primary.
my $reader = "SELECT oracle_look_up('early', '{k,n,s}');\nSELECT oracle_look_up('late', '{k,n,s}');\n";
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\n");
$standby->reload;
my $writers = start_pgbench(
	$primary,
	{
		insert => [ 5, "INSERT INTO early $new_row;\nINSERT INTO late $new_row FROM generate_series(1, 5);\n" ],
		# HOT updates in between, and others.
		update => [ 1, "UPDATE early SET n = n + 1 WHERE s < '02';\nUPDATE late SET pad = '' WHERE s < '02';\n" ],
		delete => [ 1, "DELETE FROM late WHERE s LIKE '9%' AND n % 7 = 0;\n" ],
		vacuum => [ 1, "VACUUM late;\n" ],
	},
	'-c', 3, '-T', 8);
my $readers = start_pgbench($standby, { read => [ 1, $reader ] }, '-c', 2, '-T', 8);
$primary->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY late_i');
$writers->{harness}->finish;
$readers->{harness}->finish;
unlike($writers->{stderr}, qr/ERROR|aborted/, 'writers on the primary run to the end');
unlike($readers->{stderr}, qr/ERROR|aborted/, 'readers on the standby find their rows');
like($readers->{stdout}, qr/number of transactions actually processed: [1-9]/, 'readers on the standby ran at least once');

$primary->safe_psql('postgres', 'VACUUM early');
$primary->wait_for_catchup($standby);
all_rows_found($standby, 'early', $_, 'early_i', 1000, 'after clients have run') foreach 'k', 's';
all_rows_found($standby, 'late', $_, 'late_i', 1000, 'after clients have run') foreach 'k', 's';
is( $standby->safe_psql('postgres', 'SELECT count(*), sum(n) FROM early'),
	$primary->safe_psql('postgres', 'SELECT count(*), sum(n) FROM early'),
	'primary and standby have the same rows');

my (undef, undef, $stderr) = $standby->psql('postgres', "SELECT bloomidx_summarize('early_i')");
like($stderr, qr/ERROR:  recovery is in progress/, 'bloomidx_summarize() writes nothing on a standby');

# Promotion.
$primary->stop;
$standby->promote;
$standby->safe_psql('postgres',
	"INSERT INTO early $new_row FROM generate_series(1, 1500); INSERT INTO late $new_row FROM generate_series(1, 1500);");
all_rows_found($standby, 'early', 'k', 'early_i', 2500, 'promoted');
all_rows_found($standby, 'late', 'k', 'late_i', 2500, 'promoted');
$standby->safe_psql('postgres', 'VACUUM early');
$standby->safe_psql('postgres', 'REINDEX TABLE late');
all_rows_found($standby, 'early', 'n', 'early_i', 2500, 'promoted and vacuumed');
all_rows_found($standby, 'late', 'n', 'late_i', 2500, 'promoted and rebuilt');
log_is_clean($_, 'standby') foreach $primary, $standby;
$standby->stop;

# With wal_level = minimal a table and its index made in one transaction are synced at commit instead of logged:
# however the server dies then, they must be there.  With wal_skip_threshold both ways to do that are taken.
my $minimal = new_node('minimal', conf => "wal_level = minimal\nmax_wal_senders = 0\n");

foreach my $threshold ('0', '1GB')
{
	my $make = sub {
		my ($name, $index_first) = @_;
		my $index = "CREATE INDEX ${name}_i ON $name " . using_index('k', pages_per_range => 1) . ';';
		my $copy = $minimal->basedir . '/rows';

		return
			"CREATE TABLE $name (k int8, pad text);"
		  . ($index_first ? $index : '')
		  . "COPY $name FROM '$copy';"
		  . ($index_first ? '' : $index)
		  . "INSERT INTO $name SELECT i, 'later' FROM generate_series(5001, 5100) i;";
	};
	$minimal->safe_psql('postgres',
		"COPY (SELECT i, repeat('x', 300) FROM generate_series(1, 5000) i) TO '" . $minimal->basedir . "/rows'");
	$minimal->safe_psql('postgres',
			"DROP TABLE IF EXISTS built, grown, truncated; CREATE TABLE truncated (k int8, pad text);"
		  . "CREATE INDEX truncated_i ON truncated " . using_index('k') . ';'
		  . "INSERT INTO truncated SELECT i FROM generate_series(1, 500) i; CHECKPOINT;");
	$minimal->safe_psql('postgres',
			"SET wal_skip_threshold = '$threshold'; BEGIN;"
		  . $make->('built', 0)
		  . $make->('grown', 1)
		  . "TRUNCATE truncated; INSERT INTO truncated SELECT i FROM generate_series(1, 2000) i; COMMIT;");
	$minimal->stop('immediate');
	$minimal->start;
	all_rows_found($minimal, 'built', 'k', 'built_i', 5100, "wal_level minimal, threshold $threshold");
	all_rows_found($minimal, 'grown', 'k', 'grown_i', 5100, "wal_level minimal, threshold $threshold");
	all_rows_found($minimal, 'truncated', 'k', 'truncated_i', 2000, "wal_level minimal, threshold $threshold");
}
log_is_clean($minimal, 'wal_level minimal');
$minimal->stop;
done_testing();
