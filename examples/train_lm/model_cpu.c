/* The model in plain C. All arrays are the model's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct lm_model {
  int64_t most; /* positions that the arrays have room for */
  int64_t steps;
  float loss;
  float *parameters, *gradients, *first, *second; /* and Adam's moments */
  float *x, *h1, *h2, *p;                         /* [positions, ...], p: logits, then probabilities, then gradients */
  float *d1, *d2, *dx;
};

static int32_t token_at(const lm_batch *b, int64_t row, int64_t column) {
  return column < 0 ? -1 : (int32_t)((uint32_t)b->tokens[row * b->window + column] % LM_VOCAB);
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
      float *x = m->x + i * LM_INPUT + c * LM_EMBED;
      if (token < 0)
        memset(x, 0, LM_EMBED * sizeof *x);
      else
        memcpy(x, m->parameters + LM_TABLE + token * LM_EMBED, LM_EMBED * sizeof *x);
    }
}

static void embed_back(lm_model *m, const lm_batch *b) {
  for (int64_t i = 0; i < b->rows * b->window; i++)
    for (int c = 0; c < LM_CONTEXT; c++) {
      int32_t token = token_at(b, i / b->window, i % b->window - c);
      const float *d = m->dx + i * LM_INPUT + c * LM_EMBED;
      if (token < 0) continue;
      for (int e = 0; e < LM_EMBED; e++) m->gradients[LM_TABLE + token * LM_EMBED + e] += d[e];
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
    int32_t target = (int32_t)((uint32_t)b->targets[i] % LM_VOCAB);
    loss -= (double)logf(p[target] / sum);
    for (int j = 0; j < LM_VOCAB; j++) p[j] /= sum * (float)n;
    p[target] -= 1 / (float)n;
  }
  return (float)(loss / (double)n);
}

static void adam(lm_model *m) {
  m->steps++;
  float c1 = 1 - powf(LM_BETA1, (float)m->steps), c2 = 1 - powf(LM_BETA2, (float)m->steps);
  for (int i = 0; i < LM_PARAMETERS; i++) {
    float g = m->gradients[i];
    m->first[i] = LM_BETA1 * m->first[i] + (1 - LM_BETA1) * g;
    m->second[i] = LM_BETA2 * m->second[i] + (1 - LM_BETA2) * g * g;
    m->parameters[i] -= LM_RATE * (m->first[i] / c1) / (sqrtf(m->second[i] / c2) + LM_EPSILON);
  }
}

static bool step(lm_model *m, const lm_batch *b, void *stream) {
  const float *w = m->parameters;
  float *g = m->gradients;
  int64_t n = b->rows * b->window;
  (void)stream;
  if (n > m->most) return false;
  embed(m, b);
  layer(m->h1, m->x, w + LM_W1, (shape){n, LM_INPUT, LM_HIDDEN});
  squash(m->h1, n * LM_HIDDEN);
  layer(m->h2, m->h1, w + LM_W2, (shape){n, LM_HIDDEN, LM_HIDDEN});
  squash(m->h2, n * LM_HIDDEN);
  layer(m->p, m->h2, w + LM_W3, (shape){n, LM_HIDDEN, LM_VOCAB});
  m->loss = softmax_loss(m->p, b);
  memset(g, 0, LM_PARAMETERS * sizeof *g);
  layer_back(m->p, m->h2, w + LM_W3, g + LM_W3, m->d2, (shape){n, LM_HIDDEN, LM_VOCAB});
  squash_back(m->d2, m->h2, n * LM_HIDDEN);
  layer_back(m->d2, m->h1, w + LM_W2, g + LM_W2, m->d1, (shape){n, LM_HIDDEN, LM_HIDDEN});
  squash_back(m->d1, m->h1, n * LM_HIDDEN);
  layer_back(m->d1, m->x, w + LM_W1, g + LM_W1, m->dx, (shape){n, LM_INPUT, LM_HIDDEN});
  embed_back(m, b);
  adam(m);
  return true;
}

static bool finish(lm_model *m, void *stream, float *loss) {
  (void)stream;
  *loss = m->loss;
  return true;
}

static void destroy(lm_model *m) {
  if (!m) return;
  free(m->parameters);
  free(m->x);
  free(m);
}

static lm_model *create(int64_t most, const float *parameters) {
  size_t each = 2 * LM_INPUT + 4 * LM_HIDDEN + LM_VOCAB;
  lm_model *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->most = most;
  m->parameters = calloc(4 * (size_t)LM_PARAMETERS, sizeof *m->parameters);
  m->x = calloc((size_t)most * each, sizeof *m->x);
  if (!m->parameters || !m->x) {
    destroy(m);
    return NULL;
  }
  memcpy(m->parameters, parameters, LM_PARAMETERS * sizeof *parameters);
  m->gradients = m->parameters + LM_PARAMETERS;
  m->first = m->gradients + LM_PARAMETERS;
  m->second = m->first + LM_PARAMETERS;
  m->dx = m->x + most * LM_INPUT;
  m->h1 = m->dx + most * LM_INPUT;
  m->h2 = m->h1 + most * LM_HIDDEN;
  m->d1 = m->h2 + most * LM_HIDDEN;
  m->d2 = m->d1 + most * LM_HIDDEN;
  m->p = m->d2 + most * LM_HIDDEN;
  return m;
}

const lm_maker lm_cpu = {"plain C", create, step, finish, destroy};
