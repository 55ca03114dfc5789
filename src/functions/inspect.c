/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  SQL functions that show an index: its parts, their fill, and the
 *	  matches of searches, including false positives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_index.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#include "../am/am.h"
#include "../layouts.h"
#include "functions.h"

PG_FUNCTION_INFO_V1(bloomidx_info);
PG_FUNCTION_INFO_V1(bloomidx_segments);
PG_FUNCTION_INFO_V1(bloomidx_blocks);
PG_FUNCTION_INFO_V1(bloomidx_probe);
PG_FUNCTION_INFO_V1(bloomidx_measure);

#define MAX_PROBES			10000000

/*
 * bloomidx_info() notes free pages if they are at least 1/FREE_FRACTION of
 * the index, and the index has at least FREE_SIZE bytes.
 */
#define FREE_FRACTION		2
#define FREE_SIZE			(1024 * 1024)

/*
 * The index being inspected, and the rows of the result.  All output is based
 * on one copy of the metapage.
 */
typedef struct Inspection
{
	Relation	heap;
	Relation	index;
	BlockNumber first_blocks;	/* size of the index before meta was read */
	BxMetaPageData meta;
	const BxLayout *layout;
	TupleDesc	tupdesc;
	Tuplestorestate *rows;
} Inspection;

static void
begin_inspection(Inspection *inspection, Oid indexoid, bool reveals_data)
{
	bx_open_check_access(indexoid, reveals_data);
	bx_open(indexoid, AccessShareLock, true, AccessShareLock,
			&inspection->heap, &inspection->index);

	/* privileges may have been revoked while we waited for the lock */
	bx_open_check_access(indexoid, reveals_data);
	inspection->first_blocks = RelationGetNumberOfBlocks(inspection->index);
	bx_meta_read(inspection->index, &inspection->meta);
	inspection->layout = bx_layout_by_id(inspection->index,
										 inspection->meta.layout);
	BX_PAUSE(BX_PAUSE_INSPECT);
}

static void
end_inspection(Inspection *inspection)
{
	index_close(inspection->index, AccessShareLock);
	table_close(inspection->heap, AccessShareLock);
}

/*
 * Creates the tuplestore of the result, which spills to disk beyond work_mem.
 */
static void
begin_rows(Inspection *inspection, FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext oldcxt;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) ||
		!(rsinfo->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	oldcxt = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &inspection->tupdesc) !=
		TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	inspection->rows =
		tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
							  false, work_mem);
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = inspection->rows;
	rsinfo->setDesc = inspection->tupdesc;
	MemoryContextSwitchTo(oldcxt);
}

/* Returns the single row of a function that returns one. */
static Datum
make_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values,
											 nulls));
}

/*
 * bloomidx_info
 * -------------
 */
typedef struct Totals
{
	int64		filters;		/* segments, or pages of filters */
	int64		partitions;
	int64		summarized;
	int64		groups;
	int64		unfiltered;		/* partitions that should have a filter in a
								 * group */
	int64		pages;			/* pages that are named */
	double		ranges;			/* ranges that have keys */
	double		keys;
	double		rates;			/* sum of the rates of the ranges */
	int64		overfull;
	int64		doubtful;
	int64		missing;
	int64		shadows;
} Totals;

static void
add_part(void *arg, const BxPart *part)
{
	Totals	   *totals = arg;

	totals->pages += part->pages;
	totals->overfull += part->overfull;
	switch (part->kind)
	{
		case BX_PART_DIRECTORY:
			break;
		case BX_PART_GROUP:
			totals->groups++;
			break;
		case BX_PART_PARTITION:
			totals->unfiltered += part->missing;
			break;
		case BX_PART_SUMMARY:
			totals->partitions++;
			totals->summarized += part->pages > 0;
			totals->missing += part->missing;
			break;
		case BX_PART_FILTERS:
			totals->filters++;
			totals->doubtful += part->doubt;
			totals->ranges += part->measure.nchildren;
			totals->keys += part->measure.all_keys;
			totals->rates += part->measure.rate * part->measure.nchildren *
				part->upper_rate;
			break;
		case BX_PART_SHADOW:
			totals->shadows++;
			break;
	}
}

