/*-------------------------------------------------------------------------
 *
 * extents.c
 *	  Free pages: allocating them, freeing them, and finding the pages that
 *	  no directory entry references.
 *
 * In this file, a page is "named" if the metapage or a directory entry
 * references it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * Returns the first free extent in the file that has at least npages pages,
 * or NULL.  First fit is used instead of best fit, so that pages at the end of
 * the file become free.  The list is advisory; extents that are not within
 * the file are ignored.
 */
BxFreeExtent *
bx_extents_find(Relation index, BxMetaPageData *meta, uint32 npages)
{
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);
	BxFreeExtent *first = NULL;

	for (uint32 i = 0; i < meta->partitioned.nfree; i++)
	{
		BxFreeExtent *extent = &meta->partitioned.free[i];

		if (extent->start != BX_METAPAGE_BLKNO &&
			(uint64) extent->start + extent->npages <= index_blocks &&
			extent->npages >= npages &&
			(first == NULL || extent->start < first->start))
			first = extent;
	}
	return first;
}

/*
 * Allocates npages consecutive pages: from a free extent, else by extending
 * the file.  Returns the first block.  Removes the pages from the list in
 * *meta; the caller must write *meta before it writes to the pages.  The
 * caller holds LockPage on the metapage, or is the leader of a build.
 */
BlockNumber
bx_extents_take(Relation index, BxMetaPageData *meta, uint32 npages)
{
	BxFreeExtent *extent = bx_extents_find(index, meta, npages);
	BlockNumber start;

	if (extent == NULL)
		return bx_page_extend(index, npages);

	start = extent->start;
	extent->start += npages;
	extent->npages -= npages;
	if (extent->npages == 0)
		*extent = meta->partitioned.free[--meta->partitioned.nfree];
	return start;
}

/* qsort comparator: orders extents by their start. */
static int
compare_extents(const void *a, const void *b)
{
	BlockNumber x = ((const BxFreeExtent *) a)->start;
	BlockNumber y = ((const BxFreeExtent *) b)->start;

	return x < y ? -1 : x > y;
}

/*
 * Adds an extent to the list of free extents, and merges adjacent extents.
 * If the list overflows, the smallest extent is dropped; the next VACUUM
 * finds its pages again.
 */
static void
add_extent(BxMetaPageData *meta, BlockNumber start, uint32 npages)
{
	BxFreeExtent extents[BX_MAX_FREE_EXTENTS + 1];
	uint32		n = meta->partitioned.nfree;
	uint32		kept = 0;
	uint32		smallest = 0;

	memcpy(extents, meta->partitioned.free, sizeof(BxFreeExtent) * n);
	extents[n].start = start;
	extents[n].npages = npages;
	n++;
	qsort(extents, n, sizeof(BxFreeExtent), compare_extents);
	for (uint32 i = 0; i < n; i++)
	{
		BxFreeExtent *last = kept > 0 ? &extents[kept - 1] : NULL;

		if (last && last->start + last->npages == extents[i].start)
			last->npages += extents[i].npages;
		else
			extents[kept++] = extents[i];
	}
	if (kept > BX_MAX_FREE_EXTENTS)
	{
		for (uint32 i = 1; i < kept; i++)
		{
			if (extents[i].npages < extents[smallest].npages)
				smallest = i;
		}
		extents[smallest] = extents[--kept];
	}
	memset(meta->partitioned.free, 0, sizeof(meta->partitioned.free));
	memcpy(meta->partitioned.free, extents, sizeof(BxFreeExtent) * kept);
	meta->partitioned.nfree = kept;
}

/*
 * Frees pages of slices or of a group that no directory entry references any
 * more.  They may be reused immediately: a backend that still uses the old
 * descriptor detects by the generation that a page has been reused.  Does
 * nothing if npages is 0.  Acquires and releases LockPage on the metapage.
 */
