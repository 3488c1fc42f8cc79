/* Other batch dimensions over the same elements. What stands behind the batch dimensions stays, and so do the further
 * batch dimensions of the trees below. Results have the keys and locks of the tree they are made of, those of
 * tdict_unbind() the keys only; all of their tensors are views in one allocation that share storage, but for copies
 * that tdict_reshape() and tdict_flatten() cannot do without. Objects go along as tdict/object.h says. Negative
 * dimensions count from the end.
 * Cost of each, and of each piece of those that cut: O(tensors + nodes), one allocation for all tensors and one a node;
 * no byte of an element is copied but where a copy is spoken of.
 * All answer #TDICT_EINVAL for NULL and for a dimension or count that cannot be, #TDICT_ENOMEM, #TDICT_EOVERFLOW for
 * counts that no tensor can have, and #TDICT_ESHAPE where a tree would have more than TDICT_MAX_BATCH_NDIM batch
 * dimensions or a child no longer agrees (see tdict/tree.h).
 * They work on every device. Thread rule: as in tdict/tree.h; a result is a tree of its own. */
#ifndef TDICT_SHAPE_H
#define TDICT_SHAPE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief The elements with the batch size @p shape, of which one count may be -1: what is left.
 *  Result: batch size @p shape, always views.
 *  @return #TDICT_OK; #TDICT_ESHAPE another number of elements, or a tensor whose strides do not allow it, err->path
 *          naming it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_view(const tdict_tree *td, int ndim, const int64_t *shape,
                                                  tdict_tree **out, tdict_error *err);
/** @brief As tdict_view(), with a copy in C order of each tensor whose strides do not allow a view, in the memory that
 *  it lies in (plain host memory for host tensors). Cost: the bytes of those tensors are copied, no others. */
TDICT_API TDICT_NODISCARD tdict_status tdict_reshape(const tdict_tree *td, int ndim, const int64_t *shape,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Makes the batch dimensions from @p first to @p last, both included, one. Views or copies, and their cost, as
 *  tdict_reshape(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten(const tdict_tree *td, int first, int last, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Makes one batch dimension several, of which one count may be -1; always views. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten(const tdict_tree *td, int dim, int ndim, const int64_t *shape,
                                                       tdict_tree **out, tdict_error *err);
/** @brief A new batch dimension of one element before dimension @p dim, or behind the last. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unsqueeze(const tdict_tree *td, int dim, tdict_tree **out,
                                                       tdict_error *err);
/** tdict_squeeze() of all dimensions that have one element. */
#define TDICT_EVERY_DIM INT32_MIN
/** @brief Takes batch dimension @p dim away if it has one element; else the result is as the tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_squeeze(const tdict_tree *td, int32_t dim, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Repeats dimensions of one element, and puts new ones before the first, up to the batch size @p shape; -1
 *  keeps a count. Nothing is copied: the elements of the result lie over one another and are to be read. */
TDICT_API TDICT_NODISCARD tdict_status tdict_expand(const tdict_tree *td, int ndim, const int64_t *shape,
                                                    tdict_tree **out, tdict_error *err);
/** @brief Makes a tree whose batch dimension i is dimension @p order[i] of @p td.
 *  @param[in] order  @p ndim dimensions, which must be as many batch dimensions as @p td has; may be NULL when @p ndim
 *                    is 0.
 *  @return #TDICT_OK; #TDICT_EINVAL @p ndim is not the tree's, or @p order names a dimension twice. */
TDICT_API TDICT_NODISCARD tdict_status tdict_permute(const tdict_tree *td, int ndim, const int *order, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Changes two batch dimensions with each other. */
TDICT_API TDICT_NODISCARD tdict_status tdict_transpose(const tdict_tree *td, int a, int b, tdict_tree **out,
                                                       tdict_error *err);

/** @brief Cuts dimension @p dim into @p count pieces of the given sizes, which sum to its count.
 *  @param[out] out  room for @p count trees, written on success only.
 *  @return #TDICT_OK; #TDICT_ESHAPE the sizes do not sum to it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split(const tdict_tree *td, int dim, const int64_t *sizes, size_t count,
                                                   tdict_tree **out, tdict_error *err);
/** @brief Cuts dimension @p dim into pieces of @p size elements; the last one may be short.
 *  @param[in,out] count  the room in @p out; then the number of pieces, one for an empty dimension.
 *  @return #TDICT_OK; #TDICT_EINVAL the room is too small. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_every(const tdict_tree *td, int dim, int64_t size, tdict_tree **out,
                                                         size_t *count, tdict_error *err);
/** @brief Tells how many trees tdict_split_every() writes, so that the caller can size `out`.
 *  @param[out] out  the number of pieces; untouched on failure.
 *  @return #TDICT_OK; #TDICT_EINVAL NULL, no such dimension, or @p size below 1. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_every_count(const tdict_tree *td, int dim, int64_t size, size_t *out,
                                                               tdict_error *err);
/** @brief Cuts dimension @p dim into at most *@p count pieces of one size; the last one may be short, and there may be
 *  fewer.
 *  @param[in,out] count  how many are wanted, with room in @p out for them; then how many there are. */
TDICT_API TDICT_NODISCARD tdict_status tdict_chunks(const tdict_tree *td, int dim, tdict_tree **out, size_t *count,
                                                    tdict_error *err);
/** @brief Every element of dimension @p dim, which goes.
 *  @param[in,out] count  the room in @p out; then the number of trees. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unbind(const tdict_tree *td, int dim, tdict_tree **out, size_t *count,
                                                    tdict_error *err);
/** @brief Tells how many trees tdict_unbind() writes, so that the caller can size `out`.
 *  @param[out] out  the number of elements of dimension @p dim; untouched on failure.
 *  @return #TDICT_OK; #TDICT_EINVAL NULL, or no such dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unbind_count(const tdict_tree *td, int dim, size_t *out, tdict_error *err);

TDICT_END_DECLS
#endif
