/*-------------------------------------------------------------------------
 *
 * block.c
 *	  Layout "block": the filters of consecutive ranges, each as large as its
 *	  keys need, packed into pages that are searched from first to last.
 *
 * How many ranges a page has is chosen once, when the first key comes, so the
 * page of a range is computed and needs no directory.  A page's space is
 * shared out by the keys of each range.
 *
 * The metapage tells how many pages there are.  They are made in order, under
 * LockPage on the metapage, and counted there when they are complete, before
 * the first key goes in.  So a page behind the last has no keys, and one
 * before it that is not what it should be is damaged.
 *
 * VACUUM rebuilds a page in the scratch page:
 *
 *	1. Count the keys of its ranges in the heap, which gives the sizes.
 *	2. Write new filters, without bits, to the scratch page.
 *	3. Flag the page as shadowed, under its exclusive lock.  From now on
 *	   inserters, who hold its lock, set their bits in both.
 *	4. Take the heap's size, read the ranges' heap pages, and add their keys
 *	   to the scratch page.
 *	5. Copy the scratch page over the page, under its exclusive lock.
 *
 * No row is lost, for the reason that rebuild.c gives.  Readers never look at
 * the scratch page.  A failure leaves a page that is shadowed, until the next
 * VACUUM takes the flag away; by then the scratch page may belong to another,
 * and inserters leave it alone: nobody will copy it over their page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/generic_xlog.h"
#include "access/xloginsert.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "bloomidx.h"

/* The heap is sampled in so many places, from its first to its last range, ... */
#define SAMPLE_WINDOWS		32

/*
 * ... in each of which so many ranges are read, but fewer if they would be more
 * pages; two at least, as the last one may have little yet.
 */
#define SAMPLE_RANGES		4
#define SAMPLE_PAGES		64

/* A unit of a build has about so many heap blocks. */
#define UNIT_BLOCKS			16384

/*
 * Automatic pages_per_range aims at this many keys in a range.  A search tests
 * all filters, and then reads the whole range that has the key: with more keys
 * to a range the former costs less and the latter more.  In ten million rows,
 * 75 a page, 8 pages take a third less time than one page does.
 */
#define AUTO_RANGE_KEYS		512

/* VACUUM gives up when so many pages could not be rebuilt. */
#define MAX_FAILURES		3

/* Elements from which on a page is copied rather than kept locked. */
#define MANY_ELEMENTS		8

typedef BxBlockGeometry Geometry;

Geometry
bx_block_geometry(const BxMetaPageData *meta)
{
	Geometry	geometry;

	geometry.lg_base = meta->lg_base;
	geometry.nranges = meta->block_ranges;
	geometry.target = meta->false_positive_rate;
	return geometry;
}

/*
 * Pages
 * -----
 */

/* Makes a page of filters without bits, for so many keys each. */
static void
make_page(char *image, uint8 kind, uint32 number, const Geometry *geometry,
		  const double *keys)
{
	int			n = geometry->nranges;
	uint16		sizes[BX_MAX_BLOCK_RANGES];
	uint16	   *offsets = BxPageGetOffsets(image, n);
	BxPageOpaqueData *opaque;

	bx_page_init(image, kind);
	opaque = BxPageGetOpaque(image);
	opaque->node = number;
	opaque->nslices = n;
	opaque->level = geometry->lg_base;
	bx_packed_share(keys, n, BX_BLOCK_SPACE(n), sizes);
	offsets[0] = 0;
	for (int i = 0; i < n; i++)
	{
		bx_packed_init(BxPageGetContent(image) + offsets[i], sizes[i], keys[i],
					   geometry->target);
		offsets[i + 1] = offsets[i] + sizes[i];
	}
}

/* The same with the same keys for each. */
static void
make_even_page(char *image, uint8 kind, uint32 number,
			   const Geometry *geometry, double keys)
{
	double		all[BX_MAX_BLOCK_RANGES] = {0};

	for (int i = 0; i < geometry->nranges; i++)
		all[i] = keys;
	make_page(image, kind, number, geometry, all);
}

/*
 * Ranges without keys may get some like the others', or like the typical one:
 * the smallest filter would be full at once.  Returns the mean of the others.
 */
static double
fill_in_counts(double *counts, int n, double typical)
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

/* Refuses a page that is not this page of filters.  Any lock will do. */
static void
check_identity(Relation index, Buffer buffer, uint8 kind, uint32 number,
			   const Geometry *geometry)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(BufferGetPage(buffer));

	bx_page_check(index, buffer, kind);
	if (opaque->node != number || opaque->nslices != geometry->nranges ||
		opaque->level != geometry->lg_base)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer),
						  "another page of filters");
}

/*
 * Refuses a page whose filters are not one behind the other, or have sizes that
 * none has: a filter that seems to start elsewhere would lose its keys.
 */
void
bx_block_check_offsets(Relation index, BlockNumber blkno, Page page,
					   const Geometry *geometry)
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

