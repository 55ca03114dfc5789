# The races that matter, each forced by holding a backend at a place named in src/debug.h.
#
# The extension is bloomidx_debug: the same sources, with assertions and pauses.  A session that holds the
# advisory lock (class, point) exclusively stops whoever comes to that point.  Each case is repeated (env
# BLOOMIDX_RACE_TRIES, 3 by default), because the same index has to survive it again and again.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tries = $ENV{BLOOMIDX_RACE_TRIES} || 3;
my $class = 1112034391;
my %point = (
	search_slice => 1,
	insert_key => 2,
	allocated => 3,
	published => 4,
	filled => 5,
	claims => 10,
	build_page => 6,
	inspect => 9);

my $node = new_node(
	'races',
	init => [ allows_streaming => 1 ],
	extension => 'bloomidx_debug',
	conf => "max_prepared_transactions = 4\nwal_consistency_checking = 'generic'\n");

# The session that holds the gates.  Each try has its own, because a session may not outlive the tests' timeout.
my $gate;

sub close_gate { $gate->query_safe("SELECT pg_advisory_lock($class, $point{$_[0]})"); return; }
sub open_gate { $gate->query_safe("SELECT pg_advisory_unlock($class, $point{$_[0]})"); return; }

# Waits until n backends stand at the point.
sub wait_at
{
	my ($where, $n) = @_;
	$n ||= 1;
	$node->poll_query_until(
		'postgres', qq{
SELECT count(*) >= $n FROM pg_locks
WHERE locktype = 'advisory' AND classid = $class AND objid = $point{$where} AND NOT granted})
	  or die "nobody came to $where";
	return;
}

# Starts a statement in a new session that is expected to stop somewhere.
sub start
{
	my ($sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/started/, "\\echo started\n$sql;\n\\echo finished\n");
	return $session;
}

sub finish
{
	my ($session) = @_;
	$session->quit;
	return;
}

# The same rows by the index and by a sequential scan.
sub is_complete
{
	my ($table, $name) = @_;
	is(lost_rows($node, $table, 'k', "${table}_k_idx"), '0', $name);
	return;
}

# Forces a rebuild of every segment at the next summarize: rows far beyond what the filters were made for.
my $serial = 0;

sub fresh_table
{
	my ($extra) = @_;
	my $table = 'race' . ++$serial;
	$node->safe_psql(
		'postgres', qq{
CREATE TABLE $table (k int, v text) WITH (fillfactor = 50);
CREATE INDEX ON $table @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO $table SELECT i, repeat('x', 200) FROM generate_series(1, 300) i;
@{[ $extra || '' ]}});
	return $table;
}

# Narrow rows fill up the pages of wide ones.
sub overfill
{
	my ($table, $from) = @_;
	$node->safe_psql(
		'postgres', qq{
DELETE FROM $table WHERE k % 2 = 0 AND k < 1000000;
VACUUM (INDEX_CLEANUP off) $table;
ALTER TABLE $table SET (fillfactor = 100);
INSERT INTO $table SELECT $from + i, '' FROM generate_series(1, 2000) i;});
	return;
}

