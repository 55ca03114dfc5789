/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Claims: which pages of an index something names, for bloomidx_check().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "layout.h"

/*
 * Two things that were read one after the other, the second at blkno, do not
 * fit together.
 */
void
bx_check_contradiction(BxCheck *check, BlockNumber blkno, const char *problem)
{
	if (!check->may_retry)
		bx_page_corrupted(check->index, blkno, problem);
	check->contradiction = true;
}

/* Whether something has claimed a page. */
bool
bx_check_is_claimed(const BxCheck *check, BlockNumber blkno)
{
	return (check->claimed[blkno / 8] & (1 << (blkno % 8))) != 0;
}

/* What stands at blkno names n pages from start on. */
void
bx_check_claim(BxCheck *check, BlockNumber blkno, BlockNumber start, uint32 n)
{
	for (uint64 page = start; page < (uint64) start + n; page++)
	{
		if (page >= check->nblocks)
		{
			/* pages that were added since have nobody else who names them */
			if ((uint64) start + n <= RelationGetNumberOfBlocks(check->index))
				return;
			bx_check_contradiction(check, blkno,
								   "names a page behind the end");
			return;
		}
		if (bx_check_is_claimed(check, (BlockNumber) page))
		{
			bx_check_contradiction(check, blkno,
								   psprintf("names block " UINT64_FORMAT ", which something else names, too",
											page));
			return;
		}
		check->claimed[page / 8] |= 1 << (page % 8);
	}
}

/* A key of a range is not where it should be: at blkno. */
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
