/* Tests transfers in all modes and directions, with various thread counts and all kinds of leaves: the results, which
 * leaves are shared, and refused calls. */
#include "trees.h"

/* Moves a tree to new device memory. Overwrites each result, so that reused memory does not have the expected bytes. */
static void move_in(const place *w, tree_kind kind) {
  scoped_tree src = make_tree(w, kind);
  poison(w, w->memory, line_bytes(src));
  for (int i = kind % WAYS_STEP; i < NUM_WAYS; i += WAYS_STEP) {
    const way v = way_at(i);
    tdict_tree *there = move_tree(w, src, w->device, &v);
    check_device(there, w->device);
    check_and_spoil(w, src, there);
  }
}

DEVICE_CASE(transfer_every_mode) {
  scoped_place w = open_place();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    if (w.gpu) {
      move_in(&w, (tree_kind)kind);
      continue;
    }
    if (kind == TREE_PINNED || kind == TREE_MIXED) continue;
    scoped_tree src = make_tree(&w, (tree_kind)kind); /* on the host, nothing is copied */
    for (int i = 0; i < NUM_WAYS; i++) {
      const way v = way_at(i);
      scoped_tree there = move_tree(&w, src, w.device, &v);
      assert_ptr_equal(there, src);
    }
  }
}

GPU_CASE(transfer_round_trip) {
  scoped_place w = open_place();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&w, (tree_kind)kind), there = to_device(&w, src, w.device);
    check_tree(&w, src, there);
    const int step = kind == TREE_BATCH || kind == TREE_TINY || kind == TREE_MIXED
                         ? WAYS_STEP
                         : 3 * WAYS_STEP; /* all ways for some kinds */
    for (int i = 0; i < 2 * NUM_WAYS; i += step) {
      way v = way_at(i / 2);
      v.o.pinned_result = i % 2;
      poison(&w, i % 2 ? w.pinned : NULL, line_bytes(src));
      scoped_tree back = move_tree(&w, there, tdict_cpu(), &v);
      check_device(back, tdict_cpu());
      check_tree(&w, src, back);
      assert_int_equal(tdict_is_pinned(back), i % 2 || tdict_num_leaves(back) == 0);
      spoil_tree(&w, back);
    }
  }
}

/* Moves strided device leaves to the host, into ordinary and pinned memory. */
GPU_CASE(transfer_strided_device_leaves) {
  scoped_place w = open_place();
  scoped_tree src = strided_tree(), there = to_device(&w, src, w.device), views = new_tree(), want = new_tree();
  leaf_list a = list_entries(src), b = list_entries(there);
  const int turn[] = {1, 0};
  for (size_t i = 0; i < a.count; i++) {
    tdict_tensor *from = tdict_tensor_retain(b.tensors[i]), *like = NULL;
    td_ok(tdict_tensor_clone(a.tensors[i], NULL, &like, err));
    int64_t n = tdict_tensor_shape(like)[0];
    const tdict_tensor_range back = {0, n - 1, n / 2, -2};
    from = sliced(from, back);
    like = sliced(like, back);
    if (tdict_tensor_ndim(like) == 2) from = permuted(from, turn), like = permuted(like, turn);
    td_put(views, a.paths[i], from);
    td_put(want, a.paths[i], like);
  }
  for (int i = 0; i < NUM_WAYS; i += WAYS_STEP) {
    way v = way_at(i);
    v.o.pinned_result = i % 3 == 0;
    poison(&w, v.o.pinned_result ? w.pinned : NULL, line_bytes(want));
    check_and_spoil(&w, want, move_tree(&w, views, tdict_cpu(), &v));
  }
  free_list(&a);
  free_list(&b);
}

