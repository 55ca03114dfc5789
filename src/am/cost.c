/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  Cost of a scan: the index pages that are read, and the heap ranges
 *	  that match, including false positives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

#include "am.h"

/*
 * Cost of visiting a page or hashing an element, in units of
 * cpu_operator_cost.
 */
#define VISIT_COST		10

/*
 * Assumptions about an extracting qual whose operand is not known at planning
 * time: the number of keys that a match must have.
 */
#define UNKNOWN_KEYS	2

/*
 * Index pages of a node that are read until a key is found that no child of
 * the node has.
 */
#define PROBED_KEYS		4

/*
 * Fraction of the ranges that have all keys of a qual with many keys, although
 * no single row has all these keys.
 */
#define FOUND_APART		0.002

/*
 * Added to the cost of a scan that reads the whole table, because the filters
 * have no keys for its quals.  So a sequential scan is preferred, unless it is
 * disabled.
 */
#define USELESS_COST	1.0e9

/*
 * Added to the cost of a scan that calls functions that the query does not
 * contain (predicate.c).  Any other plan is preferred; but since PostgreSQL 18
 * a plan with a disabled scan is not.
 */
#define FORBIDDEN_COST	1.0e100

/* Properties of an index that a scan may use. */
typedef struct IndexFacts
{
	const BxLayout *layout;
	BxSearchFacts search;
	uint8		keys;			/* BX_KEYS_xxx */
	bool		simple[INDEX_MAX_KEYS]; /* the column can be hashed from the
										 * tuple alone */
	bool		extracts[INDEX_MAX_KEYS];	/* the class of the column
											 * extracts */
	bool		fragmented;		/* some column has n-grams as keys */
} IndexFacts;

/* What a qual looks for. */
typedef struct QualKeys
{
	double		elements;		/* elements that are looked for in a node */
	double		fraction;		/* of the ranges: those that match */
} QualKeys;

/* Estimates for a scan. */
typedef struct ScanPages
{
	double		elements;		/* elements of the query */
	double		hit;			/* ranges that contain a matching row */
	double		heap;			/* heap pages of all ranges that match */
	bool		simple;			/* heap/rows.c can test a condition on a row */
	bool		useless;		/* the filters have no keys for the quals */
	double		index;			/* index pages read */
	BxSearchCost search;
} ScanPages;

/*
 * Returns the expected number of distinct values of an index column in the
 * given number of rows, if the values are distributed at random.
 */
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

/*
 * Returns the expected number of distinct combinations of values of all index
 * columns in the given number of rows, if they are distributed at random.
 */
static double
scattered_combinations(PlannerInfo *root, IndexOptInfo *index, double rows)
{
	double		tuples = Max(index->rel->tuples, 1);
	double		product = 1;

	for (int col = 0; col < index->nkeycolumns; col++)
		product *= Max(scattered_distinct(root, index, col, tuples), 1);
	return bx_geometry_ranges_hit(Min(product, tuples), rows);
}

/*
 * Returns log2 of automatic pages_per_range, as a build would probably choose
 * it.
 */
static uint8
guess_lg_base(PlannerInfo *root, IndexOptInfo *index, const BxLayout *layout,
			  uint8 which)
{
	double		rows_per_page = index->rel->tuples / Max(index->rel->pages, 1);

	for (uint8 lg = 0;; lg++)
	{
		double		pages = 1 << lg;
		double		keys = 0;

		if (which & BX_KEYS_ALL)
			keys += scattered_combinations(root, index, rows_per_page * pages);
		for (int col = 0; col < index->nkeycolumns && (which & BX_KEYS_EACH);
			 col++)
			keys += scattered_distinct(root, index, col,
									   rows_per_page * pages);
		if (bx_geometry_auto_lg_base(layout, keys / pages) <= lg)
			return bx_geometry_grow_lg_base(layout, lg, index->rel->pages);
	}
}

/*
 * Returns whether a search can hash an index column from the tuple alone
 * (heap/rows.c).  This is assumed for columns of a hypothetical index.
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

/*
 * Gets the properties of an index from the metapage, or assumes defaults for
 * a hypothetical index.
 */
