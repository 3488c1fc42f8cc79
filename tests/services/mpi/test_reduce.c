/* Tests reductions of the MPI table. The test computes the expected results from the numbers of all ranks. */
#include <math.h>

#include "services/mpi/job.h"

#include "core/tensor/convert.h"
#include "support/float_env.h"

enum { MOST_RANKS = 4, MOST_COUNT = 300 };
static const tdict_reduce_op all_ops[] = {TDICT_REDUCE_SUM, TDICT_REDUCE_MEAN, TDICT_REDUCE_MIN, TDICT_REDUCE_MAX};

/* Makes the elements of a rank. Any rank can make the elements of another rank. */
static void make_elements(void *elements, size_t count, tdict_dtype dtype, uint64_t seed, int rank) {
  td_fill_random(elements, count * tdict_dtype_bytes(dtype), seed * 64 + (uint64_t)rank);
  double numbers[MOST_COUNT];
  rng r = {seed * 64 + (uint64_t)rank};
  const int code = dtype & 0xff;
  if (code < 2) return; /* integers: any bits */
  for (size_t i = 0; i < count; i++) numbers[i] = (double)pick(&r, -100000, 100000) / 1024;
  assert_int_equal(tdict_convert_simple(dtype, elements, TDICT_F64, numbers, count), count);
}

/* Returns an integer element as 64 bits. The low bits of sums modulo 2^64 are also correct for narrower types. */
static uint64_t integer_at(const unsigned char *elements, tdict_dtype dtype, size_t i) {
  int64_t number = 0;
  uint64_t bits = 0;
  const size_t bytes = tdict_dtype_bytes(dtype);
  if (dtype == TDICT_U64)
    memcpy(&bits, elements + i * 8, 8);
  else
    assert_int_equal(tdict_convert_simple(TDICT_I64, &number, dtype, elements + i * bytes, 1), 1);
  return dtype == TDICT_U64 ? bits : (uint64_t)number;
}

static void check_integer(const unsigned char *found, unsigned char *const *all, int world, size_t i, tdict_dtype dtype,
                          tdict_reduce_op op) {
  uint64_t wanted = integer_at(all[0], dtype, i);
  for (int r = 1; r < world; r++) {
    const uint64_t other = integer_at(all[r], dtype, i);
    const bool less = (dtype & 0xff) == 1 ? other < wanted : (int64_t)other < (int64_t)wanted;
    if (op == TDICT_REDUCE_SUM)
      wanted += other;
    else if (less == (op == TDICT_REDUCE_MIN))
      wanted = other;
  }
  const size_t bytes = tdict_dtype_bytes(dtype);
  if (memcmp(found + i * bytes, &wanted, bytes) != 0) /* the machine is little-endian */
    fail_msg("element %zu of %s, operation %d, is wrong", i, tdict_dtype_name(dtype), (int)op);
}

static double number_at(const unsigned char *elements, tdict_dtype dtype, size_t i) {
  double number = 0;
  assert_int_equal(tdict_convert_simple(TDICT_F64, &number, dtype, elements + i * tdict_dtype_bytes(dtype), 1), 1);
  return number;
}

/* Checks an element of a float type. Numbers are multiples of 1/1024, or rounded from these, so sums in double are
 * exact. */
