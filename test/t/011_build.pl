# CREATE INDEX by several participants: the same answers and the same size whoever builds, everybody's rows seen as the
# leader sees them, errors and cancellation passed on, nothing lost in a crash.
#
# A worker gets a partition, which is 16384 heap pages, so the tables here have few rows and many pages.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use BloomidxTest;

my $node = new_node(
	'build', conf => q{
wal_level = replica
max_worker_processes = 12
max_parallel_workers = 8
max_parallel_maintenance_workers = 0
bgwriter_lru_maxpages = 0
});

# Only this extension shows what a command has used.
my $has_statements =
  $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'});
if ($has_statements)
{
	$node->append_conf('postgresql.conf', 'shared_preload_libraries = pg_stat_statements');
	$node->restart;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements');
}

# One heap page is one range, or all would be one partition.
my $options = 'WITH (pages_per_range = 1)';

# Run SQL that builds an index; returns how many workers were launched, or '' if none was asked for, and the messages.
sub build
{
	my ($on, $sql) = @_;
	my ($ret, $out, $err) = $on->psql('postgres', "SET client_min_messages = debug1;\n$sql");
	die "$sql: $err" if $ret != 0;
	my @launched = $err =~ /: (\d+) of \d+ parallel workers launched/g;
	return wantarray ? ($launched[-1] // '', $err) : ($launched[-1] // '');
}

# One row of about 7 kB a page, in $npages pages; keys with NULLs among them, and two values that some rows share.
sub fill
{
	my ($create, $npages) = @_;
	return qq{
CREATE FUNCTION pg_temp.make(first int, last int) RETURNS TABLE (id uuid, n int, t text, filler text) LANGUAGE sql AS \$\$
	SELECT CASE WHEN i % 1000 = 0 THEN NULL ELSE md5(i::text)::uuid END, i % 997,
		CASE WHEN i % 10 > 0 THEN 'T' || i / 4 END, repeat('x', 7000)
	FROM generate_series(first, last) i
\$\$;
$create (id uuid, n int, t text, filler text);
ALTER TABLE big ALTER filler SET STORAGE PLAIN, SET (parallel_workers = 8, autovacuum_enabled = off);
INSERT INTO big SELECT * FROM pg_temp.make(1, $npages);
};
}

# Five partitions.  Some versions are dead, some pages not all-visible.
my $npages = 5 * 16384 - 100;
$node->safe_psql('postgres', fill('CREATE UNLOGGED TABLE big', $npages) . q{
VACUUM big;
UPDATE big SET n = n + 1000 WHERE ctid IN (SELECT format('(%s,1)', p)::tid FROM generate_series(7, 80000, 800) p);
DELETE FROM big WHERE ctid IN (SELECT format('(%s,1)', p)::tid FROM generate_series(11, 80000, 800) p);
});

my @conditions = (
	q{id = ANY (ARRAY(SELECT md5((i * 331)::text)::uuid FROM generate_series(1, 400) i))},
	'n = 42',
	'n = 1008',
	q{t = ANY ('{T1,T2,T500,T7000,T20000,T20479,nothing}')},
	'id IS NULL',
	q{n = 500 AND t IS NULL},
	q{id = md5('81820')::uuid});

# The query of a condition: a count and a digest of the row addresses.
sub answer { my ($condition) = @_; return "SELECT count(*), sum(hashtextextended(ctid::text, 0)::numeric) FROM big WHERE $condition"; }

# What oracle_compare() says of one condition.
sub compared
{
	my ($on, $index, $condition) = @_;
	return $on->safe_psql('postgres', "SELECT * FROM oracle_compare('$index', '{NULL}', ARRAY[\$\$@{[ answer($condition) ]}\$\$], '{t}')");
}

# What the conditions find, with the index or without.
sub answers
{
	my ($on, $use_index) = @_;
	my $sql = "SELECT oracle_force($use_index);\n";

	foreach my $condition (@conditions)
	{
		my $query = answer($condition);
		$sql .= 'SELECT oracle_uses_index($q$' . $query . "\$q\$, 'big_index');\n" if $use_index eq 'true';
		$sql .= "$query;\n";
	}
	my $result = $on->safe_psql('postgres', $sql);
	my $used = () = $result =~ /^t$/mg;
	$result =~ s/^[tf]?\n//mg;
	return ($result, $used);
}

my ($expected) = answers($node, 'false');

sub answers_are_right
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($result, $used) = answers($node, 'true');
	is($result, $expected, "$what: the index answers as the sequential scan does");
	is($used, scalar @conditions, "$what: every condition is answered by the index");
	is( $node->safe_psql('postgres',
			"SELECT oracle_lost_rows('big', 'id', 'big_index', condition => 'n % 50 = 3')"),
		0, "$what: no row is lost");
	indexes_are_good($node, $what);
	return;
}

