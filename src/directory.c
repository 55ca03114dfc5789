/*-------------------------------------------------------------------------
 *
 * directory.c
 *	  The directory of layout "partitioned": map pages, top-level pages, and
 *	  the making of new nodes.
 *
 * Pages are allocated and published under LockPage(index, metapage,
 * ExclusiveLock), taken with no content lock held.  Publishing comes last, so
 * that whatever a directory entry names is complete; what an error or a crash
 * leaves behind in between is named by nobody.
 *
 * A top-level page never moves while the index's file lives, which is why its
 * block number may be remembered; descriptors may not be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/generic_xlog.h"
#include "access/htup_details.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bloomidx.h"

/*
 * A segment that has no predecessor is sized from a single row.  It gets no
 * more slices than about this, even if the row promises more: should that come
 * true, its successors know better, and VACUUM rebuilds it.
 */
#define MAX_FIRST_SLICES		16

/*
 * A node is measured by one slice, or by several if that has fewer keys than
 * this: so few may be a tenth more or less than they should by chance.
 */
#define FEW_MEASURED_KEYS		512
#define MEASURED_SLICES			16

/* Reads a map page, checked, and locks it. */
static Buffer
read_map(Relation index, BlockNumber blkno, uint32 number, int lockmode)
{
	Buffer		buffer = ReadBuffer(index, blkno);

	LockBuffer(buffer, lockmode);
	bx_page_check(index, buffer, BX_PAGE_MAP);
	if (BxPageGetOpaque(BufferGetPage(buffer))->node != number)
		bx_page_corrupted(index, blkno, "another map page");
	return buffer;
}

/* Copies the blocks of n top-level pages, from partition "first" on. */
static void
read_tops(Relation index, const BxMetaPageData *meta, uint32 first, uint32 n,
		  BlockNumber *tops)
{
	uint32		number = first / BX_PARTITIONS_PER_MAP;
	BlockNumber blkno = meta->map[number];
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);
	Buffer		buffer;
	BxRegionData *regions;

	if (blkno == 0)
		return;
	if (blkno >= index_blocks)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO,
						  "a map page behind the end");
	buffer = read_map(index, blkno, number, BUFFER_LOCK_SHARE);
	regions = BxPageGetRegions(BufferGetPage(buffer));
	for (uint32 i = 0; i < n; i++)
		tops[i] = regions[i / BX_FANOUT].top[i % BX_FANOUT];
	UnlockReleaseBuffer(buffer);

	/* some may have been added since the size was taken */
	index_blocks = RelationGetNumberOfBlocks(index);
	for (uint32 i = 0; i < n; i++)
	{
		if (tops[i] >= index_blocks)
			bx_page_corrupted(index, blkno, "a top-level page behind the end");
	}
}

/*
 * Fills the cache with the blocks of the first npartitions top-level pages.
 * Leaves it alone if the index has no key yet.
 */
static void
load_cache(Relation index, uint32 npartitions)
{
	BxMetaPageData meta;
	BxIndexCache *cache;
	Size		size = offsetof(BxIndexCache, top) +
	sizeof(BlockNumber) * npartitions;

	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		return;

	/* the relation's own memory is for what is complete */
	cache = palloc0(size);
	cache->layout = meta.layout;
	cache->lg_base = meta.lg_base;
	cache->index_blocks = RelationGetNumberOfBlocks(index);
	cache->npartitions = npartitions;
	for (uint32 p = 0; p < npartitions; p += BX_PARTITIONS_PER_MAP)
		read_tops(index, &meta, p, Min(npartitions - p, BX_PARTITIONS_PER_MAP),
				  cache->top + p);

	bx_dir_forget(index);
	index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt, size);
	memcpy(index->rd_amcache, cache, size);
	pfree(cache);
}

/* Ranges of a heap of so many blocks. */
uint64
bx_dir_ranges(BlockNumber heap_blocks, uint8 lg_base)
{
	uint64		pages_per_range = UINT64CONST(1) << lg_base;

	return ((uint64) heap_blocks + pages_per_range - 1) >> lg_base;
}

