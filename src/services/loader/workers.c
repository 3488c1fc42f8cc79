/* Runs the loader's worker threads, and determines the order in which workers begin batches. Each batch has a ticket:
 * the number of batches begun before this batch since the last tdict_loader_seek(). The batch with ticket t uses slot t
 * % depth. Ownership: a worker owns a slot from the start of the batch until the worker marks the slot READY. Thread
 * rule: the loader's lock guards tickets and slot states. The lock is released while a function of the dataset runs. */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "services/loader/loader_internal.h"

tdict_batch_position tdict_loader_next_position(int64_t num_batches, tdict_batch_position position) {
  if (num_batches >= 0 && position.batch >= num_batches) return (tdict_batch_position){position.epoch + 1, 0};
  return (tdict_batch_position){position.epoch, position.batch + 1};
}

/* Returns true if the loader may begin a batch now, a slot is free, and the prefetched batches are below
 * prefetch_bytes. The size of a BUSY batch is unknown, so the size of the last complete batch serves as an estimate.
 * The size of the new batch does not count, so a batch can begin whenever no batch is prefetched. */
static bool may_begin_batch(const tdict_loader *l) {
  if (l->is_paused || l->is_planning || l->epoch_ended || l->awaits_epoch || l->failure.status != 0) return false;
  int64_t ahead = l->num_begun - l->num_taken;
  if (ahead >= l->depth) return false;
  size_t expected;
  if (l->options.prefetch_bytes == 0 || ahead == 0) return true;
  if (!tdict_mul_size((size_t)l->num_busy, l->last_batch_bytes, &expected)) return false;
  return tdict_add_size(expected, l->prefetched_bytes, &expected) && expected < l->options.prefetch_bytes;
}

/* Makes the plan without the lock, because the dataset's functions must not run under a lock. If planning fails, the
 * batch that begins next fails with the same error. */
bool tdict_loader_plan_next(tdict_loader *l) {
  int64_t epoch = l->next_to_begin.epoch;
  if (!tdict_loader_has_plans(l) || l->plan.epoch == epoch) return true;
  tdict_epoch_plan plan;
  l->is_planning = true;
  pthread_mutex_unlock(&l->lock);
  (void)!tdict_epoch_plan_make(&plan, l, l->epoch.sampler, epoch);
  pthread_mutex_lock(&l->lock);
  l->is_planning = false;
  tdict_epoch_plan_reset(&l->plan);
  l->plan = plan;
  pthread_cond_broadcast(&l->can_begin);
  pthread_cond_broadcast(&l->batch_done);
  return false;
}

/* Returns the samples of the batch at a position. The count is 0 at the end of an epoch. The number of the first sample
 * cannot overflow, because tdict_loader_set_state() limits the batches of saved states. */
static tdict_batch_range get_range(const tdict_loader *l, tdict_batch_position position) {
  if (tdict_loader_has_plans(l)) return tdict_epoch_plan_at(&l->plan, position.batch);
  int64_t first = position.batch * l->options.batch_size;
  if (l->epoch.num_batches < 0) return (tdict_batch_range){first, l->options.batch_size};
  if (position.batch >= l->epoch.num_batches) return (tdict_batch_range){0, 0};
  int64_t num_left = tdict_sampler_length(l->epoch.sampler) - first;
  return (tdict_batch_range){first, num_left < l->options.batch_size ? num_left : l->options.batch_size};
}

/* Sets the samples of the batch. If planning the epoch has failed, sets the error of the batch instead. Copies the
 * indices of a plan, because the next plan replaces them. */
