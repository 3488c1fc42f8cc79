/* Declares the communicator table of NCCL, NVIDIA's library for messages between GPUs, from version 2.18. The page
 * docs/howto/several_gpus.md says how ranks get an id, which dtypes are reduced, and what a failure does.
 *
 * Every rank has its own device and table. Ranks of one process may share a context. Ranks are processes or threads, on
 * one host or several. The first call that needs NCCL opens it with dlopen(), so the build does not need NCCL.
 *
 * Errors of all functions: #TDICT_EINVAL an argument is NULL or out of range. err->native is the ncclResult_t, or the
 * errno of a file. After an error of a file, err->path is the path. Results are written on success only. Thread rule:
 * all functions of this header are thread-safe. */
#ifndef TDICT_COMM_NCCL_H
#define TDICT_COMM_NCCL_H

#include "tdict/comm_table.h"
#include "tdict/context.h"

TDICT_BEGIN_DECLS

/** The id of a communicator: the bytes of an ncclUniqueId. */
typedef struct tdict_nccl_id {
  char bytes[128];
} tdict_nccl_id;

/** The options of tdict_nccl_create_table(). */
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
  tdict_init_struct_(o);
  o.world_size = 1;
  o.timeout_ns = 60 * tdict_cast_(int64_t, 1000000000);
  return o;
}

/** @brief Creates the id of a new communicator. Only one rank calls this function.
 *  @param[in]  library  Path of NCCL, or NULL for "libnccl.so.2". Borrowed.
 *  @param[out] out      Valid until this process ends. Keep it secret, because its holders can connect to this rank.
 *  @return #TDICT_OK; #TDICT_ENOTSUP the library cannot be opened, lacks a function or is older than 2.18;
 *          #TDICT_EDEVICE NCCL failed, for example because the host has no network interface. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_create_id(const char *library, tdict_nccl_id *out, tdict_error *err);

/** @brief Connects all ranks, and fills in a table for tdict_comm_create(). Returns when all ranks have made the call.
 *  @param[in]     context  Must outlive the table.
 *  @param[in]     options  The same `id` and `world_size` on all ranks. Not NULL. Borrowed for the call.
 *  @param[in,out] out      Initialized by tdict_comm_table_default(). The table owns its memory, its stream and
 *                          the connections. Its owner, usually a communicator, calls `destroy` once.
 *  @return #TDICT_OK; #TDICT_EINVAL the device is the cpu; #TDICT_ENOTSUP as tdict_nccl_create_id(); #TDICT_ETIMEDOUT a
 *          rank has not made the call in time; #TDICT_EDEVICE NCCL or the driver failed; #TDICT_ENODEVICE the device is
 *          absent; #TDICT_EFORKED; #TDICT_ELOST another rank or the device is lost; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_create_table(tdict_context *context,
                                                               const tdict_nccl_options *options, tdict_comm_table *out,
                                                               tdict_error *err);

/** @brief Writes an id to a file that only this user can read. A reader sees the whole id or no file.
 *  @param[in] path  In a folder that all ranks can read, with a new name for each run of the program. Replaced if the
 *                   file exists. The call first writes "<path>.part".
 *  @return #TDICT_OK; #TDICT_EINVAL @p path is empty; #TDICT_EIO a system call failed; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_write_id_file(const char *path, const tdict_nccl_id *id,
                                                                tdict_error *err);
/** @brief Waits until a file exists, and reads an id from the file.
 *  @param[in] timeout_ns  Maximum time to wait in nanoseconds. 0: the file must exist. INT64_MAX: no limit.
 *  @return #TDICT_ETIMEDOUT no such file; #TDICT_EFORMAT it is no regular file of 128 bytes; #TDICT_EIO; #TDICT_OK. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nccl_read_id_file(const char *path, int64_t timeout_ns, tdict_nccl_id *out,
                                                               tdict_error *err);

TDICT_END_DECLS
#endif
