/*-------------------------------------------------------------------------
 *
 * heapscan.c
 *	  Collects the keys of every tuple version on a set of heap pages.
 *
 * A filter may contain too many keys, but never too few.  So every version on
 * a page is indexed, regardless of which snapshots see it, unless the
 * transaction that inserted it aborted: no snapshot ever sees such a version.
 * These are more versions than table_index_build_scan() returns, which omits
 * versions that are dead, or that were HOT-updated and are still visible to
 * older snapshots, here or on a standby.  Because the index contains all
 * versions, it is correct for every snapshot, and concurrent HOT updates on
 * pages that the scan has already read are harmless.
 *
 * A version that is not certainly live (deleted, or inserted by another
 * transaction that is still in progress) must not make the scan fail, so only
 * data in the tuple itself is used.  If more is needed, because the index has
 * an expression or a predicate, or because the value is stored out of line
 * and its TOAST rows may be gone, the range is reported as in doubt, which
 * makes its filter match everything.
 *
 * No tuple of an aborted transaction is read: the table's descriptor may not
 * describe it (see rows.c).  The descriptor does describe a tuple whose
 * inserter is still in progress.  Otherwise the inserter would have altered
 * the table, and would hold an AccessExclusiveLock on the table until it
 * ends; but all callers hold a lock on the table.  Types are different: the
 * inserter may have altered a composite type, which locks only the type, and
 * its value may have attributes that we do not know of yet.  So the value of
 * such a tuple is used only if no function of its type is needed to hash it;
 * else the range is in doubt.
 *
 * The line pointers of a page are collected under a share lock.  Then only
 * the pin is kept, which prevents pruning, so the tuples do not move while
 * their values are hashed.  Hashing may run user-defined code, which must not
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
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "heap.h"

/* Which data of a tuple version may be used. */
typedef enum Usability
{
	USE_ALL,					/* certainly live: everything */
	USE_TUPLE,					/* only data in the tuple itself */
	USE_BYTES					/* only data in the tuple, and no function of
								 * a user may be called */
} Usability;

/* a version to be indexed */
typedef struct Version
{
	OffsetNumber offnum;
	Usability	usability;
} Version;

struct BxHeapScan
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	int			natts;
	uint8		which;			/* BX_KEYS_xxx */
	bool		computed;		/* the index has an expression or a predicate */
	bool		direct;			/* read columns from the tuple, not through
								 * the slot */
	bool		allocates;		/* hashing a row may allocate memory */
	BxHasher	hashers[INDEX_MAX_KEYS];
	BufferAccessStrategy strategy;
	Snapshot	snapshot;		/* only versions that it sees; NULL: all
								 * versions */
	bool		nowait;			/* do not wait for locks on types */
	EState	   *estate;
	ExprContext *econtext;
	TupleTableSlot *slot;
	ExprState  *predicate;

	double		heap_tuples;	/* live tuples */
	double		index_tuples;	/* live tuples that are in the index */

	/*
	 * distinct keys collected since the last clear, and a hash table of them
	 */
	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	uint64	   *table;			/* 0 marks an empty slot */
	Size		table_size;		/* slots in use, a power of two */
	Size		table_allocated;
	uint64		salt;			/* see bx_hash_position() */
	Size		limit;			/* maximum number of keys in memory */
	bool		doubt;
	Size		page_keys;		/* largest number of keys of one page so far */
	bool		seen_null[INDEX_MAX_KEYS];
	bool		seen_not_null[INDEX_MAX_KEYS];
};

/*
 * maximum number of keys of one page, if no column extracts; one of a row is
 * the combined key
 */
#define MAX_KEYS_PER_PAGE(scan)		((Size) MaxHeapTuplesPerPage * \
									 ((scan)->natts + 1))

/*
 * Memory per key: 8 bytes for the key itself, and up to 4 slots of the hash
 * table, which is at most half full, and at least a quarter full after it has
 * been enlarged.
 */
#define BYTES_PER_KEY		(sizeof(uint64) * 5)
#define SMALLEST_TABLE		64

/*
 * Duplicates are removed at the latest when a page has this many keys that
 * have not been examined, so that large values with few distinct keys need
 * little memory.
 */
#define MANY_KEYS			65536

/* Number of keys that are examined between two checks for interrupts. */
#define KEYS_AT_ONCE		65536

