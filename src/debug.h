/*-------------------------------------------------------------------------
 *
 * debug.h
 *	  Points at which a test can pause a backend.
 *
 * If compiled with BX_DEBUG_PAUSES (see test/modules/bloomidx_debug), a
 * backend that reaches such a point waits while another session holds the
 * advisory lock (BX_PAUSE_CLASS, point) exclusively.  Otherwise BX_PAUSE does
 * nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_DEBUG_H
#define BX_DEBUG_H

#define BX_PAUSE_CLASS		1112034391

#define BX_PAUSE_SEARCH_SLICE	1	/* search: before filters are read */
#define BX_PAUSE_INSERT_KEY		2	/* insert: the pages of filters are pinned */
#define BX_PAUSE_ALLOCATED		3	/* insert: pages allocated, not yet
									 * published */
#define BX_PAUSE_PUBLISHED		4	/* rebuild: shadow published and empty */
#define BX_PAUSE_FILLED			5	/* rebuild: shadow filled, not swapped */
#define BX_PAUSE_BUILD_PAGE		6	/* build: a heap page has been read */
#define BX_PAUSE_COPIED			7	/* move: copy made, not swapped */
#define BX_PAUSE_TRUNCATE		8	/* VACUUM: pages removed from the free
									 * list, file not yet truncated */
#define BX_PAUSE_INSPECT		9	/* inspect: only the metapage has been
									 * read */
#define BX_PAUSE_CLAIMS			10	/* check: metapage read, directory not */
#define BX_PAUSE_SEARCH_GROUP	11	/* search: a page of a group is pinned */
#define BX_PAUSE_GROUP_MADE		12	/* insert: group allocated, not yet
									 * published */
#define BX_PAUSE_GROUP_SHADOW	13	/* regroup: published as the shadow of a
									 * partition */
#define BX_PAUSE_GROUP_FILLED	14	/* regroup: filled, not entered in the
									 * region page */
#define BX_PAUSE_GROUP_ENTERED	15	/* regroup: entered in the region page,
									 * still a shadow in top-level pages */
#define BX_PAUSE_GROUP_SWITCHED	16	/* regroup: no longer a shadow of a
									 * partition */
#define BX_PAUSE_MERGE_PLANNED	17	/* merge: region page copied, nothing
									 * published */
#define BX_PAUSE_LISTED			18	/* index scan: the rows of a page are
									 * listed, not returned */
#define BX_PAUSE_OPERATOR		19	/* CREATE INDEX: an operator was found
									 * that cannot use the index */

#ifdef BX_DEBUG_PAUSES

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

/* parallel workers, and their leader, may not take advisory locks */
#define BX_PAUSE(point) \
	do { \
		if (IsInParallelMode()) \
			break; \
		DirectFunctionCall2(pg_advisory_lock_shared_int4, \
							Int32GetDatum(BX_PAUSE_CLASS), \
							Int32GetDatum(point)); \
		DirectFunctionCall2(pg_advisory_unlock_shared_int4, \
							Int32GetDatum(BX_PAUSE_CLASS), \
							Int32GetDatum(point)); \
	} while (0)

#else
#define BX_PAUSE(point)		((void) 0)
#endif

#endif							/* BX_DEBUG_H */
