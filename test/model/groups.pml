/*
 * groups.pml
 *	  Layout "partitioned": inserts, a search and VACUUM on the groups of a
 *	  region.  VACUUM merges groups, or rebuilds the filter of a partition.
 *
 * The region has three partitions with one row each.  A group has one page.
 * Bit r of a page stands for the bits of row r, in the column of partition r.
 * The slices of the partitions are left out: a partition that the groups do
 * not exclude counts as found.
 *
 * The region page is changed and copied in atomic steps, and so are the
 * top-level pages, except that an inserter holds the share lock on its
 * top-level page until its bits are set.
 */
#define PARTITIONS	3
#define PAGES		4			/* blocks 1 .. PAGES */
#define MAX_GROUPS	3			/* BX_MAX_GROUPS */
#define NONE		0
#define ALL			7

#define BIT(p)		(1 << (p))

/* the metapage */
byte	listed[PAGES + 1];		/* how often a block is in the list of free extents */
byte	next_generation = 3;

/* the region page */
byte	tops = 0;				/* partitions that exist */
byte	unfiltered = ALL;
byte	ngroups = 0;
byte	group_start[MAX_GROUPS];
byte	group_generation[MAX_GROUPS];
byte	group_members[MAX_GROUPS];		/* the partitions that the group contains */

/* the top-level pages; a group is identified by its generation, 0: none */
byte	top_group[PARTITIONS];
byte	top_shadow[PARTITIONS];
byte	top_share[PARTITIONS];	/* holders of the share lock */

/* where each generation is, which no descriptor of it contradicts */
byte	start_of[8];

/* group pages */
byte	page_generation[PAGES + 1];
byte	page_bits[PAGES + 1];

byte	heap = 0;
byte	committed = 0;
byte	lock_page = 0;			/* who has LockPage on the metapage */
byte	new_members;			/* the group that VACUUM makes: its partitions */
bool	may_fail = true;		/* VACUUM fails at any point, and another one follows */
bool	from_heap = false;		/* bx_refilter_partition(), not bx_merge_region() */

#define ACQUIRE_LOCKPAGE	atomic { lock_page == 0 -> lock_page = _pid }
#define RELEASE_LOCKPAGE \
	atomic { \
		if \
		:: lock_page == _pid -> lock_page = 0 \
		:: else \
		fi \
	}

/* The directory names the block of a group. */
#define IN_REGION(g) \
	((ngroups > 0 && group_generation[0] == (g)) || (ngroups > 1 && group_generation[1] == (g)) || \
	 (ngroups > 2 && group_generation[2] == (g)))
#define IN_TOPS(g) \
	(top_group[0] == (g) || top_group[1] == (g) || top_group[2] == (g) || \
	 top_shadow[0] == (g) || top_shadow[1] == (g) || top_shadow[2] == (g))

/*
 * No block is both named and free, or listed as free twice, and two
 * generations that are named have different blocks.
 */
inline check_names()
{
	d_step {
		x = 1;
		do
		:: x < next_generation ->
			if
			:: IN_REGION(x) || IN_TOPS(x) ->
				assert(listed[start_of[x]] == 0);
				y = x + 1;
				do
				:: y < next_generation ->
					assert(start_of[y] != start_of[x] || !(IN_REGION(y) || IN_TOPS(y)));
					y++
				:: else -> break
				od
			:: else
			fi;
			x++
		:: else -> break
		od;
		x = 1;
		do
		:: x <= PAGES -> assert(listed[x] <= 1); x++
		:: else -> break
		od;
		x = 0; y = 0
	}
}

/* bx_extents_take(), in memory: the generation and the block */
inline choose(g, p)
{
	d_step {
		g = next_generation;
		p = 1;
		do
		:: p <= PAGES && listed[p] == 0 -> p++
		:: else -> break
		od;
		if
		:: p > PAGES -> p = NONE
		:: else
		fi
	}
}

/* take_group(): bx_meta_write() */
inline write_meta(g, p)
{
	next_generation = g + 1;
	start_of[g] = p;
	listed[p] = 0
}

