/* Tests operations on device trees with captured streams, with leaves on two devices, and in the program's memory. */
#include <dlfcn.h>

#include "core/ops/device/ways.h"
#include "support/threads.h"

/* The simulator cannot capture streams, so the test replaces the driver call that returns the capture status. */
static _Atomic(void *) captured;
static shim capture_shim;
static tdict_cu report_capture(tdict_driver *d, tdict_cu_stream s, int *status) {
  if (s && s == atomic_load(&captured)) {
    *status = TDICT_CU_CAPTURE_STATUS_ACTIVE;
    return TDICT_CU_SUCCESS;
  }
  return capture_shim.real->stream_capture_status(d, s, status);
}
SIM_CASE(device_ops_refuse_capture) {
  scoped_place w = place_open(2);
  scoped_ways t = ways_open(&w, &w);
  tdict_stream s = new_stream(&w), free_stream = new_stream(&w);
  shim_begin(&capture_shim, w.d);
  capture_shim.ops.stream_capture_status = report_capture;
  atomic_store(&captured, (void *)s.handle);
  for (tree_way way = 0; way < NUM_WAYS; way++) {
    tdict_tree *out = NULL;
    td_fails(TDICT_ECAPTURE, "the stream is being captured", ways_call(&t, way, &s, &out, err));
    assert_null(out);
    ways_check_untouched(&t);
    /* Blocking calls and calls on other streams still succeed. */
    for (int other = 0; other < 2; other++) {
      td_ok(ways_call(&t, way, other ? &free_stream : NULL, &out, err));
      sync_stream(&w, free_stream);
      ways_check(&t, way, out);
      td_release(out);
      ways_reset(&t);
    }
  }
  atomic_store(&captured, NULL);
  shim_end(&capture_shim, w.d);
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(w.c, free_stream);
}

