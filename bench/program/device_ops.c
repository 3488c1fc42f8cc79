/* The workloads of `tdict-bench device` that read and write rows, join, copy, fill and convert trees. Ownership and
 * threads: see device.h. */
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/convert.h"
#include "tdict/write.h"

#include "device.h"

#include <stdlib.h>
#include <string.h>

static size_t leaf_bytes(const device_job *job, const tdict_tree *tree, int64_t i) {
  return tdict_tensor_bytes(device_leaf(job, tree, i));
}

static const unsigned char *host_bytes(const device_job *job, const tdict_tree *tree, int64_t i) {
  return tdict_tensor_const_data(device_leaf(job, tree, i));
}

size_t device_expect_same(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const size_t bytes = leaf_bytes(job, job->host, i);
  (void)way;
  if (to) memcpy(to, host_bytes(job, job->host, i), bytes);
  return bytes;
}

static bool report(tdict_status status, const tdict_error *err) { return bench_has_worked("the trees", status, err); }

static bool prepare_tree(device_job *job) {
  const tdict_tree *host = job->host;
  return device_make_tree(job, tdict_batch_ndim(host), tdict_batch_size(host), device_place_memory(job), &job->tree);
}

static bool renew_tree(device_job *job) {
  return bench_ok("the trees", tdict_transfer_into(job->place.context, job->tree, job->host, NULL, err));
}

/* --- the workload gather: reads or writes `picked` of `rows` rows --- */

/* Sets job->positions to a permutation of the row numbers, in which the first `picked` entries are random. */
static bool choose_positions(device_job *job) {
  uint64_t state = 5;
  job->picked = device_number(job, "picked", 1);
  job->positions = calloc((size_t)job->rows + 1, sizeof *job->positions);
  if (!job->positions || job->picked > job->rows) return false;
  for (int64_t i = 0; i < job->rows; i++) job->positions[i] = i;
  for (int64_t i = 0; i < job->picked; i++) {
    const int64_t j = i + (int64_t)(bench_random(&state) % (uint64_t)(job->rows - i)), kept = job->positions[i];
    job->positions[i] = job->positions[j];
    job->positions[j] = kept;
  }
  return true;
}

static bool prepare_gather(device_job *job) {
  tdict_error err;
  tdict_tensor *list = NULL;
  if (!prepare_tree(job) || !choose_positions(job)) return false;
  tdict_status status = tdict_tensor_from_array(TDICT_I64, 1, &job->picked, job->positions, &list, &err);
  if (status == TDICT_OK) status = tdict_tensor_clone(list, device_place_memory(job), &job->list, &err);
  if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_BOOL, 1, &job->rows, NULL, &job->mask, &err);
  tdict_tensor_release(list);
  if (!report(status, &err)) return false;
  unsigned char *mask = tdict_tensor_data(job->mask);
  for (int64_t i = 0; i < job->picked; i++) mask[job->positions[i]] = 1;
  return device_make_tree(job, 1, &job->picked, device_place_memory(job), &job->target) &&
         device_make_tree(job, 1, &job->picked, NULL, &job->value) && device_fill_tree(job, job->value, 77);
}

/* Defines the function of a way that consists of one call. */
#define WAY(name, call)                                                           \
  static tdict_status name(device_job *job, tdict_tree **out, tdict_error *err) { \
    (void)out, (void)err;                                                         \
    return call;                                                                  \
  }
#define AT_LIST TDICT_INDEX(TDICT_LIST_OF(job->list))
#define AT_MASK TDICT_INDEX(TDICT_MASK(job->mask))
WAY(get_list, tdict_index_get(NULL, job->tree, AT_LIST, job->run, out, err))
WAY(into_list, tdict_index_into(NULL, job->target, job->tree, AT_LIST, job->run, err))
WAY(get_mask, tdict_index_get(NULL, job->tree, AT_MASK, NULL, out, err))
WAY(into_mask, tdict_index_into(NULL, job->target, job->tree, AT_MASK, NULL, err))
WAY(set_list,
    tdict_index_set(NULL, job->tree, TDICT_INDEX(TDICT_LIST(job->positions, job->picked)), job->value, NULL, err))

/* Reads or writes the selected rows with a memcpy() for each row, for comparison with the library. */
static tdict_status loop_rows(device_job *job, bool read) {
  for (int64_t leaf = 0; leaf < job->num_leaves; leaf++) {
    tdict_tensor *part = device_leaf(job, read ? job->target : job->value, leaf);
    unsigned char *large = tdict_tensor_data(device_leaf(job, job->tree, leaf)), *small = tdict_tensor_data(part);
    const size_t bytes = tdict_tensor_bytes(part) / (size_t)job->picked;
    for (int64_t i = 0; i < job->picked; i++) {
      unsigned char *row = large + (size_t)job->positions[i] * bytes, *other = small + (size_t)i * bytes;
      memcpy(read ? other : row, read ? row : other, bytes);
    }
  }
  return TDICT_OK;
}

WAY(loop_read, loop_rows(job, true))
WAY(loop_write, loop_rows(job, false))

static bool reads_mask(const device_way *way) { return way->run == get_mask || way->run == into_mask; }