/*
 * Returns whether heap_getattr() reads the index columns as fast as deforming
 * the tuple once: true for a single column, or if no index column follows the
 * first variable-length column.
 */
static bool
is_direct(BxHeapScan *scan)
{
	TupleDesc	desc = RelationGetDescr(scan->heap);
	int			nfixed = 0;

	if (scan->computed)
		return false;
	while (nfixed < desc->natts && TupleDescAttr(desc, nfixed)->attlen > 0)
		nfixed++;
	for (int i = 0; i < scan->natts && scan->natts > 1; i++)
	{
		if (scan->indexInfo->ii_IndexAttrNumbers[i] > nfixed + 1)
			return false;
	}
	return true;
}

/*
 * Returns the IndexInfo of an existing index, with the expressions and the
 * predicate as the functions are defined now.
 *
 * The relation cache contains the expressions with the bodies of SQL functions
 * inlined, as the functions were defined when this session first needed the
 * expressions, and with names resolved under the search_path of that time.  If
 * the replacement of a function is rolled back, or search_path changes, the
 * cached expressions do not change.  Filters that are rebuilt from such
 * expressions would miss rows.  So this function makes the relation cache read
 * the expressions again, under the present user and search_path, and discards
 * the new expressions afterwards, because later statements run under another
 * user and search_path.  The memory of the discarded lists is freed only
 * together with the relation cache entry; other code uses copies of the lists.
 */
IndexInfo *
bx_heapscan_index_info(Relation index)
{
	IndexInfo  *result;

	index->rd_indexprs = NIL;
	index->rd_indpred = NIL;
	result = BuildIndexInfo(index);
	index->rd_indexprs = NIL;
	index->rd_indpred = NIL;
	return result;
}

/*
 * Begins a scan for the keys of rows that "keys" (BX_KEYS_xxx) specifies.
 * "memory" is its memory budget in bytes.  The caller keeps heap, index and
 * indexInfo alive until bx_heapscan_end(), and has the heap locked.
 */
BxHeapScan *
bx_heapscan_begin(Relation heap, Relation index, IndexInfo *indexInfo,
				  uint8 keys, Size memory)
{
	BxHeapScan *scan = palloc0(sizeof(BxHeapScan));

	scan->heap = heap;
	scan->index = index;
	scan->indexInfo = indexInfo;
	scan->natts = IndexRelationGetNumberOfKeyAttributes(index);
	scan->which = keys;
	scan->computed = indexInfo->ii_Expressions != NIL ||
		indexInfo->ii_Predicate != NIL;
	scan->direct = is_direct(scan);
	scan->allocates = scan->computed;
	for (int i = 0; i < scan->natts; i++)
	{
		bx_hasher_init(&scan->hashers[i], index, i + 1, InvalidOid);
		scan->allocates |= !scan->hashers[i].is_fixed;
	}
	scan->strategy = GetAccessStrategy(BAS_BULKREAD);
	scan->estate = CreateExecutorState();
	scan->econtext = GetPerTupleExprContext(scan->estate);
	scan->slot = table_slot_create(heap, NULL);
	scan->econtext->ecxt_scantuple = scan->slot;
	scan->predicate = ExecPrepareQual(indexInfo->ii_Predicate, scan->estate);

	/* an earlier scan that failed may have left states that no longer exist */
	indexInfo->ii_ExpressionsState = NIL;

	/* there must be room for the keys of one page and the markers */
	scan->limit = Max(memory / BYTES_PER_KEY, 2 * MAX_KEYS_PER_PAGE(scan));
	scan->allocated = MAX_KEYS_PER_PAGE(scan) + 2 * scan->natts;
	scan->keys = palloc(sizeof(uint64) * scan->allocated);
	scan->table_size = scan->table_allocated = SMALLEST_TABLE;
	scan->table = palloc0(sizeof(uint64) * scan->table_allocated);
	scan->salt = bx_hash_salt();
	return scan;
}

/* Restricts the scan to the rows that a snapshot sees. */
void
bx_heapscan_set_snapshot(BxHeapScan *scan, Snapshot snapshot)
{
	scan->snapshot = snapshot;
}

/*
 * Makes the scan fail, with ERRCODE_LOCK_NOT_AVAILABLE, where it would have to
 * wait for a transaction that alters a type.
 */
void
bx_heapscan_set_nowait(BxHeapScan *scan)
{
	scan->nowait = true;
}

