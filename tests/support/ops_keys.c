/* Operations on keys, whole trees and locks. See ops.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/keysets.h"
#include "tdict/path.h"
#include "tdict/visit.h"
#include "tdict/write.h"

#include "support/ops.h"

static const char *const names[] = {"a", "b", "c.d", "e\\", "n", "m", "z"};
enum { NAMES = 7, MOST_WAY = 3, MOST_ARRAYS = 64 };

/* A path of random keys. */
typedef struct way {
  const char *keys[MOST_WAY];
  int count;
  char path[2 * M_KEY];
} way;

static way pick_way(ops *o) {
  way w = {.count = 1 + (int)ops_pick(o, MOST_WAY)};
  for (int i = 0; i < w.count; i++) w.keys[i] = names[ops_pick(o, NAMES)];
  tdict_path_join(w.keys, (size_t)w.count, w.path, sizeof w.path);
  return w;
}

static void op_set(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s], *last = t;
  way w = pick_way(o);
  bool through;
  m_entry *e = m_path(t, w.keys, w.count, &through, &last);
  bool shaped = ops_pick(o, 6) != 0;
  int depth = 0; /* number of existing nodes on the path */
  m_tree *node = t;
  while (depth < w.count - 1 && m_find(node, w.keys[depth]) && m_find(node, w.keys[depth])->tree)
    node = m_find(node, w.keys[depth++])->tree;
  int64_t shape[M_DIMS];
  int ndim = node->nb;
  for (int d = 0; d < ndim; d++) shape[d] = node->bs[d];
  if (!shaped) shape[ndim ? 0 : ndim] = 97;
  bool good = shaped || ndim == 0;
  if (!shaped && ndim == 0) ndim = 1;
  double elements = 1; /* an empty tree may have a huge batch size, but the model stores each element */
  for (int d = 0; d < ndim; d++) elements *= (double)shape[d];
  if (elements > 1e6) return;
  m_array *a = m_array_make(TDICT_I16, ndim, shape);
  m_array_fresh(a, 5);
  tdict_tensor *tensor = ops_tensor(a);
  tdict_status status = OPS_CALL(o, tdict_set(o->td[s], w.path, tensor, o->err));
  tdict_tensor_release(tensor);
  if (!ops_judge(o, status, through ? TDICT_ETYPE : m_is_locked(node) ? TDICT_ELOCKED : good ? TDICT_OK : TDICT_ESHAPE))
    return;
  if (e) {
    e->array = a;
    e->tree = NULL;
    return;
  }
  for (; depth < w.count - 1; depth++) node = m_put(node, w.keys[depth], NULL, m_tree_like(node))->tree;
  m_put(node, w.keys[w.count - 1], a, NULL);
}

static void op_delete(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s], *last = t;
  way w = pick_way(o);
  bool through;
  char key[M_KEY], escaped[2 * M_KEY]; /* usually an existing key */
  const char *path = w.path;
  if (t->count && ops_pick(o, 4)) {
    memcpy(key, t->entries[ops_pick(o, (uint32_t)t->count)].key, sizeof key);
    tdict_path_escape(key, escaped, sizeof escaped);
    w.keys[0] = key;
    w.count = 1;
    path = escaped;
  }
  m_entry *e = m_path(t, w.keys, w.count, &through, &last);
  tdict_status status = OPS_CALL(o, tdict_delete(o->td[s], path, o->err));
  if (ops_judge(o, status, through ? TDICT_ETYPE : !e ? TDICT_ENOTFOUND : m_is_locked(last) ? TDICT_ELOCKED : TDICT_OK))
    m_drop(last, w.keys[w.count - 1]);
}

static void op_rename(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  const char *from = names[ops_pick(o, NAMES)], *to = names[ops_pick(o, NAMES)];
  char a[32], b[32];
  tdict_path_escape(from, a, sizeof a);
  tdict_path_escape(to, b, sizeof b);
  bool safe = ops_pick(o, 2);
  m_entry *e = m_find(t, from), *there = m_find(t, to);
  tdict_status status = OPS_CALL(o, tdict_rename(o->td[s], a, b, safe, o->err));
  if (!ops_judge(o, status,
                 !e               ? TDICT_ENOTFOUND
                 : m_is_locked(t) ? TDICT_ELOCKED
                 : e == there     ? TDICT_OK
                 : there && safe  ? TDICT_EEXIST
                                  : TDICT_OK) ||
      e == there)
    return;
  if (there) m_drop(t, to);
  snprintf(m_find(t, from)->key, M_KEY, "%s", to);
}

