/* Implements structs of exported arrays and schemas, and sets their buffers. See export.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/memory/pinned_pool.h"
#include "core/tensor/tensor.h"
#include "device/gpu.h"
#include "services/interop/arrow/export.h"

enum { MOST_BUFFERS = 3 };

/* The private data of an exported array. The children follow the struct, and then the pointers to them. */
typedef struct array_data {
  tdict_tensor *tensors[MOST_BUFFERS]; /* retained */
  const void *buffers[MOST_BUFFERS];
  struct ArrowArray children[];
} array_data;

/* The private data of an exported schema. The pointers to the children, the format and the name follow the children. */
typedef struct schema_data {
  int64_t num_children;
  struct ArrowSchema children[];
} schema_data;

/* Releases an array and its children, except those that a consumer has moved out: their `release` is NULL. */
static void release_array(struct ArrowArray *array) {
  array_data *data = array->private_data;
  for (int64_t i = 0; i < array->n_children; i++)
    if (data->children[i].release) data->children[i].release(&data->children[i]);
  for (int i = 0; i < MOST_BUFFERS; i++) tdict_tensor_release(data->tensors[i]);
  array->release = NULL;
  free(data);
}

static void release_schema(struct ArrowSchema *schema) {
  schema_data *data = schema->private_data;
  for (int64_t i = 0; i < data->num_children; i++)
    if (data->children[i].release) data->children[i].release(&data->children[i]);
  schema->release = NULL;
  free(data);
}

static bool make_array(struct ArrowArray *array, const tdict_arrow_field *field) {
  const size_t children = (size_t)field->num_children;
  size_t bytes;
  if (!tdict_mul_size(children, sizeof(struct ArrowArray) + sizeof(struct ArrowArray *), &bytes) ||
      !tdict_add_size(bytes, sizeof(array_data), &bytes))
    return false;
  array_data *data = calloc(1, bytes);
  if (!data) return false;
  memset(array, 0, sizeof *array);
  array->length = field->length;
  array->null_count = field->null_count;
  array->n_buffers = field->num_buffers;
  array->n_children = field->num_children;
  array->buffers = data->buffers;
  if (children) array->children = (struct ArrowArray **)(void *)(data->children + children);
  for (size_t i = 0; i < children; i++) array->children[i] = &data->children[i];
  array->release = release_array;
  array->private_data = data;
  return true;
}

static bool make_schema(struct ArrowSchema *schema, const tdict_arrow_field *field) {
  const size_t children = (size_t)field->num_children;
  const size_t format_bytes = strlen(field->format) + 1, name_bytes = strlen(field->name) + 1;
  size_t bytes;
  if (!tdict_mul_size(children, sizeof(struct ArrowSchema) + sizeof(struct ArrowSchema *), &bytes) ||
      !tdict_add_size(bytes, sizeof(schema_data) + format_bytes, &bytes) || !tdict_add_size(bytes, name_bytes, &bytes))
    return false;
  schema_data *data = calloc(1, bytes);
  if (!data) return false;
  memset(schema, 0, sizeof *schema);
  struct ArrowSchema **pointers = (struct ArrowSchema **)(void *)(data->children + children);
  char *text = (char *)(pointers + children);
  schema->format = memcpy(text, field->format, format_bytes);
  schema->name = memcpy(text + format_bytes, field->name, name_bytes);
  /* Declare each field nullable, as other libraries do, because tables can be joined only if their types are equal. */
  schema->flags = ARROW_FLAG_NULLABLE;
  schema->n_children = field->num_children;
  if (children) schema->children = pointers;
  for (size_t i = 0; i < children; i++) pointers[i] = &data->children[i];
  data->num_children = field->num_children;
  schema->release = release_schema;
  schema->private_data = data;
  return true;
}

tdict_status tdict_arrow_node_make(const tdict_arrow_node *node, const tdict_arrow_field *field, tdict_error *err) {
  if (make_schema(node->schema, field) && make_array(node->array, field)) return TDICT_OK;
  return tdict_fail_memory(err, "arrow_export", NULL, "the structs of a field");
}

void tdict_arrow_node_release(const tdict_arrow_node *node) {
  if (node->array->release) node->array->release(node->array);
  if (node->schema->release) node->schema->release(node->schema);
}

bool tdict_arrow_schema_copy(const struct ArrowSchema *schema, struct ArrowSchema *out) {
  const tdict_arrow_field field = {.format = schema->format, .name = schema->name, .num_children = schema->n_children};
  if (!make_schema(out, &field)) return false;
  for (int64_t i = 0; i < schema->n_children; i++) {
    if (tdict_arrow_schema_copy(schema->children[i], out->children[i])) continue;
    out->release(out);
    return false;
  }
  return true;
}

tdict_status tdict_arrow_make_bits(int64_t count, tdict_tensor **out, tdict_error *err) {
  const int64_t bytes = count / 8 + (count % 8 != 0);
  return tdict_tensor_zeros(TDICT_U8, 1, &bytes, NULL, out, err);
}

/* Returns true if the tensor is in the pinned pool of a context that has a cuda device. */
static bool is_pinned_for_cuda(const tdict_tensor *t) {
  const tdict_storage *s = t->storage;
  if (!(s->flags & TDICT_STORAGE_PINNED) || !s->memory) return false;
  const tdict_gpu *gpu = tdict_pinned_pool_pinner_self(s->memory);
  return gpu && gpu->driver->device_type == TDICT_DEVICE_CUDA;
}

void tdict_arrow_export_buffer(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer,
                               tdict_tensor *tensor) {
  e->is_pinned = e->is_pinned && is_pinned_for_cuda(tensor);
  e->has_buffers = true;
  array_data *data = node->array->private_data;
  data->tensors[buffer] = tensor;
  data->buffers[buffer] = tensor->data;
}

tdict_status tdict_arrow_export_place(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer,
                                      tdict_tensor *host, tdict_error *err) {
  tdict_tensor *placed = host;
  if (e->found && e->device.type != TDICT_DEVICE_CPU) {
    tdict_status status = TDICT_OK;
    if (!e->memory)
      status = tdict_fail(err, TDICT_EWRONGDEVICE,
                          "%s: the leaf needs a copy, but the device memory belongs to the program", e->what);
    if (status == TDICT_OK) status = tdict_tensor_clone(host, e->memory, &placed, err);
    tdict_tensor_release(host);
    if (status != TDICT_OK) return status;
  }
  tdict_arrow_export_buffer(e, node, buffer, placed);
  return TDICT_OK;
}
