# Damage: pages of the index file are overwritten under the server.  Queries, inserts, VACUUM and the functions that inspect
# and check an index then either do the right thing or raise index_corrupted (XX002) with the name of the index; nothing answers wrongly, nothing crashes or hangs,
# and REINDEX repairs.
#
#   BLOOMIDX_SEED  seed of the random bytes (printed at the start)
#   BLOOMIDX_FUZZ  how many random damages come on top of those with a name (500)
#
# One session does it all: for each damage it writes the whole file anew (test/modules/pagefile), one page of it damaged,
# and probes it.  Bits of a slice page are left alone, except where wrong answers are allowed: nothing can tell a lost bit
# from one that was never set.  (Data checksums can; here they are off.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxFormat;
use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = defined $ENV{BLOOMIDX_SEED} ? int $ENV{BLOOMIDX_SEED} : int(rand(1_000_000_000));
my $fuzz = defined $ENV{BLOOMIDX_FUZZ} ? $ENV{BLOOMIDX_FUZZ} : 500;
note "BLOOMIDX_SEED=$seed";
srand($seed);

plan skip_all => 'for little-endian machines' if pack('L', 1) ne pack('V', 1);

my $noise = join '', map { chr(int(rand(256))) } 1 .. 100_000;
sub random_bytes { return substr($noise, int(rand(100_000 - $_[0])), $_[0]); }

# A page with something else at an offset.
sub replaced
{
	my ($page, $offset, $bytes) = @_;
	substr($page, $offset, length $bytes) = $bytes;
	return $page;
}

#
# The table and two images of its index: as CREATE INDEX makes it, and with filters that hold twice the keys that they
# were made for, which VACUUM wants to rebuild.
#

my $node = new_node('damage', conf => "shared_buffers = 64MB\neffective_io_concurrency = 8\nfsync = off\n", no_checksums => 1);
my $format = BloomidxFormat->new($node);
plan skip_all => 'test/modules/pagefile is not installed' if !$format;
my $page_size = $format->page_size;
my $header_size = $format->constant('SizeOfPageHeaderData');
my $content = $format->constant('BX_CONTENT_OFFSET');
my $special = $format->constant('BX_OPAQUE_OFFSET');
my $special_size = $page_size - $special;
my $descriptor_size = $format->size('top.summary');

# Pages to damage, by kind, and of slices by level, in the special area.
my %target_names = map {
	my ($name, $kind, $level) = @$_;
	join(' ', $format->constant("BX_PAGE_$kind"), $level ? $format->constant("BX_LEVEL_$level") : 0) => $name
  } [ 'meta', 'META' ], [ 'map', 'MAP' ], [ 'region', 'REGION' ], [ 'top', 'TOP' ], [ 'segment', 'SLICE', 'SEGMENT' ],
  [ 'summary', 'SLICE', 'PARTITION' ], [ 'filters', 'BLOCK' ], [ 'scratch', 'SCRATCH' ];

is($node->safe_psql('postgres', 'SHOW data_checksums'),
	'off', 'there are no data checksums, which would find the damage first');

# Rows in three segments, in the first 384 pages.  The file is extended with empty pages, so that the index gets a summary
# without a large table.
my $rows = 8448;
my $half = $rows / 2;
my $row = "SELECT id, md5(id::text)::uuid, id % 7 + 7 * (id / 1000), repeat('x', 290)";
$node->safe_psql(
	'postgres', qq{
CREATE TABLE t (id int, k uuid, n int, pad text) WITH (fillfactor = 50, vacuum_truncate = off);
INSERT INTO t $row FROM generate_series(1, $half) id;
CREATE TABLE btree AS SELECT g FROM generate_series(1, 1000) g;
CREATE INDEX btree_i ON btree (g)});
extend_file($node, 'postgres', 4200, 't');

# The pages of an index, and its file.
sub image
{
	my ($index) = @_;
	my $file = $node->safe_psql('postgres', "CHECKPOINT; SELECT pg_relation_filepath('$index')");
	return slurp_file($node->data_dir . "/$file");
}

