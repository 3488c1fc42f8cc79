/* Operations that read trees, make trees from fields, or must be refused. See ops.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/debug.h"
#include "tdict/keysets.h"
#include "tdict/path.h"
#include "tdict/shape.h"
#include "tdict/visit.h"
#include "tdict/write.h"

#include "support/ops.h"

enum { MOST_ARRAYS = 64 };

static int count_arrays(const m_tree *t) {
  int count = 0;
  for (int i = 0; i < t->count; i++) count += t->entries[i].array ? 1 : count_arrays(t->entries[i].tree);
  return count;
}

static void op_create_from(ops *o) {
  static const char *const paths[] = {"a", "n.b", "n.m.u", "n", "a.b", ""};
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I64, TDICT_F32, TDICT_I16, 77};
  tdict_field fields[3];
  int64_t bs[2] = {ops_pick(o, 4), 2};
  memset(fields, 0, sizeof fields);
  for (int i = 0; i < 3; i++) {
    fields[i].path = paths[ops_pick(o, 2) ? (uint32_t)i : ops_pick(o, 6)];
    fields[i].dtype = dtypes[ops_pick(o, 3) ? (uint32_t)i : ops_pick(o, 5)];
    fields[i].ndim = (int32_t)ops_pick(o, 2);
    fields[i].shape[0] = fields[i].ndim ? 3 : 0;
  }
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_create_from(fields, 3, 2, bs, NULL, &td, o->err));
  /* This operation checks only the new tree. Other tests check which fields are refused. */
  if (o->refused || status != TDICT_OK) return;
  m_tree *made = m_tree_make(2, bs);
  for (int i = 0; i < 3; i++) {
    const int64_t shape[] = {bs[0], 2, 3};
    m_array *a = m_array_make(fields[i].dtype, 2 + fields[i].ndim, shape);
    char text[16], *part = text, *dot;
    m_array_zero(a);
    snprintf(text, sizeof text, "%s", fields[i].path);
    m_tree *node = made;
    for (; (dot = strchr(part, '.')) != NULL; part = dot + 1) {
      *dot = 0;
      m_entry *e = m_find(node, part);
      node = e ? e->tree : m_put(node, part, NULL, m_tree_make(2, bs))->tree;
    }
    m_put(node, part, a, NULL);
  }
  ops_judge(o, status, TDICT_OK);
  ops_keep(o, td, made);
}

static void op_pop(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->count == 0) return;
  const m_entry *e = &t->entries[ops_pick(o, (uint32_t)t->count)];
  char path[2 * M_KEY];
  bool tree = ops_pick(o, 2), fits = tree == (e->tree != NULL);
  tdict_path_escape(e->key, path, sizeof path);
  scoped_tensor tensor = NULL;
  scoped_tree child = NULL;
  tdict_status status =
      OPS_CALL(o, tree ? tdict_pop_tree(o->td[s], path, &child, o->err) : tdict_pop(o->td[s], path, &tensor, o->err));
  if (ops_judge(o, status, !fits ? TDICT_ETYPE : m_is_locked(t) ? TDICT_ELOCKED : TDICT_OK)) m_drop(t, e->key);
}

static size_t bytes_of(const m_tree *t) {
  size_t bytes = 0;
  for (int i = 0; i < t->count; i++) {
    const m_array *a = t->entries[i].array;
    bytes += a ? (size_t)a->n * (a->dtype >> 8 & 0xff) / 8 : bytes_of(t->entries[i].tree);
  }
  return bytes;
}

static int depth_of(const m_tree *t) {
  int deepest = 0;
  for (int i = 0; i < t->count; i++) {
    const m_tree *below = t->entries[i].tree;
    int depth = below && count_arrays(below) ? 1 + depth_of(below) : 0;
    if (depth > deepest) deepest = depth;
  }
  return deepest;
}

typedef struct walk {
  int left, trees;
} walk;
static tdict_status count_down(void *user, const tdict_entry *entry, tdict_error *err) {
  walk *w = user;
  (void)err;
  w->trees += entry->tree != NULL;
  return w->left-- > 0 ? TDICT_OK : TDICT_EHOOK;
}
static tdict_status stop(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)at, (void)err;
  return --*(int *)user ? TDICT_OK : TDICT_EHOOK;
}

