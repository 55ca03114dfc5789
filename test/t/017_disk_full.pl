# No space left: what fails, fails with an error, and leaves nothing behind that is wrong.  In place of a full disk, no file
# may grow beyond a limit, which the sessions that start meanwhile inherit from the postmaster.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use BloomidxTest;

plan skip_all => 'there is no prlimit' if system('prlimit --version >/dev/null 2>&1') != 0;

my $node = new_node('full', init => [ extra => ['--wal-segsize=1'] ], conf => q{
min_wal_size = 2MB
wal_level = replica
max_parallel_maintenance_workers = 0
bgwriter_lru_maxpages = 0
});
plan skip_all => 'sizes are for pages of 8 kB' if page_size($node) != 8192;

# WAL must fit in files below the limit
my $limit = 150 * page_size($node);

# The limit as it is here, in bytes or "unlimited"
chomp(my $usual = `prlimit --fsize --output=SOFT --noheadings --raw`);

sub limit_files
{
	my ($bytes) = @_;
	my ($pid) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	system_or_bail('prlimit', '--pid', $pid, "--fsize=$bytes:");
	return;
}

# Runs SQL, which must fail for want of space in the file that $path tells; an index that is yet to be made has none.
sub fails
{
	my ($sql, $what, $path) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($ret, $out, $err) = $node->psql('postgres', $sql);
	isnt($ret, 0, "$what: fails");
	like($err, qr/ERROR:  could not (extend|write|seek)[^\n]*"?\Q$path\E.*File too large/s, "$what: fails for want of space");
	return $err;
}

sub all_is_well
{
	my ($table, $column, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', "SELECT oracle_lost_rows('$table', '$column', '${table}_index', condition => 'c2 % 6 = 1')"),
		0, "$what: no row is lost");
	indexes_are_good($node, $what);
	return;
}

# CREATE INDEX, of as many partitions as give a worker something to do.
my @columns = map { "c$_" } 1 .. 20;
my $columns = join ', ', @columns;
my $index = 'CREATE INDEX big_index ON big ' . using_index($columns, pages_per_range => 1, false_positive_rate => 0.00001);
$node->safe_psql(
	'postgres', 'CREATE UNLOGGED TABLE big (' . join(', ', map { "$_ int" } @columns) . q{, filler text);
ALTER TABLE big ALTER filler SET STORAGE PLAIN, SET (parallel_workers = 1, autovacuum_enabled = off);
INSERT INTO big SELECT } . join(', ', map { "i * $_" } 1 .. 20) . q{, repeat('x', 7000) FROM generate_series(1, 16500) i;
VACUUM big});

# this writes the table, so that those who are under the limit need not
$node->restart;
foreach my $workers (0, 1)
{
	limit_files($limit);
	my $messages = fails(
		"SET client_min_messages = debug1; SET maintenance_work_mem = '256MB';\n"
		  . "SET max_parallel_maintenance_workers = $workers; $index",
		"CREATE INDEX by a leader and $workers workers", 'base/');
	like($messages, qr/: 1 of 1 parallel workers launched/, 'CREATE INDEX that fails has a worker') if $workers;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'big_index'}),
		0, "CREATE INDEX by a leader and $workers workers: no index is left");
	is(orphaned_files($node), 0, "CREATE INDEX by a leader and $workers workers: no file is left");
	limit_files($usual);
	$node->safe_psql('postgres', "SET max_parallel_maintenance_workers = $workers; $index");
	cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('big_index')}),
		'>', $limit, 'CREATE INDEX with space enough makes an index beyond the limit');
	indexes_are_good($node, 'CREATE INDEX with space enough');
	$node->safe_psql('postgres', 'DROP INDEX big_index');
}
$node->safe_psql('postgres', 'DROP TABLE big');

# INSERT, into an index that is larger than its table: rows are narrow, and each has many keys.
@columns = map { "c$_" } 1 .. 31;
my $values = join ', ', map { "(hashint8extended(i, $_) % 32768)::int2" } 1 .. 31;
$node->safe_psql('postgres', 'CREATE TABLE small (' . join(', ', map { "$_ int2" } @columns) . q{) WITH (autovacuum_enabled = off);
CREATE INDEX small_index ON small } . using_index(join(', ', @columns), pages_per_range => 1, false_positive_rate => 0.00001));
my $path = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('small_index')});
limit_files($limit);
my $inserted = 0;
my $error = '';
while ($inserted < 15000 && !$error)
{
	my ($ret, $out, $err) = $node->psql('postgres', "INSERT INTO small SELECT $values FROM generate_series($inserted + 1, $inserted + 500) i");
	if ($ret == 0) { $inserted += 500 }
	else { $error = $err }
}
like($error, qr/could not extend file "\Q$path\E.*File too large/s, 'an INSERT fails for want of space in the index');
is($node->safe_psql('postgres', 'SELECT count(*) FROM small'), $inserted, 'the rows of INSERTs that succeeded are there');
all_is_well('small', 'c1', 'after an INSERT that failed');
fails("INSERT INTO small SELECT $values FROM generate_series(1, 3000) i", 'one more INSERT', 'base/');

# VACUUM needs space to rebuild filters; the old ones serve on.
$node->safe_psql('postgres', 'DELETE FROM small WHERE c2 % 5 = 0');
my ($ret, $out, $err) = $node->psql('postgres', 'VACUUM small');
is($ret, 0, 'VACUUM does not fail for want of space');
like($err, qr/WARNING:  could not rebuild filters.*File too large/, 'VACUUM warns of filters that it could not rebuild')
  if layout() eq 'partitioned';	# the other layout rebuilds in place
all_is_well('small', 'c1', 'after VACUUM without space');
limit_files($usual);
$node->stop('immediate');
$node->start;
all_is_well('small', 'c1', 'after a crash');
$node->safe_psql('postgres', "VACUUM small; INSERT INTO small SELECT $values FROM generate_series(20001, 30000) i; VACUUM small");
all_is_well('small', 'c1', 'after VACUUM and INSERT with space enough');
log_is_clean($node, 'after all failures');
$node->stop;
done_testing();
