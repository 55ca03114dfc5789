/*-------------------------------------------------------------------------
 *
 * am.h
 *	  The access method: the callbacks that PostgreSQL calls, and the options
 *	  of an index.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_AM_H
#define BX_AM_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/reloptions.h"

#include "../layouts.h"

/* Name of this module for parallel workers. */
#ifndef BX_LIBRARY
#define BX_LIBRARY			"$libdir/bloomidx"
#endif

/* Options as stored in pg_class.reloptions; the build freezes them. */
typedef struct BxOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			layout;			/* BX_LAYOUT_xxx */
	int			pages_per_range;	/* 0 means automatic */
	double		false_positive_rate;	/* < 0 means the default; see
										 * bx_options_get */
	int			keys;			/* BX_KEYS_xxx; 0 means the default */
} BxOptions;

#define BX_MAX_PAGES_PER_RANGE		(1 << BX_MAX_LG_BASE)

/*
 * Defaults of false_positive_rate.  If all columns extract, most queries have
 * more than one key, and with n-grams a dozen, so each key may match falsely
 * more often.  See "Rates of extracting classes" in src/README for the
 * measurements.
 */
#define BX_DEFAULT_RATE				0.0002
#define BX_EXTRACTED_RATE			0.01
#define BX_FRAGMENTS_RATE			0.2

/* handler.c */
extern CompareType bxtranslatestrategy(StrategyNumber strategy, Oid opfamily);
extern StrategyNumber bxtranslatecmptype(CompareType type, Oid opfamily);

/* options.c */
extern void bx_options_init(void);
extern bytea *bxoptions(Datum reloptions, bool validate);
extern const char *bx_options_keys_name(uint8 keys);
extern uint8 bx_options_keys_by_name(const char *name);
extern uint8 bx_options_keys(int natts, bool extracts, int option);
extern void bx_options_get(Relation index, BxOptions *options);

/* build.c */
extern void bx_build_units(BxBuild *build);
extern IndexBuildResult *bxbuild(Relation heap, Relation index,
								 IndexInfo *indexInfo);
extern void bxbuildempty(Relation index);
extern char *bxbuildphasename(int64 phasenum);

/* parallel.c */
typedef struct BxParallel BxParallel;
extern BxParallel *bx_parallel_begin(BxBuild *build, int nworkers,
									 Size build_size);
extern void bx_parallel_launch(BxParallel *parallel, Relation index);
extern void bx_parallel_wait(BxParallel *parallel,
							 void (*show) (BxBuild *build), BxBuild *build);
extern void bx_parallel_end(BxParallel *parallel);

/* insert.c */
extern BxInsert *bx_insert_get(Relation index, IndexInfo *indexInfo);
extern bool bxinsert(Relation index, Datum *values, bool *isnull,
					 ItemPointer ht_ctid, Relation heap,
					 IndexUniqueCheck checkUnique, bool indexUnchanged,
					 IndexInfo *indexInfo);

/* exclusion.c */
typedef struct BxOwnRow
{
	Oid			index;			/* InvalidOid: there is no such row */
	TransactionId xid;			/* the row's inserter */
	ItemPointerData tid;
	uint16		hash;			/* of the row's keys, which are registered */
	bool		is_locked;		/* the keys are locked during the check */
	bool		skips_range;	/* a search for "key" alone can skip the row's
								 * range */
	uint64		key;
} BxOwnRow;

extern void bx_exclusion_inserted(const BxInsert *insert, const bool *isnull,
								  ItemPointer tid, bool is_first);
extern bool bx_exclusion_take(IndexScanDesc scan, BxOwnRow *row);
extern bool bx_exclusion_ignores(Relation index, Relation heap,
								 const BxOwnRow *row,
								 const ItemPointerData *tid);
extern void bx_exclusion_end(Relation index, const BxOwnRow *row);

/* State of a scan. */
typedef struct BxScan
{
	MemoryContext cxt;			/* reset by a rescan, and after a bitmap scan */
	MemoryContext scan_cxt;		/* for the whole scan */
	MemoryContext own_cxt;		/* scan_cxt, if the scan has created it */
	BxHasher   *hashers;		/* one for each scan key */
	bool		hashers_ready;
	BxQuery		query;			/* conditions in the order of the scan keys;
								 * search.query is for the filters */
	BxRows	   *rows;
	BxSearch	search;
	struct BxFetch *fetch;		/* state of an index scan; NULL if none was
								 * started */
} BxScan;

/* scan.c */
extern IndexScanDesc bxbeginscan(Relation index, int nkeys, int norderbys);
extern void bxrescan(IndexScanDesc scan, ScanKey scankey, int nscankeys,
					 ScanKey orderbys, int norderbys);
extern int64 bxgetbitmap(IndexScanDesc scan, TIDBitmap *tbm);
extern void bxendscan(IndexScanDesc scan);
extern bool bx_scan_start(IndexScanDesc scan, Relation heap);
extern void bx_scan_search(BxSearch *search);

/* gettuple.c */
typedef struct BxFetch BxFetch;
extern bool bxgettuple(IndexScanDesc scan, ScanDirection direction);
extern void bx_fetch_reset(IndexScanDesc scan);
extern void bx_fetch_end(IndexScanDesc scan);

/* vacuum.c */
extern IndexBulkDeleteResult *bxbulkdelete(IndexVacuumInfo *info,
										   IndexBulkDeleteResult *stats,
										   IndexBulkDeleteCallback callback,
										   void *callback_state);
extern IndexBulkDeleteResult *bxvacuumcleanup(IndexVacuumInfo *info,
											  IndexBulkDeleteResult *stats);


/* cost.c */
extern void bxcostestimate(struct PlannerInfo *root, struct IndexPath *path,
						   double loop_count, Cost *indexStartupCost,
						   Cost *indexTotalCost, Selectivity *indexSelectivity,
						   double *indexCorrelation, double *indexPages);

/* validate.c */
extern bool bxvalidate(Oid opclassoid);
extern void bx_validate_column(Relation index, int attno, Oid opclass);
extern void bx_validate_index(Relation index);
extern void bx_validate_keys(Relation index, BxOptions *options);

/* predicate.c */
extern List *bx_predicate_hidden(IndexOptInfo *index);
extern bool bx_predicate_is_simplified(IndexOptInfo *index);
extern bool bx_predicate_is_rechecked(IndexPath *path, List *clauses);

/* usable.c */
extern void bx_usable_notify(Relation heap, Relation index);

#endif							/* BX_AM_H */
