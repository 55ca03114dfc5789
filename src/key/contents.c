/*-------------------------------------------------------------------------
 *
 * contents.c
 *	  Hashes of values that are made of others: arrays, ranges, multiranges and
 *	  rows.
 *
 * The contents are hashed by the extended hash functions of their types, as
 * PostgreSQL's own functions for such values do.  PostgreSQL's functions cannot
 * be used, because some give different hashes to values that are equal:
 *
 * - hashnameextended knows nothing of collations, and hashbpcharextended of
 *   some versions counts trailing blanks under a nondeterministic collation;
 *
 * - hash_range_extended takes the subtype's default class for granted, while
 *   ranges are compared by the class that CREATE TYPE ... AS RANGE names;
 *
 * - hash_record_extended gives another hash to a row after ALTER TYPE ... ADD
 *   ATTRIBUTE, which changes no value and no table.
 *
 * Nothing is remembered between calls: a composite type may change while an
 * index is in use, and nobody tells the index.  The type cache is told, if late:
 * see lookup_row_descriptor.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "key.h"

PG_FUNCTION_INFO_V1(bloomidx_hash_array);
PG_FUNCTION_INFO_V1(bloomidx_hash_range);
PG_FUNCTION_INFO_V1(bloomidx_hash_multirange);
PG_FUNCTION_INFO_V1(bloomidx_hash_record);

/* What stands for something in a hash that has no hash of its own. */
#define HASH_OF_NULL		1
#define HASH_OF_EMPTY		2

/* PostgreSQL's functions for values that are made of others. */
static bool
looks_into_values(Oid function)
{
	return function == F_HASH_ARRAY_EXTENDED ||
		function == F_HASH_RANGE_EXTENDED ||
		function == F_HASH_MULTIRANGE_EXTENDED ||
		function == F_HASH_RECORD_EXTENDED;
}

/*
 * Looks up how values of a type are hashed.  The equality operator must be
 * asked for, too: then the type cache knows only a hash function that fits the
 * operator.
 */
static TypeCacheEntry *
lookup_type(Oid type)
{
	return lookup_type_cache(getBaseType(type), TYPECACHE_EQ_OPR |
							 TYPECACHE_BTREE_OPFAMILY |
							 TYPECACHE_HASH_EXTENDED_PROC |
							 TYPECACHE_HASH_EXTENDED_PROC_FINFO);
}

/*
 * A type's extended hash function, or InvalidOid if there is none.  The type
 * cache says that there is none if something in the values has none, but does
 * not look through domains for that, and does not notice when a type that the
 * type contains changes.  So it is not believed if the type's hash class is
 * for values that are made of others: the callers look at the contents.
 */
static Oid
hash_function(TypeCacheEntry *entry)
{
	Oid			type = entry->hash_opintype;
	Oid			function = entry->hash_extended_proc;

	if (OidIsValid(function) || !OidIsValid(entry->hash_opf))
		return function;
	if (OidIsValid(entry->eq_opr) &&
		entry->eq_opr != get_opfamily_member(entry->hash_opf, type, type,
											 HTEqualStrategyNumber))
		return InvalidOid;
	function = get_opfamily_proc(entry->hash_opf, type, type,
								 HASHEXTENDED_PROC);
	return looks_into_values(function) ? function : InvalidOid;
}

/* Looks up a type whose values are about to be hashed. */
static TypeCacheEntry *
need_hash_function(Oid type)
{
	TypeCacheEntry *entry = lookup_type(type);

	if (!OidIsValid(hash_function(entry)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("type %s has no extended hash function",
						format_type_be(type))));
	return entry;
}

static uint64 hash_content(TypeCacheEntry *entry, Oid collation, Datum value,
						   uint64 seed);

static uint64
hash_array_value(ArrayType *array, Oid collation, uint64 seed)
{
	TypeCacheEntry *element = need_hash_function(ARR_ELEMTYPE(array));
	uint64		hash = seed;
	Datum	   *values;
	bool	   *isnull;
	int			n;

	deconstruct_array(array, ARR_ELEMTYPE(array), element->typlen,
					  element->typbyval, element->typalign,
					  &values, &isnull, &n);
	for (int i = 0; i < n; i++)
		hash = bx_hash_mix(hash, isnull[i] ? HASH_OF_NULL :
						   hash_content(element, collation, values[i], seed));
	pfree(values);
	pfree(isnull);
	return hash;
}

/*
 * Looks up the descriptor of a row.  The row may have more columns than the
 * type cache knows of, if ALTER TYPE ... ADD ATTRIBUTE has committed since this
 * backend last looked for messages of others; a VACUUM may not have looked for
 * hours.  To hash the row without these columns would lose it.
 */
