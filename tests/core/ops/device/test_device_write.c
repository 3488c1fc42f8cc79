/* Tests clones, contiguous trees, copies and fills on devices: results, a single launch, and the order on streams. */
#include "core/ops/device/pair.h"
#include "core/ops/device/rows.h"

enum { NUM_SEEDS = 100 };

GPU_CASE(device_clone_equals_host) {
  scoped_world w = world_open();
  TD_STREAM(s, w.context, td_device());
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    scoped_pair p = pair_random(&w, seed, seed), got = {NULL, NULL};
    if (seed % 4 < 2) {
      td_ok(tdict_clone_deep(p.host, NULL, &got.host, err));
      td_ok(seed % 4 ? tdict_clone_deep(p.device, NULL, &got.device, err)
                     : tdict_clone_deep(p.device, TD_RUN(s, w.memory), &got.device, err));
    } else {
      td_ok(tdict_contiguous(p.host, NULL, &got.host, err));
      td_ok(seed % 4 == 2 ? tdict_contiguous(p.device, NULL, &got.device, err)
                          : tdict_contiguous(p.device, TD_ON(s), &got.device, err));
    }
    td_ok(tdict_stream_synchronize(w.context, s, err));
    pair_check(&w, &got);
    pair_check(&w, &p);
    const tdict_tensor *a = td_leaf(got.device, "a");
    assert_true(tdict_tensor_is_contiguous(a));
    const bool shares = seed % 4 >= 2 && tdict_tensor_is_contiguous(td_leaf(p.device, "a"));
    assert_int_equal(tdict_tensor_shares_storage(a, td_leaf(p.device, "a")), shares);
    assert_int_equal(td_leaf(got.host, "a") == td_leaf(p.host, "a"), shares);
  }
}

GPU_CASE(device_copy_equals_host) {
  scoped_world w = world_open();
  TD_STREAM(s, w.context, td_device());
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    scoped_pair p = pair_random(&w, seed, seed), other = pair_random(&w, seed, seed + 1000);
    td_ok(tdict_copy(p.host, other.host, NULL, err));
    td_ok(seed % 2 ? tdict_copy(p.device, other.device, NULL, err) : tdict_copy(p.device, other.device, TD_ON(s), err));
    td_ok(tdict_stream_synchronize(w.context, s, err));
    pair_check(&w, &p);
  }
}

GPU_CASE(device_fill_equals_host) {
  static const double values[] = {0, 1, 77, 100};
  static const char *const paths[] = {NULL, "a", "n", "n.m"};
  scoped_world w = world_open();
  TD_STREAM(s, w.context, td_device());
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    scoped_pair p = pair_random(&w, seed, seed);
    const double value = values[pick(&r, 0, 3)];
    const char *path = paths[pick(&r, 0, 3)];
    td_ok(tdict_fill(p.host, path, value, NULL, err));
    td_ok(seed % 2 ? tdict_fill(p.device, path, value, NULL, err) : tdict_fill(p.device, path, value, TD_ON(s), err));
    td_ok(tdict_stream_synchronize(w.context, s, err));
    pair_check(&w, &p);
  }
}

/* The four functions that are tested, and their trees of 40 rows. */
enum { CLONE, CONTIGUOUS, COPY, FILL, WAYS };
typedef struct trees {
  tdict_tree *td, *other, *view, *out;
} trees;
static tdict_status call_on(const trees *t, int way, const tdict_stream *s, tdict_tree **out, tdict_error *err) {
  switch (way) {
  case CLONE:
    return tdict_clone_deep(t->td, TD_ON_IF(s), out, err);
  case CONTIGUOUS:
    return tdict_contiguous(t->view, TD_ON_IF(s), out, err);
  case COPY:
    return tdict_copy(t->other, t->td, TD_ON_IF(s), err);
  default:
    return tdict_fill(t->other, NULL, 9, TD_ON_IF(s), err);
  }
}
static trees trees_open(const place *w) {
  trees t = {.td = rows_tree(w, 40, 1), .other = rows_tree(w, 40, 11)};
  td_ok(tdict_index_get(NULL, t.td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, &t.view, err));
  return t;
}
static void trees_close(trees *t) { td_release(t->td, t->view, t->other); }
#define scoped_trees TD_SCOPED(trees_close, trees)
/* Checks row 4 of the leaf "e" of a result. After a fill, checks all elements of "e". */
static void check_result(const place *w, const tdict_tree *result, int way) {
  tdict_tensor *e = td_leaf(result, "e");
  if (way != FILL) {
    check_row(w, e, 4, 40, 5, way == CONTIGUOUS ? 35 : 4);
    return;
  }
  TD_FREED int32_t *found = (int32_t *)(void *)get_bytes(w, e);
  for (int i = 0; i < 240; i++) assert_int_equal(found[i], 9);
}

