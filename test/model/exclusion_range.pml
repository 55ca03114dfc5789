/*
 * exclusion_range.pml
 *	  The check of an exclusion constraint skips the range of the new row, if
 *	  the insert was the first to set the row's key in the filter of the range
 *	  (am/exclusion.c): two transactions insert rows with equal keys into the
 *	  same range, while VACUUM rebuilds the slices of the segment.
 *
 * A key has two bits, in one page.
 */
#define PAGES		2
#define NONE		2
#define ALL_BITS	3

byte	heap = 0;				/* rows on their pages, as a mask */
byte	start = 0;				/* the top-level page: descriptor of the segment */
byte	shadow = NONE;
byte	bits[PAGES];			/* the key's bits in the slices */
bool	locked[PAGES];			/* exclusive locks on the pages */
byte	top_share = 0;
byte	passed = 0;				/* rows whose check has found no conflict */

#define BIT(row)	(1 << (row))

/* set_key() in one page */
inline set_key(page, first)
{
#ifdef SABOTAGE_FIRST_UNLOCKED
	first = bits[page] != ALL_BITS;
#endif
	if
	:: bits[page] == ALL_BITS -> skip	/* surely_has_key() */
	:: else ->
		atomic { !locked[page] -> locked[page] = true };
#ifndef SABOTAGE_FIRST_UNLOCKED
		first = bits[page] != ALL_BITS;
#endif
		/* bx_page_set_bits(), which sets one bit after the other */
		bits[page] = bits[page] | 1;
		bits[page] = bits[page] | 2;
		locked[page] = false
	fi
}

/* ExecInsert() with ExecInsertIndexTuples() */
proctype inserter(byte row)
{
	byte	copy, copy_shadow;
	bool	first, found, ignored;

#ifndef SABOTAGE_ROW_LAST
	heap = heap | BIT(row);				/* heap_insert() */
#endif
load:
	atomic { copy = start; copy_shadow = shadow };
	/* insert_key(): the share lock on the top-level page, is_current() */
	atomic {
		if
		:: copy != start || copy_shadow != shadow -> goto load
		:: else -> top_share++
		fi
	};
	set_key(copy, first);
	if
	:: copy_shadow != NONE ->
#ifdef SABOTAGE_FIRST_IN_SHADOW
		set_key(copy_shadow, first)
#else
#ifndef SABOTAGE_NO_SHADOW_BITS
		set_key(copy_shadow, ignored)
#else
		skip
#endif
#endif
	:: else
	fi;
	top_share--;
#ifdef SABOTAGE_ROW_LAST
	heap = heap | BIT(row);
#endif
	/* check_exclusion_or_unique_constraint(): a search with SnapshotDirty */
#ifdef SABOTAGE_ALWAYS_SKIP
	first = true;
#endif
	found = false;
	if
	:: first							/* bx_exclusion_take(): the range is skipped */
	:: else ->
		copy = start;
		/* probe_slice() */
		if
		:: bits[copy] == ALL_BITS ->
			/* bx_rows_list(), index_getnext_slot(): the row, live or in progress */
			found = (heap & BIT(1 - row)) != 0
		:: else
		fi
	fi;
	if
	:: found							/* waits for the other transaction, or fails */
	:: else -> passed = passed | BIT(row); assert(passed != 3)
	fi
}

/* rebuild_node() */
proctype vacuum()
{
	bool	key;

	/* bx_create_shadow() */
	atomic { top_share == 0 -> shadow = 1 };
	/* fill_shadow(): scan_ranges(), which returns rows in progress, too */
	key = heap != 0;
	/* bx_slices_write() */
	if
	:: key ->
		atomic { !locked[1] -> locked[1] = true };
		bits[1] = ALL_BITS;
		locked[1] = false
	:: else
	fi;
	/* bx_dir_swap_shadow() */
	atomic { top_share == 0 -> start = 1; shadow = NONE };
	key = false
}

init
{
	atomic {
		run inserter(0);
		run inserter(1);
		run vacuum()
	}
}
