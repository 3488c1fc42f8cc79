/* Declares trees of tensors.
 *
 * A tree maps keys to tensors, trees and objects (tdict/object.h), and keeps the order in which the keys were added.
 * The batch size of a tree equals the leading dimensions of every tensor below the tree, unless the program has changed
 * a child.
 *
 * A child is a complete tree: the program can change a child through a borrowed handle, and several trees can share a
 * child. A change to a child is checked against the batch size and device of that child only. The parents of the child
 * are not checked, so the child may then no longer match a parent. Functions that use the parent's batch size then
 * return TDICT_ESHAPE, err->path names the tensor, and nothing changes. The parent's batch size is used by the
 * functions of tdict/index.h, tdict/shape.h and tdict/combine.h, and by tdict_flatten_keys() and
 * tdict_dataset_from_tree(). All other functions still work. Only the shapes of tensors are checked. If the tensors of
 * a child match the parent, the child takes the parent's batch size in the result of such a function.
 *
 * A path such as "next.obs.pixels" names nested keys. A backslash keeps the next character literal, so "h\\.0" in C
 * source is the single key `h.0`. All other bytes are allowed. An empty key is an error.
 *
 * Trees are reference counted: a function that makes a tree returns one reference, and tdict_release() drops a
 * reference. Thread rule: many threads may read a tree, or one thread may write it. tdict_retain() and tdict_release()
 * are thread-safe. Trees follow the rules of TensorDict 0.14, except where this header says otherwise. */
#ifndef TDICT_TREE_H
#define TDICT_TREE_H

#include <stdio.h>

#include "tdict/tensor.h"

TDICT_BEGIN_DECLS

typedef struct tdict_tree tdict_tree;
typedef struct tdict_type tdict_type; /**< a type of object; see tdict/object.h */

/** Maximum number of batch dimensions. */
#define TDICT_MAX_BATCH_NDIM 16

