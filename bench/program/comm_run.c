/* Verifies and measures the operations of tdict-bench comm, see comm.h. */
#include "comm.h"

#include <inttypes.h>
#include <stdio.h>

/* The three ways to run an operation: the whole tree at once, one buffer of the same total size, or leaf by leaf. */
enum { WAY_TREE, WAY_BUFFER, WAY_LEAVES, WAYS };
static const char *const way_names[WAYS] = {"tree", "one buffer", "leaf by leaf"};
/* The times of short calls vary more, so calls for trees of at most SMALL_BYTES are repeated SMALL_REPEATS times as
 * often (except leaf by leaf). */
enum { MOST_RANKS = 256, WARMUPS = 1, SMALL_BYTES = 16 << 20, SMALL_REPEATS = 10 };

typedef struct run {
  comm_rank *rank;
  comm_handles handles;
  tdict_stream stream;
  comm_trees trees, buffer; /* `buffer` has one leaf */
  uint64_t salt;
  bench_bar bar; /* its unit is a byte of a leaf for each work */
  double done;
} run;

void comm_settings_default(comm_settings *s) {
  *s = (comm_settings){.common = {.device = "auto", .repeats = 11}, .leaves = 1000};
}

/* The message that agree() exchanges between all ranks. */
typedef struct report {
  double seconds;
  int64_t answer;
} report;

/* Aborts the communicator, so that other ranks wait for this rank at most until the time limit. Returns
 * BENCH_FAILED. */
static int give_up(run *r) {
  r->rank->is_broken = true;
  tdict_comm_abort(r->rank->comm);
  return BENCH_FAILED;
}

/* Waits for all ranks by exchanging reports. Returns the worst exit code, and sets *seconds to the time of the slowest
 * rank. */
static int agree(run *r, int answer, double *seconds) {
  report all[MOST_RANKS];
  const comm_rank *rank = r->rank;
  const report own = {*seconds, answer};
  if (rank->is_broken) return BENCH_FAILED;
  if (!bench_ok("the ranks do not reply",
                rank->table.exchange(rank->table.self, &own, all, sizeof own, COMM_TIMEOUT_NS, err)))
    return give_up(r);
  for (int i = 0; i < rank->table.world_size; i++) {
    if (all[i].seconds > *seconds) *seconds = all[i].seconds;
    /* a failure is worse than a difference */
    if (all[i].answer == BENCH_FAILED || answer == BENCH_OK) answer = (int)all[i].answer;
  }
  return answer;
}

/* Runs an operation with calls of the table, and waits. With one buffer, its messages are queued as a group. */
static tdict_status call_table(const run *r, const comm_work *work, int way, tdict_error *err) {
  const comm_trees *t = way == WAY_BUFFER ? &r->buffer : &r->trees;
  const tdict_comm_table *b = r->handles.table;
  const bool is_group = way == WAY_BUFFER && work->has_messages;
  tdict_status status = is_group ? b->group_begin(b->self, err) : TDICT_OK;
  for (int64_t i = 0; i < t->leaves && status == TDICT_OK; i++) status = work->leaf(&r->handles, t, i, err);
  if (is_group && status == TDICT_OK) status = b->group_end(b->self, r->handles.stream, COMM_TIMEOUT_NS, err);
  return status == TDICT_OK ? b->finish(b->self, r->handles.stream, COMM_TIMEOUT_NS, err) : status;
}

/* Runs an operation once on all ranks. Sets *seconds to the slowest rank's time, and *out to the new tree or NULL. */
static int do_work(run *r, const comm_work *work, int way, tdict_tree **out, double *seconds) {
  tdict_error err;
  double unused = 0;
  *out = NULL;
  int answer = agree(r, BENCH_OK, &unused);
  if (answer != BENCH_OK) return answer;
  const double begin = bench_now();
  const tdict_status status =
      way == WAY_TREE ? work->tree(&r->handles, &r->trees, out, &err) : call_table(r, work, way, &err);
  *seconds = bench_now() - begin;
  if (status != TDICT_OK) {
    char what[128];
    snprintf(what, sizeof what, "rank %d: %s, %s", (int)r->rank->table.rank, work->name, way_names[way]);
    bench_print_status(what, &err);
    answer = way == WAY_TREE ? BENCH_FAILED : give_up(r);
  }
  return agree(r, answer, seconds);
}

