/* Operations on lazy stacks of pool trees and similar trees. Compares results with the items and their models: see
 * ops.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops.h"
#include "tdict/path.h"

enum { MOST_ARRAYS = 64, MOST_ENTRIES = 128, MOST_PATH = 1024 };

static void must(bool ok) {
  if (!ok) abort();
}

void ops_check_tree(ops *o, const m_tree *model, const tdict_tree *td) {
  m_ignore_places = true;
  const char *wrong = m_check(model, td);
  m_ignore_places = false;
  if (wrong) ops_complain(o, wrong);
}

void ops_check_tensor(ops *o, const m_array *a, tdict_tensor *t) {
  scoped_tree td = NULL;
  m_tree *model = m_tree_make(0, NULL);
  m_put(model, "tensor", (m_array *)(uintptr_t)a, NULL);
  must(tdict_create(0, NULL, &td, NULL) == TDICT_OK && tdict_set(td, "tensor", t, NULL) == TDICT_OK);
  ops_check_tree(o, model, td);
}

m_array *ops_array_at(const m_tree *t, const char *path) {
  static char paths[MOST_ARRAYS][2 * M_KEY];
  m_array *list[MOST_ARRAYS];
  for (int i = m_arrays(t, list, paths, MOST_ARRAYS); i > 0; i--)
    if (strcmp(paths[i - 1], path) == 0) return list[i - 1];
  return NULL;
}

/* Returns a tree like `t` with new values. `varies` says what else may differ. */
static m_tree *vary(ops *o, const m_tree *t, int varies) {
  m_tree *made = m_tree_make(t->nb, t->bs);
  for (int i = t->count - 1; i >= 0; i--) { /* in reverse order */
    const m_entry *e = &t->entries[i];
    if ((varies & OPS_VARY_KEYS) && ops_pick(o, 8) == 0) continue;
    if (e->tree) {
      m_put(made, e->key, NULL, vary(o, e->tree, varies));
      continue;
    }
    int64_t shape[M_DIMS];
    const int rest = e->array->ndim - t->nb;
    memcpy(shape, e->array->shape, sizeof shape);
    if ((varies & OPS_VARY_SHAPES) && rest > 0 && ops_pick(o, 2) == 0)
      shape[t->nb + (int)ops_pick(o, (uint32_t)rest)] = ops_pick(o, 4);
    const bool is_other = (varies & OPS_VARY_DTYPES) && ops_pick(o, 8) == 0;
    m_array *a = m_array_make(is_other ? TDICT_I16 : e->array->dtype, e->array->ndim, shape);
    m_array_fresh(a, ops_pick(o, 1000));
    m_put(made, e->key, a, NULL);
  }
  if ((varies & OPS_VARY_KEYS) && ops_pick(o, 4) == 0) m_put(made, "own", NULL, m_tree_make(t->nb, t->bs));
  return made;
}

static bool have_equal_batch_sizes(const m_tree *a, const m_tree *b) {
  return a->nb == b->nb && (a->nb == 0 || memcmp(a->bs, b->bs, (size_t)a->nb * sizeof *a->bs) == 0);
}

static void add_item(ops_pile *p, m_tree *model, tdict_tree *td) {
  p->models[p->count] = model;
  p->trees[p->count++] = td;
}

bool ops_begin_pile_with(ops *o, ops_pile *p, m_tree *model, tdict_tree *td, int varies) {
  memset(p, 0, sizeof *p);
  if (model->nb > OPS_MOST_DIMS - 1 || ops_cells(model) > OPS_MOST_CELLS / OPS_MOST_ITEMS) return false;
  add_item(p, model, tdict_retain(td));
  for (int more = (int)ops_pick(o, OPS_MOST_ITEMS); more > 0; more--) {
    if (ops_pick(o, 5) == 0) { /* add the same tree again */
      add_item(p, model, tdict_retain(td));
      continue;
    }
    m_tree *other = vary(o, model, varies);
    add_item(p, other, ops_tree(other));
  }
  must(tdict_lazy_stack_create(p->trees, (size_t)p->count, &p->lazy, NULL) == TDICT_OK);
  return true;
}

bool ops_begin_pile(ops *o, ops_pile *p, int varies) {
  const int s = ops_slot(o);
  return ops_begin_pile_with(o, p, o->model[s], o->td[s], varies);
}

void ops_end_pile(ops *o, ops_pile *p) {
  for (int i = 0; i < p->count; i++) {
    const char *wrong = m_check(p->models[i], p->trees[i]);
    if (wrong) ops_complain(o, wrong);
    tdict_release(p->trees[i]);
  }
  tdict_lazy_stack_release(p->lazy);
}

