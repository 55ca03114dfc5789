/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Operator classes for text: text_ngram_ops (LIKE and ILIKE) and
 *	  text_prefix_ops (^@, LIKE 'abc%' and =).
 *
 * text_ngram_ops extracts all sequences of n characters of lower(value).  A
 * pattern consists of literal pieces and wildcards, and a string that matches
 * has the n-grams of all pieces.  Pieces with fewer than n characters exclude
 * nothing.
 *
 * ILIKE compares lower(string) with lower(pattern), so the pieces are those of
 * lower(pattern).  LIKE compares the strings themselves.  A piece of a string
 * need not appear in lower(string) as lower(piece), because lower() may depend
 * on neighbouring characters: capital sigma at the end of a word, I followed
 * by a dot in Turkish, I and J followed by accents in Lithuanian.  So each
 * character of a pattern of LIKE is lowered by itself, and a character whose
 * result may depend on its neighbours, or is not one character, is treated
 * like %.  Unicode's SpecialCasing.txt has no other conditions for lower case.
 *
 * text_prefix_ops extracts two keys: the whole value, and its first "length"
 * characters if it has that many.
 *
 * Under a nondeterministic collation equal strings may have different
 * characters, so such collations are rejected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin.h"
#include "access/reloptions.h"
#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "key.h"

PG_FUNCTION_INFO_V1(bloomidx_ngram_options);
PG_FUNCTION_INFO_V1(bloomidx_ngram_extract_value);
PG_FUNCTION_INFO_V1(bloomidx_ngram_extract_query);
PG_FUNCTION_INFO_V1(bloomidx_prefix_options);
PG_FUNCTION_INFO_V1(bloomidx_prefix_extract_value);
PG_FUNCTION_INFO_V1(bloomidx_prefix_extract_query);

/* Strategies of text_ngram_ops and of text_prefix_ops. */
#define NGRAM_LIKE			1
#define NGRAM_ILIKE			2
#define PREFIX_STARTS		1
#define PREFIX_LIKE			2
#define PREFIX_EQUAL		3

/* Bounds and defaults of the options. */
#define MIN_NGRAM			2
#define MAX_NGRAM			16
#define DEFAULT_NGRAM		4
#define MAX_PREFIX			1000
#define DEFAULT_PREFIX		8

/* Seeds that keep prefixes and whole values apart. */
#define SEED_NGRAM			0
#define SEED_WHOLE			1
#define SEED_PREFIX			2

/* The options of both classes: the number of characters. */
typedef struct TextOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			length;
} TextOptions;

/*
 * A list of keys.  Most duplicates are left out of a long list, so that its
 * size depends on the number of distinct keys more than on the length of the
 * string: "recent" has the last key of each slot.
 */
typedef struct KeyList
{
	uint64	   *keys;
	int			n;
	Size		allocated;
	uint64	   *recent;			/* NULL if the list has room for all keys */
	uint32		mask;			/* slots of "recent", a power of two, - 1 */
} KeyList;

/* Keys that a list has room for at first; and maximum slots of "recent". */
#define LONG_LIST			(32 * 1024)
#define RECENT_KEYS			(256 * 1024)

/* Characters between two checks for interrupts, a power of two. */
#define UNINTERRUPTED		(64 * 1024)

Datum
bloomidx_ngram_options(PG_FUNCTION_ARGS)
{
	local_relopts *relopts = (local_relopts *) PG_GETARG_POINTER(0);

	init_local_reloptions(relopts, sizeof(TextOptions));
	add_local_int_reloption(relopts, "n", "number of characters of an n-gram",
							DEFAULT_NGRAM, MIN_NGRAM, MAX_NGRAM,
							offsetof(TextOptions, length));
	PG_RETURN_VOID();
}

Datum
bloomidx_prefix_options(PG_FUNCTION_ARGS)
{
	local_relopts *relopts = (local_relopts *) PG_GETARG_POINTER(0);

	init_local_reloptions(relopts, sizeof(TextOptions));
	add_local_int_reloption(relopts, "length",
							"number of characters of a prefix",
							DEFAULT_PREFIX, 1, MAX_PREFIX,
							offsetof(TextOptions, length));
	PG_RETURN_VOID();
}

static int
get_length(FunctionCallInfo fcinfo, int otherwise)
{
	return PG_HAS_OPCLASS_OPTIONS() ?
		((TextOptions *) PG_GET_OPCLASS_OPTIONS())->length : otherwise;
}

/* Initializes a list to which up to "size" keys will be added. */
static void
init_list(KeyList *list, Size size)
{
	list->n = 0;
	list->allocated = Max(Min(size, LONG_LIST), 1);
	list->keys = palloc(sizeof(uint64) * list->allocated);
	list->recent = NULL;
	if (size > LONG_LIST)
	{
		list->mask = pg_nextpower2_32(Min(size, RECENT_KEYS)) - 1;
		list->recent = palloc0(sizeof(uint64) * (list->mask + 1));
	}
}

