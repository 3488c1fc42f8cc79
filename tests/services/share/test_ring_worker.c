/* Tests a worker's calls on a ring: slots to fill, waits, and the end of the trainer. */

#include "rig.h"
#include "support/threads.h"

CASE(share_ring_begin_and_publish) {
  scoped_share_ring ring = rig_ring(3, 2), worker = rig_own_worker(ring), other = rig_own_worker(ring);
  tdict_tree *slots[3], *more = NULL;
  /* Each slot can be begun once, even with two workers. */
  td_ok(tdict_share_ring_begin(worker, 0, &slots[0], err));
  td_ok(tdict_share_ring_begin(other, 0, &slots[1], err));
  td_ok(tdict_share_ring_begin(worker, 0, &slots[2], err));
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &more, err));
  const int64_t begin = tdict_now_ns();
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(other, RIG_SECOND / 20, &more, err));
  assert_true(tdict_now_ns() - begin >= RIG_SECOND / 20);
  for (int64_t i = 0; i < 3; i++) rig_fill(slots[i], 10 + i);
  /* A worker can publish only its own slots, each once. */
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_publish(worker, slots[1], err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_publish(other, slots[0], err));
  td_ok(tdict_share_ring_publish(worker, slots[2], err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_publish(worker, slots[2], err));
  td_ok(tdict_share_ring_publish(other, slots[1], err));
  td_ok(tdict_share_ring_publish(worker, slots[0], err));
  assert_int_equal(rig_take(ring), 12);
  assert_int_equal(rig_take(ring), 11);
  assert_int_equal(rig_take(ring), 10);
}

CASE(share_ring_worker_refuses) {
  scoped_share_ring ring = rig_ring(1, 1), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *unchanged = NULL, *foreign = rig_batch();
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_begin(NULL, 0, &batch, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_ring_begin(worker, 0, NULL, err));
  td_fails(TDICT_EINVAL, "timeout_ns is -1", tdict_share_ring_begin(worker, -1, &batch, err));
  td_fails(TDICT_EINVAL, "belongs to the trainer", tdict_share_ring_begin(ring, 0, &batch, err));
  assert_null(batch);
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_publish(NULL, batch, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_share_ring_publish(worker, NULL, err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_publish(worker, foreign, err));
  td_fails(TDICT_EINVAL, "belongs to the trainer", tdict_share_ring_publish(ring, batch, err));
  /* Another process takes the slot away. */
  atomic_store(&ring->words->slots[0].state, TDICT_SHARE_EMPTY);
  td_fails(TDICT_EFORMAT, "the word of slot 0", tdict_share_ring_publish(worker, batch, err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_publish(worker, batch, err));
  assert_null(unchanged);
  tdict_release(foreign);
}

CASE(share_ring_begin_ends_with_the_ring) {
  scoped_share_ring ring = rig_ring(2, 1), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL;
  td_release(ring);
  td_fails(TDICT_ECANCELLED, "destroyed the ring", tdict_share_ring_begin(worker, INT64_MAX, &batch, err));
}

/* The trainer is a forked process, which is killed while this worker waits. */
CASE(share_ring_begin_ends_with_the_trainer) {
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_tree *batch = NULL;
  const pid_t trainer = fork();
  if (trainer == 0) {
    tdict_share_ring *ring = rig_ring(1, 1);
    if (tdict_share_ring_add_worker(ring, pair.theirs, (int32_t)getppid(), NULL) != TDICT_OK) _exit(1);
    for (;;) pause();
  }
  tdict_share_ring *worker = td_made(share_ring, tdict_share_ring_attach(pair.ours, 60 * RIG_SECOND, &made, err));
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &batch, err));
  rig_kill(trainer);
  td_fails(TDICT_ECANCELLED, "the trainer has ended", tdict_share_ring_begin(worker, INT64_MAX, &batch, err));
  tdict_share_ring_destroy(worker);
  rig_close(pair);
}

typedef struct waiter {
  tdict_share_ring *worker;
  tdict_tree *batch;
  tdict_status status;
} waiter;
static void *wait_for_empty(void *user) {
  waiter *w = user;
  w->status = tdict_share_ring_begin(w->worker, INT64_MAX, &w->batch, NULL);
  return NULL;
}

/* A wait without a limit ends when the trainer gives the slot back, and when the ring is destroyed. */
CASE(share_ring_begin_waits) {
  tdict_share_ring *ring = rig_ring(1, 1), *worker = rig_own_worker(ring);
  rig_publish(worker, 1);
  waiter w = {worker, NULL, TDICT_OK};
  pthread_t thread = td_start(wait_for_empty, &w);
  td_rest();
  assert_null(w.batch);
  assert_int_equal(rig_take(ring), 1);
  pthread_join(thread, NULL);
  assert_int_equal(w.status, TDICT_OK);
  assert_non_null(w.batch);
  w.batch = NULL;
  thread = td_start(wait_for_empty, &w);
  td_rest();
  tdict_share_ring_destroy(ring);
  pthread_join(thread, NULL);
  assert_int_equal(w.status, TDICT_ECANCELLED);
  tdict_share_ring_destroy(worker);
}

CASE(share_ring_waits_through_signals) {
  scoped_share_ring ring = rig_ring(1, 1), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL;
  rig_signals_begin();
  int64_t begin = tdict_now_ns();
  td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, RIG_SECOND / 20, &batch, err));
  assert_true(tdict_now_ns() - begin >= RIG_SECOND / 20);
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
  begin = tdict_now_ns();
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, RIG_SECOND / 20, &batch, err));
  assert_true(tdict_now_ns() - begin >= RIG_SECOND / 20);
  rig_signals_end();
}
