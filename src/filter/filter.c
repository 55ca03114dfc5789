/*-------------------------------------------------------------------------
 *
 * filter.c
 *	  Sizing of the filters, setting bits of many keys, estimates from the
 *	  fill, and counting distinct keys.
 *
 * The filter of one child in one slice is a plain Bloom filter of nrows bits.
 * The keys are distributed over the slices by hash, so the number of keys per
 * slice varies, and the false-positive rate is the mean over that
 * distribution: with few slices much better than the Poisson formula of
 * blocked Bloom filters, with one slice the same as for a single large
 * filter.
 *
 *-------------------------------------------------------------------------
 */
#include "filter.h"

#include <math.h>

/*
 * Filters are planned for at least this many keys.  Fewer would save nothing,
 * because one slice has room for this many keys at any allowed rate, and it
 * leaves room for later keys.
 */
#define FEWEST_KEYS		16

/*
 * A rate <= RATE_SLACK * target is accepted rather than adding another slice
 * or probe.
 */
#define RATE_SLACK		1.25

/* 1/SPARE_SLICES more slices are allocated than necessary, to save probes. */
#define SPARE_SLICES	20

/* Sanity limit: 128 GB. */
#define MOST_SLICES		(1 << 24)

/* Returns x^n for a small integer n >= 0; pow() is much slower. */
static double
power(double x, int n)
{
	double		result = 1;

	for (; n > 0; n >>= 1)
	{
		if (n & 1)
			result *= x;
		x *= x;
	}
	return result;
}

/*
 * Returns the false-positive rate of filters of "keys" keys, distributed over
 * nslices slices: the rate of a plain Bloom filter, averaged over the
 * binomial distribution of the number of keys in a slice.
 */
double
bx_filter_rate(double keys, uint32_t nslices, int nrows, int nprobes)
{
	double		mean = keys / nslices;
	double		share = 1.0 / nslices;
	double		clear_by_key = power(1.0 - 1.0 / nrows, nprobes);
	double		clear = 1;		/* probability that a bit is clear after i
								 * keys */
	double		chance;			/* probability that a slice has i keys */
	double		odds;
	double		sum = 0;
	int			last;

	if (!(keys > 0))
		return 0;

	/*
	 * the start of the recurrence would underflow; the variance is negligible
	 * here
	 */
	if (nslices == 1 || mean > 600)
		return power(1.0 - pow(clear_by_key, mean), nprobes);

	odds = share / (1.0 - share);
	chance = exp(keys * log1p(-share));
	last = (int) (mean + 10 * sqrt(mean) + 10);
	for (int i = 0; i <= last && i <= keys; i++)
	{
		sum += chance * power(1.0 - clear, nprobes);
		clear *= clear_by_key;
		chance *= (keys - i) / (i + 1) * odds;
	}
	return sum < 1.0 ? sum : 1.0;
}

/*
 * Returns the smallest number of probes that keeps the rate, or 0 if there is
 * none.  Fewer probes mean less work and less WAL, and tolerate more keys
 * than planned.
 */
static int
choose_probes(double keys, uint32_t nslices, int nrows, double rate)
{
	double		ideal = (double) nrows * nslices / keys * M_LN2;

	for (int k = 1; k <= BX_MAX_PROBES && k <= ideal + 2; k++)
	{
		if (bx_filter_rate(keys, nslices, nrows, k) <= rate)
			return k;
	}
	return 0;
}

/*
 * Returns the maximum number of keys per slice of a single large filter at
 * this rate.
 */
double
bx_filter_capacity(double rate, int nrows)
{
	return nrows * M_LN2 * M_LN2 / -log(rate);
}

/*
 * Returns the size of filters of "keys" keys: about the smallest number of
 * slices with rate <= RATE_SLACK * target, plus 1/SPARE_SLICES, because the
 * last few percent of space would cost two or three more probes.
 */
BxPlan
bx_filter_plan(double keys, double target, int nrows)
{
	double		rate = target * RATE_SLACK;
	BxPlan		plan;
	double		fewest;

	if (!(keys >= FEWEST_KEYS))
		keys = FEWEST_KEYS;

	/* lower bound: a single large filter with the optimal number of probes */
	fewest = floor(keys / bx_filter_capacity(rate, nrows));
	plan.nslices = fewest < 1 ? 1 : fewest < MOST_SLICES ? (uint32_t) fewest :
		MOST_SLICES;
	while (choose_probes(keys, plan.nslices, nrows, rate) == 0 &&
		   plan.nslices < MOST_SLICES)
		plan.nslices += 1 + plan.nslices / 64;
	if (plan.nslices < MOST_SLICES)
		plan.nslices += plan.nslices / SPARE_SLICES;
	plan.nprobes = choose_probes(keys, plan.nslices, nrows, rate);
	if (plan.nprobes == 0)
		plan.nprobes = 1;
	return plan;
}