static void set_samples(const tdict_loader *l, tdict_loader_slot *slot) {
  const bool has_plan = tdict_loader_has_plans(l);
  tdict_batch_range range = get_range(l, slot->position);
  slot->first = range.first;
  slot->num_requested = slot->count = range.count;
  slot->epoch_batches = has_plan ? l->plan.num_batches : l->epoch.num_batches;
  slot->ends_epoch = slot->epoch_batches >= 0 && slot->position.batch >= slot->epoch_batches;
  slot->status = TDICT_OK;
  slot->plan_hash = l->plan.hash;
  if (l->plan.indices && range.count > 0)
    memcpy(slot->indices, l->plan.indices + range.first, (size_t)range.count * sizeof *slot->indices);
  slot->has_no_plan = has_plan && !slot->ends_epoch && l->plan.failure.status != 0;
  if (!slot->has_no_plan) return;
  slot->status = (tdict_status)l->plan.failure.status;
  slot->error = l->plan.failure;
}

/* Marks the next slot BUSY and gives the slot the next ticket and position. */
static tdict_loader_slot *begin_batch(tdict_loader *l, int32_t worker) {
  tdict_loader_slot *slot = &l->slots[l->num_begun % l->depth];
  slot->state = TDICT_SLOT_BUSY;
  slot->position = l->next_to_begin;
  slot->ticket = l->num_begun++;
  set_samples(l, slot);
  slot->bytes = 0;
  slot->num_tokens = slot->max_seqlen = 0;
  slot->waited_ns = 0;
  slot->is_skippable = false;
  slot->began_ns = tdict_now_ns();
  slot->worker = worker;
  l->next_to_begin = tdict_loader_next_position(slot->epoch_batches, l->next_to_begin);
  if (slot->ends_epoch && l->table->length_varies) l->awaits_epoch = true;
  if (slot->has_no_plan) l->epoch_ended = true;
  l->num_busy++;
  /* Taking a batch woke only one worker, so wake another worker here. */
  if (may_begin_batch(l)) pthread_cond_signal(&l->can_begin);
  return slot;
}

void tdict_loader_trace_ready(const tdict_loader *l) {
  tdict_trace_note(l->tracer, TDICT_RANGE_READY, tdict_now_ns(), (size_t)l->num_ready);
}

/* Marks a slot READY and wakes the consumer. Wakes all waiters, because tdict_loader_seek() waits for the same
 * condition variable. */
static void finish_batch(tdict_loader *l, tdict_loader_slot *slot) {
  l->stats.fetch_seconds += (double)(tdict_now_ns() - slot->began_ns - slot->waited_ns) * 1e-9;
  l->stats.idle_seconds += (double)slot->waited_ns * 1e-9;
  slot->state = TDICT_SLOT_READY;
  l->num_busy--;
  l->num_ready++;
  l->prefetched_bytes += slot->bytes;
  if (slot->bytes) l->last_batch_bytes = slot->bytes;
  if (slot->ends_epoch && tdict_loader_is_stream(l)) l->epoch_ended = true;
  tdict_loader_trace_ready(l);
  pthread_cond_broadcast(&l->batch_done);
}

/* If the dataset is in_order, waits until all earlier batches have been fetched. */
static void wait_to_fetch(tdict_loader *l, const tdict_loader_slot *slot) {
  while (l->table->in_order && l->num_fetched != slot->ticket) tdict_cond_wait(&l->can_fetch, &l->lock);
}

/* Lets the worker of the next ticket fetch. */
static void allow_next_fetch(tdict_loader *l) {
  l->num_fetched++;
  if (l->table->in_order) pthread_cond_broadcast(&l->can_fetch);
}

void tdict_loader_fill_next(tdict_loader *l, int32_t worker, int64_t since_ns) {
  tdict_loader_slot *slot = begin_batch(l, worker);
  wait_to_fetch(l, slot);
  slot->began_ns = tdict_now_ns(); /* the worker was idle until now, and fetches from now on */
  l->stats.idle_seconds += (double)(slot->began_ns - since_ns) * 1e-9;
  if (l->epoch_ended &&
      tdict_loader_is_stream(l)) { /* the stream ended in an earlier batch, so do not read the stream again */
    slot->ends_epoch = true;
    slot->count = 0;
  }
  if (slot->count > 0) {
    pthread_mutex_unlock(&l->lock);
    tdict_loader_fill_slot(l, slot);
    tdict_trace_note(l->tracer, TDICT_RANGE_FETCH, slot->began_ns, slot->bytes);
    pthread_mutex_lock(&l->lock);
  }
  allow_next_fetch(l);
  finish_batch(l, slot);
}

