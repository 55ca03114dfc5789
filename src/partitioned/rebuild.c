/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  VACUUM's repair of layout "partitioned": creates missing summaries, and
 *	  rebuilds filters that are too full, too empty or in doubt.  Inserts
 *	  create the missing summary and the missing filter of the first partition.
 *
 * New slices are built beside the old ones, concurrently with searches and
 * inserts:
 *
 *	1. Count the keys of the node in the heap to determine its size.
 *	2. Allocate slices with a new generation, and publish them as the shadow
 *	   in the top-level page.  From now on inserters set their bits in the old
 *	   slices and in the shadow, because they compare both descriptors under
 *	   the page's share lock.
 *	3. Read the size of the heap, then the heap pages of the node, and add
 *	   their keys to the shadow.
 *	4. Swap: the shadow becomes the node's descriptor.  Free the old pages.
 *
 * No row is lost.  An inserter that compares the descriptors after the
 * publication sets its bits in the shadow.  If it compared them before the
 * publication, the row was on its heap page before step 3 began.
 *
 * A failure between steps 2 and 4 leaves a shadow, in which inserters continue
 * to set bits until the next VACUUM drops the shadow.  Only one rebuild at a
 * time is possible, because VACUUM, bloomidx_summarize() and inserts that
 * rebuild hold a self-exclusive lock on the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/float.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * A node is not rebuilt if filling its slices would read the heap more than
 * this many times.
 */
#define MAX_PASSES			16

/*
 * An insert does not rebuild filters if it would have to read more heap pages
 * than this: 512 MB.
 */
#define MAX_INSERT_PAGES	65536

/* The size of a summary is estimated from this many of its segments. */
#define SEGMENTS_TO_COUNT	4

/* State of the rebuild of a node. */
typedef struct Rebuild
{
	BxRepair   *repair;
	BxMetaPageData meta;		/* a copy; only frozen fields are used */
	BxNode		node;			/* the node as it is in the directory */
	double		most_keys;		/* upper bound, from the fill of old slices
								 * that are too large; otherwise infinity */

	/* step 1: counting */
	double		range_keys;
	double		squares;
	int			counted;
	BxDistinct	distinct;

	/* step 3: the rows of a window of the new slices */
	BxNode		shadow;
	char	   *window;
	uint32		first_slice;
	uint32		nslices;
	BxMask		doubt;
} Rebuild;

static double
target_rate(const Rebuild *rebuild)
{
	return bx_node_rate(rebuild->node.level, rebuild->node.number,
						&rebuild->meta);
}

/* Returns the largest number of keys that a child of the node can have. */
static double
most_keys(const Rebuild *rebuild)
{
	return bx_node_most_keys(rebuild->repair->index, &rebuild->meta,
							 rebuild->node.level);
}

/*
 * Calls callback() with the keys of n ranges, as far as they exist in the
 * heap.
 */
static void
scan_ranges(Rebuild *rebuild, uint64 first, uint64 n, BxRangeCallback callback)
{
	bx_repair_scan_ranges(rebuild->repair, rebuild->meta.lg_base, first, n,
						  callback, rebuild);
}

/*
 * Range callback: counts the keys of a range, which is a child of a segment.
 */
static void
count_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	Rebuild    *rebuild = arg;

	rebuild->range_keys += nkeys;
	if (done < 1.0)
		return;
	if (rebuild->range_keys > 0)
	{
		rebuild->squares += rebuild->range_keys * rebuild->range_keys;
		rebuild->counted++;
	}
	rebuild->range_keys = 0;
}

/*
 * Range callback: counts the distinct keys of a segment, which is a child of
 * a partition.
 */
static void
count_segment(void *arg, uint32 range, double done, const uint64 *keys,
			  Size nkeys, bool doubt)
{
	Rebuild    *rebuild = arg;

	bx_distinct_add(&rebuild->distinct, keys, nkeys);
}

