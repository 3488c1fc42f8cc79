/* Moves trees to the simulated device and back: with the option keep, as lazy stacks, and with leaves that are not
 * tensors. Also runs operations on device trees. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/convert.h"
#include "tdict/path.h"
#include "tdict/write.h"

#include "support/lazy.h"
#include "support/ops.h"
#include "support/run.h"

enum { MOST_ARRAYS = 64, MOST_PATH = 1024, STAGING_BYTES = 1 << 16 };

static tdict_context *context;

tdict_context *ops_context(void) {
  tdict_context_options options = tdict_context_options_default();
  if (context) return context;
  options.device = tdict_sim(0);
  options.num_threads = 1;
  options.staging_bytes = STAGING_BYTES;
  if (tdict_context_create(&options, &context, NULL) != TDICT_OK) abort();
  return context;
}

void ops_close_context(void) {
  tdict_context_destroy(context);
  context = NULL;
}

tdict_status ops_there_and_back(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  scoped_tree moved = NULL;
  tdict_status status = tdict_to_device(ops_context(), td, tdict_sim(0), NULL, &moved, err);
  if (status == TDICT_OK) status = tdict_to_device(ops_context(), moved, tdict_cpu(), NULL, out, err);
  return status;
}

static void check_equal(ops *o, const tdict_tree *a, const tdict_tree *b) {
  tdict_difference_options options = tdict_difference_options_default();
  tdict_difference found;
  options.nan_equal = true;
  if (tdict_get_difference(a, b, &options, &found, NULL) != TDICT_OK) abort();
  if (found.differs) ops_complain(o, found.message);
}

/* Moves a tree from the device to host memory, and compares the result with `from`. */
static void check_moved(ops *o, const tdict_tree *moved, const tdict_tree *from) {
  scoped_tree back = NULL;
  if (tdict_to_device(ops_context(), moved, tdict_cpu(), NULL, &back, NULL) != TDICT_OK) {
    ops_complain(o, "the transfer to the host failed");
    return;
  }
  check_equal(o, back, from);
}

/* A pattern of the option keep: a path, all keys of the root, a key at any depth, or an invalid pattern (KEEP_NONE). */
typedef struct pattern {
  enum { KEEP_PATH, KEEP_ALL, KEEP_KEY, KEEP_NONE } kind;
  char text[MOST_PATH];
  const char *key; /* not escaped */
  tdict_tree *from, *moved;
} pattern;

static bool is_named(const pattern *p, const char *path, const char *key) {
  if (p->kind == KEEP_ALL) return true;
  return p->kind == KEEP_PATH ? strcmp(path, p->text) == 0 : p->kind == KEEP_KEY && strcmp(key, p->key) == 0;
}

/* Returns whether the pattern matches at least one tensor or child tree. */
static bool names_any(const pattern *p, const m_tree *t, const char *above) {
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    char path[MOST_PATH], key[2 * M_KEY];
    tdict_path_escape(e->key, key, sizeof key);
    if (strlen(above) > MOST_PATH - sizeof key - 2) continue;
    snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", key);
    if (is_named(p, path, e->key) || (e->tree && names_any(p, e->tree, path))) return true;
  }
  return false;
}

/* Checks that each kept tensor is shared, and that each other tensor is on the device. */
static void check_kept(ops *o, const pattern *p, const m_tree *t, const char *above, bool is_kept) {
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    char path[MOST_PATH], key[2 * M_KEY];
    tdict_path_escape(e->key, key, sizeof key);
    if (strlen(above) > MOST_PATH - sizeof key - 2) return;
    strcpy(path, above);
    if (*above) strcat(path, ".");
    strcat(path, key);
    const bool stays = is_kept || is_named(p, path, e->key);
    tdict_tensor *was = NULL, *now = NULL;
    if (e->tree) {
      check_kept(o, p, e->tree, path, stays);
      continue;
    }
    if (tdict_get(p->from, path, &was, NULL) != TDICT_OK || tdict_get(p->moved, path, &now, NULL) != TDICT_OK) {
      ops_complain(o, "no tensor");
      return;
    }
    const bool is_moved = tdict_device_equal(tdict_tensor_device(now), tdict_sim(0));
    if (stays ? now != was : !is_moved) ops_complain(o, stays ? "a kept tensor was moved" : "a tensor stayed");
  }
}

