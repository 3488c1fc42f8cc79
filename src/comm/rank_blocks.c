/* Lays out the blocks of all ranks. Thread rule: see rank_blocks.h. */
#include "comm/rank_blocks.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "comm/source.h"
#include "ops/map.h"
#include "schema/create.h"

tdict_status tdict_rank_blocks_init(const tdict_comm_call *call, tdict_rank_blocks *out, tdict_error *err) {
  const size_t world = (size_t)call->comm->table.world;
  *out = (tdict_rank_blocks){.world = call->comm->table.world,
                             .rows = calloc(world, sizeof *out->rows),
                             .offsets = calloc(world, sizeof *out->offsets),
                             .bytes = calloc(world, sizeof *out->bytes),
                             .trees = calloc(world, sizeof *out->trees)};
  if (out->rows && out->offsets && out->bytes && out->trees) return TDICT_OK;
  tdict_rank_blocks_reset(out);
  return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for %zu ranks", tdict_comm_what(call), world);
}

void tdict_rank_blocks_reset(tdict_rank_blocks *blocks) {
  for (int32_t r = 0; blocks->trees && r < blocks->world; r++) tdict_release(blocks->trees[r]);
  if (blocks->storage) tdict_storage_release(blocks->storage);
  free(blocks->rows);
  free(blocks->offsets);
  free(blocks->bytes);
  free(blocks->trees);
  *blocks = (tdict_rank_blocks){0};
}

/* Describes the view of a tensor `*user` bytes after the tensor. */
static tdict_status describe_shifted(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                     tdict_error *err) {
  (void)entry, (void)err;
  tdict_made_of(from, made);
  made->data = (char *)from->data + *(const size_t *)map->user;
  return TDICT_OK;
}

/* Makes a tree over the bytes of the storage from `offset` on. */
static tdict_status place_tree(const tdict_tree_schema *schema, tdict_storage *storage, size_t offset, tdict_tree **out,
                               tdict_error *err) {
  tdict_tree *first;
  tdict_status status = tdict_schema_create_over(schema, storage, &first, err);
  if (status != TDICT_OK) return status;
  const tdict_map map = {.what = "comm",
                         .batch_in = first->batch_ndim,
                         .batch_out = first->batch_ndim,
                         .batch_size = first->batch_size,
                         .describe = describe_shifted,
                         .user = &offset};
  if (offset == 0)
    *out = tdict_retain(first);
  else
    status = tdict_map_run(&map, first, out, err);
  tdict_release(first);
  return status;
}

/* Writes the schema of a rank to *out, a new reference. */
static tdict_status schema_of(const tdict_comm_call *call, const tdict_tree_schema *schema, int dim, int64_t rows,
                              tdict_tree_schema **out, tdict_error *err) {
  if (dim >= 0) return tdict_comm_set_rows(schema, tdict_comm_what(call), dim, rows, out, err);
  *out = tdict_tree_schema_retain(schema);
  return TDICT_OK;
}

/* Computes the size and the place of the block of a rank. */
static tdict_status measure_block(const tdict_comm_call *call, const tdict_tree_schema *schema, int dim, int32_t r,
                                  tdict_rank_blocks *b, tdict_error *err) {
  tdict_tree_schema *own;
  size_t padded = 0;
  tdict_status status = schema_of(call, schema, dim, b->rows[r], &own, err);
  if (status != TDICT_OK) return status;
  status = tdict_schema_measure(own, &padded, err);
  if (status == TDICT_OK) status = tdict_comm_block_bytes(own, &b->bytes[r], err);
  tdict_tree_schema_release(own);
  b->offsets[r] = b->total;
  b->step = padded;
  if (status == TDICT_OK && (!tdict_add_size(b->total, padded, &b->total) || b->total > INT64_MAX))
    status = tdict_fail(err, TDICT_EOVERFLOW, "%s: the trees of all ranks need more than 2^63 - 1 bytes",
                        tdict_comm_what(call));
  return status;
}

tdict_status tdict_rank_blocks_allocate(const tdict_comm_call *call, const tdict_tree_schema *schema, int dim,
                                        tdict_memory *memory, tdict_rank_blocks *out, tdict_error *err) {
  tdict_status status = TDICT_OK;
  out->are_equal = true;
  for (int32_t r = 0; r < out->world && status == TDICT_OK; r++) {
    out->are_equal = out->are_equal && out->rows[r] == out->rows[0];
    status = measure_block(call, schema, dim, r, out, err);
  }
  if (!memory) memory = tdict_comm_memory(call->comm);
  if (status == TDICT_OK) status = tdict_storage_create(memory, out->total, false, &out->storage, err);
  if (status != TDICT_OK) return status;
  out->data = out->storage->data;
  for (int32_t r = 0; r < out->world && status == TDICT_OK; r++) {
    tdict_tree_schema *own;
    status = schema_of(call, schema, dim, out->rows[r], &own, err);
    if (status != TDICT_OK) return status;
    status = place_tree(own, out->storage, out->offsets[r], &out->trees[r], err);
    tdict_tree_schema_release(own);
  }
  return status;
}

/* Describes the view of a tensor of the first block with a new first dimension over all blocks. */
static tdict_status describe_stacked(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                     tdict_error *err) {
  const tdict_rank_blocks *b = map->user;
  (void)entry;
  if (from->ndim == TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have more than %d dimensions", map->what, TDICT_MAX_NDIM);
  made->fresh = false;
  made->ndim = from->ndim + 1;
  made->data = from->data;
  made->shape[0] = b->world;
  made->strides[0] = (int64_t)(b->step / tdict_dtype_bytes(from->dtype));
  for (int i = 0; i < from->ndim; i++) {
    made->shape[i + 1] = from->dims[i];
    made->strides[i + 1] = tdict_tensor_dims_strides(from)[i];
  }
  return TDICT_OK;
}

/* Stops the walk at a tensor whose elements do not divide the step. */
static tdict_status check_divides(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  const bool divides = !entry->tensor || *(const size_t *)user % tdict_dtype_bytes(entry->tensor->dtype) == 0;
  return divides ? TDICT_OK : TDICT_ENOTFOUND;
}

tdict_status tdict_rank_blocks_stack(const tdict_rank_blocks *blocks, tdict_tree **out, tdict_error *err) {
  size_t step = blocks->step;
  tdict_status status = tdict_walk(blocks->trees[0], check_divides, &step, err);
  *out = NULL;
  if (status == TDICT_ENOTFOUND) return TDICT_OK;
  if (status != TDICT_OK) return status;
  if (blocks->trees[0]->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "all_gather_stack: the tree has %d batch dimensions, the maximum",
                      TDICT_MAX_BATCH_NDIM);
  const int64_t world = blocks->world;
  const tdict_map map = {.what = "all_gather_stack",
                         .batch_in = 0,
                         .batch_out = 1,
                         .batch_size = &world,
                         .more_dims = 1,
                         .describe = describe_stacked,
                         .user = (void *)(uintptr_t)blocks};
  return tdict_map_run(&map, blocks->trees[0], out, err);
}
