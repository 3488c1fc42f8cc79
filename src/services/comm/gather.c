/* Implements tdict_comm_all_gather_stack_async(), tdict_comm_all_gather_async() and tdict_comm_gather_async(). Thread
 * rule: as in tdict/comm.h. */
#include "core/ops/shape.h"
#include "services/comm/agree.h"
#include "services/comm/async.h"
#include "services/comm/rank_join.h"
#include "services/comm/source.h"
#include "services/comm/table.h"
#include "tdict/combine.h"

/* Copies the source into the block of this rank. */
static tdict_status fill_own_block(const tdict_comm_call *call, tdict_rank_blocks *blocks, bool is_near,
                                   tdict_error *err) {
  const int32_t rank = call->comm->table.rank;
  tdict_status status = tdict_rank_blocks_make_tree(blocks, rank, err);
  return status == TDICT_OK ? tdict_comm_copy(call->comm, blocks->trees[rank], call->src, is_near, err) : status;
}

/* Queues the gathering of blocks of one size. Sends the block of the source itself if possible, else a copy in the
 * block of this rank. */
static tdict_status queue_equal(tdict_comm_call *call, tdict_block_message *found, tdict_rank_blocks *blocks,
                                tdict_error *err) {
  const int32_t rank = call->comm->table.rank;
  tdict_status status = TDICT_OK;
  if (blocks->bytes[rank] == 0) return TDICT_OK;
  const char *from = blocks->data + blocks->offsets[rank];
  if (found->packed && found->has_padding) {
    status = tdict_message_fill(call->comm, found, false, err);
    from = found->data;
  } else {
    status = fill_own_block(call, blocks, !found->needs_transfer, err);
  }
  return status == TDICT_OK ? tdict_table_all_gather(call, from, blocks->data, blocks->step, err) : status;
}

/* Queues the gathering of blocks of different sizes: each rank broadcasts its block. */
static tdict_status queue_unequal(const tdict_comm_call *call, tdict_rank_blocks *blocks, bool is_near,
                                  tdict_error *err) {
  tdict_status status = fill_own_block(call, blocks, is_near, err);
  if (status == TDICT_OK) status = tdict_table_group_begin(call, err);
  for (int32_t r = 0; r < blocks->world && status == TDICT_OK; r++)
    if (blocks->bytes[r] > 0)
      status = tdict_table_broadcast(call, blocks->data + blocks->offsets[r], blocks->bytes[r], r, err);
  return status == TDICT_OK ? tdict_table_group_end(call, err) : status;
}

/* The trees of all ranks for a join along a batch dimension. */
typedef struct joined {
  tdict_comm_source source;
  tdict_schema *schema; /* of this rank's tree with 0 rows */
  int dim;
  tdict_rank_blocks blocks;
  tdict_block_message message;
  tdict_rank_join join;
} joined;

/* Allocates the blocks for the rows in the headers of all ranks, and the result. */
static tdict_status allocate_blocks(const tdict_comm_call *call, joined *j, tdict_error *err) {
  tdict_status status = tdict_rank_blocks_init(call, &j->blocks, err);
  if (status != TDICT_OK) return status;
  for (int32_t r = 0; r < j->blocks.world; r++) j->blocks.rows[r] = call->comm->headers[r].rows;
  status = tdict_rank_blocks_allocate(call, j->schema, j->dim, NULL, &j->blocks, err);
  return status == TDICT_OK ? tdict_rank_join_allocate(call, &j->blocks, &j->join, err) : status;
}

/* Prepares the join while the elements are on their way, and waits for the elements. */
static tdict_status receive_blocks(const tdict_comm_call *call, joined *j, tdict_error *err) {
  tdict_error local;
  const tdict_status made = tdict_rank_join_prepare(&j->blocks, &j->join, &local);
  return tdict_table_finish_step(call, made, &local, err);
}

/* Waits for the elements, and joins the blocks. After the wait, all ranks are done with the table, so an error does not
 * affect them. */
