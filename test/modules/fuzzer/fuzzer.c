/*-------------------------------------------------------------------------
 *
 * fuzzer.c
 *	  Damages pages of an index as an input says, and reads the index in every
 *	  way.
 *
 * An input is a byte of flags, followed by edits of pages:
 *
 *	  page number, offset (2 bytes), length, bytes
 *
 * A page number below OTHER_PAGE counts the pages of the kind that is fuzzed;
 * any other one counts all pages of the index.  An edit at offset COPY_PAGE
 * replaces the page by another page, which the first byte selects.  Edits that
 * are out of bounds are cut off.  So every input is a possible damage of a
 * page that is otherwise valid, most inputs are short, and an input remains
 * meaningful as long as the format is the same.
 *
 * fuzz_replay() executes one input.  With libFuzzer (BX_LIBFUZZER),
 * fuzz_run() looks for inputs that reach new code.  An error with an SQLSTATE
 * that is not expected, an endless loop and unlimited memory abort the
 * process, as a crash does.
 *
 * The pages are changed in shared buffers, and restored after each input.
 * The statements in table "readers" are executed in subtransactions that are
 * rolled back.  setup.sql creates the tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/storage.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "../../../src/storage/format.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fuzz_insert);
PG_FUNCTION_INFO_V1(fuzz_vacuum);
PG_FUNCTION_INFO_V1(fuzz_replay);

/* The flags of an input. */
#define FLAG_IDENTITY	0x01	/* pages that the directory names get the
								 * identity that it demands */
#define FLAG_CACHED		0x02	/* the session has used the good index */
#define FLAG_EXPENSIVE	0x04	/* execute expensive statements, too */

#define OTHER_PAGE		128
#define COPY_PAGE		0xFFFF
#define EDIT_HEADER		4
#define MAX_EDIT		255

/* Longest time for an input, in milliseconds, and most memory, in bytes. */
#define MAX_TIME		60000
#define MAX_MEMORY		((Size) 256 * 1024 * 1024)

#define MAX_READERS		64

/*
 * SQLSTATEs of a damaged index; the last are those of a page that the server
 * rejects, of a version that is not supported, and of limits.
 */
static const int expected_errors[] = {
	ERRCODE_INDEX_CORRUPTED,
	ERRCODE_DATA_CORRUPTED,
	ERRCODE_FEATURE_NOT_SUPPORTED,
	ERRCODE_PROGRAM_LIMIT_EXCEEDED,
};

typedef struct Reader
{
	SPIPlanPtr	plan;
	char	   *statement;
	bool		is_bitmap;
	bool		is_expensive;
}			Reader;

/* The index that is fuzzed, as it was at the first call for it. */
typedef struct Target
{
	Oid			indexoid;
	char		kind[NAMEDATALEN];
	uint32		nblocks;
	char	   *good;			/* all pages */
	char	   *bad;			/* the same, changed by an input */
	uint32		npages;
	BlockNumber *pages;			/* pages of the kind that is fuzzed */
	int			nreaders;
	Reader		readers[MAX_READERS];
} Target;

static Target *target;
static TimeoutId timeout;

/* What an input has led to: how many statements had which SQLSTATE. */
typedef struct Outcome
{
	int			sqlstate;
	int			count;
}			Outcome;

#define MAX_OUTCOMES	32
static Outcome outcomes[MAX_OUTCOMES];
static int	noutcomes;
static const Reader *current_reader;

/* Names of kinds of pages; "level" is that of slices. */
static const struct
{
	const char *name;
	uint8		kind;
	uint8		level;
}			kinds[] = {
	{"meta", BX_PAGE_META, 0},
	{"map", BX_PAGE_MAP, 0},
	{"region", BX_PAGE_REGION, 0},
	{"top", BX_PAGE_TOP, 0},
	{"group", BX_PAGE_GROUP, 0},
	{"segment", BX_PAGE_SLICE, BX_LEVEL_SEGMENT},
	{"summary", BX_PAGE_SLICE, BX_LEVEL_PARTITION},
	{"filters", BX_PAGE_BLOCK, 0},
	{"scratch", BX_PAGE_SCRATCH, 0},
};

#define PAGE(pages, blkno)	((pages) + (Size) (blkno) * BLCKSZ)

