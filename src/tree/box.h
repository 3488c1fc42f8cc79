/* A box holds an object and counts the references to the object. Also checks types and the results of their hooks. The
 * box owns the object, unless `kept` is true. Thread rule: counting is thread-safe. */
#ifndef TDICT_TREE_BOX_H
#define TDICT_TREE_BOX_H

#include <stdatomic.h>
#include <stddef.h>

#include "tdict/object.h"

typedef struct tdict_box {
  _Atomic(int64_t) refs;
  const tdict_type *type;
  void *self;
  /* true: the program owns `self`, so the box does not release `self`. Set only while one thread holds the box */
  bool kept;
} tdict_box;

/* Returns TDICT_EINVAL if the struct_size of the type is too small, or the type has no name or no `release`. Also
 * returns TDICT_EINVAL if the type has only one of `flatten` and `unflatten`. The message begins with `what`. */
tdict_status tdict_type_check(const char *what, const tdict_type *type, tdict_error *err);
/* Makes a box with one reference. Takes ownership of self on success. Returns TDICT_OK or TDICT_ENOMEM. */
tdict_status tdict_box_create(const tdict_type *type, void *self, tdict_box **out, tdict_error *err);
/* Frees a box with one reference, but not the object: the caller owns self again. */
void tdict_box_discard(tdict_box *box);
tdict_box *tdict_box_retain(tdict_box *box);
void tdict_box_release(tdict_box *box);
/* Makes a box for `given`, the object that a hook of `box` returned. If the hook returned the object of `box` itself,
 * *out is `box` with one more reference. Takes ownership of `given`, and releases `given` on failure. Returns
 * TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_box_of(tdict_box *box, void *given, tdict_box **out, tdict_error *err);
/* Evaluates to the hook `member` of a type, or to NULL if the type has no such hook. A program that was compiled
 * against an older header has a shorter tdict_type, so struct_size is checked first. */
#define TDICT_HOOK_OF(type, member) \
  ((type)->struct_size >= offsetof(tdict_type, member) + sizeof((type)->member) ? (type)->member : NULL)
/* Completes the error of a failed hook and returns its status. A number that is not a tdict_status becomes TDICT_EHOOK.
 * If the message is empty, fills in a message. */
tdict_status tdict_hook_failed(const tdict_type *type, const char *hook, tdict_status status, tdict_error *err);

#endif