static void lock_all(ops *o, bool lock) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  tdict_status status = TDICT_OK;
  if (lock)
    tdict_lock(o->td[s]);
  else
    status = OPS_CALL(o, tdict_unlock(o->td[s], o->err));
  if (!ops_judge(o, status, !lock && t->above ? TDICT_ELOCKED : TDICT_OK)) return;
  if (lock)
    t->locked = true;
  else
    m_unlock(t, o->model, OPS_POOL);
}
static void op_lock(ops *o) { lock_all(o, true); }
static void op_unlock(ops *o) { lock_all(o, false); }

static void op_clone(ops *o) {
  int s = ops_slot(o);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_clone(o->td[s], &td, o->err));
  if (ops_judge(o, status, TDICT_OK)) ops_keep(o, td, m_share(o->model[s]));
}

static m_array *copy_array(const m_array *a, void *user) {
  (void)user;
  return m_array_copy(a);
}

static void op_clone_deep(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_clone_deep(o->td[s], NULL, &td, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  m_tree *made = m_tree_each(t, 0, 0, NULL, copy_array, NULL);
  m_open(made);
  if (!tdict_equal(td, o->td[s]) || !tdict_equal(o->td[s], td)) { /* NaN is not equal to itself */
    tdict_difference_options same = tdict_difference_options_default();
    tdict_difference found;
    same.nan_equal = true;
    if (tdict_get_difference(td, o->td[s], &same, &found, NULL) != TDICT_OK || found.differs)
      ops_complain(o, "not equal");
  }
  ops_keep(o, td, made);
}

/* Checks that all tensors are contiguous, and lie one after another in one storage at multiples of 256 bytes. */
static void check_places(ops *o, const tdict_tree *td, const char *begin, size_t *at) {
  for (size_t i = 0; i < tdict_num_keys(td); i++) {
    const tdict_entry e = tdict_get_entry_at(td, i);
    if (e.tree) check_places(o, e.tree, begin, at);
    if (!e.tensor) continue;
    const size_t bytes = tdict_tensor_bytes(e.tensor);
    if (!tdict_tensor_is_contiguous(e.tensor)) ops_complain(o, "not in C order");
    if (bytes && (const char *)tdict_tensor_const_data(e.tensor) != begin + *at) ops_complain(o, "not in its place");
    *at += (bytes + 255) / 256 * 256;
  }
}

static void op_consolidate(ops *o) {
  int s = ops_slot(o);
  tdict_tree *td = NULL;
  tdict_tensor *bytes = NULL;
  size_t at = 0;
  tdict_status status = OPS_CALL(o, tdict_consolidate(o->td[s], NULL, &td, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  if (tdict_consolidated_bytes(td, &bytes, NULL) != TDICT_OK) abort();
  check_places(o, td, tdict_tensor_const_data(bytes), &at);
  if (at != tdict_tensor_bytes(bytes)) ops_complain(o, "the storage and its tensors differ in size");
  tdict_tensor_release(bytes);
  m_tree *made = m_tree_each(o->model[s], 0, 0, NULL, copy_array, NULL);
  m_open(made);
  made->locked = made->consolidated = true;
  ops_keep(o, td, made);
}

static void take(m_tree *to, const m_tree *from, const way *w) {
  for (int i = 0; i < w->count; i++) {
    m_entry *e = m_find(from, w->keys[i]), *there = m_find(to, w->keys[i]);
    if (i == w->count - 1) {
      m_put(to, w->keys[i], e->array, e->tree ? m_share(e->tree) : NULL);
      return;
    }
    if (!there) there = m_put(to, w->keys[i], NULL, m_tree_like(e->tree));
    from = e->tree;
    to = there->tree;
  }
}

/* Returns whether two batch sizes differ in a dimension that both have. */
static bool differs(const m_tree *t, const m_tree *under) {
  int both = t->nb < under->nb ? t->nb : under->nb;
  return both && memcmp(t->bs, under->bs, (size_t)both * sizeof *t->bs) != 0;
}

bool ops_grows(const m_tree *t, const m_tree *under) {
  return t->nb < under->nb || differs(t, under) || (under->cpu && !t->cpu);
}

static bool agrees_below(const m_tree *t, const m_tree *under) {
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    if (e->array && !m_begins_with(e->array, under)) return false;
    if (e->tree && differs(e->tree, under) && m_has_arrays(e->tree)) return false;
    if (e->tree && !agrees_below(e->tree, under)) return false;
  }
  return true;
}

tdict_status ops_agrees(const m_tree *t, const m_tree *under) {
  if (differs(t, under) && m_has_arrays(t)) return TDICT_ESHAPE;
  return !ops_grows(t, under) || agrees_below(t, under) ? TDICT_OK : TDICT_ESHAPE;
}

void ops_grow(m_tree *t, const m_tree *under) {
  if (t->nb < under->nb || differs(t, under)) t->nb = under->nb;
  memcpy(t->bs, under->bs, (size_t)under->nb * sizeof *t->bs);
  t->cpu = t->cpu || under->cpu;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) ops_grow(t->entries[i].tree, under);
}

/* Puts the result of an operation on slot `s` into the pool. Half of the time, assigns the result to a shallow clone of
 * the slot's tree, and keeps the clone instead. */
static void keep_or_assign(ops *o, int s, tdict_status status, tdict_status wanted, tdict_tree *td, m_tree *made) {
  tdict_tree *clone = NULL;
  bool keeps = ops_judge(o, status, wanted);
  if (keeps && ops_pick(o, 2) && tdict_clone(o->td[s], &clone, NULL) == TDICT_OK) {
    status = OPS_CALL(o, tdict_assign(clone, td, o->err));
    keeps = ops_judge(o, status, agrees_below(made, made) ? TDICT_OK : TDICT_ESHAPE);
    for (int i = 0; keeps && i < made->count; i++)
      if (made->entries[i].tree) ops_grow(made->entries[i].tree, made);
    tdict_release(td);
    td = clone;
  }
  if (keeps)
    ops_keep(o, td, made);
  else
    tdict_release(td);
}

static void op_select(ops *o) {
  int s = ops_slot(o), count = (int)ops_pick(o, 4);
  m_tree *t = o->model[s], *last, *made = m_tree_like(t);
  way ways[4];
  const char *paths[4];
  bool strict = ops_pick(o, 3) == 0;
  tdict_status wanted = TDICT_OK;
  for (int i = 0; i < count; i++) {
    bool through;
    ways[i] = pick_way(o);
    if (ops_pick(o, 3)) {
      ways[i].count = 1;
      tdict_path_join(ways[i].keys, 1, ways[i].path, sizeof ways[i].path);
    }
    paths[i] = ways[i].path;
    if (m_path(t, ways[i].keys, ways[i].count, &through, &last))
      take(made, t, &ways[i]);
    else if (strict && wanted == TDICT_OK)
      wanted = through ? TDICT_ETYPE : TDICT_ENOTFOUND;
  }
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_select(o->td[s], paths, (size_t)count, strict, &td, o->err));
  keep_or_assign(o, s, status, wanted, td, made);
}

