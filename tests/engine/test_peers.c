/* Tests transfers between the host and the second device of a context, and between two devices, while the CUDA context
 * of the first device is current. Leaves are contiguous or strided, and the devices may be linked. Each try has new
 * random bytes, which the test writes and reads without the library. */
#include "promises.h"

enum { TRIES = 1000, ROWS = 512, COLUMNS = 7 };

/* Two devices: device 0, which is in `w`, and `other`. */
typedef struct two {
  place w;
  tdict_device other;
  raw_memory *raw; /* memory of `other` */
  uint64_t number; /* seed of the latest bytes */
} two;

static two two_over(place w, int32_t other) {
  two t = {.w = w, .other = {w.device.type, other}};
  int count = 0;
  assert_int_equal(w.d->ops->device_count(w.d, &count), 0);
  if (count <= other) {
    place_close(&t.w);
    td_skip("this machine has fewer than two GPUs");
  }
  assert_int_equal(w.d->ops->ctx_push(w.d, w.gpu->context), 0);
  t.raw = raw_open(w.c, t.other);
  return t;
}
static two two_open(void) {
  return two_over(td_device().type == TDICT_DEVICE_SIM ? place_sim(4, 0, 2) : place_open(4), 1);
}
static void two_close(two *t) {
  tdict_cu_context current = NULL;
  assert_int_equal(t->w.d->ops->ctx_pop(t->w.d, &current), 0);
  assert_ptr_equal(current, t->w.gpu->context); /* the same context as before */
  raw_close(t->raw);
  place_close(&t->w);
}
#define scoped_two TD_SCOPED(two_close, two)

static raw_memory *raw_at(const two *t, tdict_device device) {
  return tdict_device_equal(device, t->other) ? t->raw : t->w.raw;
}
static void put(two *t, const tdict_tensor *leaf) {
  scoped_bytes bytes = td_alloc(tdict_tensor_bytes(leaf));
  td_fill_random(bytes, tdict_tensor_bytes(leaf), ++t->number);
  if (tdict_tensor_device(leaf).type == TDICT_DEVICE_CPU)
    memcpy(leaf->data, bytes, tdict_tensor_bytes(leaf));
  else
    raw_write(raw_at(t, tdict_tensor_device(leaf)), leaf->data, bytes, tdict_tensor_bytes(leaf));
}
static void check(const two *t, const tdict_tensor *leaf) {
  size_t count = tdict_tensor_bytes(leaf), at = 0;
  scoped_bytes want = malloc(count), got = malloc(count);
  assert_non_null(want);
  assert_non_null(got);
  td_fill_random(want, count, t->number);
  if (tdict_tensor_device(leaf).type == TDICT_DEVICE_CPU)
    memcpy(got, leaf->data, count);
  else
    raw_read(raw_at(t, tdict_tensor_device(leaf)), got, leaf->data, count);
  bool same = memcmp(want, got, count) == 0;
  while (!same && want[at] == got[at]) at++;
  if (!same) fail_msg("try %d: wrong from byte %zu of %zu on", (int)t->number, at, count);
}

static tdict_tree *tree_of(tdict_tensor *leaf) {
  tdict_tree *td = new_tree();
  td_put(td, "n.x", leaf);
  return td;
}
/* Returns the options for try `i`, which cycle through all modes and several numbers of threads. */
static tdict_transfer_options options_of(int i) {
  static const int32_t counts[] = {-1, 0, 1, 4};
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = counts[i / 4 % 4], mode = i % 4);
  return o;
}

/* Moves new bytes from `from` to `to` TRIES times, and checks them. */
static void one_way(two *t, tdict_device from, tdict_device to) {
  const int64_t shape[] = {ROWS, COLUMNS};
  tdict_memory *pinned = t->w.pinned;
  for (int i = 0; i < TRIES; i++) {
    tdict_memory *memory = from.type != TDICT_DEVICE_CPU ? tdict_device_memory(t->w.c, from) : i % 2 ? pinned : NULL;
    scoped_tree src = tree_of(new_tensor(TDICT_F32, 2, shape, memory)), out = NULL;
    tdict_transfer_options o = options_of(i);
    o.pinned_result = to.type == TDICT_DEVICE_CPU && i % 2;
    put(t, td_leaf(src, "n.x"));
    if (i % 3)
      td_ok(tdict_to_device(t->w.c, src, to, &o, &out, err));
    else
      out = finish(move_async(&t->w, src, to, &o));
    assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, "n.x")), to));
    check(t, td_leaf(out, "n.x"));
  }
}

GPU_CASE(two_devices_host_to_second) {
  scoped_two t = two_open();
  one_way(&t, tdict_cpu(), t.other);
}
GPU_CASE(two_devices_second_to_host) {
  scoped_two t = two_open();
  one_way(&t, t.other, tdict_cpu());
}
GPU_CASE(two_devices_first_to_second) {
  scoped_two t = two_open();
  one_way(&t, t.w.device, t.other);
}
GPU_CASE(two_devices_second_to_first) {
  scoped_two t = two_open();
  one_way(&t, t.other, t.w.device);
}

/* Moves a leaf that needs several copies to the other device, and back into the existing leaf. */
GPU_CASE(two_devices_large_leaf) {
  scoped_two t = two_open();
  scoped_tree one = tree_of(new_bytes(((int64_t)33 << 20) + 13, t.w.memory)), back = NULL;
  put(&t, td_leaf(one, "n.x"));
  scoped_tree there = finish(move_async(&t.w, one, t.other, NULL));
  check(&t, td_leaf(there, "n.x"));
  put(&t, td_leaf(there, "n.x"));
  finish_copy(copy_async(&t.w, there, one, NULL));
  check(&t, td_leaf(one, "n.x"));
  back = moved(&t.w, one, tdict_cpu());
  check(&t, td_leaf(back, "n.x"));
}

