/* Writes elements in place, and merges trees.
 *
 * Writing in place keeps keys, shapes and addresses, and is allowed in locked trees. Everything is checked before
 * the first byte is written. If the call returns #TDICT_EDEVICE after the checks, the elements of the destination are
 * unspecified. Each write waits for the same transfers as tdict_tensor_copy(), and supports the same devices.
 * Overlapping writes within one storage are unspecified, except for a tensor that is written to itself. A destination
 * may have one tensor at two paths, or tensors that share bytes. In this case the paths are written in order, and the
 * elements of the last write remain. tdict_transfer_into() accepts such a tree only if the sources share bytes in the
 * same way. Objects are written through their tensors by tdict_fill(), tdict_copy() and tdict_update_in_place(). Values
 * must have the dtype of the destination; only the number given to tdict_fill() is converted.
 * Cost of writing in place: two passes of O(tensors written), because everything is checked first, plus one copy of the
 * elements. Memory is allocated only for lists, masks, objects and very deep trees.
 * Thread rule: as in tdict/tree.h. In addition, several threads may write different tensors at once. */
#ifndef TDICT_WRITE_H
#define TDICT_WRITE_H

#include "tdict/index.h"

TDICT_BEGIN_DECLS

/** @brief Writes the elements of @p value to the tensor at a path.
 *  @return #TDICT_OK; #TDICT_EINVAL, #TDICT_ENOTFOUND, #TDICT_ETYPE as tdict_get(); #TDICT_ESHAPE, #TDICT_EDTYPE,
 *          #TDICT_EREADONLY, #TDICT_EWRONGDEVICE as tdict_tensor_copy(); #TDICT_EDEVICE if the driver failed. */
TDICT_API TDICT_NODISCARD tdict_status tdict_write(tdict_tree *tree, const char *path, const tdict_tensor *value,
                                                   tdict_error *err);
/** @brief Writes the elements of @p value to the elements that an index selects in the tensor at a path.
 *
 *  The index covers all dimensions of the tensor, not only batch dimensions. A value with fewer dimensions is
 *  repeated along the missing leading dimensions.
 *  @return The same errors as tdict_write() and tdict_index_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_at(tdict_tree *tree, const char *path, tdict_indices index,
                                                      const tdict_tensor *value, tdict_error *err);
/** @brief Writes one number to every element of the tensor, tree or object at a path.
 *  @param[in] path  NULL for the whole tree.
 *  @param[in] value  Converted to each dtype as tdict_tensor_arange() does. For bool, 0 is stored as false and any
 *                    other value as true. For a complex dtype, @p value is the real part.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND, #TDICT_EINVAL, #TDICT_ETYPE as tdict_get(); #TDICT_EOVERFLOW if an integer
 *          dtype cannot hold @p value; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE; #TDICT_ENOTSUP for an object without
 *          `flatten`, 8-bit floats and dtypes with several lanes, and for a device tensor if the bytes of the
 *          element are not all equal (0 always works). */
TDICT_API TDICT_NODISCARD tdict_status tdict_fill(tdict_tree *tree, const char *path, double value, tdict_error *err);
/** @brief Writes zero to every element. Returns the same errors as tdict_fill(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_zero(tdict_tree *tree, tdict_error *err);
/** @brief Writes all elements of @p src to @p dst. Both trees must have the same keys, in any order.
 *  @return The same errors as tdict_write(); #TDICT_ENOTFOUND if one of the trees lacks a key of the other;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, tdict_error *err);
/** @brief Writes the elements of all tensors of @p src to the tensors of @p dst with the same paths.
 *
 *  Tensors of @p dst that @p src lacks do not change. If @p src is @p dst, nothing changes.
 *  @param[in] paths  @p num_paths paths that select the part of @p src to write; NULL for all of @p src.
 *  @return The same errors as tdict_write(); #TDICT_ENOTFOUND if @p dst lacks a key of @p src, or @p src lacks one
 *          of the paths; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src,
                                                             const char *const *paths, size_t num_paths,
                                                             tdict_error *err);
/** @brief Merges the entries of @p src into @p dst. No element is copied: tensors and objects are shared.
 *
 *  If a key exists in @p dst, its entry is replaced. Other keys are added after the existing keys. If both @p src and
 *  @p dst have a tree at a key, these two trees are merged. A tree that @p dst lacks is copied, and the copy shares its
 *  tensors. If @p src is @p dst, nothing changes. On failure nothing has changed.
 *  Cost: O(keys of the nodes that change + tensors of @p src).
 *  @param[in] paths  @p num_paths paths that select the part of @p src to merge; NULL for all of @p src.
 *  @return #TDICT_OK; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE, #TDICT_ELOCKED as tdict_set() and tdict_set_tree();
 *          #TDICT_ENOTFOUND if @p src lacks one of the paths; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths,
                                                    size_t num_paths, tdict_error *err);

TDICT_END_DECLS
#endif
