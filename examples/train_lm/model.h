/* A small language model. The input of a position is its token and the three tokens before it, embedded and
 * concatenated. Two hidden layers use tanh. The output is a softmax over the vocabulary. Adam trains it. There are two
 * implementations with the same results: plain C and CUDA.
 *
 * Thread rule: one thread at a time. */
#ifndef TRAIN_LM_MODEL_H
#define TRAIN_LM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LM_CONTEXT = 4, LM_EMBED = 16, LM_INPUT = LM_CONTEXT * LM_EMBED, LM_HIDDEN = 64, LM_VOCAB = 128 };

/* Where each parameter lies in one array of floats. */
enum {
  LM_TABLE = 0,                           /* [VOCAB, EMBED] */
  LM_W1 = LM_TABLE + LM_VOCAB * LM_EMBED, /* [INPUT, HIDDEN] */
  LM_B1 = LM_W1 + LM_INPUT * LM_HIDDEN,
  LM_W2 = LM_B1 + LM_HIDDEN, /* [HIDDEN, HIDDEN] */
  LM_B2 = LM_W2 + LM_HIDDEN * LM_HIDDEN,
  LM_W3 = LM_B2 + LM_HIDDEN, /* [HIDDEN, VOCAB] */
  LM_B3 = LM_W3 + LM_HIDDEN * LM_VOCAB,
  LM_PARAMETERS = LM_B3 + LM_VOCAB
};

/* One piece of memory where the model computes: parameters, their gradients, the loss, Adam's moments; then for each
 * position its input, two hidden layers, what the loss says of each, and p: logits, then probabilities, then gradients.
 * The loss lies directly behind the gradients, so that one message can carry both (parallel.h). */
enum { LM_LOSS_ROOM = 64 }; /* keeps the arrays behind the loss aligned */
typedef struct lm_arrays {
  float *parameters, *gradients, *loss, *first, *second, *x, *dx, *h1, *h2, *d1, *d2, *p;
} lm_arrays;
static inline size_t lm_room(int64_t positions) {
  return LM_LOSS_ROOM + 4 * (size_t)LM_PARAMETERS + (size_t)positions * (2 * LM_INPUT + 4 * LM_HIDDEN + LM_VOCAB);
}
static inline lm_arrays lm_lay_out(float *memory, int64_t positions) {
  lm_arrays a;
  a.parameters = memory;
  a.gradients = a.parameters + LM_PARAMETERS;
  a.loss = a.gradients + LM_PARAMETERS;
  a.first = a.loss + LM_LOSS_ROOM;
  a.second = a.first + LM_PARAMETERS;
  a.x = a.second + LM_PARAMETERS;
  a.dx = a.x + positions * LM_INPUT;
  a.h1 = a.dx + positions * LM_INPUT;
  a.h2 = a.h1 + positions * LM_HIDDEN;
  a.d1 = a.h2 + positions * LM_HIDDEN;
  a.d2 = a.d1 + positions * LM_HIDDEN;
  a.p = a.d2 + positions * LM_HIDDEN;
  return a;
}

/* Tokens and targets: [rows, window] int64, where the model computes; ids are taken modulo the vocabulary. */
typedef struct lm_batch {
  const int64_t *tokens, *targets;
  int64_t rows, window;
} lm_batch;

typedef struct lm_model lm_model;
/* How a model computes. `stream` is a cudaStream_t, or ignored. */
typedef struct lm_maker {
  const char *name;
  /* On a GPU: number `gpu`, which the calling thread then uses. Copies the parameters. NULL: no memory */
  lm_model *(*create)(int gpu, int64_t most_positions, const float *parameters);
  bool (*back)(lm_model *model, const lm_batch *batch, void *stream); /* queues the loss and its gradients */
  bool (*update)(lm_model *model, void *stream);                      /* queues one step of Adam with them */
  bool (*finish)(lm_model *model, void *stream, float *loss);         /* waits; the loss that is there then */
  const lm_arrays *(*arrays)(const lm_model *model);                  /* the model's own */
  void (*destroy)(lm_model *model);
} lm_maker;
extern const lm_maker lm_cpu;
extern const lm_maker lm_cuda; /* where nvcc was there to build it */

/* Adam's constants, the same on both sides. */
#define LM_RATE 2e-3f
#define LM_BETA1 0.9f
#define LM_BETA2 0.999f
#define LM_EPSILON 1e-8f

#ifdef __cplusplus
}
#endif
#endif
