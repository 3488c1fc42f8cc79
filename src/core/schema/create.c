/* Creates a tree from a schema. First checks and measures all entries, or takes their size from the schema, then
 * allocates the tensors, then adds the entries to new nodes. The schema keeps the key tables of its first tree. Later
 * trees share these tables, so their keys are not hashed and copied again. Thread rule: thread-safe, since only new
 * trees are written, and a key table that several nodes share never changes. */
#include "core/schema/create.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/schema/schema.h"
#include "core/tensor/tensor_builder.h"
#include "core/tree/cursor.h"

static const char what[] = "create_from_schema";

typedef struct maker {
  const tdict_schema *schema;
  int batch_ndim; /* number of batch dimensions of the new root */
  const int64_t *batch_size;
  tdict_tensor_builder builder;
  const tdict_schema_tables *tables;               /* borrowed from the schema; NULL: the first tree of the schema */
  size_t num_nodes;                                /* number of nodes that were created */
  tdict_tree *nodes[TDICT_SCHEMA_MAX_DEPTH + 1];   /* the open nodes; borrowed from the root, which the maker owns */
  uint32_t next_slots[TDICT_SCHEMA_MAX_DEPTH + 1]; /* used with `tables`: the next empty slot of each open node */
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
  if (entry->kind == TDICT_SCHEMA_TENSOR)
    return tdict_tensor_builder_measure(&m->builder, what, entry->dtype, count, sizes, err);
  if (entry->kind == TDICT_SCHEMA_TREE) return tdict_batch_check(what, count, sizes, err);
  return tdict_fail(err, TDICT_ENOTSUP, "%s: an object of type %.80s cannot be created", what, entry->type_name);
}

/* Creates the node of a tree that has `depth` trees above. */
static tdict_status create_node(maker *m, int depth, int batch_ndim, const int64_t *batch_size, tdict_error *err) {
  tdict_tree **out = &m->nodes[depth];
  m->next_slots[depth] = 0;
  if (!m->tables) return tdict_create(batch_ndim, batch_size, out, err);
  return tdict_node_create_over(m->tables->tables[m->num_nodes++], batch_ndim, batch_size, out, err);
}

static tdict_status create_root(maker *m, tdict_error *err) {
  tdict_status status = tdict_batch_check("create", m->batch_ndim, m->batch_size, err);
  return status == TDICT_OK ? create_node(m, 0, m->batch_ndim, m->batch_size, err) : status;
}

/* Adds a leaf to the open node of its parent. Takes over the reference to the leaf. */
static tdict_status add_leaf(maker *m, const tdict_schema_entry *entry, tdict_leaf leaf, tdict_error *err) {
  tdict_tree *parent = m->nodes[entry->depth];
  if (m->tables) {
    parent->leaves[m->next_slots[entry->depth]++] = leaf;
    return TDICT_OK;
  }
  const tdict_name name = tdict_name_of(entry->key, strlen(entry->key));
  if (tdict_node_add_name(parent, &name, leaf)) return TDICT_OK;
  tdict_leaf_release(leaf);
  return tdict_fail_memory(err, what, NULL, "a key");
}

/* Creates the tensor or tree of an entry and adds it to the node of its parent. */
static tdict_status create_entry(maker *m, const tdict_schema_entry *entry, tdict_error *err) {
  int64_t sizes[SHAPE_DIMS];
  const int count = write_sizes(m, entry, sizes);
  if (entry->kind == TDICT_SCHEMA_TENSOR)
    return add_leaf(m, entry, tdict_leaf_of_tensor(tdict_tensor_builder_add(&m->builder, entry->dtype, count, sizes)),
                    err);
  tdict_status status = create_node(m, entry->depth + 1, count, sizes, err);
  return status == TDICT_OK ? add_leaf(m, entry, tdict_leaf_of_tree(m->nodes[entry->depth + 1]), err) : status;
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

/* Keeps the key tables of the first tree of a schema. */
static tdict_status keep_tables(const maker *m, tdict_tree *root, tdict_error *err) {
  tdict_schema *schema = (tdict_schema *)(uintptr_t)m->schema;
  const size_t count = 1 + schema->num_entries - schema->num_tensors;
  tdict_schema_tables *made = malloc(sizeof *made + count * sizeof made->tables[0]), *none = NULL;
  if (!made) return tdict_fail_memory(err, what, NULL, "key tables");
  made->tables[0] = tdict_keys_retain(root->keys);
  made->count = 1;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, root, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *node = tdict_leaf_tree(leaf);
    if (!node) continue;
    made->tables[made->count++] = tdict_keys_retain(node->keys);
    tdict_cursor_descend(&cursor, node, 0);
  }
  const tdict_status status = tdict_cursor_end(&cursor, what, TDICT_OK, err);
  /* Another thread may have kept the tables of another tree meanwhile. */
  if (status != TDICT_OK || !atomic_compare_exchange_strong_explicit(&schema->tables, &none, made, memory_order_acq_rel,
                                                                     memory_order_relaxed))
    tdict_schema_tables_free(made);
  return status;
}

