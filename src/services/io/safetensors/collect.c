/* Collects the tensors of a tree, and writes TensorDict's entry. See safetensors.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/json/read.h"
#include "services/io/safetensors/safetensors.h"

static tdict_status add_level(tdict_out_tree *out, const tdict_listed *tree, tdict_error *err);

/* Adds a tensor, and writes its name, which is the name of the entry followed by `end`. */
static tdict_status add_tensor(tdict_out_tree *out, const tdict_listed *entry, const tdict_tensor *tensor,
                               const char *end, tdict_error *err) {
  tdict_out_tensor *made = &out->tensors[out->num_tensors];
  tdict_status status = tdict_contents_format(&out->list.contents, &made->name, err, "%s%s", entry->name, end);
  if (status != TDICT_OK) return status;
  made->tensor = tensor;
  made->dtype = tdict_safetensors_of(tdict_tensor_dtype(tensor));
  out->num_tensors++;
  tdict_io_text_add_string(&out->structure, "{\"tensor\":");
  tdict_io_text_add_json(&out->structure, made->name, strlen(made->name));
  return TDICT_OK;
}

static tdict_status add_values(tdict_out_tree *out, const tdict_listed *entry, tdict_error *err) {
  const int64_t *shape;
  const int ndim = tdict_nontensor_shape(entry->values, &shape);
  tdict_io_text *text = &out->structure;
  tdict_status status = TDICT_OK;
  tdict_io_text_add_string(text, ndim ? "{\"non_tensor\":[" : "{\"non_tensor\":");
  for (int64_t i = 0; i < tdict_nontensor_count(entry->values) && status == TDICT_OK; i++) {
    if (i) tdict_io_text_add(text, ",", 1);
    status = tdict_listing_add_value(&out->list, entry, i, tdict_value_to_json, text, err);
  }
  if (ndim) tdict_io_text_add_string(text, "],\"tdict\":\"column\",\"shape\":");
  if (ndim) tdict_io_text_add_sizes(text, ",", ndim, shape);
  tdict_io_text_add(text, "}", 1);
  return status;
}

static tdict_status add_ragged(tdict_out_tree *out, const tdict_listed *entry, tdict_error *err) {
  tdict_io_text *text = &out->structure;
  tdict_io_text_add_string(text, "{\"td\":{\"batch_size\":");
  tdict_io_text_add_sizes(text, ",", tdict_batch_ndim(entry->tree), tdict_batch_size(entry->tree));
  tdict_io_text_add_string(text, ",\"names\":null,\"tdict\":\"ragged\",\"keys\":{\"values\":");
  tdict_status status = add_tensor(out, entry, entry->tensor, ".values", err);
  tdict_io_text_add_string(text, ",\"unbatched\":true},\"offsets\":");
  if (status == TDICT_OK) status = add_tensor(out, entry, entry->offsets, ".offsets", err);
  tdict_io_text_add_string(text, ",\"unbatched\":true}}}}");
  return status;
}

static tdict_status add_entry(tdict_out_tree *out, const tdict_listed *entry, tdict_error *err) {
  tdict_io_text *text = &out->structure;
  tdict_status status;
  const bool is_bare = out->options->without_structure;
  if (is_bare && entry->kind == TDICT_ITEM_VALUES)
    return tdict_listing_refuse(&out->list, entry, "values need TensorDict's entry", err);
  if (is_bare && entry->kind == TDICT_ITEM_RAGGED_VALUES)
    return tdict_listing_refuse(&out->list, entry, "a ragged leaf needs TensorDict's entry", err);
  if (is_bare && entry->kind == TDICT_ITEM_TREE && tdict_num_keys(entry->tree) == 0)
    return tdict_listing_refuse(&out->list, entry, "an empty tree needs TensorDict's entry", err);
  switch (entry->kind) {
  case TDICT_ITEM_VALUES:
    return add_values(out, entry, err);
  case TDICT_ITEM_RAGGED_VALUES:
    return add_ragged(out, entry, err);
  case TDICT_ITEM_TREE:
    tdict_io_text_add_string(text, "{\"td\":");
    status = add_level(out, entry, err);
    tdict_io_text_add(text, "}", 1);
    return status;
  default:
    status = add_tensor(out, entry, entry->tensor, "", err);
    tdict_io_text_add_string(text, entry->kind == TDICT_ITEM_UNBATCHED ? ",\"unbatched\":true}" : "}");
    return status;
  }
}

