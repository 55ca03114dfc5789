/*-------------------------------------------------------------------------
 *
 * partitioned.c
 *	  Layout "partitioned": a tree of nodes, each with the filters of its 128
 *	  children stored transposed in slice pages.
 *
 * Build, insert and search in turn.  src/README has the picture, the order of
 * locks and the proofs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "lib/hyperloglog.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "bloomidx.h"
#include "compat.h"

/*
 * A first partition of fewer segments than this gets no summary: reading all
 * its segments is cheap, and the summary would be larger than they are.
 */
#define MIN_SEGMENTS_FOR_SUMMARY	32

/* With fewer children than this, plan for no less than the predecessor. */
#define FEW_CHILDREN				8

/*
 * Building
 * --------
 *
 * A node's keys are collected in memory until all of them are known; only then
 * is its size chosen.  If they do not fit, the size is chosen from what has
 * come so far, and bits are written as often as the memory is full.
 */

/* Keys of one child that lie together in NodeBuild.keys. */
typedef struct Run
{
	int			child;
	Size		end;
} Run;

typedef struct NodeBuild
{
	BxBuild    *build;
	int			level;
	uint32		node;
	double		rate;			/* target */
	Size		limit;			/* keys that may be kept in memory */

	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	Run			runs[BX_FANOUT];
	int			nruns;
	BxMask		doubt;			/* children whose filter must match all */

	/* for the size: distinct keys of the children that are complete */
	double		squares;
	int			nchildren;
	double		open_keys;		/* and of the one that is not */
	double		open_done;		/* how much of it is done */

	BxNodeDesc	previous;		/* the last node built on this level */
	BxNodeDesc	desc;			/* state is present once it has slices */
} NodeBuild;

typedef struct PartitionedBuild
{
	NodeBuild	segment;
	NodeBuild	partition;
	bool		summarize;		/* the partition gets a summary */
	bool		started;		/* there is a segment and partition at work */
	BxTopPageData top;			/* directory of the partition at work */
	hyperLogLogState distinct;	/* keys of the segment at work */
	double		segment_rates;	/* sums, for the statistics */
	double		summary_rates;
} PartitionedBuild;

static void
node_init(NodeBuild *nb, BxBuild *build, int level, double rate, Size memory)
{
	memset(nb, 0, sizeof(*nb));
	nb->build = build;
	nb->level = level;
	nb->rate = rate;
	nb->limit = memory / sizeof(uint64);
	nb->allocated = Min(nb->limit, 8192);
	nb->keys = palloc(sizeof(uint64) * nb->allocated);
}

/* Starts the next node of the level. */
static void
node_start(NodeBuild *nb, uint32 node)
{
	nb->node = node;
	nb->nkeys = 0;
	nb->nruns = 0;
	bx_mask_fill(&nb->doubt, false);
	nb->squares = 0;
	nb->nchildren = 0;
	nb->open_keys = nb->open_done = 0;
	if (nb->desc.state == BX_NODE_PRESENT)
		nb->previous = nb->desc;
	memset(&nb->desc, 0, sizeof(nb->desc));
}

/* Keys per child that the node should be planned for. */
static double
node_planned_keys(NodeBuild *nb)
{
	double		keys = 0;

	if (nb->nchildren > 0)
		keys = sqrt(nb->squares / nb->nchildren);
	else if (nb->open_done > 0)
		keys = nb->open_keys / nb->open_done;
	if (nb->nchildren < FEW_CHILDREN && nb->previous.state == BX_NODE_PRESENT)
		keys = Max(keys, nb->previous.keys);
	return keys;
}

