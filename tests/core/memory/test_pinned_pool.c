/* Tests the pinned pool with a pinner that fails on request and with fences that the test completes. Also tests the
 * option pinned_bytes of a context. */
#include "core/memory/pinned_pool.h"

#include "core/memory/pools.h"
#include "support/threads.h"
#include "tdict/context.h"

enum { MIB = 1 << 20 };

static void give_after(tdict_memory *memory, tdict_block *block, fake_fence *f) {
  tdict_fence *fences[1] = {&f->fence};
  fake_retain(&f->fence);
  memory->ops->free(memory, block, fences, 1);
}

CASE(pinned_pool_exact_sizes) {
  static const size_t asked[] = {0, 1, PAGE, PAGE + 1, 100 * PAGE + 17, HUGE_PAGE + 1, 3 * HUGE_PAGE + PAGE};
  static const size_t given[] = {PAGE, PAGE, PAGE, 2 * PAGE, 101 * PAGE, HUGE_PAGE + PAGE, 3 * HUGE_PAGE + PAGE};
  enum { COUNT = sizeof asked / sizeof *asked };
  scoped_own_pool memory = open_pool(0);
  tdict_block blocks[COUNT];
  size_t sum = 0;
  assert_true(memory->pinned);
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = take(memory, asked[i]);
    assert_int_equal(blocks[i].bytes, given[i]);
    sum += given[i];
    assert_int_equal(td_memory_counts(memory).live_bytes, sum);
    assert_int_equal(atomic_load(&fake.allocated_bytes) + atomic_load(&fake.registered_bytes), sum);
  }
  for (int i = 0; i < COUNT; i++) give(memory, &blocks[i]);
  assert_int_equal(td_memory_counts(memory).live_bytes, 0);
  assert_int_equal(td_memory_counts(memory).cached_bytes, sum);
  assert_int_equal(td_memory_counts(memory).peak_bytes, sum);
}

CASE(pinned_pool_cuts_and_joins) {
  scoped_own_pool memory = open_pool(0);
  tdict_block a = take(memory, 8 * PAGE), b, c;
  char *data = a.data;
  give(memory, &a);
  a = take(memory, 3 * PAGE);
  b = take(memory, 4 * PAGE + 1); /* takes all five remaining pages */
  assert_ptr_equal(a.data, data);
  assert_ptr_equal(b.data, data + 3 * PAGE);
  assert_int_equal(a.bytes, 3 * PAGE);
  assert_int_equal(b.bytes, 5 * PAGE);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 0);
  give(memory, &a);
  c = take(memory, 2 * PAGE);
  give(memory, &b);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 6 * PAGE);
  tdict_pinned_pool_trim(memory, 0); /* the run is kept, because one of its blocks is live */
  assert_int_equal(td_memory_counts(memory).cached_bytes, 6 * PAGE);
  give(memory, &c);
  a = take(memory, 8 * PAGE); /* the blocks have been merged again */
  assert_ptr_equal(a.data, data);
  assert_int_equal(td_memory_counts(memory).num_allocations, 5);
  assert_int_equal(td_memory_counts(memory).num_reused, 4);
  assert_int_equal(atomic_load(&fake.allocates), 1);
  give(memory, &a);
  tdict_pinned_pool_trim(memory, 0);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 0);
  assert_int_equal(atomic_load(&fake.frees), 1);
}

/* A small block is not cut from a much larger run, because the run could then not be used as a whole. */
CASE(pinned_pool_leaves_much_larger_blocks_alone) {
  scoped_own_pool memory = open_pool(100 * PAGE);
  tdict_block large = take(memory, 17 * PAGE), small;
  char *data = large.data;
  give(memory, &large);
  small = take(memory, PAGE);
  assert_int_equal(td_memory_counts(memory).num_reused, 0);
  tdict_block other = take(memory, 82 * PAGE), second; /* the limit is reached, so `second` is cut from the run */
  second = take(memory, PAGE);
  assert_ptr_equal(second.data, data);
  give(memory, &second);
  give(memory, &other);
  give(memory, &small);
  fake.allocates_left = 0; /* now the driver cannot pin more pages either */
  large = take(memory, 82 * PAGE);
  small = take(memory, PAGE);
  second = take(memory, PAGE);
  assert_ptr_equal(second.data, data);
  give(memory, &large);
  give(memory, &small);
  give(memory, &second);
}

