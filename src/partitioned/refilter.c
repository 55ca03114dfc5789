/*-------------------------------------------------------------------------
 *
 * refilter.c
 *	  The repair of the filters of partitions: creates missing filters, and
 *	  rebuilds filters that are too full.
 *
 * A new filter is a group of width 1, which takes the place of the
 * partition's column in a wider group; see regroup.c for the steps.  Before
 * step 1 the keys of the partition in the heap are counted, and step 3 reads
 * the heap pages of the partition, and adds their keys.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

typedef struct Refilter
{
	BxRepair   *repair;
	const BxMetaPageData *meta; /* a copy; only frozen fields are used */
	uint32		partition;
	BxTopPageData top;
	uint32		like;			/* see bx_groups_plan() */
	bool		growing;		/* more keys are expected */
	BxDistinct	distinct;
	BxColumn	column;
	BxRegroup	regroup;
	bool		doubt;			/* some keys are not known */
} Refilter;

/* Range callback: counts distinct keys. */
static void
count_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	Refilter   *refilter = arg;

	bx_distinct_add(&refilter->distinct, keys, nkeys);
}

/* Range callback: adds keys to the filter. */
static void
add_range_to_column(void *arg, uint32 range, double done, const uint64 *keys,
					Size nkeys, bool doubt)
{
	Refilter   *refilter = arg;

	bx_column_add(&refilter->column, keys, nkeys);
	refilter->doubt |= doubt;
}

/* Calls callback() with the keys of all ranges of the partition. */
static void
scan_partition(Refilter *refilter, BxRangeCallback callback)
{
	bx_repair_scan_ranges(refilter->repair, refilter->meta->lg_base,
						  (uint64) refilter->partition * BX_RANGES_PER_PARTITION,
						  BX_RANGES_PER_PARTITION, callback, refilter);
}

/*
 * Counts the keys of the partition.  For a partition that is still growing,
 * the segments that do not exist yet are assumed to have as many keys as the
 * others.
 */
static double
count_keys(Refilter *refilter)
{
	double		keys;
	int			doubtful;
	int			segments = bx_node_count_segments(&refilter->top, &doubtful);

	bx_distinct_clear(&refilter->distinct);
	scan_partition(refilter, count_range);
	keys = Max(bx_distinct_estimate(&refilter->distinct), 1);
	if (refilter->growing)
		keys *= (double) BX_SEGMENTS_PER_PARTITION / Max(segments, 1);
	return keys;
}

/*
 * Estimates the keys of the partition from the fill of its summary, as the sum
 * over its segments, without reading the heap.  Returns 0 if the fill is not
 * known.
 */
static double
estimate_keys(Refilter *refilter)
{
	Relation	index = refilter->repair->index;
	BxNode		summary;
	BxMeasure	measure;
	BlockNumber index_blocks = 0;
	BlockNumber blkno;

	bx_node_of_slot(refilter->partition, BX_SLOT_SUMMARY, &refilter->top,
					&summary);
	bx_dir_tops(index, refilter->partition, 1, &blkno);
	bx_dir_check_desc(index, blkno, &summary.desc, &index_blocks);
	if (summary.desc.state != BX_NODE_PRESENT ||
		(summary.desc.flags & BX_DESC_DOUBT) ||
		!bx_slices_measure_for_size(index, &summary, &measure))
		return 0;
	return Max(measure.all_keys, 1);
}

/*
 * Step 3: fills the shadow from the heap.  As many pages as fit in memory are
 * filled at a time, and the heap is read once for each such window.
 */
static void
fill_group(Refilter *refilter, const BxGroupDesc *shadow)
{
	BxRepair   *repair = refilter->repair;
	uint32		npages = bx_groups_pages(shadow);
	uint32		window = Max(1, repair->memory / 8 * 7 /
							 bx_column_size(shadow, 1));

	window = Min(window, npages);
	memset(&refilter->column, 0, sizeof(refilter->column));
	refilter->doubt = false;
	for (uint32 first = 0; first < npages && !refilter->doubt; first += window)
	{
		bx_column_start(&refilter->column, refilter->partition, shadow, first,
						Min(window, npages - first));
		scan_partition(refilter, add_range_to_column);
		bx_column_write(&refilter->column, repair->index, true);
	}
	bx_column_end(&refilter->column);
}

/* Returns whether there is enough memory to build the filter in a group. */
static bool
is_affordable(const Refilter *refilter, const BxGroupDesc *group)
{
	return bx_rebuild_is_affordable(refilter->repair,
									bx_column_size(group,
												   bx_groups_pages(group)));
}

