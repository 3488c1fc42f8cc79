/* Makes, fills and verifies the trees of comm.h. */
#include "comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 24 };

static void write_key(char *key, int64_t leaf) { snprintf(key, KEY_BYTES, "%" PRId64, leaf); }

/* Makes a tree of size->leaves leaves with `elements` elements each. */
static tdict_status make_leaves(const comm_size *size, int64_t elements, tdict_memory *memory, tdict_tree **out,
                                tdict_error *err) {
  const size_t leaves = (size_t)size->leaves;
  tdict_field *fields = calloc(leaves, sizeof *fields);
  char(*keys)[KEY_BYTES] = calloc(leaves, sizeof *keys);
  const bench_form form = {fields, leaves, 1, &elements, size->is_separate};
  tdict_status status = TDICT_ENOMEM;
  *err = (tdict_error){.status = TDICT_ENOMEM, .message = "cannot allocate the keys"};
  for (int64_t i = 0; fields && keys && i < size->leaves; i++) {
    write_key(keys[i], i);
    fields[i] = (tdict_field){.path = keys[i], .dtype = TDICT_F32};
  }
  if (fields && keys) status = bench_make_tree(&form, memory, out, err);
  free(fields);
  free(keys);
  return status;
}

/* Makes a tree and an array of the addresses of its leaves. */
static bool make_tree(const comm_size *size, int64_t elements, tdict_memory *memory, tdict_tree **tree, float ***data) {
  if (!bench_ok("cannot make a tree", make_leaves(size, elements, memory, tree, err))) return false;
  *data = calloc((size_t)size->leaves, sizeof **data);
  if (!*data) bench_print_error("cannot allocate the addresses of %" PRId64 " leaves", size->leaves);
  if (!*data) return false;
  for (int64_t i = 0; i < size->leaves; i++) {
    char key[KEY_BYTES];
    write_key(key, i);
    (*data)[i] = tdict_data(*tree, key);
  }
  tdict_lock(*tree); /* as in a program that sends the tree repeatedly */
  return true;
}

bool comm_trees_make(comm_trees *t, tdict_context *context, tdict_device device, int rank, int world,
                     const comm_size *size) {
  tdict_memory *memory = device.type == TDICT_DEVICE_CPU ? NULL : tdict_device_memory(context, device);
  *t = (comm_trees){
      .context = context, .rank = rank, .world = world, .leaves = size->leaves, .elements = size->elements};
  if (make_tree(size, size->elements, memory, &t->whole, &t->whole_data) &&
      make_tree(size, size->elements / world, memory, &t->part, &t->part_data))
    return true;
  comm_trees_free(t);
  return false;
}

void comm_trees_free(comm_trees *t) {
  tdict_release(t->whole);
  tdict_release(t->part);
  free(t->whole_data);
  free(t->part_data);
  memset(t, 0, sizeof *t);
}

size_t comm_trees_bytes(const comm_trees *t) { return (size_t)t->leaves * (size_t)t->elements * sizeof(float); }

/* Mixes the bits of a number. The results of different numbers are different. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  x = (x ^ x >> 29) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

/* Adds a rank's values for a range of a leaf in `whole` to `to`. Each random 64-bit word yields four values. */
static void add_numbers(float *to, int64_t count, uint64_t salt, int rank, int64_t leaf, int64_t first) {
  const uint64_t base = mix(mix(salt * 1024 + (uint64_t)rank + 1) + (uint64_t)leaf);
  for (int64_t k = 0; k < count;) {
    const uint64_t element = (uint64_t)(first + k);
    const uint64_t word = mix(base + element / 4);
    for (uint64_t j = element % 4; j < 4 && k < count; j++, k++)
      to[k] += (float)((int)(word >> 16 * j & 0xFFFF) - 0x8000) / 256;
  }
}

/* Writes the values that `numbers` describes for `count` elements, from `first` on, of a leaf in `whole`. */
static void write_range(const comm_trees *t, const comm_numbers *numbers, int64_t leaf, int64_t first, int64_t count,
                        float *to) {
  memset(to, 0, (size_t)count * sizeof *to);
  for (int r = 0; r < numbers->count_ranks; r++)
    add_numbers(to, count, numbers->salt, numbers->first_rank + r, leaf, first);
  const int64_t last = t->elements - 1 - first;
  if (numbers->is_corrupt && leaf == t->leaves / 2 && last >= 0 && last < count) to[last] += 1;
}

