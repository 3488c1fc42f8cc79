/* Moves bytes at once, or adds the operation to the group that has begun. See bytes.h. */
#include "services/mpi/bytes.h"

#include <string.h>

#include "services/mpi/group.h"
#include "services/mpi/pieces.h"
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

/* Passes the blocks around in a ring. Each rank sends and receives each byte at most once, and no count is larger than
 * a piece. */
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

tdict_status tdict_mpi_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                tdict_error *err) {
  (void)timeout_ns;
  return gather(self, "exchange", src, dst, num_bytes, err);
}

tdict_status tdict_mpi_all_gather(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                                  int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  return gather(self, "all_gather", src, dst, num_bytes, err);
}

/* Checks an operation with another rank. */
static tdict_status enter_peer(tdict_mpi *mpi, const char *what, int32_t peer, tdict_error *err) {
  tdict_status status = tdict_mpi_enter(mpi, what, err);
  return status == TDICT_OK ? tdict_mpi_check_peer(mpi, what, peer, err) : status;
}

tdict_status tdict_mpi_send_host(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                 tdict_error *err) {
  (void)timeout_ns;
  tdict_status status = enter_peer(self, "send_host", peer, err);
  return status == TDICT_OK ? tdict_mpi_send_pieces(self, src, num_bytes, peer, TDICT_MPI_HOST_TAG, err) : status;
}

tdict_status tdict_mpi_receive_host(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                    tdict_error *err) {
  (void)timeout_ns;
  tdict_status status = enter_peer(self, "receive_host", peer, err);
  return status == TDICT_OK ? tdict_mpi_receive_pieces(self, dst, num_bytes, peer, TDICT_MPI_HOST_TAG, err) : status;
}

tdict_status tdict_mpi_send(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                            int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  tdict_mpi *mpi = self;
  tdict_status status = enter_peer(mpi, "send", peer, err);
  if (status != TDICT_OK || num_bytes == 0) return status;
  if (!mpi->in_group) return tdict_mpi_send_pieces(mpi, src, num_bytes, peer, TDICT_MPI_DATA_TAG, err);
  tdict_mpi_work work = {TDICT_MPI_SEND, NULL, num_bytes, peer};
  memcpy(&work.buffer, &src, sizeof src); /* drops const without a warning */
  return tdict_mpi_group_add(mpi, work, err);
}

tdict_status tdict_mpi_receive(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                               int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  tdict_mpi *mpi = self;
  tdict_status status = enter_peer(mpi, "receive", peer, err);
  if (status != TDICT_OK || num_bytes == 0) return status;
  if (!mpi->in_group) return tdict_mpi_receive_pieces(mpi, dst, num_bytes, peer, TDICT_MPI_DATA_TAG, err);
  return tdict_mpi_group_add(mpi, (tdict_mpi_work){TDICT_MPI_RECEIVE, dst, num_bytes, peer}, err);
}

tdict_status tdict_mpi_broadcast(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                                 int64_t timeout_ns, tdict_error *err) {
  (void)stream, (void)timeout_ns;
  tdict_mpi *mpi = self;
  tdict_status status = enter_peer(mpi, "broadcast", root, err);
  if (status != TDICT_OK || num_bytes == 0) return status;
  if (mpi->in_group)
    return tdict_mpi_group_add(mpi, (tdict_mpi_work){TDICT_MPI_BROADCAST, buffer, num_bytes, root}, err);
  return tdict_mpi_broadcast_pieces(mpi, buffer, num_bytes, root, err);
}