void tdict_loader_end_abandoned(tdict_loader *l) {
  if (l->is_paused) {
    l->is_paused = false;
    pthread_cond_broadcast(&l->can_begin);
  }
  if (l->options.num_workers > 0) return;
  l->is_planning = false;
  for (int32_t i = 0; i < l->depth; i++) {
    tdict_loader_slot *slot = &l->slots[i];
    if (slot->state != TDICT_SLOT_BUSY) continue;
    tdict_loader_release_samples(slot);
    tdict_release(slot->tree);
    slot->tree = NULL;
    slot->status = tdict_fail(&slot->error, TDICT_EHOOK,
                              "loader: batch %lld: a function of the program did not return: an exception or a jump "
                              "left it",
                              (long long)slot->position.batch);
    allow_next_fetch(l);
    finish_batch(l, slot);
  }
}

/* Runs a worker thread, which fills one batch after another until the loader stops. */
static void *run_worker(void *user) {
  tdict_loader_worker *worker = user;
  tdict_loader *l = worker->loader;
  tdict_thread_set_name("load-%d", (int)worker->number);
  pthread_mutex_lock(&l->lock);
  while (!l->is_stopping) {
    int64_t since = tdict_now_ns();
    while (!l->is_stopping && !may_begin_batch(l)) tdict_cond_wait(&l->can_begin, &l->lock);
    if (!l->is_stopping && tdict_loader_plan_next(l)) tdict_loader_fill_next(l, worker->number, since);
  }
  pthread_mutex_unlock(&l->lock);
  tdict_loader_close_worker(l, worker);
  return NULL;
}

tdict_status tdict_loader_start_workers(tdict_loader *l, tdict_error *err) {
  int code = 0;
  for (int32_t i = 0; i < l->options.num_workers && code == 0; i++) {
    l->workers[i] = (tdict_loader_worker){.loader = l, .number = i};
    code = tdict_thread_create(&l->workers[i].thread, run_worker, &l->workers[i]);
    if (code == 0) l->num_threads++;
  }
  if (code == 0) return TDICT_OK;
  int started = l->num_threads;
  tdict_loader_stop_workers(l);
  return tdict_fail_native(err, TDICT_ENOMEM, code, "loader: cannot start worker %d of %d: %s", started,
                           (int)l->options.num_workers, strerror(code));
}

void tdict_loader_stop_workers(tdict_loader *l) {
  pthread_mutex_lock(&l->lock);
  tdict_loader_end_abandoned(l);
  l->is_stopping = true;
  pthread_cond_broadcast(&l->can_begin);
  pthread_mutex_unlock(&l->lock);
  for (int32_t i = 0; i < l->num_threads; i++) tdict_thread_join(l->workers[i].thread);
  l->num_threads = 0;
  tdict_loader_close_worker(l, &l->workers[0]); /* is open only if the loader has no threads */
}

void tdict_loader_seek(tdict_loader *l, tdict_batch_position to) {
  /* Stop new batches, and wait for running batches. */
  tdict_loader_end_abandoned(l);
  l->is_paused = true;
  while (l->num_busy > 0 || l->is_planning) tdict_cond_wait(&l->batch_done, &l->lock);

  /* Drop the prefetched batches, and restart the tickets at 0. */
  for (int32_t i = 0; i < l->depth; i++) tdict_loader_empty_slot(&l->slots[i]);
  l->num_begun = l->num_taken = l->num_fetched = 0;
  l->prefetched_bytes = 0;
  l->num_ready = 0;
  l->epoch_ended = false;
  l->next_to_begin = l->next_to_take = to;
  memset(&l->failure, 0, sizeof l->failure);
  if (l->plan.failure.status != 0) l->plan.epoch = -1; /* a plan that failed may succeed now */
  l->is_paused = false;
  pthread_cond_broadcast(&l->can_begin);
}
