/*-------------------------------------------------------------------------
 *
 * directory.c
 *	  The directory of layout "partitioned": map pages, top-level pages,
 *	  and the creation of new nodes.
 *
 * Pages are allocated and published under LockPage(index, metapage,
 * ExclusiveLock), which is acquired with no content lock held.  Publishing is
 * the last step, so that every page that a directory entry references is
 * complete.  An error or crash before that leaves pages that no directory
 * entry references.
 *
 * A top-level page never moves as long as the index has the same file, so its
 * block number may be cached.  Descriptors must not be cached without
 * comparing them again.
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

#include "partitioned.h"

/*
 * A segment without a predecessor is sized from a single row.  It gets at
 * most about this many slices, even if the row suggests more; later segments
 * are sized from measurements, and VACUUM rebuilds this one if necessary.
 */
#define MAX_FIRST_SLICES		16

/*
 * Reads, locks and verifies a map page.  Returns the buffer, pinned and
 * locked in the given mode.
 */
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
 * Copies the block numbers of the top-level pages of n partitions, beginning
 * with "first", which must be the first partition of a map page.  Leaves
 * tops[] unchanged if the map page does not exist.
 */
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

	/* top-level pages may have been added since the size was read */
	index_blocks = RelationGetNumberOfBlocks(index);
	for (uint32 i = 0; i < n; i++)
	{
		if (tops[i] >= index_blocks)
			bx_page_corrupted(index, blkno, "a top-level page behind the end");
	}
}

/*
 * The layout's contents of rd_amcache: the block numbers of existing
 * top-level pages (0 if not known to exist).  Nothing that may change is
 * cached, except for a size that is used only for sanity checks.
 */
typedef struct TopCache
{
	BxGeometry	geometry;
	BlockNumber index_blocks;	/* see bx_dir_known_blocks */
	uint32		npartitions;
	BlockNumber top[FLEXIBLE_ARRAY_MEMBER];
} TopCache;

static TopCache *
get_cache(Relation index)
{
	BxGeometry *geometry = index->rd_amcache;

	return geometry != NULL && geometry->has_more ? (TopCache *) geometry : NULL;
}

/*
 * Fills the cache with the block numbers of the first npartitions top-level
 * pages.  Does nothing if the index has no geometry yet.
 */
static void
load_cache(Relation index, uint32 npartitions)
{
	BxMetaPageData meta;
	TopCache   *cache;
	Size		size = offsetof(TopCache, top) +
	sizeof(BlockNumber) * npartitions;

	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		return;

	/* build it here: a failure must not leave an incomplete cache entry */
	cache = palloc0(size);
	cache->geometry.layout = meta.layout;
	cache->geometry.lg_base = meta.lg_base;
	cache->geometry.has_more = true;
	cache->index_blocks = RelationGetNumberOfBlocks(index);
	cache->npartitions = npartitions;
	for (uint32 p = 0; p < npartitions; p += BX_PARTITIONS_PER_MAP)
		read_tops(index, &meta, p, Min(npartitions - p, BX_PARTITIONS_PER_MAP),
				  cache->top + p);

	bx_geometry_remember(index, &cache->geometry, size);
	pfree(cache);
}

/*
 * Returns a number of blocks that the index had at some time, without asking
 * the operating system; 0 if not known.  VACUUM may have truncated the index
 * since then, and no invalidation is sent.  That is harmless: a descriptor
 * that is read while holding a lock on the index references existing pages,
 * whatever the value is.  The value is only used to detect damaged
 * descriptors; if it is too large to detect one, reading the page fails.
 */
BlockNumber
bx_dir_known_blocks(Relation index)
{
	TopCache   *cache = get_cache(index);

	return cache ? cache->index_blocks : 0;
}

/*
 * Gets the block numbers of the top-level pages of n partitions, beginning
 * with "first"; 0 for a partition without top-level page.  Partitions that
 * the cache does not know are looked up in the map pages every time.
 */
void
bx_dir_tops(Relation index, uint32 first, uint32 n, BlockNumber *tops)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		TopCache   *cache = get_cache(index);
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

/*
 * Raises an error unless the buffer is the top-level page of the partition.
 * The caller holds a lock on the buffer.
 */
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
 * Raises an error if a descriptor, which was read from block blkno, is
 * impossible.  *index_blocks is the size of the index as the caller last knew
 * it, or 0; it is updated if the descriptor references blocks at or beyond
 * it.
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
 * Allocates and writes the slices that *desc describes, without bits, and
 * sets desc->start and a new desc->generation.  No other backend uses the
 * slices until the caller publishes the descriptor.  The caller holds
 * LockPage on the metapage, and *meta is its content, which is changed and
 * written.
 */
static void
make_slices(Relation index, BxMetaPageData *meta, int level, uint32 node,
			BxNodeDesc *desc)
{
	PGAlignedBlock image;

	desc->generation = meta->next_generation++;
	desc->start = bx_extents_take(index, meta, desc->nslices);
	bx_meta_write(index, meta);
	for (uint32 i = 0; i < desc->nslices; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_slices_init_page(image.data, level, node, i, desc);
		bx_page_write_new(index, desc->start + i, image.data, true);
	}
}

