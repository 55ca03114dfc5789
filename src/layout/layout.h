/*-------------------------------------------------------------------------
 *
 * layout.h
 *	  What a layout of filters on pages is (struct BxLayout), the operations
 *	  that go through it, and what all layouts share.
 *
 * The access method (am/) and the SQL functions (functions/) know a layout by
 * this struct alone.  Each operation has a struct that describes it while it
 * is under way: BxBuild, BxInsert, BxSearch, BxRepair, BxCheck.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_LAYOUT_H
#define BX_LAYOUT_H

#include "postgres.h"

#include "pgstat.h"
#include "port/atomics.h"
#include "storage/spin.h"
#include "utils/pg_rusage.h"

#include "../filter/filter.h"
#include "../heap/heap.h"
#include "../key/key.h"
#include "../storage/storage.h"

/*
 * Frozen facts of an index, remembered in rd_amcache.  A layout may remember
 * more there, in a struct that starts with this one.
 */
typedef struct BxGeometry
{
	uint8		layout;			/* BX_LAYOUT_xxx */
	uint8		lg_base;		/* log2 of pages per range */
	bool		has_more;		/* the struct is the layout's */
} BxGeometry;

/* Gets heap pages that may match. */
typedef void (*BxFoundCallback) (void *arg, BlockNumber first, uint32 npages);

/* A search under way: the layout calls bx_search_add_range for what may match. */
typedef struct BxSearch
{
	Relation	index;
	Snapshot	snapshot;
	const BxQuery *query;
	BxGeometry	geometry;
	BlockNumber heap_blocks;	/* nothing behind is found */
	BxFoundCallback found;
	void	   *arg;			/* for it */
	int64		npages;			/* heap pages found so far */
} BxSearch;

/* What became of a unit of a build, which the layout puts together at the end. */
typedef struct BxUnitResult
{
	BlockNumber block;			/* for the directory; 0 if there is nothing */
	BxStats		sums;			/* sums where BxStats has means */
} BxUnitResult;

/*
 * What the participants of a build have in common: the leader, and parallel
 * workers if there are any, in which case it is in shared memory.
 */
typedef struct BxBuildShared
{
	/* set before the build starts */
	BxMetaPageData meta;		/* for what is frozen in it */
	BlockNumber heap_blocks;
	uint64		unit_ranges;	/* ranges of a unit */
	uint64		nunits;

	pg_atomic_uint64 next_unit; /* to be claimed */
	pg_atomic_uint64 blocks_done;	/* heap blocks that have been read */
	pg_atomic_uint32 next_generation;

	slock_t		mutex;			/* for these */
	double		heap_tuples;
	double		index_tuples;

	BxUnitResult results[FLEXIBLE_ARRAY_MEMBER];
} BxBuildShared;

/* A participant of a build. */
typedef struct BxBuild
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	bool		is_leader;
	BlockNumber heap_blocks;
	Size		memory;			/* bytes that it may use */
	BxBuildShared *shared;
	void	   *chunk;			/* that shared lies in, if it is not shared */
	const struct BxLayout *layout;
	void	   *layout_state;

	int64		phase;			/* for messages; 0: none */
	PGRUsage	phase_start;

	/* of the unit at work */
	uint64		reported;		/* heap blocks that are in blocks_done */
	bool		in_parts;		/* a range is not complete yet */
} BxBuild;

/* A repair of an index under way, by VACUUM or bloomidx_summarize(). */
typedef struct BxRepair
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;		/* NULL unless may_rebuild */
	BufferAccessStrategy strategy;
	Size		memory;			/* bytes that it may use */
	bool		in_vacuum;		/* not in bloomidx_summarize() */
	bool		may_rebuild;	/* else only drop what failed rebuilds left */
	uint32		segments;		/* rebuilt */
	uint32		summaries;
	uint32		pages;			/* rebuilt, in layout block */
	uint32		failures;
	BlockNumber freed_pages;	/* those of the old filters */
	BlockNumber free_pages;		/* all that can be used again */
	BlockNumber named_end;		/* nothing names a page from here on */
} BxRepair;

/* What the fill of a node's filters tells; see bx_slices_measure. */
typedef struct BxMeasure
{
	int			nchildren;		/* that have keys */
	int			nfull;			/* that match everything */
	double		keys;			/* of a child: root mean square */
	double		all_keys;		/* of all children together */
	double		fill;			/* part of the bits that is set: mean */
	double		rate;			/* of false positives: mean */
} BxMeasure;

/*
 * Something that takes pages of an index, as bloomidx_info() counts them and
 * bloomidx_segments() or bloomidx_blocks() show them.
 */
typedef enum BxUnitKind
{
	BX_UNIT_DIRECTORY,			/* leads to others */
	BX_UNIT_SUMMARY,			/* of a partition, perhaps without pages */
	BX_UNIT_FILTERS,			/* of ranges: a segment or a page */
	BX_UNIT_SHADOW				/* is being built, or was left behind */
} BxUnitKind;