static void choose_pattern(ops *o, const m_tree *t, pattern *p) {
  static char paths[MOST_ARRAYS][2 * M_KEY];
  m_array *list[MOST_ARRAYS];
  const int count = m_arrays(t, list, paths, MOST_ARRAYS);
  const uint32_t way = ops_pick(o, 8), at = ops_pick(o, 64);
  *p = (pattern){.kind = KEEP_PATH, .key = ops_pick(o, 2) ? "a" : "n"};
  strcpy(p->text, p->key);
  if (way < 3 && count) memcpy(p->text, paths[at % (uint32_t)count], sizeof *paths);
  if (way == 3) *p = (pattern){.kind = KEEP_ALL, .text = "*"};
  if (way == 4 || way == 5) {
    p->kind = KEEP_KEY;
    strcpy(p->text, "**.");
    strcat(p->text, p->key);
  }
  if (way == 6) *p = (pattern){.kind = KEEP_NONE, .text = "a.n*"};
}

static void op_keep(ops *o) {
  const int s = ops_slot(o);
  static pattern p;
  scoped_tree moved = NULL;
  tdict_transfer_options options = tdict_transfer_options_default();
  choose_pattern(o, o->model[s], &p);
  const char *const keep[] = {p.text};
  options.keep = keep;
  options.num_keep = 1;
  tdict_context *c = ops_context();
  tdict_status status = OPS_CALL(o, tdict_to_device(c, o->td[s], tdict_sim(0), &options, &moved, o->err));
  const bool has_match = names_any(&p, o->model[s], "");
  if (ops_judge(o, status, p.kind == KEEP_NONE ? TDICT_EINVAL : has_match ? TDICT_OK : TDICT_ENOTFOUND)) {
    p.from = o->td[s];
    p.moved = moved;
    check_kept(o, &p, o->model[s], "", false);
    check_moved(o, moved, o->td[s]);
  }
}

static void op_lazy_move(ops *o) {
  ops_pile p;
  if (!ops_begin_pile(o, &p, OPS_VARY_KEYS | OPS_VARY_SHAPES | OPS_VARY_DTYPES)) return;
  tdict_lazy_stack *moved = NULL;
  tdict_context *c = ops_context();
  tdict_status status = OPS_CALL(o, td_lazy_to_device(c, p.lazy, tdict_sim(0), NULL, &moved, o->err));
  if (ops_judge(o, status, TDICT_OK)) {
    if (td_lazy_count(moved) != (size_t)p.count) ops_complain(o, "another number of items");
    for (int i = 0; i < p.count; i++) {
      tdict_tree *item = NULL;
      if (tdict_lazy_stack_get_item(moved, i, &item, NULL) != TDICT_OK) abort();
      check_moved(o, item, p.trees[i]);
    }
  }
  tdict_lazy_stack_release(moved);
  ops_end_pile(o, &p);
}

tdict_status ops_whole_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err) {
  tdict_tree *items[2] = {(tdict_tree *)(uintptr_t)td, (tdict_tree *)(uintptr_t)td};
  tdict_dtype_options options = tdict_dtype_options_default();
  tdict_lazy_stack *lazy = NULL;
  options.floats_only = true;
  if (c->way == 0) return ops_there_and_back(td, out, err);
  if (c->way == 1) return tdict_to_dtype(td, TDICT_F32, &options, NULL, out, err);
  tdict_status status = tdict_lazy_stack_create(items, 2, &lazy, err);
  if (status == TDICT_OK)
    status =
        c->way == 2 ? tdict_lazy_stack_densify(lazy, NULL, NULL, out, err) : tdict_lazy_stack_pad(lazy, NULL, out, err);
  tdict_lazy_stack_release(lazy);
  return status;
}

static void op_value_whole(ops *o) {
  (void)ops_context();
  ops_make_with_values(o, ops_whole_of, OPS_WHOLE_WAYS);
}

enum { DEVICE_WAYS = 9, MOST_ROWS = 4 };
/* An operation on a tree and a second tree of the same shapes. It makes a new tree or changes the first tree. */
typedef struct device_op {
  uint32_t way, n[MOST_ROWS];
  int64_t rows[MOST_ROWS];
  int count, dim;
  tdict_dtype dtype;
} device_op;

/* Returns an index: a range, an array of distinct row numbers, or the same numbers in the tensor `list`. */
static tdict_indices rows_of(const device_op *d, const tdict_tensor *list) {
  if (d->n[0] % 3 == 0) return *TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, d->n[1] % 2 ? -2 : 3));
  return d->n[0] % 3 == 1 ? *TDICT_INDEX(TDICT_LIST(d->rows, d->count)) : *TDICT_INDEX(TDICT_LIST_OF(list));
}

