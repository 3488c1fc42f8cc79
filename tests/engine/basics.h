/* Helpers for all transfer tests: they make trees, tensor descriptions and options. Any thread may call them, but only
 * one thread at a time may use a tree. */
#ifndef TDICT_TESTS_ENGINE_BASICS_H
#define TDICT_TESTS_ENGINE_BASICS_H

#include "support/test.h"

static inline tdict_tree *new_tree(void) { return td_made(tree, tdict_create(0, NULL, &made, err)); }
/* Describes a one-dimensional array of *count elements. The program owns the array. */
static inline tdict_tensor_desc desc_of(void *data, tdict_dtype dtype, const int64_t *count) {
  return td_with(tdict_tensor_desc, data = data, dtype = dtype, ndim = 1, shape = count);
}
static inline tdict_transfer_options threads(int32_t num_threads) {
  return td_with(tdict_transfer_options, num_threads = num_threads);
}

#endif
