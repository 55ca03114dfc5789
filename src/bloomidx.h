/*-------------------------------------------------------------------------
 *
 * bloomidx.h
 *	  In-memory state, the layout's struct of callbacks, and prototypes
 *	  grouped by file.  The on-disk format is in format.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BLOOMIDX_H
#define BLOOMIDX_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/reloptions.h"
#include "nodes/execnodes.h"
#include "nodes/tidbitmap.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "storage/itemptr.h"
#include "storage/spin.h"
#include "utils/pg_rusage.h"
#include "utils/relcache.h"

#include "compat.h"
#include "debug.h"
#include "filter.h"
#include "format.h"
#include "packed.h"

/* The name under which parallel workers find this module. */
#ifndef BX_LIBRARY
#define BX_LIBRARY			"$libdir/bloomidx"
#endif

/* The one strategy and the one support function of an operator class. */
#define BX_EQUAL_STRATEGY	1
#define BX_HASH_PROC		1
#define BX_NSTRATEGIES		1
#define BX_NPROCS			1

/* Options as they stand in pg_class.reloptions; the build freezes them. */
typedef struct BxOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			layout;			/* BX_LAYOUT_xxx */
	int			pages_per_range;	/* 0 means automatic */
	double		false_positive_rate;
} BxOptions;

#define BX_MAX_PAGES_PER_RANGE		(1 << BX_MAX_LG_BASE)
#define BX_DEFAULT_RATE				0.0002
#define BX_MIN_RATE					0.00001
#define BX_MAX_RATE					0.25

/*
 * Frozen facts of an index, kept in rd_amcache: options, and the blocks of the
 * top-level pages that exist (0: none known).  Nothing that may change.
 */
typedef struct BxIndexCache
{
	uint8		layout;
	uint8		lg_base;
	BlockNumber index_blocks;	/* see bx_dir_known_blocks */
	uint32		npartitions;
	BlockNumber top[FLEXIBLE_ARRAY_MEMBER];
} BxIndexCache;

/* What a search looks for: every key matches if one of its elements does. */
typedef struct BxElement
{
	uint64		hash;
	int			key;			/* number of the key that it belongs to */
} BxElement;

typedef struct BxQuery
{
	int			nkeys;
	int			nelements;
	BxElement  *elements;
} BxQuery;

/* Gets heap pages that may match. */
typedef void (*BxFoundCallback) (void *arg, BlockNumber first, uint32 npages);

/* A search under way: the layout calls bx_scan_add_range for what may match. */
typedef struct BxSearch
{
	Relation	index;
	Snapshot	snapshot;
	const BxQuery *query;
	BlockNumber heap_blocks;	/* nothing behind is found */
	uint8		lg_base;
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

/* VACUUM of an index under way, and what it has done. */
typedef struct BxVacuum
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
} BxVacuum;

/* What the fill of a node's filters tells; see bx_dir_measure. */
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
} BxTableModel;

/*
 * Keys of a heap row, as the insert has them: first the values' keys, then a
 * marker for each column that says NULL or NOT NULL.
 */
typedef struct BxRowKeys
{
	int			nkeys;
	int			nvalues;
	uint64	   *keys;
} BxRowKeys;

/* How the values of a column are hashed, looked up once; see hash.c. */
typedef struct BxHasher
{
	FmgrInfo   *proc;
	Oid			collation;
	uint64		seed;
	int			kind;
	bool		is_fixed;		/* needs no memory, and cannot fail */
	bool		is_simple;		/* likewise, if the value is as it should be
								 * in memory, neither compressed nor elsewhere */
} BxHasher;

/* Inserts of one statement, kept in ii_AmCache. */
typedef struct BxInsert
{
	Relation	index;
	MemoryContext tmpcxt;		/* for what hashing needs, reset for each row */
	const struct BxLayout *layout;
	void	   *layout_state;
	BxRowKeys	row;
} BxInsert;

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
	bool		sequential;		/* a search reads all of the index, in order,
								 * and tests every range */
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
	void		(*repair) (BxVacuum *vacuum);

	/*
	 * makes free pages those at the end of the file, if it is worth it; NULL
	 * if there never are free pages
	 */
	void		(*compact) (BxVacuum *vacuum);

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
	 * index pages that a search of so many elements reads, if it finds
	 * something in hit_ranges of all the ranges
	 */
	double		(*search_pages) (const BxStats *stats, double ranges,
								 double elements, double hit_ranges);

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

/* Bits that a key sets in one page; see bx_page_set_bits. */
#define BX_MAX_KEY_BITS		Max(BX_MAX_PROBES, BX_PACKED_MAX_PROBES)