/*
 * A size that the index has had, without asking the system; 0 if it is not
 * known.  VACUUM may have truncated the index since, and nobody tells.  That
 * does no harm: a descriptor that is read with a lock on the index names pages
 * that are there, whatever this says.  It only serves to find out one that is
 * damaged; and if it is too large for that, reading the page fails.
 */
BlockNumber
bx_dir_known_blocks(Relation index)
{
	BxIndexCache *cache = index->rd_amcache;

	return cache ? cache->index_blocks : 0;
}

/* Must be called when the index is built anew in the same file. */
void
bx_dir_forget(Relation index)
{
	if (index->rd_amcache)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;
}

/*
 * Gets the layout and log2 of pages per range; false if the index has never
 * had a key.
 */
bool
bx_dir_geometry(Relation index, uint8 *layout, uint8 *lg_base)
{
	BxIndexCache *cache;

	if (index->rd_amcache == NULL)
		load_cache(index, 1);
	cache = index->rd_amcache;
	if (cache == NULL)
		return false;
	*layout = cache->layout;
	*lg_base = cache->lg_base;
	return true;
}

/*
 * Gets the blocks of the top-level pages of n partitions; 0 where there is
 * none.  What is not known to exist is looked up again.
 */
void
bx_dir_tops(Relation index, uint32 first, uint32 n, BlockNumber *tops)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		BxIndexCache *cache = index->rd_amcache;
		bool		complete = true;

		for (uint32 i = 0; i < n; i++)
		{
			tops[i] = 0;
			if (cache != NULL && first + i < cache->npartitions)
				tops[i] = cache->top[first + i];
			if (tops[i] == 0)
				complete = false;
		}
		if (complete || attempt > 0)
			return;
		load_cache(index, Max(first + n, cache ? cache->npartitions : 0));
	}
}

/* Checks a top-level page, on which the caller has a lock. */
void
bx_dir_check_top(Relation index, Buffer buffer, uint32 partition)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(BufferGetPage(buffer));

	bx_page_check(index, buffer, BX_PAGE_TOP);
	if (opaque->level != BX_LEVEL_PARTITION || opaque->node != partition)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer),
						  "top-level page of another partition");
}

/*
 * Refuses a descriptor, found at blkno, that cannot be true.  *index_blocks is
 * what the caller last knew of the index's size, or 0.
 */
void
bx_dir_check_desc(Relation index, BlockNumber blkno, const BxNodeDesc *desc,
				  BlockNumber *index_blocks)
{
	uint64		end = (uint64) desc->start + desc->nslices;

	if (desc->state == BX_NODE_EMPTY || desc->state == BX_NODE_UNKNOWN)
	{
		if (end != 0 || desc->generation != 0)
			bx_page_corrupted(index, blkno, "impossible directory entry");
		return;
	}
	if (desc->state != BX_NODE_PRESENT || desc->start == BX_METAPAGE_BLKNO ||
		desc->nslices == 0 || desc->nprobes == 0 ||
		desc->nprobes > BX_MAX_PROBES)
		bx_page_corrupted(index, blkno, "impossible directory entry");
	if (end > *index_blocks)
		*index_blocks = RelationGetNumberOfBlocks(index);
	if (end > *index_blocks)
		bx_page_corrupted(index, blkno,
						  "directory entry points behind the end");
}

/*
 * The first free extent of so many pages in the file, or NULL.  It is the first
 * and not the one that fits best, so that pages at the end become free.  The
 * list is a hint, and what is not in the file is no page.
 */
static BxFreeExtent *
find_extent(Relation index, BxMetaPageData *meta, uint32 npages)
{
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);
	BxFreeExtent *first = NULL;

	for (uint32 i = 0; i < meta->nfree; i++)
	{
		BxFreeExtent *extent = &meta->free[i];

		if (extent->start != BX_METAPAGE_BLKNO &&
			(uint64) extent->start + extent->npages <= index_blocks &&
			extent->npages >= npages &&
			(first == NULL || extent->start < first->start))
			first = extent;
	}
	return first;
}

