/* Tests transfers of leaves whose bytes are not in memory. A callback reads them into slots, or directly into a result
 * on the host. */
#include "engine/engine.h"
#include "support/threads.h"
#include "support/unloaded.h"
#include "trees.h"

/* Opens a place with large slots, so that several threads fill one slot. */
static place open_large_world(void) { return place_sized(16 << 20, -1); }

static const tree_kind host_kinds[] = {TREE_BATCH, TREE_TINY, TREE_LARGE, TREE_STRIDED, TREE_ODD, TREE_SHARED};
enum { NUM_HOST_KINDS = sizeof host_kinds / sizeof *host_kinds };

static bool has_unloaded(const tdict_tree *td) {
  scoped_leaf_list l = list_entries(td);
  bool found = false;
  for (size_t i = 0; i < l.count; i++) found |= l.tensors[i] && tdict_storage_is_unloaded(l.tensors[i]->storage);
  return found;
}

/* Moves the twin to the device and to the host with the options of `v`. */
static void move_twin(const place *w, const tdict_tree *tree, const tdict_tree *twin, const way *v) {
  scoped_tree there = move_tree(w, twin, w->device, v), back = NULL;
  check_tree(w, tree, there);
  assert_false(has_unloaded(there));
  back = move_tree(w, twin, tdict_cpu(), v);
  check_tree(w, tree, back);
  assert_false(has_unloaded(back));
}

static void move_all(const place *w, int step) {
  for (int k = 0; k < NUM_HOST_KINDS; k++) {
    scoped_tree tree = make_tree(w, host_kinds[k]);
    for (int i = 0; i < NUM_WAYS; i += step) {
      const way v = way_at(i);
      scoped_disk d = disk_open();
      scoped_tree twin = disk_twin(&d, tree, i % 3 ? 100 : 60, next_seed());
      move_twin(w, tree, twin, &v);
    }
  }
}
DEVICE_CASE(unloaded_trees_are_transferred) {
  scoped_place w = open_place();
  move_all(&w, WAYS_STEP);
}
DEVICE_CASE(unloaded_trees_go_through_large_slots) {
  scoped_place w = open_large_world();
  move_all(&w, 2 * WAYS_STEP);
}

/* Copies unloaded leaves into existing leaves, whose old bytes are overwritten with poison first. */
DEVICE_CASE(unloaded_trees_go_into_trees) {
  static const tree_kind kinds[] = {TREE_BATCH, TREE_LARGE, TREE_ODD, TREE_TINY};
  scoped_place w = open_place();
  for (int k = 0; k < 4; k++) {
    tdict_tree *tree = make_tree(&w, kinds[k]), *dst[2];
    td_ok(tdict_clone_deep(tree, TD_IN(w.gpu ? w.memory : NULL), &dst[0], err));
    td_ok(tdict_clone_deep(tree, NULL, &dst[1], err));
    for (int i = 0; i < NUM_WAYS; i += 1 + 2 * WAYS_STEP) {
      const way v = way_at(i);
      scoped_disk d = disk_open();
      scoped_tree twin = disk_twin(&d, tree, 80, next_seed());
      for (int side = 0; side < 2; side++) {
        spoil_tree(&w, dst[side]);
        copy_tree(&w, twin, dst[side], &v);
        check_tree(&w, tree, dst[side]);
      }
      if (has_unloaded(twin)) td_fails(TDICT_EREADONLY, "read-only", tdict_transfer_into(w.c, twin, tree, NULL, err));
    }
    td_release(dst[0], dst[1], tree);
  }
}

GPU_CASE(unloaded_trees_are_pinned) {
  scoped_place w = open_place();
  for (int k = 0; k < NUM_HOST_KINDS; k++) {
    scoped_tree tree = make_tree(&w, host_kinds[k]), out = NULL;
    disk d = disk_open();
    tdict_tree *twin = disk_twin(&d, tree, 100, next_seed());
    assert_false(tdict_is_pinned(twin));
    td_ok(tdict_pin_memory(w.c, twin, NULL, &out, err));
    check_tree(&w, tree, out);
    assert_false(has_unloaded(out));
    assert_true(tdict_is_pinned(out));
    td_release(out, twin);
    disk_reset(&d);
  }
}

