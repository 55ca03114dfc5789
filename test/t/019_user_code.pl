# Functions of users: expressions, predicates and hash functions of an index.  As which user does each place call them, with
# which search_path, and does VACUUM call any?  What if such a function is hostile, writes, reads the table, fails in every
# way, or sleeps?
#
# The functions write a line to table "calls" each time that they are called.  A function that must be IMMUTABLE may not
# write, but it may call one that does.

use strict;
use warnings;

use BloomidxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('user_code', conf => "fsync = off\nautovacuum_naptime = 1\nmax_parallel_maintenance_workers = 2\n");

sub query { return $node->safe_psql('postgres', $_[0]); }

# What some statements write to standard error: '' if none fails.
sub failure
{
	my ($sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 0);
	return $err;
}

# --- Who is who: alice owns the tables, mallory may read and write them.
query(
	q{
CREATE ROLE alice;
CREATE ROLE mallory;
GRANT CREATE ON SCHEMA public TO alice, mallory;
CREATE TABLE calls (what text, who name, path text);
GRANT ALL ON calls TO public;

-- "calls.write" says whether calls are to be written down, "calls.fails" with which SQLSTATE they are to fail
CREATE FUNCTION write_down(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('calls.write', true) = 'yes' THEN
		INSERT INTO public.calls VALUES (what, current_user, current_setting('search_path'));
	END IF;
	IF current_setting('calls.fails', true) <> '' THEN
		RAISE EXCEPTION 'function fails with %', current_setting('calls.fails')
			USING ERRCODE = current_setting('calls.fails');
	END IF;
END $$;
CREATE FUNCTION expression(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('expression'); RETURN n; END $$;
CREATE FUNCTION predicate(n int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('predicate'); RETURN n >= 0; END $$;
CREATE FUNCTION constant(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('constant'); RETURN n; END $$;
CREATE FUNCTION hash(n int, seed bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('hash'); RETURN hashint4extended(n, seed); END $$;
CREATE OPERATOR CLASS watched_ops FOR TYPE int USING bloomidx AS OPERATOR 1 =, FUNCTION 1 hash(int, bigint);

-- a type with a hash function of its own, which PostgreSQL calls for the elements of an array
CREATE TYPE num;
CREATE FUNCTION num_in(cstring) RETURNS num IMMUTABLE STRICT LANGUAGE internal AS 'int4in';
CREATE FUNCTION num_out(num) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'int4out';
CREATE TYPE num (INPUT = num_in, OUTPUT = num_out, LIKE = int4);
CREATE CAST (num AS int) WITHOUT FUNCTION;
CREATE FUNCTION num_eq(num, num) RETURNS bool IMMUTABLE STRICT LANGUAGE internal AS 'int4eq';
CREATE OPERATOR = (LEFTARG = num, RIGHTARG = num, FUNCTION = num_eq, COMMUTATOR = =, HASHES);
CREATE FUNCTION num_hash(num) RETURNS int IMMUTABLE STRICT LANGUAGE internal AS 'hashint4';
CREATE FUNCTION num_hash(n num, seed bigint) RETURNS bigint IMMUTABLE STRICT LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('element'); RETURN hashint4extended(n::int, seed); END $$;
CREATE OPERATOR CLASS num_ops DEFAULT FOR TYPE num USING hash AS
	OPERATOR 1 =, FUNCTION 1 num_hash(num), FUNCTION 2 num_hash(num, bigint);

ALTER DATABASE postgres SET calls.write = 'yes';
});

# A table whose filters have far more keys than they were made for, and an index with each kind of function.  Loading it calls
# nothing that is written down.
my %indexes = (
	expression => 'expression(n)',
	predicate => 'n',
	constant => 'n',
	hash => 'n watched_ops',
	element => 'p');
my %predicates = (predicate => ' WHERE predicate(n)', constant => ' WHERE n >= constant(0)');

sub make_table
{
	my ($table, @kinds) = @_;
	my $sql = qq{
SET calls.write = 'no';
SET ROLE alice;
DROP TABLE IF EXISTS $table;
CREATE TABLE $table (n int, p num[], pad text) WITH (fillfactor = 30, autovacuum_enabled = off);
GRANT ALL ON $table TO mallory;
INSERT INTO $table SELECT 1, '{1}', repeat('x', 300) FROM generate_series(1, 500);
};
	$sql .= "CREATE INDEX ${table}_$_ ON $table " . using_index($indexes{$_}, pages_per_range => 1) . ($predicates{$_} // '') . ";\n"
	  foreach @kinds;
	query($sql . qq{
ALTER TABLE $table SET (fillfactor = 100);
INSERT INTO $table SELECT i, format('{%s}', i)::num[], '' FROM generate_series(1, 5000) i;
});
	return;
}

# Which functions some statements called, as whom and with which search_path.  Role "none" is the superuser.
sub calls
{
	my ($role, @statements) = @_;
	query('TRUNCATE calls');
	my ($status, $out, $err) = $node->psql(
		'postgres', join(";\n", "SET ROLE $role", "SET search_path = mine, public", "SET enable_seqscan = off", @statements),
		on_error_stop => 1);
	diag "@statements: $err" if $status != 0 || $err =~ /WARNING|ERROR/;
	return query(q{SELECT coalesce(string_agg(DISTINCT format('%s as %s [%s]', what, who, path), '; '), 'none') FROM calls});
}

my @kinds = sort keys %indexes;
my $safe = 'pg_catalog, pg_temp';
my $safe_since_17 = query("SELECT current_setting('server_version_num')::int >= 170000") eq 't';

foreach my $kind (@kinds)
{
	# what a function that runs as alice with a safe path leaves, and the same for the server's own commands
	my $as_alice = "$kind as alice [$safe]";
	my $as_caller = "$kind as mallory [mine, public]";
	my $by_server = $safe_since_17 ? $as_alice : "$kind as alice [mine, public]";
	my $index = "w_$kind";

	make_table('w', $kind);
	note "--- $kind";

	# No VACUUM calls any function; that of a fresh session, which has nothing in its caches, included.
	foreach my $vacuum ('VACUUM w', 'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) w', 'VACUUM (PARALLEL 2) w', 'VACUUM (INDEX_CLEANUP on) w')
	{
		is(calls('none', $vacuum), 'none', "$vacuum calls no function: $kind");
	}
	my $note = query("SELECT note FROM bloomidx_info('$index')");
	like($note, qr/more keys than planned: \d+, call bloomidx_summarize\(\)/, "the note names bloomidx_summarize: $kind");

	# The functions that show an index call none either.
	is( calls(
			'mallory', "SELECT * FROM bloomidx_info('$index')",
			"SELECT * FROM bloomidx_@{[ layout() eq 'block' ? 'blocks' : 'segments' ]}('$index')",
			"SELECT * FROM bloomidx_measure('$index', 10)", "SELECT * FROM bloomidx_estimate('w', '{n}')"),
		'none',
		"functions that show an index call no function of users: $kind");

	# Those that need the keys of rows call as the owner, and not for a caller without the owner's rights.
	like(
		failure("SET ROLE mallory; SELECT bloomidx_check('$index')"),
		qr/ERROR:  permission denied to look up rows in index "$index"/,
		"bloomidx_check does not call functions for somebody else: $kind");
	is(calls('mallory', "SELECT bloomidx_check('$index', heapallindexed => false)"),
		'none', "bloomidx_check of the pages alone calls no function: $kind");
	is(calls('none', "SELECT bloomidx_check('$index')"), $as_alice, "bloomidx_check calls as the owner: $kind")
	  if $kind ne 'constant';
	is(calls('none', "SELECT bloomidx_summarize('$index')"), $as_alice, "bloomidx_summarize calls as the owner: $kind")
	  if $kind ne 'constant';
	query("SELECT bloomidx_summarize('$index')");
	is(query("SELECT note FROM bloomidx_info('$index')"), '', "after bloomidx_summarize no note is left: $kind");
	is(calls('mallory', "SELECT * FROM bloomidx_probe('$index', 5)"), $as_caller, 'bloomidx_probe calls as the caller: hash')
	  if $kind eq 'hash';
	is(calls('mallory', "SELECT * FROM bloomidx_probe('$index', '{1}'::num[])"),
		$as_caller, 'bloomidx_probe calls as the caller: element')
	  if $kind eq 'element';

	# The server's commands call as the server has it; each once.
	next if $kind eq 'constant';
	is(calls('none', "REINDEX INDEX $index"), $by_server, "REINDEX calls as the owner: $kind");
	is(calls('none', 'REINDEX INDEX CONCURRENTLY ' . $index), $by_server, "REINDEX CONCURRENTLY calls as the owner: $kind");
	is(calls('mallory', "INSERT INTO w VALUES (7, '{7}')"),
		$as_caller, "INSERT calls as its user: $kind");
	is(query("SELECT oracle_force(true); SELECT count(*) FROM w WHERE n = 7 AND n > 0") =~ s/^\n//r,
		2, "rows are found after REINDEX and INSERT: $kind");
}

# --- A function in a predicate does not run in a query that does not contain the function.  The condition implies the predicate.
# An index scan evaluates the predicate, and a bitmap scan does so unless the condition on the indexed column implies it.
query(q{
CREATE FUNCTION costly(int) RETURNS bool LANGUAGE sql IMMUTABLE COST 1e10 AS 'SELECT random() >= 0';
SET ROLE alice;
-- the planner calls the operator's function for the most common values of a column
CREATE FUNCTION planned(int, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('planned'); RETURN $1 = $2; END $$;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = planned, RESTRICT = eqsel);
CREATE TABLE implied (n int, m int, k int, f int, t text);
INSERT INTO implied SELECT i, i, i, i % 3, 'x' FROM generate_series(1, 1000) i;
CREATE DOMAIN alice_int AS int CHECK (predicate(VALUE));
CREATE DOMAIN free_int AS int;
CREATE INDEX ON implied USING bloomidx (k);
ANALYZE implied;
});
my @cases = (
	[ 'predicate(n) OR n IS NOT NULL', 'n = 5', 'Bitmap Index Scan' ],
	[ 'CAST(n AS alice_int) > 0 OR n IS NOT NULL', 'n = 5', 'Bitmap Index Scan' ],
	[ 'predicate(m) OR m IS NOT NULL', 'n = 5 AND m = 5', 'Seq Scan' ],
	[ 'predicate(m) OR m IS NOT NULL', 'n = 5 AND m = 5 AND costly(m)', 'Seq Scan' ],
	[ 'CAST(m AS alice_int) > 0 OR m IS NOT NULL', 'n = 5 AND m = 5', 'Seq Scan' ],
	[ 'predicate(m)', 'n = 5 AND predicate(m)', 'Index Scan' ],
	[ 'predicate(m) IS NOT NULL', 'n = 5 AND predicate(m)', 'Index Scan' ],
	[ 'predicate(m) AND m IS NOT NULL', '(n = 5 AND predicate(m) AND m IS NOT NULL) OR k = 5', 'Bitmap Index Scan' ],
	[ 'CAST(m AS free_int) > 0 OR m IS NOT NULL', 'n = 5 AND m = 5', 'Bitmap Index Scan' ],
	[ 'f OPERATOR(public.===) 1 OR m IS NOT NULL', 'n = 5 AND m = 5', 'Seq Scan' ],
	[ 'm < 1000', 'n = 5 AND m < 10', 'Index Scan' ]);
if (server_version($node) >= 16)
{
	# these call casts of users
	query('SET ROLE alice; CREATE TYPE alice_enum AS enum (\'a\', \'b\'); CREATE FUNCTION to_json(alice_enum) RETURNS json '
		  . 'LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM public.predicate(1); RETURN 1; END $$;'
		  . 'CREATE CAST (alice_enum AS json) WITH FUNCTION to_json(alice_enum); ALTER TABLE implied ADD e alice_enum DEFAULT \'a\'');
	push @cases, [ 'json_array(e) IS NULL OR m IS NOT NULL', 'n = 5 AND m = 5', 'Seq Scan' ];
}
foreach my $case (@cases)
{
	my ($predicate, $condition, $node_type) = @$case;
	my $statement = "SELECT * FROM implied WHERE $condition";
	my $what = "the predicate $predicate and the condition $condition";
	# a reader who prefers the index to the sequential scan
	my @prefer = ('SET enable_seqscan = on', 'SET seq_page_cost = 1e5');

	query("SET ROLE alice; DROP INDEX IF EXISTS implied_n; CREATE INDEX implied_n ON implied "
		  . using_index('n', pages_per_range => 1) . " WHERE $predicate");
	is(calls('none', @prefer, $statement), 'none', "the query does not call a function, with $what") if $condition !~ /predicate/;
	my $plan = query(join('; ', @prefer, "EXPLAIN (COSTS off) $statement"));
	like($plan, qr/(^|->  )$node_type (using implied_n |on implied(_n)?$)/m, "there is a scan of this kind, with $what");
	is(query(join('; ', @prefer, "SELECT count(*) FROM implied WHERE $condition")), 1, "the row is found, with $what");
}

# A function in the predicate does not see rows that a policy hides, although the query contains the function.
query(q{
SET ROLE alice;
DROP INDEX implied_n;
CREATE INDEX implied_n ON implied } . using_index('n', pages_per_range => 1) . q{ WHERE predicate(m);
ALTER TABLE implied ENABLE ROW LEVEL SECURITY;
CREATE POLICY some_rows ON implied USING (n > 5);
GRANT SELECT ON implied TO mallory;
});
foreach my $scan ('SET enable_bitmapscan = off', 'SET enable_indexscan = off')
{
	is(calls('mallory', 'SET enable_seqscan = on', 'SET seq_page_cost = 1e5', $scan, 'SELECT * FROM implied WHERE n = 5 AND predicate(m)'),
		'none', "a function in the predicate does not see hidden rows: $scan");
}

# A function that is inlined into the plan is replaced before a scan with the plan begins.
query(q{
SET ROLE alice;
DROP INDEX implied_n;
ALTER TABLE implied DISABLE ROW LEVEL SECURITY;
CREATE FUNCTION inlined(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0';
CREATE INDEX implied_n ON implied } . using_index('n', pages_per_range => 1) . q{ WHERE inlined(m) OR m IS NOT NULL;
ANALYZE implied;
});
my $reader = $node->background_psql('postgres');
$reader->query_safe("SET plan_cache_mode = force_generic_plan; SET seq_page_cost = 1e5;
	PREPARE q(int) AS SELECT count(*) FROM implied WHERE n = \$1 AND m IS NOT NULL");
is($reader->query_safe('EXECUTE q(5)'), 1, 'a plan is prepared that uses the index');
query(q{
SET ROLE alice;
CREATE OR REPLACE FUNCTION inlined(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.write_down('inlined'); RETURN $1 > 0; END $$;
ALTER INDEX implied_n SET (false_positive_rate = 0.02);
TRUNCATE calls;
});
is($reader->query_safe('EXECUTE q(5)'), 1, 'and finds the row after the function was replaced');
is(query('SELECT count(*) FROM calls'), 0, 'without calling the new function');
$reader->quit;

# A reader who may not call a built-in function in the predicate can search the table.
query(q{
SET ROLE alice;
DROP INDEX implied_n;
CREATE INDEX implied_n ON implied } . using_index('n', pages_per_range => 1) . q{ WHERE m IS NOT NULL OR initcap(t) = 'X'});
query('REVOKE EXECUTE ON FUNCTION initcap(text) FROM public');
is(query("SET ROLE mallory; SET seq_page_cost = 1e5; SELECT count(*) FROM implied WHERE n = 5 AND m = 5"),
	1, 'a row is found without the privilege to call a function in the predicate');
query('GRANT EXECUTE ON FUNCTION initcap(text) TO public');
query('DROP FUNCTION costly');
query('DROP TABLE implied');
query('DROP FUNCTION inlined');

# --- An expression that bloomidx_estimate is asked about runs as the owner, too, and not for a caller without the owner's
# rights.  Its names are resolved under the caller's search_path, like those of an operator class.
my $estimate = "SELECT layout FROM bloomidx_estimate('w', '{expression(n)}')";
is(calls('none', $estimate), "expression as alice [$safe]", 'bloomidx_estimate calls as the owner');
like(
	failure("SET ROLE mallory; $estimate"),
	qr/ERROR:  permission denied to compute expressions for table "w"/,
	'bloomidx_estimate does not call functions for somebody else');
is(calls('mallory', "SELECT layout FROM bloomidx_estimate('w', '{p array_elements_ops}', keys => 'each') WHERE false",
		"SELECT layout FROM bloomidx_estimate('w', '{pad text_ngram_ops}')"),
	'none', 'but it takes a sample of keys that C functions compute');

# --- Autovacuum, too, calls none.  (Its ANALYZE evaluates expressions, as it always does.)
make_table('w', @kinds);
query(
	q{ALTER TABLE w SET (autovacuum_enabled = on, autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,
	autovacuum_analyze_threshold = 100000000); DELETE FROM w WHERE n = 1; TRUNCATE calls});
$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_work_mem = 32MB\n");
$node->reload;
ok( $node->poll_query_until('postgres', "SELECT autovacuum_count > 0 FROM pg_stat_all_tables WHERE relname = 'w'"),
	'autovacuum processes the table');
is(query('SELECT count(*) FROM calls'), 0, 'autovacuum calls no function');
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->reload;

# --- A caller who may read a table, or is only in pg_stat_scan_tables, tries to have her own code run by the owner's functions:
# by a search_path; by a search_path that the session has used before, whose results are remembered in the relation cache, in
# compiled functions and in plans; by types in pg_temp.
query(
	q{
CREATE ROLE monitor IN ROLE pg_stat_scan_tables;
CREATE TABLE ran_as (who name);
GRANT ALL ON ran_as TO public;
CREATE SCHEMA evil AUTHORIZATION mallory;
CREATE DOMAIN mail AS text;
SET ROLE mallory;
GRANT USAGE ON SCHEMA evil TO public;
CREATE FUNCTION evil.attack() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.ran_as VALUES (current_user);
	BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
END $$;
CREATE FUNCTION evil.lower(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM evil.attack(); RETURN pg_catalog.lower($1); END $$;
CREATE FUNCTION evil.chk(text) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.attack(); RETURN true; END $$;
CREATE DOMAIN evil.mail AS text CHECK (evil.chk(VALUE));
RESET ROLE;
CREATE FUNCTION norm_sql(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower($1)';
CREATE FUNCTION norm_pl(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ DECLARE v mail; BEGIN v := lower(t); RETURN v; END $$;
CREATE FUNCTION hash_sql(n num, seed bigint) RETURNS bigint IMMUTABLE STRICT LANGUAGE sql AS 'SELECT length(lower($1::int::text))::bigint';
CREATE OPERATOR CLASS hash_sql_ops FOR TYPE num USING bloomidx AS OPERATOR 1 =, FUNCTION 1 hash_sql(num, bigint);
});
foreach my $owner ('alice', 'super')
{
	query(
		($owner eq 'alice' ? "SET ROLE alice;\n" : '') . qq{
CREATE TABLE ${owner}_t (name text, n num);
CREATE INDEX ${owner}_sql ON ${owner}_t USING bloomidx (norm_sql(name));
CREATE INDEX ${owner}_pl ON ${owner}_t USING bloomidx (norm_pl(name)) WHERE norm_sql(name) <> 'x';
CREATE INDEX ${owner}_hash ON ${owner}_t USING bloomidx (n hash_sql_ops);
INSERT INTO ${owner}_t SELECT 'Name ' || i, i::text::num FROM generate_series(1, 10) i;
GRANT SELECT ON ${owner}_t TO mallory;
});
	foreach my $index ("${owner}_sql", "${owner}_pl", "${owner}_hash")
	{
		foreach my $who ('mallory', 'monitor')
		{
			$node->psql(
				'postgres', qq{
SET ROLE $who;
SET search_path = evil, pg_catalog, public;
EXPLAIN SELECT FROM ${owner}_t WHERE name = 'x';
SELECT norm_sql('x'), norm_pl('x'), hash_sql('1'::num, 0);
CREATE DOMAIN pg_temp.mail AS text CHECK (evil.chk(VALUE));
DELETE FROM ran_as;
BEGIN;
SELECT hash_sql('1'::num, 0), bloomidx_hash(ARRAY['1'::num], 0);
SELECT FROM bloomidx_probe('${owner}_hash', '1'::num);
COMMIT;
SELECT bloomidx_check('$index');
SELECT bloomidx_check('$index', false);
SELECT bloomidx_summarize('$index');
SELECT * FROM bloomidx_info('$index');
SELECT * FROM bloomidx_measure('$index', 10);
SELECT * FROM bloomidx_estimate('${owner}_t', '{name}');
}, on_error_stop => 0);
			is(query("SELECT count(*) FROM ran_as WHERE who NOT IN ('mallory', 'monitor')"),
				0, "$who cannot have code run as the owner: $index");
		}
	}
}
is(query("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'mallory does not become superuser');
cmp_ok(
	$node->safe_psql('postgres', "SET search_path = evil, pg_catalog, public; DELETE FROM ran_as; SELECT norm_sql('x'); SELECT count(*) FROM ran_as") =~ s/.*\n//sr,
	'>', 0, 'the attack works where nothing prevents it');
query('ALTER ROLE mallory NOSUPERUSER');

# --- The owner of a table tries to have her code run by a superuser who passes the names of columns to bloomidx_estimate: the
# name that the superuser has read is no longer that of a column when the lock on the table is granted.  Constants are
# converted when an expression is analyzed, and functions of constants are called when it is planned.
query(
	q{
SET ROLE mallory;
CREATE DOMAIN evil.checked AS int CHECK (evil.chk(VALUE::text));
CREATE TYPE evil.pair AS (a evil.checked);
GRANT USAGE ON TYPE evil.checked, evil.pair TO public;
});
foreach my $name ('evil.lower(b)', q{evil.lower('x')}, q{(b || (('(1)'::evil.pair)::text))}, q{((('(1)'::evil.pair).a)::int)})
{
	my $victim = $node->background_psql('postgres', on_error_stop => 0);
	my $owner = $node->background_psql('postgres');

	query(qq{
DELETE FROM ran_as;
SET ROLE mallory;
DROP TABLE IF EXISTS trap;
CREATE TABLE trap ("$name" text, b text);
INSERT INTO trap VALUES ('a', 'b');
ANALYZE trap;
});
	is(query("SELECT layout FROM bloomidx_estimate('trap', ARRAY[\$\$$name\$\$])"), 'block', "it is the name of a column: $name");
	$owner->query_safe(qq{SET ROLE mallory; BEGIN; ALTER TABLE trap RENAME "$name" TO a});
	start_in($victim,
		"SELECT e.layout FROM pg_attribute a, bloomidx_estimate(attrelid, ARRAY[attname::text]) e WHERE attrelid = 'trap'::regclass AND attnum = 1"
	);
	ok( $node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'trap'::regclass AND NOT granted}),
		"a superuser waits for the lock on the table: $name");
	$owner->query_safe('COMMIT');
	ok( $node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND query ~ '^SELECT e.layout'}),
		"and goes on: $name");
	is(query("SELECT string_agg(DISTINCT who, ',') FROM ran_as WHERE who <> 'mallory'"),
		'', "the owner of a table cannot have code run by a superuser who estimates all columns: $name");
	is(query("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', "and does not become superuser: $name");
	query('ALTER ROLE mallory NOSUPERUSER');
	$victim->quit;
	$owner->quit;
}
query('DROP TABLE trap');

# --- What the functions have changed for the owner's code, they restore, after an error as well.
is( $node->safe_psql('postgres', "SET search_path = evil, pg_catalog, public; SELECT bloomidx_check('alice_sql');
	SHOW search_path; SELECT current_user = session_user"),
	"10\nevil, pg_catalog, public\nt",
	'after bloomidx_check user and search_path are those of the caller');
like(failure("BEGIN; SAVEPOINT s; SET calls.fails = '22012'; SELECT bloomidx_check('w_expression');
	ROLLBACK TO s; SELECT current_user = session_user AND current_setting('search_path') LIKE '%public%' AS restored \\gset
	\\if :restored\n\\warn restored\n\\endif"), qr/22012.*^restored$/ms, 'after an error in bloomidx_check user and search_path are those of the caller');

query('DROP TABLE alice_t, super_t');

# --- A function that fails in every way is no obstacle for VACUUM, and leaves no unfinished rebuild behind in others.
make_table('w', 'expression');
foreach my $sqlstate (qw(22012 23505 25006 40001 40P01 42P01 53100 53200 53300 57014 57P01 57P03 58030 XX000 XX001 XX002 P0001))
{
	my $set = "SET calls.write = 'no'; SET calls.fails = '$sqlstate';";

	is($node->psql('postgres', "$set\nVACUUM w") . failure("$set\nVACUUM w"),
		'0', "VACUUM does not fail with a function that raises $sqlstate");
	foreach my $place (
		"SELECT bloomidx_summarize('w_expression')", "SELECT bloomidx_check('w_expression')", 'INSERT INTO w VALUES (1)',
		'REINDEX INDEX w_expression')
	{
		like(failure("$set $place"), qr/ERROR:  function fails with $sqlstate/, "$place: fails with $sqlstate of the function");
	}
	unlike(query("SELECT note FROM bloomidx_info('w_expression')"), qr/interrupted/, "no rebuild is left unfinished: $sqlstate");
}
like(
	failure("SET calls.write = 'no'; SET calls.fails = '22012'; REINDEX INDEX CONCURRENTLY w_expression"),
	qr/function fails with 22012/,
	'REINDEX CONCURRENTLY fails with the error of the function');
query('DROP INDEX w_expression_ccnew');
cmp_ok(query("SET calls.write = 'no'; SELECT bloomidx_summarize('w_expression')"),
	'>', 0, 'bloomidx_summarize rebuilds the filters when the function does not fail');

# --- Filters are not rebuilt by definitions that may be rolled back.
query(
	q{
CREATE TYPE comp AS (a int, b int);
CREATE FUNCTION flip(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN n; END $$;
CREATE TABLE undone (n int, c comp, pad text) WITH (fillfactor = 30, autovacuum_enabled = off);
INSERT INTO undone SELECT 1, row(1, 1)::comp, repeat('x', 300) FROM generate_series(1, 500);
});
query('CREATE INDEX undone_flip ON undone ' . using_index('flip(n)', pages_per_range => 1));
query('CREATE INDEX undone_c ON undone ' . using_index('c', pages_per_range => 1));
query(q{ALTER TABLE undone SET (fillfactor = 100); INSERT INTO undone SELECT i, row(i, i)::comp, '' FROM generate_series(1, 5000) i});
foreach my $case (
	[ 'undone_flip', q{CREATE OR REPLACE FUNCTION flip(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN -n; END $$} ],
	[ 'undone_c', 'ALTER TYPE comp DROP ATTRIBUTE b' ])
{
	my ($index, $ddl) = @$case;

	like(
		failure("BEGIN; $ddl; SELECT bloomidx_summarize('$index'); ROLLBACK"),
		qr/ERROR:  cannot rebuild filters of index "$index" in a transaction that has written data/,
		"bloomidx_summarize is refused in a transaction with other definitions: $index");
	is(query("SELECT bloomidx_check('$index')"),
		5500, "bloomidx_check looks up every row after the transaction has been rolled back: $index");
	cmp_ok(query("BEGIN; SELECT bloomidx_summarize('$index'); COMMIT"),
		'>', 0, "bloomidx_summarize rebuilds filters in a transaction that has written nothing: $index");
}

# --- Nor by definitions that a session remembers: SQL functions that the relation cache has inlined before their replacement was
# rolled back, or under another search_path; and how a hash function was called before its replacement was rolled back.
query(
	q{
CREATE SCHEMA other;
CREATE FUNCTION other.abs(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1000000';
CREATE FUNCTION inlined(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT abs($1)';
CREATE FUNCTION replaced(n int, seed bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN n * 1000 + seed; END $$;
CREATE OPERATOR CLASS replaced_ops FOR TYPE int USING bloomidx AS OPERATOR 1 =, FUNCTION 1 replaced(int, bigint);
});
my $replace = 'BEGIN; CREATE OR REPLACE FUNCTION';
foreach my $case (
	[ 'an expression', 'inlined(k)', '', 'inlined(k) =',
		"$replace inlined(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT \$1 + 1000000'; EXPLAIN SELECT FROM stale WHERE k = 5; ROLLBACK" ],
	[ 'a predicate', 'k', 'WHERE inlined(k) > 0', 'inlined(k) > 0 AND k =',
		"$replace inlined(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT \$1 - 1000000'; EXPLAIN SELECT FROM stale WHERE k = 5; ROLLBACK" ],
	[ 'an expression and a search_path', 'inlined(k)', '', 'inlined(k) =',
		'SET search_path = other, pg_catalog, public; EXPLAIN SELECT FROM stale WHERE k = 5; RESET search_path' ],
	[ 'a hash function', 'k replaced_ops', '', 'k =',
		"$replace replaced(n int, seed bigint) RETURNS bigint IMMUTABLE LANGUAGE internal AS 'hashint4extended';
		SET enable_seqscan = off; SELECT FROM stale WHERE k = -1; ROLLBACK" ])
{
	my ($what, $columns, $where, $condition, $remember) = @$case;
	my $found = "SELECT oracle_uses_index('SELECT FROM stale WHERE $condition 1', 'stale_k');
		SELECT count(*) FROM (SELECT (SELECT count(*) FROM stale WHERE $condition i) AS n FROM generate_series(1, 2000, 9) i OFFSET 0) s WHERE n > 0";

	query(
		q{
DROP TABLE IF EXISTS stale;
CREATE TABLE stale (k int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO stale SELECT 1, repeat('x', 100) FROM generate_series(1, 300);
} . 'CREATE INDEX stale_k ON stale ' . using_index($columns, pages_per_range => 1) . " $where;" . q{
ALTER TABLE stale SET (fillfactor = 100);
INSERT INTO stale SELECT i, '' FROM generate_series(1, 2000) i;
});
	is(query("$remember; SELECT bloomidx_check('stale_k')") =~ s/.*\n//sr, 2300, "bloomidx_check is not misled by what is remembered of $what");
	cmp_ok(query("$remember; SELECT bloomidx_summarize('stale_k')") =~ s/.*\n//sr, '>', 0, "bloomidx_summarize: $what");
	is(query("SELECT oracle_force(true); $found"), "\nt\n223", "all rows are found: $what");
	is(query("SELECT oracle_force(false); $found"), "\nf\n223", "as by a sequential scan: $what");
	is(query("SELECT bloomidx_check('stale_k')"), 2300, "bloomidx_check: $what");
}

# --- A function that reads and writes its own table by way of the index.
query(
	q{
CREATE TABLE self (n int, pad text) WITH (fillfactor = 30, autovacuum_enabled = off);
INSERT INTO self SELECT 1, repeat('x', 300) FROM generate_series(1, 500);
CREATE FUNCTION meddle(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('calls.meddles', 'no', true), set_config('enable_seqscan', 'off', true);
	PERFORM FROM public.self s WHERE public.reading(s.n) = meddle.n;
	IF meddle.n % 100 = 0 THEN
		INSERT INTO public.self VALUES (meddle.n + 100000, '');
		UPDATE public.self SET pad = 'y' WHERE public.reading(self.n) = meddle.n + 100000;
	END IF;
	PERFORM set_config('calls.meddles', 'yes', true);
END $$;
CREATE FUNCTION reading(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('calls.meddles', true) = 'yes' AND n % 10 = 0 THEN
		PERFORM public.meddle(n);
	END IF;
	RETURN n;
END $$;
});
query("CREATE INDEX self_n ON self " . using_index('reading(n)', pages_per_range => 1));
query("ALTER TABLE self SET (fillfactor = 100); INSERT INTO self SELECT i, '' FROM generate_series(1, 2000) i");
foreach my $call ("bloomidx_check('self_n') > 0", "bloomidx_summarize('self_n') > 0")
{
	is(query("SET statement_timeout = '60s'; BEGIN; SET LOCAL calls.meddles = 'yes'; SELECT $call; COMMIT"),
		't', "$call: a function may read and write the table");
}
is(query("SELECT bloomidx_check('self_n') = count(*) AND count(*) > 2510 FROM self"),
	't', 'the index has all rows after its function has written the table');

# --- A function that looks at its own index while REINDEX builds it does not find damage.
query(
	q{
CREATE TABLE unbuilt AS SELECT i AS n FROM generate_series(1, 10) i;
CREATE FUNCTION looking(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('calls.looks', true) = 'yes' THEN
		PERFORM public.bloomidx_check('public.unbuilt_n');
	END IF;
	RETURN n;
END $$;
});
query('CREATE INDEX unbuilt_n ON unbuilt ' . using_index('looking(n)'));
like(
	failure("SET calls.looks = 'yes'; REINDEX INDEX unbuilt_n"),
	qr/ERROR:  cannot access index "unbuilt_n" while it is being reindexed/,
	'bloomidx_check of an index that is being built');
query('DROP TABLE unbuilt');

# --- A function that sleeps holds up nobody, and can be cancelled.
make_table('w', 'expression');
query(q{CREATE OR REPLACE FUNCTION expression(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN IF current_setting('calls.sleeps', true) = 'yes' THEN PERFORM pg_sleep(600); END IF; RETURN n; END $$});
foreach my $call ('bloomidx_summarize', 'bloomidx_check')
{
	my $sleeper = $node->background_psql('postgres', on_error_stop => 0);
	$sleeper->query_safe("SET calls.sleeps = 'yes'");
	start_in($sleeper, "SELECT $call('w_expression')");
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT $call' AND wait_event = 'PgSleep'");
	is(query("SET statement_timeout = '30s'; INSERT INTO w SELECT i FROM generate_series(1, 1000) i;
		SELECT count(*) > 0 FROM w WHERE expression(n) = 7"), 't', "others read and write while $call sleeps");
	query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ '^SELECT $call'");
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^SELECT $call' AND state = 'active'");
	unlike(query("SELECT note FROM bloomidx_info('w_expression')"), qr/interrupted/, "$call that was cancelled leaves nothing behind");
	$sleeper->quit;
}

# --- bloomidx_summarize() does not make REINDEX CONCURRENTLY fail: it gives up where it would have to wait.
query("CREATE TABLE busy AS SELECT i AS k FROM generate_series(1, 1000) i");
query("CREATE INDEX busy_k ON busy " . using_index('k'));
my $run = start_pgbench($node,
	{ summarize => [ 1, "DO \$\$ BEGIN PERFORM bloomidx_summarize('busy_k'); EXCEPTION WHEN lock_not_available OR undefined_table THEN NULL; END \$\$;\n" ] },
	'-c', '3', '-T', '6');
my @failures;
my $reindexed = 0;
while ($run->{harness}->pump_nb && $reindexed < 200)
{
	my $failure = failure('REINDEX INDEX CONCURRENTLY busy_k');
	push @failures, $failure if $failure;
	$reindexed++;
}
$run->{harness}->finish;
note "REINDEX CONCURRENTLY: $reindexed";
cmp_ok($reindexed, '>', 5, 'REINDEX CONCURRENTLY runs several times beside bloomidx_summarize');
is(join('', @failures), '', 'REINDEX CONCURRENTLY does not fail because of bloomidx_summarize');
is(query("SELECT count(*) FROM pg_index WHERE NOT indisvalid"),
	0, 'REINDEX CONCURRENTLY beside bloomidx_summarize leaves no invalid index');
my $blocker = $node->background_psql('postgres');
$blocker->query_safe('BEGIN; LOCK TABLE busy IN SHARE UPDATE EXCLUSIVE MODE');
like(failure("SET statement_timeout = '30s'; SELECT bloomidx_summarize('busy_k')"), qr/ERROR:  could not obtain lock on table "busy"/,
	'bloomidx_summarize does not wait for a lock');
$blocker->quit;

# --- The owner of a type, who has no privilege on a table, cannot hold up its VACUUM, nor bloomidx_info(), by altering the
# type in a transaction that does not end; nor does a transaction that goes on to alter the table deadlock with VACUUM.
query(
	q{
CREATE TYPE part AS (a int, b int);
CREATE TYPE whole AS (n int, p part[]);
ALTER TYPE part OWNER TO mallory;
ALTER TYPE whole OWNER TO mallory;
});
my %values = (part => 'row(%s, 1)::part', whole => 'row(1, ARRAY[row(%s, 1)::part])::whole', 'whole[]' => 'ARRAY[row(1, ARRAY[row(%s, 1)::part])::whole]');
foreach my $case ([ 'part', 'part' ], [ 'whole', 'whole' ], [ 'whole', 'part' ], [ 'whole[]', 'part' ])
{
	my ($type, $altered) = @$case;
	my $what = "column $type, $altered is altered";
	my $timeout = "SET statement_timeout = '20s'";
	my $overfull = qr/more keys than planned/;

	query("DROP TABLE IF EXISTS typed; CREATE TABLE typed (k $type, i int, pad text) WITH (fillfactor = 30, autovacuum_enabled = off);
		REVOKE ALL ON typed FROM mallory;
		INSERT INTO typed SELECT " . sprintf($values{$type}, '1') . ", 1, repeat('x', 300) FROM generate_series(1, 500);
		CREATE INDEX typed_k ON typed " . using_index('k', pages_per_range => 1) . ";
		ALTER TABLE typed SET (fillfactor = 100);
		INSERT INTO typed SELECT " . sprintf($values{$type}, 'i') . ", i, '' FROM generate_series(1, 5000) i");
	like(query("SELECT note FROM bloomidx_info('typed_k')"), $overfull, "filters are to be rebuilt: $what");

	my $owner = $node->background_psql('postgres');
	$owner->query_safe("SET ROLE mallory; BEGIN; ALTER TYPE $altered ADD ATTRIBUTE z int");
	is(failure("$timeout;\nVACUUM typed"), '', "VACUUM does not wait: $what");
	is(failure("$timeout;\nVACUUM (DISABLE_PAGE_SKIPPING, INDEX_CLEANUP on) typed"), '', "nor with all pages: $what");
	like(query("$timeout; SELECT note FROM bloomidx_info('typed_k')"), $overfull, "and neither does bloomidx_info: $what");
	$owner->query_safe('ROLLBACK');
	is(failure('VACUUM typed'), '', "VACUUM after that: $what");
	is(query("SELECT note FROM bloomidx_info('typed_k')"), '', "which rebuilds the filters: $what");
	is(query("SELECT oracle_lost_rows('typed', 'k', 'typed_k', 'true', 'i % 20 = 0')"), 0, "rows are found: $what");
	is(query("SELECT bloomidx_check('typed_k')"), 5500, "bloomidx_check: $what");
	$owner->quit;
}

# --- Nor can types be nested so deeply, or be so many, that VACUUM runs out of stack or of locks, or takes long to examine them.
query(
	q{
CREATE TYPE deep0 AS (a int);
DO $$ BEGIN FOR i IN 1 .. 300 LOOP EXECUTE format('CREATE TYPE deep%s AS (a deep%s, b int)', i, i - 1); END LOOP; END $$;
DO $$ BEGIN FOR i IN 1 .. 150 LOOP EXECUTE format('CREATE TYPE leaf%s AS (a int)', i); END LOOP;
	EXECUTE (SELECT format('CREATE TYPE wide AS (%s)', string_agg(format('c%s leaf%s', i, i), ', ')) FROM generate_series(1, 150) i);
END $$;
CREATE DOMAIN chain1 AS int;
DO $$ BEGIN FOR i IN 2 .. 50 LOOP EXECUTE format('CREATE DOMAIN chain%s AS chain%s', i, i - 1); END LOOP;
	EXECUTE (SELECT format('CREATE TYPE long AS (%s)', string_agg(format('c%s chain50', i), ', ')) FROM generate_series(1, 100) i);
	EXECUTE (SELECT format('CREATE TYPE broad AS (%s)', string_agg(format('c%s int', i), ', ')) FROM generate_series(1, 1500) i);
END $$;
CREATE TABLE deep (k deep300, l deep90, m wide, n long, o broad) WITH (autovacuum_enabled = off);
INSERT INTO deep VALUES (NULL, NULL, NULL, NULL, NULL);
});
query("CREATE INDEX deep_$_ ON deep " . using_index($_)) foreach 'k' .. 'o';
my $failure = failure("SET client_min_messages = debug1; SET max_stack_depth = '100kB';\nVACUUM deep");
unlike($failure, qr/ERROR/, 'VACUUM with types that are nested deeply');
like($failure, qr/filters of index "deep_$_" are not rebuilt in VACUUM/, "does not rebuild filters of such values: $_") foreach 'k', 'm', 'n';
unlike($failure, qr/filters of index "deep_$_" are not rebuilt in VACUUM/, "but does if the types are reasonable: $_") foreach 'l', 'o';

log_is_clean($node, 'functions of users');
done_testing();
