/* Pairs of equal random trees, one on the host and one on the device under test. An operation runs on both trees, and
 * pair_check() compares the results bit by bit. Elements on the device are written and read without library functions.
 * Each case releases what it makes. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_PAIR_H
#define TDICT_TESTS_CORE_OPS_DEVICE_PAIR_H

#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"
#include "core/tree/help.h"
#include "support/random.h"
#include "support/raw.h"
#include "support/test.h"

enum { PAIR_DIMS = 4 };

typedef struct world {
  tdict_context *context;
  tdict_memory *memory;
  raw_memory *raw;
} world;
static inline world world_open(void) {
  world w = {.context = td_context(NULL)};
  w.memory = tdict_device_memory(w.context, td_device());
  w.raw = raw_open(w.context, td_device());
  return w;
}
static inline void world_close(world *w) {
  raw_close(w->raw);
  tdict_context_destroy(w->context);
}
#define scoped_world TD_SCOPED(world_close, world)

typedef struct pair {
  tdict_tree *host, *device;
} pair;
static inline void pair_release(pair *p) { td_release(p->host, p->device); }
#define scoped_pair TD_SCOPED(pair_release, pair)

/* Copies a contiguous host tensor to a new tensor on the device. */
static inline tdict_tensor *to_device(const world *w, tdict_tensor *host) {
  tdict_tensor *t = NULL;
  td_ok(tdict_tensor_empty(tdict_tensor_dtype(host), tdict_tensor_ndim(host), tdict_tensor_shape(host), w->memory, &t,
                           err));
  if (tdict_tensor_bytes(host))
    raw_write(w->raw, tdict_tensor_data(t), tdict_tensor_const_data(host), tdict_tensor_bytes(host));
  return t;
}

typedef struct layout {
  tdict_dtype dtype;
  int ndim;
  const int64_t *shape;
} layout;
/* Sets a random tensor in the host tree, and an equal one in the device tree. */
static inline void add_tensors(const world *w, pair *p, const char *path, layout l, uint64_t seed) {
  tdict_tensor *host = td_made(tensor, tdict_tensor_empty(l.dtype, l.ndim, l.shape, NULL, &made, err));
  if (tdict_tensor_bytes(host)) td_fill_random(tdict_tensor_data(host), tdict_tensor_bytes(host), seed);
  td_put(p->device, path, to_device(w, host));
  td_put(p->host, path, host);
}

/* Makes a pair of trees with the given batch size. `shape_seed` determines the keys, dtypes and shapes, and `data` the
 * elements. The tree has a child, and this child has a child with one more batch dimension. */
static inline pair pair_make(const world *w, int nb, const int64_t *bs, uint64_t shape_seed, uint64_t data) {
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I16, TDICT_F32, TDICT_I64, TDICT_C128, TDICT_BOOL};
  static const char *const paths[] = {"a", "b", "n.c", "n.d", "n.m.e", "f"};
  rng r = {shape_seed};
  pair p = {help_tree(nb, bs), help_tree(nb, bs)};
  int64_t shape[PAIR_DIMS + 4];
  memcpy(shape, bs, (size_t)nb * sizeof *bs);
  shape[nb] = pick(&r, 1, 3);
  for (int side = 0; side < 2; side++) {
    td_put_tree(side ? p.device : p.host, "n", help_tree(nb, bs));
    td_put_tree(side ? p.device : p.host, "n.m", help_tree(nb + 1, shape));
  }
  for (int i = 0; i < 6; i++) {
    if (i != 0 && pick(&r, 0, 4) == 0) continue;
    int ndim = nb + (i == 4);
    for (int64_t more = pick(&r, 0, 2); more > 0; more--) shape[ndim++] = pick(&r, 1, 5);
    shape[nb] = i == 4 ? tdict_batch_size(td_child(p.host, "n.m"))[nb] : shape[nb];
    add_tensors(w, &p, paths[i], (layout){dtypes[pick(&r, 0, 5)], ndim, shape}, data + (uint64_t)i);
  }
  return p;
}

/* Replaces both trees with the same random view: a permutation of the batch dimensions, or slices. */
static inline void pair_view(rng *r, pair *p) {
  int order[PAIR_DIMS];
  pair made = {NULL, NULL};
  const int nb = tdict_batch_ndim(p->host);
  tdict_indices index = tdict_indices_none();
  for (int i = 0; i < nb; i++) {
    const int j = (int)pick(r, 0, i);
    order[i] = order[j];
    order[j] = i;
    tdict_indices_add(&index, pick(r, 0, 1) ? TDICT_ALL : TDICT_RANGE(TDICT_NONE, TDICT_NONE, pick(r, 0, 1) ? -1 : 2));
  }
  if (pick(r, 0, 1)) {
    td_ok(tdict_permute(p->host, nb, order, &made.host, err));
    td_ok(tdict_permute(p->device, nb, order, &made.device, err));
  } else {
    td_ok(tdict_index_get(NULL, p->host, &index, NULL, &made.host, err));
    td_ok(tdict_index_get(NULL, p->device, &index, NULL, &made.device, err));
  }
  pair_release(p);
  *p = made;
}

