/* Helpers of cases that mpirun starts as several processes, see run_sizes. All processes run the same case. A process
 * that fails an assertion exits without MPI_Finalize(), and mpirun then kills the others. */
#ifndef TDICT_TESTS_SERVICES_MPI_JOB_H
#define TDICT_TESTS_SERVICES_MPI_JOB_H

#include <mpi.h>

#include "support/random.h"
#include "support/test.h"

#include "tdict/comm_mpi.h"

enum { LONG_NS = 1000000000 }; /* a timeout in nanoseconds; the MPI table ignores it */

/* Initializes MPI with this thread level, and makes a table whose messages have at most `max_message_bytes` bytes; 0
 * means the default. */
tdict_comm_table start_job(int level, size_t max_message_bytes);
/* Makes another table. All processes must call this together. */
tdict_comm_table make_table(size_t max_message_bytes);
void drop_table(tdict_comm_table *table);
/* Destroys the table and finalizes MPI. */
void end_job(tdict_comm_table *table);
#define scoped_job TD_SCOPED(end_job, tdict_comm_table) /* for tables of start_job() */

/* Returns bytes from malloc(), with contents computed from the seed and the rank. Any rank can make them. */
unsigned char *make_bytes(size_t count, uint64_t seed, int rank);
void check_bytes(const void *found, size_t count, uint64_t seed, int rank);

/* Makes MPI call number `n`, counted from 0 after this call, fail without calling MPI. Only functions that move bytes
 * or reduce are counted. */
void fail_mpi_call(int n);
/* Lets all calls succeed again. Returns true if one has failed. */
bool stop_failing(void);

#endif
