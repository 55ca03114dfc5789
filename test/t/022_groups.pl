# The filters of partitions, in groups: made by inserts and by CREATE INDEX, replaced one by one and merged by VACUUM.
#
# The extension is bloomidx_small, whose partitions are of 128 ranges: with a range of one page, a table of some MB has many.
# It has the pauses of src/debug.h, too.  Each sub below is named after what it claims.
#
#   BLOOMIDX_RACE_TRIES   how often each race is run (once for each of its variants)
#   BLOOMIDX_GROUP_KILLS  how often the server is killed at each step (1); a few of the tables each time, if more than 1

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxFormat;
use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'for little-endian machines' if pack('L', 1) ne pack('V', 1);

my $tries = $ENV{BLOOMIDX_RACE_TRIES} || 1;
my $kills = $ENV{BLOOMIDX_GROUP_KILLS} || 1;

# Feedback keeps replay from waiting for the queries of a standby.
my $node = new_node(
	'groups',
	init => [ allows_streaming => 1 ],
	extension => 'bloomidx_small',
	conf => "max_connections = 30\nmax_prepared_transactions = 4\nwal_consistency_checking = 'generic'\nwal_keep_size = 2GB\n",
	no_checksums => 1);
my $format = BloomidxFormat->new($node);
plan skip_all => 'test/modules/pagefile is not installed' if !$format;
my $page_size = $format->page_size;
my $gate = new_gate($node);
my $standby;

my $partition_pages = 128;
my $unfiltered_note = qr/partitions without third-level filter: 1, run VACUUM \(PARALLEL 0\) on the table/;
my $doubt_note = qr/partitions without third-level filter: 2, call bloomidx_summarize/;
my $shadow_note = qr/filters are being rebuilt, or a rebuild was interrupted/;

$node->safe_psql(
	'postgres', q{
-- Pages of the index that a query reads, the second time.
CREATE FUNCTION index_pages_read(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	PERFORM oracle_force(true);
	FOR i IN 1 .. 2 LOOP
		EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	END LOOP;
	plan := jsonb_path_query_first(plan, '$.** ? (@."Node Type" == "Bitmap Index Scan")');
	RETURN (plan ->> 'Shared Hit Blocks')::int + (plan ->> 'Shared Read Blocks')::int;
END $$;
});

#
# Tables
#

sub query { return $node->safe_psql('postgres', $_[0]); }
sub start { return start_statement($node, $_[0]); }

my $serial = 0;
sub new_name { my ($prefix) = @_; return $prefix . ++$serial; }

sub create_index
{
	my ($table, $columns, $more) = @_;
	return "CREATE INDEX ${table}_k ON $table USING bloomidx (@{[ $columns || 'k' ]}) WITH (pages_per_range = 1) @{[ $more || '' ]};";
}

# Adds so many partitions, with $per_page rows on each page, which is half full.  Keys are counted from 1.
sub add_partitions
{
	my ($table, $n, $per_page, $few) = @_;
	$per_page ||= 6;
	$few ||= 'i % 5';

	# so many rows fit exactly: the size of a row is a multiple of 8, and 40 bytes of it are not the pad
	my $pad = int((($page_size / 2 - 24) / $per_page - 4) / 8) * 8 - 40;

	return "INSERT INTO $table SELECT coalesce((SELECT max(k) FROM $table), 0) + i, repeat('x', $pad), $few, i % 1000"
	  . " FROM generate_series(1, $n * $partition_pages * $per_page) i;";
}

sub create_table
{
	my ($table, $kind) = @_;
	return "CREATE @{[ $kind || '' ]} TABLE $table (k int, v text, few int, more int) WITH (fillfactor = 50, autovacuum_enabled = off);"
	  . "ALTER TABLE $table ALTER v SET STORAGE PLAIN;";
}

# One that has grown by inserts.
sub grown_table
{
	my ($partitions, $per_page) = @_;
	my $table = new_name('grown');
	query(create_table($table) . create_index($table) . add_partitions($table, $partitions, $per_page));
	return $table;
}

# What is true of the rows of some partitions.
sub in_partitions
{
	my ($first, $n) = @_;
	return sprintf "ctid >= '(%d,0)' AND ctid < '(%d,0)'", $first * $partition_pages, ($first + ($n || 1)) * $partition_pages;
}

# A key of a row of a partition, an odd one that overfill() leaves alone.
sub key_in { my ($table, $partition) = @_; return $gate->ask("SELECT max(k) FROM $table WHERE k % 2 = 1 AND @{[ in_partitions($partition) ]}"); }

# Far more keys than the filters of some partitions were made for: VACUUM replaces them.  The new versions of the rows, every
# second one, stay on the pages of the old ones.
sub overfill
{
	my ($table, $first, $n) = @_;
	query("UPDATE $table SET k = k + 1000000, v = '' WHERE k % 2 = 0 AND @{[ in_partitions($first, $n) ]};\n" x 4);
	return;
}

# Some rows of a partition get negative keys.
sub change_keys
{
	my ($table, $partition, $remainder) = @_;
	return "UPDATE $table SET k = -k WHERE k > 0 AND k % 60 = $remainder AND @{[ in_partitions($partition) ]}";
}

# Waits until the standby, whose feedback comes now and then, no longer keeps dead rows alive.
sub wait_for_feedback
{
	my $next = query('SELECT pg_current_xact_id()');
	$gate->wait_until("SELECT count(*) = 0 FROM pg_stat_replication WHERE backend_xmin::text::bigint < $next");
	return;
}

# VACUUM computes no expression and no predicate; so bloomidx_summarize() does the rest.
sub vacuum_all
{
	my ($table) = @_;
	wait_for_feedback();
	query("VACUUM (TRUNCATE off) $table");
	query("SELECT bloomidx_summarize('${table}_k')");
	return;
}

#
# What is said of an index
#

sub info
{
	my ($table, $item, $where) = @_;
	my $sql = "SELECT $item FROM bloomidx_info('${table}_k')";
	return $where ? $where->safe_psql('postgres', $sql) : $gate->ask($sql);
}

sub index_file
{
	my ($table) = @_;
	return slurp_file($node->data_dir . '/' . query("CHECKPOINT; SELECT pg_relation_filepath('${table}_k')"));
}
sub page_of { my ($file, $block) = @_; return substr($$file, $block * $page_size, $page_size); }

# The blocks of a file with pages of a kind.
sub blocks
{
	my ($file, $kind) = @_;
	return grep { $format->value(page_of($file, $_), 'opaque.kind') == $format->constant("BX_PAGE_$kind") }
	  0 .. length($$file) / $page_size - 1;
}

# The groups of all regions, in order.
sub groups_of_file
{
	my ($file) = @_;
	my ($first, $size) = ($format->at('region.group[0]'), $format->size('region.group[0]'));

	return map {
		my $page = page_of($file, $_);
		map { my $at = $first + $_ * $size; +{ map { $_ => $format->value($page, "group.$_", $at) } 'start', 'nblocks', 'generation', 'width', 'first' } }
		  0 .. $format->value($page, 'region.ngroups') - 1
	} blocks($file, 'REGION');
}

# Whether a file has still the first page of a group.
sub is_page_of
{
	my ($file, $group) = @_;
	my $page = page_of($file, $group->{start});
	return $format->value($page, 'opaque.kind') == $format->constant('BX_PAGE_GROUP')
	  && $format->value($page, 'opaque.group.generation') == $group->{generation};
}

sub groups { my ($table) = @_; my $file = index_file($table); return groups_of_file(\$file); }
sub widths { my ($table) = @_; return join ' ', map { $_->{width} } groups($table); }
sub generations { my ($table) = @_; return join ' ', map { $_->{generation} } groups($table); }

# Rows are found, those with negative keys and some of the others, and bloomidx_check() looks all up.
sub is_good
{
	my ($table, $what, $where, $column) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @results = map {
		my $sql = "SET client_min_messages = warning;\n$_";
		my ($stdout, $stderr) = ('', '');
		$where->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr) if $where;
		$where ? $stdout . $stderr : $gate->ask($sql);
	} "SELECT oracle_lost_rows('$table', '@{[ $column || 'k' ]}', '${table}_k', 'true', '(k < 0 OR k % 5 = 0)')",
	  "SELECT bloomidx_check('${table}_k') = count(*), count(*) > 0 FROM $table";
	return is("@results", '0 t|t', "$what: every row is found, and bloomidx_check looks up every row");
}