void
bx_extents_free(Relation index, BlockNumber start, uint32 npages)
{
	BxMetaPageData meta;

	if (npages == 0)
		return;
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	add_extent(&meta, start, npages);
	bx_meta_write(index, &meta);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/* The named blocks of an index, as a bitmap. */
typedef struct NamedBlocks
{
	Relation	index;
	BlockNumber nblocks;
	uint8	   *bits;
} NamedBlocks;

static void
mark_blocks(NamedBlocks *named, BlockNumber start, uint32 n)
{
	for (uint64 blkno = start; blkno < (uint64) start + n; blkno++)
	{
		if (blkno >= named->nblocks)
			bx_page_corrupted(named->index, BX_METAPAGE_BLKNO,
							  "directory entry references blocks beyond the end of the file");
		named->bits[blkno / 8] |= 1 << (blkno % 8);
	}
}

static void
mark_slices(NamedBlocks *named, const BxNodeDesc *desc)
{
	if (desc->state == BX_NODE_PRESENT)
		mark_blocks(named, desc->start, desc->nslices);
}

static void
mark_group(NamedBlocks *named, BlockNumber blkno, const BxGroupDesc *group,
		   int child)
{
	BlockNumber nblocks = named->nblocks;

	bx_groups_check(named->index, blkno, group, child, &nblocks);
	mark_blocks(named, group->start, bx_groups_pages(group));
}

/* Region callback: marks a region page and all pages that it references. */
static void
mark_region(void *arg, uint32 number, BlockNumber blkno,
			const BxRegionPageData *region)
{
	NamedBlocks *named = arg;

	mark_blocks(named, blkno, 1);
	for (uint32 i = 0; i < region->ngroups; i++)
		mark_group(named, blkno, &region->group[i], -1);
	for (uint32 i = 0; i < BX_FANOUT; i++)
	{
		BxTopPageData top;

		CHECK_FOR_INTERRUPTS();
		if (region->top[i] == 0 ||
			!bx_dir_read_top(named->index, number * BX_FANOUT + i, &top))
			continue;
		mark_blocks(named, region->top[i], 1);
		if (top.group.width > 0 &&
			bx_groups_by_generation(region, top.group.generation) == NULL)
			mark_group(named, region->top[i], &top.group, i);
		if (top.group_shadow.width > 0)
			mark_group(named, region->top[i], &top.group_shadow, i);
		mark_slices(named, &top.shadow.desc);
		for (int slot = 0; slot < BX_TOP_SLOTS; slot++)
			mark_slices(named, &top.node[slot]);
	}
}

/*
 * Writes and logs the last page of the file, which is not named.  Pages that
 * were added to the file but never written are not in WAL, and without this a
 * standby would replay a list of free pages that do not exist there.
 */
static void
log_last_page(Relation index, BlockNumber nblocks)
{
	PGAlignedBlock image;

	bx_page_init(image.data, BX_PAGE_SLICE);
	bx_page_write_new(index, nblocks - 1, image.data, true);
}

/*
 * Finds the named pages.  The caller holds LockPage on the metapage, and *meta
 * is its content, so no inserter has pages that are allocated and not yet
 * published; and only one backend at a time repairs the index.  The caller
 * frees named->bits.
 */
static void
find_named(Relation index, const BxMetaPageData *meta, NamedBlocks *named)
{
	named->index = index;
	named->nblocks = RelationGetNumberOfBlocks(index);
	named->bits = palloc_extended(named->nblocks / 8 + 1,
								  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	mark_blocks(named, BX_METAPAGE_BLKNO, 1);
	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
	{
		if (meta->partitioned.map[i] != 0)
			mark_blocks(named, meta->partitioned.map[i], 1);
	}
	bx_dir_each_region(index, meta, mark_region, named);
}

static bool
is_named(const NamedBlocks *named, BlockNumber blkno)
{
	return (named->bits[blkno / 8] & (1 << (blkno % 8))) != 0;
}

/* Returns 1 + the last named block. */
static BlockNumber
end_of_named(const NamedBlocks *named)
{
	BlockNumber end = named->nblocks;

	while (!is_named(named, end - 1))
		end--;
	return end;
}

/*
 * Replaces the list of free extents in *meta by the blocks before "end" that
 * are not named.  Returns the number of these blocks.
 */
static BlockNumber
list_unnamed(BxMetaPageData *meta, const NamedBlocks *named, BlockNumber end)
{
	BlockNumber unnamed = 0;
	uint64		start = 0;

	meta->partitioned.nfree = 0;
	memset(meta->partitioned.free, 0, sizeof(meta->partitioned.free));
	for (uint64 blkno = 0; blkno <= end; blkno++)
	{
		if (blkno < end && !is_named(named, blkno))
			continue;
		if (blkno > start)
		{
			add_extent(meta, start, blkno - start);
			unnamed += blkno - start;
		}
		start = blkno + 1;
	}
	return unnamed;
}

/*
 * Finds the pages that are not named, and adds them to the list of free
 * extents: pages left by a failed insert or rebuild, and pages that did not
 * fit in the list.  Returns their number, and sets *end to 1 + the last named
 * block.  The caller must not hold LockPage on the metapage, which is
 * acquired and released here.
 */
BlockNumber
bx_extents_sweep(Relation index, BlockNumber *end)
{
	BxMetaPageData meta;
	BxMetaPageData old;
	NamedBlocks named;
	BlockNumber unnamed;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	old = meta;
	find_named(index, &meta, &named);
	*end = end_of_named(&named);
	unnamed = list_unnamed(&meta, &named, named.nblocks);
	if (memcmp(&meta, &old, sizeof(meta)) != 0)
	{
		if (*end < named.nblocks)
			log_last_page(index, named.nblocks);
		bx_meta_write(index, &meta);
	}
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	pfree(named.bits);
	return unnamed;
}

/*
 * Truncates the file after the last named page.  Returns the number of pages
 * left, and in *free_pages how many of them are free.
 *
 * The caller holds AccessExclusiveLock on the index, so no other backend has
 * a descriptor that references the truncated pages, or a pin on one of them.
 * LockPage on the metapage is acquired only because every change of the
 * metapage requires it: no other backend can hold it.
 *
 * The pages are removed from the list before the file is truncated.  A
 * failure in between leaves pages that are not named, which the next VACUUM
 * finds.
 */
BlockNumber
bx_extents_truncate(Relation index, BlockNumber *free_pages)
{
	BxMetaPageData meta;
	BxMetaPageData old;
	NamedBlocks named;
	BlockNumber end;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	old = meta;
	find_named(index, &meta, &named);
	end = end_of_named(&named);
	*free_pages = list_unnamed(&meta, &named, end);
	if (memcmp(&meta, &old, sizeof(meta)) != 0)
		bx_meta_write(index, &meta);
	BX_PAUSE(BX_PAUSE_TRUNCATE);
	if (end < named.nblocks)
		RelationTruncate(index, end);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);

	/* the cached size is out of date */
	bx_geometry_forget(index);
	pfree(named.bits);
	return end;
}
