# The races that matter, each forced by holding a backend at a place named in src/debug.h.
#
# The extension is bloomidx_debug: the same sources, with assertions and pauses.  Each sub below is one race, and is named
# after what it claims.  Most are repeated (env BLOOMIDX_RACE_TRIES, 3 by default), because the same index has to survive
# a race again and again.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tries = $ENV{BLOOMIDX_RACE_TRIES} || 3;

my $node = new_node(
	'races',
	init => [ allows_streaming => 1 ],
	extension => 'bloomidx_debug',
	conf => "max_prepared_transactions = 4\nwal_consistency_checking = 'generic'\n");
my $standby;

# Each try has its own, because a session may not outlive the tests' timeout.
my $gate;

#
# What the races share
#

sub query { return $node->safe_psql('postgres', $_[0]); }
sub start { return start_statement($node, $_[0]); }

# The same rows by the index and by a sequential scan.
sub all_found
{
	my ($table, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(lost_rows($node, $table, 'k', "${table}_k_idx"), '0', "$when: every row is found");
}

# How many rows the index finds.
sub count_by_index
{
	my ($table, $condition) = @_;
	return query("SET enable_seqscan = off; SELECT count(*) FROM $table WHERE $condition");
}

my $serial = 0;
sub new_name { my ($prefix) = @_; return $prefix . ++$serial; }

# An empty table with an index.
sub empty_table
{
	my $table = new_name('race');
	query("CREATE TABLE $table (k int, v text); CREATE INDEX ON $table " . using_index('k'));
	return $table;
}

# One with wide rows, so that its filters are small.
sub small_table
{
	my $table = new_name('race');
	query(qq{
CREATE TABLE $table (k int, v text) WITH (fillfactor = 50);
CREATE INDEX ON $table @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO $table SELECT i, repeat('x', 200) FROM generate_series(1, 300) i});
	return $table;
}

# Narrow rows fill up the pages of wide ones, far beyond what the filters were made for: the next VACUUM or
# bloomidx_summarize() rebuilds them all.
sub overfill
{
	my ($table, $from) = @_;
	query(qq{
DELETE FROM $table WHERE k % 2 = 0 AND k < 1000000;
VACUUM (INDEX_CLEANUP off) $table;
ALTER TABLE $table SET (fillfactor = 100);
INSERT INTO $table SELECT $from + i, '' FROM generate_series(1, 2000) i;});
	return;
}

sub overfull_table
{
	my $table = small_table();
	overfill($table, 1000000);
	return $table;
}

sub rebuild { my ($table) = @_; return "SELECT bloomidx_summarize('${table}_k_idx')"; }

# Begins a rebuild of all filters, which stops at a point.
sub rebuild_until
{
	my ($table, $point) = @_;
	$gate->hold($point);
	my $session = start(rebuild($table));
	$gate->wait_for($point);
	return $session;
}

sub go_on
{
	my ($session, $point) = @_;
	$gate->release($point);
	$session->quit;
	return;
}

#
# Inserts beside a rebuild
#

# An insert between the publication of the shadow and the reading of the heap, and one after it.
sub inserts_during_a_rebuild_are_kept
{
	my ($try) = @_;
	my $table = overfull_table();
	my $rebuild = rebuild_until($table, 'published');

	query("INSERT INTO $table VALUES (-1, 'while published')");
	query("BEGIN; INSERT INTO $table VALUES (-2, 'prepared'); PREPARE TRANSACTION '$table'");
	query("INSERT INTO $table SELECT 5000000 + i, repeat('y', 500) FROM generate_series(1, 500) i");
	$gate->hold('filled');
	$gate->release('published');
	$gate->wait_for('filled');
	query("INSERT INTO $table VALUES (-3, 'while filled')");
	query("UPDATE $table SET k = -4 WHERE k = 101");
	go_on($rebuild, 'filled');
	query("COMMIT PREPARED '$table'");
	all_found($table, "$try: after inserts during a rebuild");
	is(count_by_index($table, 'k IN (-1, -2, -3, -4)'), 4, "$try: rows that are inserted at each step of a rebuild are found");
	return;
}

# The same beside the making of a summary, by the insert that fills so many segments that it is worth while.
sub inserts_while_a_summary_is_made_are_kept
{
	my ($try) = @_;
	my $table = empty_table();
	my $rows = "repeat('y', @{[ int(0.6 * page_size($node)) ]})";

	query("ALTER TABLE $table ALTER v SET STORAGE plain; ALTER INDEX ${table}_k_idx SET (pages_per_range = 1); REINDEX INDEX ${table}_k_idx");
	$gate->hold('published');
	my $insert = start("INSERT INTO $table SELECT i, $rows FROM generate_series(1, 4200) i");
	$gate->wait_for('published');
	query("INSERT INTO $table SELECT -i, $rows FROM generate_series(1, 10) i");
	like(query("SELECT note FROM bloomidx_info('${table}_k_idx')"),
		qr/filters are being rebuilt/, "$try: bloomidx_info notes that a summary is being made");
	$gate->hold('filled');
	$gate->release('published');
	$gate->wait_for('filled');
	query("INSERT INTO $table SELECT -i, $rows FROM generate_series(11, 20) i");
	go_on($insert, 'filled');
	is(query("SELECT summarized_partitions FROM bloomidx_info('${table}_k_idx')"), 1, "$try: the summary is made");
	is(count_by_index($table, 'k BETWEEN -20 AND -1'), 20, "$try: rows that are inserted while a summary is made are found");
	is(query("SELECT bloomidx_check('${table}_k_idx')"), 4220, "$try: the index with the summary is good");
	return;
}

# An insert that has found its pages before the shadow was published, and sets its bits after the swap.
sub an_insert_that_began_before_a_rebuild_is_kept
{
	my ($try) = @_;
	my $table = overfull_table();

	$gate->hold('insert_key');
	my $insert = start("INSERT INTO $table VALUES (-5, 'late')");
	$gate->wait_for('insert_key');
	query(rebuild($table));
	go_on($insert, 'insert_key');
	all_found($table, "$try: after an insert that began before a rebuild and ends after it");
	return;
}

# A statement that has inserted a row before the shadow was published, and inserts the next after the heap was read.
sub all_rows_of_a_statement_that_spans_a_rebuild_are_kept
{
	my ($try) = @_;
	my $table = overfull_table();
	my $blocker = $node->background_psql('postgres');

	$blocker->query_safe('SELECT pg_advisory_lock(4711)');
	my $slow = start("INSERT INTO $table SELECT -20 - i, CASE WHEN i = 2 THEN pg_advisory_lock_shared(4711)::text END FROM generate_series(1, 3) i");
	$gate->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted");
	my $rebuild = rebuild_until($table, 'filled');
	$blocker->query_safe('SELECT pg_advisory_unlock(4711)');
	$slow->quit;
	go_on($rebuild, 'filled');
	$blocker->quit;
	all_found($table, "$try: after a statement that spans a rebuild");
	is(count_by_index($table, 'k IN (-21, -22, -23)'), 3, "$try: all rows of a statement that spans a rebuild are found");
	return;
}

# Keys that the old filters know from dead rows and the new ones do not, in rows that come after the heap was read.
sub keys_that_come_back_during_a_rebuild_are_kept
{
	my ($try) = @_;
	my $table = overfull_table();

	query(qq{
CREATE TABLE gone_$table AS SELECT (ctid::text::point)[0] AS page, min(k) AS k FROM $table WHERE k < 1000 GROUP BY 1;
DELETE FROM $table t USING gone_$table g WHERE t.k = g.k;
VACUUM (INDEX_CLEANUP off) $table});
	my $rebuild = rebuild_until($table, 'filled');
	query(qq{
UPDATE $table t SET k = g.k FROM gone_$table g, (SELECT (ctid::text::point)[0] AS page, max(k) AS k FROM $table GROUP BY 1) m
WHERE m.page = g.page AND t.k = m.k});
	go_on($rebuild, 'filled');
	all_found($table, "$try: after keys of dead rows have come back during a rebuild");
	return;
}

#
# Searches, and the making of pages
#

# A search between directory and slice page, across two rebuilds that recycle the page.
sub a_search_survives_two_rebuilds
{
	my ($try) = @_;
	my $table = small_table();

	$gate->hold('search_slice');
	my $search = start_in(index_session($node), "SELECT 'found ' || count(*) FROM $table WHERE k = 7");
	$gate->wait_for('search_slice');
	for my $round (1 .. 2)
	{
		overfill($table, 1000000 * $round);
		cmp_ok(query(rebuild($table)), '>', 0, "$try: rebuild $round does not wait for a search");
	}
	$gate->release('search_slice');
	like($search->query("SELECT 'done'"), qr/found 1/, "$try: a search finds its row across two rebuilds");
	$search->quit;
	all_found($table, "$try: after two rebuilds under a search");
	return;
}

# VACUUM's sweep meanwhile must not free what is allocated and not published.
sub several_inserters_make_the_same_segment
{
	my ($try) = @_;
	my $table = empty_table();

	$gate->hold('allocated');
	my @inserts = map { start("INSERT INTO $table VALUES ($_, 'racing')") } 1 .. 3;
	$gate->wait_for('allocated');
	$gate->wait_until(
		"SELECT count(*) >= 2 FROM pg_locks WHERE relation = '${table}_k_idx'::regclass AND locktype = 'page' AND NOT granted");
	my $sweep = start("VACUUM $table");
	$gate->release('allocated');
	$_->quit foreach @inserts, $sweep;
	query("INSERT INTO $table SELECT i, repeat('z', 100) FROM generate_series(10, 5000) i");
	all_found($table, "$try: after several inserters, and VACUUM, when the first segment is made");
	return;
}

# Who finds its page does not wait for somebody who makes another; nor does bloomidx_check(), which therefore does not hold
# up who makes pages.
sub nobody_waits_for_an_insert_that_makes_pages
{
	my ($try) = @_;
	my $table = small_table();
	my $limit = "SET lock_timeout = '20s'";

	$gate->hold('allocated');
	my $insert = start("INSERT INTO $table SELECT 2000 + i, repeat('x', 1900) FROM generate_series(1, 400) i");
	$gate->wait_for('allocated');
	is($node->psql('postgres', "$limit; UPDATE $table SET k = -30 WHERE k = 1"),
		0, "$try: an update does not wait for an insert that makes pages");
	all_found($table, "$try: beside an insert that makes pages");
	is($node->psql('postgres', "$limit; SELECT bloomidx_check('${table}_k_idx')"),
		0, "$try: bloomidx_check does not wait for an insert that makes pages");
	go_on($insert, 'allocated');
	all_found($table, "$try: after an insert that made pages");
	bloomidx_check_reads_the_directory_once($try, $table);
	return;
}

# Pages that are made while bloomidx_check() reads the directory are no contradiction: it need not read it again.
sub bloomidx_check_reads_the_directory_once
{
	my ($try, $table) = @_;

	$gate->hold('claims');
	my $check = start("SELECT bloomidx_check('${table}_k_idx')");
	$gate->wait_for('claims');
	query("INSERT INTO $table SELECT 3000 + i, repeat('x', 1900) FROM generate_series(1, 1500) i");
	$gate->release_once('claims');
	# it ends, or waits
	$gate->wait_until(
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^SELECT bloomidx_check' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'");
	is($gate->waiting('claims'), 0, "$try: bloomidx_check beside inserts that make pages reads the directory once");
	go_on($check, 'claims');
	return;
}

# The first row comes when a function that shows an index has read the metapage, and nothing else.
sub functions_show_no_half_of_the_first_row
{
	my ($try) = @_;
	my $table = empty_table();
	my $units = layout() eq 'block' ? 'blocks' : 'segments';

	$gate->hold('inspect');
	my @shows = map { start_in($node->background_psql('postgres'), $_) }
	  "SELECT 'units ' || count(*) FROM bloomidx_$units('${table}_k_idx')",
	  "SELECT 'info ' || concat_ws(' ', coalesce(pages_per_range, 0), segments, index_pages, free_pages) FROM bloomidx_info('${table}_k_idx')";
	$gate->wait_for('inspect', 2);
	query("INSERT INTO $table SELECT i, 'first' FROM generate_series(1, 1000) i");
	$gate->release('inspect');
	my @shown = map { my $result = $_->query("SELECT 'done'"); $_->quit; $result } @shows;
	like($shown[0], qr/units 0$/m, "$try: bloomidx_$units shows an empty index, if the first row comes meanwhile");
	like($shown[1], qr/info 0 0 1 0$/m, "$try: bloomidx_info shows an empty index, if the first row comes meanwhile");
	return;
}

#
# Old versions of rows
#

sub hot_updates_behind_a_scan_of_the_heap_are_found
{
	my ($try) = @_;
	my $table = new_name('race');

	query(qq{
CREATE TABLE $table (k int, v text) WITH (fillfactor = 50);
INSERT INTO $table SELECT i, repeat('x', 100) FROM generate_series(1, 500) i});
	$gate->hold('build_page');
	my $build = start("CREATE INDEX CONCURRENTLY ON $table " . using_index('k', pages_per_range => 1));
	$gate->wait_for('build_page');
	query("UPDATE $table SET v = 'hot' WHERE k <= 20; UPDATE $table SET k = k + 100000 WHERE k <= 10");
	go_on($build, 'build_page');
	all_found($table, "$try: after HOT updates behind the scan of CREATE INDEX CONCURRENTLY");

	overfill($table, 1000000);
	my $rebuild = rebuild_until($table, 'build_page');
	query("UPDATE $table SET v = 'hot again' WHERE k BETWEEN 11 AND 30; UPDATE $table SET k = k + 200000 WHERE k BETWEEN 21 AND 25");
	go_on($rebuild, 'build_page');
	all_found($table, "$try: after HOT updates behind the scan of a rebuild");
	return;
}

sub an_old_snapshot_finds_old_values
{
	my ($try) = @_;
	my $table = small_table();
	my $old = old_snapshot($node);

	query("UPDATE $table SET k = -k; DELETE FROM $table WHERE k < -250");
	query("VACUUM $table");
	query("REINDEX INDEX ${table}_k_idx");
	overfill($table, 1000000);
	query(rebuild($table));
	is($old->query_safe("SELECT count(*) FROM $table WHERE k IN (1, 50, 255, 300)"),
		4, "$try: an older snapshot finds the old values after VACUUM, REINDEX and rebuild");
	$old->quit;
	return;
}

sub a_cancelled_vacuum_does_no_harm
{
	my ($try) = @_;
	my $table = overfull_table();

	for my $where ('build_page', 'published', 'filled')
	{
		$gate->hold($where);
		my $cancelled = start("VACUUM $table");
		$gate->wait_for($where);
		query("INSERT INTO $table VALUES (-9, '$where')");
		$gate->cancel($where);
		like($cancelled->query("SELECT 'session ' || 'is usable'"),
			qr/session is usable/, "$try: the session of a VACUUM that is cancelled at $where is usable");
		is(query("SELECT count(*) FROM pg_locks WHERE relation = '$table'::regclass"),
			0, "$try: VACUUM that is cancelled at $where leaves no lock");
		go_on($cancelled, $where);
		all_found($table, "$try: after VACUUM was cancelled at $where");
	}
	my $size = query("VACUUM $table; SELECT pg_relation_size('${table}_k_idx')");
	query("VACUUM $table");
	is(query("SELECT pg_relation_size('${table}_k_idx')"),
		$size, "$try: a second VACUUM after those that were cancelled finds nothing to do");
	all_found($table, "$try: after two VACUUMs more");
	return;
}

#
# Races that are not repeated
#

sub a_row_whose_insert_failed_does_not_stop_a_rebuild
{
	query(qq{
CREATE TABLE failing (k int, v text) WITH (fillfactor = 50);
CREATE INDEX failing_idx ON failing @{[ using_index('(100 / k)', pages_per_range => 1) ]};
INSERT INTO failing SELECT i, repeat('x', 200) FROM generate_series(1, 300) i;});
	my (undef, undef, $error) = $node->psql('postgres', "INSERT INTO failing VALUES (0, 'fails')");
	like($error, qr/division by zero/, "an insert fails in the index's expression");
	query('INSERT INTO failing SELECT 1000 + i FROM generate_series(1, 3000) i; VACUUM failing');
	is(count_by_index('failing', '100 / k = 50'), 1, 'the row of an insert that failed does not stop a rebuild');
	return;
}

sub dead_rows_whose_toast_is_gone_do_no_harm
{
	query(q{
CREATE TABLE toasted (k text) WITH (fillfactor = 50);
ALTER TABLE toasted ALTER k SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT repeat(md5(i::text), 100) FROM generate_series(1, 50) i;
});
	my $holder = old_snapshot($node);
	query("DELETE FROM toasted WHERE ctid > '(0,10)'");
	$holder->query_safe('COMMIT');
	query(qq{
SELECT format('VACUUM %s', reltoastrelid::regclass) FROM pg_class WHERE relname = 'toasted' \\gexec
CREATE INDEX toasted_idx ON toasted @{[ using_index('k') ]};
});
	is(lost_rows($node, 'toasted', 'k', 'toasted_idx'),
		'0', 'CREATE INDEX over dead rows whose TOAST is gone: every row is found');
	query('VACUUM toasted');
	is(lost_rows($node, 'toasted', 'k', 'toasted_idx'), '0', 'VACUUM of dead rows whose TOAST is gone: every row is found');
	$holder->quit;
	return;
}

#
# A standby
#

# CREATE INDEX on the primary takes the old versions for dead.  Pages with free space, by the fillfactor of the moment, are
# not pruned, which would make replay wait for the snapshot.
sub an_old_snapshot_on_a_standby_finds_old_values_after_create_index
{
	my ($try) = @_;
	my $table = new_name('standby');

	query(qq{
CREATE TABLE $table (k int, v text) WITH (fillfactor = 40);
INSERT INTO $table SELECT i, 'v' FROM generate_series(1, 1000) i;
ALTER TABLE $table SET (fillfactor = 100)});
	catch_up($node, $standby);
	my $old = old_snapshot($standby);
	query("UPDATE $table SET k = k + 100000 WHERE k <= 300; DELETE FROM $table WHERE k BETWEEN 301 AND 400");
	query("CREATE INDEX ON $table " . using_index('k', pages_per_range => 1));
	catch_up($node, $standby);
	like($old->query_safe("EXPLAIN SELECT * FROM $table WHERE k = 5"),
		qr/Index Scan/, "$try: an older snapshot on a standby uses an index that was made later");
	is($old->query_safe("SELECT count(*) FROM $table WHERE k IN (5, 299, 350, 900)"),
		4, "$try: an older snapshot on a standby finds the old values after CREATE INDEX");
	$old->quit;
	return;
}

# The same after CREATE INDEX CONCURRENTLY: rows that were inserted behind the scan by a session that did not have to
# insert into the index yet, and that are deleted before the index is validated.  Some go to segments that the build has
# never seen.  With an expression, a deleted row cannot be computed safely: its range has to be in doubt.
sub an_old_snapshot_on_a_standby_finds_rows_behind_the_scan
{
	my ($try, $key) = @_;
	my $table = new_name('behind');
	my $what = "$try: key $key";

	query(qq{
CREATE TABLE $table (k int, v text);
ALTER TABLE $table ALTER v SET STORAGE PLAIN;
INSERT INTO $table SELECT generate_series(1, 100)});
	$gate->hold('build_page');
	my $build = start("CREATE INDEX CONCURRENTLY ${table}_i ON $table " . using_index($key, pages_per_range => 1));
	$gate->wait_for('build_page');
	query("INSERT INTO $table SELECT -1; INSERT INTO $table SELECT -i, repeat('x', 7000) FROM generate_series(2, 150) i");
	catch_up($node, $standby);
	my $old = old_snapshot($standby);
	query("DELETE FROM $table WHERE k < 0");
	go_on($build, 'build_page');
	catch_up($node, $standby);
	my $query = "SELECT count(*) FROM $table WHERE $key IN (" . join(', ', map { -$_ } 1 .. 150) . ')';
	like($old->query_safe("EXPLAIN $query"),
		qr/Index Scan/, "$what: an older snapshot on a standby uses an index that was made later");
	is($old->query_safe($query), 150, "$what: an older snapshot on a standby finds deleted rows that came behind the scan");
	$old->quit;
	return;
}

# Pages that were added to the file and never written, which are not in WAL, are found by VACUUM and used after failover.
# This promotes the standby.
sub free_pages_that_a_standby_has_never_seen_can_be_used
{
	query(qq{
CREATE TABLE torn (k int, v text);
CREATE INDEX torn_k_idx ON torn @{[ using_index('k', pages_per_range => 1) ]};
INSERT INTO torn SELECT i, repeat('x', 1000) FROM generate_series(1, 500) i});
	extend_file($node, 'postgres', query("SELECT pg_relation_size('torn_k_idx')") / page_size($node) + 6, 'torn_k_idx');
	query('VACUUM torn');
	catch_up($node, $standby);
	$node->stop;
	$standby->promote;
	$standby->safe_psql('postgres', "INSERT INTO torn SELECT i, repeat('x', 1000) FROM generate_series(501, 5000) i");
	is(lost_rows($standby, 'torn', 'k', 'torn_k_idx'),
		'0', 'after inserts into free pages that the standby has never seen: every row is found');
	$standby->safe_psql('postgres', 'VACUUM torn');
	is(lost_rows($standby, 'torn', 'k', 'torn_k_idx'), '0', 'after VACUUM of such pages: every row is found');
	return;
}

#
# Index scans: between the listing of a page's rows and their return to the executor
#

# Begins a statement that scans the index of a table, and stops when the rows of the first page are listed.
sub scan_until_listed
{
	my ($statement) = @_;
	$gate->hold('listed');
	my $session = start("SET enable_seqscan = off; SET enable_bitmapscan = off; $statement");
	$gate->wait_for('listed');
	return $session;
}

# One page, whose dead rows VACUUM removes, so that all rows on it are visible to all.
sub an_index_only_scan_does_not_count_dead_rows
{
	my ($try) = @_;
	my $table = empty_table();

	query("INSERT INTO $table SELECT generate_series(1, 100); CREATE TABLE count_$table (n int); DELETE FROM $table WHERE k % 4 = 0");
	like(query("SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN SELECT count(*) FROM $table"),
		qr/Index Only Scan/, "$try: count(*) can be an index-only scan");
	my $scan = scan_until_listed("INSERT INTO count_$table SELECT count(*) FROM $table");
	query("VACUUM $table");
	go_on($scan, 'listed');
	is(query("SELECT n FROM count_$table"), 75, "$try: dead rows that are removed during an index-only scan do not count");
	return;
}

# The versions that the scan sees get HOT successors, and the page is pruned; removed rows give their place to new ones.
sub an_index_scan_finds_its_versions_whatever_comes_after
{
	my ($try) = @_;
	my $table = small_table();

	query("CREATE TABLE seen_$table (k int, v text); DELETE FROM $table WHERE k IN (2, 4)");
	my $scan = scan_until_listed("INSERT INTO seen_$table SELECT k, v FROM $table WHERE k IN (1, 2, 3, 4, 300)");
	query("UPDATE $table SET v = repeat('z', 200) WHERE k <= 3; UPDATE $table SET v = repeat('y', 200) WHERE k = 1");
	query("VACUUM $table");
	query("INSERT INTO $table VALUES (2, 'new'), (4, 'new'), (3, 'new')");
	go_on($scan, 'listed');
	is(query("SELECT string_agg(k || left(v, 1), ' ' ORDER BY k) FROM seen_$table"),
		'1x 3x 300x', "$try: a scan finds the versions of its snapshot, and nothing that came after");
	return;
}

# Of two that insert an equal key, the second waits for the end of the first's check, however long that takes, and then sees the
# row of the first.  The filter of the range has the key of a deleted row, so neither of the two skips the range.
sub the_later_of_two_equal_keys_waits
{
	my ($try) = @_;
	my $table = new_name('race');

	query("CREATE TABLE $table (k int, EXCLUDE @{[ using_index('k WITH =') ]}); INSERT INTO $table SELECT generate_series(1, 500)");
	query("INSERT INTO $table VALUES (1000); DELETE FROM $table WHERE k = 1000");
	my $first = scan_until_listed("INSERT INTO $table VALUES (1000)");
	my $second = start("SET deadlock_timeout = '10min'; INSERT INTO $table VALUES (1000)");
	$gate->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND classid = '${table}_k_excl'::regclass AND locktype = 'object'");
	go_on($first, 'listed');
	$second->quit;
	is(query("SELECT count(*) FROM $table WHERE k = 1000"), 1, "$try: one of two equal keys is refused");
	return;
}

# CREATE INDEX reads operators that anybody may drop at any time.
sub operators_are_dropped_during_create_index
{
	my ($try) = @_;
	my $table = new_name('race');

	query(qq{
CREATE TABLE $table (k varchar);
CREATE FUNCTION ${table}_f(varchar, varchar) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true';
});
	foreach my $operator ('~~', '~~*')
	{
		query("CREATE OPERATOR $operator (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = ${table}_f)");
		$gate->hold('operator');
		my $builder = start("CREATE INDEX ${table}_i ON $table USING bloomidx (k text_ngram_ops)");
		$gate->wait_for('operator');
		query("DROP OPERATOR $operator (varchar, varchar)");
		$gate->release('operator');
		$builder->quit;
		is(query("SELECT indisvalid FROM pg_index WHERE indexrelid = '${table}_i'::regclass"),
			't', "$try: CREATE INDEX completes although $operator has been dropped");
		query("DROP INDEX ${table}_i");
	}
	query("DROP TABLE $table; DROP FUNCTION ${table}_f");
	return;
}

#
# The run
#

my @races = qw(
  inserts_during_a_rebuild_are_kept
  an_insert_that_began_before_a_rebuild_is_kept
  all_rows_of_a_statement_that_spans_a_rebuild_are_kept
  keys_that_come_back_during_a_rebuild_are_kept
  a_search_survives_two_rebuilds
  several_inserters_make_the_same_segment
  nobody_waits_for_an_insert_that_makes_pages
  functions_show_no_half_of_the_first_row
  hot_updates_behind_a_scan_of_the_heap_are_found
  an_old_snapshot_finds_old_values
  a_cancelled_vacuum_does_no_harm
  an_index_only_scan_does_not_count_dead_rows
  an_index_scan_finds_its_versions_whatever_comes_after
  the_later_of_two_equal_keys_waits
  operators_are_dropped_during_create_index);
push @races, 'inserts_while_a_summary_is_made_are_kept' if layout() eq 'partitioned';

for my $number (1 .. $tries)
{
	$gate = new_gate($node);
	run_race($_, "try $number") foreach @races;
	$gate->quit;
}
a_row_whose_insert_failed_does_not_stop_a_rebuild();
dead_rows_whose_toast_is_gone_do_no_harm();

$standby = new_standby($node, 'races_standby', conf => "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
run_race('an_old_snapshot_on_a_standby_finds_old_values_after_create_index', "try $_") for 1 .. $tries;

# Feedback keeps the catalogs from being pruned, which would make replay wait for the snapshot.
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
$standby->reload;
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL') or die 'no feedback';
for my $number (1 .. $tries)
{
	$gate = new_gate($node);
	run_race('an_old_snapshot_on_a_standby_finds_rows_behind_the_scan', "try $number", $_) for 'k', '(k + 0)';
	$gate->quit;
}
free_pages_that_a_standby_has_never_seen_can_be_used();

log_is_clean($node, 'primary');
log_is_clean($standby, 'standby');
done_testing();
