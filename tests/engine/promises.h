/* Helpers for tests of what transfers guarantee: trees whose bytes are computed from a number, gates that block a
 * function until the test opens them, kernels of the simulated device, and a shim over the driver's table. The caller
 * releases the objects that these functions return. Thread rule: only the main thread, except where noted. */
#ifndef TDICT_TESTS_ENGINE_PROMISES_H
#define TDICT_TESTS_ENGINE_PROMISES_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "device/sim/driver.h"
#include "place.h"
#include "support/shim.h"
#include "support/test.h"

enum { PROMISE_STAGING = 8 << 20, PROMISE_POISON = 0xA5, PROMISE_LONG_MS = 20000 };

static inline tdict_context_options place_options(int32_t num_threads) {
  return td_with(tdict_context_options, num_threads = num_threads, staging_bytes = PROMISE_STAGING);
}
static inline place place_open(int32_t num_threads) { return place_sized(PROMISE_STAGING, num_threads); }
/* Opens a simulated device with slow copies, so that a read that does not wait gets old bytes. Rate 0: no limit. */
static inline place place_sim(int32_t num_threads, double bytes_per_second, int32_t num_devices) {
  tdict_context_options o = place_options(num_threads);
  tdict_sim_options sim = td_with(tdict_sim_options, memory_bytes = (size_t)1 << 30, num_devices = num_devices);
  sim.h2d_bytes_per_second = sim.d2h_bytes_per_second = bytes_per_second;
  o.sim = &sim;
  return place_over(&o);
}
static inline void hold(const place *p) { td_ok(tdict_sim_hold(p->c, err)); }
static inline void resume(const place *p) { td_ok(tdict_sim_resume(p->c, err)); }

/* The leaves of a numbered tree, whose bytes are computed from a number. */
enum { NUM_NUMBERED = 4 };
static const struct numbered {
  const char *path;
  tdict_dtype dtype;
  int64_t shape[2];
} numbered[NUM_NUMBERED] = {{"a", TDICT_U8, {700, 100}},
                            {"n.b", TDICT_F32, {250, 100}},
                            {"n.m.c", TDICT_I16, {13, 1}},
                            {"d", TDICT_F64, {9, 700}}};

static inline tdict_tensor *new_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, tdict_memory *memory) {
  return td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, memory, &made, err));
}
static inline tdict_tensor *new_bytes(int64_t count, tdict_memory *memory) {
  return new_tensor(TDICT_U8, 1, &count, memory);
}
/* Writes bytes to a tensor without waiting for transfers. */
static inline void put_bytes(const place *p, const tdict_tensor *t, const void *bytes) {
  raw_write(raw_of(p, t), t->data, bytes, tdict_tensor_bytes(t));
}
static inline unsigned char *get_bytes(const place *p, const tdict_tensor *t) {
  unsigned char *bytes = td_alloc(tdict_tensor_bytes(t) + 1);
  raw_read(raw_of(p, t), bytes, t->data, tdict_tensor_bytes(t));
  return bytes;
}
static inline void put_number(const place *p, const tdict_tensor *t, uint64_t number) {
  scoped_bytes bytes = td_alloc(tdict_tensor_bytes(t) + 1);
  td_fill_random(bytes, tdict_tensor_bytes(t), number);
  put_bytes(p, t, bytes);
}
static inline bool has_number(const place *p, const tdict_tensor *t, uint64_t number) {
  size_t count = tdict_tensor_bytes(t);
  scoped_bytes want = malloc(count + 1), got = get_bytes(p, t);
  assert_non_null(want);
  td_fill_random(want, count, number);
  bool same = memcmp(want, got, count) == 0;
  return same;
}
static inline uint64_t number_of_leaf(uint64_t number, int leaf) { return number * 16 + (uint64_t)leaf + 1; }

