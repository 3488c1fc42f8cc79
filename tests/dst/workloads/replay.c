/* Tests a replay buffer with a writer, and a loader that draws its rows.
 *
 * The writer appends and rewrites rows, and records the contents of the buffer after each write as a version. The
 * loader reads all rows of a batch between two writes, so a batch must equal the rows of one version. This version
 * existed at some moment between the start of the epoch and the delivery. A stamp names a write and a row. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dst/workloads/model.h"
#include "tdict/combine.h"
#include "tdict/loader.h"
#include "tdict/replay.h"

enum { CAPACITY = 12, NUM_WRITES = 10, MOST_VERSIONS = 2 + NUM_WRITES, WIDTH = 20, NUM_EPOCHS = 4, EMPTY = -1 };

/* The contents of the buffer after a write. */
typedef struct version {
  model_stamp stamps[CAPACITY]; /* EMPTY: the row is not filled */
  int64_t num_filled, next_row, total;
} version;
typedef struct stage {
  model_world world;
  tdict_replay *replay;
  tdict_tree *tree;
  tdict_loader *loader;
  bool is_collated; /* the rows of a batch are fetched one by one */
  tdict_device device;
  int64_t batch_size;
  pthread_mutex_t lock; /* guards: versions, num_versions */
  version versions[MOST_VERSIONS];
  int num_versions; /* includes the version of an unfinished write */
  _Atomic(bool) is_done;
} stage;

static model_stamp stamp_at(int write, int64_t row) { return model_stamp_of(write, row); }

static version last_version(stage *s) {
  pthread_mutex_lock(&s->lock);
  const version v = s->versions[s->num_versions - 1];
  pthread_mutex_unlock(&s->lock);
  return v;
}
/* Records the version that the next write will make. */
static void add_version(stage *s, const version *v) {
  pthread_mutex_lock(&s->lock);
  model_true(s->num_versions < MOST_VERSIONS);
  s->versions[s->num_versions++] = *v;
  pthread_mutex_unlock(&s->lock);
}
static void take_back_version(stage *s) {
  pthread_mutex_lock(&s->lock);
  s->num_versions--;
  pthread_mutex_unlock(&s->lock);
}

static void append(stage *s, int write) {
  const version old = last_version(s);
  version v = old;
  model_rows rows = {.count = (int64_t)(1 + dst_roll(CAPACITY)), .width = WIDTH};
  for (int64_t i = 0; i < rows.count; i++) {
    rows.stamps[i] = stamp_at(write, v.next_row);
    v.stamps[v.next_row] = rows.stamps[i];
    v.next_row = (v.next_row + 1) % CAPACITY;
    if (v.num_filled < CAPACITY) v.num_filled++;
  }
  v.total += rows.count;
  tdict_tree *td = model_tree(&rows);
  if (!td) return;
  add_version(s, &v);
  if (!model_ok(tdict_replay_append(s->replay, td, model_error()))) take_back_version(s);
  tdict_release(td);
}

static void rewrite(stage *s, int write) {
  version v = last_version(s);
  if (!v.num_filled) return;
  const int64_t first = (int64_t)dst_roll((uint64_t)v.num_filled);
  model_rows rows = {.count = (int64_t)(1 + dst_roll((uint64_t)(v.num_filled - first))), .width = WIDTH};
  for (int64_t i = 0; i < rows.count; i++) v.stamps[first + i] = rows.stamps[i] = stamp_at(write, first + i);
  tdict_tree *td = model_block(&rows, NULL);
  if (!td) return;
  add_version(s, &v);
  if (!model_ok(tdict_replay_write(s->replay, first, td, model_error()))) take_back_version(s);
  tdict_release(td);
}

static tdict_replay_state state_of(const stage *s) {
  tdict_replay_state state = tdict_replay_state_default();
  model_true(tdict_replay_get_state(s->replay, &state, NULL) == TDICT_OK);
  return state;
}