/* Moves leaves with gaps between rows or with swapped dimensions from device to device. */
static void strided_between(two *t, tdict_device from, tdict_device to) {
  const int64_t shape[] = {ROWS, COLUMNS};
  for (int i = 0; i < 8; i++) {
    scoped_tensor whole = new_tensor(TDICT_I32, 2, shape, tdict_device_memory(t->w.c, from)), part = NULL;
    scoped_tree src = new_tree();
    put(t, whole);
    if (i % 2)
      td_ok(tdict_tensor_permute(whole, 2, (const int[]){1, 0}, &part, err));
    else
      td_ok(tdict_tensor_slice(whole, &(tdict_tensor_range){1, 2, 4, 1}, &part, err));
    td_ok(tdict_set(src, "n.x", part, err));
    scoped_tree out = finish(move_async(&t->w, src, to, NULL));
    const tdict_tensor *leaf = td_leaf(out, "n.x");
    TD_FREED int32_t *want = malloc(tdict_tensor_bytes(whole)), *got = malloc(tdict_tensor_bytes(leaf));
    assert_non_null(want);
    assert_non_null(got);
    td_fill_random(want, tdict_tensor_bytes(whole), t->number);
    raw_read(raw_at(t, to), got, leaf->data, tdict_tensor_bytes(leaf));
    for (int row = 0; row < ROWS; row++)
      for (int column = 0; column < (i % 2 ? COLUMNS : 4); column++)
        assert_int_equal(got[i % 2 ? column * ROWS + row : row * 4 + column],
                         want[row * COLUMNS + column + (i % 2 ? 0 : 2)]);
  }
}
GPU_CASE(two_devices_strided_leaf) {
  scoped_two t = two_open();
  strided_between(&t, t.w.device, t.other);
  strided_between(&t, t.other, t.w.device);
}

/* Devices 0 and 2 of the simulated driver are not linked, so driver copies between them fail. Transfers succeed. */
SIM_CASE(two_devices_without_a_link) {
  scoped_two t = two_over(place_sim(4, 0, 3), 2);
  int can = 1;
  assert_int_equal(t.w.d->ops->device_can_reach(t.w.d, 0, 2, &can), 0);
  assert_int_equal(can, 0);
  one_way(&t, t.w.device, t.other);
  one_way(&t, t.other, t.w.device);
  strided_between(&t, t.w.device, t.other);
}

/* A driver call that fails instead of copying between devices. */
static tdict_cu refuse_copy(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_context to, tdict_cu_context from,
                            tdict_cu_stream s) {
  (void)d, (void)rect, (void)to, (void)from, (void)s;
  return TDICT_CU_UNKNOWN;
}
GPU_CASE(two_devices_copy_that_fails) {
  scoped_two t = two_open();
  shim s;
  scoped_tree src = tree_of(new_bytes(1000, t.w.memory)), out = NULL;
  put(&t, td_leaf(src, "n.x"));
  shim_begin(&s, t.w.d);
  s.ops.copy_peer_async = refuse_copy;
  td_fails_at(TDICT_EDEVICE, "cuMemcpyPeerAsync", "n.x", tdict_to_device(t.w.c, src, t.other, NULL, &out, err));
  assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
  assert_null(out);
  shim_end(&s, t.w.d);
  out = moved(&t.w, src, t.other);
  check(&t, td_leaf(out, "n.x"));
}

static _Atomic(int) let_ins, let_in_contexts;
static const tdict_driver_ops *real_ops;
static tdict_cu refuse_let_in(tdict_driver *d, tdict_cu_pool pool, int ordinal) {
  (void)d, (void)pool, (void)ordinal;
  atomic_fetch_add(&let_ins, 1);
  return TDICT_CU_NOT_SUPPORTED;
}
static tdict_cu count_let_in(tdict_driver *d, tdict_cu_pool pool, int ordinal) {
  atomic_fetch_add(&let_ins, 1);
  return real_ops->pool_allow_peer(d, pool, ordinal);
}
static tdict_cu count_context(tdict_driver *d, tdict_cu_context peer) {
  atomic_fetch_add(&let_in_contexts, 1);
  return real_ops->ctx_allow_peer(d, peer);
}
static void let_in_by(tdict_cu (*entry)(tdict_driver *d, tdict_cu_pool pool, int ordinal)) {
  scoped_two t = two_open();
  shim s;
  int can = 0;
  assert_int_equal(t.w.d->ops->device_can_reach(t.w.d, 0, 1, &can), 0);
  shim_begin(&s, t.w.d);
  real_ops = s.real;
  s.ops.pool_allow_peer = entry;
  s.ops.ctx_allow_peer = count_context;
  atomic_store(&let_ins, 0);
  atomic_store(&let_in_contexts, 0);
  one_way(&t, t.w.device, t.other);
  assert_int_equal(atomic_load(&let_ins), can ? 2 : 0);
  assert_int_equal(atomic_load(&let_in_contexts), can ? 2 : 0);
  shim_end(&s, t.w.d);
}
/* Linked devices enable access to each other's pools and contexts only once. Copies succeed even if the driver refuses
 * this. */
GPU_CASE(two_devices_enable_peer_access_once) { let_in_by(count_let_in); }
GPU_CASE(two_devices_without_peer_access) { let_in_by(refuse_let_in); }
