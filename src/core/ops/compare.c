/* Compares two trees. compare_tensors() owns the host copies of device tensors. Thread rule: as in tdict/clone.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/options.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/objects.h"
#include "core/tree/text.h"
#include "tdict/clone.h"

typedef struct comparer {
  tdict_difference_options o;
  tdict_difference *out;
  /* while the tensors of flattened objects are compared: path of the object in the whole tree; else NULL */
  const char *parent_path;
  tdict_cursor cursor; /* walks the first tree; a frame's mark is the node of the second tree at the same path */
} comparer;

/* Records a difference, whose message is set, at the cursor's path, with the key `extra` if not NULL. */
static void note_difference(comparer *c, const tdict_key *extra) {
  c->out->differs = true;
  tdict_cursor_path(&c->cursor, c->parent_path, c->out->path, sizeof c->out->path);
  if (extra) tdict_node_path(c->out->path, extra, c->out->path, sizeof c->out->path);
}

#define SET_MESSAGE(c, ...) ((void)snprintf((c)->out->message, sizeof(c)->out->message, __VA_ARGS__))

static void describe_shapes(comparer *c, const char *what, const tdict_tensor *a, const tdict_tensor *b) {
  SET_MESSAGE(c, "%s %s and %s", what, TDICT_SHAPE_TEXT(a->ndim, a->dims), TDICT_SHAPE_TEXT(b->ndim, b->dims));
}

/* Compares batch sizes, and searches for a key that only b has. If there is a difference, records it and returns
 * false. */
static bool compare_nodes(comparer *c, const tdict_tree *a, const tdict_tree *b) {
  if (!tdict_shapes_equal(a->batch_ndim, a->batch_size, b->batch_ndim, b->batch_size)) {
    SET_MESSAGE(c, "batch sizes %s and %s", TDICT_SHAPE_TEXT(a->batch_ndim, a->batch_size),
                TDICT_SHAPE_TEXT(b->batch_ndim, b->batch_size));
    note_difference(c, NULL);
    return false;
  }
  const tdict_key *key = tdict_keys_find_extra(b->keys, a->keys); /* compare_leaf() finds keys that b lacks */
  if (!key) return true;
  SET_MESSAGE(c, "only the second tree has this key");
  note_difference(c, key);
  return false;
}

/* Compares like numpy.isclose(): the tolerance is relative to b. */
static bool is_close(const tdict_difference_options *o, double a, double b) {
  if (a == b) return true;
  if (isnan(a) || isnan(b)) return o->nan_equal && isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return false;
  return fabs(a - b) <= o->absolute + o->relative * fabs(b);
}

/* Returns true for integers, bool and types of several lanes. */
static bool is_exact(tdict_dtype dtype) {
  return tdict_dtype_is_integer(dtype) || dtype == TDICT_BOOL || dtype >> 16 != 1;
}

/* Compares two elements. Types of several lanes are compared by bytes. If both tolerances are 0, integers are compared
 * by bytes. All other elements are compared as complex numbers. Two bools that are not 0 are equal. */
static bool is_same_element(const comparer *c, tdict_dtype dtype, const void *a, const void *b) {
  double ar, ai, br, bi;
  bool tolerant = c->o.relative != 0 || c->o.absolute != 0;
  if (memcmp(a, b, tdict_dtype_bytes(dtype)) == 0 && (is_exact(dtype) || c->o.nan_equal)) return true;
  if (is_exact(dtype) && !tolerant) return dtype == TDICT_BOOL && !*(const char *)a == !*(const char *)b;
  if (!tdict_element_read(dtype, a, &ar, &ai) || !tdict_element_read(dtype, b, &br, &bi)) return false;
  return is_close(&c->o, ar, br) && is_close(&c->o, ai, bi);
}

/* Sets the message for two elements that differ. */
static void describe_elements(comparer *c, tdict_dtype dtype, const void *a, const void *b) {
  double ar, ai, br, bi;
  if (!tdict_element_read(dtype, a, &ar, &ai) || !tdict_element_read(dtype, b, &br, &bi))
    SET_MESSAGE(c, "the bytes of the elements");
  else if ((dtype & 0xffu) == 5)
    SET_MESSAGE(c, "elements (%.9g, %.9g) and (%.9g, %.9g)", ar, ai, br, bi);
  else
    SET_MESSAGE(c, "elements %.17g and %.17g", ar, br);
}

/* Counts equal numbers at the start of two arrays, in blocks that compilers vectorize. NaN is not equal to NaN.
 * memcpy(), because memory of the program can be aligned less than the type. */
#define COUNT_EQUAL(type)                                                          \
  while (found < count) {                                                          \
    type x[BLOCK], y[BLOCK];                                                       \
    const int64_t n = count - found < BLOCK ? count - found : BLOCK;               \
    int64_t num_equal = 0;                                                         \
    memcpy(x, (const char *)a + (size_t)found * sizeof *x, (size_t)n * sizeof *x); \
    memcpy(y, (const char *)b + (size_t)found * sizeof *y, (size_t)n * sizeof *y); \
    for (int64_t i = 0; i < n; i++) num_equal += x[i] == y[i];                     \
    if (num_equal != n) break;                                                     \
    found += n;                                                                    \
  }

