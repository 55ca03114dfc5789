/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Statistics of an index, and estimates of the cost of a search.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/* Sums over the filters of one level. */
typedef struct FilterSums
{
	double		filters;
	double		keys;
	double		rates;
} FilterSums;

typedef struct StatsState
{
	Relation	index;
	BxStats    *stats;
	BufferAccessStrategy strategy;
	FilterSums	sums[BX_LEVEL_GROUP + 1];	/* by level */
} StatsState;

static void
add_node(StatsState *state, const BxNode *node)
{
	FilterSums *sums = &state->sums[node->level];
	BxMeasure	measure;

	if (!bx_slices_measure(state->index, node, state->strategy, &measure))
		return;
	sums->filters += measure.nchildren;
	sums->keys += measure.keys * measure.nchildren;
	sums->rates += measure.rate * measure.nchildren;
}

/* Adds a partition to the statistics. */
static void
add_partition(StatsState *state, uint32 partition, BlockNumber blkno)
{
	BxStats    *stats = state->stats;
	BlockNumber index_blocks = 0;
	BxTopPageData top;

	if (!bx_dir_read_top(state->index, partition, &top))
		return;
	stats->partitioned.partitions++;
	for (int slot = 0; slot < BX_TOP_SLOTS; slot++)
	{
		BxNode		node;

		bx_vacuum_delay_point();
		bx_node_of_slot(partition, slot, &top, &node);
		bx_dir_check_desc(state->index, blkno, &node.desc, &index_blocks);
		if (node.desc.state != BX_NODE_PRESENT)
			continue;
		if (slot == BX_SLOT_SUMMARY)
			stats->partitioned.summarized++;
		else
		{
			stats->parts++;
			stats->partitioned.slices += node.desc.nslices;
		}
		add_node(state, &node);
	}
}

/* Adds the filter of a partition in a group to the statistics. */
static void
add_group_filter(StatsState *state, uint32 number, int child,
				 const BxRegionPageData *region)
{
	const BxGroupDesc *group = bx_groups_find(region, child);
	FilterSums *sums = &state->sums[BX_LEVEL_GROUP];
	BxGroupMeasure measure;

	if (group == NULL || bx_groups_is_unfiltered(region, child))
		state->stats->partitioned.unfiltered++;
	else if (bx_groups_measure(state->index, number, group,
							   child - group->first, state->strategy,
							   &measure))
	{
		sums->filters++;
		sums->keys += measure.keys;
		sums->rates += measure.rate;
	}
}

/* Region callback: adds a region to the statistics. */
static void
add_region(void *arg, uint32 number, BlockNumber blkno,
		   const BxRegionPageData *region)
{
	StatsState *state = arg;

	state->stats->partitioned.groups += region->ngroups;
	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (region->top[i] == 0)
			continue;
		add_group_filter(state, number, i, region);
		add_partition(state, number * BX_FANOUT + i, region->top[i]);
	}
}

void
bx_partitioned_collect_stats(Relation index, BxStats *stats,
							 BufferAccessStrategy strategy)
{
	StatsState	state = {.index = index,.stats = stats,.strategy = strategy};
	const FilterSums *ranges = &state.sums[BX_LEVEL_SEGMENT];
	const FilterSums *segments = &state.sums[BX_LEVEL_PARTITION];
	BxMetaPageData meta;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	bx_dir_each_region(index, &meta, add_region, &state);
	if (ranges->filters > 0)
	{
		stats->range_keys = ranges->keys / ranges->filters;
		stats->range_rate = ranges->rates / ranges->filters;
	}
	if (state.sums[BX_LEVEL_GROUP].filters > 0)
		stats->partitioned.group_rate = state.sums[BX_LEVEL_GROUP].rates /
			state.sums[BX_LEVEL_GROUP].filters;
	if (segments->filters > 0)
		stats->partitioned.summary_rate = segments->rates / segments->filters;
}

static double
summary_rate(const BxStats *stats)
{
	return stats->partitioned.summarized > 0 ?
		stats->partitioned.summary_rate : BX_SUMMARY_RATE;
}

