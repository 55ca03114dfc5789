# BloomidxTest: what the TAP tests of bloomidx share.
#
# A test is written as a comparison: the same query answered by a sequential scan (the oracle) and by the index, in a
# bitmap scan and in an index scan, with the planner forced to each, and with EXPLAIN as the witness that the index was really asked.  The SQL
# functions that do so are created by install_oracle(), so that ten thousand comparisons need no round trips.

package BloomidxTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  new_node
  new_standby
  server_version
  catch_up
  install_oracle
  layout
  using_index
  report
  run_race
  lost_rows
  all_rows_found
  page_size
  extend_file
  index_session
  old_snapshot
  start_in
  start_statement
  new_gate
  start_pgbench
  poll_until
  kill9_all
  indexes_are_good
  orphaned_files
  log_is_clean
);

# The layout under test.
sub layout { return $ENV{BLOOMIDX_LAYOUT} || 'partitioned'; }

# "USING bloomidx (columns) WITH (options)", with the layout under test
sub using_index
{
	my ($columns, %options) = @_;
	$options{layout} = layout() if layout() ne 'partitioned';
	return "USING bloomidx ($columns)" if !%options;
	return "USING bloomidx ($columns) WITH ("
	  . join(', ', map { "$_ = $options{$_}" } sort keys %options) . ')';
}

# A running cluster with the extension and the oracle in database postgres.  'conf' is appended to
# postgresql.conf; 'init' goes to the node's init(); 'no_checksums' asks for no data checksums, which are the default
# since PostgreSQL 18; 'extension' may name another one that brings the access method.
sub new_node
{
	my ($name, %param) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my @init = @{ $param{init} || [] };

	push @init, extra => ['--no-data-checksums'] if $param{no_checksums} && `initdb --help` =~ /--no-data-checksums/;
	$node->init(@init);
	$node->append_conf(
		'postgresql.conf', q{
log_statement = none
autovacuum = off
shared_buffers = 64MB
max_wal_size = 4GB
checkpoint_timeout = 1h
synchronize_seqscans = off
jit = off
});
	$node->append_conf('postgresql.conf', $param{conf}) if $param{conf};
	$node->start;
	install_oracle($node, 'postgres', $param{extension});
	return $node;
}

# A running standby of a primary, as it is now.  'conf' is appended to postgresql.conf.
sub new_standby
{
	my ($primary, $name, %param) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup("for_$name");
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->append_conf('postgresql.conf', $param{conf}) if $param{conf};
	$standby->start;
	return $standby;
}

# The major version of a running server.  A node has a pg_version of its own since PostgreSQL 15 only.
sub server_version
{
	my ($node) = @_;
	return int($node->safe_psql('postgres', 'SHOW server_version_num') / 10000);
}

# Waits until the standby has replayed everything, what is not flushed yet included.
sub catch_up
{
	my ($primary, $standby) = @_;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	return;
}

