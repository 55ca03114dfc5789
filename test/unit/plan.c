/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Sizing: every plan keeps its promise, wastes little, and is made
 *	  quickly, whatever it is asked for.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <time.h>

#include "filter.h"
#include "unit.h"

/* Whether some number of probes keeps the rate with so many slices. */
static bool
would_do(double keys, double target, int nrows, uint32_t nslices)
{
	for (int nprobes = 1; nprobes <= BX_MAX_PROBES; nprobes++)
	{
		if (bx_filter_rate(keys, nslices, nrows, nprobes) <= 1.25 * target)
			return true;
	}
	return false;
}

static void
check_plan(double keys, double target, int nrows)
{
	BxPlan		plan = bx_filter_plan(keys, target, nrows);
	double		rate = bx_filter_rate(keys, plan.nslices, nrows, plan.nprobes);
	uint32_t	step = 1 + plan.nslices / 64 + plan.nslices / 20;

	CHECK(plan.nslices >= 1, "%g keys, %g", keys, target);
	CHECK(plan.nprobes >= 1 && plan.nprobes <= BX_MAX_PROBES,
		  "%g keys, %g: %d probes", keys, target, plan.nprobes);
	CHECK(rate <= 1.25 * target,
		  "%g keys, %g, %d rows: %u slices, %d probes, rate %g", keys, target,
		  nrows,
		  plan.nslices, plan.nprobes, rate);

	/* a plan is for 16 keys at least */
	if (plan.nslices > step)
		CHECK(!would_do(keys < 16 ? 16 : keys, target, nrows,
						plan.nslices - step),
			  "%g keys, %g, %d rows: %u slices are more than needed", keys,
			  target, nrows, plan.nslices);
}

/* All numbers of keys at all rates, for pages of 4, 8 and 32 kB. */
static void
test_plans(void)
{
	static const double targets[] = {0.00001, 0.00005, 0.0002, 0.001, 0.01,
	0.05, 0.1, 0.25};
	static const int rows[] = {252, ROWS, 1020, 2044};

	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
	{
		for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++)
		{
			for (int keys = 1; keys <= 100000; keys += 1 + keys / 20)
				check_plan(keys, targets[t], rows[r]);
		}
	}
}

/* More keys never need fewer slices, but for the coarse steps. */
static void
test_plans_grow(void)
{
	uint32_t	largest = 0;

	for (int keys = 1; keys < 3000; keys++)
	{
		uint32_t	nslices = bx_filter_plan(keys, 0.0002, ROWS).nslices;

		CHECK(nslices + 1 + largest / 32 >= largest,
			  "%d keys: %u slices after %u", keys, nslices, largest);
		if (nslices > largest)
			largest = nslices;
	}
}

/* The rate grows with the keys, shrinks with the slices, and is a chance. */
static void
test_rate(void)
{
	for (int nprobes = 1; nprobes <= BX_MAX_PROBES; nprobes++)
	{
		for (uint32_t nslices = 1; nslices < 100; nslices += 7)
		{
			double		last = 0;

			for (int keys = 0; keys < 100000; keys += 1 + keys / 4)
			{
				double		rate = bx_filter_rate(keys, nslices, ROWS,
												  nprobes);

				CHECK(rate >= 0 && rate <= 1,
					  "%d keys, %u slices, %d probes: %g", keys, nslices,
					  nprobes, rate);
				/* at a mean of 600 keys a slice the spread is left out */
				CHECK(rate >= last * 0.98,
					  "%d keys, %u slices, %d probes: %g after %g", keys,
					  nslices, nprobes,
					  rate, last);
				last = rate;
			}
		}
	}
	CHECK(bx_filter_rate(0, 1, ROWS, 5) == 0, "no keys");
	CHECK(bx_filter_rate(-1, 1, ROWS, 5) == 0, "fewer than no keys");
	CHECK(bx_filter_rate(1e9, 1, ROWS, 5) > 0.999, "far too many keys");
	CHECK(bx_filter_rate(1e9, 1000, ROWS, 5) > 0.999, "far too many keys");
}

/* What nobody should ask is answered all the same. */
static void
test_extremes(void)
{
	static const double keys[] = {0, -1, -1e300, 1e-300, 1e6, 1e7, 1e8, 1e9,
	1e12, 1e300, INFINITY, NAN};
	static const double targets[] = {0.00001, 0.0002, 0.25};
	clock_t		start = clock();

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
	{
		for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++)
		{
			BxPlan		plan = bx_filter_plan(keys[k], targets[t], ROWS);
			BxPlan		least = bx_filter_plan(16, targets[t], ROWS);

			CHECK(plan.nslices >= 1 && plan.nslices <= (1 << 25),
				  "%g keys: %u slices", keys[k], plan.nslices);
			CHECK(plan.nprobes >= 1 && plan.nprobes <= BX_MAX_PROBES,
				  "%g keys: %d probes", keys[k], plan.nprobes);
			if (!(keys[k] > 16))
				CHECK(plan.nslices == least.nslices, "%g keys: %u slices",
					  keys[k], plan.nslices);
		}
	}

	/* some milliseconds */
	CHECK(clock() - start < 5 * CLOCKS_PER_SEC, "it took %g s",
		  (double) (clock() - start) / CLOCKS_PER_SEC);
}

/* A large plan takes some slices more, and some probes less. */
static void
test_spare_slices(void)
{
	BxPlan		plan = bx_filter_plan(9600, 0.0002, ROWS);

	CHECK(plan.nprobes <= 8, "%d probes", plan.nprobes);
	CHECK(!would_do(9600, 0.0002, ROWS, plan.nslices * 15 / 16),
		  "%u slices are far too many", plan.nslices);
}

int
main(void)
{
	test_rate();
	test_plans();
	test_plans_grow();
	test_spare_slices();
	test_extremes();
	return finish();
}
