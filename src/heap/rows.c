/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  Finds the rows on given heap pages that may match a query.
 *
 * The filters identify pages, not rows.  If a search returns a whole page,
 * the executor rechecks every row of the page, which takes more than 0.1
 * microseconds per row.  Hashing the key of a row takes a tenth of that.  So
 * if a search finds few pages, bloomidx checks their rows itself, and returns
 * to the executor only the rows whose keys are elements of the query.
 *
 * No row is missed.  The snapshot was taken before the page is read, so every
 * version that the snapshot sees is on its page, cannot be pruned, and has the
 * keys that were added to the filter.  The executor checks visibility and
 * rechecks the conditions.  The executor expects the TID of the root of a HOT
 * chain, so the root of each tuple that matches is returned, and each root
 * once: src/README ("Rows in HOT chains") has the proof.  The rows are checked
 * under the share lock on the page, so neither functions of data types nor
 * user-defined functions may run: a value that would have to be detoasted
 * counts as a match, and a condition on a column that is hashed by a function
 * of its type, or on an expression, is left to the executor.  If no condition
 * can be tested, all rows match.
 *
 * The table's descriptor does not describe every tuple on its pages.  If a
 * transaction adds a column, inserts rows and aborts, then the number of the
 * column is free again, and the next column that is added, perhaps of another
 * type, gets the same number.  Reading such a tuple with the new descriptor
 * would interpret arbitrary bytes as a length or a pointer.  So a tuple is
 * read only if its inserter has not aborted: it is known to have committed,
 * or it is the current transaction, or it is in progress.  In the last case
 * the inserter cannot have altered the table, because it would hold an
 * AccessExclusiveLock on the table until it ends, and we hold a lock on the
 * table; and when a transaction or subtransaction aborts, it ceases to be in
 * progress before its locks are released.  A tuple that is not read counts as
 * a match, unless its hint bits say that the inserter aborted: no snapshot
 * sees such a tuple.
 *
 * Serializable transactions are safe, too.  The server acquired a predicate
 * lock on the index before it called us.  A transaction that adds a matching
 * row first puts the row on its page and then checks for predicate locks.  So
 * either it finds our lock, or the row is on the page when we check the page;
 * then the row is returned although our snapshot does not see it, and the
 * executor detects the conflict.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"

#include "../storage/storage.h"
#include "heap.h"

/* How a condition of the query is tested on a row. */
typedef struct RowTest
{
	int			condition;		/* number of the condition */
	int			attnum;			/* column number in the table */
	bool		is_null_test;
	bool		null;			/* null test: true for IS NULL, false for IS
								 * NOT NULL */
	bool		same_type;		/* the value sought has the column's type */
	bool		is_array;		/* "sought" is an array of values */
	bool		is_comparison;	/* the value must be the same as "sought" */
	Datum		sought;
	BxHasher	hasher;			/* otherwise: the key of the value must be an
								 * element */
} RowTest;

/*
 * How most rows are excluded, by the first bytes of a column; see
 * skip_excluded().
 */
typedef struct QuickTest
{
	int			offset;			/* of the column in the data of a tuple
								 * without null values; -1: no quick test */
	int			attnum;			/* of the column in the table */
	int			length;			/* of the column's values, in bytes */
	int64		sought;			/* the first bytes of the value sought */

	/* if several values are sought: the set of the hashes of their bytes */
	uint8	   *set;
	int			set_shift;		/* 64 - log2(size of the set in bits) */
} QuickTest;

/* Bits of the set for each value, and the bits of the largest set */
#define QUICK_SET_BITS			32
#define MAX_QUICK_SET_BITS		(1 << 20)

struct BxRows
{
	Relation	heap;
	struct IndexFetchTableData *fetch;	/* of an index scan, or NULL */
	Snapshot	snapshot;
	TransactionId good_inserter;	/* see is_inserter_good */
	const BxQuery *query;
	QuickTest	quick;
	Size		prefetch_offset;	/* see prefetch_tuples() */
	int			ntests;			/* one for each condition that can be tested */
	RowTest		tests[FLEXIBLE_ARRAY_MEMBER];
};

