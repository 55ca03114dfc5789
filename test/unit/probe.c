/*-------------------------------------------------------------------------
 *
 * probe.c
 *	  Probes and hashes: real filters are filled and asked, and answer as
 *	  often in vain as the formula says, and never a wrong "no".
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>

#include "filter.h"
#include "unit.h"

#define SLICE_BYTES		((size_t) ROWS * BX_MASK_BYTES)

/* The filters of a node's children, keys of which are key_of(child, i). */
struct node
{
	int			level;
	int			keys;
	uint32_t	nslices;
	int			nprobes;
	char	   *rows;
};

static uint64_t
key_of(int child, int i)
{
	return mix(((uint64_t) child << 32) + i);
}

/* A key that no child has. */
static uint64_t
strange_key(int i)
{
	return mix((UINT64_C(1) << 48) + i);
}

static char *
slice_of(const struct node *node, uint64_t lh)
{
	return node->rows + SLICE_BYTES * bx_filter_slice(lh, node->nslices);
}

static void
fill_node(struct node *node, int level, int keys, uint32_t nslices,
		  int nprobes)
{
	node->level = level;
	node->keys = keys;
	node->nslices = nslices;
	node->nprobes = nprobes;
	node->rows = calloc(nslices, SLICE_BYTES);
	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		for (int i = 0; i < keys; i++)
		{
			uint64_t	lh = bx_filter_level_hash(key_of(c, i), level);

			bx_filter_add(slice_of(node, lh), ROWS, nprobes, lh, c);
		}
	}
}

static void
probe_node(const struct node *node, uint64_t key, BxMask *result)
{
	uint64_t	lh = bx_filter_level_hash(key, node->level);

	bx_filter_probe(slice_of(node, lh), ROWS, node->nprobes, lh, result);
}

static bool
test_node(const struct node *node, uint64_t key, int child)
{
	uint64_t	lh = bx_filter_level_hash(key, node->level);

	return bx_filter_test(slice_of(node, lh), ROWS, node->nprobes, lh, child);
}

static int
count_mask(const BxMask *mask)
{
	int			n = 0;

	for (int c = bx_mask_next(mask, 0); c < BX_MASK_BITS;
		 c = bx_mask_next(mask, c + 1))
		n++;
	return n;
}

/* Every key is found, by the probe of all children and by that of one. */
static void
check_no_false_negative(const struct node *node)
{
	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		for (int i = 0; i < node->keys; i++)
		{
			BxMask		mask;

			probe_node(node, key_of(c, i), &mask);
			CHECK(bx_mask_test(&mask, c), "key %d of child %d is lost", i, c);
			CHECK(test_node(node, key_of(c, i), c),
				  "key %d of child %d is lost", i, c);
		}
	}
}

/* Asks for strange keys; the part of the answers that are "maybe". */
static double
measure_rate(const struct node *node, int n)
{
	double		sum = 0;

	for (int i = 0; i < n; i++)
	{
		BxMask		mask;
		int			child = i % BX_MASK_BITS;

		probe_node(node, strange_key(i), &mask);
		sum += count_mask(&mask);
		CHECK(test_node(node, strange_key(i), child) ==
			  bx_mask_test(&mask, child), "the two probes differ");
	}
	return sum / BX_MASK_BITS / n;
}

/*
 * The measured rate is the predicted one: a quarter more is allowed, and what
 * chance may do to the count (four standard deviations).
 */
static void
check_rate(int keys, uint32_t nslices, int nprobes)
{
	const int	n = 60000;
	double		predicted = bx_filter_rate(keys, nslices, ROWS, nprobes);
	double		chance = 4 * sqrt(predicted / n / BX_MASK_BITS) + 5e-7;
	double		measured;
	struct node node;

	fill_node(&node, 1, keys, nslices, nprobes);
	check_no_false_negative(&node);
	measured = measure_rate(&node, n);
	CHECK(measured <= 1.25 * predicted + chance &&
		  measured >= predicted / 1.25 - chance,
		  "%d keys, %u slices, %d probes: %g, predicted %g", keys, nslices,
		  nprobes, measured, predicted);
	free(node.rows);
}

/* Geometries that are planned, and such as come of more or fewer keys. */
static void
test_rates(void)
{
	static const int keys[] = {1, 7, 16, 64, 150, 400, 1000};
	static const double targets[] = {0.25, 0.01, 0.0002, 0.00001};

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
	{
		for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++)
		{
			BxPlan		plan = bx_filter_plan(keys[k], targets[t], ROWS);

			check_rate(keys[k], plan.nslices, plan.nprobes);
		}
	}
	check_rate(64, 1, 1);
	check_rate(64, 1, 12);
	check_rate(64, 8, 3);
	check_rate(400, 3, 5);
	check_rate(400, 1, 5);
	check_rate(50, 60, 2);
	check_rate(16, 1, BX_MAX_PROBES);
	check_rate(600, 40, BX_MAX_PROBES);
}