static void
add_note(StringInfo notes, const char *note)
{
	appendStringInfo(notes, "%s%s", notes->len > 0 ? "; " : "", note);
}

/* Returns whether REINDEX would build the index with other options. */
static bool
options_changed(const Inspection *inspection)
{
	const BxMetaPageData *meta = &inspection->meta;
	BxOptions	options;

	bx_options_get(inspection->index, &options);
	return options.layout != meta->layout ||
		options.false_positive_rate != meta->false_positive_rate ||
		options.keys != meta->keys ||
		(options.pages_per_range > 0 && meta->lg_base != BX_LG_BASE_UNSET &&
		 options.pages_per_range != 1 << meta->lg_base);
}

/*
 * Returns a text that describes problems and recommended actions, or NULL if
 * there are none.
 */
static char *
make_note(const Inspection *inspection, const Totals *totals,
		  int64 index_pages, int64 free_pages)
{
	StringInfoData notes;
	const char *remedy = bx_repair_needs_user_code(inspection->index, false) ?
	"call bloomidx_summarize()" : "run VACUUM (PARALLEL 0) on the table";

	initStringInfo(&notes);
	if (totals->overfull > 0)
		add_note(&notes, psprintf("sets of filters with more keys than planned: %lld, %s",
								  (long long) totals->overfull, remedy));
	if (totals->missing > 0)
		add_note(&notes, psprintf("partitions without summary: %lld, %s",
								  (long long) totals->missing, remedy));
	if (totals->unfiltered > 0)
		add_note(&notes, psprintf("partitions without third-level filter: %lld, %s",
								  (long long) totals->unfiltered, remedy));
	if (totals->doubtful > 0)
		add_note(&notes, psprintf("sets of filters with ranges that match every key: %lld, %s",
								  (long long) totals->doubtful, remedy));
	if (totals->shadows > 0)
		add_note(&notes, "filters are being rebuilt, or a rebuild was interrupted, VACUUM the table unless VACUUM or bloomidx_summarize() is running");
	if (options_changed(inspection))
		add_note(&notes, "options have changed since the index was built, REINDEX the index");
	if (free_pages * FREE_FRACTION >= index_pages &&
		index_pages >= FREE_SIZE / BLCKSZ)
		add_note(&notes, "at least half of the pages are free, REINDEX the index if VACUUM does not truncate it");
	return notes.len > 0 ? notes.data : NULL;
}

Datum
bloomidx_info(PG_FUNCTION_ARGS)
{
	Inspection	inspection;
	Totals		totals = {0};
	BxMetaPageData *meta = &inspection.meta;
	bool		is_set;
	int64		index_pages;
	int64		free_pages;
	char	   *note;
	Datum		values[16] = {0};
	bool		nulls[16] = {0};
	int			i = 0;

	begin_inspection(&inspection, PG_GETARG_OID(0), false);
	inspection.layout->walk(inspection.index, meta, add_part, &totals);

	/*
	 * The size is read after the walk, so that it includes all pages that
	 * were counted.  If the index had no key, only the metapage was counted;
	 * the first insert may have added pages meanwhile, so the earlier size is
	 * used.
	 */
	is_set = meta->lg_base != BX_LG_BASE_UNSET;
	index_pages = is_set ? RelationGetNumberOfBlocks(inspection.index) :
		inspection.first_blocks;
	free_pages = Max(index_pages - totals.pages, 0);
	note = make_note(&inspection, &totals, index_pages, free_pages);

	values[i++] = CStringGetTextDatum(inspection.layout->name);
	values[i++] = Int32GetDatum(meta->version);
	nulls[i] = !is_set;
	values[i++] = Int32GetDatum(is_set ? 1 << meta->lg_base : 0);
	values[i++] = Float8GetDatum(meta->false_positive_rate);
	values[i++] = CStringGetTextDatum(bx_options_keys_name(meta->keys));
	values[i++] = Int64GetDatum(!is_set ? 0 : (int64)
								bx_geometry_ranges(RelationGetNumberOfBlocks(inspection.heap),
												   meta->lg_base));
	values[i++] = Int64GetDatum(totals.filters);
	values[i++] = Int64GetDatum(totals.partitions);
	values[i++] = Int64GetDatum(totals.summarized);
	values[i++] = Int64GetDatum(totals.groups);
	values[i++] = Int64GetDatum(index_pages);
	values[i++] = Int64GetDatum(free_pages);
	values[i++] = Int64GetDatum((int64) rint(totals.keys));
	nulls[i] = nulls[i + 1] = !(totals.keys > 0);
	values[i++] = Float8GetDatum((index_pages - free_pages) * BLCKSZ * 8.0 /
								 Max(totals.keys, 1));
	values[i++] = Float8GetDatum(totals.rates / Max(totals.ranges, 1));
	nulls[i] = note == NULL;
	values[i++] = note ? CStringGetTextDatum(note) : (Datum) 0;

	end_inspection(&inspection);
	PG_RETURN_DATUM(make_row(fcinfo, values, nulls));
}

