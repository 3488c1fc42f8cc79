/* Tests device memory: sizes, counts, reuse, copies of rectangles in three directions, and the state after failures. */
#include "device/gpu.h"

#include "core/memory/pinned_pool.h"
#include "device/counted.h"
#include "device/gpu_help.h"
#include "support/threads.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

GPU_CASE(gpu_memory_exact_sizes) {
  static const size_t asked[] = {0, 1, 255, 256, 257, 1000000, 5 * MIB + 1};
  enum { COUNT = sizeof asked / sizeof *asked };
  scoped_fixture b = fixture_open(NULL);
  tdict_block blocks[COUNT];
  size_t sum = 0;
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = fixture_take(&b, asked[i]);
    size_t rounded = asked[i] ? (asked[i] + 255) / 256 * 256 : 256;
    sum += rounded;
    assert_int_equal(blocks[i].bytes, rounded);
    assert_int_equal((uintptr_t)blocks[i].data % 256, 0);
    assert_int_equal(fixture_memory(&b).live_bytes, sum);
    assert_int_equal(fixture_memory(&b).num_allocations, i + 1);
    assert_true(fixture_memory(&b).peak_bytes >= sum + fixture_memory(&b).cached_bytes);
  }
  for (int i = 0; i < COUNT; i++)
    for (int k = 0; k < COUNT; k++) { /* no block overlaps another */
      char *begin = blocks[i].data, *other = blocks[k].data;
      assert_true(i == k || other >= begin + blocks[i].bytes || other + blocks[k].bytes <= begin);
    }
  tdict_device_counts n = fixture_counts(&b);
  assert_int_equal(n.device_bytes, sum);
  for (int i = 0; i < COUNT; i++) fixture_give(&b, &blocks[i]);
  assert_int_equal(fixture_memory(&b).live_bytes, 0);
  assert_true(fixture_memory(&b).peak_bytes >= sum);
}

GPU_CASE(gpu_memory_reuses_freed_blocks) {
  scoped_fixture b = fixture_open(NULL);
  tdict_memory_counts n;
  tdict_block block = fixture_take(&b, 64 * MIB);
  fixture_give(&b, &block);
  n = fixture_memory(&b);
  assert_int_equal(n.live_bytes, 0);
  assert_true(n.cached_bytes >= (size_t)64 * MIB);
  size_t peak = n.peak_bytes;
  for (int i = 0; i < 5; i++) {
    block = fixture_take(&b, 64 * MIB);
    fixture_give(&b, &block);
  }
  n = fixture_memory(&b);
  assert_int_equal(n.num_allocations, 6);
  assert_int_equal(n.num_reused, 5);
  assert_int_equal(n.peak_bytes, peak);
  assert_true(peak >= (size_t)64 * MIB && peak < (size_t)128 * MIB);
}

GPU_CASE(gpu_memory_trims) {
  scoped_fixture b = fixture_open(NULL);
  tdict_block block = fixture_take(&b, 64 * MIB);
  b.memory->ops->free(b.memory, &block, NULL, 0);
  tdict_gpu_trim(b.gpu, SIZE_MAX);
  assert_true(fixture_memory(&b).cached_bytes >= (size_t)64 * MIB);
  tdict_gpu_trim(b.gpu, 0); /* waits for the queued free */
  assert_int_equal(fixture_memory(&b).cached_bytes, 0);
}

GPU_CASE(gpu_memory_without_cache) {
  scoped_fixture b = fixture_open(td_options(tdict_context_options, device_cache_bytes = 0));
  tdict_block block = fixture_take(&b, 64 * MIB);
  fixture_give(&b, &block);
  assert_int_equal(fixture_memory(&b).cached_bytes, 0);
}

