/* A world of ranks: each rank is a thread with its own context and device, or with a device of one shared context. The
 * main thread fills and checks memory, and the rank threads call the table. Simulated devices use fake_nccl.so. GPUs
 * use the NCCL that the environment variable TDICT_TEST_NCCL names, or libnccl.so.2; without NCCL, the case is
 * skipped. */
#ifndef TDICT_TESTS_SERVICES_COMM_NCCL_RANKS_H
#define TDICT_TESTS_SERVICES_COMM_NCCL_RANKS_H

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "device/devices.h"
#include "device/sim/queue.h"
#include "services/comm/nccl/fake_nccl.h"
#include "support/random.h"
#include "support/raw.h"
#include "support/test.h"
#include "support/threads.h"

enum { MOST_RANKS = 4 };
#define SECONDS(n) ((int64_t)((n)*1e9))

typedef struct world world;
typedef struct rank {
  world *w;
  int number;
  tdict_context *context;
  tdict_gpu *gpu;
  raw_memory *raw;
  tdict_stream stream;
  tdict_comm_table t;
  char *memory; /* device memory of `memory_bytes` bytes, see struct world */
  tdict_status status;
  tdict_error err; /* the error of the last call of `body` */
  int64_t took_ns, called_ns, returned_ns;
  pthread_t thread;
} rank;
struct world {
  int size, absent; /* absent: the rank that does not take part, or -1 */
  bool one_context;
  size_t memory_bytes;
  int64_t timeout_ns; /* the time limit passed to tdict_nccl_create_table() */
  char path[PATH_MAX];
  const char *library;
  fake_nccl_settings *fake; /* NULL if the ranks use GPUs */
  tdict_nccl_id id;
  rank ranks[MOST_RANKS];
  tdict_status (*body)(rank *r, tdict_error *err);
};

static _Thread_local tdict_driver *ranks_driver; /* the driver of the rank that runs on this thread */
static inline int ranks_device(void) {
  tdict_cu_context current = NULL;
  if (!ranks_driver || ranks_driver->ops->ctx_current(ranks_driver, &current) != TDICT_CU_SUCCESS || !current)
    return -1;
  return current->ordinal;
}

/* Writes the path of a file in the folder of this program. */
static inline void ranks_path(char *out, const char *name) {
  ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 64);
  assert_true(length > 0);
  out[length] = 0;
  strcpy(strrchr(out, '/') + 1, name);
}
/* Opens the fake, and passes it the functions that it needs. */
static inline fake_nccl_settings *ranks_fake(char *path, const char *name) {
  ranks_path(path, name);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  fake_nccl_settings *fake = (fake_nccl_settings *)dlsym(library, "fake_nccl");
  assert_non_null(fake);
  fake->launch = tdict_sim_launch;
  fake->host_pointer = tdict_sim_host_pointer;
  fake->device = ranks_device;
  return fake;
}

static inline void *ranks_thread(void *user) {
  rank *r = user;
  ranks_driver = r->gpu->driver;
  memset(&r->err, 0, sizeof r->err);
  const int64_t begun = tdict_now_ns();
  r->status = r->w->body(r, &r->err);
  r->took_ns = tdict_now_ns() - begun;
  return NULL;
}
/* Runs `body` on one thread for each rank, except the absent rank. */
static inline void world_run(world *w, tdict_status (*body)(rank *r, tdict_error *err)) {
  w->body = body;
  for (int i = 0; i < w->size; i++) {
    w->ranks[i].status = TDICT_OK;
    if (i != w->absent) w->ranks[i].thread = td_start(ranks_thread, &w->ranks[i]);
  }
  for (int i = 0; i < w->size; i++)
    if (i != w->absent) pthread_join(w->ranks[i].thread, NULL);
}
/* Runs `body` like world_run(), and fails the case if `body` fails on any rank. */
static inline void world_do(world *w, tdict_status (*body)(rank *r, tdict_error *err)) {
  world_run(w, body);
  for (int i = 0; i < w->size; i++)
    if (w->ranks[i].status != TDICT_OK)
      fail_msg("rank %d of %d: %s: %s", i, w->size, tdict_status_name(w->ranks[i].status), w->ranks[i].err.message);
}
/* Checks that every rank that ran has failed with the status `wanted` and a message that contains `text`. */
static inline void world_has_failed(const world *w, tdict_status wanted, const char *text) {
  for (int i = 0; i < w->size; i++) {
    const rank *r = &w->ranks[i];
    if (i == w->absent) continue;
    if (r->status != wanted || r->err.status != (int)wanted || !strstr(r->err.message, text))
      fail_msg("rank %d: %s '%s', wanted %s '%s'", i, tdict_status_name(r->status), r->err.message,
               tdict_status_name(wanted), text);
  }
}

static inline tdict_nccl_options ranks_options(const rank *r) {
  return td_with(tdict_nccl_options, library = r->w->library, rank = r->number, world_size = r->w->size,
                 device = r->stream.device, id = r->w->id, timeout_ns = r->w->timeout_ns);
}
static inline tdict_status ranks_join(rank *r, tdict_error *err) {
  const tdict_nccl_options o = ranks_options(r);
  r->t.struct_size = sizeof r->t;
  return tdict_nccl_create_table(r->context, &o, &r->t, err);
}
static inline tdict_status ranks_destroy(rank *r, tdict_error *err) {
  (void)err;
  r->t.destroy(r->t.self);
  return TDICT_OK;
}