DEVICE_CASE(transfer_same_place_shares) {
  scoped_place w = open_place();
  tdict_tree *host = batch_tree(NULL), *there = to_device(&w, host, w.device), *again = to_device(&w, there, w.device);
  assert_ptr_equal(again, there);
  tdict_release(again);
  const way all = way_at(0);
  again = move_tree(&w, there, (tdict_device){TDICT_DEVICE_AUTO, 0}, &all); /* auto is the device of the context */
  assert_ptr_equal(again, there);
  tdict_release(again);
  tdict_tree *home = to_device(&w, host, tdict_cpu());
  assert_ptr_equal(home, host);
  tdict_release(home);
  /* leaves that are already on the device are shared */
  tdict_tree *mixed = new_tree();
  tdict_tensor *stays = td_leaf(there, "obs.pixels");
  td_ok(tdict_set(mixed, "a.stays", stays, err));
  td_put(mixed, "a.goes", random_tensor(TDICT_F32, SHAPE(300), NULL));
  td_ok(tdict_set(mixed, "stays_too", stays, err));
  tdict_tree *moved = to_device(&w, mixed, w.device);
  check_device(moved, w.device);
  check_tree(&w, mixed, moved);
  assert_ptr_equal(td_leaf(moved, "a.stays"), stays);
  assert_ptr_equal(td_leaf(moved, "stays_too"), stays);
  assert_int_equal(td_leaf(moved, "a.goes") == td_leaf(mixed, "a.goes"), !w.gpu);
  tdict_tree *trees[] = {moved, mixed, there, host};
  for (size_t i = 0; i < 4; i++) tdict_release(trees[i]);
  /* a tree without leaves is shared if its device is the target, otherwise copied */
  tdict_tree *empty = new_tree(), *placed = to_device(&w, empty, w.device), *same = to_device(&w, placed, w.device);
  tdict_device device;
  assert_true(tdict_get_device(placed, &device) && tdict_device_equal(device, w.device));
  assert_false(tdict_get_device(empty, NULL));
  assert_ptr_equal(same, placed);
  tdict_tree *more[] = {same, placed, empty};
  for (size_t i = 0; i < 3; i++) tdict_release(more[i]);
}

/* Checks that all copied leaves are in one storage in tree order, each at the next multiple of 256 bytes. */
static void check_arena(const tdict_tree *td) {
  scoped_leaf_list l = list_entries(td);
  const tdict_tensor *first = NULL;
  size_t at = 0;
  for (size_t i = 0; i < l.count; i++) {
    const tdict_tensor *t = l.tensors[i];
    if (!t) continue;
    if (!first) first = t;
    assert_true(tdict_tensor_shares_storage(first, t));
    assert_true(tdict_tensor_is_contiguous(t));
    at = (at + 255) / 256 * 256;
    if (tdict_tensor_bytes(t)) assert_int_equal((char *)t->data - (char *)first->storage->data, at);
    at += tdict_tensor_bytes(t);
  }
  assert_int_equal(first->storage->bytes, at);
}

GPU_CASE(transfer_one_arena) {
  scoped_place w = open_place();
  static const tree_kind kinds[] = {TREE_BATCH, TREE_TINY, TREE_STRIDED, TREE_ODD, TREE_PINNED, TREE_MIXED};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    scoped_tree src = make_tree(&w, kinds[i]);
    tdict_memory_counts before = td_memory_counts(w.memory);
    scoped_tree there = to_device(&w, src, w.device);
    tdict_memory_counts after = td_memory_counts(w.memory);
    assert_int_equal(after.num_allocations, before.num_allocations + 1);
    check_arena(there);
    way v = way_at(0);
    v.o.pinned_result = i % 2;
    scoped_tree back = move_tree(&w, there, tdict_cpu(), &v);
    check_arena(back);
  }
}

