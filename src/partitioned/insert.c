/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Inserting: the keys of a row go to a segment and its summary.
 *
 * A row's range belongs to one segment, whose directory entry is remembered
 * from row to row and compared under the top-level page's share lock before
 * it is relied on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

typedef struct PartitionedInsert
{
	bool		loaded;			/* the rest is valid */
	uint8		lg_base;
	uint32		segment;
	BlockNumber top;
	BxNodeDesc	summary;
	BxNodeDesc	node;
	BxShadow	shadow;

	/* the markers that have been set in these slices for this range */
	uint32		marked_range;
	uint64		marked[INDEX_MAX_KEYS];

	/* 1 + the last segment that was put in doubt in its summary, or 0 */
	uint64		doubtful;
} PartitionedInsert;

/* A slice page that is to get a key, pinned. */
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

/* Copies the directory entry for a heap block; false if there is none yet. */
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

/* Loads the directory entry for a heap row, and makes it if there is none. */
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

/* Pins the page of a node that the key belongs in, if the node has slices. */
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
 * Whether the key's bits are all set, and will be after a crash, if our commit
 * is.  A look without lock may see bits whose WAL record is not written yet:
 * it is good enough for "no" only.  The share lock waits for that record.
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

/* Where the key's bits are. */
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
 * Sets a key's bits in the pages, of which there is at most one for each
 * level, upper level first.  The caller holds the top-level page's share lock
 * and has seen there that the descriptors are current, so the pages cannot
 * change hands meanwhile.
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
 * Sets the bits of a key of a row in this range, on all levels, and in the
 * shadow if there is one.  Returns false, with nothing done, if the directory
 * entry has changed.  The caller has pinned the top-level page.
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

	/* all reading is done before the lock is taken */
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
		 * A marker that an earlier row has set in these very slices is set:
		 * the value's key has just found that they are still current.
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

/* Makes a child's filter in the slices of a node match everything. */
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
 * Puts the range of a heap page in doubt, and its segment in the summary, and
 * flags it for VACUUM.  The caller has the lock on the heap that keeps VACUUM
 * out, so nobody else changes the entries of nodes that have slices.
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
