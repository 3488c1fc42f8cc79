/* Tests the trainer's calls on a ring: batches of other processes, transfers from slots, dead and broken workers. */

#include "context.h"
#include "device/sim/driver.h"
#include "rig.h"
#include "services/interop/dlpack/abi.h"
#include "support/driver_fault.h"
#include "support/threads.h"

/* Publishes batches until the ring is destroyed. */
WORKER(share_worker_publishes) {
  scoped_share_ring ring = rig_attach();
  for (int64_t n = 0;; n++) {
    tdict_tree *batch = NULL;
    tdict_status status = tdict_share_ring_begin(ring, INT64_MAX, &batch, NULL);
    if (status == TDICT_ECANCELLED) break;
    assert_int_equal(status, TDICT_OK);
    rig_fill(batch, (int64_t)getpid() << 32 | n);
    /* Usually hold the slot for a while, so that a killed worker often holds a slot. */
    const struct timespec pause = {0, 1000 * (n * 197 % 900)};
    if (n % 4) nanosleep(&pause, NULL);
    td_ok(tdict_share_ring_publish(ring, batch, err));
  }
}
/* Begins all slots. Then publishes the first slot, the last slot, the second slot, the second to last, and so on. */
WORKER(share_worker_publishes_pairs) {
  enum { SLOTS = TDICT_SHARE_MAX_SLOTS };
  scoped_share_ring ring = rig_attach();
  tdict_tree *batches[SLOTS];
  int64_t seed = 0;
  for (int again = 0; again < 2; again++) {
    for (int i = 0; i < SLOTS; i++) td_ok(tdict_share_ring_begin(ring, 60 * RIG_SECOND, &batches[i], err));
    for (int i = 0; i < SLOTS; i++) {
      const struct timespec pause = {0, 20000}; /* the trainer takes the slots in the meantime */
      if (i % 2 == 0) nanosleep(&pause, NULL);
      tdict_tree *batch = batches[i % 2 ? SLOTS - 1 - i / 2 : i / 2];
      *(int64_t *)tdict_data(batch, "seed") = seed++;
      td_ok(tdict_share_ring_publish(ring, batch, err));
    }
  }
}
/* Publishes three batches, and leaves the ring. */
WORKER(share_worker_leaves) {
  scoped_share_ring ring = rig_attach();
  for (int64_t n = 0; n < 3; n++) rig_publish(ring, n);
}
/* Publishes a batch, begins another, reports this, and waits to be killed. */
WORKER(share_worker_holds) {
  tdict_share_ring *ring = rig_attach();
  rig_publish(ring, 77);
  tdict_tree *batch = NULL;
  td_ok(tdict_share_ring_begin(ring, 60 * RIG_SECOND, &batch, err));
  rig_write(RIG_SOCKET, "h", 1);
  for (;;) pause();
}
/* Reports that it is attached to the ring, and waits to be killed. */
WORKER(share_worker_is_idle) {
  scoped_share_ring ring = rig_attach();
  rig_write(RIG_SOCKET, "i", 1);
  for (;;) pause();
}
/* Writes random numbers to the words of the ring and of the slots, until it is killed. */
WORKER(share_worker_is_broken) {
  tdict_share_ring *ring = rig_attach();
  uint32_t *words = (uint32_t *)ring->words;
  const size_t count = tdict_words_bytes(ring->num_slots, 0) / sizeof *words;
  uint64_t n = 0;
  for (;; n++) {
    uint64_t random;
    td_fill_random(&random, sizeof random, n);
    /* Half of the numbers look like words of slots. */
    const uint32_t small = (uint32_t)(random >> 40) % 6 << 8 | (uint32_t)(random >> 50) % 5;
    volatile uint32_t *word = words + (random >> 8) % count;
    *word = random & 1 ? small : (uint32_t)(random >> 13);
  }
}

static void wait_for_byte(int socket) {
  char say;
  assert_true(rig_read_bytes(socket, &say, 1));
}

