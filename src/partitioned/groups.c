/*-------------------------------------------------------------------------
 *
 * groups.c
 *	  The third level: a filter for each partition, stored in groups.
 *
 * The partitions of a region are covered by groups.  A group has the filters
 * of "width" consecutive partitions, interleaved (filter/group.h), so that a
 * search reads one page of each group instead of pages of each partition.
 * Inserts set their bits in the pages of the group, whose size determines how
 * many different pages they write; so the groups that inserts create have at
 * most BX_INSERT_WIDTH partitions and BX_INSERT_PAGES pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * The fill of a partition's filter is measured in up to MEASURED_BLOCKS blocks,
 * of which up to BLOCKS_OF_PAGE are on the same page, or more if the group has
 * few pages.
 */
#define MEASURED_BLOCKS		64
#define BLOCKS_OF_PAGE		8

/*
 * A filter may have this fraction of the blocks that it should have, because
 * otherwise its size would double.  At 0.85 its rate is 1.9 times the target.
 * The numbers of keys are estimates with a standard error of 3%: at 0.9, one
 * group in 70 would double although all partitions have equally many keys.
 */
#define LEAST_BLOCKS		0.85

/* Returns the number of pages of a group; 0 if there is none. */
uint32
bx_groups_pages(const BxGroupDesc *group)
{
	return group->width == 0 || group->width > BX_FANOUT ? 0 :
		bx_group_pages(group->nblocks, group->width);
}

/* Returns whether a group has the filter of a partition of its region. */
bool
bx_groups_contain(const BxGroupDesc *group, int child)
{
	return child >= group->first && child < group->first + group->width;
}

/* Sets *columns to the partitions of a region whose filters a group has. */
void
bx_groups_columns(const BxGroupDesc *group, BxMask *columns)
{
	bx_mask_fill(columns, false);
	for (int c = group->first; c < group->first + group->width; c++)
		bx_mask_set(columns, c);
}

/*
 * Returns whether a partition of a region matches every key, whatever its
 * group says.
 */
bool
bx_groups_is_unfiltered(const BxRegionPageData *region, int child)
{
	return (region->unfiltered[child / 8] & (1 << (child % 8))) != 0;
}

/*
 * Returns the group that has the current filter of a partition, or NULL: the
 * last one that contains the partition.
 */
const BxGroupDesc *
bx_groups_find(const BxRegionPageData *region, int child)
{
	for (int i = (int) region->ngroups - 1; i >= 0; i--)
	{
		if (bx_groups_contain(&region->group[i], child))
			return &region->group[i];
	}
	return NULL;
}

/* Returns the group of a region that has the given generation, or NULL. */
const BxGroupDesc *
bx_groups_by_generation(const BxRegionPageData *region, uint32 generation)
{
	for (uint32 i = 0; i < region->ngroups; i++)
	{
		if (region->group[i].generation == generation)
			return &region->group[i];
	}
	return NULL;
}

/*
 * Raises an error if the descriptor of a group, which was read from block
 * blkno, is impossible, or if the group does not contain the given partition
 * of its region; child is -1 if any partitions are possible.  *index_blocks is
 * as in bx_dir_check_desc().
 */
void
bx_groups_check(Relation index, BlockNumber blkno, const BxGroupDesc *group,
				int child, BlockNumber *index_blocks)
{
	uint64		end;

	if (group->width == 0 || (group->width & (group->width - 1)) != 0 ||
		group->width > BX_FANOUT || group->first % group->width != 0 ||
		group->first >= BX_FANOUT || group->start == BX_METAPAGE_BLKNO ||
		group->nblocks == 0 || group->generation == 0 || group->nprobes == 0 ||
		group->nprobes > BX_MAX_PROBES ||
		group->keys > BX_MOST_KEYS(group->nblocks))
		bx_page_corrupted(index, blkno, "impossible group");
	if (child >= 0 && !bx_groups_contain(group, child))
		bx_page_corrupted(index, blkno, "group of other partitions");
	end = (uint64) group->start + bx_groups_pages(group);
	if (end > *index_blocks)
		*index_blocks = RelationGetNumberOfBlocks(index);
	if (end > *index_blocks)
		bx_page_corrupted(index, blkno,
						  "group references blocks beyond the end of the file");
}

