/* The works of `tdict-bench device` that transfer trees from the host to the device. See device.h for ownership and
 * threads. */
#include "device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The program copies OWN_BYTES up to OWN_COPIES times, with a pause before each copy, during at most MOST_TRANSFERS
 * transfers. */
enum { OWN_COPIES = 400, OWN_BYTES = 51200, MOST_TRANSFERS = 50, PAUSE_NS = 100000 };

static bool prepare_source(device_job *job) {
  if (device_number(job, "lock", 0)) tdict_lock(job->host);
  return true;
}

static bool renew_source(device_job *job) { return job->host != NULL; }

static size_t expect_source(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  const tdict_tensor *leaf = device_leaf(job, job->host, i);
  (void)way;
  if (to) memcpy(to, tdict_tensor_const_data(leaf), tdict_tensor_bytes(leaf));
  return tdict_tensor_bytes(leaf);
}

static tdict_status move(device_job *job, const tdict_transfer_options *o, tdict_tree **out, tdict_error *err) {
  return tdict_to_device(job->place.context, job->host, job->place.device, o, out, err);
}

static tdict_status move_whole(device_job *job, tdict_tree **out, tdict_error *err) {
  return move(job, NULL, out, err);
}

/* The time ends when the call returns. */
static tdict_status move_returns(device_job *job, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const double begin = bench_now();
  tdict_status status = tdict_to_device_async(job->place.context, job->host, job->place.device, NULL, &future, err);
  job->seconds = bench_now() - begin;
  if (status == TDICT_OK) status = tdict_future_wait(future, out, err);
  tdict_future_release(future);
  return status;
}

static tdict_status move_narrow(device_job *job, tdict_tree **out, tdict_error *err) {
  tdict_transfer_options o = tdict_transfer_options_default();
  o.narrow = 1;
  return move(job, &o, out, err);
}

static const device_way transfer_ways[] = {{"to_device", move_whole, DEVICE_RESULT_NEW},
                                           {"to_device_async returns", move_returns, DEVICE_RESULT_NEW},
                                           {"to_device narrow", move_narrow, DEVICE_RESULT_NEW},
                                           {NULL, NULL, DEVICE_RESULT_NONE}};
const device_kind device_transfer = {"transfer", prepare_source, renew_source, expect_source, NULL, transfer_ways};

/* Convert: uint8 to bfloat16, x * SCALE + OFFSET. */

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
    volatile float product = (float)x * scale; /* rounded before the sum */
    table[x] = device_bf16(product + offset);
  }
  for (size_t n = 0; to && n < count; n++) memcpy(to + n * sizeof *table, &table[from[n]], sizeof *table);
  return count * sizeof *table;
}

static const device_way convert_ways[] = {{"to_device conversions", move_converted, DEVICE_RESULT_NEW},
                                          {NULL, NULL, DEVICE_RESULT_NONE}};
const device_kind device_convert = {"convert", prepare_source, renew_source, expect_normalised, NULL, convert_ways};

/* Own copies: the program's own copies during a transfer with the option max_queued_bytes. */

static bool prepare_own(device_job *job) {
  const bench_place *p = &job->place;
  const int64_t shape[1] = {OWN_BYTES};
  tdict_error err;
  tdict_tensor *bytes = NULL;
  if (place_is_gpu(p)) return true;
  tdict_status status = tdict_tensor_zeros(TDICT_U8, 1, shape, tdict_pinned_memory(p->context), &bytes, &err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &job->own_source, &err);
  if (status == TDICT_OK) status = tdict_set(job->own_source, "own", bytes, &err);
  if (status == TDICT_OK)
    status = tdict_to_device(p->context, job->own_source, p->device, NULL, &job->own_target, &err);
  tdict_tensor_release(bytes);
  if (status != TDICT_OK) bench_print_status("the program's own tensor", &err);
  return status == TDICT_OK;
}

/* Copies once and waits. On a GPU this is a driver copy from pinned memory on a stream of the program. On the simulated
 * device it is a call of the library. Returns the seconds, below 0 after a failure. */
