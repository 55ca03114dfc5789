# VACUUM keeps an index in shape: filters are rebuilt when they are too full, summaries are added, ranges in doubt are
# resolved, pages are used again; and bloomidx_summarize() does the same on demand.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('vacuum', conf => "fsync = off\n");

# What a Bitmap Index Scan did: the heap pages that matched (its "rows"), or the index pages that it read.
$node->safe_psql(
	'postgres', q{
CREATE FUNCTION index_scan(query text, item text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	PERFORM oracle_force(true);
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	plan := jsonb_path_query_first(plan, '$.** ? (@."Node Type" == "Bitmap Index Scan")');
	RETURN CASE item WHEN 'matches' THEN (plan ->> 'Actual Rows')::float8
		ELSE (plan ->> 'Shared Hit Blocks')::float8 + (plan ->> 'Shared Read Blocks')::float8 END;
END $$;

-- Of 4,000 keys that are not there, and all ranges, the part that matches.
CREATE FUNCTION false_positives(tab regclass, npages int) RETURNS float8 LANGUAGE sql AS $$
	SELECT avg(index_scan(format('SELECT FROM %s WHERE id = ANY (%L)', tab,
								 ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 20 + 0 * i))), 'matches'))
		/ 20 / npages
	FROM generate_series(1, 200) i
$$;

-- Index pages that a lookup of a row reads, on average.
CREATE FUNCTION lookup_pages(tab regclass) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	ids uuid[];
BEGIN
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM %s ORDER BY md5(id::text) LIMIT 200) s', tab) INTO ids;
	RETURN avg(index_scan(format('SELECT FROM %s WHERE id = %L', tab, id), 'buffers')) FROM unnest(ids) id;
END $$;
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# What the planner thinks that a scan with the index costs.
sub cost
{
	my ($cost) = query("SET enable_seqscan = off; SET enable_indexscan = off; EXPLAIN $_[0]") =~ /Bitmap Heap Scan.*cost=[\d.]+\.\.([\d.]+)/;
	return $cost;
}

sub pages { return query("SELECT pg_relation_size('$_[0]') / current_setting('block_size')::int"); }

# --- Update-heavy: the index stops growing, and its filters stay good.
my $target = 0.0005;
query(qq{
CREATE TABLE churn (id uuid, n int, pad text) WITH (fillfactor = 80);
INSERT INTO churn SELECT gen_random_uuid(), i, repeat('x', 50) FROM generate_series(1, 60000) i;
CREATE INDEX churn_id ON churn @{[ using_index('id', pages_per_range => 1, false_positive_rate => $target) ]};
});
my @size;
foreach my $cycle (1 .. 10)
{
	query("UPDATE churn SET id = gen_random_uuid() WHERE n % 4 = $_ % 4") foreach $cycle .. $cycle + 1;
	query('VACUUM churn');
	push @size, pages('churn_id');
}
note "index pages after each cycle: @size";
cmp_ok($size[9], '<=', 1.3 * $size[2], 'an index under updates and VACUUM stops growing');
my $rate = query("SELECT false_positives('churn', @{[ pages('churn') ]})");
note "false-positive rate $rate, target $target";
cmp_ok($rate, '<=', 2.5 * $target, 'the false-positive rate after updates and VACUUM is near its target');
cmp_ok($rate, '>', $target / 100, 'the false-positive rate that is measured is not zero');
all_rows_found($node, 'churn', 'id', 'churn_id', 60000, 'after updates');

# --- Pages that are emptied and filled again, as by loads that are rolled back: filters that VACUUM rebuilds while the pages
# are empty have space for the next rows.
query(qq{
CREATE TABLE refilled (id uuid, pad text);
INSERT INTO refilled SELECT gen_random_uuid(), repeat('x', 50) FROM generate_series(1, 40000);
CREATE INDEX refilled_id ON refilled @{[ using_index('id', pages_per_range => 1, false_positive_rate => $target) ]};
});
my $worst = 0;
foreach my $cycle (1 .. 4)
{
	query("INSERT INTO refilled SELECT gen_random_uuid(), repeat('y', 50) FROM generate_series(1, 40000)");
	$rate = query("SELECT false_positives('refilled', @{[ pages('refilled') ]})");
	note "false-positive rate after load $cycle: $rate";
	$worst = $rate if $rate > $worst;
	query("DELETE FROM refilled WHERE pad LIKE 'y%'");
	query('VACUUM (TRUNCATE false) refilled') foreach 1, 2;
}
cmp_ok($worst, '<=', 30 * $target, 'filters are not rebuilt for fewer rows than their pages will have again');
all_rows_found($node, 'refilled', 'id', 'refilled_id', 40000, 'after rows were deleted');