# Create the extension and the comparing functions in a database.
sub install_oracle
{
	my ($node, $dbname, $extension) = @_;

	$extension ||= $ENV{BLOOMIDX_EXTENSION} || 'bloomidx';

	$node->safe_psql(
		$dbname, "CREATE EXTENSION $extension;" . q{
-- Make the planner choose a 'bitmap' scan or an 'index' scan wherever it can, or only scans of the 'table'.
CREATE FUNCTION oracle_force(scan text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	use_index bool := scan <> 'table';
BEGIN
	PERFORM set_config('enable_seqscan', (NOT use_index)::text, false),
			set_config('enable_bitmapscan', (scan = 'bitmap')::text, false),
			set_config('enable_indexscan', (scan = 'index')::text, false),
			set_config('enable_indexonlyscan', (scan = 'index')::text, false),
			set_config('enable_hashjoin', (NOT use_index)::text, false),
			set_config('enable_mergejoin', (NOT use_index)::text, false),
			set_config('enable_material', (NOT use_index)::text, false),
			set_config('enable_memoize', (NOT use_index)::text, false);
END $$;

CREATE FUNCTION oracle_force(use_index bool) RETURNS void LANGUAGE sql AS $$
	SELECT oracle_force(CASE WHEN use_index THEN 'bitmap' ELSE 'table' END)
$$;

-- Does the plan of this query scan an index whose name begins with index_name?
CREATE FUNCTION oracle_plan_uses(plan text, index_name text) RETURNS bool LANGUAGE sql AS $$
	SELECT plan ~ ('(Bitmap Index Scan on|Index( Only)? Scan using) "?' || index_name)
$$;

CREATE FUNCTION oracle_plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := concat_ws(E'\n', plan, line);
	END LOOP;
	RETURN plan;
END $$;

CREATE FUNCTION oracle_uses_index(query text, index_name text) RETURNS bool LANGUAGE sql AS $$
	SELECT oracle_plan_uses(oracle_plan(query), index_name)
$$;

-- Answer a query, prepared anew, by one kind of scan.
CREATE FUNCTION oracle_answer(scan text, index_name text, setup text, query text, OUT plan text, OUT used bool, OUT n bigint,
							  OUT h numeric)
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM oracle_force(scan);
	IF setup IS NOT NULL THEN
		EXECUTE setup;
	END IF;
	plan := oracle_plan(query);
	used := oracle_plan_uses(plan, index_name);
	EXECUTE query INTO n, h;
	IF setup IS NOT NULL THEN
		DEALLOCATE p;
	END IF;
END $$;

-- Answer each query in all three ways.  A query returns a count and a digest of the row addresses it found.  setups[i],
-- if not null, is a PREPARE of statement "p" for a query that is EXECUTE p(...): it is prepared anew for each way,
-- since a generic plan outlives the settings it was made under.  musts[i]: the index has to be used.
-- The first line is S|queries|answered by a bitmap scan of the index|with a hit|without; then one line for every failure.
CREATE FUNCTION oracle_compare(index_name text, setups text[], queries text[], musts bool[])
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	nused int := 0;
	nhits int := 0;
	nmisses int := 0;
	failures text[] := '{}';
	scan text;
	expected record;
	found record;
	ors bool;
BEGIN
	PERFORM set_config('plan_cache_mode', 'force_generic_plan', false);
	FOR i IN 1 .. cardinality(queries) LOOP
		expected := oracle_answer('table', index_name, setups[i], queries[i]);
		ors := false;
		FOREACH scan IN ARRAY ARRAY['bitmap', 'index'] LOOP
			found := oracle_answer(scan, index_name, setups[i], queries[i]);
			IF found.n IS DISTINCT FROM expected.n OR found.h IS DISTINCT FROM expected.h THEN
				failures := failures || format('F|%s scan %s rows, sequential scan %s rows: %s; %s',
											   scan, found.n, expected.n, setups[i], queries[i]);
			END IF;
			-- arrays are looked for by an OR of bitmaps
			ors := ors OR found.plan ~ 'BitmapOr';
			IF musts[i] AND NOT found.used AND NOT (scan = 'index' AND ors) THEN
				failures := failures || format('F|index not used for %s scan: %s; %s', scan, setups[i], queries[i]);
			END IF;
			CONTINUE WHEN scan = 'index' OR NOT found.used;
			nused := nused + 1;
			IF expected.n > 0 THEN
				nhits := nhits + 1;
			ELSE
				nmisses := nmisses + 1;
			END IF;
		END LOOP;
	END LOOP;
	RETURN NEXT format('S|%s|%s|%s|%s', cardinality(queries), nused, nhits, nmisses);
	RETURN QUERY SELECT * FROM unnest(failures);
END $$;

-- How many visible rows of the table does the index not find, each looked up by its own key?  Rows without a key are
-- left out.  By an index scan, or else by a bitmap scan.  NULL if the index was not asked.  predicate is that of a partial index; some rows only are looked up if
-- they have to meet a condition.
CREATE FUNCTION oracle_lost_rows(tab text, col text, index_name text, predicate text DEFAULT 'true',
								 condition text DEFAULT 'true')
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	-- "IS TRUE" and OFFSET 0 keep the planner from looking the row up by its address, or by a join.
	query text := format('SELECT count(*) FROM (SELECT %2$s AS k, ctid AS c FROM %1$s WHERE %3$s AND %4$s OFFSET 0) a'
						 ' WHERE k IS NOT NULL AND NOT EXISTS'
						 ' (SELECT FROM %1$s b WHERE b.%2$s = a.k AND (b.ctid = a.c) IS TRUE AND %3$s OFFSET 0)',
						 tab, col, predicate, condition);
	scan text;
	lost bigint;
BEGIN
	FOREACH scan IN ARRAY ARRAY['index', 'bitmap'] LOOP
		PERFORM oracle_force(scan);
		IF index_name IS NOT NULL AND NOT oracle_uses_index(query, index_name) THEN
			RETURN NULL;
		END IF;
		EXECUTE query INTO lost;
		EXIT WHEN lost > 0;
	END LOOP;
	RETURN lost;
END $$;

-- Verify all bloomidx indexes; returns how many, and the failures.  With a pattern only those of such names, which may
-- come and go meanwhile.
CREATE FUNCTION oracle_check(pattern text DEFAULT '%', OUT indexes int, OUT failures text[]) LANGUAGE plpgsql
SET client_min_messages = warning AS $$
DECLARE
	-- the extension may be in any schema
	statement text := (SELECT format('SELECT %s.bloomidx_check($1)', pronamespace::regnamespace) FROM pg_proc
					   WHERE proname = 'bloomidx_check');
	-- Not a cursor: it would keep pages of the catalogs pinned while bloomidx_check() waits for a lock, and on a standby the
	-- one who holds that lock may be the one who waits for the pins.
	candidates oid[] := ARRAY(SELECT c.oid FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
							  JOIN pg_am a ON a.oid = c.relam
							  WHERE a.amname = 'bloomidx' AND c.relkind = 'i' AND x.indisvalid AND c.relname LIKE pattern
								  AND (c.relpersistence = 'p' OR c.relpersistence = 'u' AND NOT pg_is_in_recovery()));
	i oid;
BEGIN
	indexes := 0;
	FOREACH i IN ARRAY candidates LOOP
		BEGIN
			EXECUTE statement USING i;
			indexes := indexes + 1;
		EXCEPTION WHEN OTHERS THEN
			IF pattern = '%' OR SQLERRM !~ 'could not open|is not valid' THEN
				failures := failures || format('%s: %s', i::regclass, SQLERRM);
			END IF;
		END;
	END LOOP;
END $$;

-- For clients that run while others change the table: look up the rows of some random pages, and fail if one is not
-- found.  It is one statement, hence one snapshot, that sees a row and has to find it.
CREATE FUNCTION oracle_look_up(tab text, cols text[], predicate text DEFAULT 'true') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	npages int := pg_relation_size(tab) / current_setting('block_size')::int;
	col text;
	lost bigint;
BEGIN
	FOR i IN 1 .. 5 LOOP
		FOREACH col IN ARRAY cols LOOP
			lost := oracle_lost_rows(tab, col, NULL, predicate,
				format('ctid = ANY (ARRAY(SELECT format(''(%s,%%s)'', o)::tid FROM generate_series(1, 10) o))',
					   floor(random() * npages)));
			IF lost > 0 THEN
				RAISE EXCEPTION '% rows of % are not found by %', lost, tab, col;
			END IF;
		END LOOP;
	END LOOP;
END $$;
});
	return;
}

# Rows of the table that the index does not find; '' if the index was not used.
sub lost_rows
{
	my ($node, $table, $column, $index) = @_;
	return $node->safe_psql('postgres',
		"SELECT oracle_lost_rows('$table', '$column', '$index')");
}

# The test made of it.  At least 'min_rows' rows must be there, or the test says nothing.
sub all_rows_found
{
	my ($node, $table, $column, $index, $min_rows, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $node->safe_psql('postgres',
		"SELECT oracle_lost_rows('$table', '$column', '$index'), count(*) >= $min_rows FROM $table");

	return is($result, '0|t', "$what: every row of $table is found through $index");
}

sub page_size { my ($node) = @_; return $node->safe_psql('postgres', 'SHOW block_size'); }

# Adds empty pages to the files of relations until each has $npages pages.  The server is restarted for that.
sub extend_file
{
	my ($node, $dbname, $npages, @relations) = @_;
	my $size = $npages * page_size($node);
	my @files = map { $node->data_dir . "/$_" } split /\n/,
	  $node->safe_psql($dbname, join '', map { "SELECT pg_relation_filepath('$_');" } @relations);

	$node->stop;
	foreach my $file (@files)
	{
		truncate($file, $size) or die "could not extend $file: $!";
	}
	$node->start;
	return;
}

# A session whose queries are answered by the index where it can answer them.
sub index_session
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres');
	$session->query_safe('SET enable_seqscan = off');
	return $session;
}

# The same, with a snapshot of this moment.
sub old_snapshot
{
	my ($node) = @_;
	my $session = index_session($node);
	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$session->query_safe('SELECT count(*) FROM pg_class');
	return $session;
}

# Starts a statement that is expected to stop somewhere, in a session or in a new one, which is returned.
sub start_in
{
	my ($session, $sql) = @_;
	$session->query_until(qr/started/, "\\echo started\n$sql;\n\\echo finished\n");
	return $session;
}
sub start_statement { my ($node, $sql) = @_; return start_in($node->background_psql('postgres', on_error_stop => 0), $sql); }

sub new_gate { my ($node) = @_; return BloomidxTest::Gate->new($node); }

# Start pgbench in the background with scripts given as name => [weight, text].  Returns a handle:
# {harness, stdout, stderr}.
sub start_pgbench
{
	my ($node, $scripts, @options) = @_;
	my %run = (stdout => '', stderr => '');
	my @command = ('pgbench', '-n', '-h', $node->host, '-p', $node->port, @options);

	foreach my $name (sort keys %$scripts)
	{
		my ($weight, $text) = @{ $scripts->{$name} };
		my $file = $node->basedir . "/$name.sql";
		open my $fh, '>', $file or die "could not create $file: $!";
		print $fh $text;
		close $fh or die "could not write $file: $!";
		push @command, '-f', "$file\@$weight";
	}
	$run{harness} =
	  IPC::Run::start([ @command, 'postgres' ], '<', \undef, '>', \$run{stdout}, '2>', \$run{stderr});
	return \%run;
}

# Call the function until it is true; dies after the usual timeout of the test suite.
sub poll_until
{
	my ($condition, $what) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	until ($condition->())
	{
		die "timed out waiting until $what" if time > $end;
		usleep(10_000);
	}
	return 1;
}

# kill -9 of the postmaster and every process it started: nothing gets a chance to write anything.  The caller starts the
# server again, compares the index with the table, and calls bloomidx_check().
sub kill9_all
{
	my ($node) = @_;
	my $lock_file = $node->data_dir . '/postmaster.pid';
	my ($postmaster) = split /\n/, slurp_file($lock_file);
	my @children = map { /^\s*(\d+)\s+$postmaster\s*$/ ? $1 : () } split /\n/, `ps -A -o pid= -o ppid=`;
	my $processes = join ',', $postmaster, @children;

	$node->kill9;
	kill 'KILL', @children;
	poll_until(sub { !grep { !/^\s*Z/ } split /\n/, `ps -o stat= -p $processes` }, 'the killed server is dead');

	report('kill -9', 1);

	# The next start takes a zombie for a running server, and not every init process is quick to wait for it.
	foreach (1 .. 500)
	{
		return if !kill 0, $postmaster;
		usleep(10_000);
	}
	unlink $lock_file;
	return;
}

# How much a test has done, for the totals of test/soak.
sub report
{
	my ($what, $n) = @_;
	note "total: $n $what";
	return;
}

# Runs a race, which is a sub of the test, and reports the try.
sub run_race
{
	my ($race, @arguments) = @_;
	my @result = main->can($race)->(@arguments);

	report("tries of race $race", 1);
	return @result;
}

# bloomidx_check() is content with all indexes of all databases that have the oracle.
sub indexes_are_good
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = 0;
	my @failures;

	foreach my $db (split /\n/, $node->safe_psql('postgres', 'SELECT datname FROM pg_database WHERE datallowconn'))
	{
		next if $node->safe_psql($db, "SELECT to_regproc('oracle_check') IS NULL") eq 't';
		my ($checked, $failures) = split /\|/, $node->safe_psql($db, 'SELECT * FROM oracle_check()'), 2;
		$n += $checked;
		push @failures, $failures if $failures;
	}
	return is(join("\n", @failures), '', "$what: bloomidx_check accepts all $n indexes of " . $node->name);
}

