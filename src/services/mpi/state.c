/* Implements the checks that all operations share, and the texts of MPI's errors. See state.h. */
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

tdict_status tdict_mpi_check_peer(const tdict_mpi *mpi, const char *what, int32_t peer, tdict_error *err) {
  if (peer >= 0 && peer < mpi->world) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "mpi: %s: found rank %d, wanted 0 to %d", what, (int)peer, mpi->world - 1);
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
