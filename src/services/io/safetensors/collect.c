/* Collects the tensors of a tree that is written, and writes TensorDict's entry. See safetensors.h for ownership and
 * threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/json/value.h"
#include "services/io/safetensors/safetensors.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"

/* The walk of a tree. `name` is the name of the entry in the file. `path` is the path of the entry, for messages. */
typedef struct collector {
  tdict_out_tree *out;
  tdict_io_text name, path;
  bool without_structure;
  int depth;
} collector;

static tdict_status collect_level(collector *c, const tdict_tree *tree, tdict_error *err);

static tdict_status fail_memory(const collector *c, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->out->contents.path, "%s: no host memory for the keys of the tree",
                         c->out->contents.what);
}

static tdict_status fail_here(const collector *c, const char *why, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOTSUP, c->path.bytes ? c->path.bytes : "", "%s: %s", c->out->contents.what, why);
}

/* Adds a tensor. The name of the tensor is the current name, followed by `end` if `end` is not NULL. Writes the name to
 * the entry. */
static tdict_status add_tensor(collector *c, const tdict_tensor *tensor, const char *end, tdict_error *err) {
  tdict_out_tree *out = c->out;
  char text[TDICT_DTYPE_TEXT_BYTES], why[96];
  tdict_out_tensor made = {.tensor = tensor, .dtype = tdict_safetensors_of(tdict_tensor_dtype(tensor))};
  const size_t length = c->name.length;
  if (!made.dtype) {
    snprintf(why, sizeof why, "safetensors has no dtype for %s",
             tdict_dtype_format(tdict_tensor_dtype(tensor), text, sizeof text));
    return fail_here(c, why, err);
  }
  if (out->num_tensors == out->cap_tensors) {
    size_t bytes, cap = out->cap_tensors ? 2 * out->cap_tensors : 64;
    tdict_out_tensor *grown = tdict_mul_size(cap, sizeof *grown, &bytes) ? realloc(out->tensors, bytes) : NULL;
    if (!grown) return fail_memory(c, err);
    out->tensors = grown;
    out->cap_tensors = cap;
  }
  if (end) tdict_io_text_add_string(&c->name, end);
  if (c->name.has_failed) return fail_memory(c, err);
  tdict_status status = tdict_contents_copy_text(&out->contents, c->name.bytes, c->name.length, &made.name, err);
  tdict_io_text_cut(&c->name, length);
  if (status != TDICT_OK) return status;
  out->tensors[out->num_tensors++] = made;
  if (c->without_structure) return TDICT_OK;
  tdict_io_text_add_string(&out->structure, "{\"tensor\":");
  tdict_io_text_add_json(&out->structure, made.name, strlen(made.name));
  return TDICT_OK;
}

static tdict_status add_value(collector *c, const tdict_value *value, tdict_error *err) {
  const char *why;
  tdict_status status = tdict_value_to_json(&c->out->structure, value, &why);
  if (status == TDICT_ENOTSUP) return fail_here(c, why, err);
  return status == TDICT_OK ? TDICT_OK : fail_memory(c, err);
}

static tdict_status collect_values(collector *c, const tdict_nontensor *values, tdict_error *err) {
  const int64_t *shape;
  const int ndim = tdict_nontensor_shape(values, &shape);
  tdict_io_text *text = &c->out->structure;
  const int64_t count = tdict_nontensor_count(values);
  tdict_value value;
  tdict_status status = TDICT_OK;
  if (c->without_structure) return fail_here(c, "values need TensorDict's entry", err);
  tdict_io_text_add_string(text, "{\"non_tensor\":");
  if (ndim) tdict_io_text_add(text, "[", 1);
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) {
    if (i) tdict_io_text_add(text, ",", 1);
    status = tdict_nontensor_get(values, i, &value, err);
    if (status == TDICT_OK) status = add_value(c, &value, err);
  }
  if (status != TDICT_OK || !ndim) {
    tdict_io_text_add(text, "}", 1);
    return status;
  }
  tdict_io_text_add_string(text, "],\"tdict\":\"column\",\"shape\":");
  tdict_io_text_add_sizes(text, ndim, shape);
  tdict_io_text_add(text, "}", 1);
  return TDICT_OK;
}

static tdict_status collect_ragged(collector *c, const tdict_tree *tree, const tdict_ragged *ragged, tdict_error *err) {
  tdict_io_text *text = &c->out->structure;
  if (c->without_structure) return fail_here(c, "a ragged leaf needs TensorDict's entry", err);
  tdict_io_text_add_string(text, "{\"td\":{\"batch_size\":");
  tdict_io_text_add_sizes(text, tdict_batch_ndim(tree), tdict_batch_size(tree));
  tdict_io_text_add_string(text, ",\"names\":null,\"tdict\":\"ragged\",\"keys\":{\"values\":");
  tdict_status status = add_tensor(c, tdict_ragged_get_info(ragged).values, ".values", err);
  tdict_io_text_add_string(text, ",\"unbatched\":true},\"offsets\":");
  if (status == TDICT_OK) status = add_tensor(c, tdict_ragged_get_info(ragged).offsets, ".offsets", err);
  tdict_io_text_add_string(text, ",\"unbatched\":true}}}}");
  return status;
}

