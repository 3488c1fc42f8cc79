/* The operations that MPI reduces with. Keeps no state. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_OPS_H
#define TDICT_SERVICES_MPI_OPS_H

#include <mpi.h>

#include "tdict/comm_table.h"

enum { TDICT_MPI_NUM_DTYPES = 10, TDICT_MPI_NUM_OPS = 3 };
/* MPI operations of all dtypes that MPI reduces: integers, f32 and f64. A row has the sum, the minimum and the maximum.
 * The library makes these operations itself. Some versions of MPI have wrong ones: Open MPI 4.1 with AVX has sums of
 * 8 and 16 bits that do not wrap around, and MPICH 4.0 compares unsigned numbers as signed numbers. */
typedef struct tdict_mpi_ops {
  MPI_Op op[TDICT_MPI_NUM_DTYPES][TDICT_MPI_NUM_OPS];
} tdict_mpi_ops;

/* Makes the operations. If this fails, `ops` holds no operation. Returns MPI_SUCCESS or an error of MPI. */
int tdict_mpi_ops_make(tdict_mpi_ops *ops);
/* Frees the operations. The caller must have called tdict_mpi_ops_make() successfully. */
void tdict_mpi_ops_free(tdict_mpi_ops *ops);
/* Writes the datatype and the operation for elements of `dtype`. For TDICT_REDUCE_MEAN, the operation is the sum.
 * Returns false if the dtype is not in the table or `op` is unknown. `ops` may be NULL; then writes no operation. */
bool tdict_mpi_ops_find(const tdict_mpi_ops *ops, tdict_dtype dtype, tdict_reduce_op op, MPI_Datatype *type,
                        MPI_Op *out);

#endif
