/*-------------------------------------------------------------------------
 *
 * exclusion.c
 *	  Exclusion constraints: the checks of equal new rows run one after the
 *	  other, and need not find every row.
 *
 * PostgreSQL checks a new row right after aminsert, by an index scan with
 * SnapshotDirty.  If the scan finds a row with equal keys whose inserter is in
 * progress, the check waits for that transaction.  If each of two
 * transactions finds the row of the other, they deadlock.  A search of
 * bloomidx finds a row as soon as the row is on a heap page, if the filters
 * return the page for some other reason.  At that time the row may not be in
 * the index yet, and its own check has not begun.  Then it is enough that the
 * later check finds the row of the earlier one.  So a check ignores
 *
 * - the range of its own row, if its insert was the first to set the row's key
 *	 in the filter of the range.  No other row of the range with an equal key,
 *	 live or in progress, had been inserted into the index before, because the
 *	 filter would have had the key.  If there is such a row by now, its check
 *	 begins later.  This also saves reading the range.
 *
 * - rows of a transaction that has not registered the key.  aminsert registers
 *	 the keys of a row after it has set their bits, that is, before the check
 *	 of the row.  So if a key is not registered now, the check of every row
 *	 that the transaction has put on a heap page with this key begins later.
 *
 * A key is registered by a lock, which the transaction holds until it ends;
 * the lock conflicts with nothing but the attempt of another backend to find
 * out whether it is held.
 *
 * From before the registration until the end of the check, the transaction
 * holds another lock, on the key.  So of two transactions that insert equal
 * rows, the second registers the key after the check of the first has ended,
 * and only the second waits for the other.  See "Exclusion constraints" in
 * src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "am.h"

/*
 * Both are locks on an "object", whose class is the index.  (No catalog has the
 * OID of an index, so PostgreSQL has no such locks.)  The object's number is
 * the ID of the transaction that registers the key, or CHECK_LOCK for the
 * duration of a check; the sub-object's number is a hash of the key.  The lock
 * with the hash EVERY_KEY registers all keys.  After MAX_REGISTERED locks, a
 * transaction registers all keys, so that it needs few locks.
 */
#define CHECK_LOCK			InvalidTransactionId
#define EVERY_KEY			0
#define MAX_REGISTERED		16

#define REGISTER_MODE		RowExclusiveLock
#define FIND_OUT_MODE		ShareLock	/* conflicts with REGISTER_MODE, but
										 * not with itself */

/*
 * The row that this backend inserted last into the index of an exclusion
 * constraint.
 *
 * The next scan takes it, so it is used at most once.  That scan is the row's
 * check, unless an error has prevented the check.  In that case the
 * transaction, or subtransaction, that inserted the row has been aborted, and
 * its ID is never again the current one.
 */
static BxOwnRow own_row;

/* The number of keys that a transaction has registered. */
static TransactionId registering;
static int	nregistered;

static void
set_tag(LOCKTAG *tag, Relation index, TransactionId xid, uint16 hash)
{
	SET_LOCKTAG_OBJECT(*tag, index->rd_lockInfo.lockRelId.dbId,
					   index->rd_lockInfo.lockRelId.relId, xid, hash);
}

/*
 * Registers a key of the current transaction.  The lock belongs to the
 * subtransaction that has inserted the row: if it is rolled back, the lock is
 * released, and the row is dead.  It must not belong to the portal that is
 * being executed: if a cursor fails after a SAVEPOINT, its locks are released
 * with the SAVEPOINT, although its older rows are live.
 */
static void
register_key(Relation index, uint16 hash)
{
	TransactionId xid = GetTopTransactionId();
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;

	if (!TransactionIdEquals(xid, registering))
	{
		registering = xid;
		nregistered = 0;
	}
	if (nregistered >= MAX_REGISTERED)
		hash = EVERY_KEY;
	else if (hash != EVERY_KEY)
		nregistered++;
	set_tag(&tag, index, xid, hash);
	CurrentResourceOwner = CurTransactionResourceOwner;
	(void) LockAcquire(&tag, REGISTER_MODE, false, false);
	CurrentResourceOwner = owner;
}

