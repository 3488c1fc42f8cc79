/* tdict-costs: what containers cost on the host, for scripts/costs, which counts instructions with callgrind inside the
 * functions named cost_ and nowhere else. All of them run each time; keys and tensors are made outside.
 *
 * Owner: main. Thread rule: one thread. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "tdict/tdict.h"

enum { COST_LEAVES = 1000 };

typedef struct cost_job {
  char keys[COST_LEAVES][16];
  tdict_tensor *leaves[COST_LEAVES];
  tdict_tree *flat, *deep;
  tdict_error err;
} cost_job;

/* callgrind finds the functions by their names, so they may be neither inlined nor copied */
#if defined(__clang__)
#define COST __attribute__((noinline, used))
#else
#define COST __attribute__((noinline, noclone, used))
#endif

COST static tdict_status cost_build(cost_job *job) {
  tdict_status status = tdict_create(0, NULL, &job->flat, &job->err);
  for (int i = 0; i < COST_LEAVES && status == TDICT_OK; i++)
    status = tdict_set(job->flat, job->keys[i], job->leaves[i], &job->err);
  return status;
}

COST static tdict_status cost_get(cost_job *job) {
  tdict_status status = TDICT_OK;
  for (int i = 0; i < COST_LEAVES && status == TDICT_OK; i++) {
    tdict_tensor *leaf;
    status = tdict_get(job->flat, job->keys[i], &leaf, &job->err);
  }
  return status;
}

COST static tdict_status cost_get_deep(cost_job *job) {
  tdict_status status = TDICT_OK;
  for (int i = 0; i < COST_LEAVES && status == TDICT_OK; i++) {
    tdict_tensor *leaf;
    status = tdict_get(job->deep, "next.obs.pixels", &leaf, &job->err);
  }
  return status;
}

static tdict_status count_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  *(int *)user += entry->tensor != NULL;
  return TDICT_OK;
}

COST static tdict_status cost_walk(cost_job *job) {
  int count = 0;
  tdict_status status = tdict_walk(job->flat, count_leaf, &count, &job->err);
  if (status == TDICT_OK && count != COST_LEAVES) {
    snprintf(job->err.message, sizeof job->err.message, "%d leaves were shown", count);
    status = TDICT_EINVAL;
  }
  return status;
}

/* What is counted must not be the making of its material. */
static tdict_status prepare(cost_job *job) {
  static const int64_t one[1] = {1};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < COST_LEAVES && status == TDICT_OK; i++) {
    snprintf(job->keys[i], sizeof job->keys[i], "key%d", i);
    status = tdict_tensor_empty(TDICT_F32, 1, one, NULL, &job->leaves[i], &job->err);
  }
  if (status == TDICT_OK) status = tdict_create(0, NULL, &job->deep, &job->err);
  if (status == TDICT_OK) status = tdict_set(job->deep, "next.obs.pixels", job->leaves[0], &job->err);
  return status;
}

int main(int argc, char **argv) {
  if (!output_watch("tdict-costs")) return 1;
  if (argc > 1) {
    bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr,
            "usage: tdict-costs\nDoes what containers do on the host, once; scripts/costs counts "
            "the instructions.\nExit status: 0 done, 1 something failed, 2 wrong use.\n");
    return help ? 0 : 2;
  }
  cost_job *job = calloc(1, sizeof *job);
  if (!job) return 1;
  tdict_status status = prepare(job);
  if (status == TDICT_OK) status = cost_build(job);
  if (status == TDICT_OK) status = cost_get(job);
  if (status == TDICT_OK) status = cost_get_deep(job);
  if (status == TDICT_OK) status = cost_walk(job);
  if (status != TDICT_OK)
    fprintf(stderr, "tdict-costs: %s: %s (%s)\n", job->err.path, job->err.message, tdict_status_name(status));
  tdict_release(job->flat);
  tdict_release(job->deep);
  for (int i = 0; i < COST_LEAVES; i++) tdict_tensor_release(job->leaves[i]);
  free(job);
  return status == TDICT_OK ? 0 : 1;
}
