/* consumer_cpp: a kernel on the program's cudaStream_t uses a batch while the next batch is copied. The C++ form of
 * consumer.cu, without its timeline.
 *
 *   consumer_cpp [cuda[:N]]
 *
 * The exit status is 77 if there is no device, and 1 if a sum is wrong. */
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>
#include <tdict/tdict.hpp>

enum { BATCHES = 20, HOSTS = 4, COUNT = 1 << 20 };

/* Stands for the training step: reads the whole batch. */
__global__ void sum_batch(const uint32_t *x, int count, unsigned long long *out) {
  unsigned long long sum = 0;
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x)) sum += x[i];
  atomicAdd(out, sum);
}

static void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "consumer_cpp: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

static int consume(const tdict::context &context) {
  static const tdict_field fields[] = {TDICT_FIELD("x", TDICT_U32)};
  std::vector<tdict::tree> hosts;
  std::vector<unsigned long long> want(HOSTS), sums(BATCHES);
  for (unsigned h = 0; h < HOSTS; h++) {
    hosts.push_back(tdict::tree::create(fields, {COUNT}, context.pinned()));
    for (uint32_t &x : hosts[h].elements<uint32_t>("x"))
      want[h] += x = h * 2654435761u + (uint32_t)(&x - hosts[h].data<uint32_t>("x"));
  }
  cudaStream_t kernels;
  unsigned long long *device_sums;
  check(cudaStreamCreate(&kernels));
  check(cudaMalloc(&device_sums, BATCHES * sizeof *device_sums));
  check(cudaMemset(device_sums, 0, BATCHES * sizeof *device_sums));
  const tdict_stream stream = {context.device(), kernels};
  tdict::future next = context.to_device_async(hosts[0], context.device());
  for (int n = 0; n < BATCHES; n++) {
    const tdict::tree batch = next.wait_on_stream(stream); // the stream waits, not the host
    if (n + 1 < BATCHES) next = context.to_device_async(hosts[(n + 1) % HOSTS], context.device());
    sum_batch<<<264, 512, 0, kernels>>>(batch.data<const uint32_t>("x"), COUNT, device_sums + n);
    check(cudaGetLastError());
    tdict::run(tdict_record_stream, batch.raw(), stream); // the batch may now be released before the kernel ends
  }
  check(cudaStreamSynchronize(kernels));
  check(cudaMemcpy(sums.data(), device_sums, BATCHES * sizeof *device_sums, cudaMemcpyDeviceToHost));
  check(cudaFree(device_sums));
  check(cudaStreamDestroy(kernels));
  int wrong = 0;
  for (int n = 0; n < BATCHES; n++) wrong += sums[n] != want[n % HOSTS];
  std::printf("%d batches, %d wrong sums\n", (int)BATCHES, wrong);
  return wrong != 0;
}

int main(int argc, char **argv) try {
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict::call<tdict_device>(tdict_device_parse, argc > 1 ? argv[1] : "cuda");
  return consume(tdict::context::create(options));
} catch (const tdict::error &e) {
  std::fprintf(stderr, "consumer_cpp: %s\n", e.what());
  return e.status() == TDICT_ENODEVICE ? 77 : 1;
}
