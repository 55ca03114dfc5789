/*
 * exclusion_register.pml
 *	  The check of an exclusion constraint ignores rows of transactions that
 *	  have not registered the key, and checks of equal keys run one after the
 *	  other (am/exclusion.c): two transactions insert rows with equal keys on
 *	  pages whose filters have had the key before, so that a search finds a row
 *	  as soon as it is on its page.
 */
#define UNUSED			0		/* the transaction has no row yet */
#define IN_PROGRESS		1
#define COMMITTED		2
#define ABORTED			3

byte	state[2];				/* of the transactions; in progress: the row is on its page */
bool	registered[2];			/* REGISTER_MODE, until the transaction ends */
byte	check_lock = 0;			/* CHECK_LOCK: the holder + 1 */
bool	waiting[2];

#define other	(1 - row)

/* CommitTransaction(), AbortTransaction() */
inline end_transaction(result)
{
#ifdef SABOTAGE_RELEASE_FIRST
	registered[row] = false;
	state[row] = result
#else
	/* ProcArrayEndTransaction(), ResourceOwnerRelease() */
	state[row] = result;
	registered[row] = false
#endif
}

#define REGISTER	registered[row] = true
#define UNLOCK		if :: check_lock == row + 1 -> check_lock = 0 :: else fi

/* ExecInsert() with ExecInsertIndexTuples() */
proctype inserter(byte row)
{
	bool	found, ignored, is_first_search = true;

	state[row] = IN_PROGRESS;	/* heap_insert() */
	/* bx_exclusion_inserted(): lock_for_check(), register_key() */
#ifndef SABOTAGE_NO_CHECK_LOCK
	atomic { check_lock == 0 -> check_lock = row + 1 };
#endif
#ifndef SABOTAGE_REGISTER_AFTER_CHECK
	REGISTER;
#endif
search:
	/* check_exclusion_or_unique_constraint(): index_getnext_slot() with SnapshotDirty */
	found = state[other] == IN_PROGRESS || state[other] == COMMITTED;
	if
	:: found && is_first_search ->
		/* bx_exclusion_ignores() */
		ignored = state[other] == IN_PROGRESS;
		if
		:: ignored -> ignored = !registered[other]
		:: else
		fi;
#ifndef SABOTAGE_NO_SECOND_LOOK
		if
		:: ignored -> ignored = state[other] == IN_PROGRESS
		:: else
		fi;
#endif
#ifdef SABOTAGE_IGNORE_REGISTERED
		ignored = state[other] == IN_PROGRESS;
#endif
		found = !ignored
	:: else
	fi;
	is_first_search = false;
	/* bxendscan(): bx_exclusion_end() */
	UNLOCK;
	if
	:: found && state[other] == IN_PROGRESS ->
		/* XactLockTableWait(); each waiting for the other would be a deadlock */
		atomic { waiting[row] = true; assert(!waiting[other]) };
		state[other] != IN_PROGRESS;
		waiting[row] = false;
		goto search
	:: found && state[other] != IN_PROGRESS && state[other] != COMMITTED ->
		goto search				/* it has just aborted */
	:: found && state[other] == COMMITTED ->
		end_transaction(ABORTED)	/* exclusion_violation */
	:: !found ->
#ifdef SABOTAGE_REGISTER_AFTER_CHECK
		REGISTER;
#endif
		if
		:: end_transaction(COMMITTED)
		:: end_transaction(ABORTED)
		fi;
		assert(!(state[0] == COMMITTED && state[1] == COMMITTED))
	fi
}

init
{
	atomic {
		run inserter(0);
		run inserter(1)
	}
}
