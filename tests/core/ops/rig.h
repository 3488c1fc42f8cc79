/* Makes tdict trees from model trees, on the device under test. The case releases the tdict trees. The model trees live
 * until m_reset() or the end of the program. */
#ifndef TDICT_TESTS_CORE_OPS_RIG_H
#define TDICT_TESTS_CORE_OPS_RIG_H

#include "core/tree/help.h"
#include "support/ops.h"

typedef struct rig {
  tdict_context *context; /* NULL on the host */
  tdict_memory *memory;   /* NULL on the host */
} rig;

static inline rig rig_open(void) {
  rig r = {NULL, NULL};
  if (td_device().type == TDICT_DEVICE_CPU) return r;
  r.context = td_context(NULL);
  r.memory = tdict_device_memory(r.context, td_device());
  return r;
}
static inline void rig_close(rig *r) { tdict_context_destroy(r->context); }
#define scoped_rig TD_SCOPED(rig_close, rig)

/* Makes a tree on the device under test that equals the model. */
static inline tdict_tree *rig_tree(const rig *r, const m_tree *t) {
  tdict_tree *host = ops_tree(t), *td = NULL;
  if (!r->memory) return host;
  td_ok(tdict_clone_deep(host, TD_IN(r->memory), &td, err));
  tdict_release(host);
  return td;
}

/* Makes a tensor of random bytes on the device under test. */
static inline tdict_tensor *tensor_on(const rig *r, tdict_dtype dtype, int ndim, const int64_t *shape) {
  static uint64_t seed = 900;
  tdict_tensor *host = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, NULL, &made, err)), *t = NULL;
  td_fill_random(tdict_tensor_data(host), tdict_tensor_bytes(host), ++seed);
  if (!r->memory) return host;
  td_ok(tdict_tensor_clone(host, r->memory, &t, err));
  tdict_tensor_release(host);
  return t;
}

static inline tdict_status rig_to_host(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_clone(at->tensors[0], NULL, out, err);
}

/* Checks that the tree has the keys, shapes and elements of the model and, on the host, that no address has changed. */
static inline void rig_check(const rig *r, const m_tree *t, const tdict_tree *td) {
  scoped_tree host = NULL;
  const tdict_tree *trees[1] = {td};
  m_tree open = *t;
  if (r->memory) {
    td_ok(tdict_apply(NULL, trees, 1, rig_to_host, NULL, NULL, &host, err));
    open.locked = false;
    assert_int_equal(tdict_is_locked(td), t->locked);
  }
  m_ignore_places = r->memory != NULL;
  const char *wrong = m_check(&open, host ? host : td);
  m_ignore_places = false;
  if (wrong) fail_msg("%s", wrong);
}

static inline m_array *rig_array(tdict_dtype dtype, const m_tree *t, int extra, const int64_t *shape) {
  int64_t all[M_DIMS];
  static uint64_t seed;
  for (int i = 0; i < t->nb; i++) all[i] = t->bs[i];
  for (int i = 0; i < extra; i++) all[t->nb + i] = shape[i];
  m_array *a = m_array_make(dtype, t->nb + extra, all);
  m_array_fresh(a, seed += 100000);
  return a;
}

/* Makes a model tree with the leaves a: float32 scalars; n.b: int64 [3]; n.m.u: uint8 [2, 2]; and the empty tree e. n.m
 * has one more batch dimension than the others, of size 2: the first dimension of n.m.u. */
#define SAMPLE(...) rig_sample(COUNTS(__VA_ARGS__))
static inline m_tree *rig_sample(int nb, const int64_t *bs) {
  m_tree *t = m_tree_make(nb, bs), *n = m_tree_make(nb, bs), *m = m_tree_make(nb, bs);
  m_put(t, "a", rig_array(TDICT_F32, t, 0, NULL), NULL);
  m_put(n, "b", rig_array(TDICT_I64, n, 1, (const int64_t[]){3}), NULL);
  m->bs[m->nb++] = 2;
  m_put(m, "u", rig_array(TDICT_U8, m, 1, (const int64_t[]){2}), NULL);
  m_put(n, "m", NULL, m);
  m_put(t, "n", NULL, n);
  m_put(t, "e", NULL, m_tree_make(nb, bs));
  return t;
}

static inline m_array *rig_map_array(const m_array *a, void *user) { return m_array_map(a, user); }
static inline m_tree *rig_mapped(const m_tree *t, m_map *map) {
  m_tree *made = m_tree_each(t, map->in, map->out_ndim, map->shape, rig_map_array, map);
  made->locked = t->locked;
  return made;
}

/* Selects `count` elements of dimension `dim`, from `start` in steps of `step`. If `count` is -1, removes `dim`. */
static inline void rig_cut(m_map *map, int dim, int64_t start, int64_t step, int64_t count) {
  map->start[dim] = start;
  map->step[dim] = step;
  if (count >= 0) {
    map->shape[map->out[dim]] = count;
    return;
  }
  int gone = map->out[dim];
  map->out[dim] = -1;
  for (int d = 0; d < map->in; d++) map->out[d] -= map->out[d] > gone;
  memmove(map->shape + gone, map->shape + gone + 1, (size_t)(map->out_ndim - gone - 1) * sizeof *map->shape);
  map->out_ndim--;
}
/* Adds a dimension of size `count` to the result, before dimension `at`. */
static inline void rig_insert(m_map *map, int at, int64_t count) {
  for (int d = 0; d < map->in; d++) map->out[d] += map->out[d] >= at;
  memmove(map->shape + at + 1, map->shape + at, (size_t)(map->out_ndim - at) * sizeof *map->shape);
  map->shape[at] = count;
  map->out_ndim++;
}

/* rig_like() makes a model tree with the same keys and shapes, but new values. */
static inline m_array *rig_new_array(const m_array *a, void *user) {
  (void)user;
  m_array *made = m_array_make(a->dtype, a->ndim, a->shape);
  static uint64_t seed = 77;
  m_array_fresh(made, seed += 100000);
  return made;
}
static inline m_tree *rig_like(const m_tree *t) { return m_tree_each(t, t->nb, t->nb, t->bs, rig_new_array, NULL); }

/* Checks whether tensors at the same path of two trees share a storage, as `wanted` says. */
static inline void rig_shares(const tdict_tree *a, const tdict_tree *b, bool wanted) {
  static const char *const paths[] = {"a", "n.b", "n.m.u"};
  for (int i = 0; i < 3; i++)
    assert_int_equal(tdict_tensor_shares_storage(td_leaf(a, paths[i]), td_leaf(b, paths[i])), wanted);
}

/* Like TD_WITHOUT_MEMORY(), but also checks that failed calls leave `td` unchanged. */
#define RIG_WITHOUT_MEMORY(td, call)                    \
  do {                                                  \
    scoped_chars before_ = help_snapshot(td);           \
    TD_WITHOUT_MEMORY_THEN(call, help_is(td, before_)); \
  } while (0)

#endif
