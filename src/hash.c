/*-------------------------------------------------------------------------
 *
 * hash.c
 *	  From a datum to the 64-bit hash that stands for it in the filters.
 *
 * An operator class names a function (type, bigint) returns bigint, the form
 * of PostgreSQL's own extended hash functions, that gives equal hashes to equal
 * values.  Types whose equality is equality of bytes have one here, which is
 * XXH3 of the bytes; all others use the type's own.  Integers of all widths
 * are hashed as eight little-endian bytes, so that int4_column = 5::bigint
 * finds its row.  The result is mixed with the column's number, so that equal
 * values in two columns are different keys.
 *
 * The filters on disk depend on all of this: a change needs a new
 * BX_HASH_VERSION.  XXH3 has been stable since xxHash 0.8.0.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "bloomidx.h"

#if XXH_VERSION_NUMBER < 800
#error "bloomidx needs xxHash 0.8.0 or later"
#endif

PG_FUNCTION_INFO_V1(bloomidx_hash_bool);
PG_FUNCTION_INFO_V1(bloomidx_hash_char);
PG_FUNCTION_INFO_V1(bloomidx_hash_int2);
PG_FUNCTION_INFO_V1(bloomidx_hash_int4);
PG_FUNCTION_INFO_V1(bloomidx_hash_int8);
PG_FUNCTION_INFO_V1(bloomidx_hash_oid);
PG_FUNCTION_INFO_V1(bloomidx_hash_uuid);
PG_FUNCTION_INFO_V1(bloomidx_hash_bytea);
PG_FUNCTION_INFO_V1(bloomidx_hash_text);
PG_FUNCTION_INFO_V1(bloomidx_hash_bpchar);
PG_FUNCTION_INFO_V1(bloomidx_hash_name);
PG_FUNCTION_INFO_V1(bloomidx_hash_array);
PG_FUNCTION_INFO_V1(bloomidx_hash_range);
PG_FUNCTION_INFO_V1(bloomidx_hash_multirange);
PG_FUNCTION_INFO_V1(bloomidx_hash_record);

/* What a key says of a column. */
typedef enum KeyKind
{
	KEY_VALUE = 1,
	KEY_NULL = 2,
	KEY_NOT_NULL = 3
} KeyKind;

/* XXH3 of an integer as eight little-endian bytes. */
static uint64
hash_int(uint64 value, uint64 seed)
{
#ifdef WORDS_BIGENDIAN
	value = pg_bswap64(value);
#endif
	return XXH3_64bits_withSeed(&value, sizeof(value), seed);
}

static uint64
column_seed(int attno, KeyKind kind)
{
	return ((uint64) attno << 8) | kind;
}

Datum
bloomidx_hash_bool(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int(PG_GETARG_BOOL(0), PG_GETARG_INT64(1)));
}

/* for "char" */
Datum
bloomidx_hash_char(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int((uint8) PG_GETARG_CHAR(0), PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_int2(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int((int64) PG_GETARG_INT16(0), PG_GETARG_INT64(1)));
}

/* also for date, xid and cid */
Datum
bloomidx_hash_int4(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int((int64) PG_GETARG_INT32(0), PG_GETARG_INT64(1)));
}

