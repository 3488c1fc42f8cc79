/* tdict-bench stress: moves random trees in random ways, and verifies each result bit by bit without the library. See
 * stress.h. The seed determines the trees and the options of their transfers, but not the timing. The job owns the
 * place and the counters. Thread rule: see stress.h. */
#include "stress.h"

#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TREES_A_CONTEXT = 100 };
/* The counters: the identifier of each, and its label in the printed totals. */
#define STRESS_KINDS(KIND)                          \
  KIND(K_TREES, "trees")                            \
  KIND(K_CONTEXTS, "contexts")                      \
  KIND(K_LEAVES, "leaves")                          \
  KIND(K_OBJECTS, "objects")                        \
  KIND(K_EMPTY_LEAVES, "empty leaves")              \
  KIND(K_PINNED_LEAVES, "pinned leaves")            \
  KIND(K_TRANSPOSED, "transposed leaves")           \
  KIND(K_STEPPED, "stepped leaves")                 \
  KIND(K_NEGATIVE, "negative strides")              \
  KIND(K_EXPANDED, "expanded leaves")               \
  KIND(K_SHARED, "shared leaves")                   \
  KIND(K_TO_DEVICE, "to device")                    \
  KIND(K_TO_HOST, "to host")                        \
  KIND(K_INTO_DEVICE, "transfer_into device")       \
  KIND(K_INTO_HOST, "transfer_into host")           \
  KIND(K_PIN_MEMORY, "pin_memory")                  \
  KIND(K_AUTO, "mode auto")                         \
  KIND(K_BLOCKING, "mode blocking")                 \
  KIND(K_NON_BLOCKING, "mode non_blocking")         \
  KIND(K_NON_BLOCKING_PIN, "mode non_blocking_pin") \
  KIND(K_CALLER_ALONE, "caller alone")              \
  KIND(K_AUTO_THREADS, "threads auto")              \
  KIND(K_THREADS, "threads 1 to all")               \
  KIND(K_NARROW, "narrow")                          \
  KIND(K_WAITING, "waiting calls")                  \
  KIND(K_FUTURES, "futures")                        \
  KIND(K_ON_STREAM, "futures by stream")            \
  KIND(K_AFTER_STREAM, "after a stream")            \
  KIND(K_PINNED_RESULTS, "pinned results")          \
  KIND(K_RELEASED_EARLY, "sources released early")  \
  KIND(K_OVER_16_MIB, "trees over 16 MiB")          \
  KIND(K_BYTES, "bytes moved")
#define KIND_ID(id, text) id,
#define KIND_TEXT(id, text) text,
enum { STRESS_KINDS(KIND_ID) KINDS };
static const char *const kind_names[KINDS] = {STRESS_KINDS(KIND_TEXT)};

typedef struct stress_options {
  const char *device, *record;
  int64_t seconds, seed, max_bytes, first, count;
  bool corrupt;
} stress_options;
typedef struct stress_job {
  stress_options o;
  bench_place place;
  bool open;
  uint64_t state; /* state of the random generator */
  int64_t counts[KINDS];
  char what[160]; /* describes the last call, for error messages */
} stress_job;

/* How a tree is transferred. `future`: with an asynchronous call. `on_stream`: a stream waits for the future. `early`:
 * the source is released right after the call. */
typedef struct way {
  tdict_transfer_options o;
  bool future, on_stream, early;
} way;

static void choose_way(stress_job *job, way *w) {
  uint64_t *s = &job->state;
  int pool = tdict_context_num_threads(job->place.context);
  w->o = tdict_transfer_options_default();
  w->o.mode = (int32_t)stress_below(s, 4);
  w->o.num_threads = (int32_t)stress_below(s, 3) - 1;
  if (w->o.num_threads > 0) w->o.num_threads = 1 + (int32_t)stress_below(s, pool);
  w->o.narrow = stress_below(s, 3) == 0;
  w->future = stress_below(s, 2);
  w->on_stream = w->future && stress_below(s, 3) == 0;
  w->early = w->future && stress_below(s, 4) == 0;
  if (stress_below(s, 5) == 0) {
    static int64_t pause_ns = 300000;
    w->o.after = place_stream(&job->place);
    (void)place_spin(&job->place, &pause_ns); /* the transfer waits for this kernel */
  }
  job->counts[K_AUTO + w->o.mode]++;
  job->counts[w->o.num_threads < 0 ? K_AUTO_THREADS : w->o.num_threads == 0 ? K_CALLER_ALONE : K_THREADS]++;
  job->counts[K_NARROW] += w->o.narrow;
  job->counts[w->future ? w->on_stream ? K_ON_STREAM : K_FUTURES : K_WAITING]++;
  job->counts[K_AFTER_STREAM] += w->o.after.device.type != TDICT_DEVICE_AUTO;
}

