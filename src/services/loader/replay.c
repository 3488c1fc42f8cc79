/* Implements replay buffers. A buffer owns a shallow clone of its tree, and a dataset of this clone. The dataset copies
 * rows into batches. Thread rule: see tdict/replay.h. Fetches hold `lock` for reading, and writers hold `lock` for
 * writing. `counts_lock` is a leaf: a thread that holds it takes no other lock. */
#include "tdict/replay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/ops/check_copy.h"
#include "core/tree/objects.h"
#include "services/loader/dataset.h"
#include "tdict/clone.h"
#include "tdict/index.h"
#include "tdict/object.h"

/* Maximum total of a saved state. Counting from here to INT64_MAX takes centuries, so appends need no overflow
 * check. */
#define MAX_TOTAL (INT64_MAX / 2)

struct tdict_replay {
  atomic_long references;
  tdict_tree *tree;       /* a shallow clone of the program's tree */
  tdict_dataset *dataset; /* the dataset of all rows of the tree, filled or not */

  /* Held while a thread waits for `lock`. A fetch that begins while a writer waits must therefore wait for the writer,
   * even if other fetches hold `lock`. The mutex is needed because POSIX does not define whether a rwlock prefers its
   * writers. */
  pthread_mutex_t entrance;
  pthread_rwlock_t lock;       /* guards: the elements of the tree */
  pthread_mutex_t counts_lock; /* guards: the counts in `state`, all but its capacity. Only a writer that holds `lock`
                                * changes them, and such a writer reads them without counts_lock */
  tdict_replay_state state;
};

static void lock_for_reading(tdict_replay *r) {
  pthread_mutex_lock(&r->entrance);
  pthread_rwlock_rdlock(&r->lock);
  pthread_mutex_unlock(&r->entrance);
}

void tdict_replay_lock(tdict_replay *r) {
  pthread_mutex_lock(&r->entrance);
  pthread_rwlock_wrlock(&r->lock);
  pthread_mutex_unlock(&r->entrance);
}

void tdict_replay_unlock(tdict_replay *r) { pthread_rwlock_unlock(&r->lock); }

static void free_replay(tdict_replay *r) {
  tdict_dataset_release(r->dataset);
  tdict_release(r->tree);
  pthread_rwlock_destroy(&r->lock);
  pthread_mutex_destroy(&r->counts_lock);
  pthread_mutex_destroy(&r->entrance);
  free(r);
}

/* Clones the tree, and makes the dataset of all rows of the clone. */
static tdict_status open_tree(tdict_replay *r, const tdict_tree *tree, int64_t num_filled, tdict_error *err) {
  tdict_status status = tdict_clone(tree, &r->tree, err);
  if (status == TDICT_OK) status = tdict_objects_refuse("replay", r->tree, false, NULL, ", wanted tensors", err);
  if (status == TDICT_OK) status = tdict_dataset_from_tree(r->tree, &r->dataset, err);
  if (status != TDICT_OK) return status;
  r->state.capacity = tdict_batch_size(r->tree)[0];
  if (r->state.capacity == 0 || r->dataset->table.num_fields == 0)
    return tdict_fail(err, TDICT_EINVAL, "replay: the tree has no %s", r->state.capacity == 0 ? "row" : "tensor");
  if (num_filled < 0 || num_filled > r->state.capacity)
    return tdict_fail(err, TDICT_EINVAL, "replay: num_filled is %lld, wanted 0 to the capacity %lld",
                      (long long)num_filled, (long long)r->state.capacity);
  r->state.next_row = num_filled % r->state.capacity;
  r->state.num_filled = num_filled;
  return TDICT_OK;
}

tdict_status tdict_replay_create(const tdict_tree *tree, int64_t num_filled, tdict_replay **out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "replay", tree ? "out" : "the tree");
  tdict_replay *r = calloc(1, sizeof *r);
  if (!r) return tdict_fail_memory(err, "replay", NULL, "its record");
  atomic_init(&r->references, 1);
  r->state = tdict_replay_state_default();
  pthread_mutex_init(&r->entrance, NULL);
  pthread_mutex_init(&r->counts_lock, NULL);
  pthread_rwlock_init(&r->lock, NULL);
  tdict_status status = open_tree(r, tree, num_filled, err);
  return TDICT_HAND_OVER(status, r, out, free_replay);
}

tdict_replay *tdict_replay_retain(const tdict_replay *replay) {
  tdict_replay *counted = (tdict_replay *)replay; /* The reference count changes even for a const buffer. */
  atomic_fetch_add_explicit(&counted->references, 1, memory_order_relaxed);
  return counted;
}

void tdict_replay_release(tdict_replay *r) {
  if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) != 1) return;
  free_replay(r);
}

/* Checks a tensor of the rows. Waits for transfers into the tensor here, so that no writer waits for a device while the
 * writer holds the lock. tdict_write_rows() and tdict_index_set() check dtypes and shapes. */
