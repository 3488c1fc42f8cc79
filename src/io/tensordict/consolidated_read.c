/* Reads consolidated files of TensorDict. See tensordict.h for ownership and threads.
 *
 * A file is [elements][JSON][length of the JSON: 8 bytes, little-endian]. The JSON is a node. A node has the members
 * `cls`, `non_tensors`, `leaves` and `cls_metadata`, and a node for each child. TensorDict ignores the member `size`,
 * in which the writer of tdict names leaves without batch dimensions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/tensordict/tensordict.h"
#include "tensor/layout.h"

enum { LENGTH_BYTES = 8, LEAF_MEMBERS = 5, MOST_PAD = 7 };
static const char values_mark[] = "<NJT_VALUES>", offsets_mark[] = "<NJT_OFFSETS>";

typedef struct node_reader {
  tdict_td_reader base;
  size_t file;
  uint64_t payload; /* bytes of the elements */
} node_reader;

static tdict_status read_node(node_reader *r, json_t *node, tdict_error *err);

/* Reads the position and the length of the JSON. Returns false if the file does not end as a consolidated file. */
static bool find_json(const tdict_contents *c, size_t file, tdict_span *out) {
  static const char start[] = "{\"cls\"";
  const uint64_t bytes = c->files[file].bytes;
  unsigned char length[LENGTH_BYTES], first[sizeof start - 1];
  uint64_t count = 0;
  if (bytes < LENGTH_BYTES + sizeof first) return false;
  if (tdict_contents_read(c, (tdict_span){file, bytes - LENGTH_BYTES, LENGTH_BYTES}, length, NULL) != TDICT_OK)
    return false;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) count = count << 8 | length[i];
  if (count < sizeof first || count > bytes - LENGTH_BYTES) return false;
  *out = (tdict_span){file, bytes - LENGTH_BYTES - count, count};
  return tdict_contents_read(c, (tdict_span){file, out->offset, sizeof first}, first, NULL) == TDICT_OK &&
         memcmp(first, start, sizeof first) == 0;
}