static pg_noinline void
enlarge_list(KeyList *list)
{
	list->allocated += list->allocated / 2;
	list->keys = repalloc_huge(list->keys, sizeof(uint64) * list->allocated);
}

static inline void
add_key(KeyList *list, const char *start, const char *end, uint64 seed)
{
	uint64		key = bx_hash_bytes(start, end - start, seed);

	if (list->recent)
	{
		uint64	   *last = &list->recent[key & list->mask];

		/* an empty slot contains 0, so the key 0 is always added */
		if (*last == key && key != 0)
			return;
		*last = key;
		if (list->n == list->allocated)
			enlarge_list(list);
	}
	Assert(list->n < list->allocated);
	list->keys[list->n++] = key;
}

/*
 * Returns the keys of a list as Datums of type bigint, and sets *nkeys to
 * their number.
 */
static Datum *
finish_list(KeyList *list, int32 *nkeys)
{
	*nkeys = list->n;
	if (list->recent)
		pfree(list->recent);
	return bx_hash_to_datums(list->keys, list->n);
}

/* Returns the end of the character that starts at p. */
static inline const char *
next_char(const char *p, const char *end)
{
	const char *next = p + (IS_HIGHBIT_SET(*p) ? pg_mblen(p) : 1);

	return Min(next, end);
}

/*
 * Adds the n-grams of a string.  "single" says that all its characters have
 * one byte, which makes this faster.
 */
static void
add_ngrams(KeyList *list, const char *data, Size len, int n, bool single)
{
	const char *end = data + len;
	const char *starts[MAX_NGRAM];
	const char *p = data;
	Size		count = 0;

	if (single)
	{
		for (; count + n <= len; count++)
		{
			if (count % UNINTERRUPTED == 0)
				CHECK_FOR_INTERRUPTS();
			add_key(list, data + count, data + count + n, SEED_NGRAM);
		}
		return;
	}
	while (p < end)
	{
		starts[count % n] = p;
		p = next_char(p, end);
		count++;
		if (count % UNINTERRUPTED == 0)
			CHECK_FOR_INTERRUPTS();
		if (count >= n)
			add_key(list, starts[count % n], p, SEED_NGRAM);
	}
}

/*
 * Returns whether lower() maps ASCII letters as in English under a collation.
 * If so, it maps every string of ASCII characters in this way: no condition of
 * Unicode for lower case concerns only ASCII characters, and libc maps each
 * character by itself.
 */
static bool
lowers_ascii(Oid collation)
{
	static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char	   *lower = str_tolower(upper, sizeof(upper) - 1, collation);
	bool		result = strcmp(lower, "abcdefghijklmnopqrstuvwxyz") == 0;

	pfree(lower);
	return result;
}

static bool
is_ascii_only(const char *data, Size len)
{
	for (Size i = 0; i < len; i++)
	{
		if (IS_HIGHBIT_SET(data[i]))
			return false;
	}
	return true;
}

/*
 * Returns lower(data).  "ascii" is the result of lowers_ascii(), which makes
 * this faster than the server's function.  *single is set to true if all
 * characters of the result are known to have one byte.
 */
static char *
lower_string(const char *data, Size len, Oid collation, bool ascii, Size *n,
			 bool *single)
{
	char	   *result;

	*single = ascii && is_ascii_only(data, len);
	if (*single)
	{
		result = palloc_extended(len + 1, MCXT_ALLOC_HUGE);
		for (Size i = 0; i < len; i++)
			result[i] = pg_ascii_tolower((unsigned char) data[i]);
		result[len] = '\0';
		*n = len;
	}
	else
	{
		result = str_tolower(data, len, collation);
		*n = strlen(result);
	}
	return result;
}

static void
check_collation(Oid collation)
{
	if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("nondeterministic collations are not supported for n-grams and prefixes")));
}

/* Results of checks of the collation, kept in fn_extra. */
typedef struct TextState
{
	bool		ascii;			/* see lowers_ascii */
} TextState;

static const TextState *
get_state(FunctionCallInfo fcinfo)
{
	TextState  *state = fcinfo->flinfo->fn_extra;

	if (state == NULL)
	{
		check_collation(PG_GET_COLLATION());
		state = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TextState));
		state->ascii = lowers_ascii(PG_GET_COLLATION());
		fcinfo->flinfo->fn_extra = state;
	}
	return state;
}

