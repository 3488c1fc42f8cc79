/* Operations that write elements, and operations that make one tree from several. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/write.h"

#include "support/ops.h"
#include "support/run.h"

/* Returns whether no cell occurs twice. */
static bool distinct(const m_array *a) {
  for (int64_t i = 0; i < a->n; i++)
    for (int64_t j = i + 1; j < a->n; j++)
      if (a->cells[i] == a->cells[j]) return false;
  return true;
}

static m_array *new_like(ops *o, const m_array *a) {
  m_array *made = m_array_make(a->dtype, a->ndim, a->shape);
  m_array_fresh(made, ops_pick(o, 1000));
  return made;
}

enum { MOST_ARRAYS = 64 };
typedef struct arrays {
  m_array *list[MOST_ARRAYS];
  char paths[MOST_ARRAYS][2 * M_KEY];
  int count;
} arrays;

static void op_write(ops *o) {
  static arrays all;
  int s = ops_slot(o);
  all.count = m_arrays(o->model[s], all.list, all.paths, MOST_ARRAYS);
  if (!all.count) return;
  int at = (int)ops_pick(o, (uint32_t)all.count);
  m_array *to = all.list[at], *from = new_like(o, to);
  if (!distinct(to)) return;
  uint32_t fault = ops_pick(o, 8);
  tdict_status wanted = TDICT_OK;
  if (fault == 0) {
    from->dtype = from->dtype == TDICT_F64 ? TDICT_U8 : TDICT_F64;
    wanted = TDICT_EDTYPE;
  } else if (fault == 1) {
    from = m_array_make(to->dtype, 1, (const int64_t[]){99});
    m_array_zero(from);
    wanted = TDICT_ESHAPE;
  }
  scoped_tensor value = ops_tensor(from);
  tdict_status status = OPS_CALL(o, tdict_write(o->td[s], all.paths[at], NULL, value, o->err));
  if (ops_judge(o, status, wanted))
    for (int64_t i = 0; i < to->n; i++) m_write(to->cells[i], m_value(from->cells[i]));
}

static void op_write_at(ops *o) {
  static arrays all;
  int s = ops_slot(o);
  all.count = m_arrays(o->model[s], all.list, all.paths, MOST_ARRAYS);
  if (!all.count) return;
  int k = (int)ops_pick(o, (uint32_t)all.count);
  m_array *to = all.list[k];
  if (!distinct(to) || to->ndim == 0) return;
  int64_t at = ops_pick(o, (uint32_t)to->shape[0] + 1);
  m_map map = m_map_whole(1, to->shape);
  map.out[0] = -1;
  map.start[0] = at;
  map.out_ndim = 0;
  bool good = at < to->shape[0];
  m_array *part = good ? m_array_map(to, &map) : to;
  m_array *from = new_like(o, part);
  scoped_tensor value = ops_tensor(from);
  tdict_status status = OPS_CALL(o, tdict_write(o->td[s], all.paths[k], TDICT_INDEX(TDICT_AT(at)), value, o->err));
  if (ops_judge(o, status, good ? TDICT_OK : TDICT_EINVAL))
    for (int64_t i = 0; i < part->n; i++) m_write(part->cells[i], m_value(from->cells[i]));
}

uint64_t ops_number(tdict_dtype dtype, int value) {
  float single = (float)value;
  uint64_t bits = 0;
  if (dtype == TDICT_F32)
    memcpy(&bits, &single, sizeof single);
  else
    bits = (uint64_t)(int64_t)value;
  const size_t bytes = tdict_dtype_bytes(dtype);
  return bytes == 8 ? bits : bits & (((uint64_t)1 << 8 * bytes) - 1);
}

