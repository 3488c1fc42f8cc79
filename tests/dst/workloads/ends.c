/* Tests how transfers end. Threads wait for one future and release it at the same time, or read the destination of a
 * cancelled transfer. Or a stream waits for a transfer, or a transfer waits for a stream.
 *
 * Each run chooses one of these scenes and repeats it. */
#include <pthread.h>
#include <unistd.h>

#include "dst/workloads/model.h"
#include "support/take.h"

enum { NUM_PLAYERS = 3, NUM_TURNS = 12, ROWS = 3, WIDE_ROWS = 4096 };
static const uint32_t cancelled = 1u << TDICT_ECANCELLED, lost = 1u << TDICT_EINVAL;

typedef struct stage {
  model_world world;
  int64_t width;
  pthread_barrier_t barrier;
  tdict_tree *source, *target;
  model_rows rows;                    /* the rows of the source, or of the last write into the target */
  tdict_future *futures[NUM_PLAYERS]; /* one handle for each thread; NULL: an injected fault prevented the start */
  bool needs_copy, meets_again;       /* chosen in each turn; meets_again: all threads release at the same time */
} stage;

static model_rows rows_of(const stage *s, int64_t generation) { return model_rows_of(generation, 0, ROWS, s->width); }
static void meet(stage *s) { (void)pthread_barrier_wait(&s->barrier); }

/* ---- threads wait for one future and release it ---- */

static void start_shared(stage *s) {
  static const int32_t threads[] = {0, 0, 1, 2, -1};
  tdict_future *f = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = threads[dst_roll(5)]);
  s->meets_again = dst_roll(2);
  s->needs_copy = dst_roll(2);
  o.mode = dst_roll(4) ? TDICT_MODE_AUTO : TDICT_MODE_NON_BLOCKING;
  const tdict_device device = s->needs_copy ? tdict_sim(0) : tdict_cpu();
  if (!model_ok(tdict_to_device_async(s->world.context, s->source, device, &o, &f, model_error()))) return;
  s->futures[0] = f;
  for (int i = 1; i < NUM_PLAYERS; i++) s->futures[i] = tdict_future_retain(f);
}
/* Waits for the future in one of several ways or not at all. Then releases it, sometimes at the same time as other
 * threads. */
static void end_shared(stage *s, tdict_future *f) {
  const uint64_t way = dst_roll(8);
  model_look look = model_device_look(tdict_sim(0));
  scoped_tree there = NULL;
  bool is_done = false;
  if (way == 0) (void)!tdict_future_wait_source(f, NULL);
  if (way == 1) (void)!tdict_future_wait_for(f, (int64_t)dst_roll(30000), NULL, NULL);
  if (way > 1) is_done = model_ok(tdict_future_wait(f, &there, model_error()));
  const bool needs_copy = s->needs_copy;
  if (s->meets_again) meet(s);
  tdict_future_release(f);
  if (is_done && !needs_copy) model_true(there == s->source);
  look.is_locked = tdict_is_locked(s->source);
  if (is_done && needs_copy && dst_roll(8) == 0) model_check_device(&s->world, there, &s->rows, &look);
}
static void share(int number, void *data) {
  stage *s = data;
  for (int i = 0; i < NUM_TURNS; i++) {
    if (number == 0) start_shared(s);
    meet(s);
    if (s->futures[number]) end_shared(s, s->futures[number]);
    s->futures[number] = NULL;
    meet(s);
  }
}

/* ---- threads read the destination of a cancelled transfer ---- */

/* Writes the target, then starts a second write, which one of the threads will cancel. */
static void start_lost(stage *s) {
  static int64_t generation = 200;
  const model_rows first = rows_of(s, ++generation), second = rows_of(s, ++generation);
  scoped_tree before = model_tree(&first), after = model_tree(&second);
  tdict_future *f = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 1);
  s->rows = second;
  if (before && after && model_ok(tdict_transfer_into(s->world.context, s->target, before, NULL, model_error())) &&
      model_ok(tdict_transfer_into_async(s->world.context, s->target, after, &o, &f, model_error()))) {
    s->futures[0] = f;
    for (int i = 1; i < NUM_PLAYERS; i++) s->futures[i] = tdict_future_retain(f);
  }
}
/* Reads the target. The read may succeed only if the second write was completed. */
static void read_lost(stage *s, tdict_device device) {
  const bool to_host = device.type == TDICT_DEVICE_CPU;
  model_look look = model_device_look(device);
  tdict_tree *got = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = (int32_t)dst_roll(3) - 1);
  if (!model_may(lost, tdict_to_device_async(s->world.context, s->target, device, &o, &f, model_error()))) return;
  if (model_may(lost, tdict_future_wait(f, &got, model_error()))) {
    if (to_host)
      model_check(got, &s->rows, &look);
    else
      model_check_device(&s->world, got, &s->rows, &look);
  }
  td_release(f, got);
}
static void lose(int number, void *data) {
  stage *s = data;
  const bool is_on_device = tdict_get_device(s->target, NULL);
  for (int i = 0; i < NUM_TURNS; i++) {
    if (number == 0) start_lost(s);
    meet(s);
    tdict_future *f = s->futures[number];
    for (uint64_t n = dst_roll(12); f && n > 0; n--) (void)tdict_future_is_ready(f);
    if (f && number == 0) tdict_future_cancel(f);
    if (f && number > 0) read_lost(s, is_on_device ? tdict_cpu() : tdict_sim(0));
    if (f && number == 0) (void)model_may(cancelled, tdict_future_wait(f, NULL, model_error()));
    tdict_future_release(f);
    s->futures[number] = NULL;
    meet(s);
  }
}

/* ---- work on a stream that waits for a transfer ---- */

