/* Functions called for the tensors of one or several trees, in order or on a context's pool; trees made by a function.
 *
 * Several trees have the same keys, in any order; the first one's order counts. An object is visited as the tensors
 * that its type shows, with paths below its own, and apply makes it anew of what they become. A function may read trees
 * and write elements, and must not change any tree that is visited. On a pool it runs on several threads at once, for
 * different paths. tdict_walk() (tdict/tree.h) shows trees and objects too.
 * Cost of each beside the function's: O(tensors of all trees), with a list of all paths; no element is touched.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_VISIT_H
#define TDICT_VISIT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

struct tdict_context; /* of tdict/context.h */

/** What a function is shown: the tensors at one path. All is borrowed for the call. */
typedef struct tdict_leaves {
  const char *path; /**< escaped */
  size_t count;     /**< of trees */
  tdict_tensor *const *tensors;
} tdict_leaves;
/** Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_leaf_visitor)(void *user, const tdict_leaves *at, tdict_error *err);
/** Answers a new reference in *out, or leaves it NULL: the key is left out. */
typedef tdict_status (*tdict_leaf_maker)(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err);
typedef bool (*tdict_leaf_predicate)(void *user, const tdict_leaves *at);

typedef struct tdict_visit_options {
  size_t struct_size;
  void *user;                    /**< for the function */
  struct tdict_context *context; /**< whose pool helps; NULL (default): all on the calling thread, in order */
  int32_t num_threads;           /**< pool threads beside the calling one; -1 (default): as many as there are */
} tdict_visit_options;
static inline tdict_visit_options tdict_visit_options_default(void) {
  tdict_visit_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  return o;
}

/** @brief Calls @p visit for every path, with the tensors that stand there in all trees.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL; #TDICT_ENOTFOUND a key that not all have, #TDICT_ETYPE a tensor meets a tree,
 *          #TDICT_ENOTSUP an object without `flatten`, before the first call; what the function answers first, in order
 *          of the paths, with err->path filled if it left that empty: in order, no call follows it; on a pool, calls
 *          already begun do; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_visit(const tdict_tree *const *trees, size_t count,
                                                   tdict_leaf_visitor visit, const tdict_visit_options *options,
                                                   tdict_error *err);
/** @brief A new tree with the keys, batch sizes and device of the first one, of the tensors that @p make answers; keys
 *  that it leaves out are not there, trees that become empty are. Of an object all tensors are left out, and it is, or
 *  none: #TDICT_EINVAL. Result: the dimensions behind the batch size are those of what @p make answers; not locked.
 *  @return as tdict_visit(); #TDICT_ESHAPE, #TDICT_EWRONGDEVICE a tensor that does not agree with the tree's batch size
 *          or device. */
TDICT_API TDICT_NODISCARD tdict_status tdict_apply(const tdict_tree *const *trees, size_t count, tdict_leaf_maker make,
                                                   const tdict_visit_options *options, tdict_tree **out,
                                                   tdict_error *err);
/** @brief A new tree of the tensors that @p keep is true for, shared; trees that become empty stay.
 *  @return #TDICT_OK; #TDICT_EINVAL NULL; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_filter(const tdict_tree *td, tdict_leaf_predicate keep, void *user,
                                                    tdict_tree **out, tdict_error *err);

/** @brief Returns the number of trees on the way to the deepest tensor or object, @p td not counted: 0 when it holds no
 *  tree. Trees without a tensor or object do not count. Cost: O(keys). */
TDICT_API int tdict_depth(const tdict_tree *td);
/** @brief True when there is neither tensor nor object below the tree, trees or not. Cost: the keys up to the first
 *  one. */
TDICT_API bool tdict_is_empty(const tdict_tree *td);

TDICT_END_DECLS
#endif
