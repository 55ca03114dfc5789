/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  VACUUM merges groups into wider groups, and shrinks groups that are too
 *	  large.
 *
 * The bits are copied from the pages of the old groups to the pages of the new
 * group (filter/group.h).  No heap page is read and no key is hashed, so
 * VACUUM can also merge groups of indexes on expressions.  See regroup.c for
 * the steps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * The number of blocks of a merged group may be this many times the number
 * that its filters need.  All filters of a group have the size of the largest
 * one, including those of partitions that do not exist.  For a filter that an
 * earlier merge has enlarged, its present size is used.
 */
#define MAX_WASTE		1.5

/*
 * A group of which some filters have been replaced is merged with the
 * replacements, which rewrites the whole group, only if the number of
 * replacements is greater than Max(width / WIDTH_PER_REPLACEMENT,
 * MIN_REPLACEMENTS).
 */
#define WIDTH_PER_REPLACEMENT	16
#define MIN_REPLACEMENTS		2

/* What is known of the filter of a partition. */
typedef struct Filter
{
	uint32		nblocks;		/* blocks that it needs; 0 if not measured yet */
	double		keys;
	bool		mergeable;		/* it is not too full, and not damaged */
} Filter;

/* Maximum number of pages of the window; a small one for tests. */
#ifdef BX_SMALL_PARTITIONS
#define MAX_WINDOW		3
#else
#define MAX_WINDOW		BX_MERGE_PAGES
#endif

typedef struct Merge
{
	BxRepair   *repair;
	uint32		number;			/* of the region */
	BxRegionPageData region;	/* copy of the region page */
	Filter		filters[BX_FANOUT]; /* of the partitions of the region */
	BxGroupDesc group;			/* the new group, as planned */
	BxRegroup	regroup;
	char	   *window;			/* contents of consecutive pages of the new
								 * group */
} Merge;

/*
 * Returns the group with the filter of a partition, or NULL if the partition
 * does not exist or has no filter.
 */
static const BxGroupDesc *
filter_group(const Merge *merge, int child)
{
	return merge->region.top[child] == 0 ||
		bx_groups_is_unfiltered(&merge->region, child) ? NULL :
		bx_groups_find(&merge->region, child);
}

/*
 * Measures the filter of a partition, unless that has been done.  The number
 * of blocks that the filter needs is the number of blocks of its group, halved
 * as often as the number of keys permits.
 */
static const Filter *
measure_filter(Merge *merge, int child)
{
	Filter	   *filter = &merge->filters[child];
	const BxGroupDesc *group = filter_group(merge, child);
	BxGroupMeasure measure;
	BxGroupDesc plan;

	if (filter->nblocks > 0)
		return filter;
	bx_vacuum_delay_point();
	filter->nblocks = group->nblocks;
	filter->mergeable = bx_groups_measure(merge->repair->index, merge->number,
										  group, child - group->first,
										  merge->repair->strategy, &measure) &&
		!bx_refilter_is_overfull(group, &measure);
	if (filter->mergeable)
	{
		bx_groups_plan(measure.keys, group->nblocks, 1, child, &plan);
		filter->nblocks = Min(plan.nblocks, group->nblocks);
		filter->keys = measure.keys;
	}
	return filter;
}

/*
 * Returns whether the groups that have the filters of partitions first ..
 * first + width - 1 should be merged, judging by their number and widths; or,
 * if it is a single group, whether it could be shrunk.
 */
static bool
are_groups_mergeable(const Merge *merge, int first, int width)
{
	uint32		last_generation = 0;
	int			ngroups = 0;
	int			widest = 0;
	int			replacements;

	for (int c = first; c < first + width; c++)
	{
		const BxGroupDesc *group = filter_group(merge, c);

		if (group == NULL || group->generation == last_generation)
			continue;
		last_generation = group->generation;
		ngroups++;
		widest = Max(widest, group->width);
	}

	/* a wide group between replacements has been counted several times */
	if (widest < width)
		return ngroups > 1;
	if (widest > width || ngroups <= 1)
		return widest == width;
	replacements = 0;
	for (int c = first; c < first + width; c++)
	{
		const BxGroupDesc *group = filter_group(merge, c);

		if (group != NULL && group->width < width &&
			(c == first || group != filter_group(merge, c - 1)))
			replacements++;
	}
	return replacements > Max(width / WIDTH_PER_REPLACEMENT, MIN_REPLACEMENTS);
}

/*
 * Plans the group with the filters of partitions first .. first + width - 1.
 * Returns false if it should not be made.
 */
