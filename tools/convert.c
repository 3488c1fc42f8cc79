/* tdict convert: reads files and writes them in another format, or with other keys. Thread rule: one thread. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "tdict/convert.h"
#include "tdict/nontensor.h"
#include "tool.h"

typedef struct options {
  tool_input input;
  tdict_save_options save;
  const char **keys; /* of --keys; owned */
  size_t num_keys;
  tdict_dtype dtype; /* of --dtype; 0: none */
} options;

/* The signal that asks the program to end, or 0. */
static volatile sig_atomic_t interrupted;

static void note_signal(int number) { interrupted = number; }

/* Until the next call, the signals of Ctrl-C, kill and a closed terminal stop the save, which removes what it has
 * written. The same signal again ends the program at once. Signals that the program ignores stay ignored, as for
 * nohup. */
static void catch_signals(bool catches) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  const struct sigaction action = {.sa_handler = catches ? note_signal : SIG_DFL, .sa_flags = (int)SA_RESETHAND};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct sigaction old;
    if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
  }
}

static bool show(void *user, uint64_t done, uint64_t total) {
  (void)total;
  progress_show(user, done);
  return !interrupted;
}

static const struct {
  const char *name;
  tdict_file_format format;
} formats[] = {{"safetensors", TDICT_FORMAT_SAFETENSORS},
               {"memmap", TDICT_FORMAT_MEMMAP},
               {"consolidated", TDICT_FORMAT_CONSOLIDATED},
               {"tdz", TDICT_FORMAT_TDZ},
               {"npy", TDICT_FORMAT_NPY},
               {"npz", TDICT_FORMAT_NPZ}};

/* Returns the format that the end of a path names, or TDICT_FORMAT_AUTO. */
static tdict_file_format format_of(const char *path) {
  static const struct {
    const char *end;
    tdict_file_format format;
  } ends[] = {{".safetensors", TDICT_FORMAT_SAFETENSORS},
              {".safetensors.index.json", TDICT_FORMAT_SAFETENSORS},
              {"/", TDICT_FORMAT_MEMMAP},
              {".tdz", TDICT_FORMAT_TDZ},
              {".npy", TDICT_FORMAT_NPY},
              {".npz", TDICT_FORMAT_NPZ}};
  const size_t length = strlen(path);
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    const size_t end = strlen(ends[i].end);
    if (length >= end && strcmp(path + length - end, ends[i].end) == 0) return ends[i].format;
  }
  return TDICT_FORMAT_AUTO;
}

static tdict_file_format parse_format(struct argp_state *state, const char *text) {
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
    if (strcmp(text, formats[i].name) == 0) return formats[i].format;
  argp_error(state, "--format: '%s' is unknown, wanted safetensors, memmap, consolidated, tdz, npy or npz", text);
  return TDICT_FORMAT_AUTO;
}

static tdict_dtype parse_dtype(struct argp_state *state, const char *text) {
  static const tdict_dtype floats[] = {TDICT_F64, TDICT_F32, TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2};
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
    if (strcmp(text, tdict_dtype_name(floats[i])) == 0) return floats[i];
  argp_error(state,
             "--dtype: '%s' is unknown, wanted float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2",
             text);
  return 0;
}

/* Replaces the tree with a tree whose floats have the dtype of --dtype. */
static tdict_status convert_floats(const options *o, tdict_tree **tree, tdict_error *err) {
  tdict_tree *converted = NULL;
  tdict_dtype_options floats = tdict_dtype_options_default();
  if (!o->dtype) return TDICT_OK;
  floats.floats_only = true;
  const tdict_status status = tdict_to_dtype(*tree, o->dtype, &floats, NULL, &converted, err);
  if (status != TDICT_OK) return status;
  tdict_release(*tree);
  *tree = converted;
  return TDICT_OK;
}

static void add_key(options *o, const char *key) {
  const char **keys = realloc(o->keys, (o->num_keys + 1) * sizeof *keys);
  if (!keys) exit(tool_fail_memory());
  o->keys = keys;
  o->keys[o->num_keys++] = key;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *o = state->input;
  switch (key) {
  case 'f':
    o->save.format = (int32_t)parse_format(state, arg);
    return 0;
  case 'b':
    o->save.max_shard_bytes = tool_parse_bytes(state, "--shard-bytes", arg);
    if (!o->save.max_shard_bytes) argp_error(state, "--shard-bytes: wanted 1 or more");
    return 0;
  case 'k':
    add_key(o, arg);
    return 0;
  case 's':
    o->input.open.strip_prefix = arg;
    return 0;
  case 'a':
    o->input.open.add_prefix = arg;
    return 0;
  case 'd':
    o->dtype = parse_dtype(state, arg);
    return 0;
  case 'p':
    o->save.without_structure = true;
    return 0;
  default:
    return tool_parse_nothing(key, arg, state);
  }
}

