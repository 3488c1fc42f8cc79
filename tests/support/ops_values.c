/* Operations on trees with texts, numbers, JSON and an unbatched tensor. The tensor "ids" says which value each element
 * of a column must have. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/unbatched.h"

#include "support/ops.h"

static const char whole[] = "whole";
enum { U_ELEMENTS = 6 };

void ops_value(int64_t id, tdict_value *out, char text[OPS_VALUE_BYTES]) {
  memset(out, 0, sizeof *out);
  out->kind = (int32_t)(id % 6);
  if (out->kind == TDICT_VALUE_BOOL) out->integer = id / 6 % 2;
  if (out->kind == TDICT_VALUE_INTEGER) out->integer = -id * 1000000007;
  if (out->kind == TDICT_VALUE_REAL) out->real = (double)id / 3;
  if (out->kind < TDICT_VALUE_TEXT) return;
  int n = out->kind == TDICT_VALUE_JSON
              ? snprintf(text, OPS_VALUE_BYTES, "{\"id\": [%lld]}", (long long)id)
              : snprintf(text, OPS_VALUE_BYTES, "%.*s%lld", (int)(id % 23), "a text of some length, or", (long long)id);
  out->text = text;
  out->length = (size_t)n;
}

bool ops_same_value(const tdict_value *a, const tdict_value *b) {
  if (a->kind != b->kind || a->integer != b->integer || a->length != b->length) return false;
  if (memcmp(&a->real, &b->real, sizeof a->real) != 0 || !a->text != !b->text) return false;
  return !a->text || (memcmp(a->text, b->text, a->length) == 0 && a->text[a->length] == 0);
}

static void put_level(tdict_tree *td, int64_t first) {
  static const tdict_value w = {TDICT_VALUE_TEXT, 0, 0, whole, sizeof whole - 1};
  int64_t count = 1;
  for (int i = 0; i < tdict_batch_ndim(td); i++) count *= tdict_batch_size(td)[i];
  tdict_tensor *ids = NULL;
  tdict_value *values = malloc(((size_t)count + 1) * sizeof *values);
  char(*texts)[OPS_VALUE_BYTES] = malloc(((size_t)count + 1) * sizeof *texts);
  bool ok = values && texts &&
            tdict_tensor_empty(TDICT_I64, tdict_batch_ndim(td), tdict_batch_size(td), NULL, &ids, NULL) == TDICT_OK;
  for (int64_t i = 0; ok && i < count; i++) {
    ((int64_t *)tdict_tensor_data(ids))[i] = first + i;
    ops_value(first + i, &values[i], texts[i]);
  }
  ok = ok && tdict_set(td, "ids", ids, NULL) == TDICT_OK &&
       tdict_set_values(td, "s", values, (size_t)count, NULL) == TDICT_OK &&
       tdict_set_values(td, "w", &w, TDICT_WHOLE_TREE, NULL) == TDICT_OK;
  tdict_tensor_release(ids);
  free(values);
  free(texts);
  if (!ok) abort();
}

void ops_put_values(tdict_tree *td) {
  int64_t shape[M_DIMS + 1];
  const int ndim = tdict_batch_ndim(td);
  tdict_tree *kid = NULL;
  tdict_tensor *u = NULL;
  for (int i = 0; i < ndim; i++) shape[i] = tdict_batch_size(td)[i];
  shape[ndim] = 2;
  bool ok = tdict_create(ndim + 1, shape, &kid, NULL) == TDICT_OK &&
            tdict_tensor_empty(TDICT_I16, 2, (const int64_t[]){2, U_ELEMENTS / 2}, NULL, &u, NULL) == TDICT_OK;
  if (!ok) abort();
  for (int i = 0; i < U_ELEMENTS; i++) ((int16_t *)tdict_tensor_data(u))[i] = (int16_t)(100 + i);
  put_level(td, 0);
  put_level(kid, 10000);
  ok = tdict_set_tree(td, "kid", kid, NULL) == TDICT_OK && tdict_set_unbatched(td, "u", u, NULL) == TDICT_OK;
  tdict_release(kid);
  tdict_tensor_release(u);
  if (!ok) abort();
}

static const tdict_nontensor *values_at(const tdict_tree *td, const char *path) {
  void *object = NULL;
  return tdict_get_object(td, path, tdict_nontensor_type(), &object, NULL) == TDICT_OK ? object : NULL;
}

/* Checks that column "s" has ops_value() of each element of "ids" at the same index. Returns a message or NULL. */
static const char *check_column(const tdict_tree *td) {
  const tdict_nontensor *values = values_at(td, "s");
  tdict_tensor *ids = NULL;
  const int64_t *shape = NULL;
  int64_t at[TDICT_MAX_NDIM] = {0};
  if (!values || tdict_get(td, "ids", &ids, NULL) != TDICT_OK) return "no values, or no ids";
  const int ndim = tdict_tensor_ndim(ids);
  if (tdict_nontensor_shape(values, &shape) != ndim) return "another number of dimensions";
  for (int i = 0; i < ndim; i++)
    if (shape[i] != tdict_tensor_shape(ids)[i]) return "another shape";
  for (int64_t k = 0; k < tdict_tensor_numel(ids); k++) {
    int64_t offset = 0;
    char text[OPS_VALUE_BYTES];
    tdict_value wanted, got, again;
    for (int d = 0; d < ndim; d++) offset += at[d] * tdict_tensor_strides(ids)[d];
    ops_value(((const int64_t *)tdict_tensor_const_data(ids))[offset], &wanted, text);
    if (tdict_nontensor_get(values, k, &got, NULL) != TDICT_OK) return "no value";
    if (!ops_same_value(&got, &wanted)) return "another value";
    if (tdict_get_value(td, "s", k, &again, NULL) != TDICT_OK || again.text != got.text) return "not by its path";
    for (int d = ndim - 1; d >= 0 && ++at[d] == shape[d]; d--) at[d] = 0;
  }
  return NULL;
}

