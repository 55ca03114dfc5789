/*-------------------------------------------------------------------------
 *
 * vectors.c
 *	  Test vectors: hashes, and the bits that fixed keys set in filters of
 *	  every kind, must be those of test/unit/vectors.txt on every processor
 *	  and with every compiler.
 *
 * Without arguments the program compares; with an argument it prints the file
 * as it would have to be.  src/README, "Test vectors", says what a change of
 * a line means.  test/vectors compiles and runs this for other processors.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "keyhash.h"
#include "unit.h"

#define VECTORS		"test/unit/vectors.txt"

#define LENGTH(array)	((int) (sizeof(array) / sizeof((array)[0])))

/* The rows of slices and groups on pages of 4, 8, 16 and 32 kB. */
static const int rows_by_page[] = {252, ROWS, 1020, 2044};

#define MAX_ROWS	2044
#define MAX_SLICES	64
#define PAGE_BYTES	(MAX_ROWS * BX_MASK_BYTES)

/* The file; NULL if lines are printed instead of compared. */
static FILE * vectors = NULL;

/* The line under construction, and its number. */
static char line[4096];
static size_t line_length = 0;
static int	line_number = 0;

/* Appends to the current line. */
__attribute__((format(printf, 1, 2))) static void
put(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	line_length += (size_t) vsnprintf(line + line_length,
									  sizeof(line) - line_length, format, args);
	va_end(args);
	if (line_length >= sizeof(line))
		abort();
}

/* Compares the current line with the next line of the file, or prints it. */
static void
end_line(void)
{
	char		expected[sizeof(line)] = "";

	line_number++;
	if (vectors == NULL)
		puts(line);
	else
	{
		if (fgets(expected, sizeof(expected), vectors) != NULL)
			expected[strcspn(expected, "\n")] = '\0';
		CHECK(strcmp(line, expected) == 0, "%s:%d\n#  has %s\n#  now %s",
			  VECTORS, line_number, expected, line);
	}
	line_length = 0;
	line[0] = '\0';
}

static void
put_comment(const char *text)
{
	put("# %s", text);
	end_line();
}

static void
put_hash(uint64_t hash)
{
	put(" %016llx", (unsigned long long) hash);
}

static void
put_bytes(const char *bytes, size_t n)
{
	put(" ");
	for (size_t i = 0; i < n; i++)
		put("%02x", (uint8_t) bytes[i]);
}

/* Prints the positions of the bits that are set. */
static void
put_bits(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n * 8; i++)
	{
		if ((bytes[i / 8] >> (i % 8)) & 1)
			put(" %zu", i);
	}
}

/* Prints a digest of many bytes: XXH3, which other lines test. */
static void
put_digest(const void *bytes, size_t n)
{
	put_hash(bx_keyhash_bytes(bytes, n, 0));
}

static const uint64_t some_keys[] = {
	0, 1, UINT64_C(0x00000000ffffffff), UINT64_C(0xffffffff00000000),
	UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210),
	UINT64_C(0x8000000000000000), UINT64_C(0xffffffffffffffff)
};

static const uint64_t seeds[] = {0, 257, UINT64_C(0xfedcba9876543210)};

static void
print_hashes(void)
{
	/* XXH3 has other code for each of these ranges of lengths */
	static const int lengths[] = {0, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 32, 33,
		64, 65, 96, 97, 128, 129, 239, 240, 241, 512, 1023, 1024, 1025, 1088,
	4096, 5000};
	uint8_t		bytes[5000];

	for (int i = 0; i < LENGTH(bytes); i++)
		bytes[i] = (uint8_t) mix((uint64_t) i);

	put_comment("hash of an integer, with a seed");
	for (int s = 0; s < LENGTH(seeds); s++)
	{
		for (int i = 0; i < LENGTH(some_keys); i++)
		{
			put("int");
			put_hash(some_keys[i]);
			put_hash(seeds[s]);
			put(":");
			put_hash(bx_keyhash_int(some_keys[i], seeds[s]));
			end_line();
		}
	}
	put_comment("hash of bytes: their number, the seed");
	for (int s = 0; s < LENGTH(seeds); s++)
	{
		for (int i = 0; i < LENGTH(lengths); i++)
		{
			put("bytes %d", lengths[i]);
			put_hash(seeds[s]);
			put(":");
			put_hash(bx_keyhash_bytes(bytes, (size_t) lengths[i], seeds[s]));
			end_line();
		}
	}

	/* an address that is a multiple of nothing */
	for (int i = 0; i < LENGTH(lengths) - 1; i++)
	{
		put("bytes from 1: %d:", lengths[i]);
		put_hash(bx_keyhash_bytes(bytes + 1, (size_t) lengths[i], 0));
		end_line();
	}
}

