# VACUUM gives free pages back: filters move from the end of the file to free pages before, and the file is truncated, if
# nobody has a lock on the index at that moment.  Searches, inserts and a standby notice nothing, and a crash at any step
# leaves at most pages that nothing names.
#
# The extension is bloomidx_debug, which can hold a backend at the places that src/debug.h names.
#
#   BLOOMIDX_SECONDS  how long clients run beside VACUUM (8)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{BLOOMIDX_SECONDS} || 8;

my $node = new_node(
	'primary',
	init => [ allows_streaming => 1 ],
	extension => 'bloomidx_debug',
	conf => "wal_consistency_checking = 'generic'\nlog_min_messages = debug1\nwal_keep_size = 2GB\n");
my $standby = new_standby($node, 'standby', conf => "max_standby_streaming_delay = -1\nhot_standby_feedback = on\n");
my $page_size = page_size($node);
my $gate = new_gate($node);

sub query { return $node->safe_psql('postgres', $_[0]); }
sub start { return start_statement($node, $_[0]); }

sub pages
{
	my ($index, $where) = @_;
	return ($where || $node)->safe_psql('postgres', "SET lock_timeout = '30s'; SELECT pg_relation_size('$index') / $page_size");
}

# All dies at once, and comes back.
sub crash
{
	kill9_all($node);
	$node->start;
	$gate = new_gate($node);
	return;
}

# A table with an index of 10 segments or so, and room for more.
sub make_table
{
	my ($table, $kind) = @_;
	query("CREATE @{[ $kind || '' ]} TABLE $table (k int, pad text);"
		  . "ALTER TABLE $table ALTER pad SET STORAGE PLAIN;"
		  . "CREATE INDEX ${table}_k ON $table USING bloomidx (k) WITH (pages_per_range = 1);"
		  . add_rows($table, 1, 2500));
	return;
}

# A row is half a page, so 256 rows are a segment.
sub add_rows
{
	my ($table, $first, $n) = @_;
	return "INSERT INTO $table SELECT i, repeat('x', 3500) FROM generate_series($first, $first + $n - 1) i;";
}

# Pages at the end of the file that nothing names, as an insert leaves them that fails after it has added them.  They are
# appended, which does no harm to what others append at the same time.
sub add_tail
{
	my ($index, $n) = @_;
	my $file = $node->data_dir . '/' . query("SELECT pg_relation_filepath('$index')");
	append_to_file($file, "\0" x ($n * $page_size));
	return;
}

sub is_good
{
	my ($table, $what, $where) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	all_rows_found($where || $node, $table, 'k', "${table}_k", 2500, $what);
	is(($where || $node)->safe_psql('postgres', "SELECT bloomidx_check('${table}_k') = (SELECT count(*) FROM $table)"),
		't', "$what: bloomidx_check looks up every row");
	return;
}

#
# --- When pages are given back
#

make_table('plain');
my $size = pages('plain_k');
cmp_ok($size, '>', 10, 'the index has more than its directory');
add_tail('plain_k', 200);
is(pages('plain_k'), $size + 200, 'free pages are added at its end');
query('VACUUM plain');
is(pages('plain_k'), $size, 'VACUUM gives free pages at the end back');
is(query("SELECT free_pages FROM bloomidx_info('plain_k')"), 0, 'after the truncation no page is thought to be free');
is_good('plain', 'after the truncation');
catch_up($node, $standby);
is(pages('plain_k', $standby), $size, 'the standby truncates the index, too');
is_good('plain', 'after the truncation, on the standby', $standby);

# a session that knows the index as it was
my $session = index_session($node);
add_tail('plain_k', 100);
is($session->query_safe('SELECT count(*) FROM plain WHERE k = 77'),
	1, 'a session finds a row in the index before it is truncated');
query('VACUUM plain');
is(pages('plain_k'), $size, 'VACUUM truncates an index that another session has used');
is($session->query_safe('SELECT count(*) FROM plain WHERE k IN (77, 78, 2500)'),
	3, 'the session finds rows after the truncation');
