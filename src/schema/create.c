/* Creates a tree from a schema. First checks and measures all entries, or takes their size from the schema, then allocates the tensors, then adds the
 * entries to new nodes. Thread rule: thread-safe, since only new trees are written. */
#include "schema/create.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "schema/schema.h"
#include "tensor/arena.h"

static const char what[] = "tree_schema_create";

typedef struct maker {
  const tdict_tree_schema *schema;
  int batch_ndim; /* number of batch dimensions of the new root */
  const int64_t *batch_size;
  tdict_arena arena;
  tdict_tree *nodes[TDICT_SCHEMA_MAX_DEPTH + 1]; /* the open nodes; borrowed from the root, which the maker owns */
} maker;

enum { SHAPE_DIMS = TDICT_MAX_BATCH_NDIM + TDICT_MAX_NDIM, LEAF_ALIGNMENT = 256 };
/* Writes the batch size of an entry, with the batch size of the new root in place of the batch size of the schema's
 * root. If the entry is a tensor, then writes the sizes of its other dimensions. Returns the number of sizes. */
static int write_sizes(const maker *m, const tdict_schema_entry *entry, int64_t sizes[SHAPE_DIMS]) {
  int count = m->batch_ndim;
  for (int i = 0; i < count; i++) sizes[i] = m->batch_size[i];
  for (int i = m->schema->batch_ndim; i < entry->batch_ndim; i++) sizes[count++] = entry->batch_size[i];
  for (int i = 0; i < entry->ndim; i++) sizes[count++] = entry->shape[i];
  return count;
}

static tdict_status measure_entry(maker *m, const tdict_schema_entry *entry, tdict_error *err) {
  int64_t sizes[SHAPE_DIMS];
  const int count = write_sizes(m, entry, sizes);
  if (entry->kind == TDICT_SCHEMA_TENSOR) return tdict_arena_measure(&m->arena, what, entry->dtype, count, sizes, err);
  if (entry->kind == TDICT_SCHEMA_TREE) return tdict_batch_check(what, count, sizes, err);
  return tdict_fail(err, TDICT_ENOTSUP, "%s: an object of type %.80s cannot be created", what, entry->type_name);
}

/* Creates the tensor or tree of an entry and adds it to the node of its parent. */
static tdict_status create_entry(maker *m, const tdict_schema_entry *entry, tdict_error *err) {
  int64_t sizes[SHAPE_DIMS];
  const int count = write_sizes(m, entry, sizes);
  const tdict_name name = tdict_name_of(entry->key, strlen(entry->key));
  tdict_leaf leaf;
  if (entry->kind == TDICT_SCHEMA_TENSOR) {
    leaf = tdict_leaf_of_tensor(tdict_arena_add(&m->arena, entry->dtype, count, sizes));
  } else {
    tdict_tree *node;
    tdict_status status = tdict_create(count, sizes, &node, err);
    if (status != TDICT_OK) return status;
    m->nodes[entry->depth + 1] = node;
    leaf = tdict_leaf_of_tree(node);
  }
  if (tdict_node_add_name(m->nodes[entry->depth], &name, leaf)) return TDICT_OK;
  tdict_leaf_release(leaf);
  return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for a key", what);
}

/* Calls `make` for all entries. */
static tdict_status for_entries(maker *m, tdict_status (*make)(maker *, const tdict_schema_entry *, tdict_error *),
                                tdict_error *err) {
  char path[TDICT_SCHEMA_PATH_BYTES];
  for (size_t i = 0; i < m->schema->num_entries; i++) {
    tdict_status status = make(m, &m->schema->entries[i], err);
    if (status != TDICT_OK) return tdict_error_at(err, status, tdict_schema_cut_path(m->schema, i, path));
  }
  return TDICT_OK;
}

/* If `status` is TDICT_OK, adds all entries to the root. On failure, releases the root and returns the error. */
static tdict_status finish_tree(maker *m, tdict_status status, tdict_tree **out, tdict_error *err) {
  if (status == TDICT_OK) status = for_entries(m, create_entry, err);
  tdict_arena_reset(&m->arena);
  if (status != TDICT_OK) {
    tdict_release(m->nodes[0]);
    return status;
  }
  *out = m->nodes[0];
  return TDICT_OK;
}

