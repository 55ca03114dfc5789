/*-------------------------------------------------------------------------
 *
 * build.c
 *	  CREATE INDEX: reads the heap range by range, and hands the keys of each
 *	  to the layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/heapam.h"
#include "access/xloginsert.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/backend_progress.h"
#include "utils/rel.h"

#include "bloomidx.h"

#define PHASE_SAMPLING		PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE
#define PHASE_SCANNING		2
#define PHASE_LOGGING		3

/* Automatic pages_per_range looks at this many places of the heap. */
#define SAMPLE_WINDOWS		16

char *
bxbuildphasename(int64 phasenum)
{
	switch (phasenum)
	{
		case PHASE_SAMPLING:
			return "sampling table";
		case PHASE_SCANNING:
			return "scanning table and writing filters";
		case PHASE_LOGGING:
			return "writing WAL";
		default:
			return NULL;
	}
}

static void
set_phase(int64 phase)
{
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
				 errdetail("bloomidx indexes tables of access method heap only.")));
}

/*
 * Takes samples of 1, 2, 4, ... consecutive pages and picks the automatic
 * pages_per_range from the distinct keys in them.
 */
static uint8
sample_lg_base(BxBuild *build, BxHeapScan *scan)
{
	double		keys[BX_AUTO_MAX_LG_BASE + 1] = {0};
	double		samples[BX_AUTO_MAX_LG_BASE + 1] = {0};
	BlockNumber step = Max(build->heap_blocks / SAMPLE_WINDOWS,
						   1 << BX_AUTO_MAX_LG_BASE);

	for (uint64 start = 0; start < build->heap_blocks; start += step)
	{
		const uint64 *unused;
		bool		doubt;

		for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
		{
			uint64		from = start + (lg == 0 ? 0 : (1 << (lg - 1)));
			uint64		to = start + (1 << lg);

			if (to > build->heap_blocks)
				break;
			for (uint64 blkno = from; blkno < to; blkno++)
				bx_heapscan_block(scan, (BlockNumber) blkno);
			keys[lg] += bx_heapscan_keys(scan, &unused, &doubt);
			samples[lg]++;
		}
		bx_heapscan_clear(scan);
	}
	for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE && samples[lg] > 0; lg++)
		keys[lg] /= samples[lg];
	return bx_dir_choose_lg_base(keys);
}

/*
 * Picks the geometry: the option, or what a sample of the heap suggests.  An
 * empty table leaves it to the first insert.
 */
static void
choose_lg_base(BxBuild *build, const BxOptions *options)
{
	BxHeapScan *scan;

	if (options->pages_per_range > 0)
	{
		build->lg_base = __builtin_ctz(options->pages_per_range);
		return;
	}
	if (build->heap_blocks == 0)
	{
		build->lg_base = BX_LG_BASE_UNSET;
		return;
	}
	set_phase(PHASE_SAMPLING);
	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->memory / 8);
	build->lg_base = sample_lg_base(build, scan);
	bx_heapscan_end(scan);
}

/* Hands the keys of a range to the layout. */
static void
add_range(void *arg, uint32 range, double done, const uint64 *keys, Size nkeys,
		  bool doubt)
{
	BxBuild    *build = arg;

	build->layout->build_add(build, range, done, keys, nkeys, doubt);
}

/* Reads the whole heap and builds all filters. */
static void
scan_heap(BxBuild *build, IndexBuildResult *result)
{
	uint64		ranges = bx_dir_ranges(build->heap_blocks, build->lg_base);
	BxHeapScan *scan;

	set_phase(PHASE_SCANNING);
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL,
								 build->heap_blocks);
	scan = bx_heapscan_begin(build->heap, build->index, build->indexInfo,
							 build->memory / 8);
	build->layout->build_begin(build);
	for (uint64 range = 0; range < ranges; range++)
	{
		bx_heapscan_ranges(scan, build->lg_base, range, range + 1,
						   build->heap_blocks, add_range, build);
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE,
									 Min((range + 1) << build->lg_base,
										 build->heap_blocks));
	}
	build->layout->build_end(build);
	bx_heapscan_tuples(scan, &result->heap_tuples, &result->index_tuples);
	bx_heapscan_end(scan);
}

IndexBuildResult *
bxbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc0(sizeof(IndexBuildResult));
	BxBuild		build = {0};
	BxOptions	options;
	PGAlignedBlock metapage;

	check_table_am(heap, index);
	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));

	/* TRUNCATE may build anew in the same file */
	bx_dir_forget(index);
	bx_options_get(index, &options);
	build.heap = heap;
	build.index = index;
	build.indexInfo = indexInfo;
	build.layout = bx_layout_by_id(index, options.layout);
	build.heap_blocks = RelationGetNumberOfBlocks(heap);
	build.memory = (Size) maintenance_work_mem * 1024;
	choose_lg_base(&build, &options);
	bx_meta_init(metapage.data, &options, build.lg_base);
	build.meta = BxPageGetMeta(metapage.data);

	/* the metapage is block 0, but what it says is known only at the end */
	if (bx_page_extend(index, 1) != BX_METAPAGE_BLKNO)
		elog(ERROR, "metapage of index \"%s\" is not its first block",
			 RelationGetRelationName(index));
	if (build.lg_base != BX_LG_BASE_UNSET)
		scan_heap(&build, result);

	/* pages without keys tell nothing of those to come */
	if (build.meta->stats.segments == 0 && options.pages_per_range == 0)
		build.meta->lg_base = BX_LG_BASE_UNSET;
	bx_page_write_new(index, BX_METAPAGE_BLKNO, metapage.data, false);

	if (RelationNeedsWAL(index))
	{
		set_phase(PHASE_LOGGING);
		log_newpage_range(index, MAIN_FORKNUM, 0,
						  RelationGetNumberOfBlocks(index), true);
	}
	return result;
}

/*
 * Makes the init fork of an unlogged index.  It is logged by hand: a generic
 * record does not log pages of relations that are not logged, and after a
 * crash the index would have no metapage.
 */
void
bxbuildempty(Relation index)
{
	BxOptions	options;
	PGAlignedBlock metapage;
	BlockNumber blkno;
	Buffer		buffer;

	bx_options_get(index, &options);
	bx_meta_init(metapage.data, &options,
				 options.pages_per_range > 0 ?
				 __builtin_ctz(options.pages_per_range) : BX_LG_BASE_UNSET);

	LockRelationForExtension(index, ExclusiveLock);
	blkno = bx_extend_by_one(index, INIT_FORKNUM);
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