void
bx_filter_add_keys_scalar(const BxPlanes *planes, uint8_t *scratch,
						  uint8_t bit, const uint64_t *keys, size_t nkeys)
{
	const int	nrows = planes->nrows;
	const int	nprobes = planes->nprobes;
	const size_t size = BX_PLANE_BYTES(nrows);

	for (size_t k = 0; k < nkeys; k++)
	{
		uint64_t	lh = bx_filter_level_hash(keys[k], planes->level);
		uint32_t	slice = bx_filter_slice(lh, planes->nslices) - planes->first;
		uint32_t	x = bx_filter_first(lh);
		uint8_t    *plane;

		if (slice >= planes->n)
			continue;
		plane = scratch + size * slice;
		for (int i = 0; i < nprobes; i++)
		{
			plane[bx_filter_row(x, nrows)] = bit;
			x = bx_filter_next(x);
		}
	}
}

#ifdef BX_HAVE_VECTORS

#include <immintrin.h>

/* Number of probes that are computed at a time. */
#define VECTOR_PROBES	8
_Static_assert(BX_MAX_PROBES % VECTOR_PROBES == 0, "probes are not whole vectors");

/* Returns the rows of eight probes. */
BX_VECTOR_CODE static inline __m256i
find_rows(__m256i x, __m256i nrows)
{
	__m256i		even = _mm256_srli_epi64(_mm256_mul_epu32(x, nrows), 32);
	__m256i		odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), nrows);

	return _mm256_blend_epi32(even, odd, 0xAA);
}

/* Always inlined, so that constant arguments are compile-time constants. */
#define INLINED_VECTOR_CODE \
	BX_VECTOR_CODE __attribute__((always_inline)) inline

/* Stores "bit" in the first n of eight rows. */
INLINED_VECTOR_CODE static void
set_rows(uint8_t *plane, uint8_t bit, const uint32_t *rows, const int n)
{
	if (n > 0)
		plane[rows[0]] = bit;
	if (n > 1)
		plane[rows[1]] = bit;
	if (n > 2)
		plane[rows[2]] = bit;
	if (n > 3)
		plane[rows[3]] = bit;
	if (n > 4)
		plane[rows[4]] = bit;
	if (n > 5)
		plane[rows[5]] = bit;
	if (n > 6)
		plane[rows[6]] = bit;
	if (n > 7)
		plane[rows[7]] = bit;
}

/*
 * As bx_filter_add_keys_scalar(), but computes the rows of eight probes at a
 * time.  "last" is the number of probes in the last vector.
 */
INLINED_VECTOR_CODE static void
add_keys_last(const BxPlanes *planes, uint8_t *scratch, uint8_t bit,
			  const uint64_t *keys, size_t nkeys, const int last)
{
	const __m256i nrows = _mm256_set1_epi32(planes->nrows);
	const size_t size = BX_PLANE_BYTES(planes->nrows);
	const BxPlanes p = *planes; /* a local copy, so that stores do not force
								 * reloads (aliasing) */
	uint32_t	walk[BX_MAX_PROBES];

	walk[0] = 1;
	for (int i = 1; i < BX_MAX_PROBES; i++)
		walk[i] = bx_filter_next(walk[i - 1]);
	for (size_t k = 0; k < nkeys; k++)
	{
		uint64_t	lh = bx_filter_level_hash(keys[k], p.level);
		uint32_t	slice = bx_filter_slice(lh, p.nslices) - p.first;
		__m256i		x = _mm256_set1_epi32((int) bx_filter_first(lh));
		const __m256i *steps = (const __m256i *) walk;
		uint32_t	rows[VECTOR_PROBES];
		uint8_t    *plane;

		if (slice >= p.n)
			continue;
		plane = scratch + size * slice;
		for (int left = p.nprobes;; left -= VECTOR_PROBES)
		{
			_mm256_storeu_si256((__m256i *) rows,
								find_rows(_mm256_mullo_epi32(x, _mm256_loadu_si256(steps++)),
										  nrows));
			if (left <= VECTOR_PROBES)
				break;
			set_rows(plane, bit, rows, VECTOR_PROBES);
		}
		set_rows(plane, bit, rows, last);
	}
}

/* Separate code for each number of probes in the last vector. */
#define CASE_LAST(last) \
	case (last) % VECTOR_PROBES: \
		add_keys_last(planes, scratch, bit, keys, nkeys, last); \
		break

BX_VECTOR_CODE static void
add_keys_vector(const BxPlanes *planes, uint8_t *scratch, uint8_t bit,
				const uint64_t *keys, size_t nkeys)
{
	switch (planes->nprobes % VECTOR_PROBES)
	{
			CASE_LAST(1);
			CASE_LAST(2);
			CASE_LAST(3);
			CASE_LAST(4);
			CASE_LAST(5);
			CASE_LAST(6);
			CASE_LAST(7);
			CASE_LAST(8);
	}
}

#endif

/* Returns the fastest implementation for this processor. */
BxAddKeys
bx_filter_choose_add_keys(void)
{
#ifdef BX_HAVE_VECTORS
	if (__builtin_cpu_supports("avx2"))
		return add_keys_vector;
#endif
	return bx_filter_add_keys_scalar;
}

