/* Tests a loader with workers that is resumed, restarted and destroyed.
 *
 * One thread takes batches and compares each batch with the rows that a sampler returns for its position. In some
 * rounds, a function plans batches of different sizes over the order of this sampler. The thread also saves states
 * of the loader and restores them. Another thread reads statistics and states at the same time. Some fetches fail.
 * Batches stay on the host, or arrive on the device, where work on a stream reads them. When the thread stops, the
 * loader is destroyed in whatever state it is. */
#include <stdatomic.h>
#include <unistd.h>

#include "dst/workloads/model.h"
#include "tdict/combine.h"
#include "tdict/loader.h"
#include "tdict/sampler.h"
#include "tdict/sim.h"

enum { NUM_STEPS = 16, NUM_LOOKS = 6, GENERATION = 3, MOST_SAMPLES = 40, MOST_BATCH = 7, WIDTH = 20, NONE = -1 };

typedef enum dataset_kind { ROWS, BATCHES, SAMPLES, COLLATED, TREE, NUM_DATASET_KINDS } dataset_kind;
/* A tree that a function on a stream reads, and its expected rows. */
typedef struct look_on_stream {
  tdict_stream stream;
  const void *address;
  model_rows rows;
} look_on_stream;
typedef struct stage {
  model_world world;
  tdict_loader *loader;
  tdict_loader_options options;
  dataset_kind kind;
  int64_t length, num_batches; /* number of samples; number of batches in an epoch */
  int64_t fail_at;             /* the fetch of this sample fails, or NONE */
  uint64_t delay_us;
  tdict_sampler *order;
  bool is_planned; /* true: plan_epoch() makes the batches */
  tdict_stream stream;
  int64_t epoch, batch; /* position of the next batch that the thread expects */
  int64_t num_delivered, num_rows, num_failed;
  size_t num_bytes;
  look_on_stream looks[NUM_STEPS];
  int num_looks;
  _Atomic(int) num_released, num_running, num_planning;
} stage;

/* ---- the dataset ---- */

static int64_t length_of(void *self) { return ((stage *)self)->length; }
static void release(void *self) { atomic_fetch_add(&((stage *)self)->num_released, 1); }
static tdict_status enter(stage *s, int64_t index, tdict_error *err) {
  if (s->delay_us && dst_roll(4) == 0) usleep((useconds_t)dst_roll(s->delay_us));
  if (index < 0 || index >= s->length) dst_fail("the fetched sample %lld is out of range", (long long)index);
  return index == s->fail_at ? tdict_error_set(err, TDICT_EFORMAT, NULL, "the disk is worn") : TDICT_OK;
}
static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                          tdict_error *err) {
  (void)info;
  stage *s = self;
  atomic_fetch_add(&s->num_running, 1);
  const tdict_status status = enter(s, index, err);
  if (status == TDICT_OK) model_true(model_write_row(batch, row, model_stamp_of(GENERATION, index), WIDTH));
  atomic_fetch_sub(&s->num_running, 1);
  return status;
}
static tdict_status fetch_batch(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                tdict_tree *batch, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) status = fetch(self, info, indices[i], batch, i, err);
  return status;
}
static tdict_status fetch_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                 tdict_error *err) {
  tdict_tree *td = NULL;
  tdict_status status = tdict_create_from(model_fields(WIDTH), MODEL_NUM_LEAVES, 0, NULL, NULL, &td, err);
  if (status == TDICT_OK) status = fetch(self, info, index, td, 0, err);
  if (status == TDICT_OK)
    *out = td;
  else
    tdict_release(td);
  return status;
}
static tdict_status collate(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *err) {
  tdict_run o = tdict_run_default();
  (void)user;
  o.memory = info->memory;
  return tdict_stack(samples, count, NULL, &o, out, err);
}

/* Returns the first position of a batch. The sizes of planned batches change after every third batch. */
static int64_t begin_of(const stage *s, int64_t batch) {
  int64_t first = 0;
  if (!s->is_planned) return batch * s->options.batch_size;
  for (int64_t b = 0; b < batch; b++) first += 1 + b / 3 % s->options.batch_size;
  return first;
}
static tdict_status plan_epoch(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  stage *s = user;
  (void)err;
  atomic_fetch_add(&s->num_running, 1);
  if (atomic_fetch_add(&s->num_planning, 1) > 0) dst_fail("two threads plan epochs at the same time");
  if (s->delay_us && dst_roll(2) == 0) usleep((useconds_t)dst_roll(s->delay_us));
  for (int64_t i = 0, batch = 1; i < info->num_indices; i++) {
    if (i == begin_of(s, batch)) {
      tdict_epoch_end_batch(epoch);
      batch++;
    }
    tdict_epoch_add(epoch, tdict_sampler_get(s->order, info->epoch, i));
  }
  tdict_epoch_end_batch(epoch);
  atomic_fetch_sub(&s->num_planning, 1);
  atomic_fetch_sub(&s->num_running, 1);
  return TDICT_OK;
}

