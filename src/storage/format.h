/*-------------------------------------------------------------------------
 *
 * format.h
 *	  The on-disk format of a bloomidx index, and nothing else.
 *
 * Every page ends in a special area that identifies the page (see
 * BxPageOpaqueData), so that no reader has to trust a block number.  From the
 * first release on, any change here requires a new BX_FORMAT_VERSION.
 * src/README describes how the pages are related.
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

/*
 * Version of the hashing in key/hash.c.  A filter that was built with another
 * version would miss rows.
 */
#define BX_HASH_VERSION		2

#define BX_METAPAGE_BLKNO	0

/*
 * number of children of a node: ranges of a segment, segments of a partition,
 * ...
 */
#define BX_FANOUT			128

/*
 * Levels of nodes.  Map pages have descriptors of regions (level 3), but no
 * slices are built for regions yet: their state is BX_NODE_UNKNOWN.
 */
#define BX_LEVEL_SEGMENT	1
#define BX_LEVEL_PARTITION	2
#define BX_LEVEL_REGION		3

#define BX_RANGES_PER_PARTITION	(BX_FANOUT * BX_FANOUT)

/* Page kinds.  Zero is not used, so that an all-zero page is never valid. */
#define BX_PAGE_META		1
#define BX_PAGE_MAP			2
#define BX_PAGE_TOP			3
#define BX_PAGE_SLICE		4
#define BX_PAGE_BLOCK		5
#define BX_PAGE_SCRATCH		6

/*
 * Last two bytes of every page, to distinguish bloomidx from other access
 * methods.
 */
#define BX_PAGE_ID			0xB1D7

/*
 * Special area of every page.  Fields that a page kind does not use are zero.
 */
typedef struct BxPageOpaqueData
{
	uint32		node;			/* top, slice: number of the node on its
								 * level; map, block: number of the page;
								 * scratch: number of the page it will replace */
	uint32		slice;			/* slice: number of this slice, below nslices */
	uint32		nslices;		/* slice: as in the node's descriptor; block,
								 * scratch: ranges per page */
	uint32		generation;		/* slice: as in the node's descriptor */
	uint16		nprobes;		/* slice: as in the node's descriptor */
	uint8		level;			/* top, slice: level of the node; block,
								 * scratch: lg_base */
	uint8		kind;			/* BX_PAGE_xxx */
	uint32		keys;			/* block: keys of its filters, estimated from
								 * their fill right after the build */
	float		rate;			/* block: mean false-positive rate at that
								 * time */
	uint16		flags;			/* block: BX_BLOCK_xxx */
	uint16		page_id;		/* BX_PAGE_ID */
} BxPageOpaqueData;

#define BX_OPAQUE_OFFSET	(BLCKSZ - sizeof(BxPageOpaqueData))
#define BxPageGetOpaque(page) \
	((BxPageOpaqueData *) ((char *) (page) + BX_OPAQUE_OFFSET))

/*
 * The contents of every page start here: after the page header, at a multiple
 * of 32, so that no row of a slice page crosses a cache line.
 */
#define BX_CONTENT_OFFSET	32
#define BX_CONTENT_SIZE		(BX_OPAQUE_OFFSET - BX_CONTENT_OFFSET)
#define BxPageGetContent(page)	((char *) (page) + BX_CONTENT_OFFSET)

/* A slice page is a matrix: each row has a bit for every child of the node. */
#define BX_ROW_BYTES		(BX_FANOUT / 8)
#define BX_SLICE_ROWS		((int) (BX_CONTENT_SIZE / BX_ROW_BYTES))
#define BX_SLICE_SIZE		((Size) BX_SLICE_ROWS * BX_ROW_BYTES)

/*
 * pd_lower of a slice page: the start of the rows while no bit is set, so
 * that the WAL image of an empty page is tiny; the end of the rows from the
 * first bit on.
 */
#define BX_SLICE_LOWER_EMPTY	BX_CONTENT_OFFSET
#define BX_SLICE_LOWER_FULL		(BX_CONTENT_OFFSET + BX_SLICE_ROWS * BX_ROW_BYTES)

/* State of a node. */
#define BX_NODE_EMPTY		0	/* has no keys: no child matches */
#define BX_NODE_PRESENT		1	/* has slices */
#define BX_NODE_UNKNOWN		2	/* no slices, but there may be keys: all
								 * children match */

/*
 * Descriptor of a node: where its slices are.  An all-zero descriptor is an
 * empty node.
 */
typedef struct BxNodeDesc
{
	BlockNumber start;			/* first of nslices consecutive blocks */
	uint32		nslices;
	uint32		generation;		/* unique within the index, never reused */
	uint32		keys;			/* keys per child: the larger of the planned
								 * number and the estimate from the fill right
								 * after the build */
	uint8		nprobes;
	uint8		state;			/* BX_NODE_xxx */
	uint16		flags;			/* BX_DESC_xxx */
} BxNodeDesc;

/* The filters of some children match everything, until they are rebuilt. */
#define BX_DESC_DOUBT		0x0001