$node->safe_psql(
	'postgres', qq{
CREATE INDEX t_ix ON t @{[ using_index('k, n', pages_per_range => 1, false_positive_rate => 0.00001) ]};
VACUUM t;
ALTER TABLE t SET (fillfactor = 100);
INSERT INTO t $row FROM generate_series($half + 1, $rows) id});
my %images = (overfull => image('t_ix'));
$node->safe_psql('postgres', 'REINDEX INDEX t_ix');
$images{fresh} = image('t_ix');
all_rows_found($node, 't', 'k', 't_ix', $rows, 'before the damage');

# Blocks of an image, as target => [blocks].
sub find_blocks
{
	my ($image) = @_;
	my %found;

	for (my $block = 0; $block * $page_size < length $image; $block++)
	{
		my ($level, $kind) = map { $format->value(page_of($image, $block), "opaque.$_") } 'slice.level', 'kind';

		$level = 0 if $kind != $format->constant('BX_PAGE_SLICE');
		push @{ $found{ $target_names{"$kind $level"} || "kind_${kind}_$level" } }, $block if $kind;
	}
	return %found;
}

sub page_of { my ($image, $block) = @_; return substr($image, $block * $page_size, $page_size); }

my %blocks = map { $_ => { find_blocks($images{$_}) } } keys %images;
my @names = sort keys %{ $blocks{fresh} };
my $partitioned = layout() eq 'partitioned';
my $btree = image('btree_i');
my @foreign = (page_of($btree, 0), page_of($btree, 1));
note 'pages of each kind: ' . join ', ', map { "$_ " . scalar @{ $blocks{fresh}{$_} } } @names;
is("@names", $partitioned ? 'map meta region segment summary top' : 'filters meta scratch', 'the index has a page of each kind');

# A page with another integer in a field, of a struct that is elsewhere than at the start of the page if it is given; and
# a page with the lowest bit of a field flipped.
sub with_field
{
	my ($page, $field, $value, $struct) = @_;
	return replaced($page, ($struct || 0) + $format->at($field), $format->bytes($field, $value));
}
sub with_header
{
	my ($page, %fields) = @_;
	$page = with_field($page, "header.$_", $fields{$_}) foreach keys %fields;
	return $page;
}
sub flipped { my ($page, $field) = @_; return with_field($page, $field, 1 ^ $format->value($page, $field)); }

# A page of the fresh image.
sub good_page { my ($target, $n) = @_; return page_of($images{fresh}, $blocks{fresh}{$target}[ $n || 0 ]); }

#
# Damages: {name, target, image, make, allowed}.  make gets a page and returns the damaged one; without it the file ends
# before the page.  Allowed is an SQLSTATE besides XX002: the server itself refuses some page headers (XX001).
#

my @damages;

sub add_damage
{
	my ($target, $name, $make, %more) = @_;
	push @damages, { name => "${target}_$name", target => $target, image => 'fresh', make => $make, allowed => '', %more };
	return;
}

