/*-------------------------------------------------------------------------
 *
 * build.c
 *	  CREATE INDEX: reads the heap range by range, and passes the keys of
 *	  each range to the layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/heapam.h"
#include "access/xloginsert.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/backend_progress.h"
#include "utils/pg_rusage.h"
#include "utils/rel.h"

#include "am.h"

#define PHASE_SAMPLING		PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE
#define PHASE_SCANNING		2
#define PHASE_WAITING		3
#define PHASE_PUBLISHING	4

/*
 * Number of places of the heap that are sampled for automatic
 * pages_per_range.
 */
#define SAMPLE_WINDOWS		16

/* Progress is reported each time this many heap blocks have been read. */
#define BLOCKS_PER_REPORT	128

char *
bxbuildphasename(int64 phasenum)
{
	switch (phasenum)
	{
		case PHASE_SAMPLING:
			return "sampling table";
		case PHASE_SCANNING:
			return "scanning table and writing filters";
		case PHASE_WAITING:
			return "waiting for parallel workers";
		case PHASE_PUBLISHING:
			return "writing directory";
		case BX_PROGRESS_REBUILDING:
			return "rebuilding filters";
		default:
			return NULL;
	}
}

/* Logs the duration of the phase that ends here. */
static void
end_phase(BxBuild *build)
{
	if (build->phase != 0)
		ereport(DEBUG1,
				(errmsg_internal("index \"%s\": %s: %s",
								 RelationGetRelationName(build->index),
								 bxbuildphasename(build->phase),
								 pg_rusage_show(&build->phase_start))));
}

static void
start_phase(BxBuild *build, int64 phase)
{
	end_phase(build);
	build->phase = phase;
	pg_rusage_init(&build->phase_start);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, phase);
}

static void
check_table_am(Relation heap, Relation index)
{
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create index \"%s\": table \"%s\" does not use the heap access method",
						RelationGetRelationName(index),
						RelationGetRelationName(heap)),
				 errdetail("Access method \"bloomidx\" can index only tables of access method \"heap\".")));
}

/*
 * Raises an error if the index belongs to an exclusion constraint that the
 * server could not check correctly.
 *
 * A constraint with a predicate: the server relies on the index to return only
 * rows that satisfy the predicate.  The filters identify pages, so the index
 * may return other rows.
 *
 * A deferrable constraint: since PostgreSQL 16 an update of the key can be
 * HOT.  The deferred check looks up the new version as if it were the root of
 * its HOT chain, does not find the version, and considers it dead.  PostgreSQL
 * 14 and 15 would check correctly, but pg_upgrade of the constraint to a later
 * version would fail.
 */
static void
check_exclusion(Relation index)
{
	if (!index->rd_index->indisexclusion)
		return;
	if (!index->rd_index->indimmediate)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create exclusion constraint \"%s\": access method \"bloomidx\" does not support deferrable exclusion constraints",
						RelationGetRelationName(index)),
				 errdetail("In PostgreSQL 16 and later, the deferred check does not find conflicts of row versions that HOT updates create."),
				 errhint("Use a constraint that is not deferrable.")));
	if (RelationGetIndexPredicate(index) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create exclusion constraint \"%s\": access method \"bloomidx\" does not support exclusion constraints with a predicate",
						RelationGetRelationName(index)),
				 errdetail("Rows outside the predicate would conflict, too."),
				 errhint("Use an expression that is null for these rows, such as CASE WHEN predicate THEN column END: null values do not conflict.")));
}

/*
 * Samples 1, 2, 4, ... consecutive pages in several places, and chooses
 * automatic pages_per_range from the distinct keys in them.  Samples without
 * keys, of which a partial index may have many, are ignored.
 */
