/*
 * block.pml
 *	  Layout "block": inserts, a search and VACUUM, which rebuilds pages of
 *	  filters in the scratch page.
 *
 * There are two pages of filters.  Page 0 has two rows, on two heap pages; the
 * second heap page is added by its row.  Page 1 also has two rows, and is created
 * by the first insert.  Two of the four rows are inserted.  A bit stands for all bits of a key.  Page 0 has the bits of row 0 from
 * the beginning: a row with this key has been there, and is gone.
 *
 * Changes of a page under its exclusive lock, and copies under its share lock,
 * are atomic steps.  The locks that an inserter holds on a page of filters
 * while it locks the scratch page are modelled, and so is LockPage on the
 * metapage.
 */
#define PAGES		2
#define PAGE(row)	((row) >= 2 -> 1 : 0)
#define BIT(row)	(1 << (row))
#define ROWS(page)	((page) == 0 -> 3 : 12)

byte	npages = 1;				/* the metapage: pages that are counted */
byte	bits[PAGES];			/* pages of filters */
bool	shadowed[PAGES];		/* BX_BLOCK_SHADOWED */
byte	scratch_number = 0;
byte	scratch_bits = 0;

byte	heap = 0;
bool	extended = false;
byte	committed = 0;

bool	exclusive[PAGES];		/* content locks of the pages of filters */
byte	lock_page = 0;			/* who has LockPage on the metapage */

#define ACQUIRE_LOCKPAGE	atomic { lock_page == 0 -> lock_page = _pid }
#define RELEASE_LOCKPAGE	lock_page = 0


/* bx_block_insert() */
proctype inserter(byte row)
{
	bool	pinned = false;			/* RowPages.scratch */
	bool	found;
	byte	n = PAGE(row);

	/* heap_insert() */
	atomic {
		heap = heap | BIT(row);
		extended = extended || row == 1
	};
	/* pin_pages() */
	if
	:: n >= npages ->
		/* make_pages() */
		ACQUIRE_LOCKPAGE;
		if
		:: npages < PAGES ->
#ifndef SABOTAGE_COUNT_FIRST
			/* bx_block_put_page() */
			bits[1] = 0;
			if
			:: true
			:: RELEASE_LOCKPAGE; goto end	/* an error; the row never commits */
			fi;
			/* bx_meta_write() */
			npages = PAGES
#else
			npages = PAGES;
			bits[1] = 0
#endif
		:: else
		fi;
		RELEASE_LOCKPAGE
	:: else
	fi;

share_lock:
	/* find_row(): lock_page() in share mode, lock_scratch() */
	atomic {
		!exclusive[n] ->
		if
		:: shadowed[n] && !pinned -> pinned = true; goto share_lock
		:: else
		fi;
		found = (bits[n] & BIT(row)) != 0;
#ifndef SABOTAGE_IGNORE_SCRATCH
		if
		:: found && shadowed[n] && scratch_number == n -> found = (scratch_bits & BIT(row)) != 0
		:: else
		fi;
#endif
		if
		:: found -> goto commit
		:: else
		fi
	};

exclusive_lock:
	/* add_row(): lock_page() in exclusive mode */
	atomic {
		!exclusive[n] ->
		if
		:: shadowed[n] && !pinned -> pinned = true; goto exclusive_lock
		:: else -> exclusive[n] = true
		fi
	};
	/* set_row() */
	bits[n] = bits[n] | BIT(row);
#ifdef SABOTAGE_EARLY_UNLOCK
	found = shadowed[n];
	exclusive[n] = false;
#endif
#ifndef SABOTAGE_NO_SCRATCH_BITS
	/* lock_scratch(), set_row() */
	atomic {
		if
#ifdef SABOTAGE_EARLY_UNLOCK
		:: found && scratch_number == n -> scratch_bits = scratch_bits | BIT(row)
#else
		:: shadowed[n] && scratch_number == n -> scratch_bits = scratch_bits | BIT(row)
#endif
		:: else
		fi
	};
#endif
	exclusive[n] = false;
commit:
	committed = committed | BIT(row);
end:
	pinned = false; found = false
}

