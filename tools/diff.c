/* tdict diff: compares the entries of two files. Thread rule: one thread. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/convert.h"

#include "elements.h"
#include "json.h"
#include "leaves.h"

/* Exit statuses, as of diff(1). */
enum { DIFF_EQUAL = 0, DIFF_DIFFERENT = 1, DIFF_TROUBLE = 2 };

typedef struct options {
  tool_input input;
  bool json, has_tolerance;
  double rtol, atol;
} options;

/* The comparison of all elements of two tensors. */
typedef struct element_counts {
  int64_t differing; /* elements that differ */
  int64_t with_nan;  /* differing elements of which one is NaN, or both */
  double largest;    /* the largest |a - b| of two differing elements without NaN */
} element_counts;

typedef struct comparison {
  const options *options;
  json *json;         /* receives the differences, or NULL */
  const char *prefix; /* of paths that are printed: "" or "__metadata__." */
  uint64_t num_differences;
} comparison;

/* Prints a difference. If the differences are printed as JSON, begins an object for the difference and returns true.
 * The caller then adds members and ends the object. */
static bool report(comparison *c, const char *path, const char *kind, const char *text) {
  char *whole = NULL;
  c->num_differences++;
  if (asprintf(&whole, "%s%s", c->prefix, path) < 0) whole = NULL;
  char *printable = whole ? printable_text(whole, strlen(whole)) : NULL;
  if (c->json) {
    json_begin_object(c->json, NULL);
    json_add_string(c->json, "path", whole ? whole : "?");
    json_add_string(c->json, "kind", kind);
  } else {
    printf("%s: %s\n", !printable ? "?" : printable[0] ? printable : "(root)", text);
  }
  free(printable);
  free(whole);
  return c->json != NULL;
}

/* Reports two texts that describe a property of the entries. */
static void report_pair(comparison *c, const char *path, const char *kind, const char *a, const char *b) {
  char text[2 * SHAPE_TEXT_BYTES + 64];
  snprintf(text, sizeof text, "%s %s and %s", kind, a, b);
  if (!report(c, path, kind, text)) return;
  json_add_string(c->json, "a", a);
  json_add_string(c->json, "b", b);
  json_end(c->json);
}

static double distance(tdict_dtype dtype, const void *a, const void *b) {
  if (dtype == TDICT_I64) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (double)(x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x);
  }
  if (dtype == TDICT_U64) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (double)(x > y ? x - y : y - x);
  }
  const double *x = a, *y = b;
  if (dtype == TDICT_C128) return hypot(x[0] - y[0], x[1] - y[1]);
  return fabs(*x - *y);
}

/* Returns whether two elements with different bits count as equal, because of --rtol and --atol. */
static bool is_near(const options *o, tdict_dtype dtype, const void *a, const void *b, double found) {
  if (!o->has_tolerance) return false;
  const double *x = a, *y = b;
  double size = 0; /* of b */
  if (dtype == TDICT_I64)
    size = fabs((double)*(const int64_t *)b);
  else if (dtype == TDICT_U64)
    size = (double)*(const uint64_t *)b;
  else
    size = dtype == TDICT_C128 ? hypot(y[0], y[1]) : fabs(y[0]);
  if (dtype == TDICT_F64 && isnan(x[0]) && isnan(y[0])) return true;
  return isfinite(found) && found <= o->atol + o->rtol * size;
}

/* Returns the dtype in which differences are computed. float64 holds every number of the smaller dtypes. */
static tdict_dtype distance_dtype(tdict_dtype dtype) {
  if (dtype == TDICT_I64 || dtype == TDICT_U64) return dtype;
  return dtype == TDICT_C64 || dtype == TDICT_C128 ? TDICT_C128 : TDICT_F64;
}

