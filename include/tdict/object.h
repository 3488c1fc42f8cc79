/* Declares objects. An object is a struct of the program that is a leaf of a tree. A tdict_type describes the struct.
 *
 * Ownership. A tree holds an object in a reference-counted box. Trees that share nodes or leaves share the box. When
 * the last reference to the box is dropped, the library calls the type's `release`, on any thread. Give an object to a
 * tree only once, and do not let an object hold a reference to the tree that contains it. An object cannot be popped,
 * because other trees may hold its box; tdict_rename() moves it.
 *
 * Transfers. If a type has neither the hook that a transfer needs nor `flatten`, the result of the transfer holds the
 * same object. The statistics of the transfer count such objects. If the option `strict_objects` is set, the transfer
 * fails instead.
 *
 * Operations on trees. Operations that only move keys share the box: tdict_set_tree(), tdict_select(), tdict_update(),
 * tdict_flatten_keys(), tdict_clone() and similar. Operations that leave every element at its index share the box too.
 * All other operations call the hook for the operation, if the type has the hook. Otherwise they call `flatten`, work
 * on the tensors, and call `unflatten` to make the object of the result:
 *
 * - tdict_clone_deep() calls the `clone` hook, or else uses the tensors.
 * - An operation that takes one element of each of the first dimensions (TDICT_AT, tdict_unbind()) calls the `index`
 * hook once per dimension, or else uses the tensors.
 * - tdict_stack() along dimension 0 calls the `stack` hook, or else uses the tensors.
 * - Other indices, shape changes, split, stack, cat and pad_sequence use the tensors.
 * - Writes in place use the tensors of both objects, which must have the same type. Writes to a `dst` tree do the same.
 * - tdict_visit(), tdict_apply() and tdict_filter() use the tensors, with paths below the path of the object.
 * - tdict_compare() uses the tensors, unless both trees hold the same object.
 *
 * The `clone` and `stack` hooks cannot allocate from a memory that the caller passes. If the caller passes a memory to
 * tdict_clone_deep() or tdict_stack(), the call therefore uses `flatten` and `unflatten`, if the type has them. If the
 * operation uses batch dimensions, the tensors of the object must begin with the batch size of the object's tree.
 * Otherwise the call returns #TDICT_ESHAPE. The call returns #TDICT_ENOTSUP if the type has neither the hook nor
 * `flatten`. The call returns #TDICT_ETYPE if two objects that must have one type have different types. If a hook
 * fails, the call returns the error of the hook. In each case err->path names the object, all trees are unchanged, and
 * objects made so far are released. Cost: the time of the hooks, plus O(nodes).
 *
 * Thread rule: hooks of different objects run at the same time, on pool threads. If several transfers use one object,
 * the hooks of this object may also run at the same time. A hook must therefore not change `self`. */
#ifndef TDICT_OBJECT_H
#define TDICT_OBJECT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** An argument of hooks. A hook passes this argument to the functions of tdict/hook.h. */
typedef struct tdict_hook tdict_hook;

/** A type of object: a table of hooks. All members but the first three may be NULL.
 *
 *  A hook returns a tdict_status; any other number becomes #TDICT_EHOOK. A hook writes its result on success only. A
 *  hook that makes an object may return `self` in *out: the result is then the same object, and its box is shared. The
 *  type must outlive its objects. The library never writes to the type, and compares types by address. */
struct tdict_type {
  size_t struct_size;          /**< sizeof(tdict_type); hooks beyond this size are treated as NULL */
  const char *name;            /**< for messages and tdict_print(); not empty */
  void (*release)(void *self); /**< frees the struct; called once */
  /** Makes an object of the same type whose tensors are pinned. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** Makes an object of the same type on the device of the hook. If the transfer pins and the type has `pin_memory`,
   *  `self` is the pinned object. If the hook queues work, it uses the stream that tdict_hook_stream() returns. */
  tdict_status (*to_device)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  bool (*is_pinned)(const void *self); /**< returns true if every host tensor of the object is pinned */
  /** Makes a tree that shares the tensors of the object and holds no objects. The library moves or reads the tensors of
   *  this tree. The library may write elements, but does not change the tree itself. */
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err);
  /** Makes an object like `self` from the tensors of `tree`. The tree has the keys that `flatten` returned; the shapes
   *  may differ. The tree is borrowed: the hook must retain the tensors that the object keeps. During a transfer the
   *  elements are not yet valid; the hook must not read them. */
  tdict_status (*unflatten)(const void *self, const tdict_tree *tree, void **out, tdict_error *err);
  /** Makes a copy of the object. The copy shares no elements with `self`. */
  tdict_status (*clone)(const void *self, void **out, tdict_error *err);
  /** Makes the object of element `i` of the first batch dimension. `i` is in range. */
  tdict_status (*index)(const void *self, int64_t i, void **out, tdict_error *err);
  /** Stacks `count` objects of this type into one new object, along a new first batch dimension. */
  tdict_status (*stack)(const void *const *items, size_t count, void **out, tdict_error *err);
  size_t (*bytes)(const void *self); /**< returns the number of bytes of the elements, for tdict_bytes() */
  /** Writes a text without a newline, cut to `bytes` and ended by 0. Returns the length of the full text, as snprintf
   *  does. */
  size_t (*print)(const void *self, char *buffer, size_t bytes);
};

/** @brief Sets the object at a path, as tdict_set() sets a tensor.
 *
 *  Takes ownership of @p self on success only. If the path already holds @p self, nothing changes. Objects are not
 *  checked against the device of the tree. Only objects of the library's types, such as tdict_ragged_type(), are
 *  checked against the batch size. No hook is called.
 *  @return The same errors as tdict_set(); #TDICT_EINVAL also if @p type has no name, no `release` or too small a
 *          `struct_size`, or has only one of `flatten` and `unflatten`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_object(tdict_tree *tree, const char *path, const tdict_type *type,
                                                        void *self, tdict_error *err);
/** @brief Returns the object at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The same errors as tdict_get(); #TDICT_ETYPE also if the path names a tensor, a tree or an object of another
 *          type than @p type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_object(const tdict_tree *tree, const char *path,
                                                        const tdict_type *type, void **out, tdict_error *err);
/** @brief Returns the type of the object at a path, or NULL if there is no object at the path. */
TDICT_API const tdict_type *tdict_object_type(const tdict_tree *tree, const char *path);

TDICT_END_DECLS
#endif
