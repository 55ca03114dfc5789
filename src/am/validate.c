/*-------------------------------------------------------------------------
 *
 * validate.c
 *	  Validates an operator class: equality operators, and a hash function
 *	  for every type that they compare.
 *
 * amvalidate() reports all problems of an operator class as INFO.  CREATE
 * INDEX and REINDEX raise an error for the first problem: an index with a
 * wrong hash function would miss rows, and without a hash function no row
 * could be inserted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "am.h"

/* State of a validation. */
typedef struct Validation
{
	Oid			opclass;
	Relation	index;			/* index being created; NULL in amvalidate() */
	int			attno;			/* column of the index */

	const char *family;			/* name of the operator family */
	CatCList   *operators;		/* members of the operator family */
	CatCList   *procs;
	bool		valid;			/* no problem found so far */
} Validation;

static char *
opclass_name(Oid opclass)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclass);
	name = pstrdup(NameStr(((Form_pg_opclass) GETSTRUCT(tuple))->opcname));
	ReleaseSysCache(tuple);
	return name;
}

static int
hint_at_hash_function(void)
{
	return errhint("FUNCTION 1 must be the type's extended hash function, which takes a value and a bigint and returns a bigint.");
}

/* Reports a problem of an operator, a function or a type of the family. */
static void
complain(Validation *validation, const char *object, const char *problem,
		 bool is_function)
{
	validation->valid = false;
	if (validation->index == NULL)
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method bloomidx: %s: %s",
						validation->family, object, problem)));
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("cannot create index \"%s\": operator class \"%s\" of column \"%s\" is not valid",
						RelationGetRelationName(validation->index),
						opclass_name(validation->opclass),
						NameStr(TupleDescAttr(RelationGetDescr(validation->index),
											  validation->attno - 1)->attname)),
				 errdetail("Operator family \"%s\": %s: %s.",
						   validation->family, object, problem),
				 is_function ? hint_at_hash_function() : 0));
}

/* Returns whether the family has a hash function for the type. */
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

static void
validate_functions(Validation *validation)
{
	CatCList   *procs = validation->procs;

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
			complain(validation, format_procedure(proc->amproc), problem, true);
	}
}

static void
validate_operators(Validation *validation)
{
	CatCList   *operators = validation->operators;

	for (int i = 0; i < operators->n_members; i++)
	{
		Form_pg_amop op =
		(Form_pg_amop) GETSTRUCT(&operators->members[i]->tuple);
		const char *problem = NULL;
		bool		is_function = false;

		if (op->amopstrategy != BX_EQUAL_STRATEGY)
			problem = "invalid strategy number";
		else if (op->amoppurpose != AMOP_SEARCH || OidIsValid(op->amopsortfamily))
			problem = "operator for ordering";
		else if (!check_amop_signature(op->amopopr, BOOLOID, op->amoplefttype,
									   op->amoprighttype))
			problem = "operator with wrong signature";
		else if (!op_strict(op->amopopr))
			problem = "operator is not strict";
		else if (!has_hash_function(validation->procs, op->amoplefttype) ||
				 !has_hash_function(validation->procs, op->amoprighttype))
		{
			problem = "no hash function for a type of the operator";
			is_function = true;
		}
		if (problem)
			complain(validation, format_operator(op->amopopr), problem,
					 is_function);
	}
}

/*
 * Returns whether the family has an equality operator of the type with
 * itself.
 */
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

/*
 * Validates the operator class, for amvalidate() or for an index.  Returns
 * whether it is valid.
 */
static bool
validate(Validation *validation)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID,
										ObjectIdGetDatum(validation->opclass));
	Form_pg_opclass opclass;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u",
			 validation->opclass);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	validation->valid = true;
	validation->family = family_name(opclass->opcfamily);
	validation->operators = SearchSysCacheList1(AMOPSTRATEGY,
												ObjectIdGetDatum(opclass->opcfamily));
	validation->procs = SearchSysCacheList1(AMPROCNUM,
											ObjectIdGetDatum(opclass->opcfamily));

	validate_functions(validation);
	validate_operators(validation);
	if (!has_equality(validation->operators, opclass->opcintype))
		complain(validation, format_type_be(opclass->opcintype),
				 "no equality operator for the type", false);
	if (!has_hash_function(validation->procs, opclass->opcintype))
		complain(validation, format_type_be(opclass->opcintype),
				 "no hash function for the type", true);

	ReleaseCatCacheList(validation->procs);
	ReleaseCatCacheList(validation->operators);
	ReleaseSysCache(tuple);
	return validation->valid;
}

bool
bxvalidate(Oid opclassoid)
{
	Validation	validation = {0};

	validation.opclass = opclassoid;
	return validate(&validation);
}

/*
 * Raises an error if values of a column contain a type without a hash
 * function.
 */
static void
validate_contents(Relation index, int attno)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), attno - 1);
	Oid			type = bx_hash_unhashable_content(index, attno);

	if (OidIsValid(type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("cannot create index \"%s\": values of column \"%s\" cannot be hashed",
						RelationGetRelationName(index), NameStr(att->attname)),
				 errdetail("Type %s contains type %s, which has no extended hash function for its default equality operator.",
						   format_type_be(att->atttypid), format_type_be(type)),
				 errhint("The type needs a default operator class for access method hash, with an extended hash function, that has the same equality operator as its default operator class for B-trees, if there is one.")));
}

/*
 * Raises an error if a column of an index that is being created cannot be
 * hashed.
 */
void
bx_validate_index(Relation index)
{
	bool		isnull;
	Datum		indclass = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
										   Anum_pg_index_indclass, &isnull);
	oidvector  *opclasses = (oidvector *) DatumGetPointer(indclass);

	Assert(!isnull);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Validation	validation = {0};

		validation.opclass = opclasses->values[i];
		validation.index = index;
		validation.attno = i + 1;
		validate(&validation);
		validate_contents(index, i + 1);
	}
}
