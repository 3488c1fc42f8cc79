/* Tests tdict_record_stream(): the library frees, reuses or overwrites memory only after the work that the program has
 * queued on a stream has ended. Kernels wait at a gate, so that every access that is too early is detected. */
#include "engine/promises.h"
#include "support/threads.h"

/* A kernel on its own stream, which reads a leaf of a tree after its gate opens. */
typedef struct reader {
  gate gate;
  kernel k;
  tdict_stream s;
} reader;
static void read_later(const place *w, reader *r, const tdict_tree *td) {
  memset(r, 0, sizeof *r);
  r->s = new_stream(w);
  kernel_launch(&r->k, r->s, td_leaf(td, "a"), &r->gate, NULL);
  gate_await(&r->gate, 1);
}
/* Opens the gate, and checks that the kernel reads the bytes of this number. Destroys the stream. */
static void check_read(const place *w, reader *r, uint64_t number) {
  gate_open(&r->gate);
  assert_true(kernel_saw(&r->k, number_of_leaf(number, 0)));
  sync_stream(w, r->s);
  tdict_stream_destroy(w->c, r->s);
  kernel_end(&r->k);
}
static tdict_tree *arena(const place *w, uint64_t number) {
  tdict_tree *src = numbered_tree(w, NULL, number), *out = moved(w, src, w->device);
  tdict_release(src);
  return out;
}

SIM_CASE(record_stream_holds_bytes) {
  scoped_place w = place_open(2);
  /* without a recorded use, the next result of this size reuses the memory, so the checks below can fail */
  tdict_tree *out = arena(&w, 1), *next;
  void *place_of = arena_of(out);
  tdict_release(out);
  out = arena(&w, 2);
  assert_ptr_equal(arena_of(out), place_of);
  reader r;
  read_later(&w, &r, out);
  td_ok(tdict_record_stream(out, r.s, err));
  tdict_release(out);
  next = arena(&w, 3); /* does not wait for the kernel, and gets different memory */
  assert_ptr_not_equal(arena_of(next), place_of);
  check_tree_number(&w, next, 3);
  check_read(&w, &r, 2);
  tdict_release(next);
  /* the memory is freed once the kernel has ended */
  tdict_context_trim(w.c, w.device, 0);
  tdict_device_counts counts = td_device_counts(w.c, w.device);
  assert_int_equal(counts.device_bytes, 0);
  tdict_driver_sim_count sim;
  tdict_driver_sim_counts(w.d, 0, &sim);
  assert_int_equal(sim.num_allocations, 0);
}

/* Two streams read a tree. The memory is reused only after both reads have ended. */
SIM_CASE(record_stream_of_many_streams) {
  scoped_place w = place_sim(2, 0, 2);
  tdict_tree *out = arena(&w, 4), *next[3];
  void *place_of = arena_of(out);
  reader r, other;
  read_later(&w, &r, out);
  memset(&other, 0, sizeof other);
  td_ok(tdict_stream_create(w.c, w.device, &other.s, err));
  /* waits for the first kernel: the simulated device runs one kernel at a time */
  kernel_launch(&other.k, other.s, td_leaf(out, "a"), &other.gate, NULL);
  for (int i = 0; i < 20; i++) { /* uses that are complete are dropped */
    TD_STREAM(idle, w.c, w.device);
    td_ok(tdict_record_stream(out, idle, err));
  }
  td_ok(tdict_record_stream(out, other.s, err));
  td_ok(tdict_record_stream(out, r.s, err));
  tdict_release(out);
  next[0] = arena(&w, 5);
  check_read(&w, &r, 4);
  next[1] = arena(&w, 6);
  assert_ptr_not_equal(arena_of(next[0]), place_of);
  assert_ptr_not_equal(arena_of(next[1]), place_of);
  gate_await(&other.gate, 1);
  check_read(&w, &other, 4);
  td_release(next[0], next[1]);
}

