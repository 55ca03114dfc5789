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
extern void bx_partitioned_insert(BxInsert *insert, Relation heap,
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
	double		rate;			/* target false-positive rate of a child's
								 * filter; 0 means the index's
								 * false_positive_rate */
	const char *filter;			/* the filter of a child, for messages */
} BxLevel;

/* levels.c; indexed by BX_LEVEL_xxx */
#define BX_TOP_LEVEL		BX_LEVEL_PARTITION
extern const BxLevel bx_levels[BX_TOP_LEVEL + 1];

/* Returns the number of the child of a node of this level that has the range. */
static inline int
bx_level_child(int level, uint32 range)
{
	return (range >> bx_levels[level].lg_child_ranges) % BX_FANOUT;
}

/* Returns the number of the node of this level that has the range. */
static inline uint32
bx_level_node(int level, uint32 range)
{
	return (range >> bx_levels[level].lg_child_ranges) / BX_FANOUT;
}

/* Returns the number of ranges of a node of this level. */
static inline uint32
bx_level_ranges(int level)
{
	return BX_FANOUT << bx_levels[level].lg_child_ranges;
}

extern double bx_level_rate(int level, const BxMetaPageData *meta);
extern uint32 bx_node_partition(const BxNode *node);
extern uint32 bx_node_slot(const BxNode *node);
extern BxNodeDesc *bx_node_desc(const BxNode *node, BxTopPageData *top);
extern void bx_node_of_slot(uint32 partition, uint32 slot,
							const BxTopPageData *top, BxNode *node);
extern bool bx_node_of_shadow(uint32 partition, const BxTopPageData *top,
							  BxNode *node);
extern int	bx_node_count_segments(const BxTopPageData *top, int *doubtful);

/* directory.c */
typedef void (*BxTopCallback) (void *arg, uint32 partition, BlockNumber blkno);
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
							   uint32 partition, BlockNumber top);
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
extern void bx_create_segment(Relation index, Relation heap, ItemPointer tid);
extern void bx_create_shadow(Relation index, const BxNode *node, double keys,
							 BxNode *shadow);
extern bool bx_create_copy(Relation index, const BxNode *node,
						   BlockNumber end, BxNode *shadow);

/*
 * Target false-positive rate of a summary: the fraction of the segments that
 * are read although they do not contain the key.  At 0.004, a search reads
 * about half a page more per partition (0.004 * 128), in addition to the two
 * pages that it always reads.  Halving the rate would save less than that,
 * and would take more space.
 */
#define BX_SUMMARY_RATE		0.004

/*
 * The first partition gets no summary while it has fewer segments than this:
 * reading all its segments is cheap, and the summary would be larger than the
 * segments.
 */
#define BX_MIN_SEGMENTS_FOR_SUMMARY		32

/* slices.c */
#define BX_WRONG_SLICE		"page does not match its directory entry"

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
extern void bx_slices_set_baseline(BxNodeDesc *desc, const BxMeasure *measure);

/* extents.c */
extern BxFreeExtent *bx_extents_find(Relation index, BxMetaPageData *meta,
									 uint32 npages);
extern BlockNumber bx_extents_take(Relation index, BxMetaPageData *meta,
								   uint32 npages);
extern void bx_extents_free(Relation index, const BxNodeDesc *desc);
extern BlockNumber bx_extents_sweep(Relation index, BlockNumber *end);
extern BlockNumber bx_extents_truncate(Relation index, BlockNumber *free_pages);

/* writer.c */
typedef struct BxNodeWriter BxNodeWriter;
extern BxNodeWriter *bx_writer_create(BxBuild *build, int level, Size memory);
extern void bx_writer_free(BxNodeWriter *writer);
extern void bx_writer_start(BxNodeWriter *writer, uint32 number);
extern void bx_writer_add(BxNodeWriter *writer, int child, const uint64 *keys,
						  Size n, bool doubt, double distinct, double done);
extern void bx_writer_close_child(BxNodeWriter *writer, double distinct);
extern double bx_writer_finish(BxNodeWriter *writer, BxNodeDesc *desc);

/* move.c */
extern void bx_move_compact(BxRepair *repair);

/* rebuild.c */
extern void bx_rebuild_index(BxRepair *repair);
extern bool bx_rebuild_is_overfull(const BxNodeDesc *desc,
								   const BxMeasure *measure, double target);
extern bool bx_rebuild_wants_summary(uint32 partition, int segments);

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
