/* Datasets for the tests of the loader. Each sample identifies itself: "id" is its index, and "deep.x" has five numbers
 * computed from the index. Batches on a device are read without the library. Thread rule: any thread may call the
 * functions of the dataset; only the main thread calls the checks. */
#ifndef TDICT_TESTS_SERVICES_LOADER_NUMBERS_H
#define TDICT_TESTS_SERVICES_LOADER_NUMBERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/raw.h"
#include "support/test.h"

enum { X_COUNT = 5 };

typedef struct numbers {
  int64_t length; /* negative: a stream of `end` samples */
  int64_t end;
  int64_t fail_at; /* every fetch of this sample fails; -1: none */
  int delay_us;    /* a fetch sleeps for a shorter time, which depends on the index */
  atomic_int released, fetches, batches, running, most_running, out_of_order;
  atomic_llong last;    /* the index fetched last, for datasets that are read in order */
  pthread_mutex_t gate; /* locked by a test: fetches of sample `gated` wait here */
  atomic_bool at_gate;  /* a fetch waits at the gate */
  int64_t gated;
} numbers;

static inline numbers numbers_of(int64_t length) {
  numbers n = {.length = length, .end = length, .fail_at = -1, .gated = -1};
  pthread_mutex_init(&n.gate, NULL);
  atomic_init(&n.last, -1);
  atomic_init(&n.at_gate, false);
  return n;
}
static inline float number_of(int64_t index, int i) { return (float)((uint64_t)index * 31 + (uint64_t)(i * i) + 7); }

static inline int64_t numbers_length(void *self) { return ((numbers *)self)->length; }
static inline void numbers_release(void *self) { atomic_fetch_add(&((numbers *)self)->released, 1); }
static const tdict_field numbers_fields[] = {{"id", TDICT_I64, 0, {0}}, {"deep.x", TDICT_F32, 1, {X_COUNT}}};
static inline void give_fields(tdict_dataset_table *d) {
  d->fields = numbers_fields;
  d->num_fields = 2;
}
/* Begins a fetch: counts it, sleeps, waits at the gate if `index` is `gated`, and fails if it is `fail_at`. */
static inline tdict_status numbers_enter(numbers *n, int64_t index, tdict_error *err) {
  int running = atomic_fetch_add(&n->running, 1) + 1;
  int most = atomic_load(&n->most_running);
  while (running > most && !atomic_compare_exchange_weak(&n->most_running, &most, running)) continue;
  atomic_fetch_add(&n->fetches, 1);
  if (atomic_exchange(&n->last, index) >= index && index != 0) atomic_fetch_add(&n->out_of_order, 1);
  if (n->delay_us) usleep((useconds_t)((uint64_t)index * 7919 % (uint64_t)n->delay_us));
  if (index == n->gated) {
    atomic_store(&n->at_gate, true);
    pthread_mutex_lock(&n->gate);
    pthread_mutex_unlock(&n->gate);
  }
  tdict_status status = TDICT_OK;
  if (index == n->fail_at) {
    status = TDICT_EIO;
    if (err) {
      memset(err, 0, sizeof *err);
      err->status = TDICT_EIO;
      err->native = 5;
      snprintf(err->message, sizeof err->message, "the disk is worn");
    }
  } else if (n->length < 0 && index >= n->end) {
    status = TDICT_ENOTFOUND;
  }
  atomic_fetch_sub(&n->running, 1);
  return status;
}
static inline tdict_status numbers_fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                         int64_t row, tdict_error *err) {
  (void)info;
  tdict_status status = numbers_enter(self, index, err);
  if (status != TDICT_OK) return status;
  ((int64_t *)tdict_data(batch, "id"))[row] = index;
  float *x = (float *)tdict_data(batch, "deep.x") + row * X_COUNT;
  for (int i = 0; i < X_COUNT; i++) x[i] = number_of(index, i);
  return TDICT_OK;
}
static inline tdict_status numbers_fetch_batch(void *self, const tdict_fetch_info *info, const int64_t *indices,
                                               int64_t count, tdict_tree *batch, tdict_error *err) {
  tdict_status status = TDICT_OK;
  atomic_fetch_add(&((numbers *)self)->batches, 1);
  for (int64_t i = 0; i < count && status == TDICT_OK; i++)
    status = numbers_fetch(self, info, indices[i], batch, i, err);
  return status;
}
/* Adds a leaf to a sample: a vector, or a single element if `length` is NULL. */
static inline tdict_status add_leaf(tdict_tree *td, const char *path, tdict_dtype dtype, const int64_t *length,
                                    tdict_error *err) {
  scoped_tensor t = NULL;
  tdict_status status = tdict_tensor_empty(dtype, length ? 1 : 0, length, NULL, &t, err);
  if (status == TDICT_OK) status = tdict_set(td, path, t, err);
  return status;
}
static inline tdict_status numbers_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                          tdict_error *err) {
  (void)info;
  static const int64_t length = X_COUNT;
  tdict_status status = numbers_enter(self, index, err);
  tdict_tree *td = NULL;
  if (status == TDICT_OK) status = tdict_create(0, NULL, &td, err);
  if (status == TDICT_OK) status = add_leaf(td, "id", TDICT_I64, NULL, err);
  if (status == TDICT_OK) status = add_leaf(td, "deep.x", TDICT_F32, &length, err);
  if (status != TDICT_OK) {
    tdict_release(td);
    return status;
  }
  *(int64_t *)tdict_data(td, "id") = index;
  float *x = (float *)tdict_data(td, "deep.x");
  for (int i = 0; i < X_COUNT; i++) x[i] = number_of(index, i);
  *out = td;
  return TDICT_OK;
}

