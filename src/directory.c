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
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bloomidx.h"

/*
 * Automatic pages_per_range aims at this many keys in a range, so that most
 * of a slice is used, but never takes more pages than this, because a range
 * that matches in vain costs that many heap pages.
 */
#define AUTO_KEYS_PER_RANGE		64
#define AUTO_MAX_LG_BASE		4

/* With fewer children than this, a node's own fill says little. */
#define FEW_CHILDREN			8

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

/*
 * Fills the cache with the blocks of the first npartitions top-level pages.
 * Leaves it alone if the index has no key yet.
 */
static void
load_cache(Relation index, uint32 npartitions)
{
	BxMetaPageData meta;
	BxIndexCache *cache;
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);

	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		return;

	cache = MemoryContextAllocZero(index->rd_indexcxt,
								   offsetof(BxIndexCache, top) +
								   sizeof(BlockNumber) * npartitions);
	cache->layout = meta.layout;
	cache->lg_base = meta.lg_base;
	cache->npartitions = npartitions;
	for (uint32 p = 0; p < npartitions; p += BX_PARTITIONS_PER_MAP)
	{
		uint32		number = p / BX_PARTITIONS_PER_MAP;
		uint32		n = Min(npartitions - p, BX_PARTITIONS_PER_MAP);
		Buffer		buffer;
		BxRegionData *regions;

		if (meta.map[number] == 0)
			continue;
		if (meta.map[number] >= index_blocks)
			bx_page_corrupted(index, BX_METAPAGE_BLKNO,
							  "a map page behind the end");
		buffer = read_map(index, meta.map[number], number, BUFFER_LOCK_SHARE);
		regions = BxPageGetRegions(BufferGetPage(buffer));
		for (uint32 i = 0; i < n; i++)
		{
			BlockNumber top = regions[i / BX_FANOUT].top[i % BX_FANOUT];

			/* it may have been added since the size was taken */
			if (top >= index_blocks &&
				top >= (index_blocks = RelationGetNumberOfBlocks(index)))
				bx_page_corrupted(index, meta.map[number],
								  "a top-level page behind the end");
			cache->top[p + i] = top;
		}
		UnlockReleaseBuffer(buffer);
	}

	bx_dir_forget(index);
	index->rd_amcache = cache;
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
		return;
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
 * Makes the slices of a node, without bits, for so many keys per child.
 * Nobody knows of them until the caller publishes the descriptor.
 */
void
bx_dir_alloc_slices(Relation index, int level, uint32 node, double keys,
					double rate, uint32 generation, BxNodeDesc *desc, bool wal)
{
	BxPlan		plan = bx_filter_plan(keys, rate, BX_SLICE_ROWS);
	PGAlignedBlock image;
	BxPageOpaqueData *opaque = BxPageGetOpaque(image.data);

	memset(desc, 0, sizeof(*desc));
	desc->nslices = plan.nslices;
	desc->nprobes = plan.nprobes;
	desc->generation = generation;
	desc->keys = (uint32) Min(ceil(keys), (double) PG_UINT32_MAX);
	desc->state = BX_NODE_PRESENT;
	desc->start = bx_page_extend(index, plan.nslices);

	bx_page_init(image.data, BX_PAGE_SLICE);
	opaque->level = level;
	opaque->node = node;
	opaque->nslices = desc->nslices;
	opaque->nprobes = desc->nprobes;
	opaque->generation = generation;
	for (uint32 i = 0; i < desc->nslices; i++)
	{
		opaque->slice = i;
		bx_page_write_new(index, desc->start + i, image.data, wal);
	}
}

/* Makes a map page and enters it in *meta, which the caller writes. */
static void
add_map(Relation index, BxMetaPageData *meta, uint32 number, bool wal)
{
	PGAlignedBlock image;
	BxRegionData *regions = BxPageGetRegions(image.data);

	bx_page_init(image.data, BX_PAGE_MAP);
	BxPageGetOpaque(image.data)->node = number;
	for (int i = 0; i < BX_REGIONS_PER_MAP; i++)
		regions[i].self.state = BX_NODE_UNKNOWN;
	meta->map[number] = bx_page_extend(index, 1);
	bx_page_write_new(index, meta->map[number], image.data, wal);
}

