/* Tests results and mirrors: their nodes, leaf numbers and locks, and the lookup of a leaf's path by its number. */
#include "engine/engine.h"
#include "engine/plan/collect.h"
#include "engine/plan/result.h"
#include "engine/trees.h"

/* Collects the plan *p, and returns the other results. */
static tdict_collected collect(const place *w, const tdict_tree *src, bool pins, tdict_plan *p) {
  tdict_collected found = {.plan = p};
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices,
                          .device = tdict_cpu(),
                          .want_pinned = pins}; /* so that each unpinned leaf is copied */
  td_ok(tdict_plan_collect(&found, &r, src, err));
  return found;
}

CASE(result_places_leaves_in_its_storage) {
  scoped_place w = open_place();
  static const tree_kind kinds[] = {TREE_BATCH, TREE_TINY, TREE_STRIDED, TREE_ODD, TREE_SHARED};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    tdict_tree *src = make_tree(&w, kinds[k]), *out = NULL;
    tdict_plan p;
    const tdict_collected found = collect(&w, src, true, &p);
    const tdict_device device = tdict_cpu();
    tdict_storage *arena = td_made(storage, tdict_storage_create(NULL, p.line_bytes, true, &made, err));
    tdict_plan_place(&p, arena);
    td_ok(tdict_result_build(&found, src, arena, &device, &out, err));
    leaf_list a = list_entries(src), b = list_entries(out);
    assert_int_equal(a.count, b.count);
    uint32_t n = 0;
    for (size_t i = 0; i < a.count; i++) {
      assert_string_equal(a.paths[i], b.paths[i]);
      assert_int_equal(a.tensors[i] != NULL, b.tensors[i] != NULL);
      if (!a.tensors[i]) continue;
      const tdict_item *item = &p.items[p.item_of_leaf[n++]];
      check_same_shape(a.tensors[i], b.tensors[i]);
      assert_ptr_equal(b.tensors[i]->storage, arena);
      assert_ptr_equal(b.tensors[i]->data, item->dst_data);
      assert_ptr_equal(item->dst_data, (char *)arena->data + item->offset);
      assert_true(tdict_tensor_is_contiguous(b.tensors[i]));
    }
    assert_int_equal(n, p.num_leaves);
    free_list(&a);
    free_list(&b);
    tdict_plan_reset(&p);
    td_release(arena, src);
    tdict_release(out); /* releases the last leaves of the arena */
  }
}

/* Makes a tree that is large enough for several threads to build its result. After many leaves, it has a child, a
 * deleted entry and more leaves. */
static tdict_tree *large_tree(void) {
  static const char *const kinds[] = {"f32[3]", "f32[3]", "i64[]", "u8[2,5]", "f32[4]", "i32[4]", "u8[5,2]", "f64[0]"};
  scoped_tree few = td_tree("y:f32[2] z:i64[]");
  tdict_tree *td = td_made(tree, tdict_create(0, NULL, &made, err));
  for (int i = 0; i < TDICT_PARALLEL_LEAVES + 700; i++)
    td_put(td, td_text("k%d", i), td_tensor("%s", kinds[i / 3 % 8]));
  td_ok(tdict_set_tree(td, "child", few, err));
  td_put(td, "gone", td_tensor("u8[1]"));
  td_put(td, "last", td_tensor("i32[2,3]"));
  td_ok(tdict_delete(td, "gone", err));
  return td;
}
/* Builds the result of `src` in host memory, once alone and once with helpers, and compares all leaves. */
static void check_builders(const place *w, const tdict_tree *src) {
  const tdict_engine_config *config = &tdict_context_engine(w->c)->config;
  tdict_plan p = {0};
  tdict_collected found = {.plan = &p};
  const tdict_plan_request r = {.devices = config->devices, .device = w->device, .mode = TDICT_MODE_NON_BLOCKING_PIN};
  tdict_tree *out[2];
  td_ok(tdict_plan_collect(&found, &r, src, err));
  tdict_storage *arena = td_made(storage, tdict_storage_create(NULL, p.line_bytes, true, &made, err));
  for (int i = 0; i < 2; i++) {
    found.pool = config->pool;
    found.num_builders = i ? 3 : 0;
    td_ok(tdict_result_build(&found, src, arena, &w->device, &out[i], err));
  }
  leaf_list a = list_entries(out[0]), b = list_entries(out[1]);
  assert_int_equal(a.count, b.count);
  for (size_t i = 0; i < a.count; i++) {
    if (!a.tensors[i]) continue;
    check_same_shape(a.tensors[i], b.tensors[i]);
    assert_ptr_equal(b.tensors[i]->storage, arena);
    assert_ptr_equal(a.tensors[i]->data, b.tensors[i]->data);
    assert_true(tdict_tensor_is_contiguous(b.tensors[i]));
  }
  free_list(&a);
  free_list(&b);
  tdict_plan_reset(&p);
  td_release(out[0], out[1]);
  assert_int_equal(arena->refs, 1); /* all leaves have been released */
  tdict_storage_release(arena);
}