for my $try (1 .. $tries)
{
	$gate = $node->background_psql('postgres');

	# --- an insert between the publication of the shadow and the reading of the heap, and one after it
	my $table = fresh_table();
	overfill($table, 1000000);
	close_gate('published');
	my $vacuum = start("SELECT bloomidx_summarize('${table}_k_idx')");
	wait_at('published');
	$node->safe_psql('postgres', "INSERT INTO $table VALUES (-1, 'while published')");
	$node->safe_psql('postgres', "BEGIN; INSERT INTO $table VALUES (-2, 'prepared'); PREPARE TRANSACTION 'p$try'");
	$node->safe_psql('postgres', "INSERT INTO $table SELECT 5000000 + i, repeat('y', 500) FROM generate_series(1, 500) i");
	close_gate('filled');
	open_gate('published');
	wait_at('filled');
	$node->safe_psql('postgres', "INSERT INTO $table VALUES (-3, 'while filled')");
	$node->safe_psql('postgres', "UPDATE $table SET k = -4 WHERE k = 101");
	open_gate('filled');
	finish($vacuum);
	$node->safe_psql('postgres', "COMMIT PREPARED 'p$try'");
	is_complete($table, "try $try: inserts during a rebuild");
	is( $node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k IN (-1, -2, -3, -4)"),
		4, "try $try: rows inserted at each step of a rebuild");

	# --- an insert that has found its pages before the shadow was published, and sets its bits after the swap
	$table = fresh_table();
	overfill($table, 1000000);
	close_gate('insert_key');
	my $insert = start("INSERT INTO $table VALUES (-5, 'late')");
	wait_at('insert_key');
	$node->safe_psql('postgres', "SELECT bloomidx_summarize('${table}_k_idx')");
	open_gate('insert_key');
	finish($insert);
	is_complete($table, "try $try: insert that started before a rebuild");

	# --- a statement that has inserted a row before the shadow was published, and inserts the next after the heap was read
	$table = fresh_table();
	overfill($table, 1000000);
	$gate->query_safe('SELECT pg_advisory_lock(4711)');
	my $slow = start("INSERT INTO $table SELECT -20 - i, CASE WHEN i = 2 THEN pg_advisory_lock_shared(4711)::text END FROM generate_series(1, 3) i");
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted")
	  or die 'the insert does not wait';
	close_gate('filled');
	$vacuum = start("SELECT bloomidx_summarize('${table}_k_idx')");
	wait_at('filled');
	$gate->query_safe('SELECT pg_advisory_unlock(4711)');
	finish($slow);
	open_gate('filled');
	finish($vacuum);
	is_complete($table, "try $try: statement that spans a rebuild");
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k IN (-21, -22, -23)"),
		3, "try $try: all rows of that statement");

	# --- keys that the old filters know from dead rows and the new ones do not, in rows that come after the heap was read
	$table = fresh_table();
	overfill($table, 1000000);
	$node->safe_psql(
		'postgres', qq{
CREATE TABLE gone$try AS SELECT (ctid::text::point)[0] AS page, min(k) AS k FROM $table WHERE k < 1000 GROUP BY 1;
DELETE FROM $table t USING gone$try g WHERE t.k = g.k;
VACUUM (INDEX_CLEANUP off) $table});
	close_gate('filled');
	$vacuum = start("SELECT bloomidx_summarize('${table}_k_idx')");
	wait_at('filled');
	$node->safe_psql(
		'postgres', qq{
UPDATE $table t SET k = g.k FROM gone$try g, (SELECT (ctid::text::point)[0] AS page, max(k) AS k FROM $table GROUP BY 1) m
WHERE m.page = g.page AND t.k = m.k});
	open_gate('filled');
	finish($vacuum);
	is_complete($table, "try $try: keys that come back during a rebuild");

	# --- a search between directory and slice page, across two rebuilds that recycle the page
	$table = fresh_table();
	close_gate('search_slice');
	my $search = $node->background_psql('postgres');
	$search->query_safe('SET enable_seqscan = off');
	$search->query_until(qr/started/, "\\echo started\nSELECT 'found ' || count(*) FROM $table WHERE k = 7;\n");
	wait_at('search_slice');
	for my $round (1 .. 2)
	{
		overfill($table, 1000000 * $round);
		cmp_ok($node->safe_psql('postgres', "SELECT bloomidx_summarize('${table}_k_idx')"), '>', 0,
			"try $try: rebuild $round under a waiting search");
	}
	open_gate('search_slice');
	like($search->query("SELECT 'done'"), qr/found 1/, "try $try: search across two rebuilds");
	$search->quit;
	is_complete($table, "try $try: table after two rebuilds");

	# --- two inserters that make the same segment
	$table = 'race' . ++$serial;
	$node->safe_psql('postgres', "CREATE TABLE $table (k int, v text); CREATE INDEX ON $table " . using_index('k'));
	close_gate('allocated');
	my @inserts = map { start("INSERT INTO $table VALUES ($_, 'racing')") } 1 .. 3;
	wait_at('allocated');
	$node->poll_query_until('postgres',
		"SELECT count(*) >= 2 FROM pg_locks WHERE relation = '${table}_k_idx'::regclass AND locktype = 'page' AND NOT granted")
	  or die;

	# --- and VACUUM's sweep meanwhile: it must not free what is allocated and not published
	my $sweep = start("VACUUM $table");
	open_gate('allocated');
	finish($_) for @inserts;
	finish($sweep);
	$node->safe_psql('postgres', "INSERT INTO $table SELECT i, repeat('z', 100) FROM generate_series(10, 5000) i");
	is_complete($table, "try $try: several inserters make the same segment");

	# --- who finds its page does not wait for somebody who makes another
	$table = fresh_table();
	close_gate('allocated');
	$insert = start("INSERT INTO $table SELECT 2000 + i, repeat('x', 1900) FROM generate_series(1, 400) i");
	wait_at('allocated');
	is($node->psql('postgres', "SET lock_timeout = '20s'; UPDATE $table SET k = -30 WHERE k = 1"),
		0, "try $try: insert beside one that makes pages");
	is_complete($table, "try $try: search beside an insert that makes pages");

	# --- nor does bloomidx_check(), which therefore does not hold up who makes pages
	is($node->psql('postgres', "SET lock_timeout = '20s'; SELECT bloomidx_check('${table}_k_idx')"),
		0, "try $try: bloomidx_check beside an insert that makes pages");
	open_gate('allocated');
	finish($insert);
	is_complete($table, "try $try: insert that made pages");

	# --- pages that are made while bloomidx_check() reads the directory are no contradiction: it need not read it again
	close_gate('claims');
	my $check = start("SELECT bloomidx_check('${table}_k_idx')");
	wait_at('claims');
	$node->safe_psql('postgres', "INSERT INTO $table SELECT 3000 + i, repeat('x', 1900) FROM generate_series(1, 1500) i");
	$gate->query_safe("SELECT pg_advisory_unlock($class, $point{claims}), pg_advisory_lock($class, $point{claims})");
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^SELECT bloomidx_check' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'")
	  or die;
	is( $node->safe_psql(
			'postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $class AND objid = $point{claims} AND NOT granted"),
		0, "try $try: bloomidx_check beside inserts that make pages reads the directory once");
	open_gate('claims');
	finish($check);

	# --- the first row comes when a function that shows an index has read the metapage, and nothing else
	$table = 'race' . ++$serial;
	my $units = layout() eq 'block' ? 'blocks' : 'segments';
	$node->safe_psql('postgres', "CREATE TABLE $table (k int, v text); CREATE INDEX ON $table " . using_index('k'));
	close_gate('inspect');
	my @shows = map {
		my $show = $node->background_psql('postgres');
		$show->query_until(qr/started/, "\\echo started\n$_;\n");
		$show
	} "SELECT 'units ' || count(*) FROM bloomidx_$units('${table}_k_idx')",
	  "SELECT 'info ' || concat_ws(' ', coalesce(pages_per_range, 0), segments, index_pages, free_pages) FROM bloomidx_info('${table}_k_idx')";
	wait_at('inspect', 2);
	$node->safe_psql('postgres', "INSERT INTO $table SELECT i, 'first' FROM generate_series(1, 1000) i");
	open_gate('inspect');
	my @shown = map { my $result = $_->query("SELECT 'done'"); $_->quit; $result } @shows;
	like($shown[0], qr/units 0$/m, "try $try: bloomidx_$units of an index that gets its first row");
	like($shown[1], qr/info 0 0 1 0$/m, "try $try: bloomidx_info of an index that gets its first row");

	# --- HOT update behind the scan of CREATE INDEX CONCURRENTLY
	$table = 'race' . ++$serial;
	$node->safe_psql(
		'postgres', qq{
CREATE TABLE $table (k int, v text) WITH (fillfactor = 50);
INSERT INTO $table SELECT i, repeat('x', 100) FROM generate_series(1, 500) i});
	close_gate('build_page');
	my $build = start("CREATE INDEX CONCURRENTLY ON $table " . using_index('k', pages_per_range => 1));
	wait_at('build_page');
	$node->safe_psql('postgres', "UPDATE $table SET v = 'hot' WHERE k <= 20; UPDATE $table SET k = k + 100000 WHERE k <= 10");
	open_gate('build_page');
	finish($build);
	is_complete($table, "try $try: HOT update behind the scan of CREATE INDEX CONCURRENTLY");

	# --- and behind the scan of a rebuild
	overfill($table, 1000000);
	close_gate('build_page');
	$vacuum = start("SELECT bloomidx_summarize('${table}_k_idx')");
	wait_at('build_page');
	$node->safe_psql('postgres', "UPDATE $table SET v = 'hot again' WHERE k BETWEEN 11 AND 30; UPDATE $table SET k = k + 200000 WHERE k BETWEEN 21 AND 25");
	open_gate('build_page');
	finish($vacuum);
	is_complete($table, "try $try: HOT update behind the scan of a rebuild");

	# --- an older snapshot sees the old values after REINDEX, VACUUM and rebuild
	$table = fresh_table();
	my $old = $node->background_psql('postgres');
	$old->query_safe('SET enable_seqscan = off');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$old->query_safe("SELECT count(*) FROM pg_class");
	$node->safe_psql('postgres', "UPDATE $table SET k = -k; DELETE FROM $table WHERE k < -250");
	$node->safe_psql('postgres', "VACUUM $table");
	$node->safe_psql('postgres', "REINDEX INDEX ${table}_k_idx");
	overfill($table, 1000000);
	$node->safe_psql('postgres', "SELECT bloomidx_summarize('${table}_k_idx')");
	is($old->query_safe("SELECT count(*) FROM $table WHERE k IN (1, 50, 255, 300)"), 4,
		"try $try: older snapshot after REINDEX and rebuild");
	$old->quit;

	# --- VACUUM cancelled at each step, and run again
	$table = fresh_table();
	overfill($table, 1000000);
	for my $where ('build_page', 'published', 'filled')
	{
		close_gate($where);
		my $cancelled = start("VACUUM $table");
		wait_at($where);
		$node->safe_psql('postgres', "INSERT INTO $table VALUES (-9, '$where')");
		$node->safe_psql('postgres',
			"SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = $class AND NOT granted");
		like($cancelled->query("SELECT 'session ' || 'is usable'"), qr/session is usable/, "try $try: session after cancel at $where");
		is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE relation = '$table'::regclass"), 0,
			"try $try: no lock is left");
		finish($cancelled);
		open_gate($where);
		is_complete($table, "try $try: VACUUM cancelled at $where");
	}
	my $pages = $node->safe_psql('postgres', "VACUUM $table; SELECT pg_relation_size('${table}_k_idx')");
	$node->safe_psql('postgres', "VACUUM $table");
	is($node->safe_psql('postgres', "SELECT pg_relation_size('${table}_k_idx')"), $pages, "try $try: VACUUM run again finds nothing to do");
	is_complete($table, "try $try: VACUUM run again");
	$gate->quit;
}