SIM_CASE(device_writes_launch_once) {
  scoped_place w = place_open(2);
  shim s;
  scoped_trees t = trees_open(&w);
  for (int way = 0; way < WAYS; way++) {
    begin_counting(&s, &w);
    scoped_tree out = td_made(tree, call_on(&t, way, NULL, &made, err));
    assert_int_equal(num_launches, 1);
    shim_end(&s, w.d);
    check_result(&w, out ? out : t.other, way);
  }
}

SIM_CASE(device_writes_on_stream_are_ordered) {
  for (int way = 0; way < WAYS; way++) {
    scoped_place w = place_open(2);
    const place host = host_of(w);
    trees t = trees_open(&w);
    tdict_tree *out = NULL, *written = way == FILL ? t.other : t.td;
    scoped_tree source = rows_tree(&host, 40, 71);
    blocked b;
    block(&w, &b);
    td_ok(call_on(&t, way, &b.s, &out, err));
    scoped_tree found = pass_gate(&w, &b, out ? out : t.other, out, source, written);
    check_result(&w, found, way);
    check_row(&w, td_leaf(written, "e"), 4, 40, 75, 4);
    end_blocked(&w, &b);
    trees_close(&t);
  }
}

SIM_CASE(device_writes_fail_whole) {
  place w = place_sim(2, 0, 2), host = w;
  shim s;
  trees t = trees_open(&w);
  host.memory = NULL;
  tdict_stream stream = new_stream(&w), second = {tdict_sim(1), NULL}, none = {tdict_cpu(), NULL};
  for (int way = 0; way < WAYS; way++) {
    scoped_tree out = NULL;
    td_fails_at(TDICT_EWRONGDEVICE, "but the stream belongs to sim:1", "a", call_on(&t, way, &second, &out, err));
    td_fails(TDICT_EWRONGDEVICE, "the stream belongs to the cpu", call_on(&t, way, &none, &out, err));
    begin_counting(&s, &w);
    fault_code = TDICT_CU_INVALID_VALUE;
    td_fails(TDICT_EDEVICE, "cuLaunchKernel", call_on(&t, way, NULL, &out, err));
    td_fails(TDICT_EDEVICE, "cuLaunchKernel", call_on(&t, way, &stream, &out, err));
    fault_code = TDICT_CU_SUCCESS;
    shim_end(&s, w.d);
    assert_null(out);
    TD_WITHOUT_MEMORY_THEN(call_on(&t, way, NULL, &out, err), assert_null(out));
  }
  check_row(&w, td_leaf(t.td, "e"), 4, 40, 5, 4);
  td_put(t.td, "h", rows_on(&host, 40, 60));
  td_put(t.other, "h", rows_on(&w, 40, 60));
  td_fails_at(TDICT_ENOTSUP, "copy: from cpu to sim:0", "h", tdict_copy(t.other, t.td, TD_ON(stream), err));
  td_ok(tdict_copy(t.other, t.td, NULL, err));
  tdict_tree *out = NULL;
  td_ok(tdict_clone_deep(t.td, TD_ON(stream), &out, err)); /* each copy is on the device of its source */
  check_row(&w, td_leaf(out, "h"), 4, 40, 60, 4);
  sync_stream(&w, stream);
  check_row(&w, td_leaf(out, "e"), 4, 40, 5, 4);
  tdict_release(out);
  tdict_stream_destroy(w.c, stream);
  trees_close(&t);
  place_close(&w);
}

/* If the driver cannot compile kernels, the driver's own copy and fill functions are used. */
SIM_CASE(device_writes_without_compiler) {
  scoped_place w = place_open(2);
  shim s;
  scoped_trees t = trees_open(&w);
  shim_begin(&s, w.d);
  s.ops.module_load = refuse_module;
  for (int way = 0; way < FILL; way++) {
    scoped_tree out = td_made(tree, call_on(&t, way, NULL, &made, err));
    check_result(&w, out ? out : t.other, way);
  }
  td_fails(TDICT_ENOTSUP, "equal bytes", tdict_fill(t.other, NULL, 9, NULL, err));
  check_result(&w, t.other, COPY);
  td_ok(tdict_fill(t.other, NULL, 0, NULL, err));
  unsigned char *zeros = get_bytes(&w, td_leaf(t.other, "e"));
  assert_memory_equal(zeros, ((char[960]){0}), 960);
  free(zeros);
  shim_end(&s, w.d);
}
