/*-------------------------------------------------------------------------
 *
 * validate.c
 *	  Validates an operator class.  A plain class has equality operators, and
 *	  a hash function for every type that they compare.  An extracting class
 *	  has GIN's support functions.
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
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "am.h"

/* The largest strategy number of an extracting class, as in GIN. */
#define MAX_STRATEGY	63

/* State of a validation. */
typedef struct Validation
{
	Oid			opclass;
	Relation	index;			/* index being created; NULL in amvalidate() */
	int			attno;			/* column of the index */

	Oid			type;			/* input type of the class */
	Oid			key_type;		/* of the keys, if the class extracts */
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
				 errmsg("operator family \"%s\" of access method \"bloomidx\": %s: %s",
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

/* Returns whether the family has a support function for the type. */
static bool
has_function(CatCList *procs, Oid type, int number)
{
	for (int i = 0; i < procs->n_members; i++)
	{
		Form_pg_amproc proc =
		(Form_pg_amproc) GETSTRUCT(&procs->members[i]->tuple);

		if (proc->amproclefttype == type && proc->amprocrighttype == type &&
			proc->amprocnum == number)
			return true;
	}
	return false;
}

/* Returns whether the family has a class for the type that extracts. */
static bool
is_extracting(CatCList *procs, Oid type)
{
	return has_function(procs, type, BX_EXTRACT_VALUE_PROC);
}

/*
 * Returns whether a hash function is polymorphic and written in a language
 * other than C or internal.  Such a function determines the type of its
 * argument from the expression that calls it, and there is none.
 */
static bool
needs_expression(Oid function)
{
	Oid		   *types;
	int			n;

	(void) get_func_signature(function, &types, &n);
	return n > 0 && IsPolymorphicType(types[0]) && bx_hash_is_user_code(function);
}

/*
 * Returns what is wrong with a support function of a plain class, or NULL.
 */
static const char *
plain_function_problem(Form_pg_amproc proc)
{
	if (proc->amprocnum != BX_HASH_PROC)
		return "invalid support function number";
	if (!check_amproc_signature(proc->amproc, INT8OID, false, 2, 2,
								proc->amproclefttype, INT8OID))
		return "hash function with wrong signature";
	if (needs_expression(proc->amproc))
		return "polymorphic hash function that is not written in C";
	return NULL;
}

/*
 * Returns whether a support function of an extracting class has the right
 * signature.  As in GIN, functions may omit the last arguments.
 */
static bool
has_right_signature(Form_pg_amproc proc, Oid key_type)
{
	Oid			type = proc->amproclefttype;

	switch (proc->amprocnum)
	{
		case BX_HASH_PROC:
			return !OidIsValid(key_type) ||
				check_amproc_signature(proc->amproc, INT8OID, false, 2, 2,
									   key_type, INT8OID);
		case BX_EXTRACT_VALUE_PROC:
			return check_amproc_signature(proc->amproc, INTERNALOID, false,
										  2, 3, type, INTERNALOID,
										  INTERNALOID);
		case BX_EXTRACT_QUERY_PROC:
			return check_amproc_signature(proc->amproc, INTERNALOID, false,
										  5, 7, type, INTERNALOID, INT2OID,
										  INTERNALOID, INTERNALOID,
										  INTERNALOID, INTERNALOID);
		case BX_CONSISTENT_PROC:
			return check_amproc_signature(proc->amproc, BOOLOID, false, 6, 8,
										  INTERNALOID, INT2OID, type, INT4OID,
										  INTERNALOID, INTERNALOID,
										  INTERNALOID, INTERNALOID);
		case BX_TRICONSISTENT_PROC:
			return check_amproc_signature(proc->amproc, CHAROID, false, 7, 7,
										  INTERNALOID, INT2OID, type, INT4OID,
										  INTERNALOID, INTERNALOID,
										  INTERNALOID);
		case BX_OPTIONS_PROC:
			return check_amoptsproc_signature(proc->amproc);
		default:
			return false;
	}
}

/*
 * Returns what is wrong with a support function of an extracting class, or
 * NULL.  "key_type" is InvalidOid if it is not known.
 */
static const char *
extracting_function_problem(Form_pg_amproc proc, Oid key_type)
{
	if (proc->amprocnum < BX_HASH_PROC || proc->amprocnum > BX_OPTIONS_PROC)
		return "invalid support function number";
	if (proc->amprocnum == BX_CONSISTENT_PROC + 1)
		return "support function 5, which compares prefixes, is not used";
	if (!has_right_signature(proc, key_type))
		return proc->amprocnum == BX_HASH_PROC ?
			"hash function with wrong signature for the type of the keys" :
			psprintf("wrong signature for support function %d",
					 proc->amprocnum);
	if (proc->amprocnum == BX_HASH_PROC && needs_expression(proc->amproc))
		return "polymorphic hash function that is not written in C";
	return NULL;
}

static void
validate_functions(Validation *validation)
{
	CatCList   *procs = validation->procs;

	for (int i = 0; i < procs->n_members; i++)
	{
		Form_pg_amproc proc =
		(Form_pg_amproc) GETSTRUCT(&procs->members[i]->tuple);
		bool		extracts = is_extracting(procs, proc->amproclefttype);
		const char *problem;

		if (proc->amproclefttype != proc->amprocrighttype)
			problem = proc->amprocnum == BX_HASH_PROC ?
				"hash function registered for two types" :
				"support function registered for two types";
		else if (extracts)
			problem = extracting_function_problem(proc,
												  proc->amproclefttype == validation->type ?
												  validation->key_type : InvalidOid);
		else
			problem = plain_function_problem(proc);
		if (problem)
			complain(validation, format_procedure(proc->amproc), problem,
					 !extracts);
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
		bool		extracts = is_extracting(validation->procs,
											 op->amoplefttype);
		const char *problem = NULL;
		bool		is_function = false;

		if (extracts ? op->amopstrategy < 1 || op->amopstrategy > MAX_STRATEGY :
			op->amopstrategy != BX_EQUAL_STRATEGY)
			problem = "invalid strategy number";
		else if (op->amoppurpose != AMOP_SEARCH || OidIsValid(op->amopsortfamily))
			problem = "operator for ordering";
		else if (!check_amop_signature(op->amopopr, BOOLOID, op->amoplefttype,
									   op->amoprighttype))
			problem = "operator with wrong signature";
		else if (!op_strict(op->amopopr))
			problem = "operator is not strict";
		else if (!extracts &&
				 (!has_function(validation->procs, op->amoplefttype,
								BX_HASH_PROC) ||
				  !has_function(validation->procs, op->amoprighttype,
								BX_HASH_PROC)))
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

/* Checks that a plain class is complete. */
static void
validate_plain(Validation *validation)
{
	Oid			type = validation->type;

	if (!has_equality(validation->operators, type))
		complain(validation, format_type_be(type),
				 "no equality operator for the type", false);
	if (!has_function(validation->procs, type, BX_HASH_PROC))
		complain(validation, format_type_be(type),
				 "no hash function for the type", true);
}

/* Checks that an extracting class is complete. */
static void
validate_extracting(Validation *validation)
{
	CatCList   *procs = validation->procs;
	Oid			type = validation->type;

	if (!has_function(procs, type, BX_EXTRACT_QUERY_PROC))
		complain(validation, format_type_be(type),
				 "support function 3, extractQuery, is missing", false);
	if (!has_function(procs, type, BX_CONSISTENT_PROC) &&
		!has_function(procs, type, BX_TRICONSISTENT_PROC))
		complain(validation, format_type_be(type),
				 "support function 4, consistent, or 6, triConsistent, is missing",
				 false);
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
	validation->type = opclass->opcintype;
	validation->key_type = OidIsValid(opclass->opckeytype) ?
		opclass->opckeytype : opclass->opcintype;
	validation->family = family_name(opclass->opcfamily);
	validation->operators = SearchSysCacheList1(AMOPSTRATEGY,
												ObjectIdGetDatum(opclass->opcfamily));
	validation->procs = SearchSysCacheList1(AMPROCNUM,
											ObjectIdGetDatum(opclass->opcfamily));

	validate_functions(validation);
	validate_operators(validation);
	if (is_extracting(validation->procs, validation->type))
		validate_extracting(validation);
	else
	{
		validate_plain(validation);
		if (OidIsValid(opclass->opckeytype))
			complain(validation, format_type_be(opclass->opckeytype),
					 "STORAGE is only for classes that have support function 2, extractValue",
					 false);
	}

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
 * Returns whether an index has never been built.  A build of an existing index
 * has a new file, or replaces the contents of its file; then pg_class has the
 * numbers of pages and rows of the last build, or -1 rows if the file was new.
 * pg_upgrade creates an existing index without building it.  An error would
 * make TRUNCATE and VACUUM FULL of the table, or pg_upgrade, fail.
 */
static bool
is_new(Relation index)
{
	return !IsBinaryUpgrade &&
		index->rd_newRelfilelocatorSubid == InvalidSubTransactionId &&
		index->rd_rel->relpages == 0 && index->rd_rel->reltuples == 0;
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

	if (OidIsValid(type) && type == att->atttypid)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("cannot create index \"%s\": the keys of column \"%s\" cannot be hashed",
						RelationGetRelationName(index), NameStr(att->attname)),
				 errdetail("Type %s has no extended hash function for its default equality operator.",
						   format_type_be(type))));
	if (OidIsValid(type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("cannot create index \"%s\": values of column \"%s\" cannot be hashed",
						RelationGetRelationName(index), NameStr(att->attname)),
				 errdetail("Type %s contains type %s, which has no extended hash function for its default equality operator.",
						   format_type_be(att->atttypid), format_type_be(type)),
				 errhint("Create a default operator class for access method hash, with an extended hash function. If the type has a default operator class for B-trees, both classes must have the same equality operator.")));
}

/*
 * Raises an error if the class of a column needs a deterministic collation,
 * and the column has another one.
 */
static void
validate_collation(Relation index, int attno)
{
	Oid			collation = index->rd_indcollation[attno - 1];

	if (bx_extract_is_used(index, attno) &&
		(bx_text_needs_deterministic(index, attno) ||
		 bx_text_is_fragmented(index, attno)) &&
		OidIsValid(collation) && !get_collation_isdeterministic(collation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create index \"%s\": the operator class of column \"%s\" does not support nondeterministic collations",
						RelationGetRelationName(index),
						NameStr(TupleDescAttr(RelationGetDescr(index),
											  attno - 1)->attname)),
				 errhint("Use the COLLATE clause to choose another collation.")));
}

/*
 * Raises an error if a column of an index that is being built, with the given
 * operator class, cannot be hashed.
 */
void
bx_validate_column(Relation index, int attno, Oid opclass)
{
	Validation	validation = {0};

	validation.opclass = opclass;
	validation.index = index;
	validation.attno = attno;
	validate(&validation);

	/*
	 * The owner of a composite type may have added an attribute that cannot
	 * be hashed, or may be altering the type.  Neither must TRUNCATE of other
	 * owners' tables fail, nor wait for a lock on the type.  Values that
	 * cannot be hashed raise an error when they are indexed.
	 */
	if (is_new(index))
		validate_contents(index, attno);
	validate_collation(index, attno);
}

/* The same for all columns. */
void
bx_validate_index(Relation index)
{
	bool		isnull;
	Datum		indclass = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
										   Anum_pg_index_indclass, &isnull);
	oidvector  *opclasses = (oidvector *) DatumGetPointer(indclass);

	Assert(!isnull);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		bx_validate_column(index, i + 1, opclasses->values[i]);
}

/*
 * Raises an error if the index is to have combined keys, but a column
 * extracts: its values have any number of keys.  If an existing index is
 * rebuilt, whose options ALTER INDEX has changed, this is only a WARNING, and
 * the index gets no combined keys: TRUNCATE and VACUUM FULL of the table must
 * not fail.
 */
void
bx_validate_keys(Relation index, BxOptions *options)
{
	if (!(options->keys & BX_KEYS_ALL))
		return;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_extract_is_used(index, i + 1))
		{
			ereport(is_new(index) ? ERROR : WARNING,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 is_new(index) ?
					 errmsg("cannot create index \"%s\": column \"%s\" cannot be part of a combined key",
							RelationGetRelationName(index),
							NameStr(TupleDescAttr(RelationGetDescr(index),
												  i)->attname)) :
					 errmsg("index \"%s\" is built without combined keys: column \"%s\" cannot be part of a combined key",
							RelationGetRelationName(index),
							NameStr(TupleDescAttr(RelationGetDescr(index),
												  i)->attname)),
					 errdetail("Its operator class extracts several keys from a value."),
					 errhint("Set option \"keys\" to \"each\", or omit the option. To remove the option from an existing index, use ALTER INDEX ... RESET (keys).")));
			options->keys = BX_KEYS_EACH;
			return;
		}
	}
}
