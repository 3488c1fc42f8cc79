/* Makes a batch: fetches its samples, collates the samples, and pins the batch or sends the batch to the device.
 * Ownership: the calling thread owns the slot and its contents during a call. Thread rule: several threads may call
 * these functions at once, each with a different slot. The caller of tdict_loader_fill_slot() holds no lock. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/tree/create_from.h"
#include "core/tree/cursor.h"
#include "engine/transfer.h"
#include "services/loader/loader_internal.h"
#include "services/loader/sampler.h"
#include "tdict/combine.h"
#include "tdict/index.h"

#define STOP_CHECK_NS 5000000 /* a worker that waits for a transfer checks at this interval whether the loader stops */

/* Puts the index of the sample before the message of a dataset function. If `index` is -1, uses the number of the batch
 * instead. Keeps the native code and the path of the error. Returns `status`. */
static tdict_status name_failed_sample(const tdict_loader *l, tdict_loader_slot *slot, int64_t index,
                                       tdict_status status) {
  const tdict_error why = slot->error;
  const char *name = l->table->name ? l->table->name : "dataset";
  if (index >= 0)
    tdict_fail_native(&slot->error, status, why.native, "loader: sample %lld of %s: %.160s", (long long)index, name,
                      why.message);
  else
    tdict_fail_native(&slot->error, status, why.native, "loader: batch %lld of %s: %.160s",
                      (long long)slot->position.batch, name, why.message);
  if (why.path[0]) tdict_error_at(&slot->error, status, why.path);
  return status;
}

/* Replaces the tree of a slot, and takes over the caller's reference to `tree`. */
static void set_tree(tdict_loader_slot *slot, tdict_tree *tree) {
  tdict_release(slot->tree);
  slot->tree = tree;
}

/* Returns the position in the epoch, counted over all ranks, of sample `i` of a batch. */
static int64_t position_of(const tdict_loader *l, const tdict_loader_slot *slot, int64_t i) {
  const tdict_sampler *sampler = l->epoch.sampler;
  if (!sampler || tdict_loader_has_plans(l)) return slot->first + i;
  return (slot->first + i) * sampler->options.world_size + sampler->options.rank;
}

/* Describes the batch to the functions of the program. */
static void describe_batch(const tdict_loader *l, tdict_loader_slot *slot) {
  const tdict_sampler *sampler = l->epoch.sampler;
  tdict_fetch_info info = tdict_fetch_info_default();
  info.epoch = slot->position.epoch;
  info.batch = slot->position.batch;
  info.position = position_of(l, slot, 0);
  if (sampler) {
    info.rank = sampler->options.rank;
    info.world_size = sampler->options.world_size;
  }
  info.worker = slot->worker;
  info.seed = l->options.seed;
  info.worker_state = l->workers[slot->worker].state;
  info.memory = l->memory;
  slot->info = info;
}

/* Writes the indices of the batch's samples. The indices of a stream are consecutive numbers. With plan_epoch, the slot
 * has the indices already. */
static void find_indices(const tdict_loader *l, tdict_loader_slot *slot) {
  const tdict_sampler *sampler = l->epoch.sampler;
  if (l->options.plan_epoch) return;
  for (int64_t i = 0; i < slot->count; i++) {
    int64_t position = slot->first + i;
    slot->indices[i] = !sampler                    ? position
                       : l->options.max_tokens > 0 ? tdict_sampler_draw(sampler, slot->position.epoch, position)
                                                   : tdict_sampler_get(sampler, slot->position.epoch, position);
  }
}

/* Shortens the batch to the rows that were read before the stream ended. */
static tdict_status cut_to_count(tdict_loader_slot *slot) {
  tdict_tree *cut;
  tdict_status status =
      tdict_index_get(NULL, slot->tree, TDICT_INDEX(TDICT_RANGE(0, slot->count, 1)), NULL, &cut, &slot->error);
  if (status == TDICT_OK) set_tree(slot, cut);
  return status;
}

