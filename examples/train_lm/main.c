/* train_lm: trains a small language model from a text or a shard of tokens, with batches from a tdict_loader.
 *
 *   train_lm [--device auto|cpu|sim|cuda:N] [--text FILE | --shard FILE] [--steps N] [--rows N] [--window N]
 *            [--workers N] [--compare] [--expect LOSS] [--like-c X] [--times]
 *            [--comm mpi | --comm nccl --rank N --world N --id-file FILE] [--like-one X]      (--help says more)
 *
 * On a GPU the model computes there, if nvcc built it in; on the simulated device a function queued on its stream does
 * in plain C what a kernel would; on the cpu it is called. --compare trains once more with the ordinary loop - read,
 * copy, wait - and once on a batch that is already there, and says how much of the time each loop lost to waiting for
 * data. A shard is one of llm.c's, such as `tdict-bench loader --shard FILE` writes; its tokens come as 64-bit numbers.
 * With --comm, several processes train one model, see parallel.h.
 * The exit status is 0, or 1 when something failed, the last loss is not below --expect, or another training is further
 * from it than --like-c or --like-one allows; 77 when --device names a device that is not there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tdict/sampler.h>
#include <tdict/sim.h>
#include <tdict/tokens.h>

#include "model.h"
#include "parallel/parallel.h"
#include "text.h"

enum { CHOOSE = -1, NO_SUCH_DEVICE = 77 }; /* 77: ctest takes the run for skipped */

typedef struct trainer {
  const char *device, *text, *shard;
  int64_t steps, rows, window, workers; /* rows: of this process */
  double expect, like_c, like_one;      /* negative: not asked */
  bool compare, times;
  parallel part;
  tdict_context *context;
  tdict_device place;
  tdict_stream stream;
  const lm_maker *maker;
  lm_model *model;
  bool failed;  /* a function on the simulated stream */
  bool skipped; /* the device is not there */
} trainer;

/* What one way of training took. */
typedef struct result {
  double seconds, waiting, computing, reducing; /* in all; in getting batches; in steps; in averaging gradients */
  float first, last;                            /* mean losses of the first and last tenth */
  float *losses;                                /* of all steps, or NULL */
} result;

static tdict_error err;

/* Each size is a multiple of 256 bytes, which is the alignment of leaves in a message. The library therefore sends the
 * model's own memory, without a copy. */
static const parallel_leaf leaves[] = {
    {"table", LM_TABLE, 2, {LM_VOCAB, LM_EMBED}},
    {"w1", LM_W1, 2, {LM_INPUT, LM_HIDDEN}},
    {"b1", LM_B1, 1, {LM_HIDDEN}},
    {"w2", LM_W2, 2, {LM_HIDDEN, LM_HIDDEN}},
    {"b2", LM_B2, 1, {LM_HIDDEN}},
    {"w3", LM_W3, 2, {LM_HIDDEN, LM_VOCAB}},
    {"b3", LM_B3, 1, {LM_VOCAB}},
};
static const parallel_layout layout = {leaves, sizeof leaves / sizeof leaves[0], LM_PARAMETERS};

