/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  VACUUM: has the layout repair what needs it, and refreshes the
 *	  statistics.  bloomidx_summarize() does the same on demand.
 *
 * The index holds no TIDs, so there is nothing to delete: a filter that still
 * knows the keys of dead rows answers "maybe" for them, and no more.
 *
 * VACUUM runs no function of a user.  PostgreSQL marks a backend in VACUUM as
 * one that other backends may ignore (PROC_IN_VACUUM) when they decide which
 * rows nobody sees any more, and when they look for transactions in progress.
 * A function that reads a table there may miss rows that its snapshot sees,
 * and what a function writes there may be taken for aborted.  So VACUUM does
 * not rebuild the filters of an index that has expressions, a predicate or a
 * hash function in another language than C.  bloomidx_summarize(), which runs
 * in an ordinary transaction, does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "bloomidx.h"

PG_FUNCTION_INFO_V1(bloomidx_summarize);

static bool vacuum_is_active = false;

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

/* Keys that may be added under one lock. */
#define KEYS_AT_ONCE	256

/* What the build of an index has missed, on its way in. */
typedef struct Catchup
{
	Relation	heap;
	BxInsert   *insert;
	uint8		lg_base;
} Catchup;

/* Adds the keys of a range, as inserts of its rows would have done. */
static void
catch_up_range(void *arg, uint32 range, double done, const uint64 *keys,
			   Size nkeys, bool doubt)
{
	Catchup    *catchup = arg;
	BxInsert   *insert = catchup->insert;
	ItemPointerData tid;
	MemoryContext oldcxt = MemoryContextSwitchTo(insert->tmpcxt);

	ItemPointerSet(&tid, (BlockNumber) range << catchup->lg_base,
				   FirstOffsetNumber);
	for (Size first = 0; first < nkeys; first += KEYS_AT_ONCE)
	{
		int			n = Min(nkeys - first, KEYS_AT_ONCE);
		BxRowKeys	row = {n, n, unconstify(uint64 *, keys + first)};

		CHECK_FOR_INTERRUPTS();
		insert->layout->insert(insert, catchup->heap, &tid, &row);
	}
	if (doubt)
		insert->layout->insert_doubt(insert, catchup->heap, &tid);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(insert->tmpcxt);
}

/*
 * Adds every tuple version of the heap to an index that is not valid yet.
 *
 * While an index is built concurrently, others add versions behind the scan
 * and do not know yet that they have to insert into the index.  Validation
 * will add those that its snapshot sees, and this is enough for the server
 * itself, which waits for older snapshots before the index is used.  But a
 * standby does not wait, and may have a snapshot that sees a version that was
 * deleted since.  By now all writers know the index, so what they add after
 * us comes in by itself.  What was pruned before us, no snapshot sees that
 * will ever use the index: replay has waited for it, or cancelled it.
 */
static void
catch_up(Relation heap, Relation index)
{
	IndexInfo  *indexInfo = BuildIndexInfo(index);
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(heap);
	Catchup		catchup;
	BxMetaPageData meta;
	BxHeapScan *scan;

	bx_meta_read(index, &meta);
	catchup.heap = heap;
	catchup.insert = bx_insert_get(index, indexInfo);

	/* an index without keys takes its geometry from the first page */
	catchup.lg_base = meta.lg_base == BX_LG_BASE_UNSET ? 0 : meta.lg_base;
	scan = bx_heapscan_begin(heap, index, indexInfo,
							 (Size) maintenance_work_mem * 1024 / 8);
	bx_heapscan_ranges(scan, catchup.lg_base, 0,
					   bx_dir_ranges(heap_blocks, catchup.lg_base),
					   heap_blocks, catch_up_range, &catchup);
	bx_heapscan_end(scan);
}

/*
 * There is nothing to delete.  But before CREATE INDEX CONCURRENTLY and
 * REINDEX CONCURRENTLY validate an index, they ask for its TIDs in this way.
 */
IndexBulkDeleteResult *
bxbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
			 IndexBulkDeleteCallback callback, void *callback_state)
{
	Relation	index = info->index;

	/* VACUUM comes here, too, with an index that was never validated */
	if (!index->rd_index->indisvalid &&
		!(MyProc->statusFlags & PROC_IN_VACUUM))
	{
		Relation	heap;

		heap = table_open(IndexGetRelation(RelationGetRelid(index), false),
						  AccessShareLock);
		catch_up(heap, index);
		table_close(heap, AccessShareLock);
	}
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	return stats;
}

