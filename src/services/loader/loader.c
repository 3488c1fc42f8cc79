/* Creates and destroys loaders. The loader owns everything that these functions
 * allocate. Thread rule: see tdict/loader.h. */
#include "tdict/loader.h"

#include <stdlib.h>

#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/tree/create_from.h"
#include "engine/engine.h"
#include "engine/options/conversions.h"
#include "services/loader/loader_internal.h"

enum { MAX_WORKERS = 1024, MAX_PREFETCH = 1 << 20 };

static tdict_status check_loader_options(const tdict_loader_options *o, tdict_error *err) {
  if (o->batch_size < 1)
    return tdict_fail(err, TDICT_EINVAL, "loader: batch_size is %lld, wanted 1 or more", (long long)o->batch_size);
  if (o->num_workers < 0 || o->num_workers > MAX_WORKERS)
    return tdict_fail(err, TDICT_EINVAL, "loader: num_workers is %d, wanted 0 to %d", (int)o->num_workers, MAX_WORKERS);
  if (o->prefetch < 0 || o->prefetch > MAX_PREFETCH)
    return tdict_fail(err, TDICT_EINVAL, "loader: prefetch is %d, wanted 0 to %d", (int)o->prefetch, MAX_PREFETCH);
  if (o->timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "loader: timeout_ns is %lld, wanted 0 or more", (long long)o->timeout_ns);
  if ((o->collate != NULL) + o->pad + (o->pack != NULL) > 1)
    return tdict_fail(err, TDICT_EINVAL, "loader: both %s and %s are set", o->collate ? "collate" : "pad",
                      o->pack ? "pack" : "pad");
  if (o->on_error < TDICT_ON_ERROR_FAIL || o->on_error > TDICT_ON_ERROR_SKIP_BATCH)
    return tdict_fail(err, TDICT_EINVAL, "loader: on_error is %d, which is no tdict_on_error", (int)o->on_error);
  if (o->on_error == TDICT_ON_ERROR_SKIP_SAMPLE && o->max_tokens > 0)
    return tdict_fail(err, TDICT_EINVAL, "loader: both max_tokens and on_error SKIP_SAMPLE are set");
  if (o->pad_masks && !o->pad) return tdict_fail(err, TDICT_EINVAL, "loader: pad_masks is set, but pad is not");
  if (o->max_tokens < 0)
    return tdict_fail(err, TDICT_EINVAL, "loader: max_tokens is %lld, wanted 0 or more", (long long)o->max_tokens);
  if (o->sampler && o->shuffle)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader: both sampler and shuffle are set: give the sampler the kind SHUFFLED");
  if (o->plan_epoch && (o->sampler || o->shuffle || o->max_tokens > 0))
    return tdict_fail(err, TDICT_EINVAL, "loader: both plan_epoch and %s are set",
                      o->sampler   ? "sampler"
                      : o->shuffle ? "shuffle"
                                   : "max_tokens");
  if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
    return tdict_fail(err, TDICT_EINVAL, "loader: rank is %d of %d, wanted 0 to world_size - 1", (int)o->rank,
                      (int)o->world_size);
  if (o->sampler && o->world_size > 1)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader: both sampler and world_size are set: give the sampler the world_size");
  return TDICT_OK;
}

/* Checks the conversions here, so that a bad pattern fails tdict_loader_create() and not the first
 * batch. */
static tdict_status check_conversions(const tdict_loader_options *o, tdict_error *err) {
  tdict_conversions *read = NULL;
  if (!o->num_conversions) return TDICT_OK;
  tdict_status status = tdict_conversions_create("loader", o->conversions, o->num_conversions, &read, err);
  tdict_conversions_destroy(read);
  return status;
}

/* Checks the dataset's fields here, so that a bad field fails tdict_loader_create() and not the first batch. */
static tdict_status check_dataset_fields(const tdict_loader *l, tdict_error *err) {
  tdict_error why = {0};
  const tdict_fields list = {l->table->fields, l->table->num_fields};
  tdict_status status = tdict_fields_check(&list, l->options.batch_size, &why);
  if (status == TDICT_OK) return TDICT_OK;
  tdict_fail(err, status, "loader: the dataset's fields: %.200s", why.message);
  return why.path[0] ? tdict_error_at(err, status, why.path) : status;
}

/* Copies the pack options. If num_tokens is set, num_tokens must be at least max_tokens. If num_sequences is set,
 * num_sequences must be at least batch_size. */
static tdict_status read_pack_options(tdict_loader *l, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  if (!o->pack) return TDICT_OK;
  l->pack = tdict_pack_options_default();
  tdict_status status = tdict_options_read(&l->pack, sizeof l->pack, o->pack, "pack options", err);
  if (status != TDICT_OK) return status;
  if (!l->pack.cu_seqlens || !l->pack.max_seqlen)
    return tdict_fail(err, TDICT_EINVAL, "loader: pack has a path that is NULL");
  if (l->pack.num_tokens && l->pack.num_tokens < o->max_tokens)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader: num_tokens of pack is %lld, wanted at least max_tokens, which is %lld",
                      (long long)l->pack.num_tokens, (long long)o->max_tokens);
  if (l->pack.num_sequences && l->pack.num_sequences < o->batch_size)
    return tdict_fail(err, TDICT_EINVAL,
                      "loader: num_sequences of pack is %lld, wanted at least batch_size, which is %lld",
                      (long long)l->pack.num_sequences, (long long)o->batch_size);
  return TDICT_OK;
}

