# Every SQL block of README.md runs, in the order in which a reader meets them, in one database.  So does every block of those
# documents in doc/ that need one server only, each document in a database as README.md leaves it.  The blocks of the others
# begin with a comment that names a server; 030_docs.pl runs them.

use strict;
use warnings;

use FindBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

# Runs the blocks of a document, and returns their number.
sub run_blocks
{
	my ($name, $database) = @_;
	my $text = slurp_file("$top/$name");
	my $blocks = 0;

	while ($text =~ /^```sql\n(.*?)^```$/gms)
	{
		my $block = $1;
		my $line = 1 + (substr($text, 0, $-[1]) =~ tr/\n//);
		my ($stdout, $stderr) = ('', '');

		$blocks++;
		is($node->psql($database, $block, stdout => \$stdout, stderr => \$stderr, on_error_stop => 1),
			0, "the SQL block at line $line of $name runs");
		unlike($stderr, qr/ERROR|WARNING/, "the SQL block at line $line of $name gives no warning") or diag($block, $stderr);
	}
	return $blocks;
}

# Links to a file, or to a heading of one, lead somewhere.
sub check_links
{
	my ($name) = @_;
	my ($directory) = $name =~ m{^(.*/)};
	my $text = slurp_file("$top/$name");
	my @broken;

	$text =~ s/^```.*?^```$//gms;
	while ($text =~ /\]\(([^)\s]*)\)/g)
	{
		my ($link, $file, $anchor) = ($1, split /#/, $1, 2);

		next if $link =~ /^\w+:/;
		$file = $file eq '' ? $name : ($directory // '') . $file;
		if (!-e "$top/$file")
		{
			push @broken, $link;
		}
		elsif ($anchor)
		{
			# as GitHub and others derive the name of a heading
			my %headings = map { lc(s/[^\w\- ]//gr) =~ tr/ /-/r => 1 } slurp_file("$top/$file") =~ /^#+ (.*)$/mg;
			push @broken, $link if !$headings{$anchor};
		}
	}
	is("@broken", '', "the links of $name lead somewhere");
}

cmp_ok(run_blocks('README.md', 'postgres'), '>=', 5, 'README.md has SQL blocks');
foreach my $file ('README.md', glob("$top/doc/*.md"))
{
	my ($name) = $file =~ m{((?:doc/)?[^/]+)$};
	my ($first) = slurp_file("$top/$name") =~ /^```sql\n(.*?)$/ms;

	check_links($name);
	next if $name eq 'README.md' || !defined $first || $first =~ /^-- (on|Citus, on) /;
	my ($database) = $name =~ m{/(.*)\.md};
	$node->safe_psql('template1', qq{CREATE DATABASE "$database" TEMPLATE postgres});
	run_blocks($name, $database);
}
$node->stop;
done_testing();
