/* Declares leaves without batch dimensions: a tensor of any shape that belongs to all elements of its tree (TensorDict:
 * UnbatchedTensor).
 *
 * Operations on trees. Index, shape and split operations share the tensor. The functions tdict_stack(), tdict_cat() and
 * tdict_pad_sequence() share the tensor of the first tree. In all trees, the tensors must have equal dtypes, shapes and
 * bytes. Otherwise these functions return #TDICT_EINVAL.
 *
 * Other functions. A transfer moves the tensor, and a deep clone copies the tensor. Functions that visit, fill or
 * compare elements see the tensor under the path of the leaf and the key `tensor`, such as `weights.tensor`. The
 * function of tdict_apply() may return a tensor of another shape.
 *
 * Writes in place. The functions tdict_copy(), tdict_update_in_place() and tdict_transfer_into() write the elements.
 * Functions that write some elements of a tree, such as tdict_write_row() and tdict_stack_into(), accept only the same
 * tensor in both trees. Otherwise they return #TDICT_ENOTSUP.
 *
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_UNBATCHED_H
#define TDICT_UNBATCHED_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief Sets a tensor without batch dimensions at a path. The shape need not begin with the batch size.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return The errors of tdict_set() except #TDICT_ESHAPE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_unbatched(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                           tdict_error *err);
/** @brief Returns the tensor without batch dimensions at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The errors of tdict_get(); #TDICT_ETYPE if the path names a tensor with batch dimensions, a tree or another
 *          object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_unbatched(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                           tdict_error *err);
/** @brief Returns the type of the objects that hold such tensors, to recognize them in tdict_walk(). Do not pass this
 *  type to tdict_set_object(). Static, thread-safe. */
TDICT_API const tdict_type *tdict_unbatched_type(void);

TDICT_END_DECLS
#endif
