/*-------------------------------------------------------------------------
 *
 * estimate.c
 *	  bloomidx_estimate(): estimates the size of an index, and the pages
 *	  that a lookup would read, before the index is built.
 *
 * If all columns are plain columns of the table, the estimate uses only the
 * size of the table and the statistics of ANALYZE.  From these it computes the
 * number of distinct keys in consecutive pages.  If a column extracts, or is
 * an expression, there are no statistics of its keys, and the keys of all
 * columns are counted in a sample instead.  The sizes of the filters are
 * computed from the number of keys by the functions that CREATE INDEX uses.
 *
 * If a value has n rows, randomly distributed, a fraction p of the table does
 * not contain the value with probability (1 - p)^n.  If the table is sorted
 * by the column, equal values are adjacent instead.  Between these extremes
 * the result is interpolated by the square of the column's correlation, as in
 * the planner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/table.h"
#include "access/tupmacs.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "../am/am.h"
#include "../layouts.h"
#include "functions.h"

PG_FUNCTION_INFO_V1(bloomidx_estimate);

/* Tables with fewer pages than this are small, and so are their B-trees. */
#define SMALL_TABLE_PAGES	1000

/*
 * An index is not recommended if a lookup reads more than this fraction of
 * the table.
 */
#define MAX_USEFUL_SHARE	0.2

/* BRIN is recommended if the column's correlation exceeds this ... */
#define BRIN_CORRELATION	0.99

/* ... and the bloomidx index would have more pages than this. */
#define BRIN_MIN_PAGES		32

/*
 * If the keys are counted in a sample, a lookup is assumed to be for a value
 * that a single range contains.  The value has one key, or this number of keys
 * if the keys are n-grams.
 */
#define NGRAMS_PER_LOOKUP	8

/* Statistics of a column. */
typedef struct BxColumnModel
{
	/* in the first column, if the keys of all columns were sampled */
	const BxSample *sample;
	double		fraction;		/* of the rows: those that are indexed */
	double		lookup_keys;

	/* else */
	bool		analyzed;
	double		distinct;		/* distinct values, without NULL */
	double		null_fraction;
	double		correlation;
	int			ncommon;		/* number of most common values */
	float4	   *common;			/* fraction of the rows for each of them */
	double		width;			/* bytes of a value that is not NULL */
	char		align;
	bool		has_btree;
	bool		deduplicates;	/* a B-tree stores equal values once */
} BxColumnModel;

/* Estimates for an index. */
typedef struct Expectation
{
	const BxLayout *layout;
	int			pages_per_range;
	double		pages;
	double		range_keys;		/* keys per range */
	double		index_pages;	/* index pages that a lookup reads */
	double		heap_pages;
} Expectation;

/*
 * The column
 * ----------
 */

/*
 * Determines whether a B-tree can index the column, and deduplicate its
 * values.
 */
static void
look_at_btree(Form_pg_attribute att, BxColumnModel *column)
{
	TypeCacheEntry *type = lookup_type_cache(att->atttypid,
											 TYPECACHE_BTREE_OPFAMILY);

	column->has_btree = OidIsValid(type->btree_opf);
	column->deduplicates = column->has_btree &&
		OidIsValid(get_opfamily_proc(type->btree_opf, type->btree_opintype,
									 type->btree_opintype,
									 BTEQUALIMAGE_PROC)) &&
		(!OidIsValid(att->attcollation) ||
		 get_collation_isdeterministic(att->attcollation));
}

/* Copies the statistics of the distribution of values. */
static void
read_slots(HeapTuple tuple, BxColumnModel *column)
{
	AttStatsSlot slot;

	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_MCV, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		column->ncommon = slot.nnumbers;
		column->common = palloc(sizeof(float4) * Max(slot.nnumbers, 1));
		memcpy(column->common, slot.numbers, sizeof(float4) * slot.nnumbers);
		free_attstatsslot(&slot);
	}
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers > 0)
			column->correlation = slot.numbers[0];
		free_attstatsslot(&slot);
	}
}