# As many workers as are wanted, and the same index whoever builds it.
my %size;
my %tuples;
foreach my $workers (0, 1, 2, 4)
{
	foreach my $layout ('partitioned', 'block')
	{
		my $what = "$layout, $workers workers";

		is( build(
				$node,
				"SET max_parallel_maintenance_workers = $workers;
				CREATE INDEX big_index ON big USING bloomidx (id, n, t) WITH (pages_per_range = 1, layout = $layout)"),
			$workers || '', "$what: as many workers are launched");
		$size{$layout}{$workers} = $node->safe_psql('postgres', "SELECT pg_relation_size('big_index')");
		$tuples{$workers} = $node->safe_psql('postgres', "SELECT reltuples FROM pg_class WHERE relname = 'big_index'");
		cmp_ok(abs($size{$layout}{$workers} / $size{$layout}{0} - 1),
			'<', 0.05, "$what: the size, $size{$layout}{$workers}, is that of a serial build");
		is($tuples{$workers}, $tuples{0}, "$what: as many rows are counted as in a serial build");
		answers_are_right($what);
		$node->safe_psql('postgres', 'DROP INDEX big_index');
	}
}
is($tuples{0}, $node->safe_psql('postgres', 'SELECT count(*)::real FROM big'), 'a serial build counts all rows');

# Little memory: sizes are chosen before all keys are known, and parts of the filters are written again and again.
foreach my $workers (0, 2)
{
	build($node, "SET max_parallel_maintenance_workers = $workers; SET maintenance_work_mem = '1MB';
		CREATE INDEX big_index ON big USING bloomidx (id, n, t) $options");
	cmp_ok(abs($node->safe_psql('postgres', "SELECT pg_relation_size('big_index')") / $size{partitioned}{0} - 1),
		'<', 0.05, "little memory, $workers workers: the size is that of a build with more memory");
	answers_are_right("little memory, $workers workers");
	$node->safe_psql('postgres', 'DROP INDEX big_index');
}

# No worker to be had.
is( build(
		$node,
		"SET max_parallel_workers = 0; SET max_parallel_maintenance_workers = 2;
		CREATE INDEX big_index ON big USING bloomidx (id, n, t) $options"),
	0, 'a build that gets no worker succeeds');
answers_are_right('no workers');

# The other ways to build.
my ($launched, $messages) = build($node, 'SET max_parallel_maintenance_workers = 2; REINDEX INDEX big_index');
is($launched, 2, 'REINDEX has workers');
answers_are_right('REINDEX');
is( join(', ', $messages =~ /index "big_index": ([a-z ]+): CPU: .*elapsed: [\d.]+ s/g),
	'sampling table, scanning table and writing filters, waiting for parallel workers, writing directory',
	'the leader, and nobody else, says how long each phase took');
is(build($node, 'SET max_parallel_maintenance_workers = 2; REINDEX INDEX CONCURRENTLY big_index'),
	2, 'REINDEX CONCURRENTLY has workers');
answers_are_right('REINDEX CONCURRENTLY');
$node->safe_psql('postgres', 'DROP INDEX big_index');
is( build(
		$node,
		"SET max_parallel_maintenance_workers = 2;
		CREATE INDEX CONCURRENTLY big_index ON big USING bloomidx (id, n, t) $options"),
	2, 'CREATE INDEX CONCURRENTLY has workers');
answers_are_right('CREATE INDEX CONCURRENTLY');
$node->safe_psql('postgres', 'DROP INDEX big_index');

# Buffers of workers are counted as the leader's.
SKIP:
{
	skip 'no pg_stat_statements', 2 if !$has_statements;
	my @usage;

	foreach my $workers (0, 2)
	{
		$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
		build($node, "SET max_parallel_maintenance_workers = $workers; CREATE INDEX big_index ON big USING bloomidx (id) $options");
		push @usage, $node->safe_psql('postgres',
			q{SELECT shared_blks_hit + shared_blks_read FROM pg_stat_statements WHERE query LIKE 'CREATE INDEX big_index%'});
		$node->safe_psql('postgres', 'DROP INDEX big_index');
	}
	cmp_ok($usage[0], '>=', $npages, "a serial build counts the buffers of all heap pages: $usage[0]");
	cmp_ok(abs($usage[1] / $usage[0] - 1), '<', 0.05, "a parallel build counts as many: $usage[1]");
}

# Expressions and predicates run in workers, unless they may not.
$node->safe_psql(
	'postgres', q{
CREATE FUNCTION safe(t text) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN lower(t); END';
CREATE FUNCTION unsafe(t text) RETURNS text IMMUTABLE PARALLEL UNSAFE LANGUAGE plpgsql AS 'BEGIN RETURN lower(t); END';
});
my $sought = q{= ANY ('{t1,t2,t500,t7000,t20000,t20479,nothing}')};
foreach my $function ('safe', 'unsafe')
{
	is( build(
			$node,
			"SET max_parallel_maintenance_workers = 2;
			CREATE INDEX big_index ON big USING bloomidx ($function(t)) $options WHERE n < 900"),
		$function eq 'safe' ? 2 : '',
		"an expression that is $function has workers only if it is safe");
	is(compared($node, 'big_index', "$function(t) $sought AND n < 900"),
		'S|1|1|1|0',
		"an expression that is $function: the index answers as the sequential scan does");
	$node->safe_psql('postgres', 'DROP INDEX big_index');
}
is( build(
		$node,
		"SET max_parallel_maintenance_workers = 2;
		CREATE INDEX big_index ON big USING bloomidx (id) $options WHERE unsafe(t) IS NULL"),
	'', 'a predicate that is unsafe has no workers');
$node->safe_psql('postgres', 'DROP INDEX big_index');
is( build(
		$node,
		'SET max_parallel_maintenance_workers = 2;'
		  . fill('CREATE TEMP TABLE big', 16384 + 200)
		  . "CREATE INDEX temp_index ON big USING bloomidx (id) $options"),
	'', 'a temporary table has no workers');

# An error in a worker, or in the leader, is the command's.
my ($ret, $out, $err) = $node->psql(
	'postgres', qq{
SET max_parallel_maintenance_workers = 2;
CREATE INDEX big_index ON big USING bloomidx ((1 / (n - 1008))) $options});
isnt($ret, 0, 'CREATE INDEX fails if its expression does');
like($err, qr/ERROR:  division by zero/, 'CREATE INDEX reports the error of its expression');

# Whatever stops a build, all stop at once, and nothing is left.  Each row takes a while here.
$node->safe_psql(
	'postgres', q{
CREATE FUNCTION slow(t text) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
	'BEGIN PERFORM pg_sleep(0.002); RETURN t; END';
});
my @stopped_after;
my $is_slow_build = q{query LIKE '%CREATE INDEX%slow%' AND pid <> pg_backend_pid() AND state = 'active'};

sub stop_build
{
	my ($what, $setting, $how, $expected_error) = @_;
	my %run = (out => '', err => '');
	my $harness = IPC::Run::start(
		[
			'psql', '-X', '-d', $node->connstr('postgres'), '-c', 'SET max_parallel_maintenance_workers = 2',
			'-c', $setting, '-c', "CREATE INDEX big_index ON big USING bloomidx (slow(t)) $options"
		],
		'<', \undef, '>', \$run{out}, '2>', \$run{err});

	poll_until(
		sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE $is_slow_build") == 3 },
		'leader and workers are at work');
	my $progress = 'SELECT blocks_done, phase, blocks_total FROM pg_stat_progress_create_index';
	my ($before) = split /\|/, $node->safe_psql('postgres', $progress);
	poll_until(
		sub {
			my ($done) = split /\|/, $node->safe_psql('postgres', $progress);
			return $done > $before + 300;
		},
		'there is progress');
	like(
		$node->safe_psql('postgres', $progress),
		qr/^\d+\|building index: scanning table and writing filters\|\d+$/,
		"$what: progress is reported");

	# the time is taken in the server, where no process has to be started meanwhile
	my $seconds = $how && $node->safe_psql(
		'postgres', qq{
SET statement_timeout = '60s';
DO \$\$
DECLARE
	start timestamptz := clock_timestamp();
BEGIN
	PERFORM $how FROM pg_stat_activity WHERE $is_slow_build;
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE $is_slow_build) LOOP
		PERFORM pg_sleep(0.01);
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
	PERFORM set_config('test.seconds', extract(epoch FROM clock_timestamp() - start)::text, false);
END \$\$;
SELECT current_setting('test.seconds');
});
	$harness->finish;
	like($run{err}, $expected_error, "$what: the error is reported");

	# generous, for machines that have more to do; without any answer to interrupts it would be minutes
	if ($how)
	{
		cmp_ok($seconds, '<', 5, "$what: all stop at once, after $seconds s");
		push @stopped_after, $seconds;
	}
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'big_index'}),
		0, "$what: no index is left");
	is(orphaned_files($node), 0, "$what: no file is left");
	return;
}

stop_build('cancel', 'SELECT 1', q{CASE WHEN backend_type = 'client backend' THEN pg_cancel_backend(pid) END},
	qr/canceling statement due to user request/);
stop_build('terminate', 'SELECT 1', q{CASE WHEN backend_type = 'client backend' THEN pg_terminate_backend(pid) END},
	qr/terminating connection due to administrator command/);
stop_build('a worker ends', 'SELECT 1', q{CASE WHEN backend_type = 'parallel worker' THEN pg_terminate_backend(pid) END},
	qr/ERROR: .*(terminating|connection to parallel worker)/);
# the quickest, as a busy machine may hold up any
cmp_ok((sort { $a <=> $b } @stopped_after)[0], '<', 1, "a build can be stopped within a second: @stopped_after");
stop_build('timeout', q{SET statement_timeout = '10s'}, '', qr/canceling statement due to statement timeout/);
$node->safe_psql('postgres', 'DROP TABLE big');

# Rows of the very transaction that builds are its own in a worker, too: were they thought to be another's, they would
# not count as live.
my $own = 16384 + 500;
my $build_own = "BEGIN;\n" . fill('CREATE TABLE big', $own) . qq{
-- the first rows take so long that a worker has time to come, and gets the second partition
CREATE FUNCTION slow_start(t text) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
	'BEGIN IF length(t) < 4 THEN PERFORM pg_sleep(0.003); END IF; RETURN t; END';
SAVEPOINT s;
INSERT INTO big SELECT * FROM pg_temp.make($own + 1, $own + 100);
ROLLBACK TO s;
SAVEPOINT s;
INSERT INTO big SELECT * FROM pg_temp.make($own + 101, $own + 300);
RELEASE s;
DELETE FROM big WHERE id = md5('17')::uuid;
SET max_parallel_maintenance_workers = 1;
CREATE INDEX big_index ON big USING bloomidx (id) $options;
CREATE INDEX big_index2 ON big USING bloomidx (slow_start(t)) $options;
CREATE INDEX big_index3 ON big USING bloomidx (id) WITH (layout = block, pages_per_range = 1);
SELECT 'lost: ' || oracle_lost_rows('big', 'id', 'big_index', condition => 'n % 5 = 0');
COMMIT;
};

sub own_rows_are_right
{
	my ($on, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = $own + 200 - 1;

	is( $on->safe_psql('postgres', q{SELECT oracle_lost_rows('big', 'id', 'big_index'), count(*), count(id) > 0 FROM big}),
		"0|$count|t", "$what: every row is found");
	is(compared($on, 'big_index2', "slow_start(t) = ANY ('{T200,T4100,T4150,T4200}')"),
		'S|1|1|1|0',
		"$what: rows are found by the expression");
	indexes_are_good($on, $what);
	is( $on->safe_psql('postgres',
			q{SELECT reltuples FROM pg_class WHERE relname LIKE 'big_index%' ORDER BY relname}),
		"$count\n$count\n$count", "$what: all rows are counted as live");
	return;
}

($launched, $messages) = build($node, $build_own);
is($launched, 1, 'own rows: a worker is launched');
own_rows_are_right($node, 'own rows');

# The pages that workers made are in WAL.
$node->safe_psql('postgres', 'DROP INDEX big_index, big_index2, big_index3; CHECKPOINT');
is( build(
		$node,
		"SET max_parallel_maintenance_workers = 1;
		CREATE INDEX big_index ON big USING bloomidx (id) $options;
		CREATE INDEX big_index2 ON big USING bloomidx (slow_start(t)) $options;
		CREATE INDEX big_index3 ON big USING bloomidx (id) WITH (layout = block, pages_per_range = 1)"),
	1, 'before the crash: a worker is launched');
kill9_all($node);
$node->start;
own_rows_are_right($node, 'after a crash');
log_is_clean($node, 'after all builds');
$node->stop;

# With wal_level = minimal the transaction that made the table writes no WAL for it, or its indexes: workers know.
my $minimal = new_node(
	'minimal', conf => q{
wal_level = minimal
max_wal_senders = 0
wal_skip_threshold = 1MB
});
my $lsn = $minimal->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
is(build($minimal, $build_own), 1, 'wal_level = minimal: a worker is launched');
cmp_ok($minimal->safe_psql('postgres', "SELECT pg_current_wal_lsn() - '$lsn'"),
	'<', 10_000_000, 'wal_level = minimal: a build writes little WAL');
kill9_all($minimal);
$minimal->start;
own_rows_are_right($minimal, 'wal_level = minimal, after a crash');
log_is_clean($minimal, 'wal_level = minimal');
$minimal->stop;

done_testing();
