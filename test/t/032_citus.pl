# Shards of Citus: it propagates the extensions and the indexes to the workers, each shard answers by its own index, the
# rows are those of a local table, also of shards that move while rows are inserted.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rows = 20000;

# A server of Citus, which must have been preloaded.  A server without SSL cannot require that, and by default Citus hides the
# shards' indexes.  The planner of the workers decides how a shard is scanned.
sub citus_node
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 'logical');
	$node->append_conf('postgresql.conf', qq{
autovacuum = off
max_wal_size = 4GB
jit = off
max_worker_processes = 16
shared_preload_libraries = 'citus'
citus.node_conninfo = 'sslmode=prefer'
citus.local_hostname = '@{[ $node->host ]}'
citus.override_table_visibility = off
enable_seqscan = off
});
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

plan skip_all => 'the test of Citus creates the extension bloomidx' if $ENV{BLOOMIDX_EXTENSION};
chomp(my $share = `pg_config --sharedir`);
plan skip_all => 'Citus is not available' if !-e "$share/extension/citus.control";

my $coordinator = citus_node('coordinator');
my @workers = map { citus_node("worker$_") } 1, 2;

sub on_coordinator { my ($query) = @_; return $coordinator->safe_psql('postgres', $query); }

# A Citus node is a host and a port; one that is a directory is a socket's.
on_coordinator("SELECT citus_set_coordinator_host('" . $coordinator->host . "', " . $coordinator->port . ')');
on_coordinator("SELECT citus_add_node('" . $_->host . "', " . $_->port . ')') foreach @workers;
on_coordinator('CREATE EXTENSION bloomidx; CREATE EXTENSION bloomidx_citext CASCADE');
foreach my $worker (@workers)
{
	is($worker->safe_psql('postgres', q{SELECT string_agg(extname, ' ' ORDER BY extname) FROM pg_extension WHERE extname ~ 'bloomidx'}),
		'bloomidx bloomidx_citext', 'CREATE EXTENSION is propagated to ' . $worker->name);
}

# One index exists before the rows, two are built from them.
on_coordinator(qq{
CREATE TABLE visits (tenant int, n int, code int, id uuid, mail citext, PRIMARY KEY (tenant, n));
CREATE INDEX visits_code ON visits @{[ using_index('code') ]};
SELECT create_distributed_table('visits', 'tenant', shard_count => 4);
CREATE TABLE oracle AS SELECT i % 50 AS tenant, i AS n, i AS code, md5(i::text)::uuid AS id, ('User' || i || '\@Example.org')::citext AS mail
	FROM generate_series(1, $rows) i;
INSERT INTO visits SELECT * FROM oracle;
CREATE INDEX visits_id ON visits @{[ using_index('id') ]}});
on_coordinator("CREATE INDEX CONCURRENTLY visits_mail ON visits @{[ using_index('mail') ]}");
on_coordinator('VACUUM ANALYZE visits');

my @indexes = qw(visits_code visits_id visits_mail);

# How many indexes of each name the shards have, and how many scans these have answered.
sub shard_indexes
{
	my ($index) = @_;
	my ($indexes, $scans) = (0, 0);

	foreach my $worker (@workers)
	{
		my ($i, $s) = split /\|/, $worker->safe_psql('postgres', qq{
SELECT count(*), coalesce(sum(s.idx_scan), 0) FROM pg_stat_user_indexes s JOIN pg_class c ON c.oid = s.indexrelid
JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'bloomidx' AND s.indexrelname ~ '^${index}_[0-9]+\$'});
		$indexes += $i;
		$scans += $s;
	}
	return ($indexes, $scans);
}