static void op_sums(ops *o) {
  int s = ops_slot(o), count = count_arrays(o->model[s]), left = 1 + (int)ops_pick(o, 4), most = left;
  const tdict_tree *td = o->td[s];
  size_t unique = 0;
  walk w = {1 << 20, 0};
  tdict_status status = OPS_CALL(o, tdict_unique_bytes(td, &unique, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  if (tdict_num_leaves(td) != (size_t)count || tdict_bytes(td) != bytes_of(o->model[s]) ||
      (tdict_num_leaves(td) + tdict_num_objects(td) == 0) != (count == 0) || tdict_depth(td) != depth_of(o->model[s]))
    ops_complain(o, "a sum");
  if (tdict_walk(td, count_down, &w, o->err) != TDICT_OK) ops_complain(o, "walk");
  if ((1 << 20) - w.left != count + w.trees) ops_complain(o, "entries");
  w.left = 0;
  if (tdict_num_keys(td) && tdict_walk(td, count_down, &w, o->err) != TDICT_EHOOK) ops_complain(o, "walk on");
  if (tdict_visit(NULL, &td, 1, stop, &left, NULL, o->err) != (count >= most ? TDICT_EHOOK : TDICT_OK))
    ops_complain(o, "visit");
  FILE *null = fopen("/dev/null", "w");
  if (null && tdict_print(td, null, o->err) != TDICT_OK) ops_complain(o, "print");
  if (null) fclose(null);
}

/* Compares a tree with a copy in which one element may differ. The comparison must find the path of that element. */
static void op_compare(ops *o) {
  int s = ops_slot(o);
  m_array *list[MOST_ARRAYS];
  static char paths[MOST_ARRAYS][2 * M_KEY];
  int count = m_arrays(o->model[s], list, paths, MOST_ARRAYS);
  scoped_tree copy = NULL;
  tdict_difference_options options = tdict_difference_options_default();
  tdict_difference found;
  options.nan_equal = true;
  if (tdict_clone_deep(o->td[s], NULL, &copy, NULL) != TDICT_OK) abort();
  int at = count ? (int)ops_pick(o, (uint32_t)count) : 0;
  bool changes = count && list[at]->n && ops_pick(o, 4);
  int64_t k = changes ? ops_pick(o, (uint32_t)list[at]->n) : 0;
  if (changes) {
    unsigned char *bytes = tdict_data(copy, paths[at]);
    size_t item = (list[at]->dtype >> 8 & 0xff) / 8;
    bytes[(size_t)k * item] ^= 1; /* flips the lowest bit */
  }
  if (ops_pick(o, 3) == 0) options.absolute = options.relative = 0.5;
  tdict_status status = OPS_CALL(o, tdict_get_difference(o->td[s], copy, &options, &found, o->err));
  if (ops_judge(o, status, TDICT_OK) && options.absolute == 0) {
    bool nan = false;
    if (changes && list[at]->dtype == TDICT_F32) /* skip NaN, infinity and numbers next to 0 */
      nan =
          (m_value(list[at]->cells[k]) & 0x7f800000u) == 0x7f800000u || (m_value(list[at]->cells[k]) & 0x7fffffffu) < 2;
    if (!nan && found.differs != changes) ops_complain(o, "differs");
    if (!nan && changes && strcmp(found.path, paths[at]) != 0) ops_complain(o, "path");
  }
}

static m_array *same_array(const m_array *a, void *user) {
  (void)user;
  return (m_array *)(uintptr_t)a;
}

static void op_row_of_empty(ops *o) {
  int s = ops_slot(o);
  m_tree *row = o->model[s];
  int64_t bs[M_DIMS] = {3};
  if (row->nb > 3 || row->count == 0) return;
  for (int i = 0; i < row->nb; i++) bs[i + 1] = row->bs[i];
  scoped_tree td = NULL, part = NULL;
  if (tdict_create(row->nb + 1, bs, &td, NULL) != TDICT_OK) abort();
  tdict_status status = OPS_CALL(o, tdict_write_rows(td, 1, o->td[s], o->err));
  if (ops_judge(o, status, m_fits(row) ? TDICT_OK : TDICT_ESHAPE)) {
    if (tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &part, NULL) != TDICT_OK) abort();
    m_tree *wanted = m_tree_each(row, row->nb, row->nb, row->bs, same_array, NULL);
    wanted->cpu = false; /* the destination has no device */
    m_open(wanted);
    m_ignore_places = true;
    const char *wrong = m_check(wanted, part);
    m_ignore_places = false;
    if (wrong) ops_complain(o, wrong);
  }
}

/* Checks that operations refuse trees with different batch sizes. */
static void op_misfits(ops *o) {
  int s = ops_slot(o);
  m_tree *t = o->model[s];
  if (t->nb == 0 || t->bs[0] == 0 || t->count == 0) return;
  int64_t bs[M_DIMS];
  memcpy(bs, t->bs, sizeof bs);
  bs[0]++;
  scoped_tree other = NULL, pad = NULL;
  tdict_tree *out = NULL;
  if (tdict_create(t->nb, bs, &other, NULL) != TDICT_OK) abort();
  const tdict_tree *both[] = {o->td[s], other};
  uint32_t way = ops_pick(o, 5);
  tdict_status status =
      OPS_CALL(o, way == 0   ? tdict_stack(both, 2, NULL, NULL, &out, o->err)
                  : way == 1 ? tdict_stack_into(other, both, 1, NULL, NULL, o->err)
                  : way == 2 ? tdict_index_set(NULL, o->td[s], TDICT_INDEX(TDICT_REST), other, NULL, o->err)
                  : way == 3 ? tdict_cat_into(other, both, 1, NULL, NULL, o->err)
                             : tdict_index_set(NULL, o->td[s], TDICT_INDEX(TDICT_AT(0)), o->td[s], NULL, o->err));
  ops_judge(o, status, TDICT_ESHAPE);
}

/* Compares two trees of the pool in both orders. Both results must be the same. A tree must equal itself. */
static void op_compare_two(ops *o) {
  int a = ops_slot(o), b = ops_slot(o);
  tdict_difference_options options = tdict_difference_options_default();
  tdict_difference one, other;
  options.nan_equal = true;
  tdict_status status = OPS_CALL(o, tdict_get_difference(o->td[a], o->td[b], &options, &one, o->err));
  if (!ops_judge(o, status, TDICT_OK)) return;
  if (tdict_get_difference(o->td[b], o->td[a], &options, &other, o->err) != TDICT_OK) ops_complain(o, "the other way");
  if (one.differs != other.differs || (a == b && one.differs)) ops_complain(o, "both ways");
}

/* Sets, deletes and renames enough keys that the tree uses a hash table. */
static void op_many_keys(ops *o) {
  int64_t bs[1] = {2};
  m_tree *model = m_tree_make(1, bs);
  scoped_tree td = NULL;
  if (tdict_create(1, bs, &td, NULL) != TDICT_OK) abort();
  int count = 5 + (int)ops_pick(o, 40);
  for (int i = 0; i < 2 * count; i++) {
    char key[M_KEY], other[M_KEY];
    snprintf(key, sizeof key, "key%d", (int)ops_pick(o, (uint32_t)count));
    snprintf(other, sizeof other, "%s%d",
             ops_pick(o, 9) ? "key" : "a rather long name of a key, to fill the names' memory, ",
             (int)ops_pick(o, (uint32_t)count));
    m_entry *e = m_find(model, key), *there = m_find(model, other);
    if (e && ops_pick(o, 3) == 0) {
      if (tdict_delete(td, key, o->err) != TDICT_OK) ops_complain(o, "delete");
      m_drop(model, key);
    } else if (e && e != there) {
      if (tdict_rename(td, key, other, false, o->err) != TDICT_OK) ops_complain(o, "rename");
      if (there) m_drop(model, other);
      snprintf(m_find(model, key)->key, M_KEY, "%s", other);
    } else if (!e) {
      m_array *a = m_array_make(TDICT_U8, 1, bs);
      m_array_fresh(a, (uint64_t)i);
      tdict_tensor *t = ops_tensor(a);
      if (tdict_set(td, key, t, o->err) != TDICT_OK) ops_complain(o, "set");
      tdict_tensor_release(t);
      m_put(model, key, a, NULL);
    }
  }
  tdict_tree *copy = NULL;
  tdict_status status = OPS_CALL(o, tdict_clone(td, &copy, o->err));
  if (ops_judge(o, status, TDICT_OK)) ops_keep(o, copy, m_share(model));
  const char *wrong = m_check(model, td);
  if (wrong) ops_complain(o, wrong);
}

/* Checks that invalid masks and indices, values of a different dtype, and read-only storage are refused. */
static void op_bad_indices(ops *o) {
  static const int64_t five[] = {5};
  static float fixed[5];
  scoped_tree td = NULL, value = NULL;
  tdict_tree *out = NULL;
  scoped_tensor wide = NULL, narrow = NULL, constant = NULL, number = NULL, empty = NULL;
  tdict_tensor_desc v =
      td_with(tdict_tensor_desc, data = fixed, dtype = TDICT_F32, ndim = 1, shape = five, flags = TDICT_DESC_READ_ONLY);
  tdict_error *err = o->err;
  bool made = tdict_create(1, five, &td, err) == TDICT_OK && tdict_create(1, five, &value, err) == TDICT_OK &&
              tdict_tensor_zeros(TDICT_I64, 1, five, NULL, &wide, err) == TDICT_OK &&
              tdict_tensor_zeros(TDICT_BOOL, 1, (const int64_t[]){3}, NULL, &narrow, err) == TDICT_OK &&
              tdict_tensor_zeros(TDICT_BOOL, 0, NULL, NULL, &empty, err) == TDICT_OK &&
              tdict_tensor_zeros(TDICT_F32, 1, five, NULL, &number, err) == TDICT_OK &&
              tdict_tensor_from_data(&v, NULL, NULL, &constant, err) == TDICT_OK &&
              tdict_set(td, "x", constant, err) == TDICT_OK && tdict_set(value, "x", number, err) == TDICT_OK;
  if (!made) abort();
  const tdict_tree *items[] = {value};
  const tdict_status answers[] = {
      tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(wide)), NULL, &out, err),
      tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(narrow)), NULL, &out, err),
      tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(empty)), NULL, &out, err),
      tdict_index_get(NULL, td, TDICT_INDEX(tdict_index_of(9, 0, 0, 0, NULL)), NULL, &out, err),
      tdict_write(td, "x", NULL, number, err),
      tdict_write(td, "x", NULL, wide, err),
      tdict_copy(td, value, NULL, err),
      tdict_fill(td, NULL, 0, NULL, err),
      tdict_index_set(NULL, td, TDICT_INDEX(TDICT_REST), value, NULL, err),
      tdict_cat_into(td, items, 1, NULL, NULL, err),
      tdict_fill(value, "x.y", 0, NULL, err)};
  static const tdict_status wanted[] = {TDICT_EDTYPE,    TDICT_ESHAPE,    TDICT_ESHAPE,    TDICT_EINVAL,
                                        TDICT_EREADONLY, TDICT_EDTYPE,    TDICT_EREADONLY, TDICT_EREADONLY,
                                        TDICT_EREADONLY, TDICT_EREADONLY, TDICT_ETYPE};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (answers[i] != wanted[i]) ops_complain(o, tdict_status_name(wanted[i]));
  o->answered = TDICT_EINVAL;
}