SIM_CASE(result_of_several_threads_is_equal) {
  scoped_place w = open_place();
  scoped_tree src = large_tree(), block = NULL;
  td_ok(tdict_consolidate(src, NULL, &block, err));
  check_builders(&w, src);
  check_builders(&w, block);
}

CASE(result_mirror_keeps_what_was) {
  scoped_tree src = shared_tree(), mirror = td_made(tree, tdict_result_mirror(&(tdict_plan){0}, src, &made, err));
  scoped_leaf_list before = list_entries(src);
  scoped_tensor kept = tdict_tensor_retain(td_leaf(src, "left.x"));
  td_ok(tdict_delete(src, "left", err));
  td_ok(tdict_rename(src, "one", "other", true, err));
  scoped_leaf_list after = list_entries(mirror);
  assert_int_equal(before.count, after.count);
  for (size_t i = 0; i < before.count; i++) assert_string_equal(before.paths[i], after.paths[i]);
  assert_ptr_equal(td_leaf(mirror, "left.x"), kept);
}

CASE(result_paths_by_number) {
  scoped_tree src = odd_tree();
  td_put(src, "with\\.dot.and\\\\slash", random_tensor(TDICT_U8, SHAPE(1), NULL));
  scoped_leaf_list l = list_entries(src);
  uint32_t n = 0;
  char path[512];
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    tdict_leaf_path(src, n++, path, sizeof path);
    assert_string_equal(path, l.paths[i]);
  }
  tdict_leaf_path(src, n, path, sizeof path); /* one past the last number */
  assert_string_equal(path, "");
  tdict_leaf_path(src, n - 1, path, 6); /* truncated to the buffer */
  assert_true(strlen(path) < 6);
}

CASE(result_survives_enomem) {
  scoped_place w = open_place();
  scoped_tree src = odd_tree();
  tdict_tree *next = td_made(tree, tdict_get_tree(src, "scalars", &made, err));
  tdict_lock(next);
  tdict_plan p;
  const tdict_collected found = collect(&w, src, true, &p);
  tdict_storage *arena = td_made(storage, tdict_storage_create(NULL, p.line_bytes, true, &made, err));
  tdict_plan_place(&p, arena);
  for (int mirrors = 0; mirrors < 2; mirrors++) {
    int n = 0;
    for (bool hit = true; hit; n++) {
      scoped_tree out = NULL;
      td_fail_alloc(n, false);
      tdict_status status = mirrors ? tdict_result_mirror(&(tdict_plan){0}, src, &out, NULL)
                                    : tdict_result_build(&found, src, arena, NULL, &out, NULL);
      hit = td_fail_alloc_stop();
      assert_int_equal(status, hit ? TDICT_ENOMEM : TDICT_OK);
      assert_int_equal(out != NULL, !hit);
    }
    assert_true(n > 5);
  }
  tdict_storage_release(arena);
  tdict_plan_reset(&p);
}
