/* consumer: a kernel on the program's cudaStream_t uses a batch while the next batch is copied.
 *
 *   consumer [[--device] cuda[:N]] [--timeline FILE]
 *
 * The loop starts the transfer of the next batch with tdict_to_device_async(). tdict_future_wait_on_stream() makes the
 * stream, not the host, wait for the current batch. Then the loop launches the kernel, records the stream's use of the
 * batch with tdict_record_stream(), and releases the batch.
 *
 * The program checks the sums, and prints the time with and without overlap. FILE gets a timeline for chrome://tracing
 * or ui.perfetto.dev, measured by CUDA events. Two numbers show that copies and kernels overlap: the time saved
 * compared with all copies and kernels one after the other, and the overlap of their spans in the timeline. The exit
 * status is 77 if there is no device. It is 1 if a sum is wrong, or no copy overlaps a kernel. consumer_sim.c does the
 * same without a GPU. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { BATCHES = 20, HOSTS = 4, COUNT = 8 << 20, PASSES = 64, BLOCKS = 264, THREADS = 512, SKIPPED = 77 };

#define CUDA(call)                                                                  \
  do {                                                                              \
    cudaError_t cuda_error = (call);                                                \
    if (cuda_error != cudaSuccess) {                                                \
      fprintf(stderr, "consumer: %s: %s\n", #call, cudaGetErrorString(cuda_error)); \
      return false;                                                                 \
    }                                                                               \
  } while (0)

/* The events around one piece of work, and when it was, in milliseconds from the first event of all. A copy's first
 * event says only when it may begin; its span is taken as short as a copy can be, and ends where the copy did. */
struct span {
  cudaEvent_t begin, end;
  float from, to;
};

struct program {
  tdict_context *c;
  tdict_device device;
  tdict_tree *hosts[HOSTS]; /* pinned, filled once: the link is shown, not the loader */
  uint64_t want[HOSTS];
  cudaStream_t kernels; /* of the program's own */
  cudaStream_t copies;  /* carries no work: copies are ordered behind it, so that events on it say when they are */
  cudaEvent_t start;
  span copy[BATCHES], kernel[BATCHES];
  unsigned long long *sums; /* on the device, one for each batch */
  float fastest_copy;       /* milliseconds: the best of plain copies of one batch */
};

/* The training step's stand-in: reads the batch many times. */
__global__ void sum_batch(const uint32_t *x, int count, int passes, unsigned long long *out) {
  unsigned long long sum = 0;
  for (int pass = 0; pass < passes; pass++)
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x))
      sum += x[i] * (unsigned long long)(pass + 1);
  atomicAdd(out, sum);
}

static tdict_stream stream_of(const program *p, cudaStream_t s) {
  tdict_stream stream = {p->device, s}; /* a cudaStream_t is the library's handle */
  return stream;
}

/* Starts a transfer behind the stream `copies`, and that stream behind the transfer. */
static bool send(program *p, int n, tdict_future **out) {
  tdict_error err = {};
  tdict_stream copies = stream_of(p, p->copies);
  tdict_transfer_options o = tdict_transfer_options_default();
  o.after = copies;
  CUDA(cudaEventRecord(p->copy[n].begin, p->copies));
  TDICT_TRY_RETURN(tdict_to_device_async(p->c, p->hosts[n % HOSTS], p->device, &o, out, &err), false);
  TDICT_TRY_RETURN(tdict_future_wait_on_stream(*out, copies, NULL, &err), false);
  CUDA(cudaEventRecord(p->copy[n].end, p->copies));
  return true;
}

static bool launch(program *p, int n, tdict_tree *dev) {
  const uint32_t *x = (const uint32_t *)tdict_const_data(dev, "x"); /* a device address: given at once */
  CUDA(cudaEventRecord(p->kernel[n].begin, p->kernels));
  sum_batch<<<BLOCKS, THREADS, 0, p->kernels>>>(x, COUNT, PASSES, p->sums + n);
  CUDA(cudaGetLastError());
  CUDA(cudaEventRecord(p->kernel[n].end, p->kernels));
  return true;
}

/* One turn: the stream waits for the batch and consumes it. Releases the future. */
static bool consume(program *p, int n, tdict_future *f) {
  tdict_error err = {};
  tdict_tree *dev = NULL;
  tdict_stream kernels = stream_of(p, p->kernels);
  tdict_status status = tdict_future_wait_on_stream(f, kernels, &dev, &err);
  tdict_future_release(f);
  TDICT_TRY_RETURN(status, false);
  bool ok = launch(p, n, dev);
  status = tdict_record_stream(dev, kernels, &err); /* the batch's memory is in use until the kernel is done */
  tdict_release(dev);
  TDICT_TRY_RETURN(status, false);
  return ok;
}

