/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Queries: the conditions of a search and their elements, and which
 *	  candidates may meet all conditions.
 *
 * The candidates are the children of a node (as masks), ranges (as bytes), or
 * a single row.  The query is the AND of its conditions.  A condition is the
 * OR of its elements or, if it comes from an extracting operator (extract.c),
 * the OR of its clauses.  Only this file evaluates conditions and clauses.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

#include "key.h"

/* Conditions with at least so many elements have buckets. */
#define MANY_ELEMENTS	8

#define ST_SORT sort_elements
#define ST_ELEMENT_TYPE BxElement
#define ST_COMPARE(a, b) ((a)->key < (b)->key ? -1 : (a)->key > (b)->key)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/*
 * Splits the argument of an operator with ANY, an array, into its elements.
 * Returns their number.
 */
int
bx_query_split_array(Datum argument, Datum **values, bool **nulls)
{
	ArrayType  *array = DatumGetArrayTypeP(argument);
	int16		typlen;
	bool		typbyval;
	char		typalign;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  values, nulls, &n);
	return n;
}

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

/* Ensures that there is room for n more elements. */
void
bx_query_reserve(BxQuery *query, int n)
{
	Size		size = sizeof(BxElement) * ((Size) query->nelements + n);

	/* an array can have more elements than an ordinary allocation holds */
	if (query->elements == NULL)
		query->elements = palloc_extended(size, MCXT_ALLOC_HUGE);
	else
		query->elements = repalloc_huge(query->elements, size);
}

/*
 * Starts the next condition, which will have at most max_elements elements.
 * See BxCondition about attno.
 */
void
bx_query_start_condition(BxQuery *query, int attno, int max_elements)
{
	BxCondition *condition = &query->conditions[query->nconditions];

	bx_query_reserve(query, Max(max_elements, 1));
	condition->attno = attno;
	condition->first = query->nelements;
	condition->nclauses = 0;
	condition->clauses = NULL;
	condition->buckets = NULL;
}

/* Adds an element to the current condition. */
void
bx_query_add_element(BxQuery *query, uint64 key)
{
	BxElement  *element = &query->elements[query->nelements++];

	element->key = key;
	element->condition = query->nconditions;
	element->is_required = false;
}

/*
 * Divides the sorted elements of a condition into buckets for
 * bx_query_has_element(), as many as a power of two that is at least the
 * number of elements.
 */
static void
make_buckets(BxCondition *condition, const BxElement *elements)
{
	int			lg = pg_ceil_log2_32(condition->n);
	uint32		nbuckets = (uint32) 1 << lg;
	uint32		bucket = 0;

	condition->bucket_shift = 64 - lg;
	condition->buckets = palloc_extended(sizeof(uint32) * ((Size) nbuckets + 1),
										 MCXT_ALLOC_HUGE);
	for (int i = 0; i < condition->n; i++)
	{
		while (bucket <= elements[i].key >> condition->bucket_shift)
			condition->buckets[bucket++] = i;
	}
	while (bucket <= nbuckets)
		condition->buckets[bucket++] = condition->n;
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
	if (kept == 1)
		elements[0].is_required = true;
	condition->n = kept;
	if (kept >= MANY_ELEMENTS)
		make_buckets(condition, elements);
	query->nelements = condition->first + kept;
	query->nconditions++;
	return kept > 0;
}

/* Adds a clause to the current condition, and returns it. */
BxClause *
bx_query_add_clause(BxQuery *query)
{
	BxCondition *condition = &query->conditions[query->nconditions];
	BxClause   *clause;

	/* the memory is doubled each time the number is a power of two */
	if (condition->clauses == NULL)
		condition->clauses = palloc(sizeof(BxClause));
	else if ((condition->nclauses & (condition->nclauses - 1)) == 0)
		condition->clauses = repalloc_huge(condition->clauses,
										   sizeof(BxClause) * 2 *
										   condition->nclauses);
	clause = &condition->clauses[condition->nclauses++];
	memset(clause, 0, sizeof(*clause));
	return clause;
}

/*
 * Completes the current condition, which is a list of clauses and not of
 * elements.  Returns false if it has no clauses, so that no row can match.
 */
bool
bx_query_end_clauses(BxQuery *query)
{
	BxCondition *condition = &query->conditions[query->nconditions];
	const BxClause *clause = condition->clauses;

	condition->n = query->nelements - condition->first;
	if (condition->nclauses == 1)
	{
		for (int i = 0; i < clause->nrequired; i++)
			query->elements[clause->required[i]].is_required = true;
	}
	for (int i = 0; i < condition->nclauses; i++)
		query->has_opaque |= clause[i].opaque != NULL;
	query->has_clauses = true;
	query->nconditions++;
	return condition->nclauses > 0;
}

