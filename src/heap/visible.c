/*-------------------------------------------------------------------------
 *
 * visible.c
 *	  Tests whether a snapshot sees a version of a row that the index
 *	  contains.
 *
 * In an ordinary scan the executor checks visibility.  Two kinds of index
 * scans must check it here:
 *
 * Partial indexes.  The planner omits from an index scan the conditions that
 * the index predicate implies.  The executor rechecks only the conditions on
 * index columns.  But the filters identify pages, and a page may have rows
 * that do not satisfy the predicate.  So the predicate is evaluated here, on
 * the version that the snapshot sees.  Functions in the predicate that are
 * not built in are also in the query; otherwise bxcostestimate() excludes
 * index scans.
 *
 * Index-only scans.  SELECT count(*) needs no column, so the planner may
 * choose an index-only scan, which does not read rows on all-visible pages.
 * But a TID that rows.c has returned may belong to a dead row that VACUUM
 * removed meanwhile.  So only rows of which the snapshot sees a version are
 * returned: that version stays visible to the snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "executor/executor.h"
#include "utils/rel.h"

#include "heap.h"

struct BxVisible
{
	Snapshot	snapshot;
	IndexFetchTableData *fetch;
	TupleTableSlot *slot;
	EState	   *estate;
	ExprState  *predicate;		/* NULL if the index is not partial */
};

/*
 * Prepares to test rows.  The result is allocated in the current memory
 * context.
 */
BxVisible *
bx_visible_begin(Relation heap, Relation index, Snapshot snapshot)
{
	BxVisible  *visible = palloc(sizeof(BxVisible));

	visible->snapshot = snapshot;
	visible->fetch = bx_index_fetch_begin(heap);
	visible->slot = table_slot_create(heap, NULL);
	visible->estate = CreateExecutorState();
	visible->predicate = ExecPrepareQual(RelationGetIndexPredicate(index),
										 visible->estate);
	GetPerTupleExprContext(visible->estate)->ecxt_scantuple = visible->slot;
	return visible;
}

/*
 * Returns whether the snapshot sees a version of a row, given by the root of
 * its HOT chain, that satisfies the predicate of the index.  The caller holds
 * no content lock.
 */
bool
bx_visible_test(BxVisible *visible, const ItemPointerData *tid)
{
	ExprContext *econtext = GetPerTupleExprContext(visible->estate);
	ItemPointerData version = *tid;
	bool		more = false;	/* only a non-MVCC snapshot can see several
								 * versions */
	bool		result = false;

	do
	{
		if (!table_index_fetch_tuple(visible->fetch, &version,
									 visible->snapshot, visible->slot, &more,
									 NULL))
			break;
		result = ExecQual(visible->predicate, econtext);
		ResetExprContext(econtext);
	} while (more && !result);
	return result;
}

/* Releases the pins on heap pages. */
void
bx_visible_reset(BxVisible *visible)
{
	ExecClearTuple(visible->slot);
	table_index_fetch_reset(visible->fetch);
}

void
bx_visible_end(BxVisible *visible)
{
	ExecDropSingleTupleTableSlot(visible->slot);
	table_index_fetch_end(visible->fetch);
	FreeExecutorState(visible->estate);
	pfree(visible);
}
