/*-------------------------------------------------------------------------
 *
 * mask.c
 *	  Sets of children, against a model that is too simple to be wrong.
 *
 *-------------------------------------------------------------------------
 */
#include "filter.h"
#include "unit.h"

struct model
{
	bool		has[BX_MASK_BITS];
};

static int
model_next(const struct model *model, int from)
{
	while (from < BX_MASK_BITS && !model->has[from])
		from++;
	return from;
}

/* Whether the mask, and all that can be asked of it, is as the model says. */
static void
compare(const BxMask *mask, const struct model *model)
{
	bool		empty = true;

	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		CHECK(bx_mask_test(mask, c) == model->has[c], "child %d", c);
		CHECK(((mask->byte[c / 8] >> (c % 8)) & 1) == model->has[c],
			  "byte of child %d", c);
		CHECK(bx_mask_next(mask, c) == model_next(model, c),
			  "from %d: %d, not %d", c,
			  bx_mask_next(mask, c), model_next(model, c));
		empty = empty && !model->has[c];
	}
	CHECK(bx_mask_next(mask, BX_MASK_BITS) == BX_MASK_BITS,
		  "behind the last child");
	CHECK(bx_mask_is_empty(mask) == empty, "%d", empty);
}

/* A random set that is now sparse, now dense. */
static void
make_random(BxMask *mask, struct model *model)
{
	int			density = next_random() % 5;

	bx_mask_fill(mask, false);
	memset(model, 0, sizeof(*model));
	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		if (next_random() % 64 < UINT64_C(1) << (density * 3 / 2))
		{
			bx_mask_set(mask, c);
			model->has[c] = true;
		}
	}
}

static void
test_fill(void)
{
	BxMask		mask;
	struct model model;

	bx_mask_fill(&mask, true);
	memset(&model, true, sizeof(model));
	compare(&mask, &model);
	bx_mask_fill(&mask, false);
	memset(&model, false, sizeof(model));
	compare(&mask, &model);
}

static void
test_single_children(void)
{
	for (int c = 0; c < BX_MASK_BITS; c++)
	{
		BxMask		mask;
		struct model model = {{false}};

		bx_mask_fill(&mask, false);
		bx_mask_set(&mask, c);
		model.has[c] = true;
		compare(&mask, &model);
	}
}

static void
test_set_operations(void)
{
	for (int round = 0; round < 2000; round++)
	{
		BxMask		a;
		BxMask		b;
		BxMask		result;
		struct model model_a;
		struct model model_b;
		struct model model;

		make_random(&a, &model_a);
		make_random(&b, &model_b);
		compare(&a, &model_a);

		result = a;
		bx_mask_and(&result, &b);
		for (int c = 0; c < BX_MASK_BITS; c++)
			model.has[c] = model_a.has[c] && model_b.has[c];
		compare(&result, &model);

		result = a;
		bx_mask_or(&result, &b);
		for (int c = 0; c < BX_MASK_BITS; c++)
			model.has[c] = model_a.has[c] || model_b.has[c];
		compare(&result, &model);

		result = a;
		bx_mask_remove(&result, &b);
		for (int c = 0; c < BX_MASK_BITS; c++)
			model.has[c] = model_a.has[c] && !model_b.has[c];
		compare(&result, &model);
	}
}

int
main(void)
{
	test_fill();
	test_single_children();
	test_set_operations();
	return finish();
}
