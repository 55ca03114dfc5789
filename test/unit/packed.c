/*-------------------------------------------------------------------------
 *
 * packed.c
 *	  Filters of layout "block": both formats byte by byte, their rates
 *	  against the theory, and the vector test against the scalar one.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"
#include "unit.h"

#define TARGET			0.00001
#define MAX_FILTERS		64
#define PAGE			8128

#define HOLDS(condition)	CHECK(condition, "does not hold")

static uint64_t
key_of(int filter, int i)
{
	return mix(((uint64_t) filter << 32) + (uint64_t) i);
}

static uint64_t
strange_key(uint64_t i)
{
	return mix((UINT64_C(1) << 60) + i);
}

/* Bits whose places were worked out by hand from the formats' description. */
static void
test_small_bytes(void)
{
	char		filter[BX_PACKED_MIN_SIZE];
	char		expected[BX_PACKED_MIN_SIZE] = {0};

	/* 64 bits, and three probes for 8 keys of 8 bits each at a rate of 0.25 */
	bx_packed_init(filter, sizeof(filter), 8, 0.25);
	expected[8] = 3;
	HOLDS(memcmp(filter, expected, sizeof(filter)) == 0);
	HOLDS(!bx_packed_test(filter, sizeof(filter), 0));

	/*
	 * The upper half, 0x40000000, is a quarter of 2^32, and a quarter of 64
	 * bits is bit 16.  Times 0x9e3779b9 it stays 0x40000000, because that
	 * number is 1 modulo 4.
	 */
	bx_packed_add(filter, sizeof(filter), UINT64_C(0x4000000012345678));
	expected[2] = 0x01;
	HOLDS(memcmp(filter, expected, sizeof(filter)) == 0);

	/*
	 * 0x00000001 is bit 0; times 0x9e3779b9 it is that, of which the upper
	 * six bits are 39; and times that again 0xe35e67b1, with 56.
	 */
	bx_packed_add(filter, sizeof(filter), UINT64_C(0x0000000100000000));
	expected[0] |= 0x01;
	expected[4] |= (char) 0x80;
	expected[7] |= (char) 0x01;
	HOLDS(memcmp(filter, expected, sizeof(filter)) == 0);
	HOLDS(bx_packed_test(filter, sizeof(filter), UINT64_C(0x00000001FFFFFFFF)));
	HOLDS(!bx_packed_test(filter, sizeof(filter), UINT64_C(0x8000000000000000)));
}

static void
test_large_bytes(void)
{
	size_t		size = 2 * BX_PACKED_LINE + BX_PACKED_TRAILER;
	char		filter[2 * BX_PACKED_LINE + BX_PACKED_TRAILER];
	char		expected[2 * BX_PACKED_LINE + BX_PACKED_TRAILER] = {0};

	/* 1024 bits for 102 keys, 10 each: six probes */
	bx_packed_init(filter, size, 102, 0.0001);
	expected[128] = (char) 0xFF;
	expected[130] = 6;
	HOLDS(memcmp(filter, expected, size) == 0);

	/* lower half 0xC0000000: the second of two lines; upper half: bit 128 */
	bx_packed_add(filter, size, UINT64_C(0x40000000C0000000));
	expected[64 + 16] = 0x01;
	HOLDS(memcmp(filter, expected, size) == 0);
	HOLDS(bx_packed_test(filter, size, UINT64_C(0x4000000080000000)));
	HOLDS(!bx_packed_test(filter, size, UINT64_C(0x400000007FFFFFFF)));
}

/* A filter that fills the largest page there is: its bits pass 2^16. */
static void
test_largest(void)
{
	static char filter[510 * BX_PACKED_LINE + BX_PACKED_TRAILER];
	int			found = 0;

	bx_packed_init(filter, sizeof(filter), 10000, 0.0001);
	for (int i = 0; i < 10000; i++)
		bx_packed_add(filter, sizeof(filter), key_of(0, i));
	for (int i = 0; i < 10000; i++)
		HOLDS(bx_packed_test(filter, sizeof(filter), key_of(0, i)));
	for (int i = 0; i < 10000; i++)
		found += bx_packed_test(filter, sizeof(filter), strange_key(i));
	HOLDS(found < 20);
}