/*
 * fuzz_insert(index, at, source): inserts the row at "source" into the index,
 * as if the row were at "at".  The heap is not changed.
 */
Datum
fuzz_insert(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	ItemPointer at = (ItemPointer) PG_GETARG_POINTER(1);
	ItemPointer source = (ItemPointer) PG_GETARG_POINTER(2);
	Relation	heap = table_open(IndexGetRelation(indexoid, false),
								  RowExclusiveLock);
	Relation	index = index_open(indexoid, RowExclusiveLock);
	IndexInfo  *indexInfo = BuildIndexInfo(index);
	EState	   *estate = CreateExecutorState();
	TupleTableSlot *slot = table_slot_create(heap, NULL);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (!table_tuple_fetch_row_version(heap, source, SnapshotAny, slot))
		elog(ERROR, "there is no such row");
	FormIndexDatum(indexInfo, slot, estate, values, isnull);

	index_insert(index, values, isnull, at, heap, UNIQUE_CHECK_NO, false,
				 indexInfo);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
	index_close(index, RowExclusiveLock);
	table_close(heap, RowExclusiveLock);
	PG_RETURN_VOID();
}

/* fuzz_vacuum(index): what VACUUM does to an index. */
Datum
fuzz_vacuum(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	Relation	heap = table_open(IndexGetRelation(indexoid, false),
								  ShareUpdateExclusiveLock);
	Relation	index = index_open(indexoid, RowExclusiveLock);
	IndexVacuumInfo info = {0};

	info.index = index;
#if PG_VERSION_NUM >= 160000
	info.heaprel = heap;
#endif
	info.estimated_count = true;
	info.message_level = DEBUG2;
	info.strategy = GetAccessStrategy(BAS_VACUUM);
	index_vacuum_cleanup(&info, NULL);
	index_close(index, RowExclusiveLock);
	table_close(heap, ShareUpdateExclusiveLock);
	PG_RETURN_VOID();
}

/* Reports something that must not happen, and ends the process. */
static void
give_up(const char *problem, const char *detail)
{
	fprintf(stderr, "FINDING: %s: %s: %s\n", problem,
			current_reader ? current_reader->statement : "", detail);
	abort();
}

/* Called by a signal handler. */
static void
give_up_waiting(void)
{
	static const char message[] = "FINDING: this takes too long\n";

	if (write(STDERR_FILENO, message, sizeof(message) - 1) >= 0)
		abort();
}

static bool
is_expected(int sqlstate)
{
	for (int i = 0; i < lengthof(expected_errors); i++)
	{
		if (sqlstate == expected_errors[i])
			return true;
	}
	return false;
}

static void
count_outcome(int sqlstate)
{
	int			i = 0;

	while (i < noutcomes && outcomes[i].sqlstate != sqlstate)
		i++;
	if (i == noutcomes)
	{
		if (noutcomes == MAX_OUTCOMES)
			return;
		outcomes[noutcomes].count = 0;
		outcomes[noutcomes++].sqlstate = sqlstate;
	}
	outcomes[i].count++;
}

/* Executes a statement in a subtransaction, which is rolled back. */
static void
execute_reader(const Reader * reader, bool must_succeed)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;

	current_reader = reader;
	SetConfigOption("enable_bitmapscan", reader->is_bitmap ? "on" : "off",
					PGC_USERSET, PGC_S_SESSION);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcxt);
	PG_TRY();
	{
		SPI_execute_plan(reader->plan, NULL, NULL, false, 0);
		RollbackAndReleaseCurrentSubTransaction();
		count_outcome(0);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (must_succeed || !is_expected(error->sqlerrcode))
			give_up(unpack_sql_state(error->sqlerrcode), error->message);
		count_outcome(error->sqlerrcode);
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcxt);
	CurrentResourceOwner = oldowner;
	current_reader = NULL;
}

