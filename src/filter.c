/*-------------------------------------------------------------------------
 *
 * filter.c
 *	  Sizing of the filters, and what their fill tells.
 *
 * One child's filter in one slice is a plain Bloom filter of nrows bits.  Its
 * keys are spread over the slices by hash, so the number that falls into a
 * slice varies, and the rate is the average over that spread: with few slices
 * much better than the Poisson formula of blocked Bloom filters, with one
 * slice as good as a single large filter.
 *
 *-------------------------------------------------------------------------
 */
#include "filter.h"

#include <math.h>

/*
 * Planning for fewer keys than this saves nothing: one slice holds them at any
 * rate that is allowed.  It leaves room for those that come later.
 */
#define FEWEST_KEYS		16

/* A rate this much above the target is accepted rather than another slice or probe. */
#define RATE_SLACK		1.25

/* One in so many slices is there to save probes. */
#define SPARE_SLICES	20

/* A guard only: these are 128 GB. */
#define MOST_SLICES		(1 << 24)

/* x to the power of a small whole number; pow() is much slower. */
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
 * The rate of filters of "keys" keys, spread over nslices slices: the rate of
 * a plain Bloom filter, averaged over the binomial distribution of the number
 * of keys in a slice.
 */
double
bx_filter_rate(double keys, uint32_t nslices, int nrows, int nprobes)
{
	double		mean = keys / nslices;
	double		share = 1.0 / nslices;
	double		clear_by_key = power(1.0 - 1.0 / nrows, nprobes);
	double		clear = 1;		/* chance that a bit is clear after i keys */
	double		chance;			/* that a slice has i keys */
	double		odds;
	double		sum = 0;
	int			last;

	if (!(keys > 0))
		return 0;

	/* the start of the recurrence would underflow; the spread is small here */
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
 * The fewest probes that keep the rate; 0 if none do.  Fewer probes are less
 * work and less WAL, and bear it better when more keys come than planned.
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

/* Keys that a slice of a single large filter holds at a rate, at best. */
double
bx_filter_capacity(double rate, int nrows)
{
	return nrows * M_LN2 * M_LN2 / -log(rate);
}

/*
 * The geometry for filters of "keys" keys: the fewest slices that keep the rate
 * near the target, and some more if there are many, because the last few per
 * cent of space cost two or three probes.
 */
BxPlan
bx_filter_plan(double keys, double target, int nrows)
{
	double		rate = target * RATE_SLACK;
	BxPlan		plan;
	double		fewest;

	if (!(keys >= FEWEST_KEYS))
		keys = FEWEST_KEYS;

	/* no filter does better than one large one with the best probes */
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
bx_filter_add_keys_scalar(const BxLines *lines, uint64_t *bits,
						  const uint64_t *keys, size_t nkeys)
{
	const int	nrows = lines->nrows;
	const int	nprobes = lines->nprobes;
	const size_t words = BX_LINE_WORDS(nrows);

	for (size_t k = 0; k < nkeys; k++)
	{
		uint64_t	lh = bx_filter_level_hash(keys[k], lines->level);
		uint32_t	slice = bx_filter_slice(lh, lines->nslices) - lines->first;
		uint32_t	x = bx_filter_first(lh);
		uint64_t   *line;

		if (slice >= lines->n)
			continue;
		line = bits + words * slice;
		for (int i = 0; i < nprobes; i++)
		{
			uint32_t	row = bx_filter_row(x, nrows);

			line[row / 64] |= UINT64_C(1) << (row % 64);
			x = bx_filter_next(x);
		}
	}
}

#ifdef BX_HAVE_VECTORS

#include <immintrin.h>

/* Rows of a line that fits in two vectors. */
#define VECTOR_ROWS		512

/* Probes are computed eight at a time, in arrays of BX_MAX_PROBES. */
_Static_assert(BX_MAX_PROBES % 8 == 0, "arrays of probes are not whole vectors");

/* The rows of eight probes. */
BX_VECTOR_CODE static inline __m256i
find_rows(__m256i x, __m256i nrows)
{
	__m256i		even = _mm256_srli_epi64(_mm256_mul_epu32(x, nrows), 32);
	__m256i		odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), nrows);

	return _mm256_blend_epi32(even, odd, 0xAA);
}

/*
 * Sets a bit in eight words, the first of which begins at bit "start" of the
 * line.  A shift by 32 or more, or by less than 0, gives 0; so only the word
 * that has the bit gets it.
 */
BX_VECTOR_CODE static inline __m256i
set_bit(__m256i words, uint32_t row, int start)
{
	const __m256i starts = _mm256_setr_epi32(start, start + 32, start + 64,
											 start + 96, start + 128,
											 start + 160, start + 192,
											 start + 224);
	__m256i		shifts = _mm256_sub_epi32(_mm256_set1_epi32((int) row), starts);

	return _mm256_or_si256(words, _mm256_sllv_epi32(_mm256_set1_epi32(1), shifts));
}

/*
 * The same with a line kept in two vectors while a key's bits are set there.
 * In memory, bits that fall into the same word would wait for each other.
 */