void
bx_heapscan_end(BxHeapScan *scan)
{
	ExecDropSingleTupleTableSlot(scan->slot);
	FreeExecutorState(scan->estate);
	FreeAccessStrategy(scan->strategy);

	/* these may point into the estate, which no longer exists */
	scan->indexInfo->ii_ExpressionsState = NIL;
	scan->indexInfo->ii_PredicateState = NULL;
	pfree(scan->table);
	pfree(scan->keys);
	pfree(scan);
}

/*
 * Returns whether a tuple version is indexed, and sets *usability.  The
 * caller holds a share lock on the buffer.
 */
static bool
classify(BxHeapScan *scan, HeapTuple tuple, Buffer buffer,
		 Usability *usability)
{
	uint16		infomask = tuple->t_data->t_infomask;
	TransactionId dead_after;

	*usability = USE_ALL;
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

			/* without a horizon, DEAD means that the inserter aborted */
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
			*usability = USE_BYTES;
			return true;
		case HEAPTUPLE_DELETE_IN_PROGRESS:

			/*
			 * count it as ANALYZE does: as live, unless the deleter is the
			 * current transaction
			 */
			if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple->t_data)))
				scan->heap_tuples++;
			*usability = USE_TUPLE;
			return true;
		case HEAPTUPLE_RECENTLY_DEAD:
			*usability = USE_TUPLE;
			return true;
	}
	elog(ERROR, "unexpected HeapTupleSatisfiesVacuumHorizon result");
	return false;				/* keep compiler quiet */
}

/* Initializes *tuple for locate_tuple(). */
static void
init_tuple(BxHeapScan *scan, Buffer buffer, HeapTuple tuple)
{
	tuple->t_tableOid = RelationGetRelid(scan->heap);
	ItemPointerSet(&tuple->t_self, BufferGetBlockNumber(buffer), 0);
}

/*
 * Sets *tuple to the tuple of a line pointer.  Returns false if it has none.
 */
static inline bool
locate_tuple(Page page, OffsetNumber offnum, HeapTuple tuple)
{
	ItemId		lp = PageGetItemId(page, offnum);

	if (!ItemIdIsNormal(lp))
		return false;
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple->t_len = ItemIdGetLength(lp);
	ItemPointerSetOffsetNumber(&tuple->t_self, offnum);
	return true;
}

/*
 * Lists the versions on a page that are to be indexed, and returns their
 * number.  All tuples on an all-visible page are live; but on a standby this
 * does not mean that every snapshot sees them.  The caller holds a pin; the
 * share lock is acquired and released here.
 */
static int
list_versions(BxHeapScan *scan, Buffer buffer, Version *versions)
{
	int			n = 0;
	Page		page = BufferGetPage(buffer);
	HeapTupleData tuple;
	OffsetNumber max;
	bool		all_visible;

	init_tuple(scan, buffer, &tuple);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	all_visible = PageIsAllVisible(page) &&
		!(scan->snapshot && scan->snapshot->takenDuringRecovery);
	max = PageGetMaxOffsetNumber(page);
	if (max > MaxHeapTuplesPerPage)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("page %u of table \"%s\" has %u line pointers, more than fit on a page",
						BufferGetBlockNumber(buffer),
						RelationGetRelationName(scan->heap), max)));
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		versions[n].usability = USE_ALL;
		if (!locate_tuple(page, off, &tuple))
			continue;
		if (all_visible)
			__builtin_prefetch(tuple.t_data);
		else if (!classify(scan, &tuple, buffer, &versions[n].usability))
			continue;
		versions[n++].offnum = off;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (all_visible)
		scan->heap_tuples += n;
	return n;
}

/* Returns whether a value is stored out of line, in the TOAST table. */
static bool
is_out_of_line(BxHeapScan *scan, int attnum, Datum value)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(scan->heap),
										  attnum - 1);

	return att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(value));
}

/*
 * Returns whether the value of index column i, which is not NULL, may be
 * hashed.
 */
static bool
is_usable(BxHeapScan *scan, int i, int attnum, Datum value,
		  Usability usability)
{
	switch (usability)
	{
		case USE_ALL:
			return true;
		case USE_TUPLE:
			return !is_out_of_line(scan, attnum, value);
		case USE_BYTES:
			return scan->hashers[i].is_stable &&
				!is_out_of_line(scan, attnum, value);
	}
	return false;				/* keep compiler quiet */
}

