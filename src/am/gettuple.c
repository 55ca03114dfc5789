/*-------------------------------------------------------------------------
 *
 * gettuple.c
 *	  Index scans: returns the rows that may match, one at a time.
 *
 * The search runs in steps.  Each step continues the search where the
 * previous step paused, and finds at most a certain number of heap pages,
 * which doubles from step to step.  So LIMIT and EXISTS need not wait for the
 * whole search, the number of steps is small, and the memory is bounded by
 * the size of the largest step.  The first step is large enough for the pages
 * of a unique key, so that a lookup usually needs one step.
 *
 * The pages of a step are visited in order.  The rows of a page that may match
 * are listed at once (heap/rows.c), and are returned before the next page is
 * read.  No page is locked between two calls.  Pinned are the heap page whose
 * rows are returned, which the executor would pin in any case, and the page of
 * the last row that visible.c has tested.
 *
 * Because rows are listed before they are returned, a TID may be out of date
 * when the executor uses it.  The executor rechecks visibility and, because
 * xs_recheck is set, all conditions, so an outdated TID is harmless.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/itup.h"
#include "access/relscan.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "am.h"

/*
 * The first step finds at most this number of pages, or the number of pages in
 * four ranges for each value sought if that is larger.  A lookup of a unique
 * key finds fewer pages.
 */
#define FIRST_STEP_PAGES	16

/* The maximum number of pages of a step.  An array of this size is small. */
#define MAX_STEP_PAGES		16384

struct BxFetch
{
	BxScan	   *scan;
	MemoryContext search_cxt;	/* memory of a step, reset after it */
	BxVisible  *visible;		/* NULL: visibility is left to the executor */
	bool		started;
	bool		complete;		/* all pages have been found */
	bool		is_check;		/* of "own", in an exclusion constraint */
	BxOwnRow	own;
	bool		skips_own;		/* own_range is skipped; see exclusion.c */
	uint32		own_range;
	uint32		distance;		/* maximum number of pages to prefetch */

	/* pages of the current step, in ascending order */
	BlockNumber *pages;
	uint32		npages;
	uint32		max_pages;
	uint32		next_page;
	uint32		ahead;			/* see bx_rows_prefetch() */

	/* rows of the current page */
	int			nrows;
	int			next_row;
	ItemPointerData rows[MaxHeapTuplesPerPage];
};

/*
 * Creates the state of an index scan, in scan_cxt.
 */
static BxFetch *
create_fetch(IndexScanDesc scan)
{
	BxScan	   *opaque = scan->opaque;
	Relation	index = scan->indexRelation;
	MemoryContext oldcxt = MemoryContextSwitchTo(opaque->scan_cxt);
	BxFetch    *fetch = palloc(sizeof(BxFetch));

	memset(fetch, 0, offsetof(BxFetch, rows));
	fetch->scan = opaque;
	fetch->search_cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "bloomidx search",
											  ALLOCSET_DEFAULT_SIZES);
	fetch->distance =
		get_tablespace_io_concurrency(scan->heapRelation->rd_rel->reltablespace);
	if (scan->xs_want_itup || RelationGetIndexPredicate(index) != NIL)
		fetch->visible = bx_visible_begin(scan->heapRelation, index,
										  scan->xs_snapshot);
	MemoryContextSwitchTo(oldcxt);
	return fetch;
}

/*
 * Prepares an index-only scan, which the planner may choose if the query needs
 * no column, and therefore has no condition on one.
 */
static void
prepare_index_only(IndexScanDesc scan)
{
	BxScan	   *opaque = scan->opaque;
	Datum		values[INDEX_MAX_KEYS] = {0};
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext oldcxt;

	if (scan->numberOfKeys > 0)
		elog(ERROR, "index \"%s\" cannot return the values of its columns",
			 RelationGetRelationName(scan->indexRelation));
	memset(isnull, true, sizeof(isnull));
	oldcxt = MemoryContextSwitchTo(opaque->scan_cxt);
	scan->xs_itup = index_form_tuple(RelationGetDescr(scan->indexRelation),
									 values, isnull);
	MemoryContextSwitchTo(oldcxt);
}

/* Adds pages to the current step, and pauses the search if it is full. */
static void
add_step_pages(void *arg, BlockNumber first, uint32 npages)
{
	BxFetch    *fetch = arg;
	BxSearch   *search = &fetch->scan->search;

	if (fetch->skips_own && first >> search->geometry.lg_base == fetch->own_range)
		return;
	for (uint32 i = 0; i < npages; i++)
		fetch->pages[fetch->npages++] = first + i;
	search->paused = fetch->npages + (1 << search->geometry.lg_base) >
		fetch->max_pages;
}

