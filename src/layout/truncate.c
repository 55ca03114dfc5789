/*-------------------------------------------------------------------------
 *
 * truncate.c
 *	  VACUUM: truncates free pages at the end of the file.
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
 * The file is truncated by at least TRUNCATE_PAGES pages, and at least
 * 1/TRUNCATE_FRACTION of the file or TRUNCATE_MANY pages.  As in VACUUM of a
 * table, fewer pages are not worth locking out all other backends, even
 * briefly.
 */
#define TRUNCATE_PAGES		16
#define TRUNCATE_FRACTION	16
#define TRUNCATE_MANY		1024

/*
 * Number of attempts to acquire the lock, and the delay between them in
 * microseconds.
 */
#define LOCK_ATTEMPTS		10
#define LOCK_DELAY			20000L

/*
 * Returns whether a file of nblocks pages should be truncated to "end" pages.
 */
bool
bx_truncate_is_worth_it(BlockNumber nblocks, BlockNumber end)
{
	BlockNumber tail = nblocks > end ? nblocks - end : 0;

	return tail >= TRUNCATE_PAGES &&
		(tail >= nblocks / TRUNCATE_FRACTION || tail >= TRUNCATE_MANY);
}

/*
 * Acquires AccessExclusiveLock on the index, if no other backend holds a lock
 * on it.  Returns false if the lock cannot be acquired.
 *
 * Waiting for the lock would block other backends behind us, and could cause
 * a deadlock, because VACUUM already holds another lock on the index.  A few
 * attempts are enough to find a moment between the short queries of a few
 * clients.  If the index is in use all the time, the pages remain free, and
 * the next VACUUM tries again.
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
 * Truncates the index if the lock can be acquired.  Returns the number of
 * pages that were removed, and sets *free_pages to the number of free pages
 * that are left; *free_pages is unchanged if the lock cannot be acquired.
 *
 * The lock belongs to a subtransaction, which is then rolled back.  The
 * rollback reverts nothing, because neither the metapage nor the size of a
 * file is transactional.  But it releases the lock, also on a standby.  A
 * standby is not informed when a lock alone is released, and would otherwise
 * block all queries of the table until VACUUM has finished the other indexes.
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

	/* flush the abort record, so that a standby releases the lock soon */
	if (XLogStandbyInfoActive() && after < before)
		XLogFlush(XactLastRecEnd);
	return before - after;
}

/*
 * Compacts and truncates the index, if enough pages are free, and updates
 * *repair.  The leader of a parallel VACUUM cannot do this: it can neither
 * assign a transaction ID, which the lock needs for standbys, nor start a
 * subtransaction.
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
				(errmsg("index \"%s\": truncated, %u pages fewer",
						RelationGetRelationName(index), pages)));
	else
		ereport(message_level,
				(errmsg("index \"%s\": not truncated, because it is in use or needs the pages again",
						RelationGetRelationName(index))));
}