/* Estimates the keys per segment of a summary from some of the segments. */
static void
count_some_segments(Rebuild *rebuild)
{
	BxTopPageData top;
	int			present[BX_FANOUT];
	int			n = 0;
	int			ncount;

	if (!bx_dir_read_top(rebuild->repair->index, rebuild->node.number, &top))
		return;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		if (top.node[BX_SLOT_SEGMENT(c)].state != BX_NODE_EMPTY)
			present[n++] = c;
	}

	/*
	 * the counted segments are evenly distributed; the last segment, which
	 * may still be growing, is counted only if there are at most
	 * SEGMENTS_TO_COUNT segments
	 */
	ncount = Min(SEGMENTS_TO_COUNT, n);
	for (int i = 0; i < ncount; i++)
	{
		uint64		segment = (uint64) rebuild->node.number * BX_SEGMENTS_PER_PARTITION +
		present[(int64) i * n / ncount];
		double		keys;

		bx_distinct_clear(&rebuild->distinct);
		scan_ranges(rebuild, segment * BX_FANOUT, BX_FANOUT, count_segment);
		keys = bx_distinct_estimate(&rebuild->distinct);
		if (keys > 0)
		{
			rebuild->squares += keys * keys;
			rebuild->counted++;
		}
	}
}

/*
 * Returns the keys per child that the heap has: the root mean square over the
 * counted children, or 1 if there are no keys.
 */
static double
count_keys(Rebuild *rebuild)
{
	rebuild->squares = rebuild->range_keys = 0;
	rebuild->counted = 0;
	if (rebuild->node.level == BX_LEVEL_SEGMENT)
		scan_ranges(rebuild, (uint64) rebuild->node.number * BX_FANOUT,
					BX_FANOUT, count_range);
	else
		count_some_segments(rebuild);
	return rebuild->counted > 0 ?
		sqrt(rebuild->squares / rebuild->counted) : 1;
}

/*
 * Returns the keys per child for which the new slices are planned.
 *
 * If the old slices are too large, these are the keys in the heap.  Otherwise
 * the new slices are at least as large as the old ones: if rows have been
 * deleted, or their transaction was rolled back, new rows will take their
 * place, and would soon fill slices that are planned for the few rows left.
 * But they are not larger than the rows of the heap can ever need: the fill,
 * which the size of the old slices may come from, can be misled.
 */
static double
keys_to_plan_for(Rebuild *rebuild)
{
	double		keys = count_keys(rebuild);

	if (isinf(rebuild->most_keys))
		return Min(Max(keys, rebuild->node.desc.keys), most_keys(rebuild));
	return Min(keys, rebuild->most_keys);
}

/*
 * Range callback: sets the bits of the keys that belong to slices in the
 * window.
 */
static void
write_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	Rebuild    *rebuild = arg;
	const BxNodeDesc *desc = &rebuild->shadow.desc;
	int			level = rebuild->node.level;
	int			child = bx_level_child(level, range);

	for (Size i = 0; i < nkeys; i++)
	{
		uint64		lh = bx_filter_level_hash(keys[i], level);
		uint32		slice = bx_filter_slice(lh, desc->nslices);

		if (slice >= rebuild->first_slice &&
			slice - rebuild->first_slice < rebuild->nslices)
			bx_filter_add(rebuild->window +
						  BX_SLICE_SIZE * (slice - rebuild->first_slice),
						  BX_SLICE_ROWS, desc->nprobes, lh, child);
	}
	if (doubt)
		bx_mask_set(&rebuild->doubt, child);
}

/* Returns the number of slices that fit in memory at a time. */
static uint32
window_slices(const BxRepair *repair)
{
	return Max(repair->memory / 8 * 7 / BX_SLICE_SIZE, 1);
}

/*
 * Returns whether filters that need this much memory can be filled in
 * MAX_PASSES passes over the heap; if not, logs a message.  An insert, which
 * should not take long, makes only one pass, and leaves the rest to VACUUM.
 */
bool
bx_rebuild_is_affordable(const BxRepair *repair, uint64 bytes)
{
	bool		in_insert = repair->caller == BX_REPAIR_INSERT;
	uint64		window = repair->memory / 8 * 7;

	if (bytes <= window * (in_insert ? 1 : MAX_PASSES))
		return true;
	if (in_insert)
		return false;
	ereport(LOG,
			(errmsg("filters of index \"%s\" were not rebuilt, because that would read the table more than %d times",
					RelationGetRelationName(repair->index), MAX_PASSES),
			 errhint("Consider increasing the configuration parameter \"%s\".",
					 "maintenance_work_mem")));
	return false;
}

/*
 * Step 3: fills the shadow from the heap.  As many slices as fit in memory
 * are filled at a time, and the heap is read once for each such window, so
 * that each slice page is written and logged once.
 */