typedef struct BxPageBits
{
	Buffer		buffer;
	LocationIndex lower;		/* pd_lower of a page of this kind with bits */
	int			n;
	struct
	{
		uint16		offset;		/* from the page's start */
		uint8		bit;
	}			at[BX_MAX_KEY_BITS];
} BxPageBits;

#define BX_MAX_BITS_PAGES	2

/* handler.c */
extern const BxLayout *bx_layout_by_id(Relation index, uint8 id);
extern const BxLayout *bx_layout_next(const BxLayout *layout);

/* options.c */
extern void bx_options_init(void);
extern bytea *bxoptions(Datum reloptions, bool validate);
extern void bx_options_get(Relation index, BxOptions *options);

/* hash.c */
extern uint64 bx_hash_value(Relation index, int attno, FmgrInfo *proc,
							Datum value);
extern void bx_hasher_init(BxHasher *hasher, Relation index, int attno);
extern uint64 bx_hasher_key(const BxHasher *hasher, Datum value);
extern uint64 bx_hash_marker(int attno, bool isnull);
extern FmgrInfo *bx_hash_proc(Relation index, int attno);
extern void bx_hash_proc_for_type(Relation index, int attno, Oid type,
								  FmgrInfo *proc);
extern void bx_hash_row(Relation index, const Datum *values,
						const bool *isnull, BxRowKeys *row);
extern void bx_hash_row_alloc(Relation index, BxRowKeys *row);
extern uint64 bx_hash_mix(uint64 before, uint64 hash);
extern uint64 bx_hash_bpchar(const BpChar *value, Oid collation, uint64 seed);
extern uint64 bx_hash_name(const NameData *value, Oid collation, uint64 seed);

/* contents.c */
extern Oid	bx_hash_unhashable_content(Relation index, int attno);
extern bool bx_hash_looks_into_values(Relation index, int attno);
extern bool bx_hash_runs_user_code(Relation index, int attno);

/* page.c */
pg_noreturn extern void bx_page_corrupted(Relation index, BlockNumber blkno,
										  const char *problem);
extern void bx_page_init(Page page, uint8 kind);
extern const char *bx_page_problem(Page page, uint8 kind);
extern void bx_page_check(Relation index, Buffer buffer, uint8 kind);
extern void bx_page_init_slice(Page page, int level, uint32 node,
							   uint32 slice, const BxNodeDesc *desc);
extern bool bx_page_is_slice(Page page, int level, uint32 node, uint32 slice,
							 const BxNodeDesc *desc);
extern BlockNumber bx_page_extend(Relation index, uint32 npages);
extern void bx_page_extend_to(Relation index, BlockNumber blkno);
extern void bx_page_write_new(Relation index, BlockNumber blkno,
							  const char *image, bool wal);
extern void bx_page_set_bits(Relation index, const BxPageBits *pages,
							 int npages);
extern void bx_meta_init(Page page, const BxOptions *options, uint8 lg_base);
extern void bx_meta_read(Relation index, BxMetaPageData *meta);
extern void bx_meta_write(Relation index, const BxMetaPageData *meta);

/* directory.c */
typedef void (*BxTopCallback) (void *arg, uint32 partition, BlockNumber blkno);
extern bool bx_dir_geometry(Relation index, uint8 *layout, uint8 *lg_base);
extern void bx_dir_tops(Relation index, uint32 first, uint32 n,
						BlockNumber *tops);
extern BlockNumber bx_dir_known_blocks(Relation index);
extern void bx_dir_forget(Relation index);
extern void bx_dir_check_top(Relation index, Buffer buffer, uint32 partition);
extern void bx_dir_check_desc(Relation index, BlockNumber blkno,
							  const BxNodeDesc *desc,
							  BlockNumber *index_blocks);
extern void bx_dir_plan_slices(double keys, double rate, uint32 generation,
							   BxNodeDesc *desc);
extern void bx_dir_alloc_slices(Relation index, BxMetaPageData *meta,
								int level, uint32 node, double keys,
								double rate, BxNodeDesc *desc);
