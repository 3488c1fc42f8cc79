/* Converts many elements on a device, and compares the results with core/tensor/convert.h bit by bit. Any two NaNs are
 * equal. Thread rule: only the main thread. */
#ifndef TDICT_TESTS_DEVICE_KERNELS_CONVERT_CHECK_H
#define TDICT_TESTS_DEVICE_KERNELS_CONVERT_CHECK_H

#include "core/kernel/work.h"
#include "core/tensor/convert.h"
#include "device/gpu_help.h"

typedef struct convert_pair {
  tdict_dtype to, from;
  size_t count;
} convert_pair;

/* Returns the bits of the largest positive value that is not a NaN. This value may be infinity. */
static inline uint64_t largest_number(tdict_dtype dtype) {
  switch (dtype) {
  case TDICT_F16:
    return 0x7c00;
  case TDICT_BF16:
    return 0x7f80;
  case TDICT_F8E4M3:
    return 0x7e;
  case TDICT_F8E5M2:
    return 0x7c;
  case TDICT_F32:
    return 0x7f800000;
  case TDICT_F64:
    return (uint64_t)0x7ff << 52;
  default:
    return UINT64_MAX;
  }
}
static inline bool is_nan_of(tdict_dtype dtype, const void *element) {
  uint64_t bits = 0;
  const size_t bytes = tdict_dtype_bytes(dtype);
  memcpy(&bits, element, bytes);
  return (bits & (UINT64_MAX >> (65 - 8 * bytes))) > largest_number(dtype);
}

/* Memory for conversions: device blocks and host arrays of one size. */
typedef struct convert_rig {
  fixture b;
  raw_memory *raw;
  tdict_block dst, src;
  unsigned char *found, *wanted;
} convert_rig;
static inline void convert_rig_open(convert_rig *c, size_t most_bytes) {
  memset(c, 0, sizeof *c);
  c->b = fixture_open(NULL);
  c->raw = raw_open(c->b.context, td_device());
  c->dst = fixture_take(&c->b, most_bytes);
  c->src = fixture_take(&c->b, most_bytes);
  c->found = malloc(most_bytes);
  c->wanted = malloc(most_bytes);
  assert_true(c->found && c->wanted);
}
static inline void convert_rig_close(convert_rig *c) {
  free(c->found);
  free(c->wanted);
  raw_close(c->raw);
  fixture_give(&c->b, &c->dst);
  fixture_give(&c->b, &c->src);
  fixture_close(&c->b);
}

/* Converts on the host. An element that does not fit keeps its old bytes. Returns the first such element, or
 * TDICT_KERNEL_NO_RESULT. */
static inline uint64_t convert_here(const convert_pair *p, unsigned char *out, const unsigned char *src) {
  const size_t to = tdict_dtype_bytes(p->to), from = tdict_dtype_bytes(p->from);
  uint64_t first = TDICT_KERNEL_NO_RESULT;
  for (size_t i = 0; i < p->count; i++) {
    i += tdict_convert_simple(p->to, out + i * to, p->from, src + i * from, p->count - i);
    if (i < p->count && first == TDICT_KERNEL_NO_RESULT) first = i;
  }
  return first;
}

/* Converts on the device and on the host, and compares the results. The device's results stay in c->found. */
static inline void convert_and_check(convert_rig *c, const convert_pair *p, const unsigned char *src) {
  const size_t to = tdict_dtype_bytes(p->to), from = tdict_dtype_bytes(p->from);
  const int64_t shape[] = {(int64_t)p->count}, to_stride[] = {(int64_t)to}, from_stride[] = {(int64_t)from};
  const tdict_kernel_move move = {.dst = c->dst.data,
                                  .src = c->src.data,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = to_stride,
                                  .src_strides = from_stride};
  tdict_kernel_work work;
  memset(c->wanted, 0x5c, p->count * to);
  raw_fill(c->raw, c->dst.data, 0x5c, p->count * to);
  raw_write(c->raw, c->src.data, src, p->count * from);
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  td_ok(tdict_kernel_add_convert(&work, &move, &(tdict_cast){.to = p->to, .from = p->from}, err));
  td_ok(c->b.memory->ops->run(c->b.memory, &work, NULL, err));
  raw_read(c->raw, c->found, c->dst.data, p->count * to);
  const uint64_t first = convert_here(p, c->wanted, src);
  if (work.results[0] != first)
    fail_msg("%s to %s: first that does not fit: %lld, wanted %lld", tdict_dtype_name(p->from), tdict_dtype_name(p->to),
             (long long)work.results[0], (long long)first);
  tdict_kernel_work_reset(&work);
  for (size_t i = 0; i < p->count; i++) {
    const unsigned char *f = c->found + i * to, *w = c->wanted + i * to;
    uint64_t bits[3] = {0};
    if (memcmp(f, w, to) == 0 || (is_nan_of(p->to, f) && is_nan_of(p->to, w))) continue;
    memcpy(&bits[0], src + i * from, from);
    memcpy(&bits[1], f, to);
    memcpy(&bits[2], w, to);
    fail_msg("%s 0x%llx to %s: 0x%llx, wanted 0x%llx", tdict_dtype_name(p->from), (unsigned long long)bits[0],
             tdict_dtype_name(p->to), (unsigned long long)bits[1], (unsigned long long)bits[2]);
  }
}

#endif
