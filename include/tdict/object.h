/* Declares objects. An object is a struct of the program that is stored as a leaf of a tree. A tdict_type has the
 * functions, called hooks, that the library calls for the struct. Hooks must return, and must not throw: see
 * docs/callbacks.md. docs/howto/custom_batch.md says which call uses which hook.
 *
 * Ownership. A tree holds an object in a reference-counted box. Trees that share an object share its box. When the last
 * reference to the box is dropped, the library calls the type's `release`, on any thread. Set an object in one tree
 * only, and only once. An object must not hold a reference to a tree that contains the object. tdict_pop() does not
 * accept objects, because other trees may share the box. The function tdict_rename() moves an object to another path.
 *
 * Pinning and moving. A transfer to a device pins an object with the hook `pin_memory`, and moves it with `to_device`.
 * If a hook is missing, the library pins or moves the tensors that `flatten` names. If an object can be moved in
 * neither way, the transfer fails, unless its option `keep_objects` is set. An object that cannot be pinned is no
 * error. tdict_transfer_stats counts both.
 *
 * Operations on trees that only move keys share the box. Other operations call their hook, or work on the tensors that
 * `flatten` names and call `unflatten`. If an operation on batch dimensions uses the tensors, their shapes must begin
 * with the batch size of the object's tree, else the call returns #TDICT_ESHAPE. #TDICT_ENOTSUP: the type has neither
 * the hook nor `flatten`. #TDICT_ETYPE: two objects must have the same type, but do not. If a hook fails, the call
 * returns its error. After each of these errors, err->path names the object, all trees are unchanged, and new objects
 * have been released.
 *
 * Thread rule: hooks of different objects may run at the same time, on threads of the program or of the pool. If
 * several calls use one object, the hooks of this object may also run at the same time. A hook must therefore not
 * change `self`. */
#ifndef TDICT_OBJECT_H
#define TDICT_OBJECT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** The argument of hooks: where to put the new object; see tdict/hook.h. */
typedef struct tdict_hook tdict_hook;

/** A type of object: a table of hooks. All members after `release` may be NULL.
 *
 *  A hook returns a tdict_status; any other number becomes #TDICT_EHOOK. A hook reports an error with
 *  tdict_error_set(), and writes its result on success only. If a hook returns #TDICT_OK without a result, the status
 *  also becomes #TDICT_EHOOK. A hook that makes an object may return `self` in *out. The result then shares the box of
 *  `self`. The type must outlive its objects. The library never writes to the type, and compares types by address. */
struct tdict_type {
  size_t struct_size;          /**< sizeof(tdict_type); hooks beyond this size are treated as NULL */
  const char *name;            /**< name in messages and in tdict_print(); not empty */
  void (*release)(void *self); /**< frees the struct; called once */
  /** Makes an object of the same type whose tensors are pinned. Runs on threads of the context's pool, except if
   *  `num_threads` is 0. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** Makes an object of the same type on the device `hook->device`, which may be the cpu. If the transfer has called
   *  `pin_memory` before, `self` is the pinned object. If the hook queues work, it must use `hook->stream`. */
  tdict_status (*to_device)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  bool (*is_pinned)(const void *self); /**< returns true if every host tensor of the object is pinned */
  /** Makes a tree that shares the tensors of the object and holds no objects. The library may read and write the
   *  elements of this tree, but does not change its keys. */
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err);
  /** Makes an object like `self` from the tensors of `tree`. The tree has the keys that `flatten` returned. The shapes
   *  may differ. The tree is borrowed: the hook must retain the tensors that the object keeps. In a transfer, the
   *  elements are not valid yet, and the hook must not read the elements. */
  tdict_status (*unflatten)(const void *self, const tdict_tree *tree, void **out, tdict_error *err);
  /** Makes a deep copy of the object. The copy should share no elements with `self`. */
  tdict_status (*clone)(const void *self, void **out, tdict_error *err);
  /** Makes an object of element `i` of the first batch dimension. The library checks the range of `i`. */
  tdict_status (*index)(const void *self, int64_t i, void **out, tdict_error *err);
  /** Stacks `count` objects of this type into one new object, along a new first batch dimension. */
  tdict_status (*stack)(const void *const *items, size_t count, void **out, tdict_error *err);
  size_t (*bytes)(const void *self); /**< returns the bytes of all elements, for tdict_bytes(); NULL: 0 bytes */
  /** Writes a text without a newline to `buffer`, cut to `bytes` bytes including the final 0. Returns the length of the
   *  full text, as snprintf() does. */
  size_t (*print)(const void *self, char *buffer, size_t bytes);
};

/** @brief Sets the object at a path, as tdict_set() sets a tensor.
 *
 *  On success, the tree owns @p self. If @p self is already at the path, with the same @p type, nothing changes. The
 *  device of the object may differ from the device of the tree. The call checks the batch size only for objects of the
 *  library's types, such as tdict_ragged_type(). No hook of @p self is called.
 *  @return The errors of tdict_set(); #TDICT_EINVAL @p type has no name, no `release`, too small a `struct_size`, or
 *  only
 *          one of the hooks `flatten` and `unflatten`, or @p self is already at the path with another type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_object(tdict_tree *tree, const char *path, const tdict_type *type,
                                                        void *self, tdict_error *err);
/** @brief Returns the object at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The errors of tdict_get(). #TDICT_ETYPE: the path names a tensor, a tree or an object of another type, or
 *          leads through a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_object(const tdict_tree *tree, const char *path,
                                                        const tdict_type *type, void **out, tdict_error *err);
/** @brief Returns the type of the object at a path, or NULL if there is no object at the path. */
TDICT_API const tdict_type *tdict_object_type(const tdict_tree *tree, const char *path);

TDICT_END_DECLS
#endif
