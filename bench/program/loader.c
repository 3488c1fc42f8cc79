/* tdict-bench loader: measures how many batches per second a loader delivers to the device, from a shard of tokens or
 * from samples in memory. With --digest, prints a hash of all batches instead, to compare runs. The run owns the
 * context, the loader and the samples.
 * Thread rule: main thread only. The loader has its own threads. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "rows.h"
#include "tdict/sim.h"
#include "tdict/tokens.h"

enum { WINDOW = 1024 };

typedef struct run {
  const char *device, *work, *shard, *state; /* shard NULL: a temporary shard */
  bench_outputs outputs;
  int64_t workers, prefetch, batch, tokens, samples, epochs, stop, seed;
  double seconds;
  bool digest;
  tdict_context *context;
  tdict_device place;
  tdict_loader *loader;
  tdict_tree *source;     /* the samples in memory; NULL: a shard */
  tdict_conversion widen; /* converts 16-bit tokens to 64 bits */
  double rate, waited;
  tdict_loader_stats stats;
  double elapsed;
  uint64_t sum;
  bool stopped;
  bench_sink sink;
} run;

static bool write_shard(const run *r, const char *path) {
  int32_t header[256] = {20240520, 1, (int32_t)r->tokens};
  enum { AT_ONCE = 1 << 16 };
  uint16_t *part = malloc(AT_ONCE * sizeof *part);
  FILE *file = fopen(path, "wb");
  bool good = file && part && fwrite(header, sizeof header, 1, file) == 1;
  uint64_t state = 1;
  for (int64_t done = 0; done < r->tokens && good; done += AT_ONCE) {
    size_t count = (size_t)(r->tokens - done < AT_ONCE ? r->tokens - done : AT_ONCE);
    for (size_t i = 0; i < count; i++) part[i] = (uint16_t)(bench_random(&state) % 50257);
    good = fwrite(part, sizeof *part, count, file) == count;
  }
  if (file && fclose(file) != 0) good = false;
  int why = errno; /* free() may change errno */
  free(part);
  if (!good) bench_print_error("the shard %s cannot be written: %s", path, strerror(why));
  return good;
}

static bool open_shard(const char *path, tdict_dataset **out) {
  tdict_token_options o = td_with(tdict_token_options, paths = &path, num_paths = 1, window = WINDOW);
  return bench_ok("the shard", tdict_dataset_from_tokens(&o, out, err));
}

/* Writes and opens a temporary shard. Removes the file at once, since the dataset keeps it mapped. */
static bool open_temporary_shard(const run *r, tdict_dataset **out) {
  const char *place = getenv("TMPDIR");
  char folder[4096], path[4096 + 16];
  int length = snprintf(folder, sizeof folder, "%s/tdict-bench-XXXXXX", place && *place ? place : "/tmp");
  if (length >= (int)sizeof folder || !mkdtemp(folder)) {
    bench_print_error("no temporary folder for the shard: %s",
                      strerror(length < (int)sizeof folder ? errno : ENAMETOOLONG));
    return false;
  }
  snprintf(path, sizeof path, "%s/tokens.bin", folder);
  char size[32];
  bench_print_text("shard: %s of random tokens in %s, removed when the program ends; --shard FILE keeps one",
                   bench_format_bytes(2.0 * (double)r->tokens, size, sizeof size), folder);
  bool good = write_shard(r, path) && open_shard(path, out);
  (void)unlink(path);
  (void)rmdir(folder);
  return good;
}

static bool open_tokens(run *r, tdict_dataset **out) {
  if (!r->shard) return open_temporary_shard(r, out);
  FILE *there = fopen(r->shard, "rb");
  if (there) fclose(there);
  if (!there && !write_shard(r, r->shard)) return false;
  if (!there) printf("shard: %s is written and stays\n", r->shard);
  return open_shard(r->shard, out);
}

/* Allocates the tree of samples in memory, r->source. */
static bool make_samples(run *r, const tdict_field *fields, size_t num_fields, int64_t samples) {
  return bench_ok("the samples", tdict_create_from(fields, num_fields, 1, &samples, NULL, &r->source, err));
}

static bool open_tree(run *r, tdict_dataset **out) {
  return bench_ok("the samples", tdict_dataset_from_tree(r->source, out, err));
}