/* Checks that the stack has exactly these items, in this order. */
static void check_items(ops *o, const tdict_lazy_stack *lazy, tdict_tree *const *items, int count) {
  const int nb = tdict_batch_ndim(items[0]);
  int ndim;
  const int64_t *bs = tdict_lazy_stack_get_batch_size(lazy, &ndim);
  if (ndim != nb + 1 || bs[0] != count ||
      (nb && memcmp(bs + 1, tdict_batch_size(items[0]), (size_t)nb * sizeof *bs) != 0)) {
    ops_complain(o, "another batch size");
    return;
  }
  for (int64_t i = -count - 1; i <= count; i++) {
    tdict_tree *found = NULL;
    const bool is_there = i >= -count && i < count;
    tdict_status status = tdict_lazy_stack_get_item(lazy, i, &found, NULL);
    if (status != (is_there ? TDICT_OK : TDICT_EINVAL)) ops_complain(o, "get_item returned another status");
    if (is_there && found != items[i < 0 ? i + count : i]) ops_complain(o, "another item");
  }
}

static void op_create(ops *o) {
  tdict_tree *items[OPS_MOST_ITEMS];
  const int count = (int)ops_pick(o, OPS_MOST_ITEMS + 1);
  const m_tree *first = NULL;
  tdict_status wanted = count ? TDICT_OK : TDICT_EINVAL;
  scoped_lazy_stack lazy = NULL;
  for (int i = 0; i < count; i++) {
    const int s = i && ops_pick(o, 2) ? (int)(items[0] == o->td[0] ? 0 : 1) : ops_slot(o);
    items[i] = o->td[s];
    if (!first) first = o->model[s];
    if (!have_equal_batch_sizes(first, o->model[s])) wanted = TDICT_ESHAPE;
  }
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_create(items, (size_t)count, &lazy, o->err));
  if (ops_judge(o, status, wanted)) check_items(o, lazy, items, count);
}

static void op_insert(ops *o) {
  ops_pile p;
  if (!ops_begin_pile(o, &p, OPS_VARY_KEYS | OPS_VARY_SHAPES | OPS_VARY_DTYPES)) return;
  const int s = ops_slot(o);
  const bool appends = ops_pick(o, 3) == 0;
  const int64_t at = appends ? p.count : (int64_t)ops_pick(o, 2 * (uint32_t)p.count + 3) - p.count - 1;
  const bool is_there = at >= -p.count && at <= p.count, fits = have_equal_batch_sizes(p.models[0], o->model[s]);
  bool are_locked = true;
  for (int i = 0; i < p.count; i++) are_locked = are_locked && m_is_locked(p.models[i]);
  tdict_tree *items[OPS_MOST_ITEMS + 1];
  memcpy(items, p.trees, sizeof p.trees);
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_insert(p.lazy, at, o->td[s], o->err));
  const bool is_done = ops_judge(o, status,
                                 !is_there    ? TDICT_EINVAL
                                 : are_locked ? TDICT_ELOCKED
                                 : fits       ? TDICT_OK
                                              : TDICT_ESHAPE);
  if (is_done) {
    const int64_t place = at < 0 ? at + p.count : at;
    memmove(items + place + 1, items + place, (size_t)(p.count - place) * sizeof *items);
    items[place] = o->td[s];
  }
  check_items(o, p.lazy, items, p.count + is_done);
  ops_end_pile(o, &p);
}

/* Chooses a path: usually that of an array or a child of a random item, otherwise a fixed path. */
static void pick_path(ops *o, const ops_pile *p, char path[2 * M_KEY]) {
  static char paths[MOST_ARRAYS][2 * M_KEY];
  m_array *list[MOST_ARRAYS];
  const m_tree *t = p->models[ops_pick(o, (uint32_t)p->count)];
  const int count = m_arrays(t, list, paths, MOST_ARRAYS);
  const uint32_t way = ops_pick(o, 6), at = ops_pick(o, 64);
  snprintf(path, 2 * M_KEY, "%s", way == 0 ? "z" : way == 1 ? "a.m" : "n");
  if (way > 2 && count) memcpy(path, paths[at % (uint32_t)count], sizeof *paths);
  if (way == 2 && t->count) tdict_path_escape(t->entries[at % (uint32_t)t->count].key, path, 2 * M_KEY);
}

/* Returns the expected status of stacking the arrays that items 0 and `i` have at a path. */
static tdict_status compare_shapes(const ops_pile *p, int i, const char *path) {
  const m_array *a = ops_array_at(p->models[i], path), *first = ops_array_at(p->models[0], path);
  if (!a || !first) abort();
  if (a->ndim != first->ndim || !m_same_shape(a, first)) return TDICT_ESHAPE;
  return a->dtype != first->dtype ? TDICT_EDTYPE : TDICT_OK;
}

