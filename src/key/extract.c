/*-------------------------------------------------------------------------
 *
 * extract.c
 *	  Operator classes that extract several keys from one value: arrays,
 *	  jsonb, tsvector, n-grams of text.
 *
 * The interface is that of GIN, so that the functions of GIN's operator
 * classes can be used: extractValue splits a value into keys, extractQuery
 * splits the operand of an operator, and triConsistent (or consistent) decides
 * from the keys that are present whether a row may match.
 *
 * Unlike a GIN entry, a filter contains the keys of all rows of a range, and
 * may match keys that no row has.  So a key is never known to be present:
 * triConsistent gets only FALSE and MAYBE.  FALSE means that no row of the
 * range has the key.
 *
 * In the default mode, a row must have at least one of the keys.  The support
 * functions need not check this condition, so it is checked here.  In the
 * other modes a row may instead have the key "the value has no parts" (mode
 * INCLUDE_EMPTY) or the marker "the column is not NULL" (mode ALL).
 *
 * For most operators some keys are required: a row without such a key cannot
 * match.  The required keys are determined once for each query: a key is
 * required if triConsistent returns FALSE when this key is absent and all
 * others may be present.  If all keys are required, a search only ANDs their
 * masks.  Otherwise triConsistent decides about the remaining children, with
 * one call for each different set of optional keys that occurs among the
 * children of a node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin.h"
#include "access/reloptions.h"
#include "access/skey.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "key.h"

/*
 * If a query has more keys than this, required keys are not determined: this
 * would take one call of triConsistent for each key, and each call examines
 * all keys.
 */
#define MAX_CLASSIFIED		2000

/*
 * A boolean consistent function is called for all combinations of up to this
 * many keys that may be present.  With more keys, the answer is MAYBE.
 */
#define MAX_COMBINED		10

/* The operand of an extracting operator, and its keys. */
struct BxOpaque
{
	BxExtractor *extractor;
	StrategyNumber strategy;
	Datum		operand;
	int			nkeys;
	Datum	   *keys;
	bool	   *nulls;
	bool	   *partial;		/* the key is a prefix: always MAYBE */
	Pointer    *extra;
	int		   *element;		/* element of the query, or -1 if partial */
	GinTernaryValue *check;		/* argument of triConsistent */
	MemoryContext cxt;			/* for calls; reset after each call */
};

/* Returns whether the operator class of an index column extracts. */
bool
bx_extract_is_used(Relation index, int attno)
{
	return OidIsValid(index_getprocid(index, attno, BX_EXTRACT_VALUE_PROC));
}

/*
 * Returns the type of the expression of an index column.  The expression is
 * not taken from the relation cache, which would simplify it, and thereby call
 * functions.
 */
static Oid
type_of_expression(Relation index, int attno)
{
	bool		isnull;
	Datum		datum = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
										Anum_pg_index_indexprs, &isnull);
	List	   *expressions = isnull ? NIL :
	castNode(List, stringToNode(TextDatumGetCString(datum)));
	int			before = 0;

	for (int i = 0; i < attno - 1; i++)
		before += index->rd_index->indkey.values[i] == 0;
	if (before >= list_length(expressions))
		elog(ERROR, "index \"%s\" has too few expressions",
			 RelationGetRelationName(index));
	return exprType(list_nth(expressions, before));
}

/*
 * Returns the type of the values of an index column.  If the column extracts,
 * the index has the type of the keys.
 */
Oid
bx_extract_type_of_values(Relation heap, Relation index, int attno)
{
	int			column = index->rd_index->indkey.values[attno - 1];

	if (!bx_extract_is_used(index, attno))
		return TupleDescAttr(RelationGetDescr(index), attno - 1)->atttypid;
	if (column > 0)
		return TupleDescAttr(RelationGetDescr(heap), column - 1)->atttypid;
	return type_of_expression(index, attno);
}

/*
 * Looks up a support function of a column, with the options of its operator
 * class.  Returns false if the class has no such function.
 */
