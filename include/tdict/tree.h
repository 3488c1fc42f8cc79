/* A tree: keys in insertion order, each a tensor, a tree or an object (tdict/object.h), with a batch size that is the
 * leading dimensions of every tensor below it.
 *
 * A child is a tree by itself: it can be changed through a borrowed handle, and several trees can share it. A change is
 * checked against the batch size and device of the child, not of the trees that hold the child. So a child may stop
 * agreeing with a parent. Functions that use the parent's batch size then return TDICT_ESHAPE, err->path naming the
 * tensor, and change nothing. These are the functions of tdict/index.h, tdict/shape.h and tdict/combine.h,
 * tdict_flatten_keys() and tdict_dataset_from_tree(). Functions that do not use it work as before. Only tensors are
 * compared: a child whose tensors agree takes the parent's batch size in results.
 *
 * A path such as "next.obs.pixels" names nested keys. A backslash keeps the next character literal, so "h\\.0" in C
 * source is the one key `h.0`; any other byte is legal; an empty key is an error.
 * Trees are counted: makers give one reference, drop it with tdict_release(). Thread rule: a tree is read by many
 * threads or written by one; counting is safe everywhere.
 * Rules are those of TensorDict 0.14 where this header does not say otherwise. */
#ifndef TDICT_TREE_H
#define TDICT_TREE_H

#include <stdio.h>

#include "tdict/tensor.h"

TDICT_BEGIN_DECLS

typedef struct tdict_tree tdict_tree;
typedef struct tdict_type tdict_type; /**< of objects; see tdict/object.h */

/** The most dimensions of a batch size. */
#define TDICT_MAX_BATCH_NDIM 16

/** @brief A new empty tree.
 *  @param[in] batch_size  @p batch_ndim counts of zero or more; may be NULL when @p batch_ndim is 0.
 *  @return #TDICT_OK; #TDICT_EINVAL a negative or too large number of dimensions, or a negative count;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create(int batch_ndim, const int64_t *batch_size, tdict_tree **out,
                                                    tdict_error *err);

/** One tensor of a schema. */
typedef struct tdict_field {
  const char *path;
  tdict_dtype dtype;
  int32_t ndim;
  int64_t shape[6]; /**< without the batch dimensions, which come before it; 0 from shape[ndim] on */
} tdict_field;
/** An entry of a table of fields: path, dtype, then up to six counts: `TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64)`.
 *  An initializer in C99 and C++11. */
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

/** @brief A tree of zeroed tensors, all views of one storage, each beginning on a multiple of 256 bytes, in the order
 *  of the fields. The storage itself begins on a multiple of 256 bytes.
 *  @param[in] memory  NULL for plain host memory.
 *  @return #TDICT_OK; #TDICT_EEXIST two fields of one path, #TDICT_ETYPE a path through a tensor, and what
 *          tdict_create(), tdict_set() and tdict_tensor_empty() answer; #TDICT_EINVAL also if a shape has entries
 *          beyond ndim. err->path names the field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from(const tdict_schema *schema, int batch_ndim,
                                                         const int64_t *batch_size, tdict_memory *memory,
                                                         tdict_tree **out, tdict_error *err);

/** @brief Adds a reference and returns @p td. */
TDICT_API tdict_tree *tdict_retain(const tdict_tree *td);
/** @brief Drops a reference; the last one releases the leaves; NULL is allowed. */
TDICT_API void tdict_release(tdict_tree *td);

/** @brief Puts a tensor at a path: shared, not copied. Nodes on the way are made with the batch size and device of the
 *  node above. What stood at the path is replaced and keeps its place in the order. Cost: O(length of the path) in the
 *  mean; O(keys of the node) more when its key table is shared with another tree. No element is copied.
 *  @return #TDICT_OK; #TDICT_EINVAL an empty key, or NULL; #TDICT_ETYPE the path leads through a tensor or an object;
 *          #TDICT_ESHAPE the leading dimensions are not the batch size; #TDICT_EWRONGDEVICE the tree has another
 *          device; #TDICT_ELOCKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set(tdict_tree *td, const char *path, tdict_tensor *tensor,
                                                 tdict_error *err);
/** @brief Puts a tree at a path. Normally @p child is shared. If it has fewer batch dimensions than its new parent, or
 *  no device where the parent has one, a copy that has them is stored, and @p child is unchanged. The copy shares
 *  tensors with @p child and has nodes of its own. An empty child takes the parent's batch size when its own disagrees.
 *  A shared child that is changed later is changed in each tree that holds it; the top of this header says what
 *  follows. Cost: as tdict_set(), and O(keys of @p child), which is looked through.
 *  @return as tdict_set(); #TDICT_EINVAL also when @p child is, or holds, the tree that it would come under. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_tree(tdict_tree *td, const char *path, tdict_tree *child,
                                                      tdict_error *err);

/** @brief The tensor at a path, borrowed from the tree. Cost: O(length of the path), for any number of keys; nothing is
 *  allocated. For a key that is not there @p err names those that are most like it, which takes tens of microseconds:
 *  to test for a key call tdict_has(), or pass NULL.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE a tree or an object stands there, or the path leads through a
 *          tensor or an object; #TDICT_EINVAL an empty key, or NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get(const tdict_tree *td, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief The tree at a path, borrowed; errors as tdict_get(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_tree(const tdict_tree *td, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief tdict_tensor_data() of the tensor at a path; NULL when there is none. */
