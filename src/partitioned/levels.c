/*-------------------------------------------------------------------------
 *
 * levels.c
 *	  The shape of the tree: the table of levels, and the place of a node's
 *	  descriptor in its top-level page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "utils/float.h"
#include "utils/rel.h"

#include "partitioned.h"

StaticAssertDecl(BX_FANOUT == 1 << 7, "wrong lg_child_ranges");

const BxLevel bx_levels[] = {
	[BX_LEVEL_SEGMENT] = {
		.lg_child_ranges = 0,
		.lg_children = 7,		/* log2(BX_FANOUT) */
		.filter = "the range's filter",
	},
	[BX_LEVEL_PARTITION] = {
		.lg_child_ranges = 7,
		.lg_children = BX_LG_SEGMENTS,
		.rate = BX_SUMMARY_RATE,
		.filter = "the segment's filter",
	},
};

/*
 * Returns the target false-positive rate of the filters of the ranges of a
 * segment.  A summary excludes most segments, so that the filters of ranges
 * under a summary need not exclude as many ranges: they may be smaller.
 */
double
bx_segment_rate(bool summarized, double false_positive_rate)
{
	if (!summarized || false_positive_rate >= BX_SUMMARIZED_RATE)
		return false_positive_rate;
	return Min(false_positive_rate * BX_SUMMARIZED_FACTOR, BX_SUMMARIZED_RATE);
}

/*
 * Returns the target false-positive rate of the summaries of a new index with
 * the given number of partitions.  It is not lower than false_positive_rate:
 * an index with a high rate is meant to be small, or its queries have many
 * keys.
 */
double
bx_summary_rate(double partitions, double false_positive_rate)
{
	return Max(partitions <= BX_SMALL_INDEX ? BX_SMALL_SUMMARY_RATE :
			   BX_SUMMARY_RATE, false_positive_rate);
}

/*
 * Returns the target false-positive rate of the filters of the children of a
 * node that is created or rebuilt.  The first partition may have no summary.
 */
double
bx_node_rate(int level, uint32 number, const BxMetaPageData *meta)
{
	if (bx_levels[level].rate > 0)
		return Max(bx_levels[level].rate, meta->false_positive_rate);
	return bx_segment_rate(number >= BX_SEGMENTS_PER_PARTITION,
						   meta->false_positive_rate);
}

/*
 * Returns the largest number of keys that the rows of 2^lg_ranges ranges can
 * have at the same time, markers included; infinity if a column extracts.
 *
 * Sizes that are derived from the fill of filters are limited to this number,
 * because keys can be chosen so that no two of them set the same bit, and then
 * the fill indicates up to six times as many keys.
 */
static double
most_keys(Relation index, const BxMetaPageData *meta, int lg_ranges)
{
	int			natts = IndexRelationGetNumberOfKeyAttributes(index);

	for (int attno = 1; attno <= natts; attno++)
	{
		if (bx_extract_is_used(index, attno))
			return get_float8_infinity();
	}
	return ldexp((double) MaxHeapTuplesPerPage *
				 bx_hash_keys_per_row(natts, meta->keys),
				 meta->lg_base + lg_ranges) + 2 * natts;
}

/* The same for a child of a node of the given level. */
double
bx_node_most_keys(Relation index, const BxMetaPageData *meta, int level)
{
	return most_keys(index, meta, bx_levels[level].lg_child_ranges);
}

/* The same for a partition. */
double
bx_partition_most_keys(Relation index, const BxMetaPageData *meta)
{
	const BxLevel *top = &bx_levels[BX_TOP_LEVEL];

	return most_keys(index, meta, top->lg_child_ranges + top->lg_children);
}

/* Returns the partition whose top-level page has the node's descriptor. */
uint32
bx_node_partition(const BxNode *node)
{
	return node->level == BX_LEVEL_PARTITION ? node->number :
		node->number / BX_SEGMENTS_PER_PARTITION;
}

/* Returns the node's slot in the top-level page of its partition. */
uint32
bx_node_slot(const BxNode *node)
{
	return node->level == BX_LEVEL_PARTITION ? BX_SLOT_SUMMARY :
		BX_SLOT_SEGMENT(node->number % BX_SEGMENTS_PER_PARTITION);
}

/* Returns the node's descriptor in its top-level page, or in a copy of it. */
BxNodeDesc *
bx_node_desc(const BxNode *node, BxTopPageData *top)
{
	return node->is_shadow ? &top->shadow.desc : &top->node[bx_node_slot(node)];
}

/* Sets *node to the node of a slot. */
void
bx_node_of_slot(uint32 partition, uint32 slot, const BxTopPageData *top,
				BxNode *node)
{
	bool		is_summary = slot == BX_SLOT_SUMMARY;

	node->level = is_summary ? BX_LEVEL_PARTITION : BX_LEVEL_SEGMENT;
	node->number = is_summary ? partition :
		partition * BX_SEGMENTS_PER_PARTITION + slot - BX_SLOT_SEGMENT(0);
	node->is_shadow = false;
	node->desc = top->node[slot];
}

/* Sets *node to the shadow of a partition.  Returns false if there is none. */
bool
bx_node_of_shadow(uint32 partition, const BxTopPageData *top, BxNode *node)
{
	if (top->shadow.desc.state != BX_NODE_PRESENT ||
		top->shadow.slot >= BX_TOP_SLOTS)
		return false;
	bx_node_of_slot(partition, top->shadow.slot, top, node);
	node->is_shadow = true;
	node->desc = top->shadow.desc;
	return true;
}

/*
 * Returns the number of segments of a partition that are not empty, and sets
 * *doubtful to the number of segments that are in doubt.
 */
int
bx_node_count_segments(const BxTopPageData *top, int *doubtful)
{
	int			n = 0;

	*doubtful = 0;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		const BxNodeDesc *desc = &top->node[BX_SLOT_SEGMENT(c)];

		n += desc->state != BX_NODE_EMPTY;
		*doubtful += (desc->flags & BX_DESC_DOUBT) != 0;
	}
	return n;
}
