/* The model in plain C. All arrays are the model's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct lm_model {
  int64_t most; /* positions that the arrays have room for */
  int64_t steps;
  lm_arrays a;
};

static int32_t token_at(const lm_batch *b, int64_t row, int64_t column) {
  return column < 0 ? -1 : (int32_t)((uint64_t)b->tokens[row * b->window + column] % LM_VOCAB);
}

/* A layer maps n vectors of `inner` numbers to n of `cols`; its bias lies behind its weights [inner, cols]. */
typedef struct shape {
  int64_t n;
  int inner, cols;
} shape;

/* out = in * w + bias */
static void layer(float *out, const float *in, const float *w, shape s) {
  int64_t n = s.n;
  int inner = s.inner, cols = s.cols;
  const float *bias = w + inner * cols;
  for (int64_t i = 0; i < n; i++) {
    float *o = out + i * cols;
    memcpy(o, bias, (size_t)cols * sizeof *o);
    for (int k = 0; k < inner; k++) {
      float a = in[i * inner + k];
      for (int j = 0; j < cols; j++) o[j] += a * w[k * cols + j];
    }
  }
}

/* Gradients of a layer: of its weights and bias (added), and of its input (written). */
static void layer_back(const float *dout, const float *in, const float *w, float *dw, float *din, shape s) {
  int64_t n = s.n;
  int inner = s.inner, cols = s.cols;
  float *dbias = dw + inner * cols;
  for (int64_t i = 0; i < n; i++) {
    const float *d = dout + i * cols;
    for (int j = 0; j < cols; j++) dbias[j] += d[j];
    for (int k = 0; k < inner; k++) {
      float a = in[i * inner + k], sum = 0;
      for (int j = 0; j < cols; j++) {
        dw[k * cols + j] += a * d[j];
        sum += w[k * cols + j] * d[j];
      }
      din[i * inner + k] = sum;
    }
  }
}

static void embed(const lm_model *m, const lm_batch *b) {
  for (int64_t i = 0; i < b->rows * b->window; i++)
    for (int c = 0; c < LM_CONTEXT; c++) {
      int32_t token = token_at(b, i / b->window, i % b->window - c);
      float *x = m->a.x + i * LM_INPUT + c * LM_EMBED;
      if (token < 0)
        memset(x, 0, LM_EMBED * sizeof *x);
      else
        memcpy(x, m->a.parameters + LM_TABLE + token * LM_EMBED, LM_EMBED * sizeof *x);
    }
}

static void embed_back(lm_model *m, const lm_batch *b) {
  for (int64_t i = 0; i < b->rows * b->window; i++)
    for (int c = 0; c < LM_CONTEXT; c++) {
      int32_t token = token_at(b, i / b->window, i % b->window - c);
      const float *d = m->a.dx + i * LM_INPUT + c * LM_EMBED;
      if (token < 0) continue;
      for (int e = 0; e < LM_EMBED; e++) m->a.gradients[LM_TABLE + token * LM_EMBED + e] += d[e];
    }
}

static void squash(float *h, int64_t count) {
  for (int64_t i = 0; i < count; i++) h[i] = tanhf(h[i]);
}
static void squash_back(float *d, const float *h, int64_t count) {
  for (int64_t i = 0; i < count; i++) d[i] *= 1 - h[i] * h[i];
}

/* Logits become gradients of the mean loss, which is returned. */
static float softmax_loss(float *p, const lm_batch *b) {
  int64_t n = b->rows * b->window;
  double loss = 0;
  for (int64_t i = 0; i < n; i++, p += LM_VOCAB) {
    float most = p[0], sum = 0;
    for (int j = 1; j < LM_VOCAB; j++) most = p[j] > most ? p[j] : most;
    for (int j = 0; j < LM_VOCAB; j++) sum += p[j] = expf(p[j] - most);
    int32_t target = (int32_t)((uint64_t)b->targets[i] % LM_VOCAB);
    loss -= (double)logf(p[target] / sum);
    for (int j = 0; j < LM_VOCAB; j++) p[j] /= sum * (float)n;
    p[target] -= 1 / (float)n;
  }
  return (float)(loss / (double)n);
}

static bool update(lm_model *m, void *stream) {
  (void)stream;
  m->steps++;
  float c1 = 1 - powf(LM_BETA1, (float)m->steps), c2 = 1 - powf(LM_BETA2, (float)m->steps);
  for (int i = 0; i < LM_PARAMETERS; i++) {
    float g = m->a.gradients[i];
    m->a.first[i] = LM_BETA1 * m->a.first[i] + (1 - LM_BETA1) * g;
    m->a.second[i] = LM_BETA2 * m->a.second[i] + (1 - LM_BETA2) * g * g;
    m->a.parameters[i] -= LM_RATE * (m->a.first[i] / c1) / (sqrtf(m->a.second[i] / c2) + LM_EPSILON);
  }
  return true;
}

static bool back(lm_model *m, const lm_batch *b, void *stream) {
  const float *w = m->a.parameters;
  float *g = m->a.gradients;
  int64_t n = b->rows * b->window;
  (void)stream;
  if (n > m->most) return false;
  embed(m, b);
  layer(m->a.h1, m->a.x, w + LM_W1, (shape){n, LM_INPUT, LM_HIDDEN});
  squash(m->a.h1, n * LM_HIDDEN);
  layer(m->a.h2, m->a.h1, w + LM_W2, (shape){n, LM_HIDDEN, LM_HIDDEN});
  squash(m->a.h2, n * LM_HIDDEN);
  layer(m->a.p, m->a.h2, w + LM_W3, (shape){n, LM_HIDDEN, LM_VOCAB});
  *m->a.loss = softmax_loss(m->a.p, b);
  memset(g, 0, LM_PARAMETERS * sizeof *g);
  layer_back(m->a.p, m->a.h2, w + LM_W3, g + LM_W3, m->a.d2, (shape){n, LM_HIDDEN, LM_VOCAB});
  squash_back(m->a.d2, m->a.h2, n * LM_HIDDEN);
  layer_back(m->a.d2, m->a.h1, w + LM_W2, g + LM_W2, m->a.d1, (shape){n, LM_HIDDEN, LM_HIDDEN});
  squash_back(m->a.d1, m->a.h1, n * LM_HIDDEN);
  layer_back(m->a.d1, m->a.x, w + LM_W1, g + LM_W1, m->a.dx, (shape){n, LM_INPUT, LM_HIDDEN});
  embed_back(m, b);
  return true;
}

static bool finish(lm_model *m, void *stream, float *loss) {
  (void)stream;
  *loss = *m->a.loss;
  return true;
}

static const lm_arrays *arrays(const lm_model *m) { return &m->a; }

static void destroy(lm_model *m) {
  if (!m) return;
  free(m->a.parameters);
  free(m);
}

static lm_model *create(int gpu, int64_t most, const float *parameters) {
  (void)gpu;
  lm_model *m = calloc(1, sizeof *m);
  float *memory = calloc(lm_room(most), sizeof *memory);
  if (!m || !memory) {
    free(memory);
    free(m);
    return NULL;
  }
  m->most = most;
  m->a = lm_lay_out(memory, most);
  memcpy(m->a.parameters, parameters, LM_PARAMETERS * sizeof *parameters);
  return m;
}

const lm_maker lm_cpu = {"plain C", create, back, update, finish, arrays, destroy};
