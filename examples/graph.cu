/* graph: replays a captured CUDA graph on each batch.
 *
 *   graph [[--device] cuda[:N]]
 *
 * A CUDA graph keeps the addresses that its kernels were captured with. So the program allocates the device batch once,
 * and tdict_transfer_into_async() writes each new batch to the same addresses. The graph does not contain copies: a call with a
 * stream that is being captured returns TDICT_ECAPTURE and does not break the capture. Other transfers continue. The
 * exit status is 77 if there is no device. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { BATCHES = 20, HOSTS = 2, COUNT = 1 << 20, SKIPPED = 77 };

#define CUDA(call)                                                               \
  do {                                                                           \
    cudaError_t cuda_error = (call);                                             \
    if (cuda_error != cudaSuccess) {                                             \
      fprintf(stderr, "graph: %s: %s\n", #call, cudaGetErrorString(cuda_error)); \
      return false;                                                              \
    }                                                                            \
  } while (0)

struct program {
  tdict_context *c;
  tdict_device device;
  tdict_tree *hosts[HOSTS]; /* pinned; filled in turn */
  tdict_tree *batch;        /* on the device, at the addresses that the graph knows */
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t step;
  unsigned long long *sums; /* on the device: one for each replay */
  int *replay;              /* on the device: how many there were */
};

__global__ void sum_batch(const uint32_t *x, int count, const int *replay, unsigned long long *sums) {
  unsigned long long sum = 0;
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x)) sum += x[i];
  atomicAdd(sums + *replay, sum);
}

__global__ void count_replay(int *replay) { ++*replay; }

static uint32_t element(int n, int i) { return (uint32_t)(n + 1) * 2654435761u ^ (uint32_t)i; }

/* The training step's stand-in: what is captured. */
static bool launch_step(program *p) {
  const uint32_t *x = (const uint32_t *)tdict_const_data(p->batch, "x"); /* a device address: given at once */
  sum_batch<<<256, 256, 0, p->stream>>>(x, COUNT, p->replay, p->sums);
  CUDA(cudaGetLastError());
  count_replay<<<1, 1, 0, p->stream>>>(p->replay);
  CUDA(cudaGetLastError());
  return true;
}

static bool prepare(program *p) {
  static const tdict_field field = {"x", TDICT_U32, 1, {COUNT}};
  tdict_error err = {};
  for (int h = 0; h < HOSTS; h++)
    TDICT_TRY_RETURN(tdict_create_from(&field, 1, 0, NULL, tdict_pinned_memory(p->c), &p->hosts[h], &err), false);
  TDICT_TRY_RETURN(tdict_create_from(&field, 1, 0, NULL, tdict_device_memory(p->c, p->device), &p->batch, &err), false);
  CUDA(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc((void **)&p->sums, BATCHES * sizeof *p->sums));
  CUDA(cudaMalloc((void **)&p->replay, sizeof *p->replay));
  CUDA(cudaMemset(p->replay, 0, sizeof *p->replay));
  CUDA(cudaMemset(p->sums, 0, BATCHES * sizeof *p->sums));
  CUDA(cudaDeviceSynchronize());     /* the stream does not wait for the legacy stream */
  if (!launch_step(p)) return false; /* loads the kernels, which is better not done while capturing */
  CUDA(cudaStreamSynchronize(p->stream));
  CUDA(cudaMemset(p->sums, 0, BATCHES * sizeof *p->sums));
  CUDA(cudaMemset(p->replay, 0, sizeof *p->replay));
  CUDA(cudaDeviceSynchronize());
  return true;
}

/* While the stream is captured: calls that are given it refuse, a transfer that has nothing to do with it goes on. */
static bool try_transfers(program *p) {
  tdict_error err = {};
  tdict_tree *other = NULL;
  tdict_stream captured = {p->device, p->stream};
  tdict_transfer_options o = tdict_transfer_options_default();
  o.after = captured;
  tdict_future *copy = NULL;
  tdict_status into = tdict_transfer_into_async(p->c, p->batch, p->hosts[0], &o, &copy, &err);
  if (into == TDICT_OK) into = tdict_future_take(copy, NULL, &err);
  tdict_status use = tdict_record_stream(p->batch, captured, &err);
  printf("while capturing: transfer_into_async answers %s, record_stream answers %s\n", tdict_status_name(into),
         tdict_status_name(use));
  if (into != TDICT_ECAPTURE || use != TDICT_ECAPTURE) {
    fprintf(stderr, "graph: both should answer TDICT_ECAPTURE\n");
    return false;
  }
  TDICT_TRY_RETURN(tdict_to_device(p->c, p->hosts[0], p->device, NULL, &other, &err), false);
  tdict_release(other);
  return true;
}

