/* The computation for one image, for model_cpu.c and model_cuda.cu. In CUDA, the threads of a block share the elements
 * of each loop NET_FOR, and wait for each other at NET_SYNC. In C, there is one thread. Each element of a result is one
 * sum in a fixed order, so the results do not depend on the number of threads. */
#ifndef TRAIN_IMAGES_NET_H
#define TRAIN_IMAGES_NET_H

#include <math.h>

#include "model.h"

#ifdef __CUDACC__
#define NET_FUNCTION static __device__
#define NET_FOR(i, count) for (int i = (int)threadIdx.x; i < (count); i += (int)blockDim.x)
#define NET_SYNC() __syncthreads()
#else
#define NET_FUNCTION static
#define NET_FOR(i, count) for (int i = 0; i < (count); i++)
#define NET_SYNC() ((void)0)
#endif

/* The outputs of the layers for one image, and the gradients of these outputs. */
typedef struct net_work {
  float h1[NET_S1 * NET_S1 * NET_C1], d1[NET_S1 * NET_S1 * NET_C1]; /* [row, column, channel] */
  float h2[NET_INNER], d2[NET_INNER];
  float p[NET_CLASSES]; /* outputs, then gradients */
} net_work;

NET_FUNCTION void net_forward(net_work *s, const float *w, const float *image) {
  NET_FOR(i, NET_S1 * NET_S1 * NET_C1) {
    const int o = i % NET_C1, column = i / NET_C1 % NET_S1, row = i / NET_C1 / NET_S1;
    float sum = w[NET_B1 + o];
    for (int k = 0; k < NET_K1 * NET_K1; k++)
      sum += w[NET_W1 + k * NET_C1 + o] * image[(row + k / NET_K1) * NET_SIDE + column + k % NET_K1];
    s->h1[i] = sum > 0 ? sum : 0;
  }
  NET_SYNC();
  NET_FOR(i, NET_INNER) {
    const int o = i % NET_C2, column = i / NET_C2 % NET_S2, row = i / NET_C2 / NET_S2;
    float sum = w[NET_B2 + o];
    for (int k = 0; k < NET_K2 * NET_K2; k++) {
      const float *in = s->h1 + ((2 * row + k / NET_K2) * NET_S1 + 2 * column + k % NET_K2) * NET_C1;
      for (int c = 0; c < NET_C1; c++) sum += w[NET_W2 + (k * NET_C1 + c) * NET_C2 + o] * in[c];
    }
    s->h2[i] = sum > 0 ? sum : 0;
  }
  NET_SYNC();
  NET_FOR(o, NET_CLASSES) {
    float sum = w[NET_B3 + o];
    for (int k = 0; k < NET_INNER; k++) sum += w[NET_W3 + k * NET_CLASSES + o] * s->h2[k];
    s->p[o] = sum;
  }
  NET_SYNC();
}

/* Adds the loss to g[NET_LOSS], and 1 to g[NET_RIGHT] if the image is recognized. Turns the outputs into gradients. */
NET_FUNCTION void net_loss(net_work *s, int label, int rows, float *g) {
  NET_FOR(only, 1) {
    int best = only;
    float sum = 0;
    for (int o = 1; o < NET_CLASSES; o++) best = s->p[o] > s->p[best] ? o : best;
    const float most = s->p[best];
    for (int o = 0; o < NET_CLASSES; o++) sum += s->p[o] = expf(s->p[o] - most);
    g[NET_LOSS] -= logf(s->p[label] / sum) / (float)rows;
    g[NET_RIGHT] += best == label ? 1.0f : 0.0f;
    for (int o = 0; o < NET_CLASSES; o++) s->p[o] = (s->p[o] / sum - (o == label ? 1.0f : 0.0f)) / (float)rows;
  }
  NET_SYNC();
}