/* Takes batches from several processes. Batches of one worker arrive in the order in which it published them. */
CASE(share_ring_takes_batches_of_processes) {
  enum { PROCESSES = 3, BATCHES = 300 };
  const rig_resources before = rig_resources_now();
  tdict_share_ring *ring = rig_ring(5, PROCESSES);
  pid_t pids[PROCESSES];
  int64_t next[PROCESSES] = {0};
  for (int i = 0; i < PROCESSES; i++) close(rig_add_process(ring, "share_worker_publishes", &pids[i]));
  for (int n = 0; n < BATCHES; n++) {
    const int64_t seed = rig_take(ring);
    int i = 0;
    while (i < PROCESSES && pids[i] != (pid_t)(seed >> 32)) i++;
    assert_true(i < PROCESSES);
    assert_int_equal(seed & 0xffffffff, next[i]++);
  }
  tdict_share_ring_destroy(ring);
  for (int i = 0; i < PROCESSES; i++) assert_int_equal(rig_reap(pids[i]), 0);
  rig_nothing_leaked(before);
}

/* While the trainer searches a long ring, the worker publishes a slot that the search has passed, and then a slot that
 * lies ahead of the search. */
CASE(share_ring_keeps_the_order_of_a_worker) {
  scoped_share_ring ring = rig_ring(TDICT_SHARE_MAX_SLOTS, 1);
  pid_t pid;
  close(rig_add_process(ring, "share_worker_publishes_pairs", &pid));
  for (int64_t n = 0; n < 2 * TDICT_SHARE_MAX_SLOTS; n++) {
    tdict_tree *batch = NULL;
    tdict_status status = TDICT_ETIMEDOUT;
    while (status == TDICT_ETIMEDOUT) status = tdict_share_ring_take(ring, 0, &batch, NULL); /* without a pause */
    assert_int_equal(status, TDICT_OK);
    assert_int_equal(*(const int64_t *)tdict_const_data(batch, "seed"), n);
    td_ok(tdict_share_ring_give_back(ring, batch, err));
  }
  assert_int_equal(rig_reap(pid), 0);
}

CASE(share_ring_ends_after_the_last_worker) {
  scoped_share_ring ring = rig_ring(2, 1);
  tdict_tree *batch = NULL;
  pid_t pid;
  close(rig_add_process(ring, "share_worker_leaves", &pid));
  for (int64_t n = 0; n < 3; n++) assert_int_equal(rig_take(ring), n);
  td_fails(TDICT_ENOTFOUND, "no worker is left", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
  assert_int_equal(rig_reap(pid), 0);
}

CASE(share_ring_trainer_refuses) {
  tdict_share_ring *ring = rig_ring(2, 1), *worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *foreign = rig_batch();
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  const int32_t self = (int32_t)getpid();
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_take(NULL, 0, &batch, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_ring_take(ring, 0, NULL, err));
  td_fails(TDICT_EINVAL, "timeout_ns is -1", tdict_share_ring_take(ring, -1, &batch, err));
  td_fails(TDICT_EINVAL, "belongs to a worker", tdict_share_ring_take(worker, 0, &batch, err));
  td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &batch, err));
  assert_null(batch);
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_give_back(NULL, foreign, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_share_ring_give_back(ring, NULL, err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_give_back(ring, foreign, err));
  td_fails(TDICT_EINVAL, "belongs to a worker", tdict_share_ring_give_back(worker, foreign, err));
  rig_publish(worker, 1);
  td_ok(tdict_share_ring_take(ring, 0, &batch, err));
  td_ok(tdict_share_ring_give_back(ring, batch, err));
  td_fails(TDICT_EINVAL, "not a slot", tdict_share_ring_give_back(ring, batch, err));
  /* Adding a worker fails if the ring has max_workers, the process does not exist, or the socket is closed. */
  const rig_resources before = rig_resources_now();
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_add_worker(NULL, pair.ours, self, err));
  td_fails(TDICT_EINVAL, "belongs to a worker", tdict_share_ring_add_worker(worker, pair.ours, self, err));
  td_fails(TDICT_EINVAL, "max_workers is 1", tdict_share_ring_add_worker(ring, pair.ours, self, err));
  tdict_share_ring_destroy(worker);
  td_fails(TDICT_ENOTFOUND, "no worker is left", tdict_share_ring_take(ring, 0, &batch, err));
  const rig_resources without = rig_resources_now();
  assert_int_equal(without.fds, before.fds - 3); /* the segment and two processes */
  td_fails(TDICT_ENOTFOUND, "no process 0", tdict_share_ring_add_worker(ring, pair.ours, 0, err));
  td_fails(TDICT_ENOTFOUND, "no process -3", tdict_share_ring_add_worker(ring, pair.ours, -3, err));
  td_fails(TDICT_ENOTFOUND, "no process 2147483647", tdict_share_ring_add_worker(ring, pair.ours, INT32_MAX, err));
  rig_close(pair);
  td_fails(TDICT_EIO, "refused the message", tdict_share_ring_add_worker(ring, pair.ours, self, err));
  assert_int_equal(td_count_descriptors(), without.fds - 2);
  td_fails(TDICT_EINVAL, "context is NULL", tdict_share_ring_pin(NULL, ring, err));
  td_fails(TDICT_EINVAL, "ring is NULL", tdict_share_ring_pin(NULL, NULL, err));
  td_release(foreign, ring);
}

