/* Moves buffers in several messages. See pieces.h. */
#include "services/mpi/pieces.h"

#include "core/base/error.h"

int tdict_mpi_piece(const tdict_mpi *mpi, size_t left) {
  return (int)(left < mpi->piece_bytes ? left : mpi->piece_bytes);
}

tdict_status tdict_mpi_check_length(const MPI_Status *status, int wanted, tdict_error *err) {
  int found = 0;
  int code = MPI_Get_count(status, MPI_BYTE, &found);
  if (code != MPI_SUCCESS) return tdict_mpi_status(code, "receive", err);
  if (found == wanted) return TDICT_OK;
  return tdict_fail(err, TDICT_EIO, "mpi: receive: found a message of %d bytes, wanted %d", found, wanted);
}

tdict_status tdict_mpi_send_pieces(const tdict_mpi *mpi, const void *src, size_t num_bytes, int peer, int tag,
                                   tdict_error *err) {
  const char *bytes = src;
  for (size_t done = 0; done < num_bytes;) {
    int piece = tdict_mpi_piece(mpi, num_bytes - done);
    int code = MPI_Send(bytes + done, piece, MPI_BYTE, peer, tag, mpi->comm);
    if (code != MPI_SUCCESS) return tdict_mpi_status(code, "send", err);
    done += (size_t)piece;
  }
  return TDICT_OK;
}

tdict_status tdict_mpi_receive_pieces(const tdict_mpi *mpi, void *dst, size_t num_bytes, int peer, int tag,
                                      tdict_error *err) {
  char *bytes = dst;
  for (size_t done = 0; done < num_bytes;) {
    MPI_Status received;
    int piece = tdict_mpi_piece(mpi, num_bytes - done);
    int code = MPI_Recv(bytes + done, piece, MPI_BYTE, peer, tag, mpi->comm, &received);
    if (code != MPI_SUCCESS) return tdict_mpi_status(code, "receive", err);
    tdict_status status = tdict_mpi_check_length(&received, piece, err);
    if (status != TDICT_OK) return status;
    done += (size_t)piece;
  }
  return TDICT_OK;
}

tdict_status tdict_mpi_broadcast_pieces(const tdict_mpi *mpi, void *buffer, size_t num_bytes, int root,
                                        tdict_error *err) {
  char *bytes = buffer;
  for (size_t done = 0; done < num_bytes;) {
    int piece = tdict_mpi_piece(mpi, num_bytes - done);
    int code = MPI_Bcast(bytes + done, piece, MPI_BYTE, root, mpi->comm);
    if (code != MPI_SUCCESS) return tdict_mpi_status(code, "broadcast", err);
    done += (size_t)piece;
  }
  return TDICT_OK;
}
