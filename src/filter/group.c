/*-------------------------------------------------------------------------
 *
 * group.c
 *	  Groups: putting the filter of a partition into the pages of a group,
 *	  measuring it, and copying filters from group to group.
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

/*
 * ORs the given columns of a block of one group into a block of another group
 * that is at least as wide: column c becomes column to_column + c, where
 * to_column is a multiple of from_width.  "from" and "to" are the contents of
 * the pages with these blocks.
 */
void
bx_group_merge(const char *from, int from_width, uint32_t from_block,
			   const BxMask *columns, char *to, int to_width,
			   uint32_t to_block, int to_column, int nrows)
{
	for (int row = 0; row < nrows; row++)
	{
		uint32_t	source = bx_group_bit(nrows, from_width, from_block,
										  (uint32_t) row, 0);
		uint32_t	target = bx_group_bit(nrows, to_width, to_block,
										  (uint32_t) row, to_column);

		if (from_width < 8)
		{
			unsigned int bits = (uint8_t) from[source / 8] >> (source % 8);

			bits &= columns->byte[0] & ((1U << from_width) - 1);
			to[target / 8] |= (char) (bits << (target % 8));
		}
		else
		{
			for (int i = 0; i < from_width / 8; i++)
				to[target / 8 + i] |= (char) ((uint8_t) from[source / 8 + i] &
											  columns->byte[i]);
		}
	}
}
