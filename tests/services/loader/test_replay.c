/* Tests replay buffers: the ring against a naive model, torn rows, the lock, and errors. */
#include "core/tensor/layout.h"
#include "replay_rows.h"
#include "support/things.h"
#include "support/threads.h"

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* A naive model of the ring: an array of ids. */
typedef struct model {
  int64_t ids[CAPACITY], next, length, total;
} model;

static void check_model(const tdict_replay *r, const tdict_tree *tree, const model *m) {
  tdict_replay_state s = state_of(r);
  assert_true(s.num_filled == m->length && s.total == m->total && s.capacity == CAPACITY);
  scoped_tree wanted = rows_of(CAPACITY);
  for (int64_t i = 0; i < CAPACITY; i++) put_id(wanted, i, m->ids[i]);
  assert_memory_equal(tdict_const_data(tree, "id"), tdict_const_data(wanted, "id"), CAPACITY * sizeof(int64_t));
  assert_memory_equal(tdict_const_data(tree, "deep.x"), tdict_const_data(wanted, "deep.x"),
                      CAPACITY * X_COUNT * sizeof(float));
}

CASE(replay_is_a_ring) {
  scoped_tree tree = rows_from(0, CAPACITY);
  for (int64_t filled = 0; filled <= CAPACITY; filled += CAPACITY / 2 + 1) {
    model m = {.next = filled % CAPACITY, .length = filled};
    scoped_replay r = replay_over(tree, filled);
    uint64_t random = 7 + (uint64_t)filled;
    int64_t id = 1000;
    for (int64_t i = 0; i < CAPACITY; i++) {
      m.ids[i] = i;
      put_id(tree, i, i);
    }
    for (int step = 0; step < 600; step++) {
      int64_t count = (int64_t)(next_random(&random) % (CAPACITY + 1)), first;
      switch (next_random(&random) % 8) {
      case 0:
        if (step % 5 == 0) {
          tdict_replay_clear(r);
          m.next = m.length = 0;
        }
        break;
      case 1:
      case 2:
        first = (int64_t)(next_random(&random) % (uint64_t)(m.length + 1));
        if (count > m.length - first) count = m.length - first;
        write_ids(r, first, id, count);
        for (int64_t i = 0; i < count; i++) m.ids[first + i] = id++;
        break;
      default:
        append_ids(r, id, count);
        for (int64_t i = 0; i < count; i++) {
          m.ids[m.next] = id++;
          m.next = (m.next + 1) % CAPACITY;
          if (m.length < CAPACITY) m.length++;
          m.total++;
        }
      }
      check_model(r, tree, &m);
    }
    tdict_replay_release(tdict_replay_retain(r));
  }
  tdict_replay_release(NULL);
  tdict_replay_clear(NULL);
}

CASE(replay_create_refuses) {
  const int64_t none = 0;
  scoped_tree tree = rows_from(0, CAPACITY), flat = NULL, empty = rows_of(0), bare = NULL;
  scoped_replay r = NULL;
  tdict_dataset *d = NULL;
  td_fails(TDICT_EINVAL, "replay: the tree is NULL", tdict_replay_create(NULL, 0, &r, err));
  td_fails(TDICT_EINVAL, "replay: out is NULL", tdict_replay_create(tree, 0, NULL, err));
  td_fails(TDICT_EINVAL, "num_filled is -1, wanted 0 to the capacity 23", tdict_replay_create(tree, -1, &r, err));
  td_fails(TDICT_EINVAL, "num_filled is 24, wanted 0 to the capacity 23", tdict_replay_create(tree, 24, &r, err));
  td_ok(tdict_create(0, NULL, &flat, err));
  td_fails(TDICT_EINVAL, "no batch dimension", tdict_replay_create(flat, 0, &r, err));
  td_fails(TDICT_EINVAL, "the tree has no row", tdict_replay_create(empty, none, &r, err));
  td_ok(tdict_create(1, (const int64_t[]){2}, &bare, err));
  td_fails(TDICT_EINVAL, "the tree has no tensor", tdict_replay_create(bare, 0, &r, err));
  scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_F32, 1, (const int64_t[]){CAPACITY}, NULL, &made, err));
  td_ok(
      tdict_set_object(tree, "what", &thing_hooked, thing_create(tdict_tensor_retain(t), tdict_tensor_retain(t)), err));
  td_fails_at(TDICT_ENOTSUP, "an object of type", "what", tdict_replay_create(tree, 0, &r, err));
  td_ok(tdict_delete(tree, "what", err));
  td_ok(tdict_set_text(tree, "what", "text", err));
  td_fails_at(TDICT_ENOTSUP, "an object of type", "what", tdict_replay_create(tree, 0, &r, err));
  td_ok(tdict_delete(tree, "what", err));
  assert_null(r);
  r = replay_over(tree, 0);
  td_fails(TDICT_EINVAL, "replay: the replay buffer is NULL", tdict_dataset_from_replay(NULL, &d, err));
  td_fails(TDICT_EINVAL, "replay: out is NULL", tdict_dataset_from_replay(r, NULL, err));
}

