# Rows with many keys: sessions that insert them, while VACUUM, bloomidx_summarize and CREATE INDEX CONCURRENTLY rebuild
# filters, and while the server is killed; also on a standby.  Every row that a session has seen is found by its keys.
#
#   BLOOMIDX_SECONDS  duration of each run (7)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $seconds = $ENV{BLOOMIDX_SECONDS} || 7;
my $node = new_node('extract_concurrent', init => [ allows_streaming => 1 ],
	conf => "deadlock_timeout = 200ms\nwal_consistency_checking = 'Generic'\n");

sub sql { return $node->safe_psql('postgres', join ';', @_); }

# The first rows have few keys, so that the filters are too small for the others, and are rebuilt.
sql("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, tags text[], line text) WITH (fillfactor = 50)",
	"CREATE INDEX t_tags ON t " . using_index('tags array_elements_ops', pages_per_range => 1),
	"CREATE INDEX t_line ON t " . using_index('line text_ngram_ops', pages_per_range => 1),
	"CREATE INDEX t_both ON t " . using_index('id, tags array_elements_ops', pages_per_range => 1),
	"CREATE FUNCTION tags_of(i bigint) RETURNS text[] LANGUAGE sql IMMUTABLE AS
		\$\$ SELECT array_agg('t' || (i * j) % 5000) || ('only' || i) FROM generate_series(1, (1 + i % 40)::int) j \$\$",
	"INSERT INTO t (tags, line) SELECT ARRAY['few'], 'x' FROM generate_series(1, 3000) i");

# One statement that fills several segments under a summary: what it has set for one segment is not set for the next.
sql("CREATE TABLE wide (id int, tags text[]) WITH (fillfactor = 10)",
	"INSERT INTO wide SELECT i, ARRAY['a' || i % 5, 'b' || i % 7, 'c', 'd', 'e', 'f'] FROM generate_series(1, 40000) i",
	"CREATE INDEX wide_tags ON wide " . using_index('tags array_elements_ops', pages_per_range => 1),
	"INSERT INTO wide SELECT i, ARRAY['x' || i % 5, 'y' || i % 7, 'c', 'd', 'e', 'z'] FROM generate_series(1, 10000) i");
cmp_ok(sql("SELECT pg_relation_size('wide') / current_setting('block_size')::int / 128"), '>', 40, 'the table has more than 40 segments');
is(sql("SELECT bloomidx_check('wide_tags')"), '50000', 'all keys of a statement that fills several segments are in the filters');
is(sql("SET enable_seqscan = off; SELECT count(*) FROM wide WHERE tags @> '{x3,z}'"), '2000', 'and its rows are found');

my $standby = new_standby($node, 'extract_standby');

# A row's own keys lead to the row.  The number of rows depends on the speed of the machine; each is a search of the whole index,
# and at most 2000 are looked up.
sub all_found
{
	my ($server, $what) = @_;
	my $query = q{SELECT count(*) FROM (SELECT id, tags, line FROM t WHERE line <> 'x' ORDER BY hashint8(id) LIMIT 2000) a
		WHERE NOT EXISTS (SELECT FROM t b WHERE b.%s AND (b.id = a.id) IS TRUE OFFSET 0)};
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $condition ('tags @> a.tags', "line LIKE '%' || a.line || '%'")
	{
		my $sql = sprintf($query, $condition);
		my $force = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_material = off; ';
		like($server->safe_psql('postgres', "${force}EXPLAIN (COSTS OFF) $sql"), qr/Bitmap Index Scan/, "$what: the index is used");
		is($server->safe_psql('postgres', $force . $sql), '0', "$what: every row is found by $condition");
	}
	return;
}

# Files for COPY, which reads rows ahead of their inserts.
my $files = PostgreSQL::Test::Utils::tempdir();
foreach my $f (1 .. 6)
{
	sql("COPY (SELECT tags_of($f * 1000000 + j), CASE WHEN j % 20 = 0 THEN repeat('line ' || j || ' ', 300)
		ELSE 'Copied ' || md5(($f * 1000000 + j)::text) END FROM generate_series(1, 40) j) TO '$files/$f'");
}

my %scripts = (
	(map { ("copy$_" => [ 1, "COPY t (tags, line) FROM '$files/$_';\n" ]) } 1 .. 4),
	copy_again => [ 1, qq{
BEGIN;
SAVEPOINT s;
COPY t (tags, line) FROM '$files/5';
ROLLBACK TO s;
COPY t (tags, line) FROM '$files/6';
COMMIT;
} ],
	insert => [ 6, q{
\set i random(1, 1000000)
INSERT INTO t (tags, line) SELECT tags_of(:i + j), 'Client :client_id wrote ' || md5((:i + j)::text) FROM generate_series(1, 5) j;
} ],
	look => [ 2, q{
\set i random(1, 1000000)
SET enable_seqscan = off;
BEGIN;
INSERT INTO t (tags, line) VALUES (tags_of(:i), 'Look ' || md5(:i::text));
SELECT 1 / count(*)::int FROM t WHERE tags @> tags_of(:i);
SELECT 1 / count(*)::int FROM t WHERE line LIKE '%Look ' || md5(:i::text) || '%';
COMMIT;
} ]);

my $clients = start_pgbench($node, \%scripts, '-c', 4, '-j', 2, '-T', $seconds);
my $end = time + $seconds;
my $rounds = 0;
while (time < $end)
{
	$node->psql('postgres', 'VACUUM t');
	$node->psql('postgres', "SELECT bloomidx_summarize('t_line')");
	$node->psql('postgres', 'DROP INDEX IF EXISTS t_later');
	$node->psql('postgres', 'CREATE INDEX CONCURRENTLY t_later ON t ' . using_index('tags array_elements_ops, line text_ngram_ops'));
	$rounds++;
}
$clients->{harness}->finish;
unlike($clients->{stderr}, qr/ERROR|FATAL|aborted/, 'no client fails or misses its row');
like($clients->{stdout}, qr/transactions actually processed: [1-9]/, 'clients run');
cmp_ok($rounds, '>', 0, 'filters were rebuilt meanwhile');
indexes_are_good($node, 'after concurrent inserts');
all_found($node, 'after concurrent inserts');
catch_up($node, $standby);
indexes_are_good($standby, 'standby');
all_found($standby, 'standby');

# killed in the middle of inserts
foreach my $round (1 .. 2)
{
	my $victims = start_pgbench($node, \%scripts, '-c', 3, '-j', 1, '-T', 60);
	sleep(2);
	kill9_all($node);
	eval { $victims->{harness}->finish };
	$node->start;
	indexes_are_good($node, "crash $round");
	all_found($node, "crash $round");
}
log_is_clean($_, 'rows with many keys') foreach $node, $standby;
$standby->stop;
$node->stop;
done_testing();