/*
 * Initializes the test for a scan key, whose value "hasher" hashes.  Returns
 * false if the test is not possible from the tuple alone.
 */
static bool
init_test(RowTest *test, Relation index, ScanKey key, const BxHasher *hasher)
{
	bool		same_type = key->sk_subtype == InvalidOid ||
	key->sk_subtype == index->rd_opcintype[key->sk_attno - 1];

	test->attnum = index->rd_index->indkey.values[key->sk_attno - 1];
	if (test->attnum <= 0)
		return false;			/* an expression */
	test->is_null_test =
		(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)) != 0;
	test->null = (key->sk_flags & SK_SEARCHNULL) != 0;
	if (test->is_null_test)
		return true;
	if (same_type)
		test->hasher = *hasher;
	else
		bx_hasher_init(&test->hasher, index, key->sk_attno, InvalidOid);
	test->sought = key->sk_argument;
	test->same_type = same_type;
	test->is_array = (key->sk_flags & SK_SEARCHARRAY) != 0;
	test->is_comparison = test->hasher.is_fixed && same_type &&
		!test->is_array;
	return test->hasher.is_simple;
}

/*
 * Returns the offset of a column in the data of a tuple without null values,
 * or -1 if the length of this column or of a preceding one is not fixed.
 */
static int
offset_of_column(TupleDesc desc, int attnum)
{
	int			offset = 0;

	for (int i = 0;; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attlen <= 0)
			return -1;
		offset = att_align_nominal(offset, att->attalign);
		if (i == attnum - 1)
			return offset;
		offset += att->attlen;
	}
}

/*
 * Returns the first bytes of a value of fixed length.  A uuid need not be
 * aligned.
 */
static inline int64
read_head(const char *value, int length)
{
	int64		head;

	switch (length)
	{
		case sizeof(int16):
			return *(const int16 *) value;
		case sizeof(int32):
			return *(const int32 *) value;
		default:
			memcpy(&head, value, sizeof(head));
			return head;
	}
}

/* The same for a Datum. */
static int64
head_of_datum(Datum value, int length)
{
	switch (length)
	{
		case sizeof(int16):
			return DatumGetInt16(value);
		case sizeof(int32):
			return DatumGetInt32(value);
		case sizeof(int64):
			return DatumGetInt64(value);
		default:
			return read_head(DatumGetPointer(value), length);
	}
}

/* Returns the bit of a set for the first bytes of a value. */
static inline uint32
quick_bit(const QuickTest *quick, int64 head)
{
	return ((uint64) head * UINT64CONST(0x9E3779B97F4A7C15)) >> quick->set_shift;
}

/*
 * Makes the set of the first bytes of the values of an array.  Returns false
 * if there are too many.
 */
static bool
make_quick_set(QuickTest *quick, Datum array)
{
	Datum	   *values;
	bool	   *nulls;
	int			n = bx_query_split_array(array, &values, &nulls);
	int			lg_bits = 9;

	if (n > MAX_QUICK_SET_BITS / QUICK_SET_BITS)
		return false;
	while ((1 << lg_bits) < n * QUICK_SET_BITS)
		lg_bits++;
	quick->set = palloc0((1 << lg_bits) / 8);
	quick->set_shift = 64 - lg_bits;
	for (int i = 0; i < n; i++)
	{
		uint32		bit;

		if (nulls[i])
			continue;
		bit = quick_bit(quick, head_of_datum(values[i], quick->length));
		quick->set[bit / 8] |= 1 << (bit % 8);
	}
	return true;
}

