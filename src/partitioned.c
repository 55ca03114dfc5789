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

#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "bloomidx.h"

/*
 * Automatic pages_per_range aims at this many keys in a range, so that most
 * of a slice is used.
 */
#define AUTO_RANGE_KEYS		64

/*
 * By measurements with 30 million rows, 75 a page, a partition costs a search
 * in memory 1.2 to 2 microseconds, a heap page 3 to 4 if we look at its rows
 * (rows.c), and 8 to 10 if the executor rechecks them all.  So from p to 2p
 * pages in a range pays if there are more than 4p, or 8p to 17p, partitions;
 * where exactly depends on the machine, and matters little there.
 */
#define MANY_PARTITIONS		12

/*
 * Building
 * --------
 */
typedef struct PartitionedBuild
{
	BxNodeWriter *segments;
	BxNodeWriter *summaries;
	bool		started;		/* there is a segment and partition at work */
	uint32		segment;
	uint32		partition;
	bool		summarize;		/* the partition gets a summary */
	double		range_keys;		/* keys of the range at work */
	double		segment_keys;	/* and of all ranges of the segment */
	BxDistinct	distinct;		/* for those that ranges have in common */
	BxTopPageData top;			/* directory of the partition at work */
	double		segment_rates;	/* and its rates: the sum over its segments */
	double		summary_rate;
} PartitionedBuild;

static uint64
partitioned_build_plan(BxBuild *build, BxMetaPageData *meta)
{
	return BX_RANGES_PER_PARTITION;
}

static void
partitioned_build_begin(BxBuild *build)
{
	PartitionedBuild *pb = palloc0(sizeof(PartitionedBuild));

	pb->segments = bx_node_create(build, BX_LEVEL_SEGMENT,
								  build->shared->meta.false_positive_rate,
								  build->memory / 8);
	pb->summaries = bx_node_create(build, BX_LEVEL_PARTITION, BX_SUMMARY_RATE,
								   build->memory / 2);
	build->layout_state = pb;
}

static void
partitioned_build_end(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;

	bx_node_free(pb->segments);
	bx_node_free(pb->summaries);
	pfree(pb);
}

static void
start_partition(BxBuild *build, uint32 partition)
{
	PartitionedBuild *pb = build->layout_state;
	BlockNumber segments = (build->heap_blocks >>
							build->shared->meta.lg_base) / BX_FANOUT;

	pb->partition = partition;
	pb->summarize = partition > 0 || segments >= BX_MIN_SEGMENTS_FOR_SUMMARY;
	bx_node_start(pb->summaries, partition);
	memset(&pb->top, 0, sizeof(pb->top));
	pb->segment_rates = pb->summary_rate = 0;
}

static void
start_segment(PartitionedBuild *pb, uint32 segment)
{
	pb->segment = segment;
	pb->range_keys = pb->segment_keys = 0;
	bx_node_start(pb->segments, segment);
	bx_distinct_clear(&pb->distinct);
}

static void
finish_segment(PartitionedBuild *pb)
{
	pb->segment_rates += bx_node_finish(pb->segments,
										&pb->top.child[pb->segment % BX_FANOUT]);
	if (pb->summarize)
		bx_node_close_child(pb->summaries, bx_distinct_estimate(&pb->distinct));
}

/* Goes on to the segment of a range, if it is another. */
static void
advance_to_range(BxBuild *build, uint32 range)
{
	PartitionedBuild *pb = build->layout_state;
	uint32		segment = range / BX_FANOUT;

	if (pb->started && segment == pb->segment)
		return;
	if (pb->started)
		finish_segment(pb);
	else
		start_partition(build, segment / BX_FANOUT);
	start_segment(pb, segment);
	pb->started = true;
}

