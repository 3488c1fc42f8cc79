/* Declares objects: structs of the program that are leaves of a tree. Their tdict_type has functions, called hooks, for
 * the library to call. docs/howto/custom_batch.md says which call uses which hook, and what happens without it. Hooks
 * must return, and must not throw: see docs/callbacks.md.
 *
 * Errors of operations on trees, which are then unchanged. err->path names the object:
 * - #TDICT_ENOTSUP: the type has neither the hook nor `flatten`.
 * - #TDICT_ESHAPE: a tensor does not begin with the batch size of the tree.
 * - #TDICT_ETYPE: two objects have different types. Also the errors of hooks.
 *
 * Thread rule: several hooks may run at once, also for one object, on any thread. A hook must not change `self`. */
#ifndef TDICT_OBJECT_H
#define TDICT_OBJECT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** The argument of hooks: where to put the new object; see tdict/hook.h. */
typedef struct tdict_hook tdict_hook;

/** A type of object: a table of hooks. All members after `release` may be NULL. Types are compared by address, and must
 *  outlive their objects. A hook reports errors with tdict_error_set(), and writes its result on success only. */
struct tdict_type {
  size_t struct_size;          /**< sizeof(tdict_type); hooks beyond this size are treated as NULL */
  const char *name;            /**< name in messages and in tdict_print(); not empty */
  void (*release)(void *self); /**< frees the struct; called once, on any thread, after the last reference */
  /** Makes an object with pinned tensors. This and the next hook may return `self`, and the result then shares it. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** Makes an object on `hook->device`, which may be the cpu, perhaps of a result of `pin_memory`. */
  tdict_status (*to_device)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  bool (*is_pinned)(const void *self); /**< returns true if every host tensor of the object is pinned */
  /** Makes a tree that shares the tensors, without objects. The library may write elements, but changes no keys. */
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err);
  /** Makes an object like `self` from a tree with the keys of `flatten`. Retain tensors; in transfers, do not read. */
  tdict_status (*unflatten)(const void *self, const tdict_tree *tree, void **out, tdict_error *err);
  /** Makes a deep copy, which should share no elements with `self`. */
  tdict_status (*clone)(const void *self, void **out, tdict_error *err);
  /** Makes an object from element `i`, which is in range, of the first batch dimension. */
  tdict_status (*index)(const void *self, int64_t i, void **out, tdict_error *err);
  /** Makes an object from `count` objects of this type, along a new first batch dimension. */
  tdict_status (*stack)(const void *const *items, size_t count, void **out, tdict_error *err);
  size_t (*bytes)(const void *self); /**< returns the bytes of all elements, for tdict_bytes(); NULL: 0 bytes */
  /** Writes a text without a newline, and returns the length of the full text, as snprintf() does. */
  size_t (*print)(const void *self, char *buffer, size_t bytes);
};
static inline tdict_type tdict_type_default(void) {
  tdict_type t;
  tdict_init_struct_(t);
  return t;
}

/** @brief Sets the object at a path as tdict_set() does, once. On success, the tree owns @p self.
 *  @return The errors of tdict_set(); #TDICT_EINVAL @p self is at the path with another type; #TDICT_EINVAL @p type has
 *          no name, no `release`, too small a `struct_size`, or only one of `flatten` and `unflatten`. */
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
