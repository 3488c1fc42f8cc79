/* tdict-bench to-device: a flat tree of ordinary tensors goes to a device in every way that the library has, beside
 * plain driver calls in the same run. Rows take turns, so that drift hits all of them alike. */
#include "to_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const to_device_way to_device_ways[TO_DEVICE_WAYS] = {
    {"blocking", TDICT_MODE_BLOCKING, -1, false},
    {"non_blocking", TDICT_MODE_NON_BLOCKING, -1, false},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 0, true},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 1, true},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 2, true},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 4, true},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, 8, true},
    {"non_blocking_pin", TDICT_MODE_NON_BLOCKING_PIN, -1, true},
};

enum { FULL_LEAVES = 1000, FULL_LEAF_BYTES = 4000000, SMALL_LEAF_BYTES = 100000, LINE_SAMPLES = 11 };
static const size_t line_bytes_wanted = (size_t)1 << 30; /* the line rate is that of one large copy */

enum { KEY_FULL = 256, KEY_CORRUPT, KEY_TRACE, KEY_STAGING, KEY_WARMUP, KEY_SEED };
static const struct argp_option option_table[] = {
    {"leaves", 'n', "N", 0, "leaves of the tree (default 1000)", 0},
    {"leaf-bytes", 'b', "BYTES", 0, "bytes of a leaf, a multiple of 4 (default 4000000 on a GPU, 100000 elsewhere)", 0},
    {"full", KEY_FULL, NULL, 0, "4000000 bytes a leaf on every device", 0},
    {"warmup", KEY_WARMUP, "N", 0, "transfers of each way before them (default 2)", 0},
    {"staging-bytes", KEY_STAGING, "BYTES", 0, "size of the staging ring (default: the library's)", 0},
    {"seed", KEY_SEED, "N", 0, "seed of the leaves' contents (default 1)", 0},
    {"trace", KEY_TRACE, "FILE", 0,
     "afterwards move the tree once more by the library's choice and write the timeline there, for "
     "ui.perfetto.dev",
     0},
    {"corrupt", KEY_CORRUPT, NULL, 0,
     "self-test of the verification: change one byte of the source after each verified transfer; the run must then "
     "fail with exit status 3",
     0},
    {0}};
static const char doc[] =
    "Moves a tree of ordinary (pageable) tensors to a device in every mode, verifies every byte, and prints the times "
    "beside those of plain driver calls."
    "\vExample:\n  tdict-bench to-device --device auto --json run.json\n\n"
    "Exit status: 0 done, 1 something failed, 2 wrong use, 3 verification found a difference.";

