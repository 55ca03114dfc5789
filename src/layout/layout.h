/*-------------------------------------------------------------------------
 *
 * layout.h
 *	  The interface of a layout of filters on pages (struct BxLayout), the
 *	  operations that are carried out through it, and the code that all
 *	  layouts share.
 *
 * The access method (am/) and the SQL functions (functions/) access a layout
 * only through this struct.  Each operation has a struct that holds its
 * state: BxBuild, BxInsert, BxSearch, BxRepair, BxCheck.
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
 * Properties of an index that never change once they are set, cached in
 * rd_amcache.  A layout may cache more there, in a struct that starts with
 * this one.
 */
typedef struct BxGeometry
{
	uint8		layout;			/* BX_LAYOUT_xxx */
	uint8		lg_base;		/* log2 of pages per range */
	uint8		keys;			/* BX_KEYS_xxx */
	bool		has_more;		/* rd_amcache holds the layout's larger struct */
} BxGeometry;

/* Called for each run of consecutive heap pages that may match. */
typedef void (*BxFoundCallback) (void *arg, BlockNumber first, uint32 npages);

/*
 * State of a search.  The layout calls bx_search_add_range() for each range
 * that may match, in ascending order.
 *
 * found() may set "paused": then the layout returns early, and to continue,
 * the caller clears "paused" and calls search() again, with the same query
 * and heap_blocks.  If search() returns and "paused" is not set, the search
 * is complete.
 */
typedef struct BxSearch
{
	Relation	index;
	Snapshot	snapshot;
	const BxQuery *query;
	BxGeometry	geometry;
	BlockNumber heap_blocks;	/* pages at or beyond this block are discarded */
	BxFoundCallback found;
	void	   *arg;			/* passed to found() */
	int64		npages;			/* heap pages found so far */
	uint32		next_range;		/* the ranges before this one have been
								 * searched */
	bool		paused;
} BxSearch;

/*
 * Result of one unit of a build; build_publish() combines the results.
 */
typedef struct BxUnitResult
{
	BlockNumber block;			/* partitioned: the top-level page; block: the
								 * last page written; 0 if the unit has no
								 * keys */
	double		keys;			/* sum of the keys per range of the segments;
								 * block: sum of the keys of the ranges */
	double		rates;			/* sum of the rates of the segments, or ranges */
	union
	{
		struct
		{
			uint32		segments;
			uint32		slices; /* of the segments */
			bool		summarized;
			float		summary_rate;
			bool		filtered;	/* has a valid filter in its group */
			float		group_rate; /* rate of that filter */

			BxGroupDesc own_group;	/* a group for this partition alone, if it
									 * has too many keys for the wide group */

			/* in the first entry; protected by the mutex until chosen */
			uint32		like;	/* see bx_groups_plan() */

			/* in the entry of the first partition of a group */
			uint32		group_state;	/* protected by the mutex; see
										 * partitioned/build.c */
			BxGroupDesc group;
		}			partition;	/* a unit of layout partitioned */
		struct
		{
			double		filters;	/* filters that "keys" and "rates" count */
			double		doubtful;
		}			pages;		/* a unit of layout block */
	};
} BxUnitResult;

/*
 * State shared by the participants of a build: the leader and the parallel
 * workers, if any.  It is in shared memory if there are workers.
 */
typedef struct BxBuildShared
{
	/* constant during the build */
	BxMetaPageData meta;		/* as it was after build_plan() */
	BlockNumber heap_blocks;
	uint64		unit_ranges;	/* ranges per unit */
	uint64		nunits;

	pg_atomic_uint64 next_unit; /* next unit to be claimed */
	pg_atomic_uint64 blocks_done;	/* heap blocks read so far */
	pg_atomic_uint64 doubts;	/* ranges, or parts of ranges, in doubt */
	pg_atomic_uint32 next_generation;	/* of nodes and groups; starts with 1 */

	slock_t		mutex;			/* protects the next two fields, and
								 * group_state and "like" of the results */
	double		heap_tuples;
	double		index_tuples;

	BxUnitResult results[FLEXIBLE_ARRAY_MEMBER];
} BxBuildShared;