static void describe_call(stress_job *job, const char *call, const way *w) {
  static const char *const modes[] = {"auto", "blocking", "non_blocking", "non_blocking_pin"};
  snprintf(job->what, sizeof job->what, "%s, mode %s, num_threads %d%s%s%s%s", call, modes[w->o.mode],
           (int)w->o.num_threads, w->o.narrow ? ", narrow" : "",
           w->o.after.device.type != TDICT_DEVICE_AUTO ? ", after a stream" : "",
           w->on_stream ? ", waited for by a stream"
           : w->future  ? ", a future"
                        : "",
           w->o.pinned_result ? ", pinned result" : "");
}

static bool has_worked(const stress_job *job, tdict_status status, const tdict_error *err) {
  return bench_has_worked(job->what, status, err);
}

/* Waits for a future on the host, or lets a stream wait for it. In the second case, the host then waits for the stream
 * if the device is a GPU. Accessors of a result in host memory wait automatically. */
static bool end_future(stress_job *job, const way *w, bool to_host, tdict_future *f, tdict_tree **out) {
  tdict_error err;
  tdict_stream stream = place_stream(&job->place);
  tdict_status status =
      w->on_stream ? tdict_future_wait_on_stream(f, stream, out, &err) : tdict_future_wait(f, out, &err);
  if (status == TDICT_OK && w->on_stream && !to_host) status = tdict_record_stream(*out, stream, &err);
  tdict_future_release(f);
  if (status == TDICT_EWRONGDEVICE) status = TDICT_OK; /* the tree has only empty leaves and hooked objects */
  if (!has_worked(job, status, &err)) return false;
  if (w->on_stream && place_is_gpu(&job->place) && !raw_finish_own(job->place.check.raw)) return false;
  return true; /* on the simulated device, functions on the same stream read the result */
}

static bool move_tree_randomly(stress_job *job, stress_tree *t, const tdict_tree *src, tdict_device to,
                               tdict_tree **out) {
  way w = {.future = false};
  tdict_error err;
  choose_way(job, &w);
  bool to_host = to.type == TDICT_DEVICE_CPU;
  w.o.pinned_result = to_host && stress_below(&job->state, 2);
  job->counts[to_host ? K_TO_HOST : K_TO_DEVICE]++;
  job->counts[K_PINNED_RESULTS] += w.o.pinned_result;
  job->counts[K_BYTES] += (int64_t)t->total_bytes;
  describe_call(job, to_host ? "to host" : "to device", &w);
  if (!w.future) return has_worked(job, tdict_to_device(job->place.context, src, to, &w.o, out, &err), &err);
  tdict_future *f;
  if (!has_worked(job, tdict_to_device_async(job->place.context, src, to, &w.o, &f, &err), &err)) return false;
  if (w.early && src == t->tree) { /* the transfer has its own references to the storages */
    stress_tree_let_go(t);
    job->counts[K_RELEASED_EARLY]++;
  }
  return end_future(job, &w, to_host, f, out);
}

static bool transfer_into(stress_job *job, const stress_tree *t, const tdict_tree *src, tdict_tree *dst, bool to_host) {
  way w = {.future = false};
  tdict_error err;
  choose_way(job, &w);
  job->counts[to_host ? K_INTO_HOST : K_INTO_DEVICE]++;
  job->counts[K_BYTES] += (int64_t)t->total_bytes;
  describe_call(job, to_host ? "transfer_into host" : "transfer_into device", &w);
  if (!w.future) return has_worked(job, tdict_transfer_into(job->place.context, dst, src, &w.o, &err), &err);
  tdict_future *f;
  scoped_tree same = NULL;
  if (!has_worked(job, tdict_transfer_into_async(job->place.context, dst, src, &w.o, &f, &err), &err)) return false;
  if (to_host) w.on_stream = false; /* the comparison reads through saved pointers, so the host must wait */
  return end_future(job, &w, to_host, f, &same);
}

/* Changes all bytes of the host tree, copies the device tree into it, and compares all elements. */
static int check_into_host(stress_job *job, stress_tree *t, const tdict_tree *device) {
  const check_place host = {.device = tdict_cpu()};
  int answer = BENCH_OK;
  for (int i = 0; i < t->count; i++)
    if (t->leaves[i].layout == STRESS_EXPANDED)
      return BENCH_OK; /* its elements share memory, so they cannot be written to */
  for (int i = 0; i < t->count; i++)
    if (!t->leaves[i].shared)
      for (size_t at = 0; at < t->leaves[i].base_bytes; at++) t->leaves[i].base_data[at] ^= 0x5A;
  if (!transfer_into(job, t, device, t->tree, true)) return BENCH_FAILED;
  for (int i = 0; i < t->count && answer == BENCH_OK; i++) {
    const stress_leaf *l = &t->leaves[i];
    scoped_bytes found = malloc(l->want_bytes + 1);
    if (!found) return BENCH_FAILED;
    stress_gather(l, l->base_data, found);
    answer = stress_check_bytes(&host, l, found);
  }
  return answer;
}