/* Takes keys of a range; see BxLayout. */
static void
partitioned_build_add(BxBuild *build, uint32 range, double done,
					  const uint64 *keys, Size nkeys, bool doubt)
{
	PartitionedBuild *pb = build->layout_state;
	int			child = range % BX_FANOUT;

	advance_to_range(build, range);
	pb->range_keys += nkeys;
	bx_node_add(pb->segments, child, keys, nkeys, doubt, pb->range_keys, done);
	if (pb->summarize)
	{
		for (Size i = 0; i < nkeys; i++)
			bx_distinct_add(&pb->distinct, keys[i]);
		pb->segment_keys += nkeys;
		bx_node_add(pb->summaries, pb->segment % BX_FANOUT, keys, nkeys, doubt,
					pb->segment_keys, (child + done) / BX_FANOUT);
	}
	if (done >= 1.0)
	{
		bx_node_close_child(pb->segments, pb->range_keys);
		pb->range_keys = 0;
	}
}

/* Sums up a partition for the leader. */
static void
report_partition(const PartitionedBuild *pb, BxStats *sums)
{
	sums->partitions = 1;
	sums->summarized = pb->top.self.state == BX_NODE_PRESENT;
	sums->summary_rate = pb->summary_rate;
	sums->segment_rate = pb->segment_rates;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		const BxNodeDesc *desc = &pb->top.child[c];

		if (desc->state != BX_NODE_PRESENT)
			continue;
		sums->segments++;
		sums->slices += desc->nslices;
		sums->range_keys += desc->keys;
	}
}

/* Completes a partition, if it has keys. */
static void
partitioned_build_unit(BxBuild *build, BxUnitResult *result)
{
	PartitionedBuild *pb = build->layout_state;

	if (!pb->started)
		return;
	finish_segment(pb);
	if (pb->summarize)
		pb->summary_rate = bx_node_finish(pb->summaries, &pb->top.self);
	else
		pb->top.self.state = BX_NODE_UNKNOWN;
	result->block = bx_dir_make_top(build->index, NULL, pb->partition,
									&pb->top);
	report_partition(pb, &result->sums);
	pb->started = false;
}

