/* Tests the C++ classes with exceptions enabled: datasets, replay buffers, loaders and files. Reads results through the
 * C interface. */
#include <unistd.h>

#include <mutex>
#include <stdexcept>
#include <vector>

#include "hpp/check.hpp"

static_assert(sizeof(tdict::dataset) == sizeof(void *), "a handle is a pointer");
static_assert(sizeof(tdict::replay) == sizeof(void *), "a handle is a pointer");
static_assert(!std::is_copy_constructible<tdict::dataset>::value, "handles are not copied");

static const tdict_field fields[] = {TDICT_FIELD("id", TDICT_I64), TDICT_FIELD("x", TDICT_F32, 3)};

static tdict::context host_context() {
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict_cpu();
  return tdict::context::create(options);
}
static tdict::tree rows_of(int64_t first, int64_t count) {
  tdict::tree rows = tdict::tree::create(fields, {count});
  for (int64_t i = 0; i < count; i++) rows.data<int64_t>("id")[i] = first + i;
  td_fill_random(rows.data<float>("x"), sizeof(float) * 3 * static_cast<std::size_t>(count), 7);
  return rows;
}
static int64_t id_at(const tdict_tree *rows, int64_t i) {
  return static_cast<const int64_t *>(tdict_const_data(rows, "id"))[i];
}

static int live_functions;
/* A function object that makes samples. Counts its live copies, so that the case notices a leak. */
struct sample_function {
  int64_t end;
  explicit sample_function(int64_t end_) : end(end_) { live_functions++; }
  sample_function(const sample_function &other) : end(other.end) { live_functions++; }
  sample_function(sample_function &&other) : end(other.end) { live_functions++; }
  ~sample_function() { live_functions--; }
  tdict::tree operator()(const tdict_fetch_info &, int64_t index) const {
    if (end >= 0 && index >= end) return tdict::tree();
    if (index == 13) throw std::runtime_error("sample 13 is damaged");
    if (index == 17) {
      tdict_error e = tdict_error();
      e.status = TDICT_EIO;
      throw tdict::error(e);
    }
    tdict::tree sample = tdict::tree::create(fields, {});
    *sample.data<int64_t>("id") = 100 + index;
    return sample;
  }
};

CASE(hpp_dataset_from_function) {
  tdict::context context = host_context();
  live_functions = 0;
  for (int64_t length : {INT64_C(10), INT64_C(-1)}) { /* a dataset, then a stream of ten samples */
    tdict::dataset samples = tdict::dataset::from_function(sample_function(10), length);
    assert_int_equal(live_functions, 1);
    tdict_loader_options options = tdict_loader_options_default();
    options.batch_size = 4;
    tdict::loader loader = tdict::loader::create(context, samples, options);
    tdict::dataset same = samples.share();
    assert_ptr_equal(same.raw(), samples.raw());
    samples.reset();
    same.reset();
    assert_int_equal(live_functions, 1);
    for (int epoch = 0; epoch < 2; epoch++) {
      int64_t seen = 0;
      for (tdict::tree &batch : loader) {
        assert_int_equal(loader.batch_info().epoch, epoch);
        assert_int_equal(loader.batch_info().num_samples, batch.batch_size()[0]);
        for (int64_t i = 0; i < batch.batch_size()[0]; i++) assert_int_equal(id_at(batch.raw(), i), 100 + seen++);
      }
      assert_int_equal(seen, 10);
    }
    assert_int_equal(loader.stats().num_samples, 20);
    loader.reset();
    assert_int_equal(live_functions, 0);
  }
}

CASE(hpp_dataset_functions_may_throw) {
  tdict::context context = host_context();
  tdict_loader_options options = tdict_loader_options_default();
  options.on_error = TDICT_ON_ERROR_CONTINUE;
  tdict::loader loader =
      tdict::loader::create(context, tdict::dataset::from_function(sample_function(-1), 20), options);
  tdict_loader_state state = loader.state();
  state.batch = 13;
  loader.set_state(state);
  check_throws(TDICT_EHOOK, "", "sample 13 is damaged", [&] { loader.next(); });
  state.batch = 17;
  loader.set_state(state);
  check_throws(TDICT_EIO, "", "sample 17", [&] { loader.next(); });
  assert_int_equal(id_at(loader.next().raw(), 0), 118);
  loader.restart();
  assert_int_equal(id_at(loader.next().raw(), 0), 100);
}

