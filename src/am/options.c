/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Options of CREATE INDEX ... WITH, and their bounds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/rel.h"

#include "am.h"

static relopt_kind option_kind;

static relopt_enum_elt_def layouts[] = {
	{"partitioned", BX_LAYOUT_PARTITIONED},
	{"block", BX_LAYOUT_BLOCK},
	{(const char *) NULL}
};

/* Registers the options; called once, when the library is loaded. */
void
bx_options_init(void)
{
	option_kind = add_reloption_kind();
	add_enum_reloption(option_kind, "layout",
					   "How the filters are laid out on the index's pages",
					   layouts, BX_LAYOUT_PARTITIONED,
					   "Valid values are \"partitioned\" and \"block\".",
					   AccessExclusiveLock);
	add_int_reloption(option_kind, "pages_per_range",
					  "Heap pages that share a filter, a power of two; 0 means automatic",
					  0, 0, BX_MAX_PAGES_PER_RANGE, AccessExclusiveLock);
	add_real_reloption(option_kind, "false_positive_rate",
					   "Chance that a range without the key is read",
					   BX_DEFAULT_RATE, BX_MIN_RATE, BX_MAX_RATE,
					   AccessExclusiveLock);
}

/*
 * Returns whether the current statement changes options of an existing
 * relation. amoptions gets no information about its purpose, so examine the
 * statement.
 */
static bool
is_alter(void)
{
	PlannedStmt *stmt;
	ListCell   *lc;

	if (ActivePortal == NULL || list_length(ActivePortal->stmts) != 1)
		return false;
	stmt = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (stmt->utilityStmt == NULL || !IsA(stmt->utilityStmt, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) stmt->utilityStmt)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_SetRelOptions ||
			cmd->subtype == AT_ResetRelOptions)
			return true;
	}
	return false;
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

	/* all options are frozen by the build */
	if (validate && is_alter())
		ereport(NOTICE,
				(errmsg("options of a bloomidx index take effect when the index is built"),
				 errhint("REINDEX the index to apply the new options.")));
	return (bytea *) options;
}

/* Gets the options of an index, or the defaults. */
void
bx_options_get(Relation index, BxOptions *options)
{
	if (index->rd_options)
	{
		memcpy(options, index->rd_options, sizeof(*options));
		return;
	}
	memset(options, 0, sizeof(*options));
	options->layout = BX_LAYOUT_PARTITIONED;
	options->false_positive_rate = BX_DEFAULT_RATE;
}
