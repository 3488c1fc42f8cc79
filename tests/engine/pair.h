/* Objects for tests of hooks: two tensors, a label and a number, like the batch of a data loader. Each hook call is
 * counted, and can call a function of the test. Hooks run on any thread, so they report errors by status and never
 * assert. */
#ifndef TDICT_TESTS_ENGINE_PAIR_H
#define TDICT_TESTS_ENGINE_PAIR_H

#include "promises.h"

typedef struct pair pair;
/* The counts of hook calls in a test. */
typedef struct probe {
  atomic_int live, pins, moves, flattens, unflattens, asks;
  atomic_int wrong;  /* how many checks in hooks have failed */
  atomic_int inside; /* the number of hooks that are running */
  atomic_int most_inside;
} probe;
struct pair {
  const char *label;
  int number;
  tdict_tensor *inp, *tgt; /* counted */
  probe *p;
  /* If not NULL, called first by pin_memory and to_device. If it fails, the hook returns its status. */
  tdict_status (*also)(const pair *self, const tdict_hook *hook, tdict_error *err);
  void *user;
};

enum { PAIR_ROWS = 10, PAIR_COLUMNS = 5 };
static inline uint64_t pair_seed(int number, int which) { return 7000 + 2 * (uint64_t)number + (uint64_t)which; }

/* Copies a pair, but with the given tensors, which the copy owns. On failure, releases the tensors and returns NULL. */
static inline pair *pair_around(const pair *like, tdict_tensor *inp, tdict_tensor *tgt) {
  pair *made = malloc(sizeof *made);
  if (!made) {
    td_release(inp, tgt);
    return NULL;
  }
  *made = *like;
  made->inp = inp;
  made->tgt = tgt;
  atomic_fetch_add(&made->p->live, 1);
  return made;
}
static inline pair *pair_make(probe *p, int number, tdict_memory *memory) {
  static const int64_t shape[] = {PAIR_ROWS, PAIR_COLUMNS};
  const pair like = {.label = "a batch", .number = number, .p = p};
  tdict_tensor *t[2];
  for (int i = 0; i < 2; i++) {
    t[i] = new_tensor(TDICT_F32, 2, shape, memory);
    td_fill_random(t[i]->data, tdict_tensor_bytes(t[i]), pair_seed(number, i));
  }
  pair *made = pair_around(&like, t[0], t[1]);
  assert_non_null(made);
  return made;
}
static inline void pair_release(void *self) {
  pair *own = self;
  td_release(own->inp, own->tgt);
  atomic_fetch_sub(&own->p->live, 1);
  free(own);
}

typedef tdict_status (*pair_step)(const tdict_hook *hook, tdict_tensor *t, tdict_tensor **out, tdict_error *err);
static inline tdict_status pair_through(const pair *self, const tdict_hook *hook, pair_step step, void **out,
                                        tdict_error *err) {
  tdict_tensor *inp = NULL, *tgt = NULL;
  int now = atomic_fetch_add(&self->p->inside, 1) + 1, most = atomic_load(&self->p->most_inside);
  while (now > most && !atomic_compare_exchange_weak(&self->p->most_inside, &most, now)) {}
  tdict_status status = self->also ? self->also(self, hook, err) : TDICT_OK;
  if (status == TDICT_OK) status = step(hook, self->inp, &inp, err);
  if (status == TDICT_OK) status = step(hook, self->tgt, &tgt, err);
  atomic_fetch_sub(&self->p->inside, 1);
  if (status != TDICT_OK) {
    tdict_tensor_release(inp);
    return status;
  }
  *out = pair_around(self, inp, tgt);
  return *out ? TDICT_OK : TDICT_ENOMEM;
}
static inline tdict_status pair_pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const pair *own = self;
  atomic_fetch_add(&own->p->pins, 1);
  return pair_through(own, hook, tdict_hook_pin, out, err);
}
static inline tdict_status pair_move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const pair *own = self;
  atomic_fetch_add(&own->p->moves, 1);
  return pair_through(own, hook, tdict_hook_move, out, err);
}
static inline bool pair_is_pinned(const void *self) {
  const pair *own = self;
  atomic_fetch_add(&own->p->asks, 1);
  return tdict_tensor_is_pinned(own->inp) && tdict_tensor_is_pinned(own->tgt);
}
static inline tdict_status pair_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  const pair *own = self;
  tdict_tree *td = NULL;
  atomic_fetch_add(&own->p->flattens, 1);
  tdict_status status = tdict_create(0, NULL, &td, err);
  if (status == TDICT_OK) status = tdict_set(td, "inp", own->inp, err);
  if (status == TDICT_OK) status = tdict_set(td, "deep.tgt", own->tgt, err);
  if (status != TDICT_OK) {
    tdict_release(td);
    return status;
  }
  *out = td;
  return TDICT_OK;
}
static inline tdict_status pair_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  const pair *own = self;
  tdict_tensor *inp = NULL, *tgt = NULL;
  atomic_fetch_add(&own->p->unflattens, 1);
  tdict_status status = tdict_get(tree, "inp", &inp, err);
  if (status == TDICT_OK) status = tdict_get(tree, "deep.tgt", &tgt, err);
  if (status != TDICT_OK) return status;
  *out = pair_around(own, tdict_tensor_retain(inp), tdict_tensor_retain(tgt));
  return *out ? TDICT_OK : TDICT_ENOMEM;
}