# There is nothing left to do for VACUUM, and no page that nothing knows of.
sub is_settled
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(info($table, 'note') =~ s/at least half of the pages are free.*//r, '', "$what: bloomidx_info notes nothing, unless free pages");
	like($gate->ask("SELECT bloomidx_check('${table}_k')"), qr/^\d+$/, "$what: every page is referenced or known to be free");
	return;
}

#
# Growth by inserts
#

sub inserts_make_groups
{
	my $table = grown_table(21, 20);
	my $key = key_in($table, 17);
	my $last = query("SELECT max(k) FROM $table");
	my $many = join ', ', map { $_ * 101 } 1 .. 2 * $last / 101;

	is(info($table, 'partitions'), 21, 'growth: the table has many partitions');
	is(widths($table), '1 1 1 2 2 4 4 8', 'growth: inserts make groups of growing width');
	is(info($table, 'groups'), 8, 'growth: bloomidx_info counts them');
	like(info($table, 'note'), qr/^$unfiltered_note$/, 'growth: bloomidx_info notes that the first partition has no filter');
	is_good($table, 'growth');
	foreach my $step ('before VACUUM', 'after VACUUM')
	{
		my $more = $step eq 'before VACUUM' ? 3 : 0;
		cmp_ok(query("SELECT index_pages_read('SELECT FROM $table WHERE k = $key')"),
			'<', 14 + $more, "growth, $step: a lookup reads few pages");
		cmp_ok(query("SELECT avg(index_pages_read(format('SELECT FROM $table WHERE k = %s', -i))) FROM generate_series(1, 100) i"),
			'<', 11 + $more, "growth, $step: a lookup of what is not there reads still fewer");
		is(query("SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k IN ($many)"),
			int($last / 101), "growth, $step: all rows of a long list are found");
		is(query("SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = $last + 1"), 0, "growth, $step: no row that is not there");
		query("VACUUM $table");
	}
	is(widths($table), '8 16', 'growth: VACUUM makes the filter of the first partition, and merges groups');
	is_settled($table, 'growth, after VACUUM');
	is_good($table, 'growth, after VACUUM');
	query(add_partitions($table, 14));
	is(widths($table), '8 16 8 16', 'growth: inserts after VACUUM make the next group');
	is_good($table, 'growth, after VACUUM and inserts');
	query("VACUUM $table");
	is(widths($table), '16 32', 'growth: VACUUM merges the groups, except that of the last partition');
	is_settled($table, 'growth, after merges');
	is_good($table, 'growth, after merges');
	my $generations = generations($table);
	query("VACUUM $table");
	is(generations($table), $generations, 'growth: then VACUUM has nothing to merge');
	return $table;
}

# Most partitions do not exist, and there is a second region.
sub partitions_may_be_far_apart
{
	my $table = grown_table(2);
	extend_file($node, 'postgres', 126 * $partition_pages, $table);
	$gate = new_gate($node);
	query(add_partitions($table, 4));
	is(info($table, 'partitions'), 7, 'far apart: only some partitions exist');
	is(widths($table), '1 16 16', 'far apart: there is a group in each of two regions');
	is_good($table, 'far apart');
	query("VACUUM $table");
	is(widths($table), '16 2 16', 'far apart: VACUUM makes the filter of the first partition, and merges it with the next');
	is_settled($table, 'far apart, after VACUUM');
	query("INSERT INTO $table SELECT -i, '' FROM generate_series(1, 10000) i");
	cmp_ok(info($table, 'partitions'), '>', 7, 'far apart: rows come between them');
	is_good($table, 'far apart, after inserts between them');
	return $table;
}

sub aborted_inserts_do_no_harm
{
	my $table = grown_table(2);
	query("BEGIN; @{[ add_partitions($table, 5) ]} ROLLBACK");
	is(widths($table), '1 1 1 2 2', 'aborted: inserts that are aborted have made groups');
	is_good($table, 'aborted');
	query("VACUUM $table");
	is_good($table, 'aborted, after VACUUM');
	query(add_partitions($table, 6));
	is_good($table, 'aborted, after other inserts');
	query("VACUUM $table");
	is_settled($table, 'aborted, after two VACUUMs');
	is_good($table, 'aborted, after two VACUUMs');
	return $table;
}

#
# CREATE INDEX
#

