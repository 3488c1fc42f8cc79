/* Writing elements in place, and merging trees.
 *
 * What writes in place keeps keys, shapes and addresses, is allowed when locked, and looks at everything before the
 * first byte is written; #TDICT_EDEVICE after that leaves elements unspecified. Writes from one storage to itself that
 * overlap are unspecified, but for a tensor written to itself. If a destination has one tensor at two paths, or tensors
 * that share bytes, each path is written in turn and the last write remains. tdict_copy_into() refuses such trees.
 * Writes wait as tdict_tensor_copy() does. Objects are written as their tensors, by tdict_fill(), tdict_copy() and
 * tdict_update_in_place(). Values have the dtype of what is written; nothing is converted but the numbers of
 * tdict_fill(). Host and device, as tdict_tensor_copy() allows.
 * Cost of what writes in place: the bytes that are written, and O(tensors written), twice, since all is looked at
 * first; nothing is allocated but for lists, masks, objects and very deep trees.
 * Thread rule: as in tdict/tree.h; different tensors may be written by several threads at once. */
#ifndef TDICT_WRITE_H
#define TDICT_WRITE_H

#include "tdict/index.h"

TDICT_BEGIN_DECLS

/** @brief Writes the elements of @p value to the tensor at a path.
 *  @return #TDICT_OK; #TDICT_EINVAL, #TDICT_ENOTFOUND, #TDICT_ETYPE as tdict_get(); #TDICT_ESHAPE, #TDICT_EDTYPE,
 *          #TDICT_EREADONLY, #TDICT_EWRONGDEVICE as tdict_tensor_copy(); #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_write(tdict_tree *td, const char *path, const tdict_tensor *value,
                                                   tdict_error *err);
/** @brief Writes to what an index names of the tensor at a path, all of its dimensions counted; a value with fewer
 *  dimensions is repeated along those that it lacks.
 *  @return as tdict_write() and tdict_index_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_at(tdict_tree *td, const char *path, tdict_indices index,
                                                      const tdict_tensor *value, tdict_error *err);
/** @brief Writes one number to every element at or below a path, a tensor's, a tree's or an object's; NULL is the whole
 *  tree.
 *  @param[in] value  converted to each dtype as tdict_tensor_arange() does; bool: 0 or 1; complex: the real part.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND, #TDICT_EINVAL, #TDICT_ETYPE the path; #TDICT_EOVERFLOW an integer dtype does
 *          not hold it; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE; #TDICT_ENOTSUP an object without `flatten`, 8-bit floats
 *          and types of several lanes, and tensors on a device when the element's bytes are not all the same: 0 always
 *          works. */
TDICT_API TDICT_NODISCARD tdict_status tdict_fill(tdict_tree *td, const char *path, double value, tdict_error *err);
/** @brief Writes zeros everywhere; errors of tdict_fill(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_zero(tdict_tree *td, tdict_error *err);
/** @brief Writes all elements of @p src, which has the same keys, in any order.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND a key that one of them lacks; as tdict_write(); #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, tdict_error *err);
/** @brief Writes the elements of all tensors of @p src to those of @p dst with the same paths; those that @p src lacks
 *  stay. Itself as source changes nothing.
 *  @param[in] paths  what of @p src is taken, @p num_paths of them; NULL: all.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p dst lacks a key, or @p src one of the paths; as tdict_write();
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src,
                                                             const char *const *paths, size_t num_paths,
                                                             tdict_error *err);
/** @brief Puts what hangs in @p src into @p dst: tensors are shared, keys replaced or added behind the others; where
 *  both have a tree it is merged, and a tree that @p dst lacks is copied, its tensors shared. Whole or not at all.
 *  Itself as source changes nothing.
 *  @param[in] paths  as above.
 *  @return #TDICT_OK; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE, #TDICT_ELOCKED as tdict_set() and tdict_set_tree();
 *          #TDICT_ENOTFOUND @p src lacks one of the paths; #TDICT_ENOMEM.
 *  Objects are shared. Cost: O(keys of the nodes that change + tensors of @p src), no element is touched. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths,
                                                    size_t num_paths, tdict_error *err);

TDICT_END_DECLS
#endif
