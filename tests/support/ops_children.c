/* Operations on child trees: change them through their own handles, and put them below several parents. Later
 * operations compare the parents. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/path.h"
#include "tdict/shape.h"

#include "support/ops.h"

enum { MOST_DEPTH = 5, MOST_CELLS = 200 };

/* A node of a pool tree, usually below the root. */
typedef struct node {
  tdict_tree *td; /* borrowed */
  m_tree *model;
  int slot; /* pool slot of the tree that contains the node */
} node;

static node pick_node(ops *o) {
  const int s = ops_slot(o);
  node n = {o->td[s], o->model[s], s};
  for (int depth = 0; depth < MOST_DEPTH; depth++) {
    int trees = 0;
    for (int i = 0; i < n.model->count; i++) trees += n.model->entries[i].tree != NULL;
    if (!trees || ops_pick(o, 5) == 0) break;
    int at = (int)ops_pick(o, (uint32_t)trees), i = 0;
    while (!n.model->entries[i].tree || at-- > 0) i++;
    char path[2 * M_KEY];
    tdict_path_escape(n.model->entries[i].key, path, sizeof path);
    if (tdict_get_tree(n.td, path, &n.td, NULL) != TDICT_OK) abort();
    n.model = n.model->entries[i].tree;
  }
  return n;
}

static const char *pick_key(ops *o) {
  static const char *const keys[] = {"a", "b", "c.d", "e\\", "n", "m", "z"};
  return keys[ops_pick(o, 7)];
}

/* Sets a tensor whose shape begins with the node's batch size. */
static void set_array(ops *o, const node *n) {
  const char *key = pick_key(o);
  char path[2 * M_KEY];
  tdict_path_escape(key, path, sizeof path);
  int64_t shape[M_DIMS], elements = 1;
  int ndim = n->model->nb;
  memcpy(shape, n->model->bs, sizeof shape);
  if (ndim < M_DIMS && ops_pick(o, 2)) shape[ndim++] = 1 + ops_pick(o, 3);
  for (int d = 0; d < ndim; d++) elements *= shape[d];
  if (elements > MOST_CELLS) return;
  m_array *a = m_array_make(TDICT_F32, ndim, shape);
  m_array_fresh(a, ops_pick(o, 1000));
  tdict_tensor *tensor = ops_tensor(a);
  tdict_status status = OPS_CALL(o, tdict_set(n->td, path, tensor, o->err));
  tdict_tensor_release(tensor);
  if (ops_judge(o, status, m_is_locked(n->model) ? TDICT_ELOCKED : TDICT_OK)) m_put(n->model, key, a, NULL);
}

static void op_child_set(ops *o) {
  const node n = pick_node(o);
  set_array(o, &n);
}

static void op_child_delete(ops *o) {
  node n = pick_node(o);
  if (n.model->count == 0) return;
  char key[M_KEY], path[2 * M_KEY];
  memcpy(key, n.model->entries[ops_pick(o, (uint32_t)n.model->count)].key, sizeof key);
  tdict_path_escape(key, path, sizeof path);
  tdict_status status = OPS_CALL(o, tdict_delete(n.td, path, o->err));
  if (ops_judge(o, status, m_is_locked(n.model) ? TDICT_ELOCKED : TDICT_OK)) m_drop(n.model, key);
}

static bool begins_otherwise(const m_tree *t, const m_tree *wanted) {
  int both = t->nb < wanted->nb ? t->nb : wanted->nb;
  return both && memcmp(t->bs, wanted->bs, (size_t)both * sizeof *t->bs) != 0;
}

