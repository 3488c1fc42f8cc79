/* Reductions of an MPI table: functions of tdict/comm_table.h, with their comments there. `self` is a tdict_mpi. Thread
 * rule: as in tdict/comm_table.h. */
#ifndef TDICT_MPI_REDUCE_H
#define TDICT_MPI_REDUCE_H

#include "mpi/state.h"

/* Makes mpi->min and mpi->max. These operations treat NaN and -0 the same on all ranks; MPI_MIN and MPI_MAX need not. If
 * the function fails, it makes neither. Returns the errors of tdict_mpi_status(). */
tdict_status tdict_mpi_make_ops(tdict_mpi *mpi, tdict_error *err);
/* Frees mpi->min and mpi->max. Does nothing for MPI_OP_NULL. */
void tdict_mpi_free_ops(tdict_mpi *mpi);

bool tdict_mpi_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op);
tdict_status tdict_mpi_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                  void *stream, int64_t timeout_ns, tdict_error *err);

#endif
