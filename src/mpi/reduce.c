/* Reduces elements in messages of at most tdict_mpi.piece_bytes bytes. See reduce.h. */
#include "mpi/reduce.h"

#include <math.h>

#include "base/error.h"
#include "tensor/convert_vector.h"

/* Defines the minimum and the maximum of two numbers. The result does not depend on the order of `a` and `b`, so all
 * ranks get the same bits. */
#define DEFINE_EXTREMES(type)                                               \
  static type min_##type(type a, type b) {                                  \
    if (a != a || b != b) return (type)NAN;                                 \
    if (a == b) return signbit(a) ? a : b;                                  \
    return a < b ? a : b;                                                   \
  }                                                                         \
  static type max_##type(type a, type b) {                                  \
    if (a != a || b != b) return (type)NAN;                                 \
    if (a == b) return signbit(a) ? b : a;                                  \
    return a > b ? a : b;                                                   \
  }                                                                         \
  static void min_all_##type(const type *in, type *inout, int count) {      \
    for (int i = 0; i < count; i++) inout[i] = min_##type(in[i], inout[i]); \
  }                                                                         \
  static void max_all_##type(const type *in, type *inout, int count) {      \
    for (int i = 0; i < count; i++) inout[i] = max_##type(in[i], inout[i]); \
  }
DEFINE_EXTREMES(float)
DEFINE_EXTREMES(double)

/* MPI calls these functions. MPI passes the datatype of the reduction. */
static void min_of_floats(void *in, void *inout, int *count, MPI_Datatype *type) {
  if (*type == MPI_FLOAT)
    min_all_float(in, inout, *count);
  else
    min_all_double(in, inout, *count);
}
static void max_of_floats(void *in, void *inout, int *count, MPI_Datatype *type) {
  if (*type == MPI_FLOAT)
    max_all_float(in, inout, *count);
  else
    max_all_double(in, inout, *count);
}

void tdict_mpi_free_ops(tdict_mpi *mpi) {
  if (mpi->min != MPI_OP_NULL) MPI_Op_free(&mpi->min);
  if (mpi->max != MPI_OP_NULL) MPI_Op_free(&mpi->max);
}

tdict_status tdict_mpi_make_ops(tdict_mpi *mpi, tdict_error *err) {
  mpi->min = mpi->max = MPI_OP_NULL;
  int code = MPI_Op_create(min_of_floats, 1, &mpi->min);
  if (code == MPI_SUCCESS) code = MPI_Op_create(max_of_floats, 1, &mpi->max);
  if (code != MPI_SUCCESS) tdict_mpi_free_ops(mpi);
  return tdict_mpi_status(code, "table", err);
}

/* Returns the datatype that MPI reduces, or MPI_DATATYPE_NULL if the dtype is not supported. */
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
  case TDICT_F64:
    return MPI_DOUBLE;
  case TDICT_F16:
  case TDICT_BF16:
  case TDICT_F32:
    return MPI_FLOAT;
  default:
    return MPI_DATATYPE_NULL;
  }
}

static bool is_small(tdict_dtype dtype) { return dtype == TDICT_F16 || dtype == TDICT_BF16; }
static bool is_float(tdict_dtype dtype) { return is_small(dtype) || dtype == TDICT_F32 || dtype == TDICT_F64; }

bool tdict_mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self;
  if (op != TDICT_REDUCE_SUM && op != TDICT_REDUCE_MEAN && op != TDICT_REDUCE_MIN && op != TDICT_REDUCE_MAX)
    return false;
  return datatype_of(dtype) != MPI_DATATYPE_NULL && (op != TDICT_REDUCE_MEAN || is_float(dtype));
}

static MPI_Op mpi_op_of(const tdict_mpi *mpi, tdict_dtype dtype, tdict_reduce_op op) {
  switch (op) {
  case TDICT_REDUCE_MIN:
    return is_float(dtype) ? mpi->min : MPI_MIN;
  case TDICT_REDUCE_MAX:
    return is_float(dtype) ? mpi->max : MPI_MAX;
  default:
    return MPI_SUM;
  }
}

/* Reduces one message, in place. The elements are of `type`. */
static tdict_status reduce_piece(tdict_mpi *mpi, void *buffer, int count, MPI_Datatype type, MPI_Op mpi_op,
                                 tdict_reduce_op op, tdict_error *err) {
  int code = MPI_Allreduce(MPI_IN_PLACE, buffer, count, type, mpi_op, mpi->comm);
  if (code != MPI_SUCCESS) return tdict_mpi_status(code, "all_reduce", err);
  if (op != TDICT_REDUCE_MEAN) return TDICT_OK;
  if (type == MPI_FLOAT) {
    for (int i = 0; i < count; i++) ((float *)buffer)[i] /= (float)mpi->world;
  } else {
    for (int i = 0; i < count; i++) ((double *)buffer)[i] /= (double)mpi->world;
  }
  return TDICT_OK;
}

tdict_status tdict_mpi_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                  void *stream, int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  tdict_mpi *mpi = self;
  tdict_status status = tdict_mpi_enter(mpi, "all_reduce", err);
  if (status != TDICT_OK) return status;
  if (!tdict_mpi_can_reduce(mpi, dtype, op))
    return tdict_fail(err, TDICT_ENOTSUP, "mpi: all_reduce: operation %d is not supported for %s", (int)op,
                      tdict_dtype_name(dtype));
  const tdict_stream_kind kind = tdict_stream_best();
  const MPI_Datatype type = datatype_of(dtype);
  const MPI_Op mpi_op = mpi_op_of(mpi, dtype, op);
  const size_t bytes = tdict_dtype_bytes(dtype), most = is_small(dtype) ? mpi->scratch_count : mpi->piece_bytes / bytes;
  for (size_t done = 0; done < num_elements && status == TDICT_OK;) {
    const size_t count = num_elements - done < most ? num_elements - done : most;
    char *at = (char *)buffer + done * bytes;
    if (is_small(dtype)) { /* MPI has no type for these floats */
      tdict_convert_vector(kind, TDICT_F32, mpi->scratch, dtype, at, count);
      status = reduce_piece(mpi, mpi->scratch, (int)count, type, mpi_op, op, err);
      if (status == TDICT_OK) tdict_convert_vector(kind, dtype, at, TDICT_F32, mpi->scratch, count);
    } else {
      status = reduce_piece(mpi, at, (int)count, type, mpi_op, op, err);
    }
    done += count;
  }
  return status;
}