foreach my $target (@names)
{
	add_damage($target, 'zero', sub { "\0" x $page_size });
	add_damage($target, 'random', sub { random_bytes($page_size) }, allowed => 'XX001');
	add_damage($target, 'random_body', sub { replaced($_[0], $header_size, random_bytes($page_size - $header_size)) });
	add_damage($target, 'random_header', sub { replaced($_[0], 0, random_bytes($content)) }, allowed => 'XX001');
	add_damage($target, 'random_special', sub { replaced($_[0], $special, random_bytes($special_size)) });
	add_damage($target, 'zero_special', sub { replaced($_[0], $special, "\0" x $special_size) });
	# Page headers that the server takes for possible: no special area, a full page, an empty one.
	add_damage($target, 'no_special', sub { with_header($_[0], pd_upper => $page_size, pd_special => $page_size) });
	add_damage($target, 'small_special', sub { with_header($_[0], pd_special => $page_size - 8) });
	add_damage($target, 'large_special',
		sub { with_header($_[0], map { $_ => $header_size } 'pd_lower', 'pd_upper', 'pd_special') });
	add_damage($target, 'btree_meta', sub { $foreign[0] });
	add_damage($target, 'btree_leaf', sub { $foreign[1] });
	add_damage($target, "is_$_", do { my $other = $_; sub { good_page($other) } }) foreach grep { $_ ne $target } @names;
	# Only layout block knows how many pages there must be.
	add_damage($target, 'missing', undef, allowed => $target =~ /^(filters|scratch)$/ ? '' : 'XX001');
	add_damage($target, 'overfull_zero', sub { "\0" x $page_size }, image => 'overfull');
}
if ($partitioned)
{
	add_damage('segment', 'is_other', sub { good_page('segment', 1) });
	foreach my $target ('segment', 'summary')
	{
		foreach my $field ('kind', 'page_id', 'number', map { "slice.$_" } 'generation', 'level', 'nprobes', 'nslices', 'slice')
		{
			add_damage($target, "other_$field", sub { flipped($_[0], "opaque.$field") });
		}
	}
	add_damage($_, 'other_node', sub { with_field($_[0], 'opaque.number', 7) }) foreach 'map', 'region', 'top';

	add_damage('region', 'too_many_groups', sub { with_field($_[0], 'region.ngroups', 1000) });
	add_damage('region', 'no_group', sub { with_field($_[0], 'region.ngroups', 1) });
	foreach my $entry ('group', 'group_shadow')
	{
		add_damage('top', "${entry}_far", sub {
			my ($page, $struct) = ($_[0], $format->at("top.$entry"));
			$page = with_field($page, "group.$_", 1, $struct) foreach 'nblocks', 'generation', 'nprobes', 'width';
			return with_field($page, 'group.start', 0xFFFFFFF0, $struct);
		});
		add_damage('top', "${entry}_of_nothing", sub { with_field($_[0], 'group.width', 1, $format->at("top.$entry")) });
	}
	add_damage($_->[0], "$_->[1]_far", do { my $field = "$_->[0].$_->[2]"; sub { with_field($_[0], $field, 0xFFFFFFF0) } })
	  foreach [ 'map', 'region', 'region[0]' ], [ 'region', 'top', 'top[0]' ];

	# A directory that leads nowhere.
	foreach my $which ([ 'segment', 'segment[0]' ], [ 'second_segment', 'segment[1]' ], [ 'summary', 'summary' ])
	{
		my ($name, $descriptor) = ($which->[0], $format->at("top.$which->[1]"));
		my $add = sub {
			my ($suffix, $field, $value) = @_;
			add_damage('top', "${name}_$suffix", sub { with_field($_[0], "desc.$field", $value, $descriptor) });
		};
		$add->('far', 'start', 0xFFFFFFF0);
		$add->('at_meta', 'start', 0);
		$add->('many', 'nslices', 0xFFFFFFFF);
		$add->('none', 'nslices', 0);
		$add->('probes', 'nprobes', 255);
		$add->('state', 'state', 77);
	}
}
else
{
	my $ranges = $format->value(good_page('filters'), 'opaque.block.nranges');
	my $offset_size = $format->filter_offset_size;
	my $all_offsets = ($ranges + 1) * $offset_size;
	my ($first, $second, $third, $last) = map { $format->filter_offset_at($ranges, $_) } 0, 1, 2, $ranges;

	add_damage('filters', 'is_other', sub { good_page('filters', 1) });
	foreach my $field ('kind', 'page_id', 'number', 'block.nranges', 'block.lg_base')
	{
		add_damage('filters', "other_$field", sub { flipped($_[0], "opaque.$field") });
		add_damage('scratch', "overfull_$field", sub { flipped($_[0], "opaque.$field") }, image => 'overfull');
	}

	# Filters that lie before the first, behind the last, in each other, nowhere.
	add_damage('filters', 'offsets_random', sub { replaced($_[0], $first, random_bytes($all_offsets)) });
	add_damage('filters', 'offsets_zero', sub { replaced($_[0], $first, "\0" x $all_offsets) });
	add_damage('filters', 'offsets_far', sub { replaced($_[0], $last, pack('v', 0xFFFF)) });
	add_damage('filters', 'offsets_first', sub { replaced($_[0], $first, pack('v', 1)) });
	add_damage('filters', 'offsets_back', sub { replaced($_[0], $third, substr($_[0], $first, $offset_size)) });

	# One that starts later than it does, or earlier, has a size that none has.
	my $start = unpack 'v', substr(good_page('filters'), $second, $offset_size);
	cmp_ok($start, '>', $format->constant('BX_PACKED_LINE'), 'filters have the format of large ones');
	add_damage('filters', 'offset_later', sub { replaced($_[0], $second, pack('v', $start + 8)) });
	add_damage('filters', 'offset_earlier', sub { replaced($_[0], $second, pack('v', $start - 8)) });

	# Fewer pages than there are would hide rows.
	add_damage('meta', 'no_pages', sub { with_field($_[0], 'meta.block.pages', 0) });
	add_damage('meta', 'fewer_pages',
		sub { with_field($_[0], 'meta.block.pages', $format->value($_[0], 'meta.block.pages') - 1) });
	add_damage('meta', 'no_ranges', sub { with_field($_[0], 'meta.block.nranges', 0) });
}
my $other_layout = $format->constant($partitioned ? 'BX_LAYOUT_BLOCK' : 'BX_LAYOUT_PARTITIONED');
add_damage('meta', 'magic', sub { with_field($_[0], 'meta.magic', $format->constant('BX_MAGIC') + 1) });
add_damage('meta', 'layout', sub { with_field($_[0], 'meta.layout', 99) }, allowed => '0A000');
add_damage('meta', 'other_layout', sub { with_field($_[0], 'meta.layout', $other_layout) });
add_damage('meta', 'range_keys', sub { replaced($_[0], $format->at('meta.stats.range_keys'), pack('f', 'nan')) });
add_damage('meta', 'lg_base', sub { with_field($_[0], 'meta.lg_base', 77) });
add_damage('meta', 'no_keys', sub { with_field($_[0], 'meta.keys', 0) });
add_damage('meta', 'keys', sub { with_field($_[0], 'meta.keys', 4) });
# What a later version of bloomidx has written is not damaged, but cannot be read.
add_damage('meta', 'newer_version', sub { with_field($_[0], 'meta.version', $format->constant('BX_FORMAT_VERSION') + 8) },
	only => '0A000');