/* A killed worker is reported with its process and its slot. Its published batch is delivered, and the slot that it
 * held is empty again. */
CASE(share_ring_reports_a_killed_worker) {
  const rig_resources before = rig_resources_now();
  tdict_share_ring *ring = rig_ring(2, 2), *other;
  tdict_tree *batch = NULL, *again = NULL;
  pid_t pid;
  const int socket = rig_add_process(ring, "share_worker_holds", &pid);
  wait_for_byte(socket);
  close(socket);
  other = rig_own_worker(ring);
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(other, 0, &batch, err));
  rig_kill(pid);
  const char *text = td_text("worker process %d has ended and held slot 1 (1 in all)", (int)pid);
  tdict_status status = tdict_share_ring_take(ring, INT64_MAX, &batch, NULL);
  if (status == TDICT_OK) { /* the batch came first, because the death was detected later */
    assert_int_equal(rig_check(batch), 77);
    td_fails(TDICT_ELOST, text, tdict_share_ring_take(ring, INT64_MAX, &again, err));
    assert_int_equal(td_last_error.native, pid);
  } else {
    assert_int_equal(status, TDICT_ELOST);
    td_ok(tdict_share_ring_take(ring, 0, &batch, err));
    assert_int_equal(rig_check(batch), 77);
  }
  td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &again, err));
  rig_publish(other, 5);
  assert_int_equal(rig_take(ring), 5);
  td_ok(tdict_share_ring_give_back(ring, batch, err));
  td_release(other, ring);
  rig_nothing_leaked(before);
}

/* The message of a timeout names the time, the number of living workers, and the holders of slots. */
CASE(share_ring_take_says_who_holds_slots) {
  enum { WORKERS = 5 };
  tdict_share_ring *ring = rig_ring(8, WORKERS + 1), *workers[WORKERS];
  tdict_tree *taken = NULL, *batch = NULL;
  char text[160];
  pid_t pid;
  const int socket = rig_add_process(ring, "share_worker_holds", &pid), self = (int)getpid();
  wait_for_byte(socket);
  close(socket);
  snprintf(text, sizeof text,
           "share_ring_take: no slot is full after 7 ms; living workers: 1; slots held: 1 of 8 by this "
           "process, 1 by process %d",
           (int)pid);
  td_ok(tdict_share_ring_take(ring, INT64_MAX, &taken, err));
  tdict_error late = {0};
  do assert_int_equal(tdict_share_ring_take(ring, 7000000, &batch, &late), TDICT_ETIMEDOUT);
  while (!strstr(late.message, " 7 ms")); /* a busy machine may wait longer */
  assert_string_equal(late.message, text);
  for (int i = 0; i < WORKERS; i++) {
    workers[i] = rig_own_worker(ring);
    td_ok(tdict_share_ring_begin(workers[i], 0, &batch, err));
  }
  snprintf(text, sizeof text,
           "living workers: 6; slots held: 1 of 8 by this process, 1 by process %d, 1 by process %d, 1 "
           "by process %d, and others by 3 more workers",
           (int)pid, self, self);
  td_fails(TDICT_ETIMEDOUT, text, tdict_share_ring_take(ring, 0, &batch, err));
  for (int i = 0; i < WORKERS; i++) tdict_share_ring_destroy(workers[i]);
  td_ok(tdict_share_ring_give_back(ring, taken, err));
  snprintf(text, sizeof text, "living workers: 1; slots held: 0 of 8 by this process, 1 by process %d", (int)pid);
  td_fails(TDICT_ETIMEDOUT, text, tdict_share_ring_take(ring, 0, &batch, err));
  rig_kill(pid);
  tdict_share_ring_destroy(ring);
}

