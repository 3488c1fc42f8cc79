/* Imports Arrow arrays as trees. Tensors over the buffers share one reference-counted holder of the array. See
 * tdict/arrow.h for ownership and threads. */
#include "services/interop/arrow/import.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/options.h"

tdict_status tdict_arrow_read_options(const char *what, const tdict_arrow_import_options *options,
                                      tdict_arrow_import_options *out, tdict_error *err) {
  *out = tdict_arrow_import_options_default();
  tdict_status status = tdict_options_read(out, sizeof *out, options, "arrow import options", err);
  if (status != TDICT_OK) return status;
  if (out->nulls < TDICT_ARROW_NULLS_REFUSE || out->nulls > TDICT_ARROW_NULLS_MASK)
    return tdict_fail(err, TDICT_EINVAL, "%s: nulls is %d, wanted a tdict_arrow_nulls", what, (int)out->nulls);
  if (out->mask_all && out->nulls != TDICT_ARROW_NULLS_MASK)
    return tdict_fail(err, TDICT_EINVAL, "%s: mask_all is set, but nulls is not MASK", what);
  if (out->nulls == TDICT_ARROW_NULLS_MASK && (!out->mask_path || !*out->mask_path))
    return tdict_fail(err, TDICT_EINVAL, "%s: mask_path is %s", what, out->mask_path ? "empty" : "NULL");
  return TDICT_OK;
}

/* Adds the mask of a leaf to the tree of masks, if the options ask for this mask. */
static tdict_status add_mask(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                             tdict_error *err) {
  tdict_tensor *mask;
  if (!m->masks || (!valid && !m->options.mask_all)) return TDICT_OK;
  tdict_status status = tdict_tensor_empty(TDICT_BOOL, 1, &c->count, NULL, &mask, err);
  if (status != TDICT_OK) return status;
  uint8_t *bools = tdict_tensor_data(mask);
  if (valid && c->count)
    memcpy(bools, valid, (size_t)c->count);
  else if (c->count)
    memset(bools, 1, (size_t)c->count);
  status = tdict_arrow_place(m, &mask, err);
  if (status == TDICT_OK) status = tdict_set(m->masks, m->path.text, mask, err);
  tdict_tensor_release(mask);
  return status;
}

static tdict_status import_struct(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_tree **out, tdict_error *err);

