/*-------------------------------------------------------------------------
 *
 * page.c
 *	  Pages of filters: initializing, verifying and measuring them, and the
 *	  number of ranges per page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "block.h"

BxBlockGeometry
bx_block_geometry(const BxMetaPageData *meta)
{
	BxBlockGeometry geometry;

	geometry.lg_base = meta->lg_base;
	geometry.nranges = meta->block.nranges;
	geometry.target = meta->false_positive_rate;
	return geometry;
}

/*
 * Initializes a page of filters without bits. keys[i] is the number of keys
 * that filter i is planned for.
 */
void
bx_block_make_page(char *image, uint8 kind, uint32 number, const BxBlockGeometry *geometry,
				   const double *keys)
{
	int			n = geometry->nranges;
	uint16		sizes[BX_MAX_BLOCK_RANGES];
	uint16	   *offsets = BxPageGetOffsets(image, n);
	BxPageOpaqueData *opaque;

	bx_page_init(image, kind);
	opaque = BxPageGetOpaque(image);
	opaque->number = number;
	opaque->block.nranges = n;
	opaque->block.lg_base = geometry->lg_base;
	bx_packed_share(keys, n, BX_BLOCK_SPACE(n), sizes);
	offsets[0] = 0;
	for (int i = 0; i < n; i++)
	{
		bx_packed_init(BxPageGetContent(image) + offsets[i], sizes[i], keys[i],
					   geometry->target);
		offsets[i + 1] = offsets[i] + sizes[i];
	}
}

/* As bx_block_make_page(), with the same number of keys for each filter. */
void
bx_block_make_even_page(char *image, uint8 kind, uint32 number,
						const BxBlockGeometry *geometry, double keys)
{
	double		all[BX_MAX_BLOCK_RANGES] = {0};

	for (int i = 0; i < geometry->nranges; i++)
		all[i] = keys;
	bx_block_make_page(image, kind, number, geometry, all);
}

/*
 * Sets the counts that are 0 to the mean of the others, or to "typical" if
 * all are 0: a range without keys may get keys later, and a filter of the
 * smallest size would be saturated immediately.  Returns the number that was
 * filled in.
 */
double
bx_block_fill_in_counts(double *counts, int n, double typical)
{
	double		sum = 0;
	int			counted = 0;

	for (int i = 0; i < n; i++)
	{
		sum += counts[i];
		counted += counts[i] > 0;
	}
	if (counted > 0)
		typical = sum / counted;
	for (int i = 0; i < n; i++)
	{
		if (counts[i] == 0)
			counts[i] = typical;
	}
	return typical;
}

/*
 * Raises an error unless the buffer is the given page of filters.  The caller
 * holds a lock, in any mode, on the buffer.
 */
void
bx_block_check_identity(Relation index, Buffer buffer, uint8 kind, uint32 number,
						const BxBlockGeometry *geometry)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(BufferGetPage(buffer));

	bx_page_check(index, buffer, kind);
	if (opaque->number != number || opaque->block.nranges != geometry->nranges ||
		opaque->block.lg_base != geometry->lg_base)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer),
						  "another page of filters");
}

/*
 * Raises an error unless the filters are stored one after the other and have
 * valid sizes: a search with a wrong offset would miss the keys of a filter.
 */
void
bx_block_check_offsets(Relation index, BlockNumber blkno, Page page,
					   const BxBlockGeometry *geometry)
{
	int			n = geometry->nranges;
	const uint16 *offsets = BxPageGetOffsets(page, n);
	bool		valid = offsets[0] == 0 && offsets[n] <= BX_BLOCK_SPACE(n);

	for (int i = 0; i < n; i++)
		valid &= offsets[i] < offsets[i + 1] &&
			bx_packed_size_is_possible(offsets[i + 1] - offsets[i]);
	if (!valid)
		bx_page_corrupted(index, blkno, "impossible offsets of filters");
}

/*
 * Returns filter i of a page, and sets *size.  The page must have passed
 * bx_block_check_identity().  Raises an error if the offsets are impossible.
 */
char *
bx_block_get_filter(Relation index, Buffer buffer, const BxBlockGeometry *geometry, int i,
					Size *size)
{
	Page		page = BufferGetPage(buffer);
	const uint16 *offsets = BxPageGetOffsets(page, geometry->nranges);

	if (offsets[i] >= offsets[i + 1] ||
		offsets[i + 1] > BX_BLOCK_SPACE(geometry->nranges) ||
		!bx_packed_size_is_possible(offsets[i + 1] - offsets[i]))
		bx_page_corrupted(index, BufferGetBlockNumber(buffer),
						  "impossible offsets of filters");
	*size = offsets[i + 1] - offsets[i];
	return BxPageGetContent(page) + offsets[i];
}

/* Returns the block of page "number" of the filters. */
BlockNumber
bx_block_of_page(uint32 number)
{
	uint64		blkno = (uint64) BX_FIRST_BLOCK_BLKNO + number;

	if (blkno > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("bloomidx index would have more than %u pages", MaxBlockNumber)));
	return (BlockNumber) blkno;
}

/*
 * Raises an error if the file, of nblocks blocks, does not contain block
 * blkno.
 */
void
bx_block_check_length(Relation index, BlockNumber nblocks, BlockNumber blkno)
{
	if (blkno >= nblocks)
		bx_page_corrupted(index, blkno, "fewer pages than the metapage says");
}

/* Copies a page of filters under a share lock, and verifies it. */
void
bx_block_read_page(Relation index, uint32 number, const BxBlockGeometry *geometry,
				   BufferAccessStrategy strategy, char *copy)
{
	BlockNumber blkno = bx_block_of_page(number);
	Buffer		buffer;

	bx_block_check_length(index, RelationGetNumberOfBlocks(index), blkno);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL,
								strategy);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_block_check_identity(index, buffer, BX_PAGE_BLOCK, number, geometry);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	bx_block_check_offsets(index, blkno, copy, geometry);
}