extern bool bx_dir_alloc_before(Relation index, BxMetaPageData *meta,
								int level, uint32 node, const BxNodeDesc *old,
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
extern uint64 bx_dir_ranges(BlockNumber heap_blocks, uint8 lg_base);
extern uint8 bx_dir_auto_lg_base(const BxLayout *layout, double keys_per_page);
extern double bx_dir_rows_per_page(Relation heap, ItemPointer tid);
extern uint8 bx_dir_choose_lg_base(const BxLayout *layout, const double *keys,
								   double heap_blocks);
extern uint8 bx_dir_grow_lg_base(const BxLayout *layout, uint8 lg_base,
								 double heap_blocks);
extern void bx_dir_make_segment(Relation index, Relation heap,
								ItemPointer tid);
extern bool bx_dir_measure(Relation index, int level, uint32 node,
						   const BxNodeDesc *desc,
						   BufferAccessStrategy strategy, BxMeasure *measure);
extern void bx_dir_set_baseline(BxNodeDesc *desc, const BxMeasure *measure);
extern void bx_dir_free_slices(Relation index, const BxNodeDesc *desc);
extern BlockNumber bx_dir_sweep(Relation index, BlockNumber *end);
extern BlockNumber bx_dir_truncate(Relation index, BlockNumber *free_pages);

extern void bx_dir_swap_shadow(Relation index, uint32 partition, int child,
							   const BxNodeDesc *old, const BxShadow *shadow,
							   const BxNodeDesc *desc);

/* which entry of a top-level page: the partition's own descriptor */
#define BX_CHILD_SELF		(-1)

/*
 * Rate of the summary's filters: this part of all segments is read in vain.
 * At 0.004 that is half a page for each partition, beside the two that are
 * always read; a lower rate would save little more, and cost as much space.
 */
#define BX_SUMMARY_RATE		0.004

/*
 * A first partition of fewer segments than this gets no summary: reading all
 * its segments is cheap, and the summary would be larger than they are.
 */
#define BX_MIN_SEGMENTS_FOR_SUMMARY		32

/*
 * Automatic pages_per_range never takes more pages than this power of two,
 * because a range that matches in vain costs that many heap pages.
 */
#define BX_AUTO_MAX_LG_BASE		4

/* With fewer children than this, a node's own fill says little. */
#define BX_FEW_CHILDREN		8

/* No range has so many keys, and more bits than these need can be counted. */
#define BX_MAX_RANGE_KEYS	1e12

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
extern void bx_node_set_doubt(char *rows, const BxMask *doubt);
extern void bx_node_write_slice(Relation index, int level, uint32 node,
								const BxNodeDesc *desc, uint32 slice,
								const char *rows, bool wal);

/* move.c */
extern void bx_move_compact(BxVacuum *vacuum);

/* rebuild.c */
extern void bx_rebuild_index(BxVacuum *vacuum);
extern bool bx_rebuild_is_overfull(const BxNodeDesc *desc,
								   const BxMeasure *measure, double target);
extern bool bx_rebuild_wants_summary(uint32 partition, int segments);
extern int	bx_rebuild_count_segments(const BxTopPageData *top, int *doubtful);

/* partitioned.c */
extern const BxLayout bx_layout_partitioned;

/* block.c */
extern const BxLayout bx_layout_block;

/* what does not change while an index lives, once there is a page */
typedef struct BxBlockGeometry
{
	uint8		lg_base;
	int			nranges;		/* of a page */
	double		target;
} BxBlockGeometry;

extern BxBlockGeometry bx_block_geometry(const BxMetaPageData *meta);
extern int	bx_block_choose_ranges(const double *keys, int n, double target);
extern BlockNumber bx_block_of_page(uint32 number);
extern void bx_block_read_page(Relation index, uint32 number,
							   const BxBlockGeometry *geometry,
							   BufferAccessStrategy strategy, char *copy);
extern void bx_block_check_offsets(Relation index, BlockNumber blkno,
								   Page page, const BxBlockGeometry *geometry);

/* what the fill of a page's filters tells: sums over those that have keys */
typedef struct BxBlockFill
{
	int			filters;		/* in all, but for those in doubt */
	int			doubtful;
	double		keys;
	double		squares;		/* of the keys */
	double		rates;
	double		fills;
	double		probes;
} BxBlockFill;

extern void bx_block_measure(const char *image, int nranges,
							 BxBlockFill *fill);
extern bool bx_block_is_overfull(const char *image, const BxBlockFill *fill,
								 double target);

/* block_check.c */
extern void bx_block_walk(Relation index, const BxMetaPageData *meta,
						  BxUnitCallback callback, void *arg);
extern void bx_block_check_claims(BxCheck *check, const BxMetaPageData *meta);
extern void bx_block_check_pages(BxCheck *check);
extern void bx_block_check_keys(BxCheck *check, uint32 range,
								const uint64 *keys, Size nkeys);
extern double bx_block_estimate(const BxTableModel *model, uint8 lg_base,
								double rate, BxStats *stats);

/* partitioned_check.c */
extern void bx_partitioned_walk(Relation index, const BxMetaPageData *meta,
								BxUnitCallback callback, void *arg);
extern void bx_partitioned_check_claims(BxCheck *check, const BxMetaPageData *meta);
extern void bx_partitioned_check_pages(BxCheck *check);
extern void bx_partitioned_check_keys(BxCheck *check, uint32 range,
									  const uint64 *keys, Size nkeys);
extern double bx_partitioned_estimate(const BxTableModel *model, uint8 lg_base,
									  double rate, BxStats *stats);

/* heapscan.c */
typedef struct BxHeapScan BxHeapScan;
typedef void (*BxRangeCallback) (void *arg, uint32 range, double done,
								 const uint64 *keys, Size nkeys, bool doubt);
extern BxHeapScan *bx_heapscan_begin(Relation heap, Relation index,
									 IndexInfo *indexInfo, Size memory);
extern void bx_heapscan_set_snapshot(BxHeapScan *scan, Snapshot snapshot);
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

/* scan.c */
extern IndexScanDesc bxbeginscan(Relation index, int nkeys, int norderbys);
extern void bxrescan(IndexScanDesc scan, ScanKey scankey, int nscankeys,
					 ScanKey orderbys, int norderbys);
extern int64 bxgetbitmap(IndexScanDesc scan, TIDBitmap *tbm);
extern void bxendscan(IndexScanDesc scan);
extern void bx_scan_add_range(BxSearch *search, uint32 range);
extern void bx_scan_hash(Relation heap, Relation index, uint64 hash,
						 BxFoundCallback found, void *arg);

/*
 * If a search finds no more pages than this, it looks at their rows (rows.c).
 * For one value that spares the executor most of its work.  More pages than
 * the values can be expected on, four ranges each, may have many rows that
 * match.  And they are read before the first row is returned, whether or not
 * it is the only one that somebody wants.
 */
#define BX_FEW_PAGES(elements, pages_per_range) \
	Min(Max(64, 4.0 * (elements) * (pages_per_range)), 16384)

/* rows.c */
typedef struct BxRows BxRows;
extern BxRows *bx_rows_begin(IndexScanDesc scan, Relation heap,
							 const BxQuery *query);
extern void bx_rows_add(BxRows *rows, const BlockNumber *pages,
						uint32 npages, TIDBitmap *tbm);

/* vacuum.c */
extern IndexBulkDeleteResult *bxbulkdelete(IndexVacuumInfo *info,
										   IndexBulkDeleteResult *stats,
										   IndexBulkDeleteCallback callback,
										   void *callback_state);
extern IndexBulkDeleteResult *bxvacuumcleanup(IndexVacuumInfo *info,
											  IndexBulkDeleteResult *stats);

extern void bx_vacuum_scan_ranges(BxVacuum *vacuum, uint8 lg_base,
								  uint64 first, uint64 n,
								  BxRangeCallback callback, void *arg);
extern bool bx_vacuum_is_worth_truncating(BlockNumber nblocks,
										  BlockNumber end);
extern bool bx_vacuum_try(BxVacuum *vacuum, void (*rebuild) (void *),
						  void (*give_up) (void *), void *arg);
extern bool bx_vacuum_needs_user_code(Relation index);

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

/* open.c */
extern void bx_open_check_access(Oid indexoid, bool reveals_data);
extern void bx_open_check_table_access(Oid tableoid, bool reveals_data);
extern void bx_open(Oid indexoid, LOCKMODE heap_lock, bool wait,
					LOCKMODE index_lock, Relation *heap, Relation *index);
extern void bx_open_check_storage(Relation rel);

/* who has called, while we are the table's owner */
typedef struct BxIdentity
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} BxIdentity;

