/*-------------------------------------------------------------------------
 *
 * hypothetical.c
 *	  An index that does not exist: makes a Relation and an IndexInfo from
 *	  the definitions of its columns, so that the keys of rows can be computed
 *	  as CREATE INDEX would compute them.
 *
 * A definition is what CREATE INDEX accepts for a column: a name or an
 * expression, COLLATE, and an operator class with its options.  A string that
 * is exactly the name of a column is taken as that column, even if the name
 * would have to be quoted in an expression.
 *
 * The functions in an expression run as the owner of the table, as in CREATE
 * INDEX, and only for a caller who has the privileges of the owner.  The
 * functions must not run as the caller, although the caller seems to have
 * written the expression: a caller may pass the names of columns as they are
 * in pg_attribute.  If the owner renames a column while the caller waits for
 * the lock on the table, the old name is no longer the name of a column, and
 * is taken as an expression, which the owner has chosen.
 *
 * Only the fields of the Relation that the folder key/ and the heap scan read
 * are set.  The Relation is not in the relation cache, and has no pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/sysattr.h"
#include "catalog/heap.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_utilcmd.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "../am/am.h"
#include "functions.h"

/*
 * Names the definition in errors of the parser, whose cursor positions refer
 * to text that the user has not written.
 */
static void
add_context(void *definition)
{
	errcontext("definition of index column \"%s\"", (const char *) definition);
	errposition(0);
}

/*
 * Parses a command that contains a definition, and returns the definition.
 * The expression is not analyzed yet.
 */
static IndexElem *
parse_definition(const char *command)
{
	List	   *commands = raw_parser(command, RAW_PARSE_DEFAULT);
	IndexStmt  *stmt = NULL;
	IndexElem  *column = NULL;

	if (list_length(commands) == 1)
		stmt = (IndexStmt *) linitial_node(RawStmt, commands)->stmt;
	if (stmt != NULL && IsA(stmt, IndexStmt) &&
		list_length(stmt->indexParams) == 1)
		column = linitial_node(IndexElem, stmt->indexParams);
	if (column == NULL || stmt->indexIncludingParams != NIL ||
		stmt->options != NIL || stmt->whereClause != NULL ||
		stmt->tableSpace != NULL || column->ordering != SORTBY_DEFAULT ||
		column->nulls_ordering != SORTBY_NULLS_DEFAULT)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("invalid definition of an index column"),
				 errhint("A definition is a column or an expression, optionally with a collation and an operator class.")));
	return column;
}

/*
 * Raises an error if the caller may not run functions as the owner of the
 * table.
 */
static void
check_code(Relation table)
{
	if (!bx_open_may_run_code(table))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to compute expressions for table \"%s\"",
						RelationGetRelationName(table)),
				 errdetail("The functions in an expression run as the owner of the table."),
				 errhint("Only a role with the privileges of the owner can pass expressions.")));
}

/*
 * Returns the parsed definition of a column, with its expression analyzed, but
 * not planned.  The analysis may call functions for constants: the input
 * function of a composite type checks the constraints of domains.
 */
static IndexElem *
analyze_definition(Relation table, char *definition)
{
	ErrorContextCallback context = {error_context_stack, add_context,
	definition};
	IndexElem  *column;
	char	   *command;

	if (get_attnum(RelationGetRelid(table), definition) != InvalidAttrNumber)
	{
		column = makeNode(IndexElem);
		column->name = definition;
		return column;
	}
	error_context_stack = &context;
	command = psprintf("CREATE INDEX ON t USING bloomidx (%s\n)", definition);
	column = parse_definition(command);
	if (column->expr != NULL)
	{
		IndexStmt  *stmt = makeNode(IndexStmt);
		BxIdentity	identity;

		check_code(table);
		stmt->relation = makeRangeVar(NULL, RelationGetRelationName(table), -1);
		stmt->accessMethod = "bloomidx";
		stmt->indexParams = list_make1(column);
		bx_open_become_owner_with_path(table, &identity);
		/* the positions in the expression refer to the command */
		stmt = transformIndexStmt(RelationGetRelid(table), stmt, command);
		bx_open_become_caller(&identity);
		column = linitial_node(IndexElem, stmt->indexParams);
	}
	error_context_stack = context.previous;
	return column;
}

