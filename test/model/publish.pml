/*
 * publish.pml
 *	  Layout "partitioned": inserts create a partition and a segment, and the
 *	  server crashes at any point.
 *
 * Two inserts of rows with the same key, into the same range of a partition
 * that does not exist, run at the same time.  After the crash, recovery replays
 * any prefix of WAL that contains everything that was flushed.  Then a VACUUM
 * finds free pages, and a third insert, of another key, runs.  At the end all
 * of its WAL is replayed.
 *
 * The state after each replayed record is checked: it is what a crash may
 * leave, and what a search on a standby finds.
 *
 * Bit 0 of a page's bits stands for the bits of the first key, and bit 1 for
 * those of the second key.  A directory page is changed and logged in one step,
 * because all its readers lock it.  Bits are set and logged in two steps.
 */
#define PAGES		8			/* blocks 1 .. PAGES */
#define ALL_BLOCKS	510			/* as a mask */
#define NONE		0
#define UNWRITTEN	0			/* kinds of pages */
#define TOP			1
#define SLICES		2
#define GROUP		3

/* parts of a partition, in the order of the levels */
#define OF_GROUP	0
#define OF_SUMMARY	1
#define OF_SEGMENT	2

/* the index, on the server (0) and as replayed from WAL (1) */
#define LIVE		0
#define REPLAYED	1

typedef Index
{
	byte	next_generation;			/* metapage */
	short	free;						/* metapage: a bit for each block */
	byte	region_top;					/* region page: the top-level page */
	byte	region_group;				/* region page: the group's block, generation */
	byte	region_group_generation;
	bool	unfiltered;					/* region page */
	byte	start[3];					/* top-level page: the descriptors */
	byte	generation[3];
	byte	kind[PAGES + 1];
	byte	page_generation[PAGES + 1];
	byte	bits[PAGES + 1];
	byte	commits;
};

Index	index[2];

/* types of WAL records */
mtype = { META, NEW, NEW_TOP, REGION, SEGMENT, BITS, COMMIT };

/*
 * META free next_generation; NEW block kind generation; NEW_TOP block and the
 * blocks and generations of the group and the summary; REGION top-level page,
 * group and its generation; SEGMENT block generation; BITS which of the three
 * blocks, key, blocks; COMMIT row.
 */
#define IMAGE		8			/* BITS: images of the pages */
#define HOLE		16			/* BITS: images, with the rows between pd_lower and pd_upper */
chan	wal = [40] of { mtype, short, byte, byte, byte, byte };
byte	unflushed = 0;			/* records at the end of WAL that are not flushed */

bool	locked[PAGES + 1];		/* exclusive content locks of slices and groups */
byte	lock_page = 0;			/* who has LockPage on the metapage */
byte	acknowledged = 0;		/* rows whose commit has been reported to the client */
byte	epoch = 0;				/* number of crashes */
byte	flushing = 0;			/* inserters that are about to flush WAL */
byte	ended = 0;				/* inserters that have ended */

#define BLOCK(b)	(1 << (b))

#define LOG(type, a, b, c, d, e)	wal ! type, a, b, c, d, e; unflushed++

#ifndef SABOTAGE_NO_LOCKPAGE
#define ACQUIRE_LOCKPAGE	atomic { lock_page == 0 -> lock_page = _pid }
#else
#define ACQUIRE_LOCKPAGE	skip
#endif
#define RELEASE_LOCKPAGE	lock_page = 0

/*
 * What LockPage protects is one step: nobody else acts on it, and the crash,
 * which comes later, may lose any part of its WAL.
 */
#ifndef SABOTAGE_NO_LOCKPAGE
#define BEGIN_LOCKED	atomic {
#define END_LOCKED		}
#else
#define BEGIN_LOCKED
#define END_LOCKED
#endif

/* An error, such as "disk full": the row never commits. */
#define MAY_FAIL \
	if \
	:: true \
	:: row < 2 -> goto fail \
	fi

