/* Implements objects of two tensors: see things.h. A thing owns a reference to each tensor. */
#include "tdict/hook.h"

#include "support/things.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "support/expressions.h"

static _Atomic(int64_t) alive; /* relaxed: read while no other thread runs */

thing *thing_create(tdict_tensor *a, tdict_tensor *b) {
  thing *t = malloc(sizeof *t);
  if (!t) return NULL;
  *t = (thing){a, b};
  atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed);
  return t;
}

int64_t thing_count(void) { return atomic_load_explicit(&alive, memory_order_relaxed); }

static void end(void *self) {
  thing *t = self;
  tdict_tensor_release(t->a);
  tdict_tensor_release(t->b);
  free(t);
  atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed);
}

typedef tdict_status (*change)(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err);

static tdict_status change_both(const thing *t, const tdict_hook *hook, change how, void **out, tdict_error *err) {
  tdict_tensor *a = NULL, *b = NULL;
  tdict_status status = how(hook, t->a, &a, err);
  if (status == TDICT_OK) status = how(hook, t->b, &b, err);
  thing *made = status == TDICT_OK ? thing_create(a, b) : NULL;
  if (made) {
    *out = made;
    return TDICT_OK;
  }
  tdict_tensor_release(a);
  tdict_tensor_release(b);
  return status == TDICT_OK ? TDICT_ENOMEM : status;
}

static tdict_status pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  return change_both(self, hook, tdict_hook_pin, out, err);
}
static tdict_status move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  return change_both(self, hook, tdict_hook_move, out, err);
}
static bool is_pinned(const void *self) {
  const thing *t = self;
  return tdict_tensor_is_pinned(t->a) && tdict_tensor_is_pinned(t->b);
}

static tdict_status flatten(const void *self, tdict_tree **out, tdict_error *err) {
  const thing *t = self;
  tdict_tree *made;
  tdict_status status = tdict_create(0, NULL, &made, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(made, "a", t->a, err);
  if (status == TDICT_OK) status = tdict_set(made, "b", t->b, err);
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_release(made);
  return status;
}
static tdict_status unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self;
  tdict_tensor *a, *b;
  tdict_status status = tdict_get(tree, "a", &a, err);
  if (status == TDICT_OK) status = tdict_get(tree, "b", &b, err);
  if (status != TDICT_OK) return status;
  thing *made = thing_create(a, b);
  if (!made) return TDICT_ENOMEM;
  tdict_tensor_retain(a);
  tdict_tensor_retain(b);
  *out = made;
  return TDICT_OK;
}

const tdict_type thing_hooked =
    TD_TYPE(.name = "hooked thing", .release = end, .pin_memory = pin, .to_device = move, .is_pinned = is_pinned);
const tdict_type thing_flat =
    TD_TYPE(.name = "flat thing", .release = end, .is_pinned = is_pinned, .flatten = flatten, .unflatten = unflatten);
