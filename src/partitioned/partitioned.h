/*-------------------------------------------------------------------------
 *
 * partitioned.h
 *	  Layout "partitioned": a tree of nodes, each with the filters of its 128
 *	  children stored transposed in slice pages.  Only this folder, and the
 *	  list of layouts, includes this header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_PARTITIONED_H
#define BX_PARTITIONED_H

#include "postgres.h"

#include "../filter/group.h"
#include "../layout/layout.h"

extern const BxLayout bx_layout_partitioned;

/* build.c */
extern uint64 bx_partitioned_build_plan(BxBuild *build, BxMetaPageData *meta);
extern void bx_partitioned_build_begin(BxBuild *build);
extern void bx_partitioned_build_add(BxBuild *build, uint32 range, double done,
									 const uint64 *keys, Size nkeys,
									 bool doubt);
extern void bx_partitioned_build_unit(BxBuild *build, BxUnitResult *result);
extern void bx_partitioned_build_end(BxBuild *build);
extern void bx_partitioned_build_publish(BxBuild *build, BxMetaPageData *meta);

/* insert.c */
extern void *bx_partitioned_insert_begin(const BxMetaPageData *meta);
extern bool bx_partitioned_insert(BxInsert *insert, Relation heap,
								  ItemPointer tid, const BxRowKeys *row);
extern void bx_partitioned_insert_doubt(BxInsert *insert, Relation heap,
										ItemPointer tid);

/* search.c */
extern void bx_partitioned_search(BxSearch *search);

/* stats.c */
extern void bx_partitioned_collect_stats(Relation index, BxStats *stats,
										 BufferAccessStrategy strategy);
extern double bx_partitioned_match_fraction(const BxSearchFacts *facts,
											double elements,
											double hit_ranges);
extern void bx_partitioned_search_cost(const BxSearchFacts *facts,
									   double elements, double hit_ranges,
									   BxSearchCost *cost);

/*
 * A node of the tree, and a copy of its descriptor, which may be out of date.
 */
typedef struct BxNode
{
	int			level;			/* BX_LEVEL_xxx */
	uint32		number;			/* number of the node on its level */
	bool		is_shadow;		/* desc describes a shadow of the node */
	BxNodeDesc	desc;
} BxNode;

/* Properties of a level. */
typedef struct BxLevel
{
	int			lg_child_ranges;	/* log2 of the ranges of a child of a node */
	int			lg_children;	/* log2 of the children of a node */
	double		rate;			/* target false-positive rate of a child's
								 * filter; 0 means that it is calculated from
								 * the index's false_positive_rate */
	const char *filter;			/* the filter of a child, for messages */
} BxLevel;

/* levels.c; indexed by BX_LEVEL_xxx */
#define BX_TOP_LEVEL		BX_LEVEL_PARTITION
extern const BxLevel bx_levels[BX_TOP_LEVEL + 1];

/* Returns the number of the child of a node of this level that has the range. */
static inline int
bx_level_child(int level, uint32 range)
{
	return (range >> bx_levels[level].lg_child_ranges) &
		((1 << bx_levels[level].lg_children) - 1);
}

/* Returns the number of the node of this level that has the range. */
static inline uint32
bx_level_node(int level, uint32 range)
{
	return range >> (bx_levels[level].lg_child_ranges +
					 bx_levels[level].lg_children);
}

/* Returns the number of ranges of a node of this level. */
static inline uint32
bx_level_ranges(int level)
{
	return UINT32_C(1) << (bx_levels[level].lg_child_ranges +
						   bx_levels[level].lg_children);
}

extern double bx_summary_rate(double partitions, double false_positive_rate);
extern double bx_segment_rate(bool summarized, double false_positive_rate);
extern double bx_node_rate(int level, uint32 number,
						   const BxMetaPageData *meta);
extern double bx_node_most_keys(Relation index, const BxMetaPageData *meta,
								int level);
extern double bx_partition_most_keys(Relation index,
									 const BxMetaPageData *meta);
extern uint32 bx_node_partition(const BxNode *node);
extern uint32 bx_node_slot(const BxNode *node);
extern BxNodeDesc *bx_node_desc(const BxNode *node, BxTopPageData *top);
extern void bx_node_of_slot(uint32 partition, uint32 slot,
							const BxTopPageData *top, BxNode *node);
extern bool bx_node_of_shadow(uint32 partition, const BxTopPageData *top,
							  BxNode *node);
extern int	bx_node_count_segments(const BxTopPageData *top, int *doubtful);

/* A change of a region page, for one of its partitions. */
typedef struct BxRegionChange
{
	BlockNumber top;			/* new top-level page; 0 if unchanged */
	const BxGroupDesc *group;	/* group to be added, or NULL */
	uint32		removed;		/* generation of a group to be removed; 0 if
								 * none */
	bool		is_filtered;	/* the partition's filter becomes valid */
	bool		is_unfiltered;	/* the partition matches everything from now
								 * on */
} BxRegionChange;