/* Enters a top-level page in its map page. */
static void
publish_top(Relation index, BlockNumber map_blkno, uint32 partition,
			BlockNumber top, bool wal)
{
	uint32		number = partition / BX_PARTITIONS_PER_MAP;
	uint32		i = partition % BX_PARTITIONS_PER_MAP;
	Buffer		buffer;

	buffer = read_map(index, map_blkno, number, BUFFER_LOCK_EXCLUSIVE);
	if (wal)
	{
		GenericXLogState *state = GenericXLogStart(index);
		Page		page = GenericXLogRegisterBuffer(state, buffer, 0);

		BxPageGetRegions(page)[i / BX_FANOUT].top[i % BX_FANOUT] = top;
		GenericXLogFinish(state);
	}
	else
	{
		Page		page = BufferGetPage(buffer);

		BxPageGetRegions(page)[i / BX_FANOUT].top[i % BX_FANOUT] = top;
		MarkBufferDirty(buffer);
	}
	UnlockReleaseBuffer(buffer);
}

/*
 * Makes the top-level page of a partition and publishes it.  *meta is the
 * current metapage, which is written if a map page had to be added; a build
 * (wal is false) writes it at its end instead.
 */
void
bx_dir_add_partition(Relation index, BxMetaPageData *meta, uint32 partition,
					 const BxTopPageData *content, bool wal)
{
	uint32		number = partition / BX_PARTITIONS_PER_MAP;
	PGAlignedBlock image;
	BxPageOpaqueData *opaque = BxPageGetOpaque(image.data);
	BlockNumber top;

	if (meta->map[number] == 0)
	{
		add_map(index, meta, number, wal);
		if (wal)
			bx_meta_write(index, meta);
	}

	bx_page_init(image.data, BX_PAGE_TOP);
	opaque->level = BX_LEVEL_PARTITION;
	opaque->node = partition;
	memcpy(BxPageGetTop(image.data), content, sizeof(*content));
	top = bx_page_extend(index, 1);
	bx_page_write_new(index, top, image.data, wal);
	publish_top(index, meta->map[number], partition, top, wal);
}

/*
 * Counts the bits of each child's filter in one slice of a node.  Returns
 * false if the slice is not what desc says: the descriptor is old, or the
 * index is damaged, which is for others to find out.
 */
bool
bx_dir_sample_fill(Relation index, int level, uint32 node,
				   const BxNodeDesc *desc, BufferAccessStrategy strategy,
				   int *bits_set)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, desc->start,
											RBM_NORMAL, strategy);
	Page		page = BufferGetPage(buffer);
	bool		result;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	result = bx_page_is_slice(page, level, node, 0, desc);
	if (result)
		bx_filter_count(BxPageGetContent(page), BX_SLICE_ROWS, bits_set);
	UnlockReleaseBuffer(buffer);
	return result;
}

/*
 * Keys per child that a node holds by the fill of its filters: the root mean
 * square of those that hold any, so that the fuller ones weigh more.  0 if it
 * cannot be told.
 */
static double
keys_by_fill(Relation index, int level, uint32 node, const BxNodeDesc *desc)
{
	int			bits_set[BX_FANOUT];
	double		squares = 0;
	int			n = 0;
	BlockNumber index_blocks = 0;

	if (desc->state != BX_NODE_PRESENT)
		return 0;
	bx_dir_check_desc(index, BX_METAPAGE_BLKNO, desc, &index_blocks);
	if (!bx_dir_sample_fill(index, level, node, desc, NULL, bits_set))
		return desc->keys;
	for (int i = 0; i < BX_FANOUT; i++)
	{
		double		keys;

		/* leave out the empty ones and those in doubt */
		if (bits_set[i] == 0 || bits_set[i] == BX_SLICE_ROWS)
			continue;
		keys = bx_filter_fill_keys(bits_set[i], BX_SLICE_ROWS, desc->nprobes);
		squares += keys * keys;
		n++;
	}
	if (n == 0)
		return desc->keys;
	if (n < FEW_CHILDREN)
		return Max(sqrt(squares / n) * desc->nslices, desc->keys);
	return sqrt(squares / n) * desc->nslices;
}

