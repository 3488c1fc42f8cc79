/* rollout_cpp: a buffer of on-policy steps, as PPO uses it. Each step of all
 * environments is written to the buffer. Then shuffled minibatches are gathered into
 * pinned memory, and move to the device while the program uses the batch before.
 *
 *   rollout_cpp [DEVICE]     auto (default), cpu, sim, cuda:N */
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <tdict/index.h>
#include <tdict/shape.h>
#include <tdict/sim.h>
#include <tdict/tdict.hpp>

enum { STEPS = 64, ENVS = 8, STATE = 17, MINIBATCH = 128, EPOCHS = 2 };

/* One step of the program, bound to a tree. */
struct step {
  tdict::tensor state, action, reward;
};
TDICT_BIND(step, "step", {&step::state, "obs.state", TDICT_F32, {STATE}},
           {&step::action, "action", TDICT_I64, {}},
           {&step::reward, "reward", TDICT_F32, {}})

/* Stands for the environments: every number of a step can be checked later. */
static void simulate(step &now, int64_t time) {
  for (int64_t env = 0; env < ENVS; env++) {
    const int64_t id = env * STEPS + time;
    std::fill_n(now.state.data<float>() + env * STATE, static_cast<int>(STATE),
                static_cast<float>(id));
    now.action.data<int64_t>()[env] = id;
    now.reward.data<float>()[env] = static_cast<float>(id) * 0.5f;
  }
}

/* Stands for the training step: returns the sum
 * of the actions of a batch that has arrived. */
static int64_t train_on(const tdict::context &context, tdict::future &transfer) {
  tdict::tree batch = context.to_device(transfer.wait(), tdict_cpu());
  const step now = tdict::unpack<step>(batch);
  tdict::span<const int64_t> actions = now.action.elements<const int64_t>();
  tdict::span<const float> rewards = now.reward.elements<const float>();
  int64_t sum = 0;
  for (std::size_t i = 0; i < actions.size(); i++)
    sum += rewards[i] == static_cast<float>(actions[i]) * 0.5f ? actions[i] : -1;
  return sum;
}

static int64_t run(const tdict::context &context) {
  step now = tdict::make<step>({ENVS});
  const tdict::tree row = tdict::pack(now); // shares the tensors of `now`
  const tdict::tree buffer = tdict::pack(tdict::make<step>({ENVS, STEPS}));
  for (int64_t time = 0; time < STEPS; time++) {
    simulate(now, time);
    tdict::run(tdict_index_set, nullptr, buffer.raw(),
               TDICT_INDEX(TDICT_ALL, TDICT_AT(time)), row.raw(), nullptr);
  }
  const tdict::tree flat =
      tdict::call<tdict::tree>(tdict_merge_dims, buffer.raw(), 0, 1);
  tdict::tree batches[2]; // gathered in turns: one is filled while the other one moves
  for (tdict::tree &batch : batches)
    batch = tdict::pack(tdict::make<step>({MINIBATCH}, context.pinned()));
  std::vector<int64_t> order(STEPS * ENVS);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  int64_t sum = 0, count = 0;
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    std::shuffle(order.begin(), order.end(), random);
    tdict::future before;
    for (std::size_t first = 0; first < order.size(); first += MINIBATCH) {
      const tdict::tree &batch = batches[count++ % 2];
      tdict::run(tdict_index_into, nullptr, batch.raw(), flat.raw(),
                 TDICT_INDEX(TDICT_LIST(order.data() + first, MINIBATCH)), nullptr);
      tdict::future next = context.to_device_async(batch, context.device());
      if (before) sum += train_on(context, before);
      before = std::move(next);
    }
    sum += train_on(context, before);
  }
  return sum;
}

int main(int argc, char **argv) try {
  tdict_sim_options sim =
      tdict_sim_options_default(); // the default device where there is no GPU
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim;
  options.device =
      tdict::call<tdict_device>(tdict_device_parse, argc > 1 ? argv[1] : "auto");
  const int64_t count = STEPS * ENVS, want = EPOCHS * count * (count - 1) / 2,
                found = run(tdict::context::create(options));
  std::printf("%d epochs over %d steps of %d environments: sum %lld, wanted %lld\n",
              static_cast<int>(EPOCHS), static_cast<int>(STEPS), static_cast<int>(ENVS),
              static_cast<long long>(found), static_cast<long long>(want));
  return found == want ? 0 : 1;
} catch (const tdict::error &e) {
  std::fprintf(stderr, "rollout_cpp: %s\n", e.what());
  return 1;
}