static tdict_status receive_and_join(tdict_comm_call *call, joined *j, tdict_tree **out, tdict_error *err) {
  tdict_status status = receive_blocks(call, j, err);
  if (status != TDICT_OK) return status;
  call->keeps_comm = true;
  return tdict_rank_join_run(call, &j->blocks, &j->join, out, err);
}

/* Checks the source and its dimension, and agrees with all ranks. */
static tdict_status agree_on_rows(tdict_comm_call *call, joined *j, tdict_error *err) {
  const char *what = tdict_comm_what(call);
  tdict_error local;
  tdict_comm_offer offer = {0};
  *j = (joined){0};
  tdict_comm_check_source(call, call->src, TDICT_COMM_READS, &j->source);
  if (tdict_comm_is_fine(call))
    tdict_comm_note(call, tdict_dim_find(what, call->dim, call->src->batch_ndim, &j->dim, &local), &local);
  if (tdict_comm_is_fine(call))
    tdict_comm_note(call, tdict_comm_get_rows(call, j->source.schema, j->dim, 0, &j->schema, &local), &local);
  if (tdict_comm_is_fine(call)) offer = (tdict_comm_offer){.schema = j->schema, .rows = call->src->batch_size[j->dim]};
  return tdict_comm_agree(call, &offer, true, err);
}

static void reset_joined(joined *j) {
  tdict_message_reset(&j->message);
  tdict_rank_join_reset(&j->join);
  tdict_rank_blocks_reset(&j->blocks);
  tdict_comm_source_reset(&j->source);
  tdict_schema_release(j->schema);
}

static tdict_status run_all_gather(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  joined j;
  tdict_status status = agree_on_rows(call, &j, err);
  if (status == TDICT_OK) status = allocate_blocks(call, &j, err);
  if (status == TDICT_OK) status = tdict_message_find(&j.source, &j.message, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK)
    status = j.blocks.are_equal ? queue_equal(call, &j.message, &j.blocks, err)
                                : queue_unequal(call, &j.blocks, j.source.is_near, err);
  if (status == TDICT_OK) status = receive_and_join(call, &j, out, err);
  reset_joined(&j);
  return status;
}

static tdict_status send_to_root(tdict_comm_call *call, joined *j, tdict_error *err) {
  tdict_status status = tdict_message_prepare(call->comm, &j->source, &j->message, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK || j->message.bytes == 0) return status;
  status = tdict_message_fill(call->comm, &j->message, false, err);
  if (status == TDICT_OK) status = tdict_table_send(call, j->message.data, j->message.bytes, call->root, err);
  return status == TDICT_OK ? tdict_table_finish(call, err) : status;
}

static tdict_status receive_on_root(tdict_comm_call *call, joined *j, tdict_tree **out, tdict_error *err) {
  tdict_status status = allocate_blocks(call, j, err);
  const tdict_rank_blocks *b = &j->blocks;
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK && j->join.storage && j->source.is_near)
    j->join.own = call->src;
  else if (status == TDICT_OK)
    status = fill_own_block(call, &j->blocks, j->source.is_near, err);
  if (status == TDICT_OK) status = tdict_table_group_begin(call, err);
  for (int32_t r = 0; r < b->world && status == TDICT_OK; r++)
    if (r != call->root && b->bytes[r] > 0)
      status = tdict_table_receive(call, b->data + b->offsets[r], b->bytes[r], r, err);
  if (status == TDICT_OK) status = tdict_table_group_end(call, err);
  return status == TDICT_OK ? receive_and_join(call, j, out, err) : status;
}

static tdict_status run_gather(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  joined j;
  tdict_status status = agree_on_rows(call, &j, err);
  if (status == TDICT_OK)
    status = call->comm->table.rank == call->root ? receive_on_root(call, &j, out, err) : send_to_root(call, &j, err);
  reset_joined(&j);
  return status;
}