static bool overlapped(program *p) {
  tdict_future *now = NULL, *next = NULL;
  bool ok = send(p, 0, &now);
  for (int n = 0; ok && n < BATCHES; n++) {
    if (n + 1 < BATCHES) ok = send(p, n + 1, &next); /* travels while the kernel of this one runs */
    ok = consume(p, n, now) && ok;
    now = next;
    next = NULL;
  }
  tdict_future_release(now);
  if (ok) CUDA(cudaStreamSynchronize(p->kernels));
  return ok;
}

static bool one_by_one(program *p) {
  for (int n = 0; n < BATCHES; n++) {
    tdict_future *f = NULL;
    if (!send(p, n, &f)) return false;
    if (!consume(p, n, f)) return false;
    CUDA(cudaStreamSynchronize(p->kernels)); /* the next batch leaves when this one is done with */
  }
  return true;
}

static bool sums_are_right(const program *p) {
  unsigned long long sums[BATCHES];
  CUDA(cudaMemcpy(sums, p->sums, sizeof sums, cudaMemcpyDeviceToHost));
  for (int n = 0; n < BATCHES; n++) {
    if (sums[n] == p->want[n % HOSTS]) continue;
    fprintf(stderr, "consumer: the kernel's sum of batch %d is wrong\n", n);
    return false;
  }
  return true;
}

static bool read_span(const program *p, span *s) {
  CUDA(cudaEventElapsedTime(&s->from, p->start, s->begin));
  CUDA(cudaEventElapsedTime(&s->to, p->start, s->end));
  return true;
}

/* What one batch needs on this link at the least: plain copies of it from its pinned memory, one after the other. */
static bool measure_link(program *p) {
  void *there = NULL;
  span s = p->copy[0];
  CUDA(cudaMalloc(&there, COUNT * sizeof(uint32_t)));
  p->fastest_copy = 1e9f;
  for (int i = 0; i < 10; i++) {
    float took;
    const void *x = tdict_const_data(p->hosts[i % HOSTS], "x");
    CUDA(cudaEventRecord(s.begin, p->copies));
    CUDA(cudaMemcpyAsync(there, x, COUNT * sizeof(uint32_t), cudaMemcpyHostToDevice, p->copies));
    CUDA(cudaEventRecord(s.end, p->copies));
    CUDA(cudaStreamSynchronize(p->copies));
    CUDA(cudaEventElapsedTime(&took, s.begin, s.end));
    if (took < p->fastest_copy) p->fastest_copy = took;
  }
  CUDA(cudaFree(there));
  return true;
}

/* What came of a round: milliseconds from the first copy to the last kernel; what its copies and kernels need one after
 * the other, and for how long spans of both kinds lie over each other. */
struct figures {
  double took, needed, both;
};

/* One round, warm. Neither copies nor kernels overlap among themselves, so the pairs add up. */
static bool measure(program *p, bool (*round)(program *), figures *f) {
  for (int warm = 0; warm < 2; warm++) {
    CUDA(cudaMemset(p->sums, 0, BATCHES * sizeof *p->sums));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaEventRecord(p->start, p->copies));
    if (!round(p)) return false;
    CUDA(cudaDeviceSynchronize());
    if (!sums_are_right(p)) return false;
  }
  f->needed = f->both = 0;
  for (int n = 0; n < BATCHES; n++) {
    if (!read_span(p, &p->copy[n]) || !read_span(p, &p->kernel[n])) return false;
    if (n == 0) f->took = -(double)p->copy[0].from;
    if (p->copy[n].to - p->copy[n].from > p->fastest_copy) p->copy[n].from = p->copy[n].to - p->fastest_copy;
    f->needed += (double)p->fastest_copy + (double)(p->kernel[n].to - p->kernel[n].from);
  }
  for (int i = 0; i < BATCHES; i++)
    for (int j = 0; j < BATCHES; j++) {
      float from = p->copy[i].from > p->kernel[j].from ? p->copy[i].from : p->kernel[j].from;
      float to = p->copy[i].to < p->kernel[j].to ? p->copy[i].to : p->kernel[j].to;
      if (to > from) f->both += (double)(to - from);
    }
  f->took += (double)p->kernel[BATCHES - 1].to;
  return true;
}

static void write_event(FILE *file, const char *what, int lane, int n, const span *s) {
  fprintf(file, ",\n{\"name\": \"%s %d\", \"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f}", what,
          n, lane, (double)s->from * 1e3, (double)(s->to - s->from) * 1e3);
}

/* Chrome's trace format: times in microseconds. */
static bool write_timeline(const program *p, const char *name) {
  FILE *file = fopen(name, "w");
  if (!file) {
    perror(name);
    return false;
  }
  fprintf(file,
          "{\"traceEvents\": [\n"
          "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"args\": {\"name\": \"copies\"}},\n"
          "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": 2, \"args\": {\"name\": \"kernels\"}}");
  for (int n = 0; n < BATCHES; n++) {
    write_event(file, "copy", 1, n, &p->copy[n]);
    write_event(file, "kernel", 2, n, &p->kernel[n]);
  }
  fprintf(file, "\n]}\n");
  bool ok = !ferror(file);
  if (fclose(file) != 0) ok = false;
  if (!ok) fprintf(stderr, "consumer: %s could not be written\n", name);
  return ok;
}

