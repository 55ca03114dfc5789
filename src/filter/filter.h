/*-------------------------------------------------------------------------
 *
 * filter.h
 *	  Bit operations of the filters: probes, masks, and the formulas for
 *	  sizes and false-positive rates.
 *
 * Pure C: no server, no I/O. The filters of a node are stored transposed in
 * nslices matrices of nrows rows; each row has one bit for every child.  A
 * key belongs to one slice, and there to nprobes rows.  ANDing these rows
 * yields the set of all children that may contain the key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_FILTER_H
#define BX_FILTER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "packed.h"

/*
 * Defined if the compiler can generate AVX2 code; whether the processor
 * supports it is checked at run time.  BX_NO_VECTORS is for testing the
 * scalar code.
 */
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 5) && \
	!defined(BX_NO_VECTORS)
#define BX_HAVE_VECTORS
#define BX_VECTOR_CODE	__attribute__((target("avx2")))
#endif

#define BX_MASK_BITS	128
#define BX_MASK_BYTES	(BX_MASK_BITS / 8)

/*
 * Maximum of nprobes.  More probes would cost time and gain nothing at the
 * false-positive rates that are allowed.
 */
#define BX_MAX_PROBES	24

/* A set of children.  Child c is bit c % 8 of byte c / 8, as on disk. */
typedef union BxMask
{
	uint8_t		byte[BX_MASK_BYTES];
	uint64_t	word[BX_MASK_BYTES / 8];
} BxMask;

/*
 * Maps a hash to 0 .. n - 1, monotonically: a larger hash never gets a
 * smaller slot.
 */
static inline uint32_t
bx_filter_slot(uint32_t hash, uint32_t n)
{
	return (uint32_t) (((uint64_t) hash * n) >> 32);
}

/*
 * Each level remixes the hash of a key, so that false positives on different
 * levels are independent.
 */
static inline uint64_t
bx_filter_level_hash(uint64_t hash, int level)
{
	hash += (uint64_t) level * UINT64_C(0x9e3779b97f4a7c15);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	hash ^= hash >> 32;
	return hash;
}

/*
 * Returns the slice that a key belongs to; lh is its hash for the node's
 * level.
 */
static inline uint32_t
bx_filter_slice(uint64_t lh, uint32_t nslices)
{
	return bx_filter_slot((uint32_t) lh, nslices);
}

/*
 * Iterates over the rows of a key: start with x = bx_filter_first(lh); each
 * row is bx_filter_row(x, nrows), followed by x = bx_filter_next(x).
 */
static inline uint32_t
bx_filter_first(uint64_t lh)
{
	return (uint32_t) (lh >> 32);
}

/*
 * If nrows is a compile-time constant of the form 2^k - 4, as BX_SLICE_ROWS
 * is for every page size, x * nrows is computed by shifts, which are faster
 * than the multiplication.
 */
static inline uint32_t
bx_filter_row(uint32_t x, int nrows)
{
	if (__builtin_constant_p(nrows) && ((nrows + 4) & (nrows + 3)) == 0)
		return (uint32_t) ((((uint64_t) x << __builtin_ctz(nrows + 4)) -
							((uint64_t) x << 2)) >> 32);
	return bx_filter_slot(x, (uint32_t) nrows);
}

static inline uint32_t
bx_filter_next(uint32_t x)
{
	return x * UINT32_C(0x9e3779b9);
}

static inline void
bx_mask_fill(BxMask *mask, bool value)
{
	memset(mask, value ? 0xFF : 0, sizeof(*mask));
}

static inline void
bx_mask_and(BxMask *mask, const BxMask *other)
{
	mask->word[0] &= other->word[0];
	mask->word[1] &= other->word[1];
}

static inline void
bx_mask_or(BxMask *mask, const BxMask *other)
{
	mask->word[0] |= other->word[0];
	mask->word[1] |= other->word[1];
}

/* Removes the children that are in "other". */
static inline void
bx_mask_remove(BxMask *mask, const BxMask *other)
{
	mask->word[0] &= ~other->word[0];
	mask->word[1] &= ~other->word[1];
}

static inline bool
bx_mask_is_empty(const BxMask *mask)
{
	return (mask->word[0] | mask->word[1]) == 0;
}

static inline bool
bx_mask_test(const BxMask *mask, int child)
{
	return (mask->byte[child >> 3] >> (child & 7)) & 1;
}

static inline void
bx_mask_set(BxMask *mask, int child)
{
	mask->byte[child >> 3] |= (uint8_t) (1 << (child & 7));
}

/* Returns the first child >= from that is in the set, or BX_MASK_BITS. */
static inline int
bx_mask_next(const BxMask *mask, int from)
{
	while (from < BX_MASK_BITS)
	{
		unsigned	rest = mask->byte[from >> 3] >> (from & 7);

		if (rest != 0)
			return from + __builtin_ctz(rest);
		from = (from | 7) + 1;
	}
	return BX_MASK_BITS;
}

/* Prefetches the cache lines that bx_filter_probe() will read. */
static inline void
bx_filter_prefetch(const char *rows, int nrows, int nprobes, uint64_t lh)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		__builtin_prefetch(rows + (size_t) bx_filter_row(x, nrows) * BX_MASK_BYTES);
		x = bx_filter_next(x);
	}
}

/*
 * Sets *result to the children that may contain the key; rows is the content
 * of the key's slice.
 */
