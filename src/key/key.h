/*-------------------------------------------------------------------------
 *
 * key.h
 *	  Converts values to keys, the 64-bit hashes that are stored in the
 *	  filters, and conditions to the keys that a search looks for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_KEY_H
#define BX_KEY_H

#include "postgres.h"

#include "access/genam.h"
#include "fmgr.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "../compat.h"
#include "../filter/filter.h"
#include "../storage/format.h"

/*
 * Support functions of an operator class.  A plain class has only the hash
 * function, and the equality operator, with strategy 1.  An extracting class
 * is one that has extractValue.  Its functions are those of GIN, with GIN's
 * numbers, except for function 1, which is a comparison in GIN.  Its strategy
 * numbers are those that its functions expect.
 */
#define BX_HASH_PROC			1
#define BX_EXTRACT_VALUE_PROC	2
#define BX_EXTRACT_QUERY_PROC	3
#define BX_CONSISTENT_PROC		4
#define BX_TRICONSISTENT_PROC	6
#define BX_OPTIONS_PROC			7
#define BX_NPROCS				7
#define BX_EQUAL_STRATEGY		1

/* The functions of an extracting class, for one column. */
typedef struct BxExtractor
{
	FmgrInfo	value;			/* extractValue */
	FmgrInfo	query;			/* extractQuery */
	FmgrInfo	consistent;		/* triConsistent, or consistent if the class
								 * has no triConsistent */
	bool		is_ternary;		/* "consistent" is triConsistent */
	Oid			collation;		/* passed to these functions; never invalid */
} BxExtractor;

/*
 * How the values of a column are hashed to keys.  Looked up once per
 * operation, and used by builds, inserts, searches, heap/rows.c and
 * bloomidx_check() alike.
 */
typedef struct BxHasher
{
	FmgrInfo	proc;
	Oid			type;			/* of the values that are hashed */
	Oid			collation;
	int			attno;
	uint64		seed;
	int			kind;
	int			length;			/* is_fixed: bytes of a value, which determine
								 * its key; otherwise 0 */
	bool		is_fixed;		/* hashing allocates no memory and cannot fail */
	bool		is_simple;		/* as is_fixed, unless the value is compressed
								 * or external */
	bool		is_stable;		/* hashing calls no function of a user, and
								 * does not depend on the definition of a
								 * composite type */
	BxExtractor *extractor;		/* NULL in a plain column; else values are
								 * split, and the parts are hashed */
} BxHasher;

/*
 * The keys of a heap row: first the keys of the values that are not NULL and
 * the combined key (nvalues), then one marker for each column, which states
 * whether the column is NULL.  A value of a plain column has one key, and a
 * value of an extracting column has any number of keys, at least one.  Which
 * of them a row has depends on the option "keys"; see bx_hash_finish_row().
 */
typedef struct BxRowKeys
{
	int			nkeys;
	int			nvalues;
	uint64	   *keys;
	int			allocated;		/* size of keys[] */
} BxRowKeys;

/*
 * The keys of a value with more keys than this are sorted to remove
 * duplicates, and their memory is not kept for the next row.
 */
#define BX_MANY_KEYS			2048

/*
 * Decides for a set of children which of them may match an extracting
 * operator, if their required elements alone do not decide it.
 */
typedef struct BxOpaque BxOpaque;

/*
 * A clause: what an extracting operator demands of a row for one operand.
 *
 * All required elements must be present; if there are none, at least one of
 * the optional elements.  Then "opaque", if it is not NULL, decides by the
 * optional elements that are present.
 */
typedef struct BxClause
{
	int			nrequired;
	int		   *required;		/* numbers of elements of the query */
	int			noptional;
	int		   *optional;
	BxOpaque   *opaque;
	bool		is_open;		/* an optional element is a marker that most
								 * rows have, so nothing is excluded */
} BxClause;

/*
 * An estimate examines no more elements of an operand than this, so that
 * planning time does not grow with the square of their number.
 */
#define BX_MAX_SAMPLED		16

