/*-------------------------------------------------------------------------
 *
 * geometry.c
 *	  Ranges: how many pages each has, and how many there are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "layout.h"

/* Must be called when the index is built anew in the same file. */
void
bx_geometry_forget(Relation index)
{
	if (index->rd_amcache)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;
}

/* Remembers facts of an index: a copy of so many bytes. */
void
bx_geometry_remember(Relation index, const BxGeometry *geometry, Size size)
{
	void	   *copy = MemoryContextAlloc(index->rd_indexcxt, size);

	memcpy(copy, geometry, size);
	bx_geometry_forget(index);
	index->rd_amcache = copy;
}

/*
 * Gets the layout and log2 of pages per range; false if the index has never
 * had a key.
 */
bool
bx_geometry_get(Relation index, BxGeometry *geometry)
{
	BxMetaPageData meta;

	if (index->rd_amcache != NULL)
	{
		memcpy(geometry, index->rd_amcache, sizeof(*geometry));
		return true;
	}
	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		return false;
	memset(geometry, 0, sizeof(*geometry));
	geometry->layout = meta.layout;
	geometry->lg_base = meta.lg_base;
	bx_geometry_remember(index, geometry, sizeof(*geometry));
	return true;
}

/* Ranges of a heap of so many blocks. */
uint64
bx_geometry_ranges(BlockNumber heap_blocks, uint8 lg_base)
{
	uint64		pages_per_range = UINT64CONST(1) << lg_base;

	return ((uint64) heap_blocks + pages_per_range - 1) >> lg_base;
}

/* Rows of a heap page, if all are as large as the one at tid. */
double
bx_geometry_rows_per_page(Relation heap, ItemPointer tid)
{
	Buffer		buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
	OffsetNumber offnum = ItemPointerGetOffsetNumber(tid);
	Page		page = BufferGetPage(buffer);
	Size		len = 0;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (offnum <= PageGetMaxOffsetNumber(page))
		len = ItemIdGetLength(PageGetItemId(page, offnum));
	UnlockReleaseBuffer(buffer);

	/* a row that is gone again (a HOT chain's root) tells nothing */
	if (len == 0)
		len = SizeofHeapTupleHeader;
	return Max(1, RelationGetTargetPageUsage(heap, HEAP_DEFAULT_FILLFACTOR) /
			   (MAXALIGN(len) + sizeof(ItemIdData)));
}

/* The automatic pages_per_range for so many distinct keys in a heap page. */
uint8
bx_geometry_auto_lg_base(const BxLayout *layout, double keys_per_page)
{
	uint8		lg_base = 0;

	while (lg_base < BX_AUTO_MAX_LG_BASE &&
		   keys_per_page * (1 << lg_base) < layout->auto_range_keys)
		lg_base++;
	return lg_base;
}

/*
 * The automatic pages_per_range for so large a table, if its keys suggest this
 * one: a lookup reads some pages of the index for each partition, but all of
 * the range that has the key, so in a large table larger ranges are faster.
 */
uint8
bx_geometry_grow_lg_base(const BxLayout *layout, uint8 lg_base, double heap_blocks)
{
	while (layout->many_ranges > 0 && lg_base < BX_AUTO_MAX_LG_BASE &&
		   heap_blocks / (1 << lg_base) > layout->many_ranges * (1 << lg_base))
		lg_base++;
	return lg_base;
}

/*
 * The automatic pages_per_range for a table of so many pages that has keys[i]
 * distinct keys in 2^i consecutive ones, for i up to BX_AUTO_MAX_LG_BASE; 0
 * where that is not known.
 */
uint8
bx_geometry_choose_lg_base(const BxLayout *layout, const double *keys,
						   double heap_blocks)
{
	double		per_page = 0;
	uint8		lg_base = bx_geometry_auto_lg_base(layout, 0);

	/* the first size that has enough keys; else what the largest came to */
	for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
	{
		if (keys[lg] == 0)
			continue;
		per_page = keys[lg] / (1 << lg);
		lg_base = Max(lg, bx_geometry_auto_lg_base(layout, per_page));
		if (lg_base == lg)
			break;
	}
	return bx_geometry_grow_lg_base(layout, lg_base, heap_blocks);
}

/* Ranges that hold at least one of so many rows, if these are anywhere. */
double
bx_geometry_ranges_hit(double ranges, double rows)
{
	if (ranges <= 1)
		return Min(ranges, rows);
	return ranges * -expm1(rows * log1p(-1.0 / ranges));
}
