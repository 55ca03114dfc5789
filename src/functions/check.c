/*-------------------------------------------------------------------------
 *
 * check.c
 *	  bloomidx_check(): verifies an index, concurrently with searches and
 *	  writes.
 *
 * There are three steps, each carried out by callbacks of the layout:
 *
 *	1. Claims.  Everything that references pages claims them.  No page may be
 *	   claimed twice, or be both claimed and free: its next user would
 *	   overwrite filters.  A page that nothing claims is only wasted space.
 *	   The directory may change while it is read, so a contradiction is
 *	   reported only if it persists after several attempts.  The last attempt
 *	   holds the lock under which pages are allocated and freed.  That lock
 *	   blocks backends that need new pages, and every user who may read the
 *	   table may call this function, so the lock is not taken without need.
 *	   On a standby the lock does not prevent changes, so there are only more
 *	   attempts.
 *
 *	2. Pages.  Each page must match its directory entry.
 *
 *	3. Keys.  Every row that a snapshot sees is looked up in the filters.
 *	   This is correct for the same reasons as a search, concurrently with
 *	   inserts and VACUUM, and on a standby: the inserter had set the bits of
 *	   the row before it committed, and descriptors are read after the
 *	   snapshot is taken.  A row whose insert is in progress is not visible.
 *	   A version created by a HOT update is on the same page as its
 *	   predecessors, so its keys are in the filter of the same range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_index.h"
#include "commands/progress.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../layouts.h"
#include "functions.h"

PG_FUNCTION_INFO_V1(bloomidx_check);

/*
 * Maximum number of times the directory is read, and the delay in between in
 * microseconds.
 */
#define MAX_ATTEMPTS		5
#define MAX_STANDBY_ATTEMPTS	20
#define ATTEMPT_DELAY		50000L

/*
 * Reads everything that references pages.  Returns whether the metapage
 * changed meanwhile: pages are allocated and freed only together with a
 * change of the metapage.  The caller frees check->claimed.
 */
static bool
read_claims(BxCheck *check, const BxLayout *layout)
{
	BxMetaPageData before;
	BxMetaPageData after;

	bx_meta_read(check->index, &before);
	BX_PAUSE(BX_PAUSE_CLAIMS);
	check->nblocks = RelationGetNumberOfBlocks(check->index);
	check->claimed = palloc_extended(check->nblocks / 8 + 1,
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	check->problem = NULL;
	bx_check_claim(check, BX_METAPAGE_BLKNO, BX_METAPAGE_BLKNO, 1);
	layout->check_claims(check, &before);
	bx_meta_read(check->index, &after);
	return memcmp(&before, &after, sizeof(before)) != 0;
}

static void
report_unclaimed(BxCheck *check)
{
	BlockNumber unclaimed = 0;

	for (BlockNumber blkno = 0; blkno < check->nblocks; blkno++)
	{
		if (!bx_check_is_claimed(check, blkno))
			unclaimed++;
	}
	if (unclaimed > 0)
		ereport(NOTICE,
				(errmsg_plural("index \"%s\" has %u page that no directory entry references",
							   "index \"%s\" has %u pages that no directory entry references",
							   unclaimed,
							   RelationGetRelationName(check->index),
							   unclaimed),
				 errdetail("This is harmless: such pages are being allocated, or will be reused after the next VACUUM.")));
}

/*
 * Verifies the references to pages.  Pages that are allocated or freed
 * meanwhile may seem to be referenced twice, or not at all, so contradictions
 * are retried.  The last attempt holds a lock that prevents such changes.  A
 * standby cannot acquire it; there the contradictions are damage if the
 * metapage did not change meanwhile.
 */
static void
check_claims(BxCheck *check, const BxLayout *layout)
{
	bool		recovery = RecoveryInProgress();
	int			max_attempts = recovery ? MAX_STANDBY_ATTEMPTS : MAX_ATTEMPTS;

	for (int attempt = 1;; attempt++)
	{
		bool		lock = attempt == max_attempts && !recovery;
		bool		changed;

		CHECK_FOR_INTERRUPTS();
		if (lock)
			LockPage(check->index, BX_METAPAGE_BLKNO, ShareLock);
		changed = read_claims(check, layout);
		if (lock)
			UnlockPage(check->index, BX_METAPAGE_BLKNO, ShareLock);
		if (check->problem == NULL)
			break;
		if (attempt == max_attempts && !changed)
			bx_page_corrupted(check->index, check->problem_blkno,
							  check->problem);
		if (attempt == max_attempts)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("index \"%s\" changed while it was checked",
							RelationGetRelationName(check->index)),
					 errhint("Try again when fewer changes are replayed.")));
		pfree(check->claimed);
		pg_usleep(ATTEMPT_DELAY);
	}
	report_unclaimed(check);
	pfree(check->claimed);
}

