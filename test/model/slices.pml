/*
 * slices.pml
 *	  Layout "partitioned": inserts, a search and VACUUM on the slices of two
 *	  segments of a partition.  VACUUM rebuilds or moves slices in a shadow.
 *
 * Segment A has two heap pages, with a row on each; the second heap page is
 * added to the heap by its row.  Segment B has one row, whose insert creates
 * the segment.  Each segment has one slice page.  A bit of "bits" stands for
 * all bits that one key sets on a page.
 *
 * A content lock on a single page that is held for one change, or for one
 * copy, is an atomic step.  The locks that are held longer are modelled: the
 * share lock of an inserter on the top-level page, and LockPage on the
 * metapage.
 */
#define PAGES		4			/* blocks 1 .. PAGES of the index */
#define NONE		0			/* no block; as a start: BX_NODE_EMPTY */
#define UNKNOWN		99			/* as a start: BX_NODE_UNKNOWN */
#define A			0
#define B			1

#define NODE(row)	((row) == 2 -> B : A)
#define BIT(row)	(1 << (row))
#define ROWS(node)	((node) == A -> 3 : 4)

/* the metapage */
bool	is_free[PAGES + 1];
byte	next_generation = 2;

/* the top-level page */
byte	start[2];
byte	generation[2];
byte	shadow_start;
byte	shadow_generation;
byte	shadow_slot;

/* slice pages */
byte	page_generation[PAGES + 1];
byte	page_node[PAGES + 1];
byte	page_bits[PAGES + 1];

/* the heap: the rows on their pages, and whether the second page exists */
byte	heap = 0;
bool	extended = false;
byte	committed = 0;

byte	runs = 1;				/* of VACUUM; all but the last may fail */

/* locks */
byte	top_share = 0;			/* holders of the share lock on the top-level page */
byte	lock_page = 0;			/* who has LockPage on the metapage */

#define IS_PAGE(p, g, n)	(page_generation[p] == (g) && page_node[p] == (n))

/* No block is both named and free, or named twice. */
inline check_names()
{
	assert(start[A] == NONE || start[A] == UNKNOWN || !is_free[start[A]]);
	assert(start[B] == NONE || !is_free[start[B]]);
	assert(shadow_start == NONE || !is_free[shadow_start]);
	assert(start[A] == NONE || start[A] != start[B]);
	assert(shadow_start == NONE || (shadow_start != start[A] && shadow_start != start[B]));
}

/* bx_extents_take(), then bx_meta_write() */
inline take(p, g)
{
	g = next_generation;
	next_generation++;
	p = 1;
	do
	:: p <= PAGES && !is_free[p] -> p++
	:: else -> break
	od;
	if
	:: p > PAGES -> p = NONE		/* the disk is full */
	:: else ->
#ifndef SABOTAGE_TAKE_AFTER_PUBLISH
		is_free[p] = false
#else
		skip
#endif
	fi
}

/* bx_slices_init_page(), bx_page_write_new() */
inline write_new(p, g, n)
{
	page_generation[p] = g;
	page_node[p] = n;
	page_bits[p] = 0
}

#ifdef SABOTAGE_NO_LOCKPAGE
#define ACQUIRE_LOCKPAGE	skip
#else
#define ACQUIRE_LOCKPAGE	atomic { lock_page == 0 -> lock_page = _pid }
#endif
#define RELEASE_LOCKPAGE \
	atomic { \
		if \
		:: lock_page == _pid -> lock_page = 0 \
		:: else \
		fi \
	}

/* is_current() */
#define IS_CURRENT \
	(s == start[NODE(row)] && g == generation[NODE(row)] && \
	 ss == shadow_start && sg == shadow_generation && slot == shadow_slot)

