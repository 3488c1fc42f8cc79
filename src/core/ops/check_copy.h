/* Checks whether a copy between tensors is possible, before the first byte is written. Builds views that repeat a
 * source along new dimensions. Keeps no state. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_CORE_OPS_CHECK_COPY_H
#define TDICT_CORE_OPS_CHECK_COPY_H

#include "core/tensor/affine.h"
#include "core/tree/node.h"

/* Makes the checks of tdict_tensor_check_copy() and of tdict_check_not_lost(). */
tdict_status tdict_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/* Waits for transfers that write `src`. Returns TDICT_EINVAL if bytes of `src` are lost, or if `src` is unloaded. */
tdict_status tdict_check_not_lost(const char *what, const tdict_tensor *src, tdict_error *err);
/* Returns TDICT_ESHAPE if the dimensions of `t` are not the `ndim` sizes in `shape`. */
tdict_status tdict_check_shape(const char *what, const tdict_tensor *t, int ndim, const int64_t *shape,
                               tdict_error *err);
tdict_status tdict_check_batch_size(const char *what, const tdict_tree *dst, int ndim, const int64_t *batch_size,
                                    tdict_error *err);
/* Describes a view of `src` that new leading dimensions repeat. Returns false if `shape` does not end as `src`. */
bool tdict_repeat_leading(const tdict_tensor *src, int ndim, const int64_t *shape, tdict_made *made);

#endif
