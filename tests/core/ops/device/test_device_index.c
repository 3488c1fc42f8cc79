/* Tests indices on device trees: random indices have the same results as on the host, failed calls change nothing, and
 * one launch handles all leaves. */
#include "core/ops/device/pair.h"
#include "core/ops/device/rows.h"
#include "core/ops/twins.h"

enum { NUM_SEEDS = 150 };

GPU_CASE(device_index_get_equals_host) {
  scoped_world w = world_open();
  int num_lists = 0, num_on_device = 0;
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    random_index i;
    scoped_pair p = pair_random(&w, seed, seed), got = {NULL, NULL};
    make_index(&r, &w, p.host, false, &i);
    td_ok(tdict_index_get(NULL, p.host, &i.index, NULL, &got.host, err));
    td_ok(tdict_index_get(NULL, p.device, &i.index, NULL, &got.device, err));
    pair_check(&w, &got);
    num_lists += i.has_lists;
    num_on_device += i.num_on_device;
    random_index_release(&i);
  }
  assert_true(num_lists > NUM_SEEDS / 4 && num_on_device > NUM_SEEDS / 8);
}

/* Compares tdict_index_set(), or tdict_index_into() if `into` is true, on the device with the same call on the host. */
static void check_writes(const world *w, bool into) {
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    random_index i;
    scoped_pair p = pair_random(w, seed, seed), other = pair_random(w, seed, seed + 1000), rows = {NULL, NULL};
    make_index(&r, w, p.host, true, &i);
    td_ok(tdict_index_get(NULL, other.host, &i.index, NULL, &rows.host, err));
    td_ok(tdict_index_get(NULL, other.device, &i.index, NULL, &rows.device, err));
    if (into) {
      td_ok(tdict_index_into(NULL, rows.host, p.host, &i.index, NULL, err));
      td_ok(tdict_index_into(NULL, rows.device, p.device, &i.index, NULL, err));
    } else {
      td_ok(tdict_index_set(NULL, p.host, &i.index, rows.host, NULL, err));
      td_ok(tdict_index_set(NULL, p.device, &i.index, rows.device, NULL, err));
    }
    pair_check(w, into ? &rows : &p);
    random_index_release(&i);
  }
}
GPU_CASE(device_index_set_equals_host) {
  scoped_world w = world_open();
  check_writes(&w, false);
}
GPU_CASE(device_index_into_equals_host) {
  scoped_world w = world_open();
  check_writes(&w, true);
}

/* An index can have nine lists, although a single move cannot. */
GPU_CASE(device_index_takes_many_lists) {
  const int64_t bs[] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  scoped_world w = world_open();
  scoped_pair p = {help_tree(9, bs), help_tree(9, bs)}, got = {NULL, NULL},
              other = {help_tree(9, bs), help_tree(9, bs)};
  rng r = {7};
  int64_t positions[9][5];
  tdict_indices index = tdict_indices_none();
  for (int d = 0; d < 9; d++) {
    for (int i = 0; i < 5; i++) positions[d][i] = d < 3 ? i >> d & 1 : pick(&r, 0, 1); /* no element twice */
    tdict_indices_add(&index, TDICT_LIST(positions[d], 5));
  }
  add_tensors(&w, &p, "a", (layout){TDICT_F32, 9, bs}, 1);
  add_tensors(&w, &p, "n.b", (layout){TDICT_U8, 9, bs}, 2);
  add_tensors(&w, &other, "a", (layout){TDICT_F32, 9, bs}, 3);
  add_tensors(&w, &other, "n.b", (layout){TDICT_U8, 9, bs}, 4);
  td_ok(tdict_index_get(NULL, other.host, &index, NULL, &got.host, err));
  td_ok(tdict_index_get(NULL, other.device, &index, NULL, &got.device, err));
  pair_check(&w, &got);
  td_ok(tdict_index_set(NULL, p.host, &index, got.host, NULL, err));
  td_ok(tdict_index_set(NULL, p.device, &index, got.device, NULL, err));
  pair_check(&w, &p);
}