static tdict_status run_device_op(const device_op *d, tdict_tree *td, const tdict_tree *other, const tdict_tensor *list,
                                  tdict_tree **out, tdict_error *err) {
  const tdict_tree *both[2] = {td, other};
  tdict_join_options join = tdict_join_options_default();
  const tdict_indices rows = rows_of(d, list);
  tdict_tree *value = NULL;
  tdict_status status;
  join.dim = d->dim;
  switch (d->way) {
  case 0:
    return tdict_index_get(NULL, td, &rows, NULL, out, err);
  case 1:
    status = tdict_index_get(NULL, other, &rows, NULL, &value, err);
    if (status == TDICT_OK) status = tdict_index_set(NULL, td, &rows, value, NULL, err);
    tdict_release(value);
    return status;
  case 2:
    return tdict_clone_deep(td, NULL, out, err);
  case 3:
    return tdict_copy(td, other, NULL, err);
  case 4:
    return tdict_fill(td, NULL, d->n[2] % 100, NULL, err);
  case 5:
    return tdict_stack(both, 2, &join, NULL, out, err);
  case 6:
    return tdict_cat(both, 2, &join, NULL, out, err);
  case 7:
    return tdict_to_dtype(td, d->dtype, NULL, NULL, out, err);
  default:
    status = tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, &value, err);
    if (status == TDICT_OK) status = tdict_contiguous(value, NULL, out, err);
    tdict_release(value);
    return status;
  }
}

static device_op choose_device_op(ops *o, const tdict_tree *td) {
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I16, TDICT_F32, TDICT_I64, TDICT_F16, TDICT_BOOL};
  device_op d = {.way = ops_pick(o, DEVICE_WAYS), .dtype = dtypes[ops_pick(o, 6)]};
  const int64_t size = tdict_batch_ndim(td) ? tdict_batch_size(td)[0] : 0;
  for (int i = 0; i < MOST_ROWS; i++) d.n[i] = ops_pick(o, 1000);
  d.dim = (int)ops_pick(o, 3);
  d.count = size < MOST_ROWS ? (int)size : MOST_ROWS;
  for (int i = 0; i < d.count; i++) d.rows[i] = ((int64_t)i + (int64_t)d.n[3]) % size - (d.n[i] % 2 ? size : 0);
  if (d.count && d.n[3] % 7 == 0) d.rows[0] = size; /* out of range */
  return d;
}

/* Runs an operation on two copies of a tree, in host memory and on the device. Statuses and results must be equal. */
static void op_device(ops *o) {
  const int s = ops_slot(o);
  const device_op d = choose_device_op(o, o->td[s]);
  tdict_memory *memory = tdict_device_memory(ops_context(), tdict_sim(0));
  tdict_tree *trees[2][3] = {{NULL}}; /* [host or device]: the tree, the second tree, the result */
  tdict_tensor *lists[2] = {NULL};
  const int64_t count = d.count;
  if (tdict_tensor_from_array(TDICT_I64, 1, &count, d.rows, &lists[0], NULL) != TDICT_OK ||
      tdict_tensor_clone(lists[0], memory, &lists[1], NULL) != TDICT_OK)
    abort();
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 2; k++)
      if (tdict_clone_deep(o->td[s], TD_IN(i ? memory : NULL), &trees[i][k], NULL) != TDICT_OK) abort();
  for (int i = 0; i < 2; i++)
    if (tdict_fill(trees[i][1], NULL, 1 + d.n[1] % 9, NULL, NULL) != TDICT_OK) abort();
  const tdict_status wanted = run_device_op(&d, trees[0][0], trees[0][1], lists[0], &trees[0][2], NULL);
  tdict_status status = OPS_CALL(o, run_device_op(&d, trees[1][0], trees[1][1], lists[1], &trees[1][2], o->err));
  if (ops_judge(o, status, wanted) && trees[0][2]) check_moved(o, trees[1][2], trees[0][2]);
  if (!o->refused) check_moved(o, trees[1][0], trees[0][0]);
  for (int i = 0; i < 2; i++) {
    tdict_tensor_release(lists[i]);
    for (int k = 0; k < 3; k++) tdict_release(trees[i][k]);
  }
}

const ops_fn ops_transfers[] = {op_keep, op_lazy_move, op_value_whole, op_device};
const char *const ops_transfer_names[] = {"keep", "lazy_move", "value_whole", "device"};
const int ops_num_transfers = sizeof ops_transfers / sizeof *ops_transfers;
