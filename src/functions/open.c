/*-------------------------------------------------------------------------
 *
 * open.c
 *	  Opens an index for an SQL function: checks privileges, acquires
 *	  locks, and verifies that the index can be used.
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
 * Raises an error unless the caller owns the table or may read all its rows.
 * A member of pg_stat_scan_tables is accepted, too, unless the function
 * reveals whether a certain value exists.  Call it before any lock is
 * acquired, so that users cannot block others by an operation that they are
 * not allowed to perform.
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

/*
 * The same for the table of an index.  If indexoid is not an index, does
 * nothing: bx_open() will raise an error.
 */
void
bx_open_check_access(Oid indexoid, bool reveals_data)
{
	Oid			heapoid = IndexGetRelation(indexoid, true);

	if (OidIsValid(heapoid))
		bx_open_check_table_access(heapoid, reveals_data);
}

/* Raises an error if this session cannot read the pages of a relation. */
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

/* Raises an error unless the relation is a valid bloomidx index. */
static void
check_index(Relation index)
{
	if (index->rd_rel->relkind == RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" is partitioned",
						RelationGetRelationName(index)),
				 errhint("Specify the index of one of the partitions.")));
	if (index->rd_indam->ambuild != bxbuild)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a bloomidx index",
						RelationGetRelationName(index))));
	bx_open_check_storage(index);

	/* REINDEX evaluates an index expression, whose function has called us */
	if (ReindexIsProcessingIndex(RelationGetRelid(index)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access index \"%s\" while it is being reindexed",
						RelationGetRelationName(index))));
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid",
						RelationGetRelationName(index))));
}

/*
 * Opens and locks a table.  If "wait" is false, raises an error if the lock
 * is not available immediately.
 */
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
 * Opens a valid bloomidx index and its table, or raises an error.  The table
 * is locked before the index, as everywhere in PostgreSQL.  If "wait" is
 * false, raises an error if the lock on the table is not available
 * immediately.  The caller closes both.
 */
void
bx_open(Oid indexoid, LOCKMODE heap_lock, bool wait, LOCKMODE index_lock,
		Relation *heap, Relation *index)
{
	Oid			heapoid = IndexGetRelation(indexoid, true);

	/* if indexoid is not an index, index_open raises an error */
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
 * Switches to the owner of the table, until bx_open_become_caller().  Code
 * that may call user-defined functions (index expressions, predicates,
 * functions of operator classes) for the rows of a table must run between the
 * two calls.
 *
 * This protects the caller, who may be a superuser, from functions of the
 * owner.  It does not protect the owner from the caller.  search_path is set
 * to a safe value, as PostgreSQL does since 17, so that names in the owner's
 * functions are resolved as the owner expects.  But a session caches earlier
 * resolutions of names: in the relation cache, which has the bodies of SQL
 * functions inlined (see bx_heapscan_index_info), in compiled PL/pgSQL
 * functions, and in plans; and types and tables in pg_temp are found in any
 * case.  So user-defined functions
 * must not be run for a caller who does not have the privileges of the owner:
 * see bx_open_may_run_code().
 */
void
bx_open_become_owner(Relation heap, BxIdentity *identity)
{
	bx_open_become_owner_with_path(heap, identity);
	set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
					  PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Like bx_open_become_owner(), but keeps the search_path of the caller, who
 * has written the names that are to be resolved.
 */
void
bx_open_become_owner_with_path(Relation heap, BxIdentity *identity)
{
	GetUserIdAndSecContext(&identity->userid, &identity->sec_context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   identity->sec_context |
						   SECURITY_RESTRICTED_OPERATION);
	identity->nestlevel = NewGUCNestLevel();
}

/* Switches back to the caller and its settings. */
void
bx_open_become_caller(const BxIdentity *identity)
{
	AtEOXact_GUC(false, identity->nestlevel);
	SetUserIdAndSecContext(identity->userid, identity->sec_context);
}

/*
 * Returns whether user-defined functions may be run as the owner of a table
 * on behalf of the current user.  Call it before bx_open_become_owner().
 */
bool
bx_open_may_run_code(Relation heap)
{
	return has_privs_of_role(GetUserId(), heap->rd_rel->relowner);
}