/* Prepares the maker of a tree whose root has the given batch size. */
static void init_maker(maker *m, const tdict_tree_schema *schema, int batch_ndim, const int64_t *batch_size) {
  m->schema = schema;
  m->batch_ndim = batch_ndim;
  m->batch_size = batch_size;
  m->arena = (tdict_arena){0};
  m->nodes[0] = NULL;
}

/* Measures all entries. `replaces` is true if the root does not have the batch size of the schema. */
static tdict_status measure(maker *m, bool replaces, tdict_error *err) {
  const tdict_tree_schema *s = m->schema;
  if (replaces || s->num_objects || s->size.is_too_large) return for_entries(m, measure_entry, err);
  m->arena.num_tensors = s->num_tensors; /* the sizes in a schema were checked when the blob was read */
  m->arena.num_dims = s->size.num_dims;
  m->arena.bytes = s->size.bytes;
  return TDICT_OK;
}

/* Returns the padding after the last tensor with elements. All entries were measured. */
static size_t measure_padding(const maker *m) {
  for (size_t i = m->schema->num_entries; i > 0; i--) {
    const tdict_schema_entry *entry = &m->schema->entries[i - 1];
    int64_t sizes[SHAPE_DIMS];
    size_t bytes = entry->kind == TDICT_SCHEMA_TENSOR ? tdict_dtype_bytes(entry->dtype) : 0;
    const int count = bytes ? write_sizes(m, entry, sizes) : 0;
    for (int d = 0; d < count; d++) bytes *= (size_t)sizes[d];
    if (bytes) return tdict_align(bytes, LEAF_ALIGNMENT) - bytes;
  }
  return 0;
}

tdict_status tdict_schema_measure_batch(const tdict_tree_schema *schema, const int64_t *batch_size, size_t *out,
                                        size_t *last_padding, tdict_error *err) {
  maker m;
  init_maker(&m, schema, schema->batch_ndim, batch_size ? batch_size : schema->batch_size);
  tdict_status status = measure(&m, batch_size != NULL, err);
  if (status != TDICT_OK) return status;
  *out = m.arena.bytes;
  if (last_padding) *last_padding = batch_size ? measure_padding(&m) : schema->size.padding;
  return TDICT_OK;
}

tdict_status tdict_schema_measure(const tdict_tree_schema *schema, size_t *out, tdict_error *err) {
  return tdict_schema_measure_batch(schema, NULL, out, NULL, err);
}

tdict_status tdict_schema_create_at(const tdict_tree_schema *schema, const tdict_schema_place *place, tdict_tree **out,
                                    tdict_error *err) {
  maker m;
  init_maker(&m, schema, schema->batch_ndim, place->batch_size ? place->batch_size : schema->batch_size);
  tdict_status status = tdict_create(m.batch_ndim, m.batch_size, &m.nodes[0], err);
  m.arena.num_tensors = schema->num_tensors;
  m.arena.num_dims = schema->size.num_dims;
  m.arena.next = place->offset;
  if (status == TDICT_OK) status = tdict_arena_use(&m.arena, place->storage, err);
  return finish_tree(&m, status, out, err);
}

tdict_status tdict_schema_create_over(const tdict_tree_schema *schema, tdict_storage *storage, tdict_tree **out,
                                      tdict_error *err) {
  const tdict_schema_place place = {.storage = storage};
  size_t bytes;
  tdict_status status = tdict_schema_measure(schema, &bytes, err);
  return status == TDICT_OK ? tdict_schema_create_at(schema, &place, out, err) : status;
}

tdict_status tdict_tree_schema_create(const tdict_tree_schema *schema, const tdict_tree_schema_create_options *options,
                                      tdict_tree **out, tdict_error *err) {
  tdict_tree_schema_create_options o = tdict_tree_schema_create_options_default();
  if (!schema || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, schema ? "out" : "schema");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "tree_schema_create_options", err);
  if (status != TDICT_OK) return status;
  const bool replaces = o.batch_ndim != -1;
  maker m;
  init_maker(&m, schema, replaces ? o.batch_ndim : schema->batch_ndim, replaces ? o.batch_size : schema->batch_size);
  status = tdict_create(m.batch_ndim, m.batch_size, &m.nodes[0], err);
  if (status == TDICT_OK) status = measure(&m, replaces, err);
  if (status == TDICT_OK) status = tdict_arena_allocate(&m.arena, o.memory, !o.is_uninitialized, err);
  return finish_tree(&m, status, out, err);
}