SIM_CASE(record_stream_holds_an_overwrite) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  reader r;
  read_later(&w, &r, dst);
  td_ok(tdict_record_stream(dst, r.s, err));
  tdict_transfer_options o = threads(2);
  TD_STREAM(idle, w.c, w.device);
  o.after = idle; /* not the default stream, so the copy waits only for the recorded use */
  tdict_future *f = copy_async(&w, src, dst, &o);
  check_pending(f);
  check_tree_number(&w, dst, 7);
  scoped_tree seen = finish(move_async(&w, src, w.device, &o)); /* other transfers do not wait */
  check_tree_number(&w, seen, 8);
  check_read(&w, &r, 7);
  finish_copy(f);
  check_tree_number(&w, dst, 8);
}

enum { WIDE = 8, WIDE_BYTES = 512 << 10, WIDE_STAGING = 1 << 20 };
static const char *const wide_names[WIDE] = {"a", "b", "c", "d", "e", "f", "g", "h"};
/* Makes a tree that needs several chunks, so that two workers write it. */
static tdict_tree *wide_tree(const place *w, tdict_memory *memory, uint64_t number) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < WIDE; i++) {
    td_put(td, wide_names[i], new_bytes(WIDE_BYTES, memory));
    put_number(w, td_leaf(td, wide_names[i]), number_of_leaf(number, i));
  }
  return td;
}
static void check_wide(const place *w, const tdict_tree *td, uint64_t number) {
  for (int i = 0; i < WIDE; i++)
    if (!has_number(w, td_leaf(td, wide_names[i]), number_of_leaf(number, i)))
      fail_msg("leaf '%s' does not have the bytes of number %d", wide_names[i], (int)number);
}

/* Two workers overwrite a tree. Each waits for both the recorded work and the stream `after`, in any order. */
SIM_CASE(record_stream_and_after_hold_each_worker) {
  tdict_context_options c = place_options(2);
  c.staging_bytes = WIDE_STAGING; /* one worker cannot queue all copies */
  scoped_place w = place_over(&c);
  for (int recorded = 0; recorded < 2; recorded++) {
    scoped_tree dst = wide_tree(&w, w.memory, 1), src = wide_tree(&w, NULL, 2);
    reader r[2];
    read_later(&w, &r[0], dst);
    memset(&r[1], 0, sizeof r[1]);
    r[1].s = new_stream(&w);
    kernel_launch(&r[1].k, r[1].s, td_leaf(dst, "a"), &r[1].gate, NULL); /* runs after the first kernel */
    td_ok(tdict_record_stream(dst, r[recorded].s, err));
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 2, after = r[!recorded].s);
    tdict_future *f = copy_async(&w, src, dst, &o);
    check_pending(f);
    check_wide(&w, dst, 1);
    check_read(&w, &r[0], 1);
    gate_await(&r[1].gate, 1);
    check_pending(f);
    check_wide(&w, dst, 1);
    check_read(&w, &r[1], 1);
    td_ok(tdict_future_wait(f, NULL, err));
    tdict_transfer_stats stats = td_filled(tdict_transfer_stats, tdict_future_get_stats(f, &made, err));
    assert_int_equal(stats.num_threads, 2);
    tdict_future_release(f);
    check_wide(&w, dst, 2);
  }
}

static atomic_int waits_before_failure;
static const tdict_driver_ops *real_ops;
static tdict_cu fail_wait(tdict_driver *d, tdict_cu_stream s, tdict_cu_event event) {
  const bool fails = atomic_fetch_sub(&waits_before_failure, 1) == 0;
  return fails ? TDICT_CU_UNKNOWN : real_ops->stream_wait_event(d, s, event);
}

/* If the driver cannot make the stream of the copies wait for the kernel, the transfer fails and overwrites nothing. */
SIM_CASE(record_stream_reports_failed_waits) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 7), src = numbered_tree(&w, NULL, 8);
  reader r;
  shim x;
  read_later(&w, &r, dst);
  td_ok(tdict_record_stream(dst, r.s, err));
  tdict_transfer_options o = threads(1);
  TD_STREAM(idle, w.c, w.device);
  o.after = idle;
  real_ops = w.d->ops;
  shim_begin(&x, w.d);
  x.ops.stream_wait_event = fail_wait;
  atomic_store(&waits_before_failure, 1); /* the first wait, which succeeds, is for the stream `idle` */
  tdict_future *f = copy_async(&w, src, dst, &o);
  td_fails(TDICT_EDEVICE, "cuStreamWaitEvent", tdict_future_wait(f, NULL, err));
  shim_end(&x, w.d);
  tdict_future_release(f);
  check_read(&w, &r, 7);
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  check_tree_number(&w, dst, 8);
}

