/* Boxes of objects: checks types and results of hooks, counts references. See box.h for ownership and threads. */
#include "core/tree/box.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"

const char tdict_builtin_mark = 0;

bool tdict_box_begins_with(const tdict_box *box, int batch_ndim, const int64_t *batch_size) {
  const int64_t *sizes;
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  const int ndim = builtin ? builtin->batch(box->self, &sizes) : 0;
  return ndim == 0 || (batch_ndim <= ndim && tdict_sizes_equal(sizes, batch_size, batch_ndim));
}

tdict_status tdict_type_check(const char *what, const tdict_type *type, tdict_error *err) {
  /* struct_size, name and release are required; all later members are optional. */
  const size_t least = offsetof(tdict_type, release) + sizeof type->release;
  if (type->struct_size < least)
    return tdict_fail(err, TDICT_EINVAL, "%s: the type's struct_size is %zu, wanted sizeof(tdict_type), at least %zu",
                      what, type->struct_size, least);
  if (!type->name || !type->name[0]) return tdict_fail(err, TDICT_EINVAL, "%s: the type has no name", what);
  if (!type->release)
    return tdict_fail(err, TDICT_EINVAL, "%s: the type %.60s has no release, wanted a function", what, type->name);
  bool flattens = TDICT_HOOK_OF(type, flatten) != NULL, unflattens = TDICT_HOOK_OF(type, unflatten) != NULL;
  if (flattens != unflattens)
    return tdict_fail(err, TDICT_EINVAL, "%s: the type %.60s has %s and no %s, wanted both or neither", what,
                      type->name, flattens ? "flatten" : "unflatten", flattens ? "unflatten" : "flatten");
  return TDICT_OK;
}

tdict_status tdict_box_create(const tdict_type *type, void *self, tdict_box **out, tdict_error *err) {
  tdict_box *box = malloc(sizeof *box);
  if (!box) return tdict_fail_memory(err, "object", NULL, "its box");
  atomic_init(&box->refs, 1);
  box->type = type;
  box->self = self;
  box->kept = false;
  *out = box;
  return TDICT_OK;
}

tdict_status tdict_box_give(const tdict_type *type, void *self, tdict_box **out, tdict_error *err) {
  tdict_status status = tdict_box_create(type, self, out, err);
  if (status != TDICT_OK) type->release(self);
  return status;
}

void tdict_box_discard(tdict_box *box) { free(box); }

tdict_box *tdict_box_retain(tdict_box *box) {
  atomic_fetch_add_explicit(&box->refs, 1, memory_order_relaxed);
  return box;
}

void tdict_box_release(tdict_box *box) {
  if (!box || atomic_fetch_sub_explicit(&box->refs, 1, memory_order_acq_rel) != 1) return;
  /* acq_rel above: the release callback must see the writes of all former holders. */
  if (!box->kept) box->type->release(box->self);
  free(box);
}

tdict_status tdict_box_of(tdict_box *box, void *given, tdict_box **out, tdict_error *err) {
  /* If the hook returned the object of `box`, a second box would release this object twice. */
  if (given != box->self) return tdict_box_give(box->type, given, out, err);
  *out = tdict_box_retain(box);
  return TDICT_OK;
}

tdict_status tdict_hook_finish(const tdict_type *type, const char *hook, tdict_status returned, const void *result,
                               tdict_error *own, tdict_error *err) {
  char what[96]; /* holds the name of each hook and 60 bytes of the type's name */
  if (returned == TDICT_OK && result) return TDICT_OK;
  snprintf(what, sizeof what, "%s of type %.60s", hook, type->name);
  const tdict_status status = returned == TDICT_OK
                                  ? tdict_fail(own, TDICT_EHOOK, "%s returned TDICT_OK and no result", what)
                                  : tdict_callback_status(returned, what, own);
  if (err) *err = *own;
  return status;
}
