/*-------------------------------------------------------------------------
 *
 * page.c
 *	  Pages: identity checks, allocation, writing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memdebug.h"

#include "storage.h"

/* Raises the error for a damaged page. */
void
bx_page_corrupted(Relation index, BlockNumber blkno, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is damaged at block %u: %s",
					RelationGetRelationName(index), blkno, problem),
			 errhint("Please REINDEX it.")));
}

/*
 * The shared buffers in which this backend has recently found pages of
 * indexes and of their tables.  Any entry may be out of date.  The entries of
 * consecutive pages are consecutive, so those of an index of up to 512 MB do
 * not collide.  Tables are larger than indexes, so the pages of tables have
 * entries of their own.
 */
#define RECENT_BUFFERS		65536

typedef struct RecentBuffer
{
	uint32		tag;			/* identifies the relation and the page */
	Buffer		buffer;			/* InvalidBuffer if the entry is unused */
} RecentBuffer;

static RecentBuffer recent_index_buffers[RECENT_BUFFERS];
static RecentBuffer recent_table_buffers[RECENT_BUFFERS];

/* Returns the entry of a page, and its identification in *tag. */
static RecentBuffer *
find_recent(Relation rel, BlockNumber blkno, uint32 *tag)
{
	RecentBuffer *recent = rel->rd_rel->relkind == RELKIND_INDEX ?
	recent_index_buffers : recent_table_buffers;

	*tag = bx_rel_number(rel) * 0x9E3779B1 + blkno;
	return &recent[*tag % RECENT_BUFFERS];
}

/*
 * Pins a page of an index or of its table, like ReadBuffer().  First looks for
 * the page in the buffer in which this backend last found the page.  This is
 * faster than a lookup in the server's buffer table, which waits for main
 * memory twice, and locks a part of the table.
 *
 * Before PostgreSQL 19, ReadRecentBuffer() takes a spinlock on the buffer.  So
 * this function is for pages of the table, and for slice and group pages, of
 * which there are many; for region and top-level pages, which all backends
 * read, ReadBuffer() is better: their entries in the buffer table are in the
 * processor's cache.
 *
 * Buffers of temporary relations are not remembered.  A temporary relation and
 * a permanent one may have files with the same number, and ReadRecentBuffer()
 * cannot distinguish their pages.  Lookups in the table of local buffers are
 * fast.
 */
Buffer
bx_page_pin(Relation rel, BlockNumber blkno)
{
	uint32		tag;
	RecentBuffer *recent;

	if (RelationUsesLocalBuffers(rel))
		return ReadBuffer(rel, blkno);
	recent = find_recent(rel, blkno, &tag);
	if (recent->tag == tag && BufferIsValid(recent->buffer) &&
		bx_read_recent_buffer(rel, blkno, recent->buffer))
		return recent->buffer;
	recent->buffer = InvalidBuffer; /* in case of an error */
	recent->buffer = ReadBuffer(rel, blkno);
	recent->tag = tag;
	return recent->buffer;
}

/* Prefetches a page of an index, unless it seems to be in a buffer. */
void
bx_page_prefetch(Relation index, BlockNumber blkno)
{
	uint32		tag;
	RecentBuffer *recent = find_recent(index, blkno, &tag);

	if (RelationUsesLocalBuffers(index) ||
		recent->tag != tag || !BufferIsValid(recent->buffer) ||
		!bx_buffer_has_block(recent->buffer, blkno))
		PrefetchBuffer(index, MAIN_FORKNUM, blkno);
}

/* Returns the size in bytes of the content of an empty page of this kind. */
static Size
content_size(uint8 kind)
{
	switch (kind)
	{
		case BX_PAGE_META:
			return sizeof(BxMetaPageData);
		case BX_PAGE_MAP:
			return sizeof(BlockNumber) * BX_REGIONS_PER_MAP;
		case BX_PAGE_REGION:
			return sizeof(BxRegionPageData);
		case BX_PAGE_TOP:
			return sizeof(BxTopPageData);
		case BX_PAGE_BLOCK:
		case BX_PAGE_SCRATCH:
			return BX_CONTENT_SIZE;
		default:
			return 0;
	}
}

/*
 * Initializes an empty page of a kind; the caller sets the remaining fields
 * of the special area.
 */
