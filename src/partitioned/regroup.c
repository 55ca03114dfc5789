/*-------------------------------------------------------------------------
 *
 * regroup.c
 *	  VACUUM's repair of the filters of partitions: creates missing filters,
 *	  and rebuilds filters that are too full or too large.
 *
 * A new filter is a group of width 1, which takes the place of the
 * partition's column in a wider group:
 *
 *	1. Count the keys of the partition in the heap.
 *	2. Allocate the group, and publish it as the shadow in the top-level
 *	   page.  From now on inserters set their bits in both.
 *	3. Read the heap pages of the partition, and add their keys.
 *	4. Enter the group in the region page, behind the other groups, so that
 *	   searches use it.
 *	5. Make the shadow the group of the top-level page.
 *	6. Remove groups that no partition uses any more from the region page, and
 *	   free their pages.
 *
 * Steps 2, 4, 5 and 6 hold LockPage on the metapage.  So does an insert that
 * creates a group, from looking at the region page until it enters the group;
 * otherwise its group, of which all columns are empty, could be entered behind
 * ours.
 *
 * No row is lost: a search that copied the region page before step 4 reads the
 * old filter, in which inserters set their bits until step 5.  A row that is
 * inserted later is not visible to the snapshot of that search.
 *
 * An error before step 4 drops the shadow, which the region page does not know.
 * After step 4 searches use the new group, so that the rebuild is continued
 * with step 5 instead.  After a crash the next VACUUM does the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "partitioned.h"

typedef struct Regroup
{
	BxRepair   *repair;
	uint8		lg_base;
	uint32		partition;
	BxTopPageData top;
	bool		growing;		/* more keys are expected */
	BxDistinct	distinct;
	BxColumn	column;
	bool		doubt;			/* some keys are not known */
} Regroup;

/* Range callback: counts distinct keys. */
static void
count_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	Regroup    *regroup = arg;

	for (Size i = 0; i < nkeys; i++)
		bx_distinct_add(&regroup->distinct, keys[i]);
}

/* Range callback: adds keys to the filter. */
static void
add_range_to_column(void *arg, uint32 range, double done, const uint64 *keys,
					Size nkeys, bool doubt)
{
	Regroup    *regroup = arg;

	bx_column_add(&regroup->column, keys, nkeys);
	regroup->doubt |= doubt;
}

/* Calls callback() with the keys of all ranges of the partition. */
static void
scan_partition(Regroup *regroup, BxRangeCallback callback)
{
	bx_repair_scan_ranges(regroup->repair, regroup->lg_base,
						  (uint64) regroup->partition * BX_RANGES_PER_PARTITION,
						  BX_RANGES_PER_PARTITION, callback, regroup);
}

/*
 * Step 1: counts the keys of the partition.  For a partition that is still
 * growing, plans for as many keys in the segments that do not exist yet.
 */
static double
count_keys(Regroup *regroup)
{
	double		keys;
	int			doubtful;
	int			segments = bx_node_count_segments(&regroup->top, &doubtful);

	bx_distinct_clear(&regroup->distinct);
	scan_partition(regroup, count_range);
	keys = Max(bx_distinct_estimate(&regroup->distinct), 1);
	if (regroup->growing)
		keys *= (double) BX_SEGMENTS_PER_PARTITION / Max(segments, 1);
	return keys;
}

/*
 * Step 3: fills the shadow from the heap.  As many pages as fit in memory are
 * filled at a time, and the heap is read once for each such window.
 */
static void
fill_group(Regroup *regroup, const BxGroupDesc *shadow)
{
	BxRepair   *repair = regroup->repair;
	uint32		npages = bx_groups_pages(shadow);
	uint32		window = Max(1, repair->memory / 8 * 7 /
							 bx_column_size(shadow, 1));

	window = Min(window, npages);
	memset(&regroup->column, 0, sizeof(regroup->column));
	regroup->doubt = false;
	for (uint32 first = 0; first < npages && !regroup->doubt; first += window)
	{
		bx_column_start(&regroup->column, regroup->partition, shadow, first,
						Min(window, npages - first));
		scan_partition(regroup, add_range_to_column);
		bx_column_write(&regroup->column, repair->index, true);
	}
	bx_column_end(&regroup->column);
}

