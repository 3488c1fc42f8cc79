/* Calls a function for the tensors of one or several trees, in order or on the thread pool of a context. Makes new
 * trees from the results of such a function.
 *
 * If a call takes several trees, they must have the same keys. The order of keys may differ; the call uses the order of
 * the first tree. An object is visited as the tensors that its type's `flatten` returns, with paths below the path of
 * the object. tdict_apply() makes a new object from the new tensors. The called function may read trees and write
 * elements. The function must not change the keys of any visited tree. On a thread pool, the function runs on several
 * threads at once, for different paths. tdict_walk() (tdict/tree.h) also reports trees and objects. Cost of each call,
 * without the function: O(tensors of all trees), and memory for a list of all paths. No element is read.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_VISIT_H
#define TDICT_VISIT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

struct tdict_context; /* Declared in tdict/context.h. */

/** The tensors at one path, one per tree. All members are borrowed for the call. */
typedef struct tdict_leaves {
  const char *path; /**< Escaped, see tdict/tree.h. */
  size_t count;     /**< Number of trees. */
  tdict_tensor *const *tensors;
} tdict_leaves;
/** Visits the tensors at one path. Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_leaf_visitor)(void *user, const tdict_leaves *at, tdict_error *err);
/** Makes a tensor of the tensors at one path. Stores a new reference in *@p out, or leaves *@p out NULL to leave the
 *  key out. Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_leaf_maker)(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err);
typedef bool (*tdict_leaf_predicate)(void *user, const tdict_leaves *at);

typedef struct tdict_visit_options {
  size_t struct_size;
  void *user;                    /**< Passed to the called function. */
  struct tdict_context *context; /**< Context whose thread pool is used. NULL (default): the function is called on the
                                      calling thread, in order. */
  int32_t num_threads;           /**< Number of pool threads used besides the caller. -1 (default): all. */
} tdict_visit_options;
static inline tdict_visit_options tdict_visit_options_default(void) {
  tdict_visit_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  return o;
}

/** @brief Calls @p visit for every path, with the tensors at that path in all trees.
 *
 *  If several calls of @p visit fail, tdict_visit() returns the error of the path that comes first. If no pool is used,
 *  @p visit is not called again after a failed call. On a pool, calls that have begun still finish.
 *  @param[in] trees  @p count trees, borrowed.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL if a pointer is NULL or there are no trees; #TDICT_ENOTFOUND if a key is missing
 *          in one of the trees; #TDICT_ETYPE if the entries at a key differ in kind; #TDICT_ENOTSUP if an object has
 *          no `flatten`; #TDICT_ENOMEM; the status that @p visit returned, with err->path set to the path if @p visit
 *          left err->path empty. All errors except the errors of @p visit are returned before @p visit is called. */
TDICT_API TDICT_NODISCARD tdict_status tdict_visit(const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_visitor visit, const tdict_visit_options *options,
                                                   tdict_error *err);
/** @brief Makes a new tree of the tensors that @p make returns, with the keys, batch sizes and device of the first
 *  tree.
 *
 *  Keys that @p make leaves out are missing in the result; trees that become empty are kept. @p make must keep all
 *  tensors of an object, or drop all of them; the object is then dropped too. The dimensions after the batch size may
 *  differ from the dimensions of the source tensors. The result is not locked.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return The same errors as tdict_visit(); #TDICT_EINVAL if @p make drops only some tensors of an object;
 *          #TDICT_ESHAPE, #TDICT_EWRONGDEVICE if a tensor that @p make returns does not have the batch size or
 *          device of its tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_apply(const tdict_tree *const *trees, size_t count, tdict_leaf_maker make,
                                                   const tdict_visit_options *options, tdict_tree **out,
                                                   tdict_error *err);
/** @brief Makes a new tree of the tensors for which @p keep returns true. The tensors are shared, and trees that become
 *  empty are kept.
 *  @return #TDICT_OK; #TDICT_EINVAL if a pointer is NULL, or if @p keep drops only some tensors of an object;
 *          #TDICT_ENOTSUP if an object has no `flatten`; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_filter(const tdict_tree *tree, tdict_leaf_predicate keep, void *user,
                                                    tdict_tree **out, tdict_error *err);

/** @brief Returns the number of trees between @p tree and its deepest tensor or object; 0 if @p tree contains no trees.
 *  Trees without tensors and objects do not count. Cost: O(keys). */
TDICT_API int tdict_depth(const tdict_tree *tree);
/** @brief Returns true if there is no tensor and no object below @p tree, even if there are trees. Cost: O(keys before
 *  the first tensor or object). */
TDICT_API bool tdict_is_empty(const tdict_tree *tree);

TDICT_END_DECLS
#endif
