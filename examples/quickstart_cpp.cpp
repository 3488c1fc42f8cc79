/* quickstart_cpp: fills a batch on the host, moves it to a device and back, and
 * compares. The C++ form of quickstart.c.
 *
 *   quickstart_cpp [DEVICE]     auto (default), cpu, sim, cuda:N */
#include <tdict/sim.h>
#include <tdict/tdict.hpp>

static const tdict_field fields[] = {TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64),
                                     TDICT_FIELD("reward", TDICT_F32)};

int main(int argc, char **argv) try {
  tdict_sim_options sim =
      tdict_sim_options_default(); // the default device where there is no GPU
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim;
  options.device =
      tdict::call<tdict_device>(tdict_device_parse, argc > 1 ? argv[1] : "auto");
  tdict::context context = tdict::context::create(options);
  tdict::tree host = tdict::tree::create(fields, {128});
  for (uint8_t &pixel : host.elements<uint8_t>("obs.pixels")) pixel = 7;
  for (float &reward : host.elements<float>("reward")) reward = 0.5f;
  tdict::future future =
      context.to_device_async(host, context.device()); // returns at once
  tdict::tree moved = future.wait(), back = context.to_device(moved, tdict_cpu());
  std::printf("%scame back %s\n", moved.format().c_str(),
              back == host ? "equal" : "different");
  return back == host ? 0 : 1;
} catch (const tdict::error &e) {
  std::fprintf(stderr, "quickstart_cpp: %s\n", e.what());
  return 1;
}
