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

/* What a filter in doubt has in place of its implementation or its probes. */
#define DOUBT_IMPLEMENTATION	0xFF
#define DOUBT_PROBES			(BX_PACKED_MAX_PROBES + 1)

/* Multiplier of the walk, as in bx_filter_next. */
#define WALK				UINT32_C(0x9e3779b9)

/* A filter taken apart. */
typedef struct Parts
{
	uint32_t	lines;			/* 0: the small format */
	uint32_t	bits;			/* of the small format */
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

/* A key's line, and where its walk starts. */
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

/* Whether the filter may hold the key. */
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
 * The same for all bits of a line at once, eight at a time.  The upper four
 * bits of x choose one of the line's sixteen words, the next five its bit.
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

		/* the uppermost bit of x tells which half */
		__m256i		found = _mm256_castps_si256(_mm256_blendv_ps(from_low, from_high,
																 _mm256_castsi256_ps(x)));

		if (!_mm256_testc_si256(found, wanted))
			return false;
		x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int) (walk4 * walk4)));
	}
	return true;
}

/* Filters that are asked for ahead of the one that is tested. */
#define LOOK_AHEAD		12

/* Asks for what the test of a filter will read; a small one comes by itself. */
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

/* The fastest way to test filters that this processor has. */
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
 * The bits of a key, counted from the filter's start; positions has room for
 * BX_PACKED_MAX_PROBES.  Returns how many there are: none if the filter is in
 * doubt.
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
 * The rate of a small filter: the mean of (fill ^ probes), for which in so few
 * bits it matters that the fill varies.
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
 * Probes for a filter: what gives the lowest rate, but no more than the target
 * needs when half of the bits are set.  Where keys are spread unevenly over
 * lines, fewer are best than in a plain filter, with which this begins.
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

/* The rate of a filter of so many bytes that was made for so many keys. */
double
bx_packed_rate(double keys, size_t size, double target)
{
	if (!(keys > 0))
		return 0;
	return rate_by_probes(keys, size, choose_probes(keys, size, target));
}

/* The size of a filter that gives each of its keys so many bits. */
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
 * Shares out space among n filters by their keys.  There must be enough for
 * BX_PACKED_MIN_SIZE each.
 */
void
bx_packed_share(const double *keys, int n, size_t space, uint16_t *sizes)
{
	double		low = 0;
	double		high = (double) space * 8;

	/* the most bits per key that fit, to a hundredth */
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

/* Makes a filter without bits, for so many keys. */
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
 * Makes a filter match everything.  This only sets bits, so ORing a filter in
 * doubt into another leaves that in doubt.
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

/* Tells keys and rate from the bits that are set. */
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
