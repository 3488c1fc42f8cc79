/* Tests transfers that conflict, are cancelled or make streams wait, or whose trees and futures are released early.
 *
 * Three threads start transfers. For each destination that several threads write, the workload records the last
 * generation. Transfers of this destination are started under its lock. The library runs conflicting transfers in the
 * order in which they started, so a new transfer must read the recorded generation. */
#include <pthread.h>
#include <stdatomic.h>

#include "dst/workloads/model.h"
#include "support/take.h"
#include "tdict/memory.h"

enum {
  NUM_PLAYERS = 3,
  NUM_ACTIONS = 5,
  NUM_KINDS = 11,
  NUM_SOURCES = 2,
  NUM_CONTESTED = 2,
  ROWS = 4,
  WIDE_ROWS = 4096
};
static const uint32_t cancelled = 1u << TDICT_ECANCELLED, lost = 1u << TDICT_EINVAL;

/* A tree that several threads write. */
typedef struct contested {
  pthread_mutex_t lock; /* guards: the order in which transfers start, generation, is_certain */
  tdict_tree *tree;
  int64_t generation; /* generation of the last write */
  bool is_certain;    /* the last write was not cancelled */
} contested;

typedef struct stage {
  model_world world;
  int64_t width;
  int kinds[NUM_KINDS]; /* the actions of this run */
  size_t num_kinds;
  tdict_tree *sources[NUM_SOURCES];
  bool are_locked;                    /* the sources are locked, so that the library keeps their plans */
  contested contested[NUM_CONTESTED]; /* 0: on the device, 1: on the host */
  model_look host_look;               /* expected properties of contested[1], which may be pinned */
  _Atomic(int64_t) next_generation;
  pthread_mutex_t gate_lock; /* held while a gate is shut; taken before the lock of a contested tree */
} stage;

static model_rows rows_of(const stage *s, int64_t generation) { return model_rows_of(generation, 0, ROWS, s->width); }

/* Returns the expected properties of a source's copy on the device. */
static model_look sent_look(const stage *s) {
  model_look look = model_device_look(tdict_sim(0));
  look.is_locked = s->are_locked;
  return look;
}

static tdict_transfer_options roll_options(void) {
  static const int32_t threads[] = {0, 1, 2, -1};
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = threads[dst_roll(4)],
              check_sources = dst_roll(8) == 0, narrow = dst_roll(4) == 0);
  if (dst_roll(6) == 0) o.max_queued_bytes = 131072;
  if (dst_roll(6) == 0) o.max_bytes_per_second = 1000000 << dst_roll(12);
  return o;
}

/* Waits for a transfer in one of several ways. If it succeeded, sets *out to its tree and returns true. */
static bool finish(tdict_future *f, uint32_t allowed, tdict_tree **out) {
  const uint64_t way = dst_roll(4);
  if (way == 0)
    while (tdict_future_wait_for(f, 50000, NULL, NULL) == TDICT_ETIMEDOUT) continue;
  if (way == 1) (void)!tdict_future_wait_source(f, NULL);
  const bool is_done = model_may(allowed, tdict_future_wait(f, out, model_error()));
  const tdict_future_phase phase = tdict_future_state(f);
  model_true(tdict_future_is_ready(f));
  model_true(phase == (is_done                              ? TDICT_FUTURE_DONE
                       : model_status() == TDICT_ECANCELLED ? TDICT_FUTURE_CANCELLED
                                                            : TDICT_FUTURE_FAILED));
  tdict_future_release(f);
  return is_done;
}

/* Checks the statistics of a transfer. `bytes` is the size of all elements, or of the storage of a locked block. */
static void check_stats(const tdict_future *f, size_t bytes) {
  tdict_transfer_stats s = tdict_transfer_stats_default();
  model_true(tdict_future_get_stats(f, &s, NULL) == TDICT_OK);
  model_true(s.num_leaves == MODEL_NUM_LEAVES && s.total_bytes == bytes);
  model_true(s.direct_bytes + s.staged_bytes + s.pageable_bytes + s.host_bytes == s.total_bytes);
}