# How many files belong to nothing, but are not empty.  (Those of an index that was never committed are only truncated, and
# are removed by the next checkpoint.)
sub orphaned_files
{
	my ($node) = @_;
	return $node->safe_psql(
		'postgres', q{
SELECT count(*) FROM (SELECT 'base/' || oid AS dir FROM pg_database WHERE datname = current_database()) d,
	pg_ls_dir(dir) f, pg_stat_file(dir || '/' || f, true) s
WHERE f ~ '^[0-9]+' AND s.size > 0
	AND substring(f FROM '^[0-9]+')::oid NOT IN (SELECT pg_relation_filenode(oid) FROM pg_class
		WHERE pg_relation_filenode(oid) IS NOT NULL)});
}

# The end of a test: no crash, failed assertion or inconsistency in the server's log; and if the server is running, what
# the test has left behind is verified.
sub log_is_clean
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	indexes_are_good($node, $what) if -e $node->data_dir . '/postmaster.pid';
	my @bad = grep { /terminated by signal|PANIC:|TRAP:|inconsistent page found|stuck spinlock/ }
	  split /\n/, slurp_file($node->logfile);

	return is(join("\n", @bad), '', "$what: no crash and no inconsistent page in the log of " . $node->name);
}

# Holds backends of a node at the points that src/debug.h names, for the extension bloomidx_debug: a backend that comes to a
# point waits there while the session of this object holds the point's advisory lock.  Points are named "published" for
# BX_PAUSE_PUBLISHED.