Datum
bloomidx_ngram_extract_value(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_PP(0);
	int32	   *nkeys = (int32 *) PG_GETARG_POINTER(1);
	Size		len;
	bool		single;
	char	   *lower = lower_string(VARDATA_ANY(value),
									 VARSIZE_ANY_EXHDR(value),
									 PG_GET_COLLATION(),
									 get_state(fcinfo)->ascii, &len, &single);
	KeyList		list;

	init_list(&list, len);
	add_ngrams(&list, lower, len, get_length(fcinfo, DEFAULT_NGRAM), single);
	pfree(lower);
	PG_FREE_IF_COPY(value, 0);
	PG_RETURN_POINTER(finish_list(&list, nkeys));
}

/*
 * Returns whether the lower case of a character may depend on its neighbours,
 * or whether the character may vanish.  In encodings other than UTF-8, the
 * result is true for all characters beyond ASCII.
 */
static bool
depends_on_neighbours(const char *p)
{
	pg_wchar	c;

	if (*p == 'I' || *p == 'J')
		return true;
	if (!IS_HIGHBIT_SET(*p))
		return false;
	if (GetDatabaseEncoding() != PG_UTF8)
		return true;
	c = utf8_to_unicode((const unsigned char *) p);
	switch (c)
	{
		case 0x00CC:			/* I with grave, acute, tilde */
		case 0x00CD:
		case 0x0128:
		case 0x012E:			/* I with ogonek, with dot */
		case 0x0130:
		case 0x03A3:			/* Sigma */
			return true;
	}

	/* combining marks; the dot above vanishes after a Turkish I */
	return (c >= 0x0300 && c <= 0x036F) || (c >= 0x1AB0 && c <= 0x1AFF) ||
		(c >= 0x1DC0 && c <= 0x1DFF) || (c >= 0x20D0 && c <= 0x20FF) ||
		(c >= 0xFE20 && c <= 0xFE2F);
}

/* A pattern of LIKE, while it is read. */
typedef struct Pattern
{
	const char *p;
	const char *end;
} Pattern;

/*
 * Reads the next character of a pattern.  Returns its length, with *start set
 * to it, or 0 if it is a wildcard.  An escape character at the end, which
 * LIKE rejects, counts as a wildcard.
 */
static int
read_char(Pattern *pattern, const char **start)
{
	const char *p = pattern->p;
	bool		is_wildcard = *p == '%' || *p == '_';

	if (*p == '\\')
	{
		p++;
		is_wildcard = p == pattern->end;
	}
	pattern->p = p == pattern->end ? p : next_char(p, pattern->end);
	*start = p;
	return is_wildcard ? 0 : pattern->p - p;
}

/*
 * Appends a literal character of a pattern of LIKE in lower case to a piece.
 * Returns false if the character must be treated as a wildcard.
 */
static bool
append_lower(StringInfo piece, const char *start, int len, Oid collation)
{
	char	   *lower;
	Size		n;
	bool		single;

	if (depends_on_neighbours(start))
		return false;
	lower = str_tolower(start, len, collation);
	n = strlen(lower);
	single = n > 0 && next_char(lower, lower + n) == lower + n;
	if (single)
		appendBinaryStringInfo(piece, lower, n);
	pfree(lower);
	return single;
}

/*
 * Adds the n-grams of the literal pieces of a pattern.  If "exact", the
 * characters of the pieces are lowered one by one; else the pattern is already
 * in lower case.
 */
static void
add_pieces(KeyList *list, const char *data, Size len, int n, bool exact,
		   Oid collation)
{
	Pattern		pattern = {data, data + len};
	StringInfoData piece;

	initStringInfo(&piece);
	while (pattern.p < pattern.end)
	{
		const char *start;
		int			size = read_char(&pattern, &start);
		bool		is_literal = size > 0;

		if (is_literal && exact)
			is_literal = append_lower(&piece, start, size, collation);
		else if (is_literal)
			appendBinaryStringInfo(&piece, start, size);
		if (!is_literal)
		{
			add_ngrams(list, piece.data, piece.len, n, false);
			resetStringInfo(&piece);
		}
	}
	add_ngrams(list, piece.data, piece.len, n, false);
	pfree(piece.data);
}

Datum
bloomidx_ngram_extract_query(PG_FUNCTION_ARGS)
{
	text	   *pattern = PG_GETARG_TEXT_PP(0);
	int32	   *nkeys = (int32 *) PG_GETARG_POINTER(1);
	StrategyNumber strategy = PG_GETARG_UINT16(2);
	int32	   *mode = (int32 *) PG_GETARG_POINTER(6);
	const char *data = VARDATA_ANY(pattern);
	Size		len = VARSIZE_ANY_EXHDR(pattern);
	Oid			collation = PG_GET_COLLATION();
	bool		exact = strategy == NGRAM_LIKE;
	bool		single;
	KeyList		list;

	check_collation(collation);
	if (strategy != NGRAM_LIKE && strategy != NGRAM_ILIKE)
		elog(ERROR, "unrecognized strategy number: %d", strategy);
	if (!exact)
		data = lower_string(data, len, collation, false, &len, &single);

	/* the lower case of a character may have more bytes, but is one character */
	init_list(&list, len);
	add_pieces(&list, data, len, get_length(fcinfo, DEFAULT_NGRAM), exact,
			   collation);
	if (list.n == 0)
		*mode = GIN_SEARCH_MODE_ALL;
	PG_RETURN_POINTER(finish_list(&list, nkeys));
}