/** @brief Creates an empty tree.
 *  @param[in]  batch_size  @p batch_ndim sizes of zero or more. May be NULL if @p batch_ndim is 0.
 *  @param[out] out         New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL @p batch_ndim is negative or above #TDICT_MAX_BATCH_NDIM, a size is negative, or a
 *          pointer is NULL; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create(int batch_ndim, const int64_t *batch_size, tdict_tree **out,
                                                    tdict_error *err);

/** Describes one tensor of a schema. */
typedef struct tdict_field {
  const char *path;
  tdict_dtype dtype;
  int32_t ndim;
  int64_t shape[6]; /**< sizes after the batch dimensions; entries from shape[ndim] on must be 0 */
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
typedef struct tdict_schema {
  const tdict_field *fields;
  size_t num_fields;
} tdict_schema;

/** @brief Creates a tree of zeroed tensors as a schema describes them.
 *
 *  All tensors are views of one storage, in the order of the fields. The storage and each tensor begin on a multiple of
 *  256 bytes.
 *  @param[in]  schema  Borrowed for the call.
 *  @param[in]  memory  Memory in which the storage is allocated. NULL is plain host memory.
 *  @param[out] out     New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EEXIST two fields have the same path; #TDICT_ETYPE the path of one field leads through the
 *          tensor of another field; #TDICT_EINVAL a NULL pointer, or `shape` is not 0 from `shape[ndim]` on. Also
 *          returns the errors of tdict_create(), tdict_set() and tdict_tensor_empty(). err->path names the field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from(const tdict_schema *schema, int batch_ndim,
                                                         const int64_t *batch_size, tdict_memory *memory,
                                                         tdict_tree **out, tdict_error *err);

/** @brief Adds a reference and returns @p tree, which must not be NULL. Thread-safe. */
TDICT_API tdict_tree *tdict_retain(const tdict_tree *tree);
/** @brief Drops a reference. The last release also releases the tensors, trees and objects in the tree. NULL is
 *  allowed. Thread-safe. */
TDICT_API void tdict_release(tdict_tree *tree);

/** @brief Sets the tensor at a path. The tree retains @p tensor and shares its bytes; nothing is copied.
 *
 *  Missing trees on the path are created with the batch size and device of their parent. If the path is in use, the new
 *  tensor replaces the old entry and keeps its position in the order.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return #TDICT_OK; #TDICT_EINVAL an empty key, or a NULL pointer; #TDICT_ETYPE the path leads through a tensor or an
 *          object; #TDICT_ESHAPE the leading dimensions differ from the batch size; #TDICT_EWRONGDEVICE the tree has
 *          another device; #TDICT_ELOCKED the tree is locked; #TDICT_ENOMEM.
 *  @note Cost: O(length of the path) on average. If another tree shares the node's key table, the cost is O(keys of
 *        the node). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                 tdict_error *err);
/** @brief Sets the tree at a path. Normally @p child is shared.
 *
 *  If @p child has fewer batch dimensions than its new parent, or lacks the parent's device, a shallow copy that has
 *  them is stored. The copy has new nodes and shares all tensors; @p child itself is unchanged. If @p child is empty
 *  and its batch size differs, the stored copy has the batch size of the parent. A later change to a shared child is
 *  visible in every tree that holds the child. The top of this header says which functions may then fail.
 *  @return The same errors as tdict_set(); #TDICT_EINVAL also if @p child is the tree that it is set in, or contains
 *          that tree.
 *  @note Cost: as tdict_set(), plus O(keys of @p child) to check the child. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_tree(tdict_tree *tree, const char *path, tdict_tree *child,
                                                      tdict_error *err);

/** @brief Returns the tensor at a path.
 *
 *  If the key is missing, the message in @p err lists the most similar keys, which takes tens of microseconds. To test
 *  for a key, call tdict_has(), or pass NULL for @p err.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE the path names a tree or an object, or leads through a tensor or
 *          an object; #TDICT_EINVAL an empty key, or a NULL pointer.
 *  @note Cost: O(length of the path) for any number of keys. Nothing is allocated. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Returns the tree at a path, borrowed. Returns the same errors as tdict_get(), but #TDICT_ETYPE if the path
 *  names a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_tree(const tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Returns tdict_tensor_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API void *tdict_data(tdict_tree *tree, const char *path);
/** @brief Returns tdict_tensor_const_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API const void *tdict_const_data(const tdict_tree *tree, const char *path);
/** @brief Returns true if the path names a tensor, a tree or an object. Returns false for an invalid path. */
TDICT_API bool tdict_has(const tdict_tree *tree, const char *path);

/** @brief Removes the entry at a path and releases its tensor, tree or object.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE the path leads through a tensor or an object; #TDICT_EINVAL an
 *          empty key, or a NULL pointer; #TDICT_ELOCKED the tree is locked; #TDICT_ENOMEM.
 *  @note Cost: as tdict_set(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_delete(tdict_tree *tree, const char *path, tdict_error *err);
/** @brief Removes the tensor at a path and passes the tree's reference to the caller.
 *  @param[out] out  Owned by the caller. Written on success only.
 *  @return The same errors as tdict_delete(); #TDICT_ETYPE also if the path names a tree or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop(tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Removes the tree at a path, as tdict_pop() removes a tensor. Returns #TDICT_ETYPE if the path names a tensor
 *  or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop_tree(tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Moves the entry at @p from to @p to.
 *
 *  Missing trees on the path @p to are created. Within one node the entry keeps its position in the order.
 *  @param[in] safe  If true, an entry at @p to is an error. If false, the entry at @p to is replaced.
 *  @return The same errors as tdict_delete() and tdict_set(); #TDICT_EEXIST @p safe is true and @p to is in use;
 *          #TDICT_EINVAL @p to is below @p from.
 *  @note Cost: as tdict_set(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_rename(tdict_tree *tree, const char *from, const char *to, bool safe,
                                                    tdict_error *err);

/** @brief Returns the number of batch dimensions. */
TDICT_API int tdict_batch_ndim(const tdict_tree *tree);
/** @brief Returns the sizes of the batch dimensions, borrowed from the tree. */
TDICT_API const int64_t *tdict_batch_size(const tdict_tree *tree);
/** @brief Changes the batch size of a tree.
 *
 *  A child with fewer dimensions takes @p batch_size. A child with more dimensions keeps its batch size. An empty child
 *  that does not match takes @p batch_size. Parents are not checked: see the top of this header.
 *  @return #TDICT_OK; #TDICT_EINVAL as tdict_create(); #TDICT_ESHAPE a tensor or child does not match, and err->path
 *          names the first mismatch; #TDICT_ELOCKED the tree, or a child that must change, is locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_batch_size(tdict_tree *tree, int batch_ndim, const int64_t *batch_size,
                                                            tdict_error *err);
/** @brief Returns true and writes the device to @p out if the tree has a device. @p out may be NULL. */
TDICT_API bool tdict_get_device(const tdict_tree *tree, tdict_device *out);
/** @brief Sets the device of a tree and of all trees below the tree. No tensor is moved.
 *  @param[in] device  Borrowed for the call. NULL removes the device.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a tensor is on another device, and err->path names the first such tensor;
 *          #TDICT_EINVAL @p device is invalid or @p tree is NULL; #TDICT_ELOCKED the tree, or a child that must change,
 *          is locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_device(tdict_tree *tree, const tdict_device *device, tdict_error *err);

/** @brief Locks the tree and all trees below it. In a locked tree no entry can be added, removed or replaced. Elements
 *  can still be written. Cost of tdict_lock() and tdict_unlock(): O(keys below the tree). */
TDICT_API void tdict_lock(tdict_tree *tree);
/** @brief Unlocks the tree, and each tree below it that no other locked tree holds. If the tree is not locked, nothing
 *  changes.
 *  @return #TDICT_OK; #TDICT_ELOCKED the tree is below a locked tree, which must be unlocked instead; #TDICT_EINVAL
 *          @p tree is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unlock(tdict_tree *tree, tdict_error *err);
/** @brief Returns true if the tree itself or a tree above it is locked. */
TDICT_API bool tdict_is_locked(const tdict_tree *tree);

/** @brief Returns the number of keys of this node. Keys of child trees are not counted. */
TDICT_API size_t tdict_num_keys(const tdict_tree *tree);
/** @brief Returns the i-th key of this node in insertion order, unescaped, or NULL if @p i is too large.
 *
 *  The text is borrowed until the tree changes. Cost: constant if no key was deleted, else up to O(keys of the
 *  node). */
TDICT_API const char *tdict_key_at(const tdict_tree *tree, size_t i);
/** @brief Returns the number of tensors in the tree. A tensor at several paths counts once per path. */
TDICT_API size_t tdict_num_leaves(const tdict_tree *tree);
/** @brief Returns the number of objects in the tree. An object at several paths counts once per path. */
TDICT_API size_t tdict_num_objects(const tdict_tree *tree);
/** @brief Returns the bytes of the elements of all tensors, plus the results of the `bytes` hooks of objects. A tensor
 *  or object at several paths counts once per path. */
TDICT_API size_t tdict_bytes(const tdict_tree *tree);
/** @brief Returns the bytes of all storages in the tree, plus the results of the `bytes` hooks of objects.
 *
 *  Each storage counts once and with its full size. Each object counts once.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unique_bytes(const tdict_tree *tree, size_t *out, tdict_error *err);

/** An entry of a tree: a key and its tensor, tree or object. A visitor borrows the entry for the call. */
typedef struct tdict_entry {
  const char *path; /**< escaped; relative to the tree that is walked or searched */
  const char *key;  /**< the last key, unescaped */
  int32_t depth;    /**< 0 for the keys of the tree that is walked or searched */
  /** Exactly one of the next three members is not NULL. */
  tdict_tensor *tensor;
  tdict_tree *tree;
  void *object;
  const tdict_type *type; /**< the type of `object`, or NULL */
} tdict_entry;
/** Visits one entry of a walk. tdict_walk() calls the function for each entry. Returns a tdict_status; any other number
 *  becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_visitor)(void *user, const tdict_entry *entry, tdict_error *err);
/** @brief Calls @p visit for every tensor, tree and object below @p tree, in insertion order. A tree is visited before
 *  its children.
 *
 *  The visitor may read trees and write elements. It must not change any tree of the walk.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM; the first status other than #TDICT_OK from the
 *          visitor, which ends the walk. If the visitor left err->path empty, err->path is set to the path of the
 *          entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_walk(const tdict_tree *tree, tdict_visitor visit, void *user,
                                                  tdict_error *err);

/** @brief Returns the tensor, tree or object at the i-th key of @p tree, in insertion order.
 *  @param[out] out  Written on success only. Its `path` is NULL and its `depth` is 0. The other members are borrowed
 *                   from the tree until the tree changes.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p i is not below tdict_num_keys(); #TDICT_EINVAL a NULL pointer.
 *  @note Cost: as tdict_key_at(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_entry_at(const tdict_tree *tree, size_t i, tdict_entry *out,
                                                          tdict_error *err);
/** @brief Returns the tensor, tree or object at a path.
 *  @param[out] out  Written on success only. Its `path` is @p path. The other members are borrowed from the tree until
 *                   the tree changes.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE the path leads through a tensor or an object; #TDICT_EINVAL an
 *          empty key, or a NULL pointer; #TDICT_ENOMEM.
 *  @note Cost: as tdict_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_entry(const tdict_tree *tree, const char *path, tdict_entry *out,
                                                       tdict_error *err);

/** @brief Writes a text that describes the tree to @p buffer, cut to @p bytes and ended by 0.
 *
 *  The text has one line per key, with the dtype, shape and device of its tensor. The text never shows elements of
 *  tensors. Pinned tensors are marked `pinned`. Tensors that overlap another tensor of the tree are marked `shared`.
 *  The line of an object has the type and up to 255 bytes of text from the `print` hook. The line of a single value
 *  (tdict/nontensor.h) has at most 40 bytes of its text. The text has at most 100 keys, and then the number of keys
 *  that were left out.
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return the length of the full text without the 0, as snprintf does.
 *  @note Cost: O(keys), with at most 100 comparisons per tensor. Only very deep trees need an allocation. */
TDICT_API size_t tdict_format(const tdict_tree *tree, char *buffer, size_t bytes);
/** @brief Writes the text of tdict_format() to @p file.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_EIO the file could not be written, and err->native is errno.
 */
TDICT_API TDICT_NODISCARD tdict_status tdict_print(const tdict_tree *tree, FILE *file, tdict_error *err);

/** @brief Writes @p key with a backslash before each dot and backslash, cut to @p bytes and ended by 0.
 *  @return the length of the full text without the 0. */
TDICT_API size_t tdict_path_escape(const char *key, char *buffer, size_t bytes);
/** @brief Writes the path made of @p count unescaped keys, cut to @p bytes and ended by 0.
 *  @return the length of the full text without the 0. */
TDICT_API size_t tdict_path_join(const char *const *keys, size_t count, char *buffer, size_t bytes);

TDICT_END_DECLS
#endif