/*
 * Fills in the model of a column, for a table with the given number of rows.
 */
static void
describe_column(Relation table, AttrNumber attnum, double rows,
				BxColumnModel *column)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(table), attnum - 1);
	HeapTuple	tuple;

	memset(column, 0, sizeof(*column));
	column->distinct = rows;
	column->align = att->attalign;
	column->width = att->attlen > 0 ? att->attlen :
		get_typavgwidth(att->atttypid, att->atttypmod);
	look_at_btree(att, column);

	tuple = SearchSysCache3(STATRELATTINH,
							ObjectIdGetDatum(RelationGetRelid(table)),
							Int16GetDatum(att->attnum), BoolGetDatum(false));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_statistic stats = (Form_pg_statistic) GETSTRUCT(tuple);

		column->analyzed = true;
		/* statistics may have been imported, and be any numbers */
		column->null_fraction = stats->stanullfrac >= 0 ?
			Min(stats->stanullfrac, 1.0) : 0;
		if (stats->stawidth > 0)
			column->width = stats->stawidth;
		if (stats->stadistinct > 0)
			column->distinct = Min(stats->stadistinct, rows);
		else if (stats->stadistinct < 0)
			column->distinct = rows * Min(-stats->stadistinct, 1.0);
		read_slots(tuple, column);
		ReleaseSysCache(tuple);
	}
	column->distinct = Max(Min(column->distinct,
							   rows * (1 - column->null_fraction)), 1);
	if (column->distinct < column->ncommon)
		column->ncommon = (int) column->distinct;
}

/*
 * Returns the sum of f(rows of the value) over all distinct values of a
 * column.
 */
static double
sum_over_values(const BxTableModel *model, const BxColumnModel *column,
				double (*f) (double rows, const double *arg),
				const double *arg)
{
	double		others = column->distinct - column->ncommon;
	double		part = 1 - column->null_fraction;
	double		sum = 0;

	for (int i = 0; i < column->ncommon; i++)
	{
		sum += f(model->rows * column->common[i], arg);
		part -= column->common[i];
	}
	if (others > 0 && part > 0)
		sum += others * f(model->rows * part / others, arg);
	return sum;
}

/* Interpolates between the results for scattered and for sorted values. */
static double
interpolate(const BxColumnModel *column, double scattered, double sorted)
{
	double		weight = column->correlation * column->correlation;

	return weight * Min(sorted, scattered) + (1 - weight) * scattered;
}

/*
 * Returns the probability that a value with the given number of rows occurs
 * in a fraction *part of the table.
 */
static double
chance_in_part(double rows, const double *part)
{
	return *part >= 1 ? Min(rows, 1) : -expm1(rows * log1p(-*part));
}

/*
 * Returns the expected number of distinct values of a column in a fraction of
 * the table.
 */
static double
distinct_in_part(const BxTableModel *model, const BxColumnModel *column,
				 double part)
{
	return interpolate(column,
					   sum_over_values(model, column, chance_in_part, &part),
					   column->distinct * part + 1);
}

/*
 * Returns the number of distinct combinations of values, without NULL, in the
 * table, if the columns are independent of each other.
 */
static double
combinations(const BxTableModel *model)
{
	double		product = 1;
	double		rows = model->rows;

	for (int i = 0; i < model->ncolumns; i++)
	{
		product *= model->columns[i].distinct;
		rows *= 1 - model->columns[i].null_fraction;
	}
	return Max(Min(product, rows), 1);
}

/*
 * Returns the expected number of distinct combinations of values in a fraction
 * of the table: as many as if they were randomly distributed, but not more
 * than the product of the distinct values of the columns there.
 */
static double
combinations_in_part(const BxTableModel *model, double part)
{
	double		all = combinations(model);
	double		product = 1;

	for (int i = 0; i < model->ncolumns; i++)
		product *= distinct_in_part(model, &model->columns[i], part);
	return Min(product, all * chance_in_part(model->rows / all, &part));
}

