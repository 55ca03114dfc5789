/*-------------------------------------------------------------------------
 *
 * ahead.c
 *	  Reads ahead of the inserts of a statement: the keys of rows that are
 *	  already on a heap page, but are yet to be inserted into the index.
 *
 * COPY puts many rows on heap pages before it inserts the first of them into
 * the indexes.  A row of an extracting column sets many keys, in many pages of
 * filters.  Rows on the same heap page have many keys in common, and set their
 * keys in the same pages of filters.  So the keys of all these rows are set
 * together, when the first row of the heap page is inserted, and each page of
 * filters is locked and logged once.
 *
 * The insert of each of the other rows follows later, and finds that the keys
 * are set.  If a row that is read ahead is not inserted later, filters contain
 * keys that they need not contain, which is harmless.  So the choice of the
 * rows that are read ahead does not affect the results of searches.
 *
 * The rows that are read ahead are on the same heap page as the row that is
 * being inserted, have higher line pointers, and have been added by the same
 * command of the same transaction.  So their values can be used like the
 * values that the executor passes.  A row with a value that must be detoasted
 * is not read ahead, which limits the memory.  No rows are read ahead for an
 * index with an expression, a predicate, or an operator class with a
 * user-defined function, because these would be evaluated twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "heap.h"

/* No further rows are read once this many keys have been collected. */
#define MAX_KEYS		(64 * 1024)

struct BxAhead
{
	int			natts;
	AttrNumber	attnums[INDEX_MAX_KEYS];	/* columns of the table */
	BlockNumber blkno;			/* the heap page that was read last */
	OffsetNumber end;			/* the last line pointer that was examined */
	BxRowKeys	row;			/* keys of the row that is being read */

	/*
	 * COPY writes the table in a small ring of buffers, and removes a buffer
	 * from the ring if the usage count shows that another access has used the
	 * buffer.  An access with a strategy does not raise the usage count.
	 */
	BufferAccessStrategy strategy;
};

/*
 * Prepares to read ahead for an index.  Returns NULL if that is not useful or
 * not possible.  The result is allocated in the current memory context.
 */
BxAhead *
bx_ahead_begin(Relation index, const IndexInfo *indexInfo,
			   const BxHasher *hashers, int natts)
{
	BxAhead    *ahead;
	bool		extracts = false;

	for (int i = 0; i < natts; i++)
	{
		extracts |= hashers[i].extractor != NULL;
		if (indexInfo->ii_IndexAttrNumbers[i] <= 0)
			return NULL;
	}
	if (!extracts || indexInfo->ii_Predicate != NIL)
		return NULL;
	for (int i = 0; i < natts; i++)
	{
		if (bx_hash_has_user_functions(index, i + 1))
			return NULL;
	}
	ahead = palloc0(sizeof(BxAhead));
	ahead->natts = natts;
	for (int i = 0; i < natts; i++)
		ahead->attnums[i] = indexInfo->ii_IndexAttrNumbers[i];
	ahead->blkno = InvalidBlockNumber;
	ahead->strategy = GetAccessStrategy(BAS_BULKREAD);
	bx_hash_row_alloc(natts, &ahead->row);
	return ahead;
}

/* Returns the tuple of a line pointer, or NULL if it has none. */
static HeapTupleHeader
get_tuple(Page page, OffsetNumber offnum)
{
	ItemId		lp = PageGetItemId(page, offnum);

	return ItemIdIsNormal(lp) ? (HeapTupleHeader) PageGetItem(page, lp) : NULL;
}

/*
 * Returns whether a tuple was added by the current transaction (not by a
 * parent or a subtransaction), and is not a speculative insertion, which may
 * be withdrawn.
 */
static bool
is_own(const HeapTupleHeaderData *tuple)
{
	TransactionId xid = GetCurrentTransactionIdIfAny();

	return TransactionIdIsValid(xid) &&
		TransactionIdEquals(HeapTupleHeaderGetRawXmin(tuple), xid) &&
		(tuple->t_infomask & HEAP_COMBOCID) == 0 &&
		!HeapTupleHeaderIsSpeculative(tuple);
}

