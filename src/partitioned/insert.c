/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Inserting: sets the bits of a row's keys in its segment, in the summary
 *	  and in the group.
 *
 * The range of a row belongs to one segment.  The directory entry of the
 * segment is cached from row to row.  Before it is used, it is compared with
 * the top-level page, under a share lock on that page.
 *
 * The keys of a row with few keys are inserted one by one, each with one WAL
 * record for the pages of all levels.  A row of an extracting column has many
 * keys.  These are sorted by page, level by level, so that each page is locked
 * once, and one WAL record covers several pages of a level.  Most rows share
 * keys with other rows of their range, and almost all with other rows of their
 * segment.  So the keys that the statement has set in the current range, and
 * for the current segment in the levels above, are remembered, and are not set
 * again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "partitioned.h"

StaticAssertDecl(BX_MAX_PROBES <= BX_MAX_KEY_BITS,
				 "a key sets more bits than BxPageBits has room for");
StaticAssertDecl(BX_LEVEL_GROUP <= BX_MAX_BITS_PAGES,
				 "a key sets bits in more pages than a WAL record has room for");

/* A set of keys: a hash table, in which 0 marks an empty slot. */
typedef struct KeySet
{
	uint64	   *slots;
	uint32		size;			/* slots that are used, a power of two; 0
								 * before first use */
	uint32		n;
	uint64		salt;			/* see bx_hash_position() */
} KeySet;

typedef struct PartitionedInsert
{
	bool		loaded;			/* the following fields are valid */
	uint8		lg_base;
	uint32		segment;
	BlockNumber top;
	BxNode		path[BX_TOP_LEVEL + 1]; /* the nodes of the segment's rows, by
										 * level */
	BxGroupDesc group;			/* as in the top-level page */
	BxGroupDesc group_shadow;
	BxShadow	shadow;
	bool		is_shadowed;	/* the shadow belongs to a node of the path */
	BxNode		shadow_node;	/* valid if is_shadowed */

	/*
	 * the markers already set for marked_range in the slices of the cached
	 * entry
	 */
	uint32		marked_range;
	uint64		marked[INDEX_MAX_KEYS];

	/*
	 * other keys already set: for marked_range in the slices of the cached
	 * entry, and for any range of the segment in the levels above
	 */
	KeySet		range_keys;
	KeySet		segment_keys;

	/*
	 * by level: 1 + the child that was last put in doubt, or 0; in element 0,
	 * 1 + the partition that was last marked as unfiltered
	 */
	uint64		doubtful[BX_TOP_LEVEL + 1];
} PartitionedInsert;

/*
 * A page of slices, or of a group, in which a key is to be set, pinned.
 */
typedef struct Target
{
	const BxNode *node;			/* NULL if it is a page of a group */
	const BxGroupDesc *group;
	uint32		number;			/* of the slice, or of the page in the group */
	uint32		block;			/* the key's block on a page of a group */
	Buffer		buffer;
	uint64		lh;				/* the key's hash for the level */
	int			child;			/* of the node, or the column in the group */
} Target;

/* A key is set in a page of each level, and in as many shadows. */
#define MAX_TARGETS		(2 * (BX_TOP_LEVEL + 1))

/* A row with more keys than this, besides markers, is inserted page by page. */
#define FEW_KEYS		4

/*
 * Maximum number of keys of such a row that are inserted at a time.  This
 * bounds the memory, and the time until an interrupt is noticed.
 */
#define MAX_BATCH		(16 * 1024)

/*
 * Maximum number of pages that are pinned to insert such a row: fewer if the
 * server has very few buffers.
 */
#define MAX_PINNED		Min(16, Max(NBuffers / 32, 1))

/* Maximum number of keys of such a row that are set in one page at a time. */
#define MAX_PAGE_KEYS	(BX_MAX_PAGE_BITS / BX_MAX_KEY_BITS)

/* Keys are sorted by counting them if there are at most this many pages. */
#define MAX_COUNTED_PAGES	1024

/* Bounds of the number of slots of a set of keys. */
#define MIN_SET_SIZE	1024
#define MAX_SET_SIZE	(512 * 1024)

void *
bx_partitioned_insert_begin(const BxMetaPageData *meta)
{
	return palloc0(sizeof(PartitionedInsert));
}

/*
 * Returns the number of slots of a set for n keys: at least twice as many, so
 * that a key is found after few steps.
 */
