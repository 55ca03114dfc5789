# Damage: a page of the index file is overwritten while the server is down.  Queries and inserts then either do the
# right thing or raise index_corrupted (XX002) with the name of the index; nothing answers wrongly, nothing crashes, and
# REINDEX repairs.
#
#   BLOOMIDX_SEED  seed of the random bytes (printed at the start)
#   BLOOMIDX_FUZZ  how many random damages come on top of those with a name
#
# There are as many identical tables as kinds of damage, one with a good index, and one without for the answers.
# Bits of a slice page are left alone: nothing can tell a lost bit from one that was never set.  (Data checksums can;
# here they are off.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = defined $ENV{BLOOMIDX_SEED} ? int $ENV{BLOOMIDX_SEED} : int(rand(1_000_000_000));
my $fuzz = defined $ENV{BLOOMIDX_FUZZ} ? $ENV{BLOOMIDX_FUZZ} : 370;
note "BLOOMIDX_SEED=$seed";
srand($seed);

plan skip_all => 'for little-endian machines' if pack('L', 1) ne pack('V', 1);

#
# The format, as in src/format.h, with pages of 8 kB
#

my $page_size = 8192;
my $content = 32;
my $special = $page_size - 32;
my %special_field = (
	node => 0, slice => 4, nslices => 8, generation => 12, nprobes => 16, level => 18, kind => 19, page_id => 30);
my %meta_field = (magic => 0, version => 4, hash_version => 8, layout => 10, lg_base => 11);
# A descriptor in a top-level page: the summary's comes first; those of the segments after it and the shadow's.
my %descriptor_field = (start => 0, nslices => 4, nprobes => 16, state => 17);
my $first_child = $content + 20 + 24;

# Pages to damage, by kind and level in the special area.  All of a summary are damaged, else few queries would meet it;
# of other pages, the first.
my %targets = (meta => '1 0', map => '2 0', top => '3 2', segment => '4 1', summary => '4 2');

sub random_bytes { return join '', map { chr(int(rand(256))) } 1 .. $_[0]; }

# A page with something else at an offset.
sub replaced
{
	my ($page, $offset, $bytes) = @_;
	substr($page, $offset, length $bytes) = $bytes;
	return $page;
}

#
# Damages: name => {target, make, allowed}.  make gets the page, the pages of the good index as target => [pages],
# and two pages of a B-tree.  Allowed is an SQLSTATE besides XX002: the server itself refuses some page headers (XX001).
#

my %damages;

sub add_damage
{
	my ($target, $name, $make, %more) = @_;
	$damages{"${target}_$name"} = { target => $target, make => $make, allowed => '', %more };
	return;
}

my @names = ('meta', 'map', 'top', 'segment', 'summary');
foreach my $target (@names)
{
	add_damage($target, 'zero', sub { "\0" x $page_size });
	add_damage($target, 'random', sub { random_bytes($page_size) }, allowed => 'XX001');
	add_damage($target, 'random_body', sub { replaced($_[0], 24, random_bytes($page_size - 24)) });
	add_damage($target, 'random_header', sub { replaced($_[0], 0, random_bytes(32)) }, allowed => 'XX001');
	add_damage($target, 'random_special', sub { replaced($_[0], $special, random_bytes(32)) });
	add_damage($target, 'zero_special', sub { replaced($_[0], $special, "\0" x 32) });
	# Page headers that the server takes for possible: no special area, a full page, an empty one.
	add_damage($target, 'no_special', sub { replaced($_[0], 14, pack('v2', $page_size, $page_size)) });
	add_damage($target, 'small_special', sub { replaced($_[0], 16, pack('v', $page_size - 8)) });
	add_damage($target, 'large_special', sub { replaced($_[0], 12, pack('v3', 24, 24, 24)) });
	add_damage($target, 'btree_meta', sub { $_[2] });
	add_damage($target, 'btree_leaf', sub { $_[3] });
	add_damage($target, "is_$_", do { my $other = $_; sub { $_[1]{$other}[0] } }) foreach grep { $_ ne $target } @names;
	add_damage($target, 'missing', undef, allowed => 'XX001');
}
add_damage('segment', 'is_other', sub { $_[1]{segment}[1] });
foreach my $target ('segment', 'summary')
{
	foreach my $field (sort keys %special_field)
	{
		my $offset = $special + $special_field{$field};
		add_damage($target, "other_$field", sub { replaced($_[0], $offset, chr(1 ^ ord(substr($_[0], $offset, 1)))) });
	}
}
foreach my $target ('map', 'top')
{
	my $offset = $special + $special_field{node};
	add_damage($target, 'other_node', sub { replaced($_[0], $offset, pack('V', 7)) });
}

