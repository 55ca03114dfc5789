/*-------------------------------------------------------------------------
 *
 * consistent.c
 *	  triConsistent functions for operator classes of this package, and for
 *	  the operator classes of extensions that have only a boolean consistent
 *	  function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin.h"
#include "access/stratnum.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "key.h"

PG_FUNCTION_INFO_V1(bloomidx_consistent_all);
PG_FUNCTION_INFO_V1(bloomidx_consistent_hstore);
PG_FUNCTION_INFO_V1(bloomidx_consistent_intarray);

/* Strategies of hstore. */
#define HSTORE_CONTAINS			7
#define HSTORE_EXISTS			9
#define HSTORE_EXISTS_ANY		10
#define HSTORE_EXISTS_ALL		11

/* Strategies of intarray. */
#define INTARRAY_BOOLEAN		20

/* Returns FALSE if a key is absent, else MAYBE. */
static GinTernaryValue
need_all(const GinTernaryValue *check, int32 nkeys)
{
	for (int i = 0; i < nkeys; i++)
	{
		if (check[i] == GIN_FALSE)
			return GIN_FALSE;
	}
	return GIN_MAYBE;
}

/* Returns FALSE if all keys are absent, else MAYBE. */
static GinTernaryValue
need_any(const GinTernaryValue *check, int32 nkeys)
{
	for (int i = 0; i < nkeys; i++)
	{
		if (check[i] != GIN_FALSE)
			return GIN_MAYBE;
	}
	return GIN_FALSE;
}

/* For operators that need all keys. */
Datum
bloomidx_consistent_all(PG_FUNCTION_ARGS)
{
	PG_RETURN_GIN_TERNARY_VALUE(need_all((GinTernaryValue *) PG_GETARG_POINTER(0),
										 PG_GETARG_INT32(3)));
}

Datum
bloomidx_consistent_hstore(PG_FUNCTION_ARGS)
{
	GinTernaryValue *check = (GinTernaryValue *) PG_GETARG_POINTER(0);
	StrategyNumber strategy = PG_GETARG_UINT16(1);
	int32		nkeys = PG_GETARG_INT32(3);

	switch (strategy)
	{
		case HSTORE_CONTAINS:
		case HSTORE_EXISTS:
		case HSTORE_EXISTS_ALL:
			PG_RETURN_GIN_TERNARY_VALUE(need_all(check, nkeys));
		case HSTORE_EXISTS_ANY:
			PG_RETURN_GIN_TERNARY_VALUE(need_any(check, nkeys));
		default:
			elog(ERROR, "unrecognized strategy number: %d", strategy);
	}
}

/*
 * A value of intarray's type query_int: operators and operands in postfix
 * order, the last item being the root.  An operand's key is the one with the
 * same place among the operands.  The format cannot change, because users may
 * have stored such values.
 */
typedef struct BoolItem
{
	int16		type;			/* QUERY_VALUE or QUERY_OPERATOR */
	int16		left;			/* distance of the left argument */
	int32		value;			/* operator */
} BoolItem;

typedef struct BoolQuery
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int32		size;
	BoolItem	items[FLEXIBLE_ARRAY_MEMBER];
} BoolQuery;

#define QUERY_VALUE		2
#define QUERY_OPERATOR	3

/* State of the evaluation of a query_int. */
typedef struct BoolState
{
	const BoolQuery *query;
	const GinTernaryValue *check;
	int32		nkeys;
	const int  *number;			/* of an item: its place among the operands */
} BoolState;

static GinTernaryValue
evaluate(const BoolState *state, int at)
{
	const BoolItem *item;
	GinTernaryValue left;
	GinTernaryValue right;

	check_stack_depth();
	if (at < 0 || at >= state->query->size)
		elog(ERROR, "invalid query_int");
	item = &state->query->items[at];
	if (item->type == QUERY_VALUE)
		return state->number[at] < state->nkeys ?
			state->check[state->number[at]] : GIN_MAYBE;
	if (item->type != QUERY_OPERATOR)
		elog(ERROR, "invalid query_int");
	right = evaluate(state, at - 1);
	if (item->value == '!')
		return right == GIN_MAYBE ? GIN_MAYBE :
			right == GIN_TRUE ? GIN_FALSE : GIN_TRUE;
	left = evaluate(state, at + item->left);
	if (item->value == '&')
	{
		if (left == GIN_FALSE || right == GIN_FALSE)
			return GIN_FALSE;
		return left == GIN_TRUE && right == GIN_TRUE ? GIN_TRUE : GIN_MAYBE;
	}
	if (left == GIN_TRUE || right == GIN_TRUE)
		return GIN_TRUE;
	return left == GIN_FALSE && right == GIN_FALSE ? GIN_FALSE : GIN_MAYBE;
}

static GinTernaryValue
evaluate_query(const BoolQuery *query, const GinTernaryValue *check,
			   int32 nkeys)
{
	int		   *number = palloc(sizeof(int) * Max(query->size, 1));
	BoolState	state = {query, check, nkeys, number};
	int			noperands = 0;

	for (int i = 0; i < query->size; i++)
		number[i] = query->items[i].type == QUERY_VALUE ? noperands++ : -1;
	return evaluate(&state, query->size - 1);
}

Datum
bloomidx_consistent_intarray(PG_FUNCTION_ARGS)
{
	GinTernaryValue *check = (GinTernaryValue *) PG_GETARG_POINTER(0);
	StrategyNumber strategy = PG_GETARG_UINT16(1);
	int32		nkeys = PG_GETARG_INT32(3);

	switch (strategy)
	{
		case RTOverlapStrategyNumber:
			PG_RETURN_GIN_TERNARY_VALUE(need_any(check, nkeys));
		case RTSameStrategyNumber:
		case RTContainsStrategyNumber:
			PG_RETURN_GIN_TERNARY_VALUE(need_all(check, nkeys));
		case INTARRAY_BOOLEAN:
			PG_RETURN_GIN_TERNARY_VALUE(evaluate_query((BoolQuery *) PG_DETOAST_DATUM(PG_GETARG_DATUM(2)),
													   check, nkeys));
		default:
			elog(ERROR, "unrecognized strategy number: %d", strategy);
	}
}
