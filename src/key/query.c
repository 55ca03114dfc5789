/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Queries: the conditions of a search and their elements, and which
 *	  candidates may meet all conditions.
 *
 * The candidates are the children of a node (as masks), ranges (as bytes), or
 * a single row.  In each case a condition is the OR of its elements, and the
 * query is the AND of its conditions.  Both are implemented only here, so
 * that another way to combine elements would have one place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "key.h"

#define ST_SORT sort_elements
#define ST_ELEMENT_TYPE BxElement
#define ST_COMPARE(a, b) ((a)->key < (b)->key ? -1 : (a)->key > (b)->key)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/*
 * Initializes a query without conditions, with room for max_conditions, in
 * the current memory context.
 */
void
bx_query_init(BxQuery *query, int max_conditions)
{
	memset(query, 0, sizeof(*query));
	query->conditions = palloc(sizeof(BxCondition) * Max(max_conditions, 1));
}

/* Starts the next condition, which will have at most max_elements elements. */
void
bx_query_start_condition(BxQuery *query, int max_elements)
{
	Size		size = sizeof(BxElement) *
	((Size) query->nelements + Max(max_elements, 1));

	/* an array can have more elements than an ordinary allocation holds */
	if (query->elements == NULL)
		query->elements = palloc_extended(size, MCXT_ALLOC_HUGE);
	else
		query->elements = repalloc_huge(query->elements, size);
	query->conditions[query->nconditions].first = query->nelements;
}

/* Adds an element to the current condition. */
void
bx_query_add_element(BxQuery *query, uint64 key)
{
	BxElement  *element = &query->elements[query->nelements++];

	element->key = key;
	element->condition = query->nconditions;
}

/*
 * Completes the current condition: sorts its elements and removes duplicates.
 * Returns false if it has none, so that no row can match.
 */
bool
bx_query_end_condition(BxQuery *query)
{
	BxCondition *condition = &query->conditions[query->nconditions];
	BxElement  *elements = query->elements + condition->first;
	int			n = query->nelements - condition->first;
	int			kept = 0;

	if (n > 1)
		sort_elements(elements, n);
	for (int i = 0; i < n; i++)
	{
		if (kept == 0 || elements[i].key != elements[kept - 1].key)
			elements[kept++] = elements[i];
	}
	condition->n = kept;
	query->nelements = condition->first + kept;
	query->nconditions++;
	return kept > 0;
}

/*
 * Sets *result to the children that may match the query. elements[] lists n
 * elements, and masks[e] is the set of the children that may contain element
 * e; no child contains the elements that are not listed.  "scratch" has room
 * for one mask per condition.
 */
void
bx_query_match_masks(const BxQuery *query, const int *elements, int n,
					 const BxMask *masks, BxMask *scratch, BxMask *result)
{
	for (int c = 0; c < query->nconditions; c++)
		bx_mask_fill(&scratch[c], false);
	for (int i = 0; i < n; i++)
		bx_mask_or(&scratch[query->elements[elements[i]].condition],
				   &masks[elements[i]]);
	bx_mask_fill(result, true);
	for (int c = 0; c < query->nconditions; c++)
		bx_mask_and(result, &scratch[c]);
}

/* ORs n bytes, each of which is 0 or 1. */
static void
or_bytes(uint8 *to, const uint8 *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] |= from[i];
}

static void
and_bytes(uint8 *to, const uint8 *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] &= from[i];
}

/*
 * Sets result[i] to 1 for each of n ranges that may match the query, else to
 * 0.  probe() tests all these ranges for an element.  "scratch" has room for
 * 2 * n bytes.  Stops as soon as no range can match.  If "interruptible",
 * checks for interrupts between elements; the caller then must not hold a
 * content lock.
 */
void
bx_query_match_bytes(const BxQuery *query, int n, BxProbeBytes probe,
					 void *arg, bool interruptible, uint8 *scratch,
					 uint8 *result)
{
	uint8	   *one = scratch + n;

	for (int c = 0; c < query->nconditions; c++)
	{
		const BxElement *element = query->elements + query->conditions[c].first;
		uint8	   *any = c == 0 ? result : scratch;

		if (c > 0 && memchr(result, 1, n) == NULL)
			return;
		probe(arg, element[0].key, any);
		for (int i = 1; i < query->conditions[c].n; i++)
		{
			if (interruptible)
				CHECK_FOR_INTERRUPTS();
			probe(arg, element[i].key, one);
			or_bytes(any, one, n);
		}
		if (c > 0)
			and_bytes(result, any, n);
	}
}