/* aminsert of a row, after heap_insert() has put it on its page. */
proctype inserter(byte row)
{
	byte	s, g, ss, sg, slot;		/* the cached entry: PartitionedInsert */
	byte	p, pg;
	bool	again = false;			/* this is the second row with this key */

next_row:
	/* heap_insert() */
	atomic {
		heap = heap | BIT(row);
		extended = extended || row == 1
	};
	if
	:: again ->
		/* insert_many() with a remembered key: verify_entry() */
#ifndef SABOTAGE_NO_VERIFY
		atomic {
			if
			:: IS_CURRENT -> goto commit
			:: else
			fi
		}
#else
		goto commit
#endif
	:: else
	fi;
load:
	/* load_entry(), copy_entry() */
	atomic {
		s = start[NODE(row)];
		g = generation[NODE(row)];
		ss = shadow_start;
		sg = shadow_generation;
		slot = shadow_slot
	};
	if
	:: s == NONE ->
		/* bx_create_segment() */
		ACQUIRE_LOCKPAGE;
		if
		:: start[NODE(row)] == NONE ->
			atomic { take(p, pg) };
			if
			:: p == NONE -> RELEASE_LOCKPAGE; goto end	/* error; the row never commits */
			:: else
			fi;
			/* make_slices() */
			atomic { write_new(p, pg, NODE(row)) };
			/* bx_dir_publish_node(), update_top() */
			atomic {
				top_share == 0 ->
				start[NODE(row)] = p;
				generation[NODE(row)] = pg;
#ifdef SABOTAGE_TAKE_AFTER_PUBLISH
				skip
			};
			atomic { is_free[p] = false;
#endif
				check_names()
			}
		:: else
		fi;
		RELEASE_LOCKPAGE;
		p = 0; pg = 0;
		goto load
	:: else
	fi;
	/* insert_key(): the share lock on the top-level page, is_current() */
	atomic {
		if
#ifndef SABOTAGE_NO_COMPARE
		:: !IS_CURRENT -> goto load
#endif
		:: else -> top_share++
		fi
	};
#ifdef SABOTAGE_EARLY_UNLOCK
	top_share--;
#endif
	/* set_key() with the main targets: check_target(), bx_page_set_bits() */
	if
	:: s != UNKNOWN ->
		atomic {
			assert(IS_PAGE(s, g, NODE(row)));
#ifdef SABOTAGE_TEST_MAIN_ONLY
			if
			:: page_bits[s] & BIT(row) -> goto unlock
			:: else
			fi;
#endif
			page_bits[s] = page_bits[s] | BIT(row)
		}
	:: else
	fi;
#ifndef SABOTAGE_NO_SHADOW_BITS
	/* set_key() with the shadow */
	if
	:: ss != NONE && slot == NODE(row) ->
		atomic {
			assert(IS_PAGE(ss, sg, NODE(row)));
			page_bits[ss] = page_bits[ss] | BIT(row)
		}
	:: else
	fi;
#endif
unlock:
#ifndef SABOTAGE_EARLY_UNLOCK
	top_share--;
#endif
	if
	:: row == 0 && !again ->
		/*
		 * The statement continues with another row with the same key.  The
		 * first row is withdrawn, as ON CONFLICT DO NOTHING does.
		 */
		heap = heap & ~BIT(row);
		again = true;
		goto next_row
	:: true
	fi;
commit:
	committed = committed | BIT(row);
end:
	s = 0; g = 0; ss = 0; sg = 0; slot = 0; p = 0; pg = 0; again = false
}

/* bx_dir_drop_shadow() */
inline drop_shadow()
{
	old = shadow_start;
	if
	:: old != NONE ->
#ifndef SABOTAGE_FREE_BEFORE_DROP
		/* update_top() */
		atomic { top_share == 0 -> shadow_start = NONE; shadow_generation = 0; shadow_slot = 0 };
		/* bx_extents_free() */
		ACQUIRE_LOCKPAGE;
		atomic { is_free[old] = true; check_names() };
		RELEASE_LOCKPAGE
#else
		ACQUIRE_LOCKPAGE;
		atomic { is_free[old] = true; check_names() };
		RELEASE_LOCKPAGE;
		atomic { top_share == 0 -> shadow_start = NONE; shadow_generation = 0; shadow_slot = 0 }
#endif
	:: else
	fi;
	old = 0
}

/* A crash, or an error, which rebuild_node() leaves to give_up_node(). */
#define MAY_FAIL \
	if \
	:: true \
	:: turn < runs -> goto crash \
	:: turn < runs -> goto error \
	fi

/* bx_heapscan_ranges(): the rows of the node's heap pages */
inline scan_heap()
{
	/* bx_repair_scan_ranges(): RelationGetNumberOfBlocks() */
#ifndef SABOTAGE_SIZE_BEFORE_PUBLISH
	size = extended;
#endif
	keys = heap & ROWS(node) & ~BIT(1);
	if
	:: size && node == A -> keys = keys | (heap & BIT(1))
	:: else
	fi
}