typedef struct BxUnit
{
	BxUnitKind	kind;
	uint32		number;			/* on its level */
	BlockNumber block;			/* the first of its pages */
	uint32		pages;
	uint32		first_range;
	uint32		nranges;
	int			probes;
	double		planned_keys;	/* of a child; more, if it had more when made */
	double		upper_rate;		/* filters: the rate of what is asked before */
	BxMeasure	measure;		/* by a sample */
	bool		doubt;			/* has children in doubt */
	bool		overfull;		/* VACUUM would rebuild it */
	bool		missing;		/* VACUUM would make it */
} BxUnit;

typedef void (*BxUnitCallback) (void *arg, const BxUnit *unit);

/* bloomidx_check() under way; see check.c. */
typedef struct BxCheck
{
	Relation	heap;
	Relation	index;
	BufferAccessStrategy strategy;
	uint8		lg_base;
	void	   *layout_state;	/* for check_keys; NULL at first */

	/* the blocks that something names */
	BlockNumber nblocks;
	uint8	   *claimed;
	uint32		newest_generation;	/* of the slices that something names */
	BlockNumber newest_blkno;	/* where that was found */
	bool		may_retry;		/* a contradiction may be due to a change */
	bool		contradiction;
} BxCheck;

/* What is expected of a table that has no index yet; see estimate.c. */
typedef struct BxTableModel
{
	double		heap_pages;
	double		rows;			/* in the index */
	int			ncolumns;
	struct BxColumnModel *columns;

	/* distinct keys, markers among them, in so many consecutive heap pages */
	double		(*keys) (const struct BxTableModel *model, double heap_pages);
} BxTableModel;

/* Inserts of one statement, kept in ii_AmCache. */
typedef struct BxInsert
{
	Relation	index;
	MemoryContext tmpcxt;		/* for what hashing needs, reset for each row */
	const struct BxLayout *layout;
	void	   *layout_state;
	int			natts;
	BxHasher   *hashers;		/* of the columns */
	BxRowKeys	row;
} BxInsert;

/* What is known of an index when a search of it is planned. */
typedef struct BxSearchFacts
{
	BxStats		stats;
	double		target_rate;	/* for as long as nothing has been counted */
	double		ranges;
	double		pages_per_range;
} BxSearchFacts;

/* What a search costs. */
typedef struct BxSearchCost
{
	double		pages;			/* of the index that are read */
	bool		in_order;		/* these are all of its pages, one by one */
	double		operations;		/* besides reading, in cpu_operator_cost */
} BxSearchCost;

/*
 * A layout.  Build: plan, then begin (add* unit)* end by each participant, and
 * publish when all are done.
 *
 * plan is for the leader: it may freeze something in *meta, and returns the
 * number of ranges in a unit.  The units are shared out among the participants,
 * which therefore need to know nothing of each other.  add gets the distinct
 * keys of a range, in order of ranges; "done" is the part of the range that is
 * covered so far, and doubt means that its filter must match everything.  A
 * range without keys need not come.  unit completes the unit, and may tell the
 * leader something in *result, which is zero before.  publish is for the
 * leader: it makes what leads to the units, and sets the rest of *meta, which
 * it may write; the caller will.
 */
typedef struct BxLayout
{
	uint8		id;				/* BX_LAYOUT_xxx */
	const char *name;			/* as in the option */
	double		auto_range_keys;	/* that automatic pages_per_range aims at */
	double		many_ranges;	/* with more of them, times the pages of a
								 * range, it doubles these; 0: never */

	uint64		(*build_plan) (BxBuild *build, BxMetaPageData *meta);
	void		(*build_begin) (BxBuild *build);
	void		(*build_add) (BxBuild *build, uint32 range, double done,
							  const uint64 *keys, Size nkeys, bool doubt);
	void		(*build_unit) (BxBuild *build, BxUnitResult *result);
	void		(*build_end) (BxBuild *build);
	void		(*build_publish) (BxBuild *build, BxMetaPageData *meta);

	/* makes layout_state, in the current memory context */
	void	   *(*insert_begin) (const BxMetaPageData *meta);
	void		(*insert) (BxInsert *insert, Relation heap, ItemPointer tid,
						   const BxRowKeys *row);

	/* makes the filter of a heap page match everything, until it is rebuilt */
	void		(*insert_doubt) (BxInsert *insert, Relation heap,
								 ItemPointer tid);

	void		(*search) (BxSearch *search);

	/* rebuilds what needs it, reclaims pages */
	void		(*repair) (BxRepair *repair);

	/*
	 * makes free pages those at the end of the file, if it is worth it; NULL
	 * if there never are free pages
	 */
	void		(*compact) (BxRepair *repair);

	/*
	 * gives free pages at the end of the file back, under AccessExclusiveLock
	 * on the index; returns how many pages are left, and in *free_pages how
	 * many of them are free
	 */
	BlockNumber (*truncate) (Relation index, BlockNumber *free_pages);

	/* reads the whole directory and samples the filters */
	void		(*collect_stats) (Relation index, BxStats *stats,
								  BufferAccessStrategy strategy);

	/*
	 * part of all ranges that a search for any of so many elements finds,
	 * rightly or in vain, if hit_ranges of the ranges hold one of them
	 */
	double		(*match_fraction) (const BxSearchFacts *facts, double elements,
								   double hit_ranges);

	/* what that search costs, apart from the heap */
	void		(*search_cost) (const BxSearchFacts *facts, double elements,
								double hit_ranges, BxSearchCost *cost);

	/* the function that shows its filters */
	const char *shown_by;

	/*
	 * reads the whole directory and samples the filters; takes its time.
	 * *meta is a copy of the metapage, which may be old by now; if it has no
	 * geometry, there is nothing to see but the metapage.
	 */
	void		(*walk) (Relation index, const BxMetaPageData *meta,
						 BxUnitCallback callback, void *arg);

	/*
	 * bloomidx_check(): that what names a page is possible, with
	 * bx_check_claim for each; that the pages are what they should be; that a
	 * range's filters have these keys
	 */
	void		(*check_claims) (BxCheck *check, const BxMetaPageData *meta);
	void		(*check_pages) (BxCheck *check);
	void		(*check_keys) (BxCheck *check, uint32 range,
							   const uint64 *keys, Size nkeys);

	/* pages of an index that is yet to be built, and its statistics */
	double		(*estimate) (const BxTableModel *model, uint8 lg_base,
							 double rate, BxStats *stats);
} BxLayout;

