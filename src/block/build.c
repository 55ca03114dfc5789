/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Building: writes pages of filters from the keys of ranges.
 *
 * A unit of a build is a run of consecutive pages.  Pages without keys are
 * written by the participant that builds the unit, if the unit has any key,
 * else by the leader at the end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "block.h"

/*
 * The heap is sampled in up to this many places, from its first to its last
 * range.
 */
#define SAMPLE_WINDOWS		32

/*
 * In each place up to SAMPLE_RANGES ranges are read, but fewer if they would
 * be more than SAMPLE_PAGES pages; at least two, because the last range of
 * the heap may be incomplete.
 */
#define SAMPLE_RANGES		4
#define SAMPLE_PAGES		64

/* Approximate number of heap blocks per unit of a build. */
#define UNIT_BLOCKS			16384

/* Keys of the ranges that are read in one place. */
typedef struct Sample
{
	double		keys;
	int			nranges;		/* ranges that have keys */
	double		range_keys;		/* keys of the current range */
} Sample;

static void
add_to_sample(void *arg, uint32 range, double done, const uint64 *keys,
			  Size nkeys, bool doubt)
{
	Sample	   *sample = arg;

	sample->range_keys += nkeys;
	if (done < 1.0)
		return;
	if (sample->range_keys > 0)
		sample->nranges++;
	sample->keys += sample->range_keys;
	sample->range_keys = 0;
}

/*
 * Samples the keys per range in several places of the heap.  Sets keys[] to
 * the mean of the ranges in each place that has keys, and returns the number
 * of such places.  If there are none, sets keys[0] to an estimate from the
 * number of rows, and returns 1.  Only means are used, because adjacent
 * ranges share a page.
 */
static int
sample_keys(BxBuild *build, uint8 lg_base, double *keys)
{
	uint64		ranges = bx_geometry_ranges(build->heap_blocks, lg_base);
	uint64		window = Max(2, Min(SAMPLE_RANGES, SAMPLE_PAGES >> lg_base));
	int			most = Max(8, Min(SAMPLE_WINDOWS, SAMPLE_WINDOWS * SAMPLE_PAGES /
								  (window << lg_base)));
	int			places = Max(1, Min(most, ranges / window));
	uint64		step = places > 1 ? (ranges - window) / (places - 1) : 0;
	BxHeapScan *scan;
	int			n = 0;

	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->keys, build->memory / 8);
	for (int i = 0; i < places; i++)
	{
		uint64		first = i < places - 1 ? i * step : ranges - Min(window, ranges);
		Sample		sample = {0};

		bx_heapscan_ranges(scan, lg_base, first, Min(first + window, ranges),
						   build->heap_blocks, add_to_sample, &sample);
		if (sample.nranges > 0)
			keys[n++] = sample.keys / sample.nranges;
	}

	/* no sample has keys: assume that every value of every row is distinct */
	if (n == 0)
	{
		int			natts = build->indexInfo->ii_NumIndexKeyAttrs;
		double		rows;
		double		unused;

		bx_heapscan_tuples(scan, &rows, &unused);
		rows = Max(rows / (places * window), 1 << lg_base);
		keys[n++] = (rows + 1) * natts;
	}
	bx_heapscan_end(scan);
	return n;
}

typedef struct BlockBuild
{
	BxBlockGeometry geometry;
	double		typical_keys;	/* keys per range, for ranges that have no
								 * keys yet */
	bool		started;		/* the unit has keys, and "number" is valid */
	uint32		number;			/* the current page */

	/*
	 * keys of the current page, until it is complete or the limit is exceeded
	 */
	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	Size		limit;
	int			child;			/* the last range of the page that was added,
								 * or -1 */
	Size		ends[BX_MAX_BLOCK_RANGES];	/* end of each range's keys in
											 * keys[] */
	double		counts[BX_MAX_BLOCK_RANGES];
	bool		doubt[BX_MAX_BLOCK_RANGES];
	bool		has_image;		/* the sizes of the filters are chosen, and
								 * image is valid */
	PGAlignedBlock image;

	/* sums over the unit, for the statistics */
	double		filters;
	double		doubtful;
	double		all_keys;
	double		rates;
} BlockBuild;

/*
 * Chooses the number of ranges per page from a sample of the heap, and
 * returns the number of ranges per unit, which is a multiple of it; see
 * BxLayout.
 */