/* Returns the expected status if `t` gets the batch size and device of `wanted`: the first error in walk order. */
static tdict_status check_below(const m_tree *t, const m_tree *wanted) {
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    if (e->array && !m_begins_with(e->array, wanted)) return TDICT_ESHAPE;
    if (!e->tree) continue;
    if (begins_otherwise(e->tree, wanted) && m_has_arrays(e->tree)) return TDICT_ESHAPE;
    if (m_is_locked(e->tree) && ops_grows(e->tree, wanted)) return TDICT_ELOCKED;
    tdict_status status = check_below(e->tree, wanted);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static void grow_below(m_tree *t, const m_tree *wanted) {
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) ops_grow(t->entries[i].tree, wanted);
}

/* Shortens the batch size of a node, and sets a tensor that begins with the shorter one. If this tensor does not begin
 * with the root's batch size, tdict_unsqueeze() of the root must return TDICT_ESHAPE. */
static void op_child_shrink(ops *o) {
  const node n = pick_node(o);
  m_tree shorter = *n.model;
  scoped_tree made = NULL;
  if (n.model->nb == 0) return;
  shorter.cpu = false; /* the call sets no device */
  shorter.nb = (int)ops_pick(o, (uint32_t)n.model->nb);
  if (m_is_locked(n.model) || check_below(n.model, &shorter) != TDICT_OK) return;
  if (tdict_set_batch_size(n.td, shorter.nb, shorter.bs, NULL) != TDICT_OK) {
    ops_complain(o, "set_batch_size refused the shorter batch size");
    return;
  }
  grow_below(n.model, &shorter);
  n.model->nb = shorter.nb;
  set_array(o, &n);
  const m_tree *top = o->model[n.slot];
  if (o->wrong[0] || m_fits(top)) return;
  if (tdict_unsqueeze(o->td[n.slot], top->nb, &made, NULL) != TDICT_ESHAPE)
    ops_complain(o, "unsqueeze of the root accepts a tensor that does not fit");
}

/* Sets a batch size, often the shape of a tensor below the node. */
static void op_child_batch_size(ops *o) {
  node n = pick_node(o);
  m_array *list[16];
  m_tree wanted = {.nb = n.model->nb};
  memcpy(wanted.bs, n.model->bs, sizeof wanted.bs);
  int count = m_arrays(n.model, list, NULL, 16);
  const m_array *a = count ? list[ops_pick(o, (uint32_t)count)] : NULL;
  if (a && ops_pick(o, 4)) {
    wanted.nb = a->ndim;
    memcpy(wanted.bs, a->shape, sizeof wanted.bs);
  } else if (wanted.nb < 3 && ops_pick(o, 2)) {
    wanted.bs[wanted.nb++] = 1 + ops_pick(o, 3);
  }
  if (wanted.nb && ops_pick(o, 2)) wanted.nb = (int)ops_pick(o, (uint32_t)wanted.nb + 1);
  if (wanted.nb && ops_pick(o, 4) == 0) wanted.bs[ops_pick(o, (uint32_t)wanted.nb)] = 1 + ops_pick(o, 4);
  tdict_status status = OPS_CALL(o, tdict_set_batch_size(n.td, wanted.nb, wanted.bs, o->err));
  if (!ops_judge(o, status, m_is_locked(n.model) ? TDICT_ELOCKED : check_below(n.model, &wanted))) return;
  grow_below(n.model, &wanted);
  n.model->nb = wanted.nb;
  memcpy(n.model->bs, wanted.bs, sizeof wanted.bs);
}

static tdict_status check_clear(const m_tree *t) {
  for (int i = 0; i < t->count; i++) {
    const m_tree *below = t->entries[i].tree;
    if (below && ((below->cpu && m_is_locked(below)) || check_clear(below) != TDICT_OK)) return TDICT_ELOCKED;
  }
  return TDICT_OK;
}

static void clear_device(m_tree *t) {
  t->cpu = false;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) clear_device(t->entries[i].tree);
}

