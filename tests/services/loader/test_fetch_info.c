/* Tests the tdict_fetch_info that a dataset gets: the position and seed of each sample, and the worker's state. */
#include "numbers.h"

enum { LENGTH = 23, EPOCHS = 3, WORKERS = 3, RANKS = 2 };

/* A dataset whose functions check their tdict_fetch_info, and count the fetches of each sample. */
typedef struct watched {
  numbers n;
  const tdict_sampler *order; /* for one rank: returns the sample at each position */
  int32_t rank, world_size, num_workers;
  bool is_memory_set;
  atomic_int fetched[EPOCHS][LENGTH];
  uint64_t seeds[EPOCHS][LENGTH];
  atomic_int wrong, opened, closed, closed_elsewhere;
} watched;

/* The state of a worker. */
typedef struct desk {
  pthread_t thread;
  int32_t worker;
} desk;

static void check(watched *w, bool is_right) {
  if (!is_right) atomic_fetch_add(&w->wrong, 1);
}

/* Records that sample `index` is at this position of epoch info->epoch, and checks the position. */
static void note_sample(watched *w, const tdict_fetch_info *info, int64_t index, int64_t position) {
  if (info->epoch >= EPOCHS) return; /* fetched ahead */
  atomic_fetch_add(&w->fetched[info->epoch][index], 1);
  w->seeds[info->epoch][index] = tdict_sample_seed(info, index);
  check(w, tdict_sampler_get(w->order, info->epoch, position % LENGTH) == index);
  check(w, position % info->world_size == info->rank);
}

static void check_batch(watched *w, const tdict_fetch_info *info) {
  const desk *d = info->worker_state;
  check(w, info->rank == w->rank && info->world_size == w->world_size && info->seed == 77);
  check(w, info->worker >= 0 && info->worker < (w->num_workers ? w->num_workers : 1));
  check(w, d && d->worker == info->worker && pthread_equal(d->thread, pthread_self()));
  check(w, (info->memory != NULL) == w->is_memory_set);
  check(w, info->position / info->world_size / 4 == info->batch);
}

static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                          tdict_error *err) {
  check_batch(self, info);
  note_sample(self, info, index, info->position);
  return numbers_fetch(self, info, index, batch, row, err);
}
static tdict_status fetch_batch(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                tdict_tree *batch, tdict_error *err) {
  check_batch(self, info);
  for (int64_t i = 0; i < count; i++) note_sample(self, info, indices[i], info->position + i * info->world_size);
  return numbers_fetch_batch(self, info, indices, count, batch, err);
}
static tdict_status fetch_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                 tdict_error *err) {
  check_batch(self, info);
  note_sample(self, info, index, info->position);
  return numbers_sample(self, info, index, out, err);
}
static tdict_status collate(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *err) {
  tdict_run run = td_with(tdict_run, memory = info->memory);
  check_batch(user, info);
  check(user, info->position == info->rank + 4 * info->batch * info->world_size);
  return tdict_stack(samples, count, NULL, &run, out, err);
}

static tdict_status open_desk(void *self, int32_t worker, void **state, tdict_error *err) {
  watched *w = self;
  desk *d = malloc(sizeof *d);
  (void)err;
  *d = (desk){pthread_self(), worker};
  *state = d;
  atomic_fetch_add(&w->opened, 1);
  return TDICT_OK;
}
static void close_desk(void *self, void *state) {
  watched *w = self;
  if (!pthread_equal(((desk *)state)->thread, pthread_self())) atomic_fetch_add(&w->closed_elsewhere, 1);
  atomic_fetch_add(&w->closed, 1);
  free(state);
}

typedef enum how { BY_ROW, BY_BATCH, BY_SAMPLE, COLLATED } how;

static tdict_dataset_table table_of(watched *w, how by) {
  tdict_dataset_table t = td_with(tdict_dataset_table, self = w, length = numbers_length, open_worker = open_desk,
                                  close_worker = close_desk);
  if (by <= BY_BATCH) give_fields(&t);
  if (by == BY_ROW) t.fetch = fetch;
  if (by == BY_BATCH) t.fetch_batch = fetch_batch;
  if (by >= BY_SAMPLE) t.fetch_sample = fetch_sample;
  return t;
}

/* Reads all epochs as one rank, the first `num_before` batches with one loader and the rest with a second loader. */
static void read_epochs(const yard *y, watched *w, how by, int num_before) {
  const tdict_dataset_table table = table_of(w, by);
  tdict_loader_options o =
      td_with(tdict_loader_options, batch_size = 4, shuffle = true, seed = 77, num_workers = w->num_workers,
              rank = w->rank, world_size = w->world_size, collate = by == COLLATED ? collate : NULL, user = w);
  tdict_loader *l = open_loader(y, &table, &o);
  int64_t ids[4];
  for (int epoch = 0, taken = 0; epoch < EPOCHS; taken++) {
    if (taken == num_before) {
      tdict_loader_state state = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      tdict_loader_destroy(l);
      memset(w->fetched, 0, sizeof w->fetched);
      l = open_loader(y, &table, &o);
      td_ok(tdict_loader_set_state(l, &state, err));
    }
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    if (batch)
      (void)read_batch(y, batch, ids, 4);
    else
      epoch++;
  }
  tdict_loader_destroy(l);
  assert_int_equal(w->wrong, 0);
  assert_int_equal(w->opened, w->closed);
  assert_int_equal(w->closed_elsewhere, 0);
  assert_in_range(w->opened, 1, 2 * (w->num_workers ? w->num_workers : 1));
}

