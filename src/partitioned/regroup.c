/*-------------------------------------------------------------------------
 *
 * regroup.c
 *	  Replacing the filters of partitions by a new group, while other
 *	  backends insert and search.
 *
 * refilter.c replaces one filter by a group of width 1, and merge.c replaces
 * several groups by one.  The steps are:
 *
 *	1. Allocate the pages of the new group, and write them without bits.
 *	2. Publish the group as the shadow in the top-level page of every member,
 *	   that is, of every existing partition that the group contains.  From now
 *	   on inserters set their bits in both groups.
 *	3. Add all keys of the members to the new group.
 *	4. Enter the group in the region page, after the other groups, so that
 *	   searches use the new group.
 *	5. In the top-level page of every member, make the shadow the current
 *	   group.
 *	6. Remove groups that no partition uses any more from the region page, and
 *	   free their pages.
 *
 * Steps 4 and 6 hold LockPage on the metapage.  An insert that creates a
 * partition holds it, too, from reading the region page until it has entered
 * the partition and its group.  If a partition that the new group contains has
 * been created since step 2, the new group lacks the keys of that partition.
 * Step 4 detects this, and drops the new group.
 *
 * No row is lost: a search that copied the region page before step 4 reads the
 * old filters, in which inserters set their bits until step 5.  A row that is
 * inserted later is not visible to the snapshot of that search.
 *
 * After an error before step 4, the shadows are dropped; the region page does
 * not contain the group yet.  After an error after step 4, the replacement
 * continues with step 5, because searches already use the new group.  After a
 * crash the next VACUUM does the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * Steps 1 and 2.  *group is as planned; its start and generation are set in
 * regroup->group.
 */
void
bx_regroup_begin(BxRegroup *regroup, Relation index, uint32 region,
				 const BxGroupDesc *group)
{
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;

	regroup->index = index;
	regroup->region = region;
	regroup->group = *group;
	regroup->group.start = 0;
	bx_mask_fill(&regroup->members, false);
	bx_create_group(index, region, &regroup->group);
	if (!bx_dir_read_region(index, region, &index_blocks, copy))
		elog(ERROR, "region %u of index \"%s\" does not exist", region,
			 RelationGetRelationName(index));
	for (int c = group->first; c < group->first + group->width; c++)
	{
		CHECK_FOR_INTERRUPTS();
		if (copy->top[c] == 0)
			continue;
		bx_dir_set_group(index, region * BX_FANOUT + c, NULL, &regroup->group);
		bx_mask_set(&regroup->members, c);
		BX_PAUSE(BX_PAUSE_GROUP_SHADOW);
	}
	pfree(copy);
}

/*
 * Step 4.  Returns false, with nothing changed, if the group contains a
 * partition that is not a member.  If is_filtered, the first member, which may
 * have been unfiltered, is filtered from now on.
 */
static bool
enter_group(const BxRegroup *regroup, bool is_filtered)
{
	const BxGroupDesc *group = &regroup->group;
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BxRegionChange change = {.group = group,.is_filtered = is_filtered};
	BlockNumber index_blocks = 0;
	bool		complete = true;

	LockPage(regroup->index, BX_METAPAGE_BLKNO, ExclusiveLock);
	(void) bx_dir_read_region(regroup->index, regroup->region, &index_blocks,
							  copy);
	for (int c = group->first; c < group->first + group->width; c++)
	{
		if (copy->top[c] != 0 && !bx_mask_test(&regroup->members, c))
			complete = false;
	}
	if (complete)
		bx_dir_update_region(regroup->index, regroup->region * BX_FANOUT +
							 group->first, &change);
	UnlockPage(regroup->index, BX_METAPAGE_BLKNO, ExclusiveLock);
	pfree(copy);
	return complete;
}

/*
 * Steps 4 to 6.  Adds the pages that are freed to *freed.  If the group cannot
 * be used, because a partition has been created meanwhile, drops the group and
 * returns false.  is_filtered is as in enter_group().
 */