query(add_rows('plain', 2501, 600));
is($session->query_safe('SELECT count(*) FROM plain WHERE k IN (77, 2500, 3100)'),
	3, 'the session finds rows after the index has grown again');
$session->quit;
is_good('plain', 'after the index has grown again');

add_tail('plain_k', 10);
$size = pages('plain_k');
query('VACUUM plain');
is(pages('plain_k'), $size, 'VACUUM does not truncate an index for a few pages');
is(query("SELECT free_pages FROM bloomidx_info('plain_k')"), 10, 'the few pages are free');

add_tail('plain_k', 150);
is(query("SELECT note FROM bloomidx_info('plain_k')"),
	'at least half of the pages are free, REINDEX the index if VACUUM does not truncate it', 'bloomidx_info notes that many pages are free');
query('ALTER TABLE plain SET (vacuum_truncate = off); VACUUM plain');
is(pages('plain_k'), $size + 150, 'VACUUM does not truncate the index if the table has vacuum_truncate = off');
query('SELECT bloomidx_summarize(\'plain_k\'); ALTER TABLE plain RESET (vacuum_truncate)');
is(pages('plain_k'), $size + 150, 'bloomidx_summarize does not truncate the index');
if (server_version($node) >= 18)
{
	query('SET vacuum_truncate = off; VACUUM plain');
	is(pages('plain_k'), $size + 150, 'VACUUM does not truncate the index if the server has vacuum_truncate = off');
}

# A parallel VACUUM
query('CREATE INDEX plain_1 ON plain (k); CREATE INDEX plain_2 ON plain (k, pad) WHERE k < 0');
my ($stdout, $stderr);
$node->psql('postgres', 'SET min_parallel_index_scan_size = 0; VACUUM (PARALLEL 2, VERBOSE) plain', stderr => \$stderr);
like($stderr, qr/parallel vacuum worker/, 'VACUUM has parallel workers');
unlike($stderr, qr/ERROR/, 'a parallel VACUUM does not fail');
is(pages('plain_k'), $size + 150, 'a parallel VACUUM does not truncate the index');
query('DROP INDEX plain_1, plain_2');

# Somebody has a lock
$session = index_session($node);
$session->query_safe('BEGIN');
is($session->query_safe('SELECT count(*) FROM plain WHERE k = 7'),
	1, 'a transaction finds a row by the index, and keeps its lock');
query("SET statement_timeout = '60s'; VACUUM plain");
is(pages('plain_k'), $size + 150, 'VACUUM neither waits for a transaction that has used the index nor truncates');
is($session->query_safe('SELECT count(*) FROM plain WHERE k = 8'), 1, 'the transaction still finds rows');
$session->query_safe('COMMIT');
$session->quit;
query('VACUUM plain');
is(pages('plain_k'), $size - 10, 'VACUUM truncates the index when the transaction has ended');
is_good('plain', 'after VACUUMs that could not truncate');

# Tables that are not logged
make_table('unlogged', 'UNLOGGED');
$size = pages('unlogged_k');
add_tail('unlogged_k', 100);
query('VACUUM unlogged');
is(pages('unlogged_k'), $size, 'VACUUM truncates the index of an unlogged table');
query(add_rows('unlogged', 3001, 600));
is_good('unlogged', 'unlogged table, after the truncation');
$session = $node->background_psql('postgres');
$session->query_safe('CREATE TEMP TABLE temporary (k int, pad text); CREATE INDEX temporary_k ON temporary USING bloomidx (k) WITH (pages_per_range = 1)');
$session->query_safe(add_rows('temporary', 1, 1500));
my $temporary = $session->query_safe("SELECT pg_relation_filepath('temporary_k')");
$size = $session->query_safe("SELECT pg_relation_size('temporary_k')");
append_to_file($node->data_dir . "/$temporary", "\0" x (100 * $page_size));
$session->query_safe('VACUUM temporary');
is($session->query_safe("SELECT pg_relation_size('temporary_k')"), $size, 'VACUUM truncates the index of a temporary table');
$session->query_safe(add_rows('temporary', 1501, 600));
is($session->query_safe("SELECT bloomidx_check('temporary_k')"),
	2100, 'bloomidx_check accepts the index of the temporary table');
