# A value of many megabytes with as many keys: an INSERT needs memory that is in proportion to the value, can be cancelled,
# and its row is found.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $megabytes = 8;
my $node = new_node('large_value', conf => "shared_buffers = 32MB\n");

sub sql { return $node->safe_psql('postgres', join ';', @_); }

# Four digits have few n-grams, and twelve have as many as the value has characters.
sql("CREATE TABLE source AS SELECT string_agg(md5(i::text), '') AS value FROM generate_series(1, $megabytes * 32768) i",
	"CREATE TABLE few (id int, value text)",
	"CREATE TABLE many (id int, value text)",
	"CREATE TABLE tags (id int, value text[])",
	"ALTER TABLE few ALTER value SET STORAGE external",
	"ALTER TABLE many ALTER value SET STORAGE external",
	"CREATE INDEX few_value ON few " . using_index('value text_ngram_ops', pages_per_range => 1),
	"CREATE INDEX many_value ON many " . using_index('value text_ngram_ops(n = 12)', pages_per_range => 1),
	"CREATE INDEX tags_value ON tags " . using_index('value array_elements_ops', pages_per_range => 1));

# The most memory that a new session has needed for a statement, in kB; undef if the system does not tell.  A session that
# runs a similar statement without the index is the measure.
sub memory_of
{
	my ($statement) = @_;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $status;

	$session->set_query_timer_restart();
	$session->query_safe($statement);
	$status = -r "/proc/$pid/status" ? slurp_file("/proc/$pid/status") : '';
	$session->quit;
	return $status =~ /^VmHWM:\s+(\d+) kB/m ? $1 : undef;
}

sql('CREATE TABLE plain (id int, value text)', 'ALTER TABLE plain ALTER value SET STORAGE external');
my $plain = memory_of('INSERT INTO plain SELECT 1, value FROM source');
foreach my $case ([ 'few', 10 ], [ 'many', 30 ])
{
	my ($table, $factor) = @$case;
	my $memory = memory_of("INSERT INTO $table SELECT 1, value FROM source");

  SKIP:
	{
		skip 'the memory of a process is not known', 1 if !defined $memory || !defined $plain;
		cmp_ok($memory - $plain, '<', $factor * $megabytes * 1024,
			"$table distinct keys: less than $factor times the size of the value as memory");
	}
	sql("INSERT INTO $table SELECT 2 + i, md5('other' || i) FROM generate_series(1, 500) i");
	foreach my $i (1, 7777, $megabytes * 32768)
	{
		is(sql("SET enable_seqscan = off; SELECT id FROM $table WHERE value LIKE '%' || md5('$i') || '%'"),
			'1', "$table distinct keys: the value is found by part $i");
	}
	is(sql("SELECT bloomidx_check('${table}_value')"), '501', "$table distinct keys: the index is good");
}
sql("INSERT INTO tags SELECT 1, array_agg('tag' || i % 200000) FROM generate_series(1, 400000) i");
is(sql("SET enable_seqscan = off; SELECT id FROM tags WHERE value \@> '{tag0,tag17,tag199999}'"), '1', 'an array with many elements is found');
is(sql("SELECT bloomidx_check('tags_value')"), '1', 'its index is good');

# At any time the statement ends soon after its time limit, and leaves nothing behind that is wrong.
sub cancel_after
{
	my ($table, $milliseconds) = @_;
	my $start = time;
	my ($status, undef, $stderr) = $node->psql('postgres',
		"SET statement_timeout = $milliseconds; INSERT INTO $table SELECT 0, value || 'x' || value FROM source");
	my $seconds = time - $start - $milliseconds / 1000;

	# a fast machine may finish
	like($stderr, $status ? qr/canceling statement due to statement timeout/ : qr/^$/, "$table: cancelled after $milliseconds ms, or finished");
	cmp_ok($seconds, '<', 3, "$table: ends within 3 s after a time limit of $milliseconds ms");
	return $status != 0;
}
my $cancelled = grep { $_ } map { my $ms = $_; map { cancel_after($_, $ms) } 'few', 'many' } 300, 1000, 2500;
cmp_ok($cancelled, '>', 0, 'statements were cancelled');
log_is_clean($node, 'at the end');
$node->stop;
done_testing();
