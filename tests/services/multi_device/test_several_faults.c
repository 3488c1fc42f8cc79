/* Injects driver faults and failing host allocations into transfers to and from several simulated devices. In run n,
 * call n fails, until a run makes fewer calls. After each fault, the status must be correct, the caller's variables
 * unchanged, and the next transfer correct. */
#include "several.h"

enum { MOST_FAULTS = 4000, NUM_JOBS = 4 };

static tdict_context *open_with(tdict_driver *driver, int32_t num_threads, size_t staging_bytes) {
  tdict_context_options o =
      td_with(tdict_context_options, device = tdict_sim(0), num_threads = num_threads, staging_bytes = staging_bytes);
  return td_made(context, tdict_context_create_over(&o, driver, &made, err));
}
static tdict_context *open_over(tdict_driver *driver) { return open_with(driver, 2, (size_t)2 << 20); }
static tdict_context *open_large(tdict_driver *driver) { return open_with(driver, 3, (size_t)16 << 20); }

/* Runs one job: 0 replicates and 1 splits `src`. 2 and 3 do the same asynchronously, and then gather the results. A
 * result on the host is pinned. */
static tdict_status run_job(const several *s, int job, const tdict_tree *src, tdict_tree **trees, tdict_tree **whole,
                            tdict_error *why) {
  const tdict_spread part = split_along(0, NULL), how = on_all(s, job % 2 ? &part : NULL);
  const bool has_host = s->devices[s->count - 1].type == TDICT_DEVICE_CPU;
  const tdict_transfer_options o = td_with(tdict_transfer_options, pinned_result = has_host);
  if (job < 2) return td_to_devices(s->c, src, &how, &o, trees, why);
  tdict_future *f;
  tdict_tree *all = NULL;
  tdict_status status = tdict_to_devices_async(s->c, src, &how, &o, &f, why);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(f, &all, why);
  tdict_future_release(f);
  if (status != TDICT_OK) return status;
  tdict_tree *got[MOST_DEVICES + 1];
  for (size_t i = 0; i < s->count; i++) got[i] = tdict_retain(tdict_get_entry_at(all, i).tree);
  tdict_release(all);
  status = gather(s, got, 0, s->devices[s->count - 1], whole, why);
  for (size_t i = 0; i < s->count; i++)
    if (status == TDICT_OK)
      trees[i] = got[i];
    else
      tdict_release(got[i]);
  return status;
}
/* Checks the results of a successful job, and releases them. */
static void check_job(const several *s, int job, const tdict_tree *src, tdict_tree **trees, tdict_tree **whole) {
  if (job % 2 == 0) check_replicas(s, src, trees);
  for (size_t i = 0; i < s->count; i++) tdict_release(trees[i]);
  for (size_t i = 0; i < s->count; i++) trees[i] = NULL;
  if (*whole && job == 3) check_tree(&s->at[s->count - 1], src, *whole);
  if (*whole && job == 2) assert_int_equal(tdict_batch_size(*whole)[0], (int64_t)s->count * tdict_batch_size(src)[0]);
  if (*whole) tdict_release(*whole);
  *whole = NULL;
}
static void check_failed(const several *s, tdict_tree *const *trees, const tdict_tree *whole) {
  for (size_t i = 0; i < s->count; i++) assert_null(trees[i]);
  assert_null(whole);
}

/* Makes driver calls of all kinds fail, one at a time, in each job. */
static void sweep(several s, int64_t rows, int step) {
  tdict_tree *src = rows_tree(rows, NULL), *trees[MOST_DEVICES + 1] = {NULL}, *whole = NULL;
  int64_t met = 0, failed = 0;
  for (int job = 0; job < NUM_JOBS; job++) {
    bool fired = true;
    for (int64_t n = 1; fired && n < MOST_FAULTS; n += step) {
      const tdict_fault fault = {.kinds = TDICT_FAULT_ALL, .n = n, .code = TDICT_CU_UNKNOWN};
      tdict_error why = {0};
      tdict_driver_fault_arm(s.fault, &fault);
      const tdict_status status = run_job(&s, job, src, trees, &whole, &why);
      fired = tdict_driver_fault_fired(s.fault);
      tdict_driver_fault_arm(s.fault, NULL);
      if (status != TDICT_OK) {
        if (!fired || (status != TDICT_EDEVICE && status != TDICT_ENODEVICE))
          fail_msg("job %d, call %lld: %s: %s", job, (long long)n, tdict_status_name(status), why.message);
        check_failed(&s, trees, whole);
      } else {
        check_job(&s, job, src, trees, &whole);
      }
      met += fired;
      failed += status != TDICT_OK;
      assert_non_null(tdict_tensor_data(td_leaf(src, "obs.state"))); /* no transfer reads the source any more */
    }
    assert_false(fired);
  }
  assert_true(failed > 4 && met > failed);
  tdict_release(src);
  several_close(&s);
}
static several open_failing(size_t count, int32_t peers) { return several_open_failing(count, peers, open_over); }
SIM_CASE(several_faults_of_small_trees) { sweep(open_failing(2, TDICT_SIM_PEERS_ALL), 16, 1); }
SIM_CASE(several_faults_on_two_devices) { sweep(open_failing(2, TDICT_SIM_PEERS_ALL), 400, 3); }
SIM_CASE(several_faults_on_four_devices) { sweep(open_failing(4, TDICT_SIM_PEERS_ALL), 400, 7); }
SIM_CASE(several_faults_without_peers) { sweep(open_failing(2, TDICT_SIM_PEERS_NONE), 100, 3); }
SIM_CASE(several_faults_with_pinned_host_memory) {
  several s = open_failing(1, TDICT_SIM_PEERS_NONE);
  several_add_host(&s);
  sweep(s, 400, 3);
}

