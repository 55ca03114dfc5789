/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Converts the ranges that a layout has found to heap pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "layout.h"

/*
 * Reports the heap pages of a range that exist.  Pages beyond
 * search->heap_blocks, the size of the heap after the snapshot was taken,
 * cannot contain a visible row.  Ignores ranges that were searched before the
 * search was paused, and ranges that will be searched when it is continued.
 */
void
bx_search_add_range(BxSearch *search, uint32 range)
{
	uint64		first = (uint64) range << search->geometry.lg_base;
	uint64		end = Min(first + (1 << search->geometry.lg_base), search->heap_blocks);

	if (first >= end || range < search->next_range || search->paused)
		return;
	search->next_range = range + 1;
	search->found(search->arg, (BlockNumber) first, (uint32) (end - first));
	search->npages += end - first;
}
