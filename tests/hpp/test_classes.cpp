/* Tests the C++ classes with exceptions enabled: handles, trees, elements, transfers, loaders. Reads results through
 * the C interface. */
#include <unistd.h>

#include <cstdlib>

#include "hpp/check.hpp"
#include "tdict/debug.h"
#include "tdict/sim.h"

static_assert(sizeof(tdict::tree) == sizeof(void *), "a handle is a pointer");
static_assert(sizeof(tdict::tensor) == sizeof(void *), "a handle is a pointer");
static_assert(sizeof(tdict::future) == sizeof(void *), "a handle is a pointer");
static_assert(sizeof(tdict::context) == sizeof(void *), "a handle is a pointer");
static_assert(!std::is_copy_constructible<tdict::tree>::value, "handles are not copied");
static_assert(!std::is_copy_assignable<tdict::future>::value, "handles are not copied");
static_assert(std::is_nothrow_move_constructible<tdict::tree>::value, "handles move");
static_assert(std::is_trivially_copyable<tdict::tree_ref>::value, "a borrowed tree is passed in a register");
static_assert(tdict::dtype_of<long>::value == TDICT_I64, "integers by size");
static_assert(tdict::dtype_of<unsigned char>::value == TDICT_U8, "integers by size");
static_assert(tdict::dtype_of<bool>::value == TDICT_BOOL, "bool is no integer");
static_assert(tdict::dtype_of<std::complex<float>>::value == TDICT_C64, "complex");

static const tdict_field fields[] = {TDICT_FIELD("obs.state", TDICT_F32, 17), TDICT_FIELD("action", TDICT_I64),
                                     TDICT_FIELD("done", TDICT_BOOL, 1)};
enum { ROWS = 128, STATE = 17 };

static tdict::tree random_batch(uint64_t seed) {
  tdict::tree batch = tdict::tree::create(fields, {ROWS});
  td_fill_random(batch.data<float>("obs.state"), sizeof(float) * ROWS * STATE, seed);
  td_fill_random(batch.data<int64_t>("action"), sizeof(int64_t) * ROWS, seed + 1);
  for (int i = 0; i < ROWS; i++) batch.data<bool>("done")[i] = i % 3 == 0;
  return batch;
}

static int freed;
static void count_free(void *) { freed++; }

/* Makes a tensor over a static array. Releasing it increases `freed`. */
static tdict::tensor counted_tensor() {
  static float numbers[4];
  static const int64_t sizes[] = {4};
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  desc.data = numbers;
  desc.dtype = TDICT_F32;
  desc.ndim = 1;
  desc.shape = sizes;
  void (*const release)(void *) = count_free;
  return tdict::call<tdict::tensor>(tdict_tensor_from_data, &desc, release, nullptr);
}

CASE(hpp_handles_release_once) {
  freed = 0;
  {
    tdict::tensor a = counted_tensor(), b = a.share(), c;
    assert_ptr_equal(a.raw(), b.raw());
    c = std::move(a);
    CHECK(!a);
    CHECK(c);
    tdict::tensor &same = c;
    c = std::move(same); /* to itself */
    CHECK(c);
    tdict::tensor d(std::move(c));
    b.reset();
    assert_int_equal(freed, 0);
    tdict_tensor *raw = d.detach();
    CHECK(!d);
    tdict::tensor e(raw);
    assert_int_equal(freed, 0);
    e = tdict::tensor();
    assert_int_equal(freed, 1);
    tdict::tensor last = counted_tensor();
  }
  assert_int_equal(freed, 2);
}

CASE(hpp_tree_holds_what_is_set) {
  freed = 0;
  {
    tdict::tree tree = tdict::tree::create({4}), child = tdict::tree::create({4});
    child.set("x", counted_tensor());
    tree.set("child", child);
    tree.set("text", "words");
    CHECK(tree.has("child.x"));
    assert_int_equal(tree.num_keys(), 2);
    tdict::tree copy = tree.clone();
    CHECK(copy == tree);
    tree.remove("child");
    child.reset();
    assert_int_equal(freed, 0);
    CHECK(copy != tree);
    assert_int_equal(copy.get_tree("child").num_keys(), 1);
    const char *text = nullptr;
    td_ok(tdict_get_text(copy.raw(), "text", -1, &text, NULL, err));
    assert_string_equal(text, "words");
  }
  assert_int_equal(freed, 1);
}

