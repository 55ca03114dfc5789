/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Inserting: sets the bits of a row's keys in the filter of its range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "block.h"

/* Maximum number of keys that one WAL record sets. */
#define MAX_RECORD_KEYS		(BX_MAX_PAGE_BITS / BX_PACKED_MAX_PROBES)

/*
 * Maximum number of keys of a row that are tested and set under one lock of
 * the page.
 */
#define MAX_BATCH			4096

/* Number of keys for which no memory is allocated. */
#define FEW_KEYS			4

typedef struct BlockInsert
{
	BxBlockGeometry geometry;
	uint32		npages;			/* number of pages of filters, at least */
	BlockNumber index_blocks;	/* number of blocks of the file, at least; 0
								 * if unknown */
} BlockInsert;

/*
 * Caches the number of pages from the metapage: most rows belong to an
 * existing page.
 */
void *
bx_block_insert_begin(const BxMetaPageData *meta)
{
	BlockInsert *state = palloc(sizeof(BlockInsert));

	state->geometry = bx_block_geometry(meta);
	state->npages = meta->block.pages;
	state->index_blocks = 0;
	return state;
}

/* Chooses the geometry from the size of the first row. */
static void
choose_geometry(BxMetaPageData *meta, BxInsert *insert, Relation heap,
				ItemPointer tid)
{
	double		keys = bx_geometry_rows_per_page(heap, tid) *
	insert->keys_per_row;

	if (meta->lg_base == BX_LG_BASE_UNSET)
		meta->lg_base = bx_geometry_auto_lg_base(&bx_layout_block, keys);
	keys = keys * (1 << meta->lg_base) + insert->natts;
	meta->block.nranges = bx_block_choose_ranges(&keys, 1, meta->false_positive_rate);
	meta->stats.range_keys = keys;
	meta->stats.range_rate = meta->false_positive_rate;
	meta->stats.block.ranges_per_page = meta->block.nranges;
}

/*
 * Returns the keys per range that a new page should be planned for: the mean
 * of the last page, if enough of its filters have keys.
 */
static double
keys_of_last_page(Relation index, const BxMetaPageData *meta)
{
	BxBlockGeometry geometry = bx_block_geometry(meta);
	PGAlignedBlock page;
	BxBlockFill fill;

	if (meta->block.pages == 0)
		return meta->stats.range_keys;
	bx_block_read_page(index, meta->block.pages - 1, &geometry, NULL, page.data);
	bx_block_measure(page.data, geometry.nranges, &fill);
	return fill.filters >= Min(BX_FEW_CHILDREN, geometry.nranges) ?
		fill.keys / fill.filters : Max(meta->stats.range_keys, 1);
}

/*
 * Creates all pages up to the page of a row, and counts them in the metapage.
 * Pages that a failure has left uncounted are overwritten.  Acquires and
 * releases LockPage on the metapage; call it with no content lock held.
 */
static void
make_pages(BxInsert *insert, Relation heap, ItemPointer tid)
{
	BlockInsert *state = insert->layout_state;
	Relation	index = insert->index;
	BxMetaPageData meta;
	uint32		wanted;

	LockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
	bx_meta_read(index, &meta);
	if (meta.block.nranges == 0)
		choose_geometry(&meta, insert, heap, tid);
	state->geometry = bx_block_geometry(&meta);
	wanted = (ItemPointerGetBlockNumber(tid) >> meta.lg_base) /
		meta.block.nranges + 1;
	if (meta.block.pages < wanted)
	{
		if (meta.block.pages == 0)
			bx_block_put_scratch(index, &state->geometry);
		bx_block_put_even_pages(index, &state->geometry, meta.block.pages, wanted,
								keys_of_last_page(index, &meta));
		BX_PAUSE(BX_PAUSE_ALLOCATED);
		meta.block.pages = wanted;

		/* bx_meta_read() raises an error if block_pages is less than this */
		meta.stats.parts = wanted;
		bx_meta_write(index, &meta);
	}
	state->npages = meta.block.pages;
	UnlockPage(index, BX_METAPAGE_BLKNO, ExclusiveLock);
}

/* Some keys of a row, at most MAX_BATCH. */
typedef struct Batch
{
	const uint64 *keys;
	int			n;
} Batch;

/*
 * Returns whether a filter contains all keys of a batch.  The caller holds a
 * lock on the page.
 */
