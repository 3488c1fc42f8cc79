/* Implements trees and objects whose words identify them: see stamps.h. An object owns its tree. */
#include "tdict/hook.h"

#include "support/stamps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expressions.h"
#include "support/scoped.h"
#include "support/watchdog.h"
#include "tdict/view.h"

enum { STRIDED_ROWS = 90, STRIDED_COLUMNS = 40 };

static void fill(tdict_tensor *t, int64_t *data, int64_t word) {
  for (int64_t i = 0, n = tdict_tensor_numel(t); i < n; i++) data[i] = word;
}

tdict_status stamp_leaf(tdict_tree *td, const char *path, int64_t count, int64_t generation, tdict_error *err) {
  tdict_tensor *t;
  const char *key = strrchr(path, 'l');
  tdict_status status = tdict_tensor_empty(TDICT_I64, 1, &count, NULL, &t, err);
  if (status != TDICT_OK) return status;
  if (count) fill(t, tdict_tensor_data(t), stamp_word(generation, key[1] - '0'));
  status = tdict_set(td, path, t, err);
  tdict_tensor_release(t);
  return status;
}

static tdict_status strided_leaf(tdict_tree *td, const char *path, int64_t generation, tdict_error *err) {
  tdict_tensor *base, *turned;
  tdict_status status =
      tdict_tensor_empty(TDICT_I64, 2, (const int64_t[]){STRIDED_ROWS, STRIDED_COLUMNS}, NULL, &base, err);
  if (status != TDICT_OK) return status;
  fill(base, tdict_tensor_data(base), stamp_word(generation, path[strlen(path) - 1] - '0'));
  status = tdict_tensor_permute(base, 2, (const int[]){1, 0}, &turned, err);
  tdict_tensor_release(base);
  if (status != TDICT_OK) return status;
  status = tdict_set(td, path, turned, err);
  tdict_tensor_release(turned);
  return status;
}

tdict_tree *stamp_tree(int64_t generation) {
  tdict_tree *td;
  if (tdict_create(0, NULL, &td, NULL) != TDICT_OK) return NULL;
  tdict_status status = stamp_leaf(td, "l0", 3, generation, NULL);
  if (status == TDICT_OK) status = stamp_leaf(td, "n.l1", 700, generation, NULL);
  if (status == TDICT_OK) status = stamp_leaf(td, "n.l2", 9000, generation, NULL);
  if (status == TDICT_OK) status = strided_leaf(td, "n.m.l3", generation, NULL);
  if (status == TDICT_OK) status = stamp_leaf(td, "l4", 0, generation, NULL);
  if (status == TDICT_OK) return td;
  tdict_release(td);
  return NULL;
}

static tdict_status refill_one(void *user, const tdict_entry *e, tdict_error *err) {
  (void)err;
  if (!e->tensor || !tdict_tensor_numel(e->tensor)) return TDICT_OK;
  int64_t *data = tdict_tensor_data(e->tensor); /* the elements have no gaps, even if the dimensions are permuted */
  if (!data) return TDICT_ENOTFOUND;
  fill(e->tensor, data, stamp_word(*(const int64_t *)user, e->key[1] - '0'));
  return TDICT_OK;
}
bool stamp_refill(tdict_tree *td, int64_t generation) {
  return tdict_walk(td, refill_one, &generation, NULL) == TDICT_OK;
}

typedef struct nest {
  tdict_tree *tree;
} nest;

typedef struct checking {
  int64_t generation; /* 0: still unknown */
  char *why;
  size_t bytes;
} checking;

static tdict_status check_leaf(checking *c, const tdict_entry *e) {
  const int leaf = e->key[1] - '0';
  const bool common = strstr(e->path, "common.") != NULL;
  const int64_t *data = tdict_tensor_const_data(e->tensor), n = tdict_tensor_numel(e->tensor);
  if (n && !data) {
    snprintf(c->why, c->bytes, "the accessor of '%s' returned NULL", e->path);
    return TDICT_ENOTFOUND;
  }
  if (n && !common && !c->generation) c->generation = (data[0] - leaf) / 16;
  for (int64_t i = 0; i < n; i++) {
    int64_t wanted = stamp_word(common ? 1 : c->generation, leaf);
    if (data[i] == wanted) continue;
    snprintf(c->why, c->bytes,
             "word %lld of %lld of '%s' is %lld (generation %lld, leaf %d), wanted %lld (generation %lld)",
             (long long)i, (long long)n, e->path, (long long)data[i], (long long)(data[i] / 16), (int)(data[i] % 16),
             (long long)wanted, (long long)(wanted / 16));
    return TDICT_ENOTFOUND;
  }
  return TDICT_OK;
}
static tdict_status check_one(void *user, const tdict_entry *e, tdict_error *err) {
  checking *c = user;
  if (e->tensor) return check_leaf(c, e);
  if (!e->object) return TDICT_OK;
  if (e->type != &stamp_nest) {
    snprintf(c->why, c->bytes, "the object at '%s' has the wrong type", e->path);
    return TDICT_ENOTFOUND;
  }
  return tdict_walk(((const nest *)e->object)->tree, check_one, c, err);
}
int64_t stamp_check(const tdict_tree *td, char *why, size_t bytes) {
  checking c = {0, why, bytes};
  snprintf(why, bytes, "the walk failed");
  return tdict_walk(td, check_one, &c, NULL) == TDICT_OK && c.generation ? c.generation : -1;
}

