/* Implements the operations on host memory: the bytes pass through pinned memory of the link, piece by piece. The
 * device accesses this memory directly, so a piece needs no copies to and from device memory. See link.h for ownership
 * and threads. */
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

/* One piece of a message. The stage has a part of `bytes` bytes for each rank whose bytes it holds. */
typedef struct piece {
  tdict_nccl_link *link;
  const char *src;   /* bytes that this rank sends; or NULL */
  size_t bytes, own; /* own: the part that contains the bytes of `src` */
  tdict_nccl_move move;
  int64_t deadline_ns;
} piece;

static tdict_status move_piece(const piece *p, tdict_error *err) {
  tdict_nccl_link *link = p->link;
  tdict_status status = TDICT_OK;
  if (link->uses_stage) status = tdict_nccl_wait(link, link->stream, p->deadline_ns, err);
  if (status != TDICT_OK) return status;
  link->uses_stage = true;
  if (p->src) memcpy(link->stage + p->own * p->bytes, p->src, p->bytes);
  status = tdict_nccl_queue(link, &p->move, 1, link->stream, p->deadline_ns, err);
  if (status == TDICT_OK) status = tdict_nccl_wait(link, link->stream, p->deadline_ns, err);
  link->uses_stage = status != TDICT_OK;
  return status;
}

static tdict_status stage_piece(piece *p, tdict_error *err) {
  tdict_gpu_scope scope;
  /* After `abort`, the ended operation may still use the stage. */
  tdict_status status = tdict_nccl_refuse_ended(p->link, err);
  if (status == TDICT_OK) status = tdict_gpu_enter(p->link->gpu, &scope, err);
  if (status != TDICT_OK) return status;
  p->move.src = p->link->stage + p->own * p->bytes;
  p->move.dst = p->link->stage;
  p->move.num_bytes = p->bytes;
  p->link->is_entered = true;
  status = move_piece(p, err);
  p->link->is_entered = false;
  tdict_gpu_leave(p->link->gpu, &scope);
  return status;
}

static tdict_status host_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                  tdict_error *err) {
  tdict_nccl_link *link = self;
  const size_t world = (size_t)link->world, most = most_of_piece(world);
  piece p = {.link = link,
             .own = (size_t)link->rank,
             .move = {.kind = TDICT_NCCL_GATHER},
             .deadline_ns = tdict_deadline_ns(timeout_ns)};
  tdict_status status = TDICT_OK;
  for (size_t done = 0; done < num_bytes && status == TDICT_OK; done += p.bytes) {
    p.src = (const char *)src + done;
    p.bytes = num_bytes - done < most ? num_bytes - done : most;
    status = stage_piece(&p, err);
    for (size_t rank = 0; rank < world && status == TDICT_OK; rank++)
      memcpy((char *)dst + rank * num_bytes + done, link->stage + rank * p.bytes, p.bytes);
  }
  return status;
}

static tdict_status check_peer(const tdict_nccl_link *link, int32_t peer, const char *what, tdict_error *err) {
  if (peer >= 0 && peer < link->world && peer != link->rank) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: %s: the other rank is %d, wanted 0 to %d, but not %d", link->where, what,
                    (int)peer, (int)link->world - 1, (int)link->rank);
}

static tdict_status host_send(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                              tdict_error *err) {
  tdict_nccl_link *link = self;
  const size_t most = most_of_piece(1);
  piece p = {
      .link = link, .move = {.kind = TDICT_NCCL_SEND, .peer = peer}, .deadline_ns = tdict_deadline_ns(timeout_ns)};
  tdict_status status = check_peer(link, peer, "send", err);
  for (size_t done = 0; done < num_bytes && status == TDICT_OK; done += p.bytes) {
    p.src = (const char *)src + done;
    p.bytes = num_bytes - done < most ? num_bytes - done : most;
    status = stage_piece(&p, err);
  }
  return status;
}

static tdict_status host_receive(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                 tdict_error *err) {
  tdict_nccl_link *link = self;
  const size_t most = most_of_piece(1);
  piece p = {
      .link = link, .move = {.kind = TDICT_NCCL_RECEIVE, .peer = peer}, .deadline_ns = tdict_deadline_ns(timeout_ns)};
  tdict_status status = check_peer(link, peer, "receive", err);
  for (size_t done = 0; done < num_bytes && status == TDICT_OK; done += p.bytes) {
    p.bytes = num_bytes - done < most ? num_bytes - done : most;
    status = stage_piece(&p, err);
    if (status == TDICT_OK) memcpy((char *)dst + done, link->stage, p.bytes);
  }
  return status;
}

void tdict_nccl_add_host_operations(tdict_comm_table *table) {
  table->exchange = host_exchange;
  table->send_host = host_send;
  table->receive_host = host_receive;
}