/*
 * Estimates the keys and rates of a page's filters from their fill, and sums
 * them up.
 */
void
bx_block_measure(const char *image, int nranges, BxBlockFill *sum)
{
	const uint16 *offsets = BxPageGetOffsets(image, nranges);

	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < nranges; i++)
	{
		BxPackedFill fill;

		bx_packed_fill(BxPageGetContent(image) + offsets[i],
					   offsets[i + 1] - offsets[i], &fill);
		if (fill.doubt)
			sum->doubtful++;
		else if (fill.keys > 0)
		{
			sum->filters++;
			sum->keys += fill.keys;
			sum->squares += fill.keys * fill.keys;
			sum->rates += fill.rate;
			sum->fills += fill.fill;
			sum->probes += fill.probes;
		}
	}
}

/* Returns the mean rate of the filters that have keys. */
static double
rate_of_fill(const BxBlockFill *fill)
{
	return fill->filters > 0 ? fill->rates / fill->filters : 0;
}

/*
 * Returns whether a rebuild would improve a page: its rate is too high, and
 * it is fuller than right after it was built.  Otherwise its filters are as
 * good as possible with this number of ranges per page.
 */
bool
bx_block_is_overfull(const char *image, const BxBlockFill *fill, double target)
{
	const BxPageOpaqueData *opaque = BxPageGetOpaque(image);
	double		rate = rate_of_fill(fill);

	return rate > target * BX_RATE_TOLERANCE &&
		(rate > opaque->block.rate * BX_RATE_GROWTH ||
		 fill->keys > opaque->block.keys * BX_KEYS_TOLERANCE);
}

/*
 * Stores the current fill of a page in its special area, when all bits have
 * been set; see bx_block_is_overfull().
 */
void
bx_block_set_baseline(char *image, int nranges, BxBlockFill *fill)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(image);

	bx_block_measure(image, nranges, fill);
	opaque->block.keys = (uint32) ceil(fill->keys);
	opaque->block.rate = rate_of_fill(fill);
	if (fill->doubtful > 0)
		opaque->block.flags |= BX_BLOCK_DOUBT;
}

/* Returns the i-th smallest valid size of a filter, counted from 0. */
static Size
nth_size(int i)
{
	int			nsmall = BX_PACKED_LINE - BX_PACKED_MIN_SIZE;

	return i < nsmall ? BX_PACKED_MIN_SIZE + i :
		(Size) (i - nsmall + 1) * BX_PACKED_LINE + BX_PACKED_TRAILER;
}

static double
mean_rate(const double *keys, int n, Size size, double target)
{
	double		sum = 0;

	for (int i = 0; i < n; i++)
		sum += bx_packed_rate(keys[i], size, target);
	return sum / n;
}

/*
 * Returns whether filters of this size are sufficient: the mean rate must be
 * <= target, and the rate of the last sample <= BX_RATE_TOLERANCE * target,
 * because new ranges are assumed to resemble the last sample.
 */
static bool
is_large_enough(const double *keys, int n, Size size, double target)
{
	return mean_rate(keys, n, size, target) <= target &&
		bx_packed_rate(keys[n - 1], size, target) <= target * BX_RATE_TOLERANCE;
}

/*
 * Returns the number of ranges per page: the largest number with which the
 * rate meets the target (see is_large_enough). keys[] has the keys per range
 * in n samples of the heap, in order.  A filter cannot be larger than a page,
 * so the result is at least 1 even if the rate does not meet the target.
 */
int
bx_block_choose_ranges(const double *keys, int n, double target)
{
	int			low = 0;
	int			high = 0;

	while (nth_size(high + 1) <= BX_BLOCK_SPACE(1))
		high++;
	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (is_large_enough(keys, n, nth_size(middle), target))
			high = middle;
		else
			low = middle + 1;
	}
	return Max(1, (BX_CONTENT_SIZE - sizeof(uint16)) /
			   (nth_size(low) + sizeof(uint16)));
}

/*
 * Writes and logs a page that is not counted in the metapage yet; extends the
 * file if necessary.
 */
void
bx_block_put_page(Relation index, BlockNumber blkno, const char *image)
{
	bx_page_extend_to(index, blkno);
	bx_page_write_new(index, blkno, image, true);
}

/* Writes the scratch page. */
void
bx_block_put_scratch(Relation index, const BxBlockGeometry *geometry)
{
	PGAlignedBlock image;

	bx_block_make_even_page(image.data, BX_PAGE_SCRATCH, 0, geometry, 0);
	bx_block_put_page(index, BX_SCRATCH_BLKNO, image.data);
}

/*
 * Writes pages first .. end - 1 without keys, each range planned for the
 * given number of keys.
 */
void
bx_block_put_even_pages(Relation index, const BxBlockGeometry *geometry, uint64 first,
						uint64 end, double keys)
{
	PGAlignedBlock image;

	for (uint64 i = first; i < end; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_block_make_even_page(image.data, BX_PAGE_BLOCK, i, geometry, keys);
		bx_block_put_page(index, bx_block_of_page(i), image.data);
	}
}

/*
 * Sets the means over all filters in the statistics.  Filters in doubt count
 * as rate 1, and their number of keys is not known.  A mean over no filters
 * is left unchanged.
 */
void
bx_block_set_means(BxStats *stats, double filters, double doubtful, double keys,
				   double rates)
{
	if (filters > 0)
		stats->range_keys = keys / filters;
	if (filters + doubtful > 0)
		stats->range_rate = (rates + doubtful) / (filters + doubtful);
}
