/*-------------------------------------------------------------------------
 *
 * sample.c
 *	  Counts the distinct keys in a sample of the pages of a table, for an
 *	  index that does not exist.
 *
 * The sample consists of windows of consecutive pages, spread from the first
 * page of the table to the last.  Numbered in this order, its pages are
 * divided into blocks of 1, 2, 4, ... pages, and the distinct keys of each
 * block are counted.  Blocks up to the size of a window show how many keys
 * consecutive pages have in common.  The pages of larger blocks are scattered,
 * but such a block is assumed to have as many distinct keys as the same number
 * of consecutive pages.
 *
 * For more pages than the sample has, the counts are extrapolated.  If the
 * second half of a block adds q times as many new keys as the second quarter,
 * each further doubling is assumed to add q times as many as the one before.
 * If most keys are distinct, so that the number of keys is proportional to the
 * number of pages, q is 2; if further pages have almost no new keys, q is near
 * 0.  For text, the number of distinct words is about a power of the length of
 * the text, so q is a constant between these values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "../heap/heap.h"
#include "functions.h"

#define WINDOW_PAGES	32
#define SAMPLE_PAGES	1024

/*
 * Maximum number of keys in memory.  If there are more keys, only the keys
 * with a small position (bx_hash_position) are counted: these are a random
 * sample of all keys, and the same sample on every page.
 */
#define MAX_KEYS		(1 << 20)

/* A key, and the number of a page of the sample that has it. */
typedef struct PageKey
{
	uint64		key;
	uint32		page;
} PageKey;

typedef struct Sampling
{
	uint32		npages;
	PageKey    *keys;
	int			n;
	uint64		salt;			/* see bx_hash_position() */
	int			shift;			/* -log2 of the part of the keys that are
								 * counted */
} Sampling;

#define ST_SORT sort_page_keys
#define ST_ELEMENT_TYPE PageKey
#define ST_COMPARE(a, b) \
	((a)->key != (b)->key ? ((a)->key < (b)->key ? -1 : 1) : \
	 (a)->page < (b)->page ? -1 : (a)->page > (b)->page)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static bool
is_counted(const Sampling *sampling, uint64 key)
{
	return sampling->shift == 0 ||
		bx_hash_position(key, sampling->salt, 64 - sampling->shift) == 0;
}

/* Halves the part of the keys that are counted. */
static void
count_fewer(Sampling *sampling)
{
	int			kept = 0;

	sampling->shift++;
	for (int i = 0; i < sampling->n; i++)
	{
		if (is_counted(sampling, sampling->keys[i].key))
			sampling->keys[kept++] = sampling->keys[i];
	}
	sampling->n = kept;
}

/* Adds the distinct keys of a page. */
static void
add_page(Sampling *sampling, uint32 page, const uint64 *keys, Size n)
{
	for (Size i = 0; i < n; i++)
	{
		if (!is_counted(sampling, keys[i]))
			continue;
		while (sampling->n == MAX_KEYS)
			count_fewer(sampling);
		if (is_counted(sampling, keys[i]))
		{
			sampling->keys[sampling->n].key = keys[i];
			sampling->keys[sampling->n++].page = page;
		}
	}
}

/* Reads the pages of the sample.  Returns the number of rows on them. */
static double
read_pages(Relation table, const BxHypothetical *hypothetical, uint8 which,
		   BlockNumber heap_blocks, Sampling *sampling)
{
	BxHeapScan *scan = bx_heapscan_begin(table, hypothetical->index,
										 hypothetical->info, which,
										 (Size) work_mem * 1024);
	uint32		windows = SAMPLE_PAGES / WINDOW_PAGES;
	double		rows;
	double		indexed;

	bx_heapscan_set_snapshot(scan, GetActiveSnapshot());
	for (uint32 page = 0; page < sampling->npages; page++)
	{
		uint64		blkno = page;
		const uint64 *keys;
		bool		doubt;
		Size		n;

		if (heap_blocks > SAMPLE_PAGES)
			blkno = page % WINDOW_PAGES + (uint64) (page / WINDOW_PAGES) *
				(heap_blocks - WINDOW_PAGES) / (windows - 1);
		bx_heapscan_block(scan, (BlockNumber) blkno);
		n = bx_heapscan_keys(scan, &keys, &doubt);
		add_page(sampling, page, keys, n);
		bx_heapscan_clear(scan);
	}
	bx_heapscan_tuples(scan, &rows, &indexed);
	bx_heapscan_end(scan);
	return rows;
}

/*
 * Returns the distinct keys of a block of 2^lg pages: the mean over all
 * complete blocks.
 */
static double
count_keys(const Sampling *sampling, int lg)
{
	uint32		nblocks = sampling->npages >> lg;
	double		count = 0;

	for (int i = 0; i < sampling->n; i++)
	{
		const PageKey *this = &sampling->keys[i];
		const PageKey *last = this - 1;

		if (this->page >> lg < nblocks &&
			(i == 0 || last->key != this->key ||
			 last->page >> lg != this->page >> lg))
			count++;
	}
	return ldexp(count, sampling->shift) / nblocks;
}

/*
 * Counts the keys in a sample of the table, whose lock the caller holds.  The
 * current user must be the owner of the table (bx_open_become_owner), because
 * this runs the functions of the index.
 */
void
bx_sample_take(Relation table, const BxHypothetical *hypothetical,
			   uint8 which, BxSample *sample)
{
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(table);
	Sampling	sampling = {.npages = Min(heap_blocks, SAMPLE_PAGES),
	.salt = bx_hash_salt()};

	memset(sample, 0, sizeof(*sample));
	if (heap_blocks == 0)
		return;
	sampling.keys = palloc_extended(sizeof(PageKey) * MAX_KEYS,
									MCXT_ALLOC_HUGE);
	sample->rows = read_pages(table, hypothetical, which, heap_blocks,
							  &sampling) / sampling.npages;
	sort_page_keys(sampling.keys, sampling.n);
	while (sampling.npages >> sample->nsizes > 0)
	{
		sample->keys[sample->nsizes] = count_keys(&sampling, sample->nsizes);
		sample->nsizes++;
	}
	pfree(sampling.keys);
}

/* Returns the expected number of distinct keys in consecutive pages. */
double
bx_sample_keys(const BxSample *sample, double pages)
{
	const double *keys = sample->keys;
	int			last = sample->nsizes - 1;
	double		lg = log2(Max(pages, 1e-6));
	double		added;
	double		q;
	double		m = lg - last;

	if (pages <= 1)
		return keys[0] * pages;
	if (m <= 0)
	{
		int			i = (int) lg;
		double		rest = pages / (1 << i) - 1;

		return i == last ? keys[i] : keys[i] + rest * (keys[i + 1] - keys[i]);
	}
	if (last < 2)
		return keys[last] * pages / (1 << last);
	added = Max(keys[last] - keys[last - 1], 0);
	q = added / Max(keys[last - 1] - keys[last - 2], 1);
	q = Max(Min(q, 2), 0.01);
	if (fabs(q - 1) < 1e-6)
		return keys[last] + added * m;
	return keys[last] + added * q * (pow(q, m) - 1) / (q - 1);
}