GPU_CASE(transfer_shared_leaves_sent_once) {
  scoped_place w = open_place();
  scoped_tree src = shared_tree();
  for (int i = 0; i < NUM_WAYS; i += 2) {
    way v = way_at(i);
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    v.o.stats = &stats;
    scoped_tree there = move_tree(&w, src, w.device, &v);
    check_tree(&w, src, there);
    /* these tensors of shared_tree() are copied once: both, x, y, top, overlap, a last column, rows */
    assert_int_equal(stats.total_bytes, 400 + 77 + 24 + 1000 + 1000 + 160 + 4000);
    assert_int_equal(stats.num_leaves, 12);
    assert_int_equal(stats.num_shared_leaves, 5);
    assert_ptr_equal(td_leaf(there, "one")->data, td_leaf(there, "two")->data);
    assert_ptr_equal(td_leaf(there, "one")->data, td_leaf(there, "as_integers")->data);
    assert_ptr_equal(td_leaf(there, "left.deeper.y")->data, td_leaf(there, "right.deeper.y")->data);
    assert_ptr_equal(td_leaf(there, "last_column")->data, td_leaf(there, "last_column_again")->data);
    assert_ptr_not_equal(td_leaf(there, "top")->data, td_leaf(there, "rows")->data);
    spoil_tree(&w, there);
  }
}

GPU_CASE(transfer_keeps_shape_of_tree) {
  scoped_place w = open_place();
  tdict_tree *src = batch_tree(NULL), *next = NULL, *got = NULL;
  tdict_device device;
  td_ok(tdict_get_tree(src, "next", &next, err));
  tdict_lock(next); /* locks only a subtree */
  tdict_tree *there = to_device(&w, src, w.device);
  assert_int_equal(tdict_batch_ndim(there), 1);
  assert_int_equal(tdict_batch_size(there)[0], 16);
  assert_true(tdict_get_device(there, &device) && tdict_device_equal(device, w.device));
  td_ok(tdict_get_tree(there, "next.obs", &got, err));
  assert_int_equal(tdict_batch_ndim(got), 1);
  assert_true(tdict_get_device(got, &device) && tdict_device_equal(device, w.device));
  assert_false(tdict_is_locked(there));
  assert_true(tdict_is_locked(got)); /* locked by its parent */
  td_ok(tdict_get_tree(there, "next", &got, err));
  assert_true(tdict_is_locked(got));
  td_ok(tdict_unlock(got, err)); /* does not unlock the source */
  assert_true(tdict_is_locked(next));
  td_ok(tdict_get_tree(there, "obs", &got, err));
  assert_false(tdict_is_locked(got));
  tdict_lock(src);
  tdict_tree *locked = to_device(&w, src, w.device), *back = to_device(&w, locked, tdict_cpu());
  assert_true(tdict_is_locked(locked));
  assert_true(tdict_is_locked(back));
  td_fails(TDICT_ELOCKED, "", tdict_delete(back, "action", err));
  assert_true(tdict_get_device(back, &device) && tdict_device_equal(device, tdict_cpu()));
  check_tree(&w, src, back);
  tdict_tree *trees[] = {back, locked, there, src};
  for (size_t i = 0; i < 4; i++) tdict_release(trees[i]);
}

/* The option `memory` chooses the memory of the result. */
GPU_CASE(transfer_into_given_memory) {
  scoped_place w = open_place();
  tdict_tree *src = batch_tree(NULL), *there = to_device(&w, src, w.device);
  way v = way_at(0);
  v.o.memory = w.pinned;
  tdict_tree *back = move_tree(&w, there, tdict_cpu(), &v), *copied = move_tree(&w, src, tdict_cpu(), &v);
  assert_true(tdict_is_pinned(back));
  check_tree(&w, src, back);
  assert_true(tdict_is_pinned(copied)); /* leaves in ordinary memory are copied */
  check_tree(&w, src, copied);
  tdict_tree *same = move_tree(&w, copied, tdict_cpu(), &v);
  assert_ptr_equal(same, copied);
  v.o.memory = tdict_device_memory(w.c, tdict_cpu());
  tdict_tree *plain = move_tree(&w, there, tdict_cpu(), &v);
  assert_false(tdict_is_pinned(plain));
  check_tree(&w, src, plain);
  tdict_tree *trees[] = {src, there, back, copied, same, plain};
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) tdict_release(trees[i]);
}