/*
 * ORs the bits in "scratch" into a plane of each of the n slices, and clears
 * "scratch".
 */
void
bx_filter_merge(const BxPlanes *planes, uint8_t *scratch, uint8_t *to)
{
	const size_t size = BX_PLANE_BYTES(planes->nrows) * planes->n;

	for (size_t at = 0; at < size; at += sizeof(uint64_t))
	{
		uint64_t	a;
		uint64_t	b;

		memcpy(&a, to + at, sizeof(a));
		memcpy(&b, scratch + at, sizeof(b));
		a |= b;
		memcpy(to + at, &a, sizeof(a));
	}
	memset(scratch, 0, size);
}

#ifdef BX_HAVE_VECTORS

/* Interleaves the bytes of the first eight and the last eight vectors. */
static inline void
shuffle(const __m128i *from, __m128i *to)
{
	for (int i = 0; i < 8; i++)
	{
		to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + 8]);
		to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + 8]);
	}
}

#endif

/* Transposes sixteen bytes of each of the sixteen planes to sixteen rows. */
static inline void
transpose_square(const uint8_t *from, size_t stride, char *rows)
{
#ifdef BX_HAVE_VECTORS
	__m128i		a[BX_PLANES];
	__m128i		b[BX_PLANES];

	for (int p = 0; p < BX_PLANES; p++)
		a[p] = _mm_loadu_si128((const __m128i *) (from + stride * p));
	shuffle(a, b);
	shuffle(b, a);
	shuffle(a, b);
	shuffle(b, a);
	memcpy(rows, a, sizeof(a));
#else
	for (int row = 0; row < 16; row++)
	{
		for (int p = 0; p < BX_PLANES; p++)
			rows[row * BX_PLANES + p] = (char) from[stride * p + row];
	}
#endif
}

/*
 * Transposes the planes of a slice, which are "stride" bytes apart, to its
 * rows.
 */
void
bx_filter_transpose(const uint8_t *planes, size_t stride, char *rows,
					int nrows)
{
	for (int first = 0; first < nrows; first += 16)
	{
		int			n = nrows - first < 16 ? nrows - first : 16;
		char		square[16 * BX_MASK_BYTES];

		transpose_square(planes + first, stride, square);
		memcpy(rows + (size_t) first * BX_MASK_BYTES, square,
			   (size_t) n * BX_MASK_BYTES);
	}
}

/*
 * Counts the bits that are set in each column; bits_set has BX_MASK_BITS
 * elements.
 *
 * For one bit position of all bytes at a time, the columns are counted in
 * parallel in single bytes, which are added to the totals before they could
 * overflow.
 */
void
bx_filter_count(const char *rows, int nrows, int *bits_set)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);

	memset(bits_set, 0, sizeof(int) * BX_MASK_BITS);
	for (int first = 0; first < nrows; first += 255)
	{
		int			end = first + 255 < nrows ? first + 255 : nrows;

		for (int bit = 0; bit < 8; bit++)
		{
			BxMask		sums = {.word = {0}};

			for (int r = first; r < end; r++)
			{
				BxMask		row;

				memcpy(&row, rows + (size_t) r * BX_MASK_BYTES, BX_MASK_BYTES);
				sums.word[0] += (row.word[0] >> bit) & ones;
				sums.word[1] += (row.word[1] >> bit) & ones;
			}
			for (int byte = 0; byte < BX_MASK_BYTES; byte++)
				bits_set[byte * 8 + bit] += sums.byte[byte];
		}
	}
}

/* Returns the rate of a filter of nrows bits of which bits_set are set. */
double
bx_filter_fill_rate(int bits_set, int nrows, int nprobes)
{
	return power((double) bits_set / nrows, nprobes);
}

/*
 * Returns the estimated number of keys of a filter of nrows bits of which
 * bits_set are set.
 */
double
bx_filter_fill_keys(int bits_set, int nrows, int nprobes)
{
	if (bits_set >= nrows)
		bits_set = nrows - 1;	/* saturated: at least this many */
	return log1p(-(double) bits_set / nrows) /
		(nprobes * log1p(-1.0 / nrows));
}

/*
 * Returns the estimated number of distinct keys that were added, which is not
 * more than the number of keys that were added.
 */
double
bx_distinct_estimate(const BxDistinct *distinct)
{
	const int	n = 1 << BX_DISTINCT_BITS;
	int			registers[65] = {0};	/* number of registers by their value */
	double		sum = 0;
	double		estimate;

	for (int i = 0; i < n; i++)
		registers[distinct->most[i]]++;
	for (int i = 64; i >= 0; i--)
		sum += ldexp(registers[i], -i);
	estimate = 0.7213 / (1 + 1.079 / n) * n * n / sum;

	/* for few keys, counting the empty registers is more precise */
	if (estimate <= 2.5 * n && registers[0] > 0)
		estimate = n * log((double) n / registers[0]);
	return estimate < distinct->added ? estimate : distinct->added;
}
