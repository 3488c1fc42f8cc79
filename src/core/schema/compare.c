/* Compares two schemas, and finds the first difference. Also compares a tree with the entries of a schema, in the order
 * of the entries. Thread rule: as in tdict/schema.h, and in tdict/tree.h for a function that reads a tree. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/schema/schema.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"

static const char *name_kind(tdict_schema_kind kind) {
  return kind == TDICT_SCHEMA_TENSOR ? "a tensor" : kind == TDICT_SCHEMA_TREE ? "a tree" : "an object";
}

static void note_sizes(tdict_schema_difference *out, const char *name, const int *ndims, const int64_t *const *sizes) {
  snprintf(out->message, sizeof out->message, "the %s is %s in the first schema, %s in the second", name,
           TDICT_SHAPE_TEXT(ndims[0], sizes[0]), TDICT_SHAPE_TEXT(ndims[1], sizes[1]));
}

/* Compares two entries with the same path. If the entries differ, returns true and writes the message. */
static bool entries_differ(const tdict_schema_entry *a, const tdict_schema_entry *b, tdict_schema_difference *out) {
  if (a->kind != b->kind) {
    snprintf(out->message, sizeof out->message, "%s in the first schema, %s in the second", name_kind(a->kind),
             name_kind(b->kind));
    return true;
  }
  if (a->kind == TDICT_SCHEMA_OBJECT && strcmp(a->type_name, b->type_name) != 0) {
    snprintf(out->message, sizeof out->message, "the type is %.80s in the first schema, %.80s in the second",
             a->type_name, b->type_name);
    return true;
  }
  if (a->dtype != b->dtype) {
    snprintf(out->message, sizeof out->message, "the dtype is %s in the first schema, %s in the second",
             TDICT_DTYPE_TEXT(a->dtype), TDICT_DTYPE_TEXT(b->dtype));
    return true;
  }
  if (!tdict_shapes_equal(a->batch_ndim, a->batch_size, b->batch_ndim, b->batch_size)) {
    note_sizes(out, "batch size", (const int[]){a->batch_ndim, b->batch_ndim},
               (const int64_t *const[]){a->batch_size, b->batch_size});
    return true;
  }
  if (tdict_shapes_equal(a->ndim, a->shape, b->ndim, b->shape)) return false;
  note_sizes(out, "shape after the batch dimensions", (const int[]){a->ndim, b->ndim},
             (const int64_t *const[]){a->shape, b->shape});
  return true;
}

/* Compares entry `i` of both schemas. One of the schemas can lack this entry. All entries before `i` are equal. */
static bool schemas_differ_at(const tdict_schema *a, const tdict_schema *b, size_t i, tdict_schema_difference *out) {
  const tdict_schema_entry *x = i < a->num_entries ? &a->entries[i] : NULL;
  const tdict_schema_entry *y = i < b->num_entries ? &b->entries[i] : NULL;
  /* If the depths differ, the tree of the deeper entry has already ended in the other schema. */
  const int x_depth = x ? x->depth : -1, y_depth = y ? y->depth : -1;
  const tdict_schema *of = x_depth >= y_depth ? a : b;
  bool differs = true;
  if (x_depth != y_depth)
    snprintf(out->message, sizeof out->message, "this key is only in the %s schema",
             x_depth > y_depth ? "first" : "second");
  else if (strcmp(x->key, y->key) != 0)
    snprintf(out->message, sizeof out->message, "this key of the first schema is '%.80s' in the second", y->key);
  else
    differs = entries_differ(x, y, out);
  if (differs) tdict_schema_cut_path(of, i, out->path);
  return differs;
}

static void find_difference(const tdict_schema *a, const tdict_schema *b, tdict_schema_difference *out) {
  if (!tdict_shapes_equal(a->batch_ndim, a->batch_size, b->batch_ndim, b->batch_size)) {
    note_sizes(out, "batch size", (const int[]){a->batch_ndim, b->batch_ndim},
               (const int64_t *const[]){a->batch_size, b->batch_size});
    return;
  }
  for (size_t i = 0; (i < a->num_entries || i < b->num_entries) && !schemas_differ_at(a, b, i, out);) i++;
}

bool tdict_schema_equal(const tdict_schema *a, const tdict_schema *b, tdict_schema_difference *difference) {
  const bool is_equal = a->num_bytes == b->num_bytes && memcmp(a->bytes, b->bytes, a->num_bytes) == 0;
  if (!difference) return is_equal;
  memset(difference, 0, sizeof *difference);
  if (!is_equal) find_difference(a, b, difference);
  return is_equal;
}

static bool tensor_matches(const tdict_schema_entry *e, const tdict_tensor *t) {
  return e->kind == TDICT_SCHEMA_TENSOR && t->dtype == e->dtype && t->ndim == e->batch_ndim + e->ndim &&
         tdict_sizes_equal(t->dims, e->batch_size, e->batch_ndim) &&
         tdict_sizes_equal(t->dims + e->batch_ndim, e->shape, e->ndim);
}

/* `above` is the parent. A child that does not begin with its batch size is exported with that batch size. */
static bool tree_matches(const tdict_schema *schema, const tdict_schema_entry *e, const tdict_tree *child) {
  const tdict_schema_entry *above = e->parent < 0 ? NULL : &schema->entries[e->parent];
  const int above_ndim = above ? above->batch_ndim : schema->batch_ndim;
  const int64_t *above_size = above ? above->batch_size : schema->batch_size;
  if (e->kind != TDICT_SCHEMA_TREE) return false;
  if (child->batch_ndim < above_ndim || !tdict_sizes_equal(child->batch_size, above_size, above_ndim))
    return e->batch_ndim == above_ndim;
  return child->batch_ndim == e->batch_ndim && tdict_sizes_equal(child->batch_size, e->batch_size, e->batch_ndim);
}

static bool entry_matches(const tdict_schema *schema, const tdict_schema_entry *e, const tdict_cursor *cursor,
                          tdict_leaf leaf) {
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  const tdict_tree *child = tdict_leaf_tree(leaf);
  if ((size_t)e->depth + 1 != cursor->depth || strcmp(e->key, tdict_cursor_key(cursor)->name) != 0) return false;
  if (tensor) return tensor_matches(e, tensor);
  if (child) return tree_matches(schema, e, child);
  return e->kind == TDICT_SCHEMA_OBJECT && strcmp(e->type_name, tdict_leaf_box(leaf)->type->name) == 0;
}

/* Order and depth of the entries determine the tree of each entry, so the ends need no comparison. */
bool tdict_schema_matches(const tdict_schema *schema, const tdict_tree *tree) {
  tdict_cursor cursor;
  size_t i = 0;
  if (tree->batch_ndim != schema->batch_ndim ||
      !tdict_sizes_equal(tree->batch_size, schema->batch_size, tree->batch_ndim))
    return false;
  tdict_cursor_init(&cursor, tree, false);
  bool matches = true;
  for (tdict_leaf leaf; matches && (leaf = tdict_cursor_next(&cursor)) != 0; i++) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    matches = i < schema->num_entries && entry_matches(schema, &schema->entries[i], &cursor, leaf) &&
              (!child || tdict_cursor_enter(&cursor, child));
  }
  tdict_cursor_reset(&cursor);
  return matches && i == schema->num_entries;
}
