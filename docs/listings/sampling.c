#include <tdict/clone.h>
#include <tdict/index.h>
#include <tdict/replay.h>
#include <tdict/sampler.h>

#include "batch.h"

static int draw_indices(void) {
  tdict_sampler_options options = tdict_sampler_options_default();
  tdict_sampler *sampler = NULL, *mine = NULL;
  int64_t sum = 0;
  tdict_error err = {0};
  options.kind = TDICT_SAMPLER_SHUFFLED;
  options.seed = 7;
  options.rank = 1; /* the second of two processes */
  options.world_size = 2;
  TDICT_TRY(tdict_sampler_create(100, &options, &sampler, &err));
  mine = tdict_sampler_retain(sampler);
  for (int64_t i = 0; i < tdict_sampler_length(mine); i++)
    sum += tdict_sampler_get(mine, 0, i);
  printf("%d of 100 indices; their sum is below 4950: %d\n",
         (int)tdict_sampler_length(mine), sum < 4950);
done:
  tdict_sampler_release(mine);
  tdict_sampler_release(sampler);
  return err.status != TDICT_OK;
}

/* the rows of `batch` are the buffer: capacity 4 */
static int write_a_replay_buffer(tdict_tree *batch) {
  tdict_replay_state counts = tdict_replay_state_default();
  tdict_replay *replay = NULL, *mine = NULL;
  tdict_tree *rows = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_replay_create(batch, 4, &replay, &err)); /* all rows are filled */
  mine = tdict_replay_retain(replay);
  TDICT_TRY(tdict_clone_deep(batch, NULL, &rows, &err));
  TDICT_TRY(tdict_replay_write(mine, 0, rows, &err)); /* rewrites rows 0 to 3 */
  tdict_replay_lock(mine); /* no batch is fetched until the lock is released */
  ((float *)tdict_data(batch, "reward"))[0] = 8;
  tdict_replay_unlock(mine);
  tdict_replay_clear(mine);
  TDICT_TRY(tdict_replay_get_state(mine, &counts, &err));
  printf("%d of %d rows are filled\n", (int)counts.num_filled, (int)counts.capacity);
done:
  tdict_release(rows);
  tdict_replay_release(mine);
  tdict_replay_release(replay);
  return err.status != TDICT_OK;
}

/* Makes sample `index`: a tree without batch dimensions. */
static tdict_status make_sample(void *user, const tdict_fetch_info *info, int64_t index,
                                tdict_tree **out, tdict_error *err) {
  (void)info;
  return tdict_index_get(NULL, user, TDICT_INDEX(TDICT_AT(index)), NULL, out, err);
}

static int load_from_a_callback(tdict_tree *batch) {
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_loader_stats stats = tdict_loader_stats_default();
  tdict_context *context = NULL;
  tdict_dataset *dataset = NULL;
  tdict_loader *loader = NULL;
  tdict_tree *two = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_context_create(NULL, &context, &err)); /* the default device */
  TDICT_TRY(tdict_dataset_from_callback(make_sample, batch, 4, &dataset, &err));
  loading.batch_size = 2;
  TDICT_TRY(tdict_loader_create(context, dataset, &loading, &loader, &err));
  TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &two, &err));
  TDICT_TRY(tdict_loader_restart(loader, &err)); /* ends this epoch early */
  TDICT_TRY(tdict_loader_get_stats(loader, &stats, &err));
  printf("%d batch of %d samples delivered\n", (int)stats.num_batches,
         (int)stats.num_samples);
done:
  tdict_release(two);
  tdict_loader_destroy(loader);
  tdict_dataset_release(dataset);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}

int main(void) {
  return draw_indices() + run_on_batch(write_a_replay_buffer) +
         run_on_batch(load_from_a_callback);
}
