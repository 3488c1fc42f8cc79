/* tdict-bench pinning: measures how long it takes to pin and unpin a block, in one registration or in pieces, and the
 * longest small copy that another thread makes at the same time. bench/costs/pinning starts a new process for each
 * repetition, and so measures only first pinnings. The job owns its memory. Thread rule: the copies run on the main
 * thread, the pinning on a second thread. */
#include <stdio.h>

#include "options.h"
#include "own_copy.h"
#include "tdict/memory.h"

enum { ALONE = 2000 };

typedef struct pinning_options {
  int64_t bytes, piece_bytes;
} pinning_options;

typedef union times {
  struct {
    bench_samples pin, pin_wait, unpin, unpin_wait;
  };
  bench_samples each[4];
} times;

typedef struct pinning_job {
  pinning_options o;
  bench_place place;
  own_copy own;
  double alone; /* seconds of the longest copy while nothing is being pinned */
  times all;
} pinning_job;

/* The argument of pin_block() and unpin_block(), which run on the second thread. */
typedef struct pinner {
  pinning_job *job;
  tdict_tensor *block;
} pinner;

static bool pin_block(void *user) {
  pinner *p = user;
  tdict_memory *pinned = tdict_pinned_memory(p->job->place.context);
  return check_block(pinned, (size_t)p->job->o.bytes, "pinned memory", &p->block);
}

static bool unpin_block(void *user) {
  pinner *p = user;
  tdict_tensor_release(p->block);
  tdict_context_trim(p->job->place.context, tdict_cpu(), 0);
  p->block = NULL;
  return true;
}

/* Runs `work` on the second thread, and makes small copies on this thread. Adds the time of `work` to `seconds` and the
 * time of the longest copy to `waits`. */
static bool copy_during(pinner *p, bool (*work)(void *), bench_samples *seconds, bench_samples *waits) {
  double took, longest;
  if (!own_copy_beside(&p->job->own, work, p, &took, &longest)) return false;
  bench_samples_add(seconds, took);
  bench_samples_add(waits, longest);
  return true;
}

static bool measure_pinning(pinning_job *job, int repeats) {
  times *t = &job->all;
  if (!bench_samples_reserve(t->each, 4, repeats)) return false;
  for (int i = 0; i < ALONE; i++) {
    double seconds;
    if (!own_copy_once(&job->own, &seconds)) return false;
    if (i >= ALONE / 10 && seconds > job->alone) job->alone = seconds; /* the first copies initialize the driver */
  }
  const bench_bar bar = bench_bar_start(repeats);
  for (int i = 0; i < repeats; i++) {
    bench_bar_show(&bar, i, "repetition %d of %d", i + 1, repeats);
    pinner p = {.job = job};
    if (!copy_during(&p, pin_block, &t->pin, &t->pin_wait)) return false;
    if (!copy_during(&p, unpin_block, &t->unpin, &t->unpin_wait)) return false;
  }
  bench_progress_end();
  return true;
}

static json_t *describe(const pinning_job *job, int argc, char **argv) {
  const times *t = &job->all;
  json_t *record = place_record(&job->place, "pinning", argc, argv);
  json_object_update_new(record,
                         json_pack("{s:I, s:I, s:f, s:o, s:o, s:o, s:o}", "bytes", (json_int_t)job->o.bytes,
                                   "piece_bytes", (json_int_t)job->o.piece_bytes, "alone_seconds", job->alone,
                                   "pin_seconds", bench_samples_json(&t->pin), "pin_wait_seconds",
                                   bench_samples_json(&t->pin_wait), "unpin_seconds", bench_samples_json(&t->unpin),
                                   "unpin_wait_seconds", bench_samples_json(&t->unpin_wait)));
  return record;
}

static void print_pinning(const pinning_job *job, bench_sink *sink) {
  const times *t = &job->all;
  const double values[] = {bench_samples_median(&t->pin), bench_samples_median(&t->pin_wait),
                           bench_samples_median(&t->unpin), bench_samples_median(&t->unpin_wait), job->alone};
  char bytes[32], piece[32] = "whole";
  bench_table table;
  if (!place_is_gpu(&job->place)) printf("SIMULATED device: these times say nothing about a GPU\n");
  if (job->o.piece_bytes) bench_format_bytes((double)job->o.piece_bytes, piece, sizeof piece);
  bench_print_text("Block: pinned and unpinned, whole or in pieces of this size. Copies: the longest copy of 51 KB "
                   "meanwhile. Alone: the longest copy without other work.");
  table_begin(&table, sink, "block|   pieces|pin ms|copies ms|unpin ms|copies ms|alone ms");
  table_text(&table, bench_format_bytes((double)job->o.bytes, bytes, sizeof bytes));
  table_text(&table, piece);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) table_ms(&table, values[i]);
  table_end_row(&table);
}

static int run_pinning(pinning_job *job, const common_options *common, int argc, char **argv) {
  bench_sink sink;
  if (!bench_sink_open(&sink, &common->outputs)) return BENCH_FAILED;
  job->place.bare = true;
  job->place.pin_piece_bytes = (size_t)job->o.piece_bytes;
  if (!place_open_device(&job->place, common->device, "pinning")) return BENCH_FAILED;
  if (!own_copy_open(&job->own, &job->place) || !measure_pinning(job, (int)common->repeats)) return BENCH_FAILED;
  print_pinning(job, &sink);
  return bench_sink_end(&sink, BENCH_OK, describe(job, argc, argv));
}

int pinning_main(int argc, char **argv) {
  static const char doc[] = "Pins and unpins a block while another thread copies, and prints the times of both."
                            "\v" SHORT_EXIT_TEXT;
  static pinning_job job;
  common_options common = {.device = "auto", .repeats = 1};
  job.o = (pinning_options){INT64_C(1) << 30, 0};
  const int64_t most = INT64_C(1) << 40;
  const bench_option options[] = {
      DEVICE_OPTION(&common.device),
      RECORD_OPTIONS(&common),
      NUMBER_OPTION("bytes", 0, "N", &job.o.bytes, 1, most, "size of the block (default 1073741824)"),
      NUMBER_OPTION("piece-bytes", 0, "N", &job.o.piece_bytes, 0, most,
                    "pin_piece_bytes of the context (default 0: one registration)"),
      {0}};
  int answer = options_parse(argc, argv, doc, options, NULL, NULL);
  if (answer != BENCH_OK) return answer;
  answer = run_pinning(&job, &common, argc, argv);
  own_copy_close(&job.own);
  place_close(&job.place);
  bench_samples_free(job.all.each, 4);
  return answer;
}
