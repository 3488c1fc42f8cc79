/* average: each process has gradients of its own part of the data, and all processes
 * average them with MPI. Then the first process gathers a row of each process.
 *
 *   mpirun -np 3 average */
#include <mpi.h>
#include <stdio.h>

#include <tdict/comm.h>
#include <tdict/comm_mpi.h>
#include <tdict/debug.h>
#include <tdict/tdict.h>
#include <tdict/try.h>
#include <tdict/write.h>

static const tdict_field weights[] = {TDICT_FIELD("layer.weight", TDICT_F32, 4, 3),
                                      TDICT_FIELD("layer.bias", TDICT_F32, 4)};
static const tdict_field fields[] = {TDICT_FIELD("loss", TDICT_F32)};

int main(int argc, char **argv) {
  tdict_comm_table table = tdict_comm_table_default();
  tdict_context *context = NULL;
  tdict_comm *comm = NULL;
  tdict_tree *gradients = NULL, *row = NULL, *rows = NULL;
  tdict_future *call;
  tdict_error err = {0};
  /* MPI_THREAD_SINGLE suffices: all calls are made on this thread */
  MPI_Init(&argc, &argv);
  TDICT_TRY(tdict_context_create(NULL, &context, &err));
  TDICT_TRY(tdict_mpi_create_table(NULL, NULL, &table, &err));
  TDICT_TRY(tdict_comm_create(context, &table, NULL, &comm, &err));
  const double rank = tdict_comm_get_info(comm).rank;

  TDICT_TRY(tdict_create_from(weights, 2, 0, NULL, NULL, &gradients, &err));
  TDICT_TRY(tdict_fill(gradients, NULL, rank, NULL, &err));
  TDICT_TRY(tdict_comm_all_reduce_async(comm, gradients, TDICT_REDUCE_MEAN, NULL, &call,
                                        &err));
  TDICT_TRY(tdict_future_take(call, NULL, &err)); /* one message for all tensors */

  TDICT_TRY(tdict_create_from(fields, 1, 1, (const int64_t[]){1}, NULL, &row, &err));
  TDICT_TRY(tdict_fill(row, NULL, 10 * rank, NULL, &err));
  TDICT_TRY(tdict_comm_gather_async(comm, row, 0, NULL, &call, &err));
  TDICT_TRY(tdict_future_take(call, &rows, &err));
  if (rows) {
    TDICT_TRY(tdict_describe(gradients, stdout, &err));
    TDICT_TRY(tdict_describe(rows, stdout, &err));
  }
done:
  tdict_release(rows);
  tdict_release(row);
  tdict_release(gradients);
  tdict_comm_destroy(comm); /* after the last call on all processes */
  tdict_context_destroy(context);
  /* the other processes may wait for this one */
  if (err.status != TDICT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