bool
bx_regroup_finish(BxRegroup *regroup, bool is_filtered,
				  BlockNumber *freed)
{
	BxGroupDesc none = {0};

	if (!enter_group(regroup, is_filtered))
	{
		bx_regroup_abandon(regroup);
		return false;
	}
	BX_PAUSE(BX_PAUSE_GROUP_ENTERED);
	for (int c = bx_mask_next(&regroup->members, 0); c < BX_FANOUT;
		 c = bx_mask_next(&regroup->members, c + 1))
	{
		bx_dir_set_group(regroup->index, regroup->region * BX_FANOUT + c,
						 &regroup->group, &none);
		BX_PAUSE(BX_PAUSE_GROUP_SWITCHED);
	}
	*freed += bx_regroup_remove_unused(regroup->index, regroup->region);
	return true;
}

/*
 * Completes or reverts a replacement that has failed in a region.  If the
 * region page contains a partition's shadow, step 5 is performed for the
 * partition; otherwise the shadow is dropped.
 */
void
bx_regroup_settle(Relation index, uint32 region)
{
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BxGroupDesc none = {0};
	BlockNumber index_blocks = 0;

	if (!bx_dir_read_region(index, region, &index_blocks, copy))
		memset(copy, 0, sizeof(*copy));
	for (int c = 0; c < BX_FANOUT; c++)
	{
		uint32		partition = region * BX_FANOUT + c;
		BxTopPageData top;

		if (copy->top[c] == 0 || !bx_dir_read_top(index, partition, &top) ||
			top.group_shadow.width == 0)
			continue;
		bx_groups_check(index, copy->top[c], &top.group_shadow, c,
						&index_blocks);
		bx_dir_set_group(index, partition,
						 bx_groups_by_generation(copy, top.group_shadow.generation),
						 &none);
	}
	pfree(copy);
}

/*
 * Settles a replacement that has failed or is abandoned, and frees the pages
 * of the new group if it has been dropped.
 */
void
bx_regroup_abandon(BxRegroup *regroup)
{
	BxGroupDesc group = regroup->group;
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;

	bx_regroup_settle(regroup->index, regroup->region);
	if (group.start != 0 &&
		bx_dir_read_region(regroup->index, regroup->region, &index_blocks,
						   copy) &&
		bx_groups_by_generation(copy, group.generation) == NULL)
	{
		/* an error may follow, and this function be called again */
		regroup->group.start = 0;
		bx_extents_free(regroup->index, group.start, bx_groups_pages(&group));
	}
	pfree(copy);
}

/*
 * Returns whether an existing partition uses a group of a region: the group is
 * current, or a top-level page refers to it.
 */
static bool
is_group_used(Relation index, uint32 number, const BxRegionPageData *region,
			  const BxGroupDesc *group)
{
	for (int c = group->first; c < group->first + group->width; c++)
	{
		const BxGroupDesc *current = bx_groups_find(region, c);
		BxTopPageData top;

		if (region->top[c] == 0)
			continue;
		if (!bx_groups_is_unfiltered(region, c) && current != NULL &&
			current->generation == group->generation)
			return true;
		if (bx_dir_read_top(index, number * BX_FANOUT + c, &top) &&
			(top.group.generation == group->generation ||
			 top.group_shadow.generation == group->generation))
			return true;
	}
	return false;
}

/*
 * Step 6: removes the groups of a region that no partition uses, and frees
 * their pages.  Returns the number of these pages.
 */
BlockNumber
bx_regroup_remove_unused(Relation index, uint32 region)
{
	BxRegionPageData *copy = palloc(sizeof(BxRegionPageData));
	BlockNumber index_blocks = 0;
	BlockNumber freed = 0;
	bool		found = true;

	/* a group is removed from the region page before its pages are freed */
	while (found)
	{
		BxGroupDesc unused = {0};

		found = false;
		LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
		if (!bx_dir_read_region(index, region, &index_blocks, copy))
			copy->ngroups = 0;
		for (uint32 i = 0; i < copy->ngroups && !found; i++)
		{
			if (!is_group_used(index, region, copy, &copy->group[i]))
			{
				BxRegionChange change = {.removed = copy->group[i].generation};

				unused = copy->group[i];
				bx_dir_update_region(index, region * BX_FANOUT, &change);
				found = true;
			}
		}
		UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
		bx_extents_free(index, unused.start, bx_groups_pages(&unused));
		freed += bx_groups_pages(&unused);
	}
	pfree(copy);
	return freed;
}
