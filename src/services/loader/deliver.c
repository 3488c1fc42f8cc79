/* Delivers batches to the consumer in order. A batch belongs to the consumer after tdict_loader_next() has returned it.
 * Thread rule: one thread at a time. The loader's lock guards the fields that workers also use. */
#include <stdint.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/memory/pinned_pool.h"
#include "device/stream.h"
#include "services/loader/loader_internal.h"

tdict_status tdict_loader_finish_previous(tdict_loader *l, tdict_error *err) {
  if (!l->previous) return TDICT_OK;
  tdict_status status = tdict_record_stream(l->previous, l->previous_stream, err);
  if (status != TDICT_OK) return status;
  tdict_release(l->previous);
  l->previous = NULL;
  return TDICT_OK;
}

/* Returns TDICT_ETIMEDOUT. If a worker has begun the batch, the message names this worker and the samples of the
 * batch. */
static tdict_status fail_timed_out(const tdict_loader *l, const tdict_loader_slot *slot, tdict_error *err) {
  if (slot->state != TDICT_SLOT_BUSY && l->is_planning)
    return tdict_fail(err, TDICT_ETIMEDOUT, "loader: the plan of epoch %lld was not ready within %.3f s",
                      (long long)l->next_to_begin.epoch, (double)l->options.timeout_ns * 1e-9);
  if (slot->state != TDICT_SLOT_BUSY)
    return tdict_fail(err, TDICT_ETIMEDOUT, "loader: no worker has begun batch %lld of epoch %lld within %.3f s",
                      (long long)l->next_to_take.batch, (long long)l->next_to_take.epoch,
                      (double)l->options.timeout_ns * 1e-9);
  if (slot->num_requested == 0) /* The end of an epoch has no samples to name. */
    return tdict_fail(err, TDICT_ETIMEDOUT, "loader: worker %d has waited at the end of epoch %lld for %.3f s",
                      (int)slot->worker, (long long)slot->position.epoch,
                      (double)(tdict_now_ns() - slot->began_ns) * 1e-9);
  int64_t first = slot->first;
  return tdict_fail(
      err, TDICT_ETIMEDOUT,
      "loader: worker %d has been fetching batch %lld of epoch %lld, samples at positions %lld to %lld, for "
      "%.3f s",
      (int)slot->worker, (long long)slot->position.batch, (long long)slot->position.epoch, (long long)first,
      (long long)(first + slot->num_requested - 1), (double)(tdict_now_ns() - slot->began_ns) * 1e-9);
}

/* Waits until the slot is READY. Returns TDICT_ETIMEDOUT after the deadline. If the loader has no workers, fills the
 * slot on this thread and ignores the deadline. The caller holds the lock. */
static tdict_status wait_for_batch(tdict_loader *l, tdict_loader_slot *slot, int64_t deadline, tdict_error *err) {
  if (l->num_threads == 0) {
    while (slot->state == TDICT_SLOT_FREE)
      if (tdict_loader_plan_next(l)) tdict_loader_fill_next(l, 0, tdict_now_ns());
    return TDICT_OK;
  }
  while (slot->state != TDICT_SLOT_READY) {
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    int code = tdict_cond_wait_cancellable(&l->batch_done, &l->lock, deadline == INT64_MAX ? NULL : &until);
    if (code != 0 && deadline != INT64_MAX && slot->state != TDICT_SLOT_READY && tdict_now_ns() >= deadline)
      return fail_timed_out(l, slot, err);
  }
  return TDICT_OK;
}

/* Waits until the transfer of a READY slot has ended, and returns TDICT_ETIMEDOUT after the deadline. The slot is not
 * freed, so the call can be repeated. If there is no transfer or no deadline, returns at once. deliver_tree() reports a
 * failed transfer later. The caller holds the lock. The function releases the lock while waiting. No worker accesses a
 * READY slot, so the slot does not change. */
static tdict_status wait_for_device(tdict_loader *l, const tdict_loader_slot *slot, int64_t deadline,
                                    tdict_error *err) {
  if (!slot->future || deadline == INT64_MAX) return TDICT_OK;
  pthread_mutex_unlock(&l->lock);
  int64_t left = deadline - tdict_now_ns();
  tdict_status status = tdict_future_wait_for(slot->future, left > 0 ? left : 0, NULL, NULL);
  pthread_mutex_lock(&l->lock);
  if (status != TDICT_ETIMEDOUT) return TDICT_OK;
  return tdict_fail(
      err, TDICT_ETIMEDOUT, "loader: batch %lld of epoch %lld has not arrived on the device within %.3f s",
      (long long)slot->position.batch, (long long)slot->position.epoch, (double)l->options.timeout_ns * 1e-9);
}

/* Moves the contents of a READY slot to `out` and frees the slot. The caller holds the lock.
 * A stream may end in the middle of a batch. That batch is delivered first. The next slot then delivers the end of the
 * epoch. If no worker has begun the next slot, this function prepares that slot. */