sub builds_make_groups
{
	my $table = new_name('built');
	my $expected = '16 4 1';

	query(create_table($table) . add_partitions($table, 21, 20) . create_index($table));
	is(widths($table), $expected, 'build: there are groups of falling width');
	is_good($table, 'build');
	cmp_ok(query("SELECT index_pages_read('SELECT FROM $table WHERE k = 50000')"), '<', 12, 'build: a lookup reads few pages');

	query("REINDEX INDEX CONCURRENTLY ${table}_k");
	is(widths($table), $expected, 'REINDEX CONCURRENTLY: the groups are the same');
	is_good($table, 'REINDEX CONCURRENTLY');

	query("ALTER TABLE $table SET (parallel_workers = 2); SET max_parallel_maintenance_workers = 2; REINDEX INDEX ${table}_k");
	is(widths($table), $expected, 'parallel build: the groups are the same');
	is_good($table, 'parallel build');

	query("ALTER TABLE $table SET (parallel_workers = 0); SET maintenance_work_mem = '1MB'; REINDEX INDEX ${table}_k");
	is(widths($table), $expected, 'build with little memory: the groups are the same');
	is_good($table, 'build with little memory');

	query(add_partitions($table, 12));
	is(widths($table), "$expected 1 2 8 16", 'build, then inserts: the new groups contain no partition twice');
	is_good($table, 'build, then inserts');
	query("VACUUM $table");
	is_settled($table, 'build, then inserts and VACUUM');
	is_good($table, 'build, then inserts and VACUUM');
	return $table;
}

sub keys_may_be_few_or_many
{
	my $table = new_name('columns');

	query(create_table($table) . add_partitions($table, 5) . create_index($table, 'k, few, more'));
	foreach my $column ('k', 'few', 'more')
	{
		is_good($table, "three columns, $column", undef, $column) if $column ne 'few';
		is(query("SET enable_seqscan = off; SELECT count(*) FROM $table WHERE $column = 3"),
			query("SET enable_bitmapscan = off; SELECT count(*) FROM $table WHERE $column = 3"), "three columns, $column: the same rows");
	}
	query(add_partitions($table, 5) . "INSERT INTO $table VALUES (-1), (-2); INSERT INTO $table (few) VALUES (7)");
	is_good($table, 'three columns, after inserts', undef, $_) foreach 'k', 'more';
	is(query("SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k IS NULL AND few = 7"), 1, 'three columns: null is found');
	query("VACUUM $table");
	is_settled($table, 'three columns, after VACUUM');

	# one key per partition, almost
	my $low = new_name('low');
	query(create_table($low) . add_partitions($low, 5) . create_index($low, 'few') . add_partitions($low, 3));
	is(query("SET enable_seqscan = off; SELECT count(*) FROM $low WHERE few = 4"),
		query("SET enable_bitmapscan = off; SELECT count(*) FROM $low WHERE few = 4"), 'five keys: the same rows');
	is(query("SET enable_seqscan = off; SELECT count(*) FROM $low WHERE few = 5"), 0, 'five keys: no row with another one');
	query("VACUUM $low; SELECT bloomidx_check('${low}_k')");
	is_settled($low, 'five keys');
	return ($table, $low);
}

# Filters that are far too large become smaller.
sub groups_that_are_too_large_shrink
{
	my $table = grown_table(4, 50);

	query(add_partitions($table, 5));
	my ($large) = grep { $_->{first} == 4 } groups($table);
	query("VACUUM $table");
	my ($small) = grep { $_->{first} == 4 } groups($table);
	is("$large->{width} $small->{width}", '2 4', 'too large: there is a group for the partitions with fewer keys');
	cmp_ok($small->{nblocks}, '<=', $large->{nblocks} / 4, 'too large: VACUUM shrinks it');
	is_good($table, 'too large');
	is_settled($table, 'too large');
	my $generations = generations($table);
	query("VACUUM $table");
	is(generations($table), $generations, 'too large: then VACUUM has nothing to do');
	return $table;
}

# The number of keys differs from partition to partition.
sub partitions_may_differ
{
	my $table = new_name('uneven');
	my @per_page = map { 8 + $_ * 7 % 13 } 1 .. 21;

	query(create_table($table) . join('', map { add_partitions($table, 1, $_) } @per_page) . create_index($table));
	is_good($table, 'uneven partitions');
	query("VACUUM $table");
	is_good($table, 'uneven partitions, after VACUUM');
	is_settled($table, 'uneven partitions, after VACUUM');
	my $generations = generations($table);
	query("VACUUM $table");
	is(generations($table), $generations, 'uneven partitions: then VACUUM has nothing to do');
	return $table;
}

sub partitions_without_keys_get_keys_later
{
	my $table = new_name('partial');

	query(create_table($table) . add_partitions($table, 9));
	query("UPDATE $table SET few = -1 WHERE @{[ in_partitions($_) ]}") foreach 1, 4, 5;
	query(create_index($table, 'k', 'WHERE few = -1'));
	is(info($table, 'partitions'), 3, 'partial index: only some partitions have keys');
	my $found = sub {
		my ($what) = @_;
		is(query("SELECT oracle_lost_rows('$table', 'k', '${table}_k', 'few = -1')"), 0, "partial index, $what: every row is found");
		is(query("SELECT bloomidx_check('${table}_k') = count(*) FROM $table WHERE few = -1"), 't', "partial index, $what: bloomidx_check accepts it");
	};
	$found->('build');
	foreach my $partition (7, 0, 3, 8)
	{
		query("UPDATE $table SET few = -1 WHERE k % 3 = 0 AND @{[ in_partitions($partition) ]}");
		$found->("keys come to partition $partition");
	}
	vacuum_all($table);
	$found->('after VACUUM');
	is_settled($table, 'partial index, after VACUUM');
	query(add_partitions($table, 3) . "UPDATE $table SET few = -1 WHERE @{[ in_partitions(9, 3) ]}");
	$found->('keys come to new partitions');
	return $table;
}

# Rows come while the index is being built, also to partitions that were not there when it began.
sub rows_behind_a_concurrent_build_are_found
{
	my ($what) = @_;
	my $table = new_name('behind');

	query(create_table($table) . add_partitions($table, 3));
	$gate->hold('build_page');
	my $build = start(create_index($table) =~ s/INDEX/INDEX CONCURRENTLY/r);
	$gate->wait_for('build_page');
	query(add_partitions($table, 4) . change_keys($table, 0, 2) . ';' . change_keys($table, 2, 4));
	$gate->release('build_page');
	$build->quit;
	is_good($table, "$what: CREATE INDEX CONCURRENTLY beside inserts");
	query("VACUUM $table");
	is_settled($table, "$what: CREATE INDEX CONCURRENTLY beside inserts, after VACUUM");
	is_good($table, "$what: CREATE INDEX CONCURRENTLY beside inserts, after VACUUM");
	return $table;
}

#
# Doubt
#

# Dead rows that an older snapshot still sees: an expression of them cannot be computed safely.  Returns the table; of its
# three partitions, the last is in doubt and has no filter.
sub table_in_doubt
{
	my ($what) = @_;
	my $table = new_name('doubt');
	my $older = old_snapshot($node);

	query(create_table($table) . add_partitions($table, 3));
	query("DELETE FROM $table WHERE k % 50 = 0 AND @{[ in_partitions(2) ]}");
	query(create_index($table, '(k + 0)'));
	is(widths($table), '2', "$what: a partition in doubt gets no filter");
	like(info($table, 'note'), $doubt_note, "$what: bloomidx_info notes that it has no filter, nor has the first");
	is_good($table, $what, undef, "k + 0");
	$older->quit;
	wait_for_feedback();
	query("VACUUM (TRUNCATE off) $table");
	return $table;
}

