/* Tests the order of transfers, their order relative to work on the program's streams, and captured streams. */
#include "promises.h"

#include <dlfcn.h>

enum { SLOW = 20 << 20 }; /* bytes per second: a numbered tree takes 10 ms */

/* Makes a tree with the bytes of a number on the device, without a transfer. */
static tdict_tree *numbered_on_device(const place *w, uint64_t number) { return numbered_tree(w, w->memory, number); }

/* Checks reads after writes, writes after reads, and writes after writes, in device and host memory. The device is
 * stopped while the calls are made, unless calls have to wait for slots. Copies are slow. */
static void check_raw_war_waw(int32_t num_threads, int32_t mode) {
  scoped_place w = place_sim(4, SLOW, 1);
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = num_threads, mode = mode);
  bool waits_for_slots = mode == TDICT_MODE_BLOCKING || num_threads == 0;
  tdict_tree *h[3], *d = numbered_on_device(&w, 0), *e = numbered_on_device(&w, 0), *host = numbered_tree(&w, NULL, 0),
                    *seen[3];
  for (int i = 0; i < 3; i++) h[i] = numbered_tree(&w, NULL, 20 + (uint64_t)i);
  if (!waits_for_slots) hold(&w);
  tdict_future *f[7];
  f[0] = copy_async(&w, h[0], d, &o);
  f[1] = move_async(&w, d, tdict_cpu(), &o); /* reads what 0 writes */
  f[2] = copy_async(&w, h[1], d, &o);        /* writes what 1 reads */
  f[3] = copy_async(&w, h[2], d, &o);        /* writes what 2 writes */
  f[4] = copy_async(&w, d, host, &o);        /* reads what 3 writes */
  f[5] = copy_async(&w, host, e, &o);        /* reads on the host what 4 writes */
  f[6] = copy_async(&w, h[0], host, &o);     /* writes on the host what 5 reads */
  if (!waits_for_slots) {
    for (int i = 1; i < 7; i++) check_pending(f[i]);
    resume(&w);
  }
  seen[0] = finish(f[1]);
  check_tree_number(&w, seen[0], 20);
  finish_copy(f[6]);
  check_tree_number(&w, host, 20);
  for (int i = 0; i < 7; i++)
    if (i != 1 && i != 6) finish_copy(f[i]);
  check_tree_number(&w, d, 22);
  check_tree_number(&w, e, 22);
  for (int i = 0; i < 3; i++) tdict_release(h[i]);
  td_release(seen[0], d, e, host);
}
SIM_CASE(transfers_of_shared_bytes_wait_for_each_other) {
  for (int32_t mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++)
    for (int32_t n = -1; n <= 2; n++) check_raw_war_waw(n, mode);
}

/* Starts many transfers between six trees without waiting. The results must be as if they had run one after another. */
GPU_CASE(transfers_are_ordered) {
  enum { TREES = 6, STEPS = 240, SNAPSHOTS = STEPS };
  tdict_context_options small = place_options(4);
  small.staging_bytes = 256 << 10; /* each tree has many chunks */
  scoped_place w = place_over(&small);
  tdict_tree *trees[TREES];
  uint64_t model[TREES], wanted[SNAPSHOTS], x = 12345;
  tdict_future *f[STEPS], *snapshots[SNAPSHOTS];
  int num_snapshots = 0, num_copies = 0;
  for (int i = 0; i < TREES; i++) {
    model[i] = 100 + (uint64_t)i;
    trees[i] = numbered_tree(&w, i < 2 ? NULL : i == 2 ? w.pinned : w.memory, model[i]);
  }
  for (int i = 0; i < STEPS; i++) {
    td_fill_random(&x, sizeof x, x + 1);
    int from = (int)(x % TREES), to = (int)(x / 8 % TREES);
    static const int32_t counts[] = {1, 2, 4, -1};
    tdict_transfer_options o = threads(counts[x / 64 % 4]);
    o.mode = TDICT_MODE_AUTO + (int32_t)(x / 512 % 4);
    if (from == to) { /* takes a snapshot of the tree */
      wanted[num_snapshots] = model[from];
      snapshots[num_snapshots++] = move_async(&w, trees[from], from < 3 ? w.device : tdict_cpu(), &o);
    } else {
      model[to] = model[from];
      f[num_copies++] = copy_async(&w, trees[from], trees[to], &o);
    }
  }
  assert_true(num_snapshots > 10 && num_copies > 100);
  for (int i = 0; i < num_snapshots; i++) check_number_and_release(&w, finish(snapshots[i]), wanted[i]);
  for (int i = 0; i < num_copies; i++) finish_copy(f[i]);
  for (int i = 0; i < TREES; i++) check_tree_number(&w, trees[i], model[i]);
  for (int i = 0; i < TREES; i++) tdict_release(trees[i]);
}