/* Makes the dataset. Returns false after a misfortune. */
static bool make_dataset(stage *s, tdict_dataset **out) {
  if (s->kind == TREE) {
    const model_rows rows = model_rows_of(GENERATION, 0, s->length, WIDTH);
    tdict_tree *td = model_block(&rows, NULL);
    const bool is_ok = td && model_ok(tdict_dataset_from_tree(td, out, model_error()));
    tdict_release(td);
    atomic_fetch_add(&s->num_released, 1); /* a dataset made from a tree does not call release() */
    return is_ok;
  }
  tdict_dataset_table t = td_with(tdict_dataset_table, name = "rows", self = s, length = length_of, release = release,
                                  in_order = dst_roll(4) == 0);
  if (s->kind == ROWS || s->kind == BATCHES) {
    t.fields = model_fields(WIDTH);
    t.num_fields = MODEL_NUM_LEAVES;
    t.fetch = fetch;
  }
  if (s->kind == BATCHES) t.fetch_batch = fetch_batch;
  if (s->kind == SAMPLES || s->kind == COLLATED) t.fetch_sample = fetch_sample;
  return model_ok(tdict_dataset_create(&t, out, model_error()));
}

/* ---- the thread that takes batches ---- */

static model_rows rows_of_batch(const stage *s) {
  const int64_t first = begin_of(s, s->batch);
  model_rows rows = {.width = WIDTH, .count = begin_of(s, s->batch + 1) - first};
  if (rows.count > s->length - first) rows.count = s->length - first;
  for (int64_t i = 0; i < rows.count; i++)
    rows.stamps[i] = model_stamp_of(GENERATION, tdict_sampler_get(s->order, s->epoch, first + i));
  return rows;
}
static bool has_bad_sample(const stage *s, const model_rows *rows) {
  for (int64_t i = 0; i < rows->count; i++)
    if (s->fail_at != NONE && rows->stamps[i] == model_stamp_of(GENERATION, s->fail_at)) return true;
  return false;
}

static void look_on(void *user) {
  const look_on_stream *l = user;
  const int64_t *stamps = tdict_sim_host_pointer(l->stream, l->address);
  if (memcmp(stamps, l->rows.stamps, (size_t)l->rows.count * sizeof stamps[0]) != 0)
    dst_fail("a batch that was read on a stream has wrong rows");
}
static void launch_look(stage *s, const tdict_tree *batch, const model_rows *rows) {
  look_on_stream *l = &s->looks[s->num_looks];
  *l = (look_on_stream){s->stream, tdict_const_data(batch, "a"), *rows};
  model_true(l->address || model_was_unlucky());
  if (l->address && model_ok(tdict_sim_launch(s->stream, look_on, l, model_error()))) s->num_looks++;
}

static void check_info(const stage *s, const model_rows *rows) {
  tdict_batch_info info = tdict_batch_info_default();
  model_true(tdict_loader_get_batch_info(s->loader, &info, NULL) == TDICT_OK);
  if (rows)
    model_true(info.epoch == s->epoch && info.batch == s->batch && info.num_samples == rows->count);
  else
    model_true(!info.epoch && !info.batch && !info.num_samples);
}
static void check_batch(stage *s, const tdict_tree *batch, const model_rows *rows, bool is_on_stream) {
  const bool is_on_device = s->options.device.type != TDICT_DEVICE_CPU;
  model_look look = is_on_device ? model_device_look(s->options.device) : model_plain_look();
  look.is_pinned = is_on_device ? -1 : s->options.pin_memory;
  if (!is_on_device) look.has_device = tdict_get_device(batch, NULL);
  check_info(s, rows);
  if (is_on_stream) {
    model_check_shape(batch, rows, &look);
    launch_look(s, batch, rows);
  } else if (is_on_device) {
    model_check_device(&s->world, batch, rows, &look);
  } else {
    model_check(batch, rows, &look);
  }
}

