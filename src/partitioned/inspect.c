/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  The part of layout "partitioned" for the functions that show, verify and
 *	  estimate an index.
 *
 * These functions run concurrently with inserts, and VACUUM may replace the
 * slices of a node meanwhile.  A page that does not match its descriptor is
 * damaged only if the descriptor, when read again, has not changed; see
 * src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/* A node whose slices are inspected, and the place of its descriptor. */
typedef struct NodeRef
{
	int			level;
	uint32		number;
	BlockNumber top;			/* block of the top-level page */
	bool		is_shadow;
	BxNodeDesc	desc;
} NodeRef;

static uint32
partition_of(const NodeRef *node)
{
	return node->level == BX_LEVEL_PARTITION ? node->number :
		node->number / BX_FANOUT;
}

/* Returns the node's descriptor in a copy of its top-level page. */
static BxNodeDesc *
find_desc(const NodeRef *node, BxTopPageData *top)
{
	if (node->is_shadow)
		return &top->shadow.desc;
	return node->level == BX_LEVEL_PARTITION ? &top->self :
		&top->child[node->number % BX_FANOUT];
}

/*
 * Copies the descriptor of a node again, because "problem" was found at
 * blkno.  If the descriptor has not changed, the problem is damage, and an
 * error is raised.  If the descriptor of a shadow has changed, the shadow is
 * gone and node->desc becomes empty: the current shadow may belong to another
 * node.
 */
static void
refresh_or_fail(Relation index, NodeRef *node, BlockNumber blkno,
				const char *problem)
{
	BlockNumber index_blocks = 0;
	BxTopPageData top;
	BxNodeDesc *current = find_desc(node, &top);

	if (!bx_dir_read_top(index, partition_of(node), &top) ||
		memcmp(current, &node->desc, sizeof(BxNodeDesc)) == 0)
		bx_page_corrupted(index, blkno, problem);
	if (node->is_shadow)
		memset(current, 0, sizeof(BxNodeDesc));
	node->desc = *current;
	bx_dir_check_desc(index, node->top, &node->desc, &index_blocks);
}

/*
 * Reads a slice page of a node, and locks it in share mode.  Returns the
 * buffer, and sets *problem to a description of what is wrong with the page,
 * or to NULL.
 */
static Buffer
read_slice(Relation index, const NodeRef *node, uint32 slice,
		   BufferAccessStrategy strategy, const char **problem)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM,
											node->desc.start + slice,
											RBM_NORMAL, strategy);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*problem = bx_page_problem(page, BX_PAGE_SLICE);
	if (*problem == NULL &&
		!bx_slices_is_page(page, node->level, node->number, slice, &node->desc))
		*problem = "not the page that the directory says";
	return buffer;
}

/*
 * Showing
 * -------
 */
typedef struct WalkState
{
	Relation	index;
	uint8		lg_base;
	double		target;
	BxUnitCallback callback;
	void	   *arg;
} WalkState;

static void
show_directory_page(WalkState *state, BlockNumber blkno)
{
	BxUnit		unit = {.kind = BX_UNIT_DIRECTORY,.block = blkno,.pages = 1};

	state->callback(state->arg, &unit);
}

/*
 * Fills in *unit from the descriptor of a node, and if it has slices, from a
 * measurement of its filters.
 */
static void
describe_node(WalkState *state, NodeRef *node, double target, BxUnit *unit)
{
	BlockNumber index_blocks = 0;

	bx_dir_check_desc(state->index, node->top, &node->desc, &index_blocks);
	while (node->desc.state == BX_NODE_PRESENT &&
		   !bx_slices_measure(state->index, node->level, node->number,
							  &node->desc, NULL, &unit->measure))
		refresh_or_fail(state->index, node, node->desc.start,
						"not the page that the directory says");
	unit->number = node->number;
	unit->block = node->desc.start;
	unit->pages = node->desc.nslices;
	unit->probes = node->desc.nprobes;
	unit->planned_keys = node->desc.keys;
	unit->doubt = (node->desc.flags & BX_DESC_DOUBT) != 0;
	unit->overfull = node->desc.state == BX_NODE_PRESENT &&
		bx_rebuild_is_overfull(&node->desc, &unit->measure, target);
}

