/* Tests reductions of random trees among 1 to 4 ranks. The test computes the expected results from the elements. */
#include <math.h>

#include "services/comm/trees.h"
#include "support/take_comm.h"

typedef struct reduce_case {
  tdict_reduce_op op;
  tdict_tree *tree[THREAD_MOST_RANKS];
  tdict_tree *before[THREAD_MOST_RANKS]; /* a copy on the host */
} reduce_case;

static void all_reduce(rig_rank *r) {
  const reduce_case *c = r->rig->user;
  rig_ok(r, td_comm_all_reduce(r->comm, c->tree[r->rank], c->op, NULL, err));
}

static double read_number(tdict_dtype dtype, const char *at, int lane) {
  switch ((dtype & 0xffff) | 1u << 16) {
  case TDICT_F32:
    return (double)((const float *)(const void *)at)[lane];
  case TDICT_F64:
    return ((const double *)(const void *)at)[lane];
  case TDICT_I32:
    return ((const int32_t *)(const void *)at)[lane];
  case TDICT_I64:
    return (double)((const int64_t *)(const void *)at)[lane];
  default:
    fail_msg("dtype %x", dtype);
    return 0;
  }
}

typedef struct reduce_check {
  const reduce_case *c;
  int world;
} reduce_check;
static tdict_status check_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  const reduce_check *check = user;
  const tdict_tensor *got = entry->tensor;
  int64_t index[16] = {0};
  (void)err;
  if (!got || tdict_tensor_numel(got) == 0) return TDICT_OK;
  do {
    for (int lane = 0; lane < (int)(tdict_tensor_dtype(got) >> 16); lane++) {
      double wanted = 0;
      for (int r = 0; r < check->world; r++) {
        const tdict_tensor *t = td_leaf(check->c->before[r], entry->path);
        const double value = read_number(tdict_tensor_dtype(t), tree_element(t, index), lane);
        const bool replaces = check->c->op == TDICT_REDUCE_MIN ? value < wanted : value > wanted;
        if (check->c->op <= TDICT_REDUCE_MEAN) wanted += value;
        if (check->c->op > TDICT_REDUCE_MEAN && (r == 0 || replaces)) wanted = value;
      }
      if (check->c->op == TDICT_REDUCE_MEAN) wanted /= check->world;
      const double found = read_number(tdict_tensor_dtype(got), tree_element(got, index), lane);
      if (fabs(found - wanted) > 1e-4) fail_msg("%s: found %g, wanted %g", entry->path, found, wanted);
    }
  } while (tree_next_index(got, index));
  return TDICT_OK;
}

static bool has_integers(const tdict_tree *tree, bool *out) {
  char text[4096];
  tdict_format(tree, text, sizeof text);
  return *out = strstr(text, "int") != NULL;
}

static void reduce_once(rig *g, reduce_case *c, const tree_plan *plan, rng *random) {
  tree_plan mine = *plan;
  for (int r = 0; r < g->world; r++) {
    mine.value_seed = next_random(random);
    mine.layout = (tree_layout)pick(random, 0, NUM_LAYOUTS - 1);
    c->tree[r] = tree_make(&mine);
    tdict_lock(c->tree[r]);
    scoped_tree host = tree_on_host(c->tree[r]);
    td_ok(tdict_clone_deep(host, NULL, &c->before[r], err));
  }
  bool integers;
  if (has_integers(c->tree[0], &integers) && c->op == TDICT_REDUCE_MEAN) c->op = TDICT_REDUCE_MAX;
  rig_run(g, all_reduce, c);
  for (int r = 0; r < g->world; r++) {
    scoped_tree host = tree_on_host(c->tree[r]);
    reduce_check check = {c, g->world};
    td_ok(tdict_walk(host, check_leaf, &check, err));
  }
  for (int r = 0; r < g->world; r++) td_release(c->tree[r], c->before[r]);
}