/* Fills the trees of this rank before a verification: the operation's source with values, the other tree with zeros. */
static bool fill(run *r, const comm_work *work, const comm_trees *t) {
  const int rank = t->rank;
  const bool is_corrupt = r->rank->settings->is_corrupt;
  const comm_numbers zero = {0, 0, 0, false}, own = {r->salt, work->is_sum ? rank : 0, 1, is_corrupt};
  if (work->from_part) return comm_trees_write(t, t->part, &own) && comm_trees_write(t, t->whole, &zero);
  if (work->to_part && !comm_trees_write(t, t->part, &zero)) return false;
  return comm_trees_write(t, t->whole, rank == 0 || work->is_sum ? &own : &zero);
}

/* Runs an operation once with new values. Each rank that has a result verifies every bit of it. */
static int verify(run *r, const comm_work *work, int way) {
  const comm_trees *t = way == WAY_BUFFER ? &r->buffer : &r->trees;
  tdict_tree *out = NULL;
  double seconds = 0;
  char name[64];
  r->salt++;
  int answer = agree(r, fill(r, work, t) ? BENCH_OK : BENCH_FAILED, &seconds);
  if (answer == BENCH_OK) answer = do_work(r, work, way, &out, &seconds);
  if (answer == BENCH_OK && (work->num_results == 0 || t->rank < work->num_results)) {
    const comm_numbers wanted = {r->salt, 0, work->is_sum ? t->world : 1, false};
    snprintf(name, sizeof name, "%s, %s", work->name, way_names[way]);
    const comm_result result = {.tree = out             ? out
                                        : work->to_part ? t->part
                                                        : t->whole,
                                .is_part = work->to_part,
                                .is_stacked = work->is_stacked && way == WAY_TREE,
                                .skipped = work->has_messages && way != WAY_TREE ? 0 : -1,
                                .name = name};
    answer = comm_trees_check(t, &result, &wanted);
  }
  tdict_release(out);
  return agree(r, answer, &seconds);
}

/* Measures all ways of an operation, in turn. */
static int measure(run *r, const comm_work *work, bench_samples samples[WAYS]) {
  const int repeats = (int)r->rank->settings->common.repeats;
  const int most = repeats * (comm_trees_bytes(&r->trees) <= SMALL_BYTES ? SMALL_REPEATS : 1);
  double unused = 0;
  int answer = agree(r, bench_samples_reserve(samples, WAYS, most) ? BENCH_OK : BENCH_FAILED, &unused);
  for (int i = -WARMUPS; i < most && answer == BENCH_OK; i++)
    for (int w = 0; w < WAYS && answer == BENCH_OK; w++) {
      if (w == WAY_LEAVES && i >= repeats) continue;
      tdict_tree *out;
      double seconds;
      answer = do_work(r, work, w, &out, &seconds);
      tdict_release(out);
      if (i >= 0) bench_samples_add(&samples[w], seconds);
    }
  return answer;
}

static void print_row(const run *r, const comm_work *work, const bench_samples samples[WAYS]) {
  bench_table *t = &r->rank->columns;
  const bench_samples *tree = &samples[WAY_TREE];
  const double size = (double)comm_trees_bytes(&r->trees), seconds = bench_samples_median(tree);
  const double buffer = bench_samples_median(&samples[WAY_BUFFER]), leaves = bench_samples_median(&samples[WAY_LEAVES]);
  table_text(t, work->name);
  table_number(t, "%.0f", (double)r->trees.leaves);
  table_number(t, "%.0f", size / (double)r->trees.leaves);
  table_ms(t, seconds);
  table_ms(t, bench_samples_percentile(tree, 10));
  table_ms(t, bench_samples_percentile(tree, 90));
  table_number(t, "%.2f", size / seconds / 1e9);
  table_number(t, "%.2f", buffer / seconds);
  table_ms(t, leaves);
  table_end_row(t);
  json_array_append_new(r->rank->rows,
                        json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "work", work->name, "leaves",
                                  (json_int_t)r->trees.leaves, "bytes", size, "seconds", seconds, "one_buffer_seconds",
                                  buffer, "leaf_by_leaf_seconds", leaves, "samples", bench_samples_json(tree),
                                  "one_buffer_samples", bench_samples_json(&samples[WAY_BUFFER]),
                                  "leaf_by_leaf_samples", bench_samples_json(&samples[WAY_LEAVES])));
}

static int measure_work(run *r, const comm_work *work) {
  bench_samples samples[WAYS] = {{0}};
  int answer = BENCH_OK;
  if (r->rank->rows) bench_bar_show(&r->bar, r->done, "%s", work->name);
  for (int w = 0; w < WAYS && answer == BENCH_OK; w++) answer = verify(r, work, w);
  if (answer == BENCH_OK) answer = measure(r, work, samples);
  if (r->rank->rows) bench_progress_end();
  if (answer == BENCH_OK && r->rank->rows) print_row(r, work, samples);
  bench_samples_free(samples, WAYS);
  return answer;
}