/* Checks that an append and a write return the error and do not change the buffer. */
static void refuse(tdict_replay *r, const tdict_tree *tree, const tdict_tree *rows, tdict_status status,
                   const char *text, const char *path) {
  model before = {.length = 20, .total = 0};
  for (int64_t i = 0; i < CAPACITY; i++) before.ids[i] = i;
  td_fails_at(status, text, path, tdict_replay_append(r, rows, err));
  check_model(r, tree, &before);
  td_fails_at(status, text, path, tdict_replay_write(r, 2, rows, err));
  check_model(r, tree, &before);
}
static tdict_tensor *zeros(tdict_dtype dtype, int ndim, const int64_t *shape) {
  return td_made(tensor, tdict_tensor_zeros(dtype, ndim, shape, NULL, &made, err));
}
/* Makes rows with the ids 1000, 1001, ... whose tensor at `path` is `t`. Takes ownership of `t`. */
static tdict_tree *rows_with(const char *path, tdict_tensor *t) {
  tdict_tree *rows = rows_from(1000, 6);
  td_put(rows, path, t);
  return rows;
}

/* Six rows wrap around the end of the ring, so both parts of an append are checked. Only the last tensor is wrong. */
CASE(replay_append_refuses) {
  scoped_tree tree = rows_from(0, CAPACITY), rows = rows_from(0, 6);
  scoped_replay r = replay_over(tree, 20);
  refuse(r, tree, NULL, TDICT_EINVAL, "replay: rows is NULL", "");
  td_fails(TDICT_EINVAL, "the replay buffer is NULL", tdict_replay_append(NULL, rows, err));
  td_fails(TDICT_EINVAL, "the replay buffer is NULL", tdict_replay_write(NULL, 0, rows, err));
  td_fails(TDICT_EINVAL, "6 rows at row 15, but 20 rows are filled", tdict_replay_write(r, 15, rows, err));
  td_fails(TDICT_EINVAL, "6 rows at row -1, but 20 rows are filled", tdict_replay_write(r, -1, rows, err));
  td_fails(TDICT_EINVAL, "but 20 rows are filled", tdict_replay_write(r, INT64_MAX, rows, err));
  td_ok(tdict_delete(rows, "deep.x", err));
  refuse(r, tree, rows, TDICT_ENOTFOUND, "", "deep.x");
  tdict_release(rows);
  rows = rows_of(CAPACITY + 1);
  refuse(r, tree, rows, TDICT_EINVAL, "24 rows, wanted at most the capacity 23", "");
  tdict_release(rows);
  td_ok(tdict_create(2, (const int64_t[]){6, X_COUNT}, &rows, err));
  refuse(r, tree, rows, TDICT_ESHAPE, "the rows have 2 batch dimensions, wanted 1", "");
  tdict_release(rows);
  rows = rows_with("deep.x", zeros(TDICT_F32, 2, (const int64_t[]){6, X_COUNT + 1}));
  refuse(r, tree, rows, TDICT_ESHAPE, "", "deep.x");
  tdict_release(rows);
  rows = rows_with("deep.x", zeros(TDICT_F64, 2, (const int64_t[]){6, X_COUNT}));
  refuse(r, tree, rows, TDICT_EDTYPE, "", "deep.x");
  tdict_release(rows);
  rows = rows_with("more", zeros(TDICT_F32, 1, (const int64_t[]){6}));
  refuse(r, tree, rows, TDICT_ENOTFOUND, "", "more");
  tdict_release(rows);
  rows = rows_from(1000, 6);
  td_ok(tdict_delete(rows, "deep.x", err));
  tdict_tensor *t = zeros(TDICT_F32, 1, (const int64_t[]){6});
  td_put(rows, "deep.x.y", t);
  refuse(r, tree, rows, TDICT_ETYPE, "", "deep.x");
  tdict_release(rows);
  rows = rows_from(1000, 6);
  td_ok(tdict_set_text(rows, "t", "text", err));
  refuse(r, tree, rows, TDICT_ENOTSUP, "the rows have an object", "");
}

