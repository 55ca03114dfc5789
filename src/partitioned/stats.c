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
	FilterSums	segments;
	FilterSums	summaries;
} StatsState;

static void
add_node(StatsState *state, int level, uint32 node, const BxNodeDesc *desc,
		 FilterSums *sums)
{
	BxMeasure	measure;

	if (!bx_slices_measure(state->index, level, node, desc, state->strategy,
						   &measure))
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
	stats->partitions++;
	bx_dir_check_desc(state->index, blkno, &top.self, &index_blocks);
	if (top.self.state == BX_NODE_PRESENT)
	{
		stats->summarized++;
		add_node(state, BX_LEVEL_PARTITION, partition, &top.self,
				 &state->summaries);
	}
	for (int c = 0; c < BX_FANOUT; c++)
	{
		bx_vacuum_delay_point();
		bx_dir_check_desc(state->index, blkno, &top.child[c], &index_blocks);
		if (top.child[c].state != BX_NODE_PRESENT)
			continue;
		stats->segments++;
		stats->slices += top.child[c].nslices;
		add_node(state, BX_LEVEL_SEGMENT, partition * BX_FANOUT + c,
				 &top.child[c], &state->segments);
	}
}

void
bx_partitioned_collect_stats(Relation index, BxStats *stats,
							 BufferAccessStrategy strategy)
{
	StatsState	state = {.index = index,.stats = stats,.strategy = strategy};
	BxMetaPageData meta;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	bx_dir_each_top(index, &meta, add_partition, &state);
	if (state.segments.filters > 0)
	{
		stats->range_keys = state.segments.keys / state.segments.filters;
		stats->segment_rate = state.segments.rates / state.segments.filters;
	}
	if (state.summaries.filters > 0)
		stats->summary_rate = state.summaries.rates / state.summaries.filters;
}

static double
summary_rate(const BxStats *stats)
{
	return stats->summarized > 0 ? stats->summary_rate : BX_SUMMARY_RATE;
}

double
bx_partitioned_match_fraction(const BxSearchFacts *facts, double elements,
							  double hit_ranges)
{
	const BxStats *stats = &facts->stats;
	double		rate = stats->segments > 0 ? stats->segment_rate :
	facts->target_rate;
	double		hit = hit_ranges / facts->ranges;
	double		segments = Max(facts->ranges / BX_FANOUT, 1);
	double		passes = Min(1.0, hit_ranges / elements / segments +
							 summary_rate(stats));

	/*
	 * A segment is probed only for the elements that pass its summary, or for
	 * all elements if there is no summary.
	 */
	if (stats->summarized == 0)
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
	double		open = Min(partitions, Max(0.0, (double) stats->partitions -
										   stats->summarized));
	double		open_segments;
	double		slices = stats->segments > 0 ?
	(double) stats->slices / stats->segments : 3;
	double		rate = summary_rate(stats);
	double		per_segment;
	double		visited;

	if (stats->partitions == 0)
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
