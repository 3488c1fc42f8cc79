/* Objects: a program's own structs as leaves of a tree, described by a tdict_type.
 *
 * A tree holds an object in a counted box; the box calls the type's `release` when its last holder lets go, on whatever
 * thread that is. Trees that share nodes or leaves share the box. An object is given to a tree once, and does not hold
 * the tree that it hangs in; it is not popped, as its box may have other holders: tdict_rename() moves it.
 * What a type cannot do by a hook of its own is never guessed: a transfer that meets an object without the hook it
 * needs passes it through untouched, counts it, and fails under `strict_objects`.
 *
 * Operations on trees take objects along. Those that only move keys share the box: set, select, update, flatten_keys,
 * tdict_clone() and the like; so do those after which every element stands where it stood. The others ask for a hook
 * that does just that, first, and else work on the object's tensors, which `flatten` gives and of which `unflatten`
 * makes the result's object:
 *
 *   tdict_clone_deep()                                           clone, else tensors
 *   one element of each of the first dimensions (TDICT_AT, tdict_unbind(), ...)  index, once a dimension, else tensors
 *   tdict_stack() along dimension 0                              stack, else tensors
 *   other indices and shapes, split, stack, cat, pad_sequence    tensors
 *   writes in place, also to `out` trees: from an object of the same type  tensors of both
 *   tdict_visit(), tdict_apply(), tdict_filter()                 tensors, with paths below the object's
 *   tdict_compare()                                              tensors, unless it is one object
 *
 * Where a memory is given, tensors come before hooks, which know no memory. Where batch dimensions count, the tensors
 * must begin with those of the object's tree: #TDICT_ESHAPE. A type that has neither the hook nor `flatten` is
 * #TDICT_ENOTSUP, one that fails answers for the call, err->path being the object's either way; two types where one is
 * wanted are #TDICT_ETYPE. Then all trees are as before, and objects made so far are released. Cost: that of the hooks,
 * and O(nodes) more.
 * Thread rule: hooks of different objects run at once, on pool threads; hooks of one object may, too, when several
 * transfers use it, so hooks read `self` and do not change it. */
#ifndef TDICT_OBJECT_H
#define TDICT_OBJECT_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** What a running hook may ask the engine for; see tdict/hook.h. */
typedef struct tdict_hook tdict_hook;

/** A type of object: what the library can do with it. All but the first three members may be NULL. Hooks answer a
 *  status and write their result on success only; a hook that answers anything else but a tdict_status is #TDICT_EHOOK.
 *  A type outlives its objects, is never written by the library, and is told from others by its address. */
struct tdict_type {
  size_t struct_size;          /**< sizeof(tdict_type); a shorter one lacks the hooks at its end */
  const char *name;            /**< for messages and print; not empty */
  void (*release)(void *self); /**< ends the struct; called once */
  /** An object of the same type whose tensors are pinned. *out == self keeps the object itself. */
  tdict_status (*pin_memory)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  /** An object of the same type on the hook's device. It is given the pinned object when there is a `pin_memory` hook
   *  and the transfer pins. What the hook queues itself goes on tdict_hook_stream(). *out == self keeps the object. */
  tdict_status (*to_device)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
  bool (*is_pinned)(const void *self); /**< every host tensor of it is pinned */
  /** A new tree of the object's tensors (shared, not copied), without objects, to be moved or worked on; it is not
   *  changed, but elements may be written. */
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err);
  /** A new object like `self` whose tensors are those of `tree`, which has the keys that flatten gave and maybe other
   *  dimensions. The tree is borrowed; tensors are retained as needed; their bytes are not there yet (of a transfer)
   *  and are not to be read. */
  tdict_status (*unflatten)(const void *self, const tdict_tree *tree, void **out, tdict_error *err);
  /** A copy with elements of its own. *out == self keeps the object, as for all hooks that make one. */
  tdict_status (*clone)(const void *self, void **out, tdict_error *err);
  /** The object of element `i`, which is there, of the first batch dimension. */
  tdict_status (*index)(const void *self, int64_t i, void **out, tdict_error *err);
  /** One object of `count` objects of this type, with a new first batch dimension. */
  tdict_status (*stack)(const void *const *items, size_t count, void **out, tdict_error *err);
  size_t (*bytes)(const void *self); /**< of its elements, for tdict_bytes() */
  /** Writes a text without a line end, cut to `bytes` and ended by 0; the length that the whole has, as snprintf. */
  size_t (*print)(const void *self, char *buffer, size_t bytes);
};

/** @brief Puts an object at a path, as tdict_set() puts a tensor; takes @p self, on success only. The object that
 *  stands there already stays as it is. The tree's batch size and device say nothing about objects, and no hook is
 *  asked.
 *  @return as tdict_set(), #TDICT_ENOMEM; #TDICT_EINVAL also when @p type has no name, release or size, or one of
 *          flatten and unflatten alone. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_object(tdict_tree *td, const char *path, const tdict_type *type,
                                                        void *self, tdict_error *err);
/** @brief The object at a path, borrowed from the tree.
 *  @return as tdict_get(); #TDICT_ETYPE something else stands there, or an object of another type, both named. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_object(const tdict_tree *td, const char *path, const tdict_type *type,
                                                        void **out, tdict_error *err);
/** @brief The type of the object at a path; NULL when there is none. */
TDICT_API const tdict_type *tdict_object_type(const tdict_tree *td, const char *path);

TDICT_END_DECLS
#endif
