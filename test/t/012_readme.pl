# Every SQL block of README.md runs, in the order in which a reader meets them, in one database.

use strict;
use warnings;

use FindBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = "$FindBin::RealBin/../../README.md";
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

my $text = slurp_file($readme);
my $blocks = 0;
while ($text =~ /^```sql\n(.*?)^```$/gms)
{
	my $block = $1;
	my $line = 1 + (substr($text, 0, $-[1]) =~ tr/\n//);
	my ($stdout, $stderr) = ('', '');

	$blocks++;
	is($node->psql('postgres', $block, stdout => \$stdout, stderr => \$stderr, on_error_stop => 1),
		0, "the SQL block at line $line of README.md runs");
	unlike($stderr, qr/ERROR|WARNING/, "the SQL block at line $line of README.md gives no warning") or diag($block);
}
cmp_ok($blocks, '>=', 5, 'README.md has SQL blocks');
$node->stop;
done_testing();
