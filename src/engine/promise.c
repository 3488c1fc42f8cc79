/* Implements promises. See promise.h for ownership and threads. */
#include "engine/promise.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/tree/node.h"
#include "engine/transfer.h"

/* Returns the tree that a part, which is a transfer, has for a position, or NULL. */
static tdict_tree *result_at(const tdict_future *part, size_t position) {
  const tdict_transfer *t = (const tdict_transfer *)part;
  for (size_t i = 0; i < t->num_targets; i++)
    if (t->targets[i].position == position) return i ? t->targets[i].tree : part->result;
  return NULL;
}

static tdict_status add_result(tdict_future *part, size_t position, tdict_tree *parent, tdict_error *err) {
  char key[24];
  const tdict_name name = tdict_name_of(key, (size_t)snprintf(key, sizeof key, "%zu", position));
  tdict_tree *result = tdict_retain(result_at(part, position));
  pthread_mutex_lock(&part->error_lock);
  part->result_was_returned = true;
  pthread_mutex_unlock(&part->error_lock);
  if (tdict_node_add_name(parent, &name, tdict_leaf_of_tree(result))) return TDICT_OK;
  tdict_release(result);
  return tdict_fail_memory(err, "transfer", NULL, "the tree of all results");
}

/* Creates the tree of the results of the parts, which exist, if there is none yet. The caller holds the lock. */
static tdict_status gather_results(tdict_promise *p, tdict_error *err) {
  tdict_tree *parent;
  if (p->future.result || !p->num_parts) return TDICT_OK;
  tdict_status status = tdict_create(0, NULL, &parent, err);
  if (status != TDICT_OK) return status;
  bool found = true;
  for (size_t position = 0; found && status == TDICT_OK; position++) {
    found = false;
    for (size_t i = 0; i < p->num_parts && !found; i++) {
      found = result_at(p->parts[i], position) != NULL;
      if (found) status = add_result(p->parts[i], position, parent, err);
    }
  }
  return TDICT_HAND_OVER(status, parent, &p->future.result, tdict_release);
}

/* Counts one part, or the owner's work, as ended. The last completes result and statistics, and ends the promise. */
static void count_down(tdict_promise *p) {
  tdict_future *f = &p->future;
  tdict_error err;
  pthread_mutex_lock(&p->lock);
  const bool last = --p->num_open == 0;
  const bool fails = last && !tdict_future_has_failed(f) && gather_results(p, &err) != TDICT_OK;
  pthread_mutex_unlock(&p->lock);
  if (last) tdict_future_end(f, NULL, fails ? &err : NULL);
}

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

static void cancel_parts(tdict_future *f) {
  tdict_promise *p = (tdict_promise *)f;
  pthread_mutex_lock(&p->lock);
  for (size_t i = 0; i < p->num_parts; i++) tdict_future_cancel(p->parts[i]);
  pthread_mutex_unlock(&p->lock);
}

/* Gives the promise the error of a part. The path begins with the position of the part. */
static void pass_error(tdict_future *f, tdict_future *part) {
  tdict_error error = part->error;
  const size_t position = ((const tdict_transfer *)part)->targets[0].position;
  char path[sizeof error.path];
  if (error.path[0])
    snprintf(path, sizeof path, "%zu.%.*s", position, (int)sizeof path - 24, error.path);
  else
    snprintf(path, sizeof path, "%zu", position);
  atomic_store_explicit(&part->error_was_reported, true, memory_order_relaxed);
  error.path[0] = '\0';
  tdict_future_fail(f, UINT32_MAX, error.status == TDICT_ECANCELLED ? "" : path, &error);
  cancel_parts(f);
}

static void part_began(tdict_future *f) {
  tdict_promise *p = (tdict_promise *)f;
  pthread_mutex_lock(&p->lock);
  p->num_open++;
  pthread_mutex_unlock(&p->lock);
}