/*
 * Takes consecutive pages that nobody uses: free ones, else at the end of the
 * file.  The caller writes *meta, from which they are taken, before it writes
 * to the pages.
 */
static BlockNumber
take_pages(Relation index, BxMetaPageData *meta, uint32 npages)
{
	BxFreeExtent *extent = find_extent(index, meta, npages);
	BlockNumber start;

	if (extent == NULL)
		return bx_page_extend(index, npages);

	start = extent->start;
	extent->start += npages;
	extent->npages -= npages;
	if (extent->npages == 0)
		*extent = meta->free[--meta->nfree];
	return start;
}

/* Describes slices for so many keys per child, which have no place yet. */
void
bx_dir_plan_slices(double keys, double rate, uint32 generation,
				   BxNodeDesc *desc)
{
	BxPlan		plan = bx_filter_plan(keys, rate, BX_SLICE_ROWS);

	memset(desc, 0, sizeof(*desc));
	desc->nslices = plan.nslices;
	desc->nprobes = plan.nprobes;
	desc->generation = generation;
	desc->keys = (uint32) Min(ceil(keys), (double) PG_UINT32_MAX);
	desc->state = BX_NODE_PRESENT;
}

/*
 * Makes the slices that *desc describes, without bits, and completes *desc:
 * they get a place, and a new generation.  Nobody knows of them until the
 * caller publishes the descriptor.  The caller holds LockPage on the metapage,
 * of which *meta is the content.
 */
static void
make_slices(Relation index, BxMetaPageData *meta, int level, uint32 node,
			BxNodeDesc *desc)
{
	PGAlignedBlock image;

	desc->generation = meta->next_generation++;
	desc->start = take_pages(index, meta, desc->nslices);
	bx_meta_write(index, meta);
	for (uint32 i = 0; i < desc->nslices; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_page_init_slice(image.data, level, node, i, desc);
		bx_page_write_new(index, desc->start + i, image.data, true);
	}
}

/* Makes the slices of a node for so many keys per child; see make_slices. */
void
bx_dir_alloc_slices(Relation index, BxMetaPageData *meta, int level,
					uint32 node, double keys, double rate, BxNodeDesc *desc)
{
	bx_dir_plan_slices(keys, rate, 0, desc);
	make_slices(index, meta, level, node, desc);
}

/*
 * Makes slices like those that *old describes, in free pages before these; see
 * make_slices.  Returns false, with nothing done, if there is no room.
 */
bool
bx_dir_alloc_before(Relation index, BxMetaPageData *meta, int level,
					uint32 node, const BxNodeDesc *old, BxNodeDesc *desc)
{
	BxFreeExtent *extent = find_extent(index, meta, old->nslices);

	if (extent == NULL || extent->start > old->start)
		return false;
	*desc = *old;
	make_slices(index, meta, level, node, desc);
	return true;
}

/*
 * Takes a page for the directory, and writes *meta, which it is taken from.
 * Such a page never moves, so it should not be at the end, where it would keep
 * VACUUM from truncating the file.
 */
static BlockNumber
take_directory_page(Relation index, BxMetaPageData *meta)
{
	BlockNumber blkno = take_pages(index, meta, 1);

	bx_meta_write(index, meta);
	return blkno;
}

/* Makes a map page and enters it in *meta, which it writes. */
static void
add_map(Relation index, BxMetaPageData *meta, uint32 number)
{
	PGAlignedBlock image;
	BxRegionData *regions = BxPageGetRegions(image.data);
	BlockNumber blkno;

	bx_page_init(image.data, BX_PAGE_MAP);
	BxPageGetOpaque(image.data)->node = number;
	for (int i = 0; i < BX_REGIONS_PER_MAP; i++)
		regions[i].self.state = BX_NODE_UNKNOWN;
	blkno = take_directory_page(index, meta);
	bx_page_write_new(index, blkno, image.data, true);
	meta->map[number] = blkno;
	bx_meta_write(index, meta);
}