sub doubt_is_resolved
{
	my $what = 'doubt';
	my $table = table_in_doubt($what);

	query(change_keys($table, 2, 4));
	is_good($table, "$what, after inserts", undef, 'k + 0');
	vacuum_all($table);
	is(widths($table), '2 1 1', "$what: bloomidx_summarize makes the filter");
	is_settled($table, "$what, resolved");
	is_good($table, "$what, resolved", undef, 'k + 0');
	return $table;
}

# The new partition shares no group with one whose filter is being made.
sub a_new_group_does_not_hide_a_new_filter
{
	my ($try) = @_;
	my $what = "$try: a new group beside a new filter";
	my $table = table_in_doubt($what);

	$gate->hold('group_filled');
	my $rebuild = start("SELECT bloomidx_summarize('${table}_k')");
	$gate->wait_for('group_filled');
	# that was the first partition; the rebuild must not pass the same place twice
	$gate->hold('group_entered');
	$gate->release('group_filled');
	$gate->wait_for('group_entered');
	$gate->hold('group_filled');
	$gate->release('group_entered');
	$gate->wait_for('group_filled');
	$gate->hold('group_made');
	my $insert = start("INSERT INTO $table SELECT -i, repeat('x', 7000) FROM generate_series(1, 50) i");
	$gate->wait_for('group_made');
	$gate->release('group_filled');
	# it enters the filter, and has to wait when it looks for free pages
	$gate->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE relation = '${table}_k'::regclass AND locktype = 'page' AND NOT granted");
	$gate->release('group_made');
	$_->quit foreach $insert, $rebuild;
	is_good($table, $what, undef, 'k + 0');
	query("SELECT bloomidx_summarize('${table}_k')");
	is_good($table, "$what, and after another rebuild", undef, 'k + 0');
	return $table;
}

# Rows that come behind the scan of CREATE INDEX CONCURRENTLY and are deleted before the index is validated; see 007_races.pl.
sub a_concurrent_build_in_doubt_loses_nothing_on_a_standby
{
	my ($try) = @_;
	my $what = "$try: deleted rows behind a concurrent build";
	my $table = new_name('behind');

	query(create_table($table) . add_partitions($table, 3));
	$gate->hold('build_page');
	my $build = start(create_index($table, '(k + 0)') =~ s/INDEX/INDEX CONCURRENTLY/r);
	$gate->wait_for('build_page');
	query(change_keys($table, 1, 2) . "; INSERT INTO $table SELECT -1000000 - i, repeat('x', 7000) FROM generate_series(1, 150) i");
	catch_up($node, $standby);
	my $old = old_snapshot($standby);
	my $query = "SELECT count(*) FROM $table WHERE k + 0 IN ("
	  . join(', ', split /\n/, query("SELECT k FROM $table WHERE k < 0")) . ')';
	my $n = query("SELECT count(*) FROM $table WHERE k < 0");
	query("DELETE FROM $table WHERE k < 0");
	$gate->release('build_page');
	$build->quit;
	like(info($table, 'note'), qr/partitions without third-level filter: 4, call bloomidx_summarize/, "$what: partitions have no filter");
	is_good($table, $what, undef, 'k + 0');
	catch_up($node, $standby);
	like($old->query_safe("EXPLAIN $query"), qr/Index Scan/, "$what: an older snapshot on a standby uses the index");
	is($old->query_safe($query), $n, "$what: an older snapshot on a standby finds them");
	$old->quit;
	query("INSERT INTO $table SELECT -1000000 - i, repeat('x', 7000) FROM generate_series(1, 50) i");
	is_good($table, "$what, and inserts", undef, 'k + 0');
	vacuum_all($table);
	is_settled($table, "$what, resolved");
	is_good($table, "$what, resolved", undef, 'k + 0');
	return $table;
}

#
# Crashes
#

# Tables of which VACUUM has something to do for the filter of a partition: it has none; it has one for itself; it shares a
# group with others; groups are merged, of which it belongs to the first or to the last.  Then the number of groups afterwards.
sub built_table
{
	my $table = new_name('grown');
	query(create_table($table) . add_partitions($table, 6) . create_index($table));
	query("VACUUM $table");
	return $table;
}
sub table_to_merge { my $table = built_table(); query(add_partitions($table, 3)); return $table; }
my %to_do = (
	first => sub { my $table = grown_table(2); return ($table, 0, 2); },
	alone => sub { my $table = grown_table(2); query("VACUUM $table"); overfill($table, 0); return ($table, 0, 2); },
	shared => sub { my $table = built_table(); overfill($table, 2); return ($table, 2, 4); },
	merged_first => sub { return (table_to_merge(), 0, 2); },
	merged_last => sub { return (table_to_merge(), 7, 2); });
my @steps = ('group_switched', 'group_entered', 'group_filled', 'group_shadow');
my @merges = ('merged_first', 'merged_last');
my @filters = ('first', 'alone', 'shared');

