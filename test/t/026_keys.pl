# Differential test of indexes on several columns, with each value of option "keys": every query is answered by a bitmap
# scan and an index scan of the index and by a sequential scan, and the three must agree.
#
#   BLOOMIDX_SEED     seed of the whole run (printed at the start)
#   BLOOMIDX_QUERIES  about how many queries to compare (6,000)
#
# The columns have few values, so that most queries find rows, and NULLs in all places.  Rows come before the index and
# after it; some are updated, moved or deleted, and VACUUM or bloomidx_summarize() rebuilds filters.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = defined $ENV{BLOOMIDX_SEED} ? int $ENV{BLOOMIDX_SEED} : int(rand(1_000_000_000));
my $wanted = $ENV{BLOOMIDX_QUERIES} || 6_000;
note "BLOOMIDX_SEED=$seed BLOOMIDX_QUERIES=$wanted";
srand($seed);

sub between { my ($low, $high) = @_; return $low + int(rand($high - $low + 1)); }
sub pick { return $_[ int(rand(scalar @_)) ]; }
sub percent { return rand(100) < $_[0]; }

# Values of the columns, as SQL constants, by number.
my %values = (
	a => sub { return $_[0]; },
	b => sub { return "'Value $_[0]'"; },
	c => sub { return pick("$_[0].50", "$_[0].5"); },
	d => sub { return "'" . pick('x', 'X') . "$_[0]'"; });

# The indexes: their columns, each as an expression and the values that it may be compared with, and the rest.
my $lower = sub { return "'value $_[0]'"; };
my $remainder = sub { return $_[0] % 7; };
my @indexes = (
	{ columns => 'a, b', parts => [ [ 'a', $values{a}, 60 ], [ 'b', $values{b}, 50 ] ] },
	{ columns => 'b, c, a', parts => [ [ 'b', $values{b}, 50 ], [ 'c', $values{c}, 40 ], [ 'a', $values{a}, 60 ] ] },
	{ columns => 'c, d', parts => [ [ 'c', $values{c}, 40 ], [ 'd', $values{d}, 30 ] ] },
	{ columns => 'lower(b), a', parts => [ [ 'lower(b)', $lower, 50 ], [ 'a', $values{a}, 60 ] ] },
	{ columns => 'a, (id % 7)', parts => [ [ 'a', $values{a}, 60 ], [ '(id % 7)', $remainder, 7 ] ] },
	{
		columns => 'a, b', where => 'c > 20',
		parts => [ [ 'a', $values{a}, 60 ], [ 'b', $values{b}, 50 ] ]
	});

# A condition on a part of an index.  A list may be so long that two of them cannot be multiplied out.
sub condition
{
	my ($expression, $value, $count) = @{ $_[0] };
	my $one = sub { return $value->(between(1, $count + 2)); };
	my $kind = between(1, 100);

	return "$expression IS NULL" if $kind <= 8;
	return "$expression IS NOT NULL" if $kind <= 14;
	return "$expression IN (" . join(', ', map { percent(5) ? 'NULL' : $one->() } 1 .. between(2, 8)) . ')' if $kind <= 35;
	return "$expression = ANY (ARRAY[" . join(', ', map { $value->($_) } 1 .. $count) . '])' if $kind <= 39;
	return "$expression = ANY (ARRAY(SELECT generate_series(-400, 10)))" if $kind <= 44 && $expression eq 'a';
	return "$expression = " . $one->() . '::' . pick('int2', 'int8') if $kind <= 55 && $expression eq 'a';
	return "$expression = $count AND $expression IN (1, $count)" if $kind <= 58 && $expression eq 'a';
	return "$expression = " . $one->();
}

# A query that gives all columns, some of them, or one.
sub query
{
	my ($index) = @_;
	my @parts = @{ $index->{parts} };
	my $all = percent(60);
	my @conditions = map { $all || percent(55) ? condition($_) : () } @parts;

	@conditions = (condition(pick(@parts))) if !@conditions;
	push @conditions, $index->{where} if $index->{where};
	return 'SELECT count(*), sum(hashtid(ctid)::numeric) FROM t WHERE ' . join(' AND ', @conditions);
}

# SQL of a random value of a column for a new row.
sub random_value { my ($column, $nulls) = @_; return "CASE WHEN random() < $nulls THEN NULL ELSE " . {
		a => '1 + floor(random() * 60)::int',
		b => q{'Value ' || 1 + floor(random() * 50)::int},
		c => '1 + floor(random() * 40)::int + 0.5',
		d => q{CASE WHEN random() < 0.5 THEN 'x' ELSE 'X' END || 1 + floor(random() * 30)::int} }->{$column} . ' END'; }