static void check_float(const unsigned char *found, unsigned char *const *all, int world, size_t i, tdict_dtype dtype,
                        tdict_reduce_op op) {
  double wanted = number_at(all[0], dtype, i), largest = fabs(wanted);
  for (int r = 1; r < world; r++) {
    const double other = number_at(all[r], dtype, i);
    largest = fmax(largest, fabs(other));
    if (op == TDICT_REDUCE_MIN)
      wanted = fmin(wanted, other);
    else if (op == TDICT_REDUCE_MAX)
      wanted = fmax(wanted, other);
    else
      wanted += other;
  }
  if (op == TDICT_REDUCE_MEAN) wanted /= world;
  /* Half a unit in the last place of the result, and the rounding errors of float32 during the sum. */
  const double unit = dtype == TDICT_BF16 ? 0x1p-8 : dtype == TDICT_F16 ? 0x1p-11 : dtype == TDICT_F32 ? 0x1p-24 : 0;
  const bool exact = op == TDICT_REDUCE_MIN || op == TDICT_REDUCE_MAX;
  const double limit = exact ? 0 : fabs(wanted) * unit * 1.001 + largest * world * 0x1p-22 * (unit > 0) + 1e-12;
  if (!(fabs(number_at(found, dtype, i) - wanted) <= limit))
    fail_msg("element %zu of %s, operation %d: found %.17g, wanted %.17g", i, tdict_dtype_name(dtype), (int)op,
             number_at(found, dtype, i), wanted);
}

static void check_equal_ranks(tdict_comm_table *t, const void *bytes, size_t count) {
  scoped_bytes all = malloc(count * (size_t)t->world_size + 1);
  td_ok(t->exchange(t->self, bytes, all, count, LONG_NS, err));
  for (int r = 0; r < t->world_size; r++) assert_memory_equal(all + (size_t)r * count, bytes, count);
}

static void reduce(tdict_comm_table *t, tdict_dtype dtype, tdict_reduce_op op, size_t count, uint64_t seed) {
  const size_t bytes = count * tdict_dtype_bytes(dtype);
  unsigned char *all[MOST_RANKS], *found = malloc(bytes + 1);
  for (int r = 0; r < t->world_size; r++) {
    all[r] = malloc(bytes + 1);
    make_elements(all[r], count, dtype, seed, r);
  }
  memcpy(found, all[t->rank], bytes);
  found[bytes] = 0x5a;
  td_ok(t->all_reduce(t->self, found, count, dtype, op, tdict_no_stream(), LONG_NS, err));
  assert_int_equal(found[bytes], 0x5a);
  for (size_t i = 0; i < count; i++)
    ((dtype & 0xff) < 2 ? check_integer : check_float)(found, all, t->world_size, i, dtype, op);
  check_equal_ranks(t, found, bytes);
  free(found);
  for (int r = 0; r < t->world_size; r++) free(all[r]);
}

MPI_CASE(mpi_table_reduces) {
  static const tdict_dtype dtypes[] = {TDICT_I8,  TDICT_I16, TDICT_I32, TDICT_I64,  TDICT_U8,  TDICT_U16,
                                       TDICT_U32, TDICT_U64, TDICT_F16, TDICT_BF16, TDICT_F32, TDICT_F64};
  static const size_t counts[] = {0, 1, 17, MOST_COUNT};
  tdict_comm_table tables[] = {start_job(MPI_THREAD_SINGLE, 500), make_table(0)};
  uint64_t seed = 0;
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
    for (size_t o = 0; o < sizeof all_ops / sizeof *all_ops; o++, seed++) {
      tdict_comm_table *t = &tables[seed % 2];
      const bool can = t->can_reduce(t->self, dtypes[d], all_ops[o]);
      assert_int_equal(can, all_ops[o] != TDICT_REDUCE_MEAN || d >= 8);
      if (can)
        reduce(t, dtypes[d], all_ops[o], counts[seed / 3 % 4], seed);
      else
        td_fails(TDICT_ENOTSUP, tdict_dtype_name(dtypes[d]),
                 t->all_reduce(t->self, &seed, 1, dtypes[d], all_ops[o], tdict_no_stream(), LONG_NS, err));
    }
  static const tdict_dtype others[] = {TDICT_BOOL,   TDICT_C64, TDICT_C128,           TDICT_F8E4M3,
                                       TDICT_F8E5M2, 0,         TDICT_DTYPE(2, 32, 2)};
  for (size_t d = 0; d < sizeof others / sizeof *others; d++)
    for (size_t o = 0; o < sizeof all_ops / sizeof *all_ops; o++)
      assert_false(tables[0].can_reduce(tables[0].self, others[d], all_ops[o]));
  assert_false(tables[0].can_reduce(tables[0].self, TDICT_F32, (tdict_reduce_op)4));
  drop_table(&tables[0]);
  end_job(&tables[1]);
}

