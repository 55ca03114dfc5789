# The corpus of test/fuzz: pages of an index are damaged as each input says, and the index is read in every way.  Each statement
# succeeds or fails with an expected SQLSTATE, nothing crashes or hangs, and the index is good when the pages are restored.
#
# The extension is bloomidx_small, whose index of a small table has pages of all kinds, and which has assertions.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'for little-endian machines' if pack('L', 1) ne pack('V', 1);

my $test = "$FindBin::RealBin/..";
my $node = new_node('corpus', extension => 'bloomidx_small', conf => "fsync = off\n", no_checksums => 1);
my $setup = slurp_file("$test/modules/fuzzer/setup.sql");
$setup =~ s/:'persistence'/''/g;
$node->safe_psql('postgres', $setup);

# Inputs by kind; the kinds whose names have a prefix are those of layout "block".
my %inputs;
foreach my $file (glob "$test/fuzz-corpus/*")
{
	my ($kind) = $file =~ m{([^/]+)$};

	foreach my $line (grep { !/^#/ } split /\n/, slurp_file($file))
	{
		my ($of, $input) = $kind eq 'findings' ? split(/\s/, $line) : ($kind, $line);
		push @{ $inputs{$of} }, $input;
	}
}
is(join(' ', grep { !$inputs{$_} } qw(meta map region top group segment summary block_meta filters scratch)),
	'', 'the corpus has inputs for each kind of page');

my $ninputs = 0;
my $errors = 0;
foreach my $kind (sort keys %inputs)
{
	my $schema = $kind =~ /^(block_meta|filters|scratch)$/ ? 'block' : 'partitioned';
	my @inputs = ('', @{ $inputs{$kind} }, '');
	my $script = "SET search_path = $schema, public; SET client_min_messages = error;\n" . join '',
	  map { "SELECT fuzz_replay('t_ix', '@{[ $kind =~ s/^block_//r ]}', '\\x$_');\n" } @inputs;
	my ($stdout, $stderr);

	$node->psql('postgres', $script, stdout => \$stdout, stderr => \$stderr, on_error_die => 0);
	my @outcomes = split /\n/, $stdout;
	is(scalar @outcomes, scalar @inputs, "$kind: every input leads to a result or an expected error")
	  or diag("input $inputs[@outcomes]: $stderr");
	last if @outcomes < @inputs;
	like($outcomes[$_], qr/^\d+ x 00000$/, "$kind: no error without damage") foreach 0, -1;
	$ninputs += @{ $inputs{$kind} };
	$errors += grep { /XX/ } @outcomes;
}
cmp_ok($errors, '>', $ninputs / 10, 'many damages are noticed');
report('inputs of the corpus', $ninputs);
log_is_clean($node, 'corpus');
$node->stop;
done_testing();