/* Sets the bits of the collected keys that fall into slices first .. + n. */
static void
set_window_bits(NodeBuild *nb, char *window, uint32 first, uint32 n)
{
	Size		slice_size = (Size) BX_SLICE_ROWS * BX_ROW_BYTES;
	Size		i = 0;

	memset(window, 0, slice_size * n);
	for (int r = 0; r < nb->nruns; r++)
	{
		for (; i < nb->runs[r].end; i++)
		{
			uint64		lh = bx_filter_level_hash(nb->keys[i], nb->level);
			uint32		slice = bx_filter_slice(lh, nb->desc.nslices);

			if (slice >= first && slice - first < n)
				bx_filter_add(window + slice_size * (slice - first),
							  BX_SLICE_ROWS, nb->desc.nprobes, lh,
							  nb->runs[r].child);
		}
	}
	if (!bx_mask_is_empty(&nb->doubt))
	{
		for (Size row = 0; row < (Size) n * BX_SLICE_ROWS; row++)
			bx_mask_or((BxMask *) (window + row * BX_ROW_BYTES), &nb->doubt);
	}
}

/* ORs rows into a slice page of the index that is being built. */
static void
add_rows(Relation index, BlockNumber blkno, const char *rows)
{
	Buffer		buffer = ReadBuffer(index, blkno);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	for (int r = 0; r < BX_SLICE_ROWS; r++)
	{
		Size		offset = (Size) r * BX_ROW_BYTES;

		bx_mask_or((BxMask *) (BxPageGetContent(page) + offset),
				   (const BxMask *) (rows + offset));
	}
	((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/*
 * Writes the bits of all collected keys, and forgets them.  Makes the node's
 * slices if this is the first time.  Works on as many slices at once as fit
 * into an eighth of the memory.
 */
static void
node_flush(NodeBuild *nb)
{
	Size		slice_size = (Size) BX_SLICE_ROWS * BX_ROW_BYTES;
	uint32		window_size;
	char	   *window;

	if (nb->desc.state != BX_NODE_PRESENT)
		bx_dir_alloc_slices(nb->build->index, nb->level, nb->node,
							node_planned_keys(nb), nb->rate,
							nb->build->meta->next_generation++, &nb->desc,
							false);
	window_size = Max(nb->build->memory / 8 / slice_size, 1);
	window_size = Min(window_size, nb->desc.nslices);
	window = palloc_extended(slice_size * window_size, MCXT_ALLOC_HUGE);
	for (uint32 first = 0; first < nb->desc.nslices; first += window_size)
	{
		uint32		n = Min(window_size, nb->desc.nslices - first);

		CHECK_FOR_INTERRUPTS();
		set_window_bits(nb, window, first, n);
		for (uint32 i = 0; i < n; i++)
			add_rows(nb->build->index, nb->desc.start + first + i,
					 window + slice_size * i);
	}
	pfree(window);
	nb->nkeys = 0;
	nb->nruns = 0;
}

/* Adds keys to a child; children come in order. */
static void
node_add(NodeBuild *nb, int child, const uint64 *keys, Size n)
{
	while (n > 0)
	{
		Size		part;

		if (nb->nkeys == nb->limit)
			node_flush(nb);
		if (nb->nkeys == nb->allocated)
		{
			nb->allocated = Min(nb->allocated * 2, nb->limit);
			nb->keys = repalloc_huge(nb->keys,
									 sizeof(uint64) * nb->allocated);
		}
		part = Min(n, nb->allocated - nb->nkeys);
		memcpy(nb->keys + nb->nkeys, keys, sizeof(uint64) * part);
		nb->nkeys += part;
		keys += part;
		n -= part;
		if (nb->nruns == 0 || nb->runs[nb->nruns - 1].child != child)
			nb->runs[nb->nruns++].child = child;
		nb->runs[nb->nruns - 1].end = nb->nkeys;
	}
}

/* Says how many distinct keys the current child has so far. */
static void
node_note_child(NodeBuild *nb, double keys, double done)
{
	nb->open_keys = keys;
	nb->open_done = done;
}

/* The current child is complete. */
static void
node_close_child(NodeBuild *nb)
{
	if (nb->open_keys > 0)
	{
		nb->squares += nb->open_keys * nb->open_keys;
		nb->nchildren++;
	}
	nb->open_keys = nb->open_done = 0;
}

/* Completes the node; nb->desc describes it. */
static void
node_finish(NodeBuild *nb)
{
	if (nb->nkeys > 0 || !bx_mask_is_empty(&nb->doubt))
		node_flush(nb);
}

static double
planned_rate(const BxNodeDesc *desc)
{
	return bx_filter_rate(desc->keys, desc->nslices, BX_SLICE_ROWS,
						  desc->nprobes);
}

static void
finish_segment(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;
	BxStats    *stats = &build->meta->stats;

	node_close_child(&pb->segment);

	/* ranges may have keys in common, which the sum has counted twice */
	node_note_child(&pb->partition, estimateHyperLogLog(&pb->distinct), 1.0);
	node_close_child(&pb->partition);
	freeHyperLogLog(&pb->distinct);
	node_finish(&pb->segment);
	pb->top.child[pb->segment.node % BX_FANOUT] = pb->segment.desc;
	if (pb->segment.desc.state == BX_NODE_PRESENT)
	{
		stats->segments++;
		stats->slices += pb->segment.desc.nslices;
		pb->segment_rates += planned_rate(&pb->segment.desc);
	}
}

static void
finish_partition(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;
	BxStats    *stats = &build->meta->stats;

	if (pb->summarize)
	{
		node_finish(&pb->partition);
		pb->top.self = pb->partition.desc;
		stats->summarized++;
		pb->summary_rates += planned_rate(&pb->top.self);
	}
	else
		pb->top.self.state = BX_NODE_UNKNOWN;
	bx_dir_add_partition(build->index, build->meta, pb->partition.node,
						 &pb->top, false);
	stats->partitions++;
}

static void
start_segment(BxBuild *build, uint32 segment)
{
	PartitionedBuild *pb = build->layout_state;

	node_start(&pb->segment, segment);
	initHyperLogLog(&pb->distinct, 10);
}

static void
start_partition(BxBuild *build, uint32 partition)
{
	PartitionedBuild *pb = build->layout_state;
	uint32		ranges_per_segment = BX_FANOUT;
	uint64		segments = (build->heap_blocks >> build->lg_base) /
		ranges_per_segment;

	node_start(&pb->partition, partition);
	memset(&pb->top, 0, sizeof(pb->top));
	pb->summarize = partition > 0 || segments >= MIN_SEGMENTS_FOR_SUMMARY;
}

static void
partitioned_build_begin(BxBuild *build)
{
	PartitionedBuild *pb = palloc0(sizeof(PartitionedBuild));

	node_init(&pb->segment, build, BX_LEVEL_SEGMENT,
			  build->meta->false_positive_rate, build->memory / 8);
	node_init(&pb->partition, build, BX_LEVEL_PARTITION, BX_SUMMARY_RATE,
			  build->memory / 2);
	build->layout_state = pb;
}

/* Takes keys of a range; see BxLayout. */
static void
partitioned_build_add(BxBuild *build, uint32 range, double done,
					  const uint64 *keys, Size nkeys, bool doubt)
{
	PartitionedBuild *pb = build->layout_state;
	uint32		segment = range / BX_FANOUT;
	uint32		partition = segment / BX_FANOUT;
	int			child = range % BX_FANOUT;

	if (!pb->started || segment != pb->segment.node)
	{
		bool		next = !pb->started || partition != pb->partition.node;

		if (pb->started)
			finish_segment(build);
		if (pb->started && next)
			finish_partition(build);
		if (next)
			start_partition(build, partition);
		start_segment(build, segment);
		pb->started = true;
	}

	/* note the counts first: adding may need them to choose the size */
	node_note_child(&pb->segment, pb->segment.open_keys + nkeys, done);
	node_add(&pb->segment, child, keys, nkeys);
	if (doubt)
		bx_mask_set(&pb->segment.doubt, child);

	if (pb->summarize)
	{
		int			up = segment % BX_FANOUT;

		for (Size i = 0; i < nkeys; i++)
			addHyperLogLog(&pb->distinct, (uint32) (keys[i] >> 32));
		node_note_child(&pb->partition, pb->partition.open_keys + nkeys,
						(child + done) / BX_FANOUT);
		node_add(&pb->partition, up, keys, nkeys);
		if (doubt)
			bx_mask_set(&pb->partition.doubt, up);
	}
	if (done >= 1.0)
		node_close_child(&pb->segment);
}

static void
partitioned_build_end(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;
	BxStats    *stats = &build->meta->stats;

	if (pb->started)
	{
		finish_segment(build);
		finish_partition(build);
	}
	if (stats->segments > 0)
		stats->segment_rate = pb->segment_rates / stats->segments;
	if (stats->summarized > 0)
		stats->summary_rate = pb->summary_rates / stats->summarized;
	pfree(pb->segment.keys);
	pfree(pb->partition.keys);
	pfree(pb);
}

/*
 * Inserting
 * ---------
 *
 * A row's range belongs to one segment, whose directory entry is remembered
 * from row to row and compared under the top-level page's share lock before
 * it is relied on.
 */
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
} PartitionedInsert;

/* A slice page that is to get a key, pinned. */
typedef struct SliceTarget
{
	int			level;
	uint32		node;
	uint32		slice;
	const BxNodeDesc *desc;
	BxTarget	bits;
} SliceTarget;

static void *
partitioned_insert_begin(Relation index)
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
	uint8		layout;

	if (!bx_dir_geometry(index, &layout, &state->lg_base))
		return false;
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
	target->bits.lh = bx_filter_level_hash(key, level);
	target->bits.nprobes = desc->nprobes;
	target->bits.child = child;
	target->slice = bx_filter_slice(target->bits.lh, desc->nslices);
	target->bits.buffer = ReadBuffer(index, desc->start + target->slice);
	return n + 1;
}

static bool
has_key(const SliceTarget *target)
{
	return bx_filter_test(BxPageGetContent(BufferGetPage(target->bits.buffer)),
						  BX_SLICE_ROWS, target->bits.nprobes,
						  target->bits.lh, target->bits.child);
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
		LockBuffer(target->bits.buffer, BUFFER_LOCK_SHARE);
		result = has_key(target);
		LockBuffer(target->bits.buffer, BUFFER_LOCK_UNLOCK);
	}
	return result;
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
	BxTarget	missing[BX_MAX_TARGETS];
	int			nmissing = 0;

	for (int i = 0; i < n; i++)
	{
		const SliceTarget *target = &targets[i];
		Buffer		buffer = target->bits.buffer;

		if (!bx_page_is_slice(BufferGetPage(buffer), target->level,
							  target->node, target->slice, target->desc))
			bx_page_corrupted(index, BufferGetBlockNumber(buffer),
							  "not the page that the directory says");
		if (!surely_has_key(target))
			missing[nmissing++] = target->bits;
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
	SliceTarget targets[BX_MAX_TARGETS + 1];
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
		ReleaseBuffer(targets[i].bits.buffer);
	return current;
}

static void
partitioned_insert(BxInsert *insert, Relation heap, ItemPointer tid,
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

/*
 * Searching
 * ---------
 *
 * A search goes down the tree: the slices of a node tell, for each element,
 * which children may hold it, and only these are visited, with only the
 * elements that may be there.  Elements are kept in the order of their slices,
 * which is the same for all nodes of a level, so each page is read once.
 */
typedef struct Probe
{
	uint64		lh;				/* the element's hash for the level */
	int			element;
} Probe;

typedef struct SearchState
{
	BxSearch   *search;
	Relation	index;
	BlockNumber index_blocks;
	int			prefetch;		/* pages to ask for ahead */
	Probe	   *probes[BX_LEVEL_PARTITION + 1]; /* by level */
	Probe	   *candidates;		/* those for the segment at hand */
	BxMask	   *masks[BX_LEVEL_PARTITION + 1];	/* by level, then element */
	BxMask	   *key_masks;
} SearchState;

/* Where a node's descriptor stands: an entry of a pinned top-level page. */
typedef struct NodeRef
{
	int			level;
	uint32		node;
	Buffer		topbuf;
	BxNodeDesc	desc;			/* a copy, perhaps old */
} NodeRef;

#define ST_SORT sort_probes
#define ST_ELEMENT_TYPE Probe
#define ST_COMPARE(a, b) \
	((uint32) (a)->lh < (uint32) (b)->lh ? -1 : (uint32) (a)->lh > (uint32) (b)->lh)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static void
init_search_state(SearchState *state, BxSearch *search)
{
	const BxQuery *query = search->query;

	state->search = search;
	state->index = search->index;
	state->index_blocks = 0;
	state->prefetch =
		get_tablespace_io_concurrency(search->index->rd_rel->reltablespace);
	state->prefetch = Min(state->prefetch, 32);
	for (int level = BX_LEVEL_SEGMENT; level <= BX_LEVEL_PARTITION; level++)
	{
		Probe	   *probes = palloc(sizeof(Probe) * query->nelements);

		for (int i = 0; i < query->nelements; i++)
		{
			probes[i].lh = bx_filter_level_hash(query->elements[i].hash, level);
			probes[i].element = i;
		}
		sort_probes(probes, query->nelements);
		state->probes[level] = probes;
		state->masks[level] = palloc(sizeof(BxMask) * query->nelements);
	}
	state->candidates = palloc(sizeof(Probe) * query->nelements);
	state->key_masks = palloc(sizeof(BxMask) * query->nkeys);
}

/*
 * Copies a node's descriptor from its directory page anew.  Returns whether
 * it has changed.
 */
static bool
refresh_desc(SearchState *state, NodeRef *ref)
{
	BxTopPageData *top = BxPageGetTop(BufferGetPage(ref->topbuf));
	BxNodeDesc *current = ref->level == BX_LEVEL_PARTITION ? &top->self :
		&top->child[ref->node % BX_FANOUT];
	bool		changed;

	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	changed = memcmp(current, &ref->desc, sizeof(BxNodeDesc)) != 0;
	ref->desc = *current;
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);
	return changed;
}

static BlockNumber
slice_block(const BxNodeDesc *desc, const Probe *probe)
{
	return desc->start + bx_filter_slice(probe->lh, desc->nslices);
}

/* Asks for the first of the pages that probing the node will read. */
static void
prefetch_node(SearchState *state, const NodeRef *ref, const Probe *probes)
{
	if (state->prefetch > 0 && ref->desc.state == BX_NODE_PRESENT)
		PrefetchBuffer(state->index, MAIN_FORKNUM,
					   slice_block(&ref->desc, &probes[0]));
}

/*
 * Reads the slice of probes[first] and sets the masks of all probes that fall
 * into it.  Returns the number of the next probe, or -1 if the page is not
 * what the descriptor says.
 */
static int
probe_slice(SearchState *state, const NodeRef *ref, const Probe *probes,
			int first, int n)
{
	BlockNumber blkno = slice_block(&ref->desc, &probes[first]);
	Buffer		buffer = ReadBuffer(state->index, blkno);
	Page		page = BufferGetPage(buffer);
	int			i = first;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (bx_page_is_slice(page, ref->level, ref->node, blkno - ref->desc.start,
						 &ref->desc))
	{
		bx_test_for_old_snapshot(state->search->snapshot, state->index, page);
		for (; i < n && slice_block(&ref->desc, &probes[i]) == blkno; i++)
			bx_filter_probe(BxPageGetContent(page), BX_SLICE_ROWS,
							ref->desc.nprobes, probes[i].lh,
							&state->masks[ref->level][probes[i].element]);
	}
	else
		i = -1;
	UnlockReleaseBuffer(buffer);
	return i;
}

/*
 * Probes all slices of a node that are needed.  Returns false if the slices
 * were replaced meanwhile, so that it has to be done again.
 */
static bool
try_probe_node(SearchState *state, NodeRef *ref, const Probe *probes, int n)
{
	int			ahead = 0;
	int			distance = 0;

	bx_dir_check_desc(state->index, BufferGetBlockNumber(ref->topbuf),
					  &ref->desc, &state->index_blocks);
	if (ref->desc.state != BX_NODE_PRESENT)
	{
		for (int i = 0; i < n; i++)
			bx_mask_fill(&state->masks[ref->level][probes[i].element],
						 ref->desc.state == BX_NODE_UNKNOWN);
		return true;
	}
	for (int i = 0; i < n;)
	{
		int			next;

		CHECK_FOR_INTERRUPTS();

		/* keep some distinct slices on their way, if there are several */
		for (; n > 1 && ahead < n && distance < state->prefetch; ahead++)
		{
			BlockNumber blkno = slice_block(&ref->desc, &probes[ahead]);

			if (ahead > 0 && blkno == slice_block(&ref->desc,
												  &probes[ahead - 1]))
				continue;
			PrefetchBuffer(state->index, MAIN_FORKNUM, blkno);
			distance++;
		}
		next = probe_slice(state, ref, probes, i, n);
		if (next < 0)
		{
			BlockNumber blkno = slice_block(&ref->desc, &probes[i]);

			if (refresh_desc(state, ref))
				return false;
			bx_page_corrupted(state->index, blkno,
							  "not the page that the directory says");
		}
		i = next;
		distance--;
	}
	return true;
}

/*
 * Sets the mask of each probe's element to the children of the node that may
 * hold it, and *result to those that may match the whole query.
 */
static void
probe_node(SearchState *state, NodeRef *ref, const Probe *probes, int n,
		   BxMask *result)
{
	const BxQuery *query = state->search->query;
	BxMask	   *masks = state->masks[ref->level];

	while (!try_probe_node(state, ref, probes, n))
		;
	for (int k = 0; k < query->nkeys; k++)
		bx_mask_fill(&state->key_masks[k], false);
	for (int i = 0; i < n; i++)
	{
		int			element = probes[i].element;

		bx_mask_or(&state->key_masks[query->elements[element].key],
				   &masks[element]);
	}
	bx_mask_fill(result, true);
	for (int k = 0; k < query->nkeys; k++)
		bx_mask_and(result, &state->key_masks[k]);
}

/* The probes of the elements that a segment may hold, by the summary. */
static int
choose_candidates(SearchState *state, int child)
{
	int			n = 0;

	for (int i = 0; i < state->search->query->nelements; i++)
	{
		const Probe *probe = &state->probes[BX_LEVEL_SEGMENT][i];

		if (bx_mask_test(&state->masks[BX_LEVEL_PARTITION][probe->element],
						 child))
			state->candidates[n++] = *probe;
	}
	return n;
}

static void
search_segment(SearchState *state, NodeRef *ref)
{
	int			n = choose_candidates(state, ref->node % BX_FANOUT);
	BxMask		ranges;

	probe_node(state, ref, state->candidates, n, &ranges);
	for (int r = bx_mask_next(&ranges, 0); r < BX_FANOUT;
		 r = bx_mask_next(&ranges, r + 1))
		bx_scan_add_range(state->search, ref->node * BX_FANOUT + r);
}

/* Pins a partition's top-level page and copies the summary's descriptor. */
static void
open_partition(SearchState *state, NodeRef *ref, uint32 partition,
			   BlockNumber top)
{
	ref->level = BX_LEVEL_PARTITION;
	ref->node = partition;
	ref->topbuf = ReadBuffer(state->index, top);
	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	bx_dir_check_top(state->index, ref->topbuf, partition);
	ref->desc = BxPageGetTop(BufferGetPage(ref->topbuf))->self;
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);
}

