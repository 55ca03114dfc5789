/*-------------------------------------------------------------------------
 *
 * meta.c
 *	  The metapage: the frozen parameters of an index, statistics, and the
 *	  roots of the layout's pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"

#include "storage.h"

/* Initializes the metapage of an index without keys. */
void
bx_meta_init(Page page, uint8 layout, uint8 keys, double rate, uint8 lg_base)
{
	BxMetaPageData *meta;

	bx_page_init(page, BX_PAGE_META);
	BxPageGetOpaque(page)->number = layout;
	meta = BxPageGetMeta(page);
	meta->magic = BX_MAGIC;
	meta->version = BX_FORMAT_VERSION;
	meta->hash_version = BX_HASH_VERSION;
	meta->layout = layout;
	meta->lg_base = lg_base;
	meta->keys = keys;
	meta->false_positive_rate = rate;
	if (layout == BX_LAYOUT_PARTITIONED)
		meta->partitioned.next_generation = 1;
}

static void
check_version(Relation index, const char *what, uint32 found, uint32 known)
{
	if (found == known)
		return;
	if (found == 0)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "impossible version");
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("index \"%s\" has %s version %u, but this version of bloomidx supports only version %u",
					RelationGetRelationName(index), what, found, known),
			 found > known ?
			 errhint("Install a newer version of bloomidx, or REINDEX the index.") :
			 errhint("REINDEX the index.")));
}

/*
 * Returns whether the layout's part of the metapage is possible.  An index
 * without geometry has no other pages.
 */
static bool
is_layout_part_possible(const BxMetaPageData *meta)
{
	bool		has_pages = false;

	switch (meta->layout)
	{
		case BX_LAYOUT_PARTITIONED:
			if (meta->partitioned.nfree > BX_MAX_FREE_EXTENTS)
				return false;
			has_pages = meta->partitioned.nfree > 0;
			for (uint32 i = 0; i < BX_MAX_MAPS; i++)
				has_pages = has_pages || meta->partitioned.map[i] != 0;
			break;
		case BX_LAYOUT_BLOCK:
			/* the statistics never count more pages than there are */
			if (meta->block.nranges > BX_MAX_BLOCK_RANGES ||
				(meta->block.nranges > 0) != (meta->block.pages > 0) ||
				meta->stats.parts > meta->block.pages)
				return false;
			has_pages = meta->block.pages > 0;
			break;
	}
	return meta->lg_base != BX_LG_BASE_UNSET ||
		(!has_pages && meta->stats.parts == 0);
}

static void
check_meta(Relation index, const BxMetaPageData *meta)
{
	if (meta->magic != BX_MAGIC)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "wrong magic number");
	check_version(index, "format", meta->version, BX_FORMAT_VERSION);
	check_version(index, "hash", meta->hash_version, BX_HASH_VERSION);
	if ((meta->lg_base > BX_MAX_LG_BASE && meta->lg_base != BX_LG_BASE_UNSET) ||
		meta->keys < BX_KEYS_EACH || meta->keys > BX_KEYS_BOTH ||
		!(meta->false_positive_rate >= BX_MIN_RATE &&
		  meta->false_positive_rate <= BX_MAX_RATE) ||
		!(meta->stats.range_keys >= 0 &&
		  meta->stats.range_keys <= BX_MAX_RANGE_KEYS) ||
		!is_layout_part_possible(meta))
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "impossible metapage");
}

/* Copies the content of the metapage under a share lock, and verifies it. */
void
bx_meta_read(Relation index, BxMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(index, BX_METAPAGE_BLKNO);
	uint32		layout;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	bx_page_check(index, buffer, BX_PAGE_META);
	memcpy(meta, BxPageGetMeta(BufferGetPage(buffer)), sizeof(*meta));
	layout = BxPageGetOpaque(BufferGetPage(buffer))->number;
	UnlockReleaseBuffer(buffer);
	check_meta(index, meta);
	if (meta->layout != layout)
		bx_page_corrupted(index, BX_METAPAGE_BLKNO, "contradictory layouts");
}

/*
 * Replaces the content of the metapage.  The caller has held LockPage on the
 * metapage since it read the content, or is the leader of a build.
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
