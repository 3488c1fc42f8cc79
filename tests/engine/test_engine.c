/* Tests the order of transfers, and their order relative to work on the program's streams. The simulated device is
 * stopped during the calls, so that the tests can count the queued operations. */
#include <stdatomic.h>

#include "support/threads.h"
#include "trees.h"
#include "wrap.h"

enum { BYTES = 30000 };

/* Makes a tree whose only leaf fits into a slot, so that each transfer is one copy on the device. */
static tdict_tree *one_leaf(tdict_memory *memory) { return bytes_tree("x", BYTES, memory); }
static tdict_tree *one_there(const place *w) {
  tdict_tree *host = one_leaf(NULL), *there = to_device(w, host, w->device);
  tdict_release(host);
  return there;
}
static tdict_tree *plain_copy(const place *w, const tdict_tree *td) {
  tdict_tree *copy = new_tree();
  const tdict_tensor *t = td_leaf(td, "x");
  unsigned char *bytes = read_elements(w, t);
  tdict_tensor *clone = random_tensor(TDICT_U8, SHAPE(BYTES), NULL);
  memcpy(tdict_tensor_data(clone), bytes, BYTES);
  free(bytes);
  td_put(copy, "x", clone);
  return copy;
}
static void end(tdict_future *f) {
  td_ok(tdict_future_wait(f, NULL, err));
  tdict_future_release(f);
}

/* Copies trees[0] to trees[1], then trees[2] to trees[3]. One tree is in both copies, so the second copy must begin
 * after the first has ended. */
static void check_second_waits(const place *w, tdict_tree *const trees[4]) {
  scoped_tree want_first = plain_copy(w, trees[0]), want_second = NULL;
  want_second = trees[2] == trees[1] ? tdict_retain(want_first) : plain_copy(w, trees[2]);
  td_ok(tdict_sim_hold(w->c, err));
  tdict_future *first = copy_async(w, trees[0], trees[1], NULL), *second = copy_async(w, trees[2], trees[3], NULL);
  expect_pending(1);
  assert_int_equal(tdict_future_state(second), TDICT_FUTURE_PENDING);
  td_ok(tdict_sim_step(w->c, 1, err));
  td_ok(tdict_future_wait(first, NULL, err));
  expect_pending(1);
  assert_int_equal(tdict_future_state(second), TDICT_FUTURE_PENDING);
  if (trees[1] != trees[3]) check_tree(w, want_first, trees[1]);
  td_ok(tdict_sim_resume(w->c, err));
  end(second);
  tdict_future_release(first);
  check_tree(w, want_second, trees[3]);
}

static void read_after_write(const place *w, tdict_tree *a, tdict_tree *x, tdict_tree *b) {
  check_second_waits(w, (tdict_tree *[]){a, x, x, b});
  td_release(a, x, b);
}
SIM_CASE(engine_read_after_write) {
  scoped_place w = open_wrapped(NULL);
  read_after_write(&w, one_leaf(w.pinned), one_there(&w), one_leaf(w.pinned));
  read_after_write(&w, one_there(&w), one_leaf(w.pinned), one_there(&w));
  read_after_write(&w, one_there(&w), one_there(&w), one_there(&w));
  read_after_write(&w, one_leaf(NULL), one_there(&w), one_leaf(NULL));
}

static void write_after_read(const place *w, tdict_tree *x, tdict_tree *a, tdict_tree *b) {
  check_second_waits(w, (tdict_tree *[]){x, a, b, x});
  td_release(x, a, b);
}
SIM_CASE(engine_write_after_read) {
  scoped_place w = open_wrapped(NULL);
  write_after_read(&w, one_leaf(w.pinned), one_there(&w), one_there(&w));
  write_after_read(&w, one_there(&w), one_leaf(w.pinned), one_leaf(w.pinned));
  write_after_read(&w, one_there(&w), one_there(&w), one_leaf(w.pinned));
}

static void write_after_write(const place *w, tdict_tree *a, tdict_tree *b, tdict_tree *x) {
  check_second_waits(w, (tdict_tree *[]){a, x, b, x});
  td_release(a, b, x);
}
SIM_CASE(engine_write_after_write) {
  scoped_place w = open_wrapped(NULL);
  write_after_write(&w, one_leaf(w.pinned), one_leaf(w.pinned), one_there(&w));
  write_after_write(&w, one_there(&w), one_there(&w), one_leaf(w.pinned));
  write_after_write(&w, one_there(&w), one_leaf(w.pinned), one_there(&w));
}