SIM_CASE(device_index_launches_once_for_all_leaves) {
  scoped_place w = place_open(2);
  shim s;
  const int64_t list[] = {3, -1, 7};
  const tdict_indices *const indices[] = {TDICT_INDEX(TDICT_LIST(list, 3)), TDICT_INDEX(TDICT_RANGE(2, 20, 3))};
  scoped_tree td = rows_tree(&w, 40, 1), out = NULL;
  begin_counting(&s, &w);
  td_ok(tdict_index_get(NULL, td, indices[0], NULL, &out, err));
  assert_int_equal(num_launches, 1);
  td_ok(tdict_index_into(NULL, out, td, indices[0], NULL, err));
  assert_int_equal(num_launches, 2);
  td_ok(tdict_index_set(NULL, td, indices[0], out, NULL, err));
  assert_int_equal(num_launches, 3);
  tdict_release(out);
  out = rows_tree(&w, 6, 50);
  td_ok(tdict_index_set(NULL, td, indices[1], out, NULL, err));
  assert_int_equal(num_launches, 4);
  for (int64_t i = 0; i < 6; i++) check_row(&w, td_leaf(td, "n.d"), 2 + 3 * i, 6, 53, i);
  shim_end(&s, w.d);
}

/* A row whose bytes were lost cannot be read until it is written again. */
SIM_CASE(device_index_refuses_lost_rows) {
  scoped_place w = place_open(2);
  const int64_t good[] = {3, 4}, bad[] = {4, 9};
  scoped_tree td = rows_tree(&w, 40, 1);
  tdict_tree *out = NULL;
  scoped_tree few = rows_tree(&w, 2, 21), row = NULL;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(9, 11, 1)), NULL, &row, err));
  tdict_tensor_lose(td_leaf(row, "n.c"));
  tdict_release(td_made(tree, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(good, 2)), NULL, &made, err)));
  out = NULL;
  for (int i = 0; i < 2; i++) {
    const tdict_run o = td_with(tdict_run, stream = (i ? (tdict_stream){w.device, NULL} : tdict_no_stream()));
    td_fails_at(TDICT_EINVAL, "index: the source's bytes are lost", "n.c",
                tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(bad, 2)), &o, &out, err));
    td_fails(TDICT_EINVAL, "index_into: the source's bytes are lost",
             tdict_index_into(NULL, few, td, TDICT_INDEX(TDICT_LIST(bad, 2)), &o, err));
    check_row(&w, td_leaf(few, "a"), 0, 2, 21, 0);
  }
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(bad, 2)), few, NULL, err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(bad, 2)), NULL, &out, err)); /* row 10 is still lost */
  tdict_release(out);
  td_fails(TDICT_EINVAL, "lost",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(((int64_t[]){10}), 1)), NULL, &out, err));
}

/* Indices work on trees with some tensors on the host and some on the device. */
SIM_CASE(device_index_takes_mixed_trees) {
  scoped_place w = place_open(2);
  const place host = host_of(w);
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21);
  tdict_tree *out = NULL;
  td_put(td, "h", rows_on(&host, 40, 60));
  td_put(few, "h", rows_on(&host, 3, 61));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), NULL, &out, err));
  for (int i = 0; i < 3; i++) {
    check_row(&w, td_leaf(out, "h"), i, 40, 60, list[i]);
    check_row(&w, td_leaf(out, "e"), i, 40, 5, list[i]);
  }
  tdict_release(out);
  td_put(few, "a", rows_on(&host, 3, 62)); /* a host tensor, which is copied to the device */
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), few, NULL, err));
  for (int i = 0; i < 3; i++) {
    check_row(&w, td_leaf(td, "h"), list[i], 3, 61, i);
    check_row(&w, td_leaf(td, "a"), list[i], 3, 62, i);
    check_row(&w, td_leaf(td, "e"), list[i], 3, 25, i);
  }
  TD_STREAM(s, w.c, w.device);
  const tdict_run o = td_with(tdict_run, stream = s);
  td_fails_at(TDICT_ENOTSUP, "index_set: from cpu to sim:0; on a stream, both tensors must be", "a",
              tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(0, 3, 1)), few, &o, err));
  check_row(&w, td_leaf(td, "b"), 1, 40, 2, 1);
}