/* Counts what is there, and writes it to the metapage if it has changed. */
static void
refresh_stats(Relation index, const BxLayout *layout,
			  BufferAccessStrategy strategy)
{
	BxMetaPageData meta;
	BxStats		stats;

	layout->collect_stats(index, &stats, strategy);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);

	/* the first insert may have come since, and knows more than nothing */
	if (memcmp(&meta.stats, &stats, sizeof(stats)) != 0 &&
		!(stats.segments == 0 && meta.stats.segments > 0))
	{
		meta.stats = stats;
		bx_meta_write(index, &meta);
	}
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/* Hands the keys of some ranges, as far as the heap goes now, to a callback. */
void
bx_vacuum_scan_ranges(BxVacuum *vacuum, uint8 lg_base, uint64 first, uint64 n,
					  BxRangeCallback callback, void *arg)
{
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(vacuum->heap);
	uint64		end = bx_dir_ranges(heap_blocks, lg_base);
	BxHeapScan *scan;

	scan = bx_heapscan_begin(vacuum->heap, vacuum->index, vacuum->indexInfo,
							 vacuum->memory / 8);
	bx_heapscan_ranges(scan, lg_base, first, Min(first + n, end), heap_blocks,
					   callback, arg);
	bx_heapscan_end(scan);
}

/*
 * Whether an error that VACUUM meets may come from a row, and not from the
 * server or the index.
 */
static bool
is_about_a_row(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return category != ERRCODE_OPERATOR_INTERVENTION &&
		category != ERRCODE_INSUFFICIENT_RESOURCES &&
		category != ERRCODE_SYSTEM_ERROR &&
		sqlerrcode != ERRCODE_INDEX_CORRUPTED;
}

/* What pg_stat_progress_vacuum and its like show of this backend. */
typedef struct Progress
{
	ProgressCommandType command;
	Oid			target;
	int64		params[PGSTAT_NUM_PROGRESS_PARAM];
} Progress;

/* For restore_progress: the end of a subtransaction ends the command's report. */
static void
save_progress(Progress *progress)
{
	progress->command = PROGRESS_COMMAND_INVALID;
	if (MyBEEntry == NULL)
		return;
	progress->command = MyBEEntry->st_progress_command;
	progress->target = MyBEEntry->st_progress_command_target;
	memcpy(progress->params, MyBEEntry->st_progress_param,
		   sizeof(progress->params));
}

static void
restore_progress(const Progress *progress)
{
	int			numbers[PGSTAT_NUM_PROGRESS_PARAM];

	if (progress->command == PROGRESS_COMMAND_INVALID)
		return;
	for (int i = 0; i < PGSTAT_NUM_PROGRESS_PARAM; i++)
		numbers[i] = i;
	pgstat_progress_start_command(progress->command, progress->target);
	pgstat_progress_update_multi_param(PGSTAT_NUM_PROGRESS_PARAM, numbers,
									   progress->params);
}

/*
 * Rebuilds something in a subtransaction.  On an error, give_up takes back
 * what rebuild has published, and the old filters stay.
 *
 * VACUUM calls no function of a user, but a value's TOAST rows may be gone, if
 * its row was deleted meanwhile, or be damaged.  A VACUUM of the whole table
 * must not fail because of that: it warns, and this returns false.  All other
 * errors go to the caller: those of the server and of the index, and all those
 * of bloomidx_summarize(), where they may be a function's.
 */
bool
bx_vacuum_try(BxVacuum *vacuum, void (*rebuild) (void *),
			  void (*give_up) (void *), void *arg)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext cxt;
	volatile bool succeeded = true;

	/* the leader of a parallel VACUUM may not start subtransactions */
	if (IsInParallelMode())
	{
		rebuild(arg);
		return true;
	}

	cxt = AllocSetContextCreate(oldcxt, "bloomidx rebuild",
								ALLOCSET_DEFAULT_SIZES);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		rebuild(arg);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(oldcxt);
		CurrentResourceOwner = oldowner;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		Progress	progress;

		/* whatever it was, the subtransaction is ours to end */
		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
		save_progress(&progress);
		RollbackAndReleaseCurrentSubTransaction();
		restore_progress(&progress);
		MemoryContextSwitchTo(oldcxt);
		CurrentResourceOwner = oldowner;
		give_up(arg);
		if (!vacuum->in_vacuum || !is_about_a_row(error->sqlerrcode))
			ReThrowError(error);
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("could not rebuild filters of index \"%s\": %s",
						RelationGetRelationName(vacuum->index), error->message),
				 errdetail("The old filters are still in use.")));
		FreeErrorData(error);
		vacuum->failures++;
		succeeded = false;
	}
	PG_END_TRY();
	MemoryContextDelete(cxt);
	return succeeded;
}

