/*-------------------------------------------------------------------------
 *
 * block.h
 *	  Layout "block": the filters of consecutive ranges, packed into pages that
 *	  are searched from first to last.  Only this folder, and the list of
 *	  layouts, includes this header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_BLOCK_H
#define BX_BLOCK_H

#include "postgres.h"

#include "../layout/layout.h"

extern const BxLayout bx_layout_block;

/* Properties that never change once the index has a page of filters. */
typedef struct BxBlockGeometry
{
	uint8		lg_base;
	int			nranges;		/* ranges per page */
	double		target;
} BxBlockGeometry;

/* page.c */
extern void bx_block_make_page(char *image, uint8 kind, uint32 number,
							   const BxBlockGeometry *geometry,
							   const double *keys);
extern void bx_block_make_even_page(char *image, uint8 kind, uint32 number,
									const BxBlockGeometry *geometry,
									double keys);
extern double bx_block_fill_in_counts(double *counts, int n, double typical);
extern void bx_block_check_identity(Relation index, Buffer buffer, uint8 kind,
									uint32 number,
									const BxBlockGeometry *geometry);
extern char *bx_block_get_filter(Relation index, Buffer buffer,
								 const BxBlockGeometry *geometry, int i,
								 Size *size);
extern void bx_block_check_length(Relation index, BlockNumber nblocks,
								  BlockNumber blkno);
extern void bx_block_put_page(Relation index, BlockNumber blkno,
							  const char *image);
extern void bx_block_put_scratch(Relation index,
								 const BxBlockGeometry *geometry);
extern void bx_block_put_even_pages(Relation index,
									const BxBlockGeometry *geometry,
									uint64 first, uint64 end, double keys);
extern void bx_block_set_means(BxStats *stats, double filters, double doubtful,
							   double keys, double rates);
extern BxBlockGeometry bx_block_geometry(const BxMetaPageData *meta);
extern int	bx_block_choose_ranges(const double *keys, int n, double target);
extern BlockNumber bx_block_of_page(uint32 number);
extern void bx_block_read_page(Relation index, uint32 number,
							   const BxBlockGeometry *geometry,
							   BufferAccessStrategy strategy, char *copy);
extern void bx_block_check_offsets(Relation index, BlockNumber blkno,
								   Page page, const BxBlockGeometry *geometry);

/*
 * Estimates from the fill of a page's filters: sums over the filters that
 * have keys and are not in doubt.
 */
typedef struct BxBlockFill
{
	int			filters;		/* number of such filters */
	int			doubtful;
	double		keys;
	double		squares;		/* squares of the numbers of keys */
	double		rates;
	double		fills;
	double		probes;
} BxBlockFill;

extern void bx_block_measure(const char *image, int nranges,
							 BxBlockFill *fill);
extern bool bx_block_is_overfull(const char *image, const BxBlockFill *fill,
								 double target);

extern void bx_block_set_baseline(char *image, int nranges, BxBlockFill *fill);

/* build.c */
extern uint64 bx_block_build_plan(BxBuild *build, BxMetaPageData *meta);
extern void bx_block_build_begin(BxBuild *build);
extern void bx_block_build_add(BxBuild *build, uint32 range, double done,
							   const uint64 *keys, Size nkeys, bool doubt);
extern void bx_block_build_unit(BxBuild *build, BxUnitResult *result);
extern void bx_block_build_end(BxBuild *build);
extern void bx_block_build_publish(BxBuild *build, BxMetaPageData *meta);

/* insert.c */
extern void *bx_block_insert_begin(const BxMetaPageData *meta);
extern bool bx_block_insert(BxInsert *insert, Relation heap, ItemPointer tid,
							const BxRowKeys *row);
extern void bx_block_insert_doubt(BxInsert *insert, Relation heap,
								  ItemPointer tid);

/* search.c */
extern void bx_block_search(BxSearch *search);

/* rebuild.c */
extern void bx_block_repair(BxRepair *repair);

/* stats.c */
extern void bx_block_collect_stats(Relation index, BxStats *stats,
								   BufferAccessStrategy strategy);
extern double bx_block_match_fraction(const BxSearchFacts *facts,
									  double elements, double hit_ranges);
extern void bx_block_search_cost(const BxSearchFacts *facts, double elements,
								 double hit_ranges, BxSearchCost *cost);

/* inspect.c */
extern void bx_block_walk(Relation index, const BxMetaPageData *meta,
						  BxPartCallback callback, void *arg);
extern void bx_block_check_claims(BxCheck *check, const BxMetaPageData *meta);
extern void bx_block_check_pages(BxCheck *check);
extern void bx_block_check_keys(BxCheck *check, uint32 range,
								const uint64 *keys, Size nkeys);
extern double bx_block_estimate(const BxTableModel *model, uint8 lg_base,
								double rate, BxStats *stats);

#endif							/* BX_BLOCK_H */