/* The leaves of two trees share one storage. Copies to the host are faster than copies to the device, so a read that
 * does not wait would get old bytes. */
SIM_CASE(transfers_of_one_storage_are_ordered) {
  tdict_context_options o = place_options(4);
  tdict_sim_options sim = td_with(tdict_sim_options, h2d_bytes_per_second = 2e6);
  sim.virtual_time = true; /* the test resumes the device after everything is queued */
  o.sim = &sim;
  scoped_place w = place_over(&o);
  const int64_t half = 100000;
  tdict_tensor *whole = new_bytes(2 * half, w.memory), *part = NULL;
  tdict_tensor_range range = {0, 0, half, 1};
  td_ok(tdict_tensor_slice(whole, &range, &part, err));
  scoped_tree dst = new_tree(), src = new_tree(), both = new_tree();
  td_put(dst, "x", part);
  td_put(src, "x", new_bytes(half, NULL));
  td_put(both, "y", whole);
  scoped_bytes want = td_alloc(2 * (size_t)half);
  td_fill_random(want, 2 * (size_t)half, 1);
  raw_write(w.raw, whole->data, want, 2 * (size_t)half);
  td_fill_random(want, (size_t)half, 2);
  put_number(&w, td_leaf(src, "x"), 2);
  hold(&w);
  tdict_future *one = copy_async(&w, src, dst, NULL), *two = move_async(&w, both, tdict_cpu(), NULL);
  check_pending(two);
  resume(&w);
  scoped_tree out = finish(two);
  assert_memory_equal(td_leaf(out, "y")->data, want, 2 * (size_t)half);
  finish_copy(one);
}

/* A stream on which a kernel waits at a gate. If it is a blocking stream, the legacy stream waits for it. */
typedef struct blocker {
  gate gate;
  kernel k;
  tdict_stream s;
  tdict_tensor *scratch;
} blocker;
static tdict_stream blocking_stream(const place *w) {
  tdict_gpu_scope scope;
  tdict_cu_stream s = NULL;
  td_ok(tdict_gpu_enter(w->gpu, &scope, err));
  assert_int_equal(w->d->ops->stream_create(w->d, &s, TDICT_CU_STREAM_DEFAULT), 0);
  tdict_gpu_leave(w->gpu, &scope);
  return (tdict_stream){w->device, s};
}
static void block(const place *w, blocker *b, bool legacy_waits) {
  memset(b, 0, sizeof *b);
  b->scratch = new_bytes(64, w->memory);
  b->s = legacy_waits ? blocking_stream(w) : new_stream(w);
  kernel_launch(&b->k, b->s, b->scratch, &b->gate, NULL);
  gate_await(&b->gate, 1);
}
static void unblock(const place *w, blocker *b) {
  gate_open(&b->gate);
  assert_true(wait_flag(&b->k.done));
  sync_stream(w, b->s);
  tdict_gpu_scope scope;
  td_ok(tdict_gpu_enter(w->gpu, &scope, err));
  assert_int_equal(w->d->ops->stream_destroy(w->d, b->s.handle), 0);
  tdict_gpu_leave(w->gpu, &scope);
  kernel_end(&b->k);
  tdict_tensor_release(b->scratch);
}

