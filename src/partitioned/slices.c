/*-------------------------------------------------------------------------
 *
 * slices.c
 *	  The slices of a node: how many there are to be, their pages, writing and
 *	  measuring them.  What a bit means is told by filter/filter.h, and which
 *	  bits a search or an insert looks at is up to it; where they are stored is
 *	  known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * A node is measured by one slice, or by several if that has fewer keys than
 * this: so few may be a tenth more or less than they should by chance.
 */
#define FEW_MEASURED_KEYS		512
#define MEASURED_SLICES			16

/* Describes slices for so many keys per child, which have no place yet. */
void
bx_slices_plan(double keys, double rate, uint32 generation,
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

/* Makes a slice page without bits. */
void
bx_slices_init_page(Page page, int level, uint32 node, uint32 slice,
					const BxNodeDesc *desc)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	bx_page_init(page, BX_PAGE_SLICE);
	opaque->level = level;
	opaque->node = node;
	opaque->slice = slice;
	opaque->nslices = desc->nslices;
	opaque->nprobes = desc->nprobes;
	opaque->generation = desc->generation;
}

/*
 * Whether the page is this slice of the node that desc describes.  That makes
 * its rows safe to read; who writes also checks the page's header, by
 * bx_page_check.
 */
bool
bx_slices_is_page(Page page, int level, uint32 node, uint32 slice,
				  const BxNodeDesc *desc)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	return opaque->page_id == BX_PAGE_ID &&
		opaque->kind == BX_PAGE_SLICE &&
		opaque->level == level &&
		opaque->node == node &&
		opaque->slice == slice &&
		opaque->nslices == desc->nslices &&
		opaque->nprobes == desc->nprobes &&
		opaque->generation == desc->generation;
}

/* Makes the filters of some children, in a slice, match everything. */
void
bx_slices_set_doubt(char *rows, const BxMask *doubt)
{
	if (bx_mask_is_empty(doubt))
		return;
	for (Size row = 0; row < BX_SLICE_ROWS; row++)
		bx_mask_or((BxMask *) (rows + row * BX_ROW_BYTES), doubt);
}

/*
 * ORs rows into a slice page: other backends may set bits there, too.  wal is
 * false in a build, which logs a node's pages when it is complete.
 */
void
bx_slices_write(Relation index, int level, uint32 node,
				const BxNodeDesc *desc, uint32 slice, const char *rows,
				bool wal)
{
	BlockNumber blkno = desc->start + slice;
	Buffer		buffer = ReadBuffer(index, blkno);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_check(index, buffer, BX_PAGE_SLICE);
	if (!bx_slices_is_page(page, level, node, slice, desc))
		bx_page_corrupted(index, blkno,
						  "not the page that the directory says");
	START_CRIT_SECTION();
	for (Size offset = 0; offset < BX_SLICE_SIZE; offset += BX_ROW_BYTES)
		bx_mask_or((BxMask *) (BxPageGetContent(page) + offset),
				   (const BxMask *) (rows + offset));
	((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
	MarkBufferDirty(buffer);
	if (wal && RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
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
	valid = bx_slices_is_page(page, level, node, slice, desc);
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
bx_slices_measure(Relation index, int level, uint32 node, const BxNodeDesc *desc,
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
bx_slices_set_baseline(BxNodeDesc *desc, const BxMeasure *measure)
{
	/* filters in doubt are full, and say nothing */
	if (!(desc->flags & BX_DESC_DOUBT) && measure->keys > desc->keys)
		desc->keys = Min(ceil(measure->keys), (double) PG_UINT32_MAX);
}