/* BxTableModel.keys */
static double
keys_in_pages(const BxTableModel *model, double heap_pages)
{
	double		part = Min(heap_pages / model->heap_pages, 1);
	double		rows = model->rows * part;
	double		keys = 0;

	if (model->columns->sample != NULL)
		return bx_sample_keys(model->columns->sample,
							  part * model->heap_pages *
							  model->columns->fraction);
	for (int i = 0; i < model->ncolumns; i++)
	{
		const BxColumnModel *column = &model->columns[i];
		double		nulls = column->null_fraction * rows;

		keys += Min(nulls, 1) + Min(rows - nulls, 1);
		if (model->key_kinds & BX_KEYS_EACH)
			keys += distinct_in_part(model, column, part);
	}
	if (model->key_kinds & BX_KEYS_ALL)
		keys += combinations_in_part(model, part);
	return keys;
}

/*
 * Returns the number of rows of a value, times the number of ranges that
 * contain the value.
 */
static double
ranges_of_rows(double rows, const double *ranges)
{
	return rows * bx_geometry_ranges_hit(*ranges, rows);
}

static double
square(double rows, const double *unused)
{
	return rows * rows;
}

/*
 * Returns the expected number of ranges that contain the first column's value
 * of a row picked at random.
 */
static double
ranges_of_value(const BxTableModel *model, double ranges)
{
	const BxColumnModel *column = &model->columns[0];
	double		rows = model->rows * (1 - column->null_fraction);
	double		scattered;
	double		sorted;

	if (rows < 1)
		return 0;
	scattered = sum_over_values(model, column, ranges_of_rows, &ranges) / rows;
	sorted = sum_over_values(model, column, square, NULL) / rows /
		model->rows * ranges + 1;
	return Min(interpolate(column, scattered, sorted), ranges);
}

/*
 * Returns the expected number of ranges that contain the values of a lookup:
 * the values of all columns of a row, if there is a combined key, otherwise
 * the value of the first column.
 */
static double
ranges_of_lookup(const BxTableModel *model, double ranges)
{
	double		hit = ranges_of_value(model, ranges);

	if (model->key_kinds & BX_KEYS_ALL)
		hit = Min(hit, bx_geometry_ranges_hit(ranges, model->rows /
											  combinations(model)));
	return hit;
}

/*
 * The B-tree
 * ----------
 *
 * As CREATE INDEX makes it, with the default fillfactor.
 */
#define BTREE_LEAF_BYTES	((BLCKSZ - SizeOfPageHeaderData - \
							  sizeof(BTPageOpaqueData)) * \
							 (BTREE_DEFAULT_FILLFACTOR / 100.0))
#define BTREE_INNER_BYTES	((BLCKSZ - SizeOfPageHeaderData - \
							  sizeof(BTPageOpaqueData)) * \
							 (BTREE_NONLEAF_FILLFACTOR / 100.0))

/* the build creates posting lists of at most a tenth of a page */
#define BTREE_LIST_BYTES	(MAXALIGN_DOWN(BLCKSZ * 10 / 100) - \
							 sizeof(ItemIdData))

/*
 * Returns the size in bytes of an entry with one TID, without line pointer.
 * Each column contributes its width times the fraction of entries in which it
 * is not NULL.
 */
static double
btree_entry_bytes(const BxTableModel *model, bool with_nulls)
{
	double		size = sizeof(IndexTupleData);
	bool		has_nulls = false;

	for (int i = 0; i < model->ncolumns; i++)
	{
		const BxColumnModel *column = &model->columns[i];
		double		nulls = with_nulls ? column->null_fraction : 0;

		/* values with a short header are not aligned */
		if (column->align == TYPALIGN_DOUBLE)
			size = MAXALIGN((Size) size);
		else if (column->align == TYPALIGN_SHORT)
			size = SHORTALIGN((Size) size);
		else if (column->width > VARATT_SHORT_MAX || column->width == 4)
			size = INTALIGN((Size) size);
		size += column->width * (1 - nulls);
		has_nulls = has_nulls || nulls > 0;
	}
	if (has_nulls)
		size += sizeof(IndexAttributeBitMapData);
	return MAXALIGN((Size) ceil(size));
}

