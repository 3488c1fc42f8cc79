/* The model in CUDA: the same numbers as model_cpu.c, but for the order of sums. All device memory is the model's own. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { TILE = 64, STEP = 16, THREADS = 256, SPLIT = 1024 };

struct lm_model {
  int64_t most, steps;
  int positions; /* of the last step */
  float *parameters, *gradients, *first, *second, *x, *h1, *h2, *p, *d1, *d2, *dx, *loss;
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

/* c[m, n] (rows of n) = a[m, k] * b[k, n]. Each block makes a tile of 64 by 64, each thread 4 by 4 of it. gridDim.z > 1
 * splits k among blocks, whose sums are added to c; `bias` may be NULL; squash: tanh of the result. */
__global__ void multiply(float *c, matrix a, matrix b, int m, int n, int k, const float *bias, bool squash) {
  __shared__ float left[STEP][TILE + 1], right[STEP][TILE + 1];
  int row0 = blockIdx.x * TILE, column0 = blockIdx.y * TILE;
  int part = (k + gridDim.z - 1) / gridDim.z, begin = blockIdx.z * part, end = min(k, begin + part);
  int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sum[4][4] = {};
  for (int at = begin; at < end; at += STEP) {
    for (int i = threadIdx.x; i < STEP * TILE; i += THREADS) {
      int inner = a.column == 1 ? i % STEP : i / TILE, row = a.column == 1 ? i / STEP : i % TILE;
      bool in = row0 + row < m && at + inner < end;
      left[inner][row] = in ? a.at[(size_t)(row0 + row) * a.row + (size_t)(at + inner) * a.column] : 0;
      inner = b.column == 1 ? i / TILE : i % STEP;
      int column = b.column == 1 ? i % TILE : i / STEP;
      in = column0 + column < n && at + inner < end;
      right[inner][column] = in ? b.at[(size_t)(at + inner) * b.row + (size_t)(column0 + column) * b.column] : 0;
    }
    __syncthreads();
    for (int s = 0; s < STEP; s++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += left[s][ty * 4 + i] * right[s][tx * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      int row = row0 + ty * 4 + i, column = column0 + tx * 4 + j;
      if (row >= m || column >= n) continue;
      float value = sum[i][j] + (bias ? bias[column] : 0);
      if (gridDim.z > 1) atomicAdd(&c[(size_t)row * n + column], value);
      else c[(size_t)row * n + column] = squash ? tanhf(value) : value;
    }
}

__device__ int token_at(const int *tokens, int window, int position, int back) {
  int column = position % window - back;
  return column < 0 ? -1 : (int)((unsigned)tokens[position - back] % LM_VOCAB);
}

__global__ void embed(float *x, const float *table, const int *tokens, int window, int n) {
  int i = blockIdx.x * THREADS + threadIdx.x, position = i / LM_INPUT, at = i % LM_INPUT;
  if (position >= n) return;
  int token = token_at(tokens, window, position, at / LM_EMBED);
  x[i] = token < 0 ? 0 : table[token * LM_EMBED + at % LM_EMBED];
}

__global__ void embed_back(float *gradient, const float *dx, const int *tokens, int window, int n) {
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
__global__ void softmax_loss(float *p, const int *targets, int n, float *loss) {
  int position = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (position >= n) return;
  float *row = p + (size_t)position * LM_VOCAB, value[LM_VOCAB / 32], most = -1e30f, sum = 0;
  for (int i = 0; i < LM_VOCAB / 32; i++) most = fmaxf(most, value[i] = row[i * 32 + lane]);
  for (int o = 16; o; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  for (int i = 0; i < LM_VOCAB / 32; i++) sum += value[i] = expf(value[i] - most);
  for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  int target = (int)((unsigned)targets[position] % LM_VOCAB);
  for (int i = 0; i < LM_VOCAB / 32; i++) {
    bool right = i * 32 + lane == target;
    if (right) atomicAdd(loss, -logf(value[i] / sum) / n);
    row[i * 32 + lane] = (value[i] / sum - (right ? 1 : 0)) / n;
  }
}

/* d *= 1 - h^2 */
__global__ void squash_back(float *d, const float *h, int count) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < count) d[i] *= 1 - h[i] * h[i];
}

/* Sums of columns, added to `out`; a block takes SPLIT rows. */
__global__ void add_columns(float *out, const float *d, int n, int columns) {
  int column = threadIdx.x % columns, each = THREADS / columns;
  int end = min(n, (int)(blockIdx.x + 1) * SPLIT);
  float sum = 0;
  for (int row = blockIdx.x * SPLIT + threadIdx.x / columns; row < end; row += each) sum += d[(size_t)row * columns + column];
  atomicAdd(&out[column], sum);
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

static void forward(float *out, const float *in, const float *w, const float *bias, int n, int inner, int cols, bool squash,
                    cudaStream_t s) {
  dim3 grid((n + TILE - 1) / TILE, (cols + TILE - 1) / TILE, 1);
  multiply<<<grid, THREADS, 0, s>>>(out, matrix{in, inner, 1}, matrix{w, cols, 1}, n, cols, inner, bias, squash);
}

/* As layer_back() of model_cpu.c; the bias' gradient lies behind the weights'. */
static void backward(const float *dout, const float *in, const float *w, float *dw, float *din, int n, int inner, int cols,
                     cudaStream_t s) {
  dim3 weights((inner + TILE - 1) / TILE, (cols + TILE - 1) / TILE, (n + SPLIT - 1) / SPLIT + 1);
  dim3 inputs((n + TILE - 1) / TILE, (inner + TILE - 1) / TILE, 1);
  multiply<<<weights, THREADS, 0, s>>>(dw, matrix{in, 1, inner}, matrix{dout, cols, 1}, inner, cols, n, NULL, false);
  add_columns<<<(n + SPLIT - 1) / SPLIT, THREADS, 0, s>>>(dw + inner * cols, dout, n, cols);
  multiply<<<inputs, THREADS, 0, s>>>(din, matrix{dout, cols, 1}, matrix{w, 1, cols}, n, inner, cols, NULL, false);
}

static bool step(lm_model *m, const lm_batch *b, void *stream) {
  cudaStream_t s = (cudaStream_t)stream;
  float *w = m->parameters, *g = m->gradients;
  int n = (int)(b->rows * b->window), window = (int)b->window;
  if (b->rows * b->window > m->most) return false;
  m->steps++;
  cudaMemsetAsync(g, 0, LM_PARAMETERS * sizeof *g, s);
  cudaMemsetAsync(m->loss, 0, sizeof *m->loss, s);
  embed<<<blocks((int64_t)n * LM_INPUT), THREADS, 0, s>>>(m->x, w + LM_TABLE, b->tokens, window, n);
  forward(m->h1, m->x, w + LM_W1, w + LM_B1, n, LM_INPUT, LM_HIDDEN, true, s);
  forward(m->h2, m->h1, w + LM_W2, w + LM_B2, n, LM_HIDDEN, LM_HIDDEN, true, s);
  forward(m->p, m->h2, w + LM_W3, w + LM_B3, n, LM_HIDDEN, LM_VOCAB, false, s);
  softmax_loss<<<blocks((int64_t)n * 32), THREADS, 0, s>>>(m->p, b->targets, n, m->loss);
  backward(m->p, m->h2, w + LM_W3, g + LM_W3, m->d2, n, LM_HIDDEN, LM_VOCAB, s);
  squash_back<<<blocks((int64_t)n * LM_HIDDEN), THREADS, 0, s>>>(m->d2, m->h2, n * LM_HIDDEN);
  backward(m->d2, m->h1, w + LM_W2, g + LM_W2, m->d1, n, LM_HIDDEN, LM_HIDDEN, s);
  squash_back<<<blocks((int64_t)n * LM_HIDDEN), THREADS, 0, s>>>(m->d1, m->h1, n * LM_HIDDEN);
  backward(m->d1, m->x, w + LM_W1, g + LM_W1, m->dx, n, LM_INPUT, LM_HIDDEN, s);
  embed_back<<<256, THREADS, 0, s>>>(g + LM_TABLE, m->dx, b->tokens, window, n);
  float c1 = 1 - powf(LM_BETA1, (float)m->steps), c2 = 1 - powf(LM_BETA2, (float)m->steps);
  adam<<<blocks(LM_PARAMETERS), THREADS, 0, s>>>(w, g, m->first, m->second, c1, c2);
  return good(cudaGetLastError(), "a step");
}

static bool finish(lm_model *m, void *stream, float *loss) {
  return good(cudaMemcpyAsync(loss, m->loss, sizeof *loss, cudaMemcpyDeviceToHost, (cudaStream_t)stream), "the loss") &&
         good(cudaStreamSynchronize((cudaStream_t)stream), "the step");
}

static void destroy(lm_model *m) {
  if (!m) return;
  cudaFree(m->parameters);
  free(m);
}

static lm_model *create(int64_t most, const float *parameters) {
  size_t each = 2 * LM_INPUT + 4 * LM_HIDDEN + LM_VOCAB, room = 4 * (size_t)LM_PARAMETERS + 1 + (size_t)most * each;
  lm_model *m = (lm_model *)calloc(1, sizeof *m);
  if (!m) return NULL;
  if (!good(cudaMalloc((void **)&m->parameters, room * sizeof(float)), "device memory") ||
      !good(cudaMemset(m->parameters, 0, room * sizeof(float)), "device memory") ||
      !good(cudaMemcpy(m->parameters, parameters, LM_PARAMETERS * sizeof(float), cudaMemcpyHostToDevice), "parameters")) {
    destroy(m);
    return NULL;
  }
  m->most = most;
  m->gradients = m->parameters + LM_PARAMETERS;
  m->first = m->gradients + LM_PARAMETERS;
  m->second = m->first + LM_PARAMETERS;
  m->x = m->second + LM_PARAMETERS;
  m->dx = m->x + most * LM_INPUT;
  m->h1 = m->dx + most * LM_INPUT;
  m->h2 = m->h1 + most * LM_HIDDEN;
  m->d1 = m->h2 + most * LM_HIDDEN;
  m->d2 = m->d1 + most * LM_HIDDEN;
  m->p = m->d2 + most * LM_HIDDEN;
  m->loss = m->p + most * LM_VOCAB;
  return m;
}

const lm_maker lm_cuda = {"CUDA", create, step, finish, destroy};