/* Partitions that a search visits. */
typedef struct Visits
{
	double		partitions;		/* of the heap */
	double		visited;		/* expected number that is visited */
	double		elements;		/* elements that are looked for in each of
								 * these */
	double		false_elements; /* fraction of the elements that a partition
								 * without them does not exclude */
} Visits;

/*
 * Estimates which partitions pass the filters in groups.  A partition without
 * such a filter is always visited.  As long as there are no statistics, all
 * partitions are assumed to be visited.
 */
static void
expect_visits(const BxSearchFacts *facts, double elements, double hit_ranges,
			  Visits *visits)
{
	const BxPartitionedStats *stats = &facts->stats.partitioned;
	double		n = Max(ceil(facts->ranges / BX_RANGES_PER_PARTITION), 1);
	double		unfiltered = stats->groups == 0 ? n : Min(stats->unfiltered, n);
	double		filtered = n - unfiltered;

	visits->partitions = n;
	visits->visited = unfiltered +
		Min(filtered, filtered * Min(1.0, stats->group_rate * elements) +
			hit_ranges);
	visits->false_elements = (unfiltered + filtered * stats->group_rate) / n;
	visits->elements = Min(elements,
						   Max(1.0, elements * visits->false_elements +
							   hit_ranges / n));
}

double
bx_partitioned_match_fraction(const BxSearchFacts *facts, double elements,
							  double hit_ranges)
{
	const BxStats *stats = &facts->stats;
	double		rate = stats->parts > 0 ? stats->range_rate :
	facts->target_rate;
	double		hit = hit_ranges / facts->ranges;
	double		segments = Max(facts->ranges / BX_FANOUT, 1);
	double		passes;
	Visits		visits;

	/*
	 * A segment is probed only for the elements that pass the levels above,
	 * or for all elements if there is no summary.
	 */
	expect_visits(facts, elements, hit_ranges, &visits);
	passes = Min(1.0, hit_ranges / elements / segments +
				 summary_rate(stats) * visits.false_elements);
	if (stats->partitioned.summarized == 0)
		passes = 1.0;
	return hit + (1.0 - hit) * -expm1(-elements * passes * rate);
}

/*
 * All segments of a partition without a summary are read.  The first
 * partition has none until it has enough segments.  A page that several
 * elements have in common is read once.
 */
void
bx_partitioned_search_cost(const BxSearchFacts *facts, double elements,
						   double hit_ranges, BxSearchCost *cost)
{
	const BxStats *stats = &facts->stats;
	double		segments = ceil(facts->ranges / BX_FANOUT);
	double		partitions = ceil(segments / BX_SEGMENTS_PER_PARTITION);
	double		open = Min(partitions, Max(0.0, (double) stats->partitioned.partitions -
										   stats->partitioned.summarized));
	double		open_segments;
	double		slices = stats->parts > 0 ?
	(double) stats->partitioned.slices / stats->parts : 3;
	double		rate = summary_rate(stats);
	double		per_segment;
	double		visited;
	Visits		visits;

	expect_visits(facts, elements, hit_ranges, &visits);
	if (stats->partitioned.partitions == 0)
		open = 1;				/* no statistics yet */
	open_segments = Min(segments, open * BX_SEGMENTS_PER_PARTITION);

	/*
	 * segments that pass the summaries of the partitions that are visited,
	 * including false positives, and their slices
	 */
	visited = open_segments +
		Min((segments - open_segments) * visits.visited / visits.partitions *
			Min(1.0, rate * visits.elements) + hit_ranges,
			segments - open_segments);
	per_segment = Min(slices, Max(1.0, open_segments > 0 ? elements :
								  visits.elements * rate));
	cost->pages = visits.visited	/* top-level pages */
		+ Max(visits.visited - open, 0) * Min(visits.elements,
											  slices * BX_FANOUT / 2)
		+ visited * per_segment;
	if (partitions > 1)
		cost->pages += ceil(partitions / BX_FANOUT) +	/* region pages */
			stats->partitioned.groups * Min(elements, BX_INSERT_PAGES);
	cost->in_order = false;
	cost->operations = 0;
}
