/*-------------------------------------------------------------------------
 *
 * packed.h
 *	  Filters of layout "block": one for each range, of any size, one behind
 *	  the other.
 *
 * Pure C: no server, no I/O.  A filter of fewer than 64 bytes is
 *
 *		[bits, at least 64] [number of probes]
 *
 * as in LevelDB, and a larger one is
 *
 *		[lines of 64 bytes] [0xFF] [0] [number of probes] [0] [0]
 *
 * as in RocksDB, where all bits of a key are in one line.  Anything that is
 * not understood, such as a number of probes above 30, matches every key; so
 * that is how a filter in doubt is written.  A filter without bits matches
 * nothing.
 *
 * In one thing small filters are not LevelDB's: a key's bits are found by the
 * walk that RocksDB and the slices of layout "partitioned" use, not by double
 * hashing.  In a few hundred bits the latter has too many keys whose bits
 * coincide: its rate was never below 0.0007 in a simulation, and 0.02 in 64
 * bits, however many bits a key got.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_PACKED_H
#define BX_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64 bits and the byte for the probes */
#define BX_PACKED_MIN_SIZE		9

/* below this the small format is used */
#define BX_PACKED_LINE			64
#define BX_PACKED_LINE_BITS		(BX_PACKED_LINE * 8)
#define BX_PACKED_TRAILER		5

#define BX_PACKED_MAX_PROBES	30

/* Whether a filter can have this size. */
static inline bool
bx_packed_size_is_possible(size_t size)
{
	if (size < BX_PACKED_LINE)
		return size >= BX_PACKED_MIN_SIZE;
	return (size - BX_PACKED_TRAILER) % BX_PACKED_LINE == 0;
}

/* What the bits that are set tell about a filter. */
typedef struct BxPackedFill
{
	double		keys;
	double		rate;			/* of false positives */
	double		fill;			/* part of the bits that is set */
	int			probes;
	bool		doubt;			/* it matches everything */
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
 * Tests n filters: filter i lies at offsets[i] .. offsets[i + 1] of "filters".
 * Sets result[i] to 1 if it may hold the key, else to 0.
 */
typedef void (*BxPackedProbe) (const char *filters, const uint16_t *offsets,
							   int n, uint64_t hash, uint8_t *result);
extern void bx_packed_probe_scalar(const char *filters,
								   const uint16_t *offsets, int n,
								   uint64_t hash, uint8_t *result);
extern BxPackedProbe bx_packed_choose_probe(void);

#endif							/* BX_PACKED_H */