GPU_CASE(transfer_result_outlives_context) {
  place w = open_place();
  tdict_tree *src = batch_tree(NULL), *there = to_device(&w, src, w.device);
  way v = way_at(0);
  v.o.pinned_result = true;
  tdict_tree *back = move_tree(&w, there, tdict_cpu(), &v);
  tdict_future *f = move_async(&w, src, w.device, NULL);
  raw_close(w.raw);
  tdict_context_destroy(w.c); /* waits for the transfer */
  assert_true(tdict_future_is_ready(f));
  tdict_tree *late = td_made(tree, tdict_future_wait(f, &made, err));
  check_device(late, w.device);
  check_tree(&w, src, back);
  tdict_transfer_stats stats = td_filled(tdict_transfer_stats, tdict_future_get_stats(f, &made, err));
  assert_int_equal(stats.total_bytes, tdict_bytes(src));
  tdict_future_release(f);
  tdict_tree *trees[] = {late, there, back, src};
  for (size_t i = 0; i < 4; i++) tdict_release(trees[i]);
  raw_close(w.host);
}

DEVICE_CASE(transfer_refuses_absent_device) {
  scoped_place w = open_place();
  tdict_tree *src = batch_tree(NULL), *const mark = src;
  tdict_tree *out = mark;
  tdict_future *f = (tdict_future *)mark;
  const tdict_device absent[] = {{w.device.type == TDICT_DEVICE_SIM ? TDICT_DEVICE_CUDA : TDICT_DEVICE_SIM, 0},
                                 {TDICT_DEVICE_SIM, 99},
                                 {TDICT_DEVICE_CUDA, 99},
                                 {77, 0}};
  for (size_t i = w.device.type == TDICT_DEVICE_SIM; i < 4; i++) { /* a context on sim may also have cuda devices */
    td_fails(TDICT_ENODEVICE, "", tdict_to_device(w.c, src, absent[i], NULL, &out, err));
    td_fails(TDICT_ENODEVICE, "", tdict_to_device_async(w.c, src, absent[i], NULL, &f, err));
  }
  assert_ptr_equal(out, mark);
  assert_ptr_equal(f, mark);
  tdict_release(src);
}

DEVICE_CASE(transfer_refuses_foreign_device) {
  scoped_place w = open_place();
  tdict_tree *src = new_tree(), *out = src;
  tdict_tensor *foreign = NULL;
  static char nowhere[256];
  const int64_t count = 8;
  tdict_tensor_desc v = desc_of(nowhere, TDICT_F32, &count);
  v.device = (tdict_device){TDICT_DEVICE_CUDA, 77};
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &foreign, err));
  td_put(src, "a.here", random_tensor(TDICT_F32, SHAPE(8), NULL));
  td_put(src, "a.there", foreign);
  td_fails_at(TDICT_EWRONGDEVICE, "cuda:77", "a.there", tdict_to_device(w.c, src, w.device, NULL, &out, err));
  tdict_tree *dst = td_tree("a.here:f32[8] a.there:f32[8]");
  td_fails_at(TDICT_EWRONGDEVICE, "cuda:77", "a.there", tdict_transfer_into(w.c, dst, src, NULL, err));
  /* memory on a device other than the target */
  tdict_transfer_options o =
      td_with(tdict_transfer_options, memory = w.gpu ? w.memory : tdict_device_memory(w.c, tdict_sim(0)));
  tdict_tree *plain = batch_tree(NULL);
  td_fails(TDICT_EWRONGDEVICE, "", tdict_to_device(w.c, plain, tdict_cpu(), &o, &out, err));
  assert_ptr_equal(out, src);
  td_release(plain, src, dst);
}
