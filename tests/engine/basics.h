/* Helpers for all tests of transfers: trees that are built from tensors, and options. Any thread may use them, but each
 * tree only on one thread at a time. */
#ifndef TDICT_TESTS_ENGINE_BASICS_H
#define TDICT_TESTS_ENGINE_BASICS_H

#include "support/test.h"

static inline tdict_tree *new_tree(void) { return td_made(tree, tdict_create(0, NULL, &made, err)); }
/* Describes an array of `count` elements in memory of the program. */
static inline tdict_tensor_desc desc_of(void *data, tdict_dtype dtype, const int64_t *count) {
  return td_with(tdict_tensor_desc, data = data, dtype = dtype, ndim = 1, shape = count);
}
static inline tdict_transfer_options threads(int32_t num_threads) {
  return td_with(tdict_transfer_options, num_threads = num_threads);
}

#endif