bool comm_trees_write(const comm_trees *t, tdict_tree *tree, const comm_numbers *numbers) {
  tdict_error err;
  scoped_tree host = NULL;
  const int64_t count = tdict_batch_size(tree)[0];
  const int64_t first = tree == t->part ? t->rank * count : 0;
  tdict_status status = make_leaves(&(comm_size){t->leaves, count, false}, count, NULL, &host, &err);
  for (int64_t i = 0; i < t->leaves && status == TDICT_OK; i++) {
    char key[KEY_BYTES];
    write_key(key, i);
    write_range(t, numbers, i, first, count, tdict_data(host, key));
  }
  if (status == TDICT_OK) status = tdict_transfer_into(t->context, tree, host, NULL, &err);
  return bench_has_worked("cannot fill a tree", status, &err);
}

/* Compares a rank's range of a leaf with the expected values. `first`: its first element in the leaf of `whole`. */
static bool check_range(const comm_trees *t, const comm_result *result, const comm_numbers *numbers, int64_t leaf,
                        int64_t first, const float *found) {
  enum { MOST = 4096 };
  float wanted[MOST];
  const int64_t end = t->elements / t->world;
  for (int64_t at = 0; at < end; at += MOST) {
    const int64_t count = end - at < MOST ? end - at : MOST;
    write_range(t, numbers, leaf, first + at, count, wanted);
    if (memcmp(wanted, found + at, (size_t)count * sizeof *wanted) == 0) continue;
    int64_t k = 0;
    while (memcmp(&wanted[k], &found[at + k], sizeof *wanted) == 0) k++;
    bench_print_error("rank %d: %s: leaf \"%" PRId64 "\" differs at element %" PRId64 ": found %.9g, wanted %.9g",
                      t->rank, result->name, leaf, first + at + k, (double)found[at + k], (double)wanted[k]);
    return false;
  }
  return true;
}

/* Compares `leaf`, the copy of leaf `i` of a result in host memory, with the expected values. */
static int check_leaf(const comm_trees *t, const comm_result *result, const comm_numbers *numbers, int64_t i,
                      const tdict_tensor *leaf) {
  const int64_t count = t->elements / t->world, wanted = result->is_part ? count : t->elements;
  const int ndim = result->is_stacked ? 2 : 1;
  const int64_t *strides = tdict_tensor_strides(leaf);
  const float *data = tdict_tensor_const_data(leaf);
  if (tdict_tensor_dtype(leaf) != TDICT_F32 || tdict_tensor_ndim(leaf) != ndim ||
      tdict_tensor_bytes(leaf) != (size_t)wanted * sizeof(float) || (count > 1 && strides[ndim - 1] != 1)) {
    bench_print_error("rank %d: %s: leaf \"%" PRId64 "\" arrived with another dtype, shape or size", t->rank,
                      result->name, i);
    return BENCH_DIFFERS;
  }
  if (result->is_part) {
    if (result->skipped == t->rank) return BENCH_OK;
    return check_range(t, result, numbers, i, t->rank * count, data) ? BENCH_OK : BENCH_DIFFERS;
  }
  for (int r = 0; r < t->world; r++) {
    const float *found = data + r * (result->is_stacked ? strides[0] : count);
    if (r != result->skipped && !check_range(t, result, numbers, i, r * count, found)) return BENCH_DIFFERS;
  }
  return BENCH_OK;
}

int comm_trees_check(const comm_trees *t, const comm_result *result, const comm_numbers *numbers) {
  scoped_tree host = NULL;
  int answer = BENCH_OK;
  if (tdict_num_leaves(result->tree) != (size_t)t->leaves) {
    bench_print_error("rank %d: %s: %zu leaves arrived, wanted %" PRId64, t->rank, result->name,
                      tdict_num_leaves(result->tree), t->leaves);
    return BENCH_DIFFERS;
  }
  if (!bench_ok("cannot read a result", tdict_to_device(t->context, result->tree, tdict_cpu(), NULL, &host, err)))
    return BENCH_FAILED;
  for (int64_t i = 0; i < t->leaves && answer == BENCH_OK; i++) {
    char key[KEY_BYTES];
    tdict_tensor *leaf = NULL;
    write_key(key, i);
    const bool is_there = bench_ok("a leaf did not arrive", tdict_get(host, key, &leaf, err));
    answer = is_there ? check_leaf(t, result, numbers, i, leaf) : BENCH_DIFFERS;
  }
  return answer;
}