static bool
has_batch(const char *filter, Size size, const Batch *batch)
{
	for (int i = 0; i < batch->n; i++)
	{
		if (!bx_packed_test(filter, size, batch->keys[i]))
			return false;
	}
	return true;
}

/*
 * Sets the bits of a batch of keys in a filter, and logs them.  The caller
 * holds an exclusive lock on the page.
 */
static void
set_batch(Relation index, Buffer buffer, char *filter, Size size,
		  const Batch *batch)
{
	Size		start = filter - (char *) BufferGetPage(buffer);
	BxPageBit	few[FEW_KEYS * BX_PACKED_MAX_PROBES];
	int			most = Min(batch->n, MAX_RECORD_KEYS);
	BxPageBits	bits = {buffer, BX_OPAQUE_OFFSET, 0, few};
	int			nkeys = 0;

	if (most > FEW_KEYS)
		bits.at = palloc(sizeof(BxPageBit) * most * BX_PACKED_MAX_PROBES);
	for (int i = 0; i < batch->n; i++)
	{
		uint32		positions[BX_PACKED_MAX_PROBES];
		int			n;

		if (bx_packed_test(filter, size, batch->keys[i]))
			continue;
		if (nkeys == most)
		{
			bx_page_set_bits(index, &bits, 1);
			bits.n = nkeys = 0;
		}
		n = bx_packed_positions(filter, size, batch->keys[i], positions);
		for (int j = 0; j < n; j++)
		{
			bits.at[bits.n].offset = start + positions[j] / 8;
			bits.at[bits.n++].bit = 1 << (positions[j] % 8);
		}
		nkeys++;
	}
	if (bits.n > 0)
		bx_page_set_bits(index, &bits, 1);
	if (bits.at != few)
		pfree(bits.at);
}

/*
 * The page of filters of a row, pinned, and the scratch page if it is pinned.
 */
typedef struct RowPages
{
	Relation	index;
	const BxBlockGeometry *geometry;
	uint32		number;
	int			child;
	Buffer		buffer;
	Buffer		scratch;
} RowPages;

/*
 * Locks and verifies the page of filters.  Returns whether the page is
 * shadowed; if so, the scratch page is pinned.  No page is read while a
 * content lock is held.
 */
static bool
lock_page(RowPages *pages, int mode)
{
	for (;;)
	{
		bool		shadowed;

		LockBuffer(pages->buffer, mode);
		bx_block_check_identity(pages->index, pages->buffer, BX_PAGE_BLOCK,
								pages->number, pages->geometry);
		shadowed = (BxPageGetOpaque(BufferGetPage(pages->buffer))->block.flags &
					BX_BLOCK_SHADOWED) != 0;
		if (!shadowed || BufferIsValid(pages->scratch))
			return shadowed;
		LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
		pages->scratch = ReadBuffer(pages->index, BX_SCRATCH_BLKNO);
	}
}

/*
 * Locks the scratch page, and returns the row's filter there, or NULL if the
 * scratch page belongs to another page.  The lock is held in both cases.
 */
static char *
lock_scratch(RowPages *pages, int mode, Size *size)
{
	LockBuffer(pages->scratch, mode);
	bx_page_check(pages->index, pages->scratch, BX_PAGE_SCRATCH);
	if (BxPageGetOpaque(BufferGetPage(pages->scratch))->number != pages->number)
		return NULL;
	bx_block_check_identity(pages->index, pages->scratch, BX_PAGE_SCRATCH,
							pages->number, pages->geometry);
	return bx_block_get_filter(pages->index, pages->scratch, pages->geometry,
							   pages->child, size);
}

/*
 * Returns whether all bits of a batch of keys are set.  The share lock ensures
 * that the WAL record of these bits has been written.  No lock is held on
 * exit.
 */
static bool
find_batch(RowPages *pages, const Batch *batch)
{
	bool		shadowed = lock_page(pages, BUFFER_LOCK_SHARE);
	Size		size;
	char	   *filter = bx_block_get_filter(pages->index, pages->buffer,
											 pages->geometry, pages->child, &size);
	bool		found = has_batch(filter, size, batch);

	if (found && shadowed)
	{
		filter = lock_scratch(pages, BUFFER_LOCK_SHARE, &size);
		found = filter == NULL || has_batch(filter, size, batch);
		LockBuffer(pages->scratch, BUFFER_LOCK_UNLOCK);
	}
	LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
	return found;
}

