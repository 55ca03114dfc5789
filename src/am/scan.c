/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Bitmap scans: converts scan keys to a query, searches the index, and
 *	  adds the matching rows (heap/rows.c) or pages to the bitmap.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "am.h"

typedef struct BxScanOpaque
{
	MemoryContext cxt;			/* reset after each bxgetbitmap */
	MemoryContext scan_cxt;		/* for the whole scan */
	BxHasher   *hashers;		/* one for each scan key */
	bool		hashers_ready;
} BxScanOpaque;

IndexScanDesc
bxbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	BxScanOpaque *opaque = palloc0(sizeof(BxScanOpaque));

	opaque->scan_cxt = CurrentMemoryContext;
	opaque->cxt = AllocSetContextCreate(CurrentMemoryContext, "bloomidx scan",
										ALLOCSET_DEFAULT_SIZES);
	opaque->hashers = palloc0(sizeof(BxHasher) * Max(nkeys, 1));
	scan->opaque = opaque;
	return scan;
}

void
bxrescan(IndexScanDesc scan, ScanKey scankey, int nscankeys, ScanKey orderbys,
		 int norderbys)
{
	if (scankey && scan->numberOfKeys > 0)
		memmove(scan->keyData, scankey, scan->numberOfKeys * sizeof(ScanKeyData));
}

void
bxendscan(IndexScanDesc scan)
{
	BxScanOpaque *opaque = scan->opaque;

	MemoryContextDelete(opaque->cxt);
	pfree(opaque->hashers);
	pfree(opaque);
}

/*
 * Initializes the hashers of the scan keys, once per scan: a rescan has other
 * values, but the same operators.
 */
static void
prepare_hashers(IndexScanDesc scan, BxScanOpaque *opaque)
{
	MemoryContext oldcxt;

	if (opaque->hashers_ready)
		return;
	oldcxt = MemoryContextSwitchTo(opaque->scan_cxt);
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];

		if (!(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)))
			bx_hasher_init(&opaque->hashers[i], scan->indexRelation,
						   key->sk_attno, key->sk_subtype);
	}
	MemoryContextSwitchTo(oldcxt);
	opaque->hashers_ready = true;
}

/*
 * Adds a condition whose elements are the array's elements that are not NULL.
 */
static void
add_array(BxQuery *query, ScanKey key, BxHasher *hasher)
{
	ArrayType  *array = DatumGetArrayTypeP(key->sk_argument);
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &values, &nulls, &n);
	bx_query_start_condition(query, n);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!nulls[i])
			bx_query_add_element(query, bx_hasher_key(hasher, values[i]));
	}
}

/* Adds the condition of a scan key.  Returns false if no row can meet it. */
static bool
add_scan_key(BxQuery *query, Relation index, ScanKey key, BxHasher *hasher)
{
	/* SK_ISNULL is set for these two, too */
	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL))
	{
		bx_query_start_condition(query, 1);
		bx_query_add_element(query,
							 bx_hash_marker(key->sk_attno,
											key->sk_flags & SK_SEARCHNULL));
		return bx_query_end_condition(query);
	}

	/* the operators are strict */
	if (key->sk_flags & SK_ISNULL)
		return false;
	if (key->sk_strategy != BX_EQUAL_STRATEGY)
		elog(ERROR, "unexpected strategy number %d for index \"%s\"",
			 key->sk_strategy, RelationGetRelationName(index));
	if (key->sk_flags & SK_SEARCHARRAY)
		add_array(query, key, hasher);
	else
	{
		bx_query_start_condition(query, 1);
		bx_query_add_element(query, bx_hasher_key(hasher, key->sk_argument));
	}
	return bx_query_end_condition(query);
}

/*
 * Builds the query of a scan.  Returns false if no row can match.  A scan
 * without keys looks for all rows: the first column is NULL or NOT NULL.
 */
static bool
make_query(IndexScanDesc scan, BxScanOpaque *opaque, BxQuery *query)
{
	bx_query_init(query, scan->numberOfKeys);
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (!add_scan_key(query, scan->indexRelation, &scan->keyData[i],
						  &opaque->hashers[i]))
			return false;
	}
	if (scan->numberOfKeys == 0)
	{
		bx_query_start_condition(query, 2);
		bx_query_add_element(query, bx_hash_marker(1, true));
		bx_query_add_element(query, bx_hash_marker(1, false));
		bx_query_end_condition(query);
	}
	return true;
}

/*
 * The pages that a search finds.  Up to "most" pages are kept until the
 * search is complete, and then their rows are checked.
 */
typedef struct Found
{
	TIDBitmap  *tbm;
	BxRows	   *rows;			/* NULL: add whole pages to the bitmap */
	BlockNumber *pages;
	uint32		npages;
	uint32		most;			/* maximum number of pages that are kept */
} Found;

static void
add_found_pages(void *arg, BlockNumber first, uint32 npages)
{
	Found	   *found = arg;

	if (found->rows && found->npages + npages > found->most)
	{
		found->rows = NULL;
		for (uint32 i = 0; i < found->npages; i++)
			tbm_add_page(found->tbm, found->pages[i]);
	}
	for (uint32 i = 0; i < npages; i++)
	{
		if (found->rows)
			found->pages[found->npages++] = first + i;
		else
			tbm_add_page(found->tbm, first + i);
	}
}

/*
 * Searches the index, and adds the rows or pages that may match to the
 * bitmap.
 */
static void
search_for_bitmap(IndexScanDesc scan, BxSearch *search, TIDBitmap *tbm)
{
	/* the executor holds a lock on the table */
	Relation	heap = table_open(search->index->rd_index->indrelid, NoLock);
	Found		found = {.tbm = tbm};

	found.rows = bx_rows_begin(scan, heap, search->query);
	if (found.rows)
	{
		found.most = BX_FEW_PAGES(search->query->nelements,
								  1 << search->geometry.lg_base);
		found.pages = palloc(sizeof(BlockNumber) * found.most);
	}
	search->heap_blocks = RelationGetNumberOfBlocks(heap);
	search->found = add_found_pages;
	search->arg = &found;
	bx_layout_by_id(search->index, search->geometry.layout)->search(search);
	search->arg = NULL;			/* it points to a local variable */
	if (found.rows)
		bx_rows_add(found.rows, found.pages, found.npages, tbm);
	table_close(heap, NoLock);
}

/*
 * Adds the rows or pages that may match to the bitmap.  Returns the number of
 * heap pages that the search found.
 */
int64
bxgetbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BxScanOpaque *opaque = scan->opaque;
	Relation	index = scan->indexRelation;
	BxSearch	search = {0};
	BxQuery		query;
	MemoryContext oldcxt;

	prepare_hashers(scan, opaque);
	pgstat_count_index_scan(index);
	bx_count_search(scan);

	oldcxt = MemoryContextSwitchTo(opaque->cxt);
	if (make_query(scan, opaque, &query) &&
		bx_geometry_get(index, &search.geometry))
	{
		search.index = index;
		search.snapshot = scan->xs_snapshot;
		search.query = &query;
		search_for_bitmap(scan, &search, tbm);
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(opaque->cxt);
	return search.npages;
}