static bool ok(tdict_status status, const char *what) {
  if (status == TDICT_OK) return true;
  fprintf(stderr, "train_lm: %s%s%s: %s: %s\n", what, err.path[0] ? " " : "", err.path, tdict_status_name(status),
          err.message);
  return false;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The same parameters on every machine. */
static void first_parameters(float *out) {
  uint64_t state = 88172645463325252;
  for (int i = 0; i < LM_PARAMETERS; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    double even = (double)(state >> 11) / 9007199254740992.0 - 0.5;
    int inputs = i < LM_W1 ? 4 : LM_HIDDEN; /* uniform, of a variance that keeps sums near 1 */
    bool bias = (i >= LM_B1 && i < LM_W2) || (i >= LM_B2 && i < LM_W3) || i >= LM_B3;
    out[i] = bias ? 0 : (float)(even * sqrt(12.0 / inputs) * 0.6);
  }
}

static bool open_data(const trainer *t, tdict_dataset **out) {
  if (!t->shard) return ok(text_dataset(t->text, t->window, out, &err), "the text");
  tdict_token_options o = tdict_token_options_default();
  o.paths = &t->shard;
  o.num_paths = 1;
  o.window = t->window;
  return ok(tdict_dataset_from_tokens(&o, out, &err), "the shard");
}

static tdict_loader_options loader_options(const trainer *t) {
  tdict_loader_options o = tdict_loader_options_default();
  o.batch_size = t->rows;
  o.num_workers = (int32_t)t->workers;
  o.shuffle = true;
  o.seed = 1;
  o.drop_last = true;
  o.endless = true;
  o.rank = (int32_t)t->part.rank;
  o.world_size = (int32_t)t->part.world;
  return o;
}

/* On the simulated device the step runs where a kernel would, on the bytes behind the addresses. */
typedef struct queued {
  trainer *t;
  lm_batch batch;
} queued;
static void run_queued(void *user) {
  queued *q = user;
  lm_batch b = q->batch;
  b.tokens = tdict_sim_host_pointer(q->t->stream, b.tokens);
  b.targets = tdict_sim_host_pointer(q->t->stream, b.targets);
  if (!b.tokens || !b.targets || !q->t->maker->back(q->t->model, &b, NULL)) q->t->failed = true;
}

static tdict_stream stream_of(const trainer *t) {
  return t->place.type == TDICT_DEVICE_CPU ? tdict_no_stream() : t->stream;
}

static const void *address(const tdict_tree *batch, const char *path) {
  tdict_tensor *tensor;
  tdict_tensor_desc view = tdict_tensor_desc_default();
  if (!ok(tdict_get(batch, path, &tensor, &err), path)) return NULL;
  tdict_tensor_get_desc(tensor, &view);
  return view.data;
}

/* Queues the gradients of a batch. On the simulated device, waits for them. */
static bool compute(trainer *t, const tdict_tree *batch) {
  queued q = {t, {address(batch, "tokens"), address(batch, "targets"), t->rows, t->window}};
  if (!q.batch.tokens || !q.batch.targets) return false;
  if (t->place.type != TDICT_DEVICE_SIM) return t->maker->back(t->model, &q.batch, t->stream.handle);
  return ok(tdict_sim_launch(t->stream, run_queued, &q, &err), "a launch") &&
         ok(tdict_stream_synchronize(t->context, t->stream, &err), "a step") && !t->failed;
}

/* One step on a batch, and its loss. */
static bool train_on(trainer *t, const tdict_tree *batch, float *loss, result *r) {
  const double begin = now();
  if (!compute(t, batch)) return false;
  /* Without this wait, the time of the average would contain the work that is queued. */
  if (t->times && !t->maker->finish(t->model, t->stream.handle, loss)) return false;
  const double computed = now();
  if (t->part.comm && !ok(parallel_average(&t->part, stream_of(t), &err), "the mean gradients")) return false;
  const double averaged = now();
  if (!t->maker->update(t->model, t->stream.handle) || !t->maker->finish(t->model, t->stream.handle, loss))
    return false;
  r->reducing += averaged - computed;
  r->computing += now() - begin - (averaged - computed);
  return true;
}

/* With several processes, only rank 0 makes weights, and the other ranks receive them. */
static bool new_model(trainer *t) {
  float parameters[LM_PARAMETERS] = {0};
  if (t->part.rank == 0) first_parameters(parameters);
  parallel_disconnect(&t->part);
  t->maker->destroy(t->model);
  t->model = t->maker->create(t->place.index, t->rows * t->window, parameters);
  if (!t->model) fprintf(stderr, "train_lm: no memory for the model\n");
  if (!t->model || !t->part.kind) return t->model != NULL;
  const lm_arrays *arrays = t->maker->arrays(t->model);
  t->part.layout = &layout;
  t->part.device = t->maker == &lm_cpu ? tdict_cpu() : t->place;
  return ok(parallel_connect(&t->part, arrays->parameters, arrays->gradients, &err), "--comm");
}

static void note(const trainer *t, int64_t step, float loss, result *r) {
  int64_t tenth = t->steps < 10 ? 1 : t->steps / 10;
  if (step < tenth) r->first += loss / (float)tenth;
  if (step >= t->steps - tenth) r->last += loss / (float)tenth;
  if (r->losses) r->losses[step] = loss;
}

static bool has_batch(const trainer *t, int64_t samples) {
  const int64_t rows = t->rows * t->part.world;
  if (samples >= rows) return true;
  fprintf(stderr, "train_lm: a batch of %lld windows, and the %s has %lld\n", (long long)rows,
          t->shard ? "shard" : "text", (long long)samples);
  return false;
}

static int64_t length_of(const tdict_dataset *data) {
  const tdict_dataset_table *table = tdict_dataset_get_table(data);
  return table->length(table->self);
}

static bool with_loader(trainer *t, bool talk, result *r) {
  tdict_dataset *data = NULL;
  tdict_loader *loader = NULL;
  tdict_loader_options o = loader_options(t);
  if (!new_model(t) || !open_data(t, &data)) return false;
  o.device = t->place;
  bool good =
      has_batch(t, length_of(data)) && ok(tdict_loader_create(t->context, data, &o, &loader, &err), "the loader");
  tdict_dataset_release(data);
  double begin = now();
  for (int64_t step = 0; step < t->steps && good; step++) {
    tdict_tree *batch;
    float loss = 0;
    double asked = now();
    good = ok(tdict_loader_next(loader, stream_of(t), &batch, &err), "a batch");
    r->waiting += now() - asked;
    if (!good) break;
    good = train_on(t, batch, &loss, r);
    tdict_release(batch);
    note(t, step, loss, r);
    if (talk && (step % (t->steps < 10 ? 1 : t->steps / 10) == 0 || step + 1 == t->steps))
      printf("step %5lld  loss %.4f\n", (long long)step, (double)loss);
  }
  r->seconds = now() - begin;
  tdict_loader_destroy(loader);
  return good;
}

/* The ordinary loop: the same samples in the same order, read, copied and waited for while the model waits. */
typedef struct naive {
  trainer t;
  tdict_dataset *data;
  tdict_sampler *sampler;
  tdict_tree *host;
  int64_t *indices;
} naive;

static bool read_batch(naive *n, int64_t step) {
  int64_t rows = n->t.rows, each = tdict_sampler_length(n->sampler) / rows;
  for (int64_t i = 0; i < rows; i++) n->indices[i] = tdict_sampler_get(n->sampler, step / each, step % each * rows + i);
  const tdict_dataset_table *d = tdict_dataset_get_table(n->data);
  const tdict_fetch_info info = tdict_fetch_info_default();
  if (d->fetch_batch) return ok(d->fetch_batch(d->self, &info, n->indices, rows, n->host, &err), "samples");
  for (int64_t i = 0; i < rows; i++)
    if (!ok(d->fetch(d->self, &info, n->indices[i], n->host, i, &err), "a sample")) return false;
  return true;
}

static bool naive_steps(naive *n, result *r) {
  tdict_transfer_options blocking = tdict_transfer_options_default();
  blocking.mode = TDICT_MODE_BLOCKING;
  double begin = now();
  bool good = true;
  for (int64_t step = 0; step < n->t.steps && good; step++) {
    tdict_tree *batch = NULL;
    float loss = 0;
    double asked = now();
    good = read_batch(n, step) &&
           ok(tdict_to_device(n->t.context, n->host, n->t.place, &blocking, &batch, &err), "a copy");
    r->waiting += now() - asked;
    good = good && train_on(&n->t, batch, &loss, r);
    tdict_release(batch);
    note(&n->t, step, loss, r);
  }
  r->seconds = now() - begin;
  return good;
}

static bool new_batch(naive *n) {
  const tdict_dataset_table *d = tdict_dataset_get_table(n->data);
  return ok(tdict_create_from(d->fields, d->num_fields, 1, &n->t.rows, NULL, &n->host, &err), "a batch");
}

static bool without_loader(trainer *t, result *r) {
  naive n = {.t = *t};
  tdict_sampler_options so = tdict_sampler_options_default();
  n.t.model = NULL;
  so.kind = TDICT_SAMPLER_SHUFFLED;
  so.seed = 1;
  bool good = new_model(&n.t) && open_data(t, &n.data);
  n.indices = calloc((size_t)t->rows, sizeof *n.indices);
  good = good && n.indices && ok(tdict_sampler_create(length_of(n.data), &so, &n.sampler, &err), "the sampler") &&
         new_batch(&n) && naive_steps(&n, r);
  t->maker->destroy(n.t.model);
  tdict_release(n.host);
  tdict_sampler_release(n.sampler);
  tdict_dataset_release(n.data);
  free(n.indices);
  return good;
}

/* The steps alone: one batch that is there already, again and again. */
static bool without_data(trainer *t, result *r) {
  tdict_dataset *data = NULL;
  tdict_loader *loader = NULL;
  tdict_loader_options o = loader_options(t);
  tdict_tree *batch = NULL;
  float loss;
  o.device = t->place;
  o.num_workers = 0;
  if (!new_model(t) || !open_data(t, &data)) return false;
  bool good = ok(tdict_loader_create(t->context, data, &o, &loader, &err), "the loader") &&
              ok(tdict_loader_next(loader, tdict_no_stream(), &batch, &err), "a batch") && train_on(t, batch, &loss, r);
  tdict_dataset_release(data);
  double begin = now();
  for (int64_t step = 0; step < t->steps && good; step++) good = train_on(t, batch, &loss, r);
  r->seconds = now() - begin;
  tdict_release(batch);
  tdict_loader_destroy(loader);
  return good;
}

static void report(const trainer *t, const char *how, const result *r, const result *alone) {
  double tokens = (double)(t->steps * t->rows * t->part.world * t->window);
  printf("%-14s %8.3f s  %10.0f tokens/s  last loss %.4f  in calls for batches %5.2f %%", how, r->seconds,
         tokens / r->seconds, (double)r->last, 100 * r->waiting / r->seconds);
  if (alone) printf("  lost to data %5.2f %%", 100 * (r->seconds - alone->seconds) / r->seconds);
  putchar('\n');
}

static void report_times(const trainer *t, const result *r) {
  const double ms = 1e3 / (double)t->steps;
  if (t->times)
    printf("a step of %lld process%s %.3f ms: load %.3f, compute %.3f, all-reduce %.3f\n", (long long)t->part.world,
           t->part.world == 1 ? "  " : "es", r->seconds * ms, r->waiting * ms, r->computing * ms, r->reducing * ms);
}

/* Conclusive when steps are short and the ordinary loop does wait. */
static bool compare(trainer *t, const result *loader) {
  result plain = {0}, alone = {0}, again = {0};
  if (!without_data(t, &alone) || !without_loader(t, &plain) || !with_loader(t, false, &again)) return false;
  double step_ms = 1e3 * alone.seconds / (double)t->steps, waits = (plain.seconds - alone.seconds) / plain.seconds;
  if (again.seconds > loader->seconds) again = *loader;
  report(t, "with loader", &again, &alone);
  report(t, "ordinary loop", &plain, &alone);
  printf("a step alone takes %.3f ms: %s\n", step_ms,
         step_ms <= 3 && waits >= 0.2 ? "conclusive"
                                      : "not conclusive: wanted at most 3 ms, and an ordinary loop that "
                                        "loses at least 20 %");
  return true;
}

/* The same steps in plain C, with batches on the cpu: the last losses must be near each other. */
static bool is_like_c(const trainer *given, const result *r) {
  trainer t = *given;
  result plain = {0};
  t.place = tdict_cpu();
  t.maker = &lm_cpu;
  t.model = NULL;
  bool good = with_loader(&t, false, &plain);
  t.maker->destroy(t.model);
  if (!good) return false;
  double apart = fabs((double)r->last - (double)plain.last);
  printf("in plain C     last loss %.4f\n", (double)plain.last);
  if (apart <= t.like_c) return true;
  fprintf(stderr, "train_lm: the last losses are %.4f apart, wanted at most %.4f\n", apart, t.like_c);
  return false;
}

/* Rank 0 trains once more alone, with the whole batches: the losses of each step must be near each other. */
static bool is_like_one(const trainer *given, const result *r) {
  trainer t = *given;
  result alone = {.losses = calloc((size_t)t.steps, sizeof *alone.losses)};
  double most = 0;
  t.rows *= t.part.world;
  t.part = (parallel){.world = 1};
  t.model = NULL;
  bool good = alone.losses && with_loader(&t, false, &alone);
  t.maker->destroy(t.model);
  for (int64_t i = 0; good && i < t.steps; i++) most = fmax(most, fabs((double)r->losses[i] - (double)alone.losses[i]));
  free(alone.losses);
  if (!good) return false;
  report_times(&t, &alone);
  printf("last loss of %lld processes %.7f, of one process %.7f; losses of a step at most %.2g apart\n",
         (long long)given->part.world, (double)r->last, (double)alone.last, most);
  if (most <= t.like_one) return true;
  fprintf(stderr, "train_lm: losses of a step are %.2g apart, wanted at most %.2g\n", most, t.like_one);
  return false;
}

static bool open_place(trainer *t) {
  tdict_status status = parallel_open_context(&t->part, t->device, NULL, &err);
  t->context = t->part.context;
  t->skipped = status == TDICT_ENODEVICE;
  if (!ok(status, "the context")) return false;
  t->place = tdict_context_device(t->context, NULL);
  t->maker = &lm_cpu;
#ifdef TRAIN_LM_CUDA
  if (t->place.type == TDICT_DEVICE_CUDA) t->maker = &lm_cuda;
#else
  if (t->place.type == TDICT_DEVICE_CUDA) t->place = tdict_cpu(); /* the data could go there, the model cannot */
#endif
  if (t->place.type != TDICT_DEVICE_CPU && !ok(tdict_stream_create(t->context, t->place, &t->stream, &err), "a stream"))
    return false;
  char name[32];
  if (t->part.rank > 0) return true;
  printf("train_lm: %lld steps of %lld x %lld tokens, data to %s, the model in %s", (long long)t->steps,
         (long long)(t->rows * t->part.world), (long long)t->window, tdict_device_format(t->place, name, sizeof name),
         t->maker->name);
  if (t->part.kind) printf(", %lld processes", (long long)t->part.world);
  putchar('\n');
  return true;
}

static int usage(FILE *where) {
  fprintf(
      where,
      "usage: train_lm [--device auto|cpu|sim|cuda:N] [--text FILE | --shard FILE] [--steps N] [--rows N]\n"
      "                [--window N] [--workers N] [--compare] [--expect LOSS] [--like-c X] [--times]\n"
      "                [--comm mpi | --comm nccl --rank N --world N --id-file FILE] [--like-one X]\n"
      "  --device D     where batches go, and the model if it can: auto (default: cuda:0, or the simulated device\n"
      "                 where there is none), cpu, sim, cuda:N\n"
      "  --text FILE    what is learned, a byte a token (the text.txt that comes with the program)\n"
      "  --shard FILE   a shard of tokens instead of a text, as llm.c or tdict-bench loader writes it\n"
      "  --steps N      batches to train on (200)\n"
      "  --rows N       windows in a batch (8 of the text, 256 of a shard)\n"
      "  --window N     tokens in a window (64 of the text, 1024 of a shard)\n"
      "  --workers N    threads of the loader (2 for the text, 4 for a shard)\n"
      "  --compare      then the same with the ordinary loop, and on one batch that is there: what each loop\n"
      "                 loses to data; conclusive with steps of at most 3 ms and an ordinary loop that loses 20 %%\n"
      "  --expect LOSS  exit with 1 unless the last loss is below it\n"
      "  --like-c X     then the same in plain C on the cpu; exit with 1 unless its last loss is at most X away\n"
      "  --times        prints the parts of a step: waiting for data, computing, and averaging gradients, which\n"
      "                 includes waiting for other processes\n"
      "  --comm KIND    several processes, each with an equal part of the rows of a batch. mpi: start with mpirun the\n"
      "                 program that is built for this MPI. nccl: start each process with its --rank, the number of\n"
      "                 processes --world, and a new --id-file. --device cuda is then another GPU for each process\n"
      "  --like-one X   then the same in one process; exit with 1 unless the losses of each step are at most X\n"
      "                 apart\n");
  return where == stdout ? 0 : 2;
}

static bool read_arguments(trainer *t, int argc, char **argv) {
  struct {
    const char *name, **text;
    int64_t *number;
  } known[] = {
      {"--device", &t->device, NULL},   {"--text", &t->text, NULL},       {"--shard", &t->shard, NULL},
      {"--steps", NULL, &t->steps},     {"--rows", NULL, &t->rows},       {"--window", NULL, &t->window},
      {"--workers", NULL, &t->workers}, {"--comm", &t->part.kind, NULL},  {"--id-file", &t->part.id_file, NULL},
      {"--rank", NULL, &t->part.rank},  {"--world", NULL, &t->part.world}};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--compare") == 0 || strcmp(argv[i], "--times") == 0) {
      *(argv[i][2] == 'c' ? &t->compare : &t->times) = true;
      continue;
    }
    if (i == 1 && argv[i][0] != '-') { /* a device alone, as the other examples take it */
      t->device = argv[i];
      continue;
    }
    if (i + 1 == argc) return false;
    const char *value = argv[++i];
    size_t k = 0;
    while (k < sizeof known / sizeof known[0] && strcmp(argv[i - 1], known[k].name) != 0) k++;
    if (k < sizeof known / sizeof known[0] && known[k].text)
      *known[k].text = value;
    else if (k < sizeof known / sizeof known[0])
      *known[k].number = atoll(value);
    else if (strcmp(argv[i - 1], "--expect") == 0)
      t->expect = atof(value);
    else if (strcmp(argv[i - 1], "--like-c") == 0)
      t->like_c = atof(value);
    else if (strcmp(argv[i - 1], "--like-one") == 0)
      t->like_one = atof(value);
    else
      return false;
  }
  bool small = !t->shard;
  if (t->rows == 0) t->rows = small ? 8 : 256;
  if (t->window == 0) t->window = small ? 64 : 1024;
  if (t->workers == CHOOSE) t->workers = small ? 2 : 4;
  if (t->part.kind ? t->compare || t->like_c >= 0 : t->like_one >= 0) return false; /* the others are for one process */
  return t->steps > 0 && t->rows > 0 && t->window > 0 && t->workers >= 0;
}