/* Makes a random pair. Two thirds of the pairs are views. */
static inline pair pair_random(const world *w, uint64_t shape_seed, uint64_t data) {
  rng r = {shape_seed * 3 + 1};
  int64_t bs[PAIR_DIMS];
  const int nb = (int)pick(&r, 1, 3);
  for (int i = 0; i < nb; i++) bs[i] = pick(&r, 0, 8) ? pick(&r, 1, 7) : 0;
  pair p = pair_make(w, nb, bs, shape_seed, data);
  for (int64_t views = pick(&r, 0, 2); views > 0; views--) pair_view(&r, &p);
  return p;
}

/* Returns a copy of a tensor's bytes from its lowest to its highest element. *first is the offset of element 0
 * there. */
static inline unsigned char *read_span(const world *w, const tdict_tensor *t, int64_t *first) {
  int64_t low, end;
  assert_true(
      tdict_layout_extent(t->ndim, t->dims, tdict_tensor_dims_strides(t), tdict_dtype_bytes(t->dtype), &low, &end));
  unsigned char *bytes = td_alloc((size_t)(end - low) + 1);
  const void *from = (const void *)((uintptr_t)t->data + (uintptr_t)low);
  if (end > low && t->storage->device.type == TDICT_DEVICE_CPU)
    memcpy(bytes, from, (size_t)(end - low));
  else if (end > low)
    raw_read(w->raw, bytes, from, (size_t)(end - low));
  *first = -low;
  return bytes;
}

/* Set while comparing results of conversions, because a conversion may change the payload of a NaN. */
static bool nans_are_equal;
static inline bool are_nans(tdict_dtype dtype, const void *a, const void *b) {
  double x[2], y[2];
  if (!nans_are_equal || !tdict_element_read(dtype, a, &x[0], &x[1]) || !tdict_element_read(dtype, b, &y[0], &y[1]))
    return false;
  for (int i = 0; i < 2; i++)
    if (memcmp(&x[i], &y[i], sizeof x[i]) != 0 && (x[i] == x[i] || y[i] == y[i])) return false;
  return true;
}

/* Compares tensors element by element. */
static inline void check_tensors(const world *w, const tdict_tensor *host, const tdict_tensor *device,
                                 const char *path) {
  int64_t starts[2], index[TDICT_MAX_NDIM] = {0};
  const size_t item = tdict_dtype_bytes(host->dtype);
  assert_int_equal(host->dtype, device->dtype);
  assert_int_equal(host->ndim, device->ndim);
  assert_memory_equal(host->dims, device->dims, (size_t)host->ndim * sizeof *host->dims);
  unsigned char *spans[2] = {read_span(w, host, &starts[0]), read_span(w, device, &starts[1])};
  for (int64_t k = 0; k < host->numel; k++) {
    int64_t at[2] = {starts[0], starts[1]};
    for (int d = 0; d < host->ndim; d++) {
      at[0] += index[d] * tdict_tensor_dims_strides(host)[d] * (int64_t)item;
      at[1] += index[d] * tdict_tensor_dims_strides(device)[d] * (int64_t)item;
    }
    if (memcmp(spans[0] + at[0], spans[1] + at[1], item) != 0 &&
        !are_nans(host->dtype, spans[0] + at[0], spans[1] + at[1]))
      fail_msg("%s: element %lld of %lld differs", path, (long long)k, (long long)host->numel);
    for (int d = host->ndim - 1; d >= 0 && ++index[d] == host->dims[d]; d--) index[d] = 0;
  }
  free(spans[0]);
  free(spans[1]);
}

/* Checks that both trees have equal batch sizes, keys, shapes and elements. The device tree must be on the device. */
static inline void pair_check(const world *w, const pair *p) {
  tdict_cursor a, b;
  char path[200];
  assert_int_equal(tdict_batch_ndim(p->host), tdict_batch_ndim(p->device));
  assert_memory_equal(tdict_batch_size(p->host), tdict_batch_size(p->device),
                      (size_t)tdict_batch_ndim(p->host) * sizeof(int64_t));
  tdict_cursor_init(&a, p->host, false);
  tdict_cursor_init(&b, p->device, false);
  for (tdict_leaf x, y; (x = tdict_cursor_next(&a)) != 0;) {
    y = tdict_cursor_next(&b);
    tdict_cursor_path(&a, NULL, path, sizeof path);
    assert_int_equal(tdict_leaf_kind(x), tdict_leaf_kind(y));
    if (tdict_leaf_tree(x)) {
      assert_true(tdict_cursor_enter(&a, tdict_leaf_tree(x)) && tdict_cursor_enter(&b, tdict_leaf_tree(y)));
      continue;
    }
    const tdict_tensor *host = tdict_leaf_tensor(x), *device = tdict_leaf_tensor(y);
    assert_true(tdict_device_equal(device->storage->device, td_device()));
    check_tensors(w, host, device, path);
  }
  assert_true(tdict_cursor_next(&b) == 0);
  tdict_cursor_reset(&a);
  tdict_cursor_reset(&b);
}

