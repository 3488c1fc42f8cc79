/* Tests bursts: when copies are queued together, by which thread, and what happens if the call fails. */

#include "device/use.h"
#include "engine/lane.h"
#include "engine/lanes.h"
#include "engine/options/burst.h"
#include "engine/options/stream_waits.h"
#include "engine/trees.h"
#include "engine/wrap.h"
#include "support/threads.h"

enum { CHUNKS = 12, LANES = 2, BYTES = CHUNKS * SLOT };

/* A transfer that the test creates itself. Each leaf is one chunk and fills one slot. There are two lanes. */
typedef struct hand {
  place w;
  tdict_transfer *t;
  tdict_lane lanes[LANES];
  tdict_tensor *device;      /* the line on the device */
  unsigned char line[BYTES]; /* the expected bytes */
  int next;                  /* the index of the next chunk to post */
} hand;

static void make_batch(tdict_transfer *t) {
  const tdict_engine *e = t->future.engine;
  td_ok(tdict_burst_create(&t->plan, 0, e->rings.num_slots, e->rings.slot_bytes, &t->burst, err));
}

static void open_hand(hand *h) {
  memset(h, 0, sizeof *h);
  h->w = open_wrapped(NULL);
  const int64_t dim = BYTES;
  size_t bytes[CHUNKS];
  for (int i = 0; i < CHUNKS; i++) bytes[i] = SLOT;
  td_ok(tdict_tensor_empty(TDICT_U8, 1, &dim, h->w.memory, &h->device, err));
  h->t = planned(&h->w, bytes, CHUNKS);
  td_ok(tdict_plan_cut(&h->t->plan, &(tdict_cut){.first_bytes = SLOT, .chunk_bytes = SLOT}, err));
  assert_int_equal(h->t->plan.num_chunks, CHUNKS);
  for (int i = 0; i < CHUNKS; i++) {
    h->t->plan.items[i].dst_data = (char *)h->device->data + h->t->plan.items[i].offset;
    h->t->plan.items[i].dst_plain = true;
  }
  h->t->how.max_slots = TDICT_LANE_DEPTH;
  make_batch(h->t);
  assert_non_null(h->t->burst);
  for (int i = 0; i < LANES; i++) {
    h->t->workers[i].transfer = h->t;
    h->lanes[i].worker = &h->t->workers[i];
    td_ok(tdict_lane_open(&h->lanes[i], gpu_of(&h->w), err));
  }
}

/* Fills a slot and submits it to the lane. Returns the number of copies that wait in the burst. */
static int post(hand *h, int lane) {
  tdict_lane *l = &h->lanes[lane];
  const tdict_chunk *chunk = &h->t->plan.chunks[h->next++];
  tdict_slot *slot = NULL;
  uint32_t error_item = chunk->first;
  td_ok(tdict_lane_take_slot(l, &slot, err));
  td_fill_random(slot->data, SLOT, next_seed());
  memcpy(h->line + chunk->begin, slot->data, SLOT);
  td_ok(tdict_lane_submit(l, slot, chunk, &error_item, err));
  return h->t->burst->count;
}

static void check_line(const hand *h) {
  scoped_bytes there = read_elements(&h->w, h->device);
  assert_memory_equal(there, h->line, (size_t)h->next * SLOT);
}

static void close_hand(hand *h) {
  for (int i = 0; i < LANES; i++)
    if (h->lanes[i].gpu) td_ok(tdict_lane_close(&h->lanes[i], false, err));
  drop(h->t);
  tdict_tensor_release(h->device);
  place_close(&h->w);
}
#define scoped_hand TD_SCOPED(close_hand, hand)

/* The first two copies are queued at once. Later copies of both lanes are queued when the burst has six copies, or
 * earlier if fewer than two bursts are in flight. */
SIM_CASE(burst_gathers_while_the_link_is_busy) {
  static const int waiting[] = {0, 0, 1, 2, 3, 4, 5, 0, 1};
  scoped_hand h;
  open_hand(&h);
  td_ok(tdict_sim_hold(h.w.c, err));
  for (int i = 0; i < 9; i++) assert_int_equal(post(&h, i % 2), waiting[i]);
  assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]), 3);
  assert_int_equal(num_copies(), 8);
  td_ok(tdict_sim_step(h.w.c, 2, err));
  assert_int_equal(post(&h, 0), 0); /* a burst of six is in flight */
  assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]), 4);
  assert_int_equal(num_copies(), 10);
  assert_int_equal(post(&h, 1), 1);
  td_ok(tdict_sim_resume(h.w.c, err));
  for (int i = 0; i < LANES; i++) td_ok(tdict_lane_wait_all(&h.lanes[i], err));
  assert_int_equal(num_copies(), 11);
  check_line(&h);
}

/* A transfer on one thread queues one copy per chunk. To the device, it makes fewer calls than copies if there are more
 * than three. When the latch `queued` opens, no copy is left in the burst. */
