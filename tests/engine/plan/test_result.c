/* Tests results and mirrors: nodes, positions of leaves, locks, and paths by number. */
#include "engine/engine.h"
#include "engine/plan/collect.h"
#include "engine/plan/result.h"
#include "engine/trees.h"

/* Collects into *p. */
static tdict_collected collect(const place *w, const tdict_tree *src, bool pins, tdict_plan *p) {
  tdict_collected found = {.plan = p};
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices,
                          .device = tdict_cpu(),
                          .want_pinned = pins}; /* so that every plain leaf travels */
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
    tdict_release(out); /* the last of the arena */
  }
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
  tdict_leaf_path(src, n, path, sizeof path); /* past the last */
  assert_string_equal(path, "");
  tdict_leaf_path(src, n - 1, path, 6); /* cut to what fits */
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
