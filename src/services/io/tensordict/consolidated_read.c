/* Reads consolidated files of TensorDict. See tensordict.h for ownership and threads.
 *
 * A file is [elements][JSON][length of the JSON: 8 bytes, little-endian]. The JSON is a node. A node has the members
 * `cls`, `non_tensors`, `leaves` and `cls_metadata`, and a node for each child. TensorDict ignores the member `size`,
 * in which the writer of tdict names leaves without batch dimensions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/io/json/document.h"
#include "services/io/tensordict/tensordict.h"

enum { LENGTH_BYTES = 8, LEAF_MEMBERS = 5, MOST_PAD = 7 };
static const char values_mark[] = "<NJT_VALUES>", offsets_mark[] = "<NJT_OFFSETS>", lengths_mark[] = "<NJT_LENGTHS>";

/* The file is file 0 of the contents. */
typedef struct node_reader {
  tdict_reader base;
  uint64_t payload; /* bytes of the elements */
} node_reader;

static tdict_status read_node(node_reader *r, tdict_json node, tdict_error *err);

/* Reads the position and the length of the JSON. Returns false if the file does not end as a consolidated file. */
static bool find_json(const tdict_contents *c, tdict_span *out) {
  static const char start[] = "{\"cls\"";
  const uint64_t bytes = c->files[0].bytes;
  unsigned char length[LENGTH_BYTES], first[sizeof start - 1];
  uint64_t count = 0;
  if (bytes < LENGTH_BYTES + sizeof first) return false;
  if (tdict_contents_read(c, (tdict_span){0, bytes - LENGTH_BYTES, LENGTH_BYTES}, length, NULL) != TDICT_OK)
    return false;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) count = count << 8 | length[i];
  if (count < sizeof first || count > bytes - LENGTH_BYTES) return false;
  *out = (tdict_span){0, bytes - LENGTH_BYTES - count, count};
  return tdict_contents_read(c, (tdict_span){0, out->offset, sizeof first}, first, NULL) == TDICT_OK &&
         memcmp(first, start, sizeof first) == 0;
}

