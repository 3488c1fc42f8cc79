/* Compares copies between any strides with copies of single elements. Also tests copies through a tdict_memory. */
#include "naive.h"

#include "core/tensor/tensor.h"
#include "slow_fence.h"
#include "support/threads.h"

static tdict_tensor *const mark = (tdict_tensor *)(uintptr_t)0xA5A5;
static const tdict_dtype dtypes[] = {TDICT_U8,  TDICT_F16,  TDICT_DTYPE(1, 8, 3), TDICT_F32, TDICT_DTYPE(0, 16, 3),
                                     TDICT_F64, TDICT_C128, TDICT_DTYPE(2, 32, 5)};
enum { NUM_DTYPES = sizeof dtypes / sizeof *dtypes };

/* Returns a view of `t` after up to four random slices and permutations. Releases `t`. */
static tdict_tensor *wander(naive_random *r, tdict_tensor *t) {
  for (int64_t steps = naive_below(r, 5); steps > 0; steps--) {
    int ndim = tdict_tensor_ndim(t);
    tdict_tensor *next = NULL;
    if (ndim == 0) break;
    if (naive_below(r, 2)) {
      int order[8];
      for (int i = 0; i < ndim; i++) order[i] = i;
      for (int i = ndim - 1; i > 0; i--) {
        int j = (int)naive_below(r, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
      }
      td_ok(tdict_tensor_permute(t, ndim, order, &next, err));
    } else {
      tdict_tensor_range range = {(int32_t)naive_below(r, ndim), 0, 0, 1};
      int64_t size = tdict_tensor_shape(t)[range.dim];
      if (size) {
        range.start = naive_below(r, size);
        range.step = naive_below(r, 2) ? 1 : -1;
        if (naive_below(r, 3) == 0) range.step *= 1 + naive_below(r, 3);
        int64_t most = range.step > 0 ? (size - 1 - range.start) / range.step + 1 : range.start / -range.step + 1;
        range.count = naive_below(r, 20) == 0 ? 0 : most - (naive_below(r, 3) ? 0 : naive_below(r, most));
      }
      td_ok(tdict_tensor_slice(t, &range, &next, err));
    }
    tdict_tensor_release(t);
    t = next;
  }
  return t;
}

/* Makes a view of the given shape, with random strides, into a larger storage that is filled with 0xA5. */
static tdict_tensor *room_for(naive_random *r, tdict_dtype dtype, const naive_layout *shape) {
  int order[8], inverse[8];
  int64_t turned[8];
  tdict_tensor *t = NULL, *next = NULL;
  for (int i = 0; i < shape->ndim; i++) order[i] = i;
  for (int i = shape->ndim - 1; i > 0; i--) {
    int j = (int)naive_below(r, i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  tdict_tensor_range ranges[8];
  for (int i = 0; i < shape->ndim; i++) {
    int64_t count = shape->shape[order[i]], step = naive_below(r, 3) ? 1 : 1 + naive_below(r, 3);
    int64_t before = naive_below(r, 3) ? 0 : naive_below(r, 3), reach = count ? (count - 1) * step + 1 : 0;
    bool back = naive_below(r, 4) == 0;
    turned[i] = before + reach + (naive_below(r, 3) ? 0 : naive_below(r, 3));
    ranges[i] = (tdict_tensor_range){i, back && count ? before + reach - 1 : before, count, back ? -step : step};
    inverse[order[i]] = i;
  }
  td_ok(tdict_tensor_empty(dtype, shape->ndim, turned, NULL, &t, err));
  if (t->storage->bytes) memset(tdict_tensor_data(t), 0xA5, t->storage->bytes);
  for (int i = 0; i < shape->ndim; i++) {
    td_ok(tdict_tensor_slice(t, &ranges[i], &next, err));
    tdict_tensor_release(t);
    t = next;
  }
  td_ok(tdict_tensor_permute(t, shape->ndim, inverse, &next, err));
  tdict_tensor_release(t);
  return next;
}

CASE(tensor_copy_any_strides) {
  naive_random r = {0xc0b1e5};
  int64_t elements = 0, strided = 0;
  for (int round = 0; round < 10000; round++) {
    naive_layout whole;
    tdict_dtype dtype = dtypes[naive_below(&r, NUM_DTYPES)];
    naive_shape(&r, 5, &whole);
    scoped_tensor src = wander(&r, naive_tensor(dtype, whole.ndim, whole.shape, naive_next(&r)));
    naive_layout src_layout = naive_layout_of(src);
    scoped_tensor dst = room_for(&r, dtype, &src_layout);
    naive_layout dst_layout = naive_layout_of(dst);
    size_t bytes = dst->storage->bytes;
    scoped_bytes wanted = malloc(bytes + 1);
    if (bytes) memcpy(wanted, dst->storage->data, bytes);
    if (src_layout.numel)
      naive_copy(&dst_layout, wanted + ((unsigned char *)dst->data - (unsigned char *)dst->storage->data), &src_layout,
                 tdict_tensor_const_data(src), tdict_dtype_bytes(dtype));
    td_ok(tdict_tensor_copy(dst, src, err));
    if (bytes) assert_memory_equal(dst->storage->data, wanted, bytes);
    elements += src_layout.numel;
    strided += !tdict_tensor_is_contiguous(src) && !tdict_tensor_is_contiguous(dst);
  }
  assert_true(elements > 100000 && strided > 2000); /* enough of the copies were not trivial */
}

CASE(tensor_copy_broadcasts_zero_strides) {
  const int64_t shape[] = {4, 3, 5}, strides[] = {0, 1, 0};
  scoped_tensor row = naive_tensor(TDICT_I32, 1, &shape[1], 3), src = NULL;
  scoped_tensor dst = naive_tensor(TDICT_I32, 3, shape, 4);
  tdict_tensor_desc layout = td_with(tdict_tensor_desc, ndim = 3, shape = shape, strides = strides);
  td_ok(tdict_tensor_as_strided(row, &layout, 0, &src, err));
  td_ok(tdict_tensor_copy(dst, src, err));
  const int32_t *from = tdict_tensor_const_data(row), *to = tdict_tensor_const_data(dst);
  for (int i = 0; i < 60; i++) assert_int_equal(to[i], from[i / 5 % 3]);
  td_ok(tdict_tensor_copy(dst, dst, err)); /* onto itself */
  for (int i = 0; i < 60; i++) assert_int_equal(to[i], from[i / 5 % 3]);
}

CASE(tensor_clone_copies) {
  naive_random r = {0xc10e};
  for (int round = 0; round < 10000; round++) {
    naive_layout whole;
    tdict_dtype dtype = dtypes[naive_below(&r, NUM_DTYPES)];
    naive_shape(&r, 5, &whole);
    scoped_tensor src = wander(&r, naive_tensor(dtype, whole.ndim, whole.shape, naive_next(&r))), clone = NULL;
    td_ok(tdict_tensor_clone(src, NULL, &clone, err));
    naive_layout from = naive_layout_of(src), to = naive_layout_of(clone);
    assert_true(tdict_tensor_is_contiguous(clone));
    assert_false(tdict_tensor_shares_storage(clone, src));
    assert_true(tdict_tensor_dtype(clone) == dtype);
    assert_int_equal(to.ndim, from.ndim);
    assert_memory_equal(to.shape, from.shape, sizeof to.shape);
    size_t bytes = tdict_tensor_bytes(src);
    assert_int_equal(clone->storage->bytes, bytes);
    scoped_bytes wanted = malloc(bytes + 1);
    if (bytes) naive_copy(&to, wanted, &from, tdict_tensor_const_data(src), tdict_dtype_bytes(dtype));
    if (bytes) assert_memory_equal(tdict_tensor_const_data(clone), wanted, bytes);
  }
}

CASE(tensor_copy_refuses) {
  unsigned char bytes[64] = {0}, kept[64];
  const int64_t shape[] = {2, 3}, turned[] = {3, 2}, six[] = {6};
  scoped_tensor src = naive_tensor(TDICT_F32, 2, shape, 1);
  const struct {
    tdict_status status;
    const char *text;
    tdict_tensor_desc view;
  } bad[] = {
      {TDICT_ESHAPE, "[2, 3] to shape [3, 2]", {sizeof *bad, bytes, tdict_cpu(), TDICT_F32, 2, turned, NULL, 0, 0}},
      {TDICT_ESHAPE, "[2, 3] to shape [6]", {sizeof *bad, bytes, tdict_cpu(), TDICT_F32, 1, six, NULL, 0, 0}},
      {TDICT_EDTYPE, "copy: from float32 to int32", {sizeof *bad, bytes, tdict_cpu(), TDICT_I32, 2, shape, NULL, 0, 0}},
      {TDICT_EDTYPE, "float32 x 2", {sizeof *bad, bytes, tdict_cpu(), TDICT_DTYPE(2, 32, 2), 2, shape, NULL, 0, 0}},
      {TDICT_EREADONLY, "is read-only", {sizeof *bad, bytes, tdict_cpu(), TDICT_F32, 2, shape, NULL, 0, 2}},
      {TDICT_EWRONGDEVICE, "cpu to cuda:1", {sizeof *bad, bytes, tdict_cuda(1), TDICT_F32, 2, shape, NULL, 0, 0}}};
  memcpy(kept, bytes, sizeof kept);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tdict_tensor_desc v = bad[i].view;
    v.struct_size = sizeof v;
    scoped_tensor other = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err));
    td_fails(bad[i].status, bad[i].text, tdict_tensor_copy(other, src, err));
    assert_memory_equal(bytes, kept, sizeof bytes);
  }
  tdict_tensor_desc far = {sizeof far, bytes, tdict_cuda(1), TDICT_F32, 2, shape, NULL, 0, 0}, near = far;
  near.device = tdict_cuda(0);
  scoped_tensor there = td_made(tensor, tdict_tensor_from_data(&far, NULL, NULL, &made, err)), here = NULL;
  td_ok(tdict_tensor_from_data(&near, NULL, NULL, &here, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda:0 to cuda:1", tdict_tensor_copy(there, here, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda:1 to cpu", tdict_tensor_copy(src, there, err));
  td_fails(TDICT_EWRONGDEVICE, "no context", tdict_tensor_copy(there, there, err));
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_tensor_copy(NULL, src, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_tensor_copy(src, NULL, err));
}

/* A fake device. Its addresses are host addresses plus 2^62, which the processor cannot access. */
typedef struct fake_memory {
  tdict_memory base;
  int refs, allocated, num_copies[3];
  tdict_status answer;
} fake_memory;
static const uintptr_t fake_offset = (uintptr_t)1 << 62;

static tdict_status fake_allocate(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err) {
  (void)err;
  void *data = malloc(bytes + 1);
  *out = (tdict_block){(void *)((uintptr_t)data + fake_offset), bytes, data};
  ((fake_memory *)m)->allocated++;
  return TDICT_OK;
}
static void fake_free(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences) {
  (void)fences;
  (void)num_fences;
  free(block->cookie);
  ((fake_memory *)m)->allocated--;
}
static tdict_status fake_copy(tdict_memory *m, const tdict_rect *rect, tdict_direction direction, tdict_error *err) {
  fake_memory *f = (fake_memory *)m;
  f->num_copies[direction]++;
  if (f->answer != TDICT_OK) {
    if (err) err->status = (int32_t)f->answer;
    return f->answer;
  }
  uintptr_t dst = (uintptr_t)rect->dst - (direction == TDICT_COPY_OUT ? 0 : fake_offset);
  uintptr_t src = (uintptr_t)rect->src - (direction == TDICT_COPY_IN ? 0 : fake_offset);
  for (size_t i = 0; i < rect->height; i++)
    memcpy((void *)(dst + (uintptr_t)((int64_t)i * rect->dst_pitch)),
           (const void *)(src + (uintptr_t)((int64_t)i * rect->src_pitch)), rect->width);
  return TDICT_OK;
}
static void fake_retain(tdict_memory *m) { ((fake_memory *)m)->refs++; }
static void fake_release(tdict_memory *m) { ((fake_memory *)m)->refs--; }
static const tdict_memory_ops fake_ops = {
    .allocate = fake_allocate, .free = fake_free, .copy = fake_copy, .retain = fake_retain, .release = fake_release};

static void check_same(const tdict_tensor *a, const tdict_tensor *b) {
  scoped_tensor plain = td_made(tensor, tdict_tensor_contiguous(b, &made, err));
  assert_memory_equal(tdict_tensor_const_data(a), tdict_tensor_const_data(plain), tdict_tensor_bytes(plain));
}

CASE(tensor_copy_uses_the_memorys_copy) {
  fake_memory f = {{&fake_ops, tdict_sim(3), false}, 0, 0, {0, 0, 0}, TDICT_OK};
  const int64_t shape[] = {5, 7};
  const int turn[] = {1, 0};
  tdict_tensor *host = naive_tensor(TDICT_F32, 2, shape, 9), *turned = NULL, *dev = NULL, *twin = NULL, *back = NULL;
  td_ok(tdict_tensor_permute(host, 2, turn, &turned, err));
  td_ok(tdict_tensor_clone(turned, &f.base, &dev, err));
  assert_true(f.num_copies[TDICT_COPY_IN] > 0 && f.num_copies[TDICT_COPY_OUT] + f.num_copies[TDICT_COPY_WITHIN] == 0);
  assert_true(tdict_device_equal(tdict_tensor_device(dev), tdict_sim(3)));
  td_ok(tdict_tensor_clone(dev, &f.base, &twin, err));
  assert_int_equal(f.num_copies[TDICT_COPY_WITHIN], 1);
  td_ok(tdict_tensor_clone(twin, NULL, &back, err));
  assert_int_equal(f.num_copies[TDICT_COPY_OUT], 1);
  check_same(back, turned);
  /* the result of tdict_tensor_contiguous() is in the memory of the device */
  tdict_tensor *dev_turned = NULL, *dev_plain = NULL, *shared = NULL, *again = NULL;
  td_ok(tdict_tensor_permute(dev, 2, turn, &dev_turned, err));
  td_ok(tdict_tensor_contiguous(dev_turned, &dev_plain, err));
  assert_ptr_equal(dev_plain->storage->memory, &f.base);
  td_ok(tdict_tensor_clone(dev_plain, NULL, &again, err));
  check_same(again, host);
  td_ok(tdict_tensor_contiguous(dev_plain, &shared, err));
  assert_ptr_equal(shared, dev_plain);
  tdict_tensor *all[] = {host, turned, dev, twin, back, dev_turned, dev_plain, shared, again};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
  assert_int_equal(f.refs, 0);
  assert_int_equal(f.allocated, 0);
}

CASE(tensor_copy_borrows_the_other_sides_memory) {
  fake_memory f = {{&fake_ops, tdict_sim(3), false}, 0, 0, {0, 0, 0}, TDICT_OK};
  unsigned char bytes[24];
  const int64_t shape[] = {2, 3};
  void *address = (void *)((uintptr_t)bytes + fake_offset);
  tdict_tensor_desc v = {sizeof v, address, tdict_sim(3), TDICT_F32, 2, shape, NULL, 0, 0};
  tdict_tensor *host = naive_tensor(TDICT_F32, 2, shape, 5), *foreign = NULL, *dev = NULL;
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &foreign, err));
  td_ok(tdict_tensor_clone(host, &f.base, &dev, err));
  memset(bytes, 0xA5, sizeof bytes);
  td_ok(tdict_tensor_copy(foreign, dev, err));
  assert_memory_equal(bytes, tdict_tensor_const_data(host), sizeof bytes);
  td_fill_random(bytes, sizeof bytes, 6);
  td_ok(tdict_tensor_copy(dev, foreign, err));
  td_ok(tdict_tensor_copy(host, dev, err));
  assert_memory_equal(bytes, tdict_tensor_const_data(host), sizeof bytes);
  assert_int_equal(f.num_copies[TDICT_COPY_WITHIN], 2);
  td_fails(TDICT_EWRONGDEVICE, "sim:3 to cpu", tdict_tensor_copy(host, foreign, err));
  td_fails(TDICT_EWRONGDEVICE, "cpu to sim:3", tdict_tensor_copy(foreign, host, err));
  td_fails(TDICT_EWRONGDEVICE, "no context", tdict_tensor_copy(foreign, foreign, err));
  v.device = tdict_sim(4);
  tdict_tensor *elsewhere = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:3 to sim:4", tdict_tensor_copy(elsewhere, dev, err));
  td_release(elsewhere, foreign, dev, host);
  assert_int_equal(f.refs, 0);
}

