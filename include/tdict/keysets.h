/* Makes trees with other keys that share the tensors of the source trees. The functions select and exclude entries by
 * paths, flatten and nest keys, and merge trees. tdict_assign() puts such a result into an existing tree.
 *
 * A result has new nodes and shares tensors and objects with its sources. A result is not locked. The source trees do
 * not change.
 * The root of a result has the batch size and device of the source tree. The result of tdict_merge() has the batch size
 * and device of the first tree. No element is read or copied, so the tensors may be on any device.
 * Errors. All functions return #TDICT_ENOMEM if memory is exhausted. All functions return #TDICT_EINVAL for an invalid
 * path, an empty separator, or a NULL pointer other than a separator. Cost of each function: O(keys that are read or
 * created). Thread rule: as in tdict/tree.h. */
#ifndef TDICT_KEYSETS_H
#define TDICT_KEYSETS_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Makes a tree with the entries at the paths and the child trees that lead to these entries. The entries have
 *  the order of the paths.
 *
 *  A path to a tree selects the whole tree. If several paths name one entry, the result has the entry once.
 *  @param[in] paths  @p count paths, borrowed.
 *  @param[in] strict  If false, paths that do not exist are ignored.
 *  @return #TDICT_OK; if @p strict is true and a path does not exist, #TDICT_ENOTFOUND or #TDICT_ETYPE as in
 *          tdict_get_entry(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_select(const tdict_tree *tree, const char *const *paths, size_t count,
                                                    bool strict, tdict_tree **out, tdict_error *err);
/** @brief Makes a tree without the entries at the paths. Paths that do not exist are ignored. Child trees that become
 *  empty are kept. */
TDICT_API TDICT_NODISCARD tdict_status tdict_exclude(const tdict_tree *tree, const char *const *paths, size_t count,
                                                     tdict_tree **out, tdict_error *err);
/** A set of paths. The paths are borrowed. */
typedef struct tdict_key_set {
  const char *const *paths;
  size_t count;
} tdict_key_set;
/** @brief Makes one tree for each set of paths, and a last tree with the entries that no set names.
 *
 *  The tree of a set equals the result of tdict_select() with these paths and `strict` true. If several sets name an
 *  entry, the tree of each of these sets has the entry. The last tree leaves out each child tree that holds no tensor
 *  and no object.
 *  @param[in] sets  @p num_sets sets, borrowed.
 *  @param[out] trees  The @p num_sets + 1 new trees, owned by the caller. Written on success only.
 *  @param[in,out] count  Before the call, the capacity of @p trees. After the call, the number of new trees. Written on
 *          success only.
 *  @return The same errors as tdict_select(); #TDICT_EINVAL if the capacity is too small. */
TDICT_API TDICT_NODISCARD tdict_status tdict_split_keys(const tdict_tree *tree, const tdict_key_set *sets,
                                                        size_t num_sets, tdict_tree **trees, size_t *count,
                                                        tdict_error *err);
/** @brief Makes a tree of one node that holds every tensor and object below @p tree.
 *
 *  The keys have the order of tdict_walk(). Each key consists of the keys on the path of the entry, joined by @p
 *  separator. Empty trees are dropped.
 *  @param[in] separator  NULL means ".".
 *  @return #TDICT_OK; #TDICT_EEXIST if two entries would have the same key (err->path names the second entry);
 *          #TDICT_ESHAPE if the shape of a tensor in a child tree does not begin with the batch size of @p tree (see
 *          tdict/tree.h); #TDICT_EWRONGDEVICE if @p tree has a device, and a tensor in a child tree is on another
 *          device. */
TDICT_API TDICT_NODISCARD tdict_status tdict_flatten_keys(const tdict_tree *tree, const char *separator,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Makes a tree in which the keys of the root are split at the separators into nested keys. Keys without a
 *  separator do not change.
 *
 *  The keys without a separator come first, in their order. Then come the new trees, in the order of the keys that were
 *  split. The nesting does not depend on the order of the keys. For example, the entry "a.b" is put into the tree at
 *  "a", even if the key "a" is after "a.b". If the tree at "a" exists already, the new keys are added after its keys.
 *  @param[in] separator  NULL means ".".
 *  @return #TDICT_OK; #TDICT_EEXIST if two entries would have the same path, or a tensor or object is at the path of a
 *          tree; #TDICT_EINVAL if a key begins or ends with the separator or contains two separators in a row;
 *          #TDICT_ESHAPE, #TDICT_EWRONGDEVICE if an entry is put into an existing tree and does not have the batch size
 *          or device of that tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unflatten_keys(const tdict_tree *tree, const char *separator,
                                                            tdict_tree **out, tdict_error *err);
/** @brief Makes a tree with the entries of all @p count trees of @p items.
 *
 *  The result equals a shallow copy of the first tree into which tdict_update() merges the other trees, in order.
 *  @return The same errors as tdict_update(); #TDICT_EINVAL if there are no trees. */
TDICT_API TDICT_NODISCARD tdict_status tdict_merge(const tdict_tree *const *items, size_t count, tdict_tree **out,
                                                   tdict_error *err);
/** @brief Replaces the keys and entries of @p tree by the keys and entries of @p other.
 *
 *  Example: `tdict_select(tree, paths, count, true, &part, err)`, then `tdict_assign(tree, part, err)`.
 *  @p tree stays the same node, so every tree that holds it has the new entries, and pointers to it stay valid. It
 *  keeps its batch size and device, because the trees above depend on them. The new entries must fit both.
 *  Entries are shared as tdict_clone() shares them: tensors and objects are the same, and child trees are new nodes. A
 *  child that has fewer batch dimensions than @p tree, or no device where @p tree has one, gets them, as in
 *  tdict_set_tree(). The former children of @p tree do not change, so other trees that hold them keep them. To keep a
 *  child node, assign to the child itself.
 *  @param[in] other  Borrowed for the call, and unchanged. May be above or below @p tree. If it is @p tree, nothing
 *          changes.
 *  @return #TDICT_OK; #TDICT_ELOCKED @p tree is locked; #TDICT_ESHAPE, #TDICT_EWRONGDEVICE an entry below @p other does
 *          not fit the batch size or the device of @p tree, and err->path names the entry. On failure, nothing has
 *          changed.
 *  @note Cost: as tdict_clone(), plus O(keys below @p other) for the checks. */
TDICT_API TDICT_NODISCARD tdict_status tdict_assign(tdict_tree *tree, const tdict_tree *other, tdict_error *err);

TDICT_END_DECLS
#endif