proctype vacuum()
{
	byte	turn = 0;
	byte	node, old, old_generation, p, g, keys;
	bool	size, move;

	do
	:: turn < runs ->
		turn++;
		/* repair_partition() */
		drop_shadow();
		if
		:: node = A
		:: node = B
		fi;
		old = start[node];
		old_generation = generation[node];
		if
		:: old == NONE -> goto sweep
		:: old == UNKNOWN
		:: old != NONE && old != UNKNOWN && turn == 1 -> move = true	/* bx_move_compact() */
		:: old != NONE && old != UNKNOWN
		fi;
#ifdef SABOTAGE_FILL_BEFORE_PUBLISH
		if
		:: move -> keys = page_bits[old]
		:: else -> scan_heap()
		fi;
#endif
#ifdef SABOTAGE_SIZE_BEFORE_PUBLISH
		size = extended;
#endif
		/* bx_create_shadow(), bx_create_copy() */
		ACQUIRE_LOCKPAGE;
		atomic { take(p, g) };
#ifdef SABOTAGE_SAME_GENERATION
		g = (old == UNKNOWN -> g : old_generation);
#endif
		if
		:: p == NONE -> RELEASE_LOCKPAGE; goto error
		:: else
		fi;
		MAY_FAIL;
		/* make_slices() */
		atomic { write_new(p, g, node) };
		MAY_FAIL;
		/* bx_dir_publish_node(), update_top() */
		atomic {
			top_share == 0 ->
			shadow_start = p;
			shadow_generation = g;
			shadow_slot = node;
#ifdef SABOTAGE_TAKE_AFTER_PUBLISH
			skip
		};
		MAY_FAIL;
		atomic { is_free[p] = false;
#endif
			check_names()
		};
		RELEASE_LOCKPAGE;
		MAY_FAIL;
#ifndef SABOTAGE_FILL_BEFORE_PUBLISH
		if
		:: move ->
			/* move_slices(): read_rows() */
			atomic { assert(IS_PAGE(old, old_generation, node)); keys = page_bits[old] }
		:: else ->
			/* fill_shadow(): scan_ranges() */
			scan_heap()
		fi;
#endif
		MAY_FAIL;
		/* bx_slices_write() */
		atomic {
			assert(IS_PAGE(p, g, node));
			page_bits[p] = page_bits[p] | keys;
			keys = 0
		};
		MAY_FAIL;
#ifdef SABOTAGE_FREE_BEFORE_SWAP
		if
		:: old != UNKNOWN -> atomic { is_free[old] = true; check_names() }
		:: else
		fi;
#endif
		/* bx_dir_swap_shadow(), update_top() */
		atomic {
			top_share == 0 ->
			assert(shadow_start == p && start[node] == old);
			start[node] = p;
			generation[node] = g;
			shadow_start = NONE;
			shadow_generation = 0;
			shadow_slot = 0;
			check_names()
		};
		MAY_FAIL;
#ifndef SABOTAGE_FREE_BEFORE_SWAP
		/* bx_extents_free() */
		if
		:: old != UNKNOWN ->
			ACQUIRE_LOCKPAGE;
			atomic { is_free[old] = true; check_names() };
			RELEASE_LOCKPAGE
		:: else
		fi;
#endif
		goto sweep;
error:
		/* bx_repair_try(): the locks of the subtransaction are released; give_up_node() */
		RELEASE_LOCKPAGE;
		drop_shadow();
sweep:
		/* bx_extents_sweep() */
#ifndef SABOTAGE_SWEEP_WITHOUT_LOCK
		ACQUIRE_LOCKPAGE;
#endif
		atomic {
			p = 1;
			do
			:: p <= PAGES ->
				is_free[p] = (p != start[A] && p != start[B] && p != shadow_start);
				p++
			:: else -> break
			od
		};
#ifndef SABOTAGE_SWEEP_WITHOUT_LOCK
		RELEASE_LOCKPAGE;
#endif
		goto next;
crash:
		/* the server restarts; its locks are gone */
		RELEASE_LOCKPAGE;
next:
		atomic {
			node = 0; old = 0; old_generation = 0; p = 0; g = 0; keys = 0;
			size = false; move = false
		}
	:: else -> break
	od;
	turn = 0
}

/* A search in one of the segments, for the keys of all rows that its snapshot sees. */
proctype search()
{
	byte	node, snapshot, s, g;

	if
	:: node = A
	:: node = B
	fi;
#ifdef SABOTAGE_DESCRIPTOR_BEFORE_SNAPSHOT
	atomic { s = start[node]; g = generation[node] };
#endif
	/* GetSnapshotData() */
	snapshot = committed & ROWS(node);
copy:
#ifndef SABOTAGE_DESCRIPTOR_BEFORE_SNAPSHOT
	/* search_partition() copies the descriptor; bx_dir_refresh() copies it again */
	atomic { s = start[node]; g = generation[node] };
#endif
	/* search_segment(), try_probe_node() */
	if
	:: s == NONE -> assert(!snapshot)
	:: s == UNKNOWN
	:: else ->
		/* probe_slice(): bx_slices_is_page() */
		atomic {
			if
#ifndef SABOTAGE_NO_GENERATION_CHECK
			:: !IS_PAGE(s, g, node) -> goto refresh
#endif
			:: else -> assert((page_bits[s] & snapshot) == snapshot)
			fi
		}
	fi;
	goto end;
refresh:
	/* bx_dir_refresh(): an unchanged descriptor means that the index is damaged */
	atomic { assert(s != start[node] || g != generation[node]); goto copy };
end:
	node = 0; snapshot = 0; s = 0; g = 0
}

init
{
	atomic {
		if
		:: start[A] = 1;
			generation[A] = 1;
			page_generation[1] = 1;
			page_bits[1] = BIT(0)		/* the key of a row that is gone */
		:: start[A] = UNKNOWN;
			is_free[1] = true
		fi;
		is_free[2] = true;
		is_free[3] = true;
		is_free[4] = true;
		run vacuum();
		run search();
		if
		:: run inserter(0); run inserter(1)
		:: run inserter(1); run inserter(2)
		:: runs = 2; run inserter(0)
		:: runs = 2; run inserter(1)
		:: runs = 2; run inserter(2)
		fi
	}
}
