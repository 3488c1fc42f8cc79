/* Makes and destroys rings, in the trainer and in workers. See ring.h for ownership and threads. */
#include "services/share/ring.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/share/message.h"

#ifndef SYS_pidfd_open /* missing in headers before Linux 5.3; 434 on x86-64 and on 64-bit ARM */
#define SYS_pidfd_open 434
#endif

int tdict_ring_open_process(int32_t pid) { return (int)syscall(SYS_pidfd_open, (long)pid, 0L); }

/* Makes the tables of a new ring. On failure the caller frees the tables that exist. */
static bool make_tables(tdict_share_ring *r) {
  r->slots = calloc(r->num_slots, sizeof *r->slots);
  if (!r->slots || !r->is_trainer) return r->slots != NULL;
  r->processes = calloc(r->max_workers, sizeof *r->processes);
  for (uint32_t w = 0; r->processes && w < r->max_workers; w++)
    r->processes[w] = (struct pollfd){.fd = -1, .events = POLLIN};
  r->pids = calloc(r->max_workers, sizeof *r->pids);
  return r->processes && r->pids;
}

static void free_ring(tdict_share_ring *r) {
  for (uint32_t w = 0; r->processes && w < r->max_workers; w++)
    if (r->processes[w].fd >= 0) close(r->processes[w].fd);
  for (uint32_t i = 0; r->slots && i < r->num_slots; i++) tdict_release(r->slots[i].tree);
  if (r->trainer_fd >= 0) close(r->trainer_fd);
  tdict_segment_release(r->segment);
  tdict_forkmark_release(r->mark);
  free(r->slots);
  free(r->processes);
  free(r->pids);
  free(r);
}

static tdict_status make_slots(tdict_share_ring *r, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0; i < r->num_slots && status == TDICT_OK; i++) {
    status = tdict_segment_make_tree(r->segment, i, &r->slots[i].tree, err);
    if (status == TDICT_OK) r->slots[i].storage = r->slots[i].tree->consolidated->bytes->storage;
  }
  return status;
}

/* Makes a ring over a segment. Takes over the reference to the segment, also on failure. Returns TDICT_ENOMEM. */
static tdict_status make_ring(tdict_segment *segment, bool is_trainer, tdict_share_ring **out, tdict_error *err) {
  tdict_share_ring *r = calloc(1, sizeof *r);
  if (!r) {
    tdict_segment_release(segment);
    return tdict_fail_memory(err, "share_ring", NULL, "a ring");
  }
  r->segment = segment;
  r->words = (tdict_ring_words *)(segment->map + segment->layout.words_at);
  r->left = tdict_words_left(r->words, segment->layout.num_slots);
  r->is_trainer = is_trainer;
  r->num_slots = segment->layout.num_slots;
  r->max_workers = segment->layout.max_workers;
  r->trainer_fd = -1;
  tdict_status status =
      make_tables(r) ? TDICT_OK : tdict_fail_memory(err, "share_ring", NULL, "%u slots", r->num_slots);
  if (status == TDICT_OK) status = tdict_forkmark_create(&r->mark, err);
  if (status == TDICT_OK) status = make_slots(r, err);
  return TDICT_HAND_OVER(status, r, out, free_ring);
}

static tdict_status check_options(const tdict_share_ring_options *o, const char *what, tdict_error *err) {
  if (o->num_slots < 1 || o->num_slots > TDICT_SHARE_MAX_SLOTS)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_slots is %d, wanted 1 to %d", what, (int)o->num_slots,
                      TDICT_SHARE_MAX_SLOTS);
  if (o->max_workers < 1 || o->max_workers > TDICT_SHARE_MAX_WORKERS)
    return tdict_fail(err, TDICT_EINVAL, "%s: max_workers is %d, wanted 1 to %d", what, (int)o->max_workers,
                      TDICT_SHARE_MAX_WORKERS);
  return TDICT_OK;
}