static int check_pinned(stress_job *job, const stress_tree *t) {
  scoped_tree pinned = NULL;
  job->counts[K_PIN_MEMORY]++;
  snprintf(job->what, sizeof job->what, "pin_memory");
  if (!bench_ok(job->what, tdict_pin_memory(job->place.context, t->tree, NULL, &pinned, err))) return BENCH_FAILED;
  int answer = BENCH_OK;
  for (int i = 0; i < t->count && answer == BENCH_OK; i++) { /* the result shares pinned leaves, even strided ones */
    tdict_tensor *found;
    const stress_leaf *l = &t->leaves[i];
    if (!stress_find(l, pinned, &found)) answer = BENCH_DIFFERS;
    if (answer != BENCH_OK || l->pinned || l->want_bytes == 0) continue;
    if (!tdict_tensor_is_pinned(found) || memcmp(tdict_tensor_const_data(found), l->want, l->want_bytes) != 0) {
      bench_print_error("leaf \"%s\" is not pinned, or differs", l->path);
      answer = BENCH_DIFFERS;
    }
  }
  return answer;
}

static void count_tree(stress_job *job, const stress_tree *t) {
  job->counts[K_TREES]++;
  job->counts[K_LEAVES] += t->count;
  job->counts[K_OVER_16_MIB] += t->total_bytes > (size_t)16 << 20;
  for (int i = 0; i < t->count; i++) {
    const stress_leaf *l = &t->leaves[i];
    job->counts[K_OBJECTS] += l->second;
    job->counts[K_EMPTY_LEAVES] += l->want_bytes == 0;
    job->counts[K_PINNED_LEAVES] += l->pinned;
    job->counts[K_SHARED] += l->shared;
    if (l->layout >= STRESS_TRANSPOSED && l->layout <= STRESS_EXPANDED)
      job->counts[K_TRANSPOSED + (int)l->layout - STRESS_TRANSPOSED]++;
  }
}

/* Moves a tree to the device and back, and sometimes into existing trees and pinned memory. Verifies each result. */
static int move_tree_around(stress_job *job, stress_tree *t) {
  const check_place *check = &job->place.check;
  scoped_tree there = NULL, back = NULL;
  int answer = stress_below(&job->state, 6) ? BENCH_OK : check_pinned(job, t);
  if (answer == BENCH_OK && !move_tree_randomly(job, t, t->tree, job->place.device, &there)) answer = BENCH_FAILED;
  if (answer == BENCH_OK && job->o.corrupt && t->total_bytes)
    for (int i = 0; i < t->count; i++)
      if (t->leaves[i].want_bytes) t->leaves[i].want[t->leaves[i].want_bytes / 2] ^= 0x10;
  if (answer == BENCH_OK) answer = stress_check(check, t, there, job->place.device);
  if (answer == BENCH_OK && !move_tree_randomly(job, t, there, tdict_cpu(), &back)) answer = BENCH_FAILED;
  if (answer == BENCH_OK) answer = stress_check(check, t, back, tdict_cpu());
  bool again = answer == BENCH_OK && t->tree && !t->hooked;
  if (again && stress_below(&job->state, 2)) answer = check_into_host(job, t, there);
  if (again && answer == BENCH_OK && stress_below(&job->state, 2)) {
    stress_tree_fill(t, bench_random(&job->state));
    answer =
        transfer_into(job, t, t->tree, there, false) ? stress_check(check, t, there, job->place.device) : BENCH_FAILED;
  }
  return answer;
}

/* Opens a context with one of several sizes of the staging ring, so that some trees fit into the ring, and others reuse
 * its slots many times. */
static bool open_place(stress_job *job, int64_t number) {
  static const size_t rings[] = {(size_t)64 << 20, (size_t)1 << 20, (size_t)128 << 10, (size_t)16 << 20};
  if (job->open) place_close(&job->place);
  memset(&job->place, 0, sizeof job->place);
  job->place.staging_bytes = rings[number / TREES_A_CONTEXT % 4];
  job->counts[K_CONTEXTS]++;
  job->open = true;
  return place_open_device(&job->place, job->o.device, "stress");
}

static int run_tree(stress_job *job, int64_t number) {
  stress_tree t = {0};
  uint64_t mixer = (uint64_t)job->o.seed, base = bench_random(&mixer);
  job->state = base + (uint64_t)number * 0xD1B54A32D192ED03u;
  uint64_t tree_seed = bench_random(&job->state);
  int answer = stress_tree_make(&t, job->place.context, tree_seed, (size_t)job->o.max_bytes) ? BENCH_OK : BENCH_FAILED;
  if (answer == BENCH_OK) {
    count_tree(job, &t);
    answer = move_tree_around(job, &t);
  }
  stress_tree_free(&t);
  if (answer != BENCH_OK)
    bench_print_error("stress failed with --seed %" PRId64 " at tree %" PRId64 " (--first %" PRId64 " --count 1): %s",
                      job->o.seed, number, number, job->what);
  return answer;
}

