/* Tests block runs against sizes that the test computes from the entries of the schema. */
#include "services/comm/block_runs.h"

#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "services/comm/trees.h"
#include "support/fail_alloc.h"

static tdict_schema *schema_of(const tdict_tree *tree) {
  tdict_schema *schema = NULL;
  td_ok(tdict_schema_from_tree(tree, &schema, err));
  return schema;
}
static const tdict_block_runs *runs_of(tdict_runs_cache *cache, const tdict_schema *schema, int dim) {
  const tdict_block_runs *runs = NULL;
  td_ok(tdict_runs_cache_get(cache, "test", schema, dim, &runs, err));
  return runs;
}

CASE(comm_runs_measure_the_same_bytes_as_the_entries) {
  enum { TREES = 60 };
  tdict_runs_cache cache = {0};
  for (uint64_t seed = 0; seed < TREES; seed++) {
    const tree_plan plan = {.shape_seed = seed, .batch_ndim = 3, .batch_size = {2, seed % 9 ? 3 : 0, 2}};
    scoped_tree tree = tree_make(&plan);
    scoped_schema schema = schema_of(tree);
    for (int dim = 0; dim < 3; dim++)
      for (int64_t rows = 0; rows < 5; rows++) {
        int64_t sizes[] = {plan.batch_size[0], plan.batch_size[1], plan.batch_size[2]};
        size_t bytes = 0, padding = 0, wanted_bytes = 0, wanted_padding = 0;
        sizes[dim] = rows;
        td_ok(tdict_schema_measure_batch(schema, sizes, &wanted_bytes, &wanted_padding, err));
        assert_true(tdict_block_runs_measure(runs_of(&cache, schema, dim), rows, &bytes, &padding));
        assert_int_equal(bytes, wanted_bytes);
        assert_int_equal(padding, wanted_padding);
      }
  }
  tdict_runs_cache_reset(&cache);
}

CASE(comm_runs_have_neighbors_of_one_size) {
  tdict_runs_cache cache = {0};
  scoped_tree tree =
      td_tree("[4] a:f32[4,3] b:i32[4,3] c:u8[4,12] none:f32[4,0] d:f32[4,3] e:f64[4] f:f32[4,2] g:f32[4,3]");
  scoped_schema schema = schema_of(tree);
  const tdict_block_runs *runs = runs_of(&cache, schema, 0);
  assert_int_equal(runs->count, 3);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(runs->list[i].count, ((size_t[]){4, 2, 1})[i]);
    assert_int_equal(runs->list[i].row_bytes, ((size_t[]){12, 8, 12})[i]);
  }
  tdict_runs_cache_reset(&cache);
}

CASE(comm_runs_refuse_bytes_that_do_not_fit) {
  tdict_runs_cache cache = {0};
  size_t bytes = 0, padding = 0;
  scoped_tree tree = td_tree("[4] a:f32[4,3] b:f32[4,3] c:u8[4]");
  scoped_schema schema = schema_of(tree);
  const tdict_block_runs *runs = runs_of(&cache, schema, 0);
  const int64_t fits = INT64_MAX / 32; /* 25 bytes per row, plus padding */
  assert_true(tdict_block_runs_measure(runs, fits, &bytes, &padding));
  assert_in_range(bytes, 25 * (size_t)fits, 25 * (size_t)fits + 3 * 255);
  assert_false(tdict_block_runs_measure(runs, INT64_MAX / 12 - 64, &bytes, &padding)); /* only one tensor would fit */
  assert_false(tdict_block_runs_measure(runs, INT64_MAX, &bytes, &padding));
  tdict_runs_cache_reset(&cache);
}

CASE(comm_runs_without_memory_return_enomem) {
  tdict_runs_cache cache = {0};
  const tdict_block_runs *runs = NULL;
  scoped_tree tree = td_tree("[4] a:f32[4,3] b:f32[4,3]");
  scoped_schema schema = schema_of(tree);
  TD_WITHOUT_MEMORY_THEN(tdict_runs_cache_get(&cache, "test", schema, 0, &runs, err), assert_null(runs));
  assert_int_equal(cache.count, 1);
  tdict_runs_cache_reset(&cache);
}

CASE(comm_runs_are_kept_for_the_schemas_that_were_used_last) {
  enum { SCHEMAS = TDICT_RUNS_CACHE_SIZE + 1 };
  tdict_runs_cache cache = {0};
  tdict_schema *schemas[SCHEMAS];
  for (int i = 0; i < SCHEMAS; i++) {
    const tree_plan plan = {.shape_seed = (uint64_t)i, .batch_ndim = 2, .batch_size = {2, 2}};
    scoped_tree tree = tree_make(&plan);
    schemas[i] = schema_of(tree);
  }
  const tdict_block_runs *first = runs_of(&cache, schemas[0], 0);
  assert_ptr_not_equal(runs_of(&cache, schemas[0], 1), first);
  for (int i = 1; i < TDICT_RUNS_CACHE_SIZE - 1; i++) (void)runs_of(&cache, schemas[i], 0);
  assert_int_equal(cache.count, TDICT_RUNS_CACHE_SIZE);
  assert_ptr_equal(runs_of(&cache, schemas[0], 0), first); /* used last, so the runs of dimension 1 are evicted next */
  (void)runs_of(&cache, schemas[SCHEMAS - 1], 0);
  assert_int_equal(cache.count, TDICT_RUNS_CACHE_SIZE);
  for (int i = 0; i < cache.count; i++) assert_int_equal(cache.list[i]->dim, 0);
  assert_ptr_equal(runs_of(&cache, schemas[0], 0), first);
  for (int i = 0; i < SCHEMAS; i++) tdict_schema_release(schemas[i]);
  tdict_runs_cache_reset(&cache);
}
