/* Tests that the library's threads start in the default floating-point environment, and that results do not depend on
 * the caller's environment. The expected results are those of the same calls in the default environment. */
#include <math.h>

#include "core/base/float_env.h"
#include "core/base/thread.h"
#include "support/float_env.h"
#include "support/test.h"

static void *look(void *out) {
  *(td_float_env *)out = td_float_env_get();
  return NULL;
}

CASE(threads_start_in_the_default_float_env) {
  td_float_env_reset();
  const td_float_env standard = td_float_env_get();
  for (int i = 0; i < TD_FLOAT_ENVS; i++) {
    const td_float_env set = td_float_env_set(i);
    td_float_env found;
    pthread_t thread;
    const int code = tdict_thread_create(&thread, look, &found);
    if (code == 0) pthread_join(thread, NULL);
    const td_float_env left = td_float_env_get();
    td_float_env_reset();
    assert_int_equal(code, 0);
    assert_true(td_float_env_equal(found, standard));
    assert_true(td_float_env_equal(left, set));
    assert_false(td_float_env_equal(set, standard));
  }
}

CASE(float_env_is_set_and_restored) {
  td_float_env_reset();
  const td_float_env standard = td_float_env_get();
  for (int i = 0; i < TD_FLOAT_ENVS; i++) {
    const td_float_env set = td_float_env_set(i);
    const tdict_float_env saved = tdict_float_env_enter();
    const td_float_env inside = td_float_env_get();
    const tdict_float_env nested = tdict_float_env_enter();
    tdict_float_env_leave(&nested);
    const td_float_env still_inside = td_float_env_get();
    tdict_float_env_leave(&saved);
    const td_float_env left = td_float_env_get();
    td_float_env_reset();
    assert_true(td_float_env_equal(inside, standard) && td_float_env_equal(still_inside, standard));
    assert_true(td_float_env_equal(left, set));
  }
}

enum { COUNT = 1000 };

/* The results of all calls. They are compared with memcmp(), so the struct must not have padding. */
typedef struct results {
  double filled64, counted64[4], mean64, low64, mean_integers;
  int64_t drawn[COUNT];
  float filled32, filled_complex[2], counted32[4];
  uint16_t filled16, filled_bf16;
  uint32_t equals; /* bit i is set if comparison i found no difference */
  uint8_t filled_bool[4];
} results;

/* The arguments of the calls, made in the default environment. */
typedef struct arguments {
  tdict_tree *tree, *tiny, *zeros, *one, *near;
  tdict_tensor *numbers, *integers;
  double weights[COUNT];
} arguments;

static void add(tdict_tree *tree, const char *path, tdict_tensor *t) { td_put(tree, path, t); }
static void make_leaves(tdict_tree *tree) {
  static const tdict_dtype dtypes[] = {TDICT_F64, TDICT_F32, TDICT_F16, TDICT_BF16, TDICT_C64, TDICT_BOOL};
  static const char *const names[] = {"f64", "f32", "f16", "bf16", "c64", "bool"};
  for (int i = 0; i < 6; i++) {
    tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(dtypes[i], TDICT_SHAPE(1), NULL, &made, err));
    add(tree, names[i], t);
  }
}
static tdict_tree *tree_of(float number) {
  tdict_tree *tree = td_made(tree, tdict_create(TDICT_SHAPE(1), &made, err));
  add(tree, "x", td_made(tensor, tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(1), &number, &made, err)));
  return tree;
}
static void make_arguments(arguments *a) {
  double numbers[COUNT];
  int64_t integers[COUNT];
  uint64_t random[COUNT];
  td_fill_random(random, sizeof random, 0xf10a7);
  for (int i = 0; i < COUNT; i++) {
    numbers[i] = ldexp((double)random[i], -(int)(random[i] % 40)) / 3;
    integers[i] = (int64_t)(random[i] >> 1);
    a->weights[i] = (double)(1 + random[i] % 7) * 0x1p-1074; /* subnormal, like their sum */
  }
  numbers[0] = 0x1p-1070; /* so the minimum is subnormal */
  td_ok(tdict_create(TDICT_SHAPE(1), &a->tree, err));
  make_leaves(a->tree);
  a->tiny = tree_of(0x1p-140f);
  a->zeros = tree_of(0);
  a->one = tree_of(1);
  a->near = tree_of(0x1.000002p0f);
  td_ok(tdict_tensor_from_array(TDICT_F64, TDICT_SHAPE(COUNT), numbers, &a->numbers, err));
  td_ok(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(COUNT), integers, &a->integers, err));
}
static void free_arguments(arguments *a) {
  td_release(a->tree, a->tiny, a->zeros, a->one, a->near, a->numbers, a->integers);
}