static size_t expect_rows(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const bool writes = way->result == DEVICE_RESULT_TREE;
  const size_t all = leaf_bytes(job, job->host, i), bytes = all / (size_t)job->rows;
  if (!to) return writes ? all : bytes * (size_t)job->picked;
  const unsigned char *from = host_bytes(job, job->host, i), *value = host_bytes(job, job->value, i);
  const unsigned char *mask = tdict_tensor_const_data(job->mask);
  if (writes) {
    memcpy(to, from, all);
    for (int64_t n = 0; n < job->picked; n++)
      memcpy(to + (size_t)job->positions[n] * bytes, value + (size_t)n * bytes, bytes);
    return all;
  }
  for (int64_t n = 0, row = 0; n < job->picked; n++, row++) {
    if (reads_mask(way)) {
      while (!mask[row]) row++;
    }
    memcpy(to + (size_t)n * bytes, from + (size_t)(reads_mask(way) ? row : job->positions[n]) * bytes, bytes);
  }
  return bytes * (size_t)job->picked;
}

static const device_way gather_host[] = {{"index_into list", into_list, DEVICE_RESULT_TARGET, false},
                                         {"index_get list", get_list, DEVICE_RESULT_NEW, false},
                                         {"index_into mask", into_mask, DEVICE_RESULT_TARGET, false},
                                         {"index_get mask", get_mask, DEVICE_RESULT_NEW, false},
                                         {"index_set list", set_list, DEVICE_RESULT_TREE, false},
                                         {"memcpy loop", loop_read, DEVICE_RESULT_TARGET, false},
                                         {"memcpy loop, write", loop_write, DEVICE_RESULT_TREE, false},
                                         {0}};
static const device_way gather_device[] = {DEVICE_BOTH("index_get", get_list, DEVICE_RESULT_NEW),
                                           DEVICE_BOTH("index_into", into_list, DEVICE_RESULT_TARGET),
                                           {0}};
const device_kind device_gather = {"gather", prepare_gather, renew_tree, expect_rows, gather_host, gather_device};

/* --- the workload join: stacks or concatenates job->items --- */

static bool prepare_join(device_job *job) {
  tdict_error err;
  tdict_status status = TDICT_OK;
  job->num_items = tdict_batch_size(job->host)[0];
  if (job->num_items > DEVICE_MOST_ITEMS || !prepare_tree(job)) return false;
  for (int64_t i = 0; i < job->num_items && status == TDICT_OK; i++) {
    status = tdict_index_get(NULL, job->tree, TDICT_INDEX(TDICT_AT(i)), NULL, &job->views[i], &err);
    if (status == TDICT_OK) status = tdict_clone_deep(job->views[i], NULL, &job->items[i], &err);
  }
  return report(status, &err);
}

static bool renew_items(device_job *job) {
  tdict_error err;
  tdict_status status = TDICT_OK;
  if (!renew_tree(job)) return false;
  for (int64_t i = 0; i < job->num_items && status == TDICT_OK; i++)
    status = tdict_copy(job->items[i], job->views[i], NULL, &err);
  return report(status, &err);
}

#define ITEMS (const tdict_tree *const *)job->items, (size_t)job->num_items
WAY(stack_items, tdict_stack(ITEMS, NULL, job->run, out, err))
WAY(cat_items, tdict_cat(ITEMS, NULL, job->run, out, err))

static const device_way join_ways[] = {
    DEVICE_BOTH("stack", stack_items, DEVICE_RESULT_NEW), DEVICE_BOTH("cat", cat_items, DEVICE_RESULT_NEW), {0}};
const device_kind device_join = {"join", prepare_join, renew_items, device_expect_same, NULL, join_ways};

/* --- the workload clone: copies a tree --- */

WAY(clone_tree, tdict_clone_deep(job->tree, job->run, out, err))

static const device_way clone_ways[] = {DEVICE_BOTH("clone_deep", clone_tree, DEVICE_RESULT_NEW), {0}};
const device_kind device_clone = {"clone", prepare_tree, renew_tree, device_expect_same, NULL, clone_ways};

/* --- the workload fill: sets all elements to 1; the leaves are uint8, bool or float32 --- */

WAY(fill_tree, tdict_fill(job->tree, NULL, 1, job->run, err))

static size_t expect_ones(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const size_t bytes = leaf_bytes(job, job->host, i);
  const float one = 1;
  (void)way;
  if (!to) return bytes;
  if (job->fields[i].dtype != TDICT_F32) memset(to, 1, bytes);
  for (size_t at = 0; job->fields[i].dtype == TDICT_F32 && at < bytes; at += sizeof one)
    memcpy(to + at, &one, sizeof one);
  return bytes;
}

static const device_way fill_ways[] = {DEVICE_BOTH("fill", fill_tree, DEVICE_RESULT_TREE), {0}};
const device_kind device_fill = {"fill", prepare_tree, renew_tree, expect_ones, NULL, fill_ways};

/* --- the workload to_dtype: converts uint8, bool and float32 to bfloat16 --- */

WAY(to_bf16, tdict_to_dtype(job->tree, TDICT_BF16, NULL, job->run, out, err))

static size_t expect_bf16(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const size_t size = tdict_dtype_bytes(job->fields[i].dtype), count = leaf_bytes(job, job->host, i) / size;
  const unsigned char *from = host_bytes(job, job->host, i);
  (void)way;
  for (size_t n = 0; to && n < count; n++) {
    float x = from[n * size];
    if (size == sizeof x) memcpy(&x, from + n * size, sizeof x);
    const uint16_t y = device_bf16(x);
    memcpy(to + n * sizeof y, &y, sizeof y);
  }
  return count * sizeof(uint16_t);
}

static const device_way dtype_ways[] = {DEVICE_BOTH("to_dtype", to_bf16, DEVICE_RESULT_NEW), {0}};
const device_kind device_to_dtype = {"to_dtype", prepare_tree, renew_tree, expect_bf16, NULL, dtype_ways};
