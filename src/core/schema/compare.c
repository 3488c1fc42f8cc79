/* Compares two schemas, and finds the first difference. Thread rule: see tdict/schema.h. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/schema/schema.h"
#include "core/tensor/layout.h"

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

/* Writes the first difference of two schemas that differ. */
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
