/* The part of client.c that uses timelines, datasets, samplers and the loader. */
static tdict_status ignore_text(void *user, const char *text, size_t bytes) {
  (void)text;
  *(size_t *)user += bytes;
  return TDICT_OK;
}

static void use_trace(tdict_context *context) {
  tdict_trace_options options = tdict_trace_options_default();
  size_t bytes = 0;
  OK(tdict_trace_start(context, &options, &last_error));
  tdict_trace_stop(context);
  OK(tdict_trace_write_to(context, ignore_text, &bytes, &last_error));
  OK(tdict_trace_write(context, "/dev/null", &last_error));
  TRUE(bytes > 0);
}

static tdict_status make_sample(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                tdict_error *err) {
  (void)info;
  (void)user;
  (void)index;
  return tdict_create(0, NULL, out, err);
}

static tdict_status collate_first(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                  size_t count, tdict_tree **out, tdict_error *err) {
  (void)user;
  (void)count;
  (void)info;
  (void)err;
  *out = tdict_retain(samples[0]);
  return TDICT_OK;
}

static tdict_status plan_one(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  (void)user;
  (void)err;
  tdict_epoch_add(epoch, info->num_indices - 1);
  tdict_epoch_end_batch(epoch);
  return TDICT_OK;
}

static void use_datasets(void) {
  static const tdict_token_format formats[] = {TDICT_TOKENS_AUTO, TDICT_TOKENS_LLMC, TDICT_TOKENS_U16,
                                               TDICT_TOKENS_U32};
  static const tdict_sampler_kind kinds[] = {TDICT_SAMPLER_SEQUENTIAL, TDICT_SAMPLER_SHUFFLED,
                                             TDICT_SAMPLER_WITH_REPLACEMENT, TDICT_SAMPLER_WEIGHTED};
  const double weights[2] = {1, 2};
  tdict_token_options tokens = tdict_token_options_default();
  tdict_sampler_options options = tdict_sampler_options_default();
  tdict_dataset *dataset = NULL;
  tdict_sampler *sampler = NULL;
  size_t i;
  for (i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    tokens.format = (int32_t)formats[i];
    TRUE(tdict_dataset_from_tokens(&tokens, &dataset, NULL) == TDICT_EINVAL);
  }
  options.weights = weights;
  options.num_weights = 2;
  for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    options.kind = (int32_t)kinds[i];
    OK(tdict_sampler_create(2, &options, &sampler, &last_error));
    TRUE(tdict_sampler_length(sampler) == 2 && tdict_sampler_get(sampler, 0, 1) >= 0);
    tdict_sampler_release(tdict_sampler_retain(sampler));
    tdict_sampler_release(sampler);
  }
  OK(tdict_dataset_from_callback(make_sample, NULL, 1, &dataset, &last_error));
  tdict_dataset_release(tdict_dataset_retain(dataset));
  tdict_dataset_release(dataset);
}

static void use_loader(tdict_context *context, const tdict_tree *tree) {
  tdict_make_sample make = make_sample;
  tdict_plan_epoch plan = plan_one;
  const tdict_epoch_info planned = tdict_epoch_info_default();
  const tdict_balanced_options balanced = tdict_balanced_options_default();
  const tdict_bucketed_options bucketed = tdict_bucketed_options_default();
  const tdict_mixed_options mixed = tdict_mixed_options_default();
  int64_t one = 1;
  tdict_collate collate = collate_first;
  tdict_loader_options options = tdict_loader_options_default();
  tdict_loader_state state = tdict_loader_state_default();
  tdict_loader_stats stats = tdict_loader_stats_default();
  tdict_dataset *dataset = NULL, *rows = NULL;
  tdict_dataset_table table = tdict_dataset_table_default();
  tdict_batch_info info = tdict_batch_info_default();
  const tdict_fetch_info fetched = tdict_fetch_info_default();
  tdict_random random = tdict_random_from(tdict_sample_seed(&fetched, 0));
  tdict_loader *loader = NULL;
  tdict_tree *batch = NULL;
  TRUE(tdict_dataset_from_tree(tree, &dataset, NULL) == TDICT_OK || tdict_batch_ndim(tree) == 0);
  tdict_dataset_release(dataset);
  TRUE(tdict_random_below(&random, 1) == 0);
  tdict_random_shuffle(&random, &one, 1);
  TRUE(planned.batch_size == 1 && balanced.num_samples == 0 && bucketed.counts_padding && mixed.num_parts == 0);
  OK(tdict_dataset_from_callback(make, NULL, 1, &rows, &last_error));
  table = *tdict_dataset_get_table(rows);
  table.release = NULL;
  OK(tdict_dataset_create(&table, &dataset, &last_error));
  options.collate = collate;
  options.plan_epoch = plan;
  OK(tdict_loader_create(context, dataset, &options, &loader, &last_error));
  tdict_dataset_release(dataset);
  TRUE(tdict_loader_length(loader) == 1);
  OK(tdict_loader_next(loader, tdict_no_stream(), &batch, &last_error));
  OK(tdict_loader_get_batch_info(loader, &info, &last_error));
  TRUE(info.num_samples == 1 && options.max_tokens == 0 && !options.pack && !options.pad_masks);
  OK(tdict_loader_get_state(loader, &state, &last_error));
  OK(tdict_loader_set_state(loader, &state, &last_error));
  OK(tdict_loader_restart(loader, &last_error));
  OK(tdict_loader_get_stats(loader, &stats, &last_error));
  TRUE(stats.num_batches == 1);
  tdict_release(batch);
  tdict_loader_destroy(loader);
  tdict_dataset_release(rows);
}
