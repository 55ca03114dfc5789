# Partitions on other servers, by postgres_fdw: a condition is sent to the shards, each of which answers by its own index; the
# rows are those of a sequential scan.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $local = new_node('local');
my @shards = map { new_node("shard$_") } 1, 2;
my %available = map { $_ => 1 } split /\n/, $local->safe_psql('postgres', 'SELECT name FROM pg_available_extensions');
if (!$available{postgres_fdw})
{
	$_->stop foreach $local, @shards;
	plan skip_all => 'postgres_fdw is not available';
}

# Each shard has one partition by hash, and one of a month.
$local->safe_psql('postgres', q{
CREATE EXTENSION postgres_fdw;
CREATE TABLE events (id uuid, n int, pad text) PARTITION BY HASH (id);
CREATE TABLE log (at date, trace text, pad text) PARTITION BY RANGE (at)});
foreach my $i (1, 2)
{
	my $shard = $shards[ $i - 1 ];
	my ($host, $port) = ($shard->host, $shard->port);
	my $month = "FOR VALUES FROM ('2026-0$i-01') TO ('2026-0@{[ $i + 1 ]}-01')";

	$shard->safe_psql('postgres', qq{
CREATE TABLE events (id uuid, n int, pad text);
CREATE INDEX events_id ON events @{[ using_index('id') ]};
CREATE TABLE log (at date, trace text, pad text);
CREATE INDEX log_trace ON log @{[ using_index('trace') ]}});
	$local->safe_psql('postgres', qq{
CREATE SERVER shard$i FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR PUBLIC SERVER shard$i;
CREATE FOREIGN TABLE events_$i PARTITION OF events FOR VALUES WITH (MODULUS 2, REMAINDER @{[ $i - 1 ]})
	SERVER shard$i OPTIONS (table_name 'events');
CREATE FOREIGN TABLE log_$i PARTITION OF log $month SERVER shard$i OPTIONS (table_name 'log')});
}
$local->safe_psql('postgres', q{
CREATE TABLE log_3 PARTITION OF log FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
CREATE TABLE rows_of_events AS SELECT md5(i::text)::uuid AS id, i AS n, repeat('x', 80) AS pad FROM generate_series(1, 20000) i;
CREATE TABLE rows_of_log AS SELECT date '2026-01-01' + i % 90 AS at, md5(i::text) AS trace, repeat('x', 80) AS pad
	FROM generate_series(1, 30000) i;
ALTER SERVER shard1 OPTIONS (ADD batch_size '1000');
ALTER SERVER shard2 OPTIONS (ADD batch_size '1000');
INSERT INTO events SELECT * FROM rows_of_events;
INSERT INTO log SELECT * FROM rows_of_log});

# CREATE INDEX on the parent leaves foreign partitions out.
$local->safe_psql('postgres', 'CREATE INDEX log_trace ON log ' . using_index('trace'));
is($local->safe_psql('postgres', q{
SELECT string_agg(i.inhrelid::regclass::text, ' ' ORDER BY i.inhrelid::regclass::text) FROM pg_inherits i
WHERE inhparent = 'log'::regclass AND EXISTS (SELECT FROM pg_index x WHERE x.indrelid = i.inhrelid)}),
	'log_3', 'CREATE INDEX on the parent indexes the local partition only');
is($local->safe_psql('postgres', q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'log_trace'::regclass}),
	't', 'and the index of the parent is valid');
$_->safe_psql('postgres', 'VACUUM ANALYZE') foreach $local, @shards;

sub remote_conditions
{
	my ($query) = @_;
	return grep { /Remote SQL: .* WHERE / } split /\n/, $local->safe_psql('postgres', "EXPLAIN (VERBOSE, COSTS OFF) $query");
}

sub scans
{
	my ($shard, $index) = @_;
	return $shard->safe_psql('postgres', "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '$index'");
}

