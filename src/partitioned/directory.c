/*-------------------------------------------------------------------------
 *
 * directory.c
 *	  The directory of layout "partitioned": map pages, region pages and
 *	  top-level pages.
 *
 * Pages are allocated and published under LockPage(index, metapage,
 * ExclusiveLock), which is acquired with no content lock held.  Publishing is
 * the last step, so that every page that a directory entry references is
 * complete.  An error or crash before that leaves pages that no directory
 * entry references.
 *
 * Region pages and top-level pages never move as long as the index has the
 * same file, so their block numbers may be cached.  Descriptors must not be
 * cached without comparing them again.
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
 * Reads, locks and verifies a map page or a region page.  Returns the buffer,
 * pinned and locked in the given mode.
 */
static Buffer
read_page(Relation index, BlockNumber blkno, uint8 kind, uint32 number,
		  int lockmode)
{
	Buffer		buffer = ReadBuffer(index, blkno);

	LockBuffer(buffer, lockmode);
	bx_page_check(index, buffer, kind);
	if (BxPageGetOpaque(BufferGetPage(buffer))->number != number)
		bx_page_corrupted(index, blkno, kind == BX_PAGE_MAP ?
						  "wrong map page" : "wrong region page");
	return buffer;
}

/*
 * Copies the block numbers of the region pages of a map page.  Returns false
 * if the map page does not exist.
 */
static bool
read_map(Relation index, const BxMetaPageData *meta, uint32 map,
		 BlockNumber *regions)
{
	BlockNumber blkno = meta->partitioned.map[map];
	BlockNumber index_blocks = RelationGetNumberOfBlocks(index);
	Buffer		buffer;

	if (blkno == 0)
		return false;
	if (blkno >= index_blocks)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO,
						  "map page beyond the end of the file");
	buffer = read_page(index, blkno, BX_PAGE_MAP, map, BUFFER_LOCK_SHARE);
	memcpy(regions, BxPageGetRegions(BufferGetPage(buffer)),
		   sizeof(BlockNumber) * BX_REGIONS_PER_MAP);
	UnlockReleaseBuffer(buffer);

	/* region pages may have been added since the size was read */
	index_blocks = RelationGetNumberOfBlocks(index);
	for (int i = 0; i < BX_REGIONS_PER_MAP; i++)
	{
		if (regions[i] >= index_blocks)
			bx_page_corrupted(index, blkno,
							  "region page beyond the end of the file");
	}
	return true;
}

/*
 * Copies a region page, and verifies the copy.  The descriptors of groups
 * beyond region->ngroups are not copied.  *index_blocks is as in
 * bx_dir_check_desc().
 */
static void
copy_region(Relation index, BlockNumber blkno, uint32 number,
			BlockNumber *index_blocks, BxRegionPageData *region)
{
	Buffer		buffer = read_page(index, blkno, BX_PAGE_REGION, number,
								   BUFFER_LOCK_SHARE);
	const BxRegionPageData *page = BxPageGetRegion(BufferGetPage(buffer));
	bool		fits = page->ngroups <= BX_MAX_GROUPS;

	memcpy(region, page, offsetof(BxRegionPageData, group) +
		   sizeof(BxGroupDesc) * (fits ? page->ngroups : 0));
	UnlockReleaseBuffer(buffer);
	if (!fits)
		bx_page_corrupted(index, blkno, "too many groups");
	for (uint32 i = 0; i < region->ngroups; i++)
		bx_groups_check(index, blkno, &region->group[i], -1, index_blocks);
}

/*
 * The layout's contents of rd_amcache: the block numbers of existing region
 * pages and top-level pages (0 if not known to exist).  Nothing that may
 * change is cached, except for a size that is used only for sanity checks.
 */
typedef struct TopCache
{
	BxGeometry	geometry;
	BlockNumber index_blocks;	/* see bx_dir_known_blocks */
	uint32		nregions;
	BlockNumber block[FLEXIBLE_ARRAY_MEMBER];	/* nregions region pages, then
												 * nregions * BX_FANOUT
												 * top-level pages */
} TopCache;

static TopCache *
get_cache(Relation index)
{
	BxGeometry *geometry = index->rd_amcache;

	return geometry != NULL && geometry->has_more ? (TopCache *) geometry : NULL;
}

/*
 * Fills the cache with the block numbers of the first nregions region pages,
 * and of their top-level pages.  Does nothing if the index has no geometry
 * yet.
 */