static _Atomic(int64_t) alive;
static _Atomic(int) pool_threads;
static _Atomic(uint32_t) turn; /* relaxed: a counter from which hooks choose options */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: contested */
static tdict_tree *contested;                            /* counted */

void stamp_set_contested(const tdict_tree *td) {
  pthread_mutex_lock(&lock);
  scoped_tree before = contested;
  contested = td ? tdict_retain(td) : NULL;
  pthread_mutex_unlock(&lock);
}
static tdict_tree *take_contested(void) {
  pthread_mutex_lock(&lock);
  tdict_tree *td = contested ? tdict_retain(contested) : NULL;
  pthread_mutex_unlock(&lock);
  return td;
}
void stamp_set_pool(int num_threads) { atomic_store(&pool_threads, num_threads); }
int64_t stamp_nests_alive(void) { return atomic_load(&alive); }

static void end_nest(void *self) {
  tdict_release(((nest *)self)->tree);
  free(self);
  atomic_fetch_sub(&alive, 1);
}

/* Makes an object that owns the tree. On failure, returns NULL, and the caller still owns the tree. */
static nest *make_nest(tdict_tree *tree) {
  nest *n = malloc(sizeof *n);
  if (!n) return NULL;
  n->tree = tree;
  atomic_fetch_add(&alive, 1);
  return n;
}

static tdict_status give(tdict_status status, tdict_tree *made, void **out) {
  nest *n = status == TDICT_OK ? make_nest(made) : NULL;
  if (n) {
    *out = n;
    return TDICT_OK;
  }
  if (status == TDICT_OK) tdict_release(made);
  return status == TDICT_OK ? TDICT_ENOMEM : status;
}

static int choose_threads(uint32_t by) {
  static const int choices[] = {0, 1, 2, -1};
  int wanted = choices[by % 4];
  return wanted > atomic_load(&pool_threads) ? 1 : wanted;
}

/* Moves the contested tree, which other transfers write, and releases the result. */
static tdict_status visit_contested(const tdict_hook *hook, const tdict_transfer_options *o, tdict_error *err) {
  tdict_tree *td = take_contested(), *made = NULL;
  if (!td) return TDICT_OK;
  tdict_status status = tdict_to_device(hook->context, td, hook->device, o, &made, err);
  tdict_release(made);
  tdict_release(td);
  return status;
}

static tdict_status pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  uint32_t now = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed);
  tdict_pin_options o = tdict_pin_options_default();
  tdict_tree *made = NULL;
  o.num_threads = choose_threads(now);
  watch_bump();
  tdict_status status = tdict_pin_memory(hook->context, ((const nest *)self)->tree, &o, &made, err);
  return give(status, made, out);
}

static tdict_status move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  uint32_t now = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed);
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_context *context = hook->context;
  tdict_device to = hook->device;
  const tdict_tree *tree = ((const nest *)self)->tree;
  tdict_tree *made = NULL;
  tdict_future *f;
  o.num_threads = choose_threads(now);
  o.mode = (int32_t)(now / 4 % 4);
  watch_bump();
  tdict_status status = now % 3 ? TDICT_OK : visit_contested(hook, &o, err);
  if (status != TDICT_OK) return status;
  if (now / 16 % 2) {
    status = tdict_to_device(context, tree, to, &o, &made, err);
    return give(status, made, out);
  }
  status = tdict_to_device_async(context, tree, to, &o, &f, err);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(f, &made, err);
  tdict_future_release(f);
  return give(status, made, out);
}

const tdict_type stamp_nest = TD_TYPE(.name = "nest", .release = end_nest, .pin_memory = pin, .to_device = move);

tdict_status stamp_put_nest(tdict_tree *td, int depth, int64_t generation, tdict_error *err) {
  tdict_tree *inner = stamp_tree(generation);
  if (!inner) return TDICT_ENOMEM;
  tdict_status status = depth > 1 ? stamp_put_nest(inner, depth - 1, generation, err) : TDICT_OK;
  nest *n = status == TDICT_OK ? make_nest(inner) : NULL;
  if (!n) {
    tdict_release(inner);
    return status == TDICT_OK ? TDICT_ENOMEM : status;
  }
  status = tdict_set_object(td, "nest", &stamp_nest, n, err);
  if (status != TDICT_OK) end_nest(n);
  return status;
}
