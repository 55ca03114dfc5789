/*-------------------------------------------------------------------------
 *
 * create.c
 *	  Creating nodes and groups without bits: the partition and the segment
 *	  that an insert needs, and shadows.
 *
 * Pages are allocated and published under LockPage on the metapage; see
 * directory.c.  The exception is bx_create_group().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * A segment without a predecessor is sized from a single row.  It gets at
 * most about this many slices, even if the row suggests more; later segments
 * are sized from measurements, and VACUUM rebuilds this one if necessary.
 */
#define MAX_FIRST_SLICES		16

/* The same if a column extracts, so that a single row has many keys. */
#define MAX_FIRST_SLICES_EXTRACTED	128

/*
 * Allocates and writes the slices that node->desc describes, without bits, and
 * sets a new start and generation in node->desc.  No other backend uses the
 * slices until the caller publishes the descriptor.  The caller holds LockPage
 * on the metapage, and *meta is its content, which is changed and written.
 */
static void
make_slices(Relation index, BxMetaPageData *meta, BxNode *node)
{
	PGAlignedBlock image;

	node->desc.generation = meta->partitioned.next_generation++;
	node->desc.start = bx_extents_take(index, meta, node->desc.nslices);
	bx_meta_write(index, meta);
	for (uint32 i = 0; i < node->desc.nslices; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_slices_init_page(image.data, node, i);
		bx_page_write_new(index, node->desc.start + i, image.data, true);
	}
}

/*
 * Makes the slices of a node for the given number of keys per child, but not
 * for more than a child can have; see make_slices.
 */
static void
plan_and_make_slices(Relation index, BxMetaPageData *meta, double keys,
					 BxNode *node)
{
	keys = Min(keys, bx_node_most_keys(index, meta, node->level));
	bx_slices_plan(keys, bx_node_rate(node->level, node->number, meta), 0,
				   &node->desc);
	make_slices(index, meta, node);
}

/*
 * Creates and publishes a shadow of a node, planned for the given number of
 * keys per child, and sets *shadow.  Call it with no content lock held; it
 * acquires and releases LockPage on the metapage.
 */
