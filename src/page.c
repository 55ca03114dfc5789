/*-------------------------------------------------------------------------
 *
 * page.c
 *	  Pages: identity, allocation, the metapage, and the WAL record that sets
 *	  a key's bits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/lmgr.h"

#include "bloomidx.h"

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

/* Makes a slice page without bits. */
void
bx_page_init_slice(Page page, int level, uint32 node, uint32 slice,
				   const BxNodeDesc *desc)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	bx_page_init(page, BX_PAGE_SLICE);
	opaque->level = level;
	opaque->node = node;
	opaque->slice = slice;
	opaque->nslices = desc->nslices;
	opaque->nprobes = desc->nprobes;
	opaque->generation = desc->generation;
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

/*
 * Whether the page is this slice of the node that desc describes.  That makes
 * its rows safe to read; who writes also checks the page's header, by
 * bx_page_check.
 */
bool
bx_page_is_slice(Page page, int level, uint32 node, uint32 slice,
				 const BxNodeDesc *desc)
{
	BxPageOpaqueData *opaque = BxPageGetOpaque(page);

	return opaque->page_id == BX_PAGE_ID &&
		opaque->kind == BX_PAGE_SLICE &&
		opaque->level == level &&
		opaque->node == node &&
		opaque->slice == slice &&
		opaque->nslices == desc->nslices &&
		opaque->nprobes == desc->nprobes &&
		opaque->generation == desc->generation;
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

/*
 * The bytes that a change of one page leaves in WAL: fragments of an offset, a
 * length and that many bytes, which is what a generic record consists of.
 */
#define FRAGMENT_HEADER		(2 * sizeof(uint16))
#define MAX_FRAGMENTS_SIZE	((FRAGMENT_HEADER + 1) * BX_MAX_KEY_BITS + \
							 FRAGMENT_HEADER + sizeof(LocationIndex))

typedef struct Fragments
{
	int			size;
	char		data[MAX_FRAGMENTS_SIZE];
} Fragments;

static void
append_fragment(Fragments *fragments, Page page, const void *start, uint16 len)
{
	uint16		offset = (const char *) start - (const char *) page;
	char	   *to = fragments->data + fragments->size;

	Assert(fragments->size + FRAGMENT_HEADER + len <= MAX_FRAGMENTS_SIZE);
	memcpy(to, &offset, sizeof(offset));
	memcpy(to + sizeof(offset), &len, sizeof(len));
	memcpy(to + FRAGMENT_HEADER, start, len);
	fragments->size += FRAGMENT_HEADER + len;
}

/* Sets bits in a page and notes what changed. */
static void
set_page_bits(const BxPageBits *bits, Fragments *fragments)
{
	Page		page = BufferGetPage(bits->buffer);
	PageHeader	header = (PageHeader) page;

	fragments->size = 0;

	/* No bit may lie in the hole: replay and page images leave it zero. */
	if (header->pd_lower != bits->lower)
	{
		header->pd_lower = bits->lower;
		append_fragment(fragments, page, &header->pd_lower,
						sizeof(header->pd_lower));
	}
	for (int i = 0; i < bits->n; i++)
	{
		uint8	   *byte = (uint8 *) page + bits->at[i].offset;

		if (!(*byte & bits->at[i].bit))
		{
			*byte |= bits->at[i].bit;
			append_fragment(fragments, page, byte, 1);
		}
	}
}

/*
 * Sets a key's bits in one or two pages, which the caller has locked
 * exclusively, and logs them.
 *
 * This writes the same generic record that GenericXLogFinish would, but knows
 * what has changed: it need not copy and compare whole pages, which is most of
 * the cost of an insert.  Replay applies the blocks in this order, so the page
 * of the upper level must come first.
 */