/*
 * Enters a key in the hash table, which must have a free slot; "start" is the
 * key's position.  Returns false if the key was already present.
 */
static inline bool
enter_key(uint64 *table, Size mask, Size start, uint64 key)
{
	Size		i = start;

	for (; table[i] != 0; i = (i + 1) & mask)
	{
		if (table[i] == key)
			return false;
	}
	table[i] = key;
	return true;
}

/*
 * Removes the keys from keys[first] on that are already in the hash table,
 * and enters the others.  This is done for a whole page at a time, separately
 * from hashing, because its branches are unpredictable.  The caller holds no
 * content lock, so that the statement can be cancelled.
 */
static void
drop_duplicates(BxHeapScan *scan, Size first)
{
	/* locals, so that stores to keys[] do not force reloads (aliasing) */
	uint64	   *keys = scan->keys;
	uint64	   *table = scan->table;
	Size		mask = scan->table_size - 1;
	uint64		salt = scan->salt;
	int			shift = 64 - pg_leftmost_one_pos64(scan->table_size);
	Size		nkeys = scan->nkeys;
	Size		n = first;
	Size		end;

	for (Size i = first; i < nkeys; i = end)
	{
		end = Min(i + KEYS_AT_ONCE, nkeys);
		CHECK_FOR_INTERRUPTS();
		for (Size j = i; j < end; j++)
		{
			uint64		key = keys[j];

			if (enter_key(table, mask, bx_hash_position(key, salt, shift),
						  key))
				keys[n++] = key;
		}
	}
	scan->nkeys = n;
}

/* Ensures that there is room in keys[] for n more keys and the markers. */
static void
reserve_keys(BxHeapScan *scan, Size n)
{
	Size		needed = scan->nkeys + n + 2 * scan->natts;

	if (needed > scan->allocated)
	{
		scan->allocated = Max(needed, scan->allocated * 2);
		scan->keys = repalloc_huge(scan->keys,
								   sizeof(uint64) * scan->allocated);
	}
}

/*
 * Adds the keys of a value of index column i, which extracts.  There must be
 * room for the keys of plain columns of the other tuples of the page, which
 * were reserved before.
 */
static pg_noinline void
add_extracted(BxHeapScan *scan, int i, Datum value)
{
	uint64	   *keys;
	int			n = bx_extract_keys(&scan->hashers[i], value, &keys);

	reserve_keys(scan, n + MAX_KEYS_PER_PAGE(scan));
	memcpy(scan->keys + scan->nkeys, keys, sizeof(uint64) * n);
	scan->nkeys += n;
}

/*
 * Adds the keys of a value of index column i, which counts from 0, or notes
 * that the column is NULL.
 */
static inline void
add_value(BxHeapScan *scan, int i, Datum value, bool isnull)
{
	if (isnull)
		scan->seen_null[i] = true;
	else
	{
		scan->seen_not_null[i] = true;
		if (unlikely(scan->hashers[i].extractor != NULL))
			add_extracted(scan, i, value);
		else
			scan->keys[scan->nkeys++] = bx_hasher_key(&scan->hashers[i], value);
	}
}

/*
 * Completes the keys of a row, which are in keys[] from "first" on.  If the
 * range is in doubt because a value could not be used, the combined key is
 * missing.
 */
static inline void
finish_row(BxHeapScan *scan, Size first)
{
	if (scan->which != BX_KEYS_EACH)
		scan->nkeys = first + bx_hash_finish_row(scan->which, scan->natts,
												 scan->keys + first,
												 scan->nkeys - first);
}

/* Adds the keys of a tuple of an index without expressions and predicate. */
static inline void
add_plain_tuple(BxHeapScan *scan, HeapTuple tuple, Usability usability)
{
	TupleDesc	desc = RelationGetDescr(scan->heap);
	Size		first = scan->nkeys;

	for (int i = 0; i < scan->natts; i++)
	{
		int			attnum = scan->indexInfo->ii_IndexAttrNumbers[i];
		bool		isnull;
		Datum		value = scan->direct ?
		heap_getattr(tuple, attnum, desc, &isnull) :
		slot_getattr(scan->slot, attnum, &isnull);

		if (isnull || is_usable(scan, i, attnum, value, usability))
			add_value(scan, i, value, isnull);
		else
			scan->doubt = true;
	}
	finish_row(scan, first);
	if (usability == USE_ALL)
		scan->index_tuples++;
}

