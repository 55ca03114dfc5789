/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Searching: from the summaries to the segments to the ranges.
 *
 * A search goes down the tree: the slices of a node tell, for each element,
 * which children may hold it, and only these are visited, with only the
 * elements that may be there.  Elements are kept in the order of their slices,
 * which is the same for all nodes of a level, so each page is read once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "partitioned.h"

typedef struct Probe
{
	uint64		lh;				/* the element's hash for the level */
	int			element;
} Probe;

typedef struct SearchState
{
	BxSearch   *search;
	Relation	index;
	BlockNumber index_blocks;
	int			prefetch;		/* pages to ask for ahead */
	Probe	   *probes[BX_LEVEL_PARTITION + 1]; /* by level */
	Probe	   *candidates;		/* those for the segment at hand */
	BxMask	   *masks[BX_LEVEL_PARTITION + 1];	/* by level, then element */
	int		   *elements;		/* those of the probes at hand */
	BxMask	   *condition_masks;
} SearchState;

/* Where a node's descriptor stands: an entry of a pinned top-level page. */
typedef struct NodeRef
{
	int			level;
	uint32		node;
	Buffer		topbuf;
	BxNodeDesc	desc;			/* a copy, perhaps old */
	Buffer		slicebuf;		/* a slice that has been pinned ahead, if any */
} NodeRef;

#define ST_SORT sort_probes
#define ST_ELEMENT_TYPE Probe
#define ST_COMPARE(a, b) \
	((uint32) (a)->lh < (uint32) (b)->lh ? -1 : (uint32) (a)->lh > (uint32) (b)->lh)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* An array can have more elements than an ordinary allocation holds. */
static void *
alloc_array(Size n, Size size)
{
	return palloc_extended(n * size, MCXT_ALLOC_HUGE);
}

static void
init_search_state(SearchState *state, BxSearch *search)
{
	const BxQuery *query = search->query;

	state->search = search;
	state->index = search->index;
	state->index_blocks = bx_dir_known_blocks(search->index);

	/* one page ahead is not worth the extra look into the buffer table */
	state->prefetch =
		get_tablespace_io_concurrency(search->index->rd_rel->reltablespace);
	state->prefetch = state->prefetch > 1 ? Min(state->prefetch, 32) : 0;
	for (int level = BX_LEVEL_SEGMENT; level <= BX_LEVEL_PARTITION; level++)
	{
		Probe	   *probes = alloc_array(query->nelements, sizeof(Probe));

		for (int i = 0; i < query->nelements; i++)
		{
			probes[i].lh = bx_filter_level_hash(query->elements[i].key, level);
			probes[i].element = i;
		}
		sort_probes(probes, query->nelements);
		state->probes[level] = probes;
		state->masks[level] = alloc_array(query->nelements, sizeof(BxMask));
	}
	state->candidates = alloc_array(query->nelements, sizeof(Probe));
	state->elements = alloc_array(query->nelements, sizeof(int));
	state->condition_masks = palloc(sizeof(BxMask) * query->nconditions);
}

static void
check_ref(SearchState *state, const NodeRef *ref)
{
	bx_dir_check_desc(state->index, BufferGetBlockNumber(ref->topbuf),
					  &ref->desc, &state->index_blocks);
}

/*
 * Copies a node's descriptor from its directory page anew.  Returns whether
 * it has changed.
 */
static bool
refresh_desc(SearchState *state, NodeRef *ref)
{
	BxTopPageData *top = BxPageGetTop(BufferGetPage(ref->topbuf));
	BxNodeDesc *current = ref->level == BX_LEVEL_PARTITION ? &top->self :
	&top->child[ref->node % BX_FANOUT];
	bool		changed;

	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	changed = memcmp(current, &ref->desc, sizeof(BxNodeDesc)) != 0;
	ref->desc = *current;
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);
	check_ref(state, ref);
	return changed;
}

static BlockNumber
slice_block(const BxNodeDesc *desc, const Probe *probe)
{
	return desc->start + bx_filter_slice(probe->lh, desc->nslices);
}

/* Asks for the first of the pages that probing the node will read. */
static void
prefetch_node(SearchState *state, const NodeRef *ref, const Probe *probes)
{
	if (state->prefetch > 0 && ref->desc.state == BX_NODE_PRESENT)
		PrefetchBuffer(state->index, MAIN_FORKNUM,
					   slice_block(&ref->desc, &probes[0]));
}

/*
 * Pins the slice of a probe, and has the processor fetch what of it we will
 * need: most of the time of a search in memory goes into waiting for that.
 */
