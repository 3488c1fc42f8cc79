/* Starts a transfer: checks options, plans, chooses threads, builds the result, and begins it. A `starter` lives for
 * one call; the future owns all else. Thread rule: see start.h. */
#include "engine/start.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "device/host.h"
#include "engine/finish.h"
#include "engine/options/burst.h"
#include "engine/options/check_sources.h"
#include "engine/options/hooks.h"
#include "engine/options/pace.h"
#include "engine/options/queue_limit.h"
#include "engine/options/stream_waits.h"
#include "engine/options/strips.h"
#include "engine/order.h"
#include "engine/plan/choose.h"
#include "engine/plan/collect.h"
#include "engine/plan/item.h"
#include "engine/plan/overlap.h"
#include "engine/plan/result.h"
#include "engine/worker.h"

enum { MAX_READERS = 15 }; /* threads that help the caller to read and mark a large tree */
/* Several threads set the destination addresses of items only if a plan has at least this many items. */
enum { MANY_ITEMS = 8192 };
/* If the root of a tree has at least this many keys, waking threads takes less time than reading the tree. */
enum { MANY_LEAVES = 2048 };

/* The smallest value of the option max_queued_bytes. Smaller copies would take most of their time to be queued. */
#define MIN_QUEUED_BYTES ((size_t)128 << 10)

typedef struct starter {
  tdict_engine *engine;
  const tdict_start *start;
  tdict_device device;
  tdict_gpu *gpu;       /* the target's GPU; NULL: the target is the cpu, or there is a destination */
  tdict_memory *memory; /* memory in which the result is allocated; NULL: ordinary host memory */
  bool want_pinned;     /* true: host leaves that are not pinned must be copied */
  bool builds_result;   /* true: this thread builds the result while other threads copy */
  tdict_plan plan;      /* moves to the transfer, when the transfer exists */
  tdict_collected collected;
  int64_t num_keep_matches;       /* number of entries that patterns of `keep` matched */
  int64_t num_conversion_matches; /* number of tensors that patterns of `conversions` matched */
  int32_t mode;
  size_t max_queued_bytes; /* limit of queued bytes, see tdict_queue_limit_choose(); 0: no limit */
  size_t max_copy_bytes;   /* limit of a driver copy, from max_queued_bytes and max_bytes_per_second; 0: no limit */
  tdict_host_cache *host_cache; /* allocates the result, which is large and in ordinary host memory; otherwise NULL */
  tdict_choice choice;
  tdict_beginning beginning;
  int64_t begin_ns; /* see tdict_future */
} starter;

static tdict_status check_options(const starter *s, tdict_error *err) {
  const tdict_transfer_options *o = &s->start->options;
  const char *what = s->start->what;
  if (!s->start->src) return tdict_fail(err, TDICT_EINVAL, "%s: src is NULL", what);
  if (o->mode < TDICT_MODE_AUTO || o->mode > TDICT_MODE_NON_BLOCKING_PIN)
    return tdict_fail(err, TDICT_EINVAL, "%s: mode is %d, wanted a tdict_mode", what, (int)o->mode);
  if (o->num_threads < -1 || (o->num_threads > 0 && o->num_threads > tdict_pool_size(s->engine->config.pool)))
    return tdict_pool_refuse_threads(s->engine->config.pool, o->num_threads, what, err);
  if (o->max_queued_bytes && o->max_queued_bytes < MIN_QUEUED_BYTES)
    return tdict_fail(err, TDICT_EINVAL, "%s: max_queued_bytes is %zu, wanted 0 or at least %zu", what,
                      o->max_queued_bytes, MIN_QUEUED_BYTES);
  if (o->max_bytes_per_second && tdict_pace_check(o->max_bytes_per_second, what, err) != TDICT_OK) return TDICT_EINVAL;
  if (o->stats && !s->start->caller_waits)
    return tdict_fail(err, TDICT_EINVAL,
                      "%s: stats must be NULL: call tdict_future_get_stats() after the transfer has ended", what);
  if (s->start->dst && (o->memory || o->pinned_result))
    return tdict_fail(err, TDICT_EINVAL, "%s: memory and pinned_result must not be set: the destination exists already",
                      what);
  return TDICT_OK;
}

