/* tdict cat: prints the elements of one entry. Thread rule: one thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "leaves.h"
#include "tdict/path.h"

enum { MOST_ELEMENTS = 1000 }; /* without --head and --all */

typedef struct options {
  tool_input input;
  int64_t most; /* number of elements or values to print */
  bool has_limit, raw;
} options;

/* Where lines end. */
typedef struct rows {
  int64_t width;              /* elements per line, if `ragged` is NULL */
  const tdict_ragged *ragged; /* rows of different lengths */
  int64_t elements_per_item;  /* elements of one index of dimension 0 of the values, if `ragged` is not NULL */
  int64_t next_row;           /* of `ragged` */
  int64_t left;               /* elements of the current line that are not printed yet */
} rows;

static rows rows_of(const leaf *l) {
  const int ndim = tdict_tensor_ndim(l->tensor);
  const int64_t *shape = tdict_tensor_shape(l->tensor);
  rows r = {.width = ndim ? shape[ndim - 1] : 1, .ragged = l->ragged, .elements_per_item = 1};
  for (int i = 1; i < ndim; i++) r.elements_per_item *= shape[i];
  return r;
}

/* Begins the next line that has elements. Prints the lines of empty rows before this line. */
static void begin_line(rows *r) {
  if (!r->ragged) r->left = r->width;
  while (!r->left) {
    r->left = tdict_ragged_row_length(r->ragged, r->next_row++) * r->elements_per_item;
    if (!r->left) putchar('\n');
  }
}

static void print_element(rows *r, const char *text) {
  if (r->left)
    putchar(' ');
  else
    begin_line(r);
  fputs(text, stdout);
  if (--r->left == 0) putchar('\n');
}

static tdict_status print_elements(const leaf *l, const tdict_tensor *flat, int64_t count, tdict_error *err) {
  const tdict_dtype dtype = elements_wide_dtype(tdict_tensor_dtype(flat));
  const size_t item = tdict_dtype_bytes(dtype);
  rows r = rows_of(l);
  for (int64_t start = 0; start < count && !ferror(stdout); start += CHUNK_ELEMENTS) {
    const int64_t length = count - start < CHUNK_ELEMENTS ? count - start : CHUNK_ELEMENTS;
    tdict_tensor *chunk = NULL;
    tdict_status status = elements_chunk(flat, start, length, dtype, &chunk, err);
    if (status != TDICT_OK) return status;
    const unsigned char *data = tdict_tensor_const_data(chunk);
    for (int64_t i = 0; i < length; i++) {
      char text[ELEMENT_TEXT_BYTES];
      element_text(dtype, data + (size_t)i * item, text);
      print_element(&r, text);
    }
    tdict_tensor_release(chunk);
  }
  if (r.left) putchar('\n');                         /* the last line is cut */
  if (r.ragged && count == tdict_tensor_numel(flat)) /* empty rows at the end */
    while (r.next_row++ < tdict_ragged_get_info(r.ragged).num_rows) putchar('\n');
  return TDICT_OK;
}

/* Says on the standard error output that elements were left out, unless the user has chosen the number. */
static int64_t limit_count(const options *o, int64_t count, const char *what) {
  const int64_t shown = count < o->most ? count : o->most;
  if (shown < count && !o->has_limit)
    fprintf(stderr, "tdict: %" PRId64 " of %" PRId64 " %s shown; --all shows all\n", shown, count, what);
  return shown;
}

static int cat_tensor(const options *o, const leaf *l) {
  tdict_tensor *flat = NULL;
  tdict_error err;
  tdict_status status = elements_flatten(l->tensor, &flat, &err);
  if (status == TDICT_OK) {
    const int64_t count = limit_count(o, tdict_tensor_numel(flat), "elements");
    const size_t item = tdict_dtype_bytes(tdict_tensor_dtype(flat));
    if (count && o->raw)
      fwrite(tdict_tensor_const_data(flat), item, (size_t)count, stdout); /* main() checks for errors */
    else
      status = print_elements(l, flat, count, &err);
  }
  tdict_tensor_release(flat);
  return status == TDICT_OK ? TOOL_OK : tool_fail(o->input.arguments[0], &err);
}

static void print_value(const tdict_value *value) {
  switch (value->kind) {
  case TDICT_VALUE_BOOL:
    puts(value->integer ? "true" : "false");
    break;
  case TDICT_VALUE_INTEGER:
    printf("%" PRId64 "\n", value->integer);
    break;
  case TDICT_VALUE_REAL: {
    char text[ELEMENT_TEXT_BYTES];
    element_text(TDICT_F64, &value->real, text);
    puts(text);
    break;
  }
  case TDICT_VALUE_TEXT:
  case TDICT_VALUE_JSON:
    fwrite(value->text, 1, value->length, stdout);
    if (!value->length || value->text[value->length - 1] != '\n') putchar('\n');
    break;
  default:
    puts("null");
  }
}