void
bx_page_init(Page page, uint8 kind)
{
	BxPageOpaqueData *opaque;

	PageInit(page, BLCKSZ, sizeof(BxPageOpaqueData));
	((PageHeader) page)->pd_lower = BX_CONTENT_OFFSET + content_size(kind);
	opaque = BxPageGetOpaque(page);
	opaque->kind = kind;
	opaque->page_id = BX_PAGE_ID;
}

/*
 * Returns a description of what is wrong with a page that should be of this
 * kind, or NULL.  After NULL, all accesses at format.h offsets stay within the
 * page.
 */
const char *
bx_page_problem(Page page, uint8 kind)
{
	PageHeader	header = (PageHeader) page;
	Size		lower = BX_CONTENT_OFFSET + content_size(kind);

	if (PageIsNew(page))
		return "the page is all zeroes";
	if (header->pd_special != BX_OPAQUE_OFFSET ||
		BxPageGetOpaque(page)->page_id != BX_PAGE_ID)
		return "not a page of bloomidx";
	if (BxPageGetOpaque(page)->kind != kind)
		return "a page of another kind";
	if (header->pd_upper != BX_OPAQUE_OFFSET ||
		(header->pd_lower != lower &&
		 !((kind == BX_PAGE_SLICE || kind == BX_PAGE_GROUP) &&
		   header->pd_lower == BX_SLICE_LOWER_FULL)))
		return "impossible page header";
	return NULL;
}

/*
 * Raises an error unless a page is of the expected kind.  The caller holds a
 * lock, in any mode, on the buffer.
 */
void
bx_page_check(Relation index, Buffer buffer, uint8 kind)
{
	const char *problem = bx_page_problem(BufferGetPage(buffer), kind);

	if (problem)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer), problem);
}

/*
 * Appends npages consecutive pages, and returns the first.  The caller holds
 * the relation extension lock.
 */
static BlockNumber
extend_locked(Relation index, uint32 npages)
{
	BlockNumber start = InvalidBlockNumber;
	uint32		done = 0;

	while (done < npages)
	{
		uint32		n;
		BlockNumber blkno;

		CHECK_FOR_INTERRUPTS();
		blkno = bx_extend(index, MAIN_FORKNUM, npages - done, &n);
		if (done == 0)
			start = blkno;
		if (blkno != start + done)
			elog(ERROR, "extending index \"%s\" gave block %u instead of %u",
				 RelationGetRelationName(index), blkno, start + done);
		done += n;
	}
	return start;
}

/*
 * Appends npages consecutive pages, all zero, and returns the first.  Call it
 * with no content lock held.  The relation extension lock is always acquired:
 * in the leader of a parallel build RELATION_IS_LOCAL is true although
 * workers extend the file as well.
 */
BlockNumber
bx_page_extend(Relation index, uint32 npages)
{
	BlockNumber start;

	LockRelationForExtension(index, ExclusiveLock);
	start = extend_locked(index, npages);
	UnlockRelationForExtension(index, ExclusiveLock);
	return start;
}

/*
 * Extends the file, if necessary, so that it contains block blkno.  Call it
 * with no content lock held.
 */
void
bx_page_extend_to(Relation index, BlockNumber blkno)
{
	BlockNumber nblocks;

	if (blkno < RelationGetNumberOfBlocks(index))
		return;
	LockRelationForExtension(index, ExclusiveLock);
	nblocks = RelationGetNumberOfBlocks(index);
	if (blkno >= nblocks)
		extend_locked(index, blkno + 1 - nblocks);
	UnlockRelationForExtension(index, ExclusiveLock);
}

/*
 * Marks a changed page dirty, and logs an image of the page if wal is true.
 * Call it in the critical section that changed the page.
 *
 * An uninitialized byte in a page would never be read, but it would disclose
 * what the memory contained before.  valgrind reports it here.
 */
void
bx_page_changed(Relation index, Buffer buffer, bool wal)
{
	VALGRIND_CHECK_MEM_IS_DEFINED(BufferGetPage(buffer), BLCKSZ);
	MarkBufferDirty(buffer);
	if (wal && RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
}

/*
 * Overwrites a whole page that no other backend uses yet. wal is false if the
 * caller logs the page later.
 */
void
bx_page_write_new(Relation index, BlockNumber blkno, const char *image,
				  bool wal)
{
	Buffer		buffer;

	buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno,
								RBM_ZERO_AND_LOCK, NULL);
	START_CRIT_SECTION();
	memcpy(BufferGetPage(buffer), image, BLCKSZ);
	bx_page_changed(index, buffer, wal);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}
