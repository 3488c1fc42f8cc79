/* Makes random trees with known bytes. See stress.h for ownership and threads. */
#include "tdict/hook.h"
#include "tdict/view.h"

#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t stress_below(uint64_t *state, int64_t below) {
  return below > 0 ? (int64_t)(bench_random(state) % (uint64_t)below) : 0;
}

/* An object with two tensors. Its type has either transfer hooks, or flatten and unflatten. A stress_leaf
 * describes each tensor. Both leaves have the same path, and the second has `second` set. */
typedef struct pair {
  tdict_tensor *tensors[2];
} pair;

static void pair_release(void *self) {
  pair *p = self;
  for (int i = 0; i < 2; i++) tdict_tensor_release(p->tensors[i]);
  free(p);
}

/* Makes a pair that takes ownership of both tensors. On failure, the caller keeps them. */
static tdict_status pair_make(tdict_tensor *a, tdict_tensor *b, void **out) {
  pair *p = malloc(sizeof *p);
  if (!p) return TDICT_ENOMEM;
  *p = (pair){{a, b}};
  *out = p;
  return TDICT_OK;
}

typedef tdict_status (*pair_change)(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out, tdict_error *err);
static tdict_status pair_both(const pair *p, const tdict_hook *hook, pair_change how, void **out, tdict_error *err) {
  tdict_tensor *made[2] = {NULL, NULL};
  tdict_status status = how(hook, p->tensors[0], &made[0], err);
  if (status == TDICT_OK) status = how(hook, p->tensors[1], &made[1], err);
  if (status == TDICT_OK) status = pair_make(made[0], made[1], out);
  if (status == TDICT_OK) return TDICT_OK;
  for (int i = 0; i < 2; i++) tdict_tensor_release(made[i]);
  return status;
}
static tdict_status pair_pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  return pair_both(self, hook, tdict_hook_pin, out, err);
}
static tdict_status pair_move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  return pair_both(self, hook, tdict_hook_move, out, err);
}

static tdict_status pair_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  const pair *p = self;
  scoped_tree made = NULL;
  tdict_status status = tdict_create(0, NULL, &made, err);
  if (status == TDICT_OK) status = tdict_set(made, "a", p->tensors[0], err);
  if (status == TDICT_OK) status = tdict_set(made, "b", p->tensors[1], err);
  if (status == TDICT_OK) *out = tdict_retain(made);
  return status;
}
static tdict_status pair_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self;
  tdict_tensor *a, *b;
  tdict_status status = tdict_get(tree, "a", &a, err);
  if (status == TDICT_OK) status = tdict_get(tree, "b", &b, err);
  if (status == TDICT_OK) status = pair_make(a, b, out);
  if (status != TDICT_OK) return status;
  tdict_tensor_retain(a);
  tdict_tensor_retain(b);
  return TDICT_OK;
}

static const tdict_type hooked_type = {.struct_size = sizeof hooked_type,
                                       .name = "stress pair with hooks",
                                       .release = pair_release,
                                       .pin_memory = pair_pin,
                                       .to_device = pair_move};
static const tdict_type flat_type = {.struct_size = sizeof flat_type,
                                     .name = "stress pair that flattens",
                                     .release = pair_release,
                                     .flatten = pair_flatten,
                                     .unflatten = pair_unflatten};

bool stress_find(const stress_leaf *leaf, const tdict_tree *tree, tdict_tensor **out) {
  tdict_error err;
  void *object;
  if (leaf->home == STRESS_TENSOR) {
    if (tdict_get(tree, leaf->path, out, &err) == TDICT_OK) return true;
  } else if (tdict_get_object(tree, leaf->path, leaf->home == STRESS_FLAT_OBJECT ? &flat_type : &hooked_type, &object,
                              &err) == TDICT_OK) {
    *out = ((const pair *)object)->tensors[leaf->second];
    return true;
  }
  bench_print_status("a leaf did not arrive", &err);
  return false;
}

/* An iterator over the rows of a leaf in C order. A row consists of the elements along the last dimension. */
typedef struct walk {
  int64_t index[STRESS_DIMS], at; /* at: offset of the row in the storage, in elements */
  int64_t rows, row, count, step; /* count, step: size and stride of a row */
} walk;