static Size
choose_set_size(Size n)
{
	Size		size = MIN_SET_SIZE;

	while (size < n * 2)
		size *= 2;
	return size;
}

/*
 * Empties a set.  The time is proportional to the number of keys in the set,
 * because sets are emptied for every range.  If the set has far more slots
 * than keys, because an earlier range had many keys, the number of slots in
 * use is reduced; the memory of the other slots is kept until the set grows
 * again.
 */
static void
clear_set(KeySet *set)
{
	if (set->n == 0)
		return;
	set->size = Min(set->size, choose_set_size((Size) set->n * 2));
	memset(set->slots, 0, sizeof(uint64) * set->size);
	set->n = 0;
}

static void
forget_marks(PartitionedInsert *state, uint32 range)
{
	state->marked_range = range;
	memset(state->marked, 0, sizeof(state->marked));
	clear_set(&state->range_keys);
}

/*
 * Copies the directory entry for a heap block.  Returns false if the index
 * has no geometry, or if the partition or the segment does not exist yet.
 */
static bool
copy_entry(PartitionedInsert *state, Relation index, BlockNumber heap_blkno)
{
	uint32		range;
	uint32		partition;
	BxTopPageData top;
	BlockNumber index_blocks = 0;
	BxGeometry	geometry;

	if (!bx_geometry_get(index, &geometry))
		return false;
	state->lg_base = geometry.lg_base;
	range = heap_blkno >> state->lg_base;
	state->segment = bx_level_node(BX_LEVEL_SEGMENT, range);
	partition = bx_level_node(BX_LEVEL_PARTITION, range);
	bx_dir_tops(index, partition, 1, &state->top);
	if (state->top == 0 || !bx_dir_read_top(index, partition, &top))
		return false;

	state->group = top.group;
	state->group_shadow = top.group_shadow;
	if (top.group.width > 0)
		bx_groups_check(index, state->top, &top.group, partition % BX_FANOUT,
						&index_blocks);
	if (top.group_shadow.width > 0)
		bx_groups_check(index, state->top, &top.group_shadow,
						partition % BX_FANOUT, &index_blocks);
	state->shadow = top.shadow;
	state->is_shadowed = false;
	for (int level = 1; level <= BX_TOP_LEVEL; level++)
	{
		BxNode	   *node = &state->path[level];

		memset(node, 0, sizeof(*node));
		node->level = level;
		node->number = bx_level_node(level, range);
		node->desc = *bx_node_desc(node, &top);
		bx_dir_check_desc(index, state->top, &node->desc, &index_blocks);
		if (top.shadow.desc.state == BX_NODE_PRESENT &&
			top.shadow.slot == bx_node_slot(node))
			state->is_shadowed = bx_node_of_shadow(partition, &top,
												   &state->shadow_node);
	}
	bx_dir_check_desc(index, state->top, &state->shadow.desc, &index_blocks);
	return state->path[BX_LEVEL_SEGMENT].desc.state != BX_NODE_EMPTY;
}

/*
 * Loads the directory entry for a heap row, and creates it if necessary.
 * Call it with no content lock held.
 */
static void
load_entry(BxInsert *insert, Relation heap, ItemPointer tid)
{
	PartitionedInsert *state = insert->layout_state;
	bool		created = false;

	state->loaded = false;
	while (!copy_entry(state, insert->index, ItemPointerGetBlockNumber(tid)))
	{
		bx_create_segment(insert->index, heap, tid, insert->keys_per_row);
		created = true;
	}
	if (created)
	{
		/*
		 * The descriptors may have changed.  The insert of a key compares
		 * them again.  insert_doubt() does not compare them, but filters that
		 * were built here contain the doubt, because the heap page of the row
		 * was read.
		 */
		bx_rebuild_after_create(heap, insert->index, state->segment);
	}
	forget_marks(state, InvalidBlockNumber);
	clear_set(&state->segment_keys);
	state->loaded = true;
}

/* Determines the page of a node's slices that a key belongs to. */
static inline void
locate_key(Target *target, const BxNode *node, uint32 range, uint64 key)
{
	target->node = node;
	target->lh = bx_filter_level_hash(key, node->level);
	target->child = bx_level_child(node->level, range);
	target->number = bx_filter_slice(target->lh, node->desc.nslices);
}

/*
 * If the node has slices, pins the page that the key belongs to, and appends
 * it to the targets.  Returns the new number of targets.
 */