static tdict_status check_tensor(const tdict_tensor *t, tdict_error *err) {
  if (!tdict_is_on_host(t))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "replay: the tensor is on %s, wanted host memory",
                      TDICT_DEVICE_TEXT(tdict_tensor_device(t)));
  return tdict_check_not_lost("replay", t, err);
}

/* Checks the batch size of the rows. Checks that the rows have the tensors of the buffer, and no objects. */
static tdict_status check_rows(const tdict_replay *r, const tdict_tree *rows, tdict_error *err) {
  if (tdict_batch_ndim(rows) != tdict_batch_ndim(r->tree))
    return tdict_fail(err, TDICT_ESHAPE, "replay: the rows have %d batch dimensions, wanted %d", tdict_batch_ndim(rows),
                      tdict_batch_ndim(r->tree));
  if (tdict_batch_size(rows)[0] > r->state.capacity)
    return tdict_fail(err, TDICT_EINVAL, "replay: %lld rows, wanted at most the capacity %lld",
                      (long long)tdict_batch_size(rows)[0], (long long)r->state.capacity);
  if (tdict_num_objects(rows) > 0) return tdict_fail(err, TDICT_ENOTSUP, "replay: the rows have an object");
  for (size_t f = 0; f < r->dataset->table.num_fields; f++) {
    tdict_tensor *t;
    const char *path = r->dataset->table.fields[f].path;
    tdict_status status = tdict_get(rows, path, &t, err);
    if (status == TDICT_OK) status = check_tensor(t, err);
    if (status != TDICT_OK) return tdict_error_at(err, status, path);
  }
  return TDICT_OK;
}

/* Writes rows that reach the end of the buffer and continue at row 0. One call writes both parts, because the second of
 * two calls could fail after the first part was written. */
static tdict_status write_around_end(tdict_replay *r, const tdict_tree *rows, int64_t count, tdict_error *err) {
  int64_t *positions = malloc((size_t)count * sizeof *positions);
  if (!positions) return tdict_fail_memory(err, "replay", NULL, "%lld positions", (long long)count);
  for (int64_t i = 0; i < count; i++) positions[i] = (r->state.next_row + i) % r->state.capacity;
  tdict_status status = tdict_index_set(NULL, r->tree, TDICT_INDEX(TDICT_LIST(positions, count)), rows, NULL, err);
  free(positions);
  return status;
}

/* Sets the counts. The caller holds the lock for writing. */
static void set_counts(tdict_replay *r, int64_t next_row, int64_t length, int64_t total) {
  pthread_mutex_lock(&r->counts_lock);
  r->state.next_row = next_row;
  r->state.num_filled = length;
  r->state.total = total;
  pthread_mutex_unlock(&r->counts_lock);
}

tdict_status tdict_replay_append(tdict_replay *r, const tdict_tree *rows, tdict_error *err) {
  if (!r || !rows) return tdict_fail_null(err, "replay", r ? "rows" : "the replay buffer");
  tdict_status status = check_rows(r, rows, err);
  if (status != TDICT_OK) return status;
  int64_t count = tdict_batch_size(rows)[0];
  tdict_replay_lock(r);
  if (count <= r->state.capacity - r->state.next_row)
    status = tdict_write_rows(r->tree, r->state.next_row, rows, err);
  else
    status = write_around_end(r, rows, count, err);
  if (status == TDICT_OK) {
    int64_t length = count < r->state.capacity - r->state.num_filled ? r->state.num_filled + count : r->state.capacity;
    set_counts(r, (r->state.next_row + count) % r->state.capacity, length, r->state.total + count);
  }
  tdict_replay_unlock(r);
  return status;
}

tdict_status tdict_replay_write(tdict_replay *r, int64_t first, const tdict_tree *rows, tdict_error *err) {
  if (!r || !rows) return tdict_fail_null(err, "replay", r ? "rows" : "the replay buffer");
  tdict_status status = check_rows(r, rows, err);
  if (status != TDICT_OK) return status;
  int64_t count = tdict_batch_size(rows)[0];
  tdict_replay_lock(r);
  if (first < 0 || first > r->state.num_filled || count > r->state.num_filled - first)
    status = tdict_fail(err, TDICT_EINVAL, "replay: %lld rows at row %lld, but %lld rows are filled", (long long)count,
                        (long long)first, (long long)r->state.num_filled);
  else
    status = tdict_write_rows(r->tree, first, rows, err);
  tdict_replay_unlock(r);
  return status;
}

void tdict_replay_clear(tdict_replay *r) {
  if (!r) return;
  tdict_replay_lock(r);
  set_counts(r, 0, 0, r->state.total);
  tdict_replay_unlock(r);
}

static tdict_replay_state describe_state(const tdict_replay *r) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&r->counts_lock; /* The lock changes even for a const buffer. */
  pthread_mutex_lock(lock);
  const tdict_replay_state s = r->state;
  pthread_mutex_unlock(lock);
  return s;
}