static void drop_way(m_tree *t, const way *w) {
  bool through;
  m_tree *last = t;
  if (m_path(t, w->keys, w->count, &through, &last)) m_drop(last, w->keys[w->count - 1]);
}

static void op_exclude(ops *o) {
  int s = ops_slot(o), count = (int)ops_pick(o, 4);
  way ways[4];
  const char *paths[4];
  m_tree *made = m_share(o->model[s]);
  for (int i = 0; i < count; i++) {
    ways[i] = pick_way(o);
    paths[i] = ways[i].path;
    drop_way(made, &ways[i]);
  }
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_exclude(o->td[s], paths, (size_t)count, &td, o->err));
  keep_or_assign(o, s, status, TDICT_OK, td, made);
}

/* Removes child trees that have no arrays below them. */
static void drop_empty(m_tree *t) {
  int kept = 0;
  for (int i = 0; i < t->count; i++) {
    m_tree *below = t->entries[i].tree;
    if (below) drop_empty(below);
    if (!below || below->count) t->entries[kept++] = t->entries[i];
  }
  t->count = kept;
}

static void op_split_keys(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->count < 2) return;
  way a = {{t->entries[0].key}, 1, ""}, b = {{t->entries[1].key}, 1, ""};
  tdict_path_join(a.keys, 1, a.path, sizeof a.path);
  tdict_path_join(b.keys, 1, b.path, sizeof b.path);
  const char *first[1] = {a.path}, *second[1] = {b.path};
  const tdict_key_set sets[2] = {{first, 1}, {second, 1}};
  tdict_tree *made[3];
  tdict_status status = OPS_CALL(o, tdict_split_keys(o->td[s], sets, 2, made, &(size_t){3}, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  m_tree *x = m_tree_like(t), *y = m_tree_like(t), *rest = m_share(t);
  take(x, t, &a);
  take(y, t, &b);
  drop_way(rest, &a);
  drop_way(rest, &b);
  drop_empty(rest);
  ops_keep(o, made[0], x);
  ops_keep(o, made[1], y);
  ops_keep(o, made[2], rest);
}

/* Flattens the keys of a model. Returns TDICT_EEXIST for a duplicate key, and TDICT_ESHAPE for an array that does not
 * begin with the root's batch size. */
static tdict_status flatten(m_tree *to, const m_tree *t, const char *above, const char *separator) {
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    char key[2 * M_KEY];
    snprintf(key, sizeof key, "%s%s%s", above, *above ? separator : "", e->key);
    if (strlen(key) >= M_KEY) return TDICT_OK; /* impossible: keys are short, and trees are not deep */
    if (e->array && m_find(to, key)) return TDICT_EEXIST;
    if (e->array && !m_begins_with(e->array, to)) return TDICT_ESHAPE;
    if (e->array) m_put(to, key, e->array, NULL);
    tdict_status status = e->tree ? flatten(to, e->tree, key, separator) : TDICT_OK;
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static void op_flatten_keys(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  const char *separator = ops_pick(o, 2) ? NULL : "__";
  m_tree *made = m_tree_like(t);
  tdict_status wanted = flatten(made, t, "", separator ? separator : ".");
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_flatten_keys(o->td[s], separator, &td, o->err));
  keep_or_assign(o, s, status, wanted, td, made);
}

/* Puts a copy of an entry into a node. Returns the expected status. */
static tdict_status put_copy(m_tree *to, const char *key, const m_entry *e) {
  m_tree *copy = e->tree ? m_share(e->tree) : NULL;
  if (e->array && !m_begins_with(e->array, to)) return TDICT_ESHAPE;
  if (copy && ops_agrees(copy, to) != TDICT_OK) return TDICT_ESHAPE;
  if (copy && ops_grows(copy, to)) ops_grow(copy, to);
  m_put(to, key, e->array, copy);
  return TDICT_OK;
}

static tdict_status unflatten(m_tree *to, const m_entry *e, const char *separator) {
  char key[M_KEY], *part = key;
  if (!strstr(e->key, separator)) { /* an entry that is not moved is not checked */
    m_put(to, e->key, e->array, e->tree ? m_share(e->tree) : NULL);
    return TDICT_OK;
  }
  snprintf(key, sizeof key, "%s", e->key);
  for (;;) {
    char *end = strstr(part, separator);
    if (end) *end = 0;
    if (!*part) return TDICT_EINVAL;
    m_entry *there = m_find(to, part);
    if (!end) {
      if (there) return TDICT_EEXIST;
      return put_copy(to, part, e); /* `to` may have a longer batch size than the root */
    }
    if (there && there->array) return TDICT_EEXIST;
    if (!there) there = m_put(to, part, NULL, m_tree_like(to));
    to = there->tree;
    part = end + strlen(separator);
  }
}

/* Places an entry after all entries whose keys are prefixes of its key. */
static tdict_status unflatten_in_turn(m_tree *to, const m_tree *t, int i, const char *separator, bool *placed) {
  const char *key = t->entries[i].key;
  tdict_status status = TDICT_OK;
  for (const char *end = key; status == TDICT_OK && (end = strstr(end, separator)) != NULL; end += strlen(separator))
    for (int k = 0; k < t->count && status == TDICT_OK; k++)
      if (strlen(t->entries[k].key) == (size_t)(end - key) && strncmp(t->entries[k].key, key, (size_t)(end - key)) == 0)
        status = unflatten_in_turn(to, t, k, separator, placed);
  if (status != TDICT_OK || placed[i]) return status;
  placed[i] = true;
  return unflatten(to, &t->entries[i], separator);
}

static void op_unflatten_keys(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  const char *separator = ops_pick(o, 2) ? NULL : "__";
  m_tree *made = m_tree_like(t);
  tdict_status wanted = TDICT_OK;
  bool *placed = calloc((size_t)t->count + 1, sizeof *placed);
  if (!placed) return;
  const char *between = separator ? separator : ".";
  for (int i = 0; i < t->count && wanted == TDICT_OK; i++) /* keys without the separator come first */
    if (!strstr(t->entries[i].key, between)) wanted = unflatten_in_turn(made, t, i, between, placed);
  for (int i = 0; i < t->count && wanted == TDICT_OK; i++) wanted = unflatten_in_turn(made, t, i, between, placed);
  free(placed);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_unflatten_keys(o->td[s], separator, &td, o->err));
  keep_or_assign(o, s, status, wanted, td, made);
}