static int
add_target(Target *targets, int n, Relation index, const BxNode *node,
		   uint32 range, uint64 key)
{
	Target	   *target = &targets[n];

	if (node->desc.state != BX_NODE_PRESENT)
		return n;
	locate_key(target, node, range, key);
	target->buffer = bx_page_pin(index, node->desc.start + target->number);
	return n + 1;
}

/*
 * Determines the page of a group, and the block on that page, that a key of a
 * partition belongs to.
 */
static inline void
locate_group_key(Target *target, const BxGroupDesc *group, uint32 partition,
				 uint64 key)
{
	uint32		block;

	target->node = NULL;
	target->group = group;
	target->lh = bx_filter_level_hash(key, BX_LEVEL_GROUP);
	target->child = partition % BX_FANOUT - group->first;
	block = bx_filter_slice(target->lh, group->nblocks);
	target->number = block / bx_group_page_blocks(group->width);
	target->block = block % bx_group_page_blocks(group->width);
}

/* The same for the filter of the partition in a group, if there is a group. */
static int
add_group_target(Target *targets, int n, Relation index,
				 const BxGroupDesc *group, uint32 partition, uint64 key)
{
	Target	   *target = &targets[n];

	if (group->width == 0)
		return n;
	locate_group_key(target, group, partition, key);
	target->buffer = bx_page_pin(index, group->start + target->number);
	return n + 1;
}

static bool
has_key(const Target *target)
{
	const char *content = BxPageGetContent(BufferGetPage(target->buffer));

	if (target->node == NULL)
		return bx_group_test(content, BX_SLICE_ROWS, target->group->width,
							 target->block, target->group->nprobes, target->lh,
							 target->child);
	return bx_filter_test(content, BX_SLICE_ROWS, target->node->desc.nprobes,
						  target->lh, target->child);
}

/*
 * Returns whether all bits of the key are set, and will also be set after a
 * crash if our transaction commits.  A check without a lock may see bits whose
 * WAL record has not been written yet, so its result is used only if a bit is
 * not set.  The backend that set the bits held the exclusive lock until the
 * WAL record was written, so acquiring the share lock waits for that record.
 */
static bool
surely_has_key(const Target *target)
{
	bool		result = false;

	if (has_key(target))
	{
		LockBuffer(target->buffer, BUFFER_LOCK_SHARE);
		result = has_key(target);
		LockBuffer(target->buffer, BUFFER_LOCK_UNLOCK);
	}
	return result;
}

/* Returns how many bits a key sets in the page. */
static int
count_probes(const Target *target)
{
	return target->node ? target->node->desc.nprobes : target->group->nprobes;
}

/* Appends the positions of the key's bits to *bits, which has room for them. */
static inline void
locate_bits(const Target *target, BxPageBits *bits)
{
	uint32		x = bx_filter_first(target->lh);
	int			width = target->node ? BX_FANOUT : target->group->width;
	uint32		block = target->node ? 0 : target->block;
	int			end = bits->n + count_probes(target);

	for (; bits->n < end; bits->n++)
	{
		uint32		at = bx_group_bit(BX_SLICE_ROWS, width, block,
									  bx_filter_row(x, BX_SLICE_ROWS),
									  target->child);

		bits->at[bits->n].offset = BX_CONTENT_OFFSET + at / 8;
		bits->at[bits->n].bit = 1 << (at % 8);
		x = bx_filter_next(x);
	}
}

/* Raises an error unless the page is the one that the directory describes. */
static void
check_target(Relation index, const Target *target, uint32 region)
{
	Page		page = BufferGetPage(target->buffer);

	bx_page_check(index, target->buffer,
				  target->node ? BX_PAGE_SLICE : BX_PAGE_GROUP);
	if (!(target->node ? bx_slices_is_page(page, target->node, target->number) :
		  bx_groups_is_page(page, region, target->group, target->number)))
		bx_page_corrupted(index, BufferGetBlockNumber(target->buffer),
						  BX_WRONG_PAGE);
}

/*
 * Sets the bits of a key in the targets.  There is at most one target per
 * level, upper level first.  The caller holds the share lock on the top-level
 * page, and has verified under that lock that the descriptors are current, so
 * the slices cannot be replaced meanwhile.
 *
 * Returns whether the filter of the range lacked the key until this call: the
 * result was determined under the lock under which the bits were set, so of
 * several backends that set the key, it is true for the first only.
 */
