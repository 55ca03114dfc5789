/*-------------------------------------------------------------------------
 *
 * slices.c
 *	  The slices of a node: their number, their pages, writing and
 *	  measuring them.  The meaning of the bits is defined in
 *	  filter/filter.h; search.c and insert.c decide which bits to test or
 *	  to set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/*
 * The fill of a node is measured in one slice, or in up to MEASURED_SLICES
 * slices if this one has fewer keys than FEW_MEASURED_KEYS: below this number,
 * the sampling error can be about 10%.
 */
#define FEW_MEASURED_KEYS		512
#define MEASURED_SLICES			16
#define SIZING_SLICES			64

/*
 * Initializes a descriptor of slices for the given number of keys per child.
 * The slices have no pages yet: the caller sets desc->start.
 */
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

/* Initializes a slice page without bits. */
void
bx_slices_init_page(Page page, const BxNode *node, uint32 slice)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	bx_page_init(page, BX_PAGE_SLICE);
	opaque->number = node->number;
	opaque->slice.slice = slice;
	opaque->slice.nslices = node->desc.nslices;
	opaque->slice.generation = node->desc.generation;
	opaque->slice.nprobes = node->desc.nprobes;
	opaque->slice.level = node->level;
}

/*
 * Returns whether the page is the given slice of the node, according to
 * node->desc.  If so, its rows can be read safely.  A writer must also check
 * the page header, with bx_page_check().  The caller holds a lock on the
 * page, or otherwise ensures that the slice is not replaced meanwhile.
 */
bool
bx_slices_is_page(Page page, const BxNode *node, uint32 slice)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	return opaque->page_id == BX_PAGE_ID &&
		opaque->kind == BX_PAGE_SLICE &&
		opaque->number == node->number &&
		opaque->slice.slice == slice &&
		opaque->slice.nslices == node->desc.nslices &&
		opaque->slice.generation == node->desc.generation &&
		opaque->slice.nprobes == node->desc.nprobes &&
		opaque->slice.level == node->level;
}

/*
 * Reads a slice page of a node, and locks it in share mode.  Returns the
 * buffer, and sets *problem to a description of what is wrong with the page,
 * or to NULL.  If there is a problem, the descriptor is out of date or the
 * index is damaged; bx_dir_refresh() decides.
 */
Buffer
bx_slices_read(Relation index, const BxNode *node, uint32 slice,
			   BufferAccessStrategy strategy, const char **problem)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM,
											node->desc.start + slice,
											RBM_NORMAL, strategy);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*problem = bx_page_problem(page, BX_PAGE_SLICE);
	if (*problem == NULL && !bx_slices_is_page(page, node, slice))
		*problem = BX_WRONG_PAGE;
	return buffer;
}

/* Makes the filters of the given children match everything in one slice. */
void
bx_slices_set_doubt(char *rows, const BxMask *doubt)
{
	if (bx_mask_is_empty(doubt))
		return;
	for (Size row = 0; row < BX_SLICE_ROWS; row++)
		bx_mask_or((BxMask *) (rows + row * BX_ROW_BYTES), doubt);
}

/*
 * ORs rows into a slice page, under an exclusive lock, because other backends
 * may set bits in the page concurrently.  The page is logged if wal is true;
 * a build passes false, and logs the pages of a node when the node is
 * complete.
 */
