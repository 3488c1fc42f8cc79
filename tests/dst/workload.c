/* Runs a workload: dst_NAME [SEED] [ROUNDS]. If libtdict_dst.so is loaded, the scheduler starts first. Each function of
 * the scheduler is a weak symbol, which is NULL without the scheduler. */
#include "dst/workload.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define WEAK __attribute__((weak))
WEAK void dst_scheduler_start(uint64_t seed);
WEAK void dst_scheduler_allow(unsigned kinds, bool is_allowed);
WEAK bool dst_scheduler_misfortune(enum dst_misfortune kind);
WEAK void dst_scheduler_spare(bool is_spared);
WEAK uint64_t dst_scheduler_num_faults(void);
WEAK void dst_scheduler_crash_begin(uint64_t calls);
WEAK bool dst_scheduler_has_crashed(void);
WEAK bool dst_scheduler_crash_end(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: random_state */
static uint64_t random_state;

uint64_t dst_roll(uint64_t n) {
  if (!dst_is_simulated()) pthread_mutex_lock(&lock); /* under the scheduler, a lock would be a decision */
  uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);
  if (!dst_is_simulated()) pthread_mutex_unlock(&lock);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (x ^ (x >> 31)) % n;
}

void dst_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("failed: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

bool dst_is_simulated(void) { return dst_scheduler_start != NULL; }
void dst_allow(unsigned kinds, bool allowed) {
  if (dst_scheduler_allow) dst_scheduler_allow(kinds, allowed);
}
void dst_spare(bool is_spared) {
  if (dst_scheduler_spare) dst_scheduler_spare(is_spared);
}
bool dst_is_unlucky(enum dst_misfortune kind) { return dst_scheduler_misfortune && dst_scheduler_misfortune(kind); }
uint64_t dst_num_faults(void) { return dst_scheduler_num_faults ? dst_scheduler_num_faults() : 0; }

const char *dst_folder(void) {
  static char folder[64];
  if (dst_is_simulated()) return "/dst";
  if (!folder[0]) {
    snprintf(folder, sizeof folder, "/tmp/tdict-dst-XXXXXX");
    if (!mkdtemp(folder)) dst_fail("no temporary folder");
  }
  return folder;
}

/* Runs `body`. Lets the crash happen before one of the next file calls, at the end, or not at all. */
bool dst_crash(void (*body)(void *data), void *data) {
  enum { MIN_BITS = 2, MOST_BITS = 10 };
  const uint64_t most_calls = UINT64_C(1) << (MIN_BITS + dst_roll(MOST_BITS - MIN_BITS));
  if (dst_scheduler_crash_begin) dst_scheduler_crash_begin(1 + dst_roll(most_calls));
  body(data);
  return dst_scheduler_crash_end && dst_scheduler_crash_end();
}

bool dst_has_crashed(void) { return dst_scheduler_has_crashed && dst_scheduler_has_crashed(); }

/* Runs the workload on its own thread, whose stack address does not depend on environment variables. */
static void *run(void *argument) {
  for (long i = *(const long *)argument; i > 0; i--) dst_workload();
  return NULL;
}

int main(int argc, char **argv) {
  const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  long rounds = argc > 2 ? atol(argv[2]) : 1;
  pthread_t thread;
  random_state = seed;
  if (dst_scheduler_start) dst_scheduler_start(seed);
  if (pthread_create(&thread, NULL, run, &rounds) != 0) dst_fail("no thread for the workload");
  pthread_join(thread, NULL);
  puts("ok");
  return 0;
}
