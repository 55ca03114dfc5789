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

/* An operator class has one strategy and one support function. */
#define BX_EQUAL_STRATEGY	1
#define BX_HASH_PROC		1
#define BX_NSTRATEGIES		1
#define BX_NPROCS			1

/*
 * How the values of a column are hashed to keys.  Looked up once per
 * operation, and used by builds, inserts, searches, heap/rows.c and
 * bloomidx_check() alike.
 */
typedef struct BxHasher
{
	FmgrInfo	proc;
	Oid			collation;
	uint64		seed;
	int			kind;
	int			length;			/* is_fixed: bytes of a value, which determine
								 * its key; otherwise 0 */
	bool		is_fixed;		/* hashing allocates no memory and cannot fail */
	bool		is_simple;		/* as is_fixed, unless the value is compressed
								 * or external */
} BxHasher;

/*
 * The keys of a heap row: first the keys of the values that are not NULL
 * (nvalues), then one marker for each column, which states whether the column
 * is NULL.
 */
typedef struct BxRowKeys
{
	int			nkeys;
	int			nvalues;
	uint64	   *keys;
} BxRowKeys;

/*
 * A query: a search looks for the rows that meet all conditions.  A row meets
 * a condition if at least one of the condition's elements is a key of the
 * row.
 *
 * The elements of a condition are contiguous, in ascending order of their
 * keys, and distinct.  Conditions are in the order of the scan keys.  Every
 * condition has at least one element: a condition without elements cannot be
 * met, and then no query is made.
 */
typedef struct BxElement
{
	uint64		key;
	int			condition;
} BxElement;

typedef struct BxCondition
{
	int			first;			/* index of its first element */
	int			n;
} BxCondition;

typedef struct BxQuery
{
	int			nconditions;
	BxCondition *conditions;
	int			nelements;
	BxElement  *elements;
} BxQuery;

/*
 * Returns whether a condition has an element with this key.  Inline, because a
 * search calls it for every row of a page.
 */
static inline bool
bx_query_has_element(const BxQuery *query, int condition, uint64 key)
{
	const BxElement *elements = query->elements +
	query->conditions[condition].first;
	int			low = 0;
	int			high = query->conditions[condition].n - 1;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (elements[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return elements[low].key == key;
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
 * Tests a fixed set of ranges for a key: sets result[i] to 1 if range i may
 * contain the key, else to 0.
 */
typedef void (*BxProbeBytes) (void *arg, uint64 key, uint8 *result);

/* hash.c */
extern void bx_hasher_init(BxHasher *hasher, Relation index, int attno,
						   Oid type);
extern uint64 bx_hasher_key(BxHasher *hasher, Datum value);
extern uint64 bx_hash_marker(int attno, bool isnull);
extern void bx_hash_row_alloc(int natts, BxRowKeys *row);
extern void bx_hash_row(BxHasher *hashers, int natts, const Datum *values,
						const bool *isnull, BxRowKeys *row);
extern uint64 bx_hash_mix(uint64 before, uint64 hash);
extern uint64 bx_hash_bpchar(const BpChar *value, Oid collation, uint64 seed);
extern uint64 bx_hash_name(const NameData *value, Oid collation, uint64 seed);

/* query.c */
extern void bx_query_init(BxQuery *query, int max_conditions);
extern void bx_query_start_condition(BxQuery *query, int max_elements);
extern void bx_query_add_element(BxQuery *query, uint64 key);
extern bool bx_query_end_condition(BxQuery *query);
extern void bx_query_match_masks(const BxQuery *query, const int *elements,
								 int n, const BxMask *masks, BxMask *scratch,
								 BxMask *result);
extern void bx_query_match_bytes(const BxQuery *query, int n,
								 BxProbeBytes probe, void *arg,
								 bool interruptible, uint8 *scratch,
								 uint8 *result);

/* contents.c */
extern Oid	bx_hash_unhashable_content(Relation index, int attno);
extern bool bx_hash_looks_into_values(Relation index, int attno);
extern bool bx_hash_runs_user_code(Relation index, int attno, bool wait);
extern void bx_hash_lock_types(Relation index, int attno, List **locked);
extern void bx_hash_unlock_types(List *locked);

#endif							/* BX_KEY_H */
