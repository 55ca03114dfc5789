/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Building: writes segments, summaries and groups from the keys of
 *	  ranges.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

/* States of a group in a build; see get_group(). */
#define GROUP_NONE		0
#define GROUP_BUSY		1		/* a participant is creating it */
#define GROUP_READY		2

/* Delay, in microseconds, between two looks at a group that is busy. */
#define GROUP_DELAY		1000L

/*
 * A partition may have this many times the keys that its group is planned for.
 * The number of keys is extrapolated, and can be wrong by a fifth.
 */
#define MAX_LOAD		1.5

/* The filter of a partition may use this much memory in any case. */
#define SMALL_COLUMN	(4 * 1024 * 1024)

typedef struct PartitionedBuild
{
	BxBuild    *build;
	BxNodeWriter *segments;
	BxNodeWriter *summaries;
	bool		started;		/* segment and partition are valid */
	uint32		segment;
	uint32		partition;
	bool		summarize;		/* the partition will have a summary */
	double		range_keys;		/* keys of the current range */
	double		segment_keys;	/* sum of the keys of the ranges of the
								 * segment */
	BxDistinct	distinct;		/* estimates the distinct keys of the segment */
	BxDistinct	partition_distinct; /* and those of the partition */
	double		partition_done; /* fraction of the partition that has been
								 * read */
	bool		doubt;			/* some keys of the partition are not known */
	bool		finishing;		/* all keys of the partition have been added */
	bool		grouped;		/* the partition may have a filter in a group */
	bool		has_column;		/* column is valid */
	BxColumn	column;			/* that filter */
	BxTopPageData top;			/* top-level page of the current partition */
	double		segment_rates;	/* sum of the rates of its segments */
	double		summary_rate;
} PartitionedBuild;

uint64
bx_partitioned_build_plan(BxBuild *build, BxMetaPageData *meta)
{
	return BX_RANGES_PER_PARTITION;
}

/*
 * Chooses the number c of which the number of blocks of every group is
 * c * 2^k, unless another participant has already chosen it for all
 * participants.  c is the number of blocks for the given number of keys per
 * partition.
 */
static void
choose_group_size(BxBuildShared *shared, double keys)
{
	BxUnitResult *chosen = &shared->results[0];
	BxGroupDesc group;

	bx_groups_plan(keys, 0, 1, 0, &group);
	SpinLockAcquire(&shared->mutex);
	if (chosen->partition.like == 0)
		chosen->partition.like = group.nblocks;
	SpinLockRelease(&shared->mutex);
}

/*
 * Returns whether a group of this width, with c blocks per partition, is small
 * enough.  Every partition of the build writes to all pages of its group, so a
 * group fits in a quarter of shared_buffers.  Inserts add keys to the last
 * partition, and their bits are in any of the group's pages, so the group of
 * the last partition fits in an eighth.
 */
static bool
is_group_affordable(const BxBuildShared *shared, int width, bool is_last)
{
	return bx_group_pages(shared->results[0].partition.like, width) <=
		NBuffers / (is_last ? 8 : 4);
}

/*
 * Returns the first partition of the group of a partition in this build, and
 * sets *width: the widest group that is affordable and whose partitions the
 * heap has.
 */
static uint32
first_of_group(const BxBuildShared *shared, uint32 partition, int *width)
{
	for (*width = BX_BUILD_WIDTH; *width > 1; *width /= 2)
	{
		uint32		first = partition - partition % *width;
		uint32		end = first + *width;

		if (end <= shared->nunits &&
			is_group_affordable(shared, *width, end == shared->nunits))
			return first;
	}
	return partition;
}

/* Allocates the pages of a group, all zero. */
static void
make_group(PartitionedBuild *pb, BxGroupDesc *group)
{
	group->generation =
		pg_atomic_fetch_add_u32(&pb->build->shared->next_generation, 1);
	group->start = bx_page_extend(pb->build->index, bx_groups_pages(group));
}

/*
 * Gets the descriptor of the group of the current partition.  The participant
 * that first needs a group creates the group, with a size for the number of
 * keys of its own partition.  The other participants wait meanwhile.  A
 * partition that has too many keys for this size gets a group of its own.
 */