static void
print_keys(void)
{
	static const int columns[] = {1, 2, 32};
	static const BxKeyKind kinds[] = {BX_KEY_NULL, BX_KEY_NOT_NULL,
	BX_KEY_NULL_ELEMENT, BX_KEY_EMPTY};
	static const char *const names[] = {"null", "not null", "null element",
	"empty"};

	put_comment("key of a column's value with a hash");
	for (int c = 0; c < LENGTH(columns); c++)
	{
		for (int i = 0; i < LENGTH(some_keys); i++)
		{
			put("key %d", columns[c]);
			put_hash(some_keys[i]);
			put(":");
			put_hash(bx_keyhash_int(some_keys[i],
									bx_keyhash_seed(columns[c], BX_KEY_VALUE)));
			end_line();
		}
	}
	put_comment("key that states something about a column");
	for (int c = 0; c < LENGTH(columns); c++)
	{
		for (int i = 0; i < LENGTH(kinds); i++)
		{
			put("%s %d:", names[i], columns[c]);
			put_hash(bx_keyhash_int(0, bx_keyhash_seed(columns[c], kinds[i])));
			end_line();
		}
	}
	put_comment("combined key of the first keys in this list");
	for (int n = 1; n <= LENGTH(some_keys); n++)
	{
		put("combined %d:", n);
		put_hash(bx_keyhash_combine(some_keys, n));
		end_line();
	}
	put_comment("hash of a key for a level");
	for (int level = 1; level <= 3; level++)
	{
		for (int i = 0; i < LENGTH(some_keys); i++)
		{
			put("level %d", level);
			put_hash(some_keys[i]);
			put(":");
			put_hash(bx_filter_level_hash(some_keys[i], level));
			end_line();
		}
	}
}

/* Pages, and the planes that a build makes them from. */
static char slices[MAX_SLICES][PAGE_BYTES];
static uint8_t scratch[MAX_SLICES * BX_PLANE_BYTES(MAX_ROWS)];
static uint8_t planes_of[BX_PLANES][MAX_SLICES * BX_PLANE_BYTES(MAX_ROWS)];

static uint64_t
key_of(int child, int i)
{
	return mix(((uint64_t) child << 32) + (uint64_t) i);
}

/* Prints the bits of single keys, as an insert sets them. */
static void
print_slice_bits(const BxPlanes *shape)
{
	int			nrows = shape->nrows;

	for (int i = 0; i < LENGTH(some_keys); i++)
	{
		uint64_t	lh = bx_filter_level_hash(some_keys[i], shape->level);
		uint32_t	slice = bx_filter_slice(lh, shape->nslices);
		int			child = 17 * i;

		memset(slices[0], 0, PAGE_BYTES);
		bx_filter_add(slices[0], nrows, shape->nprobes, lh, child);
		CHECK(bx_filter_test(slices[0], nrows, shape->nprobes, lh, child),
			  "child %d", child);
		put("slice %d rows %d slices %u probes %d, child %d", shape->level,
			nrows, shape->nslices, shape->nprobes, child);
		put_hash(some_keys[i]);
		put(": %u bits", slice);
		put_bits(slices[0], (size_t) nrows * BX_MASK_BYTES);
		end_line();
	}
}

/*
 * Prints digests of slices with many keys.  They are the same whether an
 * insert sets the bits, or a build.
 */
