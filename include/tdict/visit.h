/* Calls a function of the program for the tensors of one or several trees: once for each path, with all its tensors.
 * The calls are made in order on the calling thread or, with a context, on its threads in any order and at once. The
 * trees have the same keys, in any order. The paths are in the order of the first tree.
 *
 * An object is visited as the tensors of its `flatten`, whose paths begin with the path of the object. The function may
 * read trees and write elements, but must not change keys of a visited tree. It must return, and must not throw: see
 * docs/callbacks.md. To visit trees and objects themselves, use tdict_walk(). Cost: O(tensors), and a list of all
 * paths. Thread rule: as in tdict/tree.h.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, no trees, or an option that is not used or out of range; #TDICT_ENOMEM;
 * - #TDICT_ENOTFOUND: a key is missing; #TDICT_ETYPE: entries differ in kind; #TDICT_ENOTSUP: no `flatten`;
 * - the status of the function. Its path is that of the tensor if the function has set none. */
#ifndef TDICT_VISIT_H
#define TDICT_VISIT_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** The tensors at one path, one per tree. All members are borrowed for the call. */
typedef struct tdict_leaves {
  const char *path; /**< Escaped, see tdict/tree.h. */
  size_t count;     /**< Number of trees. */
  tdict_tensor *const *tensors;
} tdict_leaves;
/** Visits the tensors at one path. A number that is not a tdict_status becomes #TDICT_EHOOK, here and below. */
typedef tdict_status (*tdict_leaf_visitor)(void *user, const tdict_leaves *at, tdict_error *err);
/** Stores a reference to the new tensor for one path in *@p out. If it stays NULL, the result has no entry there. */
typedef tdict_status (*tdict_leaf_maker)(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err);
/** Returns true if tdict_filter() must keep the tensor at a path. */
typedef bool (*tdict_leaf_predicate)(void *user, const tdict_leaves *at);

/** @brief Calls @p visit for every path of a tensor.
 *  If several calls fail, the error is that of the first path. Without a context, no call follows a failed one.
 *  @param[in] context  Context whose threads make the calls. NULL: the calling thread makes all calls in order.
 *  @param[in] trees    @p count trees, borrowed.
 *  @param[in] user     Passed to @p visit.
 *  @param[in] run      Uses `num_threads`, where -1 stands for all threads of the pool. NULL for the defaults. */
TDICT_API TDICT_NODISCARD tdict_status tdict_visit(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_visitor visit, void *user, const tdict_run *run,
                                                   tdict_error *err);
/** @brief Makes a new unlocked tree from the tensors of @p make, with the keys, batch sizes and devices of the first.
 *
 *  Trees that become empty are kept. @p make stores all tensors of an object or none; without them there is no object.
 *  Dimensions after the batch size may differ from the source.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return Also #TDICT_EINVAL: only some tensors of an object; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE: a tensor does
 *          not fit the tree; the status of `unflatten`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_apply(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_maker make, void *user, const tdict_run *run,
                                                   tdict_tree **out, tdict_error *err);
/** @brief Makes a new tree that shares the tensors for which @p keep returns true. Trees that become empty are kept.
 *  @return #TDICT_EINVAL also if @p keep returns true for only some tensors of an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_filter(const tdict_tree *tree, tdict_leaf_predicate keep, void *user,
                                                    tdict_tree **out, tdict_error *err);

/** @brief Returns the number of trees between @p tree and its deepest tensor or object, 0 without children. Children
 *  without tensors and objects do not count. Cost: O(keys below @p tree). */
TDICT_API int tdict_depth(const tdict_tree *tree);

TDICT_END_DECLS
#endif
