/* actor_learner: reinforcement learning with several processes. Ranks 1, 2, ... are
 * actors: they play with the current policy and fill rollouts. Rank 0 is the learner:
 * it gathers the rollouts of a round, improves the policy, and sends the new weights to
 * the actors, in place.
 *
 * The problem: an observation has 8 numbers, and one of 4 actions is right. The right
 * action depends on the observation by a rule that the policy does not know. The reward
 * is 1 for the right action and 0 for another. The policy is a softmax over linear
 * functions of the observation. A policy that guesses has a mean reward of about 0.25.
 *
 *   mpirun -np 3 actor_learner */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

#include <tdict/comm.h>
#include <tdict/comm_mpi.h>
#include <tdict/tdict.h>
#include <tdict/try.h>
#include <tdict/write.h>

enum { FEATURES = 8, ACTIONS = 4, STEPS = 128, ROUNDS = 200, ROUNDS_SHOWN = 40 };

static const tdict_field weight_fields[] = {
    TDICT_FIELD("weight", TDICT_F32, ACTIONS, FEATURES)};
static const tdict_field step_fields[] = {
    TDICT_FIELD("observation", TDICT_F32, FEATURES), TDICT_FIELD("action", TDICT_I64),
    TDICT_FIELD("reward", TDICT_F32)};

/* A uniform number from 0 to 1. */
static float draw(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (float)(*state >> 40) / 16777216.0f;
}

/* The rule of the problem, which only actors use. */
static int right_action(const float *observation) {
  int best = 0;
  float most = -INFINITY;
  for (int a = 0; a < ACTIONS; a++) {
    float value = 0;
    for (int f = 0; f < FEATURES; f++)
      value += sinf(1 + 3.7f * (float)a + 1.3f * (float)f) * observation[f];
    if (value > most) best = a;
    if (value > most) most = value;
  }
  return best;
}

/* The probability of each action. */
static void apply_policy(const float *weight, const float *observation, float *out) {
  float sum = 0;
  for (int a = 0; a < ACTIONS; a++) {
    out[a] = 0;
    for (int f = 0; f < FEATURES; f++)
      out[a] += weight[a * FEATURES + f] * observation[f];
    sum += out[a] = expf(out[a]);
  }
  for (int a = 0; a < ACTIONS; a++) out[a] /= sum;
}

static void play(const tdict_tree *policy, uint64_t *random, tdict_tree *rollout) {
  const float *weight = tdict_const_data(policy, "weight");
  float *observations = tdict_data(rollout, "observation"),
        *rewards = tdict_data(rollout, "reward");
  int64_t *actions = tdict_data(rollout, "action");
  for (int64_t i = 0; i < tdict_batch_size(rollout)[0]; i++) {
    float *observation = observations + i * FEATURES, probabilities[ACTIONS];
    for (int f = 0; f < FEATURES; f++) observation[f] = 2 * draw(random) - 1;
    apply_policy(weight, observation, probabilities);
    float rest = draw(random);
    int action = 0;
    while (action < ACTIONS - 1 && rest >= probabilities[action])
      rest -= probabilities[action++];
    actions[i] = action;
    rewards[i] = action == right_action(observation);
  }
}

/* One step of REINFORCE: actions with more reward than the
 * mean become more probable. Returns the mean reward. */
static float learn(tdict_tree *policy, const tdict_tree *rollouts) {
  const float rate = 8;
  const float *observations = tdict_const_data(rollouts, "observation"),
              *rewards = tdict_const_data(rollouts, "reward");
  const int64_t *actions = tdict_const_data(rollouts, "action"),
                count = tdict_batch_size(rollouts)[0];
  float *weight = tdict_data(policy, "weight"), gradient[ACTIONS * FEATURES] = {0},
        mean = 0;
  for (int64_t i = 0; i < count; i++) mean += rewards[i] / (float)count;
  for (int64_t i = 0; i < count; i++) {
    const float *observation = observations + i * FEATURES;
    float probabilities[ACTIONS];
    apply_policy(weight, observation, probabilities);
    for (int a = 0; a < ACTIONS; a++) {
      const float slope = (rewards[i] - mean) *
                          ((float)(a == actions[i]) - probabilities[a]) / (float)count;
      for (int f = 0; f < FEATURES; f++)
        gradient[a * FEATURES + f] += slope * observation[f];
    }
  }
  for (int i = 0; i < ACTIONS * FEATURES; i++) weight[i] += rate * gradient[i];
  return mean;
}

static tdict_status run(tdict_comm *comm) {
  const int32_t rank = tdict_comm_get_info(comm).rank;
  /* the learner gathers, and has no rollout itself */
  const int64_t steps = rank == 0 ? 0 : STEPS;
  uint64_t random = 88172645463325252u + (uint64_t)rank;
  tdict_tree *policy = NULL, *rollout = NULL, *rollouts = NULL;
  tdict_future *call;
  tdict_error err = {0};
  TDICT_TRY(tdict_create_from(weight_fields, 1, 0, NULL, NULL, &policy, &err));
  TDICT_TRY(tdict_fill(policy, NULL, 0, NULL, &err));
  TDICT_TRY(tdict_create_from(step_fields, 3, 1, &steps, NULL, &rollout, &err));
  for (int round = 0; round < ROUNDS; round++) {
    TDICT_TRY(tdict_comm_broadcast_into_async(comm, policy, 0, NULL, &call, &err));
    TDICT_TRY(tdict_future_take(call, NULL, &err));
    play(policy, &random, rollout);
    /* along the batch dimension */
    TDICT_TRY(tdict_comm_gather_async(comm, rollout, 0, NULL, &call, &err));
    TDICT_TRY(tdict_future_take(call, &rollouts, &err));
    if (!rollouts) continue;
    const float reward = learn(policy, rollouts);
    if (round % ROUNDS_SHOWN == 0 || round == ROUNDS - 1)
      printf("round %3d: mean reward %.3f of %lld steps\n", round, (double)reward,
             (long long)tdict_batch_size(rollouts)[0]);
    tdict_release(rollouts);
    rollouts = NULL;
  }

done:
  tdict_release(rollouts);
  tdict_release(rollout);
  tdict_release(policy);
  return (tdict_status)err.status;
}

int main(int argc, char **argv) {
  tdict_comm_table table = tdict_comm_table_default();
  tdict_context *context = NULL;
  tdict_comm *comm = NULL;
  tdict_error err = {0};
  MPI_Init(&argc, &argv);
  TDICT_TRY(tdict_context_create(NULL, &context, &err));
  TDICT_TRY(tdict_mpi_create_table(NULL, NULL, &table, &err));
  TDICT_TRY(tdict_comm_create(context, &table, NULL, &comm, &err));
  err.status = tdict_comm_get_info(comm).world_size < 2 ? TDICT_EINVAL : TDICT_OK;
  if (err.status != TDICT_OK)
    fprintf(stderr, "actor_learner: wanted at least 2 processes: "
                    "start mpirun -np 3 actor_learner\n");
  else
    err.status = (int32_t)run(comm);

done:
  /* the other processes may wait for this one */
  if (err.status != TDICT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  tdict_comm_destroy(comm);
  tdict_context_destroy(context);
  MPI_Finalize();
  return 0;
}