SIM_CASE(engine_readers_do_not_wait_for_each_other) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree x = one_leaf(w.pinned), a = one_there(&w), b = one_there(&w), out = NULL;
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *first = copy_async(&w, x, a, NULL), *second = copy_async(&w, x, b, NULL);
  scoped_future third = move_async(&w, x, w.device, NULL);
  expect_pending(3);
  td_ok(tdict_sim_resume(w.c, err));
  end(first);
  end(second);
  td_ok(tdict_future_wait(third, &out, err));
  check_tree(&w, x, a);
  check_tree(&w, x, b);
  check_tree(&w, x, out);
}

/* Each transfer waits for the previous one, or all wait for the first, although the test has released their futures. */
SIM_CASE(engine_chains_and_fans) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *trees[9], *want;
  for (int i = 0; i < 9; i++) trees[i] = i % 2 ? one_there(&w) : one_leaf(i % 4 ? NULL : w.pinned);
  want = plain_copy(&w, trees[0]);
  td_ok(tdict_sim_hold(w.c, err));
  for (int i = 0; i < 8; i++) tdict_future_release(copy_async(&w, trees[i], trees[i + 1], NULL));
  expect_pending(1);
  td_ok(tdict_sim_resume(w.c, err));
  assert_memory_equal(tdict_const_data(trees[8], "x"), tdict_const_data(want, "x"), BYTES); /* waits for all copies */
  check_tree(&w, want, trees[8]);
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future_release(copy_async(&w, trees[0], trees[1], NULL));
  for (int k = 0; k < 20; k++)
    for (int i = 2; i < 9; i++) tdict_future_release(copy_async(&w, trees[1], trees[i], NULL));
  expect_pending(1);
  td_ok(tdict_sim_resume(w.c, err));
  for (int i = 2; i < 9; i++) {
    tdict_tree *back = to_device(&w, trees[i], tdict_cpu()); /* waits for all copies into this tree */
    if (!tdict_tensor_const_data(td_leaf(back, "x"))) fail();
    check_and_release(&w, want, back);
  }
  for (int i = 0; i < 9; i++) tdict_release(trees[i]);
  tdict_release(want);
}

/* A thread that requests a host pointer. The request must wait for transfers. */
typedef struct asker {
  pthread_t thread;
  tdict_tensor *t;
  bool writes;
  _Atomic(int) stage;
} asker;
static void *ask(void *argument) {
  asker *a = argument;
  atomic_store(&a->stage, 1);
  if (a->writes)
    tdict_tensor_data(a->t);
  else
    (void)tdict_tensor_const_data(a->t);
  atomic_store(&a->stage, 2);
  return NULL;
}
static void start_asking(asker *a, tdict_tensor *t, bool writes) {
  a->t = t;
  a->writes = writes;
  atomic_init(&a->stage, 0);
  a->thread = td_start(ask, a);
  while (atomic_load(&a->stage) == 0) usleep(100);
  td_rest();
}

SIM_CASE(transfer_holds_back_host_pointers) {
  scoped_place w = open_wrapped(NULL);
  asker reader, writer;
  scoped_tree x = one_leaf(w.pinned), there = one_there(&w);
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *f = copy_async(&w, x, there, NULL);
  start_asking(&writer, td_leaf(x, "x"), true);
  start_asking(&reader, td_leaf(x, "x"), false);
  assert_int_equal(atomic_load(&writer.stage), 1);
  for (int i = 0; i < 20000 && atomic_load(&reader.stage) < 2; i++) usleep(1000);
  assert_int_equal(atomic_load(&reader.stage), 2);         /* readers do not wait for readers */
  assert_non_null(tdict_tensor_data(td_leaf(there, "x"))); /* device addresses never wait */
  td_ok(tdict_sim_resume(w.c, err));
  pthread_join(writer.thread, NULL);
  pthread_join(reader.thread, NULL);
  end(f);
  td_ok(tdict_sim_hold(w.c, err));
  f = copy_async(&w, there, x, NULL);
  start_asking(&writer, td_leaf(x, "x"), true);
  start_asking(&reader, td_leaf(x, "x"), false);
  assert_int_equal(atomic_load(&writer.stage), 1);
  assert_int_equal(atomic_load(&reader.stage), 1);
  td_ok(tdict_sim_resume(w.c, err));
  pthread_join(writer.thread, NULL);
  pthread_join(reader.thread, NULL);
  end(f);
}

/* A kernel of the program that waits for `go`, then writes. */
typedef struct kernel {
  tdict_stream stream;
  void *address;
  unsigned char byte;
  _Atomic(bool) go, done;
} kernel;
static void run_kernel(void *user) {
  kernel *k = user;
  while (!atomic_load(&k->go)) usleep(100);
  memset(tdict_sim_host_pointer(k->stream, k->address), k->byte, BYTES);
  atomic_store(&k->done, true);
}
static void launch_kernel(kernel *k, tdict_stream stream, const tdict_tree *td, unsigned char byte) {
  *k = (kernel){.stream = stream, .address = td_leaf(td, "x")->data, .byte = byte};
  td_ok(tdict_sim_launch(stream, run_kernel, k, err));
}
static void check_all(const place *w, const tdict_tree *td, unsigned char byte) {
  scoped_bytes bytes = read_elements(w, td_leaf(td, "x"));
  for (int i = 0; i < BYTES; i++)
    if (bytes[i] != byte) fail_msg("byte %d is 0x%02x, wanted 0x%02x", i, bytes[i], byte);
}

