/*-------------------------------------------------------------------------
 *
 * writer.c
 *	  Builds the slices of a node from the keys of its children.
 *
 * The keys are collected in memory until the node is complete.  Then its size
 * is chosen and its bits are set.  If the keys do not fit in memory, the size
 * is chosen from the keys collected so far, and from then on the bits are
 * kept in memory instead of the keys.  If the bits do not fit either, then
 * each time the memory for keys is full, the bits are computed for a part of
 * the slices at a time and ORed into the pages.
 *
 * In memory the bits of a slice are stored in planes, one for every eight
 * children (filter/filter.h).  They are transposed when the pages are
 * written.
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

/* Size of a plane, and of all planes of a slice. */
#define PLANE_BYTES		BX_PLANE_BYTES(BX_SLICE_ROWS)
#define SLICE_BYTES		(PLANE_BYTES * BX_PLANES)

/* Minimum number of keys that are kept in memory. */
#define FEWEST_KEPT_KEYS		1024

/* Number of keys whose bits are set between two checks for interrupts. */
#define KEYS_AT_ONCE	65536

/*
 * A run of keys of one child in BxNodeWriter.keys; it starts where the
 * previous run ends.
 */
typedef struct Run
{
	int			child;
	Size		end;
} Run;

struct BxNodeWriter
{
	Relation	index;
	pg_atomic_uint32 *next_generation;
	double		rate;			/* target false-positive rate of the node */
	double		most_keys;		/* that a child can have */
	Size		limit;			/* maximum number of keys in memory */
	uint32		window_size;	/* maximum number of slices whose bits are in
								 * memory */

	uint64	   *keys;
	Size		nkeys;
	Size		allocated;
	Run			runs[BX_FANOUT];
	int			nruns;
	BxMask		doubt;			/* children whose filter must match everything */

	/*
	 * to choose the size: sum of squares of the distinct keys of complete
	 * children
	 */
	double		squares;
	int			nchildren;
	double		open_keys;		/* distinct keys of the incomplete child */
	double		open_done;		/* fraction of that child that has been read */

	BxAddKeys	add_keys;
	uint8	   *planes;			/* indexed by child / 8, slice in the window,
								 * row */
	uint8	   *scratch;		/* one plane for each slice, for the keys of
								 * one child; all zero between uses */
	uint32		planes_slices;	/* slices for which memory is allocated */
	bool		written;		/* all pages have been written at least once */

	BxKeysCallback watch;		/* gets all keys, or NULL */
	void	   *watch_arg;

	BxNodeDesc	previous;		/* the previous node that has slices */
	BxNode		node;			/* the state is BX_NODE_PRESENT once the size
								 * is chosen */
};

/*
 * Creates a writer for the nodes of a level.  "memory" is its memory budget
 * in bytes.
 */
BxNodeWriter *
bx_writer_create(BxBuild *build, int level, Size memory)
{
	BxNodeWriter *writer = palloc0(sizeof(BxNodeWriter));

	writer->index = build->index;
	writer->next_generation = &build->shared->next_generation;
	writer->node.level = level;
	writer->most_keys = bx_node_most_keys(build->index, &build->shared->meta,
										  level);
	writer->add_keys = bx_filter_choose_add_keys();
	writer->limit = Max(memory / 4 * 3 / sizeof(uint64), FEWEST_KEPT_KEYS);
	writer->window_size = Max(memory / 4 / (SLICE_BYTES + PLANE_BYTES), 1);
	writer->allocated = Min(writer->limit, 8192);
	writer->keys = palloc(sizeof(uint64) * writer->allocated);
	return writer;
}

/*
 * From now on passes all keys to callback(), some time before the node is
 * finished.
 */
void
bx_writer_watch(BxNodeWriter *writer, BxKeysCallback callback, void *arg)
{
	writer->watch = callback;
	writer->watch_arg = arg;
}

void
bx_writer_free(BxNodeWriter *writer)
{
	if (writer->planes)
	{
		pfree(writer->planes);
		pfree(writer->scratch);
	}
	pfree(writer->keys);
	pfree(writer);
}

/*
 * Starts the next node.  "rate" is the target false-positive rate of its
 * filters.
 */
void
bx_writer_start(BxNodeWriter *writer, uint32 number, double rate)
{
	writer->node.number = number;
	writer->rate = rate;
	writer->nkeys = 0;
	writer->nruns = 0;
	bx_mask_fill(&writer->doubt, false);
	writer->squares = 0;
	writer->nchildren = 0;
	writer->open_keys = writer->open_done = 0;
	if (writer->node.desc.state == BX_NODE_PRESENT)
		writer->previous = writer->node.desc;
	memset(&writer->node.desc, 0, sizeof(writer->node.desc));
	writer->written = false;
}

/* Returns the keys per child that the node should be planned for. */
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
	return Min(keys, writer->most_keys);
}

