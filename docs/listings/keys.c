#include <string.h>

#include <tdict/clone.h>
#include <tdict/keysets.h>
#include <tdict/visit.h>
#include <tdict/write.h>

#include "batch.h"

static int choose_keys(tdict_tree *batch) {
  const char *const paths[] = {"obs.state"};
  const tdict_key_set set = {paths, 1};
  tdict_tree *chosen = NULL, *others = NULL, *merged = NULL, *sets[2] = {NULL, NULL};
  size_t count = 2;
  tdict_error err = {0};
  /* true: a missing path is an error */
  TDICT_TRY(tdict_select(batch, paths, 1, true, &chosen, &err));
  TDICT_TRY(tdict_exclude(batch, paths, 1, &others, &err));
  /* the set, and all other entries */
  TDICT_TRY(tdict_split_keys(batch, &set, 1, sets, &count, &err));
  TDICT_TRY(tdict_clone(sets[0], &merged, &err));
  TDICT_TRY(tdict_update(merged, sets[1], NULL, 0, &err)); /* both again */
  printf("selected %d, excluded %d, merged %d tensors\n", (int)tdict_num_leaves(chosen),
         (int)tdict_num_leaves(others), (int)tdict_num_leaves(merged));
done:
  tdict_release(merged);
  tdict_release(sets[1]);
  tdict_release(sets[0]);
  tdict_release(others);
  tdict_release(chosen);
  return err.status != TDICT_OK;
}

static int replace_keys(tdict_tree *batch) {
  const char *const state[] = {"obs.state"};
  tdict_tree *others = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_exclude(batch, state, 1, &others, &err));
  TDICT_TRY(tdict_assign(batch, others, &err)); /* `batch` stays the same tree */
  printf("obs.state: %d\n", tdict_has(batch, "obs.state"));
done:
  tdict_release(others);
  return err.status != TDICT_OK;
}

static int flatten_keys(tdict_tree *batch) {
  tdict_tree *flat = NULL, *nested = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_flatten_keys(batch, "/", &flat, &err));
  printf("flat key: %s\n", tdict_get_entry_at(flat, 0).key);
  TDICT_TRY(tdict_unflatten_keys(flat, "/", &nested, &err));
  printf("equal: %d, depth %d\n", tdict_equal(batch, nested), tdict_depth(batch));
done:
  tdict_release(nested);
  tdict_release(flat);
  return err.status != TDICT_OK;
}

static tdict_status add_bytes(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  *(size_t *)user += tdict_tensor_bytes(at->tensors[0]);
  return TDICT_OK;
}

static tdict_status make_zeros(void *user, const tdict_leaves *at, tdict_tensor **out,
                               tdict_error *err) {
  const tdict_tensor *like = at->tensors[0];
  (void)user;
  return tdict_tensor_zeros(tdict_tensor_dtype(like), tdict_tensor_ndim(like),
                            tdict_tensor_shape(like), NULL, out, err);
}

static bool is_state(void *user, const tdict_leaves *at) {
  (void)user;
  return strcmp(at->path, "obs.state") == 0;
}

static int call_for_each_leaf(tdict_tree *batch) {
  const tdict_tree *trees[1] = {batch};
  tdict_tree *zeros = NULL, *states = NULL;
  size_t bytes = 0;
  tdict_error err = {0};
  TDICT_TRY(tdict_visit(NULL, trees, 1, add_bytes, &bytes, NULL, &err));
  /* a new tree with the same keys */
  TDICT_TRY(tdict_apply(NULL, trees, 1, make_zeros, NULL, NULL, &zeros, &err));
  TDICT_TRY(tdict_filter(batch, is_state, NULL, &states, &err));
  printf("%d bytes; %d tensors of zeros; %d kept\n", (int)bytes,
         (int)tdict_num_leaves(zeros), (int)tdict_num_leaves(states));
done:
  tdict_release(states);
  tdict_release(zeros);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(choose_keys) + run_on_batch(replace_keys) +
         run_on_batch(flatten_keys) + run_on_batch(call_for_each_leaf);
}