$session->quit;

#
# --- Filters at the end move
#

make_table('moved');
$size = pages('moved_k');

# Pages that nothing names, and behind them the filters of rows that come later.
sub add_behind
{
	my ($first) = @_;
	add_tail('moved_k', 200);
	query(add_rows('moved', $first, 900));
	return;
}
add_behind(3001);
cmp_ok(pages('moved_k'), '>', $size + 200, 'filters of new rows are behind free pages');

# A search that has read the directory before, and looks at the slices afterwards
$gate->hold('search_slice');
my $search = start_in(index_session($node), "SELECT 'found ' || count(*) FROM moved WHERE k = 3851");
$gate->wait_for('search_slice');

# Inserts while the copy is there
$gate->hold('copied');
my $vacuum = start('VACUUM moved');
$gate->wait_for('copied');
query('INSERT INTO moved VALUES (-1)');

# what is left of the rows fits on their pages, so keys come to all segments that may be moved
query('UPDATE moved SET k = -k, pad = NULL WHERE k > 2000 AND k % 3 = 0');
$gate->release('copied');
$vacuum->quit;
$gate->release('search_slice');
like($search->query("SELECT 'done'"), qr/found 1/, 'a search that began before filters moved finds its row');
$search->quit;
is_good('moved', 'after filters have moved');
is(query("SELECT bool_and(first_index_block < $size + 50) FROM bloomidx_segments('moved_k') AS s(segment, a, b, first_index_block)"),
	't', 'filters have moved to pages that were free');
query('VACUUM moved');
cmp_ok(pages('moved_k'), '<', $size + 50, 'VACUUM truncates the file behind filters that have moved');
is_good('moved', 'after filters have moved and the truncation');
catch_up($node, $standby);
is(pages('moved_k', $standby), pages('moved_k'), 'the standby truncates the file behind filters that have moved');
is_good('moved', 'after filters have moved and the truncation, on the standby', $standby);

# A crash with a copy that is not used yet
add_behind(4001);
$gate->hold('copied');
$vacuum = start('VACUUM moved');
$gate->wait_for('copied');
query('INSERT INTO moved VALUES (-2)');
crash();
is_good('moved', 'killed with a copy of filters that is not used yet');
query(add_rows('moved', 5001, 100));
query('VACUUM moved');
cmp_ok(pages('moved_k'), '<', $size + 50, 'VACUUM after the crash moves the filters and truncates');
is_good('moved', 'killed with a copy of filters, then vacuumed');

#
# --- Crashes
#

make_table('crashed');
$size = pages('crashed_k');
add_tail('crashed_k', 100);
query('VACUUM crashed');
crash();
is(pages('crashed_k'), $size, 'killed after the truncation: the index is still short');
is_good('crashed', 'killed after the truncation');

# with page images of before and after in the WAL that is replayed
query('CHECKPOINT');
add_tail('crashed_k', 100);
query(add_rows('crashed', 3001, 600));
query('VACUUM crashed');
query(add_rows('crashed', 4001, 600));
my $grown = pages('crashed_k');
cmp_ok($grown, '<', $size + 100, 'the index is truncated, and grows again');
crash();
is(pages('crashed_k'), $grown, 'killed after the index had grown again: it has the same size');
is_good('crashed', 'killed after the index had grown again');

# between the metapage and the truncation
add_tail('crashed_k', 100);
$gate->hold('truncate');
$vacuum = start('VACUUM crashed');
$gate->wait_for('truncate');
is($node->psql('postgres', "SET lock_timeout = '200ms'; SELECT bloomidx_check('crashed_k')", stderr => \$stderr), 3,
	'bloomidx_check waits while the index is being truncated');
