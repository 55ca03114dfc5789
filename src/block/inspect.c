/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  The part of layout "block" for the functions that show, verify and
 *	  estimate an index.
 *
 * A page is read and replaced as a whole, so a copy made under its lock is
 * always consistent, and nothing has to be read again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "block.h"

static Size
filter_size(const uint16 *offsets, int i)
{
	return offsets[i + 1] - offsets[i];
}

/*
 * Showing
 * -------
 */

/* Fills in the measurement of a page in the form used for segments. */
static void
describe_fill(const BxBlockFill *fill, BxPart *part)
{
	BxMeasure  *measure = &part->measure;
	int			n = fill->filters + fill->doubtful;

	measure->nchildren = n;
	measure->nfull = fill->doubtful;
	measure->all_keys = fill->keys;
	if (n > 0)
	{
		/* filters in doubt match everything */
		measure->keys = sqrt(fill->squares / n);
		measure->fill = (fill->fills + fill->doubtful) / n;
		measure->rate = (fill->rates + fill->doubtful) / n;
	}
	if (fill->filters > 0)
		part->probes = rint(fill->probes / fill->filters);
}

static void
describe_page(const char *image, uint32 number,
			  const BxBlockGeometry *geometry, BxPart *part)
{
	BxBlockFill fill;

	memset(part, 0, sizeof(*part));
	part->kind = BX_PART_FILTERS;
	part->number = number;
	part->block = bx_block_of_page(number);
	part->pages = 1;
	part->first_range = number * geometry->nranges;
	part->nranges = geometry->nranges;
	part->upper_rate = 1;
	bx_block_measure(image, geometry->nranges, &fill);
	describe_fill(&fill, part);
	if (part->measure.nchildren > 0)
		part->planned_keys = (double) BxPageGetOpaque(image)->block.keys /
			part->measure.nchildren;
	part->doubt = fill.doubtful > 0;
	part->overfull = !part->doubt &&
		bx_block_is_overfull(image, &fill, geometry->target);
}

static void
show_other_page(BxPartKind kind, BlockNumber blkno, uint32 pages,
				BxPartCallback callback, void *arg)
{
	BxPart		part = {.kind = kind,.block = blkno,.pages = pages};

	callback(arg, &part);
}

void
bx_block_walk(Relation index, const BxMetaPageData *meta,
			  BxPartCallback callback, void *arg)
{
	BxBlockGeometry geometry = bx_block_geometry(meta);

	show_other_page(BX_PART_DIRECTORY, BX_METAPAGE_BLKNO, 1, callback, arg);
	if (meta->block.pages > 0)
		show_other_page(BX_PART_DIRECTORY, BX_SCRATCH_BLKNO, 1, callback, arg);
	for (uint32 i = 0; i < meta->block.pages; i++)
	{
		PGAlignedBlock page;
		BxPart		part;

		CHECK_FOR_INTERRUPTS();
		bx_block_read_page(index, i, &geometry, NULL, page.data);
		describe_page(page.data, i, &geometry, &part);
		callback(arg, &part);

		/* the shadow is in the scratch page, which has been counted already */
		if (BxPageGetOpaque(page.data)->block.flags & BX_BLOCK_SHADOWED)
			show_other_page(BX_PART_SHADOW, BX_SCRATCH_BLKNO, 0, callback,
							arg);
	}
}

/*
 * Checking
 * --------
 */

/* Claims the pages, whose number is in the metapage. */
void
bx_block_check_claims(BxCheck *check, const BxMetaPageData *meta)
{
	if (meta->block.pages > 0)
		bx_check_claim(check, BX_METAPAGE_BLKNO, BX_SCRATCH_BLKNO, 1);
	bx_check_claim(check, BX_METAPAGE_BLKNO, BX_FIRST_BLOCK_BLKNO,
				   meta->block.pages);
}

/* Verifies the scratch page, regardless of which page it belongs to. */
static void
check_scratch(BxCheck *check, const BxBlockGeometry *geometry)
{
	Buffer		buffer = ReadBuffer(check->index, BX_SCRATCH_BLKNO);
	Page		page = BufferGetPage(buffer);
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_page_check(check->index, buffer, BX_PAGE_SCRATCH);
	if (opaque->block.nranges != geometry->nranges ||
		opaque->block.lg_base != geometry->lg_base)
		bx_page_corrupted(check->index, BX_SCRATCH_BLKNO,
						  "scratch page of another geometry");
	bx_block_check_offsets(check->index, BX_SCRATCH_BLKNO, page, geometry);
	UnlockReleaseBuffer(buffer);
}

