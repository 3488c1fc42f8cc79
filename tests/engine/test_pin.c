/* Tests pinning of trees, and tdict_is_pinned(). */
#include "trees.h"
#include "wrap.h"

#include "core/memory/pinned_pages.h"
#include "support/driver_fault.h"

GPU_CASE(pin_memory_pins_and_shares) {
  scoped_place w = open_place();
  static const int threads[] = {-1, 0, 1, 2, 8};
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++)
    for (int i = THREAD_SANITIZED ? kind % 3 : 0; i < 5; i += THREAD_SANITIZED ? 3 : 1) {
      scoped_tree src = make_tree(&w, (tree_kind)kind), out = NULL;
      tdict_transfer_stats stats = tdict_transfer_stats_default();
      tdict_pin_options o = td_with(tdict_pin_options, num_threads = threads[i], stats = &stats);
      poison(&w, w.pinned, line_bytes(src));
      td_ok(tdict_pin_memory(w.c, src, &o, &out, err));
      assert_true(tdict_is_pinned(out));
      check_device(out, tdict_cpu());
      check_tree(&w, src, out);
      assert_int_equal(tdict_get_device(out, NULL), tdict_get_device(src, NULL)); /* neither tree has a device */
      assert_int_equal(tdict_batch_ndim(out), tdict_batch_ndim(src));
      leaf_list a = list_entries(src), b = list_entries(out);
      const tdict_tensor *block = NULL;
      for (size_t k = 0; k < a.count; k++) {
        if (!a.tensors[k]) continue;
        assert_int_equal(a.tensors[k] == b.tensors[k], tdict_tensor_is_pinned(a.tensors[k]));
        if (a.tensors[k] == b.tensors[k]) continue;
        assert_false(tdict_tensor_shares_storage(a.tensors[k], b.tensors[k]));
        if (!block) block = b.tensors[k];
        assert_true(tdict_tensor_shares_storage(block, b.tensors[k]));
      }
      assert_int_equal(stats.host_bytes, stats.total_bytes);
      if (block && stats.total_bytes) assert_in_range(stats.pin_path, TDICT_PIN_REGISTER, TDICT_PIN_DRIVER);
      free_list(&a);
      free_list(&b);
      /* a second call copies nothing */
      tdict_tree *again = td_made(tree, tdict_pin_memory(w.c, out, NULL, &made, err));
      assert_ptr_equal(again, out);
      tdict_release(again);
      /* the driver reads the leaves directly */
      if (block) {
        const way v = {
            .o = {.struct_size = sizeof v.o, .num_threads = 2, .mode = TDICT_MODE_NON_BLOCKING, .stats = &stats}};
        scoped_tree there = move_tree(&w, out, w.device, &v);
        check_tree(&w, src, there);
        if (kind == TREE_BATCH) assert_int_equal(stats.direct_bytes, tdict_bytes(src));
      }
      spoil_tree(&w, out);
    }
}

GPU_CASE(pin_memory_refuses_device_leaf) {
  scoped_place w = open_place();
  tdict_tree *src = td_tree("a.b:u8[10]"), *there, *out = src;
  there = to_device(&w, src, w.device);
  tdict_tree *mixed = bytes_tree("host", 10, NULL);
  td_ok(tdict_set(mixed, "a.b", td_leaf(there, "a.b"), err));
  td_fails_at(TDICT_EWRONGDEVICE, "cpu", "a.b", tdict_pin_memory(w.c, mixed, NULL, &out, err));
  assert_ptr_equal(out, src);
  td_release(mixed, there, src);
}

CASE(pin_memory_without_device) {
  scoped_context c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  tdict_error why = {0};
  tdict_tree *src = batch_tree(NULL), *const mark = src, *out = mark;
  tdict_status status = tdict_pin_memory(c, src, NULL, &out, &why);
  if (status == TDICT_OK) { /* the machine has a GPU, for which the context pins memory */
    assert_true(tdict_is_pinned(out));
    td_release(out, src, c);
    td_skip("there is a GPU");
  }
  assert_int_equal(status, TDICT_ENODEVICE);
  assert_int_equal(why.status, TDICT_ENODEVICE);
  assert_non_null(strstr(why.message, "pinned memory"));
  tdict_transfer_options t = td_with(tdict_transfer_options, pinned_result = true);
  td_fails(TDICT_ENODEVICE, "pinned memory", tdict_to_device(c, src, tdict_cpu(), &t, &out, err));
  assert_ptr_equal(out, mark);
  /* pinned leaves are shared, even if there is no device */
  tdict_tree *pinned = new_tree();
  td_put(pinned, "x", claimed_view(NULL, 100));
  td_ok(tdict_pin_memory(c, pinned, NULL, &out, err));
  assert_ptr_equal(out, pinned);
  td_release(out, pinned, src);
}

DEVICE_CASE(is_pinned_checks_host_leaves) {
  scoped_place w = open_place();
  scoped_tree td = new_tree(), host = batch_tree(NULL);
  assert_false(tdict_is_pinned(NULL));
  assert_true(tdict_is_pinned(td)); /* without leaves */
  assert_false(tdict_is_pinned(host));
  if (w.gpu) {
    scoped_tree there = to_device(&w, host, w.device), pinned = batch_tree(w.pinned);
    assert_true(tdict_is_pinned(there)); /* device leaves do not count */
    assert_true(tdict_is_pinned(pinned));
    td_ok(tdict_set_tree(td, "a.pinned", pinned, err));
    td_ok(tdict_set(td, "a.b.there", td_leaf(there, "action"), err));
    assert_true(tdict_is_pinned(td));
    td_put(td, "a.b.plain", random_tensor(TDICT_U8, SHAPE(1), NULL));
    assert_false(tdict_is_pinned(td));
  }
}