/* Searches a partition, and lets go of its top-level page. */
static void
search_partition(SearchState *state, NodeRef *ref)
{
	BxMask		matching;
	int			nsegments = 0;
	NodeRef		segments[BX_FANOUT];
	BxTopPageData *top = BxPageGetTop(BufferGetPage(ref->topbuf));

	probe_node(state, ref, state->probes[BX_LEVEL_PARTITION],
			   state->search->query->nelements, &matching);

	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	for (int c = bx_mask_next(&matching, 0); c < BX_FANOUT;
		 c = bx_mask_next(&matching, c + 1))
	{
		NodeRef    *segment = &segments[nsegments];

		if (top->child[c].state == BX_NODE_EMPTY)
			continue;
		segment->level = BX_LEVEL_SEGMENT;
		segment->node = ref->node * BX_FANOUT + c;
		segment->topbuf = ref->topbuf;
		segment->desc = top->child[c];
		nsegments++;
	}
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);

	for (int i = 0; i < nsegments; i++)
	{
		/* which slices several elements need is known only when it comes to it */
		if (i + 1 < nsegments && state->search->query->nelements == 1)
			prefetch_node(state, &segments[i + 1],
						  state->probes[BX_LEVEL_SEGMENT]);
		search_segment(state, &segments[i]);
	}
	ReleaseBuffer(ref->topbuf);
}