static bool
lookup_function(Relation index, int attno, int number, FmgrInfo *proc)
{
	Oid			function = index_getprocid(index, attno, number);

	if (!OidIsValid(function))
		return false;
	fmgr_info(function, proc);
	if (OidIsValid(index_getprocid(index, attno, BX_OPTIONS_PROC)))
		set_fn_opclass_options(proc,
							   RelationGetIndexAttOptions(index, true)[attno - 1]);
	return true;
}

/*
 * Looks up the functions of an extracting column.  The result is allocated in
 * the current memory context.
 */
BxExtractor *
bx_extract_init(Relation index, int attno)
{
	BxExtractor *extractor = palloc0(sizeof(BxExtractor));
	Oid			collation = index->rd_indcollation[attno - 1];

	extractor->collation = OidIsValid(collation) ? collation :
		DEFAULT_COLLATION_OID;
	extractor->is_ternary = lookup_function(index, attno,
											BX_TRICONSISTENT_PROC,
											&extractor->consistent);
	if (!lookup_function(index, attno, BX_EXTRACT_VALUE_PROC,
						 &extractor->value) ||
		!lookup_function(index, attno, BX_EXTRACT_QUERY_PROC,
						 &extractor->query) ||
		!(extractor->is_ternary ||
		  lookup_function(index, attno, BX_CONSISTENT_PROC,
						  &extractor->consistent)))
		elog(ERROR, "missing support function for attribute %d of index \"%s\"",
			 attno, RelationGetRelationName(index));
	return extractor;
}

/*
 * Computes the keys of a value of an extracting column, which is not NULL.
 * Returns their number, which is at least 1: a value without parts has the key
 * "the value has no parts".  Keys may occur more than once.  The array of keys
 * and the memory that extractValue allocates are in the current memory
 * context: the caller resets the context for every row.  This calls functions
 * of the operator class, so no content lock may be held.
 *
 * If Datums have the size of keys, the keys overwrite the array of parts that
 * extractValue has returned, as GIN does.  GIN does not free that array, so
 * extractValue need not allocate it separately; therefore the array must not
 * be freed or resized.
 */
int
bx_extract_keys(BxHasher *hasher, Datum value, uint64 **keys)
{
	int32		n = 0;
	bool	   *nulls = NULL;
	Datum	   *parts;

	parts = (Datum *) DatumGetPointer(FunctionCall3Coll(&hasher->extractor->value,
														hasher->extractor->collation,
														value,
														PointerGetDatum(&n),
														PointerGetDatum(&nulls)));
	if (parts == NULL || n <= 0)
	{
		*keys = palloc(sizeof(uint64));
		(*keys)[0] = bx_hasher_empty_value(hasher);
		return 1;
	}
	*keys = sizeof(Datum) == sizeof(uint64) ? (uint64 *) parts :
		palloc_extended(sizeof(uint64) * n, MCXT_ALLOC_HUGE);
	bx_hasher_parts(hasher, parts, nulls, n, *keys);
	return n;
}

/* Calls triConsistent with opaque->check. */
static GinTernaryValue
call_ternary(BxOpaque *opaque)
{
	return DatumGetGinTernaryValue(FunctionCall7Coll(&opaque->extractor->consistent,
													 opaque->extractor->collation,
													 PointerGetDatum(opaque->check),
													 UInt16GetDatum(opaque->strategy),
													 opaque->operand,
													 UInt32GetDatum(opaque->nkeys),
													 PointerGetDatum(opaque->extra),
													 PointerGetDatum(opaque->keys),
													 PointerGetDatum(opaque->nulls)));
}

/*
 * Calls consistent, with TRUE or FALSE in place of each MAYBE, according to
 * "present".
 */