/* Rebuilds the filter of a partition. */
static void
rebuild_filter(void *arg)
{
	Refilter   *refilter = arg;
	Relation	index = refilter->repair->index;
	uint32		region = refilter->partition / BX_FANOUT;
	BxGroupDesc group;
	BxGroupMeasure measure;
	BxRegroup  *regroup = &refilter->regroup;
	double		keys;

	if (refilter->top.group.width == 1 &&
		!is_affordable(refilter, &refilter->top.group))
		return;

	/* an insert reads the heap only once */
	if (refilter->repair->caller == BX_REPAIR_INSERT)
		keys = estimate_keys(refilter);
	else
		keys = count_keys(refilter);
	if (keys == 0)
		return;

	/* new rows will take the place of dead rows; see partitioned/rebuild.c */
	keys = Min(Max(keys, refilter->top.group.keys),
			   bx_partition_most_keys(index, refilter->meta));
	bx_groups_plan(keys, refilter->like, 1, refilter->partition % BX_FANOUT,
				   &group);
	if (!is_affordable(refilter, &group))
		return;
	bx_regroup_begin(regroup, index, region, &group);
	fill_group(refilter, &regroup->group);
	BX_PAUSE(BX_PAUSE_GROUP_FILLED);
	if (refilter->doubt)
	{
		bx_regroup_abandon(regroup);
		return;
	}

	/* the next VACUUM compares with the larger of planned and present keys */
	if (bx_groups_measure(index, region, &regroup->group, 0,
						  refilter->repair->strategy, &measure) &&
		measure.keys > regroup->group.keys)
		regroup->group.keys = (uint32) Min(ceil(measure.keys),
										   (double) PG_UINT32_MAX);
	if (bx_regroup_finish(regroup, true, &refilter->repair->freed_pages))
		refilter->repair->groups++;
}

static void
give_up_filter(void *arg)
{
	Refilter   *refilter = arg;

	if (refilter->regroup.index != NULL)
		bx_regroup_abandon(&refilter->regroup);
}

/*
 * Returns whether the fill of a partition's filter indicates that it needs
 * more space.
 */
bool
bx_refilter_is_overfull(const BxGroupDesc *group, const BxGroupMeasure *measure)
{
	BxGroupDesc plan;

	bx_groups_plan(measure->keys, group->nblocks, 1, 0, &plan);
	return measure->rate > BX_GROUP_RATE * BX_RATE_TOLERANCE &&
		measure->keys > group->keys * BX_KEYS_TOLERANCE &&
		plan.nblocks > group->nblocks;
}

/* Returns whether the filter of a partition should be rebuilt. */
static bool
filter_needs_rebuild(Refilter *refilter, bool unfiltered)
{
	const BxGroupDesc *group = &refilter->top.group;
	BxRepair   *repair = refilter->repair;
	BxGroupMeasure measure;
	int			doubtful;

	/*
	 * a filter without all keys would be useless; and a rebuild that failed
	 * would probably fail again
	 */
	if (repair->failures > 0 || !repair->may_rebuild ||
		bx_node_count_segments(&refilter->top, &doubtful) == 0 || doubtful > 0)
		return false;
	if (unfiltered)
		return true;
	if (!bx_groups_measure(repair->index, refilter->partition / BX_FANOUT, group,
						   refilter->partition % BX_FANOUT - group->first,
						   repair->strategy, &measure))
		return false;
	return bx_refilter_is_overfull(group, &measure);
}

/*
 * Rebuilds the filter of a partition if necessary.  An index with a single
 * partition has none.  The caller has called bx_regroup_settle() for all
 * regions, so that no top-level page refers to a group that searches do not
 * use, and has rebuilt the segments, because no filter is built if a segment
 * is in doubt.
 */
void
bx_refilter_partition(BxRepair *repair, const BxMetaPageData *meta,
					  uint32 partition, uint32 npartitions)
{
	Relation	index = repair->index;
	BxRegionPageData *region = palloc(sizeof(BxRegionPageData));
	Refilter   *refilter = palloc0(sizeof(Refilter));
	BlockNumber index_blocks = 0;
	BlockNumber blkno;
	bool		unfiltered;

	if (npartitions > 1 && bx_dir_read_top(index, partition, &refilter->top))
	{
		bx_dir_tops(index, partition, 1, &blkno);
		(void) bx_dir_read_region(index, partition / BX_FANOUT, &index_blocks,
								  region);
		unfiltered = refilter->top.group.width == 0 ||
			bx_groups_is_unfiltered(region, partition % BX_FANOUT);
		if (refilter->top.group.width > 0)
			bx_groups_check(index, blkno, &refilter->top.group,
							partition % BX_FANOUT, &index_blocks);
		refilter->repair = repair;
		refilter->meta = meta;
		refilter->partition = partition;
		refilter->like = bx_groups_like(region);
		refilter->growing = partition + 1 >= npartitions;
		if (region->ngroups < BX_MAX_GROUPS &&
			filter_needs_rebuild(refilter, unfiltered))
			bx_repair_try(repair, rebuild_filter, give_up_filter, refilter);
	}
	pfree(region);
	pfree(refilter);
}
