# bloomidx_check() finds damage that loses rows, or could: each kind is done to an index of its own while the server is
# down, then bloomidx_check() has to raise index_corrupted and to name a block.  Of damage that a look at the index alone
# must find, it is asked without looking at the rows, too.
#
# Before the damage rows are changed, so that there are pages of yesterday to put back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'for little-endian machines' if pack('L', 1) ne pack('V', 1);

#
# The format, as in src/storage/format.h, with pages of 8 kB
#

my $page_size = 8192;
my $content = 32;
my $special = $page_size - 32;
my $rows_per_slice = ($special - $content) / 16;
my %in_special = (node => 0, slice => 4, nslices => 8, generation => 12, nprobes => 16, level => 18, kind => 19);
my %in_descriptor = (start => 0, nslices => 4, generation => 8, keys => 12, nprobes => 16, state => 17);
my $descriptor_size = 20;
my $shadow = $content + $descriptor_size;
my $first_child = $shadow + $descriptor_size + 4;
my %in_meta = (lg_base => 11, block_ranges => 12, block_pages => 56, next_generation => 60, nfree => 64, free => 68, map => 580);
my $tops_of_region = $content + $descriptor_size + $descriptor_size + 4;

sub get { my ($file, $block, $offset, $format, $length) = @_; return unpack $format, substr($$file, $block * $page_size + $offset, $length); }
sub get32 { return get(@_, 'V', 4); }

sub put
{
	my ($file, $block, $offset, $bytes) = @_;
	die 'nothing is changed' if substr($$file, $block * $page_size + $offset, length $bytes) eq $bytes;
	substr($$file, $block * $page_size + $offset, length $bytes) = $bytes;
	return;
}
sub put32 { my ($file, $block, $offset, $value) = @_; return put($file, $block, $offset, pack('V', $value)); }
sub page { my ($file, $block) = @_; return substr($$file, $block * $page_size, $page_size); }

sub swap_pages
{
	my ($file, $a, $b) = @_;
	my ($page_a, $page_b) = (page($file, $a), page($file, $b));
	put($file, $a, 0, $page_b);
	put($file, $b, 0, $page_a);
	return;
}

# The blocks with pages of a kind, and of a level if given.
sub blocks
{
	my ($file, $kind, $level) = @_;
	return grep { get($file, $_, $special + $in_special{kind}, 'C', 1) == $kind
		  && (!defined $level || get($file, $_, $special + $in_special{level}, 'C', 1) == $level) }
	  0 .. length($$file) / $page_size - 1;
}
sub map_page { return (blocks($_[0], 2))[0]; }
sub top_page { return (blocks($_[0], 3))[0]; }
sub segment_pages { return blocks($_[0], 4, 1); }
sub summary_pages { return blocks($_[0], 4, 2); }

# Where a field of a descriptor stands in the top-level page.
sub entry { my ($child, $field) = @_; return $first_child + $child * $descriptor_size + ($field ? $in_descriptor{$field} : 0); }
sub change_entry
{
	my ($file, $field, $by) = @_;
	my $top = top_page($file);
	put32($file, $top, entry(1, $field), get32($file, $top, entry(1, $field)) + $by);
	return;
}

# The offset in a slice page of the first byte, from an offset on, that has a bit.
sub find_bits
{
	my ($file, $block, $offset) = @_;
	$offset++ while get($file, $block, $offset, 'C', 1) == 0;
	die 'no bit' if $offset >= $special;
	return $offset;
}

sub clear_bit
{
	my ($file, $block) = @_;
	my $offset = find_bits($file, $block, $content + 1600);
	my $byte = get($file, $block, $offset, 'C', 1);
	put($file, $block, $offset, chr($byte & ($byte - 1)));
	return;
}

# Calls back for every row of the slices of segment 0, and replaces the row with what it returns.
sub change_rows
{
	my ($file, $change) = @_;
	my $top = top_page($file);
	my ($start, $n) = (get32($file, $top, entry(0, 'start')), get32($file, $top, entry(0, 'nslices')));

	foreach my $block ($start .. $start + $n - 1)
	{
		foreach my $row (0 .. $rows_per_slice - 1)
		{
			my $at = $block * $page_size + $content + $row * 16;
			substr($$file, $at, 16) = $change->(substr($$file, $at, 16));
		}
	}
	return;
}