/* Adds all entries of a tree. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status add_level(tdict_out_tree *out, const tdict_listed *tree, tdict_error *err) {
  const tdict_listed *entries = out->list.entries, *first = tree + 1;
  tdict_io_text *text = &out->structure;
  tdict_status status = TDICT_OK;
  tdict_io_text_add_string(text, "{\"batch_size\":");
  tdict_io_text_add_sizes(text, ",", tdict_batch_ndim(tree->tree), tdict_batch_size(tree->tree));
  tdict_io_text_add_string(text, ",\"names\":null,\"keys\":{");
  for (const tdict_listed *e = first; e < entries + tree->end && status == TDICT_OK; e = entries + e->end) {
    if (e > first) tdict_io_text_add(text, ",", 1);
    tdict_io_text_add_json(text, e->key, strlen(e->key));
    tdict_io_text_add(text, ":", 1);
    status = add_entry(out, e, err);
  }
  tdict_io_text_add_string(text, "}}");
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
      return tdict_fail_at(err, TDICT_ENOTSUP, t[i].name, "%s: safetensors reserves the name '__metadata__'",
                           out->list.contents.what);
    if (i && strcmp(t[i - 1].name, t[i].name) == 0)
      return tdict_fail_at(err, TDICT_EEXIST, t[i].name, "%s: two tensors have the name '%.100s' in the file",
                           out->list.contents.what, t[i].name);
  }
  qsort(t, out->num_tensors, sizeof *t, compare_tensors);
  return TDICT_OK;
}

/* Writes the entries of the metadata other than TensorDict's entry. */
static tdict_status collect_metadata(tdict_out_tree *out, tdict_error *err) {
  const tdict_save_options *options = out->options;
  tdict_io_text *text = &out->metadata;
  const size_t count = options->metadata ? tdict_num_keys(options->metadata) : 0;
  /* transformers 4 refuses files without this entry. */
  if (!options->metadata && !options->without_structure) tdict_io_text_add_string(text, "\"format\":\"pt\"");
  for (size_t i = 0; i < count; i++) {
    const tdict_entry entry = tdict_get_entry_at(options->metadata, i);
    tdict_value value = {0};
    const char *why = NULL;
    tdict_status status = TDICT_OK;
    const bool is_value = entry.type == tdict_nontensor_type() && tdict_nontensor_shape(entry.object, NULL) == 0;
    if (is_value) status = tdict_nontensor_get(entry.object, 0, &value, err);
    if (status != TDICT_OK) return status;
    if (value.kind != TDICT_VALUE_TEXT)
      why = "the entry is not text";
    else if (tdict_utf8_length(entry.key, strlen(entry.key)) != strlen(entry.key) ||
             tdict_utf8_length(value.text, value.length) != value.length)
      why = "the key or the text is not UTF-8";
    else if (strcmp(entry.key, "tensordict") == 0 || (options->max_shard_bytes && strcmp(entry.key, "total_size") == 0))
      why = "tdict_save() writes the entry of this key";
    if (why) return tdict_fail_at(err, TDICT_EINVAL, entry.key, "%s: metadata: %s", out->list.contents.what, why);
    if (i) tdict_io_text_add(text, ",", 1);
    tdict_io_text_add_json(text, entry.key, strlen(entry.key));
    tdict_io_text_add(text, ":", 1);
    tdict_io_text_add_json(text, value.text, value.length);
  }
  return text->has_failed ? tdict_listing_no_memory(&out->list, err) : TDICT_OK;
}

static const char *name_of_dtype(tdict_dtype dtype) {
  const tdict_safetensors_dtype *found = tdict_safetensors_of(dtype);
  return found ? found->name : NULL;
}

/* Adds the tensors of the listing, and writes TensorDict's entry unless the options leave it out. */
static tdict_status collect_tensors(tdict_out_tree *out, tdict_error *err) {
  tdict_json_fault fault;
  tdict_io_text *text = &out->structure;
  out->tensors = calloc(out->list.num_tensors + 1, sizeof *out->tensors);
  if (!out->tensors) return tdict_listing_no_memory(&out->list, err);
  tdict_io_text_add_string(text, "{\"version\":1,\"root\":");
  tdict_status status = add_level(out, out->list.entries, err);
  tdict_io_text_add(text, "}", 1);
  if (status == TDICT_OK && text->has_failed) status = tdict_listing_no_memory(&out->list, err);
  if (status != TDICT_OK) return status;
  if (out->options->without_structure) tdict_io_text_reset(text);
  /* The entry must be readable: a JSON text below many trees can exceed the maximum number of levels. */
  else if (!tdict_json_is_valid(text->bytes, text->length, &fault))
    return tdict_fail_at(err, TDICT_ENOTSUP, out->list.contents.path, "%s: TensorDict's entry cannot be read again: %s",
                         out->list.contents.what, fault.why);
  return TDICT_OK;
}

tdict_status tdict_out_tree_collect(tdict_out_tree *out, const tdict_save_request *request, tdict_error *err) {
  static const tdict_format_rules rules = {"safetensors has", name_of_dtype, false};
  *out = (tdict_out_tree){.options = request->options};
  tdict_status status = tdict_listing_make(&out->list, request, &rules, err);
  if (status == TDICT_OK) status = collect_tensors(out, err);
  if (status == TDICT_OK) status = collect_metadata(out, err);
  return status == TDICT_OK ? sort_tensors(out, err) : status;
}

void tdict_out_tree_reset(tdict_out_tree *out) {
  free(out->tensors);
  tdict_io_text_reset(&out->structure);
  tdict_io_text_reset(&out->metadata);
  tdict_listing_reset(&out->list);
}
