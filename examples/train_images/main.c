/* train_images: trains a small convolutional network on image files, with batches from a tdict_loader.
 *
 *   train_images --images FOLDER [--device auto|cpu|sim|cuda:N] [--epochs N] [--rows N] [--workers N]
 *                [--expect PERCENT] [--save FILE [--save-every N]] [--resume FILE] [--losses] [--skip-bad]
 *                [--comm mpi | --comm nccl --rank N --world N --id-file FILE]       (--help says more)
 *
 * make_digits.py writes the files. data.c has the path of the images from the files to the device. On a GPU, the
 * network computes in CUDA if the build found nvcc. On the simulated device, a function that is queued on its stream
 * computes in plain C what a kernel would compute. With --comm, several processes train one network, see parallel.h.
 *
 * A training that was killed continues with --resume at its last checkpoint, also in the middle of an epoch. All later
 * losses are the same, bit for bit, as without the kill. The script kill_and_resume compares them.
 *
 * The exit status is 0; 1 if something failed, or fewer test images than --expect were recognized; 2 if an argument is
 * wrong; 77 if the device of --device does not exist. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tdict/random.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>

#include "data.h"
#include "model.h"
#include "parallel/parallel.h"

enum { NO_SUCH_DEVICE = 77 }; /* ctest takes the run for skipped */

typedef struct trainer {
  const char *device, *images, *save, *resume;
  int64_t epochs, rows, workers, save_every; /* rows: of this process */
  int64_t expect;                            /* percent */
  bool losses, skips_bad;
  parallel part;
  tdict_context *context;
  tdict_device place;
  tdict_stream stream;
  const net_maker *maker;
  net_model *model;
  tdict_tree *state; /* what a checkpoint holds */
  tdict_loader *loader, *tests;
  int64_t step, num_tests, num_right; /* num_right: of the last test */
  bool failed;                        /* a function on the simulated stream */
  bool skipped;                       /* the device is not there */
} trainer;

static tdict_error err;

static const parallel_leaf leaves[] = {
    {"conv1.weight", NET_W1, 3, {NET_K1, NET_K1, NET_C1}},         {"conv1.bias", NET_B1, 1, {NET_C1}},
    {"conv2.weight", NET_W2, 4, {NET_K2, NET_K2, NET_C1, NET_C2}}, {"conv2.bias", NET_B2, 1, {NET_C2}},
    {"linear.weight", NET_W3, 2, {NET_INNER, NET_CLASSES}},        {"linear.bias", NET_B3, 1, {NET_CLASSES}},
};
static const parallel_layout layout = {leaves, sizeof leaves / sizeof leaves[0], NET_PARAMETERS};

static bool ok(tdict_status status, const char *what) {
  if (status == TDICT_OK) return true;
  fprintf(stderr, "train_images: %s%s%s: %s: %s\n", what, err.path[0] ? " " : "", err.path, tdict_status_name(status),
          err.message);
  return false;
}

static tdict_stream stream_of(const trainer *t) {
  return t->place.type == TDICT_DEVICE_CPU ? tdict_no_stream() : t->stream;
}

/* ---- the model ---- */

/* Writes the same parameters on every machine: uniform, with a variance that depends on the inputs of the layer. */
static void first_parameters(float *out) {
  static const struct {
    int weights, biases, end, inputs;
  } layers[] = {{NET_W1, NET_B1, NET_W2, NET_K1 * NET_K1},
                {NET_W2, NET_B2, NET_W3, NET_K2 * NET_K2 * NET_C1},
                {NET_W3, NET_B3, NET_PARAMETERS, NET_INNER}};
  tdict_random random = tdict_random_from(1);
  for (int k = 0; k < 3; k++) {
    const double most = sqrt(3.0 / layers[k].inputs);
    for (int i = layers[k].weights; i < layers[k].biases; i++)
      out[i] = (float)((2 * tdict_random_uniform(&random) - 1) * most);
    for (int i = layers[k].biases; i < layers[k].end; i++) out[i] = 0;
  }
}

/* Only rank 0 makes parameters, and the other ranks receive them. */
static bool make_model(trainer *t) {
  float parameters[NET_PARAMETERS] = {0};
  if (t->part.rank == 0) first_parameters(parameters);
  t->model = t->maker->create(t->place.index, t->rows, parameters);
  if (!t->model) fprintf(stderr, "train_images: no memory for the model\n");
  if (!t->model || !t->part.kind) return t->model != NULL;
  const net_arrays *arrays = t->maker->arrays(t->model);
  return ok(parallel_connect(&t->part, arrays->parameters, arrays->gradients, &err), "--comm");
}

