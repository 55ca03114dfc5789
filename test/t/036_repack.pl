# REPACK (CONCURRENTLY), since PostgreSQL 19: the table and its indexes are built anew, and what others wrote meanwhile is then
# inserted by an apply step of its own, while the same index of the old table is still in use.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $seconds = $ENV{BLOOMIDX_SECONDS} || 7;
my ($version) = `postgres --version` =~ / (\d+)/;
plan skip_all => 'there is no REPACK before PostgreSQL 19' if $version < 19;
my $node = new_node('repack', conf => "wal_level = logical\nmax_repack_replication_slots = 2\n");

my $options = layout() eq 'partitioned' ? '' : ' WITH (layout = ' . layout() . ')';
$node->safe_psql('postgres', join ';',
	'CREATE TABLE t (id int PRIMARY KEY, k int, line text) WITH (fillfactor = 70)',
	"ALTER TABLE t ADD CONSTRAINT t_k EXCLUDE USING bloomidx (k WITH =)$options",
	'CREATE INDEX t_line ON t ' . using_index('line text_ngram_ops'),
	'CREATE INDEX t_part ON t ' . using_index('k') . ' WHERE id % 2 = 0',
	"INSERT INTO t SELECT i, i, 'line ' || md5(i::text) FROM generate_series(1, 20000) i");

my %scripts = (
	insert => [ 3, q{
\set i random(100000, 2000000000)
\set k random(1, 30000)
INSERT INTO t VALUES (:i, :k, 'new ' || md5(:k::text)) ON CONFLICT DO NOTHING;
} ],
	update => [ 3, q{
\set i random(1, 20000)
UPDATE t SET line = 'changed ' || md5((random() * 1e6)::text) WHERE id = :i;
} ],
	delete => [ 1, q{
\set i random(1, 20000)
DELETE FROM t WHERE id = :i;
} ],
	look => [ 2, q{
\set k random(40000, 2000000000)
SET enable_seqscan = off;
BEGIN;
INSERT INTO t VALUES (-:k, :k, 'look ' || md5(:k::text)) ON CONFLICT DO NOTHING;
SELECT 1 / count(*)::int FROM t WHERE k = :k;
SELECT 1 / count(*)::int FROM t WHERE line LIKE '%look ' || md5(:k::text) || '%';
COMMIT;
} ]);

my $clients = start_pgbench($node, \%scripts, '-c', 4, '-j', 2, '-T', $seconds);
my $end = time + $seconds;
my $done = 0;
while (time < $end)
{
	my ($status, undef, $stderr) = $node->psql('postgres', 'REPACK (CONCURRENTLY) t');

	is($status, 0, 'REPACK (CONCURRENTLY) beside writers') or diag $stderr;
	$done++ if $status == 0;
}
$clients->{harness}->finish;
unlike($clients->{stderr}, qr/ERROR|FATAL|aborted/, 'no client fails or misses its row');
cmp_ok($done, '>', 0, 'the table was repacked');
report('tables repacked', $done);
indexes_are_good($node, 'after REPACK');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT k) FROM t'), '0', 'no two rows have the same key');
is( $node->safe_psql(
		'postgres', q{SET enable_seqscan = off; SELECT count(*) FROM (SELECT * FROM t ORDER BY hashint4(id) LIMIT 2000) a
	WHERE NOT EXISTS (SELECT FROM t b WHERE b.k = a.k AND b.id + 0 = a.id)}),
	'0', 'rows are found by their key');
log_is_clean($node, 'REPACK');
$node->stop;
done_testing();
