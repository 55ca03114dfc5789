/*-------------------------------------------------------------------------
 *
 * packed.c
 *	  Filters of layout "block": their two formats, sizes, and tests.
 *
 *-------------------------------------------------------------------------
 */
#include "packed.h"

#include <math.h>
#include <string.h>

#include "filter.h"

/* Trailer of the large format. */
#define MARKER				0xFF
#define MARKER_AT			0
#define IMPLEMENTATION_AT	1
#define PROBES_AT			2
#define RESERVED_AT			3	/* two bytes */

/* Values of a filter in doubt, which no valid filter has. */
#define DOUBT_IMPLEMENTATION	0xFF
#define DOUBT_PROBES			(BX_PACKED_MAX_PROBES + 1)

/* Multiplier of the walk, as in bx_filter_next. */
#define WALK				UINT32_C(0x9e3779b9)

/* The parameters of a filter. */
typedef struct Parts
{
	uint32_t	lines;			/* 0: the small format */
	uint32_t	bits;			/* number of bits in the small format */
	int			probes;			/* 0: matches everything */
} Parts;

static inline uint32_t
count_lines(size_t size)
{
	return (uint32_t) ((size - BX_PACKED_TRAILER) / BX_PACKED_LINE);
}

static inline Parts
take_apart(const char *filter, size_t size)
{
	Parts		parts = {0};
	const uint8_t *end = (const uint8_t *) filter + size;

	if (!bx_packed_size_is_possible(size))
		return parts;
	if (size < BX_PACKED_LINE)
	{
		parts.bits = (uint32_t) (size - 1) * 8;
		parts.probes = end[-1];
	}
	else
	{
		const uint8_t *trailer = end - BX_PACKED_TRAILER;

		if (trailer[MARKER_AT] != MARKER || trailer[IMPLEMENTATION_AT] != 0 ||
			trailer[RESERVED_AT] != 0 || trailer[RESERVED_AT + 1] != 0)
			return parts;
		parts.lines = count_lines(size);
		parts.probes = trailer[PROBES_AT];
	}
	if (parts.probes > BX_PACKED_MAX_PROBES)
		parts.probes = 0;
	return parts;
}

/* Returns the line of a key. */
static inline const char *
find_line(const char *filter, uint32_t lines, uint64_t hash)
{
	return filter + (size_t) bx_filter_slot((uint32_t) hash, lines) *
		BX_PACKED_LINE;
}

static inline bool
test_bit(const char *bytes, uint32_t bit)
{
	return (bytes[bit >> 3] >> (bit & 7)) & 1;
}

static inline uint32_t
bit_in_line(uint32_t x)
{
	return x >> (32 - 9);
}

static inline bool
test_small(const char *filter, uint32_t bits, int probes, uint32_t x)
{
	for (; probes > 0; probes--)
	{
		if (!test_bit(filter, bx_filter_slot(x, bits)))
			return false;
		x = bx_filter_next(x);
	}
	return true;
}

static inline bool
test_line(const char *line, int probes, uint32_t x)
{
	for (; probes > 0; probes--)
	{
		if (!test_bit(line, bit_in_line(x)))
			return false;
		x = bx_filter_next(x);
	}
	return true;
}

/* Returns whether the filter may contain the key. */
bool
bx_packed_test(const char *filter, size_t size, uint64_t hash)
{
	Parts		parts = take_apart(filter, size);
	uint32_t	x = bx_filter_first(hash);

	if (parts.lines == 0)
		return test_small(filter, parts.bits, parts.probes, x);
	return test_line(find_line(filter, parts.lines, hash), parts.probes, x);
}

void
bx_packed_probe_scalar(const char *filters, const uint16_t *offsets, int n,
					   uint64_t hash, uint8_t *result)
{
	for (int i = 0; i < n; i++)
		result[i] = bx_packed_test(filters + offsets[i],
								   (size_t) (offsets[i + 1] - offsets[i]),
								   hash);
}

#ifdef BX_HAVE_VECTORS

#include <immintrin.h>

/*
 * Tests the bits of a key in a line, eight at a time.  The upper four bits of
 * x select one of the line's sixteen words, and the next five the bit.
 */
BX_VECTOR_CODE static inline bool
test_line_vector(const char *line, int probes, __m256i x)
{
	const __m256i low = _mm256_loadu_si256((const __m256i *) line);
	const __m256i high = _mm256_loadu_si256((const __m256i *) (line + 32));
	const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	const uint32_t walk2 = WALK * WALK;
	const uint32_t walk4 = walk2 * walk2;

	for (; probes > 0; probes -= 8)
	{
		__m256i		word = _mm256_srli_epi32(x, 28);
		__m256i		bit = _mm256_srli_epi32(_mm256_slli_epi32(x, 4), 27);
		__m256i		wanted = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), bit),
											  _mm256_cmpgt_epi32(_mm256_set1_epi32(probes), order));
		__m256		from_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word));
		__m256		from_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word));

		/* the uppermost bit of x selects the half */
		__m256i		found = _mm256_castps_si256(_mm256_blendv_ps(from_low, from_high,
																 _mm256_castsi256_ps(x)));

		if (!_mm256_testc_si256(found, wanted))
			return false;
		x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int) (walk4 * walk4)));
	}
	return true;
}