static void op_fill(ops *o) {
  static arrays all;
  int s = ops_slot(o), value = (int)ops_pick(o, 300) - 20;
  if (ops_pick(o, 3) == 0) value = 0;
  all.count = m_arrays(o->model[s], all.list, all.paths, MOST_ARRAYS);
  bool good = true, one = all.count && ops_pick(o, 2);
  int at = one ? (int)ops_pick(o, (uint32_t)all.count) : 0, end = one ? at + 1 : all.count;
  for (int i = at; i < end; i++) good = good && !(all.list[i]->dtype == TDICT_U8 && (value < 0 || value > 255));
  tdict_status status =
      OPS_CALL(o, !one && value == 0 ? tdict_fill(o->td[s], NULL, 0, NULL, o->err)
                                     : tdict_fill(o->td[s], one ? all.paths[at] : NULL, value, NULL, o->err));
  if (!ops_judge(o, status, good ? TDICT_OK : TDICT_EOVERFLOW)) return;
  for (int i = at; i < end; i++)
    for (int64_t k = 0; k < all.list[i]->n; k++) m_write(all.list[i]->cells[k], ops_number(all.list[i]->dtype, value));
}

/* Returns a tree like `t` with new values. If `part` is true, leaves out some keys. */
static m_tree *like(ops *o, const m_tree *t, bool part) {
  m_tree *made = m_tree_make(t->nb, t->bs);
  for (int i = t->count - 1; i >= 0; i--) { /* in reverse order */
    const m_entry *e = &t->entries[i];
    if (part && ops_pick(o, 3) == 0) continue;
    m_put(made, e->key, e->array ? new_like(o, e->array) : NULL, e->tree ? like(o, e->tree, part) : NULL);
  }
  return made;
}

bool ops_all_distinct(const m_tree *t) {
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].array ? !distinct(t->entries[i].array) : !ops_all_distinct(t->entries[i].tree)) return false;
  return true;
}

static void write_tree(const m_tree *to, const m_tree *from) {
  for (int i = 0; i < from->count; i++) {
    const m_entry *e = &from->entries[i], *there = m_find(to, e->key);
    for (int64_t k = 0; e->array && k < there->array->n; k++)
      m_write(there->array->cells[k], m_value(e->array->cells[k]));
    if (e->tree) write_tree(there->tree, e->tree);
  }
}

static void op_copy(ops *o) {
  int s = ops_slot(o);
  uint32_t way = ops_pick(o, 4);
  m_tree *t = o->model[s];
  if (!ops_all_distinct(t)) return;
  m_tree *value = like(o, t, way == 1);
  tdict_status wanted = TDICT_OK;
  if (way == 3) {
    m_put(value, "extra", NULL, m_tree_make(t->nb, t->bs));
    wanted = TDICT_ENOTFOUND;
  }
  scoped_tree td = ops_tree(value);
  tdict_status status = OPS_CALL(o, way == 0 ? tdict_copy(o->td[s], td, NULL, o->err)
                                             : tdict_update_in_place(o->td[s], td, NULL, 0, o->err));
  if (ops_judge(o, status, wanted)) write_tree(t, value);
}

static void op_copy_self(ops *o) {
  int s = ops_slot(o);
  tdict_status status = OPS_CALL(o, tdict_update_in_place(o->td[s], o->td[s], NULL, 0, o->err));
  ops_judge(o, status, TDICT_OK);
}

/* A join of trees with the same keys. */
typedef struct joining {
  const m_tree *const *items;
  int count, dim;
  bool stacks;
} joining;

m_array *ops_joined_array(const m_array *const *parts, int count, int dim, bool stacks) {
  const m_array *first = parts[0];
  int64_t shape[M_DIMS], sum = 0, inner = 1, outer = 1;
  int ndim = first->ndim + stacks;
  for (int i = 0; i < count; i++) sum += stacks ? 1 : parts[i]->shape[dim];
  for (int d = 0; d < ndim; d++) {
    shape[d] = d == dim ? sum : first->shape[d - (stacks && d > dim)];
    if (d < dim) outer *= shape[d];
    if (d > dim) inner *= shape[d];
  }
  m_array *made = m_array_make(first->dtype, ndim, shape);
  int64_t at = 0;
  for (int64_t k = 0; k < outer; k++)
    for (int i = 0; i < count; i++) {
      int64_t run = inner * (stacks ? 1 : parts[i]->shape[dim]);
      for (int64_t e = 0; e < run; e++) made->cells[at++] = parts[i]->cells[k * run + e];
    }
  return m_array_copy(made);
}

