/*-------------------------------------------------------------------------
 *
 * usable.c
 *	  Reports to the creator of an index which operators of a column cannot
 *	  use the index.
 *
 * An operator class accepts every type that is binary-coercible to its input
 * type.  Such a type can have operators of its own, which have the names of
 * the operators of the class, but are not members of its operator family: "="
 * of citext is not "=" of text.  The parser chooses the column's own operator,
 * so the planner never uses the index, and the user is not told why.  The
 * same is true for the operators of extension intarray and a class for
 * anyarray.
 *
 * This only reads system catalogs, and only while an index is created.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_operator.h"
#include "commands/extension.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "am.h"

/* An extension with such operators, and the extension with their class. */
typedef struct Companion
{
	const char *extension;
	bool		extracts;		/* whether the class extracts */
	const char *companion;
} Companion;

static const Companion companions[] = {
	{"citext", false, "bloomidx_citext"},
	{"intarray", true, "bloomidx_intarray"},
};

/*
 * Returns the operator of the type that has the name of a member of the
 * operator family, if that operator is not a member itself; else InvalidOid.
 * Sets *name to that name.  The operator is not locked and may be dropped at
 * any time, so its name must not be looked up later.
 */
static Oid
own_operator(Oid type, const FormData_pg_amop *member, char **name)
{
	Oid			right = member->amoprighttype == member->amoplefttype ?
	type : member->amoprighttype;
	CatCList   *operators;
	Oid			found = InvalidOid;

	*name = get_opname(member->amopopr);
	if (*name == NULL)
		elog(ERROR, "cache lookup failed for operator %u", member->amopopr);
	operators = SearchSysCacheList3(OPERNAMENSP, CStringGetDatum(*name),
									ObjectIdGetDatum(type),
									ObjectIdGetDatum(right));
	for (int i = 0; i < operators->n_members; i++)
	{
		Form_pg_operator operator =
		(Form_pg_operator) GETSTRUCT(&operators->members[i]->tuple);

		if (op_in_opfamily(operator->oid, member->amopfamily))
		{
			found = InvalidOid;
			break;
		}
		found = operator->oid;
	}
	ReleaseCatCacheList(operators);
	return found;
}

/*
 * Returns the extension that has an operator class for the operator; NULL if
 * it is not known.
 */
static const char *
find_companion(Oid operator, bool extracts)
{
	Oid			extension = getExtensionOfObject(OperatorRelationId, operator);
	char	   *name = OidIsValid(extension) ? get_extension_name(extension) :
	NULL;

	for (int i = 0; name != NULL && i < lengthof(companions); i++)
	{
		if (strcmp(name, companions[i].extension) == 0 &&
			extracts == companions[i].extracts)
			return companions[i].companion;
	}
	return NULL;
}

/* Appends a name, unless the list has it already. */
static void
append_name(List **names, char *name)
{
	ListCell   *cell;

	foreach(cell, *names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return;
	}
	*names = lappend(*names, name);
}

static char *
join_names(List *names)
{
	StringInfoData text;
	ListCell   *cell;

	initStringInfo(&text);
	foreach(cell, names)
	{
		appendStringInfo(&text, "%s%s", text.len > 0 ? ", " : "",
						 (char *) lfirst(cell));
	}
	return text.data;
}

/* Reports the operators of a column that cannot use the index, if any. */
static void
notify_column(Relation heap, Relation index, int attno)
{
	Oid			type = getBaseType(bx_extract_type_of_values(heap, index, attno));
	Oid			input = index->rd_opcintype[attno - 1];
	CatCList   *members;
	List	   *names = NIL;
	const char *companion = NULL;

	if (type == input)
		return;
	members = SearchSysCacheList1(AMOPSTRATEGY,
								  ObjectIdGetDatum(index->rd_opfamily[attno - 1]));
	for (int i = 0; i < members->n_members; i++)
	{
		Form_pg_amop member =
		(Form_pg_amop) GETSTRUCT(&members->members[i]->tuple);
		Oid			operator;
		char	   *name;

		if (member->amoplefttype != input)
			continue;
		operator = own_operator(type, member, &name);
		if (!OidIsValid(operator))
			continue;
		BX_PAUSE(BX_PAUSE_OPERATOR);
		append_name(&names, name);
		companion = find_companion(operator, bx_extract_is_used(index, attno));
	}
	ReleaseCatCacheList(members);
	if (names == NIL)
		return;
	ereport(NOTICE,
			(errmsg_plural("index \"%s\" cannot be used for operator %s of type %s",
						   "index \"%s\" cannot be used for operators %s of type %s",
						   list_length(names), RelationGetRelationName(index),
						   join_names(names), format_type_be(type)),
			 errdetail("The operator class of column \"%s\" supports the operators of type %s.",
					   NameStr(TupleDescAttr(RelationGetDescr(index),
											 attno - 1)->attname),
					   format_type_be(input)),
			 companion ?
			 errhint("Use the operator class of extension \"%s\".", companion) :
			 errhint("Use an operator class for type %s, or index an expression that casts the column to another type.",
					 format_type_be(type))));
}

/*
 * Reports the operators of the columns that cannot use a new index.  Nothing
 * is reported when an existing index is rebuilt, except by REINDEX
 * CONCURRENTLY, which creates a new index.
 */
void
bx_usable_notify(Relation heap, Relation index)
{
	if (ReindexIsProcessingIndex(RelationGetRelid(index)) ||
		(index->rd_createSubid == InvalidSubTransactionId &&
		 index->rd_index->indisvalid))
		return;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		notify_column(heap, index, i + 1);
}