# --- Append-only, grown tenfold after CREATE INDEX.
query(qq{
CREATE TABLE grown (id uuid, pad text);
INSERT INTO grown SELECT gen_random_uuid(), repeat('x', 700) FROM generate_series(1, 9000) i;
CREATE INDEX grown_id ON grown @{[ using_index('id', pages_per_range => 1) ]};
INSERT INTO grown SELECT gen_random_uuid(), repeat('x', 700) FROM generate_series(1, 81000) i;
VACUUM ANALYZE grown;
});
my $before = query("SELECT lookup_pages('grown')");
query('REINDEX INDEX grown_id');
my $fresh = query("SELECT lookup_pages('grown')");
note "index pages per lookup: grown $before, fresh $fresh";
cmp_ok($before, '<=', 1.3 * $fresh, 'a grown and vacuumed index reads as few pages as a fresh one');

# --- One made on the empty table gets its summary from VACUUM, and does not get it twice.
if (layout() eq 'partitioned')
{
	query(qq{
CREATE TABLE loaded (id uuid, pad text);
CREATE INDEX loaded_id ON loaded @{[ using_index('id', pages_per_range => 1) ]};
INSERT INTO loaded SELECT * FROM grown LIMIT 40000;
});
	cmp_ok(query("SELECT lookup_pages('loaded')"), '>', 30, 'without a summary a lookup reads all segments');
	query('VACUUM loaded');
	cmp_ok(query("SELECT lookup_pages('loaded')"), '<', 8, 'with a summary a lookup reads few pages');
	is(query("SELECT bloomidx_summarize('loaded_id')"), 0, 'bloomidx_summarize after VACUUM finds nothing to do');
	all_rows_found($node, 'loaded', 'id', 'loaded_id', 40000, 'after VACUUM');
}

# --- Filters that were planned much too large shrink: many equal keys after a first row that says nothing.
query(qq{
CREATE TABLE repeated (id int, pad text);
CREATE INDEX repeated_id ON repeated @{[ using_index('id', pages_per_range => 16) ]};
INSERT INTO repeated SELECT i / 10000, '' FROM generate_series(1, 600000) i;
});
cmp_ok(query("SELECT bloomidx_summarize('repeated_id')"), '>', 0, 'bloomidx_summarize rebuilds filters that are far too large')
  if layout() eq 'partitioned';
is(query("SELECT bloomidx_summarize('repeated_id')"), 0, 'bloomidx_summarize does not rebuild filters twice');
is(query("SELECT oracle_force(true); SELECT count(*) FROM repeated WHERE id IN (7, 59)") =~ s/^\n//r, 20000,
	'rows are found after filters have shrunk');
my $shrunk = pages('repeated_id');
query("INSERT INTO repeated SELECT i / 10000, '' FROM generate_series(600001, 900000) i; VACUUM repeated");
cmp_ok(pages('repeated_id'), '<=', $shrunk, 'pages that became free are used again, or given back') if layout() eq 'partitioned';

# --- Segments that differ much: the first one has more keys than all others together, and a summary's keys are counted in
# a few of them.  A partition has 16384 ranges; while it is not full, its summary is not thought too large.
if (layout() eq 'partitioned')
{
	my $done;
	my $rebuilds = 0;

	query(qq{
CREATE UNLOGGED TABLE uneven (id int, pad text);
ALTER TABLE uneven ALTER pad SET STORAGE PLAIN;
CREATE INDEX uneven_id ON uneven @{[ using_index('id', pages_per_range => 1) ]};
INSERT INTO uneven SELECT CASE WHEN i <= 128 THEN i ELSE 0 END, repeat('x', 7000) FROM generate_series(1, 16384) i;
});
	is(pages('uneven'), 16384, 'each row of the uneven table is on a page of its own');
	while (($done = query("SELECT bloomidx_summarize('uneven_id')")) > 0 && $rebuilds < 5)
	{
		$rebuilds += $done;
	}
	cmp_ok($rebuilds, '<=', 2, 'a summary of uneven segments is made, and shrinks at most once');
	is( query(
			q{SELECT index_pages - free_pages - (SELECT sum(index_pages) FROM bloomidx_segments('uneven_id'))
			FROM bloomidx_info('uneven_id')}),
		5,
		'the summary of uneven segments has one page, beside four of the directory');
	is(query("SELECT oracle_force(true); SELECT count(*) FROM uneven WHERE id IN (0, 1, 128)") =~ s/^\n//r, 16258,
		'rows of uneven segments are found');
	query('DROP TABLE uneven');
}