static error_t parse_option(int key, char *arg, struct argp_state *state) {
  to_device_options *o = state->input;
  switch (key) {
  case 'n':
    options_number(state, "--leaves", arg, 1, 10000000, &o->leaves);
    return 0;
  case 'b':
    options_number(state, "--leaf-bytes", arg, 1, INT64_C(1) << 40, &o->leaf_bytes);
    if (o->leaf_bytes % 4) argp_error(state, "leaves are of 4-byte floats, and %s is no multiple of 4", arg);
    return 0;
  case KEY_WARMUP:
    options_number(state, "--warmup", arg, 0, 10000, &o->warmups);
    return 0;
  case KEY_STAGING:
    options_number(state, "--staging-bytes", arg, 1, INT64_C(1) << 40, &o->staging_bytes);
    return 0;
  case KEY_SEED:
    options_number(state, "--seed", arg, 1, INT64_MAX, &o->seed);
    return 0;
  case KEY_TRACE:
    o->trace = arg;
    return 0;
  case KEY_FULL:
    o->full = true;
    return 0;
  case KEY_CORRUPT:
    o->corrupt = true;
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static bool open_context(to_device_job *job) {
  tdict_error err;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  int64_t leaf = job->options.leaf_bytes > 0 ? job->options.leaf_bytes : FULL_LEAF_BYTES;
  int64_t bytes;
  /* room for the result, what the pool keeps, and padding; only what is touched is used */
  if (__builtin_mul_overflow(leaf + 255, 4 * job->options.leaves, &bytes) || bytes < 0) {
    bench_complain("%" PRId64 " leaves of %" PRId64 " bytes are too many bytes", job->options.leaves, leaf);
    return false;
  }
  if ((size_t)bytes > sim.memory_bytes) sim.memory_bytes = (size_t)bytes;
  options_place(job->options.common.device, &sim, &o);
  if (job->options.staging_bytes > 0) o.staging_bytes = (size_t)job->options.staging_bytes;
  if (tdict_context_create(&o, &job->context, &err) != TDICT_OK) {
    bench_complain_error("no context", &err);
    return false;
  }
  job->device = tdict_context_device(job->context, &job->why);
  if (o.device.type == TDICT_DEVICE_CPU) job->why.message[0] = 0; /* no GPU was asked for */
  return true;
}

/* The driver's side of the job: a destination, and one page-locked buffer that measures the line and reads back. */
static bool open_raw(to_device_job *job) {
  char why[256];
  check_place *p = &job->place;
  p->raw = raw_open(job->device.index, why, sizeof why);
  if (!p->raw) {
    bench_complain("the driver: %s", why);
    return false;
  }
  job->line_bytes = job->total_bytes < line_bytes_wanted ? job->total_bytes : line_bytes_wanted;
  p->bounce_bytes = job->line_bytes;
  if (raw_alloc(p->raw, job->total_bytes, &job->raw_destination) &&
      raw_host_alloc(p->raw, p->bounce_bytes, &p->bounce)) {
    memset(p->bounce, 1, p->bounce_bytes);
    return true;
  }
  bench_complain("the driver: %s", raw_why(p->raw));
  return false;
}

static bool open_place(to_device_job *job) {
  check_place *p = &job->place;
  p->context = job->context;
  p->device = job->device;
  if (to_device_is_gpu(job)) return open_raw(job);
  if (job->device.type == TDICT_DEVICE_CPU) return true;
  tdict_error err;
  if (tdict_stream_create(job->context, job->device, &p->stream, &err) != TDICT_OK) {
    bench_complain_error("no stream", &err);
    return false;
  }
  p->bounce_bytes = (size_t)4 << 20;
  p->bounce = malloc(p->bounce_bytes);
  if (!p->bounce) bench_complain("no memory to read back into");
  return p->bounce != NULL;
}

static bool open_job(to_device_job *job) {
  to_device_options *o = &job->options;
  if (!open_context(job)) return false;
  if (o->leaf_bytes < 0) o->leaf_bytes = o->full || to_device_is_gpu(job) ? FULL_LEAF_BYTES : SMALL_LEAF_BYTES;
  job->total_bytes = (size_t)o->leaves * (size_t)o->leaf_bytes;
  const check_group group = {o->leaves, (size_t)o->leaf_bytes};
  bool good = bench_samples_reserve(&job->loop, (int)o->common.repeats);
  int64_t line_samples = o->common.repeats > LINE_SAMPLES ? o->common.repeats : LINE_SAMPLES;
  if (!bench_samples_reserve(&job->line, (int)line_samples)) good = false;
  for (int i = 0; i < TO_DEVICE_WAYS; i++)
    if (!bench_samples_reserve(&job->rows[i].samples, (int)o->common.repeats) ||
        !bench_samples_reserve(&job->rows[i].cpu, (int)o->common.repeats))
      good = false;
  if (!good) bench_complain("no memory for the samples");
  return good && open_place(job) && check_source_make(&job->source, &group, 1, NULL);
}

static void close_job(to_device_job *job) {
  check_place *p = &job->place;
  check_source_free(&job->source);
  if (p->stream.handle) tdict_stream_destroy(job->context, p->stream);
  if (p->raw) {
    if (p->bounce) (void)raw_host_free(p->raw, p->bounce);
    if (job->raw_destination) (void)raw_free(p->raw, job->raw_destination);
  } else {
    free(p->bounce);
  }
  tdict_context_destroy(job->context);
  raw_close(p->raw);
  bench_samples_free(&job->loop);
  bench_samples_free(&job->line);
  for (int i = 0; i < TO_DEVICE_WAYS; i++)
    bench_samples_free(&job->rows[i].samples), bench_samples_free(&job->rows[i].cpu);
}

static bool move(to_device_job *job, const to_device_way *way, tdict_transfer_stats *stats, tdict_tree **out) {
  tdict_error err;
  tdict_transfer_options o = tdict_transfer_options_default();
  o.mode = way->mode;
  o.num_threads = way->threads;
  o.stats = stats;
  if (tdict_to_device(job->context, job->source.tree, job->device, &o, out, &err) == TDICT_OK) return true;
  char threads[16];
  bench_progress_end();
  fprintf(stderr, "tdict-bench: %s with threads %s:\n", way->name,
          to_device_threads_text(way, threads, sizeof threads));
  bench_complain_error("the transfer failed", &err);
  return false;
}

/* One transfer of a way, checked. Sources are new each time: bytes that an earlier way left in memory that is used
 * again are then wrong bytes. */
static int verify_way(to_device_job *job, int w) {
  const to_device_way *way = &to_device_ways[w];
  check_source *s = &job->source;
  check_poison poison;
  tdict_tree *result = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  check_source_seed(s, (uint64_t)job->options.seed * TO_DEVICE_WAYS + (uint64_t)w);
  if (!check_poison_result(&job->place, s, &poison)) return BENCH_FAILED;
  bench_progress("verifying way %d of %d", w + 1, (int)TO_DEVICE_WAYS);
  if (!move(job, way, &stats, &result)) return BENCH_FAILED;
  if (job->options.corrupt) s->data[s->leaves / 2][s->bytes[s->leaves / 2] * 2 / 3] ^= 0x10;
  int answer = check_result(&job->place, s, result, &poison, &job->poisoned_bytes);
  if (answer == BENCH_OK && job->device.type == TDICT_DEVICE_CPU && result != s->tree) {
    bench_complain("a tree on the cpu did not stay where it is");
    answer = BENCH_FAILED;
  }
  if (answer == BENCH_OK) job->verified_ways++;
  tdict_release(result);
  if (answer == BENCH_DIFFERS) {
    char threads[16];
    bench_complain("verification failed for %s, threads %s", way->name,
                   to_device_threads_text(way, threads, sizeof threads));
  }
  return answer;
}

static int verify(to_device_job *job) {
  int answer = BENCH_OK;
  for (int w = 0; w < TO_DEVICE_WAYS && answer == BENCH_OK; w++) answer = verify_way(job, w);
  bench_progress_end();
  if (answer == BENCH_OK && job->options.corrupt) {
    /* the one case in which finding nothing is the failure: on the cpu the result is the source itself */
    bench_complain("--corrupt: the changed byte was not found%s",
                   job->device.type == TDICT_DEVICE_CPU ? "; on the cpu nothing is copied" : "");
    return BENCH_FAILED;
  }
  return answer;
}

/* The result is made and released inside the clock. */
static bool measure_way(to_device_job *job, int w, bool keep) {
  to_device_row *row = &job->rows[w];
  tdict_tree *result = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  double cpu = bench_cpu_now(), begin = bench_now();
  if (!move(job, &to_device_ways[w], &stats, &result)) return false;
  tdict_release(result);
  double seconds = bench_now() - begin;
  if (keep) bench_samples_add(&row->cpu, bench_cpu_now() - cpu);
  if (stats.peak_staging_bytes > row->peak_staging_bytes) row->peak_staging_bytes = stats.peak_staging_bytes;
  if (stats.num_threads > row->most_threads) row->most_threads = stats.num_threads;
  row->stats = stats;
  if (keep) bench_samples_add(&row->samples, seconds);
  return true;
}

/* What a program without a library does: the driver's copy, leaf by leaf, from ordinary memory. */
static bool measure_loop(to_device_job *job, bool keep) {
  const check_source *s = &job->source;
  raw_driver *raw = job->place.raw;
  raw_address to = job->raw_destination;
  bool good = true;
  double begin = bench_now();
  for (int64_t i = 0; i < s->leaves && good; to += s->bytes[i], i++)
    good = raw_copy_in(raw, to, s->data[i], s->bytes[i]);
  if (good) good = raw_finish(raw);
  double seconds = bench_now() - begin;
  if (!good) bench_complain("the raw loop: %s", raw_why(raw));
  if (good && keep) bench_samples_add(&job->loop, seconds);
  return good;
}

static bool measure_line(to_device_job *job, bool keep) {
  raw_driver *raw = job->place.raw;
  double begin = bench_now();
  bool good = raw_copy_in_async(raw, job->raw_destination, job->place.bounce, job->line_bytes) && raw_finish(raw);
  double seconds = bench_now() - begin;
  if (!good) bench_complain("the raw line: %s", raw_why(raw));
  if (good && keep) bench_samples_add(&job->line, seconds);
  return good;
}

/* The line has more samples than the rows; they are spread evenly over the repetitions. */
static bool measure_lines(to_device_job *job, int64_t repetition, bool keep) {
  if (!keep) return measure_line(job, false);
  int64_t wanted =
      (job->line.capacity * (repetition + 1) + job->options.common.repeats - 1) / job->options.common.repeats;
  while (job->line.count < wanted)
    if (!measure_line(job, true)) return false;
  return true;
}

static bool measure(to_device_job *job) {
  const to_device_options *o = &job->options;
  for (int64_t i = -o->warmups; i < o->common.repeats; i++) {
    bool keep = i >= 0;
    if (to_device_is_gpu(job) && (!measure_lines(job, i, keep) || !measure_loop(job, keep))) return false;
    for (int w = 0; w < TO_DEVICE_WAYS; w++) {
      bench_progress("%s %" PRId64 " of %" PRId64 ", way %d of %d", keep ? "repetition" : "warm-up",
                     keep ? i + 1 : i + o->warmups + 1, keep ? o->common.repeats : o->warmups, w + 1,
                     (int)TO_DEVICE_WAYS);
      if (!measure_way(job, w, keep)) return false;
    }
  }
  bench_progress_end();
  return true;
}

static bool write_trace(to_device_job *job) {
  static const to_device_way way = {"auto", TDICT_MODE_AUTO, -1, true};
  tdict_error err;
  tdict_tree *result = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_status status = tdict_trace_start(job->context, NULL, &err);
  if (status == TDICT_OK && !move(job, &way, &stats, &result)) return false;
  tdict_release(result);
  if (status == TDICT_OK) status = tdict_trace_write(job->context, job->options.trace, &err);
  tdict_trace_stop(job->context);
  if (status != TDICT_OK) bench_complain_error("the timeline", &err);
  if (status == TDICT_OK)
    printf("timeline of one more transfer (%.3f ms): %s\n", stats.total_seconds * 1e3, job->options.trace);
  return status == TDICT_OK;
}

static void print_verified(const to_device_job *job) {
  char text[32];
  double total = (double)job->total_bytes;
  printf("\nverified: %s in %d ways", bench_format_bytes(total, text, sizeof text), job->verified_ways);
  if (job->device.type == TDICT_DEVICE_CPU)
    printf(" (the same tree came back each time)\n");
  else
    printf(", read back without the library; %.0f %% of the results' memory was filled with 0xA5 before\n",
           100 * (double)job->poisoned_bytes / (total * job->verified_ways));
}

static int run(int argc, char **argv) {
  static const struct argp argp = {option_table, parse_option, NULL, doc, NULL, NULL, NULL};
  to_device_job job;
  memset(&job, 0, sizeof job);
  job.options = (to_device_options){{"auto", false, false, NULL, 7}, FULL_LEAVES, -1, -1, 2, 1, false, false, NULL};
  if (options_parse(argc, argv, OPTIONS_RECORD, &job.options.common, &argp, &job.options) != BENCH_OK)
    return BENCH_USAGE;
  int answer = BENCH_FAILED;
  if (bench_sink_open(&job.sink, job.options.common.json) &&
      (!job.options.trace || bench_can_write(job.options.trace)) && open_job(&job)) {
    to_device_show_head(&job);
    fflush(stdout);
    answer = verify(&job);
    if (answer == BENCH_OK && !measure(&job)) answer = BENCH_FAILED;
    if (answer == BENCH_OK) {
      to_device_show_table(&job);
      print_verified(&job);
      if (job.options.trace && !write_trace(&job)) answer = BENCH_FAILED;
      if (!to_device_write_record(&job, argc, argv)) answer = BENCH_FAILED;
    }
  }
  close_job(&job);
  return answer;
}

const bench_scenario bench_to_device = {"to-device", "a tree of 1000 tensors goes to a device in every mode", run, NULL,
                                        0};