/* Queues a kernel that must wait for a transfer. A gate on the second device delays the copies. */
static void look_early(stage *s) {
  model_gate gate;
  model_reader reader;
  tdict_stream stream;
  tdict_tree *there = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  model_look look = model_device_look(tdict_sim(0));
  look.is_locked = tdict_is_locked(s->source);
  o.num_threads = (int32_t)(1 + dst_roll(3));
  if (!model_ok(tdict_stream_create(s->world.context, tdict_sim(0), &stream, model_error()))) return;
  model_calm(true);
  const bool is_shut = model_shut_gate(&s->world, tdict_sim(1), &gate);
  if (is_shut) o.after = gate.stream;
  bool is_done = is_shut &&
                 model_ok(tdict_to_device_async(s->world.context, s->source, tdict_sim(0), &o, &f, model_error())) &&
                 model_ok(tdict_future_wait_on_stream(f, stream, &there, model_error())) &&
                 model_read_on(&reader, there, stream, &s->rows);
  if (is_done) usleep((unsigned)(1 + dst_roll(60)));
  if (is_shut) model_open_gate(&s->world, &gate);
  model_calm(false);
  model_synchronize(&s->world, stream);
  is_done = is_done && model_ok(tdict_future_wait(f, NULL, model_error()));
  if (is_done) model_check_device(&s->world, there, &s->rows, &look);
  tdict_future_release(f);
  tdict_release(there);
  tdict_stream_destroy(s->world.context, stream);
}

/* ---- a transfer that waits for work on a stream ---- */

/* Makes a transfer wait for a kernel that waits for a gate. The kernel writes the source of the transfer, or reads its
 * destination. Without the wait, the lane would copy old bytes, or overwrite bytes that the kernel has not read yet. */
static void copy_late(stage *s) {
  static int64_t generation = 500;
  const bool writes = dst_roll(2);
  const model_rows next = rows_of(s, ++generation);
  model_gate gate;
  model_writer writer;
  model_reader reader;
  tdict_tree *td = model_tree(&next), *there = NULL, *got = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = (int32_t)(1 + dst_roll(3)));
  if (td && model_ok(tdict_to_device(s->world.context, s->source, tdict_sim(0), NULL, &there, model_error()))) {
    model_calm(true);
    const bool is_shut = model_shut_gate(&s->world, tdict_sim(0), &gate);
    if (is_shut) o.after = gate.stream;
    if (is_shut && writes && model_write_on(&writer, there, gate.stream, &next))
      (void)model_ok(tdict_to_device_async(s->world.context, there, tdict_cpu(), &o, &f, model_error()));
    if (is_shut && !writes && model_read_on(&reader, there, gate.stream, &s->rows))
      (void)model_ok(tdict_transfer_into_async(s->world.context, there, td, &o, &f, model_error()));
    if (f) usleep((unsigned)(1 + dst_roll(60)));
    if (is_shut) model_open_gate(&s->world, &gate);
    model_calm(false);
  }
  if (f && model_ok(tdict_future_wait(f, &got, model_error()))) {
    model_look look = writes ? model_plain_look() : model_device_look(tdict_sim(0));
    look.has_device = true;
    look.is_locked = tdict_is_locked(s->source);
    if (writes)
      model_check(got, &next, &look);
    else
      model_check_device(&s->world, got, &next, &look);
  }
  tdict_future_release(f);
  tdict_release(got);
  tdict_release(there);
  tdict_release(td);
}

/* ---- the run ---- */

typedef enum scene { SHARE, SHARE_TOO, LOSE, STREAMS, NUM_SCENES } scene;

/* Makes a source in ordinary or pinned memory, and sometimes locks it. Returns false after an injected fault. */
static bool make_source(stage *s) {
  const bool is_pinned = dst_roll(2), is_locked = dst_roll(2);
  s->rows = rows_of(s, 1);
  s->source = is_pinned ? model_block(&s->rows, tdict_pinned_memory(s->world.context)) : model_tree(&s->rows);
  if (s->source && is_locked) tdict_lock(s->source);
  return s->source != NULL;
}
/* Makes a target on the host or on the device. Returns false after an injected fault. */
static bool make_target(stage *s) {
  const model_rows rows = rows_of(s, 2);
  tdict_tree *td = model_tree(&rows);
  if (!td || dst_roll(2) == 0) {
    s->target = td;
    return td != NULL;
  }
  const bool is_ok = model_ok(tdict_to_device(s->world.context, td, tdict_sim(0), NULL, &s->target, model_error()));
  tdict_release(td);
  return is_ok;
}

void dst_workload(void) {
  stage s = {.width = dst_roll(2) ? 10 : 300};
  model_settings settings = model_settings_default();
  const scene chosen = (scene)dst_roll(NUM_SCENES);
  settings.num_devices = chosen == STREAMS ? 2 : 1;
  if (chosen == STREAMS && dst_roll(2)) s.width = WIDE_ROWS; /* several chunks, so that several lanes copy */
  settings.num_threads = 3;
  settings.latency_ns = dst_roll(2) ? 0 : 20000;
  pthread_barrier_init(&s.barrier, NULL, NUM_PLAYERS);
  model_begin();
  if (model_open(&s.world, &settings)) {
    if (chosen <= SHARE_TOO && make_source(&s)) model_run(NUM_PLAYERS, share, &s);
    if (chosen == LOSE && make_target(&s)) model_run(NUM_PLAYERS, lose, &s);
    if (chosen == STREAMS && make_source(&s))
      for (int i = 0; i < NUM_TURNS; i++) (dst_roll(2) ? look_early : copy_late)(&s);
    tdict_release(s.source);
    tdict_release(s.target);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
  pthread_barrier_destroy(&s.barrier);
}