/* Writes one row of the buffer's tree directly, while the buffer is locked. */
static void write_under_lock(stage *s, int write) {
  version v = last_version(s);
  if (!v.num_filled) return;
  const int64_t row = (int64_t)dst_roll((uint64_t)v.num_filled);
  v.stamps[row] = stamp_at(write, row);
  add_version(s, &v);
  tdict_replay_lock(s->replay);
  tdict_replay_state state = state_of(s);
  model_true(state.num_filled == v.num_filled && state.total == v.total);
  /* The buffer is locked, so no fetch may read these bytes. */
  model_true(model_write_row(s->tree, row, stamp_at(write + MOST_VERSIONS, row), WIDTH));
  usleep((useconds_t)dst_roll(60));
  model_true(model_write_row(s->tree, row, v.stamps[row], WIDTH));
  tdict_replay_unlock(s->replay);
}

static void check_state(stage *s) {
  const version v = last_version(s);
  tdict_replay_state state = state_of(s);
  model_true(state.capacity == CAPACITY);
  model_true(state.num_filled == v.num_filled && state.next_row == v.next_row && state.total == v.total);
  if (dst_roll(4) == 0) model_true(tdict_replay_set_state(s->replay, &state, NULL) == TDICT_OK); /* changes nothing */
}

static void write_rows(stage *s) {
  for (int i = 0; i < NUM_WRITES; i++) {
    const uint64_t action = dst_roll(6);
    if (action < 3)
      append(s, i + 2);
    else if (action < 5)
      rewrite(s, i + 2);
    else
      write_under_lock(s, i + 2);
    check_state(s);
    if (dst_roll(2)) usleep((useconds_t)dst_roll(80));
  }
}

/* ---- the thread that takes batches ---- */

static int num_versions(stage *s) {
  pthread_mutex_lock(&s->lock);
  const int count = s->num_versions;
  pthread_mutex_unlock(&s->lock);
  return count;
}
static int64_t row_of(model_stamp stamp) { return stamp % 1024; }

/* Returns true if the version has each of the rows at the row's position in the buffer. */
static bool is_version(const version *v, const model_rows *rows) {
  for (int64_t i = 0; i < rows->count; i++)
    if (v->stamps[row_of(rows->stamps[i])] != rows->stamps[i]) return false;
  return true;
}
/* Checks that all rows are from one version, which is `oldest` or later. Rows fetched one by one may be from several
 * versions. */
static void check_rows(stage *s, const model_rows *rows, int oldest) {
  bool is_found = false;
  pthread_mutex_lock(&s->lock);
  if (s->is_collated) {
    is_found = true;
    for (int64_t i = 0; i < rows->count; i++) {
      const model_rows one = model_rows_slice(rows, i, 1);
      bool is_known = false;
      for (int v = oldest; v < s->num_versions; v++) is_known = is_known || is_version(&s->versions[v], &one);
      is_found = is_found && is_known;
    }
  } else {
    for (int v = oldest; v < s->num_versions; v++) is_found = is_found || is_version(&s->versions[v], rows);
  }
  pthread_mutex_unlock(&s->lock);
  if (!is_found) dst_fail("a batch matches no version; its first stamp is %lld", (long long)rows->stamps[0]);
}

/* Reads the stamps of a batch, and checks that all other bytes match the stamps. */
static void check_batch(stage *s, const tdict_tree *batch, int oldest, uint64_t *seen) {
  scoped_tree host = NULL;
  model_calm(true);
  model_true(tdict_to_device(s->world.context, batch, tdict_cpu(), NULL, &host, NULL) == TDICT_OK);
  model_calm(false);
  model_rows rows = {.count = tdict_batch_size(host)[0], .width = WIDTH};
  const int64_t *stamps = tdict_const_data(host, "a");
  model_true(stamps && rows.count >= 1 && rows.count <= s->batch_size);
  memcpy(rows.stamps, stamps, (size_t)rows.count * sizeof stamps[0]);
  for (int64_t i = 0; i < rows.count; i++) {
    const int64_t row = row_of(rows.stamps[i]);
    model_true(row >= 0 && row < CAPACITY && !(*seen >> row & 1)); /* an epoch has each row at most once */
    *seen |= UINT64_C(1) << row;
  }
  model_look look = model_plain_look();
  look.has_device = tdict_get_device(host, NULL);
  look.is_pinned = -1;
  model_check(host, &rows, &look);
  check_rows(s, &rows, oldest);
}