/* Fetches sample `i` of the batch, into a row or as a tree, which the slot owns. */
static tdict_status fetch_sample(const tdict_loader *l, tdict_loader_slot *slot, int64_t i) {
  const tdict_dataset_table *t = l->table;
  tdict_tree *sample = NULL;
  tdict_error_clear(&slot->error);
  slot->info.position = position_of(l, slot, i);
  if (l->by_row) {
    const tdict_status written = t->fetch(t->self, &slot->info, slot->indices[i], slot->tree, i, &slot->error);
    return tdict_callback_status(written, "fetch", &slot->error);
  }
  tdict_status status = t->fetch_sample(t->self, &slot->info, slot->indices[i], &sample, &slot->error);
  status = tdict_callback_status(status, "fetch_sample", &slot->error);
  if (status == TDICT_OK && !sample)
    status = tdict_fail(&slot->error, TDICT_EHOOK, "fetch_sample returned TDICT_OK and no tree");
  if (status == TDICT_OK) slot->samples[slot->num_fetched++] = sample;
  return status;
}

/* Returns whether `on_error` can skip an error. Exhausted memory says nothing about the samples. */
static bool is_of_samples(tdict_status status) { return status != TDICT_OK && status != TDICT_ENOMEM; }

/* If a sample cannot be fetched, logs this, and fetches the sample with the next index instead. */
static tdict_status fetch_another(tdict_loader *l, tdict_loader_slot *slot, int64_t i, tdict_status status) {
  for (int n = 0; is_of_samples(status) && n < TDICT_LOADER_MOST_SKIPS; n++) {
    (void)!name_failed_sample(l, slot, slot->indices[i], status);
    tdict_loader_skip_sample(l, slot->indices[i], &slot->error);
    slot->indices[i] = (slot->indices[i] + 1) % l->epoch.dataset_length;
    status = fetch_sample(l, slot, i);
  }
  return status;
}

/* Fetches the samples one by one. If a stream ends, the batch has the samples before the end. */
static tdict_status fetch_samples(tdict_loader *l, tdict_loader_slot *slot) {
  for (int64_t i = 0; i < slot->count; i++) {
    tdict_status status = fetch_sample(l, slot, i);
    if (l->options.on_error == TDICT_ON_ERROR_SKIP_SAMPLE) status = fetch_another(l, slot, i, status);
    if (status == TDICT_OK) continue;
    if (status != TDICT_ENOTFOUND || !tdict_loader_is_stream(l))
      return name_failed_sample(l, slot, slot->indices[i], status);
    slot->ends_epoch = true;
    slot->count = i;
  }
  return TDICT_OK;
}

/* Lets the dataset write its samples into the rows of a new batch. */
static tdict_status fetch_rows(tdict_loader *l, tdict_loader_slot *slot) {
  const tdict_dataset_table *t = l->table;
  int64_t wanted = slot->count;
  const tdict_fields list = {t->fields, t->num_fields};
  tdict_status status = tdict_create_unset(&list, 1, &wanted, l->memory, &slot->tree, &slot->error);
  if (status != TDICT_OK) return name_failed_sample(l, slot, -1, status);
  if (t->fetch_batch && !tdict_loader_is_stream(l) && l->options.on_error != TDICT_ON_ERROR_SKIP_SAMPLE) {
    tdict_error_clear(&slot->error);
    status = t->fetch_batch(t->self, &slot->info, slot->indices, wanted, slot->tree, &slot->error);
    status = tdict_callback_status(status, "fetch_batch", &slot->error);
    return status == TDICT_OK ? TDICT_OK : name_failed_sample(l, slot, wanted == 1 ? slot->indices[0] : -1, status);
  }
  status = fetch_samples(l, slot);
  return status == TDICT_OK && slot->count < wanted ? cut_to_count(slot) : status;
}

void tdict_loader_release_samples(tdict_loader_slot *slot) {
  while (slot->num_fetched > 0) tdict_release(slot->samples[--slot->num_fetched]);
}

/* Returns TDICT_EINVAL if a batch has more tokens than max_tokens. In this case the dataset's `sample_length` has
 * returned a wrong length. */
static tdict_status check_num_tokens(const tdict_loader *l, tdict_loader_slot *slot, int64_t num_tokens) {
  if (l->options.max_tokens == 0 || num_tokens <= l->options.max_tokens) return TDICT_OK;
  return tdict_fail(&slot->error, TDICT_EINVAL,
                    "the samples have %lld tokens, but max_tokens is %lld: sample_length returned less",
                    (long long)num_tokens, (long long)l->options.max_tokens);
}