static void *kill_at_rest(void *user) {
  td_rest();
  return kill(*(pid_t *)user, SIGKILL) == 0 ? NULL : user;
}
/* A trainer that waits without a time limit gets an error when a worker dies. */
CASE(share_ring_reports_during_a_wait) {
  scoped_share_ring ring = rig_ring(2, 1);
  tdict_tree *batch = NULL;
  pid_t pid;
  const int socket = rig_add_process(ring, "share_worker_is_idle", &pid);
  wait_for_byte(socket);
  close(socket);
  pthread_t thread = td_start(kill_at_rest, &pid);
  td_fails(TDICT_ELOST, "has ended and held no slot", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
  assert_int_equal(td_last_error.native, pid);
  void *failed;
  pthread_join(thread, &failed);
  assert_null(failed);
  assert_int_equal(rig_reap(pid), -SIGKILL);
}

/* Several dead workers are reported one after another. */
CASE(share_ring_reports_idle_workers) {
  scoped_share_ring ring = rig_ring(2, 2);
  tdict_tree *batch = NULL;
  pid_t pids[2];
  for (int i = 0; i < 2; i++) {
    const int socket = rig_add_process(ring, "share_worker_is_idle", &pids[i]);
    wait_for_byte(socket);
    close(socket);
    kill(pids[i], SIGKILL);
  }
  for (int i = 0; i < 2; i++) {
    td_fails(TDICT_ELOST, "has ended and held no slot", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
    assert_true(td_last_error.native == pids[0] || td_last_error.native == pids[1]);
  }
  td_fails(TDICT_ENOTFOUND, "no worker is left", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
  for (int i = 0; i < 2; i++) assert_int_equal(rig_reap(pids[i]), -SIGKILL);
}

/* A trainer that always finds full slots also gets an error when a worker dies. */
CASE(share_ring_reports_while_slots_are_full) {
  scoped_share_ring ring = rig_ring(4, 2), other = rig_own_worker(ring);
  tdict_tree *batch = NULL;
  pid_t pid;
  const int socket = rig_add_process(ring, "share_worker_is_idle", &pid);
  wait_for_byte(socket);
  close(socket);
  rig_kill(pid);
  tdict_status status = TDICT_OK;
  for (int64_t n = 0; status == TDICT_OK; n++) {
    rig_publish(other, n);
    status = tdict_share_ring_take(ring, 0, &batch, NULL);
    if (status == TDICT_OK) td_ok(tdict_share_ring_give_back(ring, batch, err));
  }
  assert_int_equal(status, TDICT_ELOST);
}

/* Kills workers at random moments. The environment variable TDICT_KILLS sets how many (default 100). */
CASE(share_ring_survives_killed_workers) {
  enum { PROCESSES = 4 };
  const char *const asked = getenv("TDICT_KILLS");
  const int kills = asked ? atoi(asked) : 100;
  const rig_resources before = rig_resources_now();
  tdict_share_ring *ring = rig_ring(3, PROCESSES);
  pid_t pids[PROCESSES];
  int num_lost = 0, num_batches = 0, num_held = 0;
  for (int i = 0; i < PROCESSES; i++) close(rig_add_process(ring, "share_worker_publishes", &pids[i]));
  for (int n = 0; n < kills; n++) {
    uint32_t random[3];
    td_fill_random(random, sizeof random, (uint64_t)n);
    /* Take some batches, and continue for a random time of up to 8 ms. Then kill a worker, and wait for the report. */
    const int wanted = num_batches + (int)(random[0] % 8);
    const int64_t until = tdict_now_ns() + random[1] % 8000000;
    const uint32_t victim = random[2] % PROCESSES;
    bool is_killed = false;
    while (num_lost == n) {
      tdict_tree *batch = NULL;
      tdict_error e = {0};
      if (!is_killed && num_batches >= wanted && tdict_now_ns() >= until) {
        assert_int_equal(kill(pids[victim], SIGKILL), 0);
        is_killed = true;
      }
      const tdict_status status = tdict_share_ring_take(ring, 30 * RIG_SECOND, &batch, &e);
      if (status == TDICT_OK) {
        rig_check(batch);
        td_ok(tdict_share_ring_give_back(ring, batch, err));
        num_batches++;
      } else {
        if (status != TDICT_ELOST) fail_msg("kill %d: %s: %s", n, tdict_status_name(status), e.message);
        assert_true(is_killed);
        assert_int_equal(e.native, pids[victim]);
        num_held += strstr(e.message, "held slot") != NULL;
        num_lost++;
      }
    }
    assert_int_equal(rig_reap(pids[victim]), -SIGKILL);
    close(rig_add_process(ring, "share_worker_publishes", &pids[victim]));
  }
  printf("%d workers killed, %d of them held a slot; %d batches\n", num_lost, num_held, num_batches);
  tdict_share_ring_destroy(ring);
  for (int i = 0; i < PROCESSES; i++) assert_int_equal(rig_reap(pids[i]), 0);
  rig_nothing_leaked(before);
}

/* Every wrong word is reported once or ignored, and the slot can then be used. */
CASE(share_ring_refuses_words) {
  scoped_share_ring ring = rig_ring(2, 4), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL;
  const uint32_t wrong[] = {TDICT_SHARE_TAKEN,
                            4,
                            0xff,
                            0x100,
                            0xffffffff,
                            tdict_slot_word(TDICT_SHARE_FULL, 1),
                            tdict_slot_word(TDICT_SHARE_FULL, 4),
                            tdict_slot_word(TDICT_SHARE_FULL, 0xffffff),
                            tdict_slot_word(TDICT_SHARE_FILLING, 1),
                            tdict_slot_word(TDICT_SHARE_FILLING, 0x800000)};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    atomic_store(&ring->words->slots[1].state, wrong[i]);
    td_fails(TDICT_EFORMAT, "to slot 1, which is empty now", tdict_share_ring_take(ring, 0, &batch, err));
    td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &batch, err));
    rig_publish(worker, 1);
    rig_publish(worker, 2);
    assert_int_equal(rig_take(ring), 1);
    assert_int_equal(rig_take(ring), 2);
  }
  /* The word of a slot is ignored while the trainer has the slot. */
  rig_publish(worker, 3);
  td_ok(tdict_share_ring_take(ring, 0, &batch, err));
  atomic_store(&ring->words->slots[0].state, tdict_slot_word(TDICT_SHARE_FULL, 0));
  tdict_tree *other = NULL;
  td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &other, err));
  assert_int_equal(rig_check(batch), 3);
  td_ok(tdict_share_ring_give_back(ring, batch, err));
  rig_publish(worker, 4);
  assert_int_equal(rig_take(ring), 4);
  /* Tickets wrap around. */
  atomic_store(&ring->words->next_ticket, UINT32_MAX);
  ring->last_ticket = UINT32_MAX - 1;
  rig_publish(worker, 5);
  rig_publish(worker, 6);
  assert_int_equal(rig_take(ring), 5);
  assert_int_equal(rig_take(ring), 6);
}

