/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Rebuilding a page of filters.
 *
 * VACUUM rebuilds a page in the scratch page:
 *
 *	1. Count the keys of its ranges in the heap to determine the sizes.
 *	2. Write new filters, without bits, to the scratch page.
 *	3. Flag the page as shadowed, under its exclusive lock.  From now on
 *	   inserters, who hold a lock on the page, set their bits in both.
 *	4. Read the size of the heap, then the heap pages of the ranges, and add
 *	   their keys to the scratch page.
 *	5. Copy the scratch page over the page, under its exclusive lock.
 *
 * No row is lost, for the reason given in partitioned/rebuild.c.  Searches
 * never read the scratch page.  A failure leaves a page flagged as shadowed
 * until the next VACUUM clears the flag.  By then the scratch page may belong
 * to another page; then inserters do not change it, because it will not be
 * copied over their page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "block.h"

/* No more pages are rebuilt after this many failures. */
#define MAX_FAILURES		3

typedef struct PageRebuild
{
	BxRepair   *repair;
	BxBlockGeometry geometry;
	double		typical_keys;	/* keys per range, for pages without keys */
	uint32		number;
	double		counts[BX_MAX_BLOCK_RANGES];
	PGAlignedBlock image;
} PageRebuild;

/* Sets and clears flags of a page of filters, under its exclusive lock. */
static void
set_flags(Relation index, uint32 number, const BxBlockGeometry *geometry, uint16 set,
		  uint16 clear)
{
	Buffer		buffer = ReadBuffer(index, bx_block_of_page(number));
	GenericXLogState *state;
	BxPageOpaqueData *opaque;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_block_check_identity(index, buffer, BX_PAGE_BLOCK, number, geometry);
	state = GenericXLogStart(index);
	opaque = BxPageGetOpaque(GenericXLogRegisterBuffer(state, buffer, 0));
	opaque->block.flags = (opaque->block.flags & ~clear) | set;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

static void
count_range(void *arg, uint32 range, double done, const uint64 *keys,
			Size nkeys, bool doubt)
{
	PageRebuild *rebuild = arg;

	rebuild->counts[range % rebuild->geometry.nranges] += nkeys;
}

/* Range callback: adds the keys of a range to the image. */
static void
fill_range(void *arg, uint32 range, double done, const uint64 *keys, Size nkeys,
		   bool doubt)
{
	PageRebuild *rebuild = arg;
	int			n = rebuild->geometry.nranges;
	const uint16 *offsets = BxPageGetOffsets(rebuild->image.data, n);
	int			child = range % n;
	char	   *filter = BxPageGetContent(rebuild->image.data) + offsets[child];
	Size		size = offsets[child + 1] - offsets[child];

	for (Size i = 0; i < nkeys; i++)
		bx_packed_add(filter, size, keys[i]);
	if (doubt)
		bx_packed_set_doubt(filter, size);
}

static void
scan_page_ranges(PageRebuild *rebuild, BxRangeCallback callback)
{
	bx_repair_scan_ranges(rebuild->repair, rebuild->geometry.lg_base,
						  (uint64) rebuild->number * rebuild->geometry.nranges,
						  rebuild->geometry.nranges, callback, rebuild);
}

/*
 * ORs the image's filters into the scratch page, in which inserters set bits
 * concurrently.
 */
static void
write_scratch(PageRebuild *rebuild)
{
	Relation	index = rebuild->repair->index;
	Buffer		buffer = ReadBuffer(index, BX_SCRATCH_BLKNO);
	char	   *to = BxPageGetContent(BufferGetPage(buffer));
	const char *from = BxPageGetContent(rebuild->image.data);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_block_check_identity(index, buffer, BX_PAGE_SCRATCH, rebuild->number,
							&rebuild->geometry);
	START_CRIT_SECTION();
	for (Size i = 0; i < BX_BLOCK_SPACE(rebuild->geometry.nranges); i++)
		to[i] |= from[i];
	bx_page_changed(index, buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/*
 * Copies the scratch page over the page, and clears its flags.  Locks the
 * page exclusively and the scratch page in share mode, in that order.
 */
static void
swap_page(PageRebuild *rebuild)
{
	Relation	index = rebuild->repair->index;
	Buffer		buffer = ReadBuffer(index, bx_block_of_page(rebuild->number));
	Buffer		scratch = ReadBuffer(index, BX_SCRATCH_BLKNO);
	GenericXLogState *state;
	char	   *page;
	BxBlockFill fill;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	LockBuffer(scratch, BUFFER_LOCK_SHARE);
	bx_block_check_identity(index, buffer, BX_PAGE_BLOCK, rebuild->number,
							&rebuild->geometry);
	bx_block_check_identity(index, scratch, BX_PAGE_SCRATCH, rebuild->number,
							&rebuild->geometry);
	bx_block_check_offsets(index, BX_SCRATCH_BLKNO, BufferGetPage(scratch),
						   &rebuild->geometry);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE);
	memcpy(BxPageGetContent(page), BxPageGetContent(BufferGetPage(scratch)),
		   BX_CONTENT_SIZE);
	BxPageGetOpaque(page)->block.flags = 0;
	bx_block_set_baseline(page, rebuild->geometry.nranges, &fill);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(scratch);
	UnlockReleaseBuffer(buffer);
}

/* Rebuilds a page, in the five steps described at the top of this file. */
static void
rebuild_page(void *arg)
{
	PageRebuild *rebuild = arg;
	Relation	index = rebuild->repair->index;

	memset(rebuild->counts, 0, sizeof(rebuild->counts));
	scan_page_ranges(rebuild, count_range);
	bx_block_fill_in_counts(rebuild->counts, rebuild->geometry.nranges,
							rebuild->typical_keys);
	bx_block_make_page(rebuild->image.data, BX_PAGE_SCRATCH, rebuild->number,
					   &rebuild->geometry, rebuild->counts);
	bx_page_write_new(index, BX_SCRATCH_BLKNO, rebuild->image.data, true);
	set_flags(index, rebuild->number, &rebuild->geometry, BX_BLOCK_SHADOWED, 0);
	BX_PAUSE(BX_PAUSE_PUBLISHED);
	scan_page_ranges(rebuild, fill_range);
	write_scratch(rebuild);
	BX_PAUSE(BX_PAUSE_FILLED);
	swap_page(rebuild);
	rebuild->repair->pages++;
}

/* Clears the flag "shadowed" after a failed rebuild. */
static void
give_up_page(void *arg)
{
	PageRebuild *rebuild = arg;

	set_flags(rebuild->repair->index, rebuild->number, &rebuild->geometry, 0,
			  BX_BLOCK_SHADOWED);
}

/* Returns whether the page should be rebuilt. */
static bool
page_needs_rebuild(const PageRebuild *rebuild, const char *page)
{
	BxBlockFill fill;

	/* after several failures, more are to be expected */
	if (rebuild->repair->failures >= MAX_FAILURES || !rebuild->repair->may_rebuild)
		return false;
	bx_block_measure(page, rebuild->geometry.nranges, &fill);
	return fill.doubtful > 0 ||
		bx_block_is_overfull(page, &fill, rebuild->geometry.target);
}

static void
repair_page(PageRebuild *rebuild)
{
	Relation	index = rebuild->repair->index;
	PGAlignedBlock page;

	bx_vacuum_delay_point();
	bx_block_read_page(index, rebuild->number, &rebuild->geometry,
					   rebuild->repair->strategy, page.data);
	if (BxPageGetOpaque(page.data)->block.flags & BX_BLOCK_SHADOWED)
		give_up_page(rebuild);
	if (page_needs_rebuild(rebuild, page.data))
		bx_repair_try(rebuild->repair, rebuild_page, give_up_page, rebuild);
}

/* Repairs the pages whose ranges exist in the heap. */
void
bx_block_repair(BxRepair *repair)
{
	PageRebuild *rebuild = palloc(sizeof(PageRebuild));
	BxMetaPageData meta;
	uint64		ranges;

	bx_meta_read(repair->index, &meta);
	if (meta.block.pages == 0)
		return;
	rebuild->repair = repair;
	rebuild->geometry = bx_block_geometry(&meta);
	rebuild->typical_keys = meta.stats.range_keys;
	ranges = bx_geometry_ranges(RelationGetNumberOfBlocks(repair->heap),
								meta.lg_base);
	for (uint32 i = 0; i < meta.block.pages &&
		 (uint64) i * meta.block.nranges < ranges; i++)
	{
		rebuild->number = i;
		repair_page(rebuild);
	}
	pfree(rebuild);
}