/*
 * Enters a top-level page in its map page.  *meta is the current metapage,
 * which is written if a map page had to be added.
 */
void
bx_dir_publish_top(Relation index, BxMetaPageData *meta, uint32 partition,
				   BlockNumber top)
{
	uint32		number = partition / BX_PARTITIONS_PER_MAP;
	uint32		i = partition % BX_PARTITIONS_PER_MAP;
	Buffer		buffer;
	GenericXLogState *state;
	Page		page;

	if (meta->map[number] == 0)
		add_map(index, meta, number);
	buffer = read_map(index, meta->map[number], number, BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	BxPageGetRegions(page)[i / BX_FANOUT].top[i % BX_FANOUT] = top;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/*
 * Makes the top-level page of a partition, which is still to be published.
 * *meta is the current metapage, for its free pages, and the caller holds
 * LockPage; or NULL if there are none, in a build.
 */
BlockNumber
bx_dir_make_top(Relation index, BxMetaPageData *meta, uint32 partition,
				const BxTopPageData *content)
{
	PGAlignedBlock image;
	BxPageOpaqueData *opaque = BxPageGetOpaque(image.data);
	BlockNumber top;

	bx_page_init(image.data, BX_PAGE_TOP);
	opaque->level = BX_LEVEL_PARTITION;
	opaque->node = partition;
	memcpy(BxPageGetTop(image.data), content, sizeof(*content));
	top = meta ? take_directory_page(index, meta) : bx_page_extend(index, 1);
	bx_page_write_new(index, top, image.data, true);
	return top;
}

/*
 * Adds up the fill of each child's filter in one slice of a node.  Returns
 * false if that slice is not what desc says: the descriptor is old, or the
 * index is damaged, which is for others to find out.
 */
static bool
measure_slice(Relation index, int level, uint32 node, const BxNodeDesc *desc,
			  uint32 slice, BufferAccessStrategy strategy, double *keys,
			  double *rates, double *fill)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM,
											desc->start + slice, RBM_NORMAL,
											strategy);
	Page		page = BufferGetPage(buffer);
	int			bits_set[BX_FANOUT];
	bool		valid;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	valid = bx_page_is_slice(page, level, node, slice, desc);
	if (valid)
		bx_filter_count(BxPageGetContent(page), BX_SLICE_ROWS, bits_set);
	UnlockReleaseBuffer(buffer);
	if (!valid)
		return false;
	for (int i = 0; i < BX_FANOUT; i++)
	{
		keys[i] += bx_filter_fill_keys(bits_set[i], BX_SLICE_ROWS,
									   desc->nprobes);
		rates[i] += bx_filter_fill_rate(bits_set[i], BX_SLICE_ROWS,
										desc->nprobes);
		fill[i] += (double) bits_set[i] / BX_SLICE_ROWS;
	}
	return true;
}

/*
 * Measures a node by the fill of its filters in one slice, which is a fair
 * sample, or in several if the first has few keys.  Returns false if a
 * slice is not what desc says.  The caller has checked the descriptor.
 */