enum { GET, GET_TREE, GETTERS };
/* Returns the expected status of reading a path: the status of the first item that fails. */
static tdict_status expect_entries(const ops_pile *p, const char *path, uint32_t way, tdict_tree **children) {
  for (int i = 0; i < p->count; i++) {
    tdict_tensor *t;
    tdict_status status = way == GET_TREE ? tdict_get_tree(p->trees[i], path, &children[i], NULL)
                                          : tdict_get(p->trees[i], path, &t, NULL);
    if (status == TDICT_OK && way == GET) status = compare_shapes(p, i, path);
    if (status != TDICT_OK) return status;
  }
  for (int i = 0; way == GET_TREE && i < p->count; i++)
    if (tdict_batch_ndim(children[i]) != tdict_batch_ndim(children[0]) ||
        memcmp(tdict_batch_size(children[i]), tdict_batch_size(children[0]),
               (size_t)tdict_batch_ndim(children[0]) * sizeof(int64_t)) != 0)
      return TDICT_ESHAPE;
  return TDICT_OK;
}

m_array *ops_join_items(const ops_pile *p, const char *path) {
  const m_array *first = ops_array_at(p->models[0], path);
  int64_t shape[M_DIMS] = {p->count};
  memcpy(shape + 1, first->shape, (size_t)first->ndim * sizeof *shape);
  m_array *made = m_array_make(first->dtype, first->ndim + 1, shape);
  for (int i = 0; i < p->count; i++)
    for (int64_t k = 0; k < first->n; k++) made->cells[i * first->n + k] = ops_array_at(p->models[i], path)->cells[k];
  return made;
}

static void op_entries(ops *o) {
  ops_pile p;
  if (!ops_begin_pile(o, &p, ops_pick(o, 2) ? 0 : OPS_VARY_KEYS | OPS_VARY_SHAPES | OPS_VARY_DTYPES)) return;
  const uint32_t way = ops_pick(o, GETTERS);
  char path[2 * M_KEY];
  tdict_tensor *made = NULL;
  tdict_tree *children[OPS_MOST_ITEMS];
  tdict_lazy_stack *lazy = NULL;
  pick_path(o, &p, path);
  tdict_status wanted = expect_entries(&p, path, way, children);
  tdict_status status = OPS_CALL(o, way == GET ? tdict_lazy_stack_get(p.lazy, path, NULL, &made, o->err)
                                               : tdict_lazy_stack_get_tree(p.lazy, path, &lazy, o->err));
  if (ops_judge(o, status, wanted)) {
    if (way == GET) ops_check_tensor(o, ops_join_items(&p, path), made);
    if (way == GET_TREE) check_items(o, lazy, children, p.count);
  }
  tdict_tensor_release(made);
  tdict_lazy_stack_release(lazy);
  ops_end_pile(o, &p);
}

/* Sets an array at a path in the model, unless `checks_only`. Returns the status that tdict_set() must return. */
static tdict_status put_at(m_tree *t, const char *const *keys, int count, m_array *a, bool checks_only) {
  int depth = 0; /* number of existing nodes on the path */
  bool through;
  m_tree *last = t;
  (void)m_path(t, keys, count, &through, &last);
  if (through) return TDICT_ETYPE;
  for (m_entry *e; depth < count - 1 && (e = m_find(t, keys[depth])) && e->tree; depth++) t = e->tree;
  if (!m_begins_with(a, t)) return TDICT_ESHAPE;
  if (m_is_locked(t)) return TDICT_ELOCKED;
  if (checks_only) return TDICT_OK;
  for (; depth < count - 1; depth++) t = m_put(t, keys[depth], NULL, m_tree_like(t))->tree;
  m_put(t, keys[count - 1], a, NULL);
  return TDICT_OK;
}

static m_array *element_of(const m_array *a, int64_t i) {
  m_map map = m_map_whole(1, a->shape);
  map.out[0] = -1;
  map.start[0] = i;
  map.out_ndim = 0;
  return m_array_map(a, &map);
}

static void op_set(ops *o) {
  static const char *const names[] = {"a", "n", "c.d", "own", "z"};
  ops_pile p;
  if (!ops_begin_pile(o, &p, OPS_VARY_KEYS)) return;
  const char *keys[] = {names[ops_pick(o, 5)], names[ops_pick(o, 5)]};
  const int count = 1 + (int)ops_pick(o, 2), nb = p.models[0]->nb;
  char path[64];
  int64_t shape[M_DIMS] = {p.count - (ops_pick(o, 12) == 0)};
  memcpy(shape + 1, p.models[0]->bs, (size_t)nb * sizeof *shape);
  shape[nb + 1] = 2;
  double elements = 2; /* an empty tree may have a huge batch size, but the model stores each element */
  for (int d = 0; d <= nb; d++) elements *= (double)shape[d];
  if (elements > OPS_MOST_CELLS) {
    ops_end_pile(o, &p);
    return;
  }
  m_array *a = m_array_make(TDICT_F32, nb + 1 + (int)ops_pick(o, 2), shape), *parts[OPS_MOST_ITEMS];
  m_array_fresh(a, ops_pick(o, 1000));
  tdict_tensor *tensor = ops_tensor(a);
  tdict_path_join(keys, (size_t)count, path, sizeof path);
  tdict_status wanted = shape[0] == p.count ? TDICT_OK : TDICT_ESHAPE;
  for (int i = 0; i < p.count && wanted == TDICT_OK; i++) {
    parts[i] = element_of(a, i);
    wanted = put_at(p.models[i], keys, count, parts[i], true);
  }
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_set(p.lazy, path, tensor, o->err));
  if (ops_judge(o, status, wanted))
    for (int i = 0; i < p.count; i++) (void)!put_at(p.models[i], keys, count, parts[i], false);
  tdict_tensor_release(tensor);
  ops_end_pile(o, &p);
}

