/* The operations of an MPI table that move bytes: the functions of tdict/comm_table.h, with their comments there.
 * `self` is a tdict_mpi. MPI cannot give up, so `timeout_ns` has no effect. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_BYTES_H
#define TDICT_SERVICES_MPI_BYTES_H

#include "tdict/comm_table.h"

tdict_status tdict_mpi_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                tdict_error *err);
tdict_status tdict_mpi_send_host(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                 tdict_error *err);
tdict_status tdict_mpi_receive_host(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                    tdict_error *err);
tdict_status tdict_mpi_broadcast(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                                 int64_t timeout_ns, tdict_error *err);
tdict_status tdict_mpi_all_gather(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                                  int64_t timeout_ns, tdict_error *err);
tdict_status tdict_mpi_send(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                            int64_t timeout_ns, tdict_error *err);
tdict_status tdict_mpi_receive(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                               int64_t timeout_ns, tdict_error *err);

#endif
