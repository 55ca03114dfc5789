/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What a scan costs: the index pages that it reads, and the heap ranges
 *	  that match, rightly or in vain.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

#include "am.h"

/* Looking at a page, or hashing an element, in units of cpu_operator_cost. */
#define VISIT_COST		10

/* What is known of an index that a scan may use. */
typedef struct IndexFacts
{
	const BxLayout *layout;
	BxSearchFacts search;
	bool		simple[INDEX_MAX_KEYS]; /* a tuple tells a column's value */
} IndexFacts;

/* What a scan will meet. */
typedef struct ScanPages
{
	double		elements;		/* values that are looked for */
	double		hit;			/* ranges that hold a matching row */
	double		heap;			/* pages of all ranges that match */
	bool		simple;			/* rows.c can tell which rows match */
	double		index;			/* pages of the index */
	BxSearchCost search;
} ScanPages;

/* Distinct values of an index column in so many rows, if they are anywhere. */
static double
scattered_distinct(PlannerInfo *root, IndexOptInfo *index, int col,
				   double rows)
{
	TargetEntry *entry = list_nth_node(TargetEntry, index->indextlist, col);
	VariableStatData vardata;
	bool		isdefault;
	double		distinct;

	examine_variable(root, (Node *) entry->expr, 0, &vardata);
	distinct = get_variable_numdistinct(&vardata, &isdefault);
	ReleaseVariableStats(vardata);
	return bx_geometry_ranges_hit(distinct, rows);
}

/* The automatic pages_per_range that a build would come to. */
static uint8
guess_lg_base(PlannerInfo *root, IndexOptInfo *index, const BxLayout *layout)
{
	double		rows_per_page = index->rel->tuples / Max(index->rel->pages, 1);

	for (uint8 lg = 0;; lg++)
	{
		double		pages = 1 << lg;
		double		keys = 0;

		for (int col = 0; col < index->nkeycolumns; col++)
			keys += scattered_distinct(root, index, col,
									   rows_per_page * pages);
		if (bx_geometry_auto_lg_base(layout, keys / pages) <= lg)
			return bx_geometry_grow_lg_base(layout, lg, index->rel->pages);
	}
}

/*
 * Whether a search can tell from a tuple alone which value an index column
 * has (rows.c).  Of an index that does not exist we take it to be so.
 */
static bool
is_simple(IndexOptInfo *index, Relation rel, int col)
{
	BxHasher	hasher;

	if (index->indexkeys[col] == 0)
		return false;			/* an expression */
	if (rel == NULL)
		return true;
	bx_hasher_init(&hasher, rel, col + 1, InvalidOid);
	return hasher.is_simple;
}

/* Reads the metapage, or invents one for an index that does not exist. */
static void
get_facts(PlannerInfo *root, IndexOptInfo *index, IndexFacts *facts)
{
	BxSearchFacts *search = &facts->search;
	uint8		lg_base = BX_LG_BASE_UNSET;
	Relation	rel = NULL;

	memset(facts, 0, sizeof(*facts));
	facts->layout = bx_layout_next(NULL);
	search->target_rate = BX_DEFAULT_RATE;
	if (!index->hypothetical)
	{
		BxMetaPageData meta;

		/* the planner holds a lock already */
		rel = index_open(index->indexoid, NoLock);
		bx_meta_read(rel, &meta);
		facts->layout = bx_layout_by_id(rel, meta.layout);
		search->stats = meta.stats;
		search->target_rate = meta.false_positive_rate;
		lg_base = meta.lg_base;
	}
	for (int col = 0; col < index->nkeycolumns; col++)
		facts->simple[col] = is_simple(index, rel, col);
	if (rel != NULL)
		index_close(rel, NoLock);
	if (lg_base == BX_LG_BASE_UNSET)
		lg_base = guess_lg_base(root, index, facts->layout);
	search->pages_per_range = 1 << lg_base;
	search->ranges = Max(ceil(index->rel->pages / search->pages_per_range), 1);
}

/* Values that a qual looks for. */
static double
count_elements(PlannerInfo *root, Node *clause)
{
	if (IsA(clause, ScalarArrayOpExpr))
		return Max(1, bx_estimate_array_length(root,
											   lsecond(((ScalarArrayOpExpr *) clause)->args)));
	return 1;
}

/*
 * Distinct values of an index column in a range, by the keys that the index
 * has counted.  Less than scattered_distinct() means that equal values stand
 * together.  Of several columns, those with more values are taken to be
 * scattered, and leave the rest to this one.
 */
static double
counted_distinct(PlannerInfo *root, IndexOptInfo *index,
				 const BxSearchFacts *facts, int col)
{
	double		rows = index->rel->tuples / facts->ranges;
	double		own = scattered_distinct(root, index, col, rows);
	double		left = facts->stats.range_keys - index->nkeycolumns;

	if (facts->stats.range_keys == 0)
		return own;
	for (int i = 0; i < index->nkeycolumns; i++)
	{
		double		other = i == col ? 0 :
		scattered_distinct(root, index, i, rows);

		if (other > own)
			left -= other;
	}
	return Max(1.0, Min(own, left));
}

/*
 * Ranges that hold a row that a qual on the column lets through.  If a range
 * has d distinct values in r rows, then the rows of a value come r / d at a
 * time.
 */