/* Makes the same samples as a shard of write_shard() has, but in memory as 16-bit tokens. */
static bool open_tokens16(run *r, tdict_dataset **out) {
  static const tdict_field fields[] = {{"tokens", TDICT_U16, 1, {WINDOW}}, {"targets", TDICT_U16, 1, {WINDOW}}};
  const int64_t samples = (r->tokens - 1) / WINDOW;
  if (!make_samples(r, fields, 2, samples)) return false;
  uint16_t *tokens = tdict_data(r->source, "tokens"), *targets = tdict_data(r->source, "targets");
  uint64_t state = 1;
  for (int64_t i = 0; i <= samples * WINDOW; i++) {
    const uint16_t token = (uint16_t)(bench_random(&state) % 50257);
    if (i < samples * WINDOW) tokens[i] = token;
    if (i > 0) targets[i - 1] = token;
  }
  return open_tree(r, out);
}

static bool open_samples(run *r, tdict_dataset **out) {
  static const tdict_field fields[] = {
      {"obs.pixels", TDICT_U8, 3, {84, 84, 3}},
      {"obs.state", TDICT_F32, 1, {17}},
      {"action", TDICT_F32, 1, {6}},
      {"next.obs.pixels", TDICT_U8, 3, {84, 84, 3}},
      {"next.obs.state", TDICT_F32, 1, {17}},
      {"next.reward", TDICT_F64, 0, {0}},
      {"next.done", TDICT_BOOL, 0, {0}},
  };
  if (!make_samples(r, fields, sizeof fields / sizeof fields[0], r->samples)) return false;
  uint64_t state = 2;
  for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
    tdict_tensor *t = NULL;
    if (tdict_get(r->source, fields[f].path, &t, NULL) != TDICT_OK) return false;
    unsigned char *bytes = tdict_tensor_data(t);
    for (size_t i = 0; i + 8 <= tdict_tensor_bytes(t); i += 8) {
      uint64_t x = bench_random(&state);
      memcpy(bytes + i, &x, 8);
    }
  }
  return open_tree(r, out);
}

static bool open_loader(run *r) {
  scoped_dataset dataset = NULL;
  const bool shard = strcmp(r->work, "tokens") == 0, samples_of_tree = strcmp(r->work, "samples") == 0;
  if (!(shard ? open_tokens : samples_of_tree ? open_samples : open_tokens16)(r, &dataset)) return false;
  tdict_loader_options o = tdict_loader_options_default();
  r->widen = tdict_conversion_default();
  r->widen.pattern = "**";
  r->widen.dtype = TDICT_I64;
  o.conversions = &r->widen;
  o.num_conversions = strcmp(r->work, "tokens16") == 0;
  o.batch_size = r->batch ? r->batch : samples_of_tree ? 256 : 64;
  r->batch = o.batch_size;
  o.num_workers = (int32_t)r->workers;
  o.prefetch = (int32_t)r->prefetch;
  o.drop_last = true;
  o.shuffle = true;
  o.seed = (uint64_t)r->seed;
  o.endless = !r->digest; /* a digest must see where each epoch ends */
  const tdict_dataset_table *table = tdict_dataset_get_table(dataset);
  int64_t samples = table->length(table->self);
  if (samples < o.batch_size)
    bench_print_error("batch_size is %" PRId64 ", but the dataset has %" PRId64 " samples", r->batch, samples);
  else
    (void)bench_ok("no loader", tdict_loader_create(r->context, dataset, &o, &r->loader, err));
  return r->loader != NULL;
}

static bool open_loader_context(run *r) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  options_place(r->device, &sim, &o);
  if (!bench_ok("no context", tdict_context_create(&o, &r->context, err))) return false;
  r->place = tdict_context_device(r->context, NULL);
  return true;
}

