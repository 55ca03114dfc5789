/*-------------------------------------------------------------------------
 *
 * heapscan.c
 *	  Collects the keys of every tuple version on some heap pages.
 *
 * A filter may hold too many keys, never too few.  So every version on a page
 * counts, whoever can see it, unless the transaction that inserted it aborted:
 * then nobody ever will.  That is more than table_index_build_scan() gives,
 * which leaves out versions that are dead, or that were HOT-updated and are
 * still visible to older snapshots, here or on a standby.  With all versions
 * in, the index is good for every snapshot at once, and it does not matter
 * whether a HOT update happens behind the scan.
 *
 * A version that is not certainly live (deleted, or inserted by another
 * transaction that is still in progress) must not make the scan fail, and is
 * used only for what is in the tuple itself.  Where more is needed, because
 * the index has an expression or a predicate, or because the value is stored
 * out of line and its TOAST rows may be gone, the pages are reported as in
 * doubt, which makes their filter match everything.
 *
 * The line pointers of a page are collected under one share lock.  Then only
 * the pin is kept, which prevents pruning, so the tuples stay where they are
 * while their values are hashed: that may run a user's code, which must not
 * happen under a content lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "bloomidx.h"

/* a version to look at */
typedef struct Version
{
	OffsetNumber offnum;
	bool		live;			/* certainly live */
} Version;

struct BxHeapScan
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	int			natts;
	bool		computed;		/* has an expression or a predicate */
	BufferAccessStrategy strategy;
	Snapshot	snapshot;		/* only what it sees; NULL: all versions */
	EState	   *estate;
	ExprContext *econtext;
	TupleTableSlot *slot;
	ExprState  *predicate;

	double		heap_tuples;	/* live ones */
	double		index_tuples;	/* of these, in the index */

	/* collected since the last clear */
	uint64	   *keys;
	Size		nkeys;
	Size		nsorted;		/* the first so many are sorted and distinct */
	Size		allocated;
	Size		limit;			/* keys that fit in memory */
	bool		doubt;
	bool		seen_null[INDEX_MAX_KEYS];
	bool		seen_not_null[INDEX_MAX_KEYS];
};

/* keys that one page can add */
#define MAX_KEYS_PER_PAGE(scan)		((Size) MaxHeapTuplesPerPage * (scan)->natts)

#define ST_SORT sort_keys
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Starts collecting.  The caller keeps heap, index and indexInfo alive. */
BxHeapScan *
bx_heapscan_begin(Relation heap, Relation index, IndexInfo *indexInfo,
				  Size memory)
{
	BxHeapScan *scan = palloc0(sizeof(BxHeapScan));

	scan->heap = heap;
	scan->index = index;
	scan->indexInfo = indexInfo;
	scan->natts = IndexRelationGetNumberOfKeyAttributes(index);
	scan->computed = indexInfo->ii_Expressions != NIL ||
		indexInfo->ii_Predicate != NIL;
	scan->strategy = GetAccessStrategy(BAS_BULKREAD);
	scan->estate = CreateExecutorState();
	scan->econtext = GetPerTupleExprContext(scan->estate);
	scan->slot = table_slot_create(heap, NULL);
	scan->econtext->ecxt_scantuple = scan->slot;
	scan->predicate = ExecPrepareQual(indexInfo->ii_Predicate, scan->estate);

	/* a scan that failed may have left its own, which are gone */
	indexInfo->ii_ExpressionsState = NIL;

	/* one page must always fit, and the markers */
	scan->limit = Max(memory / sizeof(uint64), 2 * MAX_KEYS_PER_PAGE(scan));
	scan->allocated = MAX_KEYS_PER_PAGE(scan) + 2 * scan->natts;
	scan->keys = palloc(sizeof(uint64) * scan->allocated);
	return scan;
}

/* Has the scan collect only the rows that a snapshot sees. */
void
bx_heapscan_set_snapshot(BxHeapScan *scan, Snapshot snapshot)
{
	scan->snapshot = snapshot;
}

void
bx_heapscan_end(BxHeapScan *scan)
{
	ExecDropSingleTupleTableSlot(scan->slot);
	FreeExecutorState(scan->estate);
	FreeAccessStrategy(scan->strategy);

	/* these may have pointed into the estate that is now gone */
	scan->indexInfo->ii_ExpressionsState = NIL;
	scan->indexInfo->ii_PredicateState = NULL;
	pfree(scan->keys);
	pfree(scan);
}

