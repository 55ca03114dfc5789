/*-------------------------------------------------------------------------
 *
 * validate.c
 *	  Checks an operator class: equality operators, and a hash function for
 *	  every type that they compare.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "bloomidx.h"

/* What is wrong is reported as INFO, as the other access methods do. */
static void
complain(const char *family, const char *object, const char *problem)
{
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator family \"%s\" of access method bloomidx: %s: %s",
					family, object, problem)));
}

/* Whether the family has a hash function for the type. */
static bool
has_hash_function(CatCList *procs, Oid type)
{
	for (int i = 0; i < procs->n_members; i++)
	{
		Form_pg_amproc proc =
		(Form_pg_amproc) GETSTRUCT(&procs->members[i]->tuple);

		if (proc->amproclefttype == type && proc->amprocrighttype == type &&
			proc->amprocnum == BX_HASH_PROC)
			return true;
	}
	return false;
}

static bool
validate_functions(CatCList *procs, const char *family)
{
	bool		result = true;

	for (int i = 0; i < procs->n_members; i++)
	{
		Form_pg_amproc proc =
		(Form_pg_amproc) GETSTRUCT(&procs->members[i]->tuple);
		const char *problem = NULL;

		if (proc->amprocnum != BX_HASH_PROC)
			problem = "invalid support function number";
		else if (proc->amproclefttype != proc->amprocrighttype)
			problem = "hash function registered for two types";
		else if (!check_amproc_signature(proc->amproc, INT8OID, false, 2, 2,
										 proc->amproclefttype, INT8OID))
			problem = "hash function with wrong signature";
		if (problem)
		{
			complain(family, format_procedure(proc->amproc), problem);
			result = false;
		}
	}
	return result;
}

static bool
validate_operators(CatCList *operators, CatCList *procs, const char *family)
{
	bool		result = true;

	for (int i = 0; i < operators->n_members; i++)
	{
		Form_pg_amop op =
		(Form_pg_amop) GETSTRUCT(&operators->members[i]->tuple);
		const char *problem = NULL;

		if (op->amopstrategy != BX_EQUAL_STRATEGY)
			problem = "invalid strategy number";
		else if (op->amoppurpose != AMOP_SEARCH || OidIsValid(op->amopsortfamily))
			problem = "operator for ordering";
		else if (!check_amop_signature(op->amopopr, BOOLOID, op->amoplefttype,
									   op->amoprighttype))
			problem = "operator with wrong signature";
		else if (!op_strict(op->amopopr))
			problem = "operator is not strict";
		else if (!has_hash_function(procs, op->amoplefttype) ||
				 !has_hash_function(procs, op->amoprighttype))
			problem = "no hash function for a type of the operator";
		if (problem)
		{
			complain(family, format_operator(op->amopopr), problem);
			result = false;
		}
	}
	return result;
}

/* Whether the family compares the type with itself. */
static bool
has_equality(CatCList *operators, Oid type)
{
	for (int i = 0; i < operators->n_members; i++)
	{
		Form_pg_amop op =
		(Form_pg_amop) GETSTRUCT(&operators->members[i]->tuple);

		if (op->amoplefttype == type && op->amoprighttype == type &&
			op->amopstrategy == BX_EQUAL_STRATEGY)
			return true;
	}
	return false;
}

static char *
family_name(Oid family)
{
	HeapTuple	tuple = SearchSysCache1(OPFAMILYOID, ObjectIdGetDatum(family));
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator family %u", family);
	name = pstrdup(NameStr(((Form_pg_opfamily) GETSTRUCT(tuple))->opfname));
	ReleaseSysCache(tuple);
	return name;
}

bool
bxvalidate(Oid opclassoid)
{
	HeapTuple	tuple;
	Form_pg_opclass opclass;
	char	   *family;
	CatCList   *operators;
	CatCList   *procs;
	bool		result;

	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	family = family_name(opclass->opcfamily);
	operators = SearchSysCacheList1(AMOPSTRATEGY,
									ObjectIdGetDatum(opclass->opcfamily));
	procs = SearchSysCacheList1(AMPROCNUM,
								ObjectIdGetDatum(opclass->opcfamily));

	result = validate_functions(procs, family);
	result = validate_operators(operators, procs, family) && result;
	if (!has_equality(operators, opclass->opcintype))
	{
		complain(family, format_type_be(opclass->opcintype),
				 "no equality operator for the type");
		result = false;
	}
	if (!has_hash_function(procs, opclass->opcintype))
	{
		complain(family, format_type_be(opclass->opcintype),
				 "no hash function for the type");
		result = false;
	}

	ReleaseCatCacheList(procs);
	ReleaseCatCacheList(operators);
	ReleaseSysCache(tuple);
	return result;
}
