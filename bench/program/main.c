/* The main function of tdict-bench. Runs the scenario or tool that the first argument names, with the other arguments.
 * To add a scenario, add it to the table below. Owns no data. Thread rule: one thread. */
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "rows.h"

const bench_scenario *const bench_scenarios[BENCH_SCENARIOS] = {
    &bench_to_device, &bench_tensordict, &bench_synergies, &bench_batches, &bench_d2h,     &bench_non_blocking,
    &bench_pin,       &bench_latency,    &bench_fresh,     &bench_cpus,    &bench_overlap, &bench_bandwidth,
    &bench_threads,   &bench_alloc,      &bench_container, &bench_dlpack,  &bench_load,
};

#define TOOL_ENTRY(name, summary) {#name, summary, name##_main},
static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} tools[] = {BENCH_TOOLS(TOOL_ENTRY)};
enum { num_tools = sizeof tools / sizeof tools[0] };

static void print_help(FILE *file) {
  fprintf(file, "Usage: tdict-bench SCENARIO [OPTION...]\n"
                "Measures tdict on this machine and verifies the results.\n\nScenarios:\n");
  for (int i = 0; i < BENCH_SCENARIOS; i++)
    fprintf(file, "  %-12s %s\n", bench_scenarios[i]->name, bench_scenarios[i]->summary);
  fprintf(file, "\nTools:\n");
  for (int i = 0; i < num_tools; i++)
    if (tools[i].summary) fprintf(file, "  %-12s %s\n", tools[i].name, tools[i].summary);
  fprintf(file, "\nOptions:\n"
                "  -h, --help   prints this text; after a scenario or tool, prints its options\n"
                "  --version    prints the version of the library\n"
                "\nExamples:\n  tdict-bench to-device --batch \"obs:u8[64,3,84,84] reward:f32[64]\"\n"
                "  tdict-bench batches --device sim --csv\n"
                "\nExit status: 0 success, 1 failure, 2 wrong usage, 3 verification found a difference.\n");
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
  for (int i = 0; i < num_tools; i++) {
    if (strcmp(argv[1], tools[i].name) != 0) continue;
    argv[1] = name;
    return tools[i].run(argc - 1, argv + 1);
  }
  bench_print_error("there is no scenario '%s'; 'tdict-bench --help' lists them", argv[1]);
  return BENCH_USAGE;
}
