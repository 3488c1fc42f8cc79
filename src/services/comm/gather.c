/* Implements tdict_comm_all_gather_stack_async(), its kin and tdict_comm_gather_async(). Threads: tdict/comm.h. */
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/ops/device/moves.h"
#include "core/ops/shape.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"
#include "services/comm/agree.h"
#include "services/comm/rank_blocks.h"
#include "services/comm/table.h"
#include "services/multi_device/spread.h"
#include "tdict/combine.h"
#include "tdict/devices.h"

enum { LEAF_ALIGNMENT = 256 };

static tdict_status fill_own_block(const tdict_comm_call *call, tdict_rank_blocks *blocks, bool is_near,
                                   tdict_error *err) {
  const int32_t rank = call->comm->table.rank;
  tdict_status status = tdict_rank_blocks_make_tree(blocks, rank, err);
  return status == TDICT_OK ? tdict_comm_copy(call->comm, blocks->trees[rank], call->src, is_near, err) : status;
}

/* Queues the gathering of blocks of one size. Sends the block of the source, or a copy if it is no block. */
static tdict_status queue_equal(tdict_comm_call *call, tdict_rank_blocks *blocks, tdict_error *err) {
  const tdict_block_message *found = &call->message;
  const int32_t rank = call->comm->table.rank;
  tdict_status status = TDICT_OK;
  if (blocks->bytes[rank] == 0) return TDICT_OK;
  const char *from = blocks->data + blocks->offsets[rank];
  if (found->packed && found->has_padding) {
    status = tdict_message_fill(call, err);
    from = found->data;
  } else {
    status = fill_own_block(call, blocks, !found->needs_transfer, err);
  }
  return status == TDICT_OK ? tdict_table_all_gather(call, from, blocks->data, blocks->step, err) : status;
}

/* The trees of all ranks for a join along a batch dimension, or for a stack. */
typedef struct gathered {
  tdict_schema *schema; /* of a join: of this rank's tree with 0 rows */
  int dim;
  tdict_rank_blocks blocks;
  /* On a device, one launch copies all blocks to the result. In host memory, the threads of the context copy them. */
  tdict_storage *storage; /* retained; of the result; NULL: no launch copies the blocks */
  int64_t rows;           /* of the result */
  const tdict_tree *own;  /* borrowed; the tree of this rank, if it is not in its block; NULL: all blocks are filled */
  tdict_tree *result;     /* retained; NULL before prepare_join() */
  tdict_moves moves;      /* from the blocks, or from `own`, to the result */
  bool is_view; /* the stack is a tree over the blocks; false: the trees of the blocks are copied into a stack */
} gathered;

/* Allocates the memory of the result, if a launch will copy the elements. Call before the message is queued: allocating
 * memory of a device can wait for the device, and the message can wait for another rank of this process. */
static tdict_status allocate_result(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  const tdict_rank_blocks *b = &j->blocks;
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  size_t bytes;
  j->moves.what = tdict_comm_what(call);
  if (!call->comm->gpu) return TDICT_OK;
  for (int32_t r = 0; r < b->world; r++)
    if (!tdict_add_i64(j->rows, b->rows[r], &j->rows))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the rows of all ranks do not fit 63 bits", tdict_comm_what(call));
  const int64_t *batch_size = tdict_rank_blocks_batch_size(b, j->rows, sizes);
  tdict_memory *memory = call->memory ? call->memory : tdict_comm_memory(call->comm);
  tdict_status status = tdict_schema_measure_batch(b->schema, batch_size, &bytes, NULL, err);
  if (status == TDICT_OK) status = tdict_storage_create(memory, bytes, false, &j->storage, err);
  if (status != TDICT_OK || tdict_moves_can_launch(j->storage, b->storage)) return status;
  tdict_storage_release(j->storage);
  j->storage = NULL;
  return TDICT_OK;
}

/* Allocates the blocks for the rows in the headers of all ranks, and the result. */
static tdict_status allocate_blocks(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  tdict_status status = tdict_rank_blocks_init(call, &j->blocks, err);
  if (status != TDICT_OK) return status;
  for (int32_t r = 0; r < j->blocks.world; r++) j->blocks.rows[r] = call->comm->headers[r].rows;
  status = tdict_rank_blocks_allocate(call, j->schema, j->dim, NULL, &j->blocks, err);
  return status == TDICT_OK ? allocate_result(call, j, err) : status;
}