static void
get_facts(PlannerInfo *root, IndexOptInfo *index, IndexFacts *facts)
{
	BxSearchFacts *search = &facts->search;
	uint8		lg_base = BX_LG_BASE_UNSET;
	Relation	rel = NULL;

	memset(facts, 0, sizeof(*facts));
	facts->layout = bx_layout_next(NULL);
	facts->keys = bx_options_keys(index->nkeycolumns, false, 0);
	search->target_rate = BX_DEFAULT_RATE;
	if (!index->hypothetical)
	{
		BxMetaPageData meta;

		/* the planner already holds a lock */
		rel = index_open(index->indexoid, NoLock);
		bx_meta_read(rel, &meta);
		facts->layout = bx_layout_by_id(rel, meta.layout);
		facts->keys = meta.keys;
		search->stats = meta.stats;
		search->target_rate = meta.false_positive_rate;
		lg_base = meta.lg_base;
	}
	for (int col = 0; col < index->nkeycolumns; col++)
	{
		facts->simple[col] = is_simple(index, rel, col);
		facts->extracts[col] = rel != NULL &&
			bx_extract_is_used(rel, col + 1);
		facts->fragmented |= facts->extracts[col] &&
			bx_text_is_fragmented(rel, col + 1);
	}
	if (rel != NULL)
		index_close(rel, NoLock);
	if (lg_base == BX_LG_BASE_UNSET)
		lg_base = guess_lg_base(root, index, facts->layout, facts->keys);
	search->pages_per_range = 1 << lg_base;
	search->ranges = Max(ceil(index->rel->pages / search->pages_per_range), 1);
}

/* Returns the number of elements of a qual. */
static double
count_elements(PlannerInfo *root, Node *clause)
{
	if (IsA(clause, ScalarArrayOpExpr))
		return Max(1, bx_estimate_array_length(root,
											   lsecond(((ScalarArrayOpExpr *) clause)->args)));
	return 1;
}

/*
 * Returns the number of distinct values of an index column in a range,
 * according to the keys per range in the statistics.  A result below
 * scattered_distinct() means that equal values are clustered.  If there are
 * several columns, those with more distinct values are assumed to be
 * scattered, and the remaining keys are attributed to this column.
 */
