/*-------------------------------------------------------------------------
 *
 * planhook.c
 *	  Indexes that the planner does not see, or that it takes for hypothetical
 *	  ones.  To be used by LOAD.
 *
 * planhook.hide is the name of an access method, whose indexes are hidden.
 *
 * planhook.pretend makes the indexes of bloomidx hypothetical: as with tools
 * that try out indexes which do not exist, there is no relation to look at.
 *
 * planned_index_pages(index) says how many index pages a scan was last expected
 * to read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "fmgr.h"
#include "nodes/pathnodes.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(planned_index_pages);

void		_PG_init(void);

static char *hide;
static bool pretend;

/* What the planner was last told of an index. */
#define MAX_INDEXES		32

static struct
{
	Oid			indexoid;
	amcostestimate_function estimate;
	double		pages;
}			known[MAX_INDEXES];

static int
find_index(Oid indexoid)
{
	int			i = 0;

	while (i < MAX_INDEXES - 1 && OidIsValid(known[i].indexoid) &&
		   known[i].indexoid != indexoid)
		i++;
	known[i].indexoid = indexoid;
	return i;
}

static void
estimate_and_note(PlannerInfo *root, IndexPath *path, double loop_count,
				  Cost *startup, Cost *total, Selectivity *selectivity,
				  double *correlation, double *pages)
{
	int			i = find_index(path->indexinfo->indexoid);

	known[i].estimate(root, path, loop_count, startup, total, selectivity,
					  correlation, pages);
	known[i].pages = *pages;
}

Datum
planned_index_pages(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(known[find_index(PG_GETARG_OID(0))].pages);
}

static void
adjust_indexes(RelOptInfo *rel)
{
	List	   *visible = NIL;
	ListCell   *lc;

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);
		const char *method = get_am_name(index->relam);

		if (strcmp(method, hide) == 0)
			continue;
		if (pretend && strcmp(method, "bloomidx") == 0)
		{
			index->hypothetical = true;
			index->indexoid = InvalidOid;
			index->pages = 1;
		}
		else
		{
			known[find_index(index->indexoid)].estimate =
				(amcostestimate_function) index->amcostestimate;
			index->amcostestimate = estimate_and_note;
		}
		visible = lappend(visible, index);
	}
	rel->indexlist = visible;
}

#if PG_VERSION_NUM >= 190000
static void
on_relation(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	adjust_indexes(rel);
}
#else
static void
on_relation(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	adjust_indexes(rel);
}
#endif

/* EXPLAIN asks for the name of an index that has none. */
static const char *
name_index(Oid indexoid)
{
	return OidIsValid(indexoid) ? NULL : "hypothetical";
}

void
_PG_init(void)
{
	DefineCustomStringVariable("planhook.hide", "Hides indexes.", NULL, &hide,
							   "", PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("planhook.pretend", "Pretends.", NULL, &pretend,
							 false, PGC_USERSET, 0, NULL, NULL, NULL);
	explain_get_index_name_hook = name_index;
#if PG_VERSION_NUM >= 190000
	build_simple_rel_hook = on_relation;
#else
	get_relation_info_hook = on_relation;
#endif
}
