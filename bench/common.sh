# Sourced by bench/demo and bench/compare: a throw-away server with a loaded table, and the indexes measured on
# it, as bench/measure.sql says.

. "$(dirname "${BASH_SOURCE[0]}")/../test/harness.sh"

sql()
{
	PGOPTIONS='-c client_min_messages=warning' as_user psql -X -q -P pager=off -v ON_ERROR_STOP=1 "$@"
}

# A message that the next one overwrites, on a terminal; nothing elsewhere.
progress()
{
	[ ! -t 1 ] || printf '\r%-60s\r' "$*"
}

# bench_start ROWS SETTING...: a server, and table "item" with so many rows
bench_start()
{
	local rows=$1 step done=0

	shift
	[[ $rows =~ ^[1-9][0-9]*$ ]] || die "ROWS=$rows is not a number of rows"
	"$top/test/setup"
	workspace_create
	progress "building ..."
	postgres_copy
	extension_install
	server_start server "jit = off" "$@"
	sql -f src/bench/measure.sql

	step=$(((rows + 19) / 20))
	while [ "$done" -lt "$rows" ]; do
		progress "loading: $done of $rows rows"
		[ $((done + step)) -le "$rows" ] || step=$((rows - done))
		sql -c "CALL load_items($((done + 1)), $((done + step)))"
		done=$((done + step))
	done
	progress "vacuuming ..."
	sql -c "VACUUM (ANALYZE) item" -c "CALL choose_keys(${KEYS:-3000})"
	progress ""
	sql -At -c "SELECT format('%s rows (uuid, timestamp, text), %s, %s rows a page; PostgreSQL %s',
		to_char($rows, 'FM999,999,999,999'), pg_size_pretty(pg_relation_size('item')),
		(SELECT round(reltuples / relpages) FROM pg_class WHERE oid = 'item'::regclass),
		current_setting('server_version'))"
}

# Measures all indexes, one after another, and prints the table.
bench_indexes()
{
	local name

	while IFS= read -r name; do
		progress "measuring: $name"
		sql -v name="$name" <<<"CALL measure(:'name')"
	done < <(sql -At -c "SELECT name FROM peer ORDER BY ord")
	progress ""
	sql -P footer=off -c "TABLE measured"
	sql -At -c "SELECT '* the planner would rather read the whole table: measured with enable_seqscan = off'
		WHERE EXISTS (SELECT FROM result WHERE forced)"
	cat <<-END
		Pages: of index and heap, touched by one lookup.  Time: of one lookup that fetches the row, in a loop in the
		server with a cached plan and no parallel workers, after a warm-up, with the same random keys for all, each
		index alone on the table; the median of several rounds.
		BRIN bloom, tuned: pages_per_range 16, n_distinct_per_range 1200, false_positive_rate 0.001.
		contrib/bloom: has no operator class for uuid, so it indexes id::text; length 32, col1 10.

	END
}