/* Moves a consolidated tree whose storage is one file. */
DEVICE_CASE(unloaded_consolidated_tree) {
  scoped_place w = open_place();
  scoped_tree plain = make_tree(&w, TREE_BATCH), tree = td_made(tree, tdict_consolidate(plain, NULL, &made, err));
  scoped_disk d = disk_open();
  scoped_tree twin = disk_twin(&d, plain, 0, 1); /* a clone with its own nodes */
  leaf_list l = list_entries(tree);
  tdict_storage *file = NULL;
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    const tdict_storage *from = l.tensors[i]->storage;
    if (!file) file = disk_add(&d, from->data, from->bytes, "all");
    td_put(twin, l.paths[i], disk_leaf(file, l.tensors[i]));
  }
  free_list(&l);
  td_ok(tdict_consolidated_create_like(tree->consolidated, file, &twin->consolidated, err));
  tdict_lock(twin);
  tdict_storage_release(file);
  for (int i = 0; i < NUM_WAYS; i += 1 + 2 * WAYS_STEP) {
    const way v = way_at(i);
    scoped_tree out = move_tree(&w, twin, w.device, &v);
    check_tree(&w, tree, out);
    assert_true(tdict_is_consolidated(out));
    assert_false(has_unloaded(out));
  }
  check_and_release(&w, tree, move_with(&w, twin, w.device, td_options(tdict_transfer_options, check_sources = true)));
}

/* Makes a tree of three leaves that need several chunks. The middle leaf is a slice of columns. */
static tdict_tree *three_leaves(void) {
  tdict_tree *td = td_tree("a:f32[30011]");
  td_put(td, "n.columns", sliced(random_tensor(TDICT_U8, SHAPE(9, 9000), NULL), (tdict_tensor_range){1, 100, 8000, 1}));
  td_put(td, "z", random_tensor(TDICT_F64, SHAPE(20000), NULL));
  return td;
}

/* Makes each read fail in turn. The error must have the status and message of the read and the path of the leaf. A
 * later transfer must succeed. */
static void fail_each_read(const place *w, const way *v, disk_fault fault) {
  static const char *const texts[NUM_DISK_FAULTS] = {"the disk is on fire", "wanted", "wanted", "wanted",
                                                     "without a message",   "999"};
  scoped_tree tree = three_leaves(), dst = NULL;
  scoped_disk d = disk_open();
  scoped_tree twin = disk_twin(&d, tree, 100, 1);
  td_ok(tdict_clone_deep(tree, TD_IN(w->gpu ? w->memory : NULL), &dst, err));
  tdict_release(move_tree(w, twin, w->device, v));
  const int64_t reads = d.begun;
  assert_true(reads >= 11); /* nine rows and two other leaves */
  for (int64_t n = 1; n <= reads + 1; n++) {
    tdict_tree *out = NULL;
    disk_fail(&d, n, fault);
    if (n > reads) {
      check_and_release(w, tree, move_tree(w, twin, w->device, v));
      break;
    }
    if (n % 2) {
      td_fails(disk_status(fault), texts[fault], tdict_to_device(w->c, twin, w->device, &v->o, &out, err));
      assert_null(out);
    } else {
      td_fails(disk_status(fault), texts[fault], tdict_transfer_into(w->c, dst, twin, &v->o, err));
      tdict_tensor *t = td_leaf(dst, d.failed_path);
      assert_null(tdict_tensor_const_data(t));
    }
    assert_string_equal(td_last_error.path, d.failed_path);
  }
  d.fail_at = 0;
  copy_tree(w, twin, dst, v);
  check_tree(w, tree, dst);
  assert_non_null(tdict_const_data(dst, "a"));
}
DEVICE_CASE(unloaded_read_that_fails) {
  scoped_place w = open_place();
  for (int i = 0; i < NUM_WAYS; i += WAYS_STEP) {
    const way v = way_at(i);
    fail_each_read(&w, &v, (disk_fault)(i % NUM_DISK_FAULTS));
  }
}
DEVICE_CASE(unloaded_part_that_fails) {
  scoped_place w = open_large_world();
  for (int fault = 0; fault < NUM_DISK_FAULTS; fault++)
    for (int i = 0; i < 10; i += 2) {
      const way v = way_at(i);
      fail_each_read(&w, &v, (disk_fault)fault);
    }
}

