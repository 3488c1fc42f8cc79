/* Helpers for tests of transfers: they read leaves without the library, compare trees, and list combinations of
 * options. trees.h has trees to move. The caller releases the objects that these functions return. Thread rule: only
 * the main thread. */
#ifndef TDICT_TESTS_ENGINE_HELP_H
#define TDICT_TESTS_ENGINE_HELP_H

#include <unistd.h>

#include "core/tensor/naive.h"
#include "place.h"

enum { POISON = 0xA5, STAGING = 1 << 20, SLOT = STAGING / 32 };

static inline place open_place(void) { return place_sized(STAGING, -1); }

/* fill_storage() fills the whole storage of a tensor with one byte. read_storage() reads the whole storage. */
static inline void fill_storage(const place *w, const tdict_tensor *t, unsigned char byte) {
  raw_fill(raw_of(w, t), t->storage->data, byte, t->storage->bytes);
}
static inline unsigned char *read_storage(const place *w, const tdict_tensor *t) {
  unsigned char *bytes = td_alloc(t->storage->bytes + 1);
  raw_read(raw_of(w, t), bytes, t->storage->data, t->storage->bytes);
  return bytes;
}

/* Returns the elements in C order. The caller frees the array. */
static inline unsigned char *read_elements(const place *w, const tdict_tensor *t) {
  size_t bytes = tdict_tensor_bytes(t), item = tdict_dtype_bytes(tdict_tensor_dtype(t));
  unsigned char *out = td_alloc(bytes + 1);
  if (tdict_tensor_is_contiguous(t)) {
    raw_read(raw_of(w, t), out, t->data, bytes);
    return out;
  }
  naive_layout from = naive_layout_of(t), to = from;
  for (int64_t i = to.ndim - 1, step = 1; i >= 0; step *= to.shape[i--]) to.strides[i] = step;
  scoped_bytes all = read_storage(w, t);
  naive_copy(&to, out, &from, all + ((char *)t->data - (char *)t->storage->data), item);
  return out;
}

/* The entries of a tree in order, with their paths. The tensors are borrowed. */
typedef struct leaf_list {
  size_t count, cap;
  tdict_tensor **tensors;
  char **paths;
} leaf_list;
static inline tdict_status note_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  leaf_list *l = user;
  (void)err;
  if (l->count == l->cap) {
    l->cap = l->cap ? 2 * l->cap : 16;
    l->tensors = realloc(l->tensors, l->cap * sizeof *l->tensors);
    l->paths = realloc(l->paths, l->cap * sizeof *l->paths);
    assert_non_null(l->tensors);
    assert_non_null(l->paths);
  }
  l->tensors[l->count] = entry->tensor; /* NULL if the entry is a tree */
  l->paths[l->count++] = strdup(entry->path);
  return TDICT_OK;
}
static inline leaf_list list_entries(const tdict_tree *td) {
  leaf_list l = {0};
  td_ok(tdict_walk(td, note_entry, &l, err));
  return l;
}
static inline void free_list(leaf_list *l) {
  for (size_t i = 0; i < l->count; i++) free(l->paths[i]);
  free(l->paths);
  free(l->tensors);
}
#define scoped_leaf_list TD_SCOPED(free_list, leaf_list)

static inline void check_same_shape(const tdict_tensor *a, const tdict_tensor *b) {
  assert_int_equal(tdict_tensor_dtype(a), tdict_tensor_dtype(b));
  assert_int_equal(tdict_tensor_ndim(a), tdict_tensor_ndim(b));
  for (int i = 0; i < tdict_tensor_ndim(a); i++) assert_int_equal(tdict_tensor_shape(a)[i], tdict_tensor_shape(b)[i]);
}
static inline void check_tensor(const place *w, const tdict_tensor *want, const tdict_tensor *got, const char *path) {
  check_same_shape(want, got);
  scoped_bytes a = read_elements(w, want), b = read_elements(w, got);
  if (memcmp(a, b, tdict_tensor_bytes(want)) != 0) {
    size_t at = 0;
    while (a[at] == b[at]) at++;
    fail_msg("leaf '%s' differs from byte %zu of %zu on: 0x%02x, wanted 0x%02x", path, at, tdict_tensor_bytes(want),
             b[at], a[at]);
  }
}
/* Checks that two trees have the same keys in the same order, shapes and elements. Strides and devices may differ. */
static inline void check_tree(const place *w, const tdict_tree *want, const tdict_tree *got) {
  leaf_list a = list_entries(want), b = list_entries(got);
  assert_int_equal(a.count, b.count);
  for (size_t i = 0; i < a.count; i++) {
    assert_string_equal(a.paths[i], b.paths[i]);
    assert_int_equal(a.tensors[i] != NULL, b.tensors[i] != NULL);
    if (a.tensors[i]) check_tensor(w, a.tensors[i], b.tensors[i], a.paths[i]);
  }
  free_list(&a);
  free_list(&b);
}
static inline void check_and_release(const place *w, const tdict_tree *want, tdict_tree *got) {
  check_tree(w, want, got);
  tdict_release(got);
}
static inline void check_device(const tdict_tree *td, tdict_device device) {
  scoped_leaf_list l = list_entries(td);
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) assert_true(tdict_device_equal(tdict_tensor_device(l.tensors[i]), device));
}
/* Overwrites the storages of a tree, so that reused memory does not already have the expected bytes. */
static inline void spoil_tree(const place *w, const tdict_tree *td) {
  scoped_leaf_list l = list_entries(td);
  const tdict_storage *filled = NULL; /* all new leaves of a result share a storage */
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i] || l.tensors[i]->storage == filled) continue;
    fill_storage(w, l.tensors[i], POISON);
    filled = l.tensors[i]->storage;
  }
}

