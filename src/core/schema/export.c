/* Makes the schema of a tree. The first walk through the tree counts the bytes of the blob, and the second walk writes
 * the blob. The schema is then read from the blob. Borrows the tree. Thread rule: see tdict/schema.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/schema/blob.h"
#include "core/tree/agree.h"

static const char what[] = "schema_from_tree";

typedef struct writer {
  tdict_cursor cursor;
  uint8_t *bytes; /* NULL: the bytes are only counted */
  size_t count;
  size_t depth; /* number of nodes that are open in the blob, the root included */
  /* The batch size of the innermost open node. The batch sizes of all open nodes above are prefixes of this array. */
  int64_t batch_size[TDICT_MAX_BATCH_NDIM];
  uint8_t batch_ndim[TDICT_SCHEMA_MAX_DEPTH + 2]; /* number of batch dimensions of the node at each depth */
} writer;

static void put(writer *w, const void *bytes, size_t count) {
  if (w->bytes) memcpy(w->bytes + w->count, bytes, count);
  w->count += count;
}

static void put_byte(writer *w, unsigned byte) {
  const uint8_t b = (uint8_t)byte;
  put(w, &b, 1);
}

static void put_text(writer *w, const char *text) { put(w, text, strlen(text) + 1); }

static void put_number(writer *w, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_byte(w, (unsigned)(value & 0x7f) | 0x80);
  put_byte(w, (unsigned)value);
}

static void put_sizes(writer *w, const int64_t *sizes, int count) {
  put_number(w, (uint64_t)count);
  for (int i = 0; i < count; i++) put_number(w, (uint64_t)sizes[i]);
}

static void put_dtype(writer *w, tdict_dtype dtype) {
  for (int i = 0; i < 4; i++) put_byte(w, dtype >> 8 * i & 0xff);
}

static tdict_status write_tensor(writer *w, const tdict_tensor *t, tdict_error *err) {
  const int batch_ndim = w->batch_ndim[w->depth];
  if (!tdict_tensor_begins_with(t, batch_ndim, w->batch_size))
    return tdict_fail(err, TDICT_ESHAPE, "%s: the batch size of a tree above is %s, the tensor has shape %s", what,
                      TDICT_SHAPE_TEXT(batch_ndim, w->batch_size), TDICT_SHAPE_TEXT(t->ndim, t->dims));
  put_byte(w, TDICT_SCHEMA_TENSOR);
  put_text(w, tdict_cursor_key(&w->cursor)->name);
  put_dtype(w, t->dtype);
  put_sizes(w, t->dims + batch_ndim, t->ndim - batch_ndim);
  return TDICT_OK;
}

/* Writes the sizes of a child and enters it. A child that does not fit its parent gets the parent's batch size. */
static void write_tree(writer *w, tdict_tree *child) {
  const int above = w->batch_ndim[w->depth];
  int batch_ndim = above;
  const bool begins = child->batch_ndim >= above && tdict_sizes_equal(child->batch_size, w->batch_size, above);
  for (; begins && batch_ndim < child->batch_ndim; batch_ndim++)
    w->batch_size[batch_ndim] = child->batch_size[batch_ndim];
  put_byte(w, TDICT_SCHEMA_TREE);
  put_text(w, tdict_cursor_key(&w->cursor)->name);
  put_sizes(w, w->batch_size + above, batch_ndim - above);
  tdict_cursor_descend(&w->cursor, child, 0);
  w->batch_ndim[++w->depth] = (uint8_t)batch_ndim;
}

static tdict_status write_entry(writer *w, tdict_leaf leaf, tdict_error *err) {
  tdict_tree *child = tdict_leaf_tree(leaf);
  tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  if (w->depth > TDICT_SCHEMA_MAX_DEPTH)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the path has more than %d keys", what, TDICT_SCHEMA_MAX_DEPTH);
  if (tensor) return write_tensor(w, tensor, err);
  if (child) {
    write_tree(w, child);
  } else {
    put_byte(w, TDICT_SCHEMA_OBJECT);
    put_text(w, tdict_cursor_key(&w->cursor)->name);
    put_text(w, tdict_leaf_box(leaf)->type->name);
  }
  return TDICT_OK;
}

static tdict_status write_blob(writer *w, const tdict_tree *tree, tdict_error *err) {
  tdict_cursor *c = &w->cursor;
  w->count = 0;
  w->depth = 1;
  w->batch_ndim[1] = (uint8_t)tree->batch_ndim;
  for (int i = 0; i < tree->batch_ndim; i++) w->batch_size[i] = tree->batch_size[i];
  put(w, TDICT_BLOB_MAGIC, 4);
  for (int i = 0; i < 4; i++) put_byte(w, (uint32_t)TDICT_SCHEMA_VERSION >> 8 * i & 0xff);
  put_sizes(w, tree->batch_size, tree->batch_ndim);
  tdict_cursor_rewind(c, tree);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    for (; w->depth > c->depth; w->depth--) put_byte(w, TDICT_BLOB_END);
    tdict_status status = write_entry(w, leaf, err);
    if (status != TDICT_OK) return tdict_cursor_fail(c, NULL, status, err);
  }
  for (; w->depth > 0; w->depth--) put_byte(w, TDICT_BLOB_END);
  return tdict_cursor_check(c, what, err);
}

static tdict_status export_tree(writer *w, const tdict_tree *tree, tdict_schema **out, tdict_error *err) {
  w->bytes = NULL;
  tdict_status status = write_blob(w, tree, err);
  if (status != TDICT_OK) return status;
  const size_t count = w->count;
  if (count > TDICT_BLOB_MAX_BYTES)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the blob would have %zu bytes, wanted at most %zu", what, count,
                      TDICT_BLOB_MAX_BYTES);
  w->bytes = malloc(count);
  if (!w->bytes) return tdict_fail_memory(err, what, NULL, "%zu bytes", count);
  status = write_blob(w, tree, err);
  if (status == TDICT_OK) status = tdict_blob_parse(w->bytes, count, true, out, err);
  free(w->bytes);
  return status;
}

tdict_status tdict_schema_from_tree(const tdict_tree *tree, tdict_schema **out, tdict_error *err) {
  writer w;
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  tdict_cursor_init(&w.cursor, tree, false);
  tdict_status status = export_tree(&w, tree, out, err);
  tdict_cursor_reset(&w.cursor);
  return status;
}
