/* Opens NCCL. The functions stay valid until the process ends. Thread-safe. */
#ifndef TDICT_SERVICES_COMM_NCCL_LIBRARY_H
#define TDICT_SERVICES_COMM_NCCL_LIBRARY_H

#include "services/comm/nccl/nccl_api.h"
#include "tdict/status.h"

/* Opens the library `path` with dlopen() and fills in *out. If `path` is NULL, opens "libnccl.so.2". Returns
 * TDICT_ENOTSUP if the library cannot be opened, lacks a function, or is older than TDICT_NCCL_OLDEST. The message
 * gives the reason. Returns TDICT_EDEVICE if the library does not report its version. */
tdict_status tdict_nccl_open(const char *path, tdict_nccl_api *out, tdict_error *err);
/* Converts a result of NCCL: returns TDICT_OK for TDICT_NCCL_SUCCESS and TDICT_NCCL_IN_PROGRESS, TDICT_ELOST for
 * TDICT_NCCL_REMOTE_ERROR, and TDICT_EDEVICE for all other results. The error names `where`, such as a device, `call`
 * and the result, and has NCCL's texts. The native code of the error is the result. `comm` may be NULL. */
tdict_status tdict_nccl_check(const tdict_nccl_api *api, tdict_nccl_comm comm, tdict_nccl_result result,
                              const char *where, const char *call, tdict_error *err);

#endif
