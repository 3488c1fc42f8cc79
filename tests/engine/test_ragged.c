/* Tests transfers of trees with ragged leaves: values and offsets are moved, in all modes. */
#include "core/leaves/rows.h"

/* Makes a tree with a ragged leaf at "n.x" and a tensor at "t". */
static tdict_tree *tree_of(const rows *r, tdict_memory *memory) {
  tdict_tree *td = TREE(r->count);
  td_put(td, "t", td_made(tensor, tdict_tensor_arange(TDICT_F32, 1, 1, r->count, &made, err)));
  rows_put(td, "n.x", r, memory);
  return td;
}
static void check_at(const tdict_ragged *leaf, tdict_device device) {
  assert_true(tdict_device_equal(tdict_tensor_device(tdict_ragged_get_info(leaf).values), device));
  assert_true(tdict_device_equal(tdict_tensor_device(tdict_ragged_get_info(leaf).offsets), device));
}

DEVICE_CASE(ragged_moves_in_every_mode) {
  scoped_place w = open_place();
  scoped_rows r = rows_random(9, 3);
  rows_add(&r, 40000); /* needs several slots of the staging ring */
  for (int i = 0; i < NUM_WAYS; i++) {
    way v = way_at(i);
    tdict_tree *src = tree_of(&r, NULL), *pinned = NULL;
    if (w.gpu && i % 3 == 2) {
      td_ok(tdict_pin_memory(w.c, src, NULL, &pinned, err));
      tdict_release(src);
      src = pinned;
    }
    scoped_tree there = move_tree(&w, src, w.device, &v);
    const tdict_ragged *leaf = rows_get(there, "n.x");
    check_at(leaf, w.device);
    rows_check(&w, &r, leaf);
    assert_int_equal(leaf == rows_get(src, "n.x"), !w.gpu); /* on the cpu nothing is copied, so the leaf is shared */
    v.o.pinned_result = w.gpu && i % 2;
    scoped_tree back = move_tree(&w, there, tdict_cpu(), &v);
    check_at(rows_get(back, "n.x"), tdict_cpu());
    assert_int_equal(tdict_is_pinned(back), w.gpu && i % 2);
    rows_check_at(&w, &r, back, "n.x");
    assert_true(tdict_equal(src, back));
    tdict_release(src);
  }
}

GPU_CASE(ragged_moves_in_one_plan) {
  scoped_place w = open_place();
  rows r = rows_of(2, COUNTS(3, 0, 2)); /* int32 offsets */
  tdict_tree *src = tree_of(&r, NULL), *there = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(tdict_to_device(w.c, src, w.device, td_options(tdict_transfer_options, stats = &stats), &there, err));
  assert_int_equal(stats.num_leaves, 3);
  assert_int_equal(stats.num_shared_leaves, 0);
  assert_int_equal(stats.num_objects, 1);
  assert_int_equal(stats.num_objects_kept, 0);
  assert_int_equal(stats.total_bytes, 3 * 4 + 5 * 2 * 4 + 4 * 4);
  const tdict_ragged *leaf = rows_get(there, "n.x");
  assert_true(tdict_tensor_shares_storage(tdict_ragged_get_info(leaf).values, tdict_ragged_get_info(leaf).offsets));
  assert_true(tdict_tensor_shares_storage(tdict_ragged_get_info(leaf).values, td_leaf(there, "t")));
  td_release(there, src);
  rows_free(&r);
}

GPU_CASE(ragged_is_pinned) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2));
  scoped_tree src = tree_of(&r, NULL), pinned = NULL, there = NULL, again = NULL;
  char text[600];
  assert_false(tdict_is_pinned(src));
  td_ok(tdict_pin_memory(w.c, src, NULL, &pinned, err));
  assert_true(tdict_is_pinned(pinned));
  rows_check_at(&w, &r, pinned, "n.x");
  (void)tdict_format(pinned, text, sizeof text);
  assert_non_null(strstr(text, "ragged float32 [3, *, 2], 5 elements, cpu pinned\n"));
  td_ok(tdict_pin_memory(w.c, pinned, NULL, &again, err)); /* pinned already */
  assert_ptr_equal(rows_get(again, "n.x"), rows_get(pinned, "n.x"));
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(tdict_to_device(w.c, pinned, w.device, td_options(tdict_transfer_options, stats = &stats), &there, err));
  rows_check_at(&w, &r, there, "n.x");
  assert_int_equal(stats.direct_bytes + stats.staged_bytes, stats.total_bytes);
  assert_int_equal(stats.pageable_bytes, 0);
  scoped_ragged alone = NULL;
  void *made = NULL;
  td_ok(tdict_pin_object(w.c, tdict_ragged_type(), rows_get(src, "n.x"), NULL, &made, err));
  alone = made;
  assert_true(tdict_tensor_is_pinned(tdict_ragged_get_info(alone).values));
  rows_check(&w, &r, alone);
}