static double
counted_distinct(PlannerInfo *root, IndexOptInfo *index,
				 const IndexFacts *index_facts, int col)
{
	const BxSearchFacts *facts = &index_facts->search;
	double		rows = index->rel->tuples / facts->ranges;
	double		own = scattered_distinct(root, index, col, rows);
	double		left = facts->stats.range_keys - index->nkeycolumns;

	if (facts->stats.range_keys == 0 || !(index_facts->keys & BX_KEYS_EACH))
		return own;
	if (index_facts->keys & BX_KEYS_ALL)
		left -= scattered_combinations(root, index, rows);
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
 * Returns the number of ranges that contain a row that satisfies a qual on
 * the column.  If a range has d distinct values in r rows, rows of the same
 * value are assumed to occur in groups of r / d.
 */
static double
qual_ranges_hit(PlannerInfo *root, IndexOptInfo *index,
				const IndexFacts *index_facts, RestrictInfo *qual, int col)
{
	const BxSearchFacts *facts = &index_facts->search;
	double		rows = index->rel->tuples *
	clause_selectivity(root, (Node *) qual, index->rel->relid, JOIN_INNER,
					   NULL);
	double		hit = bx_geometry_ranges_hit(facts->ranges, rows);

	if (!IsA(qual->clause, NullTest) && index->rel->tuples > 0 &&
		!index_facts->extracts[col])
	{
		double		rows_per_range = index->rel->tuples / facts->ranges;
		double		together = Max(rows_per_range /
								   counted_distinct(root, index, index_facts,
													col),
								   1.0);

		hit = Min(hit, Max(rows / together, Min(rows, 1.0)));
	}
	return hit;
}

/*
 * Makes the scan key of a qual on an extracting column.  Returns false if the
 * operand is not known at planning time.
 */
static bool
make_scan_key(PlannerInfo *root, IndexOptInfo *index, int col, Node *clause,
			  ScanKey key)
{
	Node	   *operand;
	Oid			operator;

	memset(key, 0, sizeof(*key));
	if (IsA(clause, OpExpr))
	{
		operator = ((OpExpr *) clause)->opno;
		operand = lsecond(((OpExpr *) clause)->args);
	}
	else if (IsA(clause, ScalarArrayOpExpr))
	{
		operator = ((ScalarArrayOpExpr *) clause)->opno;
		operand = lsecond(((ScalarArrayOpExpr *) clause)->args);
		key->sk_flags = SK_SEARCHARRAY;
	}
	else
		return false;
	operand = estimate_expression_value(root, operand);
	if (!IsA(operand, Const) || ((Const *) operand)->constisnull)
		return false;
	key->sk_attno = col + 1;
	key->sk_strategy = get_op_opfamily_strategy(operator, index->opfamily[col]);
	key->sk_argument = ((Const *) operand)->constvalue;
	return true;
}

/*
 * Returns the fraction of the ranges without a matching row that match a
 * clause, if "single" is that fraction for a clause with one key.
 */
static double
clause_fraction(const BxClause *clause, double single)
{
	if (clause->nrequired >= PROBED_KEYS)
		return Max(pow(single, clause->nrequired), FOUND_APART);
	if (clause->nrequired > 0)
		return pow(single, clause->nrequired);

	/* some elements may be required that are not in the sample */
	if (clause->opaque != NULL && clause->noptional > BX_MAX_SAMPLED)
		return pow(single, UNKNOWN_KEYS);
	return clause->is_open ? 1.0 : Min(1.0, single * clause->noptional);
}

/*
 * Estimates a qual on an extracting column, of which hit_ranges ranges have a
 * matching row.  If the operand is known, its keys are extracted, as GIN's
 * cost estimate does.
 */
static void
estimate_extracted(PlannerInfo *root, IndexOptInfo *index,
				   const IndexFacts *facts, int col, Node *clause,
				   double hit_ranges, QualKeys *result)
{
	double		hit = hit_ranges / facts->search.ranges;
	double		single = facts->layout->match_fraction(&facts->search, 1, 0);
	double		apart = 0;
	BxQuery		query;
	BxHasher	hasher;
	ScanKeyData key;
	Relation	rel;

	result->elements = UNKNOWN_KEYS;
	result->fraction = Min(1.0, hit + pow(single, UNKNOWN_KEYS));
	if (!make_scan_key(root, index, col, clause, &key))
		return;
	rel = index_open(index->indexoid, NoLock);
	bx_hasher_init(&hasher, rel, col + 1, InvalidOid);
	bx_query_init(&query, 1);
	(void) bx_extract_condition(&query, &hasher, &key, true);
	index_close(rel, NoLock);
	result->elements = 0;
	for (int i = 0; i < query.conditions[0].nclauses; i++)
	{
		const BxClause *part = &query.conditions[0].clauses[i];

		apart += clause_fraction(part, single);
		result->elements += Min(part->nrequired, PROBED_KEYS) +
			part->noptional;
	}
	result->fraction = Min(1.0, hit + (1.0 - hit) * Min(apart, 1.0));
}

/* Estimates a qual of the index. */
static void
estimate_qual(PlannerInfo *root, IndexOptInfo *index, const IndexFacts *facts,
			  int col, Node *clause, double hit_ranges, QualKeys *result)
{
	if (facts->extracts[col] && !IsA(clause, NullTest))
	{
		estimate_extracted(root, index, facts, col, clause, hit_ranges, result);
		return;
	}
	result->elements = count_elements(root, clause);
	result->fraction = facts->layout->match_fraction(&facts->search,
													 result->elements,
													 hit_ranges);
}

/*
 * Returns the number of combined keys that a scan looks for, given the number
 * of values sought in each column; 0 if it does not look for combined keys.
 * See bx_query_for_filters().
 */
static double
count_combined(const IndexOptInfo *index, const IndexFacts *facts,
			   const double *sought)
{
	double		product = 1;

	if (!(facts->keys & BX_KEYS_ALL))
		return 0;
	for (int col = 0; col < index->nkeycolumns; col++)
		product *= sought[col];
	return product <= BX_MAX_COMBINED ? product : 0;
}

/*
 * Estimates how many heap pages match, including false positives, and how
 * many index pages are read to find them.
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
	double		sought[INDEX_MAX_KEYS] = {0};
	double		combined;
	ListCell   *lc;

	memset(pages, 0, sizeof(*pages));
	pages->hit = bx_geometry_ranges_hit(search->ranges, rel->tuples *
										clauselist_selectivity(root, all_quals,
															   rel->relid,
															   JOIN_INNER, NULL));
	pages->useless = path->indexclauses != NIL;
	foreach(lc, path->indexclauses)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);
		double	   *values = &sought[clause->indexcol];
		ListCell   *lc2;

		foreach(lc2, clause->indexquals)
		{
			RestrictInfo *qual = lfirst_node(RestrictInfo, lc2);
			double		qual_hit = qual_ranges_hit(root, index, facts, qual,
												   clause->indexcol);
			QualKeys	keys;

			estimate_qual(root, index, facts, clause->indexcol,
						  (Node *) qual->clause, qual_hit, &keys);
			pages->elements += keys.elements;
			pages->simple |= IsA(qual->clause, NullTest) ?
				index->indexkeys[clause->indexcol] != 0 :
				facts->simple[clause->indexcol];
			if (!IsA(qual->clause, NullTest))
				*values = *values == 0 ? keys.elements :
					Min(*values, keys.elements);
			if (IsA(qual->clause, NullTest) || (facts->keys & BX_KEYS_EACH))
			{
				fraction *= keys.fraction;
				pages->useless = false;
			}
			pages->hit = Min(pages->hit, qual_hit);
		}
	}
	combined = count_combined(index, facts, sought);
	if (combined > 0)
	{
		pages->elements = combined;
		pages->useless = false;
		fraction = facts->layout->match_fraction(search, combined, pages->hit);
	}
	if (path->indexclauses == NIL)
		fraction = pages->hit / search->ranges;
	pages->heap = Max(fraction, pages->hit / search->ranges) * rel_pages;
	pages->heap = Max(pages->heap,
					  Min(1.0, pages->hit) * search->pages_per_range);
	pages->heap = Min(pages->heap, rel_pages);

	/* index pages, some of which are cached if the scan is repeated */
	facts->layout->search_cost(search, Max(pages->elements, 1), pages->hit,
							   &pages->search);
	pages->index = pages->search.pages;

	/* all segments have most n-grams */
	if (facts->fragmented && !pages->search.in_order)
		pages->index = Max(pages->index, PROBED_KEYS *
						   ceil(search->ranges / BX_FANOUT));
	if (!index->hypothetical)
		pages->index = Min(pages->index, Max(index->pages, 1));
	if (loop_count > 1)
		pages->index = index_pages_fetched(pages->index * loop_count,
										   Max(index->pages, 1),
										   Max(index->pages, 1), root) /
			loop_count;
}

