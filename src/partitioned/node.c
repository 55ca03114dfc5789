/*-------------------------------------------------------------------------
 *
 * node.c
 *	  Makes the slices of a node from the keys of its children, in a build.
 *
 * The keys are collected in memory until all of them are known; only then is
 * the node's size chosen, and its bits are set.  If they do not fit, the size
 * is chosen from what has come so far, and from then on the bits are kept
 * instead of the keys.  If even these do not fit, they are made for a part of
 * the slices at a time, and ORed into the pages as often as the memory for
 * keys is full.
 *
 * In memory the bits of a slice are kept by child, eight of them together, in
 * planes (filter.h), and are transposed when the pages are written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "partitioned.h"

/* Bytes of a plane, and of a slice's. */
#define PLANE_BYTES		BX_PLANE_BYTES(BX_SLICE_ROWS)
#define SLICE_BYTES		(PLANE_BYTES * BX_PLANES)

/* However small a participant's share of memory is, it keeps so many keys. */
#define FEWEST_KEPT_KEYS		1024

/* Keys whose bits are set before the next look for interrupts. */
#define KEYS_AT_ONCE	65536

/* Keys of one child that lie together in BxNodeWriter.keys. */
typedef struct Run
{
	int			child;
	Size		end;
} Run;

struct BxNodeWriter
{
	Relation	index;
	pg_atomic_uint32 *next_generation;
	int			level;
	uint32		node;
	double		rate;			/* target */
	Size		limit;			/* keys that may be kept in memory */
	uint32		window_size;	/* slices whose bits may be */

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

	BxAddKeys	add_keys;
	uint8	   *planes;			/* by eight children, slice of the window, row */
	uint8	   *scratch;		/* a plane of each slice, for one child's
								 * keys; all zero between uses */
	uint32		planes_slices;	/* slices for which there is memory */
	bool		written;		/* the pages have been written before */

	BxNodeDesc	previous;		/* the last node that was written */
	BxNodeDesc	desc;			/* state is present once it has a size */
};

/* Makes a writer for the nodes of a level. */
BxNodeWriter *
bx_node_create(BxBuild *build, int level, double rate, Size memory)
{
	BxNodeWriter *writer = palloc0(sizeof(BxNodeWriter));

	writer->index = build->index;
	writer->next_generation = &build->shared->next_generation;
	writer->level = level;
	writer->rate = rate;
	writer->add_keys = bx_filter_choose_add_keys();
	writer->limit = Max(memory / 4 * 3 / sizeof(uint64), FEWEST_KEPT_KEYS);
	writer->window_size = Max(memory / 4 / (SLICE_BYTES + PLANE_BYTES), 1);
	writer->allocated = Min(writer->limit, 8192);
	writer->keys = palloc(sizeof(uint64) * writer->allocated);
	return writer;
}

