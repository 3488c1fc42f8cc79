/* Handing batches over in order. Thread rule: one consumer at a time; the loader's lock guards what workers see too. */
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "loader/loader_state.h"

/* The stream's work so far uses the batch that the consumer had; then the loader lets go of it. */
tdict_status tdict_loader_finish_previous(tdict_loader *l, tdict_error *err) {
  if (!l->previous) return TDICT_OK;
  tdict_status status = tdict_record_stream(l->previous, l->previous_stream, err);
  if (status != TDICT_OK) return status;
  tdict_release(l->previous);
  l->previous = NULL;
  return TDICT_OK;
}

static tdict_status too_late(const tdict_loader *l, const tdict_load *slot, tdict_error *err) {
  if (slot->state != TDICT_LOAD_BUSY)
    return tdict_fail(err, TDICT_ETIMEDOUT, "loader: no worker has begun batch %lld of epoch %lld within %.3f s",
                      (long long)l->next_taken.batch, (long long)l->next_taken.epoch,
                      (double)l->options.timeout_ns * 1e-9);
  return tdict_fail(
      err, TDICT_ETIMEDOUT,
      "loader: worker %d has been fetching batch %lld of epoch %lld, samples at positions %lld to %lld, for "
      "%.3f s",
      (int)slot->worker, (long long)slot->place.batch, (long long)slot->place.epoch,
      (long long)(slot->place.batch * l->options.batch_size),
      (long long)(slot->place.batch * l->options.batch_size + slot->asked - 1),
      (double)(tdict_now_ns() - slot->began_ns) * 1e-9);
}

/* Until the next batch is whole; the lock is held. */
static tdict_status await(tdict_loader *l, tdict_load *slot, tdict_error *err) {
  if (l->num_threads == 0) {
    if (slot->state == TDICT_LOAD_FREE) tdict_loader_fill_next(l, 0, tdict_now_ns());
    return TDICT_OK;
  }
  int64_t deadline = l->options.timeout_ns ? tdict_deadline_ns(l->options.timeout_ns) : INT64_MAX;
  while (slot->state != TDICT_LOAD_READY) {
    if (deadline == INT64_MAX) {
      pthread_cond_wait(&l->ready, &l->lock);
      continue;
    }
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    if (pthread_cond_timedwait(&l->ready, &l->lock, &until) != 0 && slot->state != TDICT_LOAD_READY &&
        tdict_now_ns() >= deadline)
      return too_late(l, slot, err);
  }
  return TDICT_OK;
}

/* Takes the slot's contents and frees it; the lock is held. */
static void take(tdict_loader *l, tdict_load *slot, tdict_load *out) {
  *out = *slot;
  slot->tree = NULL;
  slot->future = NULL;
  slot->state = TDICT_LOAD_FREE;
  l->taken++;
  l->num_ready--;
  l->bytes_ahead -= out->bytes;
  bool partial_end = out->ended && out->count > 0; /* a stream's last samples: the end itself comes next */
  if (l->num_batches < 0 && out->ended && !partial_end)
    tdict_loader_move(l, (tdict_place_in_epoch){out->place.epoch + 1, 0});
  else
    l->next_taken = tdict_loader_after(l, out->place);
  if (partial_end) {
    slot = &l->slots[l->taken % l->depth];
    if (slot->state == TDICT_LOAD_FREE) {
      slot->state = TDICT_LOAD_READY;
      slot->place = l->next_taken;
      slot->ticket = l->begun++;
      slot->count = 0;
      slot->ended = true;
      slot->bytes = 0;
      slot->status = TDICT_OK;
      l->next_begun = tdict_loader_after(l, l->next_begun);
      l->fetched++;
      l->num_ready++;
    }
  }
  tdict_loader_show_ready(l);
  pthread_cond_signal(&l->room);
}

static tdict_status fail_with(tdict_loader *l, const tdict_error *error, tdict_error *err) {
  if (err) *err = *error;
  pthread_mutex_lock(&l->lock);
  l->stats.num_errors++;
  if (!l->options.continue_on_error) l->failure = *error;
  pthread_mutex_unlock(&l->lock);
  return (tdict_status)error->status;
}

/* The batch on its way out: waits for it, or lets the stream wait. */
static tdict_status arrive(tdict_loader *l, tdict_load *slot, const tdict_stream *stream, tdict_tree **out,
                           tdict_error *err) {
  tdict_error error;
  memset(&error, 0, sizeof error);
  tdict_status status = slot->status;
  if (status != TDICT_OK) {
    error = slot->error;
  } else if (!slot->future) {
    *out = slot->tree;
    return TDICT_OK;
  } else {
    status = stream ? tdict_future_wait_on_stream(slot->future, *stream, out, &error)
                    : tdict_future_wait(slot->future, out, &error);
  }
  tdict_future_release(slot->future);
  return status == TDICT_OK ? TDICT_OK : fail_with(l, &error, err);
}

static tdict_status next_slot(tdict_loader *l, tdict_load *out, tdict_error *err) {
  int64_t began = tdict_now_ns();
  pthread_mutex_lock(&l->lock);
  tdict_status status = TDICT_OK;
  if (l->failure.status != 0) {
    if (err) *err = l->failure;
    status = (tdict_status)l->failure.status;
  } else {
    tdict_load *slot = &l->slots[l->taken % l->depth];
    l->ready_sum += l->num_ready;
    l->num_calls++;
    status = await(l, slot, err);
    if (status == TDICT_OK) take(l, slot, out);
  }
  l->stats.wait_seconds += (double)(tdict_now_ns() - began) * 1e-9;
  pthread_mutex_unlock(&l->lock);
  return status;
}

tdict_status tdict_loader_next(tdict_loader *l, const tdict_stream *stream, tdict_tree **out, tdict_error *err) {
  if (!l || !out) return tdict_fail(err, TDICT_EINVAL, "loader: %s is NULL", l ? "out" : "the loader");
  tdict_status status = tdict_forkmark_check(l->mark, "loader", err);
  if (status == TDICT_OK) status = tdict_loader_finish_previous(l, err);
  tdict_load slot = {.status = TDICT_OK};
  if (status == TDICT_OK) status = next_slot(l, &slot, err);
  if (status != TDICT_OK) return status;
  tdict_tree *tree = NULL;
  if (slot.ended && slot.count == 0) {
    *out = NULL;
    return TDICT_OK;
  }
  status = arrive(l, &slot, stream, &tree, err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&l->lock);
  l->stats.num_batches++;
  l->stats.num_samples += slot.count;
  l->stats.total_bytes += slot.bytes;
  pthread_mutex_unlock(&l->lock);
  if (stream) {
    l->previous = tdict_retain(tree);
    l->previous_stream = *stream;
  }
  *out = tree;
  return TDICT_OK;
}
