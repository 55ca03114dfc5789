/*-------------------------------------------------------------------------
 *
 * truncate.c
 *	  VACUUM gives free pages at the end of the file back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "layout.h"

/*
 * At least so many pages at the end of the file are given back, and at least
 * this part of the file, unless they are very many.  Like VACUUM of a table:
 * for less it is not worth shutting out everybody, if only for a moment.
 */
#define TRUNCATE_PAGES		16
#define TRUNCATE_FRACTION	16
#define TRUNCATE_MANY		1024

/* How often the lock for it is tried, and how long apart in microseconds. */
#define LOCK_ATTEMPTS		10
#define LOCK_DELAY			20000L

/* Whether a file of so many pages should be truncated at "end". */
bool
bx_truncate_is_worth_it(BlockNumber nblocks, BlockNumber end)
{
	BlockNumber tail = nblocks > end ? nblocks - end : 0;

	return tail >= TRUNCATE_PAGES &&
		(tail >= nblocks / TRUNCATE_FRACTION || tail >= TRUNCATE_MANY);
}

/*
 * Gets AccessExclusiveLock on the index, if nobody else has a lock on it.
 *
 * To wait for the lock would make others wait behind us, and could be a
 * deadlock, as we have another lock on the index.  To try for a moment finds
 * the time between the short queries of a few clients.  If others have it all
 * the time, the pages stay, and the next VACUUM tries again.
 */
static bool
lock_exclusively(Relation index)
{
	for (int attempt = 1; !ConditionalLockRelation(index, AccessExclusiveLock);
		 attempt++)
	{
		CHECK_FOR_INTERRUPTS();
		if (attempt == LOCK_ATTEMPTS)
			return false;
		pg_usleep(LOCK_DELAY);
	}
	return true;
}

/*
 * Gives pages at the end of the index back, if the lock for it can be had.
 * Returns how many, and sets *free_pages, if there are any, to how many other pages
 * are free.
 *
 * The lock is that of a subtransaction, which is then rolled back.  That takes
 * nothing back: neither the metapage nor the size of a file is part of a
 * transaction.  But it lets go of the lock, also on a standby, which does not
 * hear of it when a lock alone is released, and would otherwise keep all
 * queries of the table waiting until VACUUM is done with the other indexes.
 */
static BlockNumber
try_to_truncate(Relation index, const BxLayout *layout, BlockNumber *free_pages)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	volatile BlockNumber before = RelationGetNumberOfBlocks(index);
	volatile BlockNumber after = before;
	ErrorData  *volatile error = NULL;
	BxProgress	progress;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		if (lock_exclusively(index))
		{
			before = RelationGetNumberOfBlocks(index);
			after = layout->truncate(index, free_pages);
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	bx_progress_save(&progress);
	RollbackAndReleaseCurrentSubTransaction();
	bx_progress_restore(&progress);
	MemoryContextSwitchTo(oldcxt);
	CurrentResourceOwner = oldowner;
	if (error)
		ReThrowError(error);

	/* nobody else would be in a hurry to send a standby the end of the lock */
	if (XLogStandbyInfoActive() && after < before)
		XLogFlush(XactLastRecEnd);
	return before - after;
}

/*
 * Gives free pages back, if they are many, and changes *repair accordingly.
 * The leader of a parallel VACUUM cannot do it: it can neither have a
 * transaction ID assigned, which the lock needs for the sake of standbys, nor
 * start a subtransaction.
 */
void
bx_truncate_index(const BxLayout *layout, BxRepair *repair, int message_level)
{
	Relation	index = repair->index;
	BlockNumber pages;

	if (layout->compact == NULL || !bx_may_truncate(repair->heap) ||
		IsInParallelMode())
		return;
	layout->compact(repair);
	if (!bx_truncate_is_worth_it(RelationGetNumberOfBlocks(index),
								 repair->named_end))
		return;
	pages = try_to_truncate(index, layout, &repair->free_pages);
	if (pages > 0)
		ereport(message_level,
				(errmsg("index \"%s\": gave %u pages back",
						RelationGetRelationName(index), pages)));
	else
		ereport(message_level,
				(errmsg("index \"%s\": did not give pages back, because it is in use, or needs them again",
						RelationGetRelationName(index))));
}