/* Merges `from` into `to`. `from` must be a copy, because a node of `to` may also be in the source. */
static tdict_status merge(m_tree *to, const m_tree *from) {
  for (int i = 0; i < from->count; i++) {
    const m_entry *e = &from->entries[i];
    m_entry *there = m_find(to, e->key);
    tdict_status status = TDICT_OK;
    if (there && there->tree && e->tree) {
      if (there->tree != e->tree->original) status = merge(there->tree, e->tree);
    } else {
      status = m_is_locked(to) ? TDICT_ELOCKED : put_copy(to, e->key, e);
    }
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

/* A copy of all nodes of a tree, to undo changes. */
enum { MOST_NODES = 512 };
typedef struct saved {
  m_tree *nodes[MOST_NODES], was[MOST_NODES];
  int count;
} saved;

static void save(saved *all, m_tree *t) {
  for (int i = 0; i < all->count; i++)
    if (all->nodes[i] == t) return;
  if (all->count == MOST_NODES) abort();
  m_tree *was = &all->was[all->count];
  all->nodes[all->count++] = t;
  *was = *t;
  was->entries = m_alloc((size_t)t->cap * sizeof *t->entries);
  if (t->count) memcpy(was->entries, t->entries, (size_t)t->count * sizeof *t->entries);
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) save(all, t->entries[i].tree);
}

static void op_update(ops *o) {
  static saved before;
  int s = ops_slot(o), f = ops_slot(o);
  before.count = 0;
  save(&before, o->model[s]);
  tdict_status wanted = s == f ? TDICT_OK : merge(o->model[s], m_share(o->model[f]));
  tdict_status status = OPS_CALL(o, tdict_update(o->td[s], o->td[f], NULL, 0, o->err));
  if (ops_judge(o, status, wanted)) return;
  for (int i = 0; i < before.count; i++) *before.nodes[i] = before.was[i];
}

static void op_merge(ops *o) {
  int a = ops_slot(o), b = ops_slot(o);
  m_tree *made = m_share(o->model[a]);
  tdict_status wanted = merge(made, m_share(o->model[b]));
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_clone(o->td[a], &td, o->err));
  if (status == TDICT_OK) status = OPS_CALL(o, tdict_update(td, o->td[b], NULL, 0, o->err));
  if (ops_judge(o, status, wanted))
    ops_keep(o, td, made);
  else
    tdict_release(td);
}

