# bloomidx_check() finds damage that loses rows, or could: each kind is done to an index of its own while the server is
# down, then bloomidx_check() has to raise index_corrupted and to name a block.  Of damage that a look at the index alone
# must find, it is asked without looking at the rows, too.
#
# Before the damage rows are changed, so that there are pages of yesterday to put back.

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

my $node = new_node('check', conf => "shared_buffers = 128MB\n", no_checksums => 1);
my $format = BloomidxFormat->new($node);
plan skip_all => 'test/modules/pagefile is not installed' if !$format;
my $page_size = $format->page_size;
my $content = $format->constant('BX_CONTENT_OFFSET');
my $special = $format->constant('BX_OPAQUE_OFFSET');
my $row_size = $format->constant('BX_ROW_BYTES');
my $descriptor_size = $format->size('top.summary');

#
# Reading and damaging the file of an index, of which functions get a reference to the bytes
#

sub page { my ($file, $block) = @_; return substr($$file, $block * $page_size, $page_size); }
sub byte { my ($file, $block, $offset) = @_; return ord(substr($$file, $block * $page_size + $offset, 1)); }

sub put
{
	my ($file, $block, $offset, $bytes) = @_;
	die 'nothing is changed' if substr($$file, $block * $page_size + $offset, length $bytes) eq $bytes;
	substr($$file, $block * $page_size + $offset, length $bytes) = $bytes;
	return;
}

sub lose { my ($file, $block) = @_; return put($file, $block, 0, "\0" x $page_size); }

# The integer in a field of a page, another one, and one that is larger by some.  The struct that the field is in may be
# elsewhere than at the start of the page.
sub get_field { my ($file, $block, $field, $struct) = @_; return $format->value(page($file, $block), $field, $struct); }

sub put_field
{
	my ($file, $block, $field, $value, $struct) = @_;
	return put($file, $block, ($struct || 0) + $format->at($field), $format->bytes($field, $value));
}

sub add_to_field
{
	my ($file, $block, $field, $by, $struct) = @_;
	return put_field($file, $block, $field, get_field($file, $block, $field, $struct) + $by, $struct);
}

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
	return grep { get_field($file, $_, 'opaque.kind') == $format->constant("BX_PAGE_$kind")
		  && (!$level || get_field($file, $_, 'opaque.slice.level') == $format->constant("BX_LEVEL_$level")) }
	  0 .. length($$file) / $page_size - 1;
}
sub map_page { return (blocks($_[0], 'MAP'))[0]; }
sub region_page { return (blocks($_[0], 'REGION'))[0]; }
sub top_page { return (blocks($_[0], 'TOP'))[0]; }
sub segment_pages { return blocks($_[0], 'SLICE', 'SEGMENT'); }
sub summary_pages { return blocks($_[0], 'SLICE', 'PARTITION'); }

# The descriptor of a child in the top-level page: its offset, its bytes, a field of it, and another descriptor.
sub entry { my ($child) = @_; return $format->at("top.segment[$child]"); }
sub entry_bytes { my ($file, $child) = @_; return substr(page($file, top_page($file)), entry($child), $descriptor_size); }
sub entry_field { my ($file, $child, $field) = @_; return get_field($file, top_page($file), "desc.$field", entry($child)); }
sub put_entry { my ($file, $child, $bytes) = @_; return put($file, top_page($file), entry($child), $bytes); }
sub change_entry { my ($file, $field, $by) = @_; return add_to_field($file, top_page($file), "desc.$field", $by, entry(1)); }

# The blocks with the slices of a segment.
sub slices_of
{
	my ($file, $child) = @_;
	my ($start, $n) = map { entry_field($file, $child, $_) } 'start', 'nslices';
	return $start .. $start + $n - 1;
}

# The shadow of a top-level page, for a segment.
sub put_shadow
{
	my ($file, $descriptor, $child) = @_;
	my ($top, $shadow) = (top_page($file), $format->at('top.shadow'));
	put($file, $top, $shadow + $format->at('shadow.desc'), $descriptor) if $descriptor;
	put_field($file, $top, 'shadow.slot', $format->constant('BX_SLOT_SEGMENT(0)') + $child, $shadow);
	return;
}

# The offset in a slice page of the first byte, from an offset on, that has a bit.
sub find_bits
{
	my ($file, $block, $offset) = @_;
	$offset++ while byte($file, $block, $offset) == 0;
	die 'no bit' if $offset >= $special;
	return $offset;
}

