/* Tests tdict_sim_hold(), tdict_sim_step(), tdict_sim_resume() and tdict_sim_launch(). */
#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"

static tdict_context *open_context(bool held) {
  tdict_context_options o = td_with(tdict_context_options, device = tdict_sim(0));
  o.sim = td_options(tdict_sim_options, held = held);
  o.num_threads = 1;
  return td_made(context, tdict_context_create(&o, &made, err));
}

typedef struct call {
  atomic_int *next;
  int order;
} call;
static void note(void *user) {
  call *c = user;
  c->order = atomic_load(c->next); /* stored first: a thread that sees the new count also sees the order */
  atomic_fetch_add(c->next, 1);
}

static void launch(tdict_stream s, call *c, atomic_int *next) {
  *c = (call){.next = next, .order = -1};
  td_ok(tdict_sim_launch(s, note, c, err));
}

static void wait_for(atomic_int *value, int wanted) {
  for (int i = 0; i < 5000 && atomic_load(value) < wanted; i++) usleep(1000);
  assert_int_equal(atomic_load(value), wanted);
}

CASE(sim_hold_and_step) {
  scoped_context c = open_context(false);
  atomic_int next;
  call calls[4];
  atomic_init(&next, 0);
  TD_STREAM(s, c, tdict_sim(0));
  td_ok(tdict_sim_hold(c, err));
  for (int i = 0; i < 4; i++) launch(s, &calls[i], &next);
  td_rest();
  assert_int_equal(atomic_load(&next), 0);
  td_ok(tdict_sim_step(c, 1, err));
  assert_int_equal(atomic_load(&next), 1);
  td_ok(tdict_sim_step(c, 2, err));
  assert_int_equal(atomic_load(&next), 3);
  td_rest();
  assert_int_equal(atomic_load(&next), 3);
  td_ok(tdict_sim_resume(c, err));
  wait_for(&next, 4);
  td_ok(tdict_sim_hold(c, err));
  td_ok(tdict_sim_step(c, 5, err)); /* nothing is queued, so no operation runs */
  td_ok(tdict_sim_resume(c, err));
}

CASE(sim_option_held) {
  scoped_context c = open_context(true);
  atomic_int next;
  call first;
  atomic_init(&next, 0);
  TD_STREAM(s, c, tdict_sim(0));
  launch(s, &first, &next);
  td_rest();
  assert_int_equal(atomic_load(&next), 0);
  td_ok(tdict_sim_resume(c, err));
  wait_for(&next, 1);
}

CASE(sim_control_refuses) {
  scoped_context c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  td_fails(TDICT_ENODEVICE, "no simulated device", tdict_sim_hold(c, err));
  td_fails(TDICT_ENODEVICE, "no simulated device", tdict_sim_step(c, 1, err));
  td_fails(TDICT_ENODEVICE, "no simulated device", tdict_sim_resume(c, err));
  tdict_context_destroy(c);
  c = open_context(false);
  td_fails(TDICT_EINVAL, "held", tdict_sim_step(c, 1, err));
  td_ok(tdict_sim_hold(c, err));
  td_fails(TDICT_EINVAL, "-1", tdict_sim_step(c, -1, err));
  td_ok(tdict_sim_resume(c, err));
}

/* A function that acts as a kernel: it adds one to each byte and records its position in the order of execution. */
typedef struct kernel {
  tdict_stream stream;
  void *data;
  size_t bytes;
  atomic_int *next;
  int order;
} kernel;
static void add_one(void *user) {
  kernel *k = user;
  unsigned char *bytes = tdict_sim_host_pointer(k->stream, k->data);
  for (size_t i = 0; i < k->bytes; i++) bytes[i]++;
  k->order = atomic_load(k->next);
  atomic_fetch_add(k->next, 1);
}

CASE(sim_launch_in_order) {
  enum { BYTES = 50000 };
  scoped_context c = open_context(false);
  tdict_memory *memory = tdict_device_memory(c, tdict_sim(0));
  tdict_tensor *host = NULL, *dev = NULL, *back = NULL;
  int64_t shape[1] = {BYTES};
  atomic_int next;
  kernel kernels[3];
  atomic_init(&next, 0);
  TD_STREAM(s, c, tdict_sim(0));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, shape, NULL, &host, err));
  td_fill_random(tdict_tensor_data(host), BYTES, 1);
  td_ok(tdict_tensor_clone(host, memory, &dev, err));
  for (int i = 0; i < 3; i++) {
    kernels[i] = (kernel){.stream = s, .data = tdict_tensor_data(dev), .bytes = BYTES, .next = &next, .order = -1};
    td_ok(tdict_sim_launch(s, add_one, &kernels[i], err));
  }
  wait_for(&next, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(kernels[i].order, i);
  td_ok(tdict_tensor_clone(dev, NULL, &back, err));
  const unsigned char *before = tdict_tensor_const_data(host), *after = tdict_tensor_const_data(back);
  for (size_t i = 0; i < BYTES; i++) assert_int_equal(after[i], (unsigned char)(before[i] + 3));
  assert_null(tdict_sim_host_pointer(s, before));
  assert_null(tdict_sim_host_pointer(s, NULL));
  assert_null(tdict_sim_host_pointer((tdict_stream){tdict_cpu(), NULL}, tdict_tensor_data(dev)));
  td_release(host, dev, back);
}

CASE(sim_launch_refuses) {
  tdict_context *c = open_context(false);
  tdict_stream s;
  atomic_int next;
  uint64_t other[64] = {0};
  call never = {.next = &next, .order = -1};
  atomic_init(&next, 0);
  td_ok(tdict_stream_create(c, tdict_sim(0), &s, err));
  td_fails(TDICT_EINVAL, "stream", tdict_sim_launch((tdict_stream){tdict_cpu(), s.handle}, note, &never, err));
  td_fails(TDICT_EINVAL, "stream", tdict_sim_launch((tdict_stream){tdict_cuda(0), s.handle}, note, &never, err));
  td_fails(TDICT_EINVAL, "stream", tdict_sim_launch((tdict_stream){tdict_sim(1), s.handle}, note, &never, err));
  td_fails(TDICT_EINVAL, "stream", tdict_sim_launch((tdict_stream){tdict_sim(0), NULL}, note, &never, err));
  td_fails(TDICT_EINVAL, "stream", tdict_sim_launch((tdict_stream){tdict_sim(0), other}, note, &never, err));
  td_fails(TDICT_EINVAL, "function", tdict_sim_launch(s, NULL, &never, err));
  tdict_stream_destroy(c, s);
  tdict_context_destroy(c);
  assert_int_equal(atomic_load(&next), 0);
}