# One VACUUM at each step, for each of the tables, an insert that makes a group, and kill -9.
sub a_crash_at_any_step_loses_nothing
{
	my ($try, $checkpoint, @kinds) = @_;
	my @cases;

	# those who go farthest are the first to start
	foreach my $step (@steps)
	{
		foreach my $kind (@kinds)
		{
			my ($table, $partition, $groups) = $to_do{$kind}->();
			push @cases, { table => $table, partition => $partition, step => $step, kind => $kind, groups => $groups,
				what => "$try, killed at $step ($kind)" };
		}
	}
	foreach my $step (@steps)
	{
		my @here = grep { $_->{step} eq $step } @cases;
		$gate->hold($step);
		$_->{session} = start("VACUUM $_->{table}") foreach @here;
		$gate->wait_for($step, scalar @here);
	}
	my $made = grown_table(4);
	$gate->hold('group_made');
	my $insert = start(add_partitions($made, 2));
	$gate->wait_for('group_made');
	query('CHECKPOINT') if $checkpoint;
	query(change_keys($_->{table}, $_->{partition}, 2)) foreach @cases;
	query(change_keys($made, 3, 2));
	kill9_all($node);
	$node->start;
	$gate = new_gate($node);

	foreach my $step (@steps)
	{
		report("kill -9 at $step of a merge", 1) if grep { /merged/ } @kinds;
		report("kill -9 at $step of a new filter", 1) if grep { !/merged/ } @kinds;
	}
	report('kill -9 at group_made of a new group', 1);
	foreach my $case (@cases)
	{
		my ($table, $what) = ($case->{table}, $case->{what});
		my $entered = $case->{step} =~ /^group_(entered|switched)$/;

		like(info($table, 'note'), $shadow_note, "$what: bloomidx_info notes an interrupted rebuild")
		  if $case->{step} ne 'group_switched' || $case->{kind} =~ /merged/;
		is_good($table, $what);
		query(change_keys($table, $case->{partition}, 4));
		my $generations = generations($table);
		query("VACUUM $table");
		is_settled($table, "$what, VACUUM");
		is_good($table, "$what, VACUUM");
		my @new = grep { " $generations " !~ / $_ / } split / /, generations($table);
		is(scalar @new, $entered ? 0 : 1, "$what: VACUUM "
			  . ($entered ? 'completes the rebuild, and does not repeat it' : 'repeats the rebuild'));
		is(info($table, 'groups'), $case->{groups}, "$what, VACUUM: there are as many groups as there should be");
		overfill($table, 0, 4);
		query(add_partitions($table, 2));
		is_good($table, "$what, VACUUM and inserts");
		query("VACUUM $table");
		is_good($table, "$what, VACUUM again");
	}
	my $what = "$try, killed at group_made";
	is(widths($made), '1 1 1', "$what: the group is not there");
	cmp_ok(info($made, 'free_pages'), '>', 0, "$what: its pages are free");
	is_good($made, $what);
	query(add_partitions($made, 2));
	is(widths($made), '1 1 1 2 2', "$what: the next insert makes it");
	is_good($made, "$what, and inserts");
	query("VACUUM $made");
	is_settled($made, "$what, VACUUM");
	return ($made, map { $_->{table} } @cases);
}

# A crash leaves a merge half done; then the table shrinks, without VACUUM of the index, and grows again.
sub a_table_may_shrink_after_a_crash
{
	my ($try, $step) = @_;
	my $what = "$try: a table shrinks after a crash at $step";
	my $table = table_to_merge();

	query("DELETE FROM $table WHERE @{[ in_partitions(6, 100) ]}");
	wait_for_feedback();
	$gate->hold($step);
	my $vacuum = start("VACUUM $table");
	$gate->wait_for($step);
	query(change_keys($table, 3, 2) . '; CHECKPOINT');
	kill9_all($node);
	$node->start;
	$gate = new_gate($node);
	report("kill -9 at $step of a merge", 1);
	query("VACUUM (INDEX_CLEANUP off, TRUNCATE on) $table");
	is(query("SELECT pg_relation_size('$table') / $page_size / $partition_pages"), 6, "$what: the table has shrunk");
	is_good($table, $what);
	query(change_keys($table, 3, 4));
	overfill($table, 4, 2);
	query("VACUUM (TRUNCATE off) $table");
	is_good($table, "$what, VACUUM");
	is_settled($table, "$what, VACUUM");
	query(add_partitions($table, 5));
	is_good($table, "$what, VACUUM and inserts");
	query("VACUUM $table");
	is_good($table, "$what, two VACUUMs and inserts");
	is_settled($table, "$what, two VACUUMs and inserts");
	return $table;
}

sub an_unlogged_table_is_empty_after_a_crash
{
	my $table = new_name('unlogged');

	query(create_table($table, 'UNLOGGED') . add_partitions($table, 5) . create_index($table) . add_partitions($table, 5));
	is_good($table, 'unlogged');
	query("VACUUM $table");
	is_good($table, 'unlogged, after VACUUM');
	kill9_all($node);
	$node->start;
	$gate = new_gate($node);
	is(info($table, 'partitions, groups'), '0|0', 'unlogged: there is nothing after a crash');
	query(add_partitions($table, 5));
	is(info($table, 'groups'), 4, 'unlogged: inserts after the crash make groups');
	is_good($table, 'unlogged, after the crash');
	query("DROP TABLE $table");
	return;
}

#
# Races
#

# A search that has read the region page, and waits with a page of the group of partitions 0 to 3, while VACUUM replaces the
# filters of all partitions, or of all others, again and again, and merges them.  Pages of groups come to be used for something
# else.
sub a_search_survives_new_groups
{
	my ($try, $others, $where) = @_;
	my $what = "$try: a search while " . ($others ? 'other filters' : 'all filters') . ' are replaced' . ($where ? ', on the standby' : '');
	my $table = built_table();
	my $its_gate = $where ? new_gate($where) : $gate;
	my $key = key_in($table, 2);

	my @before = grep { !$others || $_->{first} > 0 } groups($table);
	is(scalar @before, $others ? 1 : 3, "$what: there are groups to be replaced");
	catch_up($node, $standby) if $where;
	$its_gate->hold('search_group');
	my $search = start_in(index_session($where || $node), "SELECT 'found ' || count(*) FROM $table WHERE k IN ($key, -5)");
	$its_gate->wait_for('search_group');
	my $is_used_again = 0;
	for (my $round = 1; $round <= 2 || !$is_used_again && $round <= 30; $round++)
	{
		overfill($table, 0, 4) if $round <= 2 && !$others;
		overfill($table, 4, 2) if $round <= 2;
		query("SELECT bloomidx_summarize('${table}_k')");
		# the new segments use the pages again
		query(add_partitions($table, $round <= 2 ? 1 : 3));
		my $file = index_file($table);
		$is_used_again = !grep { is_page_of(\$file, $_) } @before;
	}
	ok($is_used_again, "$what: their pages are used for something else");
	catch_up($node, $standby) if $where;
	$its_gate->release('search_group');
	like($search->query("SELECT 'done'"), qr/found 1/, "$what: it finds its row");
	$search->quit;
	$its_gate->quit if $where;
	is_good($table, $what);
	return $table;
}

sub a_search_on_the_standby_survives_new_groups { my ($try) = @_; return a_search_survives_new_groups($try, 0, $standby); }

