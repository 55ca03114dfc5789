/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Claims for bloomidx_check(): which pages of an index a directory
 *	  entry references.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "layout.h"

/*
 * Reports that two pieces of data that were read one after the other, the
 * second at blkno, contradict each other.  That may result from a concurrent
 * change: the caller of the layout decides whether it is damage.
 */
void
bx_check_contradiction(BxCheck *check, BlockNumber blkno, const char *problem)
{
	if (check->problem != NULL)
		return;
	check->problem_blkno = blkno;
	check->problem = problem;
}

/* Returns whether a page has been claimed. */
bool
bx_check_is_claimed(const BxCheck *check, BlockNumber blkno)
{
	return (check->claimed[blkno / 8] & (1 << (blkno % 8))) != 0;
}

/*
 * Claims n pages beginning with start, which an entry at blkno references.
 * Reports a contradiction if a page is beyond the end of the file, also of
 * its present size, or has been claimed before.
 */
void
bx_check_claim(BxCheck *check, BlockNumber blkno, BlockNumber start, uint32 n)
{
	for (uint64 page = start; page < (uint64) start + n; page++)
	{
		if (page >= check->nblocks)
		{
			/*
			 * pages that were added meanwhile are not named by anything else
			 */
			if ((uint64) start + n <= RelationGetNumberOfBlocks(check->index))
				return;
			bx_check_contradiction(check, blkno,
								   "reference to a page beyond the end of the file");
			return;
		}
		if (bx_check_is_claimed(check, (BlockNumber) page))
		{
			bx_check_contradiction(check, blkno,
								   psprintf("reference to block " UINT64_FORMAT ", which is already referenced",
											page));
			return;
		}
		check->claimed[page / 8] |= 1 << (page % 8);
	}
}

/* Raises an error: a key of a range is missing in the page at blkno. */
void
bx_check_lost_key(BxCheck *check, BlockNumber blkno, uint32 range,
				  const char *where)
{
	uint64		first = (uint64) range << check->lg_base;

	bx_page_corrupted(check->index, blkno,
					  psprintf("a key of heap blocks " UINT64_FORMAT " to " UINT64_FORMAT " is not in %s",
							   first, first + (1 << check->lg_base) - 1,
							   where));
}
