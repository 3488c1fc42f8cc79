/* Lays out the blocks of all ranks. Thread rule: see rank_blocks.h. */
#include "services/comm/rank_blocks.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/ops/map.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "services/comm/table.h"

tdict_status tdict_rank_blocks_init(const tdict_comm_call *call, tdict_rank_blocks *out, tdict_error *err) {
  const size_t world = (size_t)call->comm->table.world_size;
  *out = (tdict_rank_blocks){.world = call->comm->table.world_size,
                             .rows = calloc(world, sizeof *out->rows),
                             .offsets = calloc(world, sizeof *out->offsets),
                             .bytes = calloc(world, sizeof *out->bytes),
                             .trees = calloc(world, sizeof *out->trees)};
  if (out->rows && out->offsets && out->bytes && out->trees) return TDICT_OK;
  tdict_rank_blocks_reset(out);
  return tdict_fail_memory(err, tdict_comm_what(call), NULL, "%zu ranks", world);
}

void tdict_rank_blocks_reset(tdict_rank_blocks *blocks) {
  for (int32_t r = 0; blocks->trees && r < blocks->world; r++) tdict_release(blocks->trees[r]);
  if (blocks->storage) tdict_storage_release(blocks->storage);
  tdict_schema_release(blocks->schema);
  free(blocks->rows);
  free(blocks->offsets);
  free(blocks->bytes);
  free(blocks->trees);
  *blocks = (tdict_rank_blocks){0};
}

const int64_t *tdict_rank_blocks_batch_size(const tdict_rank_blocks *b, int64_t rows,
                                            int64_t sizes[TDICT_MAX_BATCH_NDIM]) {
  if (b->dim < 0) return NULL;
  for (int i = 0; i < b->schema->batch_ndim; i++) sizes[i] = b->schema->batch_size[i];
  sizes[b->dim] = rows;
  return sizes;
}

tdict_status tdict_rank_blocks_measure(const tdict_rank_blocks *b, int64_t rows, size_t *bytes, size_t *last_padding,
                                       tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  if (b->runs && tdict_block_runs_measure(b->runs, rows, bytes, last_padding)) return TDICT_OK;
  /* also finds the entry whose bytes do not fit */
  return tdict_schema_measure_batch(b->schema, tdict_rank_blocks_batch_size(b, rows, sizes), bytes, last_padding, err);
}

/* Computes the size and the place of the block of a rank. */
static tdict_status measure_block(const tdict_comm_call *call, tdict_rank_blocks *b, int32_t r, tdict_error *err) {
  size_t padding;
  tdict_status status = TDICT_OK;
  if (r > 0 && b->rows[r] == b->rows[r - 1]) {
    b->bytes[r] = b->bytes[r - 1];
  } else {
    b->are_equal = r == 0;
    status = tdict_rank_blocks_measure(b, b->rows[r], &b->step, &padding, err);
    if (status == TDICT_OK) b->bytes[r] = b->step - padding;
  }
  b->offsets[r] = b->total;
  if (status == TDICT_OK && (!tdict_add_size(b->total, b->step, &b->total) || b->total > INT64_MAX))
    status = tdict_fail(err, TDICT_EOVERFLOW, "%s: the trees of all ranks need more than 2^63 - 1 bytes",
                        tdict_comm_what(call));
  return status;
}

tdict_status tdict_rank_blocks_allocate(const tdict_comm_call *call, const tdict_schema *schema, int dim,
                                        tdict_memory *memory, tdict_rank_blocks *out, tdict_error *err) {
  tdict_status status = TDICT_OK;
  out->schema = tdict_schema_retain(schema);
  out->dim = dim;
  if (dim >= 0) status = tdict_runs_cache_get(&call->comm->runs, tdict_comm_what(call), schema, dim, &out->runs, err);
  for (int32_t r = 0; r < out->world && status == TDICT_OK; r++) status = measure_block(call, out, r, err);
  if (!memory) memory = tdict_comm_memory(call->comm);
  if (status == TDICT_OK) status = tdict_storage_create(memory, out->total, false, &out->storage, err);
  if (status == TDICT_OK) out->data = out->storage->data;
  return status;
}