/* A worker that writes random words neither harms nor blocks the trainer. */
CASE(share_ring_survives_a_broken_worker) {
  const rig_resources before = rig_resources_now();
  tdict_share_ring *ring = rig_ring(3, 2);
  pid_t pid;
  close(rig_add_process(ring, "share_worker_is_broken", &pid));
  int num_taken = 0, num_refused = 0;
  for (int64_t end = tdict_now_ns() + RIG_SECOND / 2; tdict_now_ns() < end || num_refused == 0;) {
    tdict_tree *batch = NULL;
    tdict_error e = {0};
    const tdict_status status = tdict_share_ring_take(ring, RIG_SECOND / 1000, &batch, &e);
    if (status == TDICT_OK) td_ok(tdict_share_ring_give_back(ring, batch, err));
    num_taken += status == TDICT_OK;
    num_refused += status == TDICT_EFORMAT;
    assert_true(status == TDICT_OK || status == TDICT_EFORMAT || status == TDICT_ETIMEDOUT);
  }
  printf("%d taken, %d refused\n", num_taken, num_refused);
  rig_kill(pid);
  tdict_share_ring_destroy(ring);
  rig_nothing_leaked(before);
}

/* A slot that is given back while a transfer reads it becomes empty only after the transfer. */
SIM_CASE(share_ring_waits_for_transfers) {
  scoped_context context = td_context(NULL);
  for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
    scoped_share_ring ring = rig_ring(1, 1), worker = rig_own_worker(ring);
    tdict_tree *batch = NULL, *next = NULL;
    scoped_tree result = NULL, host = NULL;
    tdict_transfer_options o = tdict_transfer_options_default();
    if (is_pinned) td_ok(tdict_share_ring_pin(context, ring, err));
    assert_int_equal(tdict_is_pinned(ring->slots[0].tree), is_pinned);
    rig_publish(worker, 21);
    td_ok(tdict_share_ring_take(ring, 0, &batch, err));
    td_ok(tdict_sim_hold(context, err));
    scoped_future future = td_made(future, tdict_to_device_async(context, batch, td_device(), &o, &made, err));
    td_ok(tdict_share_ring_give_back(ring, batch, err));
    if (is_pinned) { /* otherwise, the staging ring soon holds the bytes, and the slot is free */
      td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, RIG_SECOND / 50, &next, err));
      td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, RIG_SECOND / 50, &next, err));
      td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &next, err));
    }
    td_ok(tdict_sim_resume(context, err));
    td_ok(tdict_future_wait(future, &result, err));
    /* The next call of the trainer makes the slot empty. */
    td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &next, err));
    rig_fill(td_made(tree, tdict_share_ring_begin(worker, 0, &made, err)), 22);
    td_ok(tdict_to_device(context, result, tdict_cpu(), NULL, &host, err));
    assert_int_equal(rig_check(host), 21);
    tdict_transfer_stats stats = td_filled(tdict_transfer_stats, tdict_future_get_stats(future, &made, err));
    assert_int_equal(stats.direct_bytes != 0, is_pinned);
    assert_int_equal(stats.staged_bytes != 0, !is_pinned);
  }
}