#define PAIR_TYPE(...) \
  { .struct_size = sizeof(tdict_type), .name = "pair", .release = pair_release, __VA_ARGS__ }
static const tdict_type pair_hooked =
    PAIR_TYPE(.pin_memory = pair_pin, .to_device = pair_move, .is_pinned = pair_is_pinned);
static const tdict_type pair_flat = PAIR_TYPE(.flatten = pair_flatten, .unflatten = pair_unflatten);
static const tdict_type pair_bare = PAIR_TYPE(.clone = NULL);

/* Puts a new pair into a tree, which then owns the pair. */
static inline pair *put_pair(tdict_tree *td, const char *path, const tdict_type *type, probe *p, int number) {
  pair *made = pair_make(p, number, NULL);
  td_ok(tdict_set_object(td, path, type, made, err));
  return made;
}
/* Like put_pair(), but the hooks pin_memory and to_device first call `also`. */
static inline pair *put_pair_with(tdict_tree *td, const char *path, probe *p, int number,
                                  tdict_status (*also)(const pair *, const tdict_hook *, tdict_error *), void *user) {
  pair *made = put_pair(td, path, &pair_hooked, p, number);
  made->also = also;
  made->user = user;
  return made;
}
static inline pair *pair_at(const tdict_tree *td, const char *path, const tdict_type *type) {
  void *self = NULL;
  td_ok(tdict_get_object(td, path, type, &self, err));
  return self;
}
/* Waits until all pairs are released, because a pool thread may release the last pair. Fails after a time limit. */
static inline void check_gone(probe *p) {
  for (int i = 0; i < PROMISE_LONG_MS * 10 && atomic_load(&p->live); i++) usleep(100);
  assert_int_equal(atomic_load(&p->live), 0);
}
#define scoped_probe \
  TD_SCOPED(check_gone, probe) /* declare it before the place, so that it is checked after the place is closed */
static inline void close_pairs(place *w, probe *p) {
  place_close(w);
  check_gone(p);
}
/* Checks that a pair has this number, and that its tensors have the right bytes on the device. */
static inline void check_pair(const place *w, const pair *x, int number, tdict_device device) {
  const tdict_tensor *t[] = {x->inp, x->tgt};
  assert_int_equal(x->number, number);
  assert_string_equal(x->label, "a batch");
  for (int i = 0; i < 2; i++) {
    assert_true(tdict_device_equal(tdict_tensor_device(t[i]), device));
    assert_int_equal(tdict_tensor_ndim(t[i]), 2);
    assert_int_equal(tdict_tensor_shape(t[i])[1], PAIR_COLUMNS);
    if (!has_number(w, t[i], pair_seed(number, i))) fail_msg("tensor %d of pair %d has wrong bytes", i, number);
  }
}

#endif
