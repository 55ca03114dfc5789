/*-------------------------------------------------------------------------
 *
 * hash.c
 *	  Computes the 64-bit hash that represents a value in the filters.
 *
 * An operator class names a function (type, bigint) returns bigint, with the
 * signature of PostgreSQL's own extended hash functions, that returns equal
 * hashes for equal values.  This file has such functions for types whose
 * values are equal if and only if their bytes are equal; they compute XXH3 of
 * the bytes.  contents.c has the functions for types that contain other types.
 * All other types use the type's own function.  Integers of all widths are
 * hashed as eight little-endian bytes, so that int4_column = 5::bigint finds
 * its row.  The result is mixed with the column number, so that equal values
 * in two columns have different keys.
 *
 * The combined key of a row is a hash of the keys of its columns, in their
 * order.  So values that are equal in every column, whatever their types, have
 * equal combined keys.
 *
 * The filters on disk depend on all of this: a change requires a new
 * BX_HASH_VERSION.  sql/vectors.sql contains keys that must not change.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "../filter/keyhash.h"
#include "key.h"

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

/*
 * Returns the odd random number with which this backend finds positions in hash
 * tables; see bx_hash_position().  It has no influence on what is stored.
 */
uint64
bx_hash_salt(void)
{
	static uint64 salt = 0;

	if (salt == 0)
	{
		uint64		random;

		if (!pg_strong_random(&random, sizeof(random)))
			elog(ERROR, "could not generate a random number");
		salt = random | 1;
	}
	return salt;
}

/* XXH3 of a string of bytes. */
uint64
bx_hash_bytes(const char *data, Size len, uint64 seed)
{
	return bx_keyhash_bytes(data, len, seed);
}

/* Combines a hash with the hash of everything before it. */
uint64
bx_hash_mix(uint64 before, uint64 hash)
{
	return bx_keyhash_int(hash, before);
}

Datum
bloomidx_hash_bool(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int(PG_GETARG_BOOL(0), PG_GETARG_INT64(1)));
}

/* for "char" */
Datum
bloomidx_hash_char(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int((uint8) PG_GETARG_CHAR(0),
								   PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_int2(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int((int64) PG_GETARG_INT16(0),
								   PG_GETARG_INT64(1)));
}

/* also for date, xid and cid */
Datum
bloomidx_hash_int4(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int((int64) PG_GETARG_INT32(0),
								   PG_GETARG_INT64(1)));
}

