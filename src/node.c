/*-------------------------------------------------------------------------
 *
 * node.c
 *	  Makes the slices of a node from the keys of its children, in a build.
 *
 * The keys are collected in memory until all of them are known; only then is
 * the node's size chosen.  If they do not fit, the size is chosen from what has
 * come so far, and bits are written as often as the memory is full.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bloomidx.h"

/* Keys of one child that lie together in BxNodeWriter.keys. */
typedef struct Run
{
	int			child;
	Size		end;
} Run;

struct BxNodeWriter
{
	Relation	index;
	BxMetaPageData *meta;
	int			level;
	uint32		node;
	double		rate;			/* target */
	Size		limit;			/* keys that may be kept in memory */
	uint32		window_size;	/* slices that may be worked on at once */

	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	Run			runs[BX_FANOUT];
	int			nruns;
	BxMask		doubt;			/* children whose filter must match all */

	/* for the size: distinct keys of the children that are complete */
	double		squares;
	int			nchildren;
	double		open_keys;		/* and of the one that is not */
	double		open_done;		/* how much of it is done */

	BxNodeDesc	previous;		/* the last node that was written */
	BxNodeDesc	desc;			/* state is present once it has slices */
};

/* Makes a writer for the nodes of a level. */
BxNodeWriter *
bx_node_create(Relation index, BxMetaPageData *meta, int level, double rate,
			   Size memory)
{
	BxNodeWriter *writer = palloc0(sizeof(BxNodeWriter));

	writer->index = index;
	writer->meta = meta;
	writer->level = level;
	writer->rate = rate;
	writer->limit = memory / 4 * 3 / sizeof(uint64);
	writer->window_size = Max(memory / 4 / BX_SLICE_SIZE, 1);
	writer->allocated = Min(writer->limit, 8192);
	writer->keys = palloc(sizeof(uint64) * writer->allocated);
	return writer;
}

void
bx_node_free(BxNodeWriter *writer)
{
	pfree(writer->keys);
	pfree(writer);
}

/* Starts the next node. */
void
bx_node_start(BxNodeWriter *writer, uint32 node)
{
	writer->node = node;
	writer->nkeys = 0;
	writer->nruns = 0;
	bx_mask_fill(&writer->doubt, false);
	writer->squares = 0;
	writer->nchildren = 0;
	writer->open_keys = writer->open_done = 0;
	if (writer->desc.state == BX_NODE_PRESENT)
		writer->previous = writer->desc;
	memset(&writer->desc, 0, sizeof(writer->desc));
}

/* Keys per child that the node should be planned for. */
static double
planned_keys(BxNodeWriter *writer)
{
	double		keys = 0;

	if (writer->nchildren > 0)
		keys = sqrt(writer->squares / writer->nchildren);
	else if (writer->open_done > 0)
		keys = writer->open_keys / writer->open_done;
	if (writer->nchildren < BX_FEW_CHILDREN &&
		writer->previous.state == BX_NODE_PRESENT)
		keys = Max(keys, writer->previous.keys);
	return keys;
}

/* Makes the filters of some children, in n slices, match everything. */
void
bx_node_set_doubt(char *rows, uint32 n, const BxMask *doubt)
{
	if (bx_mask_is_empty(doubt))
		return;
	for (Size row = 0; row < (Size) n * BX_SLICE_ROWS; row++)
		bx_mask_or((BxMask *) (rows + row * BX_ROW_BYTES), doubt);
}

/*
 * ORs rows into a slice page: other backends may set bits there, too.  wal is
 * false in a build, which logs all pages at its end.
 */