/*
 * A shadow: slices that are being built to replace those of a node.
 * Inserters set their bits in both.  One shadow per directory page is
 * sufficient, because only one VACUUM at a time can process an index, and it
 * rebuilds one node at a time.
 */
typedef struct BxShadow
{
	BxNodeDesc	desc;			/* there is a shadow if its state is
								 * BX_NODE_PRESENT */
	uint8		level;			/* level of the node that it will replace */
	uint8		child;			/* segment: which child of this page */
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
 * Content of a map page: the directory of BX_REGIONS_PER_MAP regions.  If
 * top[i] is 0, the partition has no top-level page yet: it is empty.
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
 * block BX_FIRST_BLOCK_BLKNO + n.  Each page of filters contains the filters
 * of block_ranges consecutive ranges, one after the other.  At its end is an
 * array of block_ranges + 1 offsets, relative to the start of the content:
 * offsets[i] is the start of filter i, and the last entry is the end of the
 * last filter. filter/packed.h describes the format of a filter.
 */
#define BX_SCRATCH_BLKNO		1
#define BX_FIRST_BLOCK_BLKNO	2

#define BX_BLOCK_SPACE(nranges) \
	(BX_CONTENT_SIZE - sizeof(uint16) * ((Size) (nranges) + 1))
#define BX_BLOCK_LOWER(nranges)	(BX_CONTENT_OFFSET + BX_BLOCK_SPACE(nranges))
#define BxPageGetOffsets(page, nranges) \
	((uint16 *) ((char *) (page) + BX_BLOCK_LOWER(nranges)))

/* at least 9 bytes for a filter, and two for its offset */
#define BX_MAX_BLOCK_RANGES \
	((int) ((BX_CONTENT_SIZE - sizeof(uint16)) / (9 + sizeof(uint16))))

/* Flags of a page of filters. */
#define BX_BLOCK_SHADOWED		0x0001	/* inserters also set bits in the
										 * scratch page */
#define BX_BLOCK_DOUBT			0x0002	/* some filters match everything */

/* Layouts. */
#define BX_LAYOUT_PARTITIONED	1
#define BX_LAYOUT_BLOCK			2

/* lg_base while pages_per_range is automatic and the index has no keys. */
#define BX_LG_BASE_UNSET		0xFF
#define BX_MAX_LG_BASE			8

/*
 * A run of free pages.  Advisory only; the authoritative free set is every
 * block that no directory entry references.
 */
typedef struct BxFreeExtent
{
	BlockNumber start;
	uint32		npages;
} BxFreeExtent;

#define BX_MAX_FREE_EXTENTS		64

/* Statistics for the planner, collected by CREATE INDEX and VACUUM. */
typedef struct BxStats
{
	uint32		segments;		/* segments that have slices; layout block:
								 * pages of filters */
	uint32		partitions;		/* partitions that have a top-level page */
	uint32		summarized;		/* partitions that have a summary */
	uint32		slices;			/* slice pages of segments */
	uint32		ranges_per_page;	/* layout block */
	float		range_keys;		/* distinct keys per range, including markers */
	float		segment_rate;	/* false-positive rate of a range's filter */
	float		summary_rate;	/* false-positive rate of a segment's filter
								 * in the summary */
} BxStats;

/* Bounds of false_positive_rate. */
#define BX_MIN_RATE				0.00001
#define BX_MAX_RATE				0.25

/* Sanity bound on stats.range_keys when it is read from the metapage. */
#define BX_MAX_RANGE_KEYS		1e12

/*
 * Content of the metapage.  The fields above "stats" never change once they
 * are set: by the build, or lg_base and block_ranges by the first insert if
 * the build found no keys.
 */
typedef struct BxMetaPageData
{
	uint32		magic;
	uint32		version;
	uint16		hash_version;
	uint8		layout;			/* BX_LAYOUT_xxx */
	uint8		lg_base;		/* log2 of pages per range; frozen once set */
	uint16		block_ranges;	/* layout block: ranges per page; 0 while
								 * there are no pages */
	uint16		reserved;
	double		false_positive_rate;
	BxStats		stats;
	uint32		block_pages;	/* layout block: pages of filters */
	uint32		next_generation;
	uint32		nfree;
	BxFreeExtent free[BX_MAX_FREE_EXTENTS];
	BlockNumber map[BX_MAX_MAPS];	/* 0 if the map page does not exist yet */
} BxMetaPageData;

#define BxPageGetMeta(page)	((BxMetaPageData *) BxPageGetContent(page))

StaticAssertDecl(sizeof(BxPageOpaqueData) == 32, "special area is 32 bytes");
StaticAssertDecl(sizeof(BxMetaPageData) <= BX_CONTENT_SIZE, "metapage too big");
StaticAssertDecl(sizeof(BxTopPageData) <= BX_CONTENT_SIZE, "top page too big");
StaticAssertDecl(sizeof(BxRegionData) <= BX_CONTENT_SIZE, "region too big");
StaticAssertDecl(BX_OPAQUE_OFFSET <= PG_UINT16_MAX, "offsets too big");
StaticAssertDecl(SizeOfPageHeaderData <= BX_CONTENT_OFFSET, "page header too big");

#endif							/* BX_FORMAT_H */
