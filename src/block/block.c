/*-------------------------------------------------------------------------
 *
 * block.c
 *	  Layout "block": the filters of consecutive ranges, each sized for its
 *	  keys, packed into pages that are searched sequentially.
 *
 * The number of ranges per page is chosen once, by CREATE INDEX or at the
 * first insert, so the page of a range is computed and needs no directory.
 * The space of a page is divided among its ranges in proportion to their
 * keys.
 *
 * The metapage contains the number of pages.  After the build, pages are
 * created in order, under LockPage on the metapage, and are counted in the
 * metapage when they are complete, before the first key is added.  So a page
 * beyond the counted ones has no keys, and a counted page that fails its
 * checks is damaged.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "block.h"

/*
 * Automatic pages_per_range aims at this many keys per range.  A search tests
 * all filters, and then reads the whole range that contains the key: with
 * more keys per range, the former costs less and the latter more.  With ten
 * million rows, 75 per page, a search takes a third less time with 8 pages
 * per range than with one.
 */
#define AUTO_RANGE_KEYS		512

const BxLayout bx_layout_block = {
	.id = BX_LAYOUT_BLOCK,
	.name = "block",
	.auto_range_keys = AUTO_RANGE_KEYS,
	.build_plan = bx_block_build_plan,
	.build_begin = bx_block_build_begin,
	.build_add = bx_block_build_add,
	.build_unit = bx_block_build_unit,
	.build_end = bx_block_build_end,
	.build_publish = bx_block_build_publish,
	.insert_begin = bx_block_insert_begin,
	.insert = bx_block_insert,
	.insert_doubt = bx_block_insert_doubt,
	.search = bx_block_search,
	.repair = bx_block_repair,
	.collect_stats = bx_block_collect_stats,
	.match_fraction = bx_block_match_fraction,
	.search_cost = bx_block_search_cost,
	.shown_by = "bloomidx_blocks",
	.walk = bx_block_walk,
	.check_claims = bx_block_check_claims,
	.check_pages = bx_block_check_pages,
	.check_keys = bx_block_check_keys,
	.estimate = bx_block_estimate,
};