/*
 * Returns the index correlation with which the planner charges the same cost
 * for the heap in an index scan as in a bitmap scan.
 *
 * The planner uses the same results of bxcostestimate() for both kinds of
 * scans, except that it ignores the correlation for bitmap scans.  With
 * correlation 0 the planner charges an index scan a random page for every heap
 * page, although the scan reads the pages in order, as a bitmap scan does.
 * With correlation 1 the planner charges a random page for the first heap
 * page, and sequential pages for the others (min_io).  If both kinds of scans
 * have the same cost, the planner chooses the index scan, because its startup
 * cost is lower.  This choice is right: in measurements an index scan was
 * never slower than a bitmap scan, and was twice as fast if more than
 * BX_FEW_PAGES pages matched, because a bitmap scan does not check the rows of
 * so many pages.
 */
static double
choose_correlation(RelOptInfo *rel, double heap_pages, double selectivity)
{
	double		rel_pages = Max(rel->pages, 1);
	double		random_page_cost;
	double		seq_page_cost;
	double		max_io;
	double		bitmap_io;
	double		min_io;

	get_tablespace_page_costs(rel->reltablespace, &random_page_cost,
							  &seq_page_cost);
	max_io = heap_pages * random_page_cost;
	bitmap_io = max_io;
	if (heap_pages >= 2)
		bitmap_io -= heap_pages * (random_page_cost - seq_page_cost) *
			sqrt(Min(heap_pages / rel_pages, 1));
	min_io = random_page_cost +
		Max(ceil(selectivity * rel_pages) - 1, 0) * seq_page_cost;

	/* the administrator may have made random pages cheaper than others */
	if (max_io <= min_io || max_io <= bitmap_io)
		return 0;
	return sqrt(Min(1, (max_io - bitmap_io) / (max_io - min_io)));
}