/* Enters the partitions in the map, and adds up their statistics. */
static void
partitioned_build_publish(BxBuild *build, BxMetaPageData *meta)
{
	BxStats    *stats = &meta->stats;
	double		range_keys = 0;
	double		segment_rates = 0;
	double		summary_rates = 0;

	for (uint64 unit = 0; unit < build->shared->nunits; unit++)
	{
		const BxUnitResult *result = &build->shared->results[unit];

		CHECK_FOR_INTERRUPTS();
		if (result->block == 0)
			continue;
		bx_dir_publish_top(build->index, meta, unit, result->block);
		stats->partitions += result->sums.partitions;
		stats->summarized += result->sums.summarized;
		stats->segments += result->sums.segments;
		stats->slices += result->sums.slices;
		range_keys += result->sums.range_keys;
		segment_rates += result->sums.segment_rate;
		summary_rates += result->sums.summary_rate;
	}
	if (stats->segments > 0)
	{
		stats->range_keys = range_keys / stats->segments;
		stats->segment_rate = segment_rates / stats->segments;
	}
	if (stats->summarized > 0)
		stats->summary_rate = summary_rates / stats->summarized;
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

static void *
partitioned_insert_begin(const BxMetaPageData *meta)
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
		if (!bx_page_is_slice(BufferGetPage(buffer), target->level,
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

/* Makes a child's filter in the slices of a node match everything. */
static void
doubt_child(Relation index, int level, uint32 node, const BxNodeDesc *desc,
			int child)
{
	char	   *rows = palloc0(BX_SLICE_SIZE);
	BxMask		doubt;

	bx_mask_fill(&doubt, false);
	bx_mask_set(&doubt, child);
	bx_node_set_doubt(rows, &doubt);
	for (uint32 slice = 0; slice < desc->nslices; slice++)
	{
		CHECK_FOR_INTERRUPTS();
		bx_node_write_slice(index, level, node, desc, slice, rows, true);
	}
	pfree(rows);
}

/*
 * Puts the range of a heap page in doubt, and its segment in the summary, and
 * flags it for VACUUM.  The caller has the lock on the heap that keeps VACUUM
 * out, so nobody else changes the entries of nodes that have slices.
 */
static void
partitioned_insert_doubt(BxInsert *insert, Relation heap, ItemPointer tid)
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
	Buffer		slicebuf;		/* a slice that has been pinned ahead, if any */
} NodeRef;

#define ST_SORT sort_probes
#define ST_ELEMENT_TYPE Probe
#define ST_COMPARE(a, b) \
	((uint32) (a)->lh < (uint32) (b)->lh ? -1 : (uint32) (a)->lh > (uint32) (b)->lh)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* An array can have more elements than an ordinary allocation holds. */
static void *
alloc_array(Size n, Size size)
{
	return palloc_extended(n * size, MCXT_ALLOC_HUGE);
}

static void
init_search_state(SearchState *state, BxSearch *search)
{
	const BxQuery *query = search->query;

	state->search = search;
	state->index = search->index;
	state->index_blocks = bx_dir_known_blocks(search->index);

	/* one page ahead is not worth the extra look into the buffer table */
	state->prefetch =
		get_tablespace_io_concurrency(search->index->rd_rel->reltablespace);
	state->prefetch = state->prefetch > 1 ? Min(state->prefetch, 32) : 0;
	for (int level = BX_LEVEL_SEGMENT; level <= BX_LEVEL_PARTITION; level++)
	{
		Probe	   *probes = alloc_array(query->nelements, sizeof(Probe));

		for (int i = 0; i < query->nelements; i++)
		{
			probes[i].lh = bx_filter_level_hash(query->elements[i].hash, level);
			probes[i].element = i;
		}
		sort_probes(probes, query->nelements);
		state->probes[level] = probes;
		state->masks[level] = alloc_array(query->nelements, sizeof(BxMask));
	}
	state->candidates = alloc_array(query->nelements, sizeof(Probe));
	state->key_masks = palloc(sizeof(BxMask) * query->nkeys);
}

static void
check_ref(SearchState *state, const NodeRef *ref)
{
	bx_dir_check_desc(state->index, BufferGetBlockNumber(ref->topbuf),
					  &ref->desc, &state->index_blocks);
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
	check_ref(state, ref);
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
 * Pins the slice of a probe, and has the processor fetch what of it we will
 * need: most of the time of a search in memory goes into waiting for that.
 */
static void
pin_slice(SearchState *state, NodeRef *ref, const Probe *probe)
{
	Page		page;

	ref->slicebuf = ReadBuffer(state->index, slice_block(&ref->desc, probe));
	page = BufferGetPage(ref->slicebuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	bx_filter_prefetch(BxPageGetContent(page), BX_SLICE_ROWS,
					   ref->desc.nprobes, probe->lh);
}

/*
 * Reads the slice of probes[first] and sets the masks of all probes that fall
 * into it.  Returns the number of the next probe, or -1 if the page is not
 * what the descriptor says.
 */
static int
probe_slice(SearchState *state, NodeRef *ref, const Probe *probes, int first,
			int n)
{
	BlockNumber blkno = slice_block(&ref->desc, &probes[first]);
	Buffer		buffer;
	Page		page;
	int			i = first;

	BX_PAUSE(BX_PAUSE_SEARCH_SLICE);
	if (!BufferIsValid(ref->slicebuf))
		pin_slice(state, ref, &probes[first]);
	buffer = ref->slicebuf;
	ref->slicebuf = InvalidBuffer;
	page = BufferGetPage(buffer);
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
		for (; state->prefetch > 0 && n > 1 && ahead < n &&
			 distance < state->prefetch; ahead++)
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

/*
 * Pins a partition's top-level page, and has the processor fetch what of it
 * opening the partition will need.
 */
static void
pin_top(SearchState *state, NodeRef *ref, uint32 partition, BlockNumber top)
{
	Page		page;

	ref->level = BX_LEVEL_PARTITION;
	ref->node = partition;
	ref->slicebuf = InvalidBuffer;
	ref->topbuf = ReadBuffer(state->index, top);
	page = BufferGetPage(ref->topbuf);
	__builtin_prefetch(BxPageGetOpaque(page));
	__builtin_prefetch(&BxPageGetTop(page)->self);
}

/* Copies the descriptor of a partition's summary. */
static void
open_partition(SearchState *state, NodeRef *ref)
{
	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	bx_dir_check_top(state->index, ref->topbuf, ref->node);
	ref->desc = BxPageGetTop(BufferGetPage(ref->topbuf))->self;
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);
	check_ref(state, ref);
}

/* Gets ready to search a partition, if it is for one element. */
static void
pin_first_slice(SearchState *state, NodeRef *ref)
{
	if (state->search->query->nelements == 1 &&
		ref->desc.state == BX_NODE_PRESENT)
		pin_slice(state, ref, &state->probes[BX_LEVEL_PARTITION][0]);
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
	if (bx_mask_is_empty(&matching))
	{
		ReleaseBuffer(ref->topbuf);
		return;
	}

	LockBuffer(ref->topbuf, BUFFER_LOCK_SHARE);
	for (int c = bx_mask_next(&matching, 0); c < BX_FANOUT;
		 c = bx_mask_next(&matching, c + 1))
	{
		NodeRef    *segment = &segments[nsegments];

		segment->level = BX_LEVEL_SEGMENT;
		segment->node = ref->node * BX_FANOUT + c;
		segment->topbuf = ref->topbuf;
		segment->slicebuf = InvalidBuffer;
		segment->desc = top->child[c];
		nsegments++;
	}
	LockBuffer(ref->topbuf, BUFFER_LOCK_UNLOCK);

	for (int i = 0; i < nsegments; i++)
		check_ref(state, &segments[i]);
	for (int i = 0; i < nsegments; i++)
	{
		/*
		 * which slices several elements need is known only when it comes to
		 * it
		 */
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
	int			nopened;
	int			lead;

	if (search->heap_blocks == 0)
		return;
	ranges = bx_dir_ranges(search->heap_blocks, search->lg_base);
	npartitions = (ranges - 1) / BX_RANGES_PER_PARTITION + 1;
	tops = palloc(sizeof(BlockNumber) * npartitions);
	bx_dir_tops(search->index, 0, npartitions, tops);
	init_search_state(&state, search);

	/*
	 * A ring of the partitions that are open, of which "lead" are ahead of
	 * the search, and of the one that comes next.  Each has pages pinned, and
	 * there may be few buffers.  With a lead of 1 a page is pinned right when
	 * it is prefetched.
	 */
	lead = state.prefetch > 0 ? Max(2, Min(state.prefetch / 2, 4)) : 1;
	nopened = lead + 2;
	opened = palloc(sizeof(NodeRef) * nopened);
	for (uint64 i = 0; i < (uint64) npartitions + 2 * lead; i++)
	{
		if (state.prefetch > 0 && i < npartitions && tops[i] != 0)
			PrefetchBuffer(search->index, MAIN_FORKNUM, tops[i]);
		if (i + 1 >= lead && i + 1 - lead < npartitions &&
			tops[i + 1 - lead] != 0)
			pin_top(&state, &opened[(i + 1 - lead) % nopened], i + 1 - lead,
					tops[i + 1 - lead]);
		if (i >= lead && i - lead < npartitions && tops[i - lead] != 0)
		{
			NodeRef    *ref = &opened[(i - lead) % nopened];

			open_partition(&state, ref);
			prefetch_node(&state, ref, state.probes[BX_LEVEL_PARTITION]);
		}

		/* the next one to be searched, if it is in memory by now */
		if (i + 1 >= 2 * lead && i + 1 - 2 * lead < npartitions &&
			tops[i + 1 - 2 * lead] != 0)
			pin_first_slice(&state, &opened[(i + 1 - 2 * lead) % nopened]);
		if (i >= 2 * lead && tops[i - 2 * lead] != 0)
			search_partition(&state, &opened[(i - 2 * lead) % nopened]);
	}
}

/*
 * Statistics
 * ----------
 */

/* Sums over the filters of one level. */
typedef struct FilterSums
{
	double		filters;
	double		keys;
	double		rates;
} FilterSums;

typedef struct StatsState
{
	Relation	index;
	BxStats    *stats;
	BufferAccessStrategy strategy;
	FilterSums	segments;
	FilterSums	summaries;
} StatsState;

static void
add_node(StatsState *state, int level, uint32 node, const BxNodeDesc *desc,
		 FilterSums *sums)
{
	BxMeasure	measure;

	if (!bx_dir_measure(state->index, level, node, desc, state->strategy,
						&measure))
		return;
	sums->filters += measure.nchildren;
	sums->keys += measure.keys * measure.nchildren;
	sums->rates += measure.rate * measure.nchildren;
}

/* Adds a partition to the statistics. */
static void
add_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	StatsState *state = arg;
	BxStats    *stats = state->stats;
	BlockNumber index_blocks = 0;
	BxTopPageData top;

	if (!bx_dir_read_top(state->index, partition, &top))
		return;
	stats->partitions++;
	bx_dir_check_desc(state->index, blkno, &top.self, &index_blocks);
	if (top.self.state == BX_NODE_PRESENT)
	{
		stats->summarized++;
		add_node(state, BX_LEVEL_PARTITION, partition, &top.self,
				 &state->summaries);
	}
	for (int c = 0; c < BX_FANOUT; c++)
	{
		bx_vacuum_delay_point();
		bx_dir_check_desc(state->index, blkno, &top.child[c], &index_blocks);
		if (top.child[c].state != BX_NODE_PRESENT)
			continue;
		stats->segments++;
		stats->slices += top.child[c].nslices;
		add_node(state, BX_LEVEL_SEGMENT, partition * BX_FANOUT + c,
				 &top.child[c], &state->segments);
	}
}

static void
partitioned_collect_stats(Relation index, BxStats *stats,
						  BufferAccessStrategy strategy)
{
	StatsState	state = {.index = index,.stats = stats,.strategy = strategy};
	BxMetaPageData meta;

	memset(stats, 0, sizeof(*stats));
	bx_meta_read(index, &meta);
	bx_dir_each_top(index, &meta, add_partition, &state);
	if (state.segments.filters > 0)
	{
		stats->range_keys = state.segments.keys / state.segments.filters;
		stats->segment_rate = state.segments.rates / state.segments.filters;
	}
	if (state.summaries.filters > 0)
		stats->summary_rate = state.summaries.rates / state.summaries.filters;
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
	.id = BX_LAYOUT_PARTITIONED,
	.name = "partitioned",
	.auto_range_keys = AUTO_RANGE_KEYS,
	.many_ranges = MANY_PARTITIONS * BX_RANGES_PER_PARTITION,
	.build_plan = partitioned_build_plan,
	.build_begin = partitioned_build_begin,
	.build_add = partitioned_build_add,
	.build_unit = partitioned_build_unit,
	.build_end = partitioned_build_end,
	.build_publish = partitioned_build_publish,
	.insert_begin = partitioned_insert_begin,
	.insert = partitioned_insert,
	.insert_doubt = partitioned_insert_doubt,
	.search = partitioned_search,
	.repair = bx_rebuild_index,
	.compact = bx_move_compact,
	.truncate = bx_dir_truncate,
	.collect_stats = partitioned_collect_stats,
	.search_pages = partitioned_search_pages,
	.shown_by = "bloomidx_segments",
	.walk = bx_partitioned_walk,
	.check_claims = bx_partitioned_check_claims,
	.check_pages = bx_partitioned_check_pages,
	.check_keys = bx_partitioned_check_keys,
	.estimate = bx_partitioned_estimate,
};