/* Takes batches for r->seconds after a warm-up. As in a training loop, a stream of the program waits for each batch. */
static int measure_rate(run *r) {
  tdict_error err;
  tdict_stream stream = {r->place, NULL};
  bool gpu = r->place.type != TDICT_DEVICE_CPU;
  if (gpu && !bench_has_worked("no stream", tdict_stream_create(r->context, r->place, &stream, &err), &err))
    return BENCH_FAILED;
  tdict_status status = TDICT_OK;
  tdict_tree *batch = NULL;
  double begin = 0, warm_until = bench_now() + r->seconds / 4;
  int64_t batches = 0;
  tdict_loader_stats before = tdict_loader_stats_default();
  r->stats = tdict_loader_stats_default();
  const bench_bar bar = bench_bar_start(r->seconds * 1.25);
  double shown = bench_now();
  while (status == TDICT_OK && (begin == 0 || bench_now() - begin < r->seconds)) {
    if (bench_now() - shown > 0.2) bench_bar_show(&bar, (shown = bench_now()) - bar.begin, "taking batches");
    status = tdict_loader_next(r->loader, gpu ? stream : tdict_no_stream(), &batch, &err);
    if (status != TDICT_OK) break;
    tdict_release(batch);
    batches++;
    if (begin == 0 && bench_now() > warm_until) {
      status = tdict_loader_next(r->loader, tdict_no_stream(), &batch, &err); /* waits for the transfer */
      tdict_release(batch);
      if (status == TDICT_OK) status = tdict_loader_get_stats(r->loader, &before, &err);
      batches = 0;
      begin = bench_now();
    }
  }
  if (status == TDICT_OK)
    status = tdict_loader_next(r->loader, tdict_no_stream(), &batch, &err); /* waits for the last transfer */
  r->elapsed = bench_now() - begin;
  bench_progress_end();
  tdict_release(batch);
  if (status == TDICT_OK) status = tdict_loader_get_stats(r->loader, &r->stats, &err);
  if (gpu) tdict_stream_destroy(r->context, stream);
  if (!bench_has_worked("a batch", status, &err)) return BENCH_FAILED;
  r->rate = (double)(batches + 1) / r->elapsed;
  r->waited = (r->stats.wait_seconds - before.wait_seconds) / r->elapsed;
  r->stats.total_bytes -= before.total_bytes;
  r->stats.num_batches -= before.num_batches;
  return BENCH_OK;
}

static tdict_status add_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  run *r = user;
  (void)err;
  if (!entry->tensor) return TDICT_OK;
  const unsigned char *bytes = tdict_tensor_const_data(entry->tensor);
  for (size_t i = 0; i < tdict_tensor_bytes(entry->tensor); i++)
    r->sum = (r->sum ^ bytes[i]) * UINT64_C(1099511628211); /* hash FNV-1a */
  return TDICT_OK;
}

static bool read_state(run *r) {
  tdict_loader_state s = tdict_loader_state_default();
  FILE *file = r->state ? fopen(r->state, "r") : NULL;
  if (!file) return true; /* no saved state: start at the beginning */
  int got = fscanf(file, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &s.epoch, &s.batch,
                   &s.dataset_length, &s.batch_size, &s.num_indices, &s.num_samples);
  got += fscanf(file, " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNd32 " %" SCNd32 " %" SCNd64 " %" SCNu64 " %" SCNu64,
                &s.rank_samples, &s.seed, &s.weights_hash, &s.sampler_kind, &s.world_size, &s.order_version,
                &s.loader_seed, &r->sum);
  fclose(file);
  if (got != 14) {
    bench_print_error("%s is not a state that this program wrote", r->state);
    return false;
  }
  return bench_ok("the state", tdict_loader_set_state(r->loader, &s, err));
}

static bool write_state(const run *r) {
  tdict_error err;
  tdict_loader_state s = tdict_loader_state_default();
  if (tdict_loader_get_state(r->loader, &s, &err) != TDICT_OK) return false;
  FILE *file = fopen(r->state, "w");
  bool good = file && fprintf(file, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, s.epoch,
                              s.batch, s.dataset_length, s.batch_size, s.num_indices, s.num_samples) > 0;
  good = good &&
         fprintf(file,
                 " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRId32 " %" PRId32 " %" PRId64 " %" PRIu64 " %" PRIu64 "\n",
                 s.rank_samples, s.seed, s.weights_hash, s.sampler_kind, s.world_size, s.order_version, s.loader_seed,
                 r->sum) > 0;
  if (file && fclose(file) != 0) good = false;
  if (!good) bench_print_error("%s cannot be written: %s", r->state, strerror(errno));
  return good;
}

