/*-------------------------------------------------------------------------
 *
 * packed.h
 *	  Filters of layout "block": one for each range, of variable size,
 *	  stored one after the other.
 *
 * Pure C: no server, no I/O. A filter of fewer than 64 bytes is
 *
 *	[bits, at least 64] [number of probes]
 *
 * as in LevelDB, and a larger one is
 *
 *	[lines of 64 bytes] [0xFF] [0] [number of probes] [0] [0]
 *
 * as in RocksDB, where all bits of a key are in one line.  A filter in an
 * unknown format, for example with more than 30 probes, matches every key; a
 * filter in doubt is written that way.  A filter without bits set matches
 * nothing.
 *
 * Small filters differ from LevelDB's in one respect: the bits of a key are
 * found by the sequence that RocksDB and the slices of layout "partitioned"
 * use, not by double hashing.  In a few hundred bits, double hashing gives
 * too many keys the same bits: in a simulation its false-positive rate was
 * never below 0.0007, and never below 0.02 in 64 bits, regardless of the
 * number of bits per key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_PACKED_H
#define BX_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* smallest filter: 64 bits and the number of probes */
#define BX_PACKED_MIN_SIZE		9

/* filters of fewer bytes than this use the small format */
#define BX_PACKED_LINE			64
#define BX_PACKED_LINE_BITS		(BX_PACKED_LINE * 8)
#define BX_PACKED_TRAILER		5

#define BX_PACKED_MAX_PROBES	30

/* Returns whether this is a valid size of a filter. */
static inline bool
bx_packed_size_is_possible(size_t size)
{
	if (size < BX_PACKED_LINE)
		return size >= BX_PACKED_MIN_SIZE;
	return (size - BX_PACKED_TRAILER) % BX_PACKED_LINE == 0;
}

/* Estimates from the number of bits that are set in a filter. */
typedef struct BxPackedFill
{
	double		keys;
	double		rate;			/* false-positive rate */
	double		fill;			/* fraction of the bits that are set */
	int			probes;
	bool		doubt;			/* the filter matches everything */
} BxPackedFill;

extern double bx_packed_rate(double keys, size_t size, double target);
extern void bx_packed_share(const double *keys, int n, size_t space,
							uint16_t *sizes);

extern void bx_packed_init(char *filter, size_t size, double keys,
						   double target);
extern void bx_packed_set_doubt(char *filter, size_t size);
extern int	bx_packed_positions(const char *filter, size_t size,
								uint64_t hash, uint32_t *positions);
extern void bx_packed_add(char *filter, size_t size, uint64_t hash);
extern bool bx_packed_test(const char *filter, size_t size, uint64_t hash);
extern void bx_packed_fill(const char *filter, size_t size,
						   BxPackedFill *fill);

/*
 * Tests n filters for a key.  Filter i occupies the bytes offsets[i] to
 * offsets[i + 1] - 1 of "filters".  Sets result[i] to 1 if filter i may
 * contain the key, else to 0.
 */
typedef void (*BxPackedProbe) (const char *filters, const uint16_t *offsets,
							   int n, uint64_t hash, uint8_t *result);
extern void bx_packed_probe_scalar(const char *filters,
								   const uint16_t *offsets, int n,
								   uint64_t hash, uint8_t *result);
extern BxPackedProbe bx_packed_choose_probe(void);

#endif							/* BX_PACKED_H */