static void
print_slice_pages(const BxPlanes *shape, BxAddKeys add_keys)
{
	const size_t stride = BX_PLANE_BYTES(shape->nrows) * shape->nslices;
	const size_t used = (size_t) shape->nrows * BX_MASK_BYTES;
	static char built[PAGE_BYTES];
	const int	nkeys = 20;
	uint64_t	keys[20];

	memset(slices, 0, sizeof(slices));
	memset(scratch, 0, sizeof(scratch));
	memset(planes_of, 0, sizeof(planes_of));
	for (int child = 0; child < BX_MASK_BITS; child++)
	{
		for (int i = 0; i < nkeys; i++)
		{
			uint64_t	lh;

			keys[i] = key_of(child, i);
			lh = bx_filter_level_hash(keys[i], shape->level);
			bx_filter_add(slices[bx_filter_slice(lh, shape->nslices)],
						  shape->nrows, shape->nprobes, lh, child);
		}
		add_keys(shape, scratch, bx_filter_plane_bit(child), keys,
				 (size_t) nkeys);
		bx_filter_merge(shape, scratch, planes_of[0] + stride * (child / 8));
	}
	put("slices %d rows %d slices %u probes %d:", shape->level, shape->nrows,
		shape->nslices, shape->nprobes);
	for (uint32_t s = 0; s < shape->nslices; s++)
	{
		memset(built, 0, sizeof(built));
		bx_filter_transpose(planes_of[0] + BX_PLANE_BYTES(shape->nrows) * s,
							stride, built, shape->nrows);
		CHECK(memcmp(built, slices[s], PAGE_BYTES) == 0,
			  "slice %u of %u, %d rows, %d probes", s, shape->nslices,
			  shape->nrows, shape->nprobes);
		if (s < 3 || s == shape->nslices - 1)
			put_digest(slices[s], used);
	}
	end_line();
}

static void
print_slices(void)
{
	static const uint32_t nslices[] = {1, 2, 3, 7, 64};
	static const int nprobes[] = {1, 5, 8, 11, BX_MAX_PROBES};

	put_comment("bits of a key in an empty slice: level, size, child, key: slice, bits");
	for (int s = 0; s < LENGTH(nslices); s++)
	{
		BxPlanes	shape = {1 + s % 2, ROWS, nprobes[s], nslices[s], 0,
		nslices[s]};

		print_slice_bits(&shape);
	}
	put_comment("slices with 20 keys for each child: level, size: digests of slices 0, 1, 2 and the last");
	for (int r = 0; r < LENGTH(rows_by_page); r++)
	{
		for (int s = 0; s < LENGTH(nslices); s++)
		{
			for (int p = 0; p < LENGTH(nprobes); p++)
			{
				BxPlanes	shape = {1 + p % 2, rows_by_page[r], nprobes[p],
				nslices[s], 0, nslices[s]};

				print_slice_pages(&shape, bx_filter_choose_add_keys());
			}
		}
	}
}

/* Adds a key to a column of a group whose pages are slices[]. */
static void
add_to_group(int nrows, int width, uint32_t nblocks, int nprobes,
			 uint64_t key, int column)
{
	static uint8_t lines[BX_MASK_BITS * BX_LINE_BYTES(MAX_ROWS)];
	uint64_t	lh = bx_filter_level_hash(key, 3);
	uint32_t	block = bx_filter_slice(lh, nblocks);
	uint32_t	per_page = bx_group_page_blocks(width);
	char	   *page = slices[block / per_page];

	memset(lines, 0, per_page * BX_LINE_BYTES(nrows));
	bx_group_add(lines + block % per_page * BX_LINE_BYTES(nrows), nrows,
				 nprobes, lh);
	bx_group_put_column(lines, per_page, nrows, width, column, page);
	CHECK(bx_group_test(page, nrows, width, block % per_page, nprobes, lh,
						column), "width %d, column %d", width, column);
}