/* Rows of a heap page, if all are as large as the one at tid. */
static double
rows_per_page(Relation heap, ItemPointer tid)
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
	meta->lg_base = bx_dir_auto_lg_base(keys_per_page);
	bx_meta_write(index, meta);
}

/* The automatic pages_per_range for so many distinct keys in a heap page. */
uint8
bx_dir_auto_lg_base(double keys_per_page)
{
	uint8		lg_base = 0;

	while (lg_base < AUTO_MAX_LG_BASE &&
		   keys_per_page * (1 << lg_base) < AUTO_KEYS_PER_RANGE)
		lg_base++;
	return lg_base;
}

/* Copies the directory of a partition; false if it has none. */
static bool
read_top(Relation index, uint32 partition, BxTopPageData *top)
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

/* Enters a segment's descriptor in the top-level page. */
static void
publish_segment(Relation index, uint32 partition, int child,
				const BxNodeDesc *desc)
{
	BlockNumber blkno;
	Buffer		buffer;
	GenericXLogState *state;
	Page		page;

	bx_dir_tops(index, partition, 1, &blkno);
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_dir_check_top(index, buffer, partition);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	BxPageGetTop(page)->child[child] = *desc;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/* A generation that no slices of this index have had. */
static uint32
take_generation(Relation index, BxMetaPageData *meta)
{
	uint32		generation = meta->next_generation++;

	bx_meta_write(index, meta);
	return generation;
}

/*
 * Keys per range that a new segment should be planned for: what its
 * predecessor turned out to hold, else what rows of this size come to.
 */
static double
predict_keys(Relation index, uint32 segment, double keys_per_range)
{
	BxTopPageData top;
	double		keys = 0;

	if (segment > 0 && read_top(index, (segment - 1) / BX_FANOUT, &top))
		keys = keys_by_fill(index, BX_LEVEL_SEGMENT, segment - 1,
							&top.child[(segment - 1) % BX_FANOUT]);
	return keys > 0 ? keys : keys_per_range;
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
		if (read_top(index, partition - 1, &previous))
			keys = keys_by_fill(index, BX_LEVEL_PARTITION, partition - 1,
								&previous.self);
		if (keys == 0)
			keys = keys_per_range * BX_FANOUT;
		bx_dir_alloc_slices(index, BX_LEVEL_PARTITION, partition, keys,
							BX_SUMMARY_RATE, take_generation(index, meta),
							&content.self, true);
	}
	bx_dir_add_partition(index, meta, partition, &content, true);
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
	keys_per_page = rows_per_page(heap, tid) *
		IndexRelationGetNumberOfKeyAttributes(index);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);

	/* somebody may have done some of it while we waited for the lock */
	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		choose_lg_base(index, &meta, keys_per_page);
	segment = (ItemPointerGetBlockNumber(tid) >> meta.lg_base) / BX_FANOUT;
	partition = segment / BX_FANOUT;
	keys_per_range = predict_keys(index, segment,
								  keys_per_page * (1 << meta.lg_base));
	if (!read_top(index, partition, &top))
	{
		make_partition(index, &meta, partition, keys_per_range);
		if (!read_top(index, partition, &top))
			elog(ERROR, "partition %u of index \"%s\" is not there",
				 partition, RelationGetRelationName(index));
	}
	if (top.child[segment % BX_FANOUT].state == BX_NODE_EMPTY)
	{
		BxNodeDesc	desc;

		bx_dir_alloc_slices(index, BX_LEVEL_SEGMENT, segment, keys_per_range,
							meta.false_positive_rate,
							take_generation(index, &meta), &desc, true);
		publish_segment(index, partition, segment % BX_FANOUT, &desc);
	}

	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}
