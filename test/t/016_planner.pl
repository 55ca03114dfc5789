# The planner's view of indexes that do not exist: those that tools invent to try them out (IndexOptInfo.hypothetical),
# for which there is no metapage to read.  test/modules/planhook makes hypothetical ones of the real ones, so that
# the estimates can be compared.  They are taken to be of the default layout.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('planner');
my (undef, undef, $stderr) = $node->psql('postgres', "LOAD 'planhook'");
plan skip_all => 'test/modules/planhook is not installed' if $stderr =~ /could not access file/;

$node->safe_psql(
	'postgres', qq{
CREATE TABLE big (id uuid, few int, day int, pad text);
INSERT INTO big SELECT md5(i::text)::uuid, i % 5, i / 1000, repeat('x', 60) FROM generate_series(1, 200000) i;
CREATE INDEX big_id ON big @{[ using_index('id') ]};
CREATE INDEX big_few ON big @{[ using_index('few') ]};
CREATE INDEX big_both ON big @{[ using_index('day, (few + 1)') ]} WHERE few > 3;
CREATE TABLE unknown AS SELECT * FROM big;
CREATE INDEX unknown_id ON unknown @{[ using_index('id') ]};
CREATE TABLE nothing (id uuid);
CREATE INDEX nothing_id ON nothing @{[ using_index('id') ]};
CREATE TABLE tiny AS SELECT * FROM big LIMIT 50;
CREATE INDEX tiny_id ON tiny @{[ using_index('id') ]};
VACUUM ANALYZE big; VACUUM ANALYZE tiny});

# Plans of a query with real and with hypothetical indexes: the first index in it or '', its cost and rows.
sub plans
{
	my ($query) = @_;
	return map {
		my $plan = $node->safe_psql('postgres', "LOAD 'planhook'; SET planhook.pretend = $_; EXPLAIN $query");
		my ($name) = $plan =~ /Index Scan(?: using| on) (\w+)/;
		my ($cost, $rows) = $plan =~ /cost=[0-9.]+?\.\.([0-9.]+) rows=(\d+)/;
		{ index => $name || '', cost => $cost, rows => $rows };
	} 'off', 'on';
}

foreach my $case (
	[ 'a unique key', "SELECT * FROM big WHERE id = md5('77')::uuid", 'big_id' ],
	[ 'a list of keys', "SELECT * FROM big WHERE id IN (md5('1')::uuid, md5('2')::uuid, md5('3')::uuid)", 'big_id' ],
	[ 'a value that is everywhere', 'SELECT * FROM big WHERE few = 3', '' ],
	[ 'a value that is nowhere', 'SELECT * FROM big WHERE few = 77', 'big_few' ],
	[ 'a partial index with an expression', 'SELECT * FROM big WHERE few > 3 AND day = 100 AND few + 1 = 5', 'big_both' ],
	[ 'the inner side of a join', 'SELECT * FROM tiny JOIN big USING (id)', 'big_id' ],
	# without statistics there seem to be many rows for a key, and with layout block each is in a range of 8 pages
	[ 'a table without statistics', "SELECT * FROM unknown WHERE id = md5('77')::uuid", 'unknown_id', { block => '' } ],
	[ 'a small table', "SELECT * FROM tiny WHERE id = md5('7')::uuid", '' ])
{
	my ($what, $query, $index, $other) = @$case;
	my ($real, $hypothetical) = plans($query);

	is($real->{index}, $other->{ layout() } // $index, "$what: the real index is used if it should be");
	is($hypothetical->{index}, $index && 'hypothetical', "$what: the hypothetical index is used if it should be");
	is($hypothetical->{rows}, $real->{rows}, "$what: as many rows are expected with the hypothetical index");
	cmp_ok($hypothetical->{cost},
		'>', $real->{cost} / (layout() eq 'block' ? 8 : 3), "$what: the hypothetical cost $hypothetical->{cost} is not far below the real one $real->{cost}");
	# that the rows of a day stand together, the real index has counted
	cmp_ok($hypothetical->{cost},
		'<', $real->{cost} * ($index eq 'big_both' ? 25 : 3), "$what: the hypothetical cost is not far above the real one");
}

# An empty table, forced.
my ($real, $hypothetical) = plans("SELECT * FROM nothing WHERE id = md5('7')::uuid");
like($hypothetical->{cost},
	qr/^\d+\.\d+$/, "an empty table: the hypothetical index has a cost ($hypothetical->{cost}, really $real->{cost})");

# Operands with many keys, of which a sample is examined: the time is not that of examining all, which is 100 times as long.
$node->safe_psql('postgres', q{
CREATE TABLE words AS SELECT to_tsvector('simple', 'w' || i || ' v' || i % 100) AS word FROM generate_series(1, 20000) i;
CREATE INDEX words_word ON words } . using_index('word') . q{;
ANALYZE words});
foreach my $case ([ 'all', q{string_agg('w' || i, ' & ')} ], [ 'one and any', q{'v1 & (' || string_agg('w' || i, ' | ') || ')'} ])
{
	my ($what, $expression) = @$case;
	my $words = $node->safe_psql('postgres', "SELECT $expression FROM generate_series(1, 1900) i");
	my @times;

	foreach (1 .. 3)
	{
		my $plan = $node->safe_psql('postgres', "EXPLAIN (SUMMARY) SELECT * FROM words WHERE word @@ '$words'::tsquery");
		ok($plan =~ /Scan (using|on) words_word/, "$what of many words: the index is used") if !@times && $what eq 'all';
		push @times, $plan =~ /Planning Time: ([\d.]+) ms/;
	}
	cmp_ok((sort { $a <=> $b } @times)[0], '<', 60, "$what of many words: planning takes a few milliseconds");
}

log_is_clean($node, 'planner');
$node->stop;
done_testing();
