/* Implements the command line options, see options.h. Owns no data. Thread rule: one thread. */
#include "options.h"
#include "tdict/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void options_device(struct argp_state *state, const char *text, void *to) {
  tdict_device device;
  tdict_error err;
  if (tdict_device_parse(text, &device, &err) != TDICT_OK) argp_error(state, "--device: %s", err.message);
  *(const char **)to = text;
}

void options_dtype(struct argp_state *state, const char *text, void *to) {
  static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I16, TDICT_I32, TDICT_I64,
                                       TDICT_U16, TDICT_U32, TDICT_U64, TDICT_BOOL};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    if (strcmp(text, tdict_dtype_name(dtypes[i])) != 0) continue;
    *(tdict_dtype *)to = dtypes[i];
    return;
  }
  argp_error(state, "--dtype: '%s' is none of the dtypes in --help", text);
}

const char *options_mode_name(int32_t mode) {
  static const char *const names[] = {"auto", "blocking", "non_blocking", "non_blocking_pin"};
  return mode >= 0 && mode < (int32_t)(sizeof names / sizeof *names) ? names[mode] : NULL;
}

void options_place(const char *device, tdict_sim_options *sim, tdict_context_options *o) {
  if (tdict_device_parse(device, &o->device, NULL) != TDICT_OK) o->device = (tdict_device){TDICT_DEVICE_AUTO, 0};
  if (o->device.type == TDICT_DEVICE_AUTO || o->device.type == TDICT_DEVICE_SIM) o->sim = sim;
}

bool options_can_narrow(const check_values *values) { return values->dtype != TDICT_F32; }

void options_check_values(struct argp_state *state, const check_values *values, int64_t leaf_bytes) {
  const int64_t item = (int64_t)tdict_dtype_bytes(values->dtype);
  const char *name = tdict_dtype_name(values->dtype);
  const bool is_signed = values->dtype == TDICT_I16 || values->dtype == TDICT_I32;
  if (leaf_bytes % item != 0)
    argp_error(state, "--leaf-bytes: %" PRId64 " is not a multiple of %" PRId64 ", the size of an element", leaf_bytes,
               item);
  if (values->most && (values->dtype == TDICT_F32 || values->dtype == TDICT_BOOL))
    argp_error(state, "--max-value: the dtype is %s, wanted an integer dtype", name);
  if (values->most && item < 8 && values->most >> (8 * item - is_signed) != 0)
    argp_error(state, "--max-value: %" PRId64 " does not fit %s", values->most, name);
}

enum { FIRST_KEY = 256, MOST_OPTIONS = 24 }; /* the first key of options without a letter; capacity of a table */
typedef struct parse_input {
  const bench_option *options;
  void (*check)(struct argp_state *state, void *input);
  void *input;
  const char **output; /* the next argument may be the file of this option; NULL: none */
} parse_input;

static int key_of(const bench_option *options, int i) { return options[i].letter ? options[i].letter : FIRST_KEY + i; }

static void read_option(struct argp_state *state, const bench_option *o, const char *text) {
  switch (o->kind) {
  case OPTION_TEXT:
    *(const char **)o->to = text;
    return;
  case OPTION_OUTPUT:
    *(const char **)o->to = text ? text : "-";
    return;
  case OPTION_FLAG:
    *(bool *)o->to = true;
    return;
  case OPTION_PARSED:
    o->parse(state, text, o->to);
    return;
  default:
    if (!bench_parse_number(text, o->low, o->high, o->to))
      argp_error(state, "--%s: '%s' is not a number from %" PRId64 " to %" PRId64, o->name, text, o->low, o->high);
  }
}

static error_t parse_key(int key, char *arg, struct argp_state *state) {
  parse_input *p = state->input;
  if (key == ARGP_KEY_ARG && !p->output) argp_error(state, "unexpected argument '%s'", arg);
  if (key == ARGP_KEY_ARG) {
    if (p->output) *p->output = arg;
    p->output = NULL;
    return 0;
  }
  if (key == 'h') argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
  if (key == ARGP_KEY_END) return p->check ? p->check(state, p->input), 0 : 0;
  for (int i = 0; p->options[i].name; i++)
    if (key == key_of(p->options, i)) {
      read_option(state, &p->options[i], arg);
      p->output = p->options[i].kind == OPTION_OUTPUT && !arg ? p->options[i].to : NULL;
      return 0;
    }
  return ARGP_ERR_UNKNOWN;
}

int options_parse(int argc, char **argv, const char *doc, const bench_option *options,
                  void (*check)(struct argp_state *state, void *input), void *input) {
  struct argp_option shown[MOST_OPTIONS + 2] = {{0}};
  char count_doc[64];
  parse_input p = {options, check, input, NULL};
  int i = 0;
  for (; options[i].name && i < MOST_OPTIONS; i++) {
    const bench_option *o = &options[i];
    shown[i] = (struct argp_option){o->name, key_of(options, i), o->arg, o->flags, o->doc, o->group};
    if (o->kind != OPTION_COUNT) continue;
    snprintf(count_doc, sizeof count_doc, "%s (default %" PRId64 ")", o->doc, *(const int64_t *)o->to);
    shown[i].doc = count_doc;
  }
  shown[i] = (struct argp_option){.key = 'h', .doc = "the same as --help", .group = -1};
  const struct argp argp = {shown, parse_key, NULL, doc, NULL, NULL, NULL};
  argp_err_exit_status = BENCH_USAGE;
  return argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &p) == 0 ? BENCH_OK : BENCH_USAGE;
}
