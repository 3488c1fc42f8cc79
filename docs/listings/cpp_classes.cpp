#include <array>
#include <cstdio>
#include <mutex>

#include <tdict/shape.h>
#include <tdict/sim.h>
#include <tdict/tdict.hpp>

static const tdict_field fields[] = {TDICT_FIELD("x", TDICT_F32, 2),
                                     TDICT_FIELD("y", TDICT_I64)};
static const char *const path = "model.safetensors";

/* Moves a tree to the device and back. */
static void transfer(const tdict::context &context, const tdict::tree &batch) {
  tdict::future moving = context.to_device_async(batch, context.device());
  const tdict::tree moved = moving.take(); // throws the error of the transfer
  const tdict::tree back = context.to_device(moved, tdict_cpu());
  std::printf("transfer: equal: %d\n", back == batch);
}

/* Selects a row, writes a row, and makes another shape. run() and call() take any
 * function of C without its last arguments `out` and `err`. Handles are passed as
 * raw(). */
static void rows_of(const tdict::tree &batch) {
  const tdict::tree last = batch.index(TDICT_INDEX(TDICT_AT(-1)));
  tdict::run(tdict_index_set, nullptr, batch.raw(), TDICT_INDEX(TDICT_AT(0)),
             last.raw(), nullptr);
  const tdict::tree grid = tdict::call<tdict::tree>(
      tdict_reshape_view, batch.raw(), 2, std::array<int64_t, 2>{{2, 2}}.data());
  std::printf("rows: %d dimensions\n", static_cast<int>(grid.batch_size().size()));
}

/* Draws batches from a dataset that makes each sample when the loader needs it. */
static void load_batches(const tdict::context &context) {
  const auto make = [](const tdict_fetch_info &, int64_t index) {
    tdict::tree sample = tdict::tree::create(fields, {});
    *sample.data<int64_t>("y") = index;
    return sample;
  };
  tdict_loader_options options = tdict_loader_options_default();
  options.batch_size = 4;
  const tdict::loader loader =
      tdict::loader::create(context, tdict::dataset::from_function(make, 10), options);
  for (tdict::tree &batch : loader) // one epoch
    std::printf("loader: batch %d of %d samples\n",
                static_cast<int>(loader.batch_info().batch),
                static_cast<int>(batch.batch_size()[0]));
}

/* Appends rows to a replay buffer, and writes one under its lock. */
static void replay(const tdict::tree &batch) {
  const tdict::tree rows = tdict::tree::create(fields, {100});
  const tdict::replay buffer = tdict::replay::create(rows);
  buffer.append(batch);
  {
    const std::lock_guard<const tdict::replay> lock(buffer);
    rows.elements<int64_t>("y")[0] = 7;
  }
  std::printf("replay: %d rows\n", static_cast<int>(buffer.state().num_filled));
}

/* Saves a tree in the background, and loads it. */
static void files(const tdict::context &context, const tdict::tree &batch) {
  tdict::future saving = context.save_async(path, batch);
  saving.wait_source(); // the elements may now change
  saving.wait();        // the tree is in the file
  const tdict::tree loaded = context.load(path, context.device()),
                    mapped = tdict::open(path);
  std::printf("files: %d tensors, equal: %d\n", static_cast<int>(loaded.num_leaves()),
              mapped == batch);
}

int main() try {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim; // the default device where there is no GPU
  const tdict::context context = tdict::context::create(options);
  const tdict::tree batch = tdict::tree::create(fields, {4});
  for (float &x : batch.elements<float>("x")) x = 1;
  transfer(context, batch);
  rows_of(batch);
  load_batches(context);
  replay(batch);
  files(context, batch);
  try {
    batch.get("z");
  } catch (const tdict::error &e) {
    std::printf("%s\n", e.what());
  }
  return std::remove(path);
} catch (const tdict::error &e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
