/* Implements the shared command line options, see options.h. Each group of options is an argp parser. A subcommand
 * combines them with its own parser. Owns no data. Thread rule: one thread. */
#include "options.h"
#include "tdict/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_FULL = 512, KEY_SMALL };

void options_number(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high,
                    int64_t *out) {
  if (!bench_parse_number(text, low, high, out))
    argp_error(state, "%s: '%s' is not a number from %" PRId64 " to %" PRId64, option, text, low, high);
}

const char *options_device(struct argp_state *state, const char *text) {
  tdict_device device;
  tdict_error err;
  if (tdict_device_parse(text, &device, &err) != TDICT_OK) argp_error(state, "--device: %s", err.message);
  return text;
}

void options_place(const char *device, tdict_sim_options *sim, tdict_context_options *o) {
  if (tdict_device_parse(device, &o->device, NULL) != TDICT_OK) o->device = (tdict_device){TDICT_DEVICE_AUTO, 0};
  if (o->device.type == TDICT_DEVICE_AUTO || o->device.type == TDICT_DEVICE_SIM) o->sim = sim;
}

static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I16, TDICT_I32, TDICT_I64,
                                     TDICT_U16, TDICT_U32, TDICT_U64, TDICT_BOOL};

error_t options_values(int key, char *arg, struct argp_state *state, check_values *out) {
  if (key == OPTIONS_KEY_MOST) {
    options_number(state, "--max-value", arg, 1, INT64_MAX - 1, &out->most);
    return 0;
  }
  if (key != OPTIONS_KEY_DTYPE) return ARGP_ERR_UNKNOWN;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    if (strcmp(arg, tdict_dtype_name(dtypes[i])) != 0) continue;
    out->dtype = dtypes[i];
    return 0;
  }
  argp_error(state, "--dtype: '%s' is none of the dtypes in --help", arg);
  return EINVAL;
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

static error_t parse_common(int key, char *arg, struct argp_state *state) {
  common_options *o = state->input;
  switch (key) {
  case 'd':
    o->device = options_device(state, arg);
    return 0;
  case 'j':
    o->json = arg;
    return 0;
  case 'r':
    options_number(state, "--repeat", arg, 1, 10000, &o->repeats);
    return 0;
  case KEY_FULL:
    o->full = true;
    return 0;
  case KEY_SMALL:
    o->small = true;
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option device_table[] = {{"device", 'd', "DEVICE", 0, OPTIONS_DEVICE_TEXT, 0}, {0}};
static const struct argp_option size_table[] = {
    {"full", KEY_FULL, NULL, 0, "full-size rows on every device (default: on a GPU only)", 0},
    {"small", KEY_SMALL, NULL, 0, "rows of at most 4 MB on every device", 0},
    {0}};
static const struct argp device_argp = {device_table, parse_common, NULL, NULL, NULL, NULL, NULL};
static const struct argp size_argp = {size_table, parse_common, NULL, NULL, NULL, NULL, NULL};

enum { MAX_PARTS = 4 };
typedef struct whole {
  void *inputs[MAX_PARTS]; /* the inputs of the child parsers, in order */
  int count;
} whole;

static error_t parse_whole(int key, char *arg, struct argp_state *state) {
  const whole *w = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    for (int i = 0; i < w->count; i++) state->child_inputs[i] = w->inputs[i];
    return 0;
  case ARGP_KEY_ARG:
    argp_error(state, "unexpected argument '%s'", arg);
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static void add_part(whole *w, struct argp_child *parts, const struct argp *part, void *input) {
  parts[w->count].argp = part;
  w->inputs[w->count++] = input;
}

int options_parse(int argc, char **argv, int takes, common_options *common, const struct argp *own, void *input) {
  struct argp_child parts[MAX_PARTS + 1] = {{0}};
  whole w = {{NULL}, 0};
  struct argp bare = *own; /* The parent parser prints the help text. */
  char repeats[64];
  snprintf(repeats, sizeof repeats, "measured repetitions (default %" PRId64 ")", common->repeats);
  const struct argp_option record_table[] = {
      {"repeat", 'r', "N", 0, repeats, 0},
      {"json", 'j', "FILE", 0, "write every sample to FILE as JSON; - writes to standard output and prints no text", 0},
      {0}};
  const struct argp record_argp = {record_table, parse_common, NULL, NULL, NULL, NULL, NULL};
  bare.doc = NULL;
  if (!(takes & OPTIONS_NO_DEVICE)) add_part(&w, parts, &device_argp, common);
  if (takes & OPTIONS_SIZE) add_part(&w, parts, &size_argp, common);
  if (takes & OPTIONS_RECORD) add_part(&w, parts, &record_argp, common);
  add_part(&w, parts, &bare, input);
  const struct argp argp = {NULL, parse_whole, NULL, own->doc, parts, NULL, NULL};
  argp_err_exit_status = BENCH_USAGE;
  return argp_parse(&argp, argc, argv, 0, NULL, &w) == 0 ? BENCH_OK : BENCH_USAGE;
}