/* Whether the version is indexed, and if so, whether it is certainly live. */
static bool
classify(BxHeapScan *scan, HeapTuple tuple, Buffer buffer, bool *live)
{
	uint16		infomask = tuple->t_data->t_infomask;
	TransactionId dead_after;

	*live = true;
	if (scan->snapshot)
	{
		if (!HeapTupleSatisfiesVisibility(tuple, scan->snapshot, buffer))
			return false;
		scan->heap_tuples++;
		return true;
	}
	if ((infomask & HEAP_XMIN_INVALID) == 0 &&
		(infomask & HEAP_XMIN_COMMITTED) != 0 &&
		(infomask & HEAP_XMAX_INVALID) != 0)
	{
		scan->heap_tuples++;
		return true;
	}

	switch (HeapTupleSatisfiesVacuumHorizon(tuple, buffer, &dead_after))
	{
		case HEAPTUPLE_DEAD:
			/* no horizon was given, so this means: inserter aborted */
			return false;
		case HEAPTUPLE_LIVE:
			scan->heap_tuples++;
			return true;
		case HEAPTUPLE_INSERT_IN_PROGRESS:
			if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
			{
				scan->heap_tuples++;
				return true;
			}
			*live = false;
			return true;
		case HEAPTUPLE_DELETE_IN_PROGRESS:

			/* count it as ANALYZE does: unless we ourselves delete it */
			if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple->t_data)))
				scan->heap_tuples++;
			*live = false;
			return true;
		case HEAPTUPLE_RECENTLY_DEAD:
			*live = false;
			return true;
	}
	elog(ERROR, "unexpected HeapTupleSatisfiesVacuumHorizon result");
	return false;				/* keep compiler quiet */
}

/* Points *tuple at a line pointer's tuple; false if it has none. */
static bool
locate_tuple(BxHeapScan *scan, Buffer buffer, OffsetNumber offnum,
			 HeapTuple tuple)
{
	Page		page = BufferGetPage(buffer);
	ItemId		lp = PageGetItemId(page, offnum);

	if (!ItemIdIsNormal(lp))
		return false;
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple->t_len = ItemIdGetLength(lp);
	tuple->t_tableOid = RelationGetRelid(scan->heap);
	ItemPointerSet(&tuple->t_self, BufferGetBlockNumber(buffer), offnum);
	return true;
}

/* Lists the versions on a page that are to be indexed.  Returns how many. */
static int
list_versions(BxHeapScan *scan, Buffer buffer, Version *versions)
{
	int			n = 0;
	OffsetNumber max;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	max = PageGetMaxOffsetNumber(BufferGetPage(buffer));
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		HeapTupleData tuple;

		if (locate_tuple(scan, buffer, off, &tuple) &&
			classify(scan, &tuple, buffer, &versions[n].live))
			versions[n++].offnum = off;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return n;
}

/* Whether the value is one whose bytes are in another table. */
static bool
is_out_of_line(BxHeapScan *scan, int attnum, Datum value)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(scan->heap),
										  attnum - 1);

	return att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(value));
}

/*
 * Gets the index columns of the tuple in the slot.  Returns false if that is
 * not safe.
 */
static bool
get_values(BxHeapScan *scan, bool live, Datum *values, bool *isnull)
{
	IndexInfo  *indexInfo = scan->indexInfo;

	if (scan->computed)
	{
		FormIndexDatum(indexInfo, scan->slot, scan->estate, values, isnull);
		return true;
	}
	for (int i = 0; i < scan->natts; i++)
	{
		int			attnum = indexInfo->ii_IndexAttrNumbers[i];

		values[i] = slot_getattr(scan->slot, attnum, &isnull[i]);
		if (!live && !isnull[i] && is_out_of_line(scan, attnum, values[i]))
			return false;
	}
	return true;
}

/* Adds the keys of a tuple, on whose page we have a pin. */
static void
add_tuple(BxHeapScan *scan, HeapTuple tuple, Buffer buffer, bool live)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext oldcxt;

	if (!live && scan->computed)
	{
		scan->doubt = true;
		return;
	}

	ExecStoreBufferHeapTuple(tuple, scan->slot, buffer);
	oldcxt = MemoryContextSwitchTo(scan->econtext->ecxt_per_tuple_memory);
	if (scan->predicate == NULL || ExecQual(scan->predicate, scan->econtext))
	{
		if (!get_values(scan, live, values, isnull))
			scan->doubt = true;
		else
		{
			for (int i = 0; i < scan->natts; i++)
			{
				if (isnull[i])
					scan->seen_null[i] = true;
				else
				{
					scan->seen_not_null[i] = true;
					scan->keys[scan->nkeys++] =
						bx_hash_value(scan->index, i + 1,
									  bx_hash_proc(scan->index, i + 1),
									  values[i]);
				}
			}
		}
		if (live)
			scan->index_tuples++;
	}
	MemoryContextSwitchTo(oldcxt);
	ResetExprContext(scan->econtext);
}

/* Makes room for n more keys and the markers. */
static void
reserve(BxHeapScan *scan, Size n)
{
	Size		needed = scan->nkeys + n + 2 * scan->natts;

	if (needed <= scan->allocated)
		return;
	scan->allocated = Max(needed, scan->allocated * 2);
	scan->keys = repalloc_huge(scan->keys, sizeof(uint64) * scan->allocated);
}

