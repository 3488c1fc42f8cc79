/* The operations of an MPI table that move bytes, at once or at a group's end. Threads: as in tdict/comm_table.h. */
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/mpi/state.h"

/* Sends a block to the next rank and receives a block of the same size from the previous rank. */
static tdict_status shift_block(tdict_mpi *mpi, const char *src, char *dst, size_t num_bytes, tdict_error *err) {
  int next = (mpi->rank + 1) % mpi->world, previous = (mpi->rank + mpi->world - 1) % mpi->world;
  for (size_t done = 0; done < num_bytes;) {
    MPI_Status received;
    int piece = tdict_mpi_piece(mpi, num_bytes - done);
    int code = MPI_Sendrecv(src + done, piece, MPI_BYTE, next, TDICT_MPI_DATA_TAG, dst + done, piece, MPI_BYTE,
                            previous, TDICT_MPI_DATA_TAG, mpi->comm, &received);
    if (code != MPI_SUCCESS) return tdict_mpi_status(code, "all_gather", err);
    tdict_status status = tdict_mpi_check_length(&received, piece, err);
    if (status != TDICT_OK) return status;
    done += (size_t)piece;
  }
  return TDICT_OK;
}

/* Passes the blocks around in a ring: each rank sends and receives each byte at most once, in pieces. */
static tdict_status gather_in_ring(tdict_mpi *mpi, const void *src, char *dst, size_t num_bytes, tdict_error *err) {
  int world = mpi->world;
  char *own = dst + (size_t)mpi->rank * num_bytes;
  if (src != own) memcpy(own, src, num_bytes);
  for (int step = 0; step + 1 < world; step++) {
    int sent = (mpi->rank + world - step) % world, received = (sent + world - 1) % world;
    tdict_status status =
        shift_block(mpi, dst + (size_t)sent * num_bytes, dst + (size_t)received * num_bytes, num_bytes, err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static tdict_status gather(tdict_mpi *mpi, const char *what, const void *src, void *dst, size_t num_bytes,
                           tdict_error *err) {
  tdict_status status = tdict_mpi_enter(mpi, what, err);
  if (status != TDICT_OK || num_bytes == 0) return status;
  /* A few implementations compute the size of the whole result in an int. */
  if (num_bytes > mpi->piece_bytes / (size_t)mpi->world) return gather_in_ring(mpi, src, dst, num_bytes, err);
  const char *own = (const char *)dst + (size_t)mpi->rank * num_bytes;
  int count = (int)num_bytes;
  return tdict_mpi_status(
      MPI_Allgather(src == own ? MPI_IN_PLACE : src, count, MPI_BYTE, dst, count, MPI_BYTE, mpi->comm), what, err);
}

static tdict_status mpi_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                 tdict_error *err) {
  (void)timeout_ns;
  return gather(self, "exchange", src, dst, num_bytes, err);
}

static tdict_status mpi_all_gather(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                                   int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  return gather(self, "all_gather", src, dst, num_bytes, err);
}

/* Makes an operation with another rank, or adds it to the begun group. MPI accepts some negative ranks, so check. */
static tdict_status move(tdict_mpi *mpi, const char *what, tdict_mpi_work work, tdict_error *err) {
  tdict_status status = tdict_mpi_enter(mpi, what, err);
  if (status != TDICT_OK) return status;
  if (work.peer < 0 || work.peer >= mpi->world)
    return tdict_fail(err, TDICT_EINVAL, "mpi: %s: found rank %d, wanted 0 to %d", what, work.peer, mpi->world - 1);
  if (work.num_bytes == 0) return TDICT_OK;
  if (!mpi->in_group || work.tag == TDICT_MPI_HOST_TAG) return tdict_mpi_run(mpi, &work, err);
  if (!TDICT_RESERVE(mpi->work, mpi->work_capacity, mpi->num_work + 1))
    return tdict_fail(err, TDICT_ENOMEM, "mpi: group: no memory for %zu operations", mpi->num_work + 1);
  mpi->work[mpi->num_work++] = work;
  return TDICT_OK;
}

static tdict_status mpi_send_host(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                  tdict_error *err) {
  (void)timeout_ns;
  return move(self, "send_host", (tdict_mpi_work){TDICT_MPI_SEND, peer, TDICT_MPI_HOST_TAG, src, NULL, num_bytes}, err);
}

static tdict_status mpi_receive_host(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                     tdict_error *err) {
  (void)timeout_ns;
  return move(self, "receive_host", (tdict_mpi_work){TDICT_MPI_RECEIVE, peer, TDICT_MPI_HOST_TAG, NULL, dst, num_bytes},
              err);
}

static tdict_status mpi_send(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                             int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  return move(self, "send", (tdict_mpi_work){TDICT_MPI_SEND, peer, TDICT_MPI_DATA_TAG, src, NULL, num_bytes}, err);
}

static tdict_status mpi_receive(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                                int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  return move(self, "receive", (tdict_mpi_work){TDICT_MPI_RECEIVE, peer, TDICT_MPI_DATA_TAG, NULL, dst, num_bytes},
              err);
}

static tdict_status mpi_broadcast(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                                  int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  return move(self, "broadcast",
              (tdict_mpi_work){TDICT_MPI_BROADCAST, root, TDICT_MPI_DATA_TAG, NULL, buffer, num_bytes}, err);
}

void tdict_mpi_add_bytes(tdict_comm_table *table) {
  table->exchange = mpi_exchange;
  table->send_host = mpi_send_host;
  table->receive_host = mpi_receive_host;
  table->broadcast = mpi_broadcast;
  table->all_gather = mpi_all_gather;
  table->send = mpi_send;
  table->receive = mpi_receive;
}
