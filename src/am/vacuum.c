/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  VACUUM: repairs the filters (layout/repair.c).  For CREATE INDEX
 *	  CONCURRENTLY, adds the versions that the build has missed.
 *
 * The index contains no TIDs, so there is nothing to delete: a filter that
 * still contains the keys of dead rows can only cause false matches.
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
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "am.h"

/* Number of keys that are passed to the layout at a time. */
#define KEYS_AT_ONCE	256

/* State of catch_up(). */
typedef struct Catchup
{
	Relation	heap;
	BxInsert   *insert;
	uint8		lg_base;
} Catchup;

/*
 * Range callback: adds the keys of a range, as inserts of its rows would do.
 */
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
		BxRowKeys	row = {n, n, unconstify(uint64 *, keys + first), n};

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
 * While an index is built concurrently, other backends add versions behind
 * the scan, and do not insert into the index yet.  Validation will add the
 * versions that its snapshot sees.  That is sufficient on the server itself,
 * which waits for older snapshots before the index is used.  But a standby
 * does not wait, and may have a snapshot that sees a version that was deleted
 * meanwhile.  By now all writers insert into the index, so versions that are
 * added later need no catching up.  A version that was pruned before this
 * scan is not seen by any snapshot that will use the index: replay of the
 * pruning has waited for such snapshots, or cancelled their queries.
 *
 * The expressions are those in the relation cache.  The index is new, so this
 * command has put them there, and its other scans use them, too.
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

	/* if lg_base is not set, the first insert sets it; scan single pages */
	catchup.lg_base = meta.lg_base == BX_LG_BASE_UNSET ? 0 : meta.lg_base;
	scan = bx_heapscan_begin(heap, index, indexInfo, meta.keys,
							 (Size) maintenance_work_mem * 1024 / 8);
	bx_heapscan_ranges(scan, catchup.lg_base, 0,
					   bx_geometry_ranges(heap_blocks, catchup.lg_base),
					   heap_blocks, catch_up_range, &catchup);
	bx_heapscan_end(scan);
}

/*
 * There is nothing to delete.  But CREATE INDEX CONCURRENTLY and REINDEX
 * CONCURRENTLY call ambulkdelete to collect the TIDs of an index before they
 * validate it, which is the time to catch up.
 */
IndexBulkDeleteResult *
bxbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
			 IndexBulkDeleteCallback callback, void *callback_state)
{
	Relation	index = info->index;

	/* VACUUM also calls this, for an index that was never validated */
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

IndexBulkDeleteResult *
bxvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	Relation	heap;
	const BxLayout *layout;
	BxRepair	repair;

	if (info->analyze_only)
		return stats;
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));

	heap = table_open(IndexGetRelation(RelationGetRelid(info->index), false),
					  AccessShareLock);

	/*
	 * since PostgreSQL 15, VACUUM VERBOSE shows the counters; keep our
	 * message at DEBUG1
	 */
	layout = bx_layout_of(info->index);
	bx_repair_index(layout, heap, info->index, BX_REPAIR_VACUUM, info->strategy,
					Max(info->message_level, DEBUG1), &repair);
	bx_truncate_index(layout, &repair, Max(info->message_level, DEBUG1));
	table_close(heap, AccessShareLock);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	stats->pages_newly_deleted += repair.freed_pages;
	stats->pages_free = repair.free_pages;

	/* the number of rows in a partial index is not known here */
	stats->num_index_tuples = info->num_heap_tuples;
	stats->estimated_count = info->estimated_count ||
		!heap_attisnull(info->index->rd_indextuple, Anum_pg_index_indpred, NULL);
	return stats;
}
