/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  aminsert: hashes a new row, and passes its keys to the layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/rel.h"

#include "am.h"

/*
 * Returns the state of the statement's inserts into this index, which is
 * created at the first call and kept in ii_AmCache.
 */
BxInsert *
bx_insert_get(Relation index, IndexInfo *indexInfo)
{
	BxInsert   *insert = indexInfo->ii_AmCache;
	MemoryContext oldcxt;
	BxMetaPageData meta;

	if (insert != NULL)
		return insert;

	bx_meta_read(index, &meta);
	oldcxt = MemoryContextSwitchTo(indexInfo->ii_Context);
	insert = palloc0(sizeof(BxInsert));
	insert->index = index;
	insert->tmpcxt = AllocSetContextCreate(CurrentMemoryContext,
										   "bloomidx insert",
										   ALLOCSET_SMALL_SIZES);
	insert->layout = bx_layout_by_id(index, meta.layout);
	insert->layout_state = insert->layout->insert_begin(&meta);
	insert->natts = IndexRelationGetNumberOfKeyAttributes(index);
	insert->hashers = palloc(sizeof(BxHasher) * insert->natts);
	for (int i = 0; i < insert->natts; i++)
		bx_hasher_init(&insert->hashers[i], index, i + 1, InvalidOid);
	bx_hash_row_alloc(insert->natts, &insert->row);
	insert->keys = meta.keys;
	insert->keys_per_row = bx_hash_keys_per_row(insert->natts, meta.keys);
	insert->ahead = bx_ahead_begin(index, indexInfo, insert->hashers,
								   insert->natts);
	MemoryContextSwitchTo(oldcxt);
	indexInfo->ii_AmCache = insert;
	return insert;
}

bool
bxinsert(Relation index, Datum *values, bool *isnull, ItemPointer ht_ctid,
		 Relation heap, IndexUniqueCheck checkUnique, bool indexUnchanged,
		 IndexInfo *indexInfo)
{
	BxInsert   *insert = bx_insert_get(index, indexInfo);
	MemoryContext oldcxt = MemoryContextSwitchTo(insert->tmpcxt);
	bool		is_first;

	/* the relcache entry may differ from that of the previous call */
	insert->index = index;
	bx_hash_row(insert->hashers, insert->natts, insert->keys, values, isnull,
				&insert->row);
	insert->keys_per_row = Max(insert->row.nvalues,
							   bx_hash_keys_per_row(insert->natts,
													insert->keys));
	if (insert->ahead != NULL)
		bx_ahead_collect(insert->ahead, heap, ht_ctid, insert->hashers,
						 insert->keys, &insert->row);
	is_first = insert->layout->insert(insert, heap, ht_ctid, &insert->row);
	if (index->rd_index->indisexclusion)
		bx_exclusion_inserted(insert, isnull, ht_ctid, is_first);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(insert->tmpcxt);
	if (unlikely(insert->row.allocated > BX_MANY_KEYS))
		bx_hash_row_shrink(&insert->row);

	/* the result is only used for unique indexes */
	return false;
}
