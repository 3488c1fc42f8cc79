/* Tests plans: the way of each leaf, how chunks cover the line, which leaves are packed into slots, and which are
 * copied alone. */
#include "core/sched/pool.h"
#include "engine/engine.h"
#include "engine/plan/collect.h"
#include "engine/trees.h"

/* The other results of the latest call of collect() or collect_pair(). */
static tdict_collected found;

static tdict_plan collect(const place *w, const tdict_tree *src, int32_t mode) {
  tdict_plan p;
  found.plan = &p;
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices, .device = w->device, .mode = mode};
  td_ok(tdict_plan_collect(&found, &r, src, err));
  return p;
}
static tdict_plan collect_pair(const place *w, const tdict_tree *src, const tdict_tree *dst, int32_t mode) {
  tdict_plan p;
  found.plan = &p;
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices, .dst = dst, .mode = mode};
  td_ok(tdict_plan_collect(&found, &r, src, err));
  return p;
}
static int way_of(const tdict_plan *p, const tdict_tree *src, const char *path) {
  for (uint32_t i = 0; i < p->num_items; i++)
    if (p->items[i].src == td_leaf(src, path)) return p->items[i].way;
  return -1;
}

GPU_CASE(plan_ways) {
  scoped_place w = open_place();
  scoped_tree src = pinned_tree(w.pinned);
  td_put(src, "plain", random_tensor(TDICT_U8, SHAPE(77), NULL));
  tdict_plan p = collect(&w, src, TDICT_MODE_NON_BLOCKING_PIN);
  assert_int_equal(way_of(&p, src, "large"), TDICT_WAY_DIRECT);
  assert_int_equal(way_of(&p, src, "small"), TDICT_WAY_STAGE_IN); /* small, so it is staged without asking the driver */
  assert_int_equal(way_of(&p, src, "claimed"), TDICT_WAY_DIRECT);
  assert_int_equal(way_of(&p, src, "only_says_so"), TDICT_WAY_STAGE_IN); /* the driver says that it is not pinned */
  assert_int_equal(way_of(&p, src, "strided"), TDICT_WAY_STAGE_IN);
  assert_int_equal(way_of(&p, src, "plain"), TDICT_WAY_STAGE_IN);
  assert_false(found.reads_device || p.writes_existing);
  tdict_plan_reset(&p);
  const int32_t modes[] = {TDICT_MODE_BLOCKING, TDICT_MODE_NON_BLOCKING};
  for (int i = 0; i < 2; i++) {
    p = collect(&w, src, modes[i]);
    assert_int_equal(way_of(&p, src, "large"), TDICT_WAY_DIRECT);
    assert_int_equal(way_of(&p, src, "small"), TDICT_WAY_DIRECT);
    assert_int_equal(way_of(&p, src, "only_says_so"), TDICT_WAY_PAGEABLE_IN);
    assert_int_equal(way_of(&p, src, "strided"), TDICT_WAY_STAGE_IN);
    assert_int_equal(way_of(&p, src, "plain"), TDICT_WAY_PAGEABLE_IN);
    tdict_plan_reset(&p);
  }
  scoped_tree there = to_device(&w, src, w.device), plain = to_device(&w, there, tdict_cpu());
  p = collect_pair(&w, there, plain, TDICT_MODE_BLOCKING); /* copies to pageable memory use slots in all modes */
  assert_true(found.reads_device && p.writes_existing);
  assert_int_equal(p.way_bytes[TDICT_WAY_STAGE_OUT], tdict_plan_bytes(&p));
  tdict_plan_reset(&p);
  p = collect_pair(&w, there, src, TDICT_MODE_NON_BLOCKING_PIN);
  assert_int_equal(way_of(&p, there, "large"), TDICT_WAY_DIRECT);
  assert_int_equal(way_of(&p, there, "only_says_so"), TDICT_WAY_STAGE_OUT);
  assert_int_equal(way_of(&p, there, "strided"), TDICT_WAY_STAGE_OUT);
  tdict_plan_reset(&p);
  p = collect_pair(&w, there, there, TDICT_MODE_BLOCKING);
  assert_int_equal(p.way_bytes[TDICT_WAY_DIRECT], tdict_plan_bytes(&p));
  tdict_plan_reset(&p);
  p = collect_pair(&w, src, plain, TDICT_MODE_BLOCKING);
  assert_int_equal(p.way_bytes[TDICT_WAY_HOST], tdict_plan_bytes(&p));
  tdict_plan_reset(&p);
}