static tdict_status collect_object(collector *c, const tdict_tree *tree, const tdict_entry *entry, tdict_error *err) {
  if (entry->type == tdict_nontensor_type()) return collect_values(c, entry->object, err);
  if (entry->type == tdict_ragged_type()) return collect_ragged(c, tree, entry->object, err);
  if (entry->type != tdict_unbatched_type()) {
    char why[128];
    snprintf(why, sizeof why, "an object of type %.60s cannot be written", entry->type->name);
    return fail_here(c, why, err);
  }
  tdict_tensor *tensor = NULL;
  tdict_status status = tdict_get_unbatched(tree, entry->path, &tensor, err);
  if (status == TDICT_OK) status = add_tensor(c, tensor, NULL, err);
  if (!c->without_structure) tdict_io_text_add_string(&c->out->structure, ",\"unbatched\":true}");
  return status;
}

/* Collects the entry at the current path. */
static tdict_status collect_entry(collector *c, const tdict_tree *tree, tdict_entry *entry, tdict_error *err) {
  tdict_io_text *text = &c->out->structure;
  if (entry->object) return collect_object(c, tree, entry, err);
  if (entry->tensor) {
    tdict_status status = add_tensor(c, entry->tensor, NULL, err);
    if (!c->without_structure) tdict_io_text_add(text, "}", 1);
    return status;
  }
  if (c->depth == TDICT_IO_MAX_DEPTH) return fail_here(c, "more than 128 nested trees", err);
  if (c->without_structure && tdict_num_keys(entry->tree) == 0)
    return fail_here(c, "an empty tree needs TensorDict's entry", err);
  if (!c->without_structure) tdict_io_text_add_string(text, "{\"td\":");
  tdict_status status = collect_level(c, entry->tree, err);
  if (!c->without_structure) tdict_io_text_add(text, "}", 1);
  return status;
}

/* Adds the key to the name and to the path, and writes the key to the entry. `escaped` receives the start of the
 * escaped key in the path. */
static tdict_status push_key(collector *c, const char *key, size_t *escaped, tdict_error *err) {
  const size_t length = strlen(key), bytes = tdict_path_escape(key, NULL, 0) + 1;
  if (c->path.length) tdict_io_text_add(&c->path, ".", 1);
  *escaped = c->path.length;
  char *to = tdict_io_text_reserve(&c->path, bytes);
  if (!to) return fail_memory(c, err);
  tdict_path_escape(key, to, bytes);
  c->path.length += bytes - 1;
  if (tdict_utf8_length(key, length) != length) return fail_here(c, "the key is not UTF-8", err);
  if (c->name.length) tdict_io_text_add(&c->name, ".", 1);
  tdict_io_text_add(&c->name, key, length);
  if (c->without_structure) return TDICT_OK;
  tdict_io_text_add_json(&c->out->structure, key, length);
  tdict_io_text_add(&c->out->structure, ":", 1);
  return TDICT_OK;
}

static tdict_status collect_keys(collector *c, const tdict_tree *tree, tdict_error *err) {
  const size_t name_length = c->name.length, path_length = c->path.length, count = tdict_num_keys(tree);
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_entry entry = tdict_get_entry_at(tree, i);
    size_t escaped = 0;
    if (i && !c->without_structure) tdict_io_text_add(&c->out->structure, ",", 1);
    status = push_key(c, entry.key, &escaped, err);
    if (status != TDICT_OK) return status;
    entry.path = c->path.bytes + escaped;
    status = collect_entry(c, tree, &entry, err);
    tdict_io_text_cut(&c->name, name_length);
    tdict_io_text_cut(&c->path, path_length);
  }
  return status;
}

/* Collects all entries of a tree. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status collect_level(collector *c, const tdict_tree *tree, tdict_error *err) {
  tdict_io_text *text = &c->out->structure;
  if (!c->without_structure) {
    tdict_io_text_add_string(text, "{\"batch_size\":");
    tdict_io_text_add_sizes(text, tdict_batch_ndim(tree), tdict_batch_size(tree));
    tdict_io_text_add_string(text, ",\"names\":null,\"keys\":{");
  }
  c->depth++;
  tdict_status status = collect_keys(c, tree, err);
  c->depth--;
  if (!c->without_structure) tdict_io_text_add_string(text, "}}");
  return status;
}

/* Orders tensors as the package safetensors does: by dtype, the last dtype of the table first, then by name. */
static int compare_tensors(const void *a, const void *b) {
  const tdict_out_tensor *x = a, *y = b;
  if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const tdict_out_tensor *)a)->name, ((const tdict_out_tensor *)b)->name);
}