/* State of one participant of a build. */
typedef struct BxBuild
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	uint8		keys;			/* BX_KEYS_xxx */
	bool		is_leader;
	BlockNumber heap_blocks;
	Size		memory;			/* memory budget in bytes */
	BxBuildShared *shared;
	void	   *chunk;			/* allocation that contains *shared, if it is
								 * not shared memory */
	const struct BxLayout *layout;
	void	   *layout_state;

	int64		phase;			/* current phase, for messages; 0 if none */
	PGRUsage	phase_start;

	/* state of the current unit */
	uint64		reported;		/* heap blocks of the unit already added to
								 * blocks_done */
	bool		in_parts;		/* only a part of the current range was passed
								 * to build_add */
} BxBuild;

/* Who repairs an index. */
typedef enum BxRepairCaller
{
	BX_REPAIR_VACUUM,
	BX_REPAIR_SUMMARIZE,		/* bloomidx_summarize() */
	BX_REPAIR_INSERT			/* see bx_repair_in_insert() */
} BxRepairCaller;

/* State of a repair of an index. */
typedef struct BxRepair
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;		/* NULL if !may_rebuild */
	uint8		keys;			/* BX_KEYS_xxx */
	BufferAccessStrategy strategy;
	Size		memory;			/* memory budget in bytes */
	BxRepairCaller caller;
	bool		may_rebuild;	/* filters may be rebuilt */
	uint32		segments;		/* segments rebuilt */
	uint32		summaries;
	uint32		groups;			/* filters of partitions rebuilt */
	uint32		merges;			/* groups of such filters merged or shrunk */
	uint32		pages;			/* pages of filters rebuilt (layout block) */
	uint32		failures;
	BlockNumber scanned;		/* heap blocks read */
	BlockNumber freed_pages;	/* pages of the filters that were replaced */
	BlockNumber free_pages;		/* all free pages of the index */
	BlockNumber named_end;		/* no directory entry references a page at or
								 * beyond this block */
} BxRepair;

/* Estimates from the fill of a node's filters; see bx_slices_measure(). */
typedef struct BxMeasure
{
	int			nchildren;		/* children that have keys */
	int			nfull;			/* children whose filter matches everything */
	double		keys;			/* keys per child: root mean square */
	double		all_keys;		/* sum of the keys of all children */
	double		fill;			/* fraction of the bits that are set: mean */
	double		rate;			/* false-positive rate: mean */
} BxMeasure;

/*
 * A part of an index that occupies pages, as counted by bloomidx_info() and
 * shown by bloomidx_segments() or bloomidx_blocks().
 */
typedef enum BxPartKind
{
	BX_PART_DIRECTORY,			/* metapage, map, region, top-level or scratch
								 * page */
	BX_PART_GROUP,				/* filters of partitions */
	BX_PART_PARTITION,			/* the filter of a partition; its pages are
								 * those of its group */
	BX_PART_SUMMARY,			/* summary of a partition; pages = 0 if there
								 * is none */
	BX_PART_FILTERS,			/* filters of ranges: a segment, or a page in
								 * layout block */
	BX_PART_SHADOW				/* filters being built, or left by a failed
								 * rebuild */
} BxPartKind;

typedef struct BxPart
{
	BxPartKind	kind;
	uint32		number;			/* number of the node on its level, or of the
								 * page */
	BlockNumber block;			/* first of its pages */
	uint32		pages;
	uint32		first_range;
	uint32		nranges;
	int			probes;
	double		planned_keys;	/* keys per child that the filters were
								 * planned for, or that they had right after
								 * the build */
	double		upper_rate;		/* filters: product of the false-positive
								 * rates of the levels above */
	BxMeasure	measure;		/* estimated from the fill */
	bool		doubt;			/* some children are in doubt */
	bool		overfull;		/* VACUUM would rebuild it */
	bool		missing;		/* VACUUM would create it */
} BxPart;

typedef void (*BxPartCallback) (void *arg, const BxPart *part);

/* State of bloomidx_check(); see functions/check.c. */
typedef struct BxCheck
{
	Relation	heap;
	Relation	index;
	BufferAccessStrategy strategy;
	uint8		lg_base;
	void	   *layout_state;	/* for check_keys; initially NULL */

	/* the blocks that a directory entry references */
	BlockNumber nblocks;
	uint8	   *claimed;

	/* the first contradiction that was found; problem is NULL if none */
	BlockNumber problem_blkno;
	const char *problem;
} BxCheck;

/* Model of a table that has no index yet; see functions/estimate.c. */
typedef struct BxTableModel
{
	double		heap_pages;
	double		rows;			/* rows that the index would contain */
	uint8		key_kinds;		/* BX_KEYS_xxx */
	int			ncolumns;
	struct BxColumnModel *columns;

	/*
	 * number of distinct keys, including markers, in that many consecutive
	 * heap pages
	 */
	double		(*keys) (const struct BxTableModel *model, double heap_pages);
} BxTableModel;

