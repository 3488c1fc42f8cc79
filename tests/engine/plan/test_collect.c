/* Tests plans that several threads collect. Such a plan must equal the plan that one thread collects, even if there are
 * unusual entries between the leaves. */
#include "core/tensor/slow_fence.h"
#include "engine/engine.h"
#include "engine/plan/collect.h"
#include "engine/trees.h"
#include "support/threads.h"

enum { MANY = 20000, SOME = 700 }; /* SOME: several threads read the leaves, but only one marks the storages */

typedef enum oddity { ODD_NONE, ODD_TWICE, ODD_STRIDED, ODD_TREE, NUM_ODDITIES } oddity;

/* Makes a tree of `count` leaves with separate storages, of different sizes if `sizes` is true, with an odd entry near
 * the end. */
static tdict_tree *many_tree(int count, bool sizes, oddity odd) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < count; i++) {
    const char *path = td_text("leaf%d", i);
    if (odd == ODD_STRIDED && i == count - count / 4)
      td_put(td, path, sliced(random_tensor(TDICT_U8, SHAPE(40), NULL), (tdict_tensor_range){0, 0, 20, 2}));
    else if (odd == ODD_TREE && i == count - count / 7)
      td_put_tree(td, path, tiny_tree(NULL));
    else
      td_put(td, path, random_tensor(TDICT_U8, SHAPE(sizes ? 1 + i % 700 : 12), NULL));
  }
  const char *twin = count == MANY ? "leaf17000" : "leaf595";
  if (odd == ODD_TWICE) td_ok(tdict_set(td, twin, td_leaf(td, "leaf3"), err));
  return td;
}

/* Collects a plan. Sets *found to the other results, which a transfer does not keep. */
static tdict_plan collect(const place *w, const tdict_tree *src, int helpers, bool borrows, tdict_collected *found) {
  tdict_engine *engine = tdict_context_engine(w->c);
  tdict_plan p;
  tdict_plan_request r = {.devices = engine->config.devices,
                          .device = w->device,
                          .mode = TDICT_MODE_NON_BLOCKING_PIN,
                          .borrows = borrows,
                          .pool = engine->config.pool,
                          .num_helpers = helpers};
  *found = (tdict_collected){.plan = &p};
  td_ok(tdict_plan_collect(found, &r, src, err));
  found->plan = NULL;
  return p;
}

static void check_same_plan(const tdict_plan *a, const tdict_plan *b) {
  assert_int_equal(a->num_items, b->num_items);
  assert_int_equal(a->num_leaves, b->num_leaves);
  assert_int_equal(a->line_bytes, b->line_bytes);
  assert_int_equal(tdict_plan_bytes(a), tdict_plan_bytes(b));
  assert_memory_equal(a->way_bytes, b->way_bytes, sizeof a->way_bytes);
  assert_memory_equal(a->item_of_leaf, b->item_of_leaf, a->num_leaves * sizeof *a->item_of_leaf);
  assert_int_equal(a->num_chunks, b->num_chunks);
  for (uint32_t i = 0; i < a->num_chunks; i++) {
    assert_int_equal(a->chunks[i].begin, b->chunks[i].begin);
    assert_int_equal(a->chunks[i].end, b->chunks[i].end);
    assert_int_equal(a->chunks[i].first, b->chunks[i].first);
  }
  for (uint32_t i = 0; i < a->num_items; i++) {
    const tdict_item *x = &a->items[i], *y = &b->items[i];
    if (x->src != y->src || x->src_data != y->src_data || x->offset != y->offset || x->bytes != y->bytes ||
        x->gpu != y->gpu || x->leaf != y->leaf || x->way != y->way || x->kind != y->kind ||
        x->src_plain != y->src_plain || x->dst_plain != y->dst_plain || a->nodes[i].storage != b->nodes[i].storage)
      fail_msg("item %u differs", i);
  }
}

