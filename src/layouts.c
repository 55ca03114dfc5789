/*-------------------------------------------------------------------------
 *
 * layouts.c
 *	  The list of layouts.  A new layout is a folder with a BxLayout, and a line
 *	  here.
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

/* The layouts one after the other: the first for NULL, NULL after the last. */
const BxLayout *
bx_layout_next(const BxLayout *layout)
{
	int			i = 0;

	while (layout != NULL && layouts[i++] != layout)
		;
	return i < lengthof(layouts) ? layouts[i] : NULL;
}

/* The callbacks of a layout, by the number in the metapage. */
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

/* The layout of an index. */
const BxLayout *
bx_layout_of(Relation index)
{
	BxMetaPageData meta;

	bx_meta_read(index, &meta);
	return bx_layout_by_id(index, meta.layout);
}
