/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  The part of layout "partitioned" for the functions that show, verify and
 *	  estimate an index.
 *
 * These functions run concurrently with inserts, and VACUUM may replace the
 * slices of a node meanwhile.  A page that does not match its descriptor is
 * damaged only if the descriptor, when read again, has not changed; see
 * src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * Showing
 * -------
 */
typedef struct WalkState
{
	Relation	index;
	const BxMetaPageData *meta;
	bool		has_filters;	/* partitions should have filters in groups */
	uint32		shadow_group;	/* generation of the last group that was shown
								 * as a shadow */
	BxPartCallback callback;
	void	   *arg;
} WalkState;

static void
show_directory_page(WalkState *state, BlockNumber blkno)
{
	BxPart		part = {.kind = BX_PART_DIRECTORY,.block = blkno,.pages = 1};

	state->callback(state->arg, &part);
}

/*
 * Fills in *part from the descriptor of a node, and if it has slices, from a
 * measurement of its filters.  blkno is the block of the top-level page.
 */
static void
describe_node(WalkState *state, BxNode *node, BlockNumber blkno, BxPart *part)
{
	BlockNumber index_blocks = 0;

	bx_dir_check_desc(state->index, blkno, &node->desc, &index_blocks);
	while (node->desc.state == BX_NODE_PRESENT &&
		   !bx_slices_measure(state->index, node, NULL, &part->measure))
		bx_dir_refresh(state->index, node, node->desc.start, BX_WRONG_PAGE);
	part->number = node->number;
	part->nranges = bx_level_ranges(node->level);
	part->first_range = node->number * part->nranges;
	part->block = node->desc.start;
	part->pages = node->desc.nslices;
	part->probes = node->desc.nprobes;
	part->planned_keys = node->desc.keys;
	part->doubt = (node->desc.flags & BX_DESC_DOUBT) != 0;
	part->overfull = node->desc.state == BX_NODE_PRESENT &&
		bx_rebuild_is_overfull(&node->desc, &part->measure,
							   bx_node_rate(node->level, node->number,
											state->meta));
}

/* Shows a summary.  Returns its false-positive rate, or 1 if there is none. */
static double
show_summary(WalkState *state, uint32 partition, BlockNumber blkno,
			 const BxTopPageData *top)
{
	BxPart		part = {.kind = BX_PART_SUMMARY};
	BxNode		node;
	int			doubtful;
	int			segments = bx_node_count_segments(top, &doubtful);

	bx_node_of_slot(partition, BX_SLOT_SUMMARY, top, &node);
	describe_node(state, &node, blkno, &part);
	part.missing = node.desc.state == BX_NODE_UNKNOWN &&
		bx_rebuild_wants_summary(partition, segments);
	state->callback(state->arg, &part);
	return part.pages > 0 ? part.measure.rate : 1;
}

static void
show_shadow(WalkState *state, BlockNumber start, uint32 npages)
{
	BxPart		part = {.kind = BX_PART_SHADOW,.block = start,.pages = npages};

	state->callback(state->arg, &part);
}

/*
 * Shows the shadows of a partition.  If a group is the shadow of several
 * partitions, its pages are shown with the first of them; if the region page
 * has the group already, they have been shown with the groups.
 */
static void
show_shadows(WalkState *state, uint32 partition, BlockNumber blkno,
			 const BxTopPageData *top, const BxRegionPageData *region)
{
	const BxGroupDesc *group = &top->group_shadow;
	BlockNumber index_blocks = 0;

	if (top->shadow.desc.state != BX_NODE_EMPTY)
		show_shadow(state, top->shadow.desc.start, top->shadow.desc.nslices);
	if (group->width == 0)
		return;
	bx_groups_check(state->index, blkno, group, partition % BX_FANOUT,
					&index_blocks);
	show_shadow(state, group->start,
				group->generation == state->shadow_group ||
				bx_groups_by_generation(region, group->generation) != NULL ?
				0 : bx_groups_pages(group));
	state->shadow_group = group->generation;
}

/*
 * Shows the filter of a partition in its group.  Returns its false-positive
 * rate, or 1 if there is none.
 */
