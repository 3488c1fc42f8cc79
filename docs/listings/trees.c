#include <tdict/clone.h>
#include <tdict/debug.h>
#include <tdict/path.h>

#include "batch.h"

static int change_entries(tdict_tree *batch) {
  tdict_tree *obs, *popped_tree = NULL;
  tdict_tensor *reward = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_get_tree(batch, "obs", &obs, &err)); /* borrowed from `batch` */
  /* both keys hold the same tree */
  TDICT_TRY(tdict_set_tree(batch, "next.obs", obs, &err));
  /* true: fails if next.reward exists */
  TDICT_TRY(tdict_rename(batch, "reward", "next.reward", true, &err));
  printf("next.reward: %d, reward: %d\n", tdict_has(batch, "next.reward"),
         tdict_has(batch, "reward"));
  /* now `reward` is owned by this function */
  TDICT_TRY(tdict_pop(batch, "next.reward", &reward, &err));
  TDICT_TRY(tdict_pop_tree(batch, "next", &popped_tree, &err));
  TDICT_TRY(tdict_delete(batch, "obs", &err));
  printf("%d keys are left\n", (int)tdict_num_keys(batch));
done:
  tdict_tensor_release(reward);
  tdict_release(popped_tree);
  return err.status != TDICT_OK;
}

static int read_entries(tdict_tree *batch) {
  tdict_entry entry;
  size_t bytes = 0;
  tdict_error err = {0};
  for (size_t i = 0; i < tdict_num_keys(batch); i++) {
    entry = tdict_get_entry_at(batch, i);
    printf("key %s is a %s\n", tdict_get_entry_at(batch, i).key,
           entry.tensor ? "tensor" : "tree");
  }
  TDICT_TRY(tdict_get_entry(batch, "obs.state", &entry, &err));
  printf("%s has %d elements\n", entry.path, (int)tdict_tensor_numel(entry.tensor));
  /* each storage counts once, with its padding */
  TDICT_TRY(tdict_unique_bytes(batch, &bytes, &err));
  printf("%d batch dimension, %d tensors, %d objects, %d bytes, %d in storages\n",
         tdict_batch_ndim(batch), (int)tdict_num_leaves(batch),
         (int)tdict_num_objects(batch), (int)tdict_bytes(batch), (int)bytes);
done:
  return err.status != TDICT_OK;
}

static int lock_and_place(tdict_tree *batch) {
  const tdict_device cpu = tdict_cpu();
  tdict_device device;
  tdict_error err = {0}, refused = {0};
  /* from now on, all tensors must be on the cpu */
  TDICT_TRY(tdict_set_device(batch, &cpu, &err));
  printf("has a device: %d\n", tdict_get_device(batch, &device));
  tdict_lock(batch);
  if (tdict_delete(batch, "reward", &refused) != TDICT_OK)
    tdict_error_print(&refused, stdout);
  TDICT_TRY(tdict_unlock(batch, &err));
  printf("locked: %d\n", tdict_is_locked(batch));
done:
  return err.status != TDICT_OK;
}

static int share_a_tree(tdict_tree *batch) {
  /* a reference of my own: `batch` may be released elsewhere */
  tdict_tree *mine = tdict_retain(batch);
  const int same = tdict_equal(mine, batch);
  tdict_release(mine);
  printf("the same tree: %d\n", same);
  return !same;
}

static int write_texts(tdict_tree *batch) {
  const char *const keys[] = {"layer.0", "weight"};
  char text[256], path[64];
  printf("the whole text fits: %d\n",
         tdict_format(batch, text, sizeof text) < sizeof text);
  tdict_path_escape("layer.0", path, sizeof path);
  printf("%s\n", path);
  tdict_path_join(keys, 2, path, sizeof path);
  printf("%s\n", path);
  return 0;
}

int main(void) {
  return run_on_batch(change_entries) + run_on_batch(read_entries) +
         run_on_batch(lock_and_place) + run_on_batch(share_a_tree) +
         run_on_batch(write_texts);
}