/* Each read writes directly into a slot, at most as many bytes as the slot has, or into the result. */
DEVICE_CASE(unloaded_reads_need_no_copy) {
  scoped_place w = open_place();
  scoped_tree tree = make_tree(&w, TREE_LARGE), out = NULL;
  for (int32_t n = -1; n < 3; n++) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = n, stats = &stats);
    scoped_disk d = disk_open();
    scoped_tree twin = disk_twin(&d, tree, 100, 1);
    const size_t bytes = tdict_tensor_bytes(td_leaf(tree, "large")), slot = tdict_context_engine(w.c)->rings.slot_bytes;
    if (w.gpu) {
      td_ok(tdict_to_device(w.c, twin, w.device, &o, &out, err));
      assert_int_equal(stats.staged_bytes, bytes);
      assert_int_equal(stats.pageable_bytes + stats.direct_bytes + stats.host_bytes, 0);
      assert_true(d.most_bytes <= slot);
      assert_true(d.begun >= (int64_t)(bytes / slot));
      assert_true(stats.peak_staging_bytes <= STAGING);
      td_release(out);
      d.low = UINTPTR_MAX;
      d.high = 0;
    }
    td_ok(tdict_to_device(w.c, twin, tdict_cpu(), &o, &out, err));
    const tdict_tensor *t = td_leaf(out, "large");
    assert_int_equal(stats.host_bytes, bytes);
    assert_int_equal(d.low, (uintptr_t)t->data);
    assert_int_equal(d.high, (uintptr_t)t->data + bytes);
    td_release(out);
  }
}

/* check_sources hashes only leaves in memory, so unloaded leaves are still read only once. */
DEVICE_CASE(unloaded_sources_are_not_hashed) {
  scoped_place w = open_place();
  scoped_tree tree = three_leaves(), out = NULL;
  disk d = disk_open();
  tdict_tree *twin = disk_twin(&d, tree, 100, 1);
  tdict_transfer_options o = threads(1);
  tdict_release(td_made(tree, tdict_to_device(w.c, twin, w.device, &o, &made, err)));
  const int64_t reads = d.begun;
  o.check_sources = true;
  td_put(twin, "memory", random_tensor(TDICT_U8, SHAPE(1000), NULL));
  td_put(tree, "memory", tdict_tensor_retain(td_leaf(twin, "memory")));
  td_ok(tdict_to_device(w.c, twin, w.device, &o, &out, err));
  check_tree(&w, tree, out);
  assert_int_equal(d.begun, 2 * reads);
  td_release(out, twin);
  disk_reset(&d);
}

static void *wait_for_source(void *user) {
  tdict_future *f = user;
  return tdict_future_wait_source(f, NULL) == TDICT_OK ? f : NULL;
}

/* Two workers read at once. The files live until the last read ends, even if the program releases them earlier. */
DEVICE_CASE(unloaded_reads_run_in_parallel) {
  scoped_place w = open_place();
  tdict_tree *tree = make_tree(&w, TREE_LARGE), *out = NULL;
  for (int to_host = 0; to_host < 2; to_host++) {
    scoped_disk d = disk_open();
    tdict_tree *twin = disk_twin(&d, tree, 100, 1);
    tdict_transfer_options o = threads(2);
    disk_permit(&d, 0);
    scoped_future f = move_async(&w, twin, to_host ? tdict_cpu() : w.device, &o);
    tdict_release(twin);
    disk_await(&d, 2);
    pthread_t waiter = td_start(wait_for_source, f);
    td_rest();
    assert_int_equal(d.inside, 2);
    assert_int_equal(d.begun, 2);
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
    assert_int_equal(d.released, 0);
    /* when a read ends, one more begins */
    disk_permit(&d, 1);
    disk_await(&d, 3);
    td_rest();
    assert_int_equal(d.begun, 3);
    assert_int_equal(d.inside, 2);
    assert_int_equal(d.released, 0);
    assert_false(tdict_future_is_ready(f));
    disk_permit(&d, -1);
    void *answer;
    assert_int_equal(pthread_join(waiter, &answer), 0);
    assert_ptr_equal(answer, f);
    assert_int_equal(d.begun, d.ended); /* all reads of the source have ended */
    td_ok(tdict_future_wait(f, &out, err));
    assert_int_equal(d.released, 1);
    check_and_release(&w, tree, out);
  }
  tdict_release(tree);
}

