/*-------------------------------------------------------------------------
 *
 * functions.h
 *	  Code that the SQL functions share: opening an index for a caller, and
 *	  running code as the owner of the table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_FUNCTIONS_H
#define BX_FUNCTIONS_H

#include "postgres.h"

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
extern void bx_open_become_caller(const BxIdentity *identity);
extern bool bx_open_may_run_code(Relation heap);

#endif							/* BX_FUNCTIONS_H */
