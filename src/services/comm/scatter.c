/* Implements tdict_comm_scatter_async(). Thread rule: as in tdict/comm.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/ops/device/moves.h"
#include "core/ops/shape.h"
#include "core/schema/create.h"
#include "services/comm/agree.h"
#include "services/comm/rank_blocks.h"
#include "services/comm/table.h"
#include "tdict/shape.h"

typedef struct scatter {
  tdict_schema *offered;     /* on the root: of the tree with 0 rows */
  tdict_schema *schema;      /* as `offered`; borrowed from the cache */
  tdict_schema *part_schema; /* of this rank's part */
  int dim;
  int64_t *counts;          /* in blocks.rows */
  tdict_tree **pieces;      /* on the root: views of the source, one for each rank; retained */
  tdict_rank_blocks blocks; /* on the root: the parts of all other ranks */
} scatter;

static tdict_status check_counts(const tdict_comm_call *call, int64_t rows, tdict_error *err) {
  int64_t sum = 0;
  bool fits = true;
  for (int32_t r = 0; call->counts && r < call->comm->table.world_size; r++) {
    if (call->counts[r] < 0)
      return tdict_fail(err, TDICT_EINVAL, "scatter: count %d is %lld, wanted 0 or more", (int)r,
                        (long long)call->counts[r]);
    fits = fits && tdict_add_i64(sum, call->counts[r], &sum);
  }
  if (!call->counts || (fits && sum == rows)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "scatter: the counts sum to %lld, but dimension %d has %lld elements",
                    fits ? (long long)sum : -1LL, (int)call->dim, (long long)rows);
}

/* Checks the arguments of the root, or of another rank, and agrees with all ranks. */
static tdict_status agree(tdict_comm_call *call, scatter *s, tdict_error *err) {
  tdict_comm_offer *offer = &call->offer;
  if (call->comm->table.rank == call->root) {
    tdict_comm_check_source(call, call->src, TDICT_COMM_READS);
    TDICT_COMM_ALONE(call, tdict_dim_find("scatter", call->dim, call->src->batch_ndim, &s->dim, &call->local));
    if (tdict_comm_is_fine(call))
      *offer = (tdict_comm_offer){.rows = call->src->batch_size[s->dim], .has_counts = call->counts != NULL};
    TDICT_COMM_ALONE(call, check_counts(call, offer->rows, &call->local));
    TDICT_COMM_ALONE(call, tdict_comm_get_rows(call, call->source.schema, s->dim, 0, &s->offered, &call->local));
    offer->schema = s->offered;
  } else if (call->src) {
    TDICT_COMM_ALONE(
        call, tdict_fail(&call->local, TDICT_EINVAL, "scatter: this rank is not the root, and its tree is not NULL"));
  }
  return tdict_comm_agree(call, false, err);
}

/* Gives each rank the number of rows of all ranks. */
static tdict_status share_counts(tdict_comm_call *call, scatter *s, tdict_error *err) {
  const tdict_comm_header *h = &call->comm->headers[call->root];
  const int64_t world = call->comm->table.world_size;
  tdict_status status = tdict_rank_blocks_init(call, &s->blocks, err);
  if (status != TDICT_OK) return status;
  s->counts = s->blocks.rows;
  for (int64_t r = 0; r < world; r++) s->counts[r] = h->rows / world + (r < h->rows % world);
  if (!h->has_counts) return TDICT_OK;
  if (call->comm->table.rank == call->root) memcpy(s->counts, call->counts, (size_t)world * sizeof *s->counts);
  return tdict_comm_send_all(call, s->counts, (size_t)world * sizeof *s->counts, call->root, err);
}

/* Cuts the tree of the source, and copies the rows of each rank into the rank's block. The part of the root goes to its
 * message. */
static tdict_status cut_parts(tdict_comm_call *call, scatter *s, tdict_error *err) {
  const int32_t world = s->blocks.world;
  tdict_block_message *own = &call->message;
  size_t count = (size_t)world;
  s->pieces = calloc(count, sizeof(tdict_tree *));
  if (!s->pieces) return tdict_fail_memory(err, "scatter", NULL, "%zu ranks", count);
  tdict_status status = tdict_split(call->src, s->dim, s->counts, s->pieces, &count, err);
  if (status == TDICT_OK) status = tdict_schema_create_over(s->part_schema, own->storage, &own->packed, err);
  for (int32_t r = 0; r < world && status == TDICT_OK; r++) {
    if (r != call->root) status = tdict_rank_blocks_make_tree(&s->blocks, r, err);
    tdict_tree *to = r == call->root ? own->packed : s->blocks.trees[r];
    if (status == TDICT_OK) status = tdict_comm_copy(call->comm, to, s->pieces[r], call->source.is_near, err);
  }
  return status;
}

/* Returns true if one launch can copy the parts from the source, which is a block. Waits for transfers that write the
 * source, because they can fail. */