/*
 * Searches all partitions of the heap, with the top-level pages and summaries
 * of the next ones on their way.
 */
static void
partitioned_search(BxSearch *search)
{
	SearchState state;
	uint64		ranges;
	uint32		npartitions;
	BlockNumber *tops;
	NodeRef    *opened;
	int			lead;

	if (search->heap_blocks == 0)
		return;
	ranges = ((uint64) (search->heap_blocks - 1) >> search->lg_base) + 1;
	npartitions = (ranges - 1) / BX_RANGES_PER_PARTITION + 1;
	tops = palloc(sizeof(BlockNumber) * npartitions);
	bx_dir_tops(search->index, 0, npartitions, tops);
	init_search_state(&state, search);

	/* a ring of the partitions that are open; "lead" are ahead of the search */
	lead = state.prefetch / 2;
	opened = palloc(sizeof(NodeRef) * (lead + 1));
	for (uint64 i = 0; i < (uint64) npartitions + 2 * lead; i++)
	{
		if (lead > 0 && i < npartitions && tops[i] != 0)
			PrefetchBuffer(search->index, MAIN_FORKNUM, tops[i]);
		if (i >= lead && i - lead < npartitions && tops[i - lead] != 0)
		{
			NodeRef    *ref = &opened[(i - lead) % (lead + 1)];

			open_partition(&state, ref, i - lead, tops[i - lead]);
			if (lead > 0)
				prefetch_node(&state, ref, state.probes[BX_LEVEL_PARTITION]);
		}
		if (i >= 2 * lead && tops[i - 2 * lead] != 0)
			search_partition(&state, &opened[(i - 2 * lead) % (lead + 1)]);
	}
}

