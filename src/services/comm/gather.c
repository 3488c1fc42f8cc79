/* Implements tdict_comm_all_gather_stack_async(), tdict_comm_all_gather_async() and tdict_comm_gather_async(). Thread
 * rule: as in tdict/comm.h. */

#include "core/base/checked.h"
#include "core/ops/device/moves.h"
#include "core/ops/shape.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "device/gpu.h"
#include "services/comm/agree.h"
#include "services/comm/rank_blocks.h"
#include "services/comm/table.h"
#include "services/multi_device/spread.h"
#include "tdict/combine.h"
#include "tdict/devices.h"

/* Copies the source into the block of this rank. */
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
  /* On a device, one launch copies all blocks to the result of a join. In host memory, the threads of the context copy
   * the blocks. */
  tdict_storage *storage;       /* retained; of the result; NULL: no launch copies the blocks */
  int64_t rows;                 /* of the result */
  const tdict_comm_source *own; /* borrowed; the block of this rank's tree; NULL: the tree is in a rank's block */
  tdict_tree *result;           /* retained; NULL before prepare_join() */
  tdict_moves moves;            /* from the blocks, or from `own`, to the result */
  bool is_queued;               /* true: the launch of `moves` is queued after the message */
  bool is_view; /* the stack is a tree over the blocks; false: the trees of the blocks are copied into a stack */
} gathered;

/* Allocates the memory of the result, if a launch will copy the elements. Call before the message is queued: allocating
 * memory of a device can wait for the device, and the message can wait for another rank of this process. */
static tdict_status allocate_result(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  const tdict_rank_blocks *b = &j->blocks;
  size_t bytes, padding;
  j->moves.what = tdict_comm_what(call);
  if (!call->comm->gpu || !b->runs) return TDICT_OK;
  for (int32_t r = 0; r < b->world; r++)
    if (!tdict_add_i64(j->rows, b->rows[r], &j->rows))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the rows of all ranks do not fit 63 bits", tdict_comm_what(call));
  tdict_memory *memory = call->memory ? call->memory : tdict_comm_memory(call->comm);
  tdict_status status = tdict_rank_blocks_measure(b, j->rows, &bytes, &padding, err);
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

/* Lists the moves of the blocks of all ranks. */
static tdict_status list_moves(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  const tdict_rank_blocks *b = &j->blocks;
  tdict_block_rows to = {.storage = j->storage, .data = j->storage->data, .rows = j->rows};
  tdict_status status = TDICT_OK;
  for (int32_t r = 0; r < b->world && status == TDICT_OK; r++) {
    tdict_block_rows from = tdict_rank_blocks_rows(b, r);
    if (j->own && r == call->comm->table.rank) {
      from.storage = j->own->storage;
      from.data = j->own->data;
    }
    status = tdict_block_runs_copy(b->runs, &to, &from, b->rows[r], &j->moves, err);
    to.from += b->rows[r];
  }
  return status;
}

/* Queues the launch after the message, so that the host need not wait between the two. Only for a launch that allocates
 * nothing, after an earlier launch: to load a kernel or to allocate memory of a device can wait for the device, and the
 * message can wait for another rank of this process. If the launch fails, run_join() tries it again after the message,
 * when an error affects no other rank. */
static void queue_join(const tdict_comm_call *call, gathered *j) {
  const tdict_comm *c = call->comm;
  tdict_kernel_work *work = &j->moves.built;
  tdict_gpu_scope scope;
  if (!c->has_launched || j->moves.num_built == 0 || tdict_kernel_table_words(work) > TDICT_KERNEL_PARAM_WORDS) return;
  tdict_status status = tdict_gpu_enter(c->gpu, &scope, NULL);
  if (status == TDICT_OK) status = tdict_gpu_queue_work(c->gpu, work, c->stream.handle, NULL);
  tdict_gpu_leave(c->gpu, &scope);
  j->is_queued = status == TDICT_OK;
}

/* Lists the moves, builds their launch, queues it if possible and makes the result, or makes the trees of all blocks.
 * The host accesses no elements of the blocks, and allocates host memory only. */
static tdict_status prepare_join(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  int64_t sizes[TDICT_MAX_BATCH_NDIM];
  if (!j->storage) return tdict_rank_blocks_make_trees(&j->blocks, err);
  const tdict_schema_place place = {.storage = j->storage,
                                    .batch_size = tdict_rank_blocks_batch_size(&j->blocks, j->rows, sizes)};
  tdict_status status = list_moves(call, j, err);
  if (status == TDICT_OK) status = tdict_moves_build(&j->moves, err);
  if (status == TDICT_OK) queue_join(call, j);
  return status == TDICT_OK ? tdict_schema_create_at(j->blocks.schema, &place, &j->result, err) : status;
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

/* Makes the join, unless it was queued, and waits for it. */
static tdict_status run_join(const tdict_comm_call *call, gathered *j, tdict_error *err) {
  tdict_comm *c = call->comm;
  if (j->is_queued) return TDICT_OK;
  const bool launches = j->moves.count > 0;
  tdict_status status = tdict_moves_run(&j->moves, err);
  if (status == TDICT_OK && launches && !c->has_launched)
    c->has_launched = tdict_gpu_load_kernels(c->gpu, NULL) == TDICT_OK; /* else the driver has copied */
  return status;
}

/* Prepares the join while the elements are on their way, waits for the elements, and joins the blocks. After the wait,
 * all ranks are done with the table, so an error does not affect them. */
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
  status = run_join(call, j, err);
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

/* Drops the references of a call that has ended with `status`. */
static void reset_gathered(tdict_comm_call *call, gathered *j, tdict_status status) {
  if (status != TDICT_OK && j->storage) call->held[0] = tdict_storage_retain(j->storage);
  if (status != TDICT_OK && j->blocks.storage) call->held[1] = tdict_storage_retain(j->blocks.storage);
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
  reset_gathered(call, &j, status);
  return status;
}

/* Returns true if the launch of the join can read the tree of this rank where it is. Waits for transfers that write the
 * tree, because they can fail. */
static bool reads_own_block(const tdict_comm_call *call, const gathered *j) {
  const tdict_comm_source *own = &call->source;
  if (!j->storage || !own->is_block || !own->is_near || !own->storage) return false;
  (void)tdict_storage_wait(own->storage, false, INT64_MAX);
  return !tdict_storage_has_lost(own->storage) && tdict_moves_can_launch(j->storage, own->storage);
}

static tdict_status receive_on_root(tdict_comm_call *call, gathered *j, tdict_tree **out, tdict_error *err) {
  tdict_status status = allocate_blocks(call, j, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK && reads_own_block(call, j))
    j->own = &call->source;
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
  reset_gathered(call, &j, status);
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
  reset_gathered(call, &j, status);
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