/* Moves a tree to the device and back. Releases the tree on the device while the second transfer reads it. */
static void go_there_and_back(stage *s) {
  const int64_t generation = (int64_t)dst_roll(NUM_SOURCES);
  const model_rows rows = rows_of(s, generation);
  const model_look on_device = sent_look(s);
  tdict_transfer_options o = roll_options();
  tdict_tree *there = NULL, *back = NULL;
  tdict_future *f = NULL;
  if (!model_ok(tdict_to_device(s->world.context, s->sources[generation], tdict_sim(0), &o, &there, model_error())))
    return;
  model_check_shape(there, &rows, &on_device);
  o = roll_options();
  o.narrow = 0;
  o.pinned_result = dst_roll(2);
  if (!o.pinned_result && dst_roll(3) == 0) o.memory = tdict_pinned_memory(s->world.context);
  model_look look = model_plain_look();
  look.has_device = true;
  look.is_locked = s->are_locked;
  look.is_contiguous = true;
  look.is_pinned = o.pinned_result || o.memory ? 1 : 0;
  const bool has_started = model_ok(tdict_to_device_async(s->world.context, there, tdict_cpu(), &o, &f, model_error()));
  tdict_release(there);
  if (!has_started) return;
  tdict_future *kept = tdict_future_retain(f);
  if (finish(f, 0, &back)) {
    check_stats(kept, s->are_locked ? model_block_bytes(&rows) : model_bytes(&rows));
    model_check(back, &rows, &look);
  }
  td_release(kept, back);
}

/* Moves a new tree, and releases the tree and the future early. */
static void let_go(stage *s) {
  const model_rows rows = rows_of(s, atomic_fetch_add(&s->next_generation, 1));
  const model_look look = model_device_look(tdict_sim(0));
  const tdict_transfer_options o = roll_options();
  tdict_tree *td = model_tree(&rows), *there = NULL;
  tdict_future *f = NULL;
  if (!td) return;
  const bool has_started = model_ok(tdict_to_device_async(s->world.context, td, tdict_sim(0), &o, &f, model_error()));
  tdict_release(td);
  if (!has_started) return;
  if (dst_roll(2)) {
    tdict_future_release(f);
  } else if (finish(f, 0, &there)) {
    model_check_device(&s->world, there, &rows, &look);
    tdict_release(there);
  }
}

/* Shuts a gate, and fills in options for a transfer that waits for it. With these options, the call returns before the
 * transfer ends, and one thread copies. Only one gate may be shut at a time. Returns false after an injected fault. */
static bool shut_gate(stage *s, model_gate *g, tdict_transfer_options *o) {
  *o = roll_options();
  o->num_threads = 1;
  o->mode = TDICT_MODE_NON_BLOCKING;
  if (!model_shut_gate(&s->world, tdict_sim(0), g)) return false;
  o->after = g->stream;
  return true;
}

/* Cancels a transfer that waits for a gate. The transfer cannot have ended yet, so it must end as cancelled. */
static void cancel_behind_a_gate(stage *s) {
  model_gate g;
  tdict_transfer_options o;
  scoped_tree there = NULL;
  tdict_future *f = NULL;
  pthread_mutex_lock(&s->gate_lock);
  model_calm(true);
  const bool is_shut = shut_gate(s, &g, &o);
  const bool has_started =
      is_shut && model_ok(tdict_to_device_async(s->world.context, s->sources[0], tdict_sim(0), &o, &f, model_error()));
  if (has_started) {
    (void)!tdict_future_wait_for(f, (int64_t)dst_roll(60000), NULL, NULL);
    tdict_future_cancel(f);
  }
  if (is_shut) model_open_gate(&s->world, &g);
  model_calm(false);
  pthread_mutex_unlock(&s->gate_lock);
  if (has_started) model_true(!finish(f, cancelled, &there));
}

static void cancel(stage *s) {
  const int64_t generation = (int64_t)dst_roll(NUM_SOURCES);
  const model_rows rows = rows_of(s, generation);
  const model_look look = sent_look(s);
  const tdict_transfer_options o = roll_options();
  tdict_tree *there = NULL;
  tdict_future *f = NULL;
  if (!model_ok(tdict_to_device_async(s->world.context, s->sources[generation], tdict_sim(0), &o, &f, model_error())))
    return;
  if (dst_roll(2)) (void)!tdict_future_wait_for(f, (int64_t)dst_roll(40000), NULL, NULL);
  tdict_future_cancel(f);
  if (finish(f, cancelled, &there)) model_check_device(&s->world, there, &rows, &look);
  tdict_release(there);
}