/*
 * Returns the size in bytes of all entries of a key with the given number of
 * rows.
 */
static double
btree_key_bytes(double rows, const double *entry)
{
	double		addresses = floor((BTREE_LIST_BYTES - *entry) /
								  sizeof(ItemPointerData));
	double		full = addresses > 1 ? floor(rows / addresses) : rows;
	double		rest = addresses > 1 ? rows - full * addresses : 0;
	double		bytes = 0;

	if (addresses > 1)
		bytes = full * (BTREE_LIST_BYTES + sizeof(ItemIdData));
	else
		bytes = full * (*entry + sizeof(ItemIdData));
	if (rest > 1)
		bytes += MAXALIGN((Size) (*entry + rest * sizeof(ItemPointerData))) +
			sizeof(ItemIdData);
	else if (rest > 0)
		bytes += rest * (*entry + sizeof(ItemIdData));
	return bytes;
}

/* Returns the size in bytes of all entries of a B-tree. */
static double
btree_bytes(const BxTableModel *model)
{
	double		entry = btree_entry_bytes(model, model->ncolumns > 1);
	double		null_entry = MAXALIGN(sizeof(IndexTupleData) +
									  sizeof(IndexAttributeBitMapData));
	double		nulls = model->rows * model->columns[0].null_fraction;
	bool		deduplicates = true;
	double		keys = 1;

	for (int i = 0; i < model->ncolumns; i++)
	{
		const BxColumnModel *column = &model->columns[i];

		deduplicates = deduplicates && column->deduplicates;
		keys = Min(keys * (column->distinct + (column->null_fraction > 0)),
				   model->rows);
	}
	if (model->ncolumns > 1)
		return deduplicates ?
			keys * btree_key_bytes(model->rows / keys, &entry) :
			model->rows * (entry + sizeof(ItemIdData));
	if (deduplicates)
		return sum_over_values(model, &model->columns[0], btree_key_bytes,
							   &entry) + btree_key_bytes(nulls, &null_entry);
	return (model->rows - nulls) * (entry + sizeof(ItemIdData)) +
		nulls * (null_entry + sizeof(ItemIdData));
}

/*
 * Returns the expected number of pages of a B-tree on the same columns; -1 if
 * a column cannot be in a B-tree.
 */
static double
btree_pages(const BxTableModel *model)
{
	double		fanout = floor(BTREE_INNER_BYTES /
							   (btree_entry_bytes(model, false) +
								sizeof(ItemIdData)));
	double		leaves;

	for (int i = 0; i < model->ncolumns; i++)
	{
		if (!model->columns[i].has_btree)
			return -1;
	}
	leaves = ceil(btree_bytes(model) / BTREE_LEAF_BYTES);
	return 1 + leaves + (leaves > 1 ? ceil(leaves / Max(fanout - 1, 1)) : 0);
}

/*
 * The index
 * ---------
 */

/* Fills in what a lookup reads, if the keys were sampled. */
static void
expect_sampled_lookup(const BxTableModel *model, const BxSearchFacts *facts,
					  Expectation *expected)
{
	double		n = model->columns->lookup_keys;
	double		hit = Min(1, facts->ranges);
	double		vain = pow(expected->layout->match_fraction(facts, 1, 0), n);
	BxSearchCost cost;

	expected->layout->search_cost(facts, n, hit, &cost);
	expected->index_pages = cost.pages;
	expected->heap_pages = Min((hit + vain * facts->ranges) *
							   facts->pages_per_range, model->heap_pages);
}