static double
qual_ranges_hit(PlannerInfo *root, IndexOptInfo *index,
				const BxSearchFacts *facts, RestrictInfo *qual, int col)
{
	double		rows = index->rel->tuples *
	clause_selectivity(root, (Node *) qual, index->rel->relid, JOIN_INNER,
					   NULL);
	double		hit = bx_geometry_ranges_hit(facts->ranges, rows);

	if (!IsA(qual->clause, NullTest) && index->rel->tuples > 0)
	{
		double		rows_per_range = index->rel->tuples / facts->ranges;
		double		together = Max(rows_per_range /
								   counted_distinct(root, index, facts, col),
								   1.0);

		hit = Min(hit, Max(rows / together, Min(rows, 1.0)));
	}
	return hit;
}

/*
 * Estimates which ranges match, rightly or in vain, and how many index pages
 * are read to find them.
 */
static void
estimate_pages(PlannerInfo *root, IndexPath *path, double loop_count,
			   const IndexFacts *facts, List *all_quals, ScanPages *pages)
{
	IndexOptInfo *index = path->indexinfo;
	RelOptInfo *rel = index->rel;
	const BxSearchFacts *search = &facts->search;
	double		rel_pages = Max(rel->pages, 1);
	double		fraction = 1;
	ListCell   *lc;

	memset(pages, 0, sizeof(*pages));
	pages->simple = path->indexclauses != NIL;
	pages->hit = bx_geometry_ranges_hit(search->ranges, rel->tuples *
										clauselist_selectivity(root, all_quals,
															   rel->relid,
															   JOIN_INNER, NULL));
	foreach(lc, path->indexclauses)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);
		ListCell   *lc2;

		foreach(lc2, clause->indexquals)
		{
			RestrictInfo *qual = lfirst_node(RestrictInfo, lc2);
			double		n = count_elements(root, (Node *) qual->clause);
			double		qual_hit = qual_ranges_hit(root, index, search, qual,
												   clause->indexcol);

			pages->elements += n;
			pages->simple &= IsA(qual->clause, NullTest) ?
				index->indexkeys[clause->indexcol] != 0 :
				facts->simple[clause->indexcol];
			fraction *= facts->layout->match_fraction(search, n, qual_hit);
			pages->hit = Min(pages->hit, qual_hit);
		}
	}
	if (path->indexclauses == NIL)
		fraction = pages->hit / search->ranges;
	pages->heap = Max(fraction, pages->hit / search->ranges) * rel_pages;
	pages->heap = Max(pages->heap,
					  Min(1.0, pages->hit) * search->pages_per_range);
	pages->heap = Min(pages->heap, rel_pages);

	/* index pages, some of which a repeated scan finds in cache */
	facts->layout->search_cost(search, Max(pages->elements, 1), pages->hit,
							   &pages->search);
	pages->index = pages->search.pages;
	if (!index->hypothetical)
		pages->index = Min(pages->index, Max(index->pages, 1));
	if (loop_count > 1)
		pages->index = index_pages_fetched(pages->index * loop_count,
										   Max(index->pages, 1),
										   Max(index->pages, 1), root) /
			loop_count;
}

void
bxcostestimate(PlannerInfo *root, IndexPath *path, double loop_count,
			   Cost *indexStartupCost, Cost *indexTotalCost,
			   Selectivity *indexSelectivity, double *indexCorrelation,
			   double *indexPages)
{
	IndexOptInfo *index = path->indexinfo;
	RelOptInfo *rel = index->rel;
	List	   *quals = get_quals_from_indexclauses(path->indexclauses);
	List	   *all_quals = add_predicate_to_index_quals(index, quals);
	double		rel_pages = Max(rel->pages, 1);
	IndexFacts	facts;
	ScanPages	pages;
	QualCost	recheck;
	double		random_page_cost;
	double		seq_page_cost;
	double		charged;
	double		tuples;
	double		per_tuple;

	get_facts(root, index, &facts);
	estimate_pages(root, path, loop_count, &facts, all_quals, &pages);
	get_tablespace_page_costs(index->reltablespace, &random_page_cost,
							  &seq_page_cost);

	/*
	 * The planner turns our selectivity into a number of tuples, and takes it
	 * that these are spread over the heap.  What we find are pages.  So we
	 * give the selectivity that makes it expect the right number of pages...
	 */
	charged = 2.0 * rel_pages * pages.heap / (2.0 * rel_pages - pages.heap);
	*indexSelectivity = charged / Max(rel->tuples, 1);
	CLAMP_PROBABILITY(*indexSelectivity);

	/*
	 * ... and charge here for the other tuples on them, which we look at, or
	 * the executor rechecks.
	 */
	tuples = pages.heap * rel->tuples / rel_pages;
	cost_qual_eval(&recheck, all_quals, root);
	per_tuple = pages.simple &&
		pages.heap <= BX_FEW_PAGES(pages.elements, facts.search.pages_per_range) ?
		cpu_operator_cost : cpu_tuple_cost + recheck.per_tuple;
	*indexStartupCost = index_other_operands_eval_cost(root, quals) +
		recheck.startup;
	*indexTotalCost = *indexStartupCost +
		pages.index * (pages.search.in_order ? seq_page_cost :
					   random_page_cost) +
		pages.search.operations * cpu_operator_cost +
		(pages.index + pages.heap + pages.elements) * VISIT_COST *
		cpu_operator_cost +
		Max(tuples - charged, 0) * per_tuple;
	*indexCorrelation = 0;
	*indexPages = pages.index;
}