/* A filter without keys matches nothing, one with all bits everything. */
static void
test_empty_and_full(void)
{
	static char rows[ROWS * BX_MASK_BYTES];
	BxMask		mask;

	for (int nprobes = 1; nprobes <= BX_MAX_PROBES; nprobes++)
	{
		for (int i = 0; i < 1000; i++)
		{
			memset(rows, 0, sizeof(rows));
			bx_filter_probe(rows, ROWS, nprobes, strange_key(i), &mask);
			CHECK(bx_mask_is_empty(&mask), "empty filters match");
			memset(rows, 0xFF, sizeof(rows));
			bx_filter_probe(rows, ROWS, nprobes, strange_key(i), &mask);
			CHECK(count_mask(&mask) == BX_MASK_BITS,
				  "full filters do not match");
		}
	}
}

/* Adding sets bits of the one child only, at most nprobes of them. */
static void
test_add(void)
{
	static char rows[ROWS * BX_MASK_BYTES];
	int			bits_set[BX_MASK_BITS];
	static const uint64_t extreme[] = {0, 1, UINT32_MAX, UINT64_C(1) << 32,
	UINT64_MAX};

	for (int i = 0; i < 3000; i++)
	{
		uint64_t	lh = i < 5 ? extreme[i] : strange_key(i);
		int			child = i % BX_MASK_BITS;
		int			nprobes = 1 + i % BX_MAX_PROBES;

		memset(rows, 0, sizeof(rows));
		bx_filter_add(rows, ROWS, nprobes, lh, child);
		bx_filter_count(rows, ROWS, bits_set);
		for (int c = 0; c < BX_MASK_BITS; c++)
		{
			bool		found = bx_filter_test(rows, ROWS, nprobes, lh, c);

			CHECK(found == (c == child), "child %d, key is of %d", c, child);
			CHECK(bits_set[c] <= nprobes && (bits_set[c] > 0) == found,
				  "%d bits in child %d", bits_set[c], c);
		}
	}
}

/* Slots are in range, in the order of the hashes, and all are used alike. */
static void
test_slots(void)
{
	static const uint32_t sizes[] = {1, 2, 3, 7, 127, 508, 2044, 65536,
	16777216, UINT32_MAX};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		uint32_t	n = sizes[s];
		uint32_t	last = 0;

		CHECK(bx_filter_slot(0, n) == 0, "%u slots", n);
		CHECK(bx_filter_slot(UINT32_MAX, n) == n - 1, "%u slots: %u", n,
			  bx_filter_slot(UINT32_MAX, n));
		for (uint64_t hash = 0; hash <= UINT32_MAX; hash += 65521)
		{
			uint32_t	slot = bx_filter_slot((uint32_t) hash, n);

			CHECK(slot < n && slot >= last, "%u slots: %u after %u", n, slot,
				  last);
			last = slot;
		}
	}
	for (uint32_t n = 1; n < 300; n++)
	{
		int			used[300] = {0};

		for (int i = 0; i < 60000; i++)
			used[bx_filter_slice(strange_key(i), n)]++;
		for (uint32_t slot = 0; slot < n; slot++)
			CHECK(fabs(used[slot] - 60000.0 / n) < 6 * sqrt(60000.0 / n),
				  "slot %u of %u: %d", slot, n, used[slot]);
	}
}

/* What passes one level by mistake does not pass the other more easily. */
static void
test_levels_are_independent(void)
{
	const int	n = 60000;
	struct node nodes[3];
	double		passed[3] = {0};

	for (int i = 0; i < 3; i++)
		fill_node(&nodes[i], i + 1, 150, 2, 5);
	for (int a = 0; a < 3; a++)
	{
		int			b = (a + 1) % 3;
		double		both = 0;
		double		expected;

		passed[a] = measure_rate(&nodes[a], n);
		passed[b] = measure_rate(&nodes[b], n);
		for (int i = 0; i < n; i++)
		{
			BxMask		mask;
			BxMask		other;

			probe_node(&nodes[a], strange_key(i), &mask);
			probe_node(&nodes[b], strange_key(i), &other);
			bx_mask_and(&mask, &other);
			both += count_mask(&mask);
		}
		expected = passed[a] * passed[b] * n * BX_MASK_BITS;
		CHECK(passed[a] > 0.01 && passed[a] < 0.2, "%g", passed[a]);
		CHECK(fabs(both - expected) < 0.05 * expected + 4 * sqrt(expected),
			  "levels %d and %d: %g, expected %g",
			  a + 1, b + 1, both, expected);
	}
	for (int i = 0; i < 3; i++)
		free(nodes[i].rows);
}

