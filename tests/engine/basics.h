/* What all tests of transfers share: trees that are built from tensors, options, errors that name a path, and the
 * release of several trees. Thread rule: any thread, each tree by one thread at a time. */
#ifndef TDICT_TESTS_ENGINE_BASICS_H
#define TDICT_TESTS_ENGINE_BASICS_H

#include "support/test.h"

/* The call fails, and its error names the path `where`. */
#define td_fails_at(wanted, text, where, call)      \
  do {                                              \
    td_fails(wanted, text, call);                   \
    assert_string_equal(td_last_error.path, where); \
  } while (0)

static inline tdict_tree *new_tree(void) {
  tdict_tree *td = NULL;
  td_ok(tdict_create(0, NULL, &td, err));
  return td;
}
/* Puts what was just made and gives it away. */
static inline void give(tdict_tree *td, const char *path, tdict_tensor *t) {
  td_ok(tdict_set(td, path, t, err));
  tdict_tensor_release(t);
}
static inline tdict_tensor *leaf_of(const tdict_tree *td, const char *path) {
  tdict_tensor *t = NULL;
  td_ok(tdict_get(td, path, &t, err));
  return t;
}
/* `count` elements, one after another, in memory of the program's. */
static inline tdict_tensor_desc desc_of(void *data, tdict_dtype dtype, const int64_t *count) {
  tdict_tensor_desc v = tdict_tensor_desc_default();
  v.data = data;
  v.dtype = dtype;
  v.ndim = 1;
  v.shape = count;
  return v;
}
static inline tdict_transfer_options threads(int32_t num_threads) {
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = num_threads;
  return o;
}

static inline void release_many(tdict_tree **trees, size_t count) {
  for (size_t i = 0; i < count; i++) tdict_release(trees[i]);
}
/* Releases several trees, first to last. */
#define RELEASE(...) \
  release_many((tdict_tree *[]){__VA_ARGS__}, sizeof((tdict_tree *[]){__VA_ARGS__}) / sizeof(tdict_tree *))

#endif