/* Gives the promise the error and the statistics of a part that has ended. The first error cancels the other parts. */
static void part_ended(tdict_future *f, tdict_future *part) {
  tdict_promise *p = (tdict_promise *)f;
  if (part->error.status) pass_error(f, part);
  pthread_mutex_lock(&p->lock);
  add_stats(&f->stats, &part->stats);
  pthread_mutex_unlock(&p->lock);
  count_down(p);
}

/* After the owner has closed the promise, the list of parts does not change. The next functions read the list without
 * the lock, because only the program calls these functions. */
static bool is_inside(const tdict_future *f) {
  const tdict_promise *p = (const tdict_promise *)f;
  bool inside = false;
  for (size_t i = 0; i < p->num_parts && !inside; i++) inside = tdict_transfer_kind.is_inside(p->parts[i]);
  return inside;
}

/* Waits until all parts have ended. The calling thread does the work of parts that no thread has begun. */
static void help(tdict_future *f) {
  const tdict_promise *p = (const tdict_promise *)f;
  for (size_t i = 0; i < p->num_parts; i++) (void)!tdict_future_wait(p->parts[i], NULL, NULL);
}

static tdict_status wait_on_stream(tdict_future *f, tdict_stream stream, tdict_error *err) {
  tdict_promise *p = (tdict_promise *)f;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < p->num_parts && status == TDICT_OK; i++)
    status = tdict_future_wait_on_stream(p->parts[i], stream, NULL, err);
  if (status == TDICT_OK) {
    pthread_mutex_lock(&p->lock);
    status = gather_results(p, err);
    pthread_mutex_unlock(&p->lock);
  }
  if (!tdict_future_has_failed(f)) return status;
  tdict_future_wait_latch(f, &f->ended, INT64_MAX); /* if the promise has failed, the future has the error */
  return TDICT_OK;
}

static void free_promise(tdict_future *f) {
  tdict_promise *p = (tdict_promise *)f;
  for (size_t i = 0; i < p->num_parts; i++) tdict_future_release(p->parts[i]);
  pthread_mutex_destroy(&p->lock);
}

static const tdict_future_kind promise_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, NULL, tdict_future_fence_retain,
              tdict_future_fence_release},
    .name = "transfer",
    .help = help,
    .wait_on_stream = wait_on_stream,
    .cancel = cancel_parts,
    .is_inside = is_inside,
    .part_began = part_began,
    .part_ended = part_ended,
    .free = free_promise,
};

tdict_status tdict_promise_create(tdict_context *context, const char *what, size_t max_parts, tdict_promise **out,
                                  tdict_error *err) {
  tdict_engine *e = tdict_context_engine(context);
  tdict_status status = tdict_forkmark_check(e->config.mark, what, err);
  if (status != TDICT_OK) return status;
  tdict_promise *p = calloc(1, sizeof *p + max_parts * sizeof p->parts[0]);
  if (!p) return tdict_fail_memory(err, what, NULL, "a future");
  tdict_future_init(&p->future, e, &promise_kind);
  p->num_open = 1;
  pthread_mutex_init(&p->lock, NULL);
  p->future.begin_ns = tdict_now_ns();
  pthread_mutex_lock(&e->lock);
  tdict_future_count_live(&p->future);
  pthread_mutex_unlock(&e->lock);
  *out = p;
  return TDICT_OK;
}

tdict_status tdict_promise_start(tdict_promise *p, tdict_context *context, tdict_start *start, size_t position,
                                 tdict_error *err) {
  tdict_future *part;
  start->promise = &p->future;
  start->position = position;
  tdict_status status = tdict_start_transfer(context, start, &part, err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&p->lock);
  p->parts[p->num_parts++] = part;
  pthread_mutex_unlock(&p->lock);
  /* a part that failed before this part was listed could not cancel this part */
  if (tdict_future_has_failed(&p->future)) tdict_future_cancel(part);
  return status;
}

void tdict_promise_close(tdict_promise *p, const tdict_error *error) {
  if (error) tdict_future_fail(&p->future, UINT32_MAX, "", error);
  if (error) cancel_parts(&p->future);
  count_down(p);
}
