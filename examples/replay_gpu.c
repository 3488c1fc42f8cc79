/* replay_gpu: a replay buffer in GPU memory. Actor threads write transitions, and a
 * learner samples batches of them.
 *
 *   replay_gpu [DEVICE [ROWS]]     auto (default), cpu, sim, cuda:N; rows of the buffer
 *
 * By default, the buffer has 2000000 rows on a GPU (6.2 GB), and 5000 rows on other
 * devices. First, the actors fill the buffer. Then the actors continue to write while
 * the learner samples by lists of random positions on the device. Each transition has a
 * checksum. The exit status is 0 if no call failed and all checksums of eight batches
 * are right. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tdict/index.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum {
  ACTORS = 4,
  NEW_ROWS = 2048,
  OBS = 376,
  ACTIONS = 17,
  BATCH = 512,
  LISTS = 64,
  CHECKED = 8
};
static const tdict_field fields[] = {
    TDICT_FIELD("obs", TDICT_F32, OBS), TDICT_FIELD("action", TDICT_F32, ACTIONS),
    TDICT_FIELD("reward", TDICT_F32), TDICT_FIELD("next.obs", TDICT_F32, OBS),
    TDICT_FIELD("checksum", TDICT_I64)};
/* numbers of a row in each float leaf */
static const int widths[] = {OBS, ACTIONS, 1, OBS};

typedef struct buffer {
  tdict_context *context;
  tdict_memory *host; /* memory of the actors' host trees; NULL: plain host memory */
  tdict_device device;
  /* the actors queue their writes on this stream; not used on the cpu */
  tdict_stream stream;
  tdict_run how; /* options of the actors' writes, with the stream */
  tdict_tree *tree;
  int64_t capacity, goal; /* the actors stop when `goal` rows were written */
  /* guards the rows and the fields below, so that
   * no sample has a row that is half written */
  pthread_mutex_t lock;
  int64_t written;
  bool stop, failed;
} buffer;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calculates the checksum of row i of host leaves. The sum begins with 1, so a row of
 * zeros, which no actor has written, does not have the checksum 0. */
static int64_t checksum(float *const leaves[4], int64_t i) {
  uint64_t sum = 1;
  uint32_t bits;
  for (int f = 0; f < 4; f++)
    for (int k = 0; k < widths[f]; k++) {
      memcpy(&bits, &leaves[f][i * widths[f] + k], sizeof bits);
      sum = sum * 31 + bits;
    }
  return (int64_t)sum;
}

/* A real actor would run its environment here. */
static void fill_rows(tdict_tree *rows, uint64_t *random) {
  float *leaves[4];
  int64_t *sums = tdict_data(rows, "checksum");
  for (int f = 0; f < 4; f++) leaves[f] = tdict_data(rows, fields[f].path);
  for (int f = 0; f < 4; f++)
    for (int64_t i = 0; i < (int64_t)NEW_ROWS * widths[f]; i++) {
      *random = *random * 6364136223846793005u + 1442695040888963407u;
      leaves[f][i] = (float)(*random >> 40) / (1 << 24);
    }
  for (int64_t i = 0; i < NEW_ROWS; i++) sums[i] = checksum(leaves, i);
}

/* Writes rows at the next positions of the buffer. Rows that do not fit before the end
 * of the buffer are written at its start. With a stream, the writes are only queued.
 * Call with the lock held. */
static tdict_status write_rows(buffer *b, const tdict_tree *rows, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int64_t done = 0; done < NEW_ROWS && status == TDICT_OK;) {
    tdict_tree *part;
    const int64_t first = (b->written + done) % b->capacity, room = b->capacity - first,
                  left = NEW_ROWS - done;
    const int64_t count = left < room ? left : room;
    status =
        /* a view */
        tdict_index_get(NULL, rows, TDICT_INDEX(TDICT_RANGE(done, done + count, 1)),
                        NULL, &part, err);
    if (status != TDICT_OK) return status;
    status = tdict_index_set(NULL, b->tree,
                             TDICT_INDEX(TDICT_RANGE(first, first + count, 1)), part,
                             &b->how, err);
    tdict_release(part);
    done += count;
  }
  if (status == TDICT_OK) b->written += NEW_ROWS;
  return status;
}

