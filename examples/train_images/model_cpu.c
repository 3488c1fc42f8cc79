/* The model in plain C. The model owns its arrays. Thread rule: one thread at a time. */
#include <stdlib.h>
#include <string.h>

#include "net.h"

struct net_model {
  int64_t most_rows;
  net_arrays arrays;
  float memory[3 * NET_PARAMETERS + NET_SUMS];
};

static bool back(net_model *m, const net_batch *b, void *stream) {
  net_work work;
  (void)stream;
  if (b->rows > m->most_rows) return false;
  memset(m->arrays.gradients, 0, NET_SUMS * sizeof(float));
  for (int64_t i = 0; i < b->rows; i++)
    net_image(&work, m->arrays.parameters, b->images + i * NET_SIDE * NET_SIDE, b->labels[i], (int)b->rows,
              m->arrays.gradients);
  return true;
}

static bool update(net_model *m, int64_t step, void *stream) {
  (void)stream;
  NET_FOR(i, NET_PARAMETERS) net_adam(&m->arrays, i, step);
  return true;
}

static bool finish(net_model *m, void *stream, float *loss, float *right) {
  (void)stream;
  *loss = m->arrays.gradients[NET_LOSS];
  *right = m->arrays.gradients[NET_RIGHT];
  return true;
}

static const net_arrays *arrays(const net_model *m) { return &m->arrays; }

static void destroy(net_model *m) { free(m); }

static net_model *create(int gpu, int64_t most_rows, const float *parameters) {
  (void)gpu;
  net_model *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->most_rows = most_rows;
  m->arrays.parameters = m->memory;
  m->arrays.first = m->memory + NET_PARAMETERS;
  m->arrays.second = m->arrays.first + NET_PARAMETERS;
  m->arrays.gradients = m->arrays.second + NET_PARAMETERS;
  memcpy(m->memory, parameters, NET_PARAMETERS * sizeof *parameters);
  return m;
}

const net_maker net_cpu = {"plain C", create, back, update, finish, arrays, destroy};