/* Makes the file as long as it was, and writes these pages. */
static void
write_pages(const char *pages)
{
	Relation	index = index_open(target->indexoid, NoLock);
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	if (nblocks > target->nblocks)
		RelationTruncate(index, target->nblocks);
	for (; nblocks < target->nblocks; nblocks++)
		ReleaseBuffer(ReadBuffer(index, P_NEW));
	for (BlockNumber i = 0; i < target->nblocks; i++)
	{
		Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, i,
												RBM_ZERO_ON_ERROR, NULL);
		Page		page = BufferGetPage(buffer);

		/* the LSN and the checksum belong to the server */
		Size		offset = offsetof(PageHeaderData, pd_flags);

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (memcmp((char *) page + offset, PAGE(pages, i) + offset,
				   BLCKSZ - offset) != 0)
		{
			memcpy((char *) page + offset, PAGE(pages, i) + offset,
				   BLCKSZ - offset);
			MarkBufferDirty(buffer);
		}
		UnlockReleaseBuffer(buffer);
	}
	index_close(index, NoLock);
}

/* Forgets what the session knows about the index. */
static void
forget_index(void)
{
	Relation	index = index_open(target->indexoid, NoLock);

	if (index->rd_amcache)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;
	index_close(index, NoLock);
}

/* Returns a page of bad pages as an edit names it. */
static BlockNumber
page_of_edit(uint8 page)
{
	return page < OTHER_PAGE ? target->pages[page % target->npages] :
		(page - OTHER_PAGE) % target->nblocks;
}

/* Changes the bad pages as an input says. */
static void
apply_edits(const uint8 *data, Size size)
{
	while (size >= EDIT_HEADER)
	{
		BlockNumber blkno = page_of_edit(data[0]);
		char	   *page = PAGE(target->bad, blkno);
		Size		offset = data[1] | data[2] << 8;
		Size		length = Min(data[3], size - EDIT_HEADER);

		if (offset == COPY_PAGE && length > 0)
			memcpy(page, PAGE(target->good, data[4] % target->nblocks), BLCKSZ);
		else
		{
			offset %= BLCKSZ;
			memcpy(page + offset, data + EDIT_HEADER,
				   Min(length, BLCKSZ - offset));
		}
		data += EDIT_HEADER + length;
		size -= EDIT_HEADER + length;
	}
}

/*
 * Returns the special area of a bad page of filters, or NULL if the block is
 * beyond the end of the file, or belongs to the directory.
 */
static BxPageOpaqueData *
filter_page(uint64 blkno)
{
	uint8		kind;

	if (blkno >= target->nblocks)
		return NULL;
	kind = BxPageGetOpaque(PAGE(target->good, blkno))->kind;
	if (kind != BX_PAGE_SLICE && kind != BX_PAGE_GROUP && kind != 0)
		return NULL;
	return BxPageGetOpaque(PAGE(target->bad, blkno));
}

static void
identify_slices(const BxNodeDesc *desc, uint8 level, uint32 number)
{
	for (uint32 i = 0; i < Min(desc->nslices, target->nblocks); i++)
	{
		BxPageOpaqueData *opaque = filter_page((uint64) desc->start + i);

		if (opaque == NULL)
			continue;
		opaque->kind = BX_PAGE_SLICE;
		opaque->number = number;
		opaque->slice.slice = i;
		opaque->slice.nslices = desc->nslices;
		opaque->slice.generation = desc->generation;
		opaque->slice.nprobes = desc->nprobes;
		opaque->slice.level = level;
		opaque->slice.reserved = 0;
	}
}

static void
identify_group(const BxGroupDesc *desc, uint32 region)
{
	for (uint32 i = 0; i < Min(desc->nblocks, target->nblocks); i++)
	{
		BxPageOpaqueData *opaque = filter_page((uint64) desc->start + i);

		if (opaque == NULL)
			continue;
		opaque->kind = BX_PAGE_GROUP;
		opaque->number = region;
		opaque->group.page = i;
		opaque->group.nblocks = desc->nblocks;
		opaque->group.generation = desc->generation;
		opaque->group.nprobes = desc->nprobes;
		opaque->group.width = desc->width;
		opaque->group.first = desc->first;
		opaque->group.reserved = 0;
	}
}

