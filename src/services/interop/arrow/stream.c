/* Reads and makes Arrow streams. A made stream holds all its arrays. See tdict/arrow.h for ownership and threads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "services/interop/arrow/export.h"
#include "services/interop/arrow/import.h"
#include "tdict/combine.h"

typedef struct stream_data {
  struct ArrowSchema schema;
  const char *last_error; /* static; NULL: none */
  size_t count, next;
  struct ArrowArray arrays[]; /* the stream owns arrays[next] and all later arrays */
} stream_data;

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  stream_data *data = stream->private_data;
  data->last_error = NULL;
  if (tdict_arrow_schema_copy(&data->schema, out)) return 0;
  data->last_error = "no host memory for a copy of the schema";
  return ENOMEM;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  stream_data *data = stream->private_data;
  data->last_error = NULL;
  memset(out, 0, sizeof *out); /* an array without `release` marks the end */
  if (data->next < data->count) *out = data->arrays[data->next++];
  return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
  return ((const stream_data *)stream->private_data)->last_error;
}

static void release_stream_data(stream_data *data) {
  if (data->schema.release) data->schema.release(&data->schema);
  for (size_t i = data->next; i < data->count; i++)
    if (data->arrays[i].release) data->arrays[i].release(&data->arrays[i]);
  free(data);
}

static void release_stream(struct ArrowArrayStream *stream) {
  release_stream_data(stream->private_data);
  stream->release = NULL;
}

/* Compares two exported schemas. Adds the path of the first difference to `path`. */
static tdict_status compare_schemas(const struct ArrowSchema *a, const struct ArrowSchema *b, size_t tree,
                                    tdict_io_text *path, tdict_error *err) {
  if (strcmp(a->format, b->format) != 0 || a->n_children != b->n_children)
    return tdict_fail(err, TDICT_EDTYPE,
                      "arrow_export_stream: tree %zu has the type '%.20s' of %lld fields, tree 0 has '%.20s' of %lld",
                      tree, b->format, (long long)b->n_children, a->format, (long long)a->n_children);
  for (int64_t i = 0; i < a->n_children; i++) {
    const size_t mark = path->length;
    if (strcmp(a->children[i]->name, b->children[i]->name) != 0)
      return tdict_fail(err, TDICT_EDTYPE, "arrow_export_stream: key %lld of tree %zu is '%.40s', of tree 0 '%.40s'",
                        (long long)i, tree, b->children[i]->name, a->children[i]->name);
    tdict_status status = tdict_arrow_path_push(path, a->children[i]->name, err);
    if (status == TDICT_OK) status = compare_schemas(a->children[i], b->children[i], tree, path, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(path, mark);
  }
  return TDICT_OK;
}

/* Exports tree `i` and checks that its type is the type of tree 0. */
static tdict_status add_tree(stream_data *data, const tdict_tree *tree, size_t i, tdict_error *err) {
  tdict_arrow_exporter e = {.what = "arrow_export_stream"};
  struct ArrowSchema schema = {0};
  const tdict_arrow_node node = {i ? &schema : &data->schema, &data->arrays[i]};
  tdict_status status = tdict_arrow_export_tree(&e, tree, &node, err);
  if (status != TDICT_OK) return status;
  data->count = i + 1;
  if (i == 0) return TDICT_OK;
  tdict_io_text path = {0};
  status = compare_schemas(&data->schema, &schema, i, &path, err);
  if (status != TDICT_OK) tdict_error_at(err, status, path.bytes);
  tdict_io_text_reset(&path);
  schema.release(&schema);
  return status;
}

tdict_status tdict_arrow_export_stream(const tdict_tree *const *trees, size_t count, struct ArrowArrayStream *stream,
                                       tdict_error *err) {
  static const char what[] = "arrow_export_stream";
  size_t bytes;
  if (!trees || !stream || count == 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s", what, stream ? "no trees" : "stream is NULL");
  for (size_t i = 0; i < count; i++)
    if (!trees[i]) return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu is NULL", what, i);
  stream_data *data = NULL;
  if (tdict_mul_size(count, sizeof(struct ArrowArray), &bytes) && tdict_add_size(bytes, sizeof *data, &bytes))
    data = calloc(1, bytes);
  if (!data) return tdict_fail_memory(err, what, NULL, "%zu arrays", count);
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) status = add_tree(data, trees[i], i, err);
  if (status != TDICT_OK) {
    release_stream_data(data);
    return status;
  }
  *stream = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, data};
  return TDICT_OK;
}

/* Fills the error after a callback of the stream has failed. */
static tdict_status stream_failed(const char *what, struct ArrowArrayStream *stream, const char *call, int code,
                                  tdict_error *err) {
  const char *text = stream->get_last_error ? stream->get_last_error(stream) : NULL;
  return tdict_fail_native(err, TDICT_EIO, code, "%s: %s of the stream failed: %.150s", what, call,
                           text ? text : strerror(code));
}

/* Checks the arguments and obtains the schema, which the caller releases. */
static tdict_status open_stream(tdict_arrow_importer *m, struct ArrowArrayStream *stream,
                                const tdict_arrow_import_options *options, const void *out, struct ArrowSchema *schema,
                                tdict_error *err) {
  const char *what = m->what;
  if (!stream || !out) return tdict_fail_null(err, what, stream ? "out" : "stream");
  if (!stream->release) return tdict_fail(err, TDICT_EINVAL, "%s: the stream is released", what);
  tdict_status status = tdict_arrow_import_begin(m, options, err);
  if (status != TDICT_OK) return status;
  memset(schema, 0, sizeof *schema);
  const int code = stream->get_schema(stream, schema);
  if (code) return stream_failed(what, stream, "get_schema", code, err);
  return schema->release ? TDICT_OK : tdict_fail(err, TDICT_EFORMAT, "%s: the stream's schema is released", what);
}