/* bx_groups_find(), or 0 if no group contains the partition */
inline find_group(p, g)
{
	d_step {
		g = 0;
		x = 0;
		do
		:: x < ngroups ->
			if
			:: group_members[x] & BIT(p) -> g = group_generation[x]
			:: else
			fi;
			x++
		:: else -> break
		od;
		x = 0
	}
}

/* bx_dir_update_region() with change.group */
inline append_group(g, members)
{
#ifndef SABOTAGE_ENTER_IN_FRONT
	group_start[ngroups] = start_of[g];
	group_generation[ngroups] = g;
	group_members[ngroups] = members;
#else
	x = ngroups;
	do
	:: x > 0 ->
		group_start[x] = group_start[x - 1];
		group_generation[x] = group_generation[x - 1];
		group_members[x] = group_members[x - 1];
		x--
	:: else -> break
	od;
	group_start[0] = start_of[g];
	group_generation[0] = g;
	group_members[0] = members;
#endif
	ngroups++
}

/* aminsert of row p, into partition p */
proctype inserter(byte p)
{
	byte	g, s, b, x, y;

	/* heap_insert() */
	heap = heap | BIT(p);
load:
	/* load_entry(), copy_entry() */
	if
	:: !(tops & BIT(p)) ->
		/* bx_create_segment(), make_partition() */
#ifndef SABOTAGE_CREATE_WITHOUT_LOCK
		ACQUIRE_LOCKPAGE;
#endif
		/* provide_group(): bx_dir_read_region() */
		atomic { find_group(p, g) };
		if
		:: g == 0 && ngroups < MAX_GROUPS ->
			/* plan_group(), take_group() */
			atomic { choose(s, b) };
			if
			:: b == NONE -> goto fail
			:: else
			fi;
			atomic { write_meta(s, b) };
			if
			:: true
			:: goto fail				/* an error; the row never commits */
			fi;
			/* write_empty_group() */
			atomic { page_generation[b] = s; page_bits[b] = 0; b = 0 }
		:: else
		fi;
		/* bx_dir_make_top(), bx_dir_publish_top(): one WAL record */
		atomic {
			if
			:: g != 0 -> top_group[p] = g
			:: g == 0 && s != 0 && ngroups == MAX_GROUPS -> goto fail
			:: g == 0 && s != 0 && ngroups < MAX_GROUPS -> append_group(s, BIT(p)); top_group[p] = s
			:: else					/* no filter */
			fi;
			if
			:: top_group[p] != 0 -> unfiltered = unfiltered & ~BIT(p)
			:: else
			fi;
			tops = tops | BIT(p);
			top_shadow[p] = 0;
			check_names()
		};
		RELEASE_LOCKPAGE;
		g = 0; s = 0;
		goto load
	:: else
	fi;
	atomic { g = top_group[p]; s = top_shadow[p] };
	/* insert_key(): the share lock, is_current() */
	atomic {
		if
		:: g != top_group[p] || s != top_shadow[p] -> goto load
		:: else -> top_share[p]++
		fi
	};
	/* set_key() with the main targets: check_target() */
	if
	:: g != 0 ->
		atomic {
			assert(page_generation[start_of[g]] == g);
			page_bits[start_of[g]] = page_bits[start_of[g]] | BIT(p)
		}
	:: else
	fi;
#ifndef SABOTAGE_NO_SHADOW_BITS
	/* set_key() with the shadow of the group */
	if
	:: s != 0 ->
		atomic {
			assert(page_generation[start_of[s]] == s);
			page_bits[start_of[s]] = page_bits[start_of[s]] | BIT(p)
		}
	:: else
	fi;
#endif
	top_share[p]--;
	committed = committed | BIT(p);
	goto end;
fail:
	RELEASE_LOCKPAGE;
end:
	g = 0; s = 0; b = 0
}

/* bx_dir_set_group() with group and shadow; group 0 leaves the group as it is */
inline set_group(p, group, shadow)
{
	atomic {
		top_share[p] == 0 ->
		if
		:: (group) != 0 -> top_group[p] = group
		:: else
		fi;
		top_shadow[p] = shadow;
		check_names()
	}
}