/* FLAG_IDENTITY: what the bad directory names has the proper identity. */
static void
identify_pages(void)
{
	const BxMetaPageData *meta = BxPageGetMeta(PAGE(target->good, 0));
	uint32		nsegments = meta->version & 0x10000 ? 1 : BX_FANOUT;

	for (BlockNumber i = 0; i < target->nblocks; i++)
	{
		const BxPageOpaqueData *good = BxPageGetOpaque(PAGE(target->good, i));
		const BxPageOpaqueData *bad = BxPageGetOpaque(PAGE(target->bad, i));

		if (good->kind == BX_PAGE_REGION)
		{
			const BxRegionPageData *region =
			BxPageGetRegion(PAGE(target->bad, i));

			for (int g = 0; g < Min(region->ngroups, BX_MAX_GROUPS); g++)
				identify_group(&region->group[g], bad->number);
		}
		else if (good->kind == BX_PAGE_TOP)
		{
			const BxTopPageData *top = BxPageGetTop(PAGE(target->bad, i));
			uint32		shadow = top->shadow.slot;

			identify_slices(&top->node[BX_SLOT_SUMMARY], BX_LEVEL_PARTITION,
							bad->number);
			for (uint32 c = 0; c < nsegments; c++)
				identify_slices(&top->node[BX_SLOT_SEGMENT(c)],
								BX_LEVEL_SEGMENT, bad->number * nsegments + c);
			if (shadow == BX_SLOT_SUMMARY)
				identify_slices(&top->shadow.desc, BX_LEVEL_PARTITION,
								bad->number);
			else
				identify_slices(&top->shadow.desc, BX_LEVEL_SEGMENT,
								bad->number * nsegments + shadow -
								BX_SLOT_SEGMENT(0));
			identify_group(&top->group_shadow, bad->number / BX_FANOUT);
		}
	}
}

/* Executes an input.  "all" is true for the expensive statements, too. */
static void
execute_input(const uint8 *data, Size size, bool all)
{
	static uint32 ninputs = 0;
	uint8		flags = size > 0 ? data[0] : 0;

	noutcomes = 0;
	forget_index();
	if (flags & FLAG_CACHED)
		execute_reader(&target->readers[0], true);
	noutcomes = 0;

	memcpy(target->bad, target->good, (Size) target->nblocks * BLCKSZ);
	if (size > 0)
		apply_edits(data + 1, size - 1);
	if (flags & FLAG_IDENTITY)
		identify_pages();
	write_pages(target->bad);

	enable_timeout_after(timeout, MAX_TIME);
	for (int i = 0; i < target->nreaders; i++)
	{
		if (all || flags & FLAG_EXPENSIVE || !target->readers[i].is_expensive)
			execute_reader(&target->readers[i], false);
	}
	disable_timeout(timeout, false);

	write_pages(target->good);
	forget_index();
	if (++ninputs % 256 == 0 &&
		MemoryContextMemAllocated(TopMemoryContext, true) > MAX_MEMORY)
		give_up("memory leak", "");
}

/* Prepares the statements of table "readers". */
static void
prepare_readers(void)
{
	int			n;

	SPI_execute("SELECT statement, scan, expensive FROM readers ORDER BY i",
				true, 0);
	n = Min(SPI_processed, MAX_READERS);
	for (int i = 0; i < n; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Reader	   *reader = &target->readers[i];
		bool		isnull;

		reader->statement =
			MemoryContextStrdup(TopMemoryContext, SPI_getvalue(row, desc, 1));
		reader->is_bitmap = strcmp(SPI_getvalue(row, desc, 2), "bitmap") == 0;
		reader->is_expensive =
			DatumGetBool(SPI_getbinval(row, desc, 3, &isnull));
	}
	for (int i = 0; i < n; i++)
	{
		Reader	   *reader = &target->readers[i];

		reader->plan = SPI_prepare(reader->statement, 0, NULL);
		if (reader->plan == NULL)
			elog(ERROR, "could not prepare \"%s\"", reader->statement);
		SPI_keepplan(reader->plan);
	}
	target->nreaders = n;
}