static inline tdict_dataset_table dataset_of(numbers *n) {
  tdict_dataset_table d =
      td_with(tdict_dataset_table, name = "numbers", self = n, length = numbers_length, release = numbers_release);
  return d;
}
static inline tdict_dataset_table by_row(numbers *n) {
  tdict_dataset_table d = dataset_of(n);
  give_fields(&d);
  d.fetch = numbers_fetch;
  return d;
}
static inline tdict_dataset_table by_sample(numbers *n) {
  tdict_dataset_table d = dataset_of(n);
  d.fetch_sample = numbers_sample;
  return d;
}

/* The environment of a test: a context and raw access to its device. */
typedef struct yard {
  tdict_context *c;
  tdict_device device;
  raw_memory *raw;
} yard;
static inline yard open_yard(void) {
  yard y = {.c = td_context(NULL), .device = td_device()};
  y.raw = raw_open(y.c, y.device);
  return y;
}
static inline void close_yard(yard *y) {
  raw_close(y->raw);
  tdict_context_destroy(y->c);
}
#define scoped_yard TD_SCOPED(close_yard, yard)
/* Creates a loader over a new dataset. Only the loader retains the dataset. */
static inline tdict_status create_loader_of(tdict_context *c, const tdict_dataset_table *table,
                                            const tdict_loader_options *o, tdict_loader **out, tdict_error *err) {
  scoped_dataset d = NULL;
  tdict_status status = tdict_dataset_create(table, &d, err);
  if (status == TDICT_OK) status = tdict_loader_create(c, d, o, out, err);
  return status;
}
/* Lets each allocation fail while a loader is created and delivers two epochs. Each failure must be TDICT_ENOMEM. */
static inline void expect_no_memory_in_two_epochs(const yard *y, const tdict_dataset_table *table,
                                                  const tdict_loader_options *o) {
  int64_t n = 0;
  for (bool failed = true; failed; n++) {
    tdict_loader *l = NULL;
    tdict_error error = {0};
    td_fail_alloc(n, false);
    tdict_status status = create_loader_of(y->c, table, o, &l, &error);
    for (int epoch = 0; status == TDICT_OK && epoch < 2; epoch++) {
      tdict_tree *batch = NULL;
      do {
        td_release(batch);
        status = tdict_loader_next(l, tdict_no_stream(), &batch, &error);
      } while (status == TDICT_OK && batch);
    }
    failed = td_fail_alloc_stop();
    assert_int_equal(status, failed ? TDICT_ENOMEM : TDICT_OK);
    tdict_loader_destroy(l);
  }
  assert_true(n > 20);
}
static inline tdict_loader *open_loader(const yard *y, const tdict_dataset_table *table,
                                        const tdict_loader_options *o) {
  return td_made(loader, create_loader_of(y->c, table, o, &made, err));
}
/* Creates a loader over a dataset, and releases the caller's reference to the dataset. */
static inline tdict_loader *open_loader_on(const yard *y, tdict_dataset *d, const tdict_loader_options *o) {
  tdict_loader *l = td_made(loader, tdict_loader_create(y->c, d, o, &made, err));
  tdict_dataset_release(d);
  return l;
}
/* Copies the elements of a contiguous tensor to `out`. Returns the number of bytes. */
static inline size_t read_leaf(const yard *y, const tdict_tree *batch, const char *path, void *out, size_t room) {
  tdict_tensor *t = NULL;
  tdict_tensor_desc view = tdict_tensor_desc_default();
  td_ok(tdict_get(batch, path, &t, err));
  size_t bytes = tdict_tensor_bytes(t);
  assert_true(bytes <= room);
  assert_true(tdict_device_equal(tdict_tensor_device(t), y->device));
  tdict_tensor_get_desc(t, &view);
  raw_read(y->raw, out, view.data, bytes);
  return bytes;
}
/* Writes the ids of a batch to `ids`, and returns their number. Checks the other elements against the ids. */
static inline int64_t read_batch(const yard *y, const tdict_tree *batch, int64_t *ids, int64_t room) {
  float x[64 * X_COUNT];
  size_t bytes = read_leaf(y, batch, "id", ids, (size_t)room * sizeof *ids);
  int64_t count = (int64_t)(bytes / sizeof *ids);
  assert_int_equal(tdict_batch_size(batch)[0], count);
  assert_int_equal(read_leaf(y, batch, "deep.x", x, sizeof x), (size_t)count * X_COUNT * sizeof *x);
  for (int64_t k = 0; k < count; k++)
    for (int i = 0; i < X_COUNT; i++) assert_true(x[k * X_COUNT + i] == number_of(ids[k], i));
  return count;
}
/* Takes the batches of an epoch. Writes their ids in the order of delivery, and returns the number of ids. */
static inline int64_t read_epoch(const yard *y, tdict_loader *l, int64_t *ids, int64_t room) {
  int64_t count = 0;
  for (;;) {
    tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    if (!batch) return count;
    count += read_batch(y, batch, ids + count, room - count);
    tdict_release(batch);
  }
}

#endif
