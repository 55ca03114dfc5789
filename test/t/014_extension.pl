# The extension as an object: every way to update it leads to what a fresh installation has; it and its indexes survive
# a dump, also from another schema.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('extension');
$node->init;
$node->start;

# All that is in a database, with the members of its extensions, which pg_dump only shows for pg_upgrade.  Left out is
# what differs between two equal databases: numbers of objects, keys against restoring by accident.
sub contents
{
	my ($dbname) = @_;
	my ($stdout, $stderr) = run_command([ 'pg_dump', '-s', '--binary-upgrade', '-d', $node->connstr($dbname) ]);

	die $stderr if $stderr;
	return grep { !/^\\(un)?restrict |binary_upgrade_set_next_/ } split /\n/, $stdout;
}

# The lines that only one of two lists has.
sub difference
{
	my ($first, $second) = @_;
	my %count;

	$count{$_}++ foreach @$first;
	$count{$_}-- foreach @$second;
	return join "\n", map { ($count{$_} > 0 ? '-' : '+') . $_ } grep { $count{$_} != 0 } sort keys %count;
}

# source version => what differs after an update of it to the default version from installing that at once
sub compare_updates
{
	my ($extension) = @_;
	my $default =
	  $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = '$extension'");
	my @sources = split /\n/, $node->safe_psql('postgres',
		"SELECT source FROM pg_extension_update_paths('$extension') WHERE target = '$default' AND path IS NOT NULL");
	my %differences;

	$node->safe_psql('postgres', 'CREATE DATABASE fresh');
	$node->safe_psql('fresh', "CREATE EXTENSION $extension");
	my @fresh = contents('fresh');
	foreach my $source (@sources)
	{
		$node->safe_psql('postgres', 'CREATE DATABASE updated');
		$node->safe_psql('updated',
			"CREATE EXTENSION $extension VERSION '$source'; ALTER EXTENSION $extension UPDATE TO '$default'");
		$differences{$source} = difference(\@fresh, [ contents('updated') ]);
		$node->safe_psql('postgres', 'DROP DATABASE updated');
	}
	$node->safe_psql('postgres', 'DROP DATABASE fresh');
	like(join("\n", @fresh), qr/ALTER EXTENSION "?$extension"? ADD FUNCTION/, "the dump shows the members of $extension");
	return \%differences;
}

my $updates = compare_updates('bloomidx');
note 'versions of bloomidx that can be updated: ' . (join(', ', sort keys %$updates) || 'none yet');
is(join("\n", grep { $_ } values %$updates), '', 'every update of bloomidx equals a fresh installation');

# That this comparison can fail: an extension with one good update, and some that each forget something.
chomp(my $dir = `pg_config --sharedir`);
$dir .= '/extension';
SKIP:
{
	skip "cannot write in $dir", 3 if !-w $dir;

	my %step = (
		body => "CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 2';\n",
		attribute => "ALTER FUNCTION f(int) IMMUTABLE;\n",
		new => "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 3';\n",
		comment => "COMMENT ON FUNCTION f(int) IS 'two';\n",
		grant => "REVOKE ALL ON FUNCTION f(int) FROM PUBLIC;\n",
		view => "CREATE VIEW v AS SELECT f(1) AS column_of_v;\n");
	my $old = "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';\n";
	my @order = ('body', 'attribute', 'new', 'comment', 'grant', 'view');
	my %script = (
		'.control' => "default_version = 'new'\nrelocatable = true\n",
		'--new.sql' => $old . join('', @step{@order}),
		'--good.sql' => $old,
		'--good--new.sql' => join('', @step{@order}));

	foreach my $forgotten (@order)
	{
		$script{"--no_$forgotten.sql"} = $old;
		$script{"--no_$forgotten--new.sql"} = join '', @step{ grep { $_ ne $forgotten } @order };
	}
	$script{'--no_member.sql'} = $old;
	$script{'--no_member--new.sql'} = join('', @step{@order}) . "ALTER EXTENSION bloomidx_updates DROP VIEW v;\n";

	append_to_file("$dir/bloomidx_updates$_", $script{$_}) foreach keys %script;
	my $differences = compare_updates('bloomidx_updates');
	unlink map { "$dir/bloomidx_updates$_" } keys %script;
	is(delete $differences->{good}, '', 'an update that is right leaves no difference');
	is(join(' ', grep { $differences->{$_} } sort keys %$differences),
		join(' ', map { "no_$_" } sort @order, 'member'), 'an update that forgets something leaves a difference');
}

