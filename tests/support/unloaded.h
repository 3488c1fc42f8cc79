/* Trees whose leaves are read by a callback. A *disk* counts the reads, can hold them at a gate, and can make one read
 * fail. Each *file* of a disk is an unloaded storage whose content is a buffer of the test. Thread rule: reads run on
 * any thread, all other functions on the main thread. */
#ifndef TDICT_TESTS_SUPPORT_UNLOADED_H
#define TDICT_TESTS_SUPPORT_UNLOADED_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "core/tree/objects.h"
#include "support/test.h"

/* How the chosen read fails. */
typedef enum disk_fault {
  DISK_ERROR,
  DISK_SHORT,
  DISK_LONG,
  DISK_EMPTY,
  DISK_SILENT,
  DISK_UNKNOWN,
  NUM_DISK_FAULTS
} disk_fault;

typedef struct disk {
  pthread_mutex_t lock; /* guards all fields below */
  pthread_cond_t changed;
  int64_t permits;      /* number of reads that may pass the gate; -1: any */
  int64_t begun, ended; /* numbers of reads that have begun, and that have ended */
  int inside, most_inside;
  int64_t fail_at; /* number of the read that fails, from 1; 0: none */
  disk_fault fault;
  char failed_path[64]; /* the file whose read failed */
  size_t most_bytes;    /* size of the largest read */
  uintptr_t low, high;  /* range of the addresses that reads have written */
  bool wrong;           /* a read went beyond its file */
  int num_files, released;
} disk;
typedef struct disk_file {
  disk *disk;
  const unsigned char *bytes;
  size_t size;
  char path[64];
} disk_file;

static inline disk disk_open(void) {
  return (disk){
      .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .permits = -1, .low = UINTPTR_MAX};
}
/* Destroys the disk. All its files must have been released. */
static inline void disk_reset(disk *d) {
  assert_int_equal(d->released, d->num_files);
  assert_int_equal(d->inside, 0);
  assert_false(d->wrong);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
}
#define scoped_disk TD_SCOPED(disk_reset, disk)
static inline void disk_permit(disk *d, int64_t permits) {
  pthread_mutex_lock(&d->lock);
  d->permits = permits;
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
}
/* Waits until `begun` reads have begun. */
static inline void disk_await(disk *d, int64_t begun) {
  pthread_mutex_lock(&d->lock);
  while (d->begun < begun) pthread_cond_wait(&d->changed, &d->lock);
  pthread_mutex_unlock(&d->lock);
}
static inline void disk_fail(disk *d, int64_t read, disk_fault fault) {
  d->begun = d->ended = 0;
  d->fail_at = read;
  d->fault = fault;
  d->failed_path[0] = 0;
}
static inline tdict_status disk_status(disk_fault fault) {
  return fault == DISK_UNKNOWN ? TDICT_EHOOK : fault == DISK_SILENT ? TDICT_EFORMAT : TDICT_EIO;
}

static inline tdict_status disk_answer(disk *d, const disk_file *f, size_t bytes, size_t *done, tdict_error *err) {
  memcpy(d->failed_path, f->path, sizeof d->failed_path);
  switch (d->fault) {
  case DISK_ERROR:
    return tdict_fail(err, TDICT_EIO, "the disk is on fire");
  case DISK_SHORT:
    *done = bytes - 1;
    return TDICT_OK;
  case DISK_LONG:
    *done = bytes + 1;
    return TDICT_OK;
  case DISK_EMPTY:
    *done = 0;
    return TDICT_OK;
  case DISK_SILENT:
    return TDICT_EFORMAT;
  case DISK_UNKNOWN:
    return (tdict_status)999;
  case NUM_DISK_FAULTS:
    break;
  }
  return TDICT_OK;
}

