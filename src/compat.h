/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between the supported PostgreSQL versions.
 *
 * All tests of PG_VERSION_NUM are here, except for the fields of the
 * IndexAmRoutine in am/handler.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_COMPAT_H
#define BX_COMPAT_H

#include "access/amapi.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "commands/vacuum.h"
#include "executor/instrument.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#endif
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/selfuncs.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 140000
#error "bloomidx needs PostgreSQL 14 or later"
#endif

/* PostgreSQL 18 has a new keyword for functions that do not return. */
#ifndef pg_noreturn
#define pg_noreturn			pg_attribute_noreturn()
#endif

/*
 * PostgreSQL 19 has a macro for falling through, and no longer accepts a
 * comment.
 */
#ifndef pg_fallthrough
#define pg_fallthrough		__attribute__((fallthrough))
#endif

/* PostgreSQL 16 renamed the fields that identify the file of a relation. */
#if PG_VERSION_NUM < 160000
#define bx_rel_locator(rel)			((rel)->rd_node)
#define bx_rel_number(rel)			((rel)->rd_node.relNode)
#else
#define bx_rel_locator(rel)			((rel)->rd_locator)
#define bx_rel_number(rel)			((rel)->rd_locator.relNumber)
#endif

/*
 * PostgreSQL 16 added JSON_ARRAY() and other constructors, which call casts to
 * json; 17 added JSON_VALUE() and the like, which check domains.
 */
#if PG_VERSION_NUM < 160000
#define bx_is_json_node(node)		false
#elif PG_VERSION_NUM < 170000
#define bx_is_json_node(node)		IsA(node, JsonConstructorExpr)
#else
#define bx_is_json_node(node)		\
	(IsA(node, JsonConstructorExpr) || IsA(node, JsonExpr))
#endif

/* PostgreSQL 17 removed old_snapshot_threshold. */
#if PG_VERSION_NUM < 170000
#define bx_test_for_old_snapshot(snapshot, rel, page) \
	TestForOldSnapshot(snapshot, rel, page)
#else
#define bx_test_for_old_snapshot(snapshot, rel, page) ((void) 0)
#endif

#if PG_VERSION_NUM < 180000
#define bx_vacuum_delay_point()		vacuum_delay_point()
#else
#define bx_vacuum_delay_point()		vacuum_delay_point(false)
#endif

#if PG_VERSION_NUM < 170000
#define bx_estimate_array_length(root, node)	estimate_array_length(node)
#else
#define bx_estimate_array_length(root, node)	estimate_array_length(root, node)
#endif

#if PG_VERSION_NUM < 170000
#define bx_is_autovacuum()			IsAutoVacuumWorkerProcess()
#else
#define bx_is_autovacuum()			AmAutoVacuumWorkerProcess()
#endif