static void take_slot(tdict_loader *l, tdict_loader_slot *slot, tdict_loader_slot *out) {
  /* Move the contents out. */
  *out = *slot;
  slot->tree = NULL;
  slot->future = NULL;
  slot->state = TDICT_SLOT_FREE;
  l->num_taken++;
  l->num_ready--;
  l->prefetched_bytes -= out->bytes;

  /* Advance to the next position. After a stream has ended, restart the workers in the next epoch. If an epoch could
   * not be planned, stay at its beginning. With CONTINUE, let the workers plan it again. */
  bool has_last_samples = out->ends_epoch && out->count > 0;
  if (tdict_loader_has_plans(l) && !out->has_no_plan) {
    l->epoch.num_batches = out->epoch_batches;
    l->epoch.plan_hash = out->plan_hash;
  }
  if (tdict_loader_is_stream(l) && out->ends_epoch && !has_last_samples)
    tdict_loader_seek(l, (tdict_batch_position){out->position.epoch + 1, 0});
  else if (!out->has_no_plan)
    l->next_to_take = tdict_loader_next_position(out->epoch_batches, out->position);
  else if (l->options.on_error == TDICT_ON_ERROR_CONTINUE)
    tdict_loader_seek(l, out->position);

  /* Add the end of the epoch. */
  if (has_last_samples) {
    slot = &l->slots[l->num_taken % l->depth];
    if (slot->state == TDICT_SLOT_FREE) {
      slot->state = TDICT_SLOT_READY;
      slot->position = l->next_to_take;
      slot->ticket = l->num_begun++;
      slot->count = 0;
      slot->ends_epoch = true;
      slot->bytes = 0;
      slot->status = TDICT_OK;
      slot->epoch_batches = out->epoch_batches;
      l->next_to_begin = tdict_loader_next_position(out->epoch_batches, l->next_to_begin);
      l->num_fetched++;
      l->num_ready++;
    }
  }
  tdict_loader_trace_ready(l);
  pthread_cond_signal(&l->can_begin);
}

/* Counts an error and copies the error to `err`. Unless on_error is CONTINUE, every later call of tdict_loader_next()
 * returns the error, until tdict_loader_seek(). */
static tdict_status record_failure(tdict_loader *l, const tdict_error *error, tdict_error *err) {
  if (err) *err = *error;
  pthread_mutex_lock(&l->lock);
  l->stats.num_errors++;
  if (l->options.on_error != TDICT_ON_ERROR_CONTINUE) l->failure = *error;
  pthread_mutex_unlock(&l->lock);
  return (tdict_status)error->status;
}

/* Returns the tree of a taken slot. If the batch has a transfer, makes `stream` wait for the transfer. If there is no
 * stream, this thread waits. */
static tdict_status deliver_tree(tdict_loader *l, tdict_loader_slot *slot, tdict_stream stream, tdict_tree **out,
                                 tdict_error *err) {
  TDICT_UNCANCELLED; /* the batch would be lost */
  tdict_error error;
  memset(&error, 0, sizeof error);
  tdict_status status = slot->status;
  if (status != TDICT_OK) {
    error = slot->error;
  } else if (!slot->future) {
    *out = slot->tree;
    return TDICT_OK;
  } else {
    status = tdict_has_stream(stream) ? tdict_future_wait_on_stream(slot->future, stream, out, &error)
                                      : tdict_future_wait(slot->future, out, &error);
  }
  tdict_future_release(slot->future);
  return status == TDICT_OK ? TDICT_OK : record_failure(l, &error, err);
}

static int64_t get_deadline(const tdict_loader *l) {
  return l->options.timeout_ns ? tdict_deadline_ns(l->options.timeout_ns) : INT64_MAX;
}

/* Waits for the next batch and takes the batch. First begins the next epoch if the length of the dataset varies and the
 * previous epoch has ended. If `waits_on_host` is true and a time limit is set, also waits until the batch has arrived
 * on the device. */
static tdict_status take_next_slot(tdict_loader *l, bool waits_on_host, tdict_loader_slot *out, tdict_error *err) {
  tdict_status status = tdict_loader_begin_epoch(l, err);
  if (status != TDICT_OK) return status;
  int64_t deadline = get_deadline(l);
  pthread_mutex_lock(&l->lock);
  tdict_loader_end_abandoned(l);
  if (l->failure.status != 0) {
    if (err) *err = l->failure;
    status = (tdict_status)l->failure.status;
  } else {
    tdict_loader_slot *slot = &l->slots[l->num_taken % l->depth];
    l->ready_sum += l->num_ready;
    l->num_calls++;
    status = wait_for_batch(l, slot, deadline, err);
    /* The time in which this thread fetched does not count as waiting. */
    if (l->num_threads == 0) deadline = get_deadline(l);
    if (status == TDICT_OK && waits_on_host) status = wait_for_device(l, slot, deadline, err);
    if (status == TDICT_OK) take_slot(l, slot, out);
  }
  pthread_mutex_unlock(&l->lock);
  return status;
}

/* Returns TDICT_EWRONGDEVICE if the batches do not arrive on the stream's device, and the errors of
 * tdict_stream_open(). Call before a batch is taken, so that no batch is lost. Pinned batches on the cpu accept the
 * streams of the GPU that pins them. */