static double
show_filter(WalkState *state, uint32 partition, const BxRegionPageData *region)
{
	BxPart		part = {.kind = BX_PART_PARTITION,.number = partition};
	int			child = partition % BX_FANOUT;
	const BxGroupDesc *group = bx_groups_find(region, child);
	BxGroupMeasure measure = {.rate = 1};

	if (group == NULL || bx_groups_is_unfiltered(region, child))
		part.missing = state->has_filters;
	else if (bx_groups_measure(state->index, partition / BX_FANOUT, group,
							   child - group->first, NULL, &measure))
	{
		part.measure.all_keys = measure.keys;
		part.overfull = bx_refilter_is_overfull(group, &measure);
	}
	else
	{
		bx_groups_check_gone(state->index, partition / BX_FANOUT, group,
							 group->start, BX_WRONG_PAGE);
		measure.rate = 1;		/* not known */
	}
	part.measure.rate = measure.rate;
	state->callback(state->arg, &part);
	return measure.rate;
}

static void
show_partition(WalkState *state, uint32 partition, BlockNumber blkno,
			   const BxRegionPageData *region)
{
	BxTopPageData top;
	double		upper_rate;

	show_directory_page(state, blkno);
	if (!bx_dir_read_top(state->index, partition, &top))
		return;
	upper_rate = show_filter(state, partition, region);
	upper_rate *= show_summary(state, partition, blkno, &top);
	show_shadows(state, partition, blkno, &top, region);
	for (int c = 0; c < BX_FANOUT; c++)
	{
		BxPart		part = {.kind = BX_PART_FILTERS,.upper_rate = upper_rate};
		BxNode		node;

		CHECK_FOR_INTERRUPTS();
		bx_node_of_slot(partition, BX_SLOT_SEGMENT(c), &top, &node);
		if (node.desc.state == BX_NODE_EMPTY)
			continue;
		describe_node(state, &node, blkno, &part);
		state->callback(state->arg, &part);
	}
}

/* Region callback: shows a region, its groups and its partitions. */
static void
show_region(void *arg, uint32 number, BlockNumber blkno,
			const BxRegionPageData *region)
{
	WalkState  *state = arg;

	show_directory_page(state, blkno);
	for (uint32 i = 0; i < region->ngroups; i++)
	{
		BxPart		part = {.kind = BX_PART_GROUP};

		part.block = region->group[i].start;
		part.pages = bx_groups_pages(&region->group[i]);
		state->callback(state->arg, &part);
	}
	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (region->top[i] != 0)
			show_partition(state, number * BX_FANOUT + i, region->top[i],
						   region);
	}
}

/* Region callback: finds out whether there is more than one partition. */
static void
find_second_partition(void *arg, uint32 number, BlockNumber blkno,
					  const BxRegionPageData *region)
{
	WalkState  *state = arg;

	for (int i = 0; i < BX_FANOUT; i++)
		state->has_filters |= region->top[i] != 0 && number * BX_FANOUT + i > 0;
}

void
bx_partitioned_walk(Relation index, const BxMetaPageData *meta,
					BxPartCallback callback, void *arg)
{
	WalkState	state = {.index = index,.meta = meta,.callback = callback,.arg = arg};

	show_directory_page(&state, BX_METAPAGE_BLKNO);
	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
	{
		if (meta->partitioned.map[i] != 0)
			show_directory_page(&state, meta->partitioned.map[i]);
	}
	bx_dir_each_region(index, meta, find_second_partition, &state);
	bx_dir_each_region(index, meta, show_region, &state);
}

/*
 * Checking references to pages
 * ----------------------------
 */
typedef struct ClaimState
{
	BxCheck    *check;
	const BxMetaPageData *meta;
	BlockNumber index_blocks;
	uint32		newest_generation;	/* the largest one that was found */
	BlockNumber newest_blkno;	/* where it was found */
	BxGroupDesc shadow_group;	/* the last group that was claimed as a shadow */
} ClaimState;

/* Remembers a generation that was found at blkno. */
static void
note_generation(ClaimState *state, BlockNumber blkno, uint32 generation)
{
	if (generation >= state->newest_generation)
	{
		state->newest_generation = generation;
		state->newest_blkno = blkno;
	}
}

/*
 * Verifies a descriptor of the top-level page at blkno, and claims the pages
 * that it references.
 */