/* Takes the batches of an epoch. After an error, restarts the loader, which otherwise returns the error again. */
static void take_epoch(stage *s) {
  /* The write of the last version may be unfinished, so the version before it is also possible. */
  const int newest = num_versions(s) - 1, oldest = newest > 0 ? newest - 1 : 0;
  const int64_t before = s->versions[oldest].num_filled;
  uint64_t seen = 0;
  int64_t after = -1;
  for (int i = 0;; i++) {
    tdict_tree *batch = NULL;
    if (!model_ok(tdict_loader_next(s->loader, tdict_no_stream(), &batch, model_error()))) {
      model_true(model_ok(tdict_loader_restart(s->loader, model_error())));
      return;
    }
    if (i == 0) after = last_version(s).num_filled;
    if (!batch) break;
    check_batch(s, batch, oldest, &seen);
    tdict_release(batch);
    if (dst_roll(12) == 0) {
      model_true(model_ok(tdict_loader_restart(s->loader, model_error())));
      return;
    }
  }
  /* The epoch has rows 0 to n - 1. n is the number of filled rows at some moment in the first tdict_loader_next(). */
  int64_t count = 0;
  while (seen >> count & 1) count++;
  if (seen != (UINT64_C(1) << count) - 1)
    dst_fail("the epoch has the set of rows %llx, wanted rows 0 to n - 1", (unsigned long long)seen);
  if (count > after || count < before)
    dst_fail("the epoch has %lld rows, wanted %lld to %lld", (long long)count, (long long)before, (long long)after);
}
static void take_batches(stage *s) {
  for (int i = 0; i < NUM_EPOCHS; i++) take_epoch(s);
}
static void play(int number, void *data) {
  if (number == 0)
    write_rows(data);
  else
    take_batches(data);
}

static tdict_status stack(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                          tdict_tree **out, tdict_error *err) {
  tdict_run o = tdict_run_default();
  (void)user;
  o.memory = info->memory;
  return tdict_stack(samples, count, NULL, &o, out, err);
}
static bool open_loader(stage *s) {
  tdict_loader_options o = tdict_loader_options_default();
  tdict_dataset *d = NULL;
  s->is_collated = dst_roll(4) == 0;
  s->device = dst_roll(2) ? tdict_sim(0) : tdict_cpu();
  s->batch_size = (int64_t)(1 + dst_roll(5));
  o.batch_size = s->batch_size;
  o.num_workers = (int32_t)dst_roll(3);
  o.shuffle = dst_roll(2);
  o.seed = dst_roll(50);
  o.device = s->device;
  if (s->is_collated) o.collate = stack;
  if (!model_ok(tdict_dataset_from_replay(s->replay, &d, model_error()))) return false;
  const bool is_ok = model_ok(tdict_loader_create(s->world.context, d, &o, &s->loader, model_error()));
  tdict_dataset_release(d);
  return is_ok;
}

/* Creates a buffer in which some rows are filled. */
static bool open_replay(stage *s) {
  const int64_t filled = (int64_t)dst_roll(CAPACITY + 1);
  const model_rows rows = model_rows_of(1, 0, CAPACITY, WIDTH);
  version *v = &s->versions[0];
  s->tree = model_block(&rows, NULL);
  if (!s->tree || !model_ok(tdict_replay_create(s->tree, filled, &s->replay, model_error()))) return false;
  *v = (version){.num_filled = filled, .next_row = filled % CAPACITY, .total = state_of(s).total};
  for (int64_t i = 0; i < CAPACITY; i++) v->stamps[i] = i < filled ? rows.stamps[i] : EMPTY;
  s->num_versions = 1;
  return true;
}

/* Checks that the buffer has the rows of the last version, and that a cleared buffer has no rows. */
static void check_rest(stage *s) {
  const version v = last_version(s);
  const int64_t *stamps = tdict_const_data(s->tree, "a");
  check_state(s);
  for (int64_t i = 0; i < v.num_filled; i++) model_true(stamps[i] == v.stamps[i]);
  tdict_replay_clear(s->replay);
  model_true(state_of(s).num_filled == 0);
}

void dst_workload(void) {
  stage s = {0};
  model_settings settings = model_settings_default();
  pthread_mutex_init(&s.lock, NULL);
  (void)model_fields(WIDTH);
  model_begin();
  if (model_open(&s.world, &settings)) {
    if (open_replay(&s) && open_loader(&s)) {
      model_run(2, play, &s);
      check_rest(&s);
    }
    td_release(s.loader, s.replay, s.tree);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  pthread_mutex_destroy(&s.lock);
  model_end();
}
