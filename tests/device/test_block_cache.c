/* Tests the cache of freed blocks: which allocations reuse a block, and which blocks are kept or freed. */
#include "device/block_cache.h"

#include "device/gpu_help.h"
#include "device/use.h"
#include "support/threads.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static shim counting;
static int num_allocs, num_frees;
static tdict_cu count_alloc(tdict_driver *d, void **out, size_t bytes, tdict_cu_pool pool, tdict_cu_stream stream) {
  num_allocs++;
  return counting.real->mem_alloc_async(d, out, bytes, pool, stream);
}
static tdict_cu count_free(tdict_driver *d, void *data, tdict_cu_stream stream) {
  num_frees++;
  return counting.real->mem_free_async(d, data, stream);
}
static void begin_counting(fixture *b) {
  shim_begin(&counting, b->d);
  counting.ops.mem_alloc_async = count_alloc;
  counting.ops.mem_free_async = count_free;
  num_allocs = num_frees = 0;
}

static void give(const fixture *b, tdict_block *block) { b->memory->ops->free(b->memory, block, NULL, 0); }

GPU_CASE(kept_blocks_are_reused_without_the_driver) {
  scoped_fixture b = fixture_open(NULL);
  tdict_block first = fixture_take(&b, MIB), again;
  begin_counting(&b);
  for (int i = 0; i < 10; i++) {
    give(&b, &first);
    again = fixture_take(&b, MIB);
    assert_ptr_equal(again.data, first.data);
    first = again;
  }
  assert_int_equal(num_allocs + num_frees, 0);
  tdict_memory_counts n = fixture_memory(&b);
  assert_int_equal(n.live_bytes, MIB);
  assert_int_equal(n.num_allocations, 11);
  assert_int_equal(n.num_reused, 10);
  give(&b, &first);
  n = fixture_memory(&b);
  assert_int_equal(n.live_bytes, 0);
  assert_true(n.cached_bytes >= MIB && n.peak_bytes >= n.cached_bytes);
  tdict_context_trim(b.context, td_device(), 0);
  assert_int_equal(num_frees, 1);
  assert_int_equal(fixture_memory(&b).cached_bytes, 0);
  shim_end(&counting, b.d);
}

/* An allocation reuses the smallest block that fits and is at most an eighth too large. The excess counts as live. */
GPU_CASE(kept_blocks_are_reused_by_size) {
  scoped_fixture b = fixture_open(NULL);
  tdict_block small = fixture_take(&b, 900 * KIB), fits = fixture_take(&b, 1000 * KIB),
              large = fixture_take(&b, 1024 * KIB);
  void *at[3] = {small.data, fits.data, large.data};
  give(&b, &fits);
  give(&b, &large);
  give(&b, &small);
  tdict_block got = fixture_take(&b, 950 * KIB);
  assert_ptr_equal(got.data, at[1]);
  assert_int_equal(got.bytes, 1000 * KIB);
  assert_int_equal(fixture_memory(&b).live_bytes, 1000 * KIB);
  tdict_block next = fixture_take(&b, 950 * KIB);
  assert_ptr_equal(next.data, at[2]);
  begin_counting(&b);
  tdict_block none = fixture_take(&b, 799 * KIB); /* 900 KiB would be more than an eighth too large */
  assert_int_equal(num_allocs, 1);
  assert_int_equal(none.bytes, 799 * KIB);
  shim_end(&counting, b.d);
  give(&b, &none);
  give(&b, &next);
  give(&b, &got);
}

/* The cache is limited by device_cache_bytes, by the peak of the bytes in use, and by the length of its list. The
 * oldest blocks are freed first. */
GPU_CASE(kept_blocks_are_bounded) {
  scoped_fixture b = fixture_open(td_options(tdict_context_options, device_cache_bytes = MIB));
  tdict_block blocks[TDICT_KEPT_BLOCKS + 8];
  for (int i = 0; i < 3; i++) blocks[i] = fixture_take(&b, 512 * KIB);
  begin_counting(&b);
  for (int i = 0; i < 3; i++) give(&b, &blocks[i]);
  assert_int_equal(num_frees, 1);
  assert_int_equal(b.gpu->kept.bytes, MIB);
  assert_ptr_equal(b.gpu->kept.blocks[0].data, blocks[1].data);
  tdict_block two = fixture_take(&b, 2 * MIB);
  give(&b, &two); /* the block is larger than the limit of the cache */
  assert_int_equal(b.gpu->kept.bytes, MIB);
  shim_end(&counting, b.d);
  fixture_close(&b);

  b = fixture_open(NULL);
  enum { MANY = TDICT_KEPT_BLOCKS + 8 };
  for (int i = 0; i < MANY; i++) blocks[i] = fixture_take(&b, 4 * KIB);
  for (int i = 0; i < MANY; i++) give(&b, &blocks[i]);
  assert_int_equal(b.gpu->kept.count, TDICT_KEPT_BLOCKS);
  assert_int_equal(b.gpu->kept.bytes, TDICT_KEPT_BLOCKS * 4 * KIB);
  tdict_gpu_trim(b.gpu, 8 * KIB);
  assert_int_equal(b.gpu->kept.count, 2);
  tdict_block large = fixture_take(&b, 96 * MIB), other = fixture_take(&b, 97 * MIB);
  give(&b, &large);
  give(&b, &other);
  assert_int_equal(b.gpu->kept.bytes, 193 * MIB); /* the peak of the live bytes */
}

