/* Declares trees of tensors.
 *
 * A tree maps keys to tensors, trees and objects (tdict/object.h), and keeps the order in which the keys were added. A
 * tree at a key is a child, and the tree with this key is the parent of the child. A node is one tree without its
 * children. The shape of every tensor below a tree begins with the batch size of the tree. A program can break this
 * rule by changing a child.
 *
 * Changes to a child. The program can change a child through a borrowed handle, and several trees can share a child. A
 * change to a child must match the batch size and the device of this child. The library does not compare the change
 * with the parents of the child. After the change, the shape of a tensor in the child may no longer begin with the
 * batch size of a parent. In this case, functions that use the parent's batch size return TDICT_ESHAPE and change
 * nothing; err->path names the tensor. Examples are the functions of tdict/index.h, tdict/shape.h and tdict/combine.h,
 * tdict_flatten_keys(), tdict_dataset_from_tree() and tdict_schema_from_tree(). Functions that do not use the
 * parent's batch size still work. If only the batch size of a child differs, and the shapes of all its tensors begin
 * with the parent's batch size, every function accepts the child. In the results of functions that use the parent's
 * batch size, the batch size of such a child begins with the batch size of the parent. Other functions, such as
 * tdict_clone(), tdict_select() and tdict_apply(), keep the batch size of the child.
 *
 * Paths. A path such as "next.obs.pixels" names nested keys. If a key contains a dot or a backslash, write a backslash
 * before this character. In C source, "h\\.0" is the single key `h.0`. A key may contain all bytes except 0. A path is
 * invalid if one of its keys is empty, or if it ends with a backslash that escapes nothing.
 *
 * Ownership. Trees are reference counted: a function that makes a tree returns one reference, and tdict_release() drops
 * a reference.
 * TensorDict. Trees behave as in TensorDict 0.15, with the differences that docs/container.md lists.
 * Thread rule: many threads may read a tree at the same time. While a thread changes a tree, no other thread may use
 * this tree. For the elements of its tensors, the thread rule of tdict/tensor.h applies. tdict_retain() and
 * tdict_release() are thread-safe. */
#ifndef TDICT_TREE_H
#define TDICT_TREE_H

#include <stdio.h>

#include "tdict/tensor.h"

TDICT_BEGIN_DECLS

typedef struct tdict_tree tdict_tree;
typedef struct tdict_type tdict_type; /**< type of an object; see tdict/object.h */

/** Maximum number of batch dimensions. */
#define TDICT_MAX_BATCH_NDIM 16

/** @brief Creates an empty tree.
 *  @param[in]  batch_size  @p batch_ndim sizes of zero or more. May be NULL if @p batch_ndim is 0.
 *  @param[out] out         New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL @p batch_ndim is negative or above #TDICT_MAX_BATCH_NDIM, a size is negative, or a
 *          pointer is NULL; #TDICT_ENOMEM. */
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

/** @brief Creates a tree with one tensor for each field. All elements are zero.
 *
 *  All tensors are views of one storage, in the order of the fields. The addresses of the storage and of each tensor
 *  are multiples of 256.
 *  @param[in]  fields  @p num_fields fields, borrowed for the call.
 *  @param[in]  memory  Allocates the storage. NULL is plain host memory.
 *  @param[out] out     New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EEXIST two fields have the same path; #TDICT_ETYPE the path of one field leads through the
 *          tensor of another field; #TDICT_EINVAL a NULL pointer, an `ndim` that is not 0 to 6, or a size other than 0
 *          at `shape[ndim]` or later; the errors of tdict_create(), tdict_set() and tdict_tensor_empty(). If a field is
 *          wrong, err->path names the field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from(const tdict_field *fields, size_t num_fields, int batch_ndim,
                                                         const int64_t *batch_size, tdict_memory *memory,
                                                         tdict_tree **out, tdict_error *err);

/** @brief Adds a reference and returns @p tree, which must not be NULL. Thread-safe. */
TDICT_API tdict_tree *tdict_retain(const tdict_tree *tree);
/** @brief Drops a reference. Dropping the last reference frees the tree, and releases its tensors, children and
 *  objects. NULL is allowed. Thread-safe. */
TDICT_API void tdict_release(tdict_tree *tree);