/* bx_extents_take(), bx_meta_write() */
inline take(b, g)
{
	atomic {
		g = index[LIVE].next_generation;
		index[LIVE].next_generation++;
		b = 1;
		do
		:: b <= PAGES && !(index[LIVE].free & BLOCK(b)) -> b++
		:: else -> break
		od;
		if
		:: b > PAGES -> b = NONE; goto fail
		:: else
		fi;
		index[LIVE].free = index[LIVE].free & ~BLOCK(b);
#ifndef SABOTAGE_META_LAST
		LOG(META, index[LIVE].free, index[LIVE].next_generation, 0, 0, 0)
#endif
	}
}

#ifdef SABOTAGE_META_LAST
#define WRITE_META	atomic { LOG(META, index[LIVE].free, index[LIVE].next_generation, 0, 0, 0) }
#else
#define WRITE_META	skip
#endif

/* bx_page_write_new() */
inline write_new(b, k, g)
{
	atomic {
		index[LIVE].kind[b] = k;
		index[LIVE].page_generation[b] = g;
		index[LIVE].bits[b] = 0;
#ifndef SABOTAGE_NOT_LOGGED
		LOG(NEW, b, k, g, 0, 0)
#else
		if
		:: k == SLICES
		:: else -> LOG(NEW, b, k, g, 0, 0)
		fi
#endif
	}
}

/* bx_dir_publish_top(), bx_dir_update_region() */
inline publish_partition()
{
#ifndef SABOTAGE_TWO_RECORDS
	atomic {
		index[LIVE].region_top = top;
		index[LIVE].region_group = b[OF_GROUP];
		index[LIVE].region_group_generation = g[OF_GROUP];
		index[LIVE].unfiltered = false;
		LOG(REGION, top, b[OF_GROUP], g[OF_GROUP], 0, 0)
	}
#else
	atomic {
		index[LIVE].region_top = top;
		index[LIVE].unfiltered = false;
		LOG(REGION, top, 0, 0, 0, 0)
	};
	atomic {
		index[LIVE].region_group = b[OF_GROUP];
		index[LIVE].region_group_generation = g[OF_GROUP];
		LOG(REGION, top, b[OF_GROUP], g[OF_GROUP], 0, 0)
	}
#endif
}

/* bx_dir_make_top() */
inline make_top()
{
	take(top, x);
	atomic {
		index[LIVE].kind[top] = TOP;
		index[LIVE].page_generation[top] = 0;
		/* no other backend uses the page yet, so the descriptors can be those of the model's only top-level page */
		index[LIVE].start[OF_GROUP] = b[OF_GROUP];
		index[LIVE].generation[OF_GROUP] = g[OF_GROUP];
		index[LIVE].start[OF_SUMMARY] = b[OF_SUMMARY];
		index[LIVE].generation[OF_SUMMARY] = g[OF_SUMMARY];
		index[LIVE].start[OF_SEGMENT] = NONE;
		index[LIVE].generation[OF_SEGMENT] = 0;
		LOG(NEW_TOP, top, b[OF_GROUP], g[OF_GROUP], b[OF_SUMMARY], g[OF_SUMMARY])
	}
}