# \dx+, \df+, \dAc+ and the like explain every object.
my @companions = grep {
	$node->safe_psql('postgres', "SELECT bool_and(EXISTS (SELECT FROM pg_available_extensions a WHERE a.name = r))"
		  . " FROM pg_available_extension_versions, unnest(requires) r WHERE name = '$_'") eq 't'
} map { "bloomidx_$_" } qw(citext hstore intarray trgm);
my $uncommented = q{
SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname LIKE 'bloomidx%'
	AND obj_description(d.objid, d.classid::regclass::name) IS NULL};
$node->safe_psql('postgres', 'CREATE DATABASE commented');
$node->safe_psql('commented', "CREATE EXTENSION $_ CASCADE") foreach 'bloomidx', @companions;
is($node->safe_psql('commented', $uncommented), '', "every object of bloomidx, @companions has a comment");
$node->safe_psql('commented', 'COMMENT ON ACCESS METHOD bloomidx IS NULL; COMMENT ON OPERATOR CLASS uuid_ops USING bloomidx IS NULL');
is($node->safe_psql('commented', "$uncommented ORDER BY 1"), "access method bloomidx\noperator class uuid_ops for access method bloomidx",
	'a missing comment is found');
$node->safe_psql('postgres', 'DROP DATABASE commented');

# Dump and restore, with the extension in public and elsewhere.  A schema that is not in the search_path makes pg_dump
# name everything in full.
my $definitions = q{
SELECT c.relname, pg_get_indexdef(i.indexrelid), c.reloptions
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND amname = 'bloomidx' ORDER BY 1};

$node->safe_psql('postgres', 'CREATE DATABASE original');
install_oracle($node, 'original');
$node->safe_psql(
	'original', q{
CREATE TABLE t (k int, s text COLLATE "C", u uuid, m varchar(10), b int) WITH (fillfactor = 20);
INSERT INTO t SELECT i, 'Key ' || i, md5(i::text)::uuid, i, i / 20 FROM generate_series(1, 5000) i;
CREATE INDEX t_plain ON t USING bloomidx (k);
CREATE INDEX t_options ON t USING bloomidx (u) WITH (pages_per_range = 2, false_positive_rate = 0.005, layout = partitioned);
CREATE INDEX t_partial ON t USING bloomidx (m) WITH (pages_per_range = '1') WHERE k > 100;
CREATE INDEX t_opclass ON t USING bloomidx (s text_ops, (lower(s)) COLLATE "C");
CREATE INDEX t_block ON t USING bloomidx (b) WITH (layout = block);
ALTER INDEX t_plain SET (false_positive_rate = 0.01);
CREATE TABLE p (k int, v text) PARTITION BY HASH (k);
CREATE TABLE p0 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO p SELECT i, i FROM generate_series(1, 2000) i;
CREATE INDEX p_i ON p USING bloomidx (v) WITH (pages_per_range = 1);
});
foreach my $schema ('public', 'elsewhere')
{
	if ($schema ne 'public')
	{
		$node->safe_psql('original', "CREATE SCHEMA $schema; ALTER EXTENSION bloomidx SET SCHEMA $schema");
	}
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	my $dump = $node->basedir . "/$schema.dump";
	command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('original') ], "$schema: pg_dump succeeds");
	command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $dump ], "$schema: pg_restore succeeds");
	my $original = $node->safe_psql('original', $definitions);
	is(scalar(split /\n/, $original), 8, "$schema: all indexes are in the original database");
	is($node->safe_psql('restored', $definitions),
		$original, "$schema: restored indexes have the same definitions and options");
	is( $node->safe_psql('restored',
			"SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'bloomidx'"),
		$schema, "$schema: the extension is restored to its schema");
	foreach my $db ('original', 'restored')
	{
		is( $node->safe_psql($db, q{
SELECT oracle_lost_rows('t', 'k', 't_plain'), oracle_lost_rows('t', 'u', 't_options'),
	oracle_lost_rows('t', 'm', 't_partial', 'k > 100'), oracle_lost_rows('t', 's', 't_opclass'),
	oracle_lost_rows('t', 'b', 't_block'), oracle_lost_rows('p', 'v', 'p'), (SELECT count(*) FROM t), (SELECT count(*) FROM p)}),
			'0|0|0|0|0|0|5000|2000', "$schema: all rows are found in the $db database");
	}
	$node->safe_psql('postgres', 'DROP DATABASE restored');
}
log_is_clean($node, 'extension');
$node->stop;
done_testing();
