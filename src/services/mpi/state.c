/* Implements what all operations share: checks, messages, and the texts of MPI's errors. See state.h. */
#include "services/mpi/state.h"

#include "core/base/error.h"

tdict_status tdict_mpi_enter(const tdict_mpi *mpi, const char *what, tdict_error *err) {
  if (atomic_load(&mpi->aborted))
    return tdict_fail(err, TDICT_ECANCELLED, "mpi: %s: the communicator was aborted", what);
  if (mpi->on_one_thread && !pthread_equal(mpi->thread, pthread_self()))
    return tdict_fail(err, TDICT_EINVAL,
                      "mpi: %s: found a call on another thread, and the thread level of MPI permits the main thread "
                      "only: initialize MPI with MPI_THREAD_SERIALIZED",
                      what);
  return TDICT_OK;
}

tdict_status tdict_mpi_status(int code, const char *what, tdict_error *err) {
  if (code == MPI_SUCCESS) return TDICT_OK;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0, class = MPI_ERR_OTHER;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
  if (MPI_Error_class(code, &class) != MPI_SUCCESS) class = MPI_ERR_OTHER;
  for (char *c = text; *c; c++) /* MPICH's texts have several lines */
    if (*c == '\n') *c = ' ';
  return tdict_fail_native(err, class == MPI_ERR_NO_MEM ? TDICT_ENOMEM : TDICT_EIO, code, "mpi: %s: %s", what, text);
}

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

static int move_piece(const tdict_mpi *mpi, const tdict_mpi_work *work, size_t offset, int piece,
                      MPI_Status *received) {
  switch (work->kind) {
  case TDICT_MPI_SEND:
    return MPI_Send(work->src + offset, piece, MPI_BYTE, work->peer, work->tag, mpi->comm);
  case TDICT_MPI_RECEIVE:
    return MPI_Recv(work->dst + offset, piece, MPI_BYTE, work->peer, work->tag, mpi->comm, received);
  default:
    return MPI_Bcast(work->dst + offset, piece, MPI_BYTE, work->peer, mpi->comm);
  }
}

tdict_status tdict_mpi_run(const tdict_mpi *mpi, const tdict_mpi_work *work, tdict_error *err) {
  static const char *const names[] = {"send", "receive", "broadcast"};
  tdict_status status = TDICT_OK;
  for (size_t done = 0; done < work->num_bytes && status == TDICT_OK;) {
    MPI_Status received;
    const int piece = tdict_mpi_piece(mpi, work->num_bytes - done);
    status = tdict_mpi_status(move_piece(mpi, work, done, piece, &received), names[work->kind], err);
    if (status == TDICT_OK && work->kind == TDICT_MPI_RECEIVE) status = tdict_mpi_check_length(&received, piece, err);
    done += (size_t)piece;
  }
  return status;
}