static void
fill_shadow(Rebuild *rebuild)
{
	BxRepair   *repair = rebuild->repair;
	uint64		ranges = bx_level_ranges(rebuild->node.level);
	uint32		nslices = rebuild->shadow.desc.nslices;
	uint32		window_size = Min(window_slices(repair), nslices);

	rebuild->window = palloc_extended(BX_SLICE_SIZE * window_size,
									  MCXT_ALLOC_HUGE);
	bx_mask_fill(&rebuild->doubt, false);
	for (uint32 first = 0; first < nslices; first += window_size)
	{
		rebuild->first_slice = first;
		rebuild->nslices = Min(window_size, nslices - first);
		memset(rebuild->window, 0, BX_SLICE_SIZE * rebuild->nslices);
		scan_ranges(rebuild, rebuild->node.number * ranges, ranges,
					write_range);
		for (uint32 i = 0; i < rebuild->nslices; i++)
		{
			char	   *rows = rebuild->window + BX_SLICE_SIZE * i;

			bx_slices_set_doubt(rows, &rebuild->doubt);
			bx_slices_write(repair->index, &rebuild->shadow, first + i, rows,
							true);
		}
	}
	pfree(rebuild->window);
}

/* Rebuilds a node, in the four steps described at the top of this file. */
static void
rebuild_node(void *arg)
{
	Rebuild    *rebuild = arg;
	Relation	index = rebuild->repair->index;
	double		keys;
	BxPlan		plan;
	BxNodeDesc	desc;
	BxMeasure	measure;

	if (!bx_rebuild_is_affordable(rebuild->repair,
								  (uint64) rebuild->node.desc.nslices *
								  BX_SLICE_SIZE))
		return;
	keys = keys_to_plan_for(rebuild);
	plan = bx_filter_plan(keys, target_rate(rebuild), BX_SLICE_ROWS);
	if (!bx_rebuild_is_affordable(rebuild->repair,
								  (uint64) plan.nslices * BX_SLICE_SIZE))
		return;
	bx_create_shadow(index, &rebuild->node, keys, &rebuild->shadow);
	BX_PAUSE(BX_PAUSE_PUBLISHED);
	fill_shadow(rebuild);
	desc = rebuild->shadow.desc;
	if (!bx_mask_is_empty(&rebuild->doubt))
		desc.flags |= BX_DESC_DOUBT;
	if (bx_slices_measure(index, &rebuild->shadow, rebuild->repair->strategy,
						  &measure))
		bx_slices_set_baseline(&desc, &measure);
	BX_PAUSE(BX_PAUSE_FILLED);
	bx_dir_swap_shadow(index, &rebuild->node, &rebuild->shadow, &desc);
	if (rebuild->node.level == BX_LEVEL_SEGMENT)
		rebuild->repair->segments++;
	else
		rebuild->repair->summaries++;
	bx_extents_free(index, rebuild->node.desc.start, rebuild->node.desc.nslices);
	rebuild->repair->freed_pages += rebuild->node.desc.nslices;
}

/* Reverts what rebuild_node() has published. */
static void
give_up_node(void *arg)
{
	Rebuild    *rebuild = arg;

	bx_dir_drop_shadow(rebuild->repair->index,
					   bx_node_partition(&rebuild->node));
}

/*
 * Returns whether the fill of a node's filters indicates that they need more
 * space.
 */
bool
bx_rebuild_is_overfull(const BxNodeDesc *desc, const BxMeasure *measure,
					   double target)
{
	return measure->rate > target * BX_RATE_TOLERANCE &&
		measure->keys > desc->keys * BX_KEYS_TOLERANCE &&
		!(desc->flags & BX_DESC_DOUBT);
}

/*
 * Returns whether a partition with this number of segments should have a
 * summary.
 */
bool
bx_rebuild_wants_summary(uint32 partition, int segments)
{
	return partition > 0 || segments >= BX_MIN_SEGMENTS_FOR_SUMMARY;
}

/*
 * Returns whether the slices of a node should be replaced.  "growing" means
 * that more keys are expected, so that the node is not considered too large;
 * "doubtful" is the number of children that are themselves in doubt.
 */