/* Returns how many elements at the start of two contiguous tensors are known to be equal. Stops before the first block
 * that has a difference. Returns 0 for dtypes other than float32 and float64. */
static int64_t count_equal(const tdict_tensor *t, const void *a, const void *b) {
  enum { BLOCK = 32 };
  int64_t count = t->numel, found = 0;
  if (t->dtype == TDICT_F32) COUNT_EQUAL(float)
  if (t->dtype == TDICT_F64) COUNT_EQUAL(double)
  return found;
}

/* Compares the elements of two host tensors of the same dtype and shape, and records the first difference. */
TDICT_FLOAT_ENV_BODY static void compare_elements(comparer *c, const tdict_tensor *a, const tdict_tensor *b) {
  const int64_t *sa = tdict_tensor_dims_strides(a), *sb = tdict_tensor_dims_strides(b);
  const size_t item = tdict_dtype_bytes(a->dtype);
  int64_t at[TDICT_MAX_NDIM] = {0};
  const char *pa = a->data, *pb = b->data;
  int64_t equal = 0;
  /* Skip equal elements at the start, in blocks. */
  if (a->numel && tdict_tensor_is_contiguous(a) && tdict_tensor_is_contiguous(b)) {
    if (is_exact(a->dtype) && memcmp(pa, pb, tdict_tensor_nbytes(a)) == 0) return;
    equal = count_equal(a, pa, pb);
    for (int64_t d = a->ndim - 1, quotient = equal; d >= 0 && equal < a->numel; quotient /= a->dims[d--])
      at[d] = quotient % a->dims[d];
  }
  /* Compare the other elements one by one, at any strides. */
  for (int64_t n = a->numel - equal; n > 0; n--) {
    int64_t oa = 0, ob = 0;
    for (int d = 0; d < a->ndim; d++) oa += at[d] * sa[d], ob += at[d] * sb[d];
    const char *x = pa + oa * (int64_t)item, *y = pb + ob * (int64_t)item;
    if (!is_same_element(c, a->dtype, x, y)) {
      describe_elements(c, a->dtype, x, y);
      memcpy(c->out->index, at, (size_t)a->ndim * sizeof *at);
      c->out->ndim = a->ndim;
      note_difference(c, NULL);
      return;
    }
    for (int d = a->ndim - 1; d >= 0 && ++at[d] == a->dims[d]; d--) at[d] = 0;
  }
}

/* Waits for transfers that write `t`. Sets *out to `t` if `t` is on the host. Otherwise sets *out and *copy to a host
 * copy, which the caller releases. `bytes` names the bytes of `t` for messages. */
static tdict_status copy_device_tensor_to_host(const tdict_tensor *t, const char *bytes, const tdict_tensor **out,
                                               tdict_tensor **copy, tdict_error *err) {
  tdict_tensor_await(t, false);
  if (tdict_tensor_is_lost(t)) return tdict_tensor_refuse_lost("compare", bytes, t, err);
  *out = t;
  if (tdict_is_on_host(t)) return TDICT_OK;
  tdict_status status = tdict_tensor_clone(t, NULL, copy, err);
  *out = *copy;
  return status;
}

/* Compares the dtypes, shapes and elements of two tensors, and records the first difference. */
static tdict_status compare_tensors(comparer *c, const tdict_tensor *a, const tdict_tensor *b, tdict_error *err) {
  if (a->dtype != b->dtype) {
    SET_MESSAGE(c, "dtypes %s and %s", TDICT_DTYPE_TEXT(a->dtype), TDICT_DTYPE_TEXT(b->dtype));
    note_difference(c, NULL);
    return TDICT_OK;
  }
  if (!tdict_shapes_equal(a->ndim, a->dims, b->ndim, b->dims)) {
    describe_shapes(c, "shapes", a, b);
    note_difference(c, NULL);
    return TDICT_OK;
  }
  const tdict_tensor *x, *y;
  tdict_tensor *copies[2] = {NULL, NULL};
  tdict_status status = copy_device_tensor_to_host(a, "the bytes in the first tree", &x, &copies[0], err);
  if (status == TDICT_OK) status = copy_device_tensor_to_host(b, "the bytes in the second tree", &y, &copies[1], err);
  if (status == TDICT_OK) {
    const tdict_float_env saved = tdict_float_env_enter();
    compare_elements(c, x, y);
    tdict_float_env_leave(&saved);
  }
  tdict_tensor_release(copies[0]);
  tdict_tensor_release(copies[1]);
  return status;
}

static tdict_status compare_trees(comparer *c, const tdict_tree *a, const tdict_tree *b, tdict_error *err);

/* Compares two objects by `equal` of a built-in type, or by their flattened tensors. Objects of different types are a
 * difference. */