static const tdict_driver_ops *real_ops;
static _Atomic(int) plain_allocations, plain_frees;
static tdict_cu count_alloc(tdict_driver *d, void **out, size_t bytes) {
  atomic_fetch_add(&plain_allocations, 1);
  return real_ops->mem_alloc(d, out, bytes);
}
static tdict_cu count_free(tdict_driver *d, void *data) {
  atomic_fetch_add(&plain_frees, 1);
  return real_ops->mem_free(d, data);
}
enum { LARGE = 512 * MIB };
static void take_large(size_t cache_bytes, bool plain) {
  scoped_fixture b = fixture_open(td_options(tdict_context_options, device_cache_bytes = cache_bytes));
  shim s;
  shim_begin(&s, b.d);
  real_ops = s.real;
  s.ops.mem_alloc = count_alloc;
  s.ops.mem_free = count_free;
  atomic_store(&plain_allocations, 0);
  atomic_store(&plain_frees, 0);
  tdict_block block = fixture_take(&b, LARGE), small = fixture_take(&b, LARGE - 256);
  assert_int_equal(atomic_load(&plain_allocations), plain);
  const void *first = block.data;
  assert_int_equal(fixture_memory(&b).live_bytes, 2 * (size_t)LARGE - 256);
  assert_true(fixture_memory(&b).peak_bytes >= 2 * (size_t)LARGE - 256);
  fixture_give(&b, &small);
  fixture_give(&b, &block);
  if (plain) {
    assert_true(fixture_memory(&b).cached_bytes >= (size_t)LARGE);
    block = fixture_take(&b, LARGE);
    assert_ptr_equal(block.data, first);
    fixture_give(&b, &block);
    assert_int_equal(atomic_load(&plain_allocations), 1);
    assert_int_equal(atomic_load(&plain_frees), 0);
  }
  tdict_gpu_trim(b.gpu, 0);
  assert_int_equal(atomic_load(&plain_frees), plain);
  assert_int_equal(fixture_memory(&b).cached_bytes, 0);
  assert_int_equal(fixture_counts(&b).device_bytes, 0);
  shim_end(&s, b.d);
}
/* Large blocks are allocated by mem_alloc(), and are cached and counted like other blocks. A block that the cache would
 * not keep is allocated from the pool. */
GPU_CASE(gpu_memory_large_blocks_come_from_the_driver) { take_large(SIZE_MAX, true); }
GPU_CASE(gpu_memory_large_blocks_that_are_not_kept) { take_large(LARGE - 1, false); }

static void check_refused(fixture *b, size_t bytes, tdict_status wanted, const char *text) {
  tdict_memory_counts before = fixture_memory(b), after;
  tdict_block block = {0};
  td_fails(wanted, text, b->memory->ops->allocate(b->memory, bytes, &block, err));
  after = fixture_memory(b);
  assert_null(block.data);
  assert_int_equal(after.live_bytes, before.live_bytes);
  assert_int_equal(after.peak_bytes, before.peak_bytes);
  assert_int_equal(after.num_allocations, before.num_allocations);
}

GPU_CASE(gpu_memory_reports_out_of_memory) {
  scoped_fixture b = fixture_open(NULL);
  tdict_block block = fixture_take(&b, 512);
  check_refused(&b, (size_t)1 << 50, TDICT_ENOMEM, "no room for 1125899906842624 bytes beside the 512 that are live");
  assert_int_equal(td_last_error.native, TDICT_CU_OUT_OF_MEMORY);
  check_refused(&b, SIZE_MAX, TDICT_EOVERFLOW, "18446744073709551615");
  tdict_block other = fixture_take(&b, MIB); /* allocation still works */
  fixture_give(&b, &other);
  fixture_give(&b, &block);
}

typedef struct slow_free {
  atomic_bool asked, passed;
} slow_free;
static void take_a_while(void *user) {
  slow_free *f = user;
  while (!atomic_load(&f->asked)) usleep(100);
  td_rest(); /* until the allocation waits */
  atomic_store(&f->passed, true);
}

/* Memory whose free is queued counts as available: the allocation waits for the free and does not fail. */
SIM_CASE(gpu_memory_waits_for_queued_frees) {
  tdict_context_options o = tdict_context_options_default();
  o.sim = td_options(tdict_sim_options, memory_bytes = 16 * MIB);
  scoped_fixture b = fixture_open(&o);
  slow_free f = {false, false};
  tdict_block block = fixture_take(&b, 12 * MIB);
  td_ok(tdict_sim_launch((tdict_stream){td_device(), b.gpu->free_stream}, take_a_while, &f, err));
  b.memory->ops->free(b.memory, &block, NULL, 0);
  assert_false(atomic_load(&f.passed));
  atomic_store(&f.asked, true);
  block = fixture_take(&b, 10 * MIB);
  assert_true(atomic_load(&f.passed));
  fixture_give(&b, &block);
  block = fixture_take(&b, 13 * MIB); /* now the memory of the cached block is needed, too */
  fixture_give(&b, &block);
}

