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

#include "partitioned.h"

/*
 * A segment that has no predecessor is sized from a single row.  It gets no
 * more slices than about this, even if the row promises more: should that come
 * true, its successors know better, and VACUUM rebuilds it.
 */
#define MAX_FIRST_SLICES		16

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
 * What is remembered of an index: the blocks of the top-level pages that exist
 * (0: none known).  Nothing that may change.
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
 * Fills the cache with the blocks of the first npartitions top-level pages.
 * Leaves it alone if the index has no key yet.
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

	/* the relation's own memory is for what is complete */
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
 * A size that the index has had, without asking the system; 0 if it is not
 * known.  VACUUM may have truncated the index since, and nobody tells.  That
 * does no harm: a descriptor that is read with a lock on the index names pages
 * that are there, whatever this says.  It only serves to find out one that is
 * damaged; and if it is too large for that, reading the page fails.
 */
BlockNumber
bx_dir_known_blocks(Relation index)
{
	TopCache   *cache = get_cache(index);

	return cache ? cache->index_blocks : 0;
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
	desc->start = bx_extents_take(index, meta, desc->nslices);
	bx_meta_write(index, meta);
	for (uint32 i = 0; i < desc->nslices; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_slices_init_page(image.data, level, node, i, desc);
		bx_page_write_new(index, desc->start + i, image.data, true);
	}
}

/* Makes the slices of a node for so many keys per child; see make_slices. */
void
bx_dir_alloc_slices(Relation index, BxMetaPageData *meta, int level,
					uint32 node, double keys, double rate, BxNodeDesc *desc)
{
	bx_slices_plan(keys, rate, 0, desc);
	make_slices(index, meta, level, node, desc);
}

/*
 * Makes slices like those that *old describes, in free pages before block "end";
 * see make_slices.  Returns false, with nothing done, if there is no room.
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
 * Takes a page for the directory, and writes *meta, which it is taken from.
 * Such a page never moves, so it should not be at the end, where it would keep
 * VACUUM from truncating the file.
 */
static BlockNumber
take_directory_page(Relation index, BxMetaPageData *meta)
{
	BlockNumber blkno = bx_extents_take(index, meta, 1);

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
		!bx_slices_measure(index, level, node, desc, NULL, &measure))
		return desc->keys;
	if (measure.nchildren < BX_FEW_CHILDREN)
		return Max(measure.keys, desc->keys);
	return measure.keys;
}

/* Sets lg_base at the first key of an index that was made on an empty table. */
static void
choose_lg_base(Relation index, BxMetaPageData *meta, double keys_per_page)
{
	meta->lg_base = bx_geometry_auto_lg_base(&bx_layout_partitioned, keys_per_page);
	bx_meta_write(index, meta);
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
	keys_per_page = bx_geometry_rows_per_page(heap, tid) *
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