/* Writes to a buffer whose second tensor is read-only. */
CASE(replay_refuses_to_write_constants) {
  scoped_tree tree = rows_from(0, CAPACITY);
  float x[CAPACITY * X_COUNT];
  memcpy(x, tdict_const_data(tree, "deep.x"), sizeof x);
  int64_t shape[] = {CAPACITY, X_COUNT};
  tdict_tensor_desc desc =
      td_with(tdict_tensor_desc, data = x, dtype = TDICT_F32, ndim = 2, shape = shape, flags = TDICT_DESC_READ_ONLY);
  td_put(tree, "deep.x", td_made(tensor, tdict_tensor_from_data(&desc, NULL, NULL, &made, err)));
  scoped_replay r = replay_over(tree, 20);
  scoped_tree rows = rows_from(1000, 6);
  refuse(r, tree, rows, TDICT_EREADONLY, "read-only", "deep.x");
}

GPU_CASE(replay_refuses_device_rows) {
  scoped_yard y = open_yard();
  scoped_tree tree = rows_from(0, CAPACITY), rows = rows_from(1000, 6), moved = NULL;
  scoped_replay r = replay_over(tree, 20);
  td_ok(tdict_to_device(y.c, rows, y.device, NULL, &moved, err));
  refuse(r, tree, moved, TDICT_EWRONGDEVICE, "wanted host memory", "id");
  tdict_release(moved);
  td_ok(tdict_to_device(y.c, tree, y.device, NULL, &moved, err));
  tdict_replay *none = NULL;
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory", tdict_replay_create(moved, 0, &none, err));
  assert_null(none);
}

SIM_CASE(replay_refuses_lost_rows) {
  scoped_yard y = open_yard();
  scoped_tree tree = rows_from(0, CAPACITY), rows = rows_from(1000, 6), moved = NULL;
  scoped_replay r = replay_over(tree, 20);
  tdict_future *f = NULL;
  td_ok(tdict_to_device(y.c, rows, y.device, NULL, &moved, err));
  td_ok(tdict_sim_hold(y.c, err));
  td_ok(tdict_transfer_into_async(y.c, rows, moved, NULL, &f, err));
  tdict_future_cancel(f);
  td_ok(tdict_sim_resume(y.c, err));
  tdict_status ended = tdict_future_wait(f, NULL, NULL);
  tdict_future_release(f);
  if (ended != TDICT_OK) refuse(r, tree, rows, TDICT_EINVAL, "lost", "id");
  assert_int_not_equal(ended, TDICT_OK);
}

/* Every allocation fails once. The buffer is then unchanged, and repeating the call succeeds. */
CASE(replay_survives_enomem) {
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = NULL;
  int64_t refused = 0;
  TD_SWEEP(s) { assert_true(td_refused(s, tdict_replay_create(tree, 20, &r, err)) ? r == NULL : s.n > 3); }
  model m = {.next = 20, .length = 20};
  for (int64_t i = 0; i < CAPACITY; i++) m.ids[i] = i;
  for (int round = 0; round < 3; round++) { /* The first and the last append continue at row 0. */
    scoped_tree rows = rows_from(100 * (round + 1), 12);
    TD_SWEEP(s) {
      if (!td_refused(s, tdict_replay_append(r, rows, err))) break;
      refused++;
      check_model(r, tree, &m);
    }
    for (int64_t i = 0; i < 12; i++) m.ids[(m.next + i) % CAPACITY] = 100 * (round + 1) + i;
    m.next = (m.next + 12) % CAPACITY;
    m.length = CAPACITY;
    m.total += 12;
    check_model(r, tree, &m);
  }
  assert_true(refused > 0);
}

/* Rows of 4096 equal numbers, so that a copy takes long enough to be interrupted by a write. */
enum { LONG_ROW = 4096, LONG_ROWS = 16, LONG_BATCH = 8 };
typedef struct writer {
  tdict_replay *replay;
  tdict_tree *tree; /* the tree of the buffer */
  int way;          /* 0: appends; 1: writes all rows; 2: writes all rows under the lock */
  int64_t first;    /* the value of the first write; each later write adds 1 */
  atomic_bool *stops;
  atomic_int *failures;
} writer;