TDICT_API void *tdict_data(tdict_tree *td, const char *path);
/** @brief tdict_tensor_const_data() of the tensor at a path; NULL when there is none. */
TDICT_API const void *tdict_const_data(const tdict_tree *td, const char *path);
/** @brief True when a tensor, a tree or an object stands at the path; false for a path that is no path. */
TDICT_API bool tdict_has(const tdict_tree *td, const char *path);

/** @brief Takes what stands at a path out of the tree and releases it. Cost: as tdict_set().
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE; #TDICT_EINVAL; #TDICT_ELOCKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_delete(tdict_tree *td, const char *path, tdict_error *err);
/** @brief Takes a tensor out of the tree and hands over the tree's reference. Errors as tdict_delete(); #TDICT_ETYPE a
 *  tree or an object stands there. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop(tdict_tree *td, const char *path, tdict_tensor **out,
                                                 tdict_error *err);
/** @brief As tdict_pop(), for a tree; #TDICT_ETYPE a tensor or an object stands there. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pop_tree(tdict_tree *td, const char *path, tdict_tree **out,
                                                      tdict_error *err);
/** @brief Moves what stands at @p from to @p to, making nodes on the way. Within one node the entry keeps its place in
 *  the order. What stood at @p to is replaced, unless @p safe is true. Cost: as tdict_set().
 *  @return as tdict_delete() and tdict_set(); #TDICT_EEXIST @p safe and @p to is taken; #TDICT_EINVAL @p to lies below
 *          @p from. */
TDICT_API TDICT_NODISCARD tdict_status tdict_rename(tdict_tree *td, const char *from, const char *to, bool safe,
                                                    tdict_error *err);

/** @brief The number of batch dimensions, and their counts, borrowed from the tree. */
TDICT_API int tdict_batch_ndim(const tdict_tree *td);
TDICT_API const int64_t *tdict_batch_size(const tdict_tree *td);
/** @brief Gives the tree another batch size. Children with fewer dimensions grow to it. A child with more keeps them,
 *  unless it is empty and disagrees: then it takes @p batch_size. Trees above are not looked at: see the top of this
 *  header. Cost: O(keys below), which are looked at.
 *  @return #TDICT_OK; #TDICT_EINVAL as tdict_create(); #TDICT_ESHAPE a tensor or child disagrees, err->path naming it;
 *          #TDICT_ELOCKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_batch_size(tdict_tree *td, int batch_ndim, const int64_t *batch_size,
                                                            tdict_error *err);
/** @brief True and @p out written when the tree has a device; @p out may be NULL. */
TDICT_API bool tdict_get_device(const tdict_tree *td, tdict_device *out);
/** @brief Gives the tree and all below it a device, or takes it away with NULL; moves nothing. Cost: O(keys below).
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a tensor lives elsewhere, err->path naming it; #TDICT_ELOCKED;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_device(tdict_tree *td, const tdict_device *device, tdict_error *err);

/** @brief Locks the tree and all below it: nothing can be added, removed or replaced; elements can be written. Cost:
 *  O(keys below), as tdict_unlock()'s. */
TDICT_API void tdict_lock(tdict_tree *td);
/** @brief Undoes tdict_lock() for the tree and what hangs below it and under no other locked tree; an unlocked tree
 *  stays so.
 *  @return #TDICT_OK; #TDICT_ELOCKED the tree hangs below a locked one. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unlock(tdict_tree *td, tdict_error *err);
TDICT_API bool tdict_is_locked(const tdict_tree *td);

/** @brief The number of keys of this node. */
TDICT_API size_t tdict_num_keys(const tdict_tree *td);
/** @brief The i-th key of this node in order, unescaped, borrowed until the tree is changed; NULL past the end. Cost:
 *  constant while nothing was deleted, else up to the number of keys. */
