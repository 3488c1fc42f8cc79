/* Groups of an MPI table. An operation of a group is only collected. The end of the group starts all sends and
 * receives, waits for them, and then makes the broadcasts one after another: MPI cannot take back a started broadcast,
 * which could write to the program's memory after an error. Thread rule: as in tdict/comm_table.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "services/mpi/state.h"

static tdict_status mpi_group_begin(void *self, tdict_error *err) {
  tdict_mpi *mpi = self;
  tdict_status status = tdict_mpi_enter(mpi, "group_begin", err);
  if (status != TDICT_OK) return status;
  if (mpi->in_group) return tdict_fail(err, TDICT_EINVAL, "mpi: group_begin: found a group that has not ended");
  mpi->in_group = true;
  mpi->num_work = 0;
  return TDICT_OK;
}

/* The requests of a group that ends. */
typedef struct requests {
  struct {
    MPI_Request request;
    int wanted; /* bytes of a received message; -1 if the request is a send */
  } * list;
  int count;
} requests;

static int start_piece(tdict_mpi *mpi, const tdict_mpi_work *work, size_t offset, int piece, MPI_Request *request) {
  if (work->kind == TDICT_MPI_SEND)
    return MPI_Isend(work->src + offset, piece, MPI_BYTE, work->peer, work->tag, mpi->comm, request);
  return MPI_Irecv(work->dst + offset, piece, MPI_BYTE, work->peer, work->tag, mpi->comm, request);
}

/* Starts all sends and receives. */
static int start_all(tdict_mpi *mpi, requests *r) {
  for (size_t i = 0; i < mpi->num_work; i++) {
    const tdict_mpi_work *work = &mpi->work[i];
    for (size_t done = 0; work->kind != TDICT_MPI_BROADCAST && done < work->num_bytes;) {
      int piece = tdict_mpi_piece(mpi, work->num_bytes - done);
      int code = start_piece(mpi, work, done, piece, &r->list[r->count].request);
      if (code != MPI_SUCCESS) return code;
      r->list[r->count++].wanted = work->kind == TDICT_MPI_RECEIVE ? piece : -1;
      done += (size_t)piece;
    }
  }
  return MPI_SUCCESS;
}

/* Takes back the receives from `first` on, so that MPI writes no memory later. Sends cannot be taken back. */
static void cancel_receives(requests *r, int first) {
  for (int i = first; i < r->count; i++)
    if (r->list[i].wanted >= 0 && MPI_Cancel(&r->list[i].request) == MPI_SUCCESS)
      MPI_Wait(&r->list[i].request, MPI_STATUS_IGNORE);
}

/* Waits for one request after the other. MPI_Waitall() would call the error handler of another communicator. */
static tdict_status wait_all(requests *r, tdict_error *err) {
  for (int i = 0; i < r->count; i++) {
    MPI_Status received;
    tdict_status status = tdict_mpi_status(MPI_Wait(&r->list[i].request, &received), "group_end", err);
    if (status == TDICT_OK && r->list[i].wanted >= 0)
      status = tdict_mpi_check_length(&received, r->list[i].wanted, err);
    if (status == TDICT_OK) continue;
    cancel_receives(r, i + 1);
    return status;
  }
  return TDICT_OK;
}

static tdict_status send_and_receive(tdict_mpi *mpi, size_t num_requests, tdict_error *err) {
  if (num_requests == 0) return TDICT_OK;
  if (num_requests > INT32_MAX)
    return tdict_fail(err, TDICT_ENOTSUP, "mpi: group_end: found %zu messages", num_requests);
  requests r = {malloc(num_requests * sizeof *r.list), 0};
  if (!r.list) return tdict_fail(err, TDICT_ENOMEM, "mpi: group_end: no memory for %zu requests", num_requests);
  const int code = start_all(mpi, &r);
  if (code != MPI_SUCCESS) cancel_receives(&r, 0);
  tdict_status status = code == MPI_SUCCESS ? wait_all(&r, err) : tdict_mpi_status(code, "group_end", err);
  free(r.list);
  return status;
}

static tdict_status mpi_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  tdict_mpi *mpi = self;
  tdict_status status = tdict_mpi_enter(mpi, "group_end", err);
  if (status != TDICT_OK) return status;
  if (!mpi->in_group) return tdict_fail(err, TDICT_EINVAL, "mpi: group_end: found no group");
  mpi->in_group = false;
  size_t num_requests = 0;
  for (size_t i = 0; i < mpi->num_work; i++)
    if (mpi->work[i].kind != TDICT_MPI_BROADCAST)
      num_requests += mpi->work[i].num_bytes / mpi->piece_bytes + (mpi->work[i].num_bytes % mpi->piece_bytes != 0);
  status = send_and_receive(mpi, num_requests, err);
  for (size_t i = 0; i < mpi->num_work && status == TDICT_OK; i++)
    if (mpi->work[i].kind == TDICT_MPI_BROADCAST) status = tdict_mpi_run(mpi, &mpi->work[i], err);
  return status;
}

void tdict_mpi_add_groups(tdict_comm_table *table) {
  table->group_begin = mpi_group_begin;
  table->group_end = mpi_group_end;
}