/* Imports the next array. *out is NULL at the end. */
static tdict_status import_next(const tdict_arrow_importer *like, struct ArrowArrayStream *stream,
                                const struct ArrowSchema *schema, tdict_tree **out, tdict_error *err) {
  struct ArrowArray array = {0};
  tdict_arrow_importer m = *like;
  const int code = stream->get_next(stream, &array);
  if (code) return stream_failed(m.what, stream, "get_next", code, err);
  if (!array.release) {
    *out = NULL;
    return TDICT_OK;
  }
  tdict_status status = tdict_arrow_import_tree(&m, schema, &array, out, err);
  if (status != TDICT_OK) array.release(&array);
  return status;
}

tdict_status tdict_arrow_stream_next(struct ArrowArrayStream *stream, const tdict_arrow_import_options *options,
                                     tdict_tree **out, tdict_error *err) {
  tdict_arrow_importer m = {.what = "arrow_stream_next"};
  struct ArrowSchema schema;
  tdict_status status = open_stream(&m, stream, options, out, &schema, err);
  if (status != TDICT_OK) return status;
  status = import_next(&m, stream, &schema, out, err);
  schema.release(&schema);
  return status;
}

/* Adds a mask to the tree `user` if the mask has a false element. tdict_walk() calls this function for each mask. */
static tdict_status keep_mask(void *user, const tdict_entry *entry, tdict_error *err) {
  if (!entry->tensor) return TDICT_OK;
  const uint8_t *mask = tdict_tensor_const_data(entry->tensor);
  const int64_t count = tdict_tensor_numel(entry->tensor);
  if (count == 0 || !memchr(mask, 0, (size_t)count)) return TDICT_OK;
  return tdict_set(user, entry->path, entry->tensor, err);
}

/* Removes the masks of leaves that have no nulls. */
static tdict_status drop_full_masks(const char *path, tdict_tree *tree, tdict_error *err) {
  tdict_tree *all, *kept;
  if (!tdict_has(tree, path)) return TDICT_OK;
  tdict_status status = tdict_get_tree(tree, path, &all, err);
  if (status == TDICT_OK) status = tdict_create(1, tdict_batch_size(tree), &kept, err);
  if (status != TDICT_OK) return status;
  status = tdict_walk(all, keep_mask, kept, err);
  if (status == TDICT_OK)
    status = tdict_num_keys(kept) ? tdict_set_tree(tree, path, kept, err) : tdict_delete(tree, path, err);
  tdict_release(kept);
  return status;
}

typedef struct tree_list {
  tdict_tree **trees;
  size_t count, cap;
} tree_list;

/* Imports all arrays of the stream. The caller releases the trees of the list, also after a failure. */
static tdict_status import_all(const tdict_arrow_importer *m, struct ArrowArrayStream *stream,
                               const struct ArrowSchema *schema, tree_list *list, tdict_error *err) {
  for (;;) {
    if (!TDICT_RESERVE(list->trees, list->cap, list->count + 1))
      return tdict_fail_memory(err, "arrow_import_stream", NULL, "a list of %zu trees", list->count + 1);
    tdict_status status = import_next(m, stream, schema, &list->trees[list->count], err);
    if (status != TDICT_OK || !list->trees[list->count]) return status;
    list->count++;
  }
}

/* Concatenates the trees. If there are no trees, makes a tree without rows. */
static tdict_status join_trees(tdict_arrow_importer *m, const tree_list *list, const struct ArrowSchema *schema,
                               tdict_tree **out, tdict_error *err) {
  if (list->count == 0) return tdict_arrow_import_tree(m, schema, NULL, out, err);
  if (list->count > 1) return tdict_cat((const tdict_tree *const *)list->trees, list->count, NULL, NULL, out, err);
  *out = tdict_retain(list->trees[0]);
  return TDICT_OK;
}

tdict_status tdict_arrow_import_stream(struct ArrowArrayStream *stream, const tdict_arrow_import_options *options,
                                       tdict_tree **out, tdict_error *err) {
  tdict_arrow_importer m = {.what = "arrow_import_stream"};
  struct ArrowSchema schema;
  tree_list list = {0};
  tdict_tree *made = NULL;
  tdict_status status = open_stream(&m, stream, options, out, &schema, err);
  if (status != TDICT_OK) return status;
  /* tdict_cat() needs the same keys in all trees, so first make the masks of all leaves. */
  const bool drops = m.options.nulls == TDICT_ARROW_NULLS_MASK && !m.options.mask_all;
  m.options.mask_all = m.options.mask_all || drops;
  status = import_all(&m, stream, &schema, &list, err);
  if (status == TDICT_OK) status = join_trees(&m, &list, &schema, &made, err);
  if (status == TDICT_OK && drops) status = drop_full_masks(m.options.mask_path, made, err);
  for (size_t i = 0; i < list.count; i++) tdict_release(list.trees[i]);
  free(list.trees);
  schema.release(&schema);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}