/* Sets the batch size of `out`, the root of the result. */
static void join_counts(const joining *j, m_tree *out) {
  const m_tree *first = j->items[0];
  int64_t sum = 0;
  for (int i = 0; i < j->count; i++) sum += j->stacks ? 1 : j->items[i]->bs[j->dim];
  out->nb = first->nb + j->stacks;
  for (int d = 0; d < out->nb; d++) out->bs[d] = d == j->dim ? sum : first->bs[d - (j->stacks && d > j->dim)];
}

/* Joins the nodes at one path, one node from each tree. `root` has the batch size of the result. */
static m_tree *join_nodes(const m_tree *const *nodes, const joining *j, const m_tree *root) {
  const m_tree *first = nodes[0];
  m_tree *made = m_tree_like(first);
  m_replace_dims(made, first, j->items[0], j->items[0]->nb, root->nb, root->bs);
  for (int i = 0; i < first->count; i++) {
    const m_entry *e = &first->entries[i];
    const m_array *arrays_there[4];
    const m_tree *trees_there[4];
    for (int k = 0; k < j->count; k++) {
      const m_entry *there = m_find(nodes[k], e->key);
      arrays_there[k] = there->array;
      trees_there[k] = there->tree;
    }
    m_put(made, e->key, e->array ? ops_joined_array(arrays_there, j->count, j->dim, j->stacks) : NULL,
          e->tree ? join_nodes(trees_there, j, root) : NULL);
  }
  return made;
}

static m_tree *join_trees(const joining *j) {
  m_tree root = {0};
  join_counts(j, &root);
  return join_nodes(j->items, j, &root);
}

m_tree *ops_stacked(const m_tree *const *items, int count) {
  const joining j = {items, count, 0, true};
  return join_trees(&j);
}

/* Joins a tree in which some arrays do not begin with the batch size. The call must return TDICT_ESHAPE. */
static void join_misfit(ops *o, int s, bool stacks, bool into) {
  const tdict_tree *items[2] = {o->td[s], o->td[s]};
  tdict_join_options options = td_with(tdict_join_options, dim = (int32_t)ops_pick(o, (uint32_t)o->model[s]->nb));
  const size_t count = into ? 1 : 1 + ops_pick(o, 2);
  tdict_tree *td = NULL;
  tdict_status status;
  if (into) {
    td = ops_tree(o->model[s]);
    status = OPS_CALL(o, tdict_cat_into(td, items, count, &options, NULL, o->err));
    tdict_release(td);
  } else {
    status = OPS_CALL(o, stacks ? tdict_stack(items, count, &options, NULL, &td, o->err)
                                : tdict_cat(items, count, &options, NULL, &td, o->err));
  }
  ops_judge(o, status, TDICT_ESHAPE);
}

static void join(ops *o, bool stacks, bool into) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->nb > 4 || ops_cells(t) > OPS_MOST_CELLS / 3) return;
  int count = 1 + (int)ops_pick(o, 3), dim = (int)ops_pick(o, (uint32_t)(t->nb + stacks));
  if (!stacks && t->nb == 0) return;
  if (!m_fits(t)) {
    join_misfit(o, s, stacks, into);
    return;
  }
  const m_tree *models[4] = {t};
  const tdict_tree *trees[4] = {o->td[s]};
  for (int i = 1; i < count; i++) {
    models[i] = like(o, t, false);
    trees[i] = ops_tree(models[i]);
  }
  const joining j = {models, count, dim, stacks};
  tdict_join_options options = td_with(tdict_join_options, dim = ops_pick(o, 2) ? dim : dim - t->nb - stacks);
  m_tree *made = join_trees(&j), *out = into ? like(o, made, false) : NULL;
  tdict_tree *td = out ? ops_tree(out) : NULL;
  tdict_status status;
  if (into)
    status = OPS_CALL(o, stacks ? tdict_stack_into(td, trees, (size_t)count, &options, NULL, o->err)
                                : tdict_cat_into(td, trees, (size_t)count, &options, NULL, o->err));
  else
    status = OPS_CALL(o, stacks ? tdict_stack(trees, (size_t)count, &options, NULL, &td, o->err)
                                : tdict_cat(trees, (size_t)count, &options, NULL, &td, o->err));
  bool good = ops_judge(o, status, TDICT_OK);
  if (good && into) write_tree(out, made);
  if (good)
    ops_keep(o, td, into ? out : made);
  else if (into)
    tdict_release(td);
  for (int i = 1; i < count; i++) tdict_release((tdict_tree *)(uintptr_t)trees[i]);
}