static void
get_group(PartitionedBuild *pb, double keys, BxGroupDesc *group)
{
	BxBuildShared *shared = pb->build->shared;
	int			width;
	uint32		first;
	BxUnitResult *entry;
	uint32		state;
	uint32		like;

	choose_group_size(shared, keys);
	like = shared->results[0].partition.like;
	first = first_of_group(shared, pb->partition, &width);
	entry = &shared->results[first];
	for (;;)
	{
		SpinLockAcquire(&shared->mutex);
		state = entry->partition.group_state;
		if (state == GROUP_NONE)
			entry->partition.group_state = GROUP_BUSY;
		SpinLockRelease(&shared->mutex);
		if (state != GROUP_BUSY)
			break;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(GROUP_DELAY);
	}
	if (state == GROUP_NONE)
	{
		bx_groups_plan(keys, like, width, first % BX_FANOUT,
					   &entry->partition.group);
		make_group(pb, &entry->partition.group);
		SpinLockAcquire(&shared->mutex);
		entry->partition.group_state = GROUP_READY;
		SpinLockRelease(&shared->mutex);
	}
	bx_groups_plan(keys, like, 1, pb->partition % BX_FANOUT, group);
	if (keys <= entry->partition.group.keys * MAX_LOAD ||
		group->nblocks <= entry->partition.group.nblocks)
		*group = entry->partition.group;
	else
	{
		make_group(pb, group);
		shared->results[pb->partition].partition.own_group = *group;
	}
}

/* Returns whether there is enough memory for a filter in such a group. */
static bool
is_column_affordable(const PartitionedBuild *pb, const BxGroupDesc *group)
{
	return bx_column_size(group, bx_groups_pages(group)) <=
		Max(pb->build->memory / 4, SMALL_COLUMN);
}

/*
 * Returns the number of keys that the current partition will have,
 * extrapolated from the keys so far: to the part of the partition that has not
 * been read yet, or, if everything has been read, to the part that the heap
 * does not have yet.
 */
static double
expect_partition_keys(const PartitionedBuild *pb)
{
	BxDistinct	distinct = pb->partition_distinct;
	double		done = pb->partition_done;

	if (pb->finishing)
	{
		uint64		ranges = bx_geometry_ranges(pb->build->heap_blocks,
												pb->build->shared->meta.lg_base);

		ranges -= (uint64) pb->partition * BX_RANGES_PER_PARTITION;
		done = Min(1.0, (double) ranges / BX_RANGES_PER_PARTITION);
	}
	bx_distinct_merge(&distinct, &pb->distinct);
	return Max(bx_distinct_estimate(&distinct), 1) / done;
}

/*
 * Starts the filter of the current partition.  If there is not enough memory
 * for the filter, the partition gets none; VACUUM may build it in parts.
 */
static void
start_column(PartitionedBuild *pb)
{
	double		keys = expect_partition_keys(pb);
	BxGroupDesc group;

	bx_groups_plan(keys, 0, 1, 0, &group);
	pb->grouped = is_column_affordable(pb, &group);
	if (!pb->grouped)
		return;
	get_group(pb, keys, &group);
	pb->grouped = is_column_affordable(pb, &group);
	if (!pb->grouped)
		return;
	bx_column_start(&pb->column, pb->partition, &group, 0,
					bx_groups_pages(&group));
	pb->has_column = true;
}

/* Keys callback: adds keys to the filter of the current partition. */
static void
add_to_column(void *arg, const uint64 *keys, Size n)
{
	PartitionedBuild *pb = arg;

	if (pb->grouped && !pb->has_column && n > 0)
		start_column(pb);
	if (pb->has_column)
		bx_column_add(&pb->column, keys, n);
}

/* Completes the filter of the current partition. */
static void
finish_column(PartitionedBuild *pb, BxUnitResult *result)
{
	BxGroupMeasure measure;

	/* a filter that lacks keys is useless */
	if (!pb->has_column || pb->doubt)
		return;
	bx_column_write(&pb->column, pb->build->index, false);
	pb->top.group = pb->column.group;
	result->partition.filtered = true;
	if (bx_groups_measure(pb->build->index, pb->partition / BX_FANOUT,
						  &pb->top.group,
						  pb->partition % BX_FANOUT - pb->top.group.first,
						  NULL, &measure))
		result->partition.group_rate = measure.rate;
}

