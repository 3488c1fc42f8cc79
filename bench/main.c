/* tdict-bench: finds the scenario that was asked for and hands it the rest of the command line. A new scenario is one
 * file and one name in the table below. */
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "rows.h"

const bench_scenario *const bench_scenarios[BENCH_SCENARIOS] = {
    &bench_to_device,    &bench_tensordict, &bench_synergies, &bench_batches, &bench_d2h,
    &bench_non_blocking, &bench_pin,        &bench_latency,   &bench_fresh,   &bench_cpus,
    &bench_overlap,      &bench_bandwidth,  &bench_threads,   &bench_alloc,   &bench_container};

/* Words that are no scenarios. */
static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} others[] = {{"loader", "batches a second from a loader", loader_main},
              {"doctor", "what this machine has, and which ways transfers will take", doctor_main},
              {"advise", "which mode and num_threads suit a tree, and why", advise_main},
              {"tune", "measures this machine and writes a tuning file for contexts", tune_main},
              {"pinning", "pinning one block, and copies of another thread meanwhile", pinning_main},
              {"stress", "random trees moved in random ways, verified bit by bit", stress_main},
              {"worker", "answers bench/compare over standard input and output", worker_main}};
enum { num_others = sizeof others / sizeof others[0] };

static void print_help(FILE *file) {
  fprintf(file, "Usage: tdict-bench SCENARIO [OPTION...]\n"
                "Measures tdict on this machine and checks what it moved.\n\nScenarios:\n");
  for (int i = 0; i < BENCH_SCENARIOS; i++)
    fprintf(file, "  %-12s %s\n", bench_scenarios[i]->name, bench_scenarios[i]->summary);
  fprintf(file, "\nOther words:\n");
  for (int i = 0; i < num_others; i++) fprintf(file, "  %-12s %s\n", others[i].name, others[i].summary);
  fprintf(file, "\nOptions:\n"
                "  --help       this text; after a scenario's name: the options of that scenario\n"
                "  --version    the version of the library\n"
                "\nExample:\n  tdict-bench to-device --device sim --leaves 100 --json run.json\n"
                "\nExit status: 0 done, 1 something failed, 2 wrong use, 3 verification found a difference.\n");
}

int main(int argc, char **argv) {
  if (!output_watch("tdict-bench")) return BENCH_FAILED;
  if (argc < 2) {
    print_help(stderr);
    return BENCH_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-?") == 0) {
    print_help(stdout);
    return BENCH_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    int v = tdict_version();
    printf("tdict-bench %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
    return BENCH_OK;
  }
  char name[64];
  snprintf(name, sizeof name, "tdict-bench %s", argv[1]);
  for (int i = 0; i < BENCH_SCENARIOS; i++) {
    const bench_scenario *scenario = bench_scenarios[i];
    if (strcmp(argv[1], scenario->name) != 0) continue;
    argv[1] = name;
    return scenario->run ? scenario->run(argc - 1, argv + 1) : rows_main(scenario, argc - 1, argv + 1);
  }
  for (int i = 0; i < num_others; i++) {
    if (strcmp(argv[1], others[i].name) != 0) continue;
    argv[1] = name;
    return others[i].run(argc - 1, argv + 1);
  }
  bench_print_error("there is no scenario '%s'; 'tdict-bench --help' lists them", argv[1]);
  return BENCH_USAGE;
}
