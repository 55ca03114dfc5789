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
#ifdef BX_SMALL_PARTITIONS
#define BX_FORMAT_VERSION	0x10004
#else
#define BX_FORMAT_VERSION	4
#endif

/*
 * Version of the hashing in key/hash.c.  A filter that was built with another
 * version would miss rows.
 */
#define BX_HASH_VERSION		2

#define BX_METAPAGE_BLKNO	0

/*
 * Number of children of a node: the ranges of a segment, or the segments of a
 * partition.  Also the number of partitions of a region.
 */
#define BX_FANOUT			128

/*
 * Levels of nodes, from the bottom.  The level is part of the hash of a key
 * (bx_filter_level_hash) and of the identity of a slice page.
 */
#define BX_LEVEL_SEGMENT	1
#define BX_LEVEL_PARTITION	2

/* The third level: filters of partitions, in groups; see BxGroupDesc. */
#define BX_LEVEL_GROUP		3

/*
 * Number of segments of a partition.  Tests that need many partitions are
 * compiled with small ones; such an index has another format version.
 */
#ifdef BX_SMALL_PARTITIONS
#define BX_LG_SEGMENTS		0
#else
#define BX_LG_SEGMENTS		7
#endif
#define BX_SEGMENTS_PER_PARTITION	(1 << BX_LG_SEGMENTS)
#define BX_RANGES_PER_PARTITION	(BX_FANOUT * BX_SEGMENTS_PER_PARTITION)

/* Page kinds.  Zero is not used, so that an all-zero page is never valid. */
#define BX_PAGE_META		1
#define BX_PAGE_MAP			2
#define BX_PAGE_REGION		3
#define BX_PAGE_TOP			4
#define BX_PAGE_GROUP		5
#define BX_PAGE_SLICE		6
#define BX_PAGE_BLOCK		7
#define BX_PAGE_SCRATCH		8

/*
 * Last two bytes of every page, to distinguish bloomidx from other access
 * methods.
 */
#define BX_PAGE_ID			0xB1D7

/* Identity of a slice page; all fields as in the node's descriptor. */
typedef struct BxSliceOpaque
{
	uint32		slice;			/* number of this slice, below nslices */
	uint32		nslices;
	uint32		generation;
	uint16		nprobes;
	uint8		level;			/* BX_LEVEL_xxx */
	uint8		reserved;
} BxSliceOpaque;

/* Identity of a page of a group; all other fields as in its descriptor. */
typedef struct BxGroupOpaque
{
	uint32		page;			/* number of this page in the group */
	uint32		nblocks;
	uint32		generation;
	uint8		nprobes;
	uint8		width;
	uint8		first;
	uint8		reserved;
} BxGroupOpaque;

/* Identity and state of a page of filters, or of the scratch page. */
typedef struct BxBlockOpaque
{
	uint32		keys;			/* keys of its filters, estimated from their
								 * fill right after the build */
	float		rate;			/* mean false-positive rate at that time */
	uint16		nranges;		/* ranges per page */
	uint16		flags;			/* BX_BLOCK_xxx */
	uint8		lg_base;
	uint8		reserved[3];
} BxBlockOpaque;

/*
 * Special area of every page.  Fields that a page kind does not use are zero.
 */