DEVICE_CASE(comm_all_reduce_combines_all_ranks) {
  rng random = {1};
  int means = 0;
  for (int world = 1; world <= 4; world++) {
    scoped_rig g = rig_create(world);
    for (int i = 0; i < 40; i++) {
      const tree_plan plan = {
          .shape_seed = next_random(&random), .batch_ndim = 1, .batch_size = {pick(&random, 0, 4)}, .reducible = true};
      reduce_case c = {.op = (tdict_reduce_op)pick(&random, 0, 3)};
      reduce_once(g, &c, &plan, &random);
      means += c.op == TDICT_REDUCE_MEAN;
    }
  }
  assert_true(means > 0);
}

static tdict_tree *tree_of(const tdict_dtype *dtypes, int count) {
  static const char *const keys[] = {"a", "b", "c", "d"};
  tdict_field fields[4];
  memset(fields, 0, sizeof fields);
  for (int i = 0; i < count; i++) fields[i] = (tdict_field){keys[i], dtypes[i], 1, {3}};
  tdict_tree *tree = NULL;
  td_ok(tdict_create_from(fields, (size_t)count, 0, NULL, tdict_device_memory(rig_context(), td_device()), &tree, err));
  return tree;
}

/* Tensors of one dtype need one message. Complex numbers are reduced as floats, so {F32, I64, F32, C64} needs two. */
DEVICE_CASE(comm_all_reduce_sends_one_message_for_a_dtype) {
  enum { WORLD = 3 };
  scoped_rig g = rig_create(WORLD);
  static const tdict_dtype mixed[] = {TDICT_F32, TDICT_I64, TDICT_F32, TDICT_C64},
                           same[] = {TDICT_F32, TDICT_F32, TDICT_F32};
  for (int is_mixed = 0; is_mixed < 2; is_mixed++) {
    reduce_case c = {.op = TDICT_REDUCE_SUM};
    for (int r = 0; r < WORLD; r++) {
      c.tree[r] = is_mixed ? tree_of(mixed, 4) : tree_of(same, 3);
      td_ok(tdict_fill(c.tree[r], NULL, r + 1, NULL, err));
    }
    thread_world_forget(g->threads);
    rig_run(g, all_reduce, &c);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_ALL_REDUCE), 1 + is_mixed);
      tdict_tree *host = tree_on_host(c.tree[r]);
      const float *a = tdict_const_data(host, "a"), *d = tdict_const_data(host, "d");
      for (int i = 0; i < 3; i++) assert_true(a[i] == 6.0f);
      if (is_mixed) assert_true(d[0] == 6.0f && d[1] == 0.0f && d[4] == 6.0f);
      td_release(host, c.tree[r]);
    }
  }
}

static void try_all_reduce(rig_rank *r) {
  const reduce_case *c = r->rig->user;
  rig_keep(r, td_comm_all_reduce(r->comm, c->tree[r->rank], c->op, NULL, err));
}

DEVICE_CASE(comm_all_reduce_names_the_tensor_that_it_cannot_combine) {
  enum { WORLD = 3 };
  static const struct {
    tdict_dtype dtypes[3];
    tdict_reduce_op op;
    const char *path;
  } tries[] = {{{TDICT_F32, TDICT_I64, TDICT_I32}, TDICT_REDUCE_MEAN, "b"},
               {{TDICT_F32, TDICT_I64, TDICT_F16}, TDICT_REDUCE_SUM, "c"},
               {{TDICT_C64, TDICT_F32, TDICT_F32}, TDICT_REDUCE_MAX, "a"}};
  scoped_rig g = rig_create(WORLD);
  for (int i = 0; i < 3; i++) {
    reduce_case c = {.op = tries[i].op};
    for (int r = 0; r < WORLD; r++) c.tree[r] = tree_of(tries[i].dtypes, 3);
    rig_run(g, try_all_reduce, &c);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(g->ranks[r].status, TDICT_ENOTSUP);
      assert_string_equal(g->ranks[r].error.path, tries[i].path);
      tdict_release(c.tree[r]);
    }
  }
}
