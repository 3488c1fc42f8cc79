/* Helpers for tests of a GPU: a context whose GPU is current, and a shim that makes driver calls fail. */
#ifndef TDICT_TESTS_DEVICE_GPU_HELP_H
#define TDICT_TESTS_DEVICE_GPU_HELP_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "context.h"
#include "device/devices.h"
#include "device/sim/driver.h"
#include "support/raw.h"
#include "support/shim.h"
#include "support/test.h"

/* Calls an entry and checks that it returns TDICT_CU_<wanted>. A driver named `d` must be in scope. */
#define CU(wanted, entry, ...)                                                                               \
  do {                                                                                                       \
    tdict_cu cu_result_ = d->ops->entry(d, __VA_ARGS__);                                                     \
    if (cu_result_ != TDICT_CU_##wanted) fail_msg("%s returned %d, wanted %s", #entry, cu_result_, #wanted); \
  } while (0)

typedef struct fixture {
  tdict_context *context;
  tdict_gpu *gpu;
  tdict_driver *d;
  tdict_memory *memory;
  tdict_gpu_scope scope;
} fixture;
static inline fixture fixture_open(const tdict_context_options *options) {
  tdict_context_options o = options ? *options : tdict_context_options_default();
  fixture b = {0};
  o.num_threads = 2;
  b.context = td_context(&o);
  td_ok(tdict_devices_gpu(tdict_context_devices(b.context), td_device(), &b.gpu, err));
  b.d = b.gpu->driver;
  b.memory = &b.gpu->memory;
  td_ok(tdict_gpu_enter(b.gpu, &b.scope, err));
  return b;
}
static inline void fixture_close(fixture *b) {
  tdict_gpu_leave(b->gpu, &b->scope);
  tdict_context_destroy(b->context);
}
#define scoped_fixture TD_SCOPED(fixture_close, fixture)
static inline tdict_device_counts fixture_counts(const fixture *b) { return td_device_counts(b->context, td_device()); }
static inline tdict_memory_counts fixture_memory(const fixture *b) { return td_memory_counts(b->memory); }
static inline tdict_block fixture_take(const fixture *b, size_t bytes) {
  tdict_block block = {0};
  td_ok(b->memory->ops->allocate(b->memory, bytes, &block, err));
  return block;
}
/* Frees a block, and waits until the driver has freed it. */
static inline void fixture_give(const fixture *b, tdict_block *block) {
  b->memory->ops->free(b->memory, block, NULL, 0);
  b->d->ops->stream_synchronize(b->d, b->gpu->free_stream);
}

static inline tdict_sim_options small_sim(void) { return td_with(tdict_sim_options, memory_bytes = (size_t)256 << 20); }
static inline tdict_driver *open_sim(void) {
  tdict_sim_options o = small_sim();
  return td_made(driver, tdict_driver_sim_open(&o, &made, err));
}

#endif