/* On the simulated device the network computes where a kernel would, on the bytes behind the addresses. */
typedef struct queued {
  trainer *t;
  net_batch batch;
} queued;
static void run_queued(void *user) {
  queued *q = user;
  net_batch b = q->batch;
  b.images = tdict_sim_host_pointer(q->t->stream, b.images);
  b.labels = tdict_sim_host_pointer(q->t->stream, b.labels);
  if (!b.images || !b.labels || !q->t->maker->back(q->t->model, &b, NULL)) q->t->failed = true;
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
  queued q = {t, {address(batch, "image"), address(batch, "label"), tdict_batch_size(batch)[0]}};
  if (!q.batch.images || !q.batch.labels) return false;
  if (t->place.type != TDICT_DEVICE_SIM) return t->maker->back(t->model, &q.batch, t->stream.handle);
  return ok(tdict_sim_launch(t->stream, run_queued, &q, &err), "a launch") &&
         ok(tdict_stream_synchronize(t->context, t->stream, &err), "a step") && !t->failed;
}

/* ---- checkpoints ---- */

static bool add_array(trainer *t, const char *name, float *array) {
  tdict_tree *tree = NULL;
  const bool good = ok(parallel_make_tree(&layout, array, t->part.device, false, &tree, &err), name) &&
                    ok(tdict_set_tree(t->state, name, tree, &err), name);
  tdict_release(tree);
  return good;
}

/* Makes the tree of a checkpoint. Its floats are the arrays of the model. */
static bool make_state(trainer *t) {
  static const tdict_field fields[] = {TDICT_FIELD("step", TDICT_I64),
                                       TDICT_FIELD("loader", TDICT_U8, sizeof(tdict_loader_state))};
  const net_arrays *arrays = t->maker->arrays(t->model);
  return ok(tdict_create_from(fields, 2, 0, NULL, NULL, &t->state, &err), "the state") &&
         add_array(t, "model", arrays->parameters) && add_array(t, "first", arrays->first) &&
         add_array(t, "second", arrays->second);
}

static bool save(trainer *t) {
  tdict_loader_state position = tdict_loader_state_default();
  if (!ok(tdict_loader_get_state(t->loader, &position, &err), "the loader")) return false;
  memcpy(tdict_data(t->state, "loader"), &position, sizeof position);
  *(int64_t *)tdict_data(t->state, "step") = t->step;
  return ok(tdict_save(t->context, t->save, t->state, NULL, &err), "the checkpoint");
}

/* All ranks read the checkpoint of rank 0. */
static bool resume(trainer *t) {
  tdict_loader_state position;
  tdict_future *load;
  if (!ok(tdict_load_into_async(t->context, t->state, t->resume, NULL, &load, &err), "the checkpoint") ||
      !ok(tdict_future_take(load, NULL, &err), "the checkpoint"))
    return false;
  memcpy(&position, tdict_const_data(t->state, "loader"), sizeof position);
  t->step = *(const int64_t *)tdict_const_data(t->state, "step");
  if (t->part.rank == 0)
    printf("resumed after step %lld, at epoch %lld, batch %lld\n", (long long)t->step, (long long)position.epoch,
           (long long)position.batch);
  return ok(tdict_loader_set_state(t->loader, &position, &err), "the loader");
}

/* ---- training ---- */

static bool open_list(const trainer *t, const char *list, tdict_loader_options options, tdict_loader **out) {
  if (!ok(open_images(t->context, t->images, list, options, out, &err), "the images")) return false;
  if (tdict_loader_length(*out) > 0) return true;
  fprintf(stderr, "train_images: %s/%s has no batch of %lld images\n", t->images, list, (long long)t->rows);
  return false;
}

static bool make_loaders(trainer *t) {
  tdict_loader_options o = tdict_loader_options_default();
  o.batch_size = t->rows;
  o.num_workers = (int32_t)t->workers;
  o.device = t->place;
  o.on_error = t->skips_bad ? TDICT_ON_ERROR_SKIP_SAMPLE : TDICT_ON_ERROR_FAIL;
  if (t->part.rank == 0 && !open_list(t, "test.txt", o, &t->tests)) return false;
  o.shuffle = true;
  o.seed = 1;
  o.drop_last = true;
  o.rank = (int32_t)t->part.rank;
  o.world_size = (int32_t)t->part.world;
  return open_list(t, "train.txt", o, &t->loader);
}

