/* Tests a consumer's stream: it waits for the work that fills the bytes, and finishes its own work before they are
 * freed or written. Kernels wait at a gate, so work that runs too early is always detected. */
#include "streams.h"
#include "support/threads.h"

/* Checks that the export of `c` returns only after the stopped stream has continued. */
static void check_export_waits(const place *w, call *c, stopped *at) {
  start_waiting(c, run_export);
  go_on(w, at);
  finish_waiting(c);
}

SIM_CASE(dlpack_consumer_waits_for_transfers) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  tdict_tensor *leaf = td_leaf(dst, "a");
  TD_STREAM(s, w.c, w.device);
  stopped at;
  consumer_copy read;
  tdict_dlpack_export_options o = consumer_on(s);
  for (int reads = 0; reads < 2; reads++) {
    struct DLManagedTensorVersioned *m = NULL;
    number_tree(&w, dst, 7);
    stop_stream(&w, &at, leaf);
    tdict_future *f = stopped_copy(&w, src, dst, &at);
    o.read_only = reads;
    td_ok(export_versioned(w.c, leaf, &o, &m, err)); /* the call does not wait */
    assert_ptr_equal(versioned_of(m)->tensor.data, leaf->data);
    assert_int_equal(versioned_of(m)->tensor.device.type, TDICT_DL_EXT_DEV);
    start_read(&w, &read, s, leaf);
    check_pending(f);
    assert_false(is_copied(&w, &read));
    go_on(&w, &at);
    assert_true(end_copy(&w, &read, number_of_leaf(8, 0)));
    finish_copy(f);
    delete_versioned_of(m);
  }
}

/* Each storage of a tree may be written by a different transfer. */
SIM_CASE(dlpack_consumer_of_a_tree_waits) {
  scoped_place w = place_open(8); /* each transfer occupies a thread */
  scoped_tree dst = numbered_tree(&w, w.memory, 7), src = numbered_tree(&w, NULL, 8);
  tdict_tree *parts[NUM_NUMBERED][2];
  TD_STREAM(s, w.c, w.device);
  stopped at;
  consumer_copy read[NUM_NUMBERED];
  tdict_future *f[NUM_NUMBERED];
  tdict_dlpack_export_options o = consumer_on(s);
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  stop_stream(&w, &at, td_leaf(dst, "a"));
  for (int i = 0; i < NUM_NUMBERED; i++) {
    parts[i][0] = new_tree();
    parts[i][1] = new_tree();
    td_ok(tdict_set(parts[i][0], "t", td_leaf(src, numbered[i].path), err));
    td_ok(tdict_set(parts[i][1], "t", td_leaf(dst, numbered[i].path), err));
    f[i] = stopped_copy(&w, parts[i][0], parts[i][1], &at);
  }
  td_ok(tdict_dlpack_export_tree(w.c, dst, &o, &entries, &count, err));
  for (int i = 0; i < NUM_NUMBERED; i++) start_read(&w, &read[i], s, td_leaf(dst, numbered[i].path));
  td_rest();
  for (int i = 0; i < NUM_NUMBERED; i++) assert_false(is_copied(&w, &read[i]));
  go_on(&w, &at);
  for (int i = 0; i < NUM_NUMBERED; i++) {
    assert_true(end_copy(&w, &read[i], number_of_leaf(8, i)));
    finish_copy(f[i]);
    td_release(parts[i][0], parts[i][1]);
  }
  tdict_dlpack_release_entries(entries, count);
}

/* Without a stream, the call itself waits. With TDICT_DLPACK_UNORDERED, nothing waits. */
SIM_CASE(dlpack_export_without_a_stream_waits) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  const tdict_stream unordered = {w.device, TDICT_DLPACK_UNORDERED};
  struct DLManagedTensorVersioned *m = NULL;
  call c = {.c = w.c, .tensor = td_leaf(dst, "d"), .export_options = tdict_dlpack_export_options_default()};
  stopped at;
  stop_stream(&w, &at, td_leaf(dst, "a"));
  tdict_future *f = stopped_copy(&w, src, dst, &at);
  tdict_dlpack_export_options o = consumer_on(unordered);
  td_ok(export_versioned(NULL, c.tensor, &o, &m, err));
  delete_versioned_of(m);
  check_export_waits(&w, &c, &at);
  assert_true(has_number(&w, c.tensor, number_of_leaf(8, 3)));
  delete_versioned_of(c.managed);
  finish_copy(f);
}