/* directory.c */
typedef void (*BxTopCallback) (void *arg, uint32 partition, BlockNumber blkno);
typedef void (*BxRegionCallback) (void *arg, uint32 number, BlockNumber blkno,
								  const BxRegionPageData *region);
extern BlockNumber bx_dir_region(Relation index, uint32 region);
extern bool bx_dir_read_region(Relation index, uint32 number,
							   BlockNumber *index_blocks,
							   BxRegionPageData *region);
extern void bx_dir_update_region(Relation index, uint32 partition,
								 const BxRegionChange *change);
extern void bx_dir_set_group(Relation index, uint32 partition,
							 const BxGroupDesc *group,
							 const BxGroupDesc *shadow);
extern void bx_dir_each_region(Relation index, const BxMetaPageData *meta,
							   BxRegionCallback callback, void *arg);
extern void bx_dir_tops(Relation index, uint32 first, uint32 n,
						BlockNumber *tops);
extern BlockNumber bx_dir_known_blocks(Relation index);
extern void bx_dir_check_top(Relation index, Buffer buffer, uint32 partition);
extern void bx_dir_check_desc(Relation index, BlockNumber blkno,
							  const BxNodeDesc *desc,
							  BlockNumber *index_blocks);
extern BlockNumber bx_dir_make_top(Relation index, BxMetaPageData *meta,
								   uint32 partition,
								   const BxTopPageData *content);
extern void bx_dir_publish_top(Relation index, BxMetaPageData *meta,
							   uint32 partition,
							   const BxRegionChange *change);
extern bool bx_dir_read_top(Relation index, uint32 partition,
							BxTopPageData *top);
extern void bx_dir_each_top(Relation index, const BxMetaPageData *meta,
							BxTopCallback callback, void *arg);
extern void bx_dir_publish_node(Relation index, const BxNode *node);
extern void bx_dir_drop_shadow(Relation index, uint32 partition);
extern void bx_dir_swap_shadow(Relation index, const BxNode *old,
							   const BxNode *shadow, const BxNodeDesc *desc);
extern void bx_dir_refresh(Relation index, BxNode *node, BlockNumber blkno,
						   const char *problem);

/* create.c */
extern void bx_create_segment(Relation index, Relation heap, ItemPointer tid,
							  double keys_per_row);
extern void bx_create_shadow(Relation index, const BxNode *node, double keys,
							 BxNode *shadow);
extern bool bx_create_copy(Relation index, const BxNode *node,
						   BlockNumber end, BxNode *shadow);
extern void bx_create_group(Relation index, uint32 region,
							BxGroupDesc *group);

/*
 * Target false-positive rate of a summary: the fraction of the segments that
 * are read although they do not contain the key.  At 0.004, a search reads
 * about half a page more per partition that it visits (0.004 * 128), in
 * addition to the two pages that it always reads there.  Halving the rate would
 * save less than that, and would take more space.
 */
#define BX_SUMMARY_RATE		0.004

/*
 * A summary that CREATE INDEX builds has this rate if the index has at most
 * BX_SMALL_INDEX partitions.  Searches of a small index are fast, so that the
 * pages that are read in vain take a larger part of the time, and the index is
 * small even if it is larger by a twelfth.
 */
#define BX_SMALL_SUMMARY_RATE	0.001
#define BX_SMALL_INDEX			4

/*
 * The first partition gets no summary while it has fewer segments than this:
 * reading all its segments is cheap, and the summary would be larger than the
 * segments.
 */
#define BX_MIN_SEGMENTS_FOR_SUMMARY		32

/*
 * The filters of ranges under a summary may have a rate that is higher than
 * false_positive_rate by this factor, but at most BX_SUMMARIZED_RATE.  At
 * 0.002, a lookup reads 0.26 ranges in vain of each segment that it visits,
 * which usually is one; and with 75 keys per range, the filters of a segment
 * need two slices instead of three.
 */
#define BX_SUMMARIZED_FACTOR	10
#define BX_SUMMARIZED_RATE		0.002

/*
 * Target false-positive rate of the filter of a partition in a group: the
 * fraction of the partitions that are read although they do not contain the
 * key.  Such a partition costs a search two pages, that is, about 1.2
 * microseconds; at 0.01 it reads less than three of the 256 partitions from
 * which on automatic pages_per_range grows.
 */
#define BX_GROUP_RATE		0.01

/*
 * Number of probes of a key in a group.  Five probes give BX_GROUP_RATE at the
 * sizes that bx_filter_plan() chooses.  All groups have the same number, so
 * that they can be merged.
 */
