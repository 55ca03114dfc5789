# Rows of a migration that was rolled back.  A column that is added in a transaction that aborts leaves its number free, and
# the next column that is added gets the same number, perhaps with another type.  The rows of the aborted transaction are
# still on their pages, with a layout that the table's descriptor does not describe: nobody may look into them.
#
# shared_buffers is small, so that a length that is read from such a row leads out of the buffers.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('aborted', conf => "fsync = off\nshared_buffers = 2MB\n");

# An all-ones uuid, read as text, is a length of a gigabyte; read as a pointer to TOAST, garbage.
my @uuids = ('fcffffff-ffff-ffff-ffff-ffffffffffff', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
	'01ffffff-ffff-ffff-ffff-ffffffffffff', '0112ffff-ffff-ffff-ffff-ffffffffffff', '02000000-0000-0000-0000-000000000000');

# What the aborted transaction does with column c, of type uuid, before it ends.
my %aborted = (
	insert => join('', map { "INSERT INTO TABLE_ (a, b, c) VALUES (11, 'b', '$_');\n" } @uuids),
	update => join('', map { "UPDATE TABLE_ SET c = '$uuids[$_]' WHERE a = $_;\n" } 0 .. $#uuids),
	update_all => "UPDATE TABLE_ SET c = '$uuids[0]';\n");

# How it ends.
my %ends = (
	rollback => [ 'BEGIN', 'ROLLBACK' ],
	savepoint => [ "BEGIN;\nINSERT INTO TABLE_ VALUES (10, 'again');\nSAVEPOINT s", "ROLLBACK TO s;\nCOMMIT" ],
	killed => [ 'BEGIN', 'SELECT pg_terminate_backend(pg_backend_pid())' ]);

# What column c is then, and what is indexed.
my %repeated = (
	text => [ 'c text', 'c', "'x'::text" ],
	varchar => [ 'c varchar(30)', 'c', "'x'::varchar" ],
	bytea => [ 'c bytea', 'c', "'x'::bytea" ],
	behind => [ 'c text, ADD d uuid', 'd', "'$uuids[0]'::uuid" ],
	two => [ 'c text, ADD d int8', 'c, d', "'x'::text" ],
	numeric => [ 'c numeric', 'c', '7::numeric' ],
	array => [ 'c text[]', 'c', "ARRAY['x', 'y']" ],
	default => [ "c text DEFAULT 'x'", 'c', "'x'::text" ]);

my $n = 0;
foreach my $what (sort keys %aborted)
{
	foreach my $end (sort keys %ends)
	{
		foreach my $as (sort keys %repeated)
		{
			my ($columns, $indexed, $value) = @{ $repeated{$as} };
			my ($column) = $indexed =~ /^(\w+)/;
			my $table = 'r' . ++$n;
			my $alter = "ALTER TABLE $table ADD c uuid, ADD d uuid DEFAULT '$uuids[0]'";
			my $migration = "$ends{$end}[0];\n$alter;\n$aborted{$what}$ends{$end}[1];\n" =~ s/TABLE_/$table/gr;

			$node->safe_psql('postgres',
				"CREATE TABLE $table (a int, b text); INSERT INTO $table SELECT i, 'row ' || i FROM generate_series(0, 10) i");
			$node->psql('postgres', $migration);
			my ($status, $out, $err) = $node->psql(
				'postgres', qq{
ALTER TABLE $table ADD $columns;
INSERT INTO $table (a, b, $column) VALUES (12, 'b', $value);
CREATE INDEX ${table}_i ON $table @{[ using_index($indexed, pages_per_range => 1) ]};
INSERT INTO $table (a, b, $column) VALUES (13, 'b', $value);
SELECT oracle_compare('${table}_i', ARRAY[NULL, NULL]::text[],
	ARRAY['SELECT count(*), sum(a) FROM $table WHERE $column = ' || quote_literal($value),
		'SELECT count(*), sum(a) FROM $table WHERE $column IS NULL'], ARRAY[true, true]);
VACUUM $table;
SELECT bloomidx_summarize('${table}_i') >= 0;
SELECT bloomidx_check('${table}_i') = (SELECT count(*) FROM $table);
});
			my $rest = $out =~ s/^S\|2\|2\|.*\n//r;
			is("$err$rest", "t\nt", "aborted $what ($end), then column $as: index and sequential scan agree");
		}
	}
}

log_is_clean($node, 'aborted DDL');
done_testing();
