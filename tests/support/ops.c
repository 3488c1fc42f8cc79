/* Runs random operations: makes choices, keeps the pool of trees, compares results. See ops.h. */
#include "support/ops.h"

#include "tdict/path.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ops_refusal ops_refuse;

uint32_t ops_random(ops *o) {
  o->state += 0x9e3779b97f4a7c15u;
  uint64_t z = o->state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)(z >> 33);
}

/* Returns the next byte of the fuzzer's input, or 0 at the end. */
uint32_t ops_from_bytes(ops *o) {
  if (o->state >= o->num_bytes) return 0;
  return o->bytes[o->state++];
}

uint32_t ops_pick(ops *o, uint32_t below) { return below < 2 ? 0 : o->next(o) % below; }

void ops_complain(ops *o, const char *text) {
  if (!o->wrong[0]) snprintf(o->wrong, sizeof o->wrong, "%s: %s", o->name, text);
}

void ops_arm(ops *o) {
  o->refused = false;
  if (o->refuse >= 0) ops_refuse.begin(o->refuse, false);
}

tdict_status ops_disarm(ops *o, tdict_status status) {
  if (o->refuse < 0) return status;
  bool hit = ops_refuse.end();
  o->refused = hit && status == TDICT_ENOMEM;
  if (!hit) o->refuse = -1; /* the call made no more than o->refuse allocations */
  return status;
}

bool ops_judge(ops *o, tdict_status status, tdict_status wanted) {
  if (o->refused) return false;
  o->answered = (int)status;
  if (status != wanted) {
    char text[128];
    snprintf(text, sizeof text, "answered %s, wanted %s", tdict_status_name(status), tdict_status_name(wanted));
    ops_complain(o, text);
  }
  return status == TDICT_OK && wanted == TDICT_OK;
}

int ops_slot(ops *o) { return (int)ops_pick(o, OPS_POOL); }

int64_t ops_cells(const m_tree *t) {
  int64_t n = 0;
  for (int i = 0; i < t->count; i++)
    n += t->entries[i].array ? t->entries[i].array->n + 1 : ops_cells(t->entries[i].tree);
  return n;
}

void ops_keep(ops *o, tdict_tree *td, m_tree *model) {
  int slot = ops_slot(o);
  const char *wrong = m_check(model, td);
  if (wrong) ops_complain(o, wrong);
  if (model->nb > OPS_MOST_DIMS || ops_cells(model) > OPS_MOST_CELLS) {
    tdict_release(td);
    return;
  }
  tdict_release(o->td[slot]);
  o->td[slot] = td;
  o->model[slot] = model;
}

tdict_tensor *ops_tensor(const m_array *a) {
  tdict_tensor *t = NULL;
  if (tdict_tensor_empty(a->dtype, a->ndim, a->shape, NULL, &t, NULL) != TDICT_OK) abort();
  size_t item = tdict_dtype_bytes(a->dtype);
  char *data = tdict_tensor_data(t);
  for (int64_t i = 0; i < a->n; i++) {
    uint64_t value = m_value(a->cells[i]);
    memcpy(data + (size_t)i * item, &value, item);
  }
  return t;
}

/* Adds the model's entries. Sets the batch size of a child after adding it, because the parent may refuse this size. */
static void fill_tree(tdict_tree *td, const m_tree *t) {
  for (int i = 0; i < t->count; i++) {
    char path[2 * M_KEY];
    tdict_path_escape(t->entries[i].key, path, sizeof path);
    tdict_status status = TDICT_OK;
    if (t->entries[i].array) {
      scoped_tensor tensor = ops_tensor(t->entries[i].array);
      status = tdict_set(td, path, tensor, NULL);
    } else {
      const m_tree *below = t->entries[i].tree;
      scoped_tree child = NULL;
      if (tdict_create(t->nb, t->bs, &child, NULL) != TDICT_OK) abort();
      status = tdict_set_tree(td, path, child, NULL);
      if (status == TDICT_OK) status = tdict_set_batch_size(child, below->nb, below->bs, NULL);
      fill_tree(child, below);
    }
    if (status != TDICT_OK) abort();
  }
}

tdict_tree *ops_tree(const m_tree *t) {
  tdict_tree *td = NULL;
  if (tdict_create(t->nb, t->bs, &td, NULL) != TDICT_OK) abort();
  fill_tree(td, t);
  return td;
}

