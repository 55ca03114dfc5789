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
	FilterSums	sums[BX_TOP_LEVEL + 1]; /* by level */
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
add_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	StatsState *state = arg;
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
	bx_dir_each_top(index, &meta, add_partition, &state);
	if (ranges->filters > 0)
	{
		stats->range_keys = ranges->keys / ranges->filters;
		stats->range_rate = ranges->rates / ranges->filters;
	}
	if (segments->filters > 0)
		stats->partitioned.summary_rate = segments->rates / segments->filters;
}

static double
summary_rate(const BxStats *stats)
{
	return stats->partitioned.summarized > 0 ?
		stats->partitioned.summary_rate : BX_SUMMARY_RATE;
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
	double		passes = Min(1.0, hit_ranges / elements / segments +
							 summary_rate(stats));

	/*
	 * A segment is probed only for the elements that pass its summary, or for
	 * all elements if there is no summary.
	 */
	if (stats->partitioned.summarized == 0)
		passes = 1.0;
	return hit + (1.0 - hit) * -expm1(-elements * passes * rate);
}

/*
 * All segments of a partition without a summary are read.  The first
 * partition has none until VACUUM or CREATE INDEX finds that it has enough
 * segments.  A page that several elements have in common is read once.
 */
void
bx_partitioned_search_cost(const BxSearchFacts *facts, double elements,
						   double hit_ranges, BxSearchCost *cost)
{
	const BxStats *stats = &facts->stats;
	double		segments = ceil(facts->ranges / BX_FANOUT);
	double		partitions = ceil(segments / BX_FANOUT);
	double		open = Min(partitions, Max(0.0, (double) stats->partitioned.partitions -
										   stats->partitioned.summarized));
	double		open_segments;
	double		slices = stats->parts > 0 ?
	(double) stats->partitioned.slices / stats->parts : 3;
	double		rate = summary_rate(stats);
	double		per_segment;
	double		visited;

	if (stats->partitioned.partitions == 0)
		open = 1;				/* no statistics yet */
	open_segments = Min(segments, open * BX_FANOUT);

	/*
	 * segments that pass the summary, including false positives, and their
	 * slices
	 */
	visited = open_segments +
		Min((segments - open_segments) * Min(1.0, rate * elements) + hit_ranges,
			segments - open_segments);
	per_segment = Min(slices, Max(1.0, open_segments > 0 ? elements :
								  elements * rate));
	cost->pages = partitions	/* top-level pages */
		+ (partitions - open) * Min(elements, slices * BX_FANOUT / 2)
		+ visited * per_segment;
	cost->in_order = false;
	cost->operations = 0;
}