/* Measures all operations with trees of one size. */
static int measure_size(run *r, int64_t leaf_bytes) {
  const comm_rank *rank = r->rank;
  const int world = rank->table.world_size;
  const int64_t leaves = rank->settings->leaves, elements = leaf_bytes / (int64_t)sizeof(float) / world * world;
  const comm_size size = {leaves, elements, rank->settings->is_separate}, one = {1, leaves * elements, false};
  double unused = 0;
  if (elements == 0) {
    if (rank->rows) bench_print_error("leaves of %" PRId64 " bytes are too small for %d ranks", leaf_bytes, world);
    return BENCH_FAILED;
  }
  const bool good = comm_trees_make(&r->trees, rank->context, rank->table.device, rank->table.rank, world, &size) &&
                    comm_trees_make(&r->buffer, rank->context, rank->table.device, rank->table.rank, world, &one);
  int answer = agree(r, good ? BENCH_OK : BENCH_FAILED, &unused);
  for (int w = 0; w < COMM_WORKS && answer == BENCH_OK; w++, r->done += (double)leaf_bytes)
    answer = measure_work(r, &comm_works[w]);
  comm_trees_free(&r->trees);
  comm_trees_free(&r->buffer);
  return answer;
}

static void print_head(comm_rank *rank) {
  bench_print_text(
      "%s, %d ranks. The time of a call is the time of the slowest rank. Each time is the median of %d calls (%d calls "
      "for at most 16 MiB, except leaf by leaf). The bytes are those of the whole tree, which scatter divides and "
      "gathers join%s. Of one buffer: the time of plain %s calls for one buffer of this size, divided by the time of "
      "the tree. Leaf by leaf: the same plain calls for each leaf.",
      rank->table.name, (int)rank->table.world_size, (int)rank->settings->common.repeats,
      (int)rank->settings->common.repeats * SMALL_REPEATS,
      rank->settings->is_separate ? ", each leaf in its own allocation" : "", rank->table.name);
  table_begin(&rank->columns, rank->sink,
              "work|leaves|leaf bytes|median ms|p10 ms|p90 ms|GB/s|of one buffer|leaf by leaf ms");
}

static int measure_sizes(run *r) {
  const comm_settings *s = r->rank->settings;
  const int64_t only = s->megabytes ? s->megabytes * 1000000 / s->leaves : 0;
  r->bar = bench_bar_start((double)(only ? only : 4000 + 1000000) * COMM_WORKS);
  if (only) return measure_size(r, only);
  const int answer = measure_size(r, 4000);
  return answer == BENCH_OK ? measure_size(r, 1000000) : answer;
}

bool comm_connect(comm_rank *rank, tdict_status status, tdict_error *err) {
  if (!bench_has_worked("cannot connect the ranks", status, err)) return false;
  status = tdict_comm_create(rank->context, &rank->table, NULL, &rank->comm, err);
  if (bench_has_worked("no communicator", status, err)) return true;
  rank->table.abort(rank->table.self);
  rank->table.destroy(rank->table.self);
  return false;
}

int comm_run(comm_rank *rank) {
  run r = {.rank = rank, .handles = {rank->comm, &rank->table, tdict_no_stream()}};
  const int world = rank->table.world_size;
  if (world < 2 || world > MOST_RANKS) {
    if (rank->rows) bench_print_error("found %d ranks, wanted 2 to %d", world, MOST_RANKS);
    return BENCH_FAILED;
  }
  double unused = 0;
  int answer = BENCH_OK;
  if (rank->rows) print_head(rank);
  if (rank->table.device.type != TDICT_DEVICE_CPU &&
      !bench_ok("cannot make a stream", tdict_stream_create(rank->context, rank->table.device, &r.stream, err)))
    answer = BENCH_FAILED;
  r.handles.stream = r.stream;
  answer = agree(&r, answer, &unused);
  if (answer == BENCH_OK) answer = measure_sizes(&r);
  if (r.stream.handle) tdict_stream_destroy(rank->context, r.stream);
  if (answer == BENCH_OK && rank->rows) printf("\nevery bit of every result was verified on every rank\n");
  return answer;
}

int comm_end(const comm_rank *rank, int answer, int argc, char **argv) {
  if (!rank->rows) return answer;
  json_t *record = bench_record("comm", argc, argv);
  json_object_update_new(record, json_pack("{s:s, s:i, s:b, s:o}", "backend", rank->table.name, "ranks",
                                           (int)rank->table.world_size, "separate", rank->settings->is_separate, "rows",
                                           rank->rows));
  return bench_sink_end(rank->sink, answer, record);
}
