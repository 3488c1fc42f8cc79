/* Declares the communicator table of NCCL, NVIDIA's library for messages between GPUs.
 *
 * The library opens NCCL with dlopen() in the first call that needs NCCL, so neither building nor linking needs NCCL.
 * NCCL must be version 2.18 or newer. If the program has already loaded libnccl.so.2, for example with PyTorch, the
 * same library is used.
 *
 * **Ranks.** Every rank has its own device, its own table and its own context, or a context that it shares with ranks
 * of the same process. Ranks are processes or threads, on one host or on several hosts. NCCL refuses two ranks on one
 * device.
 *
 * **Ids.** Rank 0 calls tdict_nccl_create_id(), and sends the 128 bytes of the id to all other ranks. Then every rank
 * calls tdict_nccl_table() with this id. One id makes one communicator. There are three ways to send an id:
 * - by a file, with tdict_nccl_write_id_file() and tdict_nccl_read_id_file();
 * - by MPI, with MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
 * - by any other channel of the program, such as a socket or an environment variable.
 *
 * Whoever has the id can connect to rank 0, so the id should be kept from other users.
 *
 * **Host memory.** Small messages of the library's protocol pass through pinned host memory that the table owns: 1 MiB,
 * or 4 KiB for each rank if this is more.
 *
 * **Reductions.** The table reduces float16, bfloat16, float32, float64 and integers of 8, 32 and 64 bits. The table
 * also reduces 8-bit floats if NCCL is version 2.24 or newer and the device has compute capability 9.0 or higher. Only
 * floating-point dtypes have a mean.
 *
 * **Time limits.** A time limit ends every call, also a call that waits for other ranks inside NCCL. For this purpose,
 * the table makes two communicators of NCCL that share their resources, and starts a thread, which sleeps until a call
 * has missed its time limit. If the environment variable NCCL_COMM_BLOCKING is 1, tdict_nccl_table() may wait without a
 * limit. If the variable is 0, NCCL starts a thread for each call, so that small messages take longer.
 *
 * **Failures.** If NCCL reports an error, the message has NCCL's text, and err->native is the ncclResult_t. The status
 * is #TDICT_ELOST for ncclRemoteError, which often means that another rank has ended, and #TDICT_EDEVICE for all other
 * results. The environment variable NCCL_DEBUG=WARN makes NCCL print more. If a rank does not call tdict_nccl_table()
 * in time, NCCL 2.28 keeps some memory of the attempt until the process ends.
 *
 * Thread rule: all functions of this header are thread-safe. */
#ifndef TDICT_COMM_NCCL_H
#define TDICT_COMM_NCCL_H

#include <string.h>

#include "tdict/comm_table.h"
#include "tdict/context.h"

TDICT_BEGIN_DECLS

/** The id of a communicator: the bytes of an ncclUniqueId. */
typedef struct tdict_nccl_id {
  char bytes[128];
} tdict_nccl_id;

/** The options of tdict_nccl_table(). */
typedef struct tdict_nccl_options {
  size_t struct_size;
  const char *library; /**< path of NCCL; NULL (default): "libnccl.so.2", which the system searches. Borrowed */
  int32_t rank;        /**< this rank, from 0 to world_size - 1; default 0 */
  int32_t world_size;  /**< number of ranks, at least 1; default 1 */
  tdict_device device; /**< the device of this rank; default: "auto", which is the default device of the context */
  tdict_nccl_id id;    /**< from tdict_nccl_create_id() of rank 0 */
  int64_t timeout_ns; /**< maximum time in nanoseconds to wait for the other ranks; default 60 s; INT64_MAX: no limit */
} tdict_nccl_options;
static inline tdict_nccl_options tdict_nccl_options_default(void) {
  tdict_nccl_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.world_size = 1;
  o.timeout_ns = 60 * tdict_cast_(int64_t, 1000000000);
  return o;
}

/** @brief Creates the id of a new communicator. Only one rank calls this function.
 *  @param[in]  library  Path of NCCL, or NULL for "libnccl.so.2". Borrowed.
 *  @param[out] out      Written on success only. The id is valid until this process ends.
 *  @return #TDICT_OK; #TDICT_EINVAL @p out is NULL; #TDICT_ENOTSUP the library cannot be opened, lacks a function, or
 *          is older than 2.18, and the message gives the reason; #TDICT_EDEVICE NCCL failed, for example because the
 *          host has no network interface. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_create_id(const char *library, tdict_nccl_id *out, tdict_error *err);

/** @brief Connects this rank with all other ranks, and fills in a table for tdict_comm_create(). Every rank calls this
 *         function, with the same id and the same `world_size`.
 *
 *  The call returns when all ranks have called it. Ranks that are threads must make the call at the same time.
 *  @param[in]     context  Must outlive the table.
 *  @param[in]     options  Borrowed for the call. Must not be NULL, because `id` has no default.
 *  @param[in,out] out      The caller sets out->struct_size to sizeof(tdict_comm_table). On success the other members
 *                          are written, and the table owns its memory, its stream and the connections. The owner of the
 *                          table calls `destroy` once. A communicator is the owner of its table.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, the rank, the number of ranks or the timeout is out of range,
 *          or the device is the cpu; #TDICT_ENOTSUP as tdict_nccl_create_id(); #TDICT_ETIMEDOUT a rank has not made the
 *          call in time; #TDICT_EDEVICE NCCL or the driver failed; #TDICT_ENODEVICE the device is absent;
 *          #TDICT_EFORKED; #TDICT_ELOST another rank or the device is lost; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_table(tdict_context *context, const tdict_nccl_options *options,
                                                        tdict_comm_table *out, tdict_error *err);

/** @brief Writes an id to a file. A rank that reads the file sees the whole id or no file.
 *
 *  The file must be new for each run of the program: a rank that starts early could read the id of an earlier run.
 *  Programs use the number of the job in the name, or remove the file before the ranks start.
 *  @param[in] path  The file, in a folder that all ranks can read. An existing file is replaced. The file can be read
 *                   only by the user of this process. The call also creates the file "<path>.part", and renames it.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or @p path is empty; #TDICT_EIO a system call failed,
 *          err->path is the path, and err->native is the errno; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_write_id_file(const char *path, const tdict_nccl_id *id,
                                                                tdict_error *err);
/** @brief Waits until a file exists, and reads an id from the file.
 *  @param[in]  timeout_ns  Maximum time to wait in nanoseconds. 0: the file must exist. INT64_MAX: no limit.
 *  @param[out] out         Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or @p timeout_ns is negative; #TDICT_ETIMEDOUT the file does
 *          not exist; #TDICT_EFORMAT the file is not a regular file of 128 bytes; #TDICT_EIO a system call failed, and
 *          err->native is the errno. After an error of the file, err->path is the path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_read_id_file(const char *path, int64_t timeout_ns, tdict_nccl_id *out,
                                                               tdict_error *err);

TDICT_END_DECLS
#endif