/* bx_regroup_settle() */
inline settle()
{
	/* bx_dir_read_region(); of the copy only the generations of shadows matter */
	c = 0;
	do
	:: c < PARTITIONS ->
		if
		:: (tops & BIT(c)) && top_shadow[c] != 0 ->
#ifndef SABOTAGE_SETTLE_DROPS
			if
			:: IN_REGION(top_shadow[c]) -> set_group(c, top_shadow[c], 0)
			:: else -> set_group(c, 0, 0)
			fi
#else
			set_group(c, 0, 0)
#endif
		:: else
		fi;
		c++
	:: else -> break
	od;
	c = 0
}

/* bx_extents_free() */
inline free_block(b)
{
	ACQUIRE_LOCKPAGE;
	atomic { listed[b]++; check_names() };
	RELEASE_LOCKPAGE
}

/* is_group_used(): current, or in a top-level page; sets c to whether it is */
inline is_used(i)
{
	c = 0;
	y = 0;
	do
	:: y < PARTITIONS ->
		if
		:: (group_members[i] & BIT(y)) && (tops & BIT(y)) ->
			find_group(y, g2);
			if
			:: !(unfiltered & BIT(y)) && g2 == group_generation[i] -> c = 1
			:: else
			fi;
#ifndef SABOTAGE_IGNORE_TOPS
			if
			:: top_group[y] == group_generation[i] || top_shadow[y] == group_generation[i] -> c = 1
			:: else
			fi
#endif
		:: else
		fi;
		y++
	:: else -> break
	od;
	y = 0;
	g2 = 0
}

/* bx_regroup_remove_unused() */
inline remove_unused()
{
	do
	:: true ->
		ACQUIRE_LOCKPAGE;
		atomic {
			n = 0;
			unused = 0;
			do
			:: n < ngroups ->
				is_used(n);
				if
				:: c == 0 -> unused = group_generation[n]; break
				:: else -> n++
				fi
			:: else -> break
			od;
			c = 0;
#ifdef SABOTAGE_FREE_BEFORE_REMOVE
			if
			:: unused != 0 -> listed[start_of[unused]]++; check_names()
			:: else
			fi;
#endif
			/* bx_dir_update_region() with change.removed: remove_group() */
			if
			:: unused != 0 ->
				do
				:: n + 1 < ngroups ->
					group_start[n] = group_start[n + 1];
					group_generation[n] = group_generation[n + 1];
					group_members[n] = group_members[n + 1];
					n++
				:: else -> break
				od;
				ngroups--;
				group_start[ngroups] = 0;
				group_generation[ngroups] = 0;
				group_members[ngroups] = 0
			:: else
			fi;
			n = 0
		};
		RELEASE_LOCKPAGE;
		if
		:: unused == 0 -> break
#ifndef SABOTAGE_FREE_BEFORE_REMOVE
		:: else -> free_block(start_of[unused])
#else
		:: else
#endif
		fi
	od
}

/* A crash, or an error, which bx_repair_try() leaves to bx_regroup_abandon(). */
#define MAY_FAIL \
	if \
	:: true \
	:: may_fail && turn == 1 -> goto crash \
	:: may_fail && turn == 1 -> goto error \
	fi

/* Step 5 */
inline switch_members()
{
	c = 0;
	do
	:: c < PARTITIONS ->
		if
		:: members & BIT(c) -> set_group(c, g, 0); MAY_FAIL
		:: else
		fi;
		c++
	:: else -> break
	od;
	c = 0
}

/* Step 4: enter_group() */
inline enter()
{
	ACQUIRE_LOCKPAGE;
	/* bx_dir_read_region() */
	complete = true;
#ifndef SABOTAGE_NO_MEMBER_CHECK
	complete = (tops & new_members & ~members) == 0;
#endif
#ifdef SABOTAGE_ENTER_WITHOUT_LOCK
	RELEASE_LOCKPAGE;
#endif
	/* bx_dir_update_region(), which raises an error if the page is full */
	if
	:: complete ->
		atomic {
			if
			:: ngroups == MAX_GROUPS -> goto error
			:: else -> append_group(g, new_members)
			fi;
			if
			:: from_heap -> unfiltered = unfiltered & ~new_members	/* is_filtered */
			:: else
			fi;
			check_names()
		}
	:: else
	fi;
	RELEASE_LOCKPAGE
}