/* Computes the gradients of the outputs of the two convolutions. */
NET_FUNCTION void net_outputs_back(net_work *s, const float *w) {
  NET_FOR(k, NET_INNER) {
    float sum = 0;
    for (int o = 0; o < NET_CLASSES; o++) sum += w[NET_W3 + k * NET_CLASSES + o] * s->p[o];
    s->d2[k] = s->h2[k] > 0 ? sum : 0;
  }
  NET_SYNC();
  NET_FOR(i, NET_S1 * NET_S1 * NET_C1) {
    const int c = i % NET_C1, column = i / NET_C1 % NET_S1, row = i / NET_C1 / NET_S1;
    float sum = 0;
    for (int at = 0; at < NET_S2 * NET_S2; at++) {
      const int y = row - 2 * (at / NET_S2), x = column - 2 * (at % NET_S2); /* in the window of output `at` */
      if (y < 0 || y >= NET_K2 || x < 0 || x >= NET_K2) continue;
      const float *weights = w + NET_W2 + ((y * NET_K2 + x) * NET_C1 + c) * NET_C2;
      for (int o = 0; o < NET_C2; o++) sum += weights[o] * s->d2[at * NET_C2 + o];
    }
    s->d1[i] = s->h1[i] > 0 ? sum : 0;
  }
  NET_SYNC();
}

/* Adds the gradients of the parameters to g. */
NET_FUNCTION void net_parameters_back(const net_work *s, const float *image, float *g) {
  NET_FOR(i, NET_INNER * NET_CLASSES) g[NET_W3 + i] += s->h2[i / NET_CLASSES] * s->p[i % NET_CLASSES];
  NET_FOR(o, NET_CLASSES) g[NET_B3 + o] += s->p[o];
  NET_FOR(i, NET_K2 * NET_K2 * NET_C1 * NET_C2) {
    const int o = i % NET_C2, c = i / NET_C2 % NET_C1, k = i / NET_C2 / NET_C1;
    float sum = 0;
    for (int at = 0; at < NET_S2 * NET_S2; at++) {
      const int row = 2 * (at / NET_S2) + k / NET_K2, column = 2 * (at % NET_S2) + k % NET_K2;
      sum += s->h1[(row * NET_S1 + column) * NET_C1 + c] * s->d2[at * NET_C2 + o];
    }
    g[NET_W2 + i] += sum;
  }
  NET_FOR(o, NET_C2) {
    float sum = 0;
    for (int at = 0; at < NET_S2 * NET_S2; at++) sum += s->d2[at * NET_C2 + o];
    g[NET_B2 + o] += sum;
  }
  NET_FOR(i, NET_K1 * NET_K1 * NET_C1) {
    const int o = i % NET_C1, k = i / NET_C1;
    float sum = 0;
    for (int at = 0; at < NET_S1 * NET_S1; at++)
      sum += s->d1[at * NET_C1 + o] * image[(at / NET_S1 + k / NET_K1) * NET_SIDE + at % NET_S1 + k % NET_K1];
    g[NET_W1 + i] += sum;
  }
  NET_FOR(o, NET_C1) {
    float sum = 0;
    for (int at = 0; at < NET_S1 * NET_S1; at++) sum += s->d1[at * NET_C1 + o];
    g[NET_B1 + o] += sum;
  }
}

/* Adds the loss of one image of a batch of `rows` images, and the gradients of this loss, to g. */
NET_FUNCTION void net_image(net_work *s, const float *w, const float *image, int label, int rows, float *g) {
  net_forward(s, w, image);
  net_loss(s, label, rows, g);
  net_outputs_back(s, w);
  net_parameters_back(s, image, g);
}

/* Updates parameter i by Adam. */
NET_FUNCTION void net_adam(const net_arrays *a, int i, int64_t step) {
  const float rate = 8e-3f / (1 + (float)step / 150), keep1 = 0.9f, keep2 = 0.999f, g = a->gradients[i];
  a->first[i] = keep1 * a->first[i] + (1 - keep1) * g;
  a->second[i] = keep2 * a->second[i] + (1 - keep2) * g * g;
  const float first = a->first[i] / (1 - powf(keep1, (float)step));
  const float second = a->second[i] / (1 - powf(keep2, (float)step));
  a->parameters[i] -= rate * first / (sqrtf(second) + 1e-8f);
}

#endif
