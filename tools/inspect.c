/* tdict inspect: shows the entries of files, with their dtypes, shapes and bytes. Thread rule: one thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "json.h"
#include "leaves.h"
#include "progress.h"
#include "shards.h"
#include "tdict/debug.h"
#include "tdict/path.h"

typedef enum sort_order { SORT_TREE, SORT_BYTES, SORT_NAME } sort_order;

typedef struct options {
  tool_input input;
  tdict_tree *metadata; /* of a safetensors file; else NULL */
  shard_list shards;
  sort_order sort;
  bool stats, json;
  bool has_printed; /* an earlier path was shown */
} options;

/* Shows a bar while --stats reads the elements. */
typedef struct stats_bar {
  progress shown;
  uint64_t done; /* bytes */
} stats_bar;

static stats_bar begin_bar(const options *o, const tdict_tree *tree) {
  return (stats_bar){o->stats ? progress_start("inspect", tdict_bytes(tree)) : (progress){.is_shown = false}, 0};
}

static tdict_status summarize(stats_bar *bar, const leaf *l, tdict_tensor_summary *out, tdict_error *err) {
  const tdict_status status = elements_summarize(l->tensor, &bar->shown, bar->done, out, err);
  bar->done += l->bytes;
  return status;
}

typedef struct totals {
  uint64_t tensors, values, elements, bytes;
} totals;

static totals add_totals(const leaf_list *list) {
  totals sum = {0};
  for (size_t i = 0; i < list->count; i++) {
    const leaf *l = &list->items[i];
    sum.tensors += l->tensor != NULL;
    sum.values += l->values != NULL;
    sum.elements += l->tensor ? (uint64_t)tdict_tensor_numel(l->tensor) : 0;
    sum.bytes += l->bytes;
  }
  return sum;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const leaf *)a)->path, ((const leaf *)b)->path);
}

static int compare_bytes(const void *a, const void *b) {
  const leaf *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return compare_names(a, b);
}

/* Removes the trees, and sorts the other entries. */
static void sort_leaves(leaf_list *list, sort_order order) {
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (list->items[i].kind == LEAF_TREE)
      free((char *)list->items[i].path);
    else
      list->items[kept++] = list->items[i];
  }
  list->count = kept;
  qsort(list->items, kept, sizeof *list->items, order == SORT_BYTES ? compare_bytes : compare_names);
}

static bool is_integer(tdict_dtype dtype) { return (dtype & 0xffu) <= 1; }

static void format_integer(tdict_dtype dtype, int64_t number, char text[32]) {
  if (dtype & 0xffu)
    snprintf(text, 32, "%" PRIu64, (uint64_t)number);
  else
    snprintf(text, 32, "%" PRId64, number);
}

/* Writes the summary as text. */
static void format_stats(tdict_dtype dtype, const tdict_tensor_summary *s, char *text, size_t bytes) {
  char low[32], high[32];
  if (!s->num_elements)
    snprintf(text, bytes, "empty");
  else if (dtype == TDICT_BOOL)
    snprintf(text, bytes, "true=%" PRId64 " false=%" PRId64, s->num_true, s->num_elements - s->num_true);
  else if (dtype == TDICT_C64 || dtype == TDICT_C128 || s->num_nans == s->num_elements)
    snprintf(text, bytes, "nan=%" PRId64, s->num_nans);
  else if (is_integer(dtype)) {
    format_integer(dtype, s->min_integer, low);
    format_integer(dtype, s->max_integer, high);
    snprintf(text, bytes, "min=%s max=%s mean=%.6g", low, high, s->mean);
  } else {
    snprintf(text, bytes, "min=%.6g max=%.6g mean=%.6g nan=%" PRId64, s->min, s->max, s->mean, s->num_nans);
  }
}

static void add_integer(json *j, const char *key, tdict_dtype dtype, int64_t number) {
  if (dtype & 0xffu)
    json_add_unsigned(j, key, (uint64_t)number);
  else
    json_add_integer(j, key, number);
}

static void add_stats(json *j, tdict_dtype dtype, const tdict_tensor_summary *s) {
  json_begin_object(j, "stats");
  if (dtype == TDICT_BOOL) {
    json_add_integer(j, "true", s->num_true);
    json_add_integer(j, "false", s->num_elements - s->num_true);
  } else {
    if (s->num_elements > s->num_nans && is_integer(dtype)) {
      add_integer(j, "min", dtype, s->min_integer);
      add_integer(j, "max", dtype, s->max_integer);
      json_add_real(j, "mean", s->mean);
    } else if (s->num_elements > s->num_nans && dtype != TDICT_C64 && dtype != TDICT_C128) {
      json_add_real(j, "min", s->min);
      json_add_real(j, "max", s->max);
      json_add_real(j, "mean", s->mean);
    }
    json_add_integer(j, "nan", s->num_nans);
  }
  json_end(j);
}