static int fail_raw(const options *o) {
  fprintf(stderr, "tdict: %s: %s: --raw needs a tensor, or a single text\n", o->input.arguments[0],
          o->input.arguments[1]);
  return TOOL_FAILED;
}

static int cat_values(const options *o, const leaf *l) {
  const int64_t *shape = NULL;
  tdict_value value;
  tdict_error err;
  int64_t count = 1;
  const int ndim = tdict_nontensor_shape(l->values, &shape);
  for (int i = 0; i < ndim; i++) count *= shape[i];
  if (o->raw && ndim) return fail_raw(o);
  if (!o->raw) count = limit_count(o, count, "values");
  for (int64_t i = 0; i < count; i++) {
    if (tdict_nontensor_get(l->values, i, &value, &err) != TDICT_OK) return tool_fail(o->input.arguments[0], &err);
    if (!o->raw)
      print_value(&value);
    else if (value.text)
      fwrite(value.text, 1, value.length, stdout);
    else
      return fail_raw(o);
  }
  return TOOL_OK;
}

/* Returns the path that the argument KEY means, which the caller frees. Of a flat tree, KEY is a name in the file, or
 * else a path. Returns NULL if memory is exhausted. */
static char *path_of_key(const options *o, const tdict_tree *tree) {
  const char *key = o->input.arguments[1];
  const size_t bytes = tdict_path_escape(key, NULL, 0) + 1;
  char *path = malloc(bytes);
  if (!path) return NULL;
  tdict_path_escape(key, path, bytes);
  if (!o->input.open.flat || (!tdict_has(tree, path) && tdict_has(tree, key))) strcpy(path, key);
  return path;
}

static int cat_entry(const options *o, const tdict_tree *tree, const char *key) {
  const char *path = o->input.arguments[0];
  tdict_entry entry;
  tdict_error err;
  leaf l;
  if (tdict_get_entry(tree, key, &entry, &err) != TDICT_OK || leaf_describe(tree, &entry, &l, &err) != TDICT_OK)
    return tool_fail(path, &err);
  if (l.tensor) return cat_tensor(o, &l);
  if (l.values) return cat_values(o, &l);
  fprintf(stderr, "tdict: %s: %s: the entry is a tree, wanted a tensor or a value\n", path, key);
  return TOOL_FAILED;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *o = state->input;
  switch (key) {
  case 'n':
    o->most = tool_parse_number(state, "--head", arg, 0, INT64_MAX);
    o->has_limit = true;
    return 0;
  case 'a':
    o->most = INT64_MAX;
    o->has_limit = true;
    return 0;
  case 'r':
    o->raw = true;
    return 0;
  case ARGP_KEY_END:
    if (o->raw && !o->has_limit) o->most = INT64_MAX;
    return 0;
  default:
    return tool_parse_nothing(key, arg, state);
  }
}

static int run(int argc, char **argv) {
  static const struct argp_option table[] = {
      {"head", 'n', "N", 0, "print the first N elements (default: 1000)", 0},
      {"all", 'a', NULL, 0, "print all elements", 0},
      {"raw", 'r', NULL, 0, "write the bytes of all elements in C order, or the bytes of a text", 0},
      {0}};
  static const struct argp argp = {
      table,
      parse,
      "PATH KEY",
      "Prints the elements of the entry KEY of the file or folder PATH. Each line has the "
      "elements of one row, which is the last dimension. Of a ragged entry, each line has one row of "
      "the entry. Write a backslash before each dot and backslash of a key. With --flat, KEY is the name in the file.\v"
      "Exit status: 0 success, 1 PATH or KEY cannot be read, 2 wrong usage.",
      tool_input_child,
      NULL,
      NULL};
  options o = {.input = {.open = tdict_open_options_default(), .names = {"PATH", "KEY"}}, .most = MOST_ELEMENTS};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  tdict_tree *tree = tool_open(o.input.arguments[0], &o.input.open);
  if (!tree) return TOOL_FAILED;
  char *key = path_of_key(&o, tree);
  const int status = key ? cat_entry(&o, tree, key) : tool_fail_memory();
  free(key);
  tdict_release(tree);
  return status;
}

const tool_command tool_cat = {"cat", "prints the elements of one entry", run, TOOL_FAILED};