/* Prepares skip_excluded() and prefetch_tuples() for the first test. */
static void
prepare_quick_test(BxRows *rows)
{
	const RowTest *test = &rows->tests[0];
	QuickTest  *quick = &rows->quick;
	int			offset = offset_of_column(RelationGetDescr(rows->heap),
										  test->attnum);

	rows->prefetch_offset = MAXALIGN(SizeofHeapTupleHeader) + Max(offset, 0);
	if (test->is_null_test || !test->hasher.is_fixed || !test->same_type)
		return;
	quick->attnum = test->attnum;
	quick->length = test->hasher.length;
	if (!test->is_array)
		quick->sought = head_of_datum(test->sought, quick->length);
	else if (!make_quick_set(quick, test->sought))
		return;
	quick->offset = offset;
}

/*
 * Prepares to check rows for a scan, whose scan keys correspond to the
 * conditions of the query, and to the hashers, in the same order.  The result
 * is allocated in the current memory context.
 */
BxRows *
bx_rows_begin(IndexScanDesc scan, Relation heap, const BxQuery *query,
			  const BxHasher *hashers)
{
	int			n = scan->numberOfKeys;
	BxRows	   *rows = palloc(offsetof(BxRows, tests) + sizeof(RowTest) * n);

	rows->heap = heap;
	rows->fetch = scan->xs_heapfetch;
	rows->snapshot = scan->xs_snapshot;
	rows->good_inserter = InvalidTransactionId;
	rows->query = query;
	rows->quick.offset = -1;
	rows->prefetch_offset = 0;
	rows->quick.set = NULL;
	rows->ntests = 0;
	for (int i = 0; i < n; i++)
	{
		RowTest    *test = &rows->tests[rows->ntests];

		if (init_test(test, scan->indexRelation, &scan->keyData[i],
					  &hashers[i]))
		{
			test->condition = i;
			rows->ntests++;
		}
	}
	if (rows->ntests > 0)
		prepare_quick_test(rows);
	return rows;
}

/* Returns whether any row can be excluded without the executor. */
bool
bx_rows_can_exclude(const BxRows *rows)
{
	return rows->ntests > 0;
}

/* Returns whether a value must be detoasted before it can be hashed. */
static inline bool
is_packed(Datum value)
{
	return VARATT_IS_COMPRESSED(DatumGetPointer(value)) ||
		VARATT_IS_EXTERNAL(DatumGetPointer(value));
}

/* Returns whether a row may meet the condition of a test. */
static inline bool
may_meet(BxRows *rows, RowTest *test, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		value;

	/*
	 * the default value of a column that was added later may be compressed or
	 * external
	 */
	if (!test->is_null_test && !test->hasher.is_fixed &&
		test->attnum > HeapTupleHeaderGetNatts(tuple->t_data))
		return true;
	value = heap_getattr(tuple, test->attnum, desc, &isnull);
	if (test->is_null_test)
		return isnull == test->null;
	if (isnull)
		return false;
	if (test->is_comparison)
		return bx_hasher_same(&test->hasher, value, test->sought);
	if (!test->hasher.is_fixed && is_packed(value))
		return true;
	return bx_query_has_element(rows->query, test->condition,
								bx_hasher_key(&test->hasher, value));
}

/*
 * Returns whether the table's descriptor describes the tuples that a
 * transaction has inserted.  If so, this remains true as long as we hold a
 * lock on the table.
 */
static bool
is_inserter_good(BxRows *rows, TransactionId xid)
{
	/* a speculative insertion that was withdrawn: the inserter is not known */
	if (!TransactionIdIsValid(xid))
		return false;
	if (!TransactionIdEquals(xid, rows->good_inserter))
	{
		if (!TransactionIdIsCurrentTransactionId(xid) &&
			!TransactionIdDidCommit(xid) && !TransactionIdIsInProgress(xid))
			return false;
		rows->good_inserter = xid;
	}
	return true;
}

