/* Defines sums, minimums and maximums of arrays. The results do not depend on the order of the two arguments, so all
 * ranks get the same bits. See ops.h. */
#include "services/mpi/ops.h"

#include <math.h>

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

/* A row without `sum` uses MPI_SUM. */
static const struct row {
  tdict_dtype dtype;
  MPI_User_function *sum, *min, *max;
} rows[TDICT_MPI_NUM_DTYPES] = {
    {TDICT_I8, sum_8, min_i8, max_i8},       {TDICT_I16, sum_16, min_i16, max_i16},
    {TDICT_I32, sum_32, min_i32, max_i32},   {TDICT_I64, sum_64, min_i64, max_i64},
    {TDICT_U8, sum_8, min_u8, max_u8},       {TDICT_U16, sum_16, min_u16, max_u16},
    {TDICT_U32, sum_32, min_u32, max_u32},   {TDICT_U64, sum_64, min_u64, max_u64},
    {TDICT_F32, NULL, min_float, max_float}, {TDICT_F64, NULL, min_double, max_double},
};

static MPI_Datatype datatype_of(tdict_dtype dtype) {
  switch (dtype) {
  case TDICT_I8:
    return MPI_INT8_T;
  case TDICT_I16:
    return MPI_INT16_T;
  case TDICT_I32:
    return MPI_INT32_T;
  case TDICT_I64:
    return MPI_INT64_T;
  case TDICT_U8:
    return MPI_UINT8_T;
  case TDICT_U16:
    return MPI_UINT16_T;
  case TDICT_U32:
    return MPI_UINT32_T;
  case TDICT_U64:
    return MPI_UINT64_T;
  case TDICT_F32:
    return MPI_FLOAT;
  default:
    return MPI_DOUBLE;
  }
}

void tdict_mpi_ops_free(tdict_mpi_ops *ops) {
  for (int row = 0; row < TDICT_MPI_NUM_DTYPES; row++)
    for (int i = 0; i < TDICT_MPI_NUM_OPS; i++)
      if (ops->op[row][i] != MPI_SUM && ops->op[row][i] != MPI_OP_NULL) MPI_Op_free(&ops->op[row][i]);
}

int tdict_mpi_ops_make(tdict_mpi_ops *ops) {
  int code = MPI_SUCCESS;
  for (int row = 0; row < TDICT_MPI_NUM_DTYPES; row++) {
    MPI_User_function *const functions[TDICT_MPI_NUM_OPS] = {rows[row].sum, rows[row].min, rows[row].max};
    for (int i = 0; i < TDICT_MPI_NUM_OPS; i++) {
      ops->op[row][i] = functions[i] ? MPI_OP_NULL : MPI_SUM;
      if (functions[i] && code == MPI_SUCCESS) code = MPI_Op_create(functions[i], 1, &ops->op[row][i]);
    }
  }
  if (code != MPI_SUCCESS) tdict_mpi_ops_free(ops);
  return code;
}

bool tdict_mpi_ops_find(const tdict_mpi_ops *ops, tdict_dtype dtype, tdict_reduce_op op, MPI_Datatype *type,
                        MPI_Op *out) {
  int column;
  switch (op) {
  case TDICT_REDUCE_SUM:
  case TDICT_REDUCE_MEAN:
    column = 0;
    break;
  case TDICT_REDUCE_MIN:
    column = 1;
    break;
  case TDICT_REDUCE_MAX:
    column = 2;
    break;
  default:
    return false;
  }
  for (int row = 0; row < TDICT_MPI_NUM_DTYPES; row++) {
    if (rows[row].dtype != dtype) continue;
    *type = datatype_of(dtype);
    if (ops) *out = ops->op[row][column];
    return true;
  }
  return false;
}