/*
 * Returns whether an existing partition uses a group of region "number": the
 * group is current, or a top-level page refers to it.
 */
static bool
is_group_used(Relation index, uint32 number, const BxRegionPageData *region,
			  const BxGroupDesc *group)
{
	for (int c = group->first; c < group->first + group->width; c++)
	{
		const BxGroupDesc *current = bx_groups_find(region, c);
		BxTopPageData top;

		if (region->top[c] == 0)
			continue;
		if (!bx_groups_is_unfiltered(region, c) && current != NULL &&
			current->generation == group->generation)
			return true;
		if (bx_dir_read_top(index, number * BX_FANOUT + c, &top) &&
			(top.group.generation == group->generation ||
			 top.group_shadow.generation == group->generation))
			return true;
	}
	return false;
}

/*
 * Step 6: removes the groups of a region that no partition uses, and frees
 * their pages.  Returns the number of these pages.
 */
BlockNumber
bx_regroup_remove_unused(Relation index, uint32 region)
{
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;
	BlockNumber freed = 0;
	bool		found = true;

	/* a group is removed from the region page before its pages are freed */
	while (found)
	{
		BxGroupDesc unused = {0};

		found = false;
		LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
		if (!bx_dir_read_region(index, region, &index_blocks, copy))
			copy->ngroups = 0;
		for (uint32 i = 0; i < copy->ngroups && !found; i++)
		{
			if (!is_group_used(index, region, copy, &copy->group[i]))
			{
				BxRegionChange change = {.removed = copy->group[i].generation};

				unused = copy->group[i];
				bx_dir_update_region(index, region * BX_FANOUT, &change);
				found = true;
			}
		}
		UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
		bx_extents_free(index, unused.start, bx_groups_pages(&unused));
		freed += bx_groups_pages(&unused);
	}
	pfree(copy);
	return freed;
}

/*
 * Completes or reverts a rebuild that has failed: if the region page has the
 * shadow, continues with step 5, else drops the shadow.
 */
void
bx_regroup_settle(Relation index, uint32 partition)
{
	BxTopPageData top;
	BxRegionPageData *region;
	BxGroupDesc none = {0};
	const BxGroupDesc *entered = NULL;
	BlockNumber index_blocks = 0;
	BlockNumber blkno;

	if (!bx_dir_read_top(index, partition, &top) || top.group_shadow.width == 0)
		return;
	bx_dir_tops(index, partition, 1, &blkno);
	bx_groups_check(index, blkno, &top.group_shadow, partition % BX_FANOUT,
					&index_blocks);
	region = palloc(sizeof(BxRegionPageData));
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	if (bx_dir_read_region(index, partition / BX_FANOUT, &index_blocks, region))
		entered = bx_groups_by_generation(region, top.group_shadow.generation);
	bx_dir_set_group(index, partition, entered, &none);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	if (entered == NULL)
		bx_extents_free(index, top.group_shadow.start,
						bx_groups_pages(&top.group_shadow));
	pfree(region);
}

/* Returns whether there is enough memory to build the filter in a group. */
static bool
is_affordable(const Regroup *regroup, const BxGroupDesc *group)
{
	return bx_rebuild_is_affordable(regroup->repair,
									bx_column_size(group,
												   bx_groups_pages(group)));
}

/* Rebuilds a filter, in the steps described at the top of this file. */
static void
rebuild_group(void *arg)
{
	Regroup    *regroup = arg;
	Relation	index = regroup->repair->index;
	uint32		partition = regroup->partition;
	BxGroupDesc group;
	BxGroupMeasure measure;
	BxGroupDesc none = {0};
	BxRegionChange change = {.group = &group,.is_filtered = true};
	double		keys;

	if (regroup->top.group.width == 1 &&
		!is_affordable(regroup, &regroup->top.group))
		return;
	keys = count_keys(regroup);
	bx_groups_plan(keys, 1, 0, &group);
	if (!is_affordable(regroup, &group))
		return;
	bx_create_group_shadow(index, partition, keys, &group);
	BX_PAUSE(BX_PAUSE_GROUP_SHADOW);
	fill_group(regroup, &group);
	BX_PAUSE(BX_PAUSE_GROUP_FILLED);
	if (regroup->doubt)
	{
		bx_regroup_settle(index, partition);
		return;
	}

	/* the next VACUUM compares with what is measured now, if that is more */
	if (bx_groups_measure(index, partition / BX_FANOUT, &group, 0,
						  regroup->repair->strategy, &measure) &&
		measure.keys > group.keys)
		group.keys = (uint32) Min(ceil(measure.keys), (double) PG_UINT32_MAX);
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_dir_update_region(index, partition, &change);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	BX_PAUSE(BX_PAUSE_GROUP_ENTERED);
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_dir_set_group(index, partition, &group, &none);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	regroup->repair->groups++;
	regroup->repair->freed_pages +=
		bx_regroup_remove_unused(index, partition / BX_FANOUT);
}

