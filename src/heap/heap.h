/*-------------------------------------------------------------------------
 *
 * heap.h
 *	  Reads the table: extracts the keys of every tuple version in ranges
 *	  of pages, finds the rows on given pages that may match, and tests
 *	  whether a snapshot sees them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_HEAP_H
#define BX_HEAP_H

#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "nodes/execnodes.h"
#include "nodes/tidbitmap.h"
#include "utils/snapshot.h"

#include "../compat.h"
#include "../debug.h"
#include "../key/key.h"

/* heapscan.c */
typedef struct BxHeapScan BxHeapScan;
typedef void (*BxRangeCallback) (void *arg, uint32 range, double done,
								 const uint64 *keys, Size nkeys, bool doubt);
extern IndexInfo *bx_heapscan_index_info(Relation index);
extern BxHeapScan *bx_heapscan_begin(Relation heap, Relation index,
									 IndexInfo *indexInfo, uint8 keys,
									 Size memory);
extern void bx_heapscan_set_snapshot(BxHeapScan *scan, Snapshot snapshot);
extern void bx_heapscan_set_nowait(BxHeapScan *scan);
extern void bx_heapscan_block(BxHeapScan *scan, BlockNumber blkno);
extern Size bx_heapscan_keys(BxHeapScan *scan, const uint64 **keys,
							 bool *doubt);
extern void bx_heapscan_clear(BxHeapScan *scan);
extern void bx_heapscan_ranges(BxHeapScan *scan, uint8 lg_base,
							   uint64 first_range, uint64 end_range,
							   BlockNumber heap_blocks,
							   BxRangeCallback callback, void *arg);
extern void bx_heapscan_tuples(BxHeapScan *scan, double *heap_tuples,
							   double *index_tuples);
extern void bx_heapscan_end(BxHeapScan *scan);

/*
 * If a search finds no more heap pages than this, it checks their rows itself
 * (rows.c), which saves the executor most of the work for a single value.
 * The limit is max(64, 4 ranges per value), because more pages than that
 * probably have many matching rows, and at most 16384, because all these
 * pages are read before the first row is returned, even if the query needs
 * only one row.
 */
#define BX_FEW_PAGES(elements, pages_per_range) \
	Min(Max(64, 4.0 * (elements) * (pages_per_range)), 16384)

/* rows.c */
typedef struct BxRows BxRows;
extern BxRows *bx_rows_begin(IndexScanDesc scan, Relation heap,
							 const BxQuery *query, const BxHasher *hashers);
extern bool bx_rows_can_exclude(const BxRows *rows);
extern int	bx_rows_list(BxRows *rows, BlockNumber blkno,
						 ItemPointerData *tids);
extern void bx_rows_prefetch(BxRows *rows, const BlockNumber *pages,
							 uint32 npages, uint32 i, uint32 distance,
							 uint32 *ahead);
extern void bx_rows_add(BxRows *rows, const BlockNumber *pages,
						uint32 npages, TIDBitmap *tbm);

/* ahead.c */
typedef struct BxAhead BxAhead;
extern BxAhead *bx_ahead_begin(Relation index, const IndexInfo *indexInfo,
							   const BxHasher *hashers, int natts);
extern void bx_ahead_collect(BxAhead *ahead, Relation heap, ItemPointer tid,
							 BxHasher *hashers, uint8 keys, BxRowKeys *row);

/* visible.c */
typedef struct BxVisible BxVisible;
extern BxVisible *bx_visible_begin(Relation heap, Relation index,
								   Snapshot snapshot);
extern bool bx_visible_test(BxVisible *visible, const ItemPointerData *tid);
extern void bx_visible_reset(BxVisible *visible);
extern void bx_visible_end(BxVisible *visible);

#endif							/* BX_HEAP_H */