static bool
call_boolean(BxOpaque *opaque, const int *maybe, int nmaybe, int present)
{
	bool	   *check = palloc0(sizeof(bool) * Max(opaque->nkeys, 1));
	bool		recheck = true;

	for (int i = 0; i < nmaybe; i++)
		check[maybe[i]] = (present >> i) & 1;
	return DatumGetBool(FunctionCall8Coll(&opaque->extractor->consistent,
										  opaque->extractor->collation,
										  PointerGetDatum(check),
										  UInt16GetDatum(opaque->strategy),
										  opaque->operand,
										  UInt32GetDatum(opaque->nkeys),
										  PointerGetDatum(opaque->extra),
										  PointerGetDatum(&recheck),
										  PointerGetDatum(opaque->keys),
										  PointerGetDatum(opaque->nulls)));
}

/*
 * Computes the result of triConsistent by calls of consistent: MAYBE if
 * consistent returns true for any combination of the keys that may be present.
 * The function need not be monotone.  The combinations include the one without
 * any key, although the function expects it only in the modes that demand no
 * key: a wrong "true" does no harm.
 */
static GinTernaryValue
combine_boolean(BxOpaque *opaque)
{
	int			maybe[MAX_COMBINED];
	int			n = 0;

	for (int i = 0; i < opaque->nkeys; i++)
	{
		if (opaque->check[i] == GIN_FALSE)
			continue;
		if (n == MAX_COMBINED)
			return GIN_MAYBE;
		maybe[n++] = i;
	}

	/* the result is most probably true if all keys are present: test first */
	for (int present = (1 << n) - 1; present >= 0; present--)
	{
		CHECK_FOR_INTERRUPTS();
		if (call_boolean(opaque, maybe, n, present))
			return GIN_MAYBE;
	}
	return GIN_FALSE;
}

/* Returns whether a row may match, according to opaque->check. */
static bool
may_match(BxOpaque *opaque)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(opaque->cxt);
	GinTernaryValue result;

	CHECK_FOR_INTERRUPTS();
	result = opaque->extractor->is_ternary ? call_ternary(opaque) :
		combine_boolean(opaque);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(opaque->cxt);
	return result != GIN_FALSE;
}

/*
 * Removes the children from *result that cannot match. present[e] is the set
 * of the children that may contain element e of the query.  The children that
 * have the same optional elements are decided by one call.
 */
void
bx_opaque_match(BxOpaque *opaque, const BxClause *clause,
				const BxMask *present, BxMask *result)
{
	BxMask		rest = *result;
	int			child;

	while ((child = bx_mask_next(&rest, 0)) < BX_MASK_BITS)
	{
		BxMask		same = rest;

		for (int i = 0; i < clause->noptional; i++)
		{
			const BxMask *mask = &present[clause->optional[i]];

			if (bx_mask_test(mask, child))
				bx_mask_and(&same, mask);
			else
				bx_mask_remove(&same, mask);
		}
		for (int i = 0; i < opaque->nkeys; i++)
			opaque->check[i] = opaque->element[i] < 0 ||
				bx_mask_test(&present[opaque->element[i]], child) ?
				GIN_MAYBE : GIN_FALSE;
		if (!may_match(opaque))
			bx_mask_remove(result, &same);
		bx_mask_remove(&rest, &same);
	}
}

/*
 * Calls extractQuery.  Returns NULL if no row can match.  *mode is set to one
 * of the modes that GIN defines.
 */