static int64_t table_length(void *self) { return *static_cast<int64_t *>(self); }
static tdict_status table_fetch(void *, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                                tdict_error *) {
  (void)info;
  static_cast<int64_t *>(tdict_data(batch, "id"))[row] = index;
  return TDICT_OK;
}

CASE(hpp_dataset_of_a_table) {
  tdict::context context = host_context();
  int64_t length = 3;
  tdict_dataset_table table = tdict_dataset_table_default();
  check_throws(TDICT_EINVAL, "", "neither fetch_sample", [&] { tdict::dataset::create(table); });
  table.self = &length;
  table.fields = fields;
  table.num_fields = 2;
  table.length = table_length;
  table.fetch = table_fetch;
  tdict::loader loader = tdict::loader::create(context, tdict::dataset::create(table));
  assert_int_equal(loader.length(), 3);
  for (int64_t i = 0; i < 3; i++) assert_int_equal(id_at(loader.next().raw(), 0), i);
  CHECK(!loader.next());
}

CASE(hpp_replay_is_a_ring) {
  tdict::context context = host_context();
  tdict::tree rows = rows_of(0, 8);
  tdict::replay buffer = tdict::replay::create(rows, 6);
  buffer.append(rows_of(50, 3));
  assert_int_equal(id_at(rows.raw(), 7), 51);
  assert_int_equal(id_at(rows.raw(), 0), 52);
  buffer.write(2, rows_of(90, 2));
  assert_int_equal(id_at(rows.raw(), 3), 91);
  check_throws(TDICT_EINVAL, "", "rows are filled", [&] { buffer.write(7, rows_of(0, 2)); });
  tdict_replay_state state = buffer.state();
  CHECK(state.num_filled == 8 && state.next_row == 1 && state.total == 3 && state.capacity == 8);
  {
    std::lock_guard<const tdict::replay> lock(buffer);
    rows.data<int64_t>("id")[1] = 33;
  }
  tdict::replay same = buffer.share();
  buffer.reset();
  tdict::loader loader = tdict::loader::create(context, tdict::dataset::from_replay(same));
  assert_int_equal(loader.length(), 8);
  assert_int_equal(id_at(loader.next().raw(), 0), 52);
  assert_int_equal(id_at(loader.next().raw(), 0), 33);
  loader.reset();
  same.clear();
  assert_int_equal(same.state().num_filled, 0);
  same.set_state(state);
  assert_int_equal(same.state().num_filled, 8);
}

GPU_CASE(hpp_files_keep_the_tree) {
  tdict::context context(td_context(NULL));
  char folder[] = "/tmp/tdict-hpp-XXXXXX";
  CHECK(mkdtemp(folder));
  const std::string path = std::string(folder) + "/rows.safetensors";
  tdict::tree rows = rows_of(5, 9), device = context.to_device(rows, context.device());
  for (int way = 0; way < 3; way++) {
    if (way == 0) tdict::save(path.c_str(), rows);
    if (way == 1) context.save(path.c_str(), device);
    if (way == 2) {
      tdict::future saving = context.save_async(path.c_str(), device);
      saving.wait_source();
      CHECK(!saving.wait());
    }
    CHECK(tdict::open(path.c_str()) == rows);
    tdict::tree loaded =
        way ? context.load_async(path.c_str(), context.device()).wait() : context.load(path.c_str(), context.device());
    CHECK(tdict::tree(context.to_device(loaded, tdict_cpu())) == rows);
    tdict::tree other = rows_of(0, 9);
    context.load_into_async(other, path.c_str()).wait();
    CHECK(other == rows);
    unlink(path.c_str());
  }
  check_throws(TDICT_EIO, path.c_str(), "", [&] { tdict::open(path.c_str()); });
  rmdir(folder);
}
