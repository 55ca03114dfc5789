# Sourced by all benchmarks: a throw-away server with bench/timing.sql and, for most, bench/measure.sql and a loaded table.

. "$(dirname "${BASH_SOURCE[0]}")/../test/harness.sh"

sql()
{
	PGOPTIONS='-c client_min_messages=warning' as_user psql -X -q -P pager=off -v ON_ERROR_STOP=1 "$@"
}

# A message that the next one overwrites, on a terminal; a line elsewhere.
progress()
{
	if [ -t 1 ]; then
		printf '\r%-75s\r' "$*"
	elif [ -n "$*" ]; then
		echo "$*"
	fi
}

# How far a step has come, which only a terminal need show.
progress_within()
{
	[ ! -t 1 ] || progress "$@"
}

check_number()	# NAME VALUE [LEAST]
{
	[[ $2 =~ ^[1-9][0-9]{0,11}$ && $2 -ge ${3:-1} ]] || die "$1=$2 is not a number from ${3:-1} on"
}

# Megabytes for shared_buffers: a quarter of the memory, but not more than this.
buffers_mb()	# MOST
{
	awk -v most="$1" '/^MemTotal:/ { mb = int($2 / 4096); print mb < most ? mb : most }' /proc/meminfo
}

# server_create SETTING...: a server that can take times
server_create()
{
	"$top/test/setup" ${setup_tools:-}
	workspace_create
	progress "building ..."
	postgres_copy
	extension_install
	server_start server "jit = off" "$@"
	sql -f src/bench/timing.sql
}

# Adds rows to "item", until it has so many, and chooses the keys to look for.
load_items()	# FROM TO
{
	local done=$1 rows=$2 step

	step=$(((rows - done + 19) / 20))
	progress "loading up to $rows rows"
	while [ "$done" -lt "$rows" ]; do
		progress_within "loading: $done of $rows rows"
		[ $((done + step)) -le "$rows" ] || step=$((rows - done))
		sql -c "CALL load_items($((done + 1)), $((done + step)))"
		done=$((done + step))
	done
	progress "vacuuming ..."
	sql -c "VACUUM (ANALYZE) item" -c "CALL choose_keys(${KEYS:-3000})"
	progress ""
}

# bench_start ROWS SETTING...: a server, and table "item" with so many rows
bench_start()
{
	local rows=$1

	shift
	check_number ROWS "$rows"
	server_create "$@"
	sql -f src/bench/measure.sql
	load_items 0 "$rows"
	sql -At -c "SELECT format('%s rows (uuid, timestamp, text), %s, %s rows a page; PostgreSQL %s',
		to_char($rows, 'FM999,999,999,999'), pg_size_pretty(pg_relation_size('item')),
		(SELECT round(reltuples / relpages) FROM pg_class WHERE oid = 'item'::regclass),
		current_setting('server_version'))"
}

# server_restart [SETTING...]: again, with more lines in postgresql.conf
server_restart()
{
	[ $# -eq 0 ] || printf '%s\n' "$@" | as_user tee -a "$server/postgresql.conf" >/dev/null
	as_user pg_ctl -D "$server" -l "$server.log" -m fast -w restart >/dev/null ||
		{ cat "$server.log"; die "the server did not start"; }
}