void
bx_node_write_slice(Relation index, int level, uint32 node,
					const BxNodeDesc *desc, uint32 slice, const char *rows,
					bool wal)
{
	BlockNumber blkno = desc->start + slice;
	Buffer		buffer = ReadBuffer(index, blkno);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	bx_page_check(index, buffer, BX_PAGE_SLICE);
	if (!bx_page_is_slice(page, level, node, slice, desc))
		bx_page_corrupted(index, blkno,
						  "not the page that the directory says");
	START_CRIT_SECTION();
	for (Size offset = 0; offset < BX_SLICE_SIZE; offset += BX_ROW_BYTES)
		bx_mask_or((BxMask *) (BxPageGetContent(page) + offset),
				   (const BxMask *) (rows + offset));
	((PageHeader) page)->pd_lower = BX_SLICE_LOWER_FULL;
	MarkBufferDirty(buffer);
	if (wal && RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* Sets the bits of the collected keys that fall into slices first .. + n. */
static void
set_window_bits(BxNodeWriter *writer, char *window, uint32 first, uint32 n)
{
	const BxNodeDesc *desc = &writer->desc;
	Size		i = 0;

	memset(window, 0, BX_SLICE_SIZE * n);
	for (int r = 0; r < writer->nruns; r++)
	{
		for (; i < writer->runs[r].end; i++)
		{
			uint64		lh = bx_filter_level_hash(writer->keys[i],
												  writer->level);
			uint32		slice = bx_filter_slice(lh, desc->nslices);

			if (slice >= first && slice - first < n)
				bx_filter_add(window + BX_SLICE_SIZE * (slice - first),
							  BX_SLICE_ROWS, desc->nprobes, lh,
							  writer->runs[r].child);
		}
	}
	bx_node_set_doubt(window, n, &writer->doubt);
}

/* Writes the bits of all collected keys, and forgets them. */
static void
flush(BxNodeWriter *writer)
{
	uint32		window_size;
	char	   *window;

	if (writer->desc.state != BX_NODE_PRESENT)
		bx_dir_alloc_slices(writer->index, writer->meta, writer->level,
							writer->node, planned_keys(writer), writer->rate,
							&writer->desc, false);
	window_size = Min(writer->window_size, writer->desc.nslices);
	window = palloc_extended(BX_SLICE_SIZE * window_size, MCXT_ALLOC_HUGE);
	for (uint32 first = 0; first < writer->desc.nslices; first += window_size)
	{
		uint32		n = Min(window_size, writer->desc.nslices - first);

		CHECK_FOR_INTERRUPTS();
		set_window_bits(writer, window, first, n);
		for (uint32 i = 0; i < n; i++)
			bx_node_write_slice(writer->index, writer->level, writer->node,
								&writer->desc, first + i,
								window + BX_SLICE_SIZE * i, false);
	}
	pfree(window);
	writer->nkeys = 0;
	writer->nruns = 0;
}

/*
 * Adds keys to a child; children come in order.  For the size, "distinct" is
 * the number of distinct keys that the child has with these, and "done" the
 * part of it that has been seen.
 */
void
bx_node_add(BxNodeWriter *writer, int child, const uint64 *keys, Size n,
			bool doubt, double distinct, double done)
{
	writer->open_keys = distinct;
	writer->open_done = done;
	if (doubt)
		bx_mask_set(&writer->doubt, child);
	while (n > 0)
	{
		Size		part;

		if (writer->nkeys == writer->limit)
			flush(writer);
		if (writer->nkeys == writer->allocated)
		{
			writer->allocated = Min(writer->allocated * 2, writer->limit);
			writer->keys = repalloc_huge(writer->keys,
										 sizeof(uint64) * writer->allocated);
		}
		part = Min(n, writer->allocated - writer->nkeys);
		memcpy(writer->keys + writer->nkeys, keys, sizeof(uint64) * part);
		writer->nkeys += part;
		keys += part;
		n -= part;
		if (writer->nruns == 0 ||
			writer->runs[writer->nruns - 1].child != child)
			writer->runs[writer->nruns++].child = child;
		writer->runs[writer->nruns - 1].end = writer->nkeys;
	}
}

/* The current child is complete, with so many distinct keys. */
void
bx_node_close_child(BxNodeWriter *writer, double distinct)
{
	if (distinct > 0)
	{
		writer->squares += distinct * distinct;
		writer->nchildren++;
	}
	writer->open_keys = writer->open_done = 0;
}

/* Completes the node, and describes it. */
void
bx_node_finish(BxNodeWriter *writer, BxNodeDesc *desc)
{
	if (writer->nkeys > 0 || !bx_mask_is_empty(&writer->doubt))
		flush(writer);
	if (!bx_mask_is_empty(&writer->doubt))
		writer->desc.flags |= BX_DESC_DOUBT;
	*desc = writer->desc;
}
