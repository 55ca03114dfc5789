/*-------------------------------------------------------------------------
 *
 * contents.c
 *	  Hashes of values that contain other values: arrays, ranges,
 *	  multiranges and rows.
 *
 * The contents are hashed by the extended hash functions of their types, as
 * in PostgreSQL's own functions for such values.  PostgreSQL's functions
 * cannot be used, because some of them return different hashes for equal
 * values:
 *
 *	- hashnameextended ignores collations, and hashbpcharextended of some
 *	  versions counts trailing blanks under a nondeterministic collation;
 *
 *	- hash_range_extended assumes the subtype's default operator class, while
 *	  ranges are compared by the class that CREATE TYPE ... AS RANGE names;
 *
 *	- hash_record_extended returns another hash for a row after ALTER TYPE
 *	  ... ADD ATTRIBUTE, which changes no value and no table.
 *
 * Nothing is cached between calls: a composite type may change while an index
 * is in use, and no invalidation is sent for the index.  The type cache
 * receives invalidation messages, but possibly late: see
 * lookup_row_descriptor.
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
#include "storage/lmgr.h"
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

/* Hashes of things that have no hash of their own. */
#define HASH_OF_NULL		1
#define HASH_OF_EMPTY		2

/*
 * VACUUM does not hash values whose types are nested more deeply than this,
 * contain more composite types than this, or need more steps than this to be
 * examined.  Otherwise the owner of a type could make VACUUM fail for lack of
 * stack or of space for locks, or make VACUUM arbitrarily slow, because the
 * types are examined for every heap page.
 */
#define MAX_DEPTH			100
#define MAX_ROWS			100
#define MAX_STEPS			2000

/*
 * Returns whether this is one of PostgreSQL's functions for values that
 * contain other values.
 */
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
 * requested, too, so that the type cache returns only a hash function that is
 * compatible with the operator.
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
 * Returns a type's extended hash function, or InvalidOid if there is none.
 * The type cache reports none if a contained type has none, but it does not
 * look through domains for that, and does not notice when a contained type
 * changes.  So this result is ignored if the type's hash operator class is
 * for values that contain other values: the callers examine the contents.
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

/*
 * Looks up a type whose values are about to be hashed.  Raises an error if
 * there is no hash function.
 */
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
	{
		CHECK_FOR_INTERRUPTS();
		hash = bx_hash_mix(hash, isnull[i] ? HASH_OF_NULL :
						   hash_content(element, collation, values[i], seed));
	}
	pfree(values);
	pfree(isnull);
	return hash;
}

/*
 * Looks up the descriptor of a row.  The row may have more columns than the
 * type cache knows of, if ALTER TYPE ... ADD ATTRIBUTE has committed since
 * this backend last processed invalidation messages, which may be long ago.
 * Hashing the row without these columns would return a wrong
 * hash, and searches would miss the row.  The caller releases the descriptor.
 */