SIM_CASE(burst_is_empty_when_all_is_queued) {
  scoped_place w = open_wrapped(NULL);
  for (int chunks = 3; chunks <= 16; chunks += chunks == 3 ? 1 : 4)
    for (int out = 0; out < 2; out++) {
      scoped_tree src = bytes_tree("x", chunks * SLOT, NULL);
      scoped_tree from = out ? to_device(&w, src, w.device) : tdict_retain(src);
      tdict_transfer_options o = threads(1);
      td_ok(tdict_sim_hold(w.c, err));
      const int64_t calls = atomic_load(&wrap.calls[CALL_COPY]), copies = num_copies();
      tdict_future *f = move_async(&w, from, out ? tdict_cpu() : w.device, &o);
      tdict_latch_wait(&transfer_of(f)->queued, INT64_MAX);
      assert_int_equal(transfer_of(f)->burst != NULL, chunks > 3 && !out);
      assert_int_equal(num_copies() - copies, chunks);
      assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]) - calls, out ? chunks : 2 + (chunks - 2 + 5) / 6);
      td_ok(tdict_sim_resume(w.c, err));
      check_result(&w, src, f);
    }
}

/* If a lane waits for a slot of its own or polls it, the burst that contains the slot is queued. */
SIM_CASE(burst_is_queued_by_a_thread_that_waits) {
  for (int looks = 0; looks < 2; looks++) {
    scoped_hand h;
    open_hand(&h);
    td_ok(tdict_sim_hold(h.w.c, err));
    assert_int_equal(post(&h, 1), 0);
    assert_int_equal(post(&h, 1), 0);
    assert_int_equal(post(&h, 0), 1);
    td_ok(tdict_sim_resume(h.w.c, err));
    for (int i = 0; looks && h.lanes[0].count > 0 && i < 5000; i++) {
      td_ok(tdict_lane_return_finished(&h.lanes[0], err));
      usleep(1000);
    }
    if (!looks) td_ok(tdict_lane_wait_all(&h.lanes[0], err));
    assert_int_equal(h.lanes[0].count, 0);
    assert_int_equal(h.t->burst->count, 0);
    for (int i = 0; i < LANES; i++) td_ok(tdict_lane_wait_all(&h.lanes[i], err));
    check_line(&h);
  }
}

static void *resume_soon(void *user) {
  const hand *h = user;
  td_rest(); /* until tdict_lane_close() waits in the other thread */
  if (tdict_sim_resume(h->w.c, NULL) != TDICT_OK) abort();
  return NULL;
}

/* A call of tdict_lane_close(). returned_early: it returned before all copies were done. */
typedef struct closing {
  hand *h;
  _Atomic(bool) returned;
  bool returned_early;
} closing;

/* Finishes the copies on lane 0's stream first, and then all other copies. */
static void *finish_own_stream_first(void *user) {
  closing *c = user;
  tdict_gpu *gpu = gpu_of(&c->h->w);
  tdict_gpu_scope scope;
  td_rest(); /* until tdict_lane_close() waits in the other thread */
  if (tdict_gpu_enter(gpu, &scope, NULL) != TDICT_OK) abort();
  while (gpu->driver->ops->stream_query(gpu->driver, c->h->lanes[0].stream) == TDICT_CU_NOT_READY)
    if (tdict_sim_step(c->h->w.c, 1, NULL) != TDICT_OK) abort();
  tdict_gpu_leave(gpu, &scope);
  td_rest(); /* until tdict_lane_close() waits for the other stream */
  c->returned_early = atomic_load(&c->returned);
  if (tdict_sim_resume(c->h->w.c, NULL) != TDICT_OK) abort();
  return NULL;
}

static void compute_nothing(void *user) { (void)user; }

/* Before a lane queues copies of other lanes, its stream waits for all work on which the transfer depends. The stream
 * is reused only after these copies are done. */
SIM_CASE(burst_keeps_streams_until_copies_are_done) {
  scoped_hand h;
  open_hand(&h);
  tdict_fence *use;
  tdict_stream busy;
  td_ok(tdict_stream_create(h.w.c, tdict_sim(0), &busy, err));
  td_ok(tdict_sim_hold(h.w.c, err));
  td_ok(tdict_sim_launch(busy, compute_nothing, NULL, err));
  td_ok(tdict_use_create(gpu_of(&h.w), busy.handle, NULL, &use, err));
  assert_true(tdict_stream_waits_add(h.t, use));
  use->ops->release(use);
  td_ok(tdict_stream_waits_record(h.t, tdict_no_stream(), false, err));
  for (int i = 0; i < 3; i++) post(&h, 0);
  assert_int_equal(atomic_load(&wrap.calls[CALL_WAIT]), 2);
  td_ok(tdict_lane_flush(&h.lanes[1], err));
  assert_int_equal(atomic_load(&wrap.calls[CALL_WAIT]), 4); /* each of two lanes waits for two uses */
  assert_int_equal(num_copies(), 3);
  pthread_t thread = td_start(resume_soon, &h);
  td_ok(tdict_lane_close(&h.lanes[1], false, err));
  tdict_driver *d = gpu_of(&h.w)->driver;
  assert_int_equal(d->ops->event_query(d, h.lanes[0].flights[2].event), TDICT_CU_SUCCESS);
  pthread_join(thread, NULL);
  td_ok(tdict_lane_wait_all(&h.lanes[0], err));
  check_line(&h);
  tdict_stream_destroy(h.w.c, busy);
}

