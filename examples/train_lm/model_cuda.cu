/* The model in CUDA: the same numbers as model_cpu.c, but for the order of sums. All device memory is the model's own. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { TILE = 64, STEP = 16, THREADS = 256, WARPS = THREADS / 32, SPLIT = 256 };

struct lm_model {
  int64_t most, steps;
  lm_arrays a;
};

static bool good(cudaError_t code, const char *what) {
  if (code == cudaSuccess) return true;
  fprintf(stderr, "train_lm: %s: %s\n", what, cudaGetErrorString(code));
  return false;
}

/* A matrix by its strides, so that one kernel serves transposed ones too. */
struct matrix {
  const float *at;
  int row, column;
};

/* What else a multiplication does with its result; what is NULL or false it leaves out. */
struct finish_by {
  const float *bias;   /* is added to each row, */
  bool squash;         /* then tanh is taken; */
  const float *behind; /* or it is multiplied by 1 - h^2, where h lies at the same place here */
  float *columns;      /* the sums of b's columns are added there */
};

/* c[m, n] (rows of n, a multiple of 4) = a[m, k] * b[k, n]. Each block makes a tile of 64 by 64, each thread 4 by 4 of it.
 * gridDim.z > 1 splits k among blocks, whose sums are added to c. */
__global__ void multiply(float *c, matrix a, matrix b, int m, int n, int k, finish_by by) {
  __shared__ float4 left[STEP][TILE / 4 + 1], right[STEP][TILE / 4 + 1];
  int row0 = blockIdx.x * TILE, column0 = blockIdx.y * TILE;
  int part = (k + gridDim.z - 1) / gridDim.z, begin = blockIdx.z * part, end = min(k, begin + part);
  int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sum[4][4] = {}, columns[4] = {};
  for (int at = begin; at < end; at += STEP) {
    for (int i = threadIdx.x; i < STEP * TILE; i += THREADS) {
      int inner = a.column == 1 ? i % STEP : i / TILE, row = a.column == 1 ? i / STEP : i % TILE;
      bool in = row0 + row < m && at + inner < end;
      ((float *)left[inner])[row] = in ? a.at[(size_t)(row0 + row) * a.row + (size_t)(at + inner) * a.column] : 0;
      inner = b.column == 1 ? i / TILE : i % STEP;
      int column = b.column == 1 ? i % TILE : i / STEP;
      in = column0 + column < n && at + inner < end;
      ((float *)right[inner])[column] = in ? b.at[(size_t)(at + inner) * b.row + (size_t)(column0 + column) * b.column] : 0;
    }
    __syncthreads();
    for (int s = 0; s < STEP; s++) {
      float4 l = left[s][ty], r = right[s][tx];
      float x[4] = {l.x, l.y, l.z, l.w}, y[4] = {r.x, r.y, r.z, r.w};
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += x[i] * y[j];
      for (int j = 0; j < 4; j++) columns[j] += y[j];
    }
    __syncthreads();
  }
  int column = column0 + tx * 4;
  if (column >= n) return;
  for (int j = 0; j < 4 && by.columns && blockIdx.x == 0 && ty == 0; j++) atomicAdd(&by.columns[column + j], columns[j]);
  for (int i = 0; i < 4; i++) {
    int row = row0 + ty * 4 + i;
    size_t at = (size_t)row * n + column;
    if (row >= m) continue;
    for (int j = 0; j < 4; j++) {
      if (by.bias) sum[i][j] += by.bias[column + j];
      if (by.squash) sum[i][j] = tanhf(sum[i][j]);
      if (by.behind) sum[i][j] *= 1 - by.behind[at + j] * by.behind[at + j];
      if (gridDim.z > 1) atomicAdd(&c[at + j], sum[i][j]);
    }
    if (gridDim.z == 1) *(float4 *)(c + at) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
  }
}

__device__ int token_at(const int64_t *tokens, int window, int position, int back) {
  int column = position % window - back;
  return column < 0 ? -1 : (int)((uint64_t)tokens[position - back] % LM_VOCAB);
}