/* Writes a new generation into a contested tree. The write may be cancelled. */
static void write_contested(stage *s, contested *c) {
  const model_rows rows = rows_of(s, atomic_fetch_add(&s->next_generation, 1));
  const bool will_cancel = dst_roll(4) == 0;
  tdict_transfer_options o = roll_options();
  tdict_tree *td = model_tree(&rows), *result = NULL;
  tdict_future *f = NULL;
  if (!td) return;
  pthread_mutex_lock(&c->lock);
  const bool has_started = model_ok(tdict_transfer_into_async(s->world.context, c->tree, td, &o, &f, model_error()));
  if (has_started) {
    c->generation = rows.stamps[0] / 1024;
    c->is_certain = !will_cancel;
  }
  pthread_mutex_unlock(&c->lock);
  tdict_release(td);
  if (!has_started) return;
  if (will_cancel) tdict_future_cancel(f);
  if (dst_roll(3) == 0) {
    tdict_future_release(f);
  } else if (finish(f, will_cancel ? cancelled : 0, &result)) {
    model_true(result == c->tree);
    tdict_release(result);
  }
}

/* Reads a contested tree into a new tree. */
static void read_contested(stage *s, contested *c, int which) {
  tdict_transfer_options o = roll_options();
  tdict_tree *got = NULL;
  tdict_future *f = NULL;
  o.check_sources = false;
  pthread_mutex_lock(&c->lock);
  const model_rows rows = rows_of(s, c->generation);
  const bool is_certain = c->is_certain;
  const uint32_t allowed = !is_certain || model_was_unlucky() ? lost : 0;
  const tdict_device device = which == 0 ? tdict_cpu() : tdict_sim(0);
  const bool has_started =
      model_may(allowed, tdict_to_device_async(s->world.context, c->tree, device, &o, &f, model_error()));
  pthread_mutex_unlock(&c->lock);
  if (!has_started || !finish(f, !is_certain || model_was_unlucky() ? lost : 0, &got)) return;
  if (which == 0) {
    model_look look = model_plain_look();
    look.has_device = true;
    model_check(got, &rows, &look);
  } else {
    const model_look look = model_device_look(tdict_sim(0));
    model_check_device(&s->world, got, &rows, &look);
  }
  tdict_release(got);
}

/* Starts a transfer to the device, and sometimes waits briefly for it. Returns NULL if it was not started. */
static tdict_future *read_for_a_while(stage *s, tdict_tree *td, const tdict_transfer_options *o, uint32_t allowed) {
  tdict_future *f = NULL;
  if (!model_may(allowed, tdict_to_device_async(s->world.context, td, tdict_sim(0), o, &f, model_error()))) return NULL;
  if (dst_roll(4)) (void)!tdict_future_wait_for(f, (int64_t)dst_roll(60000), NULL, NULL);
  return f;
}
static void check_read(stage *s, tdict_future *f, const model_rows *rows, uint32_t allowed) {
  const model_look look = model_device_look(tdict_sim(0));
  scoped_tree got = NULL;
  if (f && finish(f, model_was_unlucky() ? lost : allowed, &got)) model_check_device(&s->world, got, rows, &look);
}

/* Starts a read of the contested host tree that waits for a gate, then sometimes a second read, then a write. The write
 * must wait for the first read. */
static void write_behind_a_read(stage *s) {
  contested *c = &s->contested[1];
  const model_rows next = rows_of(s, atomic_fetch_add(&s->next_generation, 1));
  model_gate g;
  tdict_transfer_options o, plain = tdict_transfer_options_default();
  tdict_tree *td = model_tree(&next);
  tdict_future *reads = NULL, *other = NULL, *writes = NULL;
  plain.num_threads = 1;
  plain.mode = TDICT_MODE_NON_BLOCKING;
  pthread_mutex_lock(&s->gate_lock);
  model_calm(true);
  pthread_mutex_lock(&c->lock);
  const bool is_shut = td && shut_gate(s, &g, &o);
  const model_rows rows = rows_of(s, c->generation);
  const uint32_t allowed = !c->is_certain || model_was_unlucky() ? lost : 0;
  if (is_shut) {
    o.check_sources = false;
    reads = read_for_a_while(s, c->tree, &o, allowed);
  }
  if (reads && dst_roll(2)) other = read_for_a_while(s, c->tree, &plain, allowed);
  if (reads && model_ok(tdict_transfer_into_async(s->world.context, c->tree, td, &plain, &writes, model_error()))) {
    c->generation = next.stamps[0] / 1024;
    c->is_certain = true;
  }
  pthread_mutex_unlock(&c->lock);
  tdict_release(td);
  if (writes && dst_roll(2)) (void)!tdict_future_wait_for(writes, (int64_t)dst_roll(60000), NULL, NULL);
  if (is_shut) model_open_gate(&s->world, &g);
  model_calm(false);
  pthread_mutex_unlock(&s->gate_lock);
  check_read(s, reads, &rows, allowed);
  check_read(s, other, &rows, allowed);
  if (writes) (void)finish(writes, 0, NULL);
}

