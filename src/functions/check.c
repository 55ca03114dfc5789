/*-------------------------------------------------------------------------
 *
 * check.c
 *	  bloomidx_check(): verifies an index, while it is read and written.
 *
 * Three steps, each by the layout's callbacks:
 *
 *	1. Claims.  Everything that names pages claims them.  No page may be
 *	   claimed twice, or be both claimed and free: whoever gets it next would
 *	   overwrite filters.  A page that nobody claims is only a waste.  The
 *	   directory may change while it is read, so a contradiction counts only
 *	   if it is still there after several attempts, the last of them with the
 *	   lock under which pages are allocated and freed.  That lock makes those
 *	   wait who need new pages, and anybody who may read the table may call
 *	   this function, so it is not taken without need.  On a standby it keeps
 *	   nothing from changing, and several attempts have to do.
 *
 *	2. Pages.  Each must be what the directory says.
 *
 *	3. Keys.  Every row that a snapshot sees is looked up in the filters.  All
 *	   that makes a search right makes this right, beside inserts and VACUUM,
 *	   and on a standby: whoever inserted the row had set its bits before he
 *	   committed, and descriptors are read after the snapshot is taken.  A row
 *	   whose insert is under way is not visible.  A version that a HOT update
 *	   made is on the same page as its predecessors, so it is in the same
 *	   range's filter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
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

/* How often the directory is read, and how long apart in microseconds. */
#define MAX_ATTEMPTS		5
#define MAX_STANDBY_ATTEMPTS	20
#define ATTEMPT_DELAY		50000L

/*
 * Claims the pages that are free in two copies of the metapage: one from before
 * the directory was read, and one from after it.  A page that is in one of them
 * only has changed hands meanwhile.  Extents behind the end of the file do not
 * count.
 */
static void
claim_free_pages(BxCheck *check, const BxMetaPageData *before,
				 const BxMetaPageData *after)
{
	for (uint32 i = 0; i < before->nfree; i++)
	{
		for (uint32 j = 0; j < after->nfree; j++)
		{
			uint64		start = Max(before->free[i].start, after->free[j].start);
			uint64		end = Min((uint64) before->free[i].start +
								  before->free[i].npages,
								  (uint64) after->free[j].start +
								  after->free[j].npages);

			if (start < end && end <= check->nblocks)
				bx_check_claim(check, BX_METAPAGE_BLKNO, (BlockNumber) start,
							   (uint32) (end - start));
		}
	}
}

/*
 * Reads all that names pages.  The metapage is read again after the directory:
 * an entry that was made meanwhile is no contradiction.
 */
static void
read_claims(BxCheck *check, const BxLayout *layout)
{
	BxMetaPageData before;
	BxMetaPageData after;

	bx_meta_read(check->index, &before);
	BX_PAUSE(BX_PAUSE_CLAIMS);
	check->nblocks = RelationGetNumberOfBlocks(check->index);
	check->claimed = palloc_extended(check->nblocks / 8 + 1,
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	check->newest_generation = 0;
	bx_check_claim(check, BX_METAPAGE_BLKNO, BX_METAPAGE_BLKNO, 1);
	layout->check_claims(check, &before);
	bx_meta_read(check->index, &after);

	/* a generation that is used again would make an old page look current */
	if (check->newest_generation >= after.next_generation)
		bx_check_contradiction(check, check->newest_blkno,
							   "generation that the metapage has not given out yet");
	claim_free_pages(check, &before, &after);
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
				(errmsg_plural("index \"%s\" has %u page that nothing was found to name",
							   "index \"%s\" has %u pages that nothing was found to name",
							   unclaimed,
							   RelationGetRelationName(check->index),
							   unclaimed),
				 errdetail("This does no harm: they are about to be used, or are used again after the next VACUUM.")));
}

/*
 * Checks all that names pages.  Pages that change hands meanwhile may look as
 * if two things named them, or nothing.
 */
static void
check_claims(BxCheck *check, const BxLayout *layout)
{
	bool		recovery = RecoveryInProgress();
	int			max_attempts = recovery ? MAX_STANDBY_ATTEMPTS : MAX_ATTEMPTS;

	for (int attempt = 1;; attempt++)
	{
		bool		lock = attempt == max_attempts && !recovery;

		CHECK_FOR_INTERRUPTS();
		check->may_retry = attempt < max_attempts;
		check->contradiction = false;
		if (lock)
			LockPage(check->index, BX_METAPAGE_BLKNO, ShareLock);
		read_claims(check, layout);
		if (lock)
			UnlockPage(check->index, BX_METAPAGE_BLKNO, ShareLock);
		if (!check->contradiction)
			break;
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
} KeysState;

static void
check_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	KeysState  *state = arg;

	state->layout->check_keys(state->check, range, keys, nkeys);
}

/*
 * Refuses an index that is no longer valid.  REINDEX CONCURRENTLY makes it so
 * before it has writers leave the old index alone, and waits for us then; but
 * on a standby nobody does.  An index that is valid after the snapshot was
 * taken has all that the snapshot sees.
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

/* Looks up all rows of the heap that are visible; returns how many. */
static int64
check_keys(BxCheck *check, const BxLayout *layout)
{
	KeysState	state = {check, layout};
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(check->heap);
	BxMetaPageData meta;
	BxHeapScan *scan;
	double		heap_tuples;
	double		index_tuples;

	check_still_valid(check->index);

	/* if no key has ever come, no row may be there in any range */
	bx_meta_read(check->index, &meta);
	check->lg_base = meta.lg_base == BX_LG_BASE_UNSET ? 0 : meta.lg_base;
	scan = bx_heapscan_begin(check->heap, check->index,
							 BuildIndexInfo(check->index),
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
 * Refuses to look up rows for a caller who has not the owner's rights, if that
 * would run functions of users as the owner.
 */
static void
check_code(Relation heap, Relation index)
{
	if (!bx_open_may_run_code(heap) && bx_repair_needs_user_code(index))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to look up rows in index \"%s\"",
						RelationGetRelationName(index)),
				 errdetail("The index has an expression, a predicate or a hash function that runs as the owner of table \"%s\".",
						   RelationGetRelationName(heap)),
				 errhint("Only a role with the privileges of the owner can do so. Use bloomidx_check(index, heapallindexed => false) to verify the pages.")));
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
	BxMetaPageData meta;
	const BxLayout *layout;

	bx_open_check_access(indexoid, false);
	bx_open(indexoid, AccessShareLock, true, AccessShareLock, &check.heap,
			&check.index);
	if (heapallindexed)
		check_code(check.heap, check.index);
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
	index_close(check.index, AccessShareLock);
	table_close(check.heap, AccessShareLock);
	PG_RETURN_INT64(rows);
}