/* Adds a condition that a row meets if it has all of n keys. */
void
bx_query_add_all(BxQuery *query, const uint64 *keys, int n)
{
	BxClause   *clause;

	bx_query_start_condition(query, 0, n);
	clause = bx_query_add_clause(query);
	clause->required = palloc_extended(sizeof(int) * n, MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
	{
		clause->required[clause->nrequired++] = query->nelements;
		bx_query_add_element(query, keys[i]);
	}
	(void) bx_query_end_clauses(query);
}

/*
 * Chooses for each column the condition on its values that has the fewest
 * elements.  Returns the number of combinations of their elements; 0 if there
 * is a column without a condition.
 */
static double
choose_combined(const BxQuery *query, int natts, const BxCondition **chosen)
{
	double		product = 1;

	memset(chosen, 0, sizeof(*chosen) * natts);
	for (int c = 0; c < query->nconditions; c++)
	{
		const BxCondition *condition = &query->conditions[c];
		const BxCondition **best;

		if (condition->attno == 0)
			continue;
		best = &chosen[condition->attno - 1];
		if (*best == NULL || condition->n < (*best)->n)
			*best = condition;
	}
	for (int i = 0; i < natts; i++)
		product *= chosen[i] == NULL ? 0 : chosen[i]->n;
	return product;
}

/*
 * Adds a condition whose elements are the combined keys of all combinations of
 * the elements of n conditions.
 */
static void
add_combined(BxQuery *query, const BxQuery *from,
			 const BxCondition **conditions, int n, int combinations)
{
	uint64		keys[INDEX_MAX_KEYS];

	bx_query_start_condition(query, 0, combinations);
	for (int i = 0; i < combinations; i++)
	{
		int			rest = i;

		for (int j = 0; j < n; j++)
		{
			keys[j] = from->elements[conditions[j]->first +
									 rest % conditions[j]->n].key;
			rest /= conditions[j]->n;
		}
		bx_query_add_element(query, bx_hash_combine(keys, n));
	}
	bx_query_end_condition(query);
}

/*
 * Adds the conditions of a query, but replaces each condition on the values of
 * a column by the weaker condition that the column is not NULL.
 */
static void
add_markers(BxQuery *query, const BxQuery *from)
{
	for (int c = 0; c < from->nconditions; c++)
	{
		const BxCondition *condition = &from->conditions[c];

		bx_query_start_condition(query, 0, condition->n);
		if (condition->attno > 0)
			bx_query_add_element(query, bx_hash_marker(condition->attno, false));
		for (int i = 0; i < condition->n && condition->attno == 0; i++)
			bx_query_add_element(query,
								 from->elements[condition->first + i].key);
		bx_query_end_condition(query);
	}
}

/*
 * Returns the query that the filters of an index answer, in place of a query
 * with conditions on single columns: every row that matches the query also
 * matches the result.  "which" (BX_KEYS_xxx) says which keys of a row the
 * filters contain.
 *
 * If all columns have conditions on their values, the combined key is looked
 * for, and nothing else: the columns' own keys and markers would exclude
 * little more.  Otherwise the query itself is returned, if the filters contain
 * its keys.  If the filters do not contain its keys, the result looks for
 * markers only.
 */
const BxQuery *
bx_query_for_filters(const BxQuery *query, int natts, uint8 which)
{
	const BxCondition *chosen[INDEX_MAX_KEYS];
	double		combinations;
	BxQuery    *result;

	if (!(which & BX_KEYS_ALL))
		return query;
	combinations = choose_combined(query, natts, chosen);
	if (combinations > BX_MAX_COMBINED)
		combinations = 0;
	if (combinations == 0 && (which & BX_KEYS_EACH))
		return query;
	result = palloc(sizeof(BxQuery));
	bx_query_init(result, query->nconditions);
	if (combinations > 0)
		add_combined(result, query, chosen, natts, (int) combinations);
	else
		add_markers(result, query);
	return result;
}

/* Returns how many masks bx_query_match_masks() needs as scratch memory. */
Size
bx_query_scratch_masks(const BxQuery *query)
{
	return query->nconditions +
		(query->has_clauses ? (Size) query->nelements : 0);
}

/*
 * Sets *result to the children that may meet a condition with clauses.
 * present[e] is the set of the children that may contain element e.
 */
static void
match_clauses(const BxCondition *condition, const BxMask *present,
			  BxMask *result)
{
	bx_mask_fill(result, false);
	for (int c = 0; c < condition->nclauses; c++)
	{
		const BxClause *clause = &condition->clauses[c];
		BxMask		matching;

		bx_mask_fill(&matching, clause->nrequired > 0);
		for (int i = 0; i < clause->nrequired; i++)
			bx_mask_and(&matching, &present[clause->required[i]]);
		for (int i = 0; i < clause->noptional && clause->nrequired == 0; i++)
			bx_mask_or(&matching, &present[clause->optional[i]]);
		if (clause->opaque && !bx_mask_is_empty(&matching))
			bx_opaque_match(clause->opaque, clause, present, &matching);
		bx_mask_or(result, &matching);
	}
}

/*
 * bx_query_match_masks() for a query with clauses.  Out of line, so that the
 * code for other queries stays small.
 */
static pg_noinline void
match_masks_of_clauses(const BxQuery *query, const int *elements, int n,
					   const BxMask *masks, BxMask *scratch, BxMask *result)
{
	BxMask	   *present = scratch + query->nconditions;

	memset(scratch, 0, sizeof(BxMask) * bx_query_scratch_masks(query));
	for (int i = 0; i < n; i++)
	{
		present[elements[i]] = masks[elements[i]];
		bx_mask_or(&scratch[query->elements[elements[i]].condition],
				   &masks[elements[i]]);
	}
	bx_mask_fill(result, true);
	for (int c = 0; c < query->nconditions; c++)
	{
		if (query->conditions[c].clauses)
			match_clauses(&query->conditions[c], present, &scratch[c]);
		bx_mask_and(result, &scratch[c]);
	}
}

/*
 * Sets *result to the children that may match the query. elements[] lists n
 * elements, and masks[e] is the set of the children that may contain element
 * e; no child contains the elements that are not listed.  "scratch" has room
 * for bx_query_scratch_masks().  May call functions of operator classes, if
 * query->has_opaque.
 */
void
bx_query_match_masks(const BxQuery *query, const int *elements, int n,
					 const BxMask *masks, BxMask *scratch, BxMask *result)
{
	if (unlikely(query->has_clauses))
	{
		match_masks_of_clauses(query, elements, n, masks, scratch, result);
		return;
	}
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
 * content lock.  For queries without clauses.
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

/*
 * The same for a query with clauses.  The ranges are evaluated as masks, 128
 * at a time.  The caller must not hold a content lock.  Allocates memory in
 * the current memory context, and frees it.
 */
void
bx_query_match_clauses(const BxQuery *query, int n, BxProbeBytes probe,
					   void *arg, uint8 *scratch, uint8 *result)
{
	int			nchunks = (n + BX_MASK_BITS - 1) / BX_MASK_BITS;
	Size		nelements = query->nelements;
	BxMask	   *masks = palloc_extended(sizeof(BxMask) * nchunks * nelements,
										MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	BxMask	   *work = palloc_extended(sizeof(BxMask) *
									   bx_query_scratch_masks(query),
									   MCXT_ALLOC_HUGE);
	int		   *elements = palloc_extended(sizeof(int) * nelements,
										   MCXT_ALLOC_HUGE);

	memset(result, 1, n);
	for (int e = 0; e < query->nelements && memchr(result, 1, n) != NULL; e++)
	{
		CHECK_FOR_INTERRUPTS();
		elements[e] = e;
		probe(arg, query->elements[e].key, scratch);
		for (int i = 0; i < n; i++)
		{
			if (scratch[i])
				bx_mask_set(&masks[i / BX_MASK_BITS * nelements + e],
							i % BX_MASK_BITS);
		}
		if (query->elements[e].is_required)
			and_bytes(result, scratch, n);
	}
	for (int chunk = 0; chunk < nchunks && memchr(result, 1, n) != NULL; chunk++)
	{
		BxMask		matching;

		bx_query_match_masks(query, elements, query->nelements,
							 masks + chunk * nelements, work, &matching);
		for (int i = chunk * BX_MASK_BITS;
			 i < Min(n, (chunk + 1) * BX_MASK_BITS); i++)
			result[i] &= bx_mask_test(&matching, i % BX_MASK_BITS);
	}
	pfree(masks);
	pfree(work);
	pfree(elements);
}
