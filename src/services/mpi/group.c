/* Collects the operations of a group, and runs them at its end. See group.h. */
#include "services/mpi/group.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/mpi/pieces.h"

tdict_status tdict_mpi_group_add(tdict_mpi *mpi, tdict_mpi_work work, tdict_error *err) {
  if (!TDICT_RESERVE(mpi->work, mpi->work_capacity, mpi->num_work + 1))
    return tdict_fail(err, TDICT_ENOMEM, "mpi: group: no memory for %zu operations", mpi->num_work + 1);
  mpi->work[mpi->num_work++] = work;
  return TDICT_OK;
}

tdict_status tdict_mpi_group_begin(void *self, tdict_error *err) {
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
  MPI_Request *request;
  int *wanted; /* bytes of a received message; -1 for other requests */
  int count;
} requests;

static int start_piece(tdict_mpi *mpi, const tdict_mpi_work *work, size_t offset, int piece, MPI_Request *request) {
  char *at = (char *)work->buffer + offset;
  if (work->kind == TDICT_MPI_SEND)
    return MPI_Isend(at, piece, MPI_BYTE, work->peer, TDICT_MPI_DATA_TAG, mpi->comm, request);
  return MPI_Irecv(at, piece, MPI_BYTE, work->peer, TDICT_MPI_DATA_TAG, mpi->comm, request);
}

/* Starts all sends and receives. */
static int start_all(tdict_mpi *mpi, requests *r) {
  for (size_t i = 0; i < mpi->num_work; i++) {
    const tdict_mpi_work *work = &mpi->work[i];
    for (size_t done = 0; work->kind != TDICT_MPI_BROADCAST && done < work->num_bytes;) {
      int piece = tdict_mpi_piece(mpi, work->num_bytes - done);
      int code = start_piece(mpi, work, done, piece, &r->request[r->count]);
      if (code != MPI_SUCCESS) return code;
      r->wanted[r->count++] = work->kind == TDICT_MPI_RECEIVE ? piece : -1;
      done += (size_t)piece;
    }
  }
  return MPI_SUCCESS;
}

/* Takes back the receives from number `first` on, so that MPI does not write to the program's memory later. Sends
 * cannot be taken back. */
static void cancel_receives(requests *r, int first) {
  for (int i = first; i < r->count; i++)
    if (r->wanted[i] >= 0 && MPI_Cancel(&r->request[i]) == MPI_SUCCESS) MPI_Wait(&r->request[i], MPI_STATUS_IGNORE);
}

/* Waits for one request after the other. MPI_Waitall() would call the error handler of another communicator. */
static tdict_status wait_all(requests *r, tdict_error *err) {
  for (int i = 0; i < r->count; i++) {
    MPI_Status received;
    tdict_status status = tdict_mpi_status(MPI_Wait(&r->request[i], &received), "group_end", err);
    if (status == TDICT_OK && r->wanted[i] >= 0) status = tdict_mpi_check_length(&received, r->wanted[i], err);
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
  requests r = {malloc(num_requests * sizeof *r.request), malloc(num_requests * sizeof *r.wanted), 0};
  tdict_status status;
  if (!r.request || !r.wanted) {
    status = tdict_fail(err, TDICT_ENOMEM, "mpi: group_end: no memory for %zu requests", num_requests);
  } else {
    int code = start_all(mpi, &r);
    if (code != MPI_SUCCESS) cancel_receives(&r, 0);
    status = code == MPI_SUCCESS ? wait_all(&r, err) : tdict_mpi_status(code, "group_end", err);
  }
  free(r.request);
  free(r.wanted);
  return status;
}

tdict_status tdict_mpi_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
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
  for (size_t i = 0; i < mpi->num_work && status == TDICT_OK; i++) {
    const tdict_mpi_work *work = &mpi->work[i];
    if (work->kind == TDICT_MPI_BROADCAST)
      status = tdict_mpi_broadcast_pieces(mpi, work->buffer, work->num_bytes, work->peer, err);
  }
  return status;
}
