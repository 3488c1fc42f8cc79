/* Declares the table of operations that communicates through MPI. The functions of this header are in the libraries
 * libtdict_openmpi (pkg-config: tdict-openmpi) and libtdict_mpich (tdict-mpich). A program links the library of its own
 * MPI, in addition to libtdict. TDICT_HAS_OPENMPI and TDICT_HAS_MPICH of tdict/config.h tell which libraries were
 * built. The header tdict.h does not include this header, and this header does not include mpi.h. If the program
 * includes mpi.h before this header, the compiler checks the type of the communicator.
 *
 * Initialization. The program calls MPI_Init_thread() before this header's functions, and MPI_Finalize() after the
 * communicators are destroyed.
 *
 * Threads. The needed thread level of MPI depends on the program:
 *  - MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED suffices if only the main thread makes, uses and destroys communicators.
 *    The functions of tdict/comm.h then make a call before they return, so calls do not overlap with other work. An
 *    operation that another thread calls returns #TDICT_EINVAL. The field `on_calling_thread` of the table is true.
 *  - MPI_THREAD_SERIALIZED suffices for calls that overlap with other work, if the program itself never calls MPI while
 *    a communicator works: until the futures of all its calls have ended.
 *  - MPI_THREAD_MULTIPLE is needed if the program calls MPI while a communicator works, or if several communicators
 *    work at the same time.
 *
 * Memory. The table's device is the cpu.
 *
 * Failures. MPI cannot give up an operation, so timeouts have no effect: an operation waits until all ranks take part.
 * If a process ends without MPI_Finalize(), MPI by default ends all processes of the job. If MPI returns an error, the
 * operation returns #TDICT_EIO with the text of MPI, or #TDICT_ENOMEM for MPI_ERR_NO_MEM. The field `native` of the
 * error has MPI's error code. MPI does not define its state after an error, so a program then usually calls
 * MPI_Abort(). MPICH passes errors of messages in a group to the error handler of MPI_COMM_WORLD. By default, this
 * handler ends the job; a program may set MPI_ERRORS_RETURN.
 *
 * Abort. The operation `abort` of the table calls no function of MPI. After `abort`, every operation returns
 * #TDICT_ECANCELLED. An operation that already waits in MPI goes on waiting.
 *
 * Reductions. `can_reduce` returns true for integers of 8 to 64 bits, f16, bf16, f32 and f64. #TDICT_REDUCE_MEAN needs
 * a floating-point dtype. Sums of integers wrap around. Elements of f16 and bf16 are reduced as f32, and rounded once
 * at the end. If one of the elements is NaN, the floating-point minimum and maximum are NaN. The minimum of -0 and 0 is
 * -0, and the maximum is 0.
 *
 * Thread rule: under MPI_THREAD_MULTIPLE, any thread may call any function. Under MPI_THREAD_SERIALIZED, one thread at
 * a time may call a function of this header or of MPI. Below this level, only the main thread may call functions. */
#ifndef TDICT_COMM_MPI_H
#define TDICT_COMM_MPI_H

#include <string.h>

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
  /** Largest number of bytes in one message, from 64 to 2^30; default 2^30. The table rounds the number down to a
   *  multiple of 64. Larger buffers are sent in several messages. The ranks use the smallest number of all ranks. */
  size_t max_message_bytes;
} tdict_mpi_options;
static inline tdict_mpi_options tdict_mpi_options_default(void) {
  tdict_mpi_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.max_message_bytes = tdict_cast_(size_t, 1) << 30;
  return o;
}

/** @brief Makes a table that communicates through a duplicate of @p comm. Pass the table to tdict_comm_create(), which
 *  then owns the table. Without a communicator, call `out->destroy(out->self)`.
 *  Collective: all ranks of @p comm call the function. If the call fails on one rank, the call fails on all ranks. The
 *  two exceptions are errors that a rank detects before it can call MPI: MPI is not initialized, or @p comm is
 *  MPI_COMM_NULL.
 *  Errors of MPI_Comm_dup() go to the error handler of @p comm. By default, this handler ends the job.
 *  @param[in]  comm  Points to the MPI_Comm. NULL means MPI_COMM_WORLD. Borrowed for the call.
 *  @param[in]  options  NULL for the defaults. Borrowed for the call.
 *  @param[in,out] out  The table. The caller sets `out->struct_size` to sizeof(tdict_comm_table). Written only on
 *              success. `out->destroy` frees the duplicate, unless `out->abort` was called before. MPI then keeps the
 *              duplicate until MPI_Finalize().
 *  @return #TDICT_OK; #TDICT_EINVAL an option or out->struct_size is invalid, or @p out is NULL; #TDICT_EINVAL MPI is
 *          not initialized or already finalized, or its thread level forbids calls on this thread; #TDICT_EINVAL
 *          @p comm is MPI_COMM_NULL or an inter-communicator; #TDICT_EINVAL another rank failed; #TDICT_ENOTSUP an
 *          unknown option is not zero; #TDICT_ENOMEM; #TDICT_EIO MPI returned an error. */
TDICT_API TDICT_NODISCARD tdict_status tdict_mpi_table(const tdict_mpi_comm *comm, const tdict_mpi_options *options,
                                                       tdict_comm_table *out, tdict_error *err);

TDICT_END_DECLS
#endif
