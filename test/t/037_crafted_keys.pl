# Values chosen so that their keys are special.  The hash function of keys is known and can be inverted, so whoever may
# insert a bigint can choose its key.  Chosen keys must not make an index much larger, or a statement much slower, than
# random keys do, and of course every row must be found.
#
# Each table with chosen keys is compared with a table of the same size with random keys.

use strict;
use warnings;
no warnings 'portable';    # numbers of 64 bits
use integer;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('crafted_keys');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub query { return $node->safe_psql('postgres', $_[0]); }

# -- 64-bit arithmetic.  Under "use integer" it is modulo 2^64, and >> copies the sign.

sub shift_right { my ($x, $n) = @_; return ($x >> $n) & ~(-1 << (64 - $n)); }

sub rotate { my ($x, $n) = @_; return $n == 0 ? $x : ($x << $n) | shift_right($x, 64 - $n); }

# The inverse of an odd number; each step doubles the number of correct bits.
sub invert
{
	my ($a) = @_;
	my $x = $a;
	$x *= 2 - $a * $x for 1 .. 5;
	return $x;
}

# -- The inverse of bx_keyhash_int() (filter/keyhash.h), which is XXH3 of eight bytes: of XXH3_len_4to8_64b() and
# XXH3_rrmxmx() in xxhash.h.

use constant XXH3_MULTIPLIER => 0x9FB21C651E98DF25;
use constant XXH3_SECRET => 0xc73ab174c5ecd5a2;    # bytes 8 to 15 of its secret, XOR bytes 16 to 23
my $xxh3_inverse = invert(XXH3_MULTIPLIER);

sub unhash
{
	my ($hash, $seed) = @_;
	my $swapped = unpack('N', pack('V', $seed));
	my $x = $hash ^ shift_right($hash, 28) ^ shift_right($hash, 56);

	$x *= $xxh3_inverse;
	$x = $x ^ (shift_right($x, 35) + 8);           # is its own inverse, because 2 * 35 > 64 and 8 < 2^35
	$x *= $xxh3_inverse;

	# XOR with rotations is a matrix M with M^64 = 1, so its inverse is M^63 = M^1 M^2 M^4 ... M^32; and squaring M
	# doubles the rotations.
	$x = $x ^ rotate($x, (49 << $_) & 63) ^ rotate($x, (24 << $_) & 63) for 0 .. 5;
	$x = $x ^ (XXH3_SECRET - ($seed ^ ($swapped << 32)));
	return rotate($x, 32);
}

# The bigint whose key, in the first column of an index, is the given one: its hash with seed 0 is hashed again with
# the seed of column 1.
sub value_of_key { my ($key) = @_; return unhash(unhash($key, 1 << 8 | 1), 0); }

# The inverse of bx_filter_level_hash() (filter/filter.h) for the filters of ranges.
my $level_inverse = invert(0xd6e8feb86659fd93);

sub key_of_level_hash
{
	my ($hash) = @_;

	for (1 .. 2)
	{
		$hash = ($hash ^ shift_right($hash, 32)) * $level_inverse;
	}
	return ($hash ^ shift_right($hash, 32)) - 0x9e3779b97f4a7c15;
}

# -- Tables

# Creates a table of numbered values.
sub load_values
{
	my ($table, @values) = @_;
	my $n = 0;

	PostgreSQL::Test::Utils::append_to_file("$dir/$table", join('', map { $n++ . "\t$_\n" } @values));
	query("CREATE TABLE $table (i int, k bigint); COPY $table FROM '$dir/$table'");
	return;
}

sub index_size { my ($index) = @_; return query("SELECT pg_relation_size('$index')"); }

# A table has the same size as the one with random keys, and its index at most twice the size.
sub sizes_are_similar
{
	my ($table, $random, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $size = index_size("${table}_k");
	my $usual = index_size("${random}_k");

	is( query("SELECT pg_relation_size('$table') = pg_relation_size('$random')"),
		't', "$what: the tables have the same size");
	return cmp_ok($size, '<=', $usual * 2, "$what: the index has $size bytes, with random keys $usual");
}

sub index_is_good
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(query("SELECT bloomidx_check('${table}_k') > 0"), 't', "$what: bloomidx_check accepts the index");
	return;
}

sub seconds
{
	my ($sql) = @_;
	my $start = time;

	query($sql);
	no integer;
	return time - $start;
}

my $four_segments = 4 * 128 * 220;    # rows of one bigint: a page of 8 kB has about 220

# All keys are in the first slice of their segment, whose size is the number of slices that the segment before seemed to
# need.  If only this slice is measured, each segment becomes larger than the one before by the number of slices.
srand(1);
load_values('first_slice',
	map { value_of_key(key_of_level_hash((int(rand(1 << 30)) << 34 | $_ << 32) | $_ % 200)) } 1 .. $four_segments);
foreach my $table ('sliced', 'sliced_random')
{
	query("CREATE TABLE $table (k bigint); CREATE INDEX ${table}_k ON $table " . using_index('k', pages_per_range => 1));
	query("INSERT INTO $table SELECT hashint8extended(i, 1) FROM generate_series(1, 30000) i");
}
query('INSERT INTO sliced SELECT k FROM first_slice ORDER BY i');
query("INSERT INTO sliced_random SELECT hashint8extended(i, 2) FROM generate_series(1, $four_segments) i");
sizes_are_similar('sliced', 'sliced_random', 'keys in one slice');
query('VACUUM sliced');
sizes_are_similar('sliced', 'sliced_random', 'keys in one slice, after VACUUM');
is(query("SELECT oracle_lost_rows('sliced', 'k', 'sliced_k', 'true', 'k % 5000 = 0')"),
	0, 'keys in one slice: rows are found');
index_is_good('sliced', 'keys in one slice');