void
bx_create_shadow(Relation index, const BxNode *node, double keys,
				 BxNode *shadow)
{
	BxMetaPageData meta;

	*shadow = *node;
	shadow->is_shadow = true;
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	plan_and_make_slices(index, &meta, keys, shadow);
	bx_dir_publish_node(index, shadow);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/*
 * As bx_create_shadow(), but the shadow has the same number of slices, probes
 * and flags as the node, and is in free pages before block "end".  Returns
 * false, with nothing changed, if there is no sufficient free extent before
 * "end".
 */
bool
bx_create_copy(Relation index, const BxNode *node, BlockNumber end,
			   BxNode *shadow)
{
	BxMetaPageData meta;
	BxFreeExtent *extent;
	bool		found;

	*shadow = *node;
	shadow->is_shadow = true;
	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	extent = bx_extents_find(index, &meta, node->desc.nslices);
	found = extent != NULL &&
		(uint64) extent->start + node->desc.nslices <= end;
	if (found)
	{
		make_slices(index, &meta, shadow);
		bx_dir_publish_node(index, shadow);
	}
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	return found;
}

/*
 * Allocates the pages of a group, and sets its start and a new generation; see
 * make_slices.
 */
static void
take_group(Relation index, BxMetaPageData *meta, BxGroupDesc *group)
{
	BlockNumber start;

	group->generation = meta->partitioned.next_generation++;
	start = bx_extents_take(index, meta, bx_groups_pages(group));
	bx_meta_write(index, meta);

	/*
	 * If writing the metapage fails, the pages are still in its list of free
	 * extents, and bx_regroup_abandon() must not add them again.
	 */
	group->start = start;
}

/* Writes the pages of a new group, without bits. */
static void
write_empty_group(Relation index, uint32 region, const BxGroupDesc *group)
{
	PGAlignedBlock image;
	uint32		npages = bx_groups_pages(group);

	for (uint32 i = 0; i < npages; i++)
	{
		bx_vacuum_delay_point();
		bx_groups_init_page(image.data, region, group, i);
		bx_page_write_new(index, group->start + i, image.data, true);
	}
}

/*
 * Allocates and writes the pages of a group, without bits, and sets its start
 * and generation.  Only a repair calls this.  The lock on the table prevents
 * another repair, and only VACUUM searches for pages that are allocated and
 * not named.  Therefore LockPage on the metapage is held for the allocation
 * only, and the pages, which can be thousands, are written without it.
 */
void
bx_create_group(Relation index, uint32 region, BxGroupDesc *group)
{
	BxMetaPageData meta;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	take_group(index, &meta, group);
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	write_empty_group(index, region, group);
}

/*
 * Returns the keys per child that a new node should be planned for: the
 * number in the node before it on its level.  Returns 0 if there is no such
 * node, or if it has no slices.
 */
static double
keys_of_predecessor(Relation index, const BxNode *node)
{
	BxNode		previous = *node;
	BxTopPageData top;
	BlockNumber index_blocks = 0;
	BxMeasure	measure;

	if (node->number == 0)
		return 0;
	previous.number--;
	if (!bx_dir_read_top(index, bx_node_partition(&previous), &top))
		return 0;
	previous.desc = *bx_node_desc(&previous, &top);
	if (previous.desc.state != BX_NODE_PRESENT)
		return 0;
	bx_dir_check_desc(index, BX_METAPAGE_BLKNO, &previous.desc, &index_blocks);

	/* filters in doubt are full, so the fill is meaningless */
	if ((previous.desc.flags & BX_DESC_DOUBT) ||
		!bx_slices_measure_for_size(index, &previous, &measure))
		return previous.desc.keys;
	if (measure.nchildren < BX_FEW_CHILDREN)
		return Max(measure.keys, previous.desc.keys);
	return measure.keys;
}

/*
 * Returns the keys that the filter of the partition before a new one has, or
 * an estimate.
 */
static double
keys_of_partition_before(Relation index, uint32 partition,
						 double keys_per_range)
{
	uint32		previous = partition - 1;
	BxNode		summary;
	BxTopPageData top;
	BxGroupMeasure of_group;
	BxMeasure	of_summary;
	BlockNumber index_blocks = 0;

	if (!bx_dir_read_top(index, previous, &top))
		return keys_per_range * BX_RANGES_PER_PARTITION;
	if (top.group.width > 0)
	{
		bx_groups_check(index, BX_METAPAGE_BLKNO, &top.group,
						previous % BX_FANOUT, &index_blocks);
		if (bx_groups_measure(index, previous / BX_FANOUT, &top.group,
							  previous % BX_FANOUT - top.group.first, NULL,
							  &of_group))
			return Max(of_group.keys, 1);
	}

	/* the sum over the segments is an upper bound */
	bx_node_of_slot(previous, BX_SLOT_SUMMARY, &top, &summary);
	bx_dir_check_desc(index, BX_METAPAGE_BLKNO, &summary.desc, &index_blocks);
	if (summary.desc.state == BX_NODE_PRESENT &&
		!(summary.desc.flags & BX_DESC_DOUBT) &&
		bx_slices_measure_for_size(index, &summary, &of_summary))
		return Max(of_summary.all_keys, 1);
	return keys_per_range * BX_RANGES_PER_PARTITION;
}

/*
 * Returns the keys that the filter of a new partition should be planned for:
 * those of the partition before it, but not more than a partition can have.
 */
static double
keys_of_new_partition(Relation index, const BxMetaPageData *meta,
					  uint32 partition, double keys_per_range)
{
	double		keys = keys_of_partition_before(index, partition,
												keys_per_range);

	return Min(keys, bx_partition_most_keys(index, meta));
}

/*
 * Plans a new group that contains the given partition: of up to
 * BX_INSERT_WIDTH partitions and BX_INSERT_PAGES pages, but of at most half
 * as many partitions as there are before it, so that the space for partitions
 * that do not exist yet is bounded, and of no other partition that exists or
 * that another group contains.  Returns false if no group is small enough.
 */
static bool
plan_group(const BxRegionPageData *region, uint32 partition, double keys,
		   BxGroupDesc *group)
{
	int			child = partition % BX_FANOUT;

	for (int width = BX_INSERT_WIDTH; width > 0; width /= 2)
	{
		int			first = child - child % width;
		bool		fits = width == 1 || width <= partition / 2;

		for (int c = first; fits && c < first + width; c++)
			fits = bx_groups_find(region, c) == NULL &&
				(c == child || region->top[c] == 0);
		bx_groups_plan(keys, bx_groups_like(region), width, first, group);
		if (fits && bx_groups_pages(group) <= BX_INSERT_PAGES)
			return true;
	}
	return false;
}

/*
 * Sets *group to the group of a new partition; creates the group if no
 * existing one contains the partition.  Returns false if the partition gets
 * no filter.  *change describes what to change in the region page.
 */
static bool
provide_group(Relation index, BxMetaPageData *meta, uint32 partition,
			  double keys_per_range, BxGroupDesc *group,
			  BxRegionChange *change)
{
	uint32		number = partition / BX_FANOUT;
	BxRegionPageData *region;
	const BxGroupDesc *found;
	BlockNumber index_blocks = 0;

	/* a table of one partition needs no filter of it */
	if (partition == 0)
		return false;
	region = palloc0(sizeof(BxRegionPageData));
	(void) bx_dir_read_region(index, number, &index_blocks, region);
	found = bx_groups_find(region, partition % BX_FANOUT);
	if (found != NULL)
		*group = *found;
	else if (region->ngroups < BX_MAX_GROUPS &&
			 plan_group(region, partition,
						keys_of_new_partition(index, meta, partition,
											  keys_per_range), group))
	{
		take_group(index, meta, group);
		write_empty_group(index, number, group);
		BX_PAUSE(BX_PAUSE_GROUP_MADE);
		change->group = group;
	}
	else
		group->width = 0;
	change->is_filtered = group->width > 0;
	pfree(region);
	return change->is_filtered;
}

/*
 * Creates a partition.  The first partition starts without a summary and
 * without a filter in a group, because a small table needs neither; see
 * bx_rebuild_after_create().  Later partitions get a summary and a filter when
 * they are created, with the sizes of those of the previous partition.
 */
static void
make_partition(Relation index, BxMetaPageData *meta, uint32 partition,
			   double keys_per_range)
{
	BxNode		node = {.level = BX_LEVEL_PARTITION,.number = partition};
	BxTopPageData content;
	BxGroupDesc group;
	BxRegionChange change = {0};

	memset(&content, 0, sizeof(content));
	node.desc.state = BX_NODE_UNKNOWN;
	if (partition > 0)
	{
		double		keys = keys_of_predecessor(index, &node);

		plan_and_make_slices(index, meta,
							 keys > 0 ? keys : keys_per_range * BX_FANOUT,
							 &node);
	}
	content.node[BX_SLOT_SUMMARY] = node.desc;
	if (provide_group(index, meta, partition, keys_per_range, &group, &change))
		content.group = group;
	change.top = bx_dir_make_top(index, meta, partition, &content);
	bx_dir_publish_top(index, meta, partition, &change);
}

/* Sets lg_base at the first insert into an index that has no geometry. */
static void
set_first_lg_base(Relation index, BxMetaPageData *meta, double keys_per_page)
{
	meta->lg_base = bx_geometry_auto_lg_base(&bx_layout_partitioned, keys_per_page);
	bx_meta_write(index, meta);
}

/*
 * Creates whatever is missing of the segment for the heap row at tid: the
 * geometry of the index, the partition, the segment.  Call it with no content
 * lock held; it acquires and releases LockPage on the metapage.
 */
void
bx_create_segment(Relation index, Relation heap, ItemPointer tid,
				  double keys_per_row)
{
	BxMetaPageData meta;
	BxTopPageData top;
	BxNode		node = {.level = BX_LEVEL_SEGMENT};
	int			natts = IndexRelationGetNumberOfKeyAttributes(index);
	double		keys_per_page;
	double		keys;
	uint32		partition;

	/* assume that the keys of all rows are distinct; markers are few */
	keys_per_page = bx_geometry_rows_per_page(heap, tid) * keys_per_row;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);

	/* another backend may have done this while we waited for the lock */
	bx_meta_read(index, &meta);
	if (meta.lg_base == BX_LG_BASE_UNSET)
		set_first_lg_base(index, &meta, keys_per_page);
	node.number = bx_level_node(BX_LEVEL_SEGMENT,
								ItemPointerGetBlockNumber(tid) >> meta.lg_base);
	partition = bx_node_partition(&node);
	keys = keys_of_predecessor(index, &node);
	if (keys == 0)
		keys = Min(keys_per_page * (1 << meta.lg_base),
				   bx_filter_capacity(meta.false_positive_rate, BX_SLICE_ROWS) *
				   (keys_per_row > bx_hash_keys_per_row(natts, meta.keys) ?
					MAX_FIRST_SLICES_EXTRACTED : MAX_FIRST_SLICES));
	if (!bx_dir_read_top(index, partition, &top))
	{
		make_partition(index, &meta, partition, keys);
		memset(&top, 0, sizeof(top));
	}
	if (bx_node_desc(&node, &top)->state == BX_NODE_EMPTY)
	{
		plan_and_make_slices(index, &meta, keys, &node);
		BX_PAUSE(BX_PAUSE_ALLOCATED);
		bx_dir_publish_node(index, &node);
	}

	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}
