/* Declares trees of tensors.
 *
 * A tree maps keys to tensors, trees and objects (tdict/object.h), and keeps the order in which the keys were added. A
 * tree at a key is a child, and a node is one tree without its children. The shape of every tensor below a tree begins
 * with the batch size of the tree. A program can break this rule through a borrowed child. Functions that need it then
 * return #TDICT_ESHAPE: see docs/learn/trees.md. docs/container.md has the differences from TensorDict 0.15.
 *
 * Paths. A path such as "next.obs.pixels" names nested keys. Before a dot or a backslash in a key, write a backslash:
 * in C source, "h\\.0" is the single key `h.0`. A key is not empty, and may contain all bytes except 0.
 *
 * Ownership. Trees are reference counted: a function that makes a tree returns one reference, and tdict_release() drops
 * a reference. Results are written on success only.
 *
 * The cost of a function with a path is O(length of the path), for any number of keys.
 * Errors of all functions with a path, which err->path names:
 * - #TDICT_EINVAL: a NULL pointer, or an invalid path;
 * - #TDICT_ENOTFOUND: there is no entry to get, remove or move;
 * - #TDICT_ETYPE: the path leads through a tensor or an object, or the entry is of another kind;
 * - #TDICT_ELOCKED: the tree that would change is locked; #TDICT_ENOMEM.
 *
 * Thread rule: many threads may read a tree at the same time. While a thread changes a tree, no other thread may use
 * this tree. For the elements of its tensors, the rule of tdict/tensor.h applies. */
#ifndef TDICT_TREE_H
#define TDICT_TREE_H

#include <stdio.h>

#include "tdict/tensor.h"

TDICT_BEGIN_DECLS

typedef struct tdict_tree tdict_tree;
typedef struct tdict_type tdict_type; /**< type of an object; see tdict/object.h */

/** Maximum number of batch dimensions. */
#define TDICT_MAX_BATCH_NDIM 16

/** @brief Creates an empty tree with one reference.
 *  @param[in] batch_size  @p batch_ndim sizes of zero or more. May be NULL if @p batch_ndim is 0.
 *  @return #TDICT_EINVAL a NULL pointer, a negative size, or more than #TDICT_MAX_BATCH_NDIM sizes; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create(int batch_ndim, const int64_t *batch_size, tdict_tree **out,
                                                    tdict_error *err);

/** Describes one tensor of a new tree; see tdict_create_from(). */
typedef struct tdict_field {
  const char *path;
  tdict_dtype dtype;
  int32_t ndim;
  int64_t shape[6]; /**< sizes after the batch dimensions; shape[ndim] and all later sizes must be 0 */
} tdict_field;
/** Initializes one tdict_field from a path, a dtype and up to six sizes:
 *  `TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64)`. Works in C99 and C++11. */
#define TDICT_FIELD(path, ...)                                                                                   \
  tdict_field_pick_(__VA_ARGS__, tdict_field_6_, tdict_field_5_, tdict_field_4_, tdict_field_3_, tdict_field_2_, \
                    tdict_field_1_, tdict_field_0_, 0)(path, __VA_ARGS__)
#define tdict_field_pick_(dtype, a, b, c, d, e, f, name, ...) name
/* clang-format off */
#define tdict_field_0_(path, dtype) {path, dtype, 0, {0}}
#define tdict_field_1_(path, dtype, a) {path, dtype, 1, {a}}
#define tdict_field_2_(path, dtype, a, b) {path, dtype, 2, {a, b}}
#define tdict_field_3_(path, dtype, a, b, c) {path, dtype, 3, {a, b, c}}
#define tdict_field_4_(path, dtype, a, b, c, d) {path, dtype, 4, {a, b, c, d}}
#define tdict_field_5_(path, dtype, a, b, c, d, e) {path, dtype, 5, {a, b, c, d, e}}
#define tdict_field_6_(path, dtype, a, b, c, d, e, f) {path, dtype, 6, {a, b, c, d, e, f}}
/* clang-format on */

/** @brief Creates a tree with one tensor for each field.
 *  All elements are zero, in one storage, in the order of the fields, at multiples of 256 bytes.
 *  @param[in] memory  Allocates the storage. NULL is plain host memory.
 *  @return #TDICT_EEXIST two fields have the same path; #TDICT_ETYPE a path leads through the tensor of another field;
 *          #TDICT_EINVAL a bad shape; errors of tdict_create() and tdict_tensor_empty(). err->path names the field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from(const tdict_field *fields, size_t num_fields, int batch_ndim,
                                                         const int64_t *batch_size, tdict_memory *memory,
                                                         tdict_tree **out, tdict_error *err);

/** @brief Adds a reference and returns @p tree, which must not be NULL. Thread-safe. */
TDICT_API tdict_tree *tdict_retain(const tdict_tree *tree);
/** @brief Drops a reference. The last one frees the tree and releases its entries. NULL is allowed. Thread-safe. */
TDICT_API void tdict_release(tdict_tree *tree);