/* Together, the ranks fetch each sample. A sample's seed in an epoch is the same in all loaders. */
DEVICE_CASE(loader_tells_the_place_of_each_sample) {
  scoped_yard y = open_yard();
  tdict_sampler_options so = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, seed = 77);
  scoped_sampler order = td_made(sampler, tdict_sampler_create(LENGTH, &so, &made, err));
  static const int32_t workers[] = {0, 1, WORKERS};
  uint64_t seeds[EPOCHS][LENGTH] = {{0}};
  for (how by = BY_ROW; by <= COLLATED; by++)
    for (int i = 0; i < 3; i++) {
      int total = 0;
      for (int32_t rank = 0; rank < RANKS; rank++) {
        watched w = {.n = numbers_of(LENGTH), .order = order, .rank = rank, .world_size = RANKS};
        w.num_workers = workers[i];
        w.is_memory_set = y.device.type != TDICT_DEVICE_CPU;
        read_epochs(&y, &w, by, -1);
        for (int e = 0; e < EPOCHS; e++)
          for (int k = 0; k < LENGTH; k++) {
            total += w.fetched[e][k];
            if (w.fetched[e][k] == 0) continue;
            if (seeds[e][k] == 0) seeds[e][k] = w.seeds[e][k];
            assert_true(seeds[e][k] == w.seeds[e][k]);
          }
      }
      assert_int_equal(total, EPOCHS * (LENGTH + 1)); /* one sample is drawn twice, so that ranks have equal parts */
    }
  for (int i = 1; i < EPOCHS * LENGTH; i++)
    for (int k = 0; k < i; k++) assert_false(seeds[i / LENGTH][i % LENGTH] == seeds[k / LENGTH][k % LENGTH]);
}

CASE(loader_tells_the_same_places_after_a_resume) {
  scoped_yard y = open_yard();
  tdict_sampler_options so = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, seed = 77);
  scoped_sampler order = td_made(sampler, tdict_sampler_create(LENGTH, &so, &made, err));
  watched whole = {.n = numbers_of(LENGTH), .order = order, .world_size = 1, .num_workers = WORKERS};
  read_epochs(&y, &whole, BY_ROW, -1);
  for (int taken = 1; taken < 14; taken++) {
    watched w = {.n = numbers_of(LENGTH), .order = order, .world_size = 1, .num_workers = taken % 4};
    read_epochs(&y, &w, (how)(taken % 4), taken);
    for (int e = 0; e < EPOCHS; e++)
      for (int k = 0; k < LENGTH; k++)
        if (w.fetched[e][k]) assert_true(w.seeds[e][k] == whole.seeds[e][k]);
    assert_int_equal(w.fetched[EPOCHS - 1][0], 1);
  }
}

/* Fails the first time it is called. */
static tdict_status open_late(void *self, int32_t worker, void **state, tdict_error *err) {
  watched *w = self;
  if (atomic_fetch_add(&w->n.batches, 1) > 0) return open_desk(self, worker, state, err);
  tdict_error_set(err, TDICT_ENODEVICE, "", "no decoder is free");
  return TDICT_ENODEVICE;
}

CASE(loader_opens_a_worker_again_after_a_failure) {
  scoped_yard y = open_yard();
  tdict_sampler_options so = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SEQUENTIAL);
  scoped_sampler order = td_made(sampler, tdict_sampler_create(LENGTH, &so, &made, err));
  watched w = {.n = numbers_of(LENGTH), .order = order, .world_size = 1};
  tdict_dataset_table table = table_of(&w, BY_ROW);
  table.name = "images";
  table.open_worker = open_late;
  tdict_loader_options o =
      td_with(tdict_loader_options, batch_size = 4, num_workers = 0, seed = 77, on_error = TDICT_ON_ERROR_CONTINUE);
  tdict_loader *l = open_loader(&y, &table, &o);
  tdict_tree *batch = NULL;
  td_fails(TDICT_ENODEVICE, "loader: batch 0 of images: no decoder is free",
           tdict_loader_next(l, tdict_no_stream(), &batch, err));
  assert_int_equal(w.opened, 0);
  batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  int64_t ids[4];
  assert_int_equal(read_batch(&y, batch, ids, 4), 4);
  assert_int_equal(ids[0], 4);
  tdict_release(batch);
  tdict_loader_destroy(l);
  assert_int_equal(w.opened, 1);
  assert_int_equal(w.closed, 1);
  assert_int_equal(w.wrong, 0);
}

CASE(loader_state_of_another_seed_is_refused) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(LENGTH);
  const tdict_dataset_table table = by_row(&n);
  scoped_loader first = open_loader(&y, &table, td_options(tdict_loader_options, num_workers = 0, seed = 5));
  scoped_loader second = open_loader(&y, &table, td_options(tdict_loader_options, num_workers = 0, seed = 6));
  const tdict_loader_state state = td_filled(tdict_loader_state, tdict_loader_get_state(first, &made, err));
  assert_true(state.loader_seed == 5 && state.seed == 0);
  td_fails(TDICT_EINVAL, "loader state: saved for samples of seed 5, this loader has 6",
           tdict_loader_set_state(second, &state, err));
}
