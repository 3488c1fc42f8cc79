/* Writes consolidated files of TensorDict. See consolidated_read.c for the format. Owns nothing. Thread-safe. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/listing.h"
#include "services/io/output/output.h"
#include "services/io/tensordict/tensordict.h"

enum { ALIGNMENT = 8 };

/* The state of a writer. The tensors are in the order of the file. */
typedef struct writer {
  const tdict_save_request *request;
  tdict_listing list;
  tdict_output_part *parts; /* owned */
  uint64_t bytes;           /* total bytes of the tensors, with padding */
  tdict_io_text json;
} writer;

static tdict_status add_node(writer *w, const tdict_listed *tree, tdict_error *err);

static void add_part(writer *w, size_t number, const tdict_listed *entry, const tdict_tensor *tensor) {
  /* TensorDict, which leaves no holes, reads complex128 only at multiples of 16 bytes. */
  const size_t width = tdict_dtype_bytes(tdict_tensor_dtype(tensor));
  const uint64_t offset = tdict_align((size_t)w->bytes, width > ALIGNMENT ? width : ALIGNMENT);
  w->parts[number] = (tdict_output_part){tensor, entry->path, offset};
  w->bytes = offset + tdict_align(tdict_tensor_bytes(tensor), ALIGNMENT);
}

static tdict_status place_tensors(writer *w, tdict_error *err) {
  w->parts = calloc(w->list.num_tensors + 1, sizeof *w->parts);
  if (!w->parts) return tdict_listing_no_memory(&w->list, err);
  for (size_t i = 0; i < w->list.count; i++) {
    const tdict_listed *entry = &w->list.entries[i];
    if (entry->tensor) add_part(w, entry->tensors, entry, entry->tensor);
    if (entry->offsets) add_part(w, entry->tensors + 1, entry, entry->offsets);
  }
  return TDICT_OK;
}

/* Begins a member of a JSON object. Writes a comma before all members but the first. */
static void begin_member(tdict_io_text *to, bool *has_members, const char *start, const char *key) {
  tdict_io_text name = {0};
  tdict_io_text_format(&name, "%s%s", start, key);
  if (*has_members) tdict_io_text_add_string(to, ", ");
  *has_members = true;
  if (name.has_failed) to->has_failed = true;
  if (!name.has_failed) tdict_td_add_string(to, name.bytes);
  tdict_io_text_add_string(to, ": ");
  tdict_io_text_reset(&name);
}

/* Adds a leaf: [dtype, shape, start, stop, pad]. Offsets also have the index of the ragged dimension, 1. */
static void add_leaf(tdict_io_text *to, const tdict_output_part *part, bool is_offsets) {
  const uint64_t bytes = tdict_tensor_bytes(part->tensor), whole = tdict_align((size_t)bytes, ALIGNMENT);
  tdict_io_text_format(to, "[\"%s\", ", tdict_torch_name(tdict_tensor_dtype(part->tensor)));
  tdict_io_text_add_sizes(to, ", ", tdict_tensor_ndim(part->tensor), tdict_tensor_shape(part->tensor));
  tdict_io_text_format(to, ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "%s]", part->offset, part->offset + whole,
                       whole - bytes, is_offsets ? ", 1" : "");
}

static void add_leaves(writer *w, const tdict_listed *tree) {
  const tdict_listed *entries = w->list.entries;
  bool has_members = false;
  for (const tdict_listed *e = tree + 1; e < entries + tree->end; e = entries + e->end) {
    const tdict_output_part *part = &w->parts[e->tensors];
    if (!e->tensor) continue;
    begin_member(&w->json, &has_members, e->offsets ? "<NJT_VALUES>" : "", e->key);
    add_leaf(&w->json, part, false);
    if (!e->offsets) continue;
    begin_member(&w->json, &has_members, "<NJT_OFFSETS>", e->key);
    add_leaf(&w->json, part + 1, true);
  }
}