static tdict_status check_consumer_stream(const tdict_loader *l, tdict_stream s, tdict_error *err) {
  tdict_gpu *gpu;
  tdict_status status = tdict_stream_open(tdict_context_devices(l->context), s, "loader", &gpu, err);
  if (status != TDICT_OK) return status;
  const tdict_gpu *pinned_by = l->memory ? tdict_pinned_pool_pinner_self(l->memory) : NULL;
  if (l->device.type == TDICT_DEVICE_CPU ? gpu == pinned_by : tdict_device_equal(l->device, s.device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "loader: the stream belongs to %s, but batches arrive on %s%s",
                    TDICT_DEVICE_TEXT(s.device), TDICT_DEVICE_TEXT(l->device),
                    l->device.type == TDICT_DEVICE_CPU ? ", which has no streams" : "");
}

/* Adds one call of tdict_loader_next() to the statistics. */
static void count_call(tdict_loader *l, int64_t began_ns, const tdict_loader_slot *slot, bool handed_over) {
  pthread_mutex_lock(&l->lock);
  l->stats.wait_seconds += (double)(tdict_now_ns() - began_ns) * 1e-9;
  if (handed_over) {
    l->stats.num_batches++;
    l->stats.num_samples += slot->count;
    l->stats.total_bytes += slot->bytes;
    l->stats.num_objects_pinned += slot->num_objects_pinned;
    l->stats.num_objects_unpinned += slot->num_objects_unpinned;
    l->stats.num_objects_kept += slot->num_objects_kept;
  }
  pthread_mutex_unlock(&l->lock);
}

/* Returns TDICT_EINVAL if the epoch had no batch. Without this check, the caller would loop for ever if `endless` is
 * set. */
static tdict_status check_epoch_had_batch(const tdict_loader *l, const tdict_loader_slot *end, tdict_error *err) {
  if (l->epoch.num_batches > 0 || end->position.batch > 0) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "loader: endless is set, but the %s returned no batch in epoch %lld",
                    tdict_loader_is_stream(l) ? "stream" : "dataset", (long long)end->position.epoch);
}

/* Returns true if `on_error` leaves out the batch of a taken slot, which is then counted and logged. */
static bool must_skip(tdict_loader *l, const tdict_loader_slot *slot, int *num_skipped) {
  if (!slot->is_skippable || l->options.on_error != TDICT_ON_ERROR_SKIP_BATCH) return false;
  if (++*num_skipped > TDICT_LOADER_MOST_SKIPS) return false;
  tdict_loader_skip_batch(l, &slot->error);
  return true;
}

tdict_status tdict_loader_next(tdict_loader *l, tdict_stream stream, tdict_tree **out, tdict_error *err) {
  if (!l || !out) return tdict_fail_null(err, "loader", l ? "out" : "the loader");
  l->info = tdict_batch_info_default();
  const bool has_stream = tdict_has_stream(stream);

  /* Check the call, and release the previous batch. */
  tdict_status status = tdict_forkmark_check(l->mark, "loader", err);
  if (status == TDICT_OK) status = tdict_stream_check_device(stream, "loader", err);
  if (status == TDICT_OK && has_stream) status = check_consumer_stream(l, stream, err);
  if (status == TDICT_OK) status = tdict_loader_finish_previous(l, err);
  if (status != TDICT_OK) return status;

  /* Take the next batch. If `endless` is set, skip the ends of epochs, and by `on_error`, batches that failed. */
  int64_t began = tdict_now_ns();
  tdict_loader_slot slot = {.status = TDICT_OK};
  tdict_tree *tree = NULL;
  bool ended = false, skips = false;
  int num_skipped = 0;
  do {
    status = take_next_slot(l, !has_stream, &slot, err);
    ended = status == TDICT_OK && slot.ends_epoch && slot.count == 0;
    skips = status == TDICT_OK && !ended && must_skip(l, &slot, &num_skipped);
    if (ended && l->options.endless) status = check_epoch_had_batch(l, &slot, err);
  } while (((ended && l->options.endless) || skips) && status == TDICT_OK);
  if (status == TDICT_OK && !ended) status = deliver_tree(l, &slot, stream, &tree, err);
  count_call(l, began, &slot, tree != NULL);
  if (status != TDICT_OK) return status;

  /* Keep the batch until the next call. That call records the work that the program has queued on the stream until
   * then. */
  if (has_stream && tree) {
    l->previous = tdict_retain(tree);
    l->previous_stream = stream;
  }
  if (tree)
    l->info = (tdict_batch_info){.struct_size = sizeof l->info,
                                 .epoch = slot.position.epoch,
                                 .batch = slot.position.batch,
                                 .num_samples = slot.count,
                                 .num_tokens = slot.num_tokens,
                                 .max_seqlen = slot.max_seqlen};
  *out = tree; /* NULL at the end of an epoch */
  return TDICT_OK;
}

tdict_status tdict_loader_get_batch_info(const tdict_loader *l, tdict_batch_info *out, tdict_error *err) {
  if (!l || !out) return tdict_fail_null(err, "batch info", l ? "out" : "the loader");
  return tdict_options_write(out, &l->info, sizeof l->info, "batch info", err);
}