/* Returns how many ranks a case can have: one for each GPU, but at most MOST_RANKS; on other devices, MOST_RANKS. */
static inline int ranks_most(void) {
  tdict_gpu *gpu;
  int count = 0;
  if (td_device().type != TDICT_DEVICE_CUDA) return MOST_RANKS;
  scoped_context context = td_context(NULL);
  while (count < MOST_RANKS &&
         tdict_devices_gpu(tdict_context_devices(context), tdict_cuda(count), &gpu, NULL) == TDICT_OK)
    count++;
  return count;
}
static inline void ranks_need(int count) {
  if (ranks_most() < count) td_skip("there are too few GPUs");
}

/* Opens the fake, or real NCCL on GPUs, and creates an id. Without NCCL, skips the case. */
static inline void world_find_library(world *w) {
  tdict_error e;
  if (td_device().type == TDICT_DEVICE_CUDA) {
    w->library = getenv("TDICT_TEST_NCCL");
    tdict_status status = tdict_nccl_create_id(w->library, &w->id, &e);
    if (status == TDICT_ENOTSUP) td_skip(e.message);
    if (status != TDICT_OK) fail_msg("%s", e.message);
    return;
  }
  w->library = w->path;
  w->fake = ranks_fake(w->path, "fake_nccl.so");
  td_ok(tdict_nccl_create_id(w->library, &w->id, err));
}

static inline tdict_context *world_context(const world *w, tdict_device device) {
  tdict_context_options o = tdict_context_options_default();
  tdict_sim_options sim =
      td_with(tdict_sim_options, num_devices = w->one_context ? w->size : 1, memory_bytes = (size_t)256 << 20);
  if (w->fake) o.sim = &sim;
  o.device = device;
  o.num_threads = 1;
  return td_made(context, tdict_context_create(&o, &made, err));
}

/* Creates contexts, streams and device memory. The ranks have no table yet. */
static inline void world_prepare(world *w, int size, bool one_context, size_t memory_bytes) {
  *w = (world){.size = size, .absent = -1, .one_context = one_context, .memory_bytes = memory_bytes};
  w->timeout_ns = SECONDS(60);
  world_find_library(w);
  for (int i = 0; i < size; i++) {
    rank *r = &w->ranks[i];
    tdict_gpu_scope scope;
    const tdict_device device = !w->fake ? tdict_cuda(i) : tdict_sim(one_context ? i : 0);
    r->w = w;
    r->number = i;
    r->context = one_context && i > 0 ? w->ranks[0].context : world_context(w, device);
    td_ok(tdict_devices_gpu(tdict_context_devices(r->context), device, &r->gpu, err));
    r->raw = raw_open(r->context, device);
    td_ok(tdict_stream_create(r->context, device, &r->stream, err));
    td_ok(tdict_gpu_enter(r->gpu, &scope, err));
    td_ok(tdict_gpu_allocate(r->gpu, memory_bytes, (void **)&r->memory, err));
    tdict_gpu_leave(r->gpu, &scope);
  }
}
/* Sets for how many polls an operation of the fake stays in progress. */
static inline void world_polls(const world *w, int polls) {
  if (w->fake) w->fake->polls = polls;
}
/* How a call waits for other ranks: on the device, by polling, or inside NCCL. A test can choose only with the fake. */
enum { WAITS_ON_DEVICE, WAITS_IN_PROGRESS, WAITS_INSIDE, NUM_WAITS };
static inline int world_num_waits(void) { return td_device().type == TDICT_DEVICE_SIM ? NUM_WAITS : 1; }
static inline void world_waits(const world *w, int waits) {
  world_polls(w, waits == WAITS_IN_PROGRESS ? 1000000 : 0);
  if (w->fake) w->fake->blocks = waits == WAITS_INSIDE;
}
static inline int world_operations(const world *w) { return w->fake ? w->fake->operations : 0; }
static inline int world_launches(const world *w) { return w->fake ? w->fake->launches : 0; }
static inline void world_open(world *w, int size, bool one_context, size_t memory_bytes) {
  world_prepare(w, size, one_context, memory_bytes);
  world_do(w, ranks_join);
}
/* Frees the memory and the contexts. All tables must have been destroyed. */
static inline void world_end(world *w) {
  if (w->fake) assert_int_equal(w->fake->comms, 0);
  if (w->fake) assert_int_equal(w->fake->open_groups, 0);
  for (int i = 0; i < w->size; i++) {
    rank *r = &w->ranks[i];
    td_ok(tdict_stream_synchronize(r->context, r->stream, err));
    tdict_stream_destroy(r->context, r->stream);
    raw_close(r->raw);
    const tdict_kept_block block = {.data = r->memory, .bytes = w->memory_bytes};
    tdict_gpu_free_block(r->gpu, &block);
  }
  for (int i = 0; i < (w->one_context ? 1 : w->size); i++) tdict_context_destroy(w->ranks[i].context);
}
static inline void world_close(world *w) {
  w->absent = -1;
  world_do(w, ranks_destroy);
  world_end(w);
}
#define scoped_world TD_SCOPED(world_close, world)

/* Writes random bytes to a rank's device memory at offset `at`. Returns a copy of the bytes, which the caller frees. */
static inline unsigned char *ranks_fill(rank *r, size_t at, size_t bytes, uint64_t seed) {
  unsigned char *made = td_alloc(bytes + 1);
  td_fill_random(made, bytes, seed);
  if (bytes) raw_write(r->raw, r->memory + at, made, bytes);
  return made;
}
static inline bool ranks_holds(rank *r, size_t at, const void *wanted, size_t bytes) {
  scoped_bytes found = td_alloc(bytes + 1);
  if (bytes) raw_read(r->raw, found, r->memory + at, bytes);
  bool same = memcmp(found, wanted, bytes) == 0;
  return same;
}

#endif
