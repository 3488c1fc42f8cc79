/* Tests a pinned pool with a limit while several threads allocate from it. */

#include "core/memory/pools.h"
#include "support/threads.h"

/* While one allocation is in progress, other allocations get only what it leaves of the limit. */
static tdict_memory *limited;
static tdict_block between;
static tdict_status second, third;
static tdict_status allocate_meanwhile(void *pages, size_t bytes) {
  tdict_block none;
  (void)pages, (void)bytes;
  assert_int_equal(td_memory_counts(limited).live_bytes, 0); /* the first allocation does not count as live yet */
  second = limited->ops->allocate(limited, HUGE_PAGE - PAGE, &between, NULL);
  third = limited->ops->allocate(limited, 1, &none, NULL);
  return TDICT_OK;
}

CASE(pinned_pool_limit_counts_pending_allocations) {
  limited = open_pool(2 * HUGE_PAGE);
  fake.on_register = allocate_meanwhile;
  tdict_block a = take(limited, HUGE_PAGE + PAGE);
  assert_int_equal(second, TDICT_OK);
  assert_int_equal(third, TDICT_ENOMEM);
  assert_int_equal(td_memory_counts(limited).peak_bytes, 2 * HUGE_PAGE);
  give(limited, &a);
  give(limited, &between);
  limited->ops->release(limited);
}

static pthread_t waiting;
static void *take_three_pages(void *user) {
  second = limited->ops->allocate(limited, 3 * PAGE, &between, NULL);
  return user;
}
static void take_meanwhile(void) {
  waiting = td_start(take_three_pages, NULL);
  td_rest();
}

CASE(pinned_pool_limit_waits_for_a_thread_that_unpins) {
  limited = open_pool(4 * PAGE);
  tdict_block a = take(limited, 4 * PAGE);
  give(limited, &a);
  fake.on_free = take_meanwhile;
  tdict_pinned_pool_trim(limited, 0);
  pthread_join(waiting, NULL);
  assert_int_equal(second, TDICT_OK);
  assert_int_equal(atomic_load(&fake.most_bytes), 4 * PAGE);
  fake.on_free = NULL;
  give(limited, &between);
  close_pool(limited);
}

typedef struct taker {
  tdict_memory *memory;
  bool trims;
  atomic_int refused, wrong;
} taker;
/* Takes up to 4 pages at a time and checks the 6-page limit. If `trims` is true, takes up to 12 and sometimes trims. */
static void *take_often(void *user) {
  taker *t = user;
  for (int i = 0; i < (t->trims ? 200 : 300); i++) {
    tdict_block block;
    const int pages = t->trims ? 1 + i * 7 % 12 : i % 5;
    if (t->memory->ops->allocate(t->memory, (size_t)pages * PAGE, &block, NULL) != TDICT_OK) {
      atomic_fetch_add(&t->refused, 1);
      continue;
    }
    memset(block.data, i, block.bytes); /* a sanitizer reports a race if another thread also has the block */
    tdict_memory_counts n = td_memory_counts(t->memory);
    if (!t->trims && n.live_bytes + n.cached_bytes > 6 * PAGE) atomic_fetch_add(&t->wrong, 1);
    if (t->trims && i % 16 == 0) tdict_pinned_pool_trim(t->memory, 0);
    t->memory->ops->free(t->memory, &block, NULL, 0);
  }
  return NULL;
}

CASE(pinned_pool_limit_holds_for_many_threads) {
  taker t = {.memory = open_pool(6 * PAGE)};
  atomic_init(&t.refused, 0);
  atomic_init(&t.wrong, 0);
  td_in_threads(4, take_often, &t, 0);
  tdict_memory_counts n = td_memory_counts(t.memory);
  assert_int_equal(atomic_load(&t.wrong), 0);
  assert_int_equal(n.live_bytes, 0);
  assert_true(n.peak_bytes <= 6 * PAGE);
  assert_int_equal(n.num_allocations + atomic_load(&t.refused), 4 * 300);
  close_pool(t.memory);
}

/* Pages count against the limit until they are unpinned. Blocks of many sizes evict each other. */
CASE(pinned_pool_limit_holds_at_every_moment) {
  taker t = {.memory = open_pool(16 * PAGE), .trims = true};
  atomic_init(&t.refused, 0);
  td_in_threads(4, take_often, &t, 0);
  assert_true(atomic_load(&fake.most_bytes) <= 16 * PAGE);
  assert_true(atomic_load(&fake.most_bytes) > 8 * PAGE);
  assert_true(td_memory_counts(t.memory).peak_bytes <= 16 * PAGE);
  assert_int_equal(td_memory_counts(t.memory).live_bytes, 0);
  close_pool(t.memory);
}