static void judge_nulls(ops *o, const tdict_status *answers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char text[64];
    if (answers[i] == TDICT_EINVAL) continue;
    snprintf(text, sizeof text, "call %zu answered %s", i, tdict_status_name(answers[i]));
    ops_complain(o, text);
  }
  o->answered = TDICT_EINVAL;
}

/* Passes NULL for required arguments. */
static void nulls_of_shapes(ops *o) {
  const tdict_tree *td = o->td[0], *holes[] = {td, NULL};
  tdict_tree *to = o->td[0], *out = NULL;
  tdict_error *err = o->err;
  const tdict_indices *all = TDICT_INDEX(TDICT_REST);
  const int64_t one[] = {1};
  size_t count = 9;
  const tdict_status answers[] = {tdict_index_get(NULL, NULL, all, NULL, &out, err),
                                  tdict_index_set(NULL, to, all, NULL, NULL, err),
                                  tdict_write_rows(to, 0, NULL, err),
                                  tdict_write_rows(NULL, 0, td, err),
                                  tdict_reshape_view(NULL, 1, one, &out, err),
                                  tdict_reshape(td, 99, one, &out, err),
                                  tdict_merge_dims(NULL, 0, 0, &out, err),
                                  tdict_split_dim(NULL, 0, 1, one, &out, err),
                                  tdict_unsqueeze(NULL, 0, &out, err),
                                  tdict_squeeze(NULL, 0, &out, err),
                                  tdict_expand(NULL, 1, one, &out, err),
                                  tdict_permute(NULL, 0, NULL, &out, err),
                                  tdict_transpose(NULL, 0, 0, &out, err),
                                  tdict_split(NULL, 0, one, &out, &(size_t){1}, err),
                                  tdict_split_every(td, 0, 0, &out, NULL, err),
                                  tdict_unbind(NULL, 0, &out, &count, err),
                                  tdict_stack(holes, 2, NULL, NULL, &out, err),
                                  tdict_cat(holes, 0, NULL, NULL, &out, err),
                                  tdict_stack_into(NULL, holes, 2, NULL, NULL, err),
                                  tdict_pad_sequence(holes, 2, NULL, NULL, &out, err)};
  judge_nulls(o, answers, sizeof answers / sizeof *answers);
}

