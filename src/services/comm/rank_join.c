/* Joins the blocks of all ranks. On a device, one launch copies all blocks to the result. In host memory, the threads
 * of the context copy the blocks. Thread rule: see rank_join.h. */
#include "services/comm/rank_join.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"
#include "services/multi_device/gather.h"
#include "tdict/combine.h"
#include "tdict/devices.h"

enum { LEAF_ALIGNMENT = 256 };

/* Writes the batch size of the result's root. */
static void write_batch_size(const tdict_rank_blocks *b, int64_t rows, int64_t sizes[TDICT_MAX_BATCH_NDIM]) {
  for (int i = 0; i < b->schema->batch_ndim; i++) sizes[i] = b->schema->batch_size[i];
  sizes[b->dim] = rows;
}

tdict_status tdict_rank_join_allocate(const tdict_comm_call *call, const tdict_rank_blocks *blocks,
                                      tdict_rank_join *out, tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  size_t bytes;
  *out = (tdict_rank_join){.own_rank = call->comm->table.rank, .moves = {.what = tdict_comm_what(call)}};
  if (!call->comm->gpu) return TDICT_OK;
  for (int32_t r = 0; r < blocks->world; r++)
    if (!tdict_add_i64(out->rows, blocks->rows[r], &out->rows))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the rows of all ranks do not fit 63 bits", tdict_comm_what(call));
  write_batch_size(blocks, out->rows, sizes);
  tdict_memory *memory = call->memory ? call->memory : tdict_comm_memory(call->comm);
  tdict_status status = tdict_schema_measure_batch(blocks->schema, sizes, &bytes, NULL, err);
  if (status == TDICT_OK) status = tdict_storage_create(memory, bytes, false, &out->storage, err);
  if (status != TDICT_OK || tdict_moves_can_launch(out->storage, blocks->storage)) return status;
  tdict_storage_release(out->storage);
  out->storage = NULL;
  return TDICT_OK;
}

/* Describes the part of rank `r` in its block. The part has the sizes and the dtype of `like`, and begins `offset`
 * bytes after the start of the block. */
static const tdict_tensor *view_block(const tdict_rank_blocks *b, int32_t r, size_t offset, const tdict_tensor *like,
                                      tdict_temp *temp) {
  tdict_made part;
  tdict_made_of(like, &part);
  tdict_layout_strides(part.ndim, part.shape, part.strides);
  part.data = b->data + b->offsets[r] + offset;
  tdict_tensor *view = tdict_temp_over(temp, like, &part);
  view->storage = b->storage;
  return view;
}

/* Adds the moves of the parts of all ranks to the tensor `to`. `own` is the part of this rank, or NULL if it is in its
 * block. `offsets` has the offset of the part in each block, and is set to the offset of the next tensor. */
static tdict_status add_parts(const tdict_rank_blocks *b, tdict_rank_join *join, const tdict_tensor *to,
                              const tdict_tensor *own, size_t *offsets, tdict_error *err) {
  const size_t item = tdict_dtype_bytes(to->dtype);
  tdict_status status = TDICT_OK;
  tdict_made place;
  tdict_made_of(to, &place);
  for (int32_t r = 0; r < b->world && status == TDICT_OK; r++) {
    tdict_temp dst, src;
    place.shape[b->dim] = b->rows[r];
    tdict_tensor *part = tdict_temp_over(&dst, to, &place);
    const tdict_tensor *from = own && r == join->own_rank ? own : view_block(b, r, offsets[r], part, &src);
    status = tdict_moves_copy(&join->moves, part, from, err);
    place.data = (char *)place.data + (size_t)(b->rows[r] * place.strides[b->dim]) * item;
    offsets[r] += tdict_align((size_t)part->numel * item, LEAF_ALIGNMENT);
  }
  return status;
}

/* Enters a tree with both cursors. `own` is the own tree if there is one. */
static tdict_status enter(tdict_cursor *cursor, tdict_tree *tree, tdict_cursor *own_cursor, tdict_tree *own,
                          const tdict_rank_join *join, tdict_error *err) {
  if (tdict_cursor_enter(cursor, tree) && (!own || tdict_cursor_enter(own_cursor, own))) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory to walk the tree", join->moves.what);
}

/* Lists the moves of all tensors. The result, the blocks and the own tree have one order. */
static tdict_status list_moves(const tdict_rank_blocks *b, tdict_rank_join *join, tdict_error *err) {
  tdict_cursor cursor, own_cursor;
  tdict_status status = TDICT_OK;
  size_t *offsets = calloc((size_t)b->world, sizeof *offsets);
  if (!offsets) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for a list", join->moves.what);
  tdict_cursor_init(&cursor, join->result, false);
  tdict_cursor_init(&own_cursor, join->own ? join->own : join->result, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_leaf own = join->own ? tdict_cursor_next(&own_cursor) : 0;
    const tdict_tensor *to = tdict_leaf_tensor(leaf);
    status = to ? add_parts(b, join, to, own ? tdict_leaf_tensor(own) : NULL, offsets, err)
                : enter(&cursor, tdict_leaf_tree(leaf), &own_cursor, own ? tdict_leaf_tree(own) : NULL, join, err);
  }
  tdict_cursor_reset(&own_cursor);
  tdict_cursor_reset(&cursor);
  free(offsets);
  return status;
}

tdict_status tdict_rank_join_prepare(tdict_rank_blocks *blocks, tdict_rank_join *join, tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  const tdict_schema_place place = {.storage = join->storage, .batch_size = sizes};
  if (!join->storage) return tdict_rank_blocks_make_trees(blocks, err);
  write_batch_size(blocks, join->rows, sizes);
  tdict_status status = tdict_schema_create_at(blocks->schema, &place, &join->result, err);
  if (status == TDICT_OK) status = list_moves(blocks, join, err);
  return status == TDICT_OK ? tdict_moves_build(&join->moves, err) : status;
}

/* Joins with the threads of the context. */
static tdict_status join_on_host(const tdict_comm_call *call, const tdict_rank_blocks *b, tdict_tree **out,
                                 tdict_error *err) {
  tdict_gather_devices_options o = tdict_gather_devices_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_tree *joined = NULL;
  o.dim = b->dim;
  o.transfer = &transfer;
  transfer.memory = call->memory;
  tdict_status status = tdict_gather_and_wait(call->comm->context, (const tdict_tree *const *)b->trees,
                                              (size_t)b->world, &o, &joined, err);
  if (status == TDICT_OK) status = tdict_set_device(joined, NULL, err);
  return TDICT_HAND_OVER(status, joined, out, tdict_release);
}

tdict_status tdict_rank_join_run(const tdict_comm_call *call, const tdict_rank_blocks *blocks, tdict_rank_join *join,
                                 tdict_tree **out, tdict_error *err) {
  tdict_join_options o = tdict_join_options_default();
  o.dim = blocks->dim;
  tdict_run run = tdict_run_default();
  run.memory = call->memory;
  if (!call->comm->gpu && blocks->world <= TDICT_MAX_DEVICES) return join_on_host(call, blocks, out, err);
  if (!join->result)
    return tdict_cat((const tdict_tree *const *)blocks->trees, (size_t)blocks->world, &o, &run, out, err);
  tdict_status status = tdict_moves_run(&join->moves, err);
  if (status == TDICT_OK) *out = tdict_retain(join->result);
  return status;
}

void tdict_rank_join_reset(tdict_rank_join *join) {
  tdict_moves_reset(&join->moves);
  tdict_release(join->result);
  if (join->storage) tdict_storage_release(join->storage);
  *join = (tdict_rank_join){0};
}