static void op_stack(ops *o) { join(o, true, false); }
static void op_cat(ops *o) { join(o, false, false); }
static void op_stack_into(ops *o) { join(o, true, true); }
static void op_cat_into(ops *o) { join(o, false, true); }

static void op_stack_refused(ops *o) {
  int s = ops_slot(o);
  m_tree *other = like(o, o->model[s], false);
  if (ops_pick(o, 2) == 0 || other->count == 0 || !m_fits(other)) /* else the call might fail with TDICT_ESHAPE first */
    m_put(other, "extra", NULL, m_tree_make(other->nb, other->bs));
  else
    m_drop(other, other->entries[0].key);
  const tdict_tree *trees[2] = {o->td[s], ops_tree(other)};
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_stack(trees, 2, NULL, NULL, &td, o->err));
  ops_judge(o, status, TDICT_ENOTFOUND);
  tdict_release((tdict_tree *)(uintptr_t)trees[1]);
}

/* Stacks the nodes of two trees at one path as two rows, and pads the shorter row with zeros. `in` has the batch size
 * of the first tree, and `out` the batch size of the result. */
static m_tree *pad_pair(const m_tree *a, const m_tree *b, const m_tree *in, const m_tree *out) {
  m_tree *made = m_tree_like(a);
  m_replace_dims(made, a, in, in->nb, out->nb, out->bs);
  for (int i = 0; i < a->count; i++) {
    const m_entry *e = &a->entries[i], *there = m_find(b, e->key);
    m_array *pad = NULL;
    if (e->array) {
      int64_t shape[M_DIMS] = {2, out->bs[1]};
      for (int d = 1; d < e->array->ndim; d++) shape[d + 1] = e->array->shape[d];
      pad = m_array_make(e->array->dtype, e->array->ndim + 1, shape);
      m_array_zero(pad);
      for (int64_t k = 0; k < e->array->n; k++) m_write(pad->cells[k], m_value(e->array->cells[k]));
      for (int64_t k = 0; k < there->array->n; k++)
        m_write(pad->cells[pad->n / 2 + k], m_value(there->array->cells[k]));
    }
    m_put(made, e->key, pad, e->tree ? pad_pair(e->tree, there->tree, in, out) : NULL);
  }
  return made;
}

m_array *ops_first_rows(const m_array *a, void *user) {
  m_map map = m_map_whole(1, a->shape);
  map.shape[0] = *(const int64_t *)user;
  map.copies = true;
  return m_array_map(a, &map);
}

/* Returns the masks of two rows. The second row has `rows` elements that are not padding. */
static m_tree *mask_pair(const m_tree *t, int64_t rows, const m_tree *out) {
  m_tree *made = m_tree_like(t);
  made->nb = out->nb;
  memcpy(made->bs, out->bs, sizeof made->bs);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_array *mask = NULL;
    if (e->array) {
      mask = m_array_make(TDICT_BOOL, out->nb, out->bs);
      m_array_zero(mask);
      for (int64_t k = 0; k < mask->n; k++) {
        const int64_t inner = mask->n / (2 * out->bs[1]);
        m_write(mask->cells[k], k / inner < out->bs[1] + rows);
      }
    }
    m_put(made, e->key, mask, e->tree ? mask_pair(e->tree, rows, out) : NULL);
  }
  return made;
}