static bool
plan_merge(Merge *merge, int first, int width)
{
	const BxGroupDesc *last = NULL;
	bool		several = false;
	double		needed = 0;		/* sum of the blocks that are needed */
	double		keys = 0;
	BxGroupDesc *plan = &merge->group;

	if (merge->region.ngroups >= BX_MAX_GROUPS ||
		!are_groups_mergeable(merge, first, width))
		return false;
	memset(plan, 0, sizeof(*plan));
	plan->width = width;
	plan->first = first;
	for (int c = first; c < first + width; c++)
	{
		const BxGroupDesc *group = filter_group(merge, c);
		const Filter *filter;

		if (group == NULL)
			continue;
		several |= last != NULL && last != group;
		last = group;
		filter = measure_filter(merge, c);
		if (!filter->mergeable ||
			(plan->nprobes != 0 && plan->nprobes != group->nprobes))
			return false;
		plan->nprobes = group->nprobes;
		plan->nblocks = Max(plan->nblocks, filter->nblocks);
		needed += filter->nblocks;
	}
	for (int c = first; c < first + width; c++)
	{
		const BxGroupDesc *group = filter_group(merge, c);

		if (group == NULL)
			continue;
		if (!bx_group_can_copy(group->nblocks, plan->nblocks))
			return false;

		/* if blocks are copied, the keys will be counted several times */
		keys = Max(keys, merge->filters[c].keys *
				   Max(1, plan->nblocks / group->nblocks));
	}
	plan->keys = (uint32) Min(ceil(keys), (double) PG_UINT32_MAX);
	if (bx_groups_pages(plan) > BX_MERGE_PAGES)
		return false;
	return several ? (double) plan->nblocks * width <= MAX_WASTE * needed :
		plan->nblocks <= last->nblocks / 2;
}

/*
 * Copies a block of an old group to all its blocks of the new group that are
 * in the window, which begins with block window_start.
 */
static void
copy_block(Merge *merge, const BxGroupDesc *source, const char *content,
		   uint32 block, const BxMask *columns, uint32 window_start,
		   uint32 window_end)
{
	const BxGroupDesc *target = &merge->regroup.group;
	uint32		per_page = bx_group_page_blocks(target->width);
	uint32		first = bx_group_block_of(block, source->nblocks,
										  target->nblocks);
	uint32		end = bx_group_block_of(block + 1, source->nblocks,
										target->nblocks);

	end = Min(Max(end, first + 1), window_end);
	for (uint32 b = Max(first, window_start); b < end; b++)
		bx_group_merge(content, source->width,
					   block % bx_group_page_blocks(source->width), columns,
					   merge->window +
					   (Size) ((b - window_start) / per_page) * BX_SLICE_SIZE,
					   target->width, b % per_page,
					   source->first - target->first, BX_SLICE_ROWS);
}

/*
 * Copies the given columns of an old group to the window.  window_start and
 * window_end are blocks of the new group.
 */
static void
copy_group(Merge *merge, const BxGroupDesc *source, const BxMask *columns,
		   uint32 window_start, uint32 window_end)
{
	Relation	index = merge->repair->index;
	uint32		nblocks = merge->regroup.group.nblocks;
	uint32		per_page = bx_group_page_blocks(source->width);
	uint32		first = bx_group_block_of(window_start, nblocks,
										  source->nblocks);
	uint32		last = bx_group_block_of(window_end, nblocks,
										 source->nblocks);
	char	   *content = palloc(BX_SLICE_SIZE);

	/* last is in the window, too, if it is shared with the next window */
	last = Min(last, source->nblocks - 1);
	for (uint32 page = first / per_page; page <= last / per_page; page++)
	{
		const char *problem;
		Buffer		buffer;

		bx_vacuum_delay_point();
		buffer = bx_groups_read(index, merge->number, source, page,
								merge->repair->strategy, &problem);
		if (problem != NULL)
			bx_page_corrupted(index, source->start + page, problem);
		memcpy(content, BxPageGetContent(BufferGetPage(buffer)),
			   BX_SLICE_SIZE);
		UnlockReleaseBuffer(buffer);
		for (uint32 block = Max(page * per_page, first);
			 block <= last && block / per_page == page; block++)
			copy_block(merge, source, content, block, columns, window_start,
					   window_end);
	}
	pfree(content);
}