/* Imports a column and sets the leaf or the child tree. */
static tdict_status import_field(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                 tdict_tree *tree, const char *key, tdict_error *err) {
  tdict_tensor *tensor;
  tdict_tree *child;
  tdict_status status;
  if (c->type.kind == TDICT_ARROW_STRUCT) {
    status = import_struct(m, c, valid, &child, err);
    if (status != TDICT_OK) return status;
    status = tdict_set_tree(tree, key, child, err);
    tdict_release(child);
    return status;
  }
  status = add_mask(m, c, valid, err);
  if (status != TDICT_OK) return status;
  if (c->type.kind == TDICT_ARROW_LIST) return tdict_arrow_import_list(m, c, valid, tree, key, err);
  if (c->type.kind == TDICT_ARROW_TEXT || c->type.kind == TDICT_ARROW_NULL)
    return tdict_arrow_import_text(m, c, valid, tree, key, err);
  status = tdict_arrow_import_tensor(m, c, valid, &tensor, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(tree, key, tensor, err);
  tdict_tensor_release(tensor);
  return status;
}

/* Imports child `i` of a struct. The name of the child is the last key of the path. */
static tdict_status import_child(tdict_arrow_importer *m, const tdict_arrow_column *parent, int64_t i,
                                 const uint8_t *above, tdict_tree *tree, tdict_error *err) {
  const char *key = m->path.text + m->path.key;
  const tdict_arrow_range rows = {parent->start, parent->count};
  tdict_arrow_column column;
  uint8_t *valid = NULL;
  if (!*key) return tdict_fail(err, TDICT_EINVAL, "%s: the name of field %lld is empty", m->what, (long long)i);
  if (tdict_has(tree, key)) return tdict_fail(err, TDICT_EEXIST, "%s: two fields have the same name", m->what);
  /* The offset of a struct also applies to its children. */
  tdict_status status = tdict_arrow_column_child(m, parent, i, rows, &column, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &column, above, &valid, err);
  if (status == TDICT_OK) {
    /* The import of a struct's fields may reallocate m->path, so pass a copy of the key. */
    tdict_arrow_path copy = {0}, mark;
    status = tdict_arrow_path_push(&copy, parent->schema->children[i]->name, &mark, err);
    if (status == TDICT_OK) status = import_field(m, &column, valid, tree, copy.text, err);
    tdict_arrow_path_reset(&copy);
  }
  free(valid);
  return status;
}

static tdict_status import_struct(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_tree **out, tdict_error *err) {
  tdict_tree *tree;
  if (m->depth == TDICT_ARROW_MOST_DEPTH)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: more than %d levels", m->what, TDICT_ARROW_MOST_DEPTH);
  tdict_status status = tdict_create(1, &c->count, &tree, err);
  if (status != TDICT_OK) return status;
  m->depth++;
  for (int64_t i = 0; i < c->schema->n_children && status == TDICT_OK; i++) {
    const char *name = c->schema->children[i]->name;
    tdict_arrow_path mark;
    status = tdict_arrow_path_push(&m->path, name ? name : "", &mark, err);
    if (status != TDICT_OK) break;
    status = import_child(m, c, i, valid, tree, err);
    if (status != TDICT_OK && !m->is_located) tdict_error_at(err, status, m->path.text);
    m->is_located = status != TDICT_OK;
    tdict_arrow_path_pop(&m->path, &mark);
  }
  m->depth--;
  return TDICT_HAND_OVER(status, tree, out, tdict_release);
}

/* Adds the tree of masks to the result if there is a mask. */
static tdict_status set_masks(const tdict_arrow_importer *m, tdict_tree *tree, tdict_error *err) {
  const char *path = m->options.mask_path;
  if (!m->masks || tdict_num_keys(m->masks) == 0) return TDICT_OK;
  if (!tdict_has(tree, path)) return tdict_set_tree(tree, path, m->masks, err);
  tdict_fail(err, TDICT_EEXIST, "%s: the array has a field at the path of the masks", m->what);
  return tdict_error_at(err, TDICT_EEXIST, path);
}

/* Imports the columns. Each tensor over the array retains the holder. */
static tdict_status import_columns(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                   const struct ArrowArray *array, tdict_tree **out, tdict_error *err) {
  const tdict_arrow_range all = {0, array && array->length > 0 ? array->length : 0};
  tdict_arrow_column column;
  tdict_tree *tree = NULL;
  uint8_t *valid = NULL;
  tdict_status status = tdict_arrow_column_open(m, schema, array, all, &column, err);
  if (status == TDICT_OK && column.type.kind != TDICT_ARROW_STRUCT)
    status = tdict_fail(err, TDICT_ETYPE, "%s: the format of the array is '%.20s', wanted a struct '+s'", m->what,
                        schema->format);
  if (status == TDICT_OK && m->options.nulls == TDICT_ARROW_NULLS_MASK)
    status = tdict_create(1, &column.count, &m->masks, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &column, NULL, &valid, err);
  if (status == TDICT_OK) status = import_struct(m, &column, valid, &tree, err);
  free(valid);
  if (status == TDICT_OK) status = set_masks(m, tree, err);
  if (status == TDICT_OK && m->memory) status = tdict_set_device(tree, &m->device, err);
  tdict_release(m->masks);
  tdict_arrow_path_reset(&m->path);
  return TDICT_HAND_OVER(status, tree, out, tdict_release);
}

tdict_status tdict_arrow_import_tree(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                     struct ArrowArray *array, tdict_tree **out, tdict_error *err) {
  tdict_arrow_holder *holder = calloc(1, sizeof *holder);
  if (!holder) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for the array's record", m->what);
  atomic_init(&holder->refs, 1);
  m->holder = holder;
  tdict_status status = import_columns(m, schema, array, out, err);
  if (status == TDICT_OK && array) {
    holder->array = *array;
    array->release = NULL;
  }
  tdict_arrow_holder_release(holder);
  return status;
}

tdict_status tdict_arrow_import(const struct ArrowSchema *schema, struct ArrowArray *array,
                                const tdict_arrow_import_options *options, tdict_tree **out, tdict_error *err) {
  static const char what[] = "arrow_import";
  tdict_arrow_importer m = {.what = what, .device = {TDICT_DEVICE_CPU, 0}, .flags = TDICT_DESC_READ_ONLY};
  if (!schema || !array || !out)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, !schema ? "schema" : array ? "out" : "array");
  if (!schema->release || !array->release)
    return tdict_fail(err, TDICT_EINVAL, "%s: the %s is released", what, schema->release ? "array" : "schema");
  tdict_status status = tdict_arrow_read_options(what, options, &m.options, err);
  return status == TDICT_OK ? tdict_arrow_import_tree(&m, schema, array, out, err) : status;
}
