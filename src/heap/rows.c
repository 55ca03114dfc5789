/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  From the heap pages that a search has found to the rows on them that may
 *	  match.
 *
 * A filter tells pages, and the executor rechecks every row of a page that it
 * is given whole, at more than 0.1 microseconds each.  To hash the key of a
 * row takes a tenth of that.  So where a search finds few pages, we look at
 * them ourselves, and give the executor only the rows whose keys have the
 * hashes that are sought.
 *
 * No row is missed by that.  Our snapshot was taken before, so every version
 * that it sees is on its page by now, cannot be pruned away, and has the keys
 * that a filter would have of it.  Visibility is left to the executor, as is
 * the recheck.  It expects to be given the start of a HOT chain; if what
 * matches is further down in one, it gets the whole page.  Our look is done
 * under the page's share lock, and runs no code but ours: a value that has to
 * be unpacked counts as a match, and for a column that is hashed by a function
 * of its type, all pages are left to the executor.
 *
 * The table's descriptor does not describe every tuple on its pages.  If a
 * transaction adds a column, inserts rows and aborts, then the number of the
 * column is free again, and the next column to be added, perhaps of another
 * type, gets the same number.  To read such a tuple by the new descriptor would
 * be to follow any length or pointer.  So a tuple is read only if its inserter
 * has not aborted: it is known to have committed, or to be the current
 * transaction, or to be in progress.  In the last case the inserter cannot have
 * altered the table, because it would hold an AccessExclusiveLock on the table
 * until it ends, and we have a lock on the table; and when a transaction or
 * subtransaction aborts, it no longer counts as in progress before its locks
 * are released.  A tuple that is not read counts as a match.
 *
 * Serializable transactions are safe, too.  The server locked the index
 * against phantoms before it called us.  Who adds a row that we seek puts it on
 * its page first, and asks for such locks then: either it finds ours, or the
 * row is there when we look, is listed although we cannot see it, and the
 * executor notices the conflict.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"

#include "heap.h"

/* What a condition of the query asks of a row. */
typedef struct RowTest
{
	int			attnum;			/* in the table */
	bool		is_null_test;
	bool		null;			/* null test: IS NULL, not IS NOT NULL */
	BxHasher	hasher;			/* else: the value's key is an element */
} RowTest;

struct BxRows
{
	Relation	heap;
	Snapshot	snapshot;
	TransactionId good_inserter;	/* see is_inserter_good */
	const BxQuery *query;
	int			ntests;			/* one for each condition */
	RowTest		tests[FLEXIBLE_ARRAY_MEMBER];
};

/* Sets up what a scan key asks of a row; false if we cannot tell. */
static bool
init_test(RowTest *test, Relation index, ScanKey key)
{
	test->attnum = index->rd_index->indkey.values[key->sk_attno - 1];
	if (test->attnum <= 0)
		return false;			/* an expression */
	test->is_null_test =
		(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)) != 0;
	test->null = (key->sk_flags & SK_SEARCHNULL) != 0;
	bx_hasher_init(&test->hasher, index, key->sk_attno, InvalidOid);
	return test->is_null_test || test->hasher.is_simple;
}

/*
 * Gets ready to look at rows for a scan, whose keys are the conditions of the
 * query.  Returns NULL if only the executor can tell which rows match.
 */
BxRows *
bx_rows_begin(IndexScanDesc scan, Relation heap, const BxQuery *query)
{
	int			n = scan->numberOfKeys;
	BxRows	   *rows;

	if (n == 0 || !IsMVCCSnapshot(scan->xs_snapshot))
		return NULL;
	rows = palloc(offsetof(BxRows, tests) + sizeof(RowTest) * n);
	rows->heap = heap;
	rows->snapshot = scan->xs_snapshot;
	rows->good_inserter = InvalidTransactionId;
	rows->query = query;
	rows->ntests = n;
	for (int i = 0; i < n; i++)
	{
		if (!init_test(&rows->tests[i], scan->indexRelation, &scan->keyData[i]))
			return NULL;
	}
	return rows;
}

/* Whether a value has to be unpacked before it can be hashed. */
static inline bool
is_packed(Datum value)
{
	return VARATT_IS_COMPRESSED(DatumGetPointer(value)) ||
		VARATT_IS_EXTERNAL(DatumGetPointer(value));
}