/* Describes the part of rank `r` in its block: like `like`, and `offset` bytes after the start of the block. */
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
static tdict_status add_parts(const tdict_comm_call *call, gathered *j, const tdict_tensor *to, const tdict_tensor *own,
                              size_t *offsets, tdict_error *err) {
  const tdict_rank_blocks *b = &j->blocks;
  const size_t item = tdict_dtype_bytes(to->dtype);
  tdict_status status = TDICT_OK;
  tdict_made place;
  tdict_made_of(to, &place);
  for (int32_t r = 0; r < b->world && status == TDICT_OK; r++) {
    tdict_temp dst, src;
    place.shape[b->dim] = b->rows[r];
    tdict_tensor *part = tdict_temp_over(&dst, to, &place);
    const bool is_own = own && r == call->comm->table.rank;
    status = tdict_moves_copy(&j->moves, part, is_own ? own : view_block(b, r, offsets[r], part, &src), err);
    place.data = (char *)place.data + (size_t)(b->rows[r] * place.strides[b->dim]) * item;
    offsets[r] += tdict_align((size_t)part->numel * item, LEAF_ALIGNMENT);
  }
  return status;
}

/* Lists the moves of all tensors. The result, the blocks and the own tree have one order. */
static tdict_status list_moves(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  tdict_cursor cursor, own_cursor;
  tdict_status status = TDICT_OK;
  size_t *offsets = calloc((size_t)j->blocks.world, sizeof *offsets);
  if (!offsets) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for a list", tdict_comm_what(call));
  tdict_cursor_init(&cursor, j->result, false);
  tdict_cursor_init(&own_cursor, j->own ? j->own : j->result, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_leaf own = j->own ? tdict_cursor_next(&own_cursor) : 0;
    const tdict_tensor *to = tdict_leaf_tensor(leaf);
    if (to)
      status = add_parts(call, j, to, own ? tdict_leaf_tensor(own) : NULL, offsets, err);
    else if (!tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf)) ||
             (own && !tdict_cursor_enter(&own_cursor, tdict_leaf_tree(own))))
      status = tdict_fail(err, TDICT_ENOMEM, "%s: no host memory to walk the tree", tdict_comm_what(call));
  }
  tdict_cursor_reset(&own_cursor);
  tdict_cursor_reset(&cursor);
  free(offsets);
  return status;
}

/* Makes the result, lists the moves and builds their launch, or makes the trees of all blocks. Accesses no elements of
 * the blocks, and allocates host memory only. Copies tensors of the own tree that no launch can copy. */