proctype vacuum()
{
	byte	turn = 0;
	byte	g, b, members, planned, source, keys, unused;
	byte	c, n, x, y, g2;
	bool	complete;

	do
	:: turn < (may_fail -> 2 : 1) ->
		turn++;
		/* bx_rebuild_index(): settle_region() */
#ifndef SABOTAGE_NO_SETTLE
		settle();
#endif
		remove_unused();
		if
		:: turn == 2 && !from_heap && ngroups < 2 -> goto sweep		/* are_groups_mergeable() */
		:: turn == 2 && from_heap && !(unfiltered & new_members) -> goto sweep	/* filter_needs_rebuild() */
		:: else
		fi;
		/* plan_merge() from a copy of the region page */
		planned = tops;

		/* Step 1: bx_regroup_begin(), bx_create_group(), take_group() */
		ACQUIRE_LOCKPAGE;
		atomic { choose(g, b) };
		if
		:: b == NONE || ngroups == MAX_GROUPS -> b = NONE; goto error
		:: else
		fi;
#ifndef SABOTAGE_START_BEFORE_META
		/* take_group(): an error in bx_meta_write() leaves group->start 0, so that the pages are not freed */
		if
		:: true
		:: may_fail && turn == 1 -> b = NONE; goto error
		fi;
#else
		MAY_FAIL;
#endif
		atomic { write_meta(g, b) };
		RELEASE_LOCKPAGE;
		MAY_FAIL;
		/* write_empty_group() */
		atomic { page_generation[b] = g; page_bits[b] = 0 };
		MAY_FAIL;
#ifdef SABOTAGE_FILL_BEFORE_PUBLISH
		keys = (from_heap -> heap & new_members :
				(page_bits[1] | page_bits[2]) & new_members);
#endif

		/* Step 2: bx_dir_read_region(), bx_dir_set_group() */
		source = tops;
		do
		:: c < PARTITIONS ->
			if
			:: source & new_members & BIT(c) ->
				set_group(c, 0, g);
				members = members | BIT(c);
				MAY_FAIL
			:: else
			fi;
			c++
		:: else -> break
		od;
		c = 0; source = 0;
#ifndef SABOTAGE_NO_NEW_MEMBER_CHECK
		/* has_new_member() */
		if
		:: !from_heap && (members & ~planned) -> goto error		/* bx_regroup_abandon() */
		:: else
		fi;
#endif
#ifdef SABOTAGE_ENTER_BEFORE_FILL
		enter();
		if
		:: !complete -> goto error
		:: else
		fi;
#endif

		/* Step 3 */
#ifndef SABOTAGE_FILL_BEFORE_PUBLISH
		if
		:: from_heap -> keys = heap & new_members		/* refilter.c: fill_group(), scan_partition() */
		:: else ->
			/* merge.c: fill_group(), copy_group(), for the partitions in the plan */
			do
			:: c < PARTITIONS ->
				if
				:: (members & planned & BIT(c)) && !(unfiltered & BIT(c)) ->
					atomic {
						/* filter_group(): the region page has the group that it had when planned */
						find_group(c, g2);
						assert(g2 != 0 && page_generation[start_of[g2]] == g2);
						keys = keys | (page_bits[start_of[g2]] & BIT(c));
						g2 = 0
					}
				:: else
				fi;
				c++
			:: else -> break
			od;
			c = 0
		fi;
#endif
		/* bx_groups_merge_page(), bx_column_write() */
		atomic {
			assert(page_generation[b] == g);
			page_bits[b] = page_bits[b] | keys;
			keys = 0
		};
		MAY_FAIL;
#ifdef SABOTAGE_SWITCH_BEFORE_ENTER
		switch_members();
#endif
#ifndef SABOTAGE_ENTER_BEFORE_FILL
		enter();
		if
		:: !complete -> goto error						/* bx_regroup_abandon() */
		:: else
		fi;
#endif
		MAY_FAIL;
#ifndef SABOTAGE_SWITCH_BEFORE_ENTER
		switch_members();
#endif
		/* Step 6 */
		remove_unused();
		goto sweep;
error:
		/* bx_repair_try() releases the locks; bx_regroup_abandon() */
		RELEASE_LOCKPAGE;
		c = 0;
		settle();
		if
		:: b != NONE && !IN_REGION(g) -> free_block(b)
		:: else
		fi;
sweep:
		/* bx_extents_sweep() */
		ACQUIRE_LOCKPAGE;
		d_step {
			c = 1;
			do
			:: c <= PAGES -> listed[c] = 1; c++
			:: else -> break
			od;
			c = 1;
			do
			:: c < next_generation ->
				if
				:: IN_REGION(c) || IN_TOPS(c) -> listed[start_of[c]] = 0
				:: else
				fi;
				c++
			:: else -> break
			od;
			c = 0
		};
		RELEASE_LOCKPAGE;
		goto next;
crash:
		RELEASE_LOCKPAGE;
next:
		atomic {
			g = 0; b = 0; members = 0; planned = 0; source = 0; keys = 0; unused = 0;
			c = 0; n = 0; x = 0; y = 0; g2 = 0; complete = false
		}
	:: else -> break
	od
}