static BxOpaque *
extract_operand(BxExtractor *extractor, StrategyNumber strategy,
				Datum operand, int32 *mode)
{
	BxOpaque   *opaque = palloc0(sizeof(BxOpaque));
	int32		n = 0;

	opaque->extractor = extractor;
	opaque->strategy = strategy;
	opaque->operand = operand;
	*mode = GIN_SEARCH_MODE_DEFAULT;
	opaque->keys = (Datum *)
		DatumGetPointer(FunctionCall7Coll(&extractor->query,
										  extractor->collation, operand,
										  PointerGetDatum(&n),
										  UInt16GetDatum(strategy),
										  PointerGetDatum(&opaque->partial),
										  PointerGetDatum(&opaque->extra),
										  PointerGetDatum(&opaque->nulls),
										  PointerGetDatum(mode)));
	if (*mode < GIN_SEARCH_MODE_DEFAULT || *mode > GIN_SEARCH_MODE_ALL)
		*mode = GIN_SEARCH_MODE_ALL;
	opaque->nkeys = opaque->keys == NULL ? 0 : Max(n, 0);
	if (opaque->nkeys == 0 && *mode == GIN_SEARCH_MODE_DEFAULT)
		return NULL;

	/* consistent functions may read this array even if it was not returned */
	if (opaque->nulls == NULL)
		opaque->nulls = palloc0(sizeof(bool) * Max(opaque->nkeys, 1));
	opaque->element = palloc_extended(sizeof(int) * Max(opaque->nkeys, 1),
									  MCXT_ALLOC_HUGE);
	opaque->check = palloc_extended(Max(opaque->nkeys, 1), MCXT_ALLOC_HUGE);
	opaque->cxt = AllocSetContextCreate(CurrentMemoryContext,
										"bloomidx consistent",
										ALLOCSET_SMALL_SIZES);
	return opaque;
}

/* A key of an operand, for sorting. */
typedef struct NumberedKey
{
	uint64		key;
	int			number;
} NumberedKey;

#define ST_SORT sort_keys
#define ST_ELEMENT_TYPE NumberedKey
#define ST_COMPARE(a, b) ((a)->key < (b)->key ? -1 : (a)->key > (b)->key)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/*
 * Adds the distinct keys of an operand to the query, and notes which element
 * each key is.  Returns whether a key is a prefix, which has no element.
 */
static bool
add_elements(BxQuery *query, BxHasher *hasher, BxOpaque *opaque)
{
	NumberedKey *sorted = palloc_extended(sizeof(NumberedKey) *
										  Max(opaque->nkeys, 1),
										  MCXT_ALLOC_HUGE);
	int			n = 0;

	for (int i = 0; i < opaque->nkeys; i++)
	{
		CHECK_FOR_INTERRUPTS();
		opaque->element[i] = -1;
		if (opaque->partial != NULL && opaque->partial[i])
			continue;
		sorted[n].key = opaque->nulls[i] ? bx_hasher_null_element(hasher) :
			bx_hasher_key(hasher, opaque->keys[i]);
		sorted[n++].number = i;
	}
	sort_keys(sorted, n);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || sorted[i].key != sorted[i - 1].key)
			bx_query_add_element(query, sorted[i].key);
		opaque->element[sorted[i].number] = query->nelements - 1;
	}
	pfree(sorted);
	return n < opaque->nkeys;
}

/*
 * If "only" is false, returns whether a row without the given element may
 * match; if "only" is true, whether a row that has no other element may match.
 * Prefixes count as possibly present.
 */
static bool
may_match_if(BxOpaque *opaque, int element, bool only)
{
	for (int i = 0; i < opaque->nkeys; i++)
		opaque->check[i] = opaque->element[i] < 0 ||
			(opaque->element[i] == element) == only ? GIN_MAYBE : GIN_FALSE;
	return may_match(opaque);
}

/*
 * Returns how many of n elements are examined, one by one.  For an estimate
 * this is the size of a sample.
 */
static int
count_examined(const BxOpaque *opaque, int n, bool is_estimate)
{
	if (is_estimate)
		return Min(n, BX_MAX_SAMPLED);
	return opaque->nkeys <= MAX_CLASSIFIED ? n : 0;
}

/*
 * Divides the elements from "first" on into those that are required and those
 * that are optional.  Returns false if no row can match.  Elements that are
 * not examined are considered optional.  For an estimate, they are considered
 * required if all elements of the sample are required.
 */
