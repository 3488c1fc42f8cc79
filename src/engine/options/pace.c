/* Delays copies so that they keep to a rate. See pace.h for ownership and threads. */
#include "engine/options/pace.h"

#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "engine/transfer.h"

/* The smallest value of the option. With smaller values, one piece would take longer than a quarter of a second. */
#define MIN_RATE INT64_C(1000000)
#define MIN_PIECE_BYTES ((size_t)256 << 10)
/* One thread copies more than this in a second, also into the page cache. */
#define RATE_OF_THREAD INT64_C(2000000000)
/* MAX_SLEEP_NS: a thread that waits for its time checks this often whether the transfer has failed. */
enum { MAX_SLEEP_NS = 1000000, MAX_THREADS = 16 };

struct tdict_pace {
  int64_t bytes_per_second;
  pthread_mutex_t lock; /* guards: next_ns */
  int64_t next_ns;      /* the time at which the next bytes may be copied */
};

tdict_status tdict_pace_check(int64_t bytes_per_second, const char *what, tdict_error *err) {
  if (bytes_per_second == 0 || bytes_per_second >= MIN_RATE) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: max_bytes_per_second is %lld, wanted 0 (no limit) or at least %lld", what,
                    (long long)bytes_per_second, (long long)MIN_RATE);
}

size_t tdict_pace_piece_bytes(int64_t bytes_per_second) {
  const int64_t bytes = bytes_per_second / 1000 / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
  return bytes < (int64_t)MIN_PIECE_BYTES ? MIN_PIECE_BYTES : (size_t)bytes;
}

int tdict_pace_num_threads(int64_t bytes_per_second) {
  const int64_t wanted = 1 + bytes_per_second / RATE_OF_THREAD;
  return wanted < MAX_THREADS ? (int)wanted : MAX_THREADS;
}

tdict_status tdict_pace_create(int64_t bytes_per_second, tdict_pace **out, tdict_error *err) {
  tdict_pace *pace = calloc(1, sizeof *pace);
  if (!pace) return tdict_fail(err, TDICT_ENOMEM, "no host memory for the pace of max_bytes_per_second");
  pthread_mutex_init(&pace->lock, NULL);
  pace->bytes_per_second = bytes_per_second;
  *out = pace;
  return TDICT_OK;
}

void tdict_pace_free(tdict_pace *pace) {
  pthread_mutex_destroy(&pace->lock);
  free(pace);
}

size_t tdict_pace_max_bytes(const tdict_pace *pace) { return tdict_pace_piece_bytes(pace->bytes_per_second); }

/* Takes the time at which the bytes may be copied. */
static int64_t take_time(tdict_pace *pace, size_t bytes) {
  const int64_t now = tdict_now_ns();
  pthread_mutex_lock(&pace->lock);
  const int64_t time = pace->next_ns > now ? pace->next_ns : now;
  pace->next_ns = time + (int64_t)((double)bytes * 1e9 / (double)pace->bytes_per_second);
  pthread_mutex_unlock(&pace->lock);
  return time;
}

bool tdict_pace_wait(tdict_pace *pace, size_t bytes, const _Atomic(bool) *stops) {
  const int64_t time = take_time(pace, bytes);
  for (;;) {
    if (stops && atomic_load_explicit(stops, memory_order_relaxed)) return false;
    const int64_t rest = time - tdict_now_ns();
    if (rest <= 0) return true;
    const struct timespec pause = {0, rest < MAX_SLEEP_NS ? rest : MAX_SLEEP_NS};
    tdict_sleep(&pause);
  }
}

bool tdict_pace_wait_for_chunk(tdict_worker *worker, size_t bytes) {
  const tdict_transfer *t = worker->transfer;
  const int64_t begin = tdict_phase_begin(t, TDICT_RANGE_WAIT);
  const bool may_copy = tdict_pace_wait(t->pace, bytes, &t->future.failed);
  worker->wait_ns += tdict_phase_end(t, TDICT_RANGE_WAIT, begin, 0);
  return may_copy;
}