# A partition of a partial index gets its first key while VACUUM merges the groups around it: VACUUM has planned the merge, or
# copied the filters.  The merged group would lack its keys.
sub a_merge_is_abandoned_for_a_new_partition
{
	my ($try, $step) = @_;
	my $what = "$try: a new partition while VACUUM is at $step";
	my $table = new_name('partial');

	query(create_table($table) . create_index($table, 'k', 'WHERE few = -1') . add_partitions($table, 6, 6, '-1')
		  . add_partitions($table, 1) . add_partitions($table, 2, 6, '-1'));
	is(widths($table), '1 1 1 2 2 4', "$what: there are groups to merge");
	$gate->hold($step);
	my $vacuum = start("VACUUM (TRUNCATE off) $table");
	$gate->wait_for($step);
	query("UPDATE $table SET few = -1 WHERE @{[ in_partitions(6) ]}");
	$gate->release($step);
	$vacuum->quit;
	my $good = sub {
		is(query("SELECT oracle_lost_rows('$table', 'k', '${table}_k', 'few = -1')"), 0, "$what, $_[0]: every row is found");
		is(query("SELECT bloomidx_check('${table}_k') = count(*) FROM $table WHERE few = -1"), 't', "$what, $_[0]: bloomidx_check accepts it");
	};
	is(widths($table), '4 4 4', "$what: the groups around it are not merged");
	$good->('at once');
	unlike(info($table, "coalesce(note, '')"), $shadow_note, "$what: no shadow is left");
	query("VACUUM (TRUNCATE off) $table");
	is(widths($table), '4 8', "$what: the next VACUUM merges groups");
	$good->('after VACUUM');
	return $table;
}

# Inserts that begin before VACUUM has come to a step, and set their bits then; that are there for the step; and that begin
# then, and set their bits when VACUUM is through.
sub inserts_beside_a_merge_are_kept { return inserts_beside_vacuum_are_kept(@_); }
sub inserts_beside_a_new_filter_are_kept { return inserts_beside_vacuum_are_kept(@_); }
sub inserts_beside_vacuum_are_kept
{
	my ($try, $kind, $step) = @_;
	my $what = "$try: inserts while VACUUM is at $step ($kind)";
	my ($table, $partition) = $to_do{$kind}->();

	$gate->hold('insert_key');
	my $before = start(change_keys($table, $partition, 2));
	$gate->wait_for('insert_key');
	$gate->hold($step);
	my $vacuum = start("VACUUM $table");
	$gate->wait_for($step);
	$gate->release('insert_key');
	$before->quit;
	query(change_keys($table, $partition, 4));
	query('BEGIN; ' . change_keys($table, $partition, 6) . "; PREPARE TRANSACTION '$table'");
	query('BEGIN; ' . change_keys($table, $partition, 8) . '; ROLLBACK');
	$gate->hold('insert_key');
	my $after = start(change_keys($table, $partition, 10));
	$gate->wait_for('insert_key');
	$gate->release($step);
	$vacuum->quit;
	$gate->release('insert_key');
	$after->quit;
	query("COMMIT PREPARED '$table'; " . change_keys($table, $partition, 12));
	cmp_ok(query("SELECT count(*) FROM $table WHERE k < 0"), '>=', 50, "$what: there are some");
	is_good($table, $what);
	query("VACUUM $table");
	is_settled($table, $what);
	return $table;
}

sub a_cancelled_statement_does_no_harm
{
	my ($try, $kind, $step) = @_;
	my $what = "$try: cancelled at $step ($kind)";
	my ($table, $partition) = $to_do{$kind}->();
	my $is_insert = $step eq 'group_made';

	$gate->hold($step);
	my $session = start($is_insert ? add_partitions($table, 8) : "VACUUM $table");
	$gate->wait_for($step);
	query(change_keys($table, $partition, 2));
	$gate->cancel($step);
	like($session->query("SELECT 'session ' || 'is usable'"), qr/session is usable/, "$what: the session is usable");
	is(query("SELECT count(*) FROM pg_locks WHERE relation IN ('$table'::regclass, '${table}_k'::regclass)"), 0, "$what: no lock is left");
	$gate->release($step);
	$session->quit;
	if ($step =~ /shadow|filled/)
	{
		my $pages = info($table, 'index_pages');
		foreach (1 .. 3)
		{
			$gate->hold($step);
			$session = start("VACUUM $table");
			$gate->wait_for($step);
			$gate->cancel($step);
			$session->query('SELECT 1');
			$gate->release($step);
			$session->quit;
		}
		is(info($table, 'index_pages'), $pages, "$what: the index does not grow if that happens again");
	}
	unlike(info($table, "coalesce(note, '')"), $shadow_note, "$what: no shadow is left");
	is_good($table, $what);
	query(add_partitions($table, 1)) if $is_insert;
	query("VACUUM $table");
	is_settled($table, "$what, VACUUM");
	is_good($table, "$what, VACUUM");
	return $table;
}

# The sweep for free pages must neither free the pages of a merge nor those of a new group, which an insert has allocated and
# not published.  Another VACUUM waits; bloomidx_summarize() does not.
sub a_sweep_beside_a_merge_frees_no_page_in_use
{
	my ($try, $step) = @_;
	my $what = "$try: a sweep while VACUUM is at $step of a merge";
	my $table = table_to_merge();

	$gate->hold($step);
	my $vacuum = start("VACUUM $table");
	$gate->wait_for($step);
	my $next = start("VACUUM $table");
	$gate->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted");
	$node->psql('postgres', "SELECT bloomidx_summarize('${table}_k')", stderr => \my $stderr);
	like($stderr, qr/could not obtain lock on table/, "$what: bloomidx_summarize() is refused");
	$gate->hold('group_made');
	my $insert = start(add_partitions($table, 8));
	$gate->wait_for('group_made');
	$gate->release($step);
	# the sweep, or whatever the merge needs first, waits for the insert
	$gate->wait_until("SELECT count(*) > 0 FROM pg_locks WHERE relation = '${table}_k'::regclass AND locktype = 'page' AND NOT granted");
	query(change_keys($table, 7, 2));
	$gate->release('group_made');
	$_->quit foreach $insert, $vacuum, $next;
	is_good($table, $what);
	query("VACUUM $table");
	is_settled($table, $what);
	is_good($table, "$what, VACUUM");
	return $table;
}

# REINDEX CONCURRENTLY waits for a VACUUM that merges groups; inserts do not.  Then the next VACUUM waits for REINDEX
# CONCURRENTLY, while inserts make groups in the old index, and after the build in both.
sub reindex_concurrently_beside_a_merge_loses_nothing
{
	my ($try, $step) = @_;
	my $what = "$try: REINDEX CONCURRENTLY while VACUUM is at $step of a merge";
	my $table = table_to_merge();
	my $waiting = "SELECT count(*) = 1 FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted";

	$gate->hold($step);
	my $vacuum = start("VACUUM $table");
	$gate->wait_for($step);
	my $reindex = start("REINDEX INDEX CONCURRENTLY ${table}_k");
	$gate->wait_until($waiting);
	query(change_keys($table, 7, 2) . ';' . change_keys($table, 0, 4));
	$gate->hold('build_page');
	$gate->release($step);
	$vacuum->quit;
	$gate->wait_for('build_page');
	query(change_keys($table, 7, 6) . ';' . change_keys($table, 0, 8) . ';' . add_partitions($table, 3));
	my $next = start("VACUUM $table");
	$gate->wait_until($waiting);
	$gate->release('build_page');
	$_->quit foreach $reindex, $next;
	is_good($table, $what);
	is(query("SELECT count(*) FROM pg_index WHERE indrelid = '$table'::regclass AND indisvalid"), 1, "$what: there is one index, which is valid");
	query("VACUUM $table");
	is_settled($table, $what);
	is_good($table, "$what, VACUUM");
	return $table;
}