/* Without --plain, metadata has a text "format", because transformers 4 refuses files without it. */
static tdict_status complete_metadata(const options *o, tdict_tree *metadata, tdict_error *err) {
  if (!metadata || o->save.without_structure || tdict_has(metadata, "format")) return TDICT_OK;
  return tdict_set_text(metadata, "format", "pt", err);
}

static int convert(options *o) {
  const char *in = o->input.arguments[0], *out = o->input.arguments[1];
  const bool has_metadata = o->save.format == TDICT_FORMAT_SAFETENSORS;
  tdict_tree *metadata = NULL;
  o->input.open.metadata = &metadata;
  tdict_tree *tree = tool_open(in, &o->input.open);
  tdict_error err;
  if (!tree) return TOOL_FAILED;
  if (has_metadata)
    o->save.metadata = metadata;
  else if (metadata && tdict_num_keys(metadata) > (size_t)tdict_has(metadata, "format"))
    fprintf(stderr, "tdict: %s: the metadata is left out; only safetensors files hold metadata\n", out);
  if (convert_floats(o, &tree, &err) != TDICT_OK ||
      (has_metadata && complete_metadata(o, metadata, &err) != TDICT_OK)) {
    tdict_release(metadata);
    tdict_release(tree);
    return tool_fail(in, &err);
  }
  progress p = progress_start("convert", tdict_bytes(tree));
  o->save.progress = show;
  o->save.user = &p;
  catch_signals(true);
  const tdict_status status = tdict_save(NULL, out, tree, &o->save, &err);
  catch_signals(false);
  progress_end(&p);
  tdict_release(metadata);
  tdict_release(tree);
  if (interrupted) raise(interrupted);
  return status == TDICT_OK ? TOOL_OK : tool_fail(out, &err);
}

static int run(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"format", 'f', "FORMAT", 0,
       "safetensors, memmap, consolidated, tdz, npy or npz. Without this option, the end of OUT names the format: "
       ".safetensors, a slash for memmap, .tdz, .npy or .npz",
       0},
      {"shard-bytes", 'b', "N", 0,
       "write shards of at most N bytes and an index; OUT ends with .safetensors.index.json", 0},
      {"keys", 'k', "KEY", 0, "convert only this entry, with all entries below it; may be repeated", 0},
      {"strip-prefix", 's', "PATH", 0, "remove this path from the start of keys", 0},
      {"add-prefix", 'a', "PATH", 0, "add this path before all keys, after --strip-prefix", 0},
      {"dtype", 'd', "DTYPE", 0,
       "convert floats to float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2; other tensors stay", 0},
      {"plain", 'p', NULL, 0,
       "leave out TensorDict's entry, which holds batch sizes, text and numbers, and add no format to metadata", 0},
      {0}};
  static const struct argp argp = {
      table,
      parse,
      "IN OUT",
      "Writes the entries of the file or folder IN to OUT. OUT is replaced as a whole.\v"
      "N may end with K, M or G for KiB, MiB or GiB. If the command fails or is "
      "interrupted, OUT is unchanged.\n\nExit status: 0 success, 1 failure, 2 wrong usage.",
      tool_input_child,
      NULL,
      NULL};
  options o = {.input = {.open = tdict_open_options_default(), .names = {"IN", "OUT"}},
               .save = tdict_save_options_default()};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  o.input.open.keys = o.keys;
  o.input.open.num_keys = o.num_keys;
  const char *out = o.input.arguments[1];
  if (o.save.format == TDICT_FORMAT_AUTO) o.save.format = (int32_t)format_of(out);
  const bool has_format = o.save.format != TDICT_FORMAT_AUTO;
  if (!has_format)
    fprintf(stderr, "tdict convert: the end of '%s' names no format; use --format, or an end that --help lists\n", out);
  const int status = has_format ? convert(&o) : TOOL_USAGE;
  free(o.keys);
  return status;
}

const tool_command tool_convert = {"convert", "writes files in another format, or with other keys", run, TOOL_FAILED};