bool
bx_dir_measure(Relation index, int level, uint32 node, const BxNodeDesc *desc,
			   BufferAccessStrategy strategy, BxMeasure *measure)
{
	double		keys[BX_FANOUT] = {0};
	double		rates[BX_FANOUT] = {0};
	double		fill[BX_FANOUT] = {0};
	double		total = 0;
	double		squares = 0;
	uint32		nslices = 1;

	memset(measure, 0, sizeof(*measure));
	if (!measure_slice(index, level, node, desc, 0, strategy, keys, rates,
					   fill))
		return false;
	for (int i = 0; i < BX_FANOUT; i++)
		total += keys[i];
	if (total < FEW_MEASURED_KEYS)
	{
		nslices = Min(desc->nslices, MEASURED_SLICES);
		for (uint32 i = 1; i < nslices; i++)
		{
			uint32		slice = (uint64) i * desc->nslices / nslices;

			if (!measure_slice(index, level, node, desc, slice, strategy,
							   keys, rates, fill))
				return false;
		}
	}

	for (int i = 0; i < BX_FANOUT; i++)
	{
		double		all = keys[i] / nslices * desc->nslices;

		if (keys[i] == 0)
			continue;
		measure->nchildren++;
		if (rates[i] == nslices)
			measure->nfull++;
		squares += all * all;
		measure->all_keys += all;
		measure->fill += fill[i] / nslices;
		measure->rate += rates[i] / nslices;
	}
	if (measure->nchildren > 0)
	{
		measure->keys = sqrt(squares / measure->nchildren);
		measure->fill /= measure->nchildren;
		measure->rate /= measure->nchildren;
	}
	return true;
}

/*
 * Notes in the descriptor of a node that has all its bits how many keys it has
 * by their fill, to compare with later, if these are more than it was planned
 * for: children that differ much in size may look fuller than they were
 * planned, because the smallest have no key in the slice that is measured.  If
 * they are fewer, the plan stays, so that VACUUM sees what is too large.
 */
void
bx_dir_set_baseline(BxNodeDesc *desc, const BxMeasure *measure)
{
	/* filters in doubt are full, and say nothing */
	if (!(desc->flags & BX_DESC_DOUBT) && measure->keys > desc->keys)
		desc->keys = Min(ceil(measure->keys), (double) PG_UINT32_MAX);
}

/*
 * Keys per child that the successor of a node should be planned for: what the
 * node holds.  0 if it cannot tell.
 */
static double
keys_of_predecessor(Relation index, int level, uint32 node,
					const BxNodeDesc *desc)
{
	BlockNumber index_blocks = 0;
	BxMeasure	measure;

	if (desc->state != BX_NODE_PRESENT)
		return 0;
	bx_dir_check_desc(index, BX_METAPAGE_BLKNO, desc, &index_blocks);

	/* filters in doubt are full, and say nothing */
	if ((desc->flags & BX_DESC_DOUBT) ||
		!bx_dir_measure(index, level, node, desc, NULL, &measure))
		return desc->keys;
	if (measure.nchildren < BX_FEW_CHILDREN)
		return Max(measure.keys, desc->keys);
	return measure.keys;
}

/* Rows of a heap page, if all are as large as the one at tid. */
double
bx_dir_rows_per_page(Relation heap, ItemPointer tid)
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

/* Sets lg_base at the first key of an index that was made on an empty table. */
static void
choose_lg_base(Relation index, BxMetaPageData *meta, double keys_per_page)
{
	meta->lg_base = bx_dir_auto_lg_base(&bx_layout_partitioned, keys_per_page);
	bx_meta_write(index, meta);
}

/* The automatic pages_per_range for so many distinct keys in a heap page. */
uint8
bx_dir_auto_lg_base(const BxLayout *layout, double keys_per_page)
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
bx_dir_grow_lg_base(const BxLayout *layout, uint8 lg_base, double heap_blocks)
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
bx_dir_choose_lg_base(const BxLayout *layout, const double *keys,
					  double heap_blocks)
{
	double		per_page = 0;
	uint8		lg_base = bx_dir_auto_lg_base(layout, 0);

	/* the first size that has enough keys; else what the largest came to */
	for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
	{
		if (keys[lg] == 0)
			continue;
		per_page = keys[lg] / (1 << lg);
		lg_base = Max(lg, bx_dir_auto_lg_base(layout, per_page));
		if (lg_base == lg)
			break;
	}
	return bx_dir_grow_lg_base(layout, lg_base, heap_blocks);
}