static void
claim_node(ClaimState *state, BlockNumber blkno, const BxNodeDesc *desc)
{
	BxCheck    *check = state->check;
	BxNodeDesc	nothing = {.state = desc->state};

	bx_dir_check_desc(check->index, blkno, desc, &state->index_blocks);
	if (desc->state != BX_NODE_PRESENT)
	{
		if (memcmp(desc, &nothing, sizeof(nothing)) != 0)
			bx_page_corrupted(check->index, blkno,
							  "impossible directory entry");
		return;
	}
	if ((desc->flags & ~BX_DESC_DOUBT) != 0)
		bx_page_corrupted(check->index, blkno, "impossible directory entry");

	if (desc->generation == 0)
		bx_page_corrupted(check->index, blkno, "impossible directory entry");
	note_generation(state, blkno, desc->generation);
	bx_check_claim(check, blkno, desc->start, desc->nslices);
}

/* Claims the pages of a group that is referenced at blkno. */
static void
claim_group(ClaimState *state, BlockNumber blkno, const BxGroupDesc *group)
{
	bx_groups_check(state->check->index, blkno, group, -1,
					&state->index_blocks);
	note_generation(state, blkno, group->generation);
	bx_check_claim(state->check, blkno, group->start, bx_groups_pages(group));
}

/*
 * Verifies the groups of a top-level page at blkno, and claims the pages of
 * the groups that are not in the region page.  A group can be the shadow of
 * several partitions, one after the other.  Inserters must set their bits in
 * the filter that searches read.
 */
static void
claim_groups_of_top(ClaimState *state, uint32 partition, BlockNumber blkno,
					const BxTopPageData *top, const BxRegionPageData *region)
{
	BxGroupDesc nothing = {0};
	int			child = partition % BX_FANOUT;
	const BxGroupDesc *current = bx_groups_find(region, child);
	const BxGroupDesc *groups[] = {&top->group, &top->group_shadow};

	for (int i = 0; i < lengthof(groups); i++)
	{
		if (groups[i]->width == 0)
		{
			if (memcmp(groups[i], &nothing, sizeof(nothing)) != 0)
				bx_page_corrupted(state->check->index, blkno,
								  "impossible group");
			continue;
		}
		bx_groups_check(state->check->index, blkno, groups[i], child,
						&state->index_blocks);
		if (bx_groups_by_generation(region, groups[i]->generation) == NULL &&
			memcmp(groups[i], &state->shadow_group, sizeof(nothing)) != 0)
		{
			claim_group(state, blkno, groups[i]);
			state->shadow_group = *groups[i];
		}
	}
	if (!bx_groups_is_unfiltered(region, child) &&
		(current == NULL ||
		 (current->generation != top->group.generation &&
		  current->generation != top->group_shadow.generation)))
		bx_check_contradiction(state->check, blkno,
							   "group that searches do not use");
}

static void
claim_partition(ClaimState *state, uint32 partition, BlockNumber blkno,
				const BxRegionPageData *region)
{
	BxCheck    *check = state->check;
	BxTopPageData top;
	BxShadow	nothing = {0};
	int			doubtful;

	CHECK_FOR_INTERRUPTS();
	bx_check_claim(check, bx_dir_region(check->index, partition / BX_FANOUT),
				   blkno, 1);
	if (!bx_dir_read_top(check->index, partition, &top))
		return;
	claim_groups_of_top(state, partition, blkno, &top, region);
	claim_node(state, blkno, &top.shadow.desc);
	for (int slot = 0; slot < BX_TOP_SLOTS; slot++)
		claim_node(state, blkno, &top.node[slot]);

	/* an empty summary matches nothing */
	if (top.node[BX_SLOT_SUMMARY].state == BX_NODE_EMPTY &&
		bx_node_count_segments(&top, &doubtful) > 0)
		bx_page_corrupted(check->index, blkno,
						  "empty summary of segments that are not empty");
	if (top.shadow.desc.state == BX_NODE_UNKNOWN ||
		(top.shadow.desc.state == BX_NODE_EMPTY ?
		 memcmp(&top.shadow, &nothing, sizeof(nothing)) != 0 :
		 top.shadow.slot >= BX_TOP_SLOTS))
		bx_page_corrupted(check->index, blkno, "impossible shadow");
}

