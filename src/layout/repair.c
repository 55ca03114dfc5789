/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  Repairs an index, for VACUUM and for bloomidx_summarize(): has the layout
 *	  rebuild what needs it, and refreshes the statistics.
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
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "layout.h"

static bool is_active = false;

/* Hands the keys of some ranges, as far as the heap goes now, to a callback. */
void
bx_repair_scan_ranges(BxRepair *repair, uint8 lg_base, uint64 first, uint64 n,
					  BxRangeCallback callback, void *arg)
{
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(repair->heap);
	uint64		end = bx_geometry_ranges(heap_blocks, lg_base);
	BxHeapScan *scan;

	scan = bx_heapscan_begin(repair->heap, repair->index, repair->indexInfo,
							 repair->memory / 8);
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
bx_repair_try(BxRepair *repair, void (*rebuild) (void *),
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
		BxProgress	progress;

		/* whatever it was, the subtransaction is ours to end */
		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
		bx_progress_save(&progress);
		RollbackAndReleaseCurrentSubTransaction();
		bx_progress_restore(&progress);
		MemoryContextSwitchTo(oldcxt);
		CurrentResourceOwner = oldowner;
		give_up(arg);
		if (!repair->in_vacuum || !is_about_a_row(error->sqlerrcode))
			ReThrowError(error);
		ereport(WARNING,
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
bx_repair_needs_user_code(Relation index)
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
	if (bx_repair_needs_user_code(index))
	{
		ereport(DEBUG1,
				(errmsg_internal("filters of index \"%s\" are not rebuilt in VACUUM, because that may call functions of users",
								 RelationGetRelationName(index))));
		return false;
	}

	/*
	 * The leader of a parallel VACUUM has no means to catch an error (see
	 * bx_repair_try).  A VACUUM without workers will do it.
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
 * Repairs an index, and says in *repair what it has done.  The caller has a
 * lock on the heap that excludes another such call, and unless it is VACUUM,
 * has become the owner of the table.
 */
void
bx_repair_index(const BxLayout *layout, Relation heap, Relation index,
				bool in_vacuum, BufferAccessStrategy strategy,
				int message_level, BxRepair *repair)
{
	int			memory_kb = maintenance_work_mem;

	if (bx_is_autovacuum() && autovacuum_work_mem != -1)
		memory_kb = autovacuum_work_mem;
	memset(repair, 0, sizeof(*repair));
	repair->heap = heap;
	repair->index = index;
	repair->strategy = strategy;
	repair->memory = (Size) memory_kb * 1024;
	repair->in_vacuum = in_vacuum;
	repair->may_rebuild = may_rebuild(index, in_vacuum);

	/* of an index with expressions, this may call functions */
	if (repair->may_rebuild)
		repair->indexInfo = BuildIndexInfo(index);

	/*
	 * The lock does not keep out a function of an index expression that comes
	 * here again.
	 */
	if (is_active)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot rebuild filters of index \"%s\" while those of an index are being rebuilt in this session",
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
			(errmsg("index \"%s\": rebuilt the filters of %u segments, %u summaries and %u pages",
					RelationGetRelationName(index), repair->segments,
					repair->summaries, repair->pages),
			 errdetail("%u rebuilds failed, and %u pages are free for reuse.",
					   repair->failures, repair->free_pages)));
}
