/* Tests the launches and copies that a transfer with conversions queues. A kernel reads small pinned sources without a
 * copy, and slots contain elements of the narrow wire dtype. */
#include "device/gpu.h"
#include "engine/conversions.h"
#include "engine/engine.h"
#include "engine/options/conversions.h"
#include "engine/plan/collect.h"

static atomic_int num_launches, num_copies;
static atomic_size_t num_entries; /* summed over all launches */

tdict_status __real_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream s, tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream s, tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_work(tdict_gpu *gpu, tdict_kernel_work *work, tdict_cu_stream s, tdict_error *err) {
  num_launches++;
  num_entries += work->num_entries;
  return __real_tdict_gpu_queue_work(gpu, work, s, err);
}
tdict_status __real_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect, tdict_cu_stream s,
                                         tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect, tdict_cu_stream s,
                                         tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_rect(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_rect *rect, tdict_cu_stream s,
                                         tdict_error *err) {
  num_copies++;
  return __real_tdict_gpu_queue_rect(gpu, kind, rect, s, err);
}
tdict_status __real_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                           tdict_cu_stream s, tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                           tdict_cu_stream s, tdict_error *err);
tdict_status __wrap_tdict_gpu_queue_copies(tdict_gpu *gpu, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                           tdict_cu_stream s, tdict_error *err) {
  num_copies++;
  return __real_tdict_gpu_queue_copies(gpu, kind, lines, count, s, err);
}

/* Moves the tree to the device with one thread, and counts the queued copies and launches. */
static tdict_tree *move_counted(const place *w, const tdict_tree *src, tdict_transfer_options *o) {
  num_launches = 0;
  num_copies = 0;
  num_entries = 0;
  o->num_threads = 1;
  poison(w, w->memory, 4 << 20);
  tdict_tree *out = move_with(w, src, w->device, o);
  return out;
}

static void give_fitting(tdict_tree *td, const pair_of *p, int64_t count, tdict_memory *memory) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(p->from, SHAPE(count), memory, &made, err));
  fill_fitting(t, p);
  td_put(td, p->path, t);
}

/* Checks the conversion x * 0.5 + 1 of a large leaf, faster than check_converted(). */
static void check_halves(const place *w, const tdict_tensor *src, const tdict_tensor *got) {
  const unsigned char *from = tdict_tensor_const_data(src);
  TD_FREED float *to = (float *)(void *)read_elements(w, got);
  for (int64_t i = 0; i < tdict_tensor_numel(src); i++)
    if (to[i] != (float)from[i] * 0.5f + 1) fail_msg("element %d is %g", (int)i, to[i]);
}

static const pair_of tokens = {"tokens", TDICT_U16, TDICT_I64, 1, 0}, targets = {"targets", TDICT_U16, TDICT_I64, 1, 0};

/* One kernel launch moves a batch of tokens from pinned memory or from a slot, without a driver copy. */
GPU_CASE(conversions_of_a_batch_need_one_launch) {
  enum { COUNT = 64 * 1024 };
  scoped_place w = place_sized(16 << 20, -1);
  const tdict_conversion c = to_dtype("**", TDICT_I64);
  tdict_transfer_stats s = tdict_transfer_stats_default();
  for (int pinned = 0; pinned < 2; pinned++) {
    scoped_tree src = new_tree();
    give_fitting(src, &tokens, COUNT, pinned ? w.pinned : NULL);
    give_fitting(src, &targets, pinned ? COUNT : 100, pinned ? w.pinned : NULL);
    tdict_transfer_options o = converting(&c, 1, &s);
    scoped_tree out = move_counted(&w, src, &o);
    assert_int_equal(num_copies, 0);
    assert_int_equal(num_launches, 1);
    assert_int_equal(num_entries, 2);
    assert_int_equal(s.num_chunks, 1);
    assert_int_equal(s.wire_bytes * 4, s.total_bytes);
    assert_int_equal(pinned ? s.direct_bytes : s.staged_bytes, s.total_bytes);
    check_converted(&w, &tokens, td_leaf(src, "tokens"), td_leaf(out, "tokens"));
    check_converted(&w, &targets, td_leaf(src, "targets"), td_leaf(out, "targets"));
  }
}

/* In each transfer, kernels read up to 1 MiB directly from pinned sources. Further converted leaves go through slots.
 * Pinned leaves without a conversion are copied directly. */