/* Number of filters that are prefetched ahead of the one that is tested. */
#define LOOK_AHEAD		12

/*
 * Prefetches the cache line that testing a filter will read.  Small filters
 * are left to the processor's own prefetching.
 */
static inline void
prefetch_filter(const char *filter, size_t size, uint64_t hash)
{
	const char *line;

	if (size < BX_PACKED_LINE + BX_PACKED_TRAILER)
		return;
	line = find_line(filter, count_lines(size), hash);
	__builtin_prefetch(line);
	__builtin_prefetch(line + BX_PACKED_LINE - 1);
	__builtin_prefetch(filter + size - BX_PACKED_TRAILER);
}

BX_VECTOR_CODE static void
probe_vector(const char *filters, const uint16_t *offsets, int n,
			 uint64_t hash, uint8_t *result)
{
	uint32_t	start[8];
	__m256i		x;

	start[0] = bx_filter_first(hash);
	for (int i = 1; i < 8; i++)
		start[i] = bx_filter_next(start[i - 1]);
	x = _mm256_loadu_si256((const __m256i *) start);

	for (int i = 0; i < n && i < LOOK_AHEAD; i++)
		prefetch_filter(filters + offsets[i],
						(size_t) (offsets[i + 1] - offsets[i]), hash);
	for (int i = 0; i < n; i++)
	{
		const char *filter = filters + offsets[i];
		Parts		parts = take_apart(filter,
									   (size_t) (offsets[i + 1] - offsets[i]));
		int			ahead = i + LOOK_AHEAD;

		if (ahead < n)
			prefetch_filter(filters + offsets[ahead],
							(size_t) (offsets[ahead + 1] - offsets[ahead]),
							hash);
		result[i] = parts.lines == 0 ?
			test_small(filter, parts.bits, parts.probes, start[0]) :
			test_line_vector(find_line(filter, parts.lines, hash),
							 parts.probes, x);
	}
}

#endif

/* Returns the fastest implementation for this processor. */
BxPackedProbe
bx_packed_choose_probe(void)
{
#ifdef BX_HAVE_VECTORS
	if (__builtin_cpu_supports("avx2"))
		return probe_vector;
#endif
	return bx_packed_probe_scalar;
}

/*
 * Computes the positions of a key's bits, relative to the start of the
 * filter; positions[] has room for BX_PACKED_MAX_PROBES.  Returns their
 * number: 0 if the filter is in doubt.
 */
int
bx_packed_positions(const char *filter, size_t size, uint64_t hash,
					uint32_t *positions)
{
	Parts		parts = take_apart(filter, size);
	uint32_t	x = bx_filter_first(hash);
	uint32_t	line = parts.lines == 0 ? 0 :
	bx_filter_slot((uint32_t) hash, parts.lines);

	for (int i = 0; i < parts.probes; i++)
	{
		positions[i] = parts.lines == 0 ? bx_filter_slot(x, parts.bits) :
			line * BX_PACKED_LINE_BITS + bit_in_line(x);
		x = bx_filter_next(x);
	}
	return parts.probes;
}

void
bx_packed_add(char *filter, size_t size, uint64_t hash)
{
	uint32_t	positions[BX_PACKED_MAX_PROBES];
	int			n = bx_packed_positions(filter, size, hash, positions);

	for (int i = 0; i < n; i++)
		filter[positions[i] >> 3] |= (char) (1 << (positions[i] & 7));
}

/*
 * Returns the rate of a small filter: the mean of fill^probes.  With so few
 * bits, the variance of the fill matters.
 */
static double
small_rate(double keys, double bits, int probes)
{
	double		throws = keys * probes;
	double		clear = exp(throws * log1p(-1 / bits));
	double		both_clear = exp(throws * log1p(-2 / bits));
	double		fill = 1 - clear;
	double		variance = clear / bits + both_clear * (1 - 1 / bits) -
	clear * clear;

	return fmin(1, pow(fill, probes) *
				(1 + probes * (probes - 1) / 2 * variance / (fill * fill)));
}

static double
rate_by_probes(double keys, size_t size, int probes)
{
	if (size < BX_PACKED_LINE)
		return small_rate(keys, (double) (size - 1) * 8, probes);
	return bx_filter_rate(keys, count_lines(size), BX_PACKED_LINE_BITS, probes);
}