/*
 * Whether the index has an expression or a predicate.  The catalog is asked,
 * and not the relation cache: that would simplify the expressions, and in
 * doing so call functions whose arguments are constants.
 */
static bool
is_computed(Relation index)
{
	HeapTuple	tuple = index->rd_indextuple;

	return !heap_attisnull(tuple, Anum_pg_index_indexprs, NULL) ||
		!heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
}

/*
 * Whether functions of users are needed to tell the keys of a row.  If so,
 * filters are rebuilt by bloomidx_summarize(), not by VACUUM.
 */
bool
bx_vacuum_needs_user_code(Relation index)
{
	if (is_computed(index))
		return true;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_hash_runs_user_code(index, i + 1))
			return true;
	}
	return false;
}

/* Whether a column's values may be compressed or in a TOAST table. */
static bool
has_toastable_column(Relation index)
{
	TupleDesc	desc = RelationGetDescr(index);

	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attlen == -1)
			return true;
	}
	return false;
}

/*
 * Whether filters can be rebuilt here.  Otherwise only what failed rebuilds
 * have left is dropped, free pages are found, and statistics are taken.
 */
static bool
may_rebuild(Relation index, bool in_vacuum)
{
	if (!in_vacuum)
		return true;
	if (bx_vacuum_needs_user_code(index))
	{
		ereport(DEBUG1,
				(errmsg_internal("filters of index \"%s\" are not rebuilt in VACUUM, because that may call functions of users",
								 RelationGetRelationName(index))));
		return false;
	}

	/*
	 * The leader of a parallel VACUUM has no means to catch an error (see
	 * bx_vacuum_try).  A VACUUM without workers will do it.
	 */
	if (IsInParallelMode() && has_toastable_column(index))
	{
		ereport(DEBUG1,
				(errmsg_internal("filters of index \"%s\" are not rebuilt in a parallel VACUUM",
								 RelationGetRelationName(index))));
		return false;
	}
	return true;
}

/*
 * Repairs an index, and says in *vacuum what it has done.  The caller has a
 * lock on the heap that excludes another such call, and unless it is VACUUM,
 * has become the owner of the table.
 */
static void
vacuum_index(Relation heap, Relation index, bool in_vacuum,
			 BufferAccessStrategy strategy, int message_level,
			 BxVacuum *vacuum)
{
	BxMetaPageData meta;
	const BxLayout *layout;
	int			memory_kb = maintenance_work_mem;

	if (bx_is_autovacuum() && autovacuum_work_mem != -1)
		memory_kb = autovacuum_work_mem;
	bx_meta_read(index, &meta);
	layout = bx_layout_by_id(index, meta.layout);
	memset(vacuum, 0, sizeof(*vacuum));
	vacuum->heap = heap;
	vacuum->index = index;
	vacuum->strategy = strategy;
	vacuum->memory = (Size) memory_kb * 1024;
	vacuum->in_vacuum = in_vacuum;
	vacuum->may_rebuild = may_rebuild(index, in_vacuum);

	/* of an index with expressions, this may call functions */
	if (vacuum->may_rebuild)
		vacuum->indexInfo = BuildIndexInfo(index);

	/*
	 * The lock does not keep out a function of an index expression that comes
	 * here again.
	 */
	if (vacuum_is_active)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot rebuild filters of index \"%s\" while those of an index are being rebuilt in this session",
						RelationGetRelationName(index))));
	vacuum_is_active = true;
	PG_TRY();
	{
		layout->repair(vacuum);
		refresh_stats(index, layout, strategy);
	}
	PG_FINALLY();
	{
		vacuum_is_active = false;
	}
	PG_END_TRY();

	ereport(message_level,
			(errmsg("index \"%s\": rebuilt the filters of %u segments, %u summaries and %u pages",
					RelationGetRelationName(index), vacuum->segments,
					vacuum->summaries, vacuum->pages),
			 errdetail("%u rebuilds failed, and %u pages are free for reuse.",
					   vacuum->failures, vacuum->free_pages)));
}

/* Whether a file of so many pages should be truncated at "end". */
bool
bx_vacuum_is_worth_truncating(BlockNumber nblocks, BlockNumber end)
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
 * Returns how many, and sets *free_pages, if there are any, to how many other
 * pages are free.
 *
 * The lock is that of a subtransaction, which is then rolled back.  That takes
 * nothing back: neither the metapage nor the size of a file is part of a
 * transaction.  But it lets go of the lock, also on a standby, which does not
 * hear of it when a lock alone is released, and would otherwise keep all
 * queries of the table waiting until VACUUM is done with the other indexes.
 */