/* Checks that the leaves have no references except the tree's own, and that their storages have no marks. */
static void check_let_go(const tdict_tree *td) {
  scoped_leaf_list l = list_entries(td);
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    int64_t held = atomic_load(&l.tensors[i]->refs);
    bool twice =
        strcmp(l.paths[i], "leaf3") == 0 || strcmp(l.paths[i], "leaf17000") == 0 || strcmp(l.paths[i], "leaf595") == 0;
    if (held != 1 && !(twice && held == 2)) fail_msg("%s has %lld references", l.paths[i], (long long)held);
    assert_true(tdict_storage_is_idle(l.tensors[i]->storage));
  }
}

GPU_CASE(many_leaves_give_the_plan_of_one_thread) {
  scoped_place w = open_place();
  for (int k = 0; k < 4 * NUM_ODDITIES; k++) {
    scoped_tree src = many_tree(k % 4 < 2 ? MANY : SOME, k % 2, (oddity)(k / 4));
    for (int borrows = 0; borrows < 2; borrows++) {
      tdict_collected one, several;
      tdict_plan alone = collect(&w, src, 0, borrows, &one), helped = collect(&w, src, 4, borrows, &several);
      assert_int_equal(one.num_new, several.num_new);
      assert_int_equal(one.num_new_dims, several.num_new_dims);
      td_ok(tdict_plan_cut(&helped, &(tdict_cut){.first_bytes = 4096, .chunk_bytes = 4096}, err));
      td_ok(tdict_plan_cut(&alone, &(tdict_cut){.first_bytes = 4096, .chunk_bytes = 4096}, err));
      check_same_plan(&alone, &helped); /* ignores which leaves are shared, because the first plan retains some */
      tdict_plan_reset(&helped);
      tdict_plan_reset(&alone);
      helped = collect(&w, src, 4, borrows, &several);
      tdict_plan_reset(&helped);
      check_let_go(src);
    }
  }
}

GPU_CASE(many_leaves_arrive) {
  scoped_place w = open_place();
  static const int threads[] = {-1, 0, 3};
  for (int k = 0; k < 4 * NUM_ODDITIES; k++) {
    scoped_tree src = many_tree(k % 4 < 2 ? MANY : SOME, k % 2, (oddity)(k / 4));
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = threads[k % 3]);
    check_and_release(&w, src, move_with(&w, src, w.device, &o));
    check_let_go(src);
    check_result(&w, src, move_async(&w, src, w.device, &o));
    check_let_go(src);
  }
}

/* Several threads set the addresses of the destinations while they mark the sources. */
GPU_CASE(many_leaves_are_placed_by_several_threads) {
  scoped_place w = open_place();
  scoped_tree src = many_tree(MANY, false, ODD_NONE);
  const tdict_transfer_options o = threads(3);
  check_result(&w, src, move_async(&w, src, w.device, &o));
}

/* One of several marking threads finds a source that a transfer of another context writes. */
GPU_CASE(many_marks_with_a_transfer_of_another_context) {
  scoped_place w = open_place();
  tdict_tree *src = many_tree(MANY, false, ODD_NONE), *out = NULL;
  slow_fence stranger;
  begin_use(&stranger, td_leaf(src, "leaf12345")->storage, true);
  stranger.thread = td_start(end_later, &stranger);
  td_ok(tdict_to_device(w.c, src, w.device, NULL, &out, err));
  assert_true(stranger.ended); /* the call waited until the other context's transfer had ended */
  end_use(&stranger);
  check_and_release(&w, src, out);
  check_let_go(src);
  tdict_release(src);
}