/* Calls back for every partition that has a top-level page, in order. */
void
bx_dir_each_top(Relation index, const BxMetaPageData *meta,
				BxTopCallback callback, void *arg)
{
	BlockNumber *tops = palloc(sizeof(BlockNumber) * BX_PARTITIONS_PER_MAP);

	for (uint32 map = 0; map < BX_MAX_MAPS; map++)
	{
		uint32		first = map * BX_PARTITIONS_PER_MAP;

		if (meta->map[map] == 0)
			continue;
		bx_dir_tops(index, first, BX_PARTITIONS_PER_MAP, tops);
		for (uint32 i = 0; i < BX_PARTITIONS_PER_MAP; i++)
		{
			if (tops[i] != 0)
				callback(arg, first + i, tops[i]);
		}
	}
	pfree(tops);
}

/* Copies the directory of a partition; false if it has none. */
bool
bx_dir_read_top(Relation index, uint32 partition, BxTopPageData *top)
{
	BlockNumber blkno;
	Buffer		buffer;

	bx_dir_tops(index, partition, 1, &blkno);
	if (blkno == 0)
		return false;
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_dir_check_top(index, buffer, partition);
	memcpy(top, BxPageGetTop(BufferGetPage(buffer)), sizeof(*top));
	UnlockReleaseBuffer(buffer);
	return true;
}

/*
 * Changes entries of a top-level page, in one record: if desc is given, that
 * of a child (or of the partition itself, if child is BX_CHILD_SELF), and if
 * shadow is given, the shadow.
 */