/* also for time, timestamp, timestamptz, pg_lsn, xid8 and oid8 */
Datum
bloomidx_hash_int8(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int(PG_GETARG_INT64(0), PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_oid(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hash_int(PG_GETARG_OID(0), PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_uuid(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = PG_GETARG_UUID_P(0);

	PG_RETURN_INT64(XXH3_64bits_withSeed(uuid->data, UUID_LEN,
										 PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *value = PG_GETARG_BYTEA_PP(0);
	uint64		hash = XXH3_64bits_withSeed(VARDATA_ANY(value),
											VARSIZE_ANY_EXHDR(value),
											PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/* Whether equal strings have equal bytes; remembers the answer in flinfo. */
static bool
is_deterministic(FmgrInfo *flinfo, Oid collation)
{
	struct
	{
		Oid			collation;
		bool		result;
	}		   *cache = flinfo->fn_extra;

	if (collation == DEFAULT_COLLATION_OID || collation == C_COLLATION_OID)
		return true;
	if (!OidIsValid(collation))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_COLLATION),
				 errmsg("could not determine which collation to use for string hashing"),
				 errhint("Use the COLLATE clause to set the collation explicitly.")));
	if (cache == NULL || cache->collation != collation)
	{
		if (cache == NULL)
			cache = MemoryContextAlloc(flinfo->fn_mcxt, sizeof(*cache));
		cache->result = get_collation_isdeterministic(collation);
		cache->collation = collation;
		flinfo->fn_extra = cache;
	}
	return cache->result;
}

/* Hashes a string under the collation that the function was called with. */
static uint64
hash_string(FunctionCallInfo fcinfo, const char *data, Size len)
{
	text	   *copy;
	Datum		hash;

	if (is_deterministic(fcinfo->flinfo, PG_GET_COLLATION()))
		return XXH3_64bits_withSeed(data, len, PG_GETARG_INT64(1));
	copy = cstring_to_text_with_len(data, len);
	hash = DirectFunctionCall2Coll(hashtextextended, PG_GET_COLLATION(),
								   PointerGetDatum(copy), PG_GETARG_DATUM(1));
	pfree(copy);
	return DatumGetInt64(hash);
}

Datum
bloomidx_hash_text(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_PP(0);
	uint64		hash = hash_string(fcinfo, VARDATA_ANY(value),
								   VARSIZE_ANY_EXHDR(value));

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/*
 * Trailing blanks do not count in char(n).  PostgreSQL's own function forgets
 * that under a nondeterministic collation, so it cannot be used.
 */
Datum
bloomidx_hash_bpchar(PG_FUNCTION_ARGS)
{
	BpChar	   *value = PG_GETARG_BPCHAR_PP(0);
	Size		len = bpchartruelen(VARDATA_ANY(value),
									VARSIZE_ANY_EXHDR(value));
	uint64		hash = hash_string(fcinfo, VARDATA_ANY(value), len);

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/* A name has the hash of the equal text. */
Datum
bloomidx_hash_name(PG_FUNCTION_ARGS)
{
	char	   *name = NameStr(*PG_GETARG_NAME(0));

	PG_RETURN_INT64(hash_string(fcinfo, name, strlen(name)));
}

/*
 * Types that are made of others are hashed by PostgreSQL's own functions,
 * which hash the contents by the extended hash functions of the contents'
 * types.  So it matters what a type contains, at any depth.
 *
 * A test of one contained type.  "in_row" says that the type is that of a
 * column of a composite type, or is somewhere inside of one.
 */
typedef bool (*TypeTest) (Oid type, Oid collation, bool in_row);

/* A search for a contained type; see contains(). */
typedef struct TypeSearch
{
	TypeTest	test;
	List	   *rows;			/* composite types that have been looked into */
} TypeSearch;

static bool contains(TypeSearch *search, Oid type, int32 typmod,
					 Oid collation, bool in_row);

/* Whether the type, or something that the type contains, passes the test. */
static bool
is_or_contains(TypeSearch *search, Oid type, int32 typmod, Oid collation,
			   bool in_row)
{
	type = getBaseType(type);
	return search->test(type, collation, in_row) ||
		contains(search, type, typmod, collation, in_row);
}

/*
 * Looks into the columns of a composite type.  A composite type may contain
 * itself by way of a multirange, so no type is looked into twice.  Once is
 * enough, because the collations of the columns are those of the type.
 */
static bool
row_contains(TypeSearch *search, Oid type, int32 typmod)
{
	TupleDesc	desc;
	bool		result = false;

	if (list_member_oid(search->rows, type))
		return false;
	if (type != RECORDOID)
		search->rows = lappend_oid(search->rows, type);
	desc = lookup_rowtype_tupdesc(type, typmod);
	for (int i = 0; i < desc->natts && !result; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		result = !att->attisdropped &&
			is_or_contains(search, att->atttypid, att->atttypmod,
						   att->attcollation, true);
	}
	ReleaseTupleDesc(desc);
	return result;
}

/*
 * Whether a type contains one that passes the test.  Of a row without a known
 * type nobody can tell: then the answer is yes.
 */
static bool
contains(TypeSearch *search, Oid type, int32 typmod, Oid collation,
		 bool in_row)
{
	check_stack_depth();
	type = getBaseType(type);
	if (OidIsValid(get_element_type(type)))
		return is_or_contains(search, get_element_type(type), -1, collation,
							  in_row);
	if (type_is_multirange(type))
		type = get_multirange_range(type);
	if (type_is_range(type))
		return is_or_contains(search, get_range_subtype(type), -1,
							  get_range_collation(type), in_row);
	if (type == RECORDOID && typmod < 0)
		return true;
	if (type == RECORDOID || get_typtype(type) == TYPTYPE_COMPOSITE)
		return row_contains(search, type, typmod);
	return false;
}

/*
 * PostgreSQL's function for char(n) forgets that trailing blanks do not count
 * under a nondeterministic collation (see bloomidx_hash_bpchar).  In a row any
 * char(n) is bad, because a row that it is compared with may have another
 * collation, and still be equal.
 */
static bool
is_hashed_badly(Oid type, Oid collation, bool in_row)
{
	if (type != BPCHAROID)
		return false;
	return in_row || (OidIsValid(collation) &&
					  !get_collation_isdeterministic(collation));
}

/*
 * Whether equal values of a type may get different hashes from PostgreSQL's
 * own functions, because of something that the type contains.
 */
static bool
contains_hashed_badly(Oid type, int32 typmod, Oid collation)
{
	TypeSearch	search = {is_hashed_badly, NIL};
	bool		result = is_or_contains(&search, type, typmod, collation,
										false);

	list_free(search.rows);
	return result;
}

/* Whether a function is written in a language that users write functions in. */
static bool
is_user_code(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			language;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	ReleaseSysCache(tuple);
	return language != INTERNALlanguageId && language != ClanguageId;
}

static bool
is_hashed_by_user_code(Oid type, Oid collation, bool in_row)
{
	TypeCacheEntry *entry = lookup_type_cache(type,
											  TYPECACHE_HASH_EXTENDED_PROC);

	return OidIsValid(entry->hash_extended_proc) &&
		is_user_code(entry->hash_extended_proc);
}

/*
 * Whether hashing values of an indexed column may run code of users: a function
 * in another language than C is called for the values themselves, or for
 * something that is in them.
 */
bool
bx_hash_runs_user_code(Relation index, int attno)
{
	Oid			function = index_getprocid(index, attno, BX_HASH_PROC);
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), attno - 1);
	TypeSearch	search = {is_hashed_by_user_code, NIL};
	bool		result;

	if (OidIsValid(function) && is_user_code(function))
		return true;
	result = contains(&search, att->atttypid, att->atttypmod,
					  att->attcollation, false);
	list_free(search.rows);
	return result;
}

/* What hash_container has found out about the last value's type. */
typedef struct ContainerCache
{
	Oid			type;
	int32		typmod;
	bool		is_bad;
	FmgrInfo	core;			/* PostgreSQL's own function */
} ContainerCache;

/*
 * All values of a type that contains something that is hashed badly get the
 * same hash: the index is of no use for them, and never wrong.
 */
static Datum
hash_container(FunctionCallInfo fcinfo, Oid core, Oid type, int32 typmod)
{
	ContainerCache *cache = fcinfo->flinfo->fn_extra;

	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
									   sizeof(ContainerCache));
		fmgr_info_cxt(core, &cache->core, fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = cache;
	}
	if (cache->type != type || cache->typmod != typmod)
	{
		cache->is_bad = contains_hashed_badly(type, typmod, PG_GET_COLLATION());
		cache->type = type;
		cache->typmod = typmod;
	}
	if (cache->is_bad)
		PG_RETURN_INT64(0);
	return FunctionCall2Coll(&cache->core, PG_GET_COLLATION(),
							 PG_GETARG_DATUM(0), PG_GETARG_DATUM(1));
}

Datum
bloomidx_hash_array(PG_FUNCTION_ARGS)
{
	AnyArrayType *array = PG_GETARG_ANY_ARRAY_P(0);

	return hash_container(fcinfo, F_HASH_ARRAY_EXTENDED,
						  AARR_ELEMTYPE(array), -1);
}

Datum
bloomidx_hash_range(PG_FUNCTION_ARGS)
{
	return hash_container(fcinfo, F_HASH_RANGE_EXTENDED,
						  RangeTypeGetOid(PG_GETARG_RANGE_P(0)), -1);
}

Datum
bloomidx_hash_multirange(PG_FUNCTION_ARGS)
{
	return hash_container(fcinfo, F_HASH_MULTIRANGE_EXTENDED,
						  MultirangeTypeGetOid(PG_GETARG_MULTIRANGE_P(0)), -1);
}

Datum
bloomidx_hash_record(PG_FUNCTION_ARGS)
{
	HeapTupleHeader record = PG_GETARG_HEAPTUPLEHEADER(0);

	return hash_container(fcinfo, F_HASH_RECORD_EXTENDED,
						  HeapTupleHeaderGetTypeId(record),
						  HeapTupleHeaderGetTypMod(record));
}

/* The hash function of an indexed column. */
FmgrInfo *
bx_hash_proc(Relation index, int attno)
{
	return index_getprocinfo(index, attno, BX_HASH_PROC);
}

/*
 * Looks up the function for a value of another type of the column's operator
 * family.  The column's own is right where the type is the column's, or is
 * passed as a polymorphic one.
 */
void
bx_hash_proc_for_type(Relation index, int attno, Oid type, FmgrInfo *proc)
{
	Oid			own = index->rd_opcintype[attno - 1];
	Oid			function;

	if (!OidIsValid(type) || type == own)
	{
		fmgr_info_copy(proc, bx_hash_proc(index, attno), CurrentMemoryContext);
		return;
	}
	function = get_opfamily_proc(index->rd_opfamily[attno - 1], type, type,
								 BX_HASH_PROC);
	if (!OidIsValid(function))
		elog(ERROR, "missing support function %d(%u,%u) for attribute %d of index \"%s\"",
			 BX_HASH_PROC, type, type, attno, RelationGetRelationName(index));
	fmgr_info(function, proc);
}

/*
 * The key of a value.  This runs the type's code, which may detoast, allocate
 * and fail: no content lock may be held.
 */
uint64
bx_hash_value(Relation index, int attno, FmgrInfo *proc, Datum value)
{
	Datum		hash = FunctionCall2Coll(proc,
										 index->rd_indcollation[attno - 1],
										 value, Int64GetDatum(0));

	return hash_int(DatumGetInt64(hash), column_seed(attno, KEY_VALUE));
}

/* Ways to hash a value without calling a function. */
typedef enum HashKind
{
	HASH_BY_CALL,				/* there is none */
	HASH_INT2,
	HASH_INT4,
	HASH_INT8,
	HASH_OID,
	HASH_UUID,
	HASH_BYTES					/* of a varlena */
} HashKind;

static HashKind
choose_kind(const BxHasher *hasher)
{
	PGFunction	function = hasher->proc->fn_addr;

	if (function == bloomidx_hash_int2)
		return HASH_INT2;
	if (function == bloomidx_hash_int4)
		return HASH_INT4;
	if (function == bloomidx_hash_int8)
		return HASH_INT8;
	if (function == bloomidx_hash_oid)
		return HASH_OID;
	if (function == bloomidx_hash_uuid)
		return HASH_UUID;
	if (function == bloomidx_hash_bytea ||
		(function == bloomidx_hash_text && OidIsValid(hasher->collation) &&
		 is_deterministic(hasher->proc, hasher->collation)))
		return HASH_BYTES;
	return HASH_BY_CALL;
}

/* Gets ready to hash many values of an indexed column. */
void
bx_hasher_init(BxHasher *hasher, Relation index, int attno)
{
	hasher->proc = bx_hash_proc(index, attno);
	hasher->collation = index->rd_indcollation[attno - 1];
	hasher->seed = column_seed(attno, KEY_VALUE);
	hasher->kind = choose_kind(hasher);
	hasher->is_simple = hasher->kind != HASH_BY_CALL;
	hasher->is_fixed = hasher->is_simple && hasher->kind != HASH_BYTES;
}

/* The key of a value, as bx_hash_value gives it, of which all is true here. */
uint64
bx_hasher_key(const BxHasher *hasher, Datum value)
{
	uint64		hash;

	switch ((HashKind) hasher->kind)
	{
		case HASH_UUID:
			hash = XXH3_64bits_withSeed(DatumGetPointer(value), UUID_LEN, 0);
			break;
		case HASH_INT2:
			hash = hash_int((int64) DatumGetInt16(value), 0);
			break;
		case HASH_INT4:
			hash = hash_int((int64) DatumGetInt32(value), 0);
			break;
		case HASH_INT8:
			hash = hash_int(DatumGetInt64(value), 0);
			break;
		case HASH_OID:
			hash = hash_int(DatumGetObjectId(value), 0);
			break;
		case HASH_BYTES:
			if (!VARATT_IS_COMPRESSED(DatumGetPointer(value)) &&
				!VARATT_IS_EXTERNAL(DatumGetPointer(value)))
			{
				hash = XXH3_64bits_withSeed(VARDATA_ANY(DatumGetPointer(value)),
											VARSIZE_ANY_EXHDR(DatumGetPointer(value)),
											0);
				break;
			}
			/* compressed or stored elsewhere: the function unpacks it */
			pg_fallthrough;
		default:
			hash = DatumGetInt64(FunctionCall2Coll(hasher->proc,
												   hasher->collation, value,
												   Int64GetDatum(0)));
	}
	return hash_int(hash, hasher->seed);
}

/* The key that says that a column has a NULL, or something else. */
uint64
bx_hash_marker(int attno, bool isnull)
{
	return hash_int(0, column_seed(attno, isnull ? KEY_NULL : KEY_NOT_NULL));
}

/* Makes room for the keys of a row, in the current memory context. */
void
bx_hash_row_alloc(Relation index, BxRowKeys *row)
{
	row->nkeys = row->nvalues = 0;
	row->keys = palloc(sizeof(uint64) * 2 *
					   IndexRelationGetNumberOfKeyAttributes(index));
}

/* The keys of a row: its values', then a marker for each column. */
void
bx_hash_row(Relation index, const Datum *values, const bool *isnull,
			BxRowKeys *row)
{
	int			natts = IndexRelationGetNumberOfKeyAttributes(index);

	row->nvalues = 0;
	for (int i = 0; i < natts; i++)
	{
		if (!isnull[i])
			row->keys[row->nvalues++] =
				bx_hash_value(index, i + 1, bx_hash_proc(index, i + 1),
							  values[i]);
	}
	row->nkeys = row->nvalues;
	for (int i = 0; i < natts; i++)
		row->keys[row->nkeys++] = bx_hash_marker(i + 1, isnull[i]);
}