/* A source is released as soon as its bytes are in a slot, even if the copy to the device is still pending. */
SIM_CASE(sources_are_released_when_they_are_in_a_slot) {
  scoped_place w = open_place();
  scoped_tree src = tiny_tree(NULL), out = NULL;
  tdict_transfer_options o = threads(1);
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *f = move_async(&w, src, w.device, &o);
  leaf_list l = list_entries(src);
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    for (int k = 0; k < 5000 && !tdict_storage_is_idle(l.tensors[i]->storage); k++) usleep(1000);
    assert_true(tdict_storage_is_idle(l.tensors[i]->storage));
  }
  free_list(&l);
  assert_false(tdict_future_is_ready(f));
  td_ok(tdict_sim_resume(w.c, err));
  out = finish(f);
  check_tree(&w, src, out);
  check_let_go(src);
}

/* A plan reuses the memory of an earlier plan, but not its contents: each leaf is examined again. */
GPU_CASE(plans_see_what_has_changed) {
  scoped_place w = open_place();
  scoped_tree src = tiny_tree(NULL), out = NULL;
  static const int64_t count = 300;
  for (int k = 0; k < 12; k++) {
    tdict_memory *memory = k % 6 == 1 ? w.pinned : k % 6 == 4 ? w.memory : NULL; /* 1: pinned; 4: on the device */
    tdict_dtype dtype = k % 6 == 3 ? TDICT_F64 : TDICT_U8;
    tdict_tensor *t;
    if (k % 6 == 4)
      td_ok(tdict_tensor_zeros(dtype, 1, &count, memory, &t, err));
    else
      t = random_tensor(dtype, 1, &count, memory);
    if (k % 6 == 2) t = sliced(t, (tdict_tensor_range){0, 0, 100, 3});
    td_put(src, "group5.leaf155", t);
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_transfer_options o = td_with(tdict_transfer_options, stats = &stats);
    td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
    check_tree(&w, src, out);
    assert_int_equal(stats.num_shared_leaves, k % 6 == 4);
    td_release(out);
    if (k % 6 == 1) { /* a single leaf, so the driver copies it directly */
      scoped_tree one = new_tree();
      td_ok(tdict_set(one, "one", td_leaf(src, "group5.leaf155"), err));
      td_ok(tdict_to_device(w.c, one, w.device, &o, &out, err));
      assert_int_equal(stats.direct_bytes, 300);
      td_release(out);
    }
  }
}

/* Several small pinned leaves are packed into a slot, like ordinary leaves. A single small pinned leaf gets its own
 * driver copy. */
GPU_CASE(many_small_pinned_leaves_are_uniform) {
  enum { FEW = 300 };
  scoped_place w = open_place();
  scoped_tree src = new_tree(), alone = new_tree();
  char path[32];
  for (int i = 0; i < FEW; i++) {
    snprintf(path, sizeof path, "leaf%d", i);
    td_put(src, path, random_tensor(TDICT_U8, SHAPE(1 + i * 7), i % 3 ? w.pinned : NULL));
  }
  td_put(alone, "x", random_tensor(TDICT_U8, SHAPE(4000), w.pinned));
  tdict_collected found, other;
  tdict_plan p = collect(&w, src, 0, false, &found), one = collect(&w, alone, 0, false, &other);
  assert_int_equal(found.num_uniform, FEW);
  assert_int_equal(p.way_bytes[TDICT_WAY_STAGE_IN], tdict_plan_bytes(&p));
  assert_int_equal(one.way_bytes[TDICT_WAY_DIRECT], 4000);
  tdict_plan_reset(&p);
  tdict_plan_reset(&one);
  snprintf(path, sizeof path, "large"); /* too large to be packed, so the driver reads it directly */
  td_put(src, path, random_tensor(TDICT_U8, SHAPE(65536), w.pinned));
  p = collect(&w, src, 0, false, &found);
  assert_int_equal(found.num_uniform, FEW);
  assert_int_equal(p.way_bytes[TDICT_WAY_DIRECT], 65536);
  tdict_plan_reset(&p);
  poison(&w, w.memory, line_bytes(src));
  check_and_spoil(&w, src, move_with(&w, src, w.device, NULL));
}