/* Reads the batches back from the device, in order, and hashes their bytes. Continues from the saved state, if any.
 * Ends after the last epoch or after --stop calls. */
static int print_digest(run *r) {
  tdict_error err;
  tdict_loader_state s = tdict_loader_state_default();
  r->sum = UINT64_C(14695981039346656037);
  if (!read_state(r)) return BENCH_FAILED;
  tdict_status status = tdict_loader_get_state(r->loader, &s, &err);
  for (int64_t taken = 0; status == TDICT_OK && s.epoch < r->epochs && !r->stopped; taken++) {
    scoped_tree batch = NULL, host = NULL;
    status = tdict_loader_next(r->loader, tdict_no_stream(), &batch, &err);
    if (status == TDICT_OK && batch) status = tdict_to_device(r->context, batch, tdict_cpu(), NULL, &host, &err);
    if (status == TDICT_OK && host) status = tdict_walk(host, add_leaf, r, &err);
    if (status == TDICT_OK) status = tdict_loader_get_state(r->loader, &s, &err);
    r->stopped = r->stop > 0 && taken + 1 == r->stop;
  }
  const bool good = bench_has_worked("a batch", status, &err) && (!r->state || !r->stopped || write_state(r));
  return good ? BENCH_OK : BENCH_FAILED;
}

static int report_rate(run *r, int argc, char **argv) {
  char name[32];
  tdict_device_format(r->place, name, sizeof name);
  if (r->digest) {
    printf("%s of %s on %s, %" PRId64 " workers: digest %016" PRIx64 "%s\n", r->work, r->source ? "memory" : "a shard",
           name, r->workers, r->sum, r->stopped ? " so far" : "");
    return BENCH_OK;
  }
  if (r->place.type == TDICT_DEVICE_SIM)
    bench_print_text("SIMULATED device: these times are copies within this host's memory and say nothing about a GPU");
  double bytes = (double)r->stats.total_bytes / (double)(r->stats.num_batches ? r->stats.num_batches : 1);
  const double values[] = {(double)r->batch, bytes * 1e-6,           (double)r->workers,
                           r->rate,          bytes * r->rate * 1e-9, 100 * r->waited};
  static const char *const formats[] = {"%.0f", "%.2f", "%.0f", "%.0f", "%.2f", "%.1f"};
  bench_table table;
  printf("loader on %s; waited: the time in which the program waited for a batch\n", name);
  table_begin(&table, &r->sink, "work|batch|batch MB|workers|batches/s|GB/s|% waited");
  table_text(&table, r->work);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) table_number(&table, formats[i], values[i]);
  table_end_row(&table);
  json_t *record = bench_record("loader", argc, argv);
  json_object_update_new(record, json_pack("{s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:b}", "work", r->work, "batch",
                                           (json_int_t)r->batch, "workers", (json_int_t)r->workers, "device", name,
                                           "batches_per_second", r->rate, "batch_bytes", bytes, "waited", r->waited,
                                           "simulated", r->place.type == TDICT_DEVICE_SIM));
  return bench_sink_end(&r->sink, BENCH_OK, record);
}

/* Rejects options that would have no effect, and sets defaults. */
static void check_options(struct argp_state *state, void *input) {
  run *r = input;
  const bool shard = strcmp(r->work, "tokens") == 0, tokens = strncmp(r->work, "tokens", 6) == 0;
  if (r->digest && (r->outputs.json || r->outputs.csv || r->outputs.markdown))
    argp_error(state, "--json is for measurements: a --digest has no record and no table");
  if (r->digest && r->seconds > 0) argp_error(state, "--seconds is for measurements: a --digest takes whole epochs");
  if (!r->digest && (r->epochs || r->stop || r->state))
    argp_error(state, "--epochs, --stop and --state are for a --digest");
  if (!tokens && (r->shard || r->tokens)) argp_error(state, "--shard and --tokens are for --work tokens");
  if (!shard && r->shard) argp_error(state, "--shard is for --work tokens: tokens16 has its tokens in memory");
  if (tokens && r->samples) argp_error(state, "--samples is for --work samples");
  if (!r->tokens) r->tokens = 50000000;
  if (!r->samples) r->samples = 16384;
  if (!r->epochs) r->epochs = 2;
  if (!(r->seconds > 0)) r->seconds = 2;
}