/* aminsert of a row with a key, and commit */
proctype inserter(byte row; byte key; byte my_epoch)
{
	byte	b[3];
	byte	g[3];
	byte	top, x;
	byte	missing;

	{
	skip;
load:
	/* copy_entry() */
	if
	:: index[LIVE].region_top != NONE && index[LIVE].start[OF_SEGMENT] != NONE -> goto set
	:: else
	fi;
	/* bx_create_segment() */
	ACQUIRE_LOCKPAGE;
	BEGIN_LOCKED
	if
	:: index[LIVE].region_top == NONE ->
		/* make_partition(): plan_and_make_slices() */
		take(b[OF_SUMMARY], g[OF_SUMMARY]);
		MAY_FAIL;
		write_new(b[OF_SUMMARY], SLICES, g[OF_SUMMARY]);
		/* provide_group(): take_group(), write_empty_group() */
		take(b[OF_GROUP], g[OF_GROUP]);
#ifndef SABOTAGE_ENTRY_BEFORE_GROUP
		write_new(b[OF_GROUP], GROUP, g[OF_GROUP]);
#endif
		MAY_FAIL;
		make_top();
		MAY_FAIL;
		publish_partition();
#ifdef SABOTAGE_ENTRY_BEFORE_GROUP
		write_new(b[OF_GROUP], GROUP, g[OF_GROUP]);
#endif
		WRITE_META
	:: else
	fi
	END_LOCKED;
	BEGIN_LOCKED
	if
	:: index[LIVE].start[OF_SEGMENT] == NONE ->
		/* plan_and_make_slices() */
		take(b[OF_SEGMENT], g[OF_SEGMENT]);
#ifndef SABOTAGE_ENTRY_BEFORE_SEGMENT
		write_new(b[OF_SEGMENT], SLICES, g[OF_SEGMENT]);
#endif
		MAY_FAIL;
		/* bx_dir_publish_node() */
		atomic {
			index[LIVE].start[OF_SEGMENT] = b[OF_SEGMENT];
			index[LIVE].generation[OF_SEGMENT] = g[OF_SEGMENT];
			LOG(SEGMENT, b[OF_SEGMENT], g[OF_SEGMENT], 0, 0, 0)
		};
#ifdef SABOTAGE_ENTRY_BEFORE_SEGMENT
		write_new(b[OF_SEGMENT], SLICES, g[OF_SEGMENT]);
#endif
		WRITE_META
	:: else
	fi
	END_LOCKED;
	RELEASE_LOCKPAGE;
	goto load;
set:
	/* insert_key(): the descriptors; VACUUM does not replace them in this model */
	atomic {
		x = 0;
		do
		:: x < 3 ->
			b[x] = index[LIVE].start[x];
			g[x] = index[LIVE].generation[x];
			assert(index[LIVE].page_generation[b[x]] == g[x]);	/* check_target() */
			x++
		:: else -> break
		od;
		x = 0
	};
#ifdef SABOTAGE_COMMIT_FIRST
	atomic { LOG(COMMIT, row, 0, 0, 0, 0) };
#endif
	/* set_key(): surely_has_key() */
	do
	:: x < 3 ->
#ifndef SABOTAGE_TEST_WITHOUT_LOCK
		if
		:: !(index[LIVE].bits[b[x]] & key) -> missing = missing | (1 << x)
		:: else -> !locked[b[x]]			/* LockBuffer() in share mode; bits are not cleared */
		fi;
#else
		if
		:: !(index[LIVE].bits[b[x]] & key) -> missing = missing | (1 << x)
		:: else
		fi;
#endif
		x++
	:: else -> break
	od;
	x = 0;
	if
	:: missing == 0 -> goto commit
	:: else
	fi;
	/* LockBuffer() in exclusive mode, in the order of the levels */
	do
	:: x < 3 ->
		if
		:: missing & (1 << x) -> atomic { !locked[b[x]] -> locked[b[x]] = true }
		:: else
		fi;
		x++
	:: else -> break
	od;
	/* bx_page_set_bits(): set_page_bits(), with the locks held */
	atomic {
		x = 0;
		do
		:: x < 3 ->
			if
			:: missing & (1 << x) ->
				index[LIVE].bits[b[x]] = index[LIVE].bits[b[x]] | key
			:: else
			fi;
			x++
		:: else -> break
		od;
		x = 0
	};
	/* XLogInsert(); after a checkpoint, the record contains images of the pages */
	atomic {
		if
		:: x = missing
#ifndef SABOTAGE_NO_LOWER
		:: x = missing + IMAGE
#else
		:: x = missing + HOLE
#endif
		fi;
		LOG(BITS, x, key, b[OF_GROUP], b[OF_SUMMARY], b[OF_SEGMENT]);
		x = 0
	};
	/* LockBuffer(..., BUFFER_LOCK_UNLOCK) */
	atomic {
		do
		:: x < 3 ->
			if
			:: missing & (1 << x) -> locked[b[x]] = false
			:: else
			fi;
			x++
		:: else -> break
		od;
		x = 0
	};
commit:
	/* RecordTransactionCommit(): the record, then XLogFlush() */
	atomic {
#ifndef SABOTAGE_COMMIT_FIRST
		LOG(COMMIT, row, 0, 0, 0, 0);
#endif
		flushing++
	};
	atomic {
#ifndef SABOTAGE_NO_FLUSH
		unflushed = 0;
#endif
		flushing--;
		acknowledged = acknowledged | BLOCK(row)
	};
	goto end;
fail:
	RELEASE_LOCKPAGE;
end:
	skip
	} unless { epoch != my_epoch };
	d_step {
		ended++;
		row = 0; key = 0; my_epoch = 0; top = 0; x = 0; missing = 0;
		b[0] = 0; b[1] = 0; b[2] = 0; g[0] = 0; g[1] = 0; g[2] = 0
	}
}