GPU_CASE(conversions_of_large_pinned_leaves_use_slots) {
  scoped_place w = open_place();
  scoped_tree src = td_tree_in(w.pinned, "plain:i32[70000]");
  give_fitting(src, &tokens, 333, w.pinned);
  td_put(src, "large", random_tensor(TDICT_U8, SHAPE((1 << 20) - 665), w.pinned));
  give_fitting(src, &targets, 77777, w.pinned);
  const tdict_conversion both[3] = {scaled("large", TDICT_F32, 0.5, 1), to_dtype("tokens", TDICT_I64),
                                    to_dtype("targets", TDICT_I64)};
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(both, 3, &s);
  scoped_tree out = move_counted(&w, src, &o);
  assert_int_equal(s.direct_bytes, 70000 * 4 + 333 * 8 + 77777 * 8);
  assert_int_equal(s.staged_bytes, ((1 << 20) - 665) * 4);
  assert_int_equal(s.wire_bytes, 70000 * 4 + 333 * 2 + 77777 * 2 + (1 << 20) - 665);
  check_tensor(&w, td_leaf(src, "plain"), td_leaf(out, "plain"), "plain");
  check_converted(&w, &tokens, td_leaf(src, "tokens"), td_leaf(out, "tokens"));
  check_converted(&w, &targets, td_leaf(src, "targets"), td_leaf(out, "targets"));
  check_halves(&w, td_leaf(src, "large"), td_leaf(out, "large"));
}

/* Each of the eight workers of a transfer of this size may hold four slots, but the smallest ring has only 16. */
GPU_CASE(conversions_in_the_smallest_ring) {
  enum { COUNT = (25 << 20) + 77, RING = 64 << 10 };
  scoped_place w = place_sized(RING, 8);
  scoped_tree src = new_tree();
  td_put(src, "large", random_tensor(TDICT_U8, SHAPE(COUNT), NULL));
  const tdict_conversion rule = scaled("large", TDICT_F32, 0.5, 1);
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(&rule, 1, &s);
  o.num_threads = 8;
  scoped_tree out = move_with(&w, src, w.device, &o);
  assert_true(s.peak_staging_bytes <= RING);
  check_halves(&w, td_leaf(src, "large"), td_leaf(out, "large"));
}

/* Kernels need aligned elements, so a pinned leaf at an odd address is staged. */
GPU_CASE(conversions_of_odd_pinned_addresses) {
  const int64_t count = 1000;
  scoped_place w = open_place();
  for (int odd = 0; odd < 2; odd++) {
    scoped_tree src = new_tree();
    tdict_tensor *below = random_tensor(TDICT_U8, SHAPE(2 * count + 1), w.pinned);
    tdict_tensor_desc v = desc_of((char *)tdict_tensor_data(below) + odd, TDICT_U16, &count);
    v.flags = TDICT_DESC_PINNED;
    td_put(src, "tokens", td_made(tensor, tdict_tensor_from_data(&v, release_tensor, below, &made, err)));
    const tdict_conversion c = to_dtype("**", TDICT_I64);
    tdict_transfer_stats s = tdict_transfer_stats_default();
    tdict_transfer_options o = converting(&c, 1, &s);
    scoped_tree out = move_counted(&w, src, &o);
    assert_int_equal(odd ? s.staged_bytes : s.direct_bytes, 8 * count);
    check_converted(&w, &tokens, td_leaf(src, "tokens"), td_leaf(out, "tokens"));
  }
}

/* A large leaf is cut into chunks by its size in the narrow wire dtype, not by its converted size. */
GPU_CASE(conversions_fill_large_slots) {
  scoped_place w = place_sized(16 << 20, -1); /* 32 slots */
  scoped_tree src = bytes_tree("a", 1 << 20, NULL);
  const tdict_conversion c = scaled("a", TDICT_F32, 0.5, 1);
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(&c, 1, &s);
  scoped_tree out = move_counted(&w, src, &o);
  assert_int_equal(s.num_chunks, 3); /* at most 384 KiB each, as in the tuning row for 1 MiB */
  assert_int_equal(num_copies, 3);
  assert_int_equal(num_launches, 3);
  check_halves(&w, td_leaf(src, "a"), td_leaf(out, "a"));
}

/* Returns how many bytes of a slot the chunk fills. Each piece begins at a multiple of 256 bytes. */
static size_t bytes_in_slot(const tdict_plan *p, const tdict_chunk *chunk) {
  size_t sum = 0;
  for (uint32_t i = 0; i < p->num_items; i++) {
    const tdict_item *item = &p->items[i];
    const size_t end = item->offset + item->bytes < chunk->end ? item->offset + item->bytes : chunk->end;
    const size_t begin = item->offset > chunk->begin ? item->offset : chunk->begin;
    if (begin >= end) continue;
    const bool is_cast = p->wire->casts[i].rule > 0;
    const size_t to = is_cast ? tdict_dtype_bytes(p->wire->casts[i].cast.to) : 1;
    const size_t wire = is_cast ? tdict_dtype_bytes(p->wire->casts[i].wire) : 1;
    assert_int_equal((end - begin) % to, 0);
    sum += ((end - begin) / to * wire + 255) / 256 * 256;
  }
  return sum;
}

/* Makes leaves of five dtypes. Conversions widen some, narrow some, and leave some unchanged. */
static tdict_tree *make_leaves(naive_random *r, int count) {
  static const tdict_dtype from[] = {TDICT_U8, TDICT_F64, TDICT_U16, TDICT_I16, TDICT_F32};
  tdict_tree *td = new_tree();
  for (int i = 0; i < count; i++) {
    const int kind = (int)(naive_next(r) % 5);
    const char *path = td_text("g%d.%c", i, "abcde"[kind]);
    td_put(td, path, random_tensor(from[kind], SHAPE((int64_t)(naive_next(r) % (i % 9 ? 300 : 40000))), NULL));
  }
  return td;
}