static uint8
sample_lg_base(BxBuild *build, BxHeapScan *scan)
{
	double		keys[BX_AUTO_MAX_LG_BASE + 1] = {0};
	double		samples[BX_AUTO_MAX_LG_BASE + 1] = {0};
	BlockNumber size = 1 << BX_AUTO_MAX_LG_BASE;
	int			nwindows = Min(build->heap_blocks / size + 1, SAMPLE_WINDOWS);

	/* from the start of the heap to its end, where the newest rows are */
	for (int i = 0; i < nwindows; i++)
	{
		uint64		start = nwindows == 1 ? 0 :
		(uint64) (build->heap_blocks - size) * i / (nwindows - 1);
		const uint64 *unused;
		bool		doubt;

		for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
		{
			Size		nkeys;
			uint64		from = start + (lg == 0 ? 0 : (1 << (lg - 1)));
			uint64		to = start + (1 << lg);

			if (to > build->heap_blocks)
				break;
			for (uint64 blkno = from; blkno < to; blkno++)
				bx_heapscan_block(scan, (BlockNumber) blkno);
			nkeys = bx_heapscan_keys(scan, &unused, &doubt);
			keys[lg] += nkeys;
			samples[lg] += nkeys > 0;
		}
		bx_heapscan_clear(scan);
	}
	for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
		keys[lg] /= Max(samples[lg], 1);
	return bx_geometry_choose_lg_base(build->layout, keys, build->heap_blocks);
}

/*
 * Chooses lg_base: from the option, or from a sample of the heap.  For an
 * empty table, the choice is left to the first insert.
 */
static uint8
initial_lg_base(BxBuild *build, const BxOptions *options)
{
	BxHeapScan *scan;
	uint8		lg_base;

	if (options->pages_per_range > 0)
		return __builtin_ctz(options->pages_per_range);
	if (build->heap_blocks == 0)
		return BX_LG_BASE_UNSET;
	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->keys, build->memory / 8);
	lg_base = sample_lg_base(build, scan);
	bx_heapscan_end(scan);
	return lg_base;
}

/* Writes the metapage, which is block 0. */
static void
write_metapage(Relation index, const char *image)
{
	if (bx_page_extend(index, 1) != BX_METAPAGE_BLKNO)
		elog(ERROR, "metapage of index \"%s\" is not its first block",
			 RelationGetRelationName(index));
	bx_page_write_new(index, BX_METAPAGE_BLKNO, image, true);
}

/* Reports the progress of all participants, if called by the leader. */
static void
show_progress(BxBuild *build)
{
	if (build->is_leader)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE,
									 pg_atomic_read_u64(&build->shared->blocks_done));
}

/* Records that "blocks" heap blocks of the current unit have been read. */
static void
report_blocks(BxBuild *build, uint64 blocks)
{
	pg_atomic_fetch_add_u64(&build->shared->blocks_done,
							blocks - build->reported);
	build->reported = blocks;
	show_progress(build);
}

/* Range callback: passes the keys of a range to the layout. */
static void
build_range(void *arg, uint32 range, double done, const uint64 *keys, Size nkeys,
			bool doubt)
{
	BxBuild    *build = arg;
	uint64		blocks = (range % build->shared->unit_ranges) <<
	build->shared->meta.lg_base;

	if (doubt)
		pg_atomic_fetch_add_u64(&build->shared->doubts, 1);
	if (nkeys > 0 || doubt || build->in_parts)
		build->layout->build_add(build, range, done, keys, nkeys, doubt);
	build->in_parts = done < 1.0;
	if (blocks >= build->reported + BLOCKS_PER_REPORT)
		report_blocks(build, blocks);
}

/* Reads the heap pages of a unit and builds its filters. */
static void
build_unit(BxBuild *build, BxHeapScan *scan, uint64 unit)
{
	BxBuildShared *shared = build->shared;
	uint8		lg_base = shared->meta.lg_base;
	uint64		first = unit * shared->unit_ranges;
	uint64		end = Min(first + shared->unit_ranges,
						  bx_geometry_ranges(build->heap_blocks, lg_base));

	build->reported = 0;
	bx_heapscan_ranges(scan, lg_base, first, end, build->heap_blocks,
					   build_range, build);
	build->layout->build_unit(build, &shared->results[unit]);
	report_blocks(build, Min(end << lg_base, build->heap_blocks) -
				  (first << lg_base));
}