/* Region callback: claims a region page and the pages that it references. */
static void
claim_region(void *arg, uint32 number, BlockNumber blkno,
			 const BxRegionPageData *region)
{
	ClaimState *state = arg;

	bx_check_claim(state->check,
				   state->meta->partitioned.map[number / BX_REGIONS_PER_MAP],
				   blkno, 1);
	for (uint32 i = 0; i < region->ngroups; i++)
		claim_group(state, blkno, &region->group[i]);
	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (region->top[i] != 0)
			claim_partition(state, number * BX_FANOUT + i, region->top[i],
							region);
		else if (!bx_groups_is_unfiltered(region, i))
			bx_page_corrupted(state->check->index, blkno,
							  "filter of a partition that does not exist");
	}
}

/*
 * Claims the pages that are free in two copies of the metapage: one read
 * before the directory, and one read after it.  A page that is free in only
 * one of them was allocated or freed meanwhile.  Extents beyond the end of
 * the file are ignored.
 */
static void
claim_free_pages(BxCheck *check, const BxPartitionedMeta *before,
				 const BxPartitionedMeta *after)
{
	for (uint32 i = 0; i < before->nfree; i++)
	{
		for (uint32 j = 0; j < after->nfree; j++)
		{
			uint64		start = Max(before->free[i].start, after->free[j].start);
			uint64		end = Min((uint64) before->free[i].start +
								  before->free[i].npages,
								  (uint64) after->free[j].start +
								  after->free[j].npages);

			if (start < end && end <= check->nblocks)
				bx_check_claim(check, BX_METAPAGE_BLKNO, (BlockNumber) start,
							   (uint32) (end - start));
		}
	}
}

/*
 * Claims the pages that the directory references, and the free pages.  *meta
 * was read before.  The metapage is read again after the directory, because
 * an entry that was added meanwhile is not a contradiction.
 */
void
bx_partitioned_check_claims(BxCheck *check, const BxMetaPageData *meta)
{
	ClaimState	state = {check, meta, 0};
	BxMetaPageData after;

	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
	{
		if (meta->partitioned.map[i] != 0)
			bx_check_claim(check, BX_METAPAGE_BLKNO, meta->partitioned.map[i],
						   1);
	}

	/* drop the cached block numbers, which may differ from the map pages */
	bx_geometry_forget(check->index);
	bx_dir_each_region(check->index, meta, claim_region, &state);
	bx_meta_read(check->index, &after);

	/* a generation that is used twice would make an old page look current */
	if (state.newest_generation >= after.partitioned.next_generation)
		bx_check_contradiction(check, state.newest_blkno,
							   "generation that the metapage has not assigned yet");
	claim_free_pages(check, &meta->partitioned, &after.partitioned);
}

/*
 * Checking pages
 * --------------
 */

/*
 * Returns a description of what is wrong with the rows of a slice page, or
 * NULL.  A bit in the hole between pd_lower and pd_upper would be lost when
 * the page is restored from a full-page image in WAL.
 */
static const char *
find_problem_of_rows(Page page)
{
	const uint64 *words = (const uint64 *) BxPageGetContent(page);

	if (((PageHeader) page)->pd_lower == BX_SLICE_LOWER_FULL)
		return NULL;
	for (int i = 0; i < BX_SLICE_SIZE / sizeof(uint64); i++)
	{
		if (words[i] != 0)
			return "bits outside of the page's content";
	}
	return NULL;
}