/* Remembers the pages of the index, and finds those of the kind. */
static void
read_pages(void)
{
	Relation	index = index_open(target->indexoid, NoLock);
	int			k = 0;

	while (k < lengthof(kinds) && strcmp(kinds[k].name, target->kind) != 0)
		k++;
	if (k == lengthof(kinds))
		elog(ERROR, "there is no kind \"%s\"", target->kind);
	target->nblocks = RelationGetNumberOfBlocks(index);
	target->good = MemoryContextAlloc(TopMemoryContext,
									  (Size) target->nblocks * BLCKSZ);
	target->bad = MemoryContextAlloc(TopMemoryContext,
									 (Size) target->nblocks * BLCKSZ);
	target->pages = MemoryContextAlloc(TopMemoryContext,
									   sizeof(BlockNumber) * target->nblocks);
	for (BlockNumber i = 0; i < target->nblocks; i++)
	{
		Buffer		buffer = ReadBuffer(index, i);
		const BxPageOpaqueData *opaque;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		memcpy(PAGE(target->good, i), BufferGetPage(buffer), BLCKSZ);
		UnlockReleaseBuffer(buffer);
		opaque = BxPageGetOpaque(PAGE(target->good, i));
		if (opaque->kind == kinds[k].kind &&
			(opaque->kind != BX_PAGE_SLICE ||
			 opaque->slice.level == kinds[k].level))
			target->pages[target->npages++] = i;
	}
	if (target->npages == 0)
		elog(ERROR, "the index has no page of kind \"%s\"", target->kind);
	index_close(index, NoLock);
}

/* Sets target, unless it is this index and this kind already. */
static void
set_target(Oid indexoid, const char *kind)
{
	LockRelationOid(IndexGetRelation(indexoid, false), RowExclusiveLock);
	LockRelationOid(indexoid, RowExclusiveLock);
	if (target && target->indexoid == indexoid &&
		strcmp(target->kind, kind) == 0)
		return;
	target = MemoryContextAllocZero(TopMemoryContext, sizeof(Target));
	target->indexoid = indexoid;
	strlcpy(target->kind, kind, NAMEDATALEN);
	read_pages();
	SetConfigOption("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION);
	SetConfigOption("plan_cache_mode", "force_generic_plan", PGC_USERSET,
					PGC_S_SESSION);
	prepare_readers();
	if (timeout == 0)
		timeout = RegisterTimeout(USER_TIMEOUT, give_up_waiting);
}

/*
 * fuzz_replay(index, kind, input): executes an input, and returns how many
 * statements had which SQLSTATE.
 */
Datum
fuzz_replay(PG_FUNCTION_ARGS)
{
	bytea	   *input = PG_GETARG_BYTEA_PP(2);
	StringInfoData result;

	SPI_connect();
	set_target(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)));
	execute_input((const uint8 *) VARDATA_ANY(input), VARSIZE_ANY_EXHDR(input),
				  true);
	SPI_finish();

	initStringInfo(&result);
	for (int i = 0; i < noutcomes; i++)
		appendStringInfo(&result, "%s%d x %s", i > 0 ? ", " : "",
						 outcomes[i].count,
						 unpack_sql_state(outcomes[i].sqlstate));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(result.data, result.len));
}

#ifdef BX_LIBFUZZER

PG_FUNCTION_INFO_V1(fuzz_run);

extern int	LLVMFuzzerRunDriver(int *argc, char ***argv,
								int (*callback) (const uint8 *data, size_t size));
extern size_t LLVMFuzzerMutate(uint8 *data, size_t size, size_t max_size);
extern size_t LLVMFuzzerCustomMutator(uint8 *data, size_t size,
									  size_t max_size, unsigned int seed);

static uint32 random_state;

static uint32
random_below(uint32 n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (uint32) (((uint64) random_state * n) >> 32);
}

/*
 * Returns an offset on a page where something other than bits of filters may
 * be: in the page header, in the special area, or in the words that are not
 * zero, and behind these.
 */
static uint32
random_offset(const char *page)
{
	uint32		offset;

	switch (random_below(8))
	{
		case 0:
			return offsetof(PageHeaderData, pd_flags) +
				random_below(SizeOfPageHeaderData -
							 offsetof(PageHeaderData, pd_flags));
		case 1:
		case 2:
			return BX_OPAQUE_OFFSET + random_below(sizeof(BxPageOpaqueData));
		case 3:
			return random_below(BLCKSZ);
		default:
			offset = BX_CONTENT_OFFSET + random_below(BX_CONTENT_SIZE);
			for (int i = 0; i < BX_CONTENT_SIZE && page[offset] == 0; i++)
				offset = offset + 1 < BX_OPAQUE_OFFSET ? offset + 1 :
					BX_CONTENT_OFFSET;
			return offset + random_below(16);
	}
}