/*
 * Decides what "problem" at blkno, a page of a group, means.  If the region
 * page no longer has the group, VACUUM has replaced it meanwhile, and the
 * caller reads again.  If the region page still has the group, the page is
 * damaged, and an error is raised.  Call it with no content lock held.
 */
void
bx_groups_check_gone(Relation index, uint32 region, const BxGroupDesc *group,
					 BlockNumber blkno, const char *problem)
{
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;

	if (!bx_dir_read_region(index, region, &index_blocks, copy) ||
		bx_groups_by_generation(copy, group->generation) != NULL)
		bx_page_corrupted(index, blkno, problem);
	pfree(copy);
}

/*
 * Returns the argument "like" of bx_groups_plan(): the number of blocks of
 * another group of the region, or 0.
 */
uint32
bx_groups_like(const BxRegionPageData *region)
{
	return region->ngroups > 0 ? region->group[0].nblocks : 0;
}

/*
 * Returns the number of blocks for a filter that should have n blocks.
 * "like" is the number of blocks of another group of the region, or 0: the
 * result is like * 2^k, where k may be negative, so that VACUUM can merge the
 * groups.  Without other groups, n is rounded to five binary digits, so that a
 * large number can be halved often.
 */
static uint32
round_blocks(uint32 n, uint32 like)
{
	uint32		blocks = like;

	if (like == 0)
	{
		int			shift = Max(pg_leftmost_one_pos32(n) - 4, 0);

		return ((n + (UINT64CONST(1) << shift) / 2) >> shift) << shift;
	}
	while (blocks % 2 == 0 && blocks / 2 >= n * LEAST_BLOCKS)
		blocks /= 2;
	while (blocks < n * LEAST_BLOCKS && blocks <= PG_UINT32_MAX / 2)
		blocks *= 2;
	return blocks;
}

/*
 * Initializes the descriptor of a group for the given number of keys per
 * partition; see round_blocks() for "like".  The caller sets start and
 * generation.
 */
void
bx_groups_plan(double keys, uint32 like, int width, int first,
			   BxGroupDesc *group)
{
	BxPlan		plan = bx_filter_plan(keys, BX_GROUP_RATE, BX_SLICE_ROWS);

	memset(group, 0, sizeof(*group));
	group->nblocks = round_blocks(plan.nslices, like);
	group->nprobes = BX_GROUP_PROBES;
	group->keys = (uint32) Min(ceil(keys), (double) PG_UINT32_MAX);
	group->width = width;
	group->first = first;
}

/* Initializes a page of a group, without bits. */
void
bx_groups_init_page(Page page, uint32 region, const BxGroupDesc *group,
					uint32 number)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	bx_page_init(page, BX_PAGE_GROUP);
	opaque->number = region;
	opaque->group.page = number;
	opaque->group.nblocks = group->nblocks;
	opaque->group.generation = group->generation;
	opaque->group.nprobes = group->nprobes;
	opaque->group.width = group->width;
	opaque->group.first = group->first;
}

/*
 * Returns whether the page is the given page of the group.  If so, its bits
 * can be read safely.  The caller holds a lock on the page, or otherwise
 * ensures that the group is not replaced meanwhile.
 */
bool
bx_groups_is_page(Page page, uint32 region, const BxGroupDesc *group,
				  uint32 number)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	return opaque->page_id == BX_PAGE_ID &&
		opaque->kind == BX_PAGE_GROUP &&
		opaque->number == region &&
		opaque->group.page == number &&
		opaque->group.nblocks == group->nblocks &&
		opaque->group.generation == group->generation &&
		opaque->group.nprobes == group->nprobes &&
		opaque->group.width == group->width &&
		opaque->group.first == group->first;
}

/*
 * Reads a page of a group, and locks it in share mode.  Returns the buffer,
 * and sets *problem to a description of what is wrong with the page, or to
 * NULL.
 */
Buffer
bx_groups_read(Relation index, uint32 region, const BxGroupDesc *group,
			   uint32 number, BufferAccessStrategy strategy,
			   const char **problem)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM,
											group->start + number, RBM_NORMAL,
											strategy);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*problem = bx_page_problem(page, BX_PAGE_GROUP);
	if (*problem == NULL && !bx_groups_is_page(page, region, group, number))
		*problem = BX_WRONG_PAGE;
	return buffer;
}

