/* Operations that make one tree from the items of a lazy stack: stacked, ragged or padded. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/ragged.h"

#include "support/ops.h"

enum { MOST_ARRAYS = 64 };

static void op_densify(ops *o) {
  ops_pile p;
  const uint32_t varies = ops_pick(o, 8);
  if (!ops_begin_pile(o, &p, varies < 8 / 2 ? 0 : (int)varies)) return;
  tdict_join_options options = td_with(tdict_join_options, dim = ops_pick(o, 8) == 0);
  tdict_tree *td = NULL, *plain = NULL;
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_densify(p.lazy, &options, NULL, &td, o->err));
  tdict_status wanted =
      o->refused ? TDICT_OK
                 : tdict_stack((const tdict_tree *const *)p.trees, (size_t)p.count, NULL, NULL, &plain, NULL);
  tdict_release(plain);
  const bool is_done = ops_judge(o, status, options.dim ? TDICT_EINVAL : wanted);
  m_tree *made = is_done ? ops_stacked((const m_tree *const *)p.models, p.count) : NULL;
  ops_end_pile(o, &p);
  if (is_done) ops_keep(o, td, made);
}

/* Returns a copy whose nodes have no batch dimensions. */
static m_tree *without_batch(const m_tree *t) {
  m_tree *made = m_tree_make(0, NULL);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_put(made, e->key, e->array ? m_array_copy(e->array) : NULL, e->tree ? without_batch(e->tree) : NULL);
  }
  return made;
}

/* Checks the leaf at a path. It must be a tensor if all items have the same shape there, otherwise a ragged leaf. */
static void check_rows(ops *o, const ops_pile *p, const char *path, const tdict_tree *td) {
  tdict_tensor *t = NULL;
  tdict_ragged *leaf = NULL;
  bool is_ragged = false;
  for (int i = 1; i < p->count; i++)
    is_ragged |= !m_same_shape(ops_array_at(p->models[i], path), ops_array_at(p->models[0], path));
  if (!is_ragged) {
    if (tdict_get(td, path, &t, NULL) == TDICT_OK)
      ops_check_tensor(o, ops_join_items(p, path), t);
    else
      ops_complain(o, "no tensor");
    return;
  }
  if (tdict_get_ragged(td, path, &leaf, NULL) != TDICT_OK || tdict_ragged_get_info(leaf).num_rows != p->count) {
    ops_complain(o, "no ragged leaf with a row for each item");
    return;
  }
  for (int i = 0; i < p->count; i++) {
    if (tdict_ragged_get_row(leaf, i, &t, NULL) != TDICT_OK) abort();
    ops_check_tensor(o, ops_array_at(p->models[i], path), t);
    tdict_tensor_release(t);
  }
}

/* Returns whether each leaf can be joined: sizes may differ only in the first dimension. */
static bool can_be_ragged(const ops_pile *p, char (*paths)[2 * M_KEY], int count) {
  for (int k = 0; k < count; k++)
    for (int i = 1; i < p->count; i++) {
      const m_array *a = ops_array_at(p->models[i], paths[k]), *first = ops_array_at(p->models[0], paths[k]);
      for (int d = 1; d < first->ndim; d++)
        if (a->shape[d] != first->shape[d]) return false;
    }
  return true;
}

static void op_ragged(ops *o) {
  static char paths[MOST_ARRAYS][2 * M_KEY];
  ops_pile p;
  m_array *list[MOST_ARRAYS];
  m_tree *first = without_batch(o->model[ops_slot(o)]);
  tdict_tree *own = ops_tree(first), *td = NULL;
  const bool is_begun = ops_begin_pile_with(o, &p, first, own, OPS_VARY_SHAPES);
  tdict_release(own);
  if (!is_begun) return;
  tdict_join_options options = td_with(tdict_join_options, ragged = true);
  const int count = m_arrays(first, list, paths, MOST_ARRAYS);
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_densify(p.lazy, &options, NULL, &td, o->err));
  if (ops_judge(o, status, can_be_ragged(&p, paths, count) ? TDICT_OK : TDICT_ESHAPE))
    for (int k = 0; k < count; k++) check_rows(o, &p, paths[k], td);
  tdict_release(td);
  ops_end_pile(o, &p);
}

