/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  VACUUM's repair of layout "partitioned": summaries that are missing,
 *	  and filters that are too full, too empty or in doubt.
 *
 * New slices are built beside the old ones while everybody goes on:
 *
 *	1. Count the keys of the node in the heap, which gives the size.
 *	2. Allocate slices with a new generation, and publish them as the shadow
 *	   in the top-level page.  From now on inserters set their bits in both,
 *	   for they compare the shadow, too, under the page's share lock.
 *	3. Take the heap's size, read the node's heap pages, and add their keys to
 *	   the shadow.
 *	4. Swap: the shadow becomes the node's descriptor.  Free the old pages.
 *
 * No row is lost: its insert into the index comes after the publication, and
 * then reaches the shadow, or before it, and then the row was on its heap page
 * before step 3 began.
 *
 * A failure between 2 and 4 leaves a shadow that inserters keep filling.  The
 * next VACUUM drops it.  Only one can be at work: VACUUM and
 * bloomidx_summarize() have a lock on the table that excludes each other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/float.h"
#include "utils/rel.h"

#include "partitioned.h"

/* How often the heap may be read for one node. */
#define MAX_PASSES			16

/* The size of a summary is told from so many of its segments. */
#define SEGMENTS_TO_COUNT	4

/* The node at work. */
typedef struct Rebuild
{
	BxRepair   *repair;
	BxMetaPageData meta;		/* a copy, for what is frozen */
	int			level;
	uint32		node;
	uint32		partition;
	int			child;			/* of the top-level page, or BX_CHILD_SELF */
	BxNodeDesc	old;
	double		most_keys;		/* that the old slices show, if they tell */

	/* counting */
	double		range_keys;
	double		squares;
	int			counted;
	BxDistinct	distinct;

	/* writing: the rows of some of the new slices */
	BxNodeDesc	desc;
	char	   *window;
	uint32		first_slice;
	uint32		nslices;
	BxMask		doubt;
} Rebuild;

/* Ranges that a node of a level covers. */
static uint64
ranges_of_level(int level)
{
	return level == BX_LEVEL_SEGMENT ? BX_FANOUT : BX_RANGES_PER_PARTITION;
}

static double
target_rate(const Rebuild *rebuild)
{
	return rebuild->level == BX_LEVEL_SEGMENT ?
		rebuild->meta.false_positive_rate : BX_SUMMARY_RATE;
}

/* Hands the keys of some ranges, as far as the heap goes, to a callback. */
static void
scan_ranges(Rebuild *rebuild, uint64 first, uint64 n, BxRangeCallback callback)
{
	bx_repair_scan_ranges(rebuild->repair, rebuild->meta.lg_base, first, n,
						  callback, rebuild);
}

/* Counts the keys of a child that is a range. */
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

/* Counts the keys of a child that is a segment. */
static void
count_segment(void *arg, uint32 range, double done, const uint64 *keys,
			  Size nkeys, bool doubt)
{
	Rebuild    *rebuild = arg;

	for (Size i = 0; i < nkeys; i++)
		bx_distinct_add(&rebuild->distinct, keys[i]);
}