static bool
needs_other_slices(Rebuild *rebuild, bool growing, int doubtful)
{
	const BxNodeDesc *desc = &rebuild->node.desc;
	BxMeasure	measure;
	BxPlan		plan;

	if (!bx_slices_measure(rebuild->repair->index, &rebuild->node,
						   rebuild->repair->strategy, &measure))
		return false;

	/*
	 * A busy table always has some rows in doubt.  Reading all the rows again
	 * is worthwhile only if more than half of the children in doubt can be
	 * resolved.
	 */
	if ((desc->flags & BX_DESC_DOUBT) && measure.nfull > 2 * doubtful)
		return true;
	if (bx_rebuild_is_overfull(desc, &measure, target_rate(rebuild)))
		return true;

	/* the pages of filters without any keys will be filled again */
	if (growing || measure.nchildren == 0 || measure.keys > desc->keys / 2)
		return false;
	plan = bx_filter_plan(measure.keys, target_rate(rebuild), BX_SLICE_ROWS);
	if (plan.nslices > desc->nslices / 2)
		return false;

	/*
	 * The keys of a summary are counted in a few segments, which may have
	 * many more keys than the others.  Without this bound the new slices
	 * would become as large as the old ones, at every VACUUM.  (All keys of a
	 * segment are counted, so for a segment the bound is not needed, but it
	 * is harmless.)
	 */
	rebuild->most_keys = measure.keys;
	return true;
}

/*
 * Returns whether a node should be rebuilt.  "segments" is the number of
 * segments of a partition; see needs_other_slices() for the others.
 */
static bool
node_needs_rebuild(Rebuild *rebuild, bool growing, int segments, int doubtful)
{
	rebuild->most_keys = get_float8_infinity();

	/*
	 * a rebuild that failed for one node would probably fail for the next,
	 * too
	 */
	if (rebuild->repair->failures > 0 || !rebuild->repair->may_rebuild)
		return false;
	switch (rebuild->node.desc.state)
	{
		case BX_NODE_EMPTY:
			return false;
		case BX_NODE_UNKNOWN:
			return rebuild->node.level == BX_LEVEL_SEGMENT ||
				bx_rebuild_wants_summary(rebuild->node.number, segments);
		default:
			return needs_other_slices(rebuild, growing, doubtful);
	}
}

/*
 * Rebuilds a node of a partition if necessary.  *top is a copy of the
 * partition's top-level page at blkno; the other arguments are those of
 * node_needs_rebuild().
 */
static void
repair_node(Rebuild *rebuild, uint32 partition, uint32 slot, BlockNumber blkno,
			const BxTopPageData *top, bool growing, int segments, int doubtful)
{
	BlockNumber index_blocks = 0;

	bx_node_of_slot(partition, slot, top, &rebuild->node);
	bx_dir_check_desc(rebuild->repair->index, blkno, &rebuild->node.desc,
					  &index_blocks);
	bx_vacuum_delay_point();
	if (node_needs_rebuild(rebuild, growing, segments, doubtful))
		bx_repair_try(rebuild->repair, rebuild_node, give_up_node, rebuild);
}

/* Rebuilds the segments and the summary of one partition where necessary. */
static void
repair_partition(Rebuild *rebuild, uint32 partition, uint32 npartitions,
				 uint32 last_segment)
{
	Relation	index = rebuild->repair->index;
	BxTopPageData top;
	BlockNumber blkno;
	int			segments;
	int			doubtful;

	bx_dir_drop_shadow(index, partition);
	if (!bx_dir_read_top(index, partition, &top))
		return;
	bx_dir_tops(index, partition, 1, &blkno);
	for (uint32 c = 0; c < BX_SEGMENTS_PER_PARTITION; c++)
		repair_node(rebuild, partition, BX_SLOT_SEGMENT(c), blkno, &top,
					partition * BX_SEGMENTS_PER_PARTITION + c >= last_segment, 0, 0);

	/* the summary last: its doubts depend on those of the segments */
	if (!bx_dir_read_top(index, partition, &top))
		return;
	segments = bx_node_count_segments(&top, &doubtful);
	repair_node(rebuild, partition, BX_SLOT_SUMMARY, blkno, &top,
				segments < BX_SEGMENTS_PER_PARTITION, segments, doubtful);
	bx_refilter_partition(rebuild->repair, &rebuild->meta, partition,
						  npartitions);
}

/*
 * Returns whether the first partition lacks a summary or a filter that the
 * table is large enough for.  Sets *top.
 */
static bool
is_incomplete(Relation index, bool has_others, BxTopPageData *top)
{
	int			doubtful;

	if (!bx_dir_read_top(index, 0, top))
		return false;
	return (top->node[BX_SLOT_SUMMARY].state == BX_NODE_UNKNOWN &&
			bx_rebuild_wants_summary(0, bx_node_count_segments(top, &doubtful))) ||
		(top->group.width == 0 && has_others);
}

