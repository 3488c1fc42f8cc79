/* consumer_sim: a kernel uses a batch while the next batch is copied, on the simulated
 * device.
 *
 *   consumer_sim [[--device] sim]
 *
 * This is consumer.cu without a CUDA compiler and a GPU. The kernel is a function that
 * runs in the order of a stream. The simulated link and the kernel both take a fixed
 * time, so that the printed times show the overlap. The times say nothing about a GPU.
 * The program checks the sums, not the times. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { BATCHES = 20, COUNT = 1 << 16, HOSTS = 2, KERNEL_MS = 5 };
static const double link_bytes_per_second = 50e6; /* 256 KiB in 5 ms */

/* The arguments of a kernel. The device's thread writes the
 * result. The host reads it after waiting for the stream. */
typedef struct job {
  tdict_stream stream;
  const uint32_t *batch; /* an address of the device */
  uint64_t sum;
} job;

typedef struct program {
  tdict_context *c;
  tdict_device device;
  tdict_stream stream;      /* the program's stream: kernels run on it */
  tdict_tree *hosts[HOSTS]; /* pinned; filled in turn */
  job jobs[BATCHES];
} program;

static uint32_t element(int n, int i) {
  return (uint32_t)(n + 1) * 2654435761u ^ (uint32_t)i;
}

/* The kernel: sums a batch, and takes as long as a training step. */
static void sum_batch(void *user) {
  const struct timespec step = {.tv_nsec = KERNEL_MS * 1000000L};
  job *j = user;
  const uint32_t *x = tdict_sim_host_pointer(j->stream, j->batch);
  for (int i = 0; x && i < COUNT; i++) j->sum += x[i];
  nanosleep(&step, NULL);
}

/* Fills a host batch. tdict_data() waits until no transfer reads it any more. */
static void load(program *p, int n) {
  uint32_t *x = tdict_data(p->hosts[n % HOSTS], "x");
  for (int i = 0; x && i < COUNT; i++) x[i] = element(n, i);
}

static tdict_status launch(program *p, int n, const tdict_tree *dev, tdict_error *err) {
  tdict_tensor *x;
  tdict_status status = tdict_get(dev, "x", &x, err);
  if (status != TDICT_OK) return status;
  p->jobs[n] = (job){p->stream, tdict_tensor_const_data(x), 0};
  return tdict_sim_launch(p->stream, sum_batch, &p->jobs[n], err);
}

static tdict_status send(program *p, int n, tdict_future **out, tdict_error *err) {
  load(p, n);
  return tdict_to_device_async(p->c, p->hosts[n % HOSTS], p->device, NULL, out, err);
}

/* The host waits only for its own buffers. The stream waits
 * for the batch, and the next copy waits for the stream. */
static bool overlapped(program *p) {
  tdict_future *now = NULL, *next = NULL;
  tdict_tree *dev = NULL;
  tdict_error err = {0};
  bool ok = false;
  TDICT_TRY(send(p, 0, &now, &err));
  for (int n = 0; n < BATCHES; n++) {
    /* the stream waits, not the host */
    TDICT_TRY(tdict_future_wait_on_stream(now, p->stream, &dev, &err));
    TDICT_TRY(launch(p, n, dev, &err));
    /* the batch's memory is in use until the kernel is done */
    TDICT_TRY(tdict_record_stream(dev, p->stream, &err));
    tdict_release(dev);
    tdict_future_release(now);
    dev = NULL;
    now = NULL;
    /* copied while the kernel runs */
    if (n + 1 < BATCHES) TDICT_TRY(send(p, n + 1, &next, &err));
    now = next;
    next = NULL;
  }
  TDICT_TRY(tdict_stream_synchronize(p->c, p->stream, &err));
  ok = true;

done:
  tdict_release(dev);
  tdict_future_release(now);
  return ok;
}

/* Without overlap: waits for each batch before launching
 * its kernel, and for the kernel before the next copy. */
static bool one_by_one(program *p) {
  tdict_tree *dev = NULL;
  tdict_error err = {0};
  bool ok = false;
  for (int n = 0; n < BATCHES; n++) {
    load(p, n);
    TDICT_TRY(tdict_to_device(p->c, p->hosts[n % HOSTS], p->device, NULL, &dev, &err));
    TDICT_TRY(launch(p, n, dev, &err));
    TDICT_TRY(tdict_stream_synchronize(p->c, p->stream, &err));
    tdict_release(dev);
    dev = NULL;
  }
  ok = true;

done:
  tdict_release(dev);
  return ok;
}

static bool sums_are_right(program *p) {
  for (int n = 0; n < BATCHES; n++) {
    uint64_t want = 0;
    for (int i = 0; i < COUNT; i++) want += element(n, i);
    if (p->jobs[n].sum == want) continue;
    fprintf(stderr, "consumer_sim: the kernel's sum of batch %d is wrong\n", n);
    return false;
  }
  return true;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int consume(tdict_context *c) {
  static const tdict_field field = TDICT_FIELD("x", TDICT_U32, COUNT);
  program p = {.c = c, .device = tdict_context_device(c, NULL)};
  tdict_error err = {0};
  int code = 1;
  TDICT_TRY(tdict_stream_create(c, p.device, &p.stream, &err));
  for (int i = 0; i < HOSTS; i++)
    TDICT_TRY(tdict_create_from(&field, 1, 0, NULL, tdict_pinned_memory(c), &p.hosts[i],
                                &err));
  double begin = now_ms();
  if (!one_by_one(&p) || !sums_are_right(&p)) goto done;
  double middle = now_ms();
  if (!overlapped(&p) || !sums_are_right(&p)) goto done;
  double end = now_ms();
  printf("%d batches, sums right; simulated: %.0f ms one by one, %.0f ms overlapped\n",
         BATCHES, middle - begin, end - middle);
  code = 0;

done:
  /* kernels still use p */
  if (p.stream.handle && tdict_stream_synchronize(c, p.stream, &err) != TDICT_OK)
    code = 1;
  for (int i = 0; i < HOSTS; i++) tdict_release(p.hosts[i]);
  if (p.stream.handle) tdict_stream_destroy(c, p.stream);
  return code;
}

int main(int argc, char **argv) {
  tdict_context *c = NULL;
  tdict_error err = {0};
  int code = 1;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc > 1 && strcmp(argv[argc - 1], "sim") != 0)) {
    fprintf(stderr, "usage: consumer_sim [[--device] sim]\n");
    return 2;
  }
  sim.h2d_bytes_per_second = link_bytes_per_second;
  o.sim = &sim;
  o.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&o, &c, &err));
  code = consume(c);

done:
  tdict_context_destroy(c);
  return code;
}
