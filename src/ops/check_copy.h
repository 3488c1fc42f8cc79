/* What stands in the way of a copy between tensors, asked before the first byte moves, and copies that repeat a source.
 * Functions of their arguments. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_OPS_CHECK_COPY_H
#define TDICT_OPS_CHECK_COPY_H

#include "tensor/affine.h"

/* Errors of tdict_tensor_copy() but for shapes: TDICT_EDTYPE, TDICT_EREADONLY, TDICT_EWRONGDEVICE, and TDICT_EINVAL for a
 * source whose bytes never came, which is waited for. */
tdict_status tdict_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/* The first three of them. */
tdict_status tdict_check_kinds(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/* The last. */
tdict_status tdict_check_came(const char *what, const tdict_tensor *src, tdict_error *err);
/* TDICT_ESHAPE when a tensor whose dimensions are `ndim` counts is wanted. */
tdict_status tdict_check_shape(const char *what, const tdict_tensor *t, int ndim, const int64_t *shape,
                               tdict_error *err);
/* A view of `src` with leading dimensions before it, which repeat it; false when its own are not the last of `shape`. */
bool tdict_repeat(const tdict_tensor *src, int ndim, const int64_t *shape, tdict_made *made);

#endif