/* Compares two chunks of elements whose bytes differ. */
static tdict_status compare_chunk(const options *o, const tdict_tensor *a, const tdict_tensor *b,
                                  element_counts *counts, tdict_error *err) {
  const tdict_dtype dtype = tdict_tensor_dtype(a), wide = distance_dtype(dtype);
  const size_t bytes = tdict_dtype_bytes(dtype), wide_bytes = tdict_dtype_bytes(wide);
  const unsigned char *x = tdict_tensor_const_data(a), *y = tdict_tensor_const_data(b);
  tdict_tensor *wide_a = NULL, *wide_b = NULL;
  tdict_status status = tdict_tensor_to_dtype(a, wide, NULL, &wide_a, err);
  if (status == TDICT_OK) status = tdict_tensor_to_dtype(b, wide, NULL, &wide_b, err);
  if (status == TDICT_OK) {
    const unsigned char *p = tdict_tensor_const_data(wide_a), *q = tdict_tensor_const_data(wide_b);
    for (size_t i = 0; i < (size_t)tdict_tensor_numel(a); i++) {
      if (memcmp(x + i * bytes, y + i * bytes, bytes) == 0) continue;
      const double found = distance(wide, p + i * wide_bytes, q + i * wide_bytes);
      if (is_near(o, wide, p + i * wide_bytes, q + i * wide_bytes, found)) continue;
      counts->differing++;
      if (found > counts->largest) counts->largest = found;
      counts->with_nan += isnan(found) != 0;
    }
  }
  tdict_tensor_release(wide_b);
  tdict_tensor_release(wide_a);
  return status;
}

static tdict_status compare_flat(const options *o, const tdict_tensor *a, const tdict_tensor *b, element_counts *counts,
                                 tdict_error *err) {
  const int64_t count = tdict_tensor_numel(a);
  const tdict_dtype dtype = tdict_tensor_dtype(a);
  const size_t bytes = tdict_dtype_bytes(dtype);
  const unsigned char *x = tdict_tensor_const_data(a), *y = tdict_tensor_const_data(b);
  for (int64_t start = 0; start < count; start += CHUNK_ELEMENTS) {
    const int64_t length = count - start < CHUNK_ELEMENTS ? count - start : CHUNK_ELEMENTS;
    if (memcmp(x + (size_t)start * bytes, y + (size_t)start * bytes, (size_t)length * bytes) == 0) continue;
    tdict_tensor *part_a = NULL, *part_b = NULL;
    tdict_status status = elements_chunk(a, start, length, dtype, &part_a, err);
    if (status == TDICT_OK) status = elements_chunk(b, start, length, dtype, &part_b, err);
    if (status == TDICT_OK) status = compare_chunk(o, part_a, part_b, counts, err);
    tdict_tensor_release(part_b);
    tdict_tensor_release(part_a);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

/* Reports different elements of two tensors with equal dtypes and shapes. */
static tdict_status compare_elements(comparison *c, const char *path, const tdict_tensor *a, const tdict_tensor *b,
                                     tdict_error *err) {
  tdict_tensor *flat_a = NULL, *flat_b = NULL;
  element_counts counts = {0};
  tdict_status status = elements_flatten(a, &flat_a, err);
  if (status == TDICT_OK) status = elements_flatten(b, &flat_b, err);
  if (status == TDICT_OK) status = compare_flat(c->options, flat_a, flat_b, &counts, err);
  if (status == TDICT_OK && counts.differing) {
    char text[160];
    const int64_t count = tdict_tensor_numel(a);
    const int length =
        snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " elements differ, largest difference %.6g",
                 counts.differing, count, counts.largest);
    if (counts.with_nan)
      snprintf(text + length, sizeof text - (size_t)length, ", %" PRId64 " with NaN", counts.with_nan);
    if (report(c, path, "elements", text)) {
      json_add_integer(c->json, "differing", counts.differing);
      json_add_integer(c->json, "elements", count);
      json_add_integer(c->json, "with_nan", counts.with_nan);
      json_add_real(c->json, "max_abs_diff", counts.largest);
      json_end(c->json);
    }
  }
  tdict_tensor_release(flat_b);
  tdict_tensor_release(flat_a);
  return status;
}

static bool values_equal(const tdict_value *a, const tdict_value *b) {
  return a->kind == b->kind && a->integer == b->integer && memcmp(&a->real, &b->real, sizeof a->real) == 0 &&
         a->length == b->length && (!a->length || memcmp(a->text, b->text, a->length) == 0);
}

static tdict_status compare_values(comparison *c, const leaf *a, const leaf *b, tdict_error *err) {
  const int64_t *shape = NULL;
  const int ndim = tdict_nontensor_shape(a->values, &shape);
  int64_t count = 1, differing = 0;
  char text[96];
  for (int i = 0; i < ndim; i++) count *= shape[i];
  for (int64_t i = 0; i < count; i++) {
    tdict_value x, y;
    tdict_status status = tdict_nontensor_get(a->values, i, &x, err);
    if (status == TDICT_OK) status = tdict_nontensor_get(b->values, i, &y, err);
    if (status != TDICT_OK) return status;
    differing += !values_equal(&x, &y);
  }
  if (!differing) return TDICT_OK;
  snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " value%s differ%s", differing, count, count == 1 ? "" : "s",
           differing == 1 ? "s" : "");
  if (report(c, a->path, "values", text)) {
    json_add_integer(c->json, "differing", differing);
    json_add_integer(c->json, "values", count);
    json_end(c->json);
  }
  return TDICT_OK;
}