static walk walk_begin(const stress_leaf *l) {
  walk w = {.at = l->offset, .rows = 1, .count = 1, .step = 1};
  for (int d = 0; d + 1 < l->ndim; d++) w.rows *= l->shape[d];
  if (l->ndim > 0) w.count = l->shape[l->ndim - 1], w.step = l->strides[l->ndim - 1];
  return w;
}
static void walk_next(const stress_leaf *l, walk *w) {
  w->row++;
  for (int d = l->ndim - 2; d >= 0; d--) {
    w->at += l->strides[d];
    if (++w->index[d] < l->shape[d]) return;
    w->at -= l->strides[d] * l->shape[d];
    w->index[d] = 0;
  }
}

static void copy_row(unsigned char *to, int64_t to_step, const unsigned char *from, int64_t from_step, int64_t count,
                     size_t item) {
  if (to_step == 1 && from_step == 1) {
    memcpy(to, from, (size_t)count * item);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * to_step * (int64_t)item, from + i * from_step * (int64_t)item, item);
}

void stress_gather(const stress_leaf *l, const unsigned char *base, unsigned char *out) {
  if (l->want_bytes == 0) return;
  for (walk w = walk_begin(l); w.row < w.rows; walk_next(l, &w), out += (size_t)w.count * l->item_bytes)
    copy_row(out, 1, base + w.at * (int64_t)l->item_bytes, w.step, w.count, l->item_bytes);
}
void stress_scatter(const stress_leaf *l, unsigned char *base, const unsigned char *in) {
  if (l->want_bytes == 0) return;
  for (walk w = walk_begin(l); w.row < w.rows; walk_next(l, &w), in += (size_t)w.count * l->item_bytes)
    copy_row(base + w.at * (int64_t)l->item_bytes, w.step, in, 1, w.count, l->item_bytes);
}

/* Fills the storage of a leaf with random bits. For half of the leaves, clears all but the lowest byte of each element
 * of up to 8 bytes (the lowest bit of a bool), so that the option narrow saves bytes. */
static void fill_leaf(stress_leaf *l, uint64_t seed) {
  uint64_t word, state = seed, mask = ~(uint64_t)0;
  if (bench_random(&state) % 2)
    mask = l->dtype == TDICT_BOOL ? 0x0101010101010101
           : l->item_bytes == 2   ? 0x00ff00ff00ff00ff
           : l->item_bytes == 4   ? 0x000000ff000000ff
           : l->item_bytes == 8   ? 0xff
                                  : mask;
  for (size_t at = 0; at < l->base_bytes; at += 8) {
    word = bench_random(&state) & mask;
    memcpy(l->base_data + at, &word, l->base_bytes - at < 8 ? l->base_bytes - at : 8);
  }
}

void stress_tree_fill(stress_tree *t, uint64_t seed) {
  for (int i = 0; i < t->count; i++)
    if (!t->leaves[i].shared) fill_leaf(&t->leaves[i], seed + (uint64_t)i * 0x632BE59BD9B4E019u);
  for (int i = 0; i < t->count; i++) stress_gather(&t->leaves[i], t->leaves[i].base_data, t->leaves[i].want);
}

/* Chooses a random shape with at most about `elements` elements. */
static void choose_shape(stress_leaf *l, uint64_t *state, int64_t elements) {
  l->ndim = (int)stress_below(state, STRESS_DIMS + 1);
  if (l->ndim == 0 && elements != 1) l->ndim = 1;
  int64_t left = elements;
  for (int d = 0; d < l->ndim; d++) {
    int64_t n = d + 1 == l->ndim ? left : 1 + stress_below(state, left < 12 ? left : 12);
    if (n < 1) n = 1;
    l->shape[d] = n;
    left /= n;
  }
  for (int d = l->ndim - 1; d > 0; d--) { /* shuffle, so that any dimension can be the large one */
    int e = (int)stress_below(state, d + 1);
    int64_t n = l->shape[d];
    l->shape[d] = l->shape[e];
    l->shape[e] = n;
  }
  if (elements == 0 && l->ndim > 0) l->shape[stress_below(state, l->ndim)] = 0;
}

static void c_order(stress_leaf *l, const int *order) {
  int64_t step = 1;
  for (int i = l->ndim - 1; i >= 0; i--) {
    int d = order ? order[i] : i;
    l->strides[d] = step;
    step *= l->shape[d] > 0 ? l->shape[d] : 1;
  }
  l->base_count = step;
}

