/* The parallel loop, on the caller's stack. The caller and helper tasks claim ranges of indices. Threads: pool.h. */
#include <stdatomic.h>

#include "core/base/thread.h"
#include "core/sched/latch.h"
#include "core/sched/pool.h"

/* A thread makes about this many claims. Fewer contend less, and more let all threads end closer together. */
enum { MAX_HELPERS = 64, CLAIMS_PER_THREAD = 32 };

typedef struct loop {
  _Atomic(long) next;     /* relaxed: no other data depends on the counter; the latch orders the work */
  long count, claim_size; /* claim_size: number of indices in one claim */
  void (*fn)(void *user, long i);
  void *user;
  tdict_latch latch;
} loop;
typedef struct helper {
  tdict_task task; /* the first member, because the pool passes a pointer to `task` */
  loop *loop;
} helper;

static void run_claimed_indices(loop *l) {
  for (;;) {
    long i = atomic_fetch_add_explicit(&l->next, l->claim_size, memory_order_relaxed);
    if (i >= l->count) return;
    const long end = l->count - i < l->claim_size ? l->count : i + l->claim_size;
    for (; i < end; i++) l->fn(l->user, i);
  }
}

static void run_helper(tdict_task *task) {
  loop *l = ((helper *)task)->loop;
  run_claimed_indices(l);
  tdict_latch_down(&l->latch);
}

void tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i), void *user) {
  helper helpers[MAX_HELPERS];
  loop l = {.count = count, .fn = fn, .user = user};
  /* A pool thread uses no helpers: waiting there for other tasks could deadlock. */
  if (!pool || tdict_pool_is_worker(pool) || num_helpers < 0) num_helpers = 0;
  if (pool && num_helpers > tdict_pool_size(pool)) num_helpers = tdict_pool_size(pool);
  if (num_helpers > MAX_HELPERS) num_helpers = MAX_HELPERS;
  if (num_helpers >= count) num_helpers = count > 0 ? (int)count - 1 : 0;
  if (num_helpers == 0) {
    for (long i = 0; i < count; i++) fn(user, i);
    return;
  }
  TDICT_UNCANCELLED; /* the helpers use the loop on this thread's stack */
  l.claim_size = count / ((num_helpers + 1) * CLAIMS_PER_THREAD);
  if (l.claim_size == 0) l.claim_size = 1;
  /* Submit the helper tasks, and claim indices on this thread too. */
  tdict_latch_init(&l.latch, num_helpers);
  for (int i = 0; i < num_helpers; i++) {
    helpers[i] = (helper){.task = {.run = run_helper}, .loop = &l};
    tdict_pool_submit(pool, &helpers[i].task);
  }
  run_claimed_indices(&l);
  /* Remove helper tasks that have not started: no index is left, and a busy pool could start these tasks late. */
  for (int i = 0; i < num_helpers; i++)
    if (tdict_pool_remove(pool, &helpers[i].task)) tdict_latch_down(&l.latch);
  tdict_latch_wait(&l.latch, INT64_MAX);
  tdict_latch_destroy(&l.latch);
}