/* The work of a participant: builds units until all have been claimed. */
void
bx_build_units(BxBuild *build)
{
	BxBuildShared *shared = build->shared;
	BxHeapScan *scan;
	uint64		unit;
	double		heap_tuples;
	double		index_tuples;

	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->keys, build->memory / 8);
	build->layout->build_begin(build);
	while ((unit = pg_atomic_fetch_add_u64(&shared->next_unit, 1)) <
		   shared->nunits)
		build_unit(build, scan, unit);
	build->layout->build_end(build);
	bx_heapscan_tuples(scan, &heap_tuples, &index_tuples);
	bx_heapscan_end(scan);

	SpinLockAcquire(&shared->mutex);
	shared->heap_tuples += heap_tuples;
	shared->index_tuples += index_tuples;
	SpinLockRelease(&shared->mutex);
}

/* Initializes the shared state, which must be zero before. */
static void
init_shared(BxBuild *build, const BxMetaPageData *meta, uint64 unit_ranges,
			uint64 nunits)
{
	BxBuildShared *shared = build->shared;

	shared->meta = *meta;
	shared->heap_blocks = build->heap_blocks;
	shared->unit_ranges = unit_ranges;
	shared->nunits = nunits;
	pg_atomic_init_u64(&shared->next_unit, 0);
	pg_atomic_init_u64(&shared->blocks_done, 0);
	pg_atomic_init_u64(&shared->doubts, 0);
	pg_atomic_init_u32(&shared->next_generation, 1);
	SpinLockInit(&shared->mutex);
}

/*
 * Returns the number of workers: as many as the planner suggests, but fewer
 * than units, because the leader builds units, too.  The planner checks
 * whether expressions and predicate are parallel safe, but not the functions
 * of operator classes.  While a contained type is being altered, there are no
 * workers: REINDEX must not wait for the owner of a type.
 */
static int
choose_workers(BxBuild *build, uint64 nunits)
{
	int			nworkers;

	if (nunits < 2)
		return 0;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(build->index); i++)
	{
		if (bx_hash_runs_user_code(build->index, i + 1, false))
			return 0;
	}
	nworkers = bx_plan_workers(build->heap, build->index, build->indexInfo);
	return Min(nworkers, nunits - 1);
}

/*
 * Allocates the "shared" state of a build without workers. palloc may align
 * to only 4 bytes, which is not sufficient for 64-bit atomics.
 */
static void
allocate_shared(BxBuild *build, Size size)
{
	build->chunk = palloc_extended(size + sizeof(uint64),
								   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	build->shared = (BxBuildShared *) TYPEALIGN(sizeof(uint64), build->chunk);
}

/*
 * Builds all units, and waits for the workers.  If there were workers,
 * returns the BxParallel that the caller must pass to bx_parallel_end() after
 * it has used the results; else NULL.
 */
static BxParallel *
build_all_units(BxBuild *build, const BxMetaPageData *meta,
				uint64 unit_ranges)
{
	uint64		ranges = bx_geometry_ranges(build->heap_blocks, meta->lg_base);
	uint64		nunits = (ranges + unit_ranges - 1) / unit_ranges;
	Size		size = offsetof(BxBuildShared, results) +
	sizeof(BxUnitResult) * nunits;
	int			nworkers = choose_workers(build, nunits);
	BxParallel *parallel = NULL;

	if (nworkers > 0)
		parallel = bx_parallel_begin(build, nworkers, size);
	if (parallel == NULL)
		allocate_shared(build, size);
	init_shared(build, meta, unit_ranges, nunits);

	if (parallel != NULL)
		bx_parallel_launch(parallel, build->index);
	bx_build_units(build);
	if (parallel != NULL)
	{
		start_phase(build, PHASE_WAITING);
		bx_parallel_wait(parallel, show_progress, build);
		show_progress(build);
	}
	return parallel;
}

/*
 * Warns if some ranges match every key.  The server will now look up every row
 * of the table, and each of these searches reads all of these ranges.
 */
static void
warn_of_doubts(const BxBuild *build)
{
	uint64		doubts = pg_atomic_read_u64(&build->shared->doubts);

	if (build->index->rd_index->indisexclusion && doubts > 0)
		ereport(WARNING,
				(errmsg("checking exclusion constraint \"%s\" may take a very long time, because the table has dead rows",
						RelationGetRelationName(build->index)),
				 errdetail("The keys of dead rows could not be computed, so the filters of " UINT64_FORMAT " page ranges match every key.",
						   doubts),
				 errhint("Cancel the command, run VACUUM on the table, and try again.")));
}

/* Builds all filters, and sets the remaining fields of *meta. */
static void
build_filters(BxBuild *build, BxMetaPageData *meta, IndexBuildResult *result)
{
	uint64		unit_ranges = build->layout->build_plan(build, meta);
	BxParallel *parallel;

	start_phase(build, PHASE_SCANNING);
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL,
								 build->heap_blocks);
	parallel = build_all_units(build, meta, unit_ranges);

	start_phase(build, PHASE_PUBLISHING);
	build->layout->build_publish(build, meta);
	result->heap_tuples = build->shared->heap_tuples;
	result->index_tuples = build->shared->index_tuples;
	warn_of_doubts(build);
	if (parallel != NULL)
		bx_parallel_end(parallel);
	else
		pfree(build->chunk);
}

