/* Groups of an MPI table. An operation of a group is only collected. The end of the group starts all operations, and
 * then waits for all. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_MPI_GROUP_H
#define TDICT_MPI_GROUP_H

#include "mpi/state.h"

/* Adds an operation to the group. Copies `work`. Returns TDICT_ENOMEM if there is no memory for the list. */
tdict_status tdict_mpi_group_add(tdict_mpi *mpi, tdict_mpi_work work, tdict_error *err);
/* Checks that a message had as many bytes as the receiver expected. MPI accepts shorter messages. */
tdict_status tdict_mpi_check_length(const MPI_Status *status, int wanted, tdict_error *err);

/* Functions of tdict/comm_table.h, with their comments there. `self` is a tdict_mpi. */
tdict_status tdict_mpi_group_begin(void *self, tdict_error *err);
tdict_status tdict_mpi_group_end(void *self, void *stream, int64_t timeout_ns, tdict_error *err);

#endif
