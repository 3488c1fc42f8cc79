/* Makes and destroys MPI tables. See tdict/comm_mpi.h. */
#include <stdlib.h>

#include <mpi.h>

#include "tdict/comm_mpi.h"

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/mpi/state.h"

enum { LEAST_BYTES = 64, SCRATCH_BYTES = 1 << 20 };
static const size_t most_bytes = (size_t)1 << 30;

static tdict_status finish(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)stream, (void)timeout_ns, (void)err;
  return TDICT_OK;
}

static void give_up(void *self) { atomic_store(&((tdict_mpi *)self)->aborted, true); }

/* Returns true if functions of MPI may be called. */
static bool mpi_runs(void) {
  int initialized = 0, finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized && MPI_Finalized(&finalized) == MPI_SUCCESS &&
         !finalized;
}

static void free_state(tdict_mpi *mpi) {
  free(mpi->work);
  free(mpi->scratch);
  free(mpi);
}

static void destroy(void *self) {
  tdict_mpi *mpi = self;
  /* After an abort, other ranks may not free their duplicates, and a thread of this rank may still wait in MPI. */
  if (mpi_runs() && tdict_mpi_enter(mpi, "destroy", NULL) == TDICT_OK) {
    tdict_mpi_ops_free(mpi);
    MPI_Comm_free(&mpi->comm);
  }
  free_state(mpi);
}

static bool permits_any_thread(void) {
  int level = MPI_THREAD_SINGLE;
  return mpi_runs() && MPI_Query_thread(&level) == MPI_SUCCESS &&
         (level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE);
}

/* Checks that this thread may call MPI. */
static tdict_status check_mpi(tdict_error *err) {
  if (!mpi_runs())
    return tdict_fail(err, TDICT_EINVAL,
                      "mpi: MPI is not initialized, or is finalized: call MPI_Init_thread() first, and link the tdict "
                      "library of the program's MPI");
  int is_main = 0;
  tdict_status status = tdict_mpi_status(MPI_Is_thread_main(&is_main), "table", err);
  if (status == TDICT_OK && !is_main && !permits_any_thread())
    return tdict_fail(err, TDICT_EINVAL,
                      "mpi: found a call on another thread, and the thread level of MPI permits the main thread only: "
                      "initialize MPI with MPI_THREAD_SERIALIZED");
  return status;
}

/* Makes the state of a rank, without its communicator. */
static tdict_status make_state(const tdict_mpi_options *given, const tdict_comm_table *out, tdict_mpi **made,
                               tdict_error *err) {
  if (!out) return tdict_fail(err, TDICT_EINVAL, "mpi: out is NULL");
  tdict_mpi_options options = tdict_mpi_options_default();
  tdict_status status = tdict_options_check_size(out, sizeof *out, "comm_table", err);
  if (status == TDICT_OK) status = tdict_options_read(&options, sizeof options, given, "mpi options", err);
  if (status != TDICT_OK) return status;
  if (options.max_message_bytes < LEAST_BYTES || options.max_message_bytes > most_bytes)
    return tdict_fail(err, TDICT_EINVAL, "mpi: max_message_bytes is %zu, wanted %d to %zu", options.max_message_bytes,
                      (int)LEAST_BYTES, most_bytes);
  tdict_mpi *mpi = calloc(1, sizeof *mpi);
  if (!mpi) return tdict_fail(err, TDICT_ENOMEM, "mpi: no memory for the table");
  atomic_init(&mpi->aborted, false);
  mpi->piece_bytes = options.max_message_bytes;
  mpi->on_one_thread = !permits_any_thread();
  mpi->thread = pthread_self();
  mpi->scratch = malloc(SCRATCH_BYTES);
  status = mpi->scratch ? tdict_mpi_status(tdict_mpi_ops_make(mpi), "table", err)
                        : tdict_fail(err, TDICT_ENOMEM, "mpi: no memory for the table");
  return TDICT_HAND_OVER(status, mpi, made, free_state);
}

/* Agrees on whether all ranks succeeded, and the smallest size of a message. `mpi` is NULL after a failure. */
static tdict_status agree(tdict_mpi *mpi, MPI_Comm comm, tdict_error *err) {
  long long least = mpi ? (long long)mpi->piece_bytes : 0;
  tdict_status status =
      tdict_mpi_status(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_LONG_LONG, MPI_MIN, comm), "table", mpi ? err : NULL);
  if (status != TDICT_OK || !mpi) return status;
  if (least == 0) return tdict_fail(err, TDICT_EINVAL, "mpi: another rank could not make its table");
  mpi->comm = comm;
  mpi->piece_bytes = (size_t)least & ~(size_t)(LEAST_BYTES - 1);
  mpi->scratch_count = (mpi->piece_bytes < SCRATCH_BYTES ? mpi->piece_bytes : SCRATCH_BYTES) / sizeof(float);
  status = tdict_mpi_status(MPI_Comm_rank(comm, &mpi->rank), "table", err);
  return status == TDICT_OK ? tdict_mpi_status(MPI_Comm_size(comm, &mpi->world), "table", err) : status;
}

static tdict_status duplicate(MPI_Comm comm, MPI_Comm *out, tdict_error *err) {
  int is_inter = 0;
  if (comm == MPI_COMM_NULL) return tdict_fail(err, TDICT_EINVAL, "mpi: the communicator is MPI_COMM_NULL");
  tdict_status status = tdict_mpi_status(MPI_Comm_test_inter(comm, &is_inter), "table", err);
  if (status != TDICT_OK) return status;
  if (is_inter) return tdict_fail(err, TDICT_EINVAL, "mpi: found an inter-communicator, wanted an intra-communicator");
  status = tdict_mpi_status(MPI_Comm_dup(comm, out), "MPI_Comm_dup", err);
  if (status != TDICT_OK) return status;
  status = tdict_mpi_status(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), "table", err);
  if (status != TDICT_OK) MPI_Comm_free(out);
  return status;
}

tdict_status tdict_mpi_create_table(const MPI_Comm *comm, const tdict_mpi_options *options, tdict_comm_table *out,
                                    tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_status status = check_mpi(err);
  if (status != TDICT_OK) return status;
  MPI_Comm copy = MPI_COMM_NULL;
  status = duplicate(comm ? *comm : MPI_COMM_WORLD, &copy, err);
  if (status != TDICT_OK) return status;
  /* A rank that fails must still take part in the agreement, so that no other rank waits. */
  tdict_mpi *mpi = NULL;
  const tdict_status made = make_state(options, out, &mpi, err);
  status = agree(mpi, copy, err);
  if (made == TDICT_OK && status == TDICT_OK) {
    tdict_comm_table table = {.struct_size = sizeof table,
                              .self = mpi,
                              .name = "mpi",
                              .rank = mpi->rank,
                              .world_size = mpi->world,
                              .device = {TDICT_DEVICE_CPU, 0},
                              .on_calling_thread = mpi->on_one_thread,
                              .finish = finish,
                              .abort = give_up,
                              .destroy = destroy};
    tdict_mpi_add_bytes(&table);
    tdict_mpi_add_reductions(&table);
    tdict_mpi_add_groups(&table);
    return tdict_options_write(out, &table, sizeof table, "comm_table", err);
  }
  if (mpi) {
    tdict_mpi_ops_free(mpi);
    free_state(mpi);
  }
  MPI_Comm_free(&copy);
  return made == TDICT_OK ? status : made;
}
