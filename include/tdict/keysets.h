/* Makes trees with other keys that share the tensors and objects of their sources. docs/learn/trees.md has the details.
 *
 * Results have new nodes, which are not locked, and the batch size and device of their source. Sources do not change,
 * and no element is read. Cost: O(keys that are read or created). Thread rule: as in tdict/tree.h. Errors of all
 * functions: #TDICT_EINVAL a NULL pointer other than a separator, an invalid path, or an empty separator;
 * #TDICT_ENOMEM. Paths and sets are borrowed for the call. A NULL separator means ".". */
#ifndef TDICT_KEYSETS_H
#define TDICT_KEYSETS_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Makes a tree of the entries at the paths, in the order of the paths. A path to a tree selects the whole tree.
 *  @param[in] strict  If true, a missing path is an error as in tdict_get_entry(). If false, it is ignored. */
TDICT_API TDICT_NODISCARD tdict_status tdict_select(const tdict_tree *tree, const char *const *paths, size_t count,
                                                    bool strict, tdict_tree **out, tdict_error *err);
/** @brief Makes a tree without the entries at the paths. Ignores missing paths, and keeps trees that become empty. */
TDICT_API TDICT_NODISCARD tdict_status tdict_exclude(const tdict_tree *tree, const char *const *paths, size_t count,
                                                     tdict_tree **out, tdict_error *err);
/** A set of paths. The paths are borrowed. */
typedef struct tdict_key_set {
  const char *const *paths;
  size_t count;
} tdict_key_set;
/** @brief Makes a tree for each set, as tdict_select() with `strict`, and a last one of the entries that no set names.
 *  @param[out] trees  The @p num_sets + 1 new trees, owned by the caller. Like @p count, written on success only.
 *  @param[in,out] count  The capacity of @p trees, then the number of trees. #TDICT_EINVAL if it is too small. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_keys(const tdict_tree *tree, const tdict_key_set *sets,
                                                        size_t num_sets, tdict_tree **trees, size_t *count,
                                                        tdict_error *err);
/** @brief Makes a tree of one node, whose keys are the keys on the path of each entry, joined by @p separator.
 *  @return #TDICT_EEXIST two entries would have the same key; #TDICT_ESHAPE or #TDICT_EWRONGDEVICE a tensor of a child
 *          does not fit @p tree. err->path names the entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten_keys(const tdict_tree *tree, const char *separator,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Makes a tree in which the keys of the root are split at the separators into nested keys.
 *  @return #TDICT_EEXIST two entries would have the same path; #TDICT_EINVAL a part of a key is empty; #TDICT_ESHAPE or
 *          #TDICT_EWRONGDEVICE an entry does not fit an existing tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten_keys(const tdict_tree *tree, const char *separator,
                                                            tdict_tree **out, tdict_error *err);
/** @brief Replaces the entries of @p tree by the entries of @p other, shared as by tdict_clone(). @p tree stays the
 *  same node, with its batch size and device. On failure, nothing has changed.
 *  @return #TDICT_ELOCKED; #TDICT_ESHAPE or #TDICT_EWRONGDEVICE an entry does not fit, and err->path names it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_assign(tdict_tree *tree, const tdict_tree *other, tdict_error *err);

TDICT_END_DECLS
#endif
