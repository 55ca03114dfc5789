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

int
main(void)
{
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
