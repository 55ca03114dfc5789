/*-------------------------------------------------------------------------
 *
 * search.c
 *	  From the ranges that a layout has found to heap pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "layout.h"

/*
 * Adds the heap pages of a range, as far as they exist.  Pages beyond the end
 * that the heap had after the snapshot was taken cannot hold a visible row.
 */
void
bx_search_add_range(BxSearch *search, uint32 range)
{
	uint64		first = (uint64) range << search->geometry.lg_base;
	uint64		end = Min(first + (1 << search->geometry.lg_base), search->heap_blocks);

	if (first >= end)
		return;
	search->found(search->arg, (BlockNumber) first, (uint32) (end - first));
	search->npages += end - first;
}