BX_VECTOR_CODE static void
add_keys_vector(const BxLines *lines, uint64_t *bits, const uint64_t *keys,
				size_t nkeys)
{
	const __m256i nrows = _mm256_set1_epi32(lines->nrows);
	uint32_t	walk[BX_MAX_PROBES];

	walk[0] = 1;
	for (int i = 1; i < BX_MAX_PROBES; i++)
		walk[i] = bx_filter_next(walk[i - 1]);
	for (size_t k = 0; k < nkeys; k++)
	{
		uint64_t	lh = bx_filter_level_hash(keys[k], lines->level);
		uint32_t	slice = bx_filter_slice(lh, lines->nslices) - lines->first;
		__m256i		x = _mm256_set1_epi32((int) bx_filter_first(lh));
		uint32_t	rows[BX_MAX_PROBES];
		__m256i    *line;
		__m256i		low;
		__m256i		high;

		if (slice >= lines->n)
			continue;
		for (int i = 0; i < lines->nprobes; i += 8)
		{
			__m256i		steps = _mm256_loadu_si256((const __m256i *) (walk + i));

			_mm256_storeu_si256((__m256i *) (rows + i),
								find_rows(_mm256_mullo_epi32(x, steps), nrows));
		}
		line = (__m256i *) (bits + VECTOR_ROWS / 64 * (size_t) slice);
		low = _mm256_loadu_si256(line);
		high = _mm256_loadu_si256(line + 1);
		for (int i = 0; i < lines->nprobes; i++)
		{
			low = set_bit(low, rows[i], 0);
			high = set_bit(high, rows[i], VECTOR_ROWS / 2);
		}
		_mm256_storeu_si256(line, low);
		_mm256_storeu_si256(line + 1, high);
	}
}

#endif

/* The fastest way to add keys that this processor has. */
BxAddKeys
bx_filter_choose_add_keys(int nrows)
{
#ifdef BX_HAVE_VECTORS
	if (BX_LINE_WORDS(nrows) == VECTOR_ROWS / 64 &&
		__builtin_cpu_supports("avx2"))
		return add_keys_vector;
#endif
	return bx_filter_add_keys_scalar;
}

/*
 * A step of the transposition of 64 x 64 bits: in each square of 2 x width
 * bits, the upper right and the lower left quarter change places.  The width is
 * a constant, so that the compiler can use vector instructions.
 */
static inline void
swap_quarters(uint64_t *block, const int width, const uint64_t mask)
{
	for (int first = 0; first < 64; first += 2 * width)
	{
		uint64_t   *a = block + first;
		uint64_t   *b = a + width;

		for (int i = 0; i < width; i++)
		{
			uint64_t	swap = ((a[i] >> width) ^ b[i]) & mask;

			a[i] ^= swap << width;
			b[i] ^= swap;
		}
	}
}

static void
transpose_block(uint64_t *block)
{
	swap_quarters(block, 32, UINT64_C(0x00000000FFFFFFFF));
	swap_quarters(block, 16, UINT64_C(0x0000FFFF0000FFFF));
	swap_quarters(block, 8, UINT64_C(0x00FF00FF00FF00FF));
	swap_quarters(block, 4, UINT64_C(0x0F0F0F0F0F0F0F0F));
	swap_quarters(block, 2, UINT64_C(0x3333333333333333));
	swap_quarters(block, 1, UINT64_C(0x5555555555555555));
}

/*
 * Makes the rows of a slice from the lines of its children, which lie "stride"
 * words apart.
 */
void
bx_filter_transpose(const uint64_t *lines, size_t stride, char *rows, int nrows)
{
	uint64_t	block[64];

	for (int child = 0; child < BX_MASK_BITS; child += 64)
	{
		for (int first = 0; first < nrows; first += 64)
		{
			int			n = nrows - first < 64 ? nrows - first : 64;

			for (int i = 0; i < 64; i++)
				block[i] = lines[(child + i) * stride + first / 64];
			transpose_block(block);
			for (int i = 0; i < n; i++)
			{
				char	   *to = rows + (size_t) (first + i) * BX_MASK_BYTES +
				child / 8;

				for (int byte = 0; byte < 8; byte++)
					to[byte] = (char) (block[i] >> (8 * byte));
			}
		}
	}
}

/*
 * Counts the bits that are set in each column; bits_set has BX_MASK_BITS.
 *
 * Eight columns are counted at once, in the eight bytes of a word, to which
 * each row's byte is added with its bits spread out.  The bytes are emptied
 * before they could overflow.
 */
void
bx_filter_count(const char *rows, int nrows, int *bits_set)
{
	memset(bits_set, 0, sizeof(int) * BX_MASK_BITS);
	for (int first = 0; first < nrows; first += 255)
	{
		int			end = first + 255 < nrows ? first + 255 : nrows;

		for (int byte = 0; byte < BX_MASK_BYTES; byte++)
		{
			uint64_t	sums = 0;

			for (int r = first; r < end; r++)
			{
				uint64_t	b = (uint8_t) rows[(size_t) r * BX_MASK_BYTES + byte];

				/*
				 * bit i to the lowest bit of byte i: seven bits, then the
				 * last
				 */
				sums += ((b & 0x7F) * UINT64_C(0x0002040810204081) &
						 UINT64_C(0x0001010101010101)) | (b >> 7) << 56;
			}
			for (int i = 0; i < 8; i++)
				bits_set[byte * 8 + i] += (int) ((sums >> (8 * i)) & 0xFF);
		}
	}
}

/* The rate of a filter of nrows bits of which so many are set. */
double
bx_filter_fill_rate(int bits_set, int nrows, int nprobes)
{
	return power((double) bits_set / nrows, nprobes);
}

/* How many keys a filter of nrows bits holds if so many of them are set. */
double
bx_filter_fill_keys(int bits_set, int nrows, int nprobes)
{
	if (bits_set >= nrows)
		bits_set = nrows - 1;	/* saturated: at least this many */
	return log1p(-(double) bits_set / nrows) /
		(nprobes * log1p(-1.0 / nrows));
}
