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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"

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