/*
 * Statistics
 * ----------
 */

/* Adds the mean rate of a node's filters by the fill of one slice. */
static void
add_rate(Relation index, int level, uint32 node, const BxNodeDesc *desc,
		 BufferAccessStrategy strategy, double *rates, double *n)
{
	int			bits_set[BX_FANOUT];

	if (!bx_dir_sample_fill(index, level, node, desc, strategy, bits_set))
		return;
	for (int i = 0; i < BX_FANOUT; i++)
	{
		if (bits_set[i] == 0)
			continue;
		*rates += bx_filter_fill_rate(bits_set[i], BX_SLICE_ROWS,
									  desc->nprobes);
		(*n)++;
	}
}

static void
partitioned_collect_stats(Relation index, BxStats *stats,
						  BufferAccessStrategy strategy)
{
	BlockNumber *tops = palloc(sizeof(BlockNumber) * BX_PARTITIONS_PER_MAP);
	double		segment_rates = 0,
				summary_rates = 0,
				nsegment = 0,
				nsummary = 0;
	BxMetaPageData meta;
	BlockNumber index_blocks = 0;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	for (uint32 map = 0; map < BX_MAX_MAPS; map++)
	{
		uint32		first = map * BX_PARTITIONS_PER_MAP;

		if (meta.map[map] == 0)
			continue;
		bx_dir_tops(index, first, BX_PARTITIONS_PER_MAP, tops);
		for (uint32 i = 0; i < BX_PARTITIONS_PER_MAP; i++)
		{
			BxTopPageData top;
			Buffer		buffer;

			if (tops[i] == 0)
				continue;
			buffer = ReadBuffer(index, tops[i]);
			LockBuffer(buffer, BUFFER_LOCK_SHARE);
			bx_dir_check_top(index, buffer, first + i);
			memcpy(&top, BxPageGetTop(BufferGetPage(buffer)), sizeof(top));
			UnlockReleaseBuffer(buffer);

			stats->partitions++;
			bx_dir_check_desc(index, tops[i], &top.self, &index_blocks);
			if (top.self.state == BX_NODE_PRESENT)
			{
				stats->summarized++;
				add_rate(index, BX_LEVEL_PARTITION, first + i, &top.self,
						 strategy, &summary_rates, &nsummary);
			}
			for (int c = 0; c < BX_FANOUT; c++)
			{
				bx_vacuum_delay_point();
				bx_dir_check_desc(index, tops[i], &top.child[c], &index_blocks);
				if (top.child[c].state != BX_NODE_PRESENT)
					continue;
				stats->segments++;
				stats->slices += top.child[c].nslices;
				add_rate(index, BX_LEVEL_SEGMENT,
						 (first + i) * BX_FANOUT + c, &top.child[c], strategy,
						 &segment_rates, &nsegment);
			}
		}
	}
	if (nsegment > 0)
		stats->segment_rate = segment_rates / nsegment;
	if (nsummary > 0)
		stats->summary_rate = summary_rates / nsummary;
	pfree(tops);
}

