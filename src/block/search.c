/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Searching: reads all pages sequentially, and tests every filter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "block.h"

/*
 * With at least this many elements, a page is copied rather than kept locked.
 */
#define MANY_ELEMENTS		8

typedef struct BlockSearch
{
	BxSearch   *search;
	BxBlockGeometry geometry;
	BxPackedProbe probe;
	Page		page;			/* the page whose filters are tested */
	uint8		matches[BX_MAX_BLOCK_RANGES];
	uint8		scratch[2 * BX_MAX_BLOCK_RANGES];
} BlockSearch;

/* Tests all filters of the page for one key. */
static void
probe_page(void *arg, uint64 key, uint8 *result)
{
	BlockSearch *state = arg;
	int			n = state->geometry.nranges;

	state->probe(BxPageGetContent(state->page),
				 BxPageGetOffsets(state->page, n), n, key, result);
}

/* Finds the ranges of a page that may match the query. */
static void
test_page(BlockSearch *state, Page page, bool interruptible)
{
	state->page = page;
	if (state->search->query->has_clauses)
		bx_query_match_clauses(state->search->query, state->geometry.nranges,
							   probe_page, state, state->scratch,
							   state->matches);
	else
		bx_query_match_bytes(state->search->query, state->geometry.nranges,
							 probe_page, state, interruptible, state->scratch,
							 state->matches);
}

/*
 * Tests the filters of a page and sets state->matches.  The page is locked in
 * share mode; with many elements the page is copied, so that the lock is held
 * for less time.  With clauses it is copied, because these may call functions
 * of operator classes.
 */
static void
search_page(BlockSearch *state, uint32 number)
{
	BxSearch   *search = state->search;
	Relation	index = search->index;
	BlockNumber blkno = bx_block_of_page(number);
	Buffer		buffer;
	Page		page;
	PGAlignedBlock copy;

	BX_PAUSE(BX_PAUSE_SEARCH_SLICE);
	buffer = ReadBuffer(index, blkno);
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_test_for_old_snapshot(search->snapshot, index, page);
	bx_block_check_identity(index, buffer, BX_PAGE_BLOCK, number, &state->geometry);
	bx_block_check_offsets(index, blkno, page, &state->geometry);
	if (search->query->nelements < MANY_ELEMENTS &&
		!search->query->has_clauses)
	{
		test_page(state, page, false);
		UnlockReleaseBuffer(buffer);
	}
	else
	{
		memcpy(copy.data, page, BLCKSZ);
		UnlockReleaseBuffer(buffer);
		test_page(state, copy.data, true);
	}
}

static int64
count_reads(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/*
 * Prefetches up to "distance" following pages.  Called only after a page had
 * to be read from disk: pages that are in memory need no prefetching.
 */
static void
prefetch_pages(Relation index, uint32 number, uint32 end, int distance,
			   uint32 *asked)
{
	uint32		to = Min((uint64) number + 1 + distance, end);

	for (*asked = Max(*asked, number + 1); *asked < to; (*asked)++)
		PrefetchBuffer(index, MAIN_FORKNUM, bx_block_of_page(*asked));
}

/* Reports the ranges of a page that may match; usually there are few. */
static void
add_matches(BlockSearch *state, uint32 number, uint64 ranges)
{
	int			n = state->geometry.nranges;
	uint64		first = (uint64) number * n;
	const uint8 *end = state->matches + Min(n, ranges - first);
	const uint8 *match = state->matches;

	while ((match = memchr(match, 1, end - match)) != NULL)
	{
		bx_search_add_range(state->search, first + (match - state->matches));
		match++;
	}
}

/*
 * Searches the pages of the heap's ranges, from search->next_range on.  The
 * number of pages is read after the snapshot was taken, so it includes the
 * pages of all rows that the snapshot sees.  At most one page is locked at a
 * time, in share mode.
 */
void
bx_block_search(BxSearch *search)
{
	Relation	index = search->index;
	int			distance = get_tablespace_io_concurrency(index->rd_rel->reltablespace);
	uint64		ranges = bx_geometry_ranges(search->heap_blocks, search->geometry.lg_base);
	BlockSearch *state = palloc(sizeof(BlockSearch));
	BxMetaPageData meta;
	uint32		npages;
	uint32		asked = 0;

	bx_meta_read(index, &meta);
	if (meta.block.pages == 0)
		return;
	bx_block_check_length(index, RelationGetNumberOfBlocks(index),
						  bx_block_of_page(meta.block.pages - 1));
	if (meta.lg_base != search->geometry.lg_base)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "pages_per_range has changed");
	state->search = search;
	state->geometry = bx_block_geometry(&meta);
	state->probe = bx_packed_choose_probe();
	npages = Min((ranges + meta.block.nranges - 1) / meta.block.nranges,
				 meta.block.pages);
	for (uint32 i = search->next_range / meta.block.nranges;
		 i < npages && !search->paused; i++)
	{
		int64		reads = count_reads();

		CHECK_FOR_INTERRUPTS();
		search_page(state, i);
		if (count_reads() > reads)
			prefetch_pages(index, i, npages, distance, &asked);
		add_matches(state, i, ranges);
	}
}
