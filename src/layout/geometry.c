/*-------------------------------------------------------------------------
 *
 * geometry.c
 *	  Geometry: the number of pages per range, and the number of ranges.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "layout.h"

/*
 * Drops the cached properties of an index.  Must be called when the index is
 * built again in the same file.
 */
void
bx_geometry_forget(Relation index)
{
	if (index->rd_amcache)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;
}

/* Caches properties of an index: copies "size" bytes to rd_amcache. */
void
bx_geometry_remember(Relation index, const BxGeometry *geometry, Size size)
{
	void	   *copy = MemoryContextAlloc(index->rd_indexcxt, size);

	memcpy(copy, geometry, size);
	bx_geometry_forget(index);
	index->rd_amcache = copy;
}

/* Sets *geometry according to the metapage, whose lg_base is set. */
void
bx_geometry_of(const BxMetaPageData *meta, BxGeometry *geometry)
{
	memset(geometry, 0, sizeof(*geometry));
	geometry->layout = meta->layout;
	geometry->lg_base = meta->lg_base;
	geometry->keys = meta->keys;
}

/*
 * Gets the layout, log2 of pages per range and the keys of a row.  Returns
 * false if lg_base is not set, that is, if pages_per_range is automatic and the
 * index has never had a key.
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
	bx_geometry_of(&meta, geometry);
	bx_geometry_remember(index, geometry, sizeof(*geometry));
	return true;
}

/* Returns the number of ranges of a heap with the given number of blocks. */
uint64
bx_geometry_ranges(BlockNumber heap_blocks, uint8 lg_base)
{
	uint64		pages_per_range = UINT64CONST(1) << lg_base;

	return ((uint64) heap_blocks + pages_per_range - 1) >> lg_base;
}

/*
 * Returns the number of rows per heap page, if all rows are as large as the
 * one at tid.  Reads the heap page under a share lock.
 */
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

	/*
	 * a line pointer without tuple (such as the root of a HOT chain) has no
	 * length
	 */
	if (len == 0)
		len = SizeofHeapTupleHeader;
	return Max(1, RelationGetTargetPageUsage(heap, HEAP_DEFAULT_FILLFACTOR) /
			   (MAXALIGN(len) + sizeof(ItemIdData)));
}

/*
 * Returns log2 of automatic pages_per_range for the given number of distinct
 * keys per heap page.
 */
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
 * Returns log2 of automatic pages_per_range for a table of the given size, if
 * its keys suggest lg_base.  A search reads index pages whose number
 * grows with the number of ranges, but every page of the range that contains
 * the key, so in a large table larger ranges are faster.
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
 * Returns log2 of automatic pages_per_range for a table of heap_blocks pages.
 * keys[i] is the number of distinct keys in 2^i consecutive pages, for i <=
 * BX_AUTO_MAX_LG_BASE, or 0 if it is not known.
 */
uint8
bx_geometry_choose_lg_base(const BxLayout *layout, const double *keys,
						   double heap_blocks)
{
	double		per_page = 0;
	uint8		lg_base = bx_geometry_auto_lg_base(layout, 0);

	/*
	 * the smallest size that has enough keys, else extrapolate from the
	 * largest size that is known
	 */
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

/*
 * Returns the expected number of ranges that contain at least one of "rows"
 * rows, if the rows are distributed at random: ranges * (1 - (1 - 1 /
 * ranges)^rows).
 */
double
bx_geometry_ranges_hit(double ranges, double rows)
{
	if (ranges <= 1)
		return Min(ranges, rows);
	return ranges * -expm1(rows * log1p(-1.0 / ranges));
}