static void wait_on_stream(stage *s) {
  const int64_t generation = (int64_t)dst_roll(NUM_SOURCES);
  tdict_transfer_options o = roll_options();
  tdict_stream stream;
  tdict_tree *there = NULL;
  tdict_future *f = NULL;
  if (!model_ok(tdict_stream_create(s->world.context, tdict_sim(0), &stream, model_error()))) return;
  if (dst_roll(2)) o.after = stream;
  if (model_ok(tdict_to_device_async(s->world.context, s->sources[generation], tdict_sim(0), &o, &f, model_error()))) {
    if (model_ok(tdict_future_wait_on_stream(f, stream, &there, model_error()))) {
      const model_rows rows = rows_of(s, generation);
      model_reader r;
      const bool looks = model_read_on(&r, there, stream, &rows);
      const bool is_recorded = looks && model_ok(tdict_record_stream(there, stream, model_error()));
      if (is_recorded) tdict_release(there); /* the library retains the bytes for the recorded use */
      (void)!tdict_future_wait(f, NULL, NULL);
      model_synchronize(&s->world, stream);
      if (!is_recorded) tdict_release(there);
    }
    tdict_future_release(f);
  }
  tdict_stream_destroy(s->world.context, stream);
}

/* Pins a tree, then moves it with the option conversions for one leaf and the option keep for another. */
static void pin_and_convert(stage *s) {
  const int64_t generation = (int64_t)dst_roll(NUM_SOURCES);
  const model_rows rows = rows_of(s, generation);
  tdict_conversion wide = tdict_conversion_default();
  tdict_transfer_options o = roll_options();
  const char *const kept = "n.c";
  tdict_tree *pinned = NULL, *there = NULL, *back = NULL;
  tdict_tensor *t = NULL;
  if (!model_ok(tdict_pin_memory(s->world.context, s->sources[generation], NULL, &pinned, model_error()))) return;
  model_look look = model_plain_look();
  look.is_locked = s->are_locked;
  look.is_contiguous = true;
  look.is_pinned = 1;
  model_check(pinned, &rows, &look);
  model_true(tdict_is_pinned(pinned));
  wide.pattern = "n.m.d";
  wide.dtype = TDICT_F32;
  wide.scale = 2;
  wide.offset = 1;
  o.conversions = &wide;
  o.num_conversions = 1;
  o.narrow = 0;
  o.keep = &kept;
  o.num_keep = 1;
  if (model_ok(tdict_to_device(s->world.context, dst_roll(2) ? pinned : s->sources[generation], tdict_sim(0), &o,
                               &there, model_error())) &&
      model_ok(tdict_to_device(s->world.context, there, tdict_cpu(), NULL, &back, model_error()))) {
    const float *data = tdict_const_data(back, "n.m.d");
    model_true(tdict_get(there, "n.c", &t, NULL) == TDICT_OK &&
               tdict_device_equal(tdict_tensor_device(t), tdict_cpu()));
    for (int64_t i = 0; i < ROWS * s->width; i++)
      if (data[i] != 2 * (float)model_int_of(rows.stamps[i / s->width], i % s->width) + 1)
        dst_fail("the converted element %lld is %g", (long long)i, (double)data[i]);
  }
  td_release(back, there, pinned);
}

static void play(int number, void *data) {
  stage *s = data;
  (void)number;
  for (int i = 0; i < NUM_ACTIONS; i++) {
    const int which = (int)dst_roll(NUM_CONTESTED);
    switch (s->kinds[dst_roll(s->num_kinds)]) {
    case 0:
      go_there_and_back(s);
      break;
    case 1:
      let_go(s);
      break;
    case 2:
      cancel(s);
      break;
    case 3:
    case 4:
      write_contested(s, &s->contested[which]);
      break;
    case 5:
    case 6:
      read_contested(s, &s->contested[which], which);
      break;
    case 7:
      wait_on_stream(s);
      break;
    case 8:
      cancel_behind_a_gate(s);
      break;
    case 9:
      write_behind_a_read(s);
      break;
    default:
      pin_and_convert(s);
      break;
    }
    if (dst_roll(10) == 0) tdict_context_trim(s->world.context, dst_roll(2) ? tdict_cpu() : tdict_sim(0), 0);
  }
}

