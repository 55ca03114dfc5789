/*-------------------------------------------------------------------------
 *
 * layouts.c
 *	  The list of layouts.  To add a layout, add a folder with a BxLayout,
 *	  and an element here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "block/block.h"
#include "layouts.h"
#include "partitioned/partitioned.h"

static const BxLayout *const layouts[] = {
	&bx_layout_partitioned, &bx_layout_block
};

/*
 * Iterates over the layouts: returns the first one for NULL, and NULL after
 * the last one.
 */
const BxLayout *
bx_layout_next(const BxLayout *layout)
{
	int			i = 0;

	while (layout != NULL && layouts[i++] != layout)
		;
	return i < lengthof(layouts) ? layouts[i] : NULL;
}

/*
 * Returns a layout by the number in the metapage.  Raises an error if it is
 * unknown.
 */
const BxLayout *
bx_layout_by_id(Relation index, uint8 id)
{
	for (int i = 0; i < lengthof(layouts); i++)
	{
		if (layouts[i]->id == id)
			return layouts[i];
	}
	bx_page_corrupted(index, BX_METAPAGE_BLKNO, "unknown layout");
}

/* Returns the layout of an index, according to its metapage. */
const BxLayout *
bx_layout_of(Relation index)
{
	BxMetaPageData meta;

	bx_meta_read(index, &meta);
	return bx_layout_by_id(index, meta.layout);
}