typedef struct blocking {
  const place *w;
  tdict_tree *src, *dst;
  tdict_stream after;
} blocking;
static void *copy_blocking(void *user) {
  blocking *b = user;
  (void)!tdict_transfer_into(b->w->c, b->dst, b->src, td_options(tdict_transfer_options, after = b->after), NULL);
  return NULL;
}
/* A blocking transfer, which another thread makes here, records no events for streams. */
SIM_CASE(dlpack_consumer_waits_for_blocking_transfers) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  TD_STREAM(s, w.c, w.device);
  stopped at;
  call c = {.c = w.c, .tensor = td_leaf(dst, "a"), .export_options = consumer_on(s)};
  stop_stream(&w, &at, c.tensor);
  blocking b = {&w, src, dst, at.s};
  pthread_t thread = td_start(copy_blocking, &b);
  td_rest();
  check_export_waits(&w, &c, &at);
  pthread_join(thread, NULL);
  assert_true(has_number(&w, c.tensor, number_of_leaf(8, 0)));
  delete_versioned_of(c.managed);
}

/* A consumer that may write waits for transfers that read. A consumer that only reads does not. */
SIM_CASE(dlpack_consumer_that_reads_passes_readers) {
  scoped_place w = place_open(2);
  scoped_tree src = arena(&w, 7), dst = numbered_tree(&w, NULL, 0);
  tdict_tensor *leaf = td_leaf(src, "a");
  tdict_stream reads = new_stream(&w), writes = new_stream(&w);
  struct DLManagedTensorVersioned *m[2] = {NULL, NULL};
  stopped at;
  consumer_copy read, write;
  stop_stream(&w, &at, td_leaf(src, "d"));
  tdict_future *f = stopped_copy(&w, src, dst, &at);
  tdict_dlpack_export_options o = consumer_on(reads);
  o.read_only = true;
  td_ok(export_versioned(w.c, leaf, &o, &m[0], err));
  assert_int_equal(versioned_of(m[0])->flags, TDICT_DL_READ_ONLY);
  start_read(&w, &read, reads, leaf);
  assert_true(end_copy(&w, &read, number_of_leaf(7, 0)));
  check_pending(f);
  o = consumer_on(writes);
  td_ok(export_versioned(w.c, leaf, &o, &m[1], err));
  start_write(&w, &write, writes, leaf, 99);
  check_pending(f);
  assert_false(is_copied(&w, &write));
  go_on(&w, &at);
  finish_copy(f);
  check_tree_number(&w, dst, 7);
  assert_true(end_copy(&w, &write, 99));
  assert_true(has_number(&w, leaf, 99));
  for (int i = 0; i < 2; i++) delete_versioned_of(m[i]);
  tdict_stream_destroy(w.c, reads);
  tdict_stream_destroy(w.c, writes);
}

/* For host memory, the call waits as tdict_tensor_data() or tdict_tensor_const_data() does. */
SIM_CASE(dlpack_export_of_host_memory_waits) {
  scoped_place w = place_open(2);
  scoped_tree host = numbered_tree(&w, w.pinned, 7), dev = arena(&w, 8);
  TD_STREAM(s, w.c, w.device);
  stopped at;
  call c = {.c = w.c, .tensor = td_leaf(host, "a"), .export_options = consumer_on(s)};
  /* while a transfer reads, a read-only export does not wait, and a writable export does */
  stop_stream(&w, &at, td_leaf(dev, "a"));
  tdict_future *f = stopped_copy(&w, host, dev, &at);
  tdict_dlpack_export_options o = consumer_on(s);
  o.read_only = true;
  td_ok(export_versioned(w.c, c.tensor, &o, &c.managed, err));
  assert_int_equal(versioned_of(c.managed)->tensor.device.type, TDICT_DL_CUDA_HOST);
  delete_versioned_of(c.managed);
  check_export_waits(&w, &c, &at);
  finish_copy(f);
  delete_versioned_of(c.managed);
  /* while a transfer writes, both exports wait */
  number_tree(&w, dev, 9);
  stop_stream(&w, &at, td_leaf(dev, "a"));
  f = stopped_copy(&w, dev, host, &at);
  c.export_options.read_only = true;
  check_export_waits(&w, &c, &at);
  assert_true(has_number(&w, c.tensor, number_of_leaf(9, 0)));
  delete_versioned_of(c.managed);
  finish_copy(f);
}