uint64
bx_block_build_plan(BxBuild *build, BxMetaPageData *meta)
{
	double		keys[SAMPLE_WINDOWS];
	int			n = sample_keys(build, meta->lg_base, keys);
	double		sum = 0;
	uint64		page_blocks;

	for (int i = 0; i < n; i++)
		sum += keys[i];
	meta->stats.range_keys = sum / n;
	meta->block.nranges = bx_block_choose_ranges(keys, n, meta->false_positive_rate);
	page_blocks = (uint64) meta->block.nranges << meta->lg_base;
	return meta->block.nranges * Max(UNIT_BLOCKS / page_blocks, 1);
}

void
bx_block_build_begin(BxBuild *build)
{
	BlockBuild *bb = palloc0(sizeof(BlockBuild));

	bb->geometry = bx_block_geometry(&build->shared->meta);
	bb->typical_keys = build->shared->meta.stats.range_keys;
	bb->limit = Max(build->memory / 2 / sizeof(uint64), 8192);
	bb->allocated = 8192;
	bb->keys = palloc(sizeof(uint64) * bb->allocated);
	build->layout_state = bb;
}

void
bx_block_build_end(BxBuild *build)
{
	BlockBuild *bb = build->layout_state;

	pfree(bb->keys);
	pfree(bb);
}

/* Sets the bits of the collected keys in the image, and discards the keys. */
static void
flush_keys(BlockBuild *bb)
{
	const uint16 *offsets = BxPageGetOffsets(bb->image.data,
											 bb->geometry.nranges);
	Size		i = 0;

	for (int c = 0; c <= bb->child; c++)
	{
		char	   *filter = BxPageGetContent(bb->image.data) + offsets[c];
		Size		size = offsets[c + 1] - offsets[c];

		CHECK_FOR_INTERRUPTS();
		for (; i < bb->ends[c]; i++)
			bx_packed_add(filter, size, bb->keys[i]);
		if (bb->doubt[c])
			bx_packed_set_doubt(filter, size);
		bb->ends[c] = 0;
	}
	bb->nkeys = 0;
}

/*
 * Chooses the sizes of the current page's filters from the keys so far.  The
 * last range that has keys may be incomplete, so it is planned for at least
 * as many keys as the others have on average.
 */
static void
choose_sizes(BlockBuild *bb)
{
	double		keys[BX_MAX_BLOCK_RANGES];

	memcpy(keys, bb->counts, sizeof(keys));
	bb->typical_keys = bx_block_fill_in_counts(keys, bb->geometry.nranges,
											   bb->typical_keys);
	if (bb->child >= 0)
		keys[bb->child] = Max(keys[bb->child], bb->typical_keys);
	bx_block_make_page(bb->image.data, BX_PAGE_BLOCK, bb->number, &bb->geometry, keys);
	bb->has_image = true;
}

static void
start_page(BlockBuild *bb, uint32 number)
{
	bb->number = number;
	bb->nkeys = 0;
	bb->child = -1;
	bb->has_image = false;
	memset(bb->ends, 0, sizeof(bb->ends));
	memset(bb->counts, 0, sizeof(bb->counts));
	memset(bb->doubt, 0, sizeof(bb->doubt));
}

/* Completes and writes the current page. */
static void
finish_page(BxBuild *build)
{
	BlockBuild *bb = build->layout_state;
	BxBlockFill fill;

	if (!bb->has_image)
		choose_sizes(bb);
	flush_keys(bb);
	bx_block_set_baseline(bb->image.data, bb->geometry.nranges, &fill);
	bb->filters += fill.filters;
	bb->doubtful += fill.doubtful;
	bb->all_keys += fill.keys;
	bb->rates += fill.rates;
	bx_block_put_page(build->index, bx_block_of_page(bb->number), bb->image.data);
}

/*
 * Returns the first page of a unit; for unit == nunits, the total number of
 * pages.
 */
static uint64
first_page_of_unit(const BxBuildShared *shared, uint64 unit)
{
	uint64		ranges = bx_geometry_ranges(shared->heap_blocks,
											shared->meta.lg_base);
	int			nranges = shared->meta.block.nranges;

	return Min(unit * (shared->unit_ranges / nranges),
			   (ranges + nranges - 1) / nranges);
}

/*
 * Completes the current page and starts another one, if the number differs.
 * Pages in between are written without keys.
 */