/*
 * Index pages that a search reads.  A partition without summary has all its
 * segments read; the first is one, until VACUUM or CREATE INDEX finds it large
 * enough.  Pages that several elements share are read once.
 */
static double
partitioned_search_pages(const BxStats *stats, double ranges, double elements,
						 double hit_ranges)
{
	double		segments = ceil(ranges / BX_FANOUT);
	double		partitions = ceil(segments / BX_FANOUT);
	double		open = Min(partitions, Max(0.0, (double) stats->partitions -
										   stats->summarized));
	double		open_segments;
	double		slices = stats->segments > 0 ?
		(double) stats->slices / stats->segments : 3;
	double		rate = stats->summarized > 0 ? stats->summary_rate :
		BX_SUMMARY_RATE;
	double		per_segment;
	double		visited;

	if (stats->partitions == 0)
		open = 1;				/* nothing counted yet */
	open_segments = Min(segments, open * BX_FANOUT);

	/* segments that pass the summary, in vain or not, and their slices */
	visited = open_segments +
		Min((segments - open_segments) * Min(1.0, rate * elements) + hit_ranges,
			segments - open_segments);
	per_segment = Min(slices, Max(1.0, open_segments > 0 ? elements :
								  elements * rate));
	return partitions			/* top-level pages */
		+ (partitions - open) * Min(elements, slices * BX_FANOUT / 2)
		+ visited * per_segment;
}

const BxLayout bx_layout_partitioned = {
	.name = "partitioned",
	.id = BX_LAYOUT_PARTITIONED,
	.build_begin = partitioned_build_begin,
	.build_add = partitioned_build_add,
	.build_end = partitioned_build_end,
	.insert_begin = partitioned_insert_begin,
	.insert = partitioned_insert,
	.search = partitioned_search,
	.collect_stats = partitioned_collect_stats,
	.search_pages = partitioned_search_pages,
};
