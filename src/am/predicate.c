/*-------------------------------------------------------------------------
 *
 * predicate.c
 *	  Partial indexes: which scans may evaluate the predicate.
 *
 * A query may imply the predicate of a partial index without containing it:
 * n = 1 implies f(id) OR n IS NOT NULL.  An index scan of bloomidx evaluates
 * the predicate (heap/visible.c), and in most bitmap scans the executor does.
 * Then the owner of the table could have any reader of the table call f().
 *
 * The conditions of a predicate are the terms that AND connects.  A condition
 * of the predicate is hidden if it contains user-defined code that the query
 * does not contain.  If there is one, bxcostestimate() excludes index scans,
 * and makes a bitmap scan prohibitively expensive if the executor would
 * evaluate a hidden condition in it.
 *
 * The planner knows the predicate with its SQL functions inlined.  A bitmap
 * scan evaluates the conditions that are in the plan, but an index scan takes
 * the predicate from the relation cache when it begins, perhaps much later,
 * and then SQL functions may have been replaced by other functions, and domains
 * may have got constraints.  So bxcostestimate() excludes index scans also if
 * the planner has removed user-defined code from the predicate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "am.h"

/*
 * Returns whether a function is not built in.  A built-in function that the
 * current user may not call is treated in the same way: a scan that called the
 * function would fail.
 */
static bool
is_user_function(Oid function, void *unused)
{
	return function >= FirstNormalObjectId ||
		!bx_may_execute(function, GetUserId());
}

/*
 * Returns whether a node itself calls a function that is not built in, or may
 * call one: the constraint of a domain, or a cast to a JSON type.
 */
static bool
is_user_code(Node *node)
{
	return IsA(node, CoerceToDomain) || bx_is_json_node(node) ||
		check_functions_in_node(node, is_user_function, NULL);
}

static bool
contains_user_code(Node *node, void *unused)
{
	return node != NULL &&
		(is_user_code(node) ||
		 expression_tree_walker(node, contains_user_code, unused));
}

static bool
contains_node(Node *node, void *sought)
{
	return node != NULL &&
		(equal(node, sought) ||
		 expression_tree_walker(node, contains_node, sought));
}

/*
 * Returns whether the conditions of the query on a table contain a node.
 * Conditions that must be evaluated after the conditions of a row-level
 * security policy, or of a security-barrier view, do not count: a scan
 * evaluates the predicate before the other conditions.
 */
static bool
is_in_query(RelOptInfo *rel, Node *node)
{
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *condition = lfirst_node(RestrictInfo, lc);

		if (restriction_is_securely_promotable(condition, rel) &&
			contains_node((Node *) condition->clause, node))
			return true;
	}
	return false;
}

/* Returns whether a node contains user-defined code that the query does not. */
static bool
contains_hidden_code(Node *node, void *rel)
{
	if (node == NULL || !contains_user_code(node, NULL) ||
		is_in_query(rel, node))
		return false;
	return is_user_code(node) ||
		expression_tree_walker(node, contains_hidden_code, rel);
}

/* Returns the hidden conditions of the predicate. */
List *
bx_predicate_hidden(IndexOptInfo *index)
{
	List	   *hidden = NIL;
	ListCell   *lc;

	foreach(lc, index->indpred)
	{
		if (contains_hidden_code(lfirst(lc), index->rel))
			hidden = lappend(hidden, lfirst(lc));
	}
	return hidden;
}

static bool
is_same_function(Oid function, void *sought)
{
	return function == *(Oid *) sought;
}

static bool
calls_function(Node *node, void *function)
{
	return node != NULL &&
		(check_functions_in_node(node, is_same_function, function) ||
		 expression_tree_walker(node, calls_function, function));
}

/* Returns whether a function is not built in, and the predicate lacks it. */
static bool
is_removed(Oid function, void *predicate)
{
	return function >= FirstNormalObjectId &&
		!calls_function((Node *) predicate, &function);
}

static bool
checks_domain(Node *node, void *domain)
{
	return node != NULL &&
		((IsA(node, CoerceToDomain) &&
		  ((CoerceToDomain *) node)->resulttype == *(Oid *) domain) ||
		 expression_tree_walker(node, checks_domain, domain));
}

/*
 * Returns whether a node itself contains a function, or the check of a domain,
 * that the predicate lacks.
 */
static bool
is_node_removed(Node *node, Node *predicate)
{
	if (IsA(node, CoerceToDomain))
		return !checks_domain(predicate, &((CoerceToDomain *) node)->resulttype);
	return check_functions_in_node(node, is_removed, predicate);
}

static bool
calls_removed(Node *node, void *predicate)
{
	return node != NULL &&
		(is_node_removed(node, predicate) ||
		 expression_tree_walker(node, calls_removed, predicate));
}

/*
 * Returns whether the predicate, as it was written, contains user-defined code
 * that the planner has removed from it: calls of SQL functions, and checks of
 * domains that have no constraints at present.
 */
bool
bx_predicate_is_simplified(IndexOptInfo *index)
{
	HeapTuple	tuple;
	Datum		written;
	bool		isnull = true;
	bool		result;

	if (index->indpred == NIL)
		return false;

	/* another extension may ask for the cost of a hypothetical index */
	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index->indexoid));
	if (!HeapTupleIsValid(tuple))
		return false;
	written = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indpred, &isnull);
	result = !isnull && calls_removed(stringToNode(TextDatumGetCString(written)),
									  index->indpred);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Returns whether a bitmap scan evaluates one of the given conditions of the
 * predicate ("clauses").  The executor evaluates those that do not follow from
 * the scan's conditions on the columns of the index ("conditions"; see
 * create_bitmap_subplan()).
 */
bool
bx_predicate_is_rechecked(IndexPath *path, List *clauses)
{
	List	   *conditions = NIL;
	ListCell   *lc;

	if (clauses == NIL)
		return false;
	foreach(lc, path->indexclauses)
		conditions = lappend(conditions,
							 lfirst_node(IndexClause, lc)->rinfo->clause);
	foreach(lc, clauses)
	{
		if (!predicate_implied_by(list_make1(lfirst(lc)), conditions, false))
			return true;
	}
	return false;
}
