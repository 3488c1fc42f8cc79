/* Batch dimensions named by the caller, and views of them. Functions of their arguments. Thread rule: as in
 * tdict/tree.h. */
#ifndef TDICT_OPS_SHAPE_H
#define TDICT_OPS_SHAPE_H

#include "ops/map.h"

/* The dimension that `dim` names among `ndim`, negative ones from the end. TDICT_EINVAL. */
tdict_status tdict_dim_find(const char *what, int dim, int ndim, int *out, tdict_error *err);
/* The tree of views that an affine map of the whole batch size makes; `unlocked`: locks are not taken over. Errors of tdict_map_run(). */
tdict_status tdict_dims_run(const char *what, const tdict_tree *td, const tdict_affine *a, bool unlocked,
                            tdict_tree **out, tdict_error *err);

#endif
