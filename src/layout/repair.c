/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  Repairs an index, for VACUUM and for bloomidx_summarize(): lets the
 *	  layout rebuild filters where necessary, and updates the statistics.
 *	  Inserts repair a part of an index.
 *
 * VACUUM calls no user-defined function.  PostgreSQL marks a backend in
 * VACUUM with PROC_IN_VACUUM: other backends may ignore it when they
 * determine which rows are no longer visible to anybody, and when they look
 * for transactions in progress.  A function that reads a table in VACUUM may
 * therefore miss rows that its snapshot sees, and rows that it writes may be
 * considered aborted.  So VACUUM does not rebuild the filters of an index
 * that has expressions, a predicate, or a hash function in a language other
 * than C or internal.  bloomidx_summarize(), which runs in an ordinary
 * transaction, does.
 *
 * VACUUM does not wait for locks on types either.  The owner of a composite
 * type, who may have no privilege on the table, could otherwise stop VACUUM,
 * and with it all autovacuum workers, by leaving ALTER TYPE uncommitted; and
 * a transaction that first alters the type and then the table would deadlock
 * with VACUUM.  If VACUUM finds such a type locked, it does not rebuild
 * filters this time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "layout.h"

static bool is_active = false;

/*
 * Calls callback() with the keys of n ranges beginning with "first", as far
 * as they exist in the heap.  The size of the heap is read here.
 */
void
bx_repair_scan_ranges(BxRepair *repair, uint8 lg_base, uint64 first, uint64 n,
					  BxRangeCallback callback, void *arg)
{
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(repair->heap);
	uint64		end = bx_geometry_ranges(heap_blocks, lg_base);
	BxHeapScan *scan;

	scan = bx_heapscan_begin(repair->heap, repair->index, repair->indexInfo,
							 repair->keys, repair->memory / 8);
	if (repair->caller != BX_REPAIR_SUMMARIZE)
		bx_heapscan_set_nowait(scan);
	bx_heapscan_ranges(scan, lg_base, first, Min(first + n, end), heap_blocks,
					   callback, arg);
	bx_heapscan_end(scan);

	/* VACUUM and inserts have other reports, or none */
	repair->scanned += (BlockNumber)
		(Min((first + n) << lg_base, heap_blocks) -
		 Min(first << lg_base, heap_blocks));
	if (repair->caller == BX_REPAIR_SUMMARIZE)
		bx_progress_blocks(repair->scanned);
}

/*
 * Returns whether the caller of a repair continues after an error.  VACUUM
 * continues if the error may have been caused by a row, or by a lack of memory
 * or disk space, but not after other errors of the server or of the index.  An
 * insert continues unless it was cancelled: the insert of a row must not fail
 * because of other rows or other parts of the index.
 */
static bool
is_tolerable(BxRepairCaller caller, int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	switch (caller)
	{
		case BX_REPAIR_VACUUM:
			return category != ERRCODE_OPERATOR_INTERVENTION &&
				category != ERRCODE_SYSTEM_ERROR &&
				sqlerrcode != ERRCODE_INDEX_CORRUPTED;
		case BX_REPAIR_INSERT:
			return category != ERRCODE_OPERATOR_INTERVENTION;
		case BX_REPAIR_SUMMARIZE:
			break;
	}
	return false;
}

/*
 * Calls rebuild(arg) in a subtransaction.  On error, give_up(arg) reverts
 * what rebuild() has published, and the old filters remain in use.
 *
 * VACUUM calls no user-defined function, but the TOAST rows of a value may be
 * missing, if its row was deleted meanwhile, or damaged; or the type of a
 * value is just being altered, and locked.  Or the disk is full.  A VACUUM of
 * the whole table must not fail because of that, so such an error becomes a
 * WARNING, and this function returns false.  Nor must an insert fail because
 * of other rows; there the error is only logged.  All other errors are thrown
 * again: those of the server and of the index, and in bloomidx_summarize()
 * all errors, because a user-defined function may have raised them.
 */
