/* Trees for tests of transfers. Each kind has leaves that transfers treat differently. All leaves have different random
 * bytes. Thread rule: only the main thread. */
#ifndef TDICT_TESTS_ENGINE_TREES_H
#define TDICT_TESTS_ENGINE_TREES_H

#include "help.h"

#define SHAPE(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

typedef enum tree_kind {
  TREE_BATCH,   /* seven nested leaves, which are views of one storage, and a batch size */
  TREE_TINY,    /* 300 leaves of a few bytes, each with its own storage */
  TREE_LARGE,   /* one leaf that needs many slots */
  TREE_STRIDED, /* permuted, stepped, backwards and repeated leaves */
  TREE_ODD,     /* all dtypes, scalars, leaves without elements, an empty tree, a deep tree */
  TREE_SHARED,  /* leaves with two keys, a tree at two paths, views of one storage */
  TREE_PINNED,  /* pinned leaves of many sizes; two tensors with TDICT_DESC_PINNED, one of them pageable */
  TREE_MIXED,   /* leaves alternately in pinned and in pageable memory */
  NUM_TREE_KINDS
} tree_kind;

static inline uint64_t next_seed(void) {
  static uint64_t seed;
  return ++seed;
}
static inline tdict_tensor *random_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, tdict_memory *memory) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, memory, &made, err));
  if (tdict_tensor_bytes(t)) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), next_seed());
  return t;
}
/* Makes a tree with one leaf of random bytes. */
static inline tdict_tree *bytes_tree(const char *path, int64_t count, tdict_memory *memory) {
  tdict_tree *td = new_tree();
  td_put(td, path, random_tensor(TDICT_U8, SHAPE(count), memory));
  return td;
}
/* Returns a slice of a tensor, and releases the tensor. */
static inline tdict_tensor *sliced(tdict_tensor *t, tdict_tensor_range range) {
  tdict_tensor *view = td_made(tensor, tdict_tensor_slice(t, &range, &made, err));
  tdict_tensor_release(t);
  return view;
}
static inline tdict_tensor *permuted(tdict_tensor *t, const int *order) {
  tdict_tensor *view = td_made(tensor, tdict_tensor_permute(t, tdict_tensor_ndim(t), order, &made, err));
  tdict_tensor_release(t);
  return view;
}
static inline tdict_tensor *restrided(tdict_tensor *t, int64_t offset, int ndim, const int64_t *shape,
                                      const int64_t *strides) {
  tdict_tensor *view = NULL;
  tdict_tensor_desc v = td_with(tdict_tensor_desc, ndim = ndim, shape = shape, strides = strides);
  td_ok(tdict_tensor_as_strided(t, &v, offset, &view, err));
  tdict_tensor_release(t);
  return view;
}

static inline tdict_tree *batch_tree(tdict_memory *memory) {
  static const tdict_field fields[] = {
      {"obs.pixels", TDICT_U8, 3, {84, 84, 3}},
      {"obs.state", TDICT_F32, 1, {17}},
      {"action", TDICT_F32, 1, {6}},
      {"next.obs.pixels", TDICT_U8, 3, {84, 84, 3}},
      {"next.obs.state", TDICT_F32, 1, {17}},
      {"next.reward", TDICT_F64, 1, {1}},
      {"next.done", TDICT_BOOL, 1, {1}},
  };
  tdict_tree *td = NULL;
  td_ok(tdict_create_from(fields, sizeof fields / sizeof *fields, SHAPE(16), memory, &td, err));
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    tdict_tensor *t = td_leaf(td, fields[i].path);
    td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), next_seed());
  }
  return td;
}

static inline tdict_tree *tiny_tree(tdict_memory *memory) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < 300; i++) {
    const char *path = td_text("group%d.leaf%d", i / 30, i);
    td_put(td, path, random_tensor(i % 2 ? TDICT_U8 : TDICT_F16, SHAPE(1 + i % 37), memory));
  }
  return td;
}

static inline tdict_tree *strided_tree(void) {
  tdict_tree *td = new_tree();
  const int turn[] = {1, 0}, turn3[] = {2, 0, 1};
  td_put(td, "turned", permuted(random_tensor(TDICT_F64, SHAPE(300, 101), NULL), turn));
  td_put(td, "plain", random_tensor(TDICT_I16, SHAPE(333), NULL));
  td_put(td, "turned3", permuted(random_tensor(TDICT_F32, SHAPE(7, 33, 65), NULL), turn3));
  td_put(td, "backwards", sliced(random_tensor(TDICT_F32, SHAPE(9000), NULL), (tdict_tensor_range){0, 8999, 9000, -1}));
  td_put(td, "stepped",
         sliced(random_tensor(TDICT_DTYPE(1, 8, 3), SHAPE(50, 40), NULL), (tdict_tensor_range){1, 38, 13, -3}));
  td_put(td, "rows", sliced(random_tensor(TDICT_C128, SHAPE(60, 31), NULL), (tdict_tensor_range){0, 1, 29, 2}));
  td_put(td, "columns", sliced(random_tensor(TDICT_U8, SHAPE(400, 300), NULL), (tdict_tensor_range){1, 3, 290, 1}));
  td_put(td, "repeated",
         restrided(random_tensor(TDICT_F16, SHAPE(20), NULL), 0, SHAPE(15, 20), (const int64_t[]){0, 1}));
  td_put(td, "windows", restrided(random_tensor(TDICT_I32, SHAPE(64), NULL), 3, SHAPE(40, 9), (const int64_t[]){1, 2}));
  return td;
}