static bool
set_key(Relation index, uint32 region, const Target *targets, int n)
{
	BxPageBits	missing[BX_MAX_BITS_PAGES];
	BxPageBit	bits[BX_MAX_BITS_PAGES][BX_MAX_KEY_BITS];
	int			nmissing = 0;
	const Target *segment = NULL;
	bool		is_first;

	for (int i = 0; i < n; i++)
	{
		const Target *target = &targets[i];
		BxPageBits *page = &missing[nmissing];

		check_target(index, target, region);
		if (surely_has_key(target))
			continue;
		page->buffer = target->buffer;
		page->lower = BX_SLICE_LOWER_FULL;
		page->n = 0;
		page->at = bits[nmissing++];
		locate_bits(target, page);
		if (target->node && target->node->level == BX_LEVEL_SEGMENT)
			segment = target;
	}
	if (nmissing == 0)
		return false;
	for (int i = 0; i < nmissing; i++)
		LockBuffer(missing[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	is_first = segment != NULL && !has_key(segment);
	bx_page_set_bits(index, missing, nmissing);
	for (int i = nmissing - 1; i >= 0; i--)
		LockBuffer(missing[i].buffer, BUFFER_LOCK_UNLOCK);
	return is_first;
}

/*
 * Returns whether the cached directory entry is current.  The caller holds a
 * share lock on the top-level page.
 */
static bool
is_current(const PartitionedInsert *state, BxTopPageData *top)
{
	for (int level = 1; level <= BX_TOP_LEVEL; level++)
	{
		const BxNode *node = &state->path[level];

		if (memcmp(bx_node_desc(node, top), &node->desc,
				   sizeof(BxNodeDesc)) != 0)
			return false;
	}
	return memcmp(&top->shadow, &state->shadow, sizeof(BxShadow)) == 0 &&
		memcmp(&top->group, &state->group, sizeof(BxGroupDesc)) == 0 &&
		memcmp(&top->group_shadow, &state->group_shadow,
			   sizeof(BxGroupDesc)) == 0;
}

/*
 * Sets the bits of a key in the given range, on all levels, and in the shadow
 * if there is one.  Returns false, without setting any bit, if the directory
 * entry has changed.  Otherwise *is_first is what set_key() returns.  The
 * caller holds a pin, but no lock, on the top-level page.
 */
static bool
insert_key(PartitionedInsert *state, Relation index, Buffer topbuf,
		   uint32 range, uint64 key, bool *is_first)
{
	Target		targets[MAX_TARGETS];
	uint32		partition = bx_level_node(BX_LEVEL_PARTITION, range);
	uint32		region = partition / BX_FANOUT;
	int			nmain = 0;
	int			n;
	bool		current;

	/* read all pages before the lock is taken; the upper level first */
	nmain = add_group_target(targets, nmain, index, &state->group, partition,
							 key);
	for (int level = BX_TOP_LEVEL; level > 0; level--)
		nmain = add_target(targets, nmain, index, &state->path[level], range,
						   key);
	n = add_group_target(targets, nmain, index, &state->group_shadow, partition,
						 key);
	if (state->is_shadowed)
		n = add_target(targets, n, index, &state->shadow_node, range, key);

	BX_PAUSE(BX_PAUSE_INSERT_KEY);
	LockBuffer(topbuf, BUFFER_LOCK_SHARE);
	current = is_current(state, BxPageGetTop(BufferGetPage(topbuf)));
	if (current)
	{
		*is_first = set_key(index, region, targets, nmain);
		if (n > nmain)
			(void) set_key(index, region, targets + nmain, n - nmain);
	}
	LockBuffer(topbuf, BUFFER_LOCK_UNLOCK);
	for (int i = 0; i < n; i++)
		ReleaseBuffer(targets[i].buffer);
	return current;
}

/* A key, and the page of a node or of a group that it belongs to. */
typedef struct PageKey
{
	uint32		number;
	uint64		key;
} PageKey;

#define ST_SORT sort_page_keys
#define ST_ELEMENT_TYPE PageKey
#define ST_COMPARE(a, b) \
	((a)->number < (b)->number ? -1 : (a)->number > (b)->number)
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Returns the end of the targets that are on the page of targets[first]. */
static int
end_of_page(const Target *targets, int first, int end)
{
	int			i = first + 1;

	while (i < end && i - first < MAX_PAGE_KEYS &&
		   targets[i].number == targets[first].number)
		i++;
	return i;
}

/*
 * Returns whether a page has all keys of the targets, which are on that page,
 * and will have them after a crash if our transaction commits; see
 * surely_has_key().
 */
static bool
surely_has_keys(const Target *targets, int n)
{
	bool		result = true;

	for (int i = 0; i < n; i++)
	{
		if (!has_key(&targets[i]))
			return false;
	}
	LockBuffer(targets[0].buffer, BUFFER_LOCK_SHARE);
	for (int i = 0; i < n && result; i++)
		result = has_key(&targets[i]);
	LockBuffer(targets[0].buffer, BUFFER_LOCK_UNLOCK);
	return result;
}

/* Locks n pages of one level, in order, sets bits in them, and logs them. */
static void
set_pages(Relation index, const BxPageBits *pages, int n)
{
	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		LockBuffer(pages[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_set_bits(index, pages, n);
	for (int i = n - 1; i >= 0; i--)
		LockBuffer(pages[i].buffer, BUFFER_LOCK_UNLOCK);
}

/*
 * Sets the bits of keys in the pages of one level, which are pinned, in
 * ascending order of the pages.  The caller holds the share lock on the
 * top-level page, as in set_key().  "bits" has room for all bits.
 */
static void
set_keys(Relation index, uint32 region, const Target *targets, int n,
		 BxPageBit *bits)
{
	BxPageBits	missing[BX_MAX_BITS_PAGES];
	int			nmissing = 0;

	for (int first = 0, end; first < n; first = end)
	{
		BxPageBits *page;

		end = end_of_page(targets, first, n);
		check_target(index, &targets[first], region);
		if (surely_has_keys(targets + first, end - first))
			continue;

		/* a record has each page once */
		if (nmissing == BX_MAX_BITS_PAGES ||
			(nmissing > 0 &&
			 missing[nmissing - 1].buffer == targets[first].buffer))
		{
			set_pages(index, missing, nmissing);
			nmissing = 0;
		}
		page = &missing[nmissing++];
		page->buffer = targets[first].buffer;
		page->lower = BX_SLICE_LOWER_FULL;
		page->n = 0;
		page->at = bits;
		for (int i = first; i < end; i++)
			locate_bits(&targets[i], page);
		bits += page->n;
	}
	set_pages(index, missing, nmissing);
}

/*
 * Pins the pages of the targets from "first" on, up to MAX_PINNED pages.
 * Returns the end of the targets on these pages.
 */
static int
pin_pages(Relation index, BlockNumber start, Target *targets, int first, int n)
{
	int			npages = 0;
	int			i = first;

	for (; i < n; i++)
	{
		if (i > first && targets[i].number == targets[i - 1].number)
			targets[i].buffer = targets[i - 1].buffer;
		else if (npages++ < MAX_PINNED)
			targets[i].buffer = bx_page_pin(index, start + targets[i].number);
		else
			break;
	}
	return i;
}

static void
unpin_pages(const Target *targets, int first, int end)
{
	for (int i = first; i < end; i++)
	{
		if (i == first || targets[i].buffer != targets[i - 1].buffer)
			ReleaseBuffer(targets[i].buffer);
	}
}

/*
 * Sets the bits of keys, which are in the order of their pages, in the pages
 * of one level, or of a shadow, that begin at "start".  Returns false if the
 * directory entry has changed.  No page is read while a lock is held.
 */
static bool
insert_level(PartitionedInsert *state, Relation index, Buffer topbuf,
			 uint32 region, BlockNumber start, Target *targets, int n)
{
	BxPageBit  *bits;
	bool		current = true;

	bits = palloc(sizeof(BxPageBit) * n * count_probes(&targets[0]));
	for (int first = 0, end; first < n && current; first = end)
	{
		CHECK_FOR_INTERRUPTS();
		end = pin_pages(index, start, targets, first, n);
		BX_PAUSE(BX_PAUSE_INSERT_KEY);
		LockBuffer(topbuf, BUFFER_LOCK_SHARE);
		current = is_current(state, BxPageGetTop(BufferGetPage(topbuf)));
		if (current)
			set_keys(index, region, targets + first, end - first, bits);
		LockBuffer(topbuf, BUFFER_LOCK_UNLOCK);
		unpin_pages(targets, first, end);
	}
	pfree(bits);
	return current;
}

/*
 * Sorts keys by the numbers of their pages, which are less than "pages", into
 * another array.
 */
static void
count_page_keys(const PageKey *keys, int n, uint32 pages, PageKey *sorted)
{
	uint32		next[MAX_COUNTED_PAGES] = {0};
	uint32		sum = 0;

	for (int i = 0; i < n; i++)
		next[keys[i].number]++;
	for (uint32 page = 0; page < pages; page++)
	{
		uint32		count = next[page];

		next[page] = sum;
		sum += count;
	}
	for (int i = 0; i < n; i++)
		sorted[next[keys[i].number]++] = keys[i];
}

/*
 * Returns the keys in the order of the pages that they belong to.  A key
 * belongs to one of nparts parts, which are slices, or blocks of a group, and
 * a page has page_parts of them.
 */
static PageKey *
sort_by_page(int level, uint32 nparts, uint32 page_parts, const uint64 *keys,
			 int n)
{
	PageKey    *unsorted = palloc(sizeof(PageKey) * n);
	uint32		pages = (nparts - 1) / page_parts + 1;
	PageKey    *sorted;

	for (int i = 0; i < n; i++)
	{
		unsorted[i].key = keys[i];
		unsorted[i].number = bx_filter_slice(bx_filter_level_hash(keys[i],
																  level),
											 nparts) / page_parts;
	}
	if (pages > MAX_COUNTED_PAGES || pages / 4 > n)
	{
		sort_page_keys(unsorted, n);
		return unsorted;
	}
	sorted = palloc(sizeof(PageKey) * n);
	count_page_keys(unsorted, n, pages, sorted);
	pfree(unsorted);
	return sorted;
}

/* insert_level() for a node, if it has slices. */
static bool
insert_node(PartitionedInsert *state, Relation index, Buffer topbuf,
			uint32 range, const BxNode *node, const uint64 *keys, int n)
{
	PageKey    *sorted;
	Target	   *targets;
	bool		current;

	if (node->desc.state != BX_NODE_PRESENT || n == 0)
		return true;
	sorted = sort_by_page(node->level, node->desc.nslices, 1, keys, n);
	targets = palloc(sizeof(Target) * n);
	for (int i = 0; i < n; i++)
		locate_key(&targets[i], node, range, sorted[i].key);
	current = insert_level(state, index, topbuf, 0, node->desc.start, targets,
						   n);
	pfree(sorted);
	pfree(targets);
	return current;
}

/* insert_level() for the filter of the partition in a group, if it has one. */
static bool
insert_group(PartitionedInsert *state, Relation index, Buffer topbuf,
			 uint32 range, const BxGroupDesc *group, const uint64 *keys, int n)
{
	uint32		partition = bx_level_node(BX_LEVEL_PARTITION, range);
	PageKey    *sorted;
	Target	   *targets;
	bool		current;

	if (group->width == 0 || n == 0)
		return true;
	sorted = sort_by_page(BX_LEVEL_GROUP, group->nblocks,
						  bx_group_page_blocks(group->width), keys, n);
	targets = palloc(sizeof(Target) * n);
	for (int i = 0; i < n; i++)
		locate_group_key(&targets[i], group, partition, sorted[i].key);
	current = insert_level(state, index, topbuf, partition / BX_FANOUT,
						   group->start, targets, n);
	pfree(sorted);
	pfree(targets);
	return current;
}

/* Returns the slot of a key in a set that has slots. */
static inline uint64 *
find_slot(const KeySet *set, uint64 key)
{
	int			shift = 64 - pg_leftmost_one_pos32(set->size);
	uint32		i = bx_hash_position(key, set->salt, shift);

	while (set->slots[i] != 0 && set->slots[i] != key)
		i = (i + 1) & (set->size - 1);
	return &set->slots[i];
}

/*
 * Ensures that n more keys can be added to a set, unless the set would become
 * too large.  Returns whether they can be added.
 */
static bool
reserve_slots(KeySet *set, MemoryContext cxt, int n)
{
	KeySet		old = *set;
	Size		size = choose_set_size((Size) set->n + n);

	if (size > MAX_SET_SIZE)
		return false;
	if (size > old.size)
	{
		set->slots = MemoryContextAllocZero(cxt, sizeof(uint64) * size);
		set->size = size;
		set->salt = bx_hash_salt();
		for (uint32 i = 0; i < old.size; i++)
		{
			if (old.slots[i] != 0)
				*find_slot(set, old.slots[i]) = old.slots[i];
		}
		if (old.slots != NULL)
			pfree(old.slots);
	}
	return true;
}

/*
 * Adds keys to a set, unless the set would become too large.  Copies the keys
 * that were not in the set to to[], and returns their number.
 */
static int
add_to_set(KeySet *set, MemoryContext cxt, const uint64 *keys, int n,
		   uint64 *to)
{
	bool		adds = reserve_slots(set, cxt, n);
	int			added = 0;

	for (int i = 0; i < n; i++)
	{
		/* the set never contains 0, which marks an empty slot */
		if (set->size > 0 && keys[i] != 0)
		{
			uint64	   *slot = find_slot(set, keys[i]);

			if (*slot == keys[i])
				continue;
			if (adds)
			{
				*slot = keys[i];
				set->n++;
			}
		}
		to[added++] = keys[i];
	}
	return added;
}

/*
 * Sets the bits of n keys in the levels above the segment, and in the shadows
 * of these levels.  Returns false if the directory entry has changed.
 */
static bool
insert_above(PartitionedInsert *state, Relation index, Buffer topbuf,
			 uint32 range, const uint64 *keys, int n)
{
	bool		current = insert_group(state, index, topbuf, range,
									   &state->group, keys, n);

	for (int level = BX_TOP_LEVEL; level > BX_LEVEL_SEGMENT && current; level--)
		current = insert_node(state, index, topbuf, range, &state->path[level],
							  keys, n);
	current = current && insert_group(state, index, topbuf, range,
									  &state->group_shadow, keys, n);
	if (state->is_shadowed && state->shadow_node.level > BX_LEVEL_SEGMENT)
		current = current && insert_node(state, index, topbuf, range,
										 &state->shadow_node, keys, n);
	return current;
}

/*
 * Sets the bits of n keys in the given range, on all levels, and in shadows,
 * page by page; in the levels above the segment only those of nabove keys.
 * Returns false if the directory entry has changed; some bits may have been
 * set then.
 */
static bool
insert_keys(PartitionedInsert *state, Relation index, Buffer topbuf,
			uint32 range, const uint64 *keys, int n, const uint64 *above,
			int nabove)
{
	if (!insert_above(state, index, topbuf, range, above, nabove) ||
		!insert_node(state, index, topbuf, range,
					 &state->path[BX_LEVEL_SEGMENT], keys, n))
		return false;
	return !state->is_shadowed ||
		state->shadow_node.level != BX_LEVEL_SEGMENT ||
		insert_node(state, index, topbuf, range, &state->shadow_node, keys, n);
}

/*
 * Verifies that the cached directory entry is current, without setting any
 * bit.
 */
static bool
verify_entry(PartitionedInsert *state, Buffer topbuf)
{
	bool		current;

	LockBuffer(topbuf, BUFFER_LOCK_SHARE);
	current = is_current(state, BxPageGetTop(BufferGetPage(topbuf)));
	LockBuffer(topbuf, BUFFER_LOCK_UNLOCK);
	return current;
}

/*
 * Adds a batch of keys of a row with many keys, at most MAX_BATCH keys.  Keys
 * that an earlier row, or an earlier batch, has set in the same slices need
 * not be set again, if the slices are still current.
 */
static void
insert_batch(BxInsert *insert, Relation heap, ItemPointer tid, Buffer topbuf,
			 uint32 range, const uint64 *batch, int nbatch)
{
	PartitionedInsert *state = insert->layout_state;
	MemoryContext cxt = GetMemoryChunkContext(state);
	uint64	   *keys = palloc(sizeof(uint64) * nbatch);
	uint64	   *above = palloc(sizeof(uint64) * nbatch);

	for (;;)
	{
		int			n;
		int			nabove;

		/* an error must not leave keys in the sets that are not in the index */
		state->loaded = false;
		n = add_to_set(&state->range_keys, cxt, batch, nbatch, keys);
		nabove = add_to_set(&state->segment_keys, cxt, keys, n, above);
		if (insert_keys(state, insert->index, topbuf, range, keys, n, above,
						nabove) &&
			verify_entry(state, topbuf))
			break;
		load_entry(insert, heap, tid);
		forget_marks(state, range);
	}
	state->loaded = true;
	pfree(keys);
	pfree(above);
}

/* Adds many keys of a row, in batches. */
static void
insert_many(BxInsert *insert, Relation heap, ItemPointer tid, Buffer topbuf,
			uint32 range, const uint64 *keys, int nkeys)
{
	for (int first = 0; first < nkeys; first += MAX_BATCH)
	{
		CHECK_FOR_INTERRUPTS();
		insert_batch(insert, heap, tid, topbuf, range, keys + first,
					 Min(nkeys - first, MAX_BATCH));
	}
}

/*
 * Adds the keys of a row to the filters of all levels; see BxLayout.  Call it
 * with no content lock held.  No lock or pin is held on exit.  Creates the
 * segment if it does not exist.
 */
bool
bx_partitioned_insert(BxInsert *insert, Relation heap, ItemPointer tid,
					  const BxRowKeys *row)
{
	PartitionedInsert *state = insert->layout_state;
	Relation	index = insert->index;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	uint32		range;
	int			first = 0;
	bool		result = false;
	Buffer		topbuf;

	if (!state->loaded ||
		bx_level_node(BX_LEVEL_SEGMENT, blkno >> state->lg_base) != state->segment)
		load_entry(insert, heap, tid);
	range = blkno >> state->lg_base;
	if (range != state->marked_range)
		forget_marks(state, range);

	topbuf = ReadBuffer(index, state->top);
	if (row->nvalues > FEW_KEYS || state->range_keys.n > 0)
	{
		/* only insert_key() says whether the last key is new in the range */
		first = row->nvalues;
		if (index->rd_index->indisexclusion && first > 0)
			first--;
		insert_many(insert, heap, tid, topbuf, range, row->keys, first);
	}
	for (int i = first; i < row->nkeys; i++)
	{
		uint64	   *mark = i < row->nvalues ? NULL :
		&state->marked[i - row->nvalues];
		bool		is_first = false;

		/*
		 * A marker that an earlier row has set in the same slices need not be
		 * set again: the comparison for the value's key has just shown that
		 * the slices are still current.
		 */
		if (mark && *mark == row->keys[i] && row->nvalues > 0)
			continue;
		while (!insert_key(state, index, topbuf, range, row->keys[i],
						   &is_first))
		{
			load_entry(insert, heap, tid);
			forget_marks(state, range);
		}
		if (mark)
			*mark = row->keys[i];
		else if (i == row->nvalues - 1)
			result = is_first;
	}
	ReleaseBuffer(topbuf);
	return result;
}

/* Makes the filter of a child match everything, in all slices of the node. */
static void
doubt_child(Relation index, const BxNode *node, int child)
{
	char	   *rows = palloc0(BX_SLICE_SIZE);
	BxMask		doubt;

	bx_mask_fill(&doubt, false);
	bx_mask_set(&doubt, child);
	bx_slices_set_doubt(rows, &doubt);
	for (uint32 slice = 0; slice < node->desc.nslices; slice++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_slices_write(index, node, slice, rows, true);
	}
	pfree(rows);
}

/*
 * Puts the range of a heap page in doubt in its segment, puts the segment in
 * doubt in the summary, sets the flag in both descriptors so that VACUUM
 * rebuilds them, and marks the partition as unfiltered.  The caller holds a
 * lock on the heap that excludes VACUUM, so no other backend changes the
 * descriptors of nodes that have slices.
 */
void
bx_partitioned_insert_doubt(BxInsert *insert, Relation heap, ItemPointer tid)
{
	PartitionedInsert *state = insert->layout_state;
	BxRegionChange change = {.is_unfiltered = true};
	uint32		range;
	uint32		partition;

	load_entry(insert, heap, tid);
	range = ItemPointerGetBlockNumber(tid) >> state->lg_base;
	partition = bx_level_node(BX_LEVEL_PARTITION, range);
	if (state->doubtful[0] != partition + UINT64CONST(1))
	{
		LockPage(insert->index, BX_METAPAGE_BLKNO, ExclusiveLock);
		bx_dir_update_region(insert->index, partition, &change);
		UnlockPage(insert->index, BX_METAPAGE_BLKNO, ExclusiveLock);
	}
	state->doubtful[0] = partition + UINT64CONST(1);
	for (int level = BX_TOP_LEVEL; level > 0; level--)
	{
		BxNode	   *node = &state->path[level];
		uint64		mark = (range >> bx_levels[level].lg_child_ranges) +
		UINT64CONST(1);

		if (node->desc.state != BX_NODE_PRESENT ||
			state->doubtful[level] == mark)
			continue;
		doubt_child(insert->index, node, bx_level_child(level, range));
		node->desc.flags |= BX_DESC_DOUBT;
		bx_dir_publish_node(insert->index, node);
		state->doubtful[level] = mark;
	}
}