/*
 * Adds the keys of the tuple in the slot, if it satisfies the predicate.
 * This may call user-defined functions.
 */
static void
add_computed_tuple(BxHeapScan *scan, Usability usability)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	Size		first = scan->nkeys;

	if (usability != USE_ALL)
	{
		scan->doubt = true;
		return;
	}
	if (scan->predicate != NULL && !ExecQual(scan->predicate, scan->econtext))
		return;
	FormIndexDatum(scan->indexInfo, scan->slot, scan->estate, values, isnull);
	for (int i = 0; i < scan->natts; i++)
		add_value(scan, i, values[i], isnull[i]);
	finish_row(scan, first);
	scan->index_tuples++;
}

/*
 * Adds the keys of a tuple.  The caller holds a pin, but no lock, on the
 * buffer.
 */
static void
add_tuple(BxHeapScan *scan, HeapTuple tuple, Buffer buffer,
		  Usability usability)
{
	if (!scan->direct)
		ExecStoreBufferHeapTuple(tuple, scan->slot, buffer);
	if (scan->computed)
		add_computed_tuple(scan, usability);
	else
		add_plain_tuple(scan, tuple, usability);
}

/* Resizes the hash table to "size" slots, and enters the keys again. */
static void
resize_table(BxHeapScan *scan, Size size)
{
	if (size > scan->table_allocated)
	{
		pfree(scan->table);
		scan->table = palloc_extended(sizeof(uint64) * size, MCXT_ALLOC_HUGE);
		scan->table_allocated = size;
	}
	memset(scan->table, 0, sizeof(uint64) * size);
	scan->table_size = size;
	drop_duplicates(scan, 0);
}

/*
 * Removes duplicates among the keys from keys[first] on, and enlarges the hash
 * table before if necessary.
 */
static void
finish_keys(BxHeapScan *scan, Size first)
{
	Size		all = scan->nkeys;
	Size		needed = all + 2 * scan->natts;

	if (needed > scan->table_size / 2)
	{
		scan->nkeys = first;
		resize_table(scan, pg_nextpower2_64(needed * 2));
		scan->nkeys = all;
	}
	drop_duplicates(scan, first);
}

/*
 * Locks the types that hashing will look up, if the scan must not wait for
 * their locks.  Such a scan must not run user-defined code either: the types
 * may have been altered since the scan began, and cannot be altered now.
 */
static List *
lock_types(BxHeapScan *scan)
{
	List	   *locked = NIL;

	for (int i = 0; i < scan->natts && scan->nowait; i++)
	{
		if (scan->hashers[i].is_stable)
			continue;
		bx_hash_lock_types(scan->index, i + 1, &locked);
		if (bx_hash_contains_user_code(scan->index, i + 1))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a type in column %d of index \"%s\" was altered, and now has a user-defined hash function",
							i + 1, RelationGetRelationName(scan->index))));
	}
	return locked;
}

/*
 * Collects the keys of a heap page, which is pinned, and releases the pin.
 * Locks on types are held only while one page is processed, so that ALTER TYPE
 * does not wait for VACUUM for long.
 */
static void
collect_page(BxHeapScan *scan, Buffer buffer)
{
	Version		versions[MaxHeapTuplesPerPage];
	List	   *locked = lock_types(scan);
	int			n = list_versions(scan, buffer, versions);
	Size		before = scan->nkeys;
	Size		first = before;
	HeapTupleData tuple;
	MemoryContext oldcxt;

	reserve_keys(scan, MAX_KEYS_PER_PAGE(scan));
	init_tuple(scan, buffer, &tuple);
	oldcxt = MemoryContextSwitchTo(scan->econtext->ecxt_per_tuple_memory);
	for (int i = 0; i < n; i++)
	{
		if (locate_tuple(BufferGetPage(buffer), versions[i].offnum, &tuple))
			add_tuple(scan, &tuple, buffer, versions[i].usability);
		if (scan->allocates)
			ResetExprContext(scan->econtext);

		/* values that are split may have many duplicates */
		if (unlikely(scan->nkeys - first > MANY_KEYS))
		{
			MemoryContextSwitchTo(oldcxt);
			finish_keys(scan, first);
			MemoryContextSwitchTo(scan->econtext->ecxt_per_tuple_memory);
			first = scan->nkeys;
		}
	}
	MemoryContextSwitchTo(oldcxt);
	ExecClearTuple(scan->slot);
	ReleaseBuffer(buffer);
	bx_hash_unlock_types(locked);
	finish_keys(scan, first);
	scan->page_keys = Max(scan->page_keys, scan->nkeys - before);
	BX_PAUSE(BX_PAUSE_BUILD_PAGE);
}