static void
give_up_group(void *arg)
{
	Regroup    *regroup = arg;

	bx_regroup_settle(regroup->repair->index, regroup->partition);
}

/*
 * Returns whether the fill of a partition's filter indicates that it needs
 * more space.
 */
bool
bx_regroup_is_overfull(const BxGroupDesc *group, const BxGroupMeasure *measure)
{
	return measure->rate > BX_GROUP_RATE * BX_RATE_TOLERANCE &&
		measure->keys > group->keys * BX_KEYS_TOLERANCE;
}

/*
 * Returns whether the filter of a partition should be rebuilt.  The filter of
 * a partition that is still growing is not considered too large.
 */
static bool
group_needs_rebuild(Regroup *regroup, bool unfiltered)
{
	const BxGroupDesc *group = &regroup->top.group;
	BxRepair   *repair = regroup->repair;
	BxGroupMeasure measure;
	int			doubtful;

	/*
	 * a filter without all keys would be useless; and a rebuild that failed
	 * would probably fail again
	 */
	if (repair->failures > 0 || !repair->may_rebuild ||
		bx_node_count_segments(&regroup->top, &doubtful) == 0 || doubtful > 0)
		return false;
	if (unfiltered)
		return true;
	if (!bx_groups_measure(repair->index, regroup->partition / BX_FANOUT, group,
						   regroup->partition % BX_FANOUT - group->first,
						   repair->strategy, &measure))
		return false;
	return bx_regroup_is_overfull(group, &measure) ||
		(!regroup->growing && group->width == 1 && measure.keys < group->keys / 2.0 &&
		 bx_filter_plan(measure.keys, BX_GROUP_RATE,
						BX_SLICE_ROWS).nslices < group->nblocks / 2);
}

/*
 * Rebuilds the filter of a partition if necessary.  An index with a single
 * partition has none.  The caller has called bx_regroup_settle() for all
 * partitions, so that no top-level page refers to a group that searches do not
 * use, and has rebuilt the segments, whose doubts matter here.
 */
void
bx_regroup_partition(BxRepair *repair, uint8 lg_base, uint32 partition,
					 uint32 npartitions)
{
	Relation	index = repair->index;
	BxRegionPageData *region = palloc(sizeof(BxRegionPageData));
	Regroup    *regroup = palloc0(sizeof(Regroup));
	BlockNumber index_blocks = 0;
	BlockNumber blkno;
	bool		unfiltered;

	if (npartitions > 1 && bx_dir_read_top(index, partition, &regroup->top))
	{
		bx_dir_tops(index, partition, 1, &blkno);
		(void) bx_dir_read_region(index, partition / BX_FANOUT, &index_blocks,
								  region);
		unfiltered = regroup->top.group.width == 0 ||
			bx_groups_is_unfiltered(region, partition % BX_FANOUT);
		if (regroup->top.group.width > 0)
			bx_groups_check(index, blkno, &regroup->top.group,
							partition % BX_FANOUT, &index_blocks);
		regroup->repair = repair;
		regroup->lg_base = lg_base;
		regroup->partition = partition;
		regroup->growing = partition + 1 >= npartitions;
		if (region->ngroups < BX_MAX_GROUPS &&
			group_needs_rebuild(regroup, unfiltered))
			bx_repair_try(repair, rebuild_group, give_up_group, regroup);
	}
	pfree(region);
	pfree(regroup);
}