/* Checks the option `after` even if no leaf must be copied, so that a wrong stream is always an error. */
static tdict_status check_after(const starter *s, tdict_error *err) {
  const tdict_stream after = s->start->options.after;
  tdict_gpu *gpu;
  if (!tdict_has_stream(after)) return tdict_stream_check_device(after, "options.after", err);
  return tdict_stream_open(s->engine->config.devices, after, "options.after", &gpu, err);
}

static tdict_status choose_memory(starter *s, tdict_error *err) {
  const tdict_transfer_options *o = &s->start->options;
  tdict_devices *devices = s->engine->config.devices;
  if (s->start->dst) return TDICT_OK;
  s->device = s->start->device.type == TDICT_DEVICE_AUTO ? tdict_devices_default(devices, NULL) : s->start->device;
  bool to_host = s->device.type == TDICT_DEVICE_CPU;
  tdict_status status = tdict_device_check(s->device, s->start->what, err);
  if (status == TDICT_OK && !to_host) status = tdict_devices_gpu(devices, s->device, &s->gpu, err);
  if (status != TDICT_OK) return status;
  if (o->memory && !tdict_device_equal(o->memory->device, s->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: options.memory is on %s, wanted memory on %s", s->start->what,
                      TDICT_DEVICE_TEXT(o->memory->device), TDICT_DEVICE_TEXT(s->device));
  if (o->memory && !tdict_devices_own_memory(devices, o->memory))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: options.memory is on %s of another context", s->start->what,
                      TDICT_DEVICE_TEXT(o->memory->device));
  if (o->pinned_result && !to_host)
    return tdict_fail(err, TDICT_EINVAL, "%s: pinned_result is for results on the cpu", s->start->what);
  if (o->pinned_result && o->memory && !o->memory->pinned)
    return tdict_fail(err, TDICT_EINVAL, "%s: pinned_result is set, but options.memory is not pinned", s->start->what);
  s->want_pinned = o->pinned_result || (o->memory && o->memory->pinned);
  s->memory = o->memory;
  if (!s->memory && to_host && o->pinned_result) s->memory = tdict_devices_pinned(devices);
  if (!s->memory && !to_host) s->memory = &s->gpu->memory;
  if (o->memory && o->memory == tdict_host_memory()) s->memory = NULL;
  return TDICT_OK;
}

/* Returns how many threads of the pool may work for the transfer, but at most `most` if the library chooses. */
static int count_threads(const starter *s, int most) {
  const int num_threads = s->start->options.num_threads, others = tdict_pool_num_cpus(s->engine->config.pool) - 1;
  return num_threads >= 0 ? num_threads : others < most ? others : most;
}

static tdict_status read_keep(const starter *s, tdict_patterns **out, tdict_error *err) {
  const tdict_transfer_options *o = &s->start->options;
  char what[64];
  snprintf(what, sizeof what, "%s: options.keep", s->start->what);
  return tdict_patterns_create(what, o->keep, o->num_keep, out, err);
}

