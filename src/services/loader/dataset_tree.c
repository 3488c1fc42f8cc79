/* Makes datasets whose samples are the elements of a tree. The dataset owns a shallow clone of the tree, and a table of
 * its fields. Thread rule: see tdict/dataset.h. The table is constant after creation, so fetching needs no lock. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/agree.h"
#include "core/tree/box.h"
#include "services/loader/dataset.h"
#include "services/loader/row_stores.h"
#include "tdict/clone.h"
#include "tdict/index.h"
#include "tdict/object.h"

static const char error_prefix[] = "dataset_from_tree";
/* MIN_STREAMED_BYTES: shorter rows are written with plain stores, because non-temporal stores are fast only for whole
 * cache lines. */
enum { MAX_ROW_NDIM = 6, MIN_STREAMED_BYTES = 256 };

typedef struct tree_source {
  tdict_tree *tree;
  int64_t length;
  size_t num_fields, capacity;
  tdict_field *fields;   /* owned, with the paths of the fields */
  size_t *row_bytes;     /* bytes of a row of each field */
  bool has_strided_rows; /* true if at least one field has rows that are not contiguous */
  bool has_objects; /* true if the tree has objects, which fields cannot describe; only `fetch_sample` is then set */
} tree_source;

static void release_tree_source(void *self) {
  tree_source *s = self;
  for (size_t i = 0; i < s->num_fields; i++) free((char *)s->fields[i].path);
  free(s->fields);
  free(s->row_bytes);
  tdict_release(s->tree);
  free(s);
}

/* Checks that a sample can be selected from an object. */
static tdict_status add_tree_object(tree_source *s, const tdict_entry *entry, tdict_error *err) {
  const tdict_box box = {.type = entry->type, .self = entry->object};
  if (!tdict_builtin_of(entry->type))
    return tdict_fail(err, TDICT_ENOTSUP, "%s: an object of type %s, wanted tensors or objects of the library's types",
                      error_prefix, entry->type->name);
  if (!tdict_box_begins_with(&box, s->tree->batch_ndim, s->tree->batch_size))
    return tdict_box_mismatch(error_prefix, s->tree, &box, err);
  s->has_objects = true;
  return TDICT_OK;
}

/* Checks a leaf of the tree and adds the leaf to the table of fields. tdict_walk() calls this function for each
 * entry. */
static tdict_status add_tree_field(void *user, const tdict_entry *entry, tdict_error *err) {
  tree_source *s = user;
  if (entry->tree) return TDICT_OK;
  if (!entry->tensor) return add_tree_object(s, entry, err);

  /* Check the tensor. */
  const tdict_tensor *t = entry->tensor;
  int ndim = tdict_tensor_ndim(t) - 1;
  if (!tdict_tensor_begins_with(t, s->tree->batch_ndim, s->tree->batch_size))
    return tdict_batch_mismatch(error_prefix, s->tree, t, err);
  if (tdict_tensor_device(t).type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, wanted host memory", error_prefix,
                      TDICT_DEVICE_TEXT(tdict_tensor_device(t)));
  if (ndim > MAX_ROW_NDIM)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: %d dimensions after the first, wanted at most %d", error_prefix, ndim,
                      (int)MAX_ROW_NDIM);
  if (s->num_fields == s->capacity)
    return tdict_fail(err, TDICT_EINVAL, "%s: the tree was changed while it was read", error_prefix);

  /* Describe the tensor's rows. */
  tdict_field *field = &s->fields[s->num_fields];
  field->dtype = tdict_tensor_dtype(t);
  field->ndim = ndim;
  size_t bytes = tdict_dtype_bytes(field->dtype);
  for (int i = 0; i < ndim; i++) {
    field->shape[i] = tdict_tensor_shape(t)[i + 1];
    /* An overflow is possible only if the tensor is empty. */
    if (!tdict_mul_size(bytes, (size_t)field->shape[i], &bytes))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: a sample's bytes do not fit 64 bits", error_prefix);
  }
  field->path = strdup(entry->path);
  if (!field->path) return tdict_fail_memory(err, error_prefix, NULL, "a path");
  s->row_bytes[s->num_fields++] = bytes;
  if (!tdict_layout_is_contiguous(ndim, t->dims + 1, tdict_tensor_strides(t) + 1)) s->has_strided_rows = true;
  return TDICT_OK;
}

static int64_t tree_length(void *self) { return ((tree_source *)self)->length; }