static double reduce_one(tdict_comm_table *t, tdict_dtype dtype, tdict_reduce_op op, double number) {
  unsigned char element[16];
  assert_int_equal(tdict_convert_simple(dtype, element, TDICT_F64, &number, 1), 1);
  td_ok(t->all_reduce(t->self, element, 1, dtype, op, tdict_no_stream(), LONG_NS, err));
  check_equal_ranks(t, element, tdict_dtype_bytes(dtype));
  return number_at(element, dtype, 0);
}

/* One rank passes NaN, or a zero whose sign differs from that of the other ranks. */
MPI_CASE(mpi_table_extremes_have_equal_bits) {
  static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F32, TDICT_F64};
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  for (int d = 0; d < 4; d++)
    for (int odd = 0; odd < t.world_size; odd++) {
      const double or_nan = t.rank == odd ? (double)NAN : (double)t.rank, zero = t.rank == odd ? -0.0 : 0.0;
      assert_true(isnan(reduce_one(&t, dtypes[d], TDICT_REDUCE_MIN, or_nan)));
      assert_true(isnan(reduce_one(&t, dtypes[d], TDICT_REDUCE_MAX, or_nan)));
      assert_true(signbit(reduce_one(&t, dtypes[d], TDICT_REDUCE_MIN, zero)));
      if (t.world_size > 1) assert_false(signbit(reduce_one(&t, dtypes[d], TDICT_REDUCE_MAX, zero)));
    }
}

/* The mean of large float16 numbers is finite, although their sum is not. */
MPI_CASE(mpi_table_small_floats_are_rounded_once) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  assert_true(reduce_one(&t, TDICT_F16, TDICT_REDUCE_MEAN, 65504) == 65504);
  /* With 4 ranks the sum is 1 plus 3/4 of a unit in the last place. With bfloat16 partial sums, it would be 1. */
  const double small = t.rank == 0 ? 1 : 0x1p-9;
  const double wanted = t.world_size == 4 ? 1 + 0x1p-7 : 1;
  assert_true(reduce_one(&t, TDICT_BF16, TDICT_REDUCE_SUM, small) == wanted);
}

/* The ranks reduce in different floating-point environments, which must not affect the result. */
MPI_CASE(mpi_table_reduces_in_any_float_env) {
  static const tdict_dtype dtypes[] = {TDICT_BF16, TDICT_F32, TDICT_F64};
  /* The first number is subnormal in bfloat16 and float32. Sums of the second number are rounded. */
  static const double numbers[] = {0x1p-133, 0x1.555556p-2};
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  for (int d = 0; d < 3; d++)
    for (int n = 0; n < 2; n++) {
      const size_t bytes = tdict_dtype_bytes(dtypes[d]);
      const double number = numbers[n] * (1 + t.rank);
      unsigned char given[8], wanted[8], found[8];
      td_float_env_reset();
      assert_int_equal(tdict_convert_simple(dtypes[d], given, TDICT_F64, &number, 1), 1);
      for (int i = -1; i < TD_FLOAT_ENVS; i++) {
        const td_float_env set = i < 0 ? td_float_env_get() : td_float_env_set((i + t.rank) % TD_FLOAT_ENVS);
        memcpy(found, given, bytes);
        const tdict_status status =
            t.all_reduce(t.self, found, 1, dtypes[d], TDICT_REDUCE_MEAN, tdict_no_stream(), LONG_NS, NULL);
        const td_float_env left = td_float_env_get();
        td_float_env_reset();
        assert_int_equal(status, TDICT_OK);
        assert_true(td_float_env_equal(left, set));
        if (i < 0) memcpy(wanted, found, bytes);
        assert_memory_equal(found, wanted, bytes);
      }
    }
}