static void nulls_of_keys(ops *o) {
  const tdict_tree *td = o->td[0], *holes[] = {td, NULL};
  tdict_tree *to = o->td[0], *out = NULL;
  tdict_error *err = o->err;
  const char *const none[] = {NULL};
  size_t count = 9;
  tdict_difference found;
  const tdict_status writes[] = {tdict_write(to, "a", NULL, NULL, err),
                                 tdict_write(to, "a", TDICT_INDEX(TDICT_REST), NULL, err),
                                 tdict_fill(NULL, NULL, 0, NULL, err),
                                 tdict_copy(to, NULL, NULL, err),
                                 tdict_update_in_place(to, NULL, NULL, 0, err),
                                 tdict_update(NULL, td, NULL, 0, err),
                                 tdict_update(to, o->td[1], none, 1, err),
                                 tdict_set(to, NULL, NULL, err),
                                 tdict_set_tree(to, "x", NULL, err),
                                 tdict_delete(to, "a..b", err),
                                 tdict_rename(to, "a", NULL, false, err),
                                 tdict_set_batch_size(NULL, 0, NULL, err),
                                 tdict_set_device(NULL, NULL, err),
                                 tdict_unlock(NULL, err)};
  const tdict_status reads[] = {tdict_select(td, none, 1, true, &out, err),
                                tdict_exclude(td, none, 1, &out, err),
                                tdict_split_keys(NULL, NULL, 0, &out, &(size_t){1}, err),
                                tdict_flatten_keys(td, "", &out, err),
                                tdict_unflatten_keys(NULL, NULL, &out, err),
                                tdict_clone(NULL, &out, err),
                                tdict_clone_deep(td, NULL, NULL, err),
                                tdict_get_difference(td, NULL, NULL, &found, err),
                                tdict_visit(NULL, holes, 2, stop, NULL, NULL, err),
                                tdict_apply(NULL, NULL, 0, NULL, NULL, NULL, &out, err),
                                tdict_filter(td, NULL, NULL, &out, err),
                                tdict_walk(td, NULL, NULL, err),
                                tdict_unique_bytes(NULL, &count, err),
                                tdict_create(-1, NULL, &out, err),
                                tdict_create(1, NULL, &out, err),
                                tdict_print(NULL, NULL, err),
                                tdict_create_from(NULL, 1, 0, NULL, NULL, &out, err)};
  judge_nulls(o, writes, sizeof writes / sizeof *writes);
  judge_nulls(o, reads, sizeof reads / sizeof *reads);
}

static void op_nulls(ops *o) {
  nulls_of_shapes(o);
  nulls_of_keys(o);
}

const ops_fn ops_more[] = {op_create_from, op_pop,         op_sums,      op_compare,     op_row_of_empty, op_misfits,
                           op_nulls,       op_compare_two, op_many_keys, op_bad_indices, ops_schema};
const char *const ops_more_names[] = {"create_from",  "pop",         "sums",  "compare",
                                      "row_of_empty", "misfits",     "nulls", "compare_two",
                                      "many_keys",    "bad_indices", "schema"};
const int ops_num_more = sizeof ops_more / sizeof *ops_more;
