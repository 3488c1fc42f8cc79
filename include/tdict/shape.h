/* Declares functions that change the batch dimensions of a tree: views, reshapes, permutations and pieces.
 *
 * All other dimensions are unchanged, including additional batch dimensions of children. Results have the keys of the
 * source tree. A tree in a result is locked if the corresponding tree of the source is locked. However, results of
 * tdict_unbind() are never locked. Negative dimensions count from the end. Objects are handled as tdict/object.h
 * describes.
 * Views. The tensors of a result are views that share storage with the source. If the strides of a tensor allow no
 * view, tdict_reshape() and tdict_merge_dims() copy the tensor.
 * Cost of each result: O(tensors + nodes). One block of memory is allocated for all tensors. No elements are read or
 * copied, except where a function says so.
 * Errors. All functions that make trees return #TDICT_ENOMEM if memory is exhausted. These functions return
 * #TDICT_EINVAL for NULL, an invalid dimension or an invalid size. These functions return #TDICT_EINVAL also if a shape
 * has more than TDICT_MAX_BATCH_NDIM dimensions, or a tensor would have more than TDICT_MAX_NDIM dimensions. These
 * functions return #TDICT_EOVERFLOW for sizes that no tensor can have. These functions return #TDICT_ESHAPE if a child
 * would have more than TDICT_MAX_BATCH_NDIM batch dimensions. tdict_unsqueeze() also returns #TDICT_ESHAPE if @p tree
 * already has TDICT_MAX_BATCH_NDIM batch dimensions. If the shape of a tensor in a child no longer begins with the
 * batch size of @p tree (see tdict/tree.h), these functions return #TDICT_ESHAPE.
 *
 * Devices. All functions work on every device. Thread rule: as in tdict/tree.h; every result is a separate tree. */
#ifndef TDICT_SHAPE_H
#define TDICT_SHAPE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Returns a tree of views with the batch size @p shape. The number of batch elements must not change.
 *  @param[in] shape  @p ndim sizes. At most one size may be -1; this size is then computed.
 *  @return #TDICT_OK; #TDICT_ESHAPE if the number of batch elements differs, or if the strides of a tensor allow no
 *          view (err->path names the tensor). */
TDICT_API TDICT_NODISCARD tdict_status tdict_reshape_view(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Returns a tree like tdict_reshape_view(), but copies each tensor whose strides allow no view.
 *
 *  The copy of a host tensor is in plain host memory. The copy of a device tensor is in the memory of the device
 *  tensor. Copies are in C order. Cost: one copy of the elements of the copied tensors.
 *  @return #TDICT_OK; #TDICT_ESHAPE if the number of batch elements differs; #TDICT_EWRONGDEVICE if a tensor to copy is
 *          in device memory that the program owns; the errors of tdict_tensor_copy() (err->path names the tensor). */
TDICT_API TDICT_NODISCARD tdict_status tdict_reshape(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Joins the batch dimensions from @p first to @p last (inclusive) into one dimension. @p first must not be
 *  after @p last. The tensors of the result are views or copies, as in tdict_reshape(), which describes the cost and
 *  the errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_merge_dims(const tdict_tree *tree, int first, int last, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Splits batch dimension @p dim into one or more dimensions. The tensors of the result are always views.
 *  @param[in] shape  @p ndim sizes, at least one. At most one size may be -1; this size is then computed.
 *  @return #TDICT_OK; #TDICT_ESHAPE if the product of the sizes is not the size of the dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_dim(const tdict_tree *tree, int dim, int ndim, const int64_t *shape,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Inserts a batch dimension of one element. The new dimension is dimension @p dim of the result. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unsqueeze(const tdict_tree *tree, int dim, tdict_tree **out,
                                                       tdict_error *err);
/** Value for `dim` of tdict_squeeze(): removes every batch dimension of one element. */
#define TDICT_EVERY_DIM INT32_MIN
/** @brief Removes batch dimension @p dim if this dimension has one element. Otherwise the result has the batch size of
 *  @p tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_squeeze(const tdict_tree *tree, int dim, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Expands the batch size to @p shape. The call repeats batch dimensions of size 1, and adds new dimensions
 *  before the first batch dimension.
 *
 *  No elements are copied. Several elements of the result may be at the same address, so do not write to the result.
 *  @param[in] shape  @p ndim sizes; -1 keeps the size of a dimension.
 *  @return #TDICT_OK; #TDICT_EINVAL if @p ndim is below the number of batch dimensions; #TDICT_ESHAPE if a dimension
 *          whose size is not 1 would get another size. */
TDICT_API TDICT_NODISCARD tdict_status tdict_expand(const tdict_tree *tree, int ndim, const int64_t *shape,
                                                    tdict_tree **out, tdict_error *err);
/** @brief Returns a tree whose batch dimension i is dimension @p order[i] of @p tree.
 *  @param[in] order  @p ndim dimensions, as many as @p tree has batch dimensions. May be NULL if @p ndim is 0.
 *  @return #TDICT_OK; #TDICT_EINVAL if @p ndim is not the number of batch dimensions, or @p order names a dimension
 *          twice. */
TDICT_API TDICT_NODISCARD tdict_status tdict_permute(const tdict_tree *tree, int ndim, const int *order,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Swaps two batch dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_transpose(const tdict_tree *tree, int a, int b, tdict_tree **out,
                                                       tdict_error *err);

/* The functions tdict_split(), tdict_split_every() and tdict_unbind() write new trees into an array of the caller, who
 * owns these trees. Before the call, `*count` is the capacity of the array. After the call, `*count` is the number of
 * trees. To ask only for this number, pass NULL for the array; the call then makes no trees, and ignores the capacity.
 * The array and `*count` are written on success only. If the array is too small, the call returns #TDICT_EINVAL. */

/** @brief Cuts batch dimension @p dim into pieces of given sizes.
 *  @param[in] sizes  One size for each piece. The sum of the sizes must be the size of the dimension.
 *  @param[out] trees  The pieces. NULL: the call only checks its other arguments.
 *  @param[in,out] count  The number of @p sizes, which is also the number of pieces.
 *  @return #TDICT_OK; #TDICT_ESHAPE if the sizes do not add up to the size of the dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split(const tdict_tree *tree, int dim, const int64_t *sizes,
                                                   tdict_tree **trees, size_t *count, tdict_error *err);
/** @brief Cuts batch dimension @p dim into pieces of @p size elements. The last piece may be shorter.
 *
 *  To cut a dimension of n elements into at most k pieces of equal size, pass (n + k - 1) / k for @p size.
 *  @param[in] size  1 or more. If the dimension has no elements, there is one empty piece, and @p size may be 0.
 *  @param[out] trees  The pieces. NULL: the call only writes their number.
 *  @return #TDICT_OK; #TDICT_EINVAL if the capacity or @p size is too small. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_every(const tdict_tree *tree, int dim, int64_t size,
                                                         tdict_tree **trees, size_t *count, tdict_error *err);
/** @brief Returns one tree for each element of batch dimension @p dim. The new trees do not have this dimension.
 *  @param[out] trees  The new trees. NULL: the call only writes their number.
 *  @return #TDICT_OK; #TDICT_EINVAL if the capacity is too small. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unbind(const tdict_tree *tree, int dim, tdict_tree **trees, size_t *count,
                                                    tdict_error *err);

TDICT_END_DECLS
#endif
