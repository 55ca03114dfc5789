# A table that grows by inserts alone: the insert that creates the 33rd segment also creates the summary of the first
# partition, and the insert that creates the second partition the filter of the first one.  No VACUUM is needed.
#
# The extension is bloomidx_debug, for its pauses.  Each page has one row, so that 128 pages, a segment, are 128 rows.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'layout block has no summaries' if layout() ne 'partitioned';

my $node = new_node(
	'growth',
	extension => 'bloomidx_debug',
	conf => "autovacuum = off\nmax_wal_size = 4GB\n");
my $gate = new_gate($node);
my $pad = int(page_size($node) * 0.6);

sub query { return $node->safe_psql('postgres', $_[0]); }

sub create_table
{
	my ($table, $column) = @_;
	return "CREATE TABLE $table (k int, pad text, t text); ALTER TABLE $table ALTER pad SET STORAGE PLAIN;"
	  . "CREATE INDEX ${table}_k ON $table USING bloomidx (@{[ $column || 'k' ]}) WITH (pages_per_range = 1);";
}

# Statements that let the table grow to so many segments.
sub grow_to
{
	my ($table, $segments) = @_;
	return "INSERT INTO $table SELECT i, repeat('x', $pad), md5(i::text) FROM"
	  . " generate_series((SELECT coalesce(max(k), 0) + 1 FROM $table), $segments * 128) i;";
}

sub info { my ($table, $columns) = @_; return query("SELECT $columns FROM bloomidx_info('${table}_k')"); }

# Pages of the index that a search for a key that does not exist reads.
sub pages_of_a_miss
{
	my ($table) = @_;
	my $plan = query("SET enable_seqscan = off; SET enable_indexscan = off;"
		  . "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM $table WHERE k = -1;"
		  . "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM $table WHERE k = -1");

	my @hits = $plan =~ /Bitmap Index Scan[^\n]*\n\s+Index Cond[^\n]*\n(?:\s+Index Searches[^\n]*\n)?\s+Buffers: shared hit=(\d+)/g;

	die $plan if @hits == 0;
	return $hits[-1];
}

sub rows_are_found
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return all_rows_found($node, $table, 'k', "${table}_k", 4000, $what);
}

# Small, then with a summary, then with a second partition.
query(create_table('grown') . grow_to('grown', 32));
is(info('grown', 'segments, summarized_partitions'), '32|0', 'a table of 32 segments has no summary');
cmp_ok(pages_of_a_miss('grown'), '>=', 32, 'a search reads a page of each segment');
query(grow_to('grown', 33));
is(info('grown', 'segments, summarized_partitions'), '33|1', 'the insert that creates the 33rd segment creates the summary');
cmp_ok(pages_of_a_miss('grown'), '<', 8, 'a search no longer reads all segments');
rows_are_found('grown', 'after the summary was created');
query(grow_to('grown', 128));
is(info('grown', 'partitions, groups'), '1|0', 'a table of one partition has no filters of partitions');
query(grow_to('grown', 129));
is(info('grown', 'partitions, groups, note'), '2|2|', 'the insert that creates the second partition creates the filter of the first');
cmp_ok(pages_of_a_miss('grown'), '<', 10, 'a search reads few pages of two partitions');
rows_are_found('grown', 'after the filter was created');
query('INSERT INTO grown SELECT -k, pad, t FROM grown WHERE k % 100 = 7; DELETE FROM grown WHERE k % 50 = 3; VACUUM grown');
rows_are_found('grown', 'after VACUUM');
query('DROP TABLE grown');

# Both at once, in one transaction with its table, and rolled back to a savepoint.
query(  'BEGIN;'
	  . create_table('together')
	  . grow_to('together', 20)
	  . 'SAVEPOINT s;'
	  . grow_to('together', 60)
	  . 'ROLLBACK TO s;'
	  . grow_to('together', 34)
	  . 'COMMIT');
is(info('together', 'summarized_partitions'), 1, 'the summary is created in the transaction that creates the table');
rows_are_found('together', 'a transaction with a savepoint');

# Inserts do not wait for whoever excludes VACUUM, and a later insert makes good.
query(create_table('busy') . grow_to('busy', 32));
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE busy IN SHARE UPDATE EXCLUSIVE MODE');
query(grow_to('busy', 40));
is(info('busy', 'segments, summarized_partitions'), '40|0', 'an insert does not wait for the lock that a repair needs');
like(info('busy', 'note'), qr/partitions without summary: 1, run VACUUM \(PARALLEL 0\) on the table/, 'the note says what is missing');
$locker->query_safe('COMMIT');
$locker->quit;
query(grow_to('busy', 64));
is(info('busy', 'summarized_partitions'), 0, 'not every insert tries again');
query(grow_to('busy', 65));
is(info('busy', 'summarized_partitions'), 1, 'an insert tries again when the table has doubled');
is(query("SELECT count(*) FROM pg_locks WHERE relation = 'busy'::regclass"), 0, 'no lock remains');
rows_are_found('busy', 'after a second try');
query('DROP TABLE busy');