/* Returns whether a row may meet all conditions. */
static inline bool
may_match(BxRows *rows, HeapTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(rows->heap);

	if (!HeapTupleHeaderXminCommitted(tuple->t_data) &&
		!is_inserter_good(rows, HeapTupleHeaderGetRawXmin(tuple->t_data)))
		return true;
	for (int i = 0; i < rows->ntests; i++)
	{
		if (!may_meet(rows, &rows->tests[i], tuple, desc))
			return false;
	}
	return true;
}

/*
 * Returns whether a tuple does not have a value sought, as far as the first
 * bytes of the value show.
 */
static inline bool
is_excluded(const QuickTest *quick, HeapTupleHeader tuple)
{
	int64		head;
	uint32		bit;

	if ((tuple->t_infomask & (HEAP_XMIN_COMMITTED | HEAP_HASNULL)) != HEAP_XMIN_COMMITTED ||
		HeapTupleHeaderGetNatts(tuple) < quick->attnum)
		return false;
	head = read_head((const char *) tuple + tuple->t_hoff + quick->offset,
					 quick->length);
	if (quick->set == NULL)
		return head != quick->sought;
	bit = quick_bit(quick, head);
	return !((quick->set[bit / 8] >> (bit % 8)) & 1);
}

/*
 * Returns the first line pointer from "off" on that has a tuple which the
 * first test does not exclude at once; max + 1 if there is none.  The caller
 * tests the tuple in full.
 *
 * A search of an index in memory spends much of its time on the rows of the
 * heap pages that it has found, so this loop must be fast.  Almost all rows
 * differ from the values sought in the first 8 bytes, and usually the column
 * is at the same place in all tuples.
 */
static OffsetNumber
skip_excluded(QuickTest quick, Page page, OffsetNumber off, OffsetNumber max)
{
	for (; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp) &&
			!is_excluded(&quick, (HeapTupleHeader) PageGetItem(page, lp)))
			break;
	}
	return off;
}

/*
 * Replaces the tuples in tids[], which are in ascending order, by the roots of
 * their HOT chains, each root once.  Returns the number of roots.  A heap-only
 * tuple that no root leads to is visible to no snapshot, and is omitted.  The
 * caller holds a lock on the page.
 */
static int
find_roots(Page page, ItemPointerData *tids, int n)
{
	BlockNumber blkno = ItemPointerGetBlockNumber(&tids[0]);
	OffsetNumber roots[MaxHeapTuplesPerPage];
	bool		is_listed[MaxHeapTuplesPerPage + 1] = {false};
	int			nroots = 0;

	heap_get_root_tuples(page, roots);
	for (int i = 0; i < n; i++)
		is_listed[roots[ItemPointerGetOffsetNumber(&tids[i]) - 1]] = true;
	for (OffsetNumber off = FirstOffsetNumber; off <= MaxHeapTuplesPerPage; off++)
	{
		if (is_listed[off])
		{
			ItemPointerSet(&tids[nroots], blkno, off);
			nroots++;
		}
	}
	return nroots;
}

/*
 * Prefetches the cache lines that the first test of each tuple reads: those of
 * the flags in its header, and of the tested column.  A page of a large table
 * is usually not in the processor's cache, and waiting for one line after the
 * other would take most of the time.
 */
static inline void
prefetch_tuples(const BxRows *rows, Page page, OffsetNumber max)
{
	Size		offset = rows->prefetch_offset;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		char	   *tuple = (char *) page + ItemIdGetOffset(lp);

		/* harmless if the line pointer has no tuple */
		__builtin_prefetch(tuple + offsetof(HeapTupleHeaderData, t_infomask));
		__builtin_prefetch(tuple + offset);
	}
}

/*
 * Lists the roots of the rows of a page that may match, in ascending order,
 * and returns their number.  The caller holds a lock on the page.
 */