static bool train_on(trainer *t, const tdict_tree *batch) {
  float loss, right;
  tdict_batch_info info = tdict_batch_info_default();
  if (!compute(t, batch)) return false;
  if (t->part.comm && !ok(parallel_average(&t->part, stream_of(t), &err), "the mean gradients")) return false;
  t->step++;
  if (!t->maker->update(t->model, t->step, t->stream.handle) ||
      !t->maker->finish(t->model, t->stream.handle, &loss, &right) ||
      !ok(tdict_loader_get_batch_info(t->loader, &info, &err), "the loader"))
    return false;
  if (t->part.rank > 0) return true;
  if (t->losses)
    printf("step %lld  epoch %lld  batch %lld  loss %.9g\n", (long long)t->step, (long long)info.epoch,
           (long long)info.batch, (double)loss);
  return !t->save || (info.batch + 1) % t->save_every != 0 || save(t);
}

/* Counts the test images that the network recognizes. Only rank 0 has them. */
static bool test(trainer *t, int64_t epoch) {
  tdict_tree *batch;
  t->num_tests = t->num_right = 0;
  for (;;) {
    float loss, right;
    if (!ok(tdict_loader_next(t->tests, stream_of(t), &batch, &err), "a test batch")) return false;
    if (!batch) break;
    t->num_tests += tdict_batch_size(batch)[0];
    const bool good = compute(t, batch) && t->maker->finish(t->model, t->stream.handle, &loss, &right);
    tdict_release(batch);
    if (!good) return false;
    t->num_right += (int64_t)right;
  }
  printf("epoch %lld: recognizes %.2f %% of %lld test images\n", (long long)epoch,
         100.0 * (double)t->num_right / (double)t->num_tests, (long long)t->num_tests);
  return true;
}

static bool train(trainer *t) {
  tdict_loader_state position = tdict_loader_state_default();
  tdict_tree *batch;
  while (ok(tdict_loader_get_state(t->loader, &position, &err), "the loader") && position.epoch < t->epochs) {
    if (!ok(tdict_loader_next(t->loader, stream_of(t), &batch, &err), "a batch")) return false;
    const bool good = batch ? train_on(t, batch) : t->part.rank > 0 || test(t, position.epoch);
    tdict_release(batch);
    if (!good) return false;
  }
  return position.epoch >= t->epochs;
}

static void report_skipped(const trainer *t) {
  tdict_loader_stats stats = tdict_loader_stats_default();
  if (t->loader && tdict_loader_get_stats(t->loader, &stats, &err) == TDICT_OK && stats.num_skipped_samples > 0)
    printf("rank %lld has skipped %lld image%s\n", (long long)t->part.rank, (long long)stats.num_skipped_samples,
           stats.num_skipped_samples == 1 ? "" : "s");
}

static bool is_as_expected(const trainer *t) {
  const double percent = t->num_tests ? 100.0 * (double)t->num_right / (double)t->num_tests : 0;
  if (t->part.rank > 0 || percent >= (double)t->expect) return true;
  fprintf(stderr, "train_images: recognizes %.2f %% of the test images, wanted %lld %%\n", percent,
          (long long)t->expect);
  return false;
}

static bool run(trainer *t) {
  bool good = make_model(t) && make_state(t) && make_loaders(t) && (!t->resume || resume(t)) && train(t);
  report_skipped(t);
  if (!good) tdict_comm_abort(t->part.comm); /* other ranks may wait for this one */
  tdict_loader_destroy(t->tests);
  tdict_loader_destroy(t->loader);
  tdict_release(t->state);
  parallel_disconnect(&t->part);
  t->maker->destroy(t->model);
  return good && is_as_expected(t);
}

/* ---- the program ---- */

/* Prints which images the loader skips. */
static void print_warning(void *user, int32_t level, const char *text) {
  (void)user;
  if (level <= TDICT_LOG_WARNING) fprintf(stderr, "train_images: %s\n", text);
}

static bool open_place(trainer *t) {
  tdict_status status = parallel_open_context(&t->part, t->device, print_warning, &err);
  t->context = t->part.context;
  t->skipped = status == TDICT_ENODEVICE;
  if (!ok(status, "the context")) return false;
  t->place = tdict_context_device(t->context, NULL);
  t->maker = &net_cpu;
#ifdef TRAIN_IMAGES_CUDA
  if (t->place.type == TDICT_DEVICE_CUDA) t->maker = &net_cuda;
#else
  if (t->place.type == TDICT_DEVICE_CUDA) t->place = tdict_cpu(); /* the images could go there, the model cannot */
#endif
  t->part.layout = &layout;
  t->part.device = t->maker == &net_cpu ? tdict_cpu() : t->place;
  return t->place.type == TDICT_DEVICE_CPU ||
         ok(tdict_stream_create(t->context, t->place, &t->stream, &err), "a stream");
}

