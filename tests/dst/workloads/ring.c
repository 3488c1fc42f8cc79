/* Tests a ring that is shared by two contexts of one process.
 *
 * The trainer and the workers have one context each. A worker fills a slot from its device or by plain writes,
 * publishes the slot, and sometimes leaves the ring while it fills a slot. The trainer takes batches, starts their
 * transfers, and returns the slots while transfers still read them. Each batch contains the number of its worker and
 * its own number, so the trainer detects lost, repeated and mixed batches. */
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dst/workloads/model.h"
#include "support/take.h"
#include "tdict/share.h"

enum { NUM_WORKERS = 2, MOST_BATCHES = 6, MOST_HELD = 3, ROWS = 2, WIDTH = 40, MILLISECOND = 1000000 };

typedef struct worker {
  int sockets[2]; /* [0] is the trainer's end, [1] the worker's */
  bool is_added;
  int num_batches;                       /* the total number to publish */
  bool leaves_slot;                      /* leaves the ring while it fills a slot */
  _Atomic(int) num_published, num_begun; /* num_begun also counts a publish call that has not returned */
  int num_taken;
} worker;
/* A batch that the trainer has sent to the device. */
typedef struct sent {
  tdict_future *future;
  int64_t generation;
} sent;
typedef struct stage {
  model_world trainer_world, worker_world;
  tdict_share_ring *ring;
  worker workers[NUM_WORKERS];
  _Atomic(int) num_active; /* workers that have not left the ring */
  bool is_pinned, ends_early;
  sent sent[NUM_WORKERS * MOST_BATCHES];
  int num_sent;
} stage;

static int64_t generation_of(int number, int batch) { return (number + 1) * 100 + batch; }
static model_rows rows_of(int64_t generation) { return model_rows_of(generation, 0, ROWS, WIDTH); }

static model_look slot_look(const tdict_tree *slot) {
  model_look look = model_plain_look();
  look.is_locked = true;
  look.is_contiguous = true;
  look.is_pinned = -1;
  look.has_device = tdict_get_device(slot, NULL);
  return look;
}

/* ---- a worker ---- */

static bool attach(worker *w, tdict_share_ring **out) {
  for (int i = 0; i < 20; i++)
    if (model_may(1u << TDICT_ETIMEDOUT, tdict_share_ring_attach(w->sockets[1], MILLISECOND, out, model_error())))
      return true;
  return false;
}

/* Writes a batch into a slot. Returns false after an injected fault. The slot then has no valid batch. */
static bool fill(stage *s, tdict_tree *slot, int64_t generation) {
  const model_rows rows = rows_of(generation);
  if (dst_roll(2)) {
    model_true(model_write(slot, &rows));
    return true;
  }
  tdict_tree *td = model_tree(&rows), *there = NULL;
  const bool is_ok =
      td && model_ok(tdict_to_device(s->worker_world.context, td, tdict_sim(0), NULL, &there, model_error())) &&
      model_ok(tdict_transfer_into(s->worker_world.context, slot, there, NULL, model_error()));
  td_release(there, td);
  return is_ok || model_write(slot, &rows); /* also fails if the transfer lost bytes of the slot */
}

static void work(stage *s, int number) {
  worker *w = &s->workers[number];
  tdict_share_ring *ring = NULL;
  tdict_tree *slot = NULL;
  if (!w->is_added || !attach(w, &ring)) return;
  for (int i = 0; i < w->num_batches; i++) {
    const uint32_t allowed = 1u << TDICT_ETIMEDOUT | 1u << TDICT_ECANCELLED;
    while (!model_may(allowed, tdict_share_ring_begin(ring, MILLISECOND, &slot, model_error())) &&
           model_status() == TDICT_ETIMEDOUT)
      continue;
    if (model_status() == TDICT_ECANCELLED) model_true(s->ends_early);
    if (model_status() != TDICT_OK) break;
    const model_look look = slot_look(slot);
    const model_rows rows = rows_of(generation_of(number, i));
    model_check_shape(slot, &rows, &look);
    if (!fill(s, slot, generation_of(number, i))) break;
    atomic_store(&w->num_begun, i + 1);
    if (!model_ok(tdict_share_ring_publish(ring, slot, model_error()))) break;
    atomic_store(&w->num_published, i + 1);
  }
  if (w->leaves_slot) (void)!tdict_share_ring_begin(ring, 0, &slot, NULL);
  tdict_share_ring_destroy(ring);
}

/* ---- the trainer ---- */

/* Checks that a batch is the next batch of its worker. Returns the number of the worker. */
static int check_batch(stage *s, const tdict_tree *batch) {
  const model_look look = slot_look(batch);
  const int64_t generation = model_generation(batch);
  const model_rows rows = rows_of(generation);
  const int number = (int)(generation / 100) - 1;
  model_true(number >= 0 && number < NUM_WORKERS);
  worker *w = &s->workers[number];
  if (generation != generation_of(number, w->num_taken))
    dst_fail("worker %d: batch %lld comes after %d batches", number, (long long)generation % 100, w->num_taken);
  model_true(w->num_taken < atomic_load(&w->num_begun));
  model_check(batch, &rows, &look);
  return number;
}

/* Starts the transfer of a slot. The transfer retains the bytes, so the slot may be returned to the ring at once. */
static void send_slot(stage *s, const tdict_tree *slot, int64_t generation) {
  tdict_future *f = NULL;
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = (int32_t)dst_roll(3) - 1);
  if (model_ok(tdict_to_device_async(s->trainer_world.context, slot, tdict_sim(0), &o, &f, model_error())))
    s->sent[s->num_sent++] = (sent){f, generation};
}
static void settle(stage *s) {
  for (int i = 0; i < s->num_sent; i++) {
    const model_rows rows = rows_of(s->sent[i].generation);
    scoped_tree there = NULL;
    if (model_ok(tdict_future_wait(s->sent[i].future, &there, model_error()))) {
      model_look look = model_device_look(tdict_sim(0));
      look.is_locked = true;
      model_check_device(&s->trainer_world, there, &rows, &look);
    }
    tdict_future_release(s->sent[i].future);
  }
  s->num_sent = 0;
}