static inline tdict_tree *odd_tree(void) {
  static const char *const dtypes[] = {"bool",   "i8",  "i16",  "i32",  "i64",   "u8",   "u16",
                                       "u32",    "u64", "f16",  "bf16", "f32",   "f64",  "f8e4m3",
                                       "f8e5m2", "c64", "c128", "u8x3", "f32x4", "i64x7"};
  tdict_tree *td = new_tree();
  char path[256];
  for (int i = 0; i < 20; i++) {
    snprintf(path, sizeof path, "dtypes.d%d", i);
    td_put(td, path, td_tensor("%s[3,%d]", dtypes[i], 5 + i));
    snprintf(path, sizeof path, "scalars.s%d", i);
    td_put(td, path, td_tensor("%s", dtypes[i]));
    snprintf(path, sizeof path, "none.n%d", i);
    td_put(td, path, td_tensor("%s[2,0,4]", dtypes[i]));
  }
  td_put_tree(td, "empty.tree", new_tree());
  size_t at = 0;
  for (int i = 0; i < 40; i++) at += (size_t)snprintf(path + at, sizeof path - at, "d%s", i < 39 ? "." : "");
  td_put(td, path, random_tensor(TDICT_U8, SHAPE(11), NULL));
  td_put(td, "last", random_tensor(TDICT_F32, SHAPE(0), NULL));
  return td;
}

static inline tdict_tree *shared_tree(void) {
  tdict_tree *td = new_tree(), *child = new_tree();
  tdict_tensor *both = random_tensor(TDICT_F32, SHAPE(100), NULL),
               *rows = random_tensor(TDICT_I32, SHAPE(40, 25), NULL);
  td_ok(tdict_set(td, "one", both, err));
  td_put(child, "x", random_tensor(TDICT_U8, SHAPE(77), NULL));
  td_put(child, "deeper.y", random_tensor(TDICT_F64, SHAPE(3), NULL));
  td_ok(tdict_set_tree(td, "left", child, err));
  td_ok(tdict_set(td, "two", both, err));
  td_put(td, "as_integers", restrided(tdict_tensor_retain(both), 0, SHAPE(10, 10), (const int64_t[]){10, 1}));
  td_ok(tdict_set_tree(td, "right", child, err));
  td_put(td, "top", sliced(tdict_tensor_retain(rows), (tdict_tensor_range){0, 0, 10, 1}));
  td_put(td, "overlap", sliced(tdict_tensor_retain(rows), (tdict_tensor_range){0, 5, 10, 1}));
  td_put(td, "last_column", sliced(tdict_tensor_retain(rows), (tdict_tensor_range){1, 24, 1, 1}));
  td_put(td, "last_column_again", sliced(tdict_tensor_retain(rows), (tdict_tensor_range){1, 24, 1, 1}));
  td_put(td, "rows", rows);
  td_release(both, child);
  return td;
}

static inline void release_tensor(void *user) { tdict_tensor_release(user); }
/* Makes a tensor over memory of the program with the flag TDICT_DESC_PINNED. */
static inline tdict_tensor *claimed_view(tdict_memory *memory, int64_t count) {
  tdict_tensor *below = random_tensor(TDICT_U8, SHAPE(count), memory), *t = NULL;
  tdict_tensor_desc v = desc_of(tdict_tensor_data(below), TDICT_U8, &count);
  v.flags = TDICT_DESC_PINNED;
  td_ok(tdict_tensor_from_data(&v, release_tensor, below, &t, err));
  return t;
}

static inline tdict_tree *pinned_tree(tdict_memory *pinned) {
  tdict_tree *td = new_tree();
  const int turn[] = {1, 0};
  td_put(td, "large", random_tensor(TDICT_U8, SHAPE(200000), pinned));
  td_put(td, "small", random_tensor(TDICT_U8, SHAPE(100), pinned));
  td_put(td, "strided", permuted(random_tensor(TDICT_F32, SHAPE(70, 41), pinned), turn));
  td_put(td, "claimed", claimed_view(pinned, 90000));
  td_put(td, "only_says_so", claimed_view(NULL, 80000));
  td_put(td, "huge", random_tensor(TDICT_F64, SHAPE(5 << 17), pinned)); /* 5 MiB */
  td_put_tree(td, "one_storage", batch_tree(pinned));
  return td;
}

static inline tdict_tree *mixed_tree(tdict_memory *pinned) {
  const int64_t unit = SANITIZED ? 1979 : 7919; /* 9 or 34 MB in all */
  tdict_tree *td = new_tree();
  for (int i = 0; i < 24; i++)
    td_put(td, td_text("m%d", i), random_tensor(TDICT_U8, SHAPE(100 + unit * i * i), i % 2 ? pinned : NULL));
  return td;
}

static inline tdict_tree *make_tree(const place *w, tree_kind kind) {
  switch (kind) {
  case TREE_BATCH:
    return batch_tree(NULL);
  case TREE_TINY:
    return tiny_tree(NULL);
  case TREE_LARGE:
    return bytes_tree("large", (5 << 19) + 777, NULL);
  case TREE_STRIDED:
    return strided_tree();
  case TREE_ODD:
    return odd_tree();
  case TREE_SHARED:
    return shared_tree();
  case TREE_PINNED:
    return pinned_tree(w->pinned);
  case TREE_MIXED:
    return mixed_tree(w->pinned);
  case NUM_TREE_KINDS:
    break;
  }
  return NULL;
}

#endif
