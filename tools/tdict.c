/* The main function of the program tdict. Finds the subcommand that the command line names, and passes the other
 * arguments to the subcommand. To add a subcommand, write one file and add one line to the table below. Thread rule:
 * one thread. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leaves.h"

static const tool_command *const commands[] = {&tool_inspect, &tool_convert, &tool_verify,
                                               &tool_diff,    &tool_cat,     &tool_bench_load};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static const tool_command *running; /* for exit statuses; NULL before a command runs */
static const char *mapped_path;     /* the last file that tool_open() has opened */

static int failed_status(void) { return running ? running->failed : TOOL_FAILED; }

static void write_text(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(failed_status());
}

/* Reading a mapping raises SIGBUS if the file was shortened or the disk failed. */
static void end_after_sigbus(int number) {
  (void)number;
  write_text("tdict: ");
  if (mapped_path) write_text(mapped_path);
  write_text(": elements cannot be read: a file was shortened, or the disk returned an error\n");
  _exit(failed_status());
}

/* Output that cannot be written must not look like success. argp calls exit() after --help, so this is an exit
 * handler. */
static void check_output(void) {
  const bool was_bad = ferror(stdout) != 0; /* an earlier write failed; its errno is lost */
  errno = 0;
  if (fclose(stdout) == 0 && !was_bad) return;
  fprintf(stderr, "tdict: standard output: %s\n", errno ? strerror(errno) : "a write failed");
  _exit(failed_status());
}

/* Prints a text and its end. Names in files can hold control characters. */
static void print_part(const char *text, const char *end) {
  char *printable = printable_text(text, strlen(text));
  fprintf(stderr, "%s%s", printable ? printable : "?", end);
  free(printable);
}

/* What a message of the library calls a field of a struct, and what the user can give. The words without quotes follow
 * the name of a function. */
static const struct {
  const char *field, *option;
  bool is_first;
} fields[] = {{"`flat`", "--flat", false},
              {"`follows_links`", "--follow-links", false},
              {"`add_prefix`", "--add-prefix of tdict convert", false},
              {"strip_prefix ", "--strip-prefix ", true},
              {"add_prefix ", "--add-prefix ", true},
              {"max_shard_bytes ", "--shard-bytes ", true},
              {"without_structure ", "--plain ", true}};
enum { NUM_FIELDS = sizeof fields / sizeof fields[0] };

/* Prints a message of the library, with the program's options in place of the fields of structs. */
static void print_message(const char *message) {
  char text[4 * sizeof((tdict_error *)0)->message], *to = text;
  for (const char *at = message; *at;) {
    const bool is_first = at - message >= 2 && strncmp(at - 2, ": ", 2) == 0;
    size_t i = 0;
    while (i < NUM_FIELDS &&
           ((fields[i].is_first && !is_first) || strncmp(at, fields[i].field, strlen(fields[i].field)) != 0))
      i++;
    if (i == NUM_FIELDS) {
      *to++ = *at++;
      continue;
    }
    at += strlen(fields[i].field);
    to = stpcpy(to, fields[i].option);
  }
  *to = 0;
  print_part(text, "\n");
}

int tool_fail(const char *file, const tdict_error *err) {
  const bool names_file = err->path[0] && (!file || strcmp(file, err->path) == 0 || access(err->path, F_OK) == 0);
  fprintf(stderr, "tdict: ");
  if (file && !names_file) print_part(file, ": ");
  if (err->path[0]) print_part(err->path, ": ");
  print_message(err->message);
  return TOOL_FAILED;
}

int tool_fail_memory(void) {
  fprintf(stderr, "tdict: out of memory\n");
  return TOOL_FAILED;
}

tdict_tree *tool_open(const char *path, const tdict_open_options *options) {
  tdict_tree *tree = NULL;
  tdict_error err;
  mapped_path = path;
  if (tdict_open(path, options, &tree, &err) == TDICT_OK) return tree;
  tool_fail(path, &err);
  return NULL;
}

error_t tool_parse_nothing(int key, char *arg, struct argp_state *state) {
  (void)arg;
  if (key != ARGP_KEY_INIT) return ARGP_ERR_UNKNOWN;
  state->child_inputs[0] = state->input;
  return 0;
}