static bool capture(program *p) {
  CUDA(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal)); /* the strictest mode */
  bool ok = launch_step(p) && try_transfers(p);
  CUDA(cudaStreamEndCapture(p->stream, &p->graph)); /* fails if anything broke the capture */
  if (ok) CUDA(cudaGraphInstantiate(&p->step, p->graph, 0));
  return ok;
}

/* The host waits only for its own buffers: copies wait for the last replay, and each replay for its copy. */
static bool replay_all(program *p) {
  tdict_error err = {};
  tdict_stream stream = {p->device, p->stream};
  const void *address = tdict_const_data(p->batch, "x");
  for (int n = 0; n < BATCHES; n++) {
    tdict_tree *host = p->hosts[n % HOSTS];
    tdict_future *f = NULL;
    uint32_t *x = (uint32_t *)tdict_data(host, "x"); /* waits until the copy before last has read it */
    for (int i = 0; i < COUNT; i++) x[i] = element(n, i);
    TDICT_TRY_RETURN(tdict_transfer_into_async(p->c, p->batch, host, NULL, &f, &err),
                     false); /* waits for the use recorded below */
    tdict_status status = tdict_future_wait_on_stream(f, stream, NULL, &err);
    tdict_future_release(f);
    TDICT_TRY_RETURN(status, false);
    CUDA(cudaGraphLaunch(p->step, p->stream));
    TDICT_TRY_RETURN(tdict_record_stream(p->batch, stream, &err), false); /* the replay reads the batch */
  }
  CUDA(cudaStreamSynchronize(p->stream));
  if (tdict_const_data(p->batch, "x") == address) return true;
  fprintf(stderr, "graph: the batch has moved\n");
  return false;
}

static bool sums_are_right(const program *p) {
  unsigned long long sums[BATCHES];
  CUDA(cudaMemcpy(sums, p->sums, sizeof sums, cudaMemcpyDeviceToHost));
  for (int n = 0; n < BATCHES; n++) {
    unsigned long long want = 0;
    for (int i = 0; i < COUNT; i++) want += element(n, i);
    if (sums[n] == want) continue;
    fprintf(stderr, "graph: the sum of batch %d is wrong\n", n);
    return false;
  }
  printf("%d replays on one address, sums right\n", BATCHES);
  return true;
}

static bool run(program *p) {
  CUDA(cudaSetDevice(p->device.index));
  return prepare(p) && capture(p) && replay_all(p) && sums_are_right(p);
}

static void clean_up(program *p) {
  if (p->step) (void)cudaGraphExecDestroy(p->step);
  if (p->graph) (void)cudaGraphDestroy(p->graph);
  if (p->stream) (void)cudaStreamDestroy(p->stream);
  (void)cudaFree(p->sums);
  (void)cudaFree(p->replay);
  tdict_release(p->batch);
  for (int h = 0; h < HOSTS; h++) tdict_release(p->hosts[h]);
}

int main(int argc, char **argv) {
  program p = {};
  tdict_error err = {};
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) || (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: graph [[--device] cuda[:N]]\n");
    return 2;
  }
  tdict_context_options o = tdict_context_options_default();
  tdict_status status = tdict_device_parse(argc > 1 ? argv[argc - 1] : "cuda", &o.device, &err);
  if (status == TDICT_OK && o.device.type != TDICT_DEVICE_CUDA) {
    fprintf(stderr, "graph: %s is not a cuda device\n", argv[argc - 1]);
    return 2;
  }
  if (status == TDICT_OK) status = tdict_context_create(&o, &p.c, &err);
  if (status != TDICT_OK) {
    fprintf(stderr, "skipped: %s: %s\n", tdict_status_name(status), err.message);
    return status == TDICT_ENODEVICE ? SKIPPED : 1;
  }
  p.device = tdict_context_device(p.c, NULL);
  bool ok = run(&p);
  clean_up(&p);
  tdict_context_destroy(p.c);
  return ok ? 0 : 1;
}