/* State of the inserts of one statement, kept in ii_AmCache. */
typedef struct BxInsert
{
	Relation	index;
	MemoryContext tmpcxt;		/* scratch memory for hashing, reset after
								 * each row */
	const struct BxLayout *layout;
	void	   *layout_state;
	int			natts;
	BxHasher   *hashers;		/* one for each column */
	BxRowKeys	row;
	uint8		keys;			/* BX_KEYS_xxx */
	double		keys_per_row;	/* keys of the row's values, at least
								 * bx_hash_keys_per_row() */
	struct BxAhead *ahead;		/* NULL if the index is not read ahead */
} BxInsert;

/* What the planner knows about an index. */
typedef struct BxSearchFacts
{
	BxStats		stats;
	double		target_rate;	/* used until statistics exist */
	double		ranges;
	double		pages_per_range;
} BxSearchFacts;

/* Estimated cost of a search. */
typedef struct BxSearchCost
{
	double		pages;			/* index pages read */
	bool		in_order;		/* the pages are read sequentially */
	double		operations;		/* CPU work, in units of cpu_operator_cost */
} BxSearchCost;

/*
 * A layout.
 *
 * The leader of a build calls build_plan() first.  Then each participant
 * calls build_begin (build_add* build_unit)* build_end, and after all
 * participants have finished, the leader calls build_publish().
 *
 * build_plan() may set frozen fields of *meta, and returns the number of
 * ranges per unit.  Each unit is built by one participant.  build_add()
 * receives the distinct keys of a range, in ascending order of ranges; a range
 * may be passed in several parts.  "done" is the fraction of the range that is
 * covered so far, and "doubt" means that the filter of the range must match
 * everything.  Ranges without keys are skipped.  build_unit() completes the
 * unit, and may return information to the leader in *result, which is
 * initially zero.  build_publish() makes the units accessible and sets the
 * remaining fields of *meta.  It may write *meta to the metapage; the caller
 * writes *meta afterwards in any case.
 */
typedef struct BxLayout
{
	uint8		id;				/* BX_LAYOUT_xxx */
	const char *name;			/* value of the option "layout" */
	double		auto_range_keys;	/* keys per range that automatic
									 * pages_per_range aims at */
	double		many_ranges;	/* automatic pages_per_range p is doubled
								 * while ranges > many_ranges * p; 0 disables */

	uint64		(*build_plan) (BxBuild *build, BxMetaPageData *meta);
	void		(*build_begin) (BxBuild *build);
	void		(*build_add) (BxBuild *build, uint32 range, double done,
							  const uint64 *keys, Size nkeys, bool doubt);
	void		(*build_unit) (BxBuild *build, BxUnitResult *result);
	void		(*build_end) (BxBuild *build);
	void		(*build_publish) (BxBuild *build, BxMetaPageData *meta);

	/* returns layout_state, allocated in the current memory context */
	void	   *(*insert_begin) (const BxMetaPageData *meta);

	/*
	 * adds the keys of a row.  Returns true if the filter of the row's range
	 * lacked the last key of the row's values until this call; of several
	 * concurrent inserts of the same key, only the first returns true.  False
	 * means that the filter had the key, or that this is unknown.
	 */
	bool		(*insert) (BxInsert *insert, Relation heap, ItemPointer tid,
						   const BxRowKeys *row);

	/*
	 * makes the filter of the heap page's range match everything, until it is
	 * rebuilt
	 */
	void		(*insert_doubt) (BxInsert *insert, Relation heap,
								 ItemPointer tid);

	void		(*search) (BxSearch *search);

	/* rebuilds filters where necessary, and reclaims pages */
	void		(*repair) (BxRepair *repair);

	/*
	 * moves filters so that the free pages are at the end of the file, if
	 * enough pages can be given back; NULL if the layout never has free pages
	 */
	void		(*compact) (BxRepair *repair);

	/*
	 * truncates free pages at the end of the file.  The caller holds
	 * AccessExclusiveLock on the index.  Returns the number of pages left,
	 * and in *free_pages how many of them are free.  NULL if compact is NULL.
	 */
	BlockNumber (*truncate) (Relation index, BlockNumber *free_pages);

	/* reads the whole directory and samples the filters */
	void		(*collect_stats) (Relation index, BxStats *stats,
								  BufferAccessStrategy strategy);

	/*
	 * expected fraction of the ranges that match a search for any of
	 * "elements" elements, including false positives, if hit_ranges of the
	 * ranges contain one of the elements
	 */
	double		(*match_fraction) (const BxSearchFacts *facts, double elements,
								   double hit_ranges);

	/* cost of that search, not including the heap */
	void		(*search_cost) (const BxSearchFacts *facts, double elements,
								double hit_ranges, BxSearchCost *cost);

	/* SQL function that shows the filters of this layout */
	const char *shown_by;

	/*
	 * reads the whole directory and samples the filters, which can take long.
	 * *meta is a copy of the metapage, which may be out of date; if its
	 * geometry is not set, the metapage is the only page.
	 */
	void		(*walk) (Relation index, const BxMetaPageData *meta,
						 BxPartCallback callback, void *arg);

	/*
	 * bloomidx_check(): check_claims verifies the directory entries, and
	 * calls bx_check_claim() for the pages that each references; check_pages
	 * verifies the pages; check_keys verifies that the filters of a range
	 * contain the given keys
	 */
	void		(*check_claims) (BxCheck *check, const BxMetaPageData *meta);
	void		(*check_pages) (BxCheck *check);
	void		(*check_keys) (BxCheck *check, uint32 range,
							   const uint64 *keys, Size nkeys);

	/*
	 * returns the number of pages of an index that is yet to be built, and
	 * fills in its statistics
	 */
	double		(*estimate) (const BxTableModel *model, uint8 lg_base,
							 double rate, BxStats *stats);
} BxLayout;