sub clear_bit
{
	my ($file, $block) = @_;
	my $offset = find_bits($file, $block, $content + 100 * $row_size);
	my $byte = byte($file, $block, $offset);
	put($file, $block, $offset, chr($byte & ($byte - 1)));
	return;
}

# Calls back for every row of the slices of segment 0, and replaces the row with what it returns.
sub change_rows
{
	my ($file, $change) = @_;
	foreach my $block (slices_of($file, 0))
	{
		foreach my $row (0 .. $format->constant('BX_SLICE_ROWS') - 1)
		{
			my $at = $block * $page_size + $content + $row * $row_size;
			substr($$file, $at, $row_size) = $change->(substr($$file, $at, $row_size));
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
		put($file, $block, $content, substr($rows, $row_size) . substr($rows, 0, $row_size));
	},
	half_page_written => sub {
		my $block = (segment_pages($_[0]))[2];
		put($_[0], $block, $page_size / 2, "\0" x ($special - $page_size / 2));
	},
	segment_page_of_yesterday => sub { put_back(@_[ 0, 1 ], segment_pages($_[0])) },
	summary_page_of_yesterday => sub { put_back(@_[ 0, 1 ], summary_pages($_[0])) },
	top_page_of_yesterday => sub { put_back(@_[ 0, 1 ], top_page($_[0])) },
	index_of_yesterday => sub { ${ $_[0] } = ${ $_[1] } },
	index_of_another_table => sub { ${ $_[0] } = ${ $_[2] } },
	segment_page_of_another_index => sub { my $block = (segment_pages($_[0]))[4]; put($_[0], $block, 0, page($_[2], $block)) },
	summary_page_of_another_index => sub { my $block = (summary_pages($_[0]))[4]; put($_[0], $block, 0, page($_[2], $block)) },
	entry_emptied => sub { put_entry($_[0], 1, "\0" x $descriptor_size) },
	partition_forgotten => sub { put_field($_[0], region_page($_[0]), 'region.top[0]', 0) },
	region_forgotten => sub { put_field($_[0], map_page($_[0]), 'map.region[0]', 0) },
	map_forgotten => sub { put_field($_[0], 0, 'meta.partitioned.map[0]', 0) },
	pages_per_range_doubled => sub { put_field($_[0], 0, 'meta.lg_base', 1) },
	more_probes_everywhere => sub {
		my ($file) = @_;
		change_entry($file, 'nprobes', 1);
		add_to_field($file, $_, 'opaque.slice.nprobes', 1) foreach slices_of($file, 1);
	});

# what does not fit together
my %seen = (
	slices_swapped => sub { swap_pages($_[0], (slices_of($_[0], 0))[ 0, 1 ]) },
	segments_swapped => sub { my ($file) = @_; swap_pages($file, map { entry_field($file, $_, 'start') } 0, 1) },
	segment_for_summary => sub { swap_pages($_[0], (segment_pages($_[0]))[0], (summary_pages($_[0]))[0]) },
	entries_exchanged => sub {
		my ($file) = @_;
		my ($a, $b) = map { entry_bytes($file, $_) } 0, 1;
		put_entry($file, 0, $b);
		put_entry($file, 1, $a);
	},
	entry_copied => sub { put_entry($_[0], 1, entry_bytes($_[0], 0)) },
	entry_start_plus_one => sub { change_entry($_[0], 'start', 1) },
	entry_start_minus_one => sub { change_entry($_[0], 'start', -1) },
	entry_one_slice_less => sub { change_entry($_[0], 'nslices', -1) },
	entry_one_slice_more => sub { change_entry($_[0], 'nslices', 1) },
	entry_one_probe_more => sub { change_entry($_[0], 'nprobes', 1) },
	entry_of_last_generation => sub { change_entry($_[0], 'generation', -1) },
	summary_emptied => sub { put($_[0], top_page($_[0]), $format->at('top.summary'), "\0" x $descriptor_size) },
	map_entry_off_by_one => sub { add_to_field($_[0], map_page($_[0]), 'map.region[0]', 1) },
	region_twice => sub { put_field($_[0], map_page($_[0]), 'map.region[1]', region_page($_[0])) },
	region_entry_off_by_one => sub { add_to_field($_[0], region_page($_[0]), 'region.top[0]', 1) },
	partition_twice => sub { put_field($_[0], region_page($_[0]), 'region.top[1]', top_page($_[0])) },
	# an index of one partition has no groups
	group_of_nothing => sub { put_field($_[0], region_page($_[0]), 'region.ngroups', 1) },
	too_many_groups => sub { put_field($_[0], region_page($_[0]), 'region.ngroups', 0xFFFFFFFF) },
	filter_of_nothing => sub { put($_[0], region_page($_[0]), $format->at('region.unfiltered'), "\xFE") },
	impossible_group => sub { put_field($_[0], top_page($_[0]), 'group.width', 1, $format->at('top.group')) },
	impossible_group_shadow => sub { put_field($_[0], top_page($_[0]), 'group.nblocks', 1, $format->at('top.group_shadow')) },
	map_in_wrong_place => sub {
		put_field($_[0], 0, 'meta.partitioned.map[0]', 0);
		put_field($_[0], 0, 'meta.partitioned.map[1]', map_page($_[0]));
	},
	# the next rebuild, insert or VACUUM would overwrite what is in use
	free_but_in_use => sub {
		put_field($_[0], 0, 'meta.partitioned.nfree', 1);
		put_field($_[0], 0, 'meta.partitioned.free[0].start', (segment_pages($_[0]))[0]);
		put_field($_[0], 0, 'meta.partitioned.free[0].npages', 1);
	},
	shadow_of_pages_in_use => sub { put_shadow($_[0], entry_bytes($_[0], 0), 0) },
	impossible_shadow => sub { put_shadow($_[0], undef, 5) },
	metapage_of_yesterday => sub { put($_[0], 0, 0, page($_[1], 0)) },
	generations_again => sub { put_field($_[0], 0, 'meta.partitioned.next_generation', 5) },
	# replay of a page image would lose the bits
	bits_in_the_hole => sub { put_field($_[0], (segment_pages($_[0]))[6], 'header.pd_lower', $format->constant('BX_CONTENT_OFFSET')) },
	page_lost => sub { lose($_[0], (segment_pages($_[0]))[7]) },
	region_page_lost => sub { lose($_[0], region_page($_[0])) },
	top_page_lost => sub { lose($_[0], top_page($_[0])) },
	metapage_lost => sub { lose($_[0], 0) },
	page_of_another_kind => sub { put_field($_[0], (segment_pages($_[0]))[0], 'opaque.kind', $format->constant('BX_PAGE_MAP')) },
	file_cut_off => sub { substr(${ $_[0] }, -$page_size) = '' });

#
# Layout block.  Rows are in the first few pages of filters, and in the last.
#

my $scratch = $format->constant('BX_SCRATCH_BLKNO');
my $first = $format->constant('BX_FIRST_BLOCK_BLKNO');

sub ranges_of_page { return get_field($_[0], 0, 'meta.block.nranges'); }
sub offset_of_filter { my ($file, $i) = @_; return $format->filter_offset_at(ranges_of_page($file), $i); }

# Where filter i of a page begins.
sub filter_at
{
	my ($file, $block, $i) = @_;
	return $content + unpack 'v', substr(page($file, $block), offset_of_filter($file, $i), $format->filter_offset_size);
}

# Where the trailer of a filter begins.
sub trailer_at { my ($file, $block, $i) = @_; return filter_at($file, $block, $i + 1) - $format->constant('BX_PACKED_TRAILER'); }

my %block_unseen = (
	block_bit_cleared => sub { clear_bit($_[0], $first + 1) },
	block_filter_cleared => sub {
		my ($at, $trailer) = (filter_at($_[0], $first, 3), trailer_at($_[0], $first, 3));
		put($_[0], $first, $at, "\0" x ($trailer - $at));
	},
	block_filter_shifted => sub {
		my $at = filter_at($_[0], $first, 3);
		put($_[0], $first, $at, substr(page($_[0], $first), $at + 1, 64) . "\0");
	},
	block_half_page_written => sub { put($_[0], $first, $page_size / 2, "\0" x 1024) },
	block_more_probes => sub {
		my ($file) = @_;
		my $trailer = trailer_at($file, $first, 3);
		# the first byte is a marker; of the others only the number of probes is not zero
		my @set = grep { byte($file, $first, $_) != 0 } $trailer + 1 .. filter_at($file, $first, 4) - 1;
		die 'a trailer of another format' if @set != 1;
		put($file, $first, $set[0], chr(byte($file, $first, $set[0]) + 4));
	},
	block_page_of_yesterday => sub { put_back(@_[ 0, 1 ], $first .. $first + 3) },
	block_last_page_of_yesterday => sub { put_back(@_[ 0, 1 ], reverse blocks($_[0], 'BLOCK')) },
	block_page_of_another_index => sub { put($_[0], $first + 1, 0, page($_[2], $first + 1)) },
	block_index_of_yesterday => sub { ${ $_[0] } = ${ $_[1] } },
	block_filters_of_scratch => sub { put($_[0], $first, $content, substr(page($_[0], $scratch), $content, $special - $content)) },
	block_one_page_less => sub { add_to_field($_[0], 0, 'meta.block.pages', -1) });
my %block_seen = (
	block_pages_swapped => sub { swap_pages($_[0], $first, $first + 1) },
	block_page_for_scratch => sub { swap_pages($_[0], $scratch, $first) },
	block_page_lost => sub { lose($_[0], $first) },
	block_last_page_lost => sub { lose($_[0], (blocks($_[0], 'BLOCK'))[-1]) },
	block_scratch_lost => sub { lose($_[0], $scratch) },
	block_offsets_exchanged => sub {
		my ($at, $size) = (offset_of_filter($_[0], 3), $format->filter_offset_size);
		my $pair = substr(page($_[0], $first), $at, 2 * $size);
		put($_[0], $first, $at, substr($pair, $size) . substr($pair, 0, $size));
	},
	block_offset_too_large => sub { put($_[0], $first, offset_of_filter($_[0], ranges_of_page($_[0])), pack('v', $page_size)) },
	block_ranges_plus_one => sub { add_to_field($_[0], 0, 'meta.block.nranges', 1) },
	block_pages_per_range_doubled => sub { put_field($_[0], 0, 'meta.lg_base', 1) },
	block_page_number_off_by_one => sub { add_to_field($_[0], $first + 2, 'opaque.number', 1) },
	block_one_page_more => sub { add_to_field($_[0], 0, 'meta.block.pages', 1) },
	block_unknown_filter => sub { put($_[0], $first, trailer_at($_[0], $first, 3), chr(0)) },
	block_file_cut_off => sub { substr(${ $_[0] }, -$page_size) = '' });

%unseen = (%unseen, %block_unseen);
%seen = (%seen, %block_seen);
my %damages = (%unseen, %seen);

#
# Tables, each with a summary, whose indexes are alike
#

my @cases = sort keys %damages;
my @tables = ('good', 'other', 'block_good', 'block_other', @cases);
my $rows = 9000;

# The tables are extended with empty pages, so that they need not be large to have a summary.
$node->safe_psql(
	'postgres', join '',
	map {
		my $salt = /other$/ ? "'o' || " : '';
		"CREATE TABLE $_ (id int, k uuid, pad text) WITH (fillfactor = 60);"
		  . "INSERT INTO $_ SELECT i, md5($salt i::text)::uuid, repeat('x', 150) FROM generate_series(1, $rows) i;"
	} @tables);
extend_file($node, 'postgres', 4200, @tables);
$node->safe_psql('postgres',
	join '', map { "CREATE INDEX ${_}_ix ON $_ "
		  . 'USING bloomidx (k) WITH (pages_per_range = 1, false_positive_rate = 0.00001, layout = '
		  . (/^block_/ ? 'block' : 'partitioned') . ');' } @tables);
my %index_file = map { split /\|/ } split /\n/,
  $node->safe_psql('postgres', join '', map { "SELECT '$_', pg_relation_filepath('${_}_ix');" } @tables);
$node->stop;
my %yesterday = map { $_ => slurp_file($node->data_dir . "/$index_file{$_}") } keys %index_file;
$node->start;

# Some rows get another key on the same page; others come to the end of the table, where there was no segment.
$node->safe_psql('postgres', join '', map {
	"UPDATE $_ SET k = md5('new' || id)::uuid WHERE id % 40 = 0;"
	  . "INSERT INTO $_ SELECT i, md5(i::text)::uuid FROM generate_series(100001, 100200) i;" } @tables);
is($node->safe_psql('postgres', "SELECT summarized_partitions, segments >= 2 FROM bloomidx_info('good_ix')"),
	'1|t', 'the indexes have a summary and several segments');
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
like($all{$_}, $damage, "$_ is found: $all{$_}") foreach sort keys %unseen;
foreach my $case (sort keys %seen)
{
	like($structure{$case}, $damage, "$case is found without the rows: $structure{$case}");
	like($all{$case}, $damage, "$case is found as well with the rows");
}
foreach my $good ('good', 'block_good')
{
	is($all{$good}, $rows + 200, "bloomidx_check accepts an index without damage: $good");
	is($structure{$good}, 0, "bloomidx_check without the rows accepts an index without damage: $good");
}

# How much of this loses rows at once, without an error?  Some rows will do.
my $some = q{id %% 40 = 0 OR id < 700 OR id > 100000};
my %lost = try_all("SELECT oracle_lost_rows(''%1\$s'', ''k'', ''%1\$s_ix'', ''true'', ''($some)'')", @cases);
my @losing = grep { $lost{$_} =~ /^[1-9]\d*$/ } @cases;
note scalar(@losing) . ' of the kinds lose rows without an error of the query';
cmp_ok(scalar @losing, '>=', 15, 'many kinds of damage lose rows without an error of the query');

$node->safe_psql('postgres', join '', map { "REINDEX INDEX ${_}_ix;\n" } @cases);

#
# Pages that nobody names are no damage, but worth a notice; VACUUM finds them.
#

extend_file($node, 'postgres', $node->safe_psql('postgres', "SELECT pg_relation_size('good_ix')") / $page_size + 3, 'good_ix');
my ($stdout, $stderr);
$node->psql('postgres', "SELECT bloomidx_check('good_ix')", stdout => \$stdout, stderr => \$stderr);
like($stderr,
	qr/NOTICE:  index "good_ix" has 3 pages that no directory entry references/,
	'bloomidx_check gives a notice of pages that nothing names');
is($stdout, $rows + 200, 'pages that nothing names are no damage');
is($node->safe_psql('postgres', "SELECT free_pages FROM bloomidx_info('good_ix')"),
	'3', 'bloomidx_info counts pages that nothing names as free');
$node->safe_psql('postgres', 'VACUUM good');
$node->psql('postgres', "SELECT bloomidx_check('good_ix')", stdout => \$stdout, stderr => \$stderr);
is($stderr, '', 'bloomidx_check gives no notice after VACUUM has found the pages');

#
# Temporary tables of other sessions
#

my $other = $node->background_psql('postgres', on_error_stop => 1);
$other->query_safe('CREATE TEMP TABLE temporary AS SELECT i AS id FROM generate_series(1, 1000) i;'
	  . 'CREATE INDEX temporary_i ON temporary USING bloomidx (id); ANALYZE temporary');
is($other->query_safe("SELECT bloomidx_check('temporary_i')"),
	'1000', 'bloomidx_check accepts a temporary table of its session');
my ($table, $index) = map { $node->safe_psql('postgres', "SELECT oid FROM pg_class WHERE relname = '$_'") } 'temporary', 'temporary_i';
foreach my $call ("info($index)", "segments($index)", "blocks($index)", "probe($index, 5)", "measure($index)", "check($index)",
	"summarize($index)", "estimate($table, '{id}')")
{
	$node->psql('postgres', "SELECT bloomidx_$call", stderr => \$stderr);
	like($stderr,
		qr/ERROR:  cannot access temporary tables and indexes of other sessions/,
		"bloomidx_$call refuses a temporary table of another session");
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
my $standby = new_standby($primary, 'standby');
$primary->safe_psql('postgres', 'INSERT INTO logged SELECT i FROM generate_series(10001, 12000) i');
$primary->wait_for_catchup($standby);
is( $standby->safe_psql('postgres', "SELECT bloomidx_check('logged_i'), bloomidx_check('logged_x'), bloomidx_check('logged_i', false), bloomidx_check('logged_b')"),
	'12000|7000|0|12000', 'bloomidx_check works on a standby');
is($standby->safe_psql('postgres', "SELECT layout, segments FROM bloomidx_info('logged_i')"),
	'partitioned|1', 'bloomidx_info works on a standby');
is($standby->safe_psql('postgres', "SELECT count(*) FROM bloomidx_probe('logged_i', 11000)"),
	'1', 'bloomidx_probe works on a standby');
is($standby->safe_psql('postgres', "SELECT probes FROM bloomidx_measure('logged_i', 10)"),
	'10', 'bloomidx_measure works on a standby');
$standby->psql('postgres', "SELECT bloomidx_check('unlogged_i')", stderr => \$stderr);
like($stderr,
	qr/ERROR:  cannot access temporary or unlogged relations during recovery/,
	'bloomidx_check on a standby refuses an unlogged table');
log_is_clean($_, 'standby') foreach $primary, $standby;

done_testing();
