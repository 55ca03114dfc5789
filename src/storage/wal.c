/*-------------------------------------------------------------------------
 *
 * wal.c
 *	  The WAL record that sets the bits of a key in a page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/xloginsert.h"
#include "miscadmin.h"

#include "storage.h"

/*
 * The changes of one page in a generic WAL record: fragments that consist of
 * an offset, a length and that many bytes.
 */
#define FRAGMENT_HEADER		(2 * sizeof(uint16))
#define FRAGMENTS_SIZE(nbits) \
	((FRAGMENT_HEADER + 1) * (nbits) + FRAGMENT_HEADER + sizeof(LocationIndex))

/* The changes of a page must fit in 16 bits. */
StaticAssertDecl(FRAGMENTS_SIZE(BX_MAX_PAGE_BITS) <= PG_UINT16_MAX,
				 "too many bits for a WAL record");

/* Size of the fragments of one key in all pages, which need no allocation. */
#define KEY_FRAGMENTS_SIZE \
	(FRAGMENTS_SIZE(BX_MAX_KEY_BITS) * BX_MAX_BITS_PAGES)

typedef struct Fragments
{
	int			size;
	char	   *data;
} Fragments;

/* Appends a fragment, and returns its end. */
static inline char *
append_fragment(char *to, uint16 offset, const void *bytes, uint16 len)
{
	memcpy(to, &offset, sizeof(offset));
	memcpy(to + sizeof(offset), &len, sizeof(len));
	memcpy(to + FRAGMENT_HEADER, bytes, len);
	return to + FRAGMENT_HEADER + len;
}

/* Sets bits in a page, and stores the changes as fragments. */
static void
set_page_bits(const BxPageBits *bits, Fragments *fragments)
{
	Page		page = BufferGetPage(bits->buffer);
	PageHeader	header = (PageHeader) page;
	char	   *to = fragments->data;

	/*
	 * No bit may be in the hole: full-page images omit it, and replay zeroes
	 * it.
	 */
	if (header->pd_lower != bits->lower)
	{
		header->pd_lower = bits->lower;
		to = append_fragment(to, offsetof(PageHeaderData, pd_lower),
							 &header->pd_lower, sizeof(header->pd_lower));
	}
	for (int i = 0; i < bits->n; i++)
	{
		BxPageBit	bit = bits->at[i];
		uint8		byte = ((uint8 *) page)[bit.offset];

		if (!(byte & bit.bit))
		{
			byte |= bit.bit;
			((uint8 *) page)[bit.offset] = byte;
			to = append_fragment(to, bit.offset, &byte, 1);
		}
	}
	fragments->size = to - fragments->data;
}

/*
 * Sets bits in up to BX_MAX_BITS_PAGES pages, at most BX_MAX_PAGE_BITS in each,
 * and logs them.  The caller holds an exclusive lock on each page.
 *
 * This writes the same generic record as GenericXLogFinish() would.  But it
 * knows what has changed, so it need not copy and compare whole pages, which
 * would be most of the cost of an insert.  Replay locks the pages in this
 * order, so the page of the upper level must come first, and among the pages of
 * a level the one with the lower number.
 */
void
bx_page_set_bits(Relation index, const BxPageBits *pages, int npages)
{
	Fragments	fragments[BX_MAX_BITS_PAGES];
	bool		wal = RelationNeedsWAL(index);
	char		few[KEY_FRAGMENTS_SIZE];
	char	   *data = few;
	Size		size = 0;

	Assert(npages > 0 && npages <= BX_MAX_BITS_PAGES);
	for (int i = 0; i < npages; i++)
	{
		Assert(pages[i].n <= BX_MAX_PAGE_BITS);
		size += FRAGMENTS_SIZE(pages[i].n);
	}
	if (size > sizeof(few))
		data = palloc(size);
	for (int i = 0; i < npages; i++)
	{
		fragments[i].data = i == 0 ? data : fragments[i - 1].data +
			FRAGMENTS_SIZE(pages[i - 1].n);
	}

	if (wal)
		XLogBeginInsert();
	START_CRIT_SECTION();
	for (int i = 0; i < npages; i++)
	{
		set_page_bits(&pages[i], &fragments[i]);
		MarkBufferDirty(pages[i].buffer);
		if (wal)
		{
			XLogRegisterBuffer(i, pages[i].buffer, REGBUF_STANDARD);
			XLogRegisterBufData(i, fragments[i].data, fragments[i].size);
		}
	}
	if (wal)
	{
		XLogRecPtr	lsn = XLogInsert(RM_GENERIC_ID, 0);

		for (int i = 0; i < npages; i++)
			PageSetLSN(BufferGetPage(pages[i].buffer), lsn);
	}
	END_CRIT_SECTION();
	if (data != few)
		pfree(data);
}
