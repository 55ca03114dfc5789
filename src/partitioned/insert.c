/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Inserting: sets the bits of a row's keys in its segment and in the
 *	  summary.
 *
 * The range of a row belongs to one segment.  The directory entry of the
 * segment is cached from row to row.  Before it is used, it is compared with
 * the top-level page, under a share lock on that page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

StaticAssertDecl(BX_MAX_PROBES <= BX_MAX_KEY_BITS,
				 "a key sets more bits than BxPageBits has room for");

typedef struct PartitionedInsert
{
	bool		loaded;			/* the following fields are valid */
	uint8		lg_base;
	uint32		segment;
	BlockNumber top;
	BxNodeDesc	summary;
	BxNodeDesc	node;
	BxShadow	shadow;

	/*
	 * the markers already set for marked_range in the slices of the cached
	 * entry
	 */
	uint32		marked_range;
	uint64		marked[INDEX_MAX_KEYS];

	/* 1 + the segment that was last put in doubt in its summary, or 0 */
	uint64		doubtful;
} PartitionedInsert;

/* A slice page in which a key is to be set, pinned. */
typedef struct SliceTarget
{
	int			level;
	uint32		node;
	uint32		slice;
	const BxNodeDesc *desc;
	Buffer		buffer;
	uint64		lh;				/* the key's hash for the level */
	int			child;
} SliceTarget;

void *
bx_partitioned_insert_begin(const BxMetaPageData *meta)
{
	return palloc0(sizeof(PartitionedInsert));
}

static void
forget_marks(PartitionedInsert *state, uint32 range)
{
	state->marked_range = range;
	memset(state->marked, 0, sizeof(state->marked));
}

/*
 * Copies the directory entry for a heap block.  Returns false if the index
 * has no geometry, or if the partition or the segment does not exist yet.
 */
static bool
copy_entry(PartitionedInsert *state, Relation index, BlockNumber heap_blkno)
{
	uint32		partition;
	Buffer		buffer;
	BxTopPageData *top;
	BlockNumber index_blocks = 0;
	BxGeometry	geometry;

	if (!bx_geometry_get(index, &geometry))
		return false;
	state->lg_base = geometry.lg_base;
	state->segment = (heap_blkno >> state->lg_base) / BX_FANOUT;
	partition = state->segment / BX_FANOUT;
	bx_dir_tops(index, partition, 1, &state->top);
	if (state->top == 0)
		return false;

	buffer = ReadBuffer(index, state->top);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_dir_check_top(index, buffer, partition);
	top = BxPageGetTop(BufferGetPage(buffer));
	state->summary = top->self;
	state->node = top->child[state->segment % BX_FANOUT];
	state->shadow = top->shadow;
	UnlockReleaseBuffer(buffer);

	bx_dir_check_desc(index, state->top, &state->summary, &index_blocks);
	bx_dir_check_desc(index, state->top, &state->node, &index_blocks);
	bx_dir_check_desc(index, state->top, &state->shadow.desc, &index_blocks);
	return state->node.state != BX_NODE_EMPTY;
}

/*
 * Loads the directory entry for a heap row, and creates it if necessary.
 * Call it with no content lock held.
 */
static void
load_entry(PartitionedInsert *state, Relation index, Relation heap,
		   ItemPointer tid)
{
	state->loaded = false;
	while (!copy_entry(state, index, ItemPointerGetBlockNumber(tid)))
		bx_dir_make_segment(index, heap, tid);
	forget_marks(state, InvalidBlockNumber);
	state->loaded = true;
}

/*
 * If the node has slices, pins the page that the key belongs to, and appends
 * it to the targets.  Returns the new number of targets.
 */
static int
add_target(SliceTarget *targets, int n, Relation index, int level, uint32 node,
		   const BxNodeDesc *desc, int child, uint64 key)
{
	SliceTarget *target = &targets[n];

	if (desc->state != BX_NODE_PRESENT)
		return n;
	target->level = level;
	target->node = node;
	target->desc = desc;
	target->lh = bx_filter_level_hash(key, level);
	target->child = child;
	target->slice = bx_filter_slice(target->lh, desc->nslices);
	target->buffer = ReadBuffer(index, desc->start + target->slice);
	return n + 1;
}