static tdict_status collect_plan(starter *s, tdict_error *err) {
  const tdict_start *start = s->start;
  const tdict_transfer_options *o = &start->options;
  const bool has_helpers = s->mode == TDICT_MODE_NON_BLOCKING_PIN && o->num_threads != 0;
  tdict_plan used;
  tdict_plan_request request = {.devices = s->engine->config.devices,
                                .device = s->device,
                                .gpu = s->gpu,
                                .dst = start->dst,
                                .want_pinned = s->want_pinned,
                                .host_only = start->pin,
                                .copies = start->copies,
                                .keep_objects = o->keep_objects,
                                .mode = s->mode,
                                .may_read_pageable = o->mode == TDICT_MODE_AUTO,
                                .borrows = start->caller_waits && !start->dst,
                                .is_distinct = start->is_distinct,
                                .rows = start->rows,
                                .pool = has_helpers ? s->engine->config.pool : NULL,
                                .num_helpers = has_helpers ? count_threads(s, MAX_READERS) : 0,
                                .narrow = o->narrow,
                                .used = &used};
  tdict_status status = o->num_keep ? read_keep(s, &request.keep, err) : TDICT_OK;
  if (status == TDICT_OK && o->num_conversions)
    status = tdict_conversions_create(start->what, o->conversions, o->num_conversions, &request.conversions, err);
  if (status == TDICT_OK) {
    tdict_plan_take_used(&s->engine->used_plan, &used);
    status = start->named ? tdict_plan_collect_pairs(&s->collected, &request, start->pairs, start->num_pairs, err)
                          : tdict_plan_collect(&s->collected, &request, start->src, err);
  }
  if (request.conversions) {
    s->num_conversion_matches = tdict_patterns_count_matches(tdict_conversions_patterns(request.conversions));
    tdict_conversions_destroy(request.conversions);
  }
  if (request.keep) {
    s->num_keep_matches = tdict_patterns_count_matches(request.keep);
    tdict_patterns_destroy(request.keep);
  }
  return status;
}

/* Writes the numbers of objects and of matches of patterns to the statistics. These numbers do not change later, so the
 * thread that starts the transfer may read them at once. */
static void count_entries(const starter *s, tdict_transfer *t) {
  tdict_transfer_stats *stats = &t->future.stats;
  const tdict_objects *objects = t->plan.objects;
  stats->num_keep_matches = s->num_keep_matches;
  stats->num_conversion_matches = s->num_conversion_matches;
  if (!objects) return;
  stats->num_objects = objects->count;
  stats->num_objects_unpinned = objects->num_unpinned;
  stats->num_objects_kept = objects->num_kept;
  for (uint32_t i = 0; i < objects->count; i++) {
    const tdict_object_step *step = &objects->steps[i];
    stats->num_objects_pinned += step->pin || (s->want_pinned && step->action == TDICT_OBJECT_FLAT);
  }
}

/* Returns the NUMA node of the first GPU that writes to a new host result, or -1. The result's memory should be on
 * it. */
static int find_memory_node(const tdict_plan *p) {
  for (uint32_t i = 0; i < p->num_items; i++)
    if (p->items[i].gpu) return p->items[i].gpu->node;
  return -1;
}

/* Returns the first GPU that copies, else the target's GPU, or NULL if the transfer uses no GPU.
 * tdict_future_wait_on_stream() accepts only streams of devices of the same type as this GPU. */
static tdict_gpu *find_transfer_gpu(const starter *s) {
  tdict_gpu *gpu = NULL;
  for (uint32_t i = 0; i < s->plan.num_items && !gpu; i++) gpu = s->plan.items[i].gpu;
  return gpu ? gpu : s->gpu;
}

/* Allocates the storages of the result's new leaves, one for each target. */
static tdict_status make_storages(const starter *s, tdict_transfer *t, tdict_error *err) {
  const tdict_start *start = s->start;
  tdict_target *first = &t->targets[0];
  if (start->storage) first->storage = tdict_storage_retain(start->storage);
  if (start->dst || start->storage || t->plan.num_items == 0) return TDICT_OK;
  const size_t bytes = t->plan.line_bytes;
  const int node = s->collected.reads_device ? find_memory_node(&t->plan) : -1;
  tdict_status status = s->host_cache ? tdict_host_cache_storage(s->host_cache, bytes, &first->storage, err)
                                      : tdict_storage_create_near(s->memory, bytes, node, &first->storage, err);
  for (size_t i = 1; i < t->num_targets && status == TDICT_OK; i++) {
    t->targets[i].position = start->more_targets[i - 1].position;
    status = tdict_storage_create(start->more_targets[i - 1].memory, bytes, false, &t->targets[i].storage, err);
  }
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < t->num_targets; i++) t->targets[i].storage->flags |= TDICT_STORAGE_ARENA;
  if (!s->beginning.places_items) tdict_plan_place(&t->plan, first->storage);
  return TDICT_OK;
}