/** @brief Sets the tensor at a path. No elements are copied.
 *
 *  Missing trees are created with the batch size and device of their parent. A replaced entry keeps its position. The
 *  parent below is the tree that gets the last key.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return #TDICT_ESHAPE the shape does not begin with the parent's batch size; #TDICT_EWRONGDEVICE another device.
 *  @note After a shallow clone, the first change copies the shared table of keys: O(keys of the parent). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                 tdict_error *err);
/** @brief Sets the tree at a path. Normally the new parent retains @p child itself, and sees later changes to it.
 *
 *  If @p child has fewer batch dimensions than the parent, or lacks its device, the parent holds a shallow copy that
 *  has them. It does so too if the batch size differs, and no tensor or object in @p child has batch dimensions.
 *  @return The errors of tdict_set(); #TDICT_EINVAL also if @p child would contain itself.
 *  @note Cost: also O(keys in @p child and below) for the checks. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_tree(tdict_tree *tree, const char *path, tdict_tree *child,
                                                      tdict_error *err);

/** @brief Returns the tensor at a path, borrowed from the tree.
 *  @note The message for a missing key lists similar keys, in tens of microseconds, unless @p err is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Returns the tree at a path, borrowed from its parent. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_tree(const tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Returns tdict_tensor_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API void *tdict_data(tdict_tree *tree, const char *path);
/** @brief Returns tdict_tensor_const_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API const void *tdict_const_data(const tdict_tree *tree, const char *path);
/** @brief Returns the address of the tensor at a path, for writing, if the tensor is what the caller expects.
 *
 *  Example: `float *x = tdict_checked_data(batch, "x", TDICT_F32, TDICT_SHAPE(-1, 4), &err);`
 *  The tensor must be in host memory, and its elements in C order without gaps. Waits as tdict_tensor_data().
 *  @param[in] num_dims  Number of dimensions and length of @p shape; -1: any shape is accepted.
 *  @param[in] shape  The expected sizes; -1 stands for any size.
 *  @return The address, borrowed from the tree, or NULL after an error in *@p err: the errors of tdict_get();
 *          #TDICT_EDTYPE or #TDICT_ESHAPE another dtype or shape, or gaps; #TDICT_EWRONGDEVICE; #TDICT_EREADONLY;
 *          #TDICT_EINVAL the elements are lost or in a file. */
TDICT_API TDICT_NODISCARD void *tdict_checked_data(tdict_tree *tree, const char *path, tdict_dtype dtype, int num_dims,
                                                   const int64_t *shape, tdict_error *err);
/** @brief Returns the address for reading, as tdict_checked_data(), also of a read-only tensor. */
TDICT_API TDICT_NODISCARD const void *tdict_checked_const_data(const tdict_tree *tree, const char *path,
                                                               tdict_dtype dtype, int num_dims, const int64_t *shape,
                                                               tdict_error *err);
/** @brief Returns true if the path names a tensor, a tree or an object. Returns false for an invalid path. */
TDICT_API bool tdict_has(const tdict_tree *tree, const char *path);

/** @brief Removes the entry at a path and releases its tensor, tree or object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_delete(tdict_tree *tree, const char *path, tdict_error *err);
/** @brief Removes the tensor at a path. The caller takes over the tree's reference to it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop(tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Removes the tree at a path, as tdict_pop() removes a tensor. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop_tree(tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Moves the entry at the path @p from to the path @p to, as tdict_set() or tdict_set_tree() sets it.
 *  If only the last key differs, the entry keeps its position. Equal paths change nothing.
 *  @param[in] safe  true: #TDICT_EEXIST if there is another entry at @p to. false: the call replaces it.
 *  @return The errors of tdict_set(); #TDICT_EINVAL also if @p to is below @p from. */
TDICT_API TDICT_NODISCARD tdict_status tdict_rename(tdict_tree *tree, const char *from, const char *to, bool safe,
                                                    tdict_error *err);

