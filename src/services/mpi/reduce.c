/* Reduces elements in messages of at most tdict_mpi.piece_bytes bytes. See reduce.h. */
#include "services/mpi/reduce.h"

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/tensor/convert_vector.h"
#include "services/mpi/ops.h"
#include "services/mpi/state.h"

static bool is_small(tdict_dtype dtype) { return dtype == TDICT_F16 || dtype == TDICT_BF16; }
static bool is_float(tdict_dtype dtype) { return is_small(dtype) || dtype == TDICT_F32 || dtype == TDICT_F64; }
/* Returns the dtype that MPI reduces. MPI has no small floats. */
static tdict_dtype reduced_as(tdict_dtype dtype) { return is_small(dtype) ? TDICT_F32 : dtype; }

bool tdict_mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self;
  MPI_Datatype type;
  return tdict_mpi_ops_find(NULL, reduced_as(dtype), op, &type, NULL) && (op != TDICT_REDUCE_MEAN || is_float(dtype));
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

tdict_status tdict_mpi_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                  tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  const tdict_mpi *mpi = self;
  reduction r = {.dtype = dtype, .is_mean = op == TDICT_REDUCE_MEAN};
  tdict_status status = tdict_mpi_enter(mpi, "all_reduce", err);
  if (status != TDICT_OK) return status;
  if (!tdict_mpi_can_reduce(self, dtype, op) || !tdict_mpi_ops_find(&mpi->ops, reduced_as(dtype), op, &r.type, &r.op))
    return tdict_fail(err, TDICT_ENOTSUP, "mpi: all_reduce: operation %d is not supported for %s", (int)op,
                      tdict_dtype_name(dtype));
  const tdict_float_env saved = tdict_float_env_enter();
  status = reduce_pieces(mpi, &r, buffer, num_elements, err);
  tdict_float_env_leave(&saved);
  return status;
}
