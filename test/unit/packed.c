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

/* so low that it does not limit the probes */
#define TARGET			1e-9

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

	/* 1024 bits for 102 keys, 10 each: seven probes */
	bx_packed_init(filter, size, 102, 0.0001);
	expected[128] = (char) 0xFF;
	expected[130] = 7;
	HOLDS(memcmp(filter, expected, size) == 0);

	/* lower half 0xC0000000: the second of two lines; upper half: bit 128 */
	bx_packed_add(filter, size, UINT64_C(0x40000000C0000000));
	expected[64 + 16] = 0x01;
	HOLDS(memcmp(filter, expected, size) == 0);
	HOLDS(bx_packed_test(filter, size, UINT64_C(0x4000000080000000)));
	HOLDS(!bx_packed_test(filter, size, UINT64_C(0x400000007FFFFFFF)));

	/*
	 * Three probes, which are all that a rate of 0.25 needs.  The upper nine
	 * bits of 0x00000001, 0x9e3779b9 and 0xe35e67b1 are 0, 316 and 454.
	 */
	bx_packed_init(filter, size, 102, 0.25);
	bx_packed_add(filter, size, UINT64_C(0x00000001C0000000));
	memset(expected, 0, size);
	expected[128] = (char) 0xFF;
	expected[130] = 3;
	expected[64] = 0x01;
	expected[64 + 39] = 0x10;
	expected[64 + 56] = 0x40;
	HOLDS(memcmp(filter, expected, size) == 0);
	HOLDS(bx_packed_test(filter, size, UINT64_C(0x00000001FFFFFFFF)));
	HOLDS(!bx_packed_test(filter, size, UINT64_C(0x0000000100000000)));
	HOLDS(!bx_packed_test(filter, size, UINT64_C(0x0000000380000000)));
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
 * Exact rates of a plain filter of m bits: exact[n][k] of n keys and k probes is
 * the mean of (x / m) ^ k over the distribution of the number x of bits that
 * are set.  With more throws than these the filter is full.
 */
#define MAX_BITS		512
#define MAX_THROWS		2048

static double exact[MAX_THROWS + 1][BX_PACKED_MAX_PROBES + 1];

static void
find_exact_rates(int m)
{
	static double powers[BX_PACKED_MAX_PROBES + 1][MAX_BITS + 1];
	double		chance[MAX_BITS + 1] = {1};

	for (int k = 0; k <= BX_PACKED_MAX_PROBES; k++)
	{
		for (int x = 0; x <= m; x++)
			powers[k][x] = pow((double) x / m, k);
		for (int n = 0; n <= MAX_THROWS; n++)
			exact[n][k] = n == 0 ? 0 : 1;
	}
	for (int t = 1; t <= MAX_THROWS; t++)
	{
		for (int x = m; x > 0; x--)
			chance[x] = chance[x] * x / m + chance[x - 1] * (m - x + 1) / m;
		chance[0] = 0;
		for (int k = 1; k <= BX_PACKED_MAX_PROBES; k++)
		{
			if (t % k != 0)
				continue;
			exact[t / k][k] = 0;
			for (int x = 0; x <= m; x++)
				exact[t / k][k] += chance[x] * powers[k][x];
		}
	}
}

/* The exact rates, by probes, of n keys that are spread over some lines. */
static void
spread_exact_rates(int n, int lines, double *rates)
{
	for (int k = 1; k <= BX_PACKED_MAX_PROBES; k++)
		rates[k] = lines <= 1 ? exact[n][k] : 0;
	if (lines <= 1)
		return;
	for (int i = 0; i <= n && i <= MAX_THROWS; i++)
	{
		double		chance = exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) -
								 i * log(lines) +
								 (n - i) * log1p(-1.0 / lines));

		for (int k = 1; k <= BX_PACKED_MAX_PROBES; k++)
			rates[k] += chance * exact[i][k];
	}
}

/* What filters of a size, all full, turned out to be. */
struct Measured
{
	int			probes;
	double		questions;
	double		found;			/* questions for strange keys that matched */
	double		keys;			/* means of what bx_packed_fill tells */
	double		rate;
};

static void
check_fill(const char *filter, size_t payload, const BxPackedFill *fill)
{
	int			set = 0;

	for (size_t i = 0; i < payload * 8; i++)
		set += (filter[i / 8] >> (i % 8)) & 1;
	HOLDS(!fill->doubt);
	CHECK(fabs(fill->fill - set / (payload * 8.0)) < 1e-9,
		  "%g, but %d bits of %zu bytes", fill->fill, set, payload);
}

/* Fills many filters of a size, and asks them for keys that they have not. */
static void
measure(int n, size_t size, size_t payload, double rate,
		struct Measured *result)
{
	int			lines = (int) (size / BX_PACKED_LINE);
	int			filters = lines == 0 ? 1000 : 4096 / lines;
	int			questions = (int) (fmin(fmax(400 / rate, 1e5), 1e7) / filters);
	char	   *filter = malloc(size);
	uint64_t	hash = 1;