static tdict_block take_on(tdict_memory *memory, size_t bytes, int node) {
  tdict_block block = {0};
  td_ok(memory->ops->allocate_near(memory, bytes, node, &block, err));
  memset(block.data, 0xA5, block.bytes);
  return block;
}

/* The pool's own node is 0. Cached blocks are reused for another node only if no more pages may be pinned. */
CASE(pinned_pool_keeps_nodes_apart) {
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  pinner.node = 0;
  scoped_own_pool memory = td_made(memory, tdict_pinned_pool_create(&pinner, 30 * PAGE, &made, err));
  tdict_block zero = take(memory, 4 * PAGE), one, other;
  char *data[2] = {zero.data};
  give(memory, &zero);
  one = take_on(memory, 4 * PAGE, 1);
  data[1] = one.data;
  assert_ptr_not_equal(data[0], data[1]);
  assert_int_equal(td_memory_counts(memory).num_reused, 0);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 4 * PAGE);
  give(memory, &one);
  for (int i = 0; i < 2; i++) { /* each node reuses its own cached block, even for a smaller request */
    one = take_on(memory, (size_t)(4 - i) * PAGE, 1);
    zero = i ? take_on(memory, 4 * PAGE, 0) : take_on(memory, 4 * PAGE, -1);
    assert_ptr_equal(zero.data, data[0]);
    assert_ptr_equal(one.data, data[1]);
    give(memory, &zero);
    give(memory, &one);
  }
  one = take_on(memory, 4 * PAGE, 1);
  other = take_on(memory, 19 * PAGE, 1); /* the limit leaves three pages */
  zero = take_on(memory, 4 * PAGE, 1);
  assert_ptr_equal(zero.data, data[0]);
  give(memory, &zero);
  give(memory, &other);
  zero = take_on(memory, PAGE, 1);
  give(memory, &one);
  one = take_on(memory, 4 * PAGE, 1);
  assert_ptr_equal(one.data, data[1]);
  data[1] = other.data;
  other = take_on(memory, 3 * PAGE, 1); /* an oversized run is preferred to a block of another node */
  assert_ptr_equal(other.data, data[1]);
  give(memory, &zero);
  give(memory, &one);
  give(memory, &other);
}

CASE(pinned_pool_takes_another_node_when_no_more_can_be_pinned) {
  scoped_own_pool memory = open_pool(0);
  tdict_block a = take_on(memory, 4 * PAGE, 1), b;
  char *data = a.data;
  give(memory, &a);
  b = take_on(memory, PAGE, 1);
  fake.allocates_left = fake.registers_left = 0;
  a = take(memory, 3 * PAGE); /* the caller names no node */
  assert_ptr_equal(a.data, data + PAGE);
  give(memory, &a);
  give(memory, &b);
}

