/* Makes views of tensors: slices, other shapes and other strides. A view is a tensor that shares the storage of another
 * tensor, so no elements are copied unless the function says so. Ownership and the thread rule are those of
 * tdict/tensor.h. Errors of all functions: #TDICT_EINVAL NULL, or an invalid number, size or index; #TDICT_ENOMEM. */
#ifndef TDICT_VIEW_H
#define TDICT_VIEW_H

#include "tdict/tensor.h"

TDICT_BEGIN_DECLS

/** Selects the `count` indices start, start + step, ... of dimension `dim`. The step may be negative, but not 0. */
typedef struct tdict_tensor_range {
  int32_t dim;
  int64_t start, count, step;
} tdict_tensor_range;
/** @brief Creates a view of the elements that @p range selects. All other dimensions are unchanged. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_slice(const tdict_tensor *tensor, const tdict_tensor_range *range,
                                                          tdict_tensor **out, tdict_error *err);
/** @brief Creates a view whose dimension i is dimension @p order[i] of @p tensor.
 *  @param[in] order  The @p ndim dimensions of @p tensor, each exactly once; may be NULL if @p ndim is 0. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_permute(const tdict_tensor *tensor, int ndim, const int *order,
                                                            tdict_tensor **out, tdict_error *err);
/** @brief Returns the elements of @p tensor, in C order, in another shape. One size may be -1, and is then computed.
 *  The result is a view if strides can describe it, else a copy as by tdict_tensor_contiguous().
 *  @return #TDICT_ESHAPE also if the numbers of elements differ; the errors of tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_reshape(const tdict_tensor *tensor, int ndim, const int64_t *shape,
                                                            tdict_tensor **out, tdict_error *err);
/** @brief Creates a view with any shape and strides over the storage of @p tensor, with the same dtype.
 *  @param[in] layout  Only its ndim, shape and strides are used. Borrowed for the call.
 *  @param[in] offset  Number of elements from the first element of @p tensor to that of the view; may be negative.
 *  @return #TDICT_ESHAPE also if the view would reach outside the storage. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_as_strided(const tdict_tensor *tensor,
                                                               const tdict_tensor_desc *layout, int64_t offset,
                                                               tdict_tensor **out, tdict_error *err);
/** @brief Returns @p tensor with a new reference if it is contiguous, else a clone in its memory. A clone of memory of
 *  the program or of a mapped file is in plain host memory.
 *  @return The errors of tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_contiguous(const tdict_tensor *tensor, tdict_tensor **out,
                                                               tdict_error *err);
/** @brief Returns true if both tensors use the same storage. */
TDICT_API bool tdict_tensor_shares_storage(const tdict_tensor *a, const tdict_tensor *b);

TDICT_END_DECLS
#endif