SIM_CASE(device_index_on_stream_refuses) {
  scoped_place w = place_sim(2, 0, 2);
  rig r = {w.c, w.memory};
  const int64_t list[] = {9, 0, 33};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(list, 3));
  scoped_tree td = rows_tree(&w, 40, 1), out = NULL, few = rows_tree(&w, 3, 21);
  tdict_stream s = new_stream(&w), wrong = {tdict_cpu(), NULL}, second = {tdict_sim(1), NULL};
  tdict_run o = td_with(tdict_run, stream = wrong);
  td_fails(TDICT_EWRONGDEVICE, "the stream belongs to the cpu", tdict_index_get(NULL, td, index, &o, &out, err));
  o.stream = second;
  td_fails(TDICT_EWRONGDEVICE, "index: the tensor is on sim:0, but the stream belongs to sim:1",
           tdict_index_get(NULL, td, index, &o, &out, err));
  td_fails_at(TDICT_EWRONGDEVICE, "index_set: the tensor is on sim:0, but the stream belongs to sim:1", "a",
              tdict_index_set(NULL, td, index, few, &o, err));
  o.stream = s;
  o.memory = w.pinned;
  td_fails(TDICT_EINVAL, "memory and stream are set", tdict_index_get(NULL, td, index, &o, &out, err));
  o.memory = NULL;
  twins both = make_twins(&r, &flat_type);
  td_fails_at(TDICT_ENOTSUP, "an object of type flat; on a stream, only tensors", "n.o",
              tdict_index_get(NULL, both.td, TDICT_INDEX(TDICT_LIST(((int64_t[]){1}), 1)), &o, &out, err));
  assert_null(out);
  end_twins(&both);
  td_ok(tdict_set_text(td, "text", "whole", err)); /* a value, which stays on the host */
  tdict_release(td_made(tree, tdict_index_get(NULL, td, index, &o, &made, err)));
  tdict_stream_destroy(w.c, s);
}

SIM_CASE(device_index_fails_whole) {
  scoped_place w = place_open(2);
  shim s;
  const int64_t list[] = {9, 0, 33}, outside[] = {9, 40};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(list, 3));
  scoped_tree td = rows_tree(&w, 40, 1);
  tdict_tree *out = NULL;
  scoped_tree few = rows_tree(&w, 3, 21), two = rows_tree(&w, 2, 31);
  TD_STREAM(stream, w.c, w.device);
  const tdict_run o = td_with(tdict_run, stream = stream);
  td_fails(TDICT_EINVAL, "position 40 is outside",
           tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(outside, 2)), two, NULL, err));
  check_row(&w, td_leaf(td, "a"), 9, 40, 1, 9);
  begin_counting(&s, &w);
  fault_code = TDICT_CU_INVALID_VALUE;
  td_fails(TDICT_EDEVICE, "cuLaunchKernel", tdict_index_get(NULL, td, index, NULL, &out, err));
  td_fails(TDICT_EDEVICE, "cuLaunchKernel", tdict_index_get(NULL, td, index, &o, &out, err));
  td_fails(TDICT_EDEVICE, "cuLaunchKernel", tdict_index_set(NULL, td, index, few, NULL, err));
  assert_null(out);
  fault_code = TDICT_CU_SUCCESS;
  shim_end(&s, w.d);
  td_ok(tdict_index_get(NULL, td, index, NULL, &out, err)); /* the device can still be used */
  td_release(out);
  TD_WITHOUT_MEMORY(tdict_index_set(NULL, td, index, few, NULL, err));
  TD_WITHOUT_MEMORY_THEN(tdict_index_get(NULL, td, index, NULL, &out, err), assert_null(out));
  tdict_release(out);
  /* If the allocation for recording the use fails, the call waits for the launch instead. */
  int num_succeeded = 0;
  for (int64_t n = 0; num_succeeded < 2; n++) {
    tdict_error err = {0};
    out = NULL;
    td_fail_alloc(n, false);
    const tdict_status status = tdict_index_get(NULL, td, index, &o, &out, &err);
    const bool had_failure = td_fail_alloc_stop();
    assert_int_equal(status, out ? TDICT_OK : TDICT_ENOMEM);
    assert_true(had_failure || out);
    if (out) sync_stream(&w, stream);
    for (int i = 0; i < 3 && out; i++) check_row(&w, td_leaf(out, "e"), i, 3, 25, i == 0 ? 0 : i);
    num_succeeded += out && !had_failure;
    tdict_release(out);
  }
}