# --- a row whose own insert fails in the index's expression does not stop a rebuild, and is not kept
$node->safe_psql(
	'postgres', qq{
CREATE TABLE failing (k int, v text) WITH (fillfactor = 50);
CREATE INDEX failing_idx ON failing @{[ using_index('(100 / k)', pages_per_range => 1) ]};
INSERT INTO failing SELECT i, repeat('x', 200) FROM generate_series(1, 300) i;});
my ($ret, $out, $err) = $node->psql('postgres', "INSERT INTO failing VALUES (0, 'fails')");
like($err, qr/division by zero/, 'the insert fails in the expression');
$node->safe_psql('postgres', 'INSERT INTO failing SELECT 1000 + i FROM generate_series(1, 3000) i; VACUUM failing');
is( $node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM failing WHERE 100 / k = 50"), 1,
	'rebuild with the leftovers of a failed insert');

# --- keys whose TOAST is gone
$node->safe_psql(
	'postgres', q{
CREATE TABLE toasted (k text) WITH (fillfactor = 50);
ALTER TABLE toasted ALTER k SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT repeat(md5(i::text), 100) FROM generate_series(1, 50) i;
});
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query_safe('SELECT count(*) FROM pg_class');
$node->safe_psql('postgres', 'DELETE FROM toasted WHERE ctid > \'(0,10)\'');
$holder->query_safe('COMMIT');
$node->safe_psql('postgres', qq{
SELECT format('VACUUM %s', reltoastrelid::regclass) FROM pg_class WHERE relname = 'toasted' \\gexec
CREATE INDEX toasted_idx ON toasted @{[ using_index('k') ]};
});
is(lost_rows($node, 'toasted', 'k', 'toasted_idx'), '0', 'index made over dead rows whose TOAST is gone');
$node->safe_psql('postgres', 'VACUUM toasted');
is(lost_rows($node, 'toasted', 'k', 'toasted_idx'), '0', 'and after VACUUM');
$holder->quit;