/* If `status` is TDICT_OK, adds all entries to the root. On failure, releases the root and returns the error. */
static tdict_status finish_tree(maker *m, tdict_status status, tdict_tree **out, tdict_error *err) {
  if (status == TDICT_OK) status = for_entries(m, create_entry, err);
  if (status == TDICT_OK && !m->tables) status = keep_tables(m, m->nodes[0], err);
  tdict_tensor_builder_reset(&m->builder);
  if (status != TDICT_OK) {
    tdict_release(m->nodes[0]);
    return status;
  }
  *out = m->nodes[0];
  return TDICT_OK;
}

/* Prepares the maker of a tree whose root has the given batch size. */
static void init_maker(maker *m, const tdict_schema *schema, int batch_ndim, const int64_t *batch_size) {
  m->schema = schema;
  m->batch_ndim = batch_ndim;
  m->batch_size = batch_size;
  m->builder = (tdict_tensor_builder){0};
  m->tables = atomic_load_explicit(&schema->tables, memory_order_acquire);
  m->num_nodes = 0;
  m->nodes[0] = NULL;
}

/* Measures all entries. `replaces` is true if the root does not have the batch size of the schema. */
static tdict_status measure(maker *m, bool replaces, tdict_error *err) {
  const tdict_schema *s = m->schema;
  if (replaces || s->num_objects || s->size.is_too_large) return for_entries(m, measure_entry, err);
  m->builder.num_tensors = s->num_tensors; /* the sizes in a schema were checked when the blob was read */
  m->builder.num_dims = s->size.num_dims;
  m->builder.bytes = s->size.bytes;
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

tdict_status tdict_schema_measure_batch(const tdict_schema *schema, const int64_t *batch_size, size_t *out,
                                        size_t *last_padding, tdict_error *err) {
  maker m;
  init_maker(&m, schema, schema->batch_ndim, batch_size ? batch_size : schema->batch_size);
  tdict_status status = measure(&m, batch_size != NULL, err);
  if (status != TDICT_OK) return status;
  *out = m.builder.bytes;
  if (last_padding) *last_padding = batch_size ? measure_padding(&m) : schema->size.padding;
  return TDICT_OK;
}

tdict_status tdict_schema_measure(const tdict_schema *schema, size_t *out, tdict_error *err) {
  return tdict_schema_measure_batch(schema, NULL, out, NULL, err);
}

tdict_status tdict_schema_create_at(const tdict_schema *schema, const tdict_schema_place *place, tdict_tree **out,
                                    tdict_error *err) {
  maker m;
  init_maker(&m, schema, schema->batch_ndim, place->batch_size ? place->batch_size : schema->batch_size);
  tdict_status status = create_root(&m, err);
  m.builder.num_tensors = schema->num_tensors;
  m.builder.num_dims = schema->size.num_dims;
  m.builder.next = place->offset;
  if (status == TDICT_OK) status = tdict_tensor_builder_use(&m.builder, place->storage, err);
  return finish_tree(&m, status, out, err);
}

tdict_status tdict_schema_create_over(const tdict_schema *schema, tdict_storage *storage, tdict_tree **out,
                                      tdict_error *err) {
  const tdict_schema_place place = {.storage = storage};
  size_t bytes;
  tdict_status status = tdict_schema_measure(schema, &bytes, err);
  return status == TDICT_OK ? tdict_schema_create_at(schema, &place, out, err) : status;
}

tdict_status tdict_create_from_schema(const tdict_schema *schema, const tdict_create_options *options, tdict_tree **out,
                                      tdict_error *err) {
  tdict_create_options o = tdict_create_options_default();
  if (!schema || !out) return tdict_fail_null(err, what, schema ? "out" : "schema");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "create_options", err);
  if (status != TDICT_OK) return status;
  const bool replaces = o.batch_ndim != -1;
  if (!replaces && o.batch_size)
    return tdict_fail(err, TDICT_EINVAL, "%s: batch_size is set, but batch_ndim is -1", what);
  maker m;
  init_maker(&m, schema, replaces ? o.batch_ndim : schema->batch_ndim, replaces ? o.batch_size : schema->batch_size);
  status = create_root(&m, err);
  if (status == TDICT_OK) status = measure(&m, replaces, err);
  if (status == TDICT_OK) status = tdict_tensor_builder_allocate(&m.builder, o.memory, !o.is_uninitialized, err);
  return finish_tree(&m, status, out, err);
}