/* The positions of a list on the device are checked before anything is written. If the result is new, the launch that
 * copies also checks the list. */
SIM_CASE(device_index_checks_lists) {
  scoped_place w = place_open(2);
  shim s;
  const int64_t positions[] = {9, -40, 33, 40, -41}, counts[] = {3, 4, 5};
  scoped_tree td = rows_tree(&w, 40, 1);
  tdict_tree *out = NULL;
  scoped_tree few = rows_tree(&w, 3, 21), four = rows_tree(&w, 4, 31);
  TD_STREAM(stream, w.c, w.device);
  tdict_tensor *lists[3], *wrong = new_tensor(TDICT_I32, 1, counts, w.memory);
  scoped_tensor square = new_tensor(TDICT_I64, 2, (const int64_t[]){1, 2}, w.memory);
  for (int i = 0; i < 3; i++) {
    lists[i] = new_tensor(TDICT_I64, 1, &counts[i], w.memory);
    put_bytes(&w, lists[i], positions);
  }
  for (int i = 0; i < 2; i++) {
    const tdict_run o = td_with(tdict_run, stream = i ? stream : tdict_no_stream());
    td_fails(TDICT_EINVAL, "index_set: position 40 is outside dimension 0, which has 40 elements",
             tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST_OF(lists[1])), four, &o, err));
    td_fails(TDICT_EINVAL, "position 40",
             tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(lists[2])), &o, &out, err));
    check_row(&w, td_leaf(td, "a"), 9, 40, 1, 9);
    begin_counting(&s, &w);
    td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(lists[0])), &o, &out, err));
    assert_int_equal(num_launches, 1); /* the launch that copies checks the list */
    assert_true(
        tdict_storage_has_no_uses(lists[0]->storage)); /* the call has waited for the launch, even on a stream */
    shim_end(&s, w.d);
    sync_stream(&w, stream);
    check_row(&w, td_leaf(out, "e"), 0, 40, 5, 9);
    check_row(&w, td_leaf(out, "e"), 1, 40, 5, 0);
    tdict_release(out);
  }
  td_fails(TDICT_EDTYPE, "the list has dtype int32, wanted int64",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(wrong)), NULL, &out, err));
  td_fails(TDICT_ESHAPE, "the list has shape [1, 2], wanted one dimension",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(square)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "a NULL tensor", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(NULL)), NULL, &out, err));
  tdict_tensor_lose(lists[0]);
  td_fails(TDICT_EINVAL, "the list's bytes are lost",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(lists[0])), NULL, &out, err));
  tdict_tensor_regain(lists[0]);
  TD_WITHOUT_MEMORY(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST_OF(lists[0])), few, NULL, err));
  check_row(&w, td_leaf(td, "e"), 0, 3, 25, 1);
  for (int i = 0; i < 3; i++) tdict_tensor_release(lists[i]);
  tdict_tensor_release(wrong);
}

