/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Bitmap scans: from scan keys to hashes, from matching ranges to pages.
 *	  From there rows.c goes on.
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

#include "bloomidx.h"

typedef struct BxScanOpaque
{
	MemoryContext cxt;			/* for one bxgetbitmap */
	MemoryContext scan_cxt;		/* for the whole scan */
	FmgrInfo   *procs;			/* hash functions of the scan keys */
	bool		procs_ready;
} BxScanOpaque;

#define ST_SORT sort_elements
#define ST_ELEMENT_TYPE BxElement
#define ST_COMPARE(a, b) ((a)->hash < (b)->hash ? -1 : (a)->hash > (b)->hash)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

IndexScanDesc
bxbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	BxScanOpaque *opaque = palloc0(sizeof(BxScanOpaque));

	opaque->scan_cxt = CurrentMemoryContext;
	opaque->cxt = AllocSetContextCreate(CurrentMemoryContext, "bloomidx scan",
										ALLOCSET_DEFAULT_SIZES);
	opaque->procs = palloc0(sizeof(FmgrInfo) * Max(nkeys, 1));
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
	pfree(opaque->procs);
	pfree(opaque);
}

/*
 * Looks up the hash functions.  A rescan brings other values, but the same
 * operators.
 */
static void
prepare_procs(IndexScanDesc scan, BxScanOpaque *opaque)
{
	MemoryContext oldcxt;

	if (opaque->procs_ready)
		return;
	oldcxt = MemoryContextSwitchTo(opaque->scan_cxt);
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];

		if (!(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)))
			bx_hash_proc_for_type(scan->indexRelation, key->sk_attno,
								  key->sk_subtype, &opaque->procs[i]);
	}
	MemoryContextSwitchTo(oldcxt);
	opaque->procs_ready = true;
}

static void
add_element(BxQuery *query, uint64 hash)
{
	query->elements[query->nelements].hash = hash;
	query->elements[query->nelements].key = query->nkeys;
	query->nelements++;
}

static void
reserve_elements(BxQuery *query, int n)
{
	Size		size = sizeof(BxElement) * ((Size) query->nelements + n);

	if (query->elements == NULL)
		query->elements = palloc_extended(size, MCXT_ALLOC_HUGE);
	else
		query->elements = repalloc_huge(query->elements, size);
}

/*
 * Adds the elements of an array that are not NULL, each once.  Returns false
 * if there are none.
 */
static bool
add_array(BxQuery *query, Relation index, ScanKey key, FmgrInfo *proc)
{
	ArrayType  *array = DatumGetArrayTypeP(key->sk_argument);
	int			first = query->nelements;
	int			kept = first;
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &values, &nulls, &n);
	reserve_elements(query, n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			add_element(query,
						bx_hash_value(index, key->sk_attno, proc, values[i]));
	}
	sort_elements(query->elements + first, query->nelements - first);
	for (int i = first; i < query->nelements; i++)
	{
		if (kept == first ||
			query->elements[i].hash != query->elements[kept - 1].hash)
			query->elements[kept++] = query->elements[i];
	}
	query->nelements = kept;
	return kept > first;
}

/* Adds a scan key.  Returns false if no row can match it. */
static bool
add_scan_key(BxQuery *query, Relation index, ScanKey key, FmgrInfo *proc)
{
	/* these two come with SK_ISNULL as well */
	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL))
	{
		reserve_elements(query, 1);
		add_element(query, bx_hash_marker(key->sk_attno,
										  key->sk_flags & SK_SEARCHNULL));
		return true;
	}

	/* the operators are strict */
	if (key->sk_flags & SK_ISNULL)
		return false;
	if (key->sk_strategy != BX_EQUAL_STRATEGY)
		elog(ERROR, "unexpected strategy number %d for index \"%s\"",
			 key->sk_strategy, RelationGetRelationName(index));
	if (key->sk_flags & SK_SEARCHARRAY)
		return add_array(query, index, key, proc);
	reserve_elements(query, 1);
	add_element(query, bx_hash_value(index, key->sk_attno, proc,
									 key->sk_argument));
	return true;
}

