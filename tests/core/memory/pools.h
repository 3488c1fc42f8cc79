/* Makes pinned pools whose pinner fails on request. */
#ifndef TDICT_TESTS_CORE_MEMORY_POOLS_H
#define TDICT_TESTS_CORE_MEMORY_POOLS_H

#include "core/memory/fakes.h"
#include "core/memory/pinned_pool.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static fake_pinner fake;
static inline tdict_memory *open_pool(size_t limit_bytes) {
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  tdict_memory *memory = td_made(memory, tdict_pinned_pool_create(&pinner, limit_bytes, &made, err));
  assert_int_equal(atomic_load(&fake.refs), 1);
  return memory;
}
static inline void close_pool(tdict_memory *memory) {
  memory->ops->release(memory);
  assert_int_equal(atomic_load(&fake.refs), 0);
  assert_int_equal(atomic_load(&fake.allocated_bytes) + atomic_load(&fake.registered_bytes), 0);
}
TD_DECLARE_SCOPED(own_pool, tdict_memory, close_pool)
#define scoped_own_pool TD_SCOPED_NAMED(own_pool) /* of open_pool() */
static inline tdict_block take(tdict_memory *memory, size_t bytes) {
  tdict_block block = {0};
  td_ok(memory->ops->allocate(memory, bytes, &block, err));
  memset(block.data, 0xA5, block.bytes);
  return block;
}
static inline void give(tdict_memory *memory, tdict_block *block) { memory->ops->free(memory, block, NULL, 0); }

#endif
