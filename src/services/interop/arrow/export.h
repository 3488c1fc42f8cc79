/* Declares the export of a tree, for the calls that export arrays, device arrays and streams, and the structs that an
 * export makes. Each struct owns one allocation, in which its children lie. The caller releases the exported schema and
 * the exported array. The release callbacks may run on any thread. Thread rule: as in tdict/arrow.h. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_EXPORT_H
#define TDICT_SERVICES_INTEROP_ARROW_EXPORT_H

#include "core/memory/memory.h"
#include "services/interop/arrow/type.h"

/* A schema and an array of the same field. `release` of both is NULL until tdict_arrow_node_make(). */
typedef struct tdict_arrow_node {
  struct ArrowSchema *schema;
  struct ArrowArray *array;
} tdict_arrow_node;

typedef struct tdict_arrow_field {
  const char *format, *name; /* copied */
  int64_t length, null_count;
  int num_buffers;
  int64_t num_children;
} tdict_arrow_field;

/* Fills both structs, in which the buffers and each child's `release` are NULL. After TDICT_ENOMEM, they may be filled
 * in part. The caller always releases both with tdict_arrow_node_release(). */
tdict_status tdict_arrow_node_make(const tdict_arrow_node *node, const tdict_arrow_field *field, tdict_error *err);
static inline tdict_arrow_node tdict_arrow_node_child(const tdict_arrow_node *node, int64_t i) {
  return (tdict_arrow_node){node->schema->children[i], node->array->children[i]};
}
/* Releases both structs. Skips a struct whose `release` is NULL. */
void tdict_arrow_node_release(const tdict_arrow_node *node);
/* Copies a schema of this library. If memory is exhausted, returns false; the caller then must not release *out. */
bool tdict_arrow_schema_copy(const struct ArrowSchema *schema, struct ArrowSchema *out);

typedef struct tdict_arrow_exporter {
  const char *what;
  int64_t num_rows;
  bool found; /* true: the tree has a tensor or a ragged leaf; `device` and `memory` are those of the first */
  tdict_device device;
  tdict_memory *memory; /* for tensors that the export makes on a device */
  bool any_device;      /* false: only host memory is allowed */
  bool is_pinned;       /* true: all buffers so far are pinned for cuda devices */
  bool has_buffers;     /* true: there is at least one buffer */
} tdict_arrow_exporter;

/* Exports a tree. The caller owns the structs of `node`. Writes the structs on success only. */
tdict_status tdict_arrow_export_tree(tdict_arrow_exporter *e, const tdict_tree *tree, const tdict_arrow_node *node,
                                     tdict_error *err);

/* Exports a column of values as `num_rows` rows. The caller releases the node, also after a failure. */
tdict_status tdict_arrow_export_values(tdict_arrow_exporter *e, const void *values, const char *name,
                                       const tdict_arrow_node *node, tdict_error *err);
/* Sets a buffer to the elements of a contiguous tensor. Takes over the caller's reference. */
void tdict_arrow_export_buffer(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer, tdict_tensor *tensor);
/* Moves a new host tensor to the device of the export, sets the buffer, and takes over `host` also on failure. Returns
 * TDICT_EWRONGDEVICE for device memory of the program, and errors of tdict_tensor_clone(). */
tdict_status tdict_arrow_export_place(tdict_arrow_exporter *e, const tdict_arrow_node *node, int buffer,
                                      tdict_tensor *host, tdict_error *err);
/* Makes a host tensor for `count` bits, all 0. */
tdict_status tdict_arrow_make_bits(int64_t count, tdict_tensor **out, tdict_error *err);

#endif