/* Several threads copy a small tree while its results are made. The error is from the copy to the first device. */
SIM_CASE(several_faults_while_results_are_made) {
  enum { ROUNDS = 60 };
  scoped_several s = several_open_failing(2, TDICT_SIM_PEERS_ALL, open_large);
  tdict_tree *src = new_tree(), *trees[MOST_DEVICES] = {NULL};
  const tdict_spread how = on_all(&s, NULL);
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(900000), NULL));
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 3);
  for (int round = 0; round < ROUNDS; round++) {
    const tdict_fault fault = {.kinds = TDICT_FAULT_BIT(TDICT_FAULT_COPY_IN), .n = 1, .code = TDICT_CU_UNKNOWN};
    tdict_driver_fault_arm(s.fault, &fault);
    td_fails_at(TDICT_EDEVICE, "", "0.x", td_to_devices(s.c, src, &how, &o, trees, err));
    tdict_driver_fault_arm(s.fault, NULL);
    for (size_t i = 0; i < s.count; i++) assert_null(trees[i]);
  }
  td_ok(td_to_devices(s.c, src, &how, &o, trees, err));
  check_replicas(&s, src, trees);
  for (size_t i = 0; i < s.count; i++) tdict_release(trees[i]);
  tdict_release(src);
}

/* If a copy between devices fails, the error names the device that should have received the bytes, and the other copies
 * stop. */
SIM_CASE(several_errors_name_the_device) {
  scoped_several s = several_open_failing(2, TDICT_SIM_PEERS_ALL, open_over);
  tdict_tree *src = rows_tree(16, NULL), *trees[MOST_DEVICES] = {NULL}, *whole = NULL;
  tdict_fault fault = {.kinds = TDICT_FAULT_BIT(TDICT_FAULT_COPY_WITHIN), .n = 1, .code = TDICT_CU_UNKNOWN};
  tdict_driver_fault_arm(s.fault, &fault);
  td_fails_at(TDICT_EDEVICE, "", "1", run_job(&s, 0, src, trees, &whole, err));
  fault.kinds = TDICT_FAULT_BIT(TDICT_FAULT_COPY_IN);
  tdict_driver_fault_arm(s.fault, &fault);
  td_fails_at(TDICT_EDEVICE, "", "0.obs.pixels", run_job(&s, 0, src, trees, &whole, err));
  fault.n = 2; /* the copy to the second device */
  tdict_driver_fault_arm(s.fault, &fault);
  td_fails(TDICT_EDEVICE, "", run_job(&s, 1, src, trees, &whole, err));
  tdict_driver_fault_arm(s.fault, NULL);
  assert_memory_equal(td_last_error.path + 1, ".obs.pixels", sizeof ".obs.pixels");
  check_failed(&s, trees, whole);
  td_ok(run_job(&s, 0, src, trees, &whole, err));
  check_job(&s, 0, src, trees, &whole);
  tdict_release(src);
}

SIM_CASE(several_survive_enomem) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  for (int64_t rows = 16; rows <= 400; rows += 384)
    for (int job = 0; job < NUM_JOBS; job++) {
      tdict_tree *src = rows_tree(rows, NULL), *trees[MOST_DEVICES] = {NULL}, *whole = NULL;
      int num_failed = 0;
      TD_SWEEP(sweep) {
        const tdict_status status = td_sweep_call(sweep, run_job(&s, job, src, trees, &whole, err));
        num_failed += status != TDICT_OK;
        if (status == TDICT_OK) { /* the call can do without some allocations */
          check_job(&s, job, src, trees, &whole);
          continue;
        }
        assert_int_equal(sweep.error.status, TDICT_ENOMEM);
        check_failed(&s, trees, whole);
      }
      assert_true(num_failed > 20);
      tdict_release(src);
    }
}