/* Adds the value number `i`: [value, batch size, device]. `tree` is NULL in a column. */
static tdict_status add_value(writer *w, const tdict_listed *entry, int64_t i, const tdict_tree *tree,
                              tdict_error *err) {
  tdict_io_text_add(&w->json, "[", 1);
  tdict_status status = tdict_listing_add_value(&w->list, entry, i, tdict_td_add_value_json, &w->json, err);
  tdict_io_text_add_string(&w->json, ", ");
  tdict_io_text_add_sizes(&w->json, ", ", tree ? tdict_batch_ndim(tree) : 0, tree ? tdict_batch_size(tree) : NULL);
  tdict_io_text_add_string(&w->json, ", null]");
  return status;
}

/* Adds the values that hold for a whole tree. */
static tdict_status add_values(writer *w, const tdict_listed *tree, tdict_error *err) {
  const tdict_listed *entries = w->list.entries;
  bool has_members = false;
  tdict_status status = TDICT_OK;
  for (const tdict_listed *e = tree + 1; e < entries + tree->end && status == TDICT_OK; e = entries + e->end) {
    if (e->kind != TDICT_ITEM_VALUES || tdict_nontensor_shape(e->values, NULL)) continue;
    begin_member(&w->json, &has_members, "", e->key);
    status = add_value(w, e, 0, e->tree, err);
  }
  return status;
}

/* Adds a column as a NonTensorStack, with one node for each dimension. *next is the number of the next value. */
static tdict_status add_column(writer *w, const tdict_listed *entry, int dim, int64_t *next, tdict_error *err) {
  static const char end[] = "\"leaves\": {}, \"cls_metadata\": {\"stack_dim\": 0, \"stack_dim_name\": null, "
                            "\"is_locked\": false}";
  const int64_t *shape;
  const bool is_last = dim + 1 == tdict_nontensor_shape(entry->values, &shape);
  tdict_status status = TDICT_OK;
  tdict_io_text_add_string(&w->json, "{\"cls\": \"NonTensorStack\", \"non_tensors\": {");
  if (!is_last) tdict_io_text_format(&w->json, "}, %s", end);
  for (int64_t i = 0; i < shape[dim] && status == TDICT_OK; i++) {
    tdict_io_text_format(&w->json, "%s\"%" PRId64 "\": ", i || !is_last ? ", " : "", i);
    status = is_last ? add_value(w, entry, (*next)++, NULL, err) : add_column(w, entry, dim + 1, next, err);
  }
  if (is_last) tdict_io_text_format(&w->json, "}, %s", end);
  tdict_io_text_add(&w->json, "}", 1);
  return status;
}

/* Checks that the key does not replace a member of a node, or belongs to a ragged leaf. */
static tdict_status check_key(const writer *w, const tdict_listed *entry, bool is_node, tdict_error *err) {
  static const char *const reserved[] = {"cls", "non_tensors", "leaves", "cls_metadata", "size"};
  if (entry->kind != TDICT_ITEM_TREE && strncmp(entry->key, "<NJT", 4) == 0)
    return tdict_listing_refuse(&w->list, entry, "consolidated files reserve keys that begin with <NJT", err);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved && is_node; i++)
    if (strcmp(entry->key, reserved[i]) == 0)
      return tdict_listing_refuse(
          &w->list, entry, "consolidated files reserve the keys cls, non_tensors, leaves, cls_metadata and size", err);
  return TDICT_OK;
}

/* Adds the nodes of a tree: its trees and columns. */
static tdict_status add_children(writer *w, const tdict_listed *tree, tdict_error *err) {
  const tdict_listed *entries = w->list.entries;
  bool has_members = true;
  tdict_status status = TDICT_OK;
  for (const tdict_listed *e = tree + 1; e < entries + tree->end && status == TDICT_OK; e = entries + e->end) {
    const bool is_column = e->kind == TDICT_ITEM_VALUES && tdict_nontensor_shape(e->values, NULL);
    int64_t next = 0;
    status = check_key(w, e, is_column || e->kind == TDICT_ITEM_TREE, err);
    if (status != TDICT_OK || (!is_column && e->kind != TDICT_ITEM_TREE)) continue;
    begin_member(&w->json, &has_members, "", e->key);
    status = is_column ? add_column(w, e, 0, &next, err) : add_node(w, e, err);
  }
  return status;
}