static void *run_actor(void *user) {
  buffer *b = user;
  tdict_tree *host = NULL, *rows = NULL;
  tdict_error err = {0};
  uint64_t random = (uint64_t)(uintptr_t)&err; /* differs between the actors */
  bool more = true;
  TDICT_TRY(tdict_create_from(fields, 5, TDICT_SHAPE(NEW_ROWS), b->host, &host, &err));
  while (more) {
    fill_rows(host, &random);
    TDICT_TRY(tdict_to_device(b->context, host, b->device, NULL, &rows, &err));
    pthread_mutex_lock(&b->lock);
    more = !b->stop && b->written < b->goal;
    tdict_status status = more ? write_rows(b, rows, &err) : TDICT_OK;
    pthread_mutex_unlock(&b->lock);
    /* safe: the library waits for the queued copies before it reuses the memory */
    tdict_release(rows);
    TDICT_TRY(status);
  }
done:
  tdict_release(host);
  pthread_mutex_lock(&b->lock);
  b->failed |= err.status != TDICT_OK;
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

/* Makes lists of random positions on the device,
 * as a tree with the batch size [LISTS]. */
static tdict_status make_lists(buffer *b, tdict_tree **out, tdict_error *err) {
  const tdict_field list = TDICT_FIELD("list", TDICT_I64, BATCH);
  tdict_tree *host;
  tdict_status status =
      tdict_create_from(&list, 1, TDICT_SHAPE(LISTS), NULL, &host, err);
  if (status != TDICT_OK) return status;
  int64_t *positions = tdict_data(host, "list");
  for (int i = 0; i < LISTS * BATCH; i++)
    positions[i] = (int64_t)(drand48() * (double)b->capacity);
  status = tdict_to_device(b->context, host, b->device, NULL, out, err);
  tdict_release(host);
  return status;
}

/* Copies the rows that a list names. With a stream, the copy is only queued. */
static tdict_status sample(buffer *b, const tdict_tree *lists, int n,
                           const tdict_run *how, tdict_tree **out, tdict_error *err) {
  tdict_tree *row;
  tdict_tensor *list;
  tdict_status status =
      tdict_index_get(NULL, lists, TDICT_INDEX(TDICT_AT(n % LISTS)), NULL, &row, err);
  if (status != TDICT_OK) return status;
  status = tdict_get(row, "list", &list, err);
  pthread_mutex_lock(&b->lock);
  if (status == TDICT_OK)
    status =
        tdict_index_get(NULL, b->tree, TDICT_INDEX(TDICT_LIST_OF(list)), how, out, err);
  pthread_mutex_unlock(&b->lock);
  tdict_release(row);
  return status;
}

/* Counts the transitions of a batch with a wrong checksum. */
static tdict_status count_wrong(buffer *b, const tdict_tree *batch, int *wrong,
                                tdict_error *err) {
  tdict_tree *host;
  float *leaves[4];
  tdict_status status =
      tdict_to_device(b->context, batch, tdict_cpu(), NULL, &host, err);
  if (status != TDICT_OK) return status;
  const int64_t *sums = tdict_const_data(host, "checksum");
  for (int f = 0; f < 4; f++) leaves[f] = tdict_data(host, fields[f].path);
  for (int64_t i = 0; i < BATCH; i++) *wrong += sums[i] != checksum(leaves, i);
  tdict_release(host);
  return TDICT_OK;
}

static bool start_actors(buffer *b, pthread_t *threads, int *started) {
  for (*started = 0; *started < ACTORS; ++*started)
    if (pthread_create(&threads[*started], NULL, run_actor, b) != 0) return false;
  return true;
}
static void join_actors(const pthread_t *threads, int *started) {
  for (; *started > 0; --*started) pthread_join(threads[*started - 1], NULL);
}

static void stop_actors(buffer *b, const pthread_t *threads, int *started) {
  pthread_mutex_lock(&b->lock);
  b->stop = true;
  pthread_mutex_unlock(&b->lock);
  join_actors(threads, started);
}

static void print_rate(const char *what, double rows_per_second, double row_bytes) {
  printf("%s: %.0f transitions/s, %.2f GB/s\n", what, rows_per_second,
         1e-9 * row_bytes * rows_per_second);
}

static int run(buffer *b) {
  const bool has_stream = b->device.type != TDICT_DEVICE_CPU;
  pthread_t threads[ACTORS];
  tdict_stream stream = {0};
  tdict_run how = tdict_run_default();
  tdict_tree *lists = NULL, *batch = NULL, *kept[CHECKED] = {NULL};
  tdict_error err = {0};
  /* number of batches, a multiple of CHECKED */
  const int samples = b->device.type == TDICT_DEVICE_CUDA ? 4000 : 64;
  int wrong = 0, started = 0;
  double start, time;
  b->how = how;
  if (has_stream) {
    TDICT_TRY(tdict_stream_create(b->context, b->device, &b->stream, &err));
    TDICT_TRY(tdict_stream_create(b->context, b->device, &stream, &err));
    b->how.stream = b->stream;
    how.stream = stream;
  }
  TDICT_TRY(tdict_create_from(fields, 5, TDICT_SHAPE(b->capacity),
                              tdict_device_memory(b->context, b->device), &b->tree,
                              &err));
  TDICT_TRY(make_lists(b, &lists, &err));
  const double row_bytes = (double)tdict_bytes(b->tree) / (double)b->capacity;
  start = seconds();
  b->goal = b->capacity;
  if (!start_actors(b, threads, &started)) b->failed = true;
  join_actors(threads, &started);
  if (b->failed) goto done;
  if (has_stream) TDICT_TRY(tdict_stream_synchronize(b->context, b->stream, &err));
  time = seconds() - start;
  printf("%lld rows of %.0f bytes\n", (long long)b->capacity, row_bytes);
  print_rate("written", (double)b->written / time, row_bytes);

  b->goal = INT64_MAX;
  if (!start_actors(b, threads, &started)) b->failed = true;
  start = seconds();
  for (int n = 0; n < samples; n++) {
    TDICT_TRY(sample(b, lists, n, &how, &batch, &err));
    /* A learner would queue its kernels on `stream` here. */
    if (n % (samples / CHECKED) == 0)
      kept[n / (samples / CHECKED)] = batch;
    else
      tdict_release(batch);
  }
  if (has_stream) TDICT_TRY(tdict_stream_synchronize(b->context, stream, &err));
  time = seconds() - start;
  printf("%.0f batches/s of %d\n", samples / time, BATCH);
  print_rate("sampled", samples * BATCH / time, row_bytes);
  for (int n = 0; n < CHECKED; n++) TDICT_TRY(count_wrong(b, kept[n], &wrong, &err));
  printf("checked: %d of %d transitions have a wrong checksum\n", wrong,
         CHECKED * BATCH);
done:
  stop_actors(b, threads, &started);
  for (int n = 0; n < CHECKED; n++) tdict_release(kept[n]);
  tdict_release(lists);
  tdict_release(b->tree);
  if (stream.handle) tdict_stream_destroy(b->context, stream);
  if (b->stream.handle) tdict_stream_destroy(b->context, b->stream);
  return err.status != TDICT_OK || b->failed || wrong > 0;
}

int main(int argc, char **argv) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  buffer b = {0};
  tdict_error err = {0};
  int code = 1;
  options.sim = &sim; /* the default device where there is no GPU */
  TDICT_TRY(tdict_device_parse(argc > 1 ? argv[1] : "auto", &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &b.context, &err));
  b.device = tdict_context_device(b.context, NULL);
  b.host = b.device.type == TDICT_DEVICE_CPU ? NULL : tdict_pinned_memory(b.context);
  b.capacity = b.device.type == TDICT_DEVICE_CUDA ? 2000000 : 5000;
  if (argc > 2) b.capacity = atoll(argv[2]);
  if (b.capacity < 1) {
    fprintf(stderr, "usage: replay_gpu [DEVICE [ROWS]], with at least 1 row\n");
    goto done;
  }
  pthread_mutex_init(&b.lock, NULL);
  code = run(&b);
  pthread_mutex_destroy(&b.lock);
done:
  tdict_context_destroy(b.context);
  return code;
}