/* Returns whether another transaction has registered a key. */
static bool
is_registered(Relation index, TransactionId xid, uint16 hash)
{
	LOCKTAG		tag;

	set_tag(&tag, index, xid, hash);
	if (LockAcquire(&tag, FIND_OUT_MODE, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, FIND_OUT_MODE, false);
	return false;
}

/*
 * Locks a key until the check of the row has ended.  If an error prevents the
 * check, the lock is released with the transaction or subtransaction.
 */
static void
lock_for_check(Relation index, uint16 hash)
{
	LOCKTAG		tag;

	set_tag(&tag, index, CHECK_LOCK, hash);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

static void
unlock_after_check(Relation index, uint16 hash)
{
	LOCKTAG		tag;

	set_tag(&tag, index, CHECK_LOCK, hash);
	LockRelease(&tag, ExclusiveLock, false);
}

/*
 * Remembers a row that was inserted into the index of an exclusion constraint,
 * and registers its keys.  is_first means that the insert was the first to set
 * a key in the filter of the row's range.
 *
 * If all columns are plain, equal rows have equal keys.  The range can be
 * skipped only if the check searches for a single key, or each of two rows
 * could be the first with one of its keys, and neither check would find the
 * other row: the key of a single column, or the combined key of all columns,
 * which is the last key of the row's values.
 */
void
bx_exclusion_inserted(const BxInsert *insert, const bool *isnull,
					  ItemPointer tid, bool is_first)
{
	const BxRowKeys *row = &insert->row;
	bool		is_plain = true;

	own_row.index = InvalidOid;
	for (int i = 0; i < insert->natts; i++)
	{
		if (isnull[i])
			return;				/* PostgreSQL does not check the row */
		is_plain = is_plain && insert->hashers[i].extractor == NULL;
	}
	Assert(!is_plain ||
		   row->nvalues == bx_hash_keys_per_row(insert->natts, insert->keys));
	own_row.hash = is_plain ?
		1 + bx_hash_combine(row->keys, row->nvalues) % PG_UINT16_MAX : EVERY_KEY;
	own_row.is_locked = false;
	if (!RelationUsesLocalBuffers(insert->index))
	{
		/* unequal rows may conflict in a column that extracts keys */
		if (is_plain)
			lock_for_check(insert->index, own_row.hash);
		own_row.is_locked = is_plain;
		register_key(insert->index, own_row.hash);
	}
	own_row.skips_range = is_first && is_plain &&
		(insert->natts == 1 || (insert->keys & BX_KEYS_ALL));
	if (own_row.skips_range)
		own_row.key = row->keys[row->nvalues - 1];
	own_row.tid = *tid;
	own_row.xid = GetCurrentTransactionId();
	own_row.index = RelationGetRelid(insert->index);
}

/*
 * Returns whether a scan that begins is the check of the row that was inserted
 * last.
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

/* Ends the check of a row. */
void
bx_exclusion_end(Relation index, const BxOwnRow *row)
{
	if (row->is_locked)
		unlock_after_check(index, row->hash);
}

/*
 * Returns the inserter of the tuple to which a TID points, if the tuple is the
 * first of its HOT chain; else InvalidTransactionId.
 */
static TransactionId
get_inserter(Relation heap, const ItemPointerData *tid)
{
	Buffer		buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	Page		page = BufferGetPage(buffer);
	TransactionId xid = InvalidTransactionId;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (off <= PageGetMaxOffsetNumber(page))
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp))
		{
			HeapTupleHeader tuple = (HeapTupleHeader) PageGetItem(page, lp);

			if (!HeapTupleHeaderIsHeapOnly(tuple))
				xid = HeapTupleHeaderGetXmin(tuple);
		}
	}
	UnlockReleaseBuffer(buffer);
	return xid;
}

/*
 * Returns whether the check of a row need not find another row, because the
 * other row has equal keys only if its own check begins later.
 */
bool
bx_exclusion_ignores(Relation index, Relation heap, const BxOwnRow *row,
					 const ItemPointerData *tid)
{
	TransactionId xid;
	TransactionId top;

	if (RelationUsesLocalBuffers(index) ||
		ItemPointerEquals(unconstify(ItemPointerData *, tid),
						  unconstify(ItemPointerData *, &row->tid)))
		return false;
	xid = get_inserter(heap, tid);
	if (!TransactionIdIsNormal(xid) ||
		TransactionIdIsCurrentTransactionId(xid) ||
		!TransactionIdIsInProgress(xid))
		return false;
	top = SubTransGetTopmostTransaction(xid);
	if (is_registered(index, top, row->hash) ||
		(row->hash != EVERY_KEY && is_registered(index, top, EVERY_KEY)))
		return false;

	/*
	 * A transaction releases its locks after it has ceased to be in progress.
	 * So if it still is, it had not registered the key.
	 */
	return TransactionIdIsInProgress(xid);
}
