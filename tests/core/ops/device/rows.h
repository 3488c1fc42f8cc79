/* Trees of rows on the device under test, blocked streams, and a counter of launches. Each case releases what it
 * makes. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_ROWS_H
#define TDICT_TESTS_CORE_OPS_DEVICE_ROWS_H

#include "core/tree/help.h"

/* must follow help.h, where a variable has the name of the type `place` */
#include "engine/promises.h"

static inline tdict_tensor *rows_on(const place *w, int64_t rows, uint64_t number) {
  tdict_tensor *t = new_tensor(TDICT_I32, 2, (const int64_t[]){rows, 6}, w->memory);
  put_number(w, t, number);
  return t;
}
/* Returns a copy of `w` that makes tensors in host memory. */
static inline place host_of(place w) {
  w.memory = NULL;
  return w;
}
/* Makes a tree of `rows` rows with five tensors on the device. */
static inline tdict_tree *rows_tree(const place *w, int64_t rows, uint64_t number) {
  static const char *const paths[] = {"a", "b", "n.c", "n.d", "e"};
  tdict_tree *td = TREE(rows);
  for (uint64_t i = 0; i < 5; i++) td_put(td, paths[i], rows_on(w, rows, number + i));
  return td;
}
/* Fills the tensors of a tree made by rows_tree() with random bytes. Tensor i gets the seed `number` + i. */
static inline void number_rows(const place *w, const tdict_tree *td, uint64_t number) {
  static const char *const paths[] = {"a", "b", "n.c", "n.d", "e"};
  for (uint64_t i = 0; i < 5; i++) put_number(w, td_leaf(td, paths[i]), number + i);
}
/* Resumes a held device as soon as all other threads sleep. */
static inline void *resume_later(void *user) {
  const place *w = user;
  td_rest();
  if (tdict_sim_resume(w->c, NULL) != TDICT_OK) abort();
  return NULL;
}
/* Checks that row `at` of a tensor equals row `from` of `rows` random rows with seed `number`. */
static inline void check_row(const place *w, tdict_tensor *t, int64_t at, int64_t rows, uint64_t number, int64_t from) {
  TD_FREED int32_t *wanted = malloc((size_t)rows * 24), *found = (int32_t *)(void *)get_bytes(w, t);
  td_fill_random(wanted, (size_t)rows * 24, number);
  assert_memory_equal(found + at * 6, wanted + from * 6, 24);
}

static int num_launches;
static tdict_cu fault_code; /* launches fail with this code, unless it is TDICT_CU_SUCCESS */
static const tdict_driver_ops *real_ops;
static inline tdict_cu count_launch(tdict_driver *d, const tdict_cu_launch *launch, tdict_cu_stream stream) {
  num_launches++;
  return fault_code == TDICT_CU_SUCCESS ? real_ops->launch(d, launch, stream) : fault_code;
}
static inline void begin_counting(shim *s, const place *w) {
  shim_begin(s, w->d);
  real_ops = s->real;
  s->ops.launch = count_launch;
  num_launches = 0;
}

/* A stream that is blocked by a kernel until a gate is opened. */
typedef struct blocked {
  gate gate;
  kernel k;
  tdict_stream s;
  tdict_tensor *t;
} blocked;
static inline void block(const place *w, blocked *b) {
  memset(b, 0, sizeof *b);
  b->s = new_stream(w);
  b->t = new_bytes(8, w->memory);
  kernel_launch(&b->k, b->s, b->t, &b->gate, NULL);
  gate_await(&b->gate, 1);
}
static inline void unblock(blocked *b) { gate_open(&b->gate); }
static inline void end_blocked(const place *w, blocked *b) {
  sync_stream(w, b->s);
  tdict_stream_destroy(w->c, b->s);
  tdict_tensor_release(b->t);
  kernel_end(&b->k);
}

/* Checks that a read of `read` and a write to `written` wait for the blocked stream. Then releases `out`, opens the
 * gate and returns the copy of `read` on the host. */
static inline tdict_tree *pass_gate(const place *w, blocked *b, const tdict_tree *read, tdict_tree *out,
                                    const tdict_tree *fresh, tdict_tree *written) {
  const tdict_transfer_options o = threads(1);
  tdict_future *to_host = move_async(w, read, tdict_cpu(), &o), *over = copy_async(w, fresh, written, &o);
  check_pending(to_host);
  check_pending(over);
  tdict_release(out);
  unblock(b);
  tdict_tree *host = finish(to_host);
  finish_copy(over);
  return host;
}

#endif