# Looks up $n keys, each by a statement of its own, and all of them by one.  'partitions' are those that can have the row of a
# key.
sub look_up
{
	my ($table, $column, $type, $index, $partitions) = @_;
	my $n = 100;
	my @before = map { scans($_, $index) } @shards;
	my $key = "(SELECT $column FROM rows_of_$table LIMIT 1 OFFSET 77)";
	my $digest = 'count(*), sum(hashtextextended(r::text, 0))';
	my $constant = $local->safe_psql('postgres', "SELECT $key");

	is(scalar(remote_conditions("SELECT * FROM $table WHERE $column = '$constant'")),
		$partitions, "$table: the condition is sent to $partitions shard(s)");
	is($local->safe_psql('postgres', qq{
DO \$\$
DECLARE
	key $type;
BEGIN
	CREATE TEMP TABLE found AS SELECT * FROM $table WHERE false;
	FOR key IN SELECT $column FROM rows_of_$table ORDER BY md5($column\::text) LIMIT $n LOOP
		EXECUTE format('INSERT INTO found SELECT * FROM $table WHERE $column = %L', key);
	END LOOP;
END \$\$;
SELECT (SELECT ($digest)::text FROM found r) = (SELECT ($digest)::text FROM
	(SELECT * FROM rows_of_$table ORDER BY md5($column\::text) LIMIT $n) r), (SELECT count(*) FROM found)}),
		"t|$n", "$table: lookups of $n keys find the rows of a sequential scan");
	is($local->safe_psql('postgres', qq{
SELECT $digest FROM $table r WHERE $column = ANY (ARRAY(SELECT $column FROM rows_of_$table ORDER BY md5($column\::text) LIMIT $n))}),
		$local->safe_psql('postgres', "SELECT $digest FROM (SELECT * FROM rows_of_$table ORDER BY md5($column\::text) LIMIT $n) r"),
		"$table: one statement with all keys finds the same rows");
	foreach my $i (0, 1)
	{
		my $least = $before[$i] + ($partitions == 2 ? $n : $n / 4);

		$shards[$i]->poll_query_until('postgres', "SELECT idx_scan >= $least FROM pg_stat_user_indexes WHERE indexrelname = '$index'");
		cmp_ok(scans($shards[$i], $index), '>=', $least, "$table: shard @{[ $i + 1 ]} answers by its index");
	}
	return;
}
look_up('events', 'id', 'uuid', 'events_id', 1);
look_up('log', 'trace', 'text', 'log_trace', 2);

# The same rows are deleted and updated everywhere.
$local->safe_psql('postgres', qq{
DELETE FROM $_ WHERE hashtext($_\::text) % 10 = 0;
UPDATE $_ SET n = -n WHERE n % 7 = 0}) foreach 'events', 'rows_of_events';
my $contents = 'SELECT count(*), sum(hashtextextended(r::text, 0))';
isnt($local->safe_psql('postgres', 'SELECT count(*) FROM events'), 20000, 'rows are deleted');
is($local->safe_psql('postgres', "$contents FROM events r"), $local->safe_psql('postgres', "$contents FROM rows_of_events r"),
	'UPDATE and DELETE on the shards');

# citext: its operator is sent only if the server says that the shard has the extension.
SKIP:
{
	skip 'bloomidx_citext is not available', 4 if !$available{citext} || !$available{bloomidx_citext} || $ENV{BLOOMIDX_EXTENSION};
	$shards[0]->safe_psql('postgres', qq{
CREATE EXTENSION bloomidx_citext CASCADE;
CREATE TABLE people (mail citext, pad text);
INSERT INTO people SELECT 'User' || i || '\@Example.org', repeat('x', 80) FROM generate_series(1, 20000) i;
CREATE INDEX people_mail ON people @{[ using_index('mail') ]};
ANALYZE people});
	$local->safe_psql('postgres', q{
CREATE EXTENSION citext;
CREATE FOREIGN TABLE people (mail citext, pad text) SERVER shard1});
	my $query = q{SELECT mail FROM people WHERE mail = 'uSER77@example.ORG'};

	is(scalar(remote_conditions($query)), 0, 'citext: without the option the condition is not sent');
	$local->safe_psql('postgres', q{ALTER SERVER shard1 OPTIONS (ADD extensions 'citext')});
	is(scalar(remote_conditions($query)), 1, 'citext: with the option "extensions" the condition is sent');
	is($local->safe_psql('postgres', $query), 'User77@Example.org', 'citext: the row is found');
	$shards[0]->poll_query_until('postgres', "SELECT idx_scan >= 1 FROM pg_stat_user_indexes WHERE indexrelname = 'people_mail'");
	cmp_ok(scans($shards[0], 'people_mail'), '>=', 1, 'citext: the shard answers by its index');
}

log_is_clean($_, 'shards') foreach $local, @shards;
$_->stop foreach $local, @shards;
done_testing();
