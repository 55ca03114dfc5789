/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  Module entry, and what PostgreSQL is told about the access method.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "fmgr.h"
#include "utils/rel.h"

#include "bloomidx.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bloomidx_handler);

void		_PG_init(void);

void
_PG_init(void)
{
	bx_options_init();
}

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

/* What is not named here is false or NULL. */
static const IndexAmRoutine routine = {
	.type = T_IndexAmRoutine,
	.amstrategies = BX_NSTRATEGIES,
	.amsupport = BX_NPROCS,
	.amcanmulticol = true,
	.amoptionalkey = true,
	.amsearcharray = true,
	.amsearchnulls = true,
	.amusemaintenanceworkmem = true,
	.amkeytype = InvalidOid,
#if PG_VERSION_NUM >= 160000
	.amsummarizing = true,
#endif
#if PG_VERSION_NUM >= 170000
	.amcanbuildparallel = true,
#endif
#if PG_VERSION_NUM >= 180000
	.amconsistentequality = true,
#endif

	.ambuild = bxbuild,
	.ambuildempty = bxbuildempty,
	.aminsert = bxinsert,
	.ambulkdelete = bxbulkdelete,
	.amvacuumcleanup = bxvacuumcleanup,
	.amcostestimate = bxcostestimate,
	.amoptions = bxoptions,
	.ambuildphasename = bxbuildphasename,
	.amvalidate = bxvalidate,
	.ambeginscan = bxbeginscan,
	.amrescan = bxrescan,
	.amgetbitmap = bxgetbitmap,
	.amendscan = bxendscan
};

Datum
bloomidx_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(bx_am_routine(&routine));
}
