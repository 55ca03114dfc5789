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
 * A search reads a page of each group.  Most groups contain 8 to 32
 * partitions, as long as VACUUM has not merged groups.  Reading a page of a
 * group takes about half a microsecond; reading a heap page whose rows bloomidx
 * checks (heap/rows.c) takes 3 to 4 microseconds.  Doubling p pages per range to 2p
 * makes a lookup read p heap pages more, and halves the number of partitions,
 * so doubling reduces the time if there are more than about 256p partitions.
 */
#define MANY_PARTITIONS		256

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
