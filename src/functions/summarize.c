/*-------------------------------------------------------------------------
 *
 * summarize.c
 *	  bloomidx_summarize(): repairs an index on demand, as VACUUM does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "../layouts.h"
#include "functions.h"

PG_FUNCTION_INFO_V1(bloomidx_summarize);

/*
 * Raises an error if the keys depend on definitions that may be rolled back.
 * Filters are not transactional.  If the current transaction has changed a
 * function of the index, or a type contained in its values, and rolls back
 * after the filters have been rebuilt, the filters miss rows.
 */
static void
check_transaction(Relation index)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		(bx_repair_needs_user_code(index, true) ||
		 bx_repair_depends_on_types(index)))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot rebuild filters of index \"%s\" in a transaction that has written data",
						RelationGetRelationName(index)),
				 errdetail("The keys depend on functions or types that the transaction may have changed."),
				 errhint("Call bloomidx_summarize() in a transaction of its own.")));
}

/*
 * Repairs an index on demand, as VACUUM does.  Unlike VACUUM, it does not
 * truncate the index.
 *
 * It does not wait for its lock on the table, which excludes VACUUM and other
 * maintenance commands.  The caller's statement has a snapshot, and REINDEX
 * CONCURRENTLY, which holds that lock, waits for older snapshots to end.
 * Each would wait for the other, and the deadlock detector might cancel
 * REINDEX, which would leave an invalid index.  VACUUM acquires the lock
 * before it takes a snapshot; a function cannot do that.
 */
Datum
bloomidx_summarize(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	Relation	heap;
	Relation	index;
	BxIdentity	identity;
	BxProgress	progress;
	BxRepair	repair;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("Call bloomidx_summarize() on the primary.")));

	/* the owner may VACUUM; check this before acquiring any lock */
	if (!bx_object_ownercheck(indexoid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX,
					   get_rel_name(indexoid));

	bx_open(indexoid, ShareUpdateExclusiveLock, false, RowExclusiveLock, &heap,
			&index);

	/* the owner may have changed before the table was locked */
	if (!bx_open_may_run_code(heap))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX,
					   RelationGetRelationName(index));
	check_transaction(index);

	bx_progress_start(heap, index, &progress);
	bx_progress_phase(PROGRESS_CREATEIDX_PHASE_BUILD, BX_PROGRESS_REBUILDING,
					  0);
	bx_open_become_owner(heap, &identity);
	bx_repair_index(bx_layout_of(index), heap, index, BX_REPAIR_SUMMARIZE, NULL,
					DEBUG1, &repair);
	bx_open_become_caller(&identity);
	bx_progress_end(&progress);

	index_close(index, RowExclusiveLock);
	table_close(heap, ShareUpdateExclusiveLock);
	PG_RETURN_INT32((int32) (repair.segments + repair.summaries +
							 repair.groups + repair.pages));
}