/* A filter of a page of which check_identity has been happy. */
static char *
get_filter(Relation index, Buffer buffer, const Geometry *geometry, int i,
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

BlockNumber
bx_block_of_page(uint32 number)
{
	uint64		blkno = (uint64) BX_FIRST_BLOCK_BLKNO + number;

	if (blkno > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index would have more than %u pages", MaxBlockNumber)));
	return (BlockNumber) blkno;
}

/* Refuses a file that ends before a block that must be there. */
static void
check_length(Relation index, BlockNumber nblocks, BlockNumber blkno)
{
	if (blkno >= nblocks)
		bx_page_corrupted(index, blkno, "there are fewer pages than counted");
}

/* Copies a page of filters, checked. */
void
bx_block_read_page(Relation index, uint32 number, const Geometry *geometry,
				   BufferAccessStrategy strategy, char *copy)
{
	BlockNumber blkno = bx_block_of_page(number);
	Buffer		buffer;

	check_length(index, RelationGetNumberOfBlocks(index), blkno);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL,
								strategy);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	check_identity(index, buffer, BX_PAGE_BLOCK, number, geometry);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	bx_block_check_offsets(index, blkno, copy, geometry);
}

/* Adds up what the fill of a page's filters tells. */
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

/* The mean rate of the filters that have keys. */
static double
rate_of_fill(const BxBlockFill *fill)
{
	return fill->filters > 0 ? fill->rates / fill->filters : 0;
}

/*
 * Whether a page is so full that a rebuild would make it better: fuller than
 * when it was made.  Else it is as good as it can be with so many ranges.
 */
bool
bx_block_is_overfull(const char *image, const BxBlockFill *fill, double target)
{
	const BxPageOpaqueData *opaque = BxPageGetOpaque(image);
	double		rate = rate_of_fill(fill);

	return rate > target * BX_RATE_TOLERANCE &&
		(rate > opaque->rate * BX_RATE_GROWTH ||
		 fill->keys > opaque->keys * BX_KEYS_TOLERANCE);
}

/* Notes in a page with all its bits how full it is. */
static void
set_baseline(char *image, int nranges, BxBlockFill *fill)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(image);

	bx_block_measure(image, nranges, fill);
	opaque->keys = (uint32) ceil(fill->keys);
	opaque->rate = rate_of_fill(fill);
	if (fill->doubtful > 0)
		opaque->flags |= BX_BLOCK_DOUBT;
}

/*
 * Geometry
 * --------
 */

/* The i-th smallest size that a filter can have. */
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
 * Whether filters of this size will do: on average, and in the last place,
 * which is what the ranges that come later will be like.
 */
static bool
is_large_enough(const double *keys, int n, Size size, double target)
{
	return mean_rate(keys, n, size, target) <= target &&
		bx_packed_rate(keys[n - 1], size, target) <= target * BX_RATE_TOLERANCE;
}