/* A thread that asks an accessor for pinned memory to write to. It must wait while a kernel reads the memory. */
typedef struct writer {
  tdict_tree *td;
  atomic_bool started, has;
} writer;
static void *want_to_write(void *user) {
  writer *w = user;
  atomic_store(&w->started, true);
  void *data = tdict_data(w->td, "a");
  atomic_store(&w->has, true);
  return data;
}
SIM_CASE(record_stream_holds_pinned_memory) {
  scoped_place w = place_open(2);
  tdict_tree *plain = numbered_tree(&w, NULL, 9), *pinned = NULL, *next = NULL, *dev = arena(&w, 10);
  td_ok(tdict_pin_memory(w.c, plain, NULL, &pinned, err));
  void *place_of = arena_of(pinned);
  tdict_release(pinned);
  td_ok(tdict_pin_memory(w.c, plain, NULL, &pinned, err));
  assert_ptr_equal(arena_of(pinned), place_of); /* without a recorded use, the pool reuses the memory */
  reader r;
  read_later(&w, &r, pinned);
  td_ok(tdict_record_stream(pinned, r.s, err));
  tdict_future *f = copy_async(&w, dev, pinned, NULL); /* a transfer overwrites the memory */
  check_pending(f);
  check_tree_number(&w, pinned, 9);
  check_read(&w, &r, 9);
  finish_copy(f);
  check_tree_number(&w, pinned, 10);
  /* a thread of the host overwrites the memory */
  tdict_tree *other = numbered_tree(&w, NULL, 11);
  read_later(&w, &r, pinned);
  td_ok(tdict_record_stream(pinned, r.s, err));
  f = copy_async(&w, other, pinned, NULL);
  check_pending(f);
  check_read(&w, &r, 10);
  finish_copy(f);
  check_tree_number(&w, pinned, 11);
  tdict_release(other);
  /* an accessor for writing waits, but an accessor for reading does not */
  read_later(&w, &r, pinned);
  td_ok(tdict_record_stream(pinned, r.s, err));
  assert_ptr_equal(tdict_const_data(pinned, "a"), place_of);
  writer user = {.td = pinned};
  pthread_t thread = td_start(want_to_write, &user);
  assert_true(wait_flag(&user.started));
  td_rest();
  assert_false(atomic_load(&user.has));
  check_read(&w, &r, 11);
  void *data = NULL;
  assert_int_equal(pthread_join(thread, &data), 0);
  assert_ptr_equal(data, place_of);
  /* released */
  read_later(&w, &r, pinned);
  td_ok(tdict_record_stream(pinned, r.s, err));
  tdict_release(pinned);
  td_ok(tdict_pin_memory(w.c, plain, NULL, &next, err));
  assert_ptr_not_equal(arena_of(next), place_of);
  check_read(&w, &r, 11);
  td_release(next);
  tdict_release(td_made(tree, tdict_pin_memory(w.c, plain, NULL, &made, err)));
  td_release(plain, dev);
}

static void count_release(void *user) { atomic_fetch_add((atomic_int *)user, 1); }
static void *release_tree(void *user) {
  tdict_release(user);
  return NULL;
}
/* The tree also holds memory of the program, which is released only after the work on the recorded stream has ended. */
SIM_CASE(record_stream_holds_memory_of_the_program) {
  scoped_place w = place_open(2);
  tdict_tree *dev = arena(&w, 12), *both = new_tree();
  tdict_tensor *own = NULL;
  atomic_int num_released = 0;
  float bytes[4] = {0};
  tdict_tensor_desc view = desc_of(bytes, TDICT_F32, (const int64_t[]){4});
  td_ok(tdict_tensor_from_data(&view, count_release, &num_released, &own, err));
  td_put(both, "own", own);
  td_ok(tdict_set_tree(both, "dev", dev, err));
  reader r;
  read_later(&w, &r, dev);
  tdict_release(dev);
  td_ok(tdict_record_stream(both, r.s, err));
  pthread_t thread = td_start(release_tree, both);
  td_rest();
  assert_int_equal(num_released, 0);
  check_read(&w, &r, 12);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(num_released, 1);
}

