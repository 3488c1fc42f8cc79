/* Counts the parts of promises. See parts.h for ownership and threads. */
#include "transfer/parts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/finish.h"
#include "tree/node.h"

/* Returns the tree that a part has for a position, or NULL. */
static tdict_tree *result_at(const tdict_future *part, size_t position) {
  if (part->result && part->position == position) return part->result;
  for (size_t i = 0; part->repeats && i < part->repeats->count; i++)
    if (part->repeats->list[i].position == position) return part->repeats->list[i].tree;
  return NULL;
}

/* Adds the result of a part to the tree of all results. */
static tdict_status add_result(tdict_future *part, size_t position, tdict_tree *parent, tdict_error *err) {
  char key[24];
  const tdict_name name = tdict_name_of(key, (size_t)snprintf(key, sizeof key, "%zu", position));
  tdict_tree *result = tdict_retain(result_at(part, position));
  pthread_mutex_lock(&part->error_lock);
  part->result_was_returned = true;
  pthread_mutex_unlock(&part->error_lock);
  if (tdict_node_add_name(parent, &name, tdict_leaf_of_tree(result))) return TDICT_OK;
  tdict_release(result);
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for the tree of all results");
}

/* Creates the tree that holds the results of the parts, if the promise has no result yet. The caller holds the lock,
 * and the results of all parts exist. */
static tdict_status gather_results(tdict_future *f, tdict_error *err) {
  tdict_parts *p = f->parts;
  tdict_tree *parent;
  if (f->result || !p->num_parts) return TDICT_OK;
  tdict_status status = tdict_create(0, NULL, &parent, err);
  if (status != TDICT_OK) return status;
  bool found = true;
  for (size_t position = 0; found && status == TDICT_OK; position++) {
    found = false;
    for (size_t i = 0; i < p->num_parts && !found; i++) {
      found = result_at(p->list[i], position) != NULL;
      if (found) status = add_result(p->list[i], position, parent, err);
    }
  }
  if (status == TDICT_OK)
    f->result = parent;
  else
    tdict_release(parent);
  return status;
}

/* Completes the result and the statistics. The owner has closed the promise, and all parts have ended. */
static void prepare_end(tdict_future *f) {
  tdict_error err;
  pthread_mutex_lock(&f->parts->lock);
  const bool fails = !tdict_transfer_has_failed(f) && gather_results(f, &err) != TDICT_OK;
  f->stats.total_seconds = 1e-9 * (double)(tdict_now_ns() - f->begin_ns);
  pthread_mutex_unlock(&f->parts->lock);
  if (fails) tdict_transfer_fail_at(f, "", &err);
}

void tdict_parts_count_down(tdict_future *promise) {
  pthread_mutex_lock(&promise->parts->lock);
  const bool last = --promise->parts->num_open == 0;
  pthread_mutex_unlock(&promise->parts->lock);
  if (!last) return;
  prepare_end(promise);
  tdict_transfer_finish(promise);
}

void tdict_parts_attach(tdict_future *promise, tdict_future *part, size_t position) {
  atomic_fetch_add_explicit(&promise->refs, 1, memory_order_relaxed);
  pthread_mutex_lock(&promise->parts->lock);
  promise->parts->num_open++;
  pthread_mutex_unlock(&promise->parts->lock);
  atomic_store_explicit(&part->part_of, promise, memory_order_release);
  part->position = position;
}

void tdict_parts_detach(tdict_future *part) {
  tdict_future *promise = atomic_exchange_explicit(&part->part_of, NULL, memory_order_acq_rel);
  if (!promise) return;
  tdict_parts_count_down(promise); /* the owner has not closed the promise, so this part is not the last */
  tdict_transfer_release(promise);
}

