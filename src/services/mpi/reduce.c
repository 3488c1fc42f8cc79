/* Reductions of an MPI table: sums, minimums and maximums of arrays, in messages of at most tdict_mpi.piece_bytes
 * bytes. The library makes the operations of MPI itself, because some versions of MPI have wrong ones: Open MPI 4.1
 * with AVX has sums of 8 and 16 bits that do not wrap around, and MPICH 4.0 compares unsigned numbers as signed
 * numbers. The results do not depend on the order of the two arguments, so all ranks get the same bits. Thread rule: as
 * in tdict/comm_table.h. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/tensor/convert.h"
#include "services/mpi/state.h"

/* Defines a function that MPI calls: combines `in[i]` as `a` with `inout[i]` as `b`. MPI gives 4 arguments. */
#define DEFINE(name, type, expression)                                          \
  static void name(void *in, void *inout, int *count, MPI_Datatype *datatype) { \
    (void)datatype;                                                             \
    const type *first = in;                                                     \
    type *second = inout;                                                       \
    for (int i = 0, n = *count; i < n; i++) {                                   \
      const type a = first[i], b = second[i];                                   \
      second[i] = (expression);                                                 \
    }                                                                           \
  }
/* NOLINTBEGIN(readability-non-const-parameter): MPI fixes the type of these functions */
/* Integers. A signed sum wraps around, so it is the unsigned sum. */
#define DEFINE_INTEGER(bits)                                  \
  DEFINE(sum_##bits, uint##bits##_t, (uint##bits##_t)(a + b)) \
  DEFINE(min_i##bits, int##bits##_t, a < b ? a : b)           \
  DEFINE(max_i##bits, int##bits##_t, a > b ? a : b)           \
  DEFINE(min_u##bits, uint##bits##_t, a < b ? a : b)          \
  DEFINE(max_u##bits, uint##bits##_t, a > b ? a : b)
DEFINE_INTEGER(8)
DEFINE_INTEGER(16)
DEFINE_INTEGER(32)
DEFINE_INTEGER(64)
/* Floats: NaN if one is NaN. Of two zeros, the minimum is the negative one, and the maximum is the positive one. */
#define DEFINE_FLOAT(type)                                                                         \
  DEFINE(min_##type, type, a != a || b != b ? (type)NAN : a < b || (a == b && signbit(a)) ? a : b) \
  DEFINE(max_##type, type, a != a || b != b ? (type)NAN : a > b || (a == b && !signbit(a)) ? a : b)
DEFINE_FLOAT(float)
DEFINE_FLOAT(double)
/* NOLINTEND(readability-non-const-parameter) */

/* The elements that MPI reduces. */
static const struct row {
  tdict_dtype dtype;
  MPI_Datatype type;
  MPI_User_function *functions[TDICT_MPI_NUM_OPS]; /* sum, minimum and maximum; NULL: MPI_SUM */
} rows[TDICT_MPI_NUM_DTYPES] = {
    {TDICT_I8, MPI_INT8_T, {sum_8, min_i8, max_i8}},       {TDICT_I16, MPI_INT16_T, {sum_16, min_i16, max_i16}},
    {TDICT_I32, MPI_INT32_T, {sum_32, min_i32, max_i32}},  {TDICT_I64, MPI_INT64_T, {sum_64, min_i64, max_i64}},
    {TDICT_U8, MPI_UINT8_T, {sum_8, min_u8, max_u8}},      {TDICT_U16, MPI_UINT16_T, {sum_16, min_u16, max_u16}},
    {TDICT_U32, MPI_UINT32_T, {sum_32, min_u32, max_u32}}, {TDICT_U64, MPI_UINT64_T, {sum_64, min_u64, max_u64}},
    {TDICT_F32, MPI_FLOAT, {NULL, min_float, max_float}},  {TDICT_F64, MPI_DOUBLE, {NULL, min_double, max_double}},
};

void tdict_mpi_ops_free(tdict_mpi *mpi) {
  for (int row = 0; row < TDICT_MPI_NUM_DTYPES; row++)
    for (int i = 0; i < TDICT_MPI_NUM_OPS; i++)
      if (mpi->ops[row][i] != MPI_SUM && mpi->ops[row][i] != MPI_OP_NULL) MPI_Op_free(&mpi->ops[row][i]);
}

int tdict_mpi_ops_make(tdict_mpi *mpi) {
  int code = MPI_SUCCESS;
  for (int row = 0; row < TDICT_MPI_NUM_DTYPES; row++) {
    for (int i = 0; i < TDICT_MPI_NUM_OPS; i++) {
      MPI_User_function *function = rows[row].functions[i];
      mpi->ops[row][i] = function ? MPI_OP_NULL : MPI_SUM;
      if (function && code == MPI_SUCCESS) code = MPI_Op_create(function, 1, &mpi->ops[row][i]);
    }
  }
  if (code != MPI_SUCCESS) tdict_mpi_ops_free(mpi);
  return code;
}

static bool is_small(tdict_dtype dtype) { return dtype == TDICT_F16 || dtype == TDICT_BF16; }
static bool is_float(tdict_dtype dtype) { return is_small(dtype) || dtype == TDICT_F32 || dtype == TDICT_F64; }

/* Returns the row of the elements that MPI reduces for a dtype, or -1. MPI has no small floats. */
static int row_of(tdict_dtype dtype, tdict_reduce_op op) {
  if ((int)op < TDICT_REDUCE_SUM || op > TDICT_REDUCE_MAX || (op == TDICT_REDUCE_MEAN && !is_float(dtype))) return -1;
  int row = TDICT_MPI_NUM_DTYPES - 1;
  while (row >= 0 && rows[row].dtype != (is_small(dtype) ? TDICT_F32 : dtype)) row--;
  return row;
}

static bool mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self;
  return row_of(dtype, op) >= 0;
}

/* How MPI reduces the elements. */
typedef struct reduction {
  MPI_Datatype type;
  MPI_Op op;
  tdict_dtype dtype; /* of the program's elements */
  bool is_mean;
} reduction;

/* Reduces one message, in place. */
static tdict_status reduce_piece(const tdict_mpi *mpi, const reduction *r, void *buffer, size_t count,
                                 tdict_error *err) {
  int code = MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, r->type, r->op, mpi->comm);
  if (code != MPI_SUCCESS) return tdict_mpi_status(code, "all_reduce", err);
  if (!r->is_mean) return TDICT_OK;
  if (r->type == MPI_FLOAT) {
    for (size_t i = 0; i < count; i++) ((float *)buffer)[i] /= (float)mpi->world;
  } else {
    for (size_t i = 0; i < count; i++) ((double *)buffer)[i] /= (double)mpi->world;
  }
  return TDICT_OK;
}

/* Reduces all elements, in place. */
TDICT_FLOAT_ENV_BODY static tdict_status reduce_pieces(const tdict_mpi *mpi, const reduction *r, char *buffer,
                                                       size_t num_elements, tdict_error *err) {
  const tdict_stream_kind kind = tdict_stream_best();
  const size_t bytes = tdict_dtype_bytes(r->dtype);
  const size_t most = is_small(r->dtype) ? mpi->scratch_count : mpi->piece_bytes / bytes;
  tdict_status status = TDICT_OK;
  for (size_t done = 0; done < num_elements && status == TDICT_OK;) {
    const size_t count = num_elements - done < most ? num_elements - done : most;
    char *at = buffer + done * bytes;
    if (is_small(r->dtype)) {
      tdict_convert_vector(kind, TDICT_F32, mpi->scratch, r->dtype, at, count);
      status = reduce_piece(mpi, r, mpi->scratch, count, err);
      if (status == TDICT_OK) tdict_convert_vector(kind, r->dtype, at, TDICT_F32, mpi->scratch, count);
    } else {
      status = reduce_piece(mpi, r, at, count, err);
    }
    done += count;
  }
  return status;
}

static tdict_status mpi_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                   tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  static const int columns[] = {
      [TDICT_REDUCE_SUM] = 0, [TDICT_REDUCE_MEAN] = 0, [TDICT_REDUCE_MIN] = 1, [TDICT_REDUCE_MAX] = 2};
  (void)stream, (void)timeout_ns;
  const tdict_mpi *mpi = self;
  tdict_status status = tdict_mpi_enter(mpi, "all_reduce", err);
  if (status != TDICT_OK) return status;
  const int row = row_of(dtype, op);
  if (row < 0)
    return tdict_fail(err, TDICT_ENOTSUP, "mpi: all_reduce: operation %d is not supported for %s", (int)op,
                      tdict_dtype_name(dtype));
  const reduction r = {rows[row].type, mpi->ops[row][columns[op]], dtype, op == TDICT_REDUCE_MEAN};
  const tdict_float_env saved = tdict_float_env_enter();
  status = reduce_pieces(mpi, &r, buffer, num_elements, err);
  tdict_float_env_leave(&saved);
  return status;
}

void tdict_mpi_add_reductions(tdict_comm_table *table) {
  table->can_reduce = mpi_can_reduce;
  table->all_reduce = mpi_all_reduce;
}