query('SELECT pg_switch_wal()');
crash();
is(pages('crashed_k'), $grown + 100, 'killed before the truncation: the free pages are still there');
$node->psql('postgres', "SELECT bloomidx_check('crashed_k')", stderr => \$stderr);
like($stderr,
	qr/NOTICE:  index "crashed_k" has 100 pages that no directory entry references/,
	'killed before the truncation: bloomidx_check counts the pages that nothing names');
is_good('crashed', 'killed before the truncation');
query('VACUUM crashed');
is(pages('crashed_k'), $grown, 'killed before the truncation: the next VACUUM truncates');

# cancelled there, which leaves no lock
add_tail('crashed_k', 100);
$gate->hold('truncate');
$vacuum = start('VACUUM crashed');
$gate->wait_for('truncate');
$gate->cancel('truncate');
like($vacuum->query("SELECT 'session ' || 'is usable'"),
	qr/session is usable/, 'the session of a VACUUM that is cancelled before the truncation is usable');
is(query("SELECT count(*) FROM pg_locks WHERE relation IN ('crashed'::regclass, 'crashed_k'::regclass)"),
	0, 'VACUUM that is cancelled before the truncation leaves no lock');
$vacuum->quit;
$gate->release('truncate');
is_good('crashed', 'after VACUUM was cancelled before the truncation');
query('VACUUM crashed');
is(pages('crashed_k'), $grown, 'VACUUM truncates after one that was cancelled');
catch_up($node, $standby);
is(pages('crashed_k', $standby), $grown, 'the standby has the same size after the crashes');
is_good('crashed', 'after the crashes, on the standby', $standby);

#
# --- A standby
#

# Replay waits for a query there.
make_table('followed');
$size = pages('followed_k');
add_tail('followed_k', 100);
query("SELECT bloomidx_summarize('followed_k')");
catch_up($node, $standby);
is(pages('followed_k', $standby), $size + 100, 'bloomidx_summarize makes free pages known to the standby');
my $reader = old_snapshot($standby);
is($reader->query_safe('SELECT count(*) FROM followed WHERE k = 7'),
	1, 'a transaction on the standby finds a row by the index, and keeps its lock');
query('VACUUM followed');
is(pages('followed_k'), $size, 'the primary truncates the index beside a transaction on the standby');
$standby->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_locks WHERE relation = (SELECT oid FROM pg_class WHERE relname = 'followed_k') AND mode = 'AccessExclusiveLock' AND NOT granted")
  or die 'replay does not wait';
is($reader->query_safe("SELECT pg_relation_size('followed_k') / $page_size"),
	$size + 100, 'replay of the truncation waits for the transaction on the standby');
is($reader->query_safe('SELECT count(*) FROM followed WHERE k IN (1, 8, 2500)'),
	3, 'the transaction on the standby finds its rows while replay waits');
is($reader->query_safe("SELECT bloomidx_check('followed_k')"),
	2500, 'bloomidx_check in the transaction on the standby accepts the index');
$reader->query_safe('COMMIT');
catch_up($node, $standby);
is(pages('followed_k', $standby), $size, 'the standby truncates when the transaction has ended');
is($reader->query_safe('SELECT count(*) FROM followed WHERE k IN (1, 8, 2500)'),
	3, 'the session on the standby finds its rows after the truncation');
$reader->quit;
is_good('followed', 'after replay of the truncation, on the standby', $standby);

# While VACUUM is at work on the next index, nobody has to wait for this one: neither there nor here.
query('CREATE TABLE busy (k int, pad text) WITH (fillfactor = 50);'
	  . 'CREATE INDEX busy_k ON busy USING bloomidx (k) WITH (pages_per_range = 1);'
	  . 'CREATE INDEX busy_2 ON busy USING bloomidx (k) WITH (pages_per_range = 1);'
	  . "INSERT INTO busy SELECT i, repeat('x', 200) FROM generate_series(1, 300) i;"
	  . 'ALTER TABLE busy SET (fillfactor = 100);'
	  . "INSERT INTO busy SELECT 1000000 + i, '' FROM generate_series(1, 4000) i;");