static void run_nothing(void *user) { (void)user; }
static atomic_int num_polls;
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  num_polls++;
  return __real_poll(fds, count, timeout_ms);
}

/* A slot that is given back while a stream uses it becomes empty only after the work on the stream. */
SIM_CASE(share_ring_waits_for_recorded_uses) {
  enum { WAIT_MS = 50 };
  scoped_context context = td_context(NULL);
  scoped_share_ring ring = rig_ring(1, 1), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *next = NULL;
  tdict_tensor *x = NULL;
  tdict_stream stream;
  tdict_dlpack_entry entry;
  td_ok(tdict_stream_create(context, td_device(), &stream, err));
  tdict_dlpack_export_options o = td_with(tdict_dlpack_export_options, stream = stream);
  td_ok(tdict_share_ring_pin(context, ring, err));
  for (int64_t seed = 41; seed < 44; seed++) {
    rig_publish(worker, seed);
    td_ok(tdict_share_ring_take(ring, 0, &batch, err));
    assert_int_equal(rig_check(batch), seed);
    td_ok(tdict_get(batch, "x", &x, err));
    td_ok(tdict_dlpack_export(context, x, &o, &entry, err));
    td_ok(tdict_sim_hold(context, err));
    td_ok(tdict_sim_launch(stream, run_nothing, NULL, err));
    tdict_dl_versioned *managed = (tdict_dl_versioned *)(void *)entry.versioned;
    managed->deleter(managed);
    td_ok(tdict_share_ring_give_back(ring, batch, err));
    td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &next, err));
    num_polls = 0;
    td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, RIG_SECOND / 1000 * WAIT_MS, &next, err));
    assert_in_range(num_polls, 2, WAIT_MS + 3); /* the trainer sleeps for a millisecond between two searches */
    td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &next, err));
    td_ok(tdict_sim_resume(context, err));
    td_ok(tdict_stream_synchronize(context, stream, err));
    td_fails(TDICT_ETIMEDOUT, "no slot is full", tdict_share_ring_take(ring, 0, &next, err));
  }
  tdict_stream_destroy(context, stream);
}

