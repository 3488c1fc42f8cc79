/* Tests that the copies of a large tree begin before its result is built, and that threads that do not copy help to
 * build the result. */
#include "core/sched/pool.h"
#include "engine/plan/result.h"
#include "support/rest.h"
#include "wrap.h"

enum { CPUS = 16 };

/* How the result of the latest call was built, and how many copies were queued before that. */
static struct building {
  bool is_watched;
  int num_calls, num_builders;
  int64_t copies_before;
} building;

/* Replaces the number of processors, so that the test does not depend on the machine. */
int __real_tdict_pool_num_cpus(const tdict_pool *pool);
int __wrap_tdict_pool_num_cpus(const tdict_pool *pool);
int __wrap_tdict_pool_num_cpus(const tdict_pool *pool) {
  return building.is_watched ? CPUS : __real_tdict_pool_num_cpus(pool);
}

/* Waits until all other threads sleep before a result is built. By then, the threads that may copy have queued all
 * copies. */
tdict_status __real_tdict_result_build(const tdict_collected *collected, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_result_build(const tdict_collected *collected, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_result_build(const tdict_collected *collected, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err) {
  if (building.is_watched) {
    td_rest();
    building.num_calls++;
    building.copies_before = num_copies();
    building.num_builders = collected->num_builders;
  }
  return __real_tdict_result_build(collected, src, arena, device, out, err);
}

static tdict_tree *tree_of(int leaves) {
  tdict_tree *td = td_made(tree, tdict_create(0, NULL, &made, err));
  for (int i = 0; i < leaves; i++) td_put(td, td_text("k%d", i), td_tensor_counting("i32[%d]", 40 + i % 2));
  return td;
}

/* Moves the tree with an asynchronous call, and compares the result. */
static void watch_move(const place *w, const tdict_tree *src, const tdict_transfer_options *o) {
  memset(&building, 0, sizeof building);
  building.is_watched = true;
  const int64_t copies = num_copies();
  scoped_tree out = finish(move_async(w, src, w->device, o));
  building.is_watched = false;
  building.copies_before -= copies;
  assert_int_equal(building.num_calls, 1);
  check_tree(w, src, out);
}

SIM_CASE(start_copies_before_it_builds_the_result) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree small = tree_of(3000), large = tree_of(TDICT_PARALLEL_LEAVES), block = NULL;
  td_ok(tdict_consolidate(large, NULL, &block, err));
  const tdict_tree *const sources[] = {small, large, block};
  for (int i = 0; i < 3; i++) {
    watch_move(&w, sources[i], NULL);
    assert_in_range(building.copies_before, 1, INT32_MAX);
    if (i == 0)
      assert_int_equal(building.num_builders, 0);
    else
      assert_in_range(building.num_builders, 3, CPUS - 1);
  }
  /* all threads that num_threads allows are copying */
  watch_move(&w, large, td_options(tdict_transfer_options, num_threads = 4));
  assert_in_range(building.copies_before, 1, INT32_MAX);
  assert_int_equal(building.num_builders, 0);
}
