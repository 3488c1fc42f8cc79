/* Compares a tree with the entries of a schema, in the order of the entries. The order and the depth of the entries
 * determine which tree holds each entry, so the ends of trees need no comparison. Thread rule: see match.h. */
#include "core/schema/match.h"

#include <string.h>

#include "core/schema/schema.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"

static bool tensor_matches(const tdict_schema_entry *e, const tdict_tensor *t) {
  return e->kind == TDICT_SCHEMA_TENSOR && t->dtype == e->dtype && t->ndim == e->batch_ndim + e->ndim &&
         tdict_sizes_equal(t->dims, e->batch_size, e->batch_ndim) &&
         tdict_sizes_equal(t->dims + e->batch_ndim, e->shape, e->ndim);
}

/* `above` is the parent of the entry. A child whose batch size does not begin with the batch size of the parent is
 * exported with the batch size of the parent. */
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