/* Chooses how to fetch. If the dataset can write rows and no option needs separate samples, sets `by_row`. The dataset
 * then writes rows into the batch. In all other cases, the dataset returns a tree for each sample. The options
 * `collate`, `pad` and `pack` need these trees. */
static tdict_status choose_fetch(tdict_loader *l, tdict_error *err) {
  const tdict_dataset_table *t = l->table;
  const bool wants_samples = l->options.collate || l->options.pad || l->options.pack;
  const bool skips = l->options.on_error == TDICT_ON_ERROR_SKIP_SAMPLE;
  if (skips && l->epoch.dataset_length < 0)
    return tdict_fail(err, TDICT_EINVAL, "loader: on_error SKIP_SAMPLE needs a dataset with a length");
  l->by_row = !wants_samples && t->fields && (t->fetch || (t->fetch_batch && l->epoch.dataset_length >= 0 && !skips));
  if (l->by_row) return check_dataset_fields(l, err);
  if (t->fetch_sample) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "loader: %s needs a dataset with fetch_sample",
                    l->options.collate ? "collate"
                    : l->options.pad   ? "pad"
                    : l->options.pack  ? "pack"
                    : skips            ? "on_error SKIP_SAMPLE without fetch"
                                       : "a stream without fetch");
}

/* Makes the first epoch, and its plan if epochs have plans. */
static tdict_status plan_batches(tdict_loader *l, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  tdict_status status = tdict_loader_plan_epoch(l, l->epoch.dataset_length, &l->epoch, err);
  if (status != TDICT_OK || !tdict_loader_has_plans(l)) return status;
  if (o->max_tokens > 0 && (tdict_loader_is_stream(l) || !l->table->sample_length))
    return tdict_fail(err, TDICT_EINVAL, "loader: max_tokens needs a dataset with length and sample_length");
  status = tdict_epoch_plan_make(&l->plan, l, l->epoch.sampler, 0);
  if (status != TDICT_OK) {
    if (err) *err = l->plan.failure;
    return status;
  }
  l->epoch.num_batches = l->plan.num_batches;
  if (!o->endless || l->plan.num_batches > 0 || l->table->length_varies) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "loader: endless is set, but an epoch has no batch%s",
                    o->drop_last ? ", and drop_last is set" : "");
}

/* Finds the device on which batches are delivered, and the memory in which batches are made on the host. Batches for a
 * GPU are made in pinned memory, because only copies from pinned memory are asynchronous. */
static tdict_status resolve_device(tdict_loader *l, tdict_error *err) {
  tdict_device given = l->options.device;
  tdict_devices *devices = tdict_context_devices(l->context);
  l->device = given.type == TDICT_DEVICE_AUTO ? tdict_context_device(l->context, NULL) : given;
  tdict_status status = tdict_device_check(l->device, "loader: device", err);
  if (status != TDICT_OK) return status;
  if (l->device.type == TDICT_DEVICE_CPU) {
    if (l->options.pin_memory) l->memory = tdict_pinned_memory(l->context);
    return l->options.pin_memory ? tdict_devices_can_pin(devices, "loader: pin_memory", err) : TDICT_OK;
  }
  tdict_gpu *gpu;
  status = tdict_devices_gpu(devices, l->device, &gpu, err);
  l->memory = tdict_pinned_memory(l->context);
  return status;
}

static tdict_status allocate_slots(tdict_loader *l, tdict_error *err) {
  const tdict_loader_options *o = &l->options;
  l->depth = o->num_workers == 0 ? 1 : o->prefetch ? o->prefetch : 2 * o->num_workers;
  l->slots = calloc((size_t)l->depth, sizeof *l->slots);
  l->workers = calloc((size_t)o->num_workers + 1, sizeof *l->workers);
  bool has_memory = l->slots && l->workers;
  for (int32_t i = 0; i < l->depth && has_memory; i++) {
    l->slots[i].indices = calloc((size_t)o->batch_size, sizeof *l->slots[i].indices);
    l->slots[i].samples = calloc((size_t)o->batch_size, sizeof *l->slots[i].samples);
    has_memory = l->slots[i].indices && l->slots[i].samples;
  }
  if (has_memory) return TDICT_OK;
  return tdict_fail_memory(err, "loader", NULL, "%d batches of %lld samples", (int)l->depth, (long long)o->batch_size);
}

/* Frees the loader, its prefetched batches and their transfers. Releases the dataset last, because batches may refer to
 * memory of the dataset. Call only after the workers have stopped. */