/*
 * Lists the rows to be read ahead, which are behind the row at "offnum", and
 * returns their number.  The caller holds a pin on the page.
 */
static int
list_rows(BxAhead *ahead, Buffer buffer, OffsetNumber offnum,
		  OffsetNumber *offnums)
{
	Page		page = BufferGetPage(buffer);
	HeapTupleHeader first;
	OffsetNumber max;
	int			n = 0;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	max = Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	first = offnum < max ? get_tuple(page, offnum) : NULL;
	if (first != NULL && is_own(first))
	{
		for (OffsetNumber i = offnum + 1; i <= max; i++)
		{
			HeapTupleHeader tuple = get_tuple(page, i);

			if (tuple != NULL && is_own(tuple) &&
				HeapTupleHeaderGetRawCommandId(tuple) ==
				HeapTupleHeaderGetRawCommandId(first))
				offnums[n++] = i;
		}
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	ahead->end = Max(max, offnum);
	return n;
}

/*
 * Reads the values of the index columns.  Returns false if one of them must be
 * detoasted.
 */
static bool
read_values(const BxAhead *ahead, Relation heap, HeapTuple tuple,
			Datum *values, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(heap);

	for (int i = 0; i < ahead->natts; i++)
	{
		int			attnum = ahead->attnums[i];

		values[i] = heap_getattr(tuple, attnum, desc, &isnull[i]);
		if (!isnull[i] && TupleDescAttr(desc, attnum - 1)->attlen == -1 &&
			(VARATT_IS_COMPRESSED(DatumGetPointer(values[i])) ||
			 VARATT_IS_EXTERNAL(DatumGetPointer(values[i]))))
			return false;
	}
	return true;
}

/*
 * Adds the keys of rows that will be inserted later to "row", the keys of the
 * row that is being inserted.  Does nothing if this row has been read ahead
 * itself.  This calls the functions of the operator classes, so the caller
 * must hold no content lock.  Resets the current memory context, which must
 * be one for a single row.
 */
void
bx_ahead_collect(BxAhead *ahead, Relation heap, ItemPointer tid,
				 BxHasher *hashers, uint8 keys, BxRowKeys *row)
{
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	OffsetNumber offnum = ItemPointerGetOffsetNumber(tid);
	OffsetNumber offnums[MaxHeapTuplesPerPage];
	HeapTupleData tuple;
	Buffer		buffer;
	int			n;

	if (blkno == ahead->blkno && offnum <= ahead->end)
		return;
	ahead->blkno = blkno;
	buffer = ReadBufferExtended(heap, MAIN_FORKNUM, blkno, RBM_NORMAL,
								ahead->strategy);
	n = list_rows(ahead, buffer, offnum, offnums);

	/* the pin prevents pruning, so the tuples remain where they are */
	tuple.t_tableOid = RelationGetRelid(heap);
	for (int i = 0; i < n && row->nvalues < MAX_KEYS; i++)
	{
		ItemId		lp = PageGetItemId(BufferGetPage(buffer), offnums[i]);
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		CHECK_FOR_INTERRUPTS();
		tuple.t_data = (HeapTupleHeader) PageGetItem(BufferGetPage(buffer), lp);
		tuple.t_len = ItemIdGetLength(lp);
		ItemPointerSet(&tuple.t_self, blkno, offnums[i]);
		if (!read_values(ahead, heap, &tuple, values, isnull))
			continue;
		bx_hash_row(hashers, ahead->natts, keys, values, isnull, &ahead->row);
		bx_hash_row_add(row, &ahead->row);
		MemoryContextReset(CurrentMemoryContext);
	}
	ReleaseBuffer(buffer);
	if (unlikely(ahead->row.allocated > BX_MANY_KEYS))
		bx_hash_row_shrink(&ahead->row);
}
