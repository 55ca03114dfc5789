/*-------------------------------------------------------------------------
 *
 * group.c
 *	  Groups: putting the filter of a partition into the pages of a group,
 *	  and measuring it.
 *
 *-------------------------------------------------------------------------
 */
#include "group.h"

/*
 * ORs the filter of one partition into its column of a page: nlines lines,
 * one for each block of the page, beginning with the first.
 */
void
bx_group_put_column(const uint8_t *lines, uint32_t nlines, int nrows,
					int width, int column, char *content)
{
	for (uint32_t block = 0; block < nlines; block++)
	{
		const uint8_t *line = lines + (size_t) block * BX_LINE_BYTES(nrows);

		for (int base = 0; base < nrows; base += 64)
		{
			uint64_t	word = 0;

			for (int i = 0; i < 8; i++)
				word |= (uint64_t) line[base / 8 + i] << (8 * i);
			for (; word != 0; word &= word - 1)
			{
				uint32_t	row = (uint32_t) (base + __builtin_ctzll(word));
				uint32_t	at = bx_group_bit(nrows, width, block, row, column);

				content[at / 8] |= (char) (1 << (at % 8));
			}
		}
	}
}

/* Returns how many bits of a column are set in one block of a page. */
int
bx_group_count(const char *content, int nrows, int width, uint32_t block,
			   int column)
{
	int			n = 0;

	for (int row = 0; row < nrows; row++)
	{
		uint32_t	at = bx_group_bit(nrows, width, block, (uint32_t) row, column);

		n += (content[at / 8] >> (at % 8)) & 1;
	}
	return n;
}