# A directory that leads nowhere.
foreach my $which ([ 'segment', $first_child ], [ 'second_segment', $first_child + 20 ], [ 'summary', $content ])
{
	my ($name, $offset) = @$which;
	my $field = sub { return $offset + $descriptor_field{ $_[0] }; };
	add_damage('top', "${name}_far", sub { replaced($_[0], $field->('start'), pack('V', 0xFFFFFFF0)) });
	add_damage('top', "${name}_at_meta", sub { replaced($_[0], $field->('start'), pack('V', 0)) });
	add_damage('top', "${name}_many", sub { replaced($_[0], $field->('nslices'), pack('V', 0xFFFFFFFF)) });
	add_damage('top', "${name}_none", sub { replaced($_[0], $field->('nslices'), pack('V', 0)) });
	add_damage('top', "${name}_probes", sub { replaced($_[0], $field->('nprobes'), chr(255)) });
	add_damage('top', "${name}_state", sub { replaced($_[0], $field->('state'), chr(77)) });
}
add_damage('meta', 'magic', sub { replaced($_[0], $content + $meta_field{magic}, 'BxIY') });
add_damage('meta', 'layout', sub { replaced($_[0], $content + $meta_field{layout}, chr(99)) }, allowed => '0A000');
add_damage('meta', 'lg_base', sub { replaced($_[0], $content + $meta_field{lg_base}, chr(77)) });
# What a later version of bloomidx has written is not damaged, but cannot be read.
add_damage('meta', 'newer_version', sub { replaced($_[0], $content + $meta_field{version}, pack('V', 9)) }, only => '0A000');
add_damage('meta', 'newer_hash', sub { replaced($_[0], $content + $meta_field{hash_version}, pack('v', 9)) }, only => '0A000');