bool
bx_repair_try(BxRepair *repair, void (*rebuild) (void *),
			  void (*give_up) (void *), void *arg)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext cxt;
	volatile bool succeeded = true;

	/* the leader of a parallel VACUUM cannot start subtransactions */
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
		BxProgress	progress;

		/* whatever the error, the subtransaction must be ended here */
		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
		bx_progress_save(&progress);
		RollbackAndReleaseCurrentSubTransaction();
		bx_progress_restore(&progress);
		MemoryContextSwitchTo(oldcxt);
		CurrentResourceOwner = oldowner;
		give_up(arg);
		if (!is_tolerable(repair->caller, error->sqlerrcode))
			ReThrowError(error);
		ereport(repair->caller == BX_REPAIR_VACUUM ? WARNING : LOG_SERVER_ONLY,
				(errcode(error->sqlerrcode),
				 errmsg("could not rebuild filters of index \"%s\": %s",
						RelationGetRelationName(repair->index), error->message),
				 errdetail("The old filters are still in use.")));
		FreeErrorData(error);
		repair->failures++;
		succeeded = false;
	}
	PG_END_TRY();
	MemoryContextDelete(cxt);
	return succeeded;
}

/*
 * Collects the statistics, and writes them to the metapage if they have
 * changed.  Acquires and releases LockPage on the metapage.
 */
static void
refresh_stats(Relation index, const BxLayout *layout,
			  BufferAccessStrategy strategy)
{
	BxMetaPageData meta;
	BxStats		stats;

	layout->collect_stats(index, &stats, strategy);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);

	/*
	 * do not overwrite statistics that the first insert has written meanwhile
	 */
	if (memcmp(&meta.stats, &stats, sizeof(stats)) != 0 &&
		!(stats.parts == 0 && meta.stats.parts > 0))
	{
		meta.stats = stats;
		bx_meta_write(index, &meta);
	}
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/*
 * Returns whether the index has an expression or a predicate.  This looks at
 * the pg_index tuple and does not ask the relation cache for the expressions,
 * because the relation cache would simplify them, and thereby call functions
 * whose arguments are constants.
 */
static bool
is_computed(Relation index)
{
	HeapTuple	tuple = index->rd_indextuple;

	return !heap_attisnull(tuple, Anum_pg_index_indexprs, NULL) ||
		!heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
}

/*
 * Returns whether user-defined functions are needed to compute the keys of a
 * row.  If so, filters are rebuilt by bloomidx_summarize(), not by VACUUM.  If
 * "wait" is false, the result is also true if a type of the values is locked
 * by a transaction that alters it.
 */
bool
bx_repair_needs_user_code(Relation index, bool wait)
{
	if (is_computed(index))
		return true;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_hash_runs_user_code(index, i + 1, wait))
			return true;
	}
	return false;
}

/*
 * Returns whether the keys of a row depend on the definition of a type that
 * users can alter.
 */
bool
bx_repair_depends_on_types(Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_hash_looks_into_values(index, i + 1))
			return true;
	}
	return false;
}

/*
 * Returns whether a column's values may be compressed or stored in a TOAST
 * table.  The column of the table decides: a column of the index may have
 * another type.
 */
static bool
has_toastable_column(Relation heap, Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		int			attnum = index->rd_index->indkey.values[i];

		if (attnum == 0 ||
			(attnum > 0 &&
			 TupleDescAttr(RelationGetDescr(heap), attnum - 1)->attlen == -1))
			return true;
	}
	return false;
}

/*
 * Returns whether filters may be rebuilt.  If not, the repair only drops the
 * remains of failed rebuilds, merges groups, finds free pages and updates the
 * statistics.
 */
static bool
may_rebuild(Relation heap, Relation index, BxRepairCaller caller)
{
	if (caller == BX_REPAIR_SUMMARIZE)
		return true;
	if (bx_repair_needs_user_code(index, false))
	{
		ereport(DEBUG1,
				(errmsg_internal("filters of index \"%s\" are not rebuilt in VACUUM, because that may call functions of users or wait for locks on types",
								 RelationGetRelationName(index))));
		return false;
	}

	/*
	 * The leader of a parallel VACUUM cannot catch an error (see
	 * bx_repair_try).  A VACUUM without workers will rebuild the filters.
	 */
	if (IsInParallelMode() && has_toastable_column(heap, index))
	{
		ereport(DEBUG1,
				(errmsg_internal("filters of index \"%s\" are not rebuilt in a parallel VACUUM",
								 RelationGetRelationName(index))));
		return false;
	}
	return true;
}

