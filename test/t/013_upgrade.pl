# pg_upgrade: an index that an older PostgreSQL has made answers in a newer one, without REINDEX.
#
#   OLD_BINDIR   where the programs of the older PostgreSQL are, with bloomidx installed for it; test/check sets it if
#                it is given an OLD_PG_CONFIG

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no older PostgreSQL: give its pg_config as OLD_PG_CONFIG' if !$ENV{OLD_BINDIR};

# table => [an indexed column, its index, rows, predicate of the index].  The first is large enough for a summary.
my %lookups = (
	plain => [ 'k', 'plain_i', 40000 ],
	packed => [ 'k', 'packed_i', 1800 ],
	small => [ 'k', 'small_i', 3 ],
	options => [ 'k', 'options_i', 2000 ],
	unlogged => [ 'k', 'unlogged_i', 2000 ],
	partial => [ 'k', 'partial_i', 2000, 'k % 2 = 0' ],
	parted => [ 'k', 'parted_', 2000 ],
	# hashed by the types' own functions, which must not have changed either
	numbers => [ 'n', 'numbers_i', 2000 ],
	documents => [ 'j', 'documents_i', 2000 ],
	moods => [ 'm', 'moods_i', 3 ],
	strings => [ 's', 'strings_i', 2000 ],
	arrays => [ 'a', 'arrays_i', 2000 ],
	ranges => [ 'r', 'ranges_i', 2000 ]);