/* A random index for batch dimensions. Owns its positions, masks and lists. */
typedef struct random_index {
  tdict_indices index;
  int64_t positions[TDICT_MAX_INDEX][40];
  tdict_tensor *mask, *device_mask; /* NULL: none */
  tdict_tensor *lists[TDICT_MAX_INDEX], *device_lists[TDICT_MAX_INDEX];
  int num_on_device; /* lists on the device */
  bool has_lists;
} random_index;
static inline void random_index_release(random_index *i) {
  td_release(i->mask, i->device_mask);
  for (int n = 0; n < TDICT_MAX_INDEX; n++) td_release(i->lists[n], i->device_lists[n]);
}

static inline tdict_index random_range(rng *r, int64_t size) {
  const int64_t steps[] = {1, -1, 2, -2, 3, -5};
  const int64_t start = pick(r, 0, 3) ? pick(r, -size - 1, size + 1) : TDICT_NONE;
  const int64_t stop = pick(r, 0, 3) ? pick(r, -size - 1, size + 1) : TDICT_NONE;
  return pick(r, 0, 3) ? TDICT_RANGE(start, stop, steps[pick(r, 0, 5)]) : TDICT_ALL;
}

/* Makes a list of positions: an array, or a tensor on the host or device. If `is_distinct`, no position is repeated. */
static inline tdict_index random_list(rng *r, const world *w, random_index *out, int64_t size, int64_t count,
                                      bool is_distinct) {
  const int n = out->index.count;
  int64_t *positions = out->positions[out->index.count], order[40];
  for (int64_t i = 0; i < size; i++) {
    const int64_t j = pick(r, 0, i);
    order[i] = order[j];
    order[j] = i;
  }
  for (int64_t i = 0; i < count; i++) {
    positions[i] = is_distinct ? order[i] : pick(r, 0, size - 1);
    if (pick(r, 0, 1)) positions[i] -= size;
  }
  out->has_lists = true;
  if (pick(r, 0, 1)) return TDICT_LIST(positions, count);
  td_ok(tdict_tensor_from_array(TDICT_I64, 1, &count, positions, &out->lists[n], err));
  if (pick(r, 0, 3) == 0) return TDICT_LIST_OF(out->lists[n]);
  out->device_lists[n] = to_device(w, out->lists[n]);
  out->num_on_device++;
  return TDICT_LIST_OF(out->device_lists[n]);
}

/* Makes a random index for a tree. If `is_distinct` is true, no element is selected twice. */
static inline void make_index(rng *r, const world *w, const tdict_tree *td, bool is_distinct, random_index *out) {
  const int nb = tdict_batch_ndim(td);
  const int64_t *bs = tdict_batch_size(td);
  int64_t count = -1; /* number of positions in the lists; -1 if there is no list yet */
  memset(out, 0, sizeof *out);
  for (int d = 0; d < nb;) {
    tdict_index item = TDICT_ALL;
    int dims = 1;
    const int64_t kind = pick(r, 0, 7);
    if (kind == 0 && bs[d] > 0) {
      item = TDICT_AT(pick(r, -bs[d], bs[d] - 1));
    } else if (kind == 1) {
      item = random_range(r, bs[d]);
    } else if (kind == 2 && out->index.count < 8) {
      item = TDICT_NEW_AXIS;
      dims = 0;
    } else if (kind >= 3 && kind <= 5 && bs[d] > 0) {
      const bool is_first = count < 0;
      const int64_t most = is_distinct && is_first ? bs[d] : 12;
      int64_t wanted = is_first ? pick(r, 0, most) : pick(r, 0, 2) ? count : 1;
      if (count == 1 && !is_distinct && pick(r, 0, 1)) wanted = pick(r, 1, most);
      if (is_distinct && !is_first && count > bs[d]) wanted = count; /* lists after the first may repeat positions */
      item = random_list(r, w, out, bs[d], wanted, is_distinct && is_first);
      if (is_first || count == 1) count = wanted;
    } else if (kind == 6 && count < 0) {
      dims = (int)pick(r, 1, nb - d < 2 ? 1 : 2);
      td_ok(tdict_tensor_empty(pick(r, 0, 1) ? TDICT_BOOL : TDICT_U8, dims, bs + d, NULL, &out->mask, err));
      unsigned char *bits = tdict_tensor_data(out->mask);
      count = 0;
      for (int64_t i = 0; i < tdict_tensor_numel(out->mask); i++) count += bits[i] = (unsigned char)pick(r, 0, 1);
      out->device_mask = to_device(w, out->mask);
      item = TDICT_MASK(pick(r, 0, 1) ? out->mask : out->device_mask);
      out->has_lists = true;
    }
    tdict_indices_add(&out->index, item);
    d += dims;
    if (pick(r, 0, 5) == 0) break;
  }
}

#endif