/* Checks the value "w" of the whole tree, or the column that a join made from it. Returns a message or NULL. */
static const char *check_whole(const tdict_tree *td) {
  const tdict_nontensor *values = values_at(td, "w");
  const int64_t *shape;
  if (!values) return "no value for the tree";
  const int ndim = tdict_nontensor_shape(values, &shape);
  int64_t count = 1;
  if (ndim && ndim < tdict_batch_ndim(td)) return "the column has fewer dimensions than the tree";
  for (int i = 0; i < ndim; i++) {
    if (i < tdict_batch_ndim(td) && shape[i] != tdict_batch_size(td)[i]) return "the column has the wrong batch size";
    count *= shape[i];
  }
  for (int64_t i = 0; i < count; i++) {
    tdict_value value;
    if (tdict_nontensor_get(values, i, &value, NULL) != TDICT_OK || value.kind != TDICT_VALUE_TEXT ||
        strcmp(value.text, whole) != 0)
      return "another value for the tree";
  }
  return NULL;
}

const char *ops_check_values(const tdict_tree *td) {
  tdict_tree *kid = NULL;
  tdict_tensor *u = NULL;
  if (tdict_get_tree(td, "kid", &kid, NULL) != TDICT_OK) return "no kid";
  if (tdict_get_unbatched(td, "u", &u, NULL) != TDICT_OK) return "no unbatched tensor";
  if (tdict_tensor_ndim(u) != 2 || tdict_tensor_numel(u) != U_ELEMENTS) return "another unbatched shape";
  for (int i = 0; i < U_ELEMENTS; i++)
    if (((const int16_t *)tdict_tensor_const_data(u))[i] != 100 + i) return "another unbatched element";
  const char *wrong = check_column(td);
  if (!wrong) wrong = check_column(kid);
  if (!wrong) wrong = check_whole(td);
  return wrong ? wrong : check_whole(kid);
}

static tdict_tree *without_values(const tdict_tree *td) {
  static const char *const paths[] = {"s", "w", "u", "kid.s", "kid.w"};
  tdict_tree *plain = NULL;
  if (tdict_clone(td, &plain, NULL) != TDICT_OK) abort();
  if (tdict_is_locked(plain) && tdict_unlock(plain, NULL) != TDICT_OK) abort();
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    if (tdict_delete(plain, paths[i], NULL) != TDICT_OK) abort();
  return plain;
}

void ops_make_with_values(ops *o, ops_maker fn, uint32_t ways) {
  const int s = ops_slot(o);
  const m_tree *t = o->model[s];
  scoped_tree td = NULL, plain = NULL, got = NULL, wanted = NULL;
  tdict_difference found;
  tdict_difference_options options = td_with(tdict_difference_options, nan_equal = true);
  int64_t count = 1; /* a tree without tensors may have any batch size, even a huge one */
  for (int i = 0; i < t->nb && count <= 200; i++) count *= t->bs[i];
  if (!t->nb || t->nb > 4 || count > 200) return;
  if (tdict_create(t->nb, t->bs, &td, NULL) != TDICT_OK) abort();
  ops_put_values(td);
  plain = without_values(td);
  const ops_choice c = ops_choose(o, ways);
  tdict_status status = OPS_CALL(o, fn(td, &c, &got, o->err));
  tdict_status answer = o->refused ? TDICT_OK : fn(plain, &c, &wanted, NULL);
  if (ops_judge(o, status, answer)) {
    scoped_tree rest = without_values(got);
    const char *wrong = ops_check_values(got);
    if (wrong) ops_complain(o, wrong);
    if (tdict_get_difference(rest, wanted, &options, &found, NULL) != TDICT_OK) abort();
    if (found.differs) ops_complain(o, found.message);
  }
}

static void op_value_index(ops *o) { ops_make_with_values(o, ops_index_of, OPS_INDICES); }
static void op_value_shape(ops *o) { ops_make_with_values(o, ops_shape_of, OPS_SHAPES); }
static void op_value_join(ops *o) { ops_make_with_values(o, ops_join_of, OPS_JOINS); }

const ops_fn ops_values[] = {op_value_index, op_value_shape, op_value_join};
const char *const ops_value_names[] = {"value_index", "value_shape", "value_join"};
const int ops_num_values = sizeof ops_values / sizeof *ops_values;
