/*-------------------------------------------------------------------------
 *
 * parallel.c
 *	  Parallel workers for CREATE INDEX.
 *
 * A build consists of independent units.  The leader and the workers claim
 * units one at a time by incrementing a counter in shared memory
 * (bx_build_units).  So nothing has to be divided in advance or merged
 * afterwards: the result of a unit is in its pages and in its own element of
 * BxBuildShared.results.
 *
 * Workers have the same view as the leader: they use its transaction, which
 * determines which rows are its own, and its combo command IDs, and they know
 * whether the pages of the index are to be logged.  See "Parallel builds" in
 * src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#include "am.h"

/* Keys of the shared memory's table of contents. */
#define KEY_TASK		UINT64CONST(0xB1D7000000000001)
#define KEY_BUILD		UINT64CONST(0xB1D7000000000002)
#define KEY_QUERY		UINT64CONST(0xB1D7000000000003)

/* How often the waiting leader reports the progress of the workers. */
#define PROGRESS_INTERVAL_MS	100

/* Resource usage of a worker. */
typedef struct Usage
{
	BufferUsage buffers;
	WalUsage	wal;
} Usage;

/*
 * Data passed to the workers, and returned by them, in addition to
 * BxBuildShared.
 */
typedef struct Task
{
	Oid			heap;
	Oid			index;
	bool		concurrent;		/* CREATE INDEX CONCURRENTLY or REINDEX
								 * CONCURRENTLY */
	Size		memory;			/* memory budget of each participant */
	Usage		usage[FLEXIBLE_ARRAY_MEMBER];
} Task;

struct BxParallel
{
	ParallelContext *context;
	Task	   *task;
};

PGDLLEXPORT void bx_parallel_main(dsm_segment *seg, shm_toc *toc);

static Size
task_size(int nworkers)
{
	return offsetof(Task, usage) + sizeof(Usage) * nworkers;
}

/* Estimates the size of the shared memory. */
static void
estimate(ParallelContext *context, Size build_size)
{
	shm_toc_estimator *estimator = &context->estimator;

	shm_toc_estimate_chunk(estimator, task_size(context->nworkers));
	shm_toc_estimate_chunk(estimator, build_size);
	shm_toc_estimate_keys(estimator, 2);
	if (debug_query_string)
	{
		shm_toc_estimate_chunk(estimator, strlen(debug_query_string) + 1);
		shm_toc_estimate_keys(estimator, 1);
	}
}

/* Allocates zeroed shared memory, which workers find by the key. */
static void *
allocate(ParallelContext *context, uint64 key, Size size)
{
	void	   *chunk = shm_toc_allocate(context->toc, size);

	memset(chunk, 0, size);
	shm_toc_insert(context->toc, key, chunk);
	return chunk;
}

static void
leave(ParallelContext *context)
{
	DestroyParallelContext(context);
	ExitParallelMode();
}

/*
 * Prepares a parallel build: from here to bx_parallel_end() the leader is in
 * parallel mode.  Sets build->shared to build_size bytes of zeroed shared
 * memory, and build->memory to the leader's share.  Returns NULL, and leaves
 * parallel mode, if no shared memory is available.
 */
BxParallel *
bx_parallel_begin(BxBuild *build, int nworkers, Size build_size)
{
	BxParallel *parallel;
	ParallelContext *context;
	Task	   *task;

	EnterParallelMode();
	context = CreateParallelContext(BX_LIBRARY, "bx_parallel_main", nworkers);
	estimate(context, build_size);
	InitializeParallelDSM(context);
	if (context->seg == NULL)
	{
		leave(context);
		return NULL;
	}

	/* the participants share the memory budget of one */
	build->memory /= nworkers + 1;
	build->shared = allocate(context, KEY_BUILD, build_size);
	task = allocate(context, KEY_TASK, task_size(nworkers));
	task->heap = RelationGetRelid(build->heap);
	task->index = RelationGetRelid(build->index);
	task->concurrent = build->indexInfo->ii_Concurrent;
	task->memory = build->memory;
	if (debug_query_string)
		strcpy(allocate(context, KEY_QUERY, strlen(debug_query_string) + 1),
			   debug_query_string);

	parallel = palloc(sizeof(BxParallel));
	parallel->context = context;
	parallel->task = task;
	return parallel;
}

/*
 * Launches the workers; build->shared must be initialized.  There may be
 * fewer workers than requested, or none: the leader builds all units that are
 * not claimed.
 */
void
bx_parallel_launch(BxParallel *parallel, Relation index)
{
	ParallelContext *context = parallel->context;

	LaunchParallelWorkers(context);
	ereport(DEBUG1,
			(errmsg_internal("index \"%s\": %d of %d parallel workers launched",
							 RelationGetRelationName(index),
							 context->nworkers_launched, context->nworkers)));
}

/* Returns whether a launched worker has not finished yet. */
static bool
is_anyone_working(const ParallelContext *context)
{
	for (int i = 0; i < context->nworkers_launched; i++)
	{
		if (context->worker[i].error_mqh != NULL)
			return true;
	}
	return false;
}

/*
 * Waits for the workers to finish, and calls show() periodically.  An error
 * of a worker is raised here, or wherever the leader checks for interrupts.
 */
void
bx_parallel_wait(BxParallel *parallel, void (*show) (BxBuild *build),
				 BxBuild *build)
{
	ParallelContext *context = parallel->context;

	/* detects workers that failed to start */
	WaitForParallelWorkersToAttach(context);
	while (is_anyone_working(context))
	{
		show(build);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 PROGRESS_INTERVAL_MS,
						 WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	WaitForParallelWorkersToFinish(context);
	for (int i = 0; i < context->nworkers_launched; i++)
		InstrAccumParallelQuery(&parallel->task->usage[i].buffers,
								&parallel->task->usage[i].wal);
}

/* Leaves parallel mode; build->shared no longer exists. */
void
bx_parallel_end(BxParallel *parallel)
{
	leave(parallel->context);
	pfree(parallel);
}

/* Builds units in a worker. */
static void
participate(const Task *task, BxBuildShared *shared, Relation heap,
			Relation index)
{
	BxBuild		build = {0};

	build.heap = heap;
	build.index = index;
	build.indexInfo = BuildIndexInfo(index);
	build.indexInfo->ii_Concurrent = task->concurrent;
	build.keys = shared->meta.keys;
	build.layout = bx_layout_by_id(index, shared->meta.layout);
	build.heap_blocks = shared->heap_blocks;
	build.memory = task->memory;
	build.shared = shared;
	bx_build_units(&build);
}

/* Entry point of a worker. */
void
bx_parallel_main(dsm_segment *seg, shm_toc *toc)
{
	Task	   *task = shm_toc_lookup(toc, KEY_TASK, false);
	BxBuildShared *shared = shm_toc_lookup(toc, KEY_BUILD, false);
	Usage	   *usage = &task->usage[ParallelWorkerNumber];
	LOCKMODE	heap_lock;
	LOCKMODE	index_lock;
	Relation	heap;
	Relation	index;

	debug_query_string = shm_toc_lookup(toc, KEY_QUERY, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);

	/* the same locks as the leader holds */
	heap_lock = task->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	index_lock = task->concurrent ? RowExclusiveLock : AccessExclusiveLock;
	heap = table_open(task->heap, heap_lock);
	index = index_open(task->index, index_lock);
	InstrStartParallelQuery();
	participate(task, shared, heap, index);
	InstrEndParallelQuery(&usage->buffers, &usage->wal);
	index_close(index, index_lock);
	table_close(heap, heap_lock);
}