static void
show_summary(WalkState *state, uint32 partition, BlockNumber blkno,
			 const BxTopPageData *top, BxUnit *unit)
{
	NodeRef		node = {BX_LEVEL_PARTITION, partition, blkno, false, top->self};
	int			doubtful;
	int			segments = bx_rebuild_count_segments(top, &doubtful);

	memset(unit, 0, sizeof(*unit));
	unit->kind = BX_UNIT_SUMMARY;
	unit->first_range = partition * BX_RANGES_PER_PARTITION;
	unit->nranges = BX_RANGES_PER_PARTITION;
	describe_node(state, &node, BX_SUMMARY_RATE, unit);
	unit->missing = node.desc.state == BX_NODE_UNKNOWN &&
		bx_rebuild_wants_summary(partition, segments);
	state->callback(state->arg, unit);
}

static void
show_segment(WalkState *state, uint32 segment, BlockNumber blkno,
			 const BxNodeDesc *desc, double upper_rate)
{
	NodeRef		node = {BX_LEVEL_SEGMENT, segment, blkno, false, *desc};
	BxUnit		unit = {.kind = BX_UNIT_FILTERS};

	describe_node(state, &node, state->target, &unit);
	unit.first_range = segment * BX_FANOUT;
	unit.nranges = BX_FANOUT;
	unit.upper_rate = upper_rate;
	state->callback(state->arg, &unit);
}

static void
show_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	WalkState  *state = arg;
	BxTopPageData top;
	BxUnit		unit;
	double		upper_rate;

	show_directory_page(state, blkno);
	if (!bx_dir_read_top(state->index, partition, &top))
		return;
	show_summary(state, partition, blkno, &top, &unit);
	upper_rate = unit.pages > 0 ? unit.measure.rate : 1;
	if (top.shadow.desc.state != BX_NODE_EMPTY)
	{
		memset(&unit, 0, sizeof(unit));
		unit.kind = BX_UNIT_SHADOW;
		unit.block = top.shadow.desc.start;
		unit.pages = top.shadow.desc.nslices;
		state->callback(state->arg, &unit);
	}
	for (int c = 0; c < BX_FANOUT; c++)
	{
		CHECK_FOR_INTERRUPTS();
		if (top.child[c].state != BX_NODE_EMPTY)
			show_segment(state, partition * BX_FANOUT + c, blkno,
						 &top.child[c], upper_rate);
	}
}

void
bx_partitioned_walk(Relation index, const BxMetaPageData *meta,
					BxUnitCallback callback, void *arg)
{
	WalkState	state = {.index = index,.callback = callback,.arg = arg};

	state.target = meta->false_positive_rate;
	show_directory_page(&state, BX_METAPAGE_BLKNO);
	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
	{
		if (meta->map[i] != 0)
			show_directory_page(&state, meta->map[i]);
	}
	bx_dir_each_top(index, meta, show_partition, &state);
}

/*
 * Checking references to pages
 * ----------------------------
 */
typedef struct ClaimState
{
	BxCheck    *check;
	const BxMetaPageData *meta;
	BlockNumber index_blocks;
} ClaimState;

/*
 * Verifies a descriptor of the top-level page at blkno, and claims the pages
 * that it references.
 */