# The rows of the shards are those of the table "oracle", by a sequential scan and by each index; and every index is good.
sub all_is_well
{
	my ($when) = @_;
	my $digest = 'count(*), sum(hashtextextended(r::text, 0))';
	my $expected = on_coordinator("SELECT $digest FROM oracle r");

	is(on_coordinator("SELECT $digest FROM visits r"), $expected, "$when: the shards have all rows");
	foreach my $index (@indexes)
	{
		my $column = $index =~ s/visits_//r;
		my ($many, $before) = shard_indexes($index);

		is($many, 4, "$when: each shard has the index $index");
		is(on_coordinator(qq{
DO \$\$
DECLARE
	key text;
BEGIN
	CREATE TEMP TABLE found AS SELECT * FROM oracle WHERE false;
	FOR key IN SELECT $column FROM oracle ORDER BY md5(n::text) LIMIT 50 LOOP
		EXECUTE format('INSERT INTO found SELECT * FROM visits WHERE $column = %L', key);
	END LOOP;
END \$\$;
SELECT (SELECT ($digest)::text FROM found r) = (SELECT ($digest)::text FROM (SELECT * FROM oracle ORDER BY md5(n::text) LIMIT 50) r),
	(SELECT count(*) FROM found)}),
			't|50', "$when: lookups by $column find the rows");
		foreach my $worker (@workers)
		{
			$worker->poll_query_until('postgres', "SELECT count(*) FILTER (WHERE idx_scan = 0) = 0 FROM pg_stat_user_indexes WHERE indexrelname ~ '^${index}_[0-9]+\$'");
		}
		my (undef, $after) = shard_indexes($index);
		cmp_ok($after, '>=', $before + 50, "$when: the shards answer by $index");
	}
	is(on_coordinator(q{
SELECT bool_and(success), sum(result::bigint) FROM run_command_on_shards('visits', $$
	SELECT sum(bloomidx_check(i.indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
	WHERE i.indrelid = '%s'::regclass AND a.amname = 'bloomidx' $$)}),
		't|' . @indexes * (split /\|/, $expected)[0], "$when: bloomidx_check of every index on every shard");
	return;
}
all_is_well('built');
like(on_coordinator(q{EXPLAIN (COSTS OFF) SELECT * FROM visits WHERE tenant = 1 AND id = md5('1')::uuid}),
	qr/Task Count: 1\n.*visits_id_\d+/s, 'with the distribution column one shard is asked, by its index');
like(on_coordinator(q{EXPLAIN (COSTS OFF) SELECT * FROM visits WHERE id = md5('1')::uuid}),
	qr/Task Count: 4\n.*visits_id_\d+/s, 'and without it all shards');
is(on_coordinator(q{SELECT bloomidx_check('visits_id')}), 0, 'the index of the coordinator is empty');
is(on_coordinator(q{SELECT n FROM visits WHERE mail = 'uSER77@example.ORG'}), 77, 'citext is compared as citext');

on_coordinator(qq{
DELETE FROM $_ WHERE n % 10 = 0;
UPDATE $_ SET id = md5(id::text)::uuid WHERE n % 7 = 0}) foreach 'visits', 'oracle';
on_coordinator('VACUUM visits');
all_is_well('changed');
on_coordinator('REINDEX TABLE visits');
all_is_well('reindexed');

# Shards move to the other worker and back, while two sessions insert rows.
on_coordinator('CREATE SEQUENCE moving START 100001; CREATE TABLE stop (a int)');
my @sessions = map { start_statement($coordinator, q{
DO $$
DECLARE
	i int;
BEGIN
	WHILE NOT EXISTS (SELECT FROM stop) LOOP
		i := nextval('moving');
		INSERT INTO visits VALUES (i % 50, i, i, md5(i::text)::uuid, 'User' || i || '@Example.org');
		COMMIT;
	END LOOP;
END $$}) } 1, 2;
my $inserted = sub {
	my ($n) = @_;
	$coordinator->poll_query_until('postgres', "SELECT last_value > $n FROM moving") or die 'no rows are inserted';
};
$inserted->(100010);
my $moves = 0;
foreach my $mode ('force_logical', 'block_writes')
{
	foreach my $from (0, 1)
	{
		my $place = sub { my ($worker) = @_; return "'" . $worker->host . "', " . $worker->port; };
		my $shard = on_coordinator("SELECT min(shardid) FROM citus_shards WHERE table_name = 'visits'::regclass AND nodeport = " . $workers[$from]->port);

		on_coordinator("SELECT citus_move_shard_placement($shard, @{[ $place->($workers[$from]) ]}, @{[ $place->($workers[1 - $from]) ]}, '$mode')");
		$moves++;
	}
}
is($moves, 4, 'shards move between the workers while rows are inserted');
$inserted->(on_coordinator('SELECT last_value + 20 FROM moving'));
on_coordinator('INSERT INTO stop VALUES (1)');
foreach my $session (@sessions)
{
	$session->quit;
	unlike($session->{stderr}, qr/ERROR|FATAL/, 'no insertion fails while shards move');
}
my $last = on_coordinator('SELECT last_value FROM moving');
note("rows inserted while shards moved: " . ($last - 100000));
on_coordinator("INSERT INTO oracle SELECT i % 50, i, i, md5(i::text)::uuid, 'User' || i || '\@Example.org' FROM generate_series(100001, $last) i");
# the shards that have moved away
on_coordinator('CALL citus_cleanup_orphaned_resources()');
all_is_well('moved');

foreach my $node ($coordinator, @workers)
{
	$node->stop;
	log_is_clean($node, 'citus');
}
done_testing();
