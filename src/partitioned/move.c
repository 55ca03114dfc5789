/*-------------------------------------------------------------------------
 *
 * move.c
 *	  VACUUM's compaction of layout "partitioned": moves filters from the
 *	  end of the file to free pages, so that the file can be truncated.
 *
 * A rebuild needs pages for the new slices while the old slices are still in
 * use.  A large node, such as a summary, does not fit in the free pages and is
 * placed at the end of the file.  Afterwards its old pages are free, but the
 * file cannot be truncated.  So VACUUM moves the node:
 *
 *	1. Allocate the same number of slices in free pages, with a new
 *	   generation, and publish them as the shadow.  From now on inserters set
 *	   their bits in the old slices and in the shadow.
 *	2. OR the bits of each old page into the new page.
 *	3. Make the shadow the node's descriptor, as after a rebuild, and free the
 *	   old pages.
 *
 * No bit is lost.  A bit that is set before the publication is on the old
 * page when step 2 reads that page; a bit that is set after the publication
 * is set in both pages.  A failure leaves a shadow, as a failed rebuild does,
 * and the next VACUUM drops it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "partitioned.h"

/*
 * Pages are moved if at least 1/MOVE_FRACTION of the file is free.  Then at
 * most three pages are written and logged for each page that can be given
 * back; a rebuild has written the same number before.
 */
#define MOVE_FRACTION		4

/* 1/MOVE_SLACK of the pages in use may remain free between them. */
#define MOVE_SLACK			8

typedef struct Move
{
	BxRepair   *repair;
	BlockNumber end;			/* where the file should end */
	uint32		moved;			/* pages moved */
} Move;

/* Copies the rows of a slice.  Returns false if the slice has no bits. */
static bool
read_rows(const Move *move, const BxNode *node, uint32 slice, char *rows)
{
	const char *problem;
	Buffer		buffer = bx_slices_read(move->repair->index, node, slice,
										move->repair->strategy, &problem);
	Page		page = BufferGetPage(buffer);
	bool		has_bits;

	if (problem != NULL)
		bx_page_corrupted(move->repair->index, node->desc.start + slice,
						  problem);
	has_bits = ((PageHeader) page)->pd_lower == BX_SLICE_LOWER_FULL;
	if (has_bits)
		memcpy(rows, BxPageGetContent(page), BX_SLICE_SIZE);
	UnlockReleaseBuffer(buffer);
	return has_bits;
}

/*
 * Moves slices to free pages before the desired end, if there is room, in the
 * three steps described at the top of this file.
 */
static void
move_slices(Move *move, const BxNode *node)
{
	Relation	index = move->repair->index;
	char	   *rows;
	BxNode		shadow;

	if (!bx_create_copy(index, node, move->end, &shadow))
		return;
	rows = palloc(BX_SLICE_SIZE);
	for (uint32 i = 0; i < node->desc.nslices; i++)
	{
		bx_vacuum_delay_point();
		if (read_rows(move, node, i, rows))
			bx_slices_write(index, &shadow, i, rows, true);
	}
	pfree(rows);
	BX_PAUSE(BX_PAUSE_COPIED);
	bx_dir_swap_shadow(index, node, &shadow, &shadow.desc);
	bx_extents_free(index, node->desc.start, node->desc.nslices);
	move->moved += node->desc.nslices;
}

/*
 * Moves the slices of a partition that extend beyond the desired end.  The
 * summary, in the first slot, is moved first, because it needs the most room.
 */
static void
move_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	Move	   *move = arg;
	BxTopPageData top;
	BlockNumber index_blocks = 0;

	/*
	 * there is only one place for a shadow, and a failed rebuild may have
	 * left one
	 */
	if (!bx_dir_read_top(move->repair->index, partition, &top) ||
		top.shadow.desc.state != BX_NODE_EMPTY)
		return;
	for (int slot = 0; slot < BX_TOP_SLOTS; slot++)
	{
		BxNode		node;

		bx_node_of_slot(partition, slot, &top, &node);
		bx_dir_check_desc(move->repair->index, blkno, &node.desc,
						  &index_blocks);
		if (node.desc.state == BX_NODE_PRESENT &&
			(uint64) node.desc.start + node.desc.nslices > move->end)
			move_slices(move, &node);
	}
}

/*
 * Region callback: directory pages and groups never move, so the end cannot be
 * before them.
 */
static void
keep_region(void *arg, uint32 number, BlockNumber blkno,
			const BxRegionPageData *region)
{
	Move	   *move = arg;

	move->end = Max(move->end, blkno + 1);
	for (uint32 i = 0; i < region->ngroups; i++)
		move->end = Max(move->end, region->group[i].start +
						bx_groups_pages(&region->group[i]));
	for (int i = 0; i < BX_FANOUT; i++)
		move->end = Max(move->end, region->top[i] + 1);
}

/* Sets the desired end of the file: slices beyond it are moved. */
static void
choose_end(Move *move, const BxMetaPageData *meta, BlockNumber used)
{
	move->end = used + used / MOVE_SLACK;
	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
		move->end = Max(move->end, meta->partitioned.map[i] + 1);
	bx_dir_each_region(move->repair->index, meta, keep_region, move);
}

/*
 * Moves filters from the end of the file to free pages, if that makes enough
 * pages at the end free to truncate the file.  The caller holds a lock on the
 * heap that excludes concurrent rebuilds.
 */
void
bx_move_compact(BxRepair *repair)
{
	Relation	index = repair->index;
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);
	Move		move = {repair};
	BxMetaPageData meta;

	if (repair->free_pages < nblocks / MOVE_FRACTION)
		return;
	bx_meta_read(index, &meta);
	choose_end(&move, &meta, nblocks - repair->free_pages);
	if (repair->named_end <= move.end ||
		!bx_truncate_is_worth_it(nblocks, move.end))
		return;
	bx_dir_each_top(index, &meta, move_partition, &move);
	if (move.moved > 0)
		repair->free_pages = bx_extents_sweep(index, &repair->named_end);
}