static void
init_build(BxBuild *build, Relation heap, Relation index,
		   IndexInfo *indexInfo, const BxOptions *options)
{
	memset(build, 0, sizeof(*build));
	build->heap = heap;
	build->index = index;
	build->indexInfo = indexInfo;
	build->keys = options->keys;
	build->is_leader = true;
	build->layout = bx_layout_by_id(index, options->layout);
	build->heap_blocks = RelationGetNumberOfBlocks(heap);
	build->memory = (Size) maintenance_work_mem * 1024;
}

IndexBuildResult *
bxbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc0(sizeof(IndexBuildResult));
	BxBuild		build;
	BxOptions	options;
	PGAlignedBlock metapage;
	BxMetaPageData *meta = BxPageGetMeta(metapage.data);

	check_table_am(heap, index);
	check_exclusion(index);
	bx_validate_index(index);
	bx_usable_notify(heap, index);
	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));

	/* TRUNCATE may build the index again in the same file */
	bx_geometry_forget(index);
	bx_options_get(index, &options);
	bx_validate_keys(index, &options);
	init_build(&build, heap, index, indexInfo, &options);
	start_phase(&build, PHASE_SAMPLING);
	bx_meta_init(metapage.data, options.layout, options.keys,
				 options.false_positive_rate,
				 initial_lg_base(&build, &options));
	write_metapage(index, metapage.data);
	if (meta->lg_base != BX_LG_BASE_UNSET)
		build_filters(&build, meta, result);

	/* without keys, leave the choice of lg_base to the first insert */
	if (meta->stats.parts == 0 && options.pages_per_range == 0)
		meta->lg_base = BX_LG_BASE_UNSET;
	bx_meta_write(index, meta);
	end_phase(&build);
	return result;
}

/*
 * Writes the init fork of an unlogged index.  Its page is logged explicitly:
 * generic WAL does not log pages of unlogged relations, and after a crash the
 * index would have no metapage.
 */
void
bxbuildempty(Relation index)
{
	BxOptions	options;
	PGAlignedBlock metapage;
	BlockNumber blkno;
	uint32		n;
	Buffer		buffer;

	bx_validate_index(index);
	bx_options_get(index, &options);
	bx_validate_keys(index, &options);
	bx_meta_init(metapage.data, options.layout, options.keys,
				 options.false_positive_rate,
				 options.pages_per_range > 0 ?
				 __builtin_ctz(options.pages_per_range) : BX_LG_BASE_UNSET);

	LockRelationForExtension(index, ExclusiveLock);
	blkno = bx_extend(index, INIT_FORKNUM, 1, &n);
	UnlockRelationForExtension(index, ExclusiveLock);
	buffer = ReadBufferExtended(index, INIT_FORKNUM, blkno, RBM_ZERO_AND_LOCK,
								NULL);
	START_CRIT_SECTION();
	memcpy(BufferGetPage(buffer), metapage.data, BLCKSZ);
	MarkBufferDirty(buffer);
	log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}
