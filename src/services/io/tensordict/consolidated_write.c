/* Writes consolidated files of TensorDict. See consolidated_read.c for the format. Owns nothing. Thread-safe. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/format.h"
#include "services/io/json/value.h"
#include "services/io/output.h"
#include "services/io/tensordict/tensordict.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"

enum { ALIGNMENT = 8 };

typedef struct leaf {
  const tdict_tensor *tensor; /* borrowed */
  const char *name;           /* for messages */
  uint64_t offset;
} leaf;

/* The state of a writer. The leaves are in the order of the file. `contents` owns the names. */
typedef struct writer {
  tdict_contents contents;
  leaf *leaves; /* owned */
  size_t count, cap;
  uint64_t bytes; /* total bytes of the leaves added so far, with padding */
  tdict_io_text json, path;
  int depth;
} writer;

/* The parts of a node that is written. */
typedef struct node {
  tdict_io_text values, leaves, unbatched, children;
} node;

static tdict_status add_node(writer *w, const tdict_tree *tree, tdict_io_text *to, tdict_error *err);

static tdict_status fail_memory(const writer *w, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, w->contents.path, "%s: no host memory for the keys of the tree",
                         w->contents.what);
}

static tdict_status fail_here(const writer *w, const char *why, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOTSUP, w->path.bytes ? w->path.bytes : "", "%s: %s", w->contents.what, why);
}

static void begin_member(tdict_io_text *to, const char *start, const char *key) {
  tdict_io_text name = {0};
  tdict_io_text_add_string(&name, start);
  tdict_io_text_add_string(&name, key);
  if (to->length) tdict_io_text_add_string(to, ", ");
  if (name.has_failed) to->has_failed = true;
  if (!name.has_failed) tdict_td_add_string(to, name.bytes);
  tdict_io_text_add_string(to, ": ");
  tdict_io_text_reset(&name);
}

/* Adds a leaf: [dtype, shape, start, stop, pad]. If `is_offsets` is true, appends the index of the ragged dimension, 1,
 * to this list. */
static tdict_status add_leaf(writer *w, const tdict_tensor *tensor, bool is_offsets, tdict_io_text *to,
                             tdict_error *err) {
  char text[TDICT_DTYPE_TEXT_BYTES], why[96];
  const char *dtype = tdict_torch_name(tdict_tensor_dtype(tensor));
  const uint64_t bytes = tdict_tensor_bytes(tensor), whole = tdict_align((size_t)bytes, ALIGNMENT);
  /* TensorDict reads complex128 only at multiples of 16 bytes, so leave a hole if needed. TensorDict itself leaves no
   * holes. */
  const size_t width = tdict_dtype_bytes(tdict_tensor_dtype(tensor));
  leaf made = {.tensor = tensor, .offset = tdict_align((size_t)w->bytes, width > ALIGNMENT ? width : ALIGNMENT)};
  if (!dtype) {
    snprintf(why, sizeof why, "TensorDict's formats have no dtype for %s",
             tdict_dtype_format(tdict_tensor_dtype(tensor), text, sizeof text));
    return fail_here(w, why, err);
  }
  if (w->count == w->cap) {
    size_t size, cap = w->cap ? 2 * w->cap : 64;
    leaf *grown = tdict_mul_size(cap, sizeof *grown, &size) ? realloc(w->leaves, size) : NULL;
    if (!grown) return fail_memory(w, err);
    w->leaves = grown;
    w->cap = cap;
  }
  tdict_status status = tdict_contents_copy_text(&w->contents, w->path.bytes, w->path.length, &made.name, err);
  if (status != TDICT_OK) return status;
  w->leaves[w->count++] = made;
  tdict_io_text_format(to, "[\"%s\", ", dtype);
  tdict_td_add_sizes(to, tdict_tensor_ndim(tensor), tdict_tensor_shape(tensor));
  tdict_io_text_format(to, ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "%s]", made.offset, made.offset + whole,
                       whole - bytes, is_offsets ? ", 1" : "");
  w->bytes = made.offset + whole;
  return TDICT_OK;
}

/* Adds the value number `i`: [value, batch size, device]. */
static tdict_status add_value(writer *w, const tdict_nontensor *values, int64_t i, const tdict_tree *tree,
                              tdict_io_text *to, tdict_error *err) {
  tdict_value value;
  const char *why;
  tdict_status status = tdict_nontensor_get(values, i, &value, err);
  if (status != TDICT_OK) return status;
  tdict_io_text_add(to, "[", 1);
  status = tdict_td_add_value_json(to, &value, &why);
  if (status == TDICT_ENOTSUP) return fail_here(w, why, err);
  if (status != TDICT_OK) return fail_memory(w, err);
  tdict_io_text_add_string(to, ", ");
  tdict_td_add_sizes(to, tree ? tdict_batch_ndim(tree) : 0, tree ? tdict_batch_size(tree) : NULL);
  tdict_io_text_add_string(to, ", null]");
  return TDICT_OK;
}