SIM_CASE(share_ring_outlived_by_a_transfer) {
  const rig_resources before = rig_resources_now();
  tdict_context *context = td_context(NULL);
  tdict_share_ring *ring = rig_ring(1, 1), *worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *result = NULL, *host = NULL;
  td_ok(tdict_share_ring_pin(context, ring, err));
  rig_publish(worker, 21);
  td_ok(tdict_share_ring_take(ring, 0, &batch, err));
  td_ok(tdict_sim_hold(context, err));
  tdict_future *future = td_made(future, tdict_to_device_async(context, batch, td_device(), NULL, &made, err));
  td_release(worker, ring);
  assert_int_equal(rig_count_maps(), before.maps + 1);
  td_ok(tdict_sim_resume(context, err));
  td_ok(tdict_future_wait(future, &result, err));
  td_ok(tdict_to_device(context, result, tdict_cpu(), NULL, &host, err));
  assert_int_equal(rig_check(host), 21);
  td_release(future, result, host, context);
  rig_nothing_leaked(before);
}

/* If the driver cannot register the ring, transfers are only slower. Destroying the ring ends the registration, even
 * after the context. */
SIM_CASE(share_ring_pin_falls_back) {
  scoped_driver inner = NULL, driver = NULL;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *context = NULL;
  td_ok(tdict_driver_sim_open(&sim, &inner, err));
  td_ok(tdict_driver_fault_open(inner, &driver, err));
  td_ok(tdict_context_create_over(td_options(tdict_context_options, device = td_device()), driver, &context, err));
  tdict_share_ring *ring = rig_ring(2, 1), *worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *moved = NULL;
  tdict_fault_live with;
  const tdict_fault fault = {
      .kinds = TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER), .n = 1, .code = TDICT_CU_OUT_OF_MEMORY};
  tdict_driver_fault_arm(driver, &fault);
  td_fails(TDICT_ENOMEM, "cuMemHostRegister", tdict_share_ring_pin(context, ring, err));
  tdict_driver_fault_arm(driver, NULL);
  rig_publish(worker, 31);
  td_ok(tdict_share_ring_take(ring, 0, &batch, err));
  td_ok(tdict_to_device(context, batch, td_device(), NULL, &moved, err));
  td_fails(TDICT_EINVAL, "slot 0 is in use", tdict_share_ring_pin(context, ring, err));
  td_ok(tdict_share_ring_give_back(ring, batch, err));
  tdict_driver_fault_get_live(driver, &with);
  td_ok(tdict_share_ring_pin(context, ring, err));
  tdict_fault_live pinned;
  tdict_driver_fault_get_live(driver, &pinned);
  assert_int_equal(pinned.registrations, with.registrations + 1);
  td_fails(TDICT_EINVAL, "pinned already", tdict_share_ring_pin(context, ring, err));
  td_release(moved, context);
  rig_publish(worker, 32);
  assert_int_equal(rig_take(ring), 32);
  td_release(worker, ring);
  tdict_fault_live after;
  tdict_driver_fault_get_live(driver, &after);
  assert_int_equal(after.registrations, 0);
  assert_int_equal(after.contexts, 0);
}

CASE(share_ring_pin_needs_a_device) {
  scoped_context context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &context, err));
  scoped_share_ring ring = rig_ring(1, 1);
  td_fails(TDICT_ENODEVICE, "is the cpu", tdict_share_ring_pin(context, ring, err));
}
