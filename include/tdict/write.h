/* Writes elements in place, and merges trees. Writes in place change no key, shape or address, and accept locked trees.
 * All arguments are checked before the first byte is written, so most errors leave the destination unchanged. If a copy
 * on a device fails, the elements of the destination are unspecified. Source tensors have the dtypes of the
 * destination. docs/elements.md says what happens to bytes that tensors share, and what allocates memory.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, or an option that is not used; #TDICT_ENOTFOUND: a path or key is missing; #TDICT_ENOMEM;
 * - #TDICT_ETYPE: entries differ in kind, or a path leads through a leaf; #TDICT_ENOTSUP: an object without `flatten`;
 * - with a stream: #TDICT_ENOTSUP also for what cannot be queued, #TDICT_EWRONGDEVICE and #TDICT_ECAPTURE;
 * - of writes in place: the errors of tdict_tensor_copy().
 *
 * Thread rule: as in tdict/tree.h. In addition, several threads may write different tensors at once. */
#ifndef TDICT_WRITE_H
#define TDICT_WRITE_H

#include "tdict/index.h"

TDICT_BEGIN_DECLS

/** @brief Writes @p value to the tensor at a path, or to the elements that an index selects.
 *  If @p value has fewer dimensions than the selected elements, it is repeated along the missing leading dimensions.
 *  @param[in] index  Applies to all dimensions of the tensor. NULL: all elements, and @p value has the same shape.
 *  @return Also the errors of tdict_index_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write(tdict_tree *tree, const char *path, const tdict_indices *index,
                                                   const tdict_tensor *value, tdict_error *err);
/** @brief Writes one number, converted to the dtype of each tensor, to every element at and below a path.
 *  @param[in] path   NULL for the whole tree.
 *  @param[in] value  The real part of complex elements. A bool is false for 0.
 *  @param[in] run    Uses `stream`; NULL for the defaults.
 *  @return #TDICT_EOVERFLOW: an integer dtype cannot hold @p value; #TDICT_ENOTSUP also for elements that are too large
 *          (docs/limits.md), several lanes unless @p value is 0, and a driver without kernels. */
TDICT_API TDICT_NODISCARD tdict_status tdict_fill(tdict_tree *tree, const char *path, double value,
                                                  const tdict_run *run, tdict_error *err);
/** @brief Writes all elements of @p src to the tensors of @p dst with the same paths. Both have the same keys.
 *  @param[in] run  Uses `stream`; NULL for the defaults. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, const tdict_run *run,
                                                  tdict_error *err);
/** @brief Writes the elements of @p src to the tensors of @p dst with the same paths. Other tensors of @p dst stay.
 *  @param[in] paths  @p num_paths paths of entries of @p src, which are written whole. NULL: all of @p src. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src,
                                                             const char *const *paths, size_t num_paths,
                                                             tdict_error *err);
/** @brief Adds the entries of @p src to @p dst, which then shares the tensors and objects. On failure nothing changes.
 *
 *  An entry of @p src replaces that of the same key, except that two trees at a key are merged. New keys come last. A
 *  tree that only @p src has is copied with its tensors shared. Cost: O(keys that change + keys of @p src).
 *  @param[in] paths  @p num_paths paths of entries of @p src, which are added whole. NULL: all of @p src.
 *  @return Also #TDICT_ESHAPE, #TDICT_EWRONGDEVICE, #TDICT_ELOCKED: as tdict_set() and tdict_set_tree(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths,
                                                    size_t num_paths, tdict_error *err);

TDICT_END_DECLS
#endif