/* Writes a tree as a node. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status add_node(writer *w, const tdict_listed *tree, tdict_error *err) {
  const tdict_listed *entries = w->list.entries;
  const int ndim = tdict_batch_ndim(tree->tree);
  bool has_unbatched = false;
  tdict_io_text *to = &w->json;
  const char *separator = ", \"size\": {\"unbatched\": [";
  tdict_io_text_add_string(to, "{\"cls\": \"TensorDict\", \"non_tensors\": {");
  tdict_status status = add_values(w, tree, err);
  if (status != TDICT_OK) return status;
  tdict_io_text_add_string(to, "}, \"leaves\": {");
  add_leaves(w, tree);
  tdict_io_text_add_string(to, "}, \"cls_metadata\": {\"device\": null, \"names\": [");
  for (int d = 0; d < ndim; d++) tdict_io_text_add_string(to, d ? ", null" : "null");
  tdict_io_text_add_string(to, "], \"batch_size\": ");
  tdict_io_text_add_sizes(to, ", ", ndim, tdict_batch_size(tree->tree));
  tdict_io_text_add_string(to, ", \"is_locked\": false}");
  for (const tdict_listed *e = tree + 1; e < entries + tree->end; e = entries + e->end) {
    if (e->kind != TDICT_ITEM_UNBATCHED) continue;
    tdict_io_text_add_string(to, separator);
    tdict_td_add_string(to, e->key);
    separator = ", ";
    has_unbatched = true;
  }
  if (has_unbatched) tdict_io_text_add_string(to, "]}");
  status = add_children(w, tree, err);
  tdict_io_text_add(to, "}", 1);
  return status;
}

/* Writes the JSON, and checks that the JSON can be read again. */
static tdict_status describe(writer *w, tdict_error *err) {
  const tdict_contents *c = &w->list.contents;
  tdict_json_fault fault;
  tdict_status status = place_tensors(w, err);
  if (status == TDICT_OK) status = add_node(w, w->list.entries, err);
  if (status != TDICT_OK) return status;
  if (w->json.has_failed) return tdict_listing_no_memory(&w->list, err);
  if (w->json.length > TDICT_TD_MAX_JSON)
    return tdict_fail_at(err, TDICT_ENOTSUP, c->path, "%s: the JSON has %zu bytes, wanted at most %d", c->what,
                         w->json.length, TDICT_TD_MAX_JSON);
  if (tdict_json_is_valid(w->json.bytes, w->json.length, &fault)) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ENOTSUP, c->path, "%s: the JSON cannot be read again: %s", c->what, fault.why);
}

static tdict_status write_file(void *user, tdict_output *to, tdict_error *err) {
  const writer *w = user;
  unsigned char length[8];
  tdict_status status = tdict_output_write_parts(to, w->request, w->parts, w->list.num_tensors, err);
  to->offset = w->bytes; /* what no part has written reads as zeros */
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)w->json.length >> 8 * i);
  if (status == TDICT_OK) status = tdict_output_write(to, w->json.bytes, w->json.length, err);
  if (status == TDICT_OK) status = tdict_output_write(to, length, sizeof length, err);
  return status == TDICT_OK ? tdict_format_check_start(to, err) : status;
}

tdict_status tdict_consolidated_save(const tdict_save_request *request, tdict_error *err) {
  static const tdict_format_rules rules = {"TensorDict's formats have", tdict_torch_name, false};
  writer w = {.request = request};
  tdict_status status = tdict_listing_make(&w.list, request, &rules, err);
  if (status == TDICT_OK) status = describe(&w, err);
  if (status == TDICT_OK) status = tdict_output_file(request, NULL, write_file, &w, err);
  free(w.parts);
  tdict_io_text_reset(&w.json);
  tdict_listing_reset(&w.list);
  return status;
}