#
# Damage
#

# Pages of an index are replaced under the server, one at a time.  Queries are right or raise index_corrupted, and
# bloomidx_check() finds it.  Some damage cannot be seen by queries, but must be by bloomidx_check().
sub damage_is_noticed
{
	my $table = grown_table(6, 26);
	query("VACUUM $table");
	overfill($table, 0);
	query("VACUUM $table");
	my $old = index_file($table);
	overfill($table, 0);
	query("VACUUM $table");
	my $good = index_file($table);
	my @groups = groups_of_file(\$good);
	my @old_groups = groups_of_file(\$old);
	my ($region) = blocks(\$good, 'REGION');
	my ($alone) = grep { $groups[$_]{width} == 1 && $groups[$_]{first} == 0 } 0 .. $#groups;
	my ($wide) = grep { $groups[$_]{width} == 4 } 0 .. $#groups;
	my ($old_alone) = grep { $_->{width} == 1 && $_->{first} == 0 } @old_groups;
	my %first_page = map { $_->[0] => $groups[ $_->[1] ]{start} } [ 'alone', $alone ], [ 'wide', $wide ];
	my @damages;

	my $with = sub {
		my ($page, $field, $value, $struct) = @_;
		substr($page, ($struct || 0) + $format->at($field), $format->size($field)) = $format->bytes($field, $value);
		return $page;
	};
	my $flip = sub {
		my ($page, $field, $struct) = @_;
		return $with->($page, $field, 1 ^ $format->value($page, $field, $struct), $struct);
	};
	my $add = sub { my ($name, $block, $page, $unseen) = @_; push @damages, { name => $name, block => $block, page => $page, unseen => $unseen }; };

	foreach my $which (sort keys %first_page)
	{
		my $block = $first_page{$which};
		my $page = page_of(\$good, $block);
		my $other = $first_page{ $which eq 'wide' ? 'alone' : 'wide' };

		$add->("${which}_zero", $block, "\0" x $page_size);
		$add->("${which}_is_other", $block, page_of(\$good, $other));
		$add->("${which}_is_region", $block, page_of(\$good, $region));
		$add->("${which}_is_slice", $block, page_of(\$good, (blocks(\$good, 'SLICE'))[0]));
		$add->("${which}_no_special", $block, substr($page, 0, $format->constant('BX_OPAQUE_OFFSET')) . "\0" x 32);
		$add->("${which}_$_", $block, $flip->($page, "opaque.$_"))
		  foreach 'kind', 'page_id', 'number', map { "group.$_" } 'page', 'nblocks', 'generation', 'nprobes', 'width', 'first';
	}
	$add->('alone_is_old', $first_page{alone}, page_of(\$old, $old_alone->{start}));
	$add->('wide_is_next', $first_page{wide}, page_of(\$good, $first_page{wide} + 1));

	my $page = page_of(\$good, $region);
	my $entry = sub { return $format->at('region.group[0]') + $_[0] * $format->size('region.group[0]') };
	foreach my $which ([ 'alone', $entry->($alone) ], [ 'wide', $entry->($wide) ])
	{
		my ($name, $at) = @$which;
		$add->("entry_of_${name}_$_", $region, $flip->($page, "group.$_", $at)) foreach 'start', 'nblocks', 'generation', 'nprobes', 'width', 'first';
		$add->("entry_of_${name}_far", $region, $with->($page, 'group.start', 0xFFFFFFF0, $at));
		$add->("entry_of_${name}_at_meta", $region, $with->($page, 'group.start', 0, $at));
		$add->("entry_of_${name}_width_3", $region, $with->($page, 'group.width', 3, $at));
		$add->("entry_of_${name}_many", $region, $with->($page, 'group.nblocks', 0xFFFFFFFF, $at));
		$add->("entry_of_${name}_none", $region, $with->($page, 'group.nblocks', 0, $at));
		$add->("entry_of_${name}_probes", $region, $with->($page, 'group.nprobes', 255, $at));
	}
	$add->('region_number', $region, $flip->($page, 'opaque.number'));
	$add->('too_many_groups', $region, $with->($page, 'region.ngroups', 5000));
	$add->('no_group', $region, $with->($page, 'region.ngroups', 0));
	$add->('one_group_more', $region, $with->($page, 'region.ngroups', @groups + 1));
	$add->('top_far', $region, $with->($page, 'region.top[1]', 0xFFFFFFF0));
	$add->('region_is_top', $region, page_of(\$good, (blocks(\$good, 'TOP'))[0]));

	# what queries cannot see; the last can only be seen by looking rows up
	$add->('one_group_less', $region, $with->($page, 'region.ngroups', @groups - 1), 'queries');
	$add->('region_of_yesterday', $region, page_of(\$old, $region), 'queries');
	$add->('partition_forgotten', $region, $with->($page, 'region.top[1]', 0), 'all');

	query(qq{
CREATE TABLE asked AS SELECT k FROM $table WHERE k % 397 = 0 UNION ALL SELECT -i FROM generate_series(1, 20) i;
CREATE FUNCTION outcome(query text, expected bigint) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE
	n bigint;
BEGIN
	EXECUTE query INTO n;
	RETURN CASE WHEN n = expected OR expected IS NULL THEN 'right' ELSE 'wrong' END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || CASE WHEN SQLERRM LIKE '%${table}_k%' THEN '' ELSE ' ' || SQLERRM END;
END \$\$;
CREATE FUNCTION outcomes() RETURNS text LANGUAGE plpgsql SET client_min_messages = warning AS \$\$
DECLARE
	all_outcomes text[];
	checked text := outcome(\$q\$SELECT bloomidx_check('${table}_k')\$q\$, NULL);
	unread text := outcome(\$q\$SELECT bloomidx_check('${table}_k', false)\$q\$, NULL);
BEGIN
	PERFORM oracle_force(true);
	all_outcomes := ARRAY(SELECT outcome(format('SELECT count(*) FROM $table WHERE k = %s', k), (k > 0)::int) FROM asked);
	all_outcomes := all_outcomes || ARRAY(SELECT outcome(format('UPDATE $table SET k = -k WHERE k = %s RETURNING 1', k), NULL)
		FROM asked WHERE k > 0 ORDER BY k LIMIT 20);
	all_outcomes := all_outcomes || outcome(\$q\$SELECT bloomidx_summarize('${table}_k')\$q\$, NULL);
	RETURN concat_ws('|', checked, unread, (SELECT string_agg(DISTINCT o, ', ') FROM unnest(all_outcomes) o));
END \$\$});
	my $script = '';
	my $path = $node->basedir . '/damaged';
	my @pages = map { $_->{page} } @damages;

	foreach my $part ([ 'good', $good ], [ 'damaged', join '', @pages ])
	{
		open my $fh, '>', $node->basedir . "/$part->[0]" or die "could not create $part->[0]: $!";
		binmode $fh;
		print $fh $part->[1];
		close $fh or die "could not write $part->[0]: $!";
	}
	my $whole = "pg_read_binary_file('@{[ $node->basedir ]}/good')";
	foreach my $i (0 .. $#damages)
	{
		my $at = $damages[$i]{block} * $page_size + 1;
		die "$damages[$i]{name}: nothing is changed" if $damages[$i]{page} eq page_of(\$good, $damages[$i]{block});
		$script .= "SELECT write_pages('${table}_k', overlay($whole PLACING pg_read_binary_file('$path', $i * $page_size, $page_size) FROM $at));\n"
		  . "BEGIN; SELECT '$i|' || outcomes(); ROLLBACK;\n";
	}
	$script .= "SELECT write_pages('${table}_k', $whole);\nBEGIN; SELECT 'good|' || outcomes(); ROLLBACK;\n";
	$node->psql('postgres', $script, stdout => \my $stdout, stderr => \my $stderr, on_error_stop => 0);
	my %found = map { /^(\w+)\|(.*)\|(.*)\|(.*)/ ? ($1 => [ $2, $3, $4 ]) : () } split /\n/, $stdout;

	is($stderr, '', 'damage: no statement fails outside of the outcomes');
	is(join('|', @{ $found{good} }), 'right|right|right', 'damage: the index is good when it is restored');
	foreach my $i (0 .. $#damages)
	{
		my ($checked, $unread, $outcomes) = @{ $found{$i} || [ 'no answer', '', '' ] };
		my $unseen = $damages[$i]{unseen} || '';
		my $allowed = join '|', 'right', 'XX002', $unseen ? 'wrong' : ();

		is($checked, 'XX002', "damage $damages[$i]{name}: bloomidx_check finds it");
		is($unread, 'XX002', "damage $damages[$i]{name}: bloomidx_check finds it without the rows") if $unseen ne 'all';
		like($outcomes, qr/^($allowed)(, ($allowed))*$/, "damage $damages[$i]{name}: right answers or index_corrupted");
	}
	cmp_ok(scalar(grep { $_->[2] =~ /XX002/ } values %found), '>', 0.8 * @damages, 'damage: queries notice most of it');
	query("REINDEX INDEX ${table}_k");
	is_good($table, 'damage, after REINDEX');
	return;
}

# The tables of the tests that have ended.
my @tables;

sub tables_are_good_on_the_standby
{
	catch_up($node, $standby);
	indexes_are_good($standby, 'standby');
	foreach my $table (grep { /^grown/ } @tables)
	{
		is_good($table, "standby, $table", $standby);
		is(info($table, 'groups', $standby), info($table, 'groups'), "standby, $table: there are as many groups");
	}
	return;
}

# In a long run there would be too many.
sub trim_tables
{
	tables_are_good_on_the_standby();
	indexes_are_good($node, 'primary');
	query("DROP TABLE $_") foreach @tables;
	@tables = ();
	return;
}

#
# The run
#

@tables = (partitions_may_be_far_apart());
$standby = new_standby($node, 'groups_standby',
	conf => "max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
push @tables, inserts_make_groups(), aborted_inserts_do_no_harm(), builds_make_groups(), keys_may_be_few_or_many();
push @tables, groups_that_are_too_large_shrink(), partitions_may_differ();
push @tables, partitions_without_keys_get_keys_later(), doubt_is_resolved();

# The races, and the arguments of each of their variants.  Two kinds of tables are enough if each variant is run once: the others
# take the same path, and a crash tries all.
sub product { my ($kinds, $steps) = @_; return map { my $kind = $_; map { [ $kind, $_ ] } @$steps } @$kinds; }
my $few = $tries == 1;
my @races = (
	[ 'rows_behind_a_concurrent_build_are_found', [] ],
	[ 'a_search_survives_new_groups', [0], [1] ],
	[ 'a_search_on_the_standby_survives_new_groups', [] ],
	[ 'inserts_beside_a_merge_are_kept', product([ $few ? 'merged_last' : @merges ], \@steps) ],
	[ 'inserts_beside_a_new_filter_are_kept', product([ $few ? 'shared' : @filters ], \@steps) ],
	[ 'a_cancelled_statement_does_no_harm', product([ $few ? ('merged_last', 'shared') : (@merges, @filters) ], [ @steps, 'group_made' ]) ],
	[ 'a_merge_is_abandoned_for_a_new_partition', ['merge_planned'], ['group_shadow'], ['group_filled'] ],
	[ 'a_sweep_beside_a_merge_frees_no_page_in_use', $few ? ['group_filled'] : map { [$_] } @steps ],
	[ 'reindex_concurrently_beside_a_merge_loses_nothing', $few ? ['group_entered'] : map { [$_] } @steps ],
	[ 'a_new_group_does_not_hide_a_new_filter', [] ],
	[ 'a_concurrent_build_in_doubt_loses_nothing_on_a_standby', [] ]);

for my $number (1 .. $tries)
{
	foreach my $race (@races)
	{
		my ($name, @variants) = @$race;
		my @now = $few ? @variants : $variants[ ($number - 1) % @variants ];
		push @tables, map { run_race($name, "try $number", @$_) } @now;
	}
	# a session may not outlive the tests' timeout
	$gate->quit;
	$gate = new_gate($node);
	trim_tables() if $number % 10 == 0;
}
for my $number (1 .. $kills)
{
	my @kinds = $kills == 1 ? (@merges, @filters) : ($merges[ $number % @merges ], $filters[ $number % @filters ]);

	push @tables, a_crash_at_any_step_loses_nothing("kill $number", $number % 2, sort @kinds);
	push @tables, a_table_may_shrink_after_a_crash("kill $number", $kills == 1 ? 'group_switched' : $steps[ $number % @steps ]);
	trim_tables() if $number % 10 == 0;
}
an_unlogged_table_is_empty_after_a_crash();

tables_are_good_on_the_standby();
log_is_clean($standby, 'standby');
$standby->stop;
damage_is_noticed();

log_is_clean($node, 'primary');
$node->stop;
done_testing();
