/* Declares objects. An object is a struct of the program that is stored as a leaf of a tree. A tdict_type has the
 * functions that the library calls for the struct. These functions must return, and must not throw: see
 * docs/callbacks.md.
 *
 * Ownership. A tree holds an object in a reference-counted box. Trees that share an object share its box. When the last
 * reference to the box is dropped, the library calls the type's `release`, on any thread. Set an object in one tree
 * only, and only once. An object must not hold a reference to a tree that contains the object. tdict_pop() does not
 * accept objects, because other trees may share the box. The function tdict_rename() moves an object to another path.
 *
 * Pinning. These calls pin objects: tdict_pin_memory(), a loader with `pin_memory`, a transfer to the cpu with
 * `pinned_result` or pinned `memory`, and a transfer to a device in the modes AUTO and NON_BLOCKING_PIN. To pin, a call
 * uses the hook `pin_memory` whenever the type has this hook. Exception: a transfer to a device does not pin the
 * objects of a tree that is on a device already. If the type has no `pin_memory`, and the call uses `flatten`, the
 * library copies the tensors through pinned memory. Other objects are not pinned, which is no error.
 * tdict_transfer_stats.num_objects_unpinned counts these objects.
 *
 * Moving. A transfer calls the hook `to_device`. If the type has no `to_device`, the transfer moves the tensors that
 * `flatten` returns, and calls `unflatten`. If a type has neither hook, the transfer fails. With the option
 * `keep_objects`, the result shares the object instead, and tdict_transfer_stats.num_objects_kept counts the object. On
 * the way to a device, an object is pinned first, and the hooks that move receive the pinned object. For a pinned
 * result on the cpu, an object is moved first. tdict_transfer_into() calls only `flatten`, and does not pin objects.
 *
 * Operations on trees. Operations that only move keys share the box, for example tdict_select(), tdict_update(),
 * tdict_flatten_keys() and tdict_clone(). An operation that leaves every element at its index also shares the box, for
 * example an index that keeps all dimensions whole. All other operations call the hook for the operation, if the type
 * has the hook. Otherwise these operations use the tensors of the object. To use the tensors, an operation calls
 * `flatten`, works on the tensors, and calls `unflatten` to make the object of the result.
 *
 * - tdict_clone_deep() calls the `clone` hook. If the type has no `clone` hook, the call uses the tensors.
 * - An index that begins with TDICT_AT and keeps all other dimensions whole calls the `index` hook, once per TDICT_AT.
 *   tdict_unbind() along dimension 0 calls the `index` hook too. If the type has no `index` hook, the call uses the
 *   tensors.
 * - tdict_stack() along dimension 0 calls the `stack` hook. If the type has no `stack` hook, the call uses the tensors.
 * - Other indices, tdict_stack() along other dimensions, tdict_cat(), tdict_pad_sequence() and other functions of
 *   tdict/shape.h use the tensors.
 * - Functions that write elements of an existing tree use the tensors of both objects, which must have the same type.
 * - tdict_visit(), tdict_apply() and tdict_filter() use the tensors. The path of a tensor begins with the path of the
 *   object.
 * - tdict_compare() uses the tensors, unless both trees hold the same object.
 * - tdict_to_dtype() uses the tensors. An object without `flatten` is shared.
 *
 * If the caller passes a memory to tdict_clone_deep(), tdict_stack() or tdict_index_get(), and the type has
 * `flatten`, the call uses the tensors instead of the hook. The reason is that the hooks cannot allocate from this
 * memory.
 *
 * Errors of operations on trees. If an operation on batch dimensions uses the tensors of an object, the shapes of these
 * tensors must begin with the batch size of the object's tree. Otherwise the call returns #TDICT_ESHAPE. If the type
 * has neither the hook nor `flatten`, the call returns #TDICT_ENOTSUP. If two objects must have the same type but have
 * different types, the call returns #TDICT_ETYPE. If a hook fails, the call returns the error of the hook. After each
 * of these errors, err->path names the object, all trees are unchanged, and new objects have been released. Cost: the
 * time of the hooks, plus O(nodes).
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
  /** Makes an object of the same type whose tensors are pinned. Called by all calls that pin objects, see the top of
   *  this header. Runs on threads of the context's pool, except if `num_threads` is 0. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** Makes an object of the same type on the device `hook->device`. Called by transfers to a device and to the cpu. If
   *  the transfer has called `pin_memory` before, `self` is the pinned object. If the hook queues work, the hook must
   *  use the stream `hook->stream`. */
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
  size_t (*bytes)(const void *self); /**< returns the number of bytes of all elements, for tdict_bytes() and
                                        tdict_print(); without this hook, the object counts as 0 bytes */
  /** Writes a text without a newline to `buffer`, cut to `bytes` bytes including the final 0. Returns the length of the
   *  full text, as snprintf() does. */
  size_t (*print)(const void *self, char *buffer, size_t bytes);
};

/** @brief Sets the object at a path, as tdict_set() sets a tensor.
 *
 *  On success, the tree owns @p self. If @p self is already at the path, with the same @p type, nothing changes. The
 *  device of the object may differ from the device of the tree. The call checks the batch size only for objects of the
 *  library's types, such as tdict_ragged_type(). No hook of @p self is called.
 *  @return The same errors as tdict_set(); #TDICT_EINVAL also if @p type has no name, no `release` or too small a
 *          `struct_size`, or has only one of the hooks `flatten` and `unflatten`; #TDICT_EINVAL also if @p self is
 *          already at the path with another type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_object(tdict_tree *tree, const char *path, const tdict_type *type,
                                                        void *self, tdict_error *err);
/** @brief Returns the object at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The same errors as tdict_get(). Here, #TDICT_ETYPE means that the path names a tensor, a tree or an object
 *          of a type other than @p type, or leads through a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_object(const tdict_tree *tree, const char *path,
                                                        const tdict_type *type, void **out, tdict_error *err);
/** @brief Returns the type of the object at a path, or NULL if there is no object at the path. */
TDICT_API const tdict_type *tdict_object_type(const tdict_tree *tree, const char *path);

TDICT_END_DECLS
#endif