/* also for time, timestamp, timestamptz, pg_lsn, xid8 and oid8 */
Datum
bloomidx_hash_int8(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int(PG_GETARG_INT64(0), PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_oid(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_keyhash_int(PG_GETARG_OID(0), PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_uuid(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = PG_GETARG_UUID_P(0);

	PG_RETURN_INT64(bx_keyhash_bytes(uuid->data, UUID_LEN,
									 PG_GETARG_INT64(1)));
}

Datum
bloomidx_hash_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *value = PG_GETARG_BYTEA_PP(0);
	uint64		hash = bx_keyhash_bytes(VARDATA_ANY(value),
										VARSIZE_ANY_EXHDR(value),
										PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/* Returns whether equal strings have equal bytes under a collation. */
static bool
is_deterministic(Oid collation)
{
	if (!OidIsValid(collation))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_COLLATION),
				 errmsg("could not determine which collation to use for string hashing"),
				 errhint("Use the COLLATE clause to set the collation explicitly.")));
	return collation == DEFAULT_COLLATION_OID || collation == C_COLLATION_OID ||
		get_collation_isdeterministic(collation);
}

/* Hashes a string under a collation. */
static uint64
hash_string(const char *data, Size len, Oid collation, uint64 seed)
{
	text	   *copy;
	Datum		hash;

	if (is_deterministic(collation))
		return bx_keyhash_bytes(data, len, seed);
	copy = cstring_to_text_with_len(data, len);
	hash = DirectFunctionCall2Coll(hashtextextended, collation,
								   PointerGetDatum(copy), Int64GetDatum(seed));
	pfree(copy);
	return DatumGetInt64(hash);
}

Datum
bloomidx_hash_text(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_PP(0);
	uint64		hash = hash_string(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value),
								   PG_GET_COLLATION(), PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/*
 * Hashes a char(n) without its trailing blanks, which are not significant.
 * PostgreSQL's own function does not ignore them under a nondeterministic
 * collation, so it cannot be used.
 */
uint64
bx_hash_bpchar(const BpChar *value, Oid collation, uint64 seed)
{
	Size		len = bpchartruelen(VARDATA_ANY(value),
									VARSIZE_ANY_EXHDR(value));

	return hash_string(VARDATA_ANY(value), len, collation, seed);
}

Datum
bloomidx_hash_bpchar(PG_FUNCTION_ARGS)
{
	BpChar	   *value = PG_GETARG_BPCHAR_PP(0);
	uint64		hash = bx_hash_bpchar(value, PG_GET_COLLATION(),
									  PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_INT64(hash);
}

/*
 * Hashes a name like the equal text.  PostgreSQL's own function ignores
 * collations, unlike the equality of names, so it cannot be used.
 */
uint64
bx_hash_name(const NameData *value, Oid collation, uint64 seed)
{
	return hash_string(NameStr(*value), strlen(NameStr(*value)), collation,
					   seed);
}

Datum
bloomidx_hash_name(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(bx_hash_name(PG_GETARG_NAME(0), PG_GET_COLLATION(),
								 PG_GETARG_INT64(1)));
}

/* Ways to hash a value without calling a function. */
typedef enum HashKind
{
	HASH_BY_CALL,				/* the function must be called */
	HASH_CONTENT,				/* by the default hash function of the type */
	HASH_INT2,
	HASH_INT4,
	HASH_INT8,
	HASH_OID,
	HASH_UUID,
	HASH_BYTES					/* the bytes of a varlena */
} HashKind;

static HashKind
choose_kind(const BxHasher *hasher)
{
	PGFunction	function = hasher->proc.fn_addr;

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
		 is_deterministic(hasher->collation)))
		return HASH_BYTES;
	return HASH_BY_CALL;
}

/*
 * Returns the number of bytes of a value if the hash depends only on these
 * bytes, otherwise 0.
 */
static int
fixed_length(HashKind kind)
{
	switch (kind)
	{
		case HASH_INT2:
			return sizeof(int16);
		case HASH_INT4:
			return sizeof(int32);
		case HASH_INT8:
			return sizeof(int64);
		case HASH_OID:
			return sizeof(Oid);
		case HASH_UUID:
			return UUID_LEN;
		default:
			return 0;
	}
}

/*
 * Chooses how to hash the keys of an extracting class that has no hash
 * function of its own: by the default hash function of the type of the keys.
 * Types that need no function call are hashed as in a plain column.
 */
static HashKind
choose_kind_of_type(const BxHasher *hasher)
{
	switch (getBaseType(hasher->type))
	{
		case INT2OID:
			return HASH_INT2;
		case INT4OID:
			return HASH_INT4;
		case INT8OID:
			return HASH_INT8;
		case OIDOID:
			return HASH_OID;
		case UUIDOID:
			return HASH_UUID;
		case BYTEAOID:
			return HASH_BYTES;
		case TEXTOID:
		case VARCHAROID:
			return is_deterministic(hasher->collation) ? HASH_BYTES :
				HASH_CONTENT;
		default:
			return HASH_CONTENT;
	}
}

/*
 * Looks up the function that hashes values of a type: that of the index
 * column if type is InvalidOid or the column's type, else another one of the
 * operator family.  The column's own function is also the right one if the
 * operator class is declared for a polymorphic type.
 *
 * The FmgrInfo in the relation cache (index_getprocinfo) is not used: it may
 * have been filled by a transaction that had replaced the function, by one in
 * another language or with other settings, and was then rolled back.
 */
static void
lookup_proc(Relation index, int attno, Oid type, FmgrInfo *proc)
{
	Oid			function;

	if (!OidIsValid(type) || type == index->rd_opcintype[attno - 1])
		function = index_getprocid(index, attno, BX_HASH_PROC);
	else
		function = get_opfamily_proc(index->rd_opfamily[attno - 1], type,
									 type, BX_HASH_PROC);
	if (!OidIsValid(function))
		elog(ERROR, "missing support function %d(%u,%u) for attribute %d of index \"%s\"",
			 BX_HASH_PROC, type, type, attno, RelationGetRelationName(index));
	fmgr_info(function, proc);
}

/*
 * Initializes the hasher of an extracting column.  The column of the index has
 * the type of the keys.
 */
static void
init_extracting(BxHasher *hasher, Relation index)
{
	Oid			function = index_getprocid(index, hasher->attno, BX_HASH_PROC);

	hasher->extractor = bx_extract_init(index, hasher->attno);

	/* the keys may be collatable although the values, such as jsonb, are not */
	if (!OidIsValid(hasher->collation))
		hasher->collation = DEFAULT_COLLATION_OID;
	hasher->type = TupleDescAttr(RelationGetDescr(index),
								 hasher->attno - 1)->atttypid;
	if (OidIsValid(function))
	{
		fmgr_info(function, &hasher->proc);
		hasher->kind = choose_kind(hasher);
	}
	else
		hasher->kind = choose_kind_of_type(hasher);
	hasher->is_fixed = hasher->is_simple = false;
	hasher->is_stable = !bx_hash_has_user_functions(index, hasher->attno) &&
		!bx_hash_contains_rows(hasher->type) &&
		!bx_hash_contains_user_code(index, hasher->attno);
}

/*
 * Initializes a hasher for values of an index column, or for values that are
 * compared with them; see lookup_proc for the type, which does not matter if
 * the column extracts.  The hasher must not be used longer than the current
 * memory context exists.
 */
void
bx_hasher_init(BxHasher *hasher, Relation index, int attno, Oid type)
{
	hasher->collation = index->rd_indcollation[attno - 1];
	hasher->attno = attno;
	hasher->seed = bx_keyhash_seed(attno, BX_KEY_VALUE);
	if (bx_extract_is_used(index, attno))
	{
		init_extracting(hasher, index);
		return;
	}
	lookup_proc(index, attno, type, &hasher->proc);
	hasher->extractor = NULL;
	hasher->kind = choose_kind(hasher);
	hasher->is_simple = hasher->kind != HASH_BY_CALL;
	hasher->length = fixed_length(hasher->kind);
	hasher->is_fixed = hasher->length > 0;
	hasher->is_stable = hasher->is_simple;
}

/*
 * Hashes the bytes of a varlena that is compressed or external.  Out of line,
 * because it is rare.
 */
static pg_noinline uint64
hash_packed_bytes(Datum value)
{
	struct varlena *plain = PG_DETOAST_DATUM_PACKED(value);
	uint64		hash = bx_keyhash_bytes(VARDATA_ANY(plain),
										VARSIZE_ANY_EXHDR(plain), 0);

	pfree(plain);
	return hash;
}

/*
 * Returns the key of a value, or of a part of a value if the column extracts.
 * This may call a function of the type, which may detoast, allocate memory and
 * fail.  So no content lock may be held, unless hasher->is_fixed, or
 * hasher->is_simple and the value is neither compressed nor external.
 */
uint64
bx_hasher_key(BxHasher *hasher, Datum value)
{
	uint64		hash;

	switch ((HashKind) hasher->kind)
	{
		case HASH_UUID:
			hash = bx_keyhash_bytes(DatumGetPointer(value), UUID_LEN, 0);
			break;
		case HASH_INT2:
			hash = bx_keyhash_int((int64) DatumGetInt16(value), 0);
			break;
		case HASH_INT4:
			hash = bx_keyhash_int((int64) DatumGetInt32(value), 0);
			break;
		case HASH_INT8:
			hash = bx_keyhash_int(DatumGetInt64(value), 0);
			break;
		case HASH_OID:
			hash = bx_keyhash_int(DatumGetObjectId(value), 0);
			break;
		case HASH_BYTES:
			if (VARATT_IS_COMPRESSED(DatumGetPointer(value)) ||
				VARATT_IS_EXTERNAL(DatumGetPointer(value)))
				hash = hash_packed_bytes(value);
			else
				hash = bx_keyhash_bytes(VARDATA_ANY(DatumGetPointer(value)),
										VARSIZE_ANY_EXHDR(DatumGetPointer(value)),
										0);
			break;
		case HASH_CONTENT:
			hash = bx_hash_content(hasher->type, hasher->collation, value);
			break;
		default:
			hash = DatumGetInt64(FunctionCall2Coll(&hasher->proc,
												   hasher->collation, value,
												   Int64GetDatum(0)));
	}
	return bx_keyhash_int(hash, hasher->seed);
}

/*
 * Returns the marker for a column: the key which states that the column is
 * NULL, or is not NULL, in at least one row.
 */
uint64
bx_hash_marker(int attno, bool isnull)
{
	return bx_keyhash_int(0, bx_keyhash_seed(attno, isnull ? BX_KEY_NULL :
											 BX_KEY_NOT_NULL));
}

/* Returns the key which states that a part of the column's value is NULL. */
uint64
bx_hasher_null_element(const BxHasher *hasher)
{
	return bx_keyhash_int(0, bx_keyhash_seed(hasher->attno,
											 BX_KEY_NULL_ELEMENT));
}

/* Returns the key of a value of an extracting column that has no parts. */
uint64
bx_hasher_empty_value(const BxHasher *hasher)
{
	return bx_keyhash_int(0, bx_keyhash_seed(hasher->attno, BX_KEY_EMPTY));
}

/*
 * Computes the keys of the parts of a value of an extracting column.  nulls
 * may be NULL.  keys[] may be the same memory as parts[].  See bx_hasher_key()
 * about locks.
 */
void
bx_hasher_parts(BxHasher *hasher, const Datum *parts, const bool *nulls, int n,
				uint64 *keys)
{
	if (hasher->kind == HASH_INT8 && nulls == NULL)
	{
		/* as bx_hasher_key(), without a call */
		for (int i = 0; i < n; i++)
			keys[i] = bx_keyhash_int(bx_keyhash_int(DatumGetInt64(parts[i]), 0),
									 hasher->seed);
		return;
	}
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		keys[i] = nulls != NULL && nulls[i] ? bx_hasher_null_element(hasher) :
			bx_hasher_key(hasher, parts[i]);
	}
}

#define ST_SORT sort_keys
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/*
 * Sorts keys, and removes duplicates.  Returns the number of keys that are
 * left.
 */
static int
sort_unique(uint64 *keys, int n)
{
	int			kept = 0;

	sort_keys(keys, n);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || keys[i] != keys[i - 1])
			keys[kept++] = keys[i];
	}
	return kept;
}