#define BX_GROUP_PROBES		5

/*
 * Sanity bound on the keys of a descriptor whose filters have n slices or
 * blocks: a full slice or block counts as ln(BX_SLICE_ROWS) keys per row
 * (bx_filter_fill_keys), and plans have fewer keys.  New filters are sized
 * from descriptors.
 */
#define BX_MOST_KEYS(n)			((uint64) (n) * BX_SLICE_ROWS * 8)

/*
 * Maximum width of a group that is created by an insert, by a build, and by
 * VACUUM's merge.  A partition of a million keys adds about 150 pages to a
 * group.
 */
#define BX_INSERT_WIDTH		16
#define BX_BUILD_WIDTH		32
#define BX_MERGE_WIDTH		BX_FANOUT

/*
 * Maximum number of pages of a merged group.  They are allocated together,
 * while other backends that need a new segment wait.
 */
#define BX_MERGE_PAGES		32768

/*
 * Maximum number of pages of a group that is created by an insert: other
 * backends that need a new segment wait while the pages are written.
 */
#define BX_INSERT_PAGES		2048

/* groups.c */
typedef struct BxGroupMeasure
{
	double		keys;
	double		rate;
} BxGroupMeasure;

extern uint32 bx_groups_pages(const BxGroupDesc *group);
extern bool bx_groups_contain(const BxGroupDesc *group, int child);
extern void bx_groups_columns(const BxGroupDesc *group, BxMask *columns);
extern bool bx_groups_is_unfiltered(const BxRegionPageData *region, int child);
extern const BxGroupDesc *bx_groups_find(const BxRegionPageData *region,
										 int child);
extern const BxGroupDesc *bx_groups_by_generation(const BxRegionPageData *region,
												  uint32 generation);
extern void bx_groups_check(Relation index, BlockNumber blkno,
							const BxGroupDesc *group, int child,
							BlockNumber *index_blocks);
extern void bx_groups_check_gone(Relation index, uint32 region,
								 const BxGroupDesc *group, BlockNumber blkno,
								 const char *problem);
extern uint32 bx_groups_like(const BxRegionPageData *region);
extern void bx_groups_plan(double keys, uint32 like, int width, int first,
						   BxGroupDesc *group);
extern void bx_groups_init_page(Page page, uint32 region,
								const BxGroupDesc *group, uint32 number);
extern bool bx_groups_is_page(Page page, uint32 region,
							  const BxGroupDesc *group, uint32 number);
extern Buffer bx_groups_read(Relation index, uint32 region,
							 const BxGroupDesc *group, uint32 number,
							 BufferAccessStrategy strategy,
							 const char **problem);
extern void bx_groups_write(Relation index, uint32 region,
							const BxGroupDesc *group, int column,
							uint32 first_page, uint32 npages,
							const uint8 *lines, bool wal);
extern void bx_groups_merge_page(Relation index, uint32 region,
								 const BxGroupDesc *group, uint32 number,
								 const char *content,
								 BufferAccessStrategy strategy);
extern bool bx_groups_measure(Relation index, uint32 region,
							  const BxGroupDesc *group, int column,
							  BufferAccessStrategy strategy,
							  BxGroupMeasure *measure);

/*
 * column.c: the filter of a partition, or a part of it, in memory: the blocks
 * of npages pages of its group.
 */
typedef struct BxColumn
{
	uint32		partition;
	BxGroupDesc group;
	uint32		first_page;
	uint32		npages;
	uint8	   *lines;			/* NULL until there is memory for them */
	Size		allocated;
} BxColumn;

extern Size bx_column_size(const BxGroupDesc *group, uint32 npages);
extern void bx_column_start(BxColumn *column, uint32 partition,
							const BxGroupDesc *group, uint32 first_page,
							uint32 npages);
extern void bx_column_add(BxColumn *column, const uint64 *keys, Size n);
extern void bx_column_write(const BxColumn *column, Relation index, bool wal);
extern void bx_column_end(BxColumn *column);

/*
 * Returns number i of a sample of n of the numbers 0 .. total - 1, in ascending
 * order: one from each of n parts of about the same size.  If n is equal to
 * total, these are all numbers.
 *
 * Keys can be chosen so that all are in the same slice or block.  If it were
 * known which slices are measured, such keys could make a filter seem to be
 * fuller than it is by the factor total / n.  So the sample depends on a secret
 * of the cluster (bx_sample_seed).  It is always the same for the same slices:
 * if nothing is added to them, a later estimate is equal to the baseline.
 */
static inline uint32
bx_sample_number(uint64 seed, uint32 i, uint32 n, uint32 total)
{
	uint32		first = (uint64) i * total / n;
	uint32		end = ((uint64) i + 1) * total / n;

	return first + bx_hash_mix(seed, i) % (end - first);
}