/*
 * Chooses the size of the node, and allocates its pages and the memory for
 * its bits.
 */
static void
choose_size(BxNodeWriter *writer)
{
	BxNodeDesc *desc = &writer->node.desc;
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

/*
 * Sets the bits, in memory, of the collected keys that belong to n slices
 * beginning with "first".
 */
static void
set_bits(BxNodeWriter *writer, uint32 first, uint32 n)
{
	BxPlanes	planes = {writer->node.level, BX_SLICE_ROWS,
	writer->node.desc.nprobes, writer->node.desc.nslices, first, n};
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

		/*
		 * the merge is cheap even for few keys: all merges together cost no
		 * more than writing the pages
		 */
		bx_filter_merge(&planes, writer->scratch,
						writer->planes + PLANE_BYTES * n * (run->child / 8));
	}
}

/*
 * Writes n slices, beginning with "first", whose bits are in memory.  Pages
 * that have been written before are ORed.
 */
static void
write_slices(BxNodeWriter *writer, uint32 first, uint32 n)
{
	PGAlignedBlock image;
	char	   *rows = BxPageGetContent(image.data);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		slice = first + i;

		CHECK_FOR_INTERRUPTS();
		bx_slices_init_page(image.data, &writer->node, slice);
		bx_filter_transpose(writer->planes + PLANE_BYTES * i, PLANE_BYTES * n,
							rows, BX_SLICE_ROWS);
		bx_slices_set_doubt(rows, &writer->doubt);
		((PageHeader) image.data)->pd_lower = BX_SLICE_LOWER_FULL;
		if (writer->written)
			bx_slices_write(writer->index, &writer->node, slice, rows, false);
		else
			bx_page_write_new(writer->index, writer->node.desc.start + slice,
							  image.data, false);
	}
}

/* Returns whether the bits of all slices fit in memory. */
static bool
bits_fit(const BxNodeWriter *writer)
{
	return writer->node.desc.nslices <= writer->window_size;
}

/*
 * Sets the bits of all collected keys, and discards the keys.  If the bits of
 * all slices do not fit in memory, they are written to the pages.
 */
static void
flush(BxNodeWriter *writer)
{
	if (writer->node.desc.state != BX_NODE_PRESENT)
		choose_size(writer);
	if (bits_fit(writer))
		set_bits(writer, 0, writer->node.desc.nslices);
	else
	{
		for (uint32 first = 0; first < writer->node.desc.nslices;
			 first += writer->window_size)
		{
			uint32		n = Min(writer->window_size,
								writer->node.desc.nslices - first);

			memset(writer->planes, 0, SLICE_BYTES * n);
			set_bits(writer, first, n);
			write_slices(writer, first, n);
		}
		writer->written = true;
	}
	if (writer->watch)
		writer->watch(writer->watch_arg, writer->keys, writer->nkeys);
	writer->nkeys = 0;
	writer->nruns = 0;
}

/*
 * Adds keys to a child; children are passed in ascending order.  "distinct"
 * is the number of distinct keys of the child so far, including these, and
 * "done" the fraction of the child that has been read.  Both are used to
 * choose the size.
 */
void
bx_writer_add(BxNodeWriter *writer, int child, const uint64 *keys, Size n,
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

/*
 * Completes the current child.  "distinct" is the number of its distinct
 * keys.
 */
void
bx_writer_close_child(BxNodeWriter *writer, double distinct)
{
	if (distinct > 0)
	{
		writer->squares += distinct * distinct;
		writer->nchildren++;
	}
	writer->open_keys = writer->open_done = 0;
}

/*
 * Completes the node: writes and logs its pages, and sets *desc.  Returns the
 * mean false-positive rate of the filters of the children that have keys or
 * are in doubt; 0 if the node is empty.
 */
double
bx_writer_finish(BxNodeWriter *writer, BxNodeDesc *desc)
{
	BxMeasure	measure;
	int			nchildren;

	if (writer->nkeys > 0 || !bx_mask_is_empty(&writer->doubt))
		flush(writer);
	*desc = writer->node.desc;
	if (!bx_mask_is_empty(&writer->doubt))
		desc->flags |= BX_DESC_DOUBT;
	if (desc->state != BX_NODE_PRESENT)
		return 0;
	if (bits_fit(writer))
		write_slices(writer, 0, desc->nslices);
	if (!bx_slices_measure(writer->index, &writer->node, NULL, &measure))
		bx_page_corrupted(writer->index, desc->start,
						  "not the page that was written");
	bx_slices_set_baseline(desc, &measure);
	if (RelationNeedsWAL(writer->index))
		log_newpage_range(writer->index, MAIN_FORKNUM, desc->start,
						  desc->start + desc->nslices, true);

	/*
	 * approximate: children with no key in a measured slice count as rate 0
	 */
	nchildren = Max(measure.nchildren, writer->nchildren);
	return nchildren > 0 ? measure.rate * measure.nchildren / nchildren : 0;
}