static void
check_node(BxCheck *check, BxNode *node, BlockNumber top)
{
	BlockNumber index_blocks = 0;
	uint32		slice = 0;

	bx_dir_check_desc(check->index, top, &node->desc, &index_blocks);
	while (node->desc.state == BX_NODE_PRESENT && slice < node->desc.nslices)
	{
		BlockNumber blkno = node->desc.start + slice;
		const char *problem;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = bx_slices_read(check->index, node, slice, check->strategy,
								&problem);
		if (problem == NULL)
			problem = find_problem_of_rows(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		slice++;
		if (problem != NULL)
		{
			bx_dir_refresh(check->index, node, blkno, problem);
			slice = 0;
		}
	}
}

static void
check_partition(BxCheck *check, uint32 partition, BlockNumber blkno)
{
	BxTopPageData top;
	BxNode		node;

	if (!bx_dir_read_top(check->index, partition, &top))
		return;
	for (int slot = 0; slot < BX_TOP_SLOTS; slot++)
	{
		bx_node_of_slot(partition, slot, &top, &node);
		check_node(check, &node, blkno);
	}

	/*
	 * a shadow swapped in meanwhile is now a node already visited; it is
	 * skipped
	 */
	if (bx_node_of_shadow(partition, &top, &node))
		check_node(check, &node, blkno);
}

/* Verifies the pages of a group, unless it is replaced meanwhile. */
static void
check_group(BxCheck *check, uint32 number, const BxGroupDesc *group)
{
	for (uint32 i = 0; i < bx_groups_pages(group); i++)
	{
		const char *problem;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = bx_groups_read(check->index, number, group, i,
								check->strategy, &problem);
		if (problem == NULL)
			problem = find_problem_of_rows(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		if (problem != NULL)
		{
			bx_groups_check_gone(check->index, number, group,
								 group->start + i, problem);
			return;
		}
	}
}

/* Region callback: verifies the pages of a region. */
static void
check_region(void *arg, uint32 number, BlockNumber blkno,
			 const BxRegionPageData *region)
{
	BxCheck    *check = arg;

	for (uint32 i = 0; i < region->ngroups; i++)
		check_group(check, number, &region->group[i]);
	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (region->top[i] != 0)
			check_partition(check, number * BX_FANOUT + i, region->top[i]);
	}
}

void
bx_partitioned_check_pages(BxCheck *check)
{
	BxMetaPageData meta;

	bx_meta_read(check->index, &meta);
	bx_dir_each_region(check->index, &meta, check_region, check);
}

/*
 * Checking keys
 * -------------
 *
 * The rows are those that a snapshot sees, and descriptors are copied after
 * the snapshot was taken, so the argument for searches in src/README applies
 * here as well.
 */
typedef struct KeyState
{
	bool		loaded;
	uint32		partition;
	BlockNumber blkno;			/* block of its top-level page, 0 if it has
								 * none */
	BxTopPageData top;
	bool		has_group;
	BxGroupDesc group;			/* group with the partition's filter, if
								 * has_group */
	uint64	   *hashes;			/* hashes of the keys for the current level */
	Size		allocated;
} KeyState;

/* sorts hashes in the order of their slices */
#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) \
	((uint32) *(a) < (uint32) *(b) ? -1 : (uint32) *(a) > (uint32) *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Finds the group that has the filter of the current partition. */
static void
load_group(BxCheck *check, KeyState *state)
{
	uint32		number = state->partition / BX_FANOUT;
	int			child = state->partition % BX_FANOUT;
	BxRegionPageData *region = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;
	const BxGroupDesc *group;

	(void) bx_dir_read_region(check->index, number, &index_blocks, region);
	group = bx_groups_find(region, child);
	state->has_group = group != NULL && !bx_groups_is_unfiltered(region, child);
	if (state->has_group)
		state->group = *group;
	pfree(region);
}

static void
load_partition(BxCheck *check, KeyState *state, uint32 partition)
{
	if (state->loaded && state->partition == partition)
		return;
	state->partition = partition;
	state->blkno = 0;
	state->has_group = false;
	if (bx_dir_read_top(check->index, partition, &state->top))
	{
		bx_dir_tops(check->index, partition, 1, &state->blkno);
		load_group(check, state);
	}
	state->loaded = true;
}

/*
 * Looks up the keys of a range in the filter of its partition.  If the group
 * has been replaced meanwhile, the new one is used.
 */
static void
check_group_keys(BxCheck *check, KeyState *state, uint32 range,
				 const uint64 *keys, Size nkeys)
{
	uint32		number = state->partition / BX_FANOUT;
	Size		i = 0;

	while (state->has_group && i < nkeys)
	{
		const BxGroupDesc *group = &state->group;
		uint32		per_page = bx_group_page_blocks(group->width);
		uint64		lh = bx_filter_level_hash(keys[i], BX_LEVEL_GROUP);
		uint32		block = bx_filter_slice(lh, group->nblocks);
		BlockNumber blkno = group->start + block / per_page;
		bool		found = false;
		const char *problem;
		Buffer		buffer;

		buffer = bx_groups_read(check->index, number, group, block / per_page,
								NULL, &problem);
		if (problem == NULL)
			found = bx_group_test(BxPageGetContent(BufferGetPage(buffer)),
								  BX_SLICE_ROWS, group->width,
								  block % per_page, group->nprobes, lh,
								  state->partition % BX_FANOUT - group->first);
		UnlockReleaseBuffer(buffer);
		if (problem != NULL)
		{
			bx_groups_check_gone(check->index, number, group, blkno, problem);
			load_group(check, state);
			i = 0;
		}
		else if (!found)
			bx_check_lost_key(check, blkno, range, "the partition's filter");
		else
			i++;
	}
}

/*
 * Looks up the hashes, one slice at a time, in the filter of a child.  Raises
 * an error if one is missing.
 */
static void
check_hashes(BxCheck *check, BxNode *node, BlockNumber top, uint32 range,
			 const uint64 *hashes, Size n)
{
	int			child = bx_level_child(node->level, range);
	Size		i = 0;

	while (i < n && node->desc.state == BX_NODE_PRESENT)
	{
		uint32		slice = bx_filter_slice(hashes[i], node->desc.nslices);
		BlockNumber blkno = node->desc.start + slice;
		bool		found = true;
		const char *problem;
		Buffer		buffer;

		buffer = bx_slices_read(check->index, node, slice, NULL, &problem);
		while (problem == NULL && found && i < n &&
			   bx_filter_slice(hashes[i], node->desc.nslices) == slice)
			found = bx_filter_test(BxPageGetContent(BufferGetPage(buffer)),
								   BX_SLICE_ROWS, node->desc.nprobes,
								   hashes[i++], child);
		UnlockReleaseBuffer(buffer);
		if (problem != NULL)
		{
			bx_dir_refresh(check->index, node, blkno, problem);
			i = 0;
		}
		else if (!found)
			bx_check_lost_key(check, blkno, range,
							  bx_levels[node->level].filter);
	}
	if (n > 0 && node->desc.state == BX_NODE_EMPTY)
		bx_check_lost_key(check, top, range, "the directory");
}

/* Looks up the keys of a range on one level. */
static void
check_level(BxCheck *check, KeyState *state, int level, uint32 range,
			const uint64 *keys, Size nkeys)
{
	BxNode		node = {.level = level,.number = bx_level_node(level, range)};
	BxNodeDesc *desc = bx_node_desc(&node, &state->top);
	BlockNumber index_blocks = 0;

	node.desc = *desc;
	bx_dir_check_desc(check->index, state->blkno, &node.desc, &index_blocks);
	if (nkeys > state->allocated)
	{
		state->allocated = nkeys + nkeys / 2;
		if (state->hashes)
			pfree(state->hashes);
		state->hashes = palloc_extended(sizeof(uint64) * state->allocated,
										MCXT_ALLOC_HUGE);
	}
	for (Size i = 0; i < nkeys; i++)
		state->hashes[i] = bx_filter_level_hash(keys[i], level);
	sort_hashes(state->hashes, nkeys);
	check_hashes(check, &node, state->blkno, range, state->hashes, nkeys);

	/* keep the descriptor, which may have been refreshed */
	*desc = node.desc;
}

void
bx_partitioned_check_keys(BxCheck *check, uint32 range, const uint64 *keys,
						  Size nkeys)
{
	KeyState   *state = check->layout_state;

	if (state == NULL)
		state = check->layout_state = palloc0(sizeof(KeyState));
	load_partition(check, state, bx_level_node(BX_LEVEL_PARTITION, range));
	if (nkeys > 0 && state->blkno == 0)
		bx_check_lost_key(check, BX_METAPAGE_BLKNO, range, "the directory");
	check_group_keys(check, state, range, keys, nkeys);
	for (int level = BX_TOP_LEVEL; level > 0; level--)
		check_level(check, state, level, range, keys, nkeys);
}

/*
 * Estimating
 * ----------
 */

/*
 * Returns the expected number of slices of a node.  The keys per child are not
 * known exactly and differ between nodes, so that some nodes have a slice more
 * or less; therefore the result is the mean over 0.97, 1 and 1.03 times the
 * number of keys.
 */
static double
expect_slices(double keys, double rate)
{
	return (bx_filter_plan(keys * 0.97, rate, BX_SLICE_ROWS).nslices +
			bx_filter_plan(keys, rate, BX_SLICE_ROWS).nslices +
			bx_filter_plan(keys * 1.03, rate, BX_SLICE_ROWS).nslices) / 3.0;
}

/*
 * Returns the expected number of pages of the groups of an index, and fills in
 * their statistics.  The partitions are divided among groups as in build.c.
 */
static double
expect_groups(const BxTableModel *model, double partition_pages,
			  double partitions, BxStats *stats)
{
	double		keys = model->keys(model, partition_pages);
	BxGroupDesc plan;
	double		pages = 0;

	stats->partitioned.unfiltered = partitions;
	if (partitions < 2)
		return 0;
	bx_groups_plan(keys, 0, 1, 0, &plan);
	for (double rest = partitions; rest > 0;)
	{
		int			width = BX_BUILD_WIDTH;

		while (width > rest)
			width /= 2;
		pages += bx_group_pages(plan.nblocks, width);
		rest -= width;
		stats->partitioned.groups++;
	}
	stats->partitioned.unfiltered = 0;
	stats->partitioned.group_rate = bx_filter_rate(keys, plan.nblocks,
												   BX_SLICE_ROWS, plan.nprobes);
	return pages;
}

/*
 * Adds to *stats the slices of n segments, and the rates of their filters, as
 * a sum.
 */
static void
expect_segments(double keys, bool summarized, double n, double rate,
				BxStats *stats)
{
	double		target = bx_segment_rate(summarized, rate);
	BxPlan		plan = bx_filter_plan(keys, target, BX_SLICE_ROWS);

	stats->parts += n;
	stats->partitioned.slices += n * expect_slices(keys, target);
	stats->range_rate += n * bx_filter_rate(keys, plan.nslices, BX_SLICE_ROWS,
											plan.nprobes);
}

/*
 * Returns the number of pages of an index that CREATE INDEX would build
 * (build.c), and fills in its statistics.
 */
double
bx_partitioned_estimate(const BxTableModel *model, uint8 lg_base, double rate,
						BxStats *stats)
{
	double		pages_per_range = 1 << lg_base;
	double		segment_pages = pages_per_range * BX_FANOUT;
	double		segments = ceil(model->heap_pages / segment_pages);
	double		partitions = ceil(segments / BX_SEGMENTS_PER_PARTITION);
	double		regions = ceil(partitions / BX_FANOUT);
	double		maps = ceil(regions / BX_REGIONS_PER_MAP);
	double		range_keys = model->keys(model, pages_per_range);
	double		segment_keys = model->keys(model, segment_pages);
	double		unsummarized = 0;
	double		summary_rate = bx_summary_rate(partitions, rate);
	BxPlan		summary = bx_filter_plan(segment_keys, summary_rate,
										 BX_SLICE_ROWS);
	double		summarized = partitions;

	if (floor(model->heap_pages / segment_pages) < BX_MIN_SEGMENTS_FOR_SUMMARY)
	{
		summarized = Max(partitions - 1, 0);
		unsummarized = Min(segments, BX_SEGMENTS_PER_PARTITION);
	}
	memset(stats, 0, sizeof(*stats));
	expect_segments(range_keys, false, unsummarized, rate, stats);
	expect_segments(range_keys, true, segments - unsummarized, rate, stats);
	stats->range_rate /= Max(segments, 1);
	stats->partitioned.partitions = partitions;
	stats->partitioned.summarized = summarized;
	stats->range_keys = range_keys;
	stats->partitioned.summary_rate = bx_filter_rate(segment_keys, summary.nslices,
													 BX_SLICE_ROWS, summary.nprobes);
	return 1 + maps + regions + partitions + stats->partitioned.slices +
		expect_groups(model, segment_pages * BX_SEGMENTS_PER_PARTITION, partitions, stats) +
		summarized * expect_slices(segment_keys, summary_rate);
}
