/*-------------------------------------------------------------------------
 *
 * key.h
 *	  From values to keys, the 64-bit hashes that go into the filters, and from
 *	  conditions to the keys that a search looks for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_KEY_H
#define BX_KEY_H

#include "postgres.h"

#include "access/genam.h"
#include "fmgr.h"
#include "utils/rel.h"

#include "../compat.h"
#include "../filter/filter.h"

/* The one strategy and the one support function of an operator class. */
#define BX_EQUAL_STRATEGY	1
#define BX_HASH_PROC		1
#define BX_NSTRATEGIES		1
#define BX_NPROCS			1

/*
 * How the values of a column become keys, looked up once.  Builds, inserts,
 * searches, the picking of rows and bloomidx_check() all use this.
 */
typedef struct BxHasher
{
	FmgrInfo	proc;
	Oid			collation;
	uint64		seed;
	int			kind;
	bool		is_fixed;		/* needs no memory, and cannot fail */
	bool		is_simple;		/* likewise, unless the value is compressed or
								 * external */
} BxHasher;

/*
 * Keys of a heap row: first the values' keys, then a marker for each column
 * that says NULL or NOT NULL.
 */
typedef struct BxRowKeys
{
	int			nkeys;
	int			nvalues;
	uint64	   *keys;
} BxRowKeys;

/*
 * What a search looks for: rows that meet all conditions.  A row meets a
 * condition if it has one of the condition's elements among its keys.
 *
 * The elements of a condition are next to each other, in ascending order of
 * their keys, and distinct.  Conditions are in the order of the scan's keys.
 * Every condition has an element: if one has none, no row can match, and there
 * is no query.
 */
typedef struct BxElement
{
	uint64		key;
	int			condition;
} BxElement;

typedef struct BxCondition
{
	int			first;			/* its first element */
	int			n;
} BxCondition;

typedef struct BxQuery
{
	int			nconditions;
	BxCondition *conditions;
	int			nelements;
	BxElement  *elements;
} BxQuery;

/* Tests some ranges for a key: sets result[i] to 1 or 0 for each of them. */
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
extern bool bx_query_has_element(const BxQuery *query, int condition,
								 uint64 key);
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
extern bool bx_hash_runs_user_code(Relation index, int attno);

#endif							/* BX_KEY_H */