CASE(hpp_tree_sets_numbers) {
  tdict::tree tree = tdict::tree::create({4});
  tree.set("steps", std::size_t(7) << 40);
  tree.set("rate", 0.5f);
  tree.set("done", true);
  tree.set("least", INT64_MIN);
  tree.set("huge", 1e300);
  tdict_value value;
  td_ok(tdict_get_value(tree.raw(), "steps", -1, &value, err));
  CHECK(value.kind == TDICT_VALUE_INTEGER && value.integer == int64_t(7) << 40);
  td_ok(tdict_get_value(tree.raw(), "rate", -1, &value, err));
  CHECK(value.kind == TDICT_VALUE_REAL && value.real == 0.5);
  td_ok(tdict_get_value(tree.raw(), "done", -1, &value, err));
  CHECK(value.kind == TDICT_VALUE_BOOL && value.integer == 1);
  td_ok(tdict_get_value(tree.raw(), "least", -1, &value, err));
  CHECK(value.kind == TDICT_VALUE_INTEGER && value.integer == INT64_MIN);
  td_ok(tdict_get_value(tree.raw(), "huge", -1, &value, err));
  CHECK(value.kind == TDICT_VALUE_REAL && value.real > 9e299);
  check_throws(TDICT_EOVERFLOW, "steps", "greater than INT64_MAX", [&] { tree.set("steps", UINT64_MAX); });
  td_ok(tdict_get_value(tree.raw(), "steps", -1, &value, err));
  CHECK(value.integer == int64_t(7) << 40);
}

/* Defines name<T>(0), whose type is std::true_type if set() of a T accepts the value. */
#define ACCEPTS(name, value_)                                                                               \
  template <class T> static auto name(int)->decltype(std::declval<T>().set("a", value_), std::true_type()); \
  template <class T> static std::false_type name(...);
ACCEPTS(takes_nullptr, nullptr)
ACCEPTS(takes_zero, 0)
ACCEPTS(takes_long_zero, 0L)

CASE(hpp_tree_refuses_nullptr) {
  static_assert(!decltype(takes_nullptr<tdict::tree>(0))::value, "set() accepts nullptr");
  static_assert(decltype(takes_zero<tdict::tree>(0))::value, "set() refuses 0");
  static_assert(decltype(takes_long_zero<tdict::tree>(0))::value, "set() refuses 0L");
  tdict::tree tree = tdict::tree::create({});
  long length = 0;
  const int64_t none = length;
  tree.set("zero", 0);
  tree.set("length", length);
  tree.set("none", none);
  tree.set("less", length - 1);
  tdict_value value;
  for (const char *path : {"zero", "length", "none"}) {
    td_ok(tdict_get_value(tree.raw(), path, -1, &value, err));
    CHECK(value.kind == TDICT_VALUE_INTEGER && value.integer == 0);
  }
  td_ok(tdict_get_value(tree.raw(), "less", -1, &value, err));
  CHECK(value.integer == -1);
}

CASE(hpp_elements_are_written) {
  tdict::tree tree = random_batch(5), before = tree.clone_deep(),
              row = tree.index(TDICT_INDEX(TDICT_AT(9))).clone_deep();
  row.fill(nullptr, 3);
  row.fill("obs", 2.5);
  tree.index_set(TDICT_INDEX(TDICT_AT(4)), row);
  const float *now = tree.data<const float>("obs.state"), *old = before.data<const float>("obs.state");
  for (int i = 0; i < ROWS * STATE; i++) CHECK(i / STATE == 4 ? now[i] == 2.5f : memcmp(now + i, old + i, 4) == 0);
  for (int i = 0; i < ROWS; i++)
    CHECK(tree["action"].data<int64_t>()[i] == (i == 4 ? 3 : before["action"].data<int64_t>()[i]));
  check_throws(TDICT_ENOTFOUND, "none", "", [&] { tree["none"]; });
  check_throws(TDICT_EOVERFLOW, "action", "", [&] { tree.fill("action", 1e30); });
  std::FILE *file = std::tmpfile();
  assert_non_null(file);
  tree.print(file);
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  assert_int_equal(std::fread(&text[0], 1, text.size(), file), text.size());
  assert_int_equal(std::fclose(file), 0);
  CHECK(text.find("tree batch=[128]") == 0 && text.find("float32") != std::string::npos);
}

CASE(hpp_for_walks_the_entries) {
  tdict::tree tree = random_batch(1);
  std::string keys;
  for (const tdict::entry &e : tree) {
    keys += e.key;
    keys += e.is_tree() ? "/" : e.is_tensor() ? "." : "?";
    if (e.is_tree()) assert_int_equal(e.as_tree().num_keys(), 1);
    if (e.is_tensor()) assert_int_equal(e.as_tensor().shape()[0], ROWS);
  }
  assert_string_equal(keys.c_str(), "obs/action.done.");
  tdict::tree none = tdict::tree::create({});
  for (const tdict::entry &e : none) fail_msg("an empty tree has the key %s", e.key);
}