/*
 * bloomidx_segments, bloomidx_blocks
 * ----------------------------------
 */

/* Adds a row for a segment or page; both functions have the same columns. */
static void
show_part(void *arg, const BxPart *part)
{
	Inspection *inspection = arg;
	uint8		lg_base = inspection->meta.lg_base;
	int64		first;
	int64		end;
	Datum		values[12];
	bool		nulls[12] = {0};
	int			i = 0;

	/*
	 * An index without keys has other parts, but no pages per range yet.  The
	 * first key may have been inserted since the metapage was read.
	 */
	if (part->kind != BX_PART_FILTERS || lg_base == BX_LG_BASE_UNSET)
		return;
	first = (int64) part->first_range << lg_base;
	end = first + ((int64) part->nranges << lg_base);
	values[i++] = Int64GetDatum(part->number);
	values[i++] = Int64GetDatum(first);
	values[i++] = Int64GetDatum(Min(end - 1, (int64) MaxBlockNumber));
	values[i++] = Int64GetDatum(part->block);
	values[i++] = Int64GetDatum(part->pages);
	values[i++] = Int32GetDatum(part->probes);
	values[i++] = Int32GetDatum(part->measure.nchildren);
	values[i++] = Int32GetDatum(part->measure.nfull);
	values[i++] = Float8GetDatum(part->measure.fill);
	values[i++] = Float8GetDatum(rint(part->measure.all_keys));
	values[i++] = Float8GetDatum(part->planned_keys);
	values[i++] = Float8GetDatum(part->measure.rate);
	tuplestore_putvalues(inspection->rows, inspection->tupdesc, values, nulls);
}

static Datum
show_parts(FunctionCallInfo fcinfo, const char *function)
{
	Inspection	inspection;

	begin_inspection(&inspection, PG_GETARG_OID(0), false);
	if (strcmp(inspection.layout->shown_by, function) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" has layout \"%s\"",
						RelationGetRelationName(inspection.index),
						inspection.layout->name),
				 errhint("Use %s().", inspection.layout->shown_by)));
	begin_rows(&inspection, fcinfo);
	inspection.layout->walk(inspection.index, &inspection.meta, show_part,
							&inspection);
	end_inspection(&inspection);
	return (Datum) 0;
}

Datum
bloomidx_segments(PG_FUNCTION_ARGS)
{
	return show_parts(fcinfo, "bloomidx_segments");
}

Datum
bloomidx_blocks(PG_FUNCTION_ARGS)
{
	return show_parts(fcinfo, "bloomidx_blocks");
}

/*
 * bloomidx_probe
 * --------------
 */

/*
 * Initializes a hasher for a value of the given type.  Returns false if no
 * operator of the column's operator family compares the type with the column.
 * An extracting column takes values of the column's own type.
 */
