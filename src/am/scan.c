/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Scans: converts scan keys to a query.  Bitmap scans: searches the
 *	  index, and adds the matching rows (heap/rows.c) or pages to the bitmap.
 *	  gettuple.c has the index scans.
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

IndexScanDesc
bxbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	BxScan	   *opaque = palloc0(sizeof(BxScan));

	/*
	 * The check of an exclusion constraint begins a scan for every row, in a
	 * context that lives until the end of the statement.  Extractors are not
	 * freed one by one, so they need a context of their own.
	 */
	opaque->scan_cxt = CurrentMemoryContext;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_extract_is_used(index, i + 1))
		{
			opaque->scan_cxt = opaque->own_cxt =
				AllocSetContextCreate(CurrentMemoryContext,
									  "bloomidx extractors",
									  ALLOCSET_SMALL_SIZES);
			break;
		}
	}
	opaque->cxt = AllocSetContextCreate(CurrentMemoryContext, "bloomidx scan",
										ALLOCSET_DEFAULT_SIZES);
	opaque->hashers = palloc0(sizeof(BxHasher) * Max(nkeys, 1));
	scan->opaque = opaque;
	scan->xs_itupdesc = RelationGetDescr(index);
	return scan;
}

void
bxrescan(IndexScanDesc scan, ScanKey scankey, int nscankeys, ScanKey orderbys,
		 int norderbys)
{
	BxScan	   *opaque = scan->opaque;

	if (scankey && scan->numberOfKeys > 0)
		memmove(scan->keyData, scankey, scan->numberOfKeys * sizeof(ScanKeyData));
	if (opaque->fetch != NULL)
		bx_fetch_reset(scan);
	MemoryContextReset(opaque->cxt);
}

void
bxendscan(IndexScanDesc scan)
{
	BxScan	   *opaque = scan->opaque;

	if (opaque->fetch != NULL)
		bx_fetch_end(scan);
	MemoryContextDelete(opaque->cxt);
	if (opaque->own_cxt != NULL)
		MemoryContextDelete(opaque->own_cxt);
	pfree(opaque->hashers);
	pfree(opaque);
}

/*
 * Initializes the hashers of the scan keys, once per scan: a rescan has other
 * values, but the same operators.
 */
static void
prepare_hashers(IndexScanDesc scan, BxScan *opaque)
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
	Datum	   *values;
	bool	   *nulls;
	int			n = bx_query_split_array(key->sk_argument, &values, &nulls);

	bx_query_start_condition(query, key->sk_attno, n);
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
		bx_query_start_condition(query, 0, 1);
		bx_query_add_element(query,
							 bx_hash_marker(key->sk_attno,
											key->sk_flags & SK_SEARCHNULL));
		return bx_query_end_condition(query);
	}

	/* the operators are strict */
	if (key->sk_flags & SK_ISNULL)
		return false;
	if (hasher->extractor)
		return bx_extract_condition(query, hasher, key, false);
	if (key->sk_strategy != BX_EQUAL_STRATEGY)
		elog(ERROR, "unexpected strategy number %d for index \"%s\"",
			 key->sk_strategy, RelationGetRelationName(index));
	if (key->sk_flags & SK_SEARCHARRAY)
		add_array(query, key, hasher);
	else
	{
		bx_query_start_condition(query, key->sk_attno, 1);
		bx_query_add_element(query, bx_hasher_key(hasher, key->sk_argument));
	}
	return bx_query_end_condition(query);
}

/*
 * Builds the query of a scan.  Returns false if no row can match.  A scan
 * without keys looks for all rows: the first column is NULL or NOT NULL.
 */
static bool
make_query(IndexScanDesc scan, BxScan *opaque)
{
	BxQuery    *query = &opaque->query;

	bx_query_init(query, scan->numberOfKeys);
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (!add_scan_key(query, scan->indexRelation, &scan->keyData[i],
						  &opaque->hashers[i]))
			return false;
	}
	if (scan->numberOfKeys == 0)
	{
		bx_query_start_condition(query, 0, 2);
		bx_query_add_element(query, bx_hash_marker(1, true));
		bx_query_add_element(query, bx_hash_marker(1, false));
		bx_query_end_condition(query);
	}
	return true;
}

/*
 * Prepares a search with the present scan keys: sets opaque->query,
 * opaque->rows and opaque->search, whose found() and arg the caller sets.
 * They are valid until the next rescan.  Returns false if no row can match.
 */
bool
bx_scan_start(IndexScanDesc scan, Relation heap)
{
	BxScan	   *opaque = scan->opaque;
	BxSearch   *search = &opaque->search;
	MemoryContext oldcxt;
	bool		result;

	prepare_hashers(scan, opaque);
	pgstat_count_index_scan(scan->indexRelation);
	bx_count_search(scan);

	oldcxt = MemoryContextSwitchTo(opaque->cxt);
	memset(search, 0, sizeof(*search));
	result = make_query(scan, opaque) &&
		bx_geometry_get(scan->indexRelation, &search->geometry);
	if (result)
	{
		search->index = scan->indexRelation;
		search->snapshot = scan->xs_snapshot;
		search->query =
			bx_query_for_filters(&opaque->query,
								 IndexRelationGetNumberOfKeyAttributes(search->index),
								 search->geometry.keys);
		search->heap_blocks = RelationGetNumberOfBlocks(heap);
		opaque->rows = bx_rows_begin(scan, heap, &opaque->query,
									 opaque->hashers);
	}
	MemoryContextSwitchTo(oldcxt);
	return result;
}

/* Searches the index, or continues a search that was paused. */
void
bx_scan_search(BxSearch *search)
{
	search->paused = false;
	bx_layout_by_id(search->index, search->geometry.layout)->search(search);
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
search_for_bitmap(BxScan *opaque, TIDBitmap *tbm)
{
	BxSearch   *search = &opaque->search;
	Found		found = {.tbm = tbm};

	if (bx_rows_can_exclude(opaque->rows))
	{
		found.rows = opaque->rows;
		found.most = BX_FEW_PAGES(search->query->nelements,
								  1 << search->geometry.lg_base);
		found.pages = palloc(sizeof(BlockNumber) * found.most);
	}
	search->found = add_found_pages;
	search->arg = &found;
	bx_scan_search(search);
	search->arg = NULL;			/* it points to a local variable */
	if (found.rows)
		bx_rows_add(found.rows, found.pages, found.npages, tbm);
}

/*
 * Adds the rows or pages that may match to the bitmap.  Returns the number of
 * heap pages that the search found.
 */
int64
bxgetbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BxScan	   *opaque = scan->opaque;

	/* the executor holds a lock on the table */
	Relation	heap = table_open(scan->indexRelation->rd_index->indrelid, NoLock);

	if (bx_scan_start(scan, heap))
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(opaque->cxt);

		search_for_bitmap(opaque, tbm);
		MemoryContextSwitchTo(oldcxt);
	}
	table_close(heap, NoLock);
	MemoryContextReset(opaque->cxt);
	return opaque->search.npages;
}