# --- an older snapshot on a standby, after CREATE INDEX on the primary, which takes the old versions for dead.  Pages
# with free space, by the fillfactor of the moment, are not pruned, which would make replay wait for the snapshot.
$node->backup('races');
my $standby = PostgreSQL::Test::Cluster->new('races_standby');
$standby->init_from_backup($node, 'races', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
$standby->start;
for my $try (1 .. $tries)
{
	my $table = "standby$try";
	$node->safe_psql('postgres',
		"CREATE TABLE $table (k int, v text) WITH (fillfactor = 40); INSERT INTO $table SELECT i, 'v' FROM generate_series(1, 1000) i; ALTER TABLE $table SET (fillfactor = 100)");
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	my $old = $standby->background_psql('postgres');
	$old->query_safe('SET enable_seqscan = off');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$old->query_safe('SELECT count(*) FROM pg_class');
	$node->safe_psql('postgres', "UPDATE $table SET k = k + 100000 WHERE k <= 300; DELETE FROM $table WHERE k BETWEEN 301 AND 400");
	$node->safe_psql('postgres', "CREATE INDEX ON $table " . using_index('k', pages_per_range => 1));
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	like($old->query_safe("EXPLAIN SELECT * FROM $table WHERE k = 5"), qr/Bitmap Index Scan/, "try $try: the old snapshot uses the new index");
	is($old->query_safe("SELECT count(*) FROM $table WHERE k IN (5, 299, 350, 900)"), 4,
		"try $try: older snapshot on a standby after CREATE INDEX");
	$old->quit;
}

# --- the same after CREATE INDEX CONCURRENTLY: rows that were inserted behind the scan by a session that did not have to
# insert into the index yet, and that are deleted before the index is validated.  Some go to segments that the build has
# never seen.  With an expression, a deleted row cannot be computed safely: its range has to be in doubt.  Feedback keeps the
# catalogs from being pruned, which would make replay wait for the snapshot.
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
$standby->reload;
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL') or die 'no feedback';
for my $try (1 .. $tries)
{
	$gate = $node->background_psql('postgres');
	for my $key ('k', '(k + 0)')
	{
		my $table = 'behind' . ++$serial;
		my $what = "try $try: key $key";

		$node->safe_psql('postgres',
			"CREATE TABLE $table (k int, v text); ALTER TABLE $table ALTER v SET STORAGE PLAIN; INSERT INTO $table SELECT generate_series(1, 100)");
		close_gate('build_page');
		my $build = start("CREATE INDEX CONCURRENTLY ${table}_i ON $table " . using_index($key, pages_per_range => 1));
		wait_at('build_page');
		$node->safe_psql('postgres', "INSERT INTO $table SELECT -1; INSERT INTO $table SELECT -i, repeat('x', 7000) FROM generate_series(2, 150) i");
		$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
		my $old = $standby->background_psql('postgres');
		$old->query_safe('SET enable_seqscan = off');
		$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
		$old->query_safe('SELECT count(*) FROM pg_class');
		$node->safe_psql('postgres', "DELETE FROM $table WHERE k < 0");
		open_gate('build_page');
		finish($build);
		$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
		my $query = "SELECT count(*) FROM $table WHERE $key IN (" . join(', ', map { -$_ } 1 .. 150) . ')';
		like($old->query_safe("EXPLAIN $query"), qr/Bitmap Index Scan/, "$what: the old snapshot uses the index");
		is($old->query_safe($query), 150, "$what: older snapshot on a standby finds rows that came behind the scan");
		$old->quit;
	}
	$gate->quit;
}

# --- pages that were added to the file and never written, which are not in WAL, found by VACUUM and used after failover
$node->safe_psql(
	'postgres', qq{
CREATE TABLE torn (k int, v text);
CREATE INDEX torn_k_idx ON torn @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO torn SELECT i, repeat('x', 1000) FROM generate_series(1, 500) i});
my $torn = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('torn_k_idx')");
$node->stop;
truncate($torn, (-s $torn) + 6 * 8192) or die "could not extend $torn: $!";
$node->start;
$node->safe_psql('postgres', 'VACUUM torn');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop;
$standby->promote;
$standby->safe_psql('postgres', "INSERT INTO torn SELECT i, repeat('x', 1000) FROM generate_series(501, 5000) i");
is(lost_rows($standby, 'torn', 'k', 'torn_k_idx'), '0', 'free pages that a standby has never seen');
$standby->safe_psql('postgres', 'VACUUM torn');
is(lost_rows($standby, 'torn', 'k', 'torn_k_idx'), '0', 'and after VACUUM');

report('tries of each race', $tries);
log_is_clean($node, 'primary');
log_is_clean($standby, 'standby');
done_testing();