static BlockNumber
truncate_index(Relation index, const BxLayout *layout, BlockNumber *free_pages)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	volatile BlockNumber before = RelationGetNumberOfBlocks(index);
	volatile BlockNumber after = before;
	ErrorData  *volatile error = NULL;
	Progress	progress;

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
	save_progress(&progress);
	RollbackAndReleaseCurrentSubTransaction();
	restore_progress(&progress);
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
 * Gives free pages back, if they are many, and changes *vacuum accordingly.
 * The leader of a parallel VACUUM cannot do it: it can neither have a
 * transaction ID assigned, which the lock needs for the sake of standbys, nor
 * start a subtransaction.
 */
static void
give_pages_back(BxVacuum *vacuum, int message_level)
{
	Relation	index = vacuum->index;
	BxMetaPageData meta;
	const BxLayout *layout;
	BlockNumber pages;

	bx_meta_read(index, &meta);
	layout = bx_layout_by_id(index, meta.layout);
	if (layout->compact == NULL || !bx_may_truncate(vacuum->heap) ||
		IsInParallelMode())
		return;
	layout->compact(vacuum);
	if (!bx_vacuum_is_worth_truncating(RelationGetNumberOfBlocks(index),
									   vacuum->named_end))
		return;
	pages = truncate_index(index, layout, &vacuum->free_pages);
	if (pages > 0)
		ereport(message_level,
				(errmsg("index \"%s\": gave %u pages back",
						RelationGetRelationName(index), pages)));
	else
		ereport(message_level,
				(errmsg("index \"%s\": did not give pages back, because it is in use",
						RelationGetRelationName(index))));
}

IndexBulkDeleteResult *
bxvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	Relation	heap;
	BxVacuum	vacuum;

	if (info->analyze_only)
		return stats;
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));

	heap = table_open(IndexGetRelation(RelationGetRelid(info->index), false),
					  AccessShareLock);

	/* since 15 VACUUM VERBOSE shows the counters, and no message of ours */
	vacuum_index(heap, info->index, true, info->strategy,
				 Max(info->message_level, DEBUG1), &vacuum);
	give_pages_back(&vacuum, Max(info->message_level, DEBUG1));
	table_close(heap, AccessShareLock);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	stats->pages_newly_deleted += vacuum.freed_pages;
	stats->pages_free = vacuum.free_pages;

	/* which rows a partial index leaves out is not known here */
	stats->num_index_tuples = info->num_heap_tuples;
	stats->estimated_count = info->estimated_count ||
		!heap_attisnull(info->index->rd_indextuple, Anum_pg_index_indpred, NULL);
	return stats;
}

/*
 * Refuses to rebuild filters by definitions that may be rolled back.  Filters
 * are not part of a transaction.  If the current transaction has changed a
 * function of the index or a type that is in its values, and rolls back after
 * the filters have been rebuilt by that, rows are lost.
 */
static void
check_transaction(Relation index)
{
	bool		depends = bx_vacuum_needs_user_code(index);

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		depends = depends || bx_hash_looks_into_values(index, i + 1);
	if (depends && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot rebuild filters of index \"%s\" in a transaction that has written data",
						RelationGetRelationName(index)),
				 errdetail("The keys depend on functions or types that the transaction may have changed."),
				 errhint("Call bloomidx_summarize() in a transaction of its own.")));
}

/*
 * Does what VACUUM does to an index, on demand.
 *
 * It does not wait for its lock on the table, which excludes VACUUM and other
 * maintenance.  The caller's statement has a snapshot, and REINDEX
 * CONCURRENTLY, which has that lock, waits for older snapshots to end.  Each
 * would wait for the other, and the deadlock detector might choose REINDEX,
 * which would leave an invalid index behind.  VACUUM takes the lock before it
 * has a snapshot; a function cannot.
 */
Datum
bloomidx_summarize(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	Relation	heap;
	Relation	index;
	BxIdentity	identity;
	BxVacuum	vacuum;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("Indexes cannot be summarized during recovery.")));

	/* the owner may VACUUM; look before any lock makes others wait */
	if (!bx_object_ownercheck(indexoid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX,
					   get_rel_name(indexoid));

	bx_open(indexoid, ShareUpdateExclusiveLock, false, RowExclusiveLock, &heap,
			&index);
	check_transaction(index);

	bx_open_become_owner(heap, &identity);
	vacuum_index(heap, index, false, NULL, DEBUG1, &vacuum);
	bx_open_become_caller(&identity);

	index_close(index, RowExclusiveLock);
	table_close(heap, ShareUpdateExclusiveLock);
	PG_RETURN_INT32((int32) (vacuum.segments + vacuum.summaries +
							 vacuum.pages));
}