/* Counts a summary's keys per segment in some of the segments. */
static void
count_some_segments(Rebuild *rebuild)
{
	BxTopPageData top;
	int			present[BX_FANOUT];
	int			n = 0;
	int			ncount;

	if (!bx_dir_read_top(rebuild->repair->index, rebuild->partition, &top))
		return;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		if (top.child[c].state != BX_NODE_EMPTY)
			present[n++] = c;
	}

	/* spread evenly; the last one may still be filling up */
	ncount = Min(SEGMENTS_TO_COUNT, n);
	for (int i = 0; i < ncount; i++)
	{
		uint64		segment = (uint64) rebuild->partition * BX_FANOUT +
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

/* Keys per child for which the new slices are planned. */
static double
count_keys(Rebuild *rebuild)
{
	rebuild->squares = rebuild->range_keys = 0;
	rebuild->counted = 0;
	if (rebuild->level == BX_LEVEL_SEGMENT)
		scan_ranges(rebuild, (uint64) rebuild->node * BX_FANOUT, BX_FANOUT,
					count_range);
	else
		count_some_segments(rebuild);
	return rebuild->counted > 0 ?
		sqrt(rebuild->squares / rebuild->counted) : 1;
}

/* Sets the bits of a range's keys, as far as they fall into the window. */
static void
write_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	Rebuild    *rebuild = arg;
	int			child = rebuild->level == BX_LEVEL_SEGMENT ?
	range % BX_FANOUT : range / BX_FANOUT % BX_FANOUT;

	for (Size i = 0; i < nkeys; i++)
	{
		uint64		lh = bx_filter_level_hash(keys[i], rebuild->level);
		uint32		slice = bx_filter_slice(lh, rebuild->desc.nslices);

		if (slice >= rebuild->first_slice &&
			slice - rebuild->first_slice < rebuild->nslices)
			bx_filter_add(rebuild->window +
						  BX_SLICE_SIZE * (slice - rebuild->first_slice),
						  BX_SLICE_ROWS, rebuild->desc.nprobes, lh, child);
	}
	if (doubt)
		bx_mask_set(&rebuild->doubt, child);
}

/* Slices that are worked on at once. */
static uint32
window_slices(const BxRepair *repair)
{
	return Max(repair->memory / 8 * 7 / BX_SLICE_SIZE, 1);
}

/* Whether there is enough memory for a node of so many slices. */
static bool
is_affordable(const Rebuild *rebuild, uint32 nslices)
{
	const BxRepair *repair = rebuild->repair;

	if (nslices / window_slices(repair) < MAX_PASSES)
		return true;
	ereport(LOG,
			(errmsg("filters of index \"%s\" were not rebuilt, because that would read the table more than %d times",
					RelationGetRelationName(repair->index), MAX_PASSES),
			 errhint("Consider increasing the configuration parameter \"%s\".",
					 "maintenance_work_mem")));
	return false;
}