/* Looks up a function in libcuda. The next case makes a real capture with such functions. */
static void find_symbol(const char *name, void *function) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = library ? dlsym(library, name) : NULL;
  if (!found) fail_msg("libcuda.so.1 has no %s", name);
  memcpy(function, &found, sizeof found);
}
CUDA_CASE(device_ops_keep_a_capture_valid) {
  int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph), (*destroy)(void *graph);
  place w = place_open(2); /* skips the case if the machine has no GPU */
  find_symbol("cuStreamBeginCapture_v2", &begin);
  find_symbol("cuStreamEndCapture", &end);
  find_symbol("cuGraphDestroy", &destroy);
  ways t = ways_open(&w, &w);
  tdict_stream s = new_stream(&w), other = new_stream(&w);
  for (int mode = 0; mode < 3; mode++) { /* global, thread-local and relaxed */
    tdict_gpu_scope scope;
    tdict_tree *outs[NUM_WAYS][2] = {{NULL}};
    void *graph = NULL;
    ways_reset(&t);
    td_ok(tdict_gpu_enter(w.gpu, &scope, err)); /* the capture needs a current context */
    assert_int_equal(begin(s.handle, mode), 0);
    tdict_gpu_leave(w.gpu, &scope);
    for (tree_way way = 0; way < NUM_WAYS; way++) {
      tdict_tree *none = NULL;
      td_fails(TDICT_ECAPTURE, "the stream is being captured", ways_call(&t, way, &s, &none, err));
      assert_null(none);
      if (way == WAY_SET) continue; /* would change the rows that other operations read */
      for (int k = 0; k < 2; k++) td_ok(ways_call(&t, way, k ? &other : NULL, &outs[way][k], err));
    }
    td_ok(tdict_gpu_enter(w.gpu, &scope, err));
    assert_int_equal(end(s.handle, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(destroy(graph), 0);
    tdict_gpu_leave(w.gpu, &scope);
    sync_stream(&w, other); /* the raw reads below do not wait for `other` */
    for (tree_way way = 0; way < NUM_WAYS; way++)
      for (int k = 0; k < 2; k++) {
        if (outs[way][k]) ways_check(&t, way, outs[way][k]);
        tdict_release(outs[way][k]);
      }
  }
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(w.c, other);
  ways_close(&t);
  place_close(&w);
}

/* Without a stream, each operation makes one launch on each device. On a stream, it is refused. */
SIM_CASE(device_ops_of_two_devices) {
  scoped_place w = place_sim(2, 0, 2);
  scoped_raw raw = raw_open(w.c, tdict_sim(1));
  place second = w;
  shim s;
  second.memory = tdict_device_memory(w.c, tdict_sim(1));
  second.raw = raw;
  scoped_ways t = ways_open(&w, &second);
  TD_STREAM(stream, w.c, w.device);
  for (tree_way way = 0; way < NUM_WAYS; way++) {
    tdict_tree *out = NULL;
    td_fails_at(TDICT_EWRONGDEVICE, "the tensor is on sim:1, but the stream belongs to sim:0", "b",
                ways_call(&t, way, &stream, &out, err));
    assert_null(out);
    ways_check_untouched(&t);
    begin_counting(&s, &w);
    td_ok(ways_call(&t, way, NULL, &out, err));
    assert_int_equal(num_launches, 2); /* checking the list needs no extra launch */
    shim_end(&s, w.d);
    ways_check(&t, way, out);
    tdict_release(out);
    ways_reset(&t);
  }
}

/* Each tree has tensors on the host and tensors on the device. All operations accept such trees, even on a stream. */
SIM_CASE(device_ops_of_host_and_device) {
  scoped_place w = place_open(2);
  const place host = host_of(w);
  scoped_ways t = ways_open(&w, &host);
  TD_STREAM(stream, w.c, w.device);
  for (tree_way way = 0; way < NUM_WAYS; way++)
    for (int on_stream = 0; on_stream < 2; on_stream++) {
      tdict_tree *out = td_made(tree, ways_call(&t, way, on_stream ? &stream : NULL, &made, err));
      sync_stream(&w, stream);
      ways_check(&t, way, out);
      tdict_release(out);
      ways_reset(&t);
    }
}

/* Wraps the bytes of `t` in a new tensor, as if they were device memory of the program. */
static tdict_tensor *as_program_memory(const tdict_tensor *t, void (*release)(void *user), void *user) {
  tdict_tensor *made = NULL;
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  tdict_tensor_get_desc(t, &desc);
  desc.device = td_device();
  desc.storage_bytes = 0;
  td_ok(tdict_tensor_from_data(&desc, release, user, &made, err));
  return made;
}
/* Returns a clone of `td` whose leaf "e" is memory of the program. Release the clone before `td`. */
static tdict_tree *with_program_memory(const tdict_tree *td) {
  tdict_tree *made = NULL;
  td_ok(tdict_clone(td, &made, err));
  td_put(made, "e", as_program_memory(td_leaf(td, "e"), NULL, NULL));
  return made;
}
/* If one side of a copy is memory of the program, a launch on the other side's device reads or writes it. If both sides
 * are, or if the result would have no other memory, the operation is refused. */
GPU_CASE(device_ops_on_memory_of_the_program) {
  enum { IN_TD = 1, IN_OTHER = 2, IN_FEW = 4, IN_STACKED = 8, IN_JOINED = 16 };
  static const struct {
    int way, where;
    bool is_refused;
  } rows[] = {{WAY_GET, IN_TD, true},
              {WAY_INTO, IN_TD, false},
              {WAY_INTO, IN_FEW, false},
              {WAY_INTO, IN_TD | IN_FEW, true},
              {WAY_SET, IN_TD, false},
              {WAY_SET, IN_FEW, false},
              {WAY_SET, IN_TD | IN_FEW, true},
              {WAY_STACK, IN_TD, true},
              {WAY_STACK, IN_OTHER, false},
              {WAY_CAT, IN_OTHER, false},
              {WAY_STACK_INTO, IN_TD | IN_OTHER, false},
              {WAY_STACK_INTO, IN_STACKED, false},
              {WAY_CAT_INTO, IN_JOINED, false},
              {WAY_CAT_INTO, IN_OTHER | IN_JOINED, true},
              {WAY_CLONE, IN_TD, true},
              {WAY_COPY, IN_TD, false},
              {WAY_COPY, IN_OTHER, false},
              {WAY_COPY, IN_TD | IN_OTHER, true},
              {WAY_FILL, IN_OTHER, true},
              {WAY_TO_DTYPE, IN_TD, true}};
  scoped_place w = place_open(2);
  scoped_ways t = ways_open(&w, &w);
  TD_STREAM(stream, w.c, w.device);
  for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
    const tree_way way = (tree_way)rows[i / 2].way;
    ways u = t;
    tdict_tree **const trees[] = {&u.td, &u.other, &u.few, &u.stacked, &u.joined}, *out = NULL;
    for (int k = 0; k < 5; k++)
      if (rows[i / 2].where >> k & 1) *trees[k] = with_program_memory(*trees[k]);
    if (rows[i / 2].is_refused) {
      td_fails_at(TDICT_EWRONGDEVICE, "", "e", ways_call(&u, way, i % 2 ? &stream : NULL, &out, err));
      assert_null(out);
      ways_check_untouched(&t);
    } else {
      td_ok(ways_call(&u, way, i % 2 ? &stream : NULL, &out, err));
      sync_stream(&w, stream);
      ways_check(&u, way, out);
    }
    for (int k = 0; k < 5; k++)
      if (rows[i / 2].where >> k & 1) tdict_release(*trees[k]);
    tdict_release(out);
    ways_reset(&t);
  }
}

/* Called when the library returns the memory to the program. This must not happen before the queued launch has run. */
static void note_release(void *user) {
  blocked *b = user;
  assert_true(atomic_load(&b->gate.open) && atomic_load(&b->k.done));
  b->t = NULL; /* tells the case that this function was called */
}
static void *open_gate_later(void *user) {
  td_rest();
  unblock(user);
  return NULL;
}
SIM_CASE(device_ops_keep_memory_of_the_program) {
  for (int writes = 0; writes < 2; writes++) {
    scoped_place w = place_open(2);
    ways t = ways_open(&w, &w), u = t;
    blocked b;
    block(&w, &b);
    tdict_tensor *gate_tensor = b.t;
    tdict_tree **const changed = writes ? &u.other : &u.td;
    td_ok(tdict_clone(*changed, changed, err));
    td_put(*changed, "e", as_program_memory(td_leaf(writes ? t.other : t.td, "e"), note_release, &b));
    td_ok(ways_call(&u, WAY_COPY, &b.s, NULL, err));
    pthread_t opener = td_start(open_gate_later, &b);
    tdict_release(*changed); /* waits for the launch */
    assert_null(b.t);
    assert_int_equal(pthread_join(opener, NULL), 0);
    b.t = gate_tensor;
    end_blocked(&w, &b);
    ways_check(&t, WAY_COPY, NULL);
    ways_close(&t);
  }
}