/* Returns a padded stack of the arrays that the items have at one path, or its mask. */
static m_array *pad_arrays(const m_array *const *parts, int count, int nb, int value, bool is_mask) {
  const m_array *first = parts[0];
  int64_t shape[M_DIMS] = {count}, at[M_DIMS] = {0};
  int ndim = first->ndim + 1, masked = nb + 1;
  memcpy(shape + 1, first->shape, (size_t)first->ndim * sizeof *shape);
  for (int i = 1; i < count; i++)
    for (int d = 0; d < first->ndim; d++) {
      if (parts[i]->shape[d] > shape[d + 1]) shape[d + 1] = parts[i]->shape[d];
      if (parts[i]->shape[d] != first->shape[d] && d + 2 > masked) masked = d + 2;
    }
  if (is_mask) ndim = masked;
  m_array *made = m_array_make(is_mask ? TDICT_BOOL : first->dtype, ndim, shape);
  m_array_zero(made);
  for (int64_t k = 0; k < made->n; k++) {
    const m_array *part = parts[at[0]];
    bool is_inside = true;
    int64_t from = 0;
    for (int d = 1; d < ndim; d++) {
      is_inside = is_inside && at[d] < part->shape[d - 1];
      from = from * part->shape[d - 1] + at[d];
    }
    const uint64_t element = is_mask     ? is_inside
                             : is_inside ? m_value(part->cells[from])
                                         : ops_number(made->dtype, value);
    m_write(made->cells[k], element);
    for (int d = ndim - 1; d >= 0 && ++at[d] == shape[d]; d--) at[d] = 0;
  }
  return made;
}

/* Returns a padded stack of nodes, or its mask. `root` has the batch size of the result. */
static m_tree *pad_nodes(const ops_pile *p, const m_tree *const *nodes, const m_tree *root, int value, bool is_mask) {
  m_tree *made = m_tree_like(nodes[0]);
  m_replace_dims(made, nodes[0], p->models[0], p->models[0]->nb, root->nb, root->bs);
  if (is_mask) made->nb = root->nb;
  for (int i = 0; i < nodes[0]->count; i++) {
    const m_entry *e = &nodes[0]->entries[i];
    const m_array *parts[OPS_MOST_ITEMS];
    const m_tree *below[OPS_MOST_ITEMS];
    for (int k = 0; k < p->count; k++) {
      const m_entry *there = m_find(nodes[k], e->key);
      parts[k] = there->array;
      below[k] = there->tree;
    }
    m_put(made, e->key, e->array ? pad_arrays(parts, p->count, p->models[0]->nb, value, is_mask) : NULL,
          e->tree ? pad_nodes(p, below, root, value, is_mask) : NULL);
  }
  return made;
}

static void op_pad(ops *o) {
  ops_pile p;
  if (!ops_begin_pile(o, &p, OPS_VARY_SHAPES)) return;
  tdict_lazy_pad_options options = tdict_lazy_pad_options_default();
  const int value = ops_pick(o, 2) ? 7 : 0;
  tdict_tree *td = NULL, *mask = NULL;
  m_tree root = {.nb = p.models[0]->nb + 1, .bs = {p.count}};
  memcpy(root.bs + 1, p.models[0]->bs, (size_t)p.models[0]->nb * sizeof *root.bs);
  options.value = value;
  if (ops_pick(o, 2)) options.mask = &mask;
  tdict_status status = OPS_CALL(o, tdict_lazy_stack_pad(p.lazy, &options, &td, o->err));
  m_tree *made = NULL;
  bool fits = true; /* false if an array does not begin with its item's batch size */
  for (int i = 0; i < p.count; i++) fits = fits && m_fits(p.models[i]);
  const m_tree *const *models = (const m_tree *const *)p.models;
  if (ops_judge(o, status, fits ? TDICT_OK : TDICT_ESHAPE)) {
    made = pad_nodes(&p, models, &root, value, false);
    if (mask) ops_check_tree(o, pad_nodes(&p, models, &root, value, true), mask);
    if (!mask != !options.mask) ops_complain(o, "no mask");
  }
  tdict_release(mask);
  ops_end_pile(o, &p);
  if (made) ops_keep(o, td, made);
}

const ops_fn ops_dense[] = {op_densify, op_ragged, op_pad};
const char *const ops_dense_names[] = {"lazy_densify", "lazy_ragged", "lazy_pad"};
const int ops_num_dense = sizeof ops_dense / sizeof *ops_dense;
