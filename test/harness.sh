# Sourced by test/setup, test/check, bench/demo and bench/compare: a private copy of PostgreSQL with bloomidx in
# it, and throw-away servers, in one temporary directory that is removed at the end.  Nothing else is written.
#
#   workspace_create postgres_copy extension_install [old_postgres_install] (server_start server_stop)*
#
# Root may not run a server, so everything in the workspace is made and run by an unprivileged user.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
test_user=${TEST_USER:-nobody}
work=
source=
install=
pg_config=
private_bin=
server=

# No setting of the caller's may lead us to another server, and no make of the caller's owns our jobs.
for variable in "${!PG@}"; do
	[ "$variable" = PG_CONFIG ] || unset "$variable"
done
unset variable MAKEFLAGS MFLAGS MAKELEVEL
export LC_ALL=C PGCLIENTENCODING=UTF8

die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

# Can an extension be built and tested with this pg_config?  Debian has PGXS and the headers in different packages.
usable_pg_config()
{
	local pgxs headers bindir

	pgxs=$("$1" --pgxs 2>/dev/null) && headers=$("$1" --includedir-server 2>/dev/null) &&
		bindir=$("$1" --bindir 2>/dev/null) &&
		[ -f "$pgxs" ] && [ -f "$headers/postgres.h" ] && [ -x "$bindir/postgres" ]
}

