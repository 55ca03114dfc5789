/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Searching: from the groups to the partitions, the segments and the
 *	  ranges.
 *
 * The groups of a region determine, for each element of the query, which
 * partitions may contain the element.  From these partitions, a search
 * descends the tree.  The slices of a node determine, for each element of the
 * query, which children may contain the element.  Only these children are
 * visited, and each child is probed only for the elements that it may contain.
 * The elements are sorted by the half of the hash that selects the slice.
 * That order is the same for all nodes of a level, so each slice page is read
 * once.
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
	int			prefetch;		/* prefetch distance in pages; 0 disables */
	Probe	   *probes[BX_LEVEL_GROUP + 1]; /* by level */
	Probe	   *candidates;		/* probes for the current node */
	Probe	   *of_partition;	/* probes for segments, of the elements that
								 * the current partition may contain */
	int			nof_partition;
	bool	   *is_candidate;	/* by element; all false between uses */
	BxMask	   *masks[BX_LEVEL_GROUP + 1];	/* by level, then element; of
											 * BX_LEVEL_GROUP: the partitions
											 * of the current region */
	int		   *elements;		/* elements of the current probes */
	BxMask	   *scratch;		/* for bx_query_match_masks() */
} SearchState;

/* A node to be probed, and the pinned top-level page that describes it. */
typedef struct OpenNode
{
	BxNode		node;
	Buffer		topbuf;
	Buffer		slicebuf;		/* a slice pinned in advance, or InvalidBuffer */
} OpenNode;

#define ST_SORT sort_probes
#define ST_ELEMENT_TYPE Probe
#define ST_COMPARE(a, b) \
	((uint32) (a)->lh < (uint32) (b)->lh ? -1 : (uint32) (a)->lh > (uint32) (b)->lh)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Returns the next n items of an allocation, and advances *rest. */
static void *
take_array(char **rest, Size n, Size size)
{
	void	   *result = *rest;

	*rest += MAXALIGN(n * size);
	return result;
}

/*
 * All arrays are in one allocation, because a search for a single element
 * would spend a noticeable part of its time on allocations.  An array in a
 * query can have more elements than an ordinary allocation can hold.
 */
static void
init_search_state(SearchState *state, BxSearch *search)
{
	const BxQuery *query = search->query;
	Size		n = query->nelements;
	Size		nscratch = bx_query_scratch_masks(query);
	Size		of_element = sizeof(Probe) * (BX_LEVEL_GROUP + 2) +
	sizeof(BxMask) * BX_LEVEL_GROUP + sizeof(bool) + sizeof(int);
	char	   *rest = palloc_extended(n * of_element +
									   nscratch * sizeof(BxMask) +
									   16 * MAXIMUM_ALIGNOF,
									   MCXT_ALLOC_HUGE);

	state->search = search;
	state->index = search->index;
	state->index_blocks = bx_dir_known_blocks(search->index);

	/* prefetching one page ahead is not worth the buffer table lookup */
	state->prefetch =
		get_tablespace_io_concurrency(search->index->rd_rel->reltablespace);
	state->prefetch = state->prefetch > 1 ? Min(state->prefetch, 32) : 0;
	for (int level = 1; level <= BX_LEVEL_GROUP; level++)
	{
		Probe	   *probes = take_array(&rest, n, sizeof(Probe));

		for (Size i = 0; i < n; i++)
		{
			probes[i].lh = bx_filter_level_hash(query->elements[i].key, level);
			probes[i].element = i;
		}
		sort_probes(probes, n);
		state->probes[level] = probes;
		state->masks[level] = take_array(&rest, n, sizeof(BxMask));
	}
	state->candidates = take_array(&rest, n, sizeof(Probe));
	state->of_partition = take_array(&rest, n, sizeof(Probe));
	state->is_candidate = take_array(&rest, n, sizeof(bool));
	memset(state->is_candidate, false, n);
	state->elements = take_array(&rest, n, sizeof(int));
	state->scratch = take_array(&rest, nscratch, sizeof(BxMask));
}