static tdict_loader_state read_state(const stage *s) {
  tdict_loader_state state = tdict_loader_state_default();
  model_true(tdict_loader_get_state(s->loader, &state, NULL) == TDICT_OK);
  return state;
}
static void go_to(stage *s, const tdict_loader_state *state) {
  model_calm(true);
  const tdict_status status = tdict_loader_set_state(s->loader, state, model_error());
  model_true(model_ok(status));
  model_calm(false);
  s->epoch = state->epoch;
  s->batch = state->batch;
}

/* Checks the loader after a failed batch, which counts as taken. With TDICT_ON_ERROR_FAIL, the error persists. */
static void after_failure(stage *s, bool is_expected) {
  const tdict_loader_state state = read_state(s);
  if (is_expected) model_true(state.epoch == s->epoch && state.batch == s->batch + 1);
  model_true(state.epoch + 1 >= s->epoch && state.epoch <= s->epoch + 1);
  if (is_expected && s->options.on_error == TDICT_ON_ERROR_FAIL) {
    tdict_tree *none = NULL;
    model_true(!model_may(1u << TDICT_EFORMAT, tdict_loader_next(s->loader, tdict_no_stream(), &none, model_error())));
  }
  s->epoch = state.epoch;
  s->batch = state.batch;
  if (s->options.on_error == TDICT_ON_ERROR_FAIL) go_to(s, &state);
}

static void take(stage *s) {
  const bool is_at_end = s->batch == s->num_batches;
  if (is_at_end && s->options.endless) s->epoch++, s->batch = 0;
  const bool is_end = s->batch == s->num_batches;
  const model_rows rows = is_end ? (model_rows){0} : rows_of_batch(s);
  const bool is_bad = !is_end && has_bad_sample(s, &rows);
  const bool is_on_stream = s->options.device.type != TDICT_DEVICE_CPU && s->num_looks < NUM_LOOKS && dst_roll(2);
  const uint32_t allowed = (is_bad ? 1u << TDICT_EFORMAT : 0) | (s->options.timeout_ns ? 1u << TDICT_ETIMEDOUT : 0);
  tdict_tree *batch = NULL;
  do {
    tdict_error *err = model_error();
    const tdict_status status = tdict_loader_next(s->loader, is_on_stream ? s->stream : tdict_no_stream(), &batch, err);
    if (model_judge(status, allowed, "loader_next")) break;
    if (status == TDICT_EFORMAT) model_true(strstr(err->message, "the disk is worn"));
  } while (model_status() == TDICT_ETIMEDOUT);
  if (model_status() != TDICT_OK) {
    s->num_failed++;
    after_failure(s, model_status() == TDICT_EFORMAT);
    return;
  }
  model_true(!is_bad);
  model_true(is_end == !batch);
  if (is_end) {
    check_info(s, NULL);
    s->epoch++;
    s->batch = 0;
    return;
  }
  check_batch(s, batch, &rows, is_on_stream);
  tdict_release(batch);
  s->batch++;
  s->num_delivered++;
  s->num_rows += rows.count;
  s->num_bytes += model_bytes(&rows);
}

static void consume(stage *s) {
  tdict_loader_state saved = read_state(s);
  for (int i = 0; i < NUM_STEPS; i++) {
    switch (dst_roll(12)) {
    case 0:
      saved = read_state(s);
      model_true(saved.epoch == s->epoch && saved.batch == s->batch && saved.dataset_length == s->length);
      break;
    case 1:
      go_to(s, &saved);
      break;
    case 2:
      model_true(model_ok(tdict_loader_restart(s->loader, model_error())));
      if (s->batch) s->epoch++;
      s->batch = 0;
      break;
    default:
      take(s);
      break;
    }
  }
}

/* Calls the loader's thread-safe functions. */
static void observe(const stage *s) {
  int64_t last = 0;
  for (int i = 0; i < NUM_STEPS / 2; i++) {
    tdict_loader_stats stats = tdict_loader_stats_default();
    model_true(tdict_loader_get_stats(s->loader, &stats, NULL) == TDICT_OK);
    model_true(stats.num_batches >= last && stats.num_ready >= 0);
    last = stats.num_batches;
    const tdict_loader_state state = read_state(s);
    model_true(state.batch >= 0 && state.batch <= s->num_batches && state.epoch >= 0);
    model_true(tdict_loader_length(s->loader) == s->num_batches);
    if (dst_roll(2)) usleep((useconds_t)dst_roll(60));
  }
}
static void play(int number, void *data) {
  if (number == 0)
    consume(data);
  else
    observe(data);
}

