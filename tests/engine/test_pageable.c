/* Tests which leaves are copied without staging slots on devices that can read pageable memory. */
#include <sys/mman.h>

#include "help.h"

enum { ITEMS = 50000 };

static tdict_context *open_reader(bool reads, tdict_device *device) {
  tdict_context_options o = tdict_context_options_default();
  o.sim = td_options(tdict_sim_options, reads_pageable_memory = reads);
  o.device = *device = tdict_sim(0);
  o.staging_bytes = (size_t)1 << 20;
  tdict_context *c = td_made(context, tdict_context_create(&o, &made, err));
  return c;
}

static tdict_tree *tree_of(tdict_tensor *t) {
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_put(tree, "x", t);
  return tree;
}

static tdict_tensor *random_floats(int64_t rows, int64_t columns, uint64_t seed) {
  const int64_t shape[] = {rows, columns};
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), seed);
  return t;
}

/* Moves the tree to the device, and compares its bytes with `expected`. Returns the statistics. */
static tdict_transfer_stats move(tdict_context *c, const tdict_tree *src, tdict_transfer_options o,
                                 const void *expected, size_t bytes) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  scoped_tree out = NULL, back = NULL;
  o.stats = &stats;
  td_ok(tdict_to_device(c, src, tdict_sim(0), &o, &out, err));
  td_ok(tdict_to_device(c, out, tdict_cpu(), NULL, &back, err));
  assert_memory_equal(tdict_data(back, "x"), expected, bytes);
  return stats;
}

SIM_CASE(pageable_memory_is_read_in_place) {
  tdict_device device;
  for (int reads = 0; reads < 2; reads++) {
    scoped_context c = open_reader(reads, &device);
    scoped_tree src = tree_of(random_floats(ITEMS, 4, 11 + (uint64_t)reads));
    const size_t bytes = (size_t)ITEMS * 4 * sizeof(float);
    for (int mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++) {
      tdict_transfer_options o = td_with(tdict_transfer_options, mode = mode);
      const bool stages = mode == TDICT_MODE_NON_BLOCKING_PIN || (mode == TDICT_MODE_AUTO && !reads);
      const tdict_transfer_stats s = move(c, src, o, tdict_data(src, "x"), bytes);
      assert_int_equal(s.staged_bytes, stages ? bytes : 0);
      assert_int_equal(s.direct_bytes, mode == TDICT_MODE_AUTO && reads ? bytes : 0);
      assert_int_equal(s.pageable_bytes, mode == TDICT_MODE_BLOCKING || mode == TDICT_MODE_NON_BLOCKING ? bytes : 0);
    }
  }
}

/* The device reads the source when the copy runs, so the source must live until then. */
SIM_CASE(pageable_source_is_kept_until_it_is_read) {
  tdict_device device;
  scoped_context c = open_reader(true, &device);
  tdict_tensor *t = random_floats(ITEMS, 4, 19);
  const size_t bytes = tdict_tensor_bytes(t);
  scoped_chars expected = td_alloc(bytes);
  memcpy(expected, tdict_tensor_data(t), bytes);
  tdict_tree *src = tree_of(t);
  scoped_tree out = NULL, back = NULL;
  td_ok(tdict_sim_hold(c, err));
  tdict_future *f = td_made(future, tdict_to_device_async(c, src, device, NULL, &made, err));
  tdict_release(src);
  td_rest();
  assert_false(tdict_future_is_ready(f));
  td_ok(tdict_sim_resume(c, err));
  td_ok(tdict_future_wait(f, &out, err));
  tdict_future_release(f);
  td_ok(tdict_to_device(c, out, tdict_cpu(), NULL, &back, err));
  assert_memory_equal(tdict_data(back, "x"), expected, bytes);
}

static void drop_mapping(void *user) { munmap(user, (size_t)ITEMS * sizeof(float)); }

/* Mapped memory can belong to a file, so it is staged. Leaves with conversions, gaps or packed elements are staged,
 * too. */
SIM_CASE(pageable_leaves_that_stay_staged) {
  tdict_device device;
  scoped_context c = open_reader(true, &device);
  tdict_transfer_options o = tdict_transfer_options_default();
  /* maps a file */
  const size_t bytes = (size_t)ITEMS * sizeof(float);
  FILE *file = tmpfile();
  assert_non_null(file);
  assert_int_equal(ftruncate(fileno(file), (off_t)bytes), 0);
  void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  assert_true(mapped != MAP_FAILED);
  fclose(file);
  td_fill_random(mapped, bytes, 23);
  const int64_t shape[] = {ITEMS};
  tdict_tensor *t = NULL;
  tdict_tensor_desc d = desc_of(mapped, TDICT_F32, shape);
  td_ok(tdict_tensor_from_data(&d, drop_mapping, mapped, &t, err));
  scoped_tree src = tree_of(t);
  assert_int_equal(move(c, src, o, mapped, bytes).staged_bytes, bytes);
  tdict_release(src);
  /* integers from 0 to 99 are packed */
  const int64_t count[] = {ITEMS};
  td_ok(tdict_tensor_empty(TDICT_I64, 1, count, NULL, &t, err));
  int64_t *values = tdict_tensor_data(t);
  for (int i = 0; i < ITEMS; i++) values[i] = i % 100;
  src = tree_of(t);
  o.narrow = true;
  tdict_transfer_stats s = move(c, src, o, values, ITEMS * sizeof *values);
  assert_int_equal(s.staged_bytes, ITEMS * sizeof *values);
  assert_true(s.wire_bytes < s.total_bytes);
}