static bool slow_poll(tdict_fence *fence) { return fence == NULL; }
static bool slow_wait(tdict_fence *fence, int64_t deadline_ns) {
  atomic_bool **seen = (atomic_bool **)(fence + 1);
  (void)deadline_ns;
  td_rest();
  atomic_store(*seen, true);
  return true;
}
static void slow_count(tdict_fence *fence) { (void)fence; }

static atomic_bool waited, freed_too_early;
static shim freeing;
static tdict_cu note_free(tdict_driver *d, void *data, tdict_cu_stream stream) {
  if (!atomic_load(&waited)) atomic_store(&freed_too_early, true);
  return freeing.real->mem_free_async(d, data, stream);
}

SIM_CASE(gpu_memory_is_freed_after_its_fences) {
  static const tdict_fence_ops ops = {slow_poll, slow_wait, NULL, slow_count, slow_count};
  struct {
    tdict_fence fence;
    atomic_bool *seen;
  } slow = {{&ops}, &waited};
  scoped_fixture b = fixture_open(NULL);
  tdict_fence *fences[1] = {&slow.fence};
  tdict_block block = fixture_take(&b, 4096);
  shim_begin(&freeing, b.d);
  freeing.ops.mem_free_async = note_free;
  b.memory->ops->free(b.memory, &block, fences, 1);
  shim_end(&freeing, b.d);
  assert_true(atomic_load(&waited));
  assert_false(atomic_load(&freed_too_early));
}

/* A rectangle that is copied by the library and by a plain loop. Other bytes of the destination stay 0xA5. */
typedef struct rect_case {
  size_t width, height;
  int64_t dst_pitch, src_pitch;
} rect_case;
static const rect_case rects[] = {
    {1, 1, 1, 1},     {100, 1, -7, 3},      {64, 10, 64, 64},   {64, 10, 100, 64},      {64, 10, 64, 100},
    {33, 17, 40, 55}, {33, 17, -40, 55},    {33, 17, 40, -55},  {33, 17, -33, -33},     {16, 9, 32, 0},
    {16, 9, 32, 5},   {700, 300, 900, 701}, {700, 1, 700, 700}, {4096, 30, 4096, 4096},
};
enum { ROOM = MIB }; /* bytes of each buffer; a rectangle begins in the middle of one */

static void copy_by_loops(const rect_case *r, unsigned char *dst, const unsigned char *src) {
  for (size_t i = 0; i < r->height; i++)
    memcpy(dst + ROOM / 2 + (int64_t)i * r->dst_pitch, src + ROOM / 2 + (int64_t)i * r->src_pitch, r->width);
}

static void check_copies(fixture *b, raw_memory *raw, tdict_direction direction) {
  scoped_bytes source = malloc(ROOM), wanted = malloc(ROOM), found = malloc(ROOM);
  tdict_block src = fixture_take(b, ROOM), dst = fixture_take(b, ROOM);
  assert_true(source && wanted && found);
  for (size_t i = 0; i < sizeof rects / sizeof *rects; i++) {
    const rect_case *r = &rects[i];
    td_fill_random(source, ROOM, 100 + i);
    memset(wanted, 0xA5, ROOM);
    memset(found, 0xA5, ROOM);
    copy_by_loops(r, wanted, source);
    raw_write(raw, src.data, source, ROOM);
    raw_fill(raw, dst.data, 0xA5, ROOM);
    unsigned char *to = direction == TDICT_COPY_OUT ? found : dst.data;
    const unsigned char *from = direction == TDICT_COPY_IN ? source : src.data;
    tdict_rect rect = {to + ROOM / 2, from + ROOM / 2, r->dst_pitch, r->src_pitch, r->width, r->height};
    td_ok(b->memory->ops->copy(b->memory, &rect, direction, err));
    if (direction != TDICT_COPY_OUT) raw_read(raw, found, dst.data, ROOM);
    if (memcmp(found, wanted, ROOM) != 0) fail_msg("rectangle %zu in direction %d differs", i, (int)direction);
  }
  fixture_give(b, &src);
  fixture_give(b, &dst);
}