/* Copies one field of all samples of a batch. The rows of the field must be contiguous. */
static tdict_status gather_field(const tree_source *s, size_t f, const int64_t *indices, int64_t count,
                                 tdict_tree *batch, tdict_error *err) {
  tdict_tensor *from, *to;
  const tdict_field *field = &s->fields[f];
  size_t bytes = s->row_bytes[f];
  tdict_status status = tdict_get(s->tree, field->path, &from, err);
  if (status == TDICT_OK) status = tdict_get(batch, field->path, &to, err);
  if (status != TDICT_OK) return status;
  if (bytes == 0 || s->length == 0) return TDICT_OK;
  const char *src = tdict_tensor_const_data(from);
  char *dst = tdict_tensor_data(to);
  if (tdict_storage_is_unloaded(from->storage))
    return tdict_error_at(err, tdict_tensor_refuse_lost(error_prefix, "the bytes", from, err), field->path);
  if (!src || !dst)
    return tdict_fail_at(err, TDICT_ECHANGED, field->path, "%s: the tensor is missing or has no data", error_prefix);
  int64_t pitch = 0; /* The stride of a dimension of size 1 is meaningless. */
  if (s->length > 1) pitch = tdict_tensor_strides(from)[0] * (int64_t)tdict_dtype_bytes(field->dtype);
  tdict_row_stores stores = tdict_row_stores_choose(to, count, bytes);
  const int64_t plain = bytes < MIN_STREAMED_BYTES ? count : stores.tail_begin;
  const tdict_rows rows = {.positions = indices, .count = plain, .pitch = pitch, .step = (int64_t)bytes};
  tdict_rows_read(dst, src, &rows, bytes);
  for (int64_t i = plain; i < count; i++)
    tdict_stream_copy(tdict_row_stores_at(&stores, i), dst + (size_t)i * bytes, src + indices[i] * pitch, bytes);
  return TDICT_OK;
}

/* Copies samples one by one, with all their fields. This is slower than gather_field(), but works for any strides. */
static tdict_status write_strided_rows(const tree_source *s, const int64_t *indices, int64_t count, tdict_tree *batch,
                                       tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_tree *row;
    status = tdict_index_get(NULL, s->tree, TDICT_INDEX(TDICT_AT(indices[i])), NULL, &row, err);
    if (status != TDICT_OK) break;
    status = tdict_write_rows(batch, i, row, err);
    tdict_release(row);
  }
  return status;
}

static tdict_status fetch_tree_batch(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                     tdict_tree *batch, tdict_error *err) {
  (void)info;
  const tree_source *s = self;
  for (int64_t i = 0; i < count; i++)
    if (indices[i] < 0 || indices[i] >= s->length)
      return tdict_fail(err, TDICT_EINVAL, "%s: sample %lld of %lld", error_prefix, (long long)indices[i],
                        (long long)s->length);
  if (s->has_strided_rows) return write_strided_rows(s, indices, count, batch, err);
  tdict_status status = TDICT_OK;
  for (size_t f = 0; f < s->num_fields && status == TDICT_OK; f++)
    status = gather_field(s, f, indices, count, batch, err);
  tdict_stream_fence();
  return status;
}

static tdict_status fetch_tree_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                      tdict_error *err) {
  (void)info;
  const tree_source *s = self;
  return tdict_index_get(NULL, s->tree, TDICT_INDEX(TDICT_AT(index)), NULL, out, err);
}

tdict_status tdict_dataset_from_tree(const tdict_tree *tree, tdict_dataset **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, error_prefix, tree ? "out" : "the tree");
  if (tdict_batch_ndim(tree) < 1)
    return tdict_fail(err, TDICT_EINVAL, "%s: the tree has no batch dimension to take samples from", error_prefix);
  tree_source *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail_memory(err, error_prefix, NULL, "its record");
  /* Clone the nodes, so that the program cannot change the keys after they were checked. */
  tdict_status status = tdict_clone(tree, &s->tree, err);
  s->length = tdict_batch_size(tree)[0];
  s->capacity = tdict_num_leaves(tree);
  s->fields = calloc(s->capacity + 1, sizeof *s->fields);
  s->row_bytes = calloc(s->capacity + 1, sizeof *s->row_bytes);
  if (status == TDICT_OK && !(s->fields && s->row_bytes))
    status = tdict_fail_memory(err, error_prefix, NULL, "%zu fields", s->capacity);
  if (status == TDICT_OK) status = tdict_walk(s->tree, add_tree_field, s, err);
  if (status != TDICT_OK) {
    release_tree_source(s);
    return status;
  }
  tdict_dataset_table t = tdict_dataset_table_default();
  t.name = "tree";
  t.self = s;
  t.length = tree_length;
  if (!s->has_objects) {
    t.fields = s->fields;
    t.num_fields = s->num_fields;
    t.fetch_batch = fetch_tree_batch;
  }
  t.fetch_sample = fetch_tree_sample;
  t.release = release_tree_source;
  return tdict_dataset_wrap(&t, out, err);
}