static tdict_status compare_objects(comparer *c, const tdict_box *a, const tdict_box *b, tdict_error *err) {
  static const tdict_flatten_rule opening = {.what = "compare", .way = TDICT_OBJECT_AS_TENSORS};
  if (a == b) return TDICT_OK;
  if (a->type != b->type) {
    SET_MESSAGE(c, "objects of type %.60s and %s%.60s", a->type->name,
                strcmp(a->type->name, b->type->name) == 0 ? "another one named " : "", b->type->name);
    note_difference(c, NULL);
    return TDICT_OK;
  }
  const tdict_builtin *builtin = tdict_builtin_of(a->type);
  if (builtin && builtin->equal) {
    const tdict_float_env saved = tdict_float_env_enter();
    const bool is_equal = builtin->equal(a->self, b->self, c->out->message, sizeof c->out->message);
    tdict_float_env_leave(&saved);
    if (!is_equal) note_difference(c, NULL);
    return TDICT_OK;
  }
  char path[sizeof((tdict_error *)NULL)->path];
  tdict_tree *x = NULL, *y = NULL;
  comparer inner = {.o = c->o, .out = c->out, .parent_path = path};
  tdict_cursor_path(&c->cursor, c->parent_path, path, sizeof path);
  tdict_status status = tdict_box_flatten(&opening, a, path, &x, err);
  if (status == TDICT_OK) status = tdict_box_flatten(&opening, b, path, &y, err);
  if (status == TDICT_OK) {
    tdict_cursor_init(&inner.cursor, x, false);
    status = compare_trees(&inner, x, y, err);
    tdict_cursor_reset(&inner.cursor);
  }
  tdict_release(x);
  tdict_release(y);
  return status;
}

/* Compares the entry at the cursor with b's. For two trees, sets *below to b's, and compare_trees() descends. */
static tdict_status compare_leaf(comparer *c, tdict_leaf leaf, tdict_tree **below, tdict_error *err) {
  const tdict_frame *top = &c->cursor.frames[c->cursor.depth - 1];
  const tdict_key *key = tdict_cursor_key(&c->cursor);
  const tdict_tree *b = (const tdict_tree *)top->mark;
  int64_t slot = tdict_keys_find_key(b->keys, key);
  tdict_leaf other_leaf = slot < 0 ? 0 : b->leaves[slot];
  if (tdict_leaf_tree(leaf) && tdict_leaf_tree(other_leaf)) {
    *below = tdict_leaf_tree(other_leaf);
    return TDICT_OK;
  }
  if (tdict_leaf_tensor(leaf) && tdict_leaf_tensor(other_leaf))
    return compare_tensors(c, tdict_leaf_tensor(leaf), tdict_leaf_tensor(other_leaf), err);
  if (tdict_leaf_box(leaf) && tdict_leaf_box(other_leaf))
    return compare_objects(c, tdict_leaf_box(leaf), tdict_leaf_box(other_leaf), err);
  if (!other_leaf) {
    SET_MESSAGE(c, "only the first tree has this key");
  } else {
    SET_MESSAGE(c, "%s and %s", TDICT_LEAF_TEXT(leaf), TDICT_LEAF_TEXT(other_leaf));
  }
  note_difference(c, NULL);
  return TDICT_OK;
}

static tdict_status compare_trees(comparer *c, const tdict_tree *a, const tdict_tree *b, tdict_error *err) {
  c->cursor.frames[0].mark = (size_t)b;
  if (!compare_nodes(c, a, b)) return TDICT_OK;
  for (tdict_leaf leaf; !c->out->differs && (leaf = tdict_cursor_next(&c->cursor)) != 0;) {
    tdict_tree *below = NULL;
    tdict_status status = compare_leaf(c, leaf, &below, err);
    if (status != TDICT_OK) {
      if (tdict_leaf_box(leaf)) return status; /* the error names the path inside the object already */
      return tdict_cursor_fail(&c->cursor, c->parent_path, status, err);
    }
    if (!below || !compare_nodes(c, tdict_leaf_tree(leaf), below)) continue;
    tdict_cursor_descend(&c->cursor, tdict_leaf_tree(leaf), (size_t)below);
  }
  return tdict_cursor_check(&c->cursor, "compare", err);
}

tdict_status tdict_get_difference(const tdict_tree *a, const tdict_tree *b, const tdict_difference_options *options,
                                  tdict_difference *out, tdict_error *err) {
  tdict_difference found;
  comparer c = {.o = tdict_difference_options_default(), .out = &found};
  if (!a || !b || !out) return tdict_fail_null(err, "compare", !a ? "a" : !b ? "b" : "out");
  tdict_status status = tdict_options_read(&c.o, sizeof c.o, options, "compare options", err);
  if (status != TDICT_OK) return status;
  if (!(c.o.relative >= 0) || !(c.o.absolute >= 0))
    return tdict_fail(err, TDICT_EINVAL, "compare: tolerances %g and %g, wanted 0 or more", c.o.relative, c.o.absolute);
  memset(&found, 0, sizeof found);
  tdict_cursor_init(&c.cursor, a, false);
  status = compare_trees(&c, a, b, err);
  tdict_cursor_reset(&c.cursor);
  if (status == TDICT_OK) *out = found;
  return status;
}

bool tdict_equal(const tdict_tree *a, const tdict_tree *b) {
  tdict_difference found;
  return tdict_get_difference(a, b, NULL, &found, NULL) == TDICT_OK && !found.differs;
}