add_damage('meta', 'newer_hash', sub { with_field($_[0], 'meta.hash_version', $format->constant('BX_HASH_VERSION') + 7) },
	only => '0A000');

# Random damage.  Anywhere in the header, the special area or a directory entry, a few bits are flipped or bytes are
# random; or the page is some other one.
sub fuzzed
{
	my ($page) = @_;
	my $kind = $format->value($page, 'opaque.kind');
	my @places = ([ 0, $content ], [ $special, $special_size ], [ $special, $special_size ]);
	my $choice = int(rand(10));

	# how many groups a region has, and the first of them
	push @places, map { [ $format->at($_), $format->size($_) ] } 'region.ngroups', 'region.group[0]'
	  if $kind == $format->constant('BX_PAGE_REGION');
	# the groups of a top-level page
	push @places, map { [ $format->at($_), $format->size($_) ] } 'top.group', 'top.group_shadow'
	  if $kind == $format->constant('BX_PAGE_TOP');
	# entries of a top-level page: which node, where, how large, what
	push @places, map { [ $_, $descriptor_size ] } $format->at('top.summary'), $format->at('top.segment[0]'),
	  $format->at('top.segment[0]') + $descriptor_size * int(rand(34))
	  if $kind == $format->constant('BX_PAGE_TOP');
	# what of the metapage tells where filters are
	push @places, [ $content, $format->at('meta.false_positive_rate') - $content ],
	  [ $format->at('meta.block.pages'), $format->size('meta.block.pages') ]
	  if $kind == $format->constant('BX_PAGE_META') && !$partitioned;
	if ($choice == 0)
	{
		my @others = (@foreign, map { good_page($_, int(rand(@{ $blocks{fresh}{$_} }))) } @names);
		return $others[ rand @others ];
	}
	return random_bytes($page_size) if $choice == 1;
	return scratched($page, $choice < 5, @{ $places[ rand @places ] });
}

# The same anywhere in the page.
sub fuzzed_anywhere
{
	my ($page) = @_;
	my $length = (8, 64, 512, $special - $header_size)[ rand 4 ];
	return scratched($page, rand() < 0.5, $header_size + int(rand($special - $header_size - $length)), $length);
}

