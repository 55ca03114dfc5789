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

#include "bloomidx.h"

/* Testing one filter for one key, in units of cpu_operator_cost. */
#define TEST_COST		0.5

/* Ranges that hold at least one of so many rows, if these are anywhere. */
double
bx_cost_ranges_hit(double ranges, double rows)
{
	if (ranges <= 1)
		return Min(ranges, rows);
	return ranges * -expm1(rows * log1p(-1.0 / ranges));
}

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
	return bx_cost_ranges_hit(distinct, rows);
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
		if (bx_dir_auto_lg_base(layout, keys / pages) <= lg)
			return bx_dir_grow_lg_base(layout, lg, index->rel->pages);
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
	bx_hasher_init(&hasher, rel, col + 1);
	return hasher.is_simple;
}

/* Reads the metapage, or invents one for an index that does not exist. */
static void
get_facts(PlannerInfo *root, IndexOptInfo *index, BxFacts *facts)
{
	uint8		lg_base = BX_LG_BASE_UNSET;
	Relation	rel = NULL;

	memset(facts, 0, sizeof(*facts));
	facts->layout = &bx_layout_partitioned;
	facts->segment_rate = BX_DEFAULT_RATE;
	if (!index->hypothetical)
	{
		BxMetaPageData meta;

		/* the planner holds a lock already */
		rel = index_open(index->indexoid, NoLock);
		bx_meta_read(rel, &meta);
		facts->layout = bx_layout_by_id(rel, meta.layout);
		facts->stats = meta.stats;
		facts->segment_rate = meta.false_positive_rate;
		lg_base = meta.lg_base;
	}
	for (int col = 0; col < index->nkeycolumns; col++)
		facts->simple[col] = is_simple(index, rel, col);
	if (rel != NULL)
		index_close(rel, NoLock);
	if (lg_base == BX_LG_BASE_UNSET)
		lg_base = guess_lg_base(root, index, facts->layout);
	facts->pages_per_range = 1 << lg_base;
	facts->ranges = Max(ceil(index->rel->pages / facts->pages_per_range), 1);
	if (facts->stats.segments > 0)
		facts->segment_rate = facts->stats.segment_rate;
	facts->summary_rate = facts->stats.summarized > 0 ?
		facts->stats.summary_rate : BX_SUMMARY_RATE;
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
counted_distinct(PlannerInfo *root, IndexOptInfo *index, BxFacts *facts,
				 int col)
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
qual_ranges_hit(PlannerInfo *root, IndexOptInfo *index, BxFacts *facts,
				RestrictInfo *qual, int col)
{
	double		rows = index->rel->tuples *
	clause_selectivity(root, (Node *) qual, index->rel->relid, JOIN_INNER,
					   NULL);
	double		hit = bx_cost_ranges_hit(facts->ranges, rows);

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
 * Part of all ranges that a qual alone lets through, rightly or in vain, if so
 * many of the ranges hold what it looks for.
 */
double
bx_cost_match_fraction(const BxFacts *facts, double hit_ranges, double elements)
{
	double		hit = hit_ranges / facts->ranges;
	double		segments = Max(facts->ranges / BX_FANOUT, 1);
	double		passes = Min(1.0, hit_ranges / elements / segments +
							 facts->summary_rate);

	/*
	 * A segment is asked only for those elements that pass its summary; where
	 * there is none, for all.
	 */
	if (facts->stats.summarized == 0)
		passes = 1.0;
	return hit + (1.0 - hit) * -expm1(-elements * passes *
									  facts->segment_rate);
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
	BxFacts		facts;
	QualCost	recheck;
	double		random_page_cost;
	double		seq_page_cost;
	double		elements = 0;
	double		fraction = 1;
	double		hit;
	double		index_pages;
	double		heap_pages;
	double		tuples;
	double		pages = Max(rel->pages, 1);
	double		charged;
	double		per_tuple;
	bool		simple = quals != NIL;
	ListCell   *lc;

	get_facts(root, index, &facts);
	get_tablespace_page_costs(index->reltablespace, &random_page_cost,
							  &seq_page_cost);

	/* ranges that match */
	hit = bx_cost_ranges_hit(facts.ranges,
							 rel->tuples * clauselist_selectivity(root, all_quals,
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
			double		qual_hit = qual_ranges_hit(root, index, &facts, qual,
												   clause->indexcol);

			elements += n;
			simple &= IsA(qual->clause, NullTest) ?
				index->indexkeys[clause->indexcol] != 0 :
				facts.simple[clause->indexcol];
			fraction *= bx_cost_match_fraction(&facts, qual_hit, n);
			hit = Min(hit, qual_hit);
		}
	}
	if (quals == NIL)
		fraction = hit / facts.ranges;
	heap_pages = Max(fraction, hit / facts.ranges) * pages;
	heap_pages = Max(heap_pages, Min(1.0, hit) * facts.pages_per_range);
	heap_pages = Min(heap_pages, pages);

	/* index pages, some of which a repeated scan finds in cache */
	index_pages = facts.layout->search_pages(&facts.stats, facts.ranges,
											 Max(elements, 1), hit);
	if (!index->hypothetical)
		index_pages = Min(index_pages, Max(index->pages, 1));
	if (loop_count > 1)
		index_pages = index_pages_fetched(index_pages * loop_count,
										  Max(index->pages, 1),
										  Max(index->pages, 1), root) /
			loop_count;

	/*
	 * The planner turns our selectivity into a number of tuples, and takes it
	 * that these are spread over the heap.  What we find are pages.  So we
	 * give the selectivity that makes it expect the right number of pages...
	 */
	charged = 2.0 * pages * heap_pages / (2.0 * pages - heap_pages);
	*indexSelectivity = charged / Max(rel->tuples, 1);
	CLAMP_PROBABILITY(*indexSelectivity);

	/*
	 * ... and charge here for the other tuples on them, which we look at, or
	 * the executor rechecks.
	 */
	tuples = heap_pages * rel->tuples / pages;
	cost_qual_eval(&recheck, all_quals, root);
	per_tuple = simple && heap_pages <= BX_FEW_PAGES(elements, facts.pages_per_range) ?
		cpu_operator_cost : cpu_tuple_cost + recheck.per_tuple;
	*indexStartupCost = index_other_operands_eval_cost(root, quals) +
		recheck.startup;
	*indexTotalCost = *indexStartupCost +
		index_pages * (facts.layout->sequential ? seq_page_cost :
					   random_page_cost) +
		(facts.layout->sequential ? facts.ranges * Max(elements, 1) *
		 TEST_COST * cpu_operator_cost : 0) +
		(index_pages + heap_pages) * 10 * cpu_operator_cost +
		elements * 10 * cpu_operator_cost +
		Max(tuples - charged, 0) * per_tuple;
	*indexCorrelation = 0;
	*indexPages = index_pages;
}