/* Makes the new slices and publishes them as shadow. */
static void
publish_shadow(Rebuild *rebuild, double keys, BxShadow *shadow)
{
	Relation	index = rebuild->repair->index;
	BxMetaPageData meta;

	memset(shadow, 0, sizeof(*shadow));
	shadow->level = rebuild->level;
	shadow->child = rebuild->level == BX_LEVEL_SEGMENT ? rebuild->child : 0;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	bx_dir_alloc_slices(index, &meta, rebuild->level, rebuild->node, keys,
						target_rate(rebuild), &shadow->desc);
	bx_dir_update_top(index, rebuild->partition, rebuild->child, NULL, shadow);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/*
 * Fills the shadow from the heap, as many slices at a time as fit in memory,
 * so that each is written and logged once.  The heap is read anew for each
 * time.
 */
static void
fill_shadow(Rebuild *rebuild)
{
	BxRepair   *repair = rebuild->repair;
	uint64		ranges = ranges_of_level(rebuild->level);
	uint32		window_size = window_slices(repair);

	window_size = Min(window_size, rebuild->desc.nslices);
	rebuild->window = palloc_extended(BX_SLICE_SIZE * window_size,
									  MCXT_ALLOC_HUGE);
	bx_mask_fill(&rebuild->doubt, false);
	for (uint32 first = 0; first < rebuild->desc.nslices; first += window_size)
	{
		rebuild->first_slice = first;
		rebuild->nslices = Min(window_size, rebuild->desc.nslices - first);
		memset(rebuild->window, 0, BX_SLICE_SIZE * rebuild->nslices);
		scan_ranges(rebuild, rebuild->node * ranges, ranges, write_range);
		for (uint32 i = 0; i < rebuild->nslices; i++)
		{
			char	   *rows = rebuild->window + BX_SLICE_SIZE * i;

			bx_slices_set_doubt(rows, &rebuild->doubt);
			bx_slices_write(repair->index, rebuild->level, rebuild->node,
							&rebuild->desc, first + i, rows, true);
		}
	}
	if (!bx_mask_is_empty(&rebuild->doubt))
		rebuild->desc.flags |= BX_DESC_DOUBT;
	pfree(rebuild->window);
}

/* Rebuilds a node: the four steps. */
static void
rebuild_node(void *arg)
{
	Rebuild    *rebuild = arg;
	Relation	index = rebuild->repair->index;
	double		keys;
	BxPlan		plan;
	BxShadow	shadow;
	BxMeasure	measure;

	if (!is_affordable(rebuild, rebuild->old.nslices))
		return;
	keys = Min(count_keys(rebuild), rebuild->most_keys);
	plan = bx_filter_plan(keys, target_rate(rebuild), BX_SLICE_ROWS);
	if (!is_affordable(rebuild, plan.nslices))
		return;
	publish_shadow(rebuild, keys, &shadow);
	BX_PAUSE(BX_PAUSE_PUBLISHED);
	rebuild->desc = shadow.desc;
	fill_shadow(rebuild);
	if (bx_slices_measure(index, rebuild->level, rebuild->node, &rebuild->desc,
						  rebuild->repair->strategy, &measure))
		bx_slices_set_baseline(&rebuild->desc, &measure);
	BX_PAUSE(BX_PAUSE_FILLED);
	bx_dir_swap_shadow(index, rebuild->partition, rebuild->child,
					   &rebuild->old, &shadow, &rebuild->desc);
	if (rebuild->level == BX_LEVEL_SEGMENT)
		rebuild->repair->segments++;
	else
		rebuild->repair->summaries++;
	bx_extents_free(index, &rebuild->old);
	rebuild->repair->freed_pages += rebuild->old.nslices;
}

/* Drops a partition's shadow, if a rebuild has left one behind. */
static void
drop_shadow(Relation index, uint32 partition)
{
	BxTopPageData top;
	BxShadow	none = {0};
	BlockNumber index_blocks = 0;

	if (bx_dir_read_top(index, partition, &top) &&
		top.shadow.desc.state != BX_NODE_EMPTY)
	{
		bx_dir_check_desc(index, BX_METAPAGE_BLKNO, &top.shadow.desc,
						  &index_blocks);
		bx_dir_update_top(index, partition, BX_CHILD_SELF, NULL, &none);
		bx_extents_free(index, &top.shadow.desc);
	}
}

/* Takes back what rebuild_node has published. */
static void
give_up_node(void *arg)
{
	Rebuild    *rebuild = arg;

	drop_shadow(rebuild->repair->index, rebuild->partition);
}

/* Whether the fill of a node's filters says that they need more space. */
bool
bx_rebuild_is_overfull(const BxNodeDesc *desc, const BxMeasure *measure,
					   double target)
{
	return measure->rate > target * BX_RATE_TOLERANCE &&
		measure->keys > desc->keys * BX_KEYS_TOLERANCE &&
		!(desc->flags & BX_DESC_DOUBT);
}

/* Whether a partition of so many segments should have a summary. */
bool
bx_rebuild_wants_summary(uint32 partition, int segments)
{
	return partition > 0 || segments >= BX_MIN_SEGMENTS_FOR_SUMMARY;
}

/*
 * Whether a node that has slices should get other ones.  "growing" says that
 * more keys are still to come, so that it is not too empty yet; "doubtful" is
 * the number of children that are themselves in doubt.
 */
static bool
needs_other_slices(Rebuild *rebuild, bool growing, int doubtful)
{
	const BxNodeDesc *desc = &rebuild->old;
	BxMeasure	measure;
	BxPlan		plan;

	if (!bx_slices_measure(rebuild->repair->index, rebuild->level, rebuild->node,
						   desc, rebuild->repair->strategy, &measure))
		return false;

	/*
	 * A busy table always has some rows that are in doubt.  Only if at least
	 * half of what is in doubt need not be, reading all of it again is worth
	 * it.
	 */
	if ((desc->flags & BX_DESC_DOUBT) && measure.nfull > 2 * doubtful)
		return true;
	if (bx_rebuild_is_overfull(desc, &measure, target_rate(rebuild)))
		return true;
	if (growing || measure.keys > desc->keys / 2)
		return false;
	plan = bx_filter_plan(measure.keys, target_rate(rebuild), BX_SLICE_ROWS);
	if (plan.nslices > desc->nslices / 2)
		return false;

	/*
	 * The few segments that a summary's keys are counted in may be much
	 * fuller than the others; of a segment all keys are counted, and the
	 * bound does no harm.  Without it, the new slices would come out as large
	 * as the old ones, at every VACUUM.
	 */
	rebuild->most_keys = measure.keys;
	return true;
}

/* "segments" is how many a partition has. */
static bool
needs_rebuild(Rebuild *rebuild, bool growing, int segments, int doubtful)
{
	rebuild->most_keys = get_float8_infinity();

	/* what failed for one node would fail for the next, too */
	if (rebuild->repair->failures > 0 || !rebuild->repair->may_rebuild)
		return false;
	switch (rebuild->old.state)
	{
		case BX_NODE_EMPTY:
			return false;
		case BX_NODE_UNKNOWN:
			return rebuild->level == BX_LEVEL_SEGMENT ||
				bx_rebuild_wants_summary(rebuild->partition, segments);
		default:
			return needs_other_slices(rebuild, growing, doubtful);
	}
}

/* Segments of a partition, and how many of them are in doubt. */
int
bx_rebuild_count_segments(const BxTopPageData *top, int *doubtful)
{
	int			n = 0;

	*doubtful = 0;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		if (top->child[c].state != BX_NODE_EMPTY)
			n++;
		if (top->child[c].flags & BX_DESC_DOUBT)
			(*doubtful)++;
	}
	return n;
}

