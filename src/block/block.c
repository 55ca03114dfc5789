/*-------------------------------------------------------------------------
 *
 * block.c
 *	  Layout "block": the filters of consecutive ranges, each as large as its
 *	  keys need, packed into pages that are searched from first to last.
 *
 * How many ranges a page has is chosen once, when the first key comes, so the
 * page of a range is computed and needs no directory.  A page's space is
 * shared out by the keys of each range.
 *
 * The metapage tells how many pages there are.  They are made in order, under
 * LockPage on the metapage, and counted there when they are complete, before
 * the first key goes in.  So a page behind the last has no keys, and one
 * before it that is not what it should be is damaged.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "block.h"

/*
 * Automatic pages_per_range aims at this many keys in a range.  A search tests
 * all filters, and then reads the whole range that has the key: with more keys
 * to a range the former costs less and the latter more.  In ten million rows,
 * 75 a page, 8 pages take a third less time than one page does.
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