static double copy_own(device_job *job) {
  const bench_place *p = &job->place;
  tdict_error err;
  const double begin = bench_now();
  if (place_is_gpu(p)) {
    raw_driver *raw = p->check.raw;
    if (!raw_copy_in_async(raw, p->line_device, p->check.bounce, OWN_BYTES) || !raw_finish_own(raw)) {
      bench_print_error("the program's own copy: %s", raw_why(raw));
      return -1;
    }
  } else if (bench_transfer_into(p->context, job->own_target, job->own_source, NULL, &err) != TDICT_OK) {
    bench_print_status("the program's own copy", &err);
    return -1;
  }
  return bench_now() - begin;
}

/* Copies until the transfer has ended, or until `times` is full. `future` may be NULL. */
static bool copy_meanwhile(device_job *job, const tdict_future *future, bench_samples *times) {
  const struct timespec pause = {0, PAUSE_NS};
  while (times->count < times->capacity && !(future && tdict_future_is_ready(future))) {
    nanosleep(&pause, NULL);
    const double seconds = copy_own(job);
    if (seconds < 0) return false;
    bench_samples_add(times, seconds);
  }
  return true;
}

static tdict_status copy_during_transfer(device_job *job, bench_samples *times, bench_samples *transfers,
                                         tdict_tree **out, tdict_error *err) {
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_future *future = NULL;
  o.max_queued_bytes = (size_t)job->limit;
  tdict_status status = tdict_to_device_async(job->place.context, job->host, job->place.device, &o, &future, err);
  if (status != TDICT_OK) return status;
  const bool good = copy_meanwhile(job, future, times);
  status = tdict_future_wait(future, out, err);
  if (status == TDICT_OK) status = tdict_future_get_stats(future, &stats, err);
  tdict_future_release(future);
  bench_samples_add(transfers, stats.total_seconds);
  return status == TDICT_OK && !good ? TDICT_EDEVICE : status;
}

static int compare_times(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sets job->more to the percentiles of the times and the median time of the transfers. */
static void describe(device_job *job, bench_samples *times, const bench_samples *transfers) {
  qsort(times->seconds, (size_t)times->count, sizeof(double), compare_times);
  const int n = times->count;
  if (n == 0) return;
  job->seconds = times->seconds[(99 * n + 99) / 100 - 1];
  job->more =
      json_pack("{s:f, s:f, s:f, s:i, s:f}", "p50", times->seconds[(n + 1) / 2 - 1], "p99", job->seconds, "longest",
                times->seconds[n - 1], "copies", n, "transfer_seconds", bench_samples_median(transfers));
}

static tdict_status copies_meanwhile(device_job *job, tdict_tree **out, tdict_error *err) {
  bench_samples times, transfers;
  tdict_status status = TDICT_OK;
  if (!bench_samples_reserve(&times, OWN_COPIES) || !bench_samples_reserve(&transfers, MOST_TRANSFERS))
    return TDICT_ENOMEM;
  while (status == TDICT_OK && times.count < OWN_COPIES && transfers.count < MOST_TRANSFERS) {
    tdict_release(*out);
    *out = NULL;
    status = copy_during_transfer(job, &times, &transfers, out, err);
  }
  describe(job, &times, &transfers);
  bench_samples_free(&times);
  bench_samples_free(&transfers);
  return status;
}

static tdict_status copies_alone(device_job *job, tdict_tree **out, tdict_error *err) {
  bench_samples times, transfers = {0};
  (void)out, (void)err;
  if (!bench_samples_reserve(&times, OWN_COPIES)) return TDICT_ENOMEM;
  const bool good = copy_meanwhile(job, NULL, &times);
  describe(job, &times, &transfers);
  bench_samples_free(&times);
  return good ? TDICT_OK : TDICT_EDEVICE;
}

static const device_way own_ways[] = {{"own copies", copies_meanwhile, DEVICE_RESULT_NEW},
                                      {"own copies alone", copies_alone, DEVICE_RESULT_NONE},
                                      {NULL, NULL, DEVICE_RESULT_NONE}};
const device_kind device_own_copies = {"own_copies", prepare_own, renew_source, expect_source, NULL, own_ways};