static void choose_strides(stress_leaf *l, uint64_t *state) {
  int order[STRESS_DIMS];
  int any = (int)stress_below(state, l->ndim);
  for (int d = 0; d < l->ndim; d++) order[d] = l->ndim - 1 - d;
  c_order(l, l->layout == STRESS_TRANSPOSED ? order : NULL);
  if (l->ndim == 0) return;
  int64_t factor = 2 + stress_below(state, 3);
  switch (l->layout) {
  case STRESS_STEPPED: /* gaps between the elements, and before the first one */
    for (int d = 0; d < l->ndim; d++) l->strides[d] *= factor;
    l->offset = stress_below(state, factor);
    l->base_count = l->base_count * factor + l->offset;
    return;
  case STRESS_NEGATIVE:
    l->offset = (l->shape[any] - 1) * l->strides[any];
    l->strides[any] = -l->strides[any];
    return;
  case STRESS_EXPANDED:
    l->strides[any] = 0;
    return;
  default:
    return;
  }
}

static bool make_tensor(stress_leaf *l, tdict_memory *memory) {
  tdict_error err;
  tdict_tensor_desc view = tdict_tensor_desc_default();
  const int64_t count = l->base_count;
  l->base_bytes = (size_t)count * l->item_bytes;
  l->want = malloc(l->want_bytes + 1);
  if (!l->want) {
    bench_print_error("cannot allocate the expected bytes");
    return false;
  }
  view.ndim = l->ndim;
  view.shape = l->shape;
  view.strides = l->strides;
  view.dtype = l->dtype;
  tdict_status status = tdict_tensor_empty(l->dtype, 1, &count, memory, &l->base, &err);
  if (status == TDICT_OK) status = tdict_tensor_as_strided(l->base, &view, l->offset, &l->tensor, &err);
  if (!bench_has_worked("cannot make a tensor", status, &err)) return false;
  l->base_data = tdict_tensor_data(l->base);
  return true;
}

/* Makes a tensor and appends it to t->leaves. The caller adds it to t->tree. */
static stress_leaf *make_leaf(stress_tree *t, tdict_context *context, uint64_t *state, size_t bytes) {
  static const tdict_dtype dtypes[] = {TDICT_F64, TDICT_F32, TDICT_F16,  TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2,
                                       TDICT_I8,  TDICT_I16, TDICT_I32,  TDICT_I64,  TDICT_U8,     TDICT_U16,
                                       TDICT_U32, TDICT_U64, TDICT_BOOL, TDICT_C64,  TDICT_C128};
  stress_leaf *l = &t->leaves[t->count];
  memset(l, 0, sizeof *l);
  l->dtype = dtypes[stress_below(state, sizeof dtypes / sizeof dtypes[0])];
  l->item_bytes = tdict_dtype_bytes(l->dtype);
  /* large leaves are contiguous, because copies of strided leaves are slow */
  l->layout =
      bytes > (4 << 20) || stress_below(state, 2) ? STRESS_PLAIN : (stress_layout)stress_below(state, STRESS_LAYOUTS);
  l->pinned = stress_below(state, 3) == 0;
  choose_shape(l, state, l->layout == STRESS_EMPTY ? 0 : (int64_t)(bytes / l->item_bytes));
  choose_strides(l, state);
  l->want_bytes = l->item_bytes;
  for (int d = 0; d < l->ndim; d++) l->want_bytes *= (size_t)l->shape[d];
  t->count++; /* stress_tree_free() now releases it */
  if (!make_tensor(l, l->pinned ? tdict_pinned_memory(context) : NULL)) return NULL;
  t->total_bytes += l->want_bytes;
  return l;
}

/* Makes a path such as "k1.k2.l12": up to 4 keys that other paths can share, then a unique key. */
static void choose_path(stress_leaf *l, uint64_t *state, int number) {
  int depth = (int)stress_below(state, 5);
  size_t at = 0;
  for (int i = 0; i < depth; i++)
    at += (size_t)snprintf(l->path + at, sizeof l->path - at, "k%d.", (int)stress_below(state, 3));
  snprintf(l->path + at, sizeof l->path - at, "l%d", number);
}

