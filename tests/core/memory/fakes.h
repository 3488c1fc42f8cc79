/* Fakes of the objects that upper layers pass to the memory layer: a fence, a pinner and a memory. They count their
 * calls. The test owns them. Fields that threads share are atomic. */
#ifndef TDICT_TESTS_CORE_MEMORY_FAKES_H
#define TDICT_TESTS_CORE_MEMORY_FAKES_H

#include <stdatomic.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/memory/pinned_pages.h"
#include "core/memory/storage.h"
#include "support/test.h"

/* A fence that the test completes. */
typedef struct fake_fence {
  tdict_fence fence; /* first */
  atomic_int refs, waits;
  atomic_bool done;
} fake_fence;
static inline bool fake_poll(tdict_fence *f) { return atomic_load(&((fake_fence *)f)->done); }
static inline bool fake_wait(tdict_fence *f, int64_t deadline_ns) {
  atomic_fetch_add(&((fake_fence *)f)->waits, 1);
  while (!fake_poll(f)) {
    if (tdict_now_ns() >= deadline_ns) return false;
    usleep(100);
  }
  return true;
}
static inline void fake_retain(tdict_fence *f) { atomic_fetch_add(&((fake_fence *)f)->refs, 1); }
static inline void fake_release(tdict_fence *f) { atomic_fetch_sub(&((fake_fence *)f)->refs, 1); }
static inline void fake_fence_init(fake_fence *f) {
  static const tdict_fence_ops ops = {fake_poll, fake_wait, NULL, fake_retain, fake_release};
  f->fence.ops = &ops;
  atomic_init(&f->refs, 1);
  atomic_init(&f->waits, 0);
  atomic_init(&f->done, false);
}
static inline void fake_fence_end(fake_fence *f) { atomic_store(&f->done, true); }
/* Returns as soon as another thread waits for the fence. */
static inline void fake_fence_await_waiter(fake_fence *f) {
  while (atomic_load(&f->waits) == 0) usleep(100);
}
static inline void *fake_fence_end_later(void *user) {
  fake_fence_await_waiter(user);
  fake_fence_end(user);
  return NULL;
}

/* A pinner that uses malloc. `registers_left` and `allocates_left` count the calls that still succeed before all later
 * ones fail (-1: all calls succeed). */
typedef struct fake_pinner {
  atomic_int refs, registers, unregisters, allocates, frees, unbounds;
  int unbound_node, unbound_code;
  int registers_left, allocates_left;
  atomic_size_t registered_bytes, allocated_bytes;
  atomic_size_t most_bytes;                               /* peak of registered plus allocated bytes */
  tdict_status (*on_register)(void *pages, size_t bytes); /* may be NULL */
  void (*on_free)(void);                                  /* may be NULL */
} fake_pinner;
static inline void fake_note_most(fake_pinner *p) {
  size_t now = atomic_load(&p->registered_bytes) + atomic_load(&p->allocated_bytes), most = atomic_load(&p->most_bytes);
  while (now > most && !atomic_compare_exchange_weak(&p->most_bytes, &most, now)) {}
}
static inline tdict_status fake_register(void *self, void *pages, size_t bytes, tdict_error *err) {
  fake_pinner *p = self;
  atomic_fetch_add(&p->registers, 1);
  if (p->on_register) {
    tdict_status status = p->on_register(pages, bytes);
    if (status == TDICT_OK) atomic_fetch_add(&p->registered_bytes, bytes);
    return status;
  }
  if (p->registers_left == 0) return tdict_fail_native(err, TDICT_EDEVICE, 801, "fake: register refused");
  if (p->registers_left > 0) p->registers_left--;
  atomic_fetch_add(&p->registered_bytes, bytes);
  fake_note_most(p);
  return TDICT_OK;
}
static inline void fake_unregister(void *self, void *pages, size_t bytes) {
  fake_pinner *p = self;
  (void)pages;
  atomic_fetch_add(&p->unregisters, 1);
  atomic_fetch_sub(&p->registered_bytes, bytes);
}
static inline tdict_status fake_allocate(void *self, size_t bytes, void **out, tdict_error *err) {
  fake_pinner *p = self;
  void *data = NULL;
  atomic_fetch_add(&p->allocates, 1);
  if (p->allocates_left == 0 || posix_memalign(&data, 4096, bytes) != 0)
    return tdict_fail_native(err, TDICT_ENOMEM, 2, "fake: allocate refused");
  if (p->allocates_left > 0) p->allocates_left--;
  atomic_fetch_add(&p->allocated_bytes, bytes);
  fake_note_most(p);
  *out = data;
  return TDICT_OK;
}
static inline void fake_free(void *self, void *pages, size_t bytes) {
  fake_pinner *p = self;
  atomic_fetch_add(&p->frees, 1);
  if (p->on_free) p->on_free();
  atomic_fetch_sub(&p->allocated_bytes, bytes);
  free(pages);
}
static inline void fake_unbound(void *self, int node, int code) {
  fake_pinner *p = self;
  atomic_fetch_add(&p->unbounds, 1);
  p->unbound_node = node;
  p->unbound_code = code;
}
static inline void fake_pinner_retain(void *self) { atomic_fetch_add(&((fake_pinner *)self)->refs, 1); }
static inline void fake_pinner_release(void *self) { atomic_fetch_sub(&((fake_pinner *)self)->refs, 1); }
static inline tdict_pinner fake_pinner_init(fake_pinner *p, tdict_pool *pool) {
  static const tdict_pin_ops ops = {fake_register, fake_unregister,    fake_allocate,      fake_free, fake_unbound,
                                    NULL,          fake_pinner_retain, fake_pinner_release};
  memset((void *)p, 0, sizeof *p);
  p->registers_left = p->allocates_left = -1;
  return (tdict_pinner){&ops, p, pool, NULL, -1, 0, NULL};
}

