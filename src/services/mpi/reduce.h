/* Reductions of an MPI table: functions of tdict/comm_table.h, with their comments there. `self` is a tdict_mpi. Thread
 * rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_REDUCE_H
#define TDICT_SERVICES_MPI_REDUCE_H

#include "tdict/comm_table.h"

bool tdict_mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op);
tdict_status tdict_mpi_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                  tdict_stream stream, int64_t timeout_ns, tdict_error *err);

#endif