static void
pin_slice(SearchState *state, NodeRef *ref, const Probe *probe)
{
	Page		page;

	ref->slicebuf = ReadBuffer(state->index, slice_block(&ref->desc, probe));
	page = BufferGetPage(ref->slicebuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	bx_filter_prefetch(BxPageGetContent(page), BX_SLICE_ROWS,
					   ref->desc.nprobes, probe->lh);
}

/*
 * Reads the slice of probes[first] and sets the masks of all probes that fall
 * into it.  Returns the number of the next probe, or -1 if the page is not
 * what the descriptor says.
 */
static int
probe_slice(SearchState *state, NodeRef *ref, const Probe *probes, int first,
			int n)
{
	BlockNumber blkno = slice_block(&ref->desc, &probes[first]);
	Buffer		buffer;
	Page		page;
	int			i = first;

	BX_PAUSE(BX_PAUSE_SEARCH_SLICE);
	if (!BufferIsValid(ref->slicebuf))
		pin_slice(state, ref, &probes[first]);
	buffer = ref->slicebuf;
	ref->slicebuf = InvalidBuffer;
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (bx_slices_is_page(page, ref->level, ref->node, blkno - ref->desc.start,
						  &ref->desc))
	{
		bx_test_for_old_snapshot(state->search->snapshot, state->index, page);
		for (; i < n && slice_block(&ref->desc, &probes[i]) == blkno; i++)
			bx_filter_probe(BxPageGetContent(page), BX_SLICE_ROWS,
							ref->desc.nprobes, probes[i].lh,
							&state->masks[ref->level][probes[i].element]);
	}
	else
		i = -1;
	UnlockReleaseBuffer(buffer);
	return i;
}

/*
 * Probes all slices of a node that are needed.  Returns false if the slices
 * were replaced meanwhile, so that it has to be done again.
 */
static bool
try_probe_node(SearchState *state, NodeRef *ref, const Probe *probes, int n)
{
	int			ahead = 0;
	int			distance = 0;

	if (ref->desc.state != BX_NODE_PRESENT)
	{
		for (int i = 0; i < n; i++)
			bx_mask_fill(&state->masks[ref->level][probes[i].element],
						 ref->desc.state == BX_NODE_UNKNOWN);
		return true;
	}
	for (int i = 0; i < n;)
	{
		int			next;

		CHECK_FOR_INTERRUPTS();

		/* keep some distinct slices on their way, if there are several */
		for (; state->prefetch > 0 && n > 1 && ahead < n &&
			 distance < state->prefetch; ahead++)
		{
			BlockNumber blkno = slice_block(&ref->desc, &probes[ahead]);

			if (ahead > 0 && blkno == slice_block(&ref->desc,
												  &probes[ahead - 1]))
				continue;
			PrefetchBuffer(state->index, MAIN_FORKNUM, blkno);
			distance++;
		}
		next = probe_slice(state, ref, probes, i, n);
		if (next < 0)
		{
			BlockNumber blkno = slice_block(&ref->desc, &probes[i]);

			if (refresh_desc(state, ref))
				return false;
			bx_page_corrupted(state->index, blkno,
							  "not the page that the directory says");
		}
		i = next;
		distance--;
	}
	return true;
}

/*
 * Sets the mask of each probe's element to the children of the node that may
 * hold it, and *result to those that may match the whole query.
 */
static void
probe_node(SearchState *state, NodeRef *ref, const Probe *probes, int n,
		   BxMask *result)
{
	while (!try_probe_node(state, ref, probes, n))
		;
	for (int i = 0; i < n; i++)
		state->elements[i] = probes[i].element;
	bx_query_match_masks(state->search->query, state->elements, n,
						 state->masks[ref->level], state->condition_masks,
						 result);
}

/* The probes of the elements that a segment may hold, by the summary. */
static int
choose_candidates(SearchState *state, int child)
{
	int			n = 0;

	for (int i = 0; i < state->search->query->nelements; i++)
	{
		const Probe *probe = &state->probes[BX_LEVEL_SEGMENT][i];

		if (bx_mask_test(&state->masks[BX_LEVEL_PARTITION][probe->element],
						 child))
			state->candidates[n++] = *probe;
	}
	return n;
}

static void
search_segment(SearchState *state, NodeRef *ref)
{
	int			n = choose_candidates(state, ref->node % BX_FANOUT);
	BxMask		ranges;

	probe_node(state, ref, state->candidates, n, &ranges);
	for (int r = bx_mask_next(&ranges, 0); r < BX_FANOUT;
		 r = bx_mask_next(&ranges, r + 1))
		bx_search_add_range(state->search, ref->node * BX_FANOUT + r);
}

/*
 * Pins a partition's top-level page, and has the processor fetch what of it
 * opening the partition will need.
 */
static void
pin_top(SearchState *state, NodeRef *ref, uint32 partition, BlockNumber top)
{
	Page		page;

	ref->level = BX_LEVEL_PARTITION;
	ref->node = partition;
	ref->slicebuf = InvalidBuffer;
	ref->topbuf = ReadBuffer(state->index, top);
	page = BufferGetPage(ref->topbuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	__builtin_prefetch(&BxPageGetTop(page)->self);
}

/* Copies the descriptor of a partition's summary. */
static void
open_partition(SearchState *state, NodeRef *ref)
{
	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	bx_dir_check_top(state->index, ref->topbuf, ref->node);
	ref->desc = BxPageGetTop(BufferGetPage(ref->topbuf))->self;
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);
	check_ref(state, ref);
}

/* Gets ready to search a partition, if it is for one element. */
static void
pin_first_slice(SearchState *state, NodeRef *ref)
{
	if (state->search->query->nelements == 1 &&
		ref->desc.state == BX_NODE_PRESENT)
		pin_slice(state, ref, &state->probes[BX_LEVEL_PARTITION][0]);
}

/* Searches a partition, and lets go of its top-level page. */
static void
search_partition(SearchState *state, NodeRef *ref)
{
	BxMask		matching;
	int			nsegments = 0;
	NodeRef		segments[BX_FANOUT];
	BxTopPageData *top = BxPageGetTop(BufferGetPage(ref->topbuf));

	probe_node(state, ref, state->probes[BX_LEVEL_PARTITION],
			   state->search->query->nelements, &matching);
	if (bx_mask_is_empty(&matching))
	{
		ReleaseBuffer(ref->topbuf);
		return;
	}

	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	for (int c = bx_mask_next(&matching, 0); c < BX_FANOUT;
		 c = bx_mask_next(&matching, c + 1))
	{
		NodeRef    *segment = &segments[nsegments];

		segment->level = BX_LEVEL_SEGMENT;
		segment->node = ref->node * BX_FANOUT + c;
		segment->topbuf = ref->topbuf;
		segment->slicebuf = InvalidBuffer;
		segment->desc = top->child[c];
		nsegments++;
	}
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);

	for (int i = 0; i < nsegments; i++)
		check_ref(state, &segments[i]);
	for (int i = 0; i < nsegments; i++)
	{
		/*
		 * which slices several elements need is known only when it comes to
		 * it
		 */
		if (i + 1 < nsegments && state->search->query->nelements == 1)
			prefetch_node(state, &segments[i + 1],
						  state->probes[BX_LEVEL_SEGMENT]);
		search_segment(state, &segments[i]);
	}
	ReleaseBuffer(ref->topbuf);
}

