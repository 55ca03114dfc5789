/*-------------------------------------------------------------------------
 *
 * column.c
 *	  Building the filter of a partition: its bits are set in memory, and
 *	  then ORed into the partition's column of the pages of a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "partitioned.h"

/* Number of keys that are added between two checks for interrupts. */
#define KEYS_AT_ONCE	65536

/* Returns the memory that the filter needs for npages pages of the group. */
Size
bx_column_size(const BxGroupDesc *group, uint32 npages)
{
	return (Size) npages * bx_group_page_blocks(group->width) *
		BX_LINE_BYTES(BX_SLICE_ROWS);
}

/*
 * Starts a filter of a partition in a group, without keys: the part of the
 * filter that is in npages pages of the group, beginning with first_page.  The
 * memory of the previous filter is reused; *column must be zero before the
 * first use.
 */
void
bx_column_start(BxColumn *column, uint32 partition, const BxGroupDesc *group,
				uint32 first_page, uint32 npages)
{
	Size		size = bx_column_size(group, npages);

	column->partition = partition;
	column->group = *group;
	column->first_page = first_page;
	column->npages = npages;
	if (size > column->allocated)
	{
		if (column->lines)
			pfree(column->lines);
		column->lines = NULL;
		column->lines = palloc_extended(size, MCXT_ALLOC_HUGE);
		column->allocated = size;
	}
	memset(column->lines, 0, size);
}

/* Adds keys.  Those that belong to other pages are ignored. */
void
bx_column_add(BxColumn *column, const uint64 *keys, Size n)
{
	uint32		nblocks = column->group.nblocks;
	int			nprobes = column->group.nprobes;
	uint32		per_page = bx_group_page_blocks(column->group.width);
	uint32		first = column->first_page * per_page;
	uint32		count = column->npages * per_page;

	for (Size i = 0; i < n; i++)
	{
		uint64		lh = bx_filter_level_hash(keys[i], BX_LEVEL_GROUP);
		uint32		block = bx_filter_slice(lh, nblocks) - first;

		if (i % KEYS_AT_ONCE == 0)
			CHECK_FOR_INTERRUPTS();
		if (block < count)
			bx_group_add(column->lines +
						 (Size) block * BX_LINE_BYTES(BX_SLICE_ROWS),
						 BX_SLICE_ROWS, nprobes, lh);
	}
}

/* ORs the filter into the pages of the group; see bx_groups_write(). */
void
bx_column_write(const BxColumn *column, Relation index, bool wal)
{
	bx_groups_write(index, column->partition / BX_FANOUT, &column->group,
					column->partition % BX_FANOUT - column->group.first,
					column->first_page, column->npages, column->lines, wal);
}

void
bx_column_end(BxColumn *column)
{
	if (column->lines)
		pfree(column->lines);
	memset(column, 0, sizeof(*column));
}