/* Writes the bytes of a number to all leaves. If `number` is 0, writes poison. */
static inline void number_tree(const place *p, const tdict_tree *td, uint64_t number) {
  for (int i = 0; i < NUM_NUMBERED; i++) {
    tdict_tensor *t = td_leaf(td, numbered[i].path);
    if (number) {
      put_number(p, t, number_of_leaf(number, i));
      continue;
    }
    scoped_bytes bytes = td_alloc(tdict_tensor_bytes(t));
    memset(bytes, PROMISE_POISON, tdict_tensor_bytes(t));
    put_bytes(p, t, bytes);
  }
}
static inline tdict_tree *numbered_tree(const place *p, tdict_memory *memory, uint64_t number) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < NUM_NUMBERED; i++)
    td_put(td, numbered[i].path, new_tensor(numbered[i].dtype, 2, numbered[i].shape, memory));
  number_tree(p, td, number);
  return td;
}
static inline bool tree_has_number(const place *p, const tdict_tree *td, uint64_t number) {
  for (int i = 0; i < NUM_NUMBERED; i++)
    if (!has_number(p, td_leaf(td, numbered[i].path), number_of_leaf(number, i))) return false;
  return true;
}
static inline void check_tree_number(const place *p, const tdict_tree *td, uint64_t number) {
  for (int i = 0; i < NUM_NUMBERED; i++)
    if (!has_number(p, td_leaf(td, numbered[i].path), number_of_leaf(number, i)))
      fail_msg("leaf '%s' does not have the bytes of number %llu", numbered[i].path, (unsigned long long)number);
}
static inline void check_number_and_release(const place *p, tdict_tree *td, uint64_t number) {
  check_tree_number(p, td, number);
  tdict_release(td);
}
/* Returns the address of the first leaf's storage. In a result, this storage is the arena. */
static inline void *arena_of(const tdict_tree *td) { return td_leaf(td, numbered[0].path)->storage->data; }
/* Allocates memory of the arena's size, poisons it and frees it, so that the next result reuses it. */
static inline void poison_arena(const place *p, tdict_memory *memory) {
  size_t at = 0;
  for (int i = 0; i < NUM_NUMBERED; i++)
    at = (at + 255) / 256 * 256 +
         tdict_dtype_bytes(numbered[i].dtype) * (size_t)(numbered[i].shape[0] * numbered[i].shape[1]);
  scoped_tensor t = new_bytes((int64_t)at, memory);
  scoped_bytes bytes = td_alloc(at);
  memset(bytes, PROMISE_POISON, at);
  put_bytes(p, t, bytes);
}

static inline tdict_tree *moved(const place *p, const tdict_tree *src, tdict_device device) {
  return move_with(p, src, device, NULL);
}
static inline void finish_copy(tdict_future *f) { tdict_release(finish(f)); }
static inline void check_pending(tdict_future *f) {
  td_rest();
  td_fails(TDICT_ETIMEDOUT, "", tdict_future_wait_for(f, 1000000, NULL, err));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
}

/* A gate at which a function waits until the test opens it. Thread-safe. */
typedef struct gate {
  atomic_int entered;
  atomic_bool open;
} gate;
static inline bool wait_flag(atomic_bool *flag) {
  for (int i = 0; i < PROMISE_LONG_MS * 10; i++) {
    if (atomic_load(flag)) return true;
    usleep(100);
  }
  return atomic_load(flag);
}
static inline bool gate_pass(gate *g) {
  atomic_fetch_add(&g->entered, 1);
  return wait_flag(&g->open);
}
static inline void gate_open(gate *g) { atomic_store(&g->open, true); }
static inline void gate_await(gate *g, int count) {
  for (int i = 0; i < PROMISE_LONG_MS * 10 && atomic_load(&g->entered) < count; i++) usleep(100);
  assert_true(atomic_load(&g->entered) >= count);
}

/* A kernel of the simulated device. It waits at the gate, copies `write` into the tensor unless `write` is NULL, and
 * then copies the tensor into `seen`. */
typedef struct kernel {
  gate *gate; /* NULL: none */
  tdict_stream stream;
  void *address;
  size_t bytes;
  const void *write;
  unsigned char *seen;
  atomic_bool done;
} kernel;
static inline void kernel_run(void *user) {
  kernel *k = user;
  if (k->gate && !gate_pass(k->gate)) return;
  void *at = k->stream.device.type == TDICT_DEVICE_SIM ? tdict_sim_host_pointer(k->stream, k->address) : NULL;
  if (!at) at = k->address; /* pinned host memory */
  if (k->write) memcpy(at, k->write, k->bytes);
  memcpy(k->seen, at, k->bytes);
  atomic_store(&k->done, true);
}
static inline void kernel_launch(kernel *k, tdict_stream stream, const tdict_tensor *t, gate *g, const void *write) {
  memset(k, 0, sizeof *k);
  k->gate = g;
  k->stream = stream;
  k->address = t->data;
  k->bytes = tdict_tensor_bytes(t);
  k->write = write;
  k->seen = td_zeros(1, k->bytes);
  td_ok(tdict_sim_launch(stream, kernel_run, k, err));
}
/* Waits for the kernel. Returns true if it read the bytes of this number. */
static inline bool kernel_saw(kernel *k, uint64_t number) {
  scoped_bytes want = td_alloc(k->bytes);
  assert_true(wait_flag(&k->done));
  td_fill_random(want, k->bytes, number);
  bool same = memcmp(want, k->seen, k->bytes) == 0;
  return same;
}
static inline void kernel_end(kernel *k) { free(k->seen); }
#define scoped_kernel TD_SCOPED(kernel_end, kernel)

static inline tdict_stream new_stream(const place *p) {
  tdict_stream s = {0};
  td_ok(tdict_stream_create(p->c, p->device, &s, err));
  return s;
}
/* Waits for a stream of the program by a driver call. */
static inline void sync_stream(const place *p, tdict_stream s) {
  tdict_gpu_scope scope;
  td_ok(tdict_gpu_enter(p->gpu, &scope, err));
  assert_int_equal(p->d->ops->stream_synchronize(p->d, s.handle), TDICT_CU_SUCCESS);
  tdict_gpu_leave(p->gpu, &scope);
}

#endif
