/*-------------------------------------------------------------------------
 *
 * pagefile.c
 *	  Replaces the file of a relation under a running server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/storage.h"
#include "fmgr.h"
#include "storage/smgr.h"
#include "utils/inval.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(write_pages);

/*
 * write_pages(relation regclass, pages bytea): the relation has these pages, and no
 * others, and nobody remembers what it had before.
 *
 * The pages do not go through shared buffers, so that the next reader meets
 * them as it would meet what a disk has damaged.
 */
Datum
write_pages(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessExclusiveLock);
	bytea	   *pages = PG_GETARG_BYTEA_PP(1);
	BlockNumber npages = VARSIZE_ANY_EXHDR(pages) / BLCKSZ;

	/* direct I/O wants pages aligned like this */
	char	   *page = (char *) TYPEALIGN(4096, palloc(BLCKSZ + 4096));

	RelationTruncate(rel, 0);
	for (BlockNumber i = 0; i < npages; i++)
	{
		memcpy(page, VARDATA_ANY(pages) + (Size) i * BLCKSZ, BLCKSZ);
		smgrextend(RelationGetSmgr(rel), MAIN_FORKNUM, i, page, true);
	}
	CacheInvalidateRelcache(rel);
	relation_close(rel, AccessExclusiveLock);
	PG_RETURN_VOID();
}