static bool
find_hasher(Relation heap, Relation index, int attnum, Oid type,
			BxHasher *hasher)
{
	Oid			own = index->rd_opcintype[attnum - 1];
	Oid			column = getBaseType(bx_extract_type_of_values(heap, index, attnum));

	type = getBaseType(type);
	if (type == column || IsBinaryCoercible(type, column) ||
		(!IsPolymorphicType(own) && IsBinaryCoercible(type, own)))
		type = own;
	else if (IsPolymorphicType(own) || bx_extract_is_used(index, attnum) ||
			 !OidIsValid(get_opfamily_member(index->rd_opfamily[attnum - 1],
											 own, type, BX_EQUAL_STRATEGY)))
		return false;
	bx_hasher_init(hasher, index, attnum, type);
	return true;
}

/*
 * Adds the condition that an index column has a value, or is NULL.  The value
 * belongs to the caller, and is hashed as in a search by the caller.
 */
static void
add_value(const Inspection *inspection, int attnum, Oid type, Datum value,
		  bool isnull, BxQuery *query)
{
	Relation	index = inspection->index;
	BxHasher	hasher;
	uint64	   *keys;
	int			n;

	if (!OidIsValid(type))
		elog(ERROR, "could not determine the type of the key");
	if (!find_hasher(inspection->heap, index, attnum, type, &hasher))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("cannot look up a value of type %s in column %d of index \"%s\"",
						format_type_be(type), attnum,
						RelationGetRelationName(index)),
				 errdetail("The column is of type %s.",
						   format_type_be(bx_extract_type_of_values(inspection->heap, index,
																	attnum)))));
	if (hasher.extractor && !isnull)
	{
		n = bx_extract_keys(&hasher, value, &keys);
		bx_query_add_all(query, keys, n);
		return;
	}
	bx_query_start_condition(query, isnull ? 0 : attnum, 1);
	bx_query_add_element(query, isnull ? bx_hash_marker(attnum, true) :
						 bx_hasher_key(&hasher, value));
	bx_query_end_condition(query);
}

/*
 * Adds the conditions that the index columns have the values of a row, in the
 * same order.
 */
static void
add_row(const Inspection *inspection, Oid type, Datum value, BxQuery *query)
{
	int			natts = IndexRelationGetNumberOfKeyAttributes(inspection->index);
	HeapTupleHeader header;
	TupleDesc	desc;
	HeapTupleData tuple;
	Datum	   *values;
	bool	   *nulls;
	int			column = 0;

	if (!type_is_rowtype(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("value of type %s is not a row", format_type_be(type)),
				 errhint("If attnum is 0, the key must be a row of values for all columns, such as ROW(1, 'x'::text).")));
	header = DatumGetHeapTupleHeader(value);
	desc = lookup_rowtype_tupdesc_domain(HeapTupleHeaderGetTypeId(header),
										 HeapTupleHeaderGetTypMod(header),
										 false);
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	values = palloc(sizeof(Datum) * desc->natts);
	nulls = palloc(sizeof(bool) * desc->natts);
	heap_deform_tuple(&tuple, desc, values, nulls);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		if (column++ < natts)
			add_value(inspection, column, att->atttypid, values[i], nulls[i],
					  query);
	}
	ReleaseTupleDesc(desc);
	if (column != natts)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the row has %d values, but index \"%s\" has %d columns",
						column, RelationGetRelationName(inspection->index),
						natts)));
}

/*
 * Searches for the rows that match a query, using the current memory context,
 * and calls found() for the heap pages that may contain them.
 */
static void
search_for(const Inspection *inspection, const BxQuery *query,
		   BxFoundCallback found, void *arg)
{
	BxSearch	search = {0};

	if (!bx_geometry_get(inspection->index, &search.geometry))
		return;
	search.index = inspection->index;
	search.snapshot = GetActiveSnapshot();
	search.query = query;
	search.heap_blocks = RelationGetNumberOfBlocks(inspection->heap);
	search.found = found;
	search.arg = arg;
	inspection->layout->search(&search);
}