static bool prepare(program *p) {
  static const tdict_field field = {"x", TDICT_U32, 1, {COUNT}};
  const uint64_t weight = (uint64_t)PASSES * (PASSES + 1) / 2;
  tdict_error err = {};
  for (int h = 0; h < HOSTS; h++) {
    TDICT_TRY_RETURN(tdict_create_from(&field, 1, 0, NULL, tdict_pinned_memory(p->c), &p->hosts[h], &err), false);
    uint32_t *x = (uint32_t *)tdict_data(p->hosts[h], "x");
    for (int i = 0; i < COUNT; i++) {
      x[i] = (uint32_t)(h + 1) * 2654435761u ^ (uint32_t)i;
      p->want[h] += x[i] * weight;
    }
  }
  CUDA(cudaStreamCreateWithFlags(&p->kernels, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&p->copies, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&p->start));
  for (int n = 0; n < BATCHES; n++) {
    CUDA(cudaEventCreate(&p->copy[n].begin));
    CUDA(cudaEventCreate(&p->copy[n].end));
    CUDA(cudaEventCreate(&p->kernel[n].begin));
    CUDA(cudaEventCreate(&p->kernel[n].end));
  }
  CUDA(cudaMalloc((void **)&p->sums, BATCHES * sizeof *p->sums));
  return true;
}

static void clean_up(program *p) {
  if (p->kernels) (void)cudaStreamDestroy(p->kernels);
  if (p->copies) (void)cudaStreamDestroy(p->copies);
  if (p->start) (void)cudaEventDestroy(p->start);
  for (int n = 0; n < BATCHES; n++) {
    cudaEvent_t events[] = {p->copy[n].begin, p->copy[n].end, p->kernel[n].begin, p->kernel[n].end};
    for (int i = 0; i < 4; i++)
      if (events[i]) (void)cudaEventDestroy(events[i]);
  }
  (void)cudaFree(p->sums);
  for (int h = 0; h < HOSTS; h++) tdict_release(p->hosts[h]);
}

static bool run(program *p, const char *timeline) {
  figures alone, together;
  const double megabytes = (double)COUNT * sizeof(uint32_t) / 1e6;
  CUDA(cudaSetDevice(p->device.index));
  if (!prepare(p) || !measure_link(p)) return false;
  if (!measure(p, one_by_one, &alone) || !measure(p, overlapped, &together)) return false;
  const double saved = together.needed - together.took;
  printf("%d batches of %.1f MB, sums right\n", BATCHES, megabytes);
  printf("one by one %.3f ms, overlapped %.3f ms, where %d copies of %.3f ms and the kernels need %.3f ms in turn:\n"
         "copies and kernels ran at once for %.3f ms by these times, for %.3f ms by the timeline\n",
         alone.took, together.took, (int)BATCHES, (double)p->fastest_copy, together.needed, saved, together.both);
  if (together.both <= 0) fprintf(stderr, "consumer: no copy ran while a kernel did\n");
  return (!timeline || write_timeline(p, timeline)) && together.both > 0;
}

int main(int argc, char **argv) {
  program p = {};
  tdict_error err = {};
  const char *device = "cuda", *timeline = NULL;
  for (int i = 1; i < argc; i++) {
    bool named = strcmp(argv[i], "--timeline") == 0 || strcmp(argv[i], "--device") == 0;
    if ((named && i + 1 == argc) || (!named && argv[i][0] == '-')) {
      fprintf(stderr, "usage: consumer [[--device] cuda[:N]] [--timeline FILE]\n");
      return 2;
    }
    if (named && argv[i][2] == 't')
      timeline = argv[++i];
    else
      device = named ? argv[++i] : argv[i];
  }
  tdict_context_options o = tdict_context_options_default();
  tdict_status status = tdict_device_parse(device, &o.device, &err);
  if (status == TDICT_OK && o.device.type != TDICT_DEVICE_CUDA) {
    fprintf(stderr, "consumer: %s is not a cuda device\n", device);
    return 2;
  }
  if (status == TDICT_OK) status = tdict_context_create(&o, &p.c, &err);
  if (status != TDICT_OK) {
    fprintf(stderr, "skipped: %s: %s\n", tdict_status_name(status), err.message);
    return status == TDICT_ENODEVICE ? SKIPPED : 1;
  }
  p.device = tdict_context_device(p.c, NULL);
  bool ok = run(&p, timeline);
  clean_up(&p);
  tdict_context_destroy(p.c);
  return ok ? 0 : 1;
}