static tdict_tree *long_rows(int64_t count) {
  static const tdict_field field = {"v", TDICT_I64, 1, {LONG_ROW}};
  tdict_tree *td = NULL;
  return tdict_create_from(&field, 1, 1, &count, NULL, &td, NULL) == TDICT_OK ? td : NULL;
}
static void fill_long_rows(tdict_tree *rows, int64_t count, int64_t value) {
  int64_t *v = tdict_data(rows, "v");
  for (int64_t i = 0; i < count * LONG_ROW; i++) v[i] = value;
}
static void *run_writer(void *user) {
  writer *w = user;
  int64_t count = w->way == 0 ? 3 : LONG_ROWS;
  scoped_tree rows = long_rows(count);
  for (int64_t value = w->first; !atomic_load(w->stops); value++) {
    tdict_status status = TDICT_OK;
    fill_long_rows(rows, count, value);
    if (w->way == 0) {
      status = tdict_replay_append(w->replay, rows, NULL);
    } else if (w->way == 1) {
      status = tdict_replay_write(w->replay, 0, rows, NULL);
    } else {
      tdict_replay_lock(w->replay);
      fill_long_rows(w->tree, count, value);
      tdict_replay_unlock(w->replay);
    }
    if (status != TDICT_OK) atomic_fetch_add(w->failures, 1);
  }
  return NULL;
}

/* While two threads write, every delivered row holds one repeated number. If each write replaces all rows, each batch
 * also holds one number. */
DEVICE_CASE(replay_rows_are_not_torn) {
  static int64_t values[LONG_BATCH * LONG_ROW];
  scoped_yard y = open_yard();
  for (int way = 0; way < 3; way++)
    for (int samples = 0; samples < 2; samples++) {
      scoped_tree tree = long_rows(LONG_ROWS);
      fill_long_rows(tree, LONG_ROWS, 0);
      scoped_replay r = replay_over(tree, LONG_ROWS);
      tdict_loader_options o = td_with(tdict_loader_options, batch_size = LONG_BATCH, num_workers = 2, endless = true,
                                       collate = samples ? stack_rows : NULL);
      scoped_loader l = loader_over(&y, r, &o);
      atomic_bool stops;
      atomic_int failures;
      atomic_init(&stops, false);
      atomic_init(&failures, 0);
      pthread_t threads[2];
      writer writers[2];
      for (int i = 0; i < 2; i++) {
        writers[i] = (writer){r, tree, way, 1 + i * 1000000000, &stops, &failures};
        threads[i] = td_start(run_writer, &writers[i]);
      }
      int64_t num_torn = 0, num_changes = 0, last = -1;
      for (int64_t k = 0; k < 400 / SANITIZED_STEP || (num_changes < 20 && k < 100000); k++) {
        tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
        assert_int_equal(read_leaf(&y, batch, "v", values, sizeof values), sizeof values);
        tdict_release(batch);
        for (int64_t row = 0; row < LONG_BATCH; row++) {
          const int64_t *v = values + row * LONG_ROW;
          if (way > 0 && !samples && v[0] != values[0]) num_torn++;
          for (int64_t i = 1; i < LONG_ROW; i++) num_torn += v[i] != v[0];
        }
        num_changes += values[0] != last;
        last = values[0];
      }
      atomic_store(&stops, true);
      for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
      assert_int_equal(num_torn, 0);
      assert_int_equal(failures, 0);
      assert_true(num_changes >= 20);
    }
}

/* Appends a row. Returns NULL if the append fails. */
static void *append_one(void *user) {
  scoped_tree rows = rows_from(50, 1);
  tdict_status status = tdict_replay_append(user, rows, NULL);
  return status == TDICT_OK ? user : NULL;
}
CASE(replay_lock_excludes) {
  scoped_yard y = open_yard();
  scoped_tree tree = rows_from(0, CAPACITY), batch = NULL;
  scoped_replay r = replay_over(tree, CAPACITY - 1);
  scoped_loader l = loader_over(&y, r, td_options(tdict_loader_options, num_workers = 2, timeout_ns = 1000000));
  void *result = NULL;
  tdict_replay_lock(r);
  pthread_t thread = td_start(append_one, r);
  td_fails(TDICT_ETIMEDOUT, "", tdict_loader_next(l, tdict_no_stream(), &batch, err));
  td_rest();
  tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  assert_int_equal(stats.num_ready, 0);
  assert_int_equal(state_of(r).num_filled, CAPACITY - 1); /* the state may be read under the lock */
  assert_int_equal(state_of(r).total, 0);
  tdict_replay_unlock(r);
  pthread_join(thread, &result);
  assert_ptr_equal(result, r);
  assert_int_equal(state_of(r).num_filled, CAPACITY);
  int64_t ids[MAX_ROWS], count = 0;
  tdict_status status;
  do { /* The epoch has begun before the append. */
    status = tdict_loader_next(l, tdict_no_stream(), &batch, NULL);
    if (status == TDICT_OK && batch) count += read_batch(&y, batch, ids + count, MAX_ROWS - count);
    if (status == TDICT_OK) tdict_release(batch);
  } while (status == TDICT_ETIMEDOUT || batch);
  assert_int_equal(count, CAPACITY - 1);
}

