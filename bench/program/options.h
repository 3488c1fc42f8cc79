/* Command line options that several subcommands of tdict-bench share. Thread rule: one thread. */
#ifndef TDICT_BENCH_OPTIONS_H
#define TDICT_BENCH_OPTIONS_H

#include <argp.h>

#include "bench.h"
#include "check.h"
#include "tdict/sim.h"

/* Strings are borrowed from the command line. */
typedef struct common_options {
  const char *device; /* --device */
  bool full, small;   /* --full, --small; false without OPTIONS_SIZE */
  const char *json;   /* --json FILE; NULL: not given */
  int64_t repeats;    /* --repeat */
} common_options;
enum { OPTIONS_SIZE = 1, OPTIONS_RECORD = 2, OPTIONS_NO_DEVICE = 4 };

/* Parses the command line. `common` holds the defaults and receives the shared options. `own` parses the other
 * options into `input`. --device is accepted unless `takes` has OPTIONS_NO_DEVICE; `takes` names the other shared
 * options. Returns BENCH_OK, or BENCH_USAGE after printing an error. */
int options_parse(int argc, char **argv, int takes, common_options *common, const struct argp *own, void *input);
/* Checks the argument of --device and returns it. Ends the program with an error if it is not a device. */
const char *options_device(struct argp_state *state, const char *text);
/* Sets the device of `o`. "auto" is cuda:0, or the simulated device if there is no GPU. `sim` describes the simulated
 * device and must live as long as `o`. */
void options_place(const char *device, tdict_sim_options *sim, tdict_context_options *o);
#define OPTIONS_DEVICE_TEXT "auto (default: cuda:0, or the simulated device where there is none), cpu, sim, cuda:N"
/* Parses the options --dtype and --max-value. Returns ARGP_ERR_UNKNOWN for other keys. */
enum { OPTIONS_KEY_DTYPE = 768, OPTIONS_KEY_MOST };
#define OPTIONS_VALUES                                                                                         \
  {"dtype",                                                                                                    \
   OPTIONS_KEY_DTYPE,                                                                                          \
   "NAME",                                                                                                     \
   0,                                                                                                          \
   "dtype of the leaves: float32 (default), int16, int32, int64, uint16, uint32, uint64 or bool",              \
   0},                                                                                                         \
  {                                                                                                            \
    "max-value", OPTIONS_KEY_MOST, "N", 0, "integers are random numbers from 0 to N (default: random bits)", 0 \
  }
error_t options_values(int key, char *arg, struct argp_state *state, check_values *out);
/* Checks that leaves of this many bytes hold whole elements, and that the dtype can hold max-value. Call at the end of
 * the command line. Ends the program with an error otherwise. */
void options_check_values(struct argp_state *state, const check_values *values, int64_t leaf_bytes);
/* Returns true if the option narrow of transfers can have an effect on the elements. */
bool options_can_narrow(const check_values *values);
/* Parses an integer from low to high. Ends the program with an error that names the option otherwise. */
void options_number(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high,
                    int64_t *out);

#endif