/* All that the options ask for. */
static bool train(trainer *t, result *r) {
  const bool talks = t->part.rank == 0;
  bool good = with_loader(t, talks, r);
  if (!good) tdict_comm_abort(t->part.comm); /* other ranks may wait for this one */
  parallel_disconnect(&t->part);
  if (!good || !talks) return good;
  report(t, "with loader", r, NULL);
  report_times(t, r);
  if (t->compare) good = compare(t, r);
  if (good && t->like_c >= 0) good = is_like_c(t, r);
  if (good && t->like_one >= 0) good = is_like_one(t, r);
  if (good && t->expect > 0 && !((double)r->last < t->expect)) {
    fprintf(stderr, "train_lm: the last loss is %.4f, wanted below %.4f\n", (double)r->last, t->expect);
    good = false;
  }
  return good;
}

int main(int argc, char **argv) {
  trainer t = {.device = "auto",
               .text = TRAIN_LM_TEXT,
               .steps = 200,
               .workers = CHOOSE,
               .like_c = -1,
               .like_one = -1,
               .part = {.program = "train_lm", .world = 1}};
  result r = {0};
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout);
  if (!read_arguments(&t, argc, argv)) return usage(stderr);
  bool good = parallel_begin(&t.part, &argc, &argv) && parallel_divide_rows(&t.part, &t.rows) && open_place(&t);
  if (good && t.like_one >= 0) good = (r.losses = calloc((size_t)t.steps, sizeof *r.losses)) != NULL;
  good = good && train(&t, &r);
  free(r.losses);
  if (t.maker) t.maker->destroy(t.model);
  if (t.context && t.stream.handle) tdict_stream_destroy(t.context, t.stream);
  tdict_context_destroy(t.context);
  const int status = good ? 0 : t.skipped ? NO_SUCH_DEVICE : 1;
  parallel_end(&t.part, status);
  return status;
}
