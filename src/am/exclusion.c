/*-------------------------------------------------------------------------
 *
 * exclusion.c
 *	  Exclusion constraints: the check of a new row need not read the row's
 *	  own range if the row is the first there with its key.
 *
 * PostgreSQL checks a new row right after aminsert, by an index scan with
 * SnapshotDirty.  The filter of the row's own range always matches, so the
 * scan would read the heap pages of this range, and would also find rows with
 * equal keys that other transactions have put on these pages but have not
 * inserted into the index yet.  Each of two such transactions would find the
 * row of the other and wait for the other: a deadlock.
 *
 * If the filter of the range lacked the key until our insert set it, no other
 * row of the range with an equal key, live or in progress, had been inserted
 * into the index before, because the filter would have had the key.  If there
 * is such a row by now, its insert into the index ends after ours, its check
 * begins after that, and finds our row.  So our scan skips the range.  See
 * "Exclusion constraints" in src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/xact.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "am.h"

/*
 * The row that this backend inserted last into the index of an exclusion
 * constraint, if the row is the first of its range with its key.
 *
 * The next scan takes it, so it is used at most once.  That scan is the row's
 * check, unless an error has prevented the check.  In that case the
 * transaction, or subtransaction, that inserted the row has been aborted, and
 * its ID is never again the current one.
 */
static BxOwnRow own_row;

/*
 * Remembers a row that was inserted into the index of an exclusion constraint.
 *
 * Equal rows must have the same key here, or each of two rows could be the
 * first with one of its keys, and neither check would find the other row.  So
 * the key must be the only one that the check searches for: the key of a
 * single plain column, or the combined key of all columns, which is the last
 * key of the row's values.  If a column is NULL, there is no check.
 */
void
bx_exclusion_inserted(const BxInsert *insert, ItemPointer tid, bool is_first)
{
	int			nkeys = bx_hash_keys_per_row(insert->natts, insert->keys);

	own_row.index = InvalidOid;
	if (!is_first || insert->row.nvalues != nkeys ||
		!(insert->natts == 1 || (insert->keys & BX_KEYS_ALL)))
		return;
	for (int i = 0; i < insert->natts; i++)
	{
		if (insert->hashers[i].extractor != NULL)
			return;
	}
	own_row.index = RelationGetRelid(insert->index);
	own_row.xid = GetCurrentTransactionId();
	own_row.blkno = ItemPointerGetBlockNumber(tid);
	own_row.key = insert->row.keys[insert->row.nvalues - 1];
}

/*
 * Returns whether a scan that begins is the check of the row that was inserted
 * last, and its own range may be skipped if the scan searches for row->key
 * alone.
 */
bool
bx_exclusion_take(IndexScanDesc scan, BxOwnRow *row)
{
	*row = own_row;
	own_row.index = InvalidOid;
	return row->index == RelationGetRelid(scan->indexRelation) &&
		scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY &&
		TransactionIdEquals(row->xid, GetCurrentTransactionIdIfAny());
}