/* The allocation of the storages by a thread of the pool. */
typedef struct storage_task {
  tdict_task task; /* the first member, because the pool passes a pointer to `task` */
  const starter *starter;
  tdict_transfer *transfer;
  tdict_latch is_done;
  tdict_status status;
  tdict_error err;
} storage_task;

static void run_storage_task(tdict_task *task) {
  storage_task *a = (storage_task *)task;
  a->status = make_storages(a->starter, a->transfer, &a->err);
  tdict_latch_down(&a->is_done);
}

/* True for the first large transfer, not from a pool thread, that allocates a result and needs the GPU's ring. */
static bool is_first_use_of_ring(const starter *s, const tdict_transfer *t) {
  if (!t->gpu || s->start->dst || s->start->storage || t->plan.line_bytes < s->engine->config.staging_bytes)
    return false;
  if (tdict_pool_is_worker(s->engine->config.pool) || tdict_rings_pin_way(&s->engine->rings, t->gpu) != 0) return false;
  for (uint32_t i = 0; i < t->plan.num_items; i++)
    if (tdict_item_uses_slot(&t->plan.items[i])) return true;
  return false;
}

/* Allocates the storages on a pool thread, and meanwhile creates the ring: both take about 10 ms for 8 GB. If a worker
 * created it, one thread would pin, and all others would wait. Ignores a failure of the ring: the workers try again and
 * report it. */
static tdict_status make_storages_and_ring(const starter *s, tdict_transfer *t, tdict_error *err) {
  tdict_pool *pool = s->engine->config.pool;
  storage_task a = {.task = {.run = run_storage_task}, .starter = s, .transfer = t};
  tdict_gpu_scope scope;
  tdict_ring *ring;
  tdict_latch_init(&a.is_done, 1);
  tdict_pool_submit(pool, &a.task);
  if (tdict_gpu_enter(t->gpu, &scope, NULL) == TDICT_OK) (void)!tdict_rings_get(&s->engine->rings, t->gpu, &ring, NULL);
  tdict_gpu_leave(t->gpu, &scope);
  if (tdict_pool_remove(pool, &a.task)) run_storage_task(&a.task);
  tdict_latch_wait(&a.is_done, INT64_MAX);
  tdict_latch_destroy(&a.is_done);
  if (a.status != TDICT_OK && err) *err = a.err;
  return a.status;
}