__global__ void embed(float *x, const float *table, const int64_t *tokens, int window, int n) {
  int i = blockIdx.x * THREADS + threadIdx.x, position = i / LM_INPUT, at = i % LM_INPUT;
  if (position >= n) return;
  int token = token_at(tokens, window, position, at / LM_EMBED);
  x[i] = token < 0 ? 0 : table[token * LM_EMBED + at % LM_EMBED];
}

__global__ void embed_back(float *gradient, const float *dx, const int64_t *tokens, int window, int n) {
  __shared__ float mine[LM_VOCAB * LM_EMBED];
  for (int i = threadIdx.x; i < LM_VOCAB * LM_EMBED; i += THREADS) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n * LM_INPUT; i += gridDim.x * THREADS) {
    int at = i % LM_INPUT, token = token_at(tokens, window, i / LM_INPUT, at / LM_EMBED);
    if (token >= 0) atomicAdd(&mine[token * LM_EMBED + at % LM_EMBED], dx[i]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < LM_VOCAB * LM_EMBED; i += THREADS) atomicAdd(&gradient[i], mine[i]);
}

/* A warp a position: logits become gradients of the mean loss, which is added up. */
__global__ void softmax_loss(float *p, const int64_t *targets, int n, float *loss) {
  __shared__ float losses[WARPS];
  int position = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < WARPS) losses[threadIdx.x] = 0;
  __syncthreads();
  if (position < n) {
    float *row = p + (size_t)position * LM_VOCAB, value[LM_VOCAB / 32], most = -1e30f, sum = 0;
    for (int i = 0; i < LM_VOCAB / 32; i++) most = fmaxf(most, value[i] = row[i * 32 + lane]);
    for (int o = 16; o; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    for (int i = 0; i < LM_VOCAB / 32; i++) sum += value[i] = expf(value[i] - most);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    int target = (int)((uint64_t)targets[position] % LM_VOCAB);
    for (int i = 0; i < LM_VOCAB / 32; i++) {
      bool right = i * 32 + lane == target;
      if (right) losses[threadIdx.x / 32] = -logf(value[i] / sum) / n;
      row[i * 32 + lane] = (value[i] / sum - (right ? 1 : 0)) / n;
    }
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < WARPS; i++) losses[0] += losses[i];
  atomicAdd(loss, losses[0]);
}

__global__ void adam(float *parameters, const float *gradients, float *first, float *second, float c1, float c2) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= LM_PARAMETERS) return;
  float g = gradients[i];
  first[i] = LM_BETA1 * first[i] + (1 - LM_BETA1) * g;
  second[i] = LM_BETA2 * second[i] + (1 - LM_BETA2) * g * g;
  parameters[i] -= LM_RATE * (first[i] / c1) / (sqrtf(second[i] / c2) + LM_EPSILON);
}

static int blocks(int64_t count) { return (int)((count + THREADS - 1) / THREADS); }
static int tiles(int count) { return (count + TILE - 1) / TILE; }

/* A layer's weights [inner, cols], its bias behind them. */
static void forward(float *out, const float *in, const float *w, int n, int inner, int cols, bool squash, cudaStream_t s) {
  finish_by by = {w + inner * cols, squash, NULL, NULL};
  multiply<<<dim3(tiles(n), tiles(cols), 1), THREADS, 0, s>>>(out, matrix{in, inner, 1}, matrix{w, cols, 1}, n, cols, inner,
                                                              by);
}

/* As layer_back() of model_cpu.c; the gradient of `in` goes on through the tanh that made it, or not. */
static void backward(const float *dout, const float *in, const float *w, float *dw, float *din, int n, int inner, int cols,
                     bool squashed, cudaStream_t s) {
  finish_by weights = {NULL, false, NULL, dw + inner * cols}, inputs = {NULL, false, squashed ? in : NULL, NULL};
  multiply<<<dim3(tiles(inner), tiles(cols), n / SPLIT + 2), THREADS, 0, s>>>(dw, matrix{in, 1, inner},
                                                                              matrix{dout, cols, 1}, inner, cols, n, weights);
  multiply<<<dim3(tiles(n), tiles(inner), 1), THREADS, 0, s>>>(din, matrix{dout, cols, 1}, matrix{w, 1, cols}, n, inner, cols,
                                                               inputs);
}