static TupleDesc
lookup_row_descriptor(HeapTupleHeader row)
{
	Oid			type = HeapTupleHeaderGetTypeId(row);
	int32		typmod = HeapTupleHeaderGetTypMod(row);
	TupleDesc	desc = lookup_rowtype_tupdesc(type, typmod);

	if (HeapTupleHeaderGetNatts(row) > desc->natts)
	{
		ReleaseTupleDesc(desc);
		AcceptInvalidationMessages();
		desc = lookup_rowtype_tupdesc(type, typmod);

		/* who has altered the type can be seen before his messages */
		if (HeapTupleHeaderGetNatts(row) > desc->natts)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a value of type %s has more attributes than the type",
							format_type_be(type)),
					 errdetail("The type has just been altered.")));
	}
	return desc;
}

/*
 * Hashes a row.  Columns are numbered as record_eq counts them: dropped columns
 * do not count.  A NULL adds nothing to the hash, so a row keeps its hash if
 * its type gets another column.
 */
static uint64
hash_row_value(HeapTupleHeader row, uint64 seed)
{
	TupleDesc	desc = lookup_row_descriptor(row);
	Datum	   *values = palloc(sizeof(Datum) * desc->natts);
	bool	   *isnull = palloc(sizeof(bool) * desc->natts);
	uint64		hash = seed;
	int			number = 0;
	HeapTupleData tuple;

	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, desc, values, isnull);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		number++;
		if (!isnull[i])
			hash = bx_hash_mix(bx_hash_mix(hash, number),
							   hash_content(need_hash_function(att->atttypid),
											att->attcollation, values[i],
											seed));
	}
	pfree(values);
	pfree(isnull);
	ReleaseTupleDesc(desc);
	return hash;
}

/*
 * Whether a range type compares its bounds by the subtype's default class, with
 * which the subtype's hash function agrees.  CREATE TYPE may have named another
 * class.  (The type cache's cmp_proc would depend on what the subtype contains,
 * or did when the type cache looked.)
 */
static bool
are_bounds_hashable(TypeCacheEntry *range, TypeCacheEntry *subtype)
{
	return range->rng_cmp_proc_finfo.fn_oid ==
		get_opfamily_proc(subtype->btree_opf, subtype->btree_opintype,
						  subtype->btree_opintype, BTORDER_PROC);
}

/*
 * Hashes a bound of a range.  A bound that cannot be hashed tells only whether
 * it belongs to the range.
 */
static uint64
hash_bound(TypeCacheEntry *range, TypeCacheEntry *subtype,
		   const RangeBound *bound, uint64 seed)
{
	uint64		hash;

	if (bound->infinite)
		return HASH_OF_NULL;
	hash = bx_hash_mix(seed, bound->inclusive);
	if (are_bounds_hashable(range, subtype))
		hash = bx_hash_mix(hash, hash_content(subtype, range->rng_collation,
											  bound->val, seed));
	return hash;
}

static uint64
hash_bounds(TypeCacheEntry *range, const RangeBound *lower,
			const RangeBound *upper, uint64 seed)
{
	TypeCacheEntry *subtype = need_hash_function(range->rngelemtype->type_id);

	return bx_hash_mix(hash_bound(range, subtype, lower, seed),
					   hash_bound(range, subtype, upper, seed));
}

static uint64
hash_range_value(RangeType *value, uint64 seed)
{
	TypeCacheEntry *range = lookup_type_cache(RangeTypeGetOid(value),
											  TYPECACHE_RANGE_INFO);
	RangeBound	lower;
	RangeBound	upper;
	bool		empty;

	range_deserialize(range, value, &lower, &upper, &empty);
	return empty ? bx_hash_mix(seed, HASH_OF_EMPTY) :
		hash_bounds(range, &lower, &upper, seed);
}

static uint64
hash_multirange_value(MultirangeType *value, uint64 seed)
{
	TypeCacheEntry *multirange = lookup_type_cache(MultirangeTypeGetOid(value),
												   TYPECACHE_MULTIRANGE_INFO);
	uint64		hash = seed;

	for (uint32 i = 0; i < value->rangeCount; i++)
	{
		RangeBound	lower;
		RangeBound	upper;

		multirange_get_bounds(multirange->rngtype, value, i, &lower, &upper);
		hash = bx_hash_mix(hash, hash_bounds(multirange->rngtype, &lower,
											 &upper, seed));
	}
	return hash;
}

/*
 * Hashes a value that is in another one, by its type's own function or by what
 * is here in place of that function.
 */
static uint64
hash_content(TypeCacheEntry *entry, Oid collation, Datum value, uint64 seed)
{
	check_stack_depth();
	switch (hash_function(entry))
	{
		case F_HASHNAMEEXTENDED:
			return bx_hash_name(DatumGetName(value), collation, seed);
		case F_HASHBPCHAREXTENDED:
			return bx_hash_bpchar(DatumGetBpCharPP(value), collation, seed);
		case F_HASH_ARRAY_EXTENDED:
			return hash_array_value(DatumGetArrayTypeP(value), collation, seed);
		case F_HASH_RECORD_EXTENDED:
			return hash_row_value(DatumGetHeapTupleHeader(value), seed);
		case F_HASH_RANGE_EXTENDED:
			return hash_range_value(DatumGetRangeTypeP(value), seed);
		case F_HASH_MULTIRANGE_EXTENDED:
			return hash_multirange_value(DatumGetMultirangeTypeP(value), seed);
		default:
			return DatumGetUInt64(FunctionCall2Coll(&entry->hash_extended_proc_finfo,
													collation, value,
													UInt64GetDatum(seed)));
	}
}

