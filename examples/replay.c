/* replay: a training loop over a replay buffer. Each iteration appends new rows, and
 * draws batches from the filled rows.
 *
 *   replay [DEVICE]     auto (default), cpu, sim, cuda:N */
#include <tdict/replay.h>
#include <tdict/sampler.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { CAPACITY = 1000, NEW_ROWS = 150, BATCH = 32, BATCHES = 4 };

int main(int argc, char **argv) {
  const tdict_field fields[] = {TDICT_FIELD("obs", TDICT_F32, 17),
                                TDICT_FIELD("reward", TDICT_F32)};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_sampler_options sampling = tdict_sampler_options_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_replay_state counts = tdict_replay_state_default();
  tdict_context *context = NULL;
  tdict_dataset *dataset = NULL;
  tdict_tree *buffer = NULL, *rows = NULL, *batch = NULL;
  tdict_replay *replay = NULL;
  tdict_sampler *sampler = NULL;
  tdict_loader *loader = NULL;
  int64_t drawn = 0;
  tdict_error err = {0};
  TDICT_TRY(tdict_device_parse(argc > 1 ? argv[1] : "auto", &options.device, &err));
  options.sim = &sim; /* the default device where there is no GPU */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(CAPACITY), NULL, &buffer, &err));
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(NEW_ROWS), NULL, &rows, &err));
  TDICT_TRY(tdict_replay_create(buffer, 0, &replay, &err));
  sampling.kind = TDICT_SAMPLER_WITH_REPLACEMENT;
  sampling.num_samples = BATCHES * BATCH; /* in each epoch */
  TDICT_TRY(tdict_sampler_create(CAPACITY, &sampling, &sampler, &err));
  loading.batch_size = BATCH;
  loading.sampler = sampler;
  TDICT_TRY(tdict_dataset_from_replay(replay, &dataset, &err));
  TDICT_TRY(tdict_loader_create(context, dataset, &loading, &loader, &err));
  for (int step = 0; step < 10; step++) {
    for (int64_t i = 0; i < NEW_ROWS; i++)
      ((float *)tdict_data(rows, "reward"))[i] = (float)step;
    TDICT_TRY(tdict_replay_append(replay, rows, &err));
    for (;;) { /* An epoch draws from the rows that are filled at its first batch. */
      TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
      if (!batch) break;
      /* a training step would use the batch here */
      drawn += tdict_batch_size(batch)[0];
      tdict_release(batch);
    }
  }
  TDICT_TRY(tdict_replay_get_state(replay, &counts, &err));
  printf("%d of %d rows are filled, %d were appended, %d were drawn\n",
         (int)counts.num_filled, (int)counts.capacity, (int)counts.total, (int)drawn);
done:
  tdict_loader_destroy(loader);
  tdict_dataset_release(dataset);
  tdict_sampler_release(sampler);
  tdict_replay_release(replay);
  tdict_release(rows);
  tdict_release(buffer);
  tdict_context_destroy(context);
  return err.status != TDICT_OK || drawn != 10 * BATCHES * BATCH;
}
