/* The workloads of `tdict-bench device` that transfer trees from the host to the device. See device.h for ownership and
 * threads. */
#include "device.h"

#include <string.h>

/* The workload own_copies: during consecutive transfers, the program makes small copies of its own, with a pause before
 * each, until it has made OWN_COPIES copies or MOST_TRANSFERS transfers. */
enum { OWN_COPIES = 400, MOST_TRANSFERS = 50, PAUSE_NS = 100000 };

static bool prepare_source(device_job *job) {
  if (device_number(job, "lock", 0)) tdict_lock(job->host);
  return true;
}

static bool renew_source(device_job *job) { return job->host != NULL; }

static tdict_status move(device_job *job, const tdict_transfer_options *o, tdict_tree **out, tdict_error *err) {
  return tdict_to_device(job->place.context, job->host, job->place.device, o, out, err);
}

static tdict_status move_whole(device_job *job, tdict_tree **out, tdict_error *err) {
  return move(job, NULL, out, err);
}

/* Measures only how long the call takes to return, and then waits for the transfer. */
static tdict_status move_returns(device_job *job, tdict_tree **out, tdict_error *err) {
  scoped_future future = NULL;
  const double begin = bench_now();
  tdict_status status = tdict_to_device_async(job->place.context, job->host, job->place.device, NULL, &future, err);
  job->seconds = bench_now() - begin;
  if (status == TDICT_OK) status = tdict_future_wait(future, out, err);
  return status;
}

static tdict_status move_narrow(device_job *job, tdict_tree **out, tdict_error *err) {
  tdict_transfer_options o = td_with(tdict_transfer_options, narrow = 1);
  return move(job, &o, out, err);
}

static const device_way transfer_ways[] = {{"to_device", move_whole, DEVICE_RESULT_NEW, false},
                                           {"to_device_async returns", move_returns, DEVICE_RESULT_NEW, false},
                                           {"to_device narrow", move_narrow, DEVICE_RESULT_NEW, false},
                                           {0}};
const device_kind device_transfer = {"transfer", prepare_source, renew_source, device_expect_same, NULL, transfer_ways};

/* The workload convert: uint8 to bfloat16, as x * scale + offset. */

static const float scale = 0.0078125f * 1.1f, offset = -0.9f;

static tdict_status move_converted(device_job *job, tdict_tree **out, tdict_error *err) {
  tdict_conversion c = tdict_conversion_default();
  tdict_transfer_options o = tdict_transfer_options_default();
  c.pattern = "**";
  c.dtype = TDICT_BF16;
  c.scale = scale;
  c.offset = offset;
  o.conversions = &c;
  o.num_conversions = 1;
  return move(job, &o, out, err);
}

static size_t expect_normalised(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const tdict_tensor *leaf = device_leaf(job, job->host, i);
  const unsigned char *from = tdict_tensor_const_data(leaf);
  const size_t count = tdict_tensor_bytes(leaf);
  uint16_t table[256];
  (void)way;
  for (int x = 0; x < 256; x++) {
    volatile float product = (float)x * scale; /* rounded to float before the addition */
    table[x] = device_bf16(product + offset);
  }
  for (size_t n = 0; to && n < count; n++) memcpy(to + n * sizeof *table, &table[from[n]], sizeof *table);
  return count * sizeof *table;
}

static const device_way convert_ways[] = {{"to_device conversions", move_converted, DEVICE_RESULT_NEW, false}, {0}};
const device_kind device_convert = {"convert", prepare_source, renew_source, expect_normalised, NULL, convert_ways};

/* The workload own_copies, whose transfers use the option max_queued_bytes. */

static bool prepare_own(device_job *job) { return own_copy_open(&job->own, &job->place); }

static tdict_status copy_during_transfer(device_job *job, bench_samples *times, bench_samples *transfers,
                                         tdict_tree **out, tdict_error *err) {
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_future *future = NULL;
  o.max_queued_bytes = (size_t)job->limit;
  tdict_status status = tdict_to_device_async(job->place.context, job->host, job->place.device, &o, &future, err);
  if (status != TDICT_OK) return status;
  const bool good = own_copy_meanwhile(&job->own, future, PAUSE_NS, times);
  status = tdict_future_wait(future, out, err);
  if (status == TDICT_OK) status = tdict_future_get_stats(future, &stats, err);
  tdict_future_release(future);
  bench_samples_add(transfers, stats.total_seconds);
  return status == TDICT_OK && !good ? TDICT_EDEVICE : status;
}

/* Sets job->more to percentiles of copy times and the median transfer time, and job->seconds to the copies' p99. */
static void describe(device_job *job, const bench_samples *times, const bench_samples *transfers) {
  if (times->count == 0) return;
  job->seconds = bench_samples_percentile(times, 99);
  job->more = json_pack("{s:f, s:f, s:f, s:i, s:f}", "p50", bench_samples_percentile(times, 50), "p99", job->seconds,
                        "longest", bench_samples_percentile(times, 100), "copies", times->count, "transfer_seconds",
                        bench_samples_median(transfers));
}

static tdict_status copies_meanwhile(device_job *job, tdict_tree **out, tdict_error *err) {
  bench_samples times, transfers;
  tdict_status status = TDICT_OK;
  if (!bench_samples_reserve(&times, 1, OWN_COPIES) || !bench_samples_reserve(&transfers, 1, MOST_TRANSFERS))
    return TDICT_ENOMEM;
  while (status == TDICT_OK && times.count < OWN_COPIES && transfers.count < MOST_TRANSFERS) {
    tdict_release(*out);
    *out = NULL;
    status = copy_during_transfer(job, &times, &transfers, out, err);
  }
  describe(job, &times, &transfers);
  bench_samples_free(&times, 1);
  bench_samples_free(&transfers, 1);
  return status;
}

static tdict_status copies_alone(device_job *job, tdict_tree **out, tdict_error *err) {
  bench_samples times, transfers = {0};
  (void)out, (void)err;
  if (!bench_samples_reserve(&times, 1, OWN_COPIES)) return TDICT_ENOMEM;
  const bool good = own_copy_meanwhile(&job->own, NULL, PAUSE_NS, &times);
  describe(job, &times, &transfers);
  bench_samples_free(&times, 1);
  return good ? TDICT_OK : TDICT_EDEVICE;
}

static const device_way own_ways[] = {{"own copies", copies_meanwhile, DEVICE_RESULT_NEW, false},
                                      {"own copies alone", copies_alone, DEVICE_RESULT_NONE, false},
                                      {0}};
const device_kind device_own_copies = {"own_copies", prepare_own, renew_source, device_expect_same, NULL, own_ways};