static void free_loader(tdict_loader *l) {
  for (int32_t i = 0; i < l->depth && l->slots; i++) tdict_loader_empty_slot(&l->slots[i]);
  for (int i = 0; i < TDICT_LOADER_MAX_IN_FLIGHT; i++)
    if (l->in_flight[i]) l->in_flight[i]->ops->release(l->in_flight[i]);
  for (int32_t i = 0; i < l->depth && l->slots; i++) {
    free(l->slots[i].indices);
    free(l->slots[i].samples);
  }
  free(l->slots);
  free(l->workers);
  free(l->logged);
  tdict_epoch_plan_reset(&l->plan);
  tdict_sampler_release(l->epoch.sampler);
  tdict_sampler_release((tdict_sampler *)l->options.sampler);
  tdict_forkmark_release(l->mark);
  pthread_cond_destroy(&l->can_begin);
  pthread_cond_destroy(&l->batch_done);
  pthread_cond_destroy(&l->can_fetch);
  pthread_mutex_destroy(&l->lock);
  tdict_dataset_release(l->dataset);
  free(l);
}

/* Initializes the locks and condition variables. Timed waits use deadlines of the monotonic clock, so `batch_done` must
 * also use that clock. */
static void init_sync(tdict_loader *l) {
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->can_begin, NULL);
  tdict_cond_init_monotonic(&l->batch_done);
  pthread_cond_init(&l->can_fetch, NULL);
}

static tdict_status set_up_loader(tdict_loader *l, tdict_error *err) {
  int64_t length = l->table->length ? l->table->length(l->table->self) : -1;
  l->epoch.dataset_length = length < 0 ? -1 : length;
  l->awaits_epoch = l->table->length_varies;
  tdict_status status = resolve_device(l, err);
  if (status == TDICT_OK) status = read_pack_options(l, err);
  if (status == TDICT_OK) status = choose_fetch(l, err);
  if (status == TDICT_OK) status = plan_batches(l, err);
  if (status == TDICT_OK) status = allocate_slots(l, err);
  return status == TDICT_OK ? tdict_loader_start_workers(l, err) : status;
}

tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                 const tdict_loader_options *options, tdict_loader **out, tdict_error *err) {
  if (!context || !dataset || !out)
    return tdict_fail_null(err, "loader", !context ? "the context" : dataset ? "out" : "the dataset");
  tdict_loader_options o = tdict_loader_options_default();
  tdict_forkmark *mark = tdict_context_engine(context)->config.mark;
  tdict_status status = tdict_options_read(&o, sizeof o, options, "loader options", err);
  if (status == TDICT_OK) status = check_loader_options(&o, err);
  if (status == TDICT_OK) status = check_conversions(&o, err);
  if (status == TDICT_OK) status = tdict_forkmark_check(mark, "loader", err);
  if (status != TDICT_OK) return status;
  tdict_loader *l = calloc(1, sizeof *l);
  if (!l) return tdict_fail_memory(err, "loader", NULL, "its record");
  l->context = context;
  l->tracer = tdict_context_tracer(context);
  l->options = o;
  if (o.sampler) tdict_sampler_retain(o.sampler);
  l->dataset = tdict_dataset_retain(dataset);
  l->table = &l->dataset->table;
  l->mark = tdict_forkmark_retain(mark);
  init_sync(l);
  status = set_up_loader(l, err);
  return TDICT_HAND_OVER(status, l, out, free_loader);
}

void tdict_loader_destroy(tdict_loader *l) {
  if (!l) return;
  if (tdict_forkmark_forked(l->mark)) { /* The threads, locks and batches belong to the parent process. */
    free(l->slots);
    free(l->workers);
    free(l->logged);
    free(l);
    return;
  }
  tdict_loader_stop_workers(l);
  if (tdict_loader_finish_previous(l, NULL) != TDICT_OK) tdict_release(l->previous);
  free_loader(l);
}

int64_t tdict_loader_length(const tdict_loader *l) {
  if (tdict_forkmark_forked(l->mark)) return l->epoch.num_batches; /* the lock belongs to the parent process */
  pthread_mutex_t *lock = (pthread_mutex_t *)&l->lock;             /* The lock changes even for a const loader. */
  pthread_mutex_lock(lock);
  int64_t num_batches = l->epoch.num_batches;
  pthread_mutex_unlock(lock);
  return num_batches;
}

tdict_status tdict_loader_get_stats(tdict_loader *l, tdict_loader_stats *out, tdict_error *err) {
  if (!l || !out) return tdict_fail_null(err, "loader stats", l ? "out" : "the loader");
  tdict_status status = tdict_forkmark_check(l->mark, "loader stats", err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&l->lock);
  tdict_loader_stats s = l->stats;
  s.num_ready = l->num_ready;
  s.mean_ready = l->num_calls ? (double)l->ready_sum / (double)l->num_calls : 0;
  pthread_mutex_unlock(&l->lock);
  return tdict_options_write(out, &s, sizeof s, "loader stats", err);
}