static inline void
bx_filter_probe(const char *rows, int nrows, int nprobes, uint64_t lh,
				BxMask *result)
{
	uint32_t	x = bx_filter_first(lh);

	bx_mask_fill(result, true);
	for (int i = 0; i < nprobes; i++)
	{
		BxMask		row;

		memcpy(&row, rows + (size_t) bx_filter_row(x, nrows) * BX_MASK_BYTES,
			   BX_MASK_BYTES);
		bx_mask_and(result, &row);
		x = bx_filter_next(x);
	}
}

/* Returns whether one child may contain the key. */
static inline bool
bx_filter_test(const char *rows, int nrows, int nprobes, uint64_t lh,
			   int child)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		const char *row = rows + (size_t) bx_filter_row(x, nrows) * BX_MASK_BYTES;

		if (!((row[child >> 3] >> (child & 7)) & 1))
			return false;
		x = bx_filter_next(x);
	}
	return true;
}

/* Adds a key to a child's filter. */
static inline void
bx_filter_add(char *rows, int nrows, int nprobes, uint64_t lh, int child)
{
	uint32_t	x = bx_filter_first(lh);

	for (int i = 0; i < nprobes; i++)
	{
		char	   *row = rows + (size_t) bx_filter_row(x, nrows) * BX_MASK_BYTES;

		row[child >> 3] |= (char) (1 << (child & 7));
		x = bx_filter_next(x);
	}
}

/*
 * A build sets bits in planes.  A plane belongs to eight children of a slice.
 * It has one byte for each row, with one bit for each of the eight children,
 * and becomes one column of bytes of the slice's page.  The padding after the
 * last row is not used.
 */
#define BX_PLANES		(BX_MASK_BITS / 8)
#define BX_PLANE_BYTES(nrows)	(((size_t) (nrows) + 63) / 64 * 64)

/*
 * The slices whose planes are being filled: n slices of the node's nslices,
 * beginning with "first".
 */
typedef struct BxPlanes
{
	int			level;
	int			nrows;
	int			nprobes;
	uint32_t	nslices;
	uint32_t	first;
	uint32_t	n;
} BxPlanes;

/*
 * Adds keys of one child to "scratch", which has one plane for each of the n
 * slices, by storing the byte "bit" in each row of a key.  Nothing has to be
 * read first, because no other child uses the scratch planes at the same
 * time.  Keys that belong to other slices are ignored.
 */
typedef void (*BxAddKeys) (const BxPlanes *planes, uint8_t *scratch,
						   uint8_t bit, const uint64_t *keys, size_t nkeys);
extern void bx_filter_add_keys_scalar(const BxPlanes *planes, uint8_t *scratch,
									  uint8_t bit, const uint64_t *keys,
									  size_t nkeys);
extern BxAddKeys bx_filter_choose_add_keys(void);

/* Returns the bit of a child in its plane. */
static inline uint8_t
bx_filter_plane_bit(int child)
{
	return (uint8_t) (1 << (child % 8));
}

extern void bx_filter_merge(const BxPlanes *planes, uint8_t *scratch,
							uint8_t *to);
extern void bx_filter_transpose(const uint8_t *planes, size_t stride,
								char *rows, int nrows);

/* Size of a node's filters. */
typedef struct BxPlan
{
	uint32_t	nslices;
	int			nprobes;
} BxPlan;

extern double bx_filter_rate(double keys, uint32_t nslices, int nrows,
							 int nprobes);
extern double bx_filter_capacity(double rate, int nrows);
extern BxPlan bx_filter_plan(double keys, double target, int nrows);

extern void bx_filter_count(const char *rows, int nrows, int *bits_set);
extern double bx_filter_fill_rate(int bits_set, int nrows, int nprobes);
extern double bx_filter_fill_keys(int bits_set, int nrows, int nprobes);

/*
 * Estimates the number of distinct keys (HyperLogLog), with an error of about
 * 3%. The upper bits of a key select a register, which stores 1 + the maximum
 * number of trailing zeros among its keys.
 *
 * 1024 keys that are chosen for the purpose fill all registers, so that the
 * estimate would be 1e19.  Therefore the estimate is never more than the
 * number of keys that were added, duplicates included.
 */
#define BX_DISTINCT_BITS	10

typedef struct BxDistinct
{
	double		added;			/* keys, duplicates included */
	uint8_t		most[1 << BX_DISTINCT_BITS];
} BxDistinct;

static inline void
bx_distinct_clear(BxDistinct *distinct)
{
	memset(distinct, 0, sizeof(*distinct));
}

static inline void
bx_distinct_add(BxDistinct *distinct, const uint64_t *keys, size_t n)
{
	distinct->added += (double) n;
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	key = keys[i];
		uint8_t    *most = &distinct->most[key >> (64 - BX_DISTINCT_BITS)];

		/* sentinel bit, so that ctz stops at the register index */
		uint64_t	rest = key | UINT64_C(1) << (64 - BX_DISTINCT_BITS);
		uint8_t		zeros = (uint8_t) (__builtin_ctzll(rest) + 1);

		*most = zeros > *most ? zeros : *most;
	}
}

/* Adds the keys that have been added to "other". */
static inline void
bx_distinct_merge(BxDistinct *distinct, const BxDistinct *other)
{
	distinct->added += other->added;
	for (size_t i = 0; i < sizeof(distinct->most); i++)
	{
		if (other->most[i] > distinct->most[i])
			distinct->most[i] = other->most[i];
	}
}

extern double bx_distinct_estimate(const BxDistinct *distinct);

#endif							/* BX_FILTER_H */
