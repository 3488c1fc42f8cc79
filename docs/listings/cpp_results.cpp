/* Compiled with -fno-exceptions: each function
 * that can fail returns a tdict::result. */
#include <cstdio>
#include <mutex>

#include <tdict/sim.h>
#include <tdict/tdict.hpp>

static const tdict_field fields[] = {TDICT_FIELD("x", TDICT_F32, 2),
                                     TDICT_FIELD("y", TDICT_I64)};
static const char *const path = "model.safetensors";

static tdict::result<void> transfer(const tdict::context &context,
                                    const tdict::tree &batch) {
  tdict::result<tdict::future> moving =
      context.to_device_async(batch, context.device());
  if (!moving) return moving.error();
  const tdict::result<tdict::tree> moved = moving->wait();
  if (!moved) return moved.error();
  const tdict::result<tdict::tree> back = context.to_device(*moved, tdict_cpu());
  if (!back) return back.error();
  std::printf("transfer: equal: %d\n", *back == batch);
  return {};
}

static tdict::result<tdict::tree> make_sample(const tdict_fetch_info &, int64_t index) {
  tdict::result<tdict::tree> sample = tdict::tree::create(fields, {});
  if (sample) *sample->data<int64_t>("y") = index;
  return sample;
}

static tdict::result<void> load_batches(const tdict::context &context) {
  tdict_loader_options options = tdict_loader_options_default();
  options.batch_size = 4;
  tdict::result<tdict::dataset> samples =
      tdict::dataset::from_function(make_sample, 10);
  if (!samples) return samples.error();
  tdict::result<tdict::loader> loader =
      tdict::loader::create(context, *samples, options);
  if (!loader) return loader.error();
  for (;;) {
    tdict::result<tdict::tree> batch = loader->next();
    if (!batch) return batch.error();
    if (!*batch) return {}; // the end of the epoch
    std::printf("loader: batch %d of %d samples\n",
                static_cast<int>(loader->batch_info()->batch),
                static_cast<int>(batch->batch_size()[0]));
  }
}

static tdict::result<void> replay(const tdict::tree &batch) {
  tdict::result<tdict::tree> rows = tdict::tree::create(fields, {100});
  if (!rows) return rows.error();
  tdict::result<tdict::replay> buffer = tdict::replay::create(*rows);
  if (!buffer) return buffer.error();
  const tdict::result<void> appended = buffer->append(batch);
  if (!appended) return appended.error();
  {
    const std::lock_guard<const tdict::replay> lock(*buffer);
    rows->data<int64_t>("y")[0] = 7;
  }
  std::printf("replay: %d rows\n", static_cast<int>(buffer->state()->num_filled));
  return {};
}

static tdict::result<void> files(const tdict::context &context,
                                 const tdict::tree &batch) {
  tdict::result<tdict::future> saving = context.save_async(path, batch);
  if (!saving) return saving.error();
  const tdict::result<tdict::tree> saved = saving->wait();
  if (!saved) return saved.error();
  tdict::result<tdict::tree> loaded = context.load(path, context.device());
  if (!loaded) return loaded.error();
  tdict::result<tdict::tree> mapped = tdict::open(path);
  if (!mapped) return mapped.error();
  std::printf("files: %d tensors, equal: %d\n", static_cast<int>(loaded->num_leaves()),
              *mapped == batch);
  return {};
}

static tdict::result<void> run() {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim; // the default device where there is no GPU
  tdict::result<tdict::context> context = tdict::context::create(options);
  if (!context) return context.error();
  tdict::result<tdict::tree> batch = tdict::tree::create(fields, {4});
  if (!batch) return batch.error();
  tdict::result<void> done = transfer(*context, *batch);
  if (done) done = load_batches(*context);
  if (done) done = replay(*batch);
  if (done) done = files(*context, *batch);
  if (done) std::printf("%s\n", batch->get("z").error().what());
  return done;
}

int main() {
  const tdict::result<void> done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().what());
  return done ? std::remove(path) : 1;
}