# Puts back a page of yesterday that has changed since, the first of those given.
sub put_back
{
	my ($file, $old, @candidates) = @_;
	my ($block) = grep { ($_ + 1) * $page_size <= length $$old && page($file, $_) ne page($old, $_) } @candidates;
	die 'no page has changed' if !defined $block;
	put($file, $block, 0, page($old, $block));
	return;
}

#
# The damages: name => sub, which gets references to the index file, to what it was yesterday, and to the file of an
# index of another table that has been made in the same way.
#

# what cannot be seen but by looking rows up
my %unseen = (
	segment_bit_cleared => sub { clear_bit($_[0], (segment_pages($_[0]))[5]) },
	summary_bit_cleared => sub { clear_bit($_[0], (summary_pages($_[0]))[5]) },
	range_cleared => sub { change_rows($_[0], sub { substr($_[0], 0, 1) = chr(ord($_[0]) & ~1); $_[0] }) },
	ranges_exchanged => sub { change_rows($_[0], sub { substr($_[0], 1, 1) . substr($_[0], 0, 1) . substr($_[0], 2) }) },
	rows_shifted => sub {
		my ($file) = @_;
		my $block = (segment_pages($file))[3];
		my $rows = substr(page($file, $block), $content, $special - $content);
		put($file, $block, $content, substr($rows, 16) . substr($rows, 0, 16));
	},
	half_page_written => sub {
		my $block = (segment_pages($_[0]))[2];
		put($_[0], $block, $page_size / 2, "\0" x ($page_size / 2 - 32));
	},
	segment_page_of_yesterday => sub { put_back(@_[ 0, 1 ], segment_pages($_[0])) },
	summary_page_of_yesterday => sub { put_back(@_[ 0, 1 ], summary_pages($_[0])) },
	top_page_of_yesterday => sub { put_back(@_[ 0, 1 ], top_page($_[0])) },
	index_of_yesterday => sub { ${ $_[0] } = ${ $_[1] } },
	index_of_another_table => sub { ${ $_[0] } = ${ $_[2] } },
	segment_page_of_another_index => sub { my $block = (segment_pages($_[0]))[4]; put($_[0], $block, 0, page($_[2], $block)) },
	summary_page_of_another_index => sub { my $block = (summary_pages($_[0]))[4]; put($_[0], $block, 0, page($_[2], $block)) },
	entry_emptied => sub { put($_[0], top_page($_[0]), entry(1), "\0" x $descriptor_size) },
	partition_forgotten => sub { put32($_[0], map_page($_[0]), $tops_of_region, 0) },
	map_forgotten => sub { put32($_[0], 0, $content + $in_meta{map}, 0) },
	pages_per_range_doubled => sub { put($_[0], 0, $content + $in_meta{lg_base}, chr(1)) },
	more_probes_everywhere => sub {
		my ($file) = @_;
		my $top = top_page($file);
		my $probes = get($file, $top, entry(1, 'nprobes'), 'C', 1) + 1;
		my ($start, $n) = map { get32($file, $top, entry(1, $_)) } 'start', 'nslices';
		put($file, $top, entry(1, 'nprobes'), chr($probes));
		put($file, $_, $special + $in_special{nprobes}, pack('v', $probes)) foreach $start .. $start + $n - 1;
	});