CASE(pinned_pool_reuses_blocks_after_their_fences) {
  tdict_memory *memory = open_pool(0);
  fake_fence first, second;
  fake_fence_init(&first);
  fake_fence_init(&second);
  tdict_block a = take(memory, PAGE), b;
  void *data = a.data;
  tdict_fence *fences[2] = {&first.fence, &second.fence};
  fake_retain(&first.fence);
  fake_retain(&second.fence);
  memory->ops->free(memory, &a, fences, 2);
  b = take(memory, PAGE);
  assert_ptr_not_equal(b.data, data);
  fake_fence_end(&second);
  tdict_block c = take(memory, PAGE);
  assert_ptr_not_equal(c.data, data);
  tdict_pinned_pool_trim(memory, 0); /* the trim must not free the block either */
  assert_int_equal(td_memory_counts(memory).cached_bytes, PAGE);
  assert_int_equal(atomic_load(&fake.frees), 0);
  fake_fence_end(&first);
  tdict_block d = take(memory, PAGE);
  assert_ptr_equal(d.data, data);
  assert_int_equal(atomic_load(&first.refs) + atomic_load(&second.refs), 2);
  assert_int_equal(atomic_load(&first.waits) + atomic_load(&second.waits), 0);
  give(memory, &b);
  give(memory, &c);
  give(memory, &d); /* freed without fences; the fences of its first use do not count */
  a = take(memory, PAGE);
  give(memory, &a);
  close_pool(memory);
}

CASE(pinned_pool_free_survives_enomem) {
  scoped_own_pool memory = open_pool(0);
  fake_fence fence;
  fake_fence_init(&fence);
  tdict_block a = take(memory, PAGE);
  void *data = a.data;
  pthread_t thread = td_start(fake_fence_end_later, &fence);
  td_fail_alloc(0, true);
  give_after(memory, &a, &fence); /* the fence cannot be stored, so the call waits for it */
  assert_true(td_fail_alloc_stop());
  assert_true(fake_poll(&fence.fence));
  assert_int_equal(atomic_load(&fence.refs), 1);
  pthread_join(thread, NULL);
  a = take(memory, PAGE);
  assert_ptr_equal(a.data, data);
  give(memory, &a);
}

CASE(pinned_pool_release_waits_for_fences) {
  tdict_memory *memory = open_pool(0);
  fake_fence fences[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    fake_fence_init(&fences[i]);
    tdict_block a = take(memory, (size_t)(i + 1) * PAGE);
    give_after(memory, &a, &fences[i]);
    threads[i] = td_start(fake_fence_end_later, &fences[i]);
  }
  close_pool(memory);
  for (int i = 0; i < 2; i++) {
    assert_true(fake_poll(&fences[i].fence));
    assert_int_equal(atomic_load(&fences[i].refs), 1);
    pthread_join(threads[i], NULL);
  }
}

CASE(pinned_pool_lives_as_long_as_its_storages) {
  tdict_memory *memory = open_pool(0);
  tdict_storage *s = td_made(storage, tdict_storage_create(memory, HUGE_PAGE, true, &made, err));
  assert_int_equal(s->flags, TDICT_STORAGE_PINNED);
  tdict_pinned_pool_forget_threads(memory);
  memory->ops->release(memory);
  assert_int_equal(atomic_load(&fake.refs), 1);
  memset(s->data, 1, HUGE_PAGE);
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&fake.refs), 0);
  assert_int_equal(atomic_load(&fake.unregisters), 1);
}

/* A fence whose release frees a storage of the same pool, as the fence of a transfer may. */
typedef struct holder {
  tdict_fence fence; /* first */
  tdict_storage *storage;
} holder;
static bool holder_poll(tdict_fence *f) { return f != NULL; }
static bool holder_wait(tdict_fence *f, int64_t deadline_ns) { return f && deadline_ns > 0; }
static void holder_retain(tdict_fence *f) { (void)f; }
static void holder_release(tdict_fence *f) {
  tdict_storage_release(((holder *)f)->storage);
  ((holder *)f)->storage = NULL;
}

CASE(pinned_pool_fences_may_free_storages_of_the_pool) {
  static const tdict_fence_ops ops = {holder_poll, holder_wait, NULL, holder_retain, holder_release};
  tdict_memory *memory = open_pool(0);
  holder h[2] = {{{&ops}, NULL}, {{&ops}, NULL}};
  tdict_block a[2];
  for (int i = 0; i < 2; i++) {
    tdict_fence *fences[1] = {&h[i].fence};
    td_ok(tdict_storage_create(memory, PAGE, true, &h[i].storage, err));
    a[i] = take(memory, (size_t)(i + 5) * PAGE);
    memory->ops->free(memory, &a[i], fences, 1);
  }
  a[0] = take(memory, 5 * PAGE);
  assert_null(h[0].storage);
  tdict_pinned_pool_trim(memory, 0);
  assert_null(h[1].storage);
  give(memory, &a[0]);
  close_pool(memory);
}

