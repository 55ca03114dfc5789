/*-------------------------------------------------------------------------
 *
 * partitioned.c
 *	  Layout "partitioned": a tree of nodes, each with the filters of its
 *	  128 children stored transposed in slice pages.
 *
 * src/README describes the pages, the lock order and why no row is missed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "partitioned.h"

/*
 * Automatic pages_per_range aims at this many keys per range, so that most of
 * a slice is used.
 */
#define AUTO_RANGE_KEYS		64

/*
 * Measured with 30 million rows, 75 per page, in memory: each partition costs
 * a search 1.2 to 2 microseconds.  Each heap page costs 3 to 4 microseconds
 * if bloomidx checks its rows (heap/rows.c), and 8 to 10 if the executor
 * rechecks them all.  So doubling p pages per range to 2p pays if there are
 * more than 4p partitions in the first case, and 8p to 17p in the second.
 * The exact limit depends on the machine, and near it the difference is
 * small.
 */
#define MANY_PARTITIONS		12

const BxLayout bx_layout_partitioned = {
	.id = BX_LAYOUT_PARTITIONED,
	.name = "partitioned",
	.auto_range_keys = AUTO_RANGE_KEYS,
	.many_ranges = MANY_PARTITIONS * BX_RANGES_PER_PARTITION,
	.build_plan = bx_partitioned_build_plan,
	.build_begin = bx_partitioned_build_begin,
	.build_add = bx_partitioned_build_add,
	.build_unit = bx_partitioned_build_unit,
	.build_end = bx_partitioned_build_end,
	.build_publish = bx_partitioned_build_publish,
	.insert_begin = bx_partitioned_insert_begin,
	.insert = bx_partitioned_insert,
	.insert_doubt = bx_partitioned_insert_doubt,
	.search = bx_partitioned_search,
	.repair = bx_rebuild_index,
	.compact = bx_move_compact,
	.truncate = bx_extents_truncate,
	.collect_stats = bx_partitioned_collect_stats,
	.match_fraction = bx_partitioned_match_fraction,
	.search_cost = bx_partitioned_search_cost,
	.shown_by = "bloomidx_segments",
	.walk = bx_partitioned_walk,
	.check_claims = bx_partitioned_check_claims,
	.check_pages = bx_partitioned_check_pages,
	.check_keys = bx_partitioned_check_keys,
	.estimate = bx_partitioned_estimate,
};