/* Whether a row may meet a condition. */
static inline bool
may_meet(BxRows *rows, int condition, HeapTuple tuple, TupleDesc desc)
{
	RowTest    *test = &rows->tests[condition];
	bool		isnull;
	Datum		value;

	/* the default of a column that was added later may be of any size */
	if (!test->is_null_test && !test->hasher.is_fixed &&
		test->attnum > HeapTupleHeaderGetNatts(tuple->t_data))
		return true;
	value = heap_getattr(tuple, test->attnum, desc, &isnull);
	if (test->is_null_test)
		return isnull == test->null;
	if (isnull)
		return false;
	if (!test->hasher.is_fixed && is_packed(value))
		return true;
	return bx_query_has_element(rows->query, condition,
								bx_hasher_key(&test->hasher, value));
}

/*
 * Whether the table's descriptor describes what a transaction has inserted.
 * Once that is so, it stays so as long as we have the table locked.
 */
static bool
is_inserter_good(BxRows *rows, TransactionId xid)
{
	if (!TransactionIdEquals(xid, rows->good_inserter))
	{
		if (!TransactionIdIsCurrentTransactionId(xid) &&
			!TransactionIdDidCommit(xid) && !TransactionIdIsInProgress(xid))
			return false;
		rows->good_inserter = xid;
	}
	return true;
}

/* Whether a row may meet all conditions. */
static inline bool
may_match(BxRows *rows, HeapTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(rows->heap);

	if (!HeapTupleHeaderXminCommitted(tuple->t_data) &&
		!is_inserter_good(rows, HeapTupleHeaderGetRawXmin(tuple->t_data)))
		return true;
	for (int i = 0; i < rows->ntests; i++)
	{
		if (!may_meet(rows, i, tuple, desc))
			return false;
	}
	return true;
}

/*
 * Lists the rows of a page, locked by the caller, that may match.  Returns how
 * many, or -1 if the executor has to look for itself.
 */
static int
list_rows(BxRows *rows, Page page, BlockNumber blkno,
		  ItemPointerData *tids)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;
	int			n = 0;

	if (max > MaxHeapTuplesPerPage)
		return -1;				/* damaged: not for us to say */
	tuple.t_tableOid = RelationGetRelid(rows->heap);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp))
			__builtin_prefetch(PageGetItem(page, lp));
	}
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (!ItemIdIsNormal(lp))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, lp);
		tuple.t_len = ItemIdGetLength(lp);
		ItemPointerSet(&tuple.t_self, blkno, off);
		if (HeapTupleHeaderXminInvalid(tuple.t_data))
			continue;			/* the inserter aborted: nobody sees the row */
		if (!may_match(rows, &tuple))
			continue;
		if (HeapTupleHeaderIsHeapOnly(tuple.t_data))
			return -1;
		tids[n++] = tuple.t_self;
	}
	return n;
}

/* Adds the rows of a page to a bitmap, as far as they may match. */
static void
add_page(BxRows *rows, BlockNumber blkno, TIDBitmap *tbm)
{
	ItemPointerData tids[MaxHeapTuplesPerPage];
	Buffer		buffer = ReadBuffer(rows->heap, blkno);
	Page		page = BufferGetPage(buffer);
	int			n;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_test_for_old_snapshot(rows->snapshot, rows->heap, page);
	n = list_rows(rows, page, blkno, tids);
	UnlockReleaseBuffer(buffer);
	if (n < 0)
		tbm_add_page(tbm, blkno);
	else if (n > 0)
		tbm_add_tuples(tbm, tids, n, true);
}

/* Adds the rows of pages to a bitmap, as far as they may match. */
void
bx_rows_add(BxRows *rows, const BlockNumber *pages, uint32 npages,
			TIDBitmap *tbm)
{
	uint32		distance = get_tablespace_io_concurrency(rows->heap->rd_rel->reltablespace);
	uint32		ahead = 0;

	for (uint32 i = 0; i < npages; i++)
	{
		CHECK_FOR_INTERRUPTS();

		/* of neighbours the system takes care */
		for (ahead = Max(ahead, i + 1);
			 ahead < npages && ahead <= i + distance; ahead++)
		{
			if (pages[ahead] != pages[ahead - 1] + 1)
				PrefetchBuffer(rows->heap, MAIN_FORKNUM, pages[ahead]);
		}
		add_page(rows, pages[i], tbm);
	}
}