# what does not fit together
my %seen = (
	slices_swapped => sub { my $top = top_page($_[0]); my $start = get32($_[0], $top, entry(0, 'start')); swap_pages($_[0], $start, $start + 1) },
	segments_swapped => sub { my $top = top_page($_[0]); swap_pages($_[0], map { get32($_[0], $top, entry($_, 'start')) } 0, 1) },
	segment_for_summary => sub { swap_pages($_[0], (segment_pages($_[0]))[0], (summary_pages($_[0]))[0]) },
	entries_exchanged => sub {
		my ($file) = @_;
		my ($top, $size) = (top_page($file), $descriptor_size);
		my ($a, $b) = map { substr(page($file, $top), entry($_), $size) } 0, 1;
		put($file, $top, entry(0), $b . $a);
	},
	entry_copied => sub {
		my ($file) = @_;
		my $top = top_page($file);
		put($file, $top, entry(1), substr(page($file, $top), entry(0), $descriptor_size));
	},
	entry_start_plus_one => sub { change_entry($_[0], 'start', 1) },
	entry_start_minus_one => sub { change_entry($_[0], 'start', -1) },
	entry_one_slice_less => sub { change_entry($_[0], 'nslices', -1) },
	entry_one_slice_more => sub { change_entry($_[0], 'nslices', 1) },
	entry_one_probe_more => sub { change_entry($_[0], 'nprobes', 1) },
	entry_of_last_generation => sub { change_entry($_[0], 'generation', -1) },
	summary_emptied => sub { put($_[0], top_page($_[0]), $content, "\0" x $descriptor_size) },
	map_entry_off_by_one => sub { put32($_[0], map_page($_[0]), $tops_of_region, get32($_[0], map_page($_[0]), $tops_of_region) + 1) },
	partition_twice => sub { put32($_[0], map_page($_[0]), $tops_of_region + 4, top_page($_[0])) },
	map_in_wrong_place => sub {
		put32($_[0], 0, $content + $in_meta{map}, 0);
		put32($_[0], 0, $content + $in_meta{map} + 4, map_page($_[0]));
	},
	# the next rebuild, insert or VACUUM would overwrite what is in use
	free_but_in_use => sub {
		put32($_[0], 0, $content + $in_meta{nfree}, 1);
		put32($_[0], 0, $content + $in_meta{free}, (segment_pages($_[0]))[0]);
		put32($_[0], 0, $content + $in_meta{free} + 4, 1);
	},
	shadow_of_pages_in_use => sub {
		my ($file) = @_;
		my $top = top_page($file);
		put($file, $top, $shadow, substr(page($file, $top), entry(0), $descriptor_size) . pack('CCv', 1, 0, 0));
	},
	impossible_shadow => sub {
		my ($file) = @_;
		my $top = top_page($file);
		put($file, $top, $shadow, "\0" x $descriptor_size . pack('CCv', 1, 5, 0));
	},
	metapage_of_yesterday => sub { put($_[0], 0, 0, page($_[1], 0)) },
	generations_again => sub { put32($_[0], 0, $content + $in_meta{next_generation}, 5) },
	# replay of a page image would lose the bits
	bits_in_the_hole => sub { put($_[0], (segment_pages($_[0]))[6], 12, pack('v', 32)) },
	page_lost => sub { put($_[0], (segment_pages($_[0]))[7], 0, "\0" x $page_size) },
	top_page_lost => sub { put($_[0], top_page($_[0]), 0, "\0" x $page_size) },
	metapage_lost => sub { put($_[0], 0, 0, "\0" x $page_size) },
	page_of_another_kind => sub { put($_[0], (segment_pages($_[0]))[0], $special + $in_special{kind}, chr(2)) },
	file_cut_off => sub { substr(${ $_[0] }, -$page_size) = '' });

#
# Layout block: the scratch page is block 1, and filters follow.  Rows are in the first few pages, and in the last.
#

sub ranges_of_page { return get($_[0], 0, $content + $in_meta{block_ranges}, 'v', 2); }
sub offset_of_filter { my ($file, $block, $i) = @_; return $special - 2 * (ranges_of_page($file) + 1 - $i); }
sub filter_at { my ($file, $block, $i) = @_; return $content + get($file, $block, offset_of_filter($file, $block, $i), 'v', 2); }