/* Checks recorded uses with driver copies, also on GPUs: the stream is busy for a while, then reads the tree. */
GPU_CASE(record_stream_holds_bytes_under_copies) {
  scoped_place w = place_open(2);
  bool sim = w.device.type == TDICT_DEVICE_SIM;
  const int64_t bytes = sim ? 8 << 20 : 256 << 20;
  scoped_tensor big = new_bytes(bytes, w.memory), sink = new_bytes(700 * 100, w.memory);
  TD_STREAM(s, w.c, w.device);
  for (int round = 0; round < 5; round++) {
    tdict_tree *out = arena(&w, 20 + (uint64_t)round);
    tdict_gpu_scope scope;
    td_ok(tdict_gpu_enter(w.gpu, &scope, err));
    for (int i = 0; i < (sim ? 8 : 60); i++)
      assert_int_equal(
          w.d->ops->copy_d2d_async(w.d, big->data, (char *)big->data + bytes / 2, (size_t)bytes / 2, s.handle), 0);
    assert_int_equal(w.d->ops->copy_d2d_async(w.d, sink->data, td_leaf(out, "a")->data, 700 * 100, s.handle), 0);
    tdict_gpu_leave(w.gpu, &scope);
    td_ok(tdict_record_stream(out, s, err));
    tdict_tree *src = numbered_tree(&w, NULL, 99);
    if (round % 2) {
      tdict_transfer_options o = threads(-1);
      tdict_stream idle = new_stream(&w);
      o.after = idle;
      td_ok(tdict_transfer_into(w.c, out, src, &o, err)); /* waits for the stream before it overwrites the tree */
      tdict_stream_destroy(w.c, idle);
      tdict_release(out);
    } else {
      tdict_release(out);
      out = moved(&w, src, w.device);
      tdict_release(out);
    }
    tdict_release(src);
    sync_stream(&w, s);
    assert_true(has_number(&w, sink, number_of_leaf(20 + (uint64_t)round, 0)));
  }
}

GPU_CASE(record_stream_refuses) {
  scoped_place w = place_open(2);
  scoped_tree plain = numbered_tree(&w, NULL, 30), dev = moved(&w, plain, w.device), empty = new_tree();
  TD_STREAM(s, w.c, w.device);
  const tdict_stream host = {tdict_cpu(), NULL}, other = {{w.device.type, w.device.index + 1}, s.handle},
                     foreign = {tdict_device_equal(w.device, tdict_sim(0)) ? tdict_cuda(0) : tdict_sim(0), s.handle};
  td_fails(TDICT_EINVAL, "NULL", tdict_record_stream(NULL, s, err));
  td_fails(TDICT_EWRONGDEVICE, "", tdict_record_stream(plain, s, err)); /* this tree has no memory on the device */
  td_fails(TDICT_EWRONGDEVICE, "", tdict_record_stream(empty, s, err));
  td_fails(TDICT_EWRONGDEVICE, "cpu", tdict_record_stream(dev, host, err));
  td_fails(TDICT_EWRONGDEVICE, "", tdict_record_stream(dev, other, err));
  td_fails(TDICT_EWRONGDEVICE, "", tdict_record_stream(dev, foreign, err));
  td_ok(tdict_record_stream(dev, s, err));
  td_ok(tdict_record_stream(dev, (tdict_stream){w.device, NULL}, err)); /* the legacy stream */
}

/* A stream may be destroyed before the release of a tree in which it is recorded. */
SIM_CASE(record_stream_outlives_the_stream) {
  scoped_place w = place_open(2);
  scoped_tree out = arena(&w, 40);
  reader r;
  read_later(&w, &r, out);
  td_ok(tdict_record_stream(out, r.s, err));
  check_read(&w, &r, 40); /* destroys the stream */
  tdict_release(out);
  out = arena(&w, 41);
  check_tree_number(&w, out, 41);
}
