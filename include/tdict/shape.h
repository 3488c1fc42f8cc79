/* Changes the batch dimensions of a tree, and cuts it along one. The other dimensions stay, also those of children.
 *
 * The tensors of a result are views that share storage with the source, if the function says nothing else. A tree of a
 * result is locked if the tree of the source is, except after tdict_unbind(). Negative dimensions count from the end.
 * Of the sizes of a `shape`, one may be -1, which is computed. Cost: O(tensors + nodes). Every device is supported.
 * Objects: see tdict/object.h. Thread rule: as in tdict/tree.h.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, an invalid dimension or size, or too many dimensions;
 * - #TDICT_ESHAPE: the sizes do not fit, or there would be too many batch dimensions;
 * - #TDICT_ESHAPE also: a tensor of a child does not begin with the batch size (docs/learn/trees.md);
 * - #TDICT_EOVERFLOW: a size that no tensor can have; #TDICT_ENOMEM. */
#ifndef TDICT_SHAPE_H
#define TDICT_SHAPE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Returns a tree of views with the batch size @p shape. #TDICT_ESHAPE also if the strides allow no view. */
TDICT_API TDICT_NODISCARD tdict_status tdict_reshape_view(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Returns a tree like tdict_reshape_view(), but copies tensors whose strides allow no view. Copies are in C
 *  order, in plain host memory or the memory of the device tensor.
 *  @return #TDICT_EWRONGDEVICE for a copy in device memory of the program; the errors of tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_reshape(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Joins the batch dimensions @p first to @p last (inclusive, in this order) into one, as tdict_reshape(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_merge_dims(const tdict_tree *tree, int first, int last, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Splits batch dimension @p dim into @p ndim dimensions, at least one. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_dim(const tdict_tree *tree, int dim, int ndim, const int64_t *shape,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Inserts a batch dimension of one element. The new dimension is dimension @p dim of the result. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unsqueeze(const tdict_tree *tree, int dim, tdict_tree **out,
                                                       tdict_error *err);
/** Value for `dim` of tdict_squeeze(): removes every batch dimension of one element. */
#define TDICT_EVERY_DIM INT32_MIN
/** @brief Removes batch dimension @p dim if it has one element. Otherwise keeps the batch size. */
TDICT_API TDICT_NODISCARD tdict_status tdict_squeeze(const tdict_tree *tree, int dim, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Repeats batch dimensions of size 1, and adds dimensions before the first one, without a copy. Elements may
 *  then share an address, so do not write to the result.
 *  @param[in] shape  @p ndim sizes, at least as many as batch dimensions; -1 keeps the size of a dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_expand(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                    tdict_tree **out, tdict_error *err);
/** @brief Returns a tree whose batch dimension i is dimension @p order[i] of @p tree.
 *  @param[in] order  Each batch dimension of @p tree once. May be NULL if there are none. */
TDICT_API TDICT_NODISCARD tdict_status tdict_permute(const tdict_tree *tree, int ndim, const int *order,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Swaps two batch dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_transpose(const tdict_tree *tree, int a, int b, tdict_tree **out,
                                                       tdict_error *err);

/* The next functions write new trees into an array, which the caller then owns. Before the call, `*count` is the
 * capacity of the array; #TDICT_EINVAL if it is too small. After the call, it is the number of trees. NULL for the
 * array asks only for this number, for any capacity. The array and `*count` are written on success only. */

/** @brief Cuts batch dimension @p dim into @p count pieces of the given sizes, which must add up to its size. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split(const tdict_tree *tree, int dim, const int64_t *sizes,
                                                   tdict_tree **trees, size_t *count, tdict_error *err);
/** @brief Cuts batch dimension @p dim into pieces of @p size elements. The last piece may be shorter.
 *  @param[in] size  For at most k equal pieces of n elements, (n + k - 1) / k. If n is 0, makes one empty piece. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_every(const tdict_tree *tree, int dim, int64_t size,
                                                         tdict_tree **trees, size_t *count, tdict_error *err);
/** @brief Returns one tree for each element of batch dimension @p dim, without this dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unbind(const tdict_tree *tree, int dim, tdict_tree **trees, size_t *count,
                                                    tdict_error *err);

TDICT_END_DECLS
#endif