static bool
has_key(const SliceTarget *target)
{
	return bx_filter_test(BxPageGetContent(BufferGetPage(target->buffer)),
						  BX_SLICE_ROWS, target->desc->nprobes, target->lh,
						  target->child);
}

/*
 * Returns whether all bits of the key are set, and will also be set after a
 * crash if our transaction commits.  A check without lock may see bits whose
 * WAL record has not been written yet, so its result is only used if it is
 * "no".  Whoever set the bits held the exclusive lock until the WAL record
 * was written, so the share lock waits for that record.
 */
static bool
surely_has_key(const SliceTarget *target)
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

/* Computes the positions of the key's bits. */
static void
locate_bits(const SliceTarget *target, BxPageBits *bits)
{
	uint32		x = bx_filter_first(target->lh);

	bits->buffer = target->buffer;
	bits->lower = BX_SLICE_LOWER_FULL;
	bits->n = target->desc->nprobes;
	for (int i = 0; i < bits->n; i++)
	{
		bits->at[i].offset = BX_CONTENT_OFFSET +
			bx_filter_row(x, BX_SLICE_ROWS) * BX_ROW_BYTES +
			(target->child >> 3);
		bits->at[i].bit = 1 << (target->child & 7);
		x = bx_filter_next(x);
	}
}

/*
 * Sets the bits of a key in the targets.  There is at most one target per
 * level, upper level first.  The caller holds the share lock on the top-level
 * page, and has verified under that lock that the descriptors are current, so
 * the slices cannot be replaced meanwhile.
 */
