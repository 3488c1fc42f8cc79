/* Declares the table of operations that communicates through MPI, in host memory. The functions are in the libraries
 * libtdict_openmpi and libtdict_mpich. tdict/config.h tells which were built (TDICT_HAS_OPENMPI, TDICT_HAS_MPICH). This
 * header does not include mpi.h. If the program includes mpi.h first, the compiler checks the type of the communicator.
 * docs/howto/mpi.md describes libraries, threads, failures and reductions.
 *
 * The program calls MPI_Init_thread() first, and MPI_Finalize() after the communicators are destroyed. MPI cannot give
 * up an operation, so timeouts have no effect. Thread rule: under MPI_THREAD_MULTIPLE, any thread may call any
 * function. Under MPI_THREAD_SERIALIZED, one thread at a time may call a function of this header or of MPI. Below this
 * level, only the main thread may call functions. */
#ifndef TDICT_COMM_MPI_H
#define TDICT_COMM_MPI_H

#include "tdict/comm_table.h"

TDICT_BEGIN_DECLS

/** The type of a communicator of MPI: MPI_Comm if the program has included mpi.h, otherwise void. */
#ifdef MPI_VERSION
typedef MPI_Comm tdict_mpi_comm;
#else
typedef void tdict_mpi_comm;
#endif

typedef struct tdict_mpi_options {
  size_t struct_size;
  /** Most bytes in one message, from 64 to 2^30 (default), rounded down to a multiple of 64. Larger buffers take
   *  several messages. The ranks use the smallest number of all ranks. */
  size_t max_message_bytes;
} tdict_mpi_options;
static inline tdict_mpi_options tdict_mpi_options_default(void) {
  tdict_mpi_options o;
  tdict_init_struct_(o);
  o.max_message_bytes = tdict_cast_(size_t, 1) << 30;
  return o;
}

/** @brief Makes a table that communicates through a duplicate of @p comm, for tdict_comm_create(). Collective.
 *  NULL options are the defaults. All ranks fail together, unless MPI is not initialized or @p comm is MPI_COMM_NULL.
 *  @param[in]  comm  Points to the MPI_Comm; borrowed for the call. NULL: MPI_COMM_WORLD.
 *  @param[in,out] out  Initialized by tdict_comm_table_default(). Written on success only. If no communicator takes it
 *                      over, call `out->destroy(out->self)`.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is invalid, @p comm is an inter-communicator, or another rank failed;
 *          #TDICT_EINVAL MPI is not initialized or already finalized, or its thread level forbids calls on this thread;
 *          #TDICT_ENOTSUP an unknown option is not zero; #TDICT_ENOMEM; #TDICT_EIO MPI returned an error. */
TDICT_API TDICT_NODISCARD tdict_status tdict_mpi_create_table(const tdict_mpi_comm *comm,
                                                              const tdict_mpi_options *options, tdict_comm_table *out,
                                                              tdict_error *err);

TDICT_END_DECLS
#endif