/* Checks a tree, overwrites its bytes, and releases it. */
static inline void check_and_spoil(const place *w, const tdict_tree *want, tdict_tree *got) {
  check_tree(w, want, got);
  spoil_tree(w, got);
  tdict_release(got);
}

/* A stream of the simulated device whose queued work waits until the test sets `open`. The test destroys the stream. */
typedef struct held_stream {
  tdict_stream s;
  atomic_bool open;
} held_stream;
static inline void hold_until_open(void *user) {
  while (!atomic_load((atomic_bool *)user)) usleep(100);
}
static inline void hold_stream(const place *w, held_stream *h) {
  atomic_init(&h->open, false);
  td_ok(tdict_stream_create(w->c, w->device, &h->s, err));
  td_ok(tdict_sim_launch(h->s, hold_until_open, &h->open, err));
}
static inline tdict_transfer_options behind(const held_stream *h) {
  return td_with(tdict_transfer_options, after = h->s);
}

/* Returns the storage size of a result with the leaves of `td`. Each leaf begins at a multiple of 256 bytes. */
static inline size_t line_bytes(const tdict_tree *td) {
  scoped_leaf_list l = list_entries(td);
  size_t at = 0;
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) at = (at + 255) / 256 * 256 + tdict_tensor_bytes(l.tensors[i]);
  return at;
}
/* Allocates `bytes` bytes, fills them with 0xA5 and frees them, so that the next allocation reuses them. */
static inline void poison(const place *w, tdict_memory *memory, size_t bytes) {
  const int64_t count = (int64_t)bytes;
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &count, memory, &made, err));
  if (bytes) fill_storage(w, t, POISON);
}

/* The options of a transfer, and whether its call is asynchronous. */
typedef struct way {
  tdict_transfer_options o;
  bool async;
} way;
enum { NUM_WAYS = 4 * 5 * 2 };
enum { WAYS_STEP = SANITIZED_STEP }; /* cases with many trees try only every WAYS_STEP-th way */
/* The step for cases with many trees, which try about six ways for each tree. The step is prime, so that all modes and
 * numbers of threads occur. */
enum { FEW_WAYS_STEP = SANITIZED ? 17 : 7 };
static inline way way_at(int i) {
  static const int32_t threads[] = {0, 1, 2, 8, -1};
  way v = {.o = tdict_transfer_options_default(), .async = i % 2};
  v.o.num_threads = threads[i / 2 % 5];
  v.o.mode = TDICT_MODE_AUTO + i / 10;
  return v;
}
static inline void check_result(const place *w, const tdict_tree *want, tdict_future *f) {
  check_and_release(w, want, finish(f));
}
static inline tdict_tree *move_tree(const place *w, const tdict_tree *src, tdict_device device, const way *v) {
  return v->async ? finish(move_async(w, src, device, &v->o)) : move_with(w, src, device, &v->o);
}
static inline void copy_tree(const place *w, const tdict_tree *src, tdict_tree *dst, const way *v) {
  if (!v->async) {
    td_ok(tdict_transfer_into(w->c, dst, src, &v->o, err));
    return;
  }
  scoped_tree out = finish(copy_async(w, src, dst, &v->o));
  assert_ptr_equal(out, dst);
}
/* Moves a tree with a blocking call that uses no pool threads. */
static inline tdict_tree *to_device(const place *w, const tdict_tree *src, tdict_device device) {
  const tdict_transfer_options o = threads(0);
  return move_with(w, src, device, &o);
}

#endif