/*
 * Searches all partitions of the heap, with the top-level pages and summaries
 * of the next ones on their way.
 */
void
bx_partitioned_search(BxSearch *search)
{
	SearchState state;
	uint64		ranges;
	uint32		npartitions;
	BlockNumber *tops;
	NodeRef    *opened;
	int			nopened;
	int			lead;

	if (search->heap_blocks == 0)
		return;
	ranges = bx_geometry_ranges(search->heap_blocks, search->geometry.lg_base);
	npartitions = (ranges - 1) / BX_RANGES_PER_PARTITION + 1;
	tops = palloc(sizeof(BlockNumber) * npartitions);
	bx_dir_tops(search->index, 0, npartitions, tops);
	init_search_state(&state, search);

	/*
	 * A ring of the partitions that are open, of which "lead" are ahead of
	 * the search, and of the one that comes next.  Each has pages pinned, and
	 * there may be few buffers.  With a lead of 1 a page is pinned right when
	 * it is prefetched.
	 */
	lead = state.prefetch > 0 ? Max(2, Min(state.prefetch / 2, 4)) : 1;
	nopened = lead + 2;
	opened = palloc(sizeof(NodeRef) * nopened);
	for (uint64 i = 0; i < (uint64) npartitions + 2 * lead; i++)
	{
		if (state.prefetch > 0 && i < npartitions && tops[i] != 0)
			PrefetchBuffer(search->index, MAIN_FORKNUM, tops[i]);
		if (i + 1 >= lead && i + 1 - lead < npartitions &&
			tops[i + 1 - lead] != 0)
			pin_top(&state, &opened[(i + 1 - lead) % nopened], i + 1 - lead,
					tops[i + 1 - lead]);
		if (i >= lead && i - lead < npartitions && tops[i - lead] != 0)
		{
			NodeRef    *ref = &opened[(i - lead) % nopened];

			open_partition(&state, ref);
			prefetch_node(&state, ref, state.probes[BX_LEVEL_PARTITION]);
		}

		/* the next one to be searched, if it is in memory by now */
		if (i + 1 >= 2 * lead && i + 1 - 2 * lead < npartitions &&
			tops[i + 1 - 2 * lead] != 0)
			pin_first_slice(&state, &opened[(i + 1 - 2 * lead) % nopened]);
		if (i >= 2 * lead && tops[i - 2 * lead] != 0)
			search_partition(&state, &opened[(i - 2 * lead) % nopened]);
	}
}
