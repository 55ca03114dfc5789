/*-------------------------------------------------------------------------
 *
 * storage.h
 *	  Access to the pages of an index: identity checks, allocation, the
 *	  metapage, and the WAL record that sets bits. format.h defines the
 *	  on-disk format.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_STORAGE_H
#define BX_STORAGE_H

#include "postgres.h"

#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "../compat.h"
#include "../debug.h"
#include "format.h"

/* Maximum number of bits that one key sets in one page: one for each probe. */
#define BX_MAX_KEY_BITS		30

/* Maximum number of bits that one WAL record sets in one page. */
#define BX_MAX_PAGE_BITS	8000

typedef struct BxPageBit
{
	uint16		offset;			/* of the byte, from the start of the page */
	uint8		bit;
} BxPageBit;

typedef struct BxPageBits
{
	Buffer		buffer;
	LocationIndex lower;		/* pd_lower of a page of this kind once it has
								 * bits */
	int			n;
	BxPageBit  *at;
} BxPageBits;

/* Maximum number of pages in which one WAL record sets bits. */
#define BX_MAX_BITS_PAGES	4

/* page.c */
pg_noreturn extern void bx_page_corrupted(Relation index, BlockNumber blkno,
										  const char *problem);
extern Buffer bx_page_pin(Relation rel, BlockNumber blkno);
extern void bx_page_prefetch(Relation index, BlockNumber blkno);
extern void bx_page_init(Page page, uint8 kind);
extern const char *bx_page_problem(Page page, uint8 kind);
extern void bx_page_check(Relation index, Buffer buffer, uint8 kind);
extern BlockNumber bx_page_extend(Relation index, uint32 npages);
extern void bx_page_extend_to(Relation index, BlockNumber blkno);
extern void bx_page_changed(Relation index, Buffer buffer, bool wal);
extern void bx_page_write_new(Relation index, BlockNumber blkno,
							  const char *image, bool wal);
extern void bx_page_set_bits(Relation index, const BxPageBits *pages,
							 int npages);
extern void bx_meta_init(Page page, uint8 layout, uint8 keys, double rate,
						 uint8 lg_base);
extern void bx_meta_read(Relation index, BxMetaPageData *meta);
extern void bx_meta_write(Relation index, const BxMetaPageData *meta);

#endif							/* BX_STORAGE_H */