static void
load_cache(Relation index, uint32 nregions)
{
	BxMetaPageData meta;
	TopCache   *cache;
	BlockNumber *regions;
	BxRegionPageData *region;
	Size		size = offsetof(TopCache, block) +
	sizeof(BlockNumber) * nregions * (1 + BX_FANOUT);

	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		return;
	regions = palloc(sizeof(BlockNumber) * BX_REGIONS_PER_MAP);
	region = palloc(sizeof(BxRegionPageData));

	/* build it here: a failure must not leave an incomplete cache entry */
	cache = palloc0(size);
	bx_geometry_of(&meta, &cache->geometry);
	cache->geometry.has_more = true;
	cache->nregions = nregions;
	for (uint32 r = 0; r < nregions; r++)
	{
		uint32		i = r % BX_REGIONS_PER_MAP;
		BlockNumber *tops = cache->block + nregions + r * BX_FANOUT;

		if (i == 0 && !read_map(index, &meta, r / BX_REGIONS_PER_MAP, regions))
			memset(regions, 0, sizeof(BlockNumber) * BX_REGIONS_PER_MAP);
		if (regions[i] == 0)
			continue;
		copy_region(index, regions[i], r, &cache->index_blocks, region);
		cache->block[r] = regions[i];
		memcpy(tops, region->top, sizeof(region->top));

		/* top-level pages may have been added since the size was read */
		for (int t = 0; t < BX_FANOUT; t++)
		{
			if (tops[t] >= cache->index_blocks)
				cache->index_blocks = RelationGetNumberOfBlocks(index);
			if (tops[t] >= cache->index_blocks)
				bx_page_corrupted(index, regions[i],
								  "top-level page beyond the end of the file");
		}
	}

	bx_geometry_remember(index, &cache->geometry, size);
	pfree(cache);
	pfree(region);
	pfree(regions);
}

/* Returns the block number of a region page, or 0 if it does not exist. */
BlockNumber
bx_dir_region(Relation index, uint32 region)
{
	TopCache   *cache = get_cache(index);

	if (cache == NULL || region >= cache->nregions ||
		cache->block[region] == 0)
	{
		load_cache(index, Max(region + 1, cache ? cache->nregions : 0));
		cache = get_cache(index);
	}
	return cache != NULL ? cache->block[region] : 0;
}

/*
 * Copies a region page, and verifies the copy.  Returns false if the region
 * page does not exist.  *index_blocks is as in bx_dir_check_desc().
 */
bool
bx_dir_read_region(Relation index, uint32 number, BlockNumber *index_blocks,
				   BxRegionPageData *region)
{
	BlockNumber blkno = bx_dir_region(index, number);

	if (blkno != 0)
		copy_region(index, blkno, number, index_blocks, region);
	return blkno != 0;
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
 * the cache does not know are looked up in the region pages every time.
 */
void
bx_dir_tops(Relation index, uint32 first, uint32 n, BlockNumber *tops)
{
	uint32		nregions = (first + n - 1) / BX_FANOUT + 1;

	for (int attempt = 0; attempt < 2; attempt++)
	{
		TopCache   *cache = get_cache(index);
		bool		complete = true;

		for (uint32 i = 0; i < n; i++)
		{
			tops[i] = 0;
			if (cache != NULL && (first + i) / BX_FANOUT < cache->nregions)
				tops[i] = cache->block[cache->nregions + first + i];
			if (tops[i] == 0)
				complete = false;
		}
		if (complete || attempt > 0)
			return;
		load_cache(index, Max(nregions, cache ? cache->nregions : 0));
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
		desc->nprobes > BX_MAX_PROBES ||
		desc->keys > BX_MOST_KEYS(desc->nslices))
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

/* Creates a region page without partitions, and enters it in its map page. */
static void
add_region(Relation index, BxMetaPageData *meta, uint32 number)
{
	uint32		map = number / BX_REGIONS_PER_MAP;
	PGAlignedBlock image;
	BlockNumber blkno;
	Buffer		buffer;
	GenericXLogState *state;
	Page		page;

	if (meta->partitioned.map[map] == 0)
		add_map(index, meta, map);
	bx_page_init(image.data, BX_PAGE_REGION);
	BxPageGetOpaque(image.data)->number = number;
	memset(BxPageGetRegion(image.data)->unfiltered, 0xFF, BX_FANOUT / 8);
	blkno = take_directory_page(index, meta);
	bx_page_write_new(index, blkno, image.data, true);

	buffer = read_page(index, meta->partitioned.map[map], BX_PAGE_MAP, map,
					   BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	BxPageGetRegions(page)[number % BX_REGIONS_PER_MAP] = blkno;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/* Removes the group with the given generation, if there is one. */
static void
remove_group(BxRegionPageData *region, uint32 generation)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < region->ngroups; i++)
	{
		if (region->group[i].generation != generation)
			region->group[kept++] = region->group[i];
	}
	memset(&region->group[kept], 0, sizeof(BxGroupDesc) *
		   (region->ngroups - kept));
	region->ngroups = kept;
}

/*
 * Changes the region page of a partition, under its exclusive lock and in one
 * WAL record; see BxRegionChange.  The region page must exist.  The caller
 * holds LockPage on the metapage, or is the leader of a build: so no two
 * backends create a group for the same partition.
 */
void
bx_dir_update_region(Relation index, uint32 partition,
					 const BxRegionChange *change)
{
	uint32		number = partition / BX_FANOUT;
	int			child = partition % BX_FANOUT;
	uint8		bit = 1 << (child % 8);
	Buffer		buffer = read_page(index, bx_dir_region(index, number),
								   BX_PAGE_REGION, number,
								   BUFFER_LOCK_EXCLUSIVE);
	GenericXLogState *state = GenericXLogStart(index);
	BxRegionPageData *region;

	region = BxPageGetRegion(GenericXLogRegisterBuffer(state, buffer, 0));
	if (region->ngroups > BX_MAX_GROUPS)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer),
						  "too many groups");
	if (change->removed != 0)
		remove_group(region, change->removed);
	if (change->group != NULL && region->ngroups == BX_MAX_GROUPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" has too many groups of filters",
						RelationGetRelationName(index)),
				 errhint("REINDEX the index.")));
	if (change->top != 0)
		region->top[child] = change->top;
	if (change->group != NULL)
		region->group[region->ngroups++] = *change->group;
	if (change->is_filtered)
		region->unfiltered[child / 8] &= ~bit;
	if (change->is_unfiltered)
		region->unfiltered[child / 8] |= bit;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/*
 * Enters a new partition in its region page: change->top is its top-level
 * page.  *meta is the current content of the metapage; it is changed and
 * written if a page has to be added.  The caller holds LockPage on the
 * metapage, or is the leader of a build.
 */