CASE(tensor_copy_returns_the_memorys_failure) {
  fake_memory f = {{&fake_ops, tdict_sim(3), false}, 0, 0, {0, 0, 0}, TDICT_EDEVICE};
  const int64_t shape[] = {5, 7};
  tdict_tensor *host = naive_tensor(TDICT_F32, 2, shape, 5), *out = mark;
  td_fails(TDICT_EDEVICE, "", tdict_tensor_clone(host, &f.base, &out, err));
  assert_ptr_equal(out, mark);
  assert_int_equal(f.allocated, 0);
  assert_int_equal(f.refs, 0);
  tdict_tensor_release(host);
}

static tdict_status refuse_allocate(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err) {
  (void)m;
  (void)bytes;
  (void)out;
  if (err) err->status = TDICT_ENOMEM, strcpy(err->message, "the pool is full");
  return TDICT_ENOMEM;
}

CASE(tensor_clone_refuses) {
  static const tdict_memory_ops full_ops = {
      .allocate = refuse_allocate, .retain = fake_retain, .release = fake_release};
  fake_memory full = {{&full_ops, tdict_sim(3), false}, 0, 0, {0, 0, 0}, TDICT_OK};
  const int64_t shape[] = {2, 3};
  const int turn[] = {1, 0};
  scoped_tensor host = naive_tensor(TDICT_F32, 2, shape, 5), turned = NULL, foreign = NULL;
  tdict_tensor *out = mark;
  td_ok(tdict_tensor_permute(host, 2, turn, &turned, err));
  td_fails(TDICT_ENOMEM, "the pool is full", tdict_tensor_clone(host, &full.base, &out, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_clone(NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_clone(host, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "tensor is NULL", tdict_tensor_contiguous(NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_tensor_contiguous(host, NULL, err));
  const int64_t strides[] = {1, 2};
  tdict_tensor_desc v = {sizeof v, (void *)fake_offset, tdict_cuda(0), TDICT_F32, 2, shape, strides, 0, 0};
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &foreign, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda:0", tdict_tensor_clone(foreign, NULL, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda:0", tdict_tensor_contiguous(foreign, &out, err));
  assert_ptr_equal(out, mark);
  assert_int_equal(full.refs, 0);
}

/* Checks that a copy waits for a transfer that uses `used`. */
static void check_waits(tdict_tensor *used, bool writes, tdict_tensor *dst, const tdict_tensor *src) {
  scoped_slow_fence transfer;
  begin_use(&transfer, used->storage, writes);
  transfer.thread = td_start(end_later, &transfer);
  td_ok(tdict_tensor_copy(dst, src, err));
  assert_true(transfer.ended);
}

CASE(tensor_copy_waits_for_transfers) {
  const int64_t shape[] = {6};
  scoped_tensor a = naive_tensor(TDICT_I16, 1, shape, 11), b = naive_tensor(TDICT_I16, 1, shape, 12);
  scoped_slow_fence reader;
  check_waits(b, true, a, b);
  check_waits(a, false, a, b);
  check_waits(a, true, a, b);
  begin_use(&reader, b->storage, false); /* an unfinished reader; the copy only reads `b`, so it does not wait */
  td_ok(tdict_tensor_copy(a, b, err));
  reader.thread = td_start(end_later, &reader);
}

CASE(tensor_contiguous_shares_or_copies) {
  const int64_t shape[] = {6, 4};
  const int turn[] = {1, 0};
  tdict_tensor *t = naive_tensor(TDICT_I16, 2, shape, 11);
  scoped_tensor same = td_made(tensor, tdict_tensor_contiguous(t, &made, err)), turned = NULL, plain = NULL;
  assert_ptr_equal(same, t);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_permute(same, 2, turn, &turned, err)); /* `same` has its own reference */
  td_ok(tdict_tensor_contiguous(turned, &plain, err));
  assert_ptr_not_equal(plain, turned);
  assert_false(tdict_tensor_shares_storage(plain, turned));
  assert_true(tdict_tensor_is_contiguous(plain));
  const int16_t *from = tdict_tensor_const_data(same), *to = tdict_tensor_const_data(plain);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 6; j++) assert_int_equal(to[i * 6 + j], from[j * 4 + i]);
}
