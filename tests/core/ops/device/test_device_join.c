/* Tests stack and cat on devices: the same results as on the host, a single launch, and the order on streams. */
#include "core/ops/device/pair.h"
#include "core/ops/device/rows.h"
#include "core/ops/twins.h"

enum { NUM_SEEDS = 100, MOST_ITEMS = 3 };

/* One of the four functions that join trees, and the dimension to join along. */
typedef struct join_way {
  bool is_stack, into;
  int32_t dim;
} join_way;
static tdict_status join(join_way way, tdict_tree *const *items, size_t count, const tdict_run *run, tdict_tree **out,
                         tdict_error *err) {
  tdict_join_options o = td_with(tdict_join_options, dim = way.dim);
  const tdict_tree *const *all = (const tdict_tree *const *)items;
  if (way.into)
    return way.is_stack ? tdict_stack_into(*out, all, count, &o, run, err)
                        : tdict_cat_into(*out, all, count, &o, run, err);
  return way.is_stack ? tdict_stack(all, count, &o, run, out, err) : tdict_cat(all, count, &o, run, out, err);
}

GPU_CASE(device_join_equals_host) {
  scoped_world w = world_open();
  TD_STREAM(s, w.context, td_device());
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    const size_t count = (size_t)pick(&r, 1, MOST_ITEMS);
    tdict_tree *host[MOST_ITEMS], *device[MOST_ITEMS];
    pair got = {NULL, NULL}, into;
    for (size_t i = 0; i < count; i++) {
      pair p = pair_random(&w, seed, seed + 1000 * i);
      host[i] = p.host;
      device[i] = p.device;
    }
    join_way way = {.is_stack = pick(&r, 0, 1)};
    tdict_run run = tdict_run_default();
    way.dim = (int32_t)pick(&r, 0, tdict_batch_ndim(host[0]) - !way.is_stack);
    td_ok(join(way, host, count, &run, &got.host, err));
    if (seed % 2) run.stream = s;
    td_ok(join(way, device, count, &run, &got.device, err));
    td_ok(tdict_stream_synchronize(w.context, s, err));
    pair_check(&w, &got);
    /* Join other elements into the existing results. */
    into = got;
    got = (pair){NULL, NULL};
    for (size_t i = 0; i < count; i++) {
      tdict_tree *const last[2] = {host[i], device[i]};
      host[i] = host[count - 1];
      device[i] = device[count - 1];
      host[count - 1] = last[0];
      device[count - 1] = last[1];
    }
    way.into = true;
    run.stream = tdict_no_stream();
    td_ok(join(way, host, count, &run, &into.host, err));
    if (seed % 4 > 1) run.stream = s;
    td_ok(join(way, device, count, &run, &into.device, err));
    td_ok(tdict_stream_synchronize(w.context, s, err));
    pair_check(&w, &into);
    pair_release(&into);
    for (size_t i = 0; i < count; i++) td_release(host[i], device[i]);
  }
}

/* Makes two trees of 40 rows and, if the function writes to an existing tree, a destination. */
static void open_items(const place *w, join_way way, tdict_tree *items[2], tdict_tree **out) {
  items[0] = rows_tree(w, 40, 1);
  items[1] = rows_tree(w, 40, 11);
  *out = NULL;
  if (way.into) td_ok(join((join_way){.is_stack = way.is_stack}, items, 2, NULL, out, err));
}

SIM_CASE(device_join_launches_once) {
  scoped_place w = place_open(2);
  shim s;
  for (int n = 0; n < 4; n++) {
    const join_way way = {n & 1, n & 2, 0};
    tdict_tree *items[2], *out;
    open_items(&w, way, items, &out);
    begin_counting(&s, &w);
    td_ok(join(way, items, 2, NULL, &out, err));
    assert_int_equal(num_launches, 1);
    shim_end(&s, w.d);
    check_row(&w, td_leaf(out, "e"), 42, 40, 15, 2);
    td_release(out, items[0], items[1]);
  }
}

