/*
 * concurrently.pml
 *	  CREATE INDEX CONCURRENTLY: the build, the second scan by ambulkdelete,
 *	  and validation, while other transactions insert, delete and prune, with a
 *	  query on the server or on a standby.
 *
 * There are two versions of rows, on two heap pages; the second page is added
 * by its version.  A bit of "bits" stands for the bits of a version's keys.
 * The standby replays WAL at its own pace.
 */
#define VERSIONS	2
#define BIT(v)		(1 << (v))

/* the server */
byte	heap = 0;				/* versions on their pages */
bool	extended = false;		/* the second page exists */
byte	committed = 0;
byte	deleted = 0;			/* the deleting transaction has committed */
byte	bits = 0;
bool	ready = false;			/* pg_index.indisready */
bool	valid = false;			/* pg_index.indisvalid */
byte	unaware = 0;			/* transactions that write and do not know the index */
bool	is_read = false;		/* a query on the server has a snapshot */
byte	read_snapshot = 0;
bool	validating = false;		/* the snapshot of validation has been taken */
bool	is_old = false;			/* the query's snapshot is older than that one */

/* the standby */
mtype = { COMMIT, DELETE, PRUNE, BITS, VALID };
bool	has_standby = false;
chan	wal = [12] of { mtype, byte };
byte	standby_committed = 0;
byte	standby_deleted = 0;
byte	standby_bits = 0;
bool	standby_valid = false;
bool	standby_reads = false;	/* a query on the standby has a snapshot */
byte	standby_snapshot = 0;
bool	cancelled = false;

#define LOG(type, b) \
	if \
	:: has_standby -> wal ! type, b \
	:: else \
	fi

/* bits that are set already are not logged again */
#define SET_BITS(b) \
	atomic { \
		if \
		:: (b) & ~bits -> bits = bits | (b); LOG(BITS, bits) \
		:: else \
		fi \
	}

/* A transaction that adds a version, one that deletes it, and pruning. */
proctype writer(byte v)
{
	bool	knows;

	/* RelationGetIndexList(), with a lock on the table that is held until the end */
	atomic {
		knows = ready;
		if
		:: !knows -> unaware++
		:: else
		fi
	};
	/* heap_insert() */
	atomic {
		heap = heap | BIT(v);
		extended = extended || v == 1
	};
	/* bxinsert() */
	if
	:: knows -> SET_BITS(BIT(v))
	:: else
	fi;
	/* CommitTransaction() */
	atomic {
		committed = committed | BIT(v);
		LOG(COMMIT, BIT(v));
		if
		:: !knows -> unaware--
		:: else
		fi;
		knows = false
	};
	/* heap_delete() and commit, by another transaction */
	atomic {
		deleted = deleted | BIT(v);
		LOG(DELETE, BIT(v))
	};
	/*
	 * heap_page_prune(): unless a query on the server sees the version.  The
	 * snapshot of validation is ignored, although it would prevent pruning.
	 */
	atomic {
		!is_read || !(read_snapshot & BIT(v)) ->
		heap = heap & ~BIT(v);
		LOG(PRUNE, BIT(v))
	}
}

/* bx_heapscan_ranges(): all versions; the size has been read */
inline scan_heap()
{
	SET_BITS(heap & BIT(0));
	if
	:: size -> SET_BITS(heap & BIT(1))
	:: else
	fi
}

/* Waits for the transactions that do not know the index. */
inline wait_for_writers()
{
#ifndef SABOTAGE_NO_WAIT_FOR_WRITERS
	unaware == 0
#else
	skip
#endif
}

proctype create_index()
{
	bool	size;
	byte	snapshot;

	/* index_concurrently_build(), bxbuild() */
	size = extended;
	scan_heap();
#ifndef SABOTAGE_READY_LATE
	/* index_set_state_flags(INDEX_CREATE_SET_READY), and commit */
	ready = true;
#endif
#ifdef SABOTAGE_SIZE_BEFORE_WAIT
	size = extended;
#endif
#ifdef SABOTAGE_CATCH_UP_BEFORE_WAIT
	size = extended;
	scan_heap();
#endif
	/* DefineIndex(): WaitForLockers() */
	wait_for_writers();
	/* GetTransactionSnapshot(), for validate_index() */
	atomic { snapshot = committed & ~deleted; validating = true };
#ifndef SABOTAGE_NO_CATCH_UP
#ifndef SABOTAGE_CATCH_UP_BEFORE_WAIT
	/* bxbulkdelete(), catch_up() */
#ifndef SABOTAGE_SIZE_BEFORE_WAIT
	size = extended;
#endif
#ifndef SABOTAGE_CATCH_UP_LIVE_ROWS
	scan_heap();
#else
	SET_BITS(heap & snapshot);
#endif
#endif
#endif
#ifdef SABOTAGE_READY_LATE
	ready = true;
#endif
	/* heapam_index_validate_scan(): bxinsert() of what the snapshot sees */
	SET_BITS(heap & snapshot);
	/* WaitForOlderSnapshots() */
	!is_read || !is_old;
	/* index_set_state_flags(INDEX_CREATE_SET_VALID), and commit */
	atomic {
		valid = true;
		LOG(VALID, 0);
		size = false;
		snapshot = 0
	}
}

/* A query on the server, whose snapshot may be older than the validity of the index. */
proctype query()
{
	/* GetSnapshotData() */
	atomic { read_snapshot = committed & ~deleted; is_read = true; is_old = !validating };
	/* the planner uses the index if it is valid */
	atomic {
		if
		:: valid -> assert((bits & read_snapshot) == read_snapshot)
		:: true
		fi;
		is_read = false;
		is_old = false;
		read_snapshot = 0
	}
}

/* Replays WAL, and runs a query on the standby. */
proctype standby()
{
	mtype	type;
	byte	b;

	do
	:: wal ? type, b ->
		atomic {
			if
			:: type == COMMIT -> standby_committed = standby_committed | b
			:: type == DELETE -> standby_deleted = standby_deleted | b
			:: type == BITS -> standby_bits = b
			:: type == VALID -> standby_valid = true
			:: type == PRUNE ->
				/* ResolveRecoveryConflictWithSnapshot() */
#ifndef SABOTAGE_NO_CONFLICT
				if
				:: standby_reads && (standby_snapshot & b) -> cancelled = true
				:: else
				fi
#else
				skip
#endif
			fi;
			type = 0;
			b = 0
		}
	:: !standby_reads ->
		atomic { standby_reads = true; standby_snapshot = standby_committed & ~standby_deleted }
	:: standby_reads && standby_valid && !cancelled ->
		/* bx_partitioned_search(), bx_block_search() */
		assert((standby_bits & standby_snapshot) == standby_snapshot);
		break
	:: cancelled -> break
	od;
	/* nobody reads the standby any more */
	atomic {
		has_standby = false;
		do
		:: len(wal) > 0 -> wal ? type, b
		:: else -> break
		od;
		type = 0;
		b = 0
	}
}

init
{
	atomic {
		run create_index();
		run writer(0);
		run writer(1);
		if
		:: run query()
		:: has_standby = true; run standby()
		fi
	}
}