typedef struct held {
  atomic_bool open;
} held;
static void hold(void *user) {
  while (!atomic_load(&((held *)user)->open)) usleep(100);
}
/* Creates a stream on which `kernel` runs, and a use of the stream. The use completes when the test ends the kernel. */
static tdict_fence *use_held(const fixture *b, held *kernel, tdict_stream *stream) {
  tdict_fence *use = NULL;
  td_ok(tdict_stream_create(b->context, td_device(), stream, err));
  td_ok(tdict_sim_launch(*stream, hold, kernel, err));
  td_ok(tdict_use_create(b->gpu, stream->handle, NULL, &use, err));
  return use;
}

/* If a stream still uses a kept block, an allocation gets another kept block or a new one. After the use, the block can
 * be reused. */
SIM_CASE(kept_blocks_are_reused_after_their_uses) {
  scoped_fixture b = fixture_open(NULL);
  tdict_stream s;
  held kernel = {false};
  tdict_fence *use = use_held(&b, &kernel, &s);
  tdict_block busy = fixture_take(&b, MIB), ready = fixture_take(&b, MIB);
  void *where = busy.data;
  give(&b, &ready);
  tdict_fence *fences[1] = {use};
  b.memory->ops->free(b.memory, &busy, fences, 1);
  tdict_device_counts counts = fixture_counts(&b);
  tdict_block first = fixture_take(&b, MIB), second = fixture_take(&b, MIB);
  assert_ptr_equal(first.data, ready.data);
  assert_ptr_not_equal(second.data, where);
  atomic_store(&kernel.open, true);
  b.d->ops->stream_synchronize(b.d, b.gpu->free_stream);
  tdict_block third = fixture_take(&b, MIB);
  assert_ptr_equal(third.data, where);
  assert_int_equal(fixture_counts(&b).num_events, counts.num_events); /* the event was returned */
  give(&b, &first);
  give(&b, &second);
  give(&b, &third);
  tdict_stream_destroy(b.context, s);
}

/* When a context is released, it frees its kept blocks, even a block whose use was never queried. */
SIM_CASE(kept_blocks_are_freed_with_their_gpu) {
  fixture b = fixture_open(NULL);
  tdict_stream s;
  held kernel = {false};
  tdict_fence *use = use_held(&b, &kernel, &s);
  tdict_block busy = fixture_take(&b, MIB);
  tdict_fence *fences[1] = {use};
  b.memory->ops->free(b.memory, &busy, fences, 1);
  scoped_driver d = tdict_driver_retain(b.d);
  atomic_store(&kernel.open, true);
  b.d->ops->stream_synchronize(b.d, s.handle);
  tdict_stream_destroy(b.context, s);
  fixture_close(&b);
  tdict_driver_sim_count left;
  tdict_driver_sim_counts(d, 0, &left);
  assert_int_equal(left.num_allocations, 0);
}

typedef struct freeing {
  const fixture *b;
  size_t most; /* the most kept bytes that the thread saw */
} freeing;
static void *take_and_give(void *user) {
  freeing *f = user;
  tdict_block_cache *kept = &f->b->gpu->kept;
  for (int i = 0; i < 100000; i++) {
    tdict_block block = fixture_take(f->b, 256 * KIB);
    give(f->b, &block);
    pthread_mutex_lock(&kept->lock);
    if (kept->bytes > f->most) f->most = kept->bytes;
    pthread_mutex_unlock(&kept->lock);
  }
  return NULL;
}
/* Several threads free blocks at once. The cache never exceeds its limit. */
GPU_CASE(kept_blocks_are_bounded_for_many_threads) {
  enum { THREADS = 8 };
  scoped_fixture b = fixture_open(td_options(tdict_context_options, device_cache_bytes = 512 * KIB));
  freeing f[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    f[i] = (freeing){&b, 0};
    threads[i] = td_start(take_and_give, &f[i]);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < THREADS; i++) assert_in_range(f[i].most, 0, 512 * KIB);
}