/* tdict_is_pinned() allocates nothing, even for trees that are deeper than a cursor's built-in frames. */
GPU_CASE(is_pinned_needs_no_memory) {
  scoped_place w = open_place();
  scoped_tree td = batch_tree(w.pinned);
  for (int i = 0; i < 40; i++) {
    tdict_tree *above = new_tree();
    td_put_tree(above, "down", td);
    td = above;
  }
  bool failed = true;
  for (int64_t n = 0; failed; n++) {
    td_fail_alloc(n, true);
    const bool is_pinned = tdict_is_pinned(td);
    failed = td_fail_alloc_stop();
    assert_true(is_pinned);
  }
}

/* If the result would exceed the limit `pinned_bytes`, the call fails. Released memory is reused. */
GPU_CASE(pin_memory_keeps_to_the_limit) {
  tdict_context_options o = td_with(tdict_context_options, pinned_bytes = (size_t)1 << 20, staging_bytes = STAGING);
  scoped_place w = place_around(td_context(&o));
  tdict_tree *src = td_tree("x:u8[700000]"), *out = src, *first = NULL;
  td_ok(tdict_pin_memory(w.c, src, NULL, &first, err));
  td_fails(TDICT_ENOMEM, "pinned_bytes", tdict_pin_memory(w.c, src, NULL, &out, err));
  assert_ptr_equal(out, src);
  tdict_release(first);
  for (int i = 0; i < 10; i++) check_and_spoil(&w, src, td_made(tree, tdict_pin_memory(w.c, src, NULL, &made, err)));
  tdict_release(src);
}

/* Opens the driver of the test's device, wrapped by a driver that fails on demand. */
static tdict_driver *faulty_driver(void) {
  tdict_driver *inner = NULL, *driver = NULL;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_error why = {0};
  tdict_status status = TDICT_ENODEVICE;
  if (td_device().type == TDICT_DEVICE_SIM) status = tdict_driver_sim_open(&sim, &inner, &why);
#if TDICT_CUDA
  if (td_device().type == TDICT_DEVICE_CUDA) status = tdict_driver_cuda_open(&inner, &why);
#endif
  if (status != TDICT_OK) td_skip(why.message[0] ? why.message : "built without CUDA");
  td_ok(tdict_driver_fault_open(inner, &driver, err));
  tdict_driver_release(inner);
  return driver;
}

static int told;
static void count_told(void *user, int32_t level, const char *text) {
  (void)user;
  if (level == TDICT_LOG_WARNING && strncmp(text, "pinned memory of", 16) == 0) told++;
}

/* Each way to pin memory can fail: one registration, registered pieces if the option asks for them, and driver pages.
 * The statistics name the way that succeeded. If it was not the first way, a warning is logged. */
GPU_CASE(pin_memory_tries_one_way_after_the_other) {
  static const struct {
    uint32_t kinds;
    bool lasts;
    size_t piece;
    int32_t path;
  } rows[] = {{0, false, 0, TDICT_PIN_REGISTER},
              {0, false, 2 * TDICT_PINNED_GRAIN, TDICT_PIN_REGISTER},
              {TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER), false, 0, TDICT_PIN_DRIVER},
              {TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER), false, 2 * TDICT_PINNED_GRAIN, TDICT_PIN_SMALL_PIECES},
              {TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER), true, 2 * TDICT_PINNED_GRAIN, TDICT_PIN_DRIVER},
              {TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER) | TDICT_FAULT_BIT(TDICT_FAULT_HOST_ALLOC), true, 0, -1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scoped_driver driver = faulty_driver();
    tdict_context_options o =
        td_with(tdict_context_options, device = td_device(), log = count_told, pin_piece_bytes = rows[i].piece);
    tdict_context *c = td_made(context, tdict_context_create_over(&o, driver, &made, err));
    scoped_place w = place_around(c);
    tdict_tree *src = td_tree("x:u8[9000000]"), *const mark = src, *out = mark;
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_fault fault = {.kinds = rows[i].kinds, .n = 1, .code = TDICT_CU_UNKNOWN, .lasts = rows[i].lasts};
    tdict_pin_options p = td_with(tdict_pin_options, stats = &stats);
    told = 0;
    if (rows[i].kinds) tdict_driver_fault_arm(driver, &fault);
    if (rows[i].path < 0) {
      td_fails(TDICT_EDEVICE, "cuMemHostAlloc", tdict_pin_memory(c, src, &p, &out, err));
      assert_ptr_equal(out, mark);
    } else {
      td_ok(tdict_pin_memory(c, src, &p, &out, err));
      assert_int_equal(stats.pin_path, rows[i].path);
      assert_int_equal(told, rows[i].path != TDICT_PIN_REGISTER);
      check_tree(&w, src, out);
      tdict_driver_fault_arm(driver, NULL);
      tdict_tree *there = to_device(&w, out, w.device); /* copies are also cut at the borders of pieces */
      check_and_release(&w, src, there);
      tdict_release(out);
    }
    tdict_release(src);
  }
}