static struct counted_calls {
  shim s;
  int launches, waits, events;
} counted;
static tdict_cu counted_launch(tdict_driver *d, const tdict_cu_launch *launch, tdict_cu_stream stream) {
  counted.launches++;
  return counted.s.real->launch(d, launch, stream);
}
static tdict_cu counted_wait(tdict_driver *d, tdict_cu_stream stream) {
  counted.waits++;
  return counted.s.real->stream_synchronize(d, stream);
}
static tdict_cu counted_record(tdict_driver *d, tdict_cu_event event, tdict_cu_stream stream) {
  counted.events++;
  return counted.s.real->event_record(d, event, stream);
}

/* A call with a list on the device launches once and waits once. Without a stream, it records an event on the legacy
 * stream. With a stream, it records no event, and adds no use to its storages. */
SIM_CASE(device_index_by_a_list_launches_and_waits_once) {
  scoped_place w = place_open(2);
  const int64_t positions[] = {9, -40, 33}, three = 3;
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21), out = NULL;
  scoped_tensor list = new_tensor(TDICT_I64, 1, &three, w.memory);
  TD_STREAM(stream, w.c, w.device);
  put_bytes(&w, list, positions);
  for (int i = 0; i < 8; i++) { /* the first two rounds load the kernels and create streams */
    const int on_stream = i % 2;
    const tdict_run o = td_with(tdict_run, stream = on_stream ? stream : tdict_no_stream());
    const tdict_indices *index = TDICT_INDEX(TDICT_LIST_OF(list));
    memset(&counted, 0, sizeof counted);
    shim_begin(&counted.s, w.d);
    counted.s.ops.launch = counted_launch;
    counted.s.ops.stream_synchronize = counted_wait;
    counted.s.ops.event_record = counted_record;
    if (i < 4)
      td_ok(tdict_index_get(NULL, td, index, &o, &out, err));
    else
      td_ok(i < 6 ? tdict_index_into(NULL, few, td, index, &o, err) : tdict_index_set(NULL, td, index, few, &o, err));
    shim_end(&counted.s, w.d);
    assert_true(i < 2 || (counted.launches == 1 && counted.waits == 1 && counted.events == 1 - on_stream));
    assert_true(tdict_storage_has_no_uses(td_leaf(td, "a")->storage));
    tdict_release(out);
    out = NULL;
  }
}

/* A bad position at the end of a list is found before any row is written. If the list is short, this takes one launch.
 * With a stream, the call also waits for the copies, so it adds no use to its storages. */
GPU_CASE(device_index_writes_nothing_for_a_bad_position) {
  enum { MOST = 5000 };
  scoped_place w = place_open(2);
  const int64_t counts[] = {3, 1500, MOST};
  TD_FREED int64_t *positions = td_alloc(MOST * sizeof *positions);
  TD_STREAM(stream, w.c, w.device);
  for (int64_t i = 0; i < MOST; i++) positions[i] = i % 80 - 40;
  for (int i = 0; i < 6; i++) {
    const int64_t count = counts[i / 2];
    const tdict_run o = td_with(tdict_run, stream = i % 2 ? stream : tdict_no_stream());
    scoped_tensor list = new_tensor(TDICT_I64, 1, &count, w.memory);
    scoped_tree td = rows_tree(&w, 40, 1), other = rows_tree(&w, count, 31);
    shim s;
    positions[count - 1] = 40;
    put_bytes(&w, list, positions);
    td_fails(TDICT_EINVAL, "index_into: position 40 is outside dimension 0, which has 40 elements",
             tdict_index_into(NULL, other, td, TDICT_INDEX(TDICT_LIST_OF(list)), &o, err));
    td_fails(TDICT_EINVAL, "index_set: position 40 is outside dimension 0",
             tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST_OF(list)), other, &o, err));
    sync_stream(&w, stream);
    assert_true(has_number(&w, td_leaf(other, "a"), 31) && has_number(&w, td_leaf(other, "e"), 35));
    assert_true(has_number(&w, td_leaf(td, "a"), 1) && has_number(&w, td_leaf(td, "n.c"), 3));
    positions[count - 1] = -3;
    put_bytes(&w, list, positions);
    begin_counting(&s, &w);
    td_ok(tdict_index_into(NULL, other, td, TDICT_INDEX(TDICT_LIST_OF(list)), &o, err));
    assert_int_equal(num_launches, count == MOST ? 2 : 1);
    shim_end(&s, w.d);
    assert_true(tdict_storage_has_no_uses(td_leaf(td, "a")->storage));
    assert_true(tdict_storage_has_no_uses(td_leaf(other, "a")->storage));
    sync_stream(&w, stream);
    check_row(&w, td_leaf(other, "n.d"), count - 1, 40, 4, 37);
    check_row(&w, td_leaf(other, "b"), 1, 40, 2, 1);
  }
}