bool tdict_consolidated_is(const tdict_contents *contents) {
  tdict_span json;
  return find_json(contents, &json);
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Reads member `i` of a leaf, which must be an integer from 0 to `most`. */
static tdict_status read_number(const node_reader *r, tdict_json leaf, size_t i, uint64_t most, uint64_t *out,
                                tdict_error *err) {
  static const char *const names[] = {"dtype", "shape", "start", "stop", "pad"};
  int64_t value;
  if (!tdict_json_integer(tdict_json_at(leaf, i), &value) || value < 0 || (uint64_t)value > most)
    return tdict_json_fail(&r->base.place, err, "%s is not an integer from 0 to %" PRIu64, names[i], most);
  *out = (uint64_t)value;
  return TDICT_OK;
}

/* Reads a leaf: [dtype, shape, start, stop, pad]. In a leaf of offsets, the index of the ragged dimension follows. */
static tdict_status read_leaf(node_reader *r, tdict_json leaf, tdict_item_kind kind, tdict_error *err) {
  tdict_item item = {.kind = kind};
  tdict_sizes shape;
  uint64_t stop = 0, pad = 0;
  const size_t members = tdict_json_count(leaf);
  if (!tdict_json_is(leaf, TDICT_JSON_ARRAY) || (members != LEAF_MEMBERS && members != LEAF_MEMBERS + 1))
    return tdict_json_fail(&r->base.place, err, "a leaf is not an array of %d members", LEAF_MEMBERS);
  tdict_status status =
      tdict_torch_layout(&r->base.place, tdict_json_at(leaf, 0), tdict_json_at(leaf, 1), &item, &shape, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 2, r->payload, &item.span.offset, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 3, r->payload, &stop, err);
  if (status == TDICT_OK) status = read_number(r, leaf, 4, MOST_PAD, &pad, err);
  if (status != TDICT_OK) return status;
  if (stop < item.span.offset || stop - item.span.offset < pad || stop - item.span.offset - pad != item.span.bytes)
    return tdict_json_fail(&r->base.place, err,
                           "start is %" PRIu64 ", stop is %" PRIu64 " and pad is %" PRIu64
                           ", but the shape needs %" PRIu64 " bytes",
                           item.span.offset, stop, pad, item.span.bytes);
  return tdict_reader_add_shaped(&r->base, &item, &shape, err);
}

/* The leaves of a node, and the names of those without batch dimensions. */
typedef struct node_leaves {
  tdict_json_table leaves, unbatched;
} node_leaves;

/* Finds the leaf `mark` of a jagged tensor, such as <NJT_OFFSETS>. */
static tdict_status find_marked(const node_reader *r, const tdict_json_table *leaves, const char *mark, const char *key,
                                tdict_json *out, tdict_error *err) {
  const char *name;
  tdict_status status = tdict_contents_format(r->base.contents, &name, err, "%s%s", mark, key);
  if (status == TDICT_OK) *out = tdict_json_table_find(leaves, name);
  return status;
}

/* Reads a jagged tensor: the leaf `values`, and the leaf with the offsets. */
static tdict_status read_ragged(node_reader *r, const tdict_json_table *leaves, const char *key, tdict_json values,
                                tdict_error *err) {
  tdict_json offsets = {0}, lengths = {0};
  int64_t dim = 1;
  tdict_status status = tdict_reader_push(&r->base, key, err);
  if (status == TDICT_OK) status = find_marked(r, leaves, offsets_mark, key, &offsets, err);
  if (status == TDICT_OK) status = find_marked(r, leaves, lengths_mark, key, &lengths, err);
  if (status != TDICT_OK) return status;
  const tdict_json member = tdict_json_at(offsets, LEAF_MEMBERS);
  const bool has_lengths = tdict_json_exists(lengths);
  if (!tdict_json_exists(offsets)) return tdict_json_fail(&r->base.place, err, "a jagged tensor without offsets");
  if (has_lengths || (tdict_json_exists(member) && (!tdict_json_integer(member, &dim) || dim != 1)))
    return tdict_json_refuse(&r->base.place, err, "a jagged tensor with %s cannot be read",
                             has_lengths ? "holes" : "another ragged dimension than 1");
  status = read_leaf(r, values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? read_leaf(r, offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

static tdict_status read_leaf_of(node_reader *r, const node_leaves *node, const char *key, tdict_json leaf,
                                 tdict_error *err) {
  if (starts_with(key, values_mark)) return read_ragged(r, &node->leaves, key + sizeof values_mark - 1, leaf, err);
  const bool is_unbatched = tdict_json_exists(tdict_json_table_find(&node->unbatched, key));
  tdict_status status = tdict_reader_push(&r->base, key, err);
  return status == TDICT_OK ? read_leaf(r, leaf, is_unbatched ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err) : status;
}

/* Reads the leaves in the order of the file. */
static tdict_status read_leaves(node_reader *r, const node_leaves *node, tdict_json leaves, tdict_error *err) {
  const size_t length = r->base.path.length;
  tdict_json_cursor cursor = tdict_json_enter(leaves);
  tdict_json name, leaf;
  tdict_status status = TDICT_OK;
  while (tdict_json_next(&cursor, &name, &leaf)) {
    const char *key;
    status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status != TDICT_OK) return status;
    /* read_ragged() reads these leaves with the values. */
    if (starts_with(key, offsets_mark) || starts_with(key, lengths_mark)) continue;
    status = read_leaf_of(r, node, key, leaf, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

/* Makes the tables of a node, and reads its leaves. */
static TDICT_NOINLINE tdict_status read_leaves_of(node_reader *r, tdict_json node, tdict_error *err) {
  const tdict_json leaves = tdict_json_get(node, "leaves");
  node_leaves tables = {0};
  tdict_status status = tdict_json_table_make(leaves, &tables.leaves);
  if (status == TDICT_OK)
    status = tdict_json_table_make(tdict_json_get(tdict_json_get(node, "size"), "unbatched"), &tables.unbatched);
  status = status == TDICT_OK ? read_leaves(r, &tables, leaves, err)
                              : tdict_fail_memory(err, r->base.contents->what, r->base.place.file, "the keys");
  free(tables.leaves.members);
  free(tables.unbatched.members);
  return status;
}

/* Reads the values of a tree. Each value is an array [data, batch size, device]. */
static TDICT_NOINLINE tdict_status read_values(node_reader *r, tdict_json values, tdict_error *err) {
  const size_t length = r->base.path.length;
  tdict_json_cursor cursor = tdict_json_enter(values);
  tdict_json name, value;
  tdict_status status = TDICT_OK;
  while (tdict_json_next(&cursor, &name, &value)) {
    const tdict_json data = tdict_json_at(value, 0);
    const char *key;
    status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status == TDICT_OK) status = tdict_reader_push(&r->base, key, err);
    if (status == TDICT_OK && !tdict_json_exists(data))
      status = tdict_json_fail(&r->base.place, err, "a value is not an array that begins with the data");
    if (status == TDICT_OK) status = tdict_reader_add_value(&r->base, data, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

static bool is_member(tdict_json key) {
  static const char *const members[] = {"cls", "non_tensors", "leaves", "cls_metadata", "size"};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    if (tdict_json_equals(key, members[i])) return true;
  return false;
}

static tdict_status read_children(node_reader *r, tdict_json node, tdict_error *err) {
  const size_t length = r->base.path.length;
  tdict_json_cursor cursor = tdict_json_enter(node);
  tdict_json name, child;
  tdict_status status = TDICT_OK;
  while (tdict_json_next(&cursor, &name, &child)) {
    const char *key;
    if (is_member(name)) continue;
    status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status == TDICT_OK) status = tdict_reader_push(&r->base, key, err);
    if (status == TDICT_OK) status = read_node(r, child, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return status;
}

/* Reads a lazy stack. Its trees are the children "0", "1" and so on. */
static tdict_status read_stack(node_reader *r, tdict_json node, tdict_json metadata, tdict_error *err) {
  int dim;
  tdict_status status = tdict_reader_enter_stack(&r->base, tdict_json_get(metadata, "stack_dim"), &dim, err);
  if (status != TDICT_OK) return status;
  const size_t first = r->base.contents->num_items;
  status = read_children(r, node, err);
  if (status == TDICT_OK) status = tdict_reader_stack_batch(&r->base, dim, first, err);
  tdict_reader_leave(&r->base);
  return status;
}

static tdict_status read_tree(node_reader *r, tdict_json node, tdict_json metadata, tdict_error *err) {
  tdict_status status = tdict_reader_enter(&r->base, "batch_size", tdict_json_get(metadata, "batch_size"), err);
  if (status != TDICT_OK) return status;
  status = read_values(r, tdict_json_get(node, "non_tensors"), err);
  if (status == TDICT_OK) status = read_leaves_of(r, node, err);
  if (status == TDICT_OK) status = read_children(r, node, err);
  tdict_reader_leave(&r->base);
  return status;
}

/* The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status read_node(node_reader *r, tdict_json node, tdict_error *err) {
  const tdict_json class = tdict_json_get(node, "cls"), metadata = tdict_json_get(node, "cls_metadata");
  if (!tdict_json_is(class, TDICT_JSON_STRING) || !tdict_json_is(metadata, TDICT_JSON_OBJECT) ||
      !tdict_json_is(tdict_json_get(node, "non_tensors"), TDICT_JSON_OBJECT) ||
      !tdict_json_is(tdict_json_get(node, "leaves"), TDICT_JSON_OBJECT))
    return tdict_json_fail(&r->base.place, err,
                           "a tree needs a text 'cls', and objects 'non_tensors', 'leaves' and "
                           "'cls_metadata'");
  if (tdict_json_equals(class, "NonTensorStack")) return tdict_td_add_stack(&r->base, node, err);
  if (tdict_json_equals(class, "LazyStackedTensorDict")) return read_stack(r, node, metadata, err);
  return read_tree(r, node, metadata, err);
}

/* Checks that no two leaves have the same bytes. */
static tdict_status check_overlap(const node_reader *r, tdict_error *err) {
  const tdict_contents *c = r->base.contents;
  const tdict_item **sorted = tdict_array_sorted(c->items, c->num_items, sizeof *c->items, tdict_item_compare_spans);
  uint64_t end = 0;
  tdict_status status = TDICT_OK;
  if (!sorted) return tdict_fail_memory(err, c->what, c->path, "the keys");
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = sorted[i];
    const tdict_json_place place = {c, r->base.place.file, "key", item->path, NULL};
    if (!tdict_item_has_tensor(item) || !item->span.bytes) continue;
    if (item->span.offset < end)
      status = tdict_json_fail(&place, err, "start is %" PRIu64 ", wanted %" PRIu64 " or more: two leaves overlap",
                               item->span.offset, end);
    end = item->span.offset + item->span.bytes;
  }
  free((void *)sorted);
  return status;
}

tdict_status tdict_consolidated_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err) {
  const char *path = contents->files[0].path;
  node_reader r = {0};
  tdict_span span = {0};
  tdict_json_document document = {0};
  if (!find_json(contents, &span))
    return tdict_fail_at(err, TDICT_EIO, path, "%s: the file was changed during the call", contents->what);
  if (span.bytes > TDICT_TD_MAX_JSON)
    return tdict_fail_at(err, TDICT_ENOTSUP, path,
                         "%s: at byte %" PRIu64 ": the JSON has %" PRIu64 " bytes, wanted at most %d", contents->what,
                         span.offset, span.bytes, TDICT_TD_MAX_JSON);
  r.payload = span.offset;
  tdict_reader_init(&r.base, contents, path, options->flat);
  tdict_status status = tdict_json_load(contents, span, "the JSON at the end", &document, err);
  if (status == TDICT_OK) status = read_node(&r, tdict_json_root(&document), err);
  if (status == TDICT_OK) status = check_overlap(&r, err);
  tdict_json_close(&document);
  tdict_io_text_reset(&r.base.path);
  return status;
}
