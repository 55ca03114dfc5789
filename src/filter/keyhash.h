/*-------------------------------------------------------------------------
 *
 * keyhash.h
 *	  The hash function of keys: XXH3 of integers and of bytes, the seeds of
 *	  columns, and the combined key of several columns.
 *
 * Pure C: no server, no I/O.  Included by few files, because it makes
 * xxhash.h define its functions in each of them.
 *
 * The result is the same on every processor: integers are hashed as eight
 * little-endian bytes, and XXH3 does not depend on the byte order, nor on the
 * vector instructions that it is compiled for.  The filters on disk depend on
 * all of this: a change requires a new BX_HASH_VERSION.  XXH3 has been stable
 * since xxHash 0.8.0.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_KEYHASH_H
#define BX_KEYHASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if XXH_VERSION_NUMBER < 800
#error "bloomidx needs xxHash 0.8.0 or later"
#endif

/* What a key states about a column. */
typedef enum BxKeyKind
{
	BX_KEY_VALUE = 1,
	BX_KEY_NULL = 2,
	BX_KEY_NOT_NULL = 3,
	BX_KEY_NULL_ELEMENT = 4,	/* a part of the value is NULL */
	BX_KEY_EMPTY = 5,			/* the value has no parts */
	BX_KEY_COMBINED = 6			/* all columns; the column number is 0 */
} BxKeyKind;

/* XXH3 of an integer as eight little-endian bytes. */
static inline uint64_t
bx_keyhash_int(uint64_t value, uint64_t seed)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	value = __builtin_bswap64(value);
#endif
	return XXH3_64bits_withSeed(&value, sizeof(value), seed);
}

/* XXH3 of a string of bytes. */
static inline uint64_t
bx_keyhash_bytes(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

/* Returns the seed with which the hashes of a column become keys. */
static inline uint64_t
bx_keyhash_seed(int attno, BxKeyKind kind)
{
	return ((uint64_t) attno << 8) | kind;
}

/* Returns the combined key of n columns with the given keys. */
static inline uint64_t
bx_keyhash_combine(const uint64_t *keys, int n)
{
	uint64_t	hash = bx_keyhash_seed(0, BX_KEY_COMBINED);

	for (int i = 0; i < n; i++)
		hash = bx_keyhash_int(keys[i], hash);
	return hash;
}

#endif							/* BX_KEYHASH_H */