DEVICE_CASE(ragged_is_written_by_transfer_into) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2, 7)), fresh = rows_of(2, COUNTS(3, 0, 2, 7));
  for (int i = 0; i < NUM_WAYS; i += 3) {
    const way v = way_at(i);
    scoped_tree src = tree_of(&fresh, NULL), from = tree_of(&r, NULL), dst = to_device(&w, from, w.device);
    const tdict_ragged *leaf = rows_get(dst, "n.x");
    const tdict_tensor *values = tdict_ragged_get_info(leaf).values;
    copy_tree(&w, src, dst, &v);
    assert_ptr_equal(rows_get(dst, "n.x"), leaf);
    assert_ptr_equal(tdict_ragged_get_info(leaf).values, values);
    rows_check(&w, &fresh, leaf);
  }
}

DEVICE_CASE(ragged_transfer_into_refuses) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2)), moved = rows_of(2, COUNTS(2, 1, 2)),
              more = rows_of(2, COUNTS(3, 0, 1, 1));
  scoped_tree src = help_tree(0, NULL), dst = help_tree(0, NULL), there = NULL;
  rows_put(src, "x", &r, NULL);
  rows_put(dst, "x", &moved, NULL);
  there = to_device(&w, dst, w.device);
  tdict_ragged *leaf = rows_get(there, "x");
  td_fails_at(TDICT_ESHAPE, "row 0 has length 2, but row 0 of the other side has 3", "x",
              tdict_transfer_into(w.c, there, src, NULL, err));
  rows_check(&w, &moved, leaf);
  rows_put(src, "x", &more, NULL);
  td_fails(TDICT_ESHAPE, "3 rows are selected, but the other leaf has 4",
           tdict_transfer_into(w.c, there, src, NULL, err));
  td_put(src, "x", TENSOR(5, 2));
  td_fails(TDICT_ETYPE, "a tensor in the source", tdict_transfer_into(w.c, there, src, NULL, err));
  td_fails(TDICT_ETYPE, "ragged", tdict_transfer_into(w.c, src, there, NULL, err));
  rows_check(&w, &moved, leaf);
}

GPU_CASE(ragged_records_streams) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2));
  scoped_tree td = help_tree(0, NULL);
  tdict_ragged *leaf = rows_put(td, "x", &r, w.memory); /* values and offsets have separate storages */
  TD_STREAM(s, w.c, w.device);
  td_ok(tdict_record_stream(td, s, err));
  assert_int_equal(tdict_ragged_get_info(leaf).values->storage->num_uses, 1);
  assert_int_equal(tdict_ragged_get_info(leaf).offsets->storage->num_uses, 1);
}

/* Indexes the result of a transfer that had to wait for a stream. */
SIM_CASE(ragged_is_indexed_while_it_moves) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2, 4));
  scoped_tree src = tree_of(&r, NULL), there = NULL, row = NULL;
  held_stream h;
  hold_stream(&w, &h);
  tdict_transfer_options o = behind(&h);
  tdict_future *f = move_async(&w, src, w.device, &o);
  atomic_store(&h.open, true);
  td_ok(tdict_future_wait(f, &there, err));
  td_ok(tdict_index_get(NULL, there, TDICT_INDEX(TDICT_AT(3)), NULL, &row, err));
  rows_check_row(&w, &r, 3, td_leaf(row, "n.x"));
  tdict_future_release(f);
  tdict_stream_destroy(w.c, h.s);
}

DEVICE_CASE(ragged_transfer_survives_enomem) {
  scoped_place w = open_place();
  scoped_rows r = rows_of(2, COUNTS(3, 0, 2)), fresh = rows_of(2, COUNTS(3, 0, 2));
  scoped_tree src = tree_of(&r, NULL), there = NULL, value = tree_of(&fresh, NULL);
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = 0; /* the calling thread makes all allocations */
  tdict_tree *warm = to_device(&w, src, w.device);
  tdict_release(warm);
  TD_WITHOUT_MEMORY(tdict_to_device(w.c, src, w.device, &o, &there, err));
  rows_check_at(&w, &r, there, "n.x");
  TD_WITHOUT_MEMORY(tdict_transfer_into(w.c, there, value, &o, err));
  rows_check_at(&w, &fresh, there, "n.x");
}