static void check_stats(const stage *s) {
  tdict_loader_stats stats = tdict_loader_stats_default();
  model_true(tdict_loader_get_stats(s->loader, &stats, NULL) == TDICT_OK);
  model_true(stats.num_batches == s->num_delivered && stats.num_samples == s->num_rows);
  model_true(stats.total_bytes == s->num_bytes);
  if (!model_was_unlucky()) model_true(stats.num_errors == s->num_failed);
}

static void roll_options(stage *s) {
  tdict_loader_options *o = &s->options;
  *o = tdict_loader_options_default();
  s->kind = (dataset_kind)dst_roll(NUM_DATASET_KINDS);
  s->length = (int64_t)(1 + dst_roll(MOST_SAMPLES));
  s->fail_at = s->kind != TREE && dst_roll(3) == 0 ? (int64_t)dst_roll((uint64_t)s->length) : NONE;
  s->delay_us = dst_roll(2) ? 0 : 40;
  o->batch_size = (int64_t)(1 + dst_roll(MOST_BATCH));
  o->num_workers = (int32_t)dst_roll(4);
  o->prefetch = (int32_t)dst_roll(5);
  o->prefetch_bytes = dst_roll(3) ? 0 : dst_roll(4000);
  o->drop_last = dst_roll(3) == 0;
  o->shuffle = dst_roll(2);
  o->seed = dst_roll(100);
  o->on_error = dst_roll(2) ? TDICT_ON_ERROR_CONTINUE : TDICT_ON_ERROR_FAIL;
  o->timeout_ns = dst_roll(3) ? 0 : 20000;
  o->device = dst_roll(3) ? tdict_sim(0) : tdict_cpu();
  o->pin_memory = dst_roll(2);
  if (s->kind == COLLATED) o->collate = collate;
  s->num_batches = o->drop_last ? s->length / o->batch_size : (s->length + o->batch_size - 1) / o->batch_size;
  s->is_planned = dst_roll(3) == 0;
  if (s->is_planned) {
    o->shuffle = false;
    o->plan_epoch = plan_epoch;
    o->plan_user = s;
    s->num_batches = 0;
    while (begin_of(s, s->num_batches) < s->length) s->num_batches++;
  }
  o->endless = s->num_batches > 0 && dst_roll(4) == 0;
}

static bool make_order(stage *s) {
  tdict_sampler_options o =
      td_with(tdict_sampler_options, kind = s->options.shuffle ? TDICT_SAMPLER_SHUFFLED : TDICT_SAMPLER_SEQUENTIAL,
              seed = s->options.seed);
  if (s->is_planned) o.kind = TDICT_SAMPLER_SHUFFLED;
  return model_ok(tdict_sampler_create(s->length, &o, &s->order, model_error()));
}
/* Checks that the order is a permutation of all samples. */
static void check_order(const stage *s) {
  uint64_t seen = 0;
  for (int64_t i = 0; i < s->length; i++) seen |= UINT64_C(1) << tdict_sampler_get(s->order, s->epoch, i);
  model_true(seen == (UINT64_C(1) << s->length) - 1);
}

/* Creates the loader and runs the threads. */
static void load(stage *s) {
  tdict_dataset *d = NULL;
  const bool has_dataset = make_order(s) && make_dataset(s, &d);
  const bool has_loader =
      has_dataset && model_ok(tdict_loader_create(s->world.context, d, &s->options, &s->loader, model_error()));
  tdict_dataset_release(d);
  if (has_loader) {
    model_run(2, play, s);
    check_order(s);
    check_stats(s);
    td_release(s->loader);
  }
  td_release(s->order);
  model_true(!has_dataset || atomic_load(&s->num_released) == 1);
  model_true(atomic_load(&s->num_running) == 0);
}

void dst_workload(void) {
  stage s = {0};
  model_settings settings = td_with(model_settings, latency_ns = dst_roll(2) ? 0 : 20000);
  (void)model_fields(WIDTH);
  roll_options(&s);
  model_begin();
  if (model_open(&s.world, &settings)) {
    if (model_ok(tdict_stream_create(s.world.context, tdict_sim(0), &s.stream, model_error()))) {
      load(&s);
      model_calm(true);
      (void)!tdict_stream_synchronize(s.world.context, s.stream, NULL); /* the queued work reads this stack frame */
      model_calm(false);
      tdict_stream_destroy(s.world.context, s.stream);
    }
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
}