tdict_status tdict_replay_get_state(const tdict_replay *r, tdict_replay_state *out, tdict_error *err) {
  if (!r || !out) return tdict_fail_null(err, "replay state", r ? "out" : "the replay buffer");
  tdict_replay_state s = describe_state(r);
  return tdict_options_write(out, &s, sizeof s, "replay state", err);
}

/* Returns TDICT_EINVAL if a buffer of this capacity cannot have the state. */
static tdict_status check_state(const tdict_replay *r, const tdict_replay_state *s, tdict_error *err) {
  if (s->capacity != r->state.capacity)
    return tdict_fail(err, TDICT_EINVAL, "replay state: saved for a capacity of %lld, this buffer has %lld",
                      (long long)s->capacity, (long long)r->state.capacity);
  if (s->num_filled < 0 || s->num_filled > s->capacity)
    return tdict_fail(err, TDICT_EINVAL, "replay state: num_filled is %lld, wanted 0 to the capacity %lld",
                      (long long)s->num_filled, (long long)s->capacity);
  bool is_full = s->num_filled == s->capacity;
  if (s->next_row < 0 || s->next_row >= s->capacity || (!is_full && s->next_row != s->num_filled))
    return tdict_fail(err, TDICT_EINVAL, "replay state: next_row is %lld, but %lld of %lld rows are filled",
                      (long long)s->next_row, (long long)s->num_filled, (long long)s->capacity);
  if (s->total < 0 || s->total > MAX_TOTAL)
    return tdict_fail(err, TDICT_EINVAL, "replay state: total is %lld, wanted 0 to %lld", (long long)s->total,
                      (long long)MAX_TOTAL);
  return TDICT_OK;
}

tdict_status tdict_replay_set_state(tdict_replay *r, const tdict_replay_state *state, tdict_error *err) {
  if (!r || !state) return tdict_fail_null(err, "replay state", r ? "the state" : "the replay buffer");
  tdict_replay_state s;
  tdict_status status = tdict_options_read_saved(&s, sizeof s, state, "replay state", err);
  if (status == TDICT_OK) status = check_state(r, &s, err);
  if (status != TDICT_OK) return status;
  tdict_replay_lock(r);
  set_counts(r, s.next_row, s.num_filled, s.total);
  tdict_replay_unlock(r);
  return TDICT_OK;
}

/* The functions of the dataset. */

static int64_t count_filled(void *self) { return describe_state(self).num_filled; }
static void release_replay(void *self) { tdict_replay_release(self); }

/* Checks that all rows are filled. The caller holds the lock. */
static tdict_status check_filled(const tdict_replay *r, const int64_t *indices, int64_t count, tdict_error *err) {
  int64_t length = r->state.num_filled;
  for (int64_t i = 0; i < count; i++)
    if (indices[i] < 0 || indices[i] >= length)
      return tdict_fail(err, TDICT_ECHANGED, "replay: row %lld, but %lld rows are filled; call tdict_loader_restart()",
                        (long long)indices[i], (long long)length);
  return TDICT_OK;
}

static tdict_status fetch_filled_rows(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                      tdict_tree *batch, tdict_error *err) {
  tdict_replay *r = self;
  const tdict_dataset_table *rows = &r->dataset->table;
  lock_for_reading(r);
  tdict_status status = check_filled(r, indices, count, err);
  if (status == TDICT_OK) status = rows->fetch_batch(rows->self, info, indices, count, batch, err);
  tdict_replay_unlock(r);
  return status;
}

/* Returns a copy of a row, because a view would show later writes. */
static tdict_status fetch_filled_row(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                     tdict_error *err) {
  (void)info;
  tdict_replay *r = self;
  tdict_tree *row = NULL;
  lock_for_reading(r);
  tdict_status status = check_filled(r, &index, 1, err);
  if (status == TDICT_OK) status = tdict_index_get(NULL, r->tree, TDICT_INDEX(TDICT_AT(index)), NULL, &row, err);
  if (status == TDICT_OK) status = tdict_clone_deep(row, NULL, out, err);
  tdict_replay_unlock(r);
  tdict_release(row);
  return status;
}

tdict_status tdict_dataset_from_replay(tdict_replay *r, tdict_dataset **out, tdict_error *err) {
  if (!r || !out) return tdict_fail_null(err, "replay", r ? "out" : "the replay buffer");
  tdict_dataset_table t = tdict_dataset_table_default();
  t.name = "replay";
  t.self = tdict_replay_retain(r);
  t.fields = r->dataset->table.fields;
  t.num_fields = r->dataset->table.num_fields;
  t.length = count_filled;
  t.fetch_batch = fetch_filled_rows;
  t.fetch_sample = fetch_filled_row;
  t.release = release_replay;
  t.length_varies = true;
  return tdict_dataset_wrap(&t, out, err);
}