void
bx_partitioned_build_begin(BxBuild *build)
{
	PartitionedBuild *pb = palloc0(sizeof(PartitionedBuild));

	pb->segments = bx_writer_create(build, BX_LEVEL_SEGMENT,
									build->memory / 8);
	pb->summaries = bx_writer_create(build, BX_LEVEL_PARTITION,
									 build->memory / 2);
	pb->build = build;
	build->layout_state = pb;
	if (build->shared->nunits > 1)
		bx_writer_watch(pb->summaries, add_to_column, pb);
}

void
bx_partitioned_build_end(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;

	bx_writer_free(pb->segments);
	bx_writer_free(pb->summaries);
	bx_column_end(&pb->column);
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
	bx_writer_start(pb->summaries, partition,
					bx_summary_rate(build->shared->nunits,
									build->shared->meta.false_positive_rate));
	memset(&pb->top, 0, sizeof(pb->top));
	bx_distinct_clear(&pb->partition_distinct);
	pb->partition_done = 0;
	pb->doubt = false;
	pb->grouped = build->shared->nunits > 1;
	pb->finishing = false;
	pb->has_column = false;
	pb->segment_rates = pb->summary_rate = 0;
}

static void
start_segment(PartitionedBuild *pb, uint32 segment)
{
	pb->segment = segment;
	pb->range_keys = pb->segment_keys = 0;
	bx_writer_start(pb->segments, segment,
					bx_segment_rate(pb->summarize,
									pb->build->shared->meta.false_positive_rate));
	bx_distinct_clear(&pb->distinct);
}

static void
finish_segment(PartitionedBuild *pb)
{
	pb->segment_rates += bx_writer_finish(pb->segments,
										  &pb->top.node[BX_SLOT_SEGMENT(pb->segment % BX_SEGMENTS_PER_PARTITION)]);
	if (pb->summarize)
		bx_writer_close_child(pb->summaries, bx_distinct_estimate(&pb->distinct));
	bx_distinct_merge(&pb->partition_distinct, &pb->distinct);
}

/*
 * Finishes the current segment and starts the next one, if the range belongs
 * to another segment.
 */
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
		start_partition(build, segment / BX_SEGMENTS_PER_PARTITION);
	start_segment(pb, segment);
	pb->started = true;
}

/* Adds keys of a range; see BxLayout. */
void
bx_partitioned_build_add(BxBuild *build, uint32 range, double done,
						 const uint64 *keys, Size nkeys, bool doubt)
{
	PartitionedBuild *pb = build->layout_state;
	int			child = range % BX_FANOUT;

	advance_to_range(build, range);
	pb->range_keys += nkeys;
	bx_writer_add(pb->segments, child, keys, nkeys, doubt, pb->range_keys, done);
	pb->doubt |= doubt;
	pb->partition_done = (range % BX_RANGES_PER_PARTITION + done) /
		BX_RANGES_PER_PARTITION;
	if (pb->summarize)
	{
		bx_distinct_add(&pb->distinct, keys, nkeys);
		pb->segment_keys += nkeys;
		bx_writer_add(pb->summaries, pb->segment % BX_SEGMENTS_PER_PARTITION, keys,
					  nkeys, doubt, pb->segment_keys, (child + done) / BX_FANOUT);
	}
	if (done >= 1.0)
	{
		bx_writer_close_child(pb->segments, pb->range_keys);
		pb->range_keys = 0;
	}
}

/* Fills in the statistics of a partition for the leader. */
static void
report_partition(const PartitionedBuild *pb, BxUnitResult *result)
{
	for (int c = 0; c < BX_FANOUT; c++)
	{
		const BxNodeDesc *desc = &pb->top.node[BX_SLOT_SEGMENT(c)];

		if (desc->state != BX_NODE_PRESENT)
			continue;
		result->partition.segments++;
		result->partition.slices += desc->nslices;
		result->keys += desc->keys;
	}
	result->rates = pb->segment_rates;
	result->partition.summarized =
		pb->top.node[BX_SLOT_SUMMARY].state == BX_NODE_PRESENT;
	result->partition.summary_rate = pb->summary_rate;
}

