/* Whether two trees are the same. What is copied from a device is the call's. Thread rule: as in tdict/clone.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "tdict/clone.h"
#include "tensor/element.h"
#include "tree/objects.h"
#include "tree/text.h"

typedef struct comparer {
  tdict_compare_options o;
  tdict_difference *out;
  const char *above;   /* the path of a; NULL: none */
  tdict_cursor cursor; /* over a; a frame's mark is b's node */
} comparer;

/* Notes a difference; the text is in out->message already. */
static void differ(comparer *c, const tdict_key *extra) {
  c->out->differs = true;
  tdict_cursor_path(&c->cursor, c->above, c->out->path, sizeof c->out->path);
  if (extra) tdict_node_path(c->out->path, extra, c->out->path, sizeof c->out->path);
}

#define SAY(c, ...) ((void)snprintf((c)->out->message, sizeof(c)->out->message, __VA_ARGS__))

static bool same_shape(int a, const int64_t *sa, int b, const int64_t *sb) {
  return a == b && (a == 0 || memcmp(sa, sb, (size_t)a * sizeof *sa) == 0);
}

static bool say_shapes(comparer *c, const char *what, const tdict_tensor *a, const tdict_tensor *b) {
  char x[96], y[96];
  SAY(c, "%s %s and %s", what, tdict_text_shape(a->ndim, a->dims, x, sizeof x),
      tdict_text_shape(b->ndim, b->dims, y, sizeof y));
  return false;
}

/* Nodes: batch sizes and the number of keys. False when they differ. */
static bool compare_nodes(comparer *c, const tdict_tree *a, const tdict_tree *b) {
  char x[96], y[96];
  if (!same_shape(a->batch_ndim, a->batch_size, b->batch_ndim, b->batch_size)) {
    SAY(c, "batch sizes %s and %s", tdict_text_shape(a->batch_ndim, a->batch_size, x, sizeof x),
        tdict_text_shape(b->batch_ndim, b->batch_size, y, sizeof y));
    differ(c, NULL);
    return false;
  }
  if (b->keys->num_live <= a->keys->num_live) return true; /* a key that b lacks is found on the way */
  for (uint32_t i = 0; i < b->keys->num_slots; i++) {
    const tdict_key *key = &b->keys->slots[i];
    if (!key->name || tdict_keys_find_hashed(a->keys, key->name, key->length, key->hash) >= 0) continue;
    SAY(c, "only the second tree has this key");
    differ(c, key);
    return false;
  }
  return true;
}

static bool close_numbers(const tdict_compare_options *o, double a, double b) {
  if (a == b) return true;
  if (isnan(a) || isnan(b)) return o->nan_equal && isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return false;
  return fabs(a - b) <= o->absolute + o->relative * fabs(b);
}

static bool is_exact(tdict_dtype dtype) { return (dtype & 0xffu) <= 1 || dtype == TDICT_BOOL || dtype >> 16 != 1; }

static bool same_element(const comparer *c, tdict_dtype dtype, const void *a, const void *b) {
  double ar, ai, br, bi;
  bool tolerant = c->o.relative != 0 || c->o.absolute != 0;
  if (memcmp(a, b, tdict_dtype_bytes(dtype)) == 0 && (is_exact(dtype) || c->o.nan_equal)) return true;
  if (is_exact(dtype) && !tolerant) return dtype == TDICT_BOOL && !*(const char *)a == !*(const char *)b;
  if (!tdict_element_read(dtype, a, &ar, &ai) || !tdict_element_read(dtype, b, &br, &bi)) return false;
  return close_numbers(&c->o, ar, br) && close_numbers(&c->o, ai, bi);
}

static void say_element(comparer *c, tdict_dtype dtype, const void *a, const void *b) {
  double ar, ai, br, bi;
  if (!tdict_element_read(dtype, a, &ar, &ai) || !tdict_element_read(dtype, b, &br, &bi))
    SAY(c, "the elements' bytes");
  else if ((dtype & 0xffu) == 5)
    SAY(c, "elements (%.9g, %.9g) and (%.9g, %.9g)", ar, ai, br, bi);
  else
    SAY(c, "elements %.17g and %.17g", ar, br);
}

/* Counts the numbers that are equal, from the first on, a block at a time; NaN is not. The program's own memory may be
 * aligned to less than its numbers. */
#define COUNT_EQUAL(type)                                                          \
  while (found < count) {                                                          \
    type x[BLOCK], y[BLOCK];                                                       \
    const int64_t n = count - found < BLOCK ? count - found : BLOCK;               \
    int64_t same = 0;                                                              \
    memcpy(x, (const char *)a + (size_t)found * sizeof *x, (size_t)n * sizeof *x); \
    memcpy(y, (const char *)b + (size_t)found * sizeof *y, (size_t)n * sizeof *y); \
    for (int64_t i = 0; i < n; i++) same += x[i] == y[i];                          \
    if (same != n) break;                                                          \
    found += n;                                                                    \
  }