static bool back(lm_model *m, const lm_batch *b, void *stream) {
  cudaStream_t s = (cudaStream_t)stream;
  const lm_arrays *a = &m->a;
  float *w = a->parameters, *g = a->gradients;
  int n = (int)(b->rows * b->window), window = (int)b->window;
  if (b->rows * b->window > m->most) return false;
  cudaMemsetAsync(g, 0, LM_PARAMETERS * sizeof *g, s);
  cudaMemsetAsync(a->loss, 0, sizeof *a->loss, s);
  embed<<<blocks((int64_t)n * LM_INPUT), THREADS, 0, s>>>(a->x, w + LM_TABLE, b->tokens, window, n);
  forward(a->h1, a->x, w + LM_W1, n, LM_INPUT, LM_HIDDEN, true, s);
  forward(a->h2, a->h1, w + LM_W2, n, LM_HIDDEN, LM_HIDDEN, true, s);
  forward(a->p, a->h2, w + LM_W3, n, LM_HIDDEN, LM_VOCAB, false, s);
  softmax_loss<<<blocks((int64_t)n * 32), THREADS, 0, s>>>(a->p, b->targets, n, a->loss);
  backward(a->p, a->h2, w + LM_W3, g + LM_W3, a->d2, n, LM_HIDDEN, LM_VOCAB, true, s);
  backward(a->d2, a->h1, w + LM_W2, g + LM_W2, a->d1, n, LM_HIDDEN, LM_HIDDEN, true, s);
  backward(a->d1, a->x, w + LM_W1, g + LM_W1, a->dx, n, LM_INPUT, LM_HIDDEN, false, s);
  embed_back<<<1024, THREADS, 0, s>>>(g + LM_TABLE, a->dx, b->tokens, window, n);
  return good(cudaGetLastError(), "the gradients");
}

static bool update(lm_model *m, void *stream) {
  const lm_arrays *a = &m->a;
  m->steps++;
  float c1 = 1 - powf(LM_BETA1, (float)m->steps), c2 = 1 - powf(LM_BETA2, (float)m->steps);
  adam<<<blocks(LM_PARAMETERS), THREADS, 0, (cudaStream_t)stream>>>(a->parameters, a->gradients, a->first, a->second, c1, c2);
  return good(cudaGetLastError(), "a step");
}

static bool finish(lm_model *m, void *stream, float *loss) {
  return good(cudaMemcpyAsync(loss, m->a.loss, sizeof *loss, cudaMemcpyDeviceToHost, (cudaStream_t)stream), "the loss") &&
         good(cudaStreamSynchronize((cudaStream_t)stream), "the step");
}

static const lm_arrays *arrays(const lm_model *m) { return &m->a; }

static void destroy(lm_model *m) {
  if (!m) return;
  cudaFree(m->a.parameters);
  free(m);
}

static lm_model *create(int gpu, int64_t most, const float *parameters) {
  float *memory = NULL;
  size_t bytes = lm_room(most) * sizeof *memory;
  lm_model *m = (lm_model *)calloc(1, sizeof *m);
  if (!m) return NULL;
  if (!good(cudaSetDevice(gpu), "the GPU") || !good(cudaMalloc((void **)&memory, bytes), "device memory") || !good(cudaMemset(memory, 0, bytes), "device memory") ||
      !good(cudaMemcpy(memory, parameters, LM_PARAMETERS * sizeof *memory, cudaMemcpyHostToDevice), "parameters")) {
    cudaFree(memory);
    free(m);
    return NULL;
  }
  m->most = most;
  m->a = lm_lay_out(memory, most);
  return m;
}

const lm_maker lm_cuda = {"CUDA", create, back, update, finish, arrays, destroy};