SIM_CASE(transfer_after_stream) {
  scoped_place w = place_open(2);
  scoped_tree src = numbered_tree(&w, NULL, 30), d = numbered_on_device(&w, 31), d2 = numbered_on_device(&w, 32);
  tdict_tensor *a = td_leaf(d, "a");
  scoped_bytes fresh = td_alloc(tdict_tensor_bytes(a));
  td_fill_random(fresh, tdict_tensor_bytes(a), number_of_leaf(33, 0));
  gate g = {0};
  TD_STREAM(s, w.c, w.device);
  scoped_kernel k;
  kernel_launch(&k, s, a, &g, fresh); /* writes to the tree when the gate opens */
  gate_await(&g, 1);
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = -1, after = s);
  tdict_future *reads = move_async(&w, d, tdict_cpu(), &o), *writes = copy_async(&w, src, d2, &o),
               *makes = move_async(&w, src, w.device, &o);
  check_pending(reads);
  check_pending(writes);
  check_pending(makes);
  check_tree_number(&w, d2, 32); /* no byte has been written */
  gate_open(&g);
  scoped_tree out = finish(reads);
  assert_true(has_number(&w, td_leaf(out, "a"), number_of_leaf(33, 0)));
  assert_true(has_number(&w, td_leaf(out, "d"), number_of_leaf(31, 3)));
  finish_copy(writes);
  check_tree_number(&w, d2, 30);
  tdict_release(finish(makes));
}

/* Without `after`, transfers wait for the legacy stream, except transfers from the host to new device memory. */
SIM_CASE(transfer_follows_the_legacy_stream) {
  scoped_place w = place_open(2);
  blocker b;
  scoped_tree src = numbered_tree(&w, NULL, 40), d = numbered_on_device(&w, 41);
  block(&w, &b, true);
  check_number_and_release(&w, finish(move_async(&w, src, w.device, NULL)), 40);
  tdict_future *reads = move_async(&w, d, tdict_cpu(), NULL);
  check_pending(reads);
  TD_STREAM(idle, w.c, w.device);
  tdict_transfer_options o = threads(-1);
  o.after = idle; /* instead of the legacy stream */
  check_number_and_release(&w, finish(move_async(&w, d, tdict_cpu(), &o)), 41);
  tdict_future *writes = copy_async(&w, src, d, NULL);
  check_pending(writes);
  check_tree_number(&w, d, 41);
  unblock(&w, &b);
  check_number_and_release(&w, finish(reads), 41);
  finish_copy(writes);
  check_tree_number(&w, d, 40);
}

SIM_CASE(wait_on_stream_orders) {
  for (int round = 0; round < 6; round++) {
    scoped_place w = place_sim(2, SLOW, 1);
    tdict_memory *from = round >= 3 ? w.pinned : NULL; /* NULL: through slots; pinned: direct driver copies */
    tdict_transfer_options o = threads(round % 3 - 1);
    scoped_tree src = numbered_tree(&w, from, 50), out = NULL;
    TD_STREAM(s, w.c, w.device);
    poison_arena(&w, w.memory);
    hold(&w);
    tdict_future *f = move_async(&w, src, w.device, &o);
    td_ok(tdict_future_wait_on_stream(f, s, &out, err)); /* returns when all copies are queued; none has run */
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
    assert_false(tree_has_number(&w, out, 50));
    kernel k[NUM_NUMBERED];
    for (int i = 0; i < NUM_NUMBERED; i++) kernel_launch(&k[i], s, td_leaf(out, numbered[i].path), NULL, NULL);
    resume(&w);
    for (int i = 0; i < NUM_NUMBERED; i++) {
      if (!kernel_saw(&k[i], number_of_leaf(50, i))) fail_msg("round %d: leaf %d has old bytes", round, i);
      kernel_end(&k[i]);
    }
    td_release(out);
    tdict_release(finish(f));
  }
}

/* For a tree larger than the staging ring, tdict_future_wait_on_stream() returns when the last copy is queued. A driver
 * copy on the stream then reads the result. */
GPU_CASE(wait_on_stream_orders_large_trees) {
  scoped_place w = place_open(4);
  enum { BYTES = 24 << 20 };
  TD_STREAM(s, w.c, w.device);
  scoped_tensor sink = new_bytes(BYTES, w.memory);
  for (int i = 0; i < 6; i++) {
    scoped_tree src = new_tree(), out = NULL;
    td_put(src, "x", new_bytes(BYTES, i % 2 ? w.pinned : NULL));
    put_number(&w, td_leaf(src, "x"), 60 + (uint64_t)i);
    tdict_future *f = move_async(&w, src, w.device, NULL);
    td_ok(tdict_future_wait_on_stream(f, s, &out, err));
    tdict_gpu_scope scope;
    td_ok(tdict_gpu_enter(w.gpu, &scope, err));
    assert_int_equal(w.d->ops->copy_d2d_async(w.d, sink->data, td_leaf(out, "x")->data, BYTES, s.handle), 0);
    tdict_gpu_leave(w.gpu, &scope);
    sync_stream(&w, s);
    assert_true(has_number(&w, sink, 60 + (uint64_t)i));
    td_release(out);
    tdict_release(finish(f));
  }
}