static TupleDesc
lookup_row_descriptor(HeapTupleHeader row)
{
	Oid			type = HeapTupleHeaderGetTypeId(row);
	int32		typmod = HeapTupleHeaderGetTypMod(row);
	TupleDesc	desc = lookup_rowtype_tupdesc(type, typmod);

	if (HeapTupleHeaderGetNatts(row) > desc->natts)
	{
		Oid			relid = get_typ_typrelid(type);

		ReleaseTupleDesc(desc);

		/*
		 * A committing transaction becomes visible first, then sends its
		 * invalidation messages, and then releases its locks.  So when we get
		 * the lock, the messages have been sent.  (VACUUM holds the lock; see
		 * bx_hash_lock_types.)
		 */
		if (OidIsValid(relid))
		{
			LockRelationOid(relid, AccessShareLock);
			UnlockRelationOid(relid, AccessShareLock);
		}
		AcceptInvalidationMessages();
		desc = lookup_rowtype_tupdesc(type, typmod);
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
 * Hashes a row.  Columns are numbered as in record_eq: dropped columns are
 * not counted.  A NULL adds nothing to the hash, so the hash of a row does
 * not change if its type gets another column.
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
 * Returns whether a range type compares its bounds by the subtype's default
 * operator class, with which the subtype's hash function is compatible.
 * CREATE TYPE may have named another class.  (The type cache's cmp_proc is
 * not used, because it depends on the contents of the subtype at the time
 * when the type cache was filled.)
 */
static bool
are_bounds_hashable(TypeCacheEntry *range, TypeCacheEntry *subtype)
{
	return range->rng_cmp_proc_finfo.fn_oid ==
		get_opfamily_proc(subtype->btree_opf, subtype->btree_opintype,
						  subtype->btree_opintype, BTORDER_PROC);
}

/*
 * Hashes a bound of a range.  If the bound's value cannot be hashed, the hash
 * only depends on whether the bound is inclusive.
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

		CHECK_FOR_INTERRUPTS();
		multirange_get_bounds(multirange->rngtype, value, i, &lower, &upper);
		hash = bx_hash_mix(hash, hash_bounds(multirange->rngtype, &lower,
											 &upper, seed));
	}
	return hash;
}

/*
 * Hashes a value that is contained in another one, by the function of its
 * type, or by the replacement for that function in this file.
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

/*
 * Hashes a value by the default hash function of its type, or by the
 * replacement for that function in this file.
 */
uint64
bx_hash_content(Oid type, Oid collation, Datum value)
{
	return hash_content(need_hash_function(type), collation, value, 0);
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

/*
 * State of a search for a type whose hash function passes a test; see
 * find_contained().
 */
typedef struct TypeSearch
{
	bool		(*test) (Oid hash_function);
	List	   *rows;			/* composite types that have been examined */
} TypeSearch;

static Oid	find_contained(TypeSearch *search, Oid type);

/*
 * If the hash function of the type passes the test, returns the type.  If the
 * type is hashed by hashing the values that it contains, returns a contained
 * type whose hash function passes the test.  Otherwise returns InvalidOid.
 */
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
 * As find_type(), for the columns of a composite type.  A composite type may
 * contain itself by way of a multirange, so no type is examined twice.
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

/*
 * Returns a type that is contained in the type, at any depth, and whose hash
 * function passes the test; else InvalidOid.
 */
static Oid
find_contained(TypeSearch *search, Oid type)
{
	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
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

/* Returns the type of an index column; of its keys, if the column extracts. */
static Oid
type_of_column(Relation index, int attno)
{
	return TupleDescAttr(RelationGetDescr(index), attno - 1)->atttypid;
}

/*
 * Returns whether the hash of an indexed column's values depends on contained
 * values, and thus on the definitions of their types.
 */
bool
bx_hash_looks_into_values(Relation index, int attno)
{
	Oid			function = index_getprocid(index, attno, BX_HASH_PROC);
	FmgrInfo	proc;

	/* an extracting class without hash function uses that of the type */
	if (!OidIsValid(function))
		return looks_into_values(hash_function(lookup_type(type_of_column(index, attno))));
	fmgr_info(function, &proc);
	return proc.fn_addr == bloomidx_hash_array ||
		proc.fn_addr == bloomidx_hash_range ||
		proc.fn_addr == bloomidx_hash_multirange ||
		proc.fn_addr == bloomidx_hash_record ||
		looks_into_values(function);
}

/*
 * Returns a type that is contained in an indexed column's type, and whose
 * hash function passes the test; else InvalidOid.  If the operator class has
 * no hash function, so that the default hash function of the column's type is
 * used, the column's type is tested, too.
 */
static Oid
find_in_column(Relation index, int attno, bool (*test) (Oid))
{
	TypeSearch	search = {test, NIL};
	Oid			type = type_of_column(index, attno);
	Oid			found;

	if (OidIsValid(index_getprocid(index, attno, BX_HASH_PROC)))
		found = find_contained(&search, type);
	else
		found = find_type(&search, type);
	list_free(search.rows);
	return found;
}

/*
 * Returns a type that is contained in an indexed column's type, or is the type
 * of its keys, and has to be hashed, but has no hash function; InvalidOid if
 * there is none.
 */
Oid
bx_hash_unhashable_content(Relation index, int attno)
{
	if (OidIsValid(index_getprocid(index, attno, BX_HASH_PROC)) &&
		!bx_hash_looks_into_values(index, attno))
		return InvalidOid;
	return find_in_column(index, attno, is_missing);
}

/*
 * Returns whether a function is written in a language other than C or
 * internal, in which ordinary users can create functions.
 */
bool
bx_hash_is_user_code(Oid function)
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

/* State of a visit to the composite types that a type contains. */
typedef struct TypeVisit
{
	bool		lock;			/* acquire AccessShareLock on each */
	bool		stop;			/* fail at the first one, without looking it
								 * up */
	int			steps;			/* steps so far */
	List	   *rows;			/* their pg_class OIDs */
} TypeVisit;

/*
 * Replaces a domain by the type that it is based on, by way of any number of
 * other domains.  Returns false if there have been too many steps.
 */
static bool
find_base_type(TypeVisit *visit, Oid *type)
{
	for (;;)
	{
		HeapTuple	tuple;
		Form_pg_type form;
		bool		is_domain;

		CHECK_FOR_INTERRUPTS();
		if (++visit->steps > MAX_STEPS)
			return false;
		tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(*type));
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for type %u", *type);
		form = (Form_pg_type) GETSTRUCT(tuple);
		is_domain = form->typtype == TYPTYPE_DOMAIN;
		if (is_domain)
			*type = form->typbasetype;
		ReleaseSysCache(tuple);
		if (!is_domain)
			return true;
	}
}

/*
 * Visits the composite types that are contained in a type, or are the type
 * itself, and appends them to visit->rows.  Returns false if a lock is not
 * available immediately, or if the types are too many or nested too deeply;
 * the locks on visit->rows are then held nevertheless.
 *
 * This must not call lookup_type() for a type that is not locked: the type
 * cache opens all contained composite types, and waits for their locks.
 */
static bool
visit_rows(TypeVisit *visit, Oid type, int depth)
{
	Oid			relid;
	TupleDesc	desc;
	bool		result = true;

	if (depth > MAX_DEPTH || !find_base_type(visit, &type))
		return false;
	if (OidIsValid(get_element_type(type)))
		return visit_rows(visit, get_element_type(type), depth + 1);
	if (type_is_multirange(type))
		type = get_multirange_range(type);
	if (type_is_range(type))
		return visit_rows(visit, get_range_subtype(type), depth + 1);
	relid = get_typ_typrelid(type);
	if (!OidIsValid(relid) || list_member_oid(visit->rows, relid))
		return true;
	if (visit->stop || list_length(visit->rows) >= MAX_ROWS)
		return false;
	if (visit->lock && !ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	visit->rows = lappend_oid(visit->rows, relid);
	desc = lookup_rowtype_tupdesc(type, -1);
	for (int i = 0; i < desc->natts && result; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			result = visit_rows(visit, att->atttypid, depth + 1);
	}
	ReleaseTupleDesc(desc);
	return result;
}

/*
 * Returns whether a type is a composite type or contains one.  Waits for no
 * lock.  The result is also true if the type is nested too deeply to be
 * examined.
 */
bool
bx_hash_contains_rows(Oid type)
{
	TypeVisit	visit = {.stop = true};

	return !visit_rows(&visit, type, 0);
}

/* Releases the locks of bx_hash_lock_types(), and frees the list. */
void
bx_hash_unlock_types(List *locked)
{
	for (int i = 0; i < list_length(locked); i++)
		UnlockRelationOid(list_nth_oid(locked, i), AccessShareLock);
	list_free(locked);
}

/*
 * Acquires AccessShareLock on all composite types that are contained in an
 * indexed column's type, so that hashing its values does not wait for a
 * transaction that alters such a type, and appends them to *locked.  Raises an
 * error if a lock is not available immediately.  The caller calls
 * bx_hash_unlock_types() soon, because ALTER TYPE waits meanwhile.
 */
void
bx_hash_lock_types(Relation index, int attno, List **locked)
{
	Oid			type = type_of_column(index, attno);
	TypeVisit	visit = {.lock = true};

	if (!visit_rows(&visit, type, 0))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain locks on the types contained in type %s",
						format_type_be(type))));
	*locked = list_concat(*locked, visit.rows);
	list_free(visit.rows);
}

/*
 * Returns whether a support function of an indexed column is written in a
 * language other than C or internal.
 */
bool
bx_hash_has_user_functions(Relation index, int attno)
{
	for (int proc = 1; proc <= BX_NPROCS; proc++)
	{
		if (bx_hash_is_user_code(index_getprocid(index, attno, proc)))
			return true;
	}
	return false;
}

/*
 * Returns whether a type that is contained in an indexed column's type has a
 * hash function in a language other than C or internal.
 */
bool
bx_hash_contains_user_code(Relation index, int attno)
{
	return OidIsValid(find_in_column(index, attno, bx_hash_is_user_code));
}

/*
 * Returns whether computing the keys of an indexed column may run
 * user-defined code: a function in a language other than C or internal, for
 * the values themselves or for contained values.  A C function of another
 * extension may hash contained values as ours do, so contained types are
 * examined in any case.
 *
 * If "wait" is false, this does not wait for a transaction that alters a
 * contained type.  The result is true if such a type, or types that are too
 * many or nested too deeply, prevent an examination.
 */
bool
bx_hash_runs_user_code(Relation index, int attno, bool wait)
{
	Oid			type = type_of_column(index, attno);
	TypeVisit	visit = {.lock = !wait};
	bool		result = true;

	if (bx_hash_has_user_functions(index, attno))
		return true;
	if (visit_rows(&visit, type, 0))
		result = bx_hash_contains_user_code(index, attno);
	else
		ereport(DEBUG1,
				(errmsg_internal("the types contained in type %s are locked, too many, or nested too deeply",
								 format_type_be(type))));
	if (wait)
		list_free(visit.rows);
	else
		bx_hash_unlock_types(visit.rows);
	return result;
}
