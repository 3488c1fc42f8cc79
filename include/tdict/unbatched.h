/* Declares leaves without batch dimensions: one tensor of any shape for all elements of the tree. TensorDict calls one
 * UnbatchedTensor. docs/leaves.md says what operations on trees do with it. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_UNBATCHED_H
#define TDICT_UNBATCHED_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief Sets such a leaf at a path. The shape of @p tensor need not begin with the batch size.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return The errors of tdict_set(), except #TDICT_ESHAPE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_unbatched(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                           tdict_error *err);
/** @brief Returns the tensor of such a leaf, borrowed from the tree.
 *  @return The errors of tdict_get(). #TDICT_ETYPE means that the entry is not such a leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_unbatched(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                           tdict_error *err);
/** @brief Returns the type of such leaves, to recognize them. Static. Not for tdict_set_object(). Thread-safe. */
TDICT_API const tdict_type *tdict_unbatched_type(void);

TDICT_END_DECLS
#endif