/*
 * Makes the query of a scan.  Returns false if no row can match.  A scan
 * without keys looks for any row: the first column is NULL or it is not.
 */
static bool
make_query(IndexScanDesc scan, BxScanOpaque *opaque, BxQuery *query)
{
	memset(query, 0, sizeof(*query));
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		if (!add_scan_key(query, scan->indexRelation, &scan->keyData[i],
						  &opaque->procs[i]))
			return false;
		query->nkeys++;
	}
	if (query->nkeys == 0)
	{
		reserve_elements(query, 2);
		add_element(query, bx_hash_marker(1, true));
		add_element(query, bx_hash_marker(1, false));
		query->nkeys = 1;
	}
	return true;
}

/*
 * Adds the heap pages of a range, as far as they exist.  Pages beyond the end
 * that the heap had after the snapshot was taken cannot hold a visible row.
 */
void
bx_scan_add_range(BxSearch *search, uint32 range)
{
	uint64		first = (uint64) range << search->lg_base;
	uint64		end = Min(first + (1 << search->lg_base), search->heap_blocks);

	if (first >= end)
		return;
	search->found(search->arg, (BlockNumber) first, (uint32) (end - first));
	search->npages += end - first;
}

/*
 * What a search finds on its way to the bitmap: few pages are kept until the
 * search is done, and then looked at.
 */
typedef struct Found
{
	TIDBitmap  *tbm;
	BxRows	   *rows;			/* NULL: pages go to the bitmap at once */
	BlockNumber *pages;
	uint32		npages;
	uint32		most;			/* that are kept */
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

/* Searches the index, and adds what may match to the bitmap. */
static void
search_for_bitmap(IndexScanDesc scan, BxSearch *search, uint8 layout,
				  TIDBitmap *tbm)
{
	/* whoever scans the index has the table locked, to read what it finds */
	Relation	heap = table_open(search->index->rd_index->indrelid, NoLock);
	Found		found = {.tbm = tbm};

	found.rows = bx_rows_begin(scan, heap, search->query);
	if (found.rows)
	{
		found.most = BX_FEW_PAGES(search->query->nelements,
								  1 << search->lg_base);
		found.pages = palloc(sizeof(BlockNumber) * found.most);
	}
	search->heap_blocks = RelationGetNumberOfBlocks(heap);
	search->found = add_found_pages;
	search->arg = &found;
	bx_layout_by_id(search->index, layout)->search(search);
	search->arg = NULL;			/* it was ours */
	if (found.rows)
		bx_rows_add(found.rows, found.pages, found.npages, tbm);
	table_close(heap, NoLock);
}

/* Adds all that may match; returns the number of pages that were found. */
int64
bxgetbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BxScanOpaque *opaque = scan->opaque;
	Relation	index = scan->indexRelation;
	BxSearch	search = {0};
	BxQuery		query;
	MemoryContext oldcxt;
	uint8		layout;

	prepare_procs(scan, opaque);
	pgstat_count_index_scan(index);
	bx_count_search(scan);

	oldcxt = MemoryContextSwitchTo(opaque->cxt);
	if (make_query(scan, opaque, &query) &&
		bx_dir_geometry(index, &layout, &search.lg_base))
	{
		search.index = index;
		search.snapshot = scan->xs_snapshot;
		search.query = &query;
		search_for_bitmap(scan, &search, layout, tbm);
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(opaque->cxt);
	return search.npages;
}

/*
 * Searches for a single hash, for the functions that show what is found, in
 * the current memory context.  The caller has locks on both.
 */
void
bx_scan_hash(Relation heap, Relation index, uint64 hash, BxFoundCallback found,
			 void *arg)
{
	BxElement	element = {.hash = hash,.key = 0};
	BxQuery		query = {.nkeys = 1,.nelements = 1,.elements = &element};
	BxSearch	search = {0};
	uint8		layout;

	if (!bx_dir_geometry(index, &layout, &search.lg_base))
		return;
	search.index = index;
	search.snapshot = GetActiveSnapshot();
	search.query = &query;
	search.heap_blocks = RelationGetNumberOfBlocks(heap);
	search.found = found;
	search.arg = arg;
	bx_layout_by_id(index, layout)->search(&search);
}