	memset(result, 0, sizeof(*result));
	for (int f = 0; f < filters; f++)
	{
		BxPackedFill fill;

		bx_packed_init(filter, size, n, TARGET);
		for (int i = 0; i < n; i++)
			bx_packed_add(filter, size, key_of(f, i));
		for (int i = 0; i < n; i++)
			HOLDS(bx_packed_test(filter, size, key_of(f, i)));
		for (int i = 0; i < questions; i++)
		{
			/* another generator: this is most of the time */
			hash = hash * UINT64_C(0xd1342543de82ef95) + 1;
			result->found += bx_packed_test(filter, size, hash ^ hash >> 32);
		}
		bx_packed_fill(filter, size, &fill);
		check_fill(filter, payload, &fill);
		result->probes = fill.probes;
		result->keys += fill.keys / filters;
		result->rate += fill.rate / filters;
	}
	result->questions = (double) questions * filters;
	HOLDS(filter[size < BX_PACKED_LINE ? size - 1 :
				 size - BX_PACKED_TRAILER + 2] == result->probes);
	free(filter);
}

/* Small and large filters that were rarely found. */
static struct
{
	double		found;
	double		expected;
}			rare[2];

static void
test_rate(int bits, size_t size)
{
	int			lines = (int) (size / BX_PACKED_LINE);
	size_t		payload = lines == 0 ? size - 1 : (size_t) lines * BX_PACKED_LINE;
	int			n = (int) (payload * 8) / bits;
	double		rates[BX_PACKED_MAX_PROBES + 1];
	double		theory = 1;
	double		chosen;
	double		expected;
	double		planned = bx_packed_rate(n, size, TARGET);
	struct Measured m;

	/* of few bits, one more or less does not change the number of keys */
	if (n < 2 || n == (int) (payload * 8) / (bits - 1))
		return;
	spread_exact_rates(n, lines, rates);
	for (int k = 1; k <= BX_PACKED_MAX_PROBES; k++)
		theory = fmin(theory, rates[k]);
	measure(n, size, payload, theory, &m);
	chosen = rates[m.probes];
	expected = theory * m.questions;
	CHECK(chosen <= theory * 1.02,
		  "%d keys in %zu bytes: %d probes give %g, the best %g",
		  n, size, m.probes, chosen, theory);

	/*
	 * A rare event is not counted more exactly than to its own root; of 400,
	 * a quarter is five times that.  What is rarer is counted together, too.
	 */
	CHECK(m.found <= 1.25 * expected + (expected < 399 ? 3 * sqrt(expected) : 0),
		  "%d keys in %zu bytes, %d probes: %g found, %g expected",
		  n, size, m.probes, m.found, expected);
	if (expected < 399)
	{
		rare[lines > 0].found += m.found;
		rare[lines > 0].expected += expected;
	}
	CHECK(m.found >= expected / 1.25 - 3 * sqrt(expected),
		  "%d keys in %zu bytes, %d probes: %g found, %g expected",
		  n, size, m.probes, m.found, expected);
	CHECK(planned <= chosen * 1.25 && planned >= chosen / 1.25,
		  "%d keys in %zu bytes, %d probes: planned %g, exact %g",
		  n, size, m.probes, planned, chosen);
	CHECK(fabs(m.keys / n - 1) < 0.05, "%d keys in %zu bytes look like %g",
		  n, size, m.keys);
	CHECK(fabs(m.rate / chosen - 1) < 0.25, "%d keys in %zu bytes: %g, exact %g",
		  n, size, m.rate, chosen);
}

static void
test_rates(void)
{
	static const size_t sizes[] = {9, 31, 63, 69, 517, 8069};

	for (int i = 0; i < (int) (sizeof(sizes) / sizeof(sizes[0])); i++)
	{
		if (sizes[i] < 2 * BX_PACKED_LINE)
			find_exact_rates(sizes[i] < BX_PACKED_LINE ?
							 (int) (sizes[i] - 1) * 8 : BX_PACKED_LINE_BITS);
		for (int bits = 2; bits <= 30; bits++)
			test_rate(bits, sizes[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(rare[i].expected > 400 &&
			  rare[i].found <= 1.25 * rare[i].expected,
			  "rare: %g found, %g expected", rare[i].found, rare[i].expected);
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

/* A million large filters and keys, and small ones: both tests agree. */
static void
test_vector(void)
{
	BxPackedProbe probe = bx_packed_choose_probe();
	int			compared = 0;
	int			matches = 0;

	if (probe == bx_packed_probe_scalar)
		printf("# no vector code for this processor: not tested\n");
	for (int round = 0; compared < 1000000; round++)
	{
		static char filters[MAX_FILTERS * 600];
		uint16_t	offsets[MAX_FILTERS + 1] = {0};
		uint8_t		one[MAX_FILTERS];
		uint8_t		other[MAX_FILTERS];
		int			large = 0;

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
			large += size > BX_PACKED_LINE;
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
			compared += large;
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
