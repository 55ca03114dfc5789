/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Building: writes segments and summaries from the keys of ranges.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "partitioned.h"

typedef struct PartitionedBuild
{
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
	BxTopPageData top;			/* top-level page of the current partition */
	double		segment_rates;	/* sum of the rates of its segments */
	double		summary_rate;
} PartitionedBuild;

uint64
bx_partitioned_build_plan(BxBuild *build, BxMetaPageData *meta)
{
	return BX_RANGES_PER_PARTITION;
}

void
bx_partitioned_build_begin(BxBuild *build)
{
	PartitionedBuild *pb = palloc0(sizeof(PartitionedBuild));

	pb->segments = bx_writer_create(build, BX_LEVEL_SEGMENT,
									build->memory / 8);
	pb->summaries = bx_writer_create(build, BX_LEVEL_PARTITION,
									 build->memory / 2);
	build->layout_state = pb;
}

void
bx_partitioned_build_end(BxBuild *build)
{
	PartitionedBuild *pb = build->layout_state;

	bx_writer_free(pb->segments);
	bx_writer_free(pb->summaries);
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
	bx_writer_start(pb->summaries, partition);
	memset(&pb->top, 0, sizeof(pb->top));
	pb->segment_rates = pb->summary_rate = 0;
}

static void
start_segment(PartitionedBuild *pb, uint32 segment)
{
	pb->segment = segment;
	pb->range_keys = pb->segment_keys = 0;
	bx_writer_start(pb->segments, segment);
	bx_distinct_clear(&pb->distinct);
}

static void
finish_segment(PartitionedBuild *pb)
{
	pb->segment_rates += bx_writer_finish(pb->segments,
										  &pb->top.node[BX_SLOT_SEGMENT(pb->segment % BX_FANOUT)]);
	if (pb->summarize)
		bx_writer_close_child(pb->summaries, bx_distinct_estimate(&pb->distinct));
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
		start_partition(build, segment / BX_FANOUT);
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
	if (pb->summarize)
	{
		for (Size i = 0; i < nkeys; i++)
			bx_distinct_add(&pb->distinct, keys[i]);
		pb->segment_keys += nkeys;
		bx_writer_add(pb->summaries, pb->segment % BX_FANOUT, keys, nkeys, doubt,
					  pb->segment_keys, (child + done) / BX_FANOUT);
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
	if (pb->summarize)
		pb->summary_rate = bx_writer_finish(pb->summaries, &pb->top.node[BX_SLOT_SUMMARY]);
	else
		pb->top.node[BX_SLOT_SUMMARY].state = BX_NODE_UNKNOWN;
	result->block = bx_dir_make_top(build->index, NULL, pb->partition,
									&pb->top);
	report_partition(pb, result);
	pb->started = false;
}

/* Enters the partitions in the map pages, and combines their statistics. */
void
bx_partitioned_build_publish(BxBuild *build, BxMetaPageData *meta)
{
	BxStats    *stats = &meta->stats;
	BxPartitionedStats *mine = &stats->partitioned;
	double		keys = 0;
	double		rates = 0;
	double		summary_rates = 0;

	meta->partitioned.next_generation =
		pg_atomic_read_u32(&build->shared->next_generation);
	for (uint64 unit = 0; unit < build->shared->nunits; unit++)
	{
		const BxUnitResult *result = &build->shared->results[unit];

		CHECK_FOR_INTERRUPTS();
		if (result->block == 0)
			continue;
		bx_dir_publish_top(build->index, meta, unit, result->block);
		stats->parts += result->partition.segments;
		mine->partitions++;
		mine->summarized += result->partition.summarized;
		mine->slices += result->partition.slices;
		keys += result->keys;
		rates += result->rates;
		summary_rates += result->partition.summary_rate;
	}
	if (stats->parts > 0)
	{
		stats->range_keys = keys / stats->parts;
		stats->range_rate = rates / stats->parts;
	}
	if (mine->summarized > 0)
		mine->summary_rate = summary_rates / mine->summarized;
}
