/* The counted box that an object lies in, and calling its hooks. Thread rule: counting is safe everywhere. */
#ifndef TDICT_TREE_BOX_H
#define TDICT_TREE_BOX_H

#include <stdatomic.h>
#include <stddef.h>

#include "tdict/object.h"

typedef struct tdict_box {
  _Atomic(int64_t) refs;
  const tdict_type *type;
  void *self;
  bool kept; /* self is the program's own: it is not released with the box. Written while one thread has the box */
} tdict_box;

/* TDICT_EINVAL when the library cannot use the type: no size, name or release, or flatten and unflatten not both.
 * `what` begins the message. */
tdict_status tdict_type_check(const char *what, const tdict_type *type, tdict_error *err);
/* Takes self on success. TDICT_ENOMEM. */
tdict_status tdict_box_create(const tdict_type *type, void *self, tdict_box **out, tdict_error *err);
/* Frees a box that nobody else holds; self is its giver's again. */
void tdict_box_discard(tdict_box *box);
tdict_box *tdict_box_retain(tdict_box *box);
void tdict_box_release(tdict_box *box);
/* A box of what a hook gave for `box`: the box itself, with a reference more, when it gave the object itself. Takes
 * `given`: on failure it is released. */
tdict_status tdict_box_of(tdict_box *box, void *given, tdict_box **out, tdict_error *err);
/* A hook of the type, or NULL when it has none or is too short for it. `member` names a member of tdict_type. */
#define TDICT_HOOK_OF(type, member) \
  ((type)->struct_size >= offsetof(tdict_type, member) + sizeof((type)->member) ? (type)->member : NULL)
/* What a failed hook said, made whole: a status that is none becomes TDICT_EHOOK, an empty message is filled. */
tdict_status tdict_hook_failed(const tdict_type *type, const char *hook, tdict_status status, tdict_error *err);

#endif