/* Compares two entries with the same path. */
static tdict_status compare_leaves(comparison *c, const leaf *a, const leaf *b, tdict_error *err) {
  char x[SHAPE_TEXT_BYTES], y[SHAPE_TEXT_BYTES];
  const uint64_t before = c->num_differences;
  if (a->kind != b->kind) {
    report_pair(c, a->path, "kind", leaf_kind_name(a->kind), leaf_kind_name(b->kind));
    return TDICT_OK;
  }
  if (a->tensor && tdict_tensor_dtype(a->tensor) != tdict_tensor_dtype(b->tensor)) {
    leaf_dtype_text(a, x, sizeof x);
    leaf_dtype_text(b, y, sizeof y);
    report_pair(c, a->path, "dtype", x, y);
  }
  leaf_shape_text(a, x, sizeof x);
  leaf_shape_text(b, y, sizeof y);
  if (strcmp(x, y) != 0) report_pair(c, a->path, a->kind == LEAF_TREE ? "batch size" : "shape", x, y);
  if (c->num_differences != before || a->kind == LEAF_TREE) return TDICT_OK;
  if (a->values) return compare_values(c, a, b, err);
  for (int64_t i = 0; a->ragged && i < tdict_ragged_get_info(a->ragged).num_rows; i++) {
    if (tdict_ragged_row_length(a->ragged, i) == tdict_ragged_row_length(b->ragged, i)) continue;
    char text[64];
    snprintf(text, sizeof text, "row %" PRId64 " has different lengths", i);
    if (report(c, a->path, "row lengths", text)) {
      json_add_integer(c->json, "row", i);
      json_end(c->json);
    }
    return TDICT_OK;
  }
  return compare_elements(c, a->path, a->tensor, b->tensor, err);
}

static void report_missing(comparison *c, const char *path, bool is_in_a) {
  char text[64];
  snprintf(text, sizeof text, "only in %s", is_in_a ? "A" : "B");
  if (report(c, path, is_in_a ? "only in A" : "only in B", text)) json_end(c->json);
}

/* Returns true if `path` is below the path `missing`, for which a difference is reported already. */
static bool is_below(const char *path, const char *missing) {
  const size_t length = missing ? strlen(missing) : 0;
  return missing && strncmp(path, missing, length) == 0 && path[length] == '.';
}

/* Compares the entries of `a` with the entries of `b`. If `only_missing` is true, `a` is the second file, and only
 * entries that `b` lacks are reported. */
static tdict_status compare_lists(comparison *c, const leaf_list *a, const tdict_tree *b, bool only_missing,
                                  tdict_error *err) {
  const char *missing = NULL;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < a->count && status == TDICT_OK; i++) {
    const leaf *l = &a->items[i];
    tdict_entry entry;
    leaf other;
    if (is_below(l->path, missing)) continue;
    if (tdict_get_entry(b, l->path, &entry, NULL) != TDICT_OK) {
      missing = l->path;
      report_missing(c, l->path, !only_missing);
      continue;
    }
    status = leaf_describe(b, &entry, &other, err);
    if (status == TDICT_OK && !only_missing) status = compare_leaves(c, l, &other, err);
    if (l->kind != other.kind) missing = l->path; /* a tree and a tensor are one difference */
  }
  return status;
}