# Keys that set different bits.  A slice in which all 508 bits are set seems to have six times as many keys as are
# necessary to set them.  The rows of a key are bx_filter_row() of the upper half of its hash and its successors.  Each
# page has the same keys, which fill two slices: each key sets as many new bits as the best of many candidates.
sub rows_of_key
{
	my ($x) = @_;
	my @rows;

	for (1 .. 6)
	{
		push @rows, ($x * 508) >> 32;
		$x = ($x * 0x9e3779b9) & 0xffffffff;
	}
	return @rows;
}

my @cover;
my %set;
for (1 .. 112)
{
	my ($best, $most) = (0, -1);

	for (1 .. 1500)
	{
		my $x = int(rand(1 << 30)) << 2;
		my $new = grep { !$set{$_} } rows_of_key($x);

		($best, $most) = ($x, $new) if $new > $most;
		last if $new == 6;
	}
	push @cover, $best;
	$set{$_} = 1 foreach rows_of_key($best);
}
load_values('all_bits',
	map { my $low = $_; map { value_of_key(key_of_level_hash($_ << 32 | $low)) } @cover } (1, 1 << 31));
foreach my $table ('covered', 'covered_random')
{
	query("CREATE TABLE $table (k bigint); CREATE INDEX ${table}_k ON $table " . using_index('k', pages_per_range => 1));
	query("INSERT INTO $table SELECT hashint8extended(i, 1) FROM generate_series(1, 30000) i");
}
query(  'INSERT INTO covered SELECT k FROM generate_series(1, 1000) g, all_bits WHERE g * 224 + i <= '
	  . "$four_segments ORDER BY g, i");
query('INSERT INTO covered_random SELECT hashint8extended(i, 2) FROM generate_series(1, (SELECT count(*) FROM covered) - 30000) i');
sizes_are_similar('covered', 'covered_random', 'keys of different bits');
query('VACUUM covered');
sizes_are_similar('covered', 'covered_random', 'keys of different bits, after VACUUM');
index_is_good('covered', 'keys of different bits');
is( query(
		"SELECT oracle_force('bitmap'); SELECT count(*) FROM all_bits a WHERE i % 15 = 0 AND (SELECT count(*) FROM covered c WHERE c.k = a.k) < 100"),
	"\n0",
	'keys of different bits: rows are found');

# 1024 keys that fill all registers of the estimate of distinct keys, in one segment of a table of 34.
load_values('registers', map { value_of_key($_ << 54 | 1 << 8) } 0 .. 1023);
my $rows = 34 * 128 * 8;
foreach my $how ('built', 'inserted')
{
	foreach my $table ("${how}_registers", "${how}_random")
	{
		my $create = "CREATE INDEX ${table}_k ON $table " . using_index('k', pages_per_range => 1);

		query("CREATE TABLE $table (k bigint, pad text); ALTER TABLE $table ALTER pad SET STORAGE PLAIN");
		query($create) if $how eq 'inserted';
		query(  "INSERT INTO $table SELECT k, repeat('x', current_setting('block_size')::int / 9) FROM ("
			  . ($table =~ /registers/ ? 'SELECT i, k FROM registers' : 'SELECT i, hashint8extended(-i, 3) FROM registers')
			  . " UNION ALL SELECT i, hashint8extended(i, 3) FROM generate_series(1024, $rows) i) t(i, k) ORDER BY i");
		query($create) if $how eq 'built';
		is(query("SELECT summarized_partitions FROM bloomidx_info('${table}_k')"), 1, "$table has a summary")
		  if layout() eq 'partitioned';
	}
	sizes_are_similar("${how}_registers", "${how}_random", "full registers, $how");
	query("VACUUM ${how}_registers");
	sizes_are_similar("${how}_registers", "${how}_random", "full registers, $how, after VACUUM");
	is(query("SELECT oracle_lost_rows('${how}_registers', 'k', '${how}_registers_k', 'true', 'k % 20 = 0')"),
		0, "full registers, $how: rows are found");
	index_is_good("${how}_registers", "full registers, $how");
}

# One value of many elements whose keys have the same lower bits, so that a hash table that uses these as the position
# becomes a list.
my $elements = 90000;
load_values('lower_bits', map { value_of_key($_ << 32) } 1 .. $elements);
query("CREATE TABLE same_bits AS SELECT array_agg(k) AS k FROM lower_bits;"
	  . "CREATE TABLE same_random AS SELECT array_agg(hashint8extended(i, 4)) AS k FROM lower_bits;"
	  . "INSERT INTO same_bits SELECT ARRAY[i] FROM generate_series(1, 1000) i;"
	  . "INSERT INTO same_random SELECT ARRAY[i] FROM generate_series(1, 1000) i");
my %time;
foreach my $table ('same_random', 'same_bits')
{
	$time{built}{$table} = seconds("CREATE INDEX ${table}_k ON $table " . using_index('k array_elements_ops'));
	$time{inserted}{$table} = seconds("INSERT INTO $table SELECT k FROM $table WHERE cardinality(k) > 1");
	$time{checked}{$table} = seconds("SELECT bloomidx_check('${table}_k')");
}
foreach my $how (sort keys %time)
{
	no integer;
	cmp_ok($time{$how}{same_bits},
		'<', $time{$how}{same_random} * 5 + 1, "keys with the same lower bits, $how: the time is that of random keys");
}
is( query(
		"SELECT oracle_force('bitmap'); SELECT count(*) FROM lower_bits a WHERE i % 600 = 0 AND (SELECT count(*) FROM same_bits b WHERE b.k @> ARRAY[a.k]) <> 2"),
	"\n0",
	'keys with the same lower bits: rows are found');
index_is_good('same_bits', 'keys with the same lower bits');

$node->stop;
done_testing();