/* The list is checked by a separate launch before the copy if the copy overwrites the list, or if a copy on a stream is
 * so large that the call does not wait for it. */
SIM_CASE(device_index_checks_lists_by_a_launch_before) {
  const int64_t two[] = {1, 0}, count = 2, shape[] = {2, 34 << 20};
  scoped_place w = place_open(2);
  scoped_tensor list = new_tensor(TDICT_I64, 1, &count, w.memory), leaf = new_tensor(TDICT_U8, 2, shape, w.memory);
  scoped_tree td = TREE(2), few = TREE(2), large = TREE(2), out = NULL;
  TD_STREAM(stream, w.c, w.device);
  const tdict_run o = td_with(tdict_run, stream = stream);
  shim s;
  put_bytes(&w, list, two);
  td_ok(tdict_set(td, "list", list, err));
  td_put(few, "list", new_tensor(TDICT_I64, 1, &count, w.memory));
  put_bytes(&w, td_leaf(few, "list"), two);
  begin_counting(&s, &w);
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST_OF(list)), few, NULL, err));
  assert_int_equal(num_launches, 2);
  put_bytes(&w, list, two);
  td_ok(tdict_set(large, "leaf", leaf, err));
  td_ok(tdict_index_get(NULL, large, TDICT_INDEX(TDICT_LIST_OF(list)), &o, &out, err));
  assert_int_equal(num_launches, 4);
  assert_false(tdict_storage_has_no_uses(list->storage)); /* a later write to the list waits for the copy */
  sync_stream(&w, stream);
  shim_end(&s, w.d);
}

/* If no leaf has elements, there is nothing to copy, but the lists must still be checked. */
GPU_CASE(device_index_checks_lists_without_elements) {
  scoped_place w = place_open(2);
  const int64_t bad[] = {39, -41}, good[] = {39, -40}, two[] = {2}, shape[] = {40, 0};
  scoped_tree empty = NULL, out = NULL;
  scoped_tensor list = new_tensor(TDICT_I64, 1, two, w.memory), leaf = new_tensor(TDICT_F32, 2, shape, w.memory);
  td_ok(tdict_create(TDICT_SHAPE(40), &empty, err));
  td_ok(tdict_set(empty, "none", leaf, err));
  put_bytes(&w, list, bad);
  td_fails(TDICT_EINVAL, "index: position -41 is outside dimension 0",
           tdict_index_get(NULL, empty, TDICT_INDEX(TDICT_LIST_OF(list)), NULL, &out, err));
  assert_null(out);
  put_bytes(&w, list, good);
  td_ok(tdict_index_get(NULL, empty, TDICT_INDEX(TDICT_LIST_OF(list)), NULL, &out, err));
  assert_int_equal(tdict_batch_size(out)[0], 2);
}

/* If the driver cannot compile kernels, an index with a list is refused, but slices are copied by driver calls. */
SIM_CASE(device_index_without_compiler) {
  scoped_place w = place_open(2);
  shim s;
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), out = NULL, few = rows_tree(&w, 3, 21);
  shim_begin(&s, w.d);
  s.ops.module_load = refuse_module;
  td_fails(TDICT_ENOTSUP, "cannot compile",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), NULL, &out, err));
  td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(12, 3, -4)), few, NULL, err));
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(td, "b"), 12 - 4 * i, 3, 22, i);
  shim_end(&s, w.d);
}