/* Checks that each byte is in exactly one chunk, that a chunk begins in its first item, and that a chunk that needs a
 * slot has at most `chunk_bytes` bytes. */
static void check_chunks(const tdict_plan *p, size_t chunk_bytes) {
  size_t covered = 0, last_end = 0;
  for (uint32_t i = 0; i < p->num_chunks; i++) {
    const tdict_chunk *c = &p->chunks[i];
    const tdict_item *first = &p->items[c->first];
    assert_true(c->begin < c->end && c->begin >= last_end);
    assert_true(first->offset <= c->begin && c->begin < first->offset + first->bytes);
    bool slots = first->way == TDICT_WAY_STAGE_IN || first->way == TDICT_WAY_STAGE_OUT || first->way == TDICT_WAY_HOST;
    if (slots) assert_true(c->end - c->begin <= chunk_bytes);
    for (uint32_t k = c->first; k < p->num_items && p->items[k].offset < c->end; k++) {
      const tdict_item *item = &p->items[k];
      size_t begin = item->offset > c->begin ? item->offset : c->begin;
      size_t end = item->offset + item->bytes < c->end ? item->offset + item->bytes : c->end;
      if (begin >= end) continue;
      assert_int_equal(item->way, first->way);
      assert_ptr_equal(item->gpu, first->gpu);
      covered += end - begin;
    }
    last_end = c->end;
  }
  assert_int_equal(covered, tdict_plan_bytes(p));
}

GPU_CASE(plan_chunks_cover_the_line) {
  scoped_place w = open_place();
  const size_t sizes[] = {256, 4096, 65536, 1 << 22};
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&w, (tree_kind)kind), there = to_device(&w, src, w.device);
    for (int i = 0; i < 16; i++) {
      const int32_t mode = TDICT_MODE_BLOCKING + i / 4 % 3;
      tdict_plan p = i < 12 ? collect(&w, src, mode) : collect_pair(&w, there, src, mode);
      for (uint32_t k = 0; k < p.num_items; k++) {
        assert_int_equal(p.items[k].offset % TDICT_LEAF_ALIGNMENT, 0);
        if (!p.items[k].dst) p.items[k].dst_data = (char *)(uintptr_t)(0x10000 + p.items[k].offset);
      }
      assert_int_equal(p.num_leaves, tdict_num_leaves(src));
      tdict_plan_stage_small(&p);
      td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = i % 3 ? sizes[i % 4] : 256, .chunk_bytes = sizes[i % 4]},
                           err));
      check_chunks(&p, sizes[i % 4]);
      tdict_plan_reset(&p);
      assert_int_equal(p.num_items, 0);
    }
  }
}

/* The first chunks are small, so that the device starts early. The last chunks are small, so that all threads end
 * together. */
GPU_CASE(plan_chunks_grow_and_shrink) {
  scoped_place w = open_place();
  scoped_tree src = bytes_tree("x", 10 << 20, NULL);
  tdict_plan p = collect(&w, src, TDICT_MODE_NON_BLOCKING_PIN);
  p.items[0].dst_data = (char *)(uintptr_t)0x10000;
  td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 1 << 20}, err));
  check_chunks(&p, 1 << 20);
  size_t largest = 0, before = 0;
  bool grows = true;
  for (uint32_t i = 0; i < p.num_chunks; i++) {
    size_t bytes = p.chunks[i].end - p.chunks[i].begin;
    assert_int_equal(p.chunks[i].begin % 256, 0);
    if (i + 1 < p.num_chunks) assert_in_range(bytes, 65536, 1 << 20);
    if (bytes < before) grows = false;
    assert_true(grows || bytes <= before);
    if (bytes > largest) largest = bytes;
    before = bytes;
  }
  assert_int_equal(p.chunks[0].end, 65536);
  assert_int_equal(largest, 1 << 20);
  assert_true(before <= 65536);
  tdict_plan_reset(&p);
}