/* What is not understood matches everything; no bits match nothing. */
static void
test_reserved(void)
{
	char		filter[200];

	for (size_t size = BX_PACKED_MIN_SIZE; size <= sizeof(filter); size++)
	{
		BxPackedFill fill;
		size_t		trailer = size - BX_PACKED_TRAILER;

		/* a size that no filter has matches whatever is in it */
		if (size >= BX_PACKED_LINE &&
			(size - BX_PACKED_TRAILER) % BX_PACKED_LINE != 0)
		{
			HOLDS(!bx_packed_size_is_possible(size));
			memset(filter, 0, size);
			filter[trailer] = (char) 0xFF;
			filter[trailer + 2] = 6;
			HOLDS(bx_packed_test(filter, size, strange_key(1)));
			continue;
		}
		HOLDS(bx_packed_size_is_possible(size));
		for (int i = 0; i < 100; i++)
		{
			bx_packed_init(filter, size, 10, 0.001);
			HOLDS(!bx_packed_test(filter, size, strange_key(i)));
			bx_packed_set_doubt(filter, size);
			HOLDS(bx_packed_test(filter, size, strange_key(i)));
		}
		bx_packed_fill(filter, size, &fill);
		HOLDS(fill.doubt && fill.rate == 1);

		/* every number of probes that is reserved, and other versions */
		for (int probes = 0; probes < 256; probes++)
		{
			bool		known = probes >= 1 && probes <= BX_PACKED_MAX_PROBES;

			bx_packed_init(filter, size, 10, 0.001);
			filter[size < BX_PACKED_LINE ? size - 1 : trailer + 2] = (char) probes;
			HOLDS(bx_packed_test(filter, size, strange_key(1)) == !known);
		}
		if (size >= BX_PACKED_LINE)
		{
			bx_packed_init(filter, size, 10, 0.001);
			filter[trailer] = 7;
			HOLDS(bx_packed_test(filter, size, strange_key(1)));
			bx_packed_init(filter, size, 10, 0.001);
			filter[trailer + 1] = 1;
			HOLDS(bx_packed_test(filter, size, strange_key(1)));
			for (int i = 3; i < BX_PACKED_TRAILER; i++)
			{
				bx_packed_init(filter, size, 10, 0.001);
				filter[trailer + i] = 1;
				HOLDS(bx_packed_test(filter, size, strange_key(1)));
			}
		}
	}

	/* too small for any */
	memset(filter, 0, sizeof(filter));
	for (size_t size = 0; size < BX_PACKED_MIN_SIZE; size++)
		HOLDS(bx_packed_test(filter, size, strange_key(1)));
}

/*
 * The exact rate of n keys of k probes in m bits: the mean of (x / m) ^ k over
 * the distribution of the number x of bits that are set.
 */
static double
exact_rate(int n, int m, int k)
{
	double	   *chance = calloc(m + 1, sizeof(double));
	double		rate = 0;

	chance[0] = 1;
	for (int t = 0; t < n * k; t++)
	{
		for (int x = m; x > 0; x--)
			chance[x] = chance[x] * x / m + chance[x - 1] * (m - x + 1) / m;
		chance[0] = 0;
	}
	for (int x = 0; x <= m; x++)
		rate += chance[x] * pow((double) x / m, k);
	free(chance);
	return rate;
}

/* The exact rate of n keys spread over some lines. */
static double
exact_lines_rate(int n, int lines, int k)
{
	double		rate = 0;

	for (int i = 0; i <= n; i++)
	{
		double		chance = exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) +
								 i * log(1.0 / lines) +
								 (n - i) * log1p(-1.0 / lines));

		if (lines == 1)
			chance = i == n;
		if (chance > 1e-9)
			rate += chance * exact_rate(i, BX_PACKED_LINE_BITS, k);
	}
	return rate;
}

/* Fills many filters of a size, and asks them for keys that they have not. */
static double
measured_rate(int n, size_t size, int *probes, double *expected_count)
{
	int			filters = 1000;
	int			questions = 1000;
	double		found = 0;
	char	   *filter = malloc(size);

	for (int f = 0; f < filters; f++)
	{
		bx_packed_init(filter, size, n, TARGET);
		for (int i = 0; i < n; i++)
			bx_packed_add(filter, size, key_of(f, i));
		for (int i = 0; i < n; i++)
			HOLDS(bx_packed_test(filter, size, key_of(f, i)));
		for (int i = 0; i < questions; i++)
			found += bx_packed_test(filter, size,
									strange_key((uint64_t) f * questions + i));
	}
	*probes = (uint8_t) filter[size < BX_PACKED_LINE ? size - 1 :
							   size - BX_PACKED_TRAILER + 2];
	*expected_count = (double) filters * questions;
	free(filter);
	return found;
}

