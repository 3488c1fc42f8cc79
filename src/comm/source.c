/* Checks the trees of a rank. Thread rule: see source.h. */
#include "comm/source.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "schema/blob.h"

/* Finds the schema of a tree. Most programs send trees of few schemas again and again, and comparing a tree with a
 * schema takes less time than making a schema. */
static tdict_status find_schema(tdict_comm *comm, const tdict_tree *tree, tdict_tree_schema **out, tdict_error *err) {
  tdict_tree_schema *found = tdict_schema_cache_match(&comm->own_schemas, tree);
  if (found) *out = tdict_tree_schema_retain(found);
  tdict_status status = found ? TDICT_OK : tdict_tree_schema_export(tree, out, err);
  if (status == TDICT_OK) tdict_schema_cache_use(&comm->own_schemas, *out);
  return status;
}

void tdict_comm_check_source(tdict_comm_call *call, const tdict_tree *tree, int use, tdict_comm_source *out) {
  const char *what = tdict_comm_what(call);
  tdict_error err;
  *out = (tdict_comm_source){0};
  if (!tree) {
    tdict_comm_note(call, tdict_fail(&err, TDICT_EINVAL, "%s: the tree is NULL", what), &err);
    return;
  }
  tdict_status status = tdict_comm_check_tree(call->comm, what, tree, use, out, &err);
  if (status == TDICT_OK) status = find_schema(call->comm, tree, &out->schema, &err);
  if (status != TDICT_OK) out->schema = NULL;
  tdict_comm_note(call, status, &err);
}

void tdict_comm_prepare_message(tdict_comm_call *call, const tdict_comm_source *source, tdict_block_message *out) {
  tdict_error err;
  if (!tdict_comm_is_fine(call)) return;
  tdict_comm_note(call, tdict_message_prepare(call->comm, source, out, &err), &err);
}

enum { MOST_INT_BYTES = 10 };
/* Writes an int of a blob and returns the address after the int. */
static uint8_t *write_int(uint8_t *at, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}
/* Returns the address after the int at `at`. */
static const uint8_t *skip_int(const uint8_t *at) {
  while (*at & 0x80) at++;
  return at + 1;
}

tdict_status tdict_comm_set_rows(const tdict_tree_schema *schema, const char *what, int dim, int64_t rows,
                                 tdict_tree_schema **out, tdict_error *err) {
  const size_t bytes = schema->num_bytes;
  if (dim < 0 || dim >= schema->batch_ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: dimension %d does not exist", what, dim);
  uint8_t *blob = malloc(bytes + MOST_INT_BYTES);
  if (!blob) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for a schema of %zu bytes", what, bytes);
  /* only the batch size of the root has the size: all other sizes in a blob are those of additional dimensions */
  const uint8_t *from = skip_int(schema->bytes + TDICT_BLOB_HEAD);
  for (int i = 0; i < dim; i++) from = skip_int(from);
  const size_t before = (size_t)(from - schema->bytes);
  memcpy(blob, schema->bytes, before);
  uint8_t *to = write_int(blob + before, (uint64_t)rows);
  from = skip_int(from);
  const size_t after = bytes - (size_t)(from - schema->bytes);
  memcpy(to, from, after);
  tdict_status status = tdict_blob_parse(blob, (size_t)(to - blob) + after, true, out, err);
  free(blob);
  return status;
}
