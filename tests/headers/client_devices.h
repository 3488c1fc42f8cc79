/* The part of client.c that uses tdict/devices.h. */
static void use_devices(tdict_context *context) {
  static const int64_t rows[] = {4}, counts[] = {3, 1};
  const tdict_device devices[2] = {{TDICT_DEVICE_SIM, 0}, {TDICT_DEVICE_CPU, 0}};
  static const tdict_sim_peers peers[] = {TDICT_SIM_PEERS_PAIRS, TDICT_SIM_PEERS_ALL, TDICT_SIM_PEERS_NONE};
  const tdict_spread_kind kind = TDICT_REPLICATE;
  tdict_spread spread = tdict_spread_default();
  tdict_gather_devices_options options = tdict_gather_devices_options_default();
  tdict_tree *td = NULL, *trees[2], *joined = NULL, *whole = NULL, *result = NULL;
  tdict_future *future = NULL;
  TRUE(spread.struct_size == sizeof spread && spread.num_devices == 0);
  spread = tdict_spread_replicate(devices, 2);
  OK(tdict_create(1, rows, &td, &last_error));
  TRUE(peers[0] != peers[1] && peers[1] != peers[2] && (int)kind == spread.kind && TDICT_MAX_DEVICES >= 2);
  OK(tdict_to_devices_async(context, td, &spread, NULL, &future, &last_error));
  OK(tdict_future_take(future, &whole, &last_error));
  OK(tdict_get_tree(whole, "0", &trees[0], &last_error));
  OK(tdict_get_tree(whole, "1", &trees[1], &last_error));
  OK(tdict_gather_devices_async(context, (const tdict_tree *const *)trees, 2, &options, &future, &last_error));
  OK(tdict_future_take(future, &joined, &last_error));
  TRUE(tdict_batch_size(joined)[0] == 8);
  spread = tdict_spread_split(devices, 2, 0);
  TRUE(spread.kind == TDICT_SPLIT);
  spread.counts = counts;
  OK(tdict_to_devices_async(context, td, &spread, NULL, &future, &last_error));
  OK(tdict_future_wait(future, &result, &last_error));
  TRUE(tdict_num_keys(result) == 2);
  tdict_future_release(future);
  OK(tdict_gather_devices_async(context, (const tdict_tree *const *)trees, 2, NULL, &future, &last_error));
  OK(tdict_future_wait(future, NULL, &last_error));
  tdict_future_release(future);
  tdict_release(result);
  tdict_release(joined);
  tdict_release(whole);
  tdict_release(td);
}