package BloomidxTest::Gate;

use File::Basename;
use PostgreSQL::Test::Utils;

# name => number, and "class" => the class of the advisory locks
my %points;

sub new
{
	my ($class, $node) = @_;
	%points = map { /^#define BX_PAUSE_(\w+)\s+(\d+)/ ? (lc $1 => $2) : () }
	  split /\n/, slurp_file(dirname(__FILE__) . '/../../src/debug.h');
	my $session = $node->background_psql('postgres');

	# the time limit is for each query, not for the life of the session
	$session->set_query_timer_restart();
	return bless { node => $node, session => $session }, $class;
}

sub lock_of
{
	my ($point) = @_;
	return "$points{class}, " . ($points{$point} || die "src/debug.h has no point \"$point\"");
}

# Whoever comes to the point from now on, waits there.
sub hold
{
	my ($self, $point) = @_;
	$self->{session}->query_safe("SELECT pg_advisory_lock(@{[ lock_of($point) ]})");
	return;
}

# All go on.
sub release
{
	my ($self, $point) = @_;
	$self->{session}->query_safe("SELECT pg_advisory_unlock(@{[ lock_of($point) ]})");
	return;
}

# Those who wait go on, and wait when they come to the point again.
sub release_once
{
	my ($self, $point) = @_;
	my $lock = lock_of($point);
	$self->{session}->query_safe("SELECT pg_advisory_unlock($lock), pg_advisory_lock($lock)");
	return;
}

# SQL that is true of the lines of pg_locks of those who wait at the point.
sub is_waiting
{
	my ($point) = @_;
	my ($class, $number) = split /, /, lock_of($point);
	return "locktype = 'advisory' AND classid = $class AND objid = $number AND NOT granted";
}

# How many wait at the point.
sub waiting
{
	my ($self, $point) = @_;
	return $self->{session}->query_safe("SELECT count(*) FROM pg_locks WHERE @{[ is_waiting($point) ]}");
}

# Waits until so many backends, 1 by default, wait at the point.
sub wait_for
{
	my ($self, $point, $n) = @_;
	$n ||= 1;
	BloomidxTest::poll_until(sub { $self->waiting($point) >= $n }, "backends come to $point");
	return;
}

# Waits until a query says that something is true of the server's locks and sessions.
sub wait_until
{
	my ($self, $query) = @_;
	BloomidxTest::poll_until(sub { $self->{session}->query_safe($query) eq 't' }, "this is true: $query");
	return;
}

# Cancels the statements of those who wait at the point.
sub cancel
{
	my ($self, $point) = @_;
	$self->{node}->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE @{[ is_waiting($point) ]}");
	return;
}

# The answer to a query that changes nothing, with all messages.  The session is always the same, so that the relation cache
# has what it remembers of the index, and a question costs less than a new session.
sub ask
{
	my ($self, $sql) = @_;

	if (!$self->{asker})
	{
		$self->{asker} = $self->{node}->background_psql('postgres', on_error_stop => 0);
		$self->{asker}->set_query_timer_restart();
	}
	my $answer = $self->{asker}->query("$sql;\nRESET ALL");
	my $messages = $self->{asker}{stderr};

	$self->{asker}{stderr} = '';
	return $answer . $messages;
}

sub quit
{
	my ($self) = @_;
	$_->quit foreach $self->{session}, $self->{asker} || ();
	return;
}

1;