/* Starts the search with the present scan keys. */
static void
start_fetch(IndexScanDesc scan, BxFetch *fetch)
{
	BxScan	   *opaque = fetch->scan;
	BxSearch   *search = &opaque->search;

	/* before hash functions of users run, which might insert rows */
	fetch->is_check = bx_exclusion_take(scan, &fetch->own);
	fetch->started = true;
	fetch->complete = !bx_scan_start(scan, scan->heapRelation);
	if (fetch->complete)
		return;
	fetch->skips_own = fetch->is_check && fetch->own.skips_range &&
		search->query->nelements == 1 &&
		search->query->elements[0].key == fetch->own.key;
	if (fetch->skips_own)
		fetch->own_range = ItemPointerGetBlockNumber(&fetch->own.tid) >>
			search->geometry.lg_base;
	search->found = add_step_pages;
	search->arg = fetch;
	fetch->max_pages = Min(Max(FIRST_STEP_PAGES,
							   4.0 * search->query->nelements *
							   (1 << search->geometry.lg_base)),
						   MAX_STEP_PAGES);
	fetch->pages = MemoryContextAlloc(opaque->cxt, sizeof(BlockNumber) *
									  fetch->max_pages);
}

/* Finds the pages of the next step. */
static void
search_step(BxFetch *fetch)
{
	BxSearch   *search = &fetch->scan->search;
	MemoryContext oldcxt = MemoryContextSwitchTo(fetch->search_cxt);

	if (search->paused && fetch->max_pages < MAX_STEP_PAGES)
	{
		fetch->max_pages = Min(2 * fetch->max_pages, MAX_STEP_PAGES);
		fetch->pages = repalloc(fetch->pages,
								sizeof(BlockNumber) * fetch->max_pages);
	}
	fetch->npages = 0;
	fetch->next_page = 0;
	fetch->ahead = 0;
	bx_scan_search(search);
	fetch->complete = !search->paused;
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(fetch->search_cxt);
}

/*
 * Lists the rows of the next page.  Returns false if there are no more pages.
 *
 * In pg_stat_all_indexes.idx_tup_read every page counts at least once:
 * index_getnext_tid() counts the rows that are returned, so this function
 * counts only the pages without rows.
 */
static bool
next_page(IndexScanDesc scan, BxFetch *fetch)
{
	uint32		i;

	CHECK_FOR_INTERRUPTS();
	while (fetch->next_page == fetch->npages)
	{
		if (fetch->complete)
			return false;
		search_step(fetch);
	}
	i = fetch->next_page++;

	/* the distance grows with the number of pages that the executor wants */
	bx_rows_prefetch(fetch->scan->rows, fetch->pages, fetch->npages, i,
					 Min(fetch->distance, i), &fetch->ahead);
	fetch->nrows = bx_rows_list(fetch->scan->rows, fetch->pages[i],
								fetch->rows);
	fetch->next_row = 0;
	BX_PAUSE(BX_PAUSE_LISTED);
	if (fetch->nrows == 0)
		pgstat_count_index_tuples(scan->indexRelation, 1);
	return true;
}

/* Returns the next row that may match in scan->xs_heaptid. */
bool
bxgettuple(IndexScanDesc scan, ScanDirection direction)
{
	BxScan	   *opaque = scan->opaque;
	BxFetch    *fetch = opaque->fetch;

	Assert(ScanDirectionIsForward(direction));	/* !amcanbackward */
	if (fetch == NULL)
	{
		fetch = opaque->fetch = create_fetch(scan);
		if (scan->xs_want_itup)
			prepare_index_only(scan);
	}
	if (!fetch->started)
		start_fetch(scan, fetch);
	scan->xs_recheck = true;
	do
	{
		while (fetch->next_row < fetch->nrows)
		{
			scan->xs_heaptid = fetch->rows[fetch->next_row++];
			if (fetch->is_check ?
				!bx_exclusion_ignores(scan->indexRelation, scan->heapRelation,
									  &fetch->own, &scan->xs_heaptid) :
				fetch->visible == NULL ||
				bx_visible_test(fetch->visible, &scan->xs_heaptid))
				return true;
			CHECK_FOR_INTERRUPTS();
		}
	} while (next_page(scan, fetch));
	if (fetch->visible != NULL)
		bx_visible_reset(fetch->visible);	/* do not keep a page pinned */
	return false;
}

/* Prepares for a rescan. */
void
bx_fetch_reset(IndexScanDesc scan)
{
	BxFetch    *fetch = ((BxScan *) scan->opaque)->fetch;

	if (fetch->visible)
		bx_visible_reset(fetch->visible);
	if (fetch->is_check)
		bx_exclusion_end(scan->indexRelation, &fetch->own);
	fetch->is_check = false;
	fetch->started = false;
	fetch->npages = fetch->next_page = 0;
	fetch->nrows = fetch->next_row = 0;
}

void
bx_fetch_end(IndexScanDesc scan)
{
	BxFetch    *fetch = ((BxScan *) scan->opaque)->fetch;

	bx_fetch_reset(scan);
	if (fetch->visible)
		bx_visible_end(fetch->visible);
	MemoryContextDelete(fetch->search_cxt);
	pfree(fetch);
}