static void
claim_node(ClaimState *state, BlockNumber blkno, const BxNodeDesc *desc)
{
	BxCheck    *check = state->check;
	BxNodeDesc	nothing = {.state = desc->state};

	bx_dir_check_desc(check->index, blkno, desc, &state->index_blocks);
	if (desc->state != BX_NODE_PRESENT)
	{
		if (memcmp(desc, &nothing, sizeof(nothing)) != 0)
			bx_page_corrupted(check->index, blkno,
							  "impossible directory entry");
		return;
	}
	if ((desc->flags & ~BX_DESC_DOUBT) != 0)
		bx_page_corrupted(check->index, blkno, "impossible directory entry");

	if (desc->generation == 0)
		bx_page_corrupted(check->index, blkno, "impossible directory entry");
	if (desc->generation >= check->newest_generation)
	{
		check->newest_generation = desc->generation;
		check->newest_blkno = blkno;
	}
	bx_check_claim(check, blkno, desc->start, desc->nslices);
}

static void
claim_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	ClaimState *state = arg;
	BxCheck    *check = state->check;
	BxTopPageData top;
	BxShadow	nothing = {0};
	int			doubtful;

	CHECK_FOR_INTERRUPTS();
	bx_check_claim(check, state->meta->map[partition / BX_PARTITIONS_PER_MAP],
				   blkno, 1);
	if (!bx_dir_read_top(check->index, partition, &top))
		return;
	claim_node(state, blkno, &top.self);
	claim_node(state, blkno, &top.shadow.desc);
	for (int c = 0; c < BX_FANOUT; c++)
		claim_node(state, blkno, &top.child[c]);

	/* an empty summary matches nothing */
	if (top.self.state == BX_NODE_EMPTY &&
		bx_rebuild_count_segments(&top, &doubtful) > 0)
		bx_page_corrupted(check->index, blkno,
						  "empty summary of segments that are not");
	if (top.shadow.desc.state == BX_NODE_UNKNOWN ||
		(top.shadow.desc.state == BX_NODE_EMPTY ?
		 memcmp(&top.shadow, &nothing, sizeof(nothing)) != 0 :
		 (top.shadow.level != BX_LEVEL_SEGMENT &&
		  top.shadow.level != BX_LEVEL_PARTITION) ||
		 top.shadow.child >= BX_FANOUT))
		bx_page_corrupted(check->index, blkno, "impossible shadow");
}

void
bx_partitioned_check_claims(BxCheck *check, const BxMetaPageData *meta)
{
	ClaimState	state = {check, meta, 0};

	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
	{
		if (meta->map[i] != 0)
			bx_check_claim(check, BX_METAPAGE_BLKNO, meta->map[i], 1);
	}

	/* drop the cached block numbers, which may differ from the map pages */
	bx_geometry_forget(check->index);
	bx_dir_each_top(check->index, meta, claim_partition, &state);
}

/*
 * Checking pages
 * --------------
 */

/*
 * Returns a description of what is wrong with the rows of a slice page, or
 * NULL.  A bit in the hole between pd_lower and pd_upper would be lost when
 * the page is restored from a full-page image in WAL.
 */
static const char *
find_problem_of_rows(Page page)
{
	const uint64 *words = (const uint64 *) BxPageGetContent(page);

	if (((PageHeader) page)->pd_lower == BX_SLICE_LOWER_FULL)
		return NULL;
	for (int i = 0; i < BX_SLICE_SIZE / sizeof(uint64); i++)
	{
		if (words[i] != 0)
			return "bits outside of the page's content";
	}
	return NULL;
}