# --- Ranges in doubt, because of dead rows under an expression, are resolved once the rows are gone.
query(q{
CREATE TABLE doubtful (id uuid, n int, pad text);
INSERT INTO doubtful SELECT gen_random_uuid(), i, repeat('x', 100) FROM generate_series(1, 20000) i;
});
my $holder = old_snapshot($node);
query(qq{
DELETE FROM doubtful WHERE n % 100 = 0;
CREATE INDEX doubtful_id ON doubtful @{[ using_index('(n + 1)', pages_per_range => 1) ]};
ANALYZE doubtful;
});
my $all = pages('doubtful');
my $cost = cost('SELECT FROM doubtful WHERE n + 1 = -5');
my $in_doubt = query("SELECT index_scan('SELECT FROM doubtful WHERE n + 1 = -5', 'matches')");
cmp_ok($in_doubt, '>', $all / 2, 'ranges with dead rows are in doubt');
my ($expected) = query('SET enable_indexscan = off; EXPLAIN SELECT FROM doubtful WHERE n + 1 = -5') =~ /Bitmap Index Scan.*rows=(\d+)/;
cmp_ok($expected // $all, '>', $all / 2, 'the planner knows of ranges in doubt') if layout() eq 'block';
$holder->query_safe("SELECT oracle_force(true)");
is($holder->query_safe('SELECT count(*) FROM doubtful WHERE n + 1 = 101'), 1, 'the older snapshot finds a dead row');
# its server process may outlive psql, and VACUUM would see the snapshot
$holder->query_safe('COMMIT');
$holder->quit;
query('VACUUM doubtful');
cmp_ok(query("SELECT index_scan('SELECT FROM doubtful WHERE n + 1 = -5', 'matches')"),
	'>', $all / 2, 'VACUUM, which evaluates no expression, leaves the doubt');
cmp_ok(query("SELECT bloomidx_summarize('doubtful_id')"), '>', 0, 'bloomidx_summarize rebuilds filters in doubt');
cmp_ok(query("SELECT index_scan('SELECT FROM doubtful WHERE n + 1 = -5', 'matches')"),
	'<', 5, 'bloomidx_summarize resolves the doubt');
cmp_ok($cost, '>', 3 * cost('SELECT FROM doubtful WHERE n + 1 = -5'), 'ranges in doubt raise the cost')
  if layout() eq 'partitioned';
is(query("SELECT index_scan('SELECT FROM doubtful WHERE n + 1 = 102', 'matches') >= 1"),
	't', 'rows are found after the doubt is resolved');

# --- A user's function that fails for a row in the heap: VACUUM does not call it, bloomidx_summarize() reports it.
query(qq{
CREATE TABLE failing (n int, pad text) WITH (fillfactor = 50);
CREATE FUNCTION picky(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	\$\$ BEGIN IF n = 77 THEN RAISE EXCEPTION 'I do not like 77'; END IF; RETURN n; END \$\$;
INSERT INTO failing SELECT 1, repeat('x', 300) FROM generate_series(1, 2000);
CREATE INDEX failing_idx ON failing @{[ using_index('picky(n)', pages_per_range => 1) ]};
VACUUM failing;
ALTER TABLE failing SET (fillfactor = 100);
INSERT INTO failing SELECT 1000 + i, '' FROM generate_series(1, 30000) i;
CREATE OR REPLACE FUNCTION picky(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	\$\$ BEGIN IF n = 1077 THEN RAISE EXCEPTION 'I do not like 1077'; END IF; RETURN n; END \$\$;
});
my ($status, $out, $err) = $node->psql('postgres', 'VACUUM failing');
is($status . $err, '0', 'VACUUM does not call a function that fails');
($status, $out, $err) = $node->psql('postgres', "SELECT bloomidx_summarize('failing_idx')");
like($err, qr/ERROR:  I do not like 1077/, 'bloomidx_summarize reports the error of a function');
unlike(query("SELECT note FROM bloomidx_info('failing_idx')"),
	qr/interrupted/, 'bloomidx_summarize that fails leaves no unfinished rebuild behind');
query('CREATE OR REPLACE FUNCTION picky(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN n; END $$');
is(query("SELECT oracle_force(true); SELECT count(*) FROM failing WHERE picky(n) = 20000") =~ s/^\n//r, 1,
	'the old filters are used after bloomidx_summarize has failed');
cmp_ok(query("SELECT bloomidx_summarize('failing_idx')"),
	'>', 0, 'bloomidx_summarize rebuilds the filters when the function no longer fails');
is(query("SELECT bloomidx_summarize('failing_idx')"), 0, 'bloomidx_summarize has rebuilt all of them');

# --- A value whose TOAST rows are damaged is a WARNING for VACUUM, and an error for bloomidx_summarize().
query(qq{
CREATE TABLE torn (t text, pad text) WITH (fillfactor = 30);
ALTER TABLE torn ALTER t SET STORAGE EXTERNAL;
INSERT INTO torn SELECT 'same', repeat('x', 300) FROM generate_series(1, 1000);
CREATE INDEX torn_t ON torn @{[ using_index('t', pages_per_range => 1) ]};
ALTER TABLE torn SET (fillfactor = 100);
VACUUM torn;
INSERT INTO torn SELECT 'short ' || i, '' FROM generate_series(1, 10000) i;
INSERT INTO torn SELECT repeat('long' || i, 600), '' FROM generate_series(1, 3) i;
});
my $toast = query("SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'torn'");
$node->stop;
open my $file, '+<', $node->data_dir . "/$toast" or die "could not open $toast: $!";
print $file "\0" x -s $file;
close $file or die "could not write $toast: $!";
$node->start;
($status, $out, $err) = $node->psql('postgres', 'VACUUM torn');
is($status, 0, 'VACUUM does not fail because of damaged TOAST');
like($err,
	qr/WARNING:  could not rebuild filters of index "torn_t": missing chunk number 0/, 'VACUUM warns of damaged TOAST');
unlike(query("SELECT note FROM bloomidx_info('torn_t')"),
	qr/interrupted/, 'VACUUM that warns leaves no unfinished rebuild behind');
($status, $out, $err) = $node->psql('postgres', "SELECT bloomidx_summarize('torn_t')");
like($err, qr/ERROR:  missing chunk number 0/, 'bloomidx_summarize fails because of damaged TOAST');
is(query("SELECT oracle_force(true); SELECT count(*) FROM torn WHERE t = 'short 7'") =~ s/^\n//r, 1,
	'the old filters are used after VACUUM has warned');
query('DROP TABLE torn');

# --- An index function that comes back to the index.
query(qq{
CREATE TABLE circular (n int, pad text) WITH (fillfactor = 30);
CREATE FUNCTION turn(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN RETURN n; END \$\$;
INSERT INTO circular SELECT 1, repeat('x', 300) FROM generate_series(1, 1000);
CREATE INDEX circular_idx ON circular @{[ using_index('turn(n)', pages_per_range => 1) ]};
ALTER TABLE circular SET (fillfactor = 100);
VACUUM circular;
INSERT INTO circular SELECT i, '' FROM generate_series(1, 10000) i;
CREATE OR REPLACE FUNCTION turn(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	\$\$ BEGIN PERFORM public.bloomidx_summarize('public.circular_idx'); RETURN n; END \$\$;
});
($status, $out, $err) = $node->psql('postgres', "SELECT bloomidx_summarize('circular_idx')");
like($err, qr/are being rebuilt in this session/, 'a rebuild within a rebuild is refused');
query('DROP TABLE circular');

# --- bloomidx_summarize: owner only, bloomidx only.
query(qq{
CREATE ROLE stranger;
CREATE TABLE other (i int);
CREATE INDEX other_i ON other (i);
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
CREATE INDEX parted_id ON parted @{[ using_index('id') ]};
});
foreach my $case (
	[ "SET ROLE stranger; SELECT bloomidx_summarize('churn_id')", qr/must be owner of index churn_id/ ],
	[ "SELECT bloomidx_summarize('other_i')", qr/"other_i" is not a bloomidx index/ ],
	[ "SELECT bloomidx_summarize('other')", qr/"other" is not an index/ ],
	[ "SELECT bloomidx_summarize('parted_id')", qr/index "parted_id" is partitioned/ ])
{
	my ($sql, $message) = @$case;
	($status, $out, $err) = $node->psql('postgres', $sql);
	like($err, $message, "$sql: is refused");
}
is(query("SELECT bloomidx_summarize(NULL) IS NULL"), 't', 'bloomidx_summarize of NULL is NULL');

log_is_clean($node, 'VACUUM');
done_testing();