static void
advance_to_page(BxBuild *build, uint32 number)
{
	BlockBuild *bb = build->layout_state;
	uint32		next;

	if (bb->started && number == bb->number)
		return;
	if (bb->started)
	{
		finish_page(build);
		next = bb->number + 1;
	}
	else
		next = first_page_of_unit(build->shared,
								  (uint64) number * bb->geometry.nranges /
								  build->shared->unit_ranges);
	bx_block_put_even_pages(build->index, &bb->geometry, next, number,
							bb->typical_keys);
	start_page(bb, number);
	bb->started = true;
}

static void
reserve_keys(BlockBuild *bb, Size n)
{
	if (bb->nkeys + n <= bb->allocated)
		return;
	bb->allocated = Max(bb->nkeys + n, Min(bb->allocated * 2, bb->limit));
	bb->keys = repalloc_huge(bb->keys, sizeof(uint64) * bb->allocated);
}

/* Adds keys of a range; see BxLayout. */
void
bx_block_build_add(BxBuild *build, uint32 range, double done, const uint64 *keys,
				   Size nkeys, bool doubt)
{
	BlockBuild *bb = build->layout_state;
	int			child = range % bb->geometry.nranges;

	advance_to_page(build, range / bb->geometry.nranges);
	while (bb->child < child)
		bb->ends[++bb->child] = bb->nkeys;
	bb->counts[child] += nkeys;
	bb->doubt[child] |= doubt;

	/* out of memory: choose sizes from the keys seen so far */
	if (bb->nkeys + nkeys > bb->limit)
	{
		if (!bb->has_image)
			choose_sizes(bb);
		flush_keys(bb);
	}
	reserve_keys(bb, nkeys);
	memcpy(bb->keys + bb->nkeys, keys, sizeof(uint64) * nkeys);
	bb->nkeys += nkeys;
	bb->ends[child] = bb->nkeys;
}

/* Completes the unit, if it has keys. */
void
bx_block_build_unit(BxBuild *build, BxUnitResult *result)
{
	BlockBuild *bb = build->layout_state;
	uint64		unit;

	if (!bb->started)
		return;
	unit = (uint64) bb->number * bb->geometry.nranges /
		build->shared->unit_ranges;
	finish_page(build);
	bx_block_put_even_pages(build->index, &bb->geometry, (uint64) bb->number + 1,
							first_page_of_unit(build->shared, unit + 1),
							bb->typical_keys);
	result->block = bx_block_of_page(bb->number);
	result->keys = bb->all_keys;
	result->rates = bb->rates;
	result->pages.filters = bb->filters;
	result->pages.doubtful = bb->doubtful;
	bb->filters = bb->doubtful = bb->all_keys = bb->rates = 0;
	bb->started = false;
}

/*
 * Writes the pages of units without keys and the scratch page, and sets the
 * number of pages and the statistics in *meta.
 */
void
bx_block_build_publish(BxBuild *build, BxMetaPageData *meta)
{
	const BxBuildShared *shared = build->shared;
	BxBlockGeometry geometry = bx_block_geometry(meta);
	double		sampled_keys = meta->stats.range_keys;
	double		filters = 0;
	double		doubtful = 0;
	double		keys = 0;
	double		rates = 0;

	for (uint64 unit = 0; unit < shared->nunits; unit++)
	{
		const BxUnitResult *result = &shared->results[unit];

		filters += result->pages.filters;
		doubtful += result->pages.doubtful;
		keys += result->keys;
		rates += result->rates;
	}
	memset(&meta->stats, 0, sizeof(meta->stats));
	meta->block.nranges = 0;

	/* without any key, the first insert chooses the geometry */
	if (RelationGetNumberOfBlocks(build->index) <= BX_SCRATCH_BLKNO)
		return;
	meta->stats.range_keys = sampled_keys;
	meta->stats.range_rate = meta->false_positive_rate;
	bx_block_set_means(&meta->stats, filters, doubtful, keys, rates);
	bx_block_put_scratch(build->index, &geometry);
	for (uint64 unit = 0; unit < shared->nunits; unit++)
	{
		if (shared->results[unit].block == 0)
			bx_block_put_even_pages(build->index, &geometry,
									first_page_of_unit(shared, unit),
									first_page_of_unit(shared, unit + 1),
									meta->stats.range_keys);
	}
	meta->block.nranges = geometry.nranges;
	meta->block.pages = first_page_of_unit(shared, shared->nunits);
	meta->stats.parts = meta->block.pages;
	meta->stats.block.ranges_per_page = geometry.nranges;
}