my %block_unseen = (
	block_bit_cleared => sub { clear_bit($_[0], 3) },
	block_filter_cleared => sub {
		my $at = filter_at($_[0], 2, 3);
		put($_[0], 2, $at, "\0" x (filter_at($_[0], 2, 4) - $at - 5));
	},
	block_filter_shifted => sub {
		my $at = filter_at($_[0], 2, 3);
		put($_[0], 2, $at, substr(page($_[0], 2), $at + 1, 64) . "\0");
	},
	block_half_page_written => sub { put($_[0], 2, $page_size / 2, "\0" x 1024) },
	block_more_probes => sub {
		my ($file) = @_;
		my $probes = filter_at($file, 2, 4) - 3;
		put($file, 2, $probes, chr(get($file, 2, $probes, 'C', 1) + 4));
	},
	block_page_of_yesterday => sub { put_back(@_[ 0, 1 ], 2 .. 5) },
	block_last_page_of_yesterday => sub { put_back(@_[ 0, 1 ], reverse blocks($_[0], 5)) },
	block_page_of_another_index => sub { put($_[0], 3, 0, page($_[2], 3)) },
	block_index_of_yesterday => sub { ${ $_[0] } = ${ $_[1] } },
	block_filters_of_scratch => sub { put($_[0], 2, $content, substr(page($_[0], 1), $content, $special - $content)) },
	block_one_page_less => sub { put32($_[0], 0, $content + $in_meta{block_pages}, get32($_[0], 0, $content + $in_meta{block_pages}) - 1) });
my %block_seen = (
	block_pages_swapped => sub { swap_pages($_[0], 2, 3) },
	block_page_for_scratch => sub { swap_pages($_[0], 1, 2) },
	block_page_lost => sub { put($_[0], 2, 0, "\0" x $page_size) },
	block_last_page_lost => sub { my ($last) = reverse blocks($_[0], 5); put($_[0], $last, 0, "\0" x $page_size) },
	block_scratch_lost => sub { put($_[0], 1, 0, "\0" x $page_size) },
	block_offsets_exchanged => sub {
		my $at = offset_of_filter($_[0], 2, 3);
		my ($a, $b) = unpack 'vv', substr(page($_[0], 2), $at, 4);
		put($_[0], 2, $at, pack('vv', $b, $a));
	},
	block_offset_too_large => sub { put($_[0], 2, offset_of_filter($_[0], 2, ranges_of_page($_[0])), pack('v', $page_size)) },
	block_ranges_plus_one => sub { put($_[0], 0, $content + $in_meta{block_ranges}, pack('v', ranges_of_page($_[0]) + 1)) },
	block_pages_per_range_doubled => sub { put($_[0], 0, $content + $in_meta{lg_base}, chr(1)) },
	block_page_number_off_by_one => sub { put32($_[0], 4, $special + $in_special{node}, 3) },
	block_one_page_more => sub { put32($_[0], 0, $content + $in_meta{block_pages}, get32($_[0], 0, $content + $in_meta{block_pages}) + 1) },
	block_unknown_filter => sub { my $at = filter_at($_[0], 2, 4) - 5; put($_[0], 2, $at, chr(0)) },
	block_file_cut_off => sub { substr(${ $_[0] }, -$page_size) = '' });

%unseen = (%unseen, %block_unseen);
%seen = (%seen, %block_seen);
my %damages = (%unseen, %seen);

#
# Tables, each with a summary, whose indexes are alike
#

my $node = new_node('check', conf => "shared_buffers = 128MB\n", no_checksums => 1);
my @cases = sort keys %damages;
my @tables = ('good', 'other', 'block_good', 'block_other', @cases);
my $rows = 9000;

sub query_paths
{
	my ($suffix) = @_;
	return map { split /\|/ } split /\n/,
	  $node->safe_psql('postgres', join '', map { "SELECT '$_', pg_relation_filepath('$_$suffix');" } @tables);
}

# The tables are extended with empty pages, so that they need not be large to have a summary.
$node->safe_psql(
	'postgres', join '',
	map {
		my $salt = /other$/ ? "'o' || " : '';
		"CREATE TABLE $_ (id int, k uuid, pad text) WITH (fillfactor = 60);"
		  . "INSERT INTO $_ SELECT i, md5($salt i::text)::uuid, repeat('x', 150) FROM generate_series(1, $rows) i;"
	} @tables);