# A page with a stretch of random bytes, or a few bits flipped, within some bytes of it.
sub scratched
{
	my ($page, $bytes, $start, $length) = @_;

	if ($bytes)
	{
		my $n = 1 + int(rand($length));
		return replaced($page, $start + int(rand($length - $n + 1)), random_bytes($n));
	}
	foreach (1 .. 1 + int(rand(3)))
	{
		my $offset = $start + int(rand($length));
		$page = replaced($page, $offset, chr(ord(substr($page, $offset, 1)) ^ (1 << int(rand(8)))));
	}
	return $page;
}

my $named = @damages;
foreach (1 .. $fuzz)
{
	my @more = (random => 1, image => rand() < 0.8 ? 'fresh' : 'overfull', allowed => 'XX001', version => '0A000');
	if (rand() < 0.7)
	{
		add_damage($names[ rand @names ], "fuzz_$_", \&fuzzed, @more);
	}
	else
	{
		add_damage($names[ rand @names ], "anywhere_$_", \&fuzzed_anywhere, @more, wrong => 1);
	}
}

#
# Damage and look
#

# Every query in a subtransaction, its answer compared with that of a sequential scan; then some inserts, what VACUUM does,
# and some of the queries again.  At the end all is undone, but what happened to the index.  Returns how often there was
# each outcome.  One of four queries is asked, another one each time, or all.
$node->safe_psql(
	'postgres', q{
CREATE TABLE answers (i int GENERATED ALWAYS AS IDENTITY, condition text, n bigint, total bigint);
INSERT INTO answers (condition)
	SELECT format('k = %L', md5(i::text)::uuid) FROM generate_series(1, 8448, 131) i
	UNION ALL SELECT format('k = %L', md5((-i)::text)::uuid) FROM generate_series(1, 12) i
	UNION ALL SELECT format('n = %s AND k = %L', i % 7 + 7 * (i / 1000), md5(i::text)::uuid) FROM generate_series(100, 8400, 700) i
	UNION ALL VALUES ('k IS NULL'), ('n IS NULL'), ('n = 3'), ('n IN (5, 6, 500, 2000)')
	UNION ALL SELECT format('k IN (%s)', string_agg(quote_literal(md5(i::text)), ','))
		FROM generate_series(1, 8448, 6) i GROUP BY i % 4;
DO $$
DECLARE
	r record;
	n1 bigint; total1 bigint;
BEGIN
	PERFORM oracle_force(false);
	FOR r IN SELECT condition FROM answers LOOP
		EXECUTE 'SELECT count(*), sum(id) FROM t WHERE ' || r.condition INTO n1, total1;
		UPDATE answers SET n = n1, total = total1 WHERE condition = r.condition;
	END LOOP;
END $$;

CREATE FUNCTION outcome(query text, n bigint, total bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n1 bigint; total1 bigint;
BEGIN
	EXECUTE query INTO n1, total1;
	IF (n1, total1) IS NOT DISTINCT FROM (n, total) THEN
		RETURN 'right';
	END IF;
	RETURN format('wrong (%s of %s rows: %s)', n1, n, left(query, 100));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || CASE WHEN SQLERRM LIKE '%t_ix%' THEN '' ELSE ' ' || SQLERRM END;
END $$;

-- Functions that read the pages of an index.
CREATE TABLE readers (i int GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO readers (call) VALUES ($q$bloomidx_info('t_ix')$q$), ($q$:show('t_ix')$q$),
	($q$bloomidx_probe('t_ix', md5('77')::uuid)$q$), ($q$bloomidx_measure('t_ix', 10)$q$),
	($q$bloomidx_check('t_ix', false)$q$), ($q$bloomidx_check('t_ix')$q$);

CREATE FUNCTION probe(turn int, every bool DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcomes text[] := '{}';
	inserted int[] := '{}';
	answer record;
	reader record;
	id int;
BEGIN
	PERFORM oracle_force(true);
	BEGIN
		FOR answer IN SELECT * FROM answers WHERE every OR i % 4 = turn % 4 ORDER BY i LOOP
			outcomes := outcomes || outcome('SELECT count(*), sum(id) FROM t WHERE ' || answer.condition, answer.n, answer.total);
		END LOOP;
		FOR reader IN SELECT * FROM readers WHERE every OR i = 1 + turn % 6 ORDER BY i LOOP
			outcomes := outcomes || outcome(format('SELECT 1, 1 FROM (SELECT count(*) FROM %s) x', reader.call), 1, 1);
		END LOOP;
		FOR i IN 10001 .. 10005 LOOP
			outcomes := outcomes || outcome(format('INSERT INTO t VALUES (%s, %L, 7) RETURNING 1, id', i, md5(i::text)), 1, i);
			IF outcomes[cardinality(outcomes)] = 'right' THEN
				inserted := inserted || i;
			END IF;
		END LOOP;
		outcomes := outcomes || outcome($q$SELECT 1, 1 FROM bloomidx_summarize('t_ix')$q$, 1, 1);
		FOREACH id IN ARRAY inserted LOOP
			outcomes := outcomes || outcome(format('SELECT count(*), sum(id) FROM t WHERE k = %L', md5(id::text)), 1, id);
		END LOOP;
		FOR answer IN SELECT * FROM answers WHERE i % 13 = turn % 13 ORDER BY i LOOP
			outcomes := outcomes || outcome('SELECT count(*), sum(id) FROM t WHERE ' || answer.condition, answer.n, answer.total);
		END LOOP;
		RAISE SQLSTATE 'UNDO1';
	EXCEPTION WHEN SQLSTATE 'UNDO1' THEN
		NULL;
	END;

	RETURN (SELECT string_agg(format('%s x %s', x.count, o), ', ' ORDER BY o)
			FROM (SELECT o, count(*) FROM unnest(outcomes) o GROUP BY o) x);
END $$;
});

my $show = $partitioned ? 'bloomidx_segments' : 'bloomidx_blocks';
$node->safe_psql('postgres', "UPDATE readers SET call = replace(call, ':show', '$show')");

# The images, with each damaged page in its turn.
my $page_file = $node->basedir . '/pages';
my %image_file = map { $_ => $node->basedir . "/$_" } keys %images;

sub write_file
{
	my ($name, @parts) = @_;
	open my $fh, '>', $name or die "could not create $name: $!";
	binmode $fh;
	print $fh $_ foreach @parts;
	close $fh or die "could not write $name: $!";
	return;
}

sub restore { return "SELECT write_pages('t_ix', pg_read_binary_file('$image_file{$_[0]}'));\n"; }

write_file($image_file{$_}, $images{$_}) foreach keys %images;
my $script = "SET statement_timeout = '60s'; SET client_min_messages = error;\n"
  . restore('fresh') . "SELECT 'before|' || probe(0, true);\n";
my @pages;
foreach my $turn (0 .. $#damages)
{
	my $damage = $damages[$turn];
	my @blocks = @{ $blocks{ $damage->{image} }{ $damage->{target} } };
	my $block = $blocks[ $damage->{random} ? int(rand(@blocks)) : 0 ];
	my $file = "pg_read_binary_file('$image_file{$damage->{image}}')";

	if ($damage->{make})
	{
		my $page = $damage->{make}->(page_of($images{ $damage->{image} }, $block));
		die "$damage->{name}: not a page" if length $page != $page_size;
		$file = "overlay($file PLACING pg_read_binary_file('$page_file', "
		  . @pages * $page_size . ", $page_size) FROM " . ($block * $page_size + 1) . ')';
		push @pages, $page;
	}
	else
	{
		$file = "substr($file, 1, " . $block * $page_size . ')';
	}
	$script .= "SELECT write_pages('t_ix', $file);\nSELECT '$turn|' || probe($turn, " . ($damage->{random} ? 'false' : 'true') . ");\n";

	# VACUUM itself now and then, which may refuse as well, but no worse; and on the good index, for the table's sake
	next if $turn % 40;
	$script .= "SELECT write_pages('t_ix', $file);\nVACUUM t;\n\\if :ERROR\n\\echo V|:SQLSTATE :LAST_ERROR_MESSAGE\n\\endif\n"
	  . restore('fresh')
	  . "VACUUM t;\n";
}
write_file($page_file, @pages);
$script .= restore('fresh') . "SELECT 'after|' || probe(0, true);\n";
# REINDEX repairs.
$script .= "SELECT write_pages('t_ix', overlay(pg_read_binary_file('$image_file{fresh}') PLACING pg_read_binary_file('$page_file', "
  . "$_ * $page_size, $page_size) FROM 1));\nREINDEX INDEX t_ix;\nSELECT 'repaired_$_|' || probe(0, true);\n"
  foreach 0, 10;

my ($stdout, $stderr) = ('', '');
my $started = time;
my $status = $node->psql('postgres', $script, stdout => \$stdout, stderr => \$stderr, on_error_stop => 0,
	timeout => $PostgreSQL::Test::Utils::timeout_default + $fuzz / 5, timed_out => \my $hangs);
my $seconds = time - $started;
my %found = map { /^(\w+)\|(.*)/ ? ($1 => $2) : () } grep { !/^V/ } split /\n/, $stdout;
ok(!$hangs, 'no damage leads to an endless loop');
is($status, 0, 'no damage ends the session');

# What is not allowed among outcomes.
sub unexpected
{
	my ($outcomes, $damage) = @_;
	my @allowed = $damage->{only} ? ($damage->{only}) : ('right', 'XX002', $damage->{allowed}, $damage->{version} || ());
	my @bad;

	return 'no answer' if !defined $outcomes;
	foreach my $outcome (map { s/^\d+ x //r } split /, (?=\d+ x )/, $outcomes)
	{
		# The server's own complaint does not know the index's name, but the file's.
		my $state = $outcome =~ /^XX001 (invalid page in block|could not read blocks?)/ ? 'XX001' : $outcome;
		next if $damage->{wrong} && $outcome =~ /^wrong/;
		push @bad, $outcome if !grep { $_ eq $state } @allowed;
	}
	return @bad;
}

my $refused = 0;
my @bad_fuzz;
foreach my $turn (0 .. $#damages)
{
	my $damage = $damages[$turn];
	my $outcomes = $found{$turn};
	my @bad = unexpected($outcomes, $damage);
	my $report = "$damage->{name} ($damage->{image}): " . substr($outcomes // 'no answer', 0, 1000);

	$refused++ if !$damage->{wrong} && defined $outcomes && $outcomes !~ /^\d+ x right$/;
	if ($turn < $named)
	{
		my $claim = $damage->{only} ? "refused with $damage->{only}" : 'right answers or index_corrupted';
		ok(!@bad, "$damage->{name}: $claim") or diag($report);
	}
	elsif (@bad)
	{
		push @bad_fuzz, $report;
	}
	last if !defined $outcomes;
}
is(scalar @bad_fuzz, 0, 'random damage: right answers or index_corrupted')
  or diag(join "\n", @bad_fuzz[ 0 .. ($#bad_fuzz < 9 ? $#bad_fuzz : 9) ]);
diag(substr($stderr, -2000)) if !defined $status || $status != 0;

my $strict = grep { !$_->{wrong} } @damages;
note "$refused of $strict damages that could be noticed were; $seconds s";
report('pages damaged', scalar @damages);
# of the scratch page only a rebuild takes notice
cmp_ok($refused, '>=', ($partitioned ? 0.6 : 0.4) * $strict, 'most damages are noticed');
like($found{before}, qr/^\d{3} x right$/, 'an index without damage answers rightly');
is($found{after}, $found{before}, 'the index answers rightly when it is restored after all damages');
is($found{"repaired_$_"}, $found{before}, "REINDEX repairs an index after damage $_") foreach 0, 10;
my @refusals = map { /^V\|(.*)/ ? $1 : () } split /\n/, $stdout;
note scalar @refusals . ' times VACUUM refused';
is(join("\n", grep { !/^(XX002|0A000) .*t_ix|^XX001 (invalid page|could not read block)/ } @refusals),
	'', 'VACUUM of damaged indexes fails with index_corrupted, or does not fail');

log_is_clean($node, 'damage');
$node->stop;
done_testing();