/* Collects the keys of one heap page, in addition to what there is. */
void
bx_heapscan_block(BxHeapScan *scan, BlockNumber blkno)
{
	Version		versions[MaxHeapTuplesPerPage];
	Buffer		buffer;
	int			n;

	/* answers to interrupts as well, and VACUUM's delay is for VACUUM only */
	bx_vacuum_delay_point();
	reserve(scan, MAX_KEYS_PER_PAGE(scan));
	buffer = ReadBufferExtended(scan->heap, MAIN_FORKNUM, blkno, RBM_NORMAL,
								scan->strategy);
	n = list_versions(scan, buffer, versions);
	for (int i = 0; i < n; i++)
	{
		HeapTupleData tuple;

		if (locate_tuple(scan, buffer, versions[i].offnum, &tuple))
			add_tuple(scan, &tuple, buffer, versions[i].live);
	}
	ExecClearTuple(scan->slot);
	ReleaseBuffer(buffer);
	BX_PAUSE(BX_PAUSE_BUILD_PAGE);
}

/* Sorts what is collected and drops duplicates. */
static void
make_distinct(BxHeapScan *scan)
{
	Size		n = 0;

	if (scan->nsorted == scan->nkeys)
		return;
	sort_keys(scan->keys, scan->nkeys);
	for (Size i = 0; i < scan->nkeys; i++)
	{
		if (n == 0 || scan->keys[i] != scan->keys[n - 1])
			scan->keys[n++] = scan->keys[i];
	}
	scan->nkeys = scan->nsorted = n;
}

/*
 * Whether so much is collected that it should be taken away before the next
 * page.
 */
static bool
is_full(BxHeapScan *scan)
{
	if (scan->nkeys + MAX_KEYS_PER_PAGE(scan) <= scan->limit)
		return false;
	make_distinct(scan);

	/* if there is little room now, the next pages would sort it all again */
	return scan->nkeys + MAX_KEYS_PER_PAGE(scan) > scan->limit / 2;
}

/*
 * The distinct keys since the last clear, markers among them.  *doubt says
 * that there were rows whose keys could not be told.
 */
Size
bx_heapscan_keys(BxHeapScan *scan, const uint64 **keys, bool *doubt)
{
	Size		n;

	make_distinct(scan);
	n = scan->nkeys;
	for (int i = 0; i < scan->natts; i++)
	{
		if (scan->seen_null[i])
			scan->keys[n++] = bx_hash_marker(i + 1, true);
		if (scan->seen_not_null[i])
			scan->keys[n++] = bx_hash_marker(i + 1, false);
	}
	*keys = scan->keys;
	*doubt = scan->doubt;
	return n;
}

void
bx_heapscan_clear(BxHeapScan *scan)
{
	scan->nkeys = scan->nsorted = 0;
	scan->doubt = false;
	memset(scan->seen_null, 0, sizeof(scan->seen_null));
	memset(scan->seen_not_null, 0, sizeof(scan->seen_not_null));
}

/*
 * Collects the keys of whole ranges, and hands them over one range at a time.
 * A range that does not fit in memory comes in parts, the last of which has
 * done = 1; a range without keys does not come.
 */
void
bx_heapscan_ranges(BxHeapScan *scan, uint8 lg_base, uint64 first_range,
				   uint64 end_range, BlockNumber heap_blocks,
				   BxRangeCallback callback, void *arg)
{
	uint32		pages_per_range = 1 << lg_base;

	for (uint64 range = first_range; range < end_range; range++)
	{
		uint64		first = range << lg_base;
		uint64		end = Min(first + pages_per_range, heap_blocks);
		bool		in_parts = false;
		const uint64 *keys;
		bool		doubt;
		Size		n;

		bx_heapscan_clear(scan);
		for (uint64 blkno = first; blkno < end; blkno++)
		{
			bx_heapscan_block(scan, (BlockNumber) blkno);
			if (blkno + 1 < end && is_full(scan))
			{
				n = bx_heapscan_keys(scan, &keys, &doubt);
				callback(arg, (uint32) range,
						 (double) (blkno + 1 - first) / pages_per_range,
						 keys, n, doubt);
				bx_heapscan_clear(scan);
				in_parts = true;
			}
		}
		n = bx_heapscan_keys(scan, &keys, &doubt);
		if (n > 0 || doubt || in_parts)
			callback(arg, (uint32) range, 1.0, keys, n, doubt);
	}
	bx_heapscan_clear(scan);
}

/* Live rows seen since the start, and those of them that are in the index. */
void
bx_heapscan_tuples(BxHeapScan *scan, double *heap_tuples, double *index_tuples)
{
	*heap_tuples = scan->heap_tuples;
	*index_tuples = scan->index_tuples;
}
