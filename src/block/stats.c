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

#include "block.h"

/* Cost of testing one filter for one key, in units of cpu_operator_cost. */
#define TEST_COST			0.5

void
bx_block_collect_stats(Relation index, BxStats *stats,
					   BufferAccessStrategy strategy)
{
	BxMetaPageData meta;
	BxBlockGeometry geometry;
	double		filters = 0;
	double		doubtful = 0;
	double		keys = 0;
	double		rates = 0;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	geometry = bx_block_geometry(&meta);
	stats->parts = meta.block.pages;
	stats->block.ranges_per_page = meta.block.nranges;
	stats->range_keys = meta.stats.range_keys;
	stats->range_rate = meta.stats.range_rate;
	for (uint32 i = 0; i < meta.block.pages; i++)
	{
		PGAlignedBlock page;
		BxBlockFill fill;

		bx_vacuum_delay_point();
		bx_block_read_page(index, i, &geometry, strategy, page.data);
		bx_block_measure(page.data, geometry.nranges, &fill);
		filters += fill.filters;
		doubtful += fill.doubtful;
		keys += fill.keys;
		rates += fill.rates;
	}
	bx_block_set_means(stats, filters, doubtful, keys, rates);
}

double
bx_block_match_fraction(const BxSearchFacts *facts, double elements,
						double hit_ranges)
{
	double		rate = facts->stats.parts > 0 ? facts->stats.range_rate :
	facts->target_rate;
	double		hit = hit_ranges / facts->ranges;

	return hit + (1.0 - hit) * -expm1(-elements * rate);
}

/* Every search reads all pages and tests all filters. */
void
bx_block_search_cost(const BxSearchFacts *facts, double elements,
					 double hit_ranges, BxSearchCost *cost)
{
	double		per_page = facts->stats.block.ranges_per_page > 0 ?
	facts->stats.block.ranges_per_page : BX_MAX_BLOCK_RANGES / 4;

	cost->pages = ceil(facts->ranges / per_page);
	cost->in_order = true;
	cost->operations = facts->ranges * elements * TEST_COST;
}