# Keys that depend on functions of users, or on types, are left to VACUUM and bloomidx_summarize().
query(  'CREATE TYPE pair AS (a int, b int); CREATE TABLE typed (k int, pad text, t text, p pair);'
	  . 'ALTER TABLE typed ALTER pad SET STORAGE PLAIN;'
	  . 'CREATE INDEX typed_k ON typed USING bloomidx (p) WITH (pages_per_range = 1);'
	  . grow_to('typed', 33));
is(info('typed', 'summarized_partitions'), 0, 'an insert does not hash composite values of other rows');
query(create_table('computed', '(k + 1)') . grow_to('computed', 33));
is(info('computed', 'summarized_partitions'), 0, 'an insert does not evaluate expressions for other rows');
like(info('computed', 'note'), qr/bloomidx_summarize/, 'the note says what to do');
query("SELECT bloomidx_summarize('computed_k')");
is(info('computed', 'summarized_partitions'), 1, 'bloomidx_summarize() creates the summary');
query('DROP TABLE typed, computed');

# An insert does not fail because of other rows that cannot be read.
query(  create_table('toasted', 't')
	  . 'ALTER TABLE toasted ALTER t SET STORAGE EXTERNAL;'
	  . grow_to('toasted', 30)
	  . "UPDATE toasted SET t = repeat(t, 100) WHERE k = 5; VACUUM toasted");
query(  "CREATE FUNCTION write_pages(regclass, bytea) RETURNS void LANGUAGE c STRICT AS 'pagefile'; CHECKPOINT;"
	  . "SELECT write_pages(reltoastrelid, decode(repeat('00', pg_relation_size(reltoastrelid)::int), 'hex'))"
	  . " FROM pg_class WHERE relname = 'toasted'");
my $log_start = -s $node->logfile;
query(grow_to('toasted', 33));
is(query('SELECT count(*) FROM toasted WHERE k > 4096'), 128, 'an insert succeeds although a row cannot be read');
is(info('toasted', 'summarized_partitions'), 0, 'the summary is still missing');
like(slurp_file($node->logfile, $log_start), qr/LOG:  could not rebuild filters of index "toasted_k": /, 'the reason is in the log');
query('DROP TABLE toasted');

# An insert does not read too much: 4,224 ranges of 16 pages.
query('CREATE TABLE wide (k int, pad text, t text);'
	  . 'ALTER TABLE wide ALTER pad SET STORAGE PLAIN;'
	  . 'CREATE INDEX wide_k ON wide USING bloomidx (k) WITH (pages_per_range = 16);'
	  . grow_to('wide', 1));
extend_file($node, 'postgres', 32 * 128 * 16 - 10, 'wide');
$gate = new_gate($node);
query(grow_to('wide', 2));
is(info('wide', 'segments'), 3, 'a table with large ranges has grown');
is(info('wide', 'summarized_partitions'), 0, 'an insert does not read very many pages');
query('DROP TABLE wide');

# Others insert meanwhile; and a failure.  022_groups has the other steps of a new filter of a partition.
foreach my $step ('published', 'filled', 'group_filled', 'group_entered')
{
	my $is_group = $step =~ /^group/;
	my $segments = $is_group ? 129 : 33;

	foreach my $end ($is_group ? () : 'success', 'cancel', 'crash')
	{
		my ($table, $what) = ("at_${step}_$end", "$end at $step");

		query(create_table($table) . grow_to($table, $segments - 1));
		$gate->hold($step);
		my $insert = start_statement($node, grow_to($table, $segments));
		$gate->wait_for($step);
		query("INSERT INTO $table SELECT -k, 'short', t FROM $table WHERE k % 40 = 11");
		my $snapshot = old_snapshot($node);
		rows_are_found($table, "$what, during the rebuild");
		if ($end eq 'crash')
		{
			query("UPDATE $table SET t = t || 'x' WHERE k % 80 = 9; CHECKPOINT; INSERT INTO $table SELECT -k, 'short', t FROM $table WHERE k % 40 = 12");
			kill9_all($node);
			$node->start;
			$gate = new_gate($node);
			indexes_are_good($node, $what);
			report("kill -9 at $step of a new filter", 1) if $is_group;
		}
		else
		{
			$gate->cancel($step) if $end eq 'cancel';
			$gate->release($step);
			$insert->query(';');
			$insert->quit;
			is($snapshot->query_safe("SELECT count(*) FROM $table WHERE k = -11"), 1, "$what: an old snapshot finds a row");
			$snapshot->quit;
		}
		rows_are_found($table, $what);
		query("INSERT INTO $table SELECT -k, 'short', t FROM $table WHERE k % 40 = 13");
		if (!$is_group)
		{
			query(grow_to($table, 65)) if $end ne 'success';
			is(info($table, 'summarized_partitions'), 1, "$what: an insert creates the summary");
			rows_are_found($table, "$what, after more inserts");
		}
		query("VACUUM $table");
		is(info($table, 'note'), '', "$what: nothing is left to do after VACUUM");
		rows_are_found($table, "$what, after VACUUM");
		query("DROP TABLE $table");
	}
}

log_is_clean($node, 'growth');
$node->stop;
done_testing();