Datum
bloomidx_hash_array(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	uint64		hash = hash_array_value(array, PG_GET_COLLATION(),
										PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(array, 0);
	PG_RETURN_INT64(hash);
}

Datum
bloomidx_hash_range(PG_FUNCTION_ARGS)
{
	RangeType  *range = PG_GETARG_RANGE_P(0);
	uint64		hash = hash_range_value(range, PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(range, 0);
	PG_RETURN_INT64(hash);
}

Datum
bloomidx_hash_multirange(PG_FUNCTION_ARGS)
{
	MultirangeType *multirange = PG_GETARG_MULTIRANGE_P(0);
	uint64		hash = hash_multirange_value(multirange, PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(multirange, 0);
	PG_RETURN_INT64(hash);
}

Datum
bloomidx_hash_record(PG_FUNCTION_ARGS)
{
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(0);
	uint64		hash = hash_row_value(row, PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(row, 0);
	PG_RETURN_INT64(hash);
}

/* A search for a type whose hash function passes a test; see find_contained(). */
typedef struct TypeSearch
{
	bool		(*test) (Oid hash_function);
	List	   *rows;			/* composite types that have been looked into */
} TypeSearch;

static Oid	find_contained(TypeSearch *search, Oid type);

/* The type, or one that hashing the type's values looks at, if it passes. */
static Oid
find_type(TypeSearch *search, Oid type)
{
	Oid			function = hash_function(lookup_type(type));

	if (search->test(function))
		return type;
	return looks_into_values(function) ? find_contained(search, type) :
		InvalidOid;
}

/*
 * Looks into the columns of a composite type.  A composite type may contain
 * itself by way of a multirange, so no type is looked into twice.
 */
static Oid
find_column(TypeSearch *search, Oid type)
{
	Oid			result = InvalidOid;
	TupleDesc	desc;

	if (list_member_oid(search->rows, type))
		return InvalidOid;
	search->rows = lappend_oid(search->rows, type);
	desc = lookup_rowtype_tupdesc(type, -1);
	for (int i = 0; i < desc->natts && !OidIsValid(result); i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			result = find_type(search, att->atttypid);
	}
	ReleaseTupleDesc(desc);
	return result;
}

/* A type that the type contains, at any depth, and whose function passes. */
static Oid
find_contained(TypeSearch *search, Oid type)
{
	check_stack_depth();
	type = getBaseType(type);
	if (OidIsValid(get_element_type(type)))
		return find_type(search, get_element_type(type));
	if (type_is_multirange(type))
		type = get_multirange_range(type);
	if (type_is_range(type))
		return find_type(search, get_range_subtype(type));
	if (get_typtype(type) == TYPTYPE_COMPOSITE)
		return find_column(search, type);
	return InvalidOid;
}

static bool
is_missing(Oid function)
{
	return !OidIsValid(function);
}

/*
 * Whether the values of an indexed column are hashed by what is in them, and
 * thus by the definitions of the types of their contents.
 */
bool
bx_hash_looks_into_values(Relation index, int attno)
{
	FmgrInfo   *proc = index_getprocinfo(index, attno, BX_HASH_PROC);

	return proc->fn_addr == bloomidx_hash_array ||
		proc->fn_addr == bloomidx_hash_range ||
		proc->fn_addr == bloomidx_hash_multirange ||
		proc->fn_addr == bloomidx_hash_record ||
		looks_into_values(proc->fn_oid);
}

/* Looks for a type that the values of an indexed column contain. */
static Oid
find_in_column(Relation index, int attno, bool (*test) (Oid))
{
	TypeSearch	search = {test, NIL};
	Oid			found = find_contained(&search,
									   TupleDescAttr(RelationGetDescr(index),
													 attno - 1)->atttypid);

	list_free(search.rows);
	return found;
}

/*
 * A type that the values of an indexed column contain, and that is to be hashed
 * and cannot be; or InvalidOid.
 */
Oid
bx_hash_unhashable_content(Relation index, int attno)
{
	if (!bx_hash_looks_into_values(index, attno))
		return InvalidOid;
	return find_in_column(index, attno, is_missing);
}

/* Whether a function is written in a language that users write functions in. */
static bool
is_user_code(Oid function)
{
	HeapTuple	tuple;
	Oid			language;

	if (!OidIsValid(function))
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	ReleaseSysCache(tuple);
	return language != INTERNALlanguageId && language != ClanguageId;
}

/*
 * Whether hashing values of an indexed column may run code of users: a function
 * in another language than C is called for the values themselves, or for
 * something that is in them.  A function of another extension may look into
 * the values as ours do, so contents count in any case.
 */
bool
bx_hash_runs_user_code(Relation index, int attno)
{
	return is_user_code(index_getprocid(index, attno, BX_HASH_PROC)) ||
		OidIsValid(find_in_column(index, attno, is_user_code));
}