/* Repairs what needs it in one partition. */
static void
repair_partition(Rebuild *rebuild, uint32 partition, uint32 last_segment)
{
	Relation	index = rebuild->repair->index;
	BlockNumber index_blocks = 0;
	BxTopPageData top;
	BlockNumber blkno;
	int			segments;
	int			doubtful;

	drop_shadow(index, partition);
	if (!bx_dir_read_top(index, partition, &top))
		return;
	bx_dir_tops(index, partition, 1, &blkno);
	rebuild->partition = partition;
	rebuild->level = BX_LEVEL_SEGMENT;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		rebuild->child = c;
		rebuild->node = partition * BX_FANOUT + c;
		rebuild->old = top.child[c];
		bx_dir_check_desc(index, blkno, &rebuild->old, &index_blocks);
		bx_vacuum_delay_point();
		if (needs_rebuild(rebuild, rebuild->node >= last_segment, 0, 0))
			bx_repair_try(rebuild->repair, rebuild_node, give_up_node,
						  rebuild);
	}

	/* the summary last, when the segments are what they can be */
	if (!bx_dir_read_top(index, partition, &top))
		return;
	segments = bx_rebuild_count_segments(&top, &doubtful);
	rebuild->level = BX_LEVEL_PARTITION;
	rebuild->child = BX_CHILD_SELF;
	rebuild->node = partition;
	rebuild->old = top.self;
	bx_dir_check_desc(index, blkno, &rebuild->old, &index_blocks);
	if (needs_rebuild(rebuild, segments < BX_FANOUT, segments, doubtful))
		bx_repair_try(rebuild->repair, rebuild_node, give_up_node, rebuild);
}

/* Repairs all partitions that the heap has, and reclaims pages. */
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
	for (uint32 p = 0; p < npartitions; p++)
		repair_partition(&rebuild, p, last_segment);
	repair->free_pages = bx_extents_sweep(repair->index, &repair->named_end);
}