/*
 * A query: a search looks for the rows that meet all conditions.  A row meets
 * a condition without clauses if at least one of the condition's elements is a
 * key of the row, and a condition with clauses if it meets at least one of
 * the clauses.
 *
 * A query that comes from scan keys or from bloomidx_probe() has conditions on
 * single columns.  bx_query_for_filters() converts it to the query for the
 * filters, which may contain other keys, depending on option "keys".
 *
 * The elements of a condition are contiguous.  In a condition without clauses
 * they are in ascending order of their keys, and distinct.  Conditions are in
 * the order of the scan keys, except in a query for the filters.  Every
 * condition has at least one element: no row can meet a condition without
 * elements, and then no search is made.
 */
typedef struct BxElement
{
	uint64		key;
	int			condition;
	bool		is_required;	/* no row without it matches the query */
} BxElement;

typedef struct BxCondition
{
	int			attno;			/* column whose values have the elements as
								 * keys; 0 if they are markers or combined
								 * keys */
	int			first;			/* index of its first element */
	int			n;
	int			nclauses;
	BxClause   *clauses;

	/*
	 * if it has many elements and no clauses: buckets[b] is the number of
	 * elements whose key is less than b << bucket_shift
	 */
	uint32	   *buckets;
	int			bucket_shift;
} BxCondition;

typedef struct BxQuery
{
	int			nconditions;
	BxCondition *conditions;
	int			nelements;
	BxElement  *elements;
	bool		has_clauses;	/* some condition has clauses */
	bool		has_opaque;		/* some clause needs a function call */
} BxQuery;

/*
 * Returns whether a condition without clauses has an element with this key.
 * Inline, because a search calls it for every row of a page.  Keys are hashes,
 * so a bucket has one element on average.
 */