/* Adds random entries to a node of the model, nested up to `depth`. */
static void grow(ops *o, m_tree *t, int depth) {
  static const char *const keys[] = {"a", "b", "c.d", "e\\", "n", "m"};
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I16, TDICT_F32, TDICT_I64};
  int count = 1 + (int)ops_pick(o, 4);
  for (int i = 0; i < count; i++) {
    const char *key = keys[ops_pick(o, 6)];
    if (depth && ops_pick(o, 4) == 0) {
      m_tree *child = m_tree_make(t->nb, t->bs);
      if (ops_pick(o, 3) == 0) child->bs[child->nb++] = 1 + ops_pick(o, 3);
      if (ops_pick(o, 5)) grow(o, child, depth - 1);
      m_put(t, key, NULL, child);
      continue;
    }
    int64_t shape[M_DIMS];
    int ndim = t->nb;
    for (int d = 0; d < t->nb; d++) shape[d] = t->bs[d];
    for (int more = (int)ops_pick(o, 3); more > 0; more--) shape[ndim++] = 1 + ops_pick(o, 3);
    m_array *a = m_array_make(dtypes[ops_pick(o, 4)], ndim, shape);
    m_array_fresh(a, ops_pick(o, 1000));
    m_put(t, key, a, NULL);
  }
}

static void op_new(ops *o) {
  int64_t bs[M_DIMS];
  int nb = (int)ops_pick(o, 4);
  for (int i = 0; i < nb; i++) bs[i] = ops_pick(o, 12) ? 1 + ops_pick(o, 4) : 0;
  m_tree *model = m_tree_make(nb, bs);
  if (ops_pick(o, 10)) grow(o, model, 2);
  o->answered = TDICT_OK;
  ops_keep(o, ops_tree(model), model);
}

/* All operations except "new". Append new lists at the end, so that the numbers of other operations stay the same. */
static const struct {
  const ops_fn *fns;
  const char *const *names;
  const int *count;
} lists[] = {{ops_shapes, ops_shape_names, &ops_num_shapes},
             {ops_writes, ops_write_names, &ops_num_writes},
             {ops_keys, ops_key_names, &ops_num_keys},
             {ops_more, ops_more_names, &ops_num_more},
             {ops_objects, ops_object_names, &ops_num_objects},
             {ops_values, ops_value_names, &ops_num_values},
             {ops_children, ops_child_names, &ops_num_children},
             {ops_ragged, ops_ragged_names, &ops_num_ragged},
             {ops_stacks, ops_stack_names, &ops_num_stacks},
             {ops_dense, ops_dense_names, &ops_num_dense},
             {ops_sequences, ops_sequence_names, &ops_num_sequences},
             {ops_transfers, ops_transfer_names, &ops_num_transfers}};
enum { LISTS = sizeof lists / sizeof *lists };

/* Returns the index of an operation's list, or -1. Sets *kind to the operation's number in this list. */
static int find_list(int *kind) {
  --*kind;
  for (int i = 0; i < LISTS; i++) {
    if (*kind < *lists[i].count) return i;
    *kind -= *lists[i].count;
  }
  return -1;
}

const char *ops_kind_name(int kind) {
  if (kind == 0) return "new";
  const int list = find_list(&kind);
  return list < 0 ? NULL : lists[list].names[kind];
}

void ops_end(ops *o) {
  for (int i = 0; i < OPS_POOL; i++) {
    tdict_release(o->td[i]);
    o->td[i] = NULL;
    o->model[i] = NULL;
  }
  ops_close_context();
  m_reset();
}

void ops_reset(ops *o) {
  ops_end(o);
  o->refuse = -1;
  for (int i = 0; i < OPS_POOL; i++) {
    int64_t bs[2] = {2, 3};
    o->name = "reset";
    o->model[i] = m_tree_make(2, bs);
    grow(o, o->model[i], 1);
    o->td[i] = ops_tree(o->model[i]);
  }
}

static bool check_all(ops *o) {
  m_hold(o->model, OPS_POOL);
  for (int i = 0; i < OPS_POOL; i++) {
    const char *wrong = m_check(o->model[i], o->td[i]);
    if (wrong) ops_complain(o, wrong);
  }
  return !o->wrong[0];
}

static void run(ops *o, int kind) {
  o->name = ops_kind_name(kind);
  o->err = o->step++ % 3 ? &o->error : NULL;
  m_hold(o->model, OPS_POOL);
  if (kind == 0)
    op_new(o);
  else
    lists[find_list(&kind)].fns[kind](o);
}

bool ops_step(ops *o, bool all) {
  int kinds = 1;
  for (int i = 0; i < LISTS; i++) kinds += *lists[i].count;
  if (kinds > OPS_KINDS) abort();
  int kind = (int)ops_pick(o, (uint32_t)kinds);
  uint64_t state = o->state;
  for (int64_t n = 0;; n++) {
    o->state = state; /* repeat the same choices */
    o->refuse = o->failing ? n : -1;
    o->refused = false;
    o->answered = -1;
    run(o, kind);
    if (!o->refused) break;
    o->refusals++;
    if (!check_all(o)) return false;
  }
  o->refuse = -1;
  for (int i = 0; i < OPS_POOL; i++) o->cells += ops_cells(o->model[i]);
  if (o->answered == (int)TDICT_OK) o->good[kind]++;
  if (o->answered > (int)TDICT_OK) o->bad[kind]++;
  if (all && !check_all(o)) return false;
  return !o->wrong[0];
}
