/*-------------------------------------------------------------------------
 *
 * group.c
 *	  Groups of partitions' filters, against filters that are kept one by
 *	  one, bit for bit.
 *
 *-------------------------------------------------------------------------
 */
#include "group.h"
#include "unit.h"

#define NROWS		508
#define NBLOCKS		300
#define PAGE_BYTES	(NROWS * BX_MASK_BYTES)
#define MAX_PAGES	NBLOCKS
#define LINE		BX_LINE_BYTES(NROWS)

static uint8_t lines[BX_MASK_BITS][NBLOCKS * LINE];
static char pages[MAX_PAGES][PAGE_BYTES + 16];

/* Whether a line has all bits of a key. */
static bool
line_has(const uint8_t *line, int nprobes, uint64_t lh)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		uint32_t	row = bx_filter_row(x, NROWS);

		if (!((line[row / 8] >> (row % 8)) & 1))
			return false;
		x = bx_filter_next(x);
	}
	return true;
}

static void
fill(int width, int nprobes, int nkeys)
{
	uint32_t	per_page = bx_group_page_blocks(width);

	memset(lines, 0, sizeof(lines));
	memset(pages, 0, sizeof(pages));
	for (int c = 0; c < width; c++)
	{
		for (int k = 0; k < nkeys; k++)
		{
			uint64_t	lh = next_random();

			bx_group_add(lines[c] + bx_filter_slice(lh, NBLOCKS) * LINE, NROWS,
						 nprobes, lh);
		}
		for (uint32_t p = 0; p < bx_group_pages(NBLOCKS, width); p++)
		{
			uint32_t	first = p * per_page;
			uint32_t	n = NBLOCKS - first < per_page ? NBLOCKS - first : per_page;

			bx_group_put_column(lines[c] + first * LINE, n, NROWS,
								width, c, pages[p]);
		}
	}
}

/* All bits are where they belong, and there are no others. */
static void
compare_bits(int width)
{
	uint32_t	per_page = bx_group_page_blocks(width);

	for (uint32_t p = 0; p < bx_group_pages(NBLOCKS, width); p++)
	{
		static char expected[PAGE_BYTES + 16];

		memset(expected, 0, sizeof(expected));
		for (uint32_t b = 0; b < per_page && p * per_page + b < NBLOCKS; b++)
		{
			for (int c = 0; c < width; c++)
			{
				const uint8_t *line = lines[c] + (p * per_page + b) * LINE;
				int			count = 0;

				for (uint32_t r = 0; r < NROWS; r++)
				{
					size_t		at = ((size_t) b * NROWS + r) * width + c;

					if ((line[r / 8] >> (r % 8)) & 1)
					{
						expected[at / 8] |= (char) (1 << (at % 8));
						count++;
					}
				}
				CHECK(bx_group_count(pages[p], NROWS, width, b, c) == count,
					  "width %d, page %u, block %u, column %d", width, p, b, c);
			}
		}
		CHECK(memcmp(pages[p], expected, sizeof(expected)) == 0,
			  "width %d, page %u", width, p);
	}
}

/* A probe, and a test of each column, find what the filters one by one find. */
static void
compare_probes(int width, int nprobes)
{
	uint32_t	per_page = bx_group_page_blocks(width);

	for (int k = 0; k < 2000; k++)
	{
		uint64_t	lh = next_random();
		uint32_t	block = bx_filter_slice(lh, NBLOCKS);
		const char *page = pages[block / per_page];
		int			first = (int) (next_random() % (BX_MASK_BITS / width)) * width;
		BxMask		result;
		BxMask		before;

		for (int i = 0; i < 2; i++)
			before.word[i] = result.word[i] = next_random() & next_random();
		bx_group_probe(page, NROWS, width, block % per_page, nprobes, lh,
					   first, &result);
		for (int c = 0; c < BX_MASK_BITS; c++)
		{
			bool		has = c >= first && c < first + width &&
			line_has(lines[c - first] + block * LINE, nprobes, lh);

			CHECK(bx_mask_test(&result, c) == (has || bx_mask_test(&before, c)),
				  "width %d, column %d of %d", width, c, first);
			if (c >= first && c < first + width)
				CHECK(bx_group_test(page, NROWS, width, block % per_page,
									nprobes, lh, c - first) == has,
					  "test, width %d, column %d", width, c - first);
		}
	}
}

/*
 * Merging
 */

static uint64_t keys_of[BX_MASK_BITS][40];
static char sources[MAX_PAGES][PAGE_BYTES];

/* Puts the keys of some partitions into a group of "sources". */
static void
fill_source(int first, int width, uint32_t nblocks, int nprobes)
{
	uint32_t	per_page = bx_group_page_blocks(width);

	memset(sources, 0, sizeof(sources));
	memset(lines, 0, sizeof(lines));
	for (int c = 0; c < width; c++)
	{
		for (int k = 0; k < 40; k++)
		{
			uint64_t	lh = keys_of[first + c][k] = next_random();

			bx_group_add(lines[c] + bx_filter_slice(lh, nblocks) * LINE, NROWS,
						 nprobes, lh);
		}
		for (uint32_t b = 0; b < nblocks; b += per_page)
			bx_group_put_column(lines[c] + b * LINE,
								nblocks - b < per_page ? nblocks - b : per_page,
								NROWS, width, c, sources[b / per_page]);
	}
}

