/* Code that the tests of several devices share: a context with n devices, and for each device a place with raw access
 * to it. engine/trees.h has trees to move. Thread rule: the main thread. */
#ifndef TDICT_TESTS_SERVICES_MULTI_DEVICE_SEVERAL_H
#define TDICT_TESTS_SERVICES_MULTI_DEVICE_SEVERAL_H

#include "context.h"
#include "device/devices.h"
#include "device/sim/driver.h"
#include "engine/trees.h"
#include "support/driver_fault.h"

enum { MOST_DEVICES = 4 };

typedef struct several {
  size_t count;
  tdict_context *c;
  tdict_device devices[MOST_DEVICES + 1];
  place at[MOST_DEVICES + 1]; /* places in the same context, one for each device */
  tdict_driver *fault;        /* the driver that fails on demand, or NULL */
} several;

static inline void several_start(several *s, tdict_context *c, size_t count) {
  s->c = c;
  s->count = count;
  for (size_t i = 0; i < count; i++) {
    s->devices[i] = (tdict_device){td_device().type, (int32_t)i};
    s->at[i] = place_on(c, s->devices[i]);
  }
}
/* Opens a context with `count` devices. On CUDA, skips the case if the machine has fewer GPUs. The ring has 1 MiB, so
 * trees above 128 KiB are divided, and trees above 4 MiB for each device need several rounds. */
static inline several several_open(size_t count, int32_t peers) {
  several s = {0};
  tdict_gpu *gpu;
  int found = (int)count;
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = STAGING, num_threads = 8);
  o.sim = td_options(tdict_sim_options, num_devices = (int32_t)count, memory_bytes = (size_t)1 << 30, peers = peers);
  tdict_context *c = td_context(&o);
  td_ok(tdict_devices_gpu(tdict_context_devices(c), td_device(), &gpu, err));
  if (td_device().type == TDICT_DEVICE_CUDA) assert_int_equal(gpu->driver->ops->device_count(gpu->driver, &found), 0);
  if (found < (int)count) {
    tdict_context_destroy(c);
    td_skip("this machine has fewer GPUs than the case needs");
  }
  several_start(&s, c, count);
  return s;
}
static inline void several_add_host(several *s) {
  s->at[s->count] = place_on(s->c, s->devices[0]);
  s->devices[s->count++] = tdict_cpu();
}
static inline void several_close(several *s) {
  for (size_t i = 0; i < s->count; i++) {
    raw_close(s->at[i].raw);
    raw_close(s->at[i].host);
  }
  tdict_context_destroy(s->c);
  if (s->fault) tdict_driver_release(s->fault);
}
#define scoped_several TD_SCOPED(several_close, several)
/* Opens simulated devices whose driver fails on demand. */
static inline several several_open_failing(size_t count, int32_t peers, tdict_context *(*open)(tdict_driver *)) {
  several s = {0};
  tdict_sim_options sim =
      td_with(tdict_sim_options, num_devices = (int32_t)count, memory_bytes = (size_t)1 << 30, peers = peers);
  tdict_driver *inner = td_made(driver, tdict_driver_sim_open(&sim, &made, err));
  td_ok(tdict_driver_fault_open(inner, &s.fault, err));
  tdict_driver_release(inner);
  several_start(&s, open(s.fault), count);
  return s;
}

static inline tdict_spread split_along(int32_t dim, const int64_t *counts) {
  tdict_spread spread = tdict_spread_split(NULL, 0, dim);
  spread.counts = counts;
  return spread;
}

/* Returns the request for all devices. `spread` says what they receive; NULL means the whole tree. */
static inline tdict_spread on_all(const several *s, const tdict_spread *spread) {
  tdict_spread how = spread ? *spread : tdict_spread_replicate(NULL, 0);
  how.devices = s->devices;
  how.num_devices = s->count;
  return how;
}
static inline tdict_status gather(const several *s, tdict_tree *const *trees, int32_t dim, tdict_device device,
                                  tdict_tree **out, tdict_error *err) {
  tdict_gather_devices_options o = td_with(tdict_gather_devices_options, dim = dim, device = device);
  return td_gather_devices(s->c, (const tdict_tree *const *)trees, s->count, &o, out, err);
}
/* Moves a tree to all devices, with the blocking or the asynchronous call. */
static inline void spread_tree(const several *s, const tdict_tree *src, const tdict_spread *spread, const way *v,
                               tdict_tree **trees) {
  const tdict_spread how = on_all(s, spread);
  if (!v->async) {
    td_ok(td_to_devices(s->c, src, &how, &v->o, trees, err));
    return;
  }
  scoped_future f = NULL;
  scoped_tree all = NULL;
  td_ok(tdict_to_devices_async(s->c, src, &how, &v->o, &f, err));
  td_ok(tdict_future_wait(f, &all, err));
  assert_int_equal(tdict_num_keys(all), s->count);
  for (size_t i = 0; i < s->count; i++) {
    td_ok(tdict_get_tree(all, td_text("%zu", i), &trees[i], err));
    tdict_retain(trees[i]);
  }
}
static inline void release_all(const several *s, tdict_tree **trees) {
  for (size_t i = 0; i < s->count; i++) tdict_release(trees[i]);
}
/* Checks that every device holds the whole tree. */
static inline void check_replicas(const several *s, const tdict_tree *src, tdict_tree *const *trees) {
  for (size_t i = 0; i < s->count; i++) {
    tdict_device device;
    check_tree(&s->at[i], src, trees[i]);
    check_device(trees[i], s->devices[i]);
    if (trees[i] != src) /* the source itself may have no device */
      assert_true(tdict_get_device(trees[i], &device) && tdict_device_equal(device, s->devices[i]));
  }
}
/* Makes a batch of `rows` rows of about 4 KiB, with random elements and nested leaves. */
static inline tdict_tree *rows_tree(int64_t rows, tdict_memory *memory) {
  static const tdict_field fields[] = {
      {"obs.pixels", TDICT_U8, 3, {32, 32, 3}},
      {"obs.state", TDICT_F32, 1, {17}},
      {"next.obs.pixels", TDICT_U8, 2, {31, 33}},
      {"next.done", TDICT_BOOL, 1, {1}},
  };
  tdict_tree *td =
      td_made(tree, tdict_create_from(fields, sizeof fields / sizeof *fields, 1, &rows, memory, &made, err));
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    tdict_tensor *t = td_leaf(td, fields[i].path);
    if (rows) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), next_seed());
  }
  return td;
}

#endif
