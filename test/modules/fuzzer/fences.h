/*-------------------------------------------------------------------------
 *
 * fences.h
 *	  AddressSanitizer for memory contexts.
 *
 * A memory context takes small chunks out of larger pieces of memory, so
 * AddressSanitizer does not notice accesses beyond the end of a chunk.
 * test/fuzz makes the compiler include this file first: bloomidx then
 * allocates chunks that are so large that each is a piece of its own, and
 * whose end must not be accessed.
 *
 * This is not for a server with assertions, which overwrites memory that is
 * freed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCES_H
#define FENCES_H

#include "postgres.h"

#include "utils/memutils.h"

extern void __asan_poison_memory_region(const volatile void *start, size_t size);

/* larger than any chunk that shares its piece of memory with others */
#define FENCE	8200

static inline void *
fence(void *chunk, Size size)
{
	if (chunk)
		__asan_poison_memory_region((char *) chunk + size, FENCE);
	return chunk;
}

static inline void *
fenced_alloc(MemoryContext context, Size size, int flags)
{
	/* the limit applies to the size that the caller wants */
	if (!(flags & MCXT_ALLOC_HUGE) && !AllocSizeIsValid(size))
		elog(ERROR, "invalid memory alloc request size %zu", size);
	return fence(MemoryContextAllocExtended(context, size + FENCE,
											flags | MCXT_ALLOC_HUGE), size);
}

static inline void *
fenced_realloc(void *chunk, Size size)
{
	return fence(repalloc_huge(chunk, size + FENCE), size);
}

#define palloc(size)	fenced_alloc(CurrentMemoryContext, size, 0)
#define palloc0(size)	fenced_alloc(CurrentMemoryContext, size, MCXT_ALLOC_ZERO)
#define palloc_extended(size, flags) \
	fenced_alloc(CurrentMemoryContext, size, flags)
#define MemoryContextAlloc(context, size)	fenced_alloc(context, size, 0)
#define MemoryContextAllocZero(context, size) \
	fenced_alloc(context, size, MCXT_ALLOC_ZERO)
#define MemoryContextAllocHuge(context, size) \
	fenced_alloc(context, size, MCXT_ALLOC_HUGE)
#define MemoryContextAllocExtended(context, size, flags) \
	fenced_alloc(context, size, flags)
#define repalloc(chunk, size)		fenced_realloc(chunk, size)
#define repalloc_huge(chunk, size)	fenced_realloc(chunk, size)

#endif							/* FENCES_H */