static void op_child_device(ops *o) {
  node n = pick_node(o);
  const tdict_device cpu = tdict_cpu(), far = tdict_sim(9), none = {0, 0};
  const uint32_t way = ops_pick(o, 4);
  const m_tree wanted = {.cpu = true};
  tdict_status answer = way == 3 ? TDICT_EINVAL : way == 0 ? check_clear(n.model) : check_below(n.model, &wanted);
  if (way == 2 && m_has_arrays(n.model)) answer = TDICT_EWRONGDEVICE;
  if (m_is_locked(n.model)) answer = TDICT_ELOCKED;
  if (way == 2 && answer != TDICT_EWRONGDEVICE) return; /* the model knows no device except the cpu */
  tdict_status status = OPS_CALL(o, tdict_set_device(n.td,
                                                     way == 0   ? NULL
                                                     : way == 1 ? &cpu
                                                     : way == 2 ? &far
                                                                : &none,
                                                     o->err));
  if (way == 2 && status == TDICT_ELOCKED) answer = TDICT_ELOCKED; /* the order of the two checks is unspecified */
  if (!ops_judge(o, status, answer)) return;
  if (way == 0) clear_device(n.model);
  if (way == 1) grow_below(n.model, &wanted);
  if (way == 1) n.model->cpu = true;
}

static void op_child_lock(ops *o) {
  node n = pick_node(o);
  tdict_lock(n.td);
  n.model->locked = true;
  ops_judge(o, TDICT_OK, TDICT_OK);
}

static void op_child_unlock(ops *o) {
  node n = pick_node(o);
  tdict_status status = OPS_CALL(o, tdict_unlock(n.td, o->err));
  if (ops_judge(o, status, n.model->above ? TDICT_ELOCKED : TDICT_OK)) m_unlock(n.model, o->model, OPS_POOL);
}

static int depth_of(const m_tree *t) {
  int deepest = 0;
  for (int i = 0; i < t->count; i++) {
    int depth = t->entries[i].tree ? 1 + depth_of(t->entries[i].tree) : 0;
    if (depth > deepest) deepest = depth;
  }
  return deepest;
}

static int count_nodes(const m_tree *t) {
  int count = 1;
  for (int i = 0; i < t->count; i++) count += t->entries[i].tree ? count_nodes(t->entries[i].tree) : 0;
  return count;
}

/* Adds an existing node or a new empty tree to another node. An existing node is then shared. */
static void op_share(ops *o) {
  node to = pick_node(o), from = pick_node(o);
  const char *key = pick_key(o);
  char path[2 * M_KEY];
  tdict_path_escape(key, path, sizeof path);
  if (ops_pick(o, 3) == 0) {
    m_tree *made = m_tree_make(to.model->nb, to.model->bs);
    from = (node){ops_tree(made), made, 0};
  } else {
    from.td = tdict_retain(from.td);
  }
  tdict_status wanted = m_is_locked(to.model)           ? TDICT_ELOCKED
                        : m_holds(from.model, to.model) ? TDICT_EINVAL
                                                        : ops_agrees(from.model, to.model);
  if (depth_of(from.model) < MOST_DEPTH && ops_cells(from.model) < MOST_CELLS && count_nodes(from.model) < 20) {
    tdict_status status = OPS_CALL(o, tdict_set_tree(to.td, path, from.td, o->err));
    if (ops_judge(o, status, wanted)) {
      m_tree *put = ops_grows(from.model, to.model) ? m_copy(from.model) : from.model;
      if (put != from.model) ops_grow(put, to.model);
      m_put(to.model, key, NULL, put);
    }
  }
  tdict_release(from.td);
}

const ops_fn ops_children[] = {op_child_set,    op_child_delete, op_child_batch_size,
                               op_child_device, op_child_lock,   op_child_unlock,
                               op_child_shrink, op_share,        ops_to_dtype};
const char *const ops_child_names[] = {"child_set",    "child_delete", "child_batch", "child_device", "child_lock",
                                       "child_unlock", "child_shrink", "share",       "to_dtype"};
const int ops_num_children = sizeof ops_children / sizeof *ops_children;