/* slices.c */
#define BX_WRONG_PAGE		"page does not match its directory entry"

extern uint64 bx_sample_seed(uint32 generation);
extern void bx_slices_plan(double keys, double rate, uint32 generation,
						   BxNodeDesc *desc);
extern void bx_slices_init_page(Page page, const BxNode *node, uint32 slice);
extern bool bx_slices_is_page(Page page, const BxNode *node, uint32 slice);
extern Buffer bx_slices_read(Relation index, const BxNode *node, uint32 slice,
							 BufferAccessStrategy strategy,
							 const char **problem);
extern void bx_slices_set_doubt(char *rows, const BxMask *doubt);
extern void bx_slices_write(Relation index, const BxNode *node, uint32 slice,
							const char *rows, bool wal);
extern bool bx_slices_measure(Relation index, const BxNode *node,
							  BufferAccessStrategy strategy, BxMeasure *measure);
extern bool bx_slices_measure_for_size(Relation index, const BxNode *node,
									   BxMeasure *measure);
extern void bx_slices_set_baseline(BxNodeDesc *desc, const BxMeasure *measure);

/* extents.c */
extern BxFreeExtent *bx_extents_find(Relation index, BxMetaPageData *meta,
									 uint32 npages);
extern BlockNumber bx_extents_take(Relation index, BxMetaPageData *meta,
								   uint32 npages);
extern void bx_extents_free(Relation index, BlockNumber start, uint32 npages);
extern BlockNumber bx_extents_sweep(Relation index, BlockNumber *end);
extern BlockNumber bx_extents_truncate(Relation index, BlockNumber *free_pages);

/* writer.c */
typedef struct BxNodeWriter BxNodeWriter;
typedef void (*BxKeysCallback) (void *arg, const uint64 *keys, Size n);
extern BxNodeWriter *bx_writer_create(BxBuild *build, int level, Size memory);
extern void bx_writer_watch(BxNodeWriter *writer, BxKeysCallback callback,
							void *arg);
extern void bx_writer_free(BxNodeWriter *writer);
extern void bx_writer_start(BxNodeWriter *writer, uint32 number, double rate);
extern void bx_writer_add(BxNodeWriter *writer, int child, const uint64 *keys,
						  Size n, bool doubt, double distinct, double done);
extern void bx_writer_close_child(BxNodeWriter *writer, double distinct);
extern double bx_writer_finish(BxNodeWriter *writer, BxNodeDesc *desc);

/* move.c */
extern void bx_move_compact(BxRepair *repair);

/* rebuild.c */
extern void bx_rebuild_index(BxRepair *repair);
extern void bx_rebuild_after_create(Relation heap, Relation index,
									uint32 segment);
extern bool bx_rebuild_is_affordable(const BxRepair *repair, uint64 bytes);
extern bool bx_rebuild_is_overfull(const BxNodeDesc *desc,
								   const BxMeasure *measure, double target);
extern bool bx_rebuild_wants_summary(uint32 partition, int segments);

/* regroup.c: the replacement of filters by a new group */
typedef struct BxRegroup
{
	Relation	index;
	uint32		region;
	BxGroupDesc group;			/* the new group */
	BxMask		members;		/* the partitions that it is a shadow of */
} BxRegroup;

extern void bx_regroup_begin(BxRegroup *regroup, Relation index,
							 uint32 region, const BxGroupDesc *group);
extern bool bx_regroup_finish(BxRegroup *regroup, bool is_filtered,
							  BlockNumber *freed);
extern void bx_regroup_abandon(BxRegroup *regroup);
extern void bx_regroup_settle(Relation index, uint32 region);
extern BlockNumber bx_regroup_remove_unused(Relation index, uint32 region);

/* refilter.c */
extern void bx_refilter_partition(BxRepair *repair,
								  const BxMetaPageData *meta,
								  uint32 partition, uint32 npartitions);
extern bool bx_refilter_is_overfull(const BxGroupDesc *group,
									const BxGroupMeasure *measure);

/* merge.c */
extern bool bx_merge_region(BxRepair *repair, uint32 region,
							uint32 npartitions);

/* inspect.c */
extern void bx_partitioned_walk(Relation index, const BxMetaPageData *meta,
								BxPartCallback callback, void *arg);
extern void bx_partitioned_check_claims(BxCheck *check, const BxMetaPageData *meta);
extern void bx_partitioned_check_pages(BxCheck *check);
extern void bx_partitioned_check_keys(BxCheck *check, uint32 range,
									  const uint64 *keys, Size nkeys);
extern double bx_partitioned_estimate(const BxTableModel *model, uint8 lg_base,
									  double rate, BxStats *stats);

#endif							/* BX_PARTITIONED_H */
