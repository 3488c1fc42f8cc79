/* Implements the creation and the end of the table of NCCL. See link.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "device/devices.h"
#include "services/comm/nccl/link.h"
#include "tdict/comm_nccl.h"

/* Stops NCCL and frees the communicators, the parent first, so that another thread's call returns. Needs no current
 * context, so works on a lost device. In a forked child, they belong to the parent process. */
static void nccl_abort(void *self) {
  tdict_nccl_link *link = self;
  tdict_gpu_scope scope;
  atomic_store(&link->ended, true);
  if (tdict_gpu_enter(link->gpu, &scope, NULL) == TDICT_EFORKED) return;
  tdict_nccl_watch_abort(&link->watch);
  pthread_mutex_lock(&link->lock);
  if (link->comm) (void)link->api.abort(link->comm);
  link->comm = NULL;
  pthread_mutex_unlock(&link->lock);
  tdict_gpu_leave(link->gpu, &scope);
}

/* Waits until all ranks have called `destroy`, and frees the communicators. Returns false if NCCL has failed. */
static bool end_comm(tdict_nccl_link *link) {
  const int64_t deadline = tdict_deadline_ns(link->timeout_ns);
  tdict_nccl_call call = {.link = link, .name = "ncclCommFinalize", .deadline_ns = deadline};
  if (tdict_nccl_begin(&call, NULL) != TDICT_OK) return false;
  if (tdict_nccl_end(&call, link->api.finalize(link->comm), NULL) != TDICT_OK) return false;
  call.name = "ncclCommDestroy";
  if (tdict_nccl_begin(&call, NULL) != TDICT_OK) return false;
  tdict_nccl_result result = link->api.destroy(link->comm);
  link->comm = NULL;
  if (tdict_nccl_end(&call, result, NULL) != TDICT_OK) return false;
  tdict_nccl_watch_abort(&link->watch); /* the parent has no work */
  return true;
}

/* Frees the link and its resources on the gpu. All work of the stream is done, or the device is lost. */
static void free_link(tdict_nccl_link *link) {
  tdict_gpu_scope scope;
  if (tdict_gpu_enter(link->gpu, &scope, NULL) != TDICT_EFORKED) {
    if (link->stream) {
      (void)!tdict_gpu_sync_stream(link->gpu, link->stream, NULL);
      tdict_gpu_give_stream(link->gpu, link->stream);
    }
    if (link->event) tdict_gpu_give_event(link->gpu, link->event);
    tdict_nccl_free_stage(link);
    tdict_nccl_watch_reset(&link->watch); /* in a forked child, the thread does not exist */
  }
  tdict_gpu_leave(link->gpu, &scope);
  tdict_gpu_release(link->gpu);
  pthread_mutex_destroy(&link->lock);
  free(link->moves);
  free(link);
}

static void nccl_destroy(void *self) {
  tdict_nccl_link *link = self;
  if (!link) return;
  if (link->comm && !end_comm(link)) nccl_abort(link);
  free_link(link);
}

static struct tdict_nccl_config make_config(bool blocks) {
  return (struct tdict_nccl_config){.size = sizeof(struct tdict_nccl_config),
                                    .magic = TDICT_NCCL_CONFIG_MAGIC,
                                    .version = TDICT_NCCL_CONFIG_VERSION,
                                    .blocking = blocks,
                                    .cga_cluster_size = TDICT_NCCL_UNDEFINED,
                                    .min_ctas = TDICT_NCCL_UNDEFINED,
                                    .max_ctas = TDICT_NCCL_UNDEFINED,
                                    .split_share = 1};
}

/* Creates the parent, which does not block, and splits the communicator for calls from the parent. NCCL's threads may
 * write to the handles later, so the handles must live as long as the link. Call inside a scope of the gpu. */
static tdict_status create_comms(tdict_nccl_link *link, const tdict_nccl_options *o, tdict_error *err) {
  const int64_t deadline = tdict_deadline_ns(o->timeout_ns);
  struct tdict_nccl_config config = make_config(false), blocking = make_config(true);
  const tdict_nccl_api *api = &link->api;
  tdict_nccl_comm *parent = &link->watch.parent;
  tdict_nccl_unique_id id;
  memcpy(id.internal, o->id.bytes, sizeof id.internal);
  tdict_nccl_result result = api->init(parent, link->world, id, link->rank, &config);
  tdict_status status = tdict_nccl_check(api, NULL, result, link->where, "ncclCommInitRankConfig", err);
  if (status != TDICT_OK) {
    *parent = NULL; /* NCCL has freed the communicator */
    return status;
  }
  status = tdict_nccl_settle(link, parent, "ncclCommInitRankConfig", deadline, err);
  if (status != TDICT_OK) return status;
  result = api->split(*parent, 0, link->rank, &link->comm, &blocking);
  status = tdict_nccl_check(api, *parent, result, link->where, "ncclCommSplit", err);
  return status == TDICT_OK ? tdict_nccl_settle(link, parent, "ncclCommSplit", deadline, err) : status;
}

