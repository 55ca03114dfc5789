# Every SQL block of those documents in doc/ that need several servers runs, in the order in which a reader meets them.  The
# first line of a block is a comment that names the servers on which it is to be run: "-- on the primary".  012_readme.pl runs
# the other documents.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# A server without the extension, which the documents create.
sub plain_node
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 'logical');
	$node->append_conf('postgresql.conf', "autovacuum = off\n");
	$node->start;
	return $node;
}

# What documents call by example.org is one of our servers.
my %node;

sub localized
{
	my ($block) = @_;
	my $option = sub { my ($node) = @_; return "host '" . $node->host . "', port '" . $node->port . "', dbname 'postgres'"; };

	$block =~ s/host '(\w+)\.example\.org', dbname 'app'/$option->($node{$1})/ge;
	$block =~ s/host=(\w+)\.example\.org dbname=app/$node{$1}->connstr . ' dbname=postgres'/ge;
	return $block;
}

# The blocks of a document: place, line, text.
sub blocks
{
	my ($file) = @_;
	my $text = slurp_file($file);
	my @blocks;

	while ($text =~ /^```sql\n(.*?)^```$/gms)
	{
		my $block = $1;
		my $line = 1 + (substr($text, 0, $-[1]) =~ tr/\n//);
		my ($place) = $block =~ /\A-- (.*)$/m;

		push @blocks, { place => $place || '', line => $line, text => $block };
	}
	return @blocks;
}

# What is written to one server arrives at the others.
sub settle
{
	return if !$node{standby};
	$node{primary}->wait_for_catchup($node{standby}, 'replay', $node{primary}->lsn('write'));
	return if $node{subscriber}->safe_psql('postgres', 'SELECT count(*) FROM pg_subscription') == 0;
	$node{subscriber}->poll_query_until('postgres', "SELECT bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel")
	  or die 'the subscription does not start';
	$node{primary}->wait_for_catchup('events');
}

# Runs the blocks of a document; %$places maps a place to the servers.
sub run_document
{
	my ($name, $places) = @_;
	my $n = 0;

	foreach my $block (blocks("$FindBin::RealBin/../../doc/$name"))
	{
		my $servers = $places->{ $block->{place} };

		if (!$servers)
		{
			fail("the SQL block at line $block->{line} of $name says where to run it");
			next;
		}
		foreach my $server (@$servers)
		{
			my ($stdout, $stderr) = ('', '');

			is($node{$server}->psql('postgres', localized($block->{text}), stdout => \$stdout, stderr => \$stderr, on_error_stop => 1),
				0, "the SQL block at line $block->{line} of $name runs on $server");
			unlike($stderr, qr/ERROR|WARNING/, 'and gives no warning') or diag($block->{text}, $stderr);
			settle();
		}
		$n++;
	}
	cmp_ok($n, '>=', 5, "$name has SQL blocks");
}

my @documents = map { s/.*\///r } grep { slurp_file($_) =~ /^```sql\n-- (on|Citus, on) /m } glob("$FindBin::RealBin/../../doc/*.md");
is("@documents", 'operating.md scaling-out.md', 'all documents with several servers are known here');

# --- operating.md: a primary, its standby, and a subscriber
$node{primary} = $node{publisher} = plain_node('primary');
$node{subscriber} = plain_node('subscriber');
$node{primary}->backup('b');
$node{standby} = PostgreSQL::Test::Cluster->new('standby');
$node{standby}->init_from_backup($node{primary}, 'b', has_streaming => 1);
$node{standby}->start;
run_document('operating.md', { map { ("on the $_" => [$_]) } qw(primary standby publisher subscriber) });

# The claims that are not in a block: the index answers on the subscriber, and on the standby after a promotion.
$node{primary}->safe_psql('postgres', 'INSERT INTO events SELECT gen_random_uuid(), md5(i::text)::uuid FROM generate_series(20001, 21000) i');
settle();
my $count = q{SET enable_seqscan = off; SELECT count(*) FROM events WHERE trace = ANY (ARRAY(SELECT md5(i::text)::uuid FROM generate_series(1, 21000) i))};
is($node{subscriber}->safe_psql('postgres', $count), 21000, 'the subscriber has all rows');
$node{standby}->promote;
$node{standby}->safe_psql('postgres', 'INSERT INTO events SELECT gen_random_uuid(), md5(i::text)::uuid FROM generate_series(21001, 22000) i');
is($node{standby}->safe_psql('postgres', $count =~ s/21000/22000/r), 22000, 'the promoted standby has all rows');
is($node{$_}->safe_psql('postgres', "SELECT bloomidx_check('events_trace')"), $_ eq 'standby' ? 22000 : 21000, "the index of $_ is good")
  foreach qw(primary standby subscriber);

# A dump, restored.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node{primary}->safe_psql('postgres', 'CREATE DATABASE restored');
$node{primary}->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node{primary}->connstr('postgres') ], 'pg_dump');
$node{primary}->command_ok([ 'pg_restore', '--jobs=2', '-d', $node{primary}->connstr('restored'), $dump ], 'pg_restore');
is($node{primary}->safe_psql('restored', "SELECT bloomidx_check('events_trace')"), 21000, 'the index is restored');

# pg_repack, if it is installed
SKIP:
{
	my ($status) = $node{primary}->psql('restored', 'CREATE EXTENSION pg_repack');

	skip 'pg_repack is not available', 3 if $status != 0 || system('pg_repack --version >/dev/null 2>&1') != 0;
	foreach my $what ([], ['--only-indexes'])
	{
		$node{primary}->command_ok([ 'pg_repack', '-h', $node{primary}->host, '-p', $node{primary}->port, @$what, '-t', 'events', 'restored' ],
			"pg_repack @$what");
	}
	is($node{primary}->safe_psql('restored', "SELECT bloomidx_check('events_trace')"), 21000, 'the index is good after pg_repack');
}

$_->stop foreach @node{qw(subscriber standby primary)};
%node = ();

# --- scaling-out.md: a coordinator and two shards
$node{$_} = plain_node($_) foreach qw(coordinator shard1 shard2);
my %available = map { $_ => 1 } split /\n/, $node{coordinator}->safe_psql('postgres', 'SELECT name FROM pg_available_extensions');
SKIP:
{
	skip 'postgres_fdw or citext is not available', 1 if !$available{postgres_fdw} || !$available{citext};
	my %places = ('on every shard' => [ 'shard1', 'shard2' ], 'on the coordinator' => ['coordinator'], 'Citus, on the coordinator' => []);

	# Citus must have been preloaded, so it has a server of its own; a server without SSL cannot require that
	if ($available{citus})
	{
		$node{citus} = plain_node('citus');
		$node{citus}->append_conf('postgresql.conf', "shared_preload_libraries = 'citus'\ncitus.node_conninfo = 'sslmode=prefer'\n"
			  . "citus.local_hostname = '" . $node{citus}->host . "'\n");
		$node{citus}->restart;
		$node{citus}->safe_psql('postgres', 'CREATE EXTENSION citus');
		my $place = "'" . $node{citus}->host . "', " . $node{citus}->port;
		$node{citus}->safe_psql('postgres', "SELECT citus_set_coordinator_host($place)");
		$node{citus}->safe_psql('postgres', "SELECT citus_set_node_property($place, 'shouldhaveshards', true)");
		$places{'Citus, on the coordinator'} = ['citus'];
	}
	run_document('scaling-out.md', \%places);
}
$_->stop foreach values %node;
done_testing();