/* Elements at the beginning of two contiguous tensors that are seen to be equal: whole blocks of the common floats. */
static int64_t count_equal(const tdict_tensor *t, const void *a, const void *b) {
  enum { BLOCK = 32 };
  int64_t count = t->numel, found = 0;
  if (t->dtype == TDICT_F32) COUNT_EQUAL(float)
  if (t->dtype == TDICT_F64) COUNT_EQUAL(double)
  return found;
}

/* Elements of two host tensors of one dtype and shape. */
static void compare_elements(comparer *c, const tdict_tensor *a, const tdict_tensor *b) {
  const int64_t *sa = tdict_tensor_dims_strides(a), *sb = tdict_tensor_dims_strides(b);
  const size_t item = tdict_dtype_bytes(a->dtype);
  int64_t at[TDICT_MAX_NDIM] = {0};
  const char *pa = a->data, *pb = b->data;
  int64_t equal = 0;
  if (a->numel && tdict_tensor_is_contiguous(a) && tdict_tensor_is_contiguous(b)) {
    if (is_exact(a->dtype) && memcmp(pa, pb, tdict_tensor_nbytes(a)) == 0) return;
    equal = count_equal(a, pa, pb);
    for (int64_t d = a->ndim - 1, rest = equal; d >= 0 && equal < a->numel; rest /= a->dims[d--])
      at[d] = rest % a->dims[d];
  }
  for (int64_t n = a->numel - equal; n > 0; n--) {
    int64_t oa = 0, ob = 0;
    for (int d = 0; d < a->ndim; d++) oa += at[d] * sa[d], ob += at[d] * sb[d];
    const char *x = pa + oa * (int64_t)item, *y = pb + ob * (int64_t)item;
    if (!same_element(c, a->dtype, x, y)) {
      say_element(c, a->dtype, x, y);
      memcpy(c->out->index, at, (size_t)a->ndim * sizeof *at);
      c->out->ndim = a->ndim;
      differ(c, NULL);
      return;
    }
    for (int d = a->ndim - 1; d >= 0 && ++at[d] == a->dims[d]; d--) at[d] = 0;
  }
}