static inline bool
bx_query_has_element(const BxQuery *query, int number, uint64 key)
{
	const BxCondition *condition = &query->conditions[number];
	const BxElement *elements = query->elements + condition->first;
	uint32		low = 0;
	uint32		high = condition->n;

	if (condition->buckets != NULL)
	{
		const uint32 *bucket = &condition->buckets[key >> condition->bucket_shift];

		low = bucket[0];
		high = bucket[1];
	}
	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;

		if (elements[middle].key == key)
			return true;
		if (elements[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/*
 * Returns whether two values have the same key, if hasher->is_fixed.  This is
 * faster than hashing, because equal keys mean equal bytes.
 */
static inline bool
bx_hasher_same(const BxHasher *hasher, Datum a, Datum b)
{
	switch (hasher->length)
	{
		case sizeof(int16):
			return DatumGetInt16(a) == DatumGetInt16(b);
		case sizeof(int32):
			return DatumGetInt32(a) == DatumGetInt32(b);
		case sizeof(int64):
			return DatumGetInt64(a) == DatumGetInt64(b);
		default:
			Assert(hasher->length == UUID_LEN);
			return memcmp(DatumGetPointer(a), DatumGetPointer(b),
						  UUID_LEN) == 0;	/* a constant: no function call */
	}
}

/*
 * If all columns have lists of values, a search looks for the combined keys of
 * all combinations of the values, provided that there are at most this many
 * combinations.  The limit bounds the time of a search and its memory, which
 * is 16 bytes per combination.
 */
#define BX_MAX_COMBINED		16384

/*
 * Tests a fixed set of ranges for a key: sets result[i] to 1 if range i may
 * contain the key, else to 0.
 */
typedef void (*BxProbeBytes) (void *arg, uint64 key, uint8 *result);

/*
 * Returns the position of a key in a hash table in memory that has
 * 2^(64 - shift) slots: the upper bits of the product of the key and
 * bx_hash_salt().  Keys can be chosen so that all have the same lower or upper
 * bits, and a table that used these bits as the position would become a list.
 */
static inline uint64
bx_hash_position(uint64 key, uint64 salt, int shift)
{
	return (key * salt) >> shift;
}

/* hash.c */
extern uint64 bx_hash_salt(void);
extern void bx_hasher_init(BxHasher *hasher, Relation index, int attno,
						   Oid type);
extern uint64 bx_hasher_key(BxHasher *hasher, Datum value);
extern uint64 bx_hash_marker(int attno, bool isnull);
extern uint64 bx_hasher_null_element(const BxHasher *hasher);
extern uint64 bx_hasher_empty_value(const BxHasher *hasher);
extern void bx_hasher_parts(BxHasher *hasher, const Datum *parts,
							const bool *nulls, int n, uint64 *keys);
extern Datum *bx_hash_to_datums(uint64 *hashes, int n);
extern void bx_hash_row_alloc(int natts, BxRowKeys *row);
extern void bx_hash_row_shrink(BxRowKeys *row);
extern void bx_hash_row_add(BxRowKeys *row, const BxRowKeys *more);
extern int	bx_hash_keys_per_row(int natts, uint8 keys);
extern uint64 bx_hash_combine(const uint64 *keys, int n);
extern int	bx_hash_finish_row(uint8 which, int natts, uint64 *keys, int n);
extern void bx_hash_row(BxHasher *hashers, int natts, uint8 which,
						const Datum *values, const bool *isnull,
						BxRowKeys *row);
extern uint64 bx_hash_bytes(const char *data, Size len, uint64 seed);
extern uint64 bx_hash_mix(uint64 before, uint64 hash);
extern uint64 bx_hash_bpchar(const BpChar *value, Oid collation, uint64 seed);
extern uint64 bx_hash_name(const NameData *value, Oid collation, uint64 seed);

/* extract.c */
extern bool bx_extract_is_used(Relation index, int attno);
extern Oid	bx_extract_type_of_values(Relation heap, Relation index, int attno);
extern BxExtractor *bx_extract_init(Relation index, int attno);
extern int	bx_extract_keys(BxHasher *hasher, Datum value, uint64 **keys);
extern bool bx_extract_condition(BxQuery *query, BxHasher *hasher,
								 ScanKey key, bool is_estimate);
extern void bx_opaque_match(BxOpaque *opaque, const BxClause *clause,
							const BxMask *present, BxMask *result);

/* text.c */
extern bool bx_text_needs_deterministic(Relation index, int attno);
extern bool bx_text_is_fragmented(Relation index, int attno);

/* query.c */
extern int	bx_query_split_array(Datum argument, Datum **values, bool **nulls);
extern void bx_query_init(BxQuery *query, int max_conditions);
extern void bx_query_start_condition(BxQuery *query, int attno,
									 int max_elements);
extern void bx_query_add_element(BxQuery *query, uint64 key);
extern bool bx_query_end_condition(BxQuery *query);
extern BxClause *bx_query_add_clause(BxQuery *query);
extern void bx_query_reserve(BxQuery *query, int n);
extern bool bx_query_end_clauses(BxQuery *query);
extern void bx_query_add_all(BxQuery *query, const uint64 *keys, int n);
extern const BxQuery *bx_query_for_filters(const BxQuery *query, int natts,
										   uint8 which);
extern Size bx_query_scratch_masks(const BxQuery *query);
extern void bx_query_match_masks(const BxQuery *query, const int *elements,
								 int n, const BxMask *masks, BxMask *scratch,
								 BxMask *result);
extern void bx_query_match_bytes(const BxQuery *query, int n,
								 BxProbeBytes probe, void *arg,
								 bool interruptible, uint8 *scratch,
								 uint8 *result);
extern void bx_query_match_clauses(const BxQuery *query, int n,
								   BxProbeBytes probe, void *arg,
								   uint8 *scratch, uint8 *result);

/* contents.c */
extern uint64 bx_hash_content(Oid type, Oid collation, Datum value);
extern bool bx_hash_contains_rows(Oid type);
extern Oid	bx_hash_unhashable_content(Relation index, int attno);
extern bool bx_hash_looks_into_values(Relation index, int attno);
extern bool bx_hash_is_user_code(Oid function);
extern bool bx_hash_contains_user_code(Relation index, int attno);
extern bool bx_hash_has_user_functions(Relation index, int attno);
extern bool bx_hash_runs_user_code(Relation index, int attno, bool wait);
extern void bx_hash_lock_types(Relation index, int attno, List **locked);
extern void bx_hash_unlock_types(List *locked);

#endif							/* BX_KEY_H */