void
bx_slices_write(Relation index, const BxNode *node, uint32 slice,
				const char *rows, bool wal)
{
	BlockNumber blkno = node->desc.start + slice;
	Buffer		buffer = ReadBuffer(index, blkno);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_check(index, buffer, BX_PAGE_SLICE);
	if (!bx_slices_is_page(page, node, slice))
		bx_page_corrupted(index, blkno, BX_WRONG_PAGE);
	START_CRIT_SECTION();
	for (Size offset = 0; offset < BX_SLICE_SIZE; offset += BX_ROW_BYTES)
		bx_mask_or((BxMask *) (BxPageGetContent(page) + offset),
				   (const BxMask *) (rows + offset));
	((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
	bx_page_changed(index, buffer, wal);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/*
 * Adds the fill of each child's filter in one slice to keys[], rates[] and
 * fill[].  Returns false if the page is not the slice that node->desc
 * describes.
 */
static bool
measure_slice(Relation index, const BxNode *node, uint32 slice,
			  BufferAccessStrategy strategy, double *keys, double *rates,
			  double *fill)
{
	int			nprobes = node->desc.nprobes;
	const char *problem;
	Buffer		buffer = bx_slices_read(index, node, slice, strategy, &problem);
	int			bits_set[BX_FANOUT];

	if (problem == NULL)
		bx_filter_count(BxPageGetContent(BufferGetPage(buffer)), BX_SLICE_ROWS,
						bits_set);
	UnlockReleaseBuffer(buffer);
	if (problem != NULL)
		return false;
	for (int i = 0; i < BX_FANOUT; i++)
	{
		keys[i] += bx_filter_fill_keys(bits_set[i], BX_SLICE_ROWS,
									   nprobes);
		rates[i] += bx_filter_fill_rate(bits_set[i], BX_SLICE_ROWS,
										nprobes);
		fill[i] += (double) bits_set[i] / BX_SLICE_ROWS;
	}
	return true;
}

/*
 * Returns the seed of bx_sample_number() for the slices, or the group, with the
 * given generation.  The secret is the random number with which the server
 * answers logins of unknown users; its hash discloses nothing of it.
 */
uint64
bx_sample_seed(uint32 generation)
{
	static uint64 secret = 0;

	if (secret == 0)
		secret = bx_hash_bytes(GetMockAuthenticationNonce(),
							   MOCK_AUTH_NONCE_LEN, 0);
	return bx_hash_mix(secret, generation);
}

/*
 * Estimates the keys and the false-positive rates of a node from the fill of
 * its filters in a sample of n slices.
 */
static bool
measure_sample(Relation index, const BxNode *node, uint32 n,
			   BufferAccessStrategy strategy, BxMeasure *measure)
{
	double		keys[BX_FANOUT] = {0};
	double		rates[BX_FANOUT] = {0};
	double		fill[BX_FANOUT] = {0};
	double		squares = 0;
	uint32		nslices = Min(node->desc.nslices, n);
	uint64		seed = bx_sample_seed(node->desc.generation);

	memset(measure, 0, sizeof(*measure));
	for (uint32 i = 0; i < nslices; i++)
	{
		uint32		slice = bx_sample_number(seed, i, nslices,
											 node->desc.nslices);

		if (!measure_slice(index, node, slice, strategy, keys, rates, fill))
			return false;
	}

	for (int i = 0; i < BX_FANOUT; i++)
	{
		double		all = keys[i] / nslices * node->desc.nslices;

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
 * Estimates the keys and the false-positive rates of a node from the fill of
 * its filters in one slice, which is a fair sample, or in several slices if
 * this one has few keys.  Returns false if a page is not the slice that
 * node->desc describes: either the descriptor is out of date or the index is
 * damaged, which the caller has to find out.  The caller has verified the
 * descriptor with bx_dir_check_desc().
 */
bool
bx_slices_measure(Relation index, const BxNode *node,
				  BufferAccessStrategy strategy, BxMeasure *measure)
{
	if (!measure_sample(index, node, 1, strategy, measure))
		return false;
	if (measure->all_keys >= FEW_MEASURED_KEYS * (double) node->desc.nslices)
		return true;
	return measure_sample(index, node, MEASURED_SLICES, strategy, measure);
}

/*
 * The same for the size of other slices, which must not be much too large if
 * the keys are unevenly distributed over the slices: measures all slices, or
 * SIZING_SLICES of them.
 */
bool
bx_slices_measure_for_size(Relation index, const BxNode *node,
						   BxMeasure *measure)
{
	return measure_sample(index, node, SIZING_SLICES, NULL, measure);
}

/*
 * Sets desc->keys to the estimate from the fill, if that is larger than the
 * planned number; VACUUM compares later estimates with it.  Call it when all
 * bits of the node are set.  The estimate may exceed the plan if children
 * differ much in size, because the smallest children have no key in the
 * measured slices.  If the estimate is smaller, the planned number stays, so
 * that VACUUM notices a node that is too large.
 */
void
bx_slices_set_baseline(BxNodeDesc *desc, const BxMeasure *measure)
{
	/* filters in doubt are full, so the estimate is meaningless */
	if (!(desc->flags & BX_DESC_DOUBT) && measure->keys > desc->keys)
		desc->keys = Min(ceil(measure->keys), (double) PG_UINT32_MAX);
}