static bool can_pack(const tdict_comm_call *call, const scatter *s) {
  const tdict_comm_source *source = &call->source;
  if (!call->comm->gpu || !source->is_block || !source->is_near || !source->storage || !s->blocks.runs) return false;
  (void)tdict_storage_wait(source->storage, false, INT64_MAX);
  return !tdict_storage_has_lost(source->storage) && tdict_moves_can_launch(call->message.storage, source->storage) &&
         tdict_moves_can_launch(s->blocks.storage, source->storage);
}

/* Copies the rows of each rank from the block of the source to the block of the rank or, on the root, to its message.
 * Queues the copies on `stream`, or waits for them if `stream` is NULL. */
static tdict_status pack_parts(const tdict_comm_call *call, const scatter *s, const tdict_stream *stream,
                               tdict_error *err) {
  tdict_moves moves = {.what = tdict_comm_what(call), .stream = stream};
  tdict_block_rows from = {
      .storage = call->source.storage, .data = call->source.data, .rows = call->comm->headers[call->root].rows};
  tdict_status status = TDICT_OK;
  for (int32_t r = 0; r < s->blocks.world && status == TDICT_OK; r++) {
    tdict_block_rows to = tdict_rank_blocks_rows(&s->blocks, r);
    if (r == call->root) {
      to.storage = call->message.storage;
      to.data = call->message.data;
    }
    status = tdict_block_runs_copy(s->blocks.runs, &to, &from, s->counts[r], &moves, err);
    from.from += s->counts[r];
  }
  if (status == TDICT_OK) status = tdict_moves_run(&moves, err);
  tdict_moves_reset(&moves);
  return status;
}

/* Allocates the blocks of the other ranks, and fills them and the message of the root. The copies may only be queued on
 * the stream of the communicator. */
static tdict_status fill_parts(tdict_comm_call *call, scatter *s, tdict_error *err) {
  const int64_t own_count = s->counts[call->root];
  s->counts[call->root] = 0; /* the root needs no block */
  tdict_status status = tdict_rank_blocks_allocate(call, s->schema, s->dim, NULL, &s->blocks, err);
  s->counts[call->root] = own_count;
  if (status != TDICT_OK) return status;
  if (!can_pack(call, s)) return cut_parts(call, s, err);
  status = pack_parts(call, s, &call->comm->stream, err);
  /* a driver without kernels copies only while the call waits */
  return status == TDICT_ENOTSUP ? pack_parts(call, s, NULL, err) : status;
}

/* Sends the parts to the other ranks. Makes the tree of the root while the elements are on their way. */
static tdict_status send_parts(tdict_comm_call *call, scatter *s, tdict_error *err) {
  tdict_block_message *own = &call->message;
  tdict_error local;
  tdict_status status = tdict_rank_blocks_queue(call, &s->blocks, err);
  if (status != TDICT_OK) return status;
  if (!own->packed) status = tdict_schema_create_over(s->part_schema, own->storage, &own->packed, &local);
  return tdict_table_finish_step(call, status, &local, err);
}

static tdict_status move_parts(tdict_comm_call *call, scatter *s, tdict_error *err) {
  const int32_t rank = call->comm->table.rank;
  tdict_status status = tdict_comm_get_rows(call, s->schema, s->dim, s->counts[rank], &s->part_schema, err);
  if (status == TDICT_OK) status = tdict_message_allocate(call, s->part_schema, call->memory, err);
  if (status != TDICT_OK) return status;
  if (rank != call->root) return tdict_comm_receive_message(call, s->part_schema, err);
  status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK) status = fill_parts(call, s, err);
  return status == TDICT_OK ? send_parts(call, s, err) : status;
}

static tdict_status run_scatter(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  scatter s = {0};
  tdict_status status = agree(call, &s, err);
  if (status == TDICT_OK) status = tdict_comm_share_schema(call, s.offered, call->root, &s.schema, err);
  if (status == TDICT_OK)
    status = tdict_dim_find("scatter", call->dim, tdict_schema_get_info(s.schema).batch_ndim, &s.dim, err);
  if (status == TDICT_OK) status = share_counts(call, &s, err);
  if (status == TDICT_OK) status = move_parts(call, &s, err);
  if (status == TDICT_OK) *out = tdict_retain(call->message.packed);
  for (int32_t r = 0; s.pieces && r < s.blocks.world; r++) tdict_release(s.pieces[r]);
  free(s.pieces);
  tdict_rank_blocks_reset(&s.blocks);
  tdict_schema_release(s.offered);
  tdict_schema_release(s.part_schema);
  return status;
}

tdict_status tdict_comm_scatter_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                      const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {.comm = comm,
                                .op = TDICT_COMM_SCATTER,
                                .run = run_scatter,
                                .src = src,
                                .has_root = true,
                                .root = root,
                                .has_dim = true};
  return tdict_comm_start(&call, options, out, err);
}
