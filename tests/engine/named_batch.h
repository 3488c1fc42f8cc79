/* The object for the tests that are based on PyTorch's issue reports: a struct with two tensors and other fields that
 * transfers must preserve. Hooks run on any thread, so they report errors by status and never assert. */
#ifndef TDICT_TESTS_ENGINE_NAMED_BATCH_H
#define TDICT_TESTS_ENGINE_NAMED_BATCH_H

#include "pair.h"

/* A batch with two tensors, other data of the program, and a method. */
typedef struct batch {
  pair base; /* first, so that the hooks of a pair can release the batch */
  char names[2][16];
  int64_t sizes[2];
} batch;

/* The batch's method, which uses fields that are not tensors. */
static inline int64_t batch_area(const batch *b) { return b->sizes[0] * b->sizes[1] + b->base.number; }

/* Copies a batch with other tensors, which the copy owns. On failure, the caller still owns the tensors. */
static inline batch *batch_around(const batch *like, tdict_tensor *inp, tdict_tensor *tgt) {
  batch *made = malloc(sizeof *made);
  if (!made) return NULL;
  *made = *like;
  made->base.inp = inp;
  made->base.tgt = tgt;
  atomic_fetch_add(&made->base.p->live, 1);
  return made;
}

typedef tdict_status (*batch_step)(const tdict_hook *hook, tdict_tensor *t, tdict_tensor **out, tdict_error *err);
static inline tdict_status batch_through(const batch *self, const tdict_hook *hook, batch_step step, void **out,
                                         tdict_error *err) {
  tdict_tensor *inp = NULL, *tgt = NULL;
  tdict_status status = step(hook, self->base.inp, &inp, err);
  if (status == TDICT_OK) status = step(hook, self->base.tgt, &tgt, err);
  batch *made = status == TDICT_OK ? batch_around(self, inp, tgt) : NULL;
  if (made) {
    *out = made;
    return TDICT_OK;
  }
  td_release(inp, tgt);
  return status == TDICT_OK ? TDICT_ENOMEM : status;
}
static inline tdict_status batch_pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  atomic_fetch_add(&((const batch *)self)->base.p->pins, 1);
  return batch_through(self, hook, tdict_hook_pin, out, err);
}
static inline tdict_status batch_move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  atomic_fetch_add(&((const batch *)self)->base.p->moves, 1);
  return batch_through(self, hook, tdict_hook_move, out, err);
}
static inline tdict_status batch_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  tdict_tensor *inp = NULL, *tgt = NULL;
  tdict_status status = tdict_get(tree, "inp", &inp, err);
  if (status == TDICT_OK) status = tdict_get(tree, "deep.tgt", &tgt, err);
  if (status != TDICT_OK) return status;
  *out = batch_around(self, tdict_tensor_retain(inp), tdict_tensor_retain(tgt));
  return *out ? TDICT_OK : TDICT_ENOMEM;
}

/* A type that the library sees as a plain container of tensors. */
static const tdict_type container =
    TD_TYPE(.name = "container", .release = pair_release, .flatten = pair_flatten, .unflatten = batch_unflatten);

#endif
