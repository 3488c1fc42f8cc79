/* Reduces elements in messages of at most tdict_mpi.piece_bytes bytes. See reduce.h. */
#include "mpi/reduce.h"

#include "base/error.h"
#include "mpi/ops.h"
#include "mpi/state.h"
#include "tensor/convert_vector.h"

static bool is_small(tdict_dtype dtype) { return dtype == TDICT_F16 || dtype == TDICT_BF16; }
static bool is_float(tdict_dtype dtype) { return is_small(dtype) || dtype == TDICT_F32 || dtype == TDICT_F64; }
/* Returns the dtype that MPI reduces. MPI has no small floats. */
static tdict_dtype reduced_as(tdict_dtype dtype) { return is_small(dtype) ? TDICT_F32 : dtype; }

bool tdict_mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self;
  MPI_Datatype type;
  return tdict_mpi_ops_find(NULL, reduced_as(dtype), op, &type, NULL) && (op != TDICT_REDUCE_MEAN || is_float(dtype));
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
  MPI_Datatype type;
  MPI_Op mpi_op;
  if (!tdict_mpi_ops_find(&mpi->ops, reduced_as(dtype), op, &type, &mpi_op)) return TDICT_OK; /* checked above */
  const size_t bytes = tdict_dtype_bytes(dtype), most = is_small(dtype) ? mpi->scratch_count : mpi->piece_bytes / bytes;
  for (size_t done = 0; done < num_elements && status == TDICT_OK;) {
    const size_t count = num_elements - done < most ? num_elements - done : most;
    char *at = (char *)buffer + done * bytes;
    if (is_small(dtype)) {
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