static void
expect_index(const BxTableModel *model, const BxLayout *layout, uint8 lg_base,
			 double rate, Expectation *expected)
{
	BxSearchFacts facts = {.target_rate = rate};
	BxSearchCost cost;
	double		hit;
	double		share;

	facts.pages_per_range = expected->pages_per_range = 1 << lg_base;
	facts.ranges = ceil(model->heap_pages / facts.pages_per_range);
	expected->layout = layout;
	expected->pages = layout->estimate(model, lg_base, rate, &facts.stats);
	expected->range_keys = facts.stats.range_keys;
	if (model->columns->sample != NULL)
	{
		expect_sampled_lookup(model, &facts, expected);
		return;
	}
	hit = ranges_of_lookup(model, facts.ranges);
	share = layout->match_fraction(&facts, 1, hit);
	layout->search_cost(&facts, 1, hit, &cost);
	expected->index_pages = cost.pages;
	expected->heap_pages = Min(share * facts.ranges * facts.pages_per_range,
							   model->heap_pages);
}

static uint8
lg_base_of_model(const BxTableModel *model, const BxLayout *layout,
				 int pages_per_range)
{
	double		keys[BX_AUTO_MAX_LG_BASE + 1];

	if (pages_per_range > 0)
		return __builtin_ctz(pages_per_range);
	for (int lg = 0; lg <= BX_AUTO_MAX_LG_BASE; lg++)
		keys[lg] = lg == 0 || (1 << lg) <= model->heap_pages ?
			keys_in_pages(model, 1 << lg) : 0;
	return bx_geometry_choose_lg_base(layout, keys, model->heap_pages);
}

/*
 * Chooses the layout with the smallest product of its size and the number of
 * pages that a lookup reads.
 */
static void
choose_layout(const BxTableModel *model, int pages_per_range, double rate,
			  Expectation *best)
{
	const BxLayout *layout = NULL;

	memset(best, 0, sizeof(*best));
	while ((layout = bx_layout_next(layout)) != NULL)
	{
		Expectation expected;

		expect_index(model, layout,
					 lg_base_of_model(model, layout, pages_per_range), rate,
					 &expected);
		if (best->layout == NULL ||
			(expected.index_pages + expected.heap_pages) * expected.pages <
			(best->index_pages + best->heap_pages) * best->pages)
			*best = expected;
	}
}

/* Imported statistics can lead to a number that is too large, or to NaN. */
static char *
format_bytes(double bytes)
{
	if (!(bytes < (double) PG_INT64_MAX))
		bytes = PG_INT64_MAX / 2;
	return text_to_cstring(DatumGetTextPP(DirectFunctionCall1(pg_size_pretty,
															  Int64GetDatum((int64) bytes))));
}

/* Returns the recommendation, as one sentence. */
static char *
make_advice(const BxTableModel *model, const Expectation *expected,
			double btree)
{
	double		size = expected->pages * BLCKSZ;
	double		share = expected->heap_pages / model->heap_pages;
	double		correlation = fabs(model->columns[0].correlation);

	if (model->columns->sample != NULL)
		return psprintf("bloomidx needs %s for about %.0f keys per range, and a lookup of a rare value reads about %.0f pages; other indexes were not considered",
						format_bytes(size), expected->range_keys,
						expected->index_pages + expected->heap_pages);
	if (model->heap_pages < SMALL_TABLE_PAGES && btree >= 0)
		return psprintf("a B-tree is the better choice: the table is small, and a B-tree needs only %s",
						format_bytes(btree));
	if (share > MAX_USEFUL_SHARE)
		return psprintf("no index is useful: a lookup would have to read %.0f%% of the table, because the matching rows are scattered over it",
						100 * share);
	if (btree >= 0 && btree < 2 * size)
		return psprintf("a B-tree is the better choice: it stores each of few distinct values once and needs %s, and bloomidx needs %s",
						format_bytes(btree), format_bytes(size));
	if (correlation > BRIN_CORRELATION && expected->pages > BRIN_MIN_PAGES)
		return psprintf("consider BRIN with a minmax operator class: the table is sorted by the column, so a BRIN index would be much smaller than %s",
						format_bytes(size));
	if (btree < 0)
		return psprintf("bloomidx is a good choice: it needs %s, and a lookup reads about %.0f pages",
						format_bytes(size),
						expected->index_pages + expected->heap_pages);
	return psprintf("bloomidx is a good choice if a lookup may read about %.0f pages: it needs %s, and a B-tree needs %s",
					expected->index_pages + expected->heap_pages,
					format_bytes(size), format_bytes(btree));
}