static inline tdict_status disk_read(void *user, size_t offset, void *dst, size_t bytes, size_t *done,
                                     tdict_error *err) {
  const disk_file *f = user;
  disk *d = f->disk;
  pthread_mutex_lock(&d->lock);
  const int64_t number = ++d->begun;
  if (++d->inside > d->most_inside) d->most_inside = d->inside;
  pthread_cond_broadcast(&d->changed);
  while (d->permits == 0) pthread_cond_wait(&d->changed, &d->lock);
  if (d->permits > 0) d->permits--;
  const bool fits = bytes > 0 && offset <= f->size && bytes <= f->size - offset;
  d->wrong |= !fits;
  if (bytes > d->most_bytes) d->most_bytes = bytes;
  if ((uintptr_t)dst < d->low) d->low = (uintptr_t)dst;
  if ((uintptr_t)dst + bytes > d->high) d->high = (uintptr_t)dst + bytes;
  pthread_mutex_unlock(&d->lock);
  if (fits) memcpy(dst, f->bytes + offset, bytes);
  *done = bytes;
  pthread_mutex_lock(&d->lock);
  tdict_status status = number == d->fail_at ? disk_answer(d, f, bytes, done, err) : TDICT_OK;
  d->inside--;
  d->ended++;
  pthread_mutex_unlock(&d->lock);
  return status;
}
static inline void disk_release(void *user) {
  disk_file *f = user;
  pthread_mutex_lock(&f->disk->lock);
  f->disk->released++;
  pthread_mutex_unlock(&f->disk->lock);
  free(f);
}

/* Adds a file whose content is `bytes`, which must stay valid. */
static inline tdict_storage *disk_add(disk *d, const void *bytes, size_t size, const char *path) {
  disk_file *f = td_zeros(1, sizeof *f);
  *f = (disk_file){.disk = d, .bytes = bytes, .size = size};
  snprintf(f->path, sizeof f->path, "%s", path);
  const tdict_storage_reader reader = {disk_read, disk_release, f};
  tdict_storage *s = td_made(storage, tdict_storage_create_unloaded(&reader, size, &made, err));
  d->num_files++;
  return s;
}
/* Returns a leaf over a file, with the layout of `like`. */
static inline tdict_tensor *disk_leaf(tdict_storage *file, const tdict_tensor *like) {
  const uintptr_t offset = (uintptr_t)like->data - (uintptr_t)like->storage->data;
  const tdict_tensor_desc view = {.data = (void *)((uintptr_t)file->data + offset),
                                  .dtype = like->dtype,
                                  .ndim = like->ndim,
                                  .shape = like->dims,
                                  .strides = tdict_tensor_dims_strides(like)};
  return td_made(tensor, tdict_tensor_over(file, &view, &made, err));
}

/* The state of a walk that replaces leaves of a tree with leaves over files. */
typedef struct disk_maker {
  disk *disk;
  tdict_tree *twin;
  uint64_t random;
  int percent;                    /* percentage of the leaves to replace */
  const tdict_storage *from[400]; /* storages of replaced leaves; files[i] replaces from[i] */
  tdict_storage *files[400];
  int count;
} disk_maker;
static inline tdict_status disk_replace(void *user, const tdict_entry *entry, tdict_error *err) {
  disk_maker *m = user;
  int i = 0;
  m->random = m->random * 6364136223846793005u + 1442695040888963407u;
  if (!entry->tensor || (int)(m->random >> 33) % 100 >= m->percent) return TDICT_OK;
  for (; i < m->count && m->from[i] != entry->tensor->storage; i++) continue;
  if (i == m->count) {
    assert_true(m->count < 400);
    m->from[i] = entry->tensor->storage;
    m->files[i] = disk_add(m->disk, entry->tensor->storage->data, entry->tensor->storage->bytes, entry->path);
    m->count++;
  }
  scoped_tensor t = disk_leaf(m->files[i], entry->tensor);
  tdict_status status = tdict_set(m->twin, entry->path, t, err);
  return status;
}
/* Returns a tree with the keys and elements of `tree`, which must outlive it. About `percent` percent of its leaves are
 * over files of the disk. */
static inline tdict_tree *disk_twin(disk *d, const tdict_tree *tree, int percent, uint64_t seed) {
  TD_FREED disk_maker *m = td_zeros(1, sizeof *m);
  m->disk = d;
  m->random = seed;
  m->percent = percent;
  td_ok(tdict_clone(tree, &m->twin, err));
  td_ok(tdict_walk(tree, disk_replace, m, err));
  for (int i = 0; i < m->count; i++) tdict_storage_release(m->files[i]);
  tdict_tree *twin = m->twin;
  return twin;
}

#endif
