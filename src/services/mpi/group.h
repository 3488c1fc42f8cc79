/* Groups of an MPI table. An operation of a group is only collected. The end of the group starts all sends and
 * receives, waits for them, and then makes the broadcasts one after another: MPI cannot take back a started broadcast,
 * which could write to the program's memory after an error. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_GROUP_H
#define TDICT_SERVICES_MPI_GROUP_H

#include "services/mpi/state.h"

/* Adds an operation to the group. Copies `work`. Returns TDICT_ENOMEM if there is no memory for the list. */
tdict_status tdict_mpi_group_add(tdict_mpi *mpi, tdict_mpi_work work, tdict_error *err);
/* Functions of tdict/comm_table.h, with their comments there. `self` is a tdict_mpi. */
tdict_status tdict_mpi_group_begin(void *self, tdict_error *err);
tdict_status tdict_mpi_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err);

#endif
