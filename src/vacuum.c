/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  VACUUM: refreshes the statistics.
 *
 * The index holds no TIDs, so there is nothing to delete: a filter that still
 * knows the keys of dead rows answers "maybe" for them, and no more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lmgr.h"
#include "utils/rel.h"

#include "bloomidx.h"
#include "compat.h"

IndexBulkDeleteResult *
bxbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
			 IndexBulkDeleteCallback callback, void *callback_state)
{
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	return stats;
}

/* Counts what is there, and writes it to the metapage if it has changed. */
static void
refresh_stats(Relation index, BufferAccessStrategy strategy)
{
	BxMetaPageData meta;
	BxStats		stats;

	bx_meta_read(index, &meta);
	bx_layout_by_id(index, meta.layout)->collect_stats(index, &stats, strategy);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	if (memcmp(&meta.stats, &stats, sizeof(stats)) != 0)
	{
		meta.stats = stats;
		bx_meta_write(index, &meta);
	}
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

IndexBulkDeleteResult *
bxvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));

	refresh_stats(info->index, info->strategy);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);

	/* which rows a partial index leaves out is not known here */
	stats->num_index_tuples = info->num_heap_tuples;
	stats->estimated_count = info->estimated_count ||
		RelationGetIndexPredicate(info->index) != NIL;
	return stats;
}
