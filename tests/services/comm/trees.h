/* Random trees for the tests of communicators, and comparisons element by element that use no tree operation of the
 * library. */
#ifndef TDICT_TESTS_SERVICES_COMM_TREES_H
#define TDICT_TESTS_SERVICES_COMM_TREES_H

#include "services/comm/rig.h"

typedef enum tree_layout {
  LAYOUT_BLOCK,    /* one storage, as tdict_create_from() makes it */
  LAYOUT_SEPARATE, /* a storage for each tensor */
  LAYOUT_STRIDED,  /* a storage for each tensor, with permuted dimensions */
  NUM_LAYOUTS
} tree_layout;

static const tdict_dtype tree_dtypes[] = {TDICT_F32, TDICT_I64, TDICT_U8,   TDICT_F64,
                                          TDICT_I16, TDICT_C64, TDICT_BOOL, TDICT_DTYPE(2, 32, 3)};
static const tdict_dtype tree_reducible[] = {TDICT_F32, TDICT_I64, TDICT_F64, TDICT_I32, TDICT_DTYPE(2, 32, 3)};

typedef struct tree_plan {
  uint64_t shape_seed; /* equal seeds produce equal keys, dtypes and shapes; only batch sizes may differ */
  uint64_t value_seed;
  int batch_ndim;
  int64_t batch_size[4];
  tree_layout layout;
  bool reducible; /* use only small numbers, of dtypes that the table can add */
} tree_plan;

static inline void tree_fill(const tree_plan *plan, tdict_tensor *t, rng *values) {
  void *data = tdict_tensor_data(t);
  const tdict_dtype dtype = tdict_tensor_dtype(t), one = (dtype & 0xffff) | 1u << 16;
  const int64_t n = tdict_tensor_numel(t) * (int64_t)(dtype >> 16);
  if (!plan->reducible || !n) {
    if (n) td_fill_random(data, tdict_tensor_bytes(t), next_random(values));
    for (int64_t i = 0; dtype == TDICT_BOOL && i < n; i++) ((uint8_t *)data)[i] &= 1;
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const int64_t number = pick(values, -1000, 1000);
    if (one == TDICT_F32) ((float *)data)[i] = (float)number;
    if (one == TDICT_F64) ((double *)data)[i] = (double)number;
    if (one == TDICT_I64) ((int64_t *)data)[i] = number;
    if (one == TDICT_I32) ((int32_t *)data)[i] = (int32_t)number;
  }
}

static inline void tree_add_tensor(const tree_plan *plan, tdict_tree *tree, const char *key, rng *shape, rng *values) {
  int64_t sizes[10];
  int ndim = tdict_batch_ndim(tree);
  const tdict_dtype *dtypes = plan->reducible ? tree_reducible : tree_dtypes;
  const tdict_dtype dtype = dtypes[pick(shape, 0, plan->reducible ? 4 : 7)];
  tdict_tensor *t = NULL, *turned = NULL;
  for (int i = 0; i < ndim; i++) sizes[i] = tdict_batch_size(tree)[i];
  const int more = (int)pick(shape, 0, 2);
  for (int i = 0; i < more; i++) sizes[ndim++] = pick(shape, 0, 9) ? pick(shape, 1, 6) : 0;
  int order[10];
  int64_t stored[10];
  const bool turns = plan->layout == LAYOUT_STRIDED && ndim > 1;
  for (int i = 0; i < ndim; i++) order[i] = turns ? (i + 1) % ndim : i; /* dimension i of `turned` is order[i] of t */
  for (int i = 0; i < ndim; i++) stored[order[i]] = sizes[i];
  td_ok(tdict_tensor_empty(dtype, ndim, stored, NULL, &t, err));
  tree_fill(plan, t, values);
  td_ok(tdict_tensor_permute(t, ndim, order, &turned, err));
  tdict_tensor_release(t);
  td_put(tree, key, turned);
}

static inline void tree_grow(const tree_plan *plan, tdict_tree *tree, int depth, rng *shape, rng *values) {
  const int count = (int)pick(shape, depth ? 0 : 1, 5);
  for (int i = 0; i < count; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    if (depth == 3 || pick(shape, 0, 2)) {
      tree_add_tensor(plan, tree, key, shape, values);
      continue;
    }
    int64_t sizes[10];
    int ndim = tdict_batch_ndim(tree);
    memcpy(sizes, tdict_batch_size(tree), (size_t)ndim * sizeof *sizes);
    if (pick(shape, 0, 2) == 0) sizes[ndim++] = pick(shape, 1, 3);
    tdict_tree *child = help_tree(ndim, sizes);
    tree_grow(plan, child, depth + 1, shape, values);
    td_put_tree(tree, key, child);
  }
}

/* Called by tdict_walk(): copies a tensor of a host tree to a device, into a storage of its own. */
static inline tdict_status tree_move_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  tdict_tree *to = ((tdict_tree **)user)[0];
  tdict_memory *memory = ((tdict_memory **)user)[1];
  tdict_tensor *moved = NULL;
  if (!entry->tensor) {
    scoped_tree child = NULL;
    tdict_status status = tdict_create(tdict_batch_ndim(entry->tree), tdict_batch_size(entry->tree), &child, err);
    if (status == TDICT_OK) status = tdict_set_tree(to, entry->path, child, err);
    return status;
  }
  tdict_status status = tdict_tensor_clone(entry->tensor, memory, &moved, err);
  if (status == TDICT_OK) status = tdict_set(to, entry->path, moved, err);
  tdict_tensor_release(moved);
  return status;
}