static void
set_key(Relation index, const SliceTarget *targets, int n)
{
	BxPageBits	missing[BX_MAX_BITS_PAGES];
	int			nmissing = 0;

	for (int i = 0; i < n; i++)
	{
		const SliceTarget *target = &targets[i];
		Buffer		buffer = target->buffer;

		bx_page_check(index, buffer, BX_PAGE_SLICE);
		if (!bx_slices_is_page(BufferGetPage(buffer), target->level,
							   target->node, target->slice, target->desc))
			bx_page_corrupted(index, BufferGetBlockNumber(buffer),
							  "not the page that the directory says");
		if (!surely_has_key(target))
			locate_bits(target, &missing[nmissing++]);
	}
	if (nmissing == 0)
		return;
	for (int i = 0; i < nmissing; i++)
		LockBuffer(missing[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_set_bits(index, missing, nmissing);
	for (int i = nmissing - 1; i >= 0; i--)
		LockBuffer(missing[i].buffer, BUFFER_LOCK_UNLOCK);
}

/*
 * Sets the bits of a key in the given range, on all levels, and in the shadow
 * if there is one.  Returns false, without setting any bit, if the directory
 * entry has changed.  The caller holds a pin, but no lock, on the top-level
 * page.
 */
static bool
insert_key(PartitionedInsert *state, Relation index, Buffer topbuf,
		   uint32 range, uint64 key)
{
	BxTopPageData *top = BxPageGetTop(BufferGetPage(topbuf));
	int			child = range % BX_FANOUT;
	int			up = state->segment % BX_FANOUT;
	uint32		partition = state->segment / BX_FANOUT;
	SliceTarget targets[BX_MAX_BITS_PAGES + 1];
	int			nmain = 0;
	int			n;
	bool		current;

	/* read all pages before the lock is taken */
	nmain = add_target(targets, nmain, index, BX_LEVEL_PARTITION, partition,
					   &state->summary, up, key);
	nmain = add_target(targets, nmain, index, BX_LEVEL_SEGMENT,
					   state->segment, &state->node, child, key);
	n = nmain;
	if (state->shadow.level == BX_LEVEL_PARTITION)
		n = add_target(targets, n, index, BX_LEVEL_PARTITION, partition,
					   &state->shadow.desc, up, key);
	else if (state->shadow.child == up)
		n = add_target(targets, n, index, BX_LEVEL_SEGMENT, state->segment,
					   &state->shadow.desc, child, key);

	BX_PAUSE(BX_PAUSE_INSERT_KEY);
	LockBuffer(topbuf, BUFFER_LOCK_SHARE);
	current = memcmp(&top->self, &state->summary, sizeof(BxNodeDesc)) == 0 &&
		memcmp(&top->child[up], &state->node, sizeof(BxNodeDesc)) == 0 &&
		memcmp(&top->shadow, &state->shadow, sizeof(BxShadow)) == 0;
	if (current)
	{
		set_key(index, targets, nmain);
		if (n > nmain)
			set_key(index, targets + nmain, n - nmain);
	}
	LockBuffer(topbuf, BUFFER_LOCK_UNLOCK);
	for (int i = 0; i < n; i++)
		ReleaseBuffer(targets[i].buffer);
	return current;
}

/*
 * Adds the keys of a row to its segment and its summary, one key at a time;
 * see BxLayout.  Call it with no content lock held.  No lock or pin is held
 * on exit.  Creates the segment if it does not exist.
 */
void
bx_partitioned_insert(BxInsert *insert, Relation heap, ItemPointer tid,
					  const BxRowKeys *row)
{
	PartitionedInsert *state = insert->layout_state;
	Relation	index = insert->index;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	uint32		range;
	Buffer		topbuf;

	if (!state->loaded ||
		(blkno >> state->lg_base) / BX_FANOUT != state->segment)
		load_entry(state, index, heap, tid);
	range = blkno >> state->lg_base;
	if (range != state->marked_range)
		forget_marks(state, range);

	topbuf = ReadBuffer(index, state->top);
	for (int i = 0; i < row->nkeys; i++)
	{
		uint64	   *mark = i < row->nvalues ? NULL :
		&state->marked[i - row->nvalues];

		/*
		 * A marker that an earlier row has set in the same slices need not be
		 * set again: the comparison for the value's key has just shown that
		 * the slices are still current.
		 */
		if (mark && *mark == row->keys[i] && row->nvalues > 0)
			continue;
		while (!insert_key(state, index, topbuf, range, row->keys[i]))
		{
			load_entry(state, index, heap, tid);
			forget_marks(state, range);
		}
		if (mark)
			*mark = row->keys[i];
	}
	ReleaseBuffer(topbuf);
}

/* Makes the filter of a child match everything, in all slices of the node. */
static void
doubt_child(Relation index, int level, uint32 node, const BxNodeDesc *desc,
			int child)
{
	char	   *rows = palloc0(BX_SLICE_SIZE);
	BxMask		doubt;

	bx_mask_fill(&doubt, false);
	bx_mask_set(&doubt, child);
	bx_slices_set_doubt(rows, &doubt);
	for (uint32 slice = 0; slice < desc->nslices; slice++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_slices_write(index, level, node, desc, slice, rows, true);
	}
	pfree(rows);
}

/*
 * Puts the range of a heap page in doubt in its segment, puts the segment in
 * doubt in the summary, and sets the flag in both descriptors so that VACUUM
 * rebuilds them.  The caller holds a lock on the heap that excludes VACUUM,
 * so no other backend changes the descriptors of nodes that have slices.
 */
void
bx_partitioned_insert_doubt(BxInsert *insert, Relation heap, ItemPointer tid)
{
	PartitionedInsert *state = insert->layout_state;
	Relation	index = insert->index;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	uint32		partition;
	int			up;

	load_entry(state, index, heap, tid);
	partition = state->segment / BX_FANOUT;
	up = state->segment % BX_FANOUT;
	if (state->summary.state == BX_NODE_PRESENT &&
		state->doubtful != state->segment + UINT64CONST(1))
	{
		doubt_child(index, BX_LEVEL_PARTITION, partition, &state->summary, up);
		state->summary.flags |= BX_DESC_DOUBT;
		bx_dir_update_top(index, partition, BX_CHILD_SELF, &state->summary,
						  NULL);
		state->doubtful = state->segment + UINT64CONST(1);
	}
	if (state->node.state == BX_NODE_PRESENT)
	{
		doubt_child(index, BX_LEVEL_SEGMENT, state->segment, &state->node,
					(blkno >> state->lg_base) % BX_FANOUT);
		state->node.flags |= BX_DESC_DOUBT;
		bx_dir_update_top(index, partition, up, &state->node, NULL);
	}
}