static bool add_tensor(stress_tree *t, tdict_context *context, uint64_t *state, size_t bytes) {
  int number = t->count;
  bool again = number > 0 && stress_below(state, 16) == 0;
  stress_leaf *l = again ? &t->leaves[t->count++] : make_leaf(t, context, state, bytes);
  if (!l) return false;
  if (again) { /* the same tensor under a second key */
    *l = t->leaves[stress_below(state, number)];
    l->want = malloc(l->want_bytes + 1);
    l->shared = true;
    l->home = STRESS_TENSOR;
    tdict_tensor_retain(l->tensor);
    tdict_tensor_retain(l->base);
    if (!l->want) return false;
    t->total_bytes += l->want_bytes;
  }
  choose_path(l, state, number);
  return bench_ok("cannot set a leaf", tdict_set(t->tree, l->path, l->tensor, err));
}

static bool add_object(stress_tree *t, tdict_context *context, uint64_t *state, size_t bytes) {
  stress_leaf *a = make_leaf(t, context, state, bytes / 2), *b = a ? make_leaf(t, context, state, bytes / 2) : NULL;
  void *self = NULL;
  if (!b) return false;
  a->home = b->home = stress_below(state, 2) ? STRESS_FLAT_OBJECT : STRESS_HOOKED_OBJECT;
  t->hooked |= a->home == STRESS_HOOKED_OBJECT;
  b->second = true;
  choose_path(a, state, t->count - 1);
  memcpy(b->path, a->path, sizeof b->path);
  if (pair_make(a->tensor, b->tensor, &self) != TDICT_OK) return false;
  tdict_tensor_retain(a->tensor);
  tdict_tensor_retain(b->tensor);
  const tdict_type *type = a->home == STRESS_FLAT_OBJECT ? &flat_type : &hooked_type;
  if (bench_ok("cannot set an object", tdict_set_object(t->tree, a->path, type, self, err))) return true;
  pair_release(self);
  return false;
}

/* Chooses the size of a leaf in bytes, at most `left`. Small sizes are more likely. */
static size_t choose_bytes(uint64_t *state, size_t left) {
  int bits = 0;
  while (bits < 48 && ((size_t)1 << bits) < left) bits++;
  size_t most = (size_t)1 << stress_below(state, bits + 1);
  size_t bytes = (size_t)stress_below(state, (int64_t)most + 1);
  return bytes < left ? bytes : left;
}

bool stress_tree_make(stress_tree *t, tdict_context *context, uint64_t seed, size_t max_bytes) {
  tdict_error err;
  uint64_t state = seed;
  int64_t kind = stress_below(&state, 20);
  size_t budget = kind < 14 ? (size_t)1 << 20 : kind < 19 ? (size_t)24 << 20 : max_bytes;
  int wanted = kind == 13 ? 3000 : (int)stress_below(&state, kind == 19 ? 12 : 60);
  memset(t, 0, sizeof *t);
  if (budget > max_bytes) budget = max_bytes;
  t->room = 2 * wanted + 2;
  t->leaves = calloc((size_t)t->room, sizeof *t->leaves);
  if (!t->leaves || tdict_create(0, NULL, &t->tree, &err) != TDICT_OK) {
    bench_print_error("cannot allocate a tree");
    return false;
  }
  for (int i = 0; i < wanted; i++) {
    size_t left = budget > t->total_bytes ? budget - t->total_bytes : 0;
    size_t bytes = choose_bytes(&state, wanted > 1000 ? left < 4096 ? left : 4096 : left);
    if (!(stress_below(&state, 12) == 0 ? add_object : add_tensor)(t, context, &state, bytes)) return false;
  }
  stress_tree_fill(t, bench_random(&state));
  return true;
}

void stress_tree_let_go(stress_tree *t) {
  for (int i = 0; i < t->count; i++) {
    tdict_tensor_release(t->leaves[i].tensor);
    tdict_tensor_release(t->leaves[i].base);
    t->leaves[i].tensor = t->leaves[i].base = NULL;
    t->leaves[i].base_data = NULL;
  }
  tdict_release(t->tree);
  t->tree = NULL;
}

void stress_tree_free(stress_tree *t) {
  stress_tree_let_go(t);
  for (int i = 0; i < t->count; i++) free(t->leaves[i].want);
  free(t->leaves);
  memset(t, 0, sizeof *t);
}