/* Returns a value for a field that has the given value. */
static uint64
random_value(uint64 value)
{
	switch (random_below(10))
	{
		case 0:
			return 0;
		case 1:
			return ~UINT64CONST(0) - random_below(4);
		case 2:
			return value + 1 + random_below(2);
		case 3:
			return value - 1 - random_below(2);
		case 4:
			return value ^ UINT64CONST(1) << random_below(64);
		case 5:
			return UINT64CONST(1) << random_below(64);
		case 6:
			return (UINT64CONST(1) << random_below(64)) - 1;
		case 7:
			return random_below(target->nblocks + 2);
		case 8:
			return random_below(256);
		default:
			return (uint64) random_below(PG_UINT32_MAX) << 32 |
				random_below(PG_UINT32_MAX);
	}
}

/* Writes a random edit of at most 13 bytes, and returns its size. */
static Size
random_edit(uint8 *edit)
{
	uint8		which = random_below(random_below(4) == 0 ? 256 : OTHER_PAGE);
	const char *page = PAGE(target->good, page_of_edit(which));
	uint32		length = 1 << random_below(4);
	uint32		offset = random_offset(page);
	uint64		value = 0;

	if (random_below(32) == 0)
	{
		offset = COPY_PAGE;
		length = 1;
		value = random_below(target->nblocks);
	}
	else
	{
		offset = Min(offset, BLCKSZ - length) & ~(length - 1);
		memcpy(&value, random_below(4) > 0 ? page + offset :
			   PAGE(target->good, random_below(target->nblocks)) + offset,
			   length);
		value = random_below(4) > 0 ? random_value(value) : value;
	}
	edit[0] = which;
	edit[1] = offset & 0xFF;
	edit[2] = offset >> 8;
	edit[3] = length;
	memcpy(edit + EDIT_HEADER, &value, length);
	return EDIT_HEADER + length;
}

/*
 * Called by libFuzzer: changes an input.  Half of the time it adds an edit of
 * a field, or replaces the last edits by it.
 */
size_t
LLVMFuzzerCustomMutator(uint8 *data, size_t size, size_t max_size,
						unsigned int seed)
{
	uint8		edit[EDIT_HEADER + 8];
	Size		length;
	Size		keep = 1;
	Size		next = 1;

	random_state = seed;
	if (size == 0)
		data[size++] = 0;
	if (random_below(16) == 0)
		data[0] ^= 1 << random_below(3);
	if (random_below(2) == 0)
		return LLVMFuzzerMutate(data, size, max_size);

	/* keep some of the edits */
	while (next <= size && random_below(8) > 0)
	{
		keep = next;
		next = keep + EDIT_HEADER + (keep + 3 < size ? data[keep + 3] : 0);
	}
	length = random_edit(edit);
	if (keep + length > max_size)
		keep = 1;
	if (keep + length > max_size)
		return size;
	memcpy(data + keep, edit, length);
	return keep + length;
}

static int
test_one_input(const uint8 *data, size_t size)
{
	static MemoryContext cxt = NULL;
	MemoryContext oldcxt;

	if (cxt == NULL)
		cxt = AllocSetContextCreate(TopMemoryContext, "input",
									ALLOCSET_DEFAULT_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	execute_input(data, size, false);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(cxt);
	return 0;
}

/*
 * fuzz_run(index, kind, arguments): runs libFuzzer with these arguments, and
 * does not return: libFuzzer ends the process.
 */
Datum
fuzz_run(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(2);
	Datum	   *values;
	int			n;
	int			argc = 0;
	char	  **argv;

	SPI_connect();
	set_target(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, NULL,
					  &n);
	argv = palloc0(sizeof(char *) * (n + 2));
	argv[argc++] = "fuzz";
	for (int i = 0; i < n; i++)
		argv[argc++] = TextDatumGetCString(values[i]);

	/* the symbolizer, which libFuzzer calls, is not a server */
	unsetenv("LD_PRELOAD");
	LLVMFuzzerRunDriver(&argc, &argv, test_one_input);
	PG_RETURN_VOID();
}

#endif							/* BX_LIBFUZZER */