static void
print_group_bits(int width)
{
	const uint32_t nblocks = 48;

	for (int i = 0; i < LENGTH(some_keys); i++)
	{
		int			column = 17 * i % width;
		uint64_t	lh = bx_filter_level_hash(some_keys[i], 3);
		uint32_t	block = bx_filter_slice(lh, nblocks);
		uint32_t	page = block / bx_group_page_blocks(width);

		memset(slices[page], 0, PAGE_BYTES);
		add_to_group(ROWS, width, nblocks, 5, some_keys[i], column);
		put("group width %d blocks %u probes 5, column %d", width, nblocks,
			column);
		put_hash(some_keys[i]);
		put(": %u %u bits", page, block % bx_group_page_blocks(width));
		put_bits(slices[page], (size_t) ROWS * BX_MASK_BYTES);
		end_line();
	}
}

/*
 * Prints digests of the pages of a group with 20 keys for each column, and of
 * a page that results from merging the group into a wider one, with twice as
 * many blocks.
 */
static void
print_group_pages(int nrows, int width, uint32_t nblocks, int nprobes)
{
	uint32_t	npages = bx_group_pages(nblocks, width);
	size_t		used = (size_t) nrows * BX_MASK_BYTES;

	memset(slices, 0, sizeof(slices));
	for (int column = 0; column < width; column++)
	{
		for (int i = 0; i < 20; i++)
			add_to_group(nrows, width, nblocks, nprobes, key_of(column, i),
						 column);
	}
	put("groups rows %d width %d blocks %u probes %d:", nrows, width, nblocks,
		nprobes);
	for (uint32_t p = 0; p < npages; p++)
	{
		if (p < 3 || p == npages - 1)
			put_digest(slices[p], used);
	}
	if (width < BX_MASK_BITS)
	{
		static char merged[PAGE_BYTES];
		int			wider = 2 * width;
		uint32_t	per_page = bx_group_page_blocks(width);
		BxMask		columns;

		memset(merged, 0, sizeof(merged));
		bx_mask_fill(&columns, true);
		for (uint32_t to = 0; to < bx_group_page_blocks(wider) &&
			 to < 2 * nblocks; to++)
		{
			uint32_t	from = bx_group_block_of(to, 2 * nblocks, nblocks);

			bx_group_merge(slices[from / per_page], width, from % per_page,
						   &columns, merged, wider, to, width, nrows);
		}
		put(" merged");
		put_digest(merged, used);
	}
	end_line();
}

static void
print_groups(void)
{
	put_comment("bits of a key in an empty group: size, column, key: page, block of the page, bits");
	for (int width = 1; width <= BX_MASK_BITS; width *= 2)
		print_group_bits(width);
	put_comment("groups with 20 keys for each column: size: digests of pages 0, 1, 2 and the last, and of a merged page");
	for (int r = 0; r < LENGTH(rows_by_page); r++)
	{
		for (int width = 1; width <= BX_MASK_BITS; width *= 2)
		{
			print_group_pages(rows_by_page[r], width, 3, 5);
			print_group_pages(rows_by_page[r], width, 48, 7);
		}
	}
}

/* The sizes of filters that are printed, small and large formats. */
static const int packed_sizes[] = {9, 10, 17, 40, 63, 69, 133, 197};

/*
 * Filters of layout "block": both formats, each with and without doubt.  The
 * number of probes is that of a plan for so many keys.
 */
