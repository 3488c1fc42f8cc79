/* Implements the operations on host memory: the bytes pass piece by piece through pinned memory of the link, which the
 * device accesses directly. See link.h for ownership and threads. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "device/counted.h"
#include "services/comm/nccl/link.h"

/* Bytes that all ranks together send in one piece, and the minimum for each rank. */
enum { STAGED = 1 << 20, LEAST_OF_ONE_RANK = 4096 };

void tdict_nccl_free_stage(tdict_nccl_link *link) {
  if (link->stage) tdict_counted_host_free(link->gpu->driver, link->stage, link->stage_bytes);
  link->stage = NULL;
  link->stage_bytes = 0;
}

/* Bytes of one rank in the largest piece. */
static size_t most_of_piece(size_t num_ranks) {
  const size_t even = (size_t)STAGED / num_ranks;
  return even > LEAST_OF_ONE_RANK ? even : LEAST_OF_ONE_RANK;
}

tdict_status tdict_nccl_make_stage(tdict_nccl_link *link, tdict_error *err) {
  const size_t of_ranks = most_of_piece((size_t)link->world) * (size_t)link->world;
  const size_t bytes = of_ranks > STAGED ? of_ranks : STAGED;
  void *stage = NULL;
  tdict_cu result = tdict_counted_host_alloc(link->gpu->driver, &stage, bytes);
  if (result == TDICT_CU_SUCCESS) {
    link->stage = stage;
    link->stage_bytes = bytes;
  }
  return tdict_gpu_check(link->gpu, result, "cuMemHostAlloc", err);
}

/* Moves one piece through the stage. `src` is what this rank sends, or NULL. */
static tdict_status move_piece(tdict_nccl_link *link, tdict_nccl_move *piece, const void *src, int64_t deadline_ns,
                               tdict_error *err) {
  char *part = link->stage + (piece->kind == TDICT_NCCL_GATHER ? (size_t)link->rank * piece->num_bytes : 0);
  tdict_status status = TDICT_OK;
  if (link->uses_stage) status = tdict_nccl_wait(link, link->stream, deadline_ns, err);
  if (status != TDICT_OK) return status;
  link->uses_stage = true;
  if (src) memcpy(part, src, piece->num_bytes);
  piece->src = part;
  piece->dst = link->stage;
  status = tdict_nccl_queue(link, piece, 1, link->stream, deadline_ns, err);
  if (status == TDICT_OK) status = tdict_nccl_wait(link, link->stream, deadline_ns, err);
  link->uses_stage = status != TDICT_OK;
  return status;
}

static tdict_status stage_piece(tdict_nccl_link *link, tdict_nccl_move *piece, const void *src, int64_t deadline_ns,
                                tdict_error *err) {
  tdict_gpu_scope scope;
  /* After `abort`, the ended operation may still use the stage. */
  tdict_status status = tdict_nccl_refuse_ended(link, err);
  if (status == TDICT_OK) status = tdict_gpu_enter(link->gpu, &scope, err);
  if (status != TDICT_OK) return status;
  link->is_entered = true;
  status = move_piece(link, piece, src, deadline_ns, err);
  link->is_entered = false;
  tdict_gpu_leave(link->gpu, &scope);
  return status;
}

/* Moves a message between host memory of the ranks. `src` or `dst` may be NULL. A GATHER has the parts of the ranks one
 * after another. */
static tdict_status move_host(tdict_nccl_link *link, tdict_nccl_move whole, int64_t timeout_ns, tdict_error *err) {
  const size_t parts = whole.kind == TDICT_NCCL_GATHER ? (size_t)link->world : 1, most = most_of_piece(parts);
  const int64_t deadline_ns = tdict_deadline_ns(timeout_ns);
  tdict_nccl_move piece = whole;
  tdict_status status = TDICT_OK;
  for (size_t done = 0; done < whole.num_bytes && status == TDICT_OK; done += piece.num_bytes) {
    piece.num_bytes = whole.num_bytes - done < most ? whole.num_bytes - done : most;
    status = stage_piece(link, &piece, whole.src ? (const char *)whole.src + done : NULL, deadline_ns, err);
    for (size_t i = 0; i < parts && whole.dst && status == TDICT_OK; i++)
      memcpy((char *)whole.dst + i * whole.num_bytes + done, link->stage + i * piece.num_bytes, piece.num_bytes);
  }
  return status;
}

static tdict_status host_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                  tdict_error *err) {
  return move_host(self, (tdict_nccl_move){TDICT_NCCL_GATHER, 0, src, dst, num_bytes}, timeout_ns, err);
}

static tdict_status check_peer(const tdict_nccl_link *link, int32_t peer, const char *what, tdict_error *err) {
  if (peer >= 0 && peer < link->world && peer != link->rank) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: %s: the other rank is %d, wanted 0 to %d, but not %d", link->where, what,
                    (int)peer, (int)link->world - 1, (int)link->rank);
}

static tdict_status host_send(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                              tdict_error *err) {
  tdict_status status = check_peer(self, peer, "send", err);
  if (status != TDICT_OK) return status;
  return move_host(self, (tdict_nccl_move){TDICT_NCCL_SEND, peer, src, NULL, num_bytes}, timeout_ns, err);
}

static tdict_status host_receive(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                 tdict_error *err) {
  tdict_status status = check_peer(self, peer, "receive", err);
  if (status != TDICT_OK) return status;
  return move_host(self, (tdict_nccl_move){TDICT_NCCL_RECEIVE, peer, NULL, dst, num_bytes}, timeout_ns, err);
}

void tdict_nccl_add_host_operations(tdict_comm_table *table) {
  table->exchange = host_exchange;
  table->send_host = host_send;
  table->receive_host = host_receive;
}