/*
 * Raises an error if an expression reads a column of the table that cannot be
 * indexed: a system column or, since PostgreSQL 18, a virtual generated one.
 */
static void
check_columns(Relation table, Node *expr)
{
	Bitmapset  *columns = NULL;
	int			i = -1;

	pull_varattnos(expr, 1, &columns);
	while ((i = bms_next_member(columns, i)) >= 0)
	{
		AttrNumber	attnum = i + FirstLowInvalidHeapAttributeNumber;

		if (attnum < 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("index creation on system columns is not supported")));
#if PG_VERSION_NUM >= 180000
		if (attnum > 0 &&
			TupleDescAttr(RelationGetDescr(table), attnum - 1)->attgenerated ==
			ATTRIBUTE_GENERATED_VIRTUAL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("indexes on virtual generated columns are not supported")));
#endif
	}
}

/*
 * Plans an expression, which may call functions whose arguments are constants.
 * Raises an error if its value may change.
 */
static Node *
plan_expression(Relation table, Node *expr)
{
	BxIdentity	identity;

	bx_open_become_owner(table, &identity);
	expr = (Node *) expression_planner((Expr *) expr);
	bx_open_become_caller(&identity);
	if (contain_mutable_functions(expr))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("functions in index expression must be marked IMMUTABLE")));
	return expr;
}

/*
 * Enters the column or the expression of index column i, and sets its type and
 * its collation.
 */
static void
add_source(Relation table, IndexElem *column, int i, BxHypothetical *result,
		   Oid *type, Oid *collation)
{
	IndexInfo  *info = result->info;
	Node	   *expr = column->expr;

	while (expr != NULL && IsA(expr, CollateExpr))
		expr = (Node *) ((CollateExpr *) expr)->arg;
	if (expr != NULL && IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		info->ii_IndexAttrNumbers[i] = ((Var *) expr)->varattno;
	else if (expr == NULL)
		info->ii_IndexAttrNumbers[i] = get_attnum(RelationGetRelid(table),
												  column->name);
	else
	{
		check_columns(table, expr);
		expr = plan_expression(table, column->expr);
		info->ii_Expressions = lappend(info->ii_Expressions, expr);
		*type = exprType(column->expr);
	}
	if (expr == NULL && info->ii_IndexAttrNumbers[i] <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						column->name, RelationGetRelationName(table))));
	if (info->ii_IndexAttrNumbers[i] > 0)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(table),
											  info->ii_IndexAttrNumbers[i] - 1);

		*type = att->atttypid;
		*collation = att->attcollation;
		check_columns(table, (Node *) makeVar(1, att->attnum, att->atttypid,
											  att->atttypmod,
											  att->attcollation, 0));
	}
	if (column->expr != NULL)
		*collation = exprCollation(column->expr);
	if (column->collation != NIL)
		*collation = get_collation_oid(column->collation, false);
	if (!type_is_collatable(*type))
		*collation = InvalidOid;
	if (info->ii_IndexAttrNumbers[i] == 0)
		CheckAttributeType("expr", *type, *collation, NIL, 0);
}

/* Returns the type of the keys of an operator class, as CREATE INDEX does. */
static Oid
key_type(Form_pg_opclass opclass, Oid type)
{
	Oid			result = opclass->opckeytype;

	if (!OidIsValid(result))
		return type;
	if (result == ANYELEMENTOID && opclass->opcintype == ANYARRAYOID)
	{
		result = get_base_element_type(type);
		if (!OidIsValid(result))
			elog(ERROR, "could not get element type of array type %u", type);
	}
	return result;
}