/* Adds a column as a NonTensorStack, with one node for each dimension. *next is the number of the next value. */
static tdict_status add_column(writer *w, const tdict_nontensor *values, int dim, int64_t *next, tdict_io_text *to,
                               tdict_error *err) {
  static const char end[] = "\"leaves\": {}, \"cls_metadata\": {\"stack_dim\": 0, \"stack_dim_name\": null, "
                            "\"is_locked\": false}";
  const int64_t *shape;
  const bool is_last = dim + 1 == tdict_nontensor_shape(values, &shape);
  tdict_status status = TDICT_OK;
  tdict_io_text_add_string(to, "{\"cls\": \"NonTensorStack\", \"non_tensors\": {");
  if (!is_last) tdict_io_text_format(to, "}, %s", end);
  for (int64_t i = 0; i < shape[dim] && status == TDICT_OK; i++) {
    tdict_io_text_format(to, "%s\"%" PRId64 "\": ", i || !is_last ? ", " : "", i);
    status = is_last ? add_value(w, values, (*next)++, NULL, to, err) : add_column(w, values, dim + 1, next, to, err);
  }
  if (is_last) tdict_io_text_format(to, "}, %s", end);
  tdict_io_text_add(to, "}", 1);
  return status;
}

/* Starts a child node. Refuses keys that would replace a member of the node. */
static tdict_status begin_child(const writer *w, const char *key, node *n, tdict_error *err) {
  static const char *const reserved[] = {"cls", "non_tensors", "leaves", "cls_metadata", "size"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(key, reserved[i]) == 0)
      return fail_here(w, "consolidated files reserve the keys cls, non_tensors, leaves, cls_metadata and size", err);
  begin_member(&n->children, "", key);
  return TDICT_OK;
}

static tdict_status add_object(writer *w, const tdict_tree *tree, const tdict_entry *entry, node *n, tdict_error *err) {
  int64_t next = 0;
  tdict_status status = TDICT_OK;
  if (entry->type == tdict_nontensor_type()) {
    if (tdict_nontensor_shape(entry->object, NULL)) {
      status = begin_child(w, entry->key, n, err);
      return status == TDICT_OK ? add_column(w, entry->object, 0, &next, &n->children, err) : status;
    }
    begin_member(&n->values, "", entry->key);
    return add_value(w, entry->object, 0, tree, &n->values, err);
  }
  if (entry->type == tdict_ragged_type()) {
    begin_member(&n->leaves, "<NJT_VALUES>", entry->key);
    status = add_leaf(w, tdict_ragged_get_info(entry->object).values, false, &n->leaves, err);
    begin_member(&n->leaves, "<NJT_OFFSETS>", entry->key);
    return status == TDICT_OK ? add_leaf(w, tdict_ragged_get_info(entry->object).offsets, true, &n->leaves, err)
                              : status;
  }
  if (entry->type != tdict_unbatched_type()) {
    char why[128];
    snprintf(why, sizeof why, "an object of type %.60s cannot be written", entry->type->name);
    return fail_here(w, why, err);
  }
  tdict_tensor *tensor = NULL;
  status = tdict_get_unbatched(tree, entry->path, &tensor, err);
  if (status != TDICT_OK) return status;
  begin_member(&n->leaves, "", entry->key);
  if (n->unbatched.length) tdict_io_text_add_string(&n->unbatched, ", ");
  tdict_td_add_string(&n->unbatched, entry->key);
  return add_leaf(w, tensor, false, &n->leaves, err);
}

static tdict_status add_entry(writer *w, const tdict_tree *tree, const tdict_entry *entry, node *n, tdict_error *err) {
  if (!entry->tree && strncmp(entry->key, "<NJT", 4) == 0)
    return fail_here(w, "consolidated files reserve keys that begin with <NJT", err);
  if (entry->object) return add_object(w, tree, entry, n, err);
  if (entry->tensor) {
    begin_member(&n->leaves, "", entry->key);
    return add_leaf(w, entry->tensor, false, &n->leaves, err);
  }
  tdict_status status = begin_child(w, entry->key, n, err);
  return status == TDICT_OK ? add_node(w, entry->tree, &n->children, err) : status;
}

/* Adds the key to the path for messages. */
static tdict_status push_key(writer *w, const char *key, size_t *escaped, tdict_error *err) {
  const size_t length = strlen(key), bytes = tdict_path_escape(key, NULL, 0) + 1;
  if (w->path.length) tdict_io_text_add(&w->path, ".", 1);
  *escaped = w->path.length;
  char *to = tdict_io_text_reserve(&w->path, bytes);
  if (!to) return fail_memory(w, err);
  tdict_path_escape(key, to, bytes);
  w->path.length += bytes - 1;
  return tdict_utf8_length(key, length) == length ? TDICT_OK : fail_here(w, "the key is not UTF-8", err);
}