static void parse_seconds(struct argp_state *state, const char *text, void *to) {
  char *end = NULL;
  const double seconds = strtod(text, &end);
  if (*end || !(seconds > 0 && isfinite(seconds)))
    argp_error(state, "--seconds: '%s' is not a number of seconds above 0", text);
  *(double *)to = seconds;
}

static void parse_work(struct argp_state *state, const char *text, void *to) {
  if (strcmp(text, "tokens") != 0 && strcmp(text, "tokens16") != 0 && strcmp(text, "samples") != 0)
    argp_error(state, "--work: '%s' is not tokens, tokens16 or samples", text);
  *(const char **)to = text;
}

int loader_main(int argc, char **argv) {
  static const char doc[] = "Measures batches per second that a loader delivers, in random order."
                            "\v" SHORT_EXIT_TEXT;
  const int64_t most = INT64_C(1) << 40;
  run r = {.device = "auto", .work = "tokens", .workers = 4, .seed = 1};
  const bench_option options[] = {
      DEVICE_OPTION(&r.device),
      PARSED_OPTION("work", 'w', "KIND", &r.work, parse_work,
                    "tokens (default): windows of 1024 tokens of a shard; tokens16: the same in memory as 16-bit "
                    "tokens, which the transfer converts to 64 bits; samples: samples of 7 leaves, 42.5 KB"),
      NUMBER_OPTION("workers", 'n', "N", &r.workers, 0, 1024,
                    "worker threads (default 4); 0: the calling thread makes the batches"),
      NUMBER_OPTION("prefetch", 'p', "N", &r.prefetch, 0, 1048576,
                    "batches to prefetch (default 0: two for each worker)"),
      NUMBER_OPTION("batch", 'b', "N", &r.batch, 1, most, "samples in a batch (default 64 windows or 256 samples)"),
      PARSED_OPTION("seconds", 't', "S", &r.seconds, parse_seconds, "seconds to measure (default 2)"),
      TEXT_OPTION("shard", 'f', "FILE", &r.shard,
                  "with --work tokens: the shard; if FILE does not exist, it is written with random 16-bit tokens "
                  "(default: a temporary file)"),
      NUMBER_OPTION("tokens", 0, "N", &r.tokens, WINDOW + 1, INT32_MAX,
                    "with --work tokens and tokens16: tokens in a new shard or in memory (default 50000000)"),
      NUMBER_OPTION("samples", 0, "N", &r.samples, 1, most, "with --work samples: samples in memory (default 16384)"),
      NUMBER_OPTION("seed", 's', "N", &r.seed, 0, most, "seed for the order of the samples (default 1)"),
      OUTPUT_OPTIONS(&r.outputs, "the result"),
      {"digest", 0, NULL, "do not measure; print a hash of all batches in their order", OPTION_FLAG, &r.digest, 0, 0,
       NULL, 1, 0},
      {"epochs", 0, "N", "with --digest: number of epochs (default 2)", OPTION_NUMBER, &r.epochs, 1, most, NULL, 1, 0},
      {"stop", 0, "N", "with --digest: stop after N calls", OPTION_NUMBER, &r.stop, 1, most, NULL, 1, 0},
      {"state", 0, "FILE", "with --digest: continue from the state in FILE, if it exists; --stop writes it",
       OPTION_TEXT, &r.state, 0, 0, NULL, 1, 0},
      {0}};
  if (options_parse(argc, argv, doc, options, check_options, &r) != BENCH_OK) return BENCH_USAGE;
  bool good = bench_sink_open(&r.sink, &r.outputs) && (!r.state || !r.stop || bench_can_write(r.state));
  int code = good && open_loader_context(&r) && open_loader(&r) ? BENCH_OK : BENCH_FAILED;
  if (code == BENCH_OK) code = r.digest ? print_digest(&r) : measure_rate(&r);
  if (code == BENCH_OK) code = report_rate(&r, argc, argv);
  tdict_loader_destroy(r.loader);
  tdict_context_destroy(r.context);
  tdict_release(r.source);
  return code;
}
