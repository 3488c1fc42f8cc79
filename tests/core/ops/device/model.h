/* Makes random trees on the device under test, each with a plain model. Some tensors are on the host. Elements are
 * written and read without library functions. Thread rule: the main thread. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_MODEL_H
#define TDICT_TESTS_CORE_OPS_DEVICE_MODEL_H

#include "core/ops/device/plain.h"
#include "core/tensor/tensor.h"
#include "core/tree/help.h"
#include "device/devices.h"
#include "device/sim/driver.h"
#include "support/raw.h"

enum { MODEL_SLOTS = 6, MODEL_STREAMS = 2, MODEL_ELEMENTS = 300, MODEL_MOST_ELEMENTS = 12000, MODEL_MOST_DIMS = 5 };

/* A tree and its model. tree is NULL in an empty slot. */
typedef struct slot {
  tdict_tree *tree;
  plain_tree plain;
} slot;
typedef struct model {
  tdict_context *context;
  tdict_memory *memory;
  raw_memory *raw;
  tdict_stream streams[MODEL_STREAMS];
  rng r;
  slot slots[MODEL_SLOTS];
  tdict_gpu *gpu; /* borrowed from the context */
  size_t delay_bytes;
  tdict_tensor *delay_from, *delay_to;
  int delayed; /* how many of the next operations must not wait for work on a stream */
} model;

static inline model *model_open(void) {
  model *m = td_zeros(1, sizeof *m);
  tdict_context_options o = tdict_context_options_default();
  const bool is_sim = td_device().type == TDICT_DEVICE_SIM;
  tdict_sim_options sim = td_with(tdict_sim_options, d2h_bytes_per_second = 1e8);
  if (is_sim) o.sim = &sim;
  m->context = td_context(&o);
  m->memory = tdict_device_memory(m->context, td_device());
  td_ok(tdict_devices_gpu(tdict_context_devices(m->context), td_device(), &m->gpu, err));
  m->delay_bytes = is_sim ? 50000 : 32 << 20;
  const int64_t count = (int64_t)m->delay_bytes;
  td_ok(tdict_tensor_empty(TDICT_U8, 1, &count, m->memory, &m->delay_from, err));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, &count, tdict_pinned_memory(m->context), &m->delay_to, err));
  raw_memory *raw = raw_open(m->context, td_device());
  raw_fill(raw, m->delay_from->data, 0, m->delay_bytes); /* compute-sanitizer reports reads of uninitialized bytes */
  m->raw = raw;
  for (int i = 0; i < MODEL_STREAMS; i++) td_ok(tdict_stream_create(m->context, td_device(), &m->streams[i], err));
  return m;
}
static inline void slot_drop(slot *s) {
  tdict_release(s->tree);
  plain_tree_drop(&s->plain);
  s->tree = NULL;
}
#define scoped_slot TD_SCOPED(slot_drop, slot)
static inline void model_synchronize(const model *m) {
  for (int i = 0; i < MODEL_STREAMS; i++) td_ok(tdict_stream_synchronize(m->context, m->streams[i], err));
}
static inline void model_close(model *m) {
  for (int i = 0; i < MODEL_SLOTS; i++) slot_drop(&m->slots[i]);
  model_synchronize(m);
  for (int i = 0; i < MODEL_STREAMS; i++) tdict_stream_destroy(m->context, m->streams[i]);
  td_release(m->delay_from, m->delay_to);
  raw_close(m->raw);
  tdict_context_destroy(m->context);
  free(m);
}

/* Delays a random stream by a copy to the host that takes about a millisecond. The next `operations` operations must
 * not wait for a stream. Work on the other stream runs first, unless the library orders it after work on the delayed
 * stream. */