/* An entry that all items have. Entries are in the order of the first item. */
typedef struct common_entry {
  char path[MOST_PATH];
  int depth;
  tdict_lazy_kind kind;
} common_entry;
typedef struct walk {
  const ops_pile *p;
  common_entry entries[MOST_ENTRIES];
  int count, seen, left; /* left: number of visits until the visitor fails */
  bool is_full;
  const char *wrong;
} walk;

static void list_common(walk *w, const m_tree *const *nodes, const char *above, int depth) {
  for (int i = 0; i < nodes[0]->count && !w->is_full; i++) {
    const m_entry *e = &nodes[0]->entries[i];
    const m_tree *children[OPS_MOST_ITEMS];
    bool is_common = true, trees = e->tree != NULL, is_mixed = false;
    for (int k = 0; k < w->p->count; k++) {
      const m_entry *there = m_find(nodes[k], e->key);
      is_common = is_common && there;
      children[k] = there ? there->tree : NULL;
      trees = trees && children[k];
      is_mixed = is_mixed || (there && !there->tree != !e->tree);
    }
    if (!is_common) continue;
    common_entry *made = &w->entries[w->count];
    const size_t length = strlen(above);
    w->is_full = w->count == MOST_ENTRIES - 1 || length > MOST_PATH - 2 * M_KEY - 2;
    if (w->is_full) return;
    w->count++;
    memcpy(made->path, above, length + 1);
    if (length) strcat(made->path, ".");
    tdict_path_escape(e->key, made->path + strlen(made->path), 2 * M_KEY);
    made->depth = depth;
    made->kind = is_mixed ? TDICT_LAZY_MIXED : trees ? TDICT_LAZY_TREES : TDICT_LAZY_TENSORS;
    if (trees) list_common(w, children, made->path, depth + 1);
  }
}

static tdict_status visit(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  walk *w = user;
  const common_entry *wanted = &w->entries[w->seen];
  (void)err;
  if (w->seen == w->left) return TDICT_EHOOK;
  if (w->seen++ == w->count || strcmp(entry->path, wanted->path) != 0 || entry->depth != wanted->depth ||
      entry->kind != wanted->kind || entry->count != (size_t)w->p->count) {
    w->wrong = "another entry";
    return TDICT_EHOOK;
  }
  if ((entry->tensors != NULL) != (wanted->kind == TDICT_LAZY_TENSORS)) w->wrong = "tensors";
  for (int i = 0; entry->tensors && i < w->p->count; i++) {
    tdict_tensor *t = NULL;
    if (tdict_get(w->p->trees[i], entry->path, &t, NULL) != TDICT_OK || t != entry->tensors[i])
      w->wrong = "another tensor";
  }
  return TDICT_OK;
}

static void op_walk(ops *o) {
  static walk w;
  ops_pile p;
  if (!ops_begin_pile(o, &p, OPS_VARY_KEYS | OPS_VARY_SHAPES)) return;
  memset(&w, 0, sizeof w);
  w.p = &p;
  list_common(&w, (const m_tree *const *)p.models, "", 0);
  w.left = ops_pick(o, 3) ? MOST_ENTRIES : (int)ops_pick(o, 6);
  if (!w.is_full) {
    tdict_status status = OPS_CALL(o, tdict_lazy_stack_walk(p.lazy, visit, &w, o->err));
    if (w.wrong) ops_complain(o, w.wrong);
    if (ops_judge(o, status, w.left < w.count ? TDICT_EHOOK : TDICT_OK) && w.seen != w.count)
      ops_complain(o, "fewer entries");
  }
  ops_end_pile(o, &p);
}

const ops_fn ops_stacks[] = {op_create, op_insert, op_entries, op_set, op_walk};
const char *const ops_stack_names[] = {"lazy_create", "lazy_insert", "lazy_entries", "lazy_set", "lazy_walk"};
const int ops_num_stacks = sizeof ops_stacks / sizeof *ops_stacks;
