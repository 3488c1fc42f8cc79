/* Trees with other keys over the same tensors: parts by paths, nested names made flat and back, merges. Results are new
 * nodes that share tensors; they are not locked; trees that are read are as they were. Functions whose names end in
 * `_in_place` change the tree instead of making one. All answer #TDICT_EINVAL for NULL and for what is no path, and
 * #TDICT_ENOMEM. They work on every device, as no element is touched; objects are shared. Batch sizes are those of the
 * nodes that keys come from, devices too. Cost of each: O(keys that are read or made), with no byte of an element
 * copied.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_KEYSETS_H
#define TDICT_KEYSETS_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief What stands at the paths, in their order, with the nodes on the way. A path to a tree takes all of it; naming
 *  something twice changes nothing.
 *  @param[in] strict  false: a path that leads nowhere is left out.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND, #TDICT_ETYPE with @p strict, as tdict_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_select(const tdict_tree *td, const char *const *paths, size_t count,
                                                    bool strict, tdict_tree **out, tdict_error *err);
/** @brief All but what stands at the paths; those that lead nowhere are ignored, nodes that become empty stay. */
TDICT_API TDICT_NODISCARD tdict_status tdict_exclude(const tdict_tree *td, const char *const *paths, size_t count,
                                                     tdict_tree **out, tdict_error *err);
/** @brief Removes every key of @p td that no path names, and puts the rest in the order of the paths. The result is
 *  what tdict_select() returns, unless a child hangs at several places: what is removed from it is removed at all of
 *  them.
 *
 *  Trees on the way to a path lose keys too, in every tree that holds them. Handles of these trees and of @p td stay
 *  valid. A tree at several of the paths keeps what any of them names. On failure nothing has changed. Cost: O(keys on
 *  the way to the paths), and what is taken out is released.
 *  @param[in] strict  false: a path that leads nowhere is left out.
 *  @return as tdict_select(); #TDICT_ELOCKED @p td or a tree on the way to a path is locked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_select_in_place(tdict_tree *td, const char *const *paths, size_t count,
                                                             bool strict, tdict_error *err);
/** @brief Removes the keys at the paths from @p td.
 *
 *  Paths that lead nowhere are ignored; trees that become empty stay. A child that loses a key loses it in every tree
 *  that holds the child. Handles stay valid. On failure nothing has changed. Cost: O(keys of the trees that lose keys).
 *  @return #TDICT_OK; #TDICT_ELOCKED a tree that would lose a key is locked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_exclude_in_place(tdict_tree *td, const char *const *paths, size_t count,
                                                              tdict_error *err);
/** A set of paths; borrowed. */
typedef struct tdict_key_set {
  const char *const *paths;
  size_t count;
} tdict_key_set;
/** @brief Makes a tree for each set, as tdict_select() with strict, and a last one of all that is in no set, without
 *  trees that hold no tensor or object. What several sets name is in each of their trees.
 *  @param[out] out  room for @p count + 1 trees, written on success only.
 *  @return as tdict_select(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_keys(const tdict_tree *td, const tdict_key_set *sets, size_t count,
                                                        tdict_tree **out, tdict_error *err);
/** @brief One node that holds every tensor, in the order of a walk, its key the keys that lead to it with @p separator
 *  between them; empty trees are dropped.
 *  @param[in] separator  NULL is ".".
 *  @return #TDICT_OK; #TDICT_EEXIST two tensors would have one key, err->path naming the second; #TDICT_ESHAPE,
 *          #TDICT_EWRONGDEVICE a tensor below does not agree with the tree (see tdict/tree.h); #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out,
                                                          tdict_error *err);
/** @brief Makes @p td the tree that tdict_flatten_keys() makes of it.
 *
 *  The former children of @p td are not changed, so other trees that hold them see no difference. On failure nothing
 *  has changed.
 *  @return as tdict_flatten_keys(); #TDICT_ELOCKED @p td is locked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten_keys_in_place(tdict_tree *td, const char *separator,
                                                                   tdict_error *err);
/** @brief Makes trees for the parts of the keys of this node between separators; keys without one stay.
 *
 *  The result does not depend on the order of the keys: "a.b" goes into the tree at "a" whether that tree comes before
 *  or after it. In a merged tree the keys that were there come first.
 *  @param[in] separator  NULL is ".".
 *  @return #TDICT_OK; #TDICT_EEXIST two things would stand at one path; #TDICT_EINVAL a key that begins or ends with
 *          the separator or holds two in a row, since keys are not empty; #TDICT_ESHAPE what comes into a tree that is
 *          there does not begin with its batch size. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten_keys(const tdict_tree *td, const char *separator,
                                                            tdict_tree **out, tdict_error *err);
/** @brief Makes @p td the tree that tdict_unflatten_keys() makes of it.
 *
 *  New keys are added to existing children, and show in every tree that holds them, so the result may differ from
 *  tdict_unflatten_keys() if a child hangs at several places. If no key contains the separator, nothing changes. On
 *  failure nothing has changed.
 *  @return as tdict_unflatten_keys(); #TDICT_ELOCKED a tree is locked that would have to be changed; #TDICT_EINVAL a
 *          tree would come to hang below itself. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten_keys_in_place(tdict_tree *td, const char *separator,
                                                                     tdict_error *err);
/** @brief A tree with what hangs in all of them, as if the first were updated with the second (tdict_update()) and so
 *  on; batch size and device are the first one's.
 *  @return as tdict_update(); #TDICT_EINVAL no tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_merge(const tdict_tree *const *items, size_t count, tdict_tree **out,
                                                   tdict_error *err);

TDICT_END_DECLS
#endif