extern void bx_open_become_owner(Relation heap, BxIdentity *identity);
extern void bx_open_become_caller(const BxIdentity *identity);
extern bool bx_open_may_run_code(Relation heap);

/* check.c */
extern void bx_check_claim(BxCheck *check, BlockNumber blkno,
						   BlockNumber start, uint32 n);
extern void bx_check_contradiction(BxCheck *check, BlockNumber blkno,
								   const char *problem);
pg_noreturn extern void bx_check_lost_key(BxCheck *check, BlockNumber blkno,
										  uint32 range, const char *where);

/* estimate.c */
extern double bx_estimate_keys(const BxTableModel *model, double heap_pages);

/* cost.c */

/* what the model knows of an index */
typedef struct BxFacts
{
	const BxLayout *layout;
	BxStats		stats;
	double		ranges;
	double		pages_per_range;
	double		segment_rate;
	double		summary_rate;
	bool		simple[INDEX_MAX_KEYS]; /* a tuple tells a column's value */
} BxFacts;

extern double bx_cost_ranges_hit(double ranges, double rows);
extern double bx_cost_match_fraction(const BxFacts *facts, double hit_ranges,
									 double elements);
extern void bxcostestimate(struct PlannerInfo *root, struct IndexPath *path,
						   double loop_count, Cost *indexStartupCost,
						   Cost *indexTotalCost, Selectivity *indexSelectivity,
						   double *indexCorrelation, double *indexPages);

/* validate.c */
extern bool bxvalidate(Oid opclassoid);
extern void bx_validate_index(Relation index);

#endif							/* BLOOMIDX_H */