/* Each bit of a level's hash depends on each bit of the key's hash. */
static void
test_level_hash_mixes(void)
{
	for (int level = 1; level <= 3; level++)
	{
		for (int in = 0; in < 64; in++)
		{
			int			changed[64] = {0};
			const int	n = 1000;

			for (int i = 0; i < n; i++)
			{
				uint64_t	key = strange_key(i);
				uint64_t	other = key ^ (UINT64_C(1) << in);

				key = bx_filter_level_hash(key, level);
				other = bx_filter_level_hash(other, level);
				for (int out = 0; out < 64; out++)
					changed[out] += ((key ^ other) >> out) & 1;
			}
			for (int out = 0; out < 64; out++)
				CHECK(changed[out] > n * 0.4 && changed[out] < n * 0.6,
					  "level %d, bit %d to %d: %d of %d",
					  level, in, out, changed[out], n);
		}
		CHECK(bx_filter_level_hash(1, level) !=
			  bx_filter_level_hash(1, level + 1), "level %d", level);
	}
}

/* The number of keys, and the rate, that the fill of a slice tells. */
static void
test_fill(void)
{
	static const int keys[] = {1, 3, 10, 40, 100, 200};
	static const int probes[] = {1, 3, 7, 12};

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
	{
		for (size_t p = 0; p < sizeof(probes) / sizeof(probes[0]); p++)
		{
			int			bits_set[BX_MASK_BITS];
			double		told = 0;
			double		rate = 0;
			double		predicted = bx_filter_rate(keys[k], 1, ROWS,
												   probes[p]);
			struct node node;

			fill_node(&node, 1, keys[k], 1, probes[p]);
			bx_filter_count(node.rows, ROWS, bits_set);
			for (int c = 0; c < BX_MASK_BITS; c++)
			{
				int			n = 0;

				for (int r = 0; r < ROWS; r++)
					n += (node.rows[r * BX_MASK_BYTES + c / 8] >> (c % 8)) & 1;
				CHECK(bits_set[c] == n, "child %d: %d, not %d", c, bits_set[c],
					  n);
				told += bx_filter_fill_keys(n, ROWS, probes[p]);
				rate += bx_filter_fill_rate(n, ROWS, probes[p]);
			}
			told /= BX_MASK_BITS;
			rate /= BX_MASK_BITS;

			/* a slice with next to no clear bit tells little */
			if (keys[k] * probes[p] < 3 * ROWS)
				CHECK(fabs(told - keys[k]) < 0.05 * keys[k] + 0.1,
					  "%d keys, %d probes: told %g", keys[k],
					  probes[p], told);
			CHECK(rate < 1.3 * predicted && rate > predicted / 1.3,
				  "%d keys, %d probes: %g, predicted %g",
				  keys[k], probes[p], rate, predicted);
			free(node.rows);
		}
	}
	CHECK(bx_filter_fill_keys(0, ROWS, 5) == 0, "no bit is set");
	CHECK(bx_filter_fill_keys(ROWS, ROWS, 5) > ROWS / 5.0 &&
		  isfinite(bx_filter_fill_keys(ROWS, ROWS, 5)),
		  "saturated: %g", bx_filter_fill_keys(ROWS, ROWS, 5));
	CHECK(bx_filter_fill_rate(ROWS, ROWS, 5) == 1, "all bits are set");
	CHECK(bx_filter_fill_rate(0, ROWS, 5) == 0, "no bit is set");
}

/* Slices that planes are filled for, of those that a node has. */
#define PLANES_NSLICES	5
#define PLANES_FIRST	1
#define PLANES_N		3

