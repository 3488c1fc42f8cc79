/* Declares tables of command-line options, and their parser. Each subcommand has a table. Thread rule: one thread. */
#ifndef TDICT_BENCH_OPTIONS_H
#define TDICT_BENCH_OPTIONS_H

#include <argp.h>

#include "bench.h"
#include "check.h"
#include "tdict/sim.h"

typedef enum option_kind {
  OPTION_TEXT,
  OPTION_FLAG,
  OPTION_NUMBER,
  OPTION_COUNT,
  OPTION_PARSED,
  OPTION_OUTPUT /* a file, which may be the next argument; "-" without a file */
} option_kind;
/* An option of a table. --help lists the options of a group together, in alphabetical order. */
typedef struct bench_option {
  const char *name;
  int letter; /* 0: none */
  const char *arg, *doc;
  option_kind kind;
  void *to;          /* the variable to write; holds the default, which --help shows if `kind` is OPTION_COUNT */
  int64_t low, high; /* range of a number */
  void (*parse)(struct argp_state *state, const char *text, void *to); /* OPTION_PARSED: reads the argument */
  int group, flags;                                                    /* flags of argp, for example OPTION_HIDDEN */
} bench_option;
#define TEXT_OPTION(name, letter, arg, to, doc) \
  { name, letter, arg, doc, OPTION_TEXT, to, 0, 0, NULL, 0, 0 }
#define FLAG_OPTION(name, to, doc) \
  { name, 0, NULL, doc, OPTION_FLAG, to, 0, 0, NULL, 0, 0 }
#define NUMBER_OPTION(name, letter, arg, to, low, high, doc) \
  { name, letter, arg, doc, OPTION_NUMBER, to, low, high, NULL, 0, 0 }
#define PARSED_OPTION(name, letter, arg, to, parse, doc) \
  { name, letter, arg, doc, OPTION_PARSED, to, 0, 0, parse, 0, 0 }

/* The values of options that several subcommands have. Strings are borrowed from the command line. */
typedef struct common_options {
  const char *device; /* --device */
  bool full, small;   /* --full, --small */
  bench_outputs outputs;
  int64_t repeats; /* --repeat */
} common_options;
#define DEVICE_OPTION(to)                                    \
  PARSED_OPTION("device", 'd', "DEVICE", to, options_device, \
                "auto (default: cuda:0, or the simulated device where there is none), cpu, sim, cuda:N")
#define OUTPUT_OPTION(name, letter, to, doc) \
  { name, letter, "FILE", doc, OPTION_OUTPUT, to, 0, 0, NULL, 0, OPTION_ARG_OPTIONAL }
#define JSON_OPTION(to, what) \
  OUTPUT_OPTION("json", 'j', to, "write " what " as JSON to FILE, or to standard output, which then has no text")
#define OUTPUT_OPTIONS(o, what)                                                                    \
  JSON_OPTION(&(o)->json, what),                                                                   \
      OUTPUT_OPTION("csv", 0, &(o)->csv, "write the table as CSV to FILE, or to standard output"), \
      OUTPUT_OPTION("markdown", 0, &(o)->markdown, "write the table as Markdown to FILE, or to standard output")
#define SIZE_OPTIONS(o)                                                                       \
  FLAG_OPTION("full", &(o)->full, "full-size rows on every device (default: on a GPU only)"), \
      FLAG_OPTION("small", &(o)->small, "rows of at most 4 MB on every device")
#define RECORD_OPTIONS(o)                                                                          \
  {"repeat", 'r', "N", "measured repetitions", OPTION_COUNT, &(o)->repeats, 1, 10000, NULL, 0, 0}, \
      OUTPUT_OPTIONS(&(o)->outputs, "every sample")
/* The options --dtype and --max-value, which fill a check_values. */
#define VALUES_OPTIONS(values)                                                                                  \
  PARSED_OPTION("dtype", 0, "NAME", &(values)->dtype, options_dtype,                                            \
                "dtype of the leaves: float32 (default), int16, int32, int64, uint16, uint32, uint64 or bool"), \
      NUMBER_OPTION("max-value", 0, "N", &(values)->most, 1, INT64_MAX - 1,                                     \
                    "integers are random numbers from 0 to N (default: random bits)")
#define EXIT_TEXT "Exit status: 0 success, 1 failure, 2 wrong usage, 3 verification found a difference."
#define SHORT_EXIT_TEXT "Exit status: 0 success, 1 failure, 2 wrong usage."

/* Parses the command line. `options` ends with an empty entry. After all options, `check`, if not NULL, is called with
 * `input`, and may reject combinations of options with argp_error(). `doc` is the help text for argp. Returns BENCH_OK.
 * After printing an error, ends the program with BENCH_USAGE or returns it. */
int options_parse(int argc, char **argv, const char *doc, const bench_option *options,
                  void (*check)(struct argp_state *state, void *input), void *input);

/* Parse the argument of an option, or end the program with an error if it is wrong. */
void options_device(struct argp_state *state, const char *text, void *to);
void options_dtype(struct argp_state *state, const char *text, void *to);
/* Returns the name of a mode, or NULL if there is no such mode. */
const char *options_mode_name(int32_t mode);
/* Sets the device of `o`. With "auto", the context takes cuda:0, or the simulated device if there is no GPU. `sim`
 * describes the simulated device, and is borrowed by `o`. */
void options_place(const char *device, tdict_sim_options *sim, tdict_context_options *o);
/* Ends the program with an error if leaf_bytes is not a multiple of the element size, or if the dtype cannot hold
 * --max-value. */
void options_check_values(struct argp_state *state, const check_values *values, int64_t leaf_bytes);
/* Returns whether the transfer option narrow can affect elements of values->dtype. */
bool options_can_narrow(const check_values *values);

#endif