SIM_CASE(conversions_cut_chunks_by_slots) {
  enum { LEAVES = 120 };
  const tdict_conversion c[] = {to_dtype("*.a", TDICT_F64), to_dtype("*.b", TDICT_BF16), to_dtype("*.c", TDICT_I64),
                                to_dtype("*.e", TDICT_F8E4M3)};
  scoped_place w = open_place();
  naive_random r = {next_seed()};
  tdict_conversions *conversions = NULL;
  td_ok(tdict_conversions_create("test", c, 4, &conversions, err));
  for (int round = 0; round < 40; round++) {
    scoped_tree src = make_leaves(&r, LEAVES);
    const tdict_plan_request request = {.devices = tdict_context_engine(w.c)->config.devices,
                                        .device = w.device,
                                        .mode = TDICT_MODE_NON_BLOCKING_PIN,
                                        .conversions = conversions};
    const size_t most = (size_t)8192 << naive_next(&r) % 6;
    tdict_plan p;
    td_ok(tdict_plan_collect(&(tdict_collected){.plan = &p}, &request, src, err));
    td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = most, .chunk_bytes = most}, err));
    size_t sum = 0, at = 0;
    for (uint32_t i = 0; i < p.num_chunks; i++) {
      const size_t bytes = bytes_in_slot(&p, &p.chunks[i]);
      assert_true(bytes <= most);
      assert_true(i + 1 == p.num_chunks || bytes + 4096 > most); /* each slot but the last is nearly full */
      assert_int_equal((p.chunks[i].begin + 255) / 256, (at + 255) / 256);
      at = p.chunks[i].end;
      sum += bytes;
    }
    assert_int_equal(at, p.line_bytes);
    assert_true(sum >= p.wire->slot_bytes && sum <= p.wire->slot_bytes + (size_t)256 * p.num_chunks);
    tdict_plan_reset(&p);
  }
  tdict_conversions_destroy(conversions);
}

/* With a limit on queued bytes, a leaf that kernels read may be cut into several chunks. */
GPU_CASE(conversions_of_pinned_leaves_are_cut) {
  static const pair_of half = {"half", TDICT_U16, TDICT_I32, 1, 0};
  scoped_place w = place_sized(16 << 20, -1);
  scoped_tree src = new_tree();
  give_fitting(src, &tokens, 60001, w.pinned);
  give_fitting(src, &half, 70003, NULL);
  const tdict_conversion c[2] = {to_dtype("tokens", TDICT_I64), to_dtype("half", TDICT_I32)};
  tdict_transfer_options o = converting(c, 2, NULL);
  o.max_queued_bytes = 128 << 10;
  scoped_tree out = move_counted(&w, src, &o);
  assert_int_equal(num_launches, (60001 * 8 + 65535) / 65536 + (70003 * 4 + 65535) / 65536);
  check_converted(&w, &tokens, td_leaf(src, "tokens"), td_leaf(out, "tokens"));
  check_converted(&w, &half, td_leaf(src, "half"), td_leaf(out, "half"));
}

/* With `narrow`, one driver copy moves a block in which no leaf is packed. No leaf is packed if all are floats, bytes
 * or smaller than 4 KiB, if the block is pinned, or in transfers to the host. */
GPU_CASE(narrow_copies_a_block_once) {
  static const char *const packs_none = "ids:i64[511] a.x:f32[4000] a.y:u8[70000] flag:bool[9]",
                           *const packs_one = "a.x:f32[4000] ids:i64[512]";
  scoped_place w = place_sized(16 << 20, -1);
  for (int k = 0; k < 8; k++) {
    const bool packs = k / 4, pinned = k & 1;
    scoped_tree loose = td_tree_in(NULL, packs ? packs_one : packs_none), src = NULL, back = NULL;
    td_ok(tdict_consolidate(loose, pinned ? w.pinned : NULL, &src, err));
    tdict_transfer_stats s = tdict_transfer_stats_default();
    tdict_transfer_options o = td_with(tdict_transfer_options, narrow = true, stats = &s);
    o.mode = k & 2 ? TDICT_MODE_NON_BLOCKING_PIN : TDICT_MODE_NON_BLOCKING;
    scoped_tree out = move_counted(&w, src, &o);
    check_tree(&w, src, out);
    assert_int_equal(num_launches, packs && !pinned);
    assert_int_equal(tdict_is_consolidated(out), !packs || pinned);
    if (packs && !pinned) continue;
    assert_int_equal(num_copies, 1);
    num_copies = 0;
    o.pinned_result = true;
    back = move_with(&w, out, tdict_cpu(), &o);
    check_tree(&w, src, back);
    assert_int_equal(num_copies, 1);
    assert_true(tdict_is_consolidated(back));
  }
}