/*
 * The function
 * ------------
 */
static void
check_arguments(double rate, int pages_per_range, double fraction)
{
	if (!(rate >= BX_MIN_RATE && rate <= BX_MAX_RATE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("false_positive_rate must be between %g and %g",
						BX_MIN_RATE, BX_MAX_RATE)));
	if (pages_per_range < 0 || pages_per_range > BX_MAX_PAGES_PER_RANGE ||
		(pages_per_range & (pages_per_range - 1)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pages_per_range must be 0, which means automatic, or a power of two up to %d",
						BX_MAX_PAGES_PER_RANGE)));
	if (!(fraction > 0 && fraction <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rows_fraction must be above 0 and at most 1")));
}

static Relation
open_table(Oid tableoid)
{
	Relation	table;

	/* expressions require further privileges; see hypothetical.c */
	bx_open_check_table_access(tableoid, false);
	table = relation_open(tableoid, AccessShareLock);
	bx_open_check_table_access(tableoid, false);	/* again; see inspect.c */
	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table or materialized view",
						RelationGetRelationName(table))));
	bx_open_check_storage(table);
	if (table->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" does not use the heap access method",
						RelationGetRelationName(table))));
	return table;
}

/* Returns the definitions of the columns, and their number. */
static char **
get_definitions(ArrayType *columns, int *n)
{
	Datum	   *definitions;
	bool	   *nulls;
	char	  **result;

	deconstruct_array(columns, TEXTOID, -1, false, TYPALIGN_INT, &definitions,
					  &nulls, n);
	if (*n < 1 || *n > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of columns must be between 1 and %d",
						INDEX_MAX_KEYS)));
	result = palloc(sizeof(char *) * *n);
	for (int i = 0; i < *n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("index column must not be null")));
		result[i] = TextDatumGetCString(definitions[i]);
	}
	return result;
}

/*
 * Counts the keys in a sample of the visible rows.  The functions in
 * expressions run as the owner of the table; see hypothetical.c.  The
 * functions of operator classes and types are run only if they are written in
 * C.
 */
static void
take_sample(Relation table, const BxHypothetical *hypothetical,
			double fraction, BxTableModel *model)
{
	Relation	index = hypothetical->index;
	BxSample   *sample = palloc(sizeof(BxSample));
	BxIdentity	identity;

	model->columns->lookup_keys = NGRAMS_PER_LOOKUP;
	for (int i = 0; i < model->ncolumns; i++)
	{
		if (bx_hash_runs_user_code(index, i + 1, true))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot estimate the keys of column \"%s\"",
							NameStr(TupleDescAttr(RelationGetDescr(index),
												  i)->attname)),
					 errdetail("Functions of its operator class or type are not written in C.")));
		if (!bx_extract_is_used(index, i + 1) ||
			!bx_text_is_fragmented(index, i + 1))
			model->columns->lookup_keys = 1;
	}
	bx_open_become_owner(table, &identity);
	bx_sample_take(table, hypothetical, model->key_kinds, sample);
	bx_open_become_caller(&identity);
	model->columns->sample = sample;
	model->columns->fraction = fraction;
	model->columns->analyzed = true;
	model->rows = sample->rows * model->heap_pages * fraction;
}

/*
 * Fills in the model of a table, or of the fraction of its rows that a
 * partial index contains.  Values with few rows may not occur in that
 * fraction.
 */