/* Fills the window from all old groups; see copy_group(). */
static void
fill_window(Merge *merge, uint32 window_start, uint32 window_end)
{
	const BxRegionPageData *region = &merge->region;

	for (uint32 i = 0; i < region->ngroups; i++)
	{
		const BxGroupDesc *source = &region->group[i];
		BxMask		columns;

		bx_mask_fill(&columns, false);
		for (int c = source->first; c < source->first + source->width; c++)
		{
			if (bx_mask_test(&merge->regroup.members, c) &&
				filter_group(merge, c) == source)
				bx_mask_set(&columns, c - source->first);
		}
		if (!bx_mask_is_empty(&columns))
			copy_group(merge, source, &columns, window_start, window_end);
	}
}

/*
 * Step 3: copies the bits of all members.  As many pages as fit in memory are
 * filled at a time.
 */
static void
fill_group(Merge *merge)
{
	const BxGroupDesc *group = &merge->regroup.group;
	uint32		npages = bx_groups_pages(group);
	uint32		per_page = bx_group_page_blocks(group->width);
	uint32		window = Max(1, merge->repair->memory / 8 * 7 / BX_SLICE_SIZE);

	window = Min(Min(window, npages), MAX_WINDOW);
	merge->window = palloc_extended((Size) window * BX_SLICE_SIZE,
									MCXT_ALLOC_HUGE);
	for (uint32 first = 0; first < npages; first += window)
	{
		uint32		end = Min(first + window, npages);

		memset(merge->window, 0, (Size) window * BX_SLICE_SIZE);
		fill_window(merge, first * per_page,
					Min(end * per_page, group->nblocks));
		for (uint32 page = first; page < end; page++)
		{
			bx_vacuum_delay_point();
			bx_groups_merge_page(merge->repair->index, merge->number, group,
								 page, merge->window +
								 (Size) (page - first) * BX_SLICE_SIZE,
								 merge->repair->strategy);
		}
	}
	pfree(merge->window);
}

/*
 * Returns whether a member did not exist when the region page was copied.  The
 * merge would not copy its filter.
 */
static bool
has_new_member(const Merge *merge)
{
	for (int c = 0; c < BX_FANOUT; c++)
	{
		if (bx_mask_test(&merge->regroup.members, c) &&
			merge->region.top[c] == 0)
			return true;
	}
	return false;
}

/* Makes the group that has been planned. */
static void
make_merged_group(void *arg)
{
	Merge	   *merge = arg;

	BX_PAUSE(BX_PAUSE_MERGE_PLANNED);
	bx_regroup_begin(&merge->regroup, merge->repair->index, merge->number,
					 &merge->group);
	if (has_new_member(merge))
	{
		bx_regroup_abandon(&merge->regroup);
		return;
	}
	fill_group(merge);
	BX_PAUSE(BX_PAUSE_GROUP_FILLED);
	if (bx_regroup_finish(&merge->regroup, false, &merge->repair->freed_pages))
		merge->repair->merges++;
}

static void
give_up_merge(void *arg)
{
	Merge	   *merge = arg;

	if (merge->regroup.index != NULL)
		bx_regroup_abandon(&merge->regroup);
}

/*
 * Makes the group that has been planned, if possible.  Returns false if this
 * fails; the caller then stops, because other merges would probably fail, too.
 */
static bool
try_merge(Merge *merge)
{
	BxRepair   *repair = merge->repair;
	BlockNumber index_blocks = 0;
	bool		succeeded;

	memset(&merge->regroup, 0, sizeof(merge->regroup));
	succeeded = bx_repair_try(repair, make_merged_group, give_up_merge, merge);
	memset(merge->filters, 0, sizeof(merge->filters));
	(void) bx_dir_read_region(repair->index, merge->number, &index_blocks,
							  &merge->region);
	return succeeded;
}

/*
 * Merges the groups of a region as far as this is useful: the widest new
 * groups first.  The last of the npartitions partitions of the index is left
 * alone, with its group, because it is still growing.  Returns false if a
 * merge fails.
 */
bool
bx_merge_region(BxRepair *repair, uint32 region, uint32 npartitions)
{
	Merge	   *merge = palloc0(sizeof(Merge));
	BlockNumber index_blocks = 0;
	bool		succeeded = true;

	merge->repair = repair;
	merge->number = region;
	if (!bx_dir_read_region(repair->index, region, &index_blocks,
							&merge->region))
		merge->region.ngroups = 0;
	for (int width = BX_MERGE_WIDTH; width > 0 && succeeded; width /= 2)
	{
		for (int first = 0; first < BX_FANOUT && succeeded; first += width)
		{
			CHECK_FOR_INTERRUPTS();
			if (merge->region.ngroups > 0 &&
				(uint64) region * BX_FANOUT + first + width < npartitions &&
				plan_merge(merge, first, width))
				succeeded = try_merge(merge);
		}
	}
	pfree(merge);
	return succeeded;
}