# Prints the pg_config to use: the caller's PG_CONFIG and no other, or the first in the PATH, or the newest of
# those that Debian installs side by side.  False if there is none.
find_pg_config()
{
	local candidate

	if [ -n "${PG_CONFIG:-}" ]; then
		usable_pg_config "$PG_CONFIG" ||
			die "PG_CONFIG=$PG_CONFIG does not lead to a PostgreSQL server with its development files"
		command -v "$PG_CONFIG"
		return
	fi
	for candidate in pg_config $(ls -rv /usr/lib/postgresql/*/bin/pg_config 2>/dev/null); do
		if usable_pg_config "$candidate"; then
			command -v "$candidate"
			return
		fi
	done
	return 1
}

# Runs a command in the workspace's environment, never as root.
as_user()
{
	local environment=(env HOME="$work/home" TMPDIR="$work/tmp" PATH="$private_bin:$PATH")

	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid="$test_user" --regid="$(id -g "$test_user")" --clear-groups -- "${environment[@]}" "$@"
	else
		"${environment[@]}" "$@"
	fi
}

# Makes the directory $work, and arranges for its end.
workspace_create()
{
	local base=${TMPDIR:-/tmp}

	umask 022
	# the path of a server's socket must fit in 107 bytes
	[ ${#base} -le 40 ] || base=/tmp
	work=$(mktemp -d "$base/bloomidx.XXXXXX")
	trap workspace_remove EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM

	# PostgreSQL finds its files relative to its own real path
	work=$(cd "$work" && pwd -P)
	[ "$(id -u)" -ne 0 ] || chown "$test_user" "$work"
	cd "$work" || exit
	source=$work/src
	install=$work/install
	as_user mkdir home tmp src ||
		die "user \"$test_user\" cannot write in $work; set TMPDIR to a directory that all can enter"
	tar -C "$top" --exclude=./.git --exclude='*.o' --exclude='*.so' -cf - . | as_user tar -C src -xf -
}

# Stops every server that was started in the workspace, whoever started it, and removes it.
workspace_remove()
{
	local status=$? pidfile

	trap '' HUP INT TERM
	while IFS= read -r pidfile; do
		as_user pg_ctl -D "${pidfile%/*}" -m immediate stop >/dev/null 2>&1 || true
	done < <(find "$work" -name postmaster.pid 2>/dev/null)
	if [ -n "${KEEP:-}" ]; then
		echo "kept: $work"
	else
		cd /
		rm -rf "$work"
	fi
	exit "$status"
}

# Copies PostgreSQL to $install, under the paths that it has in the system.
postgres_copy()
{
	local bindir dir program

	pg_config=$(find_pg_config)
	bindir=$("$pg_config" --bindir)
	private_bin=$install$bindir

	# Programs must be real copies, since they look where they are; for the rest links are as good.  Take the
	# programs by name: some systems have PostgreSQL's in a directory with all others.
	as_user mkdir -p "$private_bin"
	for program in postgres initdb psql {create,drop}{db,user} {cluster,reindex,vacuum}db pgbench 'pg_*'; do
		as_user cp "$bindir"/$program "$private_bin"
	done
	for dir in "$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)"; do
		as_user mkdir -p "$install$dir"
		as_user cp -rs "$dir/." "$install$dir"
	done
	[ -z "${SERVER_PRELOAD:-}" ] || server_preload
	[ -z "${SERVER_VALGRIND:-}" ] || server_valgrind
	# one that is installed in the system must not be taken for ours
	as_user find "$install" -type l -name 'bloomidx*' -delete
	as_user postgres --version >/dev/null ||
		die "cannot run programs in $work; set TMPDIR to a directory where that is allowed"
}

# From here on, and in scripts that are called, bloomidx is compiled with AddressSanitizer and UBSan.
sanitize()
{
	export COPT="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1"
	SERVER_PRELOAD=$("${CC:-gcc}" -print-file-name=libasan.so)
	[ -f "$SERVER_PRELOAD" ] || die "${CC:-gcc} has no AddressSanitizer"
	export SERVER_PRELOAD
	sanitizer_options
}

sanitizer_options()
{
	# memory that a process has at its end is in memory contexts; and the server measures the depth of its stack
	export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1
	export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
}

# What a sanitizer or valgrind writes to the server's log, as a regular expression.
finding='ERROR: AddressSanitizer|: runtime error: |VALGRIND-FINDING'

# Makes the copied server load SERVER_PRELOAD, the library of AddressSanitizer; its clients do not.
#
# That library starts at the first malloc(), which some library of the server does in bindtextdomain(), with a lock.  If it
# then does not find swift_demangle(), the C library wants to translate the error message, and waits for that lock forever.
server_preload()
{
	local stub=$install/stub.so

	echo 'char *swift_demangle(void); char *swift_demangle(void) { return 0; }' |
		as_user "${CC:-gcc}" -shared -fPIC -x c - -o "$stub"
	as_user mv "$private_bin/postgres" "$private_bin/postgres.real"
	printf '%s\n' '#!/bin/bash' \
		"LD_PRELOAD='$SERVER_PRELOAD $stub' exec -a \"\$0\" '$private_bin/postgres.real' \"\$@\"" |
		as_user tee "$private_bin/postgres" >/dev/null
	as_user chmod +x "$private_bin/postgres"
}

# Makes pg_ctl, which starts the servers of all tests, start them under valgrind, with our suppressions and those in the
# file SUPPRESSIONS.  initdb does not use pg_ctl; under valgrind it would take minutes.
#
# The processes of the server are forks of the postmaster, so valgrind follows them; programs that they call run without.
server_valgrind()
{
	local options="-q --leak-check=no --num-callers=30 --error-markers=VALGRIND-FINDING,VALGRIND-END"

	cat "$source/test/valgrind.supp" ${SUPPRESSIONS:+"$SUPPRESSIONS"} | as_user tee "$install/valgrind.supp" >/dev/null
	printf '%s\n' '#!/bin/bash' \
		"exec valgrind $options --suppressions='$install/valgrind.supp' '$private_bin/postgres' \"\$@\"" |
		as_user tee "$private_bin/postgres.valgrind" >/dev/null
	as_user mv "$private_bin/pg_ctl" "$private_bin/pg_ctl.real"
	printf '%s\n' '#!/bin/bash' "exec -a \"\$0\" '$private_bin/pg_ctl.real' \"\$@\" -p '$private_bin/postgres.valgrind'" |
		as_user tee "$private_bin/pg_ctl" >/dev/null
	as_user chmod +x "$private_bin/pg_ctl" "$private_bin/postgres.valgrind"
	export PGCTLTIMEOUT=600 PG_TEST_TIMEOUT_DEFAULT=1800
}

# Builds bloomidx and the test modules from $source, the workspace's copy of the sources, and installs them in the copy of
# PostgreSQL.  Arguments are for make.  False if the build fails.
extension_install()
{
	local module
	local make=(make --no-print-directory -s PG_CONFIG="$pg_config" DESTDIR="$install" ${CC:+CC="$CC"} "$@")

	as_user "${make[@]}" -j2 -C "$source" all || return
	as_user "${make[@]}" -C "$source" install || return
	for module in "$source"/test/modules/*/Makefile; do
		[ ! -f "$module" ] || as_user "${make[@]}" -C "${module%/*}" install || return
	done
}

# The same with another PostgreSQL, that of OLD_PG_CONFIG, for the test of pg_upgrade; sets $OLD_BINDIR for it.
old_postgres_install()
{
	local pg_config='' private_bin='' source=$work/oldsrc install=$work/old PG_CONFIG=$OLD_PG_CONFIG

	as_user cp -r "$work/src" "$source"
	as_user find "$source" \( -name '*.o' -o -name '*.so' \) -delete
	postgres_copy
	extension_install "$@" || return
	export OLD_BINDIR=$private_bin
}

# Starts a server that listens on a socket in $work only, and makes it the default of psql and its like.  Its
# data is in $work/NAME, its log in $work/NAME.log.  Each SETTING is a line of postgresql.conf.
server_start()
{
	local name=$1

	shift
	as_user initdb -D "$name" -A trust -E UTF8 --no-locale --no-sync >"$name.initdb" 2>&1 ||
		{ cat "$name.initdb"; die "initdb failed"; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "$@" |
		as_user tee -a "$name/postgresql.conf" >/dev/null
	as_user pg_ctl -D "$name" -l "$name.log" -w start >/dev/null ||
		{ cat "$name.log"; die "the server did not start"; }
	server=$name
	export PGHOST=$work PGDATABASE=postgres
}

# If a server process has just crashed, the postmaster may wait without end for its checkpointer, unless it is told to
# stop at once.
server_stop()
{
	as_user pg_ctl -D "$server" -m fast -w stop >/dev/null || as_user pg_ctl -D "$server" -m immediate -w stop >/dev/null
	unset PGHOST PGDATABASE
}