sub insert_rows
{
	my ($from, $to) = @_;
	my $nulls = pick(0, 0.1, 0.1, 0.6);
	return "INSERT INTO t SELECT i, " . join(', ', map { random_value($_, $nulls) } qw(a b c d))
	  . ", repeat('x', 300) FROM generate_series($from, $to) i;";
}

# The rows change in different ways, with the index there.
sub changes
{
	my $last = 4000;
	my @statements = (insert_rows(2001, 2500));

	push @statements, pick(
		'UPDATE t SET b = b || 0 WHERE id % 9 = 0; UPDATE t SET a = 61 - a WHERE id % 10 = 0;',
		'DELETE FROM t WHERE id % 3 = 0; VACUUM t;' . insert_rows(2501, 3000) . 'VACUUM t;',
		'BEGIN;' . insert_rows(2501, 3000) . 'ROLLBACK;' . insert_rows(2501, 2600),
		insert_rows(2501, $last) . "SELECT bloomidx_summarize('t_i');",
		'DELETE FROM t WHERE id > 1500; VACUUM t; REINDEX INDEX CONCURRENTLY t_i;');
	return join("\n", @statements);
}

sub compare
{
	my ($node, $index, $n, $what) = @_;
	my $queries = join(', ', map { '$q$' . query($index) . '$q$' } 1 .. $n);
	my @lines = split /\n/, $node->safe_psql('postgres',
		"SELECT * FROM oracle_compare('t_i', array_fill(NULL::text, ARRAY[$n]), ARRAY[$queries], array_fill(true, ARRAY[$n]))");
	my (undef, $compared, $used, $hits) = split /\|/, shift @lines;

	is(join("\n", @lines), '', "$what: $compared queries are answered as by a sequential scan");
	ok($used == $n && $hits > $n / 10, "$what: $used by the index, $hits with rows");
	report('queries compared', $compared);
	return;
}

my $node = new_node('keys', init => [ extra => [ '--no-locale', '-E', 'UTF8' ] ], conf => "work_mem = 64MB\n");
my $icu = $node->safe_psql('postgres', "SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'") > 0;

# under this collation strings are equal without regard to case, if there is ICU
my $collation = $icu ? 'COLLATE ignore_case' : '';
$node->safe_psql('postgres', q{CREATE COLLATION ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)}) if $icu;
$node->safe_psql('postgres', 'CREATE DOMAIN posint AS int CHECK (VALUE > 0)');

my $each = int($wanted / (3 * 2 * @indexes)) || 1;
foreach my $keys (qw(each all both))
{
	foreach my $index (@indexes)
	{
		my $where = $index->{where} ? " WHERE $index->{where}" : '';
		my $what = "keys = $keys, ($index->{columns})$where";
		my $using = using_index($index->{columns}, keys => $keys, pages_per_range => pick(1, 1, 4));

		$node->safe_psql('postgres', "DROP TABLE IF EXISTS t;
			CREATE TABLE t (id int, a posint, b text, c numeric, d text $collation, pad text) WITH (fillfactor = 80);"
			  . (percent(70) ? insert_rows(1, 2000) . "CREATE INDEX t_i ON t $using$where;" : "CREATE INDEX t_i ON t $using$where;" . insert_rows(1, 2000))
			  . 'ANALYZE t;');
		compare($node, $index, $each, $what);
		$node->safe_psql('postgres', changes());
		compare($node, $index, $each, "$what, after changes");
		is($node->safe_psql('postgres', "SELECT row_keys, bloomidx_check('t_i') >= 0 FROM bloomidx_info('t_i')"), "$keys|t",
			"$what: the index is good");
	}
}

# Without being forced, a query on some of the columns does not use an index of combined keys alone.
$node->safe_psql('postgres', 'DROP TABLE t; CREATE TABLE t (id int, a posint, b text, c numeric, d text, pad text);'
	  . insert_rows(1, 20000) . 'CREATE INDEX t_i ON t ' . using_index('a, b, c', keys => 'all') . '; VACUUM ANALYZE t;');
is($node->safe_psql('postgres', qq{
	SELECT oracle_uses_index('SELECT * FROM t WHERE ' || condition, 't_i')
	FROM unnest(ARRAY['a = 1 AND b = ''Value 1'' AND c = 1.5', 'a = 1 AND b = ''Value 1''', 'a = 1 AND c = 1.5', 'c = 1.5']) condition}),
	"t\nf\nf\nf", 'keys = all: the index is used for all columns, and not for some');

log_is_clean($node, 'keys');
$node->stop;
done_testing();
