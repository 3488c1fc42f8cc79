/* Declares objects. An object is a struct of the program that is stored as a leaf of a tree. A tdict_type has the
 * functions, called hooks, that the library calls for the struct. docs/howto/custom_batch.md says which call uses which
 * hook. Hooks must return, and must not throw: see docs/callbacks.md.
 *
 * Ownership. A tree holds an object in a reference-counted box, which other trees may share. When the last reference to
 * the box is dropped, the library calls the type's `release`, on any thread. Set an object in one tree only, and only
 * once. An object must not hold a reference to a tree that contains the object.
 *
 * Pinning and moving. If a type has neither `to_device` nor `flatten`, a transfer of its objects fails, unless the
 * option `keep_objects` is set. An object that cannot be pinned is no error. tdict_transfer_stats counts both.
 *
 * Errors of operations on trees, whose err->path names the object:
 * - #TDICT_ENOTSUP: the type has neither the hook of the operation nor `flatten`.
 * - #TDICT_ESHAPE: the shapes of the object's tensors do not begin with the batch size of its tree.
 * - #TDICT_ETYPE: two objects have different types.
 * - The errors of hooks. After all these errors, the trees are unchanged.
 *
 * Thread rule: several hooks may run at the same time, also for one object, on threads of the program or of the pool. A
 * hook must therefore not change `self`. */
#ifndef TDICT_OBJECT_H
#define TDICT_OBJECT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** The argument of hooks: where to put the new object; see tdict/hook.h. */
typedef struct tdict_hook tdict_hook;

/** A type of object: a table of hooks. All members after `release` may be NULL. The type must outlive its objects. The
 *  library never writes to the type, and compares types by address.
 *
 *  A hook reports an error with tdict_error_set(), and writes its result on success only. If it returns another number
 *  than a tdict_status, or #TDICT_OK without a result, the status becomes #TDICT_EHOOK. A hook that makes an object may
 *  return `self` in *out. The result then shares the box of `self`. */
struct tdict_type {
  size_t struct_size;          /**< sizeof(tdict_type); hooks beyond this size are treated as NULL */
  const char *name;            /**< name in messages and in tdict_print(); not empty */
  void (*release)(void *self); /**< frees the struct; called once */
  /** Makes an object whose tensors are pinned. Runs on threads of the context's pool, unless `num_threads` is 0. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** Makes an object on the device `hook->device`, which may be the cpu. `self` may be a result of `pin_memory`. */
  tdict_status (*to_device)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  bool (*is_pinned)(const void *self); /**< returns true if every host tensor of the object is pinned */
  /** Makes a tree that shares the tensors of the object and holds no objects. The library may read and write the
   *  elements of this tree, but does not change its keys. */
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err);
  /** Makes an object like `self` from the tensors of `tree`, which has the keys that `flatten` returned. The shapes may
   *  differ. The tree is borrowed: the hook must retain the tensors that the object keeps. In a transfer, the elements
   *  are not valid yet, and the hook must not read them. */
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

/** @brief Sets the object at a path, as tdict_set() sets a tensor. On success, the tree owns @p self.
 *
 *  The object's device may differ from that of the tree. The batch size is checked only for the library's types, such
 *  as tdict_ragged_type(). Setting an object where it is already changes nothing.
 *  @return The errors of tdict_set(); #TDICT_EINVAL @p type has no name, no `release`, too small a `struct_size`, or
 *          only one of `flatten` and `unflatten`. #TDICT_EINVAL also if @p self is at the path with another type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_object(tdict_tree *tree, const char *path, const tdict_type *type,
                                                        void *self, tdict_error *err);
/** @brief Returns the object at a path, borrowed from the tree.
 *  @return The errors of tdict_get(); #TDICT_ETYPE also for an object of another type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_object(const tdict_tree *tree, const char *path,
                                                        const tdict_type *type, void **out, tdict_error *err);
/** @brief Returns the type of the object at a path, or NULL if there is no object at the path. */
TDICT_API const tdict_type *tdict_object_type(const tdict_tree *tree, const char *path);

TDICT_END_DECLS
#endif