/*
 * Returns hashes as Datums of type bigint.  The result uses the memory of the
 * hashes.
 */
Datum *
bx_hash_to_datums(uint64 *hashes, int n)
{
	Datum	   *result;

	if (sizeof(Datum) == sizeof(uint64))
		return (Datum *) hashes;
	result = palloc_extended(sizeof(Datum) * Max(n, 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
		result[i] = PointerGetDatum(&hashes[i]);
	return result;
}

/* Allocates memory for the keys of a row, in the current memory context. */
void
bx_hash_row_alloc(int natts, BxRowKeys *row)
{
	row->nkeys = row->nvalues = 0;
	row->allocated = 2 * natts + 1; /* one for the combined key */
	row->keys = palloc(sizeof(uint64) * row->allocated);
}

/*
 * Ensures that a row has room for "needed" keys.  Raises an error if a row
 * cannot have so many keys.
 */
static void
reserve_keys(BxRowKeys *row, Size needed)
{
	if (needed > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a row has too many keys")));
	if (needed > row->allocated)
	{
		/* inserting the keys takes longer than copying them */
		row->allocated = needed;
		row->keys = repalloc_huge(row->keys, sizeof(uint64) * row->allocated);
	}
}

/*
 * Appends the keys of a value of an extracting column, and ensures that there
 * is room for "more" keys after them.
 */
static pg_noinline void
append_extracted(BxHasher *hasher, Datum value, int more, BxRowKeys *row)
{
	uint64	   *keys;
	int			n = bx_extract_keys(hasher, value, &keys);

	if (n > BX_MANY_KEYS)
		n = sort_unique(keys, n);
	reserve_keys(row, (Size) row->nvalues + n + more);
	memcpy(row->keys + row->nvalues, keys, sizeof(uint64) * n);
	row->nvalues += n;
}

/* Frees memory after a row with more than BX_MANY_KEYS keys. */
void
bx_hash_row_shrink(BxRowKeys *row)
{
	row->allocated = BX_MANY_KEYS;
	row->keys = repalloc(row->keys, sizeof(uint64) * row->allocated);
}

/*
 * Returns the number of keys, without markers, of a row of plain columns none
 * of which is NULL.
 */
int
bx_hash_keys_per_row(int natts, uint8 keys)
{
	return (keys & BX_KEYS_EACH ? natts : 0) + (keys & BX_KEYS_ALL ? 1 : 0);
}

/* Returns the combined key of n columns with the given keys. */
uint64
bx_hash_combine(const uint64 *keys, int n)
{
	return bx_keyhash_combine(keys, n);
}

/*
 * Replaces keys[], the n keys of the values of a row that are not NULL, by
 * the keys that the filters contain, and returns their number.  keys[] has
 * room for one more.  A row in which a column is NULL has no combined key,
 * because no equality on all columns matches the row.
 */
int
bx_hash_finish_row(uint8 which, int natts, uint64 *keys, int n)
{
	int			kept = which & BX_KEYS_EACH ? n : 0;

	if (which & BX_KEYS_ALL && n == natts)
		keys[kept++] = bx_hash_combine(keys, n);
	return kept;
}

/*
 * Computes the keys of a row: first the keys of the values that are not NULL
 * and the combined key, as "which" (BX_KEYS_xxx) says, then a marker for each
 * column.  See bx_hasher_key() about locks.
 */
void
bx_hash_row(BxHasher *hashers, int natts, uint8 which, const Datum *values,
			const bool *isnull, BxRowKeys *row)
{
	row->nvalues = 0;
	for (int i = 0; i < natts; i++)
	{
		if (isnull[i])
			continue;
		if (hashers[i].extractor)
			append_extracted(&hashers[i], values[i], 2 * natts, row);
		else
			row->keys[row->nvalues++] = bx_hasher_key(&hashers[i], values[i]);
	}
	row->nvalues = bx_hash_finish_row(which, natts, row->keys, row->nvalues);
	row->nkeys = row->nvalues;
	for (int i = 0; i < natts; i++)
		row->keys[row->nkeys++] = bx_hash_marker(i + 1, isnull[i]);
}

/*
 * Adds the keys of the values of another row to a row, which keeps its own
 * markers.
 */
void
bx_hash_row_add(BxRowKeys *row, const BxRowKeys *more)
{
	int			nmarkers = row->nkeys - row->nvalues;

	if (row->nkeys + more->nvalues > row->allocated)
		reserve_keys(row, ((Size) row->nkeys + more->nvalues) * 2);
	memmove(row->keys + row->nvalues + more->nvalues, row->keys + row->nvalues,
			sizeof(uint64) * nmarkers);
	memcpy(row->keys + row->nvalues, more->keys, sizeof(uint64) * more->nvalues);
	row->nvalues += more->nvalues;
	row->nkeys += more->nvalues;
}