static void
check_node(BxCheck *check, NodeRef *node)
{
	BlockNumber index_blocks = 0;
	uint32		slice = 0;

	bx_dir_check_desc(check->index, node->top, &node->desc, &index_blocks);
	while (node->desc.state == BX_NODE_PRESENT && slice < node->desc.nslices)
	{
		BlockNumber blkno = node->desc.start + slice;
		const char *problem;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = read_slice(check->index, node, slice, check->strategy,
							&problem);
		if (problem == NULL)
			problem = find_problem_of_rows(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		slice++;
		if (problem != NULL)
		{
			refresh_or_fail(check->index, node, blkno, problem);
			slice = 0;
		}
	}
}

static void
check_partition(void *arg, uint32 partition, BlockNumber blkno)
{
	BxCheck    *check = arg;
	BxTopPageData top;
	NodeRef		node = {BX_LEVEL_PARTITION, partition, blkno, false};

	if (!bx_dir_read_top(check->index, partition, &top))
		return;
	node.desc = top.self;
	check_node(check, &node);
	node.level = BX_LEVEL_SEGMENT;
	for (int c = 0; c < BX_FANOUT; c++)
	{
		node.number = partition * BX_FANOUT + c;
		node.desc = top.child[c];
		check_node(check, &node);
	}

	/*
	 * a shadow swapped in meanwhile is now a node already visited; it is
	 * skipped
	 */
	if (top.shadow.desc.state == BX_NODE_PRESENT)
	{
		node.is_shadow = true;
		node.level = top.shadow.level;
		node.number = node.level == BX_LEVEL_PARTITION ? partition :
			partition * BX_FANOUT + top.shadow.child;
		node.desc = top.shadow.desc;
		check_node(check, &node);
	}
}

void
bx_partitioned_check_pages(BxCheck *check)
{
	BxMetaPageData meta;

	bx_meta_read(check->index, &meta);
	bx_dir_each_top(check->index, &meta, check_partition, check);
}

/*
 * Checking keys
 * -------------
 *
 * The rows are those that a snapshot sees, and descriptors are copied after
 * the snapshot was taken, so the argument for searches in src/README applies
 * here as well.
 */
typedef struct KeyState
{
	bool		loaded;
	uint32		partition;
	BlockNumber blkno;			/* block of its top-level page, 0 if it has
								 * none */
	BxTopPageData top;
	uint64	   *hashes;			/* hashes of the keys for the current level */
	Size		allocated;
} KeyState;

/* sorts hashes in the order of their slices */
#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) \
	((uint32) *(a) < (uint32) *(b) ? -1 : (uint32) *(a) > (uint32) *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static void
load_partition(BxCheck *check, KeyState *state, uint32 partition)
{
	if (state->loaded && state->partition == partition)
		return;
	state->partition = partition;
	state->blkno = 0;
	if (bx_dir_read_top(check->index, partition, &state->top))
		bx_dir_tops(check->index, partition, 1, &state->blkno);
	state->loaded = true;
}

/*
 * Looks up the hashes, one slice at a time, in the filter of a child.  Raises
 * an error if one is missing.
 */
static void
check_hashes(BxCheck *check, NodeRef *node, int child, uint32 range,
			 const uint64 *hashes, Size n)
{
	Size		i = 0;

	while (i < n && node->desc.state == BX_NODE_PRESENT)
	{
		uint32		slice = bx_filter_slice(hashes[i], node->desc.nslices);
		BlockNumber blkno = node->desc.start + slice;
		bool		found = true;
		const char *problem;
		Buffer		buffer;

		buffer = read_slice(check->index, node, slice, NULL, &problem);
		while (problem == NULL && found && i < n &&
			   bx_filter_slice(hashes[i], node->desc.nslices) == slice)
			found = bx_filter_test(BxPageGetContent(BufferGetPage(buffer)),
								   BX_SLICE_ROWS, node->desc.nprobes,
								   hashes[i++], child);
		UnlockReleaseBuffer(buffer);
		if (problem != NULL)
		{
			refresh_or_fail(check->index, node, blkno, problem);
			i = 0;
		}
		else if (!found)
			bx_check_lost_key(check, blkno, range,
							  node->level == BX_LEVEL_SEGMENT ?
							  "the range's filter" : "the segment's filter");
	}
	if (n > 0 && node->desc.state == BX_NODE_EMPTY)
		bx_check_lost_key(check, node->top, range, "the directory");
}

static void
check_level(BxCheck *check, KeyState *state, int level, uint32 number,
			int child, uint32 range, const uint64 *keys, Size nkeys)
{
	NodeRef		node = {level, number, state->blkno, false};
	BxNodeDesc *desc = find_desc(&node, &state->top);
	BlockNumber index_blocks = 0;

	node.desc = *desc;
	bx_dir_check_desc(check->index, node.top, &node.desc, &index_blocks);
	if (nkeys > state->allocated)
	{
		state->allocated = nkeys + nkeys / 2;
		if (state->hashes)
			pfree(state->hashes);
		state->hashes = palloc_extended(sizeof(uint64) * state->allocated,
										MCXT_ALLOC_HUGE);
	}
	for (Size i = 0; i < nkeys; i++)
		state->hashes[i] = bx_filter_level_hash(keys[i], level);
	sort_hashes(state->hashes, nkeys);
	check_hashes(check, &node, child, range, state->hashes, nkeys);

	/* keep the descriptor, which may have been refreshed */
	*desc = node.desc;
}

void
bx_partitioned_check_keys(BxCheck *check, uint32 range, const uint64 *keys,
						  Size nkeys)
{
	KeyState   *state = check->layout_state;
	uint32		segment = range / BX_FANOUT;

	if (state == NULL)
		state = check->layout_state = palloc0(sizeof(KeyState));
	load_partition(check, state, segment / BX_FANOUT);
	if (nkeys > 0 && state->blkno == 0)
		bx_check_lost_key(check, BX_METAPAGE_BLKNO, range, "the directory");
	check_level(check, state, BX_LEVEL_PARTITION, segment / BX_FANOUT,
				segment % BX_FANOUT, range, keys, nkeys);
	check_level(check, state, BX_LEVEL_SEGMENT, segment, range % BX_FANOUT,
				range, keys, nkeys);
}

/*
 * Estimating
 * ----------
 */

/*
 * Returns the expected number of slices of a node.  The keys per child are
 * not known exactly and differ between nodes, so that some nodes have a slice
 * more or less; hence the mean over 3% less and more keys.
 */
static double
expect_slices(double keys, double rate)
{
	return (bx_filter_plan(keys * 0.97, rate, BX_SLICE_ROWS).nslices +
			bx_filter_plan(keys, rate, BX_SLICE_ROWS).nslices +
			bx_filter_plan(keys * 1.03, rate, BX_SLICE_ROWS).nslices) / 3.0;
}

/*
 * Returns the number of pages of an index that CREATE INDEX would build
 * (build.c), and fills in its statistics.
 */
double
bx_partitioned_estimate(const BxTableModel *model, uint8 lg_base, double rate,
						BxStats *stats)
{
	double		pages_per_range = 1 << lg_base;
	double		segment_pages = pages_per_range * BX_FANOUT;
	double		segments = ceil(model->heap_pages / segment_pages);
	double		partitions = ceil(segments / BX_FANOUT);
	double		maps = ceil(partitions / BX_PARTITIONS_PER_MAP);
	double		range_keys = model->keys(model, pages_per_range);
	double		segment_keys = model->keys(model, segment_pages);
	BxPlan		plan = bx_filter_plan(range_keys, rate, BX_SLICE_ROWS);
	BxPlan		summary = bx_filter_plan(segment_keys, BX_SUMMARY_RATE,
										 BX_SLICE_ROWS);
	double		summarized = partitions;

	if (floor(model->heap_pages / segment_pages) < BX_MIN_SEGMENTS_FOR_SUMMARY)
		summarized = Max(partitions - 1, 0);
	memset(stats, 0, sizeof(*stats));
	stats->segments = segments;
	stats->partitions = partitions;
	stats->summarized = summarized;
	stats->slices = segments * expect_slices(range_keys, rate);
	stats->range_keys = range_keys;
	stats->segment_rate = bx_filter_rate(range_keys, plan.nslices,
										 BX_SLICE_ROWS, plan.nprobes);
	stats->summary_rate = bx_filter_rate(segment_keys, summary.nslices,
										 BX_SLICE_ROWS, summary.nprobes);
	return 1 + maps + partitions + stats->slices +
		summarized * expect_slices(segment_keys, BX_SUMMARY_RATE);
}