/*
 * The ranges that a page should have, if in n places of the heap, in order, a
 * range has so many keys: the most with which the rate meets the target.  One
 * page is the most that a filter can have.
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

/* Keys of the ranges that are sampled in one place. */
typedef struct Sample
{
	double		keys;
	int			nranges;		/* that have any */
	double		range_keys;		/* of the range at work */
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
 * Samples the keys per range in some places of the heap, and returns the
 * number of places that had any, or one.  Neighbouring ranges share a page, so
 * only their mean counts.
 */
static int
sample_keys(BxBuild *build, uint8 lg_base, double *keys)
{
	uint64		ranges = bx_dir_ranges(build->heap_blocks, lg_base);
	uint64		window = Max(2, Min(SAMPLE_RANGES, SAMPLE_PAGES >> lg_base));
	int			most = Max(8, Min(SAMPLE_WINDOWS, SAMPLE_WINDOWS * SAMPLE_PAGES /
								  (window << lg_base)));
	int			places = Max(1, Min(most, ranges / window));
	uint64		step = places > 1 ? (ranges - window) / (places - 1) : 0;
	BxHeapScan *scan;
	int			n = 0;

	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->memory / 8);
	for (int i = 0; i < places; i++)
	{
		uint64		first = i < places - 1 ? i * step : ranges - Min(window, ranges);
		Sample		sample = {0};

		bx_heapscan_ranges(scan, lg_base, first, Min(first + window, ranges),
						   build->heap_blocks, add_to_sample, &sample);
		if (sample.nranges > 0)
			keys[n++] = sample.keys / sample.nranges;
	}

	/* if all keys are elsewhere, they may be as many as rows can have */
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

/*
 * Building
 * --------
 *
 * A unit is some consecutive pages.  Those that get no key are written by
 * whoever builds the unit, if it gets any, else by the leader at the end.
 */
typedef struct BlockBuild
{
	Geometry	geometry;
	double		typical_keys;	/* of a range, for those that have none yet */
	bool		started;		/* the unit has keys */
	uint32		number;			/* the page at work */

	/* keys of the page at work, until they are too many or it is complete */
	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	Size		limit;
	int			child;			/* the last range that came, or -1 */
	Size		ends[BX_MAX_BLOCK_RANGES];	/* where its keys end */
	double		counts[BX_MAX_BLOCK_RANGES];
	bool		doubt[BX_MAX_BLOCK_RANGES];
	bool		has_image;		/* sizes are chosen; keys go there at once */
	PGAlignedBlock image;

	/* sums of the unit, for the statistics */
	double		filters;
	double		doubtful;
	double		all_keys;
	double		rates;
} BlockBuild;

static uint64
block_build_plan(BxBuild *build, BxMetaPageData *meta)
{
	double		keys[SAMPLE_WINDOWS];
	int			n = sample_keys(build, meta->lg_base, keys);
	double		sum = 0;
	uint64		page_blocks;

	for (int i = 0; i < n; i++)
		sum += keys[i];
	meta->stats.range_keys = sum / n;
	meta->block_ranges = bx_block_choose_ranges(keys, n, meta->false_positive_rate);
	page_blocks = (uint64) meta->block_ranges << meta->lg_base;
	return meta->block_ranges * Max(UNIT_BLOCKS / page_blocks, 1);
}

static void
block_build_begin(BxBuild *build)
{
	BlockBuild *bb = palloc0(sizeof(BlockBuild));

	bb->geometry = bx_block_geometry(&build->shared->meta);
	bb->typical_keys = build->shared->meta.stats.range_keys;
	bb->limit = Max(build->memory / 2 / sizeof(uint64), 8192);
	bb->allocated = 8192;
	bb->keys = palloc(sizeof(uint64) * bb->allocated);
	build->layout_state = bb;
}

static void
block_build_end(BxBuild *build)
{
	BlockBuild *bb = build->layout_state;

	pfree(bb->keys);
	pfree(bb);
}

/* Writes a page that nobody knows of yet, at its place. */
static void
put_page(Relation index, BlockNumber blkno, const char *image)
{
	bx_page_extend_to(index, blkno);
	bx_page_write_new(index, blkno, image, true);
}

/* Makes the scratch page. */
static void
put_scratch(Relation index, const Geometry *geometry)
{
	PGAlignedBlock image;

	make_even_page(image.data, BX_PAGE_SCRATCH, 0, geometry, 0);
	put_page(index, BX_SCRATCH_BLKNO, image.data);
}

/* Makes pages without keys. */
static void
put_even_pages(Relation index, const Geometry *geometry, uint64 first,
			   uint64 end, double keys)
{
	PGAlignedBlock image;

	for (uint64 i = first; i < end; i++)
	{
		CHECK_FOR_INTERRUPTS();
		make_even_page(image.data, BX_PAGE_BLOCK, i, geometry, keys);
		put_page(index, bx_block_of_page(i), image.data);
	}
}

/* Sets the bits of the collected keys. */
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
 * Chooses the sizes of the page at work by the keys that have come.  The last
 * range that has any may still grow, so it is taken to be like the others.
 */
static void
choose_sizes(BlockBuild *bb)
{
	double		keys[BX_MAX_BLOCK_RANGES];

	memcpy(keys, bb->counts, sizeof(keys));
	bb->typical_keys = fill_in_counts(keys, bb->geometry.nranges,
									  bb->typical_keys);
	if (bb->child >= 0)
		keys[bb->child] = Max(keys[bb->child], bb->typical_keys);
	make_page(bb->image.data, BX_PAGE_BLOCK, bb->number, &bb->geometry, keys);
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

/* Writes the page at work. */
static void
finish_page(BxBuild *build)
{
	BlockBuild *bb = build->layout_state;
	BxBlockFill fill;

	if (!bb->has_image)
		choose_sizes(bb);
	flush_keys(bb);
	set_baseline(bb->image.data, bb->geometry.nranges, &fill);
	bb->filters += fill.filters;
	bb->doubtful += fill.doubtful;
	bb->all_keys += fill.keys;
	bb->rates += fill.rates;
	put_page(build->index, bx_block_of_page(bb->number), bb->image.data);
}

/* The first page of a unit; of the one behind the last, the end of all. */
static uint64
first_page_of_unit(const BxBuildShared *shared, uint64 unit)
{
	uint64		ranges = bx_dir_ranges(shared->heap_blocks,
									   shared->meta.lg_base);
	int			nranges = shared->meta.block_ranges;

	return Min(unit * (shared->unit_ranges / nranges),
			   (ranges + nranges - 1) / nranges);
}

/* Goes on to a page of the unit. */
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
	put_even_pages(build->index, &bb->geometry, next, number,
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

/* Takes keys of a range; see BxLayout. */
static void
block_build_add(BxBuild *build, uint32 range, double done, const uint64 *keys,
				Size nkeys, bool doubt)
{
	BlockBuild *bb = build->layout_state;
	int			child = range % bb->geometry.nranges;

	advance_to_page(build, range / bb->geometry.nranges);
	while (bb->child < child)
		bb->ends[++bb->child] = bb->nkeys;
	bb->counts[child] += nkeys;
	bb->doubt[child] |= doubt;

	/* if they get too many, these have to do to choose the sizes */
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
static void
block_build_unit(BxBuild *build, BxUnitResult *result)
{
	BlockBuild *bb = build->layout_state;
	uint64		unit;

	if (!bb->started)
		return;
	unit = (uint64) bb->number * bb->geometry.nranges /
		build->shared->unit_ranges;
	finish_page(build);
	put_even_pages(build->index, &bb->geometry, (uint64) bb->number + 1,
				   first_page_of_unit(build->shared, unit + 1),
				   bb->typical_keys);
	result->block = bx_block_of_page(bb->number);
	result->sums.slices = bb->filters;	/* that are summed up here */
	result->sums.segments = bb->doubtful;
	result->sums.range_keys = bb->all_keys;
	result->sums.segment_rate = bb->rates;
	bb->filters = bb->doubtful = bb->all_keys = bb->rates = 0;
	bb->started = false;
}

/*
 * Tells the planner what all filters together are like.  Those in doubt match
 * everything, and do not show their keys.  If no filter tells, what is known
 * stays.
 */
static void
set_means(BxStats *stats, double filters, double doubtful, double keys,
		  double rates)
{
	if (filters > 0)
		stats->range_keys = keys / filters;
	if (filters + doubtful > 0)
		stats->segment_rate = (rates + doubtful) / (filters + doubtful);
}

/* Makes what pages are missing, and counts them. */
static void
block_build_publish(BxBuild *build, BxMetaPageData *meta)
{
	const BxBuildShared *shared = build->shared;
	Geometry	geometry = bx_block_geometry(meta);
	double		sampled_keys = meta->stats.range_keys;
	double		filters = 0;
	double		doubtful = 0;
	double		keys = 0;
	double		rates = 0;

	for (uint64 unit = 0; unit < shared->nunits; unit++)
	{
		filters += shared->results[unit].sums.slices;
		doubtful += shared->results[unit].sums.segments;
		keys += shared->results[unit].sums.range_keys;
		rates += shared->results[unit].sums.segment_rate;
	}
	memset(&meta->stats, 0, sizeof(meta->stats));
	meta->block_ranges = 0;

	/* if no key has come, the first one will tell the geometry */
	if (RelationGetNumberOfBlocks(build->index) <= BX_SCRATCH_BLKNO)
		return;
	meta->stats.range_keys = sampled_keys;
	meta->stats.segment_rate = meta->false_positive_rate;
	set_means(&meta->stats, filters, doubtful, keys, rates);
	put_scratch(build->index, &geometry);
	for (uint64 unit = 0; unit < shared->nunits; unit++)
	{
		if (shared->results[unit].block == 0)
			put_even_pages(build->index, &geometry,
						   first_page_of_unit(shared, unit),
						   first_page_of_unit(shared, unit + 1),
						   meta->stats.range_keys);
	}
	meta->block_ranges = geometry.nranges;
	meta->block_pages = first_page_of_unit(shared, shared->nunits);
	meta->stats.segments = meta->block_pages;
	meta->stats.ranges_per_page = geometry.nranges;
}

/*
 * Inserting
 * ---------
 */
typedef struct BlockInsert
{
	Geometry	geometry;
	uint32		npages;			/* there are at least so many */
	BlockNumber index_blocks;	/* and the file has so many blocks */
} BlockInsert;

/* Notes what pages there are: most rows belong to one of them. */
static void *
block_insert_begin(const BxMetaPageData *meta)
{
	BlockInsert *state = palloc(sizeof(BlockInsert));

	state->geometry = bx_block_geometry(meta);
	state->npages = meta->block_pages;
	state->index_blocks = 0;
	return state;
}

/* Chooses the geometry by the first row. */
static void
choose_geometry(BxMetaPageData *meta, Relation index, Relation heap,
				ItemPointer tid)
{
	int			natts = IndexRelationGetNumberOfKeyAttributes(index);
	double		keys = bx_dir_rows_per_page(heap, tid) * natts;

	if (meta->lg_base == BX_LG_BASE_UNSET)
		meta->lg_base = bx_dir_auto_lg_base(&bx_layout_block, keys);
	keys = keys * (1 << meta->lg_base) + natts;
	meta->block_ranges = bx_block_choose_ranges(&keys, 1, meta->false_positive_rate);
	meta->stats.range_keys = keys;
	meta->stats.segment_rate = meta->false_positive_rate;
	meta->stats.ranges_per_page = meta->block_ranges;
}

/* Keys that the ranges of a new page should be planned for. */
static double
keys_of_last_page(Relation index, const BxMetaPageData *meta)
{
	Geometry	geometry = bx_block_geometry(meta);
	PGAlignedBlock page;
	BxBlockFill fill;

	if (meta->block_pages == 0)
		return meta->stats.range_keys;
	bx_block_read_page(index, meta->block_pages - 1, &geometry, NULL, page.data);
	bx_block_measure(page.data, geometry.nranges, &fill);
	return fill.filters >= Min(BX_FEW_CHILDREN, geometry.nranges) ?
		fill.keys / fill.filters : Max(meta->stats.range_keys, 1);
}

/*
 * Makes all pages up to that of a row, and counts them in the metapage.  Pages
 * that a failure has left uncounted are written anew.
 */
static void
make_pages(BlockInsert *state, Relation index, Relation heap, ItemPointer tid)
{
	BxMetaPageData meta;
	uint32		wanted;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	if (meta.block_ranges == 0)
		choose_geometry(&meta, index, heap, tid);
	state->geometry = bx_block_geometry(&meta);
	wanted = (ItemPointerGetBlockNumber(tid) >> meta.lg_base) /
		meta.block_ranges + 1;
	if (meta.block_pages < wanted)
	{
		if (meta.block_pages == 0)
			put_scratch(index, &state->geometry);
		put_even_pages(index, &state->geometry, meta.block_pages, wanted,
					   keys_of_last_page(index, &meta));
		BX_PAUSE(BX_PAUSE_ALLOCATED);
		meta.block_pages = wanted;

		/* should block_pages be damaged, this tells that pages are missing */
		meta.stats.segments = wanted;
		bx_meta_write(index, &meta);
	}
	state->npages = meta.block_pages;
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/* Whether a filter, on whose page there is a lock, has all keys of a row. */
static bool
has_row(const char *filter, Size size, const BxRowKeys *row)
{
	for (int i = 0; i < row->nkeys; i++)
	{
		if (!bx_packed_test(filter, size, row->keys[i]))
			return false;
	}
	return true;
}

/* Sets a row's bits in a filter of a page that is locked exclusively. */
static void
set_row(Relation index, Buffer buffer, char *filter, Size size,
		const BxRowKeys *row)
{
	Size		start = filter - (char *) BufferGetPage(buffer);

	for (int i = 0; i < row->nkeys; i++)
	{
		uint32		positions[BX_PACKED_MAX_PROBES];
		BxPageBits	bits;

		if (bx_packed_test(filter, size, row->keys[i]))
			continue;
		bits.buffer = buffer;
		bits.lower = BX_OPAQUE_OFFSET;
		bits.n = bx_packed_positions(filter, size, row->keys[i], positions);
		for (int j = 0; j < bits.n; j++)
		{
			bits.at[j].offset = start + positions[j] / 8;
			bits.at[j].bit = 1 << (positions[j] % 8);
		}
		bx_page_set_bits(index, &bits, 1);
	}
}

/* A page of filters and perhaps the scratch page, pinned. */
typedef struct RowPages
{
	Relation	index;
	const Geometry *geometry;
	uint32		number;
	int			child;
	Buffer		buffer;
	Buffer		scratch;
} RowPages;

/*
 * Locks the page of filters.  Returns whether it is shadowed, in which case
 * the scratch page is pinned: no page is read while a lock is held.
 */
static bool
lock_page(RowPages *pages, int mode)
{
	for (;;)
	{
		bool		shadowed;

		LockBuffer(pages->buffer, mode);
		check_identity(pages->index, pages->buffer, BX_PAGE_BLOCK,
					   pages->number, pages->geometry);
		shadowed = (BxPageGetOpaque(BufferGetPage(pages->buffer))->flags &
					BX_BLOCK_SHADOWED) != 0;
		if (!shadowed || BufferIsValid(pages->scratch))
			return shadowed;
		LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
		pages->scratch = ReadBuffer(pages->index, BX_SCRATCH_BLKNO);
	}
}

/*
 * Locks the scratch page, and finds the row's filter there.  Returns NULL if
 * the page is another's.
 */
static char *
lock_scratch(RowPages *pages, int mode, Size *size)
{
	LockBuffer(pages->scratch, mode);
	bx_page_check(pages->index, pages->scratch, BX_PAGE_SCRATCH);
	if (BxPageGetOpaque(BufferGetPage(pages->scratch))->node != pages->number)
		return NULL;
	check_identity(pages->index, pages->scratch, BX_PAGE_SCRATCH,
				   pages->number, pages->geometry);
	return get_filter(pages->index, pages->scratch, pages->geometry,
					  pages->child, size);
}

/* Whether a row's bits are all set.  A share lock waits for their record. */
static bool
find_row(RowPages *pages, const BxRowKeys *row)
{
	bool		shadowed = lock_page(pages, BUFFER_LOCK_SHARE);
	Size		size;
	char	   *filter = get_filter(pages->index, pages->buffer,
									pages->geometry, pages->child, &size);
	bool		found = has_row(filter, size, row);

	if (found && shadowed)
	{
		filter = lock_scratch(pages, BUFFER_LOCK_SHARE, &size);
		found = filter == NULL || has_row(filter, size, row);
		LockBuffer(pages->scratch, BUFFER_LOCK_UNLOCK);
	}
	LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
	return found;
}

static void
add_row(RowPages *pages, const BxRowKeys *row)
{
	bool		shadowed = lock_page(pages, BUFFER_LOCK_EXCLUSIVE);
	Size		size;
	char	   *filter = get_filter(pages->index, pages->buffer,
									pages->geometry, pages->child, &size);

	set_row(pages->index, pages->buffer, filter, size, row);
	if (shadowed)
	{
		filter = lock_scratch(pages, BUFFER_LOCK_EXCLUSIVE, &size);
		if (filter)
			set_row(pages->index, pages->scratch, filter, size, row);
		LockBuffer(pages->scratch, BUFFER_LOCK_UNLOCK);
	}
	LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
}

/* Pins the page of a heap row's filter, which is made if it is not there. */
static void
pin_pages(BxInsert *insert, Relation heap, ItemPointer tid, RowPages *pages)
{
	BlockInsert *state = insert->layout_state;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	BlockNumber page;
	uint32		range;

	if (state->npages == 0 ||
		(blkno >> state->geometry.lg_base) / state->geometry.nranges >=
		state->npages)
		make_pages(state, insert->index, heap, tid);
	range = blkno >> state->geometry.lg_base;
	pages->index = insert->index;
	pages->geometry = &state->geometry;
	pages->number = range / state->geometry.nranges;
	pages->child = range % state->geometry.nranges;
	page = bx_block_of_page(pages->number);
	if (page >= state->index_blocks)
		state->index_blocks = RelationGetNumberOfBlocks(insert->index);
	check_length(insert->index, state->index_blocks, page);
	pages->buffer = ReadBuffer(insert->index, page);
	pages->scratch = InvalidBuffer;
}

static void
block_insert(BxInsert *insert, Relation heap, ItemPointer tid,
			 const BxRowKeys *row)
{
	RowPages	pages;

	pin_pages(insert, heap, tid, &pages);
	BX_PAUSE(BX_PAUSE_INSERT_KEY);
	if (!find_row(&pages, row))
		add_row(&pages, row);
	ReleaseBuffer(pages.buffer);
	if (BufferIsValid(pages.scratch))
		ReleaseBuffer(pages.scratch);
}

/*
 * Puts the range of a heap page in doubt.  The caller keeps VACUUM out, so
 * nobody will ever use what the scratch page has for this page.
 */
static void
block_insert_doubt(BxInsert *insert, Relation heap, ItemPointer tid)
{
	Relation	index = insert->index;
	RowPages	pages;
	GenericXLogState *state;
	Page		page;
	Size		size;
	Size		offset;

	pin_pages(insert, heap, tid, &pages);
	LockBuffer(pages.buffer, BUFFER_LOCK_EXCLUSIVE);
	check_identity(index, pages.buffer, BX_PAGE_BLOCK, pages.number,
				   pages.geometry);
	offset = get_filter(index, pages.buffer, pages.geometry, pages.child,
						&size) - (char *) BufferGetPage(pages.buffer);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, pages.buffer, 0);
	bx_packed_set_doubt((char *) page + offset, size);
	BxPageGetOpaque(page)->flags |= BX_BLOCK_DOUBT;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(pages.buffer);
}

/*
 * Searching
 * ---------
 */
typedef struct BlockSearch
{
	BxSearch   *search;
	Geometry	geometry;
	BxPackedProbe probe;
	uint8		matches[BX_MAX_BLOCK_RANGES];	/* all keys so far */
	uint8		found[BX_MAX_BLOCK_RANGES]; /* the key at hand */
	uint8		one[BX_MAX_BLOCK_RANGES];	/* one element */
} BlockSearch;

/* ORs or ANDs n bytes that are 0 or 1. */
static void
or_bytes(uint8 *to, const uint8 *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] |= from[i];
}

static void
and_bytes(uint8 *to, const uint8 *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] &= from[i];
}

/* Tests all filters of a page for one element. */
static void
probe_page(BlockSearch *state, Page page, uint64 hash, uint8 *result)
{
	int			n = state->geometry.nranges;

	state->probe(BxPageGetContent(page), BxPageGetOffsets(page, n), n, hash,
				 result);
}

/* Tests all filters of a page: every key must match, by one of its elements. */
static void
test_page(BlockSearch *state, Page page, bool interruptible)
{
	const BxQuery *query = state->search->query;
	int			n = state->geometry.nranges;
	int			element = 0;

	for (int key = 0; key < query->nkeys; key++)
	{
		uint8	   *found = key == 0 ? state->matches : state->found;

		if (key > 0 && memchr(state->matches, 1, n) == NULL)
			return;

		/* every key has elements, and those of a key stand together */
		probe_page(state, page, query->elements[element++].hash, found);
		for (; element < query->nelements &&
			 query->elements[element].key == key; element++)
		{
			if (interruptible)
				CHECK_FOR_INTERRUPTS();
			probe_page(state, page, query->elements[element].hash, state->one);
			or_bytes(found, state->one, n);
		}
		if (key > 0)
			and_bytes(state->matches, found, n);
	}
}

/* Tests a page.  With many elements it is copied, to be locked for less time. */
static void
search_page(BlockSearch *state, uint32 number)
{
	BxSearch   *search = state->search;
	Relation	index = search->index;
	BlockNumber blkno = bx_block_of_page(number);
	Buffer		buffer;
	Page		page;
	PGAlignedBlock copy;

	BX_PAUSE(BX_PAUSE_SEARCH_SLICE);
	buffer = ReadBuffer(index, blkno);
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_test_for_old_snapshot(search->snapshot, index, page);
	check_identity(index, buffer, BX_PAGE_BLOCK, number, &state->geometry);
	bx_block_check_offsets(index, blkno, page, &state->geometry);
	if (search->query->nelements < MANY_ELEMENTS)
	{
		test_page(state, page, false);
		UnlockReleaseBuffer(buffer);
	}
	else
	{
		memcpy(copy.data, page, BLCKSZ);
		UnlockReleaseBuffer(buffer);
		test_page(state, copy.data, true);
	}
}

static int64
count_reads(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/*
 * Asks for the pages ahead, as soon as one had to be read: what is in memory
 * anyway needs no asking.
 */
static void
prefetch_pages(Relation index, uint32 number, uint32 end, int distance,
			   uint32 *asked)
{
	uint32		to = Min((uint64) number + 1 + distance, end);

	for (*asked = Max(*asked, number + 1); *asked < to; (*asked)++)
		PrefetchBuffer(index, MAIN_FORKNUM, bx_block_of_page(*asked));
}

/* Reports the ranges of a page that match; most do not. */
static void
add_matches(BlockSearch *state, uint32 number, uint64 ranges)
{
	int			n = state->geometry.nranges;
	uint64		first = (uint64) number * n;
	const uint8 *end = state->matches + Min(n, ranges - first);
	const uint8 *match = state->matches;

	while ((match = memchr(match, 1, end - match)) != NULL)
	{
		bx_scan_add_range(state->search, first + (match - state->matches));
		match++;
	}
}

static void
block_search(BxSearch *search)
{
	Relation	index = search->index;
	int			distance = get_tablespace_io_concurrency(index->rd_rel->reltablespace);
	uint64		ranges = bx_dir_ranges(search->heap_blocks, search->lg_base);
	BlockSearch *state = palloc(sizeof(BlockSearch));
	BxMetaPageData meta;
	uint32		npages;
	uint32		asked = 0;

	bx_meta_read(index, &meta);
	if (meta.block_pages == 0)
		return;
	check_length(index, RelationGetNumberOfBlocks(index),
				 bx_block_of_page(meta.block_pages - 1));
	if (meta.lg_base != search->lg_base)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "pages_per_range has changed");
	state->search = search;
	state->geometry = bx_block_geometry(&meta);
	state->probe = bx_packed_choose_probe();
	npages = Min((ranges + meta.block_ranges - 1) / meta.block_ranges,
				 meta.block_pages);
	for (uint32 i = 0; i < npages; i++)
	{
		int64		reads = count_reads();

		CHECK_FOR_INTERRUPTS();
		search_page(state, i);
		if (count_reads() > reads)
			prefetch_pages(index, i, npages, distance, &asked);
		add_matches(state, i, ranges);
	}
}

/*
 * Vacuum
 * ------
 */
typedef struct PageRebuild
{
	BxVacuum   *vacuum;
	Geometry	geometry;
	double		typical_keys;	/* of a range, for pages that have none */
	uint32		number;
	double		counts[BX_MAX_BLOCK_RANGES];
	PGAlignedBlock image;
} PageRebuild;

/* Changes the flags of a page of filters. */
static void
set_flags(Relation index, uint32 number, const Geometry *geometry, uint16 set,
		  uint16 clear)
{
	Buffer		buffer = ReadBuffer(index, bx_block_of_page(number));
	GenericXLogState *state;
	BxPageOpaqueData *opaque;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	check_identity(index, buffer, BX_PAGE_BLOCK, number, geometry);
	state = GenericXLogStart(index);
	opaque = BxPageGetOpaque(GenericXLogRegisterBuffer(state, buffer, 0));
	opaque->flags = (opaque->flags & ~clear) | set;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

static void
count_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	PageRebuild *rebuild = arg;

	rebuild->counts[range % rebuild->geometry.nranges] += nkeys;
}

/* Adds the keys of a range to the image. */
static void
add_range(void *arg, uint32 range, double done, const uint64 *keys, Size nkeys,
		  bool doubt)
{
	PageRebuild *rebuild = arg;
	int			n = rebuild->geometry.nranges;
	const uint16 *offsets = BxPageGetOffsets(rebuild->image.data, n);
	int			child = range % n;
	char	   *filter = BxPageGetContent(rebuild->image.data) + offsets[child];
	Size		size = offsets[child + 1] - offsets[child];

	for (Size i = 0; i < nkeys; i++)
		bx_packed_add(filter, size, keys[i]);
	if (doubt)
		bx_packed_set_doubt(filter, size);
}

static void
scan_page_ranges(PageRebuild *rebuild, BxRangeCallback callback)
{
	bx_vacuum_scan_ranges(rebuild->vacuum, rebuild->geometry.lg_base,
						  (uint64) rebuild->number * rebuild->geometry.nranges,
						  rebuild->geometry.nranges, callback, rebuild);
}

/* ORs the image's filters into the scratch page, where others set bits, too. */
static void
write_scratch(PageRebuild *rebuild)
{
	Relation	index = rebuild->vacuum->index;
	Buffer		buffer = ReadBuffer(index, BX_SCRATCH_BLKNO);
	char	   *to = BxPageGetContent(BufferGetPage(buffer));
	const char *from = BxPageGetContent(rebuild->image.data);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	check_identity(index, buffer, BX_PAGE_SCRATCH, rebuild->number,
				   &rebuild->geometry);
	START_CRIT_SECTION();
	for (Size i = 0; i < BX_BLOCK_SPACE(rebuild->geometry.nranges); i++)
		to[i] |= from[i];
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* Copies the scratch page over the page. */
static void
swap_page(PageRebuild *rebuild)
{
	Relation	index = rebuild->vacuum->index;
	Buffer		buffer = ReadBuffer(index, bx_block_of_page(rebuild->number));
	Buffer		scratch = ReadBuffer(index, BX_SCRATCH_BLKNO);
	GenericXLogState *state;
	char	   *page;
	BxBlockFill fill;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	LockBuffer(scratch, BUFFER_LOCK_SHARE);
	check_identity(index, buffer, BX_PAGE_BLOCK, rebuild->number,
				   &rebuild->geometry);
	check_identity(index, scratch, BX_PAGE_SCRATCH, rebuild->number,
				   &rebuild->geometry);
	bx_block_check_offsets(index, BX_SCRATCH_BLKNO, BufferGetPage(scratch),
						   &rebuild->geometry);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE);
	memcpy(BxPageGetContent(page), BxPageGetContent(BufferGetPage(scratch)),
		   BX_CONTENT_SIZE);
	BxPageGetOpaque(page)->flags = 0;
	set_baseline(page, rebuild->geometry.nranges, &fill);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(scratch);
	UnlockReleaseBuffer(buffer);
}

/* Rebuilds a page: the five steps. */
static void
rebuild_page(void *arg)
{
	PageRebuild *rebuild = arg;
	Relation	index = rebuild->vacuum->index;

	memset(rebuild->counts, 0, sizeof(rebuild->counts));
	scan_page_ranges(rebuild, count_range);
	fill_in_counts(rebuild->counts, rebuild->geometry.nranges,
				   rebuild->typical_keys);
	make_page(rebuild->image.data, BX_PAGE_SCRATCH, rebuild->number,
			  &rebuild->geometry, rebuild->counts);
	bx_page_write_new(index, BX_SCRATCH_BLKNO, rebuild->image.data, true);
	set_flags(index, rebuild->number, &rebuild->geometry, BX_BLOCK_SHADOWED, 0);
	BX_PAUSE(BX_PAUSE_PUBLISHED);
	scan_page_ranges(rebuild, add_range);
	write_scratch(rebuild);
	BX_PAUSE(BX_PAUSE_FILLED);
	swap_page(rebuild);
	rebuild->vacuum->pages++;
}

/* Lets inserters forget a rebuild that has failed. */
static void
give_up_page(void *arg)
{
	PageRebuild *rebuild = arg;

	set_flags(rebuild->vacuum->index, rebuild->number, &rebuild->geometry, 0,
			  BX_BLOCK_SHADOWED);
}

/* Whether the page should be rebuilt. */
static bool
needs_rebuild(const PageRebuild *rebuild, const char *page)
{
	BxBlockFill fill;

	/* what has failed so often will go on to fail */
	if (rebuild->vacuum->failures >= MAX_FAILURES || !rebuild->vacuum->may_rebuild)
		return false;
	bx_block_measure(page, rebuild->geometry.nranges, &fill);
	return fill.doubtful > 0 ||
		bx_block_is_overfull(page, &fill, rebuild->geometry.target);
}

static void
repair_page(PageRebuild *rebuild)
{
	Relation	index = rebuild->vacuum->index;
	PGAlignedBlock page;

	bx_vacuum_delay_point();
	bx_block_read_page(index, rebuild->number, &rebuild->geometry,
					   rebuild->vacuum->strategy, page.data);
	if (BxPageGetOpaque(page.data)->flags & BX_BLOCK_SHADOWED)
		give_up_page(rebuild);
	if (needs_rebuild(rebuild, page.data))
		bx_vacuum_try(rebuild->vacuum, rebuild_page, give_up_page, rebuild);
}

/* Repairs the pages of ranges that the heap has. */
static void
block_repair(BxVacuum *vacuum)
{
	PageRebuild *rebuild = palloc(sizeof(PageRebuild));
	BxMetaPageData meta;
	uint64		ranges;

	bx_meta_read(vacuum->index, &meta);
	if (meta.block_pages == 0)
		return;
	rebuild->vacuum = vacuum;
	rebuild->geometry = bx_block_geometry(&meta);
	rebuild->typical_keys = meta.stats.range_keys;
	ranges = bx_dir_ranges(RelationGetNumberOfBlocks(vacuum->heap),
						   meta.lg_base);
	for (uint32 i = 0; i < meta.block_pages &&
		 (uint64) i * meta.block_ranges < ranges; i++)
	{
		rebuild->number = i;
		repair_page(rebuild);
	}
	pfree(rebuild);
}

/*
 * Statistics
 * ----------
 */
static void
block_collect_stats(Relation index, BxStats *stats,
					BufferAccessStrategy strategy)
{
	BxMetaPageData meta;
	Geometry	geometry;
	double		filters = 0;
	double		doubtful = 0;
	double		keys = 0;
	double		rates = 0;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	geometry = bx_block_geometry(&meta);
	stats->segments = meta.block_pages;
	stats->ranges_per_page = meta.block_ranges;
	stats->range_keys = meta.stats.range_keys;
	stats->segment_rate = meta.stats.segment_rate;
	for (uint32 i = 0; i < meta.block_pages; i++)
	{
		PGAlignedBlock page;
		BxBlockFill fill;

		bx_vacuum_delay_point();
		bx_block_read_page(index, i, &geometry, strategy, page.data);
		bx_block_measure(page.data, geometry.nranges, &fill);
		filters += fill.filters;
		doubtful += fill.doubtful;
		keys += fill.keys;
		rates += fill.rates;
	}
	set_means(stats, filters, doubtful, keys, rates);
}

/* All pages are read, whatever the search is for. */
static double
block_search_pages(const BxStats *stats, double ranges, double elements,
				   double hit_ranges)
{
	double		per_page = stats->ranges_per_page > 0 ?
	stats->ranges_per_page : BX_MAX_BLOCK_RANGES / 4;

	return ceil(ranges / per_page);
}

const BxLayout bx_layout_block = {
	.id = BX_LAYOUT_BLOCK,
	.name = "block",
	.sequential = true,
	.auto_range_keys = AUTO_RANGE_KEYS,
	.build_plan = block_build_plan,
	.build_begin = block_build_begin,
	.build_add = block_build_add,
	.build_unit = block_build_unit,
	.build_end = block_build_end,
	.build_publish = block_build_publish,
	.insert_begin = block_insert_begin,
	.insert = block_insert,
	.insert_doubt = block_insert_doubt,
	.search = block_search,
	.repair = block_repair,
	.collect_stats = block_collect_stats,
	.search_pages = block_search_pages,
	.shown_by = "bloomidx_blocks",
	.walk = bx_block_walk,
	.check_claims = bx_block_check_claims,
	.check_pages = bx_block_check_pages,
	.check_keys = bx_block_check_keys,
	.estimate = bx_block_estimate,
};
