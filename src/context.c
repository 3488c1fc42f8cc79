/* Implements the context, which owns the log, the thread pool, the devices and the engine, and passes each layer what
 * it depends on. The only file that may include headers of all layers. Thread rule: see tdict/context.h. */
#include "context.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/ops/visit.h"
#include "core/sched/cpus.h"
#include "core/sched/pool.h"
#include "device/devices.h"
#include "device/placement.h"
#include "device/sim/driver.h"
#include "engine/engine.h"
#include "engine/plan/tuning_file.h"
#include "tdict/tdict.h"

#define MIN_STAGING_BYTES ((size_t)64 << 10)
static const char sysfs[] = "/sys";

struct tdict_context {
  tdict_forkmark *mark;
  tdict_log *log;
  tdict_pool *pool;
  tdict_devices *devices;
  tdict_engine *engine;
};

tdict_devices *tdict_context_devices(const tdict_context *context) { return context->devices; }
tdict_pool *tdict_context_pool(const tdict_context *context) {
  return tdict_forkmark_forked(context->mark) ? NULL : context->pool; /* the pool's threads exist only in the parent
                                                                       * process */
}
tdict_engine *tdict_context_engine(const tdict_context *context) { return context->engine; }
tdict_tracer *tdict_context_tracer(const tdict_context *context) { return &context->engine->tracer; }

/* Checks the options of the pool and the ring. The other layers check their own options. */
static tdict_status check_context_options(const tdict_context_options *o, tdict_error *err) {
  if (o->num_threads < -1 || o->num_threads == 0 || o->num_threads > TDICT_POOL_MOST_THREADS)
    return tdict_fail(err, TDICT_EINVAL, "context: num_threads is %d, wanted -1 or 1 to %d", (int)o->num_threads,
                      TDICT_POOL_MOST_THREADS);
  if (o->staging_bytes < MIN_STAGING_BYTES)
    return tdict_fail(err, TDICT_EINVAL, "context: staging_bytes is %zu, wanted at least %zu", o->staging_bytes,
                      MIN_STAGING_BYTES);
  return TDICT_OK;
}

/* Binds the pool's threads to the node of the default device, if that is CUDA: see tdict_placement_apply(). */
static void place_workers(tdict_context *c) {
  tdict_gpu *gpu;
  tdict_device device = tdict_devices_default(c->devices, NULL);
  if (device.type != TDICT_DEVICE_CUDA || tdict_devices_gpu(c->devices, device, &gpu, NULL) != TDICT_OK) return;
  tdict_placement_apply(sysfs, gpu, c->pool, c->log);
}

/* Creates a context's parts in order of their dependencies. After a failure, the caller destroys them. */
static tdict_status create_parts(tdict_context *c, const tdict_context_options *o, tdict_driver *driver,
                                 tdict_error *err) {
  int threads = o->num_threads < 0 ? tdict_pool_default_size() : o->num_threads;
  tdict_tuning tuning;
  tdict_status status = o->tuning_file ? tdict_tuning_read(o->tuning_file, &tuning, NULL, err) : TDICT_OK;
  if (status == TDICT_OK) status = tdict_forkmark_create(&c->mark, err);
  if (status == TDICT_OK) status = tdict_log_create(o->log, o->user, &c->log, err);
  if (status == TDICT_OK) tdict_forkmark_keep_log(c->mark, c->log);
  if (status == TDICT_OK) status = tdict_pool_create(threads, &c->pool, err);
  if (status != TDICT_OK) return status;
  tdict_pool_set_quota(c->pool, tdict_quota_cpus(""));
  tdict_devices_config devices = {o, driver, tdict_driver_sim_open, c->pool, c->mark, sysfs};
  status = tdict_devices_create(&devices, &c->devices, err);
  if (status != TDICT_OK) return status;
  place_workers(c); /* after tdict_devices_create(), because that call opens the GPU */
  tdict_engine_config config = {c->devices, c->pool, o->staging_bytes, c->mark, o->tuning_file ? &tuning : NULL};
  return tdict_engine_create(&config, &c->engine, err);
}

tdict_status tdict_context_create_over(const tdict_context_options *options, tdict_driver *driver, tdict_context **out,
                                       tdict_error *err) {
  if (!out) return tdict_fail(err, TDICT_EINVAL, "context: out is NULL");
  tdict_context_options o = tdict_context_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options, "context options", err);
  if (status == TDICT_OK) status = check_context_options(&o, err);
  if (status != TDICT_OK) return status;
  tdict_context *c = calloc(1, sizeof *c);
  if (!c) return tdict_fail_memory(err, "context", NULL, "its record");
  status = create_parts(c, &o, driver, err);
  return TDICT_HAND_OVER(status, c, out, tdict_context_destroy);
}

tdict_status tdict_context_create(const tdict_context_options *options, tdict_context **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  return tdict_context_create_over(options, NULL, out, err);
}

void tdict_context_destroy(tdict_context *context) {
  TDICT_UNCANCELLED;
  if (!context) return;
  if (context->mark && tdict_forkmark_forked(context->mark)) { /* the threads and devices belong to the parent
                                                                * process */
    free(context);
    return;
  }
  /* Wait for transfers and jobs first, because they use the log, the pool and the devices. */
  if (context->engine) tdict_engine_wait(context->engine);
  if (context->log) tdict_log_close(context->log);
  tdict_pool_destroy(context->pool);
  tdict_engine_destroy(context->engine);
  tdict_devices_destroy(context->devices);
  tdict_log_release(context->log);
  tdict_forkmark_release(context->mark);
  free(context);
}

int tdict_context_num_threads(const tdict_context *context) { return tdict_pool_size(context->pool); }

int tdict_version(void) { return TDICT_VERSION_MAJOR * 10000 + TDICT_VERSION_MINOR * 100 + TDICT_VERSION_PATCH; }
