/* Tests the C++ classes with exceptions disabled, where each failure is a result. Compiled with -fno-exceptions. */
#include "hpp/check.hpp"

static_assert(std::is_same<tdict::outcome<tdict::tree>, tdict::result<tdict::tree>>::value, "results are chosen");

struct point {
  tdict::tensor x;
};
TDICT_BIND(point, "point", {&point::x, "x", TDICT_F32, {2}})

static const tdict_field fields[] = {TDICT_FIELD("x", TDICT_F32, 2)};

CASE(hpp_results_hold_values) {
  tdict::result<tdict::tree> made = tdict::tree::create(fields, {3});
  CHECK(made);
  assert_int_equal(made.status(), TDICT_OK);
  tdict::tree tree = std::move(*made);
  CHECK(!made.value()); /* moved from */
  CHECK(tree.get("x"));
  tdict::result<tdict::span<float>> x = tree.elements<float>("x");
  CHECK(x);
  assert_int_equal(x->size(), 6);
  tdict::result<void> set = tree.set("text", "words");
  CHECK(set);
  assert_int_equal(set.status(), TDICT_OK);
  tdict::result<point> p = tdict::unpack<point>(tree);
  CHECK(p);
  assert_ptr_equal(p->x.raw(), tree.get("x")->raw());
}

CASE(hpp_results_hold_errors) {
  tdict::result<tdict::tree> bad = tdict::tree::create({-1});
  CHECK(!bad);
  assert_int_equal(bad.status(), TDICT_EINVAL);
  tdict::tree tree = *tdict::tree::create(fields, {3});
  tdict::result<tdict::span<int>> x = tree.elements<int>("x");
  CHECK(!x);
  assert_int_equal(x.error().status(), TDICT_EDTYPE);
  assert_string_equal(x.error().path(), "x");
  assert_string_equal(x.error().what(), "TDICT_EDTYPE x: the dtype is float32, wanted int32");
  tdict::result<tdict::span<int>> moved(std::move(x));
  assert_string_equal(moved.error().message(), "the dtype is float32, wanted int32");
  tdict::result<void> removed = tree.remove("none");
  CHECK(!removed);
  assert_int_equal(removed.error().status(), TDICT_ENOTFOUND);
  assert_int_equal(removed.status(), TDICT_ENOTFOUND);
  point empty;
  assert_int_equal(tdict::pack(empty).status(), TDICT_EINVAL);
}

/* The range-based loop destroys the temporary result before its first iteration, so `*` must return a value. */
CASE(hpp_temporary_results_give_values) {
  tdict::tree tree = *tdict::tree::create(fields, {3});
  float next = 0;
  for (float &x : *tree.elements<float>("x")) x = next++;
  for (float &x : tree.elements<float>("x").value()) x += 1;
  const float *data = static_cast<const float *>(tdict_const_data(tree.raw(), "x"));
  for (int i = 0; i < 6; i++) assert_true(data[i] == static_cast<float>(i) + 1);
  assert_int_equal((*tree.elements<float>("x")).size(), 6);
  const tdict::error &failure = tree.elements<int>("x").error();
  assert_string_equal(failure.path(), "x");
  static_assert(std::is_same<decltype(*std::declval<tdict::result<int>>()), int>::value, "a value");
  static_assert(std::is_same<decltype(*std::declval<tdict::result<int> &>()), int &>::value, "a reference");
}

static tdict::result<tdict::tree> make_sample(const tdict_fetch_info &, int64_t index) {
  if (index == 2) return tdict::tree::create({-1});
  return tdict::tree::create(fields, {});
}

/* If making a sample fails, the loader returns an error for the batch. */
CASE(hpp_loaders_return_results) {
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict_cpu();
  tdict::result<tdict::context> context = tdict::context::create(options);
  CHECK(context);
  tdict::result<tdict::dataset> samples = tdict::dataset::from_function(make_sample, 3);
  CHECK(samples);
  tdict::result<tdict::loader> loader = tdict::loader::create(*context, *samples);
  CHECK(loader);
  for (int i = 0; i < 2; i++) CHECK(*loader->next());
  const tdict::result<tdict::tree> failed = loader->next();
  assert_int_equal(failed.status(), TDICT_EINVAL);
  CHECK(strstr(failed.error().message(), "sample 2"));
  assert_int_equal(loader->state()->batch, 3);
  CHECK(!loader->set_state(tdict_loader_state_default()));
  CHECK(!tdict::open("/no/such/file"));
  tdict::tree rows = *tdict::tree::create(fields, {4});
  tdict::result<tdict::replay> buffer = tdict::replay::create(rows, 9);
  assert_int_equal(buffer.status(), TDICT_EINVAL);
}
