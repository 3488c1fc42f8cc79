/* The model in CUDA. A block computes the gradients of one image in shared memory. The gradients of the images are then
 * added in their order, without atomic operations. The model owns its arrays. Thread rule: one thread at a time. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "net.h"

enum { THREADS = 256 };

struct net_model {
  int64_t most_rows;
  net_arrays arrays;
  float *each; /* [most_rows, NET_SUMS]: the gradients of each image */
};

static bool good(cudaError_t code, const char *what) {
  if (code == cudaSuccess) return true;
  fprintf(stderr, "train_images: %s: %s\n", what, cudaGetErrorString(code));
  return false;
}

__global__ void images_back(float *each, const float *w, const float *images, const int32_t *labels) {
  __shared__ net_work work;
  float *g = each + (size_t)blockIdx.x * NET_SUMS;
  net_image(&work, w, images + (size_t)blockIdx.x * NET_SIDE * NET_SIDE, labels[blockIdx.x], (int)gridDim.x, g);
}

__global__ void add_images(float *sums, const float *each, int rows) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = 0;
  if (i >= NET_SUMS) return;
  for (int row = 0; row < rows; row++) sum += each[(size_t)row * NET_SUMS + i];
  sums[i] = sum;
}

__global__ void adam(net_arrays arrays, int64_t step) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < NET_PARAMETERS) net_adam(&arrays, i, step);
}

static int blocks(int count) { return (count + THREADS - 1) / THREADS; }

static bool back(net_model *m, const net_batch *b, void *stream) {
  cudaStream_t s = (cudaStream_t)stream;
  const int rows = (int)b->rows;
  if (b->rows > m->most_rows) return false;
  cudaMemsetAsync(m->each, 0, (size_t)rows * NET_SUMS * sizeof(float), s);
  images_back<<<rows, THREADS, 0, s>>>(m->each, m->arrays.parameters, b->images, b->labels);
  add_images<<<blocks(NET_SUMS), THREADS, 0, s>>>(m->arrays.gradients, m->each, rows);
  return good(cudaGetLastError(), "the gradients");
}

static bool update(net_model *m, int64_t step, void *stream) {
  adam<<<blocks(NET_PARAMETERS), THREADS, 0, (cudaStream_t)stream>>>(m->arrays, step);
  return good(cudaGetLastError(), "a step");
}

static bool finish(net_model *m, void *stream, float *loss, float *right) {
  cudaStream_t s = (cudaStream_t)stream;
  float sums[2];
  if (!good(cudaMemcpyAsync(sums, m->arrays.gradients + NET_LOSS, sizeof sums, cudaMemcpyDeviceToHost, s), "the loss") ||
      !good(cudaStreamSynchronize(s), "the step"))
    return false;
  *loss = sums[0];
  *right = sums[1];
  return true;
}

static const net_arrays *arrays(const net_model *m) { return &m->arrays; }

static void destroy(net_model *m) {
  if (!m) return;
  cudaFree(m->arrays.parameters);
  free(m);
}

static net_model *create(int gpu, int64_t most_rows, const float *parameters) {
  const size_t floats = 3 * NET_PARAMETERS + (size_t)(most_rows + 1) * NET_SUMS;
  net_model *m = (net_model *)calloc(1, sizeof *m);
  float *memory = NULL;
  if (!m) return NULL;
  if (!good(cudaSetDevice(gpu), "the GPU") || !good(cudaMalloc((void **)&memory, floats * sizeof *memory), "memory") ||
      !good(cudaMemset(memory, 0, floats * sizeof *memory), "memory") ||
      !good(cudaMemcpy(memory, parameters, NET_PARAMETERS * sizeof *memory, cudaMemcpyHostToDevice), "parameters")) {
    cudaFree(memory);
    free(m);
    return NULL;
  }
  m->most_rows = most_rows;
  m->arrays.parameters = memory;
  m->arrays.first = memory + NET_PARAMETERS;
  m->arrays.second = m->arrays.first + NET_PARAMETERS;
  m->arrays.gradients = m->arrays.second + NET_PARAMETERS;
  m->each = m->arrays.gradients + NET_SUMS;
  return m;
}

const net_maker net_cuda = {"CUDA", create, back, update, finish, arrays, destroy};