/* If a burst cannot be queued, the error of the transfer names the burst's first leaf. The lanes get their slots back
 * and copy nothing from them. */
SIM_CASE(burst_failure_fails_all_its_lanes) {
  for (int k = 0; k < 2; k++) {
    scoped_hand h;
    open_hand(&h);
    scoped_bytes host = td_alloc(SLOT);
    memset(host, POISON, SLOT);
    td_ok(tdict_sim_hold(h.w.c, err));
    post(&h, 1);
    post(&h, 1);
    assert_int_equal(post(&h, 0), 1);
    h.lanes[0].flights[0].out = true;
    h.t->plan.items[2].dst_data = (char *)host;
    h.t->plan.items[2].dst_plain = true;
    fail_call(k ? CALL_RECORD : CALL_COPY, 1);
    pthread_t thread = td_start(resume_soon, &h);
    td_fails(TDICT_EDEVICE, k ? "cuEventRecord" : "cuMemcpyHtoD", tdict_lane_flush(&h.lanes[1], err));
    tdict_driver *d = gpu_of(&h.w)->driver;
    assert_int_equal(d->ops->stream_query(d, h.lanes[1].stream),
                     TDICT_CU_SUCCESS); /* copies that were already queued are done */
    pthread_join(thread, NULL);
    assert_true(tdict_future_has_failed(&h.t->future));
    assert_int_equal(h.t->future.error_leaf, 2);
    assert_int_equal(h.t->burst->count, 0);
    td_ok(tdict_lane_wait_all(&h.lanes[0], err));
    for (int i = 0; i < SLOT; i++) assert_int_equal(host[i], POISON);
  }
}

/* A lane of a failed transfer drops copies that are not queued, and waits for its copies on other lanes' streams. */
SIM_CASE(burst_is_cleared_when_a_transfer_fails) {
  scoped_hand h;
  open_hand(&h);
  td_ok(tdict_sim_hold(h.w.c, err));
  for (int i = 0; i < 3; i++) post(&h, 0);
  td_ok(tdict_lane_flush(&h.lanes[1], err));
  assert_int_equal(post(&h, 1), 1);
  assert_int_equal(num_copies(), 3);
  const tdict_slot *waits = h.lanes[1].flights[0].slot, *goes = h.lanes[0].flights[2].slot;
  closing c = {.h = &h};
  pthread_t thread = td_start(finish_own_stream_first, &c);
  td_ok(tdict_lane_close(&h.lanes[0], true, err)); /* one of its copies is on the stream of the other lane */
  atomic_store(&c.returned, true);
  tdict_driver *d = gpu_of(&h.w)->driver;
  assert_int_equal(d->ops->event_query(d, goes->event), TDICT_CU_SUCCESS);
  assert_false(tdict_slot_is_in_burst(waits));
  pthread_join(thread, NULL);
  assert_false(c.returned_early);
  td_ok(tdict_lane_close(&h.lanes[1], true, err));
  assert_int_equal(num_copies(), 3);
  tdict_ring *ring = NULL;
  tdict_slot *slots[64];
  const int taken = take_all_but(&h.w, 0, &ring, slots);
  give_slots(ring, taken, slots);
}

/* A burst is created only for copies that use slots, but not for transfers of at most 80 MiB to the host. */
SIM_CASE(burst_is_made_where_it_helps) {
  scoped_hand h;
  open_hand(&h);
  for (int within_host = 0; within_host < 2; within_host++) {
    const size_t bytes = BYTES;
    tdict_transfer *t = planned(&h.w, &bytes, 1);
    if (within_host) t->plan.items[0].way = TDICT_WAY_HOST;
    td_ok(tdict_plan_cut(&t->plan, &(tdict_cut){.first_bytes = SLOT, .chunk_bytes = SLOT}, err));
    make_batch(t);
    assert_int_equal(t->burst != NULL, !within_host);
    drop(t);
  }
  for (int is_large = 0; is_large < 2; is_large++) {
    const size_t bytes = ((size_t)80 << 20) + (size_t)is_large;
    tdict_transfer *t = planned(&h.w, &bytes, 1);
    t->plan.items[0].way = TDICT_WAY_STAGE_OUT;
    t->plan.items[0].kind = TDICT_CU_D2H;
    td_ok(tdict_plan_cut(&t->plan, &(tdict_cut){.first_bytes = SLOT, .chunk_bytes = SLOT}, err));
    make_batch(t);
    assert_int_equal(t->burst != NULL, is_large);
    drop(t);
  }
  assert_true(tdict_burst_accepts(h.t->burst, h.lanes[0].gpu, TDICT_CU_H2D));
  assert_false(tdict_burst_accepts(h.t->burst, h.lanes[0].gpu, TDICT_CU_D2H));
  tdict_gpu *gpu = h.lanes[0].gpu;
  h.t->burst->gpu = NULL;
  assert_false(tdict_burst_accepts(h.t->burst, h.lanes[0].gpu, TDICT_CU_H2D));
  h.t->burst->gpu = gpu;
}