static tdict_status read_packed_lengths(const tdict_loader *l, tdict_loader_slot *slot) {
  slot->num_tokens = ((const int32_t *)tdict_const_data(slot->tree, l->pack.cu_seqlens))[slot->count];
  slot->max_seqlen = *(const int32_t *)tdict_const_data(slot->tree, l->pack.max_seqlen);
  return check_num_tokens(l, slot, slot->num_tokens);
}

/* Returns the length of a padded sample: its batch size, or without batch dimensions that of its longest tensor. */
static tdict_status measure_sample(const tdict_tree *sample, int64_t *length, tdict_error *err) {
  tdict_cursor cursor;
  *length = 0;
  if (sample->batch_ndim) return *length = sample->batch_size[0], TDICT_OK;
  tdict_cursor_init(&cursor, sample, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    if (t && t->dims[0] > *length) *length = t->dims[0];
  }
  return tdict_cursor_end(&cursor, "loader", TDICT_OK, err);
}

static tdict_status read_padded_lengths(const tdict_loader *l, tdict_loader_slot *slot) {
  for (int64_t i = 0; i < slot->count; i++) {
    int64_t length;
    const tdict_status status = measure_sample(slot->samples[i], &length, &slot->error);
    if (status != TDICT_OK) return status;
    slot->num_tokens += length;
    if (length > slot->max_seqlen) slot->max_seqlen = length;
  }
  if (!slot->samples[0]->batch_ndim) return TDICT_OK; /* `sample_length` may count the elements of any tensor */
  return check_num_tokens(l, slot, slot->count * slot->max_seqlen);
}

/* Makes the batch from its samples: with the program's function `collate`, by packing, by padding, or by stacking. */
static tdict_status collate_samples(tdict_loader *l, tdict_loader_slot *slot) {
  const tdict_tree *const *samples = (const tdict_tree *const *)slot->samples;
  tdict_run run = tdict_run_default();
  run.memory = l->memory;
  tdict_status status;
  if (l->options.collate) {
    tdict_error_clear(&slot->error);
    tdict_tree *made = NULL; /* not in the slot: only after a success, the tree belongs to the loader */
    slot->info.position = position_of(l, slot, 0);
    status = l->options.collate(l->options.user, &slot->info, samples, (size_t)slot->count, &made, &slot->error);
    status = tdict_callback_status(status, "collate", &slot->error);
    if (status == TDICT_OK && !made)
      status = tdict_fail(&slot->error, TDICT_EHOOK, "collate returned TDICT_OK and no tree");
    if (status == TDICT_OK) slot->tree = made;
  } else if (l->options.pack) {
    status = tdict_pack_sequence(samples, (size_t)slot->count, &l->pack, &run, &slot->tree, &slot->error);
    if (status == TDICT_OK) status = read_packed_lengths(l, slot);
  } else if (l->options.pad) {
    tdict_pad_options pad = tdict_pad_options_default();
    pad.value = l->options.pad_value;
    pad.masks = l->options.pad_masks;
    status = tdict_pad_sequence(samples, (size_t)slot->count, &pad, &run, &slot->tree, &slot->error);
    if (status == TDICT_OK) status = read_padded_lengths(l, slot);
  } else {
    status = tdict_stack(samples, (size_t)slot->count, NULL, &run, &slot->tree, &slot->error);
  }
  return status == TDICT_OK ? TDICT_OK : name_failed_sample(l, slot, -1, status);
}

static tdict_status fetch_and_collate(tdict_loader *l, tdict_loader_slot *slot) {
  tdict_status status = fetch_samples(l, slot);
  if (status == TDICT_OK && slot->count > 0) status = collate_samples(l, slot);
  tdict_loader_release_samples(slot);
  return status;
}

/* Calls the dataset's `open_worker`, unless the worker has its state. */
static tdict_status open_worker(tdict_loader *l, tdict_loader_slot *slot) {
  const tdict_dataset_table *t = l->table;
  tdict_loader_worker *worker = &l->workers[slot->worker];
  void *state = NULL;
  if (worker->is_open || !t->open_worker) return TDICT_OK;
  tdict_status status = t->open_worker(t->self, slot->worker, &state, &slot->error);
  status = tdict_callback_status(status, "open_worker", &slot->error);
  if (status != TDICT_OK) return name_failed_sample(l, slot, -1, status);
  worker->is_open = true;
  worker->state = state;
  return TDICT_OK;
}