CASE(pinned_pool_cache_is_bounded_by_the_most_live) {
  enum { COUNT = 100 };
  scoped_own_pool memory = open_pool(0);
  static tdict_block blocks[COUNT];
  for (int i = 0; i < COUNT; i++) blocks[i] = take(memory, MIB); /* 100 MiB are live */
  for (int i = 0; i < COUNT; i++) give(memory, &blocks[i]);
  assert_int_equal(td_memory_counts(memory).cached_bytes, (size_t)COUNT * MIB);
  tdict_block other = take(memory, MIB + PAGE);
  void *oldest = blocks[0].data, *newest = blocks[COUNT - 1].data;
  give(memory, &other); /* the cache exceeds its bound, so its oldest block is freed */
  tdict_memory_counts n = td_memory_counts(memory);
  assert_true(n.cached_bytes <= (size_t)COUNT * MIB);
  assert_int_equal(n.cached_bytes, (size_t)(COUNT - 1) * MIB + MIB + PAGE - MIB);
  assert_int_equal(n.peak_bytes, (size_t)(COUNT + 1) * MIB + PAGE);
  tdict_block again = take(memory, MIB);
  assert_ptr_equal(again.data, newest); /* the newest block is reused first, because its pages are warm */
  assert_ptr_not_equal(again.data, oldest);
  give(memory, &again);
}

CASE(pinned_pool_always_keeps_64_mib) {
  scoped_own_pool memory = open_pool(0);
  for (int i = 100; i > 0; i--) { /* no cached block fits, so 80 MiB are allocated, but at most 1 MiB is live */
    tdict_block a = take(memory, MIB - (size_t)i * PAGE);
    give(memory, &a);
  }
  tdict_memory_counts n = td_memory_counts(memory);
  assert_true(n.cached_bytes <= (size_t)64 * MIB);
  assert_true(n.cached_bytes > (size_t)62 * MIB);
  assert_int_equal(n.cached_bytes, atomic_load(&fake.allocated_bytes));
}

CASE(pinned_pool_trim_gives_the_oldest_back_first) {
  scoped_own_pool memory = open_pool(0);
  tdict_block blocks[4];
  fake_fence fence;
  fake_fence_init(&fence);
  for (int i = 0; i < 4; i++) blocks[i] = take(memory, (size_t)(i + 1) * PAGE);
  give_after(memory, &blocks[0], &fence); /* `blocks[0]` is the oldest, but its fence is not complete */
  for (int i = 1; i < 4; i++) give(memory, &blocks[i]);
  tdict_pinned_pool_trim(memory, SIZE_MAX);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 10 * PAGE);
  tdict_pinned_pool_trim(memory, 9 * PAGE); /* frees the second block, which is the oldest unused one */
  assert_int_equal(td_memory_counts(memory).cached_bytes, 8 * PAGE);
  assert_int_equal(atomic_load(&fake.allocated_bytes), 8 * PAGE);
  tdict_pinned_pool_trim(memory, 0);
  assert_int_equal(td_memory_counts(memory).cached_bytes, PAGE);
  fake_fence_end(&fence);
  tdict_pinned_pool_trim(memory, 0);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 0);
  assert_int_equal(atomic_load(&fence.refs), 1);
  assert_int_equal(td_memory_counts(memory).peak_bytes, 10 * PAGE);
}

