/* Tests destroying a context while transfers run.
 *
 * Threads start transfers and leave them in flight. One thread then destroys the context, which must wait for them. At
 * the same time, other threads wait for futures, read results, and release trees and futures, which stay valid. If the
 * error of a failed future is never read, the library logs it, but never after the context is destroyed. */
#include <stdatomic.h>

#include "context.h"
#include "dst/workloads/model.h"
#include "tdict/sim.h"

enum { NUM_STARTERS = 3, NUM_FUTURES = 3, ROWS = 3, WIDE = 6000, NARROW = 20 };

typedef struct pending {
  tdict_future *future;
  tdict_tree *source;
  int64_t generation;
  bool is_cancelled, is_to_host;
} pending;
typedef struct stage {
  tdict_driver *driver;
  tdict_context *contexts[2]; /* over the same driver; the second may be NULL */
  int64_t width;
  tdict_tree *common; /* all threads read this tree on the device */
  tdict_tree *target; /* all threads write this tree on the device */
  pending pending[NUM_STARTERS][NUM_FUTURES];
  _Atomic(int) num_logged;
  _Atomic(bool) is_gone;
} stage;

static model_rows rows_of(const stage *s, int64_t generation) { return model_rows_of(generation, 0, ROWS, s->width); }

static void log_message(void *user, int32_t level, const char *text) {
  stage *s = user;
  if (atomic_load(&s->is_gone)) dst_fail("a message was logged after the context was destroyed: %s", text);
  if (level == TDICT_LOG_ERROR) atomic_fetch_add(&s->num_logged, 1);
}

static bool open_context(stage *s, int number) {
  tdict_context_options o =
      td_with(tdict_context_options, device = tdict_sim(0), num_threads = (int32_t)(1 + dst_roll(3)),
              staging_bytes = 64 << 10, log = log_message, user = s);
  return model_ok(tdict_context_create_over(&o, s->driver, &s->contexts[number], model_error()));
}

static tdict_transfer_options roll_options(void) {
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = (int32_t)dst_roll(3) - 1);
  return o;
}

/* Starts transfers, and leaves them in flight. */
static void start(int number, void *data) {
  stage *s = data;
  for (int i = 0; i < NUM_FUTURES; i++) {
    pending *p = &s->pending[number][i];
    tdict_context *context = s->contexts[s->contexts[1] && dst_roll(2)];
    const tdict_transfer_options o = roll_options();
    const uint64_t kind = dst_roll(3);
    p->generation = number * 10 + i + 1;
    p->is_to_host = kind == 1;
    const model_rows rows = rows_of(s, kind == 1 ? 500 : p->generation);
    if (kind == 1) p->generation = 500;
    if (kind != 1 && !(p->source = model_tree(&rows))) continue;
    bool is_started;
    if (kind == 0)
      is_started = model_ok(tdict_to_device_async(context, p->source, tdict_sim(0), &o, &p->future, model_error()));
    else if (kind == 1)
      is_started = model_ok(tdict_to_device_async(context, s->common, tdict_cpu(), &o, &p->future, model_error()));
    else
      is_started = model_ok(tdict_transfer_into_async(context, s->target, p->source, &o, &p->future, model_error()));
    if (!is_started) p->future = NULL;
    if (kind == 2) p->generation = 0; /* another thread may overwrite this tree */
    p->is_cancelled = is_started && dst_roll(4) == 0;
    if (p->is_cancelled) tdict_future_cancel(p->future);
    if (dst_roll(2)) { /* the transfer retains the bytes */
      tdict_release(p->source);
      p->source = NULL;
    }
  }
}

/* Thread 0 destroys the contexts. At the same time, threads with odd numbers wait for their futures. */
static void end(int number, void *data) {
  stage *s = data;
  if (number == 0) {
    for (int i = 0; i < 2; i++) tdict_context_destroy(s->contexts[i]);
    atomic_store(&s->is_gone, true);
    for (int k = 0; k < NUM_STARTERS; k++)
      for (int i = 0; i < NUM_FUTURES; i++)
        if (k % 2 == 0 && s->pending[k][i].future) model_true(tdict_future_is_ready(s->pending[k][i].future));
    return;
  }
  if (number % 2 == 0) return; /* the futures of this thread are checked later */
  for (int i = 0; i < NUM_FUTURES; i++) {
    const pending *p = &s->pending[number][i];
    if (p->future) (void)!tdict_future_wait(p->future, NULL, NULL);
    if (p->source) (void)!tdict_const_data(p->source, "n.m.d");
  }
}

/* Checks a transfer after the context is destroyed. The future has its result, and trees on the host can be read. */
static void settle(stage *s, pending *p) {
  const model_rows rows = rows_of(s, p->generation);
  tdict_tree *result = NULL;
  if (p->future) {
    const bool is_done =
        model_may(p->is_cancelled ? 1u << TDICT_ECANCELLED : 0, tdict_future_wait(p->future, &result, model_error()));
    if (is_done && p->generation) {
      model_look look = p->is_to_host ? model_plain_look() : model_device_look(tdict_sim(0));
      look.has_device = true;
      if (p->is_to_host)
        model_check(result, &rows, &look);
      else
        model_check_shape(result, &rows, &look);
    }
    tdict_future_release(p->future);
  }
  td_release(result, p->source);
  *p = (pending){0};
}

static bool put_on_device(stage *s, int64_t generation, tdict_tree **out) {
  const model_rows rows = rows_of(s, generation);
  scoped_tree td = model_tree(&rows);
  const bool is_ok = td && model_ok(tdict_to_device(s->contexts[0], td, tdict_sim(0), NULL, out, model_error()));
  return is_ok;
}

void dst_workload(void) {
  stage s = {0};
  tdict_sim_options sim =
      td_with(tdict_sim_options, memory_bytes = (size_t)64 << 20, latency_ns = dst_roll(2) ? 0 : 30000);
  s.width = dst_roll(2) ? WIDE : NARROW;
  model_begin();
  if ((s.driver = model_open_driver(&sim))) {
    if (open_context(&s, 0)) {
      if (dst_roll(3) == 0 && !open_context(&s, 1)) s.contexts[1] = NULL;
      if (put_on_device(&s, 500, &s.common) && put_on_device(&s, 501, &s.target)) model_run(NUM_STARTERS, start, &s);
      const bool releases_early = dst_roll(2);
      if (releases_early) tdict_release(s.common);
      model_run(NUM_STARTERS, end, &s);
      for (int k = 0; k < NUM_STARTERS; k++)
        for (int i = 0; i < NUM_FUTURES; i++) settle(&s, &s.pending[k][i]);
      if (!releases_early) tdict_release(s.common);
      tdict_release(s.target);
      if (!model_was_unlucky()) model_true(atomic_load(&s.num_logged) == 0);
    }
    model_close_driver(s.driver, 1);
  }
  model_end();
}