my %heap_file = query_paths('');
$node->stop;
foreach my $file (values %heap_file)
{
	truncate($node->data_dir . "/$file", 4200 * $page_size) or die "could not extend $file: $!";
}
$node->start;
$node->safe_psql('postgres',
	join '', map { "CREATE INDEX ${_}_ix ON $_ "
		  . 'USING bloomidx (k) WITH (pages_per_range = 1, false_positive_rate = 0.00001, layout = '
		  . (/^block_/ ? 'block' : 'partitioned') . ');' } @tables);
my %index_file = query_paths('_ix');
$node->stop;
my %yesterday = map { $_ => slurp_file($node->data_dir . "/$index_file{$_}") } keys %index_file;
$node->start;

# Some rows get another key on the same page; others come to the end of the table, where there was no segment.
$node->safe_psql('postgres', join '', map {
	"UPDATE $_ SET k = md5('new' || id)::uuid WHERE id % 40 = 0;"
	  . "INSERT INTO $_ SELECT i, md5(i::text)::uuid FROM generate_series(100001, 100200) i;" } @tables);
is($node->safe_psql('postgres', "SELECT summarized_partitions, segments >= 2 FROM bloomidx_info('good_ix')"),
	'1|t', 'there is a summary, and segments');
indexes_are_good($node, 'before the damage');
$node->stop;

foreach my $case (@cases)
{
	my $path = $node->data_dir . "/$index_file{$case}";
	my $file = slurp_file($path);
	my $whole = $file;

	$damages{$case}->(\$file, \$yesterday{$case}, \$yesterday{ $case =~ /^block_/ ? 'block_other' : 'other' });
	die "$case: nothing is damaged" if $file eq $whole;
	open my $fh, '>', $path or die "could not open $path: $!";
	binmode $fh;
	print $fh $file;
	close $fh or die "could not write $path: $!";
}
$node->start;

#
# What bloomidx_check() says
#

# Each in a subtransaction: what it says, or how many rows it has verified.
$node->safe_psql(
	'postgres', q{
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	result text;
BEGIN
	EXECUTE statement INTO result;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$});

sub try_all
{
	my ($statement, @names) = @_;
	return map { split /\|/, $_, 2 } split /\n/,
	  $node->safe_psql('postgres', join '', map { "SELECT '$_', try(format('$statement', '$_'));" } @names);
}

my $damage = qr/^XX002: index "\w+_ix" is damaged at block \d+: |^XX001: could not read block/;
note scalar(@cases) . ' kinds of damage';
my %all = try_all(q{SELECT bloomidx_check(''%1$s_ix'')}, 'good', 'block_good', @cases);
my %structure = try_all(q{SELECT bloomidx_check(''%1$s_ix'', false)}, 'good', 'block_good', @cases);
like($all{$_}, $damage, "$_: $all{$_}") foreach sort keys %unseen;
foreach my $case (sort keys %seen)
{
	like($structure{$case}, $damage, "$case: $structure{$case}");
	like($all{$case}, $damage, "$case: found as well with the rows");
}
foreach my $good ('good', 'block_good')
{
	is($all{$good}, $rows + 200, "an index without damage is good: $good");
	is($structure{$good}, 0, "and its structure is: $good");
}

# How much of this loses rows at once, without an error?  Some rows will do.
my $some = q{id %% 40 = 0 OR id < 700 OR id > 100000};
my %lost = try_all("SELECT oracle_lost_rows(''%1\$s'', ''k'', ''%1\$s_ix'', ''true'', ''($some)'')", @cases);
my @losing = grep { $lost{$_} =~ /^[1-9]\d*$/ } @cases;
note scalar(@losing) . ' of the kinds lose rows without an error of the query';
cmp_ok(scalar @losing, '>=', 15, 'the damage is real');

$node->safe_psql('postgres', join '', map { "REINDEX INDEX ${_}_ix;\n" } @cases);