/* Planes that are filled by child and transposed are the slices themselves. */
static void
test_planes(int nrows, int nprobes, BxAddKeys add_keys)
{
	static char rows[PLANES_N][2048 * BX_MASK_BYTES];
	static char transposed[2048 * BX_MASK_BYTES];
	static uint8_t slices[PLANES_N * BX_PLANES * 2048 + 1];
	static uint8_t scratch[PLANES_N * 2048 + 1];
	static const uint8_t zeros[sizeof(scratch)];
	size_t		size = BX_PLANE_BYTES(nrows);
	BxPlanes	planes = {2, nrows, nprobes, PLANES_NSLICES, PLANES_FIRST, PLANES_N};
	uint64_t	keys[100];

	memset(rows, 0, sizeof(rows));
	memset(slices, 0, sizeof(slices));
	memset(scratch, 0, sizeof(scratch));
	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		int			n = c % 100;
		uint8_t		bit = bx_filter_plane_bit(c);

		for (int i = 0; i < n; i++)
		{
			uint64_t	lh = bx_filter_level_hash(key_of(c, i), 2);
			uint32_t	slice = bx_filter_slice(lh, PLANES_NSLICES) - PLANES_FIRST;

			keys[i] = key_of(c, i);
			if (slice < PLANES_N)
				bx_filter_add(rows[slice], nrows, nprobes, lh, c);
		}

		/* in three parts: what is there stays, merged or not */
		add_keys(&planes, scratch, bit, keys, n / 4);
		add_keys(&planes, scratch, bit, keys + n / 4, n / 2 - n / 4);
		bx_filter_merge(&planes, scratch, slices + PLANES_N * size * (c / 8));
		add_keys(&planes, scratch, bit, keys + n / 2, n - n / 2);
		bx_filter_merge(&planes, scratch, slices + PLANES_N * size * (c / 8));
		CHECK(memcmp(scratch, zeros, sizeof(scratch)) == 0,
			  "%d rows, child %d: something is left", nrows, c);
	}
	for (int s = 0; s < PLANES_N; s++)
	{
		memset(transposed, 0x5A, sizeof(transposed));
		bx_filter_transpose(slices + s * size, PLANES_N * size, transposed, nrows);
		CHECK(memcmp(rows[s], transposed, (size_t) nrows * BX_MASK_BYTES) == 0,
			  "%d rows, %d probes, slice %d", nrows, nprobes, s);
		CHECK(transposed[(size_t) nrows * BX_MASK_BYTES] == 0x5A,
			  "%d rows: written behind the end", nrows);
	}
	CHECK(slices[PLANES_N * size * BX_PLANES] == 0,
		  "%d rows: a bit behind the last plane", nrows);
}

/* Distinct keys are counted, however often they come. */
static void
test_distinct(void)
{
	static const int counts[] = {1, 10, 100, 1000, 2000, 3000, 5000, 10000,
	100000};
	static const uint64_t ends[] = {0, UINT64_MAX};
	BxDistinct	distinct;

	bx_distinct_clear(&distinct);
	CHECK(bx_distinct_estimate(&distinct) == 0, "no keys: %g",
		  bx_distinct_estimate(&distinct));
	bx_distinct_add(&distinct, ends, 2);
	CHECK(fabs(bx_distinct_estimate(&distinct) - 2) < 0.01, "two keys: %g",
		  bx_distinct_estimate(&distinct));

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
	{
		double		squares = 0;
		double		told = 0;
		int			tries = counts[i] < 100000 ? 100 : 30;

		for (int t = 0; t < tries; t++)
		{
			double		error;

			bx_distinct_clear(&distinct);
			for (int k = 0; k < counts[i]; k++)
			{
				uint64_t	key = next_random();

				for (int twice = 0; twice < 2; twice++)
					bx_distinct_add(&distinct, &key, 1);
			}
			told = bx_distinct_estimate(&distinct);
			error = told / counts[i] - 1;
			squares += error * error;
		}
		CHECK(sqrt(squares / tries) < 0.05, "%d keys: the error is %g, told last %g",
			  counts[i], sqrt(squares / tries), told);
	}
}

/* Keys that fill all registers do not count for more than they are. */
static void
test_distinct_bound(void)
{
	BxDistinct	distinct;
	BxDistinct	all;

	bx_distinct_clear(&distinct);
	bx_distinct_clear(&all);
	for (uint64_t i = 0; i < 1 << BX_DISTINCT_BITS; i++)
	{
		uint64_t	key = i << (64 - BX_DISTINCT_BITS);

		bx_distinct_add(&distinct, &key, 1);
	}
	CHECK(bx_distinct_estimate(&distinct) == 1 << BX_DISTINCT_BITS,
		  "1024 keys: %g", bx_distinct_estimate(&distinct));
	bx_distinct_merge(&all, &distinct);
	bx_distinct_merge(&all, &distinct);
	CHECK(bx_distinct_estimate(&all) == 2 << BX_DISTINCT_BITS,
		  "2048 keys: %g", bx_distinct_estimate(&all));
}

/* Rows that are known to the compiler are found by shifting. */
static void
test_constant_rows(void)
{
	for (int i = 0; i < 100000; i++)
	{
		uint32_t	x = i < 10 ? (uint32_t) -i : (uint32_t) next_random();

		CHECK(bx_filter_row(x, ROWS) == bx_filter_slot(x, ROWS),
			  "%u", (unsigned) x);
	}
}

int
main(void)
{
	test_slots();
	test_level_hash_mixes();
	test_add();
	test_empty_and_full();
	test_rates();
	test_levels_are_independent();
	test_fill();
	test_constant_rows();
	test_distinct();
	test_distinct_bound();
	for (int nprobes = 1; nprobes <= BX_MAX_PROBES; nprobes++)
	{
		static const int rows[] = {252, ROWS, 1020, 2044};

		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		{
			test_planes(rows[i], nprobes, bx_filter_add_keys_scalar);
			test_planes(rows[i], nprobes, bx_filter_choose_add_keys());
		}
	}
	return finish();
}