static tdict_status make_result(const starter *s, tdict_transfer *t, tdict_error *err) {
  const tdict_start *start = s->start;
  const tdict_objects *objects = t->plan.objects;
  tdict_status status;
  bool flat = false;
  if (start->storage) {
    t->named = tdict_retain(start->named);
    t->future.result = start->result ? tdict_retain(start->result) : NULL;
    return TDICT_OK;
  }
  for (uint32_t i = 0; objects && i < objects->count; i++) flat |= objects->steps[i].flat != NULL;
  status = start->dst || flat ? tdict_result_mirror(&t->plan, start->src, &t->named, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (start->dst) {
    t->future.result = tdict_retain(start->result ? start->result : start->dst);
    return s->collected.may_overlap ? tdict_overlap_check(&t->plan, t->named, err) : TDICT_OK;
  }
  const tdict_target *first = &t->targets[0];
  status = tdict_result_build(&s->collected, start->src, first->storage, start->pin ? NULL : &s->device,
                              &t->future.result, err);
  for (size_t i = 1; i < t->num_targets && status == TDICT_OK; i++)
    status = tdict_result_for_target(&s->collected, t->future.result, first->storage, t->targets[i].storage,
                                     &t->targets[i].tree, err);
  return status;
}

/* Returns true if the result can be built while threads copy. Returns false if the tree has objects, because the
 * objects that hooks return are put into the result before copies begin. */
static bool builds_during_copies(const starter *s, const tdict_transfer *t) {
  bool threads = !t->how.on_caller || t->how.num_workers > 1;
  return threads && !s->start->dst && !s->start->storage && !t->plan.objects && t->plan.num_items > 0;
}

/* Lets threads of the pool that do not copy help to build a large result, because an asynchronous call then returns
 * sooner. If such threads are few, waking them takes longer than they save. */
static void choose_builders(starter *s, const tdict_transfer *t) {
  enum { LEAST_BUILDERS = 3, MOST_BUILDERS = 7 }; /* each thread takes a few microseconds to wake */
  if (s->mode != TDICT_MODE_NON_BLOCKING_PIN || (s->builds_result && s->start->caller_waits)) return;
  const int count = count_threads(s, t->how.num_workers + MOST_BUILDERS) - t->how.num_workers;
  if (count < LEAST_BUILDERS) return;
  s->collected.pool = s->engine->config.pool;
  s->collected.num_builders = count;
}

/* Builds the result while threads copy. On failure, the transfer fails. */
static tdict_status build_during_copies(const starter *s, tdict_transfer *t, tdict_error *err) {
  tdict_error why;
  tdict_status status = make_result(s, t, &why);
  if (status != TDICT_OK) {
    atomic_store_explicit(&t->future.error_was_reported, true, memory_order_relaxed);
    tdict_transfer_fail(t, UINT32_MAX, &why);
    if (err) *err = why;
  }
  tdict_transfer_built(t);
  return status;
}

/* Returns true if the result is the source tree itself: no leaf must be copied, and no hook must run. If the tree has
 * no leaves and the call is not tdict_pin_memory(), the tree must also be on the target device. */
static bool is_already_there(const starter *s) {
  const tdict_plan *plan = s->collected.plan;
  tdict_device tree_device;
  if (s->start->dst || s->start->storage || plan->num_items > 0) return false;
  if (plan->objects && plan->objects->num_hooked) return false;
  if (plan->num_leaves > 0) return true;
  return s->start->pin || (tdict_get_device(s->start->src, &tree_device) && tdict_device_equal(tree_device, s->device));
}

/* Returns true if one thread can queue all copies without waiting: there are at most TDICT_DIRECT_IN_FLIGHT chunks and
 * no strided leaf. A strided leaf can need any number of driver copies. */
static bool is_queued_without_waiting(const tdict_plan *plan, size_t max_queued_bytes) {
  bool plain = !max_queued_bytes || plan->line_bytes <= max_queued_bytes;
  for (uint32_t i = 0; i < plan->num_items && plain; i++) plain = plan->items[i].src_plain && plan->items[i].dst_plain;
  return plain && plan->num_chunks <= TDICT_DIRECT_IN_FLIGHT;
}

static tdict_status cut_plan(const starter *s, tdict_transfer *t, tdict_error *err) {
  const tdict_tuning_row *row = &s->choice.row;
  if (s->mode == TDICT_MODE_NON_BLOCKING_PIN && t->plan.way_bytes[TDICT_WAY_DIRECT]) tdict_plan_stage_small(&t->plan);
  const tdict_cut cut = {row->first_bytes, row->chunk_bytes, s->max_copy_bytes, s->mode == TDICT_MODE_BLOCKING,
                         s->collected.num_uniform};
  return tdict_plan_cut(&t->plan, &cut, err);
}

/* Prepares the memory, the result, the chunks, the optional parts and the waits, before copies begin. */
static tdict_status prepare_transfer(starter *s, tdict_transfer *t, tdict_context *context, tdict_error *err) {
  const tdict_start *start = s->start;
  if (is_already_there(s)) {
    t->future.result = tdict_retain(start->src);
    return TDICT_OK;
  }
  const int num_helpers = s->choice.how.num_workers > 1 ? count_threads(s, MAX_READERS) : 0;
  const bool places_items = num_helpers > 0 && t->plan.num_items >= MANY_ITEMS && !start->dst && !start->storage &&
                            !t->plan.objects && s->collected.num_uniform == t->plan.num_items;
  s->beginning = (tdict_beginning){start->src,  start->awaits, start->num_awaits,
                                   num_helpers, places_items,  s->choice.on_caller_if_ready};
  tdict_status status = is_first_use_of_ring(s, t) ? make_storages_and_ring(s, t, err) : make_storages(s, t, err);
  s->builds_result = builds_during_copies(s, t);
  if (t->plan.num_leaves >= TDICT_PARALLEL_LEAVES) choose_builders(s, t);
  if (status == TDICT_OK && !s->builds_result) status = make_result(s, t, err);
  if (status != TDICT_OK) return status;
  const size_t max_queued_bytes = s->max_queued_bytes;
  status = cut_plan(s, t, err);
  const int64_t rate = start->options.max_bytes_per_second;
  if (s->choice.on_caller_if_ready && status == TDICT_OK &&
      (rate || !is_queued_without_waiting(&t->plan, max_queued_bytes)))
    t->how.on_caller = false;
  if (status == TDICT_OK && s->choice.num_strips > 1) status = tdict_strips_create(t, s->choice.num_strips, err);
  if (status == TDICT_OK && rate) status = tdict_pace_create(rate, &t->pace, err);
  if (status == TDICT_OK && t->plan.num_chunks >= TDICT_BURST_CHUNKS && t->num_targets == 1 && !rate)
    status = tdict_burst_create(&t->plan, max_queued_bytes, s->engine->rings.num_slots, s->engine->rings.slot_bytes,
                                &t->burst, err);
  if (status == TDICT_OK && max_queued_bytes)
    status = tdict_queue_limit_create(max_queued_bytes, t->how.num_workers * TDICT_LANE_DEPTH, &t->queue_limit, err);
  if (status == TDICT_OK && start->options.check_sources) status = tdict_check_sources_prepare(t, err);
  if (status == TDICT_OK && t->plan.objects)
    status = tdict_hooks_prepare(t, context, s->device, s->memory, tdict_to_device, err);
  const bool waits = start->options.after.device.type || s->collected.reads_device || t->plan.writes_existing;
  if (status == TDICT_OK && waits)
    status = tdict_stream_waits_record(t, start->options.after, start->storage != NULL, err);
  return status;
}

/* Does the work of the first worker on the starting thread if on_caller is set. If the transfer had to wait for another
 * transfer, on_caller may have become false. In this case, a pool thread does the work. */
static void work_on_caller(tdict_transfer *t, bool returns_early) {
  if (!t->how.on_caller) return;
  if (t->num_edges) {
    if (t->how.spin_ns > 0) tdict_latch_spin(&t->may_start, tdict_deadline_ns(t->how.spin_ns));
    (void)tdict_future_wait_latch(&t->future, &t->may_start, INT64_MAX);
  }
  if (t->how.on_caller && returns_early)
    tdict_work_and_return(&t->workers[0]);
  else if (t->how.on_caller)
    tdict_work_with_others(&t->workers[0]);
}

/* Begins the transfer. A transfer without work ends at once. */
static tdict_status begin_transfer(const starter *s, tdict_transfer *t, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (t->plan.num_items == 0 && !t->hooks) {
    tdict_transfer_end_at_once(t);
    return status;
  }
  const bool returns_early =
      t->how.on_caller && !s->start->caller_waits && !tdict_pool_is_worker(s->engine->config.pool);
  if (returns_early && !tdict_deferred_tail_create(t))
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to pass its end to the pool");
  if (t->hooks) { /* after this point, errors are returned by the future and not by this call */
    const bool here = t->how.on_caller;
    tdict_hooks_run(t);
    if (here && tdict_hooks_begin_copies(t)) work_on_caller(t, returns_early);
    return status;
  }
  if (s->builds_result) tdict_transfer_will_build(t);
  status = tdict_transfer_begin(t, &s->beginning, err);
  if (status != TDICT_OK) return status;
  if (s->builds_result) status = build_during_copies(s, t, err);
  work_on_caller(t, returns_early);
  if (status != TDICT_OK)
    (void)!tdict_future_wait(&t->future, NULL, NULL); /* copies are in flight, so wait for the end */
  return status;
}

/* Returns the limit of a driver copy, or 0 if the options set no limit. */
static size_t choose_max_copy_bytes(const starter *s, int64_t rate) {
  const bool is_staged = s->plan.way_bytes[TDICT_WAY_STAGE_IN] > 0;
  const size_t by_limit = s->max_queued_bytes ? tdict_queue_limit_chunk_bytes(s->max_queued_bytes, is_staged) : 0;
  const size_t by_pace = rate ? tdict_pace_piece_bytes(rate) : 0;
  return by_limit && (!by_pace || by_limit < by_pace) ? by_limit : by_pace;
}

/* Chooses threads and chunks. Wakes the pool threads now, so that these threads are awake when the calling thread has
 * prepared the transfer. */
static void choose_work(starter *s) {
  const tdict_start *start = s->start;
  const int64_t rate = start->options.max_bytes_per_second;
  /* Loads, and the parts of a large replication, have no limit by default: their rate was not measured with a limit. */
  const bool may_choose = !start->reads_files && !start->storage;
  if (start->options.max_queued_bytes || (may_choose && s->plan.line_bytes > TDICT_QUEUE_LIMIT_FROM))
    s->max_queued_bytes = tdict_queue_limit_choose(start->options.max_queued_bytes, &s->plan);
  if (s->max_queued_bytes || rate) s->max_copy_bytes = choose_max_copy_bytes(s, rate);
  const size_t bytes = s->plan.line_bytes;
  if (!start->dst && !start->storage && !s->memory && bytes >= TDICT_HOST_CACHE_FROM)
    s->host_cache = s->engine->host_cache;
  s->choice =
      tdict_choose(&(tdict_choice_request){.plan = &s->plan,
                                           .pool = s->engine->config.pool,
                                           .tuning = &s->engine->tuning,
                                           .slot_bytes = s->engine->rings.slot_bytes,
                                           .num_slots = s->engine->rings.num_slots,
                                           .num_threads = start->options.num_threads,
                                           .mode = s->mode,
                                           .reuses_memory = s->host_cache && tdict_host_cache_has(s->host_cache, bytes),
                                           .max_copy_bytes = s->max_copy_bytes,
                                           .max_workers = rate ? tdict_pace_num_threads(rate) : 0,
                                           .caller_waits = start->caller_waits,
                                           .reads_files = start->reads_files,
                                           .best_stores = s->engine->best_stores,
                                           .rows = start->rows});
  int others = s->choice.how.num_workers - (s->choice.how.on_caller ? 1 : 0);
  atomic_store_explicit(&s->engine->last_helpers, others, memory_order_relaxed);
  if (others > 0 && s->choice.wakes_in_chain)
    tdict_pool_wake_chain(s->engine->config.pool, others);
  else if (others > 0)
    tdict_pool_wake(s->engine->config.pool, others);
}

/* Reads the tree and creates the future, which then owns the plan. */
static tdict_status make_transfer(starter *s, tdict_transfer **out, tdict_error *err) {
  const tdict_start *start = s->start;
  const tdict_choice *choice = &s->choice;
  tdict_transfer *t;
  tdict_status status = collect_plan(s, err);
  if (status != TDICT_OK) return status;
  tdict_gpu *gpu = find_transfer_gpu(s);
  choose_work(s);
  status = tdict_transfer_create(s->engine, choice->how.num_workers, 1 + start->num_more_targets, &t, err);
  if (status != TDICT_OK) {
    tdict_plan_reset(&s->plan);
    return status;
  }
  t->plan = s->plan;
  s->collected.plan = &t->plan;
  t->future.stats.peer_bytes = s->collected.peer_bytes;
  for (int i = 0; i < t->how.num_workers; i++) t->workers[i].task.run = tdict_work;
  t->gpu = gpu ? tdict_gpu_retain(gpu) : NULL;
  t->future.begin_ns = s->begin_ns;
  t->how = choice->how;
  if (t->plan.objects || start->options.num_keep || start->options.num_conversions) count_entries(s, t);
  t->targets[0].position = start->position;
  if (start->promise) tdict_future_begin_part(start->promise, &t->future);
  *out = t;
  return TDICT_OK;
}

/* Wakes as many pool threads as the last transfer used, which this one probably needs. They wake up while the caller
 * reads the tree. */
static void wake_helpers(const tdict_engine *e) {
  int count = atomic_load_explicit(&e->last_helpers, memory_order_relaxed);
  if (count > 0) tdict_pool_wake(e->config.pool, count);
}

static tdict_status check_start(starter *s, tdict_error *err) {
  tdict_status status = tdict_forkmark_check(s->engine->config.mark, s->start->what, err);
  if (status == TDICT_OK) status = check_options(s, err);
  const tdict_stream *after = &s->start->options.after;
  if (status == TDICT_OK && (after->device.type || after->handle)) status = check_after(s, err);
  return status == TDICT_OK ? choose_memory(s, err) : status;
}

tdict_status tdict_start_transfer(tdict_context *context, const tdict_start *start, tdict_future **out,
                                  tdict_error *err) {
  if (!context) return tdict_fail(err, TDICT_EINVAL, "%s: the context is NULL", start->what);
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", start->what);
  TDICT_UNCANCELLED;
  starter s = {.engine = tdict_context_engine(context), .start = start};
  s.collected.plan = &s.plan;
  const bool is_traced = atomic_load_explicit(&s.engine->tracer.on, memory_order_relaxed);
  if (is_traced || !start->caller_waits || start->options.stats || start->promise) s.begin_ns = tdict_now_ns();
  s.mode = start->options.mode == TDICT_MODE_AUTO ? TDICT_MODE_NON_BLOCKING_PIN : start->options.mode;
  tdict_transfer *t;
  tdict_status status = check_start(&s, err);
  if (status != TDICT_OK) return status;
  const bool is_read = !start->storage && start->src->keys->num_live >= MANY_LEAVES && !start->src->consolidated &&
                       !tdict_node_attachment(start->src, TDICT_ATTACHED_BLOCK);
  if (is_read) wake_helpers(s.engine);
  tdict_range_push(TDICT_RANGE_PLAN);
  status = make_transfer(&s, &t, err);
  if (status != TDICT_OK) {
    tdict_range_pop();
    return status;
  }
  if (is_traced) tdict_trace_join(&t->traced, &s.engine->tracer);
  status = prepare_transfer(&s, t, context, err);
  const size_t traced_bytes = t->traced.recording ? tdict_plan_bytes(&t->plan) : 0;
  (void)tdict_phase_end(t, TDICT_RANGE_PLAN, s.begin_ns, traced_bytes);
  if (status == TDICT_OK) status = begin_transfer(&s, t, err);
  if (status != TDICT_OK) {
    tdict_future_end_part(&t->future);
    tdict_future_release(&t->future);
    return status;
  }
  *out = &t->future;
  return TDICT_OK;
}