/* Adds to "expected" what a filter of nblocks becomes in one of to_nblocks. */
static void
expect_column(const uint8_t *filter, uint32_t nblocks, char (*expected)[PAGE_BYTES],
			  uint32_t to_nblocks, int to_width, int to_column)
{
	uint32_t	per_page = bx_group_page_blocks(to_width);

	for (uint32_t to = 0; to < to_nblocks; to++)
	{
		for (uint32_t b = 0; b < nblocks; b++)
		{
			/* the two blocks have hashes in common */
			if ((uint64_t) b * to_nblocks >= (uint64_t) (to + 1) * nblocks ||
				(uint64_t) to * nblocks >= (uint64_t) (b + 1) * to_nblocks)
				continue;
			for (uint32_t r = 0; r < NROWS; r++)
			{
				size_t		at = ((size_t) (to % per_page) * NROWS + r) * to_width + to_column;

				if ((filter[b * LINE + r / 8] >> (r % 8)) & 1)
					expected[to / per_page][at / 8] |= (char) (1 << (at % 8));
			}
		}
	}
}

/* Groups of several widths and sizes become one; some columns are left out. */
static void
test_merge(int width, uint32_t to_nblocks, int nprobes)
{
	static char expected[MAX_PAGES][PAGE_BYTES];
	static const uint32_t sizes[] = {75, 150, 300, 25};
	uint32_t	per_page = bx_group_page_blocks(width);
	BxMask		members;
	int			from_width;

	memset(pages, 0, sizeof(pages));
	memset(expected, 0, sizeof(expected));
	bx_mask_fill(&members, false);
	for (int first = 0; first < width; first += from_width)
	{
		uint32_t	nblocks = sizes[next_random() % 4];
		BxMask		columns;

		do
			from_width = 1 << next_random() % 8;
		while (first % from_width != 0 || first + from_width > width);
		if (!bx_group_can_copy(nblocks, to_nblocks))
			nblocks = to_nblocks;
		fill_source(first, from_width, nblocks, nprobes);
		bx_mask_fill(&columns, false);
		for (int c = 0; c < from_width; c++)
		{
			if (next_random() % 4 == 0)
				continue;
			bx_mask_set(&columns, c);
			bx_mask_set(&members, first + c);
			expect_column(lines[c], nblocks, expected, to_nblocks, width, first + c);
		}
		for (uint32_t b = 0; b < nblocks; b++)
		{
			uint32_t	to = bx_group_block_of(b, nblocks, to_nblocks);
			uint32_t	end = bx_group_block_of(b + 1, nblocks, to_nblocks);

			do
				bx_group_merge(sources[b / bx_group_page_blocks(from_width)],
							   from_width, b % bx_group_page_blocks(from_width),
							   &columns, pages[to / per_page], width,
							   to % per_page, first, NROWS);
			while (++to < end);
		}
	}
	for (uint32_t p = 0; p < bx_group_pages(to_nblocks, width); p++)
		CHECK(memcmp(pages[p], expected[p], PAGE_BYTES) == 0,
			  "merged to width %d, %u blocks: page %u", width, to_nblocks, p);
	for (int c = 0; c < width; c++)
	{
		for (int k = 0; k < 40 && bx_mask_test(&members, c); k++)
		{
			uint64_t	lh = keys_of[c][k];
			uint32_t	block = bx_filter_slice(lh, to_nblocks);

			CHECK(bx_group_test(pages[block / per_page], NROWS, width,
								block % per_page, nprobes, lh, c),
				  "merged to width %d, %u blocks: a key of column %d", width, to_nblocks, c);
		}
	}
}

static void
test_can_copy(void)
{
	CHECK(bx_group_can_copy(75, 150) && bx_group_can_copy(150, 75) &&
		  bx_group_can_copy(75, 75) && bx_group_can_copy(75, 225), "multiples");
	CHECK(!bx_group_can_copy(75, 100) && !bx_group_can_copy(150, 100), "no multiples");
}

int
main(void)
{
	test_can_copy();
	for (int width = 1; width <= BX_MASK_BITS; width *= 2)
	{
		for (int i = 0; i < 8; i++)
			test_merge(width, 75 << (i % 3), 1 + i);
	}

	for (int width = 1; width <= BX_MASK_BITS; width *= 2)
	{
		CHECK(bx_group_pages(NBLOCKS, width) ==
			  (uint32_t) (NBLOCKS * width + BX_MASK_BITS - 1) / BX_MASK_BITS,
			  "pages of width %d", width);
		for (int nprobes = 1; nprobes <= BX_MAX_PROBES; nprobes += 5)
		{
			fill(width, nprobes, 5 + 9000 / nprobes);
			compare_bits(width);
			compare_probes(width, nprobes);
		}
	}
	return finish();
}
