/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  Module entry, and the properties of the access method.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/pg_amproc.h"
#include "fmgr.h"
#include "utils/catcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "am.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bloomidx_handler);

void		_PG_init(void);

void
_PG_init(void)
{
	bx_options_init();
}

/*
 * Returns whether the operator classes of a family extract keys.  Their
 * strategies have other meanings.
 */
static bool
family_extracts(Oid opfamily)
{
	CatCList   *procs = SearchSysCacheList1(AMPROCNUM,
											ObjectIdGetDatum(opfamily));
	bool		result = false;

	for (int i = 0; i < procs->n_members; i++)
	{
		HeapTuple	tuple = &procs->members[i]->tuple;

		if (((Form_pg_amproc) GETSTRUCT(tuple))->amprocnum ==
			BX_EXTRACT_VALUE_PROC)
			result = true;
	}
	ReleaseCatCacheList(procs);
	return result;
}

/*
 * Tell the server which strategy is equality.  With these, a subscriber can
 * use the index to find rows of a table with REPLICA IDENTITY FULL, and an
 * exclusion constraint on a partitioned table can be compared with the
 * partition key.
 */
CompareType
bxtranslatestrategy(StrategyNumber strategy, Oid opfamily)
{
	return strategy == BX_EQUAL_STRATEGY && !family_extracts(opfamily) ?
		COMPARE_EQ : COMPARE_INVALID;
}

StrategyNumber
bxtranslatecmptype(CompareType type, Oid opfamily)
{
	return type == COMPARE_EQ && !family_extracts(opfamily) ?
		BX_EQUAL_STRATEGY : InvalidStrategy;
}

/* Fields that are not listed are false or NULL. */
static const IndexAmRoutine routine = {
	.type = T_IndexAmRoutine,
	.amstrategies = 0,			/* extracting classes have their own numbers */
	.amsupport = BX_NPROCS,
	.amoptsprocnum = BX_OPTIONS_PROC,
	.amstorage = true,
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
	.amtranslatestrategy = bxtranslatestrategy,
	.amtranslatecmptype = bxtranslatecmptype,
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
	.amgettuple = bxgettuple,
	.amgetbitmap = bxgetbitmap,
	.amendscan = bxendscan
};

Datum
bloomidx_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(bx_am_routine(&routine));
}