/*
 * Allocates the slices of a node for the given number of keys per child; see
 * make_slices.
 */
void
bx_dir_alloc_slices(Relation index, BxMetaPageData *meta, int level,
					uint32 node, double keys, double rate, BxNodeDesc *desc)
{
	bx_slices_plan(keys, rate, 0, desc);
	make_slices(index, meta, level, node, desc);
}

/*
 * Allocates slices of the same number, probes and flags as *old, in free
 * pages before block "end"; see make_slices.  Returns false, with nothing
 * changed, if there is no sufficient free extent before "end".
 */
bool
bx_dir_alloc_before(Relation index, BxMetaPageData *meta, BlockNumber end,
					int level, uint32 node, const BxNodeDesc *old,
					BxNodeDesc *desc)
{
	BxFreeExtent *extent = bx_extents_find(index, meta, old->nslices);

	if (extent == NULL || (uint64) extent->start + old->nslices > end)
		return false;
	*desc = *old;
	make_slices(index, meta, level, node, desc);
	return true;
}

/*
 * Allocates a page for the directory, and writes *meta.  The page is taken
 * from the free pages if possible: a directory page never moves, and one at
 * the end of the file would prevent VACUUM from truncating the file.
 */
static BlockNumber
take_directory_page(Relation index, BxMetaPageData *meta)
{
	BlockNumber blkno = bx_extents_take(index, meta, 1);

	bx_meta_write(index, meta);
	return blkno;
}

/* Creates a map page, enters it in *meta, and writes *meta. */
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
 * Enters a top-level page in its map page.  *meta is the current content of
 * the metapage; it is changed and written if a map page has to be added.  The
 * caller holds LockPage on the metapage, or is the leader of a build.
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
 * Creates the top-level page of a partition, and returns its block number,
 * which the caller publishes.  If meta is not NULL, it is the current content
 * of the metapage, from whose free pages the page is taken, and the caller
 * holds LockPage on the metapage.  In a build meta is NULL: there are no free
 * pages.
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
 * Returns the keys per child that the successor of a node should be planned
 * for, which is the number in the node itself.  Returns 0 if the node has no
 * slices.
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

	/* filters in doubt are full, so the fill is meaningless */
	if ((desc->flags & BX_DESC_DOUBT) ||
		!bx_slices_measure(index, level, node, desc, NULL, &measure))
		return desc->keys;
	if (measure.nchildren < BX_FEW_CHILDREN)
		return Max(measure.keys, desc->keys);
	return measure.keys;
}

/* Sets lg_base at the first insert into an index that has no geometry. */
static void
choose_lg_base(Relation index, BxMetaPageData *meta, double keys_per_page)
{
	meta->lg_base = bx_geometry_auto_lg_base(&bx_layout_partitioned, keys_per_page);
	bx_meta_write(index, meta);
}

/* Calls callback() for every partition that has a top-level page, in order. */
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

/*
 * Copies the top-level page of a partition.  Returns false if there is none.
 */
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
 * Changes entries of a top-level page, under its exclusive lock and in one
 * WAL record.  If desc is not NULL, it replaces the descriptor of the child,
 * or of the partition itself if child is BX_CHILD_SELF.  If shadow is not
 * NULL, it replaces the shadow.
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
 * Replaces the descriptor of a node by *desc, which describes the slices of
 * the shadow, and removes the shadow.  Raises an error if the descriptor or
 * the shadow is not what the caller passes in *old and *shadow, that is, if
 * the node has been rebuilt by another backend.
 */
void
bx_dir_swap_shadow(Relation index, uint32 partition, int child,
				   const BxNodeDesc *old, const BxShadow *shadow,
				   const BxNodeDesc *desc)
{
	BxTopPageData top;
	BxShadow	none = {0};

	/*
	 * a shadow, and the descriptor of a node that is not empty, change only
	 * under a self-exclusive lock on the table, which we hold
	 */
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
 * Returns the keys per range that a new segment should be planned for: the
 * number in its predecessor, or if that is not known, keys_per_range, which
 * was estimated from the size of a row, up to MAX_FIRST_SLICES.
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
 * Creates a partition.  The first partition starts without a summary, because
 * a small table does not need one; VACUUM adds it.  Later partitions get a
 * summary immediately, sized like that of the predecessor, so that the newest
 * partition is never without one.
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
 * Creates whatever is missing of the segment for the heap row at tid: the
 * geometry of the index, the partition, the segment.  Call it with no content
 * lock held; it acquires and releases LockPage on the metapage.
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

	/* assume one distinct key per row and column; markers are few */
	keys_per_page = bx_geometry_rows_per_page(heap, tid) *
		IndexRelationGetNumberOfKeyAttributes(index);

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);

	/* another backend may have done this while we waited for the lock */
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