GPU_CASE(gpu_memory_copies_rectangles) {
  scoped_fixture b = fixture_open(NULL);
  scoped_raw raw = raw_open(b.context, td_device());
  check_copies(&b, raw, TDICT_COPY_IN);
  check_copies(&b, raw, TDICT_COPY_OUT);
  check_copies(&b, raw, TDICT_COPY_WITHIN);
}

/* Copies to the host are split if a row is wider than the pinned buffer, or if the buffer cannot hold all rows. */
GPU_CASE(gpu_memory_copies_to_host_in_pieces) {
  static const rect_case large[] = {{3 * MIB + 5, 2, 3 * MIB + 7, 3 * MIB + 11},
                                    {700, 5000, 750, 800},
                                    {TDICT_GPU_BOUNCE_BYTES, 3, TDICT_GPU_BOUNCE_BYTES, TDICT_GPU_BOUNCE_BYTES},
                                    {TDICT_GPU_BOUNCE_BYTES + 1, 1, 0, 0}};
  enum { BYTES = 7 * MIB };
  scoped_fixture b = fixture_open(NULL);
  scoped_raw raw = raw_open(b.context, td_device());
  scoped_bytes source = malloc(BYTES), found = malloc(BYTES);
  tdict_block block = fixture_take(&b, BYTES);
  assert_true(source && found);
  td_fill_random(source, BYTES, 3);
  raw_write(raw, block.data, source, BYTES);
  for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
    const rect_case *r = &large[i];
    tdict_rect rect = {found, block.data, r->dst_pitch, r->src_pitch, r->width, r->height};
    memset(found, 0xA5, BYTES);
    td_ok(b.memory->ops->copy(b.memory, &rect, TDICT_COPY_OUT, err));
    for (size_t row = 0; row < r->height; row++) {
      const unsigned char *at = found + (int64_t)row * r->dst_pitch;
      assert_memory_equal(at, source + (int64_t)row * r->src_pitch, r->width);
      size_t gap = row + 1 < r->height ? (size_t)r->dst_pitch - r->width : 1;
      assert_true(td_all_bytes(at + r->width, gap, 0xA5));
    }
  }
  assert_true(fixture_counts(&b).pinned_bytes <= TDICT_GPU_BOUNCE_BYTES);
  fixture_give(&b, &block);
}

static shim pitching;
static tdict_cu refuse_long_pitch(tdict_driver *d, const tdict_cu_rect *r, tdict_cu_stream stream) {
  if (r->dst_pitch > INT32_MAX || r->src_pitch > INT32_MAX) return TDICT_CU_INVALID_VALUE; /* as real drivers do */
  return pitching.real->copy_rect_async(d, r, stream);
}

GPU_CASE(gpu_queue_rect_rows_far_apart) {
  enum { WIDTH = 5000 };
  static const int64_t pitch = ((int64_t)1 << 31) + 512;
  scoped_fixture b = fixture_open(NULL);
  scoped_raw raw = raw_open(b.context, td_device());
  unsigned char source[2 * WIDTH], found[2 * WIDTH];
  tdict_block block = fixture_take(&b, (size_t)pitch + WIDTH);
  bool is_sim = td_device().type == TDICT_DEVICE_SIM;
  td_fill_random(source, sizeof source, 8);
  if (is_sim) {
    shim_begin(&pitching, b.d);
    pitching.ops.copy_rect_async = refuse_long_pitch;
  }
  td_ok(b.memory->ops->copy(b.memory, &(tdict_rect){block.data, source, pitch, WIDTH, WIDTH, 2}, TDICT_COPY_IN, err));
  memset(found, 0xA5, sizeof found);
  td_ok(b.memory->ops->copy(b.memory, &(tdict_rect){found, block.data, WIDTH, pitch, WIDTH, 2}, TDICT_COPY_OUT, err));
  assert_memory_equal(found, source, sizeof source);
  if (is_sim) shim_end(&pitching, b.d);
  raw_read(raw, found, (char *)block.data + pitch, WIDTH);
  assert_memory_equal(found, source + WIDTH, WIDTH);
  fixture_give(&b, &block);
}

