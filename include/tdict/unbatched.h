/* Declares leaves without batch dimensions. Such a leaf is one tensor of any shape that belongs to all elements of the
 * tree. TensorDict calls this kind of leaf UnbatchedTensor.
 *
 * Operations on trees. The results of index, shape and split operations share the tensor. The results of tdict_stack(),
 * tdict_cat() and tdict_pad_sequence() share the tensor of the first tree. The tensors at this path in all given trees
 * must have equal dtypes, shapes and bytes. Otherwise these three functions return #TDICT_EINVAL.
 *
 * Other functions. Transfers and tdict_clone_deep() copy the tensor. Functions that visit, fill or compare elements see
 * the tensor at the key `tensor` below the leaf, for example at the path `weights.tensor`. The function that the
 * program passes to tdict_apply() may return a tensor of another shape.
 *
 * Writes in place. The functions tdict_copy(), tdict_update_in_place() and tdict_transfer_into() write the elements of
 * the tensor. Functions that write some elements of a tree, such as tdict_write_rows() and tdict_stack_into(), cannot
 * write the tensor, because the tensor belongs to all elements of the tree. These functions require that the source and
 * the destination share the tensor. Otherwise these functions return #TDICT_ENOTSUP.
 *
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_UNBATCHED_H
#define TDICT_UNBATCHED_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief Sets a leaf without batch dimensions at a path. The shape of @p tensor need not begin with the batch size.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return #TDICT_OK; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_ETYPE the path leads through a tensor or
 *          an object; #TDICT_EWRONGDEVICE the tree that gets the leaf has a device, and the tensor is on another
 *          device; #TDICT_ELOCKED the tree that gets the leaf is locked; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_unbatched(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                           tdict_error *err);
/** @brief Returns the tensor of the leaf at a path. The leaf must be a leaf without batch dimensions.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The errors of tdict_get(). Here, #TDICT_ETYPE means that the path names an ordinary tensor, a tree or
 *          another object, or leads through a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_unbatched(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                           tdict_error *err);
/** @brief Returns the type of leaves without batch dimensions, to recognize such leaves in tdict_walk(). The type is
 *  static. Do not pass the type to tdict_set_object(). Thread-safe. */
TDICT_API const tdict_type *tdict_unbatched_type(void);

TDICT_END_DECLS
#endif