CASE(pinned_pool_reports_how_pages_were_obtained) {
  scoped_own_pool memory = open_pool(0);
  tdict_memory *plain = NULL;
  scoped_storage small = td_made(storage, tdict_storage_create(memory, PAGE, false, &made, err));
  scoped_storage large = td_made(storage, tdict_storage_create(memory, HUGE_PAGE, false, &made, err)), other = NULL;
  td_ok(tdict_storage_create(NULL, PAGE, false, &other, err));
  assert_int_equal(tdict_pinned_pool_way(memory, small), TDICT_PINNED_DRIVER);
  assert_int_equal(tdict_pinned_pool_way(memory, large), TDICT_PINNED_REGISTERED);
  assert_int_equal(tdict_pinned_pool_way(memory, other), 0);
  assert_int_equal(tdict_pinned_pool_way(plain, other), 0);
}

static void check_refused(tdict_memory *memory, size_t bytes, tdict_status wanted, const char *text) {
  tdict_memory_counts before = td_memory_counts(memory);
  tdict_block block = {0};
  td_fails(wanted, text, memory->ops->allocate(memory, bytes, &block, err));
  tdict_memory_counts after = td_memory_counts(memory);
  assert_null(block.data);
  assert_memory_equal(&before, &after, sizeof before);
}

CASE(pinned_pool_refusal_changes_no_count) {
  tdict_memory *memory = open_pool(2 * HUGE_PAGE); /* the limit leaves no room for refused bytes */
  tdict_block a = take(memory, HUGE_PAGE);
  fake.registers_left = fake.allocates_left = 0;
  check_refused(memory, HUGE_PAGE, TDICT_ENOMEM, "allocate refused"); /* both registering and allocating fail */
  check_refused(memory, PAGE, TDICT_ENOMEM, "allocate refused");
  check_refused(memory, SIZE_MAX, TDICT_EOVERFLOW, "do not fit");
  td_fail_alloc(0, true);
  check_refused(memory, PAGE, TDICT_ENOMEM, "record");
  td_fail_alloc_stop();
  fake.allocates_left = -1;
  tdict_block b = take(memory, HUGE_PAGE); /* the driver allocates `b` */
  assert_int_equal(td_memory_counts(memory).live_bytes, 2 * HUGE_PAGE);
  give(memory, &a);
  give(memory, &b);
  memory->ops->release(memory);
  assert_int_equal(atomic_load(&fake.allocated_bytes) + atomic_load(&fake.registered_bytes), 0);
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  memory = NULL;
  td_fail_alloc(0, true);
  td_fails(TDICT_ENOMEM, "pool", tdict_pinned_pool_create(&pinner, 0, &memory, err));
  td_fail_alloc_stop();
  assert_null(memory);
  assert_int_equal(atomic_load(&fake.refs), 0);
}

/* The cache may hold the memory that the driver lacks, so the pool empties its cache before it refuses a request. */
CASE(pinned_pool_drops_its_cache_before_it_refuses) {
  tdict_memory *memory = open_pool(0);
  tdict_block a = take(memory, 2 * PAGE);
  give(memory, &a);
  fake.registers_left = fake.allocates_left = 0;
  tdict_block block;
  td_fails(TDICT_ENOMEM, "allocate refused", memory->ops->allocate(memory, 3 * PAGE, &block, err));
  assert_int_equal(atomic_load(&fake.allocates), 3); /* the pool empties its cache before the third call */
  assert_int_equal(atomic_load(&fake.frees), 1);
  assert_int_equal(td_memory_counts(memory).cached_bytes, 0);
  memory->ops->release(memory);
}