/* geometry.c */
extern void bx_geometry_of(const BxMetaPageData *meta, BxGeometry *geometry);
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
 * Automatic pages_per_range is at most 2^BX_AUTO_MAX_LG_BASE, because each
 * false match of a range costs that many heap pages.
 */
#define BX_AUTO_MAX_LG_BASE		4

/* With fewer children than this, the fill of a node is a poor predictor. */
#define BX_FEW_CHILDREN		8

extern double bx_geometry_ranges_hit(double ranges, double rows);

/* search.c */
extern void bx_search_add_range(BxSearch *search, uint32 range);

/* repair.c */
extern void bx_repair_index(const BxLayout *layout, Relation heap,
							Relation index, BxRepairCaller caller,
							BufferAccessStrategy strategy, int message_level,
							BxRepair *repair);
extern void bx_repair_in_insert(const BxLayout *layout, Relation heap,
								Relation index,
								void (*repair_part) (BxRepair *));
extern bool bx_repair_needs_user_code(Relation index, bool wait);
extern bool bx_repair_depends_on_types(Relation index);
extern void bx_repair_scan_ranges(BxRepair *repair, uint8 lg_base,
								  uint64 first, uint64 n,
								  BxRangeCallback callback, void *arg);
extern bool bx_repair_try(BxRepair *repair, void (*rebuild) (void *),
						  void (*give_up) (void *), void *arg);

/*
 * Filters are rebuilt if their false-positive rate > BX_RATE_TOLERANCE *
 * target ...
 */
#define BX_RATE_TOLERANCE	2.0

/*
 * ... and they have more than BX_KEYS_TOLERANCE times the keys that they were
 * made for.  With fewer keys, the new filters would be the same as the old
 * ones.
 */
#define BX_KEYS_TOLERANCE	1.1

/*
 * In layout block, a rate > BX_RATE_GROWTH times the rate right after the
 * build is sufficient instead: a few saturated filters hardly raise the
 * estimated number of keys of their page.
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
extern void bx_progress_start(Relation heap, Relation index,
							  BxProgress *caller);
extern void bx_progress_phase(int64 phase, int64 subphase, BlockNumber blocks);
extern void bx_progress_blocks(BlockNumber blocks);
extern void bx_progress_end(const BxProgress *caller);

/*
 * Subphase of "building index" while bloomidx_summarize() rebuilds filters.
 * am/build.c has the others.
 */
#define BX_PROGRESS_REBUILDING	5

/* check.c */
extern bool bx_check_is_claimed(const BxCheck *check, BlockNumber blkno);
extern void bx_check_claim(BxCheck *check, BlockNumber blkno,
						   BlockNumber start, uint32 n);
extern void bx_check_contradiction(BxCheck *check, BlockNumber blkno,
								   const char *problem);
pg_noreturn extern void bx_check_lost_key(BxCheck *check, BlockNumber blkno,
										  uint32 range, const char *where);



#endif							/* BX_LAYOUT_H */