static void read_leaf(const tdict_tree *tree, const char *path, void *out, size_t bytes) {
  tdict_tensor *t = td_made(tensor, tdict_get(tree, path, &made, err));
  memcpy(out, tdict_tensor_const_data(t), bytes);
}
static void compute_fills(const arguments *a, results *r) {
  td_ok(tdict_fill(a->tree, "f64", 0.1, NULL, err));
  td_ok(tdict_fill(a->tree, "f32", 0x1.234567p-133, NULL, err));
  td_ok(tdict_fill(a->tree, "f16", 0.1, NULL, err));
  td_ok(tdict_fill(a->tree, "bf16", 0.1, NULL, err));
  td_ok(tdict_fill(a->tree, "c64", 0.1, NULL, err));
  td_ok(tdict_fill(a->tree, "bool", 0x1p-1070, NULL, err));
  read_leaf(a->tree, "f64", &r->filled64, 8);
  read_leaf(a->tree, "f32", &r->filled32, 4);
  read_leaf(a->tree, "f16", &r->filled16, 2);
  read_leaf(a->tree, "bf16", &r->filled_bf16, 2);
  read_leaf(a->tree, "c64", r->filled_complex, 8);
  read_leaf(a->tree, "bool", r->filled_bool, 1);
}
static void compute_aranges(results *r) {
  scoped_tensor t = td_made(tensor, tdict_tensor_arange(TDICT_F64, 0.1, 0.7, 4, &made, err));
  memcpy(r->counted64, tdict_tensor_const_data(t), sizeof r->counted64);
  tdict_tensor_release(t);
  td_ok(tdict_tensor_arange(TDICT_F32, 0x1.2p-140, 0x1.34567p-130, 4, &t, err));
  memcpy(r->counted32, tdict_tensor_const_data(t), sizeof r->counted32);
}
static void compute_comparisons(const arguments *a, results *r) {
  tdict_difference_options o = tdict_difference_options_default();
  tdict_difference difference;
  o.absolute = 0x1p-23; /* the distance between 1 and the value in `near` */
  td_ok(tdict_get_difference(a->near, a->one, &o, &difference, err));
  r->equals = (uint32_t)!difference.differs;
  r->equals |= (uint32_t)tdict_equal(a->tiny, a->zeros) << 1;
}
static void compute_summaries(const arguments *a, results *r) {
  tdict_tensor_summary s = td_filled(tdict_tensor_summary, tdict_tensor_get_summary(a->numbers, &made, err));
  r->mean64 = s.mean;
  r->low64 = s.min;
  td_ok(tdict_tensor_get_summary(a->integers, &s, err));
  r->mean_integers = s.mean;
}
static void draw(const arguments *a, results *r) {
  scoped_sampler s = NULL;
  tdict_sampler_options o =
      td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WEIGHTED, weights = a->weights, num_weights = COUNT);
  td_ok(tdict_sampler_create(COUNT, &o, &s, err));
  for (int64_t i = 0; i < COUNT; i++) r->drawn[i] = tdict_sampler_get(s, 0, i);
}

CASE(results_do_not_depend_on_the_float_env) {
  static void (*const steps[])(const arguments *, results *) = {compute_fills, compute_comparisons, compute_summaries,
                                                                draw};
  static arguments a;
  static results wanted, found;
  td_float_env_reset();
  make_arguments(&a);
  for (int i = -1; i < TD_FLOAT_ENVS; i++) {
    results *r = i < 0 ? &wanted : &found;
    const td_float_env set = i < 0 ? td_float_env_get() : td_float_env_set(i);
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) steps[k](&a, r);
    compute_aranges(r);
    const td_float_env left = td_float_env_get();
    td_float_env_reset();
    assert_true(td_float_env_equal(left, set));
    if (i < 0) continue;
    assert_memory_equal(found.drawn, wanted.drawn, sizeof wanted.drawn);
    assert_memory_equal(&found.filled64, &wanted.filled64, offsetof(results, drawn));
    assert_memory_equal(&found.filled32, &wanted.filled32, sizeof wanted - offsetof(results, filled32));
  }
  assert_int_equal(wanted.equals, 1);
  assert_true(wanted.filled32 > 0 && wanted.low64 > 0 && wanted.filled_bool[0] == 1);
  free_arguments(&a);
}
