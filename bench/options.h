/* Options that several words of tdict-bench take, said once. Thread rule: one thread. */
#ifndef TDICT_BENCH_OPTIONS_H
#define TDICT_BENCH_OPTIONS_H

#include <argp.h>

#include "bench.h"

/* Texts are those of the command line. */
typedef struct common_options {
  const char *device; /* --device */
  bool full, small;   /* --full, --small; never where OPTIONS_SIZE is not taken */
  const char *json;   /* --json FILE, NULL: none */
  int64_t repeats;    /* --repeat */
} common_options;
enum { OPTIONS_SIZE = 1, OPTIONS_RECORD = 2 };

/* Reads the command line into `common`, whose values are the defaults, and by `own` into `input`. --device is always
 * taken, the others as `takes` says. BENCH_OK, or BENCH_USAGE after a complaint. */
int options_parse(int argc, char **argv, int takes, common_options *common, const struct argp *own, void *input);
/* The text of --device, or the end of the program with a sentence on what was wanted. */
const char *options_device(struct argp_state *state, const char *text);
/* What a device's name means, in every word of the program: "auto" is cuda:0, or the simulated device where there is
 * none. Puts it into `o`; `sim` says how a simulated device is made and lives as long as `o`. */
void options_place(const char *device, tdict_sim_options *sim, tdict_context_options *o);
#define OPTIONS_DEVICE_TEXT "auto (default: cuda:0, or the simulated device where there is none), cpu, sim, cuda:N"
/* A number from low to high, or the end of the program with a sentence on which option wanted what. */
void options_number(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high,
                    int64_t *out);

#endif
