/*-------------------------------------------------------------------------
 *
 * open.c
 *	  Opening an index for an SQL function: privileges, locks, and whether it
 *	  is one that can be worked on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "../am/am.h"
#include "../layouts.h"
#include "functions.h"

/*
 * Refuses a caller who may neither read all rows of the table nor is its
 * owner.  A member of pg_stat_scan_tables may look as well, but not if that
 * tells whether there is a certain value.  Called before any lock is taken, so
 * that nobody can make others wait for what he may not do.
 */
void
bx_open_check_table_access(Oid tableoid, bool reveals_data)
{
	Oid			user = GetUserId();

	if (bx_object_ownercheck(tableoid, user) ||
		(!reveals_data &&
		 has_privs_of_role(user, ROLE_PG_STAT_SCAN_TABLES)))
		return;
	if (pg_class_aclcheck(tableoid, user, ACL_SELECT) != ACLCHECK_OK ||
		check_enable_rls(tableoid, InvalidOid, true) == RLS_ENABLED)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE,
					   get_rel_name(tableoid));
}

/* The same for the table of an index; what is no index fails in bx_open. */
void
bx_open_check_access(Oid indexoid, bool reveals_data)
{
	Oid			heapoid = IndexGetRelation(indexoid, true);

	if (OidIsValid(heapoid))
		bx_open_check_table_access(heapoid, reveals_data);
}

/* Refuses a relation whose pages this session cannot read. */
void
bx_open_check_storage(Relation rel)
{
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables and indexes of other sessions")));
	if (RecoveryInProgress() &&
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged relations during recovery")));
}

/* Refuses what is not a complete index of ours. */
static void
check_index(Relation index)
{
	if (index->rd_rel->relkind == RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" is partitioned",
						RelationGetRelationName(index)),
				 errhint("Name the index of one of the partitions.")));
	if (index->rd_indam->ambuild != bxbuild)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a bloomidx index",
						RelationGetRelationName(index))));
	bx_open_check_storage(index);
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid",
						RelationGetRelationName(index))));
}

/* Locks a table for bx_open; fails if it would have to wait and may not. */
static Relation
open_table(Oid heapoid, LOCKMODE lock, bool wait)
{
	if (!wait && !ConditionalLockRelationOid(heapoid, lock))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on table \"%s\"",
						get_rel_name(heapoid)),
				 errdetail("VACUUM, ANALYZE, a concurrent index build or a command that alters the table is in progress."),
				 errhint("Try again later.")));
	return table_open(heapoid, wait ? lock : NoLock);
}

/*
 * Opens an index of ours that can be worked on, and its table, or fails.  The
 * table is locked first, as everybody does.  If "wait" is false, the table's
 * lock is not waited for.
 */
void
bx_open(Oid indexoid, LOCKMODE heap_lock, bool wait, LOCKMODE index_lock,
		Relation *heap, Relation *index)
{
	Oid			heapoid = IndexGetRelation(indexoid, true);

	/* what is not an index fails at index_open */
	*heap = OidIsValid(heapoid) ? open_table(heapoid, heap_lock, wait) : NULL;
	*index = index_open(indexoid, index_lock);
	if (*heap == NULL || heapoid != IndexGetRelation(indexoid, false))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open parent table of index \"%s\"",
						RelationGetRelationName(*index))));
	check_index(*index);
}

/*
 * Runs what follows as the owner of the table, until bx_open_become_caller.
 * What may call functions of users (index expressions, predicates, functions
 * of operator classes) for the rows of a table must do so between the two.
 *
 * This is to protect the caller, who may be a superuser, from the functions of
 * the owner.  It cannot protect the owner from the caller.  search_path is set
 * to a safe one, as PostgreSQL does since 17, so that names in the owner's
 * functions lead where the owner expects.  But a session remembers what names
 * have led to before: in the relation cache, which has the bodies of SQL
 * functions inlined, in compiled PL/pgSQL functions, in plans; and types and
 * tables in pg_temp are found in any case.  So nobody may call this to run
 * functions of users who has not the rights of the owner: see
 * bx_open_may_run_code.
 */
void
bx_open_become_owner(Relation heap, BxIdentity *identity)
{
	GetUserIdAndSecContext(&identity->userid, &identity->sec_context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   identity->sec_context |
						   SECURITY_RESTRICTED_OPERATION);
	identity->nestlevel = NewGUCNestLevel();
	set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
					  PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* The caller is the current user again, with its own settings. */
void
bx_open_become_caller(const BxIdentity *identity)
{
	AtEOXact_GUC(false, identity->nestlevel);
	SetUserIdAndSecContext(identity->userid, identity->sec_context);
}

/* Whether the current user may have functions run as the owner of a table. */
bool
bx_open_may_run_code(Relation heap)
{
	return has_privs_of_role(GetUserId(), heap->rd_rel->relowner);
}
