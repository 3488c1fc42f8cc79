/* Makes the structs of an exported array and its schema. Each struct owns one allocation, in which its children lie.
 * The release callbacks may run on any thread. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_NODE_H
#define TDICT_SERVICES_INTEROP_ARROW_NODE_H

#include "tdict/arrow.h"

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

/* Fills both structs. The buffers are NULL, and `release` of each child is NULL. Returns TDICT_ENOMEM if memory is
 * exhausted; the structs may then be filled in part. In all cases the caller releases both structs with
 * tdict_arrow_node_release(). */
tdict_status tdict_arrow_node_make(const tdict_arrow_node *node, const tdict_arrow_field *field, tdict_error *err);
/* Sets buffer `i` to the elements of a contiguous tensor. Takes over the caller's reference. If `tensor` is NULL, the
 * buffer is NULL. */
void tdict_arrow_node_set_buffer(const tdict_arrow_node *node, int i, tdict_tensor *tensor);
static inline tdict_arrow_node tdict_arrow_node_child(const tdict_arrow_node *node, int64_t i) {
  return (tdict_arrow_node){node->schema->children[i], node->array->children[i]};
}
/* Releases both structs. Skips a struct whose `release` is NULL. */
void tdict_arrow_node_release(const tdict_arrow_node *node);
/* Copies a schema that this library has made. Returns false if memory is exhausted; the caller must then not release
 * *out. */
bool tdict_arrow_schema_copy(const struct ArrowSchema *schema, struct ArrowSchema *out);

#endif