typedef struct BxPageOpaqueData
{
	uint32		number;			/* meta: the layout, again, because the rest
								 * of the metapage depends on it; region,
								 * group: number of the region; top: number of
								 * the partition; slice: number of the node on
								 * its level; map, block: number of the page;
								 * scratch: number of the page that it will
								 * replace */
	union
	{
		BxSliceOpaque slice;
		BxGroupOpaque group;
		BxBlockOpaque block;	/* block, scratch */
	};
	uint32		reserved[2];
	uint8		reserved_byte;
	uint8		kind;			/* BX_PAGE_xxx */
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
 * pd_lower of a slice page from the first bit on: the end of the rows.  While
 * no bit is set, pd_lower is the start of the rows, so that the WAL image of
 * an empty page is tiny.
 */
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
 * Descriptor of a group: the interleaved filters of "width" consecutive
 * partitions of a region, beginning with "first".  filter/group.h describes
 * the pages, whose number follows from nblocks and width.  An all-zero
 * descriptor means that there is no group.
 */
typedef struct BxGroupDesc
{
	BlockNumber start;			/* first of the group's consecutive blocks */
	uint32		nblocks;
	uint32		generation;		/* unique within the index, never reused */
	uint32		keys;			/* keys per partition: the larger of the
								 * planned number and, after a rebuild, the
								 * estimate from the fill; after a merge, the
								 * largest such estimate */
	uint8		nprobes;
	uint8		width;			/* a power of two; 0 if there is no group */
	uint8		first;			/* number of the first partition in its
								 * region, a multiple of width */
	uint8		reserved;
} BxGroupDesc;

/*
 * A top-level page has a descriptor for every node of its partition.  Slot 0
 * is the partition itself, whose slices are its summary; slot 1 + c is its
 * segment c.
 */
#define BX_SLOT_SUMMARY		0
#define BX_SLOT_SEGMENT(c)	(1 + (c))
#define BX_TOP_SLOTS		(1 + BX_FANOUT)

/*
 * A shadow: slices that are being built to replace those of a node.
 * Inserters set their bits in both.  One shadow per top-level page is
 * sufficient, because only one VACUUM at a time can process an index, and it
 * rebuilds one node at a time.
 */
typedef struct BxShadow
{
	BxNodeDesc	desc;			/* there is a shadow if its state is
								 * BX_NODE_PRESENT */
	uint32		slot;			/* slot of the node that it will replace */
} BxShadow;

/* Content of a top-level page: the directory of one partition. */
typedef struct BxTopPageData
{
	BxGroupDesc group;			/* the group with the partition's filter, if
								 * there is one */
	BxGroupDesc group_shadow;	/* a group that will replace it; inserters set
								 * their bits in both */
	BxShadow	shadow;
	BxNodeDesc	node[BX_TOP_SLOTS];
} BxTopPageData;

#define BxPageGetTop(page)	((BxTopPageData *) BxPageGetContent(page))

/*
 * Content of a region page: the directory of 128 partitions.
 *
 * If several groups contain a partition, the last one is current: to replace
 * filters of a group, VACUUM appends another group.  A partition whose bit in
 * "unfiltered" is set matches every key, even if a group contains the
 * partition: the partition has no filter, or its filter is in doubt.
 */
#define BX_MAX_GROUPS \
	((int) ((BX_CONTENT_SIZE - BX_FANOUT / 8 - sizeof(uint32) - \
			 sizeof(BlockNumber) * BX_FANOUT) / sizeof(BxGroupDesc)))

typedef struct BxRegionPageData
{
	uint8		unfiltered[BX_FANOUT / 8];
	uint32		ngroups;
	BlockNumber top[BX_FANOUT]; /* top-level pages; 0 if the partition has
								 * none: it is empty */
	BxGroupDesc group[BX_MAX_GROUPS];
} BxRegionPageData;

#define BxPageGetRegion(page)	((BxRegionPageData *) BxPageGetContent(page))

/*
 * Content of a map page: the block numbers of region pages; 0 if a region page
 * does not exist yet.
 */
#define BX_REGIONS_PER_MAP	((int) (BX_CONTENT_SIZE / sizeof(BlockNumber)))
#define BxPageGetRegions(page)	((BlockNumber *) BxPageGetContent(page))

/* Enough for a heap of 2^32 blocks at one page per range. */
#define BX_MAX_PARTITIONS \
	((uint32) ((((uint64) MaxBlockNumber) / BX_RANGES_PER_PARTITION) + 1))
#define BX_MAX_REGIONS		((BX_MAX_PARTITIONS + BX_FANOUT - 1) / BX_FANOUT)
#define BX_MAX_MAPS \
	((BX_MAX_REGIONS + BX_REGIONS_PER_MAP - 1) / BX_REGIONS_PER_MAP)

/*
 * Layout "block".  Block 1 is the scratch page, and page n of the filters is
 * block BX_FIRST_BLOCK_BLKNO + n.  Each page of filters contains the filters
 * of nranges consecutive ranges, one after the other.  At its end is an
 * array of nranges + 1 offsets, relative to the start of the content:
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

/*
 * The keys of a row in addition to its markers: a key for each column, a
 * combined key of all columns, or both.  The values are flags.
 */
#define BX_KEYS_EACH			0x01
#define BX_KEYS_ALL				0x02
#define BX_KEYS_BOTH			(BX_KEYS_EACH | BX_KEYS_ALL)

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
typedef struct BxPartitionedStats
{
	uint32		partitions;		/* partitions that have a top-level page */
	uint32		summarized;		/* partitions that have a summary */
	uint32		slices;			/* slice pages of segments */
	uint32		groups;
	uint32		unfiltered;		/* partitions without a filter in a group */
	float		group_rate;		/* false-positive rate of a partition's filter */
	float		summary_rate;	/* false-positive rate of a segment's filter
								 * in the summary */
} BxPartitionedStats;

typedef struct BxBlockStats
{
	uint32		ranges_per_page;
} BxBlockStats;

typedef struct BxStats
{
	uint32		parts;			/* parts that contain filters of ranges:
								 * segments, or pages in layout block */
	float		range_keys;		/* distinct keys per range, including markers */
	float		range_rate;		/* false-positive rate of a range's filter */
	union
	{
		BxPartitionedStats partitioned;
		BxBlockStats block;
	};
} BxStats;

/* Bounds of false_positive_rate. */
#define BX_MIN_RATE				0.00001
#define BX_MAX_RATE				0.25

/* Sanity bound on stats.range_keys when it is read from the metapage. */
#define BX_MAX_RANGE_KEYS		1e12

/* The part of the metapage that belongs to layout "partitioned". */
typedef struct BxPartitionedMeta
{
	uint32		next_generation;
	uint32		nfree;
	BxFreeExtent free[BX_MAX_FREE_EXTENTS];
	BlockNumber map[BX_MAX_MAPS];	/* 0 if the map page does not exist yet */
} BxPartitionedMeta;

/*
 * The part of the metapage that belongs to layout "block".  Both fields are 0
 * while there are no pages of filters; nranges never changes once it is set.
 */
typedef struct BxBlockMeta
{
	uint32		pages;			/* pages of filters */
	uint32		nranges;		/* ranges per page */
} BxBlockMeta;

/*
 * Content of the metapage.  The fields above "stats" never change once they
 * are set: by the build, or lg_base by the first insert if the build found no
 * keys.
 */
typedef struct BxMetaPageData
{
	uint32		magic;
	uint32		version;
	uint16		hash_version;
	uint8		layout;			/* BX_LAYOUT_xxx */
	uint8		lg_base;		/* log2 of pages per range; frozen once set */
	uint8		keys;			/* BX_KEYS_xxx */
	uint8		reserved[3];
	double		false_positive_rate;
	BxStats		stats;
	union
	{
		BxPartitionedMeta partitioned;
		BxBlockMeta block;
	};
} BxMetaPageData;

#define BxPageGetMeta(page)	((BxMetaPageData *) BxPageGetContent(page))

StaticAssertDecl(sizeof(BxPageOpaqueData) == 32, "special area is 32 bytes");
StaticAssertDecl(sizeof(BxMetaPageData) <= BX_CONTENT_SIZE, "metapage too big");
StaticAssertDecl(sizeof(BxTopPageData) <= BX_CONTENT_SIZE, "top page too big");
StaticAssertDecl(sizeof(BxRegionPageData) <= BX_CONTENT_SIZE, "region page too big");
StaticAssertDecl(BX_OPAQUE_OFFSET <= PG_UINT16_MAX, "offsets too big");
StaticAssertDecl(SizeOfPageHeaderData <= BX_CONTENT_OFFSET, "page header too big");

#endif							/* BX_FORMAT_H */