static tdict_status add_entries(writer *w, const tdict_tree *tree, node *n, tdict_error *err) {
  const size_t length = w->path.length, count = tdict_num_keys(tree);
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_entry entry = tdict_get_entry_at(tree, i);
    size_t escaped = 0;
    status = push_key(w, entry.key, &escaped, err);
    if (status != TDICT_OK) return status;
    entry.path = w->path.bytes + escaped;
    status = add_entry(w, tree, &entry, n, err);
    tdict_io_text_cut(&w->path, length);
  }
  return status;
}

static void append(tdict_io_text *to, const tdict_io_text *part) {
  if (part->has_failed) to->has_failed = true;
  if (part->length) tdict_io_text_add(to, part->bytes, part->length);
}

/* Joins the parts of a node. */
static void join_node(const tdict_tree *tree, const node *n, tdict_io_text *to) {
  const int ndim = tdict_batch_ndim(tree);
  tdict_io_text_add_string(to, "{\"cls\": \"TensorDict\", \"non_tensors\": {");
  append(to, &n->values);
  tdict_io_text_add_string(to, "}, \"leaves\": {");
  append(to, &n->leaves);
  tdict_io_text_add_string(to, "}, \"cls_metadata\": {\"device\": null, \"names\": [");
  for (int d = 0; d < ndim; d++) tdict_io_text_add_string(to, d ? ", null" : "null");
  tdict_io_text_add_string(to, "], \"batch_size\": ");
  tdict_td_add_sizes(to, ndim, tdict_batch_size(tree));
  tdict_io_text_add_string(to, ", \"is_locked\": false}");
  if (n->unbatched.length || n->unbatched.has_failed) {
    tdict_io_text_add_string(to, ", \"size\": {\"unbatched\": [");
    append(to, &n->unbatched);
    tdict_io_text_add_string(to, "]}");
  }
  if (n->children.length) tdict_io_text_add_string(to, ", ");
  append(to, &n->children);
  tdict_io_text_add(to, "}", 1);
}

/* Writes a tree as a node. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status add_node(writer *w, const tdict_tree *tree, tdict_io_text *to, tdict_error *err) {
  node n = {0};
  if (w->depth == TDICT_IO_MAX_DEPTH) return fail_here(w, "more than 128 nested trees", err);
  w->depth++;
  tdict_status status = add_entries(w, tree, &n, err);
  w->depth--;
  if (status == TDICT_OK) join_node(tree, &n, to);
  tdict_io_text_reset(&n.values);
  tdict_io_text_reset(&n.leaves);
  tdict_io_text_reset(&n.unbatched);
  tdict_io_text_reset(&n.children);
  return status;
}

/* Writes the JSON, and checks that the JSON can be read again. */
static tdict_status describe(writer *w, const tdict_tree *tree, tdict_error *err) {
  tdict_json_fault fault;
  tdict_status status = add_node(w, tree, &w->json, err);
  if (status != TDICT_OK) return status;
  if (w->json.has_failed || w->path.has_failed) return fail_memory(w, err);
  if (w->json.length > TDICT_TD_MAX_JSON)
    return tdict_fail_file(err, TDICT_ENOTSUP, w->contents.path, "%s: the JSON has %zu bytes, wanted at most %d",
                           w->contents.what, w->json.length, TDICT_TD_MAX_JSON);
  if (tdict_json_is_valid(w->json.bytes, w->json.length, &fault)) return TDICT_OK;
  return tdict_fail_file(err, TDICT_ENOTSUP, w->contents.path, "%s: the JSON cannot be read again: %s",
                         w->contents.what, fault.why);
}

static tdict_status write_file(void *user, tdict_output *to, tdict_error *err) {
  const writer *w = user;
  static const unsigned char zeros[2 * ALIGNMENT];
  unsigned char length[8];
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < w->count && status == TDICT_OK; i++) {
    status = tdict_output_write_tensor(to, w->leaves[i].tensor, w->leaves[i].name, err);
    const uint64_t next = i + 1 < w->count ? w->leaves[i + 1].offset : w->bytes;
    if (status == TDICT_OK) status = tdict_output_write(to, zeros, (size_t)(next - to->offset), err);
  }
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)w->json.length >> 8 * i);
  if (status == TDICT_OK) status = tdict_output_write(to, w->json.bytes, w->json.length, err);
  if (status == TDICT_OK) status = tdict_output_write(to, length, sizeof length, err);
  return status == TDICT_OK ? tdict_format_check_start(to, err) : status;
}

tdict_status tdict_consolidated_save(const tdict_save_request *request, tdict_error *err) {
  writer w = {0};
  tdict_contents_init(&w.contents, request->what, request->path);
  tdict_status status = describe(&w, request->tree, err);
  if (status == TDICT_OK) status = tdict_output_file(request, write_file, &w, err);
  free(w.leaves);
  tdict_io_text_reset(&w.json);
  tdict_io_text_reset(&w.path);
  tdict_contents_close(&w.contents);
  return status;
}