static error_t parse_input(int key, char *arg, struct argp_state *state) {
  tool_input *input = state->input;
  int i = 0;
  switch (key) {
  case 'L':
    input->open.follows_links = true;
    return 0;
  case 'F':
    input->open.flat = true;
    return 0;
  case 'h':
    argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
    return 0;
  case ARGP_KEY_ARGS:
    if (!input->takes_paths) return ARGP_ERR_UNKNOWN;
    input->paths = state->argv + state->next;
    input->num_paths = state->argc - state->next;
    return 0;
  case ARGP_KEY_ARG:
    if (input->takes_paths) return ARGP_ERR_UNKNOWN; /* argp then calls with ARGP_KEY_ARGS */
    while (i < 2 && input->arguments[i]) i++;
    if (i == 2 || !input->names[i])
      argp_error(state, "unexpected argument '%s'", arg);
    else
      input->arguments[i] = arg;
    return 0;
  case ARGP_KEY_END:
    if (input->takes_paths && input->num_paths == 0) argp_error(state, "the argument %s is missing", input->names[0]);
    for (; i < 2 && input->names[i] && !input->takes_paths; i++)
      if (!input->arguments[i]) argp_error(state, "the argument %s is missing", input->names[i]);
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option input_table[] = {
    {"follow-links", 'L', NULL, 0, "open shards that are symbolic links, as in the cache of huggingface_hub", 0},
    {"flat", 'F', NULL, 0, "read each tensor as one key of the root, with the name in the file as its key", 0},
    {NULL, 'h', NULL, 0, "the same as --help", -1},
    {0}};
static const struct argp input_argp = {input_table, parse_input, NULL, NULL, NULL, NULL, NULL};
const struct argp_child tool_input_child[] = {{&input_argp, 0, NULL, 0}, {0}};

int tool_each_path(tool_input *input, int (*one)(void *user, bool is_first), void *user) {
  int status = TOOL_OK;
  for (int i = 0; i < input->num_paths; i++) {
    input->arguments[0] = input->paths[i];
    if (one(user, i == 0) != TOOL_OK) status = TOOL_FAILED;
  }
  return status;
}

/* Returns false if the text has other characters than digits and one of `units`, or if the number is too large. */
static bool read_number(const char *text, const char *units, uint64_t *out) {
  char *end = NULL;
  if (text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  uint64_t number = strtoull(text, &end, 10);
  const char *unit = end[0] ? strchr(units, end[0]) : NULL;
  if (errno || (end[0] && (!unit || end[1]))) return false;
  const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
  *out = number << shift;
  return *out >> shift == number;
}

uint64_t tool_parse_bytes(struct argp_state *state, const char *option, const char *text) {
  uint64_t number = 0;
  if (!read_number(text, "KMG", &number))
    argp_error(state, "%s: '%s' is not a number of bytes, wanted digits, and K, M or G for KiB, MiB or GiB", option,
               text);
  return number;
}

int64_t tool_parse_number(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high) {
  uint64_t number = 0;
  if (!read_number(text, "", &number) || number < (uint64_t)low || number > (uint64_t)high)
    argp_error(state, "%s: '%s' is not a number from %" PRId64 " to %" PRId64, option, text, low, high);
  return (int64_t)number;
}

static void print_help(FILE *file) {
  fprintf(file, "Usage: tdict COMMAND [OPTION...] [ARGUMENT...]\n"
                "Shows, converts and checks files of tensors.\n\nCommands:\n");
  for (int i = 0; i < NUM_COMMANDS; i++) fprintf(file, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
  fprintf(file,
          "\nOptions:\n"
          "  -h, --help   prints this text; after a command, prints the options of the command\n"
          "  --version    prints the version of the library\n"
          "\nExample:\n  tdict inspect model.safetensors\n"
          "\nExit status: 0 success, 1 failure, 2 wrong usage. Of tdict diff: 0 equal, 1 different, 2 failure.\n");
}

static int run_command(int argc, char **argv) {
  for (int i = 0; i < NUM_COMMANDS; i++) {
    if (strcmp(argv[1], commands[i]->name) != 0) continue;
    char name[64];
    snprintf(name, sizeof name, "tdict %s", argv[1]);
    argv[1] = name; /* for messages of argp */
    running = commands[i];
    return running->run(argc - 1, argv + 1);
  }
  fprintf(stderr, "tdict: unknown command '%s'; tdict --help lists the commands\n", argv[1]);
  return TOOL_USAGE;
}

int main(int argc, char **argv) {
  const struct sigaction on_bus_error = {.sa_handler = end_after_sigbus};
  argp_err_exit_status = TOOL_USAGE;
  sigaction(SIGBUS, &on_bus_error, NULL);
  signal(SIGPIPE, SIG_DFL); /* `tdict cat | head` ends quietly, also if the parent process ignores SIGPIPE */
  if (atexit(check_output) != 0) return tool_fail_memory();
  if (argc < 2) {
    print_help(stderr);
    return TOOL_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-?") == 0) {
    print_help(stdout);
    return TOOL_OK;
  }
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    const int version = tdict_version();
    printf("tdict %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return TOOL_OK;
  }
  return run_command(argc, argv);
}