GPU_CASE(gpu_queue_rect_negative_pitches) {
  enum { WIDTH = 100, HEIGHT = 20, BYTES = WIDTH * HEIGHT };
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  scoped_raw raw = raw_open(b.context, td_device());
  unsigned char found[BYTES];
  void *host;
  tdict_cu_stream stream;
  tdict_block block = fixture_take(&b, BYTES);
  assert_int_equal(tdict_counted_host_alloc(d, &host, BYTES), TDICT_CU_SUCCESS);
  td_fill_random(host, BYTES, 9);
  raw_fill(raw, block.data, 0xA5, BYTES);
  td_ok(tdict_gpu_take_stream(b.gpu, &stream, err));
  tdict_rect r = {(char *)block.data + BYTES - WIDTH, host, -WIDTH, WIDTH, WIDTH, HEIGHT};
  td_ok(tdict_gpu_queue_rect(b.gpu, TDICT_CU_H2D, &r, stream, err));
  CU(SUCCESS, stream_synchronize, stream);
  raw_read(raw, found, block.data, BYTES);
  for (int i = 0; i < HEIGHT; i++)
    assert_memory_equal(found + i * WIDTH, (unsigned char *)host + (HEIGHT - 1 - i) * WIDTH, WIDTH);
  tdict_gpu_give_stream(b.gpu, stream);
  assert_int_equal(tdict_counted_host_free(d, host, BYTES), TDICT_CU_SUCCESS);
  fixture_give(&b, &block);
}

enum { AROUND = 3 * MIB };
/* Copies pinned memory that is registered in two pieces. All drivers, including the simulated one, refuse a copy across
 * the border, so the library splits its copies there. */
static void copy_over_border(fixture *b, char *at, char *device, tdict_cu_stream stream, raw_memory *raw) {
  static unsigned char sent[AROUND], found[AROUND];
  tdict_driver *d = b->d;
  td_fill_random(sent, AROUND, 11);
  memcpy(at, sent, AROUND);
  raw_fill(raw, device, 0xA5, AROUND);
  assert_int_equal(d->ops->copy_h2d_async(d, device, at, AROUND, stream), TDICT_CU_INVALID_VALUE);
  assert_int_equal(d->ops->copy_d2h_async(d, at, device, AROUND, stream), TDICT_CU_INVALID_VALUE);
  tdict_rect line = {device, at, AROUND, AROUND, AROUND, 1};
  td_ok(tdict_gpu_queue_rect(b->gpu, TDICT_CU_H2D, &line, stream, err));
  CU(SUCCESS, stream_synchronize, stream);
  raw_read(raw, found, device, AROUND);
  assert_memory_equal(found, sent, AROUND);
  memset(at, 0, AROUND);
  line = (tdict_rect){at, device, AROUND, AROUND, AROUND, 1};
  td_ok(tdict_gpu_queue_rect(b->gpu, TDICT_CU_D2H, &line, stream, err));
  CU(SUCCESS, stream_synchronize, stream);
  assert_memory_equal(at, sent, AROUND);
  enum { WIDTH = 5000, PITCH = 6000, ROWS = AROUND / PITCH }; /* one row crosses the border */
  tdict_rect rows = {device, at, WIDTH, PITCH, WIDTH, ROWS};
  raw_fill(raw, device, 0xA5, AROUND);
  td_ok(tdict_gpu_queue_rect(b->gpu, TDICT_CU_H2D, &rows, stream, err));
  CU(SUCCESS, stream_synchronize, stream);
  raw_read(raw, found, device, AROUND);
  for (size_t i = 0; i < ROWS; i++) assert_memory_equal(found + i * WIDTH, sent + i * PITCH, WIDTH);
  memset(at, 0x5A, AROUND);
  rows = (tdict_rect){at, device, PITCH, WIDTH, WIDTH, ROWS};
  td_ok(tdict_gpu_queue_rect(b->gpu, TDICT_CU_D2H, &rows, stream, err));
  CU(SUCCESS, stream_synchronize, stream);
  for (size_t i = 0; i < ROWS; i++) assert_memory_equal(at + i * PITCH, sent + i * PITCH, WIDTH);
  for (size_t i = 0; i + 1 < ROWS; i++) assert_int_equal(at[i * PITCH + WIDTH], 0x5A);
}

