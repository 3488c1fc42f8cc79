/* Tests the reductions of services/comm/nccl/operations.c. The expected results do not depend on the fake's arithmetic:
 * they are computed as small integers, and converted by tables of bit patterns or by C. */
#include "services/comm/nccl/ranks.h"

enum { COUNT = 1001 };

typedef struct reduction {
  tdict_dtype dtype;
  tdict_reduce_op op;
  size_t count;
} reduction;
static reduction now;

static tdict_status all_reduce(rank *r, tdict_error *err) {
  tdict_status status =
      r->t.all_reduce(r->t.self, r->memory, now.count, now.dtype, now.op, r->stream, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, r->stream, SECONDS(60), err) : status;
}

/* Bit patterns of 0, 1, 2 ... 8 as 16-bit floats. */
static const uint16_t halves[] = {0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
static const uint16_t brains[] = {0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100};
/* Bit patterns of the same numbers as 8-bit floats. */
static const uint8_t e4m3[] = {0, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x4E, 0x50};
static const uint8_t e5m2[] = {0, 0x3C, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48};

/* Writes a value from -8 to 8 as an element of the dtype. */
static void store(void *at, tdict_dtype dtype, int value) {
  const int size = value < 0 ? -value : value;
  const unsigned sign = value < 0 ? 0x8000 : 0;
  if (dtype == TDICT_F16) memcpy(at, &(uint16_t){(uint16_t)(halves[size] | sign)}, 2);
  if (dtype == TDICT_BF16) memcpy(at, &(uint16_t){(uint16_t)(brains[size] | sign)}, 2);
  if (dtype == TDICT_F8E4M3) memcpy(at, &(uint8_t){(uint8_t)(e4m3[size] | sign >> 8)}, 1);
  if (dtype == TDICT_F8E5M2) memcpy(at, &(uint8_t){(uint8_t)(e5m2[size] | sign >> 8)}, 1);
  if (dtype == TDICT_F32) memcpy(at, &(float){(float)value}, 4);
  if (dtype == TDICT_F64) memcpy(at, &(double){value}, 8);
  if (dtype == TDICT_I8 || dtype == TDICT_U8) memcpy(at, &(int8_t){(int8_t)value}, 1);
  if (dtype == TDICT_I32 || dtype == TDICT_U32) memcpy(at, &(int32_t){value}, 4);
  if (dtype == TDICT_I64 || dtype == TDICT_U64) memcpy(at, &(int64_t){value}, 8);
}

static bool is_unsigned(tdict_dtype d) { return d == TDICT_U8 || d == TDICT_U32 || d == TDICT_U64; }
static bool is_integer(tdict_dtype d) { return is_unsigned(d) || d == TDICT_I8 || d == TDICT_I32 || d == TDICT_I64; }

/* Returns a number that orders values as the dtype does: in unsigned dtypes, negative values are the largest. */
static int64_t key_of(int value) {
  return is_unsigned(now.dtype) && value < 0 ? (int64_t)1 << 40 | (value + 100) : value;
}

/* Reduces numbers from -2 to 2. Sums are at most 8 in magnitude, so each dtype can represent the exact result. For
 * means, the value of the last rank makes the sum divisible by the number of ranks. */
static void reduce_with(world *w, uint64_t seed) {
  const size_t bytes = tdict_dtype_bytes(now.dtype);
  static unsigned char made[MOST_RANKS][COUNT * 8], wanted[COUNT * 8];
  rng random = {seed};
  memset(wanted, 0, sizeof wanted);
  for (size_t i = 0; i < now.count; i++) {
    int values[MOST_RANKS], sum = 0, least = 0, most = 0;
    for (int r = 0; r < w->size; r++) {
      values[r] = (int)pick(&random, -2, 2);
      if (now.op == TDICT_REDUCE_MEAN && r == w->size - 1) values[r] = -(sum % w->size);
      sum += values[r];
      if (r == 0 || key_of(values[r]) < key_of(least)) least = values[r];
      if (r == 0 || key_of(values[r]) > key_of(most)) most = values[r];
      store(&made[r][i * bytes], now.dtype, values[r]);
    }
    const int results[] = {sum, sum / w->size, least, most};
    store(&wanted[i * bytes], now.dtype, results[now.op]);
  }
  memset(wanted + now.count * bytes, 0x5A, sizeof wanted - now.count * bytes);
  for (int r = 0; r < w->size; r++) {
    raw_fill(w->ranks[r].raw, w->ranks[r].memory, 0x5A, sizeof wanted);
    if (now.count) raw_write(w->ranks[r].raw, w->ranks[r].memory, made[r], now.count * bytes);
  }
  world_do(w, all_reduce);
  for (int r = 0; r < w->size; r++)
    if (!ranks_holds(&w->ranks[r], 0, wanted, sizeof wanted))
      fail_msg("rank %d of %d: %s, operation %d, is wrong", r, w->size, tdict_dtype_name(now.dtype), (int)now.op);
}

static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F32, TDICT_F64, TDICT_I8,
                                     TDICT_U8,  TDICT_I32,  TDICT_U32, TDICT_I64, TDICT_U64};
