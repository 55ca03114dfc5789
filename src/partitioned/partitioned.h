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

/* directory.c */
typedef void (*BxTopCallback) (void *arg, uint32 partition, BlockNumber blkno);
extern void bx_dir_tops(Relation index, uint32 first, uint32 n,
						BlockNumber *tops);
extern BlockNumber bx_dir_known_blocks(Relation index);
extern void bx_dir_check_top(Relation index, Buffer buffer, uint32 partition);
extern void bx_dir_check_desc(Relation index, BlockNumber blkno,
							  const BxNodeDesc *desc,
							  BlockNumber *index_blocks);
extern void bx_dir_alloc_slices(Relation index, BxMetaPageData *meta,
								int level, uint32 node, double keys,
								double rate, BxNodeDesc *desc);
extern bool bx_dir_alloc_before(Relation index, BxMetaPageData *meta,
								BlockNumber end, int level, uint32 node, const BxNodeDesc *old,
								BxNodeDesc *desc);
extern BlockNumber bx_dir_make_top(Relation index, BxMetaPageData *meta,
								   uint32 partition,
								   const BxTopPageData *content);
extern void bx_dir_publish_top(Relation index, BxMetaPageData *meta,
							   uint32 partition, BlockNumber top);
extern bool bx_dir_read_top(Relation index, uint32 partition,
							BxTopPageData *top);
extern void bx_dir_each_top(Relation index, const BxMetaPageData *meta,
							BxTopCallback callback, void *arg);
extern void bx_dir_update_top(Relation index, uint32 partition, int child,
							  const BxNodeDesc *desc, const BxShadow *shadow);
extern void bx_dir_make_segment(Relation index, Relation heap,
								ItemPointer tid);

extern void bx_dir_swap_shadow(Relation index, uint32 partition, int child,
							   const BxNodeDesc *old, const BxShadow *shadow,
							   const BxNodeDesc *desc);

/* in place of a child's number: the partition's own descriptor, its summary */
#define BX_CHILD_SELF		(-1)

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
extern void bx_slices_plan(double keys, double rate, uint32 generation,
						   BxNodeDesc *desc);
extern void bx_slices_init_page(Page page, int level, uint32 node,
								uint32 slice, const BxNodeDesc *desc);
extern bool bx_slices_is_page(Page page, int level, uint32 node, uint32 slice,
							  const BxNodeDesc *desc);
extern void bx_slices_set_doubt(char *rows, const BxMask *doubt);
extern void bx_slices_write(Relation index, int level, uint32 node,
							const BxNodeDesc *desc, uint32 slice,
							const char *rows, bool wal);
extern bool bx_slices_measure(Relation index, int level, uint32 node,
							  const BxNodeDesc *desc,
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

/* node.c */
typedef struct BxNodeWriter BxNodeWriter;
extern BxNodeWriter *bx_node_create(BxBuild *build, int level, double rate,
									Size memory);
extern void bx_node_free(BxNodeWriter *writer);
extern void bx_node_start(BxNodeWriter *writer, uint32 node);
extern void bx_node_add(BxNodeWriter *writer, int child, const uint64 *keys,
						Size n, bool doubt, double distinct, double done);
extern void bx_node_close_child(BxNodeWriter *writer, double distinct);
extern double bx_node_finish(BxNodeWriter *writer, BxNodeDesc *desc);

/* move.c */
extern void bx_move_compact(BxRepair *repair);

/* rebuild.c */
extern void bx_rebuild_index(BxRepair *repair);
extern bool bx_rebuild_is_overfull(const BxNodeDesc *desc,
								   const BxMeasure *measure, double target);
extern bool bx_rebuild_wants_summary(uint32 partition, int segments);
extern int	bx_rebuild_count_segments(const BxTopPageData *top, int *doubtful);

/* inspect.c */
extern void bx_partitioned_walk(Relation index, const BxMetaPageData *meta,
								BxUnitCallback callback, void *arg);
extern void bx_partitioned_check_claims(BxCheck *check, const BxMetaPageData *meta);
extern void bx_partitioned_check_pages(BxCheck *check);
extern void bx_partitioned_check_keys(BxCheck *check, uint32 range,
									  const uint64 *keys, Size nkeys);
extern double bx_partitioned_estimate(const BxTableModel *model, uint8 lg_base,
									  double rate, BxStats *stats);

#endif							/* BX_PARTITIONED_H */
