/* tdict-bench-openmpi and tdict-bench-mpich: measure how fast the processes of an MPI job send trees in host memory.
 * Both programs are built from this file, but linked with different MPI libraries. Thread rule: main thread only. */
#include <mpi.h>

#include "comm.h"
#include "output.h"
#include "tdict/comm_mpi.h"

/* Makes the communicator. Prints an error and returns false on failure. */
static bool open_rank(comm_rank *rank) {
  tdict_error err;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu());
  rank->table.struct_size = sizeof rank->table;
  tdict_status status = tdict_context_create(&o, &rank->context, &err);
  if (status == TDICT_OK) status = tdict_mpi_create_table(NULL, NULL, &rank->table, &err);
  return comm_connect(rank, status, &err);
}

/* Measures on all ranks. Returns the worst exit code. */
static int measure(comm_rank *rank, bench_sink *sink, int argc, char **argv) {
  if (rank->table.rank == 0) rank->rows = json_array();
  rank->sink = sink;
  const int answer = comm_run(rank);
  return comm_end(rank, answer, argc, argv);
}

int main(int argc, char **argv) {
  static const char doc[] = "Measures trees that the processes of an MPI job send. Compares this with plain calls for "
                            "one buffer and for each leaf. Verifies every bit of each result."
                            "\vExample:\n  mpirun -np 2 tdict-bench-openmpi --megabytes 100\n\n" EXIT_TEXT;
  comm_settings settings;
  bench_sink sink = {.fd = -1};
  comm_rank rank = {.settings = &settings};
  int level, number = 0;
  if (!output_watch(argv[0])) return BENCH_FAILED;
  comm_settings_default(&settings);
  const bench_option options[] = {COMM_OPTIONS(&settings), {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) return BENCH_FAILED;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  /* Only the first rank prints and writes the record. */
  const bool is_ready = number != 0 || bench_sink_open(&sink, &settings.common.outputs);
  int answer = is_ready && open_rank(&rank) ? measure(&rank, &sink, argc, argv) : BENCH_FAILED;
  /* Abort, because other ranks may be waiting for this rank in MPI calls, which have no time limit. */
  if (!rank.comm || rank.is_broken) MPI_Abort(MPI_COMM_WORLD, answer);
  tdict_comm_destroy(rank.comm);
  MPI_Finalize();
  tdict_context_destroy(rank.context);
  return answer;
}