/* Adjacent small pinned leaves are copied together, scattered ones go through slots, and large leaves are split. */
GPU_CASE(plan_packs_small_pinned_leaves) {
  scoped_place w = open_place();
  scoped_tree batch = batch_tree(w.pinned), many = tiny_tree(w.pinned), large = new_tree();
  tdict_plan p = collect(&w, batch, TDICT_MODE_NON_BLOCKING_PIN);
  for (uint32_t k = 0; k < p.num_items; k++) p.items[k].dst_data = (char *)(uintptr_t)(0x10000 + p.items[k].offset);
  tdict_plan_stage_small(&p);
  td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 65536}, err));
  assert_int_equal(p.way_bytes[TDICT_WAY_DIRECT], tdict_plan_bytes(&p));
  assert_int_equal(p.num_chunks, 1); /* one copy, which may overwrite the gaps of an arena */
  tdict_plan_reset(&p);
  p = collect(&w, many, TDICT_MODE_NON_BLOCKING_PIN);
  for (uint32_t k = 0; k < p.num_items; k++) p.items[k].dst_data = (char *)(uintptr_t)(0x10000 + p.items[k].offset);
  tdict_plan_stage_small(&p);
  td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 65536}, err));
  assert_int_equal(p.way_bytes[TDICT_WAY_STAGE_IN], tdict_plan_bytes(&p));
  assert_int_equal(p.num_chunks, (p.line_bytes + 65535) / 65536);
  tdict_plan_reset(&p);
  td_put(large, "x", random_tensor(TDICT_U8, SHAPE(((int64_t)40 << 20) + 1), w.pinned));
  p = collect(&w, large, TDICT_MODE_NON_BLOCKING_PIN);
  p.items[0].dst_data = (char *)(uintptr_t)0x10000;
  tdict_plan_stage_small(&p);
  td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = 65536, .chunk_bytes = 65536}, err));
  assert_int_equal(p.num_chunks, 3);
  tdict_plan_reset(&p);
}

/* A copy may overwrite a gap only if the gap is between whole leaves of one arena. */
GPU_CASE(plan_overwrites_gaps_of_arenas_only) {
  scoped_place w = open_place();
  scoped_tree batch = batch_tree(NULL), there = to_device(&w, batch, w.device);
  tdict_tensor *whole = td_leaf(batch, "obs.state"), *far = td_leaf(there, "obs.state");
  scoped_tensor part = sliced(tdict_tensor_retain(far), (tdict_tensor_range){0, 0, 3, 1});
  scoped_tensor alone = random_tensor(TDICT_U8, SHAPE(7), NULL);
  assert_true(tdict_plan_gap_is_free(whole));
  assert_true(tdict_plan_gap_is_free(far));
  assert_true(tdict_plan_gap_is_free(NULL));
  assert_false(tdict_plan_gap_is_free(part));
  assert_false(tdict_plan_gap_is_free(alone));
}

enum { VARIANTS = 6, VARIED = 40 };
/* Makes a leaf. The other variants differ from variant 0 in one property: pinned, strided, int32, float64, or already
 * on the device. */
static tdict_tensor *variant(const place *w, int kind) {
  const int turn[] = {1, 0};
  switch (kind) {
  case 1:
    return random_tensor(TDICT_F32, SHAPE(40, 25), w->pinned);
  case 2:
    return permuted(random_tensor(TDICT_F32, SHAPE(25, 40), NULL), turn);
  case 3:
    return random_tensor(TDICT_I32, SHAPE(40, 25), NULL);
  case 4:
    return random_tensor(TDICT_F64, SHAPE(40, 25), NULL);
  case 5: {
    tdict_tensor *moved = NULL;
    scoped_tree one = td_tree("x:f32[40,25]");
    scoped_tree far = to_device(w, one, w->device);
    moved = tdict_tensor_retain(td_leaf(far, "x"));
    return moved;
  }
  default:
    return random_tensor(TDICT_F32, SHAPE(40, 25), NULL);
  }
}

/* A plan reuses the memory of the previous plan, but not its contents, even if the trees differ. */
GPU_CASE(plan_memory_serves_every_schema) {
  scoped_place w = open_place();
  for (int step = 0; step < 4 * VARIANTS * VARIANTS; step++) {
    const int most = step % VARIANTS, other = step / VARIANTS % VARIANTS, which = step * 7 % VARIED;
    tdict_tree *src = new_tree();
    for (int i = 0; i < VARIED; i++) td_put(src, td_text("leaf%d", i), variant(&w, i == which ? other : most));
    const way v = way_at(step * 11 % NUM_WAYS);
    poison(&w, w.memory, line_bytes(src));
    tdict_tree *got = move_tree(&w, src, w.device, &v);
    check_device(got, w.device);
    check_and_release(&w, src, got);
    tdict_release(src);
    if (step < 2) continue;
    tdict_plan spare;
    tdict_plan_take_used(&tdict_context_engine(w.c)->used_plan, &spare);
    assert_true(spare.cap >= VARIED); /* the memory is kept for reuse */
    tdict_plan_give_used(&tdict_context_engine(w.c)->used_plan, &spare);
  }
}
