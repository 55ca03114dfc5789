/*
 * exclusion.pml
 *	  An exclusion constraint: two transactions insert rows with equal keys,
 *	  and each then searches for the row of the other, while VACUUM rebuilds
 *	  the slices of a segment.
 *
 * Row 0 is in segment 0, which exists.  Row 1 is on a heap page that its insert
 * adds, in segment 1, which its insert creates.  A search uses SnapshotDirty:
 * it finds a row on the heap page, whether it is committed or not.
 */
#define PAGES		4
#define NONE		0

byte	heap = 0;				/* rows on their pages, as a mask */
byte	heap_blocks = 1;
byte	start[2];				/* the top-level page: descriptors of the segments */
byte	shadow = NONE;			/* the shadow, which is of segment 0 */
bool	page_bit[PAGES + 1];	/* whether the key is in the page's slices */
byte	next_page = 2;
byte	top_share = 0;
byte	lock_page = 0;
byte	passed = 0;				/* rows whose check has found no conflict */

#define BIT(row)	(1 << (row))
#define ACQUIRE_LOCKPAGE	atomic { lock_page == 0 -> lock_page = _pid }
#define RELEASE_LOCKPAGE	lock_page = 0

/* check_exclusion_or_unique_constraint(): a search with SnapshotDirty */
inline check_constraint()
{
	/* bx_scan_start(): RelationGetNumberOfBlocks() */
#ifndef SABOTAGE_OLD_SIZE
	size = heap_blocks;
#endif
	found = false;
	/* search_partition() copies the descriptor of the other row's segment */
#ifndef SABOTAGE_OLD_DESCRIPTOR
	s = start[1 - row];
#endif
	/* probe_slice(); no page is reused in this model, so the descriptor need not be copied again */
	if
	:: s != NONE && page_bit[s] && 1 - row < size ->
		/* bx_rows_list(), index_getnext_slot(): the row, live or in progress */
		found = (heap & BIT(1 - row)) != 0
	:: else
	fi
}

/* ExecInsert() with ExecInsertIndexTuples() */
proctype inserter(byte row)
{
	byte	s, copy, copy_shadow, size;
	bool	found;

#ifdef SABOTAGE_OLD_SIZE
	size = heap_blocks;
#endif
#ifdef SABOTAGE_SEARCH_FIRST
	check_constraint();
#endif
#ifndef SABOTAGE_ROW_LAST
	/* heap_insert() */
	atomic {
		heap = heap | BIT(row);
		heap_blocks = (row == 1 -> 2 : heap_blocks)
	};
#endif
#ifdef SABOTAGE_OLD_DESCRIPTOR
	s = start[1 - row];
#endif
load:
	/* load_entry(), copy_entry() */
	atomic { copy = start[row]; copy_shadow = (row == 0 -> shadow : NONE) };
	if
	:: copy == NONE ->
		/* bx_create_segment() */
		ACQUIRE_LOCKPAGE;
		atomic {
			copy = next_page;
			next_page++
		};
		/* bx_dir_publish_node() */
		atomic { top_share == 0 -> start[row] = copy };
		RELEASE_LOCKPAGE;
		goto load
	:: else
	fi;
	/* insert_key(): the share lock on the top-level page, is_current() */
	atomic {
		if
		:: copy != start[row] || (row == 0 && copy_shadow != shadow) -> goto load
		:: else -> top_share++
		fi
	};
	/* set_key() */
	page_bit[copy] = true;
#ifndef SABOTAGE_NO_SHADOW_BITS
	if
	:: copy_shadow != NONE -> page_bit[copy_shadow] = true
	:: else
	fi;
#endif
	top_share--;
#ifdef SABOTAGE_ROW_LAST
	atomic {
		heap = heap | BIT(row);
		heap_blocks = (row == 1 -> 2 : heap_blocks)
	};
#endif
#ifndef SABOTAGE_SEARCH_FIRST
	check_constraint();
#endif
	if
	:: found							/* waits for the other transaction, or fails */
	:: else -> passed = passed | BIT(row); assert(passed != 3)
	fi
}

/* rebuild_node() of segment 0 */
proctype vacuum()
{
	bool	key;
	byte	p;

	/* bx_create_shadow() */
	ACQUIRE_LOCKPAGE;
	atomic { p = next_page; next_page++ };
	atomic { top_share == 0 -> shadow = p };
	RELEASE_LOCKPAGE;
	/* fill_shadow(): scan_ranges(), which returns rows in progress, too */
	key = (heap & BIT(0)) != 0;
	/* bx_slices_write() */
	page_bit[p] = page_bit[p] || key;
	/* bx_dir_swap_shadow() */
	atomic { top_share == 0 -> start[0] = p; shadow = NONE };
	key = false;
	p = 0
}

init
{
	atomic {
		start[0] = 1;
		run inserter(0);
		run inserter(1);
		run vacuum()
	}
}