/* Compares the masks with `wanted`, and deletes them, because the pool has no bool tensors. */
static void check_masks(ops *o, tdict_tree *td, const char *path, const m_tree *wanted) {
  tdict_tree *found = NULL;
  if (tdict_get_tree(td, path, &found, NULL) != TDICT_OK) {
    ops_complain(o, "no masks");
    return;
  }
  ops_check_tree(o, wanted, found);
  if (tdict_delete(td, path, NULL) != TDICT_OK) abort();
}

static void op_pad(ops *o) {
  static const char *const masks[] = {NULL, "masks", "m"};
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->nb == 0 || ops_cells(t) > OPS_MOST_CELLS / 3) return;
  int64_t rows = ops_pick(o, (uint32_t)t->bs[0] + 1);
  if (!m_fits(t)) {
    const tdict_tree *same[2] = {o->td[s], o->td[s]};
    tdict_tree *none = NULL;
    ops_judge(o, OPS_CALL(o, tdict_pad_sequence(same, 2, NULL, NULL, &none, o->err)), TDICT_ESHAPE);
    return;
  }
  m_tree *shorter = m_tree_each(t, 1, 1, &rows, ops_first_rows, &rows);
  const tdict_tree *trees[2] = {o->td[s], ops_tree(shorter)};
  tdict_tree *td = NULL;
  const uint32_t way = ops_pick(o, 3);
  tdict_status status = OPS_CALL(o, tdict_pad_sequence(trees, 2, TD_PAD(0, masks[way]), NULL, &td, o->err));
  m_tree out = {.nb = t->nb + 1, .bs = {2, t->bs[0]}}; /* the first row is the longest */
  memcpy(out.bs + 2, t->bs + 1, (size_t)(t->nb - 1) * sizeof *t->bs);
  if (ops_judge(o, status, way && m_find(t, masks[way]) ? TDICT_EEXIST : TDICT_OK)) {
    if (way) check_masks(o, td, masks[way], mask_pair(t, rows, &out));
    ops_keep(o, td, pad_pair(t, shorter, t, &out));
  }
  tdict_release((tdict_tree *)(uintptr_t)trees[1]);
}

static void op_rows(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->nb == 0 || t->bs[0] == 0 || !ops_all_distinct(t) || t->count == 0 || !m_fits(t)) return;
  int64_t rows = 1 + ops_pick(o, (uint32_t)t->bs[0]), first = ops_pick(o, (uint32_t)(t->bs[0] - rows) + 2);
  bool good = first + rows <= t->bs[0];
  m_tree *value = m_tree_each(t, 1, 1, &rows, ops_first_rows, &rows);
  value = like(o, value, false);
  tdict_tree *td = ops_tree(value);
  tdict_status status = OPS_CALL(o, tdict_write_rows(o->td[s], first, td, o->err));
  tdict_release(td);
  if (!ops_judge(o, status, good ? TDICT_OK : TDICT_EINVAL)) return;
  static arrays to, from;
  to.count = m_arrays(t, to.list, to.paths, MOST_ARRAYS);
  from.count = m_arrays(value, from.list, from.paths, MOST_ARRAYS);
  for (int k = 0; k < from.count; k++) /* the order matters, because two keys may share a storage */
    for (int i = 0; i < to.count; i++)
      if (strcmp(to.paths[i], from.paths[k]) == 0)
        for (int64_t e = 0; e < from.list[k]->n; e++)
          m_write(to.list[i]->cells[first * (to.list[i]->n / t->bs[0]) + e], m_value(from.list[k]->cells[e]));
}

const ops_fn ops_writes[] = {op_write, op_write_at,   op_fill,     op_copy,          op_copy_self, op_stack,
                             op_cat,   op_stack_into, op_cat_into, op_stack_refused, op_pad,       op_rows};
const char *const ops_write_names[] = {"write",     "write_at",      "fill",         "copy",
                                       "copy_self", "stack",         "cat",          "stack_into",
                                       "cat_into",  "stack_refused", "pad_sequence", "write_rows"};
const int ops_num_writes = sizeof ops_writes / sizeof *ops_writes;
