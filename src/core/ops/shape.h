/* Finds batch dimensions, and makes views with other ones. Keeps no state. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_OPS_SHAPE_H
#define TDICT_CORE_OPS_SHAPE_H

#include "core/ops/map.h"

/* Finds one of `ndim` dimensions; negative numbers count from the end. Returns TDICT_EINVAL if there is none. */
tdict_status tdict_dim_find(const char *what, int dim, int ndim, int *out, tdict_error *err);
/* Makes a tree of views by applying an affine map to all batch dimensions. If `drops_locks` is true, the result is not
 * locked. Otherwise the result is locked like `td`. Returns the errors of tdict_map_run(). */
tdict_status tdict_dims_run(const char *what, const tdict_tree *td, const tdict_affine *a, bool drops_locks,
                            tdict_tree **out, tdict_error *err);

#endif