/** @brief Returns the number of batch dimensions. */
TDICT_API int tdict_batch_ndim(const tdict_tree *tree);
/** @brief Returns the sizes of the batch dimensions, borrowed from the tree. */
TDICT_API const int64_t *tdict_batch_size(const tdict_tree *tree);
/** @brief Changes the batch size of a tree.
 *
 *  Trees below it get @p batch_size if they have fewer batch dimensions, or have another batch size but no tensor and
 *  no object with batch dimensions. The parents of @p tree are not compared.
 *  @return #TDICT_EINVAL as tdict_create(); #TDICT_ESHAPE a tensor or tree below does not match, and err->path names
 *          the first; #TDICT_ELOCKED a tree that must change is locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_batch_size(tdict_tree *tree, int batch_ndim, const int64_t *batch_size,
                                                            tdict_error *err);
/** @brief Returns true if the tree has a device, and writes the device to @p out, which may be NULL. */
TDICT_API bool tdict_get_device(const tdict_tree *tree, tdict_device *out);
/** @brief Sets the device of a tree and of all trees below the tree. No tensor is moved.
 *  @param[in] device  Borrowed for the call. NULL removes the device.
 *  @return #TDICT_EWRONGDEVICE a tensor is on another device, and err->path names the first; #TDICT_EINVAL an invalid
 *          device; #TDICT_ELOCKED a tree that must change is locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_device(tdict_tree *tree, const tdict_device *device, tdict_error *err);

/** @brief Locks the tree and all trees below. No entry of a locked tree can be added, removed or replaced, but the
 *  elements of its tensors can be written. NULL is allowed. Cost, also of tdict_unlock(): O(keys below the tree). */
TDICT_API void tdict_lock(tdict_tree *tree);
/** @brief Unlocks the tree, if it is locked, and the trees below, except trees that another locked tree holds.
 *  @return #TDICT_ELOCKED @p tree is below a locked tree, which the program must unlock instead; #TDICT_EINVAL NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unlock(tdict_tree *tree, tdict_error *err);
/** @brief Returns true if the tree, or a tree above it, is locked.
 *  @note If another thread frees a locked tree, wait for the end of the call before you change a tree below. */
TDICT_API bool tdict_is_locked(const tdict_tree *tree);

/** @brief Returns the number of keys of this node. Keys of child trees are not counted. */
TDICT_API size_t tdict_num_keys(const tdict_tree *tree);
/** An entry of a tree: a key and its tensor, tree or object. A visitor borrows the entry for the call. */
typedef struct tdict_entry {
  const char *path; /**< escaped path from the tree that the function received */
  const char *key;  /**< the last key, unescaped */
  int32_t depth;    /**< 0 for the keys of the tree that the function received */
  /** Exactly one of the next three members is not NULL. */
  tdict_tensor *tensor;
  tdict_tree *tree;
  void *object;
  const tdict_type *type; /**< the type of `object`, or NULL */
} tdict_entry;
/** @brief Returns entry number @p i of this node, in the order in which the keys were added.
 *  Example: `tdict_get_entry_at(tree, i).key`. Cost: constant if no key was deleted, else O(keys of the node).
 *  @return Borrowed until the tree changes. `path` is NULL and `depth` 0. If @p i is too large, all members are 0. */
TDICT_API tdict_entry tdict_get_entry_at(const tdict_tree *tree, size_t i);
/** @brief Returns the number of tensors in the tree, once for each path. */
TDICT_API size_t tdict_num_leaves(const tdict_tree *tree);
/** @brief Returns the number of objects in the tree, once for each path. */
TDICT_API size_t tdict_num_objects(const tdict_tree *tree);
/** @brief Returns the bytes of the elements of all tensors and of the `bytes` hooks of objects, once for each path. */
TDICT_API size_t tdict_bytes(const tdict_tree *tree);

/** Visits one entry of a tree. Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_visitor)(void *user, const tdict_entry *entry, tdict_error *err);
/** @brief Calls @p visit for every entry below @p tree in insertion order, for a tree before its children.
 *  The visitor may write elements, but must not change the keys of these trees.
 *  @return #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM; the first other status that the visitor returned, which ends
 *          the walk. If the visitor left err->path empty, it becomes the path of the entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_walk(const tdict_tree *tree, tdict_visitor visit, void *user,
                                                  tdict_error *err);

/** @brief Returns the tensor, tree or object at a path.
 *  @param[out] out  `path` is @p path. The other members are borrowed from the tree until the tree changes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_entry(const tdict_tree *tree, const char *path, tdict_entry *out,
                                                       tdict_error *err);

/** @brief Writes a text with a line for each key to @p file, and flushes @p file. Reads no elements.
 *
 *  A tensor has its dtype, shape, device, and the marks `pinned` and `shared` (its bytes overlap another tensor). An
 *  object has its type and text. The last line has the numbers of tensors, objects and bytes.
 *  @return #TDICT_EINVAL a NULL pointer; #TDICT_EIO the file could not be written, and err->native is errno. */
TDICT_API TDICT_NODISCARD tdict_status tdict_print(const tdict_tree *tree, FILE *file, tdict_error *err);

TDICT_END_DECLS
#endif