/* The tensor, or a copy of a device's tensor on the host, which *copy then is and the caller releases. */
static tdict_status to_host(const tdict_tensor *t, const char *which, const tdict_tensor **out, tdict_tensor **copy,
                            tdict_error *err) {
  tdict_tensor_await(t, false);
  if (tdict_tensor_is_lost(t))
    return tdict_fail(err, TDICT_EINVAL, "compare: the bytes in the %s tree never came, a transfer into them failed",
                      which);
  *out = t;
  if (t->storage->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  tdict_status status = tdict_tensor_clone(t, NULL, copy, err);
  *out = *copy;
  return status;
}

static tdict_status compare_tensors(comparer *c, const tdict_tensor *a, const tdict_tensor *b, tdict_error *err) {
  if (a->dtype != b->dtype) {
    char one[TDICT_DTYPE_TEXT_BYTES], other[TDICT_DTYPE_TEXT_BYTES];
    SAY(c, "dtypes %s and %s", tdict_dtype_format(a->dtype, one, sizeof one),
        tdict_dtype_format(b->dtype, other, sizeof other));
    differ(c, NULL);
    return TDICT_OK;
  }
  if (!same_shape(a->ndim, a->dims, b->ndim, b->dims)) {
    (void)say_shapes(c, "shapes", a, b);
    differ(c, NULL);
    return TDICT_OK;
  }
  const tdict_tensor *x, *y;
  tdict_tensor *copies[2] = {NULL, NULL};
  tdict_status status = to_host(a, "first", &x, &copies[0], err);
  if (status == TDICT_OK) status = to_host(b, "second", &y, &copies[1], err);
  if (status == TDICT_OK) compare_elements(c, x, y);
  tdict_tensor_release(copies[0]);
  tdict_tensor_release(copies[1]);
  return status;
}

static tdict_status compare(comparer *c, const tdict_tree *a, const tdict_tree *b, tdict_error *err);

/* Two objects of one type, by their tensors. */
static tdict_status compare_objects(comparer *c, const tdict_box *a, const tdict_box *b, tdict_error *err) {
  static const tdict_opening opening = {.what = "compare", .way = TDICT_WAY_TENSORS};
  if (a == b) return TDICT_OK;
  if (a->type != b->type) {
    SAY(c, "objects of type %.60s and %s%.60s", a->type->name,
        strcmp(a->type->name, b->type->name) == 0 ? "another one named " : "", b->type->name);
    differ(c, NULL);
    return TDICT_OK;
  }
  char path[sizeof((tdict_error *)NULL)->path];
  tdict_tree *x = NULL, *y = NULL;
  comparer inner = {.o = c->o, .out = c->out, .above = path};
  tdict_cursor_path(&c->cursor, c->above, path, sizeof path);
  tdict_status status = tdict_box_open(&opening, a, path, &x, err);
  if (status == TDICT_OK) status = tdict_box_open(&opening, b, path, &y, err);
  if (status == TDICT_OK) {
    tdict_cursor_init(&inner.cursor, x, false);
    status = compare(&inner, x, y, err);
    tdict_cursor_reset(&inner.cursor);
  }
  tdict_release(x);
  tdict_release(y);
  return status;
}

/* What the cursor shows of a, with what stands there in b; *below is b's node when both are trees. */
static tdict_status compare_leaf(comparer *c, tdict_leaf leaf, tdict_tree **below, tdict_error *err) {
  const tdict_frame *top = &c->cursor.frames[c->cursor.depth - 1];
  const tdict_key *key = tdict_cursor_key(&c->cursor);
  const tdict_tree *b = (const tdict_tree *)top->mark;
  int64_t slot = tdict_keys_find_hashed(b->keys, key->name, key->length, key->hash);
  tdict_leaf there = slot < 0 ? 0 : b->leaves[slot];
  if (tdict_leaf_tree(leaf) && tdict_leaf_tree(there)) {
    *below = tdict_leaf_tree(there);
    return TDICT_OK;
  }
  if (tdict_leaf_tensor(leaf) && tdict_leaf_tensor(there))
    return compare_tensors(c, tdict_leaf_tensor(leaf), tdict_leaf_tensor(there), err);
  if (tdict_leaf_box(leaf) && tdict_leaf_box(there))
    return compare_objects(c, tdict_leaf_box(leaf), tdict_leaf_box(there), err);
  if (!there) {
    SAY(c, "only the first tree has this key");
  } else {
    char x[TDICT_TEXT_LEAF_BYTES], y[TDICT_TEXT_LEAF_BYTES];
    SAY(c, "%s and %s", tdict_text_leaf(leaf, x), tdict_text_leaf(there, y));
  }
  differ(c, NULL);
  return TDICT_OK;
}

static tdict_status compare(comparer *c, const tdict_tree *a, const tdict_tree *b, tdict_error *err) {
  c->cursor.frames[0].mark = (size_t)b;
  if (!compare_nodes(c, a, b)) return TDICT_OK;
  for (tdict_leaf leaf; !c->out->differs && (leaf = tdict_cursor_next(&c->cursor)) != 0;) {
    tdict_tree *below = NULL;
    tdict_status status = compare_leaf(c, leaf, &below, err);
    if (status != TDICT_OK) {
      char path[sizeof((tdict_error *)NULL)->path];
      if (tdict_leaf_box(leaf)) return status; /* has its path */
      tdict_cursor_path(&c->cursor, c->above, path, sizeof path);
      return tdict_error_at(err, status, path);
    }
    if (!below || !compare_nodes(c, tdict_leaf_tree(leaf), below)) continue;
    if (!tdict_cursor_enter(&c->cursor, tdict_leaf_tree(leaf)))
      return tdict_fail(err, TDICT_ENOMEM, "compare: no memory to look through the trees");
    c->cursor.frames[c->cursor.depth - 1].mark = (size_t)below;
  }
  return TDICT_OK;
}

tdict_status tdict_compare(const tdict_tree *a, const tdict_tree *b, const tdict_compare_options *options,
                           tdict_difference *out, tdict_error *err) {
  tdict_difference found;
  comparer c = {.o = tdict_compare_options_default(), .out = &found};
  if (!a || !b || !out) return tdict_fail(err, TDICT_EINVAL, "compare: %s is NULL", !a ? "a" : !b ? "b" : "out");
  tdict_status status = tdict_options_read(&c.o, sizeof c.o, options, "compare options", err);
  if (status != TDICT_OK) return status;
  if (!(c.o.relative >= 0) || !(c.o.absolute >= 0))
    return tdict_fail(err, TDICT_EINVAL, "compare: tolerances %g and %g, wanted 0 or more", c.o.relative, c.o.absolute);
  memset(&found, 0, sizeof found);
  tdict_cursor_init(&c.cursor, a, false);
  status = compare(&c, a, b, err);
  tdict_cursor_reset(&c.cursor);
  if (status == TDICT_OK) *out = found;
  return status;
}

bool tdict_equal(const tdict_tree *a, const tdict_tree *b) {
  tdict_difference found;
  return tdict_compare(a, b, NULL, &found, NULL) == TDICT_OK && !found.differs;
}
