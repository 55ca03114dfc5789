# Exclusion constraints under load: clients add, change and delete rows with colliding keys, while the table is vacuumed and
# its indexes are rebuilt, and the server is killed.  There are never two live rows with equal keys, ON CONFLICT DO NOTHING
# never fails, and every row is found.
#
#   BLOOMIDX_CONFLICT_KILLS  number of rounds (2)
#   BLOOMIDX_SECONDS         duration of each (5)
#
# The same load runs on a table with a GiST exclusion constraint, to compare deadlocks: with GiST, two transactions that insert
# equal keys without ON CONFLICT may insert first and then wait for each other.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $rounds = $ENV{BLOOMIDX_CONFLICT_KILLS} || 2;
my $seconds = $ENV{BLOOMIDX_SECONDS} || 5;
my $keys = 400;
my $node = new_node('exclusion', conf => "deadlock_timeout = 20ms\nmax_prepared_transactions = 2\n");

# What clients do to one table.  Rows are wide enough for many ranges, and leave room for HOT updates.  A plain INSERT or
# UPDATE may fail by the constraint, or by a deadlock, which is counted.
sub create_table
{
	my ($table, $constraint) = @_;
	$node->safe_psql(
		'postgres', qq{
CREATE TABLE $table (k int, n int DEFAULT 0, pad text DEFAULT repeat('x', 300), CONSTRAINT ${table}_k $constraint)
	WITH (fillfactor = 70);
CREATE INDEX ${table}_n ON $table @{[ using_index('n', pages_per_range => 1) ]};
CREATE TABLE ${table}_failures (reason text);
CREATE FUNCTION ${table}_try(statement text) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	EXECUTE statement;
EXCEPTION
	WHEN exclusion_violation OR deadlock_detected THEN INSERT INTO ${table}_failures VALUES (SQLSTATE);
END \$\$});
	return;
}

sub scripts
{
	my ($table) = @_;
	my $set = "\\set k random(1, $keys)\n\\set other random(1, $keys)\n";
	return (
		"${table}_insert" => [ 4, "${set}SELECT ${table}_try('INSERT INTO $table VALUES (:k)');\n" ],
		"${table}_ingest" => [ 8, "${set}INSERT INTO $table VALUES (:k) ON CONFLICT DO NOTHING;\n" ],
		"${table}_delete" => [ 5, "${set}DELETE FROM $table WHERE k = :k;\n" ],
		"${table}_move" => [ 2, "${set}SELECT ${table}_try('UPDATE $table SET k = :other WHERE k = :k');\n" ],
		"${table}_touch" => [ 4, "${set}SELECT ${table}_try('UPDATE $table SET n = n + 1 WHERE k = :k');\n" ],
		"${table}_undo" => [ 1, "${set}BEGIN;\nINSERT INTO $table VALUES (:k) ON CONFLICT DO NOTHING;\nROLLBACK;\n" ],
		# a statement's snapshot has all rows of a moment
		"${table}_verify" => [ 1, "SET enable_indexscan = off; SET enable_bitmapscan = off;\n"
			  . "SELECT 1 / (count(*) = count(DISTINCT k))::int FROM $table;\n"
			  . "RESET enable_indexscan; RESET enable_bitmapscan;\n" ],
	);
}

sub counted
{
	my ($table, $reason) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM ${table}_failures WHERE reason = '$reason'");
}

create_table('bloom', 'EXCLUDE ' . using_index('k WITH =', pages_per_range => 1));
create_table('gist', q{EXCLUDE USING gist (int4range(k, k, '[]') WITH =)});

# A partitioned table, whose constraint must include the partition key.
SKIP:
{
	skip 'there are no exclusion constraints on partitioned tables before PostgreSQL 17', 2 if server_version($node) < 17;
	$node->safe_psql('postgres', "CREATE TABLE parts (k int, n int, EXCLUDE @{[ using_index('k WITH =') ]}) PARTITION BY HASH (k);"
		  . join '', map { "CREATE TABLE part$_ PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER $_);" } 0 .. 2);
	$node->safe_psql('postgres', 'INSERT INTO parts SELECT generate_series(1, 1000)');
	is($node->safe_psql('postgres', 'INSERT INTO parts SELECT generate_series(500, 1500) ON CONFLICT DO NOTHING;'
			  . 'SELECT count(*), count(DISTINCT k) FROM parts'),
		'1500|1500', 'a constraint on a partitioned table finds duplicates in all partitions');
	my (undef, undef, $stderr) = $node->psql('postgres', 'UPDATE parts SET k = 1500 WHERE k = 1');
	like($stderr, qr/violates exclusion constraint/, 'a row that moves to another partition is checked');
}

