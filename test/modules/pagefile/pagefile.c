/*-------------------------------------------------------------------------
 *
 * pagefile.c
 *	  Replaces the file of a relation under a running server, and shows where
 *	  the fields of an index page are.
 *
 * Tests that damage pages take every offset from here.  So the compiler
 * rejects a field that format.h no longer has, and no test has a copy of the
 * format.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/storage.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "storage/bufpage.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "../../../src/filter/packed.h"
#include "../../../src/storage/format.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(write_pages);
PG_FUNCTION_INFO_V1(page_format);

#define FIELD(prefix, start, type, field) \
	{prefix "." #field, (start) + offsetof(type, field), \
	sizeof(((type *) NULL)->field)}
#define HEADER(field)	FIELD("header", 0, PageHeaderData, field)
#define OPAQUE(field) \
	FIELD("opaque", BX_OPAQUE_OFFSET, BxPageOpaqueData, field)
#define META(field)		FIELD("meta", BX_CONTENT_OFFSET, BxMetaPageData, field)
#define TOP(field)		FIELD("top", BX_CONTENT_OFFSET, BxTopPageData, field)
#define NODE(name, slot) \
	{"top." name, BX_CONTENT_OFFSET + offsetof(BxTopPageData, node[slot]), \
	sizeof(BxNodeDesc)}
#define MAP_ENTRY(i) \
	{"map.region[" #i "]", BX_CONTENT_OFFSET + sizeof(BlockNumber) * (i), \
	sizeof(BlockNumber)}
#define REGION(field) \
	FIELD("region", BX_CONTENT_OFFSET, BxRegionPageData, field)
#define DESC(field)		FIELD("desc", 0, BxNodeDesc, field)
#define SHADOW(field)	FIELD("shadow", 0, BxShadow, field)
#define GROUP(field)	FIELD("group", 0, BxGroupDesc, field)
#define CONSTANT(name)	{#name, (name), 0}

/*
 * A line of page_format().  The offset of a field is relative to the page or,
 * if the struct is part of another one, to the struct; its size is in bytes.
 * A constant has its value as offset, and the size 0.
 */
struct FormatLine
{
	const char *name;
	unsigned int offset;
	unsigned int size;
};

static const struct FormatLine lines[] = {
	HEADER(pd_lower),
	HEADER(pd_upper),
	HEADER(pd_special),
	CONSTANT(SizeOfPageHeaderData),
	CONSTANT(BLCKSZ),

	/* parts of every page, and kinds of pages */
	CONSTANT(BX_CONTENT_OFFSET),
	CONSTANT(BX_OPAQUE_OFFSET),
	OPAQUE(number),
	OPAQUE(slice.slice),
	OPAQUE(slice.nslices),
	OPAQUE(slice.generation),
	OPAQUE(slice.nprobes),
	OPAQUE(slice.level),
	OPAQUE(group.page),
	OPAQUE(group.nblocks),
	OPAQUE(group.generation),
	OPAQUE(group.nprobes),
	OPAQUE(group.width),
	OPAQUE(group.first),
	OPAQUE(block.nranges),
	OPAQUE(block.lg_base),
	OPAQUE(kind),
	OPAQUE(page_id),
	CONSTANT(BX_PAGE_META),
	CONSTANT(BX_PAGE_MAP),
	CONSTANT(BX_PAGE_REGION),
	CONSTANT(BX_PAGE_TOP),
	CONSTANT(BX_PAGE_GROUP),
	CONSTANT(BX_PAGE_SLICE),
	CONSTANT(BX_PAGE_BLOCK),
	CONSTANT(BX_PAGE_SCRATCH),
	CONSTANT(BX_LEVEL_SEGMENT),
	CONSTANT(BX_LEVEL_PARTITION),

	/* the metapage */
	META(magic),
	META(version),
	META(hash_version),
	META(layout),
	META(lg_base),
	META(keys),
	META(false_positive_rate),
	META(stats.range_keys),
	META(partitioned.next_generation),
	META(partitioned.nfree),
	META(partitioned.free[0].start),
	META(partitioned.free[0].npages),
	META(partitioned.map[0]),
	META(partitioned.map[1]),
	META(block.nranges),
	META(block.pages),
	CONSTANT(BX_MAGIC),
	CONSTANT(BX_FORMAT_VERSION),
	CONSTANT(BX_HASH_VERSION),
	CONSTANT(BX_LAYOUT_PARTITIONED),
	CONSTANT(BX_LAYOUT_BLOCK),

	/* layout "partitioned" */
	TOP(group),
	TOP(group_shadow),
	TOP(shadow),
	NODE("summary", BX_SLOT_SUMMARY),
	NODE("segment[0]", BX_SLOT_SEGMENT(0)),
	NODE("segment[1]", BX_SLOT_SEGMENT(1)),
	MAP_ENTRY(0),
	MAP_ENTRY(1),
	REGION(unfiltered),
	REGION(ngroups),
	REGION(top[0]),
	REGION(top[1]),
	REGION(group[0]),
	DESC(start),
	DESC(nslices),
	DESC(generation),
	DESC(nprobes),
	DESC(state),
	SHADOW(desc),
	SHADOW(slot),
	GROUP(start),
	GROUP(nblocks),
	GROUP(generation),
	GROUP(keys),
	GROUP(nprobes),
	GROUP(width),
	GROUP(first),
	CONSTANT(BX_ROW_BYTES),
	CONSTANT(BX_SLICE_ROWS),
	CONSTANT(BX_SLOT_SEGMENT(0)),

	/* layout "block"; the offsets on its pages depend on the number of ranges */
	CONSTANT(BX_SCRATCH_BLKNO),
	CONSTANT(BX_FIRST_BLOCK_BLKNO),
	CONSTANT(BX_BLOCK_LOWER(0)),
	CONSTANT(BX_BLOCK_LOWER(1)),
	CONSTANT(BX_PACKED_LINE),
	CONSTANT(BX_PACKED_TRAILER),
};

/*
 * page_format() returns text: a line "name offset size" for each of the above.
 */
Datum
page_format(PG_FUNCTION_ARGS)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < lengthof(lines); i++)
		appendStringInfo(&text, "%s %u %u\n", lines[i].name, lines[i].offset,
						 lines[i].size);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(text.data, text.len));
}

/*
 * write_pages(relation regclass, pages bytea): the relation has these pages, and no
 * others, and nobody remembers what it had before.
 *
 * The pages do not go through shared buffers, so that the next reader meets
 * them as it would meet what a disk has damaged.
 */
Datum
write_pages(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessExclusiveLock);
	bytea	   *pages = PG_GETARG_BYTEA_PP(1);
	BlockNumber npages = VARSIZE_ANY_EXHDR(pages) / BLCKSZ;

	/* direct I/O wants pages aligned like this */
	char	   *page = (char *) TYPEALIGN(4096, palloc(BLCKSZ + 4096));

	RelationTruncate(rel, 0);
	for (BlockNumber i = 0; i < npages; i++)
	{
		memcpy(page, VARDATA_ANY(pages) + (Size) i * BLCKSZ, BLCKSZ);
		smgrextend(RelationGetSmgr(rel), MAIN_FORKNUM, i, page, true);
	}
	CacheInvalidateRelcache(rel);
	relation_close(rel, AccessExclusiveLock);
	PG_RETURN_VOID();
}