void
bx_dir_publish_top(Relation index, BxMetaPageData *meta, uint32 partition,
				   const BxRegionChange *change)
{
	if (bx_dir_region(index, partition / BX_FANOUT) == 0)
		add_region(index, meta, partition / BX_FANOUT);
	bx_dir_update_region(index, partition, change);
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

/*
 * Calls callback() for every region page, in order, with a verified copy of
 * the page.
 */
void
bx_dir_each_region(Relation index, const BxMetaPageData *meta,
				   BxRegionCallback callback, void *arg)
{
	BlockNumber *regions = palloc(sizeof(BlockNumber) * BX_REGIONS_PER_MAP);
	BxRegionPageData *region = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;

	for (uint32 map = 0; map < BX_MAX_MAPS; map++)
	{
		if (!read_map(index, meta, map, regions))
			continue;
		for (uint32 i = 0; i < BX_REGIONS_PER_MAP; i++)
		{
			uint32		number = map * BX_REGIONS_PER_MAP + i;

			if (regions[i] == 0)
				continue;
			copy_region(index, regions[i], number, &index_blocks, region);
			callback(arg, number, regions[i], region);
		}
	}
	pfree(region);
	pfree(regions);
}

typedef struct EachTop
{
	BxTopCallback callback;
	void	   *arg;
} EachTop;

static void
each_top_of_region(void *arg, uint32 number, BlockNumber blkno,
				   const BxRegionPageData *region)
{
	EachTop    *each = arg;

	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (region->top[i] != 0)
			each->callback(each->arg, number * BX_FANOUT + i, region->top[i]);
	}
}

/* Calls callback() for every partition that has a top-level page, in order. */
void
bx_dir_each_top(Relation index, const BxMetaPageData *meta,
				BxTopCallback callback, void *arg)
{
	EachTop		each = {callback, arg};

	bx_dir_each_region(index, meta, each_top_of_region, &each);
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
 * Reads and locks the top-level page of a partition for a change.  Returns
 * the buffer, locked in exclusive mode, and in *state and *top the WAL record
 * to be finished and the page to be changed.
 */
static Buffer
start_top_change(Relation index, uint32 partition, GenericXLogState **state,
				 BxTopPageData **top)
{
	BlockNumber blkno;
	Buffer		buffer;

	bx_dir_tops(index, partition, 1, &blkno);
	if (blkno == 0)
		elog(ERROR, "partition %u of index \"%s\" does not exist", partition,
			 RelationGetRelationName(index));
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_dir_check_top(index, buffer, partition);
	*state = GenericXLogStart(index);
	*top = BxPageGetTop(GenericXLogRegisterBuffer(*state, buffer, 0));
	return buffer;
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
	GenericXLogState *state;
	BxTopPageData *top;
	Buffer		buffer = start_top_change(index, partition, &state, &top);

	if (desc)
		top->node[slot] = *desc;
	if (shadow)
		top->shadow = *shadow;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/*
 * Sets the group, if it is not NULL, and the shadow of the group in the
 * top-level page of a partition, under its exclusive lock and in one WAL
 * record.
 */
void
bx_dir_set_group(Relation index, uint32 partition, const BxGroupDesc *group,
				 const BxGroupDesc *shadow)
{
	GenericXLogState *state;
	BxTopPageData *top;
	Buffer		buffer = start_top_change(index, partition, &state, &top);

	if (group)
		top->group = *group;
	top->group_shadow = *shadow;
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
		bx_extents_free(index, top.shadow.desc.start, top.shadow.desc.nslices);
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
