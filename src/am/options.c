/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Options of CREATE INDEX ... WITH, and their bounds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "am.h"

static relopt_kind option_kind;

/* The values of option "layout", ended by NULL, as PostgreSQL wants them. */
#define MAX_LAYOUTS		7
static relopt_enum_elt_def layouts[MAX_LAYOUTS + 1];

/* The values of option "keys". */
static relopt_enum_elt_def key_kinds[] = {
	{"each", BX_KEYS_EACH},
	{"all", BX_KEYS_ALL},
	{"both", BX_KEYS_BOTH},
	{NULL}
};

/*
 * Fills layouts[] from the list of layouts, and returns the detail of the
 * error for other values.  PostgreSQL keeps the pointers to both.
 */
static char *
list_layouts(void)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(TopMemoryContext);
	StringInfoData detail;
	int			n = 0;

	initStringInfo(&detail);
	appendStringInfoString(&detail, "Valid values are ");
	for (const BxLayout *layout = bx_layout_next(NULL); layout != NULL;
		 layout = bx_layout_next(layout))
	{
		if (n == MAX_LAYOUTS)
			elog(ERROR, "too many layouts");
		if (n > 0)
			appendStringInfoString(&detail, bx_layout_next(layout) == NULL ?
								   " and " : ", ");
		appendStringInfo(&detail, "\"%s\"", layout->name);
		layouts[n].string_val = layout->name;
		layouts[n].symbol_val = layout->id;
		n++;
	}
	appendStringInfoChar(&detail, '.');
	MemoryContextSwitchTo(oldcxt);
	return detail.data;
}

/* Registers the options; called once, when the library is loaded. */
void
bx_options_init(void)
{
	option_kind = add_reloption_kind();
	add_enum_reloption(option_kind, "layout",
					   "How the filters are laid out on the index's pages",
					   layouts, BX_LAYOUT_PARTITIONED, list_layouts(),
					   AccessExclusiveLock);
	add_int_reloption(option_kind, "pages_per_range",
					  "Heap pages that share a filter, a power of two; 0 means automatic",
					  0, 0, BX_MAX_PAGES_PER_RANGE, AccessExclusiveLock);
	add_real_reloption(option_kind, "false_positive_rate",
					   "Chance that a range without the key is read",
					   -1, BX_MIN_RATE, BX_MAX_RATE,
					   AccessExclusiveLock);
	add_enum_reloption(option_kind, "keys",
					   "Which keys a row has: one for each column, one for all columns together, or both",
					   key_kinds, 0,
					   "Valid values are \"each\", \"all\" and \"both\".",
					   AccessExclusiveLock);
}

bytea *
bxoptions(Datum reloptions, bool validate)
{
	static const relopt_parse_elt table[] = {
		{"layout", RELOPT_TYPE_ENUM, offsetof(BxOptions, layout)},
		{"pages_per_range", RELOPT_TYPE_INT,
		offsetof(BxOptions, pages_per_range)},
		{"false_positive_rate", RELOPT_TYPE_REAL,
		offsetof(BxOptions, false_positive_rate)},
		{"keys", RELOPT_TYPE_ENUM, offsetof(BxOptions, keys)},
	};
	BxOptions  *options;

	options = (BxOptions *) build_reloptions(reloptions, validate, option_kind,
											 sizeof(BxOptions), table,
											 lengthof(table));
	if (validate && options != NULL &&
		(options->pages_per_range & (options->pages_per_range - 1)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %d for option \"pages_per_range\" is not a power of two",
						options->pages_per_range),
				 errdetail("Valid values are 0, which means automatic, and the powers of two up to %d.",
						   BX_MAX_PAGES_PER_RANGE)));
	return (bytea *) options;
}

/*
 * Returns the default of false_positive_rate, which depends on the operator
 * classes.  The column whose keys need the lowest rate decides.
 */
static double
default_rate(Relation index)
{
	double		rate = BX_FRAGMENTS_RATE;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (!bx_extract_is_used(index, i + 1))
			return BX_DEFAULT_RATE;
		if (!bx_text_is_fragmented(index, i + 1))
			rate = BX_EXTRACTED_RATE;
	}
	return rate;
}

/* Returns the name of a value of option "keys". */
const char *
bx_options_keys_name(uint8 keys)
{
	for (int i = 0; key_kinds[i].string_val != NULL; i++)
	{
		if (key_kinds[i].symbol_val == keys)
			return key_kinds[i].string_val;
	}
	elog(ERROR, "unrecognized value of option \"keys\": %d", keys);
	return NULL;				/* keep compiler quiet */
}

/*
 * Returns the value of option "keys" with the given name.  Raises an error if
 * there is none.
 */
uint8
bx_options_keys_by_name(const char *name)
{
	for (int i = 0; key_kinds[i].string_val != NULL; i++)
	{
		if (pg_strcasecmp(key_kinds[i].string_val, name) == 0)
			return key_kinds[i].symbol_val;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"keys\": \"%s\"", name),
			 errdetail("Valid values are \"each\", \"all\" and \"both\".")));
	return 0;					/* keep compiler quiet */
}

/*
 * Returns the keys of the rows of an index with natts columns (BX_KEYS_xxx).
 * "option" is the value of option "keys", or 0 if the option is not set.
 * "extracts" means that a column extracts, so that there is no combined key by
 * default.  An index of a single column has no combined key.
 */
uint8
bx_options_keys(int natts, bool extracts, int option)
{
	if (natts == 1)
		return BX_KEYS_EACH;
	if (option == 0)
		return extracts ? BX_KEYS_EACH : BX_KEYS_BOTH;
	return option;
}

static bool
has_extracting_column(Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (bx_extract_is_used(index, i + 1))
			return true;
	}
	return false;
}

/* Gets the options of an index, or the defaults. */
void
bx_options_get(Relation index, BxOptions *options)
{
	if (index->rd_options)
		memcpy(options, index->rd_options, sizeof(*options));
	else
	{
		memset(options, 0, sizeof(*options));
		options->layout = BX_LAYOUT_PARTITIONED;
		options->false_positive_rate = -1;
	}
	if (options->false_positive_rate < 0)
		options->false_positive_rate = default_rate(index);
	options->keys = bx_options_keys(IndexRelationGetNumberOfKeyAttributes(index),
									has_extracting_column(index),
									options->keys);
}