# Random damage.  Anywhere in the header, the special area or a directory entry, a few bits are flipped or bytes are
# random; or the page is some other one.
sub fuzzed
{
	my ($page, $pages, @btree) = @_;
	my ($kind) = unpack 'C', substr($page, $special + $special_field{kind}, 1);
	my @places = ([ 0, 32 ], [ $special, 32 ], [ $special, 32 ]);
	my $choice = int(rand(10));

	# entries of a top-level page: which node, where, how large, what
	push @places, [ $content, 20 ], [ $first_child, 20 ], [ $first_child + 20 * int(rand(34)), 20 ] if $kind == 3;
	if ($choice == 0)
	{
		my @all = (map { @$_ } values %$pages);
		return (@all, @btree)[ rand(@all + 2) ];
	}
	return random_bytes($page_size) if $choice == 1;

	my ($start, $length) = @{ $places[ rand @places ] };
	if ($choice < 5)
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
add_damage($names[ $_ % @names ], "fuzz_$_", \&fuzzed, allowed => 'XX001', version => '0A000') foreach 1 .. $fuzz;

#
# Tables and indexes
#

my $node = new_node('damage', conf => "shared_buffers = 128MB\neffective_io_concurrency = 8\n", no_checksums => 1);
is($node->safe_psql('postgres', 'SHOW data_checksums'), 'off', 'no data checksums');

my @cases = sort keys %damages;
my $rows = 4200;

# Where the summary matters, the table's file is extended with empty pages, so that the index gets one without a large
# table.
my $create = '';
foreach my $name ('plain', 'good', @cases)
{
	$create .= "CREATE TABLE $name AS SELECT id, md5(id::text)::uuid AS k, (id * 3) % 1000 AS n, repeat('x', 220) AS pad"
	  . " FROM generate_series(1, $rows) id;\n"
	  . "SELECT '$name', pg_relation_filepath('$name');\n";
}
$create .= "CREATE TABLE btree AS SELECT g FROM generate_series(1, 1000) g; CREATE INDEX btree_i ON btree (g);\n";
my %heap_file = map { split /\|/ } split /\n/, $node->safe_psql('postgres', $create);
$node->stop;
foreach my $file (map { $heap_file{$_} } grep { /good|summary/ } keys %heap_file)
{
	truncate($node->data_dir . "/$file", 4200 * $page_size) or die "could not extend $file: $!";
}
$node->start;
$node->safe_psql('postgres', join "\n",
	map { "CREATE INDEX ${_}_ix ON $_ " . using_index('k, n', pages_per_range => 1) . ';' } 'good', @cases);
my %index_file = map { split /\|/ } split /\n/,
  $node->safe_psql('postgres', join "\n", map { "SELECT '$_', pg_relation_filepath('${_}_ix');" } 'good', @cases);
my $btree_file = $node->safe_psql('postgres', "SELECT pg_relation_filepath('btree_i')");
all_rows_found($node, 'good', 'k', 'good_ix', $rows, 'before');

# Every query in a subtransaction, its answer compared with that of a sequential scan of the table without index; then
# some inserts.  Returns how often there was each outcome.
$node->safe_psql(
	'postgres', q{
CREATE TABLE answers (condition text, n bigint, total bigint);
INSERT INTO answers
	SELECT format('k = %L', md5(i::text)::uuid) FROM generate_series(1, 4200, 53) i
	UNION ALL SELECT format('k = %L', md5((-i)::text)::uuid) FROM generate_series(1, 20) i
	UNION ALL SELECT format('n = %s', i * 31) FROM generate_series(1, 20) i
	UNION ALL SELECT format('n = %s AND k = %L', (i * 30) % 1000, md5((i * 10)::text)::uuid) FROM generate_series(1, 20) i
	UNION ALL VALUES ('k IS NULL'), ('k IS NOT NULL'), ('n IS NULL'), ('n IN (1, 2, 3, 4, 5, 6, 500, 2000)')
	UNION ALL SELECT format('k IN (%s)', string_agg(quote_literal(md5(i::text)), ',')) FROM generate_series(1, 4200, 71) i;
DO $$
DECLARE
	r record;
	n1 bigint; total1 bigint;
BEGIN
	FOR r IN SELECT condition FROM answers LOOP
		EXECUTE 'SELECT count(*), sum(id) FROM plain WHERE ' || r.condition INTO n1, total1;
		UPDATE answers SET n = n1, total = total1 WHERE condition = r.condition;
	END LOOP;
END $$;

CREATE FUNCTION probe(tab text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcomes text[] := '{}';
	inserted text[] := '{}';
	condition text;
	outcome text;
	answer record;
	n1 bigint; total1 bigint;
BEGIN
	PERFORM oracle_force(true);
	FOR answer IN SELECT * FROM answers LOOP
		BEGIN
			EXECUTE format('SELECT count(*), sum(id) FROM %I WHERE %s', tab, answer.condition) INTO n1, total1;
			outcome := CASE WHEN n1 = answer.n AND total1 IS NOT DISTINCT FROM answer.total THEN 'right'
				ELSE format('wrong (%s: %s of %s rows)', answer.condition, n1, answer.n) END;
		EXCEPTION WHEN OTHERS THEN
			outcome := SQLSTATE || CASE WHEN SQLERRM NOT LIKE '%' || tab || '_ix%' THEN ' ' || SQLERRM ELSE '' END;
		END;
		outcomes := outcomes || outcome;
	END LOOP;

	FOR i IN 1 .. 10 LOOP
		BEGIN
			EXECUTE format('INSERT INTO %I VALUES (%s, %L, 7)', tab, 10000 + i, md5('new' || i));
			inserted := inserted || format('%L', md5('new' || i));
			outcome := 'right';
		EXCEPTION WHEN OTHERS THEN
			outcome := SQLSTATE || CASE WHEN SQLERRM NOT LIKE '%' || tab || '_ix%' THEN ' ' || SQLERRM ELSE '' END;
		END;
		outcomes := outcomes || outcome;
	END LOOP;
	FOREACH condition IN ARRAY inserted LOOP
		BEGIN
			EXECUTE format('SELECT count(*) FROM %I WHERE k = %s', tab, condition) INTO n1;
			outcome := CASE WHEN n1 = 1 THEN 'right' ELSE 'wrong (inserted row is lost)' END;
		EXCEPTION WHEN OTHERS THEN
			outcome := SQLSTATE || CASE WHEN SQLERRM NOT LIKE '%' || tab || '_ix%' THEN ' ' || SQLERRM ELSE '' END;
		END;
		outcomes := outcomes || outcome;
	END LOOP;
	EXECUTE format('DELETE FROM %I WHERE id > 10000', tab);

	RETURN (SELECT string_agg(format('%s x %s', x.count, o), ', ' ORDER BY o)
			FROM (SELECT o, count(*) FROM unnest(outcomes) o GROUP BY o) x);
END $$;
});

sub probe
{
	return map { split /\|/ } split /\n/, $node->safe_psql('postgres', join '', map { "SELECT '$_', probe('$_');" } @_);
}

my %before = probe('good');
like($before{good}, qr/^\d{3} x right$/, 'a good index answers rightly');
$node->stop;

#
# Damage and look
#

# Blocks of an index file, as target => [blocks].
sub find_blocks
{
	my ($file) = @_;
	my %found = map { $_ => [] } keys %targets;

	for (my $block = 0; $block * $page_size < length $file; $block++)
	{
		my ($level, $kind) = unpack 'CC', substr($file, $block * $page_size + $special + $special_field{level}, 2);
		push @{ $found{$_} }, $block foreach grep { $targets{$_} eq "$kind $level" } keys %targets;
	}
	return %found;
}

my $btree = slurp_file($node->data_dir . "/$btree_file");
my $good = slurp_file($node->data_dir . "/$index_file{good}");
my %good_blocks = find_blocks($good);
my %good_pages;
foreach my $target (keys %targets)
{
	$good_pages{$target} = [ map { substr($good, $_ * $page_size, $page_size) } @{ $good_blocks{$target} } ];
	cmp_ok(scalar @{ $good_pages{$target} }, '>', 0, "the index has a page for: $target");
}

my $damaged = 0;
foreach my $case (@cases)
{
	my $damage = $damages{$case};
	my $path = $node->data_dir . "/$index_file{$case}";
	my $file = slurp_file($path);
	my %found = find_blocks($file);
	my @blocks = @{ $found{ $damage->{target} } };

	@blocks = ($blocks[0]) if $damage->{target} ne 'summary' || !$damage->{make};
	foreach my $block (@blocks)
	{
		my $page = substr($file, $block * $page_size, $page_size);

		if (!$damage->{make})
		{
			$file = substr($file, 0, $block * $page_size);
			last;
		}
		$page = $damage->{make}->($page, \%good_pages, substr($btree, 0, $page_size), substr($btree, $page_size, $page_size));
		die "$case: not a page" if length $page != $page_size;
		$damaged++;
		substr($file, $block * $page_size, $page_size) = $page;
	}
	open my $fh, '>', $path or die "could not open $path: $!";
	binmode $fh;
	print $fh $file;
	close $fh or die "could not write $path: $!";
}
$node->start;

my %after = probe('good', @cases);
my $refused = 0;
foreach my $case (@cases)
{
	my $damage = $damages{$case};
	my @allowed = $damage->{only} ? ($damage->{only}) : ('right', 'XX002', $damage->{allowed}, $damage->{version} || ());
	my @outcomes = map { s/^\d+ x //r } split /, (?=\d+ x )/, $after{$case};
	my @bad;

	foreach my $outcome (@outcomes)
	{
		# The server's own complaint does not know the index's name, but the file's.
		my $state = $outcome =~ /^XX001 (invalid page in block|could not read block)/ ? 'XX001' : $outcome;
		push @bad, $outcome if !grep { $_ eq $state } @allowed;
	}
	$refused++ if grep { $_ ne 'right' } @outcomes;
	ok(!@bad, $case) or diag(substr($after{$case}, 0, 1000));
}
note "$damaged pages damaged; $refused of " . @cases . " indexes with damage were noticed";
cmp_ok($refused, '>=', 0.6 * @cases, 'most damages were noticed');
is($after{good}, $before{good}, 'and an index without damage is as before');

#
# VACUUM may refuse as well, but no worse; REINDEX repairs.
#

my ($stdout, $stderr);
$node->psql('postgres', "\\set VERBOSITY verbose\n" . join('', map { "VACUUM $_;\n" } @cases),
	stdout => \$stdout, stderr => \$stderr, on_error_stop => 0);
my @errors = grep { /ERROR:|FATAL:/ } split /\n/, $stderr;
my @unexpected = grep { !/XX002: .*_ix|XX001: (invalid page|could not read block)|0A000: .*_ix/ } @errors;
is(join("\n", @unexpected), '', 'VACUUM of damaged indexes');

$node->safe_psql('postgres', join '', map { "REINDEX INDEX ${_}_ix;\n" } @cases);
my %repaired = probe(@cases);
my @broken = grep { $repaired{$_} ne $before{good} } @cases;
is("@broken", '', 'REINDEX repairs');

log_is_clean($node, 'damage');
$node->stop;
done_testing();