void
bx_dir_update_top(Relation index, uint32 partition, int child,
				  const BxNodeDesc *desc, const BxShadow *shadow)
{
	BlockNumber blkno;
	Buffer		buffer;
	GenericXLogState *state;
	BxTopPageData *top;

	bx_dir_tops(index, partition, 1, &blkno);
	if (blkno == 0)
		elog(ERROR, "partition %u of index \"%s\" is not there", partition,
			 RelationGetRelationName(index));
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_dir_check_top(index, buffer, partition);
	state = GenericXLogStart(index);
	top = BxPageGetTop(GenericXLogRegisterBuffer(state, buffer, 0));
	if (desc)
		*(child == BX_CHILD_SELF ? &top->self : &top->child[child]) = *desc;
	if (shadow)
		top->shadow = *shadow;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/*
 * Makes the shadow, whose slices desc describes, the node's own.  Both must be
 * what the caller knows: nobody else may have rebuilt the node meanwhile.
 */
void
bx_dir_swap_shadow(Relation index, uint32 partition, int child,
				   const BxNodeDesc *old, const BxShadow *shadow,
				   const BxNodeDesc *desc)
{
	BxTopPageData top;
	BxShadow	none = {0};

	/* whoever changes these has the table's lock, and so do we */
	if (!bx_dir_read_top(index, partition, &top) ||
		memcmp(&top.shadow, shadow, sizeof(*shadow)) != 0 ||
		memcmp(child == BX_CHILD_SELF ? &top.self : &top.child[child], old,
			   sizeof(*old)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("filters of index \"%s\" have been rebuilt by somebody else",
						RelationGetRelationName(index))));
	bx_dir_update_top(index, partition, child, desc, &none);
}

/*
 * Keys per range that a new segment should be planned for: what its
 * predecessor turned out to hold, else what rows of this size come to.
 */
static double
predict_keys(Relation index, uint32 segment, double keys_per_range,
			 double rate)
{
	BxTopPageData top;
	double		keys = 0;

	if (segment > 0 && bx_dir_read_top(index, (segment - 1) / BX_FANOUT, &top))
		keys = keys_of_predecessor(index, BX_LEVEL_SEGMENT, segment - 1,
								   &top.child[(segment - 1) % BX_FANOUT]);
	return keys > 0 ? keys :
		Min(keys_per_range, bx_filter_capacity(rate, BX_SLICE_ROWS) *
			MAX_FIRST_SLICES);
}

/*
 * Makes a partition.  The first one starts without a summary, because a small
 * table does not need it; VACUUM adds it.  Later ones get it at once, sized
 * from their predecessor, so that there is no tail without.
 */
static void
make_partition(Relation index, BxMetaPageData *meta, uint32 partition,
			   double keys_per_range)
{
	BxTopPageData content;
	BxTopPageData previous;
	double		keys = 0;

	memset(&content, 0, sizeof(content));
	content.self.state = BX_NODE_UNKNOWN;
	if (partition > 0)
	{
		if (bx_dir_read_top(index, partition - 1, &previous))
			keys = keys_of_predecessor(index, BX_LEVEL_PARTITION, partition - 1,
									   &previous.self);
		if (keys == 0)
			keys = keys_per_range * BX_FANOUT;
		bx_dir_alloc_slices(index, meta, BX_LEVEL_PARTITION, partition, keys,
							BX_SUMMARY_RATE, &content.self);
	}
	bx_dir_publish_top(index, meta, partition,
					   bx_dir_make_top(index, meta, partition, &content));
}

/*
 * Makes whatever is missing of the segment for the heap row at tid: the
 * geometry of the index, the partition, the segment.  Call it with no content
 * lock held.
 */
void
bx_dir_make_segment(Relation index, Relation heap, ItemPointer tid)
{
	BxMetaPageData meta;
	BxTopPageData top;
	double		keys_per_page;
	double		keys_per_range;
	uint32		segment;
	uint32		partition;

	/* each column leaves a key, and a marker that soon repeats itself */
	keys_per_page = bx_dir_rows_per_page(heap, tid) *
		IndexRelationGetNumberOfKeyAttributes(index);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);

	/* somebody may have done some of it while we waited for the lock */
	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		choose_lg_base(index, &meta, keys_per_page);
	segment = (ItemPointerGetBlockNumber(tid) >> meta.lg_base) / BX_FANOUT;
	partition = segment / BX_FANOUT;
	keys_per_range = predict_keys(index, segment,
								  keys_per_page * (1 << meta.lg_base),
								  meta.false_positive_rate);
	if (!bx_dir_read_top(index, partition, &top))
	{
		make_partition(index, &meta, partition, keys_per_range);
		memset(&top, 0, sizeof(top));
	}
	if (top.child[segment % BX_FANOUT].state == BX_NODE_EMPTY)
	{
		BxNodeDesc	desc;

		bx_dir_alloc_slices(index, &meta, BX_LEVEL_SEGMENT, segment,
							keys_per_range, meta.false_positive_rate, &desc);
		BX_PAUSE(BX_PAUSE_ALLOCATED);
		bx_dir_update_top(index, partition, segment % BX_FANOUT, &desc, NULL);
	}

	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/*
 * Free pages
 * ----------
 */

/* Orders extents by where they are. */
static int
compare_extents(const void *a, const void *b)
{
	BlockNumber x = ((const BxFreeExtent *) a)->start;
	BlockNumber y = ((const BxFreeExtent *) b)->start;

	return x < y ? -1 : x > y;
}

/*
 * Adds an extent to the free ones: joins neighbours, and forgets the smallest
 * if there are too many, which the next VACUUM finds again.
 */
static void
add_extent(BxMetaPageData *meta, BlockNumber start, uint32 npages)
{
	BxFreeExtent extents[BX_MAX_FREE_EXTENTS + 1];
	uint32		n = meta->nfree;
	uint32		kept = 0;
	uint32		smallest = 0;

	memcpy(extents, meta->free, sizeof(BxFreeExtent) * n);
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
	memset(meta->free, 0, sizeof(meta->free));
	memcpy(meta->free, extents, sizeof(BxFreeExtent) * kept);
	meta->nfree = kept;
}

/*
 * Makes the pages of slices that nothing names any more available.  They may
 * be used again at once: whoever still has the old descriptor sees by the
 * generation that they are another's.
 */
void
bx_dir_free_slices(Relation index, const BxNodeDesc *desc)
{
	BxMetaPageData meta;

	if (desc->state != BX_NODE_PRESENT)
		return;
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	add_extent(&meta, desc->start, desc->nslices);
	bx_meta_write(index, &meta);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/* The blocks of an index that something names. */
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
							  "directory entry points behind the end");
		named->bits[blkno / 8] |= 1 << (blkno % 8);
	}
}