tdict_status tdict_share_ring_create(const tdict_tree *like, const tdict_share_ring_options *options,
                                     tdict_share_ring **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_create";
  tdict_share_ring_options o = tdict_share_ring_options_default();
  tdict_segment *segment;
  if (!like || !out) return tdict_fail_null(err, what, like ? "out" : "like");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "share_ring_options", err);
  if (status == TDICT_OK) status = check_options(&o, what, err);
  if (status != TDICT_OK) return status;
  const tdict_segment_layout wanted = {
      .kind = TDICT_SEGMENT_RING, .num_slots = (uint32_t)o.num_slots, .max_workers = (uint32_t)o.max_workers};
  status = tdict_segment_create(what, like, &wanted, &segment, err);
  return status == TDICT_OK ? make_ring(segment, true, out, err) : status;
}

tdict_status tdict_share_ring_attach(int socket, int64_t timeout_ns, tdict_share_ring **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_attach";
  tdict_message message = {.kind = TDICT_SEGMENT_RING, .num_fds = 2};
  tdict_segment *segment;
  tdict_share_ring *made;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", what);
  tdict_status status = tdict_message_receive(what, socket, timeout_ns, &message, err);
  if (status != TDICT_OK) return status;
  const int trainer_fd = message.fds[1];
  status = tdict_segment_open(what, message.fds[0], TDICT_SEGMENT_RING, &segment, err);
  if (status == TDICT_OK && message.worker >= segment->layout.max_workers) {
    status = tdict_fail(err, TDICT_EFORMAT, "%s: the worker has number %u, but the ring has %u workers", what,
                        message.worker, segment->layout.max_workers);
    tdict_segment_release(segment);
  } else if (status == TDICT_OK) {
    status = make_ring(segment, false, &made, err);
  }
  if (status != TDICT_OK) {
    close(trainer_fd);
    return status;
  }
  made->worker = message.worker;
  made->trainer_fd = trainer_fd;
  *out = made;
  return TDICT_OK;
}

/* Tells the other processes that this process no longer uses the ring. */
static void leave_ring(tdict_share_ring *r) {
  if (r->is_trainer) {
    atomic_store_explicit(&r->words->closed, 1, memory_order_release);
    tdict_futex_wake(&r->words->freed);
    return;
  }
  for (uint32_t i = 0; i < r->num_slots; i++)
    if (r->slots[i].use == TDICT_SLOT_IN_USE)
      (void)tdict_slot_change(&r->words->slots[i], tdict_ring_filling(r), TDICT_SHARE_EMPTY);
  tdict_futex_wake(&r->words->freed);
  atomic_store_explicit(&r->left[r->worker], 1, memory_order_release);
  tdict_futex_wake(&r->words->published);
}

void tdict_share_ring_destroy(tdict_share_ring *ring) {
  TDICT_UNCANCELLED;
  if (!ring) return;
  if (!tdict_forkmark_forked(ring->mark)) leave_ring(ring);
  free_ring(ring);
}

tdict_status tdict_ring_check(const tdict_share_ring *ring, bool by_trainer, const char *what, tdict_error *err) {
  if (!ring) return tdict_fail(err, TDICT_EINVAL, "%s: ring is NULL", what);
  if (tdict_forkmark_forked(ring->mark))
    return tdict_fail(err, TDICT_EFORKED, "%s: this process is a fork of the process that has the ring", what);
  if (ring->is_trainer == by_trainer) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the ring belongs to %s", what, by_trainer ? "a worker" : "the trainer");
}

tdict_status tdict_ring_find(const tdict_share_ring *ring, const tdict_tree *tree, const char *what, uint32_t *out,
                             tdict_error *err) {
  if (!tree) return tdict_fail(err, TDICT_EINVAL, "%s: tree is NULL", what);
  for (uint32_t i = 0; i < ring->num_slots; i++) {
    if (ring->slots[i].tree != tree || ring->slots[i].use != TDICT_SLOT_IN_USE) continue;
    *out = i;
    return TDICT_OK;
  }
  return tdict_fail(err, TDICT_EINVAL, "%s: the tree is not a slot that the program took from this ring", what);
}
