/* Counts the bytes of a transfer's copies that are queued and not finished. See queue_limit.h for ownership and
 * threads. */
#include "engine/options/queue_limit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"

/* Chunks do not become smaller than this, as long as two chunks fit. */
#define SMALL_CHUNK_BYTES ((size_t)256 << 10)

/* The thread whose turn it is polls every REST_NS. After POLL_NS, the thread sleeps between its polls. A chunk takes
 * less than POLL_NS on the link. */
enum { REST_NS = 4000, POLL_NS = 200000, SLEEP_NS = 20000 };

/* The limit that the library chooses: two bursts of four chunks. On an H200, the link is as busy as with seven chunks
 * of 2 MiB, and copies of the program wait less. With chunks of 1 MiB, the link is often idle. */
#define DEFAULT_CHUNK_BYTES ((size_t)3 << 19)
#define DEFAULT_QUEUED_BYTES (8 * DEFAULT_CHUNK_BYTES)

/* Conversions and `narrow` change the number of bytes on the link, and driver copies from pinned memory need larger
 * chunks, so such transfers have no limit by default. */
size_t tdict_queue_limit_choose(size_t option, const tdict_plan *plan) {
  if (option) return option == SIZE_MAX ? 0 : option;
  const size_t staged = plan->way_bytes[TDICT_WAY_STAGE_IN];
  const bool is_plain = !plan->wire && staged == tdict_plan_bytes(plan);
  return is_plain && staged > TDICT_QUEUE_LIMIT_FROM ? DEFAULT_QUEUED_BYTES : 0;
}

/* TDICT_DIRECT_IN_FLIGHT chunks fit into the limit, or fewer chunks if these would be small. With two chunks, the link
 * often waits for a thread. */
size_t tdict_queue_limit_chunk_bytes(size_t max_queued_bytes, bool is_staged) {
  if (is_staged && max_queued_bytes == DEFAULT_QUEUED_BYTES) return DEFAULT_CHUNK_BYTES;
  const size_t share = max_queued_bytes / TDICT_DIRECT_IN_FLIGHT, half = max_queued_bytes / 2;
  const size_t most = share > SMALL_CHUNK_BYTES ? share : half < SMALL_CHUNK_BYTES ? half : SMALL_CHUNK_BYTES;
  return most / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
}

tdict_status tdict_queue_limit_create(size_t max_bytes, int most_copies, tdict_queue_limit **out, tdict_error *err) {
  tdict_queue_limit *limit = calloc(1, sizeof *limit + (size_t)most_copies * sizeof limit->copies[0]);
  if (!limit) return tdict_fail_memory(err, "transfer", NULL, "its limit of queued bytes");
  pthread_mutex_init(&limit->turn, NULL);
  pthread_mutex_init(&limit->lock, NULL);
  limit->max_bytes = max_bytes;
  limit->most_copies = most_copies;
  *out = limit;
  return TDICT_OK;
}

void tdict_queue_limit_free(tdict_queue_limit *limit) {
  pthread_mutex_destroy(&limit->lock);
  pthread_mutex_destroy(&limit->turn);
  free(limit);
}

/* Ends the count of a copy. Call under the lock. */
static void end_copy(tdict_queue_limit *limit, int i) {
  TDICT_ASSERT(limit->bytes >= limit->copies[i].bytes);
  limit->bytes -= limit->copies[i].bytes;
  limit->num_copies--;
  memmove(&limit->copies[i], &limit->copies[i + 1], (size_t)(limit->num_copies - i) * sizeof limit->copies[0]);
}

/* Ends the counts of all copies that have finished. Call under the lock. */
static tdict_status end_finished(tdict_queue_limit *limit, tdict_error *err) {
  for (int i = 0; i < limit->num_copies;) {
    const tdict_counted_copy *copy = &limit->copies[i];
    const tdict_cu answer =
        tdict_slot_is_in_burst(copy->slot) ? TDICT_CU_NOT_READY : tdict_gpu_query_event(copy->gpu, copy->event);
    if (answer == TDICT_CU_SUCCESS)
      end_copy(limit, i);
    else if (answer == TDICT_CU_NOT_READY)
      i++;
    else
      return tdict_gpu_check(copy->gpu, answer, "cuEventQuery", err);
  }
  return TDICT_OK;
}

/* Counts the bytes if they fit. */
static bool try_count(tdict_queue_limit *limit, size_t bytes, tdict_status *status, tdict_error *err) {
  pthread_mutex_lock(&limit->lock);
  if (bytes > limit->max_bytes - limit->bytes) *status = end_finished(limit, err);
  const bool fits = *status == TDICT_OK && bytes <= limit->max_bytes - limit->bytes;
  if (fits) limit->bytes += bytes;
  if (limit->bytes > limit->peak_bytes) limit->peak_bytes = limit->bytes;
  pthread_mutex_unlock(&limit->lock);
  return fits;
}

/* Waits between two polls. The driver cannot queue copies while a thread polls, so polls must be rare. */
static void rest(int64_t begin_ns) {
  static const struct timespec pause = {0, SLEEP_NS};
  const int64_t now = tdict_now_ns();
  if (now - begin_ns > POLL_NS) {
    tdict_sleep(&pause);
    return;
  }
  sched_yield();
  while (tdict_now_ns() - now < REST_NS) tdict_spin_pause();
}

/* Only one thread at a time waits inside `turn`, and polls. */
tdict_status tdict_queue_limit_reserve(tdict_queue_limit *limit, size_t bytes, const _Atomic(bool) *failed, bool *out,
                                       tdict_error *err) {
  tdict_status status = TDICT_OK;
  *out = false;
  pthread_mutex_lock(&limit->turn);
  const int64_t begin = tdict_now_ns();
  while (!*out && status == TDICT_OK && !atomic_load_explicit(failed, memory_order_relaxed)) {
    *out = try_count(limit, bytes, &status, err);
    if (!*out && status == TDICT_OK) rest(begin);
  }
  pthread_mutex_unlock(&limit->turn);
  return status;
}

void tdict_queue_limit_add(tdict_queue_limit *limit, const tdict_counted_copy *copy) {
  pthread_mutex_lock(&limit->lock);
  TDICT_ASSERT(limit->num_copies < limit->most_copies);
  limit->copies[limit->num_copies++] = *copy;
  pthread_mutex_unlock(&limit->lock);
}

void tdict_queue_limit_remove(tdict_queue_limit *limit, tdict_cu_event event) {
  pthread_mutex_lock(&limit->lock);
  int i = 0;
  while (i < limit->num_copies && limit->copies[i].event != event) i++;
  if (i < limit->num_copies) end_copy(limit, i);
  pthread_mutex_unlock(&limit->lock);
}