void
bx_page_set_bits(Relation index, const BxPageBits *pages, int npages)
{
	Fragments	fragments[BX_MAX_BITS_PAGES];
	bool		wal = RelationNeedsWAL(index);

	Assert(npages > 0 && npages <= BX_MAX_BITS_PAGES);

	if (wal)
		XLogBeginInsert();
	START_CRIT_SECTION();
	for (int i = 0; i < npages; i++)
	{
		set_page_bits(&pages[i], &fragments[i]);
		MarkBufferDirty(pages[i].buffer);
		if (wal)
		{
			XLogRegisterBuffer(i, pages[i].buffer, REGBUF_STANDARD);
			XLogRegisterBufData(i, fragments[i].data, fragments[i].size);
		}
	}
	if (wal)
	{
		XLogRecPtr	lsn = XLogInsert(RM_GENERIC_ID, 0);

		for (int i = 0; i < npages; i++)
			PageSetLSN(BufferGetPage(pages[i].buffer), lsn);
	}
	END_CRIT_SECTION();
}

/* Makes the metapage of an index without keys. */
void
bx_meta_init(Page page, const BxOptions *options, uint8 lg_base)
{
	BxMetaPageData *meta;

	bx_page_init(page, BX_PAGE_META);
	meta = BxPageGetMeta(page);
	meta->magic = BX_MAGIC;
	meta->version = BX_FORMAT_VERSION;
	meta->hash_version = BX_HASH_VERSION;
	meta->layout = options->layout;
	meta->lg_base = lg_base;
	meta->false_positive_rate = options->false_positive_rate;
	meta->next_generation = 1;
}

static void
check_version(Relation index, const char *what, uint32 found, uint32 known)
{
	if (found > known)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has %s version %u, but this version of bloomidx knows only up to %u",
						RelationGetRelationName(index), what, found, known),
				 errhint("Install the newer version of bloomidx, or REINDEX the index.")));
	if (found != known)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "impossible version");
}

/* Whether there is anything that an index without keys cannot have. */
static bool
has_pages(const BxMetaPageData *meta)
{
	bool		result = meta->stats.segments > 0 || meta->nfree > 0 ||
	meta->block_pages > 0;

	for (uint32 i = 0; i < BX_MAX_MAPS; i++)
		result = result || meta->map[i] != 0;
	return result;
}

/*
 * Whether the numbers of pages and ranges may be those of the layout.  There
 * are never fewer pages than have been counted for the planner.
 */
static bool
is_count_possible(const BxMetaPageData *meta)
{
	if (meta->layout != BX_LAYOUT_BLOCK)
		return meta->block_pages == 0 && meta->block_ranges == 0;
	return meta->block_ranges <= BX_MAX_BLOCK_RANGES &&
		(meta->block_ranges > 0) == (meta->block_pages > 0) &&
		meta->stats.segments <= meta->block_pages;
}

static void
check_meta(Relation index, const BxMetaPageData *meta)
{
	if (meta->magic != BX_MAGIC)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "wrong magic number");
	check_version(index, "format", meta->version, BX_FORMAT_VERSION);
	check_version(index, "hash", meta->hash_version, BX_HASH_VERSION);
	if ((meta->lg_base > BX_MAX_LG_BASE && meta->lg_base != BX_LG_BASE_UNSET) ||
		!(meta->false_positive_rate >= BX_MIN_RATE &&
		  meta->false_positive_rate <= BX_MAX_RATE) ||
		meta->nfree > BX_MAX_FREE_EXTENTS ||
		!(meta->stats.range_keys >= 0 &&
		  meta->stats.range_keys <= BX_MAX_RANGE_KEYS) ||
		!is_count_possible(meta) ||
		(meta->lg_base == BX_LG_BASE_UNSET && has_pages(meta)))
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "impossible metapage");
}

/* Copies the metapage's content, checked. */
void
bx_meta_read(Relation index, BxMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(index, BX_METAPAGE_BLKNO);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_page_check(index, buffer, BX_PAGE_META);
	memcpy(meta, BxPageGetMeta(BufferGetPage(buffer)), sizeof(*meta));
	UnlockReleaseBuffer(buffer);
	check_meta(index, meta);
}

/*
 * Replaces the metapage's content.  The caller has held LockPage on the
 * metapage since it read what it changed.
 */
void
bx_meta_write(Relation index, const BxMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(index, BX_METAPAGE_BLKNO);
	GenericXLogState *state;
	Page		page;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_check(index, buffer, BX_PAGE_META);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	memcpy(BxPageGetMeta(page), meta, sizeof(*meta));
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}
