/* Runs a workload with real threads: dst_NAME [SEED] [ROUNDS]. */
#include "dst/workload.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: random */
static uint64_t random_state;

uint64_t dst_roll(uint64_t n) {
  pthread_mutex_lock(&lock);
  random_state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t x = (random_state ^ (random_state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  pthread_mutex_unlock(&lock);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (x ^ (x >> 31)) % n;
}

_Noreturn void dst_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("failed: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

bool dst_is_simulated(void) { return false; }
void dst_allow(unsigned kinds, bool allowed) { (void)kinds, (void)allowed; }
bool dst_has_crashed(void) { return false; }
bool dst_is_unlucky(enum dst_misfortune kind) { return (void)kind, false; }
uint64_t dst_num_faults(void) { return 0; }

const char *dst_folder(void) {
  static char folder[64];
  if (!folder[0]) {
    snprintf(folder, sizeof folder, "/tmp/tdict-dst-XXXXXX");
    if (!mkdtemp(folder)) dst_fail("no temporary folder");
  }
  return folder;
}

bool dst_crash(void (*body)(void *data), void *data) {
  body(data);
  return false;
}

int main(int argc, char **argv) {
  const long rounds = argc > 2 ? atol(argv[2]) : 1;
  random_state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  for (long i = 0; i < rounds; i++) dst_workload();
  puts("ok");
  return 0;
}
