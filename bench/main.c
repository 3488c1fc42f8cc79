/* tdict-bench: finds the scenario that was asked for and hands it the rest of the command line. A new scenario is one
 * file and one line in the table below. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const bench_scenario *const scenarios[] = {&bench_to_device};
enum { num_scenarios = sizeof scenarios / sizeof scenarios[0] };

static void print_help(FILE *file) {
  fprintf(file, "Usage: tdict-bench SCENARIO [OPTION...]\n"
                "Measures tdict on this machine and checks what it moved.\n\nScenarios:\n");
  for (int i = 0; i < num_scenarios; i++) fprintf(file, "  %-12s %s\n", scenarios[i]->name, scenarios[i]->summary);
  fprintf(file, "\nOptions:\n"
                "  --help       this text; after a scenario's name: the options of that scenario\n"
                "  --version    the version of the library\n"
                "\nExample:\n  tdict-bench to-device --device sim --leaves 100 --json run.json\n"
                "\nExit status: 0 done, 1 something failed, 2 wrong use, 3 verification found a difference.\n");
}

int main(int argc, char **argv) {
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
  for (int i = 0; i < num_scenarios; i++) {
    if (strcmp(argv[1], scenarios[i]->name) != 0) continue;
    char name[64];
    snprintf(name, sizeof name, "tdict-bench %s", scenarios[i]->name);
    argv[1] = name;
    return scenarios[i]->run(argc - 1, argv + 1);
  }
  bench_complain("there is no scenario '%s'; 'tdict-bench --help' lists them", argv[1]);
  return BENCH_USAGE;
}