/* Checks at the end that the sources are unchanged and that contested trees have the recorded generation. */
static void check_all(stage *s) {
  const model_look on_device = model_device_look(tdict_sim(0));
  model_look look = model_plain_look();
  look.is_locked = s->are_locked;
  for (int i = 0; i < NUM_SOURCES; i++) {
    const model_rows rows = rows_of(s, i);
    model_check(s->sources[i], &rows, &look);
  }
  for (int i = 0; i < NUM_CONTESTED; i++) {
    contested *c = &s->contested[i];
    if (!c->is_certain || model_was_unlucky()) { /* a new write replaces lost bytes */
      scoped_tree td = NULL;
      const model_rows next = rows_of(s, c->generation = 900 + i);
      model_calm(true);
      td = model_tree(&next);
      model_true(tdict_transfer_into(s->world.context, c->tree, td, NULL, NULL) == TDICT_OK);
      model_calm(false);
    }
    const model_rows rows = rows_of(s, c->generation);
    if (i == 0)
      model_check_device(&s->world, c->tree, &rows, &on_device);
    else
      model_check(c->tree, &rows, &s->host_look);
  }
}

/* Replaces the largest leaf with a pinned tensor that has its own storage. The driver may still read this storage after
 * the copy is queued. Returns false after an injected fault. */
static bool pin_large_leaf(stage *s, tdict_tree *td) {
  const model_rows rows = rows_of(s, 50);
  tdict_tensor *t = NULL, *pinned = NULL;
  model_true(tdict_get(td, "n.m.d", &t, NULL) == TDICT_OK);
  const bool is_ok = model_ok(tdict_tensor_empty(tdict_tensor_dtype(t), tdict_tensor_ndim(t), tdict_tensor_shape(t),
                                                 tdict_pinned_memory(s->world.context), &pinned, model_error())) &&
                     model_ok(tdict_set(td, "n.m.d", pinned, model_error()));
  tdict_tensor_release(pinned);
  if (is_ok) model_true(model_write(td, &rows));
  return is_ok;
}

/* Chooses about half of the kinds of actions for a run. Such runs find errors that need only a few kinds more often
 * (Groce et al., Swarm Testing, 2012). */
static void choose_kinds(stage *s) {
  for (int kind = 0; kind < NUM_KINDS; kind++)
    if (dst_roll(2)) s->kinds[s->num_kinds++] = kind;
  if (s->num_kinds == 0) s->kinds[s->num_kinds++] = (int)dst_roll(NUM_KINDS);
}

static bool set_up(stage *s) {
  bool is_ok = true;
  choose_kinds(s);
  s->width = dst_roll(3) ? 40 : WIDE_ROWS; /* the wide trees are larger than the staging ring */
  s->are_locked = dst_roll(2);
  atomic_init(&s->next_generation, 100);
  pthread_mutex_init(&s->gate_lock, NULL);
  for (int i = 0; i < NUM_SOURCES; i++) {
    const model_rows rows = rows_of(s, i);
    s->sources[i] = model_tree(&rows);
    is_ok = is_ok && s->sources[i];
    if (s->are_locked) tdict_lock(s->sources[i]);
  }
  for (int i = 0; i < NUM_CONTESTED; i++) {
    const model_rows rows = rows_of(s, 50);
    pthread_mutex_init(&s->contested[i].lock, NULL);
    s->contested[i].generation = 50;
    s->contested[i].is_certain = true;
    s->contested[i].tree = model_tree(&rows);
    is_ok = is_ok && s->contested[i].tree;
  }
  if (!is_ok) return false;
  s->host_look = model_plain_look();
  if (dst_roll(2)) {
    s->host_look.is_pinned = -1;
    if (!pin_large_leaf(s, s->contested[1].tree)) return false;
  }
  tdict_tree *there = NULL;
  if (!model_ok(tdict_to_device(s->world.context, s->contested[0].tree, tdict_sim(0), NULL, &there, model_error())))
    return false;
  tdict_release(s->contested[0].tree);
  s->contested[0].tree = there;
  return true;
}

void dst_workload(void) {
  stage s = {0};
  model_settings settings =
      td_with(model_settings, num_threads = (int)(2 + dst_roll(2)), latency_ns = dst_roll(2) ? 0 : 20000);
  model_begin();
  if (model_open(&s.world, &settings)) {
    if (set_up(&s)) {
      model_run(NUM_PLAYERS, play, &s);
      check_all(&s);
    }
    for (int i = 0; i < NUM_SOURCES; i++) tdict_release(s.sources[i]);
    for (int i = 0; i < NUM_CONTESTED; i++) tdict_release(s.contested[i].tree);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
}