/* Enters the operator class of index column i, and validates it. */
static void
add_opclass(IndexElem *column, int i, Oid type, Oid collation, Relation index)
{
	Oid			oid = ResolveOpClass(column->opclass, type, "bloomidx",
									 index->rd_rel->relam);
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(oid));
	int			nprocs = index->rd_indam->amsupport;
	Form_pg_opclass opclass;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", oid);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	index->rd_opfamily[i] = opclass->opcfamily;
	index->rd_opcintype[i] = opclass->opcintype;
	index->rd_indcollation[i] = collation;
	TupleDescInitEntry(index->rd_att, i + 1,
					   column->name ? column->name : "expr",
					   key_type(opclass, type), -1, 0);
	for (int proc = 1; proc <= nprocs; proc++)
		index->rd_support[i * nprocs + proc - 1] =
			get_opfamily_proc(opclass->opcfamily, opclass->opcintype,
							  opclass->opcintype, proc);
	ReleaseSysCache(tuple);
	bx_validate_column(index, i + 1, oid);

	/* index_opclass_options() would look the class up in the pg_index tuple */
	if (column->opclassopts != NIL &&
		!OidIsValid(index_getprocid(index, i + 1,
									index->rd_indam->amoptsprocnum)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("operator class %s has no options",
						generate_opclass_name(oid))));
	index->rd_opcoptions[i] =
		index_opclass_options(index, i + 1,
							  transformRelOptions((Datum) 0, column->opclassopts,
												  NULL, NULL, false, false),
							  true);
}

/* Makes the Relation of an index with n columns, which are yet to be added. */
static Relation
make_relation(Relation table, int n)
{
	Relation	index = palloc0(sizeof(RelationData));
	int			nprocs;

	index->rd_rel = palloc0(sizeof(FormData_pg_class));
	namestrcpy(&index->rd_rel->relname,
			   makeObjectName(RelationGetRelationName(table), NULL, "idx"));
	index->rd_rel->relnatts = n;
	index->rd_rel->relam = get_index_am_oid("bloomidx", false);
	index->rd_index = palloc0(sizeof(FormData_pg_index));
	index->rd_index->indnatts = index->rd_index->indnkeyatts = n;
	index->rd_att = CreateTemplateTupleDesc(n);
	index->rd_indam = GetIndexAmRoutineByAmId(index->rd_rel->relam, false);
	nprocs = index->rd_indam->amsupport;
	index->rd_indexcxt = CurrentMemoryContext;
	index->rd_opfamily = palloc0(sizeof(Oid) * n);
	index->rd_opcintype = palloc0(sizeof(Oid) * n);
	index->rd_indcollation = palloc0(sizeof(Oid) * n);
	index->rd_support = palloc0(sizeof(RegProcedure) * n * nprocs);
	index->rd_supportinfo = palloc0(sizeof(FmgrInfo) * n * nprocs);
	index->rd_opcoptions = palloc0(sizeof(bytea *) * n);
	return index;
}

/*
 * Makes the index of a table, which is locked, from the definitions of its
 * columns.  Raises an error where CREATE INDEX would.
 */
void
bx_hypothetical_make(Relation table, char **definitions, int n,
					 BxHypothetical *result)
{
	result->index = make_relation(table, n);
	result->info = makeNode(IndexInfo);
	result->info->ii_NumIndexAttrs = result->info->ii_NumIndexKeyAttrs = n;
	result->extracts = false;
	for (int i = 0; i < n; i++)
	{
		IndexElem  *column = analyze_definition(table, definitions[i]);
		Oid			type;
		Oid			collation = InvalidOid;

		add_source(table, column, i, result, &type, &collation);
		add_opclass(column, i, type, collation, result->index);
		result->extracts |= bx_extract_is_used(result->index, i + 1);
	}
}
