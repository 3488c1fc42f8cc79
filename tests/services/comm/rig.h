/* Runs ranks as threads, for the tests of communicators. A case passes a function that each rank runs. Ranks do not
 * assert: they record the first error, and the main thread then fails the case. */
#ifndef TDICT_TESTS_SERVICES_COMM_RIG_H
#define TDICT_TESTS_SERVICES_COMM_RIG_H

#include "core/base/clock.h"
#include "core/tree/help.h"
#include "support/random.h"
#include "support/thread_comm.h"
#include "support/threads.h"

#define RIG_SECOND ((int64_t)1000000000)
typedef struct rig rig;
typedef struct rig_rank {
  rig *rig;
  int rank;
  tdict_comm_table table;
  tdict_comm *comm; /* NULL if the case needs no communicators */
  tdict_error error;
  char wrong[400];
  int status;      /* the status that the case's call returned */
  tdict_tree *got; /* the result of the case's call; released with the rig */
  int64_t took_ns;
  pthread_t thread;
} rig_rank;
struct rig {
  int world;
  tdict_context *context;
  tdict_device device;
  thread_world *threads;
  void (*run)(rig_rank *r);
  void *user;
  rig_rank ranks[THREAD_MOST_RANKS];
};

static inline void rig_note(rig_rank *r, const char *where, int line, const char *text) {
  if (!r->wrong[0]) snprintf(r->wrong, sizeof r->wrong, "rank %d, %s:%d: %.200s", r->rank, where, line, text);
}
#define rig_true(r, condition)                                              \
  do {                                                                      \
    if (!(condition)) rig_note((r), __FILE__, __LINE__, "not " #condition); \
  } while (0)
/* Makes a call, and records the error if the call fails. The call can use `err`. */
#define rig_ok(r, call)                                                                                            \
  do {                                                                                                             \
    tdict_error *err = &(r)->error;                                                                                \
    char rig_text_[360];                                                                                           \
    memset(err, 0, sizeof *err);                                                                                   \
    if ((call) != TDICT_OK) {                                                                                      \
      snprintf(rig_text_, sizeof rig_text_, "%s at '%.60s': %.200s", tdict_status_name((tdict_status)err->status), \
               err->path, err->message);                                                                           \
      rig_note((r), __FILE__, __LINE__, rig_text_);                                                                \
    }                                                                                                              \
  } while (0)
/* Makes a call and keeps its status, its error and its time. */
#define rig_keep(r, call)                       \
  do {                                          \
    tdict_error *err = &(r)->error;             \
    const int64_t rig_begin_ = tdict_now_ns();  \
    memset(err, 0, sizeof *err);                \
    (r)->status = (int)(call);                  \
    (r)->took_ns = tdict_now_ns() - rig_begin_; \
  } while (0)

static inline rig *rig_create_on(int world, tdict_context *context, tdict_device device, bool with_comm) {
  rig *g = td_zeros(1, sizeof *g);
  g->world = world;
  g->context = context;
  g->device = device;
  g->threads = thread_world_create(world, device.type == TDICT_DEVICE_CPU ? NULL : context, device);
  for (int i = 0; i < world; i++) {
    g->ranks[i] = (rig_rank){.rig = g, .rank = i};
    thread_world_table(g->threads, i, &g->ranks[i].table);
    if (with_comm) td_ok(tdict_comm_create(context, &g->ranks[i].table, NULL, &g->ranks[i].comm, err));
  }
  return g;
}
/* The context that the rigs of a case share. It is destroyed at the end of the case. */
static tdict_context *rig_shared_context;
static inline void rig_end(void) { td_release(rig_shared_context); }
static inline tdict_context *rig_context(void) {
  if (rig_shared_context) return rig_shared_context;
  td_at_end(rig_end);
  return rig_shared_context = td_context(td_options(tdict_context_options, num_threads = 2));
}
/* Creates a rig whose ranks use the device of the run. */
static inline rig *rig_create(int world) { return rig_create_on(world, rig_context(), td_device(), true); }

static inline void *rig_thread(void *rank) {
  rig_rank *r = rank;
  r->rig->run(r);
  return NULL;
}
/* Runs a function on a thread for each rank, and fails if a rank has recorded an error. */
static inline void rig_run(rig *g, void (*run)(rig_rank *r), void *user) {
  g->run = run;
  g->user = user;
  for (int i = 0; i < g->world; i++) g->ranks[i].thread = td_start(rig_thread, &g->ranks[i]);
  for (int i = 0; i < g->world; i++) pthread_join(g->ranks[i].thread, NULL);
  for (int i = 0; i < g->world; i++)
    if (g->ranks[i].wrong[0]) fail_msg("%s", g->ranks[i].wrong);
  g->user = NULL; /* may point to a variable of the caller */
}
static inline void rig_drop_results(rig *g) {
  for (int i = 0; i < g->world; i++) {
    tdict_release(g->ranks[i].got);
    g->ranks[i].got = NULL;
  }
}
static inline void rig_destroy(rig *g) {
  rig_drop_results(g);
  for (int i = 0; i < g->world; i++) tdict_comm_destroy(g->ranks[i].comm);
  thread_world_destroy(g->threads);
  free(g);
}
TD_DECLARE_SCOPED(rig, rig, rig_destroy)
#define scoped_rig TD_SCOPED_NAMED(rig)
/* Runs a check `rounds` times with each number of ranks from 1 to 4, and releases the results after each round. */
static inline void rig_in_worlds(uint64_t seed, int rounds, void (*check)(rig *g, rng *random, int round)) {
  rng random = {seed};
  for (int world = 1; world <= 4; world++) {
    scoped_rig g = rig_create(world);
    for (int i = 0; i < rounds; i++) {
      check(g, &random, i);
      rig_drop_results(g);
    }
  }
}

#endif