/** @brief Sets the tensor at a path. No elements are copied.
 *
 *  Missing trees on the path are created with the batch size and device of their parent. If there is an entry at the
 *  path, the new tensor replaces the entry. The key then keeps its position in the order. In the errors below, the
 *  parent is the tree that gets the last key of the path.
 *  @param[in] tensor  Retained by the tree. The caller still owns its reference.
 *  @return #TDICT_OK; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_ETYPE the path leads through a tensor or
 *          an object; #TDICT_ESHAPE the leading dimensions of the tensor differ from the batch size of the parent;
 *          #TDICT_EWRONGDEVICE the parent has a device, and the tensor is on another device; #TDICT_ELOCKED the parent
 *          is locked; #TDICT_ENOMEM.
 *  @note Cost: O(length of the path) on average. If another tree shares the key table or the list of entries of the
 *        parent, the call first copies the shared table or list, at a cost of O(keys of the parent). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set(tdict_tree *tree, const char *path, tdict_tensor *tensor,
                                                 tdict_error *err);
/** @brief Sets the tree at a path. Normally the new parent retains @p child itself.
 *
 *  In three cases, the parent holds a shallow copy of @p child instead. First, @p child has fewer batch dimensions than
 *  the parent. Second, the parent has a device and @p child has no device. Third, @p child has no tensor and no object
 *  with batch dimensions, and the batch size of @p child does not begin with the batch size of the parent. The batch
 *  size of the copy begins with the batch size of the parent. If the parent has a device, the copy has this device. The
 *  copy shares all tensors and objects with @p child, and @p child itself is unchanged. If the parent holds @p child
 *  itself, a later change to @p child is visible in every tree that holds @p child. The comment at the top of this
 *  header lists the functions that may then fail.
 *  @return The same errors as tdict_set(); #TDICT_EINVAL also if @p child would contain itself.
 *  @note Cost: as tdict_set(), plus O(keys in @p child and in all trees below @p child) for the checks. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_tree(tdict_tree *tree, const char *path, tdict_tree *child,
                                                      tdict_error *err);

/** @brief Returns the tensor at a path.
 *
 *  If the key is missing, the message in @p err lists the most similar keys. Making this list takes tens of
 *  microseconds. To test for a key, call tdict_has(), or pass NULL for @p err.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND there is no entry at the path; #TDICT_ETYPE the path names a tree or an object,
 *          or leads through a tensor or an object; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_ENOMEM.
 *  @note Cost: O(length of the path) for any number of keys. Memory is allocated only for a key of more than 128 bytes
 *        with a backslash. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get(const tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Returns the tree at a path. The caller borrows the tree in *@p out. Returns the same errors as tdict_get().
 *  Here, #TDICT_ETYPE means that the path names a tensor or an object, or leads through a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_tree(const tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Returns tdict_tensor_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API void *tdict_data(tdict_tree *tree, const char *path);
/** @brief Returns tdict_tensor_const_data() of the tensor at a path, or NULL if there is no tensor at the path. */
TDICT_API const void *tdict_const_data(const tdict_tree *tree, const char *path);
/** @brief Returns the address of the tensor at a path, for writing, if the tensor is what the caller expects.
 *
 *  Example: `float *x = tdict_checked_data(batch, "x", TDICT_F32, TDICT_SHAPE(-1, 4), &err);`
 *  The tensor must be in host memory, and its elements in C order without gaps. The call waits as tdict_tensor_data().
 *  @param[in] num_dims  Number of dimensions and length of @p shape; -1: any shape is accepted.
 *  @param[in] shape  The expected sizes; -1 stands for any size.
 *  @return The address, borrowed from the tree; never NULL on success, but without elements, there is nothing to read.
 *          NULL after an error, which is in *@p err: the errors of tdict_get(); #TDICT_EDTYPE or #TDICT_ESHAPE the
 *          tensor has another dtype or shape, or gaps; #TDICT_EWRONGDEVICE the tensor is on a device; #TDICT_EREADONLY
 *          the tensor must not be written; #TDICT_EINVAL @p num_dims is invalid, or the elements are lost or in a file.
 *          The message says what was found. */
TDICT_API TDICT_NODISCARD void *tdict_checked_data(tdict_tree *tree, const char *path, tdict_dtype dtype, int num_dims,
                                                   const int64_t *shape, tdict_error *err);
/** @brief Returns the address of the tensor at a path, for reading. Has the parameters and errors of
 *  tdict_checked_data(), but accepts read-only tensors. */
TDICT_API TDICT_NODISCARD const void *tdict_checked_const_data(const tdict_tree *tree, const char *path,
                                                               tdict_dtype dtype, int num_dims, const int64_t *shape,
                                                               tdict_error *err);
/** @brief Returns true if the path names a tensor, a tree or an object. Returns false for an invalid path. */
TDICT_API bool tdict_has(const tdict_tree *tree, const char *path);