static void
describe_table(Relation table, const BxHypothetical *hypothetical,
			   double fraction, uint8 keys, BxTableModel *model)
{
	BlockNumber pages;
	double		rows;
	double		allvisfrac;

	estimate_rel_size(table, NULL, &pages, &rows, &allvisfrac);
	model->heap_pages = RelationGetNumberOfBlocks(table);
	model->rows = rows * fraction;
	model->key_kinds = keys;
	model->ncolumns = hypothetical->info->ii_NumIndexAttrs;
	model->columns = palloc0(sizeof(BxColumnModel) * model->ncolumns);
	model->keys = keys_in_pages;
	if (hypothetical->extracts || hypothetical->info->ii_Expressions != NIL)
	{
		take_sample(table, hypothetical, fraction, model);
		return;
	}
	for (int i = 0; i < model->ncolumns; i++)
	{
		BxColumnModel *column = &model->columns[i];

		describe_column(table, hypothetical->info->ii_IndexAttrNumbers[i],
						rows, column);
		if (fraction < 1)
			column->distinct *= -expm1(rows / column->distinct *
									   log1p(-fraction));
		column->distinct = Max(column->distinct, column->ncommon);
	}
}

/* Returns whether the values of a column are not known. */
static bool
is_unknown(const BxTableModel *model)
{
	for (int i = 0; i < model->ncolumns && model->columns->sample == NULL; i++)
	{
		if (!model->columns[i].analyzed)
			return true;
	}
	return false;
}

/*
 * Gets the options of the index: the arguments "rate" and "keys" or, if these
 * are null, the defaults for its operator classes.
 */
static void
get_options(FunctionCallInfo fcinfo, const BxHypothetical *hypothetical,
			BxOptions *options)
{
	bx_options_get(hypothetical->index, options);
	if (!PG_ARGISNULL(2))
		options->false_positive_rate = PG_GETARG_FLOAT8(2);
	if (!PG_ARGISNULL(5))
		options->keys = bx_options_keys(hypothetical->info->ii_NumIndexAttrs,
										hypothetical->extracts,
										bx_options_keys_by_name(text_to_cstring(PG_GETARG_TEXT_PP(5))));
	bx_validate_keys(hypothetical->index, options);
}

Datum
bloomidx_estimate(PG_FUNCTION_ARGS)
{
	BxOptions	options;
	BxHypothetical hypothetical;
	BxTableModel model;
	Expectation expected;
	Relation	table;
	TupleDesc	tupdesc;
	char	  **definitions;
	int			n;
	double		btree = -1;
	char	   *advice;
	Datum		values[7] = {0};
	bool		nulls[7] = {0};

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3) ||
		PG_ARGISNULL(4))
		PG_RETURN_NULL();
	check_arguments(PG_ARGISNULL(2) ? BX_DEFAULT_RATE : PG_GETARG_FLOAT8(2),
					PG_GETARG_INT32(3), PG_GETARG_FLOAT8(4));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	table = open_table(PG_GETARG_OID(0));
	definitions = get_definitions(PG_GETARG_ARRAYTYPE_P(1), &n);
	bx_hypothetical_make(table, definitions, n, &hypothetical);
	get_options(fcinfo, &hypothetical, &options);
	describe_table(table, &hypothetical, PG_GETARG_FLOAT8(4), options.keys,
				   &model);
	if (model.heap_pages == 0 || model.rows <= 0 ||
		(model.rows < 1 && model.columns->sample == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no rows to estimate from",
						RelationGetRelationName(table)),
				 errhint("Insert rows into the table, and ANALYZE it.")));
	choose_layout(&model, PG_GETARG_INT32(3), options.false_positive_rate,
				  &expected);
	if (model.columns->sample == NULL)
		btree = btree_pages(&model) * BLCKSZ;
	advice = make_advice(&model, &expected, btree);
	if (is_unknown(&model))
		advice = psprintf("ANALYZE the table first: there are no statistics, so all values are assumed to be distinct (%s)",
						  advice);

	values[0] = CStringGetTextDatum(expected.layout->name);
	values[1] = Int32GetDatum(expected.pages_per_range);
	values[2] = Int64GetDatum((int64) expected.pages * BLCKSZ);
	values[3] = Float8GetDatum(expected.index_pages);
	values[4] = Float8GetDatum(expected.heap_pages);
	nulls[5] = !(btree >= 0 && btree < (double) PG_INT64_MAX);
	if (!nulls[5])
		values[5] = Int64GetDatum((int64) btree);
	values[6] = CStringGetTextDatum(advice);
	relation_close(table, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}