/*
 * Collects the keys of one heap page, in addition to the keys collected
 * before.
 */
void
bx_heapscan_block(BxHeapScan *scan, BlockNumber blkno)
{
	CHECK_FOR_INTERRUPTS();
	collect_page(scan, ReadBufferExtended(scan->heap, MAIN_FORKNUM, blkno,
										  RBM_NORMAL, scan->strategy));
}

/* Returns whether the keys of another page might exceed the limit. */
static bool
is_full(BxHeapScan *scan)
{
	return scan->nkeys + Max(MAX_KEYS_PER_PAGE(scan), scan->page_keys) >
		scan->limit;
}

/*
 * Returns the number of distinct keys collected since the last clear,
 * including markers, and sets *keys to an array of them, which is valid until
 * the scan continues.  *doubt is set if there were rows whose keys could not
 * be determined.
 */
Size
bx_heapscan_keys(BxHeapScan *scan, const uint64 **keys, bool *doubt)
{
	Size		n = scan->nkeys;

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

/*
 * Discards the collected keys.  The hash table keeps a size that fits the
 * keys of the last range, because the next range will probably have a similar
 * number.
 */
void
bx_heapscan_clear(BxHeapScan *scan)
{
	Size		size = pg_nextpower2_64(Max(scan->nkeys * 2, SMALLEST_TABLE));

	scan->nkeys = 0;
	resize_table(scan, Min(size, scan->table_size));
	scan->doubt = false;
	memset(scan->seen_null, 0, sizeof(scan->seen_null));
	memset(scan->seen_not_null, 0, sizeof(scan->seen_not_null));
}

/*
 * Collects the keys of the ranges first_range .. end_range - 1, and passes
 * them to callback(), one range at a time.  A range whose keys do not fit in
 * memory is passed in several parts; "done" is the fraction of the range that
 * has been read, and is 1 for the last part.  Keys are distinct only within a
 * part.
 */
void
bx_heapscan_ranges(BxHeapScan *scan, uint8 lg_base, uint64 first_range,
				   uint64 end_range, BlockNumber heap_blocks,
				   BxRangeCallback callback, void *arg)
{
	uint32		pages_per_range = 1 << lg_base;
	BxReader	reader = {scan->heap, scan->strategy};

	reader.next = (BlockNumber) Min(first_range << lg_base, heap_blocks);
	reader.end = (BlockNumber) Min(end_range << lg_base, heap_blocks);
	bx_reader_start(&reader);
	for (uint64 range = first_range; range < end_range; range++)
	{
		uint64		first = range << lg_base;
		uint64		end = Min(first + pages_per_range, heap_blocks);
		const uint64 *keys;
		bool		doubt;
		Size		n;

		bx_heapscan_clear(scan);
		for (uint64 blkno = first; blkno < end; blkno++)
		{
			/* also checks for interrupts; delays only in VACUUM */
			bx_vacuum_delay_point();
			collect_page(scan, bx_reader_next(&reader));
			if (blkno + 1 < end && is_full(scan))
			{
				n = bx_heapscan_keys(scan, &keys, &doubt);
				callback(arg, (uint32) range,
						 (double) (blkno + 1 - first) / pages_per_range,
						 keys, n, doubt);
				bx_heapscan_clear(scan);
			}
		}
		n = bx_heapscan_keys(scan, &keys, &doubt);
		callback(arg, (uint32) range, 1.0, keys, n, doubt);
	}
	bx_reader_stop(&reader);
	bx_heapscan_clear(scan);
}

/*
 * Returns the number of live rows since the beginning of the scan, and how
 * many of them are in the index.
 */
void
bx_heapscan_tuples(BxHeapScan *scan, double *heap_tuples, double *index_tuples)
{
	*heap_tuples = scan->heap_tuples;
	*index_tuples = scan->index_tuples;
}