/* Checks that all names differ and that no tensor has the name "__metadata__". Sorts the tensors. */
static tdict_status sort_tensors(tdict_out_tree *out, tdict_error *err) {
  tdict_out_tensor *t = out->tensors;
  if (!out->num_tensors) return TDICT_OK;
  qsort(t, out->num_tensors, sizeof *t, compare_names);
  for (size_t i = 0; i < out->num_tensors; i++) {
    if (strcmp(t[i].name, "__metadata__") == 0)
      return tdict_fail_file(err, TDICT_ENOTSUP, t[i].name, "%s: safetensors reserves the name '__metadata__'",
                             out->contents.what);
    if (i && strcmp(t[i - 1].name, t[i].name) == 0)
      return tdict_fail_file(err, TDICT_EEXIST, t[i].name, "%s: two tensors have the name '%.100s' in the file",
                             out->contents.what, t[i].name);
  }
  qsort(t, out->num_tensors, sizeof *t, compare_tensors);
  return TDICT_OK;
}

/* Fills the error of an entry of the option `metadata`. */
static tdict_status fail_metadata(const tdict_out_tree *out, const tdict_entry *entry, const char *why,
                                  tdict_error *err) {
  return tdict_fail_file(err, TDICT_EINVAL, entry->key, "%s: metadata: %s", out->contents.what, why);
}

/* Writes the entries of the metadata other than TensorDict's entry. */
static tdict_status collect_metadata(tdict_out_tree *out, const tdict_save_options *options, tdict_error *err) {
  tdict_io_text *text = &out->metadata;
  const size_t count = options->metadata ? tdict_num_keys(options->metadata) : 0;
  /* transformers 4 refuses files without this entry. */
  if (!options->metadata && !options->without_structure) tdict_io_text_add_string(text, "\"format\":\"pt\"");
  for (size_t i = 0; i < count; i++) {
    const tdict_entry entry = tdict_get_entry_at(options->metadata, i);
    tdict_value value = {0};
    tdict_status status = TDICT_OK;
    const bool is_value = entry.type == tdict_nontensor_type() && tdict_nontensor_shape(entry.object, NULL) == 0;
    if (is_value) status = tdict_nontensor_get(entry.object, 0, &value, err);
    if (status != TDICT_OK) return status;
    if (value.kind != TDICT_VALUE_TEXT) return fail_metadata(out, &entry, "the entry is not text", err);
    if (tdict_utf8_length(entry.key, strlen(entry.key)) != strlen(entry.key) ||
        tdict_utf8_length(value.text, value.length) != value.length)
      return fail_metadata(out, &entry, "the key or the text is not UTF-8", err);
    if (strcmp(entry.key, "tensordict") == 0 || (options->max_shard_bytes && strcmp(entry.key, "total_size") == 0))
      return fail_metadata(out, &entry, "tdict_save() writes the entry of this key", err);
    if (i) tdict_io_text_add(text, ",", 1);
    tdict_io_text_add_json(text, entry.key, strlen(entry.key));
    tdict_io_text_add(text, ":", 1);
    tdict_io_text_add_json(text, value.text, value.length);
  }
  return text->has_failed ? tdict_fail_file(err, TDICT_ENOMEM, out->contents.path,
                                            "%s: no host memory for the metadata", out->contents.what)
                          : TDICT_OK;
}

tdict_status tdict_out_tree_collect(tdict_out_tree *out, const tdict_tree *tree, const tdict_save_options *options,
                                    tdict_error *err) {
  const bool without_structure = options->without_structure;
  collector c = {.out = out, .without_structure = without_structure};
  tdict_json_fault fault;
  if (!without_structure) tdict_io_text_add_string(&out->structure, "{\"version\":1,\"root\":");
  tdict_status status = collect_level(&c, tree, err);
  if (!without_structure) tdict_io_text_add(&out->structure, "}", 1);
  if (status == TDICT_OK && (out->structure.has_failed || c.name.has_failed || c.path.has_failed))
    status = fail_memory(&c, err);
  /* The entry must be readable: a JSON text below many trees can exceed the maximum number of levels. */
  if (status == TDICT_OK && !without_structure &&
      !tdict_json_is_valid(out->structure.bytes, out->structure.length, &fault))
    status = tdict_fail_file(err, TDICT_ENOTSUP, out->contents.path, "%s: TensorDict's entry cannot be read again: %s",
                             out->contents.what, fault.why);
  tdict_io_text_reset(&c.name);
  tdict_io_text_reset(&c.path);
  if (status == TDICT_OK) status = collect_metadata(out, options, err);
  return status == TDICT_OK ? sort_tensors(out, err) : status;
}

void tdict_out_tree_reset(tdict_out_tree *out) {
  free(out->tensors);
  out->tensors = NULL;
  out->num_tensors = out->cap_tensors = 0;
  tdict_io_text_reset(&out->structure);
  tdict_io_text_reset(&out->metadata);
  tdict_contents_close(&out->contents);
}