/*
 * Verifies the filters and flags of a page, whose offsets have been verified.
 * A filter in an unknown format matches everything.  That is harmless to
 * correctness, but no code path writes one without setting BX_BLOCK_DOUBT, so
 * report it.
 */
static void
check_filters(BxCheck *check, uint32 number, const char *image, int nranges)
{
	const uint16 *offsets = BxPageGetOffsets(image, nranges);
	uint16		flags = BxPageGetOpaque(image)->block.flags;
	bool		doubt = false;

	for (int i = 0; i < nranges; i++)
	{
		BxPackedFill fill;

		bx_packed_fill(BxPageGetContent(image) + offsets[i],
					   filter_size(offsets, i), &fill);
		doubt |= fill.doubt;
	}
	if ((flags & ~(BX_BLOCK_SHADOWED | BX_BLOCK_DOUBT)) != 0 ||
		(doubt && !(flags & BX_BLOCK_DOUBT)))
		bx_page_corrupted(check->index, bx_block_of_page(number),
						  "impossible filter");
}

void
bx_block_check_pages(BxCheck *check)
{
	BxMetaPageData meta;
	BxBlockGeometry geometry;

	bx_meta_read(check->index, &meta);
	geometry = bx_block_geometry(&meta);
	if (meta.block.pages > 0)
		check_scratch(check, &geometry);
	for (uint32 i = 0; i < meta.block.pages; i++)
	{
		PGAlignedBlock page;

		CHECK_FOR_INTERRUPTS();
		bx_block_read_page(check->index, i, &geometry, check->strategy,
						   page.data);
		check_filters(check, i, page.data, geometry.nranges);
	}
}

/* The page in which keys are looked up; read after the snapshot was taken. */
typedef struct KeyState
{
	BxBlockGeometry geometry;
	uint32		npages;
	bool		loaded;			/* number and page are valid */
	uint32		number;
	PGAlignedBlock page;
} KeyState;

static KeyState *
begin_keys(Relation index)
{
	KeyState   *state = palloc0(sizeof(KeyState));
	BxMetaPageData meta;

	bx_meta_read(index, &meta);
	state->geometry = bx_block_geometry(&meta);
	state->npages = meta.block.pages;
	return state;
}

/* Reads a page of filters, unless it is the same as for the previous range. */
static void
load_page(BxCheck *check, KeyState *state, uint32 number)
{
	if (state->loaded && state->number == number)
		return;
	bx_block_read_page(check->index, number, &state->geometry, NULL,
					   state->page.data);
	state->number = number;
	state->loaded = true;
}

void
bx_block_check_keys(BxCheck *check, uint32 range, const uint64 *keys,
					Size nkeys)
{
	KeyState   *state = check->layout_state;
	const uint16 *offsets;
	const char *filter;
	uint32		number;
	int			child;

	if (state == NULL)
		state = check->layout_state = begin_keys(check->index);
	if (nkeys == 0)
		return;
	if (state->npages == 0 || range / state->geometry.nranges >= state->npages)
		bx_check_lost_key(check, BX_METAPAGE_BLKNO, range, "any page");
	number = range / state->geometry.nranges;
	child = range % state->geometry.nranges;
	load_page(check, state, number);
	offsets = BxPageGetOffsets(state->page.data, state->geometry.nranges);
	filter = BxPageGetContent(state->page.data) + offsets[child];
	for (Size i = 0; i < nkeys; i++)
	{
		if (!bx_packed_test(filter, filter_size(offsets, child), keys[i]))
			bx_check_lost_key(check, bx_block_of_page(number), range,
							  "the range's filter");
	}
}

/*
 * Estimating
 * ----------
 */

/*
 * Returns the number of pages of an index that CREATE INDEX would build
 * (build.c), and fills in its statistics.
 */
double
bx_block_estimate(const BxTableModel *model, uint8 lg_base, double rate,
				  BxStats *stats)
{
	double		pages_per_range = 1 << lg_base;
	double		ranges = ceil(model->heap_pages / pages_per_range);
	double		keys = model->keys(model, pages_per_range);
	int			nranges = bx_block_choose_ranges(&keys, 1, rate);
	double		pages = ceil(ranges / nranges);

	memset(stats, 0, sizeof(*stats));
	stats->parts = pages;
	stats->block.ranges_per_page = nranges;
	stats->range_keys = keys;
	stats->range_rate = bx_packed_rate(keys, BX_BLOCK_SPACE(nranges) / nranges,
									   rate);

	/* includes the metapage and the scratch page */
	return 2 + pages;
}