TDICT_API const char *tdict_key_at(const tdict_tree *td, size_t i);
/** @brief The number of tensors in the tree, objects not counted; what is shared counts as often as it is met. */
TDICT_API size_t tdict_num_leaves(const tdict_tree *td);
/** @brief The number of objects in the tree; what is shared counts as often as it is met. */
TDICT_API size_t tdict_num_objects(const tdict_tree *td);
/** @brief Bytes of all tensors' elements, and what objects with a `bytes` hook say; what is shared counts as often as
 *  it is met. */
TDICT_API size_t tdict_bytes(const tdict_tree *td);
/** @brief Bytes of all storages below the tree, each counted once and whole, and what objects with a `bytes` hook say,
 *  each asked once.
 *  @return #TDICT_OK; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unique_bytes(const tdict_tree *td, size_t *out, tdict_error *err);

/** What stands at a key. A visitor borrows it for the call. */
typedef struct tdict_entry {
  const char *path; /**< from the tree that is walked or looked up in, escaped */
  const char *key;  /**< the last key, unescaped */
  int32_t depth;    /**< 0 for the keys of that tree */
  /** Of these three one is not NULL. */
  tdict_tensor *tensor;
  tdict_tree *tree;
  void *object;
  const tdict_type *type; /**< the object's, or NULL */
} tdict_entry;
/** Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_visitor)(void *user, const tdict_entry *entry, tdict_error *err);
/** @brief Shows every tensor, tree and object below @p td in insertion order, a tree before its children.
 *  The visitor may read trees and write elements, and must not change any tree that is walked.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL; #TDICT_ENOMEM; the first status but #TDICT_OK that the visitor answers,
 *          which ends the walk, with err->path filled if the visitor left it empty. */
TDICT_API TDICT_NODISCARD tdict_status tdict_walk(const tdict_tree *td, tdict_visitor visit, void *user,
                                                  tdict_error *err);

/** @brief Returns the tensor, tree or object at the i-th key of @p td, in insertion order.
 *  @param[out] out  Written on success only. Its `path` is NULL, its `depth` 0. The rest is borrowed from the tree
 *                   until it is changed. Cost: as tdict_key_at().
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p i is not below tdict_num_keys(); #TDICT_EINVAL a NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_at(const tdict_tree *td, size_t i, tdict_entry *out, tdict_error *err);
/** @brief Returns the tensor, tree or object at a path.
 *  @param[out] out  Written on success only. Its `path` is @p path. The rest is borrowed from the tree until it is
 *                   changed. Cost: as tdict_get().
 *  @return #TDICT_OK; #TDICT_ENOTFOUND; #TDICT_ETYPE the path leads through a tensor or an object; #TDICT_EINVAL an
 *          empty key, or NULL; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lookup(const tdict_tree *td, const char *path, tdict_entry *out,
                                                    tdict_error *err);

/** @brief Writes a text of the tree - keys, dtypes, shapes, devices, `pinned`, never elements; `shared` marks tensors
 *  over whose bytes another tensor of the tree lies; of an object its type and up to 255 bytes of what its `print` hook
 *  says - to @p buffer, cut to @p bytes and ended by 0. Behind 100 keys the others are counted. Cost: O(keys), at most
 *  100 comparisons a tensor; nothing is allocated but for very deep trees.
 *  @return the length that the whole text has, without the 0, as snprintf does. @p buffer may be NULL when @p bytes
 *          is 0. */
TDICT_API size_t tdict_format(const tdict_tree *td, char *buffer, size_t bytes);
/** @brief Writes the text of tdict_format() to @p file.
 *  @return #TDICT_OK; #TDICT_EIO the file refused it, err->native has errno. */
TDICT_API TDICT_NODISCARD tdict_status tdict_print(const tdict_tree *td, FILE *file, tdict_error *err);

/** @brief Writes @p key with a backslash before each dot and backslash, cut to @p bytes and ended by 0.
 *  @return the length that the whole text has, without the 0. */
TDICT_API size_t tdict_path_escape(const char *key, char *buffer, size_t bytes);
/** @brief Writes the path of @p count unescaped keys, cut to @p bytes and ended by 0.
 *  @return the length that the whole text has, without the 0. */
TDICT_API size_t tdict_path_join(const char *const *keys, size_t count, char *buffer, size_t bytes);

TDICT_END_DECLS
#endif