static tdict_status fetch_both(const tdict_dataset *d, tdict_tree *batch, tdict_error *err) {
  const tdict_dataset_table *t = tdict_dataset_get_table(d);
  return t->fetch_batch(t->self, NULL, (const int64_t[]){0, 1}, 2, batch, err);
}

/* A thread that fetches rows 0 and 1. */
typedef struct fetcher {
  tdict_dataset *dataset;
  tdict_tree *batch;
  pthread_t thread;
  tdict_status status;
  atomic_bool is_done;
} fetcher;
static void *fetch_two(void *user) {
  fetcher *f = user;
  f->status = fetch_both(f->dataset, f->batch, NULL);
  atomic_store(&f->is_done, true);
  return NULL;
}

/* While rows are copied into a batch, a thread begins to append to `watched`, and must wait. Then `later` begins to
 * fetch, and must wait, too. */
static fetcher *later; /* NULL: none */
static bool is_later_done;
static _Atomic(tdict_replay *) watched; /* NULL: copies are not watched. Workers of the loader read it too. */
static pthread_t appender;
static int64_t total_in_copy;

void __real_tdict_rows_read(void *dst, const void *src, const tdict_rows *rows, size_t width);
void __wrap_tdict_rows_read(void *dst, const void *src, const tdict_rows *rows, size_t width);
void __wrap_tdict_rows_read(void *dst, const void *src, const tdict_rows *rows, size_t width) {
  tdict_replay *r = atomic_exchange(&watched, NULL);
  if (r) {
    appender = td_start(append_one, r);
    td_rest();
    if (later) {
      later->thread = td_start(fetch_two, later);
      td_rest();
      is_later_done = atomic_load(&later->is_done);
    }
    total_in_copy = state_of(r).total;
  }
  __real_tdict_rows_read(dst, src, rows, width);
}

CASE(replay_fetch_holds_the_lock) {
  scoped_tree tree = rows_from(0, CAPACITY), batch = rows_of(2), sample = NULL;
  scoped_replay r = replay_over(tree, CAPACITY);
  scoped_dataset d = td_made(dataset, tdict_dataset_from_replay(r, &made, err));
  const tdict_dataset_table *t = tdict_dataset_get_table(d);
  td_ok(t->fetch_sample(t->self, NULL, 0, &sample, err));
  watched = r;
  total_in_copy = -1;
  td_ok(fetch_both(d, batch, err));
  assert_null(watched);
  pthread_join(appender, NULL);
  assert_int_equal(total_in_copy, 0);
  assert_int_equal(state_of(r).total, 1);
  for (int64_t i = 0; i < 2; i++) assert_int_equal(((const int64_t *)tdict_const_data(batch, "id"))[i], i);
  assert_int_equal(*(const int64_t *)tdict_const_data(tree, "id"), 50);
  assert_int_equal(*(const int64_t *)tdict_const_data(sample, "id"), 0); /* a copy, not a view of row 0 */
}

/* Fetches share the lock. A fetch that begins while a writer waits for the lock must wait for this writer, even while
 * an earlier fetch still holds the lock. */
CASE(replay_writers_go_before_later_fetches) {
  scoped_tree tree = rows_from(0, CAPACITY), batch = rows_of(2);
  tdict_replay *r = replay_over(tree, CAPACITY);
  fetcher f = {.batch = rows_of(2)};
  atomic_init(&f.is_done, false);
  td_ok(tdict_dataset_from_replay(r, &f.dataset, err));
  later = &f;
  is_later_done = true;
  watched = r;
  td_ok(fetch_both(f.dataset, batch, err));
  assert_null(watched);
  pthread_join(appender, NULL);
  pthread_join(f.thread, NULL);
  later = NULL;
  assert_int_equal(total_in_copy, 0);
  assert_false(is_later_done);
  assert_int_equal(f.status, TDICT_OK);
  assert_int_equal(*(const int64_t *)tdict_const_data(batch, "id"), 0);
  assert_int_equal(*(const int64_t *)tdict_const_data(f.batch, "id"), 50);
  td_release(f.dataset, r, f.batch);
}