static tdict_status compare_trees(comparison *c, const tdict_tree *a, const tdict_tree *b, tdict_error *err) {
  leaf_list list_a = {0}, list_b = {0};
  const leaf root_a = {.kind = LEAF_TREE, .path = "", .tree = a}, root_b = {.kind = LEAF_TREE, .path = "", .tree = b};
  tdict_status status = leaves_collect(a, &list_a, err);
  if (status == TDICT_OK) status = leaves_collect(b, &list_b, err);
  if (status == TDICT_OK) status = compare_leaves(c, &root_a, &root_b, err);
  if (status == TDICT_OK) status = compare_lists(c, &list_a, b, false, err);
  if (status == TDICT_OK) status = compare_lists(c, &list_b, a, true, err);
  leaves_free(&list_b);
  leaves_free(&list_a);
  return status;
}

/* Compares the metadata of two files, unless the format of a file holds no metadata. */
static tdict_status compare_metadata(comparison *c, tdict_tree *const metadata[2], tdict_error *err) {
  if (!metadata[0] || !metadata[1]) return TDICT_OK;
  c->prefix = "__metadata__.";
  return compare_trees(c, metadata[0], metadata[1], err);
}

static int diff(const options *o, tdict_tree *const trees[2], tdict_tree *const metadata[2]) {
  json j;
  comparison c = {.options = o, .json = o->json ? &j : NULL, .prefix = ""};
  tdict_error err;
  if (c.json) {
    json_begin(&j);
    json_add_string(&j, "a", o->input.arguments[0]);
    json_add_string(&j, "b", o->input.arguments[1]);
    json_begin_array(&j, "differences");
  }
  tdict_status status = compare_trees(&c, trees[0], trees[1], &err);
  if (status == TDICT_OK) status = compare_metadata(&c, metadata, &err);
  if (status != TDICT_OK) {
    if (c.json) json_discard(&j);
    tool_fail(o->input.arguments[0], &err);
    return DIFF_TROUBLE;
  }
  if (c.json) {
    json_end(&j);
    json_add_bool(&j, "equal", c.num_differences == 0);
    if (json_print(&j) != TOOL_OK) return DIFF_TROUBLE;
  }
  return c.num_differences ? DIFF_DIFFERENT : DIFF_EQUAL;
}

static double parse_tolerance(struct argp_state *state, const char *option, const char *text) {
  char *end = NULL;
  const double number = strtod(text, &end);
  if (end == text || *end || !isfinite(number) || number < 0)
    argp_error(state, "%s: '%s' is not a number, wanted 0 or more", option, text);
  return number;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *o = state->input;
  switch (key) {
  case 'j':
    o->json = true;
    return 0;
  case 'r':
    o->rtol = parse_tolerance(state, "--rtol", arg);
    o->has_tolerance = true;
    return 0;
  case 'a':
    o->atol = parse_tolerance(state, "--atol", arg);
    o->has_tolerance = true;
    return 0;
  default:
    return tool_parse_nothing(key, arg, state);
  }
}

static int run(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"json", 'j', NULL, 0, "print JSON", 0},
      {"rtol", 'r', "R", 0, "accept elements if |a - b| <= A + R * |b|, and two NaN (default: 0)", 0},
      {"atol", 'a', "A", 0, "the same, for A (default: 0)", 0},
      {0}};
  static const struct argp argp = {
      table,
      parse,
      "A B",
      "Compares the entries of the files or folders A and B: keys, batch sizes, dtypes, shapes and elements, and "
      "the metadata of two safetensors files. The order of keys does not count. Two elements differ if their bits "
      "differ, unless a tolerance is given. The largest difference is the largest |a - b| of two differing elements of "
      "which neither is NaN.\v"
      "Exit status: 0 A and B are equal, 1 A and B differ, 2 a file cannot be read, or wrong usage.",
      tool_input_child,
      NULL,
      NULL};
  options o = {.input = {.open = tdict_open_options_default(), .names = {"A", "B"}}};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  tdict_tree *trees[2] = {NULL, NULL}, *metadata[2] = {NULL, NULL};
  int status = DIFF_EQUAL;
  for (int i = 0; i < 2 && status == DIFF_EQUAL; i++) {
    o.input.open.metadata = &metadata[i];
    trees[i] = tool_open(o.input.arguments[i], &o.input.open);
    if (!trees[i]) status = DIFF_TROUBLE;
  }
  if (status == DIFF_EQUAL) status = diff(&o, trees, metadata);
  for (int i = 0; i < 2; i++) {
    tdict_release(metadata[i]);
    tdict_release(trees[i]);
  }
  return status;
}

const tool_command tool_diff = {"diff", "compares two files", run, DIFF_TROUBLE};
