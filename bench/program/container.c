/* tdict-bench container: measures building a tree of 1000 leaves, getting each leaf, and walking the tree, on the host
 * only. tdict-costs counts the instructions of the same work. job->state owns the keys. Thread rule: one thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rows.h"

enum { KEY_BYTES = 24 };
typedef struct container_state {
  tdict_tensor **leaves; /* the array is owned, the tensors are borrowed from the first source tree */
  char (*keys)[KEY_BYTES];
} container_state;

static bool container_prepare(bench_job *job) {
  const check_source *s = &job->place->sources[0];
  container_state *state = calloc(1, sizeof *state);
  job->state = state;
  if (!state) return false;
  state->leaves = calloc((size_t)s->leaves, sizeof *state->leaves);
  state->keys = calloc((size_t)s->leaves, sizeof *state->keys);
  if (!state->leaves || !state->keys) return false;
  for (int64_t i = 0; i < s->leaves; i++) {
    snprintf(state->keys[i], KEY_BYTES, "%" PRId64, i);
    if (tdict_get(s->tree, state->keys[i], &state->leaves[i], NULL) != TDICT_OK) return false;
  }
  return true;
}

static void container_finish(bench_job *job) {
  container_state *state = job->state;
  if (!state) return;
  free(state->leaves);
  free(state->keys);
  free(state);
}

static bool build_tree(bench_job *job, int unused, tdict_tree **out) {
  const check_source *s = &job->place->sources[0];
  const container_state *state = job->state;
  tdict_error err;
  (void)unused;
  tdict_status status = tdict_create(0, NULL, out, &err);
  for (int64_t i = 0; i < s->leaves && status == TDICT_OK; i++)
    status = tdict_set(*out, state->keys[i], state->leaves[i], &err);
  return bench_has_worked("cannot build a tree", status, &err);
}

static tdict_status count_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  *(int64_t *)user += entry->tensor != NULL;
  return TDICT_OK;
}

static bool walk_tree(bench_job *job, int unused, tdict_tree **out) {
  const check_source *s = &job->place->sources[0];
  int64_t count = 0;
  (void)unused, (void)out;
  return tdict_walk(s->tree, count_leaf, &count, NULL) == TDICT_OK && count == s->leaves;
}

static bool get_all(bench_job *job, int unused, tdict_tree **out) {
  const check_source *s = &job->place->sources[0];
  const container_state *state = job->state;
  int64_t found = 0;
  (void)unused, (void)out;
  for (int64_t i = 0; i < s->leaves; i++) {
    tdict_tensor *leaf = NULL;
    found += tdict_get(s->tree, state->keys[i], &leaf, NULL) == TDICT_OK && leaf == state->leaves[i];
  }
  return found == s->leaves;
}

/* Checks that the built tree has all leaves, and that every leaf is found and visited. */
static int container_verify(bench_job *job) {
  const check_source *s = &job->place->sources[0];
  scoped_tree tree = NULL;
  const bool good = build_tree(job, 0, &tree) && tdict_num_leaves(tree) == (size_t)s->leaves && get_all(job, 0, NULL) &&
                    walk_tree(job, 0, NULL);
  if (!good) bench_print_error("a leaf was not built, found or visited");
  return good ? BENCH_OK : BENCH_DIFFERS;
}

#define ON_HOST .on_host = true, .prepare = container_prepare, .verify = container_verify, .finish = container_finish
static const bench_kind kind_build = {.name = "build", .make = build_tree, ON_HOST};
static const bench_kind kind_get = {.name = "get", .make = get_all, ON_HOST};
static const bench_kind kind_walk = {.name = "walk", .make = walk_tree, ON_HOST};

#define TREE .groups = {{1000, 4}}, .peers = "tensordict", .worth = 2
static const bench_row rows[] = {
    {.name = "build 1000 leaves", .kind = &kind_build, TREE},
    {.name = "get each of 1000", .kind = &kind_get, TREE},
    {.name = "walk 1000 leaves", .kind = &kind_walk, TREE},
};

BENCH_SCENARIO(container, "container", rows, "builds, gets and walks 1000 leaves on the host")