#define GOOD(n, k) \
	(index[REPLAYED].start[n] != NONE && index[REPLAYED].kind[index[REPLAYED].start[n]] == (k) && \
	 index[REPLAYED].page_generation[index[REPLAYED].start[n]] == index[REPLAYED].generation[n])
#define HAS(n, key)		((index[REPLAYED].bits[index[REPLAYED].start[n]] & (key)) == (key))
#define IS_TAKEN(blk)	(!(index[REPLAYED].free & BLOCK(blk)))

/* What is true on a standby, and after a crash, whatever has been replayed. */
inline check_replayed()
{
	if
	:: index[REPLAYED].region_top != NONE ->
		assert(index[REPLAYED].kind[index[REPLAYED].region_top] == TOP);
		assert(IS_TAKEN(index[REPLAYED].region_top));
		assert(GOOD(OF_GROUP, GROUP) && IS_TAKEN(index[REPLAYED].start[OF_GROUP]));
		assert(GOOD(OF_SUMMARY, SLICES) && IS_TAKEN(index[REPLAYED].start[OF_SUMMARY]));
		/* find_live_columns(): a partition that is not unfiltered has a group */
		assert(index[REPLAYED].unfiltered ||
			   (index[REPLAYED].region_group == index[REPLAYED].start[OF_GROUP] &&
				index[REPLAYED].region_group_generation == index[REPLAYED].generation[OF_GROUP]));
		assert(index[REPLAYED].start[OF_SEGMENT] == NONE ||
			   (GOOD(OF_SEGMENT, SLICES) && IS_TAKEN(index[REPLAYED].start[OF_SEGMENT])))
	:: else
	fi;
	/* a search finds the rows that are committed */
	if
	:: index[REPLAYED].commits != 0 ->
		key = ((index[REPLAYED].commits & 3) -> 1 : 0) | ((index[REPLAYED].commits & 4) -> 2 : 0);
		assert(index[REPLAYED].region_top != NONE && GOOD(OF_SEGMENT, SLICES));
		assert(HAS(OF_GROUP, key) && HAS(OF_SUMMARY, key) && HAS(OF_SEGMENT, key));
		key = 0
	:: else
	fi
}

/* generic_redo(): sets the bits of a page, or replaces the page by its image, without the hole */
inline redo_bits(i, block)
{
	if
	:: (a & (1 << (i))) && !(a & HOLE) -> index[REPLAYED].bits[block] = index[REPLAYED].bits[block] | k
	:: (a & (1 << (i))) && (a & HOLE) -> index[REPLAYED].bits[block] = 0
	:: else
	fi
}

inline replay_record()
{
	wal ? type, a, k, c, d, e;
	if
	:: type == META ->
		index[REPLAYED].free = a;
		index[REPLAYED].next_generation = k
	:: type == NEW ->
		index[REPLAYED].kind[a] = k;
		index[REPLAYED].page_generation[a] = c;
		index[REPLAYED].bits[a] = 0
	:: type == NEW_TOP ->
		index[REPLAYED].kind[a] = TOP;
		index[REPLAYED].page_generation[a] = 0;
		index[REPLAYED].start[OF_GROUP] = k;
		index[REPLAYED].generation[OF_GROUP] = c;
		index[REPLAYED].start[OF_SUMMARY] = d;
		index[REPLAYED].generation[OF_SUMMARY] = e;
		index[REPLAYED].start[OF_SEGMENT] = NONE;
		index[REPLAYED].generation[OF_SEGMENT] = 0
	:: type == REGION ->
		index[REPLAYED].region_top = a;
		index[REPLAYED].region_group = k;
		index[REPLAYED].region_group_generation = c;
		index[REPLAYED].unfiltered = false
	:: type == SEGMENT ->
		index[REPLAYED].start[OF_SEGMENT] = a;
		index[REPLAYED].generation[OF_SEGMENT] = k
	:: type == BITS ->
		redo_bits(OF_GROUP, c);
		redo_bits(OF_SUMMARY, d);
		redo_bits(OF_SEGMENT, e)
	:: type == COMMIT ->
		index[REPLAYED].commits = index[REPLAYED].commits | BLOCK(a)
	fi;
	type = 0; a = 0; k = 0; c = 0; d = 0; e = 0;
	check_replayed()
}