CASE(pinned_pool_limit_trims_the_cache) {
  scoped_own_pool memory = open_pool(10 * PAGE);
  tdict_block a = take(memory, 4 * PAGE), b = take(memory, 6 * PAGE);
  check_refused(memory, 1, TDICT_ENOMEM, "pinned_bytes");
  give(memory, &a);
  give(memory, &b);
  b = take(memory, 7 * PAGE); /* larger than both cached blocks, so both are freed */
  assert_int_equal(td_memory_counts(memory).cached_bytes, 0);
  assert_int_equal(atomic_load(&fake.allocated_bytes), 7 * PAGE);
  tdict_block c = take(memory, PAGE);
  check_refused(memory, 3 * PAGE, TDICT_ENOMEM, "pinned_bytes");
  fake_fence fence;
  fake_fence_init(&fence);
  give_after(memory, &b, &fence);
  check_refused(memory, 9 * PAGE, TDICT_ENOMEM, "still in use");
  fake_fence_end(&fence);
  b = take(memory, 9 * PAGE);
  assert_int_equal(td_memory_counts(memory).live_bytes, 10 * PAGE);
  assert_int_equal(td_memory_counts(memory).peak_bytes, 10 * PAGE);
  give(memory, &b);
  give(memory, &c);
  check_refused(memory, 11 * PAGE, TDICT_ENOMEM, "pinned_bytes");
  assert_int_equal(atomic_load(&fake.most_bytes), 10 * PAGE);         /* the limit was never exceeded */
  assert_int_equal(td_memory_counts(memory).cached_bytes, 10 * PAGE); /* a request above the limit frees nothing */
}

/* A fallback is logged once, even if it happens often. */
static atomic_int lines;
static void count_line(void *user, int32_t level, const char *text) {
  (void)user;
  assert_int_equal(level, TDICT_LOG_WARNING);
  assert_non_null(strstr(text, "by the driver: fake: register refused"));
  atomic_fetch_add(&lines, 1);
}

CASE(pinned_pool_logs_each_fallback_once) {
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  td_ok(tdict_log_create(count_line, NULL, &pinner.log, err));
  tdict_memory *memory = td_made(memory, tdict_pinned_pool_create(&pinner, 0, &made, err));
  tdict_block small = take(memory, PAGE), blocks[3];
  assert_int_equal(atomic_load(&lines), 0); /* the driver always allocates small blocks */
  fake.registers_left = 0;
  for (int i = 0; i < 3; i++) blocks[i] = take(memory, HUGE_PAGE);
  assert_int_equal(atomic_load(&lines), 1);
  for (int i = 0; i < 3; i++) give(memory, &blocks[i]);
  give(memory, &small);
  close_pool(memory);
  tdict_log_release(pinner.log);
}

/* Pinned tensors and trees that exceed the option pinned_bytes are refused, and the pool can still be used. */
GPU_CASE(pinned_pool_limit) {
  scoped_context c = td_context(td_options(tdict_context_options, pinned_bytes = (size_t)MIB));
  scoped_tensor half = NULL, more = NULL;
  scoped_tree td = NULL, pinned = NULL;
  int64_t shape[1] = {MIB / 2}, large[1] = {MIB / 2 + 1};
  td_ok(tdict_tensor_empty(TDICT_U8, 1, shape, tdict_pinned_memory(c), &half, err));
  td_fails(TDICT_ENOMEM, "pinned_bytes", tdict_tensor_empty(TDICT_U8, 1, large, tdict_pinned_memory(c), &more, err));
  td_ok(tdict_create(0, NULL, &td, err));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, large, NULL, &more, err));
  td_fill_random(tdict_tensor_data(more), (size_t)large[0], 5);
  td_ok(tdict_set(td, "more", more, err));
  td_fails(TDICT_ENOMEM, "pinned_bytes", tdict_pin_memory(c, td, NULL, &pinned, err));
  assert_null(pinned);
  assert_int_equal(td_memory_counts(tdict_pinned_memory(c)).live_bytes, MIB / 2);
  td_release(half); /* the next call must free this cached block to stay within the limit */
  td_ok(tdict_pin_memory(c, td, NULL, &pinned, err));
  assert_memory_equal(tdict_const_data(pinned, "more"), tdict_tensor_const_data(more), (size_t)large[0]);
  assert_true(td_memory_counts(tdict_pinned_memory(c)).peak_bytes <= MIB);
}