GPU_CASE(gpu_copies_are_split_at_registrations) {
  scoped_fixture b = fixture_open(td_options(tdict_context_options, pin_piece_bytes = TDICT_PINNED_PIECE));
  scoped_raw raw = raw_open(b.context, td_device());
  tdict_storage *pinned = NULL;
  tdict_block block = fixture_take(&b, AROUND);
  tdict_cu_stream stream;
  td_ok(tdict_storage_create(tdict_pinned_memory(b.context), TDICT_PINNED_PIECE + 2 * AROUND, false, &pinned, err));
  assert_int_equal(tdict_pinned_pool_way(tdict_pinned_memory(b.context), pinned), TDICT_PINNED_REGISTERED);
  assert_true(tdict_gpu_is_pinned(b.gpu, pinned, pinned->data, pinned->bytes));
  assert_false(tdict_gpu_is_pinned(b.gpu, pinned, pinned->data, pinned->bytes + 1));
  td_ok(tdict_gpu_take_stream(b.gpu, &stream, err));
  copy_over_border(&b, (char *)pinned->data + TDICT_PINNED_PIECE - MIB - 17, block.data, stream, raw);
  tdict_gpu_give_stream(b.gpu, stream);
  tdict_storage_release(pinned);
  fixture_give(&b, &block);
}

static tdict_cu no_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                         tdict_cu_stream s) {
  (void)d, (void)kind, (void)lines, (void)count, (void)s;
  return TDICT_CU_NOT_SUPPORTED;
}

/* Copies queued by one call are correct, whether or not the driver has a call for batches. */
GPU_CASE(gpu_queue_copies) {
  enum { COUNT = TDICT_CU_MOST_COPIES, BYTES = COUNT * 3000 };
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  scoped_raw raw = raw_open(b.context, td_device());
  static unsigned char sent[BYTES], found[BYTES];
  tdict_block block = fixture_take(&b, BYTES);
  tdict_cu_stream stream;
  void *host;
  shim old;
  td_fill_random(sent, BYTES, 21);
  td_ok(tdict_gpu_take_stream(b.gpu, &stream, err));
  assert_int_equal(tdict_counted_host_alloc(d, &host, BYTES), TDICT_CU_SUCCESS);
  for (int without = 0; without < 2; without++) {
    tdict_cu_copy lines[COUNT];
    char *device = block.data;
    for (size_t i = 0; i < COUNT; i++) /* in reverse order on the device */
      lines[i] = (tdict_cu_copy){device + (COUNT - 1 - i) * 3000, (char *)host + i * 3000, 3000 - i};
    if (without) {
      shim_begin(&old, d);
      old.ops.copy_batch_async = no_batch;
    }
    memcpy(host, sent, BYTES);
    raw_fill(raw, device, 0xA5, BYTES);
    td_ok(tdict_gpu_queue_copies(b.gpu, TDICT_CU_H2D, lines, COUNT, stream, err));
    CU(SUCCESS, stream_synchronize, stream);
    raw_read(raw, found, device, BYTES);
    for (size_t i = 0; i < COUNT; i++) {
      assert_memory_equal(found + (COUNT - 1 - i) * 3000, sent + i * 3000, 3000 - i);
      if (i) assert_int_equal(found[(COUNT - i) * 3000 - 1], 0xA5);
      lines[i] = (tdict_cu_copy){(char *)host + i * 3000, device + (COUNT - 1 - i) * 3000, 3000 - i};
    }
    memset(host, 0x5A, BYTES);
    td_ok(tdict_gpu_queue_copies(b.gpu, TDICT_CU_D2H, lines, COUNT, stream, err));
    CU(SUCCESS, stream_synchronize, stream);
    for (size_t i = 0; i < COUNT; i++) assert_memory_equal((char *)host + i * 3000, sent + i * 3000, 3000 - i);
    if (without) shim_end(&old, d);
  }
  tdict_gpu_give_stream(b.gpu, stream);
  assert_int_equal(tdict_counted_host_free(d, host, BYTES), TDICT_CU_SUCCESS);
  fixture_give(&b, &block);
}