/* NCCL multiplies by 1 / 3 before the sum, so means of three ranks are not exact on GPUs. */
static bool is_exact(const world *w) { return w->fake || w->size != 3 || now.op != TDICT_REDUCE_MEAN; }
static void reduce_each(world *w, tdict_dtype dtype, uint64_t seed) {
  static const size_t counts[] = {0, 1, COUNT};
  const tdict_comm_table *t = &w->ranks[0].t;
  for (int op = TDICT_REDUCE_SUM; op <= TDICT_REDUCE_MAX; op++)
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
      now = (reduction){dtype, (tdict_reduce_op)op, counts[c]};
      if (t->can_reduce(t->self, dtype, now.op) && is_exact(w)) reduce_with(w, seed + 10 * c + (uint64_t)op);
    }
}
GPU_CASE(nccl_all_reduce_reduces_each_dtype) {
  const int most = ranks_most();
  for (int size = 1; size <= most; size++) {
    scoped_world w;
    world_open(&w, size, size % 2, COUNT * 8);
    world_polls(&w, size == 2 ? 3 : 0);
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) reduce_each(&w, dtypes[d], 1000 * d);
    reduce_each(&w, TDICT_F8E4M3, 1);
    reduce_each(&w, TDICT_F8E5M2, 2);
    world_polls(&w, 0);
  }
}

SIM_CASE(nccl_can_reduce_says_what_all_reduce_does) {
  static const tdict_dtype others[] = {
      TDICT_I16, TDICT_U16, TDICT_C64, TDICT_C128, TDICT_BOOL, TDICT_F8E4M3, TDICT_F8E5M2, TDICT_DTYPE(2, 32, 4), 0};
  scoped_world w;
  world_open(&w, 2, false, 4096);
  const tdict_comm_table *t = &w.ranks[0].t;
  for (int op = TDICT_REDUCE_SUM; op <= TDICT_REDUCE_MAX; op++)
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
      assert_int_equal(t->can_reduce(t->self, dtypes[d], (tdict_reduce_op)op),
                       op != TDICT_REDUCE_MEAN || !is_integer(dtypes[d]));
  for (int op = -1; op <= TDICT_REDUCE_MAX + 1; op++)
    for (size_t d = 0; d < sizeof others / sizeof others[0]; d++)
      assert_false(t->can_reduce(t->self, others[d], (tdict_reduce_op)op));
  assert_false(t->can_reduce(t->self, TDICT_F32, (tdict_reduce_op)4));
  assert_false(t->can_reduce(t->self, TDICT_F32, (tdict_reduce_op)-1));
  const int before = w.fake->operations;
  now = (reduction){TDICT_I64, TDICT_REDUCE_MEAN, 10};
  world_run(&w, all_reduce);
  world_has_failed(&w, TDICT_ENOTSUP, "NCCL has no reduction 1 of int64");
  now = (reduction){TDICT_BOOL, TDICT_REDUCE_MAX, 10};
  world_run(&w, all_reduce);
  world_has_failed(&w, TDICT_ENOTSUP, "of bool");
  assert_int_equal(w.fake->operations, before);
}

static const tdict_driver_ops *real_ops;
/* Replaces device_attribute(): reports that the device has compute capability 9. */
static tdict_cu capable_device(tdict_driver *d, int ordinal, int attribute, int *value) {
  tdict_cu result = real_ops->device_attribute(d, ordinal, attribute, value);
  if (attribute == TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = 9;
  return result;
}
SIM_CASE(nccl_small_floats_need_version_and_device) {
  static const struct {
    int version;
    bool capable, wanted;
  } rows[] = {{22400, true, true}, {22399, true, false}, {22400, false, false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    scoped_world w;
    tdict_driver_ops ops;
    world_prepare(&w, 1, false, COUNT * 8);
    tdict_driver *d = w.ranks[0].gpu->driver;
    w.fake->version = rows[i].version;
    real_ops = d->ops;
    ops = *real_ops;
    if (rows[i].capable) ops.device_attribute = capable_device;
    d->ops = &ops;
    world_do(&w, ranks_join);
    const tdict_comm_table *t = &w.ranks[0].t;
    for (int op = TDICT_REDUCE_SUM; op <= TDICT_REDUCE_MAX; op++) {
      assert_int_equal(t->can_reduce(t->self, TDICT_F8E4M3, (tdict_reduce_op)op), rows[i].wanted);
      assert_int_equal(t->can_reduce(t->self, TDICT_F8E5M2, (tdict_reduce_op)op), rows[i].wanted);
    }
    d->ops = real_ops;
    if (rows[i].wanted) reduce_each(&w, TDICT_F8E4M3, 1); /* the fake reduces 8-bit floats only for one rank */
    if (rows[i].wanted) reduce_each(&w, TDICT_F8E5M2, 2);
  }
}
