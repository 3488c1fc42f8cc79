/* Declares functions that write elements in place, and that merge trees.
 *
 * Functions that write in place do not change keys, shapes or addresses, and accept locked trees. These functions check
 * all arguments before they write the first byte, so most errors leave the destination unchanged. If the copy of a
 * tensor on a device fails, for example with #TDICT_EDEVICE or #TDICT_ELOST, the elements of the destination are
 * unspecified. Each write waits for the same transfers as tdict_tensor_copy(), and supports the same devices. A tensor
 * may be written to itself. If the source and the destination overlap in any other way, the result is unspecified. A
 * destination may have one tensor at two paths, or tensors that share bytes. In this case the tensors are written in
 * the order of their paths, and the elements of the last write remain. On a device, one launch writes all tensors, so
 * the shared bytes are unspecified. In contrast, tdict_transfer_into() accepts such a destination only if the source's
 * tensors share bytes in the same way. The functions tdict_fill(), tdict_copy() and tdict_update_in_place() write the
 * tensors of objects too. Source tensors must have the dtypes of the destination tensors. tdict_fill() converts its
 * value to the dtype of each tensor.
 * Cost of writing in place: O(tensors written), plus one copy of the elements. Memory is allocated only for objects,
 * for very deep trees, for the paths of tdict_update_in_place(), for lists and masks in an index (tdict/index.h), and
 * for lists of the writes on devices. Thread rule: as in tdict/tree.h. In addition, several threads may write different
 * tensors at once. */
#ifndef TDICT_WRITE_H
#define TDICT_WRITE_H

#include "tdict/index.h"

TDICT_BEGIN_DECLS

/** @brief Writes the elements of @p value to the tensor at a path.
 *  @return The errors of tdict_get() and tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write(tdict_tree *tree, const char *path, const tdict_tensor *value,
                                                   tdict_error *err);
/** @brief Writes the elements of @p value to the elements that @p index selects in the tensor at a path.
 *
 *  The index applies to all dimensions of the tensor, not only to batch dimensions. If @p value has fewer dimensions
 *  than the selected elements, @p value is repeated along the missing leading dimensions.
 *  @return The same errors as tdict_write() and tdict_index_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_at(tdict_tree *tree, const char *path, const tdict_indices *index,
                                                      const tdict_tensor *value, tdict_error *err);
/** @brief Writes one number to every element of the tensor, tree or object at a path.
 *  On a stream, one launch fills all tensors of one memory, in the order that tdict/index.h describes. Tensors in host
 *  memory are filled before the call returns.
 *  @param[in] path  NULL for the whole tree.
 *  @param[in] value  Converted to the dtype of each tensor as tdict_tensor_arange() does. In a bool tensor, 0 is stored
 *                    as false and any other value as true. In a complex tensor, @p value is the real part.
 *  @param[in] run   Uses `stream`; NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND, #TDICT_EINVAL as tdict_get(); #TDICT_EINVAL also for an option that is not
 *          used; #TDICT_ETYPE if the path leads through a tensor or an object; #TDICT_EOVERFLOW if an integer dtype
 *          cannot hold @p value; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE if a tensor is in device memory that the program
 *          owns; #TDICT_ENOTSUP for an object of the program without `flatten`, or for elements of more than 64 bytes;
 *          #TDICT_ENOTSUP also if @p value is not 0 and the dtype has several lanes; #TDICT_ENOTSUP also on a device if
 *          the bytes of the new element are not all equal, and the element has more than 16 bytes or the driver cannot
 *          compile kernels; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED; #TDICT_ENOMEM. With `stream`: #TDICT_ENOTSUP
 *          also for an object other than text, numbers and JSON, on a device if an element has more than 16 bytes, and
 *          if the driver cannot compile kernels; #TDICT_EWRONGDEVICE the stream is not of the device of a tensor;
 *          #TDICT_ECAPTURE the stream is being captured. */
TDICT_API TDICT_NODISCARD tdict_status tdict_fill(tdict_tree *tree, const char *path, double value,
                                                  const tdict_run *run, tdict_error *err);
/** @brief Writes 0 to every element of the tree. Returns the same errors as tdict_fill(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_zero(tdict_tree *tree, tdict_error *err);
/** @brief Writes all elements of @p src to the tensors of @p dst with the same paths. Both trees must have the same
 *  keys, in any order.
 *
 *  On a stream, one launch makes all copies between tensors of one memory, in the order that tdict/index.h describes.
 *  Copies within host memory are made before the call returns.
 *  @param[in] run  Uses `stream`; NULL for the defaults.
 *  @return The same errors as tdict_write(); #TDICT_ENOTFOUND if one of the trees lacks a key of the other tree;
 *          #TDICT_ETYPE if the entries at a key differ in kind; #TDICT_ENOTSUP if an object of the program has no
 *          `flatten`; #TDICT_EINVAL also for an option that is not used; #TDICT_ENOMEM. With `stream`: #TDICT_ENOTSUP
 *          also for a copy between the host and a device, and for device memory without a context; #TDICT_ENOTSUP also
 *          for an object other than text, numbers and JSON, and if the driver cannot compile kernels;
 *          #TDICT_EWRONGDEVICE the stream is not of the device of a tensor; #TDICT_ECAPTURE the stream is being
 *          captured. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, const tdict_run *run,
                                                  tdict_error *err);
/** @brief Writes the elements of all tensors of @p src to the tensors of @p dst with the same paths.
 *
 *  Tensors of @p dst whose paths @p src does not have are unchanged. If @p src is @p dst, nothing changes.
 *  @param[in] paths  @p num_paths paths of entries of @p src. The call writes only these entries, with everything below
 *          these entries. NULL: all of @p src.
 *  @return The same errors as tdict_copy(). Here, #TDICT_ENOTFOUND means that @p dst lacks a key of @p src, or that @p
 *          src lacks one of the paths. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src,
                                                             const char *const *paths, size_t num_paths,
                                                             tdict_error *err);
/** @brief Adds the entries of @p src to @p dst. No elements are copied: both trees share the tensors and objects.
 *
 *  If @p dst already has a key of @p src, the entry of @p src replaces the entry of @p dst. Other keys are added after
 *  the existing keys. If both @p src and @p dst have a tree at a key, these two trees are merged. If only @p src has a
 *  tree at a key, @p dst gets a copy of the tree that shares all tensors. If @p src is @p dst, nothing changes. On
 *  failure nothing changes.
 *  Cost: O(keys of the nodes that change + keys of @p src).
 *  @param[in] paths  @p num_paths paths of entries of @p src. The call adds only these entries, with everything below
 *          these entries. NULL: all of @p src.
 *  @return #TDICT_OK; #TDICT_EINVAL if a tree is NULL or a path is invalid; #TDICT_ETYPE if a path leads through a
 *          tensor or an object; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE, #TDICT_ELOCKED as tdict_set() and tdict_set_tree();
 *          #TDICT_ENOTFOUND if @p src lacks one of the paths; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths,
                                                    size_t num_paths, tdict_error *err);

TDICT_END_DECLS
#endif