add_tail('busy_k', 100);
$size = pages('busy_k');
$gate->hold('published');
$vacuum = start('VACUUM busy');
$gate->wait_for('published');

# on to the next index, whose rebuild stops at the same place
$gate->release_once('published');
$gate->wait_for('published');
cmp_ok(pages('busy_k'), '<', $size - 90, 'the first index is truncated before VACUUM is done with the second');
is( query("SELECT phase FROM pg_stat_progress_vacuum WHERE relid = 'busy'::regclass"),
	'cleaning up indexes', 'VACUUM shows its progress after a truncation');
is($node->psql('postgres', "SET enable_seqscan = off; SET lock_timeout = '10s'; SELECT k FROM busy WHERE k = 7", stdout => \$stdout),
	0, 'the first index can be used while VACUUM is at the second');
is($stdout, 7, 'the first index finds a row while VACUUM is at the second');
my $lsn = $node->lsn('flush');
$standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'") or die 'the standby does not follow';
cmp_ok(pages('busy_k', $standby),
	'<', $size - 90, 'the standby truncates the first index before VACUUM is done with the second');
is($standby->psql('postgres', "SET enable_seqscan = off; SET lock_timeout = '10s'; SELECT k FROM busy WHERE k = 7", stdout => \$stdout),
	0, 'on the standby the first index can be used while VACUUM is at the second');
is($stdout, 7, 'on the standby the first index finds a row while VACUUM is at the second');
$gate->release('published');
$vacuum->quit;
query('DROP INDEX busy_2');
is_good('busy', 'after VACUUM of two indexes');

# VACUUM shows its progress after a rebuild has failed, too.
query('CREATE TABLE picky (k int, t text, pad text) WITH (fillfactor = 50);'
	  . 'ALTER TABLE picky ALTER t SET STORAGE EXTERNAL;'
	  . 'CREATE INDEX picky_1 ON picky USING bloomidx (t) WITH (pages_per_range = 1);'
	  . 'CREATE INDEX picky_2 ON picky USING bloomidx (k) WITH (pages_per_range = 1);'
	  . "INSERT INTO picky SELECT i, i, repeat('x', 200) FROM generate_series(1, 300) i;"
	  . 'ALTER TABLE picky SET (fillfactor = 100);'
	  . "INSERT INTO picky SELECT 1000000 + i, i, '' FROM generate_series(1, 4000) i;"
	  . "INSERT INTO picky SELECT 1000000, repeat('long', 1000), '' FROM generate_series(1, 3) i;"
	  . "CREATE FUNCTION write_pages(regclass, bytea) RETURNS void LANGUAGE c STRICT AS 'pagefile';"
	  . "SELECT write_pages(reltoastrelid, decode(repeat('00', pg_relation_size(reltoastrelid)::int), 'hex'))"
	  . " FROM pg_class WHERE relname = 'picky'");
$gate->hold('published');
$vacuum = start('VACUUM picky');
$gate->wait_for('published');
is( query("SELECT phase, heap_blks_total > 0 FROM pg_stat_progress_vacuum WHERE relid = 'picky'::regclass"),
	'cleaning up indexes|t', 'VACUUM shows its progress after a rebuild that failed');
$gate->release('published');
$vacuum->quit;
like(slurp_file($node->logfile),
	qr/WARNING:  could not rebuild filters of index "picky_1": missing chunk number 0/, 'the rebuild fails with a warning');
query('DROP TABLE picky');

#
# --- Clients beside VACUUM
#