/* Makes the tree that a plan describes, on the device of the run. */
static inline tdict_tree *tree_make(const tree_plan *plan) {
  rng shape = {plan->shape_seed}, values = {plan->value_seed};
  tdict_tree *tree = help_tree(plan->batch_ndim, plan->batch_size), *made = tree;
  const tdict_device device = td_device();
  tdict_memory *memory = tdict_device_memory(rig_context(), device);
  tree_grow(plan, tree, 0, &shape, &values);
  if (device.type != TDICT_DEVICE_CPU && plan->layout != LAYOUT_BLOCK) {
    made = help_tree(plan->batch_ndim, plan->batch_size);
    void *user[] = {made, memory};
    td_ok(tdict_walk(tree, tree_move_leaf, user, err));
  } else if (plan->layout == LAYOUT_BLOCK) {
    scoped_schema schema = NULL;
    td_ok(tdict_schema_from_tree(tree, &schema, err));
    td_ok(tdict_create_from_schema(schema, td_options(tdict_create_options, memory = memory), &made, err));
    td_ok(tdict_copy(made, tree, NULL, err));
  }
  if (made != tree) tdict_release(tree);
  return made;
}

/* Copies a tree to host memory, where the functions below can read it. */
static inline tdict_tree *tree_on_host(const tdict_tree *tree) {
  return td_made(tree, tdict_to_device(rig_context(), tree, tdict_cpu(), NULL, &made, err));
}

static inline const char *tree_element(const tdict_tensor *t, const int64_t *index) {
  const int64_t *strides = tdict_tensor_strides(t);
  int64_t at = 0;
  for (int i = 0; i < tdict_tensor_ndim(t); i++) at += index[i] * strides[i];
  return (const char *)tdict_tensor_const_data(t) + at * (int64_t)tdict_dtype_bytes(tdict_tensor_dtype(t));
}
static inline bool tree_next_index(const tdict_tensor *t, int64_t *index) {
  for (int i = tdict_tensor_ndim(t); i-- > 0;) {
    if (++index[i] < tdict_tensor_shape(t)[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* The place of a part in `whole`. Element [i...] of the part is element [from, i...] of `whole` if is_stack is set.
 * Otherwise `from` is added to the index in dimension `dim`. */
typedef struct tree_place {
  const tdict_tree *whole;
  bool is_stack;
  int dim;
  int64_t from;
  size_t leaves;
} tree_place;
static inline tdict_status tree_check_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  tree_place *p = user;
  const tdict_tensor *part = entry->tensor;
  int64_t index[32] = {0}, in_whole[33];
  (void)err;
  if (!part) return TDICT_OK;
  const tdict_tensor *whole = td_leaf(p->whole, entry->path);
  const int ndim = tdict_tensor_ndim(part);
  p->leaves++;
  assert_int_equal(tdict_tensor_ndim(whole), ndim + p->is_stack);
  assert_int_equal(tdict_tensor_dtype(whole), tdict_tensor_dtype(part));
  for (int i = 0; i < ndim; i++)
    if (p->is_stack || i != p->dim)
      assert_int_equal(tdict_tensor_shape(whole)[i + p->is_stack], tdict_tensor_shape(part)[i]);
  if (tdict_tensor_numel(part) == 0) return TDICT_OK;
  do {
    memcpy(in_whole + p->is_stack, index, (size_t)ndim * sizeof *index);
    if (p->is_stack)
      in_whole[0] = p->from;
    else if (p->dim >= 0)
      in_whole[p->dim] += p->from;
    assert_memory_equal(tree_element(whole, in_whole), tree_element(part, index),
                        tdict_dtype_bytes(tdict_tensor_dtype(part)));
  } while (tree_next_index(part, index));
  return TDICT_OK;
}
/* Checks that the host tree `whole` contains the host tree `part`. If `dim` is -1, the trees must be equal. */
static inline void tree_check_part(const tdict_tree *whole, const tdict_tree *part, bool is_stack, int dim,
                                   int64_t from) {
  tree_place p = {whole, is_stack, dim, from, 0};
  td_ok(tdict_walk(part, tree_check_leaf, &p, err));
  assert_int_equal(p.leaves, tdict_num_leaves(whole));
}
/* Checks that two trees on any devices have equal keys in the same order, batch sizes, dtypes, shapes and elements. */
static inline void tree_check_equal(const tdict_tree *a, const tdict_tree *b) {
  scoped_tree x = tree_on_host(a), y = tree_on_host(b);
  scoped_schema s = NULL, t = NULL;
  tree_check_part(x, y, false, -1, 0);
  td_ok(tdict_schema_from_tree(x, &s, err));
  td_ok(tdict_schema_from_tree(y, &t, err));
  assert_true(tdict_schema_equal(s, t, NULL));
}

/* Makes a tree whose read-only tensor `x` borrows three values of the caller. */
static inline tdict_tree *help_read_only_tree(const float *values) {
  tdict_tree *tree = help_tree_without_batch();
  tdict_tensor_desc view = td_with(tdict_tensor_desc, data = (void *)(uintptr_t)values, dtype = TDICT_F32, ndim = 1);
  view.shape = (const int64_t[]){3};
  view.flags = TDICT_DESC_READ_ONLY;
  td_put(tree, "x", td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err)));
  return tree;
}

#endif