/* Checks that transfers run after the work on `stream`, which is `after`, or a blocking stream if `after` is legacy. */
static void check_behind(const place *w, tdict_stream stream, tdict_stream after) {
  kernel k;
  scoped_tree there = one_there(w), other = one_there(w), host = one_leaf(w->pinned), out = NULL, fresh = NULL;
  scoped_tree want = plain_copy(w, host);
  tdict_transfer_options o = td_with(tdict_transfer_options, after = after);
  tdict_future *f = NULL, *g = NULL;
  launch_kernel(&k, stream, there, 0x11);
  td_ok(tdict_to_device_async(w->c, there, tdict_cpu(), &o, &f, err)); /* reads what the kernel writes */
  td_ok(tdict_transfer_into_async(w->c, other, host, &o, &g, err));
  td_ok(tdict_to_device(w->c, host, w->device, NULL, &fresh, err)); /* from the host to new memory, so without a wait */
  check_tree(w, want, fresh);
  td_rest();
  td_fails(TDICT_ETIMEDOUT, "", tdict_future_wait_for(f, 1000000, &out, err));
  assert_false(tdict_future_is_ready(g));
  assert_false(atomic_load(&k.done));
  atomic_store(&k.go, true);
  td_ok(tdict_future_wait(f, &out, err));
  check_all(w, out, 0x11);
  end(g);
  tdict_future_release(f);
  check_tree(w, want, other);
  /* the kernel and the transfer write to the same tree */
  launch_kernel(&k, stream, other, 0x22);
  td_ok(tdict_transfer_into_async(w->c, other, host, &o, &f, err));
  td_rest();
  atomic_store(&k.go, true);
  end(f);
  check_tree(w, want, other);
}
SIM_CASE(transfer_after_a_stream) {
  scoped_place w = open_wrapped(NULL);
  tdict_stream s, t;
  td_ok(tdict_stream_create(w.c, w.device, &s, err));
  td_ok(tdict_stream_create(w.c, w.device, &t, err));
  check_behind(&w, s, s);
  /* a transfer with `after` waits for no other stream, not even the legacy stream */
  kernel k;
  tdict_tree *there = one_there(&w), *out = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, after = t);
  launch_kernel(&k, s, there, 0x33);
  tdict_tree *want = plain_copy(&w, there);
  td_ok(tdict_to_device(w.c, there, tdict_cpu(), &o, &out, err));
  check_tree(&w, want, out);
  atomic_store(&k.go, true);
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(w.c, t);
  while (!atomic_load(&k.done)) usleep(100);
  td_release(there, out, want);
  /* a transfer from host memory to new device memory waits for the stream `after` */
  td_ok(tdict_stream_create(w.c, w.device, &s, err));
  scoped_tree host = one_leaf(NULL), busy = one_there(&w);
  o.after = s;
  launch_kernel(&k, s, busy, 0x44);
  tdict_future *f = move_async(&w, host, w.device, &o);
  td_rest();
  td_fails(TDICT_ETIMEDOUT, "", tdict_future_wait_for(f, 1000000, NULL, err));
  atomic_store(&k.go, true);
  end(f);
  tdict_stream_destroy(w.c, s);
}
SIM_CASE(transfer_follows_legacy_stream) {
  scoped_place w = open_wrapped(NULL);
  tdict_driver *d = wrap.driver;
  tdict_cu_context context, popped;
  tdict_cu_stream blocking = NULL;
  assert_int_equal(d->ops->ctx_retain(d, 0, &context), TDICT_CU_SUCCESS);
  assert_int_equal(d->ops->ctx_push(d, context), TDICT_CU_SUCCESS);
  assert_int_equal(d->ops->stream_create(d, &blocking, TDICT_CU_STREAM_DEFAULT), TDICT_CU_SUCCESS);
  const tdict_stream s = {w.device, blocking}, legacy = {w.device, NULL};
  check_behind(&w, s, tdict_no_stream());
  check_behind(&w, s, legacy);
  assert_int_equal(d->ops->stream_destroy(d, blocking), TDICT_CU_SUCCESS);
  assert_int_equal(d->ops->ctx_pop(d, &popped), TDICT_CU_SUCCESS);
  assert_int_equal(d->ops->ctx_release(d, 0), TDICT_CU_SUCCESS);
}