void
bx_node_free(BxNodeWriter *writer)
{
	if (writer->planes)
	{
		pfree(writer->planes);
		pfree(writer->scratch);
	}
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
	writer->written = false;
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

/* Chooses the node's size, and gets its pages and memory for its bits. */
static void
choose_size(BxNodeWriter *writer)
{
	BxNodeDesc *desc = &writer->desc;
	uint32		n;

	bx_slices_plan(planned_keys(writer), writer->rate,
				   pg_atomic_fetch_add_u32(writer->next_generation, 1),
				   desc);
	desc->start = bx_page_extend(writer->index, desc->nslices);
	n = Min(writer->window_size, desc->nslices);
	if (n > writer->planes_slices)
	{
		if (writer->planes)
		{
			pfree(writer->planes);
			pfree(writer->scratch);
		}
		writer->planes = palloc_extended(SLICE_BYTES * n, MCXT_ALLOC_HUGE);
		writer->scratch = palloc_extended(PLANE_BYTES * n,
										  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
		writer->planes_slices = n;
	}
	memset(writer->planes, 0, SLICE_BYTES * n);
}

/* Sets the bits of the collected keys that fall into n slices. */
static void
set_bits(BxNodeWriter *writer, uint32 first, uint32 n)
{
	BxPlanes	planes = {writer->level, BX_SLICE_ROWS, writer->desc.nprobes,
	writer->desc.nslices, first, n};
	Size		start = 0;

	for (int r = 0; r < writer->nruns; r++)
	{
		const Run  *run = &writer->runs[r];

		while (start < run->end)
		{
			Size		part = Min(run->end - start, KEYS_AT_ONCE);

			CHECK_FOR_INTERRUPTS();
			writer->add_keys(&planes, writer->scratch,
							 bx_filter_plane_bit(run->child),
							 writer->keys + start, part);
			start += part;
		}

		/* even for a few keys: all runs cost no more than writing the pages */
		bx_filter_merge(&planes, writer->scratch,
						writer->planes + PLANE_BYTES * n * (run->child / 8));
	}
}

/* Writes n slices, whose bits are in memory. */
static void
write_slices(BxNodeWriter *writer, uint32 first, uint32 n)
{
	PGAlignedBlock image;
	char	   *rows = BxPageGetContent(image.data);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		slice = first + i;

		CHECK_FOR_INTERRUPTS();
		bx_slices_init_page(image.data, writer->level, writer->node, slice,
							&writer->desc);
		bx_filter_transpose(writer->planes + PLANE_BYTES * i, PLANE_BYTES * n,
							rows, BX_SLICE_ROWS);
		bx_slices_set_doubt(rows, &writer->doubt);
		((PageHeader) image.data)->pd_lower = BX_SLICE_LOWER_FULL;
		if (writer->written)
			bx_slices_write(writer->index, writer->level, writer->node,
							&writer->desc, slice, rows, false);
		else
			bx_page_write_new(writer->index, writer->desc.start + slice,
							  image.data, false);
	}
}

/* Whether the bits of all slices fit in memory. */
static bool
bits_fit(const BxNodeWriter *writer)
{
	return writer->desc.nslices <= writer->window_size;
}

/* Sets the bits of all collected keys, and forgets these. */
static void
flush(BxNodeWriter *writer)
{
	if (writer->desc.state != BX_NODE_PRESENT)
		choose_size(writer);
	if (bits_fit(writer))
		set_bits(writer, 0, writer->desc.nslices);
	else
	{
		for (uint32 first = 0; first < writer->desc.nslices;
			 first += writer->window_size)
		{
			uint32		n = Min(writer->window_size,
								writer->desc.nslices - first);

			memset(writer->planes, 0, SLICE_BYTES * n);
			set_bits(writer, first, n);
			write_slices(writer, first, n);
		}
		writer->written = true;
	}
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

/*
 * Completes the node, whose pages are logged here, and describes it.  Returns
 * the rate of its children's filters: the mean over those that have keys or are
 * in doubt.
 */
double
bx_node_finish(BxNodeWriter *writer, BxNodeDesc *desc)
{
	BxMeasure	measure;
	int			nchildren;

	if (writer->nkeys > 0 || !bx_mask_is_empty(&writer->doubt))
		flush(writer);
	*desc = writer->desc;
	if (!bx_mask_is_empty(&writer->doubt))
		desc->flags |= BX_DESC_DOUBT;
	if (desc->state != BX_NODE_PRESENT)
		return 0;
	if (bits_fit(writer))
		write_slices(writer, 0, desc->nslices);
	if (!bx_slices_measure(writer->index, writer->level, writer->node, desc, NULL,
						   &measure))
		bx_page_corrupted(writer->index, desc->start,
						  "not the page that was written");
	bx_slices_set_baseline(desc, &measure);
	if (RelationNeedsWAL(writer->index))
		log_newpage_range(writer->index, MAIN_FORKNUM, desc->start,
						  desc->start + desc->nslices, true);

	/* about: those without a key where it was measured count, too, with 0 */
	nchildren = Max(measure.nchildren, writer->nchildren);
	return nchildren > 0 ? measure.rate * measure.nchildren / nchildren : 0;
}