/* The memory of a stack. */
typedef struct stacked {
  tdict_comm_source source;
  tdict_rank_blocks blocks;
  tdict_block_message message;
  bool is_view; /* the result is a tree over the blocks; false: the trees of the blocks are copied into a stack */
} stacked;

/* Allocates the blocks. No rank needs to know more than its own schema for this. */
static tdict_status allocate_stack(const tdict_comm_call *call, stacked *s, tdict_error *err) {
  tdict_status status = tdict_rank_blocks_init(call, &s->blocks, err);
  if (status == TDICT_OK)
    status = tdict_rank_blocks_allocate(call, s->source.schema, -1, call->memory, &s->blocks, err);
  if (status == TDICT_OK) status = tdict_rank_blocks_check_stack(&s->blocks, &s->is_view, err);
  if (status == TDICT_OK) status = tdict_message_find(&s->source, &s->message, err);
  return status;
}

/* Makes the result, or the trees of all blocks, while the elements are on their way. */
static tdict_status receive_stack(const tdict_comm_call *call, stacked *s, tdict_tree **out, tdict_error *err) {
  tdict_error local;
  tdict_tree *view = NULL;
  const tdict_status made = s->is_view ? tdict_rank_blocks_stack(&s->blocks, &view, &local)
                                       : tdict_rank_blocks_make_trees(&s->blocks, &local);
  tdict_status status = tdict_table_finish_step(call, made, &local, err);
  if (status == TDICT_OK)
    *out = view;
  else if (made == TDICT_OK)
    tdict_release(view);
  return status;
}

static tdict_status run_all_gather_stack(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  stacked s = {0};
  tdict_error local;
  tdict_comm_check_source(call, call->src, TDICT_COMM_READS, &s.source);
  if (tdict_comm_is_fine(call)) tdict_comm_note(call, allocate_stack(call, &s, &local), &local);
  const tdict_comm_offer offer = {.schema = s.source.schema};
  tdict_status status = tdict_comm_agree(call, &offer, true, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK) status = queue_equal(call, &s.message, &s.blocks, err);
  if (status == TDICT_OK) status = receive_stack(call, &s, out, err);
  if (status == TDICT_OK && !s.is_view) {
    tdict_run run = tdict_run_default();
    run.memory = call->memory;
    call->keeps_comm = true;
    status = tdict_stack((const tdict_tree *const *)s.blocks.trees, (size_t)s.blocks.world, NULL, &run, out, err);
  }
  tdict_message_reset(&s.message);
  tdict_rank_blocks_reset(&s.blocks);
  tdict_comm_source_reset(&s.source);
  return status;
}

static tdict_comm_call all_gather_call(tdict_comm *comm, const tdict_tree *src) {
  return (tdict_comm_call){
      .comm = comm, .op = TDICT_COMM_ALL_GATHER, .run = run_all_gather, .src = src, .has_dim = true};
}
static tdict_comm_call gather_call(tdict_comm *comm, const tdict_tree *src, int32_t root) {
  return (tdict_comm_call){.comm = comm,
                           .op = TDICT_COMM_GATHER,
                           .run = run_gather,
                           .src = src,
                           .has_root = true,
                           .root = root,
                           .has_dim = true};
}
static tdict_comm_call stack_call(tdict_comm *comm, const tdict_tree *src) {
  return (tdict_comm_call){.comm = comm, .op = TDICT_COMM_ALL_GATHER_STACK, .run = run_all_gather_stack, .src = src};
}

tdict_status tdict_comm_all_gather_async(tdict_comm *comm, const tdict_tree *src, const tdict_comm_options *options,
                                         tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = all_gather_call(comm, src);
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_gather_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                     const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = gather_call(comm, src, root);
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_all_gather_stack_async(tdict_comm *comm, const tdict_tree *src,
                                               const tdict_comm_options *options, tdict_future **out,
                                               tdict_error *err) {
  const tdict_comm_call call = stack_call(comm, src);
  return tdict_comm_start(&call, options, out, err);
}