/* The columns of one line. The caller frees `name`. */
typedef struct line {
  char *name; /* indented key, or path */
  char dtype[TDICT_DTYPE_TEXT_BYTES], shape[SHAPE_TEXT_BYTES], bytes[24], about[SHAPE_TEXT_BYTES + 16];
  const char *shard; /* borrowed, or NULL */
} line;

/* Counts the characters of a printable text. */
static int text_width(const char *text) {
  int width = 0;
  for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

/* Writes the start of a single value. */
static void format_value(const leaf *l, char *text, size_t bytes) {
  enum { MOST = 40 };
  tdict_value value;
  text[0] = 0;
  if (tdict_nontensor_get(l->values, 0, &value, NULL) != TDICT_OK) return;
  if (value.kind == TDICT_VALUE_BOOL) snprintf(text, bytes, "%s", value.integer ? "true" : "false");
  if (value.kind == TDICT_VALUE_INTEGER) snprintf(text, bytes, "%" PRId64, value.integer);
  if (value.kind == TDICT_VALUE_REAL) {
    char number[ELEMENT_TEXT_BYTES];
    element_text(TDICT_F64, &value.real, number);
    snprintf(text, bytes, "%s", number);
  }
  if (!value.text) return;
  size_t length = value.length < MOST ? value.length : MOST;
  while (length < value.length && length && ((unsigned char)value.text[length] & 0xc0) == 0x80) length--;
  char *printable = printable_text(value.text, length);
  if (printable) snprintf(text, bytes, "%s%s", printable, length < value.length ? "..." : "");
  free(printable);
}

static bool make_line(const options *o, const leaf *l, stats_bar *bar, line *out, tdict_error *err) {
  char *key = NULL;
  *out = (line){0};
  if (o->sort == SORT_TREE) {
    const size_t length = tdict_path_escape(l->key, NULL, 0);
    char *escaped = malloc(length + 1);
    if (escaped) tdict_path_escape(l->key, escaped, length + 1);
    key = escaped ? printable_text(escaped, length) : NULL;
    free(escaped);
  } else {
    key = printable_text(l->path, strlen(l->path));
  }
  const int indent = o->sort == SORT_TREE ? 2 * (l->depth + 1) : 2;
  if (!key || asprintf(&out->name, "%*s%s", indent, "", key) < 0) out->name = NULL;
  free(key);
  if (!out->name) return tool_fail_memory() == TOOL_OK;
  leaf_shape_text(l, out->shape, sizeof out->shape);
  if (l->kind == LEAF_TREE) {
    /* Most trees of models have the batch size [], which says nothing. */
    if (tdict_batch_ndim(l->tree)) snprintf(out->about, sizeof out->about, "batch=%s", out->shape);
    out->shape[0] = 0;
    return true;
  }
  leaf_dtype_text(l, out->dtype, sizeof out->dtype);
  snprintf(out->bytes, sizeof out->bytes, "%" PRIu64, l->bytes);
  out->shard = shard_of(&o->shards, l);
  if (l->kind == LEAF_VALUE) format_value(l, out->about, sizeof out->about);
  if (l->tensor && o->stats) {
    tdict_tensor_summary s = tdict_tensor_summary_default();
    if (summarize(bar, l, &s, err) != TDICT_OK) return tool_fail(o->input.arguments[0], err) == TOOL_OK;
    format_stats(tdict_tensor_dtype(l->tensor), &s, out->about, sizeof out->about);
  }
  return true;
}

/* Prints the lines in columns. */
static void print_lines(const line *lines, size_t count) {
  enum { WIDEST_NAME = 70, WIDEST_SHAPE = 30 };
  int name = 0, dtype = 0, shape = 0, bytes = 0, shard = 0;
  for (size_t i = 0; i < count; i++) {
    const int name_width = text_width(lines[i].name), shape_width = text_width(lines[i].shape);
    if (name_width > name && name_width <= WIDEST_NAME) name = name_width;
    if (shape_width > shape && shape_width <= WIDEST_SHAPE) shape = shape_width;
    if (text_width(lines[i].dtype) > dtype) dtype = text_width(lines[i].dtype);
    if (text_width(lines[i].bytes) > bytes) bytes = text_width(lines[i].bytes);
    if (lines[i].shard && text_width(lines[i].shard) > shard) shard = text_width(lines[i].shard);
  }
  for (size_t i = 0; i < count; i++) {
    const line *l = &lines[i];
    const int gap = name - text_width(l->name);
    fputs(l->name, stdout);
    if (l->dtype[0])
      printf("%*s  %-*s  %-*s  %*s", gap > 0 ? gap : 0, "", dtype, l->dtype, shape, l->shape, bytes, l->bytes);
    if (l->shard) printf("  %-*s", l->about[0] ? shard : 0, l->shard);
    if (l->about[0]) printf("  %s", l->about);
    putchar('\n');
  }
}

static const char *human_bytes(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double size = (double)bytes;
  int unit = 0;
  for (; size >= 1024 && unit < 4; unit++) size /= 1024;
  snprintf(text, 32, "%.1f %s", size, units[unit]);
  return text;
}

static void print_totals(const leaf_list *list) {
  const totals sum = add_totals(list);
  char human[32];
  printf("%" PRIu64 " tensor%s", sum.tensors, sum.tensors == 1 ? "" : "s");
  if (sum.values) printf(", %" PRIu64 " value%s", sum.values, sum.values == 1 ? "" : "s");
  printf(", %" PRIu64 " element%s, %" PRIu64 " byte%s", sum.elements, sum.elements == 1 ? "" : "s", sum.bytes,
         sum.bytes == 1 ? "" : "s");
  if (sum.bytes >= 1024) printf(" (%s)", human_bytes(sum.bytes, human));
  putchar('\n');
}

/* Prints a line for each entry of the metadata. */
static void print_metadata(const tdict_tree *metadata) {
  for (size_t i = 0; metadata && i < tdict_num_keys(metadata); i++) {
    const tdict_entry entry = tdict_get_entry_at(metadata, i);
    char text[SHAPE_TEXT_BYTES];
    char *key = printable_text(entry.key, strlen(entry.key));
    format_value(&(leaf){.values = entry.object}, text, sizeof text);
    printf("metadata %s: %s\n", key ? key : "?", text);
    free(key);
  }
}

static int print_text(const options *o, const tdict_tree *tree, const leaf_list *list) {
  char batch[SHAPE_TEXT_BYTES];
  line *lines = calloc(list->count + 1, sizeof *lines);
  char *path = printable_text(o->input.arguments[0], strlen(o->input.arguments[0]));
  int status = TOOL_OK;
  tdict_error err;
  size_t made = 0;
  stats_bar bar = begin_bar(o, tree);
  if (!lines || !path) status = tool_fail_memory();
  for (; status == TOOL_OK && made < list->count; made++)
    if (!make_line(o, &list->items[made], &bar, &lines[made], &err)) status = TOOL_FAILED;
  progress_end(&bar.shown);
  if (status == TOOL_OK) {
    shape_text(tdict_batch_ndim(tree), tdict_batch_size(tree), batch, sizeof batch);
    printf(tdict_batch_ndim(tree) ? "%s  batch=%s\n" : "%s\n", path, batch);
    print_lines(lines, list->count);
    print_totals(list);
    print_metadata(o->metadata);
  }
  for (size_t i = 0; i < made; i++) free(lines[i].name);
  free(lines);
  free(path);
  return status;
}

/* Adds the members of an entry. Returns an exit status. */
static int add_entry(json *j, const options *o, const leaf *l, stats_bar *bar) {
  char dtype[TDICT_DTYPE_TEXT_BYTES];
  const int64_t *shape = NULL;
  tdict_value value;
  json_add_string(j, "path", l->path);
  json_add_string(j, "kind", leaf_kind_name(l->kind));
  if (l->kind == LEAF_TREE) {
    json_add_shape(j, "batch_size", tdict_batch_ndim(l->tree), tdict_batch_size(l->tree));
    return TOOL_OK;
  }
  leaf_dtype_text(l, dtype, sizeof dtype);
  json_add_string(j, "dtype", dtype);
  if (l->tensor) {
    json_add_shape(j, "shape", tdict_tensor_ndim(l->tensor), tdict_tensor_shape(l->tensor));
  } else {
    const int ndim = tdict_nontensor_shape(l->values, &shape);
    json_add_shape(j, "shape", ndim, shape);
  }
  if (l->ragged) json_add_integer(j, "rows", tdict_ragged_get_info(l->ragged).num_rows);
  json_add_unsigned(j, "bytes", l->bytes);
  if (shard_of(&o->shards, l)) json_add_string(j, "shard", shard_of(&o->shards, l));
  if (l->kind == LEAF_VALUE && tdict_nontensor_get(l->values, 0, &value, NULL) == TDICT_OK)
    json_add_value(j, "value", &value);
  if (l->tensor && o->stats) {
    tdict_tensor_summary s = tdict_tensor_summary_default();
    tdict_error err;
    if (summarize(bar, l, &s, &err) != TDICT_OK) return tool_fail(o->input.arguments[0], &err);
    add_stats(j, tdict_tensor_dtype(l->tensor), &s);
  }
  return TOOL_OK;
}

static void add_metadata(json *j, const tdict_tree *metadata) {
  tdict_value value;
  json_begin_object(j, "metadata");
  for (size_t i = 0; i < tdict_num_keys(metadata); i++) {
    const tdict_entry entry = tdict_get_entry_at(metadata, i);
    if (tdict_nontensor_get(entry.object, 0, &value, NULL) == TDICT_OK) json_add_value(j, entry.key, &value);
  }
  json_end(j);
}

static int print_json(const options *o, const tdict_tree *tree, const leaf_list *list) {
  const totals sum = add_totals(list);
  stats_bar bar = begin_bar(o, tree);
  json j;
  json_begin(&j);
  json_add_string(&j, "file", o->input.arguments[0]);
  json_add_shape(&j, "batch_size", tdict_batch_ndim(tree), tdict_batch_size(tree));
  json_begin_array(&j, "entries");
  for (size_t i = 0; i < list->count; i++) {
    json_begin_object(&j, NULL);
    if (add_entry(&j, o, &list->items[i], &bar) != TOOL_OK) {
      progress_end(&bar.shown);
      json_discard(&j);
      return TOOL_FAILED;
    }
    json_end(&j);
  }
  progress_end(&bar.shown);
  json_end(&j);
  if (o->metadata) add_metadata(&j, o->metadata);
  json_begin_object(&j, "totals");
  json_add_unsigned(&j, "tensors", sum.tensors);
  json_add_unsigned(&j, "values", sum.values);
  json_add_unsigned(&j, "elements", sum.elements);
  json_add_unsigned(&j, "bytes", sum.bytes);
  json_end(&j);
  return json_print(&j);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *o = state->input;
  switch (key) {
  case 's':
    if (strcmp(arg, "bytes") != 0 && strcmp(arg, "name") != 0)
      argp_error(state, "--sort: '%s' is unknown, wanted bytes or name", arg);
    o->sort = strcmp(arg, "bytes") == 0 ? SORT_BYTES : SORT_NAME;
    return 0;
  case 't':
    o->stats = true;
    return 0;
  case 'j':
    o->json = true;
    return 0;
  default:
    return tool_parse_nothing(key, arg, state);
  }
}

static int inspect_one(void *user, bool is_first) {
  options *o = user;
  const char *path = o->input.arguments[0];
  tdict_tree *tree = tool_open(path, &o->input.open);
  leaf_list list = {0};
  tdict_error err;
  int status;
  if (!tree) return TOOL_FAILED;
  if (!is_first && o->has_printed) puts(o->json ? "," : "");
  o->has_printed = true;
  if (leaves_collect(tree, &list, &err) != TDICT_OK) {
    status = tool_fail(path, &err);
  } else {
    shards_find(&o->shards, &list, path);
    if (o->sort != SORT_TREE) sort_leaves(&list, o->sort);
    status = o->json ? print_json(o, tree, &list) : print_text(o, tree, &list);
    shards_free(&o->shards);
  }
  leaves_free(&list);
  tdict_release(o->metadata);
  tdict_release(tree);
  return status;
}

static int run(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"sort", 's', "ORDER", 0, "list paths, sorted by 'bytes' (largest first) or 'name' (default: a tree)", 0},
      {"stats", 't', NULL, 0, "read all elements; show minimum, maximum, mean and the number of NaN elements", 0},
      {"json", 'j', NULL, 0, "print JSON", 0},
      {0}};
  static const struct argp argp = {table,
                                   parse,
                                   "PATH...",
                                   "Shows the keys, dtypes, shapes, bytes and metadata of the files or folders PATH. "
                                   "Of a model in several files, also shows the file of each tensor. With --json and "
                                   "several paths, prints an array.\v"
                                   "Exit status: 0 success, 1 PATH cannot be read, 2 wrong usage.",
                                   tool_input_child,
                                   NULL,
                                   NULL};
  options o = {.input = {.open = tdict_open_options_default(), .names = {"PATH"}, .takes_paths = true}};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  const bool is_array = o.json && o.input.num_paths > 1;
  o.input.open.metadata = &o.metadata;
  if (is_array) puts("[");
  const int status = tool_each_path(&o.input, inspect_one, &o);
  if (is_array) puts("]");
  return status;
}

const tool_command tool_inspect = {"inspect", "shows keys, dtypes, shapes and bytes", run, TOOL_FAILED};
