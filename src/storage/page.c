/*-------------------------------------------------------------------------
 *
 * page.c
 *	  Pages: identity, allocation, writing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/lmgr.h"

#include "storage.h"

/* Raises the error for a page that cannot be what the index needs there. */
void
bx_page_corrupted(Relation index, BlockNumber blkno, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is damaged at block %u: %s",
					RelationGetRelationName(index), blkno, problem),
			 errhint("Please REINDEX it.")));
}

/* Bytes of content that a page of this kind has from the start. */
static Size
content_size(uint8 kind)
{
	switch (kind)
	{
		case BX_PAGE_META:
			return sizeof(BxMetaPageData);
		case BX_PAGE_MAP:
			return sizeof(BxRegionData) * BX_REGIONS_PER_MAP;
		case BX_PAGE_TOP:
			return sizeof(BxTopPageData);
		case BX_PAGE_BLOCK:
		case BX_PAGE_SCRATCH:
			return BX_CONTENT_SIZE;
		default:
			return 0;
	}
}

/* Makes an empty page of a kind; the rest of its identity is the caller's. */
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
 * Says what is wrong with a page that should be one of ours, or returns NULL.
 * What it has seen makes every access at the format's offsets safe.
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
		 !(kind == BX_PAGE_SLICE && header->pd_lower == BX_SLICE_LOWER_FULL)))
		return "impossible page header";
	return NULL;
}

/* Refuses a page that is not of the expected kind.  Any lock will do. */
void
bx_page_check(Relation index, Buffer buffer, uint8 kind)
{
	const char *problem = bx_page_problem(BufferGetPage(buffer), kind);

	if (problem)
		bx_page_corrupted(index, BufferGetBlockNumber(buffer), problem);
}

/* Appends pages, of which the first is returned; the caller has the lock. */
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
 * Appends consecutive pages, all zero, and returns the first.  Call it with no
 * content lock held.  The extension lock is always taken: in the leader of a
 * parallel build RELATION_IS_LOCAL is true while workers extend as well.
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

/* The same, as far as a block that must be there. */
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
 * Writes a whole page that nobody refers to yet.  wal is false if the caller
 * logs it later.
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
	MarkBufferDirty(buffer);
	if (wal && RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}