/* For a transfer to the host, the stream waits for the copies, and accessors wait for the bytes. */
SIM_CASE(wait_on_stream_of_a_host_result) {
  for (int pinned = 0; pinned < 2; pinned++) {
    scoped_place w = place_sim(2, SLOW, 1);
    scoped_tree d = numbered_on_device(&w, 70), out = NULL;
    TD_STREAM(s, w.c, w.device);
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 2, pinned_result = pinned);
    if (pinned) poison_arena(&w, w.pinned);
    tdict_future *f = move_async(&w, d, tdict_cpu(), &o);
    td_ok(tdict_future_wait_on_stream(f, s, &out, err));
    kernel k;
    if (pinned) kernel_launch(&k, s, td_leaf(out, "d"), NULL, NULL); /* reads the last leaf, in host memory */
    const unsigned char *a = tdict_const_data(out, "a");
    assert_non_null(a);
    check_tree_number(&w, out, 70); /* the accessor waited for the whole storage */
    if (pinned) {
      assert_true(kernel_saw(&k, number_of_leaf(70, 3)));
      kernel_end(&k);
    }
    td_release(out);
    tdict_release(finish(f));
  }
}

SIM_CASE(wait_on_stream_refuses) {
  scoped_place w = place_sim(2, 0, 2);
  scoped_tree src = numbered_tree(&w, NULL, 80), out = NULL;
  TD_STREAM(s, w.c, w.device);
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait_on_stream(NULL, s, &out, err));
  hold(&w);
  tdict_future *f = move_async(&w, src, w.device, NULL);
  const tdict_stream host = {tdict_cpu(), NULL}, cuda = {tdict_cuda(0), s.handle};
  td_fails(TDICT_EWRONGDEVICE, "cpu", tdict_future_wait_on_stream(f, host, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda", tdict_future_wait_on_stream(f, cuda, &out, err));
  assert_null(out);
  resume(&w);
  tdict_release(finish(f));
  /* if the transfer has failed, the call returns the transfer's error */
  scoped_tree bad = new_tree();
  td_put(bad, "x", new_bytes(100, NULL));
  hold(&w);
  scoped_future g = move_async(&w, bad, w.device, NULL);
  tdict_future_cancel(g);
  resume(&w);
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait_on_stream(g, s, &out, err));
  assert_null(out);
}

/* After tdict_future_wait_source(), the program may write the source, even through pointers obtained earlier. */
SIM_CASE(wait_source) {
  for (int k = 0; k < 8; k++) {
    scoped_place w = place_sim(2, SLOW, 1);
    tdict_memory *from = k % 2 ? w.pinned : NULL;
    tdict_transfer_options o = threads(k / 4 ? 2 : -1);
    o.mode = k / 2 % 2 ? TDICT_MODE_NON_BLOCKING : TDICT_MODE_NON_BLOCKING_PIN;
    scoped_tree src = numbered_tree(&w, from, 90);
    tdict_future *f = move_async(&w, src, w.device, &o);
    td_ok(tdict_future_wait_source(f, err));
    number_tree(&w, src, 0); /* writes without an accessor */
    check_number_and_release(&w, finish(f), 90);
  }
  /* the call returns the error of the transfer, and the source may be written */
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree src = numbered_tree(&w, w.pinned, 91);
  hold(&w);
  scoped_future f = move_async(&w, src, w.device, NULL);
  tdict_future_cancel(f);
  resume(&w);
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait_source(f, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait_source(NULL, err));
  tdict_driver_sim_count counts;
  tdict_driver_sim_counts(w.d, 0, &counts);
  assert_int_equal(counts.num_pending, 0);
}