/* A fake tdict_memory that uses malloc and records its calls. */
typedef struct fake_memory {
  tdict_memory memory; /* first */
  tdict_memory_ops ops;
  atomic_int refs, allocations, frees;
  bool fail_allocate, fail_fill;
  void *last_data, *freed_data, *cookie, *filled;
  size_t filled_bytes;
  int filled_byte, freed_fences;
  bool alive_when_freed; /* whether the storage still held a reference when it freed the block */
} fake_memory;
static inline tdict_status fake_memory_allocate(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err) {
  fake_memory *f = (fake_memory *)m;
  if (f->fail_allocate) return tdict_fail(err, TDICT_EDEVICE, "fake: no block");
  atomic_fetch_add(&f->allocations, 1);
  f->last_data = td_alloc(bytes + 1);
  memset(f->last_data, 0xA5, bytes + 1);
  *out = (tdict_block){f->last_data, bytes, f->cookie};
  return TDICT_OK;
}
static inline void fake_memory_free(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences) {
  fake_memory *f = (fake_memory *)m;
  atomic_fetch_add(&f->frees, 1);
  f->freed_data = block->cookie == f->cookie ? block->data : NULL;
  f->freed_fences = num_fences;
  f->alive_when_freed = atomic_load(&f->refs) > 1;
  for (int i = 0; i < num_fences; i++) fences[i]->ops->release(fences[i]);
  free(block->data);
}
static inline tdict_status fake_memory_fill(tdict_memory *m, void *dst, int byte, size_t bytes, tdict_error *err) {
  fake_memory *f = (fake_memory *)m;
  if (f->fail_fill) return tdict_fail(err, TDICT_EDEVICE, "fake: no fill");
  f->filled = dst;
  f->filled_byte = byte;
  f->filled_bytes = bytes;
  return TDICT_OK;
}
static inline void fake_memory_retain(tdict_memory *m) { atomic_fetch_add(&((fake_memory *)m)->refs, 1); }
static inline void fake_memory_release(tdict_memory *m) { atomic_fetch_sub(&((fake_memory *)m)->refs, 1); }
static inline void fake_memory_init(fake_memory *f, bool with_fill) {
  memset((void *)f, 0, sizeof *f);
  f->ops = (tdict_memory_ops){.allocate = fake_memory_allocate,
                              .free = fake_memory_free,
                              .fill = with_fill ? fake_memory_fill : NULL,
                              .retain = fake_memory_retain,
                              .release = fake_memory_release};
  f->memory.ops = &f->ops;
  f->memory.device = tdict_sim(3);
  f->cookie = &f->cookie;
  atomic_init(&f->refs, 1);
}

#endif
