/* The part of client.c that uses tdict/comm_mpi.h, in builds that have MPI. Does not initialize MPI. */
#if WITH_MPI
#include "tdict/comm_mpi.h"

static void use_mpi(void) {
  tdict_mpi_options options = tdict_mpi_options_default();
  tdict_comm_table table = tdict_comm_table_default();
  tdict_error error;
  const tdict_mpi_comm *world = NULL;
  TRUE(options.struct_size == sizeof options && options.max_message_bytes > 64);
  TRUE(tdict_mpi_create_table(world, &options, &table, &error) == TDICT_EINVAL && !table.self);
}
#else
static void use_mpi(void) {}
#endif
