/* The place where a transfer test runs: a context, its device, and access to device and host memory without the
 * library. Thread rule: only the main thread. */
#ifndef TDICT_TESTS_ENGINE_PLACE_H
#define TDICT_TESTS_ENGINE_PLACE_H

#include "basics.h"
#include "core/tensor/tensor.h"
#include "device/devices.h"
#include "support/raw.h"

typedef struct place {
  tdict_context *c;
  tdict_device device;
  tdict_gpu *gpu; /* NULL without a device; borrowed from the context, like `d` */
  tdict_driver *d;
  tdict_memory *memory, *pinned; /* memory of the device; pinned is NULL without a device */
  raw_memory *raw, *host;
} place;

static inline place place_on(tdict_context *c, tdict_device device) {
  place p = {.c = c, .device = device};
  p.memory = tdict_device_memory(c, p.device);
  p.raw = raw_open(c, p.device);
  p.host = raw_open(c, tdict_cpu());
  if (p.device.type == TDICT_DEVICE_CPU) return p;
  td_ok(tdict_devices_gpu(tdict_context_devices(c), p.device, &p.gpu, err));
  p.d = p.gpu->driver;
  p.pinned = tdict_pinned_memory(c);
  return p;
}
/* Return a place that owns the context. */
static inline place place_around(tdict_context *c) { return place_on(c, td_device()); }
static inline place place_over(const tdict_context_options *options) { return place_around(td_context(options)); }
/* If `num_threads` is -1, the library chooses the number of threads. */
static inline place place_sized(size_t staging_bytes, int32_t num_threads) {
  return place_over(td_options(tdict_context_options, staging_bytes = staging_bytes, num_threads = num_threads));
}
static inline void place_close(place *p) {
  raw_close(p->raw);
  raw_close(p->host);
  tdict_context_destroy(p->c);
}
#define scoped_place TD_SCOPED(place_close, place)
static inline raw_memory *raw_of(const place *p, const tdict_tensor *t) {
  return tdict_tensor_device(t).type == TDICT_DEVICE_CPU ? p->host : p->raw;
}

/* Start a transfer. If the call fails, the test fails. */
static inline tdict_tree *move_with(const place *p, const tdict_tree *src, tdict_device device,
                                    const tdict_transfer_options *o) {
  return td_made(tree, tdict_to_device(p->c, src, device, o, &made, err));
}
static inline tdict_future *move_async(const place *p, const tdict_tree *src, tdict_device device,
                                       const tdict_transfer_options *o) {
  return td_made(future, tdict_to_device_async(p->c, src, device, o, &made, err));
}
static inline tdict_future *copy_async(const place *p, const tdict_tree *src, tdict_tree *dst,
                                       const tdict_transfer_options *o) {
  return td_made(future, tdict_transfer_into_async(p->c, dst, src, o, &made, err));
}
/* Waits for a future and releases it. Returns the result, which is NULL if the transfer had a destination. */
static inline tdict_tree *finish(tdict_future *f) {
  tdict_tree *out = td_made(tree, tdict_future_wait(f, &made, err));
  tdict_future_release(f);
  return out;
}

#endif
