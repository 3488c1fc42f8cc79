/* Model of the latch: src/core/sched/latch.c with two threads that count down, or one thread that opens the latch, and
 * a reader. When the latch is open, the reader must see the threads' writes, and may free the latch. READER says how
 * the reader waits. */
#include "model.h"

#include "core/sched/latch.c"

enum { WAITS, POLLS, READS_COUNT }; /* values of READER */

static tdict_latch *latch;
static int written[2];

static void *count_down(void *number) {
  written[(intptr_t)number] = 1;
  if (OPENS)
    tdict_latch_open(latch);
  else
    tdict_latch_down(latch);
  return NULL;
}

int main(void) {
  const int num_threads = OPENS ? 1 : 2;
  pthread_t threads[2];
  latch = malloc(sizeof *latch);
  tdict_latch_init(latch, 2);
  for (intptr_t i = 0; i < num_threads; i++) pthread_create(&threads[i], NULL, count_down, (void *)i);
  if (READER == WAITS)
    (void)tdict_latch_wait(latch, INT64_MAX);
  else if (READER == POLLS)
    __VERIFIER_assume(tdict_latch_is_zero(latch));
  else
    __VERIFIER_assume(atomic_load_explicit(&latch->count, memory_order_acquire) == 0);
  for (int i = 0; i < num_threads; i++) assert(written[i] == 1);
  if (READER == READS_COUNT)
    for (int i = 0; i < num_threads; i++) pthread_join(threads[i], NULL);
  tdict_latch_destroy(latch);
  free(latch);
  return 0;
}