static void give_back(stage *s, tdict_tree **held, int *num_held) {
  while (*num_held) model_true(model_ok(tdict_share_ring_give_back(s->ring, held[--*num_held], model_error())));
}
/* Takes one batch. Returns false if there will be no more batches. */
static bool take(stage *s, tdict_tree **held, int *num_held) {
  tdict_tree *slot = NULL;
  const uint32_t allowed = 1u << TDICT_ETIMEDOUT | 1u << TDICT_ENOTFOUND;
  const bool are_all_gone = atomic_load(&s->num_active) == 0;
  if (!model_may(allowed, tdict_share_ring_take(s->ring, MILLISECOND, &slot, model_error()))) {
    const bool may_come = model_status() == TDICT_ETIMEDOUT && !are_all_gone; /* take() never misses a published slot */
    give_back(s, held, num_held);                                             /* workers may wait for these slots */
    return may_come;
  }
  const int number = check_batch(s, slot);
  s->workers[number].num_taken++;
  send_slot(s, slot, generation_of(number, s->workers[number].num_taken - 1));
  held[(*num_held)++] = slot;
  if (*num_held == MOST_HELD || dst_roll(2)) give_back(s, held, num_held);
  return true;
}
static void train(stage *s) {
  tdict_tree *held[MOST_HELD];
  int num_held = 0;
  for (int i = 0; take(s, held, &num_held); i++)
    if (s->ends_early && i == 3) break;
  give_back(s, held, &num_held);
  tdict_share_ring *ring = s->ring;
  if (s->ends_early) {
    s->ring = NULL;
    tdict_share_ring_destroy(ring); /* transfers may still read the slots */
  }
  settle(s);
}

static void play(int number, void *data) {
  stage *s = data;
  if (number == NUM_WORKERS) {
    train(s);
    return;
  }
  work(s, number);
  atomic_fetch_sub(&s->num_active, 1);
}

static bool open_ring(stage *s) {
  const model_rows rows = rows_of(1);
  tdict_tree *like = model_tree(&rows);
  tdict_share_ring_options o =
      td_with(tdict_share_ring_options, num_slots = (int32_t)(2 + dst_roll(3)), max_workers = NUM_WORKERS);
  const bool is_ok = like && model_ok(tdict_share_ring_create(like, &o, &s->ring, model_error()));
  tdict_release(like);
  if (!is_ok) return false;
  s->is_pinned = dst_roll(2) && model_ok(tdict_share_ring_pin(s->trainer_world.context, s->ring, model_error()));
  for (int i = 0; i < NUM_WORKERS; i++) {
    worker *w = &s->workers[i];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, w->sockets) != 0) {
      model_true(model_was_unlucky());
      w->sockets[0] = w->sockets[1] = -1;
      continue;
    }
    w->num_batches = (int)(1 + dst_roll(MOST_BATCHES));
    w->leaves_slot = dst_roll(3) == 0;
    w->is_added = model_ok(tdict_share_ring_add_worker(s->ring, w->sockets[0], (int32_t)getpid(), model_error()));
  }
  return true;
}

/* Checks that the trainer took all published batches, unless it left early. */
static void check_counts(const stage *s) {
  for (int i = 0; i < NUM_WORKERS; i++) {
    const worker *w = &s->workers[i];
    if (!s->ends_early && w->num_taken != atomic_load(&w->num_published))
      dst_fail("worker %d has published %d batches, but %d were taken", i, atomic_load(&w->num_published),
               w->num_taken);
    if (!s->ends_early && !model_was_unlucky()) model_true(w->num_taken == w->num_batches);
  }
}

/* Shares a single tree through a pair of sockets. The trees at both ends must have the same bytes. */
static void share_tree(void) {
  const model_rows rows = rows_of(7), changed = rows_of(8);
  int sockets[2];
  scoped_tree td = model_tree(&rows), shared = NULL, received = NULL;
  if (td && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0) {
    if (model_ok(tdict_share_create(td, NULL, &shared, model_error())) &&
        model_ok(tdict_share_send(sockets[0], shared, model_error())) &&
        model_ok(tdict_share_receive(sockets[1], MILLISECOND, &received, model_error()))) {
      const model_look look = slot_look(received);
      model_check(received, &rows, &look);
      model_true(model_write(shared, &changed));
      model_check(received, &changed, &look);
    }
    close(sockets[0]);
    close(sockets[1]);
  }
}

void dst_workload(void) {
  stage s = {.ends_early = dst_roll(4) == 0};
  model_settings settings = td_with(model_settings, latency_ns = dst_roll(2) ? 0 : 20000);
  model_begin();
  const bool has_trainer = model_open(&s.trainer_world, &settings);
  const bool has_worker = has_trainer && model_open(&s.worker_world, &settings);
  if (has_worker && open_ring(&s)) {
    atomic_store(&s.num_active, NUM_WORKERS);
    model_run(NUM_WORKERS + 1, play, &s);
    check_counts(&s);
    for (int i = 0; i < NUM_WORKERS; i++) close(s.workers[i].sockets[0]), close(s.workers[i].sockets[1]);
  }
  tdict_share_ring_destroy(s.ring);
  if (has_worker) share_tree();
  if (has_worker) model_next_transfer_works(&s.worker_world);
  if (has_trainer) model_close(&s.trainer_world);
  if (has_worker) model_close(&s.worker_world);
  model_end();
}
