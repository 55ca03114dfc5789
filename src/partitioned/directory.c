/*-------------------------------------------------------------------------
 *
 * directory.c
 *	  The directory of layout "partitioned": map pages and top-level pages.
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
 * Reads, locks and verifies a map page.  Returns the buffer, pinned and
 * locked in the given mode.
 */
static Buffer
read_map(Relation index, BlockNumber blkno, uint32 number, int lockmode)
{
	Buffer		buffer = ReadBuffer(index, blkno);

	LockBuffer(buffer, lockmode);
	bx_page_check(index, buffer, BX_PAGE_MAP);
	if (BxPageGetOpaque(BufferGetPage(buffer))->number != number)
		bx_page_corrupted(index, blkno, "wrong map page");
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
	BlockNumber blkno = meta->partitioned.map[number];
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);
	Buffer		buffer;

	if (blkno == 0)
		return;
	if (blkno >= index_blocks)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO,
						  "map page beyond the end of the file");
	buffer = read_map(index, blkno, number, BUFFER_LOCK_SHARE);
	memcpy(tops, BxPageGetTops(BufferGetPage(buffer)),
		   sizeof(BlockNumber) * n);
	UnlockReleaseBuffer(buffer);

	/* top-level pages may have been added since the size was read */
	index_blocks = RelationGetNumberOfBlocks(index);
	for (uint32 i = 0; i < n; i++)
	{
		if (tops[i] >= index_blocks)
			bx_page_corrupted(index, blkno, "top-level page beyond the end of the file");
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
	bx_page_check(index, buffer, BX_PAGE_TOP);
	if (BxPageGetOpaque(BufferGetPage(buffer))->number != partition)
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
						  "directory entry references blocks beyond the end of the file");
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
	BlockNumber blkno;

	bx_page_init(image.data, BX_PAGE_MAP);
	BxPageGetOpaque(image.data)->number = number;
	blkno = take_directory_page(index, meta);
	bx_page_write_new(index, blkno, image.data, true);
	meta->partitioned.map[number] = blkno;
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
	Buffer		buffer;
	GenericXLogState *state;
	Page		page;

	if (meta->partitioned.map[number] == 0)
		add_map(index, meta, number);
	buffer = read_map(index, meta->partitioned.map[number], number, BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	BxPageGetTops(page)[partition % BX_PARTITIONS_PER_MAP] = top;
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
	BlockNumber top;

	bx_page_init(image.data, BX_PAGE_TOP);
	BxPageGetOpaque(image.data)->number = partition;
	memcpy(BxPageGetTop(image.data), content, sizeof(*content));
	top = meta ? take_directory_page(index, meta) : bx_page_extend(index, 1);
	bx_page_write_new(index, top, image.data, true);
	return top;
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

		if (meta->partitioned.map[map] == 0)
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
 * WAL record.  If desc is not NULL, it replaces the descriptor of the slot.
 * If shadow is not NULL, it replaces the shadow.
 */
static void
update_top(Relation index, uint32 partition, uint32 slot,
		   const BxNodeDesc *desc, const BxShadow *shadow)
{
	BlockNumber blkno;
	Buffer		buffer;
	GenericXLogState *state;
	BxTopPageData *top;

	bx_dir_tops(index, partition, 1, &blkno);
	if (blkno == 0)
		elog(ERROR, "partition %u of index \"%s\" does not exist", partition,
			 RelationGetRelationName(index));
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_dir_check_top(index, buffer, partition);
	state = GenericXLogStart(index);
	top = BxPageGetTop(GenericXLogRegisterBuffer(state, buffer, 0));
	if (desc)
		top->node[slot] = *desc;
	if (shadow)
		top->shadow = *shadow;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/* Initializes *entry as the entry of a shadow in the top-level page. */
static void
make_shadow_entry(const BxNode *shadow, BxShadow *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->desc = shadow->desc;
	entry->slot = bx_node_slot(shadow);
}

/*
 * Publishes node->desc: as the descriptor of the node, or as its shadow if
 * node->is_shadow.
 */
void
bx_dir_publish_node(Relation index, const BxNode *node)
{
	BxShadow	entry;

	if (node->is_shadow)
	{
		make_shadow_entry(node, &entry);
		update_top(index, bx_node_partition(node), 0, NULL, &entry);
	}
	else
		update_top(index, bx_node_partition(node), bx_node_slot(node),
				   &node->desc, NULL);
}

/* Drops the shadow of a partition, if a failed rebuild has left one. */
void
bx_dir_drop_shadow(Relation index, uint32 partition)
{
	BxTopPageData top;
	BxShadow	none = {0};
	BlockNumber index_blocks = 0;

	if (bx_dir_read_top(index, partition, &top) &&
		top.shadow.desc.state != BX_NODE_EMPTY)
	{
		bx_dir_check_desc(index, BX_METAPAGE_BLKNO, &top.shadow.desc,
						  &index_blocks);
		update_top(index, partition, 0, NULL, &none);
		bx_extents_free(index, &top.shadow.desc);
	}
}

/*
 * Replaces a node by its shadow: desc becomes the descriptor of the node, and
 * the shadow is removed.  *old and *shadow are the node and the shadow as they
 * are in the directory.  desc may differ from shadow->desc in the estimate of
 * keys and the flags.  Raises an error if *old or *shadow is out of date, that
 * is, if another backend has rebuilt the node.
 */
void
bx_dir_swap_shadow(Relation index, const BxNode *old, const BxNode *shadow,
				   const BxNodeDesc *desc)
{
	uint32		slot = bx_node_slot(old);
	BxTopPageData top;
	BxShadow	entry;
	BxShadow	none = {0};

	/*
	 * a shadow, and the descriptor of a node that is not empty, change only
	 * under a self-exclusive lock on the table, which we hold
	 */
	make_shadow_entry(shadow, &entry);
	if (!bx_dir_read_top(index, bx_node_partition(old), &top) ||
		memcmp(&top.shadow, &entry, sizeof(entry)) != 0 ||
		memcmp(&top.node[slot], &old->desc, sizeof(old->desc)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("filters of index \"%s\" have been rebuilt by another session",
						RelationGetRelationName(index))));
	update_top(index, bx_node_partition(old), slot, desc, &none);
}

/*
 * Copies the descriptor of a node again, because "problem" was found at
 * blkno, a page that the descriptor references.  If the descriptor has
 * changed, VACUUM has replaced the slices meanwhile, and the caller reads
 * again with the new descriptor.  If it has not changed, the page is damaged,
 * and an error is raised.  If the descriptor of a shadow has changed, the
 * shadow is gone and node->desc becomes empty: the current shadow may belong
 * to another node.  Call it with no content lock held.
 */
void
bx_dir_refresh(Relation index, BxNode *node, BlockNumber blkno,
			   const char *problem)
{
	uint32		partition = bx_node_partition(node);
	BxTopPageData top;
	BxNodeDesc *current = bx_node_desc(node, &top);
	BlockNumber topblk;
	BlockNumber index_blocks = 0;

	if (!bx_dir_read_top(index, partition, &top) ||
		memcmp(current, &node->desc, sizeof(BxNodeDesc)) == 0)
		bx_page_corrupted(index, blkno, problem);
	if (node->is_shadow)
		memset(current, 0, sizeof(BxNodeDesc));
	node->desc = *current;
	bx_dir_tops(index, partition, 1, &topblk);
	bx_dir_check_desc(index, topblk, &node->desc, &index_blocks);
}