static tdict_status prepare_join(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  if (!j->storage) return tdict_rank_blocks_make_trees(&j->blocks, err);
  const tdict_schema_place place = {.storage = j->storage,
                                    .batch_size = tdict_rank_blocks_batch_size(&j->blocks, j->rows, sizes)};
  tdict_status status = tdict_schema_create_at(j->blocks.schema, &place, &j->result, err);
  if (status == TDICT_OK) status = list_moves(call, j, err);
  return status == TDICT_OK ? tdict_moves_build(&j->moves, err) : status;
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

/* Prepares the join while the elements are on their way. Its own errors do not affect other ranks, which are done. */
static tdict_status receive_and_join(tdict_comm_call *call, gathered *j, tdict_tree **out, tdict_error *err) {
  const tdict_rank_blocks *b = &j->blocks;
  tdict_join_options o = tdict_join_options_default();
  tdict_run run = tdict_run_default();
  tdict_error local;
  const tdict_status made = prepare_join(call, j, &local);
  tdict_status status = tdict_table_finish_step(call, made, &local, err);
  if (status != TDICT_OK) return status;
  call->keeps_comm = true;
  if (!call->comm->gpu && b->world <= TDICT_MAX_DEVICES) return join_on_host(call, b, out, err);
  o.dim = b->dim;
  run.memory = call->memory;
  if (!j->result) return tdict_cat((const tdict_tree *const *)b->trees, (size_t)b->world, &o, &run, out, err);
  status = tdict_moves_run(&j->moves, err);
  if (status == TDICT_OK) *out = tdict_retain(j->result);
  return status;
}

/* Checks the source and its dimension, and agrees with all ranks. */
static tdict_status agree_on_rows(tdict_comm_call *call, gathered *j, tdict_error *err) {
  const char *what = tdict_comm_what(call);
  tdict_comm_check_source(call, call->src, TDICT_COMM_READS);
  TDICT_COMM_ALONE(call, tdict_dim_find(what, call->dim, call->src->batch_ndim, &j->dim, &call->local));
  TDICT_COMM_ALONE(call, tdict_comm_get_rows(call, call->source.schema, j->dim, 0, &j->schema, &call->local));
  if (tdict_comm_is_fine(call))
    call->offer = (tdict_comm_offer){.schema = j->schema, .rows = call->src->batch_size[j->dim]};
  return tdict_comm_agree(call, true, err);
}

static void reset_gathered(gathered *j) {
  tdict_moves_reset(&j->moves);
  tdict_release(j->result);
  if (j->storage) tdict_storage_release(j->storage);
  tdict_rank_blocks_reset(&j->blocks);
  tdict_schema_release(j->schema);
}

static tdict_status run_all_gather(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  gathered j = {0};
  tdict_status status = agree_on_rows(call, &j, err);
  if (status == TDICT_OK) status = allocate_blocks(call, &j, err);
  if (status == TDICT_OK) status = tdict_message_find(call, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK && j.blocks.are_equal) {
    status = queue_equal(call, &j.blocks, err);
  } else if (status == TDICT_OK) {
    status = fill_own_block(call, &j.blocks, call->source.is_near, err);
    if (status == TDICT_OK) status = tdict_rank_blocks_queue(call, &j.blocks, err);
  }
  if (status == TDICT_OK) status = receive_and_join(call, &j, out, err);
  reset_gathered(&j);
  return status;
}

static tdict_status receive_on_root(tdict_comm_call *call, gathered *j, tdict_tree **out, tdict_error *err) {
  tdict_status status = allocate_blocks(call, j, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK && j->storage && call->source.is_near)
    j->own = call->src;
  else if (status == TDICT_OK)
    status = fill_own_block(call, &j->blocks, call->source.is_near, err);
  if (status == TDICT_OK) status = tdict_rank_blocks_queue(call, &j->blocks, err);
  return status == TDICT_OK ? receive_and_join(call, j, out, err) : status;
}

static tdict_status run_gather(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  gathered j = {0};
  tdict_status status = agree_on_rows(call, &j, err);
  if (status == TDICT_OK && call->comm->table.rank == call->root) {
    status = receive_on_root(call, &j, out, err);
  } else if (status == TDICT_OK) {
    status = tdict_message_prepare(call, err);
    if (status == TDICT_OK) status = tdict_comm_send_message(call, err);
  }
  reset_gathered(&j);
  return status;
}

/* Allocates the blocks of a stack. No rank needs to know more than its own schema for this. */
static tdict_status allocate_stack(tdict_comm_call *call, gathered *j, tdict_error *err) {
  tdict_status status = tdict_rank_blocks_init(call, &j->blocks, err);
  if (status == TDICT_OK)
    status = tdict_rank_blocks_allocate(call, call->source.schema, -1, call->memory, &j->blocks, err);
  if (status == TDICT_OK) status = tdict_rank_blocks_check_stack(&j->blocks, &j->is_view, err);
  if (status == TDICT_OK) status = tdict_message_find(call, err);
  return status;
}

/* Makes the stack, or the trees of all blocks, while the elements are on their way, and waits for the elements. */
static tdict_status receive_stack(tdict_comm_call *call, gathered *j, tdict_tree **out, tdict_error *err) {
  tdict_error local;
  tdict_tree *view = NULL;
  const tdict_status made = j->is_view ? tdict_rank_blocks_stack(&j->blocks, &view, &local)
                                       : tdict_rank_blocks_make_trees(&j->blocks, &local);
  tdict_status status = tdict_table_finish_step(call, made, &local, err);
  if (j->is_view) return TDICT_HAND_OVER(status, view, out, tdict_release);
  if (status != TDICT_OK) return status;
  tdict_run run = tdict_run_default();
  run.memory = call->memory;
  call->keeps_comm = true;
  return tdict_stack((const tdict_tree *const *)j->blocks.trees, (size_t)j->blocks.world, NULL, &run, out, err);
}

static tdict_status run_all_gather_stack(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  gathered j = {0};
  tdict_comm_check_source(call, call->src, TDICT_COMM_READS);
  TDICT_COMM_ALONE(call, allocate_stack(call, &j, &call->local));
  tdict_status status = tdict_comm_agree(call, true, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK) status = queue_equal(call, &j.blocks, err);
  if (status == TDICT_OK) status = receive_stack(call, &j, out, err);
  reset_gathered(&j);
  return status;
}

tdict_status tdict_comm_all_gather_async(tdict_comm *comm, const tdict_tree *src, const tdict_comm_options *options,
                                         tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_ALL_GATHER, .run = run_all_gather, .src = src, .has_dim = true};
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_gather_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                     const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {.comm = comm,
                                .op = TDICT_COMM_GATHER,
                                .run = run_gather,
                                .src = src,
                                .has_root = true,
                                .root = root,
                                .has_dim = true};
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_all_gather_stack_async(tdict_comm *comm, const tdict_tree *src,
                                               const tdict_comm_options *options, tdict_future **out,
                                               tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_ALL_GATHER_STACK, .run = run_all_gather_stack, .src = src};
  return tdict_comm_start(&call, options, out, err);
}