static inline void model_delay(model *m, int operations) {
  tdict_gpu_scope scope;
  tdict_driver *d = m->gpu->driver;
  const tdict_stream *s = &m->streams[pick(&m->r, 0, MODEL_STREAMS - 1)];
  td_ok(tdict_gpu_enter(m->gpu, &scope, err));
  assert_int_equal(d->ops->copy_d2h_async(d, m->delay_to->data, m->delay_from->data, m->delay_bytes, s->handle), 0);
  tdict_gpu_leave(m->gpu, &scope);
  m->delayed = operations;
}
/* Chooses a stream. Returns NULL if the next call must be blocking, which cannot happen while a stream is delayed. */
static inline const tdict_stream *model_stream(model *m) {
  const int64_t i = pick(&m->r, 0, m->delayed ? MODEL_STREAMS - 1 : 2 * MODEL_STREAMS - 1);
  return i < MODEL_STREAMS ? &m->streams[i] : NULL;
}

typedef struct tensor_form {
  tdict_dtype dtype;
  int ndim;
  const int64_t *shape;
  bool on_host;
  bool may_repeat; /* strides may be 0 */
  bool is_mask;    /* each byte is 0 or 1 */
} tensor_form;

/* A random layout, in elements: any order of dimensions, gaps, strides that are negative or, if `may_repeat`, 0. */
typedef struct model_layout {
  int64_t strides[PLAIN_DIMS], low, high; /* the lowest and the highest offset of an element */
} model_layout;
static inline model_layout model_layout_of(rng *r, const tensor_form *f) {
  model_layout l = {.low = 0};
  int order[PLAIN_DIMS];
  int64_t step = 1;
  const bool in_order = pick(r, 0, 1), has_gaps = pick(r, 0, 2) == 0, turns = pick(r, 0, 2) == 0;
  for (int i = 0; i < f->ndim; i++) {
    const int j = in_order ? i : (int)pick(r, 0, i);
    order[i] = order[j];
    order[j] = f->ndim - 1 - i;
  }
  for (int i = 0; i < f->ndim; i++) {
    const int d = order[i];
    const int64_t last = f->shape[d] > 0 ? f->shape[d] - 1 : 0;
    if (has_gaps) step += pick(r, 0, 2);
    if (f->may_repeat && pick(r, 0, 7) == 0) continue;
    l.strides[d] = turns && pick(r, 0, 1) ? -step : step;
    l.low += l.strides[d] < 0 ? last * l.strides[d] : 0;
    l.high += l.strides[d] > 0 ? last * l.strides[d] : 0;
    step *= last + 1;
  }
  return l;
}

/* Fills elements with random bits, or with numbers from 0 to 100, which every dtype can hold. */
static inline void model_fill(rng *r, const tensor_form *f, unsigned char *bytes, int64_t count) {
  const size_t item = plain_item(f->dtype);
  const bool is_small = pick(r, 0, 1) && plain_parts(f->dtype);
  if (count) td_fill_random(bytes, (size_t)count * item, next_random(r));
  for (int64_t i = 0; f->is_mask && i < count; i++) bytes[i] &= 1;
  for (int64_t i = 0; is_small && !f->is_mask && i < count; i++) {
    const int8_t number = (int8_t)pick(r, 0, 100);
    assert_true(plain_convert(f->dtype, bytes + (size_t)i * item, TDICT_I8, &number));
  }
}

/* Makes a tensor and its model. The tensor is a view of a larger tensor. */
static inline tdict_tensor *model_tensor(model *m, const tensor_form *f, plain_array *out) {
  const model_layout l = model_layout_of(&m->r, f);
  const int64_t before = pick(&m->r, 0, 2), count = before + l.high - l.low + 1 + pick(&m->r, 0, 2);
  const int64_t item = (int64_t)plain_item(f->dtype);
  tdict_tensor *base = NULL, *t = NULL;
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  *out = plain_new(f->dtype, 1, &count, f->on_host);
  model_fill(&m->r, f, out->bytes->at, count);
  td_ok(tdict_tensor_empty(f->dtype, 1, &count, f->on_host ? NULL : m->memory, &base, err));
  assert_int_equal(tdict_tensor_bytes(base), count * item);
  if (f->on_host)
    memcpy(tdict_tensor_data(base), out->bytes->at, (size_t)(count * item));
  else
    raw_write(m->raw, tdict_tensor_data(base), out->bytes->at, (size_t)(count * item));
  desc.ndim = out->ndim = f->ndim;
  desc.shape = f->shape;
  desc.strides = l.strides;
  td_ok(tdict_tensor_as_strided(base, &desc, before - l.low, &t, err));
  tdict_tensor_release(base);
  out->first = (before - l.low) * item;
  for (int d = 0; d < f->ndim; d++) {
    out->shape[d] = f->shape[d];
    out->strides[d] = l.strides[d] * item;
  }
  return t;
}