typedef struct KeysState
{
	BxCheck    *check;
	const BxLayout *layout;
	BlockNumber heap_blocks;
} KeysState;

static void
check_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	KeysState  *state = arg;

	state->layout->check_keys(state->check, range, keys, nkeys);
	bx_progress_blocks((BlockNumber) Min((uint64) (range + 1) << state->check->lg_base,
										 state->heap_blocks));
}

/*
 * Raises an error if the index is no longer valid.  REINDEX CONCURRENTLY
 * marks the old index invalid before writers stop inserting into it, and then
 * waits for our lock; but nothing waits for locks on a standby.  An index
 * that is valid after the snapshot was taken contains all rows that the
 * snapshot sees.
 */
static void
check_still_valid(Relation index)
{
	HeapTuple	tuple;
	bool		valid;

	AcceptInvalidationMessages();
	tuple = SearchSysCache1(INDEXRELID,
							ObjectIdGetDatum(RelationGetRelid(index)));
	valid = HeapTupleIsValid(tuple) &&
		((Form_pg_index) GETSTRUCT(tuple))->indisvalid;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!valid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid",
						RelationGetRelationName(index))));
}

/*
 * Looks up all visible rows of the heap.  Returns the number of rows that are
 * in the index.
 */
static int64
check_keys(BxCheck *check, const BxLayout *layout)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(check->heap);
	KeysState	state = {check, layout, heap_blocks};
	BxMetaPageData meta;
	BxHeapScan *scan;
	double		heap_tuples;
	double		index_tuples;

	check_still_valid(check->index);
	bx_progress_phase(PROGRESS_CREATEIDX_PHASE_VALIDATE_TABLESCAN, 0,
					  heap_blocks);

	/*
	 * if lg_base is not set, the index has no keys, and no range may have a
	 * row
	 */
	bx_meta_read(check->index, &meta);
	check->lg_base = meta.lg_base == BX_LG_BASE_UNSET ? 0 : meta.lg_base;
	scan = bx_heapscan_begin(check->heap, check->index,
							 bx_heapscan_index_info(check->index), meta.keys,
							 (Size) work_mem * 1024);
	bx_heapscan_set_snapshot(scan, snapshot);
	bx_heapscan_ranges(scan, check->lg_base, 0,
					   bx_geometry_ranges(heap_blocks, check->lg_base),
					   heap_blocks, check_range, &state);
	bx_heapscan_tuples(scan, &heap_tuples, &index_tuples);
	bx_heapscan_end(scan);
	UnregisterSnapshot(snapshot);
	return (int64) index_tuples;
}

/*
 * Raises an error if looking up rows would run user-defined functions as the
 * owner, and the caller does not have the privileges of the owner.
 */
static void
check_code(Relation heap, Relation index)
{
	if (!bx_open_may_run_code(heap) && bx_repair_needs_user_code(index, true))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to look up rows in index \"%s\"",
						RelationGetRelationName(index)),
				 errdetail("The index has an expression, a predicate or a hash function that runs as the owner of table \"%s\".",
						   RelationGetRelationName(heap)),
				 errhint("Only a role with the privileges of the owner can look up rows. Use bloomidx_check(index, heapallindexed => false) to verify the pages.")));
}

/*
 * Verifies an index, and returns the number of rows that were looked up.
 */
Datum
bloomidx_check(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	bool		heapallindexed = PG_GETARG_BOOL(1);
	int64		rows = 0;
	BxCheck		check = {0};
	BxIdentity	identity;
	BxProgress	progress;
	BxMetaPageData meta;
	const BxLayout *layout;

	bx_open_check_access(indexoid, false);
	bx_open(indexoid, AccessShareLock, true, AccessShareLock, &check.heap,
			&check.index);
	bx_open_check_access(indexoid, false);	/* again; see inspect.c */
	if (heapallindexed)
		check_code(check.heap, check.index);
	bx_progress_start(check.heap, check.index, &progress);
	bx_progress_phase(PROGRESS_CREATEIDX_PHASE_VALIDATE_IDXSCAN, 0, 0);
	bx_open_become_owner(check.heap, &identity);
	check.strategy = GetAccessStrategy(BAS_BULKREAD);
	bx_meta_read(check.index, &meta);
	layout = bx_layout_by_id(check.index, meta.layout);
	check_claims(&check, layout);
	layout->check_pages(&check);
	if (heapallindexed)
		rows = check_keys(&check, layout);
	FreeAccessStrategy(check.strategy);
	bx_open_become_caller(&identity);
	bx_progress_end(&progress);
	index_close(check.index, AccessShareLock);
	table_close(check.heap, AccessShareLock);
	PG_RETURN_INT64(rows);
}