/*
 * ORs a part of the filter of a partition, which is in memory as lines, into
 * the group: the blocks of pages first_page .. first_page + npages - 1.  The
 * pages are logged if wal is true.  A build passes false, and logs the pages
 * later; its pages may be new, that is, all zero.
 */
void
bx_groups_write(Relation index, uint32 region, const BxGroupDesc *group,
				int column, uint32 first_page, uint32 npages,
				const uint8 *lines, bool wal)
{
	uint32		per_page = bx_group_page_blocks(group->width);

	for (uint32 i = 0; i < npages; i++)
	{
		uint32		number = first_page + i;
		BlockNumber blkno = group->start + number;
		Buffer		buffer;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBuffer(index, blkno);
		page = BufferGetPage(buffer);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (wal || !PageIsNew(page))
		{
			bx_page_check(index, buffer, BX_PAGE_GROUP);
			if (!bx_groups_is_page(page, region, group, number))
				bx_page_corrupted(index, blkno, BX_WRONG_PAGE);
		}
		START_CRIT_SECTION();
		if (PageIsNew(page))
			bx_groups_init_page(page, region, group, number);
		bx_group_put_column(lines + (Size) i * per_page *
							BX_LINE_BYTES(BX_SLICE_ROWS),
							Min(per_page, group->nblocks - number * per_page),
							BX_SLICE_ROWS, group->width, column,
							BxPageGetContent(page));
		((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
		bx_page_changed(index, buffer, wal);
		END_CRIT_SECTION();
		UnlockReleaseBuffer(buffer);
	}
}

/* ORs "content" into a page of a group, and logs the page. */
void
bx_groups_merge_page(Relation index, uint32 region, const BxGroupDesc *group,
					 uint32 number, const char *content,
					 BufferAccessStrategy strategy)
{
	BlockNumber blkno = group->start + number;
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno,
											RBM_NORMAL, strategy);
	Page		page = BufferGetPage(buffer);
	char	   *target = BxPageGetContent(page);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_check(index, buffer, BX_PAGE_GROUP);
	if (!bx_groups_is_page(page, region, group, number))
		bx_page_corrupted(index, blkno, BX_WRONG_PAGE);
	START_CRIT_SECTION();
	for (int i = 0; i < BX_SLICE_SIZE; i++)
		target[i] |= content[i];
	((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
	bx_page_changed(index, buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/*
 * Estimates the keys and the false-positive rate of a partition's filter from
 * its fill in a sample of its blocks.  Returns false if a page is not
 * that of the group: either the descriptor is out of date or the index is
 * damaged.
 */
bool
bx_groups_measure(Relation index, uint32 region, const BxGroupDesc *group,
				  int column, BufferAccessStrategy strategy,
				  BxGroupMeasure *measure)
{
	uint32		per_page = bx_group_page_blocks(group->width);
	uint32		most = Min(per_page, BLOCKS_OF_PAGE);
	uint32		npages = Min(bx_groups_pages(group), MEASURED_BLOCKS / most);
	uint32		nblocks = 0;
	uint64		seed = bx_sample_seed(group->generation);

	most = Min(per_page, MEASURED_BLOCKS / npages);
	memset(measure, 0, sizeof(*measure));
	for (uint32 i = 0; i < npages; i++)
	{
		uint32		number = bx_sample_number(seed, i, npages,
											  bx_groups_pages(group));
		uint32		blocks = Min(per_page, group->nblocks - number * per_page);
		uint32		n = Min(blocks, most);
		const char *problem;
		Buffer		buffer = bx_groups_read(index, region, group, number,
											strategy, &problem);

		for (uint32 b = 0; problem == NULL && b < n; b++)
		{
			uint32		block = bx_sample_number(seed + i, b, n, blocks);
			int			bits = bx_group_count(BxPageGetContent(BufferGetPage(buffer)),
											  BX_SLICE_ROWS, group->width,
											  block, column);

			measure->keys += bx_filter_fill_keys(bits, BX_SLICE_ROWS,
												 group->nprobes);
			measure->rate += bx_filter_fill_rate(bits, BX_SLICE_ROWS,
												 group->nprobes);
		}
		nblocks += n;
		UnlockReleaseBuffer(buffer);
		if (problem != NULL)
			return false;
	}
	measure->keys = measure->keys / nblocks * group->nblocks;
	measure->rate /= nblocks;
	return true;
}