/* Initializes *repair. */
static void
begin_repair(BxRepair *repair, Relation heap, Relation index,
			 BxRepairCaller caller, BufferAccessStrategy strategy)
{
	int			memory_kb = maintenance_work_mem;
	BxMetaPageData meta;

	if (bx_is_autovacuum() && autovacuum_work_mem != -1)
		memory_kb = autovacuum_work_mem;
	bx_meta_read(index, &meta);
	memset(repair, 0, sizeof(*repair));
	repair->heap = heap;
	repair->index = index;
	repair->keys = meta.keys;
	repair->strategy = strategy;
	repair->memory = (Size) memory_kb * 1024;
	repair->caller = caller;
	repair->may_rebuild = may_rebuild(heap, index, caller);

	/* this may call functions if the index has expressions */
	if (repair->may_rebuild)
		repair->indexInfo = bx_heapscan_index_info(index);
}

/*
 * Repairs an index, and reports the result in *repair.  The caller holds a
 * self-exclusive lock on the heap.  Outside VACUUM, the caller has also
 * switched to the owner of the table.
 */
void
bx_repair_index(const BxLayout *layout, Relation heap, Relation index,
				BxRepairCaller caller, BufferAccessStrategy strategy,
				int message_level, BxRepair *repair)
{
	begin_repair(repair, heap, index, caller, strategy);

	/*
	 * The lock on the heap does not prevent a function of an index expression
	 * from calling this function again in the same session.
	 */
	if (is_active)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot rebuild filters of index \"%s\" while filters are being rebuilt in this session",
						RelationGetRelationName(index))));
	is_active = true;
	PG_TRY();
	{
		layout->repair(repair);
		refresh_stats(index, layout, strategy);
	}
	PG_FINALLY();
	{
		is_active = false;
	}
	PG_END_TRY();

	ereport(message_level,
			(errmsg("index \"%s\": rebuilt the filters of %u segments, %u summaries, %u partitions and %u pages",
					RelationGetRelationName(index), repair->segments,
					repair->summaries, repair->groups, repair->pages),
			 errdetail("%u rebuilds failed, %u groups of filters were merged, and %u pages are free for reuse.",
					   repair->failures, repair->merges, repair->free_pages)));
}

/* What an insert repairs. */
typedef struct InsertRepair
{
	BxRepair	repair;
	const BxLayout *layout;
	void		(*repair_part) (BxRepair *);
} InsertRepair;

/*
 * Collecting statistics reads a page of every segment.  In a larger index, an
 * insert leaves that to VACUUM.
 */
#define MAX_INSERT_STATS_PAGES	(64 * 1024 * 1024 / BLCKSZ)

static void
repair_in_insert(void *arg)
{
	InsertRepair *insert = arg;
	BxRepair   *repair = &insert->repair;

	insert->repair_part(repair);
	if (repair->summaries + repair->groups > 0 &&
		RelationGetNumberOfBlocks(repair->index) <= MAX_INSERT_STATS_PAGES)
		refresh_stats(repair->index, insert->layout, NULL);
}

/* repair_part() has reverted what it had published. */
static void
give_up_in_insert(void *arg)
{
}

/*
 * Calls repair_part(), which rebuilds filters that an insert has found to be
 * missing, if that is possible without waiting and without running
 * user-defined code.  Call it with no content lock and no LockPage held.
 *
 * A repair needs a self-exclusive lock on the heap.  An insert does not wait
 * for that lock: VACUUM, or whoever else holds the lock, may be waiting for
 * the transaction of the insert.  For the time of the repair the lock keeps
 * VACUUM away.
 *
 * The transaction of an insert may have altered a type, and may be rolled
 * back, which would not undo the changes of filters.  So nothing is rebuilt if
 * the keys depend on the definition of a type.
 */
void
bx_repair_in_insert(const BxLayout *layout, Relation heap, Relation index,
					void (*repair_part) (BxRepair *))
{
	InsertRepair insert = {.layout = layout,.repair_part = repair_part};

	/* errors could not be caught in parallel mode */
	if (is_active || IsInParallelMode() || bx_repair_depends_on_types(index) ||
		!ConditionalLockRelation(heap, ShareUpdateExclusiveLock))
		return;
	begin_repair(&insert.repair, heap, index, BX_REPAIR_INSERT, NULL);
	if (insert.repair.may_rebuild)
	{
		is_active = true;
		PG_TRY();
		{
			bx_repair_try(&insert.repair, repair_in_insert, give_up_in_insert,
						  &insert);
		}
		PG_FINALLY();
		{
			is_active = false;
		}
		PG_END_TRY();
	}
	UnlockRelation(heap, ShareUpdateExclusiveLock);
}
