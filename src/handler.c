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

Datum
bloomidx_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *am = makeNode(IndexAmRoutine);

	/* makeNode zeroes: what is not named here is false or NULL */
	am->amstrategies = BX_NSTRATEGIES;
	am->amsupport = BX_NPROCS;
	am->amcanmulticol = true;
	am->amoptionalkey = true;
	am->amsearcharray = true;
	am->amsearchnulls = true;
	am->amusemaintenanceworkmem = true;
	am->amkeytype = InvalidOid;
#if PG_VERSION_NUM >= 160000
	am->amsummarizing = true;
#endif
#if PG_VERSION_NUM >= 180000
	am->amconsistentequality = true;
#endif

	am->ambuild = bxbuild;
	am->ambuildempty = bxbuildempty;
	am->aminsert = bxinsert;
	am->ambulkdelete = bxbulkdelete;
	am->amvacuumcleanup = bxvacuumcleanup;
	am->amcostestimate = bxcostestimate;
	am->amoptions = bxoptions;
	am->ambuildphasename = bxbuildphasename;
	am->amvalidate = bxvalidate;
	am->ambeginscan = bxbeginscan;
	am->amrescan = bxrescan;
	am->amgetbitmap = bxgetbitmap;
	am->amendscan = bxendscan;

	PG_RETURN_POINTER(am);
}