CASE(hpp_elements_are_typed) {
  tdict::tree tree = random_batch(7);
  const int64_t *raw = static_cast<const int64_t *>(tdict_const_data(tree.raw(), "action"));
  tdict::span<int64_t> actions = tree.elements<int64_t>("action");
  assert_int_equal(actions.size(), ROWS);
  assert_ptr_equal(actions.data(), raw);
  tdict::span<const float> states = tree.get("obs.state").elements<const float>();
  assert_int_equal(states.size(), ROWS * STATE);
  for (int64_t &action : actions) action = -3;
  for (int i = 0; i < ROWS; i++) assert_int_equal(raw[i], -3);
  check_throws(TDICT_EDTYPE, "action", "the dtype is int64, wanted float32", [&] { tree.elements<float>("action"); });
  check_throws(TDICT_ENOTFOUND, "obs.stat", "keys: state", [&] { tree.elements<float>("obs.stat"); });
  check_throws(TDICT_ETYPE, "obs", "", [&] { tree.elements<float>("obs"); });
  tdict::tree turned = tree.index(TDICT_INDEX(TDICT_RANGE(0, ROWS, 2)));
  check_throws(TDICT_ENOTSUP, "action", "contiguous", [&] { turned.elements<int64_t>("action"); });
  check_throws(TDICT_EINVAL, "", "NULL", [] { tdict::tensor().elements<float>(); });
  static const float fixed[2] = {1, 2};
  static const int64_t sizes[] = {2};
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  desc.data = const_cast<float *>(fixed);
  desc.dtype = TDICT_F32;
  desc.ndim = 1;
  desc.shape = sizes;
  desc.flags = TDICT_DESC_READ_ONLY;
  void (*const release)(void *) = nullptr;
  tdict::tensor constant = tdict::call<tdict::tensor>(tdict_tensor_from_data, &desc, release, nullptr);
  check_throws(TDICT_EREADONLY, "", "read-only", [&] { constant.elements<float>(); });
  CHECK(constant.elements<const float>()[1] == 2);
}

CASE(hpp_tensors_are_made) {
  const int32_t numbers[] = {1, 2, 3, 4, 5, 6};
  tdict::tensor t = tdict::tensor::from_array(numbers, {2, 3}), zero = tdict::tensor::zeros(TDICT_F64, {5});
  assert_int_equal(t.dtype(), TDICT_I32);
  assert_int_equal(t.shape()[1], 3);
  assert_int_equal(t.strides()[0], 3);
  assert_memory_equal(tdict_tensor_const_data(t.raw()), numbers, sizeof numbers);
  for (double x : zero.elements<const double>()) CHECK(x == 0);
  const int64_t sizes[] = {7};
  tdict::tensor e = tdict::tensor::empty(TDICT_U8, tdict::span<const int64_t>(sizes, 1));
  assert_int_equal(e.bytes(), 7);
  check_throws(TDICT_EINVAL, "", "", [] { tdict::tensor::empty(TDICT_F32, {-1}); });
}

CASE(hpp_call_reaches_every_function) {
  tdict::tree tree = random_batch(3);
  tdict::tree flat = tdict::call<tdict::tree>(tdict_flatten_keys, tree.raw(), ".");
  CHECK(flat.has("obs\\.state"));
  std::size_t want = 0;
  td_ok(tdict_unique_bytes(tree.raw(), &want, err));
  assert_int_equal(tdict::call<std::size_t>(tdict_unique_bytes, tree.raw()), want);
  tdict::run(tdict_rename, tree.raw(), "action", "a", true);
  CHECK(tree.has("a"));
  check_throws(TDICT_ENOTFOUND, "action", "", [&] { tdict::run(tdict_rename, tree.raw(), "action", "b", true); });
  check_throws(TDICT_ENOTFOUND, "none", "", [&] { tree.remove("none"); });
  assert_string_equal(tree.index(nullptr, TDICT_INDEX(TDICT_AT(5)), tdict_run_default()).format().substr(0, 13).c_str(),
                      "tree batch=[]");
  assert_string_equal(tree.index(TDICT_INDEX(TDICT_AT(5))).format().substr(0, 13).c_str(), "tree batch=[]");
}