static int
list_rows(BxRows *rows, Page page, BlockNumber blkno,
		  ItemPointerData *tids)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;
	bool		heap_only = false;
	int			n = 0;

	if (max > MaxHeapTuplesPerPage)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("page %u of table \"%s\" has %u line pointers, more than fit on a page",
						blkno, RelationGetRelationName(rows->heap), max)));
	tuple.t_tableOid = RelationGetRelid(rows->heap);
	prefetch_tuples(rows, page, max);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp;

		if (rows->quick.offset >= 0)
			off = skip_excluded(rows->quick, page, off, max);
		if (off > max)
			break;
		lp = PageGetItemId(page, off);
		if (!ItemIdIsNormal(lp))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, lp);
		tuple.t_len = ItemIdGetLength(lp);
		ItemPointerSet(&tuple.t_self, blkno, off);
		if (HeapTupleHeaderXminInvalid(tuple.t_data))
			continue;			/* the inserter aborted: no snapshot sees the
								 * row */
		if (!may_match(rows, &tuple))
			continue;
		heap_only |= HeapTupleHeaderIsHeapOnly(tuple.t_data);
		tids[n++] = tuple.t_self;
	}
	return heap_only ? find_roots(page, tids, n) : n;
}

/*
 * Pins a page.  In an index scan the executor will fetch the rows that
 * bx_rows_list() lists, so the page becomes the one that the executor has
 * pinned: then the executor need not look up the page again.
 */
static Buffer
pin_page(BxRows *rows, BlockNumber blkno)
{
	Buffer		buffer;

	if (rows->fetch == NULL)
		return bx_page_pin(rows->heap, blkno);
	buffer = bx_fetch_pinned(rows->fetch, blkno);
	if (!BufferIsValid(buffer))
	{
		buffer = bx_page_pin(rows->heap, blkno);
		bx_fetch_pass(rows->fetch, blkno, buffer);
	}
	return buffer;
}

/*
 * Lists the roots of the rows of a page that may match, in ascending order,
 * and returns their number.  tids[] has room for MaxHeapTuplesPerPage.
 */
int
bx_rows_list(BxRows *rows, BlockNumber blkno, ItemPointerData *tids)
{
	Buffer		buffer = pin_page(rows, blkno);
	Page		page = BufferGetPage(buffer);
	int			n;

	/* prefetch the page header and up to 122 line pointers */
	for (int offset = 0; offset < 512; offset += 64)
		__builtin_prefetch(page + offset);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_test_for_old_snapshot(rows->snapshot, rows->heap, page);
	n = list_rows(rows, page, blkno, tids);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (rows->fetch == NULL)
		ReleaseBuffer(buffer);
	return n;
}

/*
 * Prefetches pages after pages[i], up to "distance".  *ahead is the number of
 * the first page that was not considered yet, initially 0.
 */
void
bx_rows_prefetch(BxRows *rows, const BlockNumber *pages, uint32 npages,
				 uint32 i, uint32 distance, uint32 *ahead)
{
	/* adjacent pages are left to OS readahead */
	for (*ahead = Max(*ahead, i + 1);
		 *ahead < npages && *ahead <= i + distance; (*ahead)++)
	{
		if (pages[*ahead] != pages[*ahead - 1] + 1)
			PrefetchBuffer(rows->heap, MAIN_FORKNUM, pages[*ahead]);
	}
}

/* Adds the rows of several pages that may match to a bitmap. */
void
bx_rows_add(BxRows *rows, const BlockNumber *pages, uint32 npages,
			TIDBitmap *tbm)
{
	uint32		distance = get_tablespace_io_concurrency(rows->heap->rd_rel->reltablespace);
	uint32		ahead = 0;

	for (uint32 i = 0; i < npages; i++)
	{
		ItemPointerData tids[MaxHeapTuplesPerPage];
		int			n;

		CHECK_FOR_INTERRUPTS();
		bx_rows_prefetch(rows, pages, npages, i, distance, &ahead);
		n = bx_rows_list(rows, pages[i], tids);
		if (n > 0)
			tbm_add_tuples(tbm, tids, n, true);
	}
}