static void
show_range(void *arg, BlockNumber first, uint32 npages)
{
	Inspection *inspection = arg;
	Datum		values[2];
	bool		nulls[2] = {0};

	values[0] = Int64GetDatum(first);
	values[1] = Int64GetDatum((int64) first + npages - 1);
	tuplestore_putvalues(inspection->rows, inspection->tupdesc, values, nulls);
}

/*
 * Returns the heap pages that a search for a value of a column would read, or
 * a search for the values of all columns if the column number is 0.
 */
Datum
bloomidx_probe(PG_FUNCTION_ARGS)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	int			attnum = PG_GETARG_INT32(2);
	Inspection	inspection;
	BxQuery		query;
	int			natts;

	/* only the key may be NULL */
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("index and column number must not be null")));
	begin_inspection(&inspection, PG_GETARG_OID(0), true);
	natts = IndexRelationGetNumberOfKeyAttributes(inspection.index);
	if (attnum < 0 || attnum > natts)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("index \"%s\" has no column %d",
						RelationGetRelationName(inspection.index), attnum)));
	if (attnum == 0 && PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("a row of values for all columns must not be null")));
	bx_query_init(&query, natts);
	if (attnum == 0)
		add_row(&inspection, type, PG_GETARG_DATUM(1), &query);
	else
		add_value(&inspection, attnum, type, PG_GETARG_DATUM(1),
				  PG_ARGISNULL(1), &query);
	begin_rows(&inspection, fcinfo);
	search_for(&inspection,
			   bx_query_for_filters(&query, natts, inspection.meta.keys),
			   show_range, &inspection);
	end_inspection(&inspection);
	return (Datum) 0;
}

/*
 * bloomidx_measure
 * ----------------
 */
typedef struct Matches
{
	double		ranges;
	double		pages;
} Matches;

static void
count_match(void *arg, BlockNumber first, uint32 npages)
{
	Matches    *matches = arg;

	matches->ranges++;
	matches->pages += npages;
}

static int64
pages_accessed(void)
{
	return pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read +
		pgBufferUsage.local_blks_hit + pgBufferUsage.local_blks_read;
}

/* Searches for random keys, which no row has, one at a time. */
static void
search_in_vain(Inspection *inspection, int probes, Matches *matches)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "bloomidx search",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < probes; i++)
	{
		uint64		key;
		BxQuery		query;

		CHECK_FOR_INTERRUPTS();
		if (!pg_strong_random(&key, sizeof(key)))
			elog(ERROR, "could not generate a random number");
		bx_query_init(&query, 1);
		bx_query_start_condition(&query, 0, 1);
		bx_query_add_element(&query, key);
		bx_query_end_condition(&query);
		search_for(inspection, &query, count_match, matches);
		MemoryContextReset(cxt);
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
}

Datum
bloomidx_measure(PG_FUNCTION_ARGS)
{
	int32		probes = PG_GETARG_INT32(1);
	Inspection	inspection;
	Matches		matches = {0};
	int64		accessed;
	double		ranges = 0;
	Datum		values[5];
	bool		nulls[5] = {0};

	if (probes < 1 || probes > MAX_PROBES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of probes must be between 1 and %d",
						MAX_PROBES)));
	begin_inspection(&inspection, PG_GETARG_OID(0), false);
	if (inspection.meta.lg_base != BX_LG_BASE_UNSET)
		ranges = bx_geometry_ranges(RelationGetNumberOfBlocks(inspection.heap),
									inspection.meta.lg_base);

	accessed = pages_accessed();
	search_in_vain(&inspection, probes, &matches);
	accessed = pages_accessed() - accessed;

	values[0] = Int32GetDatum(probes);
	values[1] = Int64GetDatum((int64) ranges);
	nulls[2] = ranges == 0;
	values[2] = Float8GetDatum(nulls[2] ? 0 : matches.ranges / probes / ranges);
	values[3] = Float8GetDatum((double) accessed / probes);
	values[4] = Float8GetDatum(matches.pages / probes);
	end_inspection(&inspection);
	PG_RETURN_DATUM(make_row(fcinfo, values, nulls));
}