/* geometry.c */
extern bool bx_geometry_get(Relation index, BxGeometry *geometry);
extern void bx_geometry_remember(Relation index, const BxGeometry *geometry,
								 Size size);
extern void bx_geometry_forget(Relation index);
extern uint64 bx_geometry_ranges(BlockNumber heap_blocks, uint8 lg_base);
extern double bx_geometry_rows_per_page(Relation heap, ItemPointer tid);
extern uint8 bx_geometry_auto_lg_base(const BxLayout *layout, double keys_per_page);
extern uint8 bx_geometry_choose_lg_base(const BxLayout *layout, const double *keys,
										double heap_blocks);
extern uint8 bx_geometry_grow_lg_base(const BxLayout *layout, uint8 lg_base,
									  double heap_blocks);

/*
 * Automatic pages_per_range never takes more pages than this power of two,
 * because a range that matches in vain costs that many heap pages.
 */
#define BX_AUTO_MAX_LG_BASE		4

/* With fewer children than this, a node's own fill says little. */
#define BX_FEW_CHILDREN		8

extern double bx_geometry_ranges_hit(double ranges, double rows);

/* search.c */
extern void bx_search_add_range(BxSearch *search, uint32 range);

/* repair.c */
extern void bx_repair_index(const BxLayout *layout, Relation heap,
							Relation index, bool in_vacuum,
							BufferAccessStrategy strategy, int message_level,
							BxRepair *repair);
extern bool bx_repair_needs_user_code(Relation index);
extern void bx_repair_scan_ranges(BxRepair *repair, uint8 lg_base,
								  uint64 first, uint64 n,
								  BxRangeCallback callback, void *arg);
extern bool bx_repair_try(BxRepair *repair, void (*rebuild) (void *),
						  void (*give_up) (void *), void *arg);

/* Filters are rebuilt if their rate is this many times the target ... */
#define BX_RATE_TOLERANCE	2.0

/*
 * ... and they have this many times the keys that they were made for: else
 * the new ones would come out the same.
 */
#define BX_KEYS_TOLERANCE	1.1

/*
 * In layout block a rate that has grown so much will do instead.  One filter
 * that is full adds few keys to those of its page, and does not tell how many.
 */
#define BX_RATE_GROWTH		1.5

/* truncate.c */
extern bool bx_truncate_is_worth_it(BlockNumber nblocks, BlockNumber end);
extern void bx_truncate_index(const BxLayout *layout, BxRepair *repair,
							  int message_level);

/* progress.c */
typedef struct BxProgress
{
	int			command;
	Oid			target;
	int64		params[PGSTAT_NUM_PROGRESS_PARAM];
} BxProgress;

extern void bx_progress_save(BxProgress *progress);
extern void bx_progress_restore(const BxProgress *progress);

/* check.c */
extern bool bx_check_is_claimed(const BxCheck *check, BlockNumber blkno);
extern void bx_check_claim(BxCheck *check, BlockNumber blkno,
						   BlockNumber start, uint32 n);
extern void bx_check_contradiction(BxCheck *check, BlockNumber blkno,
								   const char *problem);
pg_noreturn extern void bx_check_lost_key(BxCheck *check, BlockNumber blkno,
										  uint32 range, const char *where);



#endif							/* BX_LAYOUT_H */