#
# Pages that nobody names are no damage, but worth a notice; VACUUM finds them.
#

$node->stop;
my $path = $node->data_dir . '/' . $index_file{good};
truncate($path, (-s $path) + 3 * $page_size) or die "could not extend $path: $!";
$node->start;
my ($stdout, $stderr);
$node->psql('postgres', "SELECT bloomidx_check('good_ix')", stdout => \$stdout, stderr => \$stderr);
like($stderr, qr/NOTICE:  index "good_ix" has 3 pages that nothing was found to name/, 'a notice of pages that nothing names');
is($stdout, $rows + 200, 'which are no damage');
is($node->safe_psql('postgres', "SELECT free_pages FROM bloomidx_info('good_ix')"), '3', 'bloomidx_info counts them');
$node->safe_psql('postgres', 'VACUUM good');
$node->psql('postgres', "SELECT bloomidx_check('good_ix')", stdout => \$stdout, stderr => \$stderr);
is($stderr, '', 'no notice after VACUUM');

#
# Temporary tables of other sessions
#

my $other = $node->background_psql('postgres', on_error_stop => 1);
$other->query_safe('CREATE TEMP TABLE temporary AS SELECT i AS id FROM generate_series(1, 1000) i;'
	  . 'CREATE INDEX temporary_i ON temporary USING bloomidx (id); ANALYZE temporary');
is($other->query_safe("SELECT bloomidx_check('temporary_i')"), '1000', 'a temporary table of this session');
my ($table, $index) = map { $node->safe_psql('postgres', "SELECT oid FROM pg_class WHERE relname = '$_'") } 'temporary', 'temporary_i';
foreach my $call ("info($index)", "segments($index)", "blocks($index)", "probe($index, 5)", "measure($index)", "check($index)",
	"summarize($index)", "estimate($table, '{id}')")
{
	$node->psql('postgres', "SELECT bloomidx_$call", stderr => \$stderr);
	like($stderr, qr/ERROR:  cannot access temporary tables and indexes of other sessions/, "other session's: bloomidx_$call");
}
$other->quit;

log_is_clean($node, 'check');
$node->stop;

#
# A standby
#

my $primary = new_node('primary', init => [ allows_streaming => 1 ]);
$primary->safe_psql(
	'postgres', q{
CREATE TABLE logged AS SELECT i AS id FROM generate_series(1, 10000) i;
CREATE INDEX logged_i ON logged USING bloomidx (id);
CREATE INDEX logged_b ON logged USING bloomidx (id) WITH (layout = block);
CREATE INDEX logged_x ON logged USING bloomidx ((id + 1)) WHERE id > 5000;
CREATE UNLOGGED TABLE unlogged AS SELECT i AS id FROM generate_series(1, 10000) i;
CREATE INDEX unlogged_i ON unlogged USING bloomidx (id);
});
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', 'INSERT INTO logged SELECT i FROM generate_series(10001, 12000) i');
$primary->wait_for_catchup($standby);
is( $standby->safe_psql('postgres', "SELECT bloomidx_check('logged_i'), bloomidx_check('logged_x'), bloomidx_check('logged_i', false), bloomidx_check('logged_b')"),
	'12000|7000|0|12000', 'bloomidx_check on a standby');
is($standby->safe_psql('postgres', "SELECT layout, segments FROM bloomidx_info('logged_i')"), 'partitioned|1', 'and bloomidx_info');
is($standby->safe_psql('postgres', "SELECT count(*) FROM bloomidx_probe('logged_i', 11000)"), '1', 'and bloomidx_probe');
is($standby->safe_psql('postgres', "SELECT probes FROM bloomidx_measure('logged_i', 10)"), '10', 'and bloomidx_measure');
$standby->psql('postgres', "SELECT bloomidx_check('unlogged_i')", stderr => \$stderr);
like($stderr, qr/ERROR:  cannot access temporary or unlogged relations during recovery/, 'but not of an unlogged table');
log_is_clean($_, 'standby') foreach $primary, $standby;

done_testing();