SIM_CASE(dlpack_deleter_holds_bytes) {
  scoped_place w = place_open(2);
  /* without a consumer, the next transfer of this size reuses the bytes at once */
  scoped_tree out = arena(&w, 1), next = NULL;
  void *place_of = arena_of(out);
  td_release(out);
  out = arena(&w, 2);
  assert_ptr_equal(arena_of(out), place_of);
  TD_STREAM(s, w.c, w.device);
  tdict_dlpack_export_options o = consumer_on(s);
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  gate g = {0};
  kernel k;
  td_ok(tdict_dlpack_export_tree(w.c, out, &o, &entries, &count, err));
  kernel_launch(&k, s, td_leaf(out, "a"), &g, NULL);
  td_release(out);
  gate_await(&g, 1);
  tdict_dlpack_release_entries(entries, count); /* does not wait */
  next = arena(&w, 3);
  assert_ptr_not_equal(arena_of(next), place_of);
  check_tree_number(&w, next, 3);
  gate_open(&g);
  assert_true(kernel_saw(&k, number_of_leaf(2, 0)));
  kernel_end(&k);
  sync_stream(&w, s);
}

SIM_CASE(dlpack_deleter_holds_an_overwrite) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  tdict_stream s = new_stream(&w), idle = new_stream(&w);
  tdict_dlpack_export_options o = consumer_on(s);
  struct DLManagedTensorVersioned *m = NULL;
  gate g = {0};
  kernel k;
  td_ok(export_versioned(w.c, td_leaf(dst, "a"), &o, &m, err));
  kernel_launch(&k, s, td_leaf(dst, "a"), &g, NULL);
  gate_await(&g, 1);
  delete_versioned_of(m);
  tdict_transfer_options t = threads(2);
  t.after = idle; /* so that only the consumer's work delays the transfer */
  tdict_future *f = copy_async(&w, src, dst, &t);
  check_pending(f);
  gate_open(&g);
  assert_true(kernel_saw(&k, number_of_leaf(7, 0)));
  finish_copy(f);
  check_tree_number(&w, dst, 8);
  kernel_end(&k);
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(w.c, idle);
}

/* The consumer's kernel reads pinned memory, which must not be reused before the kernel has finished. */
SIM_CASE(dlpack_deleter_holds_pinned_bytes) {
  scoped_place w = place_open(2);
  tdict_tensor *t = new_bytes(8192, w.pinned), *next;
  void *address = t->data;
  tdict_tensor_release(t);
  t = new_bytes(8192, w.pinned);
  assert_ptr_equal(t->data, address); /* without a consumer, the block is reused at once */
  put_number(&w, t, 5);
  TD_STREAM(s, w.c, w.device);
  tdict_dlpack_export_options o = consumer_on(s);
  struct DLManagedTensorVersioned *m = NULL;
  gate g = {0};
  kernel k;
  td_ok(export_versioned(w.c, t, &o, &m, err));
  kernel_launch(&k, s, t, &g, NULL);
  gate_await(&g, 1);
  tdict_tensor_release(t);
  delete_versioned_of(m);
  next = new_bytes(8192, w.pinned);
  assert_ptr_not_equal(next->data, address);
  gate_open(&g);
  assert_true(kernel_saw(&k, 5));
  kernel_end(&k);
  sync_stream(&w, s);
  tdict_tensor_release(next);
}

/* A deleter cannot fail. If it has no memory to record the consumer's work, it waits for that work. */
SIM_CASE(dlpack_deleter_without_memory_waits) {
  scoped_place w = place_open(2);
  tdict_tree *out = arena(&w, 2);
  TD_STREAM(s, w.c, w.device);
  gate g = {0};
  scoped_kernel k;
  call c = {.c = w.c, .tensor = td_leaf(out, "a"), .export_options = consumer_on(s)};
  td_ok(export_versioned(w.c, c.tensor, &c.export_options, &c.managed, err));
  kernel_launch(&k, s, c.tensor, &g, NULL);
  tdict_release(out);
  gate_await(&g, 1);
  start_waiting(&c, run_delete_without_memory);
  gate_open(&g);
  assert_true(kernel_saw(&k, number_of_leaf(2, 0)));
  finish_waiting(&c);
}

GPU_CASE(dlpack_export_outlives_its_context) {
  place w = place_open(2);
  tdict_tree *out = arena(&w, 2);
  tdict_stream s = new_stream(&w);
  tdict_dlpack_export_options o = consumer_on(s);
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  const tdict_stream legacy = {w.device, NULL};
  o.stream = legacy;
  td_ok(tdict_dlpack_export_tree(w.c, out, &o, &entries, &count, err));
  assert_int_equal(versioned_of(entries[0].versioned)->tensor.device.type, w.device.type);
  assert_int_equal(versioned_of(entries[0].versioned)->tensor.device.id, w.device.index);
  tdict_stream_destroy(w.c, s);
  tdict_release(out);
  place_close(&w);
  tdict_dlpack_release_entries(entries, count);
}