/* A crash, or an error, which rebuild_page() leaves to give_up_page(). */
#define MAY_FAIL \
	if \
	:: true \
	:: turn == 1 -> goto crash \
	:: turn == 1 -> goto error \
	fi

/* set_flags(), under the exclusive lock */
inline set_shadowed(value)
{
	atomic { !exclusive[n] -> shadowed[n] = value }
}

/* bx_page_write_new() */
inline write_scratch_page()
{
	atomic { scratch_number = n; scratch_bits = 0 }
}

/* scan_page_ranges(): RelationGetNumberOfBlocks(), bx_heapscan_ranges() */
inline scan_heap()
{
#ifndef SABOTAGE_SIZE_FIRST
	size = extended;
#endif
	keys = heap & ROWS(n) & ~BIT(1);
	if
	:: size && n == 0 -> keys = keys | (heap & BIT(1))
	:: else
	fi
}

/* bx_block_repair() */
proctype vacuum()
{
	byte	turn = 0;
	byte	n, keys;
	bool	size;

	do
	:: turn < 2 ->
		turn++;
		n = 0;
		do
		:: n < npages ->
			/* repair_page() */
			if
			:: shadowed[n] -> set_shadowed(false)
			:: else
			fi;
			if
			:: n++; goto next			/* the page needs no rebuild */
			:: true
			fi;
			/* rebuild_page() */
#ifdef SABOTAGE_SCAN_FIRST
			scan_heap();
#endif
#ifdef SABOTAGE_SIZE_FIRST
			size = extended;
#endif
#ifndef SABOTAGE_SCRATCH_AFTER_SCAN
			write_scratch_page();
			MAY_FAIL;
#endif
			set_shadowed(true);
			MAY_FAIL;
#ifndef SABOTAGE_SCAN_FIRST
			scan_heap();
#endif
#ifdef SABOTAGE_SCRATCH_AFTER_SCAN
			write_scratch_page();
#endif
			MAY_FAIL;
			/* write_scratch() */
			atomic {
				assert(scratch_number == n);
				scratch_bits = scratch_bits | keys;
				keys = 0
			};
			MAY_FAIL;
			/* swap_page() */
#ifndef SABOTAGE_COPY_WITHOUT_LOCK
			atomic {
				!exclusive[n] ->
				assert(scratch_number == n);
				bits[n] = scratch_bits;
				shadowed[n] = false
			};
#else
			keys = scratch_bits;
			atomic {
				!exclusive[n] ->
				bits[n] = keys;
				shadowed[n] = false
			};
#endif
			atomic { keys = 0; size = false; n++ };
			goto next;
error:
			/* give_up_page() */
			set_shadowed(false);
			atomic { keys = 0; size = false; n++ };
			goto next;
crash:
			atomic { keys = 0; size = false };
			break;
next:
			skip
		:: else -> break
		od
	:: else -> break
	od
}

/* bx_block_search(), on one page, for the keys of all rows that the snapshot sees */
proctype search()
{
	byte	n, snapshot, counted;

	if
	:: n = 0
	:: n = 1
	fi;
#ifdef SABOTAGE_COUNT_BEFORE_SNAPSHOT
	counted = npages;
#endif
	/* GetSnapshotData() */
	snapshot = committed & ROWS(n);
#ifndef SABOTAGE_COUNT_BEFORE_SNAPSHOT
	/* bx_meta_read() */
	counted = npages;
#endif
	assert(n < counted || !snapshot);
	/* search_page() */
	atomic { !exclusive[n] -> assert((bits[n] & snapshot) == snapshot) };
	n = 0; snapshot = 0; counted = 0
}

init
{
	atomic {
		bits[0] = BIT(0);
		run vacuum();
		run search();
		if
		:: run inserter(0); run inserter(1)
		:: run inserter(2); run inserter(3)
		:: run inserter(1); run inserter(2)
		fi
	}
}
