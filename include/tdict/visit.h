/* Declares functions that call a function of the program for the tensors of one or several trees. The function of the
 * program is called once per path, with the tensors that the trees have at this path. The calls are made in order on
 * the calling thread, or in parallel on the thread pool of a context. tdict_apply() makes a new tree from the tensors
 * that the function returns.
 *
 * If there are several trees, all trees must have the same keys, in any order. The paths are visited in the order of
 * the first tree. For an object, the function is called for the tensors that the `flatten` hook of the object's type
 * returns. The paths of these tensors begin with the path of the object. tdict_apply() makes a new object from the new
 * tensors. The function of the program may read trees and write elements of tensors. The function must not change the
 * keys of any visited tree. On a thread pool, the function runs on several threads at the same time, for different
 * paths. To visit trees and objects themselves, use tdict_walk() (tdict/tree.h). Cost, without the function of the
 * program: O(tensors of all trees), and memory for a list of all paths. The library reads no elements.
 * The function of the program must return, and must not throw: see docs/callbacks.md.
 * Thread rule: as in tdict/tree.h. */
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
/** Visits the tensors at one path. A visitor returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_leaf_visitor)(void *user, const tdict_leaves *at, tdict_error *err);
/** Makes a tensor from the tensors at one path. Stores a new reference in *@p out. If *@p out remains NULL, the result
 *  has no entry at this path. A maker returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_leaf_maker)(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err);
/** Returns true if tdict_filter() must keep the tensor at a path. */
typedef bool (*tdict_leaf_predicate)(void *user, const tdict_leaves *at);

/** @brief Calls @p visit for every path of a tensor, with the tensors that all trees have at this path.
 *
 *  If several calls of @p visit fail, tdict_visit() returns the error of the call whose path comes first in the first
 *  tree. If no pool is used, @p visit is not called again after a failed call. On a pool, @p visit is still called for
 *  the paths that come before the failed path in the first tree.
 *  @param[in] context  Context whose threads make the calls. NULL: all calls are made on the calling thread, in order.
 *  @param[in] trees    @p count trees, borrowed.
 *  @param[in] user     Passed to @p visit.
 *  @param[in] run      Uses `num_threads`, where -1 stands for all threads of the pool. NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL if a pointer is NULL, there are no trees, or an option is not used or out of range;
 *          #TDICT_ENOTFOUND if a key is missing in one of the trees; #TDICT_ETYPE if the entries at a key differ in
 *          kind; #TDICT_ENOTSUP if an object of the program has no `flatten`; #TDICT_ENOMEM; the status that `flatten`
 *          or @p visit returned. If @p visit left err->path empty, the call sets err->path to the path of the tensor.
 *          All other errors are returned before @p visit is called. */
TDICT_API TDICT_NODISCARD tdict_status tdict_visit(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_visitor visit, void *user, const tdict_run *run,
                                                   tdict_error *err);
/** @brief Makes a new tree from the tensors that @p make stores in *out, with the keys, batch sizes and devices of the
 *  first tree. If @p make stores no tensor for a path, the result has no entry at this path. Trees that become empty
 *  are kept. @p make must store either all tensors of an object or no tensor of the object. In the second case, the
 *  result does not have the object. The dimensions after the batch size may differ from the dimensions of the source
 *  tensors. The result is not locked.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return The same errors as tdict_visit(), with @p make in place of @p visit; #TDICT_EINVAL if @p make stores only
 *          some tensors of an object; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE if a tensor that @p make stores does not match
 *          the batch size or device of the tree that receives the tensor; the status that the hook `unflatten` of an
 *          object returned. */
TDICT_API TDICT_NODISCARD tdict_status tdict_apply(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_maker make, void *user, const tdict_run *run,
                                                   tdict_tree **out, tdict_error *err);
/** @brief Makes a new tree with the tensors for which @p keep returns true. The new tree shares these tensors. Trees
 *  that become empty are kept.
 *  @return #TDICT_OK; #TDICT_EINVAL if a pointer is NULL, or if @p keep returns true for only some tensors of an
 *          object; #TDICT_ENOTSUP if an object of the program has no `flatten`; #TDICT_ENOMEM; the status that the hook
 *          `flatten` or `unflatten` of an object returned. */
TDICT_API TDICT_NODISCARD tdict_status tdict_filter(const tdict_tree *tree, tdict_leaf_predicate keep, void *user,
                                                    tdict_tree **out, tdict_error *err);

/** @brief Returns the number of trees between @p tree and its deepest tensor or object. Returns 0 if @p tree has no
 *  child. Children without tensors and objects do not count. Cost: O(keys below @p tree). */
TDICT_API int tdict_depth(const tdict_tree *tree);
/** @brief Returns true if there is no tensor and no object below @p tree. Empty trees below @p tree do not count. Cost:
 *  O(keys before the first tensor or object). */
TDICT_API bool tdict_is_empty(const tdict_tree *tree);

TDICT_END_DECLS
#endif
