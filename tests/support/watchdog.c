/* Implements the watchdog: see watchdog.h. The watching thread reads the states that the other threads have noted. */
#include "support/watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Atomic(const char *) states[WATCH_MAX_THREADS];
static _Atomic(int64_t) counts[WATCH_MAX_THREADS], bumps; /* relaxed: only compared */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards: ended */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool ended;
static int limit;
static pthread_t watcher;

static int64_t progress(void) {
  int64_t sum = atomic_load_explicit(&bumps, memory_order_relaxed);
  for (int i = 0; i < WATCH_MAX_THREADS; i++) sum += atomic_load_explicit(&counts[i], memory_order_relaxed);
  return sum;
}

static void tell(void) {
  fprintf(stderr, "watchdog: no progress for %d s\n", limit);
  for (int i = 0; i < WATCH_MAX_THREADS; i++) {
    const char *state = atomic_load(&states[i]);
    if (state)
      fprintf(stderr, "watchdog: thread %d, after %lld steps: %s\n", i, (long long)atomic_load(&counts[i]), state);
  }
  fprintf(stderr, "watchdog: %lld bumps\n", (long long)atomic_load(&bumps));
}

static void *watch(void *unused) {
  (void)unused;
  int64_t last = progress();
  int idle = 0;
  pthread_mutex_lock(&lock);
  while (!ended) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&changed, &lock, &until);
    int64_t now = progress();
    idle = now == last ? idle + 1 : 0;
    last = now;
    if (!ended && idle >= limit) {
      tell();
      abort();
    }
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

void watch_begin(int seconds) {
  ended = false;
  limit = seconds;
  for (int i = 0; i < WATCH_MAX_THREADS; i++) {
    atomic_store(&states[i], NULL);
    atomic_store(&counts[i], 0);
  }
  if (pthread_create(&watcher, NULL, watch, NULL) != 0) abort();
}

void watch_end(void) {
  pthread_mutex_lock(&lock);
  ended = true;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(watcher, NULL);
}

void watch_note(int thread, const char *state) {
  atomic_store_explicit(&states[thread], state, memory_order_relaxed);
  atomic_fetch_add_explicit(&counts[thread], 1, memory_order_relaxed);
}

void watch_bump(void) { atomic_fetch_add_explicit(&bumps, 1, memory_order_relaxed); }