/** @brief Removes the entry at a path and releases its tensor, tree or object.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND there is no entry at the path; #TDICT_ETYPE the path leads through a tensor or
 *          an object; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_ELOCKED the tree is locked;
 *          #TDICT_ENOMEM.
 *  @note Cost: as tdict_set(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_delete(tdict_tree *tree, const char *path, tdict_error *err);
/** @brief Removes the tensor at a path. The caller takes over the tree's reference to the tensor.
 *  @param[out] out  Owned by the caller. Written on success only.
 *  @return The same errors as tdict_delete(); #TDICT_ETYPE also if the path names a tree or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop(tdict_tree *tree, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief Removes the tree at a path, as tdict_pop() removes a tensor. Returns the same errors as tdict_delete(), and
 *  #TDICT_ETYPE also if the path names a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop_tree(tdict_tree *tree, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Moves the entry at the path @p from to the path @p to.
 *
 *  Missing trees on the path @p to are created. If both paths differ only in the last key, the entry keeps its position
 *  in the order. If both paths are equal, nothing changes. A tree that moves to another parent is set as
 *  tdict_set_tree() sets a child, so the new parent may hold a shallow copy.
 *  @param[in] safe  true: the call fails if there is another entry at @p to. false: the call replaces an entry at @p
 *          to.
 *  @return The same errors as tdict_delete() and tdict_set(); #TDICT_EEXIST @p safe is true and there is another entry
 *          at @p to; #TDICT_EINVAL also if @p to is below @p from.
 *  @note Cost: as tdict_set(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_rename(tdict_tree *tree, const char *from, const char *to, bool safe,
                                                    tdict_error *err);

/** @brief Returns the number of batch dimensions. */
TDICT_API int tdict_batch_ndim(const tdict_tree *tree);
/** @brief Returns the sizes of the batch dimensions, borrowed from the tree. */
TDICT_API const int64_t *tdict_batch_size(const tdict_tree *tree);
/** @brief Changes the batch size of a tree.
 *
 *  The call also changes trees below @p tree. Such a tree gets @p batch_size if it has fewer than @p batch_ndim batch
 *  dimensions. It is unchanged if its batch size begins with @p batch_size. Any other tree below @p tree gets
 *  @p batch_size if it has no tensor and no object with batch dimensions. If it has a tensor or such an object, the
 *  call fails. The call does not compare @p batch_size with the parents of @p tree: see the top of this header.
 *  @return #TDICT_OK; #TDICT_EINVAL as tdict_create(); #TDICT_ESHAPE a tensor or a tree below @p tree does not match,
 *          and err->path names the first mismatch; #TDICT_ELOCKED @p tree, or a tree below @p tree that must change, is
 *          locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_batch_size(tdict_tree *tree, int batch_ndim, const int64_t *batch_size,
                                                            tdict_error *err);
/** @brief Returns true if the tree has a device, and false if not. If the tree has a device and @p out is not NULL,
 *  writes the device to @p out. */
TDICT_API bool tdict_get_device(const tdict_tree *tree, tdict_device *out);
/** @brief Sets the device of a tree and of all trees below the tree. No tensor is moved.
 *  @param[in] device  Borrowed for the call. NULL removes the device.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a tensor is on another device, and err->path names the first such tensor;
 *          #TDICT_EINVAL @p device is invalid or @p tree is NULL; #TDICT_ELOCKED @p tree, or a tree below @p tree that
 *          must change, is locked; #TDICT_ENOMEM.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_device(tdict_tree *tree, const tdict_device *device, tdict_error *err);

/** @brief Locks the tree and all trees below the tree. In a locked tree, no entry can be added, removed or replaced.
 *  The elements of its tensors can still be written. NULL is allowed. Cost of tdict_lock() and tdict_unlock(): O(keys
 *  below the tree). */
TDICT_API void tdict_lock(tdict_tree *tree);
/** @brief Unlocks the tree and the trees below the tree. If another locked tree also holds a tree below @p tree, this
 *  tree stays locked. If @p tree is not locked, nothing changes.
 *  @return #TDICT_OK; #TDICT_ELOCKED @p tree is below a locked tree, and the program must unlock the upper tree
 *          instead; #TDICT_EINVAL @p tree is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unlock(tdict_tree *tree, tdict_error *err);
/** @brief Returns true if the tree is locked. A tree below a locked tree is locked, too.
 *  @note Freeing a locked tree also reads the trees below this tree. If another thread frees a locked tree, wait for
 *        the end of the call before you change a tree below, even if tdict_is_locked() already returns false. */
TDICT_API bool tdict_is_locked(const tdict_tree *tree);

/** @brief Returns the number of keys of this node. Keys of child trees are not counted. */
TDICT_API size_t tdict_num_keys(const tdict_tree *tree);
/** @brief Returns key number @p i of this node in insertion order, unescaped. The first key has number 0. Returns NULL
 *  if @p i is too large.
 *
 *  The text is borrowed until the tree changes. Cost: constant if no key was deleted, else O(keys of the node). */