/*
 * Returns the cost of the filter search until it finds the first range.  An
 * index scan pauses the search then.
 */
static double
first_search_cost(const IndexFacts *facts, const ScanPages *pages,
				  double whole)
{
	BxSearchCost first;

	if (pages->hit <= 1 || pages->search.pages <= 0)
		return whole;
	facts->layout->search_cost(&facts->search, Max(pages->elements, 1), 1,
							   &first);

	/* a layout that reads all its pages in order stops at the first range */
	return whole * Min(first.pages / pages->search.pages,
					   first.in_order ? 1 / pages->hit : 1);
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
	List	   *hidden = bx_predicate_hidden(index);

	/* estimating the selectivity of a condition may run its functions */
	List	   *all_quals = hidden == NIL ?
	add_predicate_to_index_quals(index, quals) : quals;
	double		rel_pages = Max(rel->pages, 1);
	IndexFacts	facts;
	ScanPages	pages;
	QualCost	recheck;
	double		random_page_cost;
	double		seq_page_cost;
	double		charged;
	double		tuples;
	double		per_tuple;
	double		search_cost;

	/*
	 * An index scan evaluates the whole predicate (heap/visible.c).  The
	 * planner reads this field after the cost.
	 */
	if (hidden != NIL || bx_predicate_is_simplified(index))
		index->amhasgettuple = false;

	get_facts(root, index, &facts);
	estimate_pages(root, path, loop_count, &facts, all_quals, &pages);
	get_tablespace_page_costs(index->reltablespace, &random_page_cost,
							  &seq_page_cost);

	/*
	 * The planner converts the selectivity to a number of tuples, and assumes
	 * that these tuples are scattered over the heap, but we return pages.
	 * Therefore we invert the planner's formula, and return the selectivity
	 * from which the planner computes the right number of pages ...
	 */
	charged = 2.0 * rel_pages * pages.heap / (2.0 * rel_pages - pages.heap);
	*indexSelectivity = charged / Max(rel->tuples, 1);
	CLAMP_PROBABILITY(*indexSelectivity);

	/*
	 * ... and charge here for the other tuples on these pages, which bloomidx
	 * checks or the executor rechecks.
	 */
	tuples = Max(pages.heap * rel->tuples / rel_pages - charged, 0);
	cost_qual_eval(&recheck, all_quals, root);
	per_tuple = pages.simple &&
		pages.heap <= BX_FEW_PAGES(pages.elements, facts.search.pages_per_range) ?
		cpu_operator_cost : cpu_tuple_cost + recheck.per_tuple;

	search_cost = pages.index * (pages.search.in_order ? seq_page_cost :
								 random_page_cost) +
		pages.search.operations * cpu_operator_cost +
		(pages.index + pages.elements) * VISIT_COST * cpu_operator_cost;
	*indexStartupCost = index_other_operands_eval_cost(root, quals) +
		recheck.startup + (pages.useless ? USELESS_COST : 0) +
		(bx_predicate_is_rechecked(path, hidden) ? FORBIDDEN_COST : 0);
	*indexTotalCost = *indexStartupCost + search_cost +
		pages.heap * VISIT_COST * cpu_operator_cost +
		tuples * per_tuple;
	*indexStartupCost += first_search_cost(&facts, &pages, search_cost);

	/*
	 * The planner assumes that an index-only scan does not read all-visible
	 * heap pages, but ours reads all (heap/visible.c).
	 */
	if (path->path.pathtype == T_IndexOnlyScan)
	{
		get_tablespace_page_costs(rel->reltablespace, &random_page_cost, NULL);
		*indexTotalCost += pages.heap * rel->allvisfrac * random_page_cost +
			(tuples + charged) * cpu_tuple_cost;
	}
	*indexCorrelation = choose_correlation(rel, pages.heap, *indexSelectivity);
	*indexPages = pages.index;
}
