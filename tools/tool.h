/* Declares what all subcommands of the program tdict share: exit statuses, errors, and options such as --flat. The
 * program has one main thread; other threads only print progress. */
#ifndef TDICT_TOOLS_TOOL_H
#define TDICT_TOOLS_TOOL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "tdict/io.h"
#include "tdict/tdict.h"

/* Exit statuses. The exceptions are in the help of `tdict diff`. */
enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

typedef struct tool_command {
  const char *name, *summary;
  /* Runs the command with its own arguments, and returns an exit status. argv[0] is "tdict NAME". */
  int (*run)(int argc, char **argv);
  int failed; /* exit status of a failure */
} tool_command;

extern const tool_command tool_inspect, tool_convert, tool_verify, tool_diff, tool_cat, tool_bench_load;

/* Prints `tdict: PATH: message`. PATH is err->path if this names a file, else `file`. If err->path names an entry, the
 * entry follows the file. `file` may be NULL. Returns TOOL_FAILED. */
int tool_fail(const char *file, const tdict_error *err);
/* Prints `tdict: out of memory`. Returns TOOL_FAILED. */
int tool_fail_memory(void);

/* Opens the files at `path`. Prints errors, and returns NULL on failure. From now on, if the elements of a file cannot
 * be read, the program prints an error with `path` and ends with the command's exit status of a failure. `path` must
 * stay valid until the program ends. */
tdict_tree *tool_open(const char *path, const tdict_open_options *options);

/* The arguments of a command and the options for opening files. The struct of a command's options begins with it. */
typedef struct tool_input {
  tdict_open_options open;
  const char *names[2];     /* names of the arguments, for messages; NULL after the last name */
  const char *arguments[2]; /* the arguments; as many as `names` */
  bool takes_paths;         /* true: one argument or more, which are in `paths` */
  char **paths;             /* borrowed from the command line */
  int num_paths;
} tool_input;
/* Parses the arguments and the options --flat and --follow-links. The input is a tool_input. */
extern const struct argp_child tool_input_child[];
/* Calls `one` for each of input->paths, with the path as the only argument of the input. Returns TOOL_OK, or
 * TOOL_FAILED if a call has failed. */
int tool_each_path(tool_input *input, int (*one)(void *user, bool is_first), void *user);
/* Handles ARGP_KEY_INIT of a command that has tool_input_child as its children. A command without other options uses
 * this function as its parser. */
error_t tool_parse_nothing(int key, char *arg, struct argp_state *state);

/* Parses a number of bytes: digits, and K, M or G for KiB, MiB or GiB. Prints a usage error and exits if the text is
 * something else. */
uint64_t tool_parse_bytes(struct argp_state *state, const char *option, const char *text);
/* Parses a number from `low` to `high`, as tool_parse_bytes(). */
int64_t tool_parse_number(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high);

#endif