/*
 * Returns the number of probes for a filter: the number with the lowest rate,
 * but at most one more than the target requires when half of the bits are
 * set.  Because keys are unevenly distributed over lines, the optimum is less
 * than that of a plain filter, with which the search starts.
 */
static int
choose_probes(double keys, size_t size, double target)
{
	double		bits = size < BX_PACKED_LINE ? (double) (size - 1) * 8 :
	count_lines(size) * (double) BX_PACKED_LINE_BITS;
	double		most = fmin(bits / keys * M_LN2 + 1, ceil(-log2(target)) + 1);
	int			best = (int) fmin(most, BX_PACKED_MAX_PROBES);
	double		rate;

	if (best <= 1)
		return 1;
	rate = rate_by_probes(keys, size, best);
	while (best > 1)
	{
		double		fewer = rate_by_probes(keys, size, best - 1);

		if (fewer > rate)
			break;
		rate = fewer;
		best--;
	}
	return best;
}

/*
 * Returns the rate of a filter of "size" bytes that is planned for and
 * contains "keys" keys.
 */
double
bx_packed_rate(double keys, size_t size, double target)
{
	if (!(keys > 0))
		return 0;
	return rate_by_probes(keys, size, choose_probes(keys, size, target));
}

/* Returns the size of a filter with the given number of bits per key. */
static size_t
size_by_bits(double keys, double bits)
{
	double		size = ceil(keys * bits / 8) + 1;

	if (size < BX_PACKED_MIN_SIZE)
		return BX_PACKED_MIN_SIZE;
	if (size < BX_PACKED_LINE)
		return (size_t) size;
	return (size_t) ceil(keys * bits / BX_PACKED_LINE_BITS) * BX_PACKED_LINE +
		BX_PACKED_TRAILER;
}

static size_t
total_size(const double *keys, int n, double bits)
{
	size_t		total = 0;

	for (int i = 0; i < n; i++)
		total += size_by_bits(keys[i], bits);
	return total;
}

/*
 * Divides the space among n filters in proportion to their keys.  There must
 * be at least BX_PACKED_MIN_SIZE bytes for each.
 */
void
bx_packed_share(const double *keys, int n, size_t space, uint16_t *sizes)
{
	double		low = 0;
	double		high = (double) space * 8;

	/* find the maximum number of bits per key that fits, to within 0.01 */
	while (high - low > 0.01)
	{
		double		middle = (low + high) / 2;

		if (total_size(keys, n, middle) <= space)
			low = middle;
		else
			high = middle;
	}
	for (int i = 0; i < n; i++)
		sizes[i] = (uint16_t) size_by_bits(keys[i], low);
}

/* Initializes a filter without bits, planned for the given number of keys. */
void
bx_packed_init(char *filter, size_t size, double keys, double target)
{
	uint8_t    *end = (uint8_t *) filter + size;
	uint8_t		probes = (uint8_t) choose_probes(keys > 1 ? keys : 1, size,
												 target);

	memset(filter, 0, size);
	if (size < BX_PACKED_LINE)
		end[-1] = probes;
	else
	{
		uint8_t    *trailer = end - BX_PACKED_TRAILER;

		trailer[MARKER_AT] = MARKER;
		trailer[PROBES_AT] = probes;
	}
}

/*
 * Makes a filter match everything.  This only sets bits, so if a filter in
 * doubt is ORed into another one, the result is in doubt.
 */
void
bx_packed_set_doubt(char *filter, size_t size)
{
	uint8_t    *end = (uint8_t *) filter + size;

	if (size < BX_PACKED_LINE)
		end[-1] |= DOUBT_PROBES;
	else
		(end - BX_PACKED_TRAILER)[IMPLEMENTATION_AT] = DOUBT_IMPLEMENTATION;
}

static int
count_bits(const char *bytes, size_t n)
{
	int			result = 0;

	for (size_t i = 0; i < n; i++)
		result += __builtin_popcount((uint8_t) bytes[i]);
	return result;
}

/* Estimates keys and rate from the number of bits that are set. */
void
bx_packed_fill(const char *filter, size_t size, BxPackedFill *fill)
{
	Parts		parts = take_apart(filter, size);
	uint32_t	units = parts.lines == 0 ? 1 : parts.lines;
	size_t		bytes = parts.lines == 0 ? parts.bits / 8 : BX_PACKED_LINE;

	memset(fill, 0, sizeof(*fill));
	if (parts.probes == 0)
	{
		fill->doubt = true;
		fill->fill = fill->rate = 1;
		return;
	}
	fill->probes = parts.probes;
	for (uint32_t i = 0; i < units; i++)
	{
		int			set = count_bits(filter + i * bytes, bytes);

		fill->keys += bx_filter_fill_keys(set, (int) bytes * 8, parts.probes);
		fill->rate += bx_filter_fill_rate(set, (int) bytes * 8, parts.probes) /
			units;
		fill->fill += set / (bytes * 8.0) / units;
	}
}