/* Takes the resources of the gpu and connects the ranks. On failure, the caller calls nccl_abort(). */
static tdict_status open_link(tdict_nccl_link *link, const tdict_nccl_options *o, tdict_error *err) {
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(link->gpu, &scope, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_take_stream(link->gpu, &link->stream, err);
  if (status == TDICT_OK) status = tdict_gpu_take_event(link->gpu, &link->event, err);
  if (status == TDICT_OK) status = tdict_nccl_make_stage(link, err);
  int major = 0;
  tdict_driver *d = link->gpu->driver;
  if (d->ops->device_attribute(d, link->gpu->ordinal, TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major) == 0)
    link->has_float8 = major >= TDICT_NCCL_FLOAT8_CAPABILITY && link->api.version >= TDICT_NCCL_FLOAT8;
  if (status == TDICT_OK) status = create_comms(link, o, err);
  if (status == TDICT_OK) status = tdict_nccl_watch_start(&link->watch, err);
  tdict_gpu_leave(link->gpu, &scope);
  return status;
}

static tdict_status create_link(const tdict_nccl_options *o, const tdict_nccl_api *api, tdict_gpu *gpu,
                                tdict_nccl_link **out, tdict_error *err) {
  tdict_nccl_link *link = calloc(1, sizeof *link);
  if (!link) return tdict_fail_memory(err, "nccl", NULL, "a table");
  link->api = *api;
  link->gpu = tdict_gpu_retain(gpu);
  tdict_device_format(gpu->memory.device, link->where, sizeof link->where);
  link->rank = o->rank;
  link->world = o->world_size;
  link->timeout_ns = o->timeout_ns;
  pthread_mutex_init(&link->lock, NULL);
  tdict_nccl_watch_init(&link->watch, &link->api);
  tdict_status status = open_link(link, o, err);
  if (status != TDICT_OK) {
    nccl_abort(link);
    free_link(link);
    return status;
  }
  *out = link;
  return TDICT_OK;
}

static tdict_status check_options(const tdict_nccl_options *o, tdict_error *err) {
  if (o->world_size < 1)
    return tdict_fail(err, TDICT_EINVAL, "nccl: world_size is %d, wanted 1 or more", (int)o->world_size);
  if (o->rank < 0 || o->rank >= o->world_size)
    return tdict_fail(err, TDICT_EINVAL, "nccl: rank is %d, wanted 0 to %d", (int)o->rank, (int)o->world_size - 1);
  if (o->timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "nccl: timeout_ns is %lld, wanted 0 or more", (long long)o->timeout_ns);
  return TDICT_OK;
}

tdict_status tdict_nccl_create_table(tdict_context *context, const tdict_nccl_options *options, tdict_comm_table *out,
                                     tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_nccl_options o = tdict_nccl_options_default();
  if (!context || !options || !out)
    return tdict_fail_null(err, "nccl", !context ? "context" : !options ? "options" : "out");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "options of nccl", err);
  if (status == TDICT_OK) status = tdict_options_check_size(out, sizeof *out, "table", err);
  if (status == TDICT_OK) status = check_options(&o, err);
  if (status != TDICT_OK) return status;
  tdict_gpu *gpu = NULL;
  status = tdict_devices_gpu(tdict_context_devices(context), o.device, &gpu, err);
  if (status != TDICT_OK) return status;
  tdict_nccl_api api;
  status = tdict_nccl_open(o.library, &api, err);
  if (status != TDICT_OK) return status;
  tdict_nccl_link *link = NULL;
  status = create_link(&o, &api, gpu, &link, err);
  if (status != TDICT_OK) return status;
  tdict_comm_table table = {.self = link,
                            .name = "nccl",
                            .rank = link->rank,
                            .world_size = link->world,
                            .device = gpu->memory.device,
                            .abort = nccl_abort,
                            .destroy = nccl_destroy};
  tdict_nccl_add_host_operations(&table);
  tdict_nccl_add_operations(&table);
  return tdict_options_write(out, &table, sizeof table, "table", err); /* the size is already checked */
}