static bool
classify(BxQuery *query, BxOpaque *opaque, int first, bool is_estimate,
		 BxClause *clause)
{
	int			n = query->nelements - first;
	int			examined = count_examined(opaque, n, is_estimate);

	clause->required = palloc_extended(sizeof(int) * Max(n, 1),
									   MCXT_ALLOC_HUGE);

	/* one more, for a marker */
	clause->optional = palloc_extended(sizeof(int) * (n + 1),
									   MCXT_ALLOC_HUGE);
	if (opaque->nkeys > 0 && !may_match_if(opaque, -2, false))
		return false;
	for (int i = 0; i < n; i++)
	{
		int			e = first + i;
		bool		required;

		if (i < examined)
			required = !may_match_if(opaque, e, false);
		else
			required = is_estimate && clause->noptional == 0;
		if (required)
			clause->required[clause->nrequired++] = e;
		else
			clause->optional[clause->noptional++] = e;
	}
	return true;
}

/*
 * Returns whether triConsistent need not be called, because the elements alone
 * decide: all are required, or, in the default mode, any one is sufficient.
 */
static bool
is_decided(BxOpaque *opaque, const BxClause *clause, bool is_estimate)
{
	int			examined = count_examined(opaque, clause->noptional,
										  is_estimate);

	if (clause->noptional == 0)
		return true;
	if (clause->nrequired > 0 || examined == 0)
		return false;
	for (int i = 0; i < examined; i++)
	{
		if (!may_match_if(opaque, clause->optional[i], true))
			return false;
	}
	return true;
}

/* Adds the clause of one operand, unless no row can match it. */
static void
add_operand(BxQuery *query, BxHasher *hasher, StrategyNumber strategy,
			Datum operand, bool is_estimate)
{
	int			first = query->nelements;
	int32		mode;
	BxOpaque   *opaque = extract_operand(hasher->extractor, strategy, operand,
										 &mode);
	BxClause	clause = {0};
	bool		has_prefix;

	if (opaque == NULL)
		return;
	bx_query_reserve(query, opaque->nkeys + 1);
	has_prefix = add_elements(query, hasher, opaque);
	if (!classify(query, opaque, first, is_estimate, &clause))
	{
		query->nelements = first;
		return;
	}
	if (!is_decided(opaque, &clause, is_estimate))
		clause.opaque = opaque;

	/* a row without any of the elements may match, too */
	if (clause.nrequired == 0 &&
		(has_prefix || mode != GIN_SEARCH_MODE_DEFAULT))
	{
		bx_query_add_element(query, mode == GIN_SEARCH_MODE_INCLUDE_EMPTY &&
							 !has_prefix ? bx_hasher_empty_value(hasher) :
							 bx_hash_marker(hasher->attno, false));
		clause.optional[clause.noptional++] = query->nelements - 1;
		clause.is_open = clause.opaque == NULL;
	}
	*bx_query_add_clause(query) = clause;
}

/* Adds a clause for each element of an array that is not NULL. */
static void
add_operands(BxQuery *query, BxHasher *hasher, StrategyNumber strategy,
			 Datum array, bool is_estimate)
{
	Datum	   *values;
	bool	   *nulls;
	int			n = bx_query_split_array(array, &values, &nulls);

	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!nulls[i])
			add_operand(query, hasher, strategy, values[i], is_estimate);
	}
}

/*
 * Adds the condition of a scan key on an extracting column, whose argument is
 * not NULL.  Returns false if no row can meet it.  The query refers to the
 * argument, and to memory that this function allocates.
 *
 * If is_estimate, only some of the elements are examined, and the others are
 * assumed to be like them.  Such a query must not be used to search.
 */
bool
bx_extract_condition(BxQuery *query, BxHasher *hasher, ScanKey key,
					 bool is_estimate)
{
	bx_query_start_condition(query, key->sk_attno, 1);
	if (key->sk_flags & SK_SEARCHARRAY)
		add_operands(query, hasher, key->sk_strategy, key->sk_argument,
					 is_estimate);
	else
		add_operand(query, hasher, key->sk_strategy, key->sk_argument,
					is_estimate);
	return bx_query_end_clauses(query);
}