my $old = PostgreSQL::Test::Cluster->new('old', install_path => dirname($ENV{OLD_BINDIR}));
$old->init;
$old->append_conf('postgresql.conf', "autovacuum = off\n");
$old->start;
install_oracle($old, 'postgres');
$old->safe_psql(
	'postgres', q{
CREATE TABLE plain (k uuid, n int, pad text) WITH (fillfactor = 10);
CREATE INDEX plain_i ON plain USING bloomidx (k, n) WITH (pages_per_range = 1);
INSERT INTO plain SELECT md5(i::text)::uuid, i, 'x' FROM generate_series(1, 20000) i;
REINDEX INDEX plain_i;
INSERT INTO plain SELECT md5(i::text)::uuid, i, repeat('y', 100) FROM generate_series(20001, 40000) i;
UPDATE plain SET pad = 'changed' WHERE n % 100 = 0;
DELETE FROM plain WHERE n % 7 = 0;
VACUUM plain;
INSERT INTO plain SELECT md5(i::text)::uuid, i, 'again' FROM generate_series(40001, 46000) i;
CREATE TABLE packed (k int, pad text);
INSERT INTO packed SELECT i / 10, repeat('x', 200) FROM generate_series(1, 1000) i;
CREATE INDEX packed_i ON packed USING bloomidx (k) WITH (layout = block);
INSERT INTO packed SELECT i / 10, repeat('x', 200) FROM generate_series(1001, 2000) i;
DELETE FROM packed WHERE k % 10 = 0;
CREATE TABLE small (k int);
CREATE INDEX small_i ON small USING bloomidx (k);
INSERT INTO small VALUES (1), (2), (NULL), (3);
CREATE TABLE empty (k int);
CREATE INDEX empty_i ON empty USING bloomidx (k);
CREATE TABLE options (k bigint);
INSERT INTO options SELECT i FROM generate_series(1, 2000) i;
CREATE INDEX options_i ON options USING bloomidx (k) WITH (pages_per_range = 4, false_positive_rate = 0.01);
CREATE UNLOGGED TABLE unlogged (k int);
CREATE INDEX unlogged_i ON unlogged USING bloomidx (k);
INSERT INTO unlogged SELECT i FROM generate_series(1, 2000) i;
CREATE TABLE partial (k int, pad text);
INSERT INTO partial SELECT i, repeat('x', 200) FROM generate_series(1, 4000) i;
CREATE INDEX partial_i ON partial USING bloomidx (k) WITH (pages_per_range = 1) WHERE k % 2 = 0;
CREATE TABLE expression (k text);
INSERT INTO expression SELECT 'Key ' || i FROM generate_series(1, 2000) i;
CREATE INDEX expression_i ON expression USING bloomidx (lower(k));
CREATE TABLE parted (k int, pad text) PARTITION BY RANGE (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (1000);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (1000) TO (10000);
CREATE INDEX parted_i ON parted USING bloomidx (k);
INSERT INTO parted SELECT i, 'x' FROM generate_series(1, 2000) i;
CREATE TABLE numbers (n numeric);
INSERT INTO numbers SELECT i / 7.0 FROM generate_series(1, 2000) i;
CREATE INDEX numbers_i ON numbers USING bloomidx (n);
CREATE TABLE documents (j jsonb);
INSERT INTO documents SELECT jsonb_build_object('a', i, 'b', ARRAY[i, 1.50]) FROM generate_series(1, 2000) i;
CREATE INDEX documents_i ON documents USING bloomidx (j);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE moods (m mood);
INSERT INTO moods SELECT unnest(enum_range(NULL::mood));
CREATE INDEX moods_i ON moods USING bloomidx (m);
CREATE TABLE strings (s char(20));
INSERT INTO strings SELECT 'string ' || i FROM generate_series(1, 2000) i;
CREATE INDEX strings_i ON strings USING bloomidx (s);
CREATE TABLE arrays (a text[]);
INSERT INTO arrays SELECT ARRAY[i::text, NULL, 'x'] FROM generate_series(1, 2000) i;
CREATE INDEX arrays_i ON arrays USING bloomidx (a);
CREATE TABLE ranges (r tstzrange);
INSERT INTO ranges SELECT tstzrange('2000-01-01Z', timestamptz '2000-01-02Z' + i * interval '1 s') FROM generate_series(1, 2000) i;
CREATE INDEX ranges_i ON ranges USING bloomidx (r);
-- indexes that could not be created any more
CREATE TYPE pair AS (a int, b text);
CREATE TABLE pairs (p pair);
CREATE INDEX pairs_i ON pairs USING bloomidx (p);
INSERT INTO pairs SELECT ROW(i, i)::pair FROM generate_series(1, 2000) i;
ALTER TYPE pair ADD ATTRIBUTE j json;
CREATE TABLE combined (a int, t text[]);
CREATE INDEX combined_i ON combined USING bloomidx (a, t array_elements_ops);
INSERT INTO combined SELECT i, ARRAY['x'] FROM generate_series(1, 2000) i;
ALTER INDEX combined_i SET (keys = all);
});

# Every row is found, on a server of either version.
sub all_found
{
	my ($node, $when, @tables) = @_;

	foreach my $table (@tables)
	{
		my ($column, $index, $rows, $predicate) = @{ $lookups{$table} };
		$predicate ||= 'true';
		is( $node->safe_psql('postgres',
				"SELECT oracle_lost_rows('$table', '$column', '$index', '$predicate'), count(*) >= $rows"
				  . " FROM $table WHERE $predicate"),
			'0|t',
			"$when: every row of $table is found through $index");
	}
	my $lookup = "SELECT count(*) FROM generate_series(1, 2000) i"
	  . " WHERE NOT EXISTS (SELECT FROM expression WHERE lower(k) = ''key '' || i OFFSET 0)";
	is( $node->safe_psql('postgres',
			"SELECT oracle_force(true); SELECT oracle_uses_index('$lookup', 'expression_i'); " . $lookup =~ s/''/'/gr),
		"\nt\n0",
		"$when: every row of expression is found through expression_i");
	return;
}

# Name => bytes of the main file of every index; the server must be down.
sub index_files
{
	my ($node, $paths) = @_;

	return map { $_ => slurp_file($node->data_dir . "/$paths->{$_}") } keys %$paths;
}

sub index_paths
{
	my ($node) = @_;
	my $list = $node->safe_psql('postgres',
			"SELECT c.relname || ' ' || pg_relation_filepath(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
		  . " WHERE amname = 'bloomidx' AND relkind = 'i'");

	return { map { split / / } split /\n/, $list };
}

my $definitions = "SELECT indexname, indexdef FROM pg_indexes WHERE indexdef LIKE '%USING bloomidx%' ORDER BY 1";
my @tables = sort keys %lookups;
all_found($old, 'before pg_upgrade', @tables);
my $old_definitions = $old->safe_psql('postgres', $definitions);
my $old_paths = index_paths($old);
cmp_ok(scalar keys %$old_paths, '>=', 15, 'there are indexes to upgrade');
# the hint bits of the heap, and the pages that nothing has written yet
$old->safe_psql('postgres', 'CHECKPOINT');
$old->stop;
my %old_files = index_files($old, $old_paths);

chomp(my $new_bindir = `pg_config --bindir`);

# --link last: the old cluster cannot be used after it.
foreach my $mode ('--copy', '--link')
{
	my $new = PostgreSQL::Test::Cluster->new("new$mode");
	my $when = "pg_upgrade $mode";

	# like the old one's; data checksums are the default since 18
	$new->init(`initdb --help` =~ /--no-data-checksums/ ? (extra => ['--no-data-checksums']) : ());
	$new->append_conf('postgresql.conf', "autovacuum = off\n");
	chdir $new->basedir or die "cannot enter " . $new->basedir;
	command_ok(
		[
			'pg_upgrade', '--no-sync',
			'-b', $ENV{OLD_BINDIR}, '-d', $old->data_dir, '-p', $old->port,
			'-B', $new_bindir, '-D', $new->data_dir, '-P', $new->port,
			'-s', $new->host, ($mode eq '--link' ? $mode : ())
		],
		"$when succeeds") or diag(map { "$_:\n" . slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*.log'));
	$new->start;
	is($new->safe_psql('postgres', $definitions), $old_definitions, "$when: indexes have the same definitions and options");
	my $paths = index_paths($new);
	$new->stop;
	my %files = index_files($new, $paths);
	is_deeply([ sort keys %files ], [ sort keys %old_files ], "$when: there are the same files");
	is(join(' ', grep { $files{$_} ne $old_files{$_} } sort keys %files), '', "$when: the files have the same bytes");
	$new->start;

	all_found($new, $when, @tables);
	is( $new->safe_psql('postgres', 'SELECT count(*) FROM empty WHERE k = 1'), '0', "$when: an empty index finds nothing");

	# They go on.  Since 16 an update that changes a key may be HOT.
	$new->safe_psql(
		'postgres', q{
INSERT INTO plain SELECT gen_random_uuid(), i, 'new' FROM generate_series(1, 5000) i;
UPDATE plain SET k = gen_random_uuid() WHERE n % 50 = 0;
INSERT INTO packed SELECT i, 'new' FROM generate_series(1, 1000) i;
INSERT INTO empty SELECT generate_series(1, 1000);
INSERT INTO unlogged SELECT generate_series(2001, 4000);
INSERT INTO partial SELECT i FROM generate_series(4001, 6000) i;
UPDATE numbers SET n = -n;
VACUUM (ANALYZE);
});
	all_found($new, "$when, changed", @tables);
	is($new->safe_psql('postgres', "SELECT oracle_lost_rows('empty', 'k', 'empty_i')"),
		'0', "$when: rows that are inserted into the empty index are found");

	# After a crash an unlogged index starts from its init fork, which pg_upgrade has made anew.
	$new->stop('immediate');
	$new->start;
	is($new->safe_psql('postgres', 'SELECT count(*) FROM unlogged'), '0', "$when: the unlogged table is empty after a crash");
	$new->safe_psql('postgres', 'INSERT INTO unlogged SELECT generate_series(1, 2000)');
	all_found($new, "$when, after a crash", @tables);
	log_is_clean($new, $when);
	$new->stop;
}
done_testing();