void tdict_loader_close_worker(const tdict_loader *l, tdict_loader_worker *worker) {
  if (worker->is_open && l->table->close_worker) l->table->close_worker(l->table->self, worker->state);
  worker->is_open = false;
}

static tdict_status fetch_tree(tdict_loader *l, tdict_loader_slot *slot) {
  tdict_status status = open_worker(l, slot);
  if (status != TDICT_OK) return status;
  describe_batch(l, slot);
  status = l->by_row ? fetch_rows(l, slot) : fetch_and_collate(l, slot);
  slot->is_skippable = is_of_samples(status);
  return status;
}

/* Sets the options that say how elements travel. */
static void use_wire(const tdict_loader *l, tdict_transfer_options *o) {
  o->narrow = l->options.narrow;
  o->conversions = l->options.conversions;
  o->num_conversions = l->options.num_conversions;
}

/* Converts tensors of a batch that stays on the cpu. The worker itself converts, because other workers convert other
 * batches meanwhile. */
static tdict_status convert_batch(tdict_loader *l, tdict_loader_slot *slot) {
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_tree *converted;
  o.num_threads = 0;
  o.memory = l->memory;
  o.keep_objects = true; /* the objects of the batch are on the cpu already */
  use_wire(l, &o);
  tdict_status status = tdict_to_device(l->context, slot->tree, tdict_cpu(), &o, &converted, &slot->error);
  if (status != TDICT_OK) return name_failed_sample(l, slot, -1, status);
  set_tree(slot, converted);
  return TDICT_OK;
}

static void note_objects(tdict_loader_slot *slot, const tdict_transfer_stats *stats) {
  slot->num_objects_pinned = stats->num_objects_pinned;
  slot->num_objects_unpinned = stats->num_objects_unpinned;
  slot->num_objects_kept = stats->num_objects_kept;
}

/* Pins a batch that stays on the cpu, if the option pin_memory is set. If the batch has objects, calls
 * tdict_pin_memory() even if the tensors are pinned, because only hooks can pin objects. */
static tdict_status pin_batch(tdict_loader *l, tdict_loader_slot *slot) {
  tdict_status status = l->options.num_conversions ? convert_batch(l, slot) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (!l->options.pin_memory || (tdict_is_pinned(slot->tree) && tdict_num_objects(slot->tree) == 0)) return TDICT_OK;
  tdict_tree *pinned;
  tdict_pin_options o = tdict_pin_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  o.stats = &stats;
  status = tdict_pin_memory(l->context, slot->tree, &o, &pinned, &slot->error);
  if (status != TDICT_OK) return name_failed_sample(l, slot, -1, status);
  note_objects(slot, &stats);
  set_tree(slot, pinned);
  return TDICT_OK;
}

/* Returns true if the worker should queue the whole transfer without pool threads. In that case the batch is in pinned
 * memory and is not converted, so no bytes are staged, and no hook runs. Waking a pool thread would only add
 * latency. */
static bool needs_no_pool_thread(const tdict_loader *l, const tdict_loader_slot *slot) {
  return !l->options.collate && !l->options.num_conversions && tdict_num_objects(slot->tree) == 0;
}

static bool is_stopping_or_paused(tdict_loader *l) {
  pthread_mutex_lock(&l->lock);
  bool stops = l->is_stopping || l->is_paused;
  pthread_mutex_unlock(&l->lock);
  return stops;
}

/* Gives a new transfer its place in `in_flight`. Returns the fence of the earlier transfer there, or NULL. The caller
 * owns the returned fence. */
static tdict_fence *claim_place(tdict_loader *l, int *place) {
  pthread_mutex_lock(&l->lock);
  *place = (int)(l->num_sent++ % TDICT_LOADER_MAX_IN_FLIGHT);
  tdict_fence *before = l->in_flight[*place];
  l->in_flight[*place] = NULL;
  pthread_mutex_unlock(&l->lock);
  return before;
}