static void
test_rate(int n, size_t size)
{
	int			probes;
	double		questions;
	double		found = measured_rate(n, size, &probes, &questions);
	int			lines = size < BX_PACKED_LINE ? 0 : (int) (size / BX_PACKED_LINE);
	double		rate = lines == 0 ? exact_rate(n, (int) (size - 1) * 8, probes) :
	exact_lines_rate(n, lines, probes);
	double		planned = bx_packed_rate(n, size, TARGET);

	/* a rare event is not counted more exactly than to its own root */
	CHECK(found <= 1.25 * rate * questions + 3 * sqrt(rate * questions) + 1,
		  "%d keys in %zu bytes, %d probes: %g found, %g expected",
		  n, size, probes, found, rate * questions);
	CHECK(planned <= rate * 1.25 && planned >= rate / 1.25,
		  "%d keys in %zu bytes, %d probes: planned %g, exact %g",
		  n, size, probes, planned, rate);
}

static void
test_rates(void)
{
	for (int bits = 2; bits <= 30; bits += 2)
	{
		static const size_t sizes[] = {9, 21, 40, 63, 69, 197};

		for (int i = 0; i < (int) (sizeof(sizes) / sizeof(sizes[0])); i++)
		{
			int			n = (int) (sizes[i] * 8 / bits);

			if (n >= 4)
				test_rate(n, sizes[i]);
		}
	}
}

static void
test_share(void)
{
	for (int round = 0; round < 500; round++)
	{
		double		keys[700];
		uint16_t	sizes[700];
		int			n = 1 + (int) (mix(round) % 700);
		size_t		space = PAGE - 2 * (n + 1);
		size_t		total = 0;

		for (int i = 0; i < n; i++)
			keys[i] = mix(round * 1000 + i) % (round % 3 == 0 ? 20 : 400);
		bx_packed_share(keys, n, space, sizes);
		for (int i = 0; i < n; i++)
		{
			total += sizes[i];
			HOLDS(sizes[i] >= BX_PACKED_MIN_SIZE);
			HOLDS(sizes[i] < BX_PACKED_LINE ||
				  (sizes[i] - BX_PACKED_TRAILER) % BX_PACKED_LINE == 0);
			for (int j = 0; j < i && j < 20; j++)
				HOLDS(keys[i] >= keys[j] ? sizes[i] >= sizes[j] : true);
		}
		HOLDS(total <= space);
	}
}

/* A million random filters and keys: both tests agree, and with bit by bit. */
static void
test_vector(void)
{
	BxPackedProbe probe = bx_packed_choose_probe();
	int			compared = 0;
	int			matches = 0;

	for (int round = 0; compared < 1200000; round++)
	{
		static char filters[MAX_FILTERS * 600];
		uint16_t	offsets[MAX_FILTERS + 1] = {0};
		uint8_t		one[MAX_FILTERS];
		uint8_t		other[MAX_FILTERS];

		for (int f = 0; f < MAX_FILTERS; f++)
		{
			uint64_t	r = mix(round * 1000 + f);
			size_t		size = r % 2 == 0 ? 9 + r / 2 % 55 :
			(1 + r / 2 % 8) * BX_PACKED_LINE + BX_PACKED_TRAILER;
			int			keys = 1 + (int) (size * 8 / (2 + r / 64 % 28));
			char	   *filter = filters + offsets[f];

			bx_packed_init(filter, size, keys, TARGET);
			for (int i = 0; i < keys; i++)
				bx_packed_add(filter, size, key_of(f, i));
			if (r / 4096 % 50 == 0)
				bx_packed_set_doubt(filter, size);
			if (r / 4096 % 50 == 1)
				filter[size - 1 - r / 65536 % 5] = (char) (r >> 32);
			offsets[f + 1] = (uint16_t) (offsets[f] + size);
		}
		for (int q = 0; q < 100; q++)
		{
			uint64_t	hash = q < 10 ? key_of(q, 0) :
			strange_key(round * 100 + q);

			memset(one, 2, sizeof(one));
			memset(other, 3, sizeof(other));
			bx_packed_probe_scalar(filters, offsets, MAX_FILTERS, hash, one);
			probe(filters, offsets, MAX_FILTERS, hash, other);
			HOLDS(memcmp(one, other, sizeof(one)) == 0);
			for (int f = 0; f < MAX_FILTERS; f++)
				matches += one[f];
			compared += MAX_FILTERS;
		}
	}
	HOLDS(matches > compared / 100 && matches < compared / 2);
}

int
main(void)
{
	test_small_bytes();
	test_large_bytes();
	test_largest();
	test_reserved();
	test_rates();
	test_share();
	test_vector();
	return finish();
}