SIM_CASE(device_join_on_stream_is_ordered) {
  for (int n = 0; n < 4; n++) {
    scoped_place w = place_open(2);
    const place host = host_of(w);
    const join_way way = {n & 1, n & 2, 0};
    scoped_tree source = rows_tree(&host, 40, 71);
    tdict_tree *items[2], *out;
    blocked b;
    open_items(&w, way, items, &out);
    if (out) td_ok(tdict_fill(out, NULL, 0, NULL, err));
    block(&w, &b);
    td_ok(join(way, items, 2, TD_ON(b.s), &out, err));
    scoped_tree found = pass_gate(&w, &b, out, out, source, items[1]);
    check_row(&w, td_leaf(found, "e"), 42, 40, 15, 2);
    check_row(&w, td_leaf(items[1], "e"), 2, 40, 75, 2);
    end_blocked(&w, &b);
    td_release(items[0], items[1]);
  }
}

SIM_CASE(device_join_fails_whole) {
  scoped_place w = place_sim(2, 0, 2);
  rig r = {w.c, w.memory};
  shim s;
  tdict_stream stream = new_stream(&w), second = {tdict_sim(1), NULL};
  for (int n = 0; n < 4; n++) {
    const join_way way = {n & 1, n & 2, 0};
    tdict_tree *items[2], *out, *before;
    open_items(&w, way, items, &out);
    before = out;
    tdict_run run = td_with(tdict_run, stream = second);
    td_fails_at(TDICT_EWRONGDEVICE, "but the stream belongs to sim:1", "a", join(way, items, 2, &run, &out, err));
    begin_counting(&s, &w);
    fault_code = TDICT_CU_INVALID_VALUE;
    td_fails(TDICT_EDEVICE, "cuLaunchKernel", join(way, items, 2, NULL, &out, err));
    run.stream = stream;
    td_fails(TDICT_EDEVICE, "cuLaunchKernel", join(way, items, 2, &run, &out, err));
    fault_code = TDICT_CU_SUCCESS;
    shim_end(&s, w.d);
    assert_ptr_equal(out, before);
    TD_WITHOUT_MEMORY_THEN(join(way, items, 2, NULL, &out, err), assert_ptr_equal(out, before));
    check_row(&w, td_leaf(out, "e"), 42, 40, 15, 2);
    tdict_release(out);
    twins both = make_twins(&r, &flat_type);
    tdict_tree *const objects[2] = {both.td, both.td};
    out = NULL;
    td_fails_at(TDICT_ENOTSUP, "an object of type flat; on a stream, only tensors", "n.o",
                join((join_way){.is_stack = way.is_stack}, objects, 2, &run, &out, err));
    end_twins(&both);
    td_release(items[0], items[1]);
  }
  tdict_run run = td_with(tdict_run, stream = stream);
  tdict_tree *one = help_tree_without_batch(), *out = NULL;
  td_fails(TDICT_EINVAL, "the option stream is set",
           tdict_pad_sequence((const tdict_tree *[]){one}, 1, NULL, &run, &out, err));
  tdict_join_options o = td_with(tdict_join_options, ragged = true);
  td_fails(TDICT_EINVAL, "ragged and stream", tdict_stack((const tdict_tree *[]){one}, 1, &o, &run, &out, err));
  tdict_release(one);
  tdict_stream_destroy(w.c, stream);
}

/* If the driver cannot compile kernels, joins copy the elements with driver calls. */
SIM_CASE(device_join_without_compiler) {
  scoped_place w = place_open(2);
  shim s;
  for (int n = 0; n < 4; n++) {
    const join_way way = {n & 1, n & 2, 0};
    tdict_tree *items[2], *out;
    open_items(&w, (join_way){way.is_stack, false, 0}, items, &out);
    shim_begin(&s, w.d);
    s.ops.module_load = refuse_module;
    td_ok(join((join_way){way.is_stack, false, 0}, items, 2, NULL, &out, err));
    if (way.into) td_ok(join(way, items, 2, NULL, &out, err));
    shim_end(&s, w.d);
    check_row(&w, td_leaf(out, "e"), 42, 40, 15, 2);
    td_release(out, items[0], items[1]);
  }
}