/* Stores a fence in `in_flight`. If another worker has stored a fence there meanwhile, returns that fence, which the
 * caller then owns. */
static tdict_fence *store_fence(tdict_loader *l, int place, tdict_fence *fence) {
  fence->ops->retain(fence);
  pthread_mutex_lock(&l->lock);
  tdict_fence *other = l->in_flight[place];
  l->in_flight[place] = fence;
  pthread_mutex_unlock(&l->lock);
  return other;
}

/* Waits until a transfer has ended, or until the loader stops or is paused, and releases the fence. A stuck device thus
 * does not block tdict_loader_destroy() or tdict_loader_seek(). */
static void wait_for_transfer(tdict_loader *l, tdict_fence *fence) {
  if (!fence) return;
  while (!fence->ops->wait(fence, tdict_deadline_ns(STOP_CHECK_NS)) && !is_stopping_or_paused(l)) continue;
  fence->ops->release(fence);
}

/* Releases the fences of ended transfers. Each fence keeps a batch in memory, even if the program has released the
 * batch. */
static void release_ended_transfers(tdict_loader *l) {
  tdict_fence *ended[TDICT_LOADER_MAX_IN_FLIGHT];
  int count = 0;
  pthread_mutex_lock(&l->lock);
  for (int i = 0; i < TDICT_LOADER_MAX_IN_FLIGHT; i++) {
    if (!l->in_flight[i] || !l->in_flight[i]->ops->poll(l->in_flight[i])) continue;
    ended[count++] = l->in_flight[i];
    l->in_flight[i] = NULL;
  }
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < count; i++) ended[i]->ops->release(ended[i]);
}

/* Starts the transfer of a batch. Several workers may start transfers at the same time. Unless the loader stops or is
 * paused, the number of running transfers is at most TDICT_LOADER_MAX_IN_FLIGHT and one for each worker. */
static tdict_status send_batch(tdict_loader *l, tdict_loader_slot *slot) {
  tdict_transfer_options o = tdict_transfer_options_default();
  if (needs_no_pool_thread(l, slot)) o.num_threads = 0;
  o.keep_objects = l->options.keep_objects;
  use_wire(l, &o);

  /* Wait for the transfer that was started TDICT_LOADER_MAX_IN_FLIGHT transfers before. */
  release_ended_transfers(l);
  int64_t since = tdict_now_ns();
  int place;
  wait_for_transfer(l, claim_place(l, &place));
  slot->waited_ns = tdict_now_ns() - since;

  /* Start the transfer, and store its fence. */
  tdict_status status = tdict_to_device_async(l->context, slot->tree, l->device, &o, &slot->future, &slot->error);
  if (status == TDICT_OK) wait_for_transfer(l, store_fence(l, place, &slot->future->fence));
  if (status != TDICT_OK) return name_failed_sample(l, slot, -1, status);
  note_objects(slot, &slot->future->stats); /* the transfer may still run, but does not change these numbers */
  set_tree(slot, NULL);                     /* the transfer retains the storages that it reads */
  return TDICT_OK;
}

void tdict_loader_fill_slot(tdict_loader *l, tdict_loader_slot *slot) {
  memset(&slot->error, 0, sizeof slot->error);
  note_objects(slot, &(tdict_transfer_stats){.num_objects = 0});
  find_indices(l, slot);
  int64_t wanted = slot->count;
  slot->status = fetch_tree(l, slot);
  if (slot->status == TDICT_OK && slot->count < wanted && l->options.drop_last) slot->count = 0;
  if (slot->status == TDICT_OK && slot->count > 0) {
    slot->bytes = tdict_bytes(slot->tree);
    slot->status = l->device.type == TDICT_DEVICE_CPU ? pin_batch(l, slot) : send_batch(l, slot);
  }
  if (slot->status != TDICT_OK || slot->count == 0) set_tree(slot, NULL);
}

void tdict_loader_empty_slot(tdict_loader_slot *slot) {
  set_tree(slot, NULL);
  tdict_future_cancel(slot->future);
  tdict_future_release(slot->future);
  slot->future = NULL;
  slot->bytes = 0;
  slot->state = TDICT_SLOT_FREE;
}
