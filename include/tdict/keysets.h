/* Trees with other keys over the same tensors: parts by paths, nested names made flat and back, merges. Results are new
 * nodes that share tensors [T:keysets_share_leaves]; they are not locked; trees that are read are as they were. All
 * answer #TDICT_EINVAL for NULL and for what is no path, and #TDICT_ENOMEM [T:keysets_survive_enomem]. They work on
 * every device, as no element is touched; objects are shared [T:object_moves_with_keys]. Batch sizes are those of the nodes that keys come from,
 * devices too. Cost of each: O(keys that are read or made), with no byte of an element copied.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_KEYSETS_H
#define TDICT_KEYSETS_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief What stands at the paths, in their order, with the nodes on the way [T:select_takes_paths]. A path to a tree
 *  takes all of it; naming something twice changes nothing.
 *  @param[in] strict  false: a path that leads nowhere is left out.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND, #TDICT_ETYPE with @p strict, as tdict_get() [T:select_refuses_missing]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_select(const tdict_tree *td, const char *const *paths, size_t count,
                                                    bool strict, tdict_tree **out, tdict_error *err);
/** @brief All but what stands at the paths; those that lead nowhere are ignored, nodes that become empty stay
 *  [T:exclude_leaves_out]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_exclude(const tdict_tree *td, const char *const *paths, size_t count,
                                                     tdict_tree **out, tdict_error *err);
/** A set of paths; borrowed. */
typedef struct tdict_key_set {
  const char *const *paths;
  size_t count;
} tdict_key_set;
/** @brief A tree for each set, as tdict_select() with strict, and a last one of all that is in no set
 *  [T:split_keys_splits].
 *  @param[out] out  room for @p count + 1 trees, written on success only.
 *  @return as tdict_select() [T:split_keys_refuses]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_keys(const tdict_tree *td, const tdict_key_set *sets, size_t count,
                                                        tdict_tree **out, tdict_error *err);
/** @brief One node that holds every tensor, in the order of a walk, its key the keys that lead to it with @p separator
 *  between them; empty trees are dropped [T:flatten_keys_flattens].
 *  @param[in] separator  NULL is ".".
 *  @return #TDICT_OK; #TDICT_EEXIST two tensors would have one key, err->path naming the second
 *          [T:flatten_keys_refuses_collision]; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE a tensor below does not agree with the
 *          tree (see tdict/tree.h) [T:changed_child_is_not_flattened]; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out,
                                                          tdict_error *err);
/** @brief Trees for the parts of the keys of this node between separators; keys without one stay
 *  [T:unflatten_keys_unflattens].
 *  @param[in] separator  NULL is ".".
 *  @return #TDICT_OK; #TDICT_EEXIST two things would stand at one path; #TDICT_EINVAL a key that begins or ends with the
 *          separator or holds two in a row, since keys are not empty [T:unflatten_keys_refuses]; #TDICT_ESHAPE what comes
 *          into a tree that is there does not begin with its batch size [T:unflatten_keys_keeps_batch_sizes]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten_keys(const tdict_tree *td, const char *separator,
                                                            tdict_tree **out, tdict_error *err);
/** @brief A tree with what hangs in all of them, as if the first were updated with the second (tdict_update()) and so on;
 *  batch size and device are the first one's [T:merge_merges].
 *  @return as tdict_update(); #TDICT_EINVAL no tree [T:merge_refuses]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_merge(const tdict_tree *const *items, size_t count, tdict_tree **out,
                                                   tdict_error *err);

TDICT_END_DECLS
#endif