#if PG_VERSION_NUM < 160000
#define bx_object_ownercheck(oid, role)		pg_class_ownercheck(oid, role)
#define bx_may_execute(function, role) \
	(pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define bx_object_ownercheck(oid, role) \
	object_ownercheck(RelationRelationId, oid, role)
#define bx_may_execute(function, role) \
	(object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK)
#endif

#if PG_VERSION_NUM < 160000
#define rd_newRelfilelocatorSubid	rd_newRelfilenodeSubid
#endif

/*
 * Since PostgreSQL 17 the server itself calls the planner, if
 * amcanbuildparallel is set.
 */
#if PG_VERSION_NUM < 170000
#define bx_plan_workers(heap, index, indexInfo) \
	plan_create_index_workers(RelationGetRelid(heap), RelationGetRelid(index))
#else
#define bx_plan_workers(heap, index, indexInfo) ((indexInfo)->ii_ParallelWorkers)
#endif

/* PostgreSQL 18 has a type for what an operator means. */
#if PG_VERSION_NUM < 180000
typedef int CompareType;
#define COMPARE_INVALID		0
#define COMPARE_EQ			3
#endif

/* PostgreSQL 18 counts the searches of a scan, for EXPLAIN ANALYZE. */
#if PG_VERSION_NUM >= 180000
#define bx_count_search(scan) \
	do { if ((scan)->instrument) (scan)->instrument->nsearches++; } while (0)
#else
#define bx_count_search(scan)		((void) 0)
#endif

/* PostgreSQL 19 has flags for the options of a scan. */
#if PG_VERSION_NUM < 190000
#define bx_index_fetch_begin(rel)	table_index_fetch_begin(rel)
#else
#define bx_index_fetch_begin(rel)	table_index_fetch_begin(rel, 0)
#endif

/*
 * The heap page that the executor has pinned to fetch the rows of an index
 * scan: returns its buffer if the page is blkno, else InvalidBuffer.
 */
static inline Buffer
bx_fetch_pinned(struct IndexFetchTableData *fetch, BlockNumber blkno)
{
	Buffer		buffer = ((IndexFetchHeapData *) fetch)->xs_cbuf;

	return BufferIsValid(buffer) && BufferGetBlockNumber(buffer) == blkno ?
		buffer : InvalidBuffer;
}

/*
 * Passes a pin on another page to the executor, which releases the pin of the
 * page before.  Like the executor, prunes a page when it gets the pin.
 */
static inline void
bx_fetch_pass(struct IndexFetchTableData *fetch, BlockNumber blkno,
			  Buffer buffer)
{
	IndexFetchHeapData *heap = (IndexFetchHeapData *) fetch;
	Buffer		before = heap->xs_cbuf;

	heap->xs_cbuf = buffer;
#if PG_VERSION_NUM >= 190000
	heap->xs_blk = blkno;
#endif
	if (BufferIsValid(before))
		ReleaseBuffer(before);
#if PG_VERSION_NUM < 190000
	heap_page_prune_opt(fetch->rel, buffer);
#else
	heap_page_prune_opt(fetch->rel, buffer, &heap->xs_vmbuffer,
						fetch->flags & SO_HINT_REL_READ_ONLY);
#endif
}

/*
 * Returns whether VACUUM may truncate an index of a table: according to the
 * table's storage parameter vacuum_truncate, and since PostgreSQL 18, if that
 * is not set, the server's parameter.
 */
static inline bool
bx_may_truncate(Relation heap)
{
	int			version = atoi(GetConfigOption("server_version_num", false, false));
	const StdRdOptions *options = (const StdRdOptions *) heap->rd_options;

	/*
	 * Before these versions, RelationTruncate() truncates the file of an
	 * index before the WAL record is flushed.  A crash in between would
	 * restore directory entries that reference truncated pages.  The version
	 * is checked at run time, because the running server may be older than
	 * the headers.
	 */
	if (version < 140016 || (version >= 150000 && version < 150011) ||
		(version >= 160000 && version < 160007) ||
		(version >= 170000 && version < 170003))
		return false;
#if PG_VERSION_NUM < 180000
	return options == NULL || options->vacuum_truncate;
#elif PG_VERSION_NUM < 190000
	return options && options->vacuum_truncate_set ?
		options->vacuum_truncate : vacuum_truncate;
#else
	return options && options->vacuum_truncate != PG_TERNARY_UNSET ?
		options->vacuum_truncate == PG_TERNARY_TRUE : vacuum_truncate;
#endif
}

/*
 * PostgreSQL 19 uses the handler's result in place; earlier versions free it.
 */
static inline const IndexAmRoutine *
bx_am_routine(const IndexAmRoutine *routine)
{
#if PG_VERSION_NUM < 190000
	IndexAmRoutine *copy = palloc(sizeof(*copy));

	*copy = *routine;
	return copy;
#else
	return routine;
#endif
}

/*
 * Appends up to npages all-zero pages, and returns the first; *n is their
 * number.  The caller holds the relation extension lock, so that several
 * calls return consecutive blocks.
 */
static inline BlockNumber
bx_extend(Relation rel, ForkNumber fork, uint32 npages, uint32 *n)
{
	BlockNumber blkno;
#if PG_VERSION_NUM < 160000
	Buffer		buffer = ReadBufferExtended(rel, fork, P_NEW, RBM_NORMAL, NULL);

	*n = 1;
	blkno = BufferGetBlockNumber(buffer);
	ReleaseBuffer(buffer);
#else
	Buffer		buffers[64];

	blkno = ExtendBufferedRelBy(BMR_REL(rel), fork, NULL,
								EB_SKIP_EXTENSION_LOCK,
								Min(npages, lengthof(buffers)), buffers, n);
	for (uint32 i = 0; i < *n; i++)
		ReleaseBuffer(buffers[i]);
#endif
	return blkno;
}

/*
 * Reads blocks of a relation in order.  PostgreSQL 17 has read streams, which
 * read ahead and combine blocks.  In earlier versions read-ahead is left to
 * the operating system, which detects the sequential access.
 */
typedef struct BxReader
{
	Relation	rel;
	BufferAccessStrategy strategy;
	BlockNumber next;
	BlockNumber end;
#if PG_VERSION_NUM >= 170000
	ReadStream *stream;
#endif
} BxReader;

#if PG_VERSION_NUM < 170000

static inline void
bx_reader_start(BxReader *reader)
{
}

static inline Buffer
bx_reader_next(BxReader *reader)
{
	return ReadBufferExtended(reader->rel, MAIN_FORKNUM, reader->next++,
							  RBM_NORMAL, reader->strategy);
}

static inline void
bx_reader_stop(BxReader *reader)
{
}

#else

static inline BlockNumber
bx_reader_choose(ReadStream * stream, void *arg, void *per_buffer)
{
	BxReader   *reader = arg;

	return reader->next < reader->end ? reader->next++ : InvalidBlockNumber;
}

static inline void
bx_reader_start(BxReader *reader)
{
	reader->stream = read_stream_begin_relation(READ_STREAM_MAINTENANCE |
												READ_STREAM_SEQUENTIAL,
												reader->strategy, reader->rel,
												MAIN_FORKNUM, bx_reader_choose,
												reader, 0);
}

static inline Buffer
bx_reader_next(BxReader *reader)
{
	return read_stream_next_buffer(reader->stream, NULL);
}

static inline void
bx_reader_stop(BxReader *reader)
{
	read_stream_end(reader->stream);
}

#endif

/*
 * Returns whether a shared buffer seems to hold the given block of some
 * relation; the buffer may be assigned to another block at any time.
 */
static inline bool
bx_buffer_has_block(Buffer buffer, BlockNumber blkno)
{
	return GetBufferDescriptor(buffer - 1)->tag.blockNum == blkno;
}

/*
 * Pins a block of a relation, which must not be temporary, if the given shared
 * buffer still holds the block; else returns false.  Counts the access in the
 * same way as ReadBuffer(): ReadRecentBuffer() does not count the hit in
 * pg_stat_io and, before PostgreSQL 15, in pgBufferUsage; and before
 * PostgreSQL 19 it does not increment the buffer's usage count, so the buffer
 * would soon be evicted.
 */
static inline bool
bx_read_recent_buffer(Relation rel, BlockNumber blkno, Buffer buffer)
{
	Assert(!RelationUsesLocalBuffers(rel) && !BufferIsLocal(buffer));
	if (!ReadRecentBuffer(bx_rel_locator(rel), MAIN_FORKNUM, blkno, buffer))
		return false;
#if PG_VERSION_NUM < 190000
	{
		BufferDesc *desc = GetBufferDescriptor(buffer - 1);
		uint32		state = pg_atomic_read_u32(&desc->state);

		/* do nothing if another backend changes the state at the same time */
		if (!(state & BM_LOCKED) &&
			BUF_STATE_GET_USAGECOUNT(state) < BM_MAX_USAGE_COUNT)
			pg_atomic_compare_exchange_u32(&desc->state, &state,
										   state + BUF_USAGECOUNT_ONE);
	}
#endif
#if PG_VERSION_NUM < 150000
	pgBufferUsage.shared_blks_hit++;
#elif PG_VERSION_NUM >= 180000
	pgstat_count_io_op(IOOBJECT_RELATION, IOCONTEXT_NORMAL, IOOP_HIT, 1, 0);
#elif PG_VERSION_NUM >= 160000
	pgstat_count_io_op(IOOBJECT_RELATION, IOCONTEXT_NORMAL, IOOP_HIT);
#endif
	pgstat_count_buffer_read(rel);
	pgstat_count_buffer_hit(rel);
	return true;
}

#endif							/* BX_COMPAT_H */
