/*-------------------------------------------------------------------------
 *
 * group.h
 *	  Bit operations of groups: the filters of up to 128 partitions,
 *	  interleaved.
 *
 * Pure C: no server, no I/O.  The filter of a partition consists of nblocks
 * blocks of nrows bits.  A key belongs to one block, and there to nprobes
 * bits, as a key belongs to a slice of a node and to rows in it.  In a group
 * of "width" partitions, row r of a block has "width" bits, one for each
 * partition; the number of a partition in its group is its column.  A page
 * has 128 / width blocks, one after the other, so a page of width 128 is like
 * a slice, and one of width 1 has the filter of a single partition.  A lookup
 * reads one page of a group, whatever its width, and gets the bits of all its
 * partitions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_GROUP_H
#define BX_GROUP_H

#include "filter.h"

/* Returns the number of blocks in a page of a group. */
static inline uint32_t
bx_group_page_blocks(int width)
{
	return BX_MASK_BITS / width;
}

/* Returns the number of pages of a group. */
static inline uint32_t
bx_group_pages(uint32_t nblocks, int width)
{
	uint32_t	n = bx_group_page_blocks(width);

	return nblocks / n + (nblocks % n > 0);
}

/* Returns the position of a bit in the content of a page. */
static inline uint32_t
bx_group_bit(int nrows, int width, uint32_t block, uint32_t row, int column)
{
	return (block * nrows + row) * width + column;
}

/* Prefetches the cache lines that bx_group_probe() will read. */
static inline void
bx_group_prefetch(const char *content, int nrows, int width, uint32_t block,
				  int nprobes, uint64_t lh)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		uint32_t	at = bx_group_bit(nrows, width, block,
									  bx_filter_row(x, nrows), 0);

		__builtin_prefetch(content + at / 8);
		x = bx_filter_next(x);
	}
}

/*
 * Adds to *result the partitions that may contain the key: column c of the
 * group is partition first + c.  "content" is that of the page, and "block"
 * the key's block in it.  "first" is a multiple of the width.
 */
static inline void
bx_group_probe(const char *content, int nrows, int width, uint32_t block,
			   int nprobes, uint64_t lh, int first, BxMask *result)
{
	uint32_t	x = bx_filter_first(lh);
	BxMask		bits;

	bx_mask_fill(&bits, true);
	for (int i = 0; i < nprobes; i++)
	{
		uint32_t	at = bx_group_bit(nrows, width, block,
									  bx_filter_row(x, nrows), 0);
		BxMask		row;

		if (width < 8)
			bits.byte[0] &= (uint8_t) (content[at / 8] >> (at % 8));
		else
		{
			bx_mask_fill(&row, true);
			memcpy(&row, content + at / 8, (size_t) width / 8);
			bx_mask_and(&bits, &row);
		}
		x = bx_filter_next(x);
	}
	if (width < 8)
		result->byte[first / 8] |=
			(uint8_t) ((bits.byte[0] & ((1 << width) - 1)) << (first % 8));
	else
	{
		for (int i = 0; i < width / 8; i++)
			result->byte[first / 8 + i] |= bits.byte[i];
	}
}

/* Returns whether the partition of a column may contain the key. */
static inline bool
bx_group_test(const char *content, int nrows, int width, uint32_t block,
			  int nprobes, uint64_t lh, int column)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		uint32_t	at = bx_group_bit(nrows, width, block,
									  bx_filter_row(x, nrows), column);

		if (!((content[at / 8] >> (at % 8)) & 1))
			return false;
		x = bx_filter_next(x);
	}
	return true;
}

/*
 * The filter of one partition in memory: each block is a line of
 * BX_LINE_BYTES(nrows) bytes, of which nrows bits are used.
 */
#define BX_LINE_BYTES(nrows)	(((size_t) (nrows) + 511) / 512 * 64)

/* Adds a key to the line of its block. */
static inline void
bx_group_add(uint8_t *line, int nrows, int nprobes, uint64_t lh)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		uint32_t	row = bx_filter_row(x, nrows);

		line[row / 8] |= (uint8_t) (1 << (row % 8));
		x = bx_filter_next(x);
	}
}

/*
 * Merging copies the filters of a group to a group that is at least as wide
 * and may have more or fewer blocks: the larger number of blocks must be a
 * multiple of the smaller one.  The block of a key is hash * nblocks / 2^32,
 * so with m times as many blocks, the keys of block b belong to the blocks
 * m * b .. m * b + m - 1.  Therefore, if the new group has more blocks, block
 * b is copied to all of these; if it has fewer, these are ORed into block b.
 * The new filters match every key that the old ones match.
 */

/* Returns whether filters of "from" blocks can be copied to "to" blocks. */
static inline bool
bx_group_can_copy(uint32_t from, uint32_t to)
{
	return from > to ? from % to == 0 : to % from == 0;
}

/*
 * Returns the first block of "to" blocks that has keys of the given block of
 * "from" blocks.  For block + 1, this is the end of these blocks if there are
 * several, that is, if to > from.
 */
static inline uint32_t
bx_group_block_of(uint32_t block, uint32_t from, uint32_t to)
{
	return (uint32_t) ((uint64_t) block * to / from);
}

extern void bx_group_merge(const char *from, int from_width,
						   uint32_t from_block, const BxMask *columns,
						   char *to, int to_width, uint32_t to_block,
						   int to_column, int nrows);
extern void bx_group_put_column(const uint8_t *lines, uint32_t nlines,
								int nrows, int width, int column,
								char *content);
extern int	bx_group_count(const char *content, int nrows, int width,
						   uint32_t block, int column);

#endif							/* BX_GROUP_H */