TDICT_API const char *tdict_get_key(const tdict_tree *tree, size_t i);
/** @brief Returns the number of tensors in the tree. A tensor at several paths counts once per path. */
TDICT_API size_t tdict_num_leaves(const tdict_tree *tree);
/** @brief Returns the number of objects in the tree. An object at several paths counts once per path. */
TDICT_API size_t tdict_num_objects(const tdict_tree *tree);
/** @brief Returns the number of bytes of the elements of all tensors, plus the results of the `bytes` hooks of objects.
 *  An object of a type without this hook counts as 0 bytes. A tensor or object at several paths counts once per
 *  path. */
TDICT_API size_t tdict_bytes(const tdict_tree *tree);
/** @brief Writes to @p out the number of bytes of all storages of tensors in the tree, plus the results of the `bytes`
 *  hooks of objects.
 *
 *  Each storage counts once, with its full size. Each object counts once, and as 0 bytes if its type has no `bytes`
 *  hook.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unique_bytes(const tdict_tree *tree, size_t *out, tdict_error *err);

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
/** Visits one entry of a tree. tdict_walk() calls the visitor for each entry. A visitor returns a tdict_status; any
 *  other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_visitor)(void *user, const tdict_entry *entry, tdict_error *err);
/** @brief Calls @p visit for every tensor, tree and object below @p tree, in insertion order. A tree is visited before
 *  its children.
 *
 *  The visitor may read trees and write elements of tensors. The visitor must not change the keys of @p tree or of any
 *  tree below @p tree.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM; the first status other than #TDICT_OK that the
 *          visitor returned, which ends the walk. If the visitor left err->path empty, the call sets err->path to the
 *          path of the entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_walk(const tdict_tree *tree, tdict_visitor visit, void *user,
                                                  tdict_error *err);

/** @brief Returns the tensor, tree or object at the key that tdict_get_key() returns for @p i.
 *  @param[out] out  Written on success only. The member `path` is NULL, and `depth` is 0. The other members are
 *                   borrowed from the tree until the tree changes.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p i is tdict_num_keys() or more; #TDICT_EINVAL a NULL pointer.
 *  @note Cost: as tdict_get_key(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_entry_at(const tdict_tree *tree, size_t i, tdict_entry *out,
                                                          tdict_error *err);
/** @brief Returns the tensor, tree or object at a path.
 *  @param[out] out  Written on success only. The member `path` is @p path. The other members are borrowed from the tree
 *                   until the tree changes.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND there is no entry at the path; #TDICT_ETYPE the path leads through a tensor or
 *          an object; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_ENOMEM.
 *  @note Cost: as tdict_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_entry(const tdict_tree *tree, const char *path, tdict_entry *out,
                                                       tdict_error *err);

/** @brief Writes a text that describes the tree to @p buffer, cut to @p bytes and ended by 0.
 *
 *  The first line describes the tree. Each key has one line. The last line has the numbers of tensors, objects and
 *  bytes, as tdict_bytes() counts them. The line of a tensor shows its dtype, shape and device. No elements of tensors
 *  are shown. Pinned tensors are marked `pinned`. A tensor is marked `shared` if its range of bytes overlaps the range
 *  of a tensor at another path. The line of an object shows the type and up to 255 bytes of text from the `print` hook.
 *  The line of a single value (tdict/nontensor.h) shows at most 40 bytes of the value's text. The text shows at most
 *  100 keys, and then the number of keys that were left out.
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return the length of the full text without the 0, as snprintf does.
 *  @note Cost: O(keys), with at most 100 comparisons per tensor, and the hooks of the objects. Memory is allocated only
 *        for very deep trees. */
TDICT_API size_t tdict_format(const tdict_tree *tree, char *buffer, size_t bytes);
/** @brief Writes the text of tdict_format() to @p file, and flushes @p file.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_EIO the file could not be written, and err->native is errno.
 */
TDICT_API TDICT_NODISCARD tdict_status tdict_print(const tdict_tree *tree, FILE *file, tdict_error *err);

/** @brief Writes @p key to @p buffer with a backslash before each dot and backslash, cut to @p bytes and ended by 0.
 *  @return the length of the full text without the 0. */
TDICT_API size_t tdict_path_escape(const char *key, char *buffer, size_t bytes);
/** @brief Escapes @p count keys, joins the keys to a path, and writes the path to @p buffer, cut to @p bytes and ended
 *  by 0.
 *  @return the length of the full text without the 0. */
TDICT_API size_t tdict_path_join(const char *const *keys, size_t count, char *buffer, size_t bytes);

TDICT_END_DECLS
#endif