/*
 * Sets a batch of keys.  Returns whether the filter lacked batch->keys[last]
 * until this call.
 */
static bool
add_batch(RowPages *pages, const Batch *batch, int last)
{
	bool		shadowed = lock_page(pages, BUFFER_LOCK_EXCLUSIVE);
	Size		size;
	char	   *filter = bx_block_get_filter(pages->index, pages->buffer,
											 pages->geometry, pages->child, &size);
	bool		is_first = last >= 0 && last < batch->n &&
	!bx_packed_test(filter, size, batch->keys[last]);

	set_batch(pages->index, pages->buffer, filter, size, batch);
	if (shadowed)
	{
		filter = lock_scratch(pages, BUFFER_LOCK_EXCLUSIVE, &size);
		if (filter)
			set_batch(pages->index, pages->scratch, filter, size, batch);
		LockBuffer(pages->scratch, BUFFER_LOCK_UNLOCK);
	}
	LockBuffer(pages->buffer, BUFFER_LOCK_UNLOCK);
	return is_first;
}

/*
 * Pins the page of a heap row's filter; creates the page if it does not
 * exist.
 */
static void
pin_pages(BxInsert *insert, Relation heap, ItemPointer tid, RowPages *pages)
{
	BlockInsert *state = insert->layout_state;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);
	BlockNumber page;
	uint32		range;

	if (state->npages == 0 ||
		(blkno >> state->geometry.lg_base) / state->geometry.nranges >=
		state->npages)
		make_pages(insert, heap, tid);
	range = blkno >> state->geometry.lg_base;
	pages->index = insert->index;
	pages->geometry = &state->geometry;
	pages->number = range / state->geometry.nranges;
	pages->child = range % state->geometry.nranges;
	page = bx_block_of_page(pages->number);
	if (page >= state->index_blocks)
		state->index_blocks = RelationGetNumberOfBlocks(insert->index);
	bx_block_check_length(insert->index, state->index_blocks, page);
	pages->buffer = ReadBuffer(insert->index, page);
	pages->scratch = InvalidBuffer;
}

/*
 * Adds the keys of a row to the filter of its range, in batches; see BxLayout.
 * Call it with no content lock held: it locks one page of filters, and then
 * the scratch page if the page is shadowed.  No lock or pin is held on exit.
 */
bool
bx_block_insert(BxInsert *insert, Relation heap, ItemPointer tid,
				const BxRowKeys *row)
{
	RowPages	pages;
	bool		result = false;

	pin_pages(insert, heap, tid, &pages);
	for (int first = 0; first < row->nkeys; first += MAX_BATCH)
	{
		Batch		batch = {row->keys + first,
		Min(row->nkeys - first, MAX_BATCH)};

		CHECK_FOR_INTERRUPTS();
		BX_PAUSE(BX_PAUSE_INSERT_KEY);
		if (!find_batch(&pages, &batch))
			result |= add_batch(&pages, &batch, row->nvalues - 1 - first);
	}
	ReleaseBuffer(pages.buffer);
	if (BufferIsValid(pages.scratch))
		ReleaseBuffer(pages.scratch);
	return result;
}

/*
 * Puts the range of a heap page in doubt.  The caller holds a lock on the
 * heap that excludes VACUUM, so the scratch page will never be copied over
 * this page and need not be changed.
 */
void
bx_block_insert_doubt(BxInsert *insert, Relation heap, ItemPointer tid)
{
	Relation	index = insert->index;
	RowPages	pages;
	GenericXLogState *state;
	Page		page;
	Size		size;
	Size		offset;

	pin_pages(insert, heap, tid, &pages);
	LockBuffer(pages.buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_block_check_identity(index, pages.buffer, BX_PAGE_BLOCK, pages.number,
							pages.geometry);
	offset = bx_block_get_filter(index, pages.buffer, pages.geometry, pages.child,
								 &size) - (char *) BufferGetPage(pages.buffer);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, pages.buffer, 0);
	bx_packed_set_doubt((char *) page + offset, size);
	BxPageGetOpaque(page)->block.flags |= BX_BLOCK_DOUBT;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(pages.buffer);
}
