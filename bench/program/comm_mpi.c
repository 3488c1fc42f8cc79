/* tdict-bench-openmpi and tdict-bench-mpich: measure trees in host memory that the processes of an MPI job send. The
 * programs have the same source, and each is linked with its MPI. Thread rule: main thread only. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "output.h"
#include "tdict/comm_mpi.h"

/* Makes the communicator. Errors are printed. */
static bool open_rank(comm_rank *rank) {
  tdict_error err;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu());
  rank->table.struct_size = sizeof rank->table;
  if (tdict_context_create(&o, &rank->context, &err) == TDICT_OK &&
      tdict_mpi_create_table(NULL, NULL, &rank->table, &err) == TDICT_OK) {
    if (tdict_comm_create(rank->context, &rank->table, NULL, &rank->comm, &err) == TDICT_OK) return true;
    rank->table.abort(rank->table.self);
    rank->table.destroy(rank->table.self);
  }
  bench_print_status("no communicator", &err);
  return false;
}

/* Measures on all ranks. Returns the worst exit code. */
static int measure(comm_rank *rank, const bench_sink *sink, int argc, char **argv) {
  if (rank->table.rank == 0) rank->rows = json_array();
  int answer = comm_run(rank);
  if (rank->rows && answer != BENCH_OK) json_decref(rank->rows);
  if (rank->rows && answer == BENCH_OK && !comm_write_record(sink, rank, argc, argv)) answer = BENCH_FAILED;
  return answer;
}

int main(int argc, char **argv) {
  static const char doc[] = "Measures trees that the processes of an MPI job send, beside plain calls for one buffer "
                            "and for each leaf. Verifies every bit of each result."
                            "\vExample:\n  mpirun -np 2 tdict-bench-openmpi --megabytes 100\n\n" EXIT_TEXT;
  comm_settings settings;
  bench_sink sink = {NULL, -1};
  comm_rank rank = {.settings = &settings};
  int level, number = 0;
  if (!output_watch(argv[0])) return BENCH_FAILED;
  comm_settings_default(&settings);
  const bench_option options[] = {COMM_OPTIONS(&settings), {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) return BENCH_FAILED;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  /* Only the first rank prints and writes the record. */
  const bool is_ready = number != 0 || bench_sink_open(&sink, settings.common.json);
  int answer = is_ready && open_rank(&rank) ? measure(&rank, &sink, argc, argv) : BENCH_FAILED;
  /* The other ranks may wait for this rank, and MPI's calls have no time limit. */
  if (!rank.comm || rank.is_broken) MPI_Abort(MPI_COMM_WORLD, answer);
  tdict_comm_destroy(rank.comm);
  MPI_Finalize();
  tdict_context_destroy(rank.context);
  return answer;
}