# A deferrable constraint is refused: since PostgreSQL 16 the server would not check HOT updates.
my ($status, undef, $refused) = $node->psql('postgres', qq{
CREATE TABLE later (k int, n int, CONSTRAINT c EXCLUDE @{[ using_index('k WITH =') ]} DEFERRABLE) WITH (fillfactor = 30)});
like($refused, qr/does not support deferrable exclusion constraints/, 'a deferrable constraint is refused');

# Two transactions put rows with equal keys on the same heap page, and the insert of the first into the index waits, in the
# expression of another index.  If the second finds no row with its key in the filter, it does not look for the row of the
# first; if the filter has the key, because there was a row with the key before, it finds the row of the first, but not the
# key registered.  In both cases it does not wait.  The check of the first finds the row of the second, whose transaction ends
# first.
$node->safe_psql('postgres', q{
CREATE FUNCTION wait_if_asked(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM pg_advisory_lock_shared(4711) WHERE current_setting('test.waits', true) = 'on';
	RETURN $1;
END $$});

foreach my $constraint ('k WITH =', 'k WITH =, n WITH =', 'k WITH =, n WITH =, k WITH =, n WITH =')
{
	foreach my $keys ($constraint =~ /n/ ? qw(all both) : 'both')
	{
		foreach my $case ([ '', '' ], [ ' ON CONFLICT DO NOTHING', '' ], [ '', 'BEGIN; INSERT INTO same_page VALUES (100); ROLLBACK' ])
		{
			my ($clause, $before) = @$case;
			my $what = "EXCLUDE ($constraint), keys = $keys, INSERT$clause" . ($before ? ', after a row that was rolled back' : '');
			$node->safe_psql('postgres', qq{
DROP TABLE IF EXISTS same_page;
CREATE TABLE same_page (k int, n int DEFAULT 0);
INSERT INTO same_page SELECT generate_series(1, 20);
CREATE INDEX ON same_page (wait_if_asked(k));
ALTER TABLE same_page ADD CONSTRAINT same_page_k EXCLUDE @{[ using_index($constraint, pages_per_range => 1, keys => $keys) ]}});
			$node->safe_psql('postgres', $before) if $before;
			my $gate = $node->background_psql('postgres');
			$gate->query_safe('SELECT pg_advisory_lock(4711)');
			my $first = start_statement($node, "SET test.waits = on; INSERT INTO same_page VALUES (100)$clause");
			$node->poll_query_until('postgres',
				"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted")
			  or die 'the first insert does not wait';

			my $second = $node->background_psql('postgres');
			$second->query_safe('SET lock_timeout = 5000; BEGIN; INSERT INTO same_page VALUES (100)');
			pass("$what: an insert does not wait for a row on the same page that is not in the index yet");
			$gate->query_safe('SELECT pg_advisory_unlock(4711)');
			$second->query_safe('COMMIT');
			$first->quit;
			$second->quit;
			$gate->quit;
			is($node->safe_psql('postgres', 'SELECT count(*) FROM same_page WHERE k = 100'),
				1, "$what: the check of the row that was on the page first finds the other");

			# rows of the same statement and of the same transaction are found
			is( $node->safe_psql('postgres', "INSERT INTO same_page VALUES (200), (200), (201) ON CONFLICT DO NOTHING;"
					  . "SELECT count(*) FROM same_page WHERE k >= 200"),
				2, "$what: a row of the same statement is found");
			is( $node->safe_psql('postgres', "BEGIN; SAVEPOINT s; INSERT INTO same_page VALUES (300); ROLLBACK TO s;"
					  . "INSERT INTO same_page VALUES (300); INSERT INTO same_page VALUES (300) ON CONFLICT DO NOTHING; COMMIT;"
					  . "SELECT count(*) FROM same_page WHERE k = 300"),
				1, "$what: a row of the same transaction is found, and a row that was rolled back is not");
		}
	}
}

# A row of a transaction in progress is found from the moment when its insert has ended, whatever the transaction did before and
# after.  Each case is what the other transaction does, and the key that then must wait for it.
my $many = join '', map { "INSERT INTO found VALUES ($_);" } 500 .. 540;
my @cases = (
	[ 'a row', 'INSERT INTO found VALUES (100)', 100 ],
	[ 'a row of a subtransaction', 'SAVEPOINT s; INSERT INTO found VALUES (100); RELEASE s', 100 ],
	[ 'a row, and its second insert was rolled back',
		'INSERT INTO found VALUES (100); SAVEPOINT s; DELETE FROM found WHERE k = 100; INSERT INTO found VALUES (100); ROLLBACK TO s', 100 ],
	[ 'a row that replaces one that was rolled back',
		'SAVEPOINT s; INSERT INTO found VALUES (100); ROLLBACK TO s; INSERT INTO found VALUES (100)', 100 ],
	[ 'a row that was updated', 'INSERT INTO found VALUES (100); UPDATE found SET n = 1 WHERE k = 100', 100 ],
	[ 'a row that was moved', 'UPDATE found SET k = 100 WHERE k = 7', 100 ],
	[ 'the key of a row that was moved', 'UPDATE found SET k = 100 WHERE k = 7', 7 ],
	[ 'the key of a row that was changed', 'UPDATE found SET n = 1 WHERE k = 7', 7 ],
	[ 'the first row of many', $many, 500 ],
	[ 'the last row of many', $many, 540 ],
	[ 'a row of one statement with many', 'INSERT INTO found SELECT generate_series(500, 600)', 577 ],
	[ 'a row of a cursor that failed later, in a subtransaction',
		'DECLARE c CURSOR FOR SELECT found_insert(x) FROM (VALUES (100), (0)) v (x); FETCH 1 FROM c; '
		  . 'DO $$ BEGIN EXECUTE $f$FETCH 1 FROM c$f$; EXCEPTION WHEN division_by_zero THEN NULL; END $$', 100 ],
	[ 'a row of a prepared transaction', q{INSERT INTO found VALUES (100); PREPARE TRANSACTION 'p'}, 100 ]);

$node->safe_psql('postgres', "CREATE TABLE found (k int, n int DEFAULT 0, EXCLUDE @{[ using_index('k WITH =', pages_per_range => 1) ]});
CREATE INDEX ON found (n);
CREATE FUNCTION found_insert(x int) RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO found VALUES (x); RETURN 1 / x; END';
BEGIN; INSERT INTO found SELECT generate_series(1, 600); ROLLBACK; INSERT INTO found SELECT generate_series(1, 20)");
foreach my $case (@cases)
{
	my ($what, $statements, $key) = @$case;
	my $other = $node->background_psql('postgres');
	$other->query_safe("BEGIN; $statements");
	my (undef, undef, $stderr) = $node->psql('postgres', "SET lock_timeout = 300; INSERT INTO found VALUES ($key)");
	like($stderr, qr/lock timeout/, "an insert waits for a transaction in progress: $what");
	is($node->safe_psql('postgres', "SET lock_timeout = 5000; INSERT INTO found VALUES ($key + 1000) RETURNING k"),
		$key + 1000, "an insert of another key does not wait: $what");
	$other->query_safe($what =~ /prepared/ ? q{ROLLBACK PREPARED 'p'} : 'ROLLBACK');
	$other->quit;
	$node->safe_psql('postgres', 'DELETE FROM found WHERE k > 20');
}
is( $node->safe_psql('postgres', q{BEGIN; INSERT INTO found SELECT generate_series(1000, 1999); SAVEPOINT s;
INSERT INTO found SELECT generate_series(2000, 2999); ROLLBACK TO s; INSERT INTO found SELECT generate_series(2000, 2999);
SELECT count(*) <= 18 FROM pg_locks WHERE classid = 'found_k_excl'::regclass AND locktype = 'object';
SELECT count(*) > 1 FROM pg_locks WHERE classid = 'found_k_excl'::regclass AND locktype = 'object'; COMMIT}),
	"t\nt", 'a transaction with many rows has few locks');

# Dead rows whose keys cannot be computed make the check of a new constraint slow, and CREATE INDEX says so.
$node->safe_psql('postgres', 'CREATE TABLE dead (k text) WITH (autovacuum_enabled = off); INSERT INTO dead SELECT i FROM generate_series(1, 500) i; DELETE FROM dead WHERE k = $$7$$');
my $alter = qq{ALTER TABLE dead ADD CONSTRAINT dead_k EXCLUDE @{[ using_index('(lower(k)) WITH =') ]}};
my $holder = old_snapshot($node);
$node->safe_psql('postgres', 'DELETE FROM dead WHERE k = $$8$$');
(undef, undef, my $warned) = $node->psql('postgres', $alter);
like($warned, qr/WARNING:  checking exclusion constraint "dead_k" may take a very long time, because the table has dead rows/, 'dead rows: there is a warning');
like($warned, qr/HINT:  Cancel the command, run VACUUM/, 'dead rows: the hint says what to do');
$holder->quit;
$node->safe_psql('postgres', 'ALTER TABLE dead DROP CONSTRAINT dead_k; VACUUM dead');
(undef, undef, $warned) = $node->psql('postgres', $alter);
is($warned, '', 'dead rows: there is no warning after VACUUM');

# Another session in the background, which vacuums and rebuilds.  An index of a constraint cannot be rebuilt concurrently.
my @maintenance = ('VACUUM bloom', 'REINDEX INDEX CONCURRENTLY bloom_n', 'VACUUM (INDEX_CLEANUP ON) bloom', 'REINDEX INDEX bloom_k',
	q{SELECT bloomidx_summarize('bloom_k')}, 'VACUUM FULL bloom', 'CHECKPOINT', 'VACUUM gist', 'REINDEX INDEX gist_k');

foreach my $round (1 .. $rounds)
{
	my $what = "round $round";
	my $clients = start_pgbench($node, { scripts('bloom'), scripts('gist') }, '-c', 8, '-j', 2, '-T', 3600);
	my $end = time + $seconds;
	my $done = 0;
	my @failed;

	while (time < $end)
	{
		my $statement = $maintenance[ $done++ % @maintenance ];
		my ($status, undef, $stderr) = $node->psql('postgres', $statement);
		push @failed, "$statement: $stderr" if $status != 0 && $stderr !~ /deadlock detected|could not obtain lock/;
		usleep(100_000);
	}
	is(join("\n", @failed), '', "$what: $done commands of maintenance, and none fails");
	kill9_all($node);
	$clients->{harness}->finish;
	# so the scripts that do not try have not failed either
	unlike($clients->{stderr}, qr/ERROR:/, "$what: ON CONFLICT DO NOTHING does not fail, and no client sees two equal keys");

	$node->start;
	is( $node->safe_psql('postgres', 'SELECT count(*) > 10, count(*) - count(DISTINCT k) FROM bloom'),
		't|0', "$what: no two rows have equal keys after the crash");
	all_rows_found($node, 'bloom', 'k', 'bloom_k', 10, $what);
	all_rows_found($node, 'bloom', 'n', 'bloom_n', 10, $what);
	is( $node->safe_psql('postgres', "INSERT INTO bloom SELECT k FROM bloom ON CONFLICT DO NOTHING RETURNING k"),
		'', "$what: every row conflicts with its copy");
	is( $node->safe_psql('postgres', "INSERT INTO bloom SELECT generate_series(1, $keys) ON CONFLICT DO NOTHING;"
			  . "SELECT count(*), count(DISTINCT k) FROM bloom"),
		"$keys|$keys", "$what: all missing keys can be added");
	indexes_are_good($node, $what);
}

my %deadlocks = map { $_ => counted($_, '40P01') } 'bloom', 'gist';
my %conflicts = map { $_ => counted($_, '23P01') } 'bloom', 'gist';
note "deadlocks: bloomidx $deadlocks{bloom}, GiST $deadlocks{gist}; conflicts: bloomidx $conflicts{bloom}, GiST $conflicts{gist}";
cmp_ok($conflicts{bloom}, '>', 10, 'the constraint is violated often enough');
# What is left: a transaction has waited for another one, which has removed its row, and meanwhile a third one has inserted the key.
cmp_ok($deadlocks{bloom}, '<=', $deadlocks{gist} + 10, 'there are few deadlocks');
report('violations of exclusion constraints', $conflicts{bloom});

log_is_clean($node, 'exclusion');
$node->stop;
done_testing();