/*
 * Returns the end of the first n characters of a string, or NULL if it has
 * fewer.
 */
static const char *
end_of_prefix(const char *data, Size len, int n)
{
	const char *end = data + len;

	for (; n > 0 && data < end; n--)
		data = next_char(data, end);
	return n > 0 ? NULL : data;
}

Datum
bloomidx_prefix_extract_value(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_PP(0);
	int32	   *nkeys = (int32 *) PG_GETARG_POINTER(1);
	const char *data = VARDATA_ANY(value);
	Size		len = VARSIZE_ANY_EXHDR(value);
	const char *end = end_of_prefix(data, len,
									get_length(fcinfo, DEFAULT_PREFIX));
	KeyList		list;

	(void) get_state(fcinfo);
	init_list(&list, 2);
	add_key(&list, data, data + len, SEED_WHOLE);
	if (end)
		add_key(&list, data, end, SEED_PREFIX);
	PG_RETURN_POINTER(finish_list(&list, nkeys));
}

/*
 * Appends the literal characters at the start of a pattern.  Returns whether
 * that is the whole pattern.
 */
static bool
read_literal_start(const char *data, Size len, StringInfo literal)
{
	Pattern		pattern = {data, data + len};

	while (pattern.p < pattern.end)
	{
		const char *start;
		int			size = read_char(&pattern, &start);

		if (size == 0)
			return false;
		appendBinaryStringInfo(literal, start, size);
	}
	return true;
}

Datum
bloomidx_prefix_extract_query(PG_FUNCTION_ARGS)
{
	text	   *operand = PG_GETARG_TEXT_PP(0);
	int32	   *nkeys = (int32 *) PG_GETARG_POINTER(1);
	StrategyNumber strategy = PG_GETARG_UINT16(2);
	int32	   *mode = (int32 *) PG_GETARG_POINTER(6);
	bool		is_whole = strategy == PREFIX_EQUAL;
	StringInfoData literal;
	const char *end;
	KeyList		list;

	check_collation(PG_GET_COLLATION());
	initStringInfo(&literal);
	if (strategy == PREFIX_LIKE)
		is_whole = read_literal_start(VARDATA_ANY(operand),
									  VARSIZE_ANY_EXHDR(operand), &literal);
	else if (strategy == PREFIX_STARTS || strategy == PREFIX_EQUAL)
		appendBinaryStringInfo(&literal, VARDATA_ANY(operand),
							   VARSIZE_ANY_EXHDR(operand));
	else
		elog(ERROR, "unrecognized strategy number: %d", strategy);

	init_list(&list, 1);
	end = end_of_prefix(literal.data, literal.len,
						get_length(fcinfo, DEFAULT_PREFIX));
	if (is_whole)
		add_key(&list, literal.data, literal.data + literal.len, SEED_WHOLE);
	else if (end)
		add_key(&list, literal.data, end, SEED_PREFIX);
	else
		*mode = GIN_SEARCH_MODE_ALL;
	PG_RETURN_POINTER(finish_list(&list, nkeys));
}

/* Returns the name of the extractValue function of an extracting column. */
static char *
extraction_name(Relation index, int attno)
{
	return get_func_name(index_getprocid(index, attno, BX_EXTRACT_VALUE_PROC));
}

/*
 * Returns whether an index column needs a deterministic collation, because its
 * class compares parts of strings.
 */
bool
bx_text_needs_deterministic(Relation index, int attno)
{
	FmgrInfo	proc;

	fmgr_info(index_getprocid(index, attno, BX_EXTRACT_VALUE_PROC), &proc);
	return proc.fn_addr == bloomidx_ngram_extract_value ||
		proc.fn_addr == bloomidx_prefix_extract_value;
}

/*
 * Returns whether an extracting column has keys that overlap, as n-grams do,
 * so that most queries have many keys.  The class of pg_trgm is recognized by
 * the name of its function.
 */
bool
bx_text_is_fragmented(Relation index, int attno)
{
	const char *name = extraction_name(index, attno);

	return name != NULL &&
		(strcmp(name, "bloomidx_ngram_extract_value") == 0 ||
		 strcmp(name, "gin_extract_value_trgm") == 0);
}