/* Makes a tree and its model with the batch size, keys, dtypes, shapes and devices of `form`, but with new elements. */
static inline slot model_tree(model *m, const plain_tree *form, bool may_repeat) {
  slot s = {help_tree(form->nb, form->bs), *form};
  int64_t more[PLAIN_DIMS];
  memcpy(more, form->bs, sizeof more);
  more[form->nb] = form->more;
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    if (i == 1) td_put_tree(s.tree, "n", help_tree(form->nb, form->bs));
    if (i == 2) td_put_tree(s.tree, "n.m", help_tree(form->nb + 1, more));
    if (!form->has[i]) continue;
    const plain_array *a = &form->leaf[i];
    const tensor_form f = {a->dtype, a->ndim, a->shape, a->on_host, may_repeat, false};
    td_put(s.tree, plain_paths[i], model_tensor(m, &f, &s.plain.leaf[i]));
  }
  return s;
}

/* Chooses the shape of a leaf. Returns false if the leaf has too many elements. */
static inline bool model_shape(rng *r, const plain_tree *form, int leaf, plain_array *a) {
  a->ndim = form->nb + (leaf == 2);
  memcpy(a->shape, form->bs, sizeof a->shape);
  a->shape[form->nb] = form->more;
  for (int64_t more = pick(r, 0, 2); more > 0; more--) a->shape[a->ndim++] = pick(r, 0, 15) ? pick(r, 1, 4) : 0;
  return plain_count(a->ndim, a->shape) <= (form->nb && form->bs[0] > 100 ? 10 : 1) * MODEL_ELEMENTS;
}
static inline plain_tree model_form(rng *r) {
  const tdict_dtype f32x3 = TDICT_DTYPE(2, 32, 3), u8x3 = TDICT_DTYPE(1, 8, 3), f64x4 = TDICT_DTYPE(2, 64, 4);
  const tdict_dtype dtypes[] = {TDICT_I8,  TDICT_I16, TDICT_I32, TDICT_I64,  TDICT_U8,     TDICT_U16,
                                TDICT_U32, TDICT_U64, TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2,
                                TDICT_F32, TDICT_F64, TDICT_C64, TDICT_C128, TDICT_BOOL,   TDICT_F32,
                                TDICT_I64, f32x3,     u8x3,      f64x4};
  const bool is_mixed = pick(r, 0, 4) == 0;
  plain_tree form;
  do {
    memset(&form, 0, sizeof form);
    form.nb = (int)pick(r, 0, 3);
    form.more = pick(r, 0, 9) ? pick(r, 1, 3) : 0;
    for (int d = 0; d < form.nb; d++) form.bs[d] = pick(r, 0, 14) ? pick(r, 1, 6) : 0;
    if (form.nb && pick(r, 0, 40) == 0) form.bs[0] = pick(r, 200, 1500);
    for (int i = 0; i < PLAIN_LEAVES; i++) {
      form.has[i] = pick(r, 0, 4) > 0;
      form.leaf[i].dtype = dtypes[pick(r, 0, sizeof dtypes / sizeof *dtypes - 1)];
      form.leaf[i].on_host = is_mixed && pick(r, 0, 1);
      form.has[i] = form.has[i] && model_shape(r, &form, i, &form.leaf[i]);
    }
  } while (plain_total(&form) > 10 * MODEL_ELEMENTS);
  return form;
}
/* In one of four calls, moves some leaves of the form between host and device. */
static inline void model_move_leaves(rng *r, plain_tree *form) {
  const bool moves = pick(r, 0, 3) == 0;
  for (int i = 0; i < PLAIN_LEAVES; i++)
    if (moves && pick(r, 0, 2) == 0) form->leaf[i].on_host = !form->leaf[i].on_host;
}