static void print_settings(const trainer *t) {
  char name[32];
  if (t->part.rank > 0) return;
  printf("train_images: batches of %lld images to %s, the network in %s, %lld rank%s, process %ld\n",
         (long long)(t->rows * t->part.world), tdict_device_format(t->place, name, sizeof name), t->maker->name,
         (long long)t->part.world, t->part.world == 1 ? "" : "s", (long)getpid());
}

static int usage(FILE *where) {
  fprintf(
      where,
      "usage: train_images --images FOLDER [--device auto|cpu|sim|cuda:N] [--epochs N] [--rows N] [--workers N]\n"
      "                    [--expect PERCENT] [--save FILE [--save-every N]] [--resume FILE] [--losses] [--skip-bad]\n"
      "                    [--comm mpi | --comm nccl --rank N --world N --id-file FILE]\n"
      "  --images FOLDER   what make_digits.py has written: images of 12 x 12 pixels, and the lists train.txt and\n"
      "                    test.txt, with the name of a file and its digit in each line\n"
      "  --device D        where batches go, and the network if it can: auto (default: cuda:0, or the simulated\n"
      "                    device where there is none), cpu, sim, cuda:N\n"
      "  --epochs N        how often all images are seen (20)\n"
      "  --rows N          images in a batch (32), of all processes together\n"
      "  --workers N       threads of the loader (2)\n"
      "  --expect PERCENT  exit with 1 unless at least this part of the test images is recognized in the end\n"
      "  --save FILE       a checkpoint, which is replaced while the program trains\n"
      "  --save-every N    saves after each N batches of an epoch (5)\n"
      "  --resume FILE     continues after the batch at which the checkpoint was saved\n"
      "  --losses          prints the loss of each batch with all its digits\n"
      "  --skip-bad        takes the next image instead of one that cannot be read\n"
      "  --comm KIND       several processes, each with an equal part of the rows of a batch. mpi: start with mpirun\n"
      "                    the program that is built for this MPI. nccl: start each process with its --rank, the\n"
      "                    number of processes --world, and a new --id-file. --device cuda is then another GPU for\n"
      "                    each process\n");
  return where == stdout ? 0 : 2;
}

static bool read_arguments(trainer *t, int argc, char **argv) {
  struct {
    const char *name, **text;
    int64_t *number;
    bool *flag;
  } known[] = {{"--images", &t->images, NULL, NULL},         {"--device", &t->device, NULL, NULL},
               {"--epochs", NULL, &t->epochs, NULL},         {"--rows", NULL, &t->rows, NULL},
               {"--workers", NULL, &t->workers, NULL},       {"--save", &t->save, NULL, NULL},
               {"--save-every", NULL, &t->save_every, NULL}, {"--resume", &t->resume, NULL, NULL},
               {"--losses", NULL, NULL, &t->losses},         {"--skip-bad", NULL, NULL, &t->skips_bad},
               {"--expect", NULL, &t->expect, NULL},         {"--comm", &t->part.kind, NULL, NULL},
               {"--id-file", &t->part.id_file, NULL, NULL},  {"--rank", NULL, &t->part.rank, NULL},
               {"--world", NULL, &t->part.world, NULL}};
  for (int i = 1; i < argc; i++) {
    size_t k = 0;
    while (k < sizeof known / sizeof known[0] && strcmp(argv[i], known[k].name) != 0) k++;
    if (k == sizeof known / sizeof known[0] || (!known[k].flag && i + 1 == argc)) return false;
    if (known[k].flag)
      *known[k].flag = true;
    else if (known[k].text)
      *known[k].text = argv[++i];
    else
      *known[k].number = atoll(argv[++i]);
  }
  return t->images && t->epochs > 0 && t->rows > 0 && t->workers >= 0 && t->save_every > 0;
}

int main(int argc, char **argv) {
  trainer t = {.device = "auto",
               .epochs = 20,
               .rows = 32,
               .workers = 2,
               .save_every = 5,
               .part = {.program = "train_images", .world = 1}};
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout);
  if (!read_arguments(&t, argc, argv)) return usage(stderr);
  setvbuf(stdout, NULL, _IOLBF, 0); /* so that a reader sees each line at once */
  bool good = parallel_begin(&t.part, &argc, &argv) && parallel_divide_rows(&t.part, &t.rows) && open_place(&t);
  if (good) print_settings(&t);
  good = good && run(&t);
  if (t.context && t.stream.handle) tdict_stream_destroy(t.context, t.stream);
  tdict_context_destroy(t.context);
  const int status = good ? 0 : t.skipped ? NO_SUCH_DEVICE : 1;
  parallel_end(&t.part, status);
  return status;
}