/* The stream that is being captured into a graph. The simulator cannot capture, so a shim reports the status. */
static _Atomic(void *) captured;
static shim capture_shim;
static tdict_cu capture_status(tdict_driver *d, tdict_cu_stream s, int *status) {
  if (s && s == atomic_load(&captured)) {
    *status = TDICT_CU_CAPTURE_STATUS_ACTIVE;
    return TDICT_CU_SUCCESS;
  }
  return capture_shim.real->stream_capture_status(d, s, status);
}
SIM_CASE(transfer_refuses_capture) {
  scoped_place w = place_open(2);
  tdict_stream s = new_stream(&w), plain = new_stream(&w);
  tdict_tree *src = numbered_tree(&w, NULL, 95), *out = NULL, *d = numbered_on_device(&w, 96);
  tdict_transfer_options o = threads(-1);
  tdict_future *f = NULL;
  shim_begin(&capture_shim, w.d);
  capture_shim.ops.stream_capture_status = capture_status;
  atomic_store(&captured, (void *)s.handle);
  o.after = s;
  td_fails(TDICT_ECAPTURE, "captured", tdict_to_device(w.c, src, w.device, &o, &out, err));
  td_fails(TDICT_ECAPTURE, "captured", tdict_to_device_async(w.c, d, tdict_cpu(), &o, &f, err));
  td_fails(TDICT_ECAPTURE, "captured", tdict_transfer_into(w.c, d, src, &o, err));
  td_fails(TDICT_ECAPTURE, "captured", tdict_record_stream(d, s, err));
  check_tree_number(&w, d, 96);
  hold(&w);
  f = move_async(&w, src, w.device, NULL);
  td_fails(TDICT_ECAPTURE, "captured", tdict_future_wait_on_stream(f, s, &out, err));
  assert_null(out);
  td_ok(tdict_future_wait_on_stream(f, plain, &out, err));
  resume(&w);
  tdict_release(finish(f));
  check_tree_number(&w, out, 95);
  atomic_store(&captured, NULL);
  tdict_release(out);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  td_ok(tdict_record_stream(out, s, err));
  td_release(out, src, d);
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(w.c, plain);
  shim_end(&capture_shim, w.d);
}

/* Functions of libcuda that begin and end a real capture. Transfers on other streams must not disturb it. */
typedef int (*begin_capture)(void *stream, int mode);
typedef int (*end_capture)(void *stream, void **graph);
typedef int (*destroy_graph)(void *graph);
static void *symbol(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) fail_msg("libcuda.so.1 has no %s", name);
  return found;
}
CUDA_CASE(transfer_refusal_keeps_a_capture_valid) {
  scoped_place w = place_open(2);
  begin_capture begin;
  end_capture end;
  destroy_graph destroy;
  *(void **)&begin = symbol("cuStreamBeginCapture_v2");
  *(void **)&end = symbol("cuStreamEndCapture");
  *(void **)&destroy = symbol("cuGraphDestroy");
  TD_STREAM(s, w.c, w.device);
  scoped_tree src = numbered_tree(&w, NULL, 97), out = NULL, d = numbered_on_device(&w, 98);
  for (int mode = 0; mode < 3; mode++) { /* global, thread-local and relaxed */
    tdict_gpu_scope scope;
    void *graph = NULL;
    td_ok(tdict_gpu_enter(w.gpu, &scope, err)); /* the capture needs a current context */
    assert_int_equal(begin(s.handle, mode), 0);
    tdict_gpu_leave(w.gpu, &scope);
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = -1, after = s);
    td_fails(TDICT_ECAPTURE, "captured", tdict_to_device(w.c, src, w.device, &o, &out, err));
    td_fails(TDICT_ECAPTURE, "captured", tdict_record_stream(d, s, err));
    for (int i = 0; i < 10; i++) {
      tdict_tree *to = moved(&w, src, w.device),
                 *back = moved(&w, to, tdict_cpu()); /* these allocate, copy, free and wait */
      check_tree_number(&w, back, 97);               /* reads host memory: a driver copy would end the capture */
      td_release(back, to);
      check_number_and_release(&w, moved(&w, d, tdict_cpu()), 98);
    }
    td_ok(tdict_gpu_enter(w.gpu, &scope, err));
    assert_int_equal(end(s.handle, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(destroy(graph), 0);
    tdict_gpu_leave(w.gpu, &scope);
  }
}