bool tdict_consolidated_is(const tdict_contents *contents, size_t file) {
  tdict_span json;
  return find_json(contents, file, &json);
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Reads member `i` of a leaf, which must be an integer from 0 to `most`. */
static tdict_status read_number(const node_reader *r, const json_t *leaf, size_t i, uint64_t most, uint64_t *out,
                                tdict_error *err) {
  static const char *const names[] = {"dtype", "shape", "start", "stop", "pad"};
  const tdict_json_place place = tdict_td_place(&r->base);
  const json_t *value = json_array_get(leaf, i);
  if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
    return tdict_json_fail(&place, err, "%s is no integer from 0 to %" PRIu64, names[i], most);
  *out = (uint64_t)json_integer_value(value);
  return TDICT_OK;
}

/* Reads a leaf: [dtype, shape, start, stop, pad]. In a leaf of offsets, the index of the ragged dimension follows. */
static tdict_status read_leaf(node_reader *r, const json_t *leaf, tdict_item_kind kind, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  tdict_item item = {.kind = kind, .span = {.file = r->file}};
  tdict_layout_size size;
  tdict_sizes shape;
  uint64_t stop = 0, pad = 0;
  const size_t members = json_array_size(leaf); /* 0 if the leaf is no array */
  if (members != LEAF_MEMBERS && members != LEAF_MEMBERS + 1)
    return tdict_json_fail(&place, err, "a leaf is no array of %d members", LEAF_MEMBERS);
  tdict_status status = tdict_torch_dtype(&place, json_array_get(leaf, 0), &item.dtype, err);
  if (status == TDICT_OK)
    status = tdict_json_sizes(&place, "shape", json_array_get(leaf, 1), TDICT_MAX_NDIM, &shape, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 2, r->payload, &item.span.offset, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 3, r->payload, &stop, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 4, MOST_PAD, &pad, err);
  if (status != TDICT_OK) return status;
  if (tdict_layout_check(place.contents->what, item.dtype, shape.count, shape.at, &size, NULL) != TDICT_OK)
    return tdict_json_fail(&place, err, "the bytes of the shape do not fit 63 bits");
  item.span.bytes = size.bytes;
  if (stop < item.span.offset || stop - item.span.offset < pad || stop - item.span.offset - pad != size.bytes)
    return tdict_json_fail(
        &place, err, "start is %" PRIu64 ", stop is %" PRIu64 " and pad is %" PRIu64 ", but the shape needs %zu bytes",
        item.span.offset, stop, pad, size.bytes);
  return tdict_td_add_tensor(&r->base, &item, &shape, err);
}

/* Returns true if the member `size` of a node names the leaf as a leaf without batch dimensions. */
static bool is_unbatched(const json_t *node, const char *key) {
  const json_t *names = json_object_get(json_object_get(node, "size"), "unbatched");
  for (size_t i = 0; i < json_array_size(names); i++) {
    const char *name = tdict_json_text(json_array_get(names, i));
    if (name && strcmp(name, key) == 0) return true;
  }
  return false;
}

/* Reads a jagged tensor: the leaf `values`, and the leaf with the offsets. */
static tdict_status read_ragged(node_reader *r, const json_t *leaves, const char *key, const json_t *values,
                                tdict_error *err) {
  const size_t length = strlen(key) + sizeof offsets_mark;
  char *name = malloc(length);
  tdict_status status = tdict_td_push(&r->base, key, err);
  const tdict_json_place place = tdict_td_place(&r->base);
  if (status == TDICT_OK && !name)
    status = tdict_fail_file(err, TDICT_ENOMEM, r->base.file, "%s: no host memory for a key", place.contents->what);
  if (status != TDICT_OK) {
    free(name);
    return status;
  }
  snprintf(name, length, "%s%s", offsets_mark, key);
  const json_t *offsets = json_object_get(leaves, name);
  const json_t *dim = json_array_get(offsets, LEAF_MEMBERS);
  snprintf(name, length, "<NJT_LENGTHS>%s", key);
  const bool has_lengths = json_object_get(leaves, name) != NULL;
  free(name);
  if (!offsets) return tdict_json_fail(&place, err, "a jagged tensor without offsets");
  if (has_lengths || (dim && json_integer_value(dim) != 1))
    return tdict_fail_file(err, TDICT_ENOTSUP, r->base.file, "%s: key '%.80s': a jagged tensor with %s cannot be read",
                           place.contents->what, place.key, has_lengths ? "holes" : "another ragged dimension than 1");
  status = read_leaf(r, values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? read_leaf(r, offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

static tdict_status read_leaves(node_reader *r, const json_t *node, json_t *leaves, tdict_error *err) {
  const size_t length = r->base.path.length;
  const char *key;
  json_t *leaf;
  tdict_status status = TDICT_OK;
  json_object_foreach(leaves, key, leaf) {
    /* read_ragged() reads these leaves with the values. */
    if (starts_with(key, offsets_mark) || starts_with(key, "<NJT_LENGTHS>")) continue;
    if (starts_with(key, values_mark)) {
      status = read_ragged(r, leaves, key + sizeof values_mark - 1, leaf, err);
    } else {
      status = tdict_td_push(&r->base, key, err);
      if (status == TDICT_OK)
        status = read_leaf(r, leaf, is_unbatched(node, key) ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err);
    }
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

/* Reads the values of a tree. Each value is an array [data, batch size, device]. */
static tdict_status read_values(node_reader *r, json_t *values, tdict_error *err) {
  const size_t length = r->base.path.length;
  const char *key;
  json_t *value;
  tdict_status status = TDICT_OK;
  json_object_foreach(values, key, value) {
    status = tdict_td_push(&r->base, key, err);
    const tdict_json_place place = tdict_td_place(&r->base);
    if (status == TDICT_OK && json_array_size(value) < 1)
      status = tdict_json_fail(&place, err, "a value is no array that begins with the data");
    if (status == TDICT_OK) status = tdict_td_add_value(&r->base, json_array_get(value, 0), err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

/* Makes nested lists of the values of a NonTensorStack. Returns TDICT_EFORMAT if the node has too many levels; the
 * caller fills the error. */
static tdict_status list_of_stack(const json_t *node, int depth, json_t **out) {
  const json_t *values = json_object_get(node, "non_tensors");
  tdict_status status = TDICT_OK;
  char name[24];
  if (depth == TDICT_MAX_BATCH_NDIM) return TDICT_EFORMAT;
  json_t *list = json_array();
  for (int i = 0; list && status == TDICT_OK; i++) {
    snprintf(name, sizeof name, "%d", i);
    json_t *value = json_array_get(json_object_get(values, name), 0), *child = json_object_get(node, name);
    if (!value && !child) break;
    json_t *made = json_incref(value);
    if (!value) status = list_of_stack(child, depth + 1, &made);
    if (status == TDICT_OK && json_array_append_new(list, made) != 0) status = TDICT_ENOMEM;
  }
  if (list && status == TDICT_OK) {
    *out = list;
    return TDICT_OK;
  }
  json_decref(list);
  return list ? status : TDICT_ENOMEM;
}

static tdict_status read_value_stack(node_reader *r, const json_t *node, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  json_t *list = NULL;
  if (r->base.depth == 0) return tdict_json_fail(&place, err, "the root is a value, wanted a tree");
  tdict_status status = list_of_stack(node, 0, &list);
  if (status == TDICT_EFORMAT)
    return tdict_json_fail(&place, err, "a NonTensorStack of more than %d levels", TDICT_MAX_BATCH_NDIM);
  if (status != TDICT_OK)
    return tdict_fail_file(err, TDICT_ENOMEM, r->base.file, "%s: no host memory for values", place.contents->what);
  status = tdict_td_add_column(&r->base, list, err);
  json_decref(list);
  return status;
}

static bool is_member(const char *key) {
  static const char *const members[] = {"cls", "non_tensors", "leaves", "cls_metadata", "size"};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    if (strcmp(key, members[i]) == 0) return true;
  return false;
}

static tdict_status read_children(node_reader *r, json_t *node, tdict_error *err) {
  const size_t length = r->base.path.length;
  const char *key;
  json_t *child;
  tdict_status status = TDICT_OK;
  json_object_foreach(node, key, child) {
    if (is_member(key)) continue;
    status = tdict_td_push(&r->base, key, err);
    if (status == TDICT_OK) status = read_node(r, child, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

/* Reads a lazy stack. Its trees are the children "0", "1" and so on. */
static tdict_status read_stack(node_reader *r, json_t *node, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const tdict_sizes none = {0};
  int dim;
  tdict_status status = tdict_td_read_dim(&place, json_object_get(json_object_get(node, "cls_metadata"), "stack_dim"),
                                          TDICT_MAX_BATCH_NDIM - 1, &dim, err);
  if (status == TDICT_OK) status = tdict_td_cut_batch(&r->base, dim, err);
  if (status == TDICT_OK) status = tdict_td_enter(&r->base, &none, err);
  if (status != TDICT_OK) return status;
  const size_t first = r->base.contents->num_items;
  status = read_children(r, node, err);
  if (status == TDICT_OK) status = tdict_td_stack_batch(&r->base, dim, first, err);
  tdict_td_leave(&r->base);
  return status;
}

static tdict_status read_tree(node_reader *r, json_t *node, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  tdict_sizes batch_size;
  tdict_status status =
      tdict_json_sizes(&place, "batch_size", json_object_get(json_object_get(node, "cls_metadata"), "batch_size"),
                       TDICT_MAX_BATCH_NDIM, &batch_size, err);
  if (status == TDICT_OK) status = tdict_td_enter(&r->base, &batch_size, err);
  if (status != TDICT_OK) return status;
  status = read_values(r, json_object_get(node, "non_tensors"), err);
  if (status == TDICT_OK) status = read_leaves(r, node, json_object_get(node, "leaves"), err);
  if (status == TDICT_OK) status = read_children(r, node, err);
  tdict_td_leave(&r->base);
  return status;
}

/* The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status read_node(node_reader *r, json_t *node, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const char *class = tdict_json_text(json_object_get(node, "cls"));
  if (!class || !json_is_object(json_object_get(node, "non_tensors")) ||
      !json_is_object(json_object_get(node, "leaves")) || !json_is_object(json_object_get(node, "cls_metadata")))
    return tdict_json_fail(&place, err,
                           "a tree needs a text 'cls', and objects 'non_tensors', 'leaves' and "
                           "'cls_metadata'");
  if (strcmp(class, "NonTensorStack") == 0) return read_value_stack(r, node, err);
  if (strcmp(class, "LazyStackedTensorDict") == 0) return read_stack(r, node, err);
  return read_tree(r, node, err);
}

static int compare_spans(const void *a, const void *b) {
  const tdict_item *x = *(const tdict_item *const *)a, *y = *(const tdict_item *const *)b;
  return x->span.offset < y->span.offset ? -1 : x->span.offset > y->span.offset;
}

/* Checks that no two leaves have the same bytes. */
static tdict_status check_overlap(const node_reader *r, tdict_error *err) {
  const tdict_contents *c = r->base.contents;
  const tdict_item **sorted = malloc((c->num_items + 1) * sizeof *sorted);
  size_t count = 0;
  tdict_status status = TDICT_OK;
  if (!sorted) return tdict_fail_file(err, TDICT_ENOMEM, c->path, "%s: no host memory for the keys", c->what);
  for (size_t i = 0; i < c->num_items; i++)
    if (tdict_item_has_tensor(&c->items[i]) && c->items[i].span.bytes) sorted[count++] = &c->items[i];
  qsort((void *)sorted, count, sizeof *sorted, compare_spans);
  for (size_t i = 1; i < count && status == TDICT_OK; i++) {
    const tdict_span *last = &sorted[i - 1]->span;
    const tdict_json_place place = {c, r->base.file, "key", sorted[i]->path};
    if (sorted[i]->span.offset < last->offset + last->bytes)
      status = tdict_json_fail(&place, err, "start is %" PRIu64 ", wanted %" PRIu64 " or more: two leaves overlap",
                               sorted[i]->span.offset, last->offset + last->bytes);
  }
  free((void *)sorted);
  return status;
}

tdict_status tdict_consolidated_read(tdict_contents *contents, size_t file, const tdict_open_options *options,
                                     tdict_error *err) {
  const char *path = contents->files[file].path;
  node_reader r = {.base = {.contents = contents, .file = path, .flat = options->flat}, .file = file};
  tdict_span span = {0};
  json_t *root = NULL;
  if (!find_json(contents, file, &span))
    return tdict_fail_file(err, TDICT_EIO, path, "%s: the file was changed during the call", contents->what);
  if (span.bytes > TDICT_TD_MAX_JSON)
    return tdict_fail_file(err, TDICT_ENOTSUP, path,
                           "%s: at byte %" PRIu64 ": the JSON has %" PRIu64 " bytes, wanted at most %d", contents->what,
                           span.offset, span.bytes, TDICT_TD_MAX_JSON);
  r.payload = span.offset;
  char *text = malloc((size_t)span.bytes);
  if (!text)
    return tdict_fail_file(err, TDICT_ENOMEM, path, "%s: no host memory for %" PRIu64 " bytes of JSON", contents->what,
                           span.bytes);
  const tdict_json_source source = {contents, path, "the JSON at the end", span.offset};
  tdict_status status = tdict_contents_read(contents, span, text, err);
  if (status == TDICT_OK) status = tdict_json_read(&source, text, (size_t)span.bytes, &root, err);
  free(text);
  if (status == TDICT_OK) status = read_node(&r, root, err);
  if (status == TDICT_OK) status = check_overlap(&r, err);
  json_decref(root);
  tdict_io_text_reset(&r.base.path);
  return status;
}