/* After recovery the pages on the server are those that were replayed. */
inline copy_replayed()
{
	index[LIVE].next_generation = index[REPLAYED].next_generation;
	index[LIVE].free = index[REPLAYED].free;
	index[LIVE].region_top = index[REPLAYED].region_top;
	index[LIVE].region_group = index[REPLAYED].region_group;
	index[LIVE].region_group_generation = index[REPLAYED].region_group_generation;
	index[LIVE].unfiltered = index[REPLAYED].unfiltered;
	n = 0;
	do
	:: n < 3 ->
		index[LIVE].start[n] = index[REPLAYED].start[n];
		index[LIVE].generation[n] = index[REPLAYED].generation[n];
		n++
	:: else -> break
	od;
	n = 0;
	do
	:: n <= PAGES ->
		index[LIVE].kind[n] = index[REPLAYED].kind[n];
		index[LIVE].page_generation[n] = index[REPLAYED].page_generation[n];
		index[LIVE].bits[n] = index[REPLAYED].bits[n];
		locked[n] = false;
		n++
	:: else -> break
	od;
	n = 0
}

/* bx_extents_sweep(): the blocks that nothing names are free */
inline sweep()
{
	index[LIVE].free = ALL_BLOCKS;
	if
	:: index[LIVE].region_top != NONE ->
		index[LIVE].free = index[LIVE].free & ~BLOCK(index[LIVE].region_top);
		do
		:: n < 3 ->
			index[LIVE].free = index[LIVE].free & ~BLOCK(index[LIVE].start[n]);
			n++
		:: else -> break
		od
	:: else
	fi;
	n = 0;
	LOG(META, index[LIVE].free, index[LIVE].next_generation, 0, 0, 0)
}

/* The crash, recovery, and what follows. */
proctype server()
{
	mtype	type;
	short	a;
	byte	k, c, d, e, key, n;

	/*
	 * The crash.  Recovery replays any part of WAL that was not flushed, so a
	 * crash at any other time has the result of a crash before the next flush.
	 */
	atomic { flushing > 0 || ended == 2 -> epoch++ };
	atomic {
		ended == 2 ->
		flushing = 0;
		/* everything that was flushed is replayed, and any number of the following records */
		do
		:: len(wal) > unflushed -> replay_record()
		:: len(wal) <= unflushed && len(wal) > 0 -> replay_record(); unflushed = len(wal)
		:: len(wal) <= unflushed -> break
		od;
		assert((acknowledged & ~index[REPLAYED].commits) == 0);
		do
		:: len(wal) > 0 -> wal ? type, a, k, c, d, e
		:: else -> break
		od;
		type = 0; a = 0; k = 0; c = 0; d = 0; e = 0;
		unflushed = 0;
		lock_page = 0;
		copy_replayed();
		if
		:: sweep()
		:: true
		fi;
		run inserter(2, 2, 1)
	};
	atomic {
		ended == 3 ->
		do
		:: len(wal) > 0 -> replay_record()
		:: else -> break
		od;
		assert((acknowledged & ~index[REPLAYED].commits) == 0)
	}
}

init
{
	atomic {
		index[LIVE].next_generation = 1;
		index[LIVE].free = ALL_BLOCKS;
		index[LIVE].unfiltered = true;
		index[REPLAYED].next_generation = 1;
		index[REPLAYED].free = ALL_BLOCKS;
		index[REPLAYED].unfiltered = true;
		run inserter(0, 1, 0);
		run inserter(1, 1, 0);
		run server()
	}
}
