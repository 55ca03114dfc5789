/*-------------------------------------------------------------------------
 *
 * functions.h
 *	  Code that the SQL functions share: opening an index for a caller,
 *	  running code as the owner of the table, and indexes that do not exist.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_FUNCTIONS_H
#define BX_FUNCTIONS_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* open.c */
extern void bx_open_check_access(Oid indexoid, bool reveals_data);
extern void bx_open_check_table_access(Oid tableoid, bool reveals_data);
extern void bx_open(Oid indexoid, LOCKMODE heap_lock, bool wait,
					LOCKMODE index_lock, Relation *heap, Relation *index);
extern void bx_open_check_storage(Relation rel);

/* the caller's identity, while the current user is the table's owner */
typedef struct BxIdentity
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} BxIdentity;

extern void bx_open_become_owner(Relation heap, BxIdentity *identity);
extern void bx_open_become_owner_with_path(Relation heap, BxIdentity *identity);
extern void bx_open_become_caller(const BxIdentity *identity);
extern bool bx_open_may_run_code(Relation heap);

/* hypothetical.c: an index that does not exist */
typedef struct BxHypothetical
{
	Relation	index;
	IndexInfo  *info;
	bool		extracts;		/* some column extracts */
} BxHypothetical;

extern void bx_hypothetical_make(Relation table, char **definitions, int n,
								 BxHypothetical *result);

/* sample.c: the distinct keys in a sample of a table's pages */
#define BX_SAMPLE_SIZES		16

typedef struct BxSample
{
	double		rows;			/* per page */
	int			nsizes;
	double		keys[BX_SAMPLE_SIZES];	/* keys[i]: in 2^i pages */
} BxSample;

extern void bx_sample_take(Relation table, const BxHypothetical *hypothetical,
						   uint8 which, BxSample *sample);
extern double bx_sample_keys(const BxSample *sample, double pages);

#endif							/* BX_FUNCTIONS_H */