# Wide rows first; then their pages are filled with narrow ones, and emptied again.
query(q{
CREATE TABLE churn (k int8, t text, pad text) WITH (fillfactor = 30);
INSERT INTO churn SELECT -i, md5(i::text), repeat('x', 300) FROM generate_series(1, 30000) i;
CREATE INDEX churn_k ON churn USING bloomidx (k, t) WITH (pages_per_range = 1);
ALTER TABLE churn SET (fillfactor = 100);
CREATE SEQUENCE serial;
});
my %clients = (
	insert => [ 4, "INSERT INTO churn SELECT nextval('serial'), md5(random()::text) FROM generate_series(1, 500);\n\\sleep 50 ms\n" ],
	delete => [ 2, "\\set lo random(1, 20000)\nDELETE FROM churn WHERE k BETWEEN :lo AND :lo + 1000;\n\\sleep 50 ms\n" ],
	look => [ 3, "SELECT oracle_look_up('churn', '{k,t}');\n\\sleep 50 ms\n" ]);
my %readers = (
	look => [ 3, "SELECT oracle_look_up('churn', '{k,t}');\n" ],
	check => [ 1, "SELECT 1 / (failures IS NULL)::int FROM oracle_check('churn%');\n" ]);
my $enough = time + $seconds;
my $log_start = -s $node->logfile;
my @runs = (
	start_pgbench($node, \%clients, '-c', 3, '-T', $seconds),
	start_pgbench($node, { check => [ 1, "SELECT bloomidx_check('churn_k', false);\n\\sleep 200 ms\n" ] }, '-c', 1, '-T', $seconds),
	start_pgbench($standby, \%readers, '-c', 2, '-T', $seconds));
while (time < $enough)
{
	add_tail('churn_k', 200);
	query('VACUUM churn');
}
foreach my $run (@runs)
{
	$run->{harness}->finish;
	unlike($run->{stderr}, qr/ERROR|FATAL|aborted/, 'no client beside VACUUM fails');
}
my $log = substr(slurp_file($node->logfile), $log_start);
my $truncations = () = $log =~ /index "churn_k": truncated, \d+ pages fewer/g;
my $refusals = () = $log =~ /index "churn_k": not truncated/g;
report('truncations under load', $truncations);
note "in vain: $refusals";
cmp_ok($truncations, '>', 0, 'VACUUM truncates the index beside clients');
query('VACUUM churn');
note query("SELECT index_pages || ' pages, of them free: ' || free_pages FROM bloomidx_info('churn_k')");
all_rows_found($node, 'churn', $_, 'churn_k', 10000, 'after the clients') foreach 'k', 't';
catch_up($node, $standby);
all_rows_found($standby, 'churn', $_, 'churn_k', 10000, 'after the clients, on the standby') foreach 'k', 't';

#
# --- Without full_page_writes: replay meets a page that was truncated later, and that was added again before the crash
#

$node->append_conf('postgresql.conf', "full_page_writes = off\nwal_consistency_checking = ''\n");
$node->reload;
make_table('torn');
add_tail('torn_k', 200);
query(add_rows('torn', 3001, 900));
query('CHECKPOINT');
query("INSERT INTO torn SELECT 9000000, ''");
query('VACUUM torn');
cmp_ok(pages('torn_k'), '<', 100, 'without full_page_writes, a page with a record in WAL is truncated');
add_tail('torn_k', 300);
crash();
like(slurp_file($node->logfile),
	qr/page \d+ of relation \S+ is uninitialized/, 'without full_page_writes, replay meets the page without content');
is_good('torn', 'after a crash without full_page_writes');
$node->append_conf('postgresql.conf', "full_page_writes = on\nwal_consistency_checking = 'generic'\n");
$node->reload;
catch_up($node, $standby);

#
# --- Failover
#

kill9_all($node);
$standby->promote;
$standby->safe_psql('postgres', add_rows('plain', 10001, 900) . add_rows('crashed', 10001, 900));
is_good($_, 'after promotion', $standby) foreach 'plain', 'crashed', 'moved', 'followed', 'torn';
log_is_clean($standby, 'truncation');
$standby->stop;
$node->start;
log_is_clean($node, 'truncation');
$node->stop;
done_testing();