GPU_CASE(hpp_transfers_arrive) {
  tdict::context context(td_context(NULL));
  tdict::tree host = random_batch(11);
  tdict::tree moved = context.to_device(host, td_device());
  CHECK(tdict_device_equal(moved.get("action").device(), td_device()));
  check_throws(TDICT_EWRONGDEVICE, "action", "wanted host memory", [&] { moved.elements<int64_t>("action"); });
  tdict::future first = context.to_device_async(host, td_device());
  tdict::tree again = first.wait(), back = context.to_device(again, tdict_cpu());
  CHECK(first.is_ready());
  assert_int_equal(first.stats().total_bytes, host.bytes());
  assert_memory_equal(tdict_const_data(back.raw(), "obs.state"), tdict_const_data(host.raw(), "obs.state"),
                      sizeof(float) * ROWS * STATE);
  tdict::tree target = host.clone_deep(context.pinned());
  td_ok(tdict_fill(target.raw(), NULL, 0, NULL, err));
  context.transfer_into_async(target, again).take();
  assert_memory_equal(tdict_const_data(target.raw(), "obs.state"), tdict_const_data(host.raw(), "obs.state"),
                      sizeof(float) * ROWS * STATE);
  tdict::tree pinned = context.pin_memory(host);
  CHECK(pinned.get("done").is_pinned());
  context.transfer_into_async(again, target).wait_source();
}

DEVICE_CASE(hpp_trees_are_saved_and_loaded) {
  char folder[] = "/tmp/tdict_hpp_XXXXXX";
  assert_non_null(mkdtemp(folder));
  const std::string path = std::string(folder) + "/t.safetensors", none = std::string(folder) + "/none/t";
  tdict::context context(td_context(NULL));
  tdict::tree host = random_batch(17), source = context.to_device(host, td_device());
  context.save(path.c_str(), source);
  tdict::future saved = context.save_async(path.c_str(), source);
  saved.wait_source();
  CHECK(!saved.wait());
  CHECK(saved.is_ready());
  assert_int_equal(saved.stats().total_bytes, host.bytes());
  CHECK(!saved.take());
  CHECK(!saved);
  check_throws(TDICT_EIO, none.c_str(), "", [&] { context.save_async(none.c_str(), source).take(); });
  tdict::tree found = context.load(path.c_str(), tdict_cpu());
  assert_memory_equal(found.data<float>("obs.state"), host.data<float>("obs.state"), sizeof(float) * ROWS * STATE);
  found = context.load_async(path.c_str(), tdict_cpu()).take();
  assert_memory_equal(found.data<float>("obs.state"), host.data<float>("obs.state"), sizeof(float) * ROWS * STATE);
  td_ok(tdict_fill(found.raw(), NULL, 0, NULL, err));
  context.load_into_async(found, path.c_str()).take();
  assert_memory_equal(found.data<float>("obs.state"), host.data<float>("obs.state"), sizeof(float) * ROWS * STATE);
  assert_int_equal(std::remove(path.c_str()), 0);
  assert_int_equal(rmdir(folder), 0);
}

/* The link is slow, so the transfer can only have ended if the destructor waits for it. */
SIM_CASE(hpp_future_waits_when_destroyed) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  sim.h2d_bytes_per_second = 100e3;
  options.sim = &sim;
  tdict::context context(td_context(&options));
  tdict::tree host = random_batch(13).clone_deep(context.pinned()), moved = context.to_device(host, td_device());
  td_fill_random(host.data<int64_t>("action"), sizeof(int64_t) * ROWS, 99);
  tdict_future *seen = NULL;
  {
    tdict::future f = context.transfer_into_async(moved, host);
    seen = tdict_future_retain(f.raw());
    tdict::future g(std::move(f));
    assert_null(f.raw());
  }
  CHECK(tdict_future_is_ready(seen));
  tdict_future_release(seen);
  check_throws(TDICT_EINVAL, "", "future", [] { tdict::future().wait(); });
}

GPU_CASE(hpp_loader_is_a_range) {
  tdict::context context(td_context(NULL));
  tdict::tree rows = random_batch(17);
  tdict_loader_options options = tdict_loader_options_default();
  options.batch_size = 50;
  tdict::loader loader = tdict::loader::create(context, tdict::dataset::from_tree(rows), options);
  for (int epoch = 0; epoch < 2; epoch++) {
    int64_t seen = 0;
    for (tdict::tree &batch : loader) {
      tdict::tree host = context.to_device(batch, tdict_cpu());
      const int64_t count = host.batch_size()[0];
      assert_memory_equal(host.data<const int64_t>("action"), rows.data<int64_t>("action") + seen,
                          sizeof(int64_t) * static_cast<std::size_t>(count));
      seen += count;
    }
    assert_int_equal(seen, ROWS);
  }
  assert_int_equal(loader.length(), 3);
}