/* A search for the key of one row. */
proctype search(byte p)
{
	byte	g, x;
	bool	seen;

	/* GetSnapshotData() */
	seen = (committed & BIT(p)) != 0;
	/* bx_partitioned_search(): bx_dir_tops() */
	assert(!seen || (tops & BIT(p)));
copy:
	/* probe_region(): bx_dir_read_region(); try_probe_region(): find_live_columns() */
	atomic {
		if
		:: !(tops & BIT(p)) || (unfiltered & BIT(p)) -> g = 0
		:: else -> find_group(p, g); assert(g != 0)
		fi
	};
	if
	:: g != 0 ->
		/* probe_group_page(): bx_groups_is_page() */
		atomic {
			if
#ifndef SABOTAGE_NO_GENERATION_CHECK
			:: page_generation[start_of[g]] != g -> goto refresh
#endif
			:: else -> assert(!seen || (page_bits[start_of[g]] & BIT(p)))
			fi
		}
	:: else
	fi;
	goto end;
refresh:
	/* bx_groups_check_gone() */
	atomic { assert(!IN_REGION(g)); goto copy };
end:
	g = 0; seen = false
}

/* A group that exists at the beginning, with the bits of rows that are gone left out. */
inline initial_group(g, members)
{
	start_of[g] = g;
	page_generation[g] = g;
	group_start[ngroups] = g;
	group_generation[ngroups] = g;
	group_members[ngroups] = members;
	ngroups++
}

init
{
	atomic {
		listed[1] = 1; listed[2] = 1; listed[3] = 1; listed[4] = 1;
		if
		:: /* partition 0 has a filter, but is in doubt */
			initial_group(1, 1); top_group[0] = 1; listed[1] = 0;
			tops = 1; unfiltered = 7; new_members = 1; from_heap = true
		:: /* two groups are merged; partition 2 does not exist yet, but its place in the group does */
			initial_group(1, 1); top_group[0] = 1; listed[1] = 0;
			initial_group(2, 2); top_group[1] = 2; listed[2] = 0;
			tops = 3; unfiltered = 4; new_members = 7
		:: /* a group with a place for partition 1, which does not exist yet, is shrunk */
			initial_group(1, 3); top_group[0] = 1; listed[1] = 0;
			tops = 1; unfiltered = 6; new_members = 3
		:: /* the filter of partition 0 is too full */
			initial_group(1, 1); top_group[0] = 1; listed[1] = 0;
			tops = 1; unfiltered = 6; new_members = 1; from_heap = true
		:: /* partition 0 has no filter */
			tops = 1; unfiltered = 7; new_members = 1; from_heap = true
		fi;
		run vacuum();
		if
		:: run inserter(0); run search(0)
		:: run inserter(1); run search(1)
		:: run inserter(2); run search(2)
		/* a second insert matters where it creates a partition */
		:: new_members != 7 && !(unfiltered & 1) -> may_fail = false; run inserter(0); run inserter(1); run search(0)
		:: new_members == 7 -> may_fail = false; run inserter(1); run inserter(2); run search(2)
		fi
	}
}
