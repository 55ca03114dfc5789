/*-------------------------------------------------------------------------
 *
 * format.h
 *	  The on-disk format of a bloomidx index, and nothing else.
 *
 * Every page ends in a special area that says what the page is (see
 * BxPageOpaqueData), so that no reader has to trust a block number.  From the
 * first release on, any change here needs a new BX_FORMAT_VERSION.  src/README
 * draws the picture.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_FORMAT_H
#define BX_FORMAT_H

#include "storage/block.h"
#include "storage/bufpage.h"

#if BLCKSZ < 4096
#error "bloomidx needs a BLCKSZ of at least 4096"
#endif

#define BX_MAGIC			0x42784958	/* "BxIX" */
#define BX_FORMAT_VERSION	1

/* Version of the hashing in hash.c; a filter made by another is useless. */
#define BX_HASH_VERSION		2

#define BX_METAPAGE_BLKNO	0

/* children of a node: ranges of a segment, segments of a partition, ... */
#define BX_FANOUT			128

/*
 * Levels of nodes.  Level 3 has its place in the map pages, but no slices are
 * made for it yet: its descriptors say "unknown".
 */
#define BX_LEVEL_SEGMENT	1
#define BX_LEVEL_PARTITION	2
#define BX_LEVEL_REGION		3

#define BX_RANGES_PER_PARTITION	(BX_FANOUT * BX_FANOUT)

/* What a page is.  Zero is left out: an all-zero page is nothing of ours. */
#define BX_PAGE_META		1
#define BX_PAGE_MAP			2
#define BX_PAGE_TOP			3
#define BX_PAGE_SLICE		4
#define BX_PAGE_BLOCK		5
#define BX_PAGE_SCRATCH		6

/* Last two bytes of every page; other access methods use other numbers. */
#define BX_PAGE_ID			0xB1D7

/* Special area of every page.  Fields that a kind does not use are zero. */
typedef struct BxPageOpaqueData
{
	uint32		node;			/* top, slice: number of the node on its
								 * level; map, block: number of the page;
								 * scratch: of the one that it will replace */
	uint32		slice;			/* slice: number of this slice, below nslices */
	uint32		nslices;		/* slice: as in the node's descriptor; block,
								 * scratch: ranges of a page */
	uint32		generation;		/* slice: as in the node's descriptor */
	uint16		nprobes;		/* slice: as in the node's descriptor */
	uint8		level;			/* top, slice: level of the node; block,
								 * scratch: lg_base */
	uint8		kind;			/* BX_PAGE_xxx */
	uint32		keys;			/* block: keys that its filters had, by their
								 * fill, when they were made */
	float		rate;			/* block: mean of their rates at that time */
	uint16		flags;			/* block: BX_BLOCK_xxx */
	uint16		page_id;		/* BX_PAGE_ID */
} BxPageOpaqueData;

#define BX_OPAQUE_OFFSET	(BLCKSZ - sizeof(BxPageOpaqueData))
#define BxPageGetOpaque(page) \
	((BxPageOpaqueData *) ((char *) (page) + BX_OPAQUE_OFFSET))

/*
 * Contents start here on every page: behind the page header, at a multiple of
 * 32, so that no row of a slice page straddles a cache line.
 */
#define BX_CONTENT_OFFSET	32
#define BX_CONTENT_SIZE		(BX_OPAQUE_OFFSET - BX_CONTENT_OFFSET)
#define BxPageGetContent(page)	((char *) (page) + BX_CONTENT_OFFSET)

/* A slice page is a matrix: each row has a bit for every child of the node. */
#define BX_ROW_BYTES		(BX_FANOUT / 8)
#define BX_SLICE_ROWS		((int) (BX_CONTENT_SIZE / BX_ROW_BYTES))
#define BX_SLICE_SIZE		((Size) BX_SLICE_ROWS * BX_ROW_BYTES)

/*
 * pd_lower of a slice page: at the rows' start while no bit is set, so that
 * its image in WAL is tiny, and at their end from the first bit on.
 */
#define BX_SLICE_LOWER_EMPTY	BX_CONTENT_OFFSET
#define BX_SLICE_LOWER_FULL		(BX_CONTENT_OFFSET + BX_SLICE_ROWS * BX_ROW_BYTES)

/* State of a node. */
#define BX_NODE_EMPTY		0	/* no key below it: matches nothing */
#define BX_NODE_PRESENT		1	/* has slices */
#define BX_NODE_UNKNOWN		2	/* no slices, perhaps keys: all match */

/* Where a node's slices are.  An all-zero descriptor is an empty node. */
typedef struct BxNodeDesc
{
	BlockNumber start;			/* first of nslices consecutive blocks */
	uint32		nslices;
	uint32		generation;		/* never used twice in an index */
	uint32		keys;			/* distinct keys per child that it was planned
								 * for, or more if it had more when made */
	uint8		nprobes;
	uint8		state;			/* BX_NODE_xxx */
	uint16		flags;			/* BX_DESC_xxx */
} BxNodeDesc;

/* Some children's filters match everything, until they are rebuilt. */
#define BX_DESC_DOUBT		0x0001

/*
 * Slices that are being built to replace a node's.  Inserters set their bits
 * in both.  One for each directory page is enough: one VACUUM works on an
 * index at a time, on one node at a time.
 */
typedef struct BxShadow
{
	BxNodeDesc	desc;			/* state is BX_NODE_PRESENT, else no shadow */
	uint8		level;			/* level of the node it will belong to */
	uint8		child;			/* and which child of this page, if a child */
	uint16		reserved;
} BxShadow;