/* Raises an error if the descriptor of a node is impossible. */
static void
check_node(SearchState *state, const OpenNode *open)
{
	bx_dir_check_desc(state->index, BufferGetBlockNumber(open->topbuf),
					  &open->node.desc, &state->index_blocks);
}

static BlockNumber
slice_block(const BxNodeDesc *desc, const Probe *probe)
{
	return desc->start + bx_filter_slice(probe->lh, desc->nslices);
}

/* Returns whether only rows with the element of a probe match the query. */
static inline bool
is_required(const SearchState *state, const Probe *probe)
{
	return state->search->query->elements[probe->element].is_required;
}

/* Prefetches the first page that probing the node will read. */
static void
prefetch_node(SearchState *state, const OpenNode *open, const Probe *probes)
{
	if (state->prefetch > 0 && open->node.desc.state == BX_NODE_PRESENT)
		bx_page_prefetch(state->index,
						 slice_block(&open->node.desc, &probes[0]));
}

/*
 * Pins the slice page of a probe, and prefetches the cache lines that the
 * probe will read: a search of an index in memory spends most of its time
 * waiting for these.
 */
static void
pin_slice(SearchState *state, OpenNode *open, const Probe *probe)
{
	Page		page;

	open->slicebuf = bx_page_pin(state->index, slice_block(&open->node.desc, probe));
	page = BufferGetPage(open->slicebuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	bx_filter_prefetch(BxPageGetContent(page), BX_SLICE_ROWS,
					   open->node.desc.nprobes, probe->lh);
}

/*
 * Takes over the page that was pinned in advance for probes[first], or pins
 * it.  Also pins the page of probes[next] in advance, if there is such a
 * probe, so that the processor can fetch the next page from memory meanwhile.
 * The page of a required element is not pinned in advance: it may not be
 * needed.
 */
static Buffer
take_slice(SearchState *state, OpenNode *open, const Probe *probes, int first,
		   int next, int n)
{
	Buffer		buffer;

	if (!BufferIsValid(open->slicebuf))
		pin_slice(state, open, &probes[first]);
	buffer = open->slicebuf;
	open->slicebuf = InvalidBuffer;
	if (next < n && !is_required(state, &probes[next]))
		pin_slice(state, open, &probes[next]);
	return buffer;
}

/* Releases a page that was pinned in advance. */
static void
release_pinned(Buffer *buffer)
{
	if (BufferIsValid(*buffer))
		ReleaseBuffer(*buffer);
	*buffer = InvalidBuffer;
}

/*
 * Reads the slice page of probes[first], under a share lock, and sets the
 * masks of all probes that belong to the same slice, up to probes[next - 1].
 * Returns false if the page is not the one that the descriptor describes.
 */
static bool
probe_slice(SearchState *state, OpenNode *open, const Probe *probes, int first,
			int next, int n)
{
	BlockNumber blkno = slice_block(&open->node.desc, &probes[first]);
	Buffer		buffer;
	Page		page;
	bool		is_slice;

	BX_PAUSE(BX_PAUSE_SEARCH_SLICE);
	buffer = take_slice(state, open, probes, first, next, n);
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_slice = bx_slices_is_page(page, &open->node,
								 blkno - open->node.desc.start);
	if (is_slice)
	{
		bx_test_for_old_snapshot(state->search->snapshot, state->index, page);
		for (int i = first; i < next; i++)
			bx_filter_probe(BxPageGetContent(page), BX_SLICE_ROWS,
							open->node.desc.nprobes, probes[i].lh,
							&state->masks[open->node.level][probes[i].element]);
	}
	UnlockReleaseBuffer(buffer);
	return is_slice;
}

/*
 * Removes from *left the children that lack a required element among the
 * elements of the probes "first" to end - 1.
 */
static void
keep_complete(const SearchState *state, const Probe *probes, int first,
			  int end, const BxMask *masks, BxMask *left)
{
	for (int i = first; i < end; i++)
	{
		if (is_required(state, &probes[i]))
			bx_mask_and(left, &masks[probes[i].element]);
	}
}

/*
 * Probes the slices of a node that the probes belong to, until no child can
 * match the query; *left is the set of the children that still can.  Returns
 * false if the slices were replaced meanwhile; then open->node.desc is the new
 * descriptor, and the caller must probe again.
 */
static bool
try_probe_node(SearchState *state, OpenNode *open, const Probe *probes, int n,
			   BxMask *left)
{
	int			ahead = 0;
	int			distance = 0;

	bx_mask_fill(left, true);
	if (open->node.desc.state != BX_NODE_PRESENT)
	{
		for (int i = 0; i < n; i++)
			bx_mask_fill(&state->masks[open->node.level][probes[i].element],
						 open->node.desc.state == BX_NODE_UNKNOWN);
		return true;
	}
	for (int i = 0; i < n && !bx_mask_is_empty(left);)
	{
		BlockNumber current = slice_block(&open->node.desc, &probes[i]);
		int			next = i + 1;

		CHECK_FOR_INTERRUPTS();
		while (next < n &&
			   slice_block(&open->node.desc, &probes[next]) == current)
			next++;

		/* prefetch the next distinct slices, up to the prefetch distance */
		for (; state->prefetch > 0 && n > 1 && ahead < n &&
			 distance < state->prefetch; ahead++)
		{
			BlockNumber blkno = slice_block(&open->node.desc, &probes[ahead]);

			if (ahead > 0 && blkno == slice_block(&open->node.desc,
												  &probes[ahead - 1]))
				continue;
			bx_page_prefetch(state->index, blkno);
			distance++;
		}
		if (!probe_slice(state, open, probes, i, next, n))
		{
			release_pinned(&open->slicebuf);
			bx_dir_refresh(state->index, &open->node, current, BX_WRONG_PAGE);
			return false;
		}
		if (n > 1)
			keep_complete(state, probes, i, next,
						  state->masks[open->node.level], left);
		i = next;
		distance--;
	}
	release_pinned(&open->slicebuf);
	return true;
}

/*
 * Sets the mask of each probe's element to the set of the node's children
 * that may contain the element, and *result to the set of the children that
 * may match the whole query.  If no child can, not all masks are set.
 */
static void
probe_node(SearchState *state, OpenNode *open, const Probe *probes, int n,
		   BxMask *result)
{
	while (!try_probe_node(state, open, probes, n, result))
		;
	if (bx_mask_is_empty(result))
		return;
	for (int i = 0; i < n; i++)
		state->elements[i] = probes[i].element;
	bx_query_match_masks(state->search->query, state->elements, n,
						 state->masks[open->node.level], state->scratch,
						 result);
}

/*
 * Selects those of n probes whose elements a node may contain, according to
 * the masks of the level above, in which the node is number "child".  Returns
 * how many there are.
 */
static int
choose_candidates(SearchState *state, const Probe *probes, int n,
				  const BxMask *masks, int child)
{
	int			nchosen = 0;

	for (int i = 0; i < n; i++)
	{
		if (bx_mask_test(&masks[probes[i].element], child))
			state->candidates[nchosen++] = probes[i];
	}
	return nchosen;
}

/* Selects the probes of a partition. */
static int
choose_for_partition(SearchState *state, const BxNode *partition)
{
	return choose_candidates(state, state->probes[BX_LEVEL_PARTITION],
							 state->search->query->nelements,
							 state->masks[BX_LEVEL_GROUP],
							 partition->number % BX_FANOUT);
}

/*
 * Sets of_partition to the probes for segments of the n elements in
 * candidates[], which are those of a partition.  Only these elements have a
 * mask of the partition.
 */
static void
note_candidates(SearchState *state, int n)
{
	const Probe *probes = state->probes[BX_LEVEL_SEGMENT];

	for (int i = 0; i < n; i++)
		state->is_candidate[state->candidates[i].element] = true;
	state->nof_partition = 0;
	for (int i = 0; state->nof_partition < n; i++)
	{
		if (state->is_candidate[probes[i].element])
		{
			state->is_candidate[probes[i].element] = false;
			state->of_partition[state->nof_partition++] = probes[i];
		}
	}
}

static void
search_segment(SearchState *state, OpenNode *open)
{
	BxMask		ranges;
	int			n;

	n = choose_candidates(state, state->of_partition, state->nof_partition,
						  state->masks[BX_LEVEL_PARTITION],
						  open->node.number % BX_SEGMENTS_PER_PARTITION);
	probe_node(state, open, state->candidates, n, &ranges);
	for (int r = bx_mask_next(&ranges, 0); r < BX_FANOUT;
		 r = bx_mask_next(&ranges, r + 1))
		bx_search_add_range(state->search, open->node.number * BX_FANOUT + r);
}

/*
 * Pins the top-level page of a partition, and prefetches the cache lines that
 * open_partition() will read.
 */
static void
pin_top(SearchState *state, OpenNode *open, uint32 partition, BlockNumber top)
{
	Page		page;

	memset(&open->node, 0, sizeof(open->node));
	open->node.level = BX_LEVEL_PARTITION;
	open->node.number = partition;
	open->slicebuf = InvalidBuffer;
	open->topbuf = ReadBuffer(state->index, top);
	page = BufferGetPage(open->topbuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	__builtin_prefetch(&BxPageGetTop(page)->node[BX_SLOT_SUMMARY]);
}

/*
 * Copies the descriptor of a partition's summary, under a share lock on the
 * top-level page.
 */
static void
open_partition(SearchState *state, OpenNode *open)
{
	LockBuffer(open->topbuf, BUFFER_LOCK_SHARE);
	bx_dir_check_top(state->index, open->topbuf, open->node.number);
	open->node.desc = *bx_node_desc(&open->node,
									BxPageGetTop(BufferGetPage(open->topbuf)));
	LockBuffer(open->topbuf, BUFFER_LOCK_UNLOCK);
	check_node(state, open);
}

/*
 * Pins the slice of the summary in advance, if the query has a single
 * element.
 */
static void
pin_first_slice(SearchState *state, OpenNode *open)
{
	if (state->search->query->nelements == 1 &&
		open->node.desc.state == BX_NODE_PRESENT)
		pin_slice(state, open, &state->probes[BX_LEVEL_PARTITION][0]);
}

/*
 * Returns whether the ranges of a segment were searched before the search was
 * paused.
 */
static inline bool
is_searched(const BxSearch *search, uint32 segment)
{
	return ((uint64) segment + 1) * BX_FANOUT <= search->next_range;
}

/* Searches a partition, and releases the pin on its top-level page. */
static void
search_partition(SearchState *state, OpenNode *open)
{
	BxMask		matching;
	int			nsegments = 0;
	int			n = choose_for_partition(state, &open->node);
	OpenNode	segments[BX_FANOUT];
	BxTopPageData *top = BxPageGetTop(BufferGetPage(open->topbuf));

	probe_node(state, open, state->candidates, n, &matching);
	if (bx_mask_is_empty(&matching))
	{
		ReleaseBuffer(open->topbuf);
		return;
	}
	note_candidates(state, n);

	LockBuffer(open->topbuf, BUFFER_LOCK_SHARE);
	for (int c = bx_mask_next(&matching, 0); c < BX_FANOUT;
		 c = bx_mask_next(&matching, c + 1))
	{
		OpenNode   *segment = &segments[nsegments];

		bx_node_of_slot(open->node.number, BX_SLOT_SEGMENT(c), top,
						&segment->node);
		if (is_searched(state->search, segment->node.number))
			continue;
		nsegments++;
		segment->topbuf = open->topbuf;
		segment->slicebuf = InvalidBuffer;
	}
	LockBuffer(open->topbuf, BUFFER_LOCK_UNLOCK);

	for (int i = 0; i < nsegments; i++)
		check_node(state, &segments[i]);
	for (int i = 0; i < nsegments && !state->search->paused; i++)
	{
		/*
		 * with several elements, the slices that are needed are not known in
		 * advance
		 */
		if (i + 1 < nsegments && state->search->query->nelements == 1)
			prefetch_node(state, &segments[i + 1],
						  state->probes[BX_LEVEL_SEGMENT]);
		search_segment(state, &segments[i]);
	}
	ReleaseBuffer(open->topbuf);
}

/*
 * Sets live[i] to the partitions whose filter in group i has to be tested.
 * These are the existing partitions of the group among the first npartitions
 * of the region, except those whose current filter is in a later group and
 * those that match every key.  Returns false if an existing partition that
 * should have a filter is in no group: the region page is damaged.
 */
static bool
find_live_columns(const BxRegionPageData *region, uint32 npartitions,
				  BxMask *live)
{
	BxMask		rest;

	bx_mask_fill(&rest, false);
	for (int c = 0; c < npartitions; c++)
	{
		if (region->top[c] != 0 && !bx_groups_is_unfiltered(region, c))
			bx_mask_set(&rest, c);
	}
	for (int i = (int) region->ngroups - 1; i >= 0; i--)
	{
		bx_groups_columns(&region->group[i], &live[i]);
		bx_mask_and(&live[i], &rest);
		bx_mask_remove(&rest, &live[i]);
	}
	return bx_mask_is_empty(&rest);
}

/* A group that is being searched. */
typedef struct OpenGroup
{
	uint32		region;
	const BxGroupDesc *desc;
	const BxMask *live;			/* partitions whose filter counts */
	Buffer		buffer;			/* a page pinned in advance, or InvalidBuffer */
} OpenGroup;

/* Returns the number of the page of a group that a probe belongs to. */
static uint32
group_page(const BxGroupDesc *group, const Probe *probe)
{
	return bx_filter_slice(probe->lh, group->nblocks) /
		bx_group_page_blocks(group->width);
}

/* Returns the number of a probe's block in its page of a group. */
static uint32
group_block(const BxGroupDesc *group, const Probe *probe)
{
	return bx_filter_slice(probe->lh, group->nblocks) %
		bx_group_page_blocks(group->width);
}

/*
 * Pins the page of a probe in a group, and prefetches the cache lines that the
 * probe will read.
 */
static void
pin_group_page(SearchState *state, OpenGroup *open, const Probe *probe)
{
	const BxGroupDesc *group = open->desc;
	Page		page;

	open->buffer = bx_page_pin(state->index,
							   group->start + group_page(group, probe));
	page = BufferGetPage(open->buffer);
	__builtin_prefetch(BxPageGetOpaque(page));
	bx_group_prefetch(BxPageGetContent(page), BX_SLICE_ROWS, group->width,
					  group_block(group, probe), group->nprobes, probe->lh);
}

/* Like take_slice(), for the page of a group. */
static Buffer
take_group_page(SearchState *state, OpenGroup *open, int first, int next)
{
	const Probe *probes = state->probes[BX_LEVEL_GROUP];
	Buffer		buffer;

	if (!BufferIsValid(open->buffer))
		pin_group_page(state, open, &probes[first]);
	buffer = open->buffer;
	open->buffer = InvalidBuffer;
	if (next < state->search->query->nelements &&
		!is_required(state, &probes[next]))
		pin_group_page(state, open, &probes[next]);
	return buffer;
}

/*
 * Reads the page of probes[first] in a group, under a share lock, and adds the
 * partitions that may match to the masks of all probes that belong to the
 * page, up to probes[next - 1].  Returns false if the page is not that of the
 * group.
 */
static bool
probe_group_page(SearchState *state, OpenGroup *open, int first, int next)
{
	const Probe *probes = state->probes[BX_LEVEL_GROUP];
	const BxGroupDesc *group = open->desc;
	Buffer		buffer;
	Page		page;
	bool		is_page;

	BX_PAUSE(BX_PAUSE_SEARCH_GROUP);
	buffer = take_group_page(state, open, first, next);
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_page = bx_groups_is_page(page, open->region, group,
								group_page(group, &probes[first]));
	if (is_page)
	{
		bx_test_for_old_snapshot(state->search->snapshot, state->index, page);
		for (int i = first; i < next; i++)
		{
			BxMask		found = {.word = {0}};

			bx_group_probe(BxPageGetContent(page), BX_SLICE_ROWS, group->width,
						   group_block(group, &probes[i]), group->nprobes,
						   probes[i].lh, group->first, &found);
			bx_mask_and(&found, open->live);
			bx_mask_or(&state->masks[BX_LEVEL_GROUP][probes[i].element],
					   &found);
		}
	}
	UnlockReleaseBuffer(buffer);
	return is_page;
}

/*
 * Probes the groups of a region for its first npartitions partitions.  Returns
 * false if a group was replaced meanwhile; then the caller must copy the
 * region page and probe again.
 */
static bool
try_probe_region(SearchState *state, uint32 number, uint32 npartitions,
				 const BxRegionPageData *region)
{
	int			n = state->search->query->nelements;
	BxMask		live[BX_MAX_GROUPS];

	for (int i = 0; i < n; i++)
		memcpy(&state->masks[BX_LEVEL_GROUP][i], region->unfiltered,
			   sizeof(BxMask));
	if (!find_live_columns(region, npartitions, live))
		bx_page_corrupted(state->index, bx_dir_region(state->index, number),
						  "partition without a group");
	for (uint32 i = 0; state->prefetch > 0 && n == 1 && i < region->ngroups; i++)
	{
		if (!bx_mask_is_empty(&live[i]))
			bx_page_prefetch(state->index, region->group[i].start +
							 group_page(&region->group[i],
										&state->probes[BX_LEVEL_GROUP][0]));
	}
	for (uint32 i = 0; i < region->ngroups; i++)
	{
		OpenGroup	open = {number, &region->group[i], &live[i], InvalidBuffer};
		const Probe *probes = state->probes[BX_LEVEL_GROUP];
		BxMask		left = live[i];

		for (int p = 0; p < n && !bx_mask_is_empty(&left);)
		{
			uint32		current = group_page(open.desc, &probes[p]);
			int			next = p + 1;

			CHECK_FOR_INTERRUPTS();
			while (next < n && group_page(open.desc, &probes[next]) == current)
				next++;
			if (!probe_group_page(state, &open, p, next))
			{
				release_pinned(&open.buffer);
				bx_groups_check_gone(state->index, number, open.desc,
									 open.desc->start + current,
									 BX_WRONG_PAGE);
				return false;
			}
			if (n > 1)
				keep_complete(state, probes, p, next,
							  state->masks[BX_LEVEL_GROUP], &left);
			p = next;
		}
		release_pinned(&open.buffer);
	}
	return true;
}

/*
 * Sets the masks of BX_LEVEL_GROUP to the partitions, among the first
 * npartitions of a region, that may contain each element, and *matching to
 * those that may match the whole query.
 */
static void
probe_region(SearchState *state, uint32 number, uint32 npartitions,
			 BxMask *matching)
{
	BxRegionPageData region;	/* the size of a page */
	int			n = state->search->query->nelements;

	do
	{
		if (!bx_dir_read_region(state->index, number, &state->index_blocks,
								&region))
			memset(&region, 0, sizeof(region)); /* no partition exists */
	} while (!try_probe_region(state, number, npartitions, &region));
	for (int i = 0; i < n; i++)
		state->elements[i] = i;
	bx_query_match_masks(state->search->query, state->elements, n,
						 state->masks[BX_LEVEL_GROUP], state->scratch,
						 matching);
}

/* Releases the pins on a partition that is not searched. */
static void
close_partition(OpenNode *open)
{
	release_pinned(&open->slicebuf);
	ReleaseBuffer(open->topbuf);
}

/* The number of partitions that are opened ahead of the one being searched */
#define MAX_LEAD			4

/*
 * Searches n partitions in the order of their numbers.  tops[] has the block
 * numbers of their top-level pages.  The top-level pages and summaries of the
 * following partitions are prefetched meanwhile.  Stops if the search is
 * paused.
 */
static void
search_partitions(SearchState *state, uint32 n, const uint32 *numbers,
				  const BlockNumber *tops)
{
	OpenNode	opened[MAX_LEAD + 2];
	uint32		nopened;
	uint32		lead;

	/*
	 * "opened" is a ring of the partitions that are pinned: the one being
	 * searched, up to "lead" partitions that are opened ahead of it, and the
	 * next one to open.  The lead is small, because each of them holds pins,
	 * and there may be few buffers.  With prefetching the lead is at least 2:
	 * with a lead of 1, a page would be pinned immediately after it is
	 * prefetched.
	 */
	lead = state->prefetch > 0 ? Max(2, Min(state->prefetch / 2, MAX_LEAD)) : 1;
	nopened = lead + 2;
	for (uint32 i = 0; i < n + 2 * lead; i++)
	{
		if (state->prefetch > 0 && i < n)
			bx_page_prefetch(state->index, tops[i]);
		if (i + 1 >= lead && i + 1 - lead < n)
			pin_top(state, &opened[(i + 1 - lead) % nopened],
					numbers[i + 1 - lead], tops[i + 1 - lead]);
		if (i >= lead && i - lead < n)
		{
			OpenNode   *open = &opened[(i - lead) % nopened];

			open_partition(state, open);
			prefetch_node(state, open, state->probes[BX_LEVEL_PARTITION]);
		}

		/* pin the first slice of the partition to be searched next */
		if (i + 1 >= 2 * lead && i + 1 - 2 * lead < n)
			pin_first_slice(state, &opened[(i + 1 - 2 * lead) % nopened]);
		if (i >= 2 * lead)
			search_partition(state, &opened[(i - 2 * lead) % nopened]);
		if (state->search->paused)
		{
			for (uint32 j = i - 2 * lead + 1; j < n && j <= i + 1 - lead; j++)
				close_partition(&opened[j % nopened]);
			break;
		}
	}
}

/*
 * Searches the partitions of a region that may match.  tops[] has the block
 * numbers of the top-level pages of its n partitions, 0 for those that do not
 * exist or have been searched.
 */
static void
search_region(SearchState *state, uint32 number, uint32 n,
			  const BlockNumber *tops)
{
	BxMask		matching;
	uint32		nmatching = 0;
	uint32		numbers[BX_FANOUT];
	BlockNumber matching_tops[BX_FANOUT];

	bx_mask_fill(&matching, true);
	if (n > 1)
		probe_region(state, number, n, &matching);
	else
	{
		for (int i = 0; i < state->search->query->nelements; i++)
			bx_mask_fill(&state->masks[BX_LEVEL_GROUP][i], true);
	}

	for (int i = bx_mask_next(&matching, 0); i < n;
		 i = bx_mask_next(&matching, i + 1))
	{
		if (tops[i] == 0)
			continue;
		numbers[nmatching] = number * BX_FANOUT + i;
		matching_tops[nmatching] = tops[i];
		nmatching++;
	}
	if (nmatching > 0)
		search_partitions(state, nmatching, numbers, matching_tops);
}

/*
 * Searches all regions of the heap, in order, from search->next_range on.
 */
void
bx_partitioned_search(BxSearch *search)
{
	SearchState state;
	uint64		ranges;
	uint32		npartitions;
	uint32		start = search->next_range / BX_RANGES_PER_PARTITION;
	BlockNumber *tops;

	if (search->heap_blocks == 0)
		return;
	ranges = bx_geometry_ranges(search->heap_blocks, search->geometry.lg_base);
	npartitions = (ranges - 1) / BX_RANGES_PER_PARTITION + 1;
	tops = palloc(sizeof(BlockNumber) * npartitions);
	bx_dir_tops(search->index, 0, npartitions, tops);
	memset(tops, 0, sizeof(BlockNumber) * Min(start, npartitions));
	init_search_state(&state, search);
	for (uint32 first = start - start % BX_FANOUT;
		 first < npartitions && !search->paused; first += BX_FANOUT)
		search_region(&state, first / BX_FANOUT,
					  Min(BX_FANOUT, npartitions - first), tops + first);
}
