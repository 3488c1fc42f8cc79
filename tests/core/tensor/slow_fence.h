/* A fake transfer that uses a storage until another thread ends the use. Thread rule: the test's thread calls
 * begin_use() and end_use(), and starts end_later() on another thread. */
#ifndef TDICT_TESTS_CORE_TENSOR_SLOW_FENCE_H
#define TDICT_TESTS_CORE_TENSOR_SLOW_FENCE_H

#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core/memory/storage.h"

/* A fence that another thread completes. `ended` is set just before `node` is detached. */
typedef struct slow_fence {
  tdict_fence fence;
  tdict_fence_node node;
  pthread_mutex_t lock; /* guards: done */
  pthread_cond_t changed;
  bool done;
  _Atomic(bool) ended;
  _Atomic(int) refs;
  pthread_t thread;
} slow_fence;

static inline bool slow_poll(tdict_fence *fence) { return ((slow_fence *)fence)->ended; }
static inline bool slow_wait(tdict_fence *fence, int64_t deadline_ns) {
  slow_fence *f = (slow_fence *)fence;
  (void)deadline_ns;
  pthread_mutex_lock(&f->lock);
  while (!f->done) pthread_cond_wait(&f->changed, &f->lock);
  pthread_mutex_unlock(&f->lock);
  return true;
}
static inline void slow_retain(tdict_fence *fence) { ((slow_fence *)fence)->refs++; }
static inline void slow_release(tdict_fence *fence) { ((slow_fence *)fence)->refs--; }
static const tdict_fence_ops slow_ops = {slow_poll, slow_wait, NULL, slow_retain, slow_release};

static inline void *end_later(void *user) {
  slow_fence *f = user;
  const struct timespec delay = {0, 100 * 1000 * 1000};
  nanosleep(&delay, NULL);
  f->ended = true;
  tdict_storage_detach(&f->node);
  pthread_mutex_lock(&f->lock);
  f->done = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  return NULL;
}

static inline void begin_use(slow_fence *f, tdict_storage *storage, bool writes) {
  memset(f, 0, sizeof *f);
  f->fence.ops = &slow_ops;
  f->node.storage = storage;
  f->node.fence = &f->fence;
  f->node.writes = writes;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  tdict_storage_attach(&f->node);
}
static inline void end_use(slow_fence *f) {
  pthread_join(f->thread, NULL);
  assert_int_equal(f->refs, 0);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
}
#define scoped_slow_fence TD_SCOPED(end_use, slow_fence)

#endif