static bool is_wide(void *user, const tdict_leaves *at) {
  (void)user;
  return tdict_dtype_bytes(tdict_tensor_dtype(at->tensors[0])) > 1;
}

static void keep_wide(m_tree *t) {
  for (int i = t->count - 1; i >= 0; i--) {
    m_entry *e = &t->entries[i];
    if (e->tree) keep_wide(e->tree);
    if (e->array && e->array->dtype == TDICT_U8) m_drop(t, e->key);
  }
}

static void op_filter(ops *o) {
  int s = ops_slot(o);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_filter(o->td[s], is_wide, NULL, &td, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  m_tree *made = m_share(o->model[s]);
  keep_wide(made);
  ops_keep(o, td, made);
}

static void op_apply(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  const tdict_tree *trees[2] = {o->td[s], o->td[s]};
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_apply(NULL, trees, 2, ops_copy_leaf, NULL, NULL, &td, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  m_tree *made = m_tree_each(t, 0, 0, NULL, copy_array, NULL);
  m_open(made);
  ops_keep(o, td, made);
}

const ops_fn ops_keys[] = {op_set,        op_delete, op_rename,  op_lock,       op_unlock,       op_clone,
                           op_clone_deep, op_select, op_exclude, op_split_keys, op_flatten_keys, op_unflatten_keys,
                           op_update,     op_merge,  op_filter,  op_apply,      op_consolidate};
const char *const ops_key_names[] = {"set",        "delete", "rename",  "lock",       "unlock",       "clone",
                                     "clone_deep", "select", "exclude", "split_keys", "flatten_keys", "unflatten_keys",
                                     "update",     "merge",  "filter",  "apply",      "consolidate"};
const int ops_num_keys = sizeof ops_keys / sizeof *ops_keys;
