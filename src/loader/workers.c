/* The loader's threads and the tickets that they take. A ticket is the number of a batch since the loader was last set to
 * a place; ticket t lives in slot t modulo the depth. Thread rule: the loader's lock guards tickets and slot states. */
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "loader/loader_state.h"

tdict_place_in_epoch tdict_loader_after(const tdict_loader *l, tdict_place_in_epoch place) {
  if (l->num_batches >= 0 && place.batch >= l->num_batches) return (tdict_place_in_epoch){place.epoch + 1, 0};
  return (tdict_place_in_epoch){place.epoch, place.batch + 1};
}

static bool may_begin(const tdict_loader *l) {
  if (l->held || l->epoch_ended || l->failure.status != 0) return false;
  int64_t ahead = l->begun - l->taken;
  if (ahead >= l->depth) return false;
  size_t expected;
  if (l->options.prefetch_bytes == 0 || ahead == 0) return true;
  if (!tdict_mul_size((size_t)l->num_busy, l->bytes_of_one, &expected)) return false;
  return tdict_add_size(expected, l->bytes_ahead, &expected) && expected < l->options.prefetch_bytes;
}

/* How many samples the batch at a place has; 0: it is the epoch's end. */
static int64_t samples_at(const tdict_loader *l, tdict_place_in_epoch place) {
  if (l->num_batches < 0) return l->options.batch_size;
  if (place.batch >= l->num_batches) return 0;
  int64_t left = tdict_sampler_length(l->sampler) - place.batch * l->options.batch_size;
  return left < l->options.batch_size ? left : l->options.batch_size;
}

static tdict_load *begin(tdict_loader *l, int32_t worker) {
  tdict_load *slot = &l->slots[l->begun % l->depth];
  slot->state = TDICT_LOAD_BUSY;
  slot->place = l->next_begun;
  slot->ticket = l->begun++;
  slot->asked = slot->count = samples_at(l, slot->place);
  slot->ended = slot->count == 0;
  slot->status = TDICT_OK;
  slot->bytes = 0;
  slot->waited_ns = 0;
  slot->began_ns = tdict_now_ns();
  slot->worker = worker;
  l->next_begun = tdict_loader_after(l, l->next_begun);
  l->num_busy++;
  if (may_begin(l)) pthread_cond_signal(&l->room); /* whoever made the room woke one worker only */
  return slot;
}

void tdict_loader_show_ready(const tdict_loader *l) {
  tdict_trace_note(l->tracer, l->pool, TDICT_RANGE_READY, tdict_now_ns(), (size_t)l->num_ready);
}

static void end(tdict_loader *l, tdict_load *slot) {
  l->stats.fetch_seconds += (double)(tdict_now_ns() - slot->began_ns - slot->waited_ns) * 1e-9;
  l->stats.idle_seconds += (double)slot->waited_ns * 1e-9;
  slot->state = TDICT_LOAD_READY;
  l->num_busy--;
  l->num_ready++;
  l->bytes_ahead += slot->bytes;
  if (slot->bytes) l->bytes_of_one = slot->bytes;
  if (slot->ended && l->num_batches < 0) l->epoch_ended = true;
  tdict_loader_show_ready(l);
  pthread_cond_broadcast(&l->ready);
}

/* in_order: waits for this ticket's turn, which goes on when the batch has been fetched. */
static void await_turn(tdict_loader *l, const tdict_load *slot) {
  while (l->dataset.in_order && l->fetched != slot->ticket) pthread_cond_wait(&l->turn, &l->lock);
}

static void pass_turn(tdict_loader *l) {
  l->fetched++;
  if (l->dataset.in_order) pthread_cond_broadcast(&l->turn);
}

void tdict_loader_fill_next(tdict_loader *l, int32_t worker, int64_t since_ns) {
  tdict_load *slot = begin(l, worker);
  l->stats.idle_seconds += (double)(slot->began_ns - since_ns) * 1e-9;
  await_turn(l, slot);
  if (l->epoch_ended && l->num_batches < 0) { /* the stream ended in a batch before this one */
    slot->ended = true;
    slot->count = 0;
  }
  if (slot->count > 0) {
    slot->began_ns = tdict_now_ns();
    pthread_mutex_unlock(&l->lock);
    tdict_load_fill(l, slot);
    tdict_trace_note(l->tracer, l->pool, TDICT_RANGE_FETCH, slot->began_ns, slot->bytes);
    pthread_mutex_lock(&l->lock);
  }
  pass_turn(l);
  end(l, slot);
}

static void *work(void *user) {
  tdict_loader_worker *me = user;
  tdict_loader *l = me->loader;
  pthread_mutex_lock(&l->lock);
  while (!l->stopping) {
    int64_t since = tdict_now_ns();
    while (!l->stopping && !may_begin(l)) pthread_cond_wait(&l->room, &l->lock);
    if (!l->stopping) tdict_loader_fill_next(l, me->number, since);
  }
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

tdict_status tdict_loader_start(tdict_loader *l, tdict_error *err) {
  int code = 0;
  for (int32_t i = 0; i < l->options.num_workers && code == 0; i++) {
    l->workers[i] = (tdict_loader_worker){.loader = l, .number = i};
    code = tdict_thread_create(&l->workers[i].thread, work, &l->workers[i]);
    if (code == 0) l->num_threads++;
  }
  if (code == 0) return TDICT_OK;
  int started = l->num_threads;
  tdict_loader_stop(l);
  return tdict_fail_native(err, TDICT_ENOMEM, code, "loader: worker %d of %d could not be started: %s", started,
                           (int)l->options.num_workers, strerror(code));
}

void tdict_loader_stop(tdict_loader *l) {
  pthread_mutex_lock(&l->lock);
  l->stopping = true;
  pthread_cond_broadcast(&l->room);
  pthread_mutex_unlock(&l->lock);
  for (int32_t i = 0; i < l->num_threads; i++) pthread_join(l->workers[i].thread, NULL);
  l->num_threads = 0;
}

void tdict_loader_move(tdict_loader *l, tdict_place_in_epoch to) {
  l->held = true;
  while (l->num_busy > 0) pthread_cond_wait(&l->ready, &l->lock);
  for (int32_t i = 0; i < l->depth; i++) tdict_load_empty(&l->slots[i]);
  l->begun = l->taken = l->fetched = 0;
  l->bytes_ahead = 0;
  l->num_ready = 0;
  l->epoch_ended = false;
  l->next_begun = l->next_taken = to;
  memset(&l->failure, 0, sizeof l->failure);
  l->held = false;
  pthread_cond_broadcast(&l->room);
}