/* Adds the statistics of a part to those of the promise. */
static void add_stats(tdict_transfer_stats *sum, const tdict_transfer_stats *part) {
  sum->num_leaves += part->num_leaves;
  sum->num_shared_leaves += part->num_shared_leaves;
  sum->num_objects += part->num_objects;
  sum->num_objects_pinned += part->num_objects_pinned;
  sum->num_objects_unpinned += part->num_objects_unpinned;
  sum->num_objects_kept += part->num_objects_kept;
  sum->num_keep_matches += part->num_keep_matches;
  sum->num_conversion_matches += part->num_conversion_matches;
  sum->total_bytes += part->total_bytes;
  sum->direct_bytes += part->direct_bytes;
  sum->staged_bytes += part->staged_bytes;
  sum->pageable_bytes += part->pageable_bytes;
  sum->host_bytes += part->host_bytes;
  sum->peer_bytes += part->peer_bytes;
  sum->wire_bytes += part->wire_bytes;
  sum->num_chunks += part->num_chunks;
  sum->plan_seconds += part->plan_seconds;
  sum->copy_seconds += part->copy_seconds;
  sum->wait_seconds += part->wait_seconds;
  sum->cpu_seconds += part->cpu_seconds;
  sum->mode = part->mode;
  if (sum->num_threads < part->num_threads) sum->num_threads = part->num_threads;
  if (sum->pin_path < part->pin_path) sum->pin_path = part->pin_path;
  if (sum->peak_pinned_bytes < part->peak_pinned_bytes) sum->peak_pinned_bytes = part->peak_pinned_bytes;
  if (sum->peak_staging_bytes < part->peak_staging_bytes) sum->peak_staging_bytes = part->peak_staging_bytes;
  if (sum->peak_queued_bytes < part->peak_queued_bytes) sum->peak_queued_bytes = part->peak_queued_bytes;
}

/* Gives the promise the error of a part. The path begins with the position of the part. */
static void pass_error(tdict_future *f, tdict_future *part) {
  tdict_error error = part->error;
  char path[sizeof error.path];
  if (error.path[0])
    snprintf(path, sizeof path, "%zu.%.*s", part->position, (int)sizeof path - 24, error.path);
  else
    snprintf(path, sizeof path, "%zu", part->position);
  atomic_store_explicit(&part->error_was_reported, true, memory_order_relaxed);
  error.path[0] = '\0';
  tdict_transfer_fail_at(f, error.status == TDICT_ECANCELLED ? "" : path, &error);
  tdict_parts_cancel(f);
}

/* Gives the promise the error and the statistics of a part that has ended. The first error cancels the other parts. */
static void part_ended(tdict_future *promise, tdict_future *part) {
  if (part->error.status) pass_error(promise, part);
  pthread_mutex_lock(&promise->parts->lock);
  add_stats(&promise->stats, &part->stats);
  pthread_mutex_unlock(&promise->parts->lock);
  tdict_parts_count_down(promise);
}

void tdict_parts_cancel(tdict_future *promise) {
  tdict_parts *p = promise->parts;
  pthread_mutex_lock(&p->lock);
  for (size_t i = 0; i < p->num_parts; i++) tdict_future_cancel(p->list[i]);
  pthread_mutex_unlock(&p->lock);
}

/* After the owner has closed the promise, the list of parts does not change. The next functions read the list without
 * the lock, because only the program calls these functions. */
static bool is_inside(const tdict_future *promise) {
  const tdict_parts *p = promise->parts;
  bool inside = false;
  for (size_t i = 0; i < p->num_parts && !inside; i++) inside = p->list[i]->kind->is_inside(p->list[i]);
  return inside;
}

/* Waits until all parts have ended. The calling thread does the work of parts that no thread has begun. */
static void help(tdict_future *promise) {
  const tdict_parts *p = promise->parts;
  for (size_t i = 0; i < p->num_parts; i++) (void)!tdict_future_wait(p->list[i], NULL, NULL);
}

/* If the promise has no parts, waits until the promise has ended, because only the owner knows the work. */
static tdict_status wait_on_stream(tdict_future *promise, tdict_stream stream, tdict_error *err) {
  tdict_parts *p = promise->parts;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < p->num_parts && status == TDICT_OK; i++)
    status = tdict_future_wait_on_stream(p->list[i], stream, NULL, err);
  if (status == TDICT_OK && p->num_parts) {
    pthread_mutex_lock(&p->lock);
    status = gather_results(promise, err);
    pthread_mutex_unlock(&p->lock);
  }
  if (p->num_parts && !tdict_transfer_has_failed(promise)) return status;
  tdict_transfer_wait(promise, &promise->ended, INT64_MAX); /* if the promise has failed, the future has the error */
  return TDICT_OK;
}

static void free_parts(tdict_future *promise) {
  tdict_parts *p = promise->parts;
  if (!p) return;
  for (size_t i = 0; i < p->num_parts; i++) tdict_future_release(p->list[i]);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

const tdict_future_kind tdict_promise_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, NULL, tdict_future_fence_retain,
              tdict_future_fence_release},
    .help = help,
    .wait_on_stream = wait_on_stream,
    .cancel = tdict_parts_cancel,
    .is_inside = is_inside,
    .part_ended = part_ended,
    .free = free_parts,
};