static void
mark_slices(NamedBlocks *named, const BxNodeDesc *desc)
{
	if (desc->state == BX_NODE_PRESENT)
		mark_blocks(named, desc->start, desc->nslices);
}

/* Marks all pages of the partitions of a map page. */
static void
mark_map(NamedBlocks *named, uint32 number, BlockNumber blkno)
{
	BlockNumber *tops = palloc(sizeof(BlockNumber) * BX_PARTITIONS_PER_MAP);
	uint32		first = number * BX_PARTITIONS_PER_MAP;

	mark_blocks(named, blkno, 1);
	bx_dir_tops(named->index, first, BX_PARTITIONS_PER_MAP, tops);
	for (uint32 i = 0; i < BX_PARTITIONS_PER_MAP; i++)
	{
		BxTopPageData top;

		if (tops[i] == 0 || !bx_dir_read_top(named->index, first + i, &top))
			continue;
		mark_blocks(named, tops[i], 1);
		mark_slices(named, &top.self);
		mark_slices(named, &top.shadow.desc);
		for (int c = 0; c < BX_FANOUT; c++)
			mark_slices(named, &top.child[c]);
	}
	pfree(tops);
}

/*
 * Writes and logs the last page of the file, which nothing names: pages that
 * were added and never written are not in WAL, and a standby, which replays
 * the list of free pages, would not have them.
 */
static void
log_last_page(Relation index, BlockNumber nblocks)
{
	PGAlignedBlock image;

	bx_page_init(image.data, BX_PAGE_SLICE);
	bx_page_write_new(index, nblocks - 1, image.data, true);
}

/*
 * Finds the pages that something names.  The caller holds LockPage on the
 * metapage, of which *meta is the content, so there are no pages that somebody
 * has allocated and not yet published.
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
		if (meta->map[i] != 0)
			mark_map(named, i, meta->map[i]);
	}
}

static bool
is_named(const NamedBlocks *named, BlockNumber blkno)
{
	return (named->bits[blkno / 8] & (1 << (blkno % 8))) != 0;
}

/* The block behind the last one that something names. */
static BlockNumber
end_of_named(const NamedBlocks *named)
{
	BlockNumber end = named->nblocks;

	while (!is_named(named, end - 1))
		end--;
	return end;
}

/*
 * Makes the list of free extents of *meta anew, from the blocks before "end"
 * that nothing names.  Returns how many there are.
 */
static BlockNumber
list_unnamed(BxMetaPageData *meta, const NamedBlocks *named, BlockNumber end)
{
	BlockNumber unnamed = 0;
	uint64		start = 0;

	meta->nfree = 0;
	memset(meta->free, 0, sizeof(meta->free));
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
 * Finds the pages that nothing names, and makes them available: those of an
 * insert or rebuild that failed, and those that the list of free extents had
 * no room for.  Returns how many there are, and sets *end to the block behind
 * the last one that something names.  Call it with no lock on the metapage.
 */
BlockNumber
bx_dir_sweep(Relation index, BlockNumber *end)
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
 * Cuts off what lies behind the last page that something names, and returns
 * how many pages are left; *free_pages is how many of these are free.
 *
 * The caller has AccessExclusiveLock on the index, so nobody has a descriptor
 * that names a page at the end, or a pin on one.  LockPage is taken for the
 * rule's sake: there is nobody to wait for.
 *
 * First the list forgets the pages, then they go.  If it stops in between, they
 * are pages that nothing names, which the next VACUUM finds.
 */
BlockNumber
bx_dir_truncate(Relation index, BlockNumber *free_pages)
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

	/* it knows a size that the index no longer has */
	bx_dir_forget(index);
	pfree(named.bits);
	return end;
}