/* Compares the elements of a tensor with its model. Call after the work that writes the tensor is complete. */
static inline void model_check_tensor(const model *m, const plain_array *a, const tdict_tensor *t, const char *path) {
  const int64_t item = (int64_t)plain_item(a->dtype), *strides = tdict_tensor_strides(t);
  int64_t low = 0, high = item;
  assert_int_equal(tdict_tensor_dtype(t), a->dtype);
  assert_int_equal(tdict_tensor_ndim(t), a->ndim);
  for (int d = 0; d < a->ndim; d++) assert_int_equal(tdict_tensor_shape(t)[d], a->shape[d]);
  if (!tdict_device_equal(tdict_tensor_device(t), a->on_host ? tdict_cpu() : td_device()))
    fail_msg("%s: on another device", path);
  if (plain_count(a->ndim, a->shape) == 0) return;
  for (int d = 0; d < a->ndim; d++) {
    const int64_t reach = (a->shape[d] - 1) * strides[d] * item;
    low += reach < 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
  }
  scoped_bytes bytes = malloc((size_t)(high - low));
  const char *data = tdict_tensor_const_data(t);
  assert_true(bytes && data);
  if (a->on_host)
    memcpy(bytes, data + low, (size_t)(high - low));
  else
    raw_read(m->raw, bytes, data + low, (size_t)(high - low));
  PLAIN_EACH(a->ndim, a->shape, i) {
    int64_t at = -low;
    for (int d = 0; d < a->ndim; d++) at += i[d] * strides[d] * item;
    if (!plain_equal(a, bytes + at, plain_at(a, i)))
      fail_msg("%s: the element at offset %lld differs from the model", path, (long long)at);
  }
}

static inline void model_check_batch(const tdict_tree *tree, int nb, const int64_t *bs) {
  assert_int_equal(tdict_batch_ndim(tree), nb);
  for (int d = 0; d < nb; d++) assert_int_equal(tdict_batch_size(tree)[d], bs[d]);
}
/* Waits for both streams, and compares a tree with its model. Returns at once while a stream is delayed. */
static inline void model_check(const model *m, const slot *s) {
  const plain_tree *p = &s->plain;
  int64_t more[PLAIN_DIMS];
  if (!s->tree || m->delayed) return;
  model_synchronize(m);
  memcpy(more, p->bs, sizeof more);
  more[p->nb] = p->more;
  model_check_batch(s->tree, p->nb, p->bs);
  model_check_batch(td_child(s->tree, "n"), p->nb, p->bs);
  model_check_batch(td_child(s->tree, "n.m"), p->nb + 1, more);
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    tdict_tensor *t = NULL;
    assert_int_equal(tdict_get(s->tree, plain_paths[i], &t, NULL) == TDICT_OK, p->has[i]);
    if (t) model_check_tensor(m, &p->leaf[i], t, plain_paths[i]);
  }
}

/* Moves a result to a random slot, sometimes after a check. Releases a result that is too large. */
static inline void model_keep(model *m, slot *s) {
  if (pick(&m->r, 0, 1)) model_check(m, s);
  if (plain_total(&s->plain) > MODEL_MOST_ELEMENTS || s->plain.nb > MODEL_MOST_DIMS) {
    slot_drop(s);
    return;
  }
  slot *to = &m->slots[pick(&m->r, 0, MODEL_SLOTS - 1)];
  slot_drop(to);
  *to = *s;
  memset(s, 0, sizeof *s);
}

#endif
