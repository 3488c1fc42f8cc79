/* Implements the operations on device memory, queued on the caller's stream. See link.h for ownership and threads. */

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "services/comm/nccl/link.h"

/* Queues a message with another rank or a root, or adds it to the group. */
static tdict_status queue_or_collect(tdict_nccl_link *link, tdict_nccl_move move, tdict_stream stream,
                                     int64_t timeout_ns, tdict_error *err) {
  static const char *const peers[] = {"the receiver", "the sender", "the root"};
  if (move.peer < 0 || move.peer >= link->world)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is rank %d, wanted 0 to %d", link->where, peers[move.kind],
                      (int)move.peer, (int)link->world - 1);
  if (!link->is_grouping && move.kind != TDICT_NCCL_BROADCAST && move.peer == link->rank)
    return tdict_fail(err, TDICT_EINVAL, "%s: rank %d sends to itself, which only a group can do", link->where,
                      (int)link->rank);
  if (!link->is_grouping) return tdict_nccl_queue(link, &move, 1, stream.handle, tdict_deadline_ns(timeout_ns), err);
  if (!TDICT_RESERVE(link->moves, link->cap_moves, link->num_moves + 1))
    return tdict_fail_memory(err, link->where, NULL, "a group");
  link->moves[link->num_moves++] = move;
  return TDICT_OK;
}

static tdict_status nccl_broadcast(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                                   int64_t timeout_ns, tdict_error *err) {
  const tdict_nccl_move move = {TDICT_NCCL_BROADCAST, root, buffer, buffer, num_bytes};
  return queue_or_collect(self, move, stream, timeout_ns, err);
}

static tdict_status nccl_all_gather(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                                    int64_t timeout_ns, tdict_error *err) {
  const tdict_nccl_move move = {TDICT_NCCL_GATHER, 0, src, dst, num_bytes};
  return tdict_nccl_queue(self, &move, 1, stream.handle, tdict_deadline_ns(timeout_ns), err);
}

static tdict_status nccl_send(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                              int64_t timeout_ns, tdict_error *err) {
  return queue_or_collect(self, (tdict_nccl_move){TDICT_NCCL_SEND, peer, src, NULL, num_bytes}, stream, timeout_ns,
                          err);
}

static tdict_status nccl_receive(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                                 int64_t timeout_ns, tdict_error *err) {
  return queue_or_collect(self, (tdict_nccl_move){TDICT_NCCL_RECEIVE, peer, NULL, dst, num_bytes}, stream, timeout_ns,
                          err);
}

static tdict_status nccl_group_begin(void *self, tdict_error *err) {
  tdict_nccl_link *link = self;
  if (link->is_grouping) return tdict_fail(err, TDICT_EINVAL, "%s: a group has begun already", link->where);
  link->is_grouping = true;
  link->num_moves = 0;
  return TDICT_OK;
}

static tdict_status nccl_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  tdict_nccl_link *link = self;
  if (!link->is_grouping) return tdict_fail(err, TDICT_EINVAL, "%s: no group has begun", link->where);
  link->is_grouping = false;
  return tdict_nccl_queue(link, link->moves, link->num_moves, stream.handle, tdict_deadline_ns(timeout_ns), err);
}

/* Returns NCCL's number of a dtype, or -1. */
static int type_of(const tdict_nccl_link *link, tdict_dtype dtype) {
  static const tdict_dtype dtypes[] = {
      [TDICT_NCCL_I8] = TDICT_I8,     [TDICT_NCCL_U8] = TDICT_U8,         [TDICT_NCCL_I32] = TDICT_I32,
      [TDICT_NCCL_U32] = TDICT_U32,   [TDICT_NCCL_I64] = TDICT_I64,       [TDICT_NCCL_U64] = TDICT_U64,
      [TDICT_NCCL_F16] = TDICT_F16,   [TDICT_NCCL_F32] = TDICT_F32,       [TDICT_NCCL_F64] = TDICT_F64,
      [TDICT_NCCL_BF16] = TDICT_BF16, [TDICT_NCCL_F8E4M3] = TDICT_F8E4M3, [TDICT_NCCL_F8E5M2] = TDICT_F8E5M2};
  int type = link->has_float8 ? TDICT_NCCL_F8E5M2 : TDICT_NCCL_BF16;
  while (type >= 0 && dtypes[type] != dtype) type--;
  return type;
}

/* Returns NCCL's number of an operation, or -1. A single rank sums for a mean: NCCL 2.28 refuses the mean of 8-bit
 * floats in a communicator of one rank, because the switch in ncclLaunchOneRank() leaves them out. */
static int op_of(const tdict_nccl_link *link, tdict_reduce_op op, int type) {
  switch (op) {
  case TDICT_REDUCE_SUM:
    return TDICT_NCCL_SUM;
  case TDICT_REDUCE_MEAN:
    if (type < TDICT_NCCL_F16) return -1; /* all later types are floats */
    return link->world > 1 ? TDICT_NCCL_AVERAGE : TDICT_NCCL_SUM;
  case TDICT_REDUCE_MIN:
    return TDICT_NCCL_MIN;
  case TDICT_REDUCE_MAX:
    return TDICT_NCCL_MAX;
  default:
    return -1;
  }
}

static bool nccl_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  const int type = type_of(self, dtype);
  return type >= 0 && op_of(self, op, type) >= 0;
}

static tdict_status nccl_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype,
                                    tdict_reduce_op op, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  tdict_nccl_link *link = self;
  const int type = type_of(link, dtype), nccl_op = type >= 0 ? op_of(link, op, type) : -1;
  if (nccl_op < 0) {
    return tdict_fail(err, TDICT_ENOTSUP, "%s: NCCL has no reduction %d of %s", link->where, (int)op,
                      TDICT_DTYPE_TEXT(dtype));
  }
  tdict_nccl_call call = {.link = link, .name = "ncclAllReduce", .deadline_ns = tdict_deadline_ns(timeout_ns)};
  tdict_status status = tdict_nccl_begin(&call, err);
  if (status != TDICT_OK) return status;
  tdict_nccl_result result = TDICT_NCCL_SUCCESS;
  if (num_elements > 0)
    result =
        link->api.all_reduce(buffer, buffer, num_elements, type, nccl_op, link->comm, (tdict_nccl_stream)stream.handle);
  return tdict_nccl_end(&call, result, err);
}

static tdict_status nccl_finish(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  return tdict_nccl_wait(self, stream.handle, tdict_deadline_ns(timeout_ns), err);
}

void tdict_nccl_add_operations(tdict_comm_table *table) {
  table->broadcast = nccl_broadcast;
  table->all_gather = nccl_all_gather;
  table->can_reduce = nccl_can_reduce;
  table->all_reduce = nccl_all_reduce;
  table->send = nccl_send;
  table->receive = nccl_receive;
  table->group_begin = nccl_group_begin;
  table->group_end = nccl_group_end;
  table->finish = nccl_finish;
}