tdict_status tdict_rank_blocks_make_tree(tdict_rank_blocks *blocks, int32_t r, tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  if (blocks->trees[r]) return TDICT_OK;
  const tdict_schema_place place = {.storage = blocks->storage,
                                    .offset = blocks->offsets[r],
                                    .batch_size = tdict_rank_blocks_batch_size(blocks, blocks->rows[r], sizes)};
  return tdict_schema_create_at(blocks->schema, &place, &blocks->trees[r], err);
}

tdict_status tdict_rank_blocks_make_trees(tdict_rank_blocks *blocks, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int32_t r = 0; r < blocks->world && status == TDICT_OK; r++)
    status = tdict_rank_blocks_make_tree(blocks, r, err);
  return status;
}

/* Describes the view of a tensor of the first block with a new first dimension over all blocks. */
static tdict_status describe_stacked(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                     tdict_error *err) {
  const tdict_rank_blocks *b = map->user;
  (void)entry, (void)err;
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

tdict_status tdict_rank_blocks_check_stack(const tdict_rank_blocks *blocks, bool *out, tdict_error *err) {
  static const char what[] = "all_gather_stack";
  const tdict_schema *s = blocks->schema;
  char path[TDICT_SCHEMA_PATH_BYTES];
  *out = true;
  if (s->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the tree has %d batch dimensions, the maximum", what,
                      TDICT_MAX_BATCH_NDIM);
  const tdict_schema_size *size = &s->size;
  if (size->dtype && size->max_ndim < TDICT_MAX_NDIM && size->max_batch_ndim < TDICT_MAX_BATCH_NDIM) {
    *out = blocks->step % tdict_dtype_bytes(size->dtype) == 0; /* the loop below would find the same */
    return TDICT_OK;
  }
  for (size_t i = 0; i < s->num_entries; i++) {
    const tdict_schema_entry *e = &s->entries[i];
    const bool is_tensor = e->kind == TDICT_SCHEMA_TENSOR;
    const int most = is_tensor ? TDICT_MAX_NDIM : TDICT_MAX_BATCH_NDIM;
    if (e->batch_ndim + e->ndim == most)
      return tdict_fail_at(err, TDICT_EINVAL, tdict_schema_cut_path(s, i, path),
                           "%s: %s would have more than %d dimensions", what, is_tensor ? "a tensor" : "a tree", most);
    *out = *out && (!is_tensor || blocks->step % tdict_dtype_bytes(e->dtype) == 0);
  }
  return TDICT_OK;
}

tdict_status tdict_rank_blocks_stack(tdict_rank_blocks *blocks, tdict_tree **out, tdict_error *err) {
  tdict_status status = tdict_rank_blocks_make_tree(blocks, 0, err);
  if (status != TDICT_OK) return status;
  const int64_t world = blocks->world;
  const tdict_map map = {.what = "all_gather_stack",
                         .batch_in = 0,
                         .batch_out = 1,
                         .batch_size = &world,
                         .more_dims = 1,
                         .describe = describe_stacked,
                         .user = blocks};
  return tdict_map_run(&map, blocks->trees[0], out, err);
}

tdict_status tdict_rank_blocks_queue(const tdict_comm_call *call, const tdict_rank_blocks *blocks, tdict_error *err) {
  tdict_status status = tdict_table_group_begin(call, err);
  for (int32_t r = 0; r < blocks->world && status == TDICT_OK; r++) {
    const size_t bytes = blocks->bytes[r];
    if (bytes == 0 || (call->has_root && r == call->root)) continue;
    char *data = blocks->data + blocks->offsets[r];
    status = call->op == TDICT_COMM_SCATTER  ? tdict_table_send(call, data, bytes, r, err)
             : call->op == TDICT_COMM_GATHER ? tdict_table_receive(call, data, bytes, r, err)
                                             : tdict_table_broadcast(call, data, bytes, r, err);
  }
  return status == TDICT_OK ? tdict_table_group_end(call, err) : status;
}