static void
print_packed(void)
{
	char		filters[LENGTH(packed_sizes)][256];
	uint32_t	positions[BX_PACKED_MAX_PROBES];

	put_comment("packed filter: bytes, planned keys, key: positions of its bits");
	for (int s = 0; s < LENGTH(packed_sizes); s++)
	{
		size_t		size = (size_t) packed_sizes[s];

		bx_packed_init(filters[s], size, packed_sizes[s], 0.0001);
		for (int i = 0; i < LENGTH(some_keys); i++)
		{
			int			n = bx_packed_positions(filters[s], size, some_keys[i],
												positions);

			put("packed %zu %zu", size, size);
			put_hash(some_keys[i]);
			put(":");
			for (int p = 0; p < n; p++)
				put(" %u", positions[p]);
			end_line();
		}
	}
	put_comment("packed filter with 8 keys: bytes, planned keys: content");
	for (int s = 0; s < LENGTH(packed_sizes); s++)
	{
		for (int planned = 1; planned <= 100; planned *= 10)
		{
			size_t		size = (size_t) packed_sizes[s];

			bx_packed_init(filters[s], size, planned, 0.0001);
			for (int i = 0; i < LENGTH(some_keys); i++)
				bx_packed_add(filters[s], size, mix(some_keys[i]));
			put("packed %zu %d:", size, planned);
			put_bytes(filters[s], size);
			end_line();
		}
	}
	put_comment("packed filter in doubt: bytes: content");
	for (int s = 0; s < LENGTH(packed_sizes); s++)
	{
		size_t		size = (size_t) packed_sizes[s];

		bx_packed_init(filters[s], size, 10, 0.0001);
		bx_packed_set_doubt(filters[s], size);
		put("doubt %zu:", size);
		put_bytes(filters[s], size);
		end_line();
	}
}

/* Which of several filters match: the answers of searches. */
static void
print_answers(void)
{
	char		page[8128];
	uint16_t	offsets[LENGTH(packed_sizes) + 1];
	BxPackedProbe probe = bx_packed_choose_probe();

	offsets[0] = 0;
	for (int s = 0; s < LENGTH(packed_sizes); s++)
	{
		size_t		size = (size_t) packed_sizes[s];

		offsets[s + 1] = (uint16_t) (offsets[s] + size);
		bx_packed_init(page + offsets[s], size, packed_sizes[s], 0.1);
		for (int i = 0; i < 2 * packed_sizes[s]; i++)
			bx_packed_add(page + offsets[s], size, key_of(s, i));
	}
	put_comment("number of 1000 keys that filters of these sizes match");
	for (int s = 0; s < LENGTH(packed_sizes); s++)
		put("%d ", packed_sizes[s]);
	put("bytes:");
	{
		int			matches[LENGTH(packed_sizes)] = {0};

		for (int i = 0; i < 1000; i++)
		{
			uint8_t		result[LENGTH(packed_sizes)];

			probe(page, offsets, LENGTH(packed_sizes), key_of(1000, i), result);
			for (int s = 0; s < LENGTH(packed_sizes); s++)
				matches[s] += result[s];
		}
		for (int s = 0; s < LENGTH(packed_sizes); s++)
			put(" %d", matches[s]);
	}
	end_line();
}

/*
 * Sizes.  They are stored with the filters, so they may change without a new
 * version, and the arithmetic is that of floating-point numbers.
 */
static void
print_plans(void)
{
	static const double targets[] = {0.00001, 0.0002, 0.002, 0.05, 0.25};
	static const double keys[] = {1, 16, 75, 300, 5000, 1e6};

	put_comment("plans: rows, keys, target rate: slices, probes");
	for (int r = 0; r < LENGTH(rows_by_page); r++)
	{
		for (int k = 0; k < LENGTH(keys); k++)
		{
			for (int t = 0; t < LENGTH(targets); t++)
			{
				BxPlan		plan = bx_filter_plan(keys[k], targets[t],
												  rows_by_page[r]);

				put("plan %d %g %g: %u %d", rows_by_page[r], keys[k],
					targets[t], plan.nslices, plan.nprobes);
				end_line();
			}
		}
	}
}

int
main(int argc, char **argv)
{
	(void) argv;
	if (argc == 1 && (vectors = fopen(VECTORS, "r")) == NULL)
	{
		perror(VECTORS);
		return 1;
	}
	put_comment("Test vectors, written by test/vectors --write; see src/README, \"Test vectors\".");
	print_hashes();
	print_keys();
	print_slices();
	print_groups();
	print_packed();
	print_answers();
	print_plans();
	if (vectors != NULL)
	{
		CHECK(fgetc(vectors) == EOF, "%s has more than %d lines", VECTORS,
			  line_number);
		fclose(vectors);
	}
	return finish();
}