/* Transfers that read the same source do not wait for each other. */
DEVICE_CASE(unloaded_source_of_two_transfers) {
  scoped_place w = open_place();
  scoped_tree tree = make_tree(&w, TREE_LARGE);
  scoped_disk d = disk_open();
  scoped_tree twin = disk_twin(&d, tree, 100, 1);
  tdict_transfer_options o = threads(1);
  tdict_future *f[2];
  disk_permit(&d, 0);
  for (int i = 0; i < 2; i++) td_ok(tdict_to_device_async(w.c, twin, w.device, &o, &f[i], err));
  disk_await(&d, 2);
  assert_int_equal(d.inside, 2);
  disk_permit(&d, -1);
  for (int i = 0; i < 2; i++) check_result(&w, tree, f[i]);
}

/* A cancelled transfer begins no more reads, and ends when its running reads have ended. */
DEVICE_CASE(unloaded_transfer_is_cancelled) {
  scoped_place w = open_place();
  scoped_tree tree = make_tree(&w, TREE_LARGE), out = NULL;
  for (int32_t n = 1; n < 3; n++) {
    scoped_disk d = disk_open();
    tdict_tree *twin = disk_twin(&d, tree, 100, 1);
    tdict_transfer_options o = threads(n);
    disk_permit(&d, 0);
    scoped_future f = move_async(&w, twin, w.device, &o);
    tdict_release(twin);
    disk_await(&d, n);
    tdict_future_cancel(f);
    td_rest();
    assert_false(tdict_future_is_ready(f));
    assert_int_equal(d.released, 0);
    disk_permit(&d, -1);
    td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, &out, err));
    assert_int_equal(d.begun, n);
    assert_int_equal(d.ended, n);
  }
}

/* Makes each allocation fail in turn, in the constructors and in a transfer on the calling thread. */
DEVICE_CASE(unloaded_without_memory) {
  scoped_place w = open_place();
  scoped_tree tree = three_leaves();
  scoped_disk d = disk_open();
  const tdict_storage_reader reader = {disk_read, NULL, NULL};
  const int64_t shape = 3;
  tdict_tensor_desc layout = td_with(tdict_tensor_desc, dtype = TDICT_U8, ndim = 1, shape = &shape);
  tdict_storage *s = NULL, *made = NULL;
  tdict_tensor *t = NULL;
  td_ok(tdict_storage_create_unloaded(&reader, 3, &s, err));
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "memory", tdict_storage_create_unloaded(&reader, 3, &made, err));
  assert_true(td_fail_alloc_stop());
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "memory", tdict_tensor_unloaded(s, &layout, 0, &t, err));
  assert_true(td_fail_alloc_stop());
  assert_null(made);
  assert_null(t);
  tdict_storage_release(s);
  tdict_tree *twin = disk_twin(&d, tree, 100, 1), *out = NULL;
  tdict_transfer_options o = threads(0);
  tdict_release(to_device(&w, twin, w.device)); /* creates the ring, streams and events */
  TD_SWEEP(sweep) {
    out = NULL;
    if (td_sweep_call(sweep, tdict_to_device(w.c, twin, w.device, &o, &out, err)) == TDICT_OK)
      check_and_release(&w, tree, out); /* some allocations are optional */
    else
      assert_null(out);
    assert_true(sweep.failed || sweep.n > 3);
  }
  tdict_release(twin);
}
