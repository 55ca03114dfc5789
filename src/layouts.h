/*-------------------------------------------------------------------------
 *
 * layouts.h
 *	  The list of layouts, for the access method and the SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BX_LAYOUTS_H
#define BX_LAYOUTS_H

#include "postgres.h"

#include "layout/layout.h"

extern const BxLayout *bx_layout_next(const BxLayout *layout);
extern const BxLayout *bx_layout_by_id(Relation index, uint8 id);
extern const BxLayout *bx_layout_of(Relation index);

#endif							/* BX_LAYOUTS_H */