/* Creates what is missing of the first partition, for an insert. */
static void
complete_first_partition(BxRepair *repair)
{
	Rebuild		rebuild = {0};
	Relation	index = repair->index;
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(repair->heap);
	BxTopPageData top;
	BlockNumber blkno;
	uint64		ranges;
	uint32		npartitions;
	int			segments;
	int			doubtful;

	rebuild.repair = repair;
	bx_meta_read(index, &rebuild.meta);
	ranges = bx_geometry_ranges(heap_blocks, rebuild.meta.lg_base);
	npartitions = (ranges + BX_RANGES_PER_PARTITION - 1) /
		BX_RANGES_PER_PARTITION;

	/* the pages to be read */
	ranges = Min(ranges, BX_RANGES_PER_PARTITION);
	if (ranges << rebuild.meta.lg_base > MAX_INSERT_PAGES)
		return;

	/* complete or drop what a failed rebuild has left */
	bx_regroup_settle(index, 0);
	bx_dir_drop_shadow(index, 0);
	if (!is_incomplete(index, npartitions > 1, &top))
		return;
	bx_dir_tops(index, 0, 1, &blkno);
	segments = bx_node_count_segments(&top, &doubtful);
	if (top.node[BX_SLOT_SUMMARY].state == BX_NODE_UNKNOWN)
		repair_node(&rebuild, 0, BX_SLOT_SUMMARY, blkno, &top, true, segments,
					doubtful);
	if (top.group.width == 0)
		bx_refilter_partition(repair, &rebuild.meta, 0, npartitions);
}

/*
 * To be called after an insert has created a segment.  The first partition
 * begins without a summary and without a filter in a group, because a small
 * table needs neither.  Searches of a table that grows would read a page of
 * each of its segments until the next VACUUM.  So inserts create both, from
 * the heap: the summary when the partition has BX_MIN_SEGMENTS_FOR_SUMMARY
 * segments, and the filter when there is a second partition.  If that is not
 * possible, another insert tries again when the table has twice the segments,
 * so that repeated failures cost little in comparison with the inserts.
 */
void
bx_rebuild_after_create(Relation heap, Relation index, uint32 segment)
{
	BxTopPageData top;

	if (segment >= BX_MIN_SEGMENTS_FOR_SUMMARY &&
		(segment & (segment - 1)) == 0 &&
		is_incomplete(index, segment >= BX_SEGMENTS_PER_PARTITION, &top))
		bx_repair_in_insert(&bx_layout_partitioned, heap, index,
							complete_first_partition);
}

/*
 * Region callback: completes or reverts rebuilds that have failed, and removes
 * unused groups that a failure has left.  This includes partitions beyond the
 * end of the heap, which may have been truncated.
 */
static void
settle_region(void *arg, uint32 number, BlockNumber blkno,
			  const BxRegionPageData *region)
{
	BxRepair   *repair = arg;

	bx_regroup_settle(repair->index, number);
	repair->freed_pages += bx_regroup_remove_unused(repair->index, number);
}

/* Repairs all partitions of the heap, and reclaims pages. */
void
bx_rebuild_index(BxRepair *repair)
{
	Rebuild		rebuild = {0};
	uint64		ranges;
	uint64		npartitions;
	uint32		last_segment;

	rebuild.repair = repair;
	bx_meta_read(repair->index, &rebuild.meta);
	if (rebuild.meta.lg_base == BX_LG_BASE_UNSET)
		return;

	ranges = bx_geometry_ranges(RelationGetNumberOfBlocks(repair->heap),
								rebuild.meta.lg_base);
	npartitions = (ranges + BX_RANGES_PER_PARTITION - 1) /
		BX_RANGES_PER_PARTITION;
	last_segment = ranges > 0 ? (ranges - 1) / BX_FANOUT : 0;
	bx_dir_each_region(repair->index, &rebuild.meta, settle_region, repair);
	for (uint32 p = 0; p < npartitions; p++)
		repair_partition(&rebuild, p, npartitions, last_segment);
	for (uint32 r = 0; r * (uint64) BX_FANOUT < npartitions; r++)
	{
		if (!bx_merge_region(repair, r, npartitions))
			break;
	}
	repair->free_pages = bx_extents_sweep(repair->index, &repair->named_end);
}