GPU_CASE(gpu_memory_fills) {
  enum { BYTES = 100003 };
  scoped_fixture b = fixture_open(NULL);
  scoped_raw raw = raw_open(b.context, td_device());
  scoped_bytes found = malloc(BYTES);
  tdict_block block = fixture_take(&b, BYTES);
  assert_non_null(found);
  raw_fill(raw, block.data, 0xA5, BYTES);
  td_ok(b.memory->ops->fill(b.memory, (char *)block.data + 1, 0x3C, BYTES - 2, err));
  raw_read(raw, found, block.data, BYTES);
  assert_true(td_all_bytes(found + 1, BYTES - 2, 0x3C));
  assert_int_equal(found[0], 0xA5);
  assert_int_equal(found[BYTES - 1], 0xA5);
  fixture_give(&b, &block);
}

static shim failing;
static int rows_left, waits_after_failure;
static tdict_cu fail_row(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream stream) {
  return rows_left-- <= 0 ? TDICT_CU_UNKNOWN : failing.real->copy_h2d_async(d, dst, src, bytes, stream);
}
static tdict_cu fail_row_out(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream stream) {
  return rows_left-- <= 0 ? TDICT_CU_UNKNOWN : failing.real->copy_d2h_async(d, dst, src, bytes, stream);
}
static tdict_cu count_waits(tdict_driver *d, tdict_cu_stream stream) {
  waits_after_failure += rows_left < 0;
  return failing.real->stream_synchronize(d, stream);
}

/* If a copy fails halfway, the library waits for the queued rows before it reuses the stream, buffer or host memory. */
SIM_CASE(gpu_memory_drains_a_copy_that_fails) {
  scoped_fixture b = fixture_open(NULL);
  char host[512] = {0};
  tdict_block block = fixture_take(&b, 4096);
  shim_begin(&failing, b.d);
  failing.ops.copy_h2d_async = fail_row;
  failing.ops.copy_d2h_async = fail_row_out;
  failing.ops.stream_synchronize = count_waits;
  for (int out = 0; out < 2; out++) {
    char *at = (char *)block.data + 2048;
    tdict_rect r = {out ? host + 256 : at, out ? at : host + 256, -32, -32, 32, 5};
    rows_left = 2;
    waits_after_failure = 0;
    td_fails(TDICT_EDEVICE, "cuMemcpy", b.memory->ops->copy(b.memory, &r, out ? TDICT_COPY_OUT : TDICT_COPY_IN, err));
    assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
    assert_int_equal(waits_after_failure, 1);
  }
  shim_end(&failing, b.d);
  fixture_give(&b, &block);
}

GPU_CASE(gpu_of_memory_returns_its_gpu) {
  scoped_fixture b = fixture_open(NULL);
  assert_ptr_equal(tdict_gpu_of_memory(b.memory), b.gpu);
  assert_null(tdict_gpu_of_memory(NULL));
  assert_null(tdict_gpu_of_memory(tdict_pinned_memory(b.context)));
  assert_null(tdict_gpu_of_memory(tdict_device_memory(b.context, tdict_cpu())));
  assert_false(b.memory->pinned);
}

static void *use_memory(void *user) {
  tdict_memory *m = user;
  unsigned char sent[3000], back[3000];
  for (int i = 0; i < 30; i++) {
    tdict_block block;
    td_fill_random(sent, sizeof sent, (uint64_t)(uintptr_t)&block + (uint64_t)i);
    memset(back, 0xA5, sizeof back);
    if (m->ops->allocate(m, sizeof sent, &block, NULL) != TDICT_OK) return user;
    tdict_rect in = {block.data, sent, 0, 0, sizeof sent, 1}, out = {back, block.data, 0, 0, sizeof back, 1};
    if (m->ops->copy(m, &in, TDICT_COPY_IN, NULL) != TDICT_OK) return user;
    if (m->ops->copy(m, &out, TDICT_COPY_OUT, NULL) != TDICT_OK) return user;
    if (memcmp(sent, back, sizeof sent) != 0) return user;
    m->ops->free(m, &block, NULL, 0);
  }
  return NULL;
}

GPU_CASE(gpu_memory_from_many_threads) {
  scoped_fixture b = fixture_open(NULL);
  assert_null(td_in_threads(4, use_memory, b.memory, 0));
  assert_int_equal(fixture_memory(&b).live_bytes, 0);
  assert_int_equal(fixture_memory(&b).num_allocations, 120);
}