static void print_totals(const stress_job *job, double seconds) {
  for (int k = 0; k < KINDS; k++) printf("  %-24s %" PRId64 "\n", kind_names[k], job->counts[k]);
  char bytes[32];
  printf("stress: seed %" PRId64 ", %.0f s, %" PRId64 " trees, %" PRId64 " leaves, %s moved, every bit verified\n",
         job->o.seed, seconds, job->counts[K_TREES], job->counts[K_LEAVES],
         bench_format_bytes((double)job->counts[K_BYTES], bytes, sizeof bytes));
}

/* Appends the totals to the file of --record, as a row of a Markdown table. */
static bool append_record(const stress_job *job, double seconds, const char *device) {
  char date[32], bytes[32];
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(date, sizeof date, "%Y-%m-%d", &utc);
  FILE *file = fopen(job->o.record, "a");
  if (!file) {
    bench_print_error("%s cannot be opened: %s", job->o.record, strerror(errno));
    return false;
  }
  int64_t moves = job->counts[K_TO_DEVICE] + job->counts[K_TO_HOST] + job->counts[K_INTO_DEVICE] +
                  job->counts[K_INTO_HOST] + job->counts[K_PIN_MEMORY];
  fprintf(file, "| %s | %s | %.0f s | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %s | none |\n", date,
          device, seconds, job->o.seed, job->counts[K_TREES], job->counts[K_LEAVES], moves,
          bench_format_bytes((double)job->counts[K_BYTES], bytes, sizeof bytes));
  return fclose(file) == 0;
}

static int run_trees(stress_job *job) {
  double begin = bench_now(), shown = 0;
  const bench_bar bar = bench_bar_start((double)(job->o.count ? job->o.count : job->o.seconds));
  int answer = BENCH_OK;
  if (job->o.record && !bench_can_write(job->o.record)) return BENCH_FAILED;
  for (int64_t i = job->o.first; answer == BENCH_OK; i++) {
    if (job->o.count ? i >= job->o.first + job->o.count : bench_now() - begin >= (double)job->o.seconds) break;
    if (!job->open || i % TREES_A_CONTEXT == 0)
      if (!open_place(job, i)) return BENCH_FAILED;
    if (bench_now() - shown >= 0.5) {
      shown = bench_now();
      const double done = job->o.count ? (double)(i - job->o.first) : shown - begin;
      bench_bar_show(&bar, done, "tree %" PRId64 ", %.0f of %" PRId64 " s", i, shown - begin, job->o.seconds);
    }
    answer = run_tree(job, i);
  }
  bench_progress_end();
  if (answer != BENCH_OK) return answer;
  const char *device = job->open && place_is_gpu(&job->place) ? raw_device_name(job->place.check.raw) : "simulated";
  print_totals(job, bench_now() - begin);
  return !job->o.record || append_record(job, bench_now() - begin, device) ? BENCH_OK : BENCH_FAILED;
}

int stress_main(int argc, char **argv) {
  static const char doc[] =
      "Moves random trees in random ways and verifies every bit without the library."
      "\vExample, an hour:\n  tdict-bench stress --seconds 3600 --seed 7 --device sim\n\n" EXIT_TEXT;
  static stress_job job;
  job.o = (stress_options){"auto", NULL, 60, 1, INT64_C(256) << 20, 0, 0, false};
  stress_options *o = &job.o;
  const int64_t most = INT64_C(1) << 40;
  const bench_option options[] = {
      DEVICE_OPTION(&o->device),
      NUMBER_OPTION("seconds", 's', "N", &o->seconds, 0, most, "seconds to run (default 60)"),
      NUMBER_OPTION("seed", 0, "N", &o->seed, 0, most, "seed of trees and transfers (default 1)"),
      NUMBER_OPTION("max-bytes", 0, "N", &o->max_bytes, 0, most, "largest size of a tree (default 268435456)"),
      NUMBER_OPTION("first", 0, "N", &o->first, 0, most, "number of the first tree (default 0)"),
      NUMBER_OPTION("count", 0, "N", &o->count, 0, most, "run for N trees instead of --seconds"),
      TEXT_OPTION("record", 0, "FILE", &o->record, "append the totals to FILE as a row of a Markdown table"),
      FLAG_OPTION("corrupt", &o->corrupt, "self-test: expect wrong bytes; the run must fail with exit status 3"),
      {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  int answer = run_trees(&job);
  if (job.open) place_close(&job.place);
  return answer;
}