/* Content of a top-level page: the directory of one partition. */
typedef struct BxTopPageData
{
	BxNodeDesc	self;			/* the partition's own slices: its summary */
	BxShadow	shadow;
	BxNodeDesc	child[BX_FANOUT];	/* its segments */
} BxTopPageData;

#define BxPageGetTop(page)	((BxTopPageData *) BxPageGetContent(page))

/*
 * Content of a map page: the directory of some regions.  A partition that has
 * no top-level page yet (block 0) is empty.
 */
typedef struct BxRegionData
{
	BxNodeDesc	self;
	BxShadow	shadow;
	BlockNumber top[BX_FANOUT];
} BxRegionData;

#define BX_REGIONS_PER_MAP		((int) (BX_CONTENT_SIZE / sizeof(BxRegionData)))
#define BX_PARTITIONS_PER_MAP	(BX_REGIONS_PER_MAP * BX_FANOUT)
#define BxPageGetRegions(page)	((BxRegionData *) BxPageGetContent(page))

/* Enough for a heap of 2^32 blocks at one page per range. */
#define BX_MAX_PARTITIONS \
	((uint32) ((((uint64) MaxBlockNumber) / BX_RANGES_PER_PARTITION) + 1))
#define BX_MAX_MAPS \
	((BX_MAX_PARTITIONS + BX_PARTITIONS_PER_MAP - 1) / BX_PARTITIONS_PER_MAP)

/*
 * Layout "block".  Block 1 is the scratch page, and page n of the filters is
 * at a block that is computed.  Each has the filters of as many consecutive
 * ranges, one behind the other, and at its end an array of where each starts,
 * counted from the content's start, with one entry more for the end of the
 * last.  Filters are as in packed.h.
 */
#define BX_SCRATCH_BLKNO		1
#define BX_FIRST_BLOCK_BLKNO	2

#define BX_BLOCK_SPACE(nranges) \
	(BX_CONTENT_SIZE - sizeof(uint16) * ((Size) (nranges) + 1))
#define BX_BLOCK_LOWER(nranges)	(BX_CONTENT_OFFSET + BX_BLOCK_SPACE(nranges))
#define BxPageGetOffsets(page, nranges) \
	((uint16 *) ((char *) (page) + BX_BLOCK_LOWER(nranges)))

/* every filter has at least 9 bytes, and its entry two */
#define BX_MAX_BLOCK_RANGES \
	((int) ((BX_CONTENT_SIZE - sizeof(uint16)) / (9 + sizeof(uint16))))

/* flags of a page of filters */
#define BX_BLOCK_SHADOWED		0x0001	/* bits go to the scratch page, too */
#define BX_BLOCK_DOUBT			0x0002	/* some filters match everything */

/* Layouts. */
#define BX_LAYOUT_PARTITIONED	1
#define BX_LAYOUT_BLOCK			2

/* lg_base of an index whose first key has not come yet. */
#define BX_LG_BASE_UNSET		0xFF
#define BX_MAX_LG_BASE			8

/* Pages that may be used again.  A hint: the truth is what nobody names. */
typedef struct BxFreeExtent
{
	BlockNumber start;
	uint32		npages;
} BxFreeExtent;

#define BX_MAX_FREE_EXTENTS		64

/* What VACUUM and CREATE INDEX last counted, for the planner. */
typedef struct BxStats
{
	uint32		segments;		/* segments that have slices; in layout block
								 * pages of filters */
	uint32		partitions;		/* partitions that have a top-level page */
	uint32		summarized;		/* and a summary */
	uint32		slices;			/* slice pages of segments */
	uint32		ranges_per_page;	/* layout block */
	float		range_keys;		/* distinct keys of a range, with markers */
	float		segment_rate;	/* false-positive rate of a range's filter */
	float		summary_rate;	/* and of a segment's, in the summary */
} BxStats;

/* Bounds of false_positive_rate. */
#define BX_MIN_RATE				0.00001
#define BX_MAX_RATE				0.25

/* No range has so many keys, and more bits than these need can be counted. */
#define BX_MAX_RANGE_KEYS		1e12

/* Content of the metapage.  Everything above "stats" is frozen by the build. */
typedef struct BxMetaPageData
{
	uint32		magic;
	uint32		version;
	uint16		hash_version;
	uint8		layout;			/* BX_LAYOUT_xxx */
	uint8		lg_base;		/* log2 of pages per range; frozen once set */
	uint16		block_ranges;	/* layout block: ranges of a page, or 0 as
								 * long as there is none */
	uint16		reserved;
	double		false_positive_rate;
	BxStats		stats;
	uint32		block_pages;	/* layout block: pages of filters */
	uint32		next_generation;
	uint32		nfree;
	BxFreeExtent free[BX_MAX_FREE_EXTENTS];
	BlockNumber map[BX_MAX_MAPS];	/* block 0: no such map page yet */
} BxMetaPageData;

#define BxPageGetMeta(page)	((BxMetaPageData *) BxPageGetContent(page))

StaticAssertDecl(sizeof(BxPageOpaqueData) == 32, "special area is 32 bytes");
StaticAssertDecl(sizeof(BxMetaPageData) <= BX_CONTENT_SIZE, "metapage too big");
StaticAssertDecl(sizeof(BxTopPageData) <= BX_CONTENT_SIZE, "top page too big");
StaticAssertDecl(sizeof(BxRegionData) <= BX_CONTENT_SIZE, "region too big");
StaticAssertDecl(BX_OPAQUE_OFFSET <= PG_UINT16_MAX, "offsets too big");
StaticAssertDecl(SizeOfPageHeaderData <= BX_CONTENT_OFFSET, "page header too big");

#endif							/* BX_FORMAT_H */