/* Completes the partition, if it has keys, and writes its top-level page. */
void
bx_partitioned_build_unit(BxBuild *build, BxUnitResult *result)
{
	PartitionedBuild *pb = build->layout_state;

	if (!pb->started)
		return;
	finish_segment(pb);
	pb->finishing = true;
	if (pb->summarize)
		pb->summary_rate = bx_writer_finish(pb->summaries, &pb->top.node[BX_SLOT_SUMMARY]);
	else
		pb->top.node[BX_SLOT_SUMMARY].state = BX_NODE_UNKNOWN;
	finish_column(pb, result);
	result->block = bx_dir_make_top(build->index, NULL, pb->partition,
									&pb->top);
	report_partition(pb, result);
	pb->started = false;
}

/* Enters a group in the region page of a partition, and logs its pages. */
static void
publish_group(BxBuild *build, BxMetaPageData *meta, uint32 partition,
			  BxRegionChange *change, const BxGroupDesc *group)
{
	change->group = group;
	meta->stats.partitioned.groups++;
	if (RelationNeedsWAL(build->index))
		log_newpage_range(build->index, MAIN_FORKNUM, group->start,
						  group->start + bx_groups_pages(group), true);
	bx_dir_publish_top(build->index, meta, partition, change);
}

/*
 * Enters a partition in its region page, and its group if no other partition
 * has entered it: *entered is 1 + the first partition of the last group.
 */
static void
publish_partition(BxBuild *build, BxMetaPageData *meta, uint32 partition,
				  uint32 *entered)
{
	const BxUnitResult *result = &build->shared->results[partition];
	BxRegionChange change = {.top = result->block};
	int			width;
	uint32		first = first_of_group(build->shared, partition, &width);

	change.is_filtered = result->partition.filtered &&
		result->partition.own_group.width == 0;
	if (change.is_filtered && *entered != first + 1)
	{
		*entered = first + 1;
		publish_group(build, meta, partition, &change,
					  &build->shared->results[first].partition.group);
	}
	else
		bx_dir_publish_top(build->index, meta, partition, &change);
}

/*
 * Enters the partition's own group of width 1, if it has one, after the wide
 * groups, so that this group is the current one.
 */
static void
publish_own_group(BxBuild *build, BxMetaPageData *meta, uint32 partition)
{
	const BxUnitResult *result = &build->shared->results[partition];
	BxRegionChange change = {.is_filtered = true};

	if (result->partition.filtered && result->partition.own_group.width > 0)
		publish_group(build, meta, partition, &change,
					  &result->partition.own_group);
}

/* Enters the partitions in the directory, and combines their statistics. */
void
bx_partitioned_build_publish(BxBuild *build, BxMetaPageData *meta)
{
	BxStats    *stats = &meta->stats;
	BxPartitionedStats *mine = &stats->partitioned;
	uint32		entered = 0;
	double		keys = 0;
	double		rates = 0;
	double		summary_rates = 0;
	double		group_rates = 0;

	meta->partitioned.next_generation =
		pg_atomic_read_u32(&build->shared->next_generation);
	for (uint64 unit = 0; unit < build->shared->nunits; unit++)
	{
		const BxUnitResult *result = &build->shared->results[unit];

		CHECK_FOR_INTERRUPTS();
		if (result->block == 0)
			continue;
		publish_partition(build, meta, unit, &entered);
		stats->parts += result->partition.segments;
		mine->partitions++;
		mine->summarized += result->partition.summarized;
		mine->slices += result->partition.slices;
		mine->unfiltered += !result->partition.filtered;
		keys += result->keys;
		rates += result->rates;
		summary_rates += result->partition.summary_rate;
		group_rates += result->partition.group_rate;
	}
	for (uint64 unit = 0; unit < build->shared->nunits; unit++)
		publish_own_group(build, meta, unit);
	if (stats->parts > 0)
	{
		stats->range_keys = keys / stats->parts;
		stats->range_rate = rates / stats->parts;
	}
	if (mine->summarized > 0)
		mine->summary_rate = summary_rates / mine->summarized;
	if (mine->partitions > mine->unfiltered)
		mine->group_rate = group_rates / (mine->partitions - mine->unfiltered);
}
